/*
 * tables.c
 *	  A twin of the registry's SQL functions: what src/sql/lease.sql and
 *	  src/sql/worker_node.sql do, in plain C.
 *
 * The functions have the names and the order of those in SQL, so that the two
 * can be read side by side; test/t/042_twin.pl runs the same calls on both and
 * compares results, errors and tables.
 *
 * Rows are never deleted, so a row is known by its place.  Beside the rows,
 * SimIndex keeps what SQL has indexes for.  Invariant: every change of a row
 * goes through add_row() or change_row(), which keep the lists in order.
 *
 * A call that fails changes nothing: begin_transaction() keeps the rows of
 * registry and cluster, change_row() the former rows.  Rows are added only
 * after the last check.
 */
#include "postgres.h"

#include "tables.h"

#define NO_ROW		(-1)

#define SECONDS(s)	((s) * USECS_PER_SEC)

/*
 * Where a row stands: the lists of its number, its start and its incarnation,
 * and its layout, as places in the arrays of SimIndex.
 */
typedef struct RowLinks
{
	int32		number;
	int32		later_end;		/* the next ones of the number, by
								 * leased_until */
	int32		earlier_end;
	int32		start;
	int32		before;			/* the row of the start that was added before
								 * this one */
	int32		incarnation;
	int32		newer;			/* the next ones of the incarnation, by
								 * renewed_at */
	int32		older;
	int32		layout;
} RowLinks;

/* A node number that was leased. */
typedef struct UsedNumber
{
	uint64		node_number;
	int32		latest;			/* the row with the greatest leased_until */
	int32		num_open;
} UsedNumber;

typedef struct KnownStart
{
	uint64		start;
	int64		last_call;		/* the greatest of its rows */
	int32		last_row;		/* added last */
	int32		num_open;
} KnownStart;

/* The list has only rows that may have issued ids. */
typedef struct KnownIncarnation
{
	uint64		incarnation;
	int32		newest;			/* the row with the greatest renewed_at */
} KnownIncarnation;

typedef struct KnownLayout
{
	const SnowflakeLayout *layout;
	bool		known;			/* whether latest is up to date */
	TimestampTz latest;			/* the greatest leased_until of its rows that
								 * may have issued ids; DT_NOBEGIN: none */
} KnownLayout;

struct SimIndex
{
	RowLinks   *links;			/* as many as there are rows */
	int			max_links;

	UsedNumber *numbers;
	int			num_numbers;
	int			max_numbers;
	int32	   *order;			/* places in numbers, by node_number */
	int			max_order;

	KnownStart *starts;
	int			num_starts;
	int			max_starts;

	KnownIncarnation *incarnations;
	int			num_incarnations;
	int			max_incarnations;

	KnownLayout *layouts;
	int			num_layouts;
	int			max_layouts;

	/*
	 * Hash tables, open addressing: a place in rows or starts plus one, 0 is
	 * empty.  Both have num_slots, a power of two.
	 */
	int32	   *row_of_token;
	int32	   *start_of_id;
	int			num_slots;

	/* the rows that the transaction has changed, as they were; not copied */
	struct FormerRow *former;
	int			num_former;
	int			max_former;
};

typedef struct FormerRow
{
	int32		row;
	SimRow		was;
} FormerRow;

/* What a transaction that fails puts back. */
typedef struct Transaction
{
	SimTables  *tables;
	uint64		incarnation;
	uint32		database;
	TimestampTz created_at;
	int			generation;
	int			num_counted;
	uint64		system_identifier;
	TimestampTz starts_at;
	SimUses		uses;
	uint64		uses_incarnation;
} Transaction;

/*
 * Memory
 */

/* An array with room for so many elements. */
static void *
make_room(void *array, int *max, int needed, size_t size)
{
	if (needed <= *max)
		return array;
	*max = Max(needed, Max(*max * 2, 16));
	array = realloc(array, *max * size);
	if (array == NULL)
		abort();
	return array;
}

static void *
copy_array(void *to, int *max, const void *from, int num, size_t size)
{
	to = make_room(to, max, num, size);
	if (num > 0)
		memcpy(to, from, num * size);
	return to;
}

static void
free_index(SimIndex *index)
{
	if (index == NULL)
		return;
	free(index->links);
	free(index->numbers);
	free(index->order);
	free(index->starts);
	free(index->incarnations);
	free(index->layouts);
	free(index->row_of_token);
	free(index->start_of_id);
	free(index->former);
	free(index);
}

/* Fills tables that hold nothing; there is no extension. */
void
sim_tables_init(SimTables *tables, uint32 oid)
{
	memset(tables, 0, sizeof(*tables));
	tables->oid = oid;
}

void
sim_tables_free(SimTables *tables)
{
	free(tables->rows);
	free_index(tables->index);
	sim_tables_init(tables, tables->oid);
}

static void
resize_slots(SimIndex *index, int num_slots)
{
	free(index->row_of_token);
	free(index->start_of_id);
	index->num_slots = num_slots;
	index->row_of_token = calloc(num_slots, sizeof(int32));
	index->start_of_id = calloc(num_slots, sizeof(int32));
	if (index->row_of_token == NULL || index->start_of_id == NULL)
		abort();
}

static void
copy_index(SimIndex *to, const SimIndex *from, int num_rows)
{
	to->links = copy_array(to->links, &to->max_links, from->links, num_rows,
						   sizeof(RowLinks));
	to->numbers = copy_array(to->numbers, &to->max_numbers, from->numbers,
							 from->num_numbers, sizeof(UsedNumber));
	to->order = copy_array(to->order, &to->max_order, from->order,
						   from->num_numbers, sizeof(int32));
	to->starts = copy_array(to->starts, &to->max_starts, from->starts,
							from->num_starts, sizeof(KnownStart));
	to->incarnations = copy_array(to->incarnations, &to->max_incarnations,
								  from->incarnations, from->num_incarnations,
								  sizeof(KnownIncarnation));
	to->layouts = copy_array(to->layouts, &to->max_layouts, from->layouts,
							 from->num_layouts, sizeof(KnownLayout));
	to->num_numbers = from->num_numbers;
	to->num_starts = from->num_starts;
	to->num_incarnations = from->num_incarnations;
	to->num_layouts = from->num_layouts;
	if (to->num_slots != from->num_slots)
		resize_slots(to, from->num_slots);
	memcpy(to->row_of_token, from->row_of_token,
		   from->num_slots * sizeof(int32));
	memcpy(to->start_of_id, from->start_of_id,
		   from->num_slots * sizeof(int32));
}

void
sim_tables_copy(SimTables *to, const SimTables *from)
{
	SimTables	had = *to;

	if (to == from)
		return;
	*to = *from;
	to->rows = copy_array(had.rows, &had.max_rows, from->rows, from->num_rows,
						  sizeof(SimRow));
	to->max_rows = had.max_rows;
	to->index = had.index;
	if (from->index == NULL)
	{
		free_index(to->index);
		to->index = NULL;
		return;
	}
	if (to->index == NULL && (to->index = calloc(1, sizeof(SimIndex))) == NULL)
		abort();
	copy_index(to->index, from->index, from->num_rows);
}

/*
 * Rows and their places
 */

static uint32
slot_of(const SimIndex *index, uint64 id)
{
	id ^= id >> 32;
	id *= UINT64CONST(0x9E3779B97F4A7C15);
	return (uint32) (id >> 32) & (uint32) (index->num_slots - 1);
}

/* The place in row_of_token where the token is, or would be. */
static int32 *
find_token(const SimTables *tables, uint64 token)
{
	const SimIndex *index = tables->index;
	uint32		slot = slot_of(index, token);

	while (index->row_of_token[slot] != 0 &&
		   tables->rows[index->row_of_token[slot] - 1].token != token)
		slot = (slot + 1) & (uint32) (index->num_slots - 1);
	return &index->row_of_token[slot];
}

static int32 *
find_start(const SimIndex *index, uint64 start)
{
	uint32		slot = slot_of(index, start);

	while (index->start_of_id[slot] != 0 &&
		   index->starts[index->start_of_id[slot] - 1].start != start)
		slot = (slot + 1) & (uint32) (index->num_slots - 1);
	return &index->start_of_id[slot];
}

/* Its rows; NULL if there is no row. */
static KnownStart *
start_of(const SimTables *tables, uint64 start)
{
	const SimIndex *index = tables->index;
	int32		place = index == NULL ? 0 : *find_start(index, start);

	return place == 0 ? NULL : &index->starts[place - 1];
}

/* How many of the numbers that were leased are lower. */
static int
count_lower(const SimIndex *index, uint64 node_number)
{
	int			low = 0;
	int			high = index == NULL ? 0 : index->num_numbers;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (index->numbers[index->order[middle]].node_number < node_number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The n-th number that was leased, from the lowest. */
static UsedNumber *
nth_number(const SimIndex *index, int n)
{
	return &index->numbers[index->order[n]];
}

/* NULL if it was never leased. */
static UsedNumber *
find_number(const SimTables *tables, uint64 node_number)
{
	const SimIndex *index = tables->index;
	int			n = count_lower(index, node_number);

	if (index == NULL || n == index->num_numbers ||
		nth_number(index, n)->node_number != node_number)
		return NULL;
	return nth_number(index, n);
}

/* The greatest leased_until of a number. */
static TimestampTz
greatest_end(const SimTables *tables, const UsedNumber *number)
{
	return tables->rows[number->latest].leased_until;
}

/* A lease that was closed where it starts issued nothing. */
static bool
may_have_issued(const SimRow *row)
{
	return !row->closed || row->leased_until > row->starts_at;
}

static void
insert_by_end(SimTables *tables, int32 row)
{
	RowLinks   *links = tables->index->links;
	UsedNumber *number = &tables->index->numbers[links[row].number];
	int32		later = NO_ROW;
	int32		earlier = number->latest;

	while (earlier != NO_ROW && tables->rows[earlier].leased_until >
		   tables->rows[row].leased_until)
	{
		later = earlier;
		earlier = links[earlier].earlier_end;
	}
	links[row].later_end = later;
	links[row].earlier_end = earlier;
	if (earlier != NO_ROW)
		links[earlier].later_end = row;
	if (later != NO_ROW)
		links[later].earlier_end = row;
	else
		number->latest = row;
}

static void
remove_by_end(SimTables *tables, int32 row)
{
	RowLinks   *links = tables->index->links;
	int32		later = links[row].later_end;
	int32		earlier = links[row].earlier_end;

	if (earlier != NO_ROW)
		links[earlier].later_end = later;
	if (later != NO_ROW)
		links[later].earlier_end = earlier;
	else
		tables->index->numbers[links[row].number].latest = earlier;
}

static void
insert_by_renewal(SimTables *tables, int32 row)
{
	RowLinks   *links = tables->index->links;
	KnownIncarnation *incarnation =
	&tables->index->incarnations[links[row].incarnation];
	int32		newer = NO_ROW;
	int32		older = incarnation->newest;

	while (older != NO_ROW && tables->rows[older].renewed_at >=
		   tables->rows[row].renewed_at)
	{
		newer = older;
		older = links[older].older;
	}
	links[row].newer = newer;
	links[row].older = older;
	if (older != NO_ROW)
		links[older].newer = row;
	if (newer != NO_ROW)
		links[newer].older = row;
	else
		incarnation->newest = row;
}

static void
remove_by_renewal(SimTables *tables, int32 row)
{
	RowLinks   *links = tables->index->links;
	int32		newer = links[row].newer;
	int32		older = links[row].older;

	if (older != NO_ROW)
		links[older].newer = newer;
	if (newer != NO_ROW)
		links[newer].older = older;
	else
		tables->index->incarnations[links[row].incarnation].newest = older;
}

/* Makes the row part of all that is counted and sorted. */
static void
enter_row(SimTables *tables, int32 row)
{
	SimIndex   *index = tables->index;
	const SimRow *r = &tables->rows[row];
	const RowLinks *links = &index->links[row];
	KnownLayout *layout = &index->layouts[links->layout];

	insert_by_end(tables, row);
	if (!r->closed)
	{
		index->numbers[links->number].num_open++;
		index->starts[links->start].num_open++;
	}
	if (may_have_issued(r))
	{
		insert_by_renewal(tables, row);
		layout->latest = Max(layout->latest, r->leased_until);
	}
}

/* The opposite. */
static void
leave_row(SimTables *tables, int32 row)
{
	SimIndex   *index = tables->index;
	const SimRow *r = &tables->rows[row];
	const RowLinks *links = &index->links[row];
	KnownLayout *layout = &index->layouts[links->layout];

	remove_by_end(tables, row);
	if (!r->closed)
	{
		index->numbers[links->number].num_open--;
		index->starts[links->start].num_open--;
	}
	if (may_have_issued(r))
	{
		remove_by_renewal(tables, row);
		if (layout->latest == r->leased_until)
			layout->known = false;
	}
}

static int32
place_of_number(SimIndex *index, uint64 node_number)
{
	UsedNumber	added = {.node_number = node_number,.latest = NO_ROW};
	int			n = count_lower(index, node_number);

	if (n < index->num_numbers &&
		nth_number(index, n)->node_number == node_number)
		return index->order[n];
	index->numbers = make_room(index->numbers, &index->max_numbers,
							   index->num_numbers + 1, sizeof(UsedNumber));
	index->order = make_room(index->order, &index->max_order,
							 index->num_numbers + 1, sizeof(int32));
	memmove(&index->order[n + 1], &index->order[n],
			(index->num_numbers - n) * sizeof(int32));
	index->order[n] = index->num_numbers;
	index->numbers[index->num_numbers] = added;
	return index->num_numbers++;
}

static int32
place_of_start(SimIndex *index, uint64 start)
{
	KnownStart	added = {.start = start,.last_row = NO_ROW};
	int32	   *place = find_start(index, start);

	if (*place == 0)
	{
		index->starts = make_room(index->starts, &index->max_starts,
								  index->num_starts + 1, sizeof(KnownStart));
		index->starts[index->num_starts] = added;
		*place = ++index->num_starts;
	}
	return *place - 1;
}

static int32
place_of_incarnation(SimIndex *index, uint64 incarnation)
{
	KnownIncarnation added = {.incarnation = incarnation,.newest = NO_ROW};

	for (int i = index->num_incarnations - 1; i >= 0; i--)
		if (index->incarnations[i].incarnation == incarnation)
			return i;
	index->incarnations = make_room(index->incarnations,
									&index->max_incarnations,
									index->num_incarnations + 1,
									sizeof(KnownIncarnation));
	index->incarnations[index->num_incarnations] = added;
	return index->num_incarnations++;
}

static int32
place_of_layout(SimIndex *index, const SnowflakeLayout *layout)
{
	KnownLayout added = {.layout = layout,.known = true,.latest = DT_NOBEGIN};

	for (int i = 0; i < index->num_layouts; i++)
		if (index->layouts[i].layout == layout)
			return i;
	index->layouts = make_room(index->layouts, &index->max_layouts,
							   index->num_layouts + 1, sizeof(KnownLayout));
	index->layouts[index->num_layouts] = added;
	return index->num_layouts++;
}

/* There are half as many rows as slots at most, and so starts. */
static void
make_slots(SimTables *tables)
{
	SimIndex   *index = tables->index;

	if (tables->num_rows * 2 < index->num_slots)
		return;
	resize_slots(index, Max(index->num_slots * 2, 64));
	for (int i = 0; i < tables->num_rows; i++)
		*find_token(tables, tables->rows[i].token) = i + 1;
	for (int i = 0; i < index->num_starts; i++)
		*find_start(index, index->starts[i].start) = i + 1;
}

static void
add_row(SimTables *tables, const SimRow *row)
{
	SimIndex   *index = tables->index;
	int			place = tables->num_rows;
	KnownStart *start;

	make_slots(tables);
	tables->rows = make_room(tables->rows, &tables->max_rows, place + 1,
							 sizeof(SimRow));
	index->links = make_room(index->links, &index->max_links, place + 1,
							 sizeof(RowLinks));
	tables->rows[place] = *row;
	*find_token(tables, row->token) = place + 1;
	tables->num_rows++;

	index->links[place].number = place_of_number(index, row->node_number);
	index->links[place].start = place_of_start(index, row->start);
	index->links[place].incarnation =
		place_of_incarnation(index, row->incarnation);
	index->links[place].layout = place_of_layout(index, row->layout);
	start = &index->starts[index->links[place].start];
	index->links[place].before = start->last_row;
	start->last_row = place;
	start->last_call = Max(start->last_call, row->last_call);
	enter_row(tables, place);
}

/* Without a trace: to put a row back. */
static void
overwrite_row(SimTables *tables, int32 row, const SimRow *to)
{
	leave_row(tables, row);
	tables->rows[row] = *to;
	enter_row(tables, row);
}

/*
 * UPDATE of a row.  Token, start, incarnation, number, layout and the rest of
 * what never changes are the same in both.
 */
static void
change_row(SimTables *tables, int32 row, const SimRow *to)
{
	SimIndex   *index = tables->index;
	KnownStart *start = &index->starts[index->links[row].start];
	FormerRow	added = {.row = row,.was = tables->rows[row]};

	index->former = make_room(index->former, &index->max_former,
							  index->num_former + 1, sizeof(FormerRow));
	index->former[index->num_former++] = added;
	overwrite_row(tables, row, to);
	start->last_call = Max(start->last_call, to->last_call);
}

static void
close_row(SimTables *tables, int32 row, TimestampTz at)
{
	SimRow		to = tables->rows[row];

	to.closed = true;
	to.closed_at = at;
	change_row(tables, row, &to);
}

/* The greatest last_call of a start's rows, after some were put back. */
static void
count_calls(SimTables *tables, KnownStart *start)
{
	start->last_call = 0;
	for (int32 i = start->last_row; i != NO_ROW;
		 i = tables->index->links[i].before)
		start->last_call = Max(start->last_call, tables->rows[i].last_call);
}

/*
 * Transactions
 */

static uint64
new_id(const SimHere *here)
{
	uint64		id;

	while ((id = here->random(here->random_state)) == 0)
		;
	return id;
}

static SimError
lock_registry(SimTables *tables, const SimHere *here)
{
	if (!tables->exists)
		return SIM_NO_TABLE;
	if (!tables->has_registry)
		return SIM_NO_REGISTRY_ROW;
	if (tables->database != tables->oid)
	{
		tables->incarnation = new_id(here);
		tables->database = tables->oid;
		tables->created_at = here->clock;
	}
	return SIM_OK;
}

static SimError
begin_transaction(Transaction *transaction, SimTables *tables,
				  const SimHere *here)
{
	Transaction was = {
		.tables = tables,
		.incarnation = tables->incarnation,
		.database = tables->database,
		.created_at = tables->created_at,
		.generation = tables->generation,
		.num_counted = tables->counted.num_entries,
		.system_identifier = tables->system_identifier,
		.starts_at = tables->starts_at,
		.uses = tables->uses,
		.uses_incarnation = tables->uses_incarnation
	};

	*transaction = was;
	return lock_registry(tables, here);
}

/* Returns the error. */
static SimError
end_transaction(const Transaction *transaction, SimError error)
{
	SimTables  *tables = transaction->tables;
	SimIndex   *index = tables->index;

	if (error != SIM_OK)
	{
		tables->incarnation = transaction->incarnation;
		tables->database = transaction->database;
		tables->created_at = transaction->created_at;
		tables->generation = transaction->generation;
		tables->counted.num_entries = transaction->num_counted;
		tables->system_identifier = transaction->system_identifier;
		tables->starts_at = transaction->starts_at;
		tables->uses = transaction->uses;
		tables->uses_incarnation = transaction->uses_incarnation;
	}
	if (index == NULL)
		return error;
	if (error != SIM_OK && index->num_former > 0)
	{
		/* all are of one start */
		int32		start = index->links[index->former[0].row].start;

		for (int i = index->num_former - 1; i >= 0; i--)
			overwrite_row(tables, index->former[i].row,
						  &index->former[i].was);
		count_calls(tables, &index->starts[start]);
	}
	index->num_former = 0;
	return error;
}

/*
 * CREATE EXTENSION, DROP EXTENSION, restores
 */

void
sim_create_extension(SimTables *tables, const SimHere *here)
{
	if (tables->exists)
		return;
	sim_tables_free(tables);
	tables->exists = true;
	tables->index = calloc(1, sizeof(SimIndex));
	if (tables->index == NULL)
		abort();
	make_slots(tables);
	tables->has_registry = true;
	tables->incarnation = new_id(here);
	tables->database = tables->oid;
	tables->system_identifier = here->system_identifier;
	tables->created_at = here->clock;
	tables->generation = 1;
	tables->starts_at = DT_NOBEGIN;
}

void
sim_drop_extension(SimTables *tables)
{
	sim_tables_free(tables);
}

bool
sim_insert_row(SimTables *tables, const SimRow *row)
{
	if (row->starts_at > row->leased_until ||
		TIMESTAMP_NOT_FINITE(row->leased_until))
		abort();				/* worker_node_span */
	if (*find_token(tables, row->token) != 0)
		return false;
	add_row(tables, row);
	return true;
}

/* keep_cluster() */
bool
sim_insert_cluster(SimTables *tables, SimUses uses, uint64 incarnation)
{
	if (tables->uses != SIM_USES_NOTHING)
		return false;
	tables->uses = uses;
	tables->uses_incarnation = incarnation;
	return true;
}

/*
 * Generations
 */

static bool
is_counted(const SimTables *tables, const SimHistoryEntry *entry)
{
	for (int i = 0; i < tables->counted.num_entries; i++)
		if (tables->counted.entries[i].timeline == entry->timeline &&
			tables->counted.entries[i].switched_at == entry->switched_at)
			return true;
	return false;
}

static SimError
count_generation(SimTables *tables, const SimHistory *timelines,
				 uint64 system_identifier, TimestampTz starts_at)
{
	bool		grows = tables->system_identifier != system_identifier;

	if (timelines == NULL)
		return SIM_PARAMETER;
	tables->system_identifier = system_identifier;
	for (int i = 0; i < timelines->num_entries; i++)
	{
		if (is_counted(tables, &timelines->entries[i]))
			continue;
		if (tables->counted.num_entries == SIM_MAX_HISTORY)
			abort();			/* make it larger */
		tables->counted.entries[tables->counted.num_entries++] =
			timelines->entries[i];
		tables->generation++;
		grows = true;
	}
	if (grows)
		tables->starts_at = Max(tables->starts_at, starts_at);
	return SIM_OK;
}

/* incarnation 0: its own tables */
static void
write_uses(SimTables *tables, uint64 incarnation)
{
	if (tables->uses != SIM_USES_NOTHING &&
		tables->uses_incarnation == incarnation)
		return;
	tables->uses = incarnation == 0 ? SIM_USES_OWN : SIM_USES_REGISTRY;
	tables->uses_incarnation = incarnation;
}

/*
 * Calls of a start
 */

/*
 * Closes an open row of the start.  lease: the one that the call names, as it
 * was, or NULL.
 */
static void
close_by_call(SimTables *tables, const SimHere *here, int32 row, int64 call,
			  const SimRow *lease, TimestampTz named_end)
{
	SimRow		to = tables->rows[row];

	if (to.incarnation != tables->incarnation)
		;						/* stays as it is */
	else if (lease != NULL && to.token == lease->token)
		to.leased_until = Max(to.starts_at, named_end);
	else if (lease != NULL && to.granted_by > lease->granted_by)
		to.leased_until = to.starts_at;
	to.closed = true;
	to.closed_at = here->clock;
	to.last_call = call;
	change_row(tables, row, &to);
}

/*
 * *lease: the named one as it was, with token 0 if there is none.  named_end
 * DT_NOBEGIN: none.
 */
static SimError
begin_call(SimTables *tables, const SimHere *here, uint64 start, int64 call,
		   uint64 named, TimestampTz named_end, SimRow *lease)
{
	SimIndex   *index = tables->index;
	KnownStart *known;
	int			num_open;
	int32		place;
	SimRow		to;

	memset(lease, 0, sizeof(*lease));
	if (start == 0 || call <= 0 || TIMESTAMP_IS_NOEND(named_end))
		return SIM_PARAMETER;
	known = start_of(tables, start);
	if (known == NULL)
		return SIM_OK;
	if (call <= known->last_call)
		return SIM_CALL_LATE;
	place = named == 0 ? NO_ROW : *find_token(tables, named) - 1;
	if (place != NO_ROW && tables->rows[place].start == start)
		*lease = tables->rows[place];

	num_open = known->num_open;
	for (int32 i = known->last_row; num_open > 0; i = index->links[i].before)
	{
		if (tables->rows[i].closed)
			continue;
		num_open--;
		if (lease->token == 0 || tables->rows[i].token != lease->token ||
			!TIMESTAMP_IS_NOBEGIN(named_end))
			close_by_call(tables, here, i, call,
						  lease->token != 0 ? lease : NULL, named_end);
	}
	if (lease->token == 0 || tables->rows[place].last_call == call)
		return SIM_OK;
	to = tables->rows[place];
	to.last_call = call;
	change_row(tables, place, &to);
	return SIM_OK;
}

/*
 * Layouts
 */

/* NULL if there is none. */
static const SimRow *
newest_lease(const SimTables *tables)
{
	const SimIndex *index = tables->index;
	int32		newest = NO_ROW;

	for (int i = 0; i < index->num_incarnations; i++)
	{
		int32		row = index->incarnations[i].newest;

		if (row == NO_ROW)
			continue;
		if (index->incarnations[i].incarnation == tables->incarnation)
			return &tables->rows[row];
		if (newest == NO_ROW || tables->rows[row].renewed_at >
			tables->rows[newest].renewed_at)
			newest = row;
	}
	return newest == NO_ROW ? NULL : &tables->rows[newest];
}

static TimestampTz
renewal_time(const SimHere *here, const SimRow *newest)
{
	return newest == NULL ? here->clock :
		Max(here->clock, newest->renewed_at + 1);
}

/* The last tick that begins at or before a time after the epoch. */
static int64
greatest_id(TimestampTz leased_until, const SnowflakeLayout *layout)
{
	uint64		tick;

	if (leased_until - layout->tick_us < layout->epoch)
		return -1;
	tick = snowflake_tick_at(layout, leased_until - layout->tick_us);
	return snowflake_tick_last_id(layout, Min(tick, layout->max_tick));
}

static TimestampTz
first_time_above(int64 id, const SnowflakeLayout *layout)
{
	if (id < 0)
		return layout->epoch;
	if (id >= snowflake_tick_first_id(layout, layout->max_tick))
		return DT_NOEND;
	return snowflake_tick_begin(layout, snowflake_field_get(layout, id,
															SNOWFLAKE_TIMESTAMP) + 1);
}

static int64
greatest_id_of_others(const SimTables *tables, const SnowflakeLayout *layout)
{
	int64		greatest = -1;

	for (int i = 0; i < tables->index->num_layouts; i++)
	{
		KnownLayout *other = &tables->index->layouts[i];

		if (other->layout == layout)
			continue;
		if (!other->known)
		{
			other->latest = DT_NOBEGIN;
			for (int row = 0; row < tables->num_rows; row++)
				if (tables->rows[row].layout == other->layout &&
					may_have_issued(&tables->rows[row]))
					other->latest = Max(other->latest,
										tables->rows[row].leased_until);
			other->known = true;
		}
		if (!TIMESTAMP_IS_NOBEGIN(other->latest))
			greatest = Max(greatest, greatest_id(other->latest,
												 other->layout));
	}
	return greatest;
}

/* Which open rows stand in the way of a call. */
typedef bool (*RowTest) (const SimRow *row, const SimAcquire *in);

static bool
is_of_other_server(const SimRow *row, const SimAcquire *in)
{
	return row->host != in->host || row->port != in->port ||
		row->system_identifier != in->system_identifier;
}

static bool
is_of_other_start(const SimRow *row, const SimAcquire *in)
{
	return row->start != in->start &&
		(!in->own || row->system_identifier != in->system_identifier);
}

static bool
is_any(const SimRow *row, const SimAcquire *in)
{
	return true;
}

/* Whether a number has an open row that ends after a time and passes a test. */
static bool
has_open_row(const SimTables *tables, const UsedNumber *number,
			 TimestampTz after, RowTest test, const SimAcquire *in)
{
	if (number->num_open == 0)
		return false;
	for (int32 i = number->latest;
		 i != NO_ROW && tables->rows[i].leased_until > after;
		 i = tables->index->links[i].earlier_end)
		if (!tables->rows[i].closed && test(&tables->rows[i], in))
			return true;
	return false;
}

/* *first_time: that leases of the layout start at or after. */
static SimError
check_layout(const SimTables *tables, const SimHere *here,
			 const SimRow *newest, const SimAcquire *in,
			 TimestampTz *first_time)
{
	TimestampTz earlier_clock = Min(in->node_clock, here->clock);

	*first_time = DT_NOBEGIN;
	if (newest == NULL || newest->layout == in->layout)
		return SIM_OK;
	if (!in->layout_set)
		return SIM_LAYOUT_NOT_SET;
	for (int i = 0; i < tables->index->num_numbers; i++)
		if (has_open_row(tables, &tables->index->numbers[i], earlier_clock,
						 is_of_other_server, in))
			return SIM_LAYOUT_IN_USE;
	*first_time = first_time_above(greatest_id_of_others(tables, in->layout),
								   in->layout);
	/* the leases of other servers start after it, too */
	if (*first_time > in->node_clock + Min(in->max_ahead, SECONDS(10)))
		return SIM_LAYOUT_NOT_GREATER;
	return SIM_OK;
}

/*
 * Choosing a number
 */

/* The numbers first, first + step, ... up to last. */
typedef struct Choice
{
	uint64		first;
	uint64		last;
	uint64		step;
} Choice;

static uint64
count_choice(const Choice *choice)
{
	return (choice->last - choice->first) / choice->step + 1;
}

/*
 * The next one of a choice that was leased, from the lowest; NULL if there is
 * none.  *n is 0 at first.
 */
static const UsedNumber *
next_used(const SimTables *tables, const Choice *choice, int *n)
{
	const SimIndex *index = tables->index;

	if (*n == 0)
		*n = count_lower(index, choice->first);
	while (*n < index->num_numbers)
	{
		const UsedNumber *number = nth_number(index, (*n)++);

		if (number->node_number > choice->last)
			break;
		if ((number->node_number - choice->first) % choice->step == 0)
			return number;
	}
	return NULL;
}

/* The n-th of those never leased, from 0. */
static uint64
nth_unused(const SimTables *tables, const Choice *choice, uint64 n)
{
	uint64		num_used = 0;
	int			place = 0;
	const UsedNumber *used;

	while ((used = next_used(tables, choice, &place)) != NULL &&
		   (used->node_number - choice->first) / choice->step - num_used <= n)
		num_used++;
	return choice->first + choice->step * (n + num_used);
}

/* False if all were leased. */
static bool
unused_number(const SimTables *tables, const SimHere *here,
			  const Choice *choice, uint64 *result)
{
	uint64		count = count_choice(choice);
	uint64		num_used = 0;
	int			place = 0;

	if (here->unused != NULL && *here->unused >= choice->first &&
		*here->unused <= choice->last &&
		(*here->unused - choice->first) % choice->step == 0 &&
		find_number(tables, *here->unused) == NULL)
	{
		*result = *here->unused;
		return true;
	}
	for (int attempt = 0; attempt < 20 && here->unused == NULL; attempt++)
	{
		*result = choice->first + choice->step *
			(here->random(here->random_state) % count);
		if (find_number(tables, *result) == NULL)
			return true;
	}
	while (next_used(tables, choice, &place) != NULL)
		num_used++;
	if (num_used == count)
		return false;
	*result = nth_unused(tables, choice,
						 here->random(here->random_state) % (count - num_used));
	return true;
}

static SimError
choose_automatic(const SimTables *tables, const SimHere *here,
				 const Choice *choice, TimestampTz node_clock, uint64 *result)
{
	TimestampTz earlier_clock = Min(node_clock, here->clock);
	const UsedNumber *best = NULL;
	const UsedNumber *used;
	int			place = 0;

	if (unused_number(tables, here, choice, result))
		return SIM_OK;
	while ((used = next_used(tables, choice, &place)) != NULL)
		if (greatest_end(tables, used) <= node_clock &&
			(best == NULL || greatest_end(tables, used) <
			 greatest_end(tables, best)) &&
			!has_open_row(tables, used, earlier_clock, is_any, NULL))
			best = used;
	if (best == NULL)
		return SIM_NO_NUMBER_FREE;
	*result = best->node_number;
	return SIM_OK;
}

static void
choose_fixed(const SimTables *tables, const SimHere *here,
			 const Choice *choice, TimestampTz latest, uint64 *result)
{
	const UsedNumber *best = NULL;
	const UsedNumber *used;
	int			place = 0;

	while ((used = next_used(tables, choice, &place)) != NULL)
		if (greatest_end(tables, used) <= latest &&
			(best == NULL || greatest_end(tables, used) >
			 greatest_end(tables, best)))
			best = used;
	if (best == NULL)
	{
		if (unused_number(tables, here, choice, result))
			return;
		place = 0;
		while ((used = next_used(tables, choice, &place)) != NULL)
			if (best == NULL || greatest_end(tables, used) <
				greatest_end(tables, best))
				best = used;
	}
	*result = best->node_number;
}

static SimError
check_holder(const SimTables *tables, const SimHere *here,
			 const Choice *choice, const SimAcquire *in)
{
	TimestampTz earlier_clock = Min(in->node_clock, here->clock);
	const UsedNumber *used;
	int			place = 0;

	while ((used = next_used(tables, choice, &place)) != NULL)
		if (has_open_row(tables, used, earlier_clock, is_of_other_start, in))
			return SIM_NUMBER_HELD;
	return SIM_OK;
}

static SimError
choose_number(const SimTables *tables, const SimHere *here,
			  const SimAcquire *in, uint64 *result)
{
	Choice		choice = {in->first_number, in->last_number, 1};
	uint64		odd_bit = 1 - tables->generation % 2;

	if (in->fixed)
	{
		SimError	error = check_holder(tables, here, &choice, in);

		if (error == SIM_OK)
			choose_fixed(tables, here, &choice,
						 in->node_clock + in->max_ahead, result);
		return error;
	}
	if (in->own)
	{
		if (choice.first == choice.last)
			return SIM_TOO_FEW_NUMBERS;
		choice.first += (choice.first & 1) != odd_bit;
		choice.last -= (choice.last & 1) != odd_bit;
		choice.step = 2;
	}
	return choose_automatic(tables, here, &choice, in->node_clock, result);
}

/*
 * Where leases start
 */

static TimestampTz
creation_floor(const SimTables *tables, int64 max_ahead, int64 tick)
{
	return tables->created_at + max_ahead + tick;
}

static TimestampTz
registry_floor(const SimTables *tables, int64 max_ahead, int64 tick)
{
	return Max(creation_floor(tables, max_ahead, tick), tables->starts_at);
}

static SimError
lease_floor(const SimTables *tables, const SimAcquire *in,
			TimestampTz node_floor, TimestampTz *result)
{
	TimestampTz latest = in->node_clock + SECONDS(10);

	if (tables->created_at > latest)
		return SIM_BEHIND_CREATION;
	if (tables->starts_at > latest + in->max_ahead)
		return SIM_BEHIND_START;
	if (node_floor > latest + in->max_ahead)
		return SIM_BEHIND_IDS;
	*result = Max(registry_floor(tables, in->max_ahead, in->tick), node_floor);
	return SIM_OK;
}

static SimError
check_registry(const SimTables *tables, const SimHere *here,
			   const SimAcquire *in)
{
	if (in->own)
		return tables->uses == SIM_USES_REGISTRY ? SIM_USES_ANOTHER : SIM_OK;
	if (here->launched_at == in->launched_at &&
		here->system_identifier == in->system_identifier)
		return SIM_REGISTRY_IS_SELF;
	if (tables->uses == SIM_USES_REGISTRY)
		return SIM_NO_ROOT;
	if (in->incarnation != 0 && in->incarnation != tables->incarnation)
		return SIM_OTHER_INCARNATION;
	return SIM_OK;
}

/*
 * What the lease worker calls
 */

static bool
is_tick(int64 tick)
{
	return tick > 0 && tick <= USECS_PER_SEC;
}

static bool
is_max_ahead(int64 max_ahead)
{
	return max_ahead >= 0 && max_ahead <= USECS_PER_DAY;
}

static SimError
start_server(SimTables *tables, const SimHistory *timelines,
			 TimestampTz node_clock, int64 max_ahead, int64 tick,
			 uint64 system_identifier, SimStarted *out)
{
	SimError	error;

	if (TIMESTAMP_NOT_FINITE(node_clock) || !is_max_ahead(max_ahead) ||
		!is_tick(tick))
		return SIM_PARAMETER;
	error = count_generation(tables, timelines, system_identifier,
							 node_clock + max_ahead + tick);
	if (error != SIM_OK)
		return error;
	out->generation = tables->generation;
	out->starts_at = creation_floor(tables, max_ahead, tick);
	out->uses = tables->uses;
	out->incarnation = tables->uses_incarnation;
	return SIM_OK;
}

SimError
sim_start_server(SimTables *tables, const SimHere *here,
				 const SimHistory *timelines, TimestampTz node_clock,
				 int64 max_ahead, int64 tick, uint64 system_identifier,
				 SimStarted *out)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, tables, here);

	if (error == SIM_OK)
		error = start_server(tables, timelines, node_clock, max_ahead, tick,
							 system_identifier, out);
	return end_transaction(&transaction, error);
}

static bool
acquire_parameters_fit(const SimAcquire *in)
{
	return in->layout != NULL &&
		in->first_number <= in->last_number &&
		in->last_number <= snowflake_node_max(in->layout) &&
		is_tick(in->tick) &&
		!TIMESTAMP_NOT_FINITE(in->node_clock) &&
		is_max_ahead(in->max_ahead) &&
		in->lease_window >= 0 && in->lease_window <= 2 * USECS_PER_DAY &&
		!TIMESTAMP_NOT_FINITE(in->launched_at) &&
		!TIMESTAMP_IS_NOEND(in->known_until) &&
		!TIMESTAMP_IS_NOEND(in->node_floor);
}

/* The lease as a row, and as what the call returns. */
static void
grant(SimTables *tables, const SimHere *here, const SimAcquire *in,
	  uint64 node_number, TimestampTz starts_at, TimestampTz renewed_at,
	  SimGranted *out)
{
	SimRow		row = {
		.token = new_id(here),
		.start = in->start,
		.granted_by = in->call,
		.last_call = in->call,
		.system_identifier = in->system_identifier,
		.host = in->host,
		.port = in->port,
		.timeline = in->timeline,
		.incarnation = tables->incarnation,
		.node_number = node_number,
		.layout = in->layout,
		.launched_at = in->launched_at,
		.starts_at = starts_at,
		.leased_until = Max(in->node_clock, starts_at) + in->lease_window,
		.renewed_at = renewed_at,
		.closed_at = DT_NOBEGIN
	};

	add_row(tables, &row);
	out->token = row.token;
	out->registry_incarnation = row.incarnation;
	out->node_number = row.node_number;
	out->starts_at = row.starts_at;
	out->leased_until = row.leased_until;
	out->registry_clock = here->clock;
}

static SimError
acquire_lease(SimTables *tables, const SimHere *here, const SimAcquire *in,
			  SimGranted *out)
{
	SimError	error;
	SimRow		lease;
	const SimRow *newest;
	TimestampTz layout_floor;
	TimestampTz node_floor = in->node_floor;
	TimestampTz starts_at;
	TimestampTz renewed_at;
	uint64		node_number = 0;
	UsedNumber *number;

	if (!acquire_parameters_fit(in))
		return SIM_PARAMETER;
	if ((error = check_registry(tables, here, in)) != SIM_OK)
		return error;
	if (in->own)
	{
		error = count_generation(tables, in->timelines, in->system_identifier,
								 in->node_clock + in->max_ahead + in->tick);
		if (error != SIM_OK)
			return error;
		write_uses(tables, 0);
	}
	error = begin_call(tables, here, in->start, in->call, in->previous_token,
					   in->previous_end, &lease);
	if (error != SIM_OK)
		return error;

	newest = newest_lease(tables);
	error = check_layout(tables, here, newest, in, &layout_floor);
	if (error != SIM_OK)
		return error;
	if (in->known_incarnation != tables->incarnation)
		node_floor = Max(node_floor, in->known_until);
	error = lease_floor(tables, in, node_floor, &starts_at);
	if (error != SIM_OK)
		return error;
	starts_at = Max(starts_at, layout_floor);
	if (layout_floor > tables->starts_at ||
		(in->own &&
		 node_floor > registry_floor(tables, in->max_ahead, in->tick)))
		tables->starts_at = Max(Max(tables->starts_at, layout_floor),
								in->own ? node_floor : DT_NOBEGIN);
	error = choose_number(tables, here, in, &node_number);
	if (error != SIM_OK)
		return error;

	/* nothing fails from here on */
	renewed_at = renewal_time(here, newest);
	number = find_number(tables, node_number);
	if (number != NULL)
	{
		for (int32 i = number->latest; i != NO_ROW && number->num_open > 0;
			 i = tables->index->links[i].earlier_end)
			if (!tables->rows[i].closed)
				close_row(tables, i, here->clock);
		starts_at = Max(starts_at, greatest_end(tables, number));
	}
	grant(tables, here, in, node_number, starts_at, renewed_at, out);
	return SIM_OK;
}

SimError
sim_acquire_lease(SimTables *tables, const SimHere *here,
				  const SimAcquire *in, SimGranted *out)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, tables, here);

	if (error == SIM_OK)
		error = acquire_lease(tables, here, in, out);
	return end_transaction(&transaction, error);
}

static SimError
renew_lease(SimTables *tables, const SimHere *here, const SimRenew *in,
			TimestampTz *leased_until)
{
	SimError	error;
	SimRow		lease;
	SimRow		to;
	const SimRow *newest;
	TimestampTz latest = in->node_clock;
	int32		row;

	if (TIMESTAMP_NOT_FINITE(in->node_clock) || in->layout == NULL)
		return SIM_PARAMETER;
	if (tables->uses == SIM_USES_REGISTRY)
		return SIM_NO_ROOT;
	error = begin_call(tables, here, in->start, in->call, in->token,
					   DT_NOBEGIN, &lease);
	if (error != SIM_OK)
		return error;
	if (lease.token != 0)
		latest = Max(latest, lease.starts_at);
	if (TIMESTAMP_NOT_FINITE(in->lease_until) ||
		in->lease_until > latest + 2 * USECS_PER_DAY)
		return SIM_PARAMETER;
	newest = newest_lease(tables);
	if (newest != NULL && newest->layout != in->layout)
		return SIM_RENEW_LAYOUT;

	*leased_until = DT_NOBEGIN;
	if (lease.token == 0)
		return SIM_OK;
	row = *find_token(tables, lease.token) - 1;
	to = tables->rows[row];
	if (to.incarnation != tables->incarnation || to.closed)
		return SIM_OK;
	to.leased_until = Max(to.leased_until, in->lease_until);
	to.renewed_at = renewal_time(here, newest);
	change_row(tables, row, &to);
	*leased_until = to.leased_until;
	return SIM_OK;
}

SimError
sim_renew_lease(SimTables *tables, const SimHere *here, const SimRenew *in,
				TimestampTz *leased_until)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, tables, here);

	if (error == SIM_OK)
		error = renew_lease(tables, here, in, leased_until);
	return end_transaction(&transaction, error);
}

SimError
sim_release_lease(SimTables *tables, const SimHere *here, uint64 start,
				  int64 call, uint64 token, TimestampTz lease_end,
				  bool *was_open)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, tables, here);
	SimRow		lease;

	if (error == SIM_OK && TIMESTAMP_NOT_FINITE(lease_end))
		error = SIM_PARAMETER;
	if (error == SIM_OK)
		error = begin_call(tables, here, start, call, token, lease_end,
						   &lease);
	if (error == SIM_OK)
		*was_open = lease.token != 0 && !lease.closed;
	return end_transaction(&transaction, error);
}

/* Whether another server has a lease of these tables that is not over. */
static bool
has_nodes(const SimTables *tables, const SimHere *here)
{
	for (int i = 0; i < tables->num_rows; i++)
		if (!tables->rows[i].closed &&
			tables->rows[i].incarnation == tables->incarnation &&
			tables->rows[i].leased_until > here->clock &&
			tables->rows[i].system_identifier != here->system_identifier)
			return true;
	return false;
}

SimError
sim_record_uses(SimTables *tables, const SimHere *here, uint64 incarnation,
				bool change)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, tables, here);

	if (error == SIM_OK && !change && incarnation != 0 &&
		has_nodes(tables, here))
		error = SIM_HAS_NODES;
	if (error == SIM_OK && !change && tables->uses != SIM_USES_NOTHING &&
		tables->uses_incarnation != incarnation)
		error = SIM_RECORDED_OTHER;
	if (error == SIM_OK)
		write_uses(tables, incarnation);
	return end_transaction(&transaction, error);
}

/* An end that is listed, and when its number was renewed last. */
typedef struct ListedEnd
{
	SimEnd		end;
	TimestampTz renewed_at;
} ListedEnd;

static int
compare_listed_ends(const void *a, const void *b)
{
	const ListedEnd *one = a;
	const ListedEnd *other = b;

	if (one->renewed_at != other->renewed_at)
		return one->renewed_at < other->renewed_at ? -1 : 1;
	if (one->end.node_number != other->end.node_number)
		return one->end.node_number < other->end.node_number ? -1 : 1;
	return 0;
}

/*
 * The ends of a number, one for each layout, after the others in ends; returns
 * how many there are then.  A lease that was closed where it started issued
 * nothing.
 */
static int
list_ends_of(const SimTables *tables, const UsedNumber *number,
			 ListedEnd *ends, int num)
{
	int			first = num;

	for (int32 i = number->latest; i != NO_ROW;
		 i = tables->index->links[i].earlier_end)
	{
		const SimRow *row = &tables->rows[i];
		int			place = first;

		if (!may_have_issued(row))
			continue;
		/* of the same layout the first one ends last */
		while (place < num && ends[place].end.layout != row->layout)
			place++;
		if (place < num)
		{
			ends[place].renewed_at = Max(ends[place].renewed_at,
										 row->renewed_at);
			continue;
		}
		ends[num].end.node_number = row->node_number;
		ends[num].end.leased_until = row->leased_until;
		ends[num].end.layout = row->layout;
		ends[num].renewed_at = row->renewed_at;
		num++;
	}
	return num;
}

SimError
sim_list_ends(SimTables *tables, const SimHere *here, int64 max_ahead,
			  int64 tick, SimEnds *out)
{
	ListedEnd  *listed;
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, tables, here);

	if (error == SIM_OK)
	{
		out->incarnation = tables->incarnation;
		out->starts_at = registry_floor(tables, max_ahead, tick);
		out->uses = tables->uses;
		out->num_ends = 0;
		out->ends = malloc(Max(tables->num_rows, 1) * sizeof(SimEnd));
		listed = malloc(Max(tables->num_rows, 1) * sizeof(ListedEnd));
		if (out->ends == NULL || listed == NULL)
			abort();
		for (int i = 0; i < tables->index->num_numbers; i++)
			out->num_ends = list_ends_of(tables,
										 nth_number(tables->index, i),
										 listed, out->num_ends);
		qsort(listed, out->num_ends, sizeof(ListedEnd), compare_listed_ends);
		for (int i = 0; i < out->num_ends; i++)
			out->ends[i] = listed[i].end;
		free(listed);
	}
	return end_transaction(&transaction, error);
}

static bool
hand_over_parameters_fit(const SimHandOver *in)
{
	if (in->incarnation == 0 ||
		TIMESTAMP_IS_NOEND(in->starts_at) ||
		TIMESTAMP_NOT_FINITE(in->launched_at))
		return false;
	for (int i = 0; i < in->num_ends; i++)
		if (in->ends[i].node_number > PG_INT64_MAX ||
			TIMESTAMP_NOT_FINITE(in->ends[i].leased_until) ||
			in->ends[i].layout == NULL)
			return false;
	return true;
}

/* Whether one of the first rows has the number until then or later. */
static bool
is_handed_over(const SimTables *tables, const SimEnd *end, int num_rows)
{
	const UsedNumber *number = find_number(tables, end->node_number);

	if (number != NULL)
		for (int32 i = number->latest; i != NO_ROW &&
			 tables->rows[i].leased_until >= end->leased_until;
			 i = tables->index->links[i].earlier_end)
			if (i < num_rows && tables->rows[i].closed &&
				tables->rows[i].layout == end->layout)
				return true;
	return false;
}

/* A closed row for an end that is handed over. */
static void
take_end(SimTables *tables, const SimHere *here, const SimHandOver *in,
		 const SimEnd *end, uint64 incarnation, TimestampTz at)
{
	SimRow		row = {
		.token = new_id(here),
		.start = in->start,
		.granted_by = in->call,
		.last_call = in->call,
		.system_identifier = in->system_identifier,
		.host = in->host,
		.port = in->port,
		.timeline = in->timeline,
		.incarnation = incarnation,
		.node_number = end->node_number,
		.layout = end->layout,
		.launched_at = in->launched_at,
		.starts_at = DT_NOBEGIN,
		.leased_until = end->leased_until,
		.renewed_at = at,
		.closed = true,
		.closed_at = here->clock
	};

	add_row(tables, &row);
}

static SimError
hand_over(SimTables *tables, const SimHere *here, const SimHandOver *in,
		  uint64 *registry_incarnation)
{
	SimError	error;
	SimRow		lease;
	int			num_rows = tables->num_rows;
	uint64		incarnation = in->incarnation;

	if (!hand_over_parameters_fit(in))
		return SIM_PARAMETER;
	if (!in->own && here->launched_at == in->launched_at &&
		here->system_identifier == in->system_identifier)
		return SIM_REGISTRY_IS_SELF;
	if (in->starts_at > here->clock + SECONDS(10))
		return SIM_REGISTRY_BEHIND;
	error = begin_call(tables, here, in->start, in->call, 0, DT_NOBEGIN,
					   &lease);
	if (error != SIM_OK)
		return error;

	/* nothing fails from here on */
	tables->starts_at = Max(tables->starts_at, in->starts_at);
	if (incarnation == tables->incarnation)
		incarnation = new_id(here);
	for (int i = 0; i < in->num_ends; i++)
	{
		const SimEnd *end = &in->ends[i];

		if (is_handed_over(tables, end, num_rows))
			continue;
		take_end(tables, here, in, end, incarnation, here->clock + i + 1);
	}
	*registry_incarnation = tables->incarnation;
	return SIM_OK;
}

SimError
sim_hand_over(SimTables *tables, const SimHere *here, const SimHandOver *in,
			  uint64 *registry_incarnation)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, tables, here);

	if (error == SIM_OK)
		error = hand_over(tables, here, in, registry_incarnation);
	return end_transaction(&transaction, error);
}
