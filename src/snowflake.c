/*
 * snowflake.c
 *	  Module initialisation: a table of contents.
 *
 * Without preloading the library defines nothing: the parse side works, and
 * snowflake_nextval() says what to configure.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "compat.h"
#include "guc.h"
#include "ids/settled.h"
#include "layout/fields.h"
#include "lease/worker.h"
#include "registry/helper.h"
#include "registry/watch.h"
#include "shmem.h"

SNOWFLAKE_MODULE_MAGIC;

void		_PG_init(void);

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

/*
 * The layouts in use: snowflake.layout, and those of snowflake.extra_layouts
 * that make other ids.  Read once, before shared memory is there.
 */
static SnowflakeLayout layouts[SNOWFLAKE_MAX_LAYOUTS];
static int	num_layouts = 0;

static int
layouts_in_use(void)
{
	if (num_layouts == 0)
		num_layouts = snowflake_guc_layouts(layouts);
	return num_layouts;
}

static void
request_shmem(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(snowflake_shmem_size(layouts_in_use(), NULL));
	RequestAddinShmemSpace(snowflake_helper_shmem_size());
	RequestAddinShmemSpace(snowflake_lease_worker_shmem_size());
	RequestNamedLWLockTranche("snowflake", 1);
}

/*
 * Why this server issues no ids, whatever its lease worker finds; false if there
 * is no such reason, and then this start has its random number.
 */
static bool
is_refused(SnowflakeProblem *problem)
{
	if (snowflake_guc_rejected(problem))
		return true;
	/* pg_upgrade's servers only copy the schema; their ids would be lost */
	if (IsBinaryUpgrade)
		snowflake_problem_set(problem,
							  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							  "no ids are issued during pg_upgrade",
							  "They would belong to no server.",
							  "Ask for ids when the upgrade has ended.");
	else if (!IsUnderPostmaster && !IsPostmasterEnvironment)
		snowflake_problem_set(problem,
							  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							  "no ids are issued in single-user mode",
							  "There is no lease worker.",
							  "Start the server, and ask for ids there.");
	else if (!pg_strong_random(&snowflake_shared->start,
							   sizeof(snowflake_shared->start)))
		snowflake_problem_set(problem,
							  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							  "could not generate random values",
							  "A registry tells the starts of a server apart by a random number.",
							  "See to the configuration of OpenSSL, and restart the server.");
	else
		return false;
	return true;
}

/*
 * In the postmaster at start and after a crash; under EXEC_BACKEND in each
 * child.
 */
static void
startup_shmem(void)
{
	SnowflakeShared *shared;

	if (previous_startup_hook)
		previous_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	snowflake_shmem_create(layouts, layouts_in_use());
	snowflake_helper_shmem_create();
	snowflake_lease_worker_shmem_create();
	shared = snowflake_shared;
	if (!IsUnderPostmaster)
	{
		snowflake_guc_publish();
		shared->refused = is_refused(&shared->status.problem);
		if (shared->refused)
		{
			shared->status.phase = SNOWFLAKE_REFUSED;
			shared->status.refused_until = PG_INT64_MAX;
		}
	}
	snowflake_guc_run(shared->refused ? NULL : &layouts[0]);
	LWLockRelease(AddinShmemInitLock);
	snowflake_default_layout_fix(&shared->slots[0].layout,
								 shared->invalid_layout ? &shared->status.problem : NULL);
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	snowflake_guc_init();
	snowflake_settled_init();

	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;

	if (!IsBinaryUpgrade)		/* pg_upgrade's servers issue no ids */
	{
		snowflake_lease_worker_register();
		snowflake_watch_register();
	}
}
