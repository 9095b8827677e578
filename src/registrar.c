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
 *		after its word was sealed.  After a restart the end is that of the state
 *		file, unless the file may be a copy (host.c): then it is not told, and
 *		the number is free for others when the row's bound is past.
 *
 * For the holder only.  What is kept here is lost with the lease worker; the
 * claim itself is in shared memory.
 */
#include "postgres.h"

#include "storage/latch.h"
#include "utils/timestamp.h"

#include "backoff.h"
#include "calls.h"
#include "clock.h"
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

#define LOG_AGAIN_US		(10 * USECS_PER_SEC)

/* The registry is told of the previous lease now, not with the next one. */
static bool tell_previous = false;

/* No claim is asked for before somebody wants an id. */
static bool resting = false;

/* No number that fits all layouts is free: the next call asks for any that is allowed. */
static bool ask_any = false;

/* Of calls for the claim that there is to be; and of attempts to exchange one that is held. */
static SnowflakeBackoff backoff;
static SnowflakeBackoff exchange_backoff;

/* Whether an event, told by its format, is to be logged: the same ones not too often. */
static bool
worth_logging(int64 *last)
{
	int64		now = snowflake_monotonic_now();

	if (*last != 0 && now - *last < LOG_AGAIN_US)
		return false;
	*last = now;
	return true;
}

static bool
same(const pg_uuid_t *a, const pg_uuid_t *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static void
note_failure(SnowflakeBackoff *of, const SnowflakeProblem *problem)
{
	snowflake_backoff_fail(of, problem);
	pg_atomic_fetch_add_u64(&snowflake_shared->lease.failures, 1);
}

static bool
is_registered(const SnowflakeClaim *claim)
{
	return claim->held && !claim->unregistered;
}

/* Who goes by the row, on another server, must begin behind those ids too. */
static bool
row_is_behind(void)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	return is_registered(claim) && claim->until < snowflake_lease_begin();
}

/*
 * Makes a claim without the table: it is being created by a transaction that
 * may be waiting for us, or nobody is there to ask (single-user mode).  On one
 * cluster and timeline the state file tells all that the table would.  The first
 * number of ours whose bound is past, or else the first.
 */
void
snowflake_registrar_claim_alone(const SnowflakeErrand *errand)
{
	SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	TimestampTz now = snowflake_lease_clock();

	const SnowflakeNumbers *numbers = &errand->wish->fitting;

	claim->node = numbers->first;
	for (uint64 node = claim->node, tries = 0;
		 node <= numbers->last && tries < SNOWFLAKE_STATE_ENTRIES; node++)
	{
		if (!snowflake_wish_has(errand->wish, numbers, node))
			continue;
		tries++;
		if (snowflake_state_bound(errand->state, node) > now)
			continue;
		claim->node = node;
		break;
	}
	claim->held = true;
	claim->unregistered = true;
	claim->opened = false;
	claim->used = false;
	claim->wish = *errand->wish;
	memset(&claim->token, 0, sizeof(claim->token));
	claim->starts_at = DT_NOBEGIN;
	claim->until = DT_NOEND;
}

static void
take_claim(const SnowflakeErrand *errand, const SnowflakeCall *call,
		   const SnowflakeAnswer *answer)
{
	static int64 logged = 0;
	SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	snowflake_loose_told(call);
	/* an exchange: the lease that is held is over */
	if (is_registered(claim))
		snowflake_registrar_drop(snowflake_lease_end());
	/* its number, or that of one that ended meanwhile, is of use to others */
	tell_previous = snowflake_loose_has_previous();

	/*
	 * the words of an unregistered claim are sealed when this one's lease is
	 * opened
	 */
	claim->held = true;
	claim->unregistered = false;
	claim->opened = false;
	claim->used = false;
	claim->wish = *errand->wish;
	claim->token = call->token;
	claim->incarnation = answer->incarnation;
	claim->node = answer->node;
	claim->starts_at = answer->starts_at;
	claim->until = answer->until;
	resting = false;
	ask_any = false;
	snowflake_backoff_succeed(&backoff);
	if (snowflake_wish_has(errand->wish, &errand->wish->fitting, claim->node))
		snowflake_backoff_succeed(&exchange_backoff);
	pg_atomic_write_u32(&snowflake_shared->orders.change_source, 0);
	if (worth_logging(&logged))
		ereport(LOG,
				(errmsg("snowflake: leased node number " UINT64_FORMAT " from %s until %s",
						claim->node, answer->place, timestamptz_to_str(claim->until))));
}

/* A lease was granted: ours, if the settings still ask for it. */
static void
take_granted(const SnowflakeErrand *errand, const SnowflakeCall *call,
			 const SnowflakeAnswer *answer)
{
	const SnowflakeWish *wish = errand->wish;
	const SnowflakeNumbers asked = {.first = call->first,.last = call->last_number};
	SnowflakeProblem problem = {.sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE};
	bool		as_asked;

	as_asked = answer->node >= call->first && answer->node <= call->last_number &&
		(answer->node & call->ring_mask) == call->ring_bits;
	if (as_asked && strcmp(call->registry, wish->registry) == 0 && call->exclusive == wish->exclusive &&
		(snowflake_numbers_equal(&asked, &wish->fitting) || snowflake_numbers_equal(&asked, &wish->allowed)) &&
		call->ring_mask == wish->ring_mask && call->ring_bits == wish->ring_bits)
	{
		take_claim(errand, call, answer);
		return;
	}
	snowflake_loose_unused(&call->token);
	if (as_asked)
		return;
	snprintf(problem.message, sizeof(problem.message),
			 "the registry %s granted node number " UINT64_FORMAT, answer->place, answer->node);
	snprintf(problem.detail, sizeof(problem.detail),
			 "Asked for was one from " UINT64_FORMAT " to " UINT64_FORMAT ".", call->first, call->last_number);
	strlcpy(problem.hint, "See whether somebody has changed the functions in the schema snowflake there.",
			sizeof(problem.hint));
	note_failure(&backoff, &problem);
}

/*
 * No number was granted.  If it was to be exchanged for the one that is held, that is
 * kept.  If one that fits all layouts was asked for, any that is allowed is better than none.
 */
static void
take_refused(const SnowflakeErrand *errand, const SnowflakeCall *call, const SnowflakeAnswer *answer)
{
	const SnowflakeWish *wish = errand->wish;

	snowflake_loose_unused(&call->token);
	if (is_registered(&snowflake_shared->lease.claim))
		note_failure(&exchange_backoff, &answer->problem);
	else if (answer->problem.sqlerrcode == ERRCODE_CONFIGURATION_LIMIT_EXCEEDED && !ask_any &&
			 !snowflake_numbers_equal(&wish->fitting, &wish->allowed))
	{
		note_failure(&exchange_backoff, &answer->problem);
		ask_any = true;
	}
	else
	{
		ask_any = false;
		note_failure(&backoff, &answer->problem);
		tell_previous = snowflake_loose_has_previous() &&
			answer->problem.sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	}
}

static void
take_acquired(const SnowflakeErrand *errand, const SnowflakeCall *call,
			  const SnowflakeAnswer *answer)
{
	switch (answer->kind)
	{
		case SNOWFLAKE_ANSWER_OK:
			take_granted(errand, call, answer);
			break;
		case SNOWFLAKE_ANSWER_MISSING:
			resting = !errand->wanted;
			snowflake_backoff_succeed(&backoff);
			snowflake_backoff_pause(&exchange_backoff, USECS_PER_SEC);
			break;
		case SNOWFLAKE_ANSWER_BUSY:
			if (!snowflake_shared->lease.claim.held)
				snowflake_registrar_claim_alone(errand);
			snowflake_backoff_succeed(&backoff);
			snowflake_backoff_pause(&backoff, USECS_PER_SEC);
			break;
		case SNOWFLAKE_ANSWER_NOT_OPEN:
		case SNOWFLAKE_ANSWER_FAILED:
			take_refused(errand, call, answer);
			break;
	}
}

/* Returns false if the lease turned out to be no longer ours. */
static bool
take_renewed(const SnowflakeCall *call, const SnowflakeAnswer *answer)
{
	static int64 logged = 0;
	SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	if (!claim->held || !same(&claim->token, &call->token))
		return true;
	switch (answer->kind)
	{
		case SNOWFLAKE_ANSWER_OK:
			claim->until = Max(claim->until, answer->until);
			if (backoff.failure.sqlerrcode != 0 && worth_logging(&logged))
				ereport(LOG,
						(errmsg("snowflake: renewed the lease of node number " UINT64_FORMAT " after failures",
								claim->node)));
			snowflake_backoff_succeed(&backoff);
			return true;
		case SNOWFLAKE_ANSWER_FAILED:
			note_failure(&backoff, &answer->problem);
			return true;
		default:
			return false;
	}
}

static void
take_released(const SnowflakeCall *call, const SnowflakeAnswer *answer)
{
	static int64 logged = 0;

	if (answer->kind == SNOWFLAKE_ANSWER_FAILED)
	{
		pg_atomic_fetch_add_u64(&snowflake_shared->lease.failures, 1);
		ereport(LOG,
				(errmsg("snowflake: could not tell the registry that a lease is over: %s",
						answer->problem.message),
				 errdetail("It will know with the next lease, or when the bound is past.")));
		return;
	}
	snowflake_loose_told(call);
	if (worth_logging(&logged))
		ereport(LOG, (errmsg("snowflake: released the node number")));
}

/*
 * Takes the answer, if there is one; without an errand, no claim any more.
 * Returns false if the claim is lost.
 */
static bool
take_answer(const SnowflakeErrand *errand)
{
	SnowflakeAnswer answer;
	const SnowflakeCall *call = snowflake_call_take(&answer);

	if (call == NULL)
		return true;
	switch (call->kind)
	{
		case SNOWFLAKE_ACQUIRE:
			/* else it is for the next lease worker to say that it is not used */
			if (errand != NULL)
				take_acquired(errand, call, &answer);
			else
				snowflake_shared->lease.asked = call->token;
			break;
		case SNOWFLAKE_RENEW:
			return take_renewed(call, &answer);
		case SNOWFLAKE_RELEASE:
			take_released(call, &answer);
			break;
		case SNOWFLAKE_SHARE:
			break;				/* not asked for here */
	}
	return true;
}

/* How long the row's bound may still come closer before it is moved ahead; <= 0: now. */
static int64
until_renewal(const SnowflakeClaim *claim, int64 window)
{
	return claim->until - snowflake_lease_clock() - (window - window / RENEW_DIVISOR);
}

/* The registry gets to know that the previous lease is over. */
static void
tell_and_forget(const SnowflakeWish *wish, bool last)
{
	tell_previous = false;
	snowflake_request_release(wish, last);
}

/* A number is asked for, if it may come from where the settings say. */
static void
ask(const SnowflakeErrand *errand)
{
	SnowflakeProblem problem;

	if (snowflake_origin_check(errand->state, errand->wish->remote, &problem))
		snowflake_request_acquire(errand->wish, ask_any ? &errand->wish->allowed : &errand->wish->fitting,
								  errand->state, errand->window, errand->wanted);
	else
		note_failure(&backoff, &problem);
}

/* Whether the claim is to be renewed before its bound is reached. */
static bool
is_kept(const SnowflakeClaim *claim, bool needed)
{
	return is_registered(claim) && (claim->wish.remote || needed);
}

static void
ask_what_is_due(const SnowflakeErrand *errand)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	if (errand->wanted || errand->look)
		resting = false;
	else if (errand->standby && !claim->held)
		resting = true;
	if (snowflake_call_is_out())
		return;
	if (tell_previous)
		tell_and_forget(errand->wish, false);
	else if (snowflake_backoff_left(&backoff) > 0)
		return;
	else if (!claim->held || claim->unregistered)
	{
		if (!resting)
			ask(errand);
	}
	else if (row_is_behind() ||
			 (is_kept(claim, errand->active || errand->wanted) &&
			  until_renewal(claim, errand->window) <= 0))
		snowflake_request_renew(errand->window);
	else if (errand->exchange && snowflake_backoff_left(&exchange_backoff) <= 0)
		ask(errand);
}

/* Takes what the helper has brought, asks for what is due, and says how things stand. */
SnowflakeStanding
snowflake_registrar_step(const SnowflakeErrand *errand, SnowflakeProblem *problem)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	if (!take_answer(errand))
		return SNOWFLAKE_CLAIM_LOST;
	ask_what_is_due(errand);
	if (snowflake_call_is_out() || !resting)
		snowflake_helper_prepare();

	if (backoff.failure.sqlerrcode != 0)
	{
		*problem = backoff.failure;
		return SNOWFLAKE_CLAIM_FAILING;
	}
	if (snowflake_call_age() > PATIENCE_US &&
		(!claim->held || claim->until <= snowflake_lease_clock()))
	{
		snowflake_call_problem(problem);
		return SNOWFLAKE_CLAIM_FAILING;
	}
	if (claim->held)
		return SNOWFLAKE_CLAIM_HELD;
	return resting ? SNOWFLAKE_CLAIM_NONE : SNOWFLAKE_CLAIM_ASKED;
}

/*
 * Lets go of the claim, whose lease was ended.  end: that of its ids, DT_NOBEGIN
 * if not known.  The registry gets to know with the next call.
 */
void
snowflake_registrar_drop(TimestampTz end)
{
	SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	if (claim->held && !claim->unregistered)
	{
		if (!claim->used)
			snowflake_loose_unused(&claim->token);
		else if (end != DT_NOBEGIN)
			snowflake_loose_previous(&claim->token, end);
	}
	claim->held = false;
	claim->unregistered = false;
	claim->opened = false;
	snowflake_registrar_forgive();
}

/*
 * Tells the registry that the lease dropped last is over.  rest: no other is
 * asked for before somebody wants an id.  last: the server is stopping.
 */
void
snowflake_registrar_give_back(bool rest, bool last)
{
	resting = rest;
	if (!snowflake_loose_has_previous())
		return;
	snowflake_helper_prepare();
	tell_and_forget(&snowflake_shared->lease.claim.wish, last);
}

/* Why there is no number that fits all layouts; NULL if no attempt has failed. */
const SnowflakeProblem *
snowflake_registrar_exchange_problem(void)
{
	return exchange_backoff.failure.sqlerrcode != 0 ? &exchange_backoff.failure : NULL;
}

/* What failed did so under other settings. */
void
snowflake_registrar_forgive(void)
{
	ask_any = false;
	snowflake_backoff_succeed(&backoff);
	snowflake_backoff_succeed(&exchange_backoff);
}

/* Has the next attempt made now, and the first one if there was none. */
void
snowflake_registrar_hurry(void)
{
	resting = false;
	snowflake_backoff_pause(&backoff, 0);
}

/* Whether a call is out; takes the answer if it is there. */
bool
snowflake_registrar_busy(void)
{
	(void) take_answer(NULL);
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
	if (tell_previous)
		return 1L;
	if (!claim->held || claim->unregistered)
	{
		if (resting)
			return -1L;
	}
	else if (row_is_behind())
		due = 0;
	else if (errand->exchange)
		due = snowflake_backoff_left(&exchange_backoff);
	else if (!is_kept(claim, errand->active))
		return -1L;
	else
		due = until_renewal(claim, errand->window);
	return (long) (Max(Max(due, snowflake_backoff_left(&backoff)), 0) / 1000) + 1;
}
