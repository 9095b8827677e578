/*
 * backfill.c
 *	  Ids for old rows: a window function that gives the rows of a query ids in
 *	  order of age.
 *
 * A place is a tick and a sequence, read as one number: tick * 2^sequence bits
 * + sequence.  Each id has the greatest node number of its layout and a place:
 *
 *	* The greatest node number is never leased, so no issued id of the layout
 *	  is equal.
 *	* A row takes the first place that is after the place of the row before it,
 *	  not before the tick that contains its created_at, and whose remainder
 *	  modulo parts is part.  So the ids of a query are distinct, and increase
 *	  from row to row; and queries with the same layout and parts but another
 *	  part have other ids.
 *	* Rows come in order of created_at: an older row after a younger one would
 *	  get the greater id, so that is an error.
 *	* The last place lives as long as the query does (fn_extra), not as long as
 *	  a partition.  A second partition is an error: it comes from PARTITION BY,
 *	  whose rows are not in order of age, or from a plan that computes the
 *	  window again (as the inner side of a nested loop, say), which would give
 *	  a row a second id.
 *
 * There is no table, no lock and no shared memory, and the clock is not read:
 * ids follow from the rows and the arguments alone.  May be called by any
 * backend, on a standby and without preloading.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "windowapi.h"

#include "layout/fields.h"

#define TIMES_HINT \
	"Give the first or last of these times for such rows, as with greatest() or least()."

PG_FUNCTION_INFO_V1(snowflake_backfill_id);

/*
 * The arguments of a row.  Those that the call does not have: NULL, 0 and 1.
 */
typedef struct Arguments
{
	TimestampTz created_at;
	const char *layout;
	int32		part;
	int32		parts;
} Arguments;

/* What lives as long as the query. */
typedef struct Backfill
{
	bool		begun;			/* all that follows is set */
	Arguments	last;			/* of the row before; layout is our own copy */
	SnowflakeLayout layout;
	uint64		next_place;		/* the first one after all that are taken */
} Backfill;

/*
 * The state of the query; refuses a second partition, whose memory is new and
 * zero.
 */
static Backfill *
query_state(FunctionCallInfo fcinfo, WindowObject window)
{
	bool	   *in_partition =
	WinGetPartitionLocalMemory(window, sizeof(bool));

	if (*in_partition)
		return fcinfo->flinfo->fn_extra;
	if (fcinfo->flinfo->fn_extra != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_WINDOWING_ERROR),
				 errmsg("snowflake_backfill_id() was called for a second partition or pass"),
				 errdetail("Ids are unique and in order of age within one pass over one window without partitions."),
				 errhint("Leave out PARTITION BY. If there is none, the plan computes the window more than once: put it into WITH ... AS MATERIALIZED.")));
	*in_partition = true;
	fcinfo->flinfo->fn_extra =
		MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(Backfill));
	return fcinfo->flinfo->fn_extra;
}

/*
 * Reads the arguments of the current row; false if one is NULL.  The executor
 * ignores that a window function is STRICT.
 */
static bool
read_arguments(FunctionCallInfo fcinfo, WindowObject window, Arguments *row)
{
	Datum		values[4] = {0, 0, Int32GetDatum(0), Int32GetDatum(1)};

	for (int i = 0; i < PG_NARGS(); i++)
	{
		bool		isnull;

		values[i] = WinGetFuncArgCurrent(window, i, &isnull);
		if (isnull)
			return false;
	}
	row->created_at = DatumGetTimestampTz(values[0]);
	row->layout = PG_NARGS() > 1 ? TextDatumGetCString(values[1]) : NULL;
	row->part = DatumGetInt32(values[2]);
	row->parts = DatumGetInt32(values[3]);
	return true;
}

/* Every part must have a place in each tick, or 22023. */
static void
check_parts(const SnowflakeLayout *layout, const Arguments *row)
{
	uint64		max_parts = snowflake_field_max(layout, SNOWFLAKE_SEQUENCE) +
	1;

	if (row->parts < 1 || (uint64) row->parts > max_parts)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ids of layout \"%s\" cannot be divided into %d parts",
						snowflake_layout_label(layout), row->parts),
				 errdetail("A node number has " UINT64_FORMAT " ids in a tick, so parts is from 1 to " UINT64_FORMAT ".",
						   max_parts, max_parts),
				 errhint("Give fewer parts.")));
	if (row->part < 0 || row->part >= row->parts)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there is no part %d of %d", row->part, row->parts),
				 errdetail("Parts are numbered from 0 to %d.", row->parts - 1),
				 errhint("Give each query that makes ids for old rows another part of the same number of parts.")));
}

/* The first row with all arguments: checks those that stay, and keeps them. */
static void
begin_query(FunctionCallInfo fcinfo, Backfill *state, const Arguments *row)
{
	if (row->layout == NULL)
		state->layout = *snowflake_default_layout();
	else
		snowflake_layout_parse(row->layout, &state->layout);
	snowflake_check_issuable(&state->layout);
	check_parts(&state->layout, row);

	state->last = *row;
	if (row->layout != NULL)
		state->last.layout = MemoryContextStrdup(fcinfo->flinfo->fn_mcxt, row->layout);
	state->begun = true;
}

/*
 * A later row: the same but for created_at, which is not before that of the
 * last one; or 22023.
 */
static void
check_row(const Backfill *state, const Arguments *row)
{
	const Arguments *last = &state->last;

	if (row->part != last->part || row->parts != last->parts ||
		(row->layout != NULL && strcmp(row->layout, last->layout) != 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("arguments of snowflake_backfill_id() change within the query"),
				 errdetail("Only created_at may differ from row to row."),
				 errhint("Use a query of its own for each layout and part.")));
	if (row->created_at < last->created_at)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("created_at %s comes after %s",
						pstrdup(timestamptz_to_str(row->created_at)),
						pstrdup(timestamptz_to_str(last->created_at))),
				 errdetail("Ids are made in order of age, the oldest row first."),
				 errhint("Use OVER (ORDER BY created_at, key).")));
}

/* The id at a place, or 2200H if that is after the last one. */
static int64
id_at(const SnowflakeLayout *layout, uint64 place)
{
	int			bits = layout->bits[SNOWFLAKE_SEQUENCE];
	uint64		tick = place >> bits;

	if (tick > layout->max_tick)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("the timestamp field of layout \"%s\" is full",
						snowflake_layout_label(layout)),
				 errdetail("Its last tick ends at %s.",
						   timestamptz_to_str(snowflake_tick_begin(layout,
																   layout->max_tick + 1))),
				 errhint("Choose a layout with a later end.")));
	return snowflake_id_pack(layout, tick, snowflake_node_max(layout),
							 place & snowflake_low_bits(bits));
}

/* The id of a row that was checked, whose place is taken from then on. */
static int64
next_id(Backfill *state, const Arguments *row)
{
	const SnowflakeLayout *layout = &state->layout;
	uint64		parts = (uint64) row->parts;
	uint64		part = (uint64) row->part;
	uint64		place;
	int64		id;

	place = Max(state->next_place,
				snowflake_check_tick(layout, row->created_at, TIMES_HINT) <<
				layout->bits[SNOWFLAKE_SEQUENCE]);
	/* below 2^63, so that the sum does not overflow */
	place += (part + parts - place % parts) % parts;
	id = id_at(layout, place);
	state->next_place = place + 1;
	state->last.created_at = row->created_at;
	return id;
}

/* The forms with one, two and four arguments. */
Datum
snowflake_backfill_id(PG_FUNCTION_ARGS)
{
	WindowObject window = PG_WINDOW_OBJECT();
	Backfill   *state;
	Arguments	row;

	/* the grammar sees to that, but not for the function of an operator */
	if (!WindowObjectIsValid(window))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("window function snowflake_backfill_id requires an OVER clause")));

	state = query_state(fcinfo, window);
	/* the rows before are not read again, and need not be kept */
	WinSetMarkPosition(window, WinGetCurrentPosition(window));
	if (!read_arguments(fcinfo, window, &row))
		PG_RETURN_NULL();
	if (state->begun)
		check_row(state, &row);
	else
		begin_query(fcinfo, state, &row);
	PG_RETURN_INT64(next_id(state, &row));
}
