/*
 * registry_twin.c
 *	  Random calls on two registries and on the twin of snowflake_registry in
 *	  registry.c: results, errors and tables have to be equal.
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
 * The last lines say how often each function was called with which result.
 * Exit status 1: something differs; the last calls of the sequence are shown.
 */
#include "postgres.h"

#include "compare.h"
#include "registry.h"

#define MAX_CALLS			150 /* of a sequence */
#define CALLS_BETWEEN		8	/* comparisons of the tables */
#define SEQUENCES_OF_SESSION	50
#define IDS_OF_CALL			4096

#define MAX_SERVERS			5
#define PAGE_ROWS			4	/* of list_leases(), as changed */

#define EPOCH_1970			INT64CONST(946684800000000)
#define BEYOND_TIME			(INT64CONST(253402300800000000) - EPOCH_1970)

typedef enum Function
{
	START_SERVER, ACQUIRE, ACQUIRE_OWN, RENEW, RELEASE, LIST, RECORD_USES,
	CLOSE, CLOSED, TAKE_OVER, TAKE_OVER_LOST, IDS_END_BEFORE, NUM_FUNCTIONS
} Function;

static const char *const function_names[] = {
	"start_server", "acquire_lease", "acquire_own_lease", "renew_lease", "release_lease", "list_leases", "record_uses",
	"close_registry", "closed_registry", "take_over", "take_over_lost", "ids_end_before"
};

const ErrorKind errors[] = {
	[SIM_OK] = {"ok"},
	[SIM_NO_TABLE] = {"no table", "3F000", "schema \"snowflake\" does not exist"},
	[SIM_ROW_REFUSED] = {"row refused", "23514", "worker_node_span"},
	[SIM_VALUE] = {"value", "22023", "in a registry call is out of range"},
	[SIM_PROTOCOL_UNKNOWN] = {"protocol unknown", "55000", "of the registry's protocol is not known here"},
	[SIM_HOT_STANDBY] = {"hot standby", "25006", "the registry is a hot standby"},
	[SIM_ISOLATION_LEVEL] = {"isolation level", "25001", "leases need isolation level read committed"},
	[SIM_REPLICATION_ORIGIN] = {"replication origin", "55000", "in a session with a replication origin"},
	[SIM_NO_REGISTRY_ROW] = {"no registry row", "55000", "the table snowflake.registry has no row"},
	[SIM_CLOSED] = {"closed", "55000", "the registry is closed"},
	[SIM_NO_HISTORY] = {"no history", "55000", "could not find the history of timeline"},
	[SIM_USES_ANOTHER] = {"uses another", "55000", "the registry's own cluster uses another registry"},
	[SIM_REGISTRY_IS_SELF] = {"registry is self", "55000", "the registry is the server itself"},
	[SIM_OTHER_SOURCE] = {"other source", "55000", "is not the one that the node's ids were issued with"},
	[SIM_CALL_LATE] = {"call late", "55000", "of this start arrived too late"},
	[SIM_LAYOUT_NOT_SET] = {"layout not set", "55000", " in postgresql.conf) and restart the node."},
	[SIM_LAYOUT_IN_USE] = {"layout in use", "55000", ", has a lease until "},
	[SIM_LAYOUT_NOT_GREATER] = {"layout not greater", "55000", "Its ids would not be greater than all of them."},
	[SIM_NO_NUMBER_FREE] = {"no number free", "53400", "no node number is free"},
	[SIM_NUMBER_HELD] = {"number held", "55000", "is leased to the "},
	[SIM_TOO_FEW_NUMBERS] = {"too few numbers", "55000", "the layout has too few node numbers"},
	[SIM_BEHIND_CREATION] = {"behind creation", "55000", "the node's clock is behind the creation of the extension"},
	[SIM_BEHIND_START] = {"behind start", "55000", "the node's clock is behind the time that leases start at"},
	[SIM_BEHIND_IDS] = {"behind ids", "55000", "the node's clock is behind ids that the registry does not know of"},
	[SIM_LAYOUT_ENDED] = {"layout ended", "2200H", "the timestamp field of layout"},
	[SIM_RENEW_LAYOUT] = {"renewal layout", "55000", "the layout is not the one that ids are issued under now"},
	[SIM_HAS_NODES] = {"has nodes", "55000", "cannot use another registry while this server's own tables are one"},
	[SIM_SUCCESSOR_IS_SELF] = {"successor is self", "22023", "a registry's successor is another registry"},
	[SIM_NOT_CLOSED] = {"not closed", "55000", "the registry is not closed"},
	[SIM_NOT_COMMITTED] = {"not committed", "55000", "the closing of the registry is not committed yet"},
	[SIM_OTHER_SUCCESSOR] = {"other successor", "55000", "the closed registry names another successor"},
	[SIM_FLOOR_AHEAD] = {"floor ahead", "55000", "ids of the closed registry may end at"},
	[SIM_TAKES_SELF] = {"takes self", "22023", "a registry takes over another registry"},
	[SIM_TIME_NOT_FINITE] = {"time not finite", "22023", "the time at which ids end must be finite"},
	/* closed_registry() does not say it */
	{"no registry row", "P0002", "query returned no rows"}
};

#define NUM_ERRORS	((int) lengthof(errors))

const int	num_errors = NUM_ERRORS;
const char *const test_file = "test/t/051_registry_twin.pl";

static const char *const reasons[] = {NULL, "unknown", "incarnation", "generation", "closed", "uses"};

/* A server that asks. */
typedef struct Server
{
	int			table;			/* which registry it uses */
	bool		own;			/* it is the registry's server */
	uint64		start;
	int64		call;
	SimNamedLease lease;
	uint64		incarnation;	/* of its registry, or 0 */
	int			generation;
	bool		program;
	uint64		system_identifier;
	int			host;
	int			port;
	uint32		timeline;
	TimestampTz launched_at;
	int64		clock_offset;
	const SnowflakeLayout *layout;
	bool		layout_set;
	bool		fixed;
	uint64		first;
	uint64		last;
	int64		tick;
	int64		max_ahead;
	int64		window;
} Server;

static SimRegistry registries[NUM_TABLES];
static SimRegistry saved[NUM_TABLES];	/* an earlier state */
static bool dropped[NUM_TABLES];	/* in SQL */
static SimHere here[NUM_TABLES];
static SimHistory histories[NUM_TABLES];
static int64 registry_offsets[NUM_TABLES];
static SimClosedRegistry last_closed[NUM_TABLES];
static Server servers[MAX_SERVERS];
static int	num_servers;
static TimestampTz now;

static uint64 next_token;
static uint64 next_start;
static uint64 next_transaction;
static uint32 last_random;

static int	num_calls_of_sequence;
static int	num_sequences;
static int64 num_comparisons;
static int64 counts[NUM_FUNCTIONS][NUM_ERRORS];
static int64 refusals[NUM_FUNCTIONS][lengthof(reasons)];

/*
 * Random choices
 */

static const SimRow *
any_row(int t)
{
	return registries[t].num_leases == 0 ? NULL : &registries[t].leases[below(registries[t].num_leases)];
}

/* A time that a comparison may turn on. */
static TimestampTz
time_of_tables(int t)
{
	const SimRow *row = any_row(t);

	switch (below(8))
	{
		case 0:
			return registries[t].row.created_at;
		case 1:
			return registries[t].row.counted_at;
		case 2:
			return registries[t].row.starts_at;
		case 3:
			return row == NULL ? now : row->starts_at;
		default:
			return row == NULL ? now : row->leased_until;
	}
}

static TimestampTz
any_time(int t)
{
	static const int64 steps[] = {0, 0, 1, -1, 1000, -1000, 1001, -1001, 10000, SECONDS(1), SECONDS(-1),
	SECONDS(1.001), SECONDS(-1.001), SECONDS(10), SECONDS(-10), SECONDS(11), SECONDS(-11), MINUTES(1), MINUTES(-1)};
	const SnowflakeLayout *layout = &layouts[layouts_of_sequence[below(3)]];
	TimestampTz at = percent(40) ? now : time_of_tables(t);

	if (percent(3))
		at = layout->epoch;
	if (percent(3))
		at = snowflake_tick_begin(layout, layout->max_tick + below(2));
	if (at > now + 20 * 365 * USECS_PER_DAY || TIMESTAMP_IS_NOBEGIN(at))
		at = now;
	return at + steps[below(lengthof(steps))] + (percent(30) ? steps[below(lengthof(steps))] : 0);
}

/* Often none. */
static TimestampTz
any_time_or_null(int t, int chance)
{
	return !percent(chance) ? DT_NOBEGIN : rarely() ? BEYOND_TIME : any_time(t);
}

/* The incarnation of one of both, or of none; sometimes 0. */
static uint64
any_incarnation(int t)
{
	int			chance = below(100);

	if (chance < 45)
		return registries[t].row.incarnation;
	if (chance < 75)
		return registries[1 - t].row.incarnation;
	if (chance < 85 && registries[t].row.taken_over.num > 0)
		return registries[t].row.taken_over.uuids[below(registries[t].row.taken_over.num)];
	return chance < 95 ? (uint64) (7 + below(4)) : 0;
}

/* When the first tick of a layout begins whose ids are greater than an id. */
static TimestampTz
first_time_above(int64 id, const SnowflakeLayout *layout)
{
	uint64		tick = id < 0 ? 0 : snowflake_field_get(layout, id, SNOWFLAKE_TIMESTAMP) + 1;

	return snowflake_tick_begin(layout, Min(tick, layout->max_tick));
}

static int64
greatest_id_of_others(const Server *server)
{
	const SimRegistry *r = &registries[server->table];
	int64		greatest = -1;

	for (int i = 0; i < r->num_leases; i++)
		if (r->leases[i].layout != server->layout)
			greatest = Max(greatest, r->leases[i].greatest_id);
	return greatest;
}

/* When the first of the automatic numbers that the server can have ends. */
static TimestampTz
first_free(const Server *server)
{
	const SimRegistry *r = &registries[server->table];
	const SimRow *first = NULL;

	for (int i = 0; i < r->num_leases; i++)
	{
		const SimRow *last = &r->leases[i];

		if (last->node_number < server->first || last->node_number > server->last ||
			(int) (last->node_number % 2) == r->row.generation % 2)
			continue;
		for (int j = 0; j < r->num_leases; j++)
			if (r->leases[j].node_number == last->node_number && r->leases[j].leased_until > last->leased_until)
				last = &r->leases[j];
		if (first == NULL || last->leased_until < first->leased_until)
			first = last;
	}
	return first != NULL ? first->leased_until : now;
}

/* A clock that a check of the server's call turns on. */
static TimestampTz
sharp_time(const Server *server)
{
	const SimRegistry *r = &registries[server->table];
	const SimRow *row = any_row(server->table);
	int64		ahead = percent(50) ? server->max_ahead : Min(server->max_ahead, SECONDS(10));
	TimestampTz at;

	if (percent(30))
		for (int i = 0; i < r->num_leases; i++)
			if (r->leases[i].leased_until > row->leased_until)
				row = &r->leases[i];
	for (int i = 0; i < 10 && row != NULL; i++)
	{
		if (percent(30) || ((!row->closed || server->fixed) &&
							row->node_number >= server->first && row->node_number <= server->last))
			break;
		row = any_row(server->table);
	}
	switch (below(row != NULL ? 12 : 3))
	{
		case 0:
			at = r->row.created_at - SECONDS(10);
			break;
		case 1:
			at = TIMESTAMP_IS_NOBEGIN(r->row.starts_at) ? now : r->row.starts_at - SECONDS(10) - server->max_ahead;
			break;
		case 2:
			at = TIMESTAMP_IS_NOBEGIN(r->row.counted_at) ? now : r->row.counted_at - SECONDS(10);
			break;
		case 3:
			at = row->leased_until - ahead;
			break;
		case 4:
			at = row->leased_until - row->leased_until % 1000 - ahead;
			break;
		case 5:
			at = row->leased_until - row->leased_until % SECONDS(1) - ahead;
			break;
		case 6:
		case 7:
			at = first_time_above(greatest_id_of_others(server), server->layout) - ahead;
			break;
		case 8:
			at = first_free(server);
			break;
		default:
			at = row->leased_until;
	}
	return at + (percent(60) ? 0 : below(3) - 1);
}

static TimestampTz
clock_of(const Server *server)
{
	if (percent(15))
		return sharp_time(server);
	return rarely() ? BEYOND_TIME : percent(20) ? any_time(server->table) : now + server->clock_offset;
}

static int
any_protocol(void)
{
	static const int others[] = {0, 2, 1000000, 1000001};

	return percent(98) ? SIM_PROTOCOL : others[below(lengthof(others))];
}

/*
 * Calls as text
 */

/* For SQL: NULL, a time */
static const char *
time_text(TimestampTz at)
{
	char	   *text = text_buffer();

	snprintf(text, 256, "twin.at(" INT64_FORMAT ")", at);
	return TIMESTAMP_IS_NOBEGIN(at) ? "NULL" : text;
}

/* For a jsonb */
static const char *
time_json(TimestampTz at)
{
	char	   *text = text_buffer();

	snprintf(text, 256, INT64_FORMAT, at + EPOCH_1970);
	return TIMESTAMP_IS_NOBEGIN(at) ? "null" : text;
}

static const char *
uuid_json(uint64 id)
{
	char	   *text = text_buffer();

	snprintf(text, 256, "\"00000000-0000-0000-%04x-%04x%08x\"", (unsigned) (id >> 48), (unsigned) (id >> 32 & 0xffff),
			 (unsigned) id);
	return id == 0 ? "null" : text;
}

/* Leaves out a key now and then, if it would be null. */
static void
add_key(char *text, const char *key, const char *value)
{
	if (strcmp(value, "null") != 0 || percent(50))
		append(text, "%s\"%s\":%s", text[strlen(text) - 1] == '{' ? "" : ",", key, value);
}

static void
add_number(char *text, const char *key, int64 value)
{
	char		number[32];

	snprintf(number, sizeof(number), INT64_FORMAT, value);
	add_key(text, key, number);
}

/* The fields in their order. */
static void
add_layout(char *text, const SnowflakeLayout *layout)
{
	char		definition[SNOWFLAKE_DEFINITION_SIZE];

	if (layout == NULL)
		return;
	snowflake_layout_define(layout, definition);
	append(text, ",\"layout\":{\"definition\":\"%s\",\"epoch\":%s,\"tick\":" INT64_FORMAT ",\"fields\":[", definition,
		   time_json(layout->epoch), layout->tick_us);
	for (int shift = layout->total_bits - 1; shift >= 0; shift--)
		for (int field = 0; field < SNOWFLAKE_NUM_FIELDS; field++)
			if (layout->bits[field] > 0 && layout->shift[field] == shift)
				append(text, "%s[\"%s\",%d]", field == SNOWFLAKE_TIMESTAMP ? "" : ",",
					   snowflake_field_name(field), layout->bits[field]);
	append(text, "]}");
}

static void
add_node_call(char *text, const SimNodeCall *call)
{
	add_number(text, "protocol", call->protocol);
	add_key(text, "start", uuid_json(call->start));
	add_number(text, "call", call->call);
	add_layout(text, call->layout);
	if (call->lease.token == 0)
	{
		add_key(text, "lease", "null");
		return;
	}
	append(text, ",\"lease\":{");
	add_key(text, "token", uuid_json(call->lease.token));
	add_number(text, "granted_by", call->lease.granted_by);
	add_key(text, "ids_end_at", time_json(call->lease.ids_end_at));
	append(text, "}");
}

static void
add_host(char *text, int host, int port)
{
	append(text, ",\"host_name\":\"host%d\"", host);
	add_number(text, "port", port);
}

static void
add_program(char *text, int host)
{
	append(text, ",\"kind\":\"program\",\"name\":\"name%d\",\"host_name\":\"host%d\"", host, host);
}

/* One part of the node number of a row, or -1 if the layout has it not. */
static int64
part_of(const SimRow *row, SnowflakeField field)
{
	const SnowflakeLayout *layout = row->layout;
	uint64		place = snowflake_node_place(layout, row->node_number);

	if (layout->bits[field] == 0 && field != SNOWFLAKE_WORKER)
		return -1;
	return (int64) snowflake_field_get(layout, (int64) place, field);
}

/* A null if the layout has not the part. */
static void
add_part(char *text, const char *key, const SimRow *row, SnowflakeField field)
{
	if (part_of(row, field) >= 0)
		add_number(text, key, part_of(row, field));
	else
		add_key(text, key, "null");
}

static void
add_row_json(char *text, const SimRow *row)
{
	char		layout[SNOWFLAKE_DEFINITION_SIZE];

	snowflake_layout_define(row->layout, layout);
	append(text, "{\"layout\":\"%s\"", layout);
	add_key(text, "token", uuid_json(row->token));
	add_key(text, "start", uuid_json(row->start));
	add_number(text, "granted_by", row->granted_by);
	add_number(text, "last_call", row->last_call);
	if (row->program)
		add_program(text, row->host);
	else
	{
		append(text, ",\"kind\":\"server\"");
		add_number(text, "system_identifier", (int64) row->system_identifier);
		add_host(text, row->host, row->port);
		add_number(text, "timeline", row->timeline);
	}
	add_key(text, "incarnation", uuid_json(row->incarnation));
	add_number(text, "generation", row->generation);
	add_key(text, "fixed", boolean_text(row->fixed));
	add_number(text, "node_number", (int64) row->node_number);
	add_part(text, "datacenter_id", row, SNOWFLAKE_DATACENTER);
	add_part(text, "worker_id", row, SNOWFLAKE_WORKER);
	add_part(text, "clock", row, SNOWFLAKE_CLOCK);
	add_number(text, "greatest_id", row->greatest_id);
	add_key(text, "launched_at", time_json(row->launched_at));
	add_key(text, "starts_at", time_json(row->starts_at));
	add_key(text, "leased_until", time_json(row->leased_until));
	add_key(text, "renewed_at", time_json(row->renewed_at));
	add_key(text, "closed_at", time_json(row->closed_at));
	append(text, "}");
}

static void
add_closed(char *text, const SimClosedRegistry *closed)
{
	add_number(text, "protocol", closed->protocol);
	add_key(text, "incarnation", uuid_json(closed->incarnation));
	add_key(text, "successor", uuid_json(closed->successor));
	add_key(text, "created_at", time_json(closed->created_at));
	add_number(text, "generation", closed->generation);
	add_key(text, "floor", time_json(closed->floor));
	append(text, ",\"taken_over\":[");
	for (int i = 0; i < closed->taken_over.num; i++)
		append(text, "%s%s", i > 0 ? "," : "", uuid_json(closed->taken_over.uuids[i]));
	append(text, "],\"rows\":[");
	for (int i = 0; i < closed->num_rows; i++)
	{
		append(text, "%s", i > 0 ? "," : "");
		add_row_json(text, &closed->rows[i]);
	}
	append(text, "]");
}

static const char *
uses_text(SimUses uses)
{
	return uses == SIM_USES_NOTHING ? "nothing" : uses == SIM_USES_OWN ? "own" : "another";
}

/*
 * Calls by both
 */

/* A call begins: what the clock shows, and the first id and random number. */
static char *
begin_call(int t, TimestampTz clock)
{
	static char text[TEXT_SIZE];

	here[t].clock = clock;
	here[t].transaction = 0;
	here[t].in_recovery = below(90) == 0;
	here[t].replication_origin = below(90) == 0;
	here[t].other_isolation = below(90) == 0;
	next_token += IDS_OF_CALL - next_token % IDS_OF_CALL;
	last_random = below(65536);
	sprintf(text, "/* %d */ ", t);
	if (here[t].other_isolation)
		append(text, "SET transaction_isolation = '%s'; ", percent(50) ? "repeatable read" : "serializable");
	append(text, "SET twin.in_recovery = %s; SET twin.has_origin = %s; SET twin.clock = '" INT64_FORMAT "'; "
		   "SET twin.uuid = '" UINT64_FORMAT "'; SET twin.random = '%u'; ", boolean_text(here[t].in_recovery),
		   boolean_text(here[t].replication_origin), clock, next_token, last_random);
	return text;
}

/* The same for statements that are no calls. */
static char *
begin_statement(int t, TimestampTz clock)
{
	char	   *text = begin_call(t, clock);

	sprintf(text, "/* %d */ SET twin.clock = '" INT64_FORMAT "'; SET twin.uuid = '" UINT64_FORMAT "'; ", t, clock, next_token);
	return text;
}

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

/* Of the server that has a registry: what only changes when it is started. */
static void
tell_server(int t)
{
	static char text[TEXT_SIZE];
	static char file[TEXT_SIZE];

	strcpy(file, percent(50) ? "" : "# a comment\n");
	for (int i = 0; i < histories[t].num_entries; i++)
		append(file, "%u\t%X/%X\tno recovery target specified\n\n", histories[t].entries[i].timeline,
			   (uint32) (histories[t].entries[i].switched_at >> 32), (uint32) histories[t].entries[i].switched_at);
	if (here[t].history == NULL)
		strcpy(file, "");
	sprintf(text, "/* %d */ SET twin.system_identifier = '" UINT64_FORMAT "'; SET twin.launched_at = '" INT64_FORMAT
			"'; SET twin.timeline = '%d'; SET twin.history = '", t, here[t].system_identifier, here[t].launched_at,
			here[t].history == NULL ? 9 : histories[t].num_entries == 0 ? 1 : histories[t].num_entries + 1);
	append(text, "%s'", file);
	run_sql(t, text);
	strcpy(expected, "");
	compare_texts("a statement failed");
}

static void
compare_results(Function function, SimError error)
{
	if (error != SIM_OK)
		strcpy(expected, errors[error].name);
	compare_texts("the results differ");
	counts[function][error]++;
	num_calls++;
	num_calls_of_sequence++;
}

/* The keys of an answer, sorted: those before "protocol", and those after it. */
static void
expect_answer(const SimAnswer *answer, const char *before, const char *after)
{
	expected[0] = '\0';
	append(expected, "answer=%s clock=" INT64_FORMAT " generation=%d incarnation=" UINT64_FORMAT "%s protocol=1%s",
		   answer->reason == SIM_YES ? "yes" : "no", answer->clock, answer->generation, answer->incarnation, before, after);
	if (answer->reason != SIM_YES)
		append(expected, " reason=%s", reasons[answer->reason]);
}

/*
 * Comparing tables
 */

static int
compare_entries(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* As pg_lsn is printed. */
#if PG_VERSION_NUM >= 190000
#define LSN_FORMAT "%X/%08X"
#else
#define LSN_FORMAT "%X/%X"
#endif

/* As SQL sorts them. */
static void
append_counted(const SimHistory *counted)
{
	char	   *texts[SIM_MAX_HISTORY];

	for (int i = 0; i < counted->num_entries; i++)
	{
		texts[i] = text_buffer();
		sprintf(texts[i], "%u/" LSN_FORMAT, counted->entries[i].timeline,
				(uint32) (counted->entries[i].switched_at >> 32), (uint32) counted->entries[i].switched_at);
	}
	qsort(texts, counted->num_entries, sizeof(char *), compare_entries);
	for (int i = 0; i < counted->num_entries; i++)
		append(expected, "%s%s", i > 0 ? " " : "", texts[i]);
}

static int
compare_uuids(const void *a, const void *b)
{
	uint64		one = *(const uint64 *) a;
	uint64		other = *(const uint64 *) b;

	return one < other ? -1 : one > other;
}

static void
append_uuids(const SimUuids *set)
{
	SimUuids	sorted = *set;

	qsort(sorted.uuids, sorted.num, sizeof(uint64), compare_uuids);
	for (int i = 0; i < sorted.num; i++)
		append(expected, "%s" UINT64_FORMAT, i > 0 ? " " : "", sorted.uuids[i]);
}

static int
compare_tokens(const void *a, const void *b)
{
	return compare_uuids(&(*(SimRow *const *) a)->token, &(*(SimRow *const *) b)->token);
}

static char *
write_row(char *end, const SimRow *row)
{
	char		layout[SNOWFLAKE_DEFINITION_SIZE];

	if (end > expected + TEXT_SIZE - 1000)
		fail("too many rows");
	snowflake_layout_define(row->layout, layout);
	end += sprintf(end, "\nlease|" UINT64_FORMAT "|" UINT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT, row->token, row->start,
				   row->granted_by, row->last_call);
	if (row->program)
		end += sprintf(end, "|program|name%d|host%d", row->host, row->host);
	else
		end += sprintf(end, "|server|" UINT64_FORMAT "|host%d|%d|%u", row->system_identifier, row->host, row->port, row->timeline);
	end += sprintf(end, "|" UINT64_FORMAT "|%d|%s|" UINT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|%s",
				   row->incarnation, row->generation, row->fixed ? "t" : "f", row->node_number,
				   part_of(row, SNOWFLAKE_DATACENTER), part_of(row, SNOWFLAKE_WORKER), part_of(row, SNOWFLAKE_CLOCK), layout);
	end += sprintf(end, "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT,
				   row->greatest_id, row->launched_at, row->starts_at, row->leased_until, row->renewed_at, row->closed_at);
	return end;
}

static void
write_tables(const SimRegistry *r)
{
	static const SimRow *rows[LOG_SIZE];
	const SimRegistryRow *row = &r->row;
	char	   *end;

	if (r->num_leases > LOG_SIZE)
		fail("too many rows");
	expected[0] = '\0';
	if (r->has_row)
	{
		append(expected, "registry|" UINT64_FORMAT "|" INT64_FORMAT "|" UINT64_FORMAT "|%d|", row->incarnation, row->created_at,
			   row->system_identifier, row->generation);
		append_counted(&row->counted);
		append(expected, "|" INT64_FORMAT "|" INT64_FORMAT "|", row->counted_at, row->starts_at);
		append_uuids(&row->taken_over);
		append(expected, "|");
		append_uuids(&row->told);
		append(expected, "|" UINT64_FORMAT "|" INT64_FORMAT "|%s", row->successor, row->closed_at,
			   row->database == r->oid ? "here" : "copied");
	}
	if (r->uses != SIM_USES_NOTHING)
		append(expected, "\ncluster|%s|" UINT64_FORMAT, uses_text(r->uses), r->uses_incarnation);
	for (int i = 0; i < r->num_leases; i++)
		rows[i] = &r->leases[i];
	qsort(rows, r->num_leases, sizeof(SimRow *), compare_tokens);
	end = expected + strlen(expected);
	for (int i = 0; i < r->num_leases; i++)
		end = write_row(end, rows[i]);
	if (expected[0] == '\n')
		memmove(expected, expected + 1, strlen(expected));
}

static void
compare_tables(int t)
{
	if (!registries[t].exists)
		return;
	write_tables(&registries[t]);
	num_comparisons++;
	compare_lines(t, "SELECT twin.tables()");
}

/*
 * Calls of nodes
 */

static TimestampTz
registry_clock(int t)
{
	if (!registries[t].exists)
		return now + registry_offsets[t];
	if (percent(10))
		return sharp_time(&servers[below(num_servers)]);
	return percent(20) ? any_time(t) : now + registry_offsets[t];
}

static void
call_start_server(const Server *server)
{
	int			t = server->table;
	char	   *text = begin_call(t, registry_clock(t));
	char	   *after = text_buffer();
	SimStart	in = {
		.protocol = any_protocol(),
		.clock = clock_of(server),
		.max_ahead = rarely() ? USECS_PER_DAY + below(2) : server->max_ahead,
		.tick = rarely() ? 0 : server->tick
	};
	SimStarted	out;
	SimError	error;

	append(text, "SELECT twin.answer(snowflake.start_server('{");
	add_number(text, "protocol", in.protocol);
	add_key(text, "clock", time_json(in.clock));
	add_number(text, "max_ahead", in.max_ahead);
	add_number(text, "tick", in.tick);
	append(text, "}'))");
	run_sql(t, text);
	error = sim_start_server(&registries[t], &here[t], &in, &out);
	if (error == SIM_OK)
	{
		sprintf(after, " starts_at=" INT64_FORMAT " uses=%s uses_incarnation=" UINT64_FORMAT,
				out.starts_at, uses_text(out.uses), out.uses_incarnation);
		expect_answer(&out.answer, "", after);
	}
	compare_results(START_SERVER, error);
}

/* Mostly the next one. */
static int64
next_call(Server *server)
{
	int			chance = below(100);

	if (chance < 7)
		return server->call;
	if (chance < 11)
		return server->call - below(4);
	if (chance < 13)
		server->call += 5;
	return ++server->call;
}

/* Mostly its lease. */
static SimNamedLease
any_lease(const Server *server)
{
	const SimRow *row = any_row(server->table);
	SimNamedLease lease = server->lease;
	int			chance = below(100);

	if (chance < 10)
		lease.token = 0;
	else if (chance < 25 && row != NULL)
	{
		lease.token = row->token;
		lease.granted_by = row->granted_by;
	}
	else if (chance < 28)
		lease.token = 77;		/* on no record */
	if (percent(4))
		lease.granted_by += below(9) - 4;
	lease.ids_end_at = any_time_or_null(server->table, 98);
	return lease;
}

static SimNodeCall
any_node_call(Server *server)
{
	SimNodeCall call = {
		.protocol = any_protocol(),
		.start = rarely() ? 0 : server->start,
		.call = next_call(server),
		.layout = rarely() ? NULL : percent(5) ? any_layout() : server->layout,
		.lease = any_lease(server)
	};

	return call;
}

static void
choose_acquire(Server *server, bool own, TimestampTz clock, SimAcquire *in)
{
	int			t = server->table;

	*in = (SimAcquire)
	{
		.node = any_node_call(server),
			.clock = clock,
			.max_ahead = server->max_ahead,
			.tick = server->tick,
			.window = server->window,
			.first_number = server->first,
			.last_number = server->last,
			.fixed = percent(3) ? !server->fixed : server->fixed,
			.layout_set = server->layout_set,
			.uses = percent(5) ? any_incarnation(t) : percent(50) ? registries[t].row.incarnation : 0,
			.ended.ids_end_at = any_time_or_null(t, 15),
			.ended.incarnation = percent(60) ? server->incarnation : any_incarnation(t),
			.ended.generation = percent(80) ? server->generation : below(4),
			.starts_at = any_time_or_null(t, 10),
			.program = server->program,
			.host = server->host,
			.port = server->port,
			.timeline = rarely() ? 0 : server->timeline,
			.launched_at = rarely() ? DT_NOBEGIN : server->launched_at,
			.system_identifier = server->system_identifier
	};
	/* mostly all of it, or nothing */
	if (!rarely())
	{
		if (in->ended.ids_end_at == DT_NOBEGIN)
		{
			memset(&in->ended, 0, sizeof(in->ended));
			in->ended.ids_end_at = DT_NOBEGIN;
		}
		else if (in->ended.incarnation == 0)
			in->ended.incarnation = 7;
		if (in->ended.ids_end_at != DT_NOBEGIN && in->ended.generation == 0)
			in->ended.generation = 1;
	}
	if (rarely())
		in->tick = SECONDS(1) + below(2);
	if (rarely())
		in->max_ahead = percent(50) ? -1 : USECS_PER_DAY + below(2);
	if (rarely())
		in->window = percent(50) ? 0 : 2 * USECS_PER_DAY + below(2);
	if (rarely())
		in->first_number = in->last_number + 1;
	if (rarely() && in->node.layout != NULL)
		in->last_number = snowflake_node_max(in->node.layout) - below(2);
	if (rarely())
		in->port = -below(2);
	/* neither its own server nor with a number of its own */
	if (in->program && (own || in->fixed) && percent(80))
		in->program = false;
	/* as two that differ in nothing but the start */
	if (in->program)
		in->port = 0;
	if (!own && percent(2))
	{
		in->system_identifier = here[t].system_identifier + (percent(20) ? 1 : 0);
		in->launched_at = here[t].launched_at + below(2);
	}
}

static void
add_acquire(char *text, const SimAcquire *in, bool own)
{
	add_node_call(text, &in->node);
	add_key(text, "clock", time_json(in->clock));
	add_number(text, "max_ahead", in->max_ahead);
	add_number(text, "tick", in->tick);
	add_number(text, "window", in->window);
	add_number(text, "first_number", (int64) in->first_number);
	add_number(text, "last_number", (int64) in->last_number);
	add_key(text, "fixed", boolean_text(in->fixed));
	add_key(text, "layout_set", boolean_text(in->layout_set));
	add_key(text, "uses", uuid_json(in->uses));
	if (in->ended.ids_end_at != DT_NOBEGIN || in->ended.incarnation != 0 || in->ended.generation != 0)
	{
		append(text, ",\"ended\":{\"other\":0");
		add_key(text, "ids_end_at", time_json(in->ended.ids_end_at));
		add_key(text, "incarnation", uuid_json(in->ended.incarnation));
		if (in->ended.generation != 0)
			add_number(text, "generation", in->ended.generation);
		append(text, "}");
	}
	else if (percent(50))
		append(text, ",\"ended\":null");
	add_key(text, "starts_at", time_json(in->starts_at));
	if (in->program)
		add_program(text, in->host);
	else
		append(text, ",\"kind\":\"server\"");
	/* what a program does not have is left unread */
	if (!in->program || percent(20))
	{
		add_host(text, in->host, in->port);
		add_number(text, "timeline", in->timeline);
	}
	add_key(text, "launched_at", time_json(in->launched_at));
	if (in->program ? percent(20) : !own || percent(50))
		add_number(text, "system_identifier", (int64) in->system_identifier);
}

static void call_acquire(Server *server);

/* Another server asks for the same numbers. */
static void
follow(Server *other, const Server *server, bool own)
{
	if (other == server)
		return;
	other->table = server->table;
	other->own = own;
	other->layout = server->layout;
	other->fixed = server->fixed;
	other->first = server->first;
	other->last = server->last;
	other->clock_offset = server->clock_offset;
	call_acquire(other);
}

static void
call_acquire(Server *server)
{
	int			t = server->table;
	bool		own = percent(2) ? !server->own : server->own;
	TimestampTz clock = clock_of(server);
	TimestampTz now_there = percent(15) ? clock : percent(10) ? clock - SECONDS(below(100)) : registry_clock(t);
	char	   *text = begin_call(t, now_there);
	SimAcquire	in;
	SimGranted	out;
	SimError	error;

	choose_acquire(server, own, clock, &in);
	append(text, "SELECT twin.answer(snowflake.%s('{", own ? "acquire_own_lease" : "acquire_lease");
	add_acquire(text, &in, own);
	append(text, "}'))");
	run_sql(t, text);
	error = (own ? sim_acquire_own_lease : sim_acquire_lease) (&registries[t], &here[t], &in, &out);
	if (error == SIM_OK)
	{
		char	   *before = text_buffer();
		char	   *after = text_buffer();

		sprintf(before, " leased_until=" INT64_FORMAT " node_number=" UINT64_FORMAT, out.leased_until, out.node_number);
		sprintf(after, " starts_at=" INT64_FORMAT " token=" UINT64_FORMAT, out.starts_at, out.token);
		expect_answer(&out.answer, before, after);
	}
	compare_results(own ? ACQUIRE_OWN : ACQUIRE, error);
	if (error == SIM_OK && percent(95))
	{
		server->lease.token = out.token;
		server->lease.granted_by = in.node.call;
		server->incarnation = out.answer.incarnation;
		server->generation = out.answer.generation;
	}
	if (error == SIM_OK && in.fixed && percent(20))
		follow(&servers[below(num_servers)], server, percent(50));
}

static void
call_renew(Server *server)
{
	int			t = server->table;
	char	   *text = begin_call(t, registry_clock(t));
	SimRenew	in = {
		.node = any_node_call(server),
		.clock = clock_of(server),
		.window = rarely() ? (percent(50) ? 0 : 2 * USECS_PER_DAY + below(2)) :
		percent(15) ? Min(2 * server->window, 2 * USECS_PER_DAY) : server->window
	};
	SimRenewed	out;
	SimError	error;

	append(text, "SELECT twin.answer(snowflake.renew_lease('{");
	add_node_call(text, &in.node);
	add_key(text, "clock", time_json(in.clock));
	add_number(text, "window", in.window);
	append(text, "}'))");
	run_sql(t, text);
	error = sim_renew_lease(&registries[t], &here[t], &in, &out);
	if (error == SIM_OK)
	{
		char	   *before = text_buffer();

		sprintf(before, " leased_until=" INT64_FORMAT, out.leased_until);
		expect_answer(&out.answer, out.answer.reason == SIM_YES ? before : "", "");
		refusals[RENEW][out.answer.reason]++;
	}
	compare_results(RENEW, error);
}

static void
call_release(Server *server)
{
	int			t = server->table;
	char	   *text = begin_call(t, registry_clock(t));
	SimNodeCall in = any_node_call(server);
	SimAnswer	out;
	SimError	error;

	append(text, "SELECT twin.answer(snowflake.release_lease('{");
	add_node_call(text, &in);
	append(text, "}'))");
	run_sql(t, text);
	error = sim_release_lease(&registries[t], &here[t], &in, &out);
	if (error == SIM_OK)
	{
		expect_answer(&out, "", "");
		refusals[RELEASE][out.reason]++;
	}
	compare_results(RELEASE, error);
}

static void
call_record_uses(const Server *server)
{
	int			t = server->table;
	const SimRegistry *r = &registries[t];
	char	   *text = begin_call(t, registry_clock(t));
	SimRecord	in = {
		.protocol = any_protocol(),
		.incarnation = percent(50) ? registries[1 - t].row.incarnation : any_incarnation(t),
		.uses = percent(20) ? any_incarnation(t) : r->uses == SIM_USES_OWN ? r->row.incarnation : r->uses_incarnation,
		.host = server->host,
		.port = rarely() ? 65536 : server->port
	};
	SimAnswer	out;
	SimError	error;

	append(text, "SELECT twin.answer(snowflake.record_uses('{");
	add_number(text, "protocol", in.protocol);
	add_key(text, "incarnation", uuid_json(in.incarnation));
	add_key(text, "uses", uuid_json(in.uses));
	add_host(text, in.host, in.port);
	append(text, "}'))");
	run_sql(t, text);
	error = sim_record_uses(&registries[t], &here[t], &in, &out);
	if (error == SIM_OK)
	{
		expect_answer(&out, "", "");
		refusals[RECORD_USES][out.reason]++;
	}
	compare_results(RECORD_USES, error);
}

/* As registry_twin.sql sorts them: rows with equal ends follow each other in any order. */
static int
compare_listed(const void *a, const void *b)
{
	const SimRow *one = *(SimRow *const *) a;
	const SimRow *other = *(SimRow *const *) b;

	if (one->node_number != other->node_number)
		return one->node_number < other->node_number ? -1 : 1;
	if (one->leased_until != other->leased_until)
		return one->leased_until < other->leased_until ? -1 : 1;
	if (one->starts_at != other->starts_at)
		return one->starts_at < other->starts_at ? -1 : 1;
	return one->launched_at < other->launched_at ? -1 : one->launched_at > other->launched_at;
}

static void
call_list(int t)
{
	char	   *text = begin_call(t, registry_clock(t));
	const SimRow *row = any_row(t);
	int64		number = row == NULL || percent(40) ? -1 : (int64) row->node_number + below(3) - 1;
	TimestampTz until = row == NULL || percent(40) ? any_time_or_null(t, 80) : row->leased_until;
	SimPage		out = {0};
	SimError	error;

	here[t].other_isolation = false;
	append(text, "SELECT twin.page(snowflake.list_leases('{\"protocol\":1,\"after\":{");
	if (number >= 0)
		add_number(text, "node_number", number);
	add_key(text, "leased_until", time_json(until));
	append(text, "}}'))");
	run_sql(t, text);
	error = sim_list_leases(&registries[t], number, until, PAGE_ROWS, &out);
	if (error == SIM_OK)
	{
		const SimRow *last = out.has_next ? out.rows[out.num_rows - 1] : NULL;

		sprintf(expected, "1 " UINT64_FORMAT " %s " UINT64_FORMAT " ", out.incarnation, uses_text(out.uses), out.uses_incarnation);
		if (last != NULL)
			append(expected, UINT64_FORMAT " " INT64_FORMAT, last->node_number, last->leased_until);
		else
			append(expected, "end " INT64_FORMAT, DT_NOBEGIN);
		qsort(out.rows, out.num_rows, sizeof(SimRow *), compare_listed);
		for (int i = 0; i < out.num_rows; i++)
			append(expected, ";" UINT64_FORMAT " " INT64_FORMAT " " INT64_FORMAT " " INT64_FORMAT, out.rows[i]->node_number,
				   out.rows[i]->launched_at, out.rows[i]->starts_at, out.rows[i]->leased_until);
	}
	compare_results(LIST, error);
	free(out.rows);
}

/*
 * Calls of the owner
 */

static SimError
call_close(int t, uint64 successor)
{
	char	   *text = begin_call(t, registry_clock(t));
	SimError	error;

	here[t].transaction = ++next_transaction;
	append(text, "SELECT snowflake.close_registry(%s)", uuid_text(successor));
	run_sql(t, text);
	error = sim_close_registry(&registries[t], &here[t], successor);
	strcpy(expected, "");
	compare_results(CLOSE, error);
	return error;
}

static void
keep_closed(int t, SimClosedRegistry *out)
{
	free(last_closed[t].rows);
	last_closed[t] = *out;
}

static SimError
run_closed(int t, char *text)
{
	bool		history = percent(20);
	SimClosedRegistry out;
	SimError	error;

	append(text, "SELECT twin.closed(snowflake.closed_registry(%s))", history ? "true" : percent(50) ? "" : "NULL");
	run_sql(t, text);
	error = sim_closed_registry(&registries[t], &here[t], history, &out);
	if (error == SIM_OK)
	{
		char	   *end;

		sprintf(expected, "closed|%d|" UINT64_FORMAT "|" UINT64_FORMAT "|", out.protocol, out.incarnation, out.successor);
		append_uuids(&out.taken_over);
		append(expected, "|" INT64_FORMAT "|%d|" INT64_FORMAT "|%s", out.created_at, out.generation, out.floor, boolean_text(history));
		end = expected + strlen(expected);
		for (int i = 0; i < out.num_rows; i++)
			end = write_row(end, &out.rows[i]);
		keep_closed(t, &out);
	}
	compare_results(CLOSED, error);
	return error;
}

static SimError
call_closed(int t)
{
	return run_closed(t, begin_call(t, registry_clock(t)));
}

/* In the transaction that closes it, which is rolled back. */
static void
call_closed_at_once(int t)
{
	char	   *text = begin_call(t, now);
	uint64		successor = 7;
	SimRegistry before;

	if (!registries[t].exists || !registries[t].has_row || registries[t].row.successor != 0 || here[t].history == NULL ||
		here[t].in_recovery || here[t].other_isolation || here[t].replication_origin)
		return;
	sim_registry_init(&before, 0);
	sim_registry_copy(&before, &registries[t]);
	here[t].transaction = ++next_transaction;
	if (sim_close_registry(&registries[t], &here[t], successor) != SIM_OK)
		fail("cannot close the registry");
	append(text, "SELECT snowflake.close_registry(%s); ", uuid_text(successor));
	run_closed(t, text);
	sim_registry_copy(&registries[t], &before);
	sim_registry_free(&before);
}

/* Of the result of the other registry, or the same one, mostly as it was. */
static void
call_take_over(int t, bool as_it_was)
{
	TimestampTz clock = registry_clock(t);
	char	   *text = begin_call(t, clock);
	const SimClosedRegistry *from = &last_closed[as_it_was || percent(90) ? 1 - t : t];
	SimClosedRegistry in = *from;
	uint64		incarnation;
	SimError	error;

	in.rows = malloc(Max(in.num_rows, 1) * sizeof(SimRow));
	if (in.rows == NULL)
		abort();
	if (in.num_rows > 0)
		memcpy(in.rows, from->rows, in.num_rows * sizeof(SimRow));
	if (!as_it_was || percent(10))
	{
		in.protocol = any_protocol();
		if (percent(20))
			in.incarnation = any_incarnation(t);
		if (percent(60))
			in.successor = percent(80) ? registries[t].row.incarnation : any_incarnation(t);
		if (percent(20))
			in.created_at = any_time_or_null(t, 95);
		if (percent(20))
			in.generation += below(3) - 1;
		if (percent(30))
			in.floor = any_time_or_null(t, 80);
		if (percent(20))
			in.floor = clock + SECONDS(10) + below(3) - 1;
		if (percent(30) && in.taken_over.num < 8)
			in.taken_over.uuids[in.taken_over.num++] = percent(50) ? registries[t].row.incarnation : (uint64) (7 + below(4));
		for (int i = 0; i < in.num_rows; i++)
		{
			if (percent(20))
				in.rows[i].token = next_token + IDS_OF_CALL / 2 + i;	/* the call makes others */
			if (percent(40))
			{
				in.rows[i].leased_until += below(3) - 1;
				in.rows[i].greatest_id += below(3) - 1;
			}
			if (percent(5))
				in.rows[i].leased_until = Max(any_time(t), in.rows[i].starts_at);
		}
		if (percent(40) && in.num_rows > 0)
			in.rows[0].leased_until = in.rows[0].starts_at - 1;
	}
	for (int i = 0; i < in.taken_over.num; i++)
		if (in.taken_over.uuids[i] == 0)
			in.taken_over.uuids[i] = 7;
	append(text, "SELECT twin.id(snowflake.take_over('{");
	add_closed(text, &in);
	append(text, "}'::jsonb))");
	run_sql(t, text);
	error = sim_take_over(&registries[t], &here[t], &in, &incarnation);
	if (error == SIM_OK)
		sprintf(expected, UINT64_FORMAT, incarnation);
	compare_results(TAKE_OVER, error);
	free(in.rows);
}

static void
call_take_over_lost(int t)
{
	char	   *text = begin_call(t, registry_clock(t));
	const SimUuids *taken_over = &registries[t].row.taken_over;
	uint64		lost = taken_over->num > 0 && percent(60) ? taken_over->uuids[0] : any_incarnation(t);
	uint64		incarnation;
	SimError	error;

	append(text, "SELECT twin.id(snowflake.take_over(%s::uuid))", uuid_text(lost));
	run_sql(t, text);
	error = sim_take_over_lost(&registries[t], &here[t], lost, &incarnation);
	if (error == SIM_OK)
		sprintf(expected, UINT64_FORMAT, incarnation);
	compare_results(TAKE_OVER_LOST, error);
}

static void
call_ids_end_before(int t)
{
	char	   *text = begin_call(t, registry_clock(t));
	TimestampTz at = percent(5) ? DT_NOEND : any_time_or_null(t, 97);
	SimError	error;

	append(text, "SELECT snowflake.ids_end_before(%s)", time_text(at));
	run_sql(t, text);
	error = sim_ids_end_before(&registries[t], &here[t], at);
	strcpy(expected, "");
	compare_results(IDS_END_BEFORE, error);
}

/* All servers of a registry go to the other one. */
static void
move_registry(int t)
{
	if (!registries[t].exists || !registries[1 - t].exists)
		return;
	if (registries[t].row.successor == 0)
		(void) call_close(t, registries[1 - t].row.incarnation);
	if (call_closed(t) != SIM_OK)
		return;
	if (percent(40))
		(void) call_close(t, any_incarnation(t));
	if (percent(20))
		call_take_over_lost(t);
	call_take_over(1 - t, true);
	if (percent(50))
		call_take_over(1 - t, percent(30));
	for (int i = 0; i < num_servers; i++)
		if (servers[i].table == t && percent(70))
			servers[i].table = 1 - t;
}

/*
 * What else happens
 */

/* Of new tables the time when they were made is set, and their incarnation. */
static void
create_extension(int t)
{
	must_run(t, "DROP EXTENSION IF EXISTS snowflake_registry");
	must_run(t, "CREATE EXTENSION snowflake_registry");
	must_run(t, "CALL twin.change_functions()");
	must_run(t, "%sUPDATE snowflake.registry SET incarnation = twin.new_uuid(), created_at = twin.clock(), "
			 "system_identifier = (twin.control_system())", begin_statement(t, registry_clock(t)));
	sim_drop_extension(&registries[t]);
	sim_create_extension(&registries[t], &here[t]);
	dropped[t] = false;
	compare_tables(t);
}

static void
drop_extension(int t)
{
	must_run(t, "/* %d */ DROP EXTENSION snowflake_registry", t);
	sim_drop_extension(&registries[t]);
	dropped[t] = true;
}

/* DROP EXTENSION and CREATE EXTENSION, mostly what they do to the rows. */
static void
create_again(int t)
{
	static int	count;
	char	   *text;

	if (rarely() || dropped[t])
	{
		create_extension(t);
		return;
	}
	text = begin_statement(t, registry_clock(t));
	append(text, "CALL twin.empty_tables(); "
		   "INSERT INTO snowflake.registry (incarnation, database, created_at, system_identifier) "
		   "SELECT twin.new_uuid(), d.oid, twin.clock(), s.system_identifier "
		   "FROM pg_database AS d, twin.control_system() AS s WHERE d.datname = current_database()");
	must_run(t, "%s", text);
	if (count++ % 20 < NUM_TABLES)
		must_run(t, "VACUUM snowflake.worker_node, snowflake.registry, snowflake.cluster");
	sim_drop_extension(&registries[t]);
	sim_create_extension(&registries[t], &here[t]);
}

/* A row as a restore brings it: of another incarnation, or of this one */
static void
restore_row(int t)
{
	const SimRow *from = any_row(percent(50) ? t : 1 - t);
	SimRow		row;
	char	   *text = begin_statement(t, now);

	if (from == NULL)
		return;
	row = *from;
	if (percent(80))
		row.token = ++next_token;
	if (percent(50))
		row.start = servers[below(num_servers)].start;
	if (percent(70))
		row.incarnation = percent(50) ? 7 : registries[percent(50) ? t : 1 - t].row.incarnation;
	if (row.incarnation == 0)
		row.incarnation = 7;	/* the other tables are not there */
	if (percent(30))
		row.generation = 1 + below(3);
	if (percent(50))
		row.node_number = below(8);
	if (percent(30))
		row.layout = any_layout();
	if (percent(30))
		row.last_call = below(20) + 1;
	row.node_number &= snowflake_node_max(row.layout);
	if (percent(50))
		row.starts_at = any_time(t);
	if (percent(50))
		row.leased_until = any_time(t);
	if (percent(5))
		row.leased_until = row.layout->epoch + below(3) * row.layout->tick_us / 2;
	if (row.starts_at > row.leased_until || percent(20))
		row.starts_at = row.leased_until;
	if (percent(20))
		row.greatest_id = any() >> (20 + below(40));
	row.renewed_at = any_time(t);
	row.closed = percent(50);
	row.closed_at = row.closed ? now : DT_NOBEGIN;
	append(text, "CALL twin.insert_rows('[");
	add_row_json(text, &row);
	append(text, "]')");
	must_run(t, "%s", text);
	sim_insert_row(&registries[t], &row);
}

/* All numbers but one or two of a range, and a server that may have one of them. */
static void
restore_many(Server *server)
{
	int			t = server->table;
	int			num = 40 + below(40);
	int			left_out[2] = {below(num), below(num)};
	char	   *text = begin_statement(t, now);
	SimRow		row = {
		.start = 9,.granted_by = 1,.last_call = 1,.system_identifier = 1,.host = 1,.port = 1,.timeline = 1,.incarnation = 7,
		.generation = 1,.layout = &layouts[WIDE_LAYOUT],.greatest_id = -1,.launched_at = now,.starts_at = now,.leased_until = now,
		.renewed_at = now,.closed = true,.closed_at = now
	};

	append(text, "CALL twin.insert_rows('[");
	for (int i = 0; i < num; i++)
		if (i != left_out[0] && i != left_out[1])
		{
			row.token = next_token + i;
			row.node_number = i;
			append(text, "%s", text[strlen(text) - 1] == '[' ? "" : ",");
			add_row_json(text, &row);
			sim_insert_row(&registries[t], &row);
		}
	append(text, "]')");
	must_run(t, "%s", text);
	server->layout = row.layout;
	server->layout_set = true;
	server->fixed = false;
	server->first = 0;
	server->last = num - 1;
}

static void
restore_cluster(int t)
{
	uint64		incarnation = percent(50) ? 0 : registries[1 - t].row.incarnation;

	must_run(t, "/* %d */ INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('%s', %s)", t,
			 incarnation == 0 ? "own" : "another", uuid_text(incarnation));
	sim_insert_cluster(&registries[t], incarnation == 0 ? SIM_USES_OWN : SIM_USES_REGISTRY, incarnation);
}

static void
forget_cluster(int t)
{
	must_run(t, "/* %d */ DELETE FROM snowflake.cluster", t);
	registries[t].uses = SIM_USES_NOTHING;
	registries[t].uses_incarnation = 0;
}

/* CREATE DATABASE with this one as its template */
static void
copy_database(int t)
{
	must_run(t, "/* %d */ UPDATE snowflake.registry SET database = 1", t);
	registries[t].row.database = 1;
}

static void
lose_registry_row(int t)
{
	must_run(t, "/* %d */ DELETE FROM snowflake.registry", t);
	registries[t].has_row = false;
}

/* To a copy and back: it is as good. */
static void
copy_twin(int t)
{
	SimRegistry copy;

	sim_registry_init(&copy, 99);
	sim_registry_copy(&copy, &registries[t]);
	sim_registry_free(&registries[t]);
	if (percent(50))
		sim_registry_copy(&registries[t], &registries[1 - t]);
	sim_registry_copy(&registries[t], &copy);
	sim_registry_free(&copy);
}

/* What a standby or a backup has */
static void
save_tables(int t)
{
	must_run(t, "/* %d */ CALL twin.save_tables()", t);
	sim_registry_copy(&saved[t], &registries[t]);
}

static void
start_again(int t)
{
	here[t].launched_at = now;
	tell_server(t);
}

static void
promote(int t)
{
	SimHistory *history = &histories[t];

	int			n = history->num_entries;

	if (n < 12)
	{
		history->entries[n].timeline = n + 1;
		history->entries[n].switched_at = UINT64CONST(0x100000028) + below(2) * 16;
		history->num_entries = ++n;
	}
	if (percent(5) && n < 12)
	{
		history->entries[n] = history->entries[n - 1];
		history->num_entries++;
	}
	here[t].history = percent(20) ? NULL : history;
	start_again(t);
}

/* A standby that is behind becomes the primary, or a backup is restored. */
static void
go_back(int t)
{
	if (!saved[t].exists)
		return;
	must_run(t, "/* %d */ CALL twin.go_back()", t);
	sim_registry_copy(&registries[t], &saved[t]);
	if (percent(90))
		promote(t);
}

static void
upgrade(int t)
{
	histories[t].num_entries = 0;
	here[t].history = &histories[t];
	here[t].system_identifier += 1 + below(2);
	start_again(t);
}

static void
find_history(int t)
{
	here[t].history = &histories[t];
	tell_server(t);
}

static void
choose_numbers(Server *server)
{
	uint64		max = snowflake_node_max(server->layout);

	max -= max > 0;				/* the greatest one is reserved */
	server->fixed = percent(45);
	if (percent(80))
		max = Min(max, 7);
	if (server->fixed)
	{
		server->first = any() % (percent(50) ? Min(max + 1, 3) : max + 1);
		server->last = percent(30) ? server->first : Min(server->first | 3, max);
	}
	else
	{
		server->first = percent(70) ? 0 : any() % (max + 1);
		server->last = percent(50) ? max : server->first + any() % (max - server->first + 1);
		if (percent(30))
			server->last = Min(server->last, server->first + 3);	/* few of one parity */
	}
}

static void
launch(Server *server)
{
	uint64		max;

	server->start = ++next_start;
	server->call = 0;
	server->lease.token = 0;
	server->launched_at = now;
	if (percent(30))
		server->layout = any_layout();
	if (percent(30))
		server->layout_set = percent(80);
	if (percent(30))
		choose_numbers(server);
	max = snowflake_node_max(server->layout);
	server->last = Min(server->last, max - (max > 0));
	server->first = Min(server->first, server->last);
}

static void
new_server(Server *server)
{
	static const int64 offsets[] = {0, 0, 0, 1, -1, SECONDS(5), SECONDS(-5), MINUTES(2), MINUTES(-2)};
	static const int64 ticks[] = {1, 1000, 10000, SECONDS(1)};
	static const int64 aheads[] = {0, 1000, SECONDS(1), SECONDS(60), USECS_PER_DAY};
	static const int64 windows[] = {1, SECONDS(2), SECONDS(10), MINUTES(2), MINUTES(2), 2 * USECS_PER_DAY};

	memset(server, 0, sizeof(*server));
	server->table = percent(75) ? 0 : 1;
	server->own = percent(40);
	server->system_identifier = 7000 + below(3);
	server->program = percent(25);
	server->host = below(3);
	server->port = 5432 + below(2);
	server->timeline = 1 + below(3);
	server->clock_offset = offsets[below(lengthof(offsets))];
	server->layout = any_layout();
	server->layout_set = percent(80);
	server->tick = ticks[below(lengthof(ticks))];
	server->max_ahead = percent(70) ? SECONDS(1) : aheads[below(lengthof(aheads))];
	server->window = windows[below(lengthof(windows))];
	choose_numbers(server);
	launch(server);
}

static void
begin_sequence(void)
{
	static const int64 offsets[] = {0, 0, 0, 1, -1, SECONDS(5), SECONDS(-5), MINUTES(10), MINUTES(-10)};
	static const SimClosedRegistry none = {.protocol = SIM_PROTOCOL,.incarnation = 8,.successor = 9};

	random_state = ((uint64) seed << 32 | (uint32) sequence) * 2 + 1;
	for (int i = 0; i < 20; i++)
		any();
	forget_statements();
	num_calls_of_sequence = 0;
	next_token = IDS_OF_CALL;
	next_start = 100;
	now = SECONDS(762523200) + below(1000) * SECONDS(1);	/* 2024-02-29 12:00 */
	choose_layouts();
	for (int t = 0; t < NUM_TABLES; t++)
	{
		SimClosedRegistry closed = none;

		registry_offsets[t] = offsets[below(lengthof(offsets))];
		sim_drop_extension(&registries[t]); /* nothing depends on what was */
		sim_drop_extension(&saved[t]);
		here[t].system_identifier = 7000 + t;
		histories[t].num_entries = below(3);
		for (int i = 0; i < histories[t].num_entries; i++)
			histories[t].entries[i] = (SimHistoryEntry)
		{
			i + 1, UINT64CONST(0x28) + i
		};
		here[t].history = &histories[t];
		start_again(t);
		create_again(t);
		closed.created_at = closed.floor = now;
		closed.generation = 1;
		keep_closed(t, &closed);
	}
	num_servers = 1 + below(MAX_SERVERS);
	for (int i = 0; i < num_servers; i++)
		new_server(&servers[i]);
}

static void
let_time_pass(void)
{
	static const int64 steps[] = {0, 0, 1, 1000, 1000, 250000, SECONDS(1), SECONDS(10), MINUTES(1), MINUTES(10)};

	now += steps[below(lengthof(steps))];
	if (percent(1))
		now += percent(50) ? MINUTES(24 * 60) : -MINUTES(24 * 60);
}

static void
take_call(Server *server)
{
	int			t = server->table;
	int			chance = below(1000);

	if (chance < 480)
		call_acquire(server);
	else if (chance < 670)
		call_renew(server);
	else if (chance < 760)
		call_release(server);
	else if (chance < 820)
		call_start_server(server);
	else if (chance < 850)
		call_list(t);
	else if (chance < 880)
		call_record_uses(server);
	else if (chance < 890)
		call_close(t, registries[t].row.successor != 0 && percent(50) ? registries[t].row.successor :
				   any_incarnation(percent(70) ? 1 - t : t));
	else if (chance < 903)
		call_closed(t);
	else if (chance < 908)
		call_closed_at_once(t);
	else if (chance < 930)
		move_registry(t);
	else if (chance < 965)
		call_take_over(t, percent(40));
	else if (chance < 980)
		call_take_over_lost(t);
	else
		call_ids_end_before(t);
}

/* Of a thousand */
#define CHANCE_CALLS		850
#define CHANCE_COPY_TWIN	988

static void
take_step(void)
{
	Server	   *server = &servers[below(num_servers)];
	int			chance = below(1000);
	int			t = server->table;

	let_time_pass();
	if (registries[t].exists && percent(2))
		restore_row(t);
	if (!registries[t].has_row && percent(30))
		create_again(t);
	if (registries[t].row.successor != 0 && percent(7))
		create_again(t);
	if (registries[t].row.successor != 0 && percent(5))
		copy_database(t);
	if (here[t].history == NULL && percent(15))
	{
		call_start_server(server);
		call_acquire(server);
		find_history(t);
	}
	if (registries[t].uses == SIM_USES_REGISTRY && percent(10))
		forget_cluster(t);
	if (!registries[t].exists)
		chance = percent(10) ? CHANCE_COPY_TWIN : below(CHANCE_CALLS);
	if (chance < CHANCE_CALLS)
		take_call(server);
	else if (chance < 880)
		launch(server);
	else if (chance < 895)
		promote(t);
	else if (chance < 905)
		save_tables(t);
	else if (chance < 915)
		go_back(t);
	else if (chance < 920)
		upgrade(t);
	else if (chance < 932)
		new_server(server);
	else if (chance < 950)
		restore_row(t);
	else if (chance < 953)
		restore_many(server);
	else if (chance < 960)
		restore_cluster(t);
	else if (chance < 966)
		copy_database(t);
	else if (chance < 969)
		lose_registry_row(t);
	else if (chance < 973)
		create_again(t);
	else if (chance < 975)
	{
		drop_extension(t);
		call_acquire(server);
	}
	else if (chance < CHANCE_COPY_TWIN + 2)
		copy_twin(t);
	else if (chance < 995)
		server->table = 1 - server->table;
	else
		server->own = !server->own;
}

static void
run_sequence(int calls_between)
{
	int64		compared = num_calls;
	int64		end;

	num_sequences++;
	begin_sequence();
	end = num_calls + 10 + below(percent(50) ? 40 : MAX_CALLS - 10);
	while (num_calls < end)
	{
		take_step();
		if (num_calls - compared < calls_between && num_calls < end)
			continue;
		for (int t = 0; t < NUM_TABLES; t++)
			compare_tables(t);
		compared = num_calls;
	}
}

static uint64
draw(void *state)
{
	return any();
}

/*
 * Of few unused numbers among many used ones, and of many, each is chosen, and
 * no other one: as often as the others, nearly.
 */
static void
check_spread(uint64 last, int num_used)
{
	SimRegistry one;
	SimRegistry copy;
	SimHistory	history = {0};
	SimHere		server = {.random = draw,.new_uuid = draw,.history = &history};
	SimAcquire	in = {
		.node = {.protocol = SIM_PROTOCOL,.start = 1,.layout = &layouts[WIDE_LAYOUT]},
		.tick = 1,.window = 1,.last_number = last,.ended.ids_end_at = DT_NOBEGIN,.starts_at = DT_NOBEGIN,.timeline = 1,
		.launched_at = 1
	};
	SimGranted	out;
	int			times[1000] = {0};
	int			num_unused = (int) last / 2 + 1 - num_used;

	sim_registry_init(&one, 1);
	sim_registry_init(&copy, 1);
	sim_create_extension(&one, &server);
	for (in.node.call = 1; in.node.call <= num_used; in.node.call++)
		if (sim_acquire_lease(&one, &server, &in, &out) != SIM_OK)
			fail("no lease");
	for (int i = 0; i < one.num_leases; i++)
		times[one.leases[i].node_number] = -1;
	for (int i = 0; i < num_unused * 1000; i++)
	{
		sim_registry_copy(&copy, &one);
		if (sim_acquire_lease(&copy, &server, &in, &out) != SIM_OK)
			fail("no lease");
		times[out.node_number] += times[out.node_number] < 0 ? -100000 : 1;
	}
	for (uint64 number = 0; number <= last; number += 2)
		if (times[number] != -1 && (times[number] < 800 || times[number] > 1200))
			fail("the choice at random prefers some numbers");
	sim_registry_free(&one);
	sim_registry_free(&copy);
}

static void
begin_tables(int t)
{
	sim_registry_init(&registries[t], 1000 + t);
	sim_registry_init(&saved[t], 1000 + t);
	here[t].random = compute_random;
	here[t].new_uuid = count_id;
	here[t].history = &histories[t];
	start_again(t);
	create_extension(t);
}

static void
report(void)
{
	for (int function = 0; function < NUM_FUNCTIONS; function++)
	{
		for (int error = 0; error < NUM_ERRORS; error++)
			if (counts[function][error] > 0)
				printf("%s: %s: " INT64_FORMAT "\n", function_names[function], errors[error].name, counts[function][error]);
		for (int reason = 1; reason < (int) lengthof(reasons); reason++)
			if (refusals[function][reason] > 0)
				printf("%s: no, %s: " INT64_FORMAT "\n", function_names[function], reasons[reason], refusals[function][reason]);
	}
	printf("seed %d: " INT64_FORMAT " calls in %d sequences, the tables compared " INT64_FORMAT " times: %s\n",
		   seed, num_calls, num_sequences, num_comparisons, alone ? "alone" : "equal");
	if (alone)
		printf("hash %016llx\n", (unsigned long long) hash);
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
	random_state = (uint64) seed * 2 + 1;
	check_spread(15, 0);
	check_spread(15, 5);
	check_spread(999, 490);
	for (int t = 0; t < NUM_TABLES; t++)
	{
		connect_to(t, argv[1 + t]);
		begin_tables(t);
	}
	if (argc > 5)
	{
		sequence = atoi(argv[5]);
		run_sequence(1);
	}
	else
		for (sequence = 0; num_calls < calls; sequence++)
		{
			for (int t = 0; t < NUM_TABLES && sequence % SEQUENCES_OF_SESSION == 0; t++)
				connect_to(t, argv[1 + t]);
			run_sequence(CALLS_BETWEEN);
		}
	report();
	return 0;
}
