/*
 * backoff.c
 *	  When to call the registry again after a failure: soon at first, then later and
 *	  later, and not all nodes at the same time.
 *
 * For the holder only.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/timestamp.h"

#include "backoff.h"
#include "clock.h"

#define FIRST_RETRY_US		250000
#define LAST_RETRY_US		(4 * USECS_PER_SEC)

/* A call has failed. */
void
snowflake_backoff_fail(SnowflakeBackoff *backoff, const SnowflakeProblem *problem)
{
	int64		after = backoff->retry_after == 0 ? FIRST_RETRY_US : Min(backoff->retry_after * 2, LAST_RETRY_US);

	backoff->failure = *problem;
	backoff->retry_after = after;
	backoff->retry_at = snowflake_monotonic_now() + after / 2 +
		(int64) (pg_prng_double(&pg_global_prng_state) * after / 2);
}

/* A call has succeeded, or what failed is of no concern any more. */
void
snowflake_backoff_succeed(SnowflakeBackoff *backoff)
{
	memset(backoff, 0, sizeof(*backoff));
}

/* The next call is due then, whatever was before; 0: now. */
void
snowflake_backoff_pause(SnowflakeBackoff *backoff, int64 microseconds)
{
	backoff->retry_at = snowflake_monotonic_now() + microseconds;
}

/* How long not to call; <= 0: not at all. */
int64
snowflake_backoff_left(const SnowflakeBackoff *backoff)
{
	return backoff->retry_at - snowflake_monotonic_now();
}
