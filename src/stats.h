/*
 * stats.h
 *	  Reading the counters of a layout in use.
 */
#ifndef SNOWFLAKE_STATS_H
#define SNOWFLAKE_STATS_H

#include "shmem.h"

extern uint64 snowflake_stats_ids_issued(int slot);
extern void snowflake_stats_reset(void);
extern const char *snowflake_stats_state(SnowflakeSlot *slot, const SnowflakeStatus *status,
										 char *detail, size_t size);
extern const char *snowflake_from_name(SnowflakeWorkerIdFrom from);

#endif							/* SNOWFLAKE_STATS_H */
