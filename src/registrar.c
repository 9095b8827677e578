/*
 * registrar.c
 *	  Gets, keeps and gives back the row of worker_node that is this server's
 *	  claim on a node number.
 *
 * Calls take their time, and their answers may come late or never.  What makes
 * that safe:
 *
 *	  - A claim is taken only from the answer to the very call that asked for it,
 *		with a token made for that call.  A lease whose answer was given up on is
 *		never used, and the registry is told so with the next call.
 *	  - The row's bound is durable before the answer is there, so before the
 *		state file and the limit follow (lease.c).
 *	  - A claim that is exchanged for another (the layouts in use ask for a lower
 *		number) is kept until that one is granted: nothing is lost if none is.
 *	  - A lease that was ended is told to the registry with the end of its ids,
 *		after its words were sealed.  After a restart the end is that of the state
 *		file, unless the file may be a copy (host.c): then it is not told, and
 *		the number is free for others when the row's bound is past.
 *
 * What the answers mean is in answers.c.  For the holder only; the claim itself is in
 * shared memory, and outlives a lease worker.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "answers.h"
#include "calls.h"
#include "helper.h"
#include "lease.h"
#include "loose_ends.h"
#include "origin.h"
#include "registrar.h"
#include "requests.h"

/* Renewals are due when this part of the window is used up. */
#define RENEW_DIVISOR		4

/* A call that takes longer is mentioned. */
#define PATIENCE_US			(1 * USECS_PER_SEC)

/* If the helper's word is lost, look after this. */
#define LOOK_FOR_ANSWER_MS	500L

/* Who goes by the row, on another server, must begin behind those ids too. */
static bool
row_is_behind(void)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	return snowflake_claim_is_registered(claim) && claim->until < snowflake_lease_begin();
}

/* How long the row's bound may still come closer before it is moved ahead; <= 0: now. */
static int64
until_renewal(const SnowflakeClaim *claim, int64 window)
{
	return claim->until - snowflake_id_clock() - (window - window / RENEW_DIVISOR);
}

/* The registry gets to know that the previous lease is over. */
static void
tell_and_forget(const SnowflakeWish *wish, bool last)
{
	snowflake_asking.tell_previous = false;
	snowflake_request_release(wish, last);
}

/* A number is asked for, if it may come from where the settings say. */
static void
ask(const SnowflakeErrand *errand)
{
	SnowflakeProblem problem;

	if (snowflake_origin_check(errand->state, errand->wish->remote, &problem))
		snowflake_request_acquire(errand->wish, snowflake_asking.ask_any ? &errand->wish->allowed : &errand->wish->fitting,
								  errand->state, errand->window, errand->wanted);
	else
		snowflake_asking_fail(&snowflake_asking.backoff, &problem);
}

/* Whether the claim is to be renewed before its bound is reached. */
static bool
is_kept(const SnowflakeClaim *claim, bool needed)
{
	return snowflake_claim_is_registered(claim) && (claim->wish.remote || needed);
}

static void
ask_what_is_due(const SnowflakeErrand *errand)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	if (errand->wanted || errand->look)
		snowflake_asking.resting = false;
	else if (errand->standby && !claim->held)
		snowflake_asking.resting = true;
	if (snowflake_call_is_out())
		return;
	if (snowflake_asking.tell_previous)
		tell_and_forget(errand->wish, false);
	else if (snowflake_backoff_left(&snowflake_asking.backoff) > 0)
		return;
	else if (!claim->held || claim->unregistered)
	{
		if (!snowflake_asking.resting)
			ask(errand);
	}
	else if (row_is_behind() ||
			 (is_kept(claim, errand->active || errand->wanted) &&
			  until_renewal(claim, errand->window) <= 0))
		snowflake_request_renew(errand->window);
	else if (errand->exchange && snowflake_backoff_left(&snowflake_asking.exchange) <= 0)
		ask(errand);
}

/* Takes what the helper has brought, asks for what is due, and says how things stand. */
SnowflakeStanding
snowflake_registrar_step(const SnowflakeErrand *errand, SnowflakeProblem *problem)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	if (!snowflake_answer_take(errand))
		return SNOWFLAKE_CLAIM_LOST;
	ask_what_is_due(errand);
	if (snowflake_call_is_out() || !snowflake_asking.resting)
		snowflake_helper_prepare();

	if (snowflake_asking.backoff.failure.sqlerrcode != 0)
	{
		*problem = snowflake_asking.backoff.failure;
		return SNOWFLAKE_CLAIM_FAILING;
	}
	if (snowflake_call_age() > PATIENCE_US &&
		(!claim->held || claim->until <= snowflake_id_clock()))
	{
		snowflake_call_problem(problem);
		return SNOWFLAKE_CLAIM_FAILING;
	}
	if (claim->held)
		return SNOWFLAKE_CLAIM_HELD;
	return snowflake_asking.resting ? SNOWFLAKE_CLAIM_NONE : SNOWFLAKE_CLAIM_ASKED;
}

/*
 * Tells the registry that the lease dropped last is over.  rest: no other is
 * asked for before somebody wants an id.  last: the server is stopping.
 */
void
snowflake_registrar_give_back(bool rest, bool last)
{
	snowflake_asking.resting = rest;
	if (!snowflake_loose_has_previous())
		return;
	snowflake_helper_prepare();
	tell_and_forget(&snowflake_shared->lease.claim.wish, last);
}

/* Why there is no number that fits all layouts; NULL if no attempt has failed. */
const SnowflakeProblem *
snowflake_registrar_exchange_problem(void)
{
	return snowflake_asking.exchange.failure.sqlerrcode != 0 ? &snowflake_asking.exchange.failure : NULL;
}

/* Has the next attempt made now, and the first one if there was none. */
void
snowflake_registrar_hurry(void)
{
	snowflake_asking.resting = false;
	snowflake_backoff_pause(&snowflake_asking.backoff, 0);
}

/* Whether a call is out; takes the answer if it is there. */
bool
snowflake_registrar_busy(void)
{
	(void) snowflake_answer_take(NULL);
	return snowflake_call_is_out();
}

/* Milliseconds until there is something to do here; -1: not before somebody asks. */
long
snowflake_registrar_due(const SnowflakeErrand *errand)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	int64		due = 0;

	if (snowflake_call_is_out())
		return LOOK_FOR_ANSWER_MS;
	if (snowflake_asking.tell_previous)
		return 1L;
	if (!claim->held || claim->unregistered)
	{
		if (snowflake_asking.resting)
			return -1L;
	}
	else if (row_is_behind())
		due = 0;
	else if (errand->exchange)
		due = snowflake_backoff_left(&snowflake_asking.exchange);
	else if (!is_kept(claim, errand->active))
		return -1L;
	else
		due = until_renewal(claim, errand->window);
	return (long) (Max(Max(due, snowflake_backoff_left(&snowflake_asking.backoff)), 0) / 1000) + 1;
}
