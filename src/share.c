/*
 * share.c
 *	  Which share of the backfilled ids is this database's: two databases whose ids may
 *	  meet have different ones, and each the same for ever.
 *
 * The registry that the server's leases come from knows.  A session asks it once, by a
 * background worker of its own: the table can be in another database, and what it answers
 * must be durable whatever becomes of the session's transaction.  Call and answer lie in
 * a segment of shared memory that lives as long as one of the two needs it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/uuid.h"

#include "clock.h"
#include "compat.h"
#include "floor.h"
#include "generator.h"
#include "guc.h"
#include "registry.h"
#include "share.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(snowflake_ask_backfill_share);

/* If there is no room for one more background worker, look again after this. */
#define LOOK_AGAIN_MS	100L

typedef struct Inquiry
{
	SnowflakeCall call;
	SnowflakeAnswer answer;		/* written by the worker, read when it has
								 * ended */
} Inquiry;

/* The background worker: carries out one call. */
void
snowflake_share_worker_main(Datum arg)
{
	dsm_segment *segment;
	Inquiry    *inquiry;
	SnowflakeAnswer answer;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	segment = dsm_attach(DatumGetUInt32(arg));
	if (segment == NULL)
		proc_exit(0);			/* nobody waits any more */
	dsm_pin_mapping(segment);
	inquiry = dsm_segment_address(segment);
	answer = inquiry->answer;
	if (inquiry->call.remote)
	{
		BackgroundWorkerInitializeConnection(NULL, NULL, 0);
		snowflake_call_remote(&inquiry->call, &answer);
	}
	else
		snowflake_call_local(&inquiry->call, &answer);
	inquiry->answer = answer;
	proc_exit(0);
}

/* Has a worker carry out the call, and waits until it has ended; can be interrupted. */
static void
run_worker(dsm_segment *segment)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "snowflake",
		.bgw_function_name = CppAsString(snowflake_share_worker_main),
		.bgw_name = "snowflake share worker",
		.bgw_type = "snowflake share worker",
		.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(segment)),
		.bgw_notify_pid = MyProcPid,
	};
	BackgroundWorkerHandle *handle;
	int64		end = snowflake_monotonic_now() + (int64) snowflake_max_wait * 1000;

	while (!RegisterDynamicBackgroundWorker(&worker, &handle))
	{
		if (snowflake_monotonic_now() >= end)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("no background worker is free to ask for this database's share of backfilled ids"),
					 errdetail("snowflake.max_wait is %.3f s.", snowflake_max_wait / 1e3),
					 errhint("Raise max_worker_processes, or try again.")));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LOOK_AGAIN_MS,
						 snowflake_wait_event("SnowflakeShare"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	if (WaitForBackgroundWorkerShutdown(handle) == BGWH_POSTMASTER_DIED)
		proc_exit(1);
}

/* Another transaction is about to create the tables that are to be asked. */
static void
report_creating(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("the extension is being created in database \"%s\"", snowflake_database),
			 errhint("Try again when that is committed.")));
}

/* Asks the registry.  Raises its errors, and those of not reaching it (55P03). */
static int32
ask_share(const SnowflakeHome *home, const pg_uuid_t *asker)
{
	dsm_segment *segment = dsm_create(sizeof(Inquiry), 0);
	Inquiry    *inquiry = dsm_segment_address(segment);
	SnowflakeAnswer answer;

	memset(inquiry, 0, sizeof(*inquiry));
	inquiry->call.kind = SNOWFLAKE_SHARE;
	inquiry->call.remote = home->registry[0] != '\0';
	strlcpy(inquiry->call.registry, home->registry, sizeof(inquiry->call.registry));
	inquiry->call.incarnation = home->incarnation;
	inquiry->call.create = true;
	inquiry->call.database = MyDatabaseId;
	inquiry->call.asker = *asker;
	inquiry->call.generation = snowflake_floor_generation();
	snowflake_answer_error(&inquiry->answer, ERRCODE_LOCK_NOT_AVAILABLE,
						   "this database's share of backfilled ids could not be asked for", NULL,
						   "See the server's log.");
	run_worker(segment);
	answer = inquiry->answer;
	dsm_detach(segment);

	if (answer.kind == SNOWFLAKE_ANSWER_BUSY)
		report_creating();
	if (answer.kind != SNOWFLAKE_ANSWER_OK)
		snowflake_report_problem(ERROR, &answer.problem);
	return (int32) answer.node;
}

/*
 * Where the server's leases come from.  An id is drawn first: who may not draw, since the
 * settings name another registry than ids came from before, say, gets that error.
 */
static void
find_home(SnowflakeHome *home)
{
	if (!IsUnderPostmaster)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("ids for old rows are not made up in single-user mode"),
				 errdetail("There is nobody to ask for this database's share of them."),
				 errhint("Start the server, and make them up there.")));
	(void) snowflake_draw(snowflake_default_generator());
	snowflake_home_get(home);
	if (!home->known)
		report_creating();
}

/*
 * The share of this database, from 0, for the extension that was made as an incarnation.
 * Raises 25006 on a standby and in a read-only transaction, the errors of a draw, the
 * registry's, and those of ask_share.
 */
Datum
snowflake_ask_backfill_share(PG_FUNCTION_ARGS)
{
	static bool known = false;
	static int32 share;
	static SnowflakeHome asked;
	static pg_uuid_t asker;
	pg_uuid_t  *incarnation = PG_GETARG_UUID_P(0);
	SnowflakeHome home;

	snowflake_require_preload();
	PreventCommandDuringRecovery("snowflake_backfill_id()");
	PreventCommandIfReadOnly("snowflake_backfill_id()");
	snowflake_home_get(&home);
	if (!known || memcmp(&asker, incarnation, sizeof(asker)) != 0 ||
		memcmp(&asked.incarnation, &home.incarnation, sizeof(asked.incarnation)) != 0)
	{
		known = false;
		find_home(&asked);
		asker = *incarnation;
		share = ask_share(&asked, &asker);
		known = true;
	}
	PG_RETURN_INT32(share);
}
