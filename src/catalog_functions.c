/*
 * catalog_functions.c
 *	  The SQL-callable functions that describe: layouts, and the state of this
 *	  server.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "generator.h"
#include "parts.h"
#include "shmem.h"
#include "stats.h"
#include "word.h"

PG_FUNCTION_INFO_V1(snowflake_layout);
PG_FUNCTION_INFO_V1(snowflake_layout_layout);
PG_FUNCTION_INFO_V1(snowflake_layouts);
PG_FUNCTION_INFO_V1(pg_stat_snowflake);
PG_FUNCTION_INFO_V1(pg_stat_snowflake_reset);

/* JavaScript's Number.MAX_SAFE_INTEGER has this many bits. */
#define JS_SAFE_BITS		53

#define LAYOUT_COLUMNS		8
#define STAT_COLUMNS		22

static Datum
interval_datum(int64 microseconds)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = microseconds;
	return IntervalPGetDatum(interval);
}

/* Columns in the order of the CREATE FUNCTION statements. */
static void
layout_columns(const SnowflakeLayout *layout, Datum *values, bool *nulls)
{
	char		definition[SNOWFLAKE_DEFINITION_SIZE];
	const char *name = snowflake_layout_name(layout);
	int			i = 0;

	snowflake_layout_define(layout, definition);
	nulls[i] = name == NULL;
	values[i++] = name != NULL ? CStringGetTextDatum(name) : (Datum) 0;
	values[i++] = CStringGetTextDatum(definition);
	values[i++] = Int32GetDatum(layout->total_bits);
	values[i++] = interval_datum(layout->tick_us);
	values[i++] = TimestampTzGetDatum(layout->epoch);
	values[i++] = TimestampTzGetDatum(snowflake_tick_begin(layout, layout->max_tick));
	values[i++] = Int64GetDatum((int64) (snowflake_field_max(layout, SNOWFLAKE_SEQUENCE) + 1) *
								USECS_PER_SEC / layout->tick_us);
	values[i++] = BoolGetDatum(layout->total_bits <= JS_SAFE_BITS);
	Assert(i == LAYOUT_COLUMNS);
}

static Datum
layout_row(FunctionCallInfo fcinfo, const SnowflakeLayout *layout)
{
	Datum		values[LAYOUT_COLUMNS];
	bool		nulls[LAYOUT_COLUMNS] = {false};
	TupleDesc	result;

	if (get_call_result_type(fcinfo, NULL, &result) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");	/* GCOV_EXCL_LINE */
	layout_columns(layout, values, nulls);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(result), values, nulls));
}

Datum
snowflake_layout(PG_FUNCTION_ARGS)
{
	return layout_row(fcinfo, snowflake_default_layout());
}

Datum
snowflake_layout_layout(PG_FUNCTION_ARGS)
{
	SnowflakeLayout layout;

	snowflake_layout_parse(text_to_cstring(PG_GETARG_TEXT_PP(0)), &layout);
	return layout_row(fcinfo, &layout);
}

Datum
snowflake_layouts(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < snowflake_num_presets; i++)
	{
		SnowflakeLayout layout;
		Datum		values[LAYOUT_COLUMNS];
		bool		nulls[LAYOUT_COLUMNS] = {false};

		snowflake_layout_parse(snowflake_presets[i].definition, &layout);
		layout_columns(&layout, values, nulls);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Node number and lease, NULL while there is none; returns the next column. */
static int
lease_columns(SnowflakeSlot *slot, bool see_all, int i, Datum *values, bool *nulls)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		word = pg_atomic_read_u64(&slot->word);
	uint64		place = snowflake_node_place(layout, snowflake_word_node(layout, word));
	bool		issued;
	TimestampTz last = snowflake_tick_begin(layout, snowflake_word_tick(layout, word));
	TimestampTz now = snowflake_id_clock();

	pg_read_barrier();			/* opened is set before the word */
	issued = word != pg_atomic_read_u64(&slot->opened);
	if (word & SNOWFLAKE_SEALED)
	{
		memset(nulls + i, true, 6);
		return i + 6;
	}
	values[i++] = Int64GetDatum((int64) snowflake_word_node(layout, word));
	nulls[i] = layout->bits[SNOWFLAKE_DATACENTER] == 0;
	values[i++] = Int32GetDatum((int32) snowflake_field_get(layout, place, SNOWFLAKE_DATACENTER));
	values[i++] = Int32GetDatum((int32) snowflake_field_get(layout, place, SNOWFLAKE_WORKER));
	values[i++] = TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&snowflake_shared->lease.leased_until));
	nulls[i] = !see_all || !issued;
	values[i++] = Int64GetDatum(snowflake_word_id(layout, word));
	nulls[i] = !issued;
	values[i++] = interval_datum(Max(last - now, 0));
	return i;
}

/* The event counters, of the layout and of the lease that all share; returns the next column. */
static int
counter_columns(int index, int i, Datum *values)
{
	SnowflakeCounters *counters = &snowflake_shared->slots[index].counters;
	SnowflakeLeaseView *lease = &snowflake_shared->lease;

	values[i++] = interval_datum((int64) pg_atomic_read_u64(&counters->max_ahead_seen));
	values[i++] = Int64GetDatum((int64) snowflake_stats_ids_issued(index));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->sequence_overflows));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&lease->clock_rollbacks));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->waits));
	values[i++] = interval_datum((int64) pg_atomic_read_u64(&counters->wait_time));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&lease->worker_switches));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&lease->renewals));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&lease->failures));
	return i;
}

/* Columns in the order of the CREATE FUNCTION statement. */
static void
stat_columns(int index, const SnowflakeStatus *status, bool see_all, Datum *values, bool *nulls)
{
	SnowflakeSlot *slot = &snowflake_shared->slots[index];
	char		detail[sizeof(status->problem.message)];
	const char *state;
	int			i = 0;

	state = snowflake_stats_state(slot, status, detail, sizeof(detail));
	values[i++] = CStringGetTextDatum(slot->name);
	values[i++] = CStringGetTextDatum(state);
	nulls[i] = !see_all || detail[0] == '\0';
	values[i++] = CStringGetTextDatum(detail);
	values[i++] = CStringGetTextDatum(snowflake_from_name(status->from));
	nulls[i] = !see_all || status->place[0] == '\0';
	values[i++] = CStringGetTextDatum(status->place);
	i = lease_columns(slot, see_all, i, values, nulls);
	i = counter_columns(index, i, values);
	values[i++] = TimestampTzGetDatum(snowflake_tick_begin(&slot->layout, slot->layout.max_tick + 1));
	values[i++] = TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&slot->counters.stats_reset));
	Assert(i == STAT_COLUMNS);
}

/* A row per layout in use. */
Datum
pg_stat_snowflake(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		see_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	SnowflakeStatus status;
	Datum		values[STAT_COLUMNS] = {0};
	bool		nulls[STAT_COLUMNS] = {false};

	snowflake_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	snowflake_status_get(&status);
	for (int index = 0; index < snowflake_shared->num_slots; index++)
	{
		memset(nulls, 0, sizeof(nulls));
		stat_columns(index, &status, see_all, values, nulls);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
pg_stat_snowflake_reset(PG_FUNCTION_ARGS)
{
	snowflake_require_preload();
	snowflake_stats_reset();
	PG_RETURN_VOID();
}
