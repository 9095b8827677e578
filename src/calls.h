/*
 * calls.h
 *	  The one call to the registry that is out.
 */
#ifndef SNOWFLAKE_CALLS_H
#define SNOWFLAKE_CALLS_H

#include "registry.h"

/* For the registrar. */
extern SnowflakeCall *snowflake_call_new(SnowflakeCallKind kind, const SnowflakeWish *wish);
extern void snowflake_call_make(void);
extern bool snowflake_call_is_out(void);
extern int64 snowflake_call_age(void);
extern const SnowflakeCall *snowflake_call_take(SnowflakeAnswer *answer);
extern void snowflake_call_problem(SnowflakeProblem *problem);
extern const char *snowflake_call_place(void);

#endif							/* SNOWFLAKE_CALLS_H */
