/*
 * range_functions.c
 *	  SQL-callable: a range of time as the range of ids of that time.
 *
 * The range holds exactly the ids whose snowflake_timestamp is in [since, until):
 * those of the ticks that begin there.  So a bound inside a tick counts as the
 * begin of the next one, unlike in snowflake_min_id, and every time from the
 * epoch to the end of the last tick can be a bound.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "parts.h"

PG_FUNCTION_INFO_V1(snowflake_range);
PG_FUNCTION_INFO_V1(snowflake_range_layout);

/*
 * The first id of the ticks that begin at or after a time, or one past the last id of
 * the layout if none does: that is up to 2^63, which is no bigint.  Times outside the
 * layout get the error of snowflake_min_id.
 */
static uint64
first_id_from(const SnowflakeLayout *layout, TimestampTz at)
{
	uint64		past_last = (uint64) snowflake_layout_max_id(layout) + 1;

	if (TIMESTAMP_IS_NOEND(at) ||
		at == snowflake_tick_begin(layout, layout->max_tick + 1))
		return past_last;
	(void) snowflake_first_id_at(layout, at);	/* checks it */
	return snowflake_tick_from(layout, at) << layout->shift[SNOWFLAKE_TIMESTAMP];
}

static Datum
id_range(FunctionCallInfo fcinfo, const SnowflakeLayout *layout)
{
	TypeCacheEntry *type = range_get_typcache(fcinfo, INT8RANGEOID);
	TimestampTz since = PG_GETARG_TIMESTAMPTZ(0);
	TimestampTz until = PG_GETARG_TIMESTAMPTZ(1);
	uint64		first = first_id_from(layout, since);
	uint64		end = first_id_from(layout, until);
	RangeBound	lower = {.inclusive = true,.lower = true};
	RangeBound	upper = {.infinite = end > PG_INT64_MAX};

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
	if (!upper.infinite)
		upper.val = Int64GetDatum((int64) end);
	PG_RETURN_RANGE_P(snowflake_make_range(type, &lower, &upper));
}

Datum
snowflake_range(PG_FUNCTION_ARGS)
{
	return id_range(fcinfo, snowflake_default_layout());
}

Datum
snowflake_range_layout(PG_FUNCTION_ARGS)
{
	SnowflakeLayout layout;

	snowflake_layout_parse(text_to_cstring(PG_GETARG_TEXT_PP(2)), &layout);
	return id_range(fcinfo, &layout);
}
