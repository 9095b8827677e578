/*
 * wait.c
 *	  The slow path: what a backend does when the word does not allow the next
 *	  id.
 *
 * It waits where waiting can help, asleep on the condition variable that the
 * lease worker broadcasts after each change, for at most snowflake.max_wait by
 * the monotonic clock (the wall clock may be set meanwhile); every wait ends
 * at an interrupt.  What waiting cannot cure, or not within max_wait, is an
 * error at once, and still asks the lease worker to look again.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "guc.h"
#include "ids/wait.h"
#include "ids/word.h"
#include "shmem.h"

/* The clock may be set while we sleep: look at it at least this often. */
#define LONGEST_SLEEP_US	(1 * USECS_PER_SEC)

#define NO_WAIT_HINT \
	"Try again, or raise snowflake.max_wait."
#define GIVE_UP_HINT \
	"The lease worker has not answered; see the server's log, pg_stat_snowflake, and that max_worker_processes leaves room for it."

/* Raises 2200H: there is no id after the last one of the slot's layout. */
void
snowflake_report_full(const SnowflakeSlot *slot)
{
	ereport(ERROR,
			(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
			 errmsg("the timestamp field of layout \"%s\" is full",
					slot->name),
			 errdetail("Its last tick ends at %s.",
					   timestamptz_to_str(snowflake_tick_begin(&slot->layout,
															   slot->layout.max_tick + 1))),
			 errhint("Correct the clock if it is ahead; else choose a layout with a later end.")));
}

/* The clock may have been wrong: the lease worker looks again. */
static void
report_full(const SnowflakeSlot *slot)
{
	snowflake_ask_for_lease();
	snowflake_report_full(slot);
}

static void
report_ahead(const SnowflakeAttempt *attempt, int64 need)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("the next id would be %.3f s ahead of the clock",
					(attempt->begin - attempt->now) / 1e6),
			 errdetail("snowflake.max_ahead allows %.3f s; the clock is there in %.3f s, snowflake.max_wait is %.3f s.",
					   SNOWFLAKE_SETTING(max_ahead) / 1e6, need / 1e6,
					   snowflake_max_wait / 1e3),
			 errhint("If the clock was set back, ids go on when it has caught up. If too many ids are needed, choose a layout with more sequence bits.")));
}

/*
 * Whether a sealed word cannot be opened.  Another number may help, if the
 * clock is not past the end.
 */
static bool
is_full(SnowflakeSlot *slot)
{
	return pg_atomic_read_u32(&slot->full) != 0 ||
		snowflake_layout_is_over(&slot->layout);
}

/*
 * Raises what the lease worker has found; the registry's address is not for
 * everybody.
 */
static void
report_status(const SnowflakeStatus *status)
{
	if (status->problem.has_address &&
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		ereport(ERROR,
				(errcode(status->problem.sqlerrcode),
				 errmsg("could not get a node number from the registry"),
				 errdetail("Members of pg_read_all_stats can see the reason."),
				 errhint("See pg_stat_snowflake and the server's log. Ids go on by themselves when the cause is gone.")));
	snowflake_report_problem(ERROR, &status->problem);
}

static void
report_gave_up(SnowflakeSlot *slot, const SnowflakeAttempt *attempt)
{
	SnowflakeStatus status;

	snowflake_status_get(&status);
	if (status.phase == SNOWFLAKE_RETRYING)
		report_status(&status);
	if (status.phase == SNOWFLAKE_READY && is_full(slot))
		report_full(slot);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg(attempt->outcome == SNOWFLAKE_SEALED_WORD ?
					"gave up waiting for a node number" :
					"gave up waiting for the lease to be extended"),
			 errdetail("snowflake.max_wait is %.3f s.",
					   snowflake_max_wait / 1e3),
			 errhint("%s",
					 snowflake_max_wait == 0 ? NO_WAIT_HINT : GIVE_UP_HINT)));
}

/* As with sequences. */
static void
check_standby(void)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot issue ids during recovery"),
				 errhint("Ask the primary for ids.")));
}

/*
 * An error if the lease worker has found that waiting is of no use: for
 * somebody to act, or for what is over in more than "remaining" microseconds.
 */
static void
check_status(SnowflakeSlot *slot, int64 remaining)
{
	SnowflakeStatus status;

	snowflake_status_get(&status);
	if (status.phase == SNOWFLAKE_REFUSED &&
		(remaining <= 0 ||
		 status.refused_until - snowflake_monotonic_now() > remaining))
	{
		snowflake_ask_for_lease();
		report_status(&status);
	}
	if (status.phase == SNOWFLAKE_READY && is_full(slot) &&
		(!status.can_move || snowflake_layout_is_over(&slot->layout)))
		report_full(slot);
}

/*
 * Whether the lease worker takes another number when it is asked, or is at it:
 * this attempt may be older.
 */
static bool
can_move(int64 need)
{
	SnowflakeStatus status;

	if (need <= Max(SNOWFLAKE_SETTING(max_wait), USECS_PER_SEC))
		return false;
	snowflake_status_get(&status);
	return status.can_move && (status.phase == SNOWFLAKE_READY ||
							   status.phase == SNOWFLAKE_STARTING);
}

/*
 * How long the attempt suggests to wait, in microseconds; an error if that is
 * of no use.
 */
static int64
useful_wait(SnowflakeSlot *slot, const SnowflakeAttempt *attempt,
			int64 remaining)
{
	int64		need;

	switch (attempt->outcome)
	{
		case SNOWFLAKE_FIELD_FULL:
			report_full(slot);
			break;
		case SNOWFLAKE_TOO_FAR_AHEAD:
			need = attempt->begin - SNOWFLAKE_SETTING(max_ahead) - attempt->now;
			if (need <= remaining)
				remaining = need;
			else if (remaining > 0 && can_move(need))
				snowflake_ask_for_lease();
			else
			{
				snowflake_ask_for_lease();
				report_ahead(attempt, need);
			}
			break;
		default:
			check_status(slot, remaining);
			snowflake_ask_for_lease();
			if (remaining <= 0)
				report_gave_up(slot, attempt);
	}
	/* not below 1 ms: need may be over by now, and 0 would be a busy loop */
	return Max(Min(remaining, LONGEST_SLEEP_US), 1000);
}

/*
 * A word that is sealed until its limit is later counts as one that is open: the
 * lease must be extended, or the clock come closer.
 */
static SnowflakeAttempt
look_through_seal(SnowflakeSlot *slot, const SnowflakeAttempt *attempt)
{
	SnowflakeAttempt found = *attempt;
	uint64		waiting = pg_atomic_read_u64(&slot->waiting);

	if (attempt->outcome != SNOWFLAKE_SEALED_WORD || waiting == 0)
		return found;
	found.begin = snowflake_tick_begin(&slot->layout,
									   snowflake_word_tick(&slot->layout, waiting + 1));
	found.now = snowflake_id_clock();
	found.outcome = found.begin - found.now > SNOWFLAKE_SETTING(max_ahead) ?
		SNOWFLAKE_TOO_FAR_AHEAD : SNOWFLAKE_PAST_LIMIT;
	return found;
}

/*
 * Waits until another attempt makes sense, at most for what *waited
 * (microseconds) leaves of snowflake.max_wait, and adds to it.  Raises
 *
 *	  55P03		max_wait is over, or would be before the clock is close enough
 *	  55000		this server has no node number, or may not use its layout
 *	  53400		no node number is free
 *	  25006		it is a standby
 *	  2200H		the timestamp field is full
 *
 * The first call for an id only prepares to sleep and returns, so that a
 * change between the attempt and the sleep is not missed.
 */
void
snowflake_wait(SnowflakeSlot *slot, const SnowflakeAttempt *attempt,
			   int64 *waited)
{
	int64		remaining = (int64) snowflake_max_wait * 1000 - *waited;
	SnowflakeAttempt found = look_through_seal(slot, attempt);
	int64		start,
				spent,
				wait;

	CHECK_FOR_INTERRUPTS();
	check_standby();
	/* also if it may not wait, and fails */
	if (*waited == 0)
		pg_atomic_fetch_add_u64(&slot->counters.waits, 1);
	wait = useful_wait(slot, &found, remaining);

	start = snowflake_monotonic_now();
	PG_TRY();
	{
		ConditionVariableTimedSleep(&snowflake_shared->changed,
									(wait + 999) / 1000,
									snowflake_wait_event("SnowflakeNextval"));
	}
	PG_FINALLY();
	{
		/* an interrupted wait counts, too */
		spent = Max(snowflake_monotonic_now() - start, 1);
		pg_atomic_fetch_add_u64(&slot->counters.wait_time, spent);
	}
	PG_END_TRY();
	*waited += spent;
}

/* To be called when an attempt has succeeded after waits. */
void
snowflake_wait_end(void)
{
	ConditionVariableCancelSleep();
}
