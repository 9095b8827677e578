/*
 * order_functions.c
 *	  The SQL-callable functions that tell the holder what to do.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"

#include "clock.h"
#include "compat.h"
#include "generator.h"
#include "guc.h"
#include "lease.h"
#include "words.h"

PG_FUNCTION_INFO_V1(snowflake_change_source);
PG_FUNCTION_INFO_V1(snowflake_creating);
PG_FUNCTION_INFO_V1(snowflake_release);

#define LOOK_AGAIN_MS	100L
/* Even if snowflake.max_wait is less, which is about draws. */
#define LEAST_WAIT_MS	5000

/* Nobody waits for an order any more: it is not to be carried out later. */
static void
withdraw_order(int code, Datum order)
{
	pg_atomic_write_u32((pg_atomic_uint32 *) DatumGetPointer(order), 0);
	ConditionVariableCancelSleep();
}

/*
 * Gives an order and waits until it is carried out, for some seconds and at most
 * for snowflake.max_wait; false if it is not by then, and withdrawn.
 */
static bool
give_order(pg_atomic_uint32 *order)
{
	int64		end = snowflake_monotonic_now() + Max(snowflake_max_wait, LEAST_WAIT_MS) * INT64CONST(1000);
	uint32		none = 0;
	bool		done;

	if (!pg_atomic_compare_exchange_u32(order, &none, 1))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another session is doing the same"),
				 errhint("Wait until it has ended, and try again if it failed.")));
	PG_ENSURE_ERROR_CLEANUP(withdraw_order, PointerGetDatum(order));
	{
		snowflake_lease_wake();
		ConditionVariablePrepareToSleep(&snowflake_shared->changed);
		while (pg_atomic_read_u32(order) != 0 && snowflake_monotonic_now() < end)
			ConditionVariableTimedSleep(&snowflake_shared->changed, LOOK_AGAIN_MS,
										snowflake_wait_event("SnowflakeOrder"));
		ConditionVariableCancelSleep();
		done = pg_atomic_exchange_u32(order, 0) == 0;
	}
	PG_END_ENSURE_ERROR_CLEANUP(withdraw_order, PointerGetDatum(order));
	return done;
}

static void
report_not_done(const char *message)
{
	SnowflakeStatus status;

	snowflake_status_get(&snowflake_shared->slots[0], &status);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg_internal("%s", message),
			 status.problem.message[0] != '\0' ? errdetail_internal("%s", status.problem.message) : 0,
			 errhint("See pg_stat_snowflake and the server's log, and try again.")));
}

/* Hands the node number back; returns it, NULL if there is none. */
Datum
snowflake_release(PG_FUNCTION_ARGS)
{
	uint64		node;

	snowflake_require_preload();
	if (!snowflake_words_node(&node))
		PG_RETURN_NULL();
	if (!give_order(&snowflake_shared->orders.release))
		report_not_done("the node number was not released in time");
	PG_RETURN_INT64((int64) node);
}

/* Lets the node number come from where the settings say now. */
Datum
snowflake_change_source(PG_FUNCTION_ARGS)
{
	snowflake_require_preload();
	if (!give_order(&snowflake_shared->orders.change_source))
		report_not_done("no node number was taken from the new source in time");
	PG_RETURN_VOID();
}

static bool created = false;

/* Once the extension is there, perhaps with the table that the holder waits for. */
static void
look_at_commit(XactEvent event, void *arg)
{
	if (!created || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT))
		return;
	created = false;
	if (event == XACT_EVENT_ABORT)
		return;
	pg_atomic_write_u32(&snowflake_shared->orders.look, 1);
	snowflake_lease_wake();
}

/*
 * For the install script only, which drops it again: says once what is missing
 * (everything else about it is said by the draws), and lets the holder know.
 */
Datum
snowflake_creating(PG_FUNCTION_ARGS)
{
	static bool registered = false;

	if (snowflake_shared == NULL)
	{
		ereport(WARNING,
				(errmsg("snowflake is not loaded via shared_preload_libraries"),
				 errdetail("Ids can be parsed, but none can be drawn."),
				 errhint("Add snowflake to shared_preload_libraries in postgresql.conf and restart the server.")));
		PG_RETURN_VOID();
	}
	if (!registered)
		RegisterXactCallback(look_at_commit, NULL);
	registered = true;
	created = true;
	PG_RETURN_VOID();
}
