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

/* Waits for the lease worker to carry out an order; false if it does not in time. */
static bool
wait_for_order(SnowflakeOrder *order, uint32 number)
{
	int64		end = snowflake_monotonic_now() +
	Max(snowflake_max_wait, LEAST_WAIT_MS) * INT64CONST(1000);

	ConditionVariablePrepareToSleep(&snowflake_shared->changed);
	while ((int32) (pg_atomic_read_u32(&order->done) - number) < 0 &&
		   snowflake_monotonic_now() < end)
		ConditionVariableTimedSleep(&snowflake_shared->changed, LOOK_AGAIN_MS,
									snowflake_wait_event("SnowflakeOrder"));
	ConditionVariableCancelSleep();
	return (int32) (pg_atomic_read_u32(&order->done) - number) >= 0;
}

/*
 * Has the lease of this server's node number closed, if there is one.  A call
 * that is cancelled, or raises 55P03 since that takes too long, has it closed
 * all the same.
 */
Datum
snowflake_release(PG_FUNCTION_ARGS)
{
	SnowflakeOrder *order;
	uint32		number;

	snowflake_require_preload();
	PreventCommandDuringRecovery("snowflake_release()");
	if (snowflake_shared->refused)
		snowflake_report_problem(ERROR, &snowflake_shared->status.problem);

	order = &snowflake_shared->release;
	number = pg_atomic_fetch_add_u32(&order->asked, 1) + 1;
	pg_memory_barrier();
	snowflake_wake(&snowflake_shared->worker);
	if (!wait_for_order(order, number))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("the node number was not released in time"),
				 errhint("See pg_stat_snowflake and the server's log.")));
	pg_read_barrier();			/* failed is set before done */
	if (pg_atomic_read_u32(&order->failed) != 0)
		ereport(WARNING,
				(errmsg("the registry was not told that the lease has ended"),
				 errdetail("Other servers can have the node number when leased_until is past."),
				 errhint("See the server's log for the reason.")));
	PG_RETURN_VOID();
}
