/*
 * generator.c
 *	  The hot path: one compare-and-swap on one shared word per id.
 *
 * Why no id is issued twice
 *	  An id is issued by the process that swapped the word to it, the word only
 *	  grows while it is unsealed, and it holds the node number, the tick and
 *	  the sequence.  So within a lease no two calls for a layout get the same.
 *	  Over leases: a process publishes only a word below the limit it read
 *	  after the word, which a durable leased_until covers, and the next lease
 *	  of the number starts at or after that, or after the exact last word if
 *	  the lease was sealed (lease/words.c).
 *
 * Order of reads
 *	  word, then limit.  A limit is replaced by that of another lease only
 *	  while the word is sealed, and a word that was sealed never comes back; so
 *	  if the limit read is not that of the word read, the swap fails.
 *
 * Issuing an id takes no lock, allocates nothing and writes one shared cache
 * line; counting goes to a line of this process.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "clock.h"
#include "compat.h"
#include "guc.h"
#include "ids/generator.h"
#include "ids/settled.h"
#include "ids/wait.h"
#include "ids/word.h"
#include "layout/fields.h"
#include "shmem.h"

/* The first sequence of a fresh tick is below this, whatever the policy. */
#define START_RANGE		16

/*
 * What this process keeps of a slot.  The layout is copied:
 * it never changes, and a local copy costs no shared cache line.
 */
struct SnowflakeGenerator
{
	SnowflakeSlot *slot;		/* NULL: not attached yet */
	SnowflakeLayout layout;
	uint64		sequence_mask;
	uint64		tick_mask;		/* of a tick shifted down to bit 0 */
	uint64		node_mask;		/* of the node number in place */
	uint64		last;			/* tick and sequence of the last word there is */
	int			tick_shift;
	int64		coarse_lag;		/* of the coarse clock, microseconds */
	uint64		node;			/* node number in place in the word, and */
	uint64		node_in_id;		/* the bits it has in an id */
	pg_atomic_uint64 *ids_issued;	/* this process's own counter */
	pg_atomic_uint64 *bound;	/* of this transaction; a parallel worker's is
								 * its leader's */
	int64		ahead;			/* of the last id, microseconds */
	int64		seen_ahead;		/* no use to report less, microseconds */
	uint32		resets;			/* since this many resets */
};

/*
 * The generator of the server's default layout; and by slot those of the other
 * layouts, NULL if this process has not used one yet.
 */
static SnowflakeGenerator default_generator;
static SnowflakeGenerator **generators = NULL;

static void
attach(SnowflakeGenerator *g, SnowflakeSlot *slot)
{
	int			index = (int) (slot - snowflake_shared->slots);

	g->slot = slot;
	g->layout = slot->layout;
	g->sequence_mask = snowflake_field_max(&g->layout, SNOWFLAKE_SEQUENCE);
	g->tick_mask = snowflake_field_max(&g->layout, SNOWFLAKE_TIMESTAMP);
	g->tick_shift = snowflake_word_tick_shift(&g->layout);
	g->node_mask = ~snowflake_low_bits(snowflake_word_node_shift(&g->layout));
	g->last = g->layout.max_tick << g->tick_shift | g->sequence_mask;
	g->coarse_lag = snowflake_coarse_lag();
	g->ids_issued =
		&snowflake_shmem_process_slot(snowflake_my_proc_number(), index)->ids_issued;
	g->bound = snowflake_settled_bound(index);
}

/* The generator of the server's layout.  Raises 55000 if not preloaded. */
SnowflakeGenerator *
snowflake_default_generator(void)
{
	if (unlikely(default_generator.slot == NULL))
	{
		snowflake_require_preload();
		attach(&default_generator, &snowflake_shared->slots[0]);
	}
	return &default_generator;
}

/* Raises 55000, with the line that takes a layout into use. */
static void
report_not_in_use(const SnowflakeLayout *layout)
{
	const char *label = snowflake_layout_label(layout);
	const char *extra = snowflake_extra_layouts;

	/* perhaps it was in a list that was not valid */
	if (snowflake_shared->refused)
		snowflake_report_problem(ERROR, &snowflake_shared->status.problem);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("layout \"%s\" is not in use", label),
			 errdetail("Layouts in use are fixed when the server starts."),
			 errhint("Add \"snowflake.extra_layouts = '%s%s%s'\" to postgresql.conf and restart the server.",
					 extra, extra[0] != '\0' ? "; " : "", label)));
}

/*
 * The generator of a layout: the same for all layouts that make the same ids,
 * since they share its word.  Raises 22023 if no ids can be issued with it,
 * 55000 if it is not in use, or not preloaded.
 */
SnowflakeGenerator *
snowflake_generator_of(const SnowflakeLayout *layout)
{
	SnowflakeSlot *slot;
	SnowflakeGenerator **g;

	snowflake_require_preload();
	snowflake_check_issuable(layout);
	slot = snowflake_slot_of(layout);
	if (slot == NULL)
		report_not_in_use(layout);
	if (slot == &snowflake_shared->slots[0])
		return snowflake_default_generator();

	if (generators == NULL)
		generators = MemoryContextAllocZero(TopMemoryContext,
											snowflake_shared->num_slots * sizeof(*generators));
	g = &generators[slot - snowflake_shared->slots];
	if (*g == NULL)
	{
		SnowflakeGenerator *made =
		MemoryContextAllocZero(TopMemoryContext, sizeof(*made));

		attach(made, slot);
		*g = made;
	}
	return *g;
}

/* Where the sequence of a fresh tick starts, given the last word. */
static uint64
fresh_sequence(const SnowflakeGenerator *g, uint64 word)
{
	uint64		mask = Min(g->sequence_mask, START_RANGE - 1);

	switch (pg_atomic_read_u32(&snowflake_shared->settings.sequence_start))
	{
		case SNOWFLAKE_START_ZERO:
			return 0;
		case SNOWFLAKE_START_RANDOM:
			return pg_prng_uint32(&pg_global_prng_state) & mask;
		default:
			return (word + 1) & mask;
	}
}

/*
 * Keeps the greatest ahead.  Only what this process has not seen yet reaches
 * shared memory.
 */
static void
note_ahead(SnowflakeGenerator *g, int64 ahead)
{
	uint32		resets =
	pg_atomic_read_u32(&snowflake_shared->settings.resets);
	pg_atomic_uint64 *shared = &g->slot->counters.max_ahead_seen;
	uint64		seen = pg_atomic_read_u64(shared);

	while (seen < (uint64) ahead &&
		   !pg_atomic_compare_exchange_u64(shared, &seen, (uint64) ahead))
		;
	g->seen_ahead = ahead;
	g->resets = resets;
}

/* Counts what was issued, on this process's own cache line. */
static inline void
count_ids(SnowflakeGenerator *g, uint64 first, int64 count, int64 ahead)
{
	pg_atomic_write_u64(g->ids_issued,
						pg_atomic_read_u64(g->ids_issued) + count);
	g->ahead = ahead;
	if (ahead <= 0)
		return;
	if ((first & g->sequence_mask) == 0)
		pg_atomic_fetch_add_u64(&g->slot->counters.sequence_overflows, 1);
	if (ahead > g->seen_ahead ||
		g->resets != pg_atomic_read_u32(&snowflake_shared->settings.resets))
		note_ahead(g, ahead);
}

/*
 * The word that comes next, and how far its tick begins after the clock
 * (negative: before).  The sequence goes on in the last word's tick, or in the
 * next one if that is used up, unless the clock has come further.
 *
 * Ids that run ahead of the clock do not need to know it exactly: a coarse
 * reading, which is never early, shows that they are ahead and within bounds.
 * It is worth a try if the last id was ahead as well.
 */
static pg_attribute_always_inline SnowflakeAttemptResult
next_word(const SnowflakeGenerator *g, uint64 word, SnowflakeAttempt *attempt,
		  int64 *ahead)
{
	const int64 max_ahead = SNOWFLAKE_SETTING(max_ahead);
	const int64 offset = SNOWFLAKE_SETTING(clock_offset);
	uint64		next = word + 1;
	TimestampTz begin =
	snowflake_tick_begin(&g->layout, (next >> g->tick_shift) & g->tick_mask);

	attempt->word = next;
	if (g->ahead > g->coarse_lag)
	{
		*ahead = begin - (snowflake_clock_coarse() + offset);
		if (*ahead > g->coarse_lag && *ahead <= max_ahead)
			return SNOWFLAKE_ISSUED;
	}

	attempt->now = snowflake_clock_now() + offset;
	*ahead = begin - attempt->now;
	if (*ahead > max_ahead)
	{
		attempt->begin = begin;
		return SNOWFLAKE_TOO_FAR_AHEAD;
	}
	if (-*ahead >= g->layout.tick_us)
	{
		uint64		tick = snowflake_tick_at(&g->layout, attempt->now);

		if (tick > g->layout.max_tick)
			return SNOWFLAKE_FIELD_FULL;
		attempt->word = (word & g->node_mask) | tick << g->tick_shift |
			fresh_sequence(g, word);
	}
	return SNOWFLAKE_ISSUED;
}

/*
 * Takes up to count words of one tick.  Returns ISSUED, or why not; nothing
 * has happened then.
 */
static pg_attribute_always_inline SnowflakeAttemptResult
try_issue(SnowflakeGenerator *g, int64 count, SnowflakeAttempt *attempt)
{
	pg_atomic_uint64 *shared = &g->slot->word;
	uint64		word = pg_atomic_read_u64(shared);

	for (;;)
	{
		SnowflakeAttemptResult outcome;
		uint64		limit;
		int64		ahead;

		pg_read_barrier();
		limit = pg_atomic_read_u64(&g->slot->limit);
		if (unlikely(word & SNOWFLAKE_SEALED))
			return SNOWFLAKE_SEALED_WORD;
		/* after the last word of the last tick comes another node number */
		if (unlikely((word & ~g->node_mask) >= g->last))
			return SNOWFLAKE_FIELD_FULL;
		outcome = next_word(g, word, attempt, &ahead);
		if (unlikely(outcome != SNOWFLAKE_ISSUED))
			return outcome;
		if (unlikely(attempt->word >= limit))
			return SNOWFLAKE_PAST_LIMIT;

		if (unlikely((attempt->word & ~g->node_mask) < pg_atomic_read_u64(g->bound)))
			snowflake_settled_lower(g->bound, attempt->word & ~g->node_mask);

		/*
		 * the limit has sequence 0, so it covers the rest of the tick as well
		 */
		attempt->count =
			Min(count,
				(int64) (g->sequence_mask -
						 (attempt->word & g->sequence_mask)) + 1);
		if (likely(pg_atomic_compare_exchange_u64(shared, &word,
												  attempt->word +
												  attempt->count - 1)))
		{
			count_ids(g, attempt->word, attempt->count, ahead);
			return SNOWFLAKE_ISSUED;
		}
	}
}

/* The id of a word: snowflake_id_pack(), with the node number's bits at hand. */
static inline int64
id_of(SnowflakeGenerator *g, uint64 word)
{
	if (unlikely((word & g->node_mask) != g->node))
	{
		g->node = word & g->node_mask;
		g->node_in_id =
			snowflake_node_place(&g->layout,
								 snowflake_word_node(&g->layout, word));
	}
	return (int64) (((word >> g->tick_shift) & g->tick_mask) << g->layout.shift[SNOWFLAKE_TIMESTAMP] |
					g->node_in_id |
					(word & g->sequence_mask) << g->layout.shift[SNOWFLAKE_SEQUENCE]);
}

/* Takes up to count words of one tick, waiting if need be. */
static pg_noinline void
issue_slowly(SnowflakeGenerator *g, int64 count, SnowflakeAttempt *attempt,
			 int64 *waited)
{
	while (attempt->outcome != SNOWFLAKE_ISSUED)
	{
		snowflake_wait(g->slot, attempt, waited);
		attempt->outcome = try_issue(g, count, attempt);
	}
	snowflake_wait_end();
}

/*
 * Issues one id.  Waits up to snowflake.max_wait if it must; raises the errors
 * of wait.c.
 */
int64
snowflake_issue(SnowflakeGenerator *g)
{
	SnowflakeAttempt attempt;

	attempt.outcome = try_issue(g, 1, &attempt);
	if (unlikely(attempt.outcome != SNOWFLAKE_ISSUED))
	{
		int64		waited = 0;

		issue_slowly(g, 1, &attempt, &waited);
	}
	return id_of(g, attempt.word);
}

/*
 * Issues at least one and up to count ids, all of one tick.  Waits and raises
 * errors as above; part->waited counts towards max_wait.
 */
void
snowflake_issue_part(SnowflakeGenerator *g, int64 count, SnowflakePart *part)
{
	SnowflakeAttempt attempt;

	attempt.outcome = try_issue(g, count, &attempt);
	if (attempt.outcome != SNOWFLAKE_ISSUED)
		issue_slowly(g, count, &attempt, &part->waited);
	part->first = id_of(g, attempt.word);
	part->step = INT64CONST(1) << g->layout.shift[SNOWFLAKE_SEQUENCE];
	part->count = attempt.count;
}

/* The slot whose word it is. */
SnowflakeSlot *
snowflake_generator_slot(const SnowflakeGenerator *g)
{
	return g->slot;
}

/*
 * Moves a word that is behind the clock to the clock's tick, inside its lease,
 * and returns the word.  This issues no id, but those that come are not of an
 * earlier tick, as if one had been issued.
 */
uint64
snowflake_catch_up(const SnowflakeGenerator *g)
{
	uint64		word = pg_atomic_read_u64(&g->slot->word);

	for (;;)
	{
		TimestampTz now = snowflake_id_clock();
		uint64		limit,
					tick,
					next;

		pg_read_barrier();
		limit = pg_atomic_read_u64(&g->slot->limit);
		if ((word & SNOWFLAKE_SEALED) != 0 || now < g->layout.epoch)
			return word;
		tick = snowflake_tick_at(&g->layout, now);
		if (tick > g->layout.max_tick ||
			tick <= snowflake_word_tick(&g->layout, word))
			return word;
		/* of a lease that is over, the last word */
		next = Min((word & g->node_mask) | tick << g->tick_shift |
				   fresh_sequence(g, word), limit - 1);
		if (next <= word ||
			pg_atomic_compare_exchange_u64(&g->slot->word, &word, next))
			return Max(word, next);
	}
}

/*
 * Refuses a batch that even an idle server could not issue.  Meanwhile as many
 * ticks begin as fit into max_ahead and max_wait, and if that is none, the
 * tick at hand may still hold it.
 */
void
snowflake_check_batch(const SnowflakeGenerator *g, int64 count)
{
	int64		span,
				ticks,
				most;

	if (count < 1 || count > SNOWFLAKE_MAX_BATCH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch of " INT64_FORMAT " ids is out of range",
						count),
				 errhint("Ask for 1 to %d ids at a time.",
						 SNOWFLAKE_MAX_BATCH)));
	span = SNOWFLAKE_SETTING(max_ahead) + (int64) snowflake_max_wait * 1000;
	ticks = Min(span / g->layout.tick_us, SNOWFLAKE_MAX_BATCH);
	most = Max(ticks, 1) *
		(int64) Min(g->sequence_mask + 1, SNOWFLAKE_MAX_BATCH);
	if (count > most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch of " INT64_FORMAT " ids is too large for layout \"%s\"",
						count, g->slot->name),
				 errdetail("Within snowflake.max_ahead and snowflake.max_wait it holds at most " INT64_FORMAT " ids.", most),
				 errhint("Ask for at most " INT64_FORMAT " ids at a time.",
						 most)));
}
