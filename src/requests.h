/*
 * requests.h
 *	  What the registrar asks of the registry.
 */
#ifndef SNOWFLAKE_REQUESTS_H
#define SNOWFLAKE_REQUESTS_H

#include "shmem.h"
#include "state_file.h"

extern void snowflake_request_acquire(const SnowflakeWish *wish, const SnowflakeNumbers *numbers,
									  const SnowflakeState *state, int64 window, bool create);
extern void snowflake_request_renew(int64 window);
extern void snowflake_request_release(const SnowflakeWish *wish, bool last);

#endif							/* SNOWFLAKE_REQUESTS_H */
