/*
 * lease.c
 *	  Opening, extending and ending the lease of a node number.
 *
 * A lease lets drawers issue ids of one node number in ticks that end at or
 * before its bound.  The invariant, from shmem.h: an unsealed word of number N
 * stands under a limit of number N, and the state file on disk holds for N a
 * bound not below that limit.  Hence
 *
 *	  open		only over a sealed word: durable bound, then limit, then word
 *	  extend	durable bound, then limit
 *	  close		seal by an atomic or, then record as bound the end of the tick
 *				of the word that came back
 *
 * A new lease starts at the first tick that begins at or after the bound of
 * its number, and its first word is (that tick, sequence 0), which is never
 * issued.  So a word is greater than every earlier one of its number, and no
 * compare-and-swap of a drawer that slept over close and open can succeed.
 *
 * All but snowflake_lease_request and snowflake_full_problem is for the
 * holder: the lease worker, or the server itself in single-user mode.  Nothing
 * here needs a lock but the status.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "clock_watch.h"
#include "floor.h"
#include "guc.h"
#include "lease.h"
#include "node_number.h"
#include "word.h"

/* How far a bound is moved beyond what draws can need now. */
#define STEP_US				USECS_PER_SEC
/* Less than this is left of it: extend. */
#define EXTEND_BELOW_US		(STEP_US / 2)
/* Bounds are extended without being asked while ids were drawn so lately. */
#define ACTIVE_US			(60 * USECS_PER_SEC)

#define ACTIVE_PASS_MS		250L
#define RETRY_PASS_MS		1000L
#define RECOVERY_PASS_MS	1000L

/* The same problem is logged again after this time. */
#define LOG_AGAIN_US		(60 * USECS_PER_SEC)

#define ENDS_SOON_US		(365 * USECS_PER_DAY)

/* The state file as on disk; valid if state_loaded. */
static SnowflakeState state;
static bool state_loaded = false;

/*
 * The word at the last pass, and by the monotonic clock when ids were last
 * seen drawn (0: never) and when the lease was opened.
 */
static uint64 last_word = SNOWFLAKE_SEALED;
static int64 last_drawn = 0;
static int64 opened_at = 0;

static TimestampTz
now_with_offset(void)
{
	return snowflake_clock_now() + SNOWFLAKE_SETTING(clock_offset);
}

static bool
within_active_time(int64 since)
{
	return snowflake_monotonic_now() - since < ACTIVE_US;
}

/* The window of a lease: a clock that moves by more has been set. */
static int64
lease_window(void)
{
	return Max((int64) snowflake_lease_duration * 1000,
			   2 * SNOWFLAKE_SETTING(max_ahead) + USECS_PER_SEC);
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

/* Tells drawers and the view how things stand.  problem: NULL if all is well. */
static void
set_status(SnowflakeSlot *slot, SnowflakeSource source, const SnowflakeProblem *problem)
{
	SnowflakeStatus status;

	memset(&status, 0, sizeof(status));
	status.phase = problem != NULL ? SNOWFLAKE_REFUSED : SNOWFLAKE_READY;
	status.source = source;
	if (problem != NULL)
	{
		status.problem = *problem;
		log_problem(problem);
	}
	snowflake_status_set(slot, &status);
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
static TimestampTz
wanted_bound(const SnowflakeLayout *layout, TimestampTz now)
{
	return now + SNOWFLAKE_SETTING(max_ahead) + layout->tick_us + STEP_US;
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
warn_at_open(SnowflakeSlot *slot, TimestampTz floor, TimestampTz now)
{
	TimestampTz end = snowflake_tick_begin(&slot->layout, slot->layout.max_tick + 1);

	if (end - now < ENDS_SOON_US)
		ereport(WARNING,
				(errmsg("snowflake: the timestamp field of layout \"%s\" is full at %s",
						slot->name, timestamptz_to_str(end)),
				 errdetail("No ids can be issued from then on."),
				 errhint("Plan the move to a layout with a later end.")));
	if (floor > wanted_bound(&slot->layout, now))
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
 * The bound that a lease of a node number starts from: that of its history, and
 * what shared memory tells of its last lease, whatever became of the file.
 */
static TimestampTz
lease_floor(SnowflakeSlot *slot, const SnowflakeState *next, uint64 node)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		word = pg_atomic_read_u64(&slot->word) & ~SNOWFLAKE_SEALED;
	TimestampTz floor = snowflake_state_bound(next, node);

	if (pg_atomic_read_u64(&slot->lease.opened) != 0 && snowflake_word_node(layout, word) == node)
		floor = Max(floor, snowflake_tick_begin(layout, snowflake_word_tick(layout, word) + 1));
	return floor;
}

/* Lets drawers in: the limit first, then the word that it covers. */
static void
publish_lease(SnowflakeSlot *slot, uint64 node, uint64 tick, TimestampTz bound)
{
	uint64		before = pg_atomic_read_u64(&slot->lease.opened);
	bool		switched = before != 0 && snowflake_word_node(&slot->layout, before) != node;

	opened_at = snowflake_monotonic_now();
	last_word = snowflake_word_make(&slot->layout, node, tick, 0);
	pg_atomic_write_u64(&slot->lease.opened, last_word);
	publish_limit(slot, node, bound);
	pg_write_barrier();
	pg_atomic_write_u64(&slot->word, last_word);

	if (switched)
		pg_atomic_fetch_add_u64(&slot->counters.worker_switches, 1);
	ereport(LOG,
			(errmsg("snowflake: %s node number " UINT64_FORMAT " of layout \"%s\"",
					switched ? "switched to" : "drawing with", node, slot->name)));
}

/*
 * Opens a lease of a node number over a word that this seals first, if it is
 * open for another number.
 */
static bool
open_lease(SnowflakeSlot *slot, uint64 node, SnowflakeProblem *problem)
{
	const SnowflakeLayout *layout = &slot->layout;
	SnowflakeState next = state;
	TimestampTz now,
				floor,
				bound;
	uint64		tick;

	seal(slot, &next);
	floor = lease_floor(slot, &next, node);
	/* not 0, so that the first word is greater than 0 */
	tick = Max(snowflake_tick_from(layout, floor), 1);
	now = now_with_offset();
	if (tick > layout->max_tick || now >= snowflake_tick_begin(layout, layout->max_tick + 1))
		return snowflake_full_problem(slot, problem);
	bound = Max(floor, wanted_bound(layout, now));
	snowflake_state_set(&next, node, bound);
	if (!snowflake_started_write(next.layout, problem) || !save_state(slot, &next, problem))
		return false;
	warn_at_open(slot, floor, now);
	publish_lease(slot, node, tick, bound);
	return true;
}

/* Moves the bound of the open lease ahead, if it is due or asked for. */
static bool
extend_lease(SnowflakeSlot *slot, uint64 node, bool requested, SnowflakeProblem *problem)
{
	const SnowflakeLayout *layout = &slot->layout;
	TimestampTz bound = (TimestampTz) pg_atomic_read_u64(&slot->lease.leased_until);
	TimestampTz wanted = wanted_bound(layout, now_with_offset());
	SnowflakeState next = state;
	bool		active = last_drawn != 0 && within_active_time(last_drawn);

	if (wanted <= bound || !(requested || (active && wanted - bound > EXTEND_BELOW_US)))
		return true;
	if (limit_at(layout, node, wanted) == limit_at(layout, node, bound))
		return true;			/* at the end of the timestamp field */
	snowflake_state_set(&next, node, wanted);
	if (!save_state(slot, &next, problem))
		return false;
	publish_limit(slot, node, wanted);
	return true;
}

/* Opens or extends, whichever is needed. */
static bool
keep_lease(SnowflakeSlot *slot, uint64 node, bool requested, SnowflakeProblem *problem)
{
	uint64		word = pg_atomic_read_u64(&slot->word);

	if (!state_loaded &&
		!snowflake_floor_load(&state, slot, now_with_offset(), problem))
		return false;
	state_loaded = true;
	if ((word & SNOWFLAKE_SEALED) || snowflake_word_node(&slot->layout, word) != node)
		return open_lease(slot, node, problem);
	return extend_lease(slot, node, requested, problem);
}

/* Notes whether ids were drawn since the last pass. */
static void
watch_word(SnowflakeSlot *slot, bool requested)
{
	uint64		word = pg_atomic_read_u64(&slot->word);

	if (requested || word != last_word)
		last_drawn = snowflake_monotonic_now();
	last_word = word;
}

/*
 * One round of the holder's work.  Returns the milliseconds until the next one
 * is due, or SNOWFLAKE_PASS_IDLE.  A reload, a request or (single-user mode) a
 * draw that needs it calls for one at once.
 */
long
snowflake_lease_pass(void)
{
	SnowflakeSlot *slot = &snowflake_shared->slots[0];
	SnowflakeSource source;
	SnowflakeProblem problem;
	uint64		node;
	bool		requested;
	long		next = RETRY_PASS_MS;

	if (snowflake_shared->refused)
		return SNOWFLAKE_PASS_IDLE;
	snowflake_settings_publish();
	snowflake_clock_watch(slot, lease_window());
	if (RecoveryInProgress())
		return RECOVERY_PASS_MS;	/* until promotion */

	requested = pg_atomic_exchange_u32(&slot->lease.requested, 0) != 0;
	watch_word(slot, requested);
	if (!snowflake_node_number(&slot->layout, &node, &source, &problem))
	{
		snowflake_lease_close();
		set_status(slot, source, &problem);
		next = SNOWFLAKE_PASS_IDLE;
	}
	else if (!keep_lease(slot, node, requested, &problem))
	{
		pg_atomic_fetch_add_u64(&slot->counters.lease_failures, 1);
		set_status(slot, source, &problem);
	}
	else
	{
		set_status(slot, source, NULL);
		next = within_active_time(Max(last_drawn, opened_at)) ? ACTIVE_PASS_MS : SNOWFLAKE_PASS_IDLE;
	}
	ConditionVariableBroadcast(&slot->changed);
	return next;
}

/*
 * Ends the lease: nobody draws from here on, and the next start begins behind
 * the last id.  If the end cannot be recorded, the bound on disk stands, which
 * is later and therefore as safe.
 */
void
snowflake_lease_close(void)
{
	SnowflakeSlot *slot = &snowflake_shared->slots[0];
	SnowflakeState next = state;
	SnowflakeProblem problem;

	if (seal(slot, &next) && state_loaded && !save_state(slot, &next, &problem))
	{
		pg_atomic_fetch_add_u64(&slot->counters.lease_failures, 1);
		log_problem(&problem);
	}
}

/* Asks the worker for a pass now.  For drawers, whose word found the limit. */
void
snowflake_lease_request(SnowflakeSlot *slot)
{
	uint32		worker;

	pg_atomic_write_u32(&slot->lease.requested, 1);
	pg_memory_barrier();
	worker = pg_atomic_read_u32(&snowflake_shared->worker);
	if (worker != 0)
		SetLatch(&GetPGProcByNumber(worker - 1)->procLatch);
}
