/*
 * argument.c
 *	  A layout given to a function as an argument: read again only when it
 *	  differs from that of the call before.
 */
#include "postgres.h"

#include "utils/builtins.h"

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
