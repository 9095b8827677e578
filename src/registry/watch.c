/*
 * watch.c
 *	  Notices that the own tables are created or dropped.
 *
 * The lease worker looks at them when it has a reason: a start, or an id that
 * is wanted.  CREATE EXTENSION and DROP EXTENSION snowflake_registry in the
 * database postgres are reasons, too, once they are committed.  The hook is
 * called in whichever process runs them, also in the helper.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "registry/watch.h"
#include "shmem.h"

static object_access_hook_type previous_hook = NULL;

/* By this transaction. */
static bool extension_changed = false;

/*
 * PREPARE TRANSACTION is refused: COMMIT PREPARED tells nobody, and the server
 * would go on under a lease that the tables do not have.
 */
static void
look_at_commit(XactEvent event, void *arg)
{
	if (!extension_changed)
		return;
	if (event == XACT_EVENT_PRE_PREPARE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has created or dropped the extension snowflake_registry"),
				 errdetail("The lease worker would not notice its COMMIT PREPARED. What was rolled back to a savepoint counts, too."),
				 errhint("Commit it without PREPARE TRANSACTION.")));
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	extension_changed = false;
	if (event == XACT_EVENT_ABORT)
		return;
	pg_atomic_write_u32(&snowflake_shared->look, 1);
	pg_memory_barrier();
	snowflake_wake(&snowflake_shared->worker);
}

/* SnapshotSelf: a row that was just inserted is visible to no other snapshot. */
static bool
is_registry(Oid extension)
{
	Relation	relation = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(relation, ExtensionOidIndexId, true,
							  SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple) &&
		strcmp(NameStr(((Form_pg_extension) GETSTRUCT(tuple))->extname),
			   "snowflake_registry") == 0;
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return found;
}

/*
 * If a subtransaction with it is rolled back, the lease worker looks all the same:
 * the lease ends, and another one follows.
 */
static void
note_access(ObjectAccessType access, Oid class, Oid object, int part, void *arg)
{
	static bool registered = false;
	const char *database;

	if (previous_hook)
		previous_hook(access, class, object, part, arg);
	if (class != ExtensionRelationId ||
		(access != OAT_POST_CREATE && access != OAT_DROP) ||
		!is_registry(object))
		return;
	database = get_database_name(MyDatabaseId);
	if (database == NULL || strcmp(database, "postgres") != 0)
		return;
	if (!registered)
		RegisterXactCallback(look_at_commit, NULL);
	registered = true;
	extension_changed = true;
}

void
snowflake_watch_register(void)
{
	previous_hook = object_access_hook;
	object_access_hook = note_access;
}
