/*
 * parse.c
 *	  SQL-callable: the parts and the time of an id, and the ids of a time.
 *
 * Each function has two forms in SQL: with a layout as its last but optional
 * argument (immutable), and without, by the server's (stable).
 *
 * snowflake_range() holds exactly the ids whose snowflake_timestamp() is in
 * [since, until): those of the ticks that begin there.  So a bound inside a
 * tick counts as the beginning of the next one, unlike in snowflake_min_id(),
 * and every time from the epoch to the end of the last tick can be a bound.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "functions/argument.h"
#include "layout/fields.h"

PG_FUNCTION_INFO_V1(snowflake_parse);
PG_FUNCTION_INFO_V1(snowflake_timestamp);
PG_FUNCTION_INFO_V1(snowflake_min_id);
PG_FUNCTION_INFO_V1(snowflake_max_id);
PG_FUNCTION_INFO_V1(snowflake_compose);
PG_FUNCTION_INFO_V1(snowflake_range);
PG_FUNCTION_INFO_V1(snowflake_first_id_from);
PG_FUNCTION_INFO_V1(snowflake_last_id_within);

/* The row type of the result; the call site keeps it. */
static TupleDesc
result_type(FunctionCallInfo fcinfo)
{
	SnowflakeCallSite *site = snowflake_call_site(fcinfo);

	if (site->row_type == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
		TupleDesc	type;

		if (get_call_result_type(fcinfo, NULL, &type) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");	/* GCOV_EXCL_LINE */
		site->row_type = BlessTupleDesc(type);
		MemoryContextSwitchTo(old);
	}
	return site->row_type;
}

/* The columns of the result are in the order of SnowflakeField. */
Datum
snowflake_parse(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = snowflake_layout_of(fcinfo, 1);
	int64		id = PG_GETARG_INT64(0);
	Datum		values[SNOWFLAKE_NUM_FIELDS];
	bool		nulls[SNOWFLAKE_NUM_FIELDS] = {false};

	snowflake_check_id(layout, id);
	values[SNOWFLAKE_TIMESTAMP] =
		TimestampTzGetDatum(snowflake_tick_begin(layout,
												 snowflake_field_get(layout, id,
																	 SNOWFLAKE_TIMESTAMP)));
	for (int field = SNOWFLAKE_DATACENTER; field < SNOWFLAKE_NUM_FIELDS; field++)
	{
		values[field] =
			Int32GetDatum((int32) snowflake_field_get(layout, id, (SnowflakeField) field));
		nulls[field] = layout->bits[field] == 0;
	}
	return HeapTupleGetDatum(heap_form_tuple(result_type(fcinfo), values,
											 nulls));
}

Datum
snowflake_timestamp(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = snowflake_layout_of(fcinfo, 1);
	int64		id = PG_GETARG_INT64(0);

	snowflake_check_id(layout, id);
	PG_RETURN_TIMESTAMPTZ(snowflake_tick_begin(layout,
											   snowflake_field_get(layout, id,
																   SNOWFLAKE_TIMESTAMP)));
}

Datum
snowflake_min_id(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_first_id_at(snowflake_layout_of(fcinfo, 1),
										  PG_GETARG_TIMESTAMPTZ(0)));
}

Datum
snowflake_max_id(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_last_id_at(snowflake_layout_of(fcinfo, 1),
										 PG_GETARG_TIMESTAMPTZ(0)));
}

/* A layout stands before the arguments that have a default. */
Datum
snowflake_compose(PG_FUNCTION_ARGS)
{
	int			defaults = PG_NARGS() - 2;

	PG_RETURN_INT64(snowflake_compose_id(defaults > 3 ? snowflake_layout_of(fcinfo, 3) :
										 snowflake_default_layout(),
										 PG_GETARG_TIMESTAMPTZ(0),
										 PG_GETARG_INT32(defaults),
										 PG_GETARG_INT32(1),
										 PG_GETARG_INT32(defaults + 1),
										 PG_GETARG_INT32(2)));
}

/*
 * The first id of the ticks that begin at or after a time, or one past the
 * last id of the layout if none does: that is up to 2^63, which is no bigint.
 * Times outside the layout get the error of snowflake_min_id.
 */
static uint64
first_id_from(const SnowflakeLayout *layout, TimestampTz at)
{
	uint64		past_last = (uint64) snowflake_layout_max_id(layout) + 1;

	if (TIMESTAMP_IS_NOEND(at) ||
		at == snowflake_tick_begin(layout, layout->max_tick + 1))
		return past_last;
	(void) snowflake_first_id_at(layout, at);	/* checks it */
	return snowflake_tick_from(layout, at) <<
		layout->shift[SNOWFLAKE_TIMESTAMP];
}

Datum
snowflake_range(PG_FUNCTION_ARGS)
{
	TypeCacheEntry *type = range_get_typcache(fcinfo, INT8RANGEOID);
	TimestampTz since = PG_GETARG_TIMESTAMPTZ(0);
	TimestampTz until = PG_GETARG_TIMESTAMPTZ(1);
	SnowflakeLayout layout;
	uint64		first;
	uint64		end;
	RangeBound	lower = {0};
	RangeBound	upper = {0};

	/* fn_extra is that of range_get_typcache(): no call site is kept */
	if (PG_NARGS() > 2)
		snowflake_layout_parse(text_to_cstring(PG_GETARG_TEXT_PP(2)), &layout);
	else
		layout = *snowflake_default_layout();
	first = first_id_from(&layout, since);
	end = first_id_from(&layout, until);
	if (since > until)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the time range begins at %s, after its end",
						timestamptz_to_str(since)),
				 errdetail("It ends at %s.", timestamptz_to_str(until)),
				 errhint("Give the earlier time first.")));
	if (first == end)
		PG_RETURN_RANGE_P(make_empty_range(type));
	lower.val = Int64GetDatum((int64) first);
	lower.inclusive = true;
	lower.lower = true;
	upper.infinite = end > PG_INT64_MAX;
	if (!upper.infinite)
		upper.val = Int64GetDatum((int64) end);
	PG_RETURN_RANGE_P(snowflake_make_range(type, &lower, &upper));
}

/*
 * The bounds of snowflake_within().  Times outside the layout are no error:
 * all ids are after a time before the epoch, and no id is after the end.
 */
static uint64
first_id_after(const SnowflakeLayout *layout, TimestampTz at)
{
	if (TIMESTAMP_IS_NOBEGIN(at) || at <= layout->epoch)
		return 0;
	if (TIMESTAMP_IS_NOEND(at) ||
		at > snowflake_tick_begin(layout, layout->max_tick))
		return (uint64) snowflake_layout_max_id(layout) + 1;
	return first_id_from(layout, at);
}

/* The greatest bigint if all ids are before the time: see snowflake_last_id_within(). */
Datum
snowflake_first_id_from(PG_FUNCTION_ARGS)
{
	uint64		first = first_id_after(snowflake_layout_of(fcinfo, 1),
									   PG_GETARG_TIMESTAMPTZ(0));

	PG_RETURN_INT64((int64) Min(first, (uint64) PG_INT64_MAX));
}

/* -1 if there is no such id. */
Datum
snowflake_last_id_within(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = snowflake_layout_of(fcinfo, 2);
	uint64		first = first_id_after(layout, PG_GETARG_TIMESTAMPTZ(0));
	uint64		end = first_id_after(layout, PG_GETARG_TIMESTAMPTZ(1));

	PG_RETURN_INT64(first < end ? (int64) (end - 1) : -1);
}
