/*
 * registry_remote.c
 *	  Calls to the table of another cluster, over libpq as snowflake.registry says.
 *
 * A connection per call: there is one call in tens of seconds, and nothing has
 * to be kept alive.  Every wait has an end and can be interrupted (but for the
 * look-up of a host name, which libpq leaves to the system).
 *
 * No part of the connection string gets into a message but host, port and
 * database; passwords are in files.
 */
#include "postgres.h"

#include "libpq-fe.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "clock.h"
#include "compat.h"
#include "registry.h"

/* For all of a call, the connection included. */
#define CALL_TIMEOUT_US			(5 * USECS_PER_SEC)
/* While the server stops. */
#define LAST_CALL_TIMEOUT_US	(1 * USECS_PER_SEC)

/*
 * As registry_local.c's options.  client_min_messages: a WARNING at commit tells
 * that the wait for a synchronous standby was cancelled.
 */
#define BEGIN_TEXT \
	"BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE, NOT DEFERRABLE;" \
	"SET LOCAL search_path = '';" \
	"SET LOCAL client_min_messages = warning;" \
	"SET LOCAL lock_timeout = '4s';" \
	"SET LOCAL statement_timeout = '4s';" \
	"SET LOCAL idle_in_transaction_session_timeout = '2s';" \
	"SELECT pg_catalog.set_config('synchronous_commit', " \
	"CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('on', 'remote_apply') " \
	"THEN pg_catalog.current_setting('synchronous_commit') ELSE 'on' END, true)"

typedef struct Connection
{
	PGconn	   *conn;
	int64		deadline;		/* by the monotonic clock */
	bool		warned;
} Connection;

static void
note_notice(void *arg, const PGresult *result)
{
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	if (severity != NULL && strcmp(severity, "WARNING") == 0)
		((Connection *) arg)->warned = true;
}

/* Waits for the socket; false when the deadline is over. */
static bool
wait_for_socket(Connection *c, int events)
{
	int64		left = c->deadline - snowflake_monotonic_now();

	if (left <= 0)
		return false;
	(void) WaitLatchOrSocket(MyLatch, events | WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 PQsocket(c->conn), (left + 999) / 1000,
							 snowflake_wait_event("SnowflakeRegistry"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return true;
}

/* The first lines of libpq's message, as one; it ends with a newline. */
static void
copy_message(char *to, size_t size, const char *message)
{
	strlcpy(to, message, size);
	for (char *p = to; *p != '\0'; p++)
		if (*p == '\n' || *p == '\t')
			*p = p[1] == '\0' ? '\0' : ' ';
}

static void
cannot_reach(SnowflakeAnswer *answer, const char *why)
{
	char		message[256];
	char		detail[256];

	snprintf(message, sizeof(message), "could not reach the registry %s", answer->place);
	copy_message(detail, sizeof(detail), why);
	snowflake_answer_error(answer, ERRCODE_LOCK_NOT_AVAILABLE, message, detail,
						   SNOWFLAKE_REACH_HINT);
}

/* Host, port and database that a connection string says, before or without a connection. */
static void
name_place(const SnowflakeCall *call, SnowflakeAnswer *answer)
{
	const char *host = NULL,
			   *port = NULL,
			   *dbname = NULL,
			   *service = NULL;
	PQconninfoOption *options = PQconninfoParse(call->registry, NULL);

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
	{
		if (strcmp(o->keyword, "host") == 0 || (strcmp(o->keyword, "hostaddr") == 0 && host == NULL))
			host = o->val != NULL ? o->val : host;
		else if (strcmp(o->keyword, "port") == 0)
			port = o->val;
		else if (strcmp(o->keyword, "dbname") == 0)
			dbname = o->val;
		else if (strcmp(o->keyword, "service") == 0)
			service = o->val;
	}
	if (host == NULL && service != NULL)
		snprintf(answer->place, sizeof(answer->place), "service %s", service);
	else
		snprintf(answer->place, sizeof(answer->place), "%s:%s/%s", host != NULL ? host : "local",
				 port != NULL ? port : DEF_PGPORT_STR, dbname != NULL ? dbname : "");
	PQconninfoFree(options);
}

/* With a peer at hand, no name is looked up. */
static bool
open_connection(Connection *c, const SnowflakeCall *call, SnowflakeAnswer *answer)
{
	const SnowflakePeer *peer = &call->peer;
	const char *keywords[] = {"dbname", "application_name", "client_encoding",
		peer->host[0] != '\0' ? "host" : NULL, "port",
	peer->address[0] != '\0' ? "hostaddr" : NULL, NULL};
	const char *values[] = {call->registry, "snowflake lease worker", "UTF8",
	peer->host, peer->port, peer->address, NULL};
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;

	name_place(call, answer);
	c->conn = PQconnectStartParams(keywords, values, 1);
	if (c->conn == NULL)
		elog(ERROR, "out of memory");	/* GCOV_EXCL_LINE */
	PQsetNoticeReceiver(c->conn, note_notice, c);
	if (PQstatus(c->conn) == CONNECTION_BAD)
		status = PGRES_POLLING_FAILED;
	while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		if (!wait_for_socket(c, status == PGRES_POLLING_READING ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE))
		{
			cannot_reach(answer, "It did not answer in time.");
			return false;
		}
		status = PQconnectPoll(c->conn);
	}
	if (status == PGRES_POLLING_FAILED)
	{
		cannot_reach(answer, PQerrorMessage(c->conn));
		return false;
	}
	snprintf(answer->place, sizeof(answer->place), "%s:%s/%s",
			 PQhost(c->conn), PQport(c->conn), PQdb(c->conn));
	strlcpy(answer->peer.host, PQhost(c->conn), sizeof(answer->peer.host));
	strlcpy(answer->peer.port, PQport(c->conn), sizeof(answer->peer.port));
	if (PQhostaddr(c->conn) != NULL)
		strlcpy(answer->peer.address, PQhostaddr(c->conn), sizeof(answer->peer.address));
	return true;
}

/* The last result of what was sent, or NULL (and the answer filled) in the case of failure. */
static PGresult *
get_result(Connection *c, SnowflakeAnswer *answer)
{
	PGresult   *last = NULL;

	for (;;)
	{
		PGresult   *result;

		while (PQisBusy(c->conn))
		{
			if (!wait_for_socket(c, WL_SOCKET_READABLE))
			{
				PQclear(last);
				cannot_reach(answer, "It did not answer in time.");
				return NULL;
			}
			if (!PQconsumeInput(c->conn))
				break;
		}
		result = PQgetResult(c->conn);
		if (result == NULL)
			break;
		if (last != NULL && PQresultStatus(last) == PGRES_FATAL_ERROR)
			PQclear(result);
		else
		{
			PQclear(last);
			last = result;
		}
	}
	if (last == NULL)
		cannot_reach(answer, PQerrorMessage(c->conn));
	return last;
}

/* An error of the registry's server: its code, message, detail and hint. */
static void
server_error(SnowflakeAnswer *answer, const PGresult *result, PGconn *conn)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	char		place[256];
	int			code;

	if (state == NULL || strlen(state) != 5)
	{
		cannot_reach(answer, PQerrorMessage(conn));
		return;
	}
	code = MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]);
	snprintf(place, sizeof(place), "The registry is %s.", answer->place);
	if (hint == NULL && (code == ERRCODE_INVALID_SCHEMA_NAME || code == ERRCODE_UNDEFINED_FUNCTION))
		hint = "Create the extension in the registry's database, of a version close to this server's.";
	if (hint == NULL && code == ERRCODE_INSUFFICIENT_PRIVILEGE)
		hint = "Grant USAGE on the schema snowflake and EXECUTE on its functions acquire_lease, renew_lease, release_lease and acquire_backfill_share.";
	if (hint == NULL && (code == ERRCODE_READ_ONLY_SQL_TRANSACTION || code == ERRCODE_FEATURE_NOT_SUPPORTED))
		hint = "If that server is a standby, name all of its cluster's hosts in snowflake.registry, with target_session_attrs=read-write.";
	snowflake_answer_server_error(answer, code, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY),
								  detail != NULL ? detail : place, hint);
}

/* Sends and waits; NULL, with the answer filled, unless it succeeded. */
static PGresult *
run(Connection *c, const char *text, const SnowflakeQuery *query, SnowflakeAnswer *answer)
{
	PGresult   *result;
	ExecStatusType status;
	int			sent = query == NULL ? PQsendQuery(c->conn, text) :
	PQsendQueryParams(c->conn, query->text, query->num_parameters, NULL,
					  query->parameters, NULL, NULL, 0);

	if (!sent)
	{
		cannot_reach(answer, PQerrorMessage(c->conn));
		return NULL;
	}
	result = get_result(c, answer);
	if (result == NULL)
		return NULL;
	status = PQresultStatus(result);
	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return result;
	server_error(answer, result, c->conn);
	PQclear(result);
	return NULL;
}

static SnowflakeAnswerKind
read_row(const SnowflakeCall *call, const PGresult *result, SnowflakeAnswer *answer)
{
	char	   *columns[SNOWFLAKE_CALL_COLUMNS] = {NULL};

	if (PQntuples(result) != 1)
	{
		snowflake_answer_error(answer, ERRCODE_PROTOCOL_VIOLATION,
							   "a lease function of the registry did not return one row", NULL, NULL);
		return SNOWFLAKE_ANSWER_FAILED;
	}
	for (int i = 0; i < Min(PQnfields(result), SNOWFLAKE_CALL_COLUMNS); i++)
		if (!PQgetisnull(result, 0, i))
			columns[i] = PQgetvalue(result, 0, i);
	return snowflake_query_read(call, columns, answer);
}

/* Ending a lease makes its bound exact: that need not be replicated, the one before is safe. */
static void
call_connected(Connection *c, const SnowflakeCall *call, SnowflakeAnswer *answer)
{
	SnowflakeQuery query;
	SnowflakeAnswerKind kind;
	PGresult   *result = run(c, call->kind == SNOWFLAKE_RELEASE ?
							 BEGIN_TEXT "; SET LOCAL synchronous_commit = local" : BEGIN_TEXT, NULL, answer);

	if (result == NULL)
		return;
	PQclear(result);
	snowflake_query_build(call, &query);
	result = run(c, NULL, &query, answer);
	if (result == NULL)
		return;
	kind = read_row(call, result, answer);
	PQclear(result);
	if (kind == SNOWFLAKE_ANSWER_FAILED)
		return;
	c->warned = false;
	result = run(c, "COMMIT", NULL, answer);
	if (result == NULL)
		return;
	if (c->warned || strcmp(PQcmdStatus(result), "COMMIT") != 0)
		snowflake_answer_error(answer, ERRCODE_LOCK_NOT_AVAILABLE,
							   "a lease was not replicated to a synchronous standby of the registry",
							   "The wait for it was cancelled.",
							   "No id is issued under that lease; see to the standby.");
	else
		answer->kind = kind;
	PQclear(result);
}

/* Carries out a call.  Whatever fails becomes the answer. */
void
snowflake_call_remote(const SnowflakeCall *call, SnowflakeAnswer *answer)
{
	Connection	c = {NULL, 0, false};

	c.deadline = snowflake_monotonic_now() + (call->last ? LAST_CALL_TIMEOUT_US : CALL_TIMEOUT_US);
	/* libpq's defaults would lead to some server, perhaps this one */
	if (call->registry[0] == '\0')
		elog(ERROR, "no registry to call"); /* GCOV_EXCL_LINE */
	PG_TRY();
	{
		if (open_connection(&c, call, answer))
			call_connected(&c, call, answer);
	}
	PG_FINALLY();
	{
		PQfinish(c.conn);
	}
	PG_END_TRY();
}
