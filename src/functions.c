/*
 * functions.c
 *	  The SQL-callable functions: arguments in, results out, no logic.
 *
 * Each function of the parse side has two forms: with a layout as its last
 * but optional arguments (immutable), and without, by the server's (stable).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "generator.h"
#include "parts.h"

PG_FUNCTION_INFO_V1(snowflake_nextval);
PG_FUNCTION_INFO_V1(snowflake_nextval_batch);
PG_FUNCTION_INFO_V1(snowflake_nextval_layout);
PG_FUNCTION_INFO_V1(snowflake_nextval_batch_layout);
PG_FUNCTION_INFO_V1(snowflake_parse);
PG_FUNCTION_INFO_V1(snowflake_parse_layout);
PG_FUNCTION_INFO_V1(snowflake_timestamp);
PG_FUNCTION_INFO_V1(snowflake_timestamp_layout);
PG_FUNCTION_INFO_V1(snowflake_min_id);
PG_FUNCTION_INFO_V1(snowflake_min_id_layout);
PG_FUNCTION_INFO_V1(snowflake_max_id);
PG_FUNCTION_INFO_V1(snowflake_max_id_layout);
PG_FUNCTION_INFO_V1(snowflake_compose);
PG_FUNCTION_INFO_V1(snowflake_compose_layout);

/* What a call site keeps between calls. */
typedef struct CallSite
{
	text	   *given;			/* the last layout argument; or NULL */
	SnowflakeLayout layout;
	SnowflakeGenerator *generator;
	TupleDesc	result;			/* NULL unless the function returns a row */
} CallSite;

static CallSite *
call_site(FunctionCallInfo fcinfo)
{
	if (fcinfo->flinfo->fn_extra == NULL)
		fcinfo->flinfo->fn_extra = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(CallSite));
	return fcinfo->flinfo->fn_extra;
}

/* Whether an argument is the one that was given last. */
static inline bool
is_given(const CallSite *site, const text *value)
{
	return site->given != NULL && VARSIZE_ANY(site->given) == VARSIZE_ANY(value) &&
		memcmp(site->given, value, VARSIZE_ANY(value)) == 0;
}

/* Keeps the argument that the site knows all about from now on. */
static void
keep_given(FunctionCallInfo fcinfo, CallSite *site, const text *value)
{
	site->given = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, VARSIZE_ANY(value));
	memcpy(site->given, value, VARSIZE_ANY(value));
}

static void
forget_given(CallSite *site)
{
	if (site->given != NULL)
		pfree(site->given);
	site->given = NULL;
}

/* The layout given as an argument, read again only when it differs. */
static const SnowflakeLayout *
layout_argument(FunctionCallInfo fcinfo, int argument)
{
	CallSite   *site = call_site(fcinfo);
	text	   *definition = PG_GETARG_TEXT_PP(argument);

	if (!is_given(site, definition))
	{
		forget_given(site);
		snowflake_layout_parse(text_to_cstring(definition), &site->layout);
		keep_given(fcinfo, site, definition);
	}
	return &site->layout;
}

/* The generator of the layout given as an argument, looked up again only when it differs. */
static SnowflakeGenerator *
generator_argument(FunctionCallInfo fcinfo, int argument)
{
	CallSite   *site = call_site(fcinfo);
	text	   *definition = PG_GETARG_TEXT_PP(argument);

	if (unlikely(!is_given(site, definition)))
	{
		forget_given(site);
		snowflake_layout_parse(text_to_cstring(definition), &site->layout);
		site->generator = snowflake_generator_of(&site->layout);
		keep_given(fcinfo, site, definition);
	}
	return site->generator;
}

/* The row type of the result. */
static TupleDesc
result_type(FunctionCallInfo fcinfo)
{
	CallSite   *site = call_site(fcinfo);

	if (site->result == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		if (get_call_result_type(fcinfo, NULL, &site->result) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");	/* GCOV_EXCL_LINE */
		site->result = BlessTupleDesc(site->result);
		MemoryContextSwitchTo(old);
	}
	return site->result;
}

Datum
snowflake_nextval(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_issue(snowflake_default_generator()));
}

Datum
snowflake_nextval_layout(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_issue(generator_argument(fcinfo, 0)));
}

/* What is left of a batch. */
typedef struct Batch
{
	SnowflakeGenerator *generator;
	int64		remaining;		/* ids not returned yet */
	int64		next;			/* of the part at hand */
	SnowflakePart part;			/* its count: how many of it are left */
} Batch;

static void
begin_batch(FunctionCallInfo fcinfo, SnowflakeGenerator *generator)
{
	FuncCallContext *context;
	Batch	   *batch;

	snowflake_check_batch(generator, PG_GETARG_INT32(0));
	context = SRF_FIRSTCALL_INIT();
	batch = MemoryContextAllocZero(context->multi_call_memory_ctx, sizeof(Batch));
	batch->generator = generator;
	batch->remaining = PG_GETARG_INT32(0);
	context->user_fctx = batch;
}

/* Ids are issued part by part, as they are fetched. */
static Datum
next_of_batch(FunctionCallInfo fcinfo)
{
	FuncCallContext *context = SRF_PERCALL_SETUP();
	Batch	   *batch;
	int64		id;

	batch = context->user_fctx;
	if (batch->remaining == 0)
		SRF_RETURN_DONE(context);
	if (batch->part.count == 0)
	{
		snowflake_issue_part(batch->generator, batch->remaining, &batch->part);
		batch->next = batch->part.first;
	}
	id = batch->next;
	batch->next += batch->part.step;
	batch->part.count--;
	batch->remaining--;
	SRF_RETURN_NEXT(context, Int64GetDatum(id));
}

Datum
snowflake_nextval_batch(PG_FUNCTION_ARGS)
{
	if (SRF_IS_FIRSTCALL())
		begin_batch(fcinfo, snowflake_default_generator());
	return next_of_batch(fcinfo);
}

Datum
snowflake_nextval_batch_layout(PG_FUNCTION_ARGS)
{
	if (SRF_IS_FIRSTCALL())
	{
		/* fn_extra is the batch's: no call site is kept */
		SnowflakeLayout layout;

		snowflake_layout_parse(text_to_cstring(PG_GETARG_TEXT_PP(1)), &layout);
		begin_batch(fcinfo, snowflake_generator_of(&layout));
	}
	return next_of_batch(fcinfo);
}

static Datum
parse(FunctionCallInfo fcinfo, const SnowflakeLayout *layout)
{
	int64		id = PG_GETARG_INT64(0);
	SnowflakeParts parts;
	Datum		values[5];
	bool		nulls[5] = {false};

	snowflake_check_id(layout, id);
	parts = snowflake_id_unpack(layout, id);
	values[0] = TimestampTzGetDatum(snowflake_tick_begin(layout, parts.tick));
	values[1] = Int32GetDatum((int32) parts.datacenter);
	values[2] = Int32GetDatum((int32) parts.worker);
	values[3] = Int32GetDatum((int32) parts.clock);
	values[4] = Int32GetDatum((int32) parts.sequence);
	nulls[1] = layout->bits[SNOWFLAKE_DATACENTER] == 0;
	nulls[2] = layout->bits[SNOWFLAKE_WORKER] == 0;
	nulls[3] = layout->bits[SNOWFLAKE_CLOCK] == 0;
	return HeapTupleGetDatum(heap_form_tuple(result_type(fcinfo), values, nulls));
}

Datum
snowflake_parse(PG_FUNCTION_ARGS)
{
	return parse(fcinfo, snowflake_default_layout());
}

Datum
snowflake_parse_layout(PG_FUNCTION_ARGS)
{
	return parse(fcinfo, layout_argument(fcinfo, 1));
}

static TimestampTz
id_timestamp(const SnowflakeLayout *layout, int64 id)
{
	snowflake_check_id(layout, id);
	return snowflake_tick_begin(layout, snowflake_field_get(layout, id, SNOWFLAKE_TIMESTAMP));
}

Datum
snowflake_timestamp(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(id_timestamp(snowflake_default_layout(), PG_GETARG_INT64(0)));
}

Datum
snowflake_timestamp_layout(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(id_timestamp(layout_argument(fcinfo, 1), PG_GETARG_INT64(0)));
}

Datum
snowflake_min_id(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_first_id_at(snowflake_default_layout(), PG_GETARG_TIMESTAMPTZ(0)));
}

Datum
snowflake_min_id_layout(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_first_id_at(layout_argument(fcinfo, 1), PG_GETARG_TIMESTAMPTZ(0)));
}

Datum
snowflake_max_id(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_last_id_at(snowflake_default_layout(), PG_GETARG_TIMESTAMPTZ(0)));
}

Datum
snowflake_max_id_layout(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_last_id_at(layout_argument(fcinfo, 1), PG_GETARG_TIMESTAMPTZ(0)));
}

Datum
snowflake_compose(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_compose_id(snowflake_default_layout(), PG_GETARG_TIMESTAMPTZ(0),
										 PG_GETARG_INT32(3), PG_GETARG_INT32(1),
										 PG_GETARG_INT32(4), PG_GETARG_INT32(2)));
}

Datum
snowflake_compose_layout(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_compose_id(layout_argument(fcinfo, 3), PG_GETARG_TIMESTAMPTZ(0),
										 PG_GETARG_INT32(4), PG_GETARG_INT32(1),
										 PG_GETARG_INT32(5), PG_GETARG_INT32(2)));
}
