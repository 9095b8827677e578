/*
 * remote.c
 *	  Transactions in the tables of another cluster, over libpq as
 *	  snowflake.registry says.
 *
 * Libpq runs in a child process that has let go of shared memory and does
 * nothing else: it may hang in the look-up of a host name for as long as it
 * likes.  Here, the result is waited for at the other end of a pipe, with a
 * deadline, interruptibly; then the child is killed.  A connection for each
 * transaction: there is one in tens of seconds, and nothing has to be kept
 * alive.
 *
 * No part of the connection string gets into a message but host, port and
 * database; passwords are in files.
 *
 * For the helper.
 */
#include "postgres.h"

#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

#include "libpq-fe.h"
#include "miscadmin.h"
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

#define REACH_HINT \
	"Check snowflake.registry, that server and the network."
#define GRANT_HINT \
	"Grant USAGE on the schema snowflake and EXECUTE on its functions acquire_lease, renew_lease, release_lease, list_ends, hand_over and list_leases."

/*
 * As local.c's options.  client_min_messages: a WARNING at commit tells that
 * the wait for a synchronous standby was cancelled.
 */
#define BEGIN_TEXT \
	"BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE, NOT DEFERRABLE;" \
	"SET LOCAL search_path = '';" \
	"SET LOCAL client_min_messages = warning;" \
	"SET LOCAL lock_timeout = '4s';" \
	"SET LOCAL statement_timeout = '4s';" \
	"SET LOCAL idle_in_transaction_session_timeout = '2s';"
#define DURABLE_TEXT \
	"SELECT pg_catalog.set_config('synchronous_commit', " \
	"CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('on', 'remote_apply') " \
	"THEN pg_catalog.current_setting('synchronous_commit') ELSE 'on' END, true)"
#define LOCAL_TEXT \
	"SET LOCAL synchronous_commit = local"

/*
 * Asked with them, so that the log of a registry where the extension is
 * missing has no error for each call.
 */
#define EXISTS_TEXT \
	";SELECT pg_catalog.to_regnamespace('snowflake') IS NOT NULL"

/* The child that runs; 0: none. */
static pid_t child = 0;

/*
 * In the child.  Nothing here allocates in memory contexts, raises an error or
 * touches shared memory.  What it tells is a list of strings, each with its
 * length before it, -1: NULL.
 */
static void
tell(PQExpBuffer message, const char *string)
{
	int32		length = string == NULL ? -1 : (int32) strlen(string);

	appendBinaryPQExpBuffer(message, (const char *) &length, sizeof(length));
	if (string != NULL)
		appendBinaryPQExpBuffer(message, string, length);
}

/*
 * The first five: SQLSTATE (empty: not one of the server's; NULL: fine),
 * message, detail, hint, address.
 */
static void
tell_failure(PQExpBuffer message, const char *sqlstate, const char *text,
			 const char *detail,
			 const char *hint, const char *address)
{
	resetPQExpBuffer(message);
	tell(message, sqlstate);
	tell(message, text);
	tell(message, detail);
	tell(message, hint);
	tell(message, address);
}

static void
note_notice(void *arg, const PGresult *result)
{
	const char *severity =
	PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	if (severity != NULL && strcmp(severity, "WARNING") == 0)
		*(bool *) arg = true;
}

/* Whether a result is good; if not, tells why. */
static bool
is_good(PQExpBuffer message, PGconn *conn, const PGresult *result,
		const char *address)
{
	ExecStatusType status = PQresultStatus(result);

	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return true;
	if (result == NULL || PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL)
		tell_failure(message, "", NULL, PQerrorMessage(conn), NULL, address);
	else
		tell_failure(message, PQresultErrorField(result, PG_DIAG_SQLSTATE),
					 PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY),
					 PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL),
					 PQresultErrorField(result, PG_DIAG_MESSAGE_HINT), address);
	return false;
}

/* One transaction on an open connection. */
static void
run_transaction(PGconn *conn, const SnowflakeQuery *query, const char *address,
				PQExpBuffer message)
{
	bool		warned = false;
	PGresult   *result;

	PQsetNoticeReceiver(conn, note_notice, &warned);
	result = PQexec(conn,
					query->local_commit ? BEGIN_TEXT LOCAL_TEXT EXISTS_TEXT :
					BEGIN_TEXT DURABLE_TEXT EXISTS_TEXT);
	if (!is_good(message, conn, result, address))
		return;
	if (strcmp(PQgetvalue(result, 0, 0), "t") != 0)
	{
		tell_failure(message, "3F000", "schema \"snowflake\" does not exist",
					 NULL, NULL, address);
		return;
	}
	result = PQexecParams(conn, query->text, query->num_parameters, NULL,
						  query->parameters, NULL, NULL, 0);
	if (!is_good(message, conn, result, address))
		return;
	tell_failure(message, NULL, NULL, NULL, NULL, address);
	for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
		tell(message, PQntuples(result) != 1 || i >= PQnfields(result) ||
			 PQgetisnull(result, 0, i) ?
			 NULL : PQgetvalue(result, 0, i));
	warned = false;
	result = PQexec(conn, "COMMIT");
	if (!is_good(message, conn, result, address))
		return;
	if (warned || strcmp(PQcmdStatus(result), "COMMIT") != 0)
		tell_failure(message, "55P03",
					 "a lease was not replicated to a synchronous standby of the registry",
					 "The wait for it was cancelled.",
					 "No id is issued under that lease; see to the standby.",
					 address);
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

	initPQExpBuffer(&message);
	conn = PQconnectdbParams(keywords, values, 1);
	snprintf(address, sizeof(address), "%s:%s/%s",
			 PQhost(conn) != NULL ? PQhost(conn) : "",
			 PQport(conn) != NULL ? PQport(conn) : "", "postgres");
	if (PQstatus(conn) == CONNECTION_OK)
		run_transaction(conn, query, address, &message);
	else
	{
		/*
		 * it is empty where the string could not be understood: an unknown
		 * service
		 */
		bool		has_host = PQhost(conn) != NULL && PQhost(conn)[0] != '\0';

		tell_failure(&message, "", NULL, PQerrorMessage(conn), NULL,
					 has_host ? address : NULL);
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
		pqsignal(SIGTERM, PG_SIG_DFL);
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

/* All that the child tells; false if it does not end in time. */
static bool
read_child(int fd, int64 deadline, StringInfo told)
{
	for (;;)
	{
		char		buffer[8192];
		int64		left = deadline - snowflake_monotonic_now();
		ssize_t		n;
		int			events;

		if (left <= 0)
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

/* The next string that was told; false if there is none. */
static bool
next_string(StringInfo told, char **text)
{
	int32		length;

	if (told->len - told->cursor < (int) sizeof(length))
		return false;
	memcpy(&length, told->data + told->cursor, sizeof(length));
	told->cursor += sizeof(length);
	*text = NULL;
	if (length < 0)
		return true;
	if (told->len - told->cursor < length)
		return false;
	*text = pnstrdup(told->data + told->cursor, length);
	told->cursor += length;
	return true;
}

/* The lines of libpq's message, as one; it ends with a newline. */
static char *
one_line(char *text)
{
	for (char *p = text; p != NULL && *p != '\0'; p++)
		if (*p == '\n' || *p == '\t')
			*p = p[1] == '\0' ? '\0' : ' ';
	return text;
}

/*
 * Host and port that a connection string says, before there is a connection.
 */
static void
name_address(const char *registry, SnowflakeResult *result)
{
	const char *host = NULL,
			   *port = NULL,
			   *service = NULL;
	PQconninfoOption *options = PQconninfoParse(registry, NULL);

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
		snprintf(result->address, sizeof(result->address), "service %s", service);
	else
		snprintf(result->address, sizeof(result->address), "%s:%s/postgres",
				 host != NULL ? host : "local",
				 port != NULL ? port : DEF_PGPORT_STR);
	PQconninfoFree(options);
}

static void
cannot_reach(SnowflakeResult *result, char *why)
{
	char		message[256];

	snprintf(message, sizeof(message), "could not reach the registry %s",
			 result->address);
	snowflake_result_error(result, ERRCODE_LOCK_NOT_AVAILABLE, message,
						   why != NULL ? one_line(why) :
						   "It did not answer in time.", REACH_HINT);
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
		hint = "Create the extension in the registry's database postgres, of a version close to this server's.";
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
	result->problem.has_address = detail == NULL;
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

	if (!next_string(told, &sqlstate) || !next_string(told, &message) ||
		!next_string(told, &detail) ||
		!next_string(told, &hint) || !next_string(told, &address))
	{
		cannot_reach(result,
					 pstrdup("The process that was to call it has failed."));
		return SNOWFLAKE_RESULT_FAILED;
	}
	if (address != NULL)
		strlcpy(result->address, address, sizeof(result->address));
	if (sqlstate == NULL)
	{
		for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
			if (!next_string(told, &row->columns[i]))
				row->columns[i] = NULL;
		return SNOWFLAKE_RESULT_OK;
	}
	if (strlen(sqlstate) != 5)
		cannot_reach(result, detail);
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
	name_address(registry, result);
	initStringInfo(&told);
	fd = start_child(registry, query);
	PG_TRY();
	{
		ended = read_child(fd, deadline, &told);
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
	return SNOWFLAKE_RESULT_FAILED;
}
