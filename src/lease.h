/*
 * lease.h
 *	  Opening, extending and ending the lease of a node number.
 */
#ifndef SNOWFLAKE_LEASE_H
#define SNOWFLAKE_LEASE_H

#include "shmem.h"

/* Returned by a pass: there is nothing to do until somebody asks. */
#define SNOWFLAKE_PASS_IDLE		(-1L)

extern long snowflake_lease_pass(void);
extern void snowflake_lease_close(void);
extern void snowflake_lease_request(SnowflakeSlot *slot);
extern bool snowflake_full_problem(const SnowflakeSlot *slot, SnowflakeProblem *problem);

#endif							/* SNOWFLAKE_LEASE_H */
