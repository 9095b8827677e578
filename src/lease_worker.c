/*
 * lease_worker.c
 *	  The background worker that holds this server's leases: a loop around
 *	  snowflake_holder_pass.
 *
 * It is connected to no database, so it blocks no DROP DATABASE.  When it is
 * stopped it seals the words, records the exact end and has the helper tell the
 * registry; the postmaster starts it again unless the server is shutting down.  If it
 * fails, the words stay as they are: their lease lives on until the bound, and the next
 * worker goes on with it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"

#include "clock.h"
#include "compat.h"
#include "holder.h"
#include "lease_worker.h"
#include "shmem.h"

#define RESTART_SECONDS		1

/* How long the registry's answer to the last call is waited for. */
#define LAST_ANSWER_US		(1500 * INT64CONST(1000))
#define LAST_ANSWER_PASS_MS	20L

/* Drawers have nobody to wake any more. */
static void
forget_worker(int code, Datum arg)
{
	pg_atomic_write_u32(&snowflake_shared->worker, 0);
}

static void
start_worker(void)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, PG_SIG_IGN);	/* there is nothing to cancel */
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	/* no database, but visible in pg_stat_activity */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("snowflake lease worker");

	before_shmem_exit(forget_worker, (Datum) 0);
	pg_atomic_write_u32(&snowflake_shared->worker, snowflake_my_proc_number() + 1);
}

/* Ends the lease.  Never long: what cannot be told the registry can be told later. */
static void
stop_worker(void)
{
	int64		end = snowflake_monotonic_now() + LAST_ANSWER_US;

	while (snowflake_holder_stop() && snowflake_monotonic_now() < end)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 LAST_ANSWER_PASS_MS, snowflake_wait_event("SnowflakeLease"));
		ResetLatch(MyLatch);
	}
}

void
snowflake_lease_worker_main(Datum arg)
{
	start_worker();
	while (!ShutdownRequestPending)
	{
		long		timeout;

		/*
		 * before the work, so that what asks for more of it meanwhile is not
		 * lost
		 */
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		timeout = snowflake_holder_pass();
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (timeout >= 0 ? WL_TIMEOUT : 0),
						 timeout, snowflake_wait_event("SnowflakeLease"));
	}
	stop_worker();

	/* not 0: after pg_terminate_backend() the worker is wanted again */
	proc_exit(1);
}

void
snowflake_lease_worker_register(void)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = RESTART_SECONDS,
		.bgw_library_name = "snowflake",
		.bgw_function_name = CppAsString(snowflake_lease_worker_main),
		.bgw_name = "snowflake lease worker",
		.bgw_type = "snowflake lease worker",
	};

	RegisterBackgroundWorker(&worker);
}
