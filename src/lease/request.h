/*
 * request.h
 *	  The number request: which node numbers the settings ask for, and where.
 */
#ifndef SNOWFLAKE_REQUEST_H
#define SNOWFLAKE_REQUEST_H

#include "error.h"
#include "registry/protocol.h"

/* Filled with zeros first, so that requests compare byte by byte. */
typedef struct SnowflakeNumberRequest
{
	bool		valid;			/* false: the settings give none, see the
								 * problem */
	bool		fixed;			/* first to last are this server's, one at a
								 * time */
	uint64		first;			/* each of these fits all layouts in use */
	uint64		last;
	char		registry[SNOWFLAKE_REGISTRY_SIZE];	/* empty: the own tables */
	SnowflakeProblem problem;
} SnowflakeNumberRequest;

extern void snowflake_request_read(SnowflakeNumberRequest *request);

#endif							/* SNOWFLAKE_REQUEST_H */
