/*
 * loose_ends.c
 *	  Leases that the registry may take for this server's, and that are over or
 *	  were never begun.  It is told with the next call.
 *
 *	  previous	ended: its words were sealed, or the server has stopped since; all
 *				its ids end at or before the end that goes with it
 *	  unused	granted, perhaps, by a call whose answer was given up on, or not
 *				used for another reason: no id was or will be issued under it
 *
 * What is forgotten here does no harm: the row's bound is then past some time.
 * For the registrar only.
 */
#include "postgres.h"

#include "host.h"
#include "loose_ends.h"

static bool has_previous = false;
static pg_uuid_t previous;
static TimestampTz previous_end;
static TimestampTz previous_until;
static bool recalled = false;

static int	num_unused = 0;
static pg_uuid_t unused[SNOWFLAKE_MAX_UNUSED];

/* Notes a lease under which nothing is issued.  The oldest one gives way. */
void
snowflake_loose_unused(const pg_uuid_t *token)
{
	if (num_unused == SNOWFLAKE_MAX_UNUSED)
		memmove(&unused[0], &unused[1], --num_unused * sizeof(unused[0]));
	unused[num_unused++] = *token;
}

/* Notes a lease that is over. */
void
snowflake_loose_previous(const pg_uuid_t *token, TimestampTz end)
{
	has_previous = true;
	previous = *token;
	previous_end = end;
	previous_until = DT_NOEND;
}

/*
 * Notes the lease before this start, once, as the state file has it: unless
 * that can be a copy of another server's, which may still issue ids under it.
 * Where the table is this cluster's own, there is no other server.  If the row
 * has got another bound than the file knows of, it was renewed since: the file is
 * an older one, from a backup, and its end is not that of the ids.
 */
void
snowflake_loose_recall(const SnowflakeState *state, bool remote)
{
	static const pg_uuid_t none = {{0}};

	if (has_previous || recalled || memcmp(&state->token, &none, sizeof(none)) == 0 ||
		(state->origin == SNOWFLAKE_REMOTE) != remote ||
		(remote && state->fingerprint != snowflake_host_fingerprint()))
		return;
	recalled = true;
	snowflake_loose_previous(&state->token, snowflake_state_bound(state, state->node));
	previous_until = state->row_until;
}

bool
snowflake_loose_has_previous(void)
{
	return has_previous;
}

/* Enters what is known into a call: one that acquires, or one that releases the previous lease. */
void
snowflake_loose_fill(SnowflakeCall *call)
{
	if (call->kind == SNOWFLAKE_RELEASE)
	{
		call->token = previous;
		call->until = previous_end;
		call->row_until = previous_until;
		return;
	}
	call->has_previous = has_previous;
	call->previous = previous;
	call->previous_end = previous_end;
	call->previous_until = previous_until;
	call->num_unused = num_unused;
	memcpy(call->unused, unused, sizeof(unused));
}

/* The registry knows what a call has told; what has come up since it does not. */
void
snowflake_loose_told(const SnowflakeCall *call)
{
	int			left = 0;

	if (call->kind == SNOWFLAKE_RELEASE ? snowflake_token_equal(&previous, &call->token) :
		call->has_previous && snowflake_token_equal(&previous, &call->previous))
		has_previous = false;
	for (int i = 0; i < num_unused; i++)
	{
		bool		told = false;

		for (int j = 0; j < call->num_unused; j++)
			told = told || snowflake_token_equal(&unused[i], &call->unused[j]);
		if (!told)
			unused[left++] = unused[i];
	}
	num_unused = left;
}
