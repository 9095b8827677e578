/*
 * registry_twin.c
 *	  Random calls on two registries and on the twin of snowflake_registry in
 *	  registry.c: answers, errors and tables have to be equal.
 *
 *	  registry_twin CONNINFO CONNINFO SEED CALLS [SEQUENCE]
 *	  registry_twin - - SEED CALLS
 *
 * Both databases have the extension and what is in registry_twin.sql.  The calls
 * come in sequences, each of which begins with new tables and depends on SEED and
 * its number alone.  The tables are compared after every few calls.  SEQUENCE:
 * only that one, and they are compared after every call.
 *
 * Tokens and incarnations are counted, and random numbers are computed, in both.
 *
 * With "-" for a database the twin is alone, and the last line has a hash of what it has returned: make
 * mutants compares it with that of the twin as it is.
 *
 * The last lines say how often each function was called with which answer.
 * Exit status 1: something differs; the last calls of the sequence are shown.
 */
#include "postgres.h"

#include "compare.h"
#include "registry.h"

#define MAX_CALLS			100 /* of a sequence */
#define CALLS_BETWEEN		5	/* comparisons of the tables */
#define SEQUENCES_OF_SESSION	50
#define IDS_OF_CALL			4096
#define MAX_NODES			5
#define NUM_ROLES			2
#define EPOCH_1970			INT64CONST(946684800000000)

typedef enum Function
{
	START_SERVER, CHECK_PROMOTION, ACQUIRE, ACQUIRE_OWN, RENEW, RELEASE, RECORD_USES, CHANGE_LAYOUT, LIMIT_LEASES, IDS_END_BEFORE,
	ROLE_ENDS_BEFORE, CLOSE, CLOSED, TAKE_OVER, TAKE_OVER_LOST, NUM_FUNCTIONS
} Function;

static const char *const function_names[] = {
	"start_server", "check_promotion", "acquire_lease", "acquire_own_lease", "renew_lease", "release_lease", "record_uses", "change_layout",
	"limit_leases", "ids_end_before", "ids_end_before of a role", "close_registry", "closed_registry", "take_over",
	"take_over_lost"
};

/* By SimReason: a part of the message; of an answer that is no, the reason. */
const ErrorKind errors[] = {
	[SIM_NO_REASON] = {"ok", "", ""},
	[SIM_ROLLED_BACK] = {"rolled back", "", "rolled back"},
	[SIM_OTHER_INCARNATION] = {"incarnation", "", "incarnation"},
	[SIM_OTHER_GENERATION] = {"generation", "", "generation"},
	[SIM_NOT_OPEN] = {"closed", "", "closed"},
	[SIM_UNKNOWN] = {"unknown", "", "unknown"},
	[SIM_OTHER_USES] = {"uses", "", "uses"},
	[SIM_PROTOCOL_UNKNOWN] = {"protocol unknown", "55000", "of the registry's protocol is not known here"},
	[SIM_CLOSED] = {"registry closed", "55000", "the registry is closed"},
	[SIM_NO_HISTORY] = {"no history", "55000", "could not find the history of timeline"},
	[SIM_USES_ANOTHER] = {"uses another", "55000", "the registry's own cluster uses another registry"},
	[SIM_OTHER_LAYOUT] = {"other layout", "55000", "the layout is not the one that ids are issued under"},
	[SIM_REGISTRY_IS_SELF] = {"registry is self", "55000", "the registry is the server itself"},
	[SIM_OTHER_SOURCE] = {"other source", "55000", "is not the one that the node's ids were issued with"},
	[SIM_CALL_LATE] = {"call late", "55000", "of this start arrived too late"},
	[SIM_NO_NUMBER_FREE] = {"no number free", "53400", "no node number is free"},
	[SIM_NUMBER_HELD] = {"number held", "55000", "is leased to another "},
	[SIM_TOO_FEW_NUMBERS] = {"too few numbers", "55000", "the layout has too few node numbers"},
	[SIM_BEHIND_CREATION] = {"behind creation", "55000", "the node's clock is behind the creation of the extension"},
	[SIM_BEHIND_START] = {"behind start", "55000", "the node's clock is behind the time that leases start at"},
	[SIM_BEHIND_IDS] = {"behind ids", "55000", "the node's clock is behind ids that the registry does not know of"},
	[SIM_END_IS_PAST] = {"end is past", "55000", "the lease would end before it could be used"},
	[SIM_EARLIER_GENERATION] = {"earlier generation", "55000", "the lease is of an earlier generation of the registry"},
	[SIM_HAS_NODES] = {"has nodes", "55000", "cannot use another registry while this server's own tables are one"},
	[SIM_NO_TABLE] = {"no table", "3F000", "schema \"snowflake\" does not exist"},
	[SIM_VALUE] = {"value", "22023", "in a registry call is out of range"},
	[SIM_HOT_STANDBY] = {"hot standby", "25006", "the registry is a hot standby"},
	[SIM_REPLICATION_ORIGIN] = {"replication origin", "55000", "in a session with a replication origin"},
	[SIM_ISOLATION_LEVEL] = {"isolation level", "25001", "leases need isolation level read committed"},
	[SIM_LAYOUT_FULL] = {"layout full", "2200H", "the timestamp field of layout"},
	[SIM_NO_SUCH_NUMBER] = {"no such number", "22023", " does not fit the layout"},
	[SIM_LAYOUT_NOT_GREATER] = {"layout not greater", "55000", "would not be greater than those that were issued"},
	[SIM_LIMIT] = {"limit", "22023", "a limit for ends of "},
	[SIM_TIME_OUT_OF_RANGE] = {"time out of range", "22023", "the time at which ids end is out of range"},
	[SIM_SUCCESSOR_IS_SELF] = {"successor is self", "22023", "a registry's successor is another registry"},
	[SIM_DIFFERENT_LAYOUTS] = {"different layouts", "55000", "the two registries have different layouts"},
	[SIM_NOT_CLOSED] = {"not closed", "55000", "the registry is not closed"},
	[SIM_NOT_COMMITTED] = {"not committed", "55000", "the closing of the registry is not committed yet"},
	[SIM_OTHER_SUCCESSOR] = {"other successor", "55000", "the closed registry names another successor"},
	[SIM_FLOOR_AHEAD] = {"floor ahead", "55000", "ids of the closed registry may end at"},
	[SIM_TAKES_SELF] = {"takes self", "22023", "a registry takes over another registry"}
};
const int	num_errors = NUM_SIM_REASONS;
const char *const test_file = "test/t/051_registry_twin.pl";

/* What asks for leases. */
typedef struct Node
{
	int			table;			/* which registry it uses */
	bool		own;			/* it is the registry's server */
	bool		program;
	uint64		start;
	int64		call;
	SimNamedLease lease;
	uint64		uses;			/* the incarnation, or 0 */
	uint64		system_identifier;
	TimestampTz launched_at;
	TimestampTz ids_end_at;
	int64		clock_offset;
	const SnowflakeLayout *layout;
	bool		fixed;
	uint64		first;
	uint64		last;
	int64		max_ahead;
	int64		window;
} Node;

static SimRegistry registries[NUM_TABLES];
static SimRegistry saved[NUM_TABLES];	/* an earlier state */
static SimHere here[NUM_TABLES];
static SimHistory histories[NUM_TABLES];
static SimHistory saved_histories[NUM_TABLES];
static SimClosedRegistry last_closed[NUM_TABLES];
static Node nodes[MAX_NODES];
static TimestampTz now;
static const SnowflakeLayout *first_layout; /* of most nodes */

static uint64 next_token;
static uint64 next_start;
static uint64 next_transaction;
static uint32 last_random;
static int64 counts[NUM_FUNCTIONS][NUM_SIM_REASONS];
static int	num_calls_of_sequence;

static uint64
count_id(void *state)
{
	return ++next_token;
}

static uint64
compute_random(void *state)
{
	last_random = (last_random * 25173 + 13849) % 65536;
	return (uint64) last_random << 48;
}

/*
 * Random choices
 */

/* Around a time: just it, a little off, or any. */
static TimestampTz
around(TimestampTz at)
{
	int64		offsets[] = {0, 0, 1, -1, SECONDS(below(20)), -SECONDS(below(20)), MINUTES(below(10)), -MINUTES(below(10))};

	return at + offsets[below(lengthof(offsets))];
}

static const SimNumber *
any_number(int t)
{
	return registries[t].num_numbers == 0 ? NULL : &registries[t].numbers[below(registries[t].num_numbers)];
}

/* Numbers of a layout without that field are none, and SQL does not take it for one. */
static const SnowflakeLayout *
layout_with_workers(void)
{
	const SnowflakeLayout *layout;

	do
		layout = any_layout();
	while (layout->bits[SNOWFLAKE_WORKER] == 0);
	return layout;
}

/* A time that something in the tables has, or now. */
static TimestampTz
any_time(int t)
{
	const SimNumber *number = any_number(t);
	TimestampTz times[] = {now, registries[t].row.created_at, registries[t].row.counted_at, registries[t].row.starts_at,
		number == NULL ? now : number->ended_until, number == NULL ? now : number->leased_until,
	number == NULL ? now : number->starts_at};
	TimestampTz at = times[below(lengthof(times))];

	return at == DT_NOBEGIN || at == 0 ? now : around(at);
}

static uint64
any_incarnation(int t)
{
	const SimUuids *taken = &registries[t].row.taken_over;

	return percent(40) ? registries[1 - t].row.incarnation : percent(40) ? registries[t].row.incarnation :
		taken->num > 0 && percent(60) ? taken->uuids[below(taken->num)] : 77;
}

/*
 * Statements
 */

static char *statement;

/* Begins a statement that runs with a clock; what is to be called is appended. */
static char *
begin_statement(int t, TimestampTz clock)
{
	static char text[TEXT_SIZE];

	here[t].clock = clock;
	here[t].transaction = ++next_transaction;
	here[t].in_recovery = rarely();
	here[t].replication_origin = rarely();
	here[t].other_isolation = rarely();
	here[t].role = below(NUM_ROLES);
	next_token += IDS_OF_CALL - next_token % IDS_OF_CALL;
	last_random = below(65536);
	sprintf(text, "/* %d */ %s", t, here[t].other_isolation ? "SET transaction_isolation = 'serializable'; " : "");
	append(text, "SET twin.in_recovery = %s; SET twin.has_origin = %s; SET twin.clock = '" INT64_FORMAT "'; "
		   "SET twin.uuid = '" UINT64_FORMAT "'; SET twin.random = '%u'; SET twin.role = %d; SET twin.transaction = '"
		   UINT64_FORMAT "'; ", boolean_text(here[t].in_recovery), boolean_text(here[t].replication_origin), clock,
		   next_token, last_random, here[t].role, here[t].transaction);
	statement = text;
	return text;
}

/* Of the server that has a registry: what only changes when it is started. */
static void
tell_server(int t)
{
	static char file[TEXT_SIZE];

	strcpy(file, percent(50) ? "" : "# a comment\n");
	for (int i = 0; i < histories[t].num_entries; i++)
		append(file, "%u\t%X/%X\tno recovery target specified\n\n", histories[t].entries[i].timeline,
			   (uint32) (histories[t].entries[i].switched_at >> 32), (uint32) histories[t].entries[i].switched_at);
	must_run(t, "SET twin.system_identifier = '" UINT64_FORMAT "'; SET twin.launched_at = '" INT64_FORMAT
			 "'; SET twin.timeline = '%u'; SET twin.history = '%s'", here[t].system_identifier, here[t].launched_at,
			 here[t].timeline, here[t].history == NULL ? "" : file);
}

static void
count(Function function, SimReason reason)
{
	counts[function][reason]++;
	num_calls++;
	num_calls_of_sequence++;
}

/* result: what it returns, if that is compared. */
static void
compare_order(Function function, SimReason reason, const char *result)
{
	strcpy(expected, reason == SIM_NO_REASON && result != NULL ? result : errors[reason].name);
	compare_texts("an order differs");
	count(function, reason);
}

static const char *
uses_text(SimUses uses)
{
	return uses == SIM_USES_NOTHING ? "nothing" : uses == SIM_USES_OWN ? "own" : "another";
}

/* Replaces what a refusal or a no says by its name. */
static void
name_reason(void)
{
	char		named[256];
	char	   *reason = strchr(actual, '|');
	char	   *rest = reason == NULL ? NULL : strchr(reason + 1, '|');

	if (rest == NULL || rest == reason + 1)
		return;
	*rest = '\0';
	snprintf(named, sizeof(named), "%s", reason + 1);
	for (int i = 1; i < num_errors; i++)
		if (errors[i].sqlstate[0] == '\0' ? strcmp(reason + 1, errors[i].part) == 0 :
			strncmp(reason + 1, errors[i].sqlstate, 5) == 0 && strstr(reason + 1, errors[i].part) != NULL)
			snprintf(named, sizeof(named), "%s", errors[i].name);
	memmove(reason + 1 + strlen(named) + 1, rest + 1, strlen(rest + 1) + 1);
	memcpy(reason + 1, named, strlen(named));
	reason[1 + strlen(named)] = '|';
}

static void
compare_answer(Function function, const SimAnswer *a)
{
	static const char *const kinds[] = {"yes", "no", "refused"};

	name_reason();
	if (a->kind == SIM_ERROR)
		strcpy(expected, errors[a->reason].name);
	else
	{
		bool		started = function == START_SERVER && a->kind == SIM_YES;
		bool		granted = (function == ACQUIRE || function == ACQUIRE_OWN) && a->kind == SIM_YES;
		bool		renewed = function == RENEW && a->kind == SIM_YES;

		sprintf(expected, "%s|%s|" INT64_FORMAT "|" UINT64_FORMAT "|%d|" INT64_FORMAT "|" UINT64_FORMAT "|" UINT64_FORMAT "|"
				INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|%s|" UINT64_FORMAT, kinds[a->kind],
				a->reason == SIM_NO_REASON ? "" : errors[a->reason].name, a->wait, a->incarnation, a->generation, a->clock,
				a->token, a->node_number, started || granted ? a->starts_at : DT_NOBEGIN,
				granted || renewed ? a->leased_until : DT_NOBEGIN, granted ? a->cluster_ids_end_at : DT_NOBEGIN, uses_text(a->uses), a->uses_incarnation);
	}
	compare_texts("the answers differ");
	count(function, a->reason);
}

/*
 * Tables
 */

static int
compare_uuids(const void *a, const void *b)
{
	return *(const uint64 *) a < *(const uint64 *) b ? -1 : *(const uint64 *) a > *(const uint64 *) b;
}

static void
append_uuids(char *text, const SimUuids *set)
{
	SimUuids	sorted = *set;

	qsort(sorted.uuids, sorted.num, sizeof(uint64), compare_uuids);
	for (int i = 0; i < sorted.num; i++)
		append(text, "%s" UINT64_FORMAT, i == 0 ? "" : " ", sorted.uuids[i]);
}

static int
compare_tokens(const void *a, const void *b)
{
	return compare_uuids(&((const SimLog *) a)->token, &((const SimLog *) b)->token);
}

/* Without the quotes; empty if it is NULL. */
static const char *
plain_layout(const SnowflakeLayout *layout)
{
	char	   *text = text_buffer();

	text[0] = '\0';
	if (layout != NULL)
		snowflake_layout_define(layout, text);
	return text;
}

static void
write_tables(SimRegistry *r)
{
	const SimRegistryRow *row = &r->row;
	char	   *text = expected;

	sprintf(text, "registry|" UINT64_FORMAT "|" INT64_FORMAT "|%d|", row->incarnation, row->created_at, row->generation);
	if (row->timeline != 0)
		append(text, UINT64_FORMAT "/%08X", row->system_identifier, row->timeline);
	append(text, "|");
	for (int i = 0; i < row->counted.num_entries; i++)
		append(text, "%s%u/%X/%X", i == 0 ? "" : " ", row->counted.entries[i].timeline,
			   (uint32) (row->counted.entries[i].switched_at >> 32), (uint32) row->counted.entries[i].switched_at);
	append(text, "|" INT64_FORMAT "|" UINT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|",
		   row->counted_at, row->mark, row->starts_at, row->end_limit, row->old_limit, row->old_limit_until);
	append_uuids(text, &row->taken_over);
	append(text, "|");
	append_uuids(text, &row->told);
	append(text, "|" UINT64_FORMAT "|" INT64_FORMAT, row->successor, row->closed_at);
	if (r->cluster.exists)
		append(text, "\ncluster|%s|" UINT64_FORMAT "|%s|" INT64_FORMAT, uses_text(r->cluster.uses), r->cluster.incarnation,
			   plain_layout(r->cluster.layout), r->cluster.greatest_id);
	for (int i = 0; i < r->num_numbers; i++)
	{
		const SimNumber *n = &r->numbers[i];

		append(text, "\nnumber|" UINT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" UINT64_FORMAT "|" UINT64_FORMAT "|"
			   INT64_FORMAT "|" INT64_FORMAT "|%s|%s|" UINT64_FORMAT "|role%d|" UINT64_FORMAT "|%d|" INT64_FORMAT "|" INT64_FORMAT,
			   n->node_number, n->ended_until, n->recorded_until, n->token, n->start, n->granted_by, n->last_call,
			   n->own ? "t" : "f", n->fixed ? "t" : "f", n->system_identifier, n->role, n->incarnation, n->generation,
			   n->token == 0 ? DT_NOBEGIN : n->starts_at, n->token == 0 ? DT_NOBEGIN : n->leased_until);
	}
	qsort(r->log, r->num_log, sizeof(SimLog), compare_tokens);
	for (int i = 0; i < r->num_log; i++)
	{
		const SimLog *l = &r->log[i];

		append(text, "\nlease|" UINT64_FORMAT "|" UINT64_FORMAT "|role%d|" UINT64_FORMAT "|" UINT64_FORMAT "|%d|" UINT64_FORMAT "|%s|"
			   INT64_FORMAT "|" INT64_FORMAT, l->token, l->start, l->role, l->system_identifier, l->incarnation, l->generation, l->node_number, plain_layout(l->layout),
			   l->starts_at, l->leased_until);
	}
}

static void
compare_tables(int t)
{
	write_tables(&registries[t]);
	compare_lines(t, "SELECT * FROM twin.tables()");
}

/*
 * Calls
 */

static const char *
number_text(int64 number)
{
	char	   *text = text_buffer();

	snprintf(text, 256, INT64_FORMAT, number);
	return text;
}

static const char *
time_json(TimestampTz at)
{
	return at == DT_NOBEGIN ? "NULL" : number_text(at + EPOCH_1970);
}

static const char *
quoted_layout(const SnowflakeLayout *layout)
{
	return layout == NULL ? "NULL" : layout_text(layout);
}

static void
add_value(const char *key, const char *value)
{
	append(statement, "%s'%s', %s", statement[strlen(statement) - 1] == '(' ? "" : ", ", key, value);
}

static void
add_node_call(const SimNodeCall *call)
{
	add_value("protocol", number_text(call->protocol));
	add_value("start", uuid_text(call->start));
	add_value("call", number_text(call->call));
	add_value("layout", quoted_layout(call->layout));
	if (call->lease.token == 0)
		return;
	append(statement, ", 'lease', jsonb_build_object(");
	add_value("token", uuid_text(call->lease.token));
	add_value("node_number", number_text((int64) call->lease.node_number));
	add_value("granted_by", number_text(call->lease.granted_by));
	add_value("incarnation", uuid_text(call->lease.incarnation));
	add_value("generation", number_text(call->lease.generation));
	add_value("leased_until", time_json(call->lease.leased_until));
	add_value("ids_end_at", time_json(call->lease.ids_end_at));
	append(statement, ")");
}

static void
make_node_call(Node *node, SimNodeCall *call, bool ends)
{
	call->protocol = percent(2) ? below(4) : SIM_PROTOCOL;
	call->start = node->start;
	node->call += 1 + below(2);
	call->call = percent(5) ? Max(1, node->call - below(5)) : percent(8) ? node->lease.granted_by + 1 : node->call;
	call->layout = percent(3) ? layout_with_workers() : node->layout;
	call->lease = node->lease;
	call->lease.ids_end_at = ends ? around(percent(50) ? call->lease.leased_until : now) : DT_NOBEGIN;
	if (call->lease.token == 0)
		return;
	if (percent(3))
		call->lease.token = ++next_start;
	if (percent(3))
		call->lease.incarnation = any_incarnation(node->table);
	if (percent(3))
		call->lease.generation += below(3) - 1;
	if (percent(5))
		call->lease.leased_until = any_time(node->table);
	if (percent(3))
		call->lease.node_number = below(20);
	if (percent(2))
		call->lease.granted_by += below(3) - 1;
}

static TimestampTz
clock_of(const Node *node)
{
	return percent(5) ? any_time(node->table) : now + node->clock_offset;
}

static void
run_answer(int t, Function function, const SimAnswer *answer)
{
	append(statement, ")))");
	run_sql(t, statement);
	compare_answer(function, answer);
}

static void
begin_function(int t, TimestampTz clock, const char *function)
{
	begin_statement(t, clock);
	append(statement, "SELECT twin.answer(snowflake.%s(jsonb_build_object(", function);
}

static void
call_start_server(int t)
{
	SimStart	in = {.clock = percent(80) ? now : any_time(t),.max_ahead = SECONDS(below(20)),.mark = below(4)};
	SimAnswer	answer;

	begin_function(t, now, "start_server");
	add_value("clock", time_json(in.clock));
	add_value("max_ahead", number_text(in.max_ahead));
	if (in.mark != 0)
		add_value("mark", in.mark == 1 ? "'1'" : in.mark == 2 ? "'2'" : "'3'");
	answer = sim_start_server(&registries[t], &here[t], &in);
	run_answer(t, START_SERVER, &answer);
}

static void
call_check_promotion(int t)
{
	const SnowflakeLayout *layout = percent(50) && registries[t].cluster.layout != NULL ? registries[t].cluster.layout :
	layout_with_workers();
	SimAnswer	answer;

	begin_function(t, now, "check_promotion");
	add_value("layout", quoted_layout(layout));
	answer = sim_check_promotion(&registries[t], &here[t], layout);
	run_answer(t, CHECK_PROMOTION, &answer);
}

static void
take_lease(Node *node, const SimAcquire *in, const SimAnswer *answer)
{
	node->lease.token = answer->token;
	node->lease.node_number = answer->node_number;
	node->lease.granted_by = in->node.call;
	node->lease.incarnation = answer->incarnation;
	node->lease.generation = answer->generation;
	node->lease.leased_until = answer->leased_until;
	node->uses = answer->incarnation;
}

static void
call_acquire(Node *node)
{
	int			t = node->table;
	SimAcquire	in = {.clock = clock_of(node),.max_ahead = node->max_ahead,.window = rarely() ? 0 : node->window,
		.first_number = node->first,.last_number = node->last,.fixed = node->fixed,
		.uses = percent(5) ? any_incarnation(t) : node->uses,.program = node->program,.launched_at = node->launched_at,
	.system_identifier = node->system_identifier};
	SimAnswer	answer;

	make_node_call(node, &in.node, percent(60));
	in.starts_at = percent(15) ? any_time(t) : DT_NOBEGIN;
	in.ids_end_at = percent(30) ? any_time(t) : DT_NOBEGIN;
	begin_function(t, now, node->own ? "acquire_own_lease" : "acquire_lease");
	add_node_call(&in.node);
	add_value("clock", time_json(in.clock));
	add_value("max_ahead", number_text(in.max_ahead));
	add_value("window", number_text(in.window));
	add_value("first_number", number_text((int64) in.first_number));
	add_value("last_number", number_text((int64) in.last_number));
	add_value("fixed", boolean_text(in.fixed));
	add_value("uses", uuid_text(in.uses));
	add_value("starts_at", time_json(in.starts_at));
	add_value("ids_end_at", time_json(in.ids_end_at));
	add_value("launched_at", time_json(in.launched_at));
	add_value("kind", in.program ? "'program'" : "'server'");
	add_value("name", "'name'");
	add_value("host_name", "'host'");
	add_value("port", "5432");
	add_value("timeline", "1");
	add_value("system_identifier", number_text((int64) in.system_identifier));
	answer = node->own ? sim_acquire_own_lease(&registries[t], &here[t], &in) :
		sim_acquire_lease(&registries[t], &here[t], &in);
	run_answer(t, node->own ? ACQUIRE_OWN : ACQUIRE, &answer);
	if (answer.kind == SIM_YES && percent(90))
		take_lease(node, &in, &answer);
}

static void
call_renew(Node *node)
{
	int			t = node->table;
	SimRenew	in = {.clock = clock_of(node),.max_ahead = node->max_ahead,.window = node->window};
	SimAnswer	answer;

	make_node_call(node, &in.node, false);
	begin_function(t, now, "renew_lease");
	add_node_call(&in.node);
	add_value("clock", time_json(in.clock));
	add_value("max_ahead", number_text(in.max_ahead));
	add_value("window", number_text(in.window));
	answer = sim_renew_lease(&registries[t], &here[t], &in);
	run_answer(t, RENEW, &answer);
	if (answer.kind == SIM_YES)
		node->lease.leased_until = answer.leased_until;
}

static void
call_release(Node *node)
{
	int			t = node->table;
	SimNodeCall in;
	SimAnswer	answer;

	make_node_call(node, &in, true);
	begin_function(t, now, "release_lease");
	add_node_call(&in);
	answer = sim_release_lease(&registries[t], &here[t], &in);
	run_answer(t, RELEASE, &answer);
	if (answer.kind == SIM_YES)
		node->ids_end_at = in.lease.ids_end_at;
}

static void
call_record_uses(int t)
{
	const SimCluster *cluster = &registries[t].cluster;
	SimRecord	in = {.incarnation = registries[t].cluster.incarnation != 0 && percent(50) ? registries[t].cluster.incarnation : any_incarnation(t)};
	SimAnswer	answer;

	in.uses = percent(20) ? any_incarnation(t) : cluster->uses == SIM_USES_OWN ? registries[t].row.incarnation :
		cluster->incarnation;
	begin_function(t, now, "record_uses");
	add_value("incarnation", uuid_text(in.incarnation));
	add_value("uses", uuid_text(in.uses));
	answer = sim_record_uses(&registries[t], &here[t], &in);
	run_answer(t, RECORD_USES, &answer);
}

/*
 * Orders
 */

static void
order_change_layout(int t)
{
	const SnowflakeLayout *layout = layout_with_workers();

	begin_statement(t, now);
	append(statement, "SELECT 'ok' FROM (SELECT snowflake.change_layout(%s)) AS f", layout_text(layout));
	run_sql(t, statement);
	compare_order(CHANGE_LAYOUT, sim_change_layout(&registries[t], &here[t], layout), NULL);
}

static void
order_limit_leases(int t)
{
	int64		limit = percent(10) ? SECONDS(below(10)) : SECONDS(10 + below(percent(80) ? 300 : 180000));

	begin_statement(t, now);
	append(statement, "SELECT 'ok' FROM (SELECT snowflake.limit_leases('" INT64_FORMAT " us')) AS f", limit);
	run_sql(t, statement);
	compare_order(LIMIT_LEASES, sim_limit_leases(&registries[t], &here[t], limit), NULL);
}

static void
order_ids_end_before(int t)
{
	TimestampTz at = percent(10) ? DT_NOEND : percent(10) ? SIM_FIRST_TIME - below(2) : percent(10) ? SIM_LAST_TIME + below(2) : any_time(t);
	int			role = below(NUM_ROLES);
	int			numbers;
	SimReason	reason;

	begin_statement(t, now);
	if (percent(50))
	{
		append(statement, "SELECT 'ok' FROM (SELECT snowflake.ids_end_before(twin.at(" INT64_FORMAT "))) AS f", at);
		run_sql(t, statement);
		compare_order(IDS_END_BEFORE, sim_ids_end_before(&registries[t], &here[t], at), NULL);
		return;
	}
	append(statement, "SELECT snowflake.ids_end_before(twin.at(" INT64_FORMAT "), 'role%d')", at, role);
	run_sql(t, statement);
	reason = sim_role_ends_before(&registries[t], &here[t], at, role, &numbers);
	compare_order(ROLE_ENDS_BEFORE, reason, number_text(numbers));
}

static void
order_close(int t)
{
	uint64		successor = percent(80) ? registries[1 - t].row.incarnation : any_incarnation(t);
	const SnowflakeLayout *layout = percent(80) ? registries[1 - t].cluster.layout : layout_with_workers();

	begin_statement(t, now);
	append(statement, "SELECT 'ok' FROM (SELECT snowflake.close_registry(jsonb_build_object('incarnation', %s, 'layout', %s))) AS f",
		   uuid_text(successor), quoted_layout(layout));
	run_sql(t, statement);
	compare_order(CLOSE, sim_close_registry(&registries[t], &here[t], successor, layout), NULL);
}

static void
order_closed(int t)
{
	SimClosedRegistry closed;
	SimReason	reason;

	begin_statement(t, now);
	append(statement, "SELECT twin.closed(snowflake.closed_registry())");
	reason = sim_closed_registry(&registries[t], &here[t], &closed);
	run_sql(t, statement);
	strcpy(expected, errors[reason].name);
	if (reason == SIM_NO_REASON)
	{
		sprintf(expected, UINT64_FORMAT "|" UINT64_FORMAT "|", closed.incarnation, closed.successor);
		append_uuids(expected, &closed.taken_over);
		append(expected, "|" INT64_FORMAT "|%d|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|%s|" INT64_FORMAT "|",
			   closed.created_at, closed.generation, closed.counted_at, closed.starts_at, closed.limit,
			   plain_layout(closed.layout), closed.greatest_id);
		for (int i = 0; i < closed.num_ends; i++)
			append(expected, "%s" UINT64_FORMAT ":" INT64_FORMAT, i == 0 ? "" : " ", closed.ends[i].node_number, closed.ends[i].ended);
		free(last_closed[t].ends);
		last_closed[t] = closed;
	}
	compare_texts("closed_registry() differs");
	count(CLOSED, reason);
}

/* What the other registry has told, now or some time ago, perhaps with something else changed. */
static void
order_take_over(int t)
{
	SimClosedRegistry closed = last_closed[1 - t];

	if (closed.incarnation == 0)
		return;
	if (percent(20))
		closed.starts_at = percent(50) ? any_time(t) : now + MINUTES(below(30));
	if (percent(25))
		closed.layout = layout_with_workers();
	if (percent(10))
		closed.generation++;
	if (percent(10))
		closed.counted_at = any_time(t);
	begin_statement(t, now);
	append(statement, "SELECT 'ok' FROM (SELECT snowflake.take_over(jsonb_build_object(");
	add_value("protocol", "1");
	add_value("incarnation", uuid_text(closed.incarnation));
	add_value("successor", uuid_text(closed.successor));
	append(statement, ", 'taken_over', jsonb_build_array(");
	for (int i = 0; i < closed.taken_over.num; i++)
		append(statement, "%s%s", i == 0 ? "" : ", ", uuid_text(closed.taken_over.uuids[i]));
	append(statement, ")");
	add_value("created_at", time_json(closed.created_at));
	add_value("generation", number_text(closed.generation));
	add_value("counted_at", time_json(closed.counted_at));
	add_value("starts_at", time_json(closed.starts_at));
	add_value("limit", number_text(closed.limit));
	add_value("layout", quoted_layout(closed.layout));
	add_value("greatest_id", number_text(closed.greatest_id));
	append(statement, ", 'node_numbers', jsonb_build_array(");
	for (int i = 0; i < closed.num_ends; i++)
		append(statement, "%s" UINT64_FORMAT, i == 0 ? "" : ", ", closed.ends[i].node_number);
	append(statement, "), 'ends', jsonb_build_array(");
	for (int i = 0; i < closed.num_ends; i++)
		append(statement, "%s%s", i == 0 ? "" : ", ", time_json(closed.ends[i].ended));
	append(statement, ")))) AS f");
	run_sql(t, statement);
	compare_order(TAKE_OVER, sim_take_over(&registries[t], &here[t], &closed), NULL);
}

/* All that a move needs, mostly in the right order. */
static void
order_move(int t)
{
	order_close(t);
	if (percent(90))
		order_closed(t);
	if (percent(90))
		order_take_over(1 - t);
	if (percent(30))
		order_take_over(1 - t);
}

static void
order_take_over_lost(int t)
{
	uint64		lost = any_incarnation(t);

	begin_statement(t, now);
	append(statement, "SELECT 'ok' FROM (SELECT snowflake.take_over_lost(%s)) AS f", uuid_text(lost));
	run_sql(t, statement);
	compare_order(TAKE_OVER_LOST, sim_take_over_lost(&registries[t], &here[t], lost), NULL);
}

/*
 * What becomes of servers
 */

/* A promotion: mostly a plain one. */
static void
promote(int t)
{
	SimHistory *history = &histories[t];
	SimHistoryEntry *entry = &history->entries[history->num_entries];

	if (history->num_entries > 20 || registries[t].row.counted.num_entries > 40)
		return;
	entry->timeline = here[t].timeline;
	entry->switched_at = percent(10) ? (uint64) below(1000) : (history->num_entries + 1) * UINT64CONST(0x1000000) + below(1000);
	here[t].timeline += percent(10) ? 2 : 1;
	history->num_entries++;
	if (percent(10))
		here[t].history = NULL;
	here[t].launched_at = now;
	tell_server(t);
}

static void
save_tables(int t)
{
	must_run(t, "CALL twin.save_tables()");
	sim_registry_copy(&saved[t], &registries[t]);
	saved_histories[t] = histories[t];
}

/* A standby that has not received all, or a backup; it is promoted. */
static void
go_back(int t)
{
	if (!saved[t].exists)
		return;
	must_run(t, "CALL twin.go_back()");
	sim_registry_copy(&registries[t], &saved[t]);
	if (percent(80))
		promote(t);
}

static void
upgrade(int t)
{
	histories[t].num_entries = 0;
	here[t].history = &histories[t];
	here[t].timeline = 1;
	here[t].system_identifier++;
	here[t].launched_at = now;
	tell_server(t);
}

static void
lose_history(int t)
{
	here[t].history = here[t].history == NULL || here[t].timeline == 1 ? &histories[t] : NULL;
	tell_server(t);
}

/* As a restore does. */
static void
insert_number(int t)
{
	SimNumber	number = {.node_number = below(8),.ended_until = any_time(t),.recorded_until = any_time(t)};

	must_run(t, "INSERT INTO snowflake.node_number (node_number, ended_until, recorded_until) VALUES (%d, twin.at(" INT64_FORMAT
			 "), twin.at(" INT64_FORMAT "))", (int) number.node_number, number.ended_until, number.recorded_until);
	sim_insert_number(&registries[t], &number);
}

/* A lease of the log, once more; it was open when it was dumped, or not. */
static void
insert_log(int t)
{
	SimRegistry *r = &registries[t];
	SimLog		lease;

	if (r->num_log == 0)
		return;
	lease = r->log[below(r->num_log)];
	/* a dump has the end of its number first */
	if (sim_find_number(r, lease.node_number)->ended_until == DT_NOBEGIN)
		return;
	must_run(t, "INSERT INTO snowflake.worker_node SELECT (jsonb_populate_record(w, jsonb_build_object('token', %s"
			 "))).* FROM snowflake.worker_node AS w WHERE token = %s", uuid_text(++next_start), uuid_text(lease.token));
	lease.token = next_start;
	sim_insert_log(r, &lease);
}

static void
insert_cluster(int t)
{
	SimCluster	cluster = {true, below(3), 0, percent(50) ? layout_with_workers() : NULL, percent(50) ? -1 : below(1000000)};
	const char *uses = cluster.uses == SIM_USES_NOTHING ? "NULL" : cluster.uses == SIM_USES_OWN ? "'own'" : "'another'";

	if (cluster.uses == SIM_USES_REGISTRY)
		cluster.incarnation = any_incarnation(t);
	must_run(t, "INSERT INTO snowflake.cluster (uses, incarnation, layout, greatest_id) VALUES (%s, %s, %s, "
			 INT64_FORMAT ")", uses, uuid_text(cluster.incarnation), quoted_layout(cluster.layout), cluster.greatest_id);
	sim_insert_cluster(&registries[t], &cluster);
}

static void
copy_database(int t)
{
	must_run(t, "UPDATE snowflake.registry SET database = 1");
	registries[t].row.database = 1;
}

/*
 * Sequences
 */

static void
start_node(Node *node)
{
	const SnowflakeLayout *layout;

	memset(node, 0, sizeof(*node));
	node->table = below(NUM_TABLES);
	node->own = percent(30);
	node->program = !node->own && percent(30);
	node->start = ++next_start;
	node->system_identifier = percent(30) ? here[node->table].system_identifier : (uint64) (200 + below(5));
	node->layout = layout = percent(70) && registries[node->table].cluster.layout != NULL ?
		registries[node->table].cluster.layout : percent(90) ? first_layout : layout_with_workers();
	node->uses = percent(70) ? registries[node->table].row.incarnation : 0;
	node->launched_at = percent(20) ? here[node->table].launched_at : now - SECONDS(below(100));
	node->clock_offset = percent(70) ? 0 : percent(80) ? SECONDS(below(40) - 20) : SECONDS(below(1000) - 500);
	node->fixed = percent(node->program ? 2 : 30);
	node->first = node->fixed ? below(7) : 0;
	node->last = node->fixed ? node->first + below(2) * 3 : (uint64) (percent(10) ? 0 : 1 + below(7));
	node->max_ahead = percent(50) ? SECONDS(1) : below(SECONDS(15));
	node->window = percent(70) ? SECONDS(10) : SECONDS(1 + below(400));
}

static void
begin_tables(int t)
{
	SimRegistryRow *row = &registries[t].row;

	must_run(t, "DROP EXTENSION IF EXISTS snowflake_registry; CREATE EXTENSION snowflake_registry; CALL twin.change_functions()");
	histories[t].num_entries = 0;
	here[t].history = &histories[t];
	here[t].timeline = 1;
	here[t].system_identifier = 100 + t;
	here[t].launched_at = now - SECONDS(100);
	here[t].clock = now;
	here[t].random = compute_random;
	here[t].new_uuid = count_id;
	sim_registry_free(&saved[t]);
	sim_registry_free(&registries[t]);
	registries[t].oid = 5;
	sim_create_extension(&registries[t], &here[t]);
	/* in both, as CREATE EXTENSION asks the server itself */
	must_run(t, "UPDATE snowflake.registry SET incarnation = %s, created_at = twin.at(" INT64_FORMAT "), server = '"
			 UINT64_FORMAT "/%08X'", uuid_text(row->incarnation), row->created_at, row->system_identifier, row->timeline);
	free(last_closed[t].ends);
	memset(&last_closed[t], 0, sizeof(last_closed[t]));
	tell_server(t);
}

static void
let_time_pass(void)
{
	int			luck = below(100);

	now += luck < 60 ? below(SECONDS(2)) : luck < 90 ? SECONDS(below(30)) : luck < 98 ? MINUTES(below(5)) : -SECONDS(below(30));
}

static void
take_step(void)
{
	static void (*const orders[]) (int t) = {
		order_change_layout, order_limit_leases, order_ids_end_before, order_close, order_closed, order_take_over,
		order_take_over_lost, order_move, order_move, order_move
	};
	static void (*const events[]) (int t) = {
		promote, promote, save_tables, go_back, upgrade, lose_history, insert_number, insert_log, insert_cluster, copy_database
	};
	Node	   *node = &nodes[below(MAX_NODES)];
	int			luck = below(100);
	int			t = below(NUM_TABLES);

	let_time_pass();
	if (percent(5))
		start_node(node);
	if (luck < 35)
		call_acquire(node);
	else if (luck < 65)
		node->lease.token != 0 ? call_renew(node) : call_acquire(node);
	else if (luck < 72 && node->lease.token != 0)
		call_release(node);
	else if (luck < 78)
		call_start_server(t);
	else if (luck < 81)
		percent(80) ? call_record_uses(t) : call_check_promotion(t);
	else if (luck < 91)
		orders[below(lengthof(orders))] (t);
	else
		events[below(lengthof(events))] (t);
}

static void
run_sequence(int calls_between)
{
	random_state = (uint64) seed * UINT64CONST(0x9e3779b97f4a7c15) + (uint64) sequence * UINT64CONST(0xbf58476d1ce4e5b9) + 1;
	for (int i = 0; i < 10; i++)
		any();
	forget_statements();
	choose_layouts();
	first_layout = layout_with_workers();
	next_token = next_start = next_transaction = 1000;
	next_start = UINT64CONST(1) << 40;
	/* when some layouts end, or later */
	now = percent(20) ? INT64CONST(762523200) * USECS_PER_SEC + SECONDS(below(1200)) :
		INT64CONST(800000000) * USECS_PER_SEC + SECONDS(below(1000000));
	for (int t = 0; t < NUM_TABLES; t++)
		begin_tables(t);
	for (int i = 0; i < MAX_NODES; i++)
		start_node(&nodes[i]);
	for (num_calls_of_sequence = 0; num_calls_of_sequence < MAX_CALLS;)
	{
		int			before = num_calls_of_sequence / calls_between;

		take_step();
		if (num_calls_of_sequence / calls_between == before)
			continue;
		for (int t = 0; t < NUM_TABLES; t++)
			compare_tables(t);
	}
}

static void
report(void)
{
	for (int i = 0; i < NUM_FUNCTIONS; i++)
		for (int j = 0; j < NUM_SIM_REASONS; j++)
			if (counts[i][j] > 0)
				printf("%s: %s: " INT64_FORMAT "\n", function_names[i], errors[j].name, counts[i][j]);
}

int
main(int argc, char **argv)
{
	int64		calls;

	if (argc < 5)
	{
		fprintf(stderr, "usage: registry_twin CONNINFO CONNINFO SEED CALLS [SEQUENCE]\n");
		return 2;
	}
	seed = atoi(argv[3]);
	calls = atoll(argv[4]);
	alone = strcmp(argv[1], "-") == 0;
	read_layouts();
	for (sequence = argc > 5 ? atoi(argv[5]) : 0; num_calls < calls; sequence++)
	{
		if (argc > 5 || sequence % SEQUENCES_OF_SESSION == 0)
			for (int t = 0; t < NUM_TABLES; t++)
				connect_to(t, argv[1 + t]);
		run_sequence(argc > 5 ? 1 : CALLS_BETWEEN);
		if (argc > 5)
			break;
	}
	report();
	if (alone)
		printf("hash %016llx\n", (unsigned long long) hash);
	else
		printf("seed %d: " INT64_FORMAT " calls in %d sequences: all is equal\n", seed, num_calls, sequence);
	return 0;
}
