/*
 * helper.c
 *	  The process that calls the registry for the lease worker.
 *
 * One helper waits, connected to nothing, so that a call needs neither a free
 * slot for background workers nor a fork, and so that a lease can be closed
 * while the server stops, when no process is started any more.  A helper that
 * has connected to the database postgres, for the own tables, goes some
 * seconds after its last call: until then the database cannot be dropped.
 *
 * The mailbox in shared memory has room for one call.  A result belongs to a
 * call by its number: the lease worker never takes the result of another call.
 * If the helper ends without one, the call failed, and may have been carried
 * out.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "clock.h"
#include "compat.h"
#include "registry/helper.h"
#include "shmem.h"

/* How long a connected helper stays after its last call. */
#define STAY_US			(3 * USECS_PER_SEC)
/*
 * How long it waits for the lease worker's last call while the server stops.
 */
#define LAST_WAIT_US	(900 * INT64CONST(1000))
#define LOOK_AGAIN_MS	10L

/*
 * The call that the helper is to make, and its result; one at a time.
 * Protected by SnowflakeShared.lock, but for the process number.
 */
typedef struct Mailbox
{
	pg_atomic_uint32 helper;	/* 1 + process number of the helper, 0: none */
	uint64		asked;			/* number of the last call; 0: none yet */
	uint64		done;			/* number of the last call with a result */
	SnowflakeCall call;
	SnowflakeResult result;
} Mailbox;

static Mailbox *mailbox = NULL;

static emit_log_hook_type previous_log_hook = NULL;

/* The call that this process carries out, 0: none; and what comes of it. */
static uint64 call_number = 0;
static SnowflakeResult call_result;

/* This process is connected to the database. */
static bool connected = false;

Size
snowflake_helper_shmem_size(void)
{
	return CACHELINEALIGN(sizeof(Mailbox));
}

/* For the startup hook, which holds AddinShmemInitLock. */
void
snowflake_helper_shmem_create(void)
{
	bool		found;

	mailbox = ShmemInitStruct("snowflake helper", sizeof(Mailbox), &found);
	if (found)
		return;
	memset(mailbox, 0, sizeof(Mailbox));
	pg_atomic_init_u32(&mailbox->helper, 0);
}

/* Whether there is a helper. */
bool
snowflake_helper_is_there(void)
{
	return pg_atomic_read_u32(&mailbox->helper) != 0;
}

/*
 * Has a helper started, unless one is there or on its way.  If there is no
 * slot for it, or the server is stopping, none comes; the lease worker calls
 * this again.
 */
void
snowflake_helper_prepare(void)
{
	static BackgroundWorkerHandle *handle = NULL;
	BackgroundWorker worker = {
		SNOWFLAKE_BACKGROUND_WORKER("snowflake helper", snowflake_helper_main),
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_notify_pid = MyProcPid,
	};
	MemoryContext context;
	pid_t		pid;

	if (snowflake_helper_is_there())
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

/* Leaves a call for the helper.  A call before it is forgotten. */
void
snowflake_helper_ask(const SnowflakeCall *call)
{
	LWLockAcquire(snowflake_shared->lock, LW_EXCLUSIVE);
	mailbox->asked = call->number;
	mailbox->call = *call;
	LWLockRelease(snowflake_shared->lock);
	snowflake_wake(&mailbox->helper);
}

/* Gives the result of a call, if it is there. */
bool
snowflake_helper_result(uint64 asked, SnowflakeResult *to)
{
	bool		done;

	LWLockAcquire(snowflake_shared->lock, LW_SHARED);
	done = mailbox->done == asked;
	if (done)
		*to = mailbox->result;
	LWLockRelease(snowflake_shared->lock);
	return done;
}

/*
 * Takes the call that waits, if any.  leave: it may take long, and is for a
 * helper that is not connected.
 */
static bool
take_call(SnowflakeCall *call, bool *leave)
{
	bool		waits;

	LWLockAcquire(snowflake_shared->lock, LW_SHARED);
	waits = mailbox->asked != mailbox->done;
	*leave = waits && connected && !mailbox->call.last &&
		mailbox->call.registry[0] != '\0';
	if (*leave)
		waits = false;
	if (waits)
	{
		call_number = mailbox->asked;
		*call = mailbox->call;
	}
	LWLockRelease(snowflake_shared->lock);
	return waits;
}

/*
 * Leaves the result, unless the lease worker has asked something else
 * meanwhile.
 */
static void
leave_result(void)
{
	LWLockAcquire(snowflake_shared->lock, LW_EXCLUSIVE);
	if (mailbox->asked == call_number)
	{
		mailbox->done = call_number;
		mailbox->result = call_result;
	}
	LWLockRelease(snowflake_shared->lock);
	call_number = 0;
	snowflake_wake(&snowflake_shared->worker);
}

/*
 * The result of a helper that ends before it has one is its last error.  The
 * lease worker logs it, and not each time.
 */
static void
note_error(ErrorData *edata)
{
	if (edata->elevel >= FATAL && call_number != 0)
	{
		const char *hint = edata->hint;

		if (edata->sqlerrcode == ERRCODE_UNDEFINED_DATABASE)
			hint = "Create it: the tables that grant leases are always in the database postgres.";
		snowflake_result_error(&call_result, edata->sqlerrcode, edata->message,
							   edata->detail, hint);
		edata->output_to_server = false;
	}
	if (previous_log_hook)
		previous_log_hook(edata);
}

static void
end_helper(int code, Datum arg)
{
	bool		told = call_number != 0;

	if (told)
		leave_result();
	pg_atomic_write_u32(&mailbox->helper, 0);
	snowflake_wake(&snowflake_shared->worker);

	/*
	 * The postmaster logs an exit code each time.  A FATAL error, such as
	 * that of a database that is missing, cannot be caught, so its code can
	 * be changed here only: proc_exit() goes on with the callbacks that are
	 * left.
	 */
	if (told && code == 1)
		proc_exit(0);
}

static void
start_helper(void)
{
	uint32		none = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	if (!pg_atomic_compare_exchange_u32(&mailbox->helper, &none,
										snowflake_my_proc_number() + 1))
		proc_exit(0);			/* there is another one */
	before_shmem_exit(end_helper, (Datum) 0);
	/* the hook and local.c's note_warning() see what may go to the log */
	SetConfigOption("log_min_messages", "warning", PGC_SUSET, PGC_S_OVERRIDE);
	previous_log_hook = emit_log_hook;
	emit_log_hook = note_error;
}

/*
 * Waits for a call.  False if none comes: the lease worker is gone, the server
 * is stopping and it has nothing to say, or this process has been connected
 * for long enough.
 *
 * Settings are read here only, between two transactions: what a call says is in
 * the call, but how it is committed is in the settings.
 */
static bool
wait_for_call(SnowflakeCall *call)
{
	int64		begin = snowflake_monotonic_now();
	int64		stopping = 0;
	bool		leave;

	for (;;)
	{
		int64		now = snowflake_monotonic_now();

		ResetLatch(MyLatch);
		QueryCancelPending = false; /* there is nothing to cancel */
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (take_call(call, &leave))
			return true;
		if (leave)
			return false;
		if (ShutdownRequestPending && stopping == 0)
			stopping = now;
		if (stopping != 0 &&
			(pg_atomic_read_u32(&snowflake_shared->worker) == 0 ||
			 now - stopping > LAST_WAIT_US))
			return false;
		if (connected && now - begin > STAY_US)
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH |
						 (stopping != 0 || connected ? WL_TIMEOUT : 0),
						 stopping != 0 ? LOOK_AGAIN_MS :
						 (begin + STAY_US - now) / 1000 + 1,
						 snowflake_wait_event("SnowflakeHelper"));
	}
}

/* Carries out a call; errors become its result. */
static void
carry_out(SnowflakeCall *call)
{
	MemoryContext context =
	AllocSetContextCreate(TopMemoryContext, "snowflake call",
						  ALLOCSET_DEFAULT_SIZES);
	SnowflakeResultKind kind = SNOWFLAKE_RESULT_FAILED;

	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		SnowflakeQuery query;
		SnowflakeRow row;

		snowflake_query_build(call, &query);
		if (call->registry[0] != '\0')
			kind = snowflake_remote_run(call->registry, &query, &row, &call_result);
		else
		{
			connected = true;
			kind = snowflake_local_run(&query, &row, &call_result);
		}
		if (kind == SNOWFLAKE_RESULT_OK)
			kind = snowflake_row_read(call, &row, &call_result);
	}
	PG_CATCH();
	{
		SnowflakeProblem problem;

		snowflake_problem_catch(&problem, context);
		if (IsTransactionState() || IsTransactionOrTransactionBlock())
			AbortCurrentTransaction();
		snowflake_result_error(&call_result, problem.sqlerrcode, problem.message,
							   problem.detail, problem.hint);
		kind = SNOWFLAKE_RESULT_FAILED;
	}
	PG_END_TRY();

	/* set last of all: what is broken off anywhere has failed */
	call_result.kind = kind;
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(context);
}

void
snowflake_helper_main(Datum arg)
{
	SnowflakeCall call;

	start_helper();
	while (wait_for_call(&call))
	{
		memset(&call_result, 0, sizeof(call_result));
		snowflake_result_error(&call_result, ERRCODE_QUERY_CANCELED,
							   "a call of the registry was interrupted", NULL,
							   NULL);

		/*
		 * During a call a signal ends it, but for the last one of all.  One
		 * of another registry it only breaks off (remote.c), so that this
		 * process is there for the last one.
		 */
		if (!call.last)
		{
			if (call.registry[0] == '\0')
				pqsignal(SIGTERM, die);
			if (ShutdownRequestPending)
				proc_exit(0);
		}
		carry_out(&call);
		leave_result();
		/* for autovacuum: with a fixed number, this process need never end */
		if (connected)
			(void) pgstat_report_stat(true);
		pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
		if (ProcDiePending)
			proc_exit(0);
	}
	proc_exit(0);
}
