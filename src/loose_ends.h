/*
 * loose_ends.h
 *	  Leases that the registry may take for this server's, and that are over or
 *	  were never begun.
 */
#ifndef SNOWFLAKE_LOOSE_ENDS_H
#define SNOWFLAKE_LOOSE_ENDS_H

#include "registry.h"
#include "state_file.h"

/* For the registrar. */
extern void snowflake_loose_unused(const pg_uuid_t *token);
extern void snowflake_loose_previous(const pg_uuid_t *token, TimestampTz end);
extern void snowflake_loose_recall(const SnowflakeState *state, bool remote);
extern bool snowflake_loose_has_previous(void);
extern void snowflake_loose_fill(SnowflakeCall *call);
extern void snowflake_loose_told(const SnowflakeCall *call);

#endif							/* SNOWFLAKE_LOOSE_ENDS_H */
