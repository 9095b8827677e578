/*
 * backoff.c
 *	  When to call the registry again after a failure: soon at first, then later and
 *	  later, and not all nodes at the same time.
 *
 * For the holder only.  What is kept here is lost with the lease worker.  Spans are
 * microseconds of the monotonic clock.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/timestamp.h"

#include "backoff.h"
#include "clock.h"

#define FIRST_RETRY_US		250000
#define LAST_RETRY_US		(4 * USECS_PER_SEC)

static bool failing = false;
static SnowflakeProblem failure;	/* if failing */
static int64 retry_at = 0;
static int64 retry_after = 0;

/* A call has failed. */
void
snowflake_backoff_fail(const SnowflakeProblem *problem)
{
	failure = *problem;
	failing = true;
	retry_after = retry_after == 0 ? FIRST_RETRY_US : Min(retry_after * 2, LAST_RETRY_US);
	retry_at = snowflake_monotonic_now() + retry_after / 2 +
		(int64) (pg_prng_double(&pg_global_prng_state) * retry_after / 2);
	pg_atomic_fetch_add_u64(&snowflake_shared->lease.failures, 1);
}

/* A call has succeeded, or what failed is of no concern any more. */
void
snowflake_backoff_succeed(void)
{
	failing = false;
	retry_after = 0;
	retry_at = 0;
}

/* The next call is due then, whatever was before; 0: now. */
void
snowflake_backoff_pause(int64 microseconds)
{
	retry_at = snowflake_monotonic_now() + microseconds;
}

/* How long not to call; <= 0: not at all. */
int64
snowflake_backoff_left(void)
{
	return retry_at - snowflake_monotonic_now();
}

/* What failed last, NULL if nothing has since the last success. */
const SnowflakeProblem *
snowflake_backoff_problem(void)
{
	return failing ? &failure : NULL;
}
