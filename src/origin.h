/*
 * origin.h
 *	  Which table worker_node this server's number comes from, and came from.
 */
#ifndef SNOWFLAKE_ORIGIN_H
#define SNOWFLAKE_ORIGIN_H

#include "claim.h"
#include "state_file.h"

/* For the holder. */
extern bool snowflake_origin_check(const SnowflakeState *state, bool remote, SnowflakeProblem *problem);
extern bool snowflake_origin_any(const SnowflakeState *state, bool remote);
extern void snowflake_origin_enter(SnowflakeState *state, const SnowflakeClaim *claim);

#endif							/* SNOWFLAKE_ORIGIN_H */
