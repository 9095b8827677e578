/*
 * coverage.h
 *	  For make coverage, before each source file: a process that leaves by _exit(), as the
 *	  helper's child does, writes its counts, too.
 */
#include <unistd.h>

extern void __gcov_dump(void);

#define _exit(status) (__gcov_dump(), _exit(status))
