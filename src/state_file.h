/*
 * state_file.h
 *	  The durable floor below which no id may be issued again: snowflake.state
 *	  in the data directory.
 *
 * The file holds, for each node number this server used, a bound: all ids
 * issued under it have ticks that end at or before the bound.  Bounds are
 * TimestampTz.  Numbers without an entry of their own have the common bound.
 *
 * Called by the holder (shmem.h) only: the file has one writer and no lock.
 */
#ifndef SNOWFLAKE_STATE_FILE_H
#define SNOWFLAKE_STATE_FILE_H

#include "utils/uuid.h"

#include "layout.h"
#include "problem.h"

#define SNOWFLAKE_STATE_FILE	"snowflake.state"

/*
 * Written before the first state of a layout is, and never removed: tells a
 * state file that is gone from one that never was.  Holds the layout.
 */
#define SNOWFLAKE_STARTED_FILE	"snowflake.started"

/* Bound of a node number that was never used: every tick is behind it. */
#define SNOWFLAKE_NO_BOUND		DT_NOBEGIN

#define SNOWFLAKE_STATE_ENTRIES 32

typedef struct SnowflakeBound
{
	uint64		node;
	TimestampTz bound;
} SnowflakeBound;

typedef enum SnowflakeOrigin
{
	SNOWFLAKE_NO_ORIGIN,		/* no node number has come from a registry */
	SNOWFLAKE_LOCAL,			/* this cluster's table worker_node */
	SNOWFLAKE_REMOTE			/* another cluster's */
} SnowflakeOrigin;

typedef struct SnowflakeState
{
	uint64		writes;			/* number of this state: greater than that of
								 * every earlier one of this file */
	uint32		timeline;		/* of the server when the file was written */
	SnowflakeOrigin origin;		/* where the last node number came from */
	pg_uuid_t	incarnation;	/* of that registry */
	pg_uuid_t	token;			/* of the last lease there */
	uint64		node;			/* its node number */
	TimestampTz row_until;		/* its bound there, when this was written */
	uint64		fingerprint;	/* of the data directory that leased it
								 * (host.c): another one if this is a copy */
	TimestampTz written_at;		/* by the clock, without an offset */
	char		layout[SNOWFLAKE_DEFINITION_SIZE];	/* the server's, canonical definition; bounds are
								 * times, and hold for all layouts */
	TimestampTz common_bound;	/* of every number without an entry */
	uint32		num_entries;
	SnowflakeBound entries[SNOWFLAKE_STATE_ENTRIES];
} SnowflakeState;

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
extern TimestampTz snowflake_state_bound(const SnowflakeState *state, uint64 node);
extern TimestampTz snowflake_state_greatest(const SnowflakeState *state);
extern void snowflake_state_set(SnowflakeState *state, uint64 node, TimestampTz bound);
extern void snowflake_state_floor(SnowflakeState *state, TimestampTz floor);

#endif							/* SNOWFLAKE_STATE_FILE_H */
