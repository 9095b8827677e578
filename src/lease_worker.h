/*
 * lease_worker.h
 *	  The background worker that holds this server's leases.
 */
#ifndef SNOWFLAKE_LEASE_WORKER_H
#define SNOWFLAKE_LEASE_WORKER_H

extern void snowflake_lease_worker_register(void);
extern PGDLLEXPORT void snowflake_lease_worker_main(Datum arg);

#endif							/* SNOWFLAKE_LEASE_WORKER_H */
