/*
 * reader.c
 *	  Sessions read the leases on record: those of this cluster, from any
 *	  database and on a hot standby, or those of another registry.
 *
 * A session cannot look into another database, and its role need not be able
 * to.  So it starts a background worker, the reader, which makes the calls of
 * snowflake.list_leases() as the helper makes its calls, and sends each page
 * through a queue in dynamic shared memory.  The session waits interruptibly;
 * when it gives up, the reader is told to end.  The lease worker, its helper
 * and what they share have no part in this.
 *
 * There is one reader at a time, so that no number of sessions can take all
 * background workers from the helper: an advisory lock in no database, which
 * SQL cannot take.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/shm_mq.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "compat.h"
#include "guc.h"
#include "registry/reader.h"

#define QUEUE_SIZE		65536
#define LOCK_KEY		0x736E6F77	/* "snow" */

/* The first byte of a message. */
#define PAGE			'p'
#define PROBLEM			'x'

/*
 * The arrays of a page, its columns from the fourth on: node numbers, launched,
 * starts and ends of its leases.
 */
#define NUM_ARRAYS		4
#define NUMBERS			0
#define ENDS			3
/* More leases than a page has. */
#define MAX_LEASES		100000

typedef struct Channel
{
	bool		another;		/* ask the registry that is set; else this
								 * cluster */
	char		queue[FLEXIBLE_ARRAY_MEMBER] pg_attribute_aligned(MAXIMUM_ALIGNOF);
} Channel;

/*
 * The session
 */

static bool
is_last(bool another, const SnowflakeRow *page)
{
	/* the leases of a cluster that uses another registry are there */
	return page->columns[2] == NULL ||
		(!another && page->columns[1] != NULL);
}

static void
read_page(const char *message, Size size, SnowflakeRow *page)
{
	const char *at = message + 1;

	for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
	{
		int32		length;

		memcpy(&length, at, sizeof(length));
		at += sizeof(length);
		page->columns[i] = length < 0 ? NULL : pnstrdup(at, length);
		at += Max(length, 0);
	}
	Assert(at == message + size);
}

/* Until the last page, or what is wrong. */
static bool
take_pages(shm_mq_handle *queue, bool another, SnowflakePageTaker take,
		   void *arg, SnowflakeProblem *problem)
{
	MemoryContext context =
	AllocSetContextCreate(CurrentMemoryContext, "snowflake page",
						  ALLOCSET_DEFAULT_SIZES);
	bool		done = false;

	while (!done)
	{
		MemoryContext old;
		SnowflakeRow page;
		Size		size;
		void	   *message;

		if (shm_mq_receive(queue, &size, &message, false) != SHM_MQ_SUCCESS)
		{
			snowflake_problem_set(problem, ERRCODE_INSUFFICIENT_RESOURCES,
								  "the process that was to read the leases has ended",
								  NULL, "See the server's log.");
			break;
		}
		if (*(char *) message == PROBLEM)
		{
			memcpy(problem, (char *) message + 1, sizeof(*problem));
			break;
		}
		old = MemoryContextSwitchTo(context);
		read_page(message, size, &page);
		take(&page, arg);
		done = is_last(another, &page);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	return done;
}

static void
terminate_reader(int code, Datum arg)
{
	TerminateBackgroundWorker((BackgroundWorkerHandle *) DatumGetPointer(arg));
}

static void
fill_no_reader(SnowflakeProblem *problem)
{
	char		detail[64];

	snprintf(detail, sizeof(detail), "All %d of max_worker_processes are in use.",
			 max_worker_processes);
	snowflake_problem_set(problem, ERRCODE_INSUFFICIENT_RESOURCES,
						  "no background worker could be started to read the leases",
						  detail,
						  "Try again, or raise max_worker_processes.");
}

/*
 * Reads all leases that are on record in this cluster, or in the other
 * registry that is set.  False with the problem, if that cannot be done.
 */
bool
snowflake_leases_read(bool another, SnowflakePageTaker take, void *arg,
					  SnowflakeProblem *problem)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "snowflake",
		.bgw_function_name = CppAsString(snowflake_reader_main),
		.bgw_name = "snowflake reader",
		.bgw_type = "snowflake reader",
		.bgw_notify_pid = MyProcPid,
	};
	BackgroundWorkerHandle *handle;
	LOCKTAG		tag;
	dsm_segment *segment;
	Channel    *channel;
	bool		done = false;

	SET_LOCKTAG_ADVISORY(tag, InvalidOid, LOCK_KEY, 0, 2);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	segment = dsm_create(offsetof(Channel, queue) + QUEUE_SIZE, 0);
	channel = dsm_segment_address(segment);
	channel->another = another;
	shm_mq_set_receiver(shm_mq_create(channel->queue, QUEUE_SIZE), MyProc);
	worker.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(segment));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		fill_no_reader(problem);
	else
	{
		PG_ENSURE_ERROR_CLEANUP(terminate_reader, PointerGetDatum(handle));
		{
			done = take_pages(shm_mq_attach((shm_mq *) channel->queue, segment,
											handle),
							  another, take, arg, problem);
			(void) WaitForBackgroundWorkerShutdown(handle);
		}
		PG_END_ENSURE_ERROR_CLEANUP(terminate_reader, PointerGetDatum(handle));
	}
	dsm_detach(segment);
	(void) LockRelease(&tag, ExclusiveLock, false);
	return done;
}

/*
 * The reader
 */

static shm_mq_handle *queue = NULL;

/* What the reader ends with, if anything. */
static SnowflakeProblem fatal;

/* A page is under way: if that is cut off, nothing else can follow it. */
static bool sending = false;

static emit_log_hook_type previous_log_hook = NULL;

/*
 * The session is told what the reader ends with, and the log is not.
 */
static void
note_error(ErrorData *edata)
{
	if (edata->elevel >= FATAL)
	{
		snowflake_problem_set(&fatal, edata->sqlerrcode, edata->message,
							  edata->detail, edata->hint);
		edata->output_to_server = false;
	}
	else
		snowflake_problem_mark_log(edata);
	if (previous_log_hook)
		previous_log_hook(edata);
}

/* False: the session is gone. */
static bool
send_problem(const SnowflakeProblem *problem, bool nowait)
{
	char		message[1 + sizeof(SnowflakeProblem)];

	message[0] = PROBLEM;
	memcpy(message + 1, problem, sizeof(*problem));
	return shm_mq_send(queue, sizeof(message), message, nowait,
					   true) == SHM_MQ_SUCCESS;
}

static bool
send_page(const SnowflakeRow *page)
{
	StringInfoData message;
	bool		sent;

	initStringInfo(&message);
	appendStringInfoChar(&message, PAGE);
	for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
	{
		const char *value = page->columns[i];
		int32		length = value == NULL ? -1 : (int32) strlen(value);

		appendBinaryStringInfo(&message, (const char *) &length,
							   sizeof(length));
		if (value != NULL)
			appendBinaryStringInfo(&message, value, length);
	}
	sending = true;
	sent = shm_mq_send(queue, message.len, message.data, false,
					   true) == SHM_MQ_SUCCESS;
	sending = false;
	return sent;
}

/* The postmaster would log an exit code; what there is to say is said. */
static void
end_reader(int code, Datum arg)
{
	if (fatal.sqlerrcode != 0 && !sending)
		(void) send_problem(&fatal, true);
	if (code == 1)
		proc_exit(0);
}

/* The next element of an array of numbers; false if there is none. */
static bool
next_element(const char **at, bool *null, int64 *number)
{
	*null = strncmp(*at, "NULL", 4) == 0;
	if (*null)
		*at += 4;
	else if (!snowflake_number_scan(at, number))
		return false;
	if (**at == ',')
		return *++*at != '}';
	return **at == '}';
}

/*
 * Whether the arrays of a page have one element for each lease: a number from
 * first to before next, and times.
 */
static bool
are_leases(char *const *arrays, int64 first, int64 next, int *num)
{
	const char *at[NUM_ARRAYS];

	for (int i = 0; i < NUM_ARRAYS; i++)
	{
		at[i] = arrays[i];
		if (at[i] == NULL || *at[i]++ != '{')
			return false;
	}
	for (*num = 0; *at[0] != '}'; (*num)++)
	{
		for (int i = 0; i < NUM_ARRAYS; i++)
		{
			int64		number;
			bool		null;

			if (!next_element(&at[i], &null, &number))
				return false;
			if (null)
			{
				/* a row that was handed over has no start */
				if (i == NUMBERS || i == ENDS)
					return false;
			}
			else if (i == NUMBERS ? number < first || number >= next :
					 !snowflake_time_is_usable(number))
				return false;
		}
	}
	for (int i = 0; i < NUM_ARRAYS; i++)
		if (strcmp(at[i], "}") != 0)
			return false;
	return *num <= MAX_LEASES;
}

/*
 * A page is one if the reader comes nearer to the end with it: its leases are
 * those of the numbers from the first to before the next, which is greater.
 */
static void
check_page(const SnowflakeRow *page, const char *first_number)
{
	char	   *const *columns = page->columns;
	const char *text = columns[2];
	int64		first = strtoll(first_number, NULL, 10);
	int64		next = PG_INT64_MAX;
	int			num;

	if (snowflake_is_uuid(columns[0]) && snowflake_is_uuid(columns[1]) &&
		(text == NULL || (snowflake_number_scan(&text, &next) &&
						  *text == '\0' && next > first)) &&
		are_leases(columns + 3, first, next, &num) &&
		(num > 0 || columns[2] == NULL))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("the answer of the registry is not valid"),
			 errdetail("It does not have the leases of the node numbers from %s up.", first_number),
			 errhint(SNOWFLAKE_ANSWER_HINT)));
}

/* One page; false with the problem. */
static bool
call_registry(bool another, const char *first_number, SnowflakeRow *page,
			  SnowflakeProblem *problem)
{
	MemoryContext context = CurrentMemoryContext;
	SnowflakeResult result;
	SnowflakeQuery query;
	volatile SnowflakeResultKind kind = SNOWFLAKE_RESULT_FAILED;
	volatile bool valid = false;

	memset(&result, 0, sizeof(result));
	PG_TRY();
	{
		snowflake_query_list_leases(first_number, &query);
		kind = another ?
			snowflake_remote_run(snowflake_registry, &query, page, &result) :
			snowflake_local_run(&query, page, &result);
		if (kind == SNOWFLAKE_RESULT_OK)
			check_page(page, first_number);
		valid = kind == SNOWFLAKE_RESULT_OK;
		if (kind == SNOWFLAKE_RESULT_MISSING)
			snowflake_problem_set(&result.problem,
								  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
								  "the extension is missing in the database \"postgres\"",
								  NULL,
								  "Its tables there record the leases; the first id creates them.");
	}
	PG_CATCH();
	{
		snowflake_problem_catch(&result.problem, context);
		if (IsTransactionState() || IsTransactionOrTransactionBlock())
			AbortCurrentTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	*problem = result.problem;
	return valid;
}

void
snowflake_reader_main(Datum arg)
{
	MemoryContext context;
	dsm_segment *segment;
	Channel    *channel;
	char		first_number[32] = "0";
	bool		more = true;

	pqsignal(SIGHUP, PG_SIG_IGN);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	segment = dsm_attach(DatumGetUInt32(arg));
	if (segment == NULL)
		proc_exit(0);			/* the session has given up */
	channel = dsm_segment_address(segment);
	shm_mq_set_sender((shm_mq *) channel->queue, MyProc);
	queue = shm_mq_attach((shm_mq *) channel->queue, segment, NULL);
	before_shmem_exit(end_reader, (Datum) 0);
	/* the hook is called for what may go to the log */
	SetConfigOption("log_min_messages", "warning", PGC_SUSET, PGC_S_OVERRIDE);
	previous_log_hook = emit_log_hook;
	emit_log_hook = note_error;

	context = AllocSetContextCreate(TopMemoryContext, "snowflake reader",
									ALLOCSET_DEFAULT_SIZES);
	while (more)
	{
		SnowflakeProblem problem;
		SnowflakeRow page;

		MemoryContextSwitchTo(context);
		if (!call_registry(channel->another, first_number, &page, &problem))
		{
			(void) send_problem(&problem, false);
			break;
		}
		more = send_page(&page) && !is_last(channel->another, &page);
		if (more)
			strlcpy(first_number, page.columns[2], sizeof(first_number));
		MemoryContextSwitchTo(TopMemoryContext);
		MemoryContextReset(context);
	}
	proc_exit(0);
}
