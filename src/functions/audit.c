/*
 * audit.c
 *	  What snowflake_audit() needs of C: the leases on record, wherever they are.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

#include "guc.h"
#include "registry/reader.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(snowflake_read_leases);

/* The columns of a page, and why there is none. */
#define NUM_COLUMNS		(SNOWFLAKE_QUERY_COLUMNS + 1)

static void
put_row(ReturnSetInfo *rsinfo, char **values)
{
	AttInMetadata *metadata = TupleDescGetAttInMetadata(rsinfo->setDesc);

	tuplestore_puttuple(rsinfo->setResult,
						BuildTupleFromCStrings(metadata, values));
}

static void
put_page(const SnowflakeRow *page, void *arg)
{
	char	   *values[NUM_COLUMNS] = {NULL};

	memcpy(values, page->columns, sizeof(page->columns));
	put_row(arg, values);
}

/* As one text, of what the role may see. */
static char *
problem_text(const SnowflakeProblem *problem)
{
	if (problem->has_address &&
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		return "the registry could not be asked; members of pg_read_all_stats can see why";
	return psprintf("%s.%s%s%s%s", problem->message,
					problem->detail[0] ? " " : "", problem->detail,
					problem->hint[0] ? " " : "", problem->hint);
}

static void
check_may_read(void)
{
	Oid			relation = get_relname_relid("worker_node",
											 get_namespace_oid("snowflake", false));

	if (!OidIsValid(relation) ||
		pg_class_aclcheck(relation, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for leases"),
				 errdetail("They are shown to roles that may read snowflake.worker_node of this database."),
				 errhint("Grant SELECT on it; members of pg_database_owner have it.")));
}

/*
 * The leases that are on record in database postgres of this cluster, or in
 * the other registry that is set: a row for each page; or one with the reason
 * why they cannot be read, after those that could.
 */
Datum
snowflake_read_leases(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		another = PG_GETARG_BOOL(0);
	char	   *values[NUM_COLUMNS] = {NULL};
	SnowflakeProblem problem;

	check_may_read();
	InitMaterializedSRF(fcinfo, 0);
	if (snowflake_shared == NULL)
		snowflake_problem_set(&problem,
							  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							  "snowflake is not loaded via shared_preload_libraries",
							  "This server issues no ids, and does not know where the leases of others are.",
							  NULL);
	else if (another && snowflake_registry[0] == '\0')
		snowflake_problem_set(&problem,
							  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							  "this cluster uses another registry, and snowflake.registry is empty",
							  NULL, "Set it. To use another one, see \"Another registry\" in doc/operations.md.");
	else if (snowflake_leases_read(another, put_page, rsinfo, &problem))
		return (Datum) 0;
	values[NUM_COLUMNS - 1] = problem_text(&problem);
	put_row(rsinfo, values);
	return (Datum) 0;
}
