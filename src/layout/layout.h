/*
 * layout.h
 *	  The bit layout of an id: which fields it has, their widths and order, the
 *	  length of a tick and the epoch.
 *
 * Owns the grammar of layout definitions, the presets, and the arithmetic
 * between ids, ticks and times.  Holds no state: every function is pure, never
 * raises an error and may be called anywhere, the postmaster included.
 *
 * Units: a tick counts from the layout's epoch; times are microseconds since
 * 2000-01-01 00:00 UTC (TimestampTz).
 *
 * The datacenter, worker and clock fields, from high to low and wherever they
 * stand in the id, make up one number, the node number.
 */
#ifndef SNOWFLAKE_LAYOUT_H
#define SNOWFLAKE_LAYOUT_H

#include "datatype/timestamp.h"

typedef enum SnowflakeField
{
	SNOWFLAKE_TIMESTAMP,
	SNOWFLAKE_DATACENTER,
	SNOWFLAKE_WORKER,
	SNOWFLAKE_CLOCK,
	SNOWFLAKE_SEQUENCE
} SnowflakeField;

#define SNOWFLAKE_NUM_FIELDS		(SNOWFLAKE_SEQUENCE + 1)

/* An id is a non-negative bigint. */
#define SNOWFLAKE_MAX_BITS			63
/* Every field but the timestamp is shown as an integer. */
#define SNOWFLAKE_MAX_FIELD_BITS	31
/* Longest tick a layout may have, and longest one ids are issued with. */
#define SNOWFLAKE_MAX_TICK_US		USECS_PER_DAY
#define SNOWFLAKE_MAX_ISSUE_TICK_US USECS_PER_SEC

/* Room for every canonical definition, with the terminating zero. */
#define SNOWFLAKE_DEFINITION_SIZE	192

typedef struct SnowflakeLayout
{
	uint8		bits[SNOWFLAKE_NUM_FIELDS]; /* width, 0: field is absent */
	uint8		shift[SNOWFLAKE_NUM_FIELDS];	/* its lowest bit in the id */
	uint8		total_bits;		/* sum of the widths, 2 to 63 */
	int64		tick_us;		/* length of a tick, microseconds */
	TimestampTz epoch;			/* begin of tick 0 */

	/*
	 * Last tick: all bits of the timestamp set, or the last one whose end
	 * timestamptz can show if that comes earlier.
	 */
	uint64		max_tick;
} SnowflakeLayout;

/*
 * Why a definition was not accepted: what is wrong with which bound, and what
 * to do.
 */
typedef struct SnowflakeLayoutError
{
	char		detail[256];
	char		hint[256];
} SnowflakeLayoutError;

typedef struct SnowflakePreset
{
	const char *name;
	const char *definition;
} SnowflakePreset;

extern const SnowflakePreset snowflake_presets[];
extern const int snowflake_num_presets;

/* layout.c: grammar */
extern bool snowflake_layout_read(const char *definition,
								  SnowflakeLayout *layout,
								  SnowflakeLayoutError *error);
extern void snowflake_layout_define(const SnowflakeLayout *layout,
									char definition[SNOWFLAKE_DEFINITION_SIZE]);
extern const char *snowflake_layout_name(const SnowflakeLayout *layout);
extern const char *snowflake_field_name(SnowflakeField field);

extern bool snowflake_layout_same_ids(const SnowflakeLayout *a,
									  const SnowflakeLayout *b);

/* epoch.c: ISO 8601 */
extern bool snowflake_epoch_read(const char *value, TimestampTz *epoch);
extern void snowflake_epoch_write(TimestampTz epoch, char *buffer,
								  size_t size);

/* All bits of a width set; width at most 63. */
static inline uint64
snowflake_low_bits(int bits)
{
	return (UINT64CONST(1) << bits) - 1;
}

static inline uint64
snowflake_field_max(const SnowflakeLayout *layout, SnowflakeField field)
{
	return snowflake_low_bits(layout->bits[field]);
}

/* When a tick begins.  tick <= max_tick + 1. */
static inline TimestampTz
snowflake_tick_begin(const SnowflakeLayout *layout, uint64 tick)
{
	return (TimestampTz) ((uint64) layout->epoch +
						  tick * (uint64) layout->tick_us);
}

/*
 * The tick that contains a time, which must not be before the epoch.  May be
 * above max_tick.
 */
static inline uint64
snowflake_tick_at(const SnowflakeLayout *layout, TimestampTz at)
{
	return ((uint64) at - (uint64) layout->epoch) / (uint64) layout->tick_us;
}

/*
 * The first tick that begins at or after a time; 0 for times before the epoch.
 */
static inline uint64
snowflake_tick_from(const SnowflakeLayout *layout, TimestampTz at)
{
	uint64		tick;

	if (at <= layout->epoch)
		return 0;
	tick = snowflake_tick_at(layout, at);
	return snowflake_tick_begin(layout, tick) == at ? tick : tick + 1;
}

/* Value of one field of an id. */
static inline uint64
snowflake_field_get(const SnowflakeLayout *layout, int64 id,
					SnowflakeField field)
{
	return ((uint64) id >> layout->shift[field]) &
		snowflake_field_max(layout, field);
}

/* The bits of a node number at their places in an id. */
static inline uint64
snowflake_node_place(const SnowflakeLayout *layout, uint64 node)
{
	uint64		clock = node & snowflake_field_max(layout, SNOWFLAKE_CLOCK);
	uint64		worker = snowflake_field_max(layout, SNOWFLAKE_WORKER) &
	(node >> layout->bits[SNOWFLAKE_CLOCK]);
	uint64		datacenter = node >> (layout->bits[SNOWFLAKE_CLOCK] +
									  layout->bits[SNOWFLAKE_WORKER]);

	return clock << layout->shift[SNOWFLAKE_CLOCK] |
		worker << layout->shift[SNOWFLAKE_WORKER] |
		datacenter << layout->shift[SNOWFLAKE_DATACENTER];
}

/* The node number made of its fields, each within its width. */
static inline uint64
snowflake_node_join(const SnowflakeLayout *layout,
					uint64 datacenter, uint64 worker, uint64 clock)
{
	return (datacenter << layout->bits[SNOWFLAKE_WORKER] | worker)
		<< layout->bits[SNOWFLAKE_CLOCK] | clock;
}

/* The greatest node number. */
static inline uint64
snowflake_node_max(const SnowflakeLayout *layout)
{
	return snowflake_low_bits(layout->bits[SNOWFLAKE_DATACENTER] +
							  layout->bits[SNOWFLAKE_WORKER] +
							  layout->bits[SNOWFLAKE_CLOCK]);
}

/* The id of a tick, node number and sequence, each within its width. */
static inline int64
snowflake_id_pack(const SnowflakeLayout *layout, uint64 tick, uint64 node,
				  uint64 sequence)
{
	return (int64) (tick << layout->shift[SNOWFLAKE_TIMESTAMP] |
					snowflake_node_place(layout, node) |
					sequence << layout->shift[SNOWFLAKE_SEQUENCE]);
}

/* Whether ids can be issued with a layout, not only parsed. */
static inline bool
snowflake_layout_is_issuable(const SnowflakeLayout *layout)
{
	return layout->bits[SNOWFLAKE_WORKER] > 0 &&
		layout->tick_us <= SNOWFLAKE_MAX_ISSUE_TICK_US;
}

/* First and last id of a tick, over all node numbers. */
static inline int64
snowflake_tick_first_id(const SnowflakeLayout *layout, uint64 tick)
{
	return (int64) (tick << layout->shift[SNOWFLAKE_TIMESTAMP]);
}

static inline int64
snowflake_tick_last_id(const SnowflakeLayout *layout, uint64 tick)
{
	return snowflake_tick_first_id(layout, tick) |
		(int64) snowflake_low_bits(layout->shift[SNOWFLAKE_TIMESTAMP]);
}

/* Greatest id of a layout. */
static inline int64
snowflake_layout_max_id(const SnowflakeLayout *layout)
{
	return snowflake_tick_last_id(layout, layout->max_tick);
}

static inline bool
snowflake_id_in_layout(const SnowflakeLayout *layout, int64 id)
{
	return id >= 0 && id <= snowflake_layout_max_id(layout);
}

#endif							/* SNOWFLAKE_LAYOUT_H */
