/*
 * backoff.h
 *	  When to call the registry again after a failure.
 */
#ifndef SNOWFLAKE_BACKOFF_H
#define SNOWFLAKE_BACKOFF_H

#include "problem.h"

/* All zeros: nothing has failed.  Times are microseconds of the monotonic clock. */
typedef struct SnowflakeBackoff
{
	SnowflakeProblem failure;	/* sqlerrcode 0: none since the last success */
	int64		retry_at;
	int64		retry_after;
} SnowflakeBackoff;

extern void snowflake_backoff_fail(SnowflakeBackoff *backoff, const SnowflakeProblem *problem);
extern void snowflake_backoff_succeed(SnowflakeBackoff *backoff);
extern void snowflake_backoff_pause(SnowflakeBackoff *backoff, int64 microseconds);
extern int64 snowflake_backoff_left(const SnowflakeBackoff *backoff);

#endif							/* SNOWFLAKE_BACKOFF_H */
