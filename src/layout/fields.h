/*
 * fields.h
 *	  Ids, times and parts given by users: checks with errors.
 */
#ifndef SNOWFLAKE_FIELDS_H
#define SNOWFLAKE_FIELDS_H

#include "error.h"
#include "layout/layout.h"

extern void snowflake_default_layout_fix(const SnowflakeLayout *layout,
										 const SnowflakeProblem *problem);
extern const SnowflakeLayout *snowflake_default_layout(void);
extern void snowflake_layout_parse(const char *definition,
								   SnowflakeLayout *layout);
extern const char *snowflake_layout_label(const SnowflakeLayout *layout);
extern void snowflake_check_issuable(const SnowflakeLayout *layout);
extern void snowflake_check_id(const SnowflakeLayout *layout, int64 id);
extern uint64 snowflake_check_tick(const SnowflakeLayout *layout, TimestampTz at,
								   const char *hint);
extern int64 snowflake_first_id_at(const SnowflakeLayout *layout,
								   TimestampTz at);
extern int64 snowflake_last_id_at(const SnowflakeLayout *layout,
								  TimestampTz at);
extern int64 snowflake_compose_id(const SnowflakeLayout *layout,
								  TimestampTz at, int32 datacenter,
								  int32 worker, int32 clock, int32 sequence);

#endif							/* SNOWFLAKE_FIELDS_H */
