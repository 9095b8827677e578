/*
 * memcheck.h
 *	  Has AddressSanitizer guard the chunks of PostgreSQL's memory contexts.
 *
 * A server built with USE_VALGRIND tells valgrind by macros of a header of this name which
 * bytes of its blocks are in use: those of a chunk that was asked for, no others (not the rest
 * of the chunk, its header, what is free, pages of buffers that are not pinned).  It finds this one
 * instead, and the sanitizer is told.  Only whether a byte may be touched is known to it, not
 * whether it was ever set.
 */
#ifndef SNOWFLAKE_MEMCHECK_H
#define SNOWFLAKE_MEMCHECK_H

#include <sanitizer/asan_interface.h>

#define VALGRIND_MAKE_MEM_NOACCESS(address, size)	__asan_poison_memory_region(address, size)
#define VALGRIND_MAKE_MEM_DEFINED(address, size)	__asan_unpoison_memory_region(address, size)
#define VALGRIND_MAKE_MEM_UNDEFINED(address, size)	__asan_unpoison_memory_region(address, size)

#define VALGRIND_MEMPOOL_ALLOC(pool, address, size)	__asan_unpoison_memory_region(address, size)
#define VALGRIND_MEMPOOL_CHANGE(pool, from, to, size)	__asan_unpoison_memory_region(to, size)

/* The server wipes freed chunks, which ends in NOACCESS. */
#define VALGRIND_MEMPOOL_FREE(pool, address)		((void) 0)

#define VALGRIND_CREATE_MEMPOOL(pool, redzone, zeroed)	((void) 0)
#define VALGRIND_DESTROY_MEMPOOL(pool)				((void) 0)
#define VALGRIND_CHECK_MEM_IS_DEFINED(address, size)	((void) 0)

#endif							/* SNOWFLAKE_MEMCHECK_H */
