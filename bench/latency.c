/*
 * latency.c
 *	  For bench/latency.pl only: calls a function over and over in this backend and
 *	  measures each call, so that neither the network nor the executor is in it.
 *
 *	  bench_latency(function oid, argument oid, milliseconds integer,
 *					OUT calls bigint, OUT p50, OUT p99, OUT p999, OUT max float8)
 *
 * function: returns bigint; takes nothing (argument 0) or one oid, as nextval does.
 * 0: nothing is called, which shows what the clock and the scheduler add.  Times are in
 * nanoseconds.  A time is counted in a bucket, 1.6 % wide and at least 1 ns.
 */
#include "postgres.h"

#include <math.h>
#include <time.h>

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_latency);

/* Up to this, a bucket for each nanosecond; then so many halves of it for each power of 2. */
#define EXACT		128
#define PER_POWER	(EXACT / 2)
#define NUM_BUCKETS	(EXACT + 57 * PER_POWER)

/* The clock is asked for the end, and interrupts are looked for, once in so many calls. */
#define CALLS_AT_ONCE	1000

static inline uint64
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64) now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int
bucket_of(uint64 ns)
{
	int			shift;

	if (ns < EXACT)
		return (int) ns;
	shift = pg_leftmost_one_pos64(ns) - 6;
	return EXACT + (shift - 1) * PER_POWER + (int) (ns >> shift) - PER_POWER;
}

/* The middle of a bucket. */
static double
bucket_ns(int bucket)
{
	int			shift;

	if (bucket < EXACT)
		return bucket;
	shift = (bucket - EXACT) / PER_POWER + 1;
	return ldexp((bucket - EXACT) % PER_POWER + PER_POWER + 0.5, shift);
}

static double
quantile(const uint64 *buckets, uint64 calls, double part)
{
	uint64		below = 0;

	for (int i = 0; i < NUM_BUCKETS; i++)
	{
		below += buckets[i];
		if (below >= calls * part)
			return bucket_ns(i);
	}
	elog(ERROR, "no calls were counted");
}

Datum
bench_latency(PG_FUNCTION_ARGS)
{
	Oid			function = PG_GETARG_OID(0);
	bool		has_argument = OidIsValid(PG_GETARG_OID(1));
	uint64		end = now_ns() + (uint64) PG_GETARG_INT32(2) * 1000000;
	uint64	   *buckets = palloc0(NUM_BUCKETS * sizeof(uint64));
	uint64		calls = 0,
				longest = 0;
	FmgrInfo	flinfo;
	TupleDesc	result;
	Datum		values[5];
	bool		nulls[5] = {false};

	LOCAL_FCINFO(call, 1);

	if (get_call_result_type(fcinfo, NULL, &result) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (OidIsValid(function))
		fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*call, &flinfo, has_argument ? 1 : 0, InvalidOid, NULL, NULL);
	call->args[0].value = ObjectIdGetDatum(PG_GETARG_OID(1));
	call->args[0].isnull = false;

	while (now_ns() < end)
	{
		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < CALLS_AT_ONCE; i++)
		{
			uint64		before = now_ns();
			uint64		took;

			if (OidIsValid(function))
				(void) FunctionCallInvoke(call);
			took = now_ns() - before;
			buckets[bucket_of(took)]++;
			longest = Max(longest, took);
		}
		calls += CALLS_AT_ONCE;
	}

	values[0] = Int64GetDatum((int64) calls);
	values[1] = Float8GetDatum(quantile(buckets, calls, 0.5));
	values[2] = Float8GetDatum(quantile(buckets, calls, 0.99));
	values[3] = Float8GetDatum(quantile(buckets, calls, 0.999));
	values[4] = Float8GetDatum((double) longest);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(result), values, nulls)));
}
