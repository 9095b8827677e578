/*
 * error.c
 *	  Why no id can be had: problems are filled here, and caught errors become one.
 */
#include "postgres.h"

#include "error.h"

#define LOG_PREFIX		"snowflake: "

static void
set_text(char *to, const char *text, size_t size)
{
	strlcpy(to, text != NULL ? text : "", size);
	for (char *p = to; *p != '\0'; p++)
		if (IS_HIGHBIT_SET(*p))
			*p = '?';
}

/* Fills a problem; detail and hint may be NULL. */
void
snowflake_problem_set(SnowflakeProblem *problem, int sqlerrcode, const char *message,
					  const char *detail, const char *hint)
{
	memset(problem, 0, sizeof(*problem));
	problem->sqlerrcode = sqlerrcode;
	set_text(problem->message, message, sizeof(problem->message));
	set_text(problem->detail, detail, sizeof(problem->detail));
	set_text(problem->hint, hint, sizeof(problem->hint));
}

/* In PG_CATCH: the error becomes a problem, and is over.  Switches to the memory context. */
void
snowflake_problem_catch(SnowflakeProblem *problem, MemoryContext context)
{
	ErrorData  *edata;

	MemoryContextSwitchTo(context);
	edata = CopyErrorData();
	FlushErrorState();
	snowflake_problem_set(problem, edata->sqlerrcode, edata->message, edata->detail, edata->hint);
	FreeErrorData(edata);
}

/*
 * In the emit_log_hook of our processes: what the server itself logs for them,
 * such as a wait for a lock, begins like all our lines.
 */
void
snowflake_problem_mark_log(ErrorData *edata)
{
	if (edata->output_to_server && edata->message != NULL &&
		strncmp(edata->message, LOG_PREFIX, strlen(LOG_PREFIX)) != 0)
		edata->message = psprintf(LOG_PREFIX "%s", edata->message);
}
