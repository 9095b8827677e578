/*
 * layouts.c
 *	  SQL-callable: snowflake_layout() and snowflake_layouts(), which describe
 *	  layouts, and their fields for inner functions.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "functions/argument.h"
#include "layout/fields.h"

PG_FUNCTION_INFO_V1(snowflake_layout);
PG_FUNCTION_INFO_V1(snowflake_layouts);
PG_FUNCTION_INFO_V1(snowflake_layout_fields);

/* JavaScript's Number.MAX_SAFE_INTEGER has this many bits. */
#define JS_SAFE_BITS		53

#define LAYOUT_COLUMNS		8
#define FIELD_COLUMNS		4

/* Columns in the order of the CREATE FUNCTION statements. */
static void
layout_columns(const SnowflakeLayout *layout, Datum *values, bool *nulls)
{
	char		definition[SNOWFLAKE_DEFINITION_SIZE];
	const char *name = snowflake_layout_name(layout);
	int			i = 0;

	snowflake_layout_define(layout, definition);
	nulls[i] = name == NULL;
	values[i++] = name != NULL ? CStringGetTextDatum(name) : (Datum) 0;
	values[i++] = CStringGetTextDatum(definition);
	values[i++] = Int32GetDatum(layout->total_bits);
	values[i++] = snowflake_interval_datum(layout->tick_us);
	values[i++] = TimestampTzGetDatum(layout->epoch);
	values[i++] =
		TimestampTzGetDatum(snowflake_tick_begin(layout, layout->max_tick));
	values[i++] =
		Int64GetDatum((int64) (snowflake_field_max(layout,
												   SNOWFLAKE_SEQUENCE) + 1) *
					  USECS_PER_SEC / layout->tick_us);
	values[i++] = BoolGetDatum(layout->total_bits <= JS_SAFE_BITS);
	Assert(i == LAYOUT_COLUMNS);
}

Datum
snowflake_layout(PG_FUNCTION_ARGS)
{
	Datum		values[LAYOUT_COLUMNS];
	bool		nulls[LAYOUT_COLUMNS] = {false};
	TupleDesc	result;

	if (get_call_result_type(fcinfo, NULL, &result) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");	/* GCOV_EXCL_LINE */
	layout_columns(snowflake_layout_of(fcinfo, 0), values, nulls);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(result), values,
											 nulls));
}

Datum
snowflake_layouts(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < snowflake_num_presets; i++)
	{
		SnowflakeLayout layout;
		Datum		values[LAYOUT_COLUMNS];
		bool		nulls[LAYOUT_COLUMNS] = {false};

		snowflake_layout_parse(snowflake_presets[i].definition, &layout);
		layout_columns(&layout, values, nulls);
		tuplestore_putvalues(result->setResult, result->setDesc, values,
							 nulls);
	}
	return (Datum) 0;
}

/*
 * The lowest bit of a field in the node number, which has the datacenter, worker
 * and clock from high to low; -1 if it is no part of it.
 */
static int
node_shift(const SnowflakeLayout *layout, SnowflakeField field)
{
	int			shift = 0;

	if (field == SNOWFLAKE_TIMESTAMP || field == SNOWFLAKE_SEQUENCE)
		return -1;
	for (int below = SNOWFLAKE_CLOCK; below > (int) field; below--)
		shift += layout->bits[below];
	return shift;
}

/* A row for each field that the layout has. */
Datum
snowflake_layout_fields(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	SnowflakeLayout layout;

	snowflake_layout_parse(text_to_cstring(PG_GETARG_TEXT_PP(0)), &layout);
	InitMaterializedSRF(fcinfo, 0);
	for (int field = 0; field < SNOWFLAKE_NUM_FIELDS; field++)
	{
		int			shift = node_shift(&layout, field);
		Datum		values[FIELD_COLUMNS];
		bool		nulls[FIELD_COLUMNS] = {false};

		if (layout.bits[field] == 0)
			continue;
		values[0] = CStringGetTextDatum(snowflake_field_name(field));
		values[1] = Int32GetDatum(layout.bits[field]);
		values[2] = Int32GetDatum(layout.shift[field]);
		values[3] = Int32GetDatum(shift);
		nulls[3] = shift < 0;
		tuplestore_putvalues(result->setResult, result->setDesc, values,
							 nulls);
	}
	return (Datum) 0;
}
