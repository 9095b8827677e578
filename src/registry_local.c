/*
 * registry_local.c
 *	  Calls to the table of this cluster, over SPI in snowflake.database.
 *
 * The process connects to the database, runs one call and is expected to exit:
 * while it lives, the database cannot be dropped.  Whatever the database or the
 * server has for defaults, the transaction is read committed, read-write and
 * committed durably, and does not wait long for a lock.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "guc.h"
#include "registry.h"

#define LOCK_TIMEOUT		"5s"
/* Long enough for a CREATE EXTENSION that is about to commit. */
#define CREATE_LOCK_TIMEOUT "300ms"
/* While the server stops. */
#define LAST_LOCK_TIMEOUT	"500ms"

/* set_options has log_min_messages let WARNINGs through to this hook. */
static emit_log_hook_type previous_log_hook = NULL;
static bool warned = false;

static void
note_warning(ErrorData *edata)
{
	if (edata->elevel == WARNING)
		warned = true;
	if (previous_log_hook)
		previous_log_hook(edata);
}

static void
set_option(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * Ending a lease makes its bound exact: if that is lost, the one before stands, so
 * it need not wait for a standby; all else must.
 */
static void
set_options(const SnowflakeCall *call)
{
	set_option("default_transaction_isolation", "read committed");
	set_option("default_transaction_read_only", "off");
	set_option("default_transaction_deferrable", "off");
	set_option("session_replication_role", "origin");
	set_option("role", "none");
	set_option("log_min_messages", "warning");	/* for note_warning */
	set_option("search_path", "");
	set_option("lock_timeout", call->last ? LAST_LOCK_TIMEOUT : LOCK_TIMEOUT);
	if (call->kind == SNOWFLAKE_RELEASE)
		set_option("synchronous_commit", "local");
	else if (synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH)
		set_option("synchronous_commit", "on");
}

static void
begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
}

/*
 * Commits.  Raises an error if the commit may not be durable: the wait for a
 * synchronous standby can be cancelled, which is a mere WARNING.
 */
static void
commit(void)
{
	SPI_finish();
	PopActiveSnapshot();
	warned = false;
	CommitTransactionCommand();
	if (warned)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("a lease was not replicated to a synchronous standby"),
				 errdetail("The wait for it was cancelled."),
				 errhint("No id is issued under that lease; see to the standby.")));
}

/*
 * Creates the extension in a transaction of its own.  False if another
 * transaction is about to do that.
 */
static bool
create_extension(void)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool busy = false;

	set_option("search_path", "public");
	set_option("lock_timeout", CREATE_LOCK_TIMEOUT);
	begin();
	PG_TRY();
	{
		SPI_execute("CREATE EXTENSION snowflake", false, 0);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		FlushErrorState();
		AbortCurrentTransaction();
		busy = true;
	}
	PG_END_TRY();
	if (busy)
		return false;
	commit();
	ereport(LOG,
			(errmsg("snowflake: created the extension in database \"%s\", for the table snowflake.worker_node",
					snowflake_database)));
	set_option("search_path", "");
	set_option("lock_timeout", LOCK_TIMEOUT);
	return true;
}

/*
 * Whether the extension is there.  We run as superuser: without it, a schema of
 * that name could be anybody's.
 */
static bool
extension_exists(void)
{
	bool		exists;

	begin();
	exists = OidIsValid(get_extension_oid("snowflake", true));
	commit();
	return exists;
}

static void
run_query(const SnowflakeCall *call, SnowflakeAnswer *answer)
{
	SnowflakeQuery query;
	Oid			types[SNOWFLAKE_CALL_PARAMETERS];
	Datum		values[SNOWFLAKE_CALL_PARAMETERS];
	char		nulls[SNOWFLAKE_CALL_PARAMETERS];
	char	   *columns[SNOWFLAKE_CALL_COLUMNS] = {NULL};
	SnowflakeAnswerKind kind;
	int			result;

	begin();
	snowflake_query_build(call, &query);
	for (int i = 0; i < query.num_parameters; i++)
	{
		types[i] = TEXTOID;
		nulls[i] = query.parameters[i] == NULL ? 'n' : ' ';
		values[i] = query.parameters[i] == NULL ? (Datum) 0 : CStringGetTextDatum(query.parameters[i]);
	}
	result = SPI_execute_with_args(query.text, query.num_parameters, types, values, nulls, false, 0);
	if (result != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "a lease function returned " UINT64_FORMAT " rows, result %d", SPI_processed, result);
	for (int i = 0; i < Min(SPI_tuptable->tupdesc->natts, SNOWFLAKE_CALL_COLUMNS); i++)
		columns[i] = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1);
	kind = snowflake_query_read(call, columns, answer);
	commit();
	answer->kind = kind;
}

static void
call_in_database(const SnowflakeCall *call, SnowflakeAnswer *answer)
{
	if (!extension_exists())
	{
		if (!call->create)
		{
			answer->kind = SNOWFLAKE_ANSWER_MISSING;
			return;
		}
		if (!create_extension())
		{
			answer->kind = SNOWFLAKE_ANSWER_BUSY;
			return;
		}
	}
	run_query(call, answer);
}

/*
 * Carries out a call.  Errors become the answer.  A database that cannot be
 * connected to ends the process (FATAL).
 */
void
snowflake_call_local(const SnowflakeCall *call, SnowflakeAnswer *answer)
{
	MemoryContext context = CurrentMemoryContext;

	BackgroundWorkerInitializeConnection(snowflake_database, NULL, BGWORKER_BYPASS_ALLOWCONN);
	set_options(call);
	previous_log_hook = emit_log_hook;
	emit_log_hook = note_warning;
	strlcpy(answer->place, snowflake_database, sizeof(answer->place));
	PG_TRY();
	{
		call_in_database(call, answer);
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		if (IsTransactionState() || IsTransactionOrTransactionBlock())
			AbortCurrentTransaction();
		snowflake_answer_server_error(answer, edata->sqlerrcode, edata->message, edata->detail, edata->hint);
	}
	PG_END_TRY();
}
