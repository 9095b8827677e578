/*
 * status.c
 *	  What the holder tells drawers, the view and the log: how things stand with the
 *	  lease, and with each layout in use.
 *
 * For the holder only.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "calls.h"
#include "clock.h"
#include "node_number.h"
#include "registrar.h"
#include "status.h"
#include "words.h"

/* The same problem is logged again after this time. */
#define LOG_AGAIN_US		(60 * USECS_PER_SEC)

/* Logs a problem, once a minute while it stays the same. */
static void
log_problem(const SnowflakeProblem *problem)
{
	static char logged[sizeof(problem->message)] = "";
	static int64 logged_at = 0;
	int64		now = snowflake_monotonic_now();

	if (strcmp(logged, problem->message) == 0 && now - logged_at < LOG_AGAIN_US)
		return;
	strlcpy(logged, problem->message, sizeof(logged));
	logged_at = now;
	snowflake_report_problem(WARNING, problem);
}

/*
 * Whether draws of a layout fail although the lease is there, or comes: its node number
 * does not fit the layout, or no tick is left.  If so, fills the problem; a phase of
 * STARTING then means that another number has been asked for.
 */
static bool
is_left_out(SnowflakeSlot *slot, const SnowflakeWish *wish, SnowflakePhase *phase, SnowflakeProblem *problem)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	uint64		node = claim->held ? claim->node : wish->allowed.first;

	memset(problem, 0, sizeof(*problem));
	if (!snowflake_number_fits(&slot->layout, slot->name, node, wish, problem) ||
		(claim->opened && snowflake_word_is_over(slot) && !snowflake_full_problem(slot, problem)))
	{
		*phase = SNOWFLAKE_REFUSED;
		return true;
	}
	if (!claim->held || snowflake_number_suits(wish, &slot->layout, node))
		return false;
	if (snowflake_registrar_exchange_problem() != NULL)
	{
		*phase = SNOWFLAKE_RETRYING;
		*problem = *snowflake_registrar_exchange_problem();
	}
	else if (*phase == SNOWFLAKE_RETRYING)
		return false;			/* what keeps the lease from us keeps the
								 * exchange */
	else
		*phase = SNOWFLAKE_STARTING;
	return true;
}

/* How things stand with one layout. */
static void
set_status(SnowflakeSlot *slot, const SnowflakeWish *wish, SnowflakePhase phase,
		   const SnowflakeProblem *problem)
{
	SnowflakeStatus status;
	SnowflakeProblem own;

	memset(&status, 0, sizeof(status));
	if (phase != SNOWFLAKE_REFUSED && is_left_out(slot, wish, &phase, &own))
	{
		problem = own.sqlerrcode != 0 ? &own : NULL;
		if (own.sqlerrcode != 0 && strcmp(own.message, slot->status.problem.message) != 0)
			snowflake_report_problem(WARNING, &own);
	}
	status.phase = phase;
	status.source = wish->source;
	status.can_move = snowflake_wish_can_move(wish);
	strlcpy(status.place, snowflake_call_place(), sizeof(status.place));
	if (problem != NULL)
		status.problem = *problem;
	snowflake_status_set(slot, &status);
}

/*
 * Tells drawers and the view how things stand, and the log if there is a problem (as the
 * phase has it, or NULL).
 */
void
snowflake_status_tell(const SnowflakeWish *wish, SnowflakePhase phase, const SnowflakeProblem *problem)
{
	if (problem != NULL)
		log_problem(problem);
	for (int i = 0; i < snowflake_slots_used(); i++)
		set_status(&snowflake_shared->slots[i], wish, phase, problem);
}

/* The holder ends: whatever it has told, there is no lease until another one has opened one. */
void
snowflake_status_stop(void)
{
	for (int i = 0; i < snowflake_slots_used(); i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		SnowflakeStatus status;

		snowflake_status_get(slot, &status);
		if (status.phase == SNOWFLAKE_READY)
		{
			status.phase = SNOWFLAKE_STARTING;
			snowflake_status_set(slot, &status);
		}
	}
}
