/*
 * words.h
 *	  The words of all layouts in use, opened, moved on and sealed together.
 */
#ifndef SNOWFLAKE_WORDS_H
#define SNOWFLAKE_WORDS_H

#include "shmem.h"

/* For the holder. */
extern void snowflake_words_open(uint64 node, TimestampTz begin, TimestampTz bound);
extern void snowflake_words_extend(TimestampTz bound);
extern bool snowflake_words_gain(TimestampTz bound);
extern bool snowflake_words_seal(uint64 *node, TimestampTz *end);
extern TimestampTz snowflake_words_end(uint64 node);
extern bool snowflake_word_is_over(SnowflakeSlot *slot);

/* For anybody. */
extern bool snowflake_words_node(uint64 *node);
extern int64 snowflake_layout_early(const SnowflakeLayout *layout);
extern int64 snowflake_words_behind(void);
extern bool snowflake_full_problem(const SnowflakeSlot *slot, SnowflakeProblem *problem);

#endif							/* SNOWFLAKE_WORDS_H */
