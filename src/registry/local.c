/*
 * local.c
 *	  Transactions in the own tables, over SPI in the database postgres.
 *
 * The process stays connected to the database once it has run one, which can
 * then not be dropped.  Whatever the database or the server has for defaults,
 * a transaction is read committed, read-write and committed durably, and does
 * not wait long for a lock.
 *
 * The extension is created by the bootstrap superuser.  All else runs as the
 * extension's owner inside a security-restricted operation: an owner who is no
 * superuser, and has replaced a function, gains nothing.
 *
 * For the helper.  Raises errors; a database that cannot be connected to ends
 * the process (FATAL).
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
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
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "registry/protocol.h"

#define DATABASE			"postgres"
/* Where there is no schema public. */
#define OWN_SCHEMA			"snowflake_functions"

#define LOCK_TIMEOUT		"5s"
/* Long enough for a CREATE EXTENSION that is about to commit. */
#define CREATE_LOCK_TIMEOUT "300ms"
/* While the server stops. */
#define LAST_LOCK_TIMEOUT	"500ms"
/* Short, so that in a deadlock we are cancelled and not the administrator. */
#define DEADLOCK_TIMEOUT	"100ms"

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

/* Once for each process. */
static void
connect_database(void)
{
	static bool connected = false;

	if (connected)
		return;
	BackgroundWorkerInitializeConnection(DATABASE, NULL,
										 BGWORKER_BYPASS_ALLOWCONN);
	connected = true;
	previous_log_hook = emit_log_hook;
	emit_log_hook = note_warning;
	set_option("default_transaction_isolation", "read committed");
	set_option("default_transaction_read_only", "off");
	set_option("default_transaction_deferrable", "off");
	set_option("session_replication_role", "origin");
	set_option("role", "none");
	set_option("log_min_messages", "warning");	/* for note_warning */
	set_option("search_path", "");
	set_option("deadlock_timeout", DEADLOCK_TIMEOUT);
	/* since 17; it would end this process before a timeout of ours */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		set_option("transaction_timeout", "0");
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

/* The owner of the extension; InvalidOid if it is not there. */
static Oid
extension_owner(void)
{
	Relation	relation = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			owner = InvalidOid;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber,
				F_NAMEEQ,
				CStringGetDatum("snowflake"));
	scan = systable_beginscan(relation, ExtensionNameIndexId, true, NULL, 1,
							  &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		owner = ((Form_pg_extension) GETSTRUCT(tuple))->extowner;
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return owner;
}

/*
 * Keeps the extension from being dropped until the transaction ends.  DROP
 * EXTENSION locks the extension before its tables.  So do we: if each took the
 * tables in another order, they would deadlock.
 */
static void
lock_extension(void)
{
	Oid			extension = get_extension_oid("snowflake", true);

	if (OidIsValid(extension))
		LockDatabaseObject(ExtensionRelationId, extension, 0, AccessShareLock);
	if (!OidIsValid(extension) || get_extension_oid("snowflake", true) != extension)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("the extension snowflake was dropped from the database \"%s\" during a call", DATABASE),
				 errhint("No action is needed: the next id creates it again.")));
}

static void
execute(const char *command)
{
	if (SPI_execute(command, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", command);	/* GCOV_EXCL_LINE */
}

/*
 * Makes the schema for an extension without public.  One that is there must be
 * a superuser's, as one that we have made: whoever owns it can put functions
 * there.
 */
static void
create_own_schema(void)
{
	Oid			schema = get_namespace_oid(OWN_SCHEMA, true);
	HeapTuple	tuple;
	Oid			owner;

	if (!OidIsValid(schema))
	{
		execute("CREATE SCHEMA " OWN_SCHEMA);
		return;
	}
	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	if (!HeapTupleIsValid(tuple))
		return;					/* dropped meanwhile: what follows says so */
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	if (!superuser_arg(owner))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("schema \"%s\" of the database \"%s\" belongs to the role \"%s\"",
						OWN_SCHEMA, DATABASE, GetUserNameFromId(owner, false)),
				 errdetail("The extension is created there, as there is no schema public; only superusers may own its schema."),
				 errhint("Drop that schema, or create the extension in another one.")));
}

/*
 * Creates the extension in a transaction of its own.  An error if another
 * transaction is about to do that, which may even wait for us.
 */
static void
create_extension(void)
{
	MemoryContext context = CurrentMemoryContext;
	bool		has_public;

	set_option("lock_timeout", CREATE_LOCK_TIMEOUT);
	begin();
	has_public = OidIsValid(get_namespace_oid("public", true));
	PG_TRY();
	{
		if (!has_public)
			create_own_schema();
		execute(has_public ? "CREATE EXTENSION snowflake SCHEMA public" :
				"CREATE EXTENSION snowflake SCHEMA " OWN_SCHEMA);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		FlushErrorState();
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("the extension snowflake is being created in the database \"%s\"", DATABASE),
				 errdetail("Its tables grant the leases, and are not committed yet."),
				 errhint("Commit the transaction that creates it, and ask for ids then.")));
	}
	PG_END_TRY();
	commit();
	ereport(LOG,
			(errmsg("snowflake: created the extension in database \"%s\", for its tables", DATABASE)));
}

static void
fill_row(const SnowflakeQuery *query, SnowflakeRow *row, MemoryContext context)
{
	MemoryContext old;
	Size		left = query->max_size;

	if (SPI_processed != 1)
		elog(ERROR,
			 "a function of the schema snowflake returned %s rows",
			 SPI_processed == 0 ? "no" : "several");
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
							query->max_size / 1024),
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
	Oid			types[SNOWFLAKE_QUERY_PARAMETERS];
	Datum		values[SNOWFLAKE_QUERY_PARAMETERS];
	char		nulls[SNOWFLAKE_QUERY_PARAMETERS];
	Oid			save_user;
	int			save_context;
	int			save_nestlevel;
	int			result;

	for (int i = 0; i < query->num_parameters; i++)
	{
		types[i] = TEXTOID;
		nulls[i] = query->parameters[i] == NULL ? 'n' : ' ';
		values[i] = query->parameters[i] == NULL ? (Datum) 0 :
			CStringGetTextDatum(query->parameters[i]);
	}
	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(owner,
						   save_context | SECURITY_RESTRICTED_OPERATION);
	save_nestlevel = NewGUCNestLevel();
	result = SPI_execute_with_args(query->text, query->num_parameters, types,
								   values, nulls, false, 2);
	if (result != SPI_OK_SELECT)
		elog(ERROR, "a function of the schema snowflake failed with %d", result);	/* GCOV_EXCL_LINE */
	fill_row(query, row, context);
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

	begin();
	owner = extension_owner();
	commit();
	if (!OidIsValid(owner))
	{
		if (!query->create)
			return SNOWFLAKE_RESULT_MISSING;
		create_extension();
	}
	set_option("lock_timeout", query->last ? LAST_LOCK_TIMEOUT : LOCK_TIMEOUT);
	if (query->local_commit)
		set_option("synchronous_commit", "local");
	else
		set_option("synchronous_commit", "on");
	begin();
	lock_extension();
	owner = extension_owner();
	run_as_owner(query, owner, row, context);
	commit();
	MemoryContextSwitchTo(context);
	return SNOWFLAKE_RESULT_OK;
}
