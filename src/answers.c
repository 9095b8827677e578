/*
 * answers.c
 *	  What the registry's answers mean for the claim, and what is to be asked next.
 *
 * Why it is safe that answers come late or never is at the head of registrar.c.  For the
 * holder only.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "answers.h"
#include "calls.h"
#include "clock.h"
#include "lease.h"
#include "loose_ends.h"

#define LOG_AGAIN_US		(10 * USECS_PER_SEC)

SnowflakeAsking snowflake_asking;

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

/* A call has failed. */
void
snowflake_asking_fail(SnowflakeBackoff *backoff, const SnowflakeProblem *problem)
{
	snowflake_backoff_fail(backoff, problem);
	pg_atomic_fetch_add_u64(&snowflake_shared->lease.failures, 1);
}

/* What failed did so under other settings. */
void
snowflake_claim_forgive(void)
{
	snowflake_asking.ask_any = false;
	snowflake_backoff_succeed(&snowflake_asking.backoff);
	snowflake_backoff_succeed(&snowflake_asking.exchange);
}

/*
 * Lets go of the claim, whose lease was ended.  end: that of its ids, DT_NOBEGIN
 * if not known.  The registry gets to know with the next call.
 */
void
snowflake_claim_drop(TimestampTz end)
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
	snowflake_claim_forgive();
}

/*
 * Makes a claim without the table: it is being created by a transaction that
 * may be waiting for us, or nobody is there to ask (single-user mode).  On one
 * cluster and timeline the state file tells all that the table would.  The first
 * number of ours whose bound is past, or else the first.
 */
void
snowflake_claim_alone(const SnowflakeErrand *errand)
{
	SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	const SnowflakeNumbers *numbers = &errand->wish->fitting;
	TimestampTz now = snowflake_id_clock();

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
	if (snowflake_claim_is_registered(claim))
		snowflake_claim_drop(snowflake_lease_end());
	/* its number, or that of one that ended meanwhile, is of use to others */
	snowflake_asking.tell_previous = snowflake_loose_has_previous();

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
	snowflake_asking.resting = false;
	snowflake_asking.ask_any = false;
	snowflake_backoff_succeed(&snowflake_asking.backoff);
	if (snowflake_wish_has(errand->wish, &errand->wish->fitting, claim->node))
		snowflake_backoff_succeed(&snowflake_asking.exchange);
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
	snowflake_asking_fail(&snowflake_asking.backoff, &problem);
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
	if (snowflake_claim_is_registered(&snowflake_shared->lease.claim))
		snowflake_asking_fail(&snowflake_asking.exchange, &answer->problem);
	else if (answer->problem.sqlerrcode == ERRCODE_CONFIGURATION_LIMIT_EXCEEDED && !snowflake_asking.ask_any &&
			 !snowflake_numbers_equal(&wish->fitting, &wish->allowed))
	{
		snowflake_asking_fail(&snowflake_asking.exchange, &answer->problem);
		snowflake_asking.ask_any = true;
	}
	else
	{
		snowflake_asking.ask_any = false;
		snowflake_asking_fail(&snowflake_asking.backoff, &answer->problem);
		snowflake_asking.tell_previous = snowflake_loose_has_previous() &&
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
			snowflake_asking.resting = !errand->wanted;
			snowflake_backoff_succeed(&snowflake_asking.backoff);
			snowflake_backoff_pause(&snowflake_asking.exchange, USECS_PER_SEC);
			break;
		case SNOWFLAKE_ANSWER_BUSY:
			if (!snowflake_shared->lease.claim.held)
				snowflake_claim_alone(errand);
			snowflake_backoff_succeed(&snowflake_asking.backoff);
			snowflake_backoff_pause(&snowflake_asking.backoff, USECS_PER_SEC);
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

	if (!claim->held || !snowflake_token_equal(&claim->token, &call->token))
		return true;
	switch (answer->kind)
	{
		case SNOWFLAKE_ANSWER_OK:
			claim->until = Max(claim->until, answer->until);
			if (snowflake_asking.backoff.failure.sqlerrcode != 0 && worth_logging(&logged))
				ereport(LOG,
						(errmsg("snowflake: renewed the lease of node number " UINT64_FORMAT " after failures",
								claim->node)));
			snowflake_backoff_succeed(&snowflake_asking.backoff);
			return true;
		case SNOWFLAKE_ANSWER_FAILED:
			snowflake_asking_fail(&snowflake_asking.backoff, &answer->problem);
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
bool
snowflake_answer_take(const SnowflakeErrand *errand)
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
