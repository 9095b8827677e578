/*
 * hotpath.c
 *	  Issues ids without a server: the extension's own objects, on shared memory that its
 *	  own initialiser has made, under a lease that its own function has opened.
 *
 *	  hotpath KIND PROCESSES LAYOUT MAX_AHEAD IDS
 *			runs until the first process has its share of IDS
 *	  hotpath KIND PROCESSES LAYOUT MAX_AHEAD IDS WARM TIME
 *			runs WARM milliseconds, so that ids are as far ahead as they may be, and
 *			measures the next TIME milliseconds; IDS is room enough
 *
 * KIND: one (one by one), batch (parts of up to 1,000, as they come), and for comparison add
 * (an atomic fetch-add on one shared word) and clock (one reading of the exact clock).
 * MAX_AHEAD: in milliseconds, as snowflake.max_ahead.
 *
 * Prints how many a second all processes together made.  Every id is kept and checked: in
 * each process they increase, none occurs twice over all of them, all have our node
 * number, and with TIME none was further ahead than allowed when it had been issued.  It
 * fails if one does not pass.
 *
 * What the objects need of the server is below, as far as issuing an id comes to it; the linker
 * leaves the rest undefined.  Processes as PostgreSQL has them: forked, with an anonymous
 * shared mapping, which is what PostgreSQL's shared memory is.
 */
#include "postgres.h"

/* Its result differs between majors; nobody looks at it. */
#define ConditionVariableCancelSleep declared_by_the_server

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/datetime.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "ids/generator.h"
#include "guc.h"
#include "lease/words.h"
#include "shmem.h"
#include "ids/word.h"

#define MAX_PROCESSES	64
#define NODE			1
#define BATCH			1000

/*
 * What the processes share, apart from what the extension does.
 */
typedef struct Control
{
	pg_atomic_uint32 ready SNOWFLAKE_CACHE_LINE;	/* waiting processes */
	pg_atomic_uint32 go SNOWFLAKE_CACHE_LINE;
	pg_atomic_uint32 stop SNOWFLAKE_CACHE_LINE;
	pg_atomic_uint64 word SNOWFLAKE_CACHE_LINE; /* of add */
	int64		issued[MAX_PROCESSES] SNOWFLAKE_CACHE_LINE;
} Control;

static Control *control = NULL;

/* Ends this process, and soon the others. */
static void
give_up(void)
{
	if (control != NULL)
		pg_atomic_write_u32(&control->stop, 1);
	exit(1);
}

/*
 * The server's variables that are looked at on the way.
 */
bool		IsUnderPostmaster = true;
bool		IsBinaryUpgrade = false;
bool		process_shared_preload_libraries_in_progress = true;
volatile sig_atomic_t InterruptPending = false;
int			MaxBackends = MAX_PROCESSES;
int			MyProcPid = 0;
struct Latch *MyLatch = NULL;
MemoryContext TopMemoryContext = NULL;
MemoryContext CurrentMemoryContext = NULL;
LWLockPadded *MainLWLockArray = NULL;
PROC_HDR   *ProcGlobal = NULL;
sigjmp_buf *PG_exception_stack = NULL;
ErrorContextCallback *error_context_stack = NULL;
emit_log_hook_type emit_log_hook = NULL;

#if PG_VERSION_NUM >= 170000
ProcNumber	MyProcNumber = 0;
#else
static PGPROC my_proc;
PGPROC	   *MyProc = &my_proc;
#endif

static LWLockPadded locks[64];

/* With MAP_POPULATE it is there before it is measured, with MAP_NORESERVE when it is used. */
static void *
shared_pages(size_t size, int flag)
{
	void	   *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | flag, -1, 0);

	if (pages == MAP_FAILED)
	{
		perror("hotpath: mmap");
		exit(1);
	}
	return pages;
}

/*
 * The server's functions.  Nobody competes for locks: slots are taken before the fork.
 */
bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	return true;
}

void
LWLockRelease(LWLock *lock)
{
}

LWLockPadded *
GetNamedLWLockTranche(const char *name)
{
	return locks;
}

void *
ShmemInitStruct(const char *name, Size size, bool *found)
{
	*found = false;
	return shared_pages(size, MAP_POPULATE);
}

/* Weak: the libraries for clients have them in some minor releases. */
__attribute__((weak))
Size
add_size(Size a, Size b)
{
	return a + b;
}

__attribute__((weak))
Size
mul_size(Size a, Size b)
{
	return a * b;
}

/* For the epoch of the layout. */
const int	day_tab[2][13] = {
	{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0},
	{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0}
};

/* The number of a day; years begin in March here, so that a leap day is the last. */
int
date2j(int year, int month, int day)
{
	int			months = (month + 9) % 12;
	int			years = year - (month < 3);

	return 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day + 1721119;
}

void
j2date(int jd, int *year, int *month, int *day)
{
	*year = 1;
	while (date2j(*year + 1, 1, 1) <= jd)
		(*year)++;
	*month = 1;
	while (*month < 12 && date2j(*year, *month + 1, 1) <= jd)
		(*month)++;
	*day = jd - date2j(*year, *month, 1) + 1;
}

void
ConditionVariableInit(ConditionVariable *cv)
{
}

/* An id that is too far ahead of the clock is waited for: no wakeup, so it sleeps for as long as it asked. */
bool
ConditionVariableTimedSleep(ConditionVariable *cv, long timeout, uint32 wait_event)
{
	struct timespec pause = {timeout / 1000, timeout % 1000 * 1000000};

	nanosleep(&pause, NULL);
	return true;
}

#undef ConditionVariableCancelSleep
extern bool ConditionVariableCancelSleep(void);

bool
ConditionVariableCancelSleep(void)
{
	return false;
}

bool
RecoveryInProgress(void)
{
	return false;
}

/* A message of the extension means that we did not set up what it needs. */
bool
errstart(int elevel, const char *domain)
{
	fprintf(stderr, "hotpath: the extension reports something of level %d\n", elevel);
	give_up();
	return false;
}

pg_attribute_cold bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

/*
 * What is measured.
 */
typedef enum Kind
{
	ONE,
	ONE_AND_LOOK,				/* whether an id is too far ahead */
	BATCHES,
	ADD,
	CLOCK
} Kind;

static int64 *ids;				/* room for share of them in each process */
static int64 share;

static double
seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void
fail(const char *what, int process, int64 id)
{
	fprintf(stderr, "hotpath: process %d: id " INT64_FORMAT " %s\n", process, id, what);
	give_up();
}

/* What process makes until it is stopped or has its share; returns how many. */
static inline int64
make_ids(Kind kind, int process)
{
	SnowflakeGenerator *g = snowflake_default_generator();
	const SnowflakeLayout *layout = &snowflake_shared->slots[0].layout;
	int64	   *own = ids + process * share;
	int64		n = 0;
	SnowflakePart part = {0};

	while (n < share && !pg_atomic_read_u32(&control->stop))
	{
		switch (kind)
		{
			case ONE:
			case ONE_AND_LOOK:
				own[n++] = snowflake_issue(g);
				if (kind == ONE_AND_LOOK &&
					snowflake_tick_begin(layout, snowflake_field_get(layout, own[n - 1], SNOWFLAKE_TIMESTAMP)) >
					snowflake_clock_now() + SNOWFLAKE_SETTING(max_ahead))
					fail("is too far ahead of the clock", process, own[n - 1]);
				break;
			case BATCHES:
				part.waited = 0;
				snowflake_issue_part(g, Min(BATCH, share - n), &part);
				for (; part.count > 0; part.count--, part.first += part.step)
					own[n++] = part.first;
				break;
			case ADD:
				own[n++] = (int64) pg_atomic_fetch_add_u64(&control->word, 1);
				break;
			case CLOCK:
				own[n++] = snowflake_clock_now();
				break;
		}
	}
	return n;
}

/* Each kind has a loop of its own. */
static int64
make_ids_of(Kind kind, int process)
{
	switch (kind)
	{
		case ONE:
			return make_ids(ONE, process);
		case ONE_AND_LOOK:
			return make_ids(ONE_AND_LOOK, process);
		case BATCHES:
			return make_ids(BATCHES, process);
		case ADD:
			return make_ids(ADD, process);
		case CLOCK:
			return make_ids(CLOCK, process);
	}
	return 0;
}

static void
start_process(Kind kind, int process)
{
	if (fork() != 0)
		return;
#if PG_VERSION_NUM >= 170000
	MyProcNumber = process;
#else
	MyProc->pgprocno = process;
#endif
	pg_atomic_fetch_add_u32(&control->ready, 1);
	while (!pg_atomic_read_u32(&control->go))
		;
	control->issued[process] = make_ids_of(kind, process);
	pg_atomic_write_u32(&control->stop, 1);
	exit(0);
}

/* All ids so far, by the extension's own counters. */
static int64
issued(int processes)
{
	int64		sum = 0;

	for (int i = 0; i < processes; i++)
		sum += (int64) pg_atomic_read_u64(snowflake_shmem_ids_issued(i, 0));
	return sum;
}

/* Runs all processes; how many a second they made. */
static double
run(Kind kind, int processes, int warm_ms, int measure_ms)
{
	double		begin;
	double		rate = 0;
	int64		count = 0;
	int			status;

	for (int i = 0; i < processes; i++)
		start_process(kind, i);
	while (pg_atomic_read_u32(&control->ready) < processes)
		usleep(100);
	begin = seconds();
	pg_atomic_write_u32(&control->go, 1);
	if (measure_ms > 0)
	{
		usleep(warm_ms * 1000);
		begin = seconds();
		count = issued(processes);
		usleep(measure_ms * 1000);
		rate = (issued(processes) - count) / (seconds() - begin);
		if (pg_atomic_exchange_u32(&control->stop, 1) != 0)
			fail("was the last there is room for", 0, 0);
	}
	for (int i = 0; i < processes; i++)
		if (wait(&status) < 0 || status != 0)
			exit(1);
	if (measure_ms > 0)
		return rate;
	for (int i = 0; i < processes; i++)
		count += control->issued[i];
	return count / (seconds() - begin);
}

/* Of each process: increasing, and ours. */
static void
check_process(Kind kind, int process)
{
	const SnowflakeLayout *layout = &snowflake_shared->slots[0].layout;
	int64	   *own = ids + process * share;

	for (int64 i = 0; i < control->issued[process]; i++)
	{
		if (i > 0 && own[i] <= own[i - 1])
			fail("is not greater than the one before", process, own[i]);
		if (kind != ADD && (snowflake_field_get(layout, own[i], SNOWFLAKE_WORKER) != NODE ||
							!snowflake_id_in_layout(layout, own[i])))
			fail("has another node number", process, own[i]);
	}
}

/* All ids in order: none twice. */
static void
check_distinct(int processes)
{
	int64		at[MAX_PROCESSES] = {0};
	int64		last = -1;

	for (;;)
	{
		int			least = -1;

		for (int i = 0; i < processes; i++)
			if (at[i] < control->issued[i] &&
				(least < 0 || ids[i * share + at[i]] < ids[least * share + at[least]]))
				least = i;
		if (least < 0)
			return;
		if (ids[least * share + at[least]] == last)
			fail("was issued twice", least, last);
		last = ids[least * share + at[least]++];
	}
}

/* As _PG_init, the postmaster and the lease worker do. */
static void
open_lease(char *layout, int max_ahead)
{
	SnowflakeLayout layouts[SNOWFLAKE_MAX_LAYOUTS];
	TimestampTz now = snowflake_clock_now();

	snowflake_layout_setting = layout;
	snowflake_max_ahead = max_ahead;
	snowflake_extra_layouts = "";
	snowflake_shmem_create(layouts, snowflake_guc_layouts(layouts));
	snowflake_guc_publish();
	snowflake_words_open(NODE, now, now + 2 * USECS_PER_HOUR);
	if (pg_atomic_read_u64(&snowflake_shared->slots[0].word) & SNOWFLAKE_SEALED)
	{
		fprintf(stderr, "hotpath: layout \"%s\" has no word to issue ids from\n", layout);
		exit(1);
	}
}

int
main(int argc, char **argv)
{
	static const char *const kinds[] = {"one", NULL, "batch", "add", "clock"};
	int			processes = argc > 2 ? atoi(argv[2]) : 0;
	int			measure_ms = argc > 7 ? atoi(argv[7]) : 0;
	Kind		kind = ONE;
	double		rate;

	while (argc > 1 && (kinds[kind] == NULL || strcmp(kinds[kind], argv[1]) != 0))
		if (++kind == lengthof(kinds))
			break;
	if ((argc != 6 && argc != 8) || kind == lengthof(kinds) || processes < 1 || processes > MAX_PROCESSES)
	{
		fprintf(stderr, "usage: hotpath KIND PROCESSES LAYOUT MAX_AHEAD IDS [WARM TIME]\n");
		return 2;
	}
	share = atoll(argv[5]) / processes;
	ids = shared_pages(sizeof(int64) * share * processes, measure_ms > 0 ? MAP_NORESERVE : MAP_POPULATE);
	control = shared_pages(sizeof(Control), MAP_POPULATE);
	open_lease(argv[3], atoi(argv[4]));

	if (measure_ms > 0 && kind == ONE)
		kind = ONE_AND_LOOK;
	rate = run(kind, processes, measure_ms > 0 ? atoi(argv[6]) : 0, measure_ms);
	if (kind != CLOCK)
	{
		for (int i = 0; i < processes; i++)
			check_process(kind, i);
		check_distinct(processes);
	}
	if (pg_atomic_read_u64(&snowflake_shared->slots[0].counters.max_ahead_seen) > (uint64) SNOWFLAKE_SETTING(max_ahead))
		fail("or another was too far ahead of the clock", 0, 0);
	printf("%.0f\n", rate);
	return 0;
}
