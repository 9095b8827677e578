/*
 * simulator.c
 *	  Runs deployments from a seed, one after the other, until the time is over or one
 *	  breaks the promise.  A failure is cut down to the fewest faults that still lead to it,
 *	  and told as a story.
 *
 *	  simulator [-d SECONDS] [-s SEED] [-r RUN] [-b BREAK] [-v] [-k SEEDS] [-n RUNS] [-H] [-q] [-m]
 *
 * -d seconds of processor time; -r only this run; -b an assumption that is broken; -v the
 * story also if nothing is found; -k a file of seeds that are run first; -n so many runs, whatever the
 * time; -H only the hash of all; -q no story; -m hours of five nodes with ten faults a minute, to
 * measure.
 *
 * Exit status: 0 nothing was found, 1 the promise was broken, 2 anything else; also if so little was done that
 * finding nothing shows nothing.
 */
#include "sim.h"

#include <time.h>
#include <unistd.h>

static uint64 total_ids = 0;
static uint64 total_faults = 0;
static uint64 total_events = 0;
static uint64 fault_totals[NUM_FAULTS];
static uint64 done_totals[NUM_FAULTS];
static int64 total_time = 0;
static uint64 total_hash = 0;
static int	total_runs = 0;
static bool hour = false;

static double
processor_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Whether the plan fails, and after how many of its faults. */
static bool
fails(Plan *plan, bool verbose)
{
	bool		failed;

	world_run(plan, verbose);
	failed = world.failed;
	world_free();
	return failed;
}

/*
 * Takes away faults, first many at a time, as long as it still fails.
 */
static void
cut_down(Plan *plan)
{
	double		end = processor_seconds() + 15;
	Fault	   *kept = plan->faults;
	Fault	   *fewer = malloc(plan->num_faults * sizeof(Fault) + 1);
	int64		failed_at = world.now;

	for (int i = plan->num_faults; i > 0 && kept[i - 1].at > failed_at; i--)
		if (!world.calm)
			plan->num_faults = i - 1;
	for (int chunk = Max(plan->num_faults / 2, 1); chunk > 0; chunk /= 2)
	{
		for (int from = 0; from < plan->num_faults && processor_seconds() < end;)
		{
			int			num = plan->num_faults;
			int			taken = Min(chunk, num - from);

			memcpy(fewer, kept, from * sizeof(Fault));
			memcpy(fewer + from, kept + from + taken, (num - from - taken) * sizeof(Fault));
			plan->faults = fewer;
			plan->num_faults = num - taken;
			if (fails(plan, false))
				memcpy(kept, fewer, plan->num_faults * sizeof(Fault));
			else
			{
				plan->num_faults = num;
				from += chunk;
			}
			plan->faults = kept;
		}
	}
	free(fewer);
}

/* Runs one deployment; false if it breaks the promise. */
static bool
run_one(uint64 seed, uint64 run, Break breaks, bool verbose, bool tell)
{
	Plan		plan;
	bool		failed;

	memset(&plan, 0, sizeof(plan));
	if (hour)
		plan_draw_hour(&plan, seed + run);
	else
		plan_draw(&plan, seed, run, breaks);
	world_run(&plan, verbose);
	failed = world.failed;
	total_runs++;
	total_ids += world.ids;
	total_faults += world.faults;
	total_events += world.events;
	total_time += world.now;
	total_hash = mix(total_hash ^ world.hash);
	for (int i = 0; i < NUM_FAULTS; i++)
	{
		fault_totals[i] += world.fault_counts[i];
		done_totals[i] += world.done_counts[i];
	}
	if (failed)
	{
		printf("THE PROMISE IS BROKEN: %s\n", world.failure);
		printf("seed " UINT64_FORMAT ", run " UINT64_FORMAT ", after %.6f s and " UINT64_FORMAT " faults\n", seed, run,
			   world.now / 1e6, world.faults);
	}
	world_free();
	if (failed && tell)
	{
		cut_down(&plan);
		printf("cut down to %d faults:\n\n", plan.num_faults);
		(void) fails(&plan, true);
	}
	free(plan.faults);
	return !failed;
}

static bool
run_kept(const char *file)
{
	FILE	   *f = fopen(file, "r");
	char		line[200];
	bool		fine = true;

	if (f == NULL)
		return true;
	while (fine && fgets(line, sizeof(line), f) != NULL)
	{
		unsigned long long seed;
		unsigned long long run;

		if (sscanf(line, "%llu %llu", &seed, &run) == 2)
			fine = run_one(seed, run, BREAK_NOTHING, false, true);
	}
	fclose(f);
	return fine;
}

/*
 * Too little is a failure of the simulator.  The least are about a tenth of what there is; but each kind of fault
 * must do something now and then, and most of the reasons of registries must have been judged.
 */
#define ENOUGH_HOURS	20		/* less says nothing */
#define LEAST_IDS		10000	/* in a simulated hour */
#define LEAST_CALLS		10000
#define LEAST_ERRORS	500
#define LEAST_REFUSALS	500
#define LEAST_REASONS	12
#define LEAST_DONE		40		/* in a hundred faults */
#define ENOUGH_FAULTS	500		/* of a kind: one of them has done something */

static bool
is_enough(const char *what, double number, double least)
{
	if (number < least)
		printf("THE SIMULATOR HAS DONE TOO LITTLE: %s: %.1f, not %.1f\n", what, number, least);
	return number >= least;
}

static bool
has_done_enough(void)
{
	double		hours = total_time / 3.6e9;
	uint64		refusals = 0;
	uint64		done = 0;
	int			reasons = 0;
	bool		enough = true;

	for (int i = 0; i < NUM_SIM_REASONS; i++)
	{
		refusals += judge_counts.refusals[i];
		reasons += judge_counts.refusals[i] > 0;
	}
	for (int i = 0; i < NUM_FAULTS; i++)
	{
		done += done_totals[i];
		enough &= is_enough(fault_names[i], done_totals[i], fault_totals[i] >= ENOUGH_FAULTS);
	}
	printf("in an hour: %.0f ids, %.0f calls timed, %.0f errors judged (%.0f with a reason that held), %.0f refusals of registries "
		   "(%d reasons), %.0f faults (%.0f %% did something)\n",
		   total_ids / hours, judge_counts.calls / hours, judge_counts.errors / hours, judge_counts.needed / hours,
		   refusals / hours, reasons, total_faults / hours, 100.0 * done / Max(total_faults, 1));
	enough &= is_enough("ids in an hour", total_ids / hours, LEAST_IDS);
	enough &= is_enough("calls timed in an hour", judge_counts.calls / hours, LEAST_CALLS);
	enough &= is_enough("errors judged in an hour", judge_counts.errors / hours, LEAST_ERRORS);
	enough &= is_enough("refusals judged in an hour", refusals / hours, LEAST_REFUSALS);
	enough &= is_enough("reasons judged", reasons, LEAST_REASONS);
	return enough & is_enough("faults in a hundred that did something", 100.0 * done / Max(total_faults, 1), LEAST_DONE);
}

int
main(int argc, char **argv)
{
	double		duration = 60;
	uint64		seed = (uint64) time(NULL);
	int64		only = -1;
	int64		runs = -1;
	Break		breaks = BREAK_NOTHING;
	bool		verbose = false;
	bool		hash = false;
	bool		tell = true;
	const char *kept = NULL;
	int			option;
	bool		fine = true;

	while ((option = getopt(argc, argv, "d:s:r:b:vk:n:Hqm")) != -1)
		switch (option)
		{
			case 'd':
				duration = atof(optarg);
				break;
			case 's':
				seed = strtoull(optarg, NULL, 10);
				break;
			case 'r':
				only = atoll(optarg);
				break;
			case 'n':
				runs = atoll(optarg);
				break;
			case 'b':
				while (breaks < NUM_BREAKS && strcmp(break_names[breaks], optarg) != 0)
					breaks++;
				if (breaks == NUM_BREAKS)
					return 2;
				break;
			case 'v':
				verbose = true;
				break;
			case 'H':
				hash = true;
				break;
			case 'm':
				hour = true;
				break;
			case 'q':
				tell = false;
				break;
			case 'k':
				kept = optarg;
				break;
			default:
				return 2;
		}
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	processes_init();
	sim_layouts_init();
	if (kept != NULL)
	{
		fine = run_kept(kept);
		printf("%d runs of %s\n", total_runs, kept);
	}
	if (fine && only >= 0)
		fine = run_one(seed, (uint64) only, breaks, verbose, tell);
	else
		for (uint64 run = 0; fine && (runs >= 0 ? (int64) run < runs : processor_seconds() < duration); run++)
			fine = run_one(seed, run, breaks, verbose, tell);
	if (hash)
		printf("hash %016llx\n", (unsigned long long) total_hash);
	for (int i = 0; i < NUM_FAULTS; i++)
		if (fault_totals[i] > 0 && !hash)
			printf("%s%s " UINT64_FORMAT "/" UINT64_FORMAT, i == 0 ? "faults: " : ", ", fault_names[i], done_totals[i], fault_totals[i]);
	if (!hash)
		printf("\nprocessor time: %.1f s\n%d runs, " UINT64_FORMAT " events, %.0f times as fast as real time\n", processor_seconds(),
			   total_runs, total_events,
			   total_time / 1e6 / processor_seconds());
	if (fine && !hash && !hour && breaks == BREAK_NOTHING && total_time > SECONDS(3600) * ENOUGH_HOURS && !has_done_enough())
		return 2;
	if (fine)
		printf("nothing found: seed " UINT64_FORMAT ", %.1f simulated hours, " UINT64_FORMAT " faults, "
			   UINT64_FORMAT " ids\n", seed, total_time / 3.6e9, total_faults, total_ids);
	return fine ? 0 : 1;
}
