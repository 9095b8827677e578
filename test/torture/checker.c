/*
 * checker.c
 *	  Checks what clients have received in a torture test: the ids in the logs of any
 *	  number of writers, against each other, the clocks and the recorded leases.
 *
 *	  checker CONFIG			gcc -std=gnu11 -O2 checker*.c -o checker
 *
 * CONFIG is described in checker_config.c, the logs in log.h.  Ids of a node number
 * cover ticks; a tick begins at its timestamp and ends where the next one begins.
 *
 *	  negative	an id is not negative.  (Those that are are not looked at further.)
 *	  duplicate	no id is there twice in a deployment
 *	  order		ids of a server and node number increase within a statement, and from a
 *				statement that was received to one that was sent thereafter
 *	  ahead		the tick does not begin more than max_ahead past the server's clock when
 *				the id was received, at the greatest offset it may have had meanwhile
 *	  behind	the tick ends after the clock's time when the statement was sent, at the
 *				least offset, or at most 100 ms before: bursts read the kernel's coarse
 *				clock, which lags when a virtual machine or its disk is busy
 *	  lease		a lease of the server covers the whole tick, and this was recorded
 *				before the id was received
 *	  overlap	a lease starts at or after the ends of all earlier ones of its number
 *	  lowered	the end of a lease never decreased, except when it was closed
 *	  taken		nor did it increase after the number was granted anew; it was closed then
 *	  changed	a lease that is closed stays as it is; no lease starts at another time
 *				than at first, or is deleted
 *
 * Output, a line each; times are microseconds of real time since 1970:
 *
 *	  ids SERVER NODE COUNT
 *	  leased SERVER COUNT		ids whose lease was checked
 *	  total ids N statements N failed N runs N
 *	  error SERVER SQLSTATE COUNT
 *	  gap SERVER FROM TO		no ids came for 200 ms or longer, after the first ones
 *	  rate SERVER BUCKET COUNT	ids received in the 250 ms from BUCKET
 *	  violation KIND id=ID node=NODE server=NAME : TEXT
 *		first: ...				the statements concerned
 *		second: ...
 *	  violations KIND COUNT		all ids that violate it; for order, pairs of statements and
 *								of neighbours within a statement; for leases, rows or
 *								versions of rows
 *
 * Violations of a kind are in order of time, the first ten are shown.  The status is 0 if
 * there is none, else 1; 2 if it could not check.  An incomplete last record of a log is
 * left out.
 *
 * This file owns the statements and the uses of node numbers, and makes the checks that
 * look at one piece of a run at a time: ids of one tick, node number and statement.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checker.h"

#define USE_BUCKETS		4096
#define COARSE_LAG_US	100000
#define UNIQUE_VIOLATION	"23505"

typedef struct ErrorCount
{
	struct ErrorCount *next;
	const Server *server;
	char		sqlstate[8];
	uint64_t	count;
} ErrorCount;

/* What holds for all ids of a statement. */
typedef struct Context
{
	uint32_t	statement;
	const LogRecord *record;
	Server	   *server;
	int64_t		latest_begin;	/* of a tick, from the server's clock */
	int64_t		earliest_end;
	bool		check_lease;
	NodeUse    *use;			/* the last one */
} Context;

Statement  *statements;
size_t		nstatements;

static NodeUse *first_use;
static NodeUse **last_use = &first_use;
static NodeUse *use_buckets[USE_BUCKETS];
static uint32_t nuses;
static ErrorCount *errors;
static uint64_t total_ids;
static uint64_t total_runs;
static uint64_t total_failed;
static int64_t latest_time = INT64_MIN;

static NodeUse *
find_or_make_use(Server *server, int64_t node)
{
	NodeUse   **bucket = &use_buckets[((uint64_t) node + (uintptr_t) server / 64) % USE_BUCKETS];
	NodeUse    *use;

	for (use = *bucket; use; use = use->next_in_bucket)
		if (use->node == node && use->server == server)
			return use;
	use = allocate(sizeof(NodeUse));
	use->server = server;
	use->node = node;
	for (int i = 0; i < server->ntables; i++)
		use->histories[i] = find_history(server->tables[i].table, node);
	use->number = nuses++;
	use->next_in_bucket = *bucket;
	*bucket = use;
	*last_use = use;
	last_use = &use->next;
	return use;
}

/* Saturates: ids of any number of bits are looked at. */
static int64_t
begin_of_tick(const Deployment *deployment, int64_t tick)
{
	int64_t		result;

	if (__builtin_mul_overflow(tick, deployment->tick, &result) ||
		__builtin_add_overflow(result, deployment->epoch, &result) ||
		result > FOR_EVER - deployment->tick)
		return FOR_EVER - deployment->tick;
	return result;
}

static void
report(ViolationKind kind, const Context *context, int64_t id, uint32_t count, const char *text)
{
	add_violation(kind, context->record->received_real, count,
				  describe_id(id, context->use->node, context->server), context->statement, NO_STATEMENT,
				  "%s (%" PRIu32 " ids, this one the first)", text, count);
}

static void
check_time(const Context *context, int64_t id, uint32_t count, int64_t begin, int64_t end)
{
	char		text[200];

	if (begin > context->latest_begin)
	{
		snprintf(text, sizeof(text), "its tick begins at %" PRId64 ", %" PRId64
				 " us past the latest time of the server's clock, with max_ahead", begin,
				 begin - context->latest_begin);
		report(AHEAD, context, id, count, text);
	}
	if (end <= context->earliest_end)
	{
		snprintf(text, sizeof(text), "its tick ends at %" PRId64 ", %" PRId64
				 " us before the server's clock when its statement was sent", end,
				 context->earliest_end + COARSE_LAG_US - end);
		report(BEHIND, context, id, count, text);
	}
}

static void
check_lease(const Context *context, int64_t id, uint32_t count, int64_t begin, int64_t end)
{
	Server	   *server = context->server;
	const char *failure;
	int			table;

	if (!context->check_lease)
		return;
	server->leased += count;
	failure = lease_failure(context->use, begin, end, context->record->received_real, &table);
	if (failure)
		report(LEASE, context, id, count, failure);
	else if (server->tables[table].deployment)
		add_piece(server->tables[table].deployment, context->statement, id, count);
}

/* Ids that differ in their sequence only. */
static void
check_piece(Context *context, int64_t id, uint32_t count)
{
	Deployment *deployment = context->server->deployment;
	int64_t		node = (id >> deployment->node_shift) & ((INT64_C(1) << deployment->node_bits) - 1);
	int64_t		begin;

	if (context->use == NULL || context->use->node != node)
		context->use = find_or_make_use(context->server, node);
	if (id < 0)
		report(NEGATIVE, context, id, count, "it is negative");
	else
	{
		begin = begin_of_tick(deployment, id >> deployment->time_shift);
		add_piece(deployment, context->statement, id, count);
		add_to_order(context->use, context->statement, id,
					 id + ((int64_t) (count - 1) << deployment->sequence_shift));
		check_time(context, id, count, begin, begin + deployment->tick);
		check_lease(context, id, count, begin, begin + deployment->tick);
	}
	context->use->ids += count;
}

/* A run is cut where its sequence is full and the carry changes the rest of the id. */
static void
check_run(Context *context, LogRun run)
{
	const Deployment *deployment = context->server->deployment;
	uint64_t	size = UINT64_C(1) << deployment->sequence_bits;
	uint64_t	id = (uint64_t) run.first;

	while (run.count > 0)
	{
		uint64_t	room = size - ((id >> deployment->sequence_shift) & (size - 1));
		uint32_t	count = run.count < room ? run.count : room;

		check_piece(context, (int64_t) id, count);
		id += (uint64_t) count << deployment->sequence_shift;
		run.count -= count;
	}
}

static void
count_error(const Server *server, const char *sqlstate)
{
	ErrorCount *error;

	total_failed++;
	for (error = errors; error; error = error->next)
		if (error->server == server && strncmp(error->sqlstate, sqlstate, sizeof(error->sqlstate)) == 0)
			break;
	if (error == NULL)
	{
		error = allocate(sizeof(ErrorCount));
		error->server = server;
		memcpy(error->sqlstate, sqlstate, sizeof(error->sqlstate));
		error->next = errors;
		errors = error;
	}
	error->count++;
}

static void
add_delivery(Server *server, const LogRecord *record)
{
	Delivery	delivery = {.received = record->received_real,.ids = record->ids};

	server->deliveries = make_room(server->deliveries, server->ndeliveries, sizeof(Delivery));
	server->deliveries[server->ndeliveries++] = delivery;
}

static bool
leases_are_known(const Server *server, int64_t received)
{
	for (int i = 0; i < server->ntables; i++)
		if (received >= server->tables[i].table->as_of)
			return false;
	return true;
}

static void
check_statement(const Log *log, const LogRecord *record)
{
	Server	   *server = log->server;
	ClockSpan	clock = clock_between(server, record->sent_real, record->received_real);
	Context		context = {
		.statement = nstatements,
		.record = record,
		.server = server,
		.latest_begin = record->received_real + clock.greatest + server->max_ahead,
		.earliest_end = record->sent_real + clock.least - COARSE_LAG_US,
		.check_lease = leases_are_known(server, record->received_real)
	};
	Statement	statement = {.record = record,.log = log};

	if (nstatements == NO_STATEMENT)
		cannot_check("too many statements");
	statements = make_room(statements, nstatements, sizeof(Statement));
	statements[nstatements++] = statement;
	for (uint32_t i = 0; i < record->nruns; i++)
		check_run(&context, record->runs[i]);
	if (record->sqlstate[0] != '\0')
		count_error(server, record->sqlstate);
	if (strncmp(record->sqlstate, UNIQUE_VIOLATION, sizeof(record->sqlstate)) == 0)
		add_violation(DUPLICATE, record->received_real, 1, describe_id(-1, -1, server),
					  context.statement, NO_STATEMENT, "a row has an id that another one has");
	if (record->ids > 0)
		add_delivery(server, record);
	if (record->received_real > latest_time)
		latest_time = record->received_real;
	total_ids += record->ids;
	total_runs += record->nruns;
}

/* Stays mapped, for statements refer to it. */
static const char *
map_log(const char *file, size_t *size)
{
	int			descriptor = open(file, O_RDONLY);
	struct stat status;
	void	   *data = NULL;

	if (descriptor < 0 || fstat(descriptor, &status) < 0)
		cannot_check("%s: %s", file, strerror(errno));
	*size = status.st_size;
	if (*size > 0)
		data = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, descriptor, 0);
	if (data == MAP_FAILED)
		cannot_check("%s: %s", file, strerror(errno));
	close(descriptor);
	return data;
}

static void
check_record(const Log *log, const LogRecord *record, size_t place)
{
	uint64_t	ids = 0;

	if (record->received_mono < record->sent_mono)
		cannot_check("%s: the record at byte %zu was received before it was sent", log->file, place);
	for (uint32_t i = 0; i < record->nruns; i++)
		ids += record->runs[i].count;
	if (ids != record->ids)
		cannot_check("%s: the record at byte %zu has %" PRIu64 " ids in its runs, not %" PRIu64,
					 log->file, place, ids, record->ids);
}

static void
check_log(const Log *log)
{
	size_t		size;
	const char *data = map_log(log->file, &size);
	size_t		place = 0;

	while (size - place >= sizeof(LogRecord))
	{
		const LogRecord *record = (const LogRecord *) (data + place);

		if (record->magic != LOG_MAGIC)
			cannot_check("%s: no record begins at byte %zu", log->file, place);
		if (record->nruns > (size - place - sizeof(LogRecord)) / sizeof(LogRun))
			break;
		if (record->received_real > until)
			break;
		check_record(log, record, place);
		check_statement(log, record);
		place += sizeof(LogRecord) + record->nruns * sizeof(LogRun);
	}
}

static void
check_all_statements(void)
{
	const NodeUse **uses = allocate((nuses + 1) * sizeof(NodeUse *));

	for (const NodeUse *use = first_use; use; use = use->next)
		uses[use->number] = use;
	check_order(uses);
	for (Deployment *deployment = deployments; deployment; deployment = deployment->next)
		check_duplicates(deployment);
}

static void
print_counts(void)
{
	for (const NodeUse *use = first_use; use; use = use->next)
		printf("ids %s %" PRId64 " %" PRIu64 "\n", use->server->name, use->node, use->ids);
	for (const Server *server = servers; server; server = server->next)
		printf("leased %s %" PRIu64 "\n", server->name, server->leased);
	printf("total ids %" PRIu64 " statements %zu failed %" PRIu64 " runs %" PRIu64 "\n",
		   total_ids, nstatements, total_failed, total_runs);
	for (const ErrorCount *error = errors; error; error = error->next)
		printf("error %s %.8s %" PRIu64 "\n", error->server->name, error->sqlstate, error->count);
	for (Server *server = servers; server; server = server->next)
		report_deliveries(server, latest_time);
}

int
main(int argc, char **argv)
{
	if (argc != 2)
		cannot_check("usage: checker CONFIG");
	read_config(argv[1], 0);
	for (LeaseTable *table = tables; table; table = table->next)
		finish_leases(table);
	for (Server *server = servers; server; server = server->next)
		finish_clock(server);
	for (const Log *log = logs; log; log = log->next)
		check_log(log);
	check_all_statements();
	print_counts();
	return print_violations() > 0 ? 1 : 0;
}
