/*
 * state.h
 *	  The floor below which no id may be issued again, and its form on disk.
 *
 * It has, for each node number this server used, a bound: all ids issued under
 * it have ticks that end at or before the bound.  Bounds are TimestampTz.
 * Numbers without an entry of their own have the common bound.
 *
 * Holds no state: every function is pure and never raises an error.
 */
#ifndef SNOWFLAKE_STATE_H
#define SNOWFLAKE_STATE_H

#include "port/pg_crc32c.h"
#include "utils/uuid.h"

#include "layout.h"
#include "problem.h"

/* Where it is kept, below the data directory; named in problems. */
#define SNOWFLAKE_STATE_FILE	"snowflake.state"

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

/* The file's contents, in the server's byte order. */
typedef struct SnowflakeStateImage
{
	char		magic[8];
	uint32		version;
	pg_crc32c	crc;			/* of all that follows */
	uint64		system_identifier;
	SnowflakeState state;
} SnowflakeStateImage;

extern TimestampTz snowflake_state_bound(const SnowflakeState *state, uint64 node);
extern TimestampTz snowflake_state_greatest(const SnowflakeState *state);
extern void snowflake_state_set(SnowflakeState *state, uint64 node, TimestampTz bound);
extern void snowflake_state_floor(SnowflakeState *state, TimestampTz floor);

extern void snowflake_state_to_image(const SnowflakeState *state, uint64 system_identifier,
									 SnowflakeStateImage *image);
extern bool snowflake_state_from_image(SnowflakeState *state, uint64 system_identifier,
									   const void *contents, size_t length, SnowflakeProblem *problem);
extern void snowflake_state_damaged(SnowflakeProblem *problem, const char *path,
									const char *format,...) pg_attribute_printf(3, 4);

#endif							/* SNOWFLAKE_STATE_H */
