/*
 * node_number.h
 *	  From the settings to the node numbers this server may have.
 */
#ifndef SNOWFLAKE_NODE_NUMBER_H
#define SNOWFLAKE_NODE_NUMBER_H

#include "claim.h"
#include "problem.h"

extern bool snowflake_node_numbers(const SnowflakeLayout *layout, uint32 generation,
								   SnowflakeWish *wish, SnowflakeProblem *problem);
extern void snowflake_numbers_narrow(SnowflakeWish *wish, const SnowflakeLayout *layout);
extern bool snowflake_number_fits(const SnowflakeLayout *layout, const char *name, uint64 node,
								  const SnowflakeWish *wish, SnowflakeProblem *problem);

#endif							/* SNOWFLAKE_NODE_NUMBER_H */
