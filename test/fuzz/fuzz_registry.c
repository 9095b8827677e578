/*
 * fuzz_registry.c
 *	  Fuzz target: what a registry answers.
 *
 * The input is a broken registry: for each message that libpq sends, it chooses
 * what the server sends back.  Where the input says nothing, or has ended, that
 * is the right answer.  The files that make calls and read answers are compiled
 * in here; the child that runs libpq (remote.c) is the same process, where fork()
 * returns twice, and libpq's socket is memory.  The first byte chooses the kind
 * of call and a variant of it: what the call says, which registry, and whether
 * the child is slow, or which system call of it fails.
 *
 * For every input:
 *	- A call ends, within its time by a clock that only waiting moves, and leaves
 *	  no process and no file open.  Its result is accepted, or refused with an
 *	  SQLSTATE of an error, a message, and in all at most 1 kB of printable ASCII.
 *	- The transaction is begun as it must be, and the call says what it has to
 *	  say: the texts here are written by hand from doc/protocol.md.
 *	- The error of a registry comes as it was sent, with a detail and a hint where
 *	  it has none, and the address of the host that answered, or of all hosts.
 *	- Where only the values of the row are the input's, it is accepted if and
 *	  only if they are what doc/protocol.md says, within 64 kB: they are read a
 *	  second time here.
 *	- What is accepted was committed, and no warning said that it is perhaps not
 *	  on a synchronous standby; each field has the value that was sent; and
 *	  written again and read again it is the same.
 *	- If the child is killed while it tells what it has, or a system call fails
 *	  without which it cannot go on, the call has failed.
 *	- The child leaves its parent's signals, what it does at an exit, shared memory
 *	  and its end of the pipe before it does anything else, and no signal comes to it
 *	  earlier.  It has an alarm and a memory limit, and keeps one row.  It never
 *	  tells more than its parent reads, whose memory is bounded by the longest answer.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libpq-fe.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "postmaster/postmaster.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/uuid.h"

#include "layout/fields.h"
#include "registry/protocol.h"

/* libpq's connection, and the process that has it */
static pid_t enter_child(void);
static pid_t leave_child(void);
static void end_child(int code) __attribute__((noreturn));
static int	make_pipe(int *fds);
static int	close_file(int fd);
static FILE *open_statistics(const char *name);
static void set_signal(int number, intptr_t action);
static void set_action(int number, const struct sigaction *action);
static void set_mask(int how, const sigset_t *set, sigset_t *before);
static void set_alarm(unsigned int seconds);
static void set_language(int category, const char *name);
static FILE *leave_log(void);
static void set_buffer(char *buffer, int mode, size_t size);
static ssize_t write_told(const void *data, size_t size);
static ssize_t read_told_bytes(int fd, void *data, size_t size);
static int	set_limit(int resource, const struct rlimit *limit);
static PGresult *next_result(PGconn *conn);
static void clear_result(PGresult *result);
static const PGresult *not_cleared(const PGresult *result);
static int	end_process(pid_t pid, int number);
static int	wait_for_process(pid_t pid, int options);
static int	get_host_name(char *name, size_t size);

#define fork()				(sigsetjmp(child_end, 0) == 0 ? enter_child() : leave_child())
#define _exit(code)			end_child(code)
#define kill(pid, number)	end_process(pid, number)
#define waitpid(pid, status, options) wait_for_process(pid, options)
#define write(fd, data, size) write_told(data, size)
#define read(fd, data, size) read_told_bytes(fd, data, size)
#define pipe(fds)			make_pipe(fds)
#define close(fd)			close_file(fd)
#define fopen(name, mode)	open_statistics(name)
#define signal(number, action) set_signal(number, (intptr_t) (action))
#define sigaction(number, action, before) set_action(number, action)
#define sigprocmask(how, set, before) set_mask(how, set, before)
#define alarm(seconds)		set_alarm(seconds)
#define setlocale(category, name) set_language(category, name)
#define freopen(name, mode, file) leave_log()
#define setvbuf(file, buffer, mode, size) set_buffer(buffer, mode, size)
#define setrlimit(resource, limit) set_limit(resource, limit)
#define PQgetResult(conn)	next_result(conn)
#define PQclear(result)		clear_result(result)
#define PQnfields(result)	(PQnfields) (not_cleared(result))

/* where fork() returns twice */
static sigjmp_buf child_end;

#include "../../src/registry/remote.c"
#undef fork
#undef _exit
#undef kill
#undef waitpid
#undef write
#undef read
#undef pipe
#undef close
#undef fopen
#undef signal
#undef sigaction
#undef sigprocmask
#undef alarm
#undef setlocale
#undef freopen
#undef setvbuf
#undef setrlimit
#undef PQgetResult
#undef PQclear
#undef PQnfields
#undef pqsignal
#define pqsignal(number, action) ((void) 0)

#define gethostname(name, size) get_host_name(name, size)
#include "../../src/registry/protocol.c"
#undef gethostname

/* The row that helper.c reads is looked at. */
static SnowflakeResultKind read_row(const SnowflakeCall *call, const SnowflakeRow *row, SnowflakeResult *result);

#define snowflake_row_read	read_row
#define call_result			result
#include "../../src/registry/helper.c"
#undef snowflake_row_read

#define NUM_KINDS			5
#define MAX_BYTES			(4 * 1024 * 1024)
#define MAX_ROWS			2000
#define NUM_STAGES			4

/* Variants, bits of the first byte after the kind. */
#define WITH_ALL			1	/* the call says whatever it can */
#define NEW_SERVER			2	/* of PostgreSQL 17, and of several hosts */
#define SLOW_CHILD			4	/* it never tells anything */
#define LAST_CALL			8	/* the server stops */
#define NO_CHILD			16	/* it cannot be forked */
#define NUM_VARIANTS		32

/* The variants after these: what fails in or around the child. */
typedef enum Failure
{
	NO_FAILURE,
	INTERRUPTED,				/* the session, while the child is slow */
	NO_PIPE,
	NOT_TOLD,					/* by the child, which ends then */
	NO_STATISTICS,				/* it goes on, without a limit */
	NOT_READ					/* what it told */
} Failure;

/* The messages that libpq sends; the stages of the script. */
typedef enum Stage
{
	STARTUP,
	BEGIN,
	CALL,
	COMMIT
} Stage;

/* The first columns of each answer. */
enum
{
	ANSWER_AT, INCARNATION_AT, GENERATION_AT, REASON_AT, SQLSTATE_AT, MESSAGE_AT, DETAIL_AT, HINT_AT, WAIT_AT, VALUES_AT
};

/* A column that is sent; NULL: null. */
typedef struct Sent
{
	char	   *data;
	size_t		length;
} Sent;

static const char uuid_text[] = "9b2f9f43-8f4a-4d6e-9a55-0e7bb0d7e1aa";
static const char now_text[] = "1795000000000000";
static const char later_text[] = "1795000003000000";

static FuzzInput input;
static int	kind;
static int	variant;
static Failure failure;
static const char *expected_call;	/* NULL: not looked at */

/* The script of this connection. */
static int	stage;
static int	num_connections;
static bool nobody_listens;
static StringInfoData wire;		/* what libpq has not read begins at its
								 * cursor */
static size_t long_bytes;		/* of an answer's columns */
static StringInfoData committed;	/* what was sent after COMMIT */
static bool plain;				/* the input has only chosen the values of the
								 * row */
static int	num_rows;
static int	num_columns;
static Sent sent[2 * SNOWFLAKE_QUERY_COLUMNS];
static bool refused;			/* the first thing that was not right was an
								 * error, with these fields; NULL: has none */
static int	refused_stage;
static const char refused_fields[] = "CMDHS";
static char *refused_texts[5];
static int	refused_length;

/* What the child had, and told. */
static const char *child_registry;
static bool in_child;
static int	told_pipe[2] = {-1, -1};
static bool blocked;			/* signals, in this process */
static int	num_set;			/* signals without a handler of the server */
static int	num_handled;
static bool forgets_exit;
static bool read_end_closed;
static bool detached;
static bool has_alarm;
static bool left_log;
static bool limited;
static bool killed;
static int	num_reads;
static pg_on_exit_callback exit_callback;
static PGresult *results[8];
static int	num_results;
static StringInfoData told_bytes;
static int	told_length;		/* by the child itself */
static Size allocated_by_child;
static bool child_runs;
static bool child_killed;		/* by its parent */
static int64 waited_us;

static SnowflakeRow row_read;

/*
 * The server's part
 */
volatile uint32 InterruptHoldoffCount = 0;
volatile sig_atomic_t InterruptPending = false;
volatile sig_atomic_t ProcDiePending = false;
volatile sig_atomic_t QueryCancelPending = false;
volatile sig_atomic_t ShutdownRequestPending = false;
volatile sig_atomic_t ConfigReloadPending = false;
int			max_worker_processes = 8;
int			PostPortNumber = 5432;
int			MyProcPid = 1;
TimestampTz PgStartTime = 10;
PGPROC	   *MyProc = NULL;
struct Latch *MyLatch = NULL;
MemoryContext TopMemoryContext = NULL;
emit_log_hook_type emit_log_hook = NULL;
SnowflakeShared *snowflake_shared = NULL;

int64
snowflake_monotonic_now(void)
{
	return 1 + waited_us;
}

uint64
GetSystemIdentifier(void)
{
	return UINT64CONST(7300000000000000000);
}

TimeLineID
GetWALInsertionTimeLine(void)
{
	return 1;
}

MemoryContext
AllocSetContextCreateInternal(MemoryContext parent, const char *name, Size minContextSize,
							  Size initBlockSize, Size maxBlockSize)
{
	return NULL;
}

void
MemoryContextDelete(MemoryContext context)
{
}

bool
IsTransactionState(void)
{
	return false;
}

bool
IsTransactionOrTransactionBlock(void)
{
	return false;
}

void
before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	fuzz_check(exit_callback == NULL && child_runs);
	exit_callback = function;
}

void
cancel_before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	fuzz_check(exit_callback == function && child_runs);
	exit_callback = NULL;
}

void
on_exit_reset(void)
{
	fuzz_check(in_child && blocked);
	forgets_exit = true;
}

/* The call ends. */
void
ProcessInterrupts(void)
{
	fuzz_check(failure == INTERRUPTED && exit_callback != NULL);
	InterruptPending = false;
	ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED), errmsg("interrupted")));
}

void
PGSharedMemoryDetach(void)
{
	fuzz_check(in_child && !detached);
	detached = true;
}

int
errcode_for_file_access(void)
{
	fuzz_check(failure == NO_PIPE);
	return errcode(ERRCODE_INSUFFICIENT_RESOURCES);
}

int
WaitLatchOrSocket(Latch *latch, int wakeEvents, pgsocket sock, long timeout, uint32 wait_event_info)
{
	if (!(variant & SLOW_CHILD))
		return WL_SOCKET_READABLE;
	fuzz_check(timeout > 0);
	/* another call wakes it sometimes */
	waited_us += timeout > 1000 ? 300000 : timeout * 1000;
	InterruptPending = failure == INTERRUPTED && waited_us > 1000000;
	return timeout > 1000 ? WL_LATCH_SET : WL_TIMEOUT;
}

void
ResetLatch(Latch *latch)
{
	fuzz_check(variant & SLOW_CHILD);
}

/* As pqformat.c has them. */
const char *
pq_getmsgbytes(StringInfo msg, int datalen)
{
	if (datalen < 0 || datalen > msg->len - msg->cursor)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("insufficient data left in message")));
	msg->cursor += datalen;
	return msg->data + msg->cursor - datalen;
}

unsigned int
pq_getmsgint(StringInfo msg, int b)
{
	uint32		number;

	fuzz_check(b == sizeof(number));
	memcpy(&number, pq_getmsgbytes(msg, b), sizeof(number));
	return pg_ntoh32(number);
}

SnowflakeResultKind
snowflake_local_run(const SnowflakeQuery *query, SnowflakeRow *row, SnowflakeResult *result)
{
	fuzz_check(!"no call goes to the own tables");
	return SNOWFLAKE_RESULT_FAILED;
}

Datum
uuid_out(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *uuid = PG_GETARG_UUID_P(0);
	char	   *text = palloc(2 * UUID_LEN + 5);
	char	   *at = text;

	for (int i = 0; i < UUID_LEN; i++)
		at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid->data[i]);
	PG_RETURN_CSTRING(text);
}

/* False if it is not 8-4-4-4-12 digits. */
static bool
scan_uuid(const char *text, pg_uuid_t *uuid)
{
	int			end = -1;
	int			hyphens = 0;
	unsigned int part[UUID_LEN];

	/* a sign is none */
	for (const char *p = text; p != NULL && *p != '\0'; p++)
		hyphens += *p == '-';
	if (text == NULL || hyphens != 4 || strlen(text) != 36 || strspn(text, "0123456789abcdefABCDEF-") != 36 ||
		sscanf(text, "%2x%2x%2x%2x-%2x%2x-%2x%2x-%2x%2x-%2x%2x%2x%2x%2x%2x%n", &part[0], &part[1], &part[2],
			   &part[3], &part[4], &part[5], &part[6], &part[7], &part[8], &part[9], &part[10], &part[11],
			   &part[12], &part[13], &part[14], &part[15], &end) != UUID_LEN || end != 36)
		return false;
	for (int i = 0; i < UUID_LEN; i++)
		uuid->data[i] = part[i];
	return true;
}

Datum
uuid_in(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *uuid = palloc0(sizeof(pg_uuid_t));

	fuzz_check(scan_uuid(PG_GETARG_CSTRING(0), uuid));
	PG_RETURN_UUID_P(uuid);
}

Datum
DirectFunctionCall1Coll(PGFunction function, Oid collation, Datum argument)
{
	LOCAL_FCINFO(fcinfo, 1);

	InitFunctionCallInfoData(*fcinfo, NULL, 1, collation, NULL, NULL);
	fcinfo->args[0].value = argument;
	fcinfo->args[0].isnull = false;
	return function(fcinfo);
}

/* Our texts have nothing to escape. */
void
escape_json(StringInfo json, const char *text)
{
	fuzz_check(strpbrk(text, "\"\\") == NULL);
	appendStringInfo(json, "\"%s\"", text);
}

/*
 * The child: a function call
 */
static bool
child_fails(void)
{
	return failure == NOT_TOLD;
}

static void
end_child(int code)
{
	fuzz_check((code != 0) == child_fails());
	siglongjmp(child_end, 1);
}

/* In start_child(), as the child. */
static pid_t
enter_child(void)
{
	fuzz_check(told_pipe[0] >= 0 && blocked);
	initStringInfo(&told_bytes);
	if (variant & NO_CHILD)
		return -1;
	allocated_by_child = fuzz_allocated;
	in_child = child_runs = true;
	read_end_closed = detached = forgets_exit = has_alarm = left_log = child_killed = limited = false;
	num_set = num_handled = num_reads = 0;
	return 0;
}

/* The same again, as its parent. */
static pid_t
leave_child(void)
{
	in_child = false;
	blocked = true;
	while (num_results > 0)
		clear_result(results[num_results - 1]);
	fuzz_check(limited == (failure != NO_STATISTICS));
	told_length = told_bytes.len;
	/* what it has in its own memory is not told */
	told->kind = SNOWFLAKE_RESULT_FAILED;
	told->size = 0;
	/* it may be killed while it tells */
	killed = fuzz_take(&input, 1) % 16 == 1 && told_bytes.len > 0;
	if (killed)
		told_bytes.len = fuzz_take_up_to(&input, told_bytes.len - 1);
	allocated_by_child = fuzz_allocated - allocated_by_child;
	return 1;
}

static int
make_pipe(int *fds)
{
	if (failure == NO_PIPE)
		return -1;
	if ((pipe) (fds) != 0)
		abort();
	memcpy(told_pipe, fds, 2 * sizeof(int));
	return 0;
}

/* Of the child: that of its parent. */
static int
close_file(int fd)
{
	if (!in_child)
		return (close) (fd);
	fuzz_check(fd == told_pipe[0] && !read_end_closed);
	read_end_closed = true;
	return 0;
}

static FILE *
open_statistics(const char *name)
{
	return failure == NO_STATISTICS ? NULL : (fopen) (name, "r");
}

/* None of the server's handlers is left before a signal can come; four signals end the call. */
static void
set_signal(int number, intptr_t action)
{
	fuzz_check(in_child && blocked && action == (intptr_t) (number == SIGHUP || number == SIGPIPE ? SIG_IGN : SIG_DFL));
	num_set++;
}

static void
set_action(int number, const struct sigaction *action)
{
	fuzz_check(in_child && blocked && num_set == NSIG - 1 && action->sa_handler == give_up);
	fuzz_check(number == SIGALRM || number == SIGINT || number == SIGTERM || number == SIGQUIT);
	fuzz_check(action->sa_flags == (int) (SA_RESETHAND | SA_NODEFER));
	num_handled++;
}

static void
set_mask(int how, const sigset_t *set, sigset_t *before)
{
	fuzz_check(how == SIG_SETMASK && blocked == (before == NULL) && sigismember(set, SIGTERM) == (before != NULL));
	fuzz_check(!in_child || (num_handled == 4 && forgets_exit && detached));
	if (before != NULL)
		sigemptyset(before);
	blocked = before != NULL;
}

static void
set_alarm(unsigned int seconds)
{
	fuzz_check(in_child && !blocked && seconds == 5);
	has_alarm = true;
}

/* Before anything of libpq. */
static void
set_language(int category, const char *name)
{
	fuzz_check(category == LC_MESSAGES && strcmp(name, "C") == 0);
	fuzz_check(in_child && read_end_closed && has_alarm);
}

static FILE *
leave_log(void)
{
	fuzz_check(in_child);
	left_log = true;
	return stderr;
}

/* Libpq says something. */
static void
set_buffer(char *buffer, int mode, size_t size)
{
	fuzz_check(in_child && left_log && mode == _IOFBF);
	strlcpy(buffer, variant & WITH_ALL ? "WARNING: said\n" : "", size);
}

static int
end_process(pid_t pid, int number)
{
	fuzz_check(child_runs && pid == 1);
	/* SIGQUIT lets it cancel the call */
	fuzz_check(number == SIGKILL || number == SIGQUIT);
	child_killed = true;
	return 0;
}

static int
wait_for_process(pid_t pid, int options)
{
	fuzz_check(child_runs && child_killed && pid == 1 && options == WNOHANG);
	/* not dead at once */
	child_runs = variant & SLOW_CHILD && waited_us++ % 2 == 0;
	return child_runs ? 0 : pid;
}

static ssize_t
write_told(const void *data, size_t size)
{
	/* in parts, as a pipe takes it */
	size_t		part = Min(size, 50000);

	if (failure == NOT_TOLD)
		return kind % 2 == 0 ? 0 : -1;
	appendBinaryStringInfo(&told_bytes, data, (int) part);
	return part;
}

static ssize_t
read_told_bytes(int fd, void *data, size_t size)
{
	size_t		part = Min(size, (size_t) (told_bytes.len - told_bytes.cursor));

	if (failure == NOT_READ)
	{
		errno = EIO;
		return -1;
	}
	/* a signal comes first */
	if (num_reads++ % 4 < 2)
	{
		errno = num_reads % 2 == 0 ? EINTR : EAGAIN;
		return -1;
	}
	memcpy(data, told_bytes.data + told_bytes.cursor, part);
	told_bytes.cursor += (int) part;
	return part;
}

static int
set_limit(int resource, const struct rlimit *limit)
{
	FILE	   *file;
	unsigned long pages;
	int64		allowed;

	if (resource == RLIMIT_CORE)
	{
		fuzz_check(in_child && limit->rlim_cur == 0 && limit->rlim_max == 0);
		return 0;
	}
	fuzz_check(resource == RLIMIT_DATA);
	file = fopen("/proc/self/statm", "r");
	fuzz_check(file != NULL && fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) == 1);
	fclose(file);
	allowed = (int64) limit->rlim_cur - (int64) pages * sysconf(_SC_PAGESIZE);
	/* what was allocated in the meantime, both ways */
	limited = Abs(allowed - CHILD_MEMORY - 8 * (int64) SNOWFLAKE_RESULT_SIZE) < 4 * 1024 * 1024 &&
		limit->rlim_max == limit->rlim_cur;
	/* the server may have less */
	return variant & LAST_CALL ? -1 : 0;
}

/* At most one row is kept while the next one comes, and an error to its end. */
static PGresult *
next_result(PGconn *conn)
{
	PGresult   *result = PQgetResult(conn);

	if (result == NULL)
		return NULL;
	fuzz_check(num_results <= 2);
	results[num_results++] = result;
	return result;
}

static void
clear_result(PGresult *result)
{
	if (result == NULL)
		return;
	for (int i = 0; i < num_results; i++)
		if (results[i] == result)
		{
			results[i] = results[--num_results];
			PQclear(result);
			return;
		}
	fuzz_check(!"a result is cleared once");
}

/* Libpq itself is not compiled with a sanitizer. */
static const PGresult *
not_cleared(const PGresult *result)
{
	bool		found = result == NULL;

	for (int i = 0; i < num_results; i++)
		found = found || results[i] == result;
	fuzz_check(found);
	return result;
}

/*
 * Messages
 */
static void
put_number(StringInfo out, uint32 number, int bytes)
{
	while (bytes-- > 0)
		appendStringInfoCharMacro(out, (char) (number >> (8 * bytes)));
}

static void
put_message(StringInfo out, char type, const char *body, size_t length)
{
	appendStringInfoCharMacro(out, type);
	put_number(out, (uint32) length + 4, 4);
	appendBinaryStringInfo(out, body, (int) length);
}

/* Its body is a text with its zero. */
static void
put_text(StringInfo out, char type, const char *text)
{
	put_message(out, type, text, strlen(text) + 1);
}

static void
put_ready(StringInfo out)
{
	put_message(out, 'Z', "T", 1);
}

static void
put_row_description(StringInfo out, int num)
{
	StringInfoData body;

	initStringInfo(&body);
	put_number(&body, num, 2);
	for (int i = 0; i < num; i++)
	{
		appendBinaryStringInfo(&body, "c\0\0\0\0\0\0\0", 8);
		put_number(&body, 25, 4);
		put_number(&body, 0xffff, 2);
		put_number(&body, 0xffffffff, 4);
		put_number(&body, 0, 2);
	}
	put_message(out, 'T', body.data, body.len);
}

static void
put_row(StringInfo out, const Sent *columns, int num)
{
	StringInfoData body;

	initStringInfo(&body);
	put_number(&body, num, 2);
	for (int i = 0; i < num; i++)
	{
		put_number(&body, columns[i].data == NULL ? 0xffffffff : (uint32) columns[i].length, 4);
		if (columns[i].data != NULL)
			appendBinaryStringInfo(&body, columns[i].data, (int) columns[i].length);
	}
	put_message(out, 'D', body.data, body.len);
}

static void
put_value(StringInfo out, char *value)
{
	Sent		column = {value, strlen(value)};

	put_row_description(out, 1);
	put_row(out, &column, 1);
	put_text(out, 'C', "SELECT 1");
}

/* What the settings of a transaction return: first whether the schema is there. */
#define SETTINGS	6

static void
put_settings(StringInfo out, char *exists)
{
	Sent		columns[SETTINGS] = {{exists, strlen(exists)}, {"", 0}, {"warning", 7}, {"3500ms", 6}, {"4s", 2}, {"2s", 2}};

	put_row_description(out, SETTINGS);
	put_row(out, columns, SETTINGS);
	put_text(out, 'C', "SELECT 1");
}

/* Of an error or a notice: its fields; those of the refusal are kept. */
static void
put_fields(StringInfo out, char type, bool refusal)
{
	StringInfoData body;
	int			num = fuzz_take(&input, 1) % 8;

	initStringInfo(&body);
	if (refusal)
		memset(refused_texts, 0, sizeof(refused_texts));
	for (int i = 0; i < num; i++)
	{
		static const char fields[] = "SVCMDHPqR";
		static const char *const codes[] = {"55P03", "25006", "0A000", "42501", "3F000", "42883", "01000", "02000", "03000"};
		char		field = fields[fuzz_take(&input, 1) % (sizeof(fields) - 1)];
		char	   *text = fuzz_take_string(&input);
		const char *known = strchr(refused_fields, field);
		int			begin = body.len + 1;
		int			times;

		if (field == 'C' && text[0] == '\0')
			text = pstrdup(codes[fuzz_take(&input, 1) % lengthof(codes)]);
		appendStringInfoChar(&body, field);
		times = fuzz_take(&input, 1) % 4 == 1 ? fuzz_take(&input, 1) * 16 : 1;
		while (times-- > 0)
			appendStringInfoString(&body, text);
		if (refusal && known != NULL)
			refused_texts[known - refused_fields] = pstrdup(body.data + begin);
		appendStringInfoChar(&body, '\0');
	}
	appendStringInfoChar(&body, '\0');
	if (refusal)
		refused_length = body.len;
	put_message(out, type, body.data, body.len);
}

/*
 * The row of the answer
 */
static void
fill_values(char **values)
{
	static const char *const answers[] = {"yes", "no", "refused", "yes"};
	static const char *const uses[] = {"own", "nothing", "another"};

	memset(values, 0, 2 * SNOWFLAKE_QUERY_COLUMNS * sizeof(*values));
	values[ANSWER_AT] = (char *) answers[fuzz_take(&input, 1) % 4];
	values[INCARNATION_AT] = (char *) uuid_text;
	values[GENERATION_AT] = "7";
	if (strcmp(values[ANSWER_AT], "no") == 0)
		values[REASON_AT] = "rolled back";
	else if (strcmp(values[ANSWER_AT], "refused") == 0)
	{
		values[SQLSTATE_AT] = "55000";
		values[MESSAGE_AT] = "not now";
		values[DETAIL_AT] = "It is closed.";
		values[HINT_AT] = "Ask another one.";
		values[WAIT_AT] = "10000000";
	}
	else if (kind == 0)
	{
		values[VALUES_AT] = (char *) uses[fuzz_take(&input, 1) % 3];
		values[VALUES_AT + 1] = (char *) uuid_text;
		values[VALUES_AT + 2] = (char *) now_text;
	}
	else if (kind == 1)
	{
		values[VALUES_AT] = (char *) uuid_text;
		values[VALUES_AT + 1] = values[VALUES_AT + 3] = (char *) now_text;
		values[VALUES_AT + 2] = "7";
		values[VALUES_AT + 4] = (char *) later_text;
	}
	else if (kind == 3)
		values[VALUES_AT] = (char *) later_text;
}

static int
columns_of_kind(void)
{
	static const int columns[NUM_KINDS] = {12, 14, 9, 10, 9};

	return columns[kind];
}

/* Numbers near the limits, as texts. */
static const char *const edges[] = {
	"0", "-1", "1", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
	"-9223372036854775808", "-9223372036854775809", "253402300799999999", "253402300800000000",
	"-62135596800000000", "-62135596800000001", "NaN", "infinity", "1e3", "1.0", " 1", "+1", "007", "-0", ""
};

static char *
joined(const char *head, int length, const char *rest)
{
	return psprintf("%.*s%s", length, head, rest);
}

/*
 * What the input makes of the right value.  All long values of an answer together
 * are twice as long as it may be: the memory of the child is no part of the test.
 */
static void
choose_column(char *right, Sent *column)
{
	size_t		length = right == NULL ? 0 : strlen(right);
	size_t		at;

	column->data = right;
	switch (fuzz_take(&input, 1) % 12)
	{
		case 1:
			column->data = NULL;
			break;
		case 2:
			column->data = fuzz_take_string(&input);
			break;
		case 3:
			column->data = psprintf(INT64_FORMAT, (int64) fuzz_take(&input, 8));
			break;
		case 4:
			column->data = (char *) edges[fuzz_take(&input, 1) % lengthof(edges)];
			break;
		case 5:
			at = fuzz_take_up_to(&input, length);
			column->data = joined(right == NULL ? "" : right, at, fuzz_take_string(&input));
			break;
		case 6:
			at = fuzz_take_up_to(&input, length);
			column->data = psprintf("%.*s%s%s", (int) at, right == NULL ? "" : right,
									fuzz_take_string(&input), right == NULL ? "" : right + at);
			break;
		case 7:
			at = fuzz_take_up_to(&input, SNOWFLAKE_RESULT_SIZE + 1);
			at = Min(at, 2 * SNOWFLAKE_RESULT_SIZE - long_bytes);
			long_bytes += at;
			column->data = palloc(at + 1);
			memset(column->data, fuzz_take(&input, 1), at);
			column->length = at;
			return;
		case 8:
			if (length == 0)
				break;
			column->data = pstrdup(right);
			at = fuzz_take(&input, 2) % length;
			column->data[at] = (char) fuzz_take(&input, 1);
			column->length = length;
			return;
		default:
			break;
	}
	column->length = column->data == NULL ? 0 : strlen(column->data);
}

static void
put_answer(StringInfo out)
{
	char	   *values[2 * SNOWFLAKE_QUERY_COLUMNS];

	fill_values(values);
	num_columns = columns_of_kind();
	long_bytes = 0;
	if (fuzz_take(&input, 1) % 16 == 1)
		num_columns = fuzz_take(&input, 1) % lengthof(sent);
	for (int i = 0; i < num_columns; i++)
		choose_column(values[i], &sent[i]);
	num_rows = 1;
	if (fuzz_take(&input, 1) % 16 == 1)
		num_rows = fuzz_take_up_to(&input, MAX_ROWS);
	put_message(out, '1', "", 0);
	put_message(out, '2', "", 0);
	put_row_description(out, num_columns);
	for (int i = 0; i < num_rows && out->len < 4 * MAX_BYTES; i++)
		put_row(out, sent, num_columns);
	put_text(out, 'C', "SELECT 1");
	put_ready(out);
}

/*
 * The script
 */
static void
put_right(StringInfo out)
{
	switch (stage)
	{
		case STARTUP:
			put_message(out, 'R', "\0\0\0\0", 4);
			put_message(out, 'S', variant & NEW_SERVER ? "server_version\00017.0" : "server_version\00015.0", 20);
			put_message(out, 'Z', "I", 1);
			break;
		case BEGIN:
			put_text(out, 'C', "BEGIN");
			put_value(out, "on");
			put_settings(out, "t");
			put_ready(out);
			break;
		case CALL:
			put_answer(out);
			break;
		case COMMIT:
			put_text(out, 'C', "COMMIT");
			put_ready(out);
			break;
	}
}

/* Any messages, some with the wrong length, some again and again, up to a size. */
static void
put_messages(StringInfo out)
{
	int			num = fuzz_take(&input, 1) % 8;

	for (int i = 0; i < num && out->len < MAX_BYTES; i++)
	{
		static const char types[] = "CDETNZSR12nsIHGWdcAKvt3V";
		char		type = types[fuzz_take(&input, 1) % (sizeof(types) - 1)];
		int			begin = out->len;
		int			length;
		int			times;

		switch (fuzz_take(&input, 1) % 8)
		{
			case 0:
				put_text(out, type, stage == COMMIT ? "COMMIT" : "SELECT 1");
				break;
			case 1:
				put_fields(out, type, false);
				break;
			case 2:
				put_row_description(out, fuzz_take(&input, 1) % 12);
				break;
			case 3:
				put_row(out, sent, num_columns);
				break;
			case 4:
				put_value(out, fuzz_take(&input, 1) % 2 ? "t" : "f");
				break;
			case 5:
				put_message(out, type, "\0\0\0\0", fuzz_take(&input, 1) % 5);
				break;
			default:
				put_text(out, type, fuzz_take_string(&input));
				break;
		}
		length = out->len - begin;
		if (fuzz_take(&input, 1) % 8 == 1 && length > 5)
		{
			uint32		lie = pg_hton32((uint32) fuzz_take(&input, 4));

			memcpy(out->data + begin + 1, &lie, sizeof(lie));
		}
		times = fuzz_take(&input, 1) % 8 == 1 ? fuzz_take_up_to(&input, MAX_ROWS) : 1;
		while (times-- > 1 && out->len < MAX_BYTES)
		{
			enlargeStringInfo(out, length);
			appendBinaryStringInfo(out, out->data + begin, length);
		}
	}
}

/* Whatever the input has. */
static void
put_bytes(StringInfo out)
{
	size_t		length = fuzz_take(&input, 2);

	length = Min(length, input.size);
	appendBinaryStringInfo(out, (const char *) input.data, (int) length);
	input.data += length;
	input.size -= length;
}

/* What has failed, in the end. */
static void
expect_refusal(const char *code, const char *message, const char *detail, const char *hint)
{
	const char *texts[] = {code, message, detail, hint, NULL};

	refused = true;
	refused_stage = stage;
	for (int i = 0; i < (int) lengthof(texts); i++)
		refused_texts[i] = texts[i] == NULL ? NULL : pstrdup(texts[i]);
}

static const char warning[] = "SWARNING\0VWARNING\0C01000\0Mcanceled\0RSyncRepWaitForLSN\0";

/* a server that does not say what has raised it */
static const char vague_warning[] = "SWARNING\0VWARNING\0C01000\0Mcanceled\0";
static const char other_warning[] = "SWARNING\0VWARNING\0C57P01\0Mcanceling the wait\0RSyncRepWaitForLSNs\0";
static const char notice[] = "SNOTICE\0VNOTICE\0C00000\0Mnoticed\0";

/* The extension is not there, or something else than a boolean. */
static void
put_no_schema(StringInfo out)
{
	Sent		columns[SETTINGS] = {{"t", 1}, {"t", 1}, {"t", 1}, {"t", 1}, {"t", 1}, {"t", 1}};
	int			choice = fuzz_take(&input, 1) % 4;

	expect_refusal("3F000", "schema \"snowflake\" does not exist", NULL, NULL);
	put_text(out, 'C', "BEGIN");
	/* the row of another statement is not taken for it */
	put_value(out, choice == 3 ? "t" : "on");
	if (choice == 0)
		put_settings(out, "f");
	else
	{
		put_row_description(out, choice == 1 ? 2 : SETTINGS);
		for (int i = 0; i < (choice == 2 ? 2 : choice == 1); i++)
			put_row(out, columns, choice == 1 ? 2 : SETTINGS);
		put_text(out, 'C', "SELECT 1");
	}
	put_ready(out);
}

/* What is not durable: no answer counts. */
static void
put_not_committed(StringInfo out, bool warns)
{
	expect_refusal("55P03", "a lease was not replicated to a synchronous standby of the registry",
				   "The wait for it was cancelled.", "No id is issued under that lease. Check the standby.");
	if (warns && variant & WITH_ALL)
		put_message(out, 'N', vague_warning, sizeof(vague_warning));
	else if (warns)
		put_message(out, 'N', warning, sizeof(warning));
	put_text(out, 'C', warns ? "COMMIT" : "ROLLBACK");
	put_ready(out);
}

/* What is sent on a message, which may be that the connection ends. */
static void
put_stage(StringInfo out, bool ends)
{
	int			fault = fuzz_take(&input, 1) % 12;
	int			begin = out->len;
	bool		first = plain && !ends;
	bool		refusal = first && fault == 2;
	int			at;

	if (refusal)
	{
		refused = true;
		refused_stage = stage;
	}
	if ((stage == BEGIN && fault == 9) || (stage == COMMIT && fault >= 10))
	{
		if (!first)
			fault = 0;
		else
		{
			plain = false;
			if (stage == BEGIN)
				put_no_schema(out);
			else
				put_not_committed(out, fault == 10);
			return;
		}
	}
	plain = plain && (fault == 0 || fault > 8 || fault == 1);
	switch (fault)
	{
		case 1:
			/* nothing that matters */
			put_message(out, 'S', "name\0value", 11);
			put_message(out, 'N', notice, sizeof(notice));
			put_message(out, 'N', other_warning, sizeof(other_warning));
			put_right(out);
			break;
		case 2:
			if (stage == STARTUP && variant & WITH_ALL)
			{
				put_message(out, 'R', "\0\0\0\0", 4);
				/* perhaps more than is kept */
				for (int i = 0; i < (variant & NEW_SERVER ? 100 : 1); i++)
					put_message(out, 'N', notice, sizeof(notice));
			}
			put_fields(out, 'E', refusal);
			put_ready(out);
			break;
		case 3:
			put_messages(out);
			if (first && out->len == begin && stage != STARTUP)
				expect_refusal(NULL, NULL, NULL, NULL);
			put_ready(out);
			break;
		case 4:
			put_bytes(out);
			put_ready(out);
			break;
		case 5:
			put_right(out);
			out->len = begin + fuzz_take_up_to(&input, out->len - begin);
			break;
		case 6:
			put_right(out);
			at = begin + fuzz_take(&input, 2) % (out->len - begin);
			out->data[at] = (char) fuzz_take(&input, 1);
			break;
		case 7:
			put_fields(out, 'N', false);
			put_right(out);
			break;
		case 8:
			put_messages(out);
			put_right(out);
			break;
		case 11:
			/* it says nothing of the end */
			if (stage != COMMIT)
				put_message(out, 'N', warning, sizeof(warning));
			put_right(out);
			break;
		default:
			put_right(out);
			break;
	}
	if (stage == COMMIT)
		appendBinaryStringInfo(&committed, out->data + begin, out->len - begin);
}

/*
 * The socket.  All that is sent is one of the messages that a stage answers; what has
 * been answered and read, and then is waited for, does not come: the connection ends.
 */
int
connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t length)
{
	if (nobody_listens)
	{
		errno = ECONNREFUSED;
		return -1;
	}
	stage = STARTUP;
	initStringInfo(&wire);
	initStringInfo(&committed);
	num_columns = num_rows = 0;
	num_connections++;
	plain = true;
	refused = false;
	return 0;
}

int
poll(struct pollfd *fds, nfds_t num, int timeout)
{
	for (nfds_t i = 0; i < num; i++)
		fds[i].revents = fds[i].events;
	return (int) num;
}

static bool
has_text(const char *data, size_t size, const char *text)
{
	return memmem(data, size, text, strlen(text)) != NULL;
}

static bool
has_pair(const char *data, size_t size, const char *key, const char *value)
{
	const char *found = memmem(data, size, key, strlen(key) + 1);

	return found != NULL && strcmp(found + strlen(key) + 1, value) == 0;
}

/* The transaction that the node begins, its call, and the end. */
static void
check_sent(const char *data, size_t size)
{
	static const char *const functions[NUM_KINDS] = {
		"start_server(", "acquire_lease(", "record_uses(", "renew_lease(", "release_lease("
	};

	if (stage == STARTUP)
	{
		fuzz_check(has_pair(data, size, "user", "node") && has_pair(data, size, "database", "postgres"));
		fuzz_check(has_pair(data, size, "application_name", "snowflake lease worker"));
		fuzz_check(has_pair(data, size, "client_encoding", "UTF8"));
	}
	else if (stage == BEGIN)
	{
		fuzz_check(has_text(data, size, "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE"));
		fuzz_check(has_text(data, size, "transaction_timeout") == ((variant & NEW_SERVER) != 0));
		/* may be lost: what makes an end earlier, and what changes nothing */
		fuzz_check(has_text(data, size, "SET LOCAL synchronous_commit = local;") == (kind >= 4));
		fuzz_check(has_text(data, size, "synchronous_commit") == (kind >= 4));
	}
	else if (stage == CALL && data[0] != 'X')
	{
		fuzz_check(has_text(data, size, functions[kind]));
		fuzz_check(expected_call == NULL || has_text(data, size, expected_call));
	}
	else if (stage == COMMIT && data[0] != 'X')
		fuzz_check(has_text(data, size, "COMMIT"));
}

ssize_t
send(int fd, const void *data, size_t size, int flags)
{
	if (plain)
		check_sent(data, size);
	if (stage < NUM_STAGES)
		put_stage(&wire, ((const char *) data)[0] == 'X');
	stage++;
	return size;
}

ssize_t
recv(int fd, void *data, size_t size, int flags)
{
	size_t		part = Min(size, (size_t) (wire.len - wire.cursor));

	memcpy(data, wire.data + wire.cursor, part);
	wire.cursor += (int) part;
	return part;
}

/*
 * A second reading
 */
static bool
is_printable(const char *text)
{
	for (; *text != '\0'; text++)
		if (*text < ' ' || *text > '~')
			return false;
	return true;
}

/* A whole number within limits, and nothing else. */
static bool
scan_number(const char *text, int64 least, int64 most, int64 *number)
{
	char	   *end;

	if (text == NULL || text[0] == '\0' || text[strspn(text, "-")] == '\0' || strspn(text, "-") > 1 ||
		strspn(text + strspn(text, "-"), "0123456789") != strlen(text) - strspn(text, "-"))
		return false;
	errno = 0;
	*number = strtoll(text, &end, 10);
	return errno == 0 && *end == '\0' && *number >= least && *number <= most;
}

/* In the years 1 to 9999; since 1970. */
static bool
is_time(int64 us)
{
	time_t		seconds = us / USECS_PER_SEC - (us % USECS_PER_SEC < 0);
	struct tm	date;

	return gmtime_r(&seconds, &date) != NULL && date.tm_year + 1900 >= 1 && date.tm_year + 1900 <= 9999;
}

static bool
scan_time(const char *text, TimestampTz *time)
{
	int64		us;

	if (!scan_number(text, PG_INT64_MIN, PG_INT64_MAX, &us) || !is_time(us))
		return false;
	*time = us - INT64CONST(946684800000000);
	return true;
}

/* A refusal: an error's SQLSTATE, a message, and at most 10 s. */
static bool
scan_refusal(char *const *columns, SnowflakeResult *read)
{
	const char *code = columns[SQLSTATE_AT];

	if (code == NULL || strlen(code) != 5 || strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 5 ||
		memcmp(code, "00", 2) == 0 || memcmp(code, "01", 2) == 0 || memcmp(code, "02", 2) == 0 || columns[MESSAGE_AT] == NULL)
		return false;
	read->kind = SNOWFLAKE_RESULT_REFUSED;
	read->problem.sqlerrcode = MAKE_SQLSTATE(code[0], code[1], code[2], code[3], code[4]);
	strlcpy(read->problem.message, columns[MESSAGE_AT], sizeof(read->problem.message));
	return scan_number(columns[WAIT_AT], 0, 10000000, &read->wait);
}

static bool
scan_values(char *const *values, SnowflakeResult *read)
{
	SnowflakeStartResult *start = &read->u.start;
	SnowflakeAcquireResult *acquire = &read->u.acquire;
	int64		node;

	switch (kind)
	{
		case 0:
			if (values[0] == NULL || !scan_time(values[2], &start->starts_at))
				return false;
			start->uses = strcmp(values[0], "own") == 0 ? SNOWFLAKE_USES_OWN :
				strcmp(values[0], "another") == 0 ? SNOWFLAKE_USES_ANOTHER : SNOWFLAKE_USES_NOTHING;
			if (start->uses == SNOWFLAKE_USES_NOTHING)
				return strcmp(values[0], "nothing") == 0;
			return scan_uuid(values[1], &start->incarnation);
		case 1:
			if (!scan_uuid(values[0], &acquire->token) || !scan_time(values[1], &acquire->clock) ||
				!scan_number(values[2], 0, PG_INT64_MAX, &node) || !scan_time(values[3], &acquire->starts_at) ||
				!scan_time(values[4], &acquire->leased_until))
				return false;
			/* null: it does not know the cluster */
			acquire->cluster_ids_end_at = DT_NOBEGIN;
			if (values[5] != NULL && !scan_time(values[5], &acquire->cluster_ids_end_at))
				return false;
			acquire->incarnation = read->incarnation;
			acquire->generation = read->generation;
			acquire->node = node;
			return true;
		case 3:
			return scan_time(values[0], &read->u.renew.leased_until);
		default:
			return true;
	}
}

/* Whether the columns are an answer to the call, and which. */
static bool
scan_columns(char *const *columns, SnowflakeResult *read)
{
	const char *answer = columns[ANSWER_AT];
	const char *reason = columns[REASON_AT];
	int64		generation;

	if (answer == NULL || !scan_uuid(columns[INCARNATION_AT], &read->incarnation) ||
		!scan_number(columns[GENERATION_AT], 1, PG_INT32_MAX, &generation))
		return false;
	read->generation = (int32) generation;
	read->kind = SNOWFLAKE_RESULT_OK;
	if (strcmp(answer, "yes") == 0)
		return scan_values(columns + VALUES_AT, read);
	if (strcmp(answer, "refused") == 0)
		return scan_refusal(columns, read);
	read->kind = SNOWFLAKE_RESULT_NO;
	read->rolled_back = reason != NULL && strcmp(reason, "rolled back") == 0;
	return strcmp(answer, "no") == 0 && kind >= 2;
}

/* The same answer, written once more. */
static void
write_columns(const SnowflakeResult *read, SnowflakeRow *row)
{
	static const char *const uses[] = {"nothing", "own", "another"};
	const SnowflakeAcquireResult *acquire = &read->u.acquire;
	char	  **columns = row->columns;

#define UUID_TEXT(uuid) DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&(uuid))))
#define TIME_TEXT(time) psprintf(INT64_FORMAT, (time) + INT64CONST(946684800000000))
	memset(row, 0, sizeof(*row));
	columns[ANSWER_AT] = (char *) (read->kind == SNOWFLAKE_RESULT_OK ? "yes" : read->kind == SNOWFLAKE_RESULT_NO ? "no" : "refused");
	columns[INCARNATION_AT] = UUID_TEXT(read->incarnation);
	columns[GENERATION_AT] = psprintf("%d", read->generation);
	if (read->kind == SNOWFLAKE_RESULT_NO && read->rolled_back)
		columns[REASON_AT] = "rolled back";
	if (read->kind == SNOWFLAKE_RESULT_REFUSED)
	{
		columns[SQLSTATE_AT] = palloc0(6);
		for (int i = 0; i < 5; i++)
			columns[SQLSTATE_AT][i] = PGUNSIXBIT(read->problem.sqlerrcode >> (6 * i));
		columns[MESSAGE_AT] = pstrdup(read->problem.message);
		columns[WAIT_AT] = psprintf(INT64_FORMAT, read->wait);
	}
	if (read->kind != SNOWFLAKE_RESULT_OK)
		return;
	columns += VALUES_AT;
	if (kind == 0)
	{
		columns[0] = (char *) uses[read->u.start.uses];
		columns[1] = UUID_TEXT(read->u.start.incarnation);
		columns[2] = TIME_TEXT(read->u.start.starts_at);
	}
	else if (kind == 1)
	{
		columns[0] = UUID_TEXT(acquire->token);
		columns[1] = TIME_TEXT(acquire->clock);
		columns[2] = psprintf(UINT64_FORMAT, acquire->node);
		columns[3] = TIME_TEXT(acquire->starts_at);
		columns[4] = TIME_TEXT(acquire->leased_until);
		columns[5] = acquire->cluster_ids_end_at == DT_NOBEGIN ? NULL : TIME_TEXT(acquire->cluster_ids_end_at);
	}
	else if (kind == 3)
		columns[0] = TIME_TEXT(read->u.renew.leased_until);
}

static bool
same_answer(const SnowflakeResult *a, const SnowflakeResult *b)
{
	const SnowflakeAcquireResult *one = &a->u.acquire;
	const SnowflakeAcquireResult *other = &b->u.acquire;

	if (a->kind != b->kind || memcmp(&a->incarnation, &b->incarnation, UUID_LEN) != 0 || a->generation != b->generation)
		return false;
	if (a->kind == SNOWFLAKE_RESULT_NO)
		return a->rolled_back == b->rolled_back;
	if (a->kind == SNOWFLAKE_RESULT_REFUSED)
		return a->problem.sqlerrcode == b->problem.sqlerrcode && a->wait == b->wait &&
			strcmp(a->problem.message, b->problem.message) == 0;
	switch (kind)
	{
		case 0:
			return a->u.start.uses == b->u.start.uses && a->u.start.starts_at == b->u.start.starts_at &&
				(a->u.start.uses == SNOWFLAKE_USES_NOTHING ||
				 memcmp(&a->u.start.incarnation, &b->u.start.incarnation, UUID_LEN) == 0);
		case 1:
			return memcmp(&one->token, &other->token, UUID_LEN) == 0 &&
				memcmp(&one->incarnation, &other->incarnation, UUID_LEN) == 0 &&
				one->generation == other->generation && one->clock == other->clock && one->node == other->node &&
				one->starts_at == other->starts_at && one->leased_until == other->leased_until &&
				one->cluster_ids_end_at == other->cluster_ids_end_at;
		case 3:
			return a->u.renew.leased_until == b->u.renew.leased_until;
		default:
			return true;
	}
}

/* The columns as the node has to get them; false if they are too long, or not one row. */
static bool
columns_sent(char **columns)
{
	size_t		size = 0;

	memset(columns, 0, SNOWFLAKE_QUERY_COLUMNS * sizeof(*columns));
	for (int i = 0; i < num_columns; i++)
	{
		size += sent[i].length;
		if (i < SNOWFLAKE_QUERY_COLUMNS && sent[i].data != NULL)
		{
			columns[i] = pnstrdup(sent[i].data, sent[i].length);
			/* a value with a zero in it is not one without */
			if (strlen(columns[i]) != sent[i].length)
				columns[i] = "?";
		}
	}
	return num_rows == 1 && size <= (size_t) SNOWFLAKE_RESULT_SIZE;
}

/* What has become of a column on the way. */
static void
check_column(const Sent *column, const char *got)
{
	fuzz_check((column->data == NULL) == (got == NULL));
	if (got == NULL)
		return;
	fuzz_check(is_printable(got) && strlen(got) <= column->length);
	if (strlen(pnstrdup(column->data, column->length)) == column->length &&
		is_printable(pnstrdup(column->data, column->length)))
		fuzz_check(strlen(got) == column->length && memcmp(got, column->data, column->length) == 0);
}

static void
check_row(const SnowflakeRow *row)
{
	size_t		size = 0;

	for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
	{
		size += row->columns[i] == NULL ? 0 : strlen(row->columns[i]);
		fuzz_check(row->columns[i] == NULL || is_printable(row->columns[i]));
		if (plain && num_rows == 1 && i < num_columns)
			check_column(&sent[i], row->columns[i]);
		else if (plain)
			fuzz_check(row->columns[i] == NULL);
	}
	fuzz_check(size <= (size_t) SNOWFLAKE_RESULT_SIZE);
}

/*
 * Whether the fields of a notice say that it is a warning that counts, or perhaps; the last one of a kind is
 * that of the notice.
 */
static bool
is_warning(const char *fields, size_t length)
{
	bool		warning = false;
	bool		counts = true;

	for (size_t at = 0; at < length && fields[at] != '\0';)
	{
		size_t		size = strnlen(fields + at + 1, length - at - 1);

		if (fields[at] == 'V')
			warning = size == 7 && memcmp(fields + at + 1, "WARNING", 7) == 0;
		if (fields[at] == 'R')
			counts = size == 17 && memcmp(fields + at + 1, "SyncRepWaitForLSN", 17) == 0;
		at += size + 2;
	}
	return warning && counts;
}

/* The last thing that was sent after COMMIT, but for what libpq does not look at, is that it has. */
static bool
was_committed(void)
{
	bool		done = false;

	for (int at = 0; at + 5 <= committed.len;)
	{
		uint32		length;
		const char *body = committed.data + at + 5;
		char		type = committed.data[at];

		memcpy(&length, committed.data + at + 1, sizeof(length));
		length = pg_ntoh32(length);
		if (length < 4 || length - 4 > (uint32) (committed.len - at - 5) || type == 'Z')
			break;
		if (type == 'C')
			done = length - 4 >= 7 && memcmp(body, "COMMIT", 7) == 0;
		if (type == 'N' && is_warning(body, length - 4))
			return false;
		at += 1 + (int) length;
	}
	return done;
}

static void
check_problem(const SnowflakeProblem *problem)
{
	const char *texts[] = {problem->message, problem->detail, problem->hint};
	size_t		size = 0;
	int			class = problem->sqlerrcode & 0xfff;

	fuzz_check(problem->sqlerrcode > 0);
	fuzz_check(class != (MAKE_SQLSTATE('0', '0', '0', '0', '0') & 0xfff) &&
			   class != (MAKE_SQLSTATE('0', '1', '0', '0', '0') & 0xfff) &&
			   class != (MAKE_SQLSTATE('0', '2', '0', '0', '0') & 0xfff));
	for (int i = 0; i < 5; i++)
		fuzz_check(isdigit(PGUNSIXBIT(problem->sqlerrcode >> (6 * i))) ||
				   (PGUNSIXBIT(problem->sqlerrcode >> (6 * i)) >= 'A' && PGUNSIXBIT(problem->sqlerrcode >> (6 * i)) <= 'Z'));
	for (int i = 0; i < (int) lengthof(texts); i++)
	{
		fuzz_check(is_printable(texts[i]));
		size += strlen(texts[i]);
	}
	/* of a refusal that is an answer, or of an error */
	fuzz_check(size <= (result.kind == SNOWFLAKE_RESULT_REFUSED ? 1536 : 1024));
	/* it says why */
	fuzz_check(strncmp(problem->message, "could not reach", 15) != 0 || problem->detail[0] != '\0');
}

/* A text has become printable, and begins as it was sent. */
static bool
is_text_sent(const char *text, const char *got)
{
	char		printable[200];

	snowflake_copy_printable(printable, text, strnlen(text, HINT_SIZE - 1), sizeof(printable));
	return strncmp(printable, got, strlen(printable)) == 0;
}

/* A hint of ours, where the registry has none. */
static bool
needs_hint(int sqlerrcode)
{
	return sqlerrcode == ERRCODE_INVALID_SCHEMA_NAME || sqlerrcode == ERRCODE_UNDEFINED_FUNCTION ||
		sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE || sqlerrcode == ERRCODE_READ_ONLY_SQL_TRANSACTION ||
		sqlerrcode == ERRCODE_FEATURE_NOT_SUPPORTED;
}

/* Of the way to the registry. */
static void
check_not_reached(const SnowflakeProblem *problem)
{
	fuzz_check(problem->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && problem->has_address && !problem->from_registry);
	fuzz_check(problem->hint[0] != '\0' && problem->detail[0] != '\0');
	fuzz_check(strcmp(problem->message, psprintf("could not reach the registry %s", result.address)) == 0);
}

/* The error of the registry, when it was there, or of the way to it. */
static void
check_refusal(const SnowflakeProblem *problem)
{
	const char *code = refused_texts[0];
	const char *message = refused_texts[1];
	const char *detail = refused_texts[2];
	const char *hint = refused_texts[3];

	if (code == NULL && message == NULL)
	{
		fuzz_check(problem->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && problem->has_address);
		return;
	}
	if (refused_stage == STARTUP)
	{
		check_not_reached(problem);
		if (refused_length < 200 && message != NULL)
		{
			char	   *line = pstrdup(message);
			int			rest = refused_length;
			bool		told;

			/* in one line, after what libpq has written on standard error */
			for (char *p = line; *p != '\0'; p++)
				if (*p == '\n' || *p == '\t')
					*p = ' ';

			/*
			 * What looks like an SQLSTATE, or like libpq's line LOCATION, is
			 * taken out.  Such a line can begin in the severity or the code,
			 * and then has the message.
			 */
			told = is_printable(line) && strstr(line, ":  ") == NULL &&
				!(code == NULL && strspn(line, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && strncmp(line + 5, ": ", 2) == 0);
			for (int i = 0; i < (int) lengthof(refused_texts); i++)
				told = told && (refused_texts[i] == NULL || strstr(refused_texts[i], "LOCATION") == NULL);
			if (told)
				fuzz_check(strstr(problem->detail, line) != NULL);
			/* nothing comes after the message, where nothing else was sent */
			for (int i = 0; i < (int) lengthof(refused_texts); i++)
				rest -= refused_texts[i] == NULL ? 0 : strlen(refused_texts[i]) + 2;
			if (rest == 1 && detail == NULL && hint == NULL && told)
				fuzz_check(strcmp(problem->detail + strlen(problem->detail) - strlen(line), line) == 0);
			fuzz_check(!(variant & WITH_ALL) || variant & NEW_SERVER ||
					   strncmp(problem->detail, "WARNING: said ", strlen("WARNING: said ")) == 0);
		}
		return;
	}
	if (code == NULL || strlen(code) != 5 || strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 5 ||
		memcmp(code, "00", 2) == 0 || memcmp(code, "01", 2) == 0 || memcmp(code, "02", 2) == 0)
		code = "08P01";
	fuzz_check(problem->sqlerrcode == MAKE_SQLSTATE(code[0], code[1], code[2], code[3], code[4]));
	fuzz_check(problem->has_address == (detail == NULL) && problem->from_registry == (detail != NULL));
	fuzz_check(is_text_sent(detail != NULL ? detail : psprintf("The registry is %s.", result.address), problem->detail));
	if (problem->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && (hint == NULL || hint[0] == '\0'))
	{
		fuzz_check(problem->hint[0] != '\0' && strstr(problem->message, "is locked") != NULL);
		return;
	}
	fuzz_check(is_text_sent(message != NULL ? message : "unknown error", problem->message));
	if (hint != NULL)
		fuzz_check(is_text_sent(hint, problem->hint));
	else
		fuzz_check((problem->hint[0] != '\0') == needs_hint(problem->sqlerrcode));
}

/* No answer at all; by its clock, no call takes longer than it may. */
static void
check_no_answer(const SnowflakeProblem *problem)
{
	/* and half a second to cancel the call */
	int64		limit = variant & LAST_CALL ? 800000 : 5500000;

	/* all that it knows is what the setting says */
	fuzz_check(strcmp(result.address, variant & NEW_SERVER ? "/nowhere,/other:1,2/postgres" : "/nowhere:1/postgres") == 0);
	if (variant & NO_CHILD || failure == NO_PIPE)
		fuzz_check(problem->sqlerrcode == ERRCODE_INSUFFICIENT_RESOURCES);
	else if (failure == INTERRUPTED)
		fuzz_check(problem->sqlerrcode == ERRCODE_QUERY_CANCELED && waited_us < 1500000);
	else
	{
		check_not_reached(problem);
		if (variant & SLOW_CHILD)
			fuzz_check(waited_us >= limit && waited_us <= limit + 2000);
		fuzz_check(strstr(problem->detail, variant & SLOW_CHILD ? "in time" : "has failed") != NULL);
	}
}

/* Where the connection leads: to the host that has answered, or to none of all. */
static void
check_address(void)
{
	const char *expected = "/nowhere:1/postgres";

	if (variant & NEW_SERVER && stage <= BEGIN)
		expected = "/nowhere,/other:1,2/postgres";
	/* the first one is given up, see connect_verbosely() */
	else if (variant & NEW_SERVER && num_connections == 3)
		expected = "/other:2/postgres";
	fuzz_check(strcmp(result.address, expected) == 0);
}

/* One row as the registry should not have sent it: why. */
static void
check_wrong_row(const SnowflakeProblem *problem, bool too_long)
{
	fuzz_check(problem->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && problem->hint[0] != '\0');
	if (too_long)
	{
		fuzz_check(strcmp(problem->message, "the answer of the registry is longer than 64 kB") == 0);
		fuzz_check(problem->has_address && strstr(problem->detail, result.address) != NULL);
	}
	else
		fuzz_check(strcmp(problem->message, "the answer of the registry is not valid") == 0 &&
				   strncmp(problem->detail, "It has ", 7) == 0);
}

/*
 * Calls
 */

/* For helper.c. */
static SnowflakeResultKind
read_row(const SnowflakeCall *call, const SnowflakeRow *row, SnowflakeResult *to)
{
	row_read = *row;
	check_row(row);
	return snowflake_row_read(call, row, to);
}

/* What the parent has allocated is a few times the longest answer. */
static void
check_memory(Size before)
{
	fuzz_check(told_length <= (int) offsetof(Told, values) + SNOWFLAKE_RESULT_SIZE + SNOWFLAKE_QUERY_COLUMNS);
	fuzz_check(fuzz_allocated - before - allocated_by_child <= 8 * (Size) SNOWFLAKE_RESULT_SIZE + 128 * 1024);
}

static pg_uuid_t
uuid_of(int number)
{
	pg_uuid_t	uuid = {{0}};

	uuid.data[UUID_LEN - 1] = number;
	return uuid;
}

static void
fill_call(SnowflakeCall *call)
{
	static const SnowflakeAcquireCall asks = {.window = 4,.first = 5,.last = 6,
	.ids_end_at = DT_NOBEGIN,.starts_at = DT_NOBEGIN};
	SnowflakeAcquireCall *acquire = &call->u.acquire;
	SnowflakeUsed uses = {variant & WITH_ALL, uuid_of(3)};

	call->number = 8;
	call->clock = 1;
	call->max_ahead = 2;
	call->last = (variant & LAST_CALL) != 0;
	call->lease.ids_end_at = DT_NOBEGIN;
	snowflake_layout_parse(variant & WITH_ALL ? "twitter" : "sonyflake", &call->layout);
	if (variant & WITH_ALL)
	{
		call->lease.token = uuid_of(2);
		call->lease.node = 15;
		call->lease.granted_by = 7;
		call->lease.incarnation = uuid_of(4);
		call->lease.generation = 13;
		call->lease.leased_until = 14;
		call->lease.ids_end_at = 9;
	}
	switch (call->kind)
	{
		case SNOWFLAKE_CALL_START:
			call->u.start.create = variant & WITH_ALL;
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			*acquire = asks;
			acquire->fixed = variant & WITH_ALL;
			acquire->uses = uses;
			if (!(variant & WITH_ALL))
				break;
			acquire->starts_at = 11;
			acquire->ids_end_at = 12;
			break;
		case SNOWFLAKE_CALL_RECORD:
			call->u.record.incarnation = uuid_of(4);
			call->u.record.uses = uses;
			break;
		case SNOWFLAKE_CALL_RENEW:
			call->u.renew.window = 4;
			break;
		default:
			break;
	}
}

/* What it has to say. */
#define US(number)		"9466848000000" number
#define UUID(number)	"\"00000000-0000-0000-0000-0000000000" number "\""
#define LAYOUT \
	"\"layout\":\"timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z\""
#define OTHER_LAYOUT \
	"\"layout\":\"timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2014-09-01T00:00:00Z\""
#define NODE_CALL		"{\"protocol\":1,\"start\":" UUID("01") ",\"call\":8,"
#define LEASE \
	",\"lease\":{\"token\":" UUID("02") ",\"node_number\":15,\"granted_by\":7,\"incarnation\":" UUID("04") \
	",\"generation\":13,\"leased_until\":" US("14") ",\"ids_end_at\":" US("09") "}"
#define SERVER \
	",\"kind\":\"server\",\"host_name\":\"%s\",\"port\":5432,\"system_identifier\":7300000000000000000," \
	"\"launched_at\":" US("10") ",\"timeline\":1,\"clock\":" US("01") ",\"max_ahead\":2,\"window\":4," \
	"\"first_number\":5,\"last_number\":6,"

static const char *
call_text(void)
{
	static const char *const texts[NUM_KINDS][2] = {
		{"{\"protocol\":1,\"clock\":" US("01") ",\"max_ahead\":2}", "{\"protocol\":1,\"clock\":" US("01") ",\"max_ahead\":2}"},
		{NODE_CALL OTHER_LAYOUT SERVER "\"fixed\":false}",
			NODE_CALL LAYOUT LEASE SERVER "\"fixed\":true,\"uses\":" UUID("03") ",\"starts_at\":" US("11")
		",\"ids_end_at\":" US("12") "}"},
		{"{\"protocol\":1,\"incarnation\":" UUID("04") ",\"host_name\":\"%s\",\"port\":5432}",
		"{\"protocol\":1,\"incarnation\":" UUID("04") ",\"uses\":" UUID("03") ",\"host_name\":\"%s\",\"port\":5432}"},
		{NODE_CALL OTHER_LAYOUT ",\"clock\":" US("01") ",\"max_ahead\":2,\"window\":4}",
		NODE_CALL LAYOUT LEASE ",\"clock\":" US("01") ",\"max_ahead\":2,\"window\":4}"},
		{NODE_CALL OTHER_LAYOUT "}", NODE_CALL LAYOUT LEASE "}"}
	};
	const char *text = texts[kind][variant & WITH_ALL];
	const char *name = strstr(text, "%s");
	char		long_name[SNOWFLAKE_HOST_NAME_SIZE];
	const char *names[] = {"n?de", "unknown", variant & WITH_ALL ? "h" : "unknown", long_name};

	if (name == NULL)
		return text;
	memset(long_name, 'h', sizeof(long_name));
	long_name[sizeof(long_name) - 1] = '\0';
	return psprintf("%.*s%s%s", (int) (name - text), text, names[variant / 2 % 4], name + 2);
}

/* One that is not ASCII, none, a short and an empty one, and one that leaves no room for a zero. */
static int
get_host_name(char *name, size_t size)
{
	fuzz_check(size < SNOWFLAKE_HOST_NAME_SIZE);
	switch (variant / 2 % 4)
	{
		case 0:
			strcpy(name, "n\xc3\xb6" "de");
			return 0;
		case 1:
			strcpy(name, "cut");
			return -1;
		case 2:
			strcpy(name, variant & WITH_ALL ? "h" : "");
			return 0;
		default:
			memset(name, 'h', size);
			return 0;
	}
}

/* What was opened is closed: the least file that is free is the same, and no end of the pipe is left. */
static int
free_file(void)
{
	int			fd = dup(STDERR_FILENO);

	close(fd);
	return fd;
}

static bool
pipe_is_closed(void)
{
	return fcntl(told_pipe[0], F_GETFD) < 0 && fcntl(told_pipe[1], F_GETFD) < 0;
}

static void
run_call(void)
{
	static const SnowflakeCallKind kinds[] = {
		SNOWFLAKE_CALL_START, SNOWFLAKE_CALL_ACQUIRE, SNOWFLAKE_CALL_RECORD, SNOWFLAKE_CALL_RENEW,
		SNOWFLAKE_CALL_RELEASE
	};
	SnowflakeCall call;
	SnowflakeQuery query;
	SnowflakeResult expected;
	SnowflakeRow again;
	char		host_name[SNOWFLAKE_HOST_NAME_SIZE];
	char	   *columns[SNOWFLAKE_QUERY_COLUMNS];
	Size		before;
	bool		right;
	int			file;

	memset(&call, 0, sizeof(call));
	call.kind = kinds[kind];
	fill_call(&call);
	/* whatever was there before it */
	memset(host_name, 'x', sizeof(host_name));
	snowflake_host_name(host_name);
	fuzz_check(is_printable(host_name) && strlen(host_name) < sizeof(host_name));
	expected_call = call_text();
	/* to the own tables */
	snowflake_query_build(&call, &query);
	fuzz_check(strcmp(query.call, expected_call) == 0);
	fuzz_check(strstr(query.text, "acquire_own_lease") != NULL || kind != 1);
	fuzz_check(query.last == call.last && query.local_commit == (kind == 4));
	fuzz_check(query.create == (kind == 0 && variant & WITH_ALL));
	strlcpy(call.registry, variant & NEW_SERVER ? "host=/nowhere,/other port=1,2 user=node dbname=other client_encoding=LATIN1 application_name=other options=-ca,b" :
			"host=/nowhere port=1 user=node", sizeof(call.registry));
	snowflake_query_build(&call, &query);
	child_registry = call.registry;
	memset(&result, 0, sizeof(result));
	memset(&row_read, 0, sizeof(row_read));
	before = fuzz_allocated;
	file = free_file();
	carry_out(&call);
	fuzz_check(!child_runs && exit_callback == NULL && !blocked && file == free_file() && pipe_is_closed());
	if (variant & (SLOW_CHILD | NO_CHILD) || failure == NO_PIPE || failure == NOT_READ || child_fails())
	{
		fuzz_check(result.kind == SNOWFLAKE_RESULT_FAILED);
		check_problem(&result.problem);
		check_no_answer(&result.problem);
		return;
	}
	check_memory(before);

	right = columns_sent(columns);
	memset(&expected, 0, sizeof(expected));
	if (plain)
		fuzz_check((result.kind != SNOWFLAKE_RESULT_FAILED) == (right && !killed && scan_columns(columns, &expected)));
	fuzz_check(result.kind == SNOWFLAKE_RESULT_FAILED || !killed);
	if (result.kind == SNOWFLAKE_RESULT_FAILED)
	{
		check_problem(&result.problem);
		if (refused && !killed)
			check_refusal(&result.problem);
		else if (plain && !killed && num_rows == 1)
			check_wrong_row(&result.problem, !right);
		if ((refused || plain) && !killed)
			check_address();
		return;
	}
	fuzz_check(!refused);
	check_address();
	if (result.kind == SNOWFLAKE_RESULT_REFUSED)
	{
		check_problem(&result.problem);
		fuzz_check(result.problem.from_registry && !result.problem.has_address);
	}
	memset(&expected, 0, sizeof(expected));
	fuzz_check(scan_columns(row_read.columns, &expected));
	fuzz_check(same_answer(&result, &expected));
	fuzz_check(was_committed());
	write_columns(&result, &again);
	memset(&expected, 0, sizeof(expected));
	fuzz_check(fuzz_accepts(expected.kind = snowflake_row_read(&call, &again, &expected)));
	fuzz_check(same_answer(&result, &expected));
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	snowflake_shared = calloc(1, sizeof(SnowflakeShared));
	snowflake_shared->start = uuid_of(1);
	return 0;
}

/* What is said of a registry before there is a connection; and if there is none. */
static void
check_strings(void)
{
	/* with a detail: it is called */
	static const struct
	{
		const char *string;
		const char *address;
		const char *detail;
	}			strings[] =
	{
		{"host=h port=1", "h:1/postgres", NULL},
		{"host=h hostaddr=::1 user=u", "h:5432/postgres", NULL},
		{"hostaddr=::1", "::1:5432/postgres", NULL},
		{"service=s port=1", "service s", NULL},
		{"service=s host=h", "h:5432/postgres", NULL},
		{"host='a\nb' password=p", "a?b:5432/postgres", NULL},
		{"port=1", "local:1/postgres", "refused"},
		{"host=/a,/b port=1,2", "/a,/b:1,2/postgres", "refused"},
		{"service=none", "service none", "none"},
		{"host=h no", "local:5432/postgres", "no"}
	};
	char		address[SNOWFLAKE_ADDRESS_SIZE];
	SnowflakeCall call;
	SnowflakeQuery query;

	for (int i = 0; i < (int) lengthof(strings); i++)
	{
		snowflake_remote_address(strings[i].string, address);
		fuzz_check(strcmp(address, strings[i].address) == 0);
		if (strings[i].detail == NULL)
			continue;
		memset(&call, 0, sizeof(call));
		call.kind = SNOWFLAKE_CALL_START;
		strlcpy(call.registry, strings[i].string, sizeof(call.registry));
		child_registry = call.registry;
		snowflake_query_build(&call, &query);
		nobody_listens = true;
		carry_out(&call);
		nobody_listens = false;
		fuzz_check(result.kind == SNOWFLAKE_RESULT_FAILED);
		check_not_reached(&result.problem);
		fuzz_check(strstr(result.problem.detail, strings[i].detail) != NULL);
		/* libpq knows its default host */
		if (strcmp(address, "local:1/postgres") == 0)
			fuzz_check(strstr(result.address, "local") == NULL && strstr(result.address, ":1/postgres") != NULL);
		else
			fuzz_check(strcmp(result.address, address) == 0);
	}
	/* a helper that ends does not say more */
	result.kind = SNOWFLAKE_RESULT_OK;
	snowflake_result_error(&result, ERRCODE_QUERY_CANCELED, "interrupted", NULL, NULL);
	fuzz_check(result.kind == SNOWFLAKE_RESULT_FAILED && result.problem.sqlerrcode == ERRCODE_QUERY_CANCELED);
	/* what libpq says of it is as long as what is kept, to the byte */
	for (int length = 400; length < 600; length++)
	{
		char		string[1024] = "service=";
		SnowflakeRow row;

		memset(string + strlen(string), 'n', length);
		(void) snowflake_remote_run(string, &query, &row, &result);
		check_not_reached(&result.problem);
	}
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	static bool strings_checked = false;

	if (!strings_checked)
		check_strings();
	strings_checked = true;
	input.data = data;
	input.size = size;
	kind = fuzz_take(&input, 1);
	variant = kind / NUM_KINDS;
	kind %= NUM_KINDS;
	failure = variant < NUM_VARIANTS ? NO_FAILURE : INTERRUPTED + variant - NUM_VARIANTS;
	if (failure != NO_FAILURE)
		variant = failure == INTERRUPTED ? SLOW_CHILD : 0;
	num_connections = 0;
	stage = 0;
	plain = refused = false;
	waited_us = 0;
	expected_call = NULL;
	run_call();
	fuzz_end_statement();
	return 0;
}

/*
 * No allocation is larger than the child could have, and one that is fails.  Libpq
 * forgets a result when rows do not fit it; the child ends soon after that.
 */
const char *__asan_default_options(void);
const char *
__asan_default_options(void)
{
	return "max_allocation_size_mb=64:allocator_may_return_null=1:detect_leaks=0";
}
