/*
 * argument.c
 *	  What functions share: a layout given as an argument, which is read again
 *	  only when it differs from that of the call before; and an interval.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "functions/argument.h"
#include "layout/fields.h"

/* The call site, with what the last call left there. */
SnowflakeCallSite *
snowflake_call_site(FunctionCallInfo fcinfo)
{
	if (fcinfo->flinfo->fn_extra == NULL)
		fcinfo->flinfo->fn_extra =
			MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt,
								   sizeof(SnowflakeCallSite));
	return fcinfo->flinfo->fn_extra;
}

/* The same, for a layout argument that differs from the last one. */
SnowflakeCallSite *
snowflake_layout_argument_read(FunctionCallInfo fcinfo, text *given)
{
	SnowflakeCallSite *site = snowflake_call_site(fcinfo);

	if (site->given != NULL)
		pfree(site->given);
	site->given = NULL;
	site->kept = NULL;
	snowflake_layout_parse(text_to_cstring(given), &site->layout);
	site->given =
		MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, VARSIZE_ANY(given));
	memcpy(site->given, given, VARSIZE_ANY(given));
	return site;
}

/* An interval of so many microseconds. */
Datum
snowflake_interval_datum(int64 microseconds)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = microseconds;
	return IntervalPGetDatum(interval);
}
