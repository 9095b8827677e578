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

/* Node numbers from first to last; of an automatic choice, those that are in its ring. */
typedef struct SnowflakeNumbers
{
	uint64		first;			/* one of them */
	uint64		last;
} SnowflakeNumbers;

/*
 * What the settings ask for: one of the allowed numbers; better one that fits all
 * layouts in use, if there are such.  Of these, the bits in ring_mask (one, or none) are
 * ring_bits.
 */
typedef struct SnowflakeWish
{
	SnowflakeSource source;
	bool		remote;			/* from a registry, else the local table */
	char		registry[SNOWFLAKE_REGISTRY_SIZE];	/* connection string;
													 * empty: local */
	bool		exclusive;		/* all of the numbers are this server's, one
								 * at a time */
	SnowflakeNumbers allowed;	/* by the settings and the server's layout */
	SnowflakeNumbers fitting;	/* the other layouts in use, too; the same if
								 * there is no other, or none would do */
	uint64		ring_mask;
	uint64		ring_bits;
	uint64		least;			/* by the settings; of fitting numbers, too */
} SnowflakeWish;

/*
 * The bit of node numbers that tells the odd timelines of a cluster from the even ones,
 * for ids of a layout that have no registry: 0 in all numbers of the ones, 1 in all of the
 * others.  It depends on the ids of the layout and nothing else, so that neither settings
 * nor other layouts, which can differ between a primary that was left behind and a
 * standby that was promoted, bring the two together.
 */
static inline uint64
snowflake_timeline_bit(const SnowflakeLayout *layout)
{
	uint64		highest = (snowflake_node_max(layout) + 1) / 2;

	return Min(highest, 8);
}

/*
 * Whether ids of a layout may be issued with a number of a wish: it is below the
 * greatest, which is reserved, and of this timeline.
 */
static inline bool
snowflake_number_suits(const SnowflakeWish *wish, const SnowflakeLayout *layout, uint64 node)
{
	uint64		bit = snowflake_timeline_bit(layout);

	return node < snowflake_node_max(layout) &&
		(wish->ring_mask == 0 || (node & bit) == (wish->ring_bits != 0 ? bit : 0));
}

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

static inline bool
snowflake_token_equal(const pg_uuid_t *a, const pg_uuid_t *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* Whether there is another number to go to when the clock was set back. */
static inline bool
snowflake_wish_can_move(const SnowflakeWish *wish)
{
	return wish->allowed.last > wish->allowed.first || wish->fitting.last > wish->fitting.first;
}

static inline bool
snowflake_numbers_equal(const SnowflakeNumbers *a, const SnowflakeNumbers *b)
{
	return a->first == b->first && a->last == b->last;
}

/* Whether two wishes come from the same settings, whatever the layouts in use. */
static inline bool
snowflake_wish_same_settings(const SnowflakeWish *a, const SnowflakeWish *b)
{
	return a->source == b->source && a->exclusive == b->exclusive &&
		snowflake_numbers_equal(&a->allowed, &b->allowed) && a->least == b->least &&
		a->ring_mask == b->ring_mask && a->ring_bits == b->ring_bits &&
		strcmp(a->registry, b->registry) == 0;
}

static inline bool
snowflake_wish_equal(const SnowflakeWish *a, const SnowflakeWish *b)
{
	return snowflake_wish_same_settings(a, b) && snowflake_numbers_equal(&a->fitting, &b->fitting);
}

/* Whether a number is one of these numbers of a wish. */
static inline bool
snowflake_wish_has(const SnowflakeWish *wish, const SnowflakeNumbers *numbers, uint64 node)
{
	return node >= numbers->first && node <= numbers->last && (node & wish->ring_mask) == wish->ring_bits;
}

#endif							/* SNOWFLAKE_CLAIM_H */
