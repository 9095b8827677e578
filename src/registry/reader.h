/*
 * reader.h
 *	  Sessions read the leases on record, wherever their tables are.
 */
#ifndef SNOWFLAKE_READER_H
#define SNOWFLAKE_READER_H

#include "registry/protocol.h"

/* What a page has, by its columns. */
typedef enum SnowflakePageColumn
{
	SNOWFLAKE_PAGE_INCARNATION, /* of the registry */
	SNOWFLAKE_PAGE_USES,		/* its cluster: own, another, or null */
	SNOWFLAKE_PAGE_USES_INCARNATION,
	SNOWFLAKE_PAGE_NODE_NUMBERS,	/* arrays, as jsonb writes them */
	SNOWFLAKE_PAGE_LAUNCHED,
	SNOWFLAKE_PAGE_STARTS,
	SNOWFLAKE_PAGE_ENDS,
	SNOWFLAKE_PAGE_NEXT_NUMBER, /* null: it is the last page */
	SNOWFLAKE_PAGE_NEXT_UNTIL
} SnowflakePageColumn;

/* Takes a page: what snowflake.list_leases() has returned. */
typedef void (*SnowflakePageTaker) (const SnowflakeRow *page, void *arg);

/* For any session; for another registry the library must be preloaded. */
extern bool snowflake_leases_read(bool another, SnowflakePageTaker take,
								  void *arg, SnowflakeProblem *problem);

extern PGDLLEXPORT void snowflake_reader_main(Datum arg);

#endif							/* SNOWFLAKE_READER_H */
