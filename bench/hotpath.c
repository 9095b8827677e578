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
 * What the objects need of the server is in test/stubs.  Processes as PostgreSQL has them: forked, with an anonymous
 * shared mapping, which is what PostgreSQL's shared memory is.
 */
#include "postgres.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "miscadmin.h"

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
		sum += (int64) pg_atomic_read_u64(&snowflake_shmem_process_slot(i, 0)->ids_issued);
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
	MaxBackends = MAX_PROCESSES;
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
