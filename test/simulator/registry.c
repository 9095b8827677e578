/*
 * registry.c
 *	  A twin of the extension snowflake_registry: what src/sql/registry does, in
 *	  plain C.
 *
 * The functions have the names and the order of those in SQL, so that the two
 * can be read side by side; test/t/051_registry_twin.pl runs the same calls on
 * both and compares answers, errors and tables.
 *
 * A call that fails changes nothing: the rows of registry and cluster are put
 * back, and numbers are changed only after the last check.  An order keeps a
 * copy of all, as it is rare.
 */
#include "postgres.h"

#include <math.h>

#include "utils/elog.h"
#include "utils/errcodes.h"

#include "registry.h"

#define SECONDS(s)	((int64) (s) * USECS_PER_SEC)

#define LONGEST_REFUSAL		SECONDS(10)
/* For clocks that differ: the longest window beyond the limit for ends. */
#define CLOCKS_DIFFER		SECONDS(10)
/* No lease starts later than this, and max_ahead, after the node's clock. */
#define LATEST_START		SECONDS(10)
#define LEAST_LIMIT			SECONDS(10)
#define GREATEST_LIMIT		(2 * USECS_PER_DAY)
#define DEFAULT_LIMIT		SECONDS(180)

const char *
sim_reason_name(SimReason reason)
{
	static const char *const names[NUM_SIM_REASONS] = {
		[SIM_NO_REASON] = "ok",
		[SIM_ROLLED_BACK] = "the tables were rolled back",
		[SIM_OTHER_INCARNATION] = "the lease is of another incarnation",
		[SIM_OTHER_GENERATION] = "the lease is of another generation",
		[SIM_NOT_OPEN] = "the lease is closed",
		[SIM_UNKNOWN] = "the lease is not on record",
		[SIM_OTHER_USES] = "another registry is on record",
		[SIM_PROTOCOL_UNKNOWN] = "the version of the protocol is not known",
		[SIM_CLOSED] = "the registry is closed",
		[SIM_NO_HISTORY] = "could not find the history of the timeline",
		[SIM_USES_ANOTHER] = "the registry's own cluster uses another registry",
		[SIM_OTHER_LAYOUT] = "the layout is not the one that ids are issued under",
		[SIM_REGISTRY_IS_SELF] = "the registry is the server itself",
		[SIM_OTHER_SOURCE] = "the cluster has used another registry",
		[SIM_CALL_LATE] = "the call arrived too late",
		[SIM_NO_NUMBER_FREE] = "no node number is free",
		[SIM_NUMBER_HELD] = "the number is held",
		[SIM_TOO_FEW_NUMBERS] = "too few node numbers",
		[SIM_BEHIND_CREATION] = "the clock is behind the creation of the extension",
		[SIM_BEHIND_START] = "the clock is behind the time that leases start at",
		[SIM_BEHIND_IDS] = "the clock is behind ids that the registry does not know of",
		[SIM_END_IS_PAST] = "the lease would end before it could be used",
		[SIM_EARLIER_GENERATION] = "the lease is of an earlier generation",
		[SIM_HAS_NODES] = "this cluster is the registry of other servers",
		[SIM_NO_TABLE] = "no table",
		[SIM_VALUE] = "a value is out of range",
		[SIM_HOT_STANDBY] = "the registry is a hot standby",
		[SIM_REPLICATION_ORIGIN] = "replication origin",
		[SIM_ISOLATION_LEVEL] = "isolation level",
		[SIM_LAYOUT_FULL] = "the timestamp field is full",
		[SIM_NO_SUCH_NUMBER] = "the number is none of the layout",
		[SIM_LAYOUT_NOT_GREATER] = "ids would not be greater",
		[SIM_LIMIT] = "the limit is out of range",
		[SIM_TIME_OUT_OF_RANGE] = "the time is out of range",
		[SIM_SUCCESSOR_IS_SELF] = "the successor is itself",
		[SIM_DIFFERENT_LAYOUTS] = "the registries have different layouts",
		[SIM_NOT_CLOSED] = "the registry is not closed",
		[SIM_NOT_COMMITTED] = "the closing is not committed",
		[SIM_OTHER_SUCCESSOR] = "the closed registry names another successor",
		[SIM_FLOOR_AHEAD] = "ids of the closed registry end later",
		[SIM_TAKES_SELF] = "a registry takes over another one"
	};

	return names[reason];
}

int
sim_reason_sqlerrcode(SimReason reason)
{
	switch (reason)
	{
		case SIM_NO_TABLE:
			return ERRCODE_INVALID_SCHEMA_NAME;
		case SIM_VALUE:
			return ERRCODE_INVALID_PARAMETER_VALUE;
		case SIM_NO_NUMBER_FREE:
			return ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
		default:
			return ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	}
}

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
	free(registry->numbers);
	free(registry->log);
	sim_registry_init(registry, registry->oid);
}

void
sim_registry_copy(SimRegistry *to, const SimRegistry *from)
{
	SimRegistry had = *to;

	if (to == from)
		return;
	had.numbers = make_room(had.numbers, &had.max_numbers, from->num_numbers, sizeof(SimNumber));
	had.log = make_room(had.log, &had.max_log, from->num_log, sizeof(SimLog));
	if (from->num_numbers > 0)
		memcpy(had.numbers, from->numbers, from->num_numbers * sizeof(SimNumber));
	if (from->num_log > 0)
		memcpy(had.log, from->log, from->num_log * sizeof(SimLog));
	*to = *from;
	to->numbers = had.numbers;
	to->max_numbers = had.max_numbers;
	to->log = had.log;
	to->max_log = had.max_log;
}

/*
 * tables.sql
 */

/* How many rows have lower numbers. */
static int
count_lower(const SimRegistry *registry, uint64 node_number)
{
	int			low = 0;
	int			high = registry->num_numbers;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (registry->numbers[middle].node_number < node_number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static SimNumber *
find_number(const SimRegistry *registry, uint64 node_number)
{
	int			i = count_lower(registry, node_number);

	return i < registry->num_numbers && registry->numbers[i].node_number == node_number ? &registry->numbers[i] : NULL;
}

const SimNumber *
sim_find_number(const SimRegistry *registry, uint64 node_number)
{
	return find_number(registry, node_number);
}

static SimLog *
find_log(const SimRegistry *registry, uint64 token)
{
	for (int i = registry->num_log - 1; i >= 0; i--)
		if (registry->log[i].token == token)
			return &registry->log[i];
	return NULL;
}

const SimLog *
sim_find_log(const SimRegistry *registry, uint64 token)
{
	return find_log(registry, token);
}

/* Where a lease of the log ends. */
TimestampTz
sim_end_of(const SimRegistry *registry, const SimLog *lease)
{
	return lease->leased_until != DT_NOBEGIN ? lease->leased_until :
		sim_find_number(registry, lease->node_number)->leased_until;
}

/* Where all leases of a number end; DT_NOBEGIN: it was never leased. */
static TimestampTz
end_of_number(const SimNumber *number)
{
	return number->token != 0 ? Max(number->ended_until, number->leased_until) : number->ended_until;
}

/* The row of a number, which is made if it is missing: merge_node_number(). */
static SimNumber *
merge_number(SimRegistry *registry, uint64 node_number, TimestampTz ended_until, TimestampTz recorded_until)
{
	SimNumber	new = {.node_number = node_number,.ended_until = DT_NOBEGIN,.recorded_until = DT_NOBEGIN};
	SimNumber  *number = find_number(registry, node_number);

	if (number == NULL)
	{
		int			i = count_lower(registry, node_number);

		registry->numbers = make_room(registry->numbers, &registry->max_numbers, registry->num_numbers + 1,
									  sizeof(SimNumber));
		number = &registry->numbers[i];
		memmove(number + 1, number, (registry->num_numbers++ - i) * sizeof(SimNumber));
		*number = new;
	}
	number->ended_until = Max(number->ended_until, ended_until);
	number->recorded_until = Max(number->recorded_until, recorded_until);
	return number;
}

void
sim_insert_number(SimRegistry *registry, const SimNumber *number)
{
	merge_number(registry, number->node_number, end_of_number(number), number->recorded_until);
}

/* close_restored(): a lease that was open when it was dumped ends where its number does, which was restored before. */
void
sim_insert_log(SimRegistry *registry, const SimLog *lease)
{
	const SimNumber *number = find_number(registry, lease->node_number);
	SimLog	   *row;

	registry->log = make_room(registry->log, &registry->max_log, registry->num_log + 1, sizeof(SimLog));
	row = &registry->log[registry->num_log++];
	*row = *lease;
	if (row->leased_until == DT_NOBEGIN && number->token != row->token)
		row->leased_until = number->ended_until;
}

static uint64
new_uuid(const SimHere *here)
{
	uint64		id;

	while ((id = here->new_uuid(here->random_state)) == 0)
		;
	return id;
}

/*
 * layouts.sql
 */

static int64
greatest_id(TimestampTz until, const SnowflakeLayout *layout)
{
	int64		ticks = Min((until - layout->epoch) / layout->tick_us, (int64) layout->max_tick + 1);

	return ticks <= 0 ? -1 : snowflake_tick_last_id(layout, ticks - 1);
}

static TimestampTz
first_time_above(int64 id, const SnowflakeLayout *layout)
{
	int64		tick = (id >> layout->shift[SNOWFLAKE_TIMESTAMP]) + 1;
	int128		begins = layout->epoch + (int128) tick * layout->tick_us;

	if (id < 0)
		return layout->epoch;
	return tick > (int64) layout->max_tick || begins > SIM_LAST_TIME ? DT_NOEND : (TimestampTz) begins;
}

/* Whether it has no tick after a time. */
static bool
is_full(const SnowflakeLayout *layout, TimestampTz at)
{
	return first_time_above(greatest_id(at, layout), layout) == DT_NOEND;
}

static uint64
greatest_number(const SnowflakeLayout *layout)
{
	return (UINT64CONST(1) << (layout->bits[SNOWFLAKE_DATACENTER] + layout->bits[SNOWFLAKE_WORKER] +
							   layout->bits[SNOWFLAKE_CLOCK])) - 1;
}

/* From when on ids are greater than those that leases of other layouts allowed; DT_NOBEGIN: there were none, or no id is. */
static TimestampTz
start_above(const SimCluster *cluster)
{
	TimestampTz above = cluster->layout == NULL || cluster->greatest_id < 0 ? DT_NOEND :
	first_time_above(cluster->greatest_id, cluster->layout);

	return above == DT_NOEND ? DT_NOBEGIN : above;
}

/* Whether a lease was granted here, not only restored. */
static bool
has_granted(const SimRegistry *registry)
{
	for (int i = 0; i < registry->num_numbers; i++)
		if (registry->numbers[i].granted_here)
			return true;
	return false;
}

/* keep_cluster().  Where leases start is in no dump, so it is computed again. */
void
sim_insert_cluster(SimRegistry *registry, const SimCluster *cluster)
{
	SimCluster *kept = &registry->cluster;

	if (!cluster->exists)
		return;
	if (!kept->exists)
		*kept = *cluster;
	if (kept->uses == SIM_USES_NOTHING && !has_granted(registry))
	{
		kept->uses = cluster->uses;
		kept->incarnation = cluster->incarnation;
	}
	if (kept->layout == NULL)
		kept->layout = cluster->layout;
	kept->greatest_id = Max(kept->greatest_id, cluster->greatest_id);
	registry->row.starts_at = Max(registry->row.starts_at, start_above(kept));
}

/*
 * calls.sql
 */

static bool
is_time(TimestampTz at)
{
	return at >= SIM_FIRST_TIME && at <= SIM_LAST_TIME;
}

static bool
is_time_or_null(TimestampTz at)
{
	return TIMESTAMP_IS_NOBEGIN(at) || is_time(at);
}

/* check_call().  ends: a lease must be named, and the end of its ids. */
static bool
is_node_call(const SimNodeCall *call, bool named, bool ends)
{
	const SimNamedLease *lease = &call->lease;

	if (call->protocol < 1 || call->start == 0 || call->call < 1)
		return false;
	if (lease->token == 0)
		return !named;
	return lease->granted_by >= 1 && lease->granted_by < call->call && lease->node_number <= PG_INT64_MAX &&
		lease->incarnation != 0 && lease->generation >= 1 && is_time(lease->leased_until) &&
		(ends ? is_time(lease->ids_end_at) : is_time_or_null(lease->ids_end_at));
}

static bool
is_node_clock(TimestampTz clock, int64 max_ahead, int64 window)
{
	return is_time(clock) && max_ahead >= 0 && max_ahead <= USECS_PER_DAY + USECS_PER_SEC &&
		window >= 1 && window <= GREATEST_LIMIT;
}

static bool
is_acquire(const SimAcquire *in)
{
	return is_node_call(&in->node, false, false) && is_node_clock(in->clock, in->max_ahead, in->window) &&
		in->last_number <= PG_INT64_MAX && in->first_number <= in->last_number && !(in->program && in->fixed) &&
		is_time_or_null(in->starts_at) && is_time_or_null(in->ids_end_at) && is_time(in->launched_at);
}

static SimAnswer
answer(const SimRegistry *registry, const SimHere *here, SimAnswerKind kind, SimReason reason)
{
	SimAnswer	result = {
		.kind = kind,
		.reason = reason,
		.incarnation = registry->row.incarnation,
		.generation = registry->row.generation,
		.clock = here->clock,
	};

	return result;
}

static SimAnswer
refuse(const SimRegistry *registry, const SimHere *here, SimReason reason, int64 wait)
{
	SimAnswer	result = answer(registry, here, SIM_REFUSED, reason);

	result.wait = Min(Max(wait, 0), LONGEST_REFUSAL);
	return result;
}

static SimAnswer
fail(SimReason error)
{
	SimAnswer	result = {.kind = SIM_ERROR,.reason = error};

	return result;
}

/*
 * rules.sql: the lock
 */

static SimReason
lock_registry(SimRegistry *registry, const SimHere *here)
{
	SimRegistryRow *row = &registry->row;

	if (!registry->exists)
		return SIM_NO_TABLE;
	if (here->in_recovery)
		return SIM_HOT_STANDBY;
	if (here->replication_origin)
		return SIM_REPLICATION_ORIGIN;
	if (here->other_isolation)
		return SIM_ISOLATION_LEVEL;
	if (row->database != registry->oid && row->successor == 0)
	{
		row->incarnation = new_uuid(here);
		row->database = registry->oid;
		row->created_at = here->clock;
	}
	return SIM_NO_REASON;
}

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

/*
 * Closing
 */

/* Closes the open lease of a number at a time, which is at or before its end. */
static void
close_lease(SimRegistry *registry, SimNumber *number, TimestampTz end)
{
	SimNumber	closed = {
		.node_number = number->node_number,
		.ended_until = Max(number->ended_until, end),
		.recorded_until = number->recorded_until,
		.granted_here = true
	};
	SimLog	   *lease = find_log(registry, number->token);

	if (lease != NULL)
		lease->leased_until = end;
	*number = closed;
}

static void
close_all_leases(SimRegistry *registry)
{
	for (int i = 0; i < registry->num_numbers; i++)
		if (registry->numbers[i].token != 0)
			close_lease(registry, &registry->numbers[i], registry->numbers[i].leased_until);
}

/*
 * Generations
 */

int64
sim_longest_window(const SimRegistryRow *row, TimestampTz now)
{
	return Max(row->end_limit, row->old_limit_until > now ? row->old_limit : 0) + CLOCKS_DIFFER;
}

static bool
is_counted(const SimHistory *counted, const SimHistoryEntry *entry)
{
	for (int i = 0; i < counted->num_entries; i++)
		if (counted->entries[i].timeline == entry->timeline && counted->entries[i].switched_at == entry->switched_at)
			return true;
	return false;
}

/* One new entry, the last one, of the timeline before the present one, and places that never go down. */
static bool
is_plain(const SimHere *here, const SimHistory *new)
{
	const SimHistory *history = here->history;
	const SimHistoryEntry *last = &history->entries[history->num_entries - 1];

	if (new->num_entries != 1 || memcmp(&new->entries[0], last, sizeof(*last)) != 0 ||
		last->timeline != here->timeline - 1)
		return false;
	for (int i = 1; i < history->num_entries; i++)
		if (history->entries[i].switched_at < history->entries[i - 1].switched_at)
			return false;
	return true;
}

static SimReason
count_generation(SimRegistry *registry, const SimHere *here, TimestampTz now)
{
	SimRegistryRow *row = &registry->row;
	bool		first = row->timeline == 0;
	bool		upgraded = !first && row->system_identifier != here->system_identifier;
	int64		window = sim_longest_window(row, now);
	SimHistory	new = {0};

	if (row->system_identifier == here->system_identifier && row->timeline == here->timeline)
		return SIM_NO_REASON;
	if (here->history == NULL)
		return SIM_NO_HISTORY;
	for (int i = 0; i < here->history->num_entries; i++)
		if (!is_counted(&row->counted, &here->history->entries[i]))
			new.entries[new.num_entries++] = here->history->entries[i];
	if (first || (upgraded && new.num_entries == 0))
		;						/* no promotion */
	else if (!is_plain(here, &new))
		row->starts_at = Max(row->starts_at, now + window);
	else if (row->counted_at != DT_NOBEGIN && row->counted_at + window > now)
		row->starts_at = Max(row->starts_at, row->counted_at + window);
	for (int i = 0; i < new.num_entries; i++)
	{
		if (row->counted.num_entries == SIM_MAX_HISTORY)
			abort();
		row->counted.entries[row->counted.num_entries++] = new.entries[i];
	}
	row->generation += new.num_entries;
	row->system_identifier = here->system_identifier;
	row->timeline = here->timeline;
	if (!first)
		row->counted_at = Max(row->counted_at, now);
	row->mark = 0;
	if (upgraded)
		close_all_leases(registry);
	return SIM_NO_REASON;
}

/*
 * The promotions of before are counted at once: what a standby that has the new tables is promoted with is one more.
 * Without the history there are no tables.
 */
SimReason
sim_create_extension(SimRegistry *registry, const SimHere *here)
{
	SimRegistryRow row = {
		.database = registry->oid,
		.created_at = here->clock,
		.generation = 1,
		.counted_at = DT_NOBEGIN,
		.starts_at = DT_NOBEGIN,
		.end_limit = DEFAULT_LIMIT,
		.old_limit_until = DT_NOBEGIN,
		.closed_at = DT_NOBEGIN
	};

	if (registry->exists)
		return SIM_NO_REASON;
	if (here->history == NULL)
		return SIM_NO_HISTORY;
	sim_registry_free(registry);
	registry->exists = true;
	registry->row = row;
	registry->row.incarnation = new_uuid(here);
	registry->cluster.greatest_id = -1;
	return count_generation(registry, here, here->clock);
}

void
sim_drop_extension(SimRegistry *registry)
{
	sim_registry_free(registry);
}

/* Where leases of this generation start, by what may be in no row of it. */
static TimestampTz
generation_starts_at(const SimRegistryRow *row, int64 max_ahead)
{
	TimestampTz counted = row->counted_at == DT_NOBEGIN ? DT_NOBEGIN : row->counted_at + Min(max_ahead, LATEST_START);

	return Max(counted, row->starts_at);
}

/*
 * Which registry a cluster uses
 */

static SimReason
check_cluster(const SimRegistry *registry, TimestampTz now, const SnowflakeLayout *layout)
{
	const SimCluster *cluster = &registry->cluster;

	if (cluster->incarnation != 0 && !contains(&registry->row.taken_over, cluster->incarnation))
		return SIM_USES_ANOTHER;
	if (cluster->layout != NULL)
		return cluster->layout != layout ? SIM_OTHER_LAYOUT : SIM_NO_REASON;
	return is_full(layout, now) ? SIM_LAYOUT_FULL : SIM_NO_REASON;
}

static bool
accepts(const SimRegistryRow *row, uint64 incarnation)
{
	return incarnation == row->incarnation || contains(&row->taken_over, incarnation);
}

static SimReason
check_source(const SimRegistry *registry, const SimHere *here, const SimAcquire *in)
{
	if (here->launched_at == in->launched_at && !in->program &&
		in->system_identifier == registry->row.system_identifier)
		return SIM_REGISTRY_IS_SELF;
	return in->uses != 0 && !accepts(&registry->row, in->uses) ? SIM_OTHER_SOURCE : SIM_NO_REASON;
}

/* Where a lease of the start ends that a call shows to be over. */
static TimestampTz
shown_end(const SimRegistry *registry, const SimNumber *number, const SimNamedLease *named)
{
	if (number->incarnation != registry->row.incarnation)
		return number->leased_until;
	if (number->token == named->token)
		return Min(number->leased_until, Max(number->starts_at, named->ids_end_at));
	return named->token != 0 && number->granted_by > named->granted_by ? number->starts_at : number->leased_until;
}

/*
 * Closes the open leases of a start that a call shows to be over.  named: the open lease that is named, as it was;
 * its token is 0 if it is not on record.
 */
static SimReason
close_leases_of_start(SimRegistry *registry, const SimNodeCall *call, SimNumber *named)
{
	memset(named, 0, sizeof(*named));
	for (int i = 0; i < registry->num_numbers; i++)
	{
		const SimNumber *number = &registry->numbers[i];

		if (number->token == 0 || number->start != call->start)
			continue;
		if (call->call <= number->last_call)
			return SIM_CALL_LATE;
		if (number->token == call->lease.token)
			*named = *number;
	}
	if (named->token != 0 && named->granted_by != call->lease.granted_by)
		return SIM_VALUE;
	for (int i = 0; i < registry->num_numbers; i++)
	{
		SimNumber  *number = &registry->numbers[i];

		if (number->token == 0 || number->start != call->start ||
			(number->token == call->lease.token && call->lease.ids_end_at == DT_NOBEGIN))
			continue;
		close_lease(registry, number, shown_end(registry, number, &call->lease));
	}
	return SIM_NO_REASON;
}

/*
 * A call that names this incarnation and generation, and a later end than was ever on record for its number: the
 * tables were rolled back, or another server grants the same leases.
 */
static bool
is_rolled_back(SimRegistry *registry, TimestampTz now, const SimNamedLease *named)
{
	SimNumber  *number = find_number(registry, named->node_number);

	if (named->token == 0 || named->incarnation != registry->row.incarnation ||
		named->generation != registry->row.generation ||
		(number != NULL && named->leased_until <= number->recorded_until))
		return false;
	if (number != NULL && number->token == named->token)
		close_lease(registry, number, number->leased_until);
	if ((number == NULL || number->token == 0) &&
		(registry->cluster.layout == NULL || named->node_number <= greatest_number(registry->cluster.layout)))
		merge_number(registry, named->node_number, Min(named->leased_until, now + registry->row.end_limit), DT_NOBEGIN);
	return true;
}

/*
 * Choosing a number
 */

/* From 0 to below count, as SQL makes them of random(). */
static uint64
draw_below(const SimHere *here, uint64 count)
{
	double		random = ldexp((double) (here->random(here->random_state) >> 11), -53);

	return Min((uint64) floor(random * (double) count), count - 1);
}

/* All open leases that are over by both clocks; or those among 16, from a start on that is drawn. */
static void
close_leases_that_are_over(SimRegistry *registry, const SimHere *here, TimestampTz clock, bool all)
{
	uint64		from = all ? 0 : here->from_start;
	SimNumber  *last = NULL;

	for (int n = 0; all ? n < registry->num_numbers : n < 16; n++)
	{
		SimNumber  *next = all ? &registry->numbers[n] : NULL;

		for (int i = 0; !all && i < registry->num_numbers; i++)
		{
			SimNumber  *number = &registry->numbers[i];

			/* by start and number; what was closed just now has no start */
			if (number->token != 0 && number->start >= from && (last == NULL || number > last || number->start > from) &&
				(next == NULL || number->start < next->start))
				next = number;
		}
		if (next == NULL)
			return;
		from = all ? 0 : next->start;
		last = next;
		if (next->token != 0 && next->leased_until <= clock - (all ? 0 : SECONDS(60)))
			close_lease(registry, next, next->leased_until);
	}
}

/* One of the numbers first, first + 2, ... up to last that was never leased: of 16 at random, or of all. */
static bool
unused_number(const SimRegistry *registry, const SimHere *here, uint64 first, uint64 last, bool all, uint64 *number)
{
	uint64		count = (last - first) / 2 + 1;

	for (uint64 i = 0; i < (all ? count : 16); i++)
	{
		*number = first + 2 * (all ? i : draw_below(here, count));
		if (find_number(registry, *number) == NULL)
			return true;
	}
	return false;
}

static bool
longest_unused(const SimRegistry *registry, uint64 first, uint64 last, TimestampTz node_clock, uint64 *found)
{
	const SimNumber *longest = NULL;

	for (int i = count_lower(registry, first); i < registry->num_numbers; i++)
	{
		const SimNumber *number = &registry->numbers[i];

		if (number->node_number <= last && number->token == 0 && (number->node_number & 1) == (first & 1) &&
			number->ended_until <= node_clock && (longest == NULL || number->ended_until < longest->ended_until))
			longest = number;
	}
	if (longest != NULL)
		*found = longest->node_number;
	return longest != NULL;
}

/* wait: until the earliest end of all. */
static SimReason
choose_automatic(SimRegistry *registry, const SimHere *here, uint64 first, uint64 last, TimestampTz node_clock,
				 TimestampTz now, uint64 *found, int64 *wait)
{
	TimestampTz clock = Min(node_clock, now);
	TimestampTz earliest = DT_NOEND;

	close_leases_that_are_over(registry, here, clock, false);
	if (unused_number(registry, here, first, last, false, found) ||
		longest_unused(registry, first, last, node_clock, found))
		return SIM_NO_REASON;
	close_leases_that_are_over(registry, here, clock, true);
	if (longest_unused(registry, first, last, node_clock, found) ||
		unused_number(registry, here, first, last, true, found))
		return SIM_NO_REASON;
	for (int i = count_lower(registry, first); i < registry->num_numbers; i++)
		if (registry->numbers[i].node_number <= last && (registry->numbers[i].node_number & 1) == (first & 1))
			earliest = Min(earliest, end_of_number(&registry->numbers[i]));
	*wait = earliest - clock;
	return SIM_NO_NUMBER_FREE;
}

/*
 * Of the node's own numbers: the last one in which ids can go on, else one that was never leased, else the one
 * that ends first.
 */
static uint64
best_fixed(const SimRegistry *registry, uint64 first, uint64 last, TimestampTz latest)
{
	const SimNumber *goes_on = NULL;
	const SimNumber *ends_first = NULL;
	uint64		unused = first;

	for (int i = count_lower(registry, first); i < registry->num_numbers; i++)
	{
		const SimNumber *number = &registry->numbers[i];
		TimestampTz end = end_of_number(number);

		if (number->node_number > last)
			break;
		unused += number->node_number == unused;
		if (end <= latest && (goes_on == NULL || end > end_of_number(goes_on)))
			goes_on = number;
		if (ends_first == NULL || end < end_of_number(ends_first))
			ends_first = number;
	}
	if (goes_on != NULL)
		return goes_on->node_number;
	return unused <= last ? unused : ends_first->node_number;
}

static SimReason
choose_fixed(const SimRegistry *registry, const SimAcquire *in, bool own, TimestampTz now, uint64 *found, int64 *wait)
{
	TimestampTz clock = Min(in->clock, now);

	for (int i = registry->num_numbers - 1; i >= 0; i--)
	{
		const SimNumber *number = &registry->numbers[i];

		if (number->node_number < in->first_number || number->node_number > in->last_number || number->token == 0 ||
			number->leased_until <= clock || number->start == in->node.start || (own && number->own))
			continue;
		*wait = number->leased_until - clock;
		return SIM_NUMBER_HELD;
	}
	*found = best_fixed(registry, in->first_number, in->last_number, in->clock + in->max_ahead);
	return SIM_NO_REASON;
}

static SimReason
choose_number(SimRegistry *registry, const SimHere *here, const SimAcquire *in, bool own, TimestampTz now,
			  uint64 *found, int64 *wait)
{
	uint64		bit = 1 - registry->row.generation % 2;

	if (in->fixed)
		return choose_fixed(registry, in, own, now, found, wait);
	*wait = LONGEST_REFUSAL;
	if (in->first_number == in->last_number)
		return SIM_TOO_FEW_NUMBERS;
	return choose_automatic(registry, here, in->first_number + ((in->first_number & 1) != bit),
							in->last_number - ((in->last_number & 1) != bit), in->clock, now, found, wait);
}

/*
 * Where a lease starts
 */
static SimReason
lease_starts_at(const SimRegistryRow *row, const SimAcquire *in, TimestampTz node_floor, TimestampTz *starts_at,
				int64 *wait)
{
	TimestampTz latest = in->clock + LATEST_START + in->max_ahead;
	TimestampTz created = row->created_at + in->max_ahead;
	TimestampTz generation = generation_starts_at(row, in->max_ahead);

	*starts_at = Max(Max(created, generation), node_floor);
	*wait = (created > latest ? created : generation > latest ? generation : node_floor) - latest;
	return created > latest ? SIM_BEHIND_CREATION : generation > latest ? SIM_BEHIND_START :
		node_floor > latest ? SIM_BEHIND_IDS : SIM_NO_REASON;
}

/*
 * protocol.sql
 */

/* What a call that fails puts back. */
typedef struct Former
{
	SimRegistryRow row;
	SimCluster	cluster;
} Former;

static SimAnswer
end_call(SimRegistry *registry, const Former *former, SimAnswer result)
{
	if (result.kind == SIM_ERROR)
	{
		registry->row = former->row;
		registry->cluster = former->cluster;
	}
	return result;
}

/*
 * The head of a call: the registry is locked and has counted its promotions.  False: it does not grant and renew, and
 * the answer says why.
 */
static bool
begin_call(SimRegistry *registry, const SimHere *here, bool is_valid, int protocol, TimestampTz clock, Former *former,
		   SimAnswer *result)
{
	SimReason	reason;

	former->row = registry->row;
	former->cluster = registry->cluster;
	/* the values of a later version may be others */
	reason = !registry->exists ? SIM_NO_TABLE : !is_valid && protocol <= SIM_PROTOCOL ? SIM_VALUE :
		lock_registry(registry, here);
	if (reason != SIM_NO_REASON)
	{
		*result = fail(reason);
		return false;
	}
	reason = protocol > SIM_PROTOCOL ? SIM_PROTOCOL_UNKNOWN : registry->row.successor != 0 ? SIM_CLOSED :
		count_generation(registry, here, clock);
	*result = refuse(registry, here, reason, LONGEST_REFUSAL);
	return reason == SIM_NO_REASON;
}

/* A late call waits for nothing; what SQL raises as an error is one. */
static SimAnswer
refuse_start(const SimRegistry *registry, const SimHere *here, SimReason reason)
{
	return reason == SIM_VALUE ? fail(reason) : refuse(registry, here, reason, 0);
}

/* The end of all ids that a node knows of, and the tables may not. */
static TimestampTz
node_floor(const SimRegistryRow *row, const SimAcquire *in)
{
	const SimNamedLease *named = &in->node.lease;

	if (named->token != 0 && named->incarnation == row->incarnation && named->generation == row->generation)
		return in->starts_at;
	return Max(in->starts_at, Max(in->ids_end_at, named->token != 0 ? named->ids_end_at : DT_NOBEGIN));
}

/* Grants the lease: closes what is open of its number, writes the row, and the log. */
static SimAnswer
open_lease(SimRegistry *registry, const SimHere *here, const SimAcquire *in, bool own, uint64 node_number,
		   TimestampTz starts_at, TimestampTz now)
{
	SimNumber  *number = find_number(registry, node_number);
	SimAnswer	result = answer(registry, here, SIM_YES, SIM_NO_REASON);
	SimLog		lease = {0};
	TimestampTz from;
	TimestampTz until;

	if (number != NULL)
		starts_at = Max(starts_at, end_of_number(number));
	from = Max(in->clock, starts_at);
	until = Min(from + in->window, now + registry->row.end_limit);
	if (until <= from)
		return refuse(registry, here, SIM_END_IS_PAST, from - now - registry->row.end_limit);
	if (number == NULL && in->last_number > greatest_number(in->node.layout))
		return refuse(registry, here, SIM_NO_SUCH_NUMBER, LONGEST_REFUSAL);
	number = merge_number(registry, node_number, DT_NOBEGIN, DT_NOBEGIN);
	if (number->token != 0)
		close_lease(registry, number, number->leased_until);
	number->recorded_until = Max(number->recorded_until, until);
	number->token = lease.token = result.token = new_uuid(here);
	number->start = lease.start = in->node.start;
	number->granted_by = number->last_call = in->node.call;
	number->granted_here = true;
	number->own = own;
	number->fixed = in->fixed;
	number->system_identifier = lease.system_identifier = in->program ? 0 : in->system_identifier;
	number->role = lease.role = here->role;
	number->incarnation = lease.incarnation = registry->row.incarnation;
	number->generation = lease.generation = registry->row.generation;
	number->starts_at = lease.starts_at = result.starts_at = starts_at;
	number->leased_until = result.leased_until = until;
	lease.node_number = result.node_number = node_number;
	lease.layout = in->node.layout;
	lease.leased_until = DT_NOBEGIN;
	sim_insert_log(registry, &lease);
	return result;
}

/* Ids of other starts of the server's cluster end at or before this; DT_NOBEGIN: they have ended.  clock: the earlier one. */
static TimestampTz
cluster_ids_end_at(const SimRegistry *registry, const SimAcquire *in, TimestampTz clock)
{
	const SimRegistryRow *row = &registry->row;
	TimestampTz end = row->counted_at == DT_NOBEGIN ? DT_NOBEGIN : row->counted_at + CLOCKS_DIFFER + Min(in->max_ahead, LATEST_START);

	for (int i = 0; i < registry->num_numbers; i++)
	{
		const SimNumber *number = &registry->numbers[i];

		if (number->token != 0 && number->system_identifier == in->system_identifier && number->start != in->node.start)
			end = Max(end, number->leased_until);
	}
	for (int i = 0; i < registry->num_log; i++)
	{
		const SimLog *lease = &registry->log[i];

		if (lease->system_identifier == in->system_identifier && lease->start != in->node.start)
			end = Max(end, lease->leased_until);
	}
	return end > clock ? end : DT_NOBEGIN;
}

/* The first lease records the default layout; the first of the own server, that its tables are used. */
static void
record_lease(SimCluster *cluster, bool own, const SnowflakeLayout *layout)
{
	cluster->exists = true;
	if (cluster->layout == NULL)
		cluster->layout = layout;
	if (own)
	{
		cluster->uses = SIM_USES_OWN;
		cluster->incarnation = 0;
	}
}

/* What follows the head of the call.  now: the registry's clock; that of its own server is the same. */
static SimAnswer
grant_lease(SimRegistry *registry, const SimHere *here, const SimAcquire *in, bool own, TimestampTz now)
{
	SimRegistryRow *row = &registry->row;
	SimReason	reason = check_cluster(registry, here->clock, in->node.layout);
	SimNumber	named;
	TimestampTz floor;
	TimestampTz starts_at;
	uint64		number;
	int64		wait;
	bool		rolled_back;
	SimAnswer	result;

	if (reason == SIM_NO_REASON && !own)
		reason = check_source(registry, here, in);
	if (reason != SIM_NO_REASON)
		return refuse(registry, here, reason, LONGEST_REFUSAL);
	reason = close_leases_of_start(registry, &in->node, &named);
	if (reason != SIM_NO_REASON)
		return refuse_start(registry, here, reason);
	floor = node_floor(row, in);
	rolled_back = is_rolled_back(registry, now, &in->node.lease);
	if (rolled_back)
		floor = Max(floor, in->node.lease.leased_until);
	reason = lease_starts_at(row, in, floor, &starts_at, &wait);
	if (in->fixed && (row->generation > 1 || row->taken_over.num > 0))
		starts_at = Max(starts_at, in->clock);
	if (reason == SIM_NO_REASON)
		reason = choose_number(registry, here, in, own, now, &number, &wait);
	result = reason != SIM_NO_REASON ? refuse(registry, here, reason, wait) :
		open_lease(registry, here, in, own, number, starts_at, now);
	result.warned = rolled_back;
	if (result.kind != SIM_YES)
		return result;
	record_lease(&registry->cluster, own, in->node.layout);
	/* where the tables are its own, what a node knows is all ids */
	if (own)
		row->starts_at = Max(row->starts_at, floor);
	result.cluster_ids_end_at = in->program ? DT_NOBEGIN : cluster_ids_end_at(registry, in, Min(in->clock, now));
	return result;
}

static SimAnswer
acquire(SimRegistry *registry, const SimHere *here, const SimAcquire *in, bool own)
{
	TimestampTz now = own ? in->clock : here->clock;
	Former		former;
	SimAnswer	result;

	if (begin_call(registry, here, is_acquire(in), in->node.protocol, now, &former, &result))
		result = grant_lease(registry, here, in, own, now);
	return end_call(registry, &former, result);
}

SimAnswer
sim_acquire_lease(SimRegistry *registry, const SimHere *here, const SimAcquire *in)
{
	return acquire(registry, here, in, false);
}

SimAnswer
sim_acquire_own_lease(SimRegistry *registry, const SimHere *here, const SimAcquire *in)
{
	return acquire(registry, here, in, true);
}

/* Why a lease is not renewed; the kind is SIM_YES if it is to be. */
static SimAnswer
check_renewal(SimRegistry *registry, const SimHere *here, const SimRenew *in, const SimNumber *number, TimestampTz now)
{
	const SimRegistryRow *row = &registry->row;
	const SimNamedLease *named = &in->node.lease;
	TimestampTz starts_at = generation_starts_at(row, in->max_ahead);
	SimAnswer	result;

	if (number->token != 0 && number->incarnation == row->incarnation && number->generation == row->generation &&
		number->starts_at >= number->ended_until && named->leased_until <= number->recorded_until)
		return answer(registry, here, SIM_YES, SIM_NO_REASON);
	/* nothing would be granted instead: it uses up what it has */
	if (named->incarnation == row->incarnation && named->generation < row->generation &&
		named->leased_until > in->clock && starts_at > in->clock + in->max_ahead)
		return refuse(registry, here, SIM_EARLIER_GENERATION, starts_at - in->clock - in->max_ahead);
	result = answer(registry, here, SIM_NO, named->incarnation != row->incarnation ? SIM_OTHER_INCARNATION :
					named->generation != row->generation ? SIM_OTHER_GENERATION : SIM_NOT_OPEN);
	result.warned = is_rolled_back(registry, now, named);
	if (result.warned)
		result.reason = SIM_ROLLED_BACK;
	return result;
}

static SimAnswer
renew(SimRegistry *registry, const SimHere *here, const SimRenew *in)
{
	SimReason	reason = check_cluster(registry, here->clock, in->node.layout);
	SimNumber	named;
	SimNumber  *number;
	TimestampTz now;
	TimestampTz from;
	SimAnswer	result;

	if (reason != SIM_NO_REASON)
		return refuse(registry, here, reason, LONGEST_REFUSAL);
	reason = close_leases_of_start(registry, &in->node, &named);
	if (reason != SIM_NO_REASON)
		return refuse_start(registry, here, reason);
	now = named.token != 0 && named.own ? in->clock : here->clock;
	result = check_renewal(registry, here, in, &named, now);
	if (result.kind != SIM_YES)
		return result;
	from = Max(in->clock, named.starts_at);
	result.leased_until = Max(named.leased_until, Min(from + in->window, now + registry->row.end_limit));
	if (result.leased_until <= from)
		return refuse(registry, here, SIM_END_IS_PAST, from - now - registry->row.end_limit);
	number = find_number(registry, named.node_number);
	number->leased_until = result.leased_until;
	number->recorded_until = Max(number->recorded_until, result.leased_until);
	number->last_call = in->node.call;
	return result;
}

SimAnswer
sim_renew_lease(SimRegistry *registry, const SimHere *here, const SimRenew *in)
{
	Former		former;
	SimAnswer	result;

	if (begin_call(registry, here, is_node_call(&in->node, true, false) && is_node_clock(in->clock, in->max_ahead, in->window),
				   in->node.protocol, here->clock, &former, &result))
		result = renew(registry, here, in);
	return end_call(registry, &former, result);
}

SimAnswer
sim_release_lease(SimRegistry *registry, const SimHere *here, const SimNodeCall *in)
{
	Former		former;
	SimNumber	named;
	SimAnswer	result;
	SimReason	reason;

	if (!begin_call(registry, here, is_node_call(in, true, true), in->protocol, here->clock, &former, &result))
		return end_call(registry, &former, result);
	reason = close_leases_of_start(registry, in, &named);
	if (reason != SIM_NO_REASON)
		result = refuse_start(registry, here, reason);
	else if (named.token == 0)
		result = answer(registry, here, SIM_NO, SIM_UNKNOWN);
	else
		result = answer(registry, here, SIM_YES, SIM_NO_REASON);
	return end_call(registry, &former, result);
}

/*
 * server.sql
 */

SimAnswer
sim_start_server(SimRegistry *registry, const SimHere *here, const SimStart *in)
{
	SimRegistryRow *row = &registry->row;
	SimReason	reason = lock_registry(registry, here);
	SimAnswer	result;
	bool		is_copy = false;

	if (reason != SIM_NO_REASON)
		return fail(reason);
	if (row->successor == 0)
	{
		reason = count_generation(registry, here, in->clock);
		if (reason != SIM_NO_REASON)
			return refuse(registry, here, reason, LONGEST_REFUSAL);
		is_copy = row->mark != 0 && in->mark != 0 && row->mark != in->mark;
		if (in->mark != 0)
			row->mark = in->mark;
	}
	result = answer(registry, here, SIM_YES, SIM_NO_REASON);
	result.warned = is_copy;
	result.starts_at = Max(row->created_at, row->counted_at) + in->max_ahead;
	result.uses = registry->cluster.uses;
	result.uses_incarnation = registry->cluster.uses == SIM_USES_OWN ? row->incarnation : registry->cluster.incarnation;
	return result;
}

/* On a standby, which only reads: whether its own tables would refuse this server if it were promoted. */
SimAnswer
sim_check_promotion(const SimRegistry *registry, const SimHere *here, const SnowflakeLayout *layout)
{
	SimReason	reason = registry->row.successor != 0 ? SIM_CLOSED : check_cluster(registry, here->clock, layout);

	if (!registry->exists)
		return fail(SIM_NO_TABLE);
	return reason != SIM_NO_REASON ? refuse(registry, here, reason, LONGEST_REFUSAL) :
		answer(registry, here, SIM_YES, SIM_NO_REASON);
}

/* The last end of leases of other nodes; DT_NOBEGIN: there are none. */
static TimestampTz
end_of_nodes(const SimRegistry *registry)
{
	TimestampTz end = DT_NOBEGIN;

	for (int i = 0; i < registry->num_numbers; i++)
		if (registry->numbers[i].token != 0 && !registry->numbers[i].own)
			end = Max(end, registry->numbers[i].leased_until);
	return end;
}

SimAnswer
sim_record_uses(SimRegistry *registry, const SimHere *here, const SimRecord *in)
{
	SimCluster *cluster = &registry->cluster;
	SimReason	reason = lock_registry(registry, here);
	uint64		uses;

	if (reason != SIM_NO_REASON)
		return fail(reason);
	if (cluster->incarnation == in->incarnation)
		return answer(registry, here, SIM_YES, SIM_NO_REASON);
	uses = cluster->uses == SIM_USES_OWN ? registry->row.incarnation : cluster->incarnation;
	if (uses != in->uses)
		return answer(registry, here, SIM_NO, SIM_OTHER_USES);
	if (registry->row.successor == 0 && end_of_nodes(registry) > here->clock)
		return refuse(registry, here, SIM_HAS_NODES, end_of_nodes(registry) - here->clock);
	cluster->exists = true;
	cluster->uses = SIM_USES_REGISTRY;
	cluster->incarnation = in->incarnation;
	return answer(registry, here, SIM_YES, SIM_NO_REASON);
}

/*
 * orders.sql
 */

/* The head of an order: the registry is locked and has counted its promotions.  closed: it may be a closed one. */
static SimReason
begin_order(SimRegistry *former, SimRegistry *registry, const SimHere *here, bool closed)
{
	SimReason	reason;

	sim_registry_copy(former, registry);
	reason = lock_registry(registry, here);
	if (reason != SIM_NO_REASON)
		return reason;
	if (registry->row.successor != 0)
		return closed ? SIM_NO_REASON : SIM_CLOSED;
	return count_generation(registry, here, here->clock);
}

/* To an owner, what a registry cannot do is an error. */
static SimReason
end_order(SimRegistry *former, SimRegistry *registry, SimReason reason)
{
	if (reason != SIM_NO_REASON)
		sim_registry_copy(registry, former);
	sim_registry_free(former);
	return reason;
}

/* The end of all that may be issued under leases: on record, or lost by a failover. */
static TimestampTz
end_of_leases(const SimRegistry *registry, TimestampTz now)
{
	TimestampTz end = Max(registry->row.starts_at, now + sim_longest_window(&registry->row, now));

	for (int i = 0; i < registry->num_numbers; i++)
		end = Max(end, end_of_number(&registry->numbers[i]));
	return end;
}

static SimReason
change_layout(SimRegistry *registry, TimestampTz now, const SnowflakeLayout *layout)
{
	SimCluster *cluster = &registry->cluster;
	int64		greatest;
	TimestampTz starts_at;

	if (cluster->layout != layout && is_full(layout, now + sim_longest_window(&registry->row, now)))
		return SIM_LAYOUT_FULL;
	if (cluster->layout == layout || cluster->layout == NULL)
	{
		cluster->exists = true;
		cluster->layout = layout;
		return SIM_NO_REASON;
	}
	greatest = Max(cluster->greatest_id, greatest_id(end_of_leases(registry, now), cluster->layout));
	starts_at = first_time_above(greatest, layout);
	/* ticks are at most a second, and one of each layout may be in between */
	if (starts_at > now + sim_longest_window(&registry->row, now) + SECONDS(2))
		return SIM_LAYOUT_NOT_GREATER;
	close_all_leases(registry);
	cluster->layout = layout;
	cluster->greatest_id = greatest;
	registry->row.starts_at = Max(registry->row.starts_at, starts_at);
	return SIM_NO_REASON;
}

SimReason
sim_change_layout(SimRegistry *registry, const SimHere *here, const SnowflakeLayout *layout)
{
	SimRegistry former = {0};
	SimReason	reason = begin_order(&former, registry, here, false);

	if (reason == SIM_NO_REASON)
		reason = layout == NULL ? SIM_VALUE : change_layout(registry, here->clock, layout);
	return end_order(&former, registry, reason);
}

SimReason
sim_limit_leases(SimRegistry *registry, const SimHere *here, int64 limit)
{
	SimRegistryRow *row = &registry->row;
	SimRegistry former = {0};
	SimReason	reason = begin_order(&former, registry, here, false);
	int64		window = sim_longest_window(row, here->clock);

	if (reason == SIM_NO_REASON && (limit < LEAST_LIMIT || limit > GREATEST_LIMIT))
		reason = SIM_LIMIT;
	if (reason == SIM_NO_REASON)
	{
		bool		lowered = window > limit + CLOCKS_DIFFER;

		row->end_limit = limit;
		row->old_limit = lowered ? window - CLOCKS_DIFFER : 0;
		row->old_limit_until = lowered ? here->clock + window + CLOCKS_DIFFER : DT_NOBEGIN;
	}
	return end_order(&former, registry, reason);
}

SimReason
sim_ids_end_before(SimRegistry *registry, const SimHere *here, TimestampTz at)
{
	SimRegistryRow *row = &registry->row;
	SimRegistry former = {0};
	SimReason	reason = begin_order(&former, registry, here, true);

	if (reason == SIM_NO_REASON && !is_time(at))
		reason = SIM_TIME_OUT_OF_RANGE;
	if (reason == SIM_NO_REASON)
	{
		row->created_at = Min(row->created_at, at);
		row->counted_at = Min(row->counted_at, at);
		/* above the ids of another layout they stay */
		row->starts_at = Min(row->starts_at, Max(at, start_above(&registry->cluster)));
	}
	return end_order(&former, registry, reason);
}

/*
 * Ends what a role has taken and has open: the lease is closed, and ends at the later of the time and its start.
 * numbers: how many.
 */
SimReason
sim_role_ends_before(SimRegistry *registry, const SimHere *here, TimestampTz at, int role, int *numbers)
{
	SimRegistry former = {0};
	SimReason	reason = begin_order(&former, registry, here, false);

	*numbers = 0;
	if (reason == SIM_NO_REASON && !is_time(at))
		reason = SIM_TIME_OUT_OF_RANGE;
	for (int i = 0; reason == SIM_NO_REASON && i < registry->num_numbers; i++)
	{
		SimNumber  *number = &registry->numbers[i];
		TimestampTz end = Min(number->leased_until, Max(at, number->starts_at));

		if (number->token == 0 || number->role != role)
			continue;
		*numbers += 1;
		close_lease(registry, number, end);
	}
	return end_order(&former, registry, reason);
}

/*
 * refuse_to_move(): another layout; or a floor, of ids that are in no row of a closed registry, that is later than does
 * no harm.
 */
static SimReason
refuse_to_move(const SimRegistry *registry, const SnowflakeLayout *layout, TimestampTz floor, TimestampTz latest)
{
	const SnowflakeLayout *own = registry->cluster.layout;

	if (own != NULL && layout != NULL && own != layout)
		return SIM_DIFFERENT_LAYOUTS;
	return floor > latest ? SIM_FLOOR_AHEAD : SIM_NO_REASON;
}

SimReason
sim_close_registry(SimRegistry *registry, const SimHere *here, uint64 successor, const SnowflakeLayout *layout)
{
	SimRegistryRow *row = &registry->row;
	SimRegistry former = {0};
	SimReason	reason = begin_order(&former, registry, here, row->successor == successor);

	/* twice is as once */
	if (reason != SIM_NO_REASON || row->successor != 0)
		return end_order(&former, registry, reason);
	reason = successor == row->incarnation ? SIM_SUCCESSOR_IS_SELF :
		refuse_to_move(registry, layout, Max(row->created_at, Max(row->counted_at, row->starts_at)),
					   here->clock + sim_longest_window(row, here->clock));
	if (reason == SIM_NO_REASON)
	{
		row->successor = successor;
		row->closed_at = here->clock;
		row->closed_by = here->transaction;
	}
	return end_order(&former, registry, reason);
}

SimReason
sim_closed_registry(const SimRegistry *registry, const SimHere *here, SimClosedRegistry *out)
{
	const SimRegistryRow *row = &registry->row;

	memset(out, 0, sizeof(*out));
	if (!registry->exists)
		return SIM_NO_TABLE;
	if (row->successor == 0)
		return SIM_NOT_CLOSED;
	if (here->transaction != 0 && row->closed_by == here->transaction)
		return SIM_NOT_COMMITTED;
	out->incarnation = row->incarnation;
	out->successor = row->successor;
	out->taken_over = row->taken_over;
	out->created_at = row->created_at;
	out->generation = row->generation;
	out->counted_at = row->counted_at;
	out->starts_at = row->starts_at;
	out->limit = sim_longest_window(row, row->closed_at) - CLOCKS_DIFFER;
	out->layout = registry->cluster.layout;
	out->greatest_id = registry->cluster.exists ? registry->cluster.greatest_id : -1;
	out->ends = calloc(Max(registry->num_numbers, 1), sizeof(SimEnd));
	for (int i = 0; i < registry->num_numbers; i++)
	{
		SimEnd		end = {registry->numbers[i].node_number, end_of_number(&registry->numbers[i])};

		if (end.ended != DT_NOBEGIN)
			out->ends[out->num_ends++] = end;
	}
	return SIM_NO_REASON;
}

/* Adds to the registries that are taken over; opens own tables that are closed. */
static void
add_taken_over(SimRegistry *registry, const SimHere *here, const SimUuids *incarnations, uint64 told)
{
	SimRegistryRow *row = &registry->row;
	uint64		had = row->incarnation;
	bool		opened = row->successor != 0 || contains(incarnations, had);

	for (int i = 0; i < incarnations->num; i++)
		add_uuid(&row->taken_over, incarnations->uuids[i]);
	if (told != 0)
		add_uuid(&row->told, told);
	if (row->successor != 0)
		add_uuid(&row->told, had);
	if (opened)
	{
		add_uuid(&row->taken_over, had);
		row->incarnation = new_uuid(here);
	}
	if (row->database != registry->oid)
		row->created_at = here->clock;
	row->database = registry->oid;
	row->successor = 0;
	row->closed_at = DT_NOBEGIN;
	row->closed_by = 0;
}

static void
take_over_layout(SimCluster *cluster, const SimClosedRegistry *closed)
{
	if (cluster->layout == NULL)
		cluster->layout = closed->layout;
	cluster->greatest_id = Max(cluster->greatest_id, closed->greatest_id);
	cluster->exists = true;
}

static SimReason
take_over(SimRegistry *registry, const SimHere *here, const SimClosedRegistry *closed)
{
	SimRegistryRow *row = &registry->row;
	SimUuids	incarnations = closed->taken_over;
	TimestampTz now = here->clock;
	TimestampTz counted_at;
	int64		window;
	SimReason	reason;

	row->end_limit = Max(row->end_limit, closed->limit);
	window = sim_longest_window(row, now);
	reason = refuse_to_move(registry, closed->layout, Max(closed->created_at, Max(closed->counted_at, closed->starts_at)),
							Max(now + window, Max(row->starts_at, row->created_at)));
	if (reason != SIM_NO_REASON)
		return reason;
	for (int i = 0; i < closed->num_ends; i++)
		merge_number(registry, closed->ends[i].node_number, closed->ends[i].ended, DT_NOBEGIN);
	take_over_layout(&registry->cluster, closed);
	add_uuid(&incarnations, closed->incarnation);
	add_taken_over(registry, here, &incarnations, closed->incarnation);
	reason = count_generation(registry, here, now);
	counted_at = Max(row->counted_at, closed->counted_at);
	row->created_at = Max(row->created_at, closed->created_at);
	row->counted_at = counted_at;
	row->starts_at = Max(row->starts_at, closed->starts_at);
	if ((row->generation - closed->generation) % 2 == 0)
		return reason;
	/* the other parity: as a plain promotion */
	row->generation++;
	row->counted_at = Max(counted_at, now);
	if (counted_at != DT_NOBEGIN && counted_at + window > now)
		row->starts_at = Max(row->starts_at, counted_at + window);
	return reason;
}

SimReason
sim_take_over(SimRegistry *registry, const SimHere *here, const SimClosedRegistry *closed)
{
	SimRegistryRow *row = &registry->row;
	SimRegistry former = {0};
	bool		again = contains(&row->told, closed->incarnation);
	bool		reopens = row->successor != 0 && contains(&closed->taken_over, row->incarnation) &&
	(row->successor == closed->incarnation || contains(&closed->taken_over, row->successor));
	SimReason	reason = begin_order(&former, registry, here, reopens);

	/*
	 * the second time, it names the incarnation with which these tables were
	 * closed
	 */
	if (reason == SIM_NO_REASON && closed->successor != row->incarnation &&
		!(again && contains(&row->taken_over, closed->successor)))
		reason = SIM_OTHER_SUCCESSOR;
	if (reason == SIM_NO_REASON && !again)
		reason = take_over(registry, here, closed);
	return end_order(&former, registry, reason);
}

SimReason
sim_take_over_lost(SimRegistry *registry, const SimHere *here, uint64 lost)
{
	SimRegistryRow *row = &registry->row;
	SimUuids	incarnations = {1, {lost}};
	SimRegistry former = {0};
	SimReason	reason = begin_order(&former, registry, here, lost != 0 && lost == row->successor);

	if (reason == SIM_NO_REASON &&
		(lost == 0 || (lost == row->incarnation && lost != registry->cluster.incarnation)))
		reason = SIM_TAKES_SELF;
	if (reason == SIM_NO_REASON)
	{
		add_taken_over(registry, here, &incarnations, 0);
		row->starts_at = Max(row->starts_at, here->clock + sim_longest_window(row, here->clock));
	}
	return end_order(&former, registry, reason);
}
