/*
 * watch.h
 *	  Notices that the own tables are created or dropped.
 */
#ifndef SNOWFLAKE_WATCH_H
#define SNOWFLAKE_WATCH_H

/* For _PG_init. */
extern void snowflake_watch_register(void);

#endif							/* SNOWFLAKE_WATCH_H */
