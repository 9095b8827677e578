/*
 * judge.c
 *	  Promise 5: nothing is refused without need, and whatever was wrong, ids go on soon after it is right.
 *
 * Two places refuse, and each has its judge.
 *
 *	  A registry refuses a call, or does not renew a lease.  When it does, the judge decides from the tables,
 *	  the clocks and the servers whether the reason holds at this moment (judge_call()).
 *
 *	  A call of snowflake_nextval() fails.  Its message is a reason.  Either the reason holds now; or it held
 *	  not longer ago than ids may take to go on; or the machine, the disk, the network or the
 *	  registry of the server was disturbed not longer ago than that (judge_error()).  This is so in each layout
 *	  in use and at any time, and it is the same whether anybody has asked meanwhile.
 *
 * A server is disturbed while something lasts that a fault has brought (its ..._until), and at the moment of
 * what happens at once (struck_at).
 */
#include "sim.h"

#include "ids/word.h"

/* Ids go on so soon after what was wrong is right, if no call is out. */
#define GO_ON_US		SECONDS(2)
/* A call that was lost is given up on after five seconds; the next one follows after about a second. */
#define LOST_CALL_US	SECONDS(8)
/* After a call of another registry that had no time for it, the next one follows within 15 s. */
#define OVERLOADED_US	SECONDS(15)
/* No call of a registry starts a lease further ahead of the node's clock, beyond max_ahead. */
#define LONGEST_START_US SECONDS(10)
/* What a call takes beyond max_wait. */
#define CALL_SLACK_US	MILLISECONDS(100)

typedef struct Judged
{
	int64		said_at[NUM_SIM_REASONS];	/* when a registry last refused it
											 * so */
	int64		refused_at;		/* and for whatever reason */
	int64		refused_wait;	/* so long after that the node makes its next
								 * call at the latest; 0: it was granted since */
	int64		overloaded_at;	/* when a registry last had no time for it;
								 * -1: never */
	int64		needed_at[MAX_LAYOUTS]; /* when the reason of an error last
										 * held */
	int64		asked_at[MAX_LAYOUTS];	/* since when ids are asked for, in
										 * vain and again and again */
	int64		failed_at[MAX_LAYOUTS]; /* the last error; -1: none since the
										 * last id */
	const Server *registry;		/* which has answered last, if it has granted
								 * or renewed a lease; or NULL */
} Judged;

static Judged judged[MAX_SERVERS];
static TimestampTz latest_clock;

JudgeCounts judge_counts;

void
judge_begin(void)
{
	latest_clock = DT_NOBEGIN;
	for (int i = 0; i < MAX_SERVERS; i++)
	{
		for (int j = 0; j < NUM_SIM_REASONS; j++)
			judged[i].said_at[j] = -1;
		for (int j = 0; j < MAX_LAYOUTS; j++)
		{
			judged[i].failed_at[j] = -1;
			judged[i].needed_at[j] = 0;
		}
		judged[i].refused_at = judged[i].refused_wait = 0;
		judged[i].overloaded_at = -1;
		judged[i].registry = NULL;
	}
}

/* A clock shows this, or did before it was set. */
void
judge_clock(TimestampTz clock)
{
	latest_clock = Max(latest_clock, clock);
}

static TimestampTz
latest_of_all_clocks(void)
{
	for (int i = 0; i < world.num_servers; i++)
		judge_clock(server_id_clock(&world.servers[i]));
	return latest_clock;
}

/*
 * Registries
 */
static bool
contains(const SimUuids *set, uint64 uuid)
{
	for (int i = 0; i < set->num; i++)
		if (set->uuids[i] == uuid)
			return true;
	return false;
}

/* Whether these tables accept nodes that have used an incarnation.  A copy of the database gets a new one. */
static bool
accepts(const SimRegistry *tables, uint64 incarnation)
{
	return (incarnation == tables->row.incarnation && tables->row.database == tables->oid) ||
		contains(&tables->row.taken_over, incarnation);
}

/* Whether another server than the registry's own has a lease there that is not over. */
static bool
others_have_leases(const SimRegistry *tables, TimestampTz now)
{
	for (int i = 0; i < tables->num_numbers; i++)
		if (tables->numbers[i].token != 0 && !tables->numbers[i].own && tables->numbers[i].leased_until > now)
			return true;
	return false;
}

/* Whether an open lease of another start has one of the numbers. */
static bool
is_held(const SimRegistry *tables, const SimAcquire *in, bool own, TimestampTz now)
{
	for (int i = 0; i < tables->num_numbers; i++)
	{
		const SimNumber *number = &tables->numbers[i];

		if (number->node_number >= in->first_number && number->node_number <= in->last_number && number->token != 0 &&
			number->start != in->node.start && number->leased_until > Min(in->clock, now) && !(own && number->own))
			return true;
	}
	return false;
}

static bool
has_counted_entry(const SimRegistry *tables, const SimHistoryEntry *entry)
{
	for (int j = 0; j < tables->row.counted.num_entries; j++)
		if (memcmp(&tables->row.counted.entries[j], entry, sizeof(*entry)) == 0)
			return true;
	return false;
}

/* How many promotions a call counts; none if it cannot read the history. */
int
num_uncounted(const SimRegistry *tables, const SimHere *here)
{
	int			num = 0;

	for (int i = 0; here->history != NULL && i < here->history->num_entries; i++)
		num += !has_counted_entry(tables, &here->history->entries[i]);
	return num;
}

/*
 * What leases start at or after is far ahead of the node's clock; and a clock has shown it, or does within the longest
 * window, or it is the end of ids that were issued.
 */
static bool
is_behind(const SimRegistryRow *row, const SimHere *here, const SimAcquire *in)
{
	TimestampTz latest = in->clock + LONGEST_START_US;
	TimestampTz floor = Max(Max(row->created_at, row->counted_at), Max(row->starts_at, in->starts_at) - in->max_ahead);

	floor = Max(floor, Max(in->ids_end_at, Max(in->node.lease.ids_end_at, in->node.lease.leased_until)) - in->max_ahead);
	return floor > latest && latest_of_all_clocks() + sim_longest_window(row, here->clock) + SECONDS(2) > latest;
}

/* The end of a lease that begins there would be past the limit for ends, wherever it may start. */
static bool
is_past_limit(const JudgedCall *call, TimestampTz node_clock, int64 max_ahead, TimestampTz starts_at)
{
	return Max(node_clock + LONGEST_START_US + max_ahead, starts_at) >= call->now + call->registry->tables.row.end_limit;
}

/* The latest end of the numbers that belong to a node. */
static TimestampTz
latest_end(const SimRegistry *tables, const SimAcquire *in)
{
	TimestampTz latest = DT_NOBEGIN;

	for (int i = 0; in->fixed && i < tables->num_numbers; i++)
		if (tables->numbers[i].node_number >= in->first_number && tables->numbers[i].node_number <= in->last_number)
			latest = Max(latest, Max(tables->numbers[i].ended_until, tables->numbers[i].leased_until));
	return latest;
}

static bool
is_free_number(const SimRegistry *tables, uint64 node_number, TimestampTz node_clock, TimestampTz earlier)
{
	const SimNumber *number = sim_find_number(tables, node_number);

	return number == NULL || (number->ended_until <= node_clock &&
							  (number->token == 0 || (number->leased_until <= earlier && number->leased_until <= node_clock)));
}

/* Whether a number of the parity of the generation is free. */
static bool
is_any_free(const SimRegistry *tables, const SimHere *here, const SimAcquire *in)
{
	for (uint64 number = in->first_number; number <= in->last_number && number < in->first_number + 1024; number++)
		if ((number & 1) == (uint64) (1 - tables->row.generation % 2) &&
			is_free_number(tables, number, in->clock, Min(in->clock, here->clock)))
			return true;
	return false;
}

/* What a node has used; 0: nothing. */
static uint64
used_by(const Server *s)
{
	if (!s->tables.exists)
		return 0;
	return s->tables.cluster.uses == SIM_USES_OWN ? s->tables.row.incarnation : s->tables.cluster.incarnation;
}

static TimestampTz
end_of_layout(const SnowflakeLayout *layout)
{
	return snowflake_tick_begin(layout, layout->max_tick + 1);
}

/* Whether the reason of a refused ACQUIRE holds. */
static bool
is_acquire_refused(const JudgedCall *call, SimReason reason)
{
	const SimRegistry *tables = &call->registry->tables;
	const SimAcquire *in = call->acquire;

	switch (reason)
	{
		case SIM_REGISTRY_IS_SELF:
			return call->registry == call->from;
		case SIM_OTHER_SOURCE:

			/*
			 * what the node has on record may be newer than its call, if the
			 * calls before did not get here
			 */
			return !accepts(tables, in->uses) &&
				(call->late || used_by(call->from) == in->uses ||
				 world.now - quiet_since(call->from) <= LOST_CALL_US);
		case SIM_OTHER_LAYOUT:
			return in->node.layout != tables->cluster.layout;
		case SIM_NO_NUMBER_FREE:
			return !is_any_free(tables, call->here, in);
		case SIM_NUMBER_HELD:
			return in->fixed && is_held(tables, in, call->own, call->now);
		case SIM_BEHIND_CREATION:
		case SIM_BEHIND_START:
		case SIM_BEHIND_IDS:
			return is_behind(&tables->row, call->here, in);
		case SIM_END_IS_PAST:
			return is_past_limit(call, in->clock, in->max_ahead, latest_end(tables, in));
		default:
			return false;
	}
}

/* Whether the reason of a refused RENEW holds. */
static bool
is_renewal_refused(const JudgedCall *call, SimReason reason)
{
	const SimRegistryRow *row = &call->registry->tables.row;
	const SimRenew *in = call->renew;

	switch (reason)
	{
		case SIM_OTHER_LAYOUT:
			return in->node.layout != call->registry->tables.cluster.layout;
		case SIM_EARLIER_GENERATION:
			/* leases of the present one start later than it can use them */
			return in->node.lease.generation < row->generation &&
				Max(row->counted_at + LONGEST_START_US, row->starts_at) > in->clock + in->max_ahead;
		case SIM_END_IS_PAST:
			return is_past_limit(call, in->clock, in->max_ahead, in->node.lease.leased_until);
		default:
			return false;
	}
}

/* Whether the reason of a call that was refused holds. */
static bool
is_refused(const JudgedCall *call, SimReason reason)
{
	const Server *registry = call->registry;
	const SimRegistry *tables = &registry->tables;

	switch (reason)
	{
		case SIM_NO_TABLE:
			return !tables->exists;
		case SIM_PROTOCOL_UNKNOWN:
			return call->from->newer && !tables->newer;
		case SIM_CLOSED:
			return tables->row.successor != 0;
		case SIM_NO_HISTORY:
			return registry->history_until > world.now && registry->history.num_entries > 0;
		case SIM_USES_ANOTHER:
			return tables->cluster.uses == SIM_USES_REGISTRY && !contains(&tables->row.taken_over, tables->cluster.incarnation);
		case SIM_CALL_LATE:
			return call->late;
		case SIM_LAYOUT_FULL:
			/* it would be the first one here */
			return tables->cluster.layout == NULL && call->here->clock >=
				end_of_layout(call->acquire != NULL ? call->acquire->node.layout : call->renew->node.layout);
		case SIM_HAS_NODES:
			return call->record != NULL && others_have_leases(tables, call->here->clock);
		default:
			return call->acquire != NULL ? is_acquire_refused(call, reason) :
				call->renew != NULL && is_renewal_refused(call, reason);
	}
}

/* Whether the places in WAL of a history never go down. */
static bool
goes_up(const SimHistory *history)
{
	for (int i = 1; i < history->num_entries; i++)
		if (history->entries[i].switched_at < history->entries[i - 1].switched_at)
			return false;
	return true;
}

/*
 * Whether a call may store a floor that no order asks for (guard (a)): what it counts is no plain promotion, or follows
 * another one within the longest window.  CREATE EXTENSION and pg_upgrade are none.
 */
static bool
may_store_floor(const JudgedCall *call)
{
	const SimRegistryRow *before = call->before;
	const SimHere *here = call->here;
	SimRegistry counted = {.row = *before};
	int			new = num_uncounted(&counted, here);

	if (before->timeline == 0 || (new == 0 && before->system_identifier != here->system_identifier))
		return false;
	return new != 1 || here->history->entries[here->history->num_entries - 1].timeline + 1 != here->timeline ||
		(before->counted_at != DT_NOBEGIN && before->counted_at + sim_longest_window(before, call->now) > call->now) ||
		!goes_up(here->history);
}

/* The values of a call that was refused; one of them may be out of range. */
static void
tell_call(const JudgedCall *call)
{
	const SimAcquire *acquire = call->acquire;
	const SimNodeCall *node = call->node;

	finding_add("the registry's clock", "%s", time_name(call->here->clock));
	if (call->start != NULL)
		finding_add("the call", "start_server, clock %s, max_ahead %.6f s", time_name(call->start->clock), call->start->max_ahead / 1e6);
	if (call->renew != NULL)
		finding_add("the call", "renew_lease, clock %s, max_ahead %.6f s, window %.6f s", time_name(call->renew->clock),
					call->renew->max_ahead / 1e6, call->renew->window / 1e6);
	if (acquire != NULL)
		finding_add("the call", "acquire_lease, clock %s, max_ahead %.6f s, window %.6f s, numbers " UINT64_FORMAT " to " UINT64_FORMAT
					"%s, has used registry %08x, starts at %s, ids end at %s",
					time_name(acquire->clock), acquire->max_ahead / 1e6, acquire->window / 1e6, acquire->first_number,
					acquire->last_number, acquire->fixed ? ", fixed" : "", (unsigned) acquire->uses, time_name(acquire->starts_at),
					time_name(acquire->ids_end_at));
	if (node != NULL)
		finding_add("its lease", "number " UINT64_FORMAT ", granted by call " INT64_FORMAT " of registry %08x, generation %d, until %s, ids end at %s",
					node->lease.node_number, node->lease.granted_by, (unsigned) node->lease.incarnation, node->lease.generation,
					time_name(node->lease.leased_until), time_name(node->lease.ids_end_at));
}

/* A registry has answered a call. */
void
judge_call(const JudgedCall *call, const SimAnswer *answer)
{
	const SimRegistryRow *row = &call->registry->tables.row;

	if (row->starts_at > call->before->starts_at && call->before->incarnation == row->incarnation &&
		!(call->own && call->acquire != NULL) && !may_store_floor(call))
		sim_fail(call->from, "server %d has a floor without need, after a call of server %d", call->registry->index, call->from->index);
	if (answer->kind == SIM_YES && (call->acquire != NULL || call->renew != NULL))
		judged[call->from->index].registry = call->registry;
	else if (judged[call->from->index].registry != call->registry)
		judged[call->from->index].registry = NULL;
	if (answer->kind != SIM_REFUSED && answer->kind != SIM_ERROR)
		return;
	judge_counts.refusals[answer->reason]++;
	if (!is_refused(call, answer->reason) &&
		sim_fail(call->from, "server %d refuses a call of server %d without need: %s", call->registry->index, call->from->index,
				 sim_reason_name(answer->reason)))
		tell_call(call);
}

/*
 * When a node's lease worker has taken a result: later than it came, if it has stood still, or the clock that it waits by.
 */
static int64
taken_at(const Server *server, int64 came_at, bool waits)
{
	int64		stood_until = Max(Max(server->suspended_until, server->frozen_until), server->mono_stopped_until);

	return waits ? Max(came_at, Min(stood_until, world.now)) : came_at;
}

/* Since when the node waits because it was refused.  After the wait its next call goes out, when it looks. */
static int64
refused_since(Server *server)
{
	const SnowflakeMachine *m = server_machine(server);

	return taken_at(server, judged[server->index].refused_at,
					m->refused_until != 0 || m->retry_at + GO_ON_US > server_monotonic(server));
}

/* Since when it waits because a registry had no time. */
static int64
overloaded_since(Server *server)
{
	return taken_at(server, judged[server->index].overloaded_at, server_machine(server)->overloads > 0);
}

/*
 * What the node was told.  wait: how long it is to wait, if it was refused.  It waits up to a quarter longer, but not longer than
 * ten seconds; for its own tables about a second, and half a second where it is refused again and again.  After that its call can
 * be one that grants nothing, a renewal that is answered by no, or a release: only then it asks for another lease.  With that answer
 * the machine forgets that it has waited, so how long it did is kept here.
 */
void
judge_said(Server *server, SimReason reason, int64 wait, bool own, bool granted)
{
	Judged	   *j = &judged[server->index];

	j->said_at[reason] = world.now;
	if (j->overloaded_at >= 0)
		j->overloaded_at = overloaded_since(server);
	if (granted)
	{
		/* what another registry's grant allows is still to be recorded here */
		if (j->refused_wait > 0 && !own)
			j->refused_at = world.now;
		j->refused_wait = 0;
	}
	else if (reason == SIM_NO_REASON && j->refused_wait > 0)
	{
		j->refused_at = refused_since(server);
		j->refused_wait = Min(j->refused_wait, world.now - j->refused_at);
	}
	if (reason == SIM_NO_REASON)
		return;
	j->refused_at = world.now;
	j->refused_wait = Min(Max(wait, MILLISECONDS(500)), own ? SECONDS(1) : SECONDS(8)) * 5 / 4;
}

/* A call of another registry was given up on, or was told that the registry has no time. */
void
judge_overloaded(const Server *server)
{
	judged[server->index].overloaded_at = world.now;
}

/* How long after the last disturbance calls may fail.  The node waits longer after a call that found an overload. */
static int64
lost_call_time(Server *server)
{
	if (judged[server->index].overloaded_at < 0)
		return LOST_CALL_US;
	return world.now - overloaded_since(server) <= OVERLOADED_US + GO_ON_US ? LOST_CALL_US + OVERLOADED_US : LOST_CALL_US;
}

/* Whether the node still waits because it was refused, as long as it was told: what it was refused for may be right by now. */
static bool
waits_as_told(Server *server)
{
	const Judged *j = &judged[server->index];

	return j->refused_wait > 0 && world.now - refused_since(server) <= j->refused_wait + GO_ON_US;
}

/*
 * Disturbances
 */
static int64
disturbed_until(const Server *s)
{
	int64		until = Max(s->struck_at, s->held_until);

	until = Max(until, Max(s->cut_until, s->late_until));
	until = Max(until, Max(s->slow_until, s->locked_until));
	until = Max(until, Max(s->frozen_until, s->history_until));
	until = Max(until, Max(Max(s->unnamed_until, s->plan->named_at), s->cancel_until));
	until = Max(until, Max(s->full_until, s->slots_until));
	until = Max(until, Max(s->revoked_until, s->missing_until));
	until = Max(until, Max(s->suspended_until, s->mono_stopped_until));
	return Min(until, world.now);
}

/* When the servers of a cluster that carry out the calls of a server were last disturbed. */
static int64
cluster_disturbed_until(const Server *server, int cluster)
{
	const Server *primary = cluster_primary(cluster);
	int64		until = 0;

	/* what the cluster itself has on record is asked, too */
	if (primary == NULL || primary->state != SERVER_RUNNING)
		return world.now;
	for (int i = 0; i < world.num_servers; i++)
	{
		const Server *s = &world.servers[i];
		const Server *standby;

		if (s->cluster != cluster && s != server)
			continue;
		until = Max(until, s->struck_at);
		if (s->state != SERVER_RUNNING)
			continue;
		until = Max(until, disturbed_until(s));
		standby = sync_standby(s);
		if (standby != NULL && standby->state != SERVER_STANDBY)
			return world.now;
		if (standby != NULL)
			until = Max(until, disturbed_until(standby));
	}
	return until;
}

static int
cluster_of_registry(const Server *server, const char *registry)
{
	return registry[0] == '\0' ? server->cluster : atoi(registry + 1);
}

/* The same of the registry that a server uses; and of the one that a release is out to, which may be a former one. */
static int64
registry_disturbed_until(const Server *server)
{
	const SnowflakeMachine *m = server_machine((Server *) server);
	int64		until = cluster_disturbed_until(server, cluster_of_registry(server, server->conf.registry));

	if (m->call == SNOWFLAKE_CALL_RELEASE)
		until = Max(until, cluster_disturbed_until(server, cluster_of_registry(server, m->lease.request.registry)));
	return until;
}

/* Since when nothing disturbs the server, nor a registry that it calls. */
int64
quiet_since(const Server *server)
{
	return Max(disturbed_until(server), registry_disturbed_until(server));
}

/*
 * Errors of sessions
 */
static bool
begins(const char *message, const char *with)
{
	return strncmp(message, with, strlen(with)) == 0;
}

static const char *
setting_of_request(const char *message)
{
	static const char *const reasons[] = {
		"no worker id in ", "snowflake.worker_id \"mac\" needs", "worker id ", "snowflake.datacenter_id ",
		"node number ", "the layout has too few", "the epoch of "
	};

	for (int i = 0; i < (int) lengthof(reasons); i++)
		if (begins(message, reasons[i]))
			return reasons[i];
	return NULL;
}

static uint64
least_node_max(const Server *server)
{
	uint64		least = PG_UINT64_MAX;

	for (int i = 0; i < server->shared->num_slots; i++)
		least = Min(least, snowflake_node_max(&server->shared->slots[i].layout));
	return least;
}

/* Whether the settings give a number, written down here once more. */
static bool
settings_give_number(const Server *server)
{
	const SnowflakeLayout *layout = &server->shared->slots[0].layout;
	const Conf *conf = &server->conf;
	uint64		worker_max = snowflake_field_max(layout, SNOWFLAKE_WORKER);
	uint64		datacenter = Max(conf->datacenter_id, 0);
	int			clock_bits = layout->bits[SNOWFLAKE_CLOCK];
	uint64		worker;

	if (strcmp(conf->worker_id, "auto") == 0)
	{
		uint64		first = datacenter << layout->bits[SNOWFLAKE_WORKER] << clock_bits;

		return least_node_max(server) >= 3 && datacenter <= snowflake_field_max(layout, SNOWFLAKE_DATACENTER) &&
			first + 1 < least_node_max(server);
	}
	if (strcmp(conf->worker_id, "mac") == 0)
	{
		if (conf->registry[0] == '\0' || !host_is_named(server))
			return false;
		worker = server->plan->mac & worker_max;
		if (conf->datacenter_id < 0)
			datacenter = server->plan->mac >> layout->bits[SNOWFLAKE_WORKER] &
				snowflake_field_max(layout, SNOWFLAKE_DATACENTER);
	}
	else if (strcmp(conf->worker_id, "hostname") == 0)
	{
		if (!host_is_named(server))
			return false;
		worker = (uint64) server->host;
	}
	else
		worker = strtoull(conf->worker_id, NULL, 10);
	return worker <= worker_max && datacenter <= snowflake_field_max(layout, SNOWFLAKE_DATACENTER) &&
		((datacenter << layout->bits[SNOWFLAKE_WORKER] | worker) << clock_bits) < least_node_max(server);
}

/*
 * Whether an error about a layout names the default layout, while an id of another one was asked for.  While the clock is
 * past the end of that one, no lease is taken: perhaps the clock is wrong.
 */
static bool
names_default_layout(const Server *server, const SnowflakeSlot *slot, const char *message)
{
	const SnowflakeSlot *first = &server->shared->slots[0];
	char		name[sizeof(first->name) + 2];

	snprintf(name, sizeof(name), "\"%.128s\"", first->name);
	return slot != first && strstr(message, name) != NULL;
}

/* Whether the clock is past the end of a layout. */
static bool
is_layout_over(const Server *server, const SnowflakeLayout *layout)
{
	return server_id_clock(server) >= end_of_layout(layout);
}

/* Whether the number of the lease has issued the last id of a layout.  Without need, if another number is sooner. */
static bool
is_used_up(Server *server, const SnowflakeSlot *slot)
{
	const SnowflakeMachine *m = server_machine(server);
	const SnowflakeSettings *settings = &server->shared->settings;
	uint64		word = slot->word.value & ~SNOWFLAKE_SEALED;
	int64		behind = end_of_layout(&slot->layout) - (int64) settings->max_ahead.value - server_id_clock(server);

	return snowflake_word_node(&slot->layout, word) == m->lease.node && snowflake_word_is_last(&slot->layout, word) &&
		(m->request.first == m->request.last || behind <= Max((int64) settings->max_wait.value, SECONDS(1)));
}

/*
 * Whether no tick of a layout is left, after the ids of earlier starts of the cluster.  An opening of a word can be later
 * than the one before (words.c).
 */
static bool
is_layout_full(Server *server, const SnowflakeSlot *slot)
{
	const SnowflakeMachine *m = server_machine(server);
	int64		ticks = 1 + (slot->openings >> slot->layout.bits[SNOWFLAKE_SEQUENCE]);

	if (is_layout_over(server, &slot->layout) || is_used_up(server, slot))
		return true;
	return m->lease.opens_at + ticks * slot->layout.tick_us >= end_of_layout(&slot->layout) &&
		(m->request.fixed || m->lease.opens_at <= server_id_clock(server) + LONGEST_START_US + SECONDS(1) +
		 (int64) server->shared->settings.max_ahead.value);
}

/* The word that the next id follows: that of the slot, or the one that waits for a later limit. */
static uint64
followed_word(const SnowflakeSlot *slot)
{
	return (slot->word.value & SNOWFLAKE_SEALED) != 0 && slot->waiting.value != 0 ?
		slot->waiting.value : slot->word.value & ~SNOWFLAKE_SEALED;
}

/*
 * How long ago the limit for ends still kept the next id away: an id's tick ends at or before the registry's clock + the
 * limit.  Not more than 0: it still does; NEVER: it has not since the last id.  If the clocks differ by the limit
 * but for a part of a tick, this is so in the rest of each tick.
 */
static int64
cut_ago(const Server *server, const SnowflakeSlot *slot)
{
	const SnowflakeLayout *layout = &slot->layout;
	const Server *registry = judged[server->index].registry;
	TimestampTz clock = server_id_clock(server);
	uint64		after_word = snowflake_word_tick(layout, followed_word(slot) + 1);
	uint64		of_clock = clock > layout->epoch ? snowflake_tick_at(layout, clock) : 0;
	TimestampTz latest;
	int64		lasted;			/* since when the clock shows its tick */
	int64		ago;

	if (registry == NULL || !registry->tables.exists)
		return NEVER;
	latest = (registry == server ? clock : server_clock(registry)) + registry->tables.row.end_limit;
	ago = latest - snowflake_tick_begin(layout, Max(after_word, of_clock) + 1);
	if (ago <= 0)
		return ago;

	/*
	 * before the clock's tick began, the next id was of an earlier one, which
	 * the limit allowed
	 */
	lasted = clock - snowflake_tick_begin(layout, of_clock) +
		(server->clock.stopped ? world.now - server->clock.since : 0);
	return registry->clock.stopped || (of_clock > after_word && ago > lasted) ? NEVER : ago;
}

/* Whether the next id has to wait for the clock longer than a session does, and no other number is sooner. */
static bool
is_clock_behind(Server *server, const SnowflakeSlot *slot, int64 unused_wait)
{
	const SnowflakeMachine *m = server_machine(server);
	const SnowflakeSettings *settings = &server->shared->settings;
	uint64		word = followed_word(slot);
	int64		behind = snowflake_tick_begin(&slot->layout, snowflake_word_tick(&slot->layout, word + 1)) -
	(int64) settings->max_ahead.value - server_id_clock(server);

	/*
	 * it would have been there in time; it may have come nearer since the
	 * last look
	 */
	if (behind > 0 && behind + MILLISECONDS(5) <= unused_wait)
		return false;
	if (m->request.fixed || m->request.first == m->request.last)
		return true;
	if (behind <= Max((int64) settings->max_wait.value, SECONDS(1)))
		return true;
	/* the registry gives no other one */
	if (waits_as_told(server) || (m->leaving && world.now - judged[server->index].refused_at <= LOST_CALL_US))
		return true;

	/*
	 * all leases of the registry start so late; and an opening of a word can
	 * be later than the one before (words.c)
	 */
	return (m->lease.starts_at >= server_id_clock(server) ||
			(word == slot->opened.value && (m->lease.opens_at == m->lease.starts_at ||
											snowflake_word_is_late(&slot->layout, word, m->lease.opens_at))) ||
			(word == slot->waiting.value && !snowflake_word_is_late(&slot->layout, word, m->lease.starts_at))) &&
		m->lease.starts_at <= server_id_clock(server) + LONGEST_START_US + SECONDS(1) +
		(int64) settings->max_ahead.value;
}

static SimReason
reason_of_message(const char *message)
{
	for (int reason = SIM_NO_REASON + 1; reason < NUM_SIM_REASONS; reason++)
		if (strcmp(message, sim_reason_name(reason)) == 0)
			return reason;
	return SIM_NO_REASON;
}

/*
 * How long the reason of an error may last after the last disturbance; NEVER: it holds now.
 */
static int64
allowed_time(Server *server, int slot, const char *message, int64 unused_wait)
{
	const SnowflakeSlot *s = &server->shared->slots[slot];
	SimReason	reason = reason_of_message(message);

	if (reason != SIM_NO_REASON)
		return world.now - judged[server->index].said_at[reason] <= GO_ON_US ? NEVER : lost_call_time(server);
	if (begins(message, "cannot issue ids during recovery"))
		return server->follows >= 0 ? NEVER : 0;
	if (begins(message, "the timestamp field of"))
		return (names_default_layout(server, s, message) ? is_layout_over(server, &server->shared->slots[0].layout) :
				is_layout_full(server, s)) ? NEVER : GO_ON_US;
	if (begins(message, "the next id would be"))
		return is_clock_behind(server, s, unused_wait) ? NEVER : lost_call_time(server);
	if (begins(message, "the epoch of "))
		return s->layout.epoch > server_id_clock(server) ? NEVER : GO_ON_US;
	if (setting_of_request(message) != NULL)
		return !settings_give_number(server) ? NEVER : GO_ON_US;
	return lost_call_time(server);
}

/* A call of a session has failed, which began at a time. */
void
judge_error(Server *server, int slot, const char *message, int64 begun_at, int64 max_wait)
{
	Judged	   *j = &judged[server->index];
	int64		allowed = allowed_time(server, slot, message, begun_at + max_wait - max_wait / 1000 - world.now);
	int64		since = Max(quiet_since(server), Max(j->needed_at[slot], j->refused_at));
	bool		waited = begins(message, "gave up waiting") || begins(message, "no answer") ||
	begins(message, "the next id would be") ||

	/*
	 * granted before the clock was set back: another number is taken when
	 * somebody asks
	 */
	(begins(message, "the timestamp field of") && server_machine(server)->lease.starts_at > server_id_clock(server)) ||

	/*
	 * a lease of the own tables is not kept while nobody asks; what its last
	 * renewal failed with is told until the next one
	 */
	(server_machine(server)->lease.request.registry[0] == '\0' && server_machine(server)->lease.leased_until <= server_id_clock(server));

	/* no call could have extended the lease far enough, or not until then */
	if (begins(message, "gave up waiting for the lease") || begins(message, "no answer yet"))
	{
		int64		ago = cut_ago(server, &server->shared->slots[slot]);

		if (ago <= 0)
			allowed = NEVER;
		else if (ago <= world.now)
			j->needed_at[slot] = Max(j->needed_at[slot], world.now - ago);
		since = Max(since, j->needed_at[slot]);
	}
	judge_counts.errors++;
	if (j->failed_at[slot] < 0 || j->failed_at[slot] < begun_at - GO_ON_US)
		j->asked_at[slot] = begun_at;
	j->failed_at[slot] = world.now;
	/* what nobody has asked for need not be there at once */
	if (waited)
		since = Max(since, j->asked_at[slot]);
	if (allowed == NEVER)
	{
		judge_counts.needed++;
		j->needed_at[slot] = world.now;
		return;
	}
	if (world.now - since > allowed && !waits_as_told(server) &&
		sim_fail(server, "server %d refuses an id of layout \"%s\" without need, %.3f s after the last disturbance: %s", server->index,
				 server->shared->slots[slot].name, (world.now - since) / 1e6, message))
	{
		finding_add("refused last", "%.3f s ago", (world.now - j->refused_at) / 1e6);
		finding_add("asked for since", "%.3f s, in vain", (world.now - j->asked_at[slot]) / 1e6);
	}
}

/* A call of a session has ended, with an id or without one. */
void
judge_ended(Process *p, int slot, bool issued, int64 begun_at, int64 max_wait)
{
	Server	   *server = p->server;
	int64		lasted = world.now - begun_at;

	if (issued)
		judged[server->index].failed_at[slot] = -1;
	/* it was not running all the time */
	if (Max(server->frozen_until, server->suspended_until) >= begun_at || server->mono_stopped_until >= begun_at)
		return;
	judge_counts.calls++;
	if (lasted > max_wait + CALL_SLACK_US)
		sim_fail(server, "a call of server %d has lasted %.3f s; max_wait is %.3f s", server->index, lasted / 1e6, max_wait / 1e6);
}
