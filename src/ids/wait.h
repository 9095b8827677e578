/*
 * wait.h
 *	  What a backend does when the word does not allow the next id.
 */
#ifndef SNOWFLAKE_WAIT_H
#define SNOWFLAKE_WAIT_H

#include "shmem.h"

/* What came of one attempt to issue ids. */
typedef enum SnowflakeAttemptResult
{
	SNOWFLAKE_ISSUED,
	SNOWFLAKE_SEALED_WORD,		/* no lease */
	SNOWFLAKE_PAST_LIMIT,		/* the lease must be extended first */
	SNOWFLAKE_TOO_FAR_AHEAD,	/* the clock must come closer first */
	SNOWFLAKE_FIELD_FULL		/* the last tick is over, or all its ids are
								 * issued */
} SnowflakeAttemptResult;

typedef struct SnowflakeAttempt
{
	SnowflakeAttemptResult outcome;
	uint64		word;			/* ISSUED: the first word taken */
	int64		count;			/* ISSUED: words taken, all in one tick */
	TimestampTz begin;			/* TOO_FAR_AHEAD: begin of the next id's tick */
	TimestampTz now;			/* and the clock then */
} SnowflakeAttempt;

extern void snowflake_wait(SnowflakeSlot *slot,
						   const SnowflakeAttempt *attempt, int64 *waited);
extern void snowflake_wait_end(void);
extern void snowflake_report_full(const SnowflakeSlot *slot);

#endif							/* SNOWFLAKE_WAIT_H */
