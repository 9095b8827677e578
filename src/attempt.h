/*
 * attempt.h
 *	  What came of one attempt to draw; between generator.c and wait.c.
 */
#ifndef SNOWFLAKE_ATTEMPT_H
#define SNOWFLAKE_ATTEMPT_H

#include "shmem.h"

typedef enum SnowflakeOutcome
{
	SNOWFLAKE_DRAWN,
	SNOWFLAKE_SEALED_WORD,		/* no lease */
	SNOWFLAKE_PAST_LIMIT,		/* the lease must be extended first */
	SNOWFLAKE_TOO_FAR_AHEAD,	/* the clock must come closer first */
	SNOWFLAKE_FIELD_FULL		/* the last tick is over, or all its ids are
								 * issued */
} SnowflakeOutcome;

typedef struct SnowflakeAttempt
{
	SnowflakeOutcome outcome;
	uint64		word;			/* DRAWN: the first word claimed */
	int64		count;			/* DRAWN: words claimed, all in one tick */
	TimestampTz begin;			/* TOO_FAR_AHEAD: begin of the next id's tick */
	TimestampTz now;			/* and the clock then */
} SnowflakeAttempt;

/* wait.c: waits until another attempt makes sense, or raises an error. */
extern void snowflake_wait(SnowflakeSlot *slot, const SnowflakeAttempt *attempt, int64 *waited);
extern void snowflake_wait_end(void);

#endif							/* SNOWFLAKE_ATTEMPT_H */
