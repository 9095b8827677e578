/*
 * clock_watch.h
 *	  Notices steps of the clock while the server runs.
 */
#ifndef SNOWFLAKE_CLOCK_WATCH_H
#define SNOWFLAKE_CLOCK_WATCH_H

#include "shmem.h"

extern void snowflake_clock_watch(int64 window);

#endif							/* SNOWFLAKE_CLOCK_WATCH_H */
