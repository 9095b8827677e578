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
 *	  apart			a lease starts at or after the ends of all others of its number, which are closed; the
 *					generation never goes back
 *	  recorded		a word is open with a registry only after the own tables say that it is used
 *	  handed over	a registry that was changed to knows the ends of all ids
 *	  not refused	53400 only if no number is free, by a rule written down here once more
 *	  not asleep	when nothing has gone wrong for minutes, each server issues ids in all layouts, or
 *					says why not
 */
#include "sim.h"

#include "ids/generator.h"
#include "ids/word.h"

typedef struct CheckedLease
{
	uint64		token;
	uint64		start;
	uint64		incarnation;	/* of the registry */
	uint64		node;
	const SnowflakeLayout *layout;	/* the server's default */
	TimestampTz starts_at;
	TimestampTz until;			/* as it is durable now */
	TimestampTz issued;			/* the end of its ids */
	int64		granted_at;		/* world.now */
	bool		forgotten;		/* no table need tell of it any more */
} CheckedLease;

typedef struct CheckedServer
{
	CheckedLease *leases;
	int			num_leases;
	int			max_leases;
	uint64		last_node[MAX_SIM_LAYOUTS]; /* of the greatest id returned, */
	int64		last_id[MAX_SIM_LAYOUTS];	/* which is this */
	TimestampTz issued;			/* the end of all its ids */
	int64		issued_at;		/* true time of the last id */
	int64		max_ahead;		/* when it changes while a call lasts: the
								 * greater */
	SimError	error;			/* of the last call that grants or refuses */
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
} CheckedCall;

static CheckedServer servers[MAX_SERVERS];
static CheckedCall calls[MAX_SERVERS][MAX_PROCESSES];

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

static Table ids;				/* layout and id: the token */
static Table ticks;				/* layout, node number and tick: the token */

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

const char *
sim_error_name(SimError error)
{
	static const char *const names[] = {
		"ok", "no table", "no row in registry", "a parameter is out of range", "the call arrived too late",
		"the layout is not set", "the layout is in use", "ids would not be greater", "no node number is free",
		"the number is held", "too few node numbers", "the clock is behind the creation of the extension",
		"the clock is behind the time that leases start at", "the clock is behind ids that the registry does not know of",
		"another registry is recorded", "the registry is the server itself", "not the recorded registry",
		"the registry's own numbers come from another registry", "this cluster is the registry of other servers",
		"ids are issued under another layout", "another registry is recorded meanwhile", "the registry's clock is behind"
	};

	return names[error];
}

/*
 * Leases
 */
void
check_granted(Server *server, const SimTables *tables, uint64 start, const SimAcquire *in, const SimGranted *granted)
{
	CheckedServer *s = &servers[server->index];
	CheckedLease *lease;

	if (s->num_leases == s->max_leases)
		s->leases = realloc(s->leases, (s->max_leases = 2 * s->max_leases + 8) * sizeof(CheckedLease));
	lease = &s->leases[s->num_leases++];
	lease->token = granted->token;
	lease->start = start;
	lease->incarnation = granted->registry_incarnation;
	lease->node = granted->node_number;
	lease->layout = in->layout;
	lease->starts_at = granted->starts_at;
	lease->until = granted->leased_until;
	lease->granted_at = world.now;
	lease->issued = DT_NOBEGIN;
	lease->forgotten = false;
	for (int i = 0; i < tables->num_rows; i++)
		if (tables->rows[i].node_number == granted->node_number && tables->rows[i].token != granted->token &&
			(tables->rows[i].leased_until > granted->starts_at || !tables->rows[i].closed))
			sim_fail("server %d was granted number " UINT64_FORMAT " from %s on; another lease of it ends at %s%s",
					 server->index, granted->node_number, time_name(granted->starts_at),
					 time_name(tables->rows[i].leased_until), tables->rows[i].closed ? "" : ", and is open");
	/* where registries change, only clocks tell of some ids */
	for (int i = 0; i < world.num_servers && !world.plan->moving; i++)
		for (int j = 0; j < servers[i].num_leases; j++)
		{
			lease = &servers[i].leases[j];
			if (lease->node == granted->node_number && lease->layout == in->layout && lease->token != granted->token &&
				!lease->forgotten && lease->issued > granted->starts_at)
				sim_fail("server %d was granted number " UINT64_FORMAT " from %s on; server %d has issued ids of it until %s",
						 server->index, granted->node_number, time_name(granted->starts_at), i, time_name(lease->issued));
		}
	note(granted->node_number);
	note((uint64) granted->starts_at);
	if (granted->node_number < in->first_number || granted->node_number > in->last_number)
		sim_fail("server %d was granted number " UINT64_FORMAT ", which it did not ask for", server->index,
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

/* The rows of a start may have changed: their ends must be at or after those of their ids. */
void
check_row_ends(const SimTables *tables, const Server *server, uint64 start)
{
	CheckedServer *s = &servers[server->index];

	for (int i = s->num_leases - 1; i >= 0; i--)
	{
		CheckedLease *lease = &s->leases[i];

		/*
		 * it may have been granted late to an earlier start; a copy of the
		 * database has the row as it was then
		 */
		if (lease->start != start || lease->incarnation != tables->incarnation)
			continue;
		for (int j = tables->num_rows - 1; j >= 0; j--)
			if (tables->rows[j].token == lease->token)
			{
				lease->until = tables->rows[j].leased_until;
				break;
			}
		if (lease->issued > lease->until)
			sim_fail("the lease of number " UINT64_FORMAT " of server %d ends at %s, its ids at %s", lease->node,
					 server->index, time_name(lease->until), time_name(lease->issued));
	}
}

static bool
is_free(const SimTables *tables, uint64 number, TimestampTz node_clock, TimestampTz earlier)
{
	for (int i = 0; i < tables->num_rows; i++)
	{
		const SimRow *row = &tables->rows[i];

		if (row->node_number == number && (row->leased_until > node_clock ||
										   (!row->closed && row->leased_until > earlier)))
			return false;
	}
	return true;
}

/* A lease was refused. */
void
check_refused(const SimTables *tables, const SimHere *here, const SimAcquire *in, SimError error)
{
	if (error != SIM_NO_NUMBER_FREE)
		return;
	for (uint64 number = in->first_number; number <= in->last_number && number < in->first_number + 1024; number++)
	{
		if (in->own && (number & 1) != (uint64) (1 - tables->generation % 2))
			continue;
		/* what the call has closed meanwhile counts for the next one */
		if (is_free(tables, number, in->node_clock, Min(in->node_clock, here->clock)))
		{
			sim_fail("no number is free, it is said, but " UINT64_FORMAT " is", number);
			return;
		}
	}
}

void
check_call_result(Server *server, SimError error)
{
	servers[server->index].error = error;
	servers[server->index].error_at = world.now;
}

/*
 * The lease of an id: the newest one that covers it, else the newest one.  There may be
 * others that the server never heard of.
 */
static CheckedLease *
lease_of(const Server *server, uint64 node, TimestampTz begin, TimestampTz end)
{
	CheckedServer *s = &servers[server->index];
	CheckedLease *newest = NULL;
	uint64		start;

	memcpy(&start, &server->shared->start, sizeof(start));
	for (int i = s->num_leases - 1; i >= 0; i--)
	{
		CheckedLease *lease = &s->leases[i];

		if (lease->start != start || lease->node != node || lease->starts_at > begin)
			continue;
		if (lease->until >= end)
			return lease;
		if (newest == NULL)
			newest = lease;
	}
	return newest;
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
	p->max_clock = DT_NOBEGIN;
}

static void
check_one(Process *p, int slot, int64 id)
{
	Server	   *server = p->server;
	CheckedServer *s = &servers[server->index];
	CheckedCall *call = &calls[server->index][p->slot];
	const SnowflakeLayout *layout = &server->shared->slots[slot].layout;
	SnowflakeParts parts = snowflake_id_unpack(layout, id);
	uint64		node = snowflake_node_join(layout, parts.datacenter, parts.worker, parts.clock);
	TimestampTz begin = snowflake_tick_begin(layout, parts.tick);
	TimestampTz end = begin + layout->tick_us;
	int64		max_ahead = Max(call->max_ahead, (int64) server->shared->settings.max_ahead.value);
	uint64		name = (uint64) server->conf.layouts[slot] << 60;
	CheckedLease *lease = lease_of(server, node, begin, end);
	int			which = server->conf.layouts[slot];
	Entry	   *entry;

	note((uint64) id);
	if (world.verbose)
		story(server, "issued: number " UINT64_FORMAT ", %s to %s, sequence %u (layout %d)", node, time_name(begin),
			  time_name(end), parts.sequence, server->conf.layouts[slot]);
	world.ids++;
	s->issued = Max(s->issued, end);
	s->issued_at = world.now;
	if (lease == NULL)
		sim_fail("server %d issued an id of number " UINT64_FORMAT " at %s without a lease", server->index, node,
				 time_name(begin));
	else
		lease->issued = Max(lease->issued, end);
	if (lease != NULL && end > lease->until)
		sim_fail("server %d issued an id that ends at %s; its lease of number " UINT64_FORMAT " ends at %s",
				 server->index, time_name(end), node, time_name(lease->until));
	if (begin > p->max_clock + max_ahead)
		sim_fail("server %d issued an id %.6f s ahead of its clock; max_ahead is %.3f s", server->index,
				 (begin - p->max_clock) / 1e6, max_ahead / 1e6);
	if (call->id >= 0 && call->node == node && id <= call->id)
		sim_fail("server %d returned " INT64_FORMAT " after " INT64_FORMAT, server->index, id, call->id);
	entry = find(&ids, name ^ mix((uint64) id));
	if (entry->value != 0)
		sim_fail_repeated("server %d issued " INT64_FORMAT " (number " UINT64_FORMAT ", at %s) again", server->index, id, node,
						  time_name(begin));
	else
		put(&ids, entry, 1);
	entry = find(&ticks, name ^ mix(node << 48 ^ parts.tick));
	if (lease == NULL)
		;
	else if (entry->value == 0)
		put(&ticks, entry, lease->token);
	else if (entry->value != lease->token)
		sim_fail("two leases of number " UINT64_FORMAT " have issued ids of the tick at %s, the second of server %d",
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

TimestampTz
last_id_time(const Server *server)
{
	TimestampTz end = DT_NOBEGIN;

	for (int i = 0; i < world.num_servers; i++)
		if (server->plan->role == ROLE_REGISTRY || world.servers[i].cluster == server->cluster)
			end = Max(end, servers[i].issued);
	return end;
}

/*
 * The lease worker's memory
 */
void
check_machine(Server *server)
{
	const SnowflakeMachine *m = server_machine(server);

	if (m->state > SNOWFLAKE_LEASE_STOPPED)
		sim_fail("server %d: the machine is in state %d", server->index, m->state);
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
		if (m->state != SNOWFLAKE_LEASE_OPEN && m->state != SNOWFLAKE_LEASE_SEALING)
			sim_fail("server %d: a word is open in state %s", server->index, snowflake_lease_state_name(m->state));
		if (node != m->node)
			sim_fail("server %d: a word has number " UINT64_FORMAT ", the lease " UINT64_FORMAT, server->index, node, m->node);
		end = snowflake_tick_begin(&slot->layout, (limit - (node << snowflake_word_node_shift(&slot->layout)))
								   >> snowflake_word_tick_shift(&slot->layout));
		memcpy(&token, &m->token, sizeof(token));
		lease = lease_of_token(server, token);
		if (m->lease_request.registry[0] != '\0' && server->tables.exists &&
			(server->tables.uses != SIM_USES_REGISTRY ||
			 memcmp(&server->tables.uses_incarnation, &m->incarnation, sizeof(uint64)) != 0))
			sim_fail("server %d issues ids with a registry that its own tables have not recorded", server->index);
		if (lease == NULL || end > lease->until)
			sim_fail("server %d: the limit of number " UINT64_FORMAT " is %s, which no durable lease covers",
					 server->index, node, time_name(end));
	}
}

/* After a change of registry that had nothing to warn of, the new one knows the ends of all ids. */
void
check_handed_over(const SimTables *tables)
{
	TimestampTz floor = Max(tables->created_at, tables->starts_at);

	for (int i = 0; i < world.num_servers && !world.failed; i++)
	{
		if (world.has_gaps[world.servers[i].cluster])
			return;				/* only clocks tell of some ids */
		for (int j = 0; j < servers[i].num_leases; j++)
		{
			CheckedLease *lease = &servers[i].leases[j];
			bool		known = lease->issued <= floor;

			for (int k = 0; k < tables->num_rows && !known; k++)
				known = tables->rows[k].node_number == lease->node && tables->rows[k].leased_until >= lease->issued;
			if (!known)
				sim_fail("the registry was changed, and the new one does not know that number " UINT64_FORMAT
						 " has issued ids until %s", lease->node, time_name(lease->issued));
		}
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
	const char *registry = m->lease_request.registry;
	const Server *granter = registry[0] == '\0' ? server : cluster_primary(atoi(registry + 1));
	CheckedLease *lease;
	uint64		token;

	memcpy(&token, &m->token, sizeof(token));
	lease = lease_of_token(server, token);
	if (m->state != SNOWFLAKE_LEASE_OPEN || granter == NULL || lease == NULL || lease->issued != DT_NOBEGIN)
		return false;
	/* clients have not come yet */
	if (lease->granted_at > world.now - SECONDS(10))
		return true;
	return lease->starts_at > server_clock(server) &&
		lease->starts_at <= Max(granter->tables.starts_at, granter->tables.created_at + USECS_PER_SEC +
								(int64) server->shared->settings.max_ahead.value);
}

/* Whether no tick is left for a layout: by the clock, by the lease, or because ids were issued up to the end. */
static bool
is_full(Server *server, const SnowflakeMachine *m, SnowflakeSlot *slot)
{
	TimestampTz end = snowflake_tick_begin(&slot->layout, slot->layout.max_tick);
	uint64		word = slot->word.value;

	return server_clock(server) >= end || (m->lease_request.fixed && m->starts_at >= end) ||
		(snowflake_word_node(&slot->layout, word) == m->node && snowflake_word_tick(&slot->layout, word) >=
		 slot->layout.max_tick);
}

/* A word under an open lease that no backend can use; NULL: there is none. */
static SnowflakeSlot *
left_sealed(Server *server, const SnowflakeMachine *m)
{
	for (int i = 0; i < server->shared->num_slots && m->state == SNOWFLAKE_LEASE_OPEN; i++)
	{
		SnowflakeSlot *slot = &server->shared->slots[i];

		if ((slot->word.value & SNOWFLAKE_SEALED) && !is_full(server, m, slot))
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
		if (m->state == SNOWFLAKE_LEASE_OPEN && !is_asked_for(server, m->node))
			sim_fail("server %d has number " UINT64_FORMAT ", which its settings do not ask for", i, m->node);
		/* the host has its name, and the history is there */
		if (strncmp(m->request.problem.message, "no worker id in", 15) == 0 ||
			strncmp(m->problem.message, "could not find the history", 26) == 0)
			sim_fail("server %d is still refused: %s%s", i, m->request.problem.message, m->problem.message);
		if (left_sealed(server, m) != NULL)
			sim_fail("server %d has a lease of number " UINT64_FORMAT ", and the word of layout \"%s\" is still sealed",
					 i, m->node, left_sealed(server, m)->name);
		if (s->issued_at > world.now - SECONDS(60))
			continue;
		/* the numbers are its own, and their ids are to come */
		if (strncmp(s->message, "the next id would be", 20) == 0 && m->lease_request.fixed)
			continue;

		if (is_about_to_issue(server, m))
			continue;
		if (strncmp(s->message, "the timestamp field of", 22) == 0 && is_full_anywhere(server, m))
			continue;
		if (!m->request.valid && m->request.problem.sqlerrcode != 0)
			continue;
		/* it is refused, or was before the call that is out */
		if ((m->problem.sqlerrcode != 0 || m->call != SNOWFLAKE_CALL_NONE) && s->error != SIM_CALL_LATE &&
			s->error != SIM_PARAMETER && s->error != SIM_OK && s->error_at > world.now - SECONDS(60))
			continue;
		if (m->problem.sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)
			continue;			/* it is refused, and says why */
		if (server->conf.registry[0] != '\0' &&
			(cluster_primary(atoi(server->conf.registry + 1)) == NULL ||
			 cluster_primary(atoi(server->conf.registry + 1))->state != SERVER_RUNNING))
			continue;
		sim_fail("server %d has issued no id for %.0f s, and nothing is wrong: state %s, call %d, last \"%s\", \"%s\"", i,
				 (world.now - s->issued_at) / 1e6, snowflake_lease_state_name(m->state), m->call, m->problem.message,
				 s->message);
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
	}
	PG_END_TRY();
	return issued;
}

void
backend_main(Process *p)
{
	Server	   *server = p->server;

	for (;;)
	{
		bool		busy = server->burst_until > world.now;
		int64		think = exponential(&p->prng, busy ? MILLISECONDS(5) :
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
