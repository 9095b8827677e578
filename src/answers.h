/*
 * answers.h
 *	  What the registry's answers mean for the claim, and what is to be asked next.
 */
#ifndef SNOWFLAKE_ANSWERS_H
#define SNOWFLAKE_ANSWERS_H

#include "backoff.h"
#include "shmem.h"
#include "state_file.h"

/* What the registrar is to do in this pass. */
typedef struct SnowflakeErrand
{
	const SnowflakeWish *wish;
	const SnowflakeState *state;
	int64		window;			/* of a lease, microseconds */
	bool		wanted;			/* somebody waits for an id */
	bool		active;			/* ids are being drawn */
	bool		look;			/* the table may be there by now */
	bool		standby;		/* takes a number only if it is wanted */
	bool		exchange;		/* somebody waits for ids of a layout that the
								 * number held does not fit; it is kept until
								 * one that does is granted */
} SnowflakeErrand;

/* What the registrar knows from pass to pass; lost with the lease worker. */
typedef struct SnowflakeAsking
{
	bool		tell_previous;	/* the registry is told of the previous lease
								 * now, not with the next one */
	bool		resting;		/* no claim is asked for before somebody wants
								 * an id */
	bool		ask_any;		/* no number that fits all layouts is free:
								 * the next call asks for any that is allowed */
	SnowflakeBackoff backoff;	/* of calls for the claim that there is to be */
	SnowflakeBackoff exchange;	/* of calls for one that fits all layouts */
} SnowflakeAsking;

/* For the holder. */
extern SnowflakeAsking snowflake_asking;

extern bool snowflake_answer_take(const SnowflakeErrand *errand);
extern void snowflake_asking_fail(SnowflakeBackoff *backoff, const SnowflakeProblem *problem);
extern void snowflake_claim_alone(const SnowflakeErrand *errand);
extern void snowflake_claim_drop(TimestampTz end);
extern void snowflake_claim_forgive(void);

static inline bool
snowflake_claim_is_registered(const SnowflakeClaim *claim)
{
	return claim->held && !claim->unregistered;
}

#endif							/* SNOWFLAKE_ANSWERS_H */
