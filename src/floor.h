/*
 * floor.h
 *	  What may not be issued again when the holder takes over: the state file,
 *	  or a safe substitute for what it does not tell.
 */
#ifndef SNOWFLAKE_FLOOR_H
#define SNOWFLAKE_FLOOR_H

#include "shmem.h"
#include "state_file.h"

extern bool snowflake_floor_load(SnowflakeState *state, SnowflakeSlot *slot,
								 TimestampTz now, SnowflakeProblem *problem);

#endif							/* SNOWFLAKE_FLOOR_H */
