/*
 * registrar.h
 *	  Gets, keeps and gives back the row of worker_node that is this server's claim.
 */
#ifndef SNOWFLAKE_REGISTRAR_H
#define SNOWFLAKE_REGISTRAR_H

#include "answers.h"

/* How things stand with the claim. */
typedef enum SnowflakeStanding
{
	SNOWFLAKE_CLAIM_NONE,		/* none, and none is asked for */
	SNOWFLAKE_CLAIM_HELD,		/* the row is ours, as far as is known */
	SNOWFLAKE_CLAIM_ASKED,		/* none yet; an answer or the next attempt is
								 * due */
	SNOWFLAKE_CLAIM_FAILING,	/* the last call failed, see the problem;
								 * there will be others */
	SNOWFLAKE_CLAIM_LOST		/* held until now: to be dropped */
} SnowflakeStanding;

/* For the holder. */
extern SnowflakeStanding snowflake_registrar_step(const SnowflakeErrand *errand,
												  SnowflakeProblem *problem);
extern void snowflake_registrar_give_back(bool rest, bool last);
extern const SnowflakeProblem *snowflake_registrar_exchange_problem(void);
extern void snowflake_registrar_hurry(void);
extern bool snowflake_registrar_busy(void);
extern long snowflake_registrar_due(const SnowflakeErrand *errand);

#endif							/* SNOWFLAKE_REGISTRAR_H */
