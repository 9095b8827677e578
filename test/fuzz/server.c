/*
 * server.c
 *	  The functions of the server that the fuzzed files call, as small as they can be.
 *
 * What the server's own static libraries have (snprintf, encodings, CRC-32C, strings) is
 * linked from there.
 */
#include "fuzz.h"

#include "access/xlog.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/memutils.h"


FuzzError	fuzz_error;
jmp_buf		fuzz_error_handler;
int			fuzz_encoding = PG_SQL_ASCII;
const char *fuzz_layout_setting = NULL;
Size		fuzz_allocated = 0;
MemoryContext CurrentMemoryContext = NULL;
sigjmp_buf *PG_exception_stack = NULL;
ErrorContextCallback *error_context_stack = NULL;

/*
 * Errors
 */
bool
errstart(int elevel, const char *domain)
{
	fuzz_check(elevel == ERROR);
	memset(&fuzz_error, 0, sizeof(fuzz_error));
	return true;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	pg_re_throw();
}

/* To PG_CATCH(), or else to where the target goes on. */
void
pg_re_throw(void)
{
	if (PG_exception_stack != NULL)
		siglongjmp(*PG_exception_stack, 1);
	longjmp(fuzz_error_handler, 1);
}

ErrorData *
CopyErrorData(void)
{
	ErrorData  *edata = palloc0(sizeof(ErrorData));

	edata->sqlerrcode = fuzz_error.sqlerrcode;
	edata->message = fuzz_error.message;
	edata->detail = fuzz_error.detail[0] != '\0' ? fuzz_error.detail : NULL;
	edata->hint = fuzz_error.hint[0] != '\0' ? fuzz_error.hint : NULL;
	return edata;
}

void
FreeErrorData(ErrorData *edata)
{
}

void
FlushErrorState(void)
{
}

int
errcode(int sqlerrcode)
{
	fuzz_error.sqlerrcode = sqlerrcode;
	return 0;
}

/* A part of an error, kept if it fits into its place; a translation is the same text here. */
#define DEFINE_ERROR_PART(function, part) \
int \
function(const char *format,...) \
{ \
	va_list		args; \
\
	va_start(args, format); \
	vsnprintf(fuzz_error.part, sizeof(fuzz_error.part), format, args); \
	va_end(args); \
	return 0; \
}

DEFINE_ERROR_PART(errmsg, message)
DEFINE_ERROR_PART(errmsg_internal, message)
DEFINE_ERROR_PART(errdetail, detail)
DEFINE_ERROR_PART(errdetail_internal, detail)
DEFINE_ERROR_PART(errhint, hint)

void
ExceptionalCondition(const char *condition,
#if PG_VERSION_NUM < 160000
					 const char *type,
#endif
					 const char *file, int line)
{
	fuzz_fail(condition, file, line);
}

/*
 * Memory: everything lives until the end of the statement
 */
typedef struct Chunk
{
	struct Chunk *next;
	size_t		size;
	char		memory[FLEXIBLE_ARRAY_MEMBER];
} Chunk;

static Chunk *chunks = NULL;
static MemoryContextCallback *callbacks = NULL;

void *
palloc(Size size)
{
	Chunk	   *chunk = malloc(offsetof(Chunk, memory) + size);

	fuzz_check(chunk != NULL);
	fuzz_allocated += size;
	chunk->next = chunks;
	chunk->size = size;
	chunks = chunk;
	return chunk->memory;
}

void *
palloc0(Size size)
{
	return memset(palloc(size), 0, size);
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return palloc0(size);
}

void *
repalloc(void *pointer, Size size)
{
	Chunk	   *old = (Chunk *) ((char *) pointer - offsetof(Chunk, memory));

	return memcpy(palloc(size), pointer, Min(old->size, size));
}

void
pfree(void *pointer)
{
}

char *
pstrdup(const char *string)
{
	return strcpy(palloc(strlen(string) + 1), string);
}

char *
pnstrdup(const char *string, Size length)
{
	size_t		kept = strnlen(string, length);
	char	   *copy = memcpy(palloc(kept + 1), string, kept);

	copy[kept] = '\0';
	return copy;
}

void
MemoryContextRegisterResetCallback(MemoryContext context, MemoryContextCallback *callback)
{
	callback->next = callbacks;
	callbacks = callback;
}

void
fuzz_end_statement(void)
{
	for (; callbacks != NULL; callbacks = callbacks->next)
		callbacks->func(callbacks->arg);
	while (chunks != NULL)
	{
		Chunk	   *next = chunks->next;

		free(chunks);
		chunks = next;
	}
	fuzz_allocated = 0;
}

/* The targets give no value that would have to be unpacked. */
struct varlena *
pg_detoast_datum_packed(struct varlena *datum)
{
	fuzz_check(!VARATT_IS_EXTERNAL(datum) && !VARATT_IS_COMPRESSED(datum));
	return datum;
}

/*
 * Texts in fuzz_encoding.  They are valid in it, as all that reaches a function in the
 * server is, but what is left of them may begin in the middle of a character.
 */
int
pg_mbcliplen(const char *text, int length, int limit)
{
	int			end = 0;

	while (end < length && text[end] != '\0')
	{
		int			next = end + pg_encoding_mblen(fuzz_encoding, text + end);

		if (next > limit)
			break;
		end = next;
	}
	return end;
}

int
pg_mbcharcliplen(const char *text, int length, int limit)
{
	int			end = 0;

	for (int i = 0; i < limit && end < length && text[end] != '\0'; i++)
		end += pg_encoding_mblen(fuzz_encoding, text + end);
	return end;
}

/*
 * Times
 */
TimestampTz
time_t_to_timestamptz(pg_time_t at)
{
	return (at - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (pg_time_t) SECS_PER_DAY) * USECS_PER_SEC;
}

const char *
timestamptz_to_str(TimestampTz at)
{
	return psprintf(INT64_FORMAT " us", at);
}

/*
 * Settings and shared state: a server that does not preload the extension
 */
const char *
GetConfigOption(const char *name, bool missing_ok, bool restrict_privileged)
{
	fuzz_check(strcmp(name, "snowflake.layout") == 0 && missing_ok);
	return fuzz_layout_setting;
}
