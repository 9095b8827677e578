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
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
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
#include "shmem.h"

#define QUEUE_SIZE		65536
#define LOCK_KEY		0x736E6F77	/* "snow" */

/* The first byte of a message. */
#define PAGE			'p'
#define PROBLEM			'x'

/* In the order of the columns of SnowflakePageColumn. */
#define LIST_LEASES_TEXT \
	"SELECT r OPERATOR(pg_catalog.->>) 'incarnation', r OPERATOR(pg_catalog.->>) 'uses'," \
	" r OPERATOR(pg_catalog.->>) 'uses_incarnation', r OPERATOR(pg_catalog.->>) 'node_numbers'," \
	" r OPERATOR(pg_catalog.->>) 'launched', r OPERATOR(pg_catalog.->>) 'starts'," \
	" r OPERATOR(pg_catalog.->>) 'ends', r OPERATOR(pg_catalog.#>>) '{next,node_number}'," \
	" r OPERATOR(pg_catalog.#>>) '{next,leased_until}'" \
	" FROM snowflake.list_leases($1::pg_catalog.jsonb) AS r"

/* The four arrays have one element for each lease. */
#define NUM_ARRAYS		4
/* More leases than a page has. */
#define MAX_LEASES		100000

/* Pages are read in the order of leases by number and end. */
typedef struct Place
{
	int64		node_number;
	int64		leased_until;	/* microseconds since 1970 */
} Place;

/* Before all leases, and after them. */
static const Place first_place = {-1, PG_INT64_MAX};
static const Place last_place = {PG_INT64_MAX, PG_INT64_MAX};

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
	return page->columns[SNOWFLAKE_PAGE_NEXT_NUMBER] == NULL ||
		(!another && page->columns[SNOWFLAKE_PAGE_USES_INCARNATION] != NULL);
}

static void
read_page(const char *message, Size size, SnowflakeRow *page)
{
	StringInfoData strings = {
		.data = unconstify(char *, message),
		.len = (int) size,
		.cursor = 1
	};

	for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
	{
		int32		length = (int32) pq_getmsgint(&strings, sizeof(length));

		page->columns[i] = length < 0 ? NULL :
			pnstrdup(pq_getmsgbytes(&strings, length), length);
	}
	pq_getmsgend(&strings);
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
 * registry that is set.  False with the problem, if that cannot be done;
 * ERRCODE_UNDEFINED_OBJECT: this cluster has no tables.
 */
bool
snowflake_leases_read(bool another, SnowflakePageTaker take, void *arg,
					  SnowflakeProblem *problem)
{
	BackgroundWorker worker = {
		SNOWFLAKE_BACKGROUND_WORKER("snowflake reader", snowflake_reader_main),
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = BGW_NEVER_RESTART,
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
	pq_sendbyte(&message, PAGE);
	for (int i = 0; i < SNOWFLAKE_QUERY_COLUMNS; i++)
	{
		const char *value = page->columns[i];
		int32		length = value == NULL ? -1 : (int32) strlen(value);

		pq_sendint32(&message, (uint32) length);
		if (value != NULL)
			pq_sendbytes(&message, value, length);
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

static bool
is_after(Place place, Place other)
{
	return place.node_number > other.node_number ||
		(place.node_number == other.node_number &&
		 place.leased_until > other.leased_until);
}

/*
 * Reads the next element of an array of numbers, as jsonb writes it: "[1, 2]".
 * False if there is none.
 */
static bool
next_element(const char **at, int64 *number)
{
	if (!snowflake_number_scan(at, number))
		return false;
	if (strncmp(*at, ", ", 2) == 0)
	{
		*at += 2;
		return **at != ']';
	}
	return **at == ']';
}

/*
 * Whether the arrays of a page have one element for each lease: times, and
 * leases after the one place and not after the other.
 */
static bool
are_leases(const SnowflakeRow *page, Place after, Place next, int *num)
{
	const char *at[NUM_ARRAYS];

	for (int i = 0; i < NUM_ARRAYS; i++)
	{
		at[i] = page->columns[SNOWFLAKE_PAGE_NODE_NUMBERS + i];
		if (at[i] == NULL || *at[i]++ != '[')
			return false;
	}
	for (*num = 0; *at[0] != ']'; (*num)++)
	{
		int64		values[NUM_ARRAYS];
		Place		lease;

		for (int i = 0; i < NUM_ARRAYS; i++)
			if (!next_element(&at[i], &values[i]) ||
				(i > 0 && !snowflake_time_is_usable(values[i])))
				return false;
		lease.node_number = values[0];
		lease.leased_until = values[NUM_ARRAYS - 1];
		if (lease.node_number < 0 || !is_after(lease, after) ||
			is_after(lease, next))
			return false;
	}
	for (int i = 0; i < NUM_ARRAYS; i++)
		if (strcmp(at[i], "]") != 0)
			return false;
	return *num <= MAX_LEASES;
}

static bool
read_whole_number(const char *text, int64 *number)
{
	return text != NULL && snowflake_number_scan(&text, number) &&
		*text == '\0';
}

/* Where the next page begins; last_place if there is none. */
static bool
read_next(const SnowflakeRow *page, Place *next)
{
	const char *number = page->columns[SNOWFLAKE_PAGE_NEXT_NUMBER];
	const char *until = page->columns[SNOWFLAKE_PAGE_NEXT_UNTIL];

	*next = last_place;
	if (number == NULL && until == NULL)
		return true;
	return read_whole_number(number, &next->node_number) &&
		read_whole_number(until, &next->leased_until) &&
		snowflake_time_is_usable(next->leased_until);
}

static bool
is_uses(const char *uses, const char *incarnation)
{
	return uses == NULL || strcmp(uses, "own") == 0 ? incarnation == NULL :
		strcmp(uses, "another") == 0 && incarnation != NULL &&
		snowflake_is_uuid(incarnation);
}

/*
 * A page is one if the reader comes nearer to the end with it: it has leases
 * after the place where the page before has ended, and ends after that.
 */
static void
check_page(const SnowflakeRow *page, Place after, Place *next)
{
	char	   *const *columns = page->columns;
	int			num;

	if (snowflake_is_uuid(columns[SNOWFLAKE_PAGE_INCARNATION]) &&
		is_uses(columns[SNOWFLAKE_PAGE_USES],
				columns[SNOWFLAKE_PAGE_USES_INCARNATION]) &&
		read_next(page, next) && is_after(*next, after) &&
		are_leases(page, after, *next, &num) &&
		(num > 0 || columns[SNOWFLAKE_PAGE_NEXT_NUMBER] == NULL))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("the answer of the registry is not valid"),
			 errdetail("It does not have the leases of the node numbers from " INT64_FORMAT " up.",
					   Max(after.node_number, 0)),
			 errhint(SNOWFLAKE_ANSWER_HINT)));
}

static void
build_query(Place after, SnowflakeQuery *query)
{
	memset(query, 0, sizeof(*query));
	query->text = LIST_LEASES_TEXT;
	query->call = after.node_number < 0 ? "{\"protocol\": 1}" :
		psprintf("{\"protocol\": 1, \"after\": {\"node_number\": " INT64_FORMAT
				 ", \"leased_until\": " INT64_FORMAT "}}",
				 after.node_number, after.leased_until);
	query->max_size = SNOWFLAKE_PAGE_SIZE;
	query->local_commit = true; /* it only reads */
}

/*
 * One page, and where the next one begins; false with the problem.
 */
static bool
call_registry(bool another, Place after, SnowflakeRow *page, Place *next,
			  SnowflakeProblem *problem)
{
	MemoryContext context = CurrentMemoryContext;
	SnowflakeResult result;
	volatile bool valid = false;

	memset(&result, 0, sizeof(result));
	PG_TRY();
	{
		SnowflakeQuery query;
		SnowflakeResultKind kind;

		build_query(after, &query);
		kind = another ?
			snowflake_remote_run(snowflake_registry, &query, page, &result) :
			snowflake_local_run(&query, page, &result);
		if (kind == SNOWFLAKE_RESULT_OK)
			check_page(page, after, next);
		valid = kind == SNOWFLAKE_RESULT_OK;
		if (kind == SNOWFLAKE_RESULT_MISSING)
			snowflake_problem_set(&result.problem, ERRCODE_UNDEFINED_OBJECT,
								  "the extension snowflake_registry is missing in the database \"postgres\"",
								  NULL,
								  "Its tables record the leases; the first id creates it.");
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
	Place		after = first_place;
	bool		more = true;

	pqsignal(SIGHUP, PG_SIG_IGN);	/* all pages are of one registry */
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
		Place		next;

		MemoryContextSwitchTo(context);
		if (!call_registry(channel->another, after, &page, &next, &problem))
		{
			(void) send_problem(&problem, false);
			break;
		}
		more = send_page(&page) && !is_last(channel->another, &page);
		after = next;
		MemoryContextSwitchTo(TopMemoryContext);
		MemoryContextReset(context);
	}
	proc_exit(0);
}
