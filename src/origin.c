/*
 * origin.c
 *	  Which table worker_node this server's number comes from, and came from.
 *
 * Another table knows nothing of the numbers that this one's servers hold.  So
 * a change between the local table and a registry, or from one registry to
 * another, needs a superuser's order (snowflake_change_source).  A local table
 * that was dropped and made again does not: all ids of this cluster are below
 * the bounds in the state file, which then become those of all numbers.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "origin.h"
#include "shmem.h"

static bool
is_ordered(void)
{
	return pg_atomic_read_u32(&snowflake_shared->orders.change_source) != 0;
}

/* Whether the number may come from where the settings say now; else fills *problem. */
bool
snowflake_origin_check(const SnowflakeState *state, bool remote, SnowflakeProblem *problem)
{
	if (state->origin == SNOWFLAKE_NO_ORIGIN || (state->origin == SNOWFLAKE_REMOTE) == remote ||
		is_ordered())
		return true;
	memset(problem, 0, sizeof(*problem));
	problem->sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	strlcpy(problem->message, "the node number of this server came from another source before",
			sizeof(problem->message));
	snprintf(problem->detail, sizeof(problem->detail), "It came from %s; snowflake.registry is %s now.",
			 remote ? "the table of this cluster" : "a registry", remote ? "set" : "empty");
	snprintf(problem->hint, sizeof(problem->hint),
			 "%s snowflake.registry, or call snowflake_change_source() if ids of the old and the new source never meet.",
			 remote ? "Unset" : "Set");
	return false;
}

/* Whether any incarnation of the table will do. */
bool
snowflake_origin_any(const SnowflakeState *state, bool remote)
{
	return !remote || state->origin != SNOWFLAKE_REMOTE || is_ordered();
}

/* Notes where the number of a claim came from, in the state that its lease is opened with. */
void
snowflake_origin_enter(SnowflakeState *state, const SnowflakeClaim *claim)
{
	static const pg_uuid_t unknown = {{0}};
	SnowflakeOrigin origin = claim->wish.remote ? SNOWFLAKE_REMOTE : SNOWFLAKE_LOCAL;

	if (claim->unregistered)
	{
		/* of a table that is being created, and has granted nothing yet */
		if (state->origin == SNOWFLAKE_NO_ORIGIN)
			state->origin = origin;
		return;
	}
	if (state->origin != SNOWFLAKE_NO_ORIGIN &&
		(state->origin != origin ||
		 (memcmp(&state->incarnation, &claim->incarnation, sizeof(unknown)) != 0 &&
		  memcmp(&state->incarnation, &unknown, sizeof(unknown)) != 0)))
	{
		snowflake_state_floor(state, snowflake_state_greatest(state));
		ereport(LOG,
				(errmsg("snowflake: node numbers come from another table worker_node; ids begin at %s",
						timestamptz_to_str(snowflake_state_greatest(state)))));
	}
	state->origin = origin;
	state->incarnation = claim->incarnation;
}
