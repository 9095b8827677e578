/*
 * clock_watch.c
 *	  Notices steps of the clock while the server runs.
 *
 * Only reports: that no id repeats after a step follows from the word and the
 * bounds alone.  Called by the holder (shmem.h) only.
 */
#include "postgres.h"

#include "clock.h"
#include "clock_watch.h"

/*
 * Less is not a step: the two clocks are not read at the same instant, and the
 * wall clock is slewed by up to 500 millionths; twice that is allowed for.
 */
#define STEP_TOLERANCE_US	1000
#define SLEW_DIVISOR		1000

/* Shorter steps back are counted but not logged. */
#define LOG_BACK_US			100000

/*
 * Compares how far the clock and the monotonic clock have come since the last
 * call: counts steps back, warns about steps forward of more than a window.
 */
void
snowflake_clock_watch(int64 window)
{
	static SnowflakeClockPair last = {0, 0};
	SnowflakeClockPair now = snowflake_clock_pair();
	int64		passed,
				step,
				tolerance;

	now.clock += SNOWFLAKE_SETTING(clock_offset);
	passed = now.monotonic - last.monotonic;
	step = now.clock - last.clock - passed;
	tolerance = STEP_TOLERANCE_US + passed / SLEW_DIVISOR;
	if (last.monotonic != 0 && step <= -tolerance)
	{
		pg_atomic_fetch_add_u64(&snowflake_shared->lease.clock_rollbacks, 1);
		if (step <= -LOG_BACK_US)
			ereport(LOG,
					(errmsg("snowflake: the clock was set back by %.3f s", -step / 1e6)));
	}
	else if (last.monotonic != 0 && step > window)
		ereport(WARNING,
				(errmsg("snowflake: the clock was set forward by %.3f s", step / 1e6),
				 errdetail("Ids carry the new time at once; if it is wrong, ids stop when the clock is set back.")));
	last = now;
}
