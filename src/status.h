/*
 * status.h
 *	  What the holder tells drawers, the view and the log.
 */
#ifndef SNOWFLAKE_STATUS_H
#define SNOWFLAKE_STATUS_H

#include "shmem.h"

extern void snowflake_status_tell(const SnowflakeWish *wish, SnowflakePhase phase,
								  const SnowflakeProblem *problem);
extern void snowflake_status_stop(void);

#endif							/* SNOWFLAKE_STATUS_H */
