/*
 * citus.c
 *	  The guard for servers of a Citus cluster.
 *
 * Citus evaluates a column's default on the server that makes the row, which
 * may be any server of the cluster.  Automatic numbers are different on each
 * only if all servers take them from one registry.  The coordinator can be that
 * registry, and then its own setting is empty.  So a server that is not the
 * coordinator issues no ids with an automatic number of its own table.
 *
 * The catalogs of Citus are looked up once per session, and again after Citus
 * has changed them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "functions/citus.h"
#include "guc.h"

/* The coordinator's group in pg_dist_node and pg_dist_local_group. */
#define COORDINATOR_GROUP	0

SnowflakeCitusRole snowflake_citus_role = SNOWFLAKE_CITUS_UNKNOWN;

/* The tables that were looked up; InvalidOid: there is no Citus. */
static Oid	nodes_table = InvalidOid;
static Oid	group_table = InvalidOid;

/* How often they may have changed. */
static uint64 changes = 0;

static void
note_change(Datum arg, Oid relation)
{
	if (relation != InvalidOid && relation != nodes_table &&
		relation != group_table)
		return;
	changes++;
	snowflake_citus_role = SNOWFLAKE_CITUS_UNKNOWN;
}

/*
 * Whether a table of Citus has a row with another group than the
 * coordinator's.  The column is found by its name: its number differs between
 * versions of Citus.
 */
static bool
has_other_group(Oid relid)
{
	Relation	table;
	SysScanDesc scan;
	HeapTuple	tuple;
	AttrNumber	column;
	bool		found = false;

	if (relid == InvalidOid)
		return false;
	table = table_open(relid, AccessShareLock);
	column = get_attnum(relid, "groupid");
	if (column != InvalidAttrNumber &&
		TupleDescAttr(RelationGetDescr(table), column - 1)->atttypid == INT4OID)
	{
		scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
		while (!found && (tuple = systable_getnext(scan)) != NULL)
		{
			bool		is_null;
			Datum		group = heap_getattr(tuple, column,
											 RelationGetDescr(table), &is_null);

			found = !is_null && DatumGetInt32(group) != COORDINATOR_GROUP;
		}
		systable_endscan(scan);
	}
	table_close(table, AccessShareLock);
	return found;
}

static SnowflakeCitusRole
read_role(void)
{
	if (get_extension_oid("citus", true) == InvalidOid)
		return SNOWFLAKE_CITUS_NONE;
	nodes_table = get_relname_relid("pg_dist_node", PG_CATALOG_NAMESPACE);
	group_table = get_relname_relid("pg_dist_local_group",
									PG_CATALOG_NAMESPACE);
	if (has_other_group(group_table))
		return SNOWFLAKE_CITUS_WORKER;
	if (has_other_group(nodes_table))
		return SNOWFLAKE_CITUS_COORDINATOR;
	return SNOWFLAKE_CITUS_NONE;
}

/* Again if a table changes while it is read. */
static void
look_up_role(void)
{
	static bool registered = false;
	uint64		seen;

	if (!registered)
		CacheRegisterRelcacheCallback(note_change, (Datum) 0);
	registered = true;
	do
	{
		seen = changes;
		snowflake_citus_role = read_role();
	} while (changes != seen);
}

/* Whether the settings ask for an automatic number of the own table. */
static bool
wants_own_number(void)
{
	return strcmp(snowflake_worker_id, "auto") == 0 &&
		snowflake_registry[0] == '\0';
}

static int
registry_hint(void)
{
	return errhint("Run on the coordinator, with its address:\n"
				   "SELECT run_command_on_workers($$ALTER SYSTEM SET snowflake.registry = 'host=... port=...'$$);\n"
				   "SELECT run_command_on_workers('SELECT pg_reload_conf()');");
}

/* Raises 55000 on a worker that has to have a registry. */
void
snowflake_check_citus_worker(void)
{
	if (snowflake_citus_role == SNOWFLAKE_CITUS_UNKNOWN)
		look_up_role();
	if (snowflake_citus_role == SNOWFLAKE_CITUS_WORKER && wants_own_number())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a worker of a Citus cluster needs snowflake.registry"),
				 errdetail("Without it, two servers of the cluster can have the same node number and issue the same ids."),
				 registry_hint()));
}

/* When the extension is created: warns on every server of a Citus cluster. */
void
snowflake_warn_citus(void)
{
	look_up_role();
	if (snowflake_citus_role != SNOWFLAKE_CITUS_NONE && wants_own_number())
		ereport(WARNING,
				(errmsg("all workers of a Citus cluster need snowflake.registry"),
				 errdetail("A worker without it issues no ids. On the coordinator it can stay empty: the coordinator is the registry then."),
				 registry_hint()));
}
