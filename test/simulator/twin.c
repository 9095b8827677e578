/*
 * twin.c
 *	  Random registry calls on two databases and on the twin of lease.sql in
 *	  tables.c: results, errors and tables have to be equal.
 *
 *	  twin CONNINFO CONNINFO SEED CALLS [SEQUENCE]
 *
 * Both databases have the extension and what is in twin.sql.  The calls come in
 * sequences, each of which begins with new tables and depends on SEED and its
 * number alone.  The tables are compared after every few calls.  SEQUENCE: only
 * that one, and they are compared after every call.
 *
 * SQL goes first.  Of the numbers that were never leased it takes one at
 * random, of a random() with a seed; the twin takes the same, if it may
 * (SimHere.unused).  Tokens and
 * incarnations are counted, in both.
 *
 * The last lines say how often each function was called with which result.
 * Exit status 1: something differs; the last calls of the sequence are shown.
 */
#include "postgres.h"

#include "compare.h"
#include "tables.h"

#define MAX_CALLS			150 /* of a sequence */
#define CALLS_BETWEEN		8	/* comparisons of the tables */
#define SEQUENCES_OF_SESSION	50
#define IDS_OF_CALL			4096

#define MAX_SERVERS			5

typedef enum Function
{
	START_SERVER, ACQUIRE, RENEW, RELEASE, RECORD_USES, LIST_ENDS, HAND_OVER,
	NUM_FUNCTIONS
} Function;

static const char *const function_names[] = {
	"start_server", "acquire_lease", "renew_lease", "release_lease",
	"record_uses", "list_ends", "hand_over"
};

const ErrorKind errors[] = {
	[SIM_OK] = {"ok"},
	[SIM_NO_TABLE] = {"no table", "3F000", "schema \"snowflake\" does not exist"},
	[SIM_NO_REGISTRY_ROW] = {"no registry row", "55000", "the table snowflake.registry has no row"},
	[SIM_PARAMETER] = {"parameter", "22023", "of a lease function is out of range"},
	[SIM_CALL_LATE] = {"call late", "55000", "of this server arrived too late"},
	[SIM_LAYOUT_NOT_SET] = {"layout not set", "55000", "\" to postgresql.conf and restart the server."},
	[SIM_LAYOUT_IN_USE] = {"layout in use", "55000", ", has a lease until "},
	[SIM_LAYOUT_NOT_GREATER] = {"layout not greater", "55000", "Its ids would not be greater than all of them."},
	[SIM_NO_NUMBER_FREE] = {"no number free", "53400", "no node number is free"},
	[SIM_NUMBER_HELD] = {"number held", "55000", "is leased to the server on host"},
	[SIM_TOO_FEW_NUMBERS] = {"too few numbers", "55000", "the layout has too few node numbers"},
	[SIM_BEHIND_CREATION] = {"behind creation", "55000", "the server's clock is behind the creation of the extension"},
	[SIM_BEHIND_START] = {"behind start", "55000", "the server's clock is behind the time that leases start at"},
	[SIM_BEHIND_IDS] = {"behind ids", "55000", "the server's clock is behind ids that the registry does not know of"},
	[SIM_USES_ANOTHER] = {"uses another", "55000", "the ids of this cluster were issued with another cluster's registry"},
	[SIM_REGISTRY_IS_SELF] = {"registry is self", "55000", "the registry is the server itself"},
	[SIM_OTHER_INCARNATION] = {"other incarnation", "55000", ", the recorded one "},
	[SIM_NO_ROOT] = {"no root", "55000", "the registry's own numbers come from another registry"},
	[SIM_HAS_NODES] = {"has nodes", "55000", "this cluster is the registry of other servers"},
	[SIM_RENEW_LAYOUT] = {"renewal layout", "55000", "snowflake.layout is not the one that ids are issued under now"},
	[SIM_RECORDED_OTHER] = {"recorded other", "55000", "; the cluster uses "},
	[SIM_REGISTRY_BEHIND] = {"registry behind", "55000", "the former registry issues no ids before"}
};

#define NUM_ERRORS	((int) lengthof(errors))

const int	num_errors = NUM_ERRORS;
const char *const test_file = "test/t/042_twin.pl";

/* A server that asks. */
typedef struct Server
{
	int			table;			/* which registry it uses */
	bool		own;
	uint64		start;
	int64		call;
	uint64		token;			/* its lease, or 0 */
	uint64		incarnation;	/* of its registry, or 0 */
	uint64		system_identifier;
	int			host;
	int			port;
	uint32		timeline;
	SimHistory	history;
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

static SimTables tables[NUM_TABLES];
static bool dropped[NUM_TABLES];	/* in SQL */
static SimHere here[NUM_TABLES];
static int64 registry_offsets[NUM_TABLES];
static SimEnds listed[NUM_TABLES];
static Server servers[MAX_SERVERS];
static int	num_servers;
static TimestampTz now;

static uint64 next_token;
static uint64 next_start;

static int	num_calls_of_sequence;
static int	num_sequences;
static int64 num_comparisons;
static int64 counts[NUM_FUNCTIONS][NUM_ERRORS];

/*
 * Random choices
 */

static const SimRow *
any_row(int t)
{
	return tables[t].num_rows == 0 ? NULL : &tables[t].rows[below(tables[t].num_rows)];
}

/* A time that a comparison may turn on. */
static TimestampTz
time_of_tables(int t)
{
	const SimRow *row = any_row(t);

	switch (below(6))
	{
		case 0:
			return tables[t].created_at;
		case 1:
			return tables[t].starts_at;
		case 2:
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
		at = snowflake_tick_begin(layout, layout->max_tick);
	if (at > now + 20 * 365 * USECS_PER_DAY)
		at = now;

	if (TIMESTAMP_IS_NOBEGIN(at))
		at = now;
	return at + steps[below(lengthof(steps))] + (percent(30) ? steps[below(lengthof(steps))] : 0);
}

/* Often none. */
static TimestampTz
any_time_or_null(int t, int chance)
{
	return !percent(chance) ? DT_NOBEGIN : percent(2) ? DT_NOEND : any_time(t);
}

/* A clock that a check of the server's call turns on. */
static TimestampTz
sharp_time(const Server *server)
{
	const SimTables *t = &tables[server->table];
	const SimRow *row = any_row(server->table);
	int64		ahead = percent(50) ? server->max_ahead : Min(server->max_ahead, SECONDS(10));
	TimestampTz at;

	if (percent(30))
		for (int i = 0; i < t->num_rows; i++)
			if (t->rows[i].leased_until > row->leased_until)
				row = &t->rows[i];
	for (int i = 0; i < 10 && row != NULL; i++)
	{
		if (percent(30) || ((!row->closed || server->fixed) &&
							row->node_number >= server->first && row->node_number <= server->last))
			break;
		row = any_row(server->table);
	}
	switch (below(row != NULL ? 8 : 2))
	{
		case 0:
			at = t->created_at - SECONDS(10);
			break;
		case 1:
			at = TIMESTAMP_IS_NOBEGIN(t->starts_at) ? now : t->starts_at - SECONDS(10) - server->max_ahead;
			break;
		case 2:
			at = row->leased_until - ahead;
			break;
		case 3:
			at = row->leased_until - row->leased_until % 1000 - ahead;
			break;
		case 4:
			at = row->leased_until - row->leased_until % SECONDS(1) - ahead;
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
	return rarely() ? DT_NOEND : percent(20) ? any_time(server->table) : now + server->clock_offset;
}

/*
 * Texts of parameters; some are valid at the same time
 */

static const char *
time_text(TimestampTz at)
{
	char	   *text = text_buffer();

	if (TIMESTAMP_IS_NOBEGIN(at))
		return "NULL";
	if (TIMESTAMP_IS_NOEND(at))
		return "'infinity'";
	text[0] = '\'';
	snowflake_epoch_write(at, text + 1, 250);
	return strcat(text, "'");
}

static const char *
span_text(int64 span)
{
	char	   *text = text_buffer();

	snprintf(text, 256, "'" INT64_FORMAT " us'", span);
	return text;
}

static const char *
history_text(const SimHistory *entries)
{
	static char text[TEXT_SIZE];

	if (entries == NULL)
		return "NULL";
	strcpy(text, "'{");
	for (int i = 0; i < entries->num_entries; i++)
		append(text, "%s%u/%X/%X", i > 0 ? "," : "", entries->entries[i].timeline,
			   (uint32) (entries->entries[i].switched_at >> 32), (uint32) entries->entries[i].switched_at);
	return strcat(text, "}'");
}

static const char *
uses_text(SimUses uses)
{
	return uses == SIM_USES_NOTHING ? "nothing" : uses == SIM_USES_OWN ? "own" : "another";
}

/*
 * SQL
 */

/* A call by both begins: what the clock shows, and the first id. */
static char *
begin_call(int t, TimestampTz clock)
{
	static char text[TEXT_SIZE];

	here[t].clock = clock;
	next_token += IDS_OF_CALL - next_token % IDS_OF_CALL;
	sprintf(text, "/* %d */ SET twin.clock = '" INT64_FORMAT "'; SET twin.uuid = '" UINT64_FORMAT "'; ",
			t, clock, next_token);
	return text;
}

static uint64
count_id(void *state)
{
	return ++next_token;
}

static void
compare_results(Function function, SimError error)
{
	if (error != SIM_OK)
		strcpy(expected, errors[error].name);
	if (strcmp(actual, expected) != 0)
		fail("the results differ");
	counts[function][error]++;
	num_calls++;
	num_calls_of_sequence++;
}

/*
 * Comparing tables
 */

static int
compare_entries(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* As SQL sorts them. */
static void
append_counted(const SimHistory *counted)
{
	char	   *texts[SIM_MAX_HISTORY];

	for (int i = 0; i < counted->num_entries; i++)
	{
		texts[i] = text_buffer();
		sprintf(texts[i], "%u/%X/%X", counted->entries[i].timeline,
				(uint32) (counted->entries[i].switched_at >> 32), (uint32) counted->entries[i].switched_at);
	}
	qsort(texts, counted->num_entries, sizeof(char *), compare_entries);
	for (int i = 0; i < counted->num_entries; i++)
		append(expected, "%s%s", i > 0 ? " " : "", texts[i]);
}

static int
compare_tokens(const void *a, const void *b)
{
	uint64		token_a = (*(SimRow *const *) a)->token;
	uint64		token_b = (*(SimRow *const *) b)->token;

	return token_a < token_b ? -1 : token_a > token_b;
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

static char *
write_row(char *end, const SimRow *row)
{
	char		layout[SNOWFLAKE_DEFINITION_SIZE];

	snowflake_layout_define(row->layout, layout);
	end += sprintf(end, "\nlease|" UINT64_FORMAT "|" UINT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" UINT64_FORMAT
				   "|host%d|%d|%u|" UINT64_FORMAT "|" UINT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|%s",
				   row->token, row->start, row->granted_by, row->last_call, row->system_identifier, row->host, row->port,
				   row->timeline, row->incarnation, row->node_number, part_of(row, SNOWFLAKE_DATACENTER),
				   part_of(row, SNOWFLAKE_WORKER), part_of(row, SNOWFLAKE_CLOCK), layout);
	end += sprintf(end, "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT,
				   row->launched_at, row->starts_at, row->leased_until, row->renewed_at, row->closed_at);
	return end;
}

static void
write_tables(const SimTables *t)
{
	static const SimRow *rows[LOG_SIZE];
	char	   *end;

	if (t->num_rows > LOG_SIZE || t->num_rows * 400 > TEXT_SIZE - 4096)
		fail("too many rows");
	expected[0] = '\0';
	if (t->has_registry)
	{
		append(expected, "registry|" UINT64_FORMAT "|" INT64_FORMAT "|%d|", t->incarnation, t->created_at, t->generation);
		append_counted(&t->counted);
		append(expected, "|" UINT64_FORMAT "|" INT64_FORMAT "|%s", t->system_identifier, t->starts_at,
			   t->database == t->oid ? "here" : "copied");
	}
	if (t->uses != SIM_USES_NOTHING)
		append(expected, "\ncluster|%s|" UINT64_FORMAT, uses_text(t->uses), t->uses_incarnation);
	for (int i = 0; i < t->num_rows; i++)
		rows[i] = &t->rows[i];
	qsort(rows, t->num_rows, sizeof(SimRow *), compare_tokens);
	end = expected + strlen(expected);
	for (int i = 0; i < t->num_rows; i++)
		end = write_row(end, rows[i]);
	if (expected[0] == '\n')
		memmove(expected, expected + 1, strlen(expected));
}

static void
compare_tables(int t)
{
	if (!tables[t].exists)
		return;
	write_tables(&tables[t]);
	num_comparisons++;
	compare_lines(t, "SELECT twin.tables()");
}

/*
 * Calls
 */

static TimestampTz
registry_clock(int t)
{
	if (!tables[t].exists)
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
	const SimHistory *timelines = percent(2) ? NULL : &server->history;
	TimestampTz clock = clock_of(server);
	int64		max_ahead = percent(1) ? USECS_PER_DAY + 1 : server->max_ahead;
	int64		tick = percent(1) ? 0 : server->tick;
	uint64		system_identifier = server->system_identifier;
	SimStarted	out;
	SimError	error;

	append(text, "SELECT coalesce(uses, 'nothing'), twin.id(incarnation), generation, twin.us(starts_at) "
		   "FROM snowflake.start_server('1.0', %s, %s, %s, %s, " UINT64_FORMAT ")",
		   history_text(timelines), time_text(clock), span_text(max_ahead), span_text(tick), system_identifier);
	run_sql(t, text);
	error = sim_start_server(&tables[t], &here[t], timelines, clock, max_ahead, tick, system_identifier,
							 &out);
	if (error == SIM_OK)
		sprintf(expected, "%s|" UINT64_FORMAT "|%d|" INT64_FORMAT, uses_text(out.uses), out.incarnation,
				out.generation, out.starts_at);
	compare_results(START_SERVER, error);
}

/* Mostly the next one. */
static int64
next_call(Server *server)
{
	int			chance = below(100);

	if (chance < 3)
		return server->call;
	if (chance < 5)
		return server->call - below(4);
	if (chance < 7)
		server->call += 5;
	return ++server->call;
}

/* Mostly its lease. */
static uint64
any_token(const Server *server)
{
	const SimRow *row = any_row(server->table);
	int			chance = below(100);

	if (chance < 10)
		return 0;
	if (chance < 30 && row != NULL)
		return row->token;
	return server->token;
}

static void
choose_acquire(Server *server, SimAcquire *in)
{
	int			t = server->table;

	*in = (SimAcquire)
	{
		.start = rarely() ? 0 : server->start,
			.call = next_call(server),
			.own = percent(2) ? !server->own : server->own,
			.incarnation = percent(2) ? tables[1 - t].incarnation : percent(50) ? server->incarnation : 0,
			.first_number = server->first,
			.last_number = server->last,
			.fixed = percent(3) ? !server->fixed : server->fixed,
			.layout = rarely() ? NULL : server->layout,
			.layout_set = server->layout_set,
			.tick = server->tick,
			.node_clock = clock_of(server),
			.max_ahead = server->max_ahead,
			.lease_window = server->window,
			.host = server->host,
			.port = server->port,
			.system_identifier = server->system_identifier,
			.timeline = server->timeline,
			.timelines = rarely() ? NULL : &server->history,
			.launched_at = rarely() ? DT_NOEND : server->launched_at,
			.known_until = any_time_or_null(t, 15),
			.known_incarnation = percent(60) ? server->incarnation : percent(60) ? tables[percent(70) ? t : 1 - t].incarnation : 0,
			.node_floor = any_time_or_null(t, 10),
			.previous_token = any_token(server),
			.previous_end = any_time_or_null(t, 60)
	};
	if (rarely())
		in->tick = SECONDS(1) + 1;
	if (rarely())
		in->max_ahead = -1;
	if (rarely())
		in->lease_window = 2 * USECS_PER_DAY + below(2);
	if (rarely())
		in->first_number = in->last_number + 1;
	if (rarely())
		in->last_number += snowflake_node_max(server->layout) + below(2);
	if (!in->own && percent(2))
	{
		in->system_identifier = here[t].system_identifier + (percent(20) ? 1 : 0);
		in->launched_at = here[t].launched_at + below(2);
	}
}

/*
 * The twin's own choice at random: never leased, if SQL's was, and of the same
 * kind.
 */
static void
check_choice(const SimTables *before, int t, const SimAcquire *in, const SimGranted *granted)
{
	SimTables	copy;
	SimHere		other = here[t];
	SimGranted	out;
	bool		used = false;
	bool		used_too = false;

	sim_tables_init(&copy, 0);
	sim_tables_copy(&copy, before);
	other.unused = NULL;
	if (sim_acquire_lease(&copy, &other, in, &out) != SIM_OK)
		fail("the choice at random fails");
	for (int i = 0; i < before->num_rows; i++)
	{
		used |= before->rows[i].node_number == granted->node_number;
		used_too |= before->rows[i].node_number == out.node_number;
	}
	sprintf(actual, UINT64_FORMAT, granted->node_number);
	sprintf(expected, UINT64_FORMAT, out.node_number);
	if (used != used_too || (used && out.node_number != granted->node_number) ||
		out.node_number < in->first_number || out.node_number > in->last_number ||
		(in->own && !in->fixed && (out.node_number ^ granted->node_number) & 1))
		fail("the choice at random is not allowed");
	sim_tables_free(&copy);
}

static void
call_acquire(Server *server)
{
	int			t = server->table;
	char	   *text = begin_call(t, registry_clock(t));
	SimAcquire	in;
	SimGranted	out;
	SimError	error;
	SimTables	before;
	uint64		number;
	uint64		ids = next_token;
	bool		check = percent(10);

	choose_acquire(server, &in);
	append(text, "SELECT twin.id(token), twin.id(registry_incarnation), node_number, "
		   "twin.us(starts_at), twin.us(leased_until), twin.us(registry_clock) "
		   "FROM snowflake.%s('1.0', %s, " INT64_FORMAT ", %s, %s, " UINT64_FORMAT ", " UINT64_FORMAT ", %s, %s, %s, "
		   "%s, %s, %s, %s, 'host%d', %d, " UINT64_FORMAT ", %u, %s, %s, %s, %s, %s, %s, %s)",
		   in.own ? "grant_lease" : "acquire_lease", uuid_text(in.start), in.call, boolean_text(in.own),
		   uuid_text(in.incarnation), in.first_number, in.last_number, boolean_text(in.fixed), layout_text(in.layout), boolean_text(in.layout_set), span_text(in.tick),
		   time_text(in.node_clock), span_text(in.max_ahead), span_text(in.lease_window), in.host, in.port,
		   in.system_identifier, in.timeline, in.own ? history_text(in.timelines) : "NULL", time_text(in.launched_at),
		   time_text(in.known_until), uuid_text(in.known_incarnation), time_text(in.node_floor),
		   uuid_text(in.previous_token), time_text(in.previous_end));
	run_sql(t, text);
	here[t].unused = sscanf(actual, "%*u|%*u|" UINT64_FORMAT "|", &number) == 1 ? &number : NULL;
	sim_tables_init(&before, 0);
	if (check)
		sim_tables_copy(&before, &tables[t]);
	error = sim_acquire_lease(&tables[t], &here[t], &in, &out);
	if (error == SIM_OK)
		sprintf(expected, UINT64_FORMAT "|" UINT64_FORMAT "|" UINT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT "|" INT64_FORMAT,
				out.token, out.registry_incarnation, out.node_number, out.starts_at, out.leased_until, out.registry_clock);
	compare_results(ACQUIRE, error);
	if (error == SIM_OK)
	{
		server->token = out.token;
		server->incarnation = out.registry_incarnation;
		if (check)
		{
			next_token = ids;
			check_choice(&before, t, &in, &out);
		}
	}
	here[t].unused = NULL;
	sim_tables_free(&before);
}

static void
call_renew(Server *server)
{
	int			t = server->table;
	char	   *text = begin_call(t, registry_clock(t));
	SimRenew	in = {
		.start = rarely() ? 0 : server->start,
		.call = next_call(server),
		.token = any_token(server),
		.layout = rarely() ? NULL : server->layout,
		.node_clock = clock_of(server)
	};
	const SimRow *row = any_row(t);
	TimestampTz until;
	SimError	error;

	if (percent(50))
		in.lease_until = in.node_clock == DT_NOEND ? now : in.node_clock + server->window;
	else if (percent(80) || row == NULL)
		in.lease_until = any_time_or_null(t, 97);
	else
		in.lease_until = (percent(50) || in.node_clock == DT_NOEND || row->starts_at == DT_NOBEGIN ?
						  any_time(t) : Max(in.node_clock, row->starts_at)) + 2 * USECS_PER_DAY + below(2);
	append(text, "SELECT twin.us(snowflake.renew_lease('1.0', %s, " INT64_FORMAT ", %s, %s, %s, %s))",
		   uuid_text(in.start), in.call, uuid_text(in.token), time_text(in.lease_until), layout_text(in.layout),
		   time_text(in.node_clock));
	run_sql(t, text);
	error = sim_renew_lease(&tables[t], &here[t], &in, &until);
	if (error == SIM_OK)
		sprintf(expected, INT64_FORMAT, until);
	compare_results(RENEW, error);
}

static void
call_release(Server *server)
{
	int			t = server->table;
	char	   *text = begin_call(t, registry_clock(t));
	uint64		start = rarely() ? 0 : server->start;
	int64		call = next_call(server);
	uint64		token = any_token(server);
	TimestampTz end = any_time_or_null(t, 98);
	bool		was_open;
	SimError	error;

	append(text, "SELECT snowflake.release_lease('1.0', %s, " INT64_FORMAT ", %s, %s)::text",
		   uuid_text(start), call, uuid_text(token), time_text(end));
	run_sql(t, text);
	error = sim_release_lease(&tables[t], &here[t], start, call, token, end, &was_open);
	if (error == SIM_OK)
		strcpy(expected, boolean_text(was_open));
	compare_results(RELEASE, error);
}

static void
call_record_uses(int t)
{
	char	   *text = begin_call(t, registry_clock(t));
	uint64		incarnation = percent(50) ? 0 : percent(50) ? tables[1 - t].incarnation : tables[t].uses_incarnation;
	bool		change = percent(50);
	SimError	error;

	append(text, "SELECT snowflake.record_uses('1.0', %s, %s)", uuid_text(incarnation), boolean_text(change));
	run_sql(t, text);
	error = sim_record_uses(&tables[t], &here[t], incarnation, change);
	strcpy(expected, "");
	compare_results(RECORD_USES, error);
}

static void
call_list_ends(const Server *server)
{
	int			t = server->table;
	char	   *text = begin_call(t, registry_clock(t));
	SimEnds		out = {0};
	SimError	error;

	append(text, "SELECT twin.id(incarnation), twin.us(starts_at), coalesce(uses, 'nothing'), "
		   "twin.ends(node_numbers, ends, layouts) FROM snowflake.list_ends('1.0', %s, %s)",
		   span_text(server->max_ahead), span_text(server->tick));
	run_sql(t, text);
	error = sim_list_ends(&tables[t], &here[t], server->max_ahead, server->tick, &out);
	if (error == SIM_OK)
	{
		sprintf(expected, UINT64_FORMAT "|" INT64_FORMAT "|%s|", out.incarnation, out.starts_at, uses_text(out.uses));
		for (int i = 0; i < out.num_ends; i++)
		{
			char		layout[SNOWFLAKE_DEFINITION_SIZE];

			snowflake_layout_define(out.ends[i].layout, layout);
			append(expected, "%s" UINT64_FORMAT " " INT64_FORMAT " %s", i > 0 ? ";" : "", out.ends[i].node_number,
				   out.ends[i].leased_until, layout);
		}
		free(listed[t].ends);
		listed[t] = out;
	}
	compare_results(LIST_ENDS, error);
}

/* Node numbers of tables, or any. */
static void
choose_ends(int t, SimHandOver *in)
{
	static SimEnd ends[8];

	if (percent(70))
	{
		const SimEnds *from = &listed[percent(90) ? 1 - t : t];

		in->incarnation = from->incarnation;
		in->starts_at = from->starts_at;
		in->num_ends = from->num_ends;
		in->ends = from->ends;
		return;
	}
	in->incarnation = percent(5) ? 0 : percent(30) ? tables[t].incarnation : tables[1 - t].incarnation;
	in->starts_at = any_time_or_null(t, 50);
	in->num_ends = below(lengthof(ends));
	in->ends = ends;
	for (int i = 0; i < in->num_ends; i++)
	{
		const SimRow *row = any_row(t);
		const SnowflakeLayout *layout = any_layout();

		ends[i] = (SimEnd)
		{
			below(8) & snowflake_node_max(layout), any_time(t), layout
		};
		if (row != NULL && percent(50))
			ends[i] = (SimEnd)
		{
			row->node_number, row->leased_until + below(3) - 1, row->layout
		};
	}
	if (in->num_ends > 0 && percent(30))
		ends[0].leased_until = ends[0].layout->epoch + below(3) * ends[0].layout->tick_us / 2;
	if (in->num_ends > 0 && percent(2))
		ends[below(in->num_ends)].leased_until = DT_NOEND;
}

static void
call_hand_over(Server *server)
{
	int			t = server->table;

	/* its rows are renewed at times that no other row has */
	TimestampTz clock = registry_clock(t) / 1000 * 1000 + 500 + num_calls_of_sequence % 1000 * 1000;
	char	   *text = begin_call(t, clock);
	SimHandOver in = {
		.own = server->own,
		.start = rarely() ? 0 : server->start,
		.call = next_call(server),
		.host = server->host,
		.port = server->port,
		.system_identifier = server->system_identifier,
		.timeline = server->timeline,
		.launched_at = server->launched_at
	};
	uint64		incarnation;
	SimError	error;

	choose_ends(t, &in);
	if (percent(10))
		in.starts_at = clock + SECONDS(10) + below(2);
	if (percent(4))
	{
		in.system_identifier = here[t].system_identifier + (percent(20) ? 1 : 0);
		in.launched_at = here[t].launched_at + below(2);
	}
	append(text, "SELECT twin.id(registry_incarnation) FROM snowflake.hand_over('1.0', %s, %s, %s, ARRAY[",
		   boolean_text(in.own), uuid_text(in.incarnation), time_text(in.starts_at));
	for (int i = 0; i < in.num_ends; i++)
		append(text, "%s" UINT64_FORMAT, i > 0 ? "," : "", in.ends[i].node_number);
	append(text, "]::bigint[], ARRAY[");
	for (int i = 0; i < in.num_ends; i++)
		append(text, "%s%s", i > 0 ? "," : "", time_text(in.ends[i].leased_until));
	append(text, "]::timestamptz[], ARRAY[");
	for (int i = 0; i < in.num_ends; i++)
		append(text, "%s%s", i > 0 ? "," : "", layout_text(in.ends[i].layout));
	append(text, "]::text[], %s, " INT64_FORMAT ", 'host%d', %d, " UINT64_FORMAT ", %u, %s)", uuid_text(in.start), in.call,
		   in.host, in.port, in.system_identifier, in.timeline, time_text(in.launched_at));
	run_sql(t, text);
	error = sim_hand_over(&tables[t], &here[t], &in, &incarnation);
	if (error == SIM_OK)
		sprintf(expected, UINT64_FORMAT, incarnation);
	compare_results(HAND_OVER, error);
}

/*
 * What else happens
 */

/* Of new tables the time when they were made is set, and their incarnation. */
static void
create_extension(int t)
{
	must_run(t, "DROP EXTENSION IF EXISTS snowflake");
	must_run(t, "CREATE EXTENSION snowflake");
	must_run(t, "CALL twin.change_functions()");
	must_run(t, "%sUPDATE snowflake.registry SET incarnation = twin.new_uuid(), created_at = twin.clock()",
			 begin_call(t, registry_clock(t)));
	sim_drop_extension(&tables[t]);
	sim_create_extension(&tables[t], &here[t]);
	dropped[t] = false;
	compare_tables(t);
}

static void
drop_extension(int t)
{
	must_run(t, "/* %d */ DROP EXTENSION snowflake", t);
	sim_drop_extension(&tables[t]);
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
	text = begin_call(t, registry_clock(t));
	append(text, "DELETE FROM snowflake.worker_node; DELETE FROM snowflake.cluster; DELETE FROM snowflake.registry; "
		   "INSERT INTO snowflake.registry (incarnation, database, created_at, system_identifier) "
		   "SELECT twin.new_uuid(), d.oid, twin.clock(), s.system_identifier "
		   "FROM pg_database AS d, pg_control_system() AS s WHERE d.datname = current_database()");
	must_run(t, "%s", text);
	if (count++ % 20 < NUM_TABLES)
		must_run(t, "VACUUM snowflake.worker_node, snowflake.registry, snowflake.cluster");
	sim_drop_extension(&tables[t]);
	sim_create_extension(&tables[t], &here[t]);
}

/* A row as a restore brings it: of another incarnation, or of this one */
static void
restore_row(int t)
{
	const SimRow *from = any_row(percent(50) ? t : 1 - t);
	SimRow		row;
	char	   *text = begin_call(t, now);

	if (from == NULL)
		return;
	row = *from;
	if (percent(80))
		row.token = ++next_token;
	if (percent(50))
		row.start = servers[below(num_servers)].start;
	if (percent(70))
		row.incarnation = percent(50) ? 7 : tables[percent(50) ? t : 1 - t].incarnation;
	if (row.incarnation == 0)
		row.incarnation = 7;	/* the other tables are not there */
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
	row.renewed_at = any_time(t) / 1000 * 1000 + 250 + (int64) (next_token % 1000) * 1000;
	/* no lease starts at -infinity; what is handed over does, and is closed */
	row.closed = percent(50) || TIMESTAMP_IS_NOBEGIN(row.starts_at);
	row.closed_at = row.closed ? now : DT_NOBEGIN;
	append(text, "INSERT INTO snowflake.worker_node SELECT %s, %s, " INT64_FORMAT ", " INT64_FORMAT ", " UINT64_FORMAT
		   ", 'host%d', %d, %u, %s, " UINT64_FORMAT ", p.datacenter_id, p.worker_id, p.clock, %s, %s, coalesce(%s, '-infinity'::timestamptz), "
		   "%s, %s, %s FROM snowflake.node_number_parts(" UINT64_FORMAT ", %s) AS p ON CONFLICT DO NOTHING",
		   uuid_text(row.token), uuid_text(row.start), row.granted_by, row.last_call, row.system_identifier, row.host,
		   row.port, row.timeline, uuid_text(row.incarnation), row.node_number, layout_text(row.layout),
		   time_text(row.launched_at), time_text(row.starts_at), time_text(row.leased_until), time_text(row.renewed_at),
		   time_text(row.closed_at), row.node_number, layout_text(row.layout));
	must_run(t, "%s", text);
	sim_insert_row(&tables[t], &row);
}

/* All numbers but one or two of a range, and a server that may have one of them. */
static void
restore_many(Server *server)
{
	int			t = server->table;
	int			num = 20 + below(40);
	int			left_out[2] = {below(num), below(num)};
	SimRow		row = {
		.start = 9,.granted_by = 1,.last_call = 1,.system_identifier = 1,.host = 1,.port = 1,.timeline = 1,.incarnation = 7,
		.layout = &layouts[WIDE_LAYOUT],.launched_at = now,.starts_at = now,.leased_until = now,.renewed_at = now,.closed = true,
		.closed_at = now
	};

	(void) begin_call(t, now);
	must_run(t, "/* %d */ INSERT INTO snowflake.worker_node SELECT twin.uuid(" UINT64_FORMAT " + n), twin.uuid(9), 1, 1, 1, 'host1', "
			 "1, 1, twin.uuid(7), n, p.datacenter_id, p.worker_id, p.clock, %s, c, c, c, c, c "
			 "FROM generate_series(0, %d) AS n, twin.at(" INT64_FORMAT ") AS c, snowflake.node_number_parts(n, %s) AS p "
			 "WHERE n NOT IN (%d, %d)",
			 t, next_token, layout_text(row.layout), num - 1, now, layout_text(row.layout), left_out[0], left_out[1]);
	for (int i = 0; i < num; i++)
		if (i != left_out[0] && i != left_out[1])
		{
			row.token = next_token + i;
			row.node_number = i;
			sim_insert_row(&tables[t], &row);
		}
	server->layout = row.layout;
	server->layout_set = true;
	server->fixed = false;
	server->first = 0;
	server->last = num - 1;
}

static void
restore_cluster(int t)
{
	uint64		incarnation = percent(50) ? 0 : tables[1 - t].incarnation;

	must_run(t, "/* %d */ INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('%s', %s)", t,
			 incarnation == 0 ? "own" : "another", uuid_text(incarnation));
	sim_insert_cluster(&tables[t], incarnation == 0 ? SIM_USES_OWN : SIM_USES_REGISTRY, incarnation);
}

/* CREATE DATABASE with this one as its template */
static void
copy_database(int t)
{
	must_run(t, "/* %d */ UPDATE snowflake.registry SET database = 1", t);
	tables[t].database = 1;
}

static void
lose_registry_row(int t)
{
	must_run(t, "/* %d */ DELETE FROM snowflake.registry", t);
	tables[t].has_registry = false;
}

/* To a copy and back: it is as good. */
static void
copy_twin(int t)
{
	SimTables	copy;

	sim_tables_init(&copy, 99);
	sim_tables_copy(&copy, &tables[t]);
	sim_tables_free(&tables[t]);
	if (percent(50))
		sim_tables_copy(&tables[t], &tables[1 - t]);
	sim_tables_copy(&tables[t], &copy);
	sim_tables_free(&copy);
}

static void
choose_numbers(Server *server)
{
	uint64		max = snowflake_node_max(server->layout);

	server->fixed = percent(35);
	if (percent(80))
		max = Min(max, 7);
	if (server->fixed)
	{
		server->first = any() % (max + 1);
		server->last = percent(30) ? server->first : Min(server->first | 3, max);
	}
	else
	{
		server->first = percent(70) ? 0 : any() % (max + 1);
		server->last = percent(70) ? max - (max > 1) : server->first + any() % (max - server->first + 1);
		server->last = Max(server->first, server->last);
	}
}

static void
launch(Server *server)
{
	server->start = ++next_start;
	server->call = 0;
	server->token = 0;
	server->launched_at = now;
	if (percent(30))
		server->layout = any_layout();
	if (percent(30))
		server->layout_set = percent(80);
	if (percent(30))
		choose_numbers(server);
	server->last = Min(server->last, snowflake_node_max(server->layout));
	server->first = Min(server->first, server->last);
}

static void
promote(Server *server)
{
	if (server->history.num_entries < 20)
		server->history.entries[server->history.num_entries++] =
			(SimHistoryEntry)
	{
		server->timeline, UINT64CONST(0x100000028) + below(2) * 16
	};
	if (percent(5) && server->history.num_entries < 20)
	{
		server->history.entries[server->history.num_entries] =
			server->history.entries[server->history.num_entries - 1];
		server->history.num_entries++;
	}
	if (percent(10))
		server->history.num_entries = 0;	/* pg_upgrade */
	server->timeline++;
	launch(server);
}

static void
new_server(Server *server)
{
	static const int64 offsets[] = {0, 0, 0, 1, -1, SECONDS(5), SECONDS(-5), MINUTES(2), MINUTES(-2)};
	static const int64 ticks[] = {1, 1000, 10000, SECONDS(1)};
	static const int64 aheads[] = {0, 1000, SECONDS(1), SECONDS(60), USECS_PER_DAY};
	static const int64 windows[] = {0, 1, SECONDS(2), SECONDS(10), MINUTES(2), MINUTES(2), 2 * USECS_PER_DAY};

	memset(server, 0, sizeof(*server));
	server->table = percent(75) ? 0 : 1;
	server->own = percent(30);
	server->system_identifier = 7000 + below(3);
	server->host = below(3);
	server->port = 5432 + below(2);
	server->timeline = 1;
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
		registry_offsets[t] = offsets[below(lengthof(offsets))];
		sim_drop_extension(&tables[t]); /* nothing depends on what was */
		must_run(t, "SELECT setseed(%d / 1000.0)", below(1000));
		create_again(t);
		free(listed[t].ends);
		listed[t] = (SimEnds)
		{
			.incarnation = 5
		};
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

/* Of a thousand */
#define CHANCE_CALLS		850
#define CHANCE_COPY_TWIN	977

static void
take_step(void)
{
	Server	   *server = &servers[below(num_servers)];
	int			chance = below(1000);
	int			t = server->table;

	let_time_pass();
	if (tables[t].exists && percent(2))
		restore_row(t);
	if (!tables[t].has_registry && percent(30))
		create_again(t);
	if (!tables[t].exists)
		chance = percent(10) ? CHANCE_COPY_TWIN : below(CHANCE_CALLS);
	if (chance < 420)
		call_acquire(server);
	else if (chance < 600)
		call_renew(server);
	else if (chance < 690)
		call_release(server);
	else if (chance < 750)
		call_start_server(server);
	else if (chance < 780)
		call_record_uses(t);
	else if (chance < 810)
		call_list_ends(server);
	else if (chance < CHANCE_CALLS)
		call_hand_over(server);
	else if (chance < 900)
		launch(server);
	else if (chance < 925)
		promote(server);
	else if (chance < 935)
		new_server(server);
	else if (chance < 953)
		restore_row(t);
	else if (chance < 956)
		restore_many(server);
	else if (chance < 960)
		restore_cluster(t);
	else if (chance < 965)
		copy_database(t);
	else if (chance < 968)
		lose_registry_row(t);
	else if (chance < 975)
		create_again(t);
	else if (chance < CHANCE_COPY_TWIN)
		drop_extension(t);
	else if (chance < 985)
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
	SimTables	one;
	SimTables	copy;
	SimHere		server = {.random = draw};
	SimAcquire	in = {.start = 1,.last_number = last,.layout = &layouts[WIDE_LAYOUT],.tick = 1,.system_identifier = 1};
	SimGranted	out;
	int			times[1000] = {0};
	int			num_unused = (int) last + 1 - num_used;

	sim_tables_init(&one, 1);
	sim_tables_init(&copy, 1);
	sim_create_extension(&one, &server);
	for (in.call = 1; in.call <= num_used; in.call++)
		if (sim_acquire_lease(&one, &server, &in, &out) != SIM_OK)
			fail("no lease");
	for (int i = 0; i < one.num_rows; i++)
		times[one.rows[i].node_number] = -1;
	for (int i = 0; i < num_unused * 1000; i++)
	{
		sim_tables_copy(&copy, &one);
		if (sim_acquire_lease(&copy, &server, &in, &out) != SIM_OK)
			fail("no lease");
		times[out.node_number] += times[out.node_number] < 0 ? -100000 : 1;
	}
	for (uint64 number = 0; number <= last; number++)
		if (times[number] != -1 && (times[number] < 800 || times[number] > 1200))
			fail("the choice at random prefers some numbers");
	sim_tables_free(&one);
	sim_tables_free(&copy);
}

static void
begin_tables(int t)
{
	sim_tables_init(&tables[t], 1000 + t);
	here[t].random = count_id;
	here[t].system_identifier =
		(uint64) number_from(t, "SELECT system_identifier FROM pg_control_system()");
	here[t].launched_at = number_from(t, "SELECT twin.us(pg_postmaster_start_time())");
	create_extension(t);
}

static void
report(void)
{
	for (int function = 0; function < NUM_FUNCTIONS; function++)
		for (int error = 0; error < NUM_ERRORS; error++)
			if (counts[function][error] > 0)
				printf("%s: %s: " INT64_FORMAT "\n", function_names[function], errors[error].name, counts[function][error]);
	printf("seed %d: " INT64_FORMAT " calls in %d sequences, the tables compared " INT64_FORMAT " times: equal\n",
		   seed, num_calls, num_sequences, num_comparisons);
}

int
main(int argc, char **argv)
{
	int64		calls;

	if (argc < 5)
	{
		fprintf(stderr, "usage: twin CONNINFO CONNINFO SEED CALLS [SEQUENCE]\n");
		return 2;
	}
	seed = atoi(argv[3]);
	calls = atoll(argv[4]);
	read_layouts();
	random_state = (uint64) seed * 2 + 1;
	check_spread(7, 0);
	check_spread(7, 5);
	check_spread(999, 990);
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
