/*
 * argument.h
 *	  A layout given to a function as an argument.
 */
#ifndef SNOWFLAKE_ARGUMENT_H
#define SNOWFLAKE_ARGUMENT_H

#include "fmgr.h"

#include "layout/layout.h"

/* What a call site keeps between calls, in fn_extra. */
typedef struct SnowflakeCallSite
{
	text	   *given;			/* the last layout argument; or NULL */
	SnowflakeLayout layout;		/* what it says */
	void	   *kept;			/* the function's own; NULL after another
								 * layout was given */
} SnowflakeCallSite;

extern SnowflakeCallSite *snowflake_call_site(FunctionCallInfo fcinfo);
extern SnowflakeCallSite *snowflake_layout_argument(FunctionCallInfo fcinfo,
													int argument);

#endif							/* SNOWFLAKE_ARGUMENT_H */
