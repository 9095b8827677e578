/*
 * helper.h
 *	  The process that calls the registry for the lease worker.
 */
#ifndef SNOWFLAKE_HELPER_H
#define SNOWFLAKE_HELPER_H

#include "registry/protocol.h"

/* For the lease worker. */
extern Size snowflake_helper_shmem_size(void);
extern void snowflake_helper_shmem_create(void);
extern bool snowflake_helper_is_there(void);
extern void snowflake_helper_prepare(void);
extern void snowflake_helper_ask(const SnowflakeCall *call);
extern bool snowflake_helper_result(uint64 number, SnowflakeResult *result);

extern PGDLLEXPORT void snowflake_helper_main(Datum arg);

#endif							/* SNOWFLAKE_HELPER_H */
