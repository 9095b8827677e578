/*
 * node_number.h
 *	  From the settings to the node number this server is to have.
 */
#ifndef SNOWFLAKE_NODE_NUMBER_H
#define SNOWFLAKE_NODE_NUMBER_H

#include "shmem.h"

extern bool snowflake_node_number(const SnowflakeLayout *layout, uint64 *node,
								  SnowflakeSource *source, SnowflakeProblem *problem);

#endif							/* SNOWFLAKE_NODE_NUMBER_H */
