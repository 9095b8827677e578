/*
 * floor.h
 *	  What may not be issued again when the holder takes over: the state file,
 *	  or a safe substitute for what it does not tell.
 */
#ifndef SNOWFLAKE_FLOOR_H
#define SNOWFLAKE_FLOOR_H

#include "shmem.h"
#include "state_file.h"

extern bool snowflake_floor_load(SnowflakeState *state, bool remote,
								 TimestampTz now, SnowflakeProblem *problem);

/* For anybody. */
extern uint32 snowflake_floor_timeline(void);
extern uint32 snowflake_floor_generation(void);

#endif							/* SNOWFLAKE_FLOOR_H */
