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
	STATEMENT_LOOK,
	STATEMENT_START,
	STATEMENT_ACQUIRE,
	STATEMENT_RECORD,
	STATEMENT_RENEW,
	STATEMENT_RELEASE
} StatementKind;

static const char *const statement_names[] = {
	"CREATE EXTENSION", "check_promotion", "start_server", "acquire_lease", "record_uses", "renew_lease", "release_lease"
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
	SimAnswer	answer;			/* of the functions */
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
	bool		changed;		/* something is to be replicated */
	int64		sync_since;

	/* for the client */
	bool		done;
	bool		failed;			/* it cannot know what came of it */
	bool		overloaded;		/* another registry has had no time */
	int			sqlerrcode;		/* an error of PostgreSQL; 0: none */
	Prng		prng;
} Transaction;

static Transaction *transactions = NULL;

/*
 * Those that are over.  Their memory stays, since events may point to it: what such an event says
 * is not the step that is due.
 */
static Transaction *over = NULL;

static void answer(Transaction *t, bool failed);
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
	node->lease.node_number = call->lease.node;
	node->lease.granted_by = (int64) call->lease.granted_by;
	node->lease.incarnation = read_id(&call->lease.incarnation);
	node->lease.generation = call->lease.generation;
	node->lease.leased_until = call->lease.leased_until;
	node->lease.ids_end_at = call->lease.ids_end_at;
}

#define QUIET_US	SECONDS(10)

/* What a call says of all ids of its server; the settings have not changed since it was made. */
static void
check_said(int64 max_ahead)
{
	int64		longest = 0;

	if (world.now - quiet_since(current_server) < QUIET_US)
		return;
	for (int i = 0; i < snowflake_shared->num_slots; i++)
		longest = Max(longest, snowflake_shared->slots[i].layout.tick_us);
	if (max_ahead != (int64) snowflake_shared->settings.max_ahead.value + longest)
		sim_fail(current_server, "server %d says that its ids are up to %.6f s ahead", current_server->index, max_ahead / 1e6);
}

static void
build_start(const SnowflakeCall *call, SimStart *start)
{
	check_said(call->max_ahead);
	start->clock = call->clock;
	start->max_ahead = call->max_ahead;
	start->mark = current_server->mark;
}

static void
build_acquire(const SnowflakeCall *call, SimAcquire *a)
{
	const SnowflakeAcquireCall *acquire = &call->u.acquire;

	build_node_call(call, &a->node);
	check_said(call->max_ahead);
	a->clock = call->clock;
	a->max_ahead = call->max_ahead;
	a->window = acquire->window;
	a->first_number = acquire->first;
	a->last_number = acquire->last;
	a->fixed = acquire->fixed;
	a->uses = read_uses(&acquire->uses);
	a->starts_at = acquire->starts_at;
	a->ids_end_at = acquire->ids_end_at;
	a->launched_at = current_server->launched_at;
	a->system_identifier = current_server->system_identifier;
}

void
snowflake_query_build(const SnowflakeCall *call, SnowflakeQuery *query)
{
	Statement  *s = NULL;

	switch (call->kind)
	{
		case SNOWFLAKE_CALL_LOOK:
			s = begin_statement(query, STATEMENT_LOOK);
			break;
		case SNOWFLAKE_CALL_START:
			s = begin_statement(query, STATEMENT_START);
			build_start(call, &s->u.start);
			query->create = call->u.start.create;
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			s = begin_statement(query, STATEMENT_ACQUIRE);
			s->own = call->registry[0] == '\0';
			build_acquire(call, &s->u.acquire);
			break;
		case SNOWFLAKE_CALL_RECORD:
			s = begin_statement(query, STATEMENT_RECORD);
			s->u.record.incarnation = read_id(&call->u.record.incarnation);
			s->u.record.uses = read_uses(&call->u.record.uses);
			break;
		case SNOWFLAKE_CALL_RENEW:
			s = begin_statement(query, STATEMENT_RENEW);
			build_node_call(call, &s->u.renew.node);
			s->u.renew.clock = call->clock;
			s->u.renew.max_ahead = call->max_ahead;
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
read_started(const SimAnswer *in, SnowflakeStartResult *started)
{
	started->uses = in->uses == SIM_USES_NOTHING ? SNOWFLAKE_USES_NOTHING :
		in->uses == SIM_USES_OWN ? SNOWFLAKE_USES_OWN : SNOWFLAKE_USES_ANOTHER;
	write_id(&started->incarnation, in->uses_incarnation);
	started->starts_at = in->starts_at;
}

static void
read_granted(const SimAnswer *in, SnowflakeAcquireResult *granted)
{
	write_id(&granted->token, in->token);
	write_id(&granted->incarnation, in->incarnation);
	granted->generation = in->generation;
	granted->clock = in->clock;
	granted->node = in->node_number;
	granted->starts_at = in->starts_at;
	granted->leased_until = in->leased_until;
	granted->cluster_ids_end_at = in->cluster_ids_end_at;
}

SnowflakeResultKind
snowflake_row_read(const SnowflakeCall *call, const SnowflakeRow *row, SnowflakeResult *result)
{
	const SimAnswer *in = (const SimAnswer *) row->columns[0];

	write_id(&result->incarnation, in->incarnation);
	result->generation = in->generation;
	result->rolled_back = in->kind == SIM_NO && in->reason == SIM_ROLLED_BACK;
	if (in->kind == SIM_REFUSED)
	{
		snowflake_problem_set(&result->problem, sim_reason_sqlerrcode(in->reason), sim_reason_name(in->reason), NULL, NULL);
		result->wait = in->wait;
		return SNOWFLAKE_RESULT_REFUSED;
	}
	if (in->kind == SIM_NO)
		return SNOWFLAKE_RESULT_NO;
	if (call->kind == SNOWFLAKE_CALL_START)
		read_started(in, &result->u.start);
	else if (call->kind == SNOWFLAKE_CALL_ACQUIRE)
		read_granted(in, &result->u.acquire);
	else if (call->kind == SNOWFLAKE_CALL_RENEW)
		result->u.renew.leased_until = in->leased_until;
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
	answer(t, true);
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
				answer(t, true);
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
		.timeline = server->timeline,
		.launched_at = server->launched_at,
		.history = &server->history,
		.from_start = mix(server->lsn),
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
	const SimAnswer *a = &t->answer;
	int			from = t->from->index;

	if (!world.verbose)
		return;
	if (a->warned)
		story(t->target, "WARNING about %s of server %d", statement_names[s->kind], from);
	if (a->kind != SIM_YES)
		story(t->target, "%s of server %d: %s, %s", statement_names[s->kind], from,
			  a->kind == SIM_NO ? "no" : a->kind == SIM_REFUSED ? "refused" : "error", sim_reason_name(a->reason));
	else if (s->kind == STATEMENT_ACQUIRE)
		story(t->target, "durable: server %d has node number " UINT64_FORMAT " from %s until %s (registry %08x, generation %d)",
			  from, a->node_number, time_name(a->starts_at), time_name(a->leased_until), (unsigned) a->incarnation, a->generation);
	else if (s->kind == STATEMENT_RENEW)
		story(t->target, "durable: the lease of server %d is renewed until %s", from, time_name(a->leased_until));
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

static SimAnswer
call_function(Transaction *t, SimRegistry *tables, const SimHere *here)
{
	const Statement *s = &t->statement;
	SimAnswer	done = {.kind = SIM_YES};
	SimAnswer	too_new = {.kind = SIM_REFUSED,.reason = SIM_PROTOCOL_UNKNOWN,.wait = SECONDS(10)};

	if (is_too_new(t, tables))
		return too_new;
	switch (s->kind)
	{
		case STATEMENT_CREATE:
			done.reason = sim_create_extension(tables, here);
			if (done.reason != SIM_NO_REASON)
				done.kind = SIM_ERROR;
			return done;
		case STATEMENT_LOOK:
			break;				/* look() */
		case STATEMENT_START:
			return sim_start_server(tables, here, &s->u.start);
		case STATEMENT_ACQUIRE:
			return s->own ? sim_acquire_own_lease(tables, here, &s->u.acquire) :
				sim_acquire_lease(tables, here, &s->u.acquire);
		case STATEMENT_RECORD:
			return sim_record_uses(tables, here, &s->u.record);
		case STATEMENT_RENEW:
			return sim_renew_lease(tables, here, &s->u.renew);
		case STATEMENT_RELEASE:
			return sim_release_lease(tables, here, &s->u.release);
	}
	abort();
}

/* What a call about a lease says of its node; NULL: it is another one. */
static const SimNodeCall *
node_call_of(const Statement *s)
{
	return s->kind == STATEMENT_ACQUIRE ? &s->u.acquire.node : s->kind == STATEMENT_RENEW ? &s->u.renew.node :
		s->kind == STATEMENT_RELEASE ? &s->u.release : NULL;
}

/* Whether the call was not the last one of its node when it was carried out. */
static bool
is_late(const Transaction *t)
{
	const SimNodeCall *call = node_call_of(&t->statement);
	uint64		now;

	if (call == NULL)
		return false;
	if (t->client == NULL)
		return true;
	memcpy(&now, &t->from->shared->start, sizeof(now));
	return now != call->start || (int64) server_machine(t->from)->call_number != call->call;
}

static void
judge(const Transaction *t, const SimHere *here, const SimRegistryRow *before)
{
	const Statement *s = &t->statement;
	JudgedCall	call = {.from = t->from,.registry = t->target,.here = here,
	.now = here->clock,.own = s->own,.late = is_late(t),.before = before,.node = node_call_of(s)};

	if (s->kind == STATEMENT_START)
	{
		call.now = s->u.start.clock;
		call.start = &s->u.start;
	}
	if (s->own)
		call.now = s->u.acquire.clock;
	if (s->kind == STATEMENT_ACQUIRE)
		call.acquire = &s->u.acquire;
	else if (s->kind == STATEMENT_RENEW)
		call.renew = &s->u.renew;
	else if (s->kind == STATEMENT_RECORD)
		call.record = &s->u.record;
	judge_call(&call, &t->answer);
}

/* The functions are carried out, and the commit fails. */
static void
execute_in_vain(Transaction *t)
{
	Server	   *server = t->target;
	SimHere		here = here_of(server, t->clock);
	SimRegistry tables = {0};

	sim_registry_copy(&tables, &server->tables);
	(void) call_function(t, &tables, &here);
	sim_registry_free(&tables);
	story(server, "the disk is full: %s of server %d is rolled back", statement_names[t->statement.kind], t->from->index);
	unlock(server);
	fail_call(t, ERRCODE_DISK_FULL);
}

/* What a call has done, and may not have done. */
static void
check_done(Transaction *t, const SimRegistryRow *before)
{
	const Statement *s = &t->statement;
	const SimRegistry *tables = &t->target->tables;
	const SimAnswer *a = &t->answer;

	if (s->kind == STATEMENT_ACQUIRE && a->kind == SIM_YES)
		check_granted(t->from, t->target, &s->u.acquire, a);
	else if (s->kind == STATEMENT_RENEW && a->kind == SIM_YES)
		check_window(t->from, t->target, &s->u.renew, a);
	else if (s->kind == STATEMENT_RENEW && a->kind == SIM_NO)
		check_not_renewed(t->from, t->target, s->u.renew.node.lease.token, a->reason);
	if (before->successor != 0 && node_call_of(s) != NULL && a->kind != SIM_REFUSED && a->kind != SIM_ERROR)
		sim_fail(t->from, "server %d: %s of server %d is carried out in a registry that was closed", t->target->index,
				 statement_names[s->kind], t->from->index);
	if (s->kind != STATEMENT_CREATE && tables->row.generation < before->generation)
		sim_fail(t->target, "server %d: the generation goes back from %d to %d", t->target->index, before->generation,
				 tables->row.generation);
	if (node_call_of(s) != NULL && a->kind != SIM_ERROR)
		check_row_ends(t->target, t->from, node_call_of(s)->start);
}

/* The functions, when what they did is flushed. */
static void
execute(Transaction *t)
{
	Server	   *server = t->target;
	SimRegistry *tables = &server->tables;
	Statement  *s = &t->statement;
	SimHere		here = here_of(server, t->clock);
	SimRegistryRow before = tables->row;
	SimCluster	used = tables->cluster;

	/* a copy of the database is made a registry now */
	if (s->kind == STATEMENT_CREATE || (tables->exists && tables->row.database != tables->oid))
	{
		pass_creation(server);
		here.clock = server_clock(server);
	}
	if (s->kind == STATEMENT_ACQUIRE)
		check_held_before(server, &s->u.acquire, s->own, here.clock);
	t->answer = call_function(t, tables, &here);
	t->changed = t->answer.kind == SIM_YES || t->answer.kind == SIM_NO ||
		memcmp(&before, &tables->row, sizeof(before)) != 0;
	check_incarnation(server);
	check_done(t, &before);
	judge(t, &here, &before);
	if (t->answer.kind != SIM_ERROR)
		start_is_counted(server);

	/* the first use of a registry is an order of the administrator (A1) */
	if ((used.uses != tables->cluster.uses || used.incarnation != tables->cluster.incarnation) &&
		((used.uses != SIM_USES_NOTHING && s->kind == STATEMENT_RECORD) || world.plan->moving))
		order_given(server);
	server->lsn += 100;
	note(t->answer.reason);
	note((uint64) world.now);
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
	answer(t, failed);
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
answer(Transaction *t, bool failed)
{
	t->failed = failed;
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
			answer(t, true);
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
			if (!t->changed || t->local_commit || sync_standby(server) == NULL)
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
			answer(t, true);
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
	SimAnswer  *a = process_allocate(sizeof(SimAnswer), true);

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
	*a = t->answer;
	row->columns[0] = (char *) a;
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
	if (a->kind >= SIM_REFUSED || statement->kind != STATEMENT_START)
	{
		SimReason	reason = a->kind >= SIM_REFUSED ? a->reason : SIM_NO_REASON;

		check_call_result(server, reason);
		judge_said(server, reason, a->wait, local,
				   a->kind == SIM_YES && (statement->kind == STATEMENT_ACQUIRE || statement->kind == STATEMENT_RENEW));
	}
	if (a->kind == SIM_ERROR)
		return fail(result, sim_reason_sqlerrcode(a->reason), sim_reason_name(a->reason));
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

/* A standby only reads, and nothing waits for it. */
static SnowflakeResultKind
look(SnowflakeRow *row, SnowflakeResult *result)
{
	Process    *p = current_process;
	Server	   *server = p->server;
	SimHere		here = here_of(server, server_clock(server));
	SimAnswer  *a = process_allocate(sizeof(SimAnswer), true);

	*a = sim_check_promotion(&server->tables, &here, own_layout());
	row->columns[0] = (char *) a;
	process_sleep(world.now + spread(&server->net, 200, MILLISECONDS(5)));
	if (p->die_pending)
		proc_exit(1);
	story(server, "would be promoted: %s", a->kind == SIM_YES ? "yes" : sim_reason_name(a->reason));
	return a->kind == SIM_ERROR ? fail(result, sim_reason_sqlerrcode(a->reason), sim_reason_name(a->reason)) :
		SNOWFLAKE_RESULT_OK;
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
	if (current_server->tables.exists && ((const Statement *) query->call)->kind == STATEMENT_LOOK)
		return look(row, result);
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
