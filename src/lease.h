/*
 * lease.h
 *	  Opening, extending and ending the lease of a node number.
 */
#ifndef SNOWFLAKE_LEASE_H
#define SNOWFLAKE_LEASE_H

#include "shmem.h"
#include "state_file.h"

/* For the holder. */
extern const SnowflakeState *snowflake_lease_state(bool remote, SnowflakeProblem *problem);
extern bool snowflake_lease_keep(bool due, bool active, SnowflakeProblem *problem);
extern TimestampTz snowflake_lease_end(void);
extern TimestampTz snowflake_lease_begin(void);

/* For anybody. */
extern void snowflake_lease_wake(void);
extern void snowflake_lease_request(SnowflakeSlot *slot);

#endif							/* SNOWFLAKE_LEASE_H */
