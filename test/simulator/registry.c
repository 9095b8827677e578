/*
 * registry.c
 *	  A twin of the extension snowflake_registry: what src/registry.sql does, in
 *	  plain C.
 *
 * The functions have the names and the order of those in SQL, so that the two
 * can be read side by side; test/t/051_registry_twin.pl runs the same calls on
 * both and compares results, errors and tables.
 *
 * Rows are never deleted, so a row is known by its place.  The indexes are those
 * of SQL.  Invariant: every change of a row goes through add_row() or
 * change_row(), which keep them.
 *
 * A call that fails changes nothing: begin_transaction() keeps the rows of
 * registry and cluster, change_row() the former rows.  Rows are added only
 * after the last check.
 */
#include "postgres.h"

#include <math.h>

#include "registry.h"

#define SECONDS(s)	((s) * USECS_PER_SEC)

/* The years 1 to 9999, which a call may name. */
#define FIRST_TIME	(INT64CONST(-62135596800000000) - INT64CONST(946684800000000))
#define LAST_TIME	(INT64CONST(253402300799999999) - INT64CONST(946684800000000))

/*
 * Each sorts places in leases by a key.  Those of one node number, one start,
 * and so on, stand together.
 */
typedef enum IndexName
{
	BY_TOKEN,					/* worker_node_pkey */
	BY_END,						/* node number, leased_until */
	BY_OPEN_END,				/* the same, rows that are open */
	BY_CALL,					/* start, last_call */
	BY_OPEN_START,				/* start, rows that are open */
	BY_RENEWAL,					/* incarnation, renewed_at */
	BY_GREATEST_ID,				/* layout, greatest_id */
	BY_LIVE_END,				/* leased_until */
	NUM_INDEXES
} IndexName;

/* The last column is the token, where the others are no key. */
typedef struct Key
{
	uint64		columns[3];
} Key;

typedef struct RowIndex
{
	int32	   *places;
	int			num;
	int			max;
} RowIndex;

/* A row that the transaction has changed, as it was. */
typedef struct FormerRow
{
	int32		place;
	SimRow		was;
} FormerRow;

struct SimIndexes
{
	RowIndex	all[NUM_INDEXES];
	FormerRow  *former;			/* empty between transactions */
	int			num_former;
	int			max_former;
};

/* What a transaction that fails puts back. */
typedef struct Transaction
{
	SimRegistry *registry;
	SimRegistryRow row;
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
allocate(size_t num, size_t size)
{
	void	   *result = calloc(Max(num, 1), size);

	if (result == NULL)
		abort();
	return result;
}

static void
free_indexes(SimIndexes *indexes)
{
	if (indexes == NULL)
		return;
	for (int i = 0; i < NUM_INDEXES; i++)
		free(indexes->all[i].places);
	free(indexes->former);
	free(indexes);
}

/* Fills a registry that holds nothing; there is no extension. */
void
sim_registry_init(SimRegistry *registry, uint32 oid)
{
	memset(registry, 0, sizeof(*registry));
	registry->oid = oid;
}

void
sim_registry_free(SimRegistry *registry)
{
	free(registry->leases);
	free_indexes(registry->indexes);
	sim_registry_init(registry, registry->oid);
}

static void
copy_index(RowIndex *to, const RowIndex *from)
{
	to->places = make_room(to->places, &to->max, from->num, sizeof(int32));
	to->num = from->num;
	if (from->num > 0)
		memcpy(to->places, from->places, from->num * sizeof(int32));
}

void
sim_registry_copy(SimRegistry *to, const SimRegistry *from)
{
	SimRegistry had = *to;

	if (to == from)
		return;
	*to = *from;
	to->leases = make_room(had.leases, &had.max_leases, from->num_leases,
						   sizeof(SimRow));
	to->max_leases = had.max_leases;
	if (from->num_leases > 0)
		memcpy(to->leases, from->leases, from->num_leases * sizeof(SimRow));
	to->indexes = had.indexes;
	if (from->indexes == NULL)
	{
		free_indexes(to->indexes);
		to->indexes = NULL;
		return;
	}
	if (to->indexes == NULL)
		to->indexes = allocate(1, sizeof(SimIndexes));
	for (int i = 0; i < NUM_INDEXES; i++)
		copy_index(&to->indexes->all[i], &from->indexes->all[i]);
}

/*
 * Rows and indexes
 */

/* A lease that was closed where it starts issued nothing. */
static bool
may_have_issued(const SimRow *row)
{
	return !row->closed || row->leased_until > row->starts_at;
}

/* The conditions of partial indexes. */
static bool
is_in_index(IndexName name, const SimRow *row)
{
	switch (name)
	{
		case BY_OPEN_END:
		case BY_OPEN_START:
			return !row->closed;
		case BY_RENEWAL:
		case BY_GREATEST_ID:
		case BY_LIVE_END:
			return may_have_issued(row);
		default:
			return true;
	}
}

/* In the order of signed numbers. */
static uint64
sortable(int64 number)
{
	return (uint64) number ^ (UINT64CONST(1) << 63);
}

static Key
make_key(uint64 first, uint64 second, uint64 third)
{
	Key			key = {{first, second, third}};

	return key;
}

/*
 * Layouts are sorted by their addresses, on which nothing may depend but that
 * those of one layout stand together.
 */
static Key
key_of(IndexName name, const SimRow *row)
{
	switch (name)
	{
		case BY_TOKEN:
			return make_key(row->token, 0, 0);
		case BY_END:
		case BY_OPEN_END:
			return make_key(row->node_number, sortable(row->leased_until), row->token);
		case BY_CALL:
			return make_key(row->start, sortable(row->last_call), row->token);
		case BY_OPEN_START:
			return make_key(row->start, row->token, 0);
		case BY_RENEWAL:
			return make_key(row->incarnation, sortable(row->renewed_at), row->token);
		case BY_GREATEST_ID:
			return make_key((uintptr_t) row->layout, sortable(row->greatest_id), row->token);
		case BY_LIVE_END:
			return make_key(sortable(row->leased_until), row->token, 0);
		default:
			abort();
	}
}

static int
compare_keys(const Key *a, const Key *b)
{
	for (int i = 0; i < 3; i++)
		if (a->columns[i] != b->columns[i])
			return a->columns[i] < b->columns[i] ? -1 : 1;
	return 0;
}

/* How many entries of an index have lower keys. */
static int
count_lower(const SimRegistry *registry, IndexName name, Key key)
{
	const RowIndex *index = &registry->indexes->all[name];
	int			low = 0;
	int			high = index->num;

	while (low < high)
	{
		int			middle = (low + high) / 2;
		Key			there = key_of(name, &registry->leases[index->places[middle]]);

		if (compare_keys(&there, &key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The n-th row of an index; NULL outside it. */
static const SimRow *
nth_row(const SimRegistry *registry, IndexName name, int n)
{
	const RowIndex *index = &registry->indexes->all[name];

	return n < 0 || n >= index->num ? NULL :
		&registry->leases[index->places[n]];
}

/* The place in an index of the last row whose first column is this or lower. */
static int
find_last(const SimRegistry *registry, IndexName name, uint64 column)
{
	Key			greatest = {{column, PG_UINT64_MAX, PG_UINT64_MAX}};

	return count_lower(registry, name, greatest) - 1;
}

static void
enter_row(SimRegistry *registry, int32 place)
{
	const SimRow *row = &registry->leases[place];

	for (IndexName name = 0; name < NUM_INDEXES; name++)
	{
		RowIndex   *index = &registry->indexes->all[name];
		int			n;

		if (!is_in_index(name, row))
			continue;
		n = count_lower(registry, name, key_of(name, row));
		index->places = make_room(index->places, &index->max, index->num + 1,
								  sizeof(int32));
		memmove(&index->places[n + 1], &index->places[n],
				(index->num - n) * sizeof(int32));
		index->places[n] = place;
		index->num++;
	}
}

static void
leave_row(SimRegistry *registry, int32 place)
{
	const SimRow *row = &registry->leases[place];

	for (IndexName name = 0; name < NUM_INDEXES; name++)
	{
		RowIndex   *index = &registry->indexes->all[name];
		int			n;

		if (!is_in_index(name, row))
			continue;
		n = count_lower(registry, name, key_of(name, row));
		index->num--;
		memmove(&index->places[n], &index->places[n + 1],
				(index->num - n) * sizeof(int32));
	}
}

static void
add_row(SimRegistry *registry, const SimRow *row)
{
	registry->leases = make_room(registry->leases, &registry->max_leases,
								 registry->num_leases + 1, sizeof(SimRow));
	registry->leases[registry->num_leases] = *row;
	enter_row(registry, registry->num_leases++);
}

/* Without a trace: to put a row back. */
static void
overwrite_row(SimRegistry *registry, int32 place, const SimRow *to)
{
	leave_row(registry, place);
	registry->leases[place] = *to;
	enter_row(registry, place);
}

/* UPDATE */
static void
change_row(SimRegistry *registry, const SimRow *row, const SimRow *to)
{
	SimIndexes *indexes = registry->indexes;
	FormerRow	former = {.place = (int32) (row - registry->leases),.was = *row};

	indexes->former = make_room(indexes->former, &indexes->max_former,
								indexes->num_former + 1, sizeof(FormerRow));
	indexes->former[indexes->num_former++] = former;
	overwrite_row(registry, former.place, to);
}

/* NULL if there is none. */
static const SimRow *
find_token(const SimRegistry *registry, uint64 token)
{
	const SimRow *row = nth_row(registry, BY_TOKEN,
								find_last(registry, BY_TOKEN, token));

	return row != NULL && row->token == token ? row : NULL;
}

/* The row of a number that ends last; NULL if it was never leased. */
static const SimRow *
find_number(const SimRegistry *registry, uint64 node_number)
{
	const SimRow *row = nth_row(registry, BY_END,
								find_last(registry, BY_END, node_number));

	return row != NULL && row->node_number == node_number ? row : NULL;
}

/*
 * Transactions
 */

static uint64
new_uuid(const SimHere *here)
{
	uint64		id;

	while ((id = here->new_uuid(here->random_state)) == 0)
		;
	return id;
}

/* From 0 to below count, as SQL makes them of random(). */
static uint64
draw_below(const SimHere *here, uint64 count)
{
	double		random = ldexp((double) (here->random(here->random_state) >> 11), -53);

	return Min((uint64) floor(random * (double) count), count - 1);
}

static SimError
lock_registry(SimRegistry *registry, const SimHere *here)
{
	SimRegistryRow *row = &registry->row;

	if (here->in_recovery)
		return SIM_HOT_STANDBY;
	if (here->other_isolation)
		return SIM_ISOLATION_LEVEL;
	if (here->replication_origin)
		return SIM_REPLICATION_ORIGIN;
	if (!registry->has_row)
		return SIM_NO_REGISTRY_ROW;
	if (row->database != registry->oid && row->successor == 0)
	{
		row->incarnation = new_uuid(here);
		row->database = registry->oid;
		row->created_at = here->clock;
	}
	return SIM_OK;
}

/* fits: whether the values of the call do. */
static SimError
begin_transaction(Transaction *transaction, SimRegistry *registry,
				  const SimHere *here, SimError fits)
{
	transaction->registry = registry;
	transaction->row = registry->row;
	transaction->uses = registry->uses;
	transaction->uses_incarnation = registry->uses_incarnation;
	if (!registry->exists)
		return SIM_NO_TABLE;
	return fits != SIM_OK ? fits : lock_registry(registry, here);
}

/* Returns the error. */
static SimError
end_transaction(const Transaction *transaction, SimError error)
{
	SimRegistry *registry = transaction->registry;
	SimIndexes *indexes = registry->indexes;

	if (error != SIM_OK)
	{
		registry->row = transaction->row;
		registry->uses = transaction->uses;
		registry->uses_incarnation = transaction->uses_incarnation;
		for (int i = indexes == NULL ? -1 : indexes->num_former - 1; i >= 0; i--)
			overwrite_row(registry, indexes->former[i].place,
						  &indexes->former[i].was);
	}
	if (indexes != NULL)
		indexes->num_former = 0;
	return error;
}

/*
 * CREATE EXTENSION, DROP EXTENSION, restores
 */

void
sim_create_extension(SimRegistry *registry, const SimHere *here)
{
	SimRegistryRow row = {
		.database = registry->oid,
		.created_at = here->clock,
		.system_identifier = here->system_identifier,
		.generation = 1,
		.counted_at = DT_NOBEGIN,
		.starts_at = DT_NOBEGIN,
		.closed_at = DT_NOBEGIN
	};

	if (registry->exists)
		return;
	sim_registry_free(registry);
	registry->exists = true;
	registry->has_row = true;
	registry->row = row;
	registry->row.incarnation = new_uuid(here);
	registry->indexes = allocate(1, sizeof(SimIndexes));
}

void
sim_drop_extension(SimRegistry *registry)
{
	sim_registry_free(registry);
}

/* The constraints of worker_node. */
static bool
row_fits(const SimRow *row)
{
	return row->starts_at <= row->leased_until &&
		!TIMESTAMP_NOT_FINITE(row->starts_at) &&
		!TIMESTAMP_NOT_FINITE(row->leased_until) &&
		row->node_number <= PG_INT64_MAX;
}

bool
sim_insert_row(SimRegistry *registry, const SimRow *row)
{
	if (!row_fits(row))
		abort();
	if (find_token(registry, row->token) != NULL)
		return false;
	add_row(registry, row);
	return true;
}

/* keep_cluster() */
bool
sim_insert_cluster(SimRegistry *registry, SimUses uses, uint64 incarnation)
{
	if (registry->uses != SIM_USES_NOTHING)
		return false;
	registry->uses = uses;
	registry->uses_incarnation = incarnation;
	return true;
}

/*
 * calls.sql: the values of calls
 */

static bool
is_time(TimestampTz at)
{
	return at >= FIRST_TIME && at <= LAST_TIME;
}

static bool
is_time_or_null(TimestampTz at)
{
	return TIMESTAMP_IS_NOBEGIN(at) || is_time(at);
}

static bool
is_max_ahead(int64 max_ahead)
{
	return max_ahead >= 0 && max_ahead <= USECS_PER_DAY;
}

static bool
is_tick(int64 tick)
{
	return tick >= 1 && tick <= USECS_PER_SEC;
}

static bool
is_window(int64 window)
{
	return window >= 1 && window <= 2 * USECS_PER_DAY;
}

static bool
is_port(int port)
{
	return port >= 0 && port <= 65535;
}

static SimError
check_protocol(int protocol)
{
	if (protocol < 1 || protocol > 1000000)
		return SIM_VALUE;
	return protocol > SIM_PROTOCOL ? SIM_PROTOCOL_UNKNOWN : SIM_OK;
}

static bool
is_layout(const SnowflakeLayout *layout)
{
	return layout != NULL && layout->bits[SNOWFLAKE_WORKER] > 0 &&
		layout->bits[SNOWFLAKE_SEQUENCE] > 0 && is_tick(layout->tick_us) &&
		is_time(layout->epoch);
}

static int
num_bits_below_tick(const SnowflakeLayout *layout)
{
	return layout->shift[SNOWFLAKE_TIMESTAMP];
}

static uint64
num_ticks(const SnowflakeLayout *layout)
{
	return UINT64CONST(1) << layout->bits[SNOWFLAKE_TIMESTAMP];
}

/* The end of the last tick. */
static TimestampTz
layout_ends_at(const SnowflakeLayout *layout)
{
	int128		end = layout->epoch + (int128) num_ticks(layout) * layout->tick_us;

	return (TimestampTz) Min(end, LAST_TIME);
}

static int64
greatest_id(TimestampTz until, const SnowflakeLayout *layout)
{
	int64		ticks = Min((until - layout->epoch) / layout->tick_us,
							(int64) num_ticks(layout));

	return ticks <= 0 ? -1 : snowflake_tick_last_id(layout, ticks - 1);
}

static TimestampTz
first_time_above(int64 id, const SnowflakeLayout *layout)
{
	int128		begins = ((id >> num_bits_below_tick(layout)) + 1) *
	(int128) layout->tick_us + layout->epoch;

	if (id < 0)
		return layout->epoch;
	return begins >= layout_ends_at(layout) ? DT_NOEND : (TimestampTz) begins;
}

/*
 * lease: whether one must be named.  ended: whether its ids have ended; that
 * may be null if none must be named.
 */
static bool
is_node_call(const SimNodeCall *call, bool lease, bool ended)
{
	if (call->start == 0 || call->call < 1 || !is_layout(call->layout))
		return false;
	if (call->lease.token == 0)
		return !lease;
	return call->lease.granted_by >= 1 &&
		call->lease.granted_by < call->call &&
		(!ended || (!lease && TIMESTAMP_IS_NOBEGIN(call->lease.ids_end_at)) ||
		 (is_time(call->lease.ids_end_at) &&
		  call->lease.ids_end_at <= layout_ends_at(call->layout)));
}

/*
 * rules.sql: what is refused
 */

static bool
contains(const SimUuids *set, uint64 uuid)
{
	for (int i = 0; i < set->num; i++)
		if (set->uuids[i] == uuid)
			return true;
	return false;
}

static void
add_uuid(SimUuids *set, uint64 uuid)
{
	if (contains(set, uuid))
		return;
	if (set->num == SIM_MAX_UUIDS)
		abort();				/* make it larger */
	set->uuids[set->num++] = uuid;
}

static SimError
check_open(const SimRegistry *registry)
{
	return registry->row.successor != 0 ? SIM_CLOSED : SIM_OK;
}

static bool
is_counted(const SimHistory *counted, const SimHistoryEntry *entry)
{
	for (int i = 0; i < counted->num_entries; i++)
		if (counted->entries[i].timeline == entry->timeline &&
			counted->entries[i].switched_at == entry->switched_at)
			return true;
	return false;
}

static void
close_row(SimRegistry *registry, const SimRow *row, TimestampTz at)
{
	SimRow		to = *row;

	to.closed = true;
	to.closed_at = at;
	change_row(registry, row, &to);
}

/*
 * Closes all open rows of other layouts than this one, as they stand; of all
 * layouts if it is NULL.
 */
static void
close_layouts(SimRegistry *registry, const SnowflakeLayout *but, TimestampTz at)
{
	const SimRow *row;
	int			n = 0;

	/* a row that is closed leaves the index */
	while ((row = nth_row(registry, BY_OPEN_START, n)) != NULL)
	{
		if (row->layout == but)
			n++;
		else
			close_row(registry, row, at);
	}
}

/* now: the registry's clock. */
static SimError
count_generation(SimRegistry *registry, const SimHere *here, TimestampTz now)
{
	SimRegistryRow *row = &registry->row;
	bool		upgraded = row->system_identifier != here->system_identifier;
	bool		grows = upgraded;

	if (here->history == NULL)
		return SIM_NO_HISTORY;
	for (int i = 0; i < here->history->num_entries; i++)
	{
		if (is_counted(&row->counted, &here->history->entries[i]))
			continue;
		if (row->counted.num_entries == SIM_MAX_HISTORY)
			abort();			/* make it larger */
		row->counted.entries[row->counted.num_entries++] =
			here->history->entries[i];
		row->generation++;
		grows = true;
	}
	row->system_identifier = here->system_identifier;
	if (grows)
		row->counted_at = Max(row->counted_at, now);
	if (upgraded)
		close_layouts(registry, NULL, now);
	return SIM_OK;
}

static SimError
check_root(const SimRegistry *registry)
{
	return registry->uses == SIM_USES_REGISTRY &&
		!contains(&registry->row.taken_over, registry->uses_incarnation) ?
		SIM_USES_ANOTHER : SIM_OK;
}

static SimError
check_source(const SimRegistry *registry, const SimHere *here,
			 const SimAcquire *in)
{
	uint64		uses = in->uses;

	if (!in->program && here->launched_at == in->launched_at &&
		here->system_identifier == in->system_identifier)
		return SIM_REGISTRY_IS_SELF;
	if (uses != 0 && uses != registry->row.incarnation &&
		!contains(&registry->row.taken_over, uses))
		return SIM_OTHER_SOURCE;
	return SIM_OK;
}

/*
 * rules.sql: calls of a start
 */

/* Closes an open row of the start of a call. */
static void
close_by_call(SimRegistry *registry, const SimHere *here, const SimRow *row,
			  const SimNodeCall *call, bool ended)
{
	SimRow		to = *row;

	if (row->incarnation != registry->row.incarnation)
		;						/* keeps its end */
	else if (call->lease.token != 0 && row->token == call->lease.token)
		to.leased_until = Max(row->starts_at, call->lease.ids_end_at);
	else if (call->lease.token != 0 &&
			 row->granted_by > call->lease.granted_by)
		to.leased_until = row->starts_at;
	if (to.leased_until != row->leased_until)
	{
		int64		greatest = greatest_id(to.leased_until, call->layout);

		to.greatest_id = row->layout == call->layout ? greatest :
			Max(row->greatest_id, greatest);
	}
	to.closed = true;
	to.closed_at = here->clock;
	to.last_call = call->call;
	change_row(registry, row, &to);
}

/*
 * ended: whether the ids of the named lease have ended.  *named: that lease as
 * it was, with token 0 if it is not on record.
 */
static SimError
begin_call(SimRegistry *registry, const SimHere *here,
		   const SimNodeCall *call, bool ended, SimRow *named)
{
	const SimRow *last = nth_row(registry, BY_CALL,
								 find_last(registry, BY_CALL, call->start));
	const SimRow *row;
	uint64		kept_in;
	SimRow		to;
	Key			first = {{call->start, 0, 0}};
	int			n;

	memset(named, 0, sizeof(*named));
	if (last != NULL && last->start != call->start)
		last = NULL;
	if (last != NULL && call->call <= last->last_call)
		return SIM_CALL_LATE;
	row = call->lease.token == 0 ? NULL : find_token(registry, call->lease.token);
	if (row != NULL && row->start == call->start)
		*named = *row;
	if (named->token != 0 &&
		named->granted_by != call->lease.granted_by)
		return SIM_VALUE;
	if (last == NULL)
		return SIM_OK;
	kept_in = named->token != 0 ? named->token : last->token;

	/* a row that is closed leaves the index */
	n = count_lower(registry, BY_OPEN_START, first);
	while ((row = nth_row(registry, BY_OPEN_START, n)) != NULL &&
		   row->start == call->start)
	{
		if (call->lease.token != 0 && row->token == call->lease.token && !ended)
			n++;
		else
			close_by_call(registry, here, row, call, ended);
	}
	row = find_token(registry, kept_in);
	to = *row;
	to.last_call = call->call;
	change_row(registry, row, &to);
	return SIM_OK;
}

/*
 * rules.sql: layouts
 */

/* NULL if there is none. */
static const SimRow *
newest_lease(const SimRegistry *registry)
{
	int			n = find_last(registry, BY_RENEWAL, registry->row.incarnation);
	const SimRow *row = nth_row(registry, BY_RENEWAL, n);
	const SimRow *newest = NULL;

	if (row != NULL && row->incarnation == registry->row.incarnation)
		return row;
	/* jumps from one incarnation to the next */
	for (n = registry->indexes->all[BY_RENEWAL].num - 1; n >= 0;
		 n = count_lower(registry, BY_RENEWAL, make_key(row->incarnation, 0, 0)) - 1)
	{
		row = nth_row(registry, BY_RENEWAL, n);
		if (newest == NULL || row->renewed_at > newest->renewed_at ||
			(row->renewed_at == newest->renewed_at && row->token > newest->token))
			newest = row;
	}
	return newest;
}

static TimestampTz
renewal_time(const SimRow *newest, TimestampTz now)
{
	return newest == NULL ? now : Max(now, newest->renewed_at + 1);
}

static int64
greatest_id_of_others(const SimRegistry *registry,
					  const SnowflakeLayout *layout)
{
	const SimRow *row;
	int64		greatest = -1;

	/* jumps from one layout to the next */
	for (int n = registry->indexes->all[BY_GREATEST_ID].num - 1; n >= 0;
		 n = count_lower(registry, BY_GREATEST_ID, make_key((uintptr_t) row->layout, 0, 0)) - 1)
	{
		row = nth_row(registry, BY_GREATEST_ID, n);
		if (row->layout != layout)
			greatest = Max(greatest, row->greatest_id);
	}
	return greatest;
}

/* A program is never the same as another.  NULL if there is none. */
static const SimRow *
lease_of_others(const SimRegistry *registry, uint64 system_identifier,
				int host, int port, TimestampTz now)
{
	const SimRow *row;

	for (int n = registry->indexes->all[BY_LIVE_END].num - 1;
		 (row = nth_row(registry, BY_LIVE_END, n)) != NULL && row->leased_until > now;
		 n--)
		if (row->program || row->host != host || row->port != port ||
			row->system_identifier != system_identifier)
			return row;
	return NULL;
}

/* *first_time: that leases of the layout start at or after; DT_NOBEGIN: NULL. */
static SimError
check_layout(const SimRegistry *registry, const SimRow *newest,
			 const SimAcquire *in, uint64 system_identifier, TimestampTz now,
			 TimestampTz *first_time)
{
	const SnowflakeLayout *layout = in->node.layout;

	*first_time = DT_NOBEGIN;
	if (newest == NULL || newest->layout == layout)
		return SIM_OK;
	if (!in->layout_set)
		return SIM_LAYOUT_NOT_SET;
	if (lease_of_others(registry, system_identifier, in->host, in->port, now) != NULL)
		return SIM_LAYOUT_IN_USE;
	*first_time = first_time_above(greatest_id_of_others(registry, layout),
								   layout);
	/* the leases of other servers start after it, too */
	if (*first_time > now + Min(in->max_ahead, SECONDS(10)))
		return SIM_LAYOUT_NOT_GREATER;
	return SIM_OK;
}

/*
 * rules.sql: choosing a number
 */

/* The numbers first, first + step, ... up to last. */
typedef struct Choice
{
	uint64		first;
	uint64		last;
	uint64		step;
} Choice;

/* Where next_used() begins. */
static int
begin_used(const SimRegistry *registry, const Choice *choice)
{
	return count_lower(registry, BY_END, make_key(choice->first, 0, 0));
}

/*
 * The next one of a choice that was leased, from the lowest: the row of it that
 * ends last; NULL if there is none.
 */
static const SimRow *
next_used(const SimRegistry *registry, const Choice *choice, int *n)
{
	const SimRow *row;

	while ((row = nth_row(registry, BY_END, *n)) != NULL &&
		   row->node_number <= choice->last)
	{
		int			last = find_last(registry, BY_END, row->node_number);

		*n = last + 1;
		if ((row->node_number - choice->first) % choice->step == 0)
			return nth_row(registry, BY_END, last);
	}
	return NULL;
}

/* The n-th of those never leased, from 0. */
static uint64
nth_unused(const SimRegistry *registry, const Choice *choice, uint64 n)
{
	uint64		num_used = 0;
	int			place = begin_used(registry, choice);
	const SimRow *used;

	while ((used = next_used(registry, choice, &place)) != NULL &&
		   (used->node_number - choice->first) / choice->step - num_used <= n)
		num_used++;
	return choice->first + choice->step * (n + num_used);
}

/* False if all were leased. */
static bool
unused_number(const SimRegistry *registry, const SimHere *here,
			  const Choice *choice, uint64 *result)
{
	uint64		count = (choice->last - choice->first) / choice->step + 1;
	uint64		num_used = 0;
	int			n = begin_used(registry, choice);

	for (int attempt = 0; attempt < 20; attempt++)
	{
		*result = choice->first + choice->step * draw_below(here, count);
		if (find_number(registry, *result) == NULL)
			return true;
	}
	while (next_used(registry, choice, &n) != NULL)
		num_used++;
	if (num_used == count)
		return false;
	*result = nth_unused(registry, choice, draw_below(here, count - num_used));
	return true;
}

/* Whether a number has an open row that ends after a time. */
static bool
has_open_row(const SimRegistry *registry, uint64 node_number, TimestampTz after)
{
	const SimRow *row = nth_row(registry, BY_OPEN_END,
								find_last(registry, BY_OPEN_END, node_number));

	return row != NULL && row->node_number == node_number &&
		row->leased_until > after;
}

/*
 * Of numbers that were all leased, the free one whose last lease ended first;
 * false if none is free.
 */
static bool
longest_unused(const SimRegistry *registry, const Choice *choice,
			   TimestampTz node_clock, TimestampTz earlier_clock,
			   uint64 *result)
{
	const SimRow *best = NULL;
	const SimRow *used;
	int			n = begin_used(registry, choice);

	while ((used = next_used(registry, choice, &n)) != NULL)
		if (used->leased_until <= node_clock &&
			(best == NULL || used->leased_until < best->leased_until) &&
			!has_open_row(registry, used->node_number, earlier_clock))
			best = used;
	if (best != NULL)
		*result = best->node_number;
	return best != NULL;
}

static SimError
choose_automatic(const SimRegistry *registry, const SimHere *here,
				 const Choice *choice, TimestampTz node_clock, TimestampTz now,
				 uint64 *result)
{
	uint64		span = 16384 * choice->step;
	uint64		num_pieces = (choice->last - choice->first) / span + 1;
	uint64		n = draw_below(here, num_pieces);

	for (uint64 attempt = 0; attempt < num_pieces; attempt++)
	{
		Choice		piece = *choice;

		piece.first += n * span;
		piece.last = Min(piece.first + span - choice->step, choice->last);
		if (unused_number(registry, here, &piece, result) ||
			longest_unused(registry, &piece, node_clock, Min(node_clock, now), result))
			return SIM_OK;
		n = (n + 1) % num_pieces;
	}
	return SIM_NO_NUMBER_FREE;
}

static uint64
choose_fixed(const SimRegistry *registry, const SimHere *here,
			 const Choice *choice, TimestampTz latest)
{
	const SimRow *best = NULL;
	const SimRow *used;
	int			n = begin_used(registry, choice);
	uint64		result;

	while ((used = next_used(registry, choice, &n)) != NULL)
		if (used->leased_until <= latest &&
			(best == NULL || used->leased_until > best->leased_until))
			best = used;
	if (best != NULL)
		return best->node_number;
	if (unused_number(registry, here, choice, &result))
		return result;
	n = begin_used(registry, choice);
	while ((used = next_used(registry, choice, &n)) != NULL)
		if (best == NULL || used->leased_until < best->leased_until)
			best = used;
	return best->node_number;
}

static SimError
check_holder(const SimRegistry *registry, const SimAcquire *in, bool own,
			 TimestampTz now)
{
	TimestampTz earlier_clock = Min(in->clock, now);
	Key			first = {{in->first_number, 0, 0}};
	const SimRow *row;

	for (int n = count_lower(registry, BY_OPEN_END, first);
		 (row = nth_row(registry, BY_OPEN_END, n)) != NULL &&
		 row->node_number <= in->last_number;
		 n++)
		if (row->leased_until > earlier_clock && row->start != in->node.start &&
			!(own && row->system_identifier == registry->row.system_identifier))
			return SIM_NUMBER_HELD;
	return SIM_OK;
}

static SimError
choose_number(const SimRegistry *registry, const SimHere *here,
			  const SimAcquire *in, bool own, TimestampTz now, uint64 *result)
{
	Choice		choice = {in->first_number, in->last_number, 1};
	uint64		bit = 1 - registry->row.generation % 2;

	if (in->fixed)
	{
		SimError	error = check_holder(registry, in, own, now);

		if (error == SIM_OK)
			*result = choose_fixed(registry, here, &choice,
								   in->clock + in->max_ahead);
		return error;
	}
	if (choice.first == choice.last)
		return SIM_TOO_FEW_NUMBERS;
	choice.first += (choice.first & 1) != bit;
	choice.last -= (choice.last & 1) != bit;
	choice.step = 2;
	return choose_automatic(registry, here, &choice, in->clock, now, result);
}

/*
 * rules.sql: floors
 */

static TimestampTz
registry_floor(const SimRegistry *registry, int64 max_ahead, int64 tick)
{
	const SimRegistryRow *row = &registry->row;

	return Max(Max(row->created_at, row->counted_at) + max_ahead + tick,
			   row->starts_at);
}

/* node_floor DT_NOBEGIN: NULL. */
static SimError
lease_floor(const SimRegistry *registry, const SimAcquire *in,
			TimestampTz node_floor, TimestampTz *result)
{
	const SimRegistryRow *row = &registry->row;
	TimestampTz latest = in->clock + SECONDS(10);

	if (row->created_at > latest)
		return SIM_BEHIND_CREATION;
	if (row->counted_at > latest)
		return SIM_BEHIND_START;
	if (!TIMESTAMP_IS_NOBEGIN(row->starts_at) &&
		row->starts_at - in->max_ahead > latest)
		return SIM_BEHIND_START;
	if (node_floor > latest + in->max_ahead)
		return SIM_BEHIND_IDS;
	*result = Max(registry_floor(registry, in->max_ahead, in->tick), node_floor);
	return SIM_OK;
}

/*
 * server.sql
 */

static void
write_uses(SimRegistry *registry, SimUses uses, uint64 incarnation)
{
	registry->uses = uses;
	registry->uses_incarnation = incarnation;
}

static SimAnswer
answer(const SimRegistry *registry, const SimHere *here, SimReason reason)
{
	SimAnswer	result = {
		.reason = reason,
		.incarnation = registry->row.incarnation,
		.generation = registry->row.generation,
		.clock = here->clock
	};

	return result;
}

static SimError
start_fits(const SimStart *in)
{
	SimError	error = check_protocol(in->protocol);

	if (error != SIM_OK)
		return error;
	return is_time(in->clock) && is_max_ahead(in->max_ahead) &&
		is_tick(in->tick) ? SIM_OK : SIM_VALUE;
}

static SimError
start_server(SimRegistry *registry, const SimHere *here, const SimStart *in,
			 SimStarted *out)
{
	const SimRegistryRow *row = &registry->row;

	if (check_open(registry) == SIM_OK)
	{
		SimError	error = count_generation(registry, here, in->clock);

		if (error != SIM_OK)
			return error;
	}
	out->answer = answer(registry, here, SIM_YES);
	out->starts_at = Max(row->created_at, row->counted_at) + in->max_ahead +
		in->tick;
	out->uses = registry->uses;
	out->uses_incarnation = registry->uses == SIM_USES_OWN ?
		row->incarnation : registry->uses_incarnation;
	return SIM_OK;
}

SimError
sim_start_server(SimRegistry *registry, const SimHere *here,
				 const SimStart *in, SimStarted *out)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, registry, here,
										  start_fits(in));

	if (error == SIM_OK)
		error = start_server(registry, here, in, out);
	return end_transaction(&transaction, error);
}

static SimError
record_fits(const SimRecord *in)
{
	SimError	error = check_protocol(in->protocol);

	if (error != SIM_OK)
		return error;
	return in->incarnation != 0 && is_port(in->port) ? SIM_OK : SIM_VALUE;
}

static SimError
record_uses(SimRegistry *registry, const SimHere *here, const SimRecord *in,
			SimReason *reason)
{
	const SimRegistryRow *row = &registry->row;

	*reason = SIM_YES;
	if (registry->uses == SIM_USES_REGISTRY &&
		registry->uses_incarnation == in->incarnation)
		return SIM_OK;
	if ((registry->uses == SIM_USES_OWN ? row->incarnation :
		 registry->uses_incarnation) != in->uses)
	{
		*reason = SIM_REASON_USES;
		return SIM_OK;
	}
	if (check_open(registry) == SIM_OK &&
		lease_of_others(registry, row->system_identifier, in->host, in->port,
						here->clock) != NULL)
		return SIM_HAS_NODES;
	write_uses(registry, SIM_USES_REGISTRY, in->incarnation);
	return SIM_OK;
}

SimError
sim_record_uses(SimRegistry *registry, const SimHere *here,
				const SimRecord *in, SimAnswer *out)
{
	SimReason	reason;
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, registry, here,
										  record_fits(in));

	if (error == SIM_OK)
		error = record_uses(registry, here, in, &reason);
	if (error == SIM_OK)
		*out = answer(registry, here, reason);
	return end_transaction(&transaction, error);
}

/*
 * protocol.sql
 */

/* The greatest number of the layout is reserved. */
static bool
ended_fits(const SimEnded *ended)
{
	if (TIMESTAMP_IS_NOBEGIN(ended->ids_end_at) && ended->incarnation == 0 &&
		ended->generation == 0)
		return true;
	return is_time(ended->ids_end_at) && ended->incarnation != 0 &&
		ended->generation >= 1;
}

static SimError
acquire_fits(const SimAcquire *in, bool own)
{
	SimError	error = check_protocol(in->node.protocol);

	if (error != SIM_OK)
		return error;
	return is_node_call(&in->node, false, true) && is_time(in->clock) &&
		is_max_ahead(in->max_ahead) && is_tick(in->tick) &&
		is_window(in->window) &&
		in->first_number <= in->last_number &&
		in->last_number - in->first_number <= PG_UINT32_MAX &&
		in->last_number < snowflake_node_max(in->node.layout) &&
		ended_fits(&in->ended) &&
		is_time_or_null(in->starts_at) && is_time(in->launched_at) &&
		(in->program ? !own && !in->fixed :
		 is_port(in->port) && in->timeline >= 1) ? SIM_OK : SIM_VALUE;
}

/* Whether what is said of an incarnation and a generation is of this one. */
static bool
is_present(const SimRegistry *registry, uint64 incarnation, int generation)
{
	return incarnation == registry->row.incarnation &&
		generation == registry->row.generation;
}

/* The end of ids that this registry has in no row of this generation. */
static TimestampTz
floor_of_node(const SimRegistry *registry, const SimAcquire *in,
			  const SimRow *named)
{
	TimestampTz node_floor = in->starts_at;

	if (!is_present(registry, in->ended.incarnation, in->ended.generation))
		node_floor = Max(node_floor, in->ended.ids_end_at);
	if (in->node.lease.token != 0 &&
		!is_present(registry, named->incarnation, named->generation))
		node_floor = Max(node_floor, in->node.lease.ids_end_at);
	return node_floor;
}

/* Closes all open rows of a number. */
static void
close_number(SimRegistry *registry, const SimHere *here, uint64 node_number)
{
	const SimRow *row;

	while ((row = nth_row(registry, BY_OPEN_END,
						  find_last(registry, BY_OPEN_END, node_number))) != NULL &&
		   row->node_number == node_number)
		close_row(registry, row, here->clock);
}

static SimError
grant_lease(SimRegistry *registry, const SimHere *here, const SimAcquire *in,
			bool own, SimGranted *out)
{
	SimRegistryRow *row = &registry->row;
	TimestampTz now = own ? in->clock : here->clock;
	const SnowflakeLayout *layout = in->node.layout;
	SimError	error;
	SimRow		named;
	const SimRow *newest;
	const SimRow *last;
	TimestampTz renewed_at;
	TimestampTz layout_floor;
	TimestampTz node_floor;
	SimRow		lease = {
		.start = in->node.start,
		.granted_by = in->node.call,
		.last_call = in->node.call,
		.program = in->program,
		.host = in->host,
		.fixed = in->fixed,
		.layout = layout,
		.launched_at = in->launched_at,
		.closed_at = DT_NOBEGIN
	};

	if ((error = check_open(registry)) != SIM_OK ||
		(error = count_generation(registry, here, now)) != SIM_OK ||
		(error = check_root(registry)) != SIM_OK)
		return error;
	lease.incarnation = row->incarnation;
	lease.generation = row->generation;
	if (!in->program)
	{
		lease.system_identifier = own ? row->system_identifier : in->system_identifier;
		lease.port = in->port;
		lease.timeline = in->timeline;
	}
	if (own)
		write_uses(registry, SIM_USES_OWN, 0);
	else if ((error = check_source(registry, here, in)) != SIM_OK)
		return error;
	error = begin_call(registry, here, &in->node,
					   !TIMESTAMP_IS_NOBEGIN(in->node.lease.ids_end_at), &named);
	if (error != SIM_OK)
		return error;

	newest = newest_lease(registry);
	renewed_at = renewal_time(newest, now);
	error = check_layout(registry, newest, in, lease.system_identifier,
						 Min(in->clock, now), &layout_floor);
	if (error != SIM_OK)
		return error;
	node_floor = floor_of_node(registry, in, &named);
	error = lease_floor(registry, in, node_floor, &lease.starts_at);
	if (error != SIM_OK)
		return error;
	lease.starts_at = Max(lease.starts_at, layout_floor);
	if (in->fixed && (row->generation > 1 || row->taken_over.num > 0))
		lease.starts_at = Max(lease.starts_at, in->clock);
	if (newest != NULL && newest->layout != layout)
		close_layouts(registry, layout, now);
	if (own && node_floor > registry_floor(registry, in->max_ahead, in->tick))
		row->starts_at = Max(row->starts_at, node_floor);
	row->starts_at = Max(row->starts_at, layout_floor);

	error = choose_number(registry, here, in, own, now, &lease.node_number);
	if (error != SIM_OK)
		return error;
	close_number(registry, here, lease.node_number);
	last = find_number(registry, lease.node_number);
	if (last != NULL)
		lease.starts_at = Max(lease.starts_at, last->leased_until);
	if (Max(lease.starts_at, in->clock) >= layout_ends_at(layout))
		return SIM_LAYOUT_ENDED;

	/* nothing fails from here on */
	lease.token = new_uuid(here);
	lease.leased_until = Min(Max(in->clock, lease.starts_at) + in->window,
							 layout_ends_at(layout));
	lease.greatest_id = greatest_id(lease.leased_until, layout);
	lease.renewed_at = renewed_at;
	add_row(registry, &lease);
	out->answer = answer(registry, here, SIM_YES);
	out->token = lease.token;
	out->node_number = lease.node_number;
	out->starts_at = lease.starts_at;
	out->leased_until = lease.leased_until;
	return SIM_OK;
}

SimError
sim_acquire_lease(SimRegistry *registry, const SimHere *here,
				  const SimAcquire *in, SimGranted *out)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, registry, here,
										  acquire_fits(in, false));

	if (error == SIM_OK)
		error = grant_lease(registry, here, in, false, out);
	return end_transaction(&transaction, error);
}

SimError
sim_acquire_own_lease(SimRegistry *registry, const SimHere *here,
					  const SimAcquire *in, SimGranted *out)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, registry, here,
										  acquire_fits(in, true));

	if (error == SIM_OK)
		error = grant_lease(registry, here, in, true, out);
	return end_transaction(&transaction, error);
}

static SimError
renew_fits(const SimRenew *in)
{
	SimError	error = check_protocol(in->node.protocol);

	if (error != SIM_OK)
		return error;
	return is_node_call(&in->node, true, false) && is_time(in->clock) &&
		is_window(in->window) ? SIM_OK : SIM_VALUE;
}

static SimReason
reason_against(const SimRegistry *registry, const SimRow *named)
{
	if (named->token == 0)
		return SIM_UNKNOWN;
	if (named->incarnation != registry->row.incarnation)
		return SIM_REASON_INCARNATION;
	if (named->generation != registry->row.generation)
		return SIM_REASON_GENERATION;
	if (named->closed)
		return SIM_REASON_CLOSED;
	/* a row that was restored, or taken over, since this one was granted */
	for (int n = find_last(registry, BY_END, named->node_number);; n--)
	{
		const SimRow *row = nth_row(registry, BY_END, n);

		if (row == NULL || row->node_number != named->node_number ||
			row->leased_until <= named->starts_at)
			return SIM_YES;
		if (row->token != named->token)
			return SIM_REASON_CLOSED;
	}
}

static SimError
renew_lease(SimRegistry *registry, const SimHere *here, const SimRenew *in,
			SimRenewed *out)
{
	SimError	error;
	SimRow		named;
	SimRow		to;
	const SimRow *newest;

	if ((error = check_open(registry)) != SIM_OK ||
		(error = count_generation(registry, here, here->clock)) != SIM_OK ||
		(error = check_root(registry)) != SIM_OK ||
		(error = begin_call(registry, here, &in->node, false, &named)) != SIM_OK)
		return error;
	out->answer = answer(registry, here, reason_against(registry, &named));
	out->leased_until = DT_NOBEGIN;
	if (out->answer.reason != SIM_YES)
		return SIM_OK;

	newest = newest_lease(registry);
	if (newest->layout != in->node.layout)
		return SIM_RENEW_LAYOUT;
	if (named.leased_until >= layout_ends_at(in->node.layout))
		return SIM_LAYOUT_ENDED;
	to = *find_token(registry, named.token);
	to.leased_until = Max(to.leased_until,
						  Min(Max(in->clock, to.starts_at) + in->window,
							  layout_ends_at(in->node.layout)));
	to.greatest_id = greatest_id(to.leased_until, in->node.layout);
	to.renewed_at = renewal_time(newest, here->clock);
	change_row(registry, find_token(registry, named.token), &to);
	out->leased_until = to.leased_until;
	return SIM_OK;
}

SimError
sim_renew_lease(SimRegistry *registry, const SimHere *here,
				const SimRenew *in, SimRenewed *out)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, registry, here,
										  renew_fits(in));

	if (error == SIM_OK)
		error = renew_lease(registry, here, in, out);
	return end_transaction(&transaction, error);
}

static SimError
release_fits(const SimNodeCall *in)
{
	SimError	error = check_protocol(in->protocol);

	if (error != SIM_OK)
		return error;
	return is_node_call(in, true, true) ? SIM_OK : SIM_VALUE;
}

static SimError
release_lease(SimRegistry *registry, const SimHere *here,
			  const SimNodeCall *in, SimAnswer *out)
{
	SimError	error;
	SimRow		named;

	if ((error = check_open(registry)) != SIM_OK ||
		(error = count_generation(registry, here, here->clock)) != SIM_OK ||
		(error = begin_call(registry, here, in, true, &named)) != SIM_OK)
		return error;
	*out = answer(registry, here, named.token == 0 ? SIM_UNKNOWN :
				  named.closed ? SIM_REASON_CLOSED : SIM_YES);
	return SIM_OK;
}

SimError
sim_release_lease(SimRegistry *registry, const SimHere *here,
				  const SimNodeCall *in, SimAnswer *out)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, registry, here,
										  release_fits(in));

	if (error == SIM_OK)
		error = release_lease(registry, here, in, out);
	return end_transaction(&transaction, error);
}

SimError
sim_list_leases(const SimRegistry *registry, int64 after_number,
				TimestampTz after_until, int max_rows, SimPage *out)
{
	const SimRegistryRow *row = &registry->row;
	Key			after = {{after_number, sortable(after_until), PG_UINT64_MAX}};
	const SimRow *next;
	int			n;

	memset(out, 0, sizeof(*out));
	if (!registry->exists)
		return SIM_NO_TABLE;
	if (after_number < -1 || !is_time_or_null(after_until))
		return SIM_VALUE;
	if (registry->has_row &&
		(row->database == registry->oid || row->successor != 0))
		out->incarnation = row->incarnation;
	out->uses = registry->uses;
	out->uses_incarnation = registry->uses_incarnation;
	out->rows = allocate(registry->num_leases, sizeof(SimRow *));
	n = after_number < 0 ? 0 : count_lower(registry, BY_END, after);
	while ((next = nth_row(registry, BY_END, n++)) != NULL)
	{
		const SimRow *last = out->num_rows == 0 ? NULL : out->rows[out->num_rows - 1];

		/* with ties */
		if (out->num_rows >= max_rows &&
			(next->node_number != last->node_number ||
			 next->leased_until != last->leased_until))
			break;
		out->rows[out->num_rows++] = next;
	}
	out->has_next = out->num_rows >= max_rows;
	return SIM_OK;
}

/*
 * moving.sql
 */

static SimError
close_registry(SimRegistry *registry, const SimHere *here, uint64 successor)
{
	SimRegistryRow *row = &registry->row;
	SimError	error;

	if (successor == 0 || successor == row->incarnation)
		return SIM_SUCCESSOR_IS_SELF;
	if (row->successor == successor)
		return SIM_OK;
	if ((error = check_open(registry)) != SIM_OK ||
		(error = count_generation(registry, here, here->clock)) != SIM_OK)
		return error;
	row->successor = successor;
	row->closed_at = here->clock;
	row->closed_by = here->transaction;
	return SIM_OK;
}

SimError
sim_close_registry(SimRegistry *registry, const SimHere *here,
				   uint64 successor)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, registry, here, SIM_OK);

	if (error == SIM_OK)
		error = close_registry(registry, here, successor);
	return end_transaction(&transaction, error);
}

/* The newest row of a layout and that with its greatest id. */
typedef struct RowsOfLayout
{
	const SnowflakeLayout *layout;
	int			newest;
	int			greatest;
} RowsOfLayout;

/* Marks for each layout the newest row and that with the greatest id. */
static void
mark_layouts(const SimRegistry *registry, bool *marked)
{
	const SimRow *leases = registry->leases;
	RowsOfLayout *layouts = allocate(registry->num_leases, sizeof(RowsOfLayout));
	int			num = 0;

	for (int i = 0; i < registry->num_leases; i++)
	{
		const SimRow *row = &leases[i];
		RowsOfLayout *l;
		int			n = 0;

		if (!may_have_issued(row))
			continue;
		while (n < num && layouts[n].layout != row->layout)
			n++;
		l = &layouts[n];
		if (n == num)
		{
			num++;
			*l = (RowsOfLayout)
			{
				row->layout, i, i
			};
		}
		if (row->renewed_at > leases[l->newest].renewed_at ||
			(row->renewed_at == leases[l->newest].renewed_at && row->token < leases[l->newest].token))
			l->newest = i;
		if (row->greatest_id > leases[l->greatest].greatest_id ||
			(row->greatest_id == leases[l->greatest].greatest_id && row->token < leases[l->greatest].token))
			l->greatest = i;
	}
	for (int n = 0; n < num; n++)
		marked[layouts[n].newest] = marked[layouts[n].greatest] = true;
	free(layouts);
}

/* Marks for each number the row that ends last. */
static void
mark_numbers(const SimRegistry *registry, bool *marked)
{
	const SimRow *row;

	for (int n = registry->indexes->all[BY_END].num - 1; n >= 0;)
	{
		row = nth_row(registry, BY_END, n);
		/* of those that end together the one with the least token */
		n = count_lower(registry, BY_END, make_key(row->node_number, sortable(row->leased_until), 0));
		marked[nth_row(registry, BY_END, n) - registry->leases] = true;
		n = count_lower(registry, BY_END, make_key(row->node_number, 0, 0)) - 1;
	}
}

static int
compare_renewals(const void *a, const void *b)
{
	const SimRow *one = a;
	const SimRow *other = b;

	if (one->renewed_at != other->renewed_at)
		return one->renewed_at < other->renewed_at ? -1 : 1;
	return one->token < other->token ? -1 : one->token > other->token;
}

SimError
sim_closed_registry(const SimRegistry *registry, const SimHere *here,
					bool history, SimClosedRegistry *out)
{
	const SimRegistryRow *row = &registry->row;
	bool	   *marked;

	memset(out, 0, sizeof(*out));
	if (!registry->exists)
		return SIM_NO_TABLE;
	if (!registry->has_row)
		return SIM_NO_REGISTRY_ROW;
	if (row->successor == 0)
		return SIM_NOT_CLOSED;
	if (here->transaction != 0 && row->closed_by == here->transaction)
		return SIM_NOT_COMMITTED;
	marked = allocate(registry->num_leases, sizeof(bool));
	memset(marked, history, registry->num_leases);
	mark_numbers(registry, marked);
	mark_layouts(registry, marked);

	out->protocol = SIM_PROTOCOL;
	out->incarnation = row->incarnation;
	out->successor = row->successor;
	out->taken_over = row->taken_over;
	out->created_at = row->created_at;
	out->generation = row->generation;
	out->floor = Max(row->starts_at, row->counted_at);
	out->rows = allocate(registry->num_leases, sizeof(SimRow));
	for (int i = 0; i < registry->num_leases; i++)
	{
		SimRow		taken = registry->leases[i];

		if (!marked[i])
			continue;
		if (!taken.closed)
			taken.closed_at = row->closed_at;
		taken.closed = true;
		out->rows[out->num_rows++] = taken;
	}
	qsort(out->rows, out->num_rows, sizeof(SimRow), compare_renewals);
	free(marked);
	return SIM_OK;
}

/* incarnations: of registries that are taken over.  Opens closed tables. */
static void
add_taken_over(SimRegistry *registry, const SimHere *here,
			   uint64 incarnation, const SimUuids *those_of_it,
			   TimestampTz starts_at)
{
	SimRegistryRow *row = &registry->row;

	add_uuid(&row->taken_over, incarnation);
	for (int i = 0; those_of_it != NULL && i < those_of_it->num; i++)
		add_uuid(&row->taken_over, those_of_it->uuids[i]);
	row->starts_at = starts_at;
	if (row->successor != 0)
	{
		add_uuid(&row->taken_over, row->incarnation);
		add_uuid(&row->told, row->incarnation);
		row->incarnation = new_uuid(here);
	}
	if (row->database != registry->oid)
		row->created_at = here->clock;
	row->database = registry->oid;
	row->successor = 0;
	row->closed_at = DT_NOBEGIN;
	row->closed_by = 0;
}

static SimError
closed_fits(const SimClosedRegistry *closed)
{
	SimError	error = check_protocol(closed->protocol);

	if (error != SIM_OK)
		return error;
	return closed->incarnation != 0 && closed->successor != 0 &&
		closed->generation >= 1 &&
		is_time(closed->created_at) && is_time_or_null(closed->floor) ?
		SIM_OK : SIM_VALUE;
}

/* A row that is here already keeps the later end. */
static void
take_row(SimRegistry *registry, const SimRow *taken)
{
	const SimRow *row = find_token(registry, taken->token);
	SimRow		to;

	if (row == NULL)
		add_row(registry, taken);
	else if (taken->leased_until > row->leased_until)
	{
		to = *row;
		to.leased_until = taken->leased_until;
		to.greatest_id = Max(row->greatest_id, taken->greatest_id);
		change_row(registry, row, &to);
	}
}

static SimError
take_over(SimRegistry *registry, const SimHere *here,
		  const SimClosedRegistry *closed, uint64 *incarnation)
{
	SimRegistryRow *row = &registry->row;
	bool		again = contains(&row->told, closed->incarnation);
	bool		reopens = row->successor != 0 &&
	contains(&closed->taken_over, row->incarnation) &&
	(row->successor == closed->incarnation ||
	 contains(&closed->taken_over, row->successor));
	TimestampTz latest;
	SimError	error;

	if (!reopens && (error = check_open(registry)) != SIM_OK)
		return error;
	if (closed->successor != row->incarnation &&
		!(again && contains(&row->taken_over, closed->successor)))
		return SIM_OTHER_SUCCESSOR;
	latest = again ? DT_NOBEGIN : Max(closed->floor, closed->created_at);
	if (latest > Max(here->clock + SECONDS(10), Max(row->starts_at, row->created_at)))
		return SIM_FLOOR_AHEAD;
	error = count_generation(registry, here, here->clock);
	if (error != SIM_OK)
		return error;
	for (int i = 0; i < closed->num_rows; i++)
		if (!row_fits(&closed->rows[i]))
			return SIM_ROW_REFUSED;

	/* nothing fails from here on */
	if (!again && (row->generation - closed->generation) % 2 != 0)
	{
		row->generation++;
		row->counted_at = Max(row->counted_at, here->clock);
	}
	for (int i = 0; i < closed->num_rows; i++)
		take_row(registry, &closed->rows[i]);
	add_taken_over(registry, here, closed->incarnation, &closed->taken_over,
				   again ? row->starts_at : Max(closed->floor, row->starts_at));
	if (!again)
		row->created_at = Max(row->created_at, closed->created_at);
	add_uuid(&row->told, closed->incarnation);
	*incarnation = row->incarnation;
	return SIM_OK;
}

SimError
sim_take_over(SimRegistry *registry, const SimHere *here,
			  const SimClosedRegistry *closed, uint64 *incarnation)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, registry, here,
										  closed_fits(closed));

	if (error == SIM_OK)
		error = take_over(registry, here, closed, incarnation);
	return end_transaction(&transaction, error);
}

static SimError
take_over_lost(SimRegistry *registry, const SimHere *here, uint64 lost,
			   uint64 *incarnation)
{
	SimRegistryRow *row = &registry->row;
	SimError	error;

	*incarnation = row->incarnation;
	if (lost == 0 || lost == row->incarnation)
		return SIM_TAKES_SELF;
	if (lost != row->successor && (error = check_open(registry)) != SIM_OK)
		return error;
	error = count_generation(registry, here, here->clock);
	if (error != SIM_OK)
		return error;
	add_taken_over(registry, here, lost, NULL, Max(row->starts_at, here->clock));
	*incarnation = row->incarnation;
	return SIM_OK;
}

SimError
sim_take_over_lost(SimRegistry *registry, const SimHere *here, uint64 lost,
				   uint64 *incarnation)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, registry, here, SIM_OK);

	if (error == SIM_OK)
		error = take_over_lost(registry, here, lost, incarnation);
	return end_transaction(&transaction, error);
}

static SimError
ids_end_before(SimRegistry *registry, const SimHere *here, TimestampTz at)
{
	SimRegistryRow *row = &registry->row;
	SimError	error;

	if (TIMESTAMP_NOT_FINITE(at))
		return SIM_TIME_NOT_FINITE;
	if (check_open(registry) == SIM_OK &&
		(error = count_generation(registry, here, here->clock)) != SIM_OK)
		return error;
	row->created_at = Min(row->created_at, at);
	row->counted_at = Min(row->counted_at, at);
	row->starts_at = Min(row->starts_at, at);
	return SIM_OK;
}

SimError
sim_ids_end_before(SimRegistry *registry, const SimHere *here, TimestampTz at)
{
	Transaction transaction;
	SimError	error = begin_transaction(&transaction, registry, here, SIM_OK);

	if (error == SIM_OK)
		error = ids_end_before(registry, here, at);
	return end_transaction(&transaction, error);
}
