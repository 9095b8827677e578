/*
 * words.c
 *	  The words of all layouts in use, opened, moved on and sealed together.
 *
 * They belong to one lease, of one node number (lease.c), so all of them that are
 * not sealed have the same number.  A bound is a time; in each layout its limit is
 * the tick that contains it.
 *
 *	  open		only over a sealed word: limit, then word
 *	  extend	limit
 *	  seal		by an atomic or: what comes back is the last word there will be
 *
 * A word is opened at the first tick that begins at or after the begin of its lease
 * and behind its own last tick, with (that tick, sequence 0), which is never issued.
 * So a word is greater than every earlier one of its number, and no compare-and-swap
 * of a drawer that slept over sealing and opening can succeed.
 *
 * A word whose layout cannot be used with the number, or has no tick left, stays sealed;
 * holder.c tells its drawers why.
 *
 * So does one whose epoch was to come when the lease was opened, until the clock is near
 * and somebody asks for its ids (which is as good as drawing one).  For the end of a lease
 * covers the first tick of each word, drawn from or not: should the clock go back again, it
 * would take the number until that epoch, from all layouts and from whoever has it next.
 *
 * All but what words.h says is for anybody is for the holder, which alone writes
 * limits and sealed words.  Nothing here needs a lock.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "word.h"
#include "words.h"

#define ENDS_SOON_US		(365 * USECS_PER_DAY)

/* What drawers wait for has changed. */
static void
note_change(void)
{
	pg_atomic_fetch_add_u64(&snowflake_shared->lease.changes, 1);
}

/* The limit of the ticks that end at or before a bound, for a node number. */
static uint64
limit_at(const SnowflakeLayout *layout, uint64 node, TimestampTz bound)
{
	uint64		tick = bound > layout->epoch ? snowflake_tick_at(layout, bound) : 0;

	return snowflake_word_make(layout, node, Min(tick, layout->max_tick + 1), 0);
}

/*
 * The end of a word's tick.  The tick is over even if nothing was drawn in it: its
 * first word was published, and must not be published again (test/model, REUSE_WORD).
 */
static TimestampTz
end_of(const SnowflakeLayout *layout, uint64 word)
{
	return snowflake_tick_begin(layout, snowflake_word_tick(layout, word) + 1);
}

/*
 * The end of all ticks of a node number that these words were in since the server
 * started, DT_NOBEGIN if none was.
 */
TimestampTz
snowflake_words_end(uint64 node)
{
	TimestampTz end = DT_NOBEGIN;

	for (int i = 0; i < snowflake_slots_used(); i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if (pg_atomic_read_u64(&slot->opened) != 0 && snowflake_word_node(&slot->layout, word) == node)
			end = Max(end, end_of(&slot->layout, word));
	}
	return end;
}

/*
 * Seals all words.  False if all were sealed already; else the number of their lease
 * and the end of its ids.  A word of it that was sealed before, by a lease worker that
 * ended in the middle of this, counts as well.
 */
bool
snowflake_words_seal(uint64 *node, TimestampTz *end)
{
	bool		open = false;

	for (int i = 0; i < snowflake_slots_used(); i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		uint64		word = pg_atomic_fetch_or_u64(&slot->word, SNOWFLAKE_SEALED);

		if (word & SNOWFLAKE_SEALED)
			continue;
		open = true;
		*node = snowflake_word_node(&slot->layout, word);
	}
	if (!open)
		return false;
	*end = snowflake_words_end(*node);
	note_change();
	return true;
}

/* Once for each lease: an early word about the end. */
static void
warn_of_end(SnowflakeSlot *slot, TimestampTz now)
{
	TimestampTz end = snowflake_tick_begin(&slot->layout, slot->layout.max_tick + 1);

	if (end - now < ENDS_SOON_US)
		ereport(WARNING,
				(errmsg("snowflake: the timestamp field of layout \"%s\" is full at %s",
						slot->name, timestamptz_to_str(end)),
				 errdetail("No ids can be issued from then on."),
				 errhint("Plan the move to a layout with a later end.")));
}

/* The tick that a word is opened in, for a lease that begins at a time. */
static uint64
first_tick(SnowflakeSlot *slot, uint64 node, TimestampTz begin)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		last = pg_atomic_read_u64(&slot->word) & ~SNOWFLAKE_SEALED;

	if (pg_atomic_read_u64(&slot->opened) != 0 && snowflake_word_node(layout, last) == node)
		begin = Max(begin, end_of(layout, last));
	/* not 0, so that the first word is greater than 0 */
	return Max(snowflake_tick_from(layout, begin), 1);
}

/* Whether a word is sealed under the lease that is open, and stays so: no tick is left. */
bool
snowflake_word_is_over(SnowflakeSlot *slot)
{
	const SnowflakeLease *lease = &snowflake_shared->lease;
	const SnowflakeLayout *layout = &slot->layout;
	TimestampTz now = snowflake_id_clock();

	return (pg_atomic_read_u64(&slot->word) & SNOWFLAKE_SEALED) &&
		(now >= snowflake_tick_begin(layout, layout->max_tick + 1) ||
		 first_tick(slot, lease->claim.node, lease->begin) > layout->max_tick);
}

/*
 * How long until the first tick of a layout is near enough to draw from, in microseconds;
 * not more than 0 if it is.  Any process may call this.
 */
int64
snowflake_layout_early(const SnowflakeLayout *layout)
{
	return snowflake_tick_begin(layout, 1) - SNOWFLAKE_SETTING(max_ahead) - snowflake_id_clock();
}

/* Whether a layout's epoch was to come when the lease that begins at a time was opened. */
static bool
is_late(const SnowflakeLayout *layout, TimestampTz begin)
{
	return snowflake_tick_begin(layout, 1) > Max(begin, snowflake_shared->lease.opened_at);
}

static void
open_word(SnowflakeSlot *slot, uint64 node, TimestampTz begin, TimestampTz bound)
{
	const SnowflakeLayout *layout = &slot->layout;
	TimestampTz now = snowflake_id_clock();
	uint64		tick = first_tick(slot, node, begin);
	uint64		word;

	if (!snowflake_number_suits(&snowflake_shared->lease.claim.wish, layout, node) ||
		tick > layout->max_tick || now >= snowflake_tick_begin(layout, layout->max_tick + 1) ||
		snowflake_layout_early(layout) > 0 ||
		(is_late(layout, begin) && !slot->wanted))
		return;

	warn_of_end(slot, now);
	word = snowflake_word_make(layout, node, tick, 0);
	pg_atomic_write_u64(&slot->opened, word);
	slot->seen = word;
	pg_atomic_write_u64(&slot->limit, limit_at(layout, node, bound));
	pg_write_barrier();
	pg_atomic_write_u64(&slot->word, word);
	note_change();
}

/*
 * Lets drawers in where they are not yet: under a lease of a number that begins at a
 * time and is durable up to a bound.
 */
void
snowflake_words_open(uint64 node, TimestampTz begin, TimestampTz bound)
{
	for (int i = 0; i < snowflake_slots_used(); i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];

		if (pg_atomic_read_u64(&slot->word) & SNOWFLAKE_SEALED)
			open_word(slot, node, begin, bound);
		slot->wanted = false;
	}
}

/*
 * How long until the clock is close enough for a layout's next draw, in microseconds;
 * not more than 0 if it is.  A word that was not drawn from does not count: no other
 * number would begin earlier.
 */
static int64
time_behind(SnowflakeSlot *slot)
{
	uint64		word = pg_atomic_read_u64(&slot->word);

	if ((word & SNOWFLAKE_SEALED) || word == pg_atomic_read_u64(&slot->opened))
		return 0;
	return snowflake_tick_begin(&slot->layout, snowflake_word_tick(&slot->layout, word)) -
		SNOWFLAKE_SETTING(max_ahead) - snowflake_id_clock();
}

/* The same of the layout for which it takes longest.  Any process may call this. */
int64
snowflake_words_behind(void)
{
	int64		behind = 0;

	for (int i = 0; i < snowflake_slots_used(); i++)
		behind = Max(behind, time_behind(&snowflake_shared->slots[i]));
	return behind;
}

/* Whether a bound would let a word go further. */
bool
snowflake_words_gain(TimestampTz bound)
{
	for (int i = 0; i < snowflake_slots_used(); i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if (!(word & SNOWFLAKE_SEALED) &&
			limit_at(&slot->layout, snowflake_word_node(&slot->layout, word), bound) >
			pg_atomic_read_u64(&slot->limit))
			return true;
	}
	return false;
}

/* Lets the open words go as far as a bound, which is durable. */
void
snowflake_words_extend(TimestampTz bound)
{
	for (int i = 0; i < snowflake_slots_used(); i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if (!(word & SNOWFLAKE_SEALED))
			pg_atomic_write_u64(&slot->limit,
								limit_at(&slot->layout, snowflake_word_node(&slot->layout, word), bound));
	}
	note_change();
}

/* The number that ids are drawn with now; false if with none, *node is of no use then. */
bool
snowflake_words_node(uint64 *node)
{
	for (int i = 0; i < snowflake_slots_used(); i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		uint64		word = pg_atomic_read_u64(&slot->word);

		*node = snowflake_word_node(&slot->layout, word);
		if (!(word & SNOWFLAKE_SEALED))
			return true;
	}
	return false;
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
