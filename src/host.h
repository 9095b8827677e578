/*
 * host.h
 *	  What this machine and this data directory are called.
 */
#ifndef SNOWFLAKE_HOST_H
#define SNOWFLAKE_HOST_H

/* RFC 1035: 255 octets; Linux: 64 */
#define SNOWFLAKE_HOST_NAME_SIZE	256

extern void snowflake_host_name(char name[SNOWFLAKE_HOST_NAME_SIZE]);
extern bool snowflake_host_mac(uint64 *mac);
extern uint64 snowflake_host_fingerprint(void);

#endif							/* SNOWFLAKE_HOST_H */
