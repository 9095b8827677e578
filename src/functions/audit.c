/*
 * audit.c
 *	  What snowflake_audit() needs of C: the leases on record, wherever they are.
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/tuplestore.h"

#include "guc.h"
#include "registry/reader.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(snowflake_read_leases);

/* Two uuids and four arrays of a page, and why there is none. */
#define NUM_COLUMNS		7

static void
put_row(ReturnSetInfo *rsinfo, char **values)
{
	AttInMetadata *metadata = TupleDescGetAttInMetadata(rsinfo->setDesc);

	tuplestore_puttuple(rsinfo->setResult,
						BuildTupleFromCStrings(metadata, values));
}

/* An array of numbers, as jsonb writes it and as SQL does. */
static char *
sql_array(const char *json)
{
	char	   *array = pstrdup(json);

	array[0] = '{';
	array[strlen(array) - 1] = '}';
	return array;
}

static void
put_page(const SnowflakeRow *page, void *arg)
{
	char	   *values[NUM_COLUMNS] = {NULL};

	values[0] = page->columns[SNOWFLAKE_PAGE_INCARNATION];
	values[1] = page->columns[SNOWFLAKE_PAGE_USES_INCARNATION];
	values[2] = sql_array(page->columns[SNOWFLAKE_PAGE_NODE_NUMBERS]);
	values[3] = sql_array(page->columns[SNOWFLAKE_PAGE_LAUNCHED]);
	values[4] = sql_array(page->columns[SNOWFLAKE_PAGE_STARTS]);
	values[5] = sql_array(page->columns[SNOWFLAKE_PAGE_ENDS]);
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
fill_not_loaded(SnowflakeProblem *problem)
{
	snowflake_problem_set(problem, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						  "snowflake is not loaded via shared_preload_libraries",
						  "This server issues no ids, and does not know where the leases of others are.",
						  NULL);
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

	InitMaterializedSRF(fcinfo, 0);
	if (snowflake_shared == NULL && another)
		fill_not_loaded(&problem);
	else if (another && snowflake_registry[0] == '\0')
		snowflake_problem_set(&problem,
							  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							  "this cluster uses another registry, and snowflake.registry is empty",
							  NULL, "Set it. To use another one, see \"Another registry\" in doc/operations.md.");
	else if (snowflake_leases_read(another, put_page, rsinfo, &problem))
		return (Datum) 0;
	/* one that is only a registry need not be loaded: it has leases */
	else if (snowflake_shared == NULL &&
			 problem.sqlerrcode == ERRCODE_UNDEFINED_OBJECT)
		fill_not_loaded(&problem);
	values[NUM_COLUMNS - 1] = problem_text(&problem);
	put_row(rsinfo, values);
	return (Datum) 0;
}
