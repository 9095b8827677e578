/*
 * parts.h
 *	  Ids, times and parts given by users: checks with errors.
 */
#ifndef SNOWFLAKE_PARTS_H
#define SNOWFLAKE_PARTS_H

#include "layout.h"

extern const SnowflakeLayout *snowflake_default_layout(void);
extern void snowflake_layout_parse(const char *definition, SnowflakeLayout *layout);
extern const char *snowflake_layout_label(const SnowflakeLayout *layout);
extern void snowflake_check_issuable(const SnowflakeLayout *layout);
extern void snowflake_check_id(const SnowflakeLayout *layout, int64 id);
extern int64 snowflake_first_id_at(const SnowflakeLayout *layout, TimestampTz at);
extern int64 snowflake_last_id_at(const SnowflakeLayout *layout, TimestampTz at);
extern int64 snowflake_compose_id(const SnowflakeLayout *layout, TimestampTz at, int32 datacenter,
								  int32 worker, int32 clock, int32 sequence);

#endif							/* SNOWFLAKE_PARTS_H */
