/*
 * guc.h
 *	  The settings of the extension, in alphabetical order; see doc/reference.md.
 */
#ifndef SNOWFLAKE_GUC_H
#define SNOWFLAKE_GUC_H

#include "error.h"
#include "layout/layout.h"

/* A value of snowflake.registry: the own tables, as with the empty one. */
#define SNOWFLAKE_OWN_REGISTRY	"own"

/* So many layouts can be in use, the server's default layout included. */
#define SNOWFLAKE_MAX_LAYOUTS	64

typedef enum SnowflakeSequenceStart
{
	SNOWFLAKE_START_CARRIED,	/* where the last tick's sequence ended,
								 * modulo 16 */
	SNOWFLAKE_START_RANDOM,		/* below 16 */
	SNOWFLAKE_START_ZERO
} SnowflakeSequenceStart;

extern double snowflake_clock_offset;	/* ms */
extern int	snowflake_datacenter_id;	/* -1: none given */
extern char *snowflake_extra_layouts;
extern char *snowflake_layout_setting;
extern int	snowflake_lease_duration;	/* ms */
extern int	snowflake_max_ahead;	/* ms */
extern int	snowflake_max_wait; /* ms */
extern char *snowflake_registry;
extern int	snowflake_sequence_start;
extern char *snowflake_worker_id;

/* Whether shared_preload_libraries has Citus; not a setting of ours. */
extern bool snowflake_preloads_citus;

extern void snowflake_guc_init(void);
extern int	snowflake_guc_layouts(SnowflakeLayout layouts[SNOWFLAKE_MAX_LAYOUTS]);
extern bool snowflake_guc_rejected(SnowflakeProblem *problem);
extern void snowflake_guc_publish(void);
extern void snowflake_guc_run(const SnowflakeLayout *layout);

#endif							/* SNOWFLAKE_GUC_H */
