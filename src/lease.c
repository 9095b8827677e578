/*
 * lease.c
 *	  Opening, extending and ending the lease of a node number.
 *
 * A lease lets drawers issue ids of one node number in ticks that end at or
 * before its bound.  The invariant, from shmem.h: an unsealed word of number N
 * stands under a limit of number N, and both the state file on disk and the
 * row of worker_node (the claim) hold for N a bound not below that limit.
 * Hence, given a claim,
 *
 *	  open		only over a sealed word: bound in the file, then limit, then word
 *	  extend	bound in the row, bound in the file, then limit
 *	  end		seal by an atomic or, then record as bound the end of the tick
 *				of the word that came back, first in the file
 *
 * A new lease starts at the first tick that begins at or after the greatest
 * bound of its number, of all rows and of the file, and its first word is (that
 * tick, sequence 0), which is never issued.  So a word is greater than every
 * earlier one of its number, and no compare-and-swap of a drawer that slept
 * over end and open can succeed.
 *
 * Bounds in the file are as far ahead as the row's for a number from
 * worker_node: it is not used again after a crash.  For a fixed number, which
 * is, they are as close as they can be.
 *
 * All but what lease.h says is for anybody is for the
 * holder: the lease worker, or the server itself in single-user mode.  Nothing
 * here needs a lock.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "floor.h"
#include "guc.h"
#include "host.h"
#include "lease.h"
#include "origin.h"
#include "word.h"

/* How far a bound is moved beyond what draws can need now. */
#define STEP_US				USECS_PER_SEC
/* Less than this is left of it: extend. */
#define EXTEND_BELOW_US		(STEP_US / 2)
#define ENDS_SOON_US		(365 * USECS_PER_DAY)

/* The state file as on disk; valid if state_loaded. */
static SnowflakeState state;
static bool state_loaded = false;

/* The clock that ids are made by. */
TimestampTz
snowflake_lease_clock(void)
{
	return snowflake_clock_now() + SNOWFLAKE_SETTING(clock_offset);
}

/* Writes a state; only then is it the one we go by. */
static bool
save_state(SnowflakeSlot *slot, SnowflakeState *next, SnowflakeProblem *problem)
{
	next->writes = state.writes + 1;
	if (!snowflake_state_write(next, problem))
		return false;
	state = *next;
	pg_atomic_write_u64(&slot->lease.writes, state.writes);
	pg_atomic_fetch_add_u64(&slot->counters.lease_renewals, 1);
	return true;
}

/*
 * Seals the word and enters the exact end of its lease into a state.  False if
 * it was sealed already.
 *
 * The tick of the word is over even if nothing was drawn in it: its first word
 * was published, and must not be published again (test/model, REUSE_WORD).
 */
static bool
seal(SnowflakeSlot *slot, SnowflakeState *next)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		word = pg_atomic_fetch_or_u64(&slot->word, SNOWFLAKE_SEALED);
	uint64		tick = snowflake_word_tick(layout, word);

	if (word & SNOWFLAKE_SEALED)
		return false;
	snowflake_state_set(next, snowflake_word_node(layout, word),
						snowflake_tick_begin(layout, tick + 1));
	return true;
}

/* The bound that covers what draws can ask for during the next step. */
TimestampTz
snowflake_lease_wanted(const SnowflakeSlot *slot)
{
	return snowflake_lease_clock() + SNOWFLAKE_SETTING(max_ahead) + slot->layout.tick_us + STEP_US;
}

/* The bound to write into the file: never beyond the row's. */
static TimestampTz
next_bound(const SnowflakeSlot *slot)
{
	const SnowflakeClaim *claim = &slot->lease.claim;

	if (!claim->wish.exclusive && !claim->unregistered)
		return claim->until;
	return Min(snowflake_lease_wanted(slot), claim->until);
}

/* The limit of the ticks that end at or before a bound, for a node number. */
static uint64
limit_at(const SnowflakeLayout *layout, uint64 node, TimestampTz bound)
{
	uint64		tick = bound > layout->epoch ? snowflake_tick_at(layout, bound) : 0;

	return snowflake_word_make(layout, node, Min(tick, layout->max_tick + 1), 0);
}

static void
publish_limit(SnowflakeSlot *slot, uint64 node, TimestampTz bound)
{
	if (bound > (TimestampTz) pg_atomic_read_u64(&slot->lease.highest))
		pg_atomic_write_u64(&slot->lease.highest, (uint64) bound);
	pg_atomic_write_u64(&slot->lease.limit, limit_at(&slot->layout, node, bound));
	pg_atomic_write_u64(&slot->lease.leased_until, (uint64) bound);
}

/* Once per lease: an early word about the end, and about a clock that was set back. */
static void
warn_at_open(SnowflakeSlot *slot, TimestampTz floor)
{
	TimestampTz now = snowflake_lease_clock();
	TimestampTz end = snowflake_tick_begin(&slot->layout, slot->layout.max_tick + 1);

	if (end - now < ENDS_SOON_US)
		ereport(WARNING,
				(errmsg("snowflake: the timestamp field of layout \"%s\" is full at %s",
						slot->name, timestamptz_to_str(end)),
				 errdetail("No ids can be issued from then on."),
				 errhint("Plan the move to a layout with a later end.")));
	if (floor > snowflake_lease_wanted(slot))
	{
		pg_atomic_fetch_add_u64(&slot->counters.clock_rollbacks, 1);
		ereport(WARNING,
				(errmsg("snowflake: the clock is behind ids that may have been issued"),
				 errdetail("It is %s; ids begin at %s.",
						   pstrdup(timestamptz_to_str(now)), pstrdup(timestamptz_to_str(floor))),
				 errhint("Correct the clock; until it has caught up no ids are issued.")));
	}
}

/*
 * Fills a problem: no tick is left to issue ids in.  Any process may call this;
 * always false, for the caller to return.
 */
bool
snowflake_full_problem(const SnowflakeSlot *slot, SnowflakeProblem *problem)
{
	TimestampTz end = snowflake_tick_begin(&slot->layout, slot->layout.max_tick + 1);

	memset(problem, 0, sizeof(*problem));
	problem->sqlerrcode = ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED;
	snprintf(problem->message, sizeof(problem->message),
			 "the timestamp field of layout \"%s\" is full", slot->name);
	snprintf(problem->detail, sizeof(problem->detail), "Its last tick ends at %s.",
			 timestamptz_to_str(end));
	strlcpy(problem->hint, "Choose a layout with a later end.", sizeof(problem->hint));
	return false;
}

/*
 * The bound that the lease of a claim starts from: that of its number's history,
 * and what shared memory tells of its last lease, whatever became of the file.
 */
static TimestampTz
lease_floor(SnowflakeSlot *slot, const SnowflakeState *next)
{
	const SnowflakeLayout *layout = &slot->layout;
	const SnowflakeClaim *claim = &slot->lease.claim;
	uint64		word = pg_atomic_read_u64(&slot->word) & ~SNOWFLAKE_SEALED;
	TimestampTz floor = Max(snowflake_state_bound(next, claim->node), claim->starts_at);

	if (pg_atomic_read_u64(&slot->lease.opened) != 0 &&
		snowflake_word_node(layout, word) == claim->node)
		floor = Max(floor, snowflake_tick_begin(layout, snowflake_word_tick(layout, word) + 1));
	return floor;
}

/* Lets drawers in: the limit first, then the word that it covers. */
static void
publish_lease(SnowflakeSlot *slot, uint64 tick, TimestampTz bound)
{
	uint64		node = slot->lease.claim.node;
	uint64		before = pg_atomic_read_u64(&slot->lease.opened);
	uint64		word = snowflake_word_make(&slot->layout, node, tick, 0);
	bool		switched = before != 0 && snowflake_word_node(&slot->layout, before) != node;

	pg_atomic_write_u64(&slot->lease.opened, word);
	publish_limit(slot, node, bound);
	pg_write_barrier();
	pg_atomic_write_u64(&slot->word, word);
	slot->lease.claim.opened = true;
	slot->lease.claim.used = true;

	if (switched)
		pg_atomic_fetch_add_u64(&slot->counters.worker_switches, 1);
	ereport(LOG,
			(errmsg("snowflake: %s node number " UINT64_FORMAT " of layout \"%s\"",
					switched ? "switched to" : "drawing with", node, slot->name)));
}

/*
 * Opens the lease of the claim.  If a lease is open still, it is sealed first.
 * The file also notes whose row the claim is.
 */
static bool
open_lease(SnowflakeSlot *slot, SnowflakeProblem *problem)
{
	const SnowflakeLayout *layout = &slot->layout;
	const SnowflakeClaim *claim = &slot->lease.claim;
	SnowflakeState next = state;
	TimestampTz floor,
				bound;
	uint64		tick;

	seal(slot, &next);
	snowflake_origin_enter(&next, claim);
	floor = lease_floor(slot, &next);
	/* not 0, so that the first word is greater than 0 */
	tick = Max(snowflake_tick_from(layout, floor), 1);
	if (tick > layout->max_tick ||
		snowflake_lease_clock() >= snowflake_tick_begin(layout, layout->max_tick + 1))
		return snowflake_full_problem(slot, problem);
	bound = next_bound(slot);
	snowflake_state_set(&next, claim->node, Max(floor, bound));
	if (!claim->unregistered)
	{
		next.token = claim->token;
		next.node = claim->node;
		next.row_until = claim->until;
		next.fingerprint = snowflake_host_fingerprint();
	}
	if (!snowflake_started_write(next.layout, problem) || !save_state(slot, &next, problem))
		return false;
	warn_at_open(slot, floor);
	publish_lease(slot, tick, claim->unregistered ? Max(floor, bound) : Min(Max(floor, bound), claim->until));
	return true;
}

/*
 * Where the ids of the open lease begin, DT_NOBEGIN if none is open.  That can be
 * beyond the bound of its row: the state file knows of ids that no row tells of,
 * drawn in single-user mode or before the table was there.
 */
TimestampTz
snowflake_lease_begin(SnowflakeSlot *slot)
{
	uint64		word = pg_atomic_read_u64(&slot->lease.opened);

	if (!slot->lease.claim.opened)
		return DT_NOBEGIN;
	return snowflake_tick_begin(&slot->layout, snowflake_word_tick(&slot->layout, word));
}

/*
 * Moves the bound of the open lease ahead, if it can be: at once if somebody
 * waits for it (due), or while ids are drawn (active), before they reach it.  The
 * file also follows the bound of the row, by which it is known to be the last one.
 */
static bool
extend_lease(SnowflakeSlot *slot, bool due, bool active, SnowflakeProblem *problem)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		node = slot->lease.claim.node;
	TimestampTz bound = (TimestampTz) pg_atomic_read_u64(&slot->lease.leased_until);
	TimestampTz wanted = next_bound(slot);
	bool		renewed = !slot->lease.claim.unregistered && state.row_until != slot->lease.claim.until;
	SnowflakeState next = state;

	if (!renewed && (wanted <= bound || !(due || (active && wanted - bound > EXTEND_BELOW_US))))
		return true;
	if (!renewed && limit_at(layout, node, wanted) == limit_at(layout, node, bound))
		return true;			/* at the end of the timestamp field */
	wanted = Max(wanted, bound);

	/*
	 * the floor that the lease began at may be further ahead than its row's
	 * bound
	 */
	snowflake_state_set(&next, node, Max(wanted, snowflake_state_bound(&next, node)));
	if (renewed)
		next.row_until = slot->lease.claim.until;
	if (!save_state(slot, &next, problem))
		return false;
	publish_limit(slot, node, wanted);
	return true;
}

/* Opens or extends the lease of the claim that is held, whichever is needed. */
bool
snowflake_lease_keep(SnowflakeSlot *slot, bool due, bool active, SnowflakeProblem *problem)
{
	if (!slot->lease.claim.opened)
		return open_lease(slot, problem);
	return extend_lease(slot, due, active, problem);
}

/*
 * The state as on disk, with what follows from where the node number comes
 * from now; read when either changes.  NULL, with *problem filled, if it cannot
 * be used.  remote: see floor.h.
 */
const SnowflakeState *
snowflake_lease_state(SnowflakeSlot *slot, bool remote, SnowflakeProblem *problem)
{
	static bool loaded_remote;
	static uint32 loaded_timeline;
	uint32		timeline = snowflake_floor_timeline();

	if (remote != loaded_remote || (!remote && timeline != loaded_timeline))
		state_loaded = false;
	if (!state_loaded &&
		!snowflake_floor_load(&state, slot, remote, snowflake_lease_clock(), problem))
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
snowflake_lease_end(SnowflakeSlot *slot)
{
	SnowflakeState next = state;
	SnowflakeProblem problem;
	uint64		node = slot->lease.claim.node;

	slot->lease.claim.opened = false;
	if (!seal(slot, &next) || !state_loaded)
		return DT_NOBEGIN;
	if (!save_state(slot, &next, &problem))
	{
		pg_atomic_fetch_add_u64(&slot->counters.lease_failures, 1);
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
	pg_atomic_write_u32(&slot->lease.requested, 1);
	pg_memory_barrier();
	snowflake_lease_wake();
}
