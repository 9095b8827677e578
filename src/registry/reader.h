/*
 * reader.h
 *	  Sessions read the leases on record, wherever their tables are.
 */
#ifndef SNOWFLAKE_READER_H
#define SNOWFLAKE_READER_H

#include "registry/protocol.h"

/* Takes a page: what snowflake.list_leases() has returned. */
typedef void (*SnowflakePageTaker) (const SnowflakeRow *page, void *arg);

/* For any session; the library must be preloaded. */
extern bool snowflake_leases_read(bool another, SnowflakePageTaker take,
								  void *arg, SnowflakeProblem *problem);

extern PGDLLEXPORT void snowflake_reader_main(Datum arg);

#endif							/* SNOWFLAKE_READER_H */
