/*
 * remote.c
 *	  Transactions in the tables of another cluster, over libpq as
 *	  snowflake.registry says.
 *
 * Libpq runs in a child process that has let go of shared memory and does
 * nothing else: it may hang in the look-up of a host name for as long as it
 * likes.  Here, the result is waited for at the other end of a pipe, with a
 * deadline, interruptibly.  At the deadline the child is told to cancel what
 * it has begun, so that the registry has its session back; soon after, or at
 * once if somebody interrupts, it is killed.  A connection for each
 * transaction: there is one in tens of seconds, and nothing has to be kept
 * alive.
 *
 * No part of the connection string gets into a message but host, port and
 * database; passwords are in files.
 *
 * For the helper.
 */
#include "postgres.h"

#include <locale.h>
#include <poll.h>
#include <signal.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libpq-fe.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "pqexpbuffer.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pg_shmem.h"
#include "utils/wait_event.h"

#include "clock.h"
#include "compat.h"
#include "registry/protocol.h"

/* For all of a transaction, the connection included. */
#define TIMEOUT_US			(5 * USECS_PER_SEC)
/* While the server stops. */
#define LAST_TIMEOUT_US		(800 * INT64CONST(1000))
/* For the child to cancel a call that is given up. */
#define CANCEL_US			(500 * INT64CONST(1000))

#define REACH_HINT \
	"Check snowflake.registry, that server and the network. Ids go on by themselves when it answers again."
#define GRANT_HINT \
	"Grant USAGE on the schema snowflake and EXECUTE on its functions acquire_lease, renew_lease and release_lease."

/*
 * As local.c's options.  client_min_messages: a WARNING at commit tells that
 * the wait for a synchronous standby was cancelled.
 * lock_timeout comes before statement_timeout, which would not say that it
 * was a lock.
 */
#define BEGIN_TEXT \
	"BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE, NOT DEFERRABLE;" \
	"SET LOCAL search_path = '';" \
	"SET LOCAL client_min_messages = warning;" \
	"SET LOCAL lock_timeout = '3500ms';" \
	"SET LOCAL statement_timeout = '4s';" \
	"SET LOCAL idle_in_transaction_session_timeout = '2s';"
#define DURABLE_TEXT \
	"SELECT pg_catalog.set_config('synchronous_commit', " \
	"CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('on', 'remote_apply') " \
	"THEN pg_catalog.current_setting('synchronous_commit') ELSE 'on' END, true)"
#define LOCAL_TEXT \
	"SET LOCAL synchronous_commit = local"

/*
 * A role's own limit would end the session before ours, which say what to do.
 */
#define TRANSACTION_TIMEOUT_SINCE	170000
#define TRANSACTION_TIMEOUT_TEXT \
	"SET LOCAL transaction_timeout = 0;"

/*
 * Asked with them, so that the log of a registry where the extension is
 * missing has no error for each call.
 */
#define EXISTS_TEXT \
	";SELECT pg_catalog.to_regnamespace('snowflake') IS NOT NULL"

/*
 * The child may have so much memory more than it begins with, and eight times
 * the answer that it may read: libpq has whole messages in memory, and a copy.
 */
#define CHILD_MEMORY		(32 * 1024 * 1024)

/* Of each text of an error, so much is read in the child. */
#define TEXT_SIZE			1024
/*
 * And so much is kept of a detail and of a hint; with the message they have at
 * most 1 kB.
 */
#define DETAIL_SIZE			512
#define HINT_SIZE			256

/* Before what is left of a text that was cut at its beginning. */
#define CUT_MARK			"... "

#define SQLSTATE_CHARACTERS	"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

/*
 * What the child says in place of an SQLSTATE: there is no connection; there is
 * none because the registry has no time; the answer is too long.
 */
#define NOT_FROM_SERVER		""
#define NOT_NOW				"busy"
#define TOO_LONG			"long"

/* In place of an SQLSTATE that is none of an error. */
#define PROTOCOL_VIOLATION	"08P01"

/* The child that runs; 0: none. */
static pid_t child = 0;

/* In the child: where to read what libpq writes on standard error. */
static int	standard_error = -1;

/* In the child: how to cancel what the connection does; NULL: there is none. */
static PGcancel *volatile cancel = NULL;

/*
 * In the child.  Nothing here allocates in memory contexts, raises an error or
 * touches shared memory.  What it tells is a list of strings, each with its
 * length before it, -1: NULL.  The helper reads it with pqformat.h.
 */
static void
tell_bytes(PQExpBuffer message, const char *bytes, int32 length)
{
	uint32		n = pg_hton32((uint32) length);

	appendBinaryPQExpBuffer(message, (const char *) &n, sizeof(n));
	if (bytes != NULL)
		appendBinaryPQExpBuffer(message, bytes, length);
}

static void
tell_text(PQExpBuffer message, const char *string)
{
	tell_bytes(message, string,
			   string == NULL ? -1 : (int32) strnlen(string, TEXT_SIZE));
}

/*
 * The first five: SQLSTATE (NULL: fine), message, detail, hint, address.
 */
static void
tell_failure(PQExpBuffer message, const char *sqlstate, const char *text,
			 const char *detail,
			 const char *hint, const char *address)
{
	resetPQExpBuffer(message);
	tell_text(message, sqlstate);
	tell_text(message, text);
	tell_text(message, detail);
	tell_text(message, hint);
	tell_text(message, address);
}

/*
 * Copies the end of a text: with several hosts, libpq's last reason comes last.
 * It begins with a line, or else with a character, after a mark.
 */
static void
copy_end(char *to, const char *from, size_t size)
{
	size_t		length = strlen(from);
	size_t		room = size - sizeof(CUT_MARK);
	const char *newline;

	if (length < size)
	{
		strlcpy(to, from, size);
		return;
	}
	from += length - room;
	/* not so late that much is lost */
	newline = memchr(from, '\n', room / 2);
	if (newline != NULL)
		from = newline + 1;
	while (((unsigned char) *from & 0xC0) == 0x80)
		from++;
	snprintf(to, size, "%s%s", CUT_MARK, from);
}

/*
 * Whether a registry has no time for the call: no connection is free, it is
 * starting, a lock or the statement took too long.
 */
static bool
is_overload(const char *sqlstate)
{
	return strcmp(sqlstate, "53300") == 0 || strcmp(sqlstate, "57P03") == 0 ||
		strcmp(sqlstate, "55P03") == 0 || strcmp(sqlstate, "57014") == 0;
}

/*
 * Libpq has the SQLSTATE of a server that does not let us in only in its text,
 * verbosely: "FATAL:  53300: ...", and in the next line where the server's
 * source raises it.  This takes both out; the last SQLSTATE is that of the last
 * host that has answered.
 */
static void
take_sqlstate(char *text, char sqlstate[6])
{
	char	   *p = text;

	sqlstate[0] = '\0';
	while ((p = strstr(p, ":  ")) != NULL)
	{
		char		code[6];

		p += 3;
		strlcpy(code, p, sizeof(code));
		if (strspn(code, SQLSTATE_CHARACTERS) != 5 || strncmp(p + 5, ": ", 2) != 0)
			continue;
		/* a notice has one, too */
		if (snowflake_is_sqlstate(code))
			strcpy(sqlstate, code);
		memmove(p, p + 7, strlen(p + 7) + 1);
	}
	while ((p = strstr(text, "\nLOCATION:  ")) != NULL)
	{
		const char *end = p + 1 + strcspn(p + 1, "\n");

		memmove(p, end, strlen(end) + 1);
	}
}

/* What libpq says, and why there is no result; its words decide nothing. */
static void
tell_libpq_failure(PQExpBuffer message, PGconn *conn, const char *address)
{
	char		all[4 * TEXT_SIZE];
	char		text[DETAIL_SIZE];
	char		sqlstate[6];

	/* first why it does not use a password file, for example */
	ssize_t		n = read(standard_error, all, TEXT_SIZE);

	n = Max(n, 0);
	copy_end(all + n, PQerrorMessage(conn), sizeof(all) - n);
	take_sqlstate(all, sqlstate);
	copy_end(text, all, sizeof(text));
	/* its lines, as one; it ends with a newline */
	for (char *p = text; *p != '\0'; p++)
		if (*p == '\n' || *p == '\t')
			*p = p[1] == '\0' ? '\0' : ' ';
	if (text[0] == '\0')
		strlcpy(text, "It sent something else than the result of a statement.",
				sizeof(text));
	tell_failure(message, is_overload(sqlstate) ? NOT_NOW : NOT_FROM_SERVER,
				 NULL, text, NULL, address);
}

static void
tell_error(PQExpBuffer message, PGconn *conn, const PGresult *result,
		   const char *address)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	if (sqlstate == NULL && text == NULL)
		tell_libpq_failure(message, conn, address);
	else
		tell_failure(message,
					 snowflake_is_sqlstate(sqlstate) ? sqlstate : PROTOCOL_VIOLATION,
					 text,
					 PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL),
					 PQresultErrorField(result, PG_DIAG_MESSAGE_HINT), address);
}

/*
 * A warning that does not say which routine has raised it may be the one that
 * counts.
 */
static void
note_notice(void *arg, const PGresult *result)
{
	const char *severity =
	PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *routine = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);

	if (severity != NULL && strcmp(severity, "WARNING") == 0 &&
		(routine == NULL || strcmp(routine, SNOWFLAKE_SYNC_REP_ROUTINE) == 0))
		*(bool *) arg = true;
}

/* What statements return. */
typedef struct Answer
{
	PGresult   *row;			/* of the last statement, NULL: not one */
	char		tag[32];		/* of the last result */
} Answer;

static int
row_size(const PGresult *row)
{
	int			size = 0;

	for (int i = 0; i < PQnfields(row); i++)
		size += PQgetlength(row, 0, i);
	return size;
}

/*
 * Takes what the statements that were sent return, row by row, so that a second
 * row need not be kept.  False if that fails, or is longer than it may be; then
 * tells why, and there may be more to come.
 */
static bool
take_answer(PGconn *conn, const char *address, PQExpBuffer message,
			Answer *answer)
{
	int64		size = 0;
	int			rows = 0;
	bool		done = false;
	PGresult   *result;

	memset(answer, 0, sizeof(*answer));
	(void) PQsetSingleRowMode(conn);
	while ((result = PQgetResult(conn)) != NULL)
	{
		switch (PQresultStatus(result))
		{
			case PGRES_SINGLE_TUPLE:
				size += row_size(result);
				if (size > SNOWFLAKE_RESULT_SIZE)
				{
					tell_failure(message, TOO_LONG, NULL, NULL, NULL, address);
					return false;
				}
				PQclear(answer->row);
				answer->row = rows++ == 0 ? result : NULL;
				if (answer->row == NULL)
					PQclear(result);
				break;
			case PGRES_TUPLES_OK:
				if (rows == 0)
				{
					PQclear(answer->row);
					answer->row = NULL;
				}
				rows = 0;
				strlcpy(answer->tag, PQcmdStatus(result), sizeof(answer->tag));
				done = true;
				PQclear(result);
				break;
			case PGRES_COMMAND_OK:
				strlcpy(answer->tag, PQcmdStatus(result), sizeof(answer->tag));
				done = true;
				PQclear(result);
				break;
			default:
				tell_error(message, conn, result, address);
				PQclear(result);

				/*
				 * up to the end, or that server logs that it could not send
				 * it
				 */
				PQclear(PQgetResult(conn));
				return false;
		}
	}
	if (!done)
		tell_libpq_failure(message, conn, address);
	return done;
}

/* One transaction on an open connection. */
static void
run_transaction(PGconn *conn, const SnowflakeQuery *query, const char *address,
				PQExpBuffer message)
{
	PQExpBufferData begin;
	bool		wait_cancelled = false;
	Answer		answer;

	PQsetNoticeReceiver(conn, note_notice, &wait_cancelled);
	initPQExpBuffer(&begin);
	appendPQExpBuffer(&begin, "%s%s%s%s", BEGIN_TEXT,
					  PQserverVersion(conn) >= TRANSACTION_TIMEOUT_SINCE ?
					  TRANSACTION_TIMEOUT_TEXT : "",
					  query->local_commit ? LOCAL_TEXT : DURABLE_TEXT,
					  EXISTS_TEXT);
	(void) PQsendQuery(conn, begin.data);
	if (!take_answer(conn, address, message, &answer))
		return;
	if (answer.row == NULL || PQnfields(answer.row) != 1 ||
		strcmp(PQgetvalue(answer.row, 0, 0), "t") != 0)
	{
		tell_failure(message, "3F000", "schema \"snowflake\" does not exist",
					 NULL, NULL, address);
		return;
	}
	(void) PQsendQueryParams(conn, query->text, 1, NULL, &query->call, NULL,
							 NULL, 0);
	if (!take_answer(conn, address, message, &answer))
		return;
	tell_failure(message, NULL, NULL, NULL, NULL, address);
	for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
	{
		if (answer.row == NULL || i >= PQnfields(answer.row) ||
			PQgetisnull(answer.row, 0, i))
			tell_text(message, NULL);
		else
			tell_bytes(message, PQgetvalue(answer.row, 0, i),
					   PQgetlength(answer.row, 0, i));
	}
	wait_cancelled = false;
	(void) PQsendQuery(conn, "COMMIT");
	if (!take_answer(conn, address, message, &answer))
		return;
	if (wait_cancelled || strcmp(answer.tag, "COMMIT") != 0)
		tell_failure(message, "55P03",
					 "a lease was not replicated to a synchronous standby of the registry",
					 "The wait for it was cancelled.",
					 "No id is issued under that lease; see to the standby.",
					 address);
}

/*
 * Libpq writes some things on standard error, among them notices of a server
 * that has not let us in yet: they must not come into the log as they are.
 * What the pipe has no room for is lost.
 */
static void
keep_standard_error(void)
{
	int			fds[2];

	if (pipe(fds) != 0 || !pg_set_noblock(fds[0]) || !pg_set_noblock(fds[1]) ||
		dup2(fds[1], STDERR_FILENO) < 0)
		_exit(1);
	close(fds[1]);
	standard_error = fds[0];
}

/*
 * Libpq reads as much as a server sends, in one message or before it tells of
 * any.  A message that does not fit into the memory allowed here ends the
 * connection; all others are counted by take_answer().
 */
static void
limit_memory(void)
{
#ifdef __linux__
	FILE	   *file = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;
	struct rlimit limit;

	if (file == NULL)
		return;
	/* the sixth number: what RLIMIT_DATA is compared with */
	if (fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) == 1 &&
		getrlimit(RLIMIT_DATA, &limit) == 0)
	{
		rlim_t		bytes = (rlim_t) pages * sysconf(_SC_PAGESIZE) +
		CHILD_MEMORY + (rlim_t) SNOWFLAKE_RESULT_SIZE * 8;

		if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > bytes)
		{
			limit.rlim_cur = bytes;
			(void) setrlimit(RLIMIT_DATA, &limit);
		}
	}
	fclose(file);
#endif
}

/*
 * Where the connection leads; all hosts, if there are several and none will do.
 */
static void
name_connection(PGconn *conn, char address[SNOWFLAKE_ADDRESS_SIZE])
{
	const char *host = PQhost(conn);
	const char *port = PQport(conn);
	PQconninfoOption *options =
	PQstatus(conn) == CONNECTION_OK ? NULL : PQconninfo(conn);

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
	{
		if (o->val == NULL || strchr(o->val, ',') == NULL)
			continue;
		if (strcmp(o->keyword, "host") == 0)
			host = o->val;
		else if (strcmp(o->keyword, "port") == 0)
			port = o->val;
	}
	snprintf(address, SNOWFLAKE_ADDRESS_SIZE, "%s:%s/postgres",
			 host != NULL ? host : "", port != NULL ? port : "");
	PQconninfoFree(options);
}

/* Whether the connection string, or the environment, bounds the time for a host. */
static bool
has_connect_timeout(PGconn *conn)
{
	PQconninfoOption *options = PQconninfo(conn);
	bool		has = false;

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
		has |= strcmp(o->keyword, "connect_timeout") == 0 && o->val != NULL;
	PQconninfoFree(options);
	return has;
}

/*
 * Connects.  A failure's text is verbose, so that it has the SQLSTATE, which
 * must be said before libpq waits for the server.
 */
static PGconn *
connect_verbosely(const char *const *keywords, const char *const *values)
{
	PGconn	   *conn = PQconnectStartParams(keywords, values, 1);
	PostgresPollingStatusType next = PGRES_POLLING_WRITING;

	(void) PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
	/* only what connects and waits by itself goes on to the next host */
	if (PQstatus(conn) != CONNECTION_BAD && has_connect_timeout(conn))
		PQreset(conn);
	else
		while (PQstatus(conn) != CONNECTION_BAD &&
			   (next == PGRES_POLLING_WRITING || next == PGRES_POLLING_READING))
		{
			struct pollfd socket = {
				.fd = PQsocket(conn),
				.events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT
			};

			while (poll(&socket, 1, -1) < 0 && errno == EINTR)
				;
			next = PQconnectPoll(conn);
		}
	return conn;
}

/* SIGTERM: the call is given up.  Soon after, the process is killed. */
static void
cancel_call(SIGNAL_ARGS)
{
	char		why[256];

	if (cancel != NULL)
		(void) PQcancel(cancel, why, sizeof(why));
	_exit(1);
}

static void
run_child(const char *registry, const SnowflakeQuery *query, int out)
{
	const char *keywords[] =
	{"dbname", "dbname", "application_name", "client_encoding", NULL};
	const char *values[] =
	{registry, "postgres", "snowflake lease worker", "UTF8", NULL};
	char		address[SNOWFLAKE_ADDRESS_SIZE];
	PQExpBufferData message;
	PGconn	   *conn;
	size_t		sent = 0;

	/* libpq's messages in English: what is not ASCII is not shown */
	(void) setlocale(LC_MESSAGES, "C");
	keep_standard_error();
	limit_memory();
	initPQExpBuffer(&message);
	conn = connect_verbosely(keywords, values);
	name_connection(conn, address);
	if (PQstatus(conn) == CONNECTION_OK)
	{
		(void) PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
		cancel = PQgetCancel(conn);
		run_transaction(conn, query, address, &message);
		cancel = NULL;
	}
	else
	{
		/*
		 * it is empty where the string could not be understood: an unknown
		 * service
		 */
		bool		has_host = PQhost(conn) != NULL && PQhost(conn)[0] != '\0';

		tell_libpq_failure(&message, conn, has_host ? address : NULL);
	}
	PQfinish(conn);
	while (sent < message.len)
	{
		ssize_t		n = write(out, message.data + sent, message.len - sent);

		if (n <= 0)
			_exit(1);
		sent += n;
	}
	_exit(0);
}

/*
 * In the helper.
 */
static void
kill_child(void)
{
	if (child == 0)
		return;
	kill(child, SIGKILL);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	child = 0;
}

static void
kill_child_at_exit(int code, Datum arg)
{
	kill_child();
}

/* Starts the child and returns the end of the pipe to read from. */
static int
start_child(const char *registry, const SnowflakeQuery *query)
{
	static bool registered = false;
	pid_t		parent = getpid();
	int			fds[2];

	if (!registered)
		before_shmem_exit(kill_child_at_exit, (Datum) 0);
	registered = true;
	if (pipe(fds) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create a pipe for the registry: %m")));
	child = fork();
	if (child == 0)
	{
#ifdef __linux__
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);			/* it is gone already */
#endif
		close(fds[0]);
		pqsignal(SIGHUP, PG_SIG_IGN);
		/* not pqsignal(), whose handlers are for the server's own processes */
		signal(SIGTERM, cancel_call);
		pqsignal(SIGINT, PG_SIG_DFL);
		pqsignal(SIGQUIT, PG_SIG_DFL);
		pqsignal(SIGUSR1, PG_SIG_IGN);
		pqsignal(SIGALRM, PG_SIG_IGN);
		/* a server that starts again must not find it in use */
		PGSharedMemoryDetach();
		run_child(registry, query, fds[1]);
	}
	close(fds[1]);
	if (child < 0)
	{
		child = 0;
		close(fds[0]);
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not fork a process for the registry: %m")));
	}
	return fds[0];
}

/*
 * All that the child tells; false if it does not end in time, or tells more
 * than a registry may.
 */
static bool
read_child(int fd, int64 deadline, StringInfo told)
{
	for (;;)
	{
		char		buffer[8192];
		int64		left = deadline - snowflake_monotonic_now();
		ssize_t		n;
		int			events;

		if (left <= 0 || told->len > SNOWFLAKE_RESULT_SIZE + 8 * TEXT_SIZE)
			return false;
		events = WaitLatchOrSocket(MyLatch,
								   WL_LATCH_SET | WL_SOCKET_READABLE |
								   WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
								   fd, (left + 999) / 1000,
								   snowflake_wait_event("SnowflakeRegistry"));
		if (events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (!(events & WL_SOCKET_READABLE))
			continue;
		n = read(fd, buffer, sizeof(buffer));
		if (n > 0)
			appendBinaryStringInfo(told, buffer, (int) n);
		else if (n == 0)
			return true;
		else if (errno != EINTR && errno != EAGAIN)
			return false;
	}
}

/*
 * The next string that was told, or NULL.  All that a registry says comes in
 * here, and becomes printable.
 */
static char *
next_string(StringInfo told)
{
	int32		length = (int32) pq_getmsgint(told, sizeof(length));
	char	   *text;

	if (length < 0)
		return NULL;
	text = palloc(length + 1);
	snowflake_copy_printable(text, pq_getmsgbytes(told, length), length,
							 length + 1);
	return text;
}

static void
cut_text(char *text, size_t size)
{
	if (text != NULL && strlen(text) >= size)
		text[size - 1] = '\0';
}

/*
 * Host and port that a connection string says, before there is a connection.
 */
void
snowflake_remote_address(const char *registry,
						 char address[SNOWFLAKE_ADDRESS_SIZE])
{
	const char *host = NULL,
			   *port = NULL,
			   *service = NULL;
	PQconninfoOption *options = PQconninfoParse(registry, NULL);
	char		text[SNOWFLAKE_ADDRESS_SIZE];

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
	{
		if (strcmp(o->keyword, "host") == 0 ||
			(strcmp(o->keyword, "hostaddr") == 0 && host == NULL))
			host = o->val != NULL ? o->val : host;
		else if (strcmp(o->keyword, "port") == 0)
			port = o->val;
		else if (strcmp(o->keyword, "service") == 0)
			service = o->val;
	}
	if (host == NULL && service != NULL)
		snprintf(text, sizeof(text), "service %s", service);
	else
		snprintf(text, sizeof(text), "%s:%s/postgres",
				 host != NULL ? host : "local",
				 port != NULL ? port : DEF_PGPORT_STR);
	snowflake_copy_printable(address, text, strlen(text),
							 SNOWFLAKE_ADDRESS_SIZE);
	PQconninfoFree(options);
}

static void
cannot_reach(SnowflakeResult *result, const char *why)
{
	char		message[256];

	snprintf(message, sizeof(message), "could not reach the registry %s",
			 result->address);
	snowflake_result_error(result, ERRCODE_LOCK_NOT_AVAILABLE, message,
						   why != NULL ? why : "It did not answer in time.",
						   REACH_HINT);
	result->problem.has_address = true;
}

/* The registry sent more than it may.  Nothing of it is used. */
static void
answer_too_long(SnowflakeResult *result)
{
	char		message[256];

	snprintf(message, sizeof(message),
			 "the answer of the registry is longer than %d kB",
			 SNOWFLAKE_RESULT_SIZE / 1024);
	snowflake_result_error(result, ERRCODE_LOCK_NOT_AVAILABLE, message,
						   psprintf("The registry is %s.", result->address),
						   SNOWFLAKE_ANSWER_HINT);
	result->problem.has_address = true;
}

/* An error of the registry's server. */
static void
server_error(SnowflakeResult *result, const char *sqlstate,
			 const char *message, const char *detail,
			 const char *hint)
{
	int			code =
	MAKE_SQLSTATE(sqlstate[0], sqlstate[1], sqlstate[2], sqlstate[3],
				  sqlstate[4]);

	if (hint == NULL &&
		(code == ERRCODE_INVALID_SCHEMA_NAME ||
		 code == ERRCODE_UNDEFINED_FUNCTION))
		hint = "Create the extension snowflake_registry in the registry's database postgres. If it was there before, see \"A lost registry\" in doc/operations.md.";
	if (hint == NULL && code == ERRCODE_INSUFFICIENT_PRIVILEGE)
		hint = GRANT_HINT;
	if (hint == NULL &&
		(code == ERRCODE_READ_ONLY_SQL_TRANSACTION ||
		 code == ERRCODE_FEATURE_NOT_SUPPORTED))
		hint = "If that server is a standby, name all of its cluster's hosts in snowflake.registry, with target_session_attrs=read-write.";
	snowflake_result_error(result, code, message,
						   detail != NULL ? detail :
						   psprintf("The registry is %s.", result->address),
						   hint);
	result->overloaded = is_overload(sqlstate);
	result->problem.has_address = detail == NULL;
	result->problem.from_registry = detail != NULL;
}

/* Understands what the child has told. */
static SnowflakeResultKind
read_told(StringInfo told, SnowflakeRow *row, SnowflakeResult *result)
{
	char	   *sqlstate,
			   *message,
			   *detail,
			   *hint,
			   *address;

	/* it tells all or nothing, unless it is killed */
	if (told->len == 0)
	{
		cannot_reach(result, "The process that was to call it has failed.");
		return SNOWFLAKE_RESULT_FAILED;
	}
	sqlstate = next_string(told);
	message = next_string(told);
	detail = next_string(told);
	hint = next_string(told);
	address = next_string(told);
	if (address != NULL)
		strlcpy(result->address, address, sizeof(result->address));
	if (sqlstate == NULL)
	{
		for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
			row->columns[i] = next_string(told);
		return SNOWFLAKE_RESULT_OK;
	}
	cut_text(detail, DETAIL_SIZE);
	cut_text(hint, HINT_SIZE);
	if (strcmp(sqlstate, TOO_LONG) == 0)
		answer_too_long(result);
	else if (strcmp(sqlstate, NOT_FROM_SERVER) == 0 ||
			 strcmp(sqlstate, NOT_NOW) == 0)
	{
		cannot_reach(result, detail);
		result->overloaded = strcmp(sqlstate, NOT_NOW) == 0;
	}
	else
		server_error(result, sqlstate, message, detail, hint);
	return SNOWFLAKE_RESULT_FAILED;
}

/* Runs one transaction; whatever fails there is in the result. */
SnowflakeResultKind
snowflake_remote_run(const char *registry, const SnowflakeQuery *query,
					 SnowflakeRow *row,
					 SnowflakeResult *result)
{
	int64		deadline = snowflake_monotonic_now() +
	(query->last ? LAST_TIMEOUT_US : TIMEOUT_US);
	StringInfoData told;
	volatile bool ended = false;
	int			fd;

	memset(row, 0, sizeof(*row));
	/* libpq's defaults would lead to some server, perhaps this one */
	if (registry[0] == '\0')
		elog(ERROR, "no registry to call"); /* GCOV_EXCL_LINE */
	snowflake_remote_address(registry, result->address);
	initStringInfo(&told);
	fd = start_child(registry, query);
	PG_TRY();
	{
		ended = read_child(fd, deadline, &told);
		if (!ended && !query->last)
		{
			kill(child, SIGTERM);
			(void) read_child(fd, snowflake_monotonic_now() + CANCEL_US, &told);
		}
	}
	PG_FINALLY();
	{
		close(fd);
		kill_child();
	}
	PG_END_TRY();
	if (ended)
		return read_told(&told, row, result);
	cannot_reach(result, NULL);
	result->overloaded = true;
	return SNOWFLAKE_RESULT_FAILED;
}
