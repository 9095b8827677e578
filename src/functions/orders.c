/*
 * orders.c
 *	  The SQL-callable function that tells the lease worker what to do.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "clock.h"
#include "compat.h"
#include "guc.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(snowflake_release);

#define LOOK_AGAIN_MS	100L
/* Even if snowflake.max_wait is less, which is about ids. */
#define LEAST_WAIT_MS	5000

/*
 * Gives an order and waits until it is carried out.  What is cancelled, or not
 * done in time, is carried out all the same; false then.
 */
static bool
give_order(SnowflakeOrder *order)
{
	int64		end = snowflake_monotonic_now() +
	Max(snowflake_max_wait, LEAST_WAIT_MS) * INT64CONST(1000);
	uint32		number;

	snowflake_require_preload();
	PreventCommandDuringRecovery("snowflake_release()");
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
	if (!give_order(&snowflake_shared->release))
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
