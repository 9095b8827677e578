/*
 * calls.c
 *	  Registry calls: what src/registry/protocol.c, local.c and remote.c do in the server,
 *	  with the network and the disks of the simulated world.
 *
 * A statement is a struct here, which the call of the query points to; so is what
 * a row returns.  A transaction, once it is sent, has a life of its own: it may be carried
 * out when nobody waits for it any more.
 *
 * A transaction locks the registry's row until its commit is acknowledged, so at most
 * one is going on in a server, and what is committed can be kept as one state of the
 * tables: the functions are carried out when their commit is flushed.
 */
#include "sim.h"

#include "storage/ipc.h"

#define FIRST_TIMEOUT_US	SECONDS(5)	/* as remote.c */
#define LAST_TIMEOUT_US		MILLISECONDS(800)
#define LOCK_TIMEOUT_US		SECONDS(4)
#define STATEMENT_TIMEOUT_US SECONDS(4)

typedef enum StatementKind
{
	STATEMENT_CREATE,
	STATEMENT_START,
	STATEMENT_ACQUIRE,
	STATEMENT_RECORD,
	STATEMENT_RENEW,
	STATEMENT_RELEASE
} StatementKind;

static const char *const statement_names[] = {
	"CREATE EXTENSION", "start_server", "acquire_lease", "record_uses", "renew_lease", "release_lease"
};

typedef struct Statement
{
	StatementKind kind;
	bool		own;			/* the function for the own lease worker */
	union
	{
		SimStart	start;
		SimAcquire	acquire;
		SimRecord	record;
		SimRenew	renew;
		SimNodeCall release;
	}			u;
} Statement;

typedef struct Outcome
{
	SimReason	reason;
	union
	{
		SimStarted	started;
		SimGranted	granted;
		SimRenewed	renewed;
		SimAnswer	answer;
	}			u;
} Outcome;

typedef enum Step
{
	STEP_ARRIVE,
	STEP_LOCK,
	STEP_LOCK_TIMEOUT,
	STEP_FLUSH,
	STEP_SYNC,
	STEP_ANSWER
} Step;

typedef struct Transaction
{
	struct Transaction *next;	/* of all */
	struct Transaction *previous;
	Statement	statement;
	Outcome		outcome;
	bool		local;
	bool		local_commit;
	bool		last;
	int			cluster;		/* remote: where the address leads */
	Server	   *target;			/* once it has arrived */
	uint64		target_epoch;
	Server	   *from;
	Process    *client;			/* who waits; NULL: nobody any more */
	uint64		step;			/* number of the event that counts */
	bool		queued;
	struct Transaction *queue_next;
	TimestampTz clock;			/* when it began, there */
	int64		sync_since;

	/* for the client */
	bool		done;
	bool		failed;			/* it cannot know what came of it */
	bool		overloaded;		/* another registry has had no time */
	int			sqlerrcode;		/* an error of PostgreSQL; 0: none */
	SimError	error;
	Prng		prng;
} Transaction;

static Transaction *transactions = NULL;

/*
 * Those that are over.  Their memory stays, since events may point to it: what such an event says
 * is not the step that is due.
 */
static Transaction *over = NULL;

static void answer(Transaction *t, bool failed, SimError error);
static void begin(Transaction *t);

/*
 * Statements
 */
static uint64
read_id(const pg_uuid_t *uuid)
{
	uint64		id;

	memcpy(&id, uuid, sizeof(id));
	return id;
}

static void
write_id(pg_uuid_t *uuid, uint64 id)
{
	memset(uuid, 0, sizeof(*uuid));
	memcpy(uuid, &id, sizeof(id));
}

static Statement *
begin_statement(SnowflakeQuery *query, StatementKind kind)
{
	Statement  *s = process_allocate(sizeof(Statement), true);

	memset(query, 0, sizeof(*query));
	query->text = statement_names[kind];
	query->call = (const char *) s;
	s->kind = kind;
	return s;
}

static const SnowflakeLayout *
own_layout(void)
{
	return &sim_layouts[current_server->conf.layouts[0]];
}

static uint64
read_uses(const SnowflakeUsed *uses)
{
	return uses->known ? read_id(&uses->incarnation) : 0;
}

static void
build_node_call(const SnowflakeCall *call, SimNodeCall *node)
{
	node->protocol = SIM_PROTOCOL;
	node->start = read_id(&snowflake_shared->start);
	node->call = (int64) call->number;
	node->layout = own_layout();
	node->lease.ids_end_at = DT_NOBEGIN;
	if (call->lease.granted_by == 0)
		return;
	node->lease.token = read_id(&call->lease.token);
	node->lease.granted_by = (int64) call->lease.granted_by;
	node->lease.ids_end_at = call->lease.ids_end_at;
}

#define QUIET_US	SECONDS(10)

/* What a call says of all ids of its server; the settings have not changed since it was made. */
static void
check_said(int64 max_ahead, int64 tick)
{
	int64		longest = 0;

	if (world.now - quiet_since(current_server) < QUIET_US)
		return;
	for (int i = 0; i < snowflake_shared->num_slots; i++)
		longest = Max(longest, snowflake_shared->slots[i].layout.tick_us);
	if (max_ahead != (int64) snowflake_shared->settings.max_ahead.value || tick != longest)
		sim_fail("server %d says that its ids are up to %.6f s ahead, in ticks of %.6f s", current_server->index,
				 max_ahead / 1e6, tick / 1e6);
}

static void
build_start(const SnowflakeStartCall *call, SimStart *start)
{
	start->protocol = SIM_PROTOCOL;
	start->clock = call->clock;
	start->max_ahead = call->max_ahead;
	start->tick = call->tick;
}

static void
build_acquire(const SnowflakeCall *call, SimAcquire *a)
{
	const SnowflakeAcquireCall *acquire = &call->u.acquire;

	build_node_call(call, &a->node);
	a->clock = acquire->clock;
	a->max_ahead = acquire->max_ahead;
	a->tick = acquire->tick;
	a->window = acquire->window;
	a->first_number = acquire->first;
	a->last_number = acquire->last;
	a->fixed = acquire->fixed;
	a->layout_set = call->layout_set;
	a->uses = read_uses(&acquire->uses);
	a->starts_at = acquire->starts_at;
	a->host = current_server->host;
	a->port = 5432;
	a->timeline = current_server->timeline;
	a->launched_at = current_server->launched_at;
	a->system_identifier = current_server->system_identifier;
	a->ended.ids_end_at = acquire->ids_end_at;
	if (acquire->ids_end_at == DT_NOBEGIN)
		return;
	a->ended.incarnation = read_id(&acquire->incarnation);
	a->ended.generation = acquire->generation;
}

static void
build_record(const SnowflakeRecordCall *call, SimRecord *record)
{
	record->protocol = SIM_PROTOCOL;
	record->incarnation = read_id(&call->incarnation);
	record->uses = read_uses(&call->uses);
	record->host = current_server->host;
	record->port = 5432;
}

void
snowflake_query_build(const SnowflakeCall *call, SnowflakeQuery *query)
{
	Statement  *s = NULL;

	switch (call->kind)
	{
		case SNOWFLAKE_CALL_START:
			s = begin_statement(query, STATEMENT_START);
			check_said(call->u.start.max_ahead, call->u.start.tick);
			build_start(&call->u.start, &s->u.start);
			query->create = call->u.start.create;
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			s = begin_statement(query, STATEMENT_ACQUIRE);
			s->own = call->registry[0] == '\0';
			check_said(call->u.acquire.max_ahead, call->u.acquire.tick);
			build_acquire(call, &s->u.acquire);
			break;
		case SNOWFLAKE_CALL_RECORD:
			s = begin_statement(query, STATEMENT_RECORD);
			build_record(&call->u.record, &s->u.record);
			break;
		case SNOWFLAKE_CALL_RENEW:
			s = begin_statement(query, STATEMENT_RENEW);
			build_node_call(call, &s->u.renew.node);
			s->u.renew.clock = call->u.renew.clock;
			s->u.renew.window = call->u.renew.window;
			break;
		default:
			s = begin_statement(query, STATEMENT_RELEASE);
			build_node_call(call, &s->u.release);
			query->local_commit = true;
			break;
	}
	query->last = call->last;
}

static void
read_started(const SimStarted *in, SnowflakeStartResult *started)
{
	started->uses = in->uses == SIM_USES_NOTHING ? SNOWFLAKE_USES_NOTHING :
		in->uses == SIM_USES_OWN ? SNOWFLAKE_USES_OWN : SNOWFLAKE_USES_ANOTHER;
	write_id(&started->incarnation, in->uses_incarnation);
	started->starts_at = in->starts_at;
}

static void
read_granted(const SimGranted *in, SnowflakeAcquireResult *granted)
{
	write_id(&granted->token, in->token);
	write_id(&granted->incarnation, in->answer.incarnation);
	granted->generation = in->answer.generation;
	granted->clock = in->answer.clock;
	granted->node = in->node_number;
	granted->starts_at = in->starts_at;
	granted->leased_until = in->leased_until;
}

SnowflakeResultKind
snowflake_row_read(const SnowflakeCall *call, const SnowflakeRow *row, SnowflakeResult *result)
{
	const Outcome *o = (const Outcome *) row->columns[0];

	if (o->reason != SIM_YES)
		return SNOWFLAKE_RESULT_NO;
	if (call->kind == SNOWFLAKE_CALL_START)
		read_started(&o->u.started, &result->u.start);
	else if (call->kind == SNOWFLAKE_CALL_ACQUIRE)
		read_granted(&o->u.granted, &result->u.acquire);
	else if (call->kind == SNOWFLAKE_CALL_RENEW)
		result->u.renew.leased_until = o->u.renewed.leased_until;
	return SNOWFLAKE_RESULT_OK;
}

void
snowflake_result_error(SnowflakeResult *result, int sqlerrcode, const char *message,
					   const char *detail, const char *hint)
{
	result->kind = SNOWFLAKE_RESULT_FAILED;
	snowflake_problem_set(&result->problem, sqlerrcode, message != NULL ? message : "unknown error", detail, hint);
}

/*
 * Transactions at the registry
 */
static void
go_to(Transaction *t, int64 at, Step step)
{
	t->step = ++world.next_number;
	schedule(at, EVENT_TRANSACTION, step, 0, t->step, t);
}

static void
free_transaction(Transaction *t)
{
	if (t->previous != NULL)
		t->previous->next = t->next;
	else
		transactions = t->next;
	if (t->next != NULL)
		t->next->previous = t->previous;
	t->step = 0;
	t->next = over;
	over = t;
}

/* A transaction that nobody waits for is freed when its last event comes. */
static void
retire(Transaction *t)
{
	if (t->client == NULL)
		free_transaction(t);
}

static int64
network_delay(Transaction *t)
{
	return spread(&t->prng, 100, MILLISECONDS(3));
}

static bool
is_cut(const Server *a, const Server *b)
{
	return a != b && (a->cut_until > world.now || b->cut_until > world.now);
}

/* The lock is free for the next one. */
static void
unlock(Server *server)
{
	server->holder = NULL;
	while (server->holder == NULL && server->queue_first != NULL)
	{
		Transaction *t = server->queue_first;

		server->queue_first = t->queue_next;
		if (server->queue_first == NULL)
			server->queue_last = NULL;
		t->queued = false;
		t->queue_next = NULL;
		begin(t);
	}
}

static void
leave_queue(Transaction *t)
{
	Transaction **link = &t->target->queue_first;
	Transaction *last = NULL;

	while (*link != t)
	{
		last = *link;
		link = &last->queue_next;
	}
	*link = t->queue_next;
	if (t->target->queue_last == t)
		t->target->queue_last = last;
	t->queued = false;
	t->queue_next = NULL;
}

static void
begin(Transaction *t)
{
	Server	   *server = t->target;
	int64		delay;

	server->holder = t;
	t->clock = server_clock(server);
	delay = server->slow_until > world.now ? spread(&t->prng, MILLISECONDS(10), SECONDS(20)) :
		spread(&t->prng, 200, MILLISECONDS(5));
	if (server->slow_until > world.now)
		server->held_until = Max(server->held_until, world.now + delay);
	go_to(t, world.now + delay, STEP_FLUSH);
}

/*
 * Where an address leads.  It names all hosts of the cluster; each node has its own order of them, and
 * takes the first that is writable.  Now and then it takes another one.
 */
static Server *
server_at(Transaction *t)
{
	int			first = (int) (mix(world.plan->seed ^ t->from->index) % world.num_servers);
	bool		any = !world.calm && chance(&t->prng, 200);
	Server	   *found = NULL;
	int			num = 0;

	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[(first + i) % world.num_servers];

		if (s->cluster != t->cluster || s->state != SERVER_RUNNING)
			continue;
		num++;
		if (found == NULL || (any && below(&t->prng, num) == 0))
			found = s;
	}
	return found != NULL ? found : cluster_primary(t->cluster);
}

/* An error of PostgreSQL. */
static void
fail_call(Transaction *t, int sqlerrcode)
{
	t->sqlerrcode = sqlerrcode;
	answer(t, true, SIM_OK);
}

static void
arrive(Transaction *t)
{
	Server	   *server = t->local ? t->from : server_at(t);

	if (server == NULL || server->state != SERVER_RUNNING)
	{
		if (t->local && server != NULL && server->state == SERVER_STOPPING)
			;
		else
		{
			/* refused, or nothing comes back */
			t->overloaded = server != NULL && server->state == SERVER_STARTING;
			if (chance(&t->prng, 700))
				answer(t, true, SIM_OK);
			else
				retire(t);
			return;
		}
	}
	if (is_cut(t->from, server))
	{
		retire(t);
		return;
	}
	if (server->frozen_until > world.now)
	{
		go_to(t, server->frozen_until + 1, STEP_ARRIVE);
		return;
	}
	t->target = server;
	t->target_epoch = server->epoch;
	if (!t->local && server->missing_until > world.now)
		fail_call(t, ERRCODE_UNDEFINED_DATABASE);
	else if (!t->local && server->revoked_until > world.now)
		fail_call(t, ERRCODE_INSUFFICIENT_PRIVILEGE);
	else if (server->locked_until > world.now)
	{
		if (server->locked_until > world.now + LOCK_TIMEOUT_US)
			go_to(t, world.now + LOCK_TIMEOUT_US, STEP_LOCK_TIMEOUT);
		else
			go_to(t, server->locked_until, STEP_LOCK);
	}
	else if (server->holder != NULL)
	{
		t->queued = true;
		if (server->queue_last != NULL)
			server->queue_last->queue_next = t;
		else
			server->queue_first = t;
		server->queue_last = t;
		go_to(t, world.now + LOCK_TIMEOUT_US, STEP_LOCK_TIMEOUT);
	}
	else
		begin(t);
}

/* What the functions find of their server and session. */
SimHere
here_of(Server *server, TimestampTz clock)
{
	SimHere		here = {
		.clock = clock,
		.system_identifier = server->system_identifier,
		.launched_at = server->launched_at,
		.history = &server->history,
		.random = sim_random,
		.new_uuid = sim_random
	};

	if (server->history_until > world.now && server->history.num_entries > 0)
		here.history = NULL;
	return here;
}

static void
tell(const Transaction *t)
{
	const Statement *s = &t->statement;
	const Outcome *o = &t->outcome;
	int			from = t->from->index;

	if (!world.verbose)
		return;
	if (t->error != SIM_OK)
		story(t->target, "%s of server %d: %s", statement_names[s->kind], from, sim_error_name(t->error));
	else if (o->reason != SIM_YES)
		story(t->target, "%s of server %d: no, reason %d", statement_names[s->kind], from, o->reason);
	else if (s->kind == STATEMENT_ACQUIRE)
		story(t->target, "durable: server %d has node number " UINT64_FORMAT " from %s until %s (registry %08x, generation %d)",
			  from, o->u.granted.node_number, time_name(o->u.granted.starts_at), time_name(o->u.granted.leased_until),
			  (unsigned) o->u.granted.answer.incarnation, o->u.granted.answer.generation);
	else if (s->kind == STATEMENT_RENEW)
		story(t->target, "durable: the lease of server %d is renewed until %s", from,
			  time_name(o->u.renewed.leased_until));
	else if (s->kind == STATEMENT_RELEASE)
		story(t->target, "durable: the lease of server %d is closed at %s", from,
			  time_name(s->u.release.lease.ids_end_at));
	else
		story(t->target, "durable: %s of server %d", statement_names[s->kind], from);
}

/*
 * Whether the registry does not know the version of the protocol that the call has.  A server updates its own
 * extension by itself; the administrator of another one does it when a node is refused, somewhat later.
 */
static bool
is_too_new(const Transaction *t, SimRegistry *tables)
{
	Server	   *target = t->target;

	if (!t->from->newer || tables->newer || !tables->exists)
		return false;
	if (!t->local && target->update_at == 0)
		target->update_at = world.now + (int64) (mix((uint64) world.now) % (uint64) SECONDS(60));
	if (!t->local && target->update_at > world.now && !world.calm)
		return true;
	story(target, "ALTER EXTENSION UPDATE");
	target->newer = tables->newer = true;
	target->update_at = 0;
	return false;
}

static SimError
call_function(Transaction *t, SimRegistry *tables, const SimHere *here, uint64 *start)
{
	Statement  *s = &t->statement;
	Outcome    *o = &t->outcome;
	SimError	error = SIM_OK;

	if (is_too_new(t, tables))
	{
		o->reason = SIM_YES;
		return SIM_PROTOCOL_UNKNOWN;
	}
	switch (s->kind)
	{
		case STATEMENT_CREATE:
			sim_create_extension(tables, here);
			break;
		case STATEMENT_START:
			error = sim_start_server(tables, here, &s->u.start, &o->u.started);
			break;
		case STATEMENT_ACQUIRE:
			error = s->own ? sim_acquire_own_lease(tables, here, &s->u.acquire, &o->u.granted) :
				sim_acquire_lease(tables, here, &s->u.acquire, &o->u.granted);
			*start = s->u.acquire.node.start;
			break;
		case STATEMENT_RECORD:
			error = sim_record_uses(tables, here, &s->u.record, &o->u.answer);
			o->reason = o->u.answer.reason;
			break;
		case STATEMENT_RENEW:
			error = sim_renew_lease(tables, here, &s->u.renew, &o->u.renewed);
			o->reason = o->u.renewed.answer.reason;
			*start = s->u.renew.node.start;
			break;
		case STATEMENT_RELEASE:
			error = sim_release_lease(tables, here, &s->u.release, &o->u.answer);
			o->reason = o->u.answer.reason;
			*start = s->u.release.start;
			break;
	}
	if (error != SIM_OK)
		o->reason = SIM_YES;
	return error;
}

/* Whether the call was not the last one of its node when it was carried out. */
static bool
is_late(const Transaction *t, uint64 start, int64 call)
{
	uint64		now;

	if (t->client == NULL)
		return true;
	memcpy(&now, &t->from->shared->start, sizeof(now));
	return now != start || (int64) server_machine(t->from)->call_number != call;
}

static void
judge(const Transaction *t, const SimHere *here)
{
	const Statement *s = &t->statement;
	JudgedCall	call = {.from = t->from,.registry = t->target,.here = here,.own = s->own};

	if (t->error == SIM_OK)
		return;
	if (s->kind == STATEMENT_ACQUIRE)
	{
		call.acquire = &s->u.acquire;
		call.late = is_late(t, s->u.acquire.node.start, s->u.acquire.node.call);
	}
	else if (s->kind == STATEMENT_RENEW)
	{
		call.renew = &s->u.renew;
		call.late = is_late(t, s->u.renew.node.start, s->u.renew.node.call);
	}
	else if (s->kind == STATEMENT_RELEASE)
		call.late = is_late(t, s->u.release.start, s->u.release.call);
	else if (s->kind == STATEMENT_RECORD)
		call.record = &s->u.record;
	judge_call(&call, t->error);
}

/* The functions are carried out, and the commit fails. */
static void
execute_in_vain(Transaction *t)
{
	Server	   *server = t->target;
	SimHere		here = here_of(server, t->clock);
	SimRegistry tables = {0};
	uint64		start = 0;

	sim_registry_copy(&tables, &server->tables);
	(void) call_function(t, &tables, &here, &start);
	sim_registry_free(&tables);
	story(server, "the disk is full: %s of server %d is rolled back", statement_names[t->statement.kind], t->from->index);
	unlock(server);
	fail_call(t, ERRCODE_DISK_FULL);
}

/* The functions, when what they did is flushed. */
static void
execute(Transaction *t)
{
	Server	   *server = t->target;
	SimRegistry *tables = &server->tables;
	Statement  *s = &t->statement;
	SimHere		here = here_of(server, t->clock);
	uint64		start = 0;
	int			generation = tables->row.generation;
	SimUses		used = tables->uses;
	uint64		used_incarnation = tables->uses_incarnation;
	bool		closed = tables->exists && tables->row.successor != 0;

	/* a copy of the database is made a registry now */
	if (s->kind == STATEMENT_CREATE || (tables->exists && tables->row.database != tables->oid))
	{
		pass_creation(server);
		here.clock = server_clock(server);
	}
	if (s->kind == STATEMENT_ACQUIRE)
		check_held_before(server, &s->u.acquire, s->own, here.clock);
	t->error = call_function(t, tables, &here, &start);
	check_incarnation(server);
	if (s->kind == STATEMENT_ACQUIRE && t->error == SIM_OK)
		check_granted(t->from, server, &s->u.acquire, &t->outcome.u.granted);
	else if (s->kind == STATEMENT_RENEW && t->error == SIM_OK && t->outcome.reason == SIM_YES)
		check_window(t->from, &s->u.renew, &t->outcome.u.renewed);
	else if (s->kind == STATEMENT_RENEW && t->error == SIM_OK)
		check_not_renewed(t->from, server, s->u.renew.node.lease.token, t->outcome.reason);
	judge(t, &here);
	if (t->error == SIM_OK)
		start_is_counted(server);

	/* the first use of a registry is an order of the administrator (A1) */
	if (t->error == SIM_OK &&
		(used != tables->uses || used_incarnation != tables->uses_incarnation) &&
		((used != SIM_USES_NOTHING && s->kind == STATEMENT_RECORD) || world.plan->moving))
		order_given(server);
	if (closed && t->error == SIM_OK &&
		(s->kind == STATEMENT_ACQUIRE || s->kind == STATEMENT_RENEW || s->kind == STATEMENT_RELEASE))
		sim_fail("server %d: %s of server %d is carried out in a registry that was closed", server->index,
				 statement_names[s->kind], t->from->index);
	if (s->kind != STATEMENT_CREATE && tables->row.generation < generation)
		sim_fail("server %d: the generation goes back from %d to %d", server->index, generation, tables->row.generation);
	if (t->error == SIM_OK && s->kind == STATEMENT_START && tables->row.generation > generation &&
		tables->row.counted_at < s->u.start.clock)
		sim_fail("server %d: leases of generation %d may start before the promotion", server->index,
				 tables->row.generation);
	server->lsn += 100;
	note(t->error);
	note((uint64) world.now);
	if (start != 0 && t->error == SIM_OK)
		check_row_ends(server, t->from, start);
	tell(t);
}

Server *
sync_standby(const Server *primary)
{
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (s->follows == primary->index && s->plan->sync && s->state != SERVER_GONE)
			return s;
	}
	return NULL;
}

/* The standby has all that a server has committed, which is its primary or another standby. */
void
standby_receive(Server *standby, const Server *from)
{
	sim_registry_copy(&standby->tables, &from->tables);
	standby->reign = from->reign;
	standby->incarnation = from->incarnation;
	standby->drops = from->drops;
	standby->lsn = from->lsn;
	standby->timeline = from->timeline;
	standby->history = from->history;
}

static void
finish(Transaction *t, bool failed)
{
	unlock(t->target);
	answer(t, failed, SIM_OK);
}

static void
wait_for_standby(Transaction *t)
{
	Server	   *standby = t->local_commit ? NULL : sync_standby(t->target);

	if (standby == NULL)
		finish(t, false);
	else if (standby->state == SERVER_STANDBY && standby->frozen_until <= world.now && !is_cut(standby, t->target))
	{
		standby_receive(standby, t->target);
		finish(t, false);
	}
	else if (t->target->cancel_until > world.now || (!t->local && world.now - t->sync_since > STATEMENT_TIMEOUT_US))
	{
		story(t->target, "the wait for the synchronous standby is cancelled");
		finish(t, true);
	}
	else
		go_to(t, world.now + MILLISECONDS(100), STEP_SYNC);
}

/* What comes back.  failed: the client cannot know. */
static void
answer(Transaction *t, bool failed, SimError error)
{
	t->failed = failed;
	t->error = error;
	if (t->local)
		go_to(t, world.now + 20, STEP_ANSWER);
	else if (t->from->late_until > world.now && chance(&t->prng, 300))
		retire(t);				/* lost */
	else
		go_to(t, world.now + network_delay(t), STEP_ANSWER);
}

/* A step of a transaction is due. */
void
transaction_step(Transaction *t, int step, uint64 number)
{
	Server	   *server = t->target;

	if (t->step != number)
		return;
	if (server != NULL && step != STEP_ANSWER && server->frozen_until > world.now)
	{
		go_to(t, server->frozen_until + 1, step);
		return;
	}
	switch ((Step) step)
	{
		case STEP_ARRIVE:
			arrive(t);
			break;
		case STEP_LOCK:
			t->target = NULL;
			arrive(t);
			break;
		case STEP_LOCK_TIMEOUT:
			if (t->queued)
				leave_queue(t);
			t->overloaded = !t->local;
			answer(t, true, SIM_OK);
			break;
		case STEP_FLUSH:
			if (t->client == NULL && t->local)
			{
				/* its process is gone */
				unlock(server);
				retire(t);
				break;
			}
			if (server->full_until > world.now)
			{
				execute_in_vain(t);
				break;
			}
			execute(t);
			if (t->error != SIM_OK)
			{
				unlock(server);
				answer(t, false, t->error);
			}
			else if (t->local_commit || sync_standby(server) == NULL)
				finish(t, false);
			else
			{
				t->sync_since = world.now;
				go_to(t, world.now + spread(&t->prng, 200, MILLISECONDS(3)), STEP_SYNC);
			}
			break;
		case STEP_SYNC:
			wait_for_standby(t);
			break;
		case STEP_ANSWER:
			if (t->client == NULL)
				free_transaction(t);
			else if (!t->local && server != NULL && is_cut(t->from, server))
				;				/* lost */
			else
			{
				t->done = true;
				process_wake(t->client, world.now);
			}
			break;
	}
}

/* A server has crashed, or was stopped: what it had not flushed is lost. */
void
transactions_lost(Server *server)
{
	Transaction *next;

	for (Transaction *t = transactions; t != NULL; t = next)
	{
		next = t->next;
		if (t->target != server || t->target_epoch != server->epoch || t->done)
			continue;
		t->queued = false;
		t->queue_next = NULL;
		t->target = NULL;
		t->step = ++world.next_number;
		if (t->client == NULL)
			free_transaction(t);
		else if (chance(&t->prng, 500))
			answer(t, true, SIM_OK);
	}
	server->holder = server->queue_first = server->queue_last = NULL;
}

/* Nobody waits any more: what was sent may be carried out all the same. */
static void
abandon(Transaction *t)
{
	Process    *p = t->client;

	p->transaction = NULL;
	t->client = NULL;
	if (t->done)
		free_transaction(t);
}

void
transactions_forget(Process *p)
{
	if (p->transaction != NULL)
		abandon(p->transaction);
}

void
transactions_free(void)
{
	while (transactions != NULL)
	{
		if (transactions->client != NULL)
			transactions->client->transaction = NULL;
		free_transaction(transactions);
	}
}

/*
 * The helper's side
 */
static Transaction *
send(const Statement *statement, const SnowflakeQuery *query, bool local, int cluster)
{
	Process    *p = current_process;
	Server	   *from = p->server;
	Transaction *t = over;
	int64		delay;

	if (t != NULL)
		over = t->next;
	else
		t = malloc(sizeof(Transaction));
	memset(t, 0, sizeof(*t));
	t->next = transactions;
	if (transactions != NULL)
		transactions->previous = t;
	transactions = t;
	t->statement = *statement;
	t->local = local;
	t->local_commit = query->local_commit;
	t->last = query->last;
	t->cluster = cluster;
	t->from = from;
	t->client = p;
	t->prng.state = draw(&from->net);
	p->transaction = t;
	delay = local ? 50 : network_delay(t);
	if (!local && from->late_until > world.now)
	{
		int			luck = (int) below(&t->prng, 10);

		/* another number may be taken while the call is out */
		if (luck < 8 && chance(&t->prng, 300))
			step_clock(from, -spread(&t->prng, Min(SECONDS(6), world.plan->longest_step), world.plan->longest_step));
		if (luck < 2)
			return t;			/* lost */
		if (luck < 6)
			delay = spread(&t->prng, MILLISECONDS(10), SECONDS(600));
		else if (luck < 8)
			delay = spread(&t->prng, MILLISECONDS(200), SECONDS(4));
	}
	go_to(t, world.now + delay, STEP_ARRIVE);
	return t;
}

static int
error_code(SimError error)
{
	switch (error)
	{
		case SIM_NO_TABLE:
			return ERRCODE_INVALID_SCHEMA_NAME;
		case SIM_ROW_REFUSED:
			return ERRCODE_CHECK_VIOLATION;
		case SIM_VALUE:
			return ERRCODE_INVALID_PARAMETER_VALUE;
		case SIM_NO_NUMBER_FREE:
			return ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
		case SIM_LAYOUT_ENDED:
			return ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED;
		default:
			return ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	}
}

static SnowflakeResultKind
fail(SnowflakeResult *result, int sqlerrcode, const char *message)
{
	snowflake_result_error(result, sqlerrcode, message, NULL, NULL);
	return SNOWFLAKE_RESULT_FAILED;
}

/* The node waits longer for its next call. */
static void
tell_overload(Server *server, SnowflakeResult *result, bool overloaded)
{
	result->overloaded = overloaded;
	if (overloaded)
		judge_overloaded(server);
}

/* Sends a statement and waits for what comes of it, at most until a time. */
static SnowflakeResultKind
run(const Statement *statement, const SnowflakeQuery *query, bool local, int cluster, int64 deadline,
	SnowflakeRow *row, SnowflakeResult *result)
{
	Process    *p = current_process;
	Server	   *server = p->server;
	Transaction *t = send(statement, query, local, cluster);
	bool		failed;
	bool		overloaded;
	int			sqlerrcode;
	SimError	error;

	while (!t->done && world.now < deadline && !p->die_pending)
		process_sleep(deadline);
	if (!t->done)
	{
		abandon(t);
		if (p->die_pending)
			proc_exit(1);
		tell_overload(server, result, !local);
		return fail(result, ERRCODE_CONNECTION_FAILURE, "no answer from the registry");
	}
	failed = t->failed;
	overloaded = t->overloaded;
	error = t->error;
	if (!failed && error == SIM_OK)
	{
		Outcome    *o = process_allocate(sizeof(Outcome), true);

		*o = t->outcome;
		row->columns[0] = (char *) o;
	}
	sqlerrcode = t->sqlerrcode;
	abandon(t);
	if (sqlerrcode != 0)
		return fail(result, sqlerrcode, sqlerrcode == ERRCODE_DISK_FULL ? "the disk is full" :
					sqlerrcode == ERRCODE_UNDEFINED_DATABASE ? "there is no database" : "permission denied");
	tell_overload(server, result, overloaded);
	if (failed)
		return fail(result, local ? ERRCODE_LOCK_NOT_AVAILABLE : ERRCODE_CONNECTION_FAILURE,
					local ? "a lease was not replicated to a synchronous standby" :
					"the connection to the registry was lost");
	/* of what a START finds nothing is refused or granted yet */
	if (error != SIM_OK || statement->kind != STATEMENT_START)
	{
		check_call_result(server, error);
		judge_said(server, error);
	}
	if (error != SIM_OK)
		return fail(result, error_code(error), sim_error_name(error));
	return SNOWFLAKE_RESULT_OK;
}

void
snowflake_remote_address(const char *registry, char address[SNOWFLAKE_ADDRESS_SIZE])
{
	strlcpy(address, registry, SNOWFLAKE_ADDRESS_SIZE);
}

SnowflakeResultKind
snowflake_remote_run(const char *registry, const SnowflakeQuery *query, SnowflakeRow *row, SnowflakeResult *result)
{
	memset(row, 0, sizeof(*row));
	strlcpy(result->address, registry, sizeof(result->address));
	return run((const Statement *) query->call, query, false, atoi(registry + 1),
			   world.now + (query->last ? LAST_TIMEOUT_US : FIRST_TIMEOUT_US), row, result);
}

SnowflakeResultKind
snowflake_local_run(const SnowflakeQuery *query, SnowflakeRow *row, SnowflakeResult *result)
{
	memset(row, 0, sizeof(*row));
	strlcpy(result->address, "postgres", sizeof(result->address));
	if (current_server->missing_until > world.now)
	{
		ErrorData	edata = {.elevel = FATAL,.sqlerrcode = ERRCODE_UNDEFINED_DATABASE,
		.message = "there is no database"};

		emit_log_hook(&edata);
		proc_exit(1);
	}
	if (!current_server->tables.exists)
	{
		Statement	create = {.kind = STATEMENT_CREATE};
		SnowflakeResultKind kind;

		if (!query->create)
			return SNOWFLAKE_RESULT_MISSING;
		kind = run(&create, query, true, 0, NEVER, row, result);
		if (kind != SNOWFLAKE_RESULT_OK)
			return kind;
		memset(row, 0, sizeof(*row));
	}
	return run((const Statement *) query->call, query, true, 0, NEVER, row, result);
}
