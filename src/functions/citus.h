/*
 * citus.h
 *	  The guard for servers of a Citus cluster.
 */
#ifndef SNOWFLAKE_CITUS_H
#define SNOWFLAKE_CITUS_H

/* What the catalogs of Citus in this database say of this server. */
typedef enum SnowflakeCitusRole
{
	SNOWFLAKE_CITUS_UNKNOWN,	/* not looked up since they have changed */
	SNOWFLAKE_CITUS_NONE,		/* there is no Citus, or only this server */
	SNOWFLAKE_CITUS_COORDINATOR,
	SNOWFLAKE_CITUS_WORKER
} SnowflakeCitusRole;

/* Of this session. */
extern SnowflakeCitusRole snowflake_citus_role;

extern void snowflake_check_citus_worker(void);
extern void snowflake_check_citus_ids(void);
extern void snowflake_warn_citus(void);

/* To be called before ids are issued.  Raises 55000. */
static inline void
snowflake_check_citus(void)
{
	if (unlikely(snowflake_citus_role == SNOWFLAKE_CITUS_UNKNOWN ||
				 snowflake_citus_role == SNOWFLAKE_CITUS_WORKER))
		snowflake_check_citus_worker();
}

/*
 * To be called after: while the call waited, the lease worker may have taken
 * over settings that this session does not have yet.  Raises 55000.
 */
static inline void
snowflake_check_citus_issued(void)
{
	if (unlikely(snowflake_citus_role == SNOWFLAKE_CITUS_WORKER))
		snowflake_check_citus_ids();
}

#endif							/* SNOWFLAKE_CITUS_H */
