/*
 * holder.c
 *	  One round of the holder's work: which node numbers the settings ask for,
 *	  whether a row of worker_node allows one of them (registrar.c), and the
 *	  lease that drawers see (lease.c).
 *
 * The claim and the lease change only here.  Before a claim is given up, for
 * whatever reason, its lease is sealed; before a lease is opened, its claim is
 * there.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"

#include "calls.h"
#include "clock.h"
#include "clock_watch.h"
#include "floor.h"
#include "guc.h"
#include "holder.h"
#include "lease.h"
#include "node_number.h"
#include "origin.h"
#include "registrar.h"
#include "word.h"

/* Bounds are extended without being asked while ids were drawn so lately. */
#define ACTIVE_US			(60 * USECS_PER_SEC)

#define ACTIVE_PASS_MS		250L
#define RETRY_PASS_MS		1000L
#define RECOVERY_PASS_MS	1000L

/* The same problem is logged again after this time. */
#define LOG_AGAIN_US		(60 * USECS_PER_SEC)

/* A burst may be ahead by a tick more than it may; a clock that was set back, by more. */
#define LEAST_MOVE_US		USECS_PER_SEC
/* Another number is tried this often while the clock stays behind. */
#define MOVE_AGAIN_US		(1 * USECS_PER_SEC)

/*
 * The word at the last pass, and by the monotonic clock when ids were last
 * seen drawn or asked for (0: never).
 */
static uint64 last_word = SNOWFLAKE_SEALED;
static int64 last_drawn = 0;

/* Somebody has asked for an id, and none could be given yet. */
static bool wanted = false;

static int64 moved_at = 0;

/* The window of a lease: a clock that moves by more has been set. */
static int64
lease_window(void)
{
	return Max((int64) snowflake_lease_duration * 1000,
			   2 * SNOWFLAKE_SETTING(max_ahead) + USECS_PER_SEC);
}

static bool
is_active(void)
{
	return last_drawn != 0 && snowflake_monotonic_now() - last_drawn < ACTIVE_US;
}

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

/* Tells drawers and the view how things stand.  problem: as the phase has it, or NULL. */
static void
set_status(SnowflakeSlot *slot, const SnowflakeWish *wish, SnowflakePhase phase,
		   const SnowflakeProblem *problem)
{
	SnowflakeStatus status;

	memset(&status, 0, sizeof(status));
	status.phase = phase;
	status.source = wish->source;
	status.can_move = snowflake_wish_can_move(wish);
	strlcpy(status.place, snowflake_call_place(), sizeof(status.place));
	if (problem != NULL)
	{
		status.problem = *problem;
		log_problem(problem);
	}
	snowflake_status_set(slot, &status);
}

/* Notes whether ids were drawn since the last pass, or are waited for. */
static void
watch_word(SnowflakeSlot *slot)
{
	uint64		word = pg_atomic_read_u64(&slot->word);

	if (pg_atomic_exchange_u32(&slot->lease.requested, 0) != 0)
		wanted = true;
	if (wanted || (word != last_word && !(word & SNOWFLAKE_SEALED) &&
				   word != pg_atomic_read_u64(&slot->lease.opened)))
		last_drawn = snowflake_monotonic_now();
	last_word = word;
}

/* Ends the lease and lets go of the claim. */
static void
drop(SnowflakeSlot *slot)
{
	if (slot->lease.claim.held)
		snowflake_registrar_drop(slot, snowflake_lease_end(slot));
}

/* The same, and the registry is told at once: the next claim is none of its, or there is none. */
static void
drop_and_tell(SnowflakeSlot *slot)
{
	if (!slot->lease.claim.held)
		return;
	drop(slot);
	snowflake_registrar_give_back(slot, false, false);
}

/*
 * Whether the clock is so far behind the last id that draws fail, and another
 * number would help.
 */
static bool
must_move(SnowflakeSlot *slot)
{
	const SnowflakeLayout *layout = &slot->layout;
	const SnowflakeClaim *claim = &slot->lease.claim;
	uint64		word = pg_atomic_read_u64(&slot->word);
	int64		need;

	if (!claim->held || !claim->opened || claim->unregistered || !wanted ||
		!snowflake_wish_can_move(&claim->wish) || (word & SNOWFLAKE_SEALED) ||
		word == pg_atomic_read_u64(&slot->lease.opened))
		return false;
	need = snowflake_tick_begin(layout, snowflake_word_tick(layout, word)) -
		SNOWFLAKE_SETTING(max_ahead) - snowflake_lease_clock();
	if (need <= Max(SNOWFLAKE_SETTING(max_wait), LEAST_MOVE_US))
		return false;
	if (moved_at != 0 && snowflake_monotonic_now() - moved_at < MOVE_AGAIN_US)
		return false;
	ereport(LOG,
			(errmsg("snowflake: the clock is %.3f s behind the last id of node number " UINT64_FORMAT "; taking another one",
					(need + SNOWFLAKE_SETTING(max_ahead)) / 1e6, claim->node)));
	moved_at = snowflake_monotonic_now();
	return true;
}

/* Hands the number back because a superuser says so. */
static void
follow_release(SnowflakeSlot *slot)
{
	drop(slot);
	snowflake_registrar_give_back(slot, true, false);
	wanted = false;
	last_drawn = 0;
	pg_atomic_write_u32(&snowflake_shared->orders.release, 0);
	ConditionVariableBroadcast(&slot->changed);
}

/*
 * A superuser wants the number to come from where the settings say now: from
 * there, whatever is held.
 */
static void
follow_change_source(SnowflakeSlot *slot)
{
	static bool following = false;
	bool		ordered = pg_atomic_read_u32(&snowflake_shared->orders.change_source) != 0;

	if (ordered && !following)
	{
		drop_and_tell(slot);
		snowflake_registrar_hurry();
	}
	following = ordered;
}

/* Somebody else has ended our lease: he has the number now, and ids from its bound on. */
static void
lose(SnowflakeSlot *slot)
{
	ereport(LOG,
			(errmsg("snowflake: lost the lease of node number " UINT64_FORMAT ", which is over or was taken over; taking another one",
					slot->lease.claim.node),
			 errdetail("No id was issued past the end of that lease.")));
	pg_atomic_fetch_add_u64(&slot->counters.lease_failures, 1);
	drop(slot);
}

/* Lets the lease follow the claim and the status both. */
static void
keep_lease(SnowflakeSlot *slot, const SnowflakeWish *wish, SnowflakeStanding standing,
		   SnowflakeProblem *problem)
{
	SnowflakeProblem own;

	if (slot->lease.claim.held)
	{
		if (!snowflake_lease_keep(slot, wanted, is_active(), &own))
		{
			pg_atomic_fetch_add_u64(&slot->counters.lease_failures, 1);
			set_status(slot, wish, SNOWFLAKE_REFUSED, &own);
			return;
		}
		wanted = false;
	}
	if (standing == SNOWFLAKE_CLAIM_FAILING &&
		problem->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)
		set_status(slot, wish, SNOWFLAKE_REFUSED, problem);
	else if (standing == SNOWFLAKE_CLAIM_FAILING)
	{
		/*
		 * to a draw, most of what can go wrong there is but a wait that was
		 * too long
		 */
		if (problem->sqlerrcode != ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)
			problem->sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE;
		set_status(slot, wish, SNOWFLAKE_RETRYING, problem);
	}
	else
		set_status(slot, wish, slot->lease.claim.held ? SNOWFLAKE_READY : SNOWFLAKE_STARTING, NULL);
}

/* No number: the settings do not give one, or the state file cannot be used. */
static long
refuse(SnowflakeSlot *slot, const SnowflakeWish *wish, const SnowflakeProblem *problem, long next)
{
	drop_and_tell(slot);
	set_status(slot, wish, SNOWFLAKE_REFUSED, problem);
	return next;
}

/* Claim and lease for what the settings ask.  Returns when to look again. */
static long
hold(SnowflakeSlot *slot, const SnowflakeWish *wish)
{
	static SnowflakeWish last_wish;
	SnowflakeErrand errand = {.wish = wish,.window = lease_window()};
	SnowflakeStanding standing = SNOWFLAKE_CLAIM_HELD;
	SnowflakeProblem problem;
	long		due;

	errand.state = snowflake_lease_state(slot, wish->remote, &problem);
	if (errand.state == NULL)
	{
		pg_atomic_fetch_add_u64(&slot->counters.lease_failures, 1);
		return refuse(slot, wish, &problem, RETRY_PASS_MS);
	}
	if (pg_atomic_read_u32(&snowflake_shared->orders.release) != 0)
		follow_release(slot);
	follow_change_source(slot);
	if (!snowflake_wish_equal(&last_wish, wish))
		snowflake_registrar_forgive();
	last_wish = *wish;
	if (strcmp(slot->lease.claim.wish.registry, wish->registry) != 0)
		drop_and_tell(slot);
	else if (!snowflake_wish_equal(&slot->lease.claim.wish, wish) || must_move(slot))
		drop(slot);

	errand.wanted = wanted;
	errand.active = is_active();
	errand.look = pg_atomic_exchange_u32(&snowflake_shared->orders.look, 0) != 0;
	errand.standby = RecoveryInProgress();
	if (!IsUnderPostmaster)
	{
		if (!snowflake_origin_check(errand.state, wish->remote, &problem))
			return refuse(slot, wish, &problem, SNOWFLAKE_PASS_IDLE);
		if (!slot->lease.claim.held)
			snowflake_registrar_claim_alone(slot, &errand);
	}
	else
	{
		standing = snowflake_registrar_step(slot, &errand, &problem);
		if (standing == SNOWFLAKE_CLAIM_LOST)
		{
			lose(slot);
			standing = snowflake_registrar_step(slot, &errand, &problem);
		}
	}
	keep_lease(slot, wish, standing, &problem);

	due = snowflake_registrar_due(slot, errand.window, errand.active);
	if (slot->lease.claim.held && !slot->lease.claim.opened)
		return RETRY_PASS_MS;
	if (slot->lease.claim.held && is_active())
		return due < 0 ? ACTIVE_PASS_MS : Min(due, ACTIVE_PASS_MS);
	return due;
}

/*
 * Wakes those who wait, if this pass has changed anything for them: they ask for
 * another pass when they find the same as before.
 */
static void
wake_drawers(SnowflakeSlot *slot)
{
	static uint64 last[6];
	static char last_problem[sizeof(slot->status.problem.message)];
	uint64		now[] = {
		pg_atomic_read_u64(&slot->lease.limit),
		pg_atomic_read_u64(&slot->lease.opened),
		pg_atomic_read_u64(&slot->word) & SNOWFLAKE_SEALED,
		(uint64) slot->status.phase << 1 | slot->status.can_move,
		pg_atomic_read_u64(&snowflake_shared->settings.max_ahead),
		pg_atomic_read_u64(&snowflake_shared->settings.clock_offset),
	};
	char	   *problem = slot->status.problem.message;

	if (memcmp(now, last, sizeof(now)) == 0 && strcmp(problem, last_problem) == 0)
		return;
	memcpy(last, now, sizeof(now));
	strlcpy(last_problem, problem, sizeof(last_problem));
	ConditionVariableBroadcast(&slot->changed);
}

/*
 * One round of the holder's work.  Returns the milliseconds until the next one
 * is due, or SNOWFLAKE_PASS_IDLE.  A reload, a request, an answer of the helper
 * or (single-user mode) a draw that needs it calls for one at once.
 */
long
snowflake_holder_pass(void)
{
	SnowflakeSlot *slot = &snowflake_shared->slots[0];
	SnowflakeWish wish;
	SnowflakeProblem problem;
	uint32		generation;
	long		next;

	if (snowflake_shared->refused)
		return SNOWFLAKE_PASS_IDLE;
	snowflake_settings_publish();
	snowflake_clock_watch(slot, lease_window());
	if (RecoveryInProgress() && snowflake_registry[0] == '\0')
	{
		drop(slot);
		return RECOVERY_PASS_MS;	/* until promotion */
	}

	watch_word(slot);
	generation = snowflake_registry[0] == '\0' ? snowflake_floor_generation() : 0;
	if (!snowflake_node_numbers(&slot->layout, generation, &wish, &problem))
		next = refuse(slot, &wish, &problem, SNOWFLAKE_PASS_IDLE);
	else
		next = hold(slot, &wish);
	wake_drawers(slot);
	return next;
}

/*
 * Ends the lease because the holder ends, and has the registry told.  Returns
 * whether the answer is outstanding; it is not needed.
 */
bool
snowflake_holder_stop(void)
{
	SnowflakeSlot *slot = &snowflake_shared->slots[0];

	if (slot->lease.claim.held)
	{
		drop(slot);
		if (IsUnderPostmaster)
			snowflake_registrar_give_back(slot, true, true);
	}
	return IsUnderPostmaster && snowflake_registrar_busy();
}
