/*
 * log.h
 *	  The log of a writer: what it asked for, when, and which ids it received.
 *
 * A log is a sequence of records, each followed by its runs, in the byte order of the
 * machine.  A record is written by one write(2), after its statement has ended; so only
 * the last one of a log can be incomplete.
 *
 * real is CLOCK_REALTIME in microseconds since 1970, mono is CLOCK_MONOTONIC in
 * microseconds.  sent is taken before the statement is sent, received after its last row
 * has arrived or its failure was noticed.
 */
#ifndef LOG_H
#define LOG_H

#include <stdint.h>

#define LOG_MAGIC	0x676f4c53

/* The connection was lost in the statement; the server could not be connected to. */
#define LOG_CONNECTION_LOST		"08006"
#define LOG_CANNOT_CONNECT		"08001"

/* The ids first, first + step, ..., count of them, in the order received. */
typedef struct LogRun
{
	int64_t		first;
	uint32_t	count;
	uint32_t	unused;
} LogRun;

typedef struct LogRecord
{
	uint32_t	magic;
	uint32_t	nruns;
	int64_t		sent_real;
	int64_t		received_real;
	int64_t		sent_mono;
	int64_t		received_mono;
	uint64_t	ids;			/* in all runs */
	char		sqlstate[8];	/* zero padded; empty: the statement succeeded */
	LogRun		runs[];
} LogRecord;

_Static_assert(sizeof(LogRun) == 16 && sizeof(LogRecord) == 56, "records have no padding");

#endif							/* LOG_H */
