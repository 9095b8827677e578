/*
 * oldest.h
 *	  Refuses PostgreSQL majors that are too old, before anything else can
 *	  fail.
 *
 * The Makefile has the compiler read this ahead of each file, whose headers
 * may not be there in an older major, and pg_config.h of the server's headers
 * before it.  (Debian has another pg_config.h, of libpq, in a directory that
 * is searched first.)
 */
#ifndef SNOWFLAKE_OLDEST_H
#define SNOWFLAKE_OLDEST_H

#if PG_VERSION_NUM < 150000
#error "snowflake needs PostgreSQL 15 or newer"
#endif

#endif							/* SNOWFLAKE_OLDEST_H */
