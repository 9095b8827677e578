/*
 * helper.h
 *	  The short-lived process that carries out the holder's calls.
 */
#ifndef SNOWFLAKE_HELPER_H
#define SNOWFLAKE_HELPER_H

#include "shmem.h"

/* For the holder. */
extern void snowflake_helper_prepare(void);
extern uint32 snowflake_helper_ask(const SnowflakeCall *call);
extern bool snowflake_helper_answered(uint32 number, SnowflakeAnswer *answer);

extern PGDLLEXPORT void snowflake_helper_main(Datum arg);

#endif							/* SNOWFLAKE_HELPER_H */
