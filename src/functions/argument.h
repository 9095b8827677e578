/*
 * argument.h
 *	  What functions share: a layout given as an argument, and an interval.
 */
#ifndef SNOWFLAKE_ARGUMENT_H
#define SNOWFLAKE_ARGUMENT_H

#include "access/tupdesc.h"
#include "fmgr.h"

#include "compat.h"
#include "layout/fields.h"
#include "layout/layout.h"

/* What a call site keeps between calls, in fn_extra. */
typedef struct SnowflakeCallSite
{
	text	   *given;			/* the last layout argument; or NULL */
	SnowflakeLayout layout;		/* what it says */
	void	   *kept;			/* the function's own; NULL after another
								 * layout was given */
	TupleDesc	row_type;		/* of a function that returns a row; or NULL */
} SnowflakeCallSite;

extern SnowflakeCallSite *snowflake_call_site(FunctionCallInfo fcinfo);
extern SnowflakeCallSite *snowflake_layout_argument_read(FunctionCallInfo fcinfo,
														 text *given);
extern Datum snowflake_interval_datum(int64 microseconds);

/*
 * The call site, with the layout that the argument gives; 22023 if it is not
 * one.  Read again only when it differs from that of the call before.
 */
static inline SnowflakeCallSite *
snowflake_layout_argument(FunctionCallInfo fcinfo, int argument)
{
	SnowflakeCallSite *site = fcinfo->flinfo->fn_extra;
	text	   *given = PG_GETARG_TEXT_PP(argument);

	if (likely(site != NULL && site->given != NULL &&
			   VARSIZE_ANY(site->given) == VARSIZE_ANY(given) &&
			   memcmp(site->given, given, VARSIZE_ANY(given)) == 0))
		return site;
	return snowflake_layout_argument_read(fcinfo, given);
}

/*
 * The layout of a function that has a form without one: then it is the
 * server's.
 */
static inline const SnowflakeLayout *
snowflake_layout_of(FunctionCallInfo fcinfo, int argument)
{
	return PG_NARGS() > argument ?
		&snowflake_layout_argument(fcinfo, argument)->layout :
		snowflake_default_layout();
}

#endif							/* SNOWFLAKE_ARGUMENT_H */
