/*
 * request.h
 *	  The number request: which node numbers the settings ask for, and where.
 */
#ifndef SNOWFLAKE_REQUEST_H
#define SNOWFLAKE_REQUEST_H

#include "problem.h"
#include "registry/protocol.h"

/* How the worker id is given. */
typedef enum SnowflakeWorkerIdFrom
{
	SNOWFLAKE_FROM_REGISTRY,	/* auto */
	SNOWFLAKE_FROM_SETTING,		/* a number */
	SNOWFLAKE_FROM_HOSTNAME,
	SNOWFLAKE_FROM_MAC
} SnowflakeWorkerIdFrom;

/* Filled with zeros first, so that requests compare byte by byte. */
typedef struct SnowflakeNumberRequest
{
	SnowflakeWorkerIdFrom from;
	bool		valid;			/* false: the settings give none, see the
								 * problem */
	bool		fixed;			/* first to last are this server's, one at a
								 * time */
	uint64		first;			/* each of these fits all layouts in use */
	uint64		last;
	char		registry[SNOWFLAKE_REGISTRY_SIZE];	/* empty: the own table */
	SnowflakeProblem problem;
} SnowflakeNumberRequest;

/* RFC 1035: 255 octets; Linux: 64 */
#define SNOWFLAKE_HOST_NAME_SIZE	256

extern void snowflake_host_name(char name[SNOWFLAKE_HOST_NAME_SIZE]);
extern void snowflake_request_read(SnowflakeNumberRequest *request);

#endif							/* SNOWFLAKE_REQUEST_H */
