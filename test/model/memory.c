/*
 * memory.c
 *	  Runs the hot path, the words and the bounds of the settled id, src/ids/generator.c,
 *	  src/ids/settled.c and src/lease/words.c as they are, on
 *	  a processor that reorders loads and stores, over all schedules of small scenarios.
 *
 * The memory, a view-based operational model of C11's relaxed accesses and fences, without
 * promises (a store is never seen before an earlier load of its thread was done)
 *	  Each location has a list of messages, in the order in which all agree on them in the end.
 *	  A thread has a view: for each location the oldest message that it may still read.
 *	  load				reads any message from the view on; the view moves to it
 *	  pg_read_barrier	the view moves to what the messages read before carried
 *	  store				adds a message anywhere after the view; it carries the view that the
 *						thread had at its last write or full barrier
 *	  pg_write_barrier	later messages carry the present view
 *	  full barrier		both, and the view is joined with that of all other full barriers
 *	  atomic operation	a full barrier, a message directly after the one read, a full barrier;
 *						a compare-and-swap that fails is only a load here, which is weaker
 *						than what PostgreSQL promises
 *
 * Threads are coroutines.  They are run again from the begin for each choice (who is next, which
 * message is read, where one is added), depth first; a state that was there is not looked at again.
 * States are told apart by a hash of 64 bits.
 *
 * Oracle: no id twice; each id, when issued, between the start and the durable end of its number's
 * lease; a sealed end is not before any id issued; a field is full only after its last id, or when
 * the clock is past it; no id before a tick that was settled is issued later, or is of a
 * transaction that has not ended.
 */
#include "postgres.h"

#include <ucontext.h>

#include "access/parallel.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

static int	model_clock(struct timespec *ts);
#include <time.h>
#define clock_gettime(id, ts) model_clock(ts)

#include "clock.h"
#include "compat.h"
#include "guc.h"
#include "ids/generator.h"
#include "ids/wait.h"
#include "ids/word.h"
#include "layout/fields.h"
#include "lease/words.h"
#include "shmem.h"

static uint64 load(void *p, int line);
static void store(void *p, uint64 value, int line);
static bool swap(void *p, uint64 *expected, uint64 value, int line);
static uint64 fetch_or(void *p, uint64 bits, int line);
static void barrier(int kind, int line);

#undef pg_read_barrier
#undef pg_write_barrier
#undef pg_memory_barrier
#define pg_read_barrier() barrier(1, __LINE__)
#define pg_write_barrier() barrier(2, __LINE__)
#define pg_memory_barrier() barrier(3, __LINE__)
#define pg_atomic_read_u64(p) load(p, __LINE__)
#define pg_atomic_write_u64(p, v) store(p, v, __LINE__)
#define pg_atomic_compare_exchange_u64(p, e, v) swap(p, e, v, __LINE__)
#define pg_atomic_fetch_or_u64(p, v) fetch_or(p, v, __LINE__)

#include "../../src/ids/settled.c"
#include "../../src/ids/generator.c"
#include "../../src/lease/words.c"

#define LOCS		6
#define MESSAGES	24
#define THREADS		3
#define CHOICES		4096
#define STACK		65536
#define SEEN		(1 << 24)

typedef struct View
{
	uint8		at[LOCS];		/* index of a message */
} View;

typedef struct Message
{
	uint64		value;
	View		carried;
	uint8		rank;			/* in the order of its location */
	bool		taken;			/* an atomic operation's message follows */
	uint64		name;			/* same in all schedules */
} Message;

typedef struct Thread
{
	ucontext_t	context;
	void		(*body) (void);
	View		now,			/* what may be read */
				got,			/* what messages read carried */
				put;			/* what messages written carry */
	uint64		history;		/* hash of all it saw */
	bool		done;
} Thread;

typedef struct Scenario
{
	const char *name;
	void		(*body[THREADS]) (void);
	const char *outcome;		/* litmus: of registers; NULL: the oracle */
	bool		allowed;
	int			bounds;			/* with a reader: the last thread.  So many
								 * bounds; with one, the others share it */
	bool		prepares;
} Scenario;

static Message messages[LOCS][MESSAGES];
static int	num_messages[LOCS];
static Thread threads[THREADS];
static char stacks[THREADS][STACK];
static int	current;
static ucontext_t scheduler;
static View global;

static int	choice[CHOICES],
			options[CHOICES],
			depth,
			length;
static uint64 *seen;
static const Scenario *scenario;
static int64 executions;
static bool found,
			cut,
			telling,
			litmus;

/* What is weakened: the barrier or atomic operation of this file's line, and how. */
static int	weak_line;
static char weak_how;			/* 'n': no barrier; 'r': atomic, orders
								 * nothing; 't': torn */

static struct
{
	char		space[sizeof(SnowflakeShared) + sizeof(SnowflakeSlot) + 256];
}			pg_attribute_aligned(PG_CACHE_LINE_SIZE) shared;
SnowflakeShared *snowflake_shared = (SnowflakeShared *) &shared;
static SnowflakeSlot *slot;
static SnowflakeGenerator backends[THREADS];
static SnowflakeProcessSlot processes[THREADS];
static pg_atomic_uint64 prepared[2];	/* a SnowflakePrepared, with one bound */
static bool in_progress;		/* the transaction that is prepared */
static uint64 least_of_transaction[THREADS];	/* least place issued in it */
static uint64 settled_place;	/* all before it is settled */
static TimestampTz row_start[4],
			row_end[4];
static bool issued[1 << 12];
static uint64 last_issued[4];
static int	clock_ms[THREADS];	/* after the epoch of the layout */
static int	registers[8];
static pg_atomic_uint64 plain[LOCS];

/* What the two files need of the server and of other files. */
static PGPROC proc;
PGPROC	   *MyProc = &proc;
int			ParallelWorkerNumber = -1;
int			snowflake_max_wait;

static int
model_clock(struct timespec *ts)
{
	ts->tv_sec = SNOWFLAKE_UNIX_EPOCH / -USECS_PER_SEC;
	ts->tv_nsec = clock_ms[current] * 1000000;
	return 0;
}

int64
snowflake_monotonic_now(void)
{
	return 1;
}

int64
snowflake_coarse_lag(void)
{
	return 0;
}

/* Threads attach one after the other; those that share a bound are a leader and its worker. */
SnowflakeProcessSlot *
snowflake_shmem_process_slot(int process, int n)
{
	return &processes[process];
}

SnowflakePrepared *
snowflake_shmem_prepared(int entry)
{
	return (SnowflakePrepared *) prepared;
}

/* A warning of the layout's end is not reported; an error ends its thread, which is refused. */
bool
errstart(int elevel, const char *domain)
{
	if (elevel >= ERROR)
	{
		threads[current].done = true;
		swapcontext(&threads[current].context, &scheduler);
	}
	return false;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
}

int
errmsg(const char *fmt,...)
{
	return 0;
}

int
errdetail(const char *fmt,...)
{
	return 0;
}

int
errhint(const char *fmt,...)
{
	return 0;
}

const char *
timestamptz_to_str(TimestampTz t)
{
	return "";
}

static uint64
mix(uint64 a, uint64 b)
{
	a ^= b + UINT64CONST(0x9e3779b97f4a7c15) + (a << 6) + (a >> 2);
	a ^= a >> 31;
	a *= UINT64CONST(0xbf58476d1ce4e5b9);
	return a ^ a >> 29;
}

/* What settled.c needs to know of transactions.  Only one is prepared. */
#define XID			1000

FullTransactionId
GetTopFullTransactionId(void)
{
	return FullTransactionIdFromU64(XID);
}

FullTransactionId
ReadNextFullTransactionId(void)
{
	return FullTransactionIdFromU64(XID + 1);
}

bool
TransactionIdIsInProgress(TransactionId xid)
{
	threads[current].history = mix(threads[current].history, in_progress);
	return xid == XID && in_progress;
}

void
snowflake_ask_for_lease(void)
{
}

/* Not called: there are no interrupts, and what is prepared is known. */
volatile sig_atomic_t InterruptPending;

void
ProcessInterrupts(void)
{
	abort();
}

uint64		SPI_processed;
SPITupleTable *SPI_tuptable;
int
SPI_connect(void)
{
	abort();
}

int
SPI_execute(const char *src, bool read_only, long tcount)
{
	abort();
}

Datum
SPI_getbinval(HeapTuple tuple, TupleDesc tupdesc, int fnumber, bool *isnull)
{
	abort();
}

char *
SPI_getvalue(HeapTuple tuple, TupleDesc tupdesc, int fnumber)
{
	abort();
}

int
SPI_finish(void)
{
	abort();
}

static void
found_error(const char *what)
{
	if (telling)
		printf("    %s\n", what);
	found = true;
	swapcontext(&threads[current].context, &scheduler);
}

/* Ends a run that cannot be. */
static void
cut_run(void)
{
	cut = true;
	swapcontext(&threads[current].context, &scheduler);
}

static int
choose(int n)
{
	if (n <= 1)
		return 0;
	if (depth == CHOICES)
		abort();
	if (depth == length)
	{
		choice[length] = 0;
		options[length++] = n;
	}
	return choice[depth++];
}

static int
loc_of(void *p)
{
	if (p == &slot->word)
		return 0;
	if (p == &slot->limit)
		return 1;
	for (int i = 0; i < scenario->bounds; i++)
		if (p == &processes[i].bound)
			return 2 + i;
	if (scenario->prepares && p == &prepared[0])
		return 4;
	if (scenario->prepares && p == &prepared[1])
		return 5;
	for (int i = 0; i < LOCS; i++)
		if (p == &plain[i])
			return i;
	return -1;
}

static void
join(View *to, const View *from)
{
	for (int l = 0; l < LOCS; l++)
		if (messages[l][from->at[l]].rank > messages[l][to->at[l]].rank)
			to->at[l] = from->at[l];
}

static const char *const litmus_names[] = {"x", "y", "z", ""};
static const char *const names[] = {"word", "limit", "bound", "other bound", "entry", "bound of the entry"};

static void
step(const char *what, int loc, uint64 value, int line)
{
	if (telling && loc >= 0)
		printf("    %s %d, line %d: %s %s %llx\n", current == 0 ? "lease worker, thread" : "thread", current,
			   line, what, litmus ? litmus_names[loc] : names[loc],
			   (unsigned long long) value);
}

static void
pause_here(void)
{
	threads[current].history = mix(threads[current].history, 1);
	swapcontext(&threads[current].context, &scheduler);
}

static void
full_barrier(void)
{
	Thread	   *t = &threads[current];

	join(&t->now, &t->got);
	join(&t->now, &global);
	t->got = t->put = global = t->now;
}

static void
barrier(int kind, int line)
{
	Thread	   *t = &threads[current];

	if (line == weak_line && weak_how == 'n')
		return;
	if (kind == 3)
	{
		pause_here();
		full_barrier();
		t->history = mix(t->history, 3);
	}
	else if (kind == 1)
		join(&t->now, &t->got);
	else
		t->put = t->now;
}

/* Reads message m. */
static uint64
take(int loc, int m)
{
	Thread	   *t = &threads[current];

	t->now.at[loc] = m;
	join(&t->got, &messages[loc][m].carried);
	join(&t->got, &t->now);
	t->history = mix(t->history, messages[loc][m].name);
	return messages[loc][m].value;
}

/* The nth message, newest first, that this thread may read; those taken are left out if free. */
static int
candidate(int loc, bool free)
{
	Thread	   *t = &threads[current];
	int			list[MESSAGES],
				n = 0;

	for (int rank = num_messages[loc] - 1; rank >= messages[loc][t->now.at[loc]].rank; rank--)
		for (int m = 0; m < num_messages[loc]; m++)
			if (messages[loc][m].rank == rank && !(free && messages[loc][m].taken))
				list[n++] = m;
	return list[choose(n)];
}

static uint64
load(void *p, int line)
{
	int			loc = loc_of(p);
	uint64		value;

	if (loc < 0)
		return ((volatile pg_atomic_uint64 *) p)->value;
	pause_here();
	value = take(loc, candidate(loc, false));
	step("reads", loc, value, line);
	return value;
}

/* Adds a message directly after message m. */
static void
add(int loc, int m, uint64 value)
{
	Thread	   *t = &threads[current];
	int			new = num_messages[loc]++;
	int			rank = messages[loc][m].rank + 1;

	if (new == MESSAGES)
		abort();
	for (int i = 0; i < new; i++)
		if (messages[loc][i].rank >= rank)
			messages[loc][i].rank++;
	t->history = mix(t->history, value + 17);
	messages[loc][new].value = value;
	messages[loc][new].carried = t->put;
	messages[loc][new].rank = rank;
	messages[loc][new].taken = false;
	messages[loc][new].name = mix(t->history, current);
	t->now.at[loc] = new;
	join(&t->got, &t->now);
	messages[loc][new].carried.at[loc] = new;
}

static void
store(void *p, uint64 value, int line)
{
	int			loc = loc_of(p);
	int			m;

	if (loc < 0)
	{
		((pg_atomic_uint64 *) p)->value = value;
		return;
	}
	pause_here();
	m = candidate(loc, true);
	threads[current].history = mix(threads[current].history, messages[loc][m].name);
	add(loc, m, value);
	step("writes", loc, value, line);
}

static void
check_issue(uint64 value)
{
	uint64		node = snowflake_word_node(&slot->layout, value);

	if (issued[value])
		found_error("this id was issued before");
	issued[value] = true;
	if ((value & ~backends[0].node_mask) < settled_place)
		found_error("this id is before a settled one");
	least_of_transaction[current] = Min(least_of_transaction[current], value & ~backends[0].node_mask);
	last_issued[node] = Max(last_issued[node], value);
	if (end_of(&slot->layout, value) > row_end[node])
		found_error("this id is past the durable end of its number");
	if (snowflake_tick_begin(&slot->layout, snowflake_word_tick(&slot->layout, value)) < row_start[node])
		found_error("this id is before its lease");
}

/* Only after the last id of some number, or when the clock is past the end. */
static void
check_full(void)
{
	if (snowflake_word_is_last(&slot->layout, last_issued[1]))
		return;
	if (clock_ms[current] <= (int) slot->layout.max_tick)
		found_error("an id is left, and the field is said to be full");
}

/* An atomic operation on the message chosen before. */
static void
modify(int loc, int m, uint64 value, int line)
{
	bool		relaxed = line == weak_line && weak_how == 'r';

	if (!relaxed)
		full_barrier();
	messages[loc][m].taken = true;
	add(loc, m, value);
	messages[loc][num_messages[loc] - 1].carried = threads[current].put;
	join(&messages[loc][num_messages[loc] - 1].carried, &messages[loc][m].carried);
	messages[loc][num_messages[loc] - 1].carried.at[loc] = num_messages[loc] - 1;
	if (!relaxed)
		full_barrier();
}

static bool
swap(void *p, uint64 *expected, uint64 value, int line)
{
	int			loc = loc_of(p);
	uint64		was;
	int			m;

	if (loc < 0)
	{
		((pg_atomic_uint64 *) p)->value = value;
		return true;
	}
	pause_here();
	m = candidate(loc, false);
	was = take(loc, m);
	if (was != *expected)
	{
		step("swaps in vain, reads", loc, was, line);
		*expected = was;
		return false;
	}
	if (line == weak_line && weak_how == 't')
		store(p, value, line);
	else if (messages[loc][m].taken)
		cut_run();				/* no two operations follow one message */
	else
		modify(loc, m, value, line);
	step("swaps to", loc, value, line);
	return true;
}

static uint64
fetch_or(void *p, uint64 bits, int line)
{
	int			loc = loc_of(p);
	int			m;
	uint64		was;

	pause_here();
	if (line == weak_line && weak_how == 't')
	{
		was = take(loc, candidate(loc, false));
		store(p, was | bits, line);
		return was;
	}
	if (!(line == weak_line && weak_how == 'r'))
		full_barrier();
	m = candidate(loc, true);
	was = take(loc, m);
	modify(loc, m, was | bits, line);
	step("seals", loc, was, line);
	return was;
}

/*
 * Scenarios.  The first thread is the lease worker, which writes the durable rows; the others are
 * backends.
 */
/* To this thread, from now on; before, 5 ms. */
static void
clock_shows(int ms)
{
	clock_ms[current] = ms;
}

static void
open_lease(uint64 node, TimestampTz from, TimestampTz to)
{
	uint32		openings = slot->openings;

	row_start[node] = from;
	row_end[node] = to;
	snowflake_words_open(node, from, to);
	if (slot->openings != openings && snowflake_word_node(&slot->layout, slot->opened.value) != node)
		found_error("the word is opened with another number");
}

/* No row ends later than it did; that of a lease that issued nothing ends where it started. */
static void
seal_lease(uint64 node)
{
	TimestampTz end = snowflake_words_seal(node, row_start[node]);

	row_end[node] = Max(Min(end, row_end[node]), row_start[node]);
	if (last_issued[node] != 0 && end_of(&slot->layout, last_issued[node]) > row_end[node])
		found_error("the sealed end is before an id that was issued");
}

static void
issue(int64 count)
{
	SnowflakeAttempt attempt;
	SnowflakeAttemptResult outcome = try_issue(&backends[current], count, &attempt);

	if (outcome == SNOWFLAKE_FIELD_FULL)
		check_full();
	if (outcome != SNOWFLAKE_ISSUED)
		return;
	for (int64 i = 0; i < attempt.count; i++)
		check_issue(attempt.word + i);
}

/* What a thread does, one after the other; the declaration takes the semicolon. */
#define RUNS(name, ...) static void name(void) { __VA_ARGS__; } extern int not_used

RUNS(one, issue(1));
RUNS(two, issue(1), issue(1));
RUNS(batch, issue(3), issue(2));
RUNS(one_later, clock_shows(6), issue(1));
RUNS(one_at_8, clock_shows(8), issue(1));
RUNS(one_at_22, clock_shows(22), issue(1));
RUNS(batch_in_last_tick, clock_shows(63), issue(3), issue(2));
RUNS(batch_and_past_end, clock_shows(63), issue(3), clock_shows(64), issue(1));

/* The end of a transaction is seen before its bound is cleared. */
static void
end_transaction(void)
{
	least_of_transaction[current] = SNOWFLAKE_NO_BOUND;
	clear_bounds();
}

static void
settle(void)
{
	uint64		word = snowflake_catch_up(&backends[current]);
	uint64		least = snowflake_settled_before(slot, word) << snowflake_word_tick_shift(&slot->layout);

	if ((word & SNOWFLAKE_SEALED) == 0 && end_of(&slot->layout, word) > row_end[snowflake_word_node(&slot->layout, word)])
		found_error("the word was moved past the durable end of its number");
	settled_place = Max(settled_place, least);
	for (int i = 0; i < THREADS; i++)
		if (least_of_transaction[i] < least)
			found_error("an id is settled, and its transaction has not ended");
}

RUNS(reader, settle());
RUNS(reader_later, clock_shows(6), settle());
RUNS(transaction, issue(1), end_transaction());
RUNS(transactions, issue(3), end_transaction(), issue(1));

/* The transaction goes on in its entry, until somebody ends it. */
static void
prepare_transaction(void)
{
	issue(1);
	keep_bounds();
	clear_bounds();
	pause_here();
	in_progress = false;
	least_of_transaction[current] = SNOWFLAKE_NO_BOUND;
}

static void
open_and_issue(void)
{
	open_lease(1, 4000, 8000);
	issue(4);
}

static void
open_to_8(void)
{
	open_lease(1, 4000, 8000);
}

static void
open_short(void)
{
	open_lease(1, 4000, 5000);
}

static void
open_and_change(void)
{
	open_lease(1, 4000, 8000);
	seal_lease(1);
	open_lease(2, 5000, 9000);
}

/* A parallel worker's ids are of its leader's transaction, which ends later. */
static void
open_and_lead(void)
{
	open_lease(1, 4000, 8000);
	issue(1);
}

static void
seal_reopen(void)
{
	open_lease(1, 5000, 6000);
	seal_lease(1);
	open_lease(1, Max(row_end[1], 5000), 8000);
}

static void
other_number(void)
{
	open_lease(1, 5000, 8000);
	seal_lease(1);
	open_lease(2, 5000, 6000);
	seal_lease(2);
}

static void
shorter_lease(void)
{
	open_lease(1, 5000, 9000);
	seal_lease(1);
	open_lease(1, 5000, 7000);
	open_lease(1, 5000, 8000);
}

static void
extend(void)
{
	open_lease(1, 5000, 6000);
	open_lease(1, 5000, 7000);
	seal_lease(1);
}

/* The last tick is 63.  If it has an id, there is no tick for the second lease. */
static void
end_of_layout(void)
{
	clock_shows(63);
	open_lease(1, 62000, 70000);
	seal_lease(1);
	open_lease(1, Max(row_end[1], 62000), 70000);
}

/*
 * The lease worker's clock was set back, from 22 ms to 5: too far for a word to go on after that of
 * the other number, so all leases of a number that issue nothing are opened at the same tick, those
 * of number 2 a tick earlier, together more often than there are sequences.  The last lease is
 * shorter: the ids after it may be another server's.
 */
static void
back_to_a_number(void)
{
	for (int i = 0; i < 4; i++)
	{
		uint64		node = 1 + i % 2;

		open_lease(node, Max(row_end[node], node == 1 ? 20000 : 19000), 25000);
		seal_lease(node);
	}
	open_lease(1, Max(row_end[1], 20000), Max(row_end[1], 20000) + 1000);
}

/*
 * A word that would not be before its limit, since it goes on after that of the other number: if
 * it was opened, it would keep nothing, and after the clock is set back from 12 ms to 5 it would
 * come back with the sixth opening.  A backend that has read it, and a limit of the other number,
 * would issue an id past the lease.
 */
static void
too_short_a_lease(void)
{
	clock_shows(12);
	for (int i = 0; i < 6; i++)
	{
		uint64		node = 2 - i % 2;

		open_lease(node, Max(row_end[node], 20000), i == 1 || i == 5 ? 20000 : 25000);
		seal_lease(node);
		clock_shows(i == 0 ? 12 : 5);
	}
}

/* Litmus tests: each load stores into a register. */
#define X (&plain[0])
#define Y (&plain[1])
#define L(r, p) (registers[r] = (int) load(p, __LINE__))
#define S(p, v) store(p, v, __LINE__)
RUNS(mp_w, S(X, 1), S(Y, 1));
RUNS(mp_wb, S(X, 1), pg_write_barrier(), S(Y, 1));
RUNS(mp_r, L(0, Y), L(1, X));
RUNS(mp_rb, L(0, Y), pg_read_barrier(), L(1, X));
RUNS(sb_0, S(X, 1), L(0, Y));
RUNS(sb_1, S(Y, 1), L(1, X));
RUNS(sb_0w, S(X, 1), pg_write_barrier(), pg_read_barrier(), L(0, Y));
RUNS(sb_1w, S(Y, 1), pg_write_barrier(), pg_read_barrier(), L(1, X));
RUNS(sb_0f, S(X, 1), pg_memory_barrier(), L(0, Y));
RUNS(sb_1f, S(Y, 1), pg_memory_barrier(), L(1, X));
RUNS(lb_0, L(0, X), S(Y, 1));
RUNS(lb_1, L(1, Y), S(X, 1));
RUNS(co_w, S(X, 1), S(X, 2));
RUNS(co_r, L(0, X), L(1, X));
RUNS(ww_0, S(X, 1), S(Y, 2));
RUNS(ww_1, S(Y, 1), S(X, 2));
RUNS(ww_0b, S(X, 1), pg_write_barrier(), S(Y, 2));
RUNS(ww_1b, S(Y, 1), pg_write_barrier(), S(X, 2));
RUNS(rmw_0, registers[0] = (int) fetch_or(X, 1, __LINE__));
RUNS(rmw_1, registers[1] = (int) fetch_or(X, 2, __LINE__));

static const Scenario scenarios[] = {
	{"MP", {mp_w, mp_r}, "10", true, 0, false},
	{"MP, write barrier only", {mp_wb, mp_r}, "10", true, 0, false},
	{"MP, read barrier only", {mp_w, mp_rb}, "10", true, 0, false},
	{"MP, both barriers", {mp_wb, mp_rb}, "10", false, 0, false},
	{"MP, both barriers, other end", {mp_wb, mp_rb}, "01", true, 0, false},
	{"SB", {sb_0, sb_1}, "00", true, 0, false},
	{"SB, read and write barriers", {sb_0w, sb_1w}, "00", true, 0, false},
	{"SB, full barriers", {sb_0f, sb_1f}, "00", false, 0, false},
	{"LB (not in this model)", {lb_0, lb_1}, "11", false, 0, false},
	{"CoRR", {co_w, co_r}, "21", false, 0, false},
	{"CoRR, in order", {co_w, co_r}, "12", true, 0, false},
	{"2+2W", {ww_0, ww_1}, "00..11", true, 0, false},
	{"2+2W, write barriers", {ww_0b, ww_1b}, "00..11", true, 0, false},
	{"RMW, both first", {rmw_0, rmw_1}, "00", false, 0, false},
	{"RMW, one first", {rmw_0, rmw_1}, "01", true, 0, false},
	{"seal and reopen, two backends", {seal_reopen, two, one}, NULL, false, 0, false},
	{"change of number", {other_number, two, one}, NULL, false, 0, false},
	{"a shorter lease, then a longer one", {shorter_lease, one_at_8, one}, NULL, false, 0, false},
	{"extend", {extend, two, one}, NULL, false, 0, false},
	{"batches", {seal_reopen, batch, batch}, NULL, false, 0, false},
	{"end of the layout", {end_of_layout, batch_in_last_tick, batch_and_past_end}, NULL, false, 0, false},
	{"back to a number", {back_to_a_number, one_at_22}, NULL, false, 0, false},
	{"a lease that is too short for its word", {too_short_a_lease, one_at_22}, NULL, false, 0, false},
	{"settled, a lease that is over", {open_short, reader}, NULL, false, 2, false},
	{"settled, two transactions", {open_and_issue, transaction, reader}, NULL, false, 2, false},
	{"settled, one after the other", {open_and_issue, transactions, reader}, NULL, false, 2, false},
	{"settled, change of number", {open_and_change, one, reader}, NULL, false, 2, false},
	{"settled, parallel worker", {open_and_lead, one_later, reader}, NULL, false, 1, false},
	{"settled, prepared transaction", {open_to_8, prepare_transaction, reader_later}, NULL, false, 2, true},
};

/* Threads that share a bound are one process. */
static void
become(int thread)
{
	current = thread;
	proc.pgprocno = scenario->bounds == 1 ? 0 : thread;
}

static void
run_thread(void)
{
	threads[current].body();
	threads[current].done = true;
	swapcontext(&threads[current].context, &scheduler);
}

static void
prepare(void)
{
	SnowflakeLayout *layout = &slot->layout;

	memset(&shared, 0, sizeof(shared));
	memset(threads, 0, sizeof(threads));
	memset(&global, 0, sizeof(global));
	memset(issued, 0, sizeof(issued));
	memset(row_start, 0, sizeof(row_start));
	memset(row_end, 0, sizeof(row_end));
	memset(last_issued, 0, sizeof(last_issued));
	memset(registers, 0, sizeof(registers));
	settled_place = 0;
	for (int i = 0; i < THREADS; i++)
	{
		least_of_transaction[i] = SNOWFLAKE_NO_BOUND;
		processes[i].bound.value = SNOWFLAKE_NO_BOUND;
		clock_ms[i] = 5;
	}
	prepared[0].value = 0;
	prepared[1].value = SNOWFLAKE_NO_BOUND;
	in_progress = scenario->prepares;
	snowflake_shared->num_prepared = scenario->prepares;
	snowflake_shared->prepared_known.value = 1;
	snowflake_shared->num_processes = scenario->bounds;
	snowflake_shared->num_slots = 1;
	snowflake_shared->settings.max_ahead.value = 10000;
	layout->bits[SNOWFLAKE_TIMESTAMP] = 6;
	layout->bits[SNOWFLAKE_WORKER] = 2;
	layout->bits[SNOWFLAKE_SEQUENCE] = 2;
	layout->shift[SNOWFLAKE_TIMESTAMP] = 4;
	layout->shift[SNOWFLAKE_WORKER] = 2;
	layout->tick_us = 1000;
	layout->max_tick = 63;
	slot->warned_at = 1;
	for (int l = 0; l < LOCS; l++)
	{
		num_messages[l] = 1;
		messages[l][0] = (Message)
		{
			.value = litmus ? 0 : l == 0 ? SNOWFLAKE_SEALED : l == 1 || l == 4 ? 0 : SNOWFLAKE_NO_BOUND
		};
	}
	for (int i = 0; i < THREADS; i++)
	{
		Thread	   *t = &threads[i];

		become(i);
		memset(&backends[i], 0, sizeof(backends[i]));
		attach(&backends[i], slot);
		t->body = scenario->body[i];
		t->done = t->body == NULL;
		t->history = i + 1;
		getcontext(&t->context);
		t->context.uc_stack.ss_sp = stacks[i];
		t->context.uc_stack.ss_size = STACK;
		makecontext(&t->context, run_thread, 0);
	}
}

/* Whether this state was seen before; the views follow from the threads' histories and the orders. */
static bool
was_here(void)
{
	uint64		h = 1;

	for (int i = 0; i < THREADS; i++)
		h = mix(mix(h, threads[i].history), threads[i].done);
	for (int l = 0; l < LOCS; l++)
		for (int m = 0; m < num_messages[l]; m++)
			for (int i = 0; i < num_messages[l]; i++)
				if (messages[l][i].rank == m)
					h = mix(h, messages[l][i].name);
	for (int l = 0; l < LOCS; l++)
	{
		h = mix(h, messages[l][global.at[l]].name);
		for (int i = 0; i < THREADS; i++)
			h = mix(mix(mix(h, messages[l][threads[i].now.at[l]].name),
						messages[l][threads[i].got.at[l]].name),
					messages[l][threads[i].put.at[l]].name);
	}
	h |= 1;
	for (uint64 i = h;; i++)
	{
		if (seen[i % SEEN] == h)
			return true;
		if (seen[i % SEEN] == 0)
		{
			seen[i % SEEN] = h;
			return false;
		}
	}
}

static void
run_once(void)
{
	depth = 0;
	cut = false;
	prepare();
	for (;;)
	{
		int			ready[THREADS],
					n = 0;

		for (int i = 0; i < THREADS; i++)
			if (!threads[i].done)
				ready[n++] = i;
		if (n == 0)
			break;
		if (!telling && depth == length && depth > 0 && was_here())
			return;
		become(ready[choose(n)]);
		swapcontext(&scheduler, &threads[current].context);
		if (found || cut)
			return;
	}
	if (litmus)
	{
		uint64		last[2] = {0};

		for (int l = 0; l < 2; l++)
			for (int i = 0; i < num_messages[l]; i++)
				if (messages[l][i].rank == num_messages[l] - 1)
					last[l] = messages[l][i].value;
		found = strlen(scenario->outcome) == 6 ? last[0] == 1 && last[1] == 1 :
			registers[0] == scenario->outcome[0] - '0' && registers[1] == scenario->outcome[1] - '0';
	}
}

/* Whether some run of a scenario goes wrong (a litmus test: ends as named). */
static bool
explore(const Scenario *s)
{
	scenario = s;
	litmus = s->outcome != NULL;
	memset(seen, 0, SEEN * sizeof(*seen));
	executions = length = 0;
	found = false;
	for (;;)
	{
		run_once();
		executions++;
		if (found)
			return true;
		while (length > 0 && choice[length - 1] + 1 == options[length - 1])
			length--;
		if (length == 0)
			return false;
		choice[length - 1]++;
	}
}

/* memory [LINE HOW]: nothing is to be found, or something with this line weakened. */
int
main(int argc, char **argv)
{
	bool		any = false,
				wrong = false;

	slot = &snowflake_shared->slots[0];
	seen = malloc(SEEN * sizeof(*seen));
	if (argc > 2)
	{
		weak_line = atoi(argv[1]);
		weak_how = argv[2][0];
	}
	for (int i = 0; i < (int) lengthof(scenarios); i++)
	{
		const Scenario *s = &scenarios[i];
		bool		bad;

		if (weak_line != 0 && s->outcome != NULL)
			continue;
		bad = explore(s);
		printf("%s: %s, %lld runs\n", s->name, bad ? "found" : "not found", (long long) executions);
		if (bad != s->allowed)
			wrong = true;
		any |= bad;
		if (bad && s->outcome == NULL)
		{
			telling = true;
			found = false;
			run_once();
			break;
		}
	}
	return weak_line != 0 ? !any : wrong;
}
