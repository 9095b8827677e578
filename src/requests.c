/*
 * requests.c
 *	  What the registrar asks of the registry: a number, more time, an end.  Each of
 *	  these makes the one call that can be out (calls.c).
 *
 * For the holder only.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "calls.h"
#include "floor.h"
#include "lease.h"
#include "loose_ends.h"
#include "origin.h"
#include "requests.h"

/*
 * One of these numbers of a wish, for a window of microseconds from now on.  create:
 * the extension too, if it is missing in the local database.
 */
void
snowflake_request_acquire(const SnowflakeWish *wish, const SnowflakeNumbers *numbers,
						  const SnowflakeState *state, int64 window, bool create)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	SnowflakeCall *call;

	/* with a row of ours in hand, the one that the state tells of is not over */
	if (!claim->held || claim->unregistered)
		snowflake_loose_recall(state, wish->remote);
	call = snowflake_call_new(SNOWFLAKE_ACQUIRE, wish);
	call->create = create;
	call->any_incarnation = snowflake_origin_any(state, wish->remote);
	call->incarnation = state->incarnation;
	call->layout = snowflake_shared->slots[0].layout;
	call->first = numbers->first;
	call->last_number = numbers->last;
	call->ring_mask = wish->ring_mask;
	call->ring_bits = wish->ring_bits;
	call->exclusive = wish->exclusive;
	call->clock = snowflake_id_clock();
	call->max_ahead = SNOWFLAKE_SETTING(max_ahead);
	call->window = window;
	call->timeline = snowflake_floor_timeline();
	snowflake_call_make();
}

/* A window for the claim that is held, and a bound that its ids do not begin beyond. */
void
snowflake_request_renew(int64 window)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	SnowflakeCall *call = snowflake_call_new(SNOWFLAKE_RENEW, &claim->wish);

	call->token = claim->token;
	call->until = Max(snowflake_id_clock() + window, snowflake_lease_begin());
	snowflake_call_make();
}

/* The end of the previous lease, where it was granted.  last: the server is stopping. */
void
snowflake_request_release(const SnowflakeWish *wish, bool last)
{
	SnowflakeCall *call = snowflake_call_new(SNOWFLAKE_RELEASE, wish);

	call->last = last;
	snowflake_loose_fill(call);
	snowflake_call_make();
}
