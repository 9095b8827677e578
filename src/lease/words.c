/*
 * words.c
 *	  The words of all layouts in use, opened, extended and sealed together.
 *
 * They belong to one lease of one node number, so all that are not sealed have
 * the same number.  leased_until is a time; in each layout the limit is the
 * tick that contains it.
 *
 *	  open		only over a sealed word: limit, then word
 *	  extend	limit
 *	  seal		by an atomic or: what comes back is the last word there will be
 *
 * A word is opened at the first tick that begins at or after the time where the
 * lease opens, and after its own last tick (if that is another number's and the
 * clock was set back: before it, which the settled id is told first), with a
 * sequence that is never issued: the number of earlier openings.  If the tick
 * is not later than all before, what does not fit into the sequence is added to
 * it.  So the word differs from every one that the number was opened with
 * before, also under another lease of which nothing was issued, and no
 * compare-and-swap of a backend that slept over sealing and opening can succeed.
 *
 * A word stays sealed
 *	  - if its layout has no tick left for the lease: it is marked full;
 *	  - while it would not be before its limit: it waits for a renewal.  If it
 *		was opened, it would keep no later lease of the number from starting
 *		before it, so after more openings it could come back;
 *	  - while the clock is past the layout's end.  That clock may be wrong.
 * When that is over it is opened as above: under a lease that is still open, and
 * in which this word was not open yet.
 *
 * Only the lease worker calls these.  It alone writes limits and sealed words,
 * so nothing here needs a lock.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "ids/word.h"
#include "lease/words.h"

/* The end of a layout is warned of when it is as near as this, */
#define ENDS_SOON_US		(365 * USECS_PER_DAY)
/* and so often, however many leases there are. */
#define WARN_AGAIN_US		USECS_PER_DAY

/* The limit of the ticks that end at or before a time, for a node number. */
static uint64
limit_at(const SnowflakeLayout *layout, uint64 node, TimestampTz leased_until)
{
	uint64		tick = leased_until > layout->epoch ?
	snowflake_tick_at(layout, leased_until) : 0;

	return snowflake_word_make(layout, node, Min(tick, layout->max_tick + 1),
							   0);
}

static TimestampTz
end_of(const SnowflakeLayout *layout, uint64 word)
{
	return snowflake_tick_begin(layout, snowflake_word_tick(layout, word) + 1);
}

/* With a new lease, at most once a day: an early word about the end. */
static void
warn_of_end(SnowflakeSlot *slot)
{
	TimestampTz end =
	snowflake_tick_begin(&slot->layout, slot->layout.max_tick + 1);
	int64		now = snowflake_monotonic_now();

	if (end - snowflake_id_clock() >= ENDS_SOON_US ||
		(slot->warned_at != 0 && now - slot->warned_at < WARN_AGAIN_US))
		return;
	slot->warned_at = now;
	ereport(WARNING,
			(errmsg("snowflake: the timestamp field of layout \"%s\" is full at %s",
					slot->name, timestamptz_to_str(end)),
			 errdetail("No ids can be issued from then on."),
			 errhint("Plan the move to a layout with a later end.")));
}

/*
 * The word that a sealed one is to be opened with; 0: the layout is full.  After
 * another number it goes on as well, so that ids only grow, unless that is past
 * the layout's end or too far ahead of a clock that was set back.  Then it is
 * counted how often words were opened, so that none is equal to one before, which
 * a process could still swap.
 */
static uint64
opening_word(SnowflakeSlot *slot, uint64 node, TimestampTz opens_at)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		last = pg_atomic_read_u64(&slot->word) & ~SNOWFLAKE_SEALED;
	TimestampTz end = end_of(layout, last);
	uint64		latest = Max(slot->latest, snowflake_word_tick(layout, last));
	uint64		tick;

	if (pg_atomic_read_u64(&slot->opened) != 0 &&
		(snowflake_word_node(layout, last) == node ||
		 (snowflake_word_tick(layout, last) < layout->max_tick &&
		  end <= snowflake_id_clock() + SNOWFLAKE_SETTING(max_ahead) + layout->tick_us)))
		opens_at = Max(opens_at, end);
	/* not 0, so that the first word is greater than 0 */
	tick = Max(snowflake_tick_from(layout, opens_at), 1);
	if (tick <= latest)
		tick += slot->openings >> layout->bits[SNOWFLAKE_SEQUENCE];
	return tick > layout->max_tick ? 0 :
		snowflake_word_make(layout, node, tick, slot->openings &
							snowflake_field_max(layout, SNOWFLAKE_SEQUENCE));
}

static void
open_word(SnowflakeSlot *slot, uint64 node, TimestampTz opens_at,
		  TimestampTz leased_until)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		word = opening_word(slot, node, opens_at);
	uint64		limit = limit_at(layout, node, leased_until);
	uint64		tick = snowflake_word_tick(layout, word);
	uint64		opened = pg_atomic_read_u64(&slot->opened);
	uint64		next_tick =
	snowflake_word_tick(layout, pg_atomic_read_u64(&slot->word)) + 1;

	pg_atomic_write_u32(&slot->full, word == 0);
	pg_atomic_write_u64(&slot->waiting, word < limit ? 0 : word);
	if (word == 0 || word >= limit || snowflake_layout_is_over(layout))
		return;
	warn_of_end(slot);
	slot->openings++;
	if (opened != 0 && tick < next_tick)
		pg_atomic_write_u64(&slot->went_back,
							Max(pg_atomic_read_u64(&slot->went_back), next_tick));
	pg_atomic_write_u64(&slot->opened, word);
	slot->seen = word;
	slot->latest = Max(slot->latest, Max(tick, next_tick - 1));
	pg_atomic_write_u64(&slot->limit, limit);
	pg_write_barrier();
	pg_atomic_write_u64(&slot->word, word);
}

/*
 * Opens the words that are sealed, and moves the limits of those that are
 * open, for a lease that is durable up to leased_until.
 */
void
snowflake_words_open(uint64 node, TimestampTz opens_at,
					 TimestampTz leased_until)
{
	for (int i = 0; i < snowflake_shared->num_slots; i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];

		if (pg_atomic_read_u64(&slot->word) & SNOWFLAKE_SEALED)
			open_word(slot, node, opens_at, leased_until);
		else
			pg_atomic_write_u64(&slot->limit,
								limit_at(&slot->layout, node, leased_until));
	}
}

/*
 * Seals all words.  Returns the end of all ids of the node number that they
 * have issued under this lease, DT_NOBEGIN if there are none; those of earlier
 * leases end by its start.  A word that was sealed before, by a lease worker that
 * ended in the middle of this, counts as well; so does one that has issued nothing
 * and was opened later than the lease starts, up to where it was opened: no word
 * of the number is opened earlier.
 */
TimestampTz
snowflake_words_seal(uint64 node, TimestampTz starts_at)
{
	TimestampTz end = DT_NOBEGIN;

	for (int i = 0; i < snowflake_shared->num_slots; i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		uint64		word = pg_atomic_fetch_or_u64(&slot->word, SNOWFLAKE_SEALED);
		uint64		opened = pg_atomic_read_u64(&slot->opened);

		pg_atomic_write_u64(&slot->waiting, 0);
		word &= ~SNOWFLAKE_SEALED;
		if (opened == 0 || snowflake_word_node(&slot->layout, word) != node)
			continue;
		if (word != opened)
			end = Max(end, end_of(&slot->layout, word));
		else if (snowflake_word_is_late(&slot->layout, word, starts_at))
			end = Max(end, end_of(&slot->layout, word) - slot->layout.tick_us);
	}
	return end;
}

/* Whether ids were issued since the last call. */
bool
snowflake_words_issued(void)
{
	bool		issued = false;

	for (int i = 0; i < snowflake_shared->num_slots; i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		uint64		word = pg_atomic_read_u64(&slot->word);

		if (word != slot->seen && !(word & SNOWFLAKE_SEALED))
			issued = true;
		slot->seen = word;
	}
	return issued;
}
