/*
 * stats.c
 *	  SQL-callable: the view pg_stat_snowflake, and the reset of its counters.
 *
 * Ids are counted by each process for itself and only ever upwards; a reset
 * notes the sum instead of clearing what others write.  Sums taken while ids
 * are issued may miss a few.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "clock.h"
#include "functions/argument.h"
#include "guc.h"
#include "ids/word.h"
#include "shmem.h"

#define STAT_COLUMNS		22

PG_FUNCTION_INFO_V1(pg_stat_snowflake);
PG_FUNCTION_INFO_V1(pg_stat_snowflake_reset);

static uint64
sum_ids_issued(int slot)
{
	uint64		sum = 0;

	for (int process = 0; process < snowflake_shared->num_processes; process++)
		sum += pg_atomic_read_u64(&snowflake_shmem_process_slot(process, slot)->ids_issued);
	return sum;
}

/* Whether ids up to a word were issued under the lease. */
static bool
has_issued(SnowflakeSlot *slot, uint64 word)
{
	pg_read_barrier();			/* opened is set before the word */
	return (pg_atomic_read_u64(&slot->word) & SNOWFLAKE_SEALED) == 0 &&
		word != pg_atomic_read_u64(&slot->opened);
}

/*
 * The state of a layout in use, as the next call would find it, and in detail
 * why and until when.
 *
 *	  ready		a call gets an id, if need be after the lease is extended
 *	  starting	the lease worker has not opened a lease yet, or keeps trying to
 *	  waiting	the next id would be more than max_ahead past the clock
 *	  expired	the lease is over and could not be extended
 *	  refused	there is no lease and waiting does not bring one, or the
 *				timestamp field is full
 *	  standby	no ids are issued during recovery
 */
static const char *
state_of(SnowflakeSlot *slot, const SnowflakeStatus *status, char *detail,
		 size_t size)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		word = snowflake_next_follows(slot);
	TimestampTz leased_until =
	(TimestampTz) pg_atomic_read_u64(&snowflake_shared->lease.leased_until);
	TimestampTz now = snowflake_id_clock();
	TimestampTz last =
	snowflake_tick_begin(layout, snowflake_word_tick(layout, word));
	int64		max_ahead = SNOWFLAKE_SETTING(max_ahead);
	bool		failing = status->phase == SNOWFLAKE_REFUSED ||
	status->phase == SNOWFLAKE_RETRYING;

	detail[0] = '\0';
	if (RecoveryInProgress())
	{
		snprintf(detail, size, "until this standby is promoted");
		return "standby";
	}
	snprintf(detail, size, "%s", status->problem.message);
	if (now >= snowflake_tick_begin(layout, layout->max_tick + 1) ||
		pg_atomic_read_u32(&slot->full) != 0 ||
		snowflake_word_is_last(layout, word))
	{
		snprintf(detail, size, "the timestamp field is full");
		return "refused";
	}
	if (word == 0)
	{
		if (status->phase == SNOWFLAKE_REFUSED)
			return "refused";
		if (!failing)
			snprintf(detail, size,
					 "until the lease worker has opened a lease");
		return "starting";
	}
	if (failing)
		return now < leased_until ? "ready" : "expired";
	if (last - now > max_ahead)
	{
		snprintf(detail, size, "the clock is behind %s; until it reaches %s",
				 has_issued(slot, word) ? "the last id" : "the start of the lease",
				 timestamptz_to_str(last - max_ahead));
		return "waiting";
	}
	return "ready";
}

/* Node number and lease, NULL while there is none; returns the next column. */
static int
lease_columns(SnowflakeSlot *slot, bool see_all, int i, Datum *values,
			  bool *nulls)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		word = snowflake_next_follows(slot);
	uint64		place =
	snowflake_node_place(layout, snowflake_word_node(layout, word));
	bool		issued = has_issued(slot, word);
	TimestampTz last =
	snowflake_tick_begin(layout, snowflake_word_tick(layout, word));
	TimestampTz now = snowflake_id_clock();

	if (word == 0)
	{
		memset(nulls + i, true, 6);
		return i + 6;
	}
	values[i++] = Int64GetDatum((int64) snowflake_word_node(layout, word));
	nulls[i] = layout->bits[SNOWFLAKE_DATACENTER] == 0;
	values[i++] =
		Int32GetDatum((int32) snowflake_field_get(layout, place,
												  SNOWFLAKE_DATACENTER));
	values[i++] =
		Int32GetDatum((int32) snowflake_field_get(layout, place,
												  SNOWFLAKE_WORKER));
	values[i++] =
		TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&snowflake_shared->lease.leased_until));
	nulls[i] = !see_all || !issued;
	values[i++] = Int64GetDatum(snowflake_id_pack(layout, snowflake_word_tick(layout, word),
												  snowflake_word_node(layout, word),
												  snowflake_word_sequence(layout, word)));
	nulls[i] = !issued;
	values[i++] = snowflake_interval_datum(Max(last - now, 0));
	return i;
}

/*
 * The event counters, of the layout and of the lease that all share; returns
 * the next column.
 */
static int
counter_columns(int index, int i, Datum *values)
{
	SnowflakeCounters *counters = &snowflake_shared->slots[index].counters;
	SnowflakeLeaseView *lease = &snowflake_shared->lease;

	values[i++] =
		snowflake_interval_datum((int64) pg_atomic_read_u64(&counters->max_ahead_seen));
	values[i++] = Int64GetDatum((int64) (sum_ids_issued(index) -
										 pg_atomic_read_u64(&counters->ids_before_reset)));
	values[i++] =
		Int64GetDatum((int64) pg_atomic_read_u64(&counters->sequence_overflows));
	values[i++] =
		Int64GetDatum((int64) pg_atomic_read_u64(&lease->clock_rollbacks));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->waits));
	values[i++] =
		snowflake_interval_datum((int64) pg_atomic_read_u64(&counters->wait_time));
	values[i++] =
		Int64GetDatum((int64) pg_atomic_read_u64(&lease->worker_switches));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&lease->renewals));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&lease->failures));
	return i;
}

/* Columns in the order of the CREATE FUNCTION statement. */
static void
stat_columns(int index, const SnowflakeStatus *status, bool see_all,
			 Datum *values, bool *nulls)
{
	SnowflakeSlot *slot = &snowflake_shared->slots[index];
	char		detail[sizeof(status->problem.message)];
	const char *state;
	int			i = 0;

	state = state_of(slot, status, detail, sizeof(detail));
	values[i++] = CStringGetTextDatum(slot->name);
	values[i++] = CStringGetTextDatum(state);
	nulls[i] = !see_all || detail[0] == '\0';
	values[i++] = CStringGetTextDatum(detail);
	/* else auto, hostname or mac */
	values[i++] = CStringGetTextDatum(strspn(snowflake_worker_id, "0123456789") > 0 ?
									  "setting" : snowflake_worker_id);
	nulls[i] = !see_all || status->address[0] == '\0';
	values[i++] = CStringGetTextDatum(status->address);
	i = lease_columns(slot, see_all, i, values, nulls);
	i = counter_columns(index, i, values);
	values[i++] =
		TimestampTzGetDatum(snowflake_tick_begin(&slot->layout,
												 slot->layout.max_tick + 1));
	values[i++] =
		TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&slot->counters.stats_reset));
	Assert(i == STAT_COLUMNS);
}

/* A row per layout in use. */
Datum
pg_stat_snowflake(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		see_all =
	has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
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
		tuplestore_putvalues(result->setResult, result->setDesc, values,
							 nulls);
	}
	return (Datum) 0;
}

/*
 * Sets the counters of all layouts, and of the lease that they share, to zero.
 */
Datum
pg_stat_snowflake_reset(PG_FUNCTION_ARGS)
{
	snowflake_require_preload();
	for (int slot = 0; slot < snowflake_shared->num_slots; slot++)
	{
		SnowflakeCounters *counters = &snowflake_shared->slots[slot].counters;

		pg_atomic_write_u64(&counters->sequence_overflows, 0);
		pg_atomic_write_u64(&counters->max_ahead_seen, 0);
		pg_atomic_write_u64(&counters->waits, 0);
		pg_atomic_write_u64(&counters->wait_time, 0);
		pg_atomic_write_u64(&counters->stats_reset,
							(uint64) snowflake_clock_now());
		pg_atomic_write_u64(&counters->ids_before_reset, sum_ids_issued(slot));
	}
	pg_atomic_write_u64(&snowflake_shared->lease.clock_rollbacks, 0);
	pg_atomic_write_u64(&snowflake_shared->lease.worker_switches, 0);
	pg_atomic_write_u64(&snowflake_shared->lease.renewals, 0);
	pg_atomic_write_u64(&snowflake_shared->lease.failures, 0);
	/* backends forget what they have reported */
	pg_atomic_fetch_add_u32(&snowflake_shared->settings.resets, 1);
	PG_RETURN_VOID();
}
