/*
 * words.h
 *	  The words of all layouts in use, opened, extended and sealed together.
 */
#ifndef SNOWFLAKE_WORDS_H
#define SNOWFLAKE_WORDS_H

#include "shmem.h"

extern void snowflake_words_open(uint64 node, TimestampTz opens_at,
								 TimestampTz leased_until);
extern TimestampTz snowflake_words_seal(uint64 node, TimestampTz starts_at);
extern bool snowflake_words_issued(void);

#endif							/* SNOWFLAKE_WORDS_H */
