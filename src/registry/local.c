/*
 * local.c
 *	  Transactions in the own tables, over SPI in the database postgres.
 *
 * The process stays connected to the database once it has run one, which can
 * then not be dropped.  Whatever the database or the server has for defaults,
 * a transaction is read committed, read-write and committed durably, and does
 * not wait long for a lock.
 *
 * The extension is created by the bootstrap superuser.  All else
 * runs as the extension's owner inside a security-restricted operation: an
 * owner who is no superuser, and has replaced a function, gains nothing.
 *
 * For the helper.  Raises errors; a database that cannot be connected to ends
 * the process (FATAL).
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "clock.h"
#include "registry/protocol.h"
#include "shmem.h"

#define DATABASE			"postgres"
#define EXTENSION			"snowflake_registry"

#define LOCK_TIMEOUT		"5s"
/* Long enough for a CREATE EXTENSION that is about to commit. */
#define EXTENSION_LOCK_TIMEOUT "300ms"
/* While the server stops. */
#define LAST_LOCK_TIMEOUT	"500ms"
/* Short, so that in a deadlock we are cancelled and not the administrator. */
#define DEADLOCK_TIMEOUT	"100ms"

static void
set_option(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * Once for each process.  Whatever goes wrong here ends it, such as a lock table
 * that is full: a process that was initialized by half must not go on, nor be
 * initialized again.
 */
static void
connect_database(void)
{
	if (OidIsValid(MyDatabaseId))
		return;
	set_option("exit_on_error", "on");
	BackgroundWorkerInitializeConnection(DATABASE, NULL,
										 BGWORKER_BYPASS_ALLOWCONN);
	set_option("default_transaction_isolation", "read committed");
	set_option("default_transaction_read_only", "off");
	set_option("default_transaction_deferrable", "off");
	set_option("session_replication_role", "origin");
	set_option("role", "none");
	set_option("search_path", "");
	set_option("deadlock_timeout", DEADLOCK_TIMEOUT);
	/* since 17; it would end this process before a timeout of ours */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		set_option("transaction_timeout", "0");
	set_option("exit_on_error", "off");
}

static void
begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
}

/*
 * The error context of a commit: sees what is reported meanwhile, if
 * log_min_messages lets it through.
 */
static void
note_warning(void *wait_cancelled)
{
	/* not the context of errors, in which it is called */
	MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);
	ErrorData  *edata = CopyErrorData();

	if (edata->elevel == WARNING && edata->funcname != NULL &&
		strcmp(edata->funcname, SNOWFLAKE_SYNC_REP_ROUTINE) == 0)
		*(bool *) wait_cancelled = true;
	FreeErrorData(edata);
	MemoryContextSwitchTo(context);
}

/*
 * Commits.  Raises an error if the commit may not be durable: the wait for a
 * synchronous standby can be cancelled, which is a mere WARNING.
 */
static void
commit_durably(void)
{
	bool		wait_cancelled = false;
	ErrorContextCallback warnings = {
		.previous = error_context_stack,
		.callback = note_warning,
		.arg = &wait_cancelled
	};

	SPI_finish();
	PopActiveSnapshot();
	error_context_stack = &warnings;
	CommitTransactionCommand();
	error_context_stack = warnings.previous;
	/* the postmaster's death ends the wait without a WARNING */
	if (wait_cancelled || ProcDiePending)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("a lease was not replicated to a synchronous standby"),
				 errdetail("The wait for it was cancelled."),
				 errhint("No id is issued under that lease. Check the standby.")));
}

/*
 * The owner of the extension; InvalidOid if it is not there.  By a snapshot of its
 * own: that of the transaction may be older than lock_extension().
 */
static Oid
extension_owner(void)
{
	bool		isnull;

	(void) SPI_execute("SELECT extowner FROM pg_catalog.pg_extension WHERE extname = '" EXTENSION "'",
					   false, 0);
	return SPI_processed == 0 ? InvalidOid :
		DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/*
 * Keeps the extension from being dropped until the transaction ends.  DROP
 * EXTENSION locks the extension before its tables.  So do we: if each took the
 * tables in another order, they would deadlock.
 */
static void
lock_extension(void)
{
	Oid			extension = get_extension_oid(EXTENSION, true);

	if (OidIsValid(extension))
		LockDatabaseObject(ExtensionRelationId, extension, 0, AccessShareLock);
	if (!OidIsValid(extension) || get_extension_oid(EXTENSION, true) != extension)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("the extension snowflake_registry was dropped from the database \"%s\" during a call", DATABASE),
				 errhint("No action is needed: the next id creates it again.")));
}

/*
 * What CREATE EXTENSION says if another transaction is about to do it, which
 * may even wait for us; or if the schema is there, which does not go away by
 * itself.
 */
static void
report_creation(ErrorData *edata)
{
	if (edata->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("the extension snowflake_registry is being created in the database \"%s\"", DATABASE),
				 errdetail("Its tables grant the leases, and are not committed yet."),
				 errhint("Commit the transaction that creates it, and ask for ids then.")));
	if (edata->sqlerrcode == ERRCODE_DUPLICATE_SCHEMA)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("schema \"snowflake\" is there already in the database \"%s\"", DATABASE),
				 edata->detail ? errdetail_internal("%s", edata->detail) : 0,
				 edata->hint ? errhint("%s", edata->hint) : 0));
	ReThrowError(edata);
}

/*
 * Creates the extension in a transaction of its own.  A DROP EXTENSION that
 * has just committed may not have told us yet that the schema is gone; it has
 * when its lock is free.
 */
static void
create_extension(void)
{
	MemoryContext context = CurrentMemoryContext;

	set_option("lock_timeout", EXTENSION_LOCK_TIMEOUT);
	begin_transaction();
	PG_TRY();
	{
		Oid			schema = get_namespace_oid("snowflake", true);

		if (OidIsValid(schema))
			LockDatabaseObject(NamespaceRelationId, schema, 0, AccessShareLock);
		(void) SPI_execute("CREATE EXTENSION " EXTENSION, false, 0);
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		report_creation(edata);
	}
	PG_END_TRY();
	commit_durably();
	ereport(LOG,
			(errmsg("snowflake: created the extension snowflake_registry in database \"%s\", for its tables", DATABASE)));
}

/*
 * Copies the one row that the statement has returned into the context.  Without
 * one, or with several, all values stay NULL, which the caller refuses; so it
 * is over libpq.
 */
static void
fill_row(SnowflakeRow *row, MemoryContext context)
{
	MemoryContext old;
	Size		left = SNOWFLAKE_RESULT_SIZE;

	if (SPI_processed != 1)
		return;
	old = MemoryContextSwitchTo(context);
	for (int i = 0; i < Min(SPI_tuptable->tupdesc->natts,
							SNOWFLAKE_QUERY_COLUMNS); i++)
	{
		char	   *value =
		SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1);
		Size		length = value == NULL ? 0 : strlen(value);

		if (length > left)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("a function of the schema snowflake returned more than %d kB",
							SNOWFLAKE_RESULT_SIZE / 1024),
					 errhint(SNOWFLAKE_ANSWER_HINT)));
		left -= length;
		if (value == NULL)
			continue;
		row->columns[i] = palloc(length + 1);
		snowflake_copy_printable(row->columns[i], value, length, length + 1);
	}
	MemoryContextSwitchTo(old);
}

/*
 * Runs the statement as the extension's owner, who cannot keep anything of it.
 */
static void
run_as_owner(const SnowflakeQuery *query, Oid owner, SnowflakeRow *row,
			 MemoryContext context)
{
	Oid			type = TEXTOID;
	Datum		value = CStringGetTextDatum(query->call);
	Oid			save_user;
	int			save_context;
	int			save_nestlevel;
	int			result;

	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(owner,
						   save_context | SECURITY_RESTRICTED_OPERATION);
	save_nestlevel = NewGUCNestLevel();
	result = SPI_execute_with_args(query->text, 1, &type, &value, NULL, false,
								   2);
	if (result != SPI_OK_SELECT)
		elog(ERROR, "a function of the schema snowflake failed with %d", result);	/* GCOV_EXCL_LINE */
	fill_row(row, context);
	AtEOXact_GUC(false, save_nestlevel);
	SetUserIdAndSecContext(save_user, save_context);
}

/*
 * Runs one transaction; MISSING if the extension is not there and not to be
 * created.
 */
SnowflakeResultKind
snowflake_local_run(const SnowflakeQuery *query, SnowflakeRow *row,
					SnowflakeResult *result)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			owner;

	memset(row, 0, sizeof(*row));
	strlcpy(result->address, DATABASE, sizeof(result->address));
	connect_database();

	set_option("lock_timeout", query->last ? LAST_LOCK_TIMEOUT : LOCK_TIMEOUT);
	begin_transaction();
	owner = extension_owner();
	commit_durably();

	/*
	 * a commit leaves TopMemoryContext, where an error that is caught would
	 * stay
	 */
	MemoryContextSwitchTo(context);
	set_option("synchronous_commit", query->local_commit ? "local" : "on");
	if (!OidIsValid(owner))
	{
		if (!query->create)
			return SNOWFLAKE_RESULT_MISSING;
		create_extension();
		set_option("lock_timeout", LOCK_TIMEOUT);
	}
	begin_transaction();
	lock_extension();
	owner = extension_owner();
	run_as_owner(query, owner, row, context);
	commit_durably();
	MemoryContextSwitchTo(context);
	return SNOWFLAKE_RESULT_OK;
}
