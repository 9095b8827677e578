/*
 * clock.h
 *	  The only reader of time.
 *
 * Clock times are microseconds since 2000-01-01 UTC (TimestampTz), monotonic
 * times microseconds since an arbitrary begin.  Any process may call any
 * function here; none takes a lock, allocates or raises an error.
 */
#ifndef SNOWFLAKE_CLOCK_H
#define SNOWFLAKE_CLOCK_H

#include <time.h>

#include "datatype/timestamp.h"

#define SNOWFLAKE_UNIX_EPOCH \
	(-(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

/* A reading of both clocks at about one moment. */
typedef struct SnowflakeClockPair
{
	TimestampTz clock;
	int64		monotonic;
} SnowflakeClockPair;

extern int64 snowflake_monotonic_now(void);
extern SnowflakeClockPair snowflake_clock_pair(void);
extern int64 snowflake_coarse_lag(void);

static inline TimestampTz
snowflake_clock_read(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return SNOWFLAKE_UNIX_EPOCH + (int64) ts.tv_sec * USECS_PER_SEC +
		ts.tv_nsec / 1000;
}

/* The node's clock. */
static inline TimestampTz
snowflake_clock_now(void)
{
	return snowflake_clock_read(CLOCK_REALTIME);
}

/*
 * The same at the last kernel tick: at a fifth of the price, never ahead of
 * the exact clock, and as a rule behind it by less than
 * snowflake_coarse_lag().
 */
static inline TimestampTz
snowflake_clock_coarse(void)
{
#ifdef CLOCK_REALTIME_COARSE
	return snowflake_clock_read(CLOCK_REALTIME_COARSE);
#else
	return snowflake_clock_now();
#endif
}

#endif							/* SNOWFLAKE_CLOCK_H */
