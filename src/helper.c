/*
 * helper.c
 *	  The short-lived process that carries out the holder's calls.
 *
 * One helper waits, connected to nothing, so that a call needs neither a free
 * slot for background workers nor a fork, and so that a lease can be released
 * while the server stops, when no process is started any more.  It connects,
 * carries out one call, leaves the answer and exits; the holder has the next one
 * started.
 *
 * The desk in shared memory has room for one call.  An answer belongs to a call
 * by its number: the holder never takes the answer to another call.  If the
 * helper ends without an answer, the call failed, and may have been carried out.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "clock.h"
#include "compat.h"
#include "helper.h"

/* How long a helper waits for the lease worker to say something while the server stops. */
#define LAST_WAIT_US	(2 * USECS_PER_SEC)
#define LOOK_AGAIN_MS	10L

static emit_log_hook_type previous_log_hook = NULL;

/* The call being carried out: 0 none. */
static uint32 number = 0;
static SnowflakeAnswer answer;

static void
wake(pg_atomic_uint32 *process)
{
	uint32		one_more = pg_atomic_read_u32(process);

	if (one_more != 0)
		SetLatch(&GetPGProcByNumber(one_more - 1)->procLatch);
}

/*
 * Has a helper started, unless one is there or on its way.  If there is no slot
 * for it, or the server is stopping, none comes; the holder calls this again.
 */
void
snowflake_helper_prepare(void)
{
	static BackgroundWorkerHandle *handle = NULL;
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "snowflake",
		.bgw_function_name = CppAsString(snowflake_helper_main),
		.bgw_name = "snowflake helper",
		.bgw_type = "snowflake helper",
		.bgw_notify_pid = MyProcPid,
	};
	MemoryContext context;
	pid_t		pid;

	if (pg_atomic_read_u32(&snowflake_shared->helper) != 0)
		return;
	if (handle != NULL)
	{
		BgwHandleStatus status = GetBackgroundWorkerPid(handle, &pid);

		if (status == BGWH_STARTED || status == BGWH_NOT_YET_STARTED)
			return;
		pfree(handle);
		handle = NULL;
	}
	context = MemoryContextSwitchTo(TopMemoryContext);
	(void) RegisterDynamicBackgroundWorker(&worker, &handle);
	MemoryContextSwitchTo(context);
}

/* Leaves a call for the helper and returns its number.  A call before is forgotten. */
uint32
snowflake_helper_ask(const SnowflakeCall *call)
{
	SnowflakeDesk *desk = &snowflake_shared->desk;
	uint32		asked;

	LWLockAcquire(snowflake_shared->lock, LW_EXCLUSIVE);
	desk->asked = desk->asked == PG_UINT32_MAX ? 1 : desk->asked + 1;
	asked = desk->asked;
	desk->call = *call;
	LWLockRelease(snowflake_shared->lock);
	wake(&snowflake_shared->helper);
	return asked;
}

/* Gives the answer to a call, if it is there. */
bool
snowflake_helper_answered(uint32 asked, SnowflakeAnswer *result)
{
	SnowflakeDesk *desk = &snowflake_shared->desk;
	bool		answered;

	LWLockAcquire(snowflake_shared->lock, LW_SHARED);
	answered = desk->answered == asked;
	if (answered)
		*result = desk->answer;
	LWLockRelease(snowflake_shared->lock);
	return answered;
}

/* Takes the call that waits, if any. */
static bool
take_call(SnowflakeCall *call)
{
	SnowflakeDesk *desk = &snowflake_shared->desk;
	bool		waits;

	LWLockAcquire(snowflake_shared->lock, LW_SHARED);
	waits = desk->asked != desk->answered;
	if (waits)
	{
		number = desk->asked;
		*call = desk->call;
	}
	LWLockRelease(snowflake_shared->lock);
	return waits;
}

/* Leaves the answer, unless the holder has asked something else meanwhile. */
static void
leave_answer(void)
{
	SnowflakeDesk *desk = &snowflake_shared->desk;

	LWLockAcquire(snowflake_shared->lock, LW_EXCLUSIVE);
	if (desk->asked == number)
	{
		desk->answered = number;
		desk->answer = answer;
	}
	LWLockRelease(snowflake_shared->lock);
	number = 0;
}

/*
 * The answer of a helper that ends before it has one is its last error.  The
 * lease worker logs it, and not each time.
 */
static void
note_error(ErrorData *edata)
{
	if (edata->elevel >= ERROR && number != 0)
	{
		const char *hint = edata->hint;

		if (edata->sqlerrcode == ERRCODE_UNDEFINED_DATABASE)
			hint = "Create it, or set snowflake.database to one that is always there and restart the server.";
		snowflake_answer_error(&answer, edata->sqlerrcode, edata->message, edata->detail, hint);
		edata->output_to_server = false;
	}
	if (previous_log_hook)
		previous_log_hook(edata);
}

static void
end_helper(int code, Datum arg)
{
	if (number != 0)
		leave_answer();
	pg_atomic_write_u32(&snowflake_shared->helper, 0);
	wake(&snowflake_shared->worker);
}

static void
start_helper(void)
{
	uint32		none = 0;

	pqsignal(SIGHUP, PG_SIG_IGN);	/* what matters is in the call */
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	if (!pg_atomic_compare_exchange_u32(&snowflake_shared->helper, &none,
										snowflake_my_proc_number() + 1))
		proc_exit(0);			/* there is another one */
	before_shmem_exit(end_helper, (Datum) 0);
	/* the hook is called for what may go to the log */
	SetConfigOption("log_min_messages", "warning", PGC_SUSET, PGC_S_OVERRIDE);
	previous_log_hook = emit_log_hook;
	emit_log_hook = note_error;
}

/*
 * Waits for a call.  False if none comes: the lease worker is gone, or the
 * server is stopping and it has nothing to say.
 */
static bool
wait_for_call(SnowflakeCall *call)
{
	int64		stopping = 0;

	for (;;)
	{
		ResetLatch(MyLatch);
		if (take_call(call))
			return true;
		if (ShutdownRequestPending && stopping == 0)
			stopping = snowflake_monotonic_now();
		if (stopping != 0 && (pg_atomic_read_u32(&snowflake_shared->worker) == 0 ||
							  snowflake_monotonic_now() - stopping > LAST_WAIT_US))
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (stopping != 0 ? WL_TIMEOUT : 0),
						 LOOK_AGAIN_MS, snowflake_wait_event("SnowflakeHelper"));
	}
}

void
snowflake_helper_main(Datum arg)
{
	SnowflakeCall call;

	memset(&answer, 0, sizeof(answer));
	snowflake_answer_error(&answer, ERRCODE_LOCK_NOT_AVAILABLE,
						   "a call to the registry was interrupted", NULL, NULL);
	start_helper();
	if (!wait_for_call(&call))
		proc_exit(0);

	/* from here on a signal ends the call, but for the last one of all */
	if (!call.last)
	{
		pqsignal(SIGTERM, die);
		if (ShutdownRequestPending)
			proc_exit(0);
	}
	if (call.remote)
	{
		BackgroundWorkerInitializeConnection(NULL, NULL, 0);
		snowflake_call_remote(&call, &answer);
	}
	else
		snowflake_call_local(&call, &answer);
	leave_answer();
	proc_exit(0);
}
