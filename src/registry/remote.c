/*
 * remote.c
 *	  Transactions in the tables of another cluster, over libpq as
 *	  snowflake.registry says.
 *
 * A connection for each transaction: there is one in tens of seconds, and
 * nothing has to be kept alive.  Libpq runs in a child process for two reasons.
 * The look-up of a host name cannot be interrupted: a server process that hangs
 * there holds up DROP DATABASE and the stop of the server.  And libpq keeps in
 * memory whatever a server sends: the child has a limit, with which a server
 * process could not go on.
 *
 * The child is a fork, not a program: a program needs the same limit, deadline
 * and pipe, and besides a place that PGXS and the packages install it to, where
 * the server finds and trusts it.  What a fork inherits it gives up before
 * anything else: signal handlers, exit callbacks, shared memory.  It raises no
 * error, allocates in no memory context and ends with _exit().  When its time
 * is over, also if the helper is gone, it cancels what it has begun, so that the
 * registry has its session back, and ends.
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
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libpq-fe.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "pqexpbuffer.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pg_shmem.h"
#include "utils/wait_event.h"

#include "clock.h"
#include "compat.h"
#include "registry/protocol.h"

/* For all of a transaction, the connection included. */
#define TIMEOUT_S			5
/* for each address of several hosts, so that a call comes to the next one */
#define HOST_TIMEOUT_S		"2"
/* While the server stops. */
#define LAST_TIMEOUT_US		(800 * INT64CONST(1000))
/* For the child to cancel a call that is given up. */
#define CANCEL_US			(500 * INT64CONST(1000))

#define REACH_HINT \
	"Check snowflake.registry, that server and the network. Ids go on by themselves when it answers again."
#define GRANT_HINT \
	"Grant USAGE on the schema snowflake and EXECUTE on its functions acquire_lease, renew_lease and release_lease. If they were granted before, the extension was dropped: see \"A lost registry\" in doc/operations.md."

/*
 * As local.c's options.  That the commit is durable is the registry's, but for a
 * release.  client_min_messages: a WARNING at commit tells that
 * the wait for a synchronous standby was cancelled.
 * lock_timeout comes before statement_timeout, which would not say that it
 * was a lock.
 */
#define BEGIN_TEXT \
	"BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE, NOT DEFERRABLE;"
#define LOCAL_TEXT \
	"SET LOCAL synchronous_commit = local;"
/* Since 17; a role's own would end the session before those, which say why. */
#define TRANSACTION_TIMEOUT_TEXT \
	"SET LOCAL transaction_timeout = 0;"
/*
 * The rest in one statement: six cost that server more than one.  The first
 * column: so that a registry without the extension does not log an error each
 * time.
 */
#define SETTINGS_TEXT \
	"SELECT pg_catalog.to_regnamespace('snowflake') IS NOT NULL, " \
	"pg_catalog.set_config('search_path', '', true), " \
	"pg_catalog.set_config('client_min_messages', 'warning', true), " \
	"pg_catalog.set_config('lock_timeout', '3500ms', true), " \
	"pg_catalog.set_config('statement_timeout', '4s', true), " \
	"pg_catalog.set_config('idle_in_transaction_session_timeout', '2s', true)"
#define SETTINGS_COLUMNS	6

/*
 * The child may have so much memory more than it begins with, and eight times
 * the answer that it may read: libpq has whole messages in memory, and a copy.
 */
#define CHILD_MEMORY		(32 * 1024 * 1024)

/* So much is kept; with a message that is at most 1 kB. */
#define DETAIL_SIZE			512
#define HINT_SIZE			256

typedef struct Child
{
	pid_t		pid;
	int			fd;				/* to read from */
} Child;

/* What the child tells, in one piece: all texts are printable. */
typedef struct Told
{
	SnowflakeResultKind kind;	/* OK or FAILED */
	SnowflakeResult result;		/* the address; of FAILED, all of it */
	int			columns[SNOWFLAKE_QUERY_COLUMNS];	/* of OK: where in values
													 * each one begins; -1:
													 * null */
	Size		size;			/* of the values */
	char		values[FLEXIBLE_ARRAY_MEMBER];
} Told;

/*
 * In the child
 */
static Told *told = NULL;
static int	told_fd = -1;		/* to write to */
static PGconn *conn = NULL;

/* How to cancel what the connection does; NULL: there is none. */
static PGcancel *volatile cancel = NULL;

/* A warning has said that what was committed last may be not replicated. */
static bool wait_cancelled = false;

/* What libpq has written on standard error, whose buffer it is. */
static char said[1024];

/* These end the child. */
pg_noreturn static void tell_and_exit(void);
pg_noreturn static void tell_libpq_failure(void);
pg_noreturn static void tell_error(const char *sqlstate, const char *message,
								   const char *detail, const char *hint);
pg_noreturn static void tell_result_failure(const PGresult *result);

static void
cannot_reach(SnowflakeResult *result, const char *why, bool overloaded)
{
	char		message[256];

	snprintf(message, sizeof(message), "could not reach the registry %s",
			 result->address);
	snowflake_result_error(result, ERRCODE_LOCK_NOT_AVAILABLE, message, why,
						   REACH_HINT);
	result->problem.has_address = true;
	result->overloaded = overloaded;
}

/* Tells what the call has come to; who has told all is killed, so that comes last. */
static void
tell_and_exit(void)
{
	const char *next = (const char *) told;
	const char *end = told->values + told->size;

	cancel = NULL;
	PQfinish(conn);
	while (next < end)
	{
		ssize_t		n = write(told_fd, next, end - next);

		if (n <= 0)
			_exit(1);
		next += n;
	}
	_exit(0);
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
	char		code[6];
	char	   *p = text;

	sqlstate[0] = '\0';
	while ((p = strstr(p, ":  ")) != NULL)
	{
		p += 3;
		strlcpy(code, p, sizeof(code));
		if (!snowflake_is_sqlstate(code) || strncmp(p + 5, ": ", 2) != 0)
			continue;
		strcpy(sqlstate, code);
		memmove(p, p + 7, strlen(p + 7) + 1);
	}
	while ((p = strstr(text, "\nLOCATION:  ")) != NULL)
	{
		const char *end = p + 1 + strcspn(p + 1, "\n");

		memmove(p, end, strlen(end) + 1);
	}
}

/*
 * What libpq says, in one line, and why there is no result.  Its words decide
 * nothing but whether it was too slow, for which it has no other sign.
 */
static void
tell_libpq_failure(void)
{
	PQExpBufferData all;
	char		text[DETAIL_SIZE] = "... ";
	char		sqlstate[6];
	bool		overloaded;

	initPQExpBuffer(&all);
	/* first why it does not use a password file, for example */
	appendPQExpBuffer(&all, "%s%s", said, PQerrorMessage(conn));
	take_sqlstate(all.data, sqlstate);
	/* a host did not answer in time */
	overloaded = is_overload(sqlstate) ||
		strstr(all.data, "timeout expired") != NULL;
	all.len = strlen(all.data);
	/* with several hosts, the last reason comes last */
	if (all.len < sizeof(text))
		strlcpy(text, all.data, sizeof(text));
	else
		strlcpy(text + 4, all.data + all.len - (sizeof(text) - 5), sizeof(text) - 4);
	termPQExpBuffer(&all);
	/* it ends with a newline */
	for (char *p = text; *p != '\0'; p++)
		if (*p == '\n' || *p == '\t')
			*p = p[1] == '\0' ? '\0' : ' ';
	cannot_reach(&told->result, text[0] != '\0' ? text :
				 "It sent something else than the result of a statement.",
				 overloaded);
	tell_and_exit();
}

/* An error of the registry's server, or in its place. */
static void
tell_error(const char *sqlstate, const char *message, const char *detail,
		   const char *hint)
{
	int			code =
	MAKE_SQLSTATE(sqlstate[0], sqlstate[1], sqlstate[2], sqlstate[3],
				  sqlstate[4]);
	char		detail_text[DETAIL_SIZE];
	char		hint_text[HINT_SIZE];

	if (detail != NULL)
		strlcpy(detail_text, detail, DETAIL_SIZE);
	else
		snprintf(detail_text, DETAIL_SIZE, "The registry is %s.", told->result.address);
	if (hint != NULL)
	{
		strlcpy(hint_text, hint, HINT_SIZE);
		hint = hint_text;
	}
	else if (code == ERRCODE_INVALID_SCHEMA_NAME || code == ERRCODE_UNDEFINED_FUNCTION)
		hint = "Create the extension snowflake_registry in the registry's database postgres. If it was there before, see \"A lost registry\" in doc/operations.md.";
	else if (code == ERRCODE_INSUFFICIENT_PRIVILEGE)
		hint = GRANT_HINT;
	else if (code == ERRCODE_READ_ONLY_SQL_TRANSACTION || code == ERRCODE_FEATURE_NOT_SUPPORTED)
		hint = "If that server is a standby, name all of its cluster's hosts in snowflake.registry, with target_session_attrs=read-write.";
	snowflake_result_error(&told->result, code, message, detail_text, hint);
	told->result.problem.has_address = detail == NULL;
	told->result.problem.from_registry = detail != NULL;
	tell_and_exit();
}

/* A result that is none. */
static void
tell_result_failure(const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	if (sqlstate == NULL && message == NULL)
		tell_libpq_failure();
	/* up to the end, or that server logs that it could not send it */
	PQclear(PQgetResult(conn));
	if (sqlstate == NULL || !snowflake_is_sqlstate(sqlstate))
		sqlstate = "08P01";		/* protocol violation */
	told->result.overloaded = is_overload(sqlstate);
	tell_error(sqlstate, message,
			   PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL),
			   PQresultErrorField(result, PG_DIAG_MESSAGE_HINT));
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
		wait_cancelled = true;
}

/*
 * The row of the last statement that was sent, NULL if it has not one, and its
 * tag.  Row by row, so that no second one need be kept.
 */
static PGresult *
take_row(char tag[32])
{
	PGresult   *row = NULL;
	PGresult   *result;
	int64		size = 0;
	int			rows = 0;

	tag[0] = '\0';
	(void) PQsetSingleRowMode(conn);
	while ((result = PQgetResult(conn)) != NULL)
	{
		ExecStatusType status = PQresultStatus(result);

		if (status != PGRES_SINGLE_TUPLE && status != PGRES_TUPLES_OK &&
			status != PGRES_COMMAND_OK)
			tell_result_failure(result);
		if (status == PGRES_SINGLE_TUPLE)
		{
			for (int i = 0; i < PQnfields(result); i++)
				size += PQgetlength(result, 0, i);
			if (size > SNOWFLAKE_RESULT_SIZE)
			{
				char		message[64];

				snprintf(message, sizeof(message),
						 "the answer of the registry is longer than %d kB",
						 SNOWFLAKE_RESULT_SIZE / 1024);
				tell_error("55P03", message, NULL, SNOWFLAKE_ANSWER_HINT);
			}
			PQclear(row);
			row = result;
			rows++;
			continue;
		}
		/* the end of a statement */
		strlcpy(tag, PQcmdStatus(result), 32);
		PQclear(result);
		if (rows != 1)
		{
			PQclear(row);
			row = NULL;
		}
		rows = 0;
	}
	if (tag[0] == '\0')
		tell_libpq_failure();
	return row;
}

/* One transaction on the open connection. */
static void
run_transaction(const SnowflakeQuery *query)
{
	char		begin[1024];
	char		tag[32];
	PGresult   *row;

	snprintf(begin, sizeof(begin), "%s%s%s%s", BEGIN_TEXT,
			 PQserverVersion(conn) >= 170000 ? TRANSACTION_TIMEOUT_TEXT : "",
			 query->local_commit ? LOCAL_TEXT : "", SETTINGS_TEXT);
	(void) PQsendQuery(conn, begin);
	row = take_row(tag);
	if (row == NULL || PQnfields(row) != SETTINGS_COLUMNS ||
		strcmp(PQgetvalue(row, 0, 0), "t") != 0)
		tell_error("3F000", "schema \"snowflake\" does not exist", NULL, NULL);
	PQclear(row);
	(void) PQsendQueryParams(conn, query->text, 1, NULL, &query->call, NULL,
							 NULL, 0);
	row = take_row(tag);
	for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
	{
		char	   *value = told->values + told->size;

		told->columns[i] = -1;
		if (i >= PQnfields(row) || PQgetisnull(row, 0, i))
			continue;
		told->columns[i] = (int) told->size;
		snowflake_copy_printable(value, PQgetvalue(row, 0, i),
								 PQgetlength(row, 0, i),
								 PQgetlength(row, 0, i) + 1);
		told->size += strlen(value) + 1;
	}
	PQclear(row);
	wait_cancelled = false;
	(void) PQsendQuery(conn, "COMMIT");
	PQclear(take_row(tag));
	if (wait_cancelled || strcmp(tag, "COMMIT") != 0)
	{
		told->result.overloaded = true;
		tell_error("55P03", "a lease was not replicated to a synchronous standby of the registry",
				   "The wait for it was cancelled.",
				   "No id is issued under that lease. Check the standby.");
	}
	told->kind = SNOWFLAKE_RESULT_OK;
	tell_and_exit();
}

/*
 * Libpq reads as much as a server sends, in one message or before it tells of
 * any.  A message that does not fit into the memory allowed here ends the
 * connection; all others are counted by take_row().
 */
static void
limit_memory(void)
{
	FILE	   *file = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	/* the sixth number: what RLIMIT_DATA is compared with */
	if (file == NULL)
		return;
	if (fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) == 1)
	{
		rlim_t		bytes = (rlim_t) pages * sysconf(_SC_PAGESIZE) +
		CHILD_MEMORY + (rlim_t) SNOWFLAKE_RESULT_SIZE * 8;
		struct rlimit limit = {.rlim_cur = bytes,.rlim_max = bytes};

		/* fails if the server itself may have less */
		(void) setrlimit(RLIMIT_DATA, &limit);
	}
	fclose(file);
}

/* Of several hosts one that does not answer must not keep a call from the next. */
static bool
is_by_host(const PQconninfoOption *option)
{
	if (option->val == NULL)
		return false;
	if (strcmp(option->keyword, "connect_timeout") == 0)
		return strcmp(option->val, HOST_TIMEOUT_S) != 0;
	return strncmp(option->keyword, "host", 4) == 0 &&
		strchr(option->val, ',') != NULL;
}

/*
 * Connects.  A failure's text is verbose, so that it has the SQLSTATE, which
 * must be said before libpq waits for the server.
 */
static void
connect_verbosely(const char *registry)
{
	const char *keywords[] =
	{"connect_timeout", "dbname", "dbname", "application_name", "client_encoding", NULL};
	const char *values[] =
	{HOST_TIMEOUT_S, registry, "postgres", "snowflake lease worker", "UTF8", NULL};
	PostgresPollingStatusType next = PGRES_POLLING_WRITING;
	PQconninfoOption *options;
	bool		by_host = false;

	conn = PQconnectStartParams(keywords, values, 1);
	(void) PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
	(void) PQsetNoticeReceiver(conn, note_notice, NULL);
	/* only what waits by itself obeys connect_timeout, host by host */
	options = PQconninfo(conn);
	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
		by_host |= is_by_host(o);
	PQconninfoFree(options);
	if (by_host && PQstatus(conn) != CONNECTION_BAD)
		PQreset(conn);
	while (PQstatus(conn) != CONNECTION_BAD && PQstatus(conn) != CONNECTION_OK)
	{
		struct pollfd socket = {
			.fd = PQsocket(conn),
			.events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT
		};

		(void) poll(&socket, 1, -1);
		next = PQconnectPoll(conn);
	}
	(void) PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
}

static void
run_child(const char *registry, const SnowflakeQuery *query)
{
	const struct rlimit no_core = {0};
	const char *host,
			   *port;
	char		address[SNOWFLAKE_ADDRESS_SIZE];

	/* libpq's messages in English: what is not ASCII is not shown */
	(void) setlocale(LC_MESSAGES, "C");
	/* none of them comes into the log as it is, nor what has no room here */
	if (freopen("/dev/null", "w", stderr) != NULL)
		(void) setvbuf(stderr, said, _IOFBF, sizeof(said) - 1);
	/* a core would have the password */
	(void) setrlimit(RLIMIT_CORE, &no_core);
	limit_memory();
	connect_verbosely(registry);
	host = PQhost(conn);
	port = PQport(conn);

	/*
	 * where the connection leads: to no host if the string could not be
	 * understood, to all of several if none will do
	 */
	if (host != NULL && host[0] != '\0' && port != NULL &&
		(PQstatus(conn) == CONNECTION_OK || strchr(told->result.address, ',') == NULL))
	{
		snprintf(address, sizeof(address), "%s:%s/postgres", host, port);
		snowflake_copy_printable(told->result.address, address, strlen(address),
								 SNOWFLAKE_ADDRESS_SIZE);
	}
	if (PQstatus(conn) != CONNECTION_OK)
		tell_libpq_failure();
	cancel = PQgetCancel(conn);
	run_transaction(query);
}

/* The time is over, or the server stops.  What hangs here, too, is killed. */
static void
give_up(int number)
{
	char		why[256];

	(void) alarm(1);
	if (cancel != NULL)
		(void) PQcancel(cancel, why, sizeof(why));
	_exit(1);
}

/*
 * In the helper
 */

static void
start_child(Child *child, const char *registry, const SnowflakeQuery *query)
{
	int			fds[2];
	int			fork_errno;
	sigset_t	all,
				before;

	if (pipe(fds) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create a pipe for the registry: %m")));
	sigfillset(&all);
	(void) sigprocmask(SIG_SETMASK, &all, &before);
	child->fd = fds[0];
	child->pid = fork();
	if (child->pid == 0)
	{
		/* the second time, SIGALRM kills */
		struct sigaction action = {.sa_handler = give_up,.sa_flags = SA_RESETHAND | SA_NODEFER};

		for (int i = 1; i < NSIG; i++)
			(void) signal(i, i == SIGHUP || i == SIGPIPE ? SIG_IGN : SIG_DFL);
		(void) sigaction(SIGALRM, &action, NULL);
		(void) sigaction(SIGINT, &action, NULL);
		(void) sigaction(SIGTERM, &action, NULL);
		(void) sigaction(SIGQUIT, &action, NULL);
		on_exit_reset();
		/* a server that starts again must not find it in use */
		PGSharedMemoryDetach();
		(void) sigprocmask(SIG_SETMASK, &before, NULL);
		(void) alarm(TIMEOUT_S);
		close(fds[0]);
		told_fd = fds[1];
		run_child(registry, query);
	}
	fork_errno = errno;
	(void) sigprocmask(SIG_SETMASK, &before, NULL);
	close(fds[1]);
	if (child->pid < 0)
	{
		close(fds[0]);
		errno = fork_errno;
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not fork a process for the registry: %m")));
	}
}

/*
 * cancel_ms: for so long it may cancel what it has begun.  One in a system call
 * that does not end, as of a file server that is gone, is left to init after a
 * second.
 */
static void
stop_child(Child *child, int cancel_ms)
{
	close(child->fd);
	/* SIGTERM may have come to both of us, and would kill it the second time */
	kill(child->pid, cancel_ms > 0 ? SIGQUIT : SIGKILL);
	for (int ms = 0; waitpid(child->pid, NULL, WNOHANG) == 0 && ms < cancel_ms + 1000; ms++)
	{
		if (ms == cancel_ms)
			kill(child->pid, SIGKILL);
		pg_usleep(1000);
	}
}

/* The helper is told to end, or has an error. */
static void
break_off(int code, Datum arg)
{
	stop_child((Child *) DatumGetPointer(arg), (int) (CANCEL_US / 1000));
}

/*
 * Reads up to the end, or the deadline; returns how much.  When the server is
 * stopping, only the last call of all goes on.
 */
static Size
read_child(int fd, bool last, int64 deadline, char *to, Size size)
{
	Size		length = 0;
	int64		left;

	while ((left = deadline - snowflake_monotonic_now()) > 0)
	{
		int			events =
		WaitLatchOrSocket(MyLatch,
						  WL_LATCH_SET | WL_SOCKET_READABLE |
						  WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						  fd, (left + 999) / 1000,
						  snowflake_wait_event("SnowflakeRegistry"));

		if (events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending && !last)
			ereport(ERROR,
					(errcode(ERRCODE_QUERY_CANCELED),
					 errmsg("a call of the registry was interrupted")));
		if (events & WL_SOCKET_READABLE)
		{
			ssize_t		n = read(fd, to + length, size - length);

			if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
				break;
			length += Max(n, 0);
		}
	}
	return length;
}

/*
 * Host and port that a connection string says, before there is a connection.
 */
void
snowflake_remote_address(const char *registry,
						 char address[SNOWFLAKE_ADDRESS_SIZE])
{
	const char *host = NULL,
			   *port = DEF_PGPORT_STR,
			   *service = NULL;
	PQconninfoOption *options = PQconninfoParse(registry, NULL);
	char		text[SNOWFLAKE_ADDRESS_SIZE];

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
	{
		if (o->val == NULL)
			continue;
		if (strcmp(o->keyword, "host") == 0 ||
			(strcmp(o->keyword, "hostaddr") == 0 && host == NULL))
			host = o->val;
		else if (strcmp(o->keyword, "port") == 0)
			port = o->val;
		else if (strcmp(o->keyword, "service") == 0)
			service = o->val;
	}
	if (host == NULL && service != NULL)
		snprintf(text, sizeof(text), "service %s", service);
	else
		snprintf(text, sizeof(text), "%s:%s/postgres",
				 host != NULL ? host : "local", port);
	snowflake_copy_printable(address, text, strlen(text),
							 SNOWFLAKE_ADDRESS_SIZE);
	PQconninfoFree(options);
}

/* Runs one transaction; whatever fails there is in the result. */
SnowflakeResultKind
snowflake_remote_run(const char *registry, const SnowflakeQuery *query,
					 SnowflakeRow *row,
					 SnowflakeResult *result)
{
	int64		late = snowflake_monotonic_now() +
	(query->last ? LAST_TIMEOUT_US : TIMEOUT_S * USECS_PER_SEC);
	Size		size = offsetof(Told, values) + SNOWFLAKE_RESULT_SIZE +
	SNOWFLAKE_QUERY_COLUMNS;
	Size		length;
	Child		child;

	memset(row, 0, sizeof(*row));
	snowflake_remote_address(registry, result->address);
	told = palloc0(size);
	told->result = *result;
	start_child(&child, registry, query);
	PG_ENSURE_ERROR_CLEANUP(break_off, PointerGetDatum(&child));
	{
		length = read_child(child.fd, query->last,
							query->last ? late : late + CANCEL_US,
							(char *) told, size);
	}
	PG_END_ENSURE_ERROR_CLEANUP(break_off, PointerGetDatum(&child));
	stop_child(&child, 0);

	/* it tells all or nothing, unless it is killed */
	if (length != offsetof(Told, values) + told->size)
	{
		bool		is_late = snowflake_monotonic_now() >= late;

		cannot_reach(result, is_late ? "It did not answer in time." :
					 "The process that was to call it has failed.", is_late);
		return SNOWFLAKE_RESULT_FAILED;
	}
	*result = told->result;
	if (told->kind == SNOWFLAKE_RESULT_OK)
		for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
			if (told->columns[i] >= 0)
				row->columns[i] = told->values + told->columns[i];
	return told->kind;
}
