/*
 * worker.h
 *	  The background worker that holds this server's lease.
 */
#ifndef SNOWFLAKE_WORKER_H
#define SNOWFLAKE_WORKER_H

extern Size snowflake_lease_worker_shmem_size(void);
extern void snowflake_lease_worker_shmem_create(void);
extern void snowflake_lease_worker_register(void);
extern PGDLLEXPORT void snowflake_lease_worker_main(Datum arg);

#endif							/* SNOWFLAKE_WORKER_H */
