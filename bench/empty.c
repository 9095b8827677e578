/*
 * empty.c
 *	  For the benchmarks only: a C function that does nothing, the processor time that the
 *	  session has used, and a place in the program where callgrind can begin and end.
 */
#include "postgres.h"

#include <time.h>

#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_empty);
PG_FUNCTION_INFO_V1(bench_time);
PG_FUNCTION_INFO_V1(bench_run);

/* Of the signature of snowflake_nextval(). */
Datum
bench_empty(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(1);
}

/* Nanoseconds of processor time. */
Datum
bench_time(PG_FUNCTION_ARGS)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	PG_RETURN_INT64(ts.tv_sec * INT64CONST(1000000000) + ts.tv_nsec);
}

/* Runs a query. */
Datum
bench_run(PG_FUNCTION_ARGS)
{
	SPI_connect();
	if (SPI_execute(text_to_cstring(PG_GETARG_TEXT_PP(0)), false, 0) < 0)
		elog(ERROR, "query failed");
	SPI_finish();
	PG_RETURN_VOID();
}
