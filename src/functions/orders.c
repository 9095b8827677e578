/*
 * orders.c
 *	  The SQL-callable functions that tell the lease worker what to do.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

#include "clock.h"
#include "compat.h"
#include "functions/citus.h"
#include "guc.h"
#include "ids/generator.h"
#include "registry/helper.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(snowflake_change_registry);
PG_FUNCTION_INFO_V1(snowflake_creating);
PG_FUNCTION_INFO_V1(snowflake_release);

#define LOOK_AGAIN_MS	100L
/* Even if snowflake.max_wait is less, which is about ids. */
#define LEAST_WAIT_MS	5000
/* A change of registry makes several calls there. */
#define CHANGE_WAIT_MS	60000

/*
 * Gives an order and waits until it is carried out.  What is cancelled, or not
 * done in time, is carried out all the same; false then.
 */
static bool
give_order(SnowflakeOrder *order, int wait_ms)
{
	int64		end = snowflake_monotonic_now() +
	Max(snowflake_max_wait, wait_ms) * INT64CONST(1000);
	uint32		number;

	snowflake_require_preload();
	PreventCommandDuringRecovery("telling the lease worker what to do");
	if (snowflake_shared->refused)
		snowflake_report_problem(ERROR, &snowflake_shared->status.problem);
	number = pg_atomic_fetch_add_u32(&order->asked, 1) + 1;
	pg_memory_barrier();
	snowflake_wake(&snowflake_shared->worker);
	ConditionVariablePrepareToSleep(&snowflake_shared->changed);
	while ((int32) (pg_atomic_read_u32(&order->done) - number) < 0 &&
		   snowflake_monotonic_now() < end)
		ConditionVariableTimedSleep(&snowflake_shared->changed, LOOK_AGAIN_MS,
									snowflake_wait_event("SnowflakeOrder"));
	ConditionVariableCancelSleep();
	return (int32) (pg_atomic_read_u32(&order->done) - number) >= 0;
}

/* Closes the lease of this server's node number, if there is one. */
Datum
snowflake_release(PG_FUNCTION_ARGS)
{
	if (!give_order(&snowflake_shared->release, LEAST_WAIT_MS))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("the node number was not released in time"),
				 errhint("See pg_stat_snowflake and the server's log.")));
	if (pg_atomic_read_u32(&snowflake_shared->release.failed) != 0)
		ereport(WARNING,
				(errmsg("the registry was not told that the lease has ended"),
				 errdetail("Other servers can have the node number when leased_until is past."),
				 errhint("See the server's log for the reason.")));
	PG_RETURN_VOID();
}

/*
 * Has the node numbers come from where the settings say now.  Addresses are
 * not for everybody.
 */
Datum
snowflake_change_registry(PG_FUNCTION_ARGS)
{
	bool		see_all =
	has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	SnowflakeOutcome outcome;

	if (!give_order(&snowflake_shared->change, CHANGE_WAIT_MS))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("the change of registry has not been carried out in time"),
				 errhint("See pg_stat_snowflake and the server's log, and try again: to repeat it is harmless.")));
	LWLockAcquire(snowflake_shared->lock, LW_SHARED);
	outcome = snowflake_shared->outcome;
	LWLockRelease(snowflake_shared->lock);
	if (!outcome.done && outcome.problem.has_address && !see_all)
		ereport(ERROR,
				(errcode(outcome.problem.sqlerrcode),
				 errmsg("the change of registry has failed"),
				 errdetail("Members of pg_read_all_stats can see the reason."),
				 errhint("Try again: to repeat it is harmless.")));
	if (!outcome.done)
		ereport(ERROR,
				(errcode(outcome.problem.sqlerrcode),
				 errmsg("the change of registry has failed: %s",
						outcome.problem.message),
				 outcome.problem.detail[0] ?
				 errdetail_internal("%s", outcome.problem.detail) : 0,
				 errhint("%s Try again: to repeat it is harmless.",
						 outcome.problem.hint)));
	if (outcome.notice[0] != '\0')
	{
		ereport(WARNING,
				(errmsg("not all ids that this cluster has issued could be handed over"),
				 errdetail_internal("%s", see_all ? outcome.notice :
									"All ids of the numbers of the former registry must be past.")));
		snowflake_helper_forget_notice();
	}
	ereport(NOTICE,
			(errmsg("node numbers come from %s from now on",
					see_all ? outcome.address :
					snowflake_registry[0] == '\0' ? "the own tables" :
					"the registry"),
			 outcome.notice[0] == '\0' ?
			 errdetail("It was told where the ids of all numbers end.") : 0));
	PG_RETURN_VOID();
}

static bool created = false;

/*
 * Once the extension is there, with the tables that the lease worker waits
 * for.
 */
static void
look_at_commit(XactEvent event, void *arg)
{
	if (!created || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT))
		return;
	created = false;
	if (event == XACT_EVENT_ABORT)
		return;
	pg_atomic_write_u32(&snowflake_shared->look, 1);
	pg_memory_barrier();
	snowflake_wake(&snowflake_shared->worker);
}

/*
 * For the install script only, which drops it again: says once what is missing
 * (everything else about it is said by snowflake_nextval()), and lets the
 * lease worker know.
 */
Datum
snowflake_creating(PG_FUNCTION_ARGS)
{
	static bool registered = false;

	if (snowflake_shared == NULL)
	{
		ereport(WARNING,
				(errmsg("snowflake is not loaded via shared_preload_libraries"),
				 errdetail("Ids can be parsed, but none can be issued."),
				 errhint("Add snowflake to shared_preload_libraries in postgresql.conf and restart the server.")));
		PG_RETURN_VOID();
	}
	snowflake_warn_citus();
	if (!registered)
		RegisterXactCallback(look_at_commit, NULL);
	registered = true;
	/* no other database matters */
	created = strcmp(get_database_name(MyDatabaseId), "postgres") == 0;
	PG_RETURN_VOID();
}
