/*
 * checker.c
 *	  What must hold.  It sees every id when the call that asked for it returns, every lease
 *	  when it is durable, and the lease worker's memory after each of its runs.
 *
 *	  unique		no id of a layout twice, and no tick of a node number under two leases
 *	  ordered		an id is greater than all that were returned before its call began
 *	  honest		its tick begins at most max_ahead after the latest clock the call has read
 *	  covered		it is in a lease of its server's start that is durable, and stays so
 *	  invariant		an unsealed word stands under a limit that a durable lease covers
 *	  apart			a lease starts at or after the ends of all others of its number, which are closed; no
 *					two leases that are open in servers' memory allow the same id; the generation never
 *					goes back
 *	  recorded		a word is open with a registry only after the own tables say that it is used
 *	  closed		a registry that was closed carries out no call of a node (calls.c)
 *	  root			a registry whose own cluster uses another one leases nothing
 *	  moved			a cluster that has issued ids gets leases only of a registry that has taken over the one
 *					before; when that is so and the settings name it, no node is refused as one that used
 *					another
 *	  true			a call says how far ids may be ahead, and how long their ticks are (calls.c)
 *	  held			no call is granted a number that another start holds by the clocks of both
 *	  in bounds		a lease ends at most a window past its begin and the clock, the first one of an automatic
 *					number ten seconds; no id has the number that is reserved
 *	  above			after a change of the default layout, leases allow only ids that are greater than those of
 *					the layouts before
 *	  not behind	an id's tick is not before the clock that the call has read last
 *	  after others	the settled id of a start waits for all ids that earlier starts of its cluster have issued with the
 *					registry; ids of a lease are later than those, if that makes nobody wait
 *	  not refused	see judge.c
 *	  not asleep	when nothing has gone wrong for minutes, each server issues ids in all layouts, or
 *					says why not
 *
 * Ids must differ in a deployment, and a cluster belongs to one from its first lease there: ids that two
 * registries had issued before one of them took the other over may be equal.  So each lease has a
 * lineage, which is a registry from one take-over to the next.
 */
#include "sim.h"

#include "ids/generator.h"
#include "ids/word.h"

typedef struct CheckedLease
{
	uint64		token;
	uint64		start;
	uint64		incarnation;	/* of the registry */
	int			lineage;
	int			cluster;		/* that granted it */
	uint64		reign;			/* there */
	uint64		node;
	const SnowflakeLayout *layout;	/* the server's default */
	uint64		system_identifier;	/* the server's */
	TimestampTz starts_at;
	TimestampTz asked_clock;	/* the server's when it asked */
	int64		max_ahead;		/* that it told: with the longest tick */
	TimestampTz others_issued;	/* the end of ids of earlier starts of the
								 * cluster: see end_of_others() */
	TimestampTz others_end_at;	/* the end that it was told of leases of
								 * theirs; DT_NOBEGIN: none */
	bool		must_follow;	/* its ids are later than theirs */
	TimestampTz stood_at;		/* the greatest begin of a word that was
								 * opened a tick later than the lease starts */
	bool		fixed;
	TimestampTz until;			/* as it is durable now */
	int64		over_at;		/* it is over by then, as doc/operations.md
								 * says: a longest window of its registry
								 * after world.now when it was granted or
								 * renewed last */
	TimestampTz issued;			/* the end of its ids */
	TimestampTz issued_in[MAX_SIM_LAYOUTS]; /* of those of a layout */
	int64		greatest;		/* of its ids in the default layout; -1: there
								 * are none */
	int64		granted_at;		/* world.now */
	bool		forgotten;		/* no table need tell of it any more */
	bool		layout_is_lost; /* nor of its layout: see lose_layouts() */
	bool		is_opened;
} CheckedLease;

typedef struct CheckedServer
{
	CheckedLease *leases;
	int			num_leases;
	int			max_leases;
	uint64		last_node[MAX_SIM_LAYOUTS]; /* of the greatest id returned, */
	int64		last_id[MAX_SIM_LAYOUTS];	/* which is this */
	TimestampTz issued;			/* the time of its latest id */
	int64		issued_at;		/* true time of the last id */
	int64		max_ahead;		/* when it changes while a call lasts: the
								 * greater */
	SimReason	error;			/* of the last call that grants or refuses */
	int64		error_at;
	int			sqlerrcode;		/* of the last backend that got no id */
	char		message[128];
} CheckedServer;

/* Of the call that a backend is making. */
typedef struct CheckedCall
{
	uint64		node;
	int64		id;
	int64		max_ahead;
	int64		offset;			/* of the clock */
	int64		begun_at;
} CheckedCall;

static CheckedServer servers[MAX_SERVERS];
static CheckedCall calls[MAX_SERVERS][MAX_PROCESSES];

/*
 * Lineages.  Their ids must differ from those of the ones in the mask: themselves, what they have taken
 * over, and what takes them over.
 */
#define MAX_LINEAGES	64
#define MAX_INCARNATIONS 4096

static int	num_lineages;
static uint64 before[MAX_LINEAGES]; /* themselves, and what they took over */
static uint64 differing[MAX_LINEAGES];

static struct
{
	uint64		incarnation;
	int			lineage;
}			incarnations[MAX_INCARNATIONS];
static int	num_incarnations;
static int	roots[MAX_SERVERS]; /* of each cluster: that of its first own
								 * tables; -1: there were none */

/* The numbers that others held before the call that is carried out. */
#define MAX_HELD	256

static uint64 held[MAX_HELD];
static int	num_held;

/*
 * A set of keys with a value: open addressing.
 */
typedef struct Entry
{
	uint64		key;
	uint64		value;
} Entry;

typedef struct Table
{
	Entry	   *entries;
	uint64		size;			/* a power of 2 */
	uint64		used;
} Table;

static Table ids;				/* layout and id: a mask of lineages */
static Table ticks;				/* layout, node number and tick: token and
								 * lineage */

/* The entry of a key; its value is 0 if it is new. */
static Entry *
find(Table *table, uint64 key)
{
	uint64		i;

	if (2 * table->used >= table->size)
	{
		Table		larger = {.size = Max(4 * table->size, 4096)};

		larger.entries = calloc(larger.size, sizeof(Entry));
		for (uint64 j = 0; j < table->size; j++)
			if (table->entries[j].value != 0)
			{
				for (i = mix(table->entries[j].key) & (larger.size - 1); larger.entries[i].value != 0;
					 i = (i + 1) & (larger.size - 1))
					;
				larger.entries[i] = table->entries[j];
			}
		larger.used = table->used;
		free(table->entries);
		*table = larger;
	}
	for (i = mix(key) & (table->size - 1); table->entries[i].value != 0; i = (i + 1) & (table->size - 1))
		if (table->entries[i].key == key)
			return &table->entries[i];
	table->entries[i].key = key;
	return &table->entries[i];
}

static void
put(Table *table, Entry *entry, uint64 value)
{
	entry->value = value;
	table->used++;
}

void
checker_begin(void)
{
	memset(servers, 0, sizeof(servers));
	memset(calls, 0, sizeof(calls));
	memset(&ids, 0, sizeof(ids));
	memset(&ticks, 0, sizeof(ticks));
	num_lineages = num_incarnations = 0;
	memset(roots, -1, sizeof(roots));
	for (int i = 0; i < MAX_SERVERS; i++)
	{
		servers[i].issued = DT_NOBEGIN;
		for (int j = 0; j < MAX_SIM_LAYOUTS; j++)
			servers[i].last_id[j] = -1;
	}
}

void
checker_free(void)
{
	for (int i = 0; i < MAX_SERVERS; i++)
		free(servers[i].leases);
	free(ids.entries);
	free(ticks.entries);
	memset(servers, 0, sizeof(servers));
}

static CheckedLease *lease_of_token(const Server *server, uint64 token);

/*
 * Lineages
 */
static int
lineage_of(uint64 incarnation)
{
	for (int i = num_incarnations - 1; i >= 0; i--)
		if (incarnations[i].incarnation == incarnation)
			return incarnations[i].lineage;
	return -1;
}

/* The newest lineage of an incarnation counts. */
static void
name_lineage(uint64 incarnation, int lineage)
{
	if (num_incarnations == MAX_INCARNATIONS)
		abort();
	incarnations[num_incarnations].incarnation = incarnation;
	incarnations[num_incarnations++].lineage = lineage;
}

/* A lineage that begins with all that is in a mask. */
static int
make_lineage(uint64 mask)
{
	int			lineage = num_lineages++;

	if (lineage == MAX_LINEAGES)
		abort();
	before[lineage] = differing[lineage] = mask | UINT64CONST(1) << lineage;
	for (int i = 0; i < lineage; i++)
		if (mask >> i & 1)
			differing[i] |= UINT64CONST(1) << lineage;
	return lineage;
}

/* Whether there is room for another take-over. */
bool
check_can_merge(void)
{
	return num_lineages < MAX_LINEAGES - MAX_SERVERS;
}

/* The tables of a server may have a new incarnation: they go on as what they were before. */
void
check_incarnation(Server *server)
{
	uint64		incarnation = server->tables.row.incarnation;

	int		   *root = &roots[server->cluster];

	if (!server->tables.exists || incarnation == server->incarnation)
		return;
	if (server->incarnation == 0 && *root < 0)
		*root = make_lineage(0);
	if (lineage_of(incarnation) < 0)
		name_lineage(incarnation, server->incarnation == 0 ? *root : lineage_of(server->incarnation));
	server->incarnation = incarnation;
}

/* What is made now has nothing to do with the nodes of tables that were closed, and dropped. */
void
check_separated(Server *server)
{
	server->incarnation = 0;
	roots[server->cluster] = -1;
}

/*
 * A node has dropped its own tables: the next ones differ from all that was before, but nodes that have used
 * the former ones can go on elsewhere (A4).
 */
void
check_branched(Server *server)
{
	int			lineage = lineage_of(server->incarnation);

	if (lineage < 0)
		return;
	server->incarnation = 0;
	roots[server->cluster] = make_lineage(before[lineage]);
}

/* The registry with the first incarnation has taken over the second one. */
void
check_merged(uint64 incarnation, uint64 taken)
{
	int			to = lineage_of(incarnation);
	int			from = lineage_of(taken);

	if (to < 0 || from < 0 || (before[to] & before[from]) == before[from])
		return;
	name_lineage(incarnation, make_lineage(before[to] | before[from]));
}

static bool
must_differ(int a, int b)
{
	return (differing[a] >> b & 1) != 0;
}

/*
 * Leases
 */

/* Whether the tables have an end of a number that is not before this one. */
bool
check_is_told(const SimRegistry *tables, uint64 node_number, TimestampTz end)
{
	const SimNumber *number = sim_find_number(tables, node_number);

	return number != NULL && Max(number->ended_until, number->token != 0 ? number->leased_until : DT_NOBEGIN) >= end;
}

static bool
is_told(const SimRegistry *tables, const CheckedLease *lease)
{
	return check_is_told(tables, lease->node, lease->until);
}

/* When a lease is over, as doc/operations.md says.  A clock that may show anything must show its end. */
static int64
over_at(const CheckedLease *lease)
{
	return world.plan->right_clocks ? lease->over_at : lease->until;
}

/* Its registry has granted or renewed the lease, and is not stopped yet. */
static void
count_window(CheckedLease *lease, const Server *server, const Server *registry)
{
	int64		window = world.plan->breaks == BREAK_SHORT_WAIT ? MILLISECONDS(server->conf.lease_duration) :
	sim_longest_window(&registry->tables.row, server_clock(registry));

	lease->over_at = Max(lease->over_at, world.now + window);
}

/*
 * When all leases are over, as doc/operations.md says, that a cluster has granted, but for these reigns, or a
 * registry that it has taken over; DT_NOBEGIN: there are none.  Where clocks are not right, those that are in its
 * tables do not count.
 */
int64
check_former_end(int cluster, const SimRegistry *tables, uint64 reign, uint64 other_reign)
{
	int64		end = DT_NOBEGIN;
	int			lineage = lineage_of(tables->row.incarnation);
	uint64		taken = lineage < 0 ? 0 : before[lineage];

	for (int i = 0; i < world.num_servers; i++)
		for (int j = 0; j < servers[i].num_leases; j++)
		{
			CheckedLease *lease = &servers[i].leases[j];

			if (over_at(lease) <= end)
				continue;
			if (lease->cluster != cluster && (taken >> lease->lineage & 1) && !lease->forgotten &&
				(world.plan->right_clocks || !is_told(tables, lease)))
				end = over_at(lease);
			if (lease->cluster != cluster || lease->reign == reign || lease->reign == other_reign)
				continue;
			if (world.plan->right_clocks || !is_told(tables, lease))
				end = over_at(lease);
		}
	return end;
}

/*
 * The same of all leases of an incarnation, of what it has taken over and of what has taken it over, but for
 * those that a registry knows which is to take it over.
 */
int64
check_end_of(uint64 incarnation, uint64 successor)
{
	int64		end = DT_NOBEGIN;
	int			lineage = lineage_of(incarnation);
	uint64		known = before[lineage_of(successor)];

	for (int i = 0; i < world.num_servers && lineage >= 0; i++)
		for (int j = 0; j < servers[i].num_leases; j++)
		{
			const CheckedLease *lease = &servers[i].leases[j];

			if (must_differ(lineage, lease->lineage) && !(known >> lease->lineage & 1))
				end = Max(end, over_at(lease));
		}
	return end;
}

/* A cluster that has issued ids goes on only with a registry that knows of them. */
static void
check_source(const Server *server, CheckedLease *opened)
{
	opened->is_opened = true;
	for (int i = 0; i < world.num_servers; i++)
		for (int j = 0; j < servers[i].num_leases && world.servers[i].cluster == server->cluster; j++)
		{
			const CheckedLease *lease = &servers[i].leases[j];

			if (lease->issued != DT_NOBEGIN && !lease->forgotten && !(before[opened->lineage] >> lease->lineage & 1))
				sim_fail(server, "server %d has a lease of a registry that has not taken over the one of number "
						 UINT64_FORMAT " before", server->index, lease->node);
		}
}

/*
 * A lease is opened for the first time.  So that nobody waits, that is where it starts, or where the clock allows an id and
 * before its end.  Readers wait for the ids of earlier starts.
 */
static void
check_opening(const Server *server, const SnowflakeMachine *m, CheckedLease *lease)
{
	int64		max_ahead = (int64) server->shared->settings.max_ahead.value;
	int64		longest_tick = 0;

	for (int i = 0; i < server->shared->num_slots; i++)
		longest_tick = Max(longest_tick, server->shared->slots[i].layout.tick_us);
	/* the setting may have changed since it asked */
	lease->must_follow = lease->others_end_at < m->lease.leased_until &&
		lease->others_end_at <= lease->asked_clock + Min(max_ahead, lease->max_ahead - longest_tick);
	if (m->lease.opens_at < lease->starts_at ||
		(m->lease.opens_at > lease->starts_at && (m->lease.opens_at >= m->lease.leased_until ||
												  m->lease.opens_at > lease->asked_clock + Max(max_ahead, lease->max_ahead))))
		sim_fail(server, "server %d opens its lease of number " UINT64_FORMAT ", from %s until %s, at %s; its clock showed %s", server->index,
				 lease->node, time_name(lease->starts_at), time_name(m->lease.leased_until), time_name(m->lease.opens_at),
				 time_name(lease->asked_clock));
	/* what a registry says counts up to two days */
	if (m->settled_from < Min(lease->others_issued, lease->asked_clock + 2 * USECS_PER_DAY))
		sim_fail(server, "server %d lets readers go on from %s; ids of earlier starts end at %s", server->index,
				 time_name(m->settled_from), time_name(lease->others_issued));
}

/* No two leases that are open allow the same id. */
static void
check_apart(const Server *server, const SnowflakeMachine *m)
{
	CheckedLease *lease;
	uint64		token;

	memcpy(&token, &m->lease.token, sizeof(token));
	lease = lease_of_token(server, token);
	if (lease == NULL || lease->forgotten)
		return;
	if (!lease->is_opened)
	{
		check_opening(server, m, lease);
		check_source(server, lease);
	}
	for (int i = 0; i < server->shared->num_slots; i++)
	{
		const SnowflakeSlot *slot = &server->shared->slots[i];
		uint64		opened = slot->opened.value;

		if (opened != 0 && !(slot->word.value & SNOWFLAKE_SEALED) && snowflake_word_node(&slot->layout, opened) == m->lease.node &&
			snowflake_word_is_late(&slot->layout, opened, m->lease.starts_at))
			lease->stood_at = Max(lease->stood_at, snowflake_tick_begin(&slot->layout, snowflake_word_tick(&slot->layout, opened)));
	}
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];
		const SnowflakeMachine *other;
		CheckedLease *its;

		if (s == server || s->plan->role != ROLE_NODE || s->shared == NULL || s->state == SERVER_DOWN || s->state == SERVER_GONE)
			continue;
		other = server_machine(s);
		if (!snowflake_machine_is_open(other) || other->lease.node != m->lease.node ||
			other->lease.leased_until <= m->lease.starts_at || m->lease.leased_until <= other->lease.starts_at)
			continue;
		memcpy(&token, &other->lease.token, sizeof(token));
		its = lease_of_token(s, token);
		if (its != NULL && !its->forgotten && its->layout == lease->layout && must_differ(lease->lineage, its->lineage))
			sim_fail(server, "servers %d and %d both have number " UINT64_FORMAT ", from %s until %s and from %s until %s",
					 server->index, i, m->lease.node, time_name(m->lease.starts_at), time_name(m->lease.leased_until),
					 time_name(other->lease.starts_at), time_name(other->lease.leased_until));
	}
}

/*
 * The end of a lease that is told is no earlier than where words of it stood: the number is not opened there again, with
 * the same word, which a backend that sleeps could swap.
 */
static void
check_sealed(const Server *server, const SnowflakeMachine *m)
{
	const CheckedLease *lease;
	uint64		token;

	memcpy(&token, &m->lease.token, sizeof(token));
	lease = lease_of_token(server, token);
	if (lease != NULL && m->lease.end < Min(lease->stood_at, lease->until))
		sim_fail(server, "server %d tells that ids of number " UINT64_FORMAT " end at %s; a word of it stood at %s", server->index,
				 m->lease.node, time_name(m->lease.end), time_name(lease->stood_at));
}

/* The tables of a cluster that uses another registry lease nothing, unless they have taken that over. */
static void
check_root(const Server *registry)
{
	const SimRegistry *tables = &registry->tables;
	bool		is_root = tables->cluster.uses != SIM_USES_REGISTRY;

	for (int i = 0; i < tables->row.taken_over.num; i++)
		is_root |= tables->row.taken_over.uuids[i] == tables->cluster.incarnation;
	if (!is_root)
		sim_fail(registry, "server %d leases numbers although its cluster uses another registry", registry->index);
}

/* The end of the ids of a lease in the layouts that a server uses. */
static TimestampTz
issued_for(const Server *server, const CheckedLease *lease)
{
	TimestampTz end = DT_NOBEGIN;

	for (int i = 0; i < server->conf.num_layouts; i++)
		end = Max(end, lease->issued_in[server->conf.layouts[i]]);
	return end;
}

/*
 * A layout that leases have had, and no order, is on record with the first of them.  If a failover or a restore has lost
 * that one, and so all leases, the tables know neither a layout nor a number, and the next lease may have any layout:
 * doc/operations.md says that the setting must not be another one then.
 */
static void
lose_layouts(const SimRegistry *tables)
{
	for (int i = 0; i < world.num_servers; i++)
		for (int j = 0; j < servers[i].num_leases; j++)
			if (servers[i].leases[j].incarnation == tables->row.incarnation)
				servers[i].leases[j].layout_is_lost = true;
}

/*
 * Before a lease is granted: which of the numbers that it may have are held.  pg_upgrade has closed all leases when it
 * is first called.
 */
void
check_held_before(const Server *registry, const SimAcquire *in, bool own, TimestampTz clock)
{
	const SimRegistry *tables = &registry->tables;
	TimestampTz earlier = Min(in->clock, own ? in->clock : clock);

	num_held = 0;
	if (tables->cluster.layout == NULL && tables->num_numbers == 0)
		lose_layouts(tables);
	if (tables->row.system_identifier != registry->system_identifier)
		return;
	for (int i = 0; i < tables->num_numbers && num_held < MAX_HELD; i++)
	{
		const SimNumber *number = &tables->numbers[i];

		if (number->token != 0 && number->start != in->node.start && number->leased_until > earlier &&
			number->node_number >= in->first_number && number->node_number <= in->last_number &&
			!(own && in->fixed && number->own))
			held[num_held++] = number->node_number;
	}
}

/* A number is free, and the lease no longer than was asked for, and than the limit for ends. */
static void
check_bounds(const Server *server, const Server *registry, const SimAcquire *in, const SimAnswer *granted)
{
	TimestampTz clock = in->system_identifier == registry->system_identifier ? Max(in->clock, granted->clock) : granted->clock;

	for (int i = 0; i < num_held; i++)
		if (in->fixed || held[i] == granted->node_number)
			sim_fail(server, "server %d was granted number " UINT64_FORMAT ", and another start holds number " UINT64_FORMAT,
					 server->index, granted->node_number, held[i]);
	if (granted->leased_until > Max(in->clock, granted->starts_at) + in->window ||
		(!in->fixed && in->window > SECONDS(10)) ||
		granted->leased_until > clock + registry->tables.row.end_limit)
		sim_fail(server, "server %d was granted number " UINT64_FORMAT " from %s until %s; its clock shows %s, the window is %.3f s",
				 server->index, granted->node_number, time_name(granted->starts_at), time_name(granted->leased_until),
				 time_name(in->clock), in->window / 1e6);
}

/* After a change of layout, the least id of a lease is greater than all of other default layouts. */
static void
check_above(const Server *server, const SimRegistry *tables, const SimAcquire *in, const SimAnswer *granted)
{
	const SnowflakeLayout *layout = in->node.layout;
	uint64		tick = snowflake_tick_from(layout, granted->starts_at);
	int64		least = snowflake_tick_first_id(layout, tick);

	if (layout != tables->cluster.layout)
		sim_fail(server, "server %d was granted a lease of another layout than is on record", server->index);
	/* it allows no id */
	if (tick > layout->max_tick)
		return;
	if (least <= tables->cluster.greatest_id)
		sim_fail(server, "server %d was granted ids from " INT64_FORMAT " on, not greater than those on record", server->index, least);
	for (int i = 0; i < world.num_servers; i++)
		for (int j = 0; j < servers[i].num_leases; j++)
		{
			const CheckedLease *lease = &servers[i].leases[j];

			if (lease->greatest >= least && lease->layout != layout && !lease->forgotten && !lease->layout_is_lost &&
				lease->incarnation == tables->row.incarnation)
				sim_fail(server, "server %d was granted ids from " INT64_FORMAT " on; server %d has issued " INT64_FORMAT
						 " under another layout", server->index, least, i, lease->greatest);
		}
}

/* A lease that is renewed ends at most a window past the clock, and at the limit, unless it did before. */
void
check_window(const Server *server, const Server *registry, const SimRenew *in, const SimAnswer *renewed)
{
	CheckedLease *lease = lease_of_token(server, in->node.lease.token);
	const SimNumber *number = sim_find_number(&registry->tables, in->node.lease.node_number);
	TimestampTz clock = number != NULL && number->own ? in->clock : renewed->clock;

	if (lease == NULL)
		return;
	count_window(lease, server, registry);
	if (renewed->leased_until > Max(lease->until, Max(in->clock, lease->starts_at) + in->window) ||
		renewed->leased_until > Max(lease->until, clock + registry->tables.row.end_limit))
		sim_fail(server, "the lease of number " UINT64_FORMAT " of server %d is renewed until %s; its clock shows %s, the window is %.3f s",
				 lease->node, server->index, time_name(renewed->leased_until), time_name(in->clock), in->window / 1e6);
}

/*
 * The end of the ids that other starts of the cluster had issued when the registry granted this start its first lease, if
 * all that was on record there is so still.  A former primary may go on; its later ids do not count.
 */
static TimestampTz
end_of_others(const Server *server, const CheckedLease *granted)
{
	const CheckedServer *s = &servers[server->index];
	TimestampTz end = DT_NOBEGIN;

	for (int i = s->num_leases - 1; i >= 0; i--)
	{
		const CheckedLease *lease = &s->leases[i];

		if (lease != granted && lease->start == granted->start)
			return lease->incarnation == granted->incarnation && lease->reign == granted->reign ? lease->others_issued : DT_NOBEGIN;
	}
	for (int i = 0; i < world.num_servers; i++)
		for (int j = 0; j < servers[i].num_leases; j++)
		{
			const CheckedLease *lease = &servers[i].leases[j];

			if (lease->start != granted->start && lease->system_identifier == granted->system_identifier &&
				lease->incarnation == granted->incarnation && lease->reign == granted->reign && !lease->forgotten)
				end = Max(end, lease->issued);
		}
	return end;
}

void
check_granted(Server *server, Server *registry, const SimAcquire *in, const SimAnswer *granted)
{
	const SimRegistry *tables = &registry->tables;
	CheckedServer *s = &servers[server->index];
	CheckedLease *lease;
	int			lineage = lineage_of(granted->incarnation);

	check_root(registry);
	check_bounds(server, registry, in, granted);
	check_above(server, tables, in, granted);
	if (s->num_leases == s->max_leases)
		s->leases = realloc(s->leases, (s->max_leases = 2 * s->max_leases + 8) * sizeof(CheckedLease));
	lease = &s->leases[s->num_leases++];
	lease->token = granted->token;
	lease->start = in->node.start;
	lease->incarnation = granted->incarnation;
	lease->lineage = lineage;
	lease->cluster = registry->cluster;
	lease->reign = registry->reign;
	lease->node = granted->node_number;
	lease->layout = in->node.layout;
	lease->system_identifier = in->system_identifier;
	lease->starts_at = granted->starts_at;
	lease->asked_clock = in->clock;
	lease->max_ahead = in->max_ahead;
	lease->fixed = in->fixed;
	lease->until = granted->leased_until;
	lease->over_at = DT_NOBEGIN;
	count_window(lease, server, registry);
	lease->granted_at = world.now;
	lease->issued = DT_NOBEGIN;
	lease->greatest = -1;
	for (int i = 0; i < MAX_SIM_LAYOUTS; i++)
		lease->issued_in[i] = DT_NOBEGIN;
	lease->forgotten = lease->is_opened = lease->layout_is_lost = false;
	lease->others_issued = end_of_others(server, lease);
	lease->others_end_at = granted->cluster_ids_end_at;
	lease->must_follow = false;
	lease->stood_at = DT_NOBEGIN;
	if (sim_find_number(tables, granted->node_number)->ended_until > granted->starts_at)
		sim_fail(server, "server %d was granted number " UINT64_FORMAT " from %s on; another lease of it ends at %s",
				 server->index, granted->node_number, time_name(granted->starts_at),
				 time_name(sim_find_number(tables, granted->node_number)->ended_until));
	for (int i = 0; i < world.num_servers; i++)
		for (int j = 0; j < servers[i].num_leases; j++)
		{
			lease = &servers[i].leases[j];
			if (lease->node == granted->node_number && lease->layout == in->node.layout &&
				lease->token != granted->token && !lease->forgotten && must_differ(lineage, lease->lineage) &&
				issued_for(server, lease) > granted->starts_at)
				sim_fail(server, "server %d was granted number " UINT64_FORMAT " from %s on; server %d has issued ids of it until %s",
						 server->index, granted->node_number, time_name(granted->starts_at), i, time_name(issued_for(server, lease)));
		}
	note(granted->node_number);
	note((uint64) granted->starts_at);
	if (granted->node_number < in->first_number || granted->node_number > in->last_number)
		sim_fail(server, "server %d was granted number " UINT64_FORMAT ", which it did not ask for", server->index,
				 granted->node_number);
}

/*
 * Only clocks tell of the ids that were issued.  After DROP EXTENSION leases start after the next
 * creation; until the lease worker has found that, ids are issued with the lease of the former table.
 */
void
check_forgotten(const Server *server)
{
	for (int i = 0; i < world.num_servers; i++)
		for (int j = 0; j < servers[i].num_leases && world.servers[i].cluster == server->cluster; j++)
			servers[i].leases[j].forgotten = true;
}

/* A lease that is renewed is apart from all that its registry has been told of meanwhile. */
static void
check_renewed(const Server *server, const SimRegistry *tables, const SimLog *renewed)
{
	const SimNumber *number = sim_find_number(tables, renewed->node_number);

	if (number->ended_until > renewed->starts_at)
		sim_fail(server, "number " UINT64_FORMAT ", leased from %s on, was renewed until %s; another lease of it ends at %s",
				 number->node_number, time_name(renewed->starts_at), time_name(number->leased_until),
				 time_name(number->ended_until));
}

/* The rows of a start may have changed: their ends must be at or after those of their ids. */
void
check_row_ends(const Server *registry, const Server *server, uint64 start)
{
	const SimRegistry *tables = &registry->tables;
	CheckedServer *s = &servers[server->index];

	for (int i = s->num_leases - 1; i >= 0; i--)
	{
		CheckedLease *lease = &s->leases[i];
		const SimLog *row;
		TimestampTz end;

		/*
		 * it may have been granted late to an earlier start; a copy of the
		 * database, and a server that was promoted, have the row as it was
		 * then
		 */
		if (lease->start != start || lease->incarnation != tables->row.incarnation || lease->reign != registry->reign)
			continue;
		row = sim_find_log(tables, lease->token);
		end = row == NULL ? lease->until : sim_end_of(tables, row);
		if (end > lease->until)
		{
			check_root(registry);
			check_renewed(server, tables, row);
		}
		lease->until = end;
		if (lease->issued > lease->until)
			sim_fail(server, "the lease of number " UINT64_FORMAT " of server %d ends at %s, its ids at %s", lease->node,
					 server->index, time_name(lease->until), time_name(lease->issued));
	}
}

/* A lease is not renewed: the registry has lost it, or has closed it. */
void
check_not_renewed(Server *server, const Server *registry, uint64 token, SimReason reason)
{
	const CheckedLease *lease = lease_of_token(server, token);
	const SimRegistry *tables = &registry->tables;
	const SimLog *row = sim_find_log(tables, token);
	const SimNumber *number = row == NULL ? NULL : sim_find_number(tables, row->node_number);
	bool		same = lease != NULL && lease->reign == registry->reign && !lease->forgotten &&
	lease->incarnation == tables->row.incarnation;

	if ((reason == SIM_OTHER_GENERATION && same) || (reason == SIM_ROLLED_BACK && same) ||
		(reason == SIM_OTHER_INCARNATION && lease != NULL && lease->incarnation == tables->row.incarnation) ||
		(reason == SIM_NOT_OPEN && number != NULL && number->token == token && number->ended_until <= number->starts_at))
		sim_fail(server, "the lease of server %d is not renewed without need: %s", server->index, sim_reason_name(reason));
}

void
check_call_result(Server *server, SimReason reason)
{
	servers[server->index].error = reason;
	servers[server->index].error_at = world.now;
}

/*
 * The lease of an id: of those that cover it the newest that was opened, else the newest; if none does, the
 * newest.  There may be others that the server never heard of, with the same number and start.
 */
static CheckedLease *
lease_of(const Server *server, uint64 node, TimestampTz begin, TimestampTz end)
{
	CheckedServer *s = &servers[server->index];
	CheckedLease *newest = NULL;
	CheckedLease *covers = NULL;
	uint64		start;

	memcpy(&start, &server->shared->start, sizeof(start));
	for (int i = s->num_leases - 1; i >= 0; i--)
	{
		CheckedLease *lease = &s->leases[i];

		if (lease->start != start || lease->node != node || lease->starts_at > begin)
			continue;
		if (lease->until >= end && lease->is_opened)
			return lease;
		if (lease->until >= end && covers == NULL)
			covers = lease;
		if (newest == NULL)
			newest = lease;
	}
	return covers != NULL ? covers : newest;
}

static CheckedLease *
lease_of_token(const Server *server, uint64 token)
{
	CheckedServer *s = &servers[server->index];

	for (int i = s->num_leases - 1; i >= 0; i--)
		if (s->leases[i].token == token)
			return &s->leases[i];
	return NULL;
}

/*
 * Ids
 */
void
check_call_begins(Process *p, int slot)
{
	CheckedServer *s = &servers[p->server->index];
	CheckedCall *call = &calls[p->server->index][p->slot];
	int			layout = p->server->conf.layouts[slot];

	call->node = s->last_node[layout];
	call->id = s->last_id[layout];
	call->max_ahead = (int64) p->server->shared->settings.max_ahead.value;
	call->begun_at = world.now;
	call->offset = (int64) p->server->shared->settings.clock_offset.value;
	p->max_clock = p->last_clock = DT_NOBEGIN;
}

static void
check_one(Process *p, int slot, int64 id)
{
	Server	   *server = p->server;
	CheckedServer *s = &servers[server->index];
	CheckedCall *call = &calls[server->index][p->slot];
	const SnowflakeLayout *layout = &server->shared->slots[slot].layout;
	uint64		tick = snowflake_field_get(layout, id, SNOWFLAKE_TIMESTAMP);
	uint64		node = snowflake_node_join(layout, snowflake_field_get(layout, id, SNOWFLAKE_DATACENTER),
										   snowflake_field_get(layout, id, SNOWFLAKE_WORKER),
										   snowflake_field_get(layout, id, SNOWFLAKE_CLOCK));
	TimestampTz begin = snowflake_tick_begin(layout, tick);
	TimestampTz end = begin + layout->tick_us;
	int64		max_ahead = Max(call->max_ahead, (int64) server->shared->settings.max_ahead.value);
	int64		offset = (int64) server->shared->settings.clock_offset.value;
	uint64		name = (uint64) server->conf.layouts[slot] << 60;
	CheckedLease *lease = lease_of(server, node, begin, end);
	int			which = server->conf.layouts[slot];
	int			lineage = 0;
	Entry	   *entry;

	note((uint64) id);
	if (world.verbose)
		story(server, "issued: number " UINT64_FORMAT ", %s to %s, sequence %u (layout %d)", node, time_name(begin),
			  time_name(end), (uint32) snowflake_field_get(layout, id, SNOWFLAKE_SEQUENCE), server->conf.layouts[slot]);
	world.ids++;
	s->issued = Max(s->issued, begin);
	s->issued_at = world.now;
	if (lease == NULL)
		sim_fail(server, "server %d issued an id of number " UINT64_FORMAT " at %s without a lease", server->index, node,
				 time_name(begin));
	else
	{
		lease->issued = Max(lease->issued, end);
		lease->issued_in[which] = Max(lease->issued_in[which], end);
		if (slot == 0)
			lease->greatest = Max(lease->greatest, id);
	}
	if (lease != NULL && lease->must_follow && lease->others_end_at != DT_NOBEGIN && begin < lease->others_issued)
		sim_fail(server, "server %d issued an id at %s; ids of earlier starts end at %s", server->index, time_name(begin),
				 time_name(lease->others_issued));
	if (node == snowflake_node_max(layout))
		sim_fail(server, "server %d issued an id of number " UINT64_FORMAT ", which is reserved", server->index, node);
	if (lease != NULL && end > lease->until)
		sim_fail(server, "server %d issued an id that ends at %s; its lease of number " UINT64_FORMAT " ends at %s",
				 server->index, time_name(end), node, time_name(lease->until));
	if (begin > p->max_clock + Max(offset, call->offset) + max_ahead)
		sim_fail(server, "server %d issued an id %.6f s ahead of its clock; max_ahead is %.3f s", server->index,
				 (begin - p->max_clock) / 1e6, max_ahead / 1e6);
	/* unless the clock was set meanwhile */
	if (server->struck_at < call->begun_at && p->last_clock != DT_NOBEGIN && end <= p->last_clock + Min(offset, call->offset))
		sim_fail(server, "server %d issued an id %.6f s behind its clock", server->index, (p->last_clock - begin) / 1e6);
	if (call->id >= 0 && call->node == node && id <= call->id)
		sim_fail(server, "server %d returned " INT64_FORMAT " after " INT64_FORMAT, server->index, id, call->id);
	if (lease != NULL)
		lineage = lease->lineage;
	entry = find(&ids, name ^ mix((uint64) id));
	if (entry->value & differing[lineage])
		sim_fail_repeated(server, "server %d issued " INT64_FORMAT " (number " UINT64_FORMAT ", at %s) again", server->index, id, node,
						  time_name(begin));
	else if (entry->value == 0)
		put(&ids, entry, UINT64CONST(1) << lineage);
	else
		entry->value |= UINT64CONST(1) << lineage;
	entry = find(&ticks, name ^ mix(node << 48 ^ tick));
	if (lease == NULL)
		;
	else if (entry->value == 0)
		put(&ticks, entry, lease->token << 6 | (uint64) lineage);
	else if (entry->value >> 6 != lease->token << 6 >> 6 && must_differ(lineage, (int) (entry->value & 63)))
		sim_fail(server, "two leases of number " UINT64_FORMAT " have issued ids of the tick at %s, the second of server %d",
				 node, time_name(begin), server->index);
	if (id > s->last_id[which] || s->last_node[which] != node)
	{
		s->last_id[which] = id;
		s->last_node[which] = node;
	}
}

void
check_id(Process *p, int slot, int64 id, int64 count, int64 step)
{
	for (int64 i = 0; i < count; i++)
		check_one(p, slot, id + i * step);
}

void
check_no_id(Process *p, int slot)
{
	CheckedServer *s = &servers[p->server->index];

	s->sqlerrcode = last_error_code();
	strlcpy(s->message, last_error_message(), sizeof(s->message));
	story(p->server, "no id: %s", s->message);
}

/* The time of the latest id in the words of a server, also if its call has not returned yet. */
static TimestampTz
word_time(const Server *server)
{
	TimestampTz latest = DT_NOBEGIN;

	for (int i = 0; server->shared != NULL && i < server->shared->num_slots; i++)
	{
		const SnowflakeSlot *slot = &server->shared->slots[i];
		uint64		word = slot->word.value & ~SNOWFLAKE_SEALED;

		if (slot->opened.value != 0 && word != slot->opened.value)
			latest = Max(latest, snowflake_tick_begin(&slot->layout, snowflake_word_tick(&slot->layout, word)));
	}
	return latest;
}

/* The time of the latest id that numbers of the server's registry have issued. */
TimestampTz
last_id_time(const Server *server)
{
	TimestampTz latest = DT_NOBEGIN;

	for (int i = 0; i < world.num_servers; i++)
		if (server->plan->role == ROLE_REGISTRY || world.plan->moving || world.servers[i].cluster == server->cluster)
			latest = Max(latest, Max(servers[i].issued, word_time(&world.servers[i])));
	return latest;
}

/*
 * The lease worker's memory
 */

/*
 * Whether the own tables name the registry of a lease; or one that has taken it over: the settings have gone
 * back after that was recorded.
 */
static bool
is_recorded(const SimRegistry *tables, const CheckedLease *lease)
{
	uint64		used = tables->cluster.uses == SIM_USES_OWN ? tables->row.incarnation : tables->cluster.incarnation;
	int			recorded = lineage_of(used);

	return tables->cluster.uses != SIM_USES_NOTHING && lease != NULL && recorded >= 0 &&
		(used == lease->incarnation ||
		 (lineage_of(lease->incarnation) != recorded && (before[recorded] >> lease->lineage & 1)));
}

void
check_machine(Server *server)
{
	const SnowflakeMachine *m = server_machine(server);

	if (m->state > SNOWFLAKE_LEASE_STOPPED)
		sim_fail(server, "server %d: the machine is in state %d", server->index, m->state);
	if (snowflake_machine_is_open(m))
		check_apart(server, m);
	else if (m->state == SNOWFLAKE_LEASE_ASKING || m->state == SNOWFLAKE_LEASE_ENDING)
		check_sealed(server, m);
	for (int i = 0; i < server->shared->num_slots; i++)
	{
		SnowflakeSlot *slot = &server->shared->slots[i];
		uint64		word = slot->word.value;
		uint64		limit = slot->limit.value;
		uint64		node = snowflake_word_node(&slot->layout, word);
		TimestampTz end;
		CheckedLease *lease;
		uint64		token;

		if (word & SNOWFLAKE_SEALED)
			continue;
		if (!snowflake_machine_is_open(m) && m->state != SNOWFLAKE_LEASE_SEALING)
			sim_fail(server, "server %d: a word is open in state %s", server->index, lease_state_name(m->state));
		if (node != m->lease.node)
			sim_fail(server, "server %d: a word has number " UINT64_FORMAT ", the lease " UINT64_FORMAT, server->index, node,
					 m->lease.node);
		end = snowflake_tick_begin(&slot->layout, (limit - (node << snowflake_word_node_shift(&slot->layout)))
								   >> snowflake_word_tick_shift(&slot->layout));
		memcpy(&token, &m->lease.token, sizeof(token));
		lease = lease_of_token(server, token);
		if (m->state == SNOWFLAKE_LEASE_OPEN && m->lease.request.registry[0] != '\0' && server->tables.exists &&
			!is_recorded(&server->tables, lease))
			sim_fail(server, "server %d issues ids with a registry that its own tables have not recorded", server->index);
		if (lease == NULL || end > lease->until)
			sim_fail(server, "server %d: the limit of number " UINT64_FORMAT " is %s, which no durable lease covers",
					 server->index, node, time_name(end));
	}
}

/* Whether the settings ask for the number. */
static bool
is_asked_for(const Server *server, uint64 node)
{
	const SnowflakeLayout *layout = &server->shared->slots[0].layout;
	const Conf *conf = &server->conf;
	uint64		worker = node >> layout->bits[SNOWFLAKE_CLOCK] & snowflake_field_max(layout, SNOWFLAKE_WORKER);
	uint64		datacenter = node >> (layout->bits[SNOWFLAKE_CLOCK] + layout->bits[SNOWFLAKE_WORKER]);

	if (conf->datacenter_id >= 0 && datacenter != (uint64) conf->datacenter_id)
		return false;
	if (strcmp(conf->worker_id, "auto") == 0)
		return true;
	if (strcmp(conf->worker_id, "mac") == 0)
		return worker == (server->plan->mac & snowflake_field_max(layout, SNOWFLAKE_WORKER));
	if (strcmp(conf->worker_id, "hostname") == 0)
		return worker == (uint64) server->host;
	return worker == strtoull(conf->worker_id, NULL, 10);
}

/*
 * Whether its lease is new, or starts after its clock: where the registry says that all do, since the
 * clock was ahead at CREATE EXTENSION, a promotion or pg_upgrade, and corrected.
 */
static bool
is_about_to_issue(Server *server, const SnowflakeMachine *m)
{
	const char *registry = m->lease.request.registry;
	const Server *granter = registry[0] == '\0' ? server : cluster_primary(atoi(registry + 1));
	CheckedLease *lease;
	uint64		token;

	memcpy(&token, &m->lease.token, sizeof(token));
	lease = lease_of_token(server, token);
	if (m->state != SNOWFLAKE_LEASE_OPEN || granter == NULL || lease == NULL || lease->issued != DT_NOBEGIN)
		return false;
	/* clients have not come yet */
	if (lease->granted_at > world.now - SECONDS(10))
		return true;
	return lease->starts_at > server_id_clock(server) &&
		lease->starts_at <= Max(granter->tables.row.starts_at,
								Max(granter->tables.row.created_at, granter->tables.row.counted_at) + USECS_PER_SEC +
								(int64) server->shared->settings.max_ahead.value);
}

/* Whether no tick is left for a layout: by the clock, by the lease, or because ids were issued up to the end. */
static bool
is_full(Server *server, const SnowflakeMachine *m, SnowflakeSlot *slot)
{
	TimestampTz end = snowflake_tick_begin(&slot->layout, slot->layout.max_tick);
	uint64		word = slot->word.value;

	return server_id_clock(server) >= end || (m->lease.request.fixed && m->lease.starts_at >= end) ||
		(snowflake_word_node(&slot->layout, word) == m->lease.node && snowflake_word_tick(&slot->layout, word) >=
		 slot->layout.max_tick);
}

/*
 * Whether a word is not before the limit that the lease gives it, and the clock is too far from it, or was until
 * seconds ago, for anybody to have the lease extended.  Not if it is so far that another number helps.
 */
static bool
waits_for_limit(Server *server, const SnowflakeMachine *m, SnowflakeSlot *slot)
{
	uint64		tick = snowflake_word_tick(&slot->layout, slot->waiting.value);
	int64		max_ahead = (int64) server->shared->settings.max_ahead.value;

	return slot->waiting.value != 0 && snowflake_word_node(&slot->layout, slot->waiting.value) == m->lease.node &&
		snowflake_tick_begin(&slot->layout, tick + 1) > m->lease.leased_until &&
		snowflake_tick_begin(&slot->layout, tick) - max_ahead > server_id_clock(server) - SECONDS(5) &&
		(m->request.fixed || m->lease.starts_at > server_id_clock(server) ||
		 !snowflake_word_is_late(&slot->layout, slot->waiting.value, m->lease.starts_at) ||
		 snowflake_tick_begin(&slot->layout, tick) - max_ahead - slot->layout.tick_us < server_id_clock(server) + SECONDS(6));
}

/* A word under an open lease that no backend can use; NULL: there is none. */
static SnowflakeSlot *
left_sealed(Server *server, const SnowflakeMachine *m)
{
	for (int i = 0; i < server->shared->num_slots && m->state == SNOWFLAKE_LEASE_OPEN; i++)
	{
		SnowflakeSlot *slot = &server->shared->slots[i];

		if ((slot->word.value & SNOWFLAKE_SEALED) && !is_full(server, m, slot) && !waits_for_limit(server, m, slot))
			return slot;
	}
	return NULL;
}

static bool
is_full_anywhere(Server *server, const SnowflakeMachine *m)
{
	for (int i = 0; i < server->shared->num_slots; i++)
		if (is_full(server, m, &server->shared->slots[i]))
			return true;
	return false;
}

/* Nothing has gone wrong for minutes. */
void
check_calm(void)
{
	for (int i = 0; i < world.num_servers && !world.failed; i++)
	{
		Server	   *server = &world.servers[i];
		CheckedServer *s = &servers[i];
		SnowflakeMachine *m;

		if (server->state != SERVER_RUNNING || server->plan->role != ROLE_NODE)
			continue;
		m = server_machine(server);
		if (m->state == SNOWFLAKE_LEASE_OPEN && !is_asked_for(server, m->lease.node))
			sim_fail(server, "server %d has number " UINT64_FORMAT ", which its settings do not ask for", i, m->lease.node);
		/* the host has its name, and the history is there */
		if (strncmp(m->request.problem.message, "no worker id in", 15) == 0 ||
			(m->request.valid && strncmp(m->problem.message, "could not find the history", 26) == 0))
			sim_fail(server, "server %d is still refused: %s%s", i, m->request.problem.message, m->problem.message);
		if (s->error == SIM_OTHER_LAYOUT && s->error_at > world.now - SECONDS(60) && server->launched_at < server_clock(server) - SECONDS(120))
			sim_fail(server, "server %d is still refused, although all nodes have been given the layout on record", i);
		if (left_sealed(server, m) != NULL)
			sim_fail(server, "server %d has a lease of number " UINT64_FORMAT ", and the word of layout \"%s\" is still sealed",
					 i, m->lease.node, left_sealed(server, m)->name);
		/* all was done that is to be done, and the server has called since */
		if (world.plan->moving && m->call == SNOWFLAKE_CALL_NONE && m->problem.sqlerrcode != 0 &&
			s->error_at > world.now - SECONDS(60) && s->error_at - SECONDS(2) > move_done_at() &&
			(s->error == SIM_CLOSED || s->error == SIM_USES_ANOTHER || s->error == SIM_OTHER_SOURCE ||
			 s->error == SIM_HAS_NODES))
			sim_fail(server, "server %d is still refused, although all registries were closed and taken over: %s", i,
					 sim_reason_name(s->error));
		if (s->issued_at > world.now - SECONDS(60))
			continue;
		/* the numbers are its own, and their ids are to come */
		if (strncmp(s->message, "the next id would be", 20) == 0 && m->lease.request.fixed)
			continue;

		if (is_about_to_issue(server, m))
			continue;
		if (strncmp(s->message, "the timestamp field of", 22) == 0 && is_full_anywhere(server, m))
			continue;
		/* no lease goes past the end of the default layout */
		if (m->problem.sqlerrcode == ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED &&
			m->request.valid && is_full(server, m, &server->shared->slots[0]))
			continue;
		if (!m->request.valid && m->request.problem.sqlerrcode != 0)
			continue;

		/*
		 * it is refused, or was before the call that is out, or when it was
		 * asked last
		 */
		if (s->error != SIM_CALL_LATE && s->error != SIM_VALUE && s->error != SIM_NO_REASON && s->error_at > world.now - SECONDS(60))
			continue;
		if (m->problem.sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)
			continue;			/* it is refused, and says why */
		if (server->conf.registry[0] != '\0' &&
			(cluster_primary(atoi(server->conf.registry + 1)) == NULL ||
			 cluster_primary(atoi(server->conf.registry + 1))->state != SERVER_RUNNING))
			continue;
		sim_fail(server, "server %d has issued no id for %.0f s, and nothing is wrong; the last call failed with \"%s\"", i,
				 (world.now - s->issued_at) / 1e6, s->message);
	}
}

/*
 * A backend that asks for ids
 */

/* Asks once; false: there was an error. */
static bool
ask(Process *p, int slot, int64 count)
{
	volatile bool issued = false;
	int64		begun_at = world.now;
	int64		max_wait;

	/* a session may have its own, and a reload does not change that of a call */
	p->max_wait = chance(&p->prng, 100) ? spread(&p->prng, 1, 30000) - 1 : p->server->conf.max_wait;
	snowflake_max_wait = (int) p->max_wait;
	max_wait = MILLISECONDS(snowflake_max_wait);
	p->cancel_pending = false;
	p->num_waits = 0;
	p->asked_at = begun_at;
	p->in_call = true;
	check_call_begins(p, slot);
	PG_TRY();
	{
		SnowflakeGenerator *g = slot == 0 ? snowflake_default_generator() :
		snowflake_generator_of(&p->server->shared->slots[slot].layout);

		if (count == 1)
			check_id(p, slot, snowflake_issue(g), 1, 0);
		else
		{
			SnowflakePart part = {0};

			snowflake_issue_part(g, count, &part);
			check_id(p, slot, part.first, part.count, part.step);
		}
		issued = true;
	}
	PG_CATCH();
	{
		snowflake_wait_end();
		FlushErrorState();
		check_no_id(p, slot);
		if (last_error_code() != ERRCODE_QUERY_CANCELED)
			judge_error(p->server, slot, last_error_message(), begun_at, max_wait);
	}
	PG_END_TRY();
	p->in_call = false;
	judge_ended(p, slot, issued, begun_at, max_wait);
	return issued;
}

void
backend_main(Process *p)
{
	Server	   *server = p->server;

	for (;;)
	{
		bool		busy = server->burst_until > world.now;
		int64		think = exponential(&p->prng, busy ? MILLISECONDS(5) * Max(server->plan->burst, 1) :
										world.calm ? Min(server->plan->think, SECONDS(1)) : server->plan->think);
		int			count = 1 + (int) below(&p->prng, 2 * server->plan->burst);
		int			slot = (int) below(&p->prng, server->shared->num_slots);
		int64		pace = chance(&p->prng, 500) ? 0 : 2 * server->shared->slots[slot].layout.tick_us;

		process_sleep(Max(world.now + think, server->idle_until));
		if (server->state != SERVER_RUNNING)
			continue;
		for (int i = 0; i < count; i++)
		{
			if (!ask(p, slot, chance(&p->prng, 30) ? between(&p->prng, 2, 40) : 1))
				break;
			if (pace > 0)
				process_sleep(world.now + (int64) below(&p->prng, (uint64) pace));
			if (world.failed)
				break;
		}
	}
}
