/*
 * nextval.c
 *	  SQL-callable: snowflake_nextval(), which is snowflake_next_id() too,
 *	  snowflake_nextval_batch() and snowflake_settled_id(), each with a layout as
 *	  its last argument or without, by the server's.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"

#include "functions/argument.h"
#include "ids/generator.h"
#include "ids/settled.h"
#include "layout/fields.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(snowflake_nextval);
PG_FUNCTION_INFO_V1(snowflake_nextval_layout);
PG_FUNCTION_INFO_V1(snowflake_nextval_batch);
PG_FUNCTION_INFO_V1(snowflake_settled_id);

Datum
snowflake_nextval(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_issue(snowflake_default_generator()));
}

/* The call site keeps the generator. */
Datum
snowflake_nextval_layout(PG_FUNCTION_ARGS)
{
	SnowflakeCallSite *site = snowflake_layout_argument(fcinfo, 0);

	if (unlikely(site->kept == NULL))
		site->kept = snowflake_generator_of(&site->layout);
	PG_RETURN_INT64(snowflake_issue(site->kept));
}

/* Raises 25006 and 25001 where no reader can use it, 55000 while it is not known. */
Datum
snowflake_settled_id(PG_FUNCTION_ARGS)
{
	SnowflakeGenerator *g = PG_NARGS() > 0 ?
	snowflake_generator_of(&snowflake_layout_argument(fcinfo, 0)->layout) :
	snowflake_default_generator();
	SnowflakeSlot *slot = snowflake_generator_slot(g);
	uint64		before;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("the settled id is not known during recovery"),
				 errhint("Ask the primary, and read there.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("the settled id is of no use at isolation level %s",
						XactIsoLevel == XACT_REPEATABLE_READ ? "repeatable read" : "serializable"),
				 errdetail("The next statement would not see rows that were committed since the transaction began."),
				 errhint("Read at isolation level read committed.")));
	before = snowflake_settled_before(slot, snowflake_catch_up(g));
	PG_RETURN_INT64((int64) (before << slot->layout.shift[SNOWFLAKE_TIMESTAMP]) - 1);
}

/* What is left of a batch. */
typedef struct Batch
{
	SnowflakeGenerator *generator;
	int64		remaining;		/* ids not returned yet */
	int64		next;			/* of the part at hand */
	SnowflakePart part;			/* its count: how many of it are left */
} Batch;

/* Ids are issued part by part, as they are fetched. */
Datum
snowflake_nextval_batch(PG_FUNCTION_ARGS)
{
	FuncCallContext *context;
	Batch	   *batch;
	int64		id;

	if (SRF_IS_FIRSTCALL())
	{
		/* fn_extra is the batch's: no call site is kept */
		SnowflakeLayout layout;
		SnowflakeGenerator *generator;

		if (PG_NARGS() > 1)
			snowflake_layout_parse(text_to_cstring(PG_GETARG_TEXT_PP(1)), &layout);
		generator = PG_NARGS() > 1 ? snowflake_generator_of(&layout) :
			snowflake_default_generator();
		snowflake_check_batch(generator, PG_GETARG_INT32(0));
		context = SRF_FIRSTCALL_INIT();
		batch = MemoryContextAllocZero(context->multi_call_memory_ctx,
									   sizeof(Batch));
		batch->generator = generator;
		batch->remaining = PG_GETARG_INT32(0);
		context->user_fctx = batch;
	}

	context = SRF_PERCALL_SETUP();
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
