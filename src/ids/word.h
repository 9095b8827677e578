/*
 * word.h
 *	  The 64-bit word that all ids of a layout come from: one in each slot
 *	  (shmem.h).
 *
 *		bit 63		sealed: no id is issued until a lease is opened
 *		below		node number | tick | sequence, in the widths of the layout
 *
 * The word is the last id issued (or, right after a lease is opened, the last
 * one that may not be).  While unsealed it is changed by compare-and-swap to
 * greater values only; since the node number is in it, a backend that read it
 * under another node number fails its swap.  A limit has the same form: the
 * first word that is not covered by the lease, with sequence 0.
 */
#ifndef SNOWFLAKE_WORD_H
#define SNOWFLAKE_WORD_H

#include "layout/layout.h"
#include "shmem.h"

static inline int
snowflake_word_tick_shift(const SnowflakeLayout *layout)
{
	return layout->bits[SNOWFLAKE_SEQUENCE];
}

static inline int
snowflake_word_node_shift(const SnowflakeLayout *layout)
{
	return layout->bits[SNOWFLAKE_SEQUENCE] +
		layout->bits[SNOWFLAKE_TIMESTAMP];
}

/*
 * The tick may be max_tick + 1 with sequence 0: the limit of a lease up to the
 * end of the timestamp field, then carried into the node number.
 */
static inline uint64
snowflake_word_make(const SnowflakeLayout *layout, uint64 node, uint64 tick,
					uint64 sequence)
{
	return (node << snowflake_word_node_shift(layout)) +
		(tick << snowflake_word_tick_shift(layout)) + sequence;
}

static inline uint64
snowflake_word_sequence(const SnowflakeLayout *layout, uint64 word)
{
	return word & snowflake_field_max(layout, SNOWFLAKE_SEQUENCE);
}

static inline uint64
snowflake_word_tick(const SnowflakeLayout *layout, uint64 word)
{
	return (word >> snowflake_word_tick_shift(layout)) &
		snowflake_field_max(layout, SNOWFLAKE_TIMESTAMP);
}

static inline uint64
snowflake_word_node(const SnowflakeLayout *layout, uint64 word)
{
	return (word & ~SNOWFLAKE_SEALED) >> snowflake_word_node_shift(layout);
}

/* Whether a word is the last of its node number: no tick is left. */
static inline bool
snowflake_word_is_last(const SnowflakeLayout *layout, uint64 word)
{
	return snowflake_word_tick(layout, word) >= layout->max_tick &&
		snowflake_word_sequence(layout, word) ==
		snowflake_field_max(layout, SNOWFLAKE_SEQUENCE);
}

/* Whether a word that was opened stands later than its lease lets it begin. */
static inline bool
snowflake_word_is_late(const SnowflakeLayout *layout, uint64 word,
					   TimestampTz starts_at)
{
	return snowflake_tick_begin(layout, snowflake_word_tick(layout, word)) -
		layout->tick_us >= starts_at;
}

/*
 * Whether the clock is past the last tick of a layout: no id fits, whatever
 * the word is.
 */
static inline bool
snowflake_layout_is_over(const SnowflakeLayout *layout)
{
	return snowflake_id_clock() >=
		snowflake_tick_begin(layout, layout->max_tick + 1);
}

/*
 * The word that the next id of a slot follows: the one that is open, or that
 * waits for a later limit (lease/words.c); 0: none.
 */
static inline uint64
snowflake_next_follows(SnowflakeSlot *slot)
{
	uint64		word = pg_atomic_read_u64(&slot->word);

	return (word & SNOWFLAKE_SEALED) == 0 ? word :
		pg_atomic_read_u64(&slot->waiting);
}

#endif							/* SNOWFLAKE_WORD_H */
