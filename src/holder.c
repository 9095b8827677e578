/*
 * holder.c
 *	  One round of the holder's work: which node numbers the settings and the layouts
 *	  in use ask for, whether a row of worker_node allows one of them (registrar.c),
 *	  and the lease that drawers see (lease.c).
 *
 * Before a claim is given up, for whatever reason, its lease is sealed; before a
 * lease is opened, its claim is there.
 *
 * A number is moved from when the clock is behind its ids (it is dropped first), and
 * exchanged when another one fits more layouts (it is kept until that is granted).
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"

#include "clock.h"
#include "clock_watch.h"
#include "floor.h"
#include "guc.h"
#include "holder.h"
#include "lease.h"
#include "node_number.h"
#include "origin.h"
#include "registrar.h"
#include "status.h"
#include "word.h"
#include "words.h"

/* Bounds are extended without being asked while ids were drawn so lately. */
#define ACTIVE_US			(60 * USECS_PER_SEC)

/* Who waits asks again at least every second. */
#define WANTED_FOR_US		(2 * USECS_PER_SEC)

#define ACTIVE_PASS_MS		250L
#define RETRY_PASS_MS		1000L
#define RECOVERY_PASS_MS	1000L

/* A burst may be ahead by a tick more than it may; a clock that was set back, by more. */
#define LEAST_MOVE_US		USECS_PER_SEC
/* Another number is tried this often while the clock stays behind. */
#define MOVE_AGAIN_US		(1 * USECS_PER_SEC)

/* By the monotonic clock, when ids were last seen drawn or asked for (0: never). */
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

/* Notes whether ids were drawn since the last pass, or are waited for. */
static void
watch_words(void)
{
	int64		now = snowflake_monotonic_now();

	if (pg_atomic_exchange_u32(&snowflake_shared->lease.requested, 0) != 0)
		wanted = true;
	if (wanted)
		last_drawn = now;
	for (int i = 0; i < snowflake_slots_used(); i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if (pg_atomic_exchange_u32(&slot->requested, 0) != 0)
		{
			slot->wanted = true;
			slot->wanted_at = now;
		}
		if (word != slot->seen && !(word & SNOWFLAKE_SEALED) &&
			word != pg_atomic_read_u64(&slot->opened))
			last_drawn = now;
		slot->seen = word;
	}
}

/* Ends the lease and lets go of the claim. */
static void
drop(void)
{
	if (snowflake_shared->lease.claim.held)
		snowflake_claim_drop(snowflake_lease_end());
}

/* The same, and the registry is told at once: the next claim is none of its, or there is none. */
static void
drop_and_tell(void)
{
	if (!snowflake_shared->lease.claim.held)
		return;
	drop();
	snowflake_registrar_give_back(false, false);
}

/*
 * Whether the clock is so far behind the last id that draws fail, and another
 * number would help.
 */
static bool
must_move(void)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	int64		need = snowflake_words_behind();

	if (!claim->held || !claim->opened || claim->unregistered || !wanted ||
		!snowflake_wish_can_move(&claim->wish))
		return false;
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
follow_release(void)
{
	drop();
	snowflake_registrar_give_back(true, false);
	wanted = false;
	last_drawn = 0;
	pg_atomic_write_u32(&snowflake_shared->orders.release, 0);
	ConditionVariableBroadcast(&snowflake_shared->changed);
}

/*
 * A superuser wants the number to come from where the settings say now: from
 * there, whatever is held.
 */
static void
follow_change_source(void)
{
	static bool following = false;
	bool		ordered = pg_atomic_read_u32(&snowflake_shared->orders.change_source) != 0;

	if (ordered && !following)
	{
		drop_and_tell();
		snowflake_registrar_hurry();
	}
	following = ordered;
}

/* Somebody else has ended our lease: he has the number now, and ids from its bound on. */
static void
lose(void)
{
	ereport(LOG,
			(errmsg("snowflake: lost the lease of node number " UINT64_FORMAT ", which is over or was taken over; taking another one",
					snowflake_shared->lease.claim.node),
			 errdetail("No id was issued past the end of that lease.")));
	pg_atomic_fetch_add_u64(&snowflake_shared->lease.failures, 1);
	drop();
}

/*
 * The settings or the layouts in use ask for other numbers than the claim was taken
 * for.  If only the layouts do, the number serves those that it fits until it is
 * exchanged; else it is given up now.
 */
static void
follow_wish(const SnowflakeWish *wish)
{
	SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	if (claim->unregistered || wish->exclusive || !snowflake_wish_same_settings(&claim->wish, wish))
		drop();
	else
		claim->wish = *wish;
}

/* Lets the lease follow the claim and the status both. */
static void
keep_lease(const SnowflakeWish *wish, SnowflakeStanding standing, SnowflakeProblem *problem)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	SnowflakeProblem own;

	if (claim->held)
	{
		if (!snowflake_lease_keep(wanted, is_active(), &own))
		{
			pg_atomic_fetch_add_u64(&snowflake_shared->lease.failures, 1);
			snowflake_status_tell(wish, SNOWFLAKE_REFUSED, &own);
			return;
		}
		wanted = false;
	}
	if (standing == SNOWFLAKE_CLAIM_FAILING &&
		problem->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)
		snowflake_status_tell(wish, SNOWFLAKE_REFUSED, problem);
	else if (standing == SNOWFLAKE_CLAIM_FAILING)
	{
		/*
		 * to a draw, most of what can go wrong there is but a wait that was
		 * too long
		 */
		if (problem->sqlerrcode != ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)
			problem->sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE;
		snowflake_status_tell(wish, SNOWFLAKE_RETRYING, problem);
	}
	else
		snowflake_status_tell(wish, claim->held ? SNOWFLAKE_READY : SNOWFLAKE_STARTING, NULL);
}

/* No number: the settings do not give one, or the state file cannot be used. */
static long
refuse(const SnowflakeWish *wish, const SnowflakeProblem *problem, long next)
{
	drop_and_tell();
	snowflake_status_tell(wish, SNOWFLAKE_REFUSED, problem);
	return next;
}

/* Gives up a claim that was made for other settings, or that is of no use now. */
static void
follow_settings(const SnowflakeWish *wish)
{
	static SnowflakeWish last_wish;
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	if (pg_atomic_read_u32(&snowflake_shared->orders.release) != 0)
		follow_release();
	follow_change_source();
	if (!snowflake_wish_equal(&last_wish, wish))
		snowflake_claim_forgive();
	last_wish = *wish;
	if (!claim->held)
		return;
	if (strcmp(claim->wish.registry, wish->registry) != 0)
		drop_and_tell();
	else if (must_move())
		drop();
	else if (!snowflake_wish_equal(&claim->wish, wish))
		follow_wish(wish);
}

/*
 * Whether somebody waits for ids of a layout that the number held does not fit, and
 * there may be another that fits all.
 */
static bool
exchange_wanted(const SnowflakeWish *wish)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	int64		now = snowflake_monotonic_now();

	if (!claim->held || claim->unregistered || snowflake_wish_has(wish, &wish->fitting, claim->node))
		return false;
	for (int i = 0; i < snowflake_slots_used(); i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];

		if (slot->wanted_at != 0 && now - slot->wanted_at < WANTED_FOR_US &&
			!snowflake_number_suits(wish, &slot->layout, claim->node))
			return true;
	}
	return false;
}

/* Claim and lease for what the settings ask.  Returns when to look again. */
static long
hold(const SnowflakeWish *wish)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	SnowflakeErrand errand = {.wish = wish,.window = lease_window()};
	SnowflakeStanding standing = SNOWFLAKE_CLAIM_HELD;
	SnowflakeProblem problem;
	long		due;

	errand.state = snowflake_lease_state(wish->remote, &problem);
	if (errand.state == NULL)
	{
		pg_atomic_fetch_add_u64(&snowflake_shared->lease.failures, 1);
		return refuse(wish, &problem, RETRY_PASS_MS);
	}
	follow_settings(wish);

	errand.wanted = wanted;
	errand.active = is_active();
	errand.look = pg_atomic_exchange_u32(&snowflake_shared->orders.look, 0) != 0;
	errand.standby = RecoveryInProgress();
	errand.exchange = exchange_wanted(wish);
	if (!IsUnderPostmaster)
	{
		if (!snowflake_origin_check(errand.state, wish->remote, &problem))
			return refuse(wish, &problem, SNOWFLAKE_PASS_IDLE);
		if (!claim->held)
			snowflake_claim_alone(&errand);
	}
	else
	{
		standing = snowflake_registrar_step(&errand, &problem);
		if (standing == SNOWFLAKE_CLAIM_LOST)
		{
			lose();
			errand.exchange = false;
			standing = snowflake_registrar_step(&errand, &problem);
		}
	}
	/* it may have been done by now */
	errand.exchange = errand.exchange && exchange_wanted(wish);
	keep_lease(wish, standing, &problem);

	due = snowflake_registrar_due(&errand);
	if (claim->held && !claim->opened)
		return RETRY_PASS_MS;
	if (claim->held && is_active())
		return due < 0 ? ACTIVE_PASS_MS : Min(due, ACTIVE_PASS_MS);
	return due;
}

/*
 * Wakes those who wait, if this pass has changed anything for them: they ask for
 * another pass when they find the same as before.
 */
static void
wake_drawers(void)
{
	static uint64 last[3];
	uint64		now[] = {
		pg_atomic_read_u64(&snowflake_shared->lease.changes),
		pg_atomic_read_u64(&snowflake_shared->settings.max_ahead),
		pg_atomic_read_u64(&snowflake_shared->settings.clock_offset),
	};

	if (memcmp(now, last, sizeof(now)) == 0)
		return;
	memcpy(last, now, sizeof(now));
	ConditionVariableBroadcast(&snowflake_shared->changed);
}

/*
 * One round of the holder's work.  Returns the milliseconds until the next one
 * is due, or SNOWFLAKE_PASS_IDLE.  A reload, a request, an answer of the helper
 * or (single-user mode) a draw that needs it calls for one at once.
 */
long
snowflake_holder_pass(void)
{
	SnowflakeSlot *slots = snowflake_shared->slots;
	SnowflakeWish wish;
	SnowflakeProblem problem;
	uint32		generation;
	long		next;

	if (snowflake_shared->refused)
		return SNOWFLAKE_PASS_IDLE;
	snowflake_settings_publish();
	snowflake_clock_watch(lease_window());
	if (RecoveryInProgress() && snowflake_registry[0] == '\0')
	{
		drop();
		return RECOVERY_PASS_MS;	/* until promotion */
	}

	watch_words();
	generation = snowflake_registry[0] == '\0' ? snowflake_floor_generation() : 0;
	if (!snowflake_node_numbers(&slots[0].layout, generation, &wish, &problem))
		next = refuse(&wish, &problem, SNOWFLAKE_PASS_IDLE);
	else
	{
		for (int i = 1; i < snowflake_slots_used(); i++)
			snowflake_numbers_narrow(&wish, &slots[i].layout);
		next = hold(&wish);
	}
	wake_drawers();
	return next;
}

/*
 * Ends the lease because the holder ends, and has the registry told.  Returns
 * whether the answer is outstanding; it is not needed.
 */
bool
snowflake_holder_stop(void)
{
	snowflake_status_stop();
	if (snowflake_shared->lease.claim.held)
	{
		drop();
		if (IsUnderPostmaster)
			snowflake_registrar_give_back(true, true);
	}
	return IsUnderPostmaster && snowflake_registrar_busy();
}
