/*
 * error.c
 *	  Why no id can be had: problems are filled here, and caught errors become one.
 */
#include "postgres.h"

#include "error.h"

/*
 * Makes a text printable ASCII, whoever wrote it and in whatever encoding: each
 * character that is not, becomes a question mark.  What does not fit is cut
 * off; from may be to.
 */
void
snowflake_copy_printable(char *to, const char *from, size_t length, size_t size)
{
	const char *end = from + length;
	char	   *last = to + size - 1;

	while (from < end && to < last)
	{
		char		c = *from++;

		/* the further bytes of a character in UTF-8 */
		while (IS_HIGHBIT_SET(c) && from < end && (*from & 0xC0) == 0x80)
			from++;
		*to++ = c >= ' ' && c <= '~' ? c : '?';
	}
	*to = '\0';
}

static void
set_text(char *to, const char *text, size_t size)
{
	if (text != NULL)
		snowflake_copy_printable(to, text, strlen(text), size);
	else
		to[0] = '\0';
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

/* Whether a text is the SQLSTATE of an error: neither success, a warning nor "no data". */
bool
snowflake_is_sqlstate(const char *text)
{
	return text != NULL && strlen(text) == 5 &&
		strspn(text, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 &&
		!(text[0] == '0' && text[1] <= '2');
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
