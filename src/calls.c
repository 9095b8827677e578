/*
 * calls.c
 *	  The one call to the registry that is out.
 *
 * The helper carries it out while the holder goes on.  A call that is made while
 * another is out takes its place: that one's answer is never taken, and if it was
 * for a lease, the registry is told that it will not be used.
 *
 * For the registrar only.  What is kept here is lost with the lease worker, but
 * for the token of a lease that is asked for.
 */
#include "postgres.h"

#include "calls.h"
#include "clock.h"
#include "guc.h"
#include "helper.h"
#include "loose_ends.h"

static const pg_uuid_t no_token = {{0}};

static SnowflakeCall call;		/* being filled in, or made last */
static uint32 pending = 0;		/* its number; 0: none is out */
static int64 made_at = 0;		/* by the monotonic clock */

static char place[SNOWFLAKE_PLACE_SIZE] = "";
static SnowflakePeer peer;

/* A random one, RFC 4122 version 4. */
static void
make_token(pg_uuid_t *token)
{
	if (!pg_strong_random(token->data, UUID_LEN))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	token->data[6] = (token->data[6] & 0x0f) | 0x40;
	token->data[8] = (token->data[8] & 0x3f) | 0x80;
}

/* A call to fill in, addressed as a wish says; one that acquires has a new token. */
SnowflakeCall *
snowflake_call_new(SnowflakeCallKind kind, const SnowflakeWish *wish)
{
	memset(&call, 0, sizeof(call));
	call.kind = kind;
	call.remote = wish->remote;
	strlcpy(call.registry, wish->registry, sizeof(call.registry));
	if (kind == SNOWFLAKE_ACQUIRE)
		make_token(&call.token);
	return &call;
}

/*
 * Makes the call that was filled in.  The lease that another one asks for, or
 * asked for when the lease worker before this one ended, is not waited for.
 */
void
snowflake_call_make(void)
{
	pg_uuid_t  *asked = &snowflake_shared->lease.asked;

	if (memcmp(asked, &no_token, sizeof(no_token)) != 0)
		snowflake_loose_unused(asked);
	if (call.kind == SNOWFLAKE_ACQUIRE)
	{
		*asked = call.token;
		snowflake_loose_fill(&call);
	}
	else
		*asked = no_token;
	if (call.last)
		call.peer = peer;
	made_at = snowflake_monotonic_now();
	pending = snowflake_helper_ask(&call);
}

bool
snowflake_call_is_out(void)
{
	return pending != 0;
}

/* How long the call has been out, microseconds. */
int64
snowflake_call_age(void)
{
	return pending == 0 ? 0 : snowflake_monotonic_now() - made_at;
}

/* Takes the answer, if it is there, and returns the call that it belongs to; else NULL. */
const SnowflakeCall *
snowflake_call_take(SnowflakeAnswer *answer)
{
	if (pending == 0 || !snowflake_helper_answered(pending, answer))
		return NULL;
	pending = 0;
	if (call.kind == SNOWFLAKE_ACQUIRE)
		snowflake_shared->lease.asked = no_token;
	if (answer->place[0] != '\0')
		strlcpy(place, answer->place, sizeof(place));
	if (answer->peer.host[0] != '\0')
		peer = answer->peer;
	return &call;
}

/* Fills a problem: the call is out for too long. */
void
snowflake_call_problem(SnowflakeProblem *problem)
{
	memset(problem, 0, sizeof(*problem));
	problem->sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE;
	if (place[0] != '\0' && call.remote && pg_atomic_read_u32(&snowflake_shared->helper) != 0)
	{
		snprintf(problem->message, sizeof(problem->message), "could not reach the registry %s", place);
		strlcpy(problem->detail, "It has not answered yet.", sizeof(problem->detail));
		strlcpy(problem->hint, SNOWFLAKE_REACH_HINT, sizeof(problem->hint));
		return;
	}
	snprintf(problem->message, sizeof(problem->message),
			 "no answer yet from the table worker_node in %s",
			 call.remote ? "the registry" : snowflake_database);
	strlcpy(problem->detail, pg_atomic_read_u32(&snowflake_shared->helper) == 0 ?
			"No background worker could be started for the call." :
			"The transaction has not ended: it may be waiting for a lock or a synchronous standby.",
			sizeof(problem->detail));
	strlcpy(problem->hint, "See that max_worker_processes leaves room for two, and what \"snowflake helper\" waits for in pg_stat_activity.",
			sizeof(problem->hint));
}

/* Where the registry is, empty if it has not answered yet. */
const char *
snowflake_call_place(void)
{
	return place;
}
