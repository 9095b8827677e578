/*
 * lease.c
 *	  Opening, extending and ending the lease of a node number.
 *
 * A lease lets drawers issue ids of one node number, in all layouts in use, in
 * ticks that end at or before its bound.  The invariant, from shmem.h: an
 * unsealed word of number N stands under a limit of number N, and both the state
 * file on disk and the row of worker_node (the claim) hold for N a bound not below
 * that limit.  Hence, given a claim,
 *
 *	  open		only over sealed words: bound in the file; then, for each word that
 *				the number fits (words.c), limit, then word
 *	  extend	bound in the row, bound in the file, then limits
 *	  end		seal all words by an atomic or, then record as bound the end of the
 *				last tick of the words that came back, first in the file
 *
 * A new lease starts at the greatest bound of its number, of all rows and of the
 * file; a layout that comes into use while the lease is open starts there, too.
 *
 * Bounds in the file are as far ahead as the row's for a number from
 * worker_node: it is not used again after a crash.  For a fixed number, which
 * is, they are as close as they can be.
 *
 * All but what lease.h says is for anybody is for the holder: the lease worker, or the
 * server itself in single-user mode.  Nothing here needs a lock.
 */
#include "postgres.h"

#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "floor.h"
#include "host.h"
#include "lease.h"
#include "origin.h"
#include "words.h"

/* How far a bound is moved beyond what draws can need now. */
#define STEP_US				USECS_PER_SEC
/* Less than this is left of it: extend. */
#define EXTEND_BELOW_US		(STEP_US / 2)

/* The state file as on disk; valid if state_loaded. */
static SnowflakeState state;
static bool state_loaded = false;

/* Writes a state; only then is it the one we go by. */
static bool
save_state(SnowflakeState *next, SnowflakeProblem *problem)
{
	SnowflakeLease *lease = &snowflake_shared->lease;

	next->writes = state.writes + 1;
	if (!snowflake_state_write(next, problem))
		return false;
	state = *next;
	pg_atomic_write_u64(&lease->writes, state.writes);
	pg_atomic_fetch_add_u64(&lease->renewals, 1);
	return true;
}

/*
 * Seals all words and enters the exact end of their lease into a state.  False if
 * they were sealed already.
 */
static bool
seal(SnowflakeState *next)
{
	uint64		node;
	TimestampTz end;

	if (!snowflake_words_seal(&node, &end))
		return false;
	snowflake_state_set(next, node, end);
	return true;
}

/* The bound that covers what draws can ask for during the next step. */
static TimestampTz
wanted_bound(void)
{
	int64		tick_us = 0;

	for (int i = 0; i < snowflake_slots_used(); i++)
		tick_us = Max(tick_us, snowflake_shared->slots[i].layout.tick_us);
	return snowflake_id_clock() + SNOWFLAKE_SETTING(max_ahead) + tick_us + STEP_US;
}

/* The bound to write into the file: never beyond the row's. */
static TimestampTz
next_bound(void)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;

	if (!claim->wish.exclusive && !claim->unregistered)
		return claim->until;
	return Min(wanted_bound(), claim->until);
}

/* Once per lease: an early word about a clock that was set back. */
static void
warn_at_open(TimestampTz floor)
{
	TimestampTz now = snowflake_id_clock();

	if (floor <= wanted_bound())
		return;
	pg_atomic_fetch_add_u64(&snowflake_shared->lease.clock_rollbacks, 1);
	ereport(WARNING,
			(errmsg("snowflake: the clock is behind ids that may have been issued"),
			 errdetail("It is %s; ids begin at %s.",
					   pstrdup(timestamptz_to_str(now)), pstrdup(timestamptz_to_str(floor))),
			 errhint("Correct the clock; until it has caught up no ids are issued.")));
}

/* The bound is durable: what is below it may be drawn, once the words are open. */
static void
publish_bound(TimestampTz bound)
{
	SnowflakeLease *lease = &snowflake_shared->lease;

	if (bound > (TimestampTz) pg_atomic_read_u64(&lease->highest))
		pg_atomic_write_u64(&lease->highest, (uint64) bound);
	pg_atomic_write_u64(&lease->leased_until, (uint64) bound);
}

static void
publish_lease(TimestampTz floor, TimestampTz bound)
{
	SnowflakeLease *lease = &snowflake_shared->lease;
	SnowflakeClaim *claim = &lease->claim;
	bool		switched = lease->has_last_node && lease->last_node != claim->node;

	snowflake_home_set(claim);
	publish_bound(bound);
	lease->begin = floor;
	lease->opened_at = snowflake_id_clock();
	lease->last_node = claim->node;
	lease->has_last_node = true;
	claim->opened = true;
	claim->used = true;
	if (switched)
		pg_atomic_fetch_add_u64(&lease->worker_switches, 1);
	ereport(LOG,
			(errmsg("snowflake: %s node number " UINT64_FORMAT " of layout \"%s\"",
					switched ? "switched to" : "drawing with", claim->node,
					snowflake_shared->slots[0].name)));
}

/*
 * Opens the lease of the claim.  If a lease is open still, it is sealed first.
 * The file also notes whose row the claim is.
 */
static bool
open_lease(SnowflakeProblem *problem)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	SnowflakeState next = state;
	TimestampTz floor,
				bound;

	seal(&next);
	snowflake_origin_enter(&next, claim);
	floor = Max(snowflake_state_bound(&next, claim->node), claim->starts_at);
	floor = Max(floor, snowflake_words_end(claim->node));
	bound = Max(floor, next_bound());
	snowflake_state_set(&next, claim->node, bound);
	if (!claim->unregistered)
	{
		next.token = claim->token;
		next.node = claim->node;
		next.row_until = claim->until;
		next.fingerprint = snowflake_host_fingerprint();
	}
	if (!snowflake_started_write(next.layout, problem) || !save_state(&next, problem))
		return false;
	warn_at_open(floor);
	publish_lease(floor, claim->unregistered ? bound : Min(bound, claim->until));
	return true;
}

/*
 * Where the ids of the open lease begin, DT_NOBEGIN if none is open.  That can be
 * beyond the bound of its row: the state file knows of ids that no row tells of,
 * drawn in single-user mode or before the table was there.
 */
TimestampTz
snowflake_lease_begin(void)
{
	return snowflake_shared->lease.claim.opened ? snowflake_shared->lease.begin : DT_NOBEGIN;
}

/*
 * Moves the bound of the open lease ahead, if it can be: at once if somebody
 * waits for it (due), or while ids are drawn (active), before they reach it.  The
 * file also follows the bound of the row, by which it is known to be the last one.
 */
static bool
extend_lease(bool due, bool active, SnowflakeProblem *problem)
{
	const SnowflakeClaim *claim = &snowflake_shared->lease.claim;
	TimestampTz bound = (TimestampTz) pg_atomic_read_u64(&snowflake_shared->lease.leased_until);
	TimestampTz wanted = next_bound();
	bool		renewed = !claim->unregistered && state.row_until != claim->until;
	SnowflakeState next = state;

	if (!renewed && (wanted <= bound || !(due || (active && wanted - bound > EXTEND_BELOW_US))))
		return true;
	if (!renewed && !snowflake_words_gain(wanted))
		return true;			/* at the end of the timestamp field */
	wanted = Max(wanted, bound);

	/*
	 * the floor that the lease began at may be further ahead than its row's
	 * bound
	 */
	snowflake_state_set(&next, claim->node, Max(wanted, snowflake_state_bound(&next, claim->node)));
	if (renewed)
		next.row_until = claim->until;
	if (!save_state(&next, problem))
		return false;
	publish_bound(wanted);
	snowflake_words_extend(wanted);
	return true;
}

/*
 * Opens or extends the lease of the claim that is held, whichever is needed, and
 * opens the words that can be and are not.
 */
bool
snowflake_lease_keep(bool due, bool active, SnowflakeProblem *problem)
{
	SnowflakeLease *lease = &snowflake_shared->lease;

	if (!(lease->claim.opened ? extend_lease(due, active, problem) : open_lease(problem)))
		return false;
	snowflake_words_open(lease->claim.node, lease->begin,
						 (TimestampTz) pg_atomic_read_u64(&lease->leased_until));
	return true;
}

/*
 * The state as on disk, with what follows from where the node number comes
 * from now; read when either changes.  NULL, with *problem filled, if it cannot
 * be used.  remote: see floor.h.
 */
const SnowflakeState *
snowflake_lease_state(bool remote, SnowflakeProblem *problem)
{
	static bool loaded_remote;
	static uint32 loaded_timeline;
	uint32		timeline = snowflake_floor_timeline();

	if (remote != loaded_remote || (!remote && timeline != loaded_timeline))
		state_loaded = false;
	if (!state_loaded &&
		!snowflake_floor_load(&state, remote, snowflake_id_clock(), problem))
		return NULL;
	state_loaded = true;
	loaded_remote = remote;
	loaded_timeline = timeline;
	return &state;
}

/*
 * Ends the lease: nobody draws from here on.  Returns the end of its ids, or
 * DT_NOBEGIN if none was open or that is not known.  If the end cannot be
 * recorded, the bound in the file stands, which is later and therefore as safe.
 */
TimestampTz
snowflake_lease_end(void)
{
	SnowflakeLease *lease = &snowflake_shared->lease;
	SnowflakeState next = state;
	SnowflakeProblem problem;
	uint64		node = lease->claim.node;
	bool		was_open = lease->claim.opened;
	TimestampTz end;

	lease->claim.opened = false;
	if (!seal(&next))
	{
		if (!was_open)
			return DT_NOBEGIN;

		/*
		 * No layout could be drawn from, so the lease ends where it began; if
		 * it is the first of its number, at any time that is over.
		 */
		end = lease->begin != DT_NOBEGIN ? lease->begin :
			Min(lease->opened_at, snowflake_shared->slots[0].layout.epoch);
		snowflake_state_set(&next, node, Max(end, snowflake_words_end(node)));
	}
	if (!state_loaded)
		return DT_NOBEGIN;
	if (!save_state(&next, &problem))
	{
		pg_atomic_fetch_add_u64(&lease->failures, 1);
		snowflake_report_problem(WARNING, &problem);
	}
	return snowflake_state_bound(&next, node);
}

/* Has the worker make a pass now. */
void
snowflake_lease_wake(void)
{
	uint32		worker = pg_atomic_read_u32(&snowflake_shared->worker);

	if (worker != 0)
		SetLatch(&GetPGProcByNumber(worker - 1)->procLatch);
}

/* The same because a drawer needs an id: its word found the limit, or no lease. */
void
snowflake_lease_request(SnowflakeSlot *slot)
{
	pg_atomic_write_u32(&slot->requested, 1);
	pg_atomic_write_u32(&snowflake_shared->lease.requested, 1);
	pg_memory_barrier();
	snowflake_lease_wake();
}
