/*
 * state_file.h
 *	  The durable floor below which no id may be issued again: snowflake.state
 *	  in the data directory (state.h has what it holds).
 *
 * Called by the holder (shmem.h) only: the file has one writer and no lock.
 */
#ifndef SNOWFLAKE_STATE_FILE_H
#define SNOWFLAKE_STATE_FILE_H

#include "state.h"

/*
 * Written before the first state of a layout is, and never removed: tells a
 * state file that is gone from one that never was.  Holds the layout.
 */
#define SNOWFLAKE_STARTED_FILE	"snowflake.started"

typedef enum SnowflakeStateRead
{
	SNOWFLAKE_STATE_OK,
	SNOWFLAKE_STATE_NEVER,		/* no state was ever written here */
	SNOWFLAKE_STATE_MISSING,	/* one was, and is gone */
	SNOWFLAKE_STATE_BAD			/* see the problem */
} SnowflakeStateRead;

extern SnowflakeStateRead snowflake_state_read(SnowflakeState *state, SnowflakeProblem *problem);
extern SnowflakeStateRead snowflake_started_read(char definition[SNOWFLAKE_DEFINITION_SIZE],
												 SnowflakeProblem *problem);
extern bool snowflake_started_write(const char *definition, SnowflakeProblem *problem);
extern bool snowflake_state_write(const SnowflakeState *state, SnowflakeProblem *problem);

#endif							/* SNOWFLAKE_STATE_FILE_H */
