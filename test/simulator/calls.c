/*
 * calls.c
 *	  Registry calls: what src/registry/protocol.c, local.c and remote.c do in the server,
 *	  with the network and the disks of the simulated world.
 *
 * A statement is a struct here, which the first parameter of the query points to; so is what
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
	STATEMENT_RELEASE,
	STATEMENT_LIST,
	STATEMENT_HAND_OVER
} StatementKind;

static const char *const statement_names[] = {
	"CREATE EXTENSION", "start_server", "acquire_lease", "record_uses", "renew_lease", "release_lease",
	"list_ends", "hand_over"
};

typedef struct Statement
{
	StatementKind kind;
	SimAcquire	acquire;
	SimHistory	timelines;
	SimRenew	renew;
	TimestampTz lease_end;
	uint64		incarnation;
	bool		change;
	TimestampTz node_clock;
	int64		max_ahead;
	int64		tick;
	uint64		system_identifier;
	SimHandOver hand_over;
	SimEnd	   *ends;			/* hand_over's */
} Statement;

typedef struct Outcome
{
	SimStarted	started;
	SimGranted	granted;
	TimestampTz leased_until;
	bool		was_open;
	uint64		incarnation;
	SimEnds		ends;
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
	query->parameters[0] = (const char *) s;
	query->num_parameters = 1;
	s->kind = kind;
	return s;
}

static const SnowflakeLayout *
own_layout(void)
{
	return &sim_layouts[current_server->conf.layouts[0]];
}

/* Texts are outcomes: of a statement that hands over, or lists. */
bool
snowflake_is_incarnation(const pg_uuid_t *incarnation, const char *text)
{
	const Outcome *o = (const Outcome *) text;

	return read_id(incarnation) == (o->incarnation != 0 ? o->incarnation : o->ends.incarnation);
}

void
snowflake_query_record(const char *incarnation, bool change, SnowflakeQuery *query)
{
	Statement  *s = begin_statement(query, STATEMENT_RECORD);

	s->incarnation = incarnation == NULL ? 0 : ((const Outcome *) incarnation)->incarnation;
	s->change = change;
}

/*
 * The timeline history, as timelines_text() in protocol.c; nothing promoted, no file.
 */
static SimHistory
read_timelines(void)
{
	if (current_server->history_until > world.now && current_server->history.num_entries > 0)
		sim_report_error(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						 psprintf("could not find the history of timeline %u", current_server->timeline));
	return current_server->history;
}

static void
build_acquire(const SnowflakeCall *call, Statement *s)
{
	SimAcquire *a = &s->acquire;

	a->start = read_id(&snowflake_shared->start);
	a->call = (int64) call->number;
	a->own = call->registry[0] == '\0';
	a->incarnation = call->has_incarnation ? read_id(&call->incarnation) : 0;
	a->first_number = call->first;
	a->last_number = call->last_number;
	a->fixed = call->fixed;
	a->layout = own_layout();
	a->layout_set = call->layout_set;
	a->tick = call->tick;
	a->node_clock = call->clock;
	a->max_ahead = call->max_ahead;
	a->lease_window = call->window;
	a->host = current_server->host;
	a->port = 5432;
	a->system_identifier = current_server->system_identifier;
	a->timeline = current_server->timeline;
	if (a->own)
		s->timelines = read_timelines();
	a->launched_at = current_server->launched_at;
	a->known_until = call->known_until;
	a->known_incarnation = call->old_known ? read_id(&call->known_incarnation) : 0;
	a->node_floor = call->floor;
	a->previous_token = call->has_lease ? read_id(&call->token) : 0;
	a->previous_end = call->has_lease ? call->end : DT_NOBEGIN;
}

void
snowflake_query_build(const SnowflakeCall *call, SnowflakeQuery *query)
{
	Statement  *s;

	switch (call->kind)
	{
		case SNOWFLAKE_CALL_START:
			s = begin_statement(query, STATEMENT_START);
			s->timelines = read_timelines();
			s->node_clock = call->clock;
			s->max_ahead = call->max_ahead;
			s->tick = call->tick;
			s->system_identifier = current_server->system_identifier;
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			build_acquire(call, begin_statement(query, STATEMENT_ACQUIRE));
			break;
		case SNOWFLAKE_CALL_RECORD:
			s = begin_statement(query, STATEMENT_RECORD);
			s->incarnation = read_id(&call->incarnation);
			break;
		case SNOWFLAKE_CALL_RENEW:
			s = begin_statement(query, STATEMENT_RENEW);
			s->renew.start = read_id(&snowflake_shared->start);
			s->renew.call = (int64) call->number;
			s->renew.token = read_id(&call->token);
			s->renew.lease_until = call->end;
			s->renew.layout = own_layout();
			s->renew.node_clock = call->clock;
			break;
		default:
			s = begin_statement(query, STATEMENT_RELEASE);
			s->renew.start = read_id(&snowflake_shared->start);
			s->renew.call = (int64) call->number;
			s->renew.token = read_id(&call->token);
			s->lease_end = call->end;
			query->local_commit = true;
			break;
	}
	query->create = call->create;
	query->last = call->last;
}

void
snowflake_query_list_ends(const SnowflakeCall *call, SnowflakeQuery *query)
{
	Statement  *s = begin_statement(query, STATEMENT_LIST);

	s->max_ahead = call->max_ahead;
	s->tick = call->tick;
}

static SimHandOver *
begin_hand_over(SnowflakeCall *call, SnowflakeQuery *query)
{
	Statement  *s = begin_statement(query, STATEMENT_HAND_OVER);
	SimHandOver *h = &s->hand_over;

	call->number++;
	h->own = call->registry[0] == '\0';
	h->start = read_id(&snowflake_shared->start);
	h->call = (int64) call->number;
	h->host = current_server->host;
	h->port = 5432;
	h->system_identifier = current_server->system_identifier;
	h->timeline = current_server->timeline;
	h->launched_at = current_server->launched_at;
	return h;
}

void
snowflake_query_hand_over(SnowflakeCall *call, const SnowflakeRow *ends, SnowflakeQuery *query)
{
	const Outcome *o = (const Outcome *) ends->columns[0];
	SimHandOver *h = begin_hand_over(call, query);

	h->incarnation = o->ends.incarnation;
	h->starts_at = o->ends.starts_at;
	h->num_ends = o->ends.num_ends;
	h->ends = o->ends.ends;
}

void
snowflake_query_hand_over_lease(SnowflakeCall *call, SnowflakeQuery *query)
{
	SimHandOver *h = begin_hand_over(call, query);
	SimEnd	   *end = process_allocate(sizeof(SimEnd), true);

	end->node_number = call->node;
	end->leased_until = call->end;
	end->layout = own_layout();
	h->incarnation = read_id(&call->incarnation);
	h->starts_at = DT_NOBEGIN;
	h->num_ends = 1;
	h->ends = end;
}

SnowflakeResultKind
snowflake_row_read(const SnowflakeCall *call, const SnowflakeRow *row, SnowflakeResult *result)
{
	const Outcome *o = (const Outcome *) row->columns[0];

	switch (call->kind)
	{
		case SNOWFLAKE_CALL_START:
			result->uses = o->started.uses == SIM_USES_NOTHING ? SNOWFLAKE_USES_NOTHING :
				o->started.uses == SIM_USES_OWN ? SNOWFLAKE_USES_OWN : SNOWFLAKE_USES_ANOTHER;
			write_id(&result->incarnation, o->started.incarnation);
			result->starts_at = o->started.starts_at;
			return SNOWFLAKE_RESULT_OK;
		case SNOWFLAKE_CALL_ACQUIRE:
			write_id(&result->token, o->granted.token);
			write_id(&result->incarnation, o->granted.registry_incarnation);
			result->node = o->granted.node_number;
			result->starts_at = o->granted.starts_at;
			result->leased_until = o->granted.leased_until;
			result->registry_clock = o->granted.registry_clock;
			return SNOWFLAKE_RESULT_OK;
		case SNOWFLAKE_CALL_RENEW:
			result->leased_until = o->leased_until;
			return o->leased_until != DT_NOBEGIN ? SNOWFLAKE_RESULT_OK : SNOWFLAKE_RESULT_CLOSED;
		case SNOWFLAKE_CALL_RELEASE:
			return o->was_open ? SNOWFLAKE_RESULT_OK : SNOWFLAKE_RESULT_CLOSED;
		default:
			return SNOWFLAKE_RESULT_OK;
	}
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
	free(t->statement.ends);
	free(t->outcome.ends.ends);
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

	server->holder = t;
	t->clock = server_clock(server);
	go_to(t, world.now + (server->slow_until > world.now ? spread(&t->prng, MILLISECONDS(10), SECONDS(20)) :
						  spread(&t->prng, 200, MILLISECONDS(5))), STEP_FLUSH);
}

static void
arrive(Transaction *t)
{
	Server	   *server = t->local ? t->from : cluster_primary(t->cluster);

	if (server == NULL || server->state != SERVER_RUNNING)
	{
		if (t->local && server != NULL && server->state == SERVER_STOPPING)
			;
		else
		{
			/* refused, or nothing comes back */
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
	if (server->locked_until > world.now)
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

/* The functions, when what they did is flushed. */
static void
execute(Transaction *t)
{
	Server	   *server = t->target;
	SimTables  *tables = &server->tables;
	Statement  *s = &t->statement;
	Outcome    *o = &t->outcome;
	SimHere		here = {.clock = t->clock,.system_identifier = server->system_identifier,
	.launched_at = server->launched_at,.random = sim_random};
	uint64		start = 0;
	int			generation = tables->generation;

	/* a copy of the database is made a registry now */
	if (tables->exists && tables->database != tables->oid)
	{
		pass_creation(server);
		here.clock = server_clock(server);
	}

	switch (s->kind)
	{
		case STATEMENT_CREATE:
			pass_creation(server);
			here.clock = server_clock(server);
			sim_create_extension(tables, &here);
			t->error = SIM_OK;
			break;
		case STATEMENT_START:
			t->error = sim_start_server(tables, &here, &s->timelines, s->node_clock, s->max_ahead, s->tick,
										s->system_identifier, &o->started);
			break;
		case STATEMENT_ACQUIRE:
			s->acquire.timelines = &s->timelines;
			t->error = sim_acquire_lease(tables, &here, &s->acquire, &o->granted);
			start = s->acquire.start;
			if (t->error == SIM_OK)
				check_granted(t->from, tables, start, &s->acquire, &o->granted);
			else
				check_refused(tables, &here, &s->acquire, t->error);
			break;
		case STATEMENT_RECORD:
			t->error = sim_record_uses(tables, &here, s->incarnation, s->change);
			break;
		case STATEMENT_RENEW:
			t->error = sim_renew_lease(tables, &here, &s->renew, &o->leased_until);
			start = s->renew.start;
			break;
		case STATEMENT_RELEASE:
			t->error = sim_release_lease(tables, &here, s->renew.start, s->renew.call, s->renew.token, s->lease_end,
										 &o->was_open);
			start = s->renew.start;
			break;
		case STATEMENT_LIST:
			t->error = sim_list_ends(tables, &here, s->max_ahead, s->tick, &o->ends);
			break;
		case STATEMENT_HAND_OVER:
			t->error = sim_hand_over(tables, &here, &s->hand_over, &o->incarnation);
			start = s->hand_over.start;
			break;
	}
	if (t->error == SIM_OK && (s->kind == STATEMENT_START || (s->kind == STATEMENT_ACQUIRE && t->local)))
		start_is_counted(server);
	if (s->kind != STATEMENT_CREATE && tables->generation < generation)
		sim_fail("server %d: the generation goes back from %d to %d", server->index, generation, tables->generation);
	if (t->error == SIM_OK && s->kind == STATEMENT_START && tables->generation > generation &&
		tables->starts_at < s->node_clock + s->max_ahead + s->tick)
		sim_fail("server %d: leases of generation %d may start before the promotion", server->index, tables->generation);
	server->lsn += 100;
	note(t->error);
	note((uint64) world.now);
	if (start != 0 && t->error == SIM_OK)
		check_row_ends(tables, t->from, start);
	if (!world.verbose)
		return;
	if (t->error != SIM_OK)
		story(server, "%s of server %d: %s", statement_names[s->kind], t->from->index, sim_error_name(t->error));
	else if (s->kind == STATEMENT_ACQUIRE)
		story(server, "durable: server %d has node number " UINT64_FORMAT " from %s until %s", t->from->index,
			  o->granted.node_number, time_name(o->granted.starts_at), time_name(o->granted.leased_until));
	else if (s->kind == STATEMENT_RENEW && o->leased_until != DT_NOBEGIN)
		story(server, "durable: the lease of server %d is renewed until %s", t->from->index, time_name(o->leased_until));
	else if (s->kind == STATEMENT_RELEASE)
		story(server, "durable: the lease of server %d is closed at %s%s", t->from->index, time_name(s->lease_end),
			  o->was_open ? "" : " (it was closed before)");
	else
		story(server, "durable: %s of server %d", statement_names[s->kind], t->from->index);
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

/* The standby has all that its primary has committed. */
void
standby_receive(Server *standby)
{
	Server	   *primary = &world.servers[standby->follows];

	sim_tables_copy(&standby->tables, &primary->tables);
	standby->drops = primary->drops;
	standby->lsn = primary->lsn;
	standby->timeline = primary->timeline;
	standby->history = primary->history;
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
		standby_receive(standby);
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
	if (statement->hand_over.num_ends > 0)
	{
		Size		size = statement->hand_over.num_ends * sizeof(SimEnd);

		t->statement.ends = malloc(size);
		memcpy(t->statement.ends, statement->hand_over.ends, size);
		t->statement.hand_over.ends = t->statement.ends;
	}
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

/* Sends a statement and waits for what comes of it, at most until a time. */
static SnowflakeResultKind
run(const Statement *statement, const SnowflakeQuery *query, bool local, int cluster, int64 deadline,
	SnowflakeRow *row, SnowflakeResult *result)
{
	Process    *p = current_process;
	Server	   *server = p->server;
	Transaction *t = send(statement, query, local, cluster);
	bool		failed;
	SimError	error;

	while (!t->done && world.now < deadline && !p->die_pending)
		process_sleep(deadline);
	if (!t->done)
	{
		abandon(t);
		if (p->die_pending)
			proc_exit(1);
		return fail(result, ERRCODE_CONNECTION_FAILURE, "no answer from the registry");
	}
	failed = t->failed;
	error = t->error;
	if (!failed && error == SIM_OK)
	{
		Outcome    *o = process_allocate(sizeof(Outcome), true);

		*o = t->outcome;
		if (o->ends.num_ends > 0)
		{
			Size		size = o->ends.num_ends * sizeof(SimEnd);

			o->ends.ends = process_allocate(size, true);
			memcpy(o->ends.ends, t->outcome.ends.ends, size);
		}
		row->columns[0] = (char *) o;
		row->columns[5] = statement->kind != STATEMENT_LIST || o->ends.uses == SIM_USES_NOTHING ? NULL :
			o->ends.uses == SIM_USES_OWN ? "own" : "another";
	}
	abandon(t);
	if (failed)
		return fail(result, local ? ERRCODE_LOCK_NOT_AVAILABLE : ERRCODE_CONNECTION_FAILURE,
					local ? "a lease was not replicated to a synchronous standby" :
					"the connection to the registry was lost");
	/* of what a START or a LIST finds nothing is refused or granted yet */
	if (error != SIM_OK || (statement->kind != STATEMENT_START && statement->kind != STATEMENT_LIST))
		check_call_result(server, error);
	if (error != SIM_OK)
		return fail(result, error == SIM_NO_NUMBER_FREE ? ERRCODE_CONFIGURATION_LIMIT_EXCEEDED :
					error == SIM_PARAMETER ? ERRCODE_INVALID_PARAMETER_VALUE :
					ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, sim_error_name(error));
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
	return run((const Statement *) query->parameters[0], query, false, atoi(registry + 1),
			   world.now + (query->last ? LAST_TIMEOUT_US : FIRST_TIMEOUT_US), row, result);
}

SnowflakeResultKind
snowflake_local_run(const SnowflakeQuery *query, SnowflakeRow *row, SnowflakeResult *result)
{
	memset(row, 0, sizeof(*row));
	strlcpy(result->address, "postgres", sizeof(result->address));
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
	return run((const Statement *) query->parameters[0], query, true, 0, NEVER, row, result);
}
