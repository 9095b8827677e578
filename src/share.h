/*
 * share.h
 *	  Which share of the backfilled ids is this database's.
 */
#ifndef SNOWFLAKE_SHARE_H
#define SNOWFLAKE_SHARE_H

extern PGDLLEXPORT void snowflake_share_worker_main(Datum arg);

#endif							/* SNOWFLAKE_SHARE_H */
