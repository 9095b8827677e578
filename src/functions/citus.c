/*
 * citus.c
 *	  The guard for servers of a Citus cluster.
 *
 * Citus evaluates a column's default on the server that makes the row, which
 * may be any server of the cluster.  Automatic numbers are different on each
 * only if all servers take them from one registry.  The coordinator can be that
 * registry, and then its own setting is empty.  So a server that is not the
 * coordinator issues no ids with an automatic number of its own tables.
 *
 * The catalogs of Citus are looked up once per session, and again after Citus
 * has changed them.  A worker that Citus has not told of the cluster (no
 * metadata) has empty ones; there, only sessions that another server of the
 * cluster has opened show it, by the name with which they were opened.
 */
#include "postgres.h"

/*
 * libpq-be.h is for the name in Port only.  Its headers of GSSAPI need not be
 * installed; Port is the same without them, with a pointer in their place.
 */
#undef ENABLE_GSS
#undef ENABLE_SSPI
#include "libpq/libpq-be.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "clock.h"
#include "compat.h"
#include "functions/citus.h"
#include "guc.h"
#include "shmem.h"

/* The coordinator's group in pg_dist_node and pg_dist_local_group. */
#define COORDINATOR_GROUP	0

SnowflakeCitusRole snowflake_citus_role = SNOWFLAKE_CITUS_UNKNOWN;

/* The lease worker tells of a change. */
#define LOOK_AGAIN_MS		1000

/* What Citus puts before and into application_name of sessions between servers. */
#define CITUS_SESSION_PREFIX	"citus_"
#define CITUS_SESSION_PART		" gpid="

/* The tables that were looked up; InvalidOid: there is no Citus. */
static Oid	nodes_table = InvalidOid;
static Oid	group_table = InvalidOid;

/* How often they may have changed. */
static uint64 changes = 0;

/* Without Citus, any new table may be the first of its catalogs. */
static void
note_change(Datum arg, Oid relation)
{
	if (relation != InvalidOid && nodes_table != InvalidOid &&
		relation != nodes_table && relation != group_table)
		return;
	changes++;
	snowflake_citus_role = SNOWFLAKE_CITUS_UNKNOWN;
}

/* A column of a row, found by its name: its number differs between versions of Citus. */
static Datum
get_column(Relation table, HeapTuple tuple, const char *name, Oid type,
		   bool *is_null)
{
	AttrNumber	column = get_attnum(RelationGetRelid(table), name);

	*is_null = true;
	if (column == InvalidAttrNumber ||
		TupleDescAttr(RelationGetDescr(table), column - 1)->atttypid != type)
		return (Datum) 0;
	return heap_getattr(tuple, column, RelationGetDescr(table), is_null);
}

/* What the rows of a table of Citus say. */
typedef struct CitusGroups
{
	int			rows;
	bool		has_worker;		/* a group is not the coordinator's */
	int			coordinators;
	char	   *address;		/* of one of them */
} CitusGroups;

static void
note_group(CitusGroups *groups, Relation table, HeapTuple tuple)
{
	bool		no_group;
	bool		no_name;
	bool		no_port;
	Datum		group = get_column(table, tuple, "groupid", INT4OID, &no_group);
	Datum		name = get_column(table, tuple, "nodename", TEXTOID, &no_name);
	Datum		port = get_column(table, tuple, "nodeport", INT4OID, &no_port);

	groups->rows++;
	if (no_group)
		return;
	if (DatumGetInt32(group) != COORDINATOR_GROUP)
	{
		groups->has_worker = true;
		return;
	}
	groups->coordinators++;
	if (!no_name && !no_port)
		groups->address = psprintf("host=%s port=%d", TextDatumGetCString(name),
								   DatumGetInt32(port));
}

static CitusGroups
read_groups(Oid relid)
{
	CitusGroups groups = {0};
	Relation	table = table_open(relid, AccessShareLock);
	SysScanDesc scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while ((tuple = systable_getnext(scan)) != NULL)
		note_group(&groups, table, tuple);
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return groups;
}

static bool
is_citus_name(const char *name)
{
	return name != NULL &&
		strncmp(name, CITUS_SESSION_PREFIX, strlen(CITUS_SESSION_PREFIX)) == 0 &&
		strstr(name, CITUS_SESSION_PART) != NULL;
}

/*
 * Whether another server of a Citus cluster has opened this session.  What
 * runs in the session can change application_name, but not the name that the
 * connection began with.  A pooler between the servers sets only the first,
 * and a parallel worker has no connection.
 */
static bool
is_citus_session(void)
{
	return is_citus_name(application_name) ||
		(MyProcPort != NULL && is_citus_name(MyProcPort->application_name));
}

static SnowflakeCitusRole
read_role(void)
{
	CitusGroups nodes;

	nodes_table = get_relname_relid("pg_dist_node", PG_CATALOG_NAMESPACE);
	group_table = get_relname_relid("pg_dist_local_group",
									PG_CATALOG_NAMESPACE);
	if (nodes_table == InvalidOid || group_table == InvalidOid)
		return SNOWFLAKE_CITUS_NONE;
	if (read_groups(group_table).has_worker)
		return SNOWFLAKE_CITUS_WORKER;
	nodes = read_groups(nodes_table);
	if (nodes.rows == 0 && is_citus_session())
		return SNOWFLAKE_CITUS_WORKER;
	return nodes.has_worker ? SNOWFLAKE_CITUS_COORDINATOR : SNOWFLAKE_CITUS_NONE;
}

/*
 * Again with the next id if a table has changed while it was read.  No loop:
 * with debug_discard_caches each look-up is such a change.
 */
static SnowflakeCitusRole
look_up_role(void)
{
	static bool registered = false;
	uint64		seen = changes;
	SnowflakeCitusRole role;

	if (!registered)
		CacheRegisterRelcacheCallback(note_change, (Datum) 0);
	registered = true;
	role = read_role();
	snowflake_citus_role = changes == seen ? role : SNOWFLAKE_CITUS_UNKNOWN;
	return role;
}

/* Whether the settings, as this session has them, ask for an automatic number of the own tables. */
static bool
wants_own_number(void)
{
	return strcmp(snowflake_worker_id, "auto") == 0 &&
		snowflake_registry[0] == '\0';
}

/* The coordinator's address, if Citus has one that can be written as it is. */
static const char *
coordinator_address(void)
{
	CitusGroups nodes = read_groups(nodes_table);

	if (nodes.coordinators != 1 || nodes.address == NULL ||
		strpbrk(nodes.address, "'\\$") != NULL)
		return "host=... port=...";
	return nodes.address;
}

static int
registry_hint(void)
{
	return errhint("Run on the coordinator, with its address:\n"
				   "SELECT run_command_on_workers($$ALTER SYSTEM SET snowflake.registry = '%s'$$);\n"
				   "SELECT run_command_on_workers('SELECT pg_reload_conf()');\n"
				   "If a worker is the registry, that one has to move first: see \"Another registry than the coordinator\" in doc/citus.md.",
				   coordinator_address());
}

static bool
has_own_number(void)
{
	return pg_atomic_read_u32(&snowflake_shared->lease.own_automatic) != 0;
}

/* What is wrong then is said by the registry that is set, if it refuses. */
static bool
own_lease_is_over(void)
{
	return (TimestampTz) pg_atomic_read_u64(&snowflake_shared->lease.leased_until) <=
		snowflake_id_clock();
}

/*
 * Sessions and the lease worker do not take over settings at the same time:
 * waits until the lease worker has, for as long as a call may wait.
 */
static void
wait_for_end_of_own_number(void)
{
	int64		end = snowflake_monotonic_now() +
	(int64) snowflake_max_wait * 1000;

	ConditionVariablePrepareToSleep(&snowflake_shared->changed);
	while (has_own_number() && !own_lease_is_over() &&
		   snowflake_monotonic_now() < end)
		(void) ConditionVariableTimedSleep(&snowflake_shared->changed,
										   LOOK_AGAIN_MS,
										   snowflake_wait_event("SnowflakeLease"));
	ConditionVariableCancelSleep();
}

static void
refuse_worker(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("a worker of a Citus cluster needs snowflake.registry"),
			 errdetail("Without it, two servers of the cluster can have the same node number and issue the same ids."),
			 registry_hint()));
}

/* Raises 55000 on a worker that has to have a registry. */
void
snowflake_check_citus_worker(void)
{
	SnowflakeCitusRole role = snowflake_citus_role;

	if (role == SNOWFLAKE_CITUS_UNKNOWN)
		role = look_up_role();
	if (role != SNOWFLAKE_CITUS_WORKER)
		return;
	if (!wants_own_number() && has_own_number())
		wait_for_end_of_own_number();
	if (wants_own_number() || (has_own_number() && !own_lease_is_over()))
		refuse_worker();
}

/* The same for ids that were issued since, perhaps under another lease. */
void
snowflake_check_citus_ids(void)
{
	if (has_own_number())
		refuse_worker();
}

/* When the extension is created: warns on every server of a Citus cluster. */
void
snowflake_warn_citus(void)
{
	if (look_up_role() != SNOWFLAKE_CITUS_NONE && wants_own_number())
		ereport(WARNING,
				(errmsg("all workers of a Citus cluster need snowflake.registry"),
				 errdetail("A worker without it issues no ids. On the coordinator it can stay empty: the coordinator is the registry then."),
				 registry_hint()));
}
