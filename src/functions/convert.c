/*
 * convert.c
 *	  What the conversion functions need of C: errors that PL/pgSQL cannot raise.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(snowflake_raise_again);

/* The text of an argument; NULL if it is null or empty. */
static char *
text_argument(FunctionCallInfo fcinfo, int n)
{
	char	   *value;

	if (PG_ARGISNULL(n))
		return NULL;
	value = text_to_cstring(PG_GETARG_TEXT_PP(n));
	return value[0] != '\0' ? value : NULL;
}

/*
 * The statement that PostgreSQL refused, which its CONTEXT begins with; NULL
 * if it was not one.
 */
static char *
failed_statement(const char *context)
{
	static const char prefix[] = "SQL statement \"";
	const char *begin,
			   *end;

	if (context == NULL || strncmp(context, prefix, strlen(prefix)) != 0)
		return NULL;
	begin = context + strlen(prefix);
	end = strstr(begin, "\"\nPL/pgSQL function ");
	return end == NULL ? NULL :
		psprintf("It came from the statement \"%.*s\".", (int) (end - begin), begin);
}

/*
 * Raises an error that was caught once more, without CONTEXT: the lines in
 * there would be about functions that the user has not called.  Returns if it
 * is an internal error, whose CONTEXT we would miss.
 */
Datum
snowflake_raise_again(PG_FUNCTION_ARGS)
{
	char	   *state = text_argument(fcinfo, 0);
	char	   *message = text_argument(fcinfo, 1);
	char	   *detail = text_argument(fcinfo, 2);
	char	   *hint = text_argument(fcinfo, 3);

	if (state == NULL || strlen(state) != 5 || strncmp(state, "XX", 2) == 0 ||
		strncmp(state, "P0", 2) == 0)
		PG_RETURN_VOID();
	if (detail == NULL)
		detail = failed_statement(text_argument(fcinfo, 4));
	error_context_stack = NULL; /* PG_CATCH sets it again */
	ereport(ERROR,
			(errcode(MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4])),
			 errmsg_internal("%s", message != NULL ? message : ""),
			 detail != NULL ? errdetail_internal("%s", detail) : 0,
			 hint != NULL ? errhint("%s", hint) : 0));
}
