/*
 * backoff.h
 *	  When to call the registry again after a failure.
 */
#ifndef SNOWFLAKE_BACKOFF_H
#define SNOWFLAKE_BACKOFF_H

#include "shmem.h"

extern void snowflake_backoff_fail(const SnowflakeProblem *problem);
extern void snowflake_backoff_succeed(void);
extern void snowflake_backoff_pause(int64 microseconds);
extern int64 snowflake_backoff_left(void);
extern const SnowflakeProblem *snowflake_backoff_problem(void);

#endif							/* SNOWFLAKE_BACKOFF_H */
