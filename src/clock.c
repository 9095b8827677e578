/*
 * clock.c
 *	  The monotonic clock, and both clocks together to tell steps of the wall
 *	  clock from time that passed.
 */
#include "postgres.h"

#include "clock.h"

/* Readings of a pair further apart than this were interrupted: read again. */
#define PAIR_TOLERANCE_US	200
#define PAIR_TRIES			10

/* CLOCK_BOOTTIME goes on while the machine sleeps, as the wall clock does. */
#ifdef CLOCK_BOOTTIME
#define MONOTONIC_CLOCK		CLOCK_BOOTTIME
#else
#define MONOTONIC_CLOCK		CLOCK_MONOTONIC
#endif

/* Greater than 0, so that 0 can stand for "never". */
int64
snowflake_monotonic_now(void)
{
	struct timespec ts;

	clock_gettime(MONOTONIC_CLOCK, &ts);
	return (int64) ts.tv_sec * USECS_PER_SEC + ts.tv_nsec / 1000 + 1;
}

/*
 * How far the coarse clock may lag behind, in microseconds: ten kernel ticks.
 * By its nature it is one, but a virtual machine whose processor is taken away
 * may miss some.  If it misses more, an id's time is behind the clock by the
 * rest; nothing else depends on this.
 */
int64
snowflake_coarse_lag(void)
{
	struct timespec resolution = {0, 0};

#ifdef CLOCK_REALTIME_COARSE
	clock_getres(CLOCK_REALTIME_COARSE, &resolution);
#endif
	return 10 * (resolution.tv_sec * USECS_PER_SEC +
				 resolution.tv_nsec / 1000);
}

/*
 * Reads both clocks within PAIR_TOLERANCE_US, or as close as a busy machine
 * allows.
 */
SnowflakeClockPair
snowflake_clock_pair(void)
{
	SnowflakeClockPair pair = {0, 0};

	for (int try = 0; try < PAIR_TRIES; try++)
	{
		int64		before = snowflake_monotonic_now();

		pair.clock = snowflake_clock_now();
		pair.monotonic = snowflake_monotonic_now();
		if (pair.monotonic - before <= PAIR_TOLERANCE_US)
			break;
	}
	return pair;
}
