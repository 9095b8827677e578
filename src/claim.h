/*
 * claim.h
 *	  Which node number this server wants, and which one it holds: the row of
 *	  worker_node that allows it to open a lease.
 */
#ifndef SNOWFLAKE_CLAIM_H
#define SNOWFLAKE_CLAIM_H

#include "utils/uuid.h"

#include "layout.h"

/* Where the node number comes from. */
typedef enum SnowflakeSource
{
	SNOWFLAKE_SOURCE_WORKER_NODE,
	SNOWFLAKE_SOURCE_FIXED,
	SNOWFLAKE_SOURCE_HOSTNAME,
	SNOWFLAKE_SOURCE_MAC
} SnowflakeSource;

/* Room for snowflake.registry. */
#define SNOWFLAKE_REGISTRY_SIZE	1024

/*
 * What the settings and the layouts in use ask for: one of the node numbers from first
 * to last, of which the bits in ring_mask (one, or none) are ring_bits; first is one of
 * them.  Two wishes with the same allowed_first and allowed_last come from the same
 * settings.
 */
typedef struct SnowflakeWish
{
	SnowflakeSource source;
	bool		remote;			/* from a registry, else the local table */
	char		registry[SNOWFLAKE_REGISTRY_SIZE];	/* connection string;
													 * empty: local */
	bool		exclusive;		/* all of the numbers are this server's, one
								 * at a time */
	uint64		first;
	uint64		last;
	uint64		ring_mask;
	uint64		ring_bits;
	uint64		allowed_first;	/* by the settings, whatever the other layouts */
	uint64		allowed_last;
} SnowflakeWish;

/*
 * A row of worker_node that is ours.  Without one (unregistered) a lease goes by
 * the state file alone, which is as safe on one cluster and timeline.
 */
typedef struct SnowflakeClaim
{
	bool		held;
	bool		unregistered;
	bool		opened;			/* its lease is open */
	bool		used;			/* it was open: ids may have been issued */
	SnowflakeWish wish;			/* what it was taken for */
	pg_uuid_t	token;
	pg_uuid_t	incarnation;	/* of the table */
	uint64		node;
	TimestampTz starts_at;		/* no id of a tick that begins before */
	TimestampTz until;			/* bound of the row */
} SnowflakeClaim;

/* Whether there is another number to go to when the clock was set back. */
static inline bool
snowflake_wish_can_move(const SnowflakeWish *wish)
{
	return wish->last > wish->first;
}

static inline bool
snowflake_wish_equal(const SnowflakeWish *a, const SnowflakeWish *b)
{
	return a->source == b->source && a->exclusive == b->exclusive &&
		a->first == b->first && a->last == b->last &&
		a->ring_mask == b->ring_mask && a->ring_bits == b->ring_bits &&
		a->allowed_first == b->allowed_first && a->allowed_last == b->allowed_last &&
		strcmp(a->registry, b->registry) == 0;
}

/* Whether a number is one of those asked for. */
static inline bool
snowflake_wish_has(const SnowflakeWish *wish, uint64 node)
{
	return node >= wish->first && node <= wish->last && (node & wish->ring_mask) == wish->ring_bits;
}

#endif							/* SNOWFLAKE_CLAIM_H */
