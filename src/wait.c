/*
 * wait.c
 *	  The slow path: what a draw does when the word does not allow it.
 *
 * It waits where waiting can help, asleep on the condition variable that the holder
 * wakes after each change, for at most snowflake.max_wait by the monotonic clock (the
 * wall clock may be set meanwhile); every wait ends at an interrupt.  What waiting
 * cannot cure, or not within max_wait, is an error at once.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "attempt.h"
#include "clock.h"
#include "compat.h"
#include "guc.h"
#include "holder.h"
#include "lease.h"
#include "word.h"
#include "words.h"

/* The clock may be set while we sleep: look at it at least this often. */
#define LONGEST_SLEEP_US	(1 * USECS_PER_SEC)
/* There nobody wakes us: look for interrupts so often. */
#define SINGLE_USER_SLEEP_US	(100 * 1000)

#define NO_WAIT_HINT \
	"Try again, or let draws wait."
#define GIVE_UP_HINT \
	"The lease worker has not answered; see the server's log, pg_stat_snowflake, and that max_worker_processes leaves room for it."

static void
report_full(const SnowflakeSlot *slot)
{
	SnowflakeProblem problem;

	snowflake_full_problem(slot, &problem);
	snowflake_report_problem(ERROR, &problem);
}

static void
report_ahead(const SnowflakeAttempt *attempt, int64 need)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("the next id would be %.3f s ahead of the clock",
					(attempt->begin - attempt->now) / 1e6),
			 errdetail("snowflake.max_ahead allows %.3f s; the clock is there in %.3f s, snowflake.max_wait is %.3f s.",
					   SNOWFLAKE_SETTING(max_ahead) / 1e6, need / 1e6, snowflake_max_wait / 1e3),
			 errhint("If the clock was set back, ids go on when it has caught up. If too many ids are drawn, choose a layout with more sequence bits.")));
}

static void
report_early(const SnowflakeSlot *slot, int64 need)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("the next id would be %.3f s ahead of the clock",
					(need + SNOWFLAKE_SETTING(max_ahead)) / 1e6),
			 errdetail("Layout \"%s\" begins at %s; snowflake.max_ahead allows %.3f s, snowflake.max_wait is %.3f s.",
					   slot->name, timestamptz_to_str(snowflake_tick_begin(&slot->layout, 1)),
					   SNOWFLAKE_SETTING(max_ahead) / 1e6, snowflake_max_wait / 1e3),
			 errhint("Correct the clock, or choose a layout whose epoch is over.")));
}

static void
report_gave_up(SnowflakeSlot *slot, const SnowflakeAttempt *attempt)
{
	SnowflakeStatus status;

	snowflake_status_get(slot, &status);
	if (status.phase == SNOWFLAKE_RETRYING)
		snowflake_report_problem(ERROR, &status.problem);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg(attempt->outcome == SNOWFLAKE_SEALED_WORD ?
					"gave up waiting for a node number" :
					"gave up waiting for the lease to be extended"),
			 errdetail("snowflake.max_wait is %.3f s.", snowflake_max_wait / 1e3),
			 errhint("%s", snowflake_max_wait == 0 ? NO_WAIT_HINT : GIVE_UP_HINT)));
}

/* A standby has no number to draw with until it is promoted, but from a registry. */
static void
check_standby(void)
{
	if (RecoveryInProgress() && snowflake_registry[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot draw ids during recovery"),
				 errdetail("Without a registry, a standby has no node number of its own."),
				 errhint("Draw ids on the primary, or set snowflake.registry.")));
}

/*
 * What the holder found: an error if it says that waiting is of no use, or not
 * within what remains because the layout begins later.
 */
static void
check_status(SnowflakeSlot *slot, int64 remaining)
{
	int64		early = snowflake_layout_early(&slot->layout);
	SnowflakeStatus status;

	snowflake_status_get(slot, &status);
	if (status.phase == SNOWFLAKE_REFUSED)
		snowflake_report_problem(ERROR, &status.problem);
	if (early > Max(remaining, 0) && (pg_atomic_read_u64(&slot->word) & SNOWFLAKE_SEALED))
		report_early(slot, early);
}

/* Whether the holder goes to another number if it is asked, as in its must_move(). */
static bool
can_move(SnowflakeSlot *slot)
{
	SnowflakeStatus status;

	if (snowflake_words_behind() <= Max(SNOWFLAKE_SETTING(max_wait), USECS_PER_SEC))
		return false;
	snowflake_status_get(slot, &status);
	return status.can_move && status.phase == SNOWFLAKE_READY;
}

/* The server's only process does the holder's work itself. */
static void
close_single_user(int code, Datum arg)
{
	(void) snowflake_holder_stop();
}

static void
pass_single_user(SnowflakeSlot *slot)
{
	static bool registered = false;

	if (!registered)
		before_shmem_exit(close_single_user, (Datum) 0);
	registered = true;
	pg_atomic_write_u32(&slot->requested, 1);
	pg_atomic_write_u32(&snowflake_shared->lease.requested, 1);
	snowflake_holder_pass();
}

/*
 * How long the attempt suggests to wait, in microseconds; an error if that is
 * of no use.
 */
static int64
useful_wait(SnowflakeSlot *slot, const SnowflakeAttempt *attempt, int64 remaining)
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
			else if (remaining > 0 && can_move(slot))
				snowflake_lease_request(slot);
			else
				report_ahead(attempt, need);
			break;
		default:
			check_status(slot, remaining);
			snowflake_lease_request(slot);
			if (remaining <= 0)
				report_gave_up(slot, attempt);
			need = snowflake_layout_early(&slot->layout);
			if (need > 0)
				remaining = Min(remaining, need);
	}
	/* not below 1 ms: need may be over by now, and 0 would be a busy loop */
	return Max(Min(remaining, LONGEST_SLEEP_US), 1000);
}

/*
 * Waits until another attempt makes sense, at most for what *waited
 * (microseconds) leaves of snowflake.max_wait, and adds to it.  Raises
 *
 *	  55P03		max_wait is over, or would be before the clock is close enough
 *	  55000		this server has no node number, or may not use its layout
 *	  25006		it is a standby
 *	  2200H		the timestamp field is full
 *	  XX001, or the code of the file error, from the state file
 *
 * The first call of a draw only prepares to sleep and returns, so that a change
 * between the attempt and the sleep is not missed.  In single-user mode it does
 * the holder's work; there is nobody else to wait for.
 */
void
snowflake_wait(SnowflakeSlot *slot, const SnowflakeAttempt *attempt, int64 *waited)
{
	int64		remaining = (int64) snowflake_max_wait * 1000 - *waited;
	int64		start,
				spent,
				wait;

	CHECK_FOR_INTERRUPTS();
	if (!IsUnderPostmaster && remaining >= 0 &&
		(attempt->outcome == SNOWFLAKE_SEALED_WORD || attempt->outcome == SNOWFLAKE_PAST_LIMIT))
	{
		pass_single_user(slot);
		check_status(slot, remaining);
		wait = Min(snowflake_layout_early(&slot->layout), SINGLE_USER_SLEEP_US);
		if (wait > 0)
			pg_usleep(wait);
		*waited += Max(wait, 1);
		return;
	}
	check_standby();
	/* also if it may not wait, and fails */
	if (*waited == 0)
		pg_atomic_fetch_add_u64(&slot->counters.waits, 1);
	wait = useful_wait(slot, attempt, remaining);

	start = snowflake_monotonic_now();
	PG_TRY();
	{
		ConditionVariableTimedSleep(&snowflake_shared->changed, (wait + 999) / 1000,
									snowflake_wait_event("SnowflakeDraw"));
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
