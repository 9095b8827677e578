/*
 * world.c
 *	  What surrounds the lease machine in its tests (see world.h).
 */
#include "postgres.h"

#include <ctype.h>

#include "world.h"

#include "../stubs/states.h"

/* What the clock shows when a scenario begins. */
#define BEGIN				SECONDS(800000000)

#define EVENT(event)		.kind = SNOWFLAKE_EVENT_##event
#define TIME_AND(what)		EVENT(TIME), .what = true
#define RESULT(what)		EVENT(RESULT), .result = SNOWFLAKE_RESULT_##what
#define REFUSED(seconds) \
	RESULT(REFUSED), .sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, .wait = (seconds)
#define REQUEST(where, is_fixed, from, to) \
	EVENT(REQUEST), .registry = (where), .fixed = (is_fixed), .first = (from), .last = (to)

static const Step steps[] = {
	{.name = "time", EVENT(TIME)},
	{.name = "promoted", TIME_AND(promoted)},
	{.name = "wanted", TIME_AND(wanted)},
	{.name = "issued", TIME_AND(issued)},
	{.name = "openable", TIME_AND(openable)},
	{.name = "worker", EVENT(WORKER)},
	{.name = "own", REQUEST("", false, 0, 1022)},
	{.name = "own below 512", REQUEST("", false, 0, 511)},
	{.name = "own from 512", REQUEST("", false, 512, 1022)},
	{.name = "own 7", REQUEST("", true, 7, 7)},
	{.name = "own 8 to 11", REQUEST("", true, 8, 11)},
	{.name = "registry", REQUEST("host=registry", false, 0, 1022)},
	{.name = "registry 7", REQUEST("host=registry", true, 7, 7)},
	{.name = "registry 1", REQUEST("host=registry", true, 1, 1)},
	{.name = "registry 0 to 3", REQUEST("host=registry", true, 0, 3)},
	{.name = "registry below 512", REQUEST("host=registry", false, 0, 511)},
	{.name = "elsewhere", REQUEST("host=elsewhere", false, 0, 1022)},
	{.name = "elsewhere 7", REQUEST("host=elsewhere", true, 7, 7)},
	{.name = "invalid", REQUEST(NULL, false, 0, 0)},
	{.name = "ok", RESULT(OK)},
	{.name = "failed", RESULT(FAILED)},
	{.name = "overloaded", RESULT(FAILED),.overloaded = true},
	{.name = "not usable", RESULT(FAILED),.sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE},
	{.name = "refused", REFUSED(10)},
	{.name = "refused at once", REFUSED(0)},
	{.name = "refused for 4 s", REFUSED(4)},
	{.name = "none free", RESULT(REFUSED),.sqlerrcode = ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,.wait = 10},
	{.name = "no", RESULT(NO)},
	{.name = "missing", RESULT(MISSING)},
	{.name = "sealed", EVENT(SEALED)},
	{.name = "look", EVENT(LOOK)},
	{.name = "release", EVENT(RELEASE)},
	{.name = "stop", EVENT(STOP)},
};

SnowflakeMachine machine;
SnowflakeNow now;
uint64		seed;
SnowflakeAction action;
SnowflakeCall call;
SnowflakeResult result;

Row			rows[MAX_ROWS];
int			num_rows;
static TimestampTz ends[NUM_NUMBERS];	/* of ids, by number */
int			num_starts;
int			generations[NUM_REGISTRIES];
SnowflakeUses own_uses;
pg_uuid_t	own_incarnation;

const char *scenario;
int			num_checks = 0;
int			num_failures = 0;

/*
 * Checks
 */
bool
check(bool passed, const char *name)
{
	num_checks++;
	num_failures += !passed;
	printf("%s %d - %s: %s\n", passed ? "ok" : "not ok", num_checks, scenario, name);
	return passed;
}

void
check_number(int64 actual, int64 expected, const char *name)
{
	if (!check(actual == expected, name))
		printf("# expected " INT64_FORMAT ", was " INT64_FORMAT "\n", expected, actual);
}

void
check_text(const char *actual, const char *expected, const char *name)
{
	if (!check(strcmp(actual, expected) == 0, name))
		printf("# expected: %s\n# was:      %s\n", expected, actual);
}

/* When the open lease is to be renewed. */
static TimestampTz
due_at(void)
{
	const SnowflakeLease *lease = &machine.lease;

	return lease->leased_until - lease->renew_left;
}

/* The state and the action, as a text. */
const char *
outcome(void)
{
	static const char *const calls[] = {
		[SNOWFLAKE_CALL_START] = "start",
		[SNOWFLAKE_CALL_ACQUIRE] = "acquire",
		[SNOWFLAKE_CALL_RECORD] = "record",
		[SNOWFLAKE_CALL_RENEW] = "renew",
		[SNOWFLAKE_CALL_RELEASE] = "release"
	};
	static const char *const actions[] = {"wait", "call", "open", "seal", "exit"};
	static char text[80];
	char		state[40];

	snprintf(state, sizeof(state), "%s%s", machine.leaving ? "leaving " : "",
			 lease_state_name(machine.state));
	if (action.kind == SNOWFLAKE_ACTION_CALL)
		snprintf(text, sizeof(text), "%s: %s%s%s", state, calls[action.call.kind],
				 action.call.kind == SNOWFLAKE_CALL_START && action.call.u.start.create ? " create" : "",
				 action.call.last ? " last" : "");
	else if (action.kind == SNOWFLAKE_ACTION_WAIT && action.until == machine.retry_at)
		snprintf(text, sizeof(text), "%s: wait to retry", state);
	else if (action.kind == SNOWFLAKE_ACTION_WAIT && action.until - now.monotonic == due_at() - now.clock)
		snprintf(text, sizeof(text), "%s: wait until due", state);
	else if (action.kind == SNOWFLAKE_ACTION_WAIT)
		snprintf(text, sizeof(text), "%s: wait %g", state,
				 (double) (action.until - now.monotonic) / USECS_PER_SEC);
	else
		snprintf(text, sizeof(text), "%s: %s", state, actions[action.kind]);
	return text;
}

/*
 * The world
 */
/* Seconds since the scenario began. */
const char *
timestamptz_to_str(TimestampTz t)
{
	static char text[40];

	snprintf(text, sizeof(text), "%.10g", (double) (t - BEGIN) / USECS_PER_SEC);
	return text;
}

pg_uuid_t
uuid_of(const char *text)
{
	pg_uuid_t	uuid;

	memset(&uuid, 0, sizeof(uuid));
	strlcpy((char *) uuid.data, text, sizeof(uuid.data));
	return uuid;
}

bool
same_uuid(const pg_uuid_t *a, const pg_uuid_t *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static const char *const registries[NUM_REGISTRIES] = {"", "host=registry", "host=elsewhere"};

int
registry_of(const char *conninfo)
{
	int			registry = 0;

	while (strcmp(registries[registry], conninfo) != 0)
		registry++;
	return registry;
}

pg_uuid_t
incarnation_of(int registry)
{
	return uuid_of(registry == 0 ? "own" : registries[registry]);
}

Row *
row_of(const pg_uuid_t *token)
{
	return &rows[atoi((const char *) token->data)];
}

/* Where a lease starts, whatever its number: after the ids that the registry does not know of. */
TimestampTz
floor_of_call(void)
{
	const SnowflakeAcquireCall *asked = &call.u.acquire;
	int			registry = registry_of(call.registry);
	pg_uuid_t	incarnation = incarnation_of(registry);
	bool		akin = call.lease.granted_by != 0 && same_uuid(&call.lease.incarnation, &incarnation) &&
	call.lease.generation == generations[registry];

	return Max(asked->starts_at, akin ? DT_NOBEGIN : asked->ids_end_at);
}

/* Where the leases of a number end, in all registries. */
static TimestampTz
end_of(uint64 node)
{
	const Row  *named = row_of(&call.lease.token);
	bool		goes_on = call.lease.granted_by != 0 && call.lease.ids_end_at == DT_NOBEGIN;

	return Max(goes_on && named->node == node ? named->leased_until : DT_NOBEGIN, ends[node]);
}

static void
grant_lease(SnowflakeAcquireResult *granted)
{
	const SnowflakeAcquireCall *asked = &call.u.acquire;
	int			registry = registry_of(call.registry);
	Row		   *row = &rows[++num_rows];
	char		token[UUID_LEN];
	uint64		node = num_rows;

	snprintf(token, sizeof(token), "%d", num_rows);
	granted->token = uuid_of(token);
	granted->incarnation = incarnation_of(registry);
	granted->generation = generations[registry];
	granted->clock = now.clock;
	do
		granted->node = asked->first + node++ % (asked->last - asked->first + 1);
	while (!asked->fixed && end_of(granted->node) > call.clock);
	granted->starts_at = Max(call.clock, Max(floor_of_call(), end_of(granted->node)));
	granted->leased_until = granted->starts_at + asked->window;
	memset(row, 0, sizeof(*row));
	row->registry = registry;
	row->generation = generations[registry];
	row->start = num_starts;
	row->granted_by = call.number;
	row->node = granted->node;
	row->starts_at = granted->starts_at;
	row->leased_until = granted->leased_until;
	row->issued_until = DT_NOBEGIN;
	if (registry == 0)
	{
		own_uses = SNOWFLAKE_USES_OWN;
		own_incarnation = granted->incarnation;
	}
}

/* The result of the call that is out. */
void
answer(SnowflakeResultKind kind)
{
	Row		   *row = row_of(&call.lease.token);

	memset(&result, 0, sizeof(result));
	result.kind = kind;
	if (kind == SNOWFLAKE_RESULT_FAILED || kind == SNOWFLAKE_RESULT_REFUSED)
	{
		result.problem.sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE;
		strlcpy(result.problem.message, "the call failed", sizeof(result.problem.message));
	}
	if (kind != SNOWFLAKE_RESULT_OK)
		return;
	switch (call.kind)
	{
		case SNOWFLAKE_CALL_START:
			result.u.start.uses = own_uses;
			result.u.start.incarnation = own_incarnation;
			result.u.start.starts_at = DT_NOBEGIN;
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			grant_lease(&result.u.acquire);
			break;
		case SNOWFLAKE_CALL_RECORD:
			own_uses = SNOWFLAKE_USES_ANOTHER;
			own_incarnation = call.u.record.incarnation;
			break;
		case SNOWFLAKE_CALL_RENEW:
			row->leased_until = Max(row->leased_until,
									Max(call.clock, row->starts_at) + call.u.renew.window);
			result.u.renew.leased_until = row->leased_until;
			break;
		default:
			break;
	}
}

/* The same, as a step has it. */
void
answer_step(const Step *step)
{
	answer(step->result);
	if (step->sqlerrcode != 0)
		result.problem.sqlerrcode = step->sqlerrcode;
	result.overloaded = step->overloaded;
	result.wait = SECONDS(step->wait);
}

static void
read_request(const Step *step, SnowflakeNumberRequest *request)
{
	memset(request, 0, sizeof(*request));
	request->valid = step->registry != NULL;
	request->fixed = step->fixed;
	request->first = step->first;
	request->last = step->last;
	if (request->valid)
		strlcpy(request->registry, step->registry, sizeof(request->registry));
	else
		request->problem.sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
}

/* Makes a step of the machine. */
void
take(const Step *step)
{
	static SnowflakeNumberRequest request;
	SnowflakeEvent event = {0};

	event.kind = step->kind;
	event.request = &request;
	event.result = &result;
	event.seed = seed;
	if (step->kind == SNOWFLAKE_EVENT_REQUEST)
		read_request(step, &request);
	if (step->kind == SNOWFLAKE_EVENT_RESULT && result.kind == SNOWFLAKE_RESULT_FAILED)
		answer_step(step);
	if (step->kind == SNOWFLAKE_EVENT_SEALED)
	{
		const Row  *row = row_of(&machine.lease.token);

		event.end = row->issued_until;
		ends[row->node] = Max(ends[row->node], row->issued_until);
	}
	now.recovery = now.recovery && !step->promoted;
	now.wanted |= step->wanted;
	now.issued |= step->issued;
	now.openable |= step->openable;
	snowflake_machine_step(&machine, &event, &now, &action);
	if (action.kind == SNOWFLAKE_ACTION_CALL)
		call = action.call;
	if (machine.state == SNOWFLAKE_LEASE_SEALING)
		row_of(&machine.lease.token)->over = true;
	now.wanted = now.issued = now.openable = false;
	memset(&result, 0, sizeof(result));
}

/* Both clocks move on. */
void
pass(double seconds)
{
	now.clock += SECONDS(seconds);
	now.monotonic += SECONDS(seconds);
}

/* A time that the machine has drawn, and a microsecond before. */
static bool
pass_until(const char *name, size_t length)
{
	const struct
	{
		const char *name;
		int64		us;
	}			times[] = {
		{"retry", machine.retry_at - now.monotonic},
		{"before retry", machine.retry_at - now.monotonic - 1},
		{"due", due_at() - now.clock},
		{"before due", due_at() - now.clock - 1}
	};

	for (int i = 0; i < (int) lengthof(times); i++)
		if (strlen(times[i].name) == length && strncmp(times[i].name, name, length) == 0)
		{
			now.clock += times[i].us;
			now.monotonic += times[i].us;
			return true;
		}
	return false;
}

/*
 * "3 s" lets that much time pass; "retry" all until the next call may be made, "due" until the lease is to be
 * renewed.
 */
const Step *
find_step(const char *name, size_t length)
{
	if (pass_until(name, length))
		return &steps[0];
	if (isdigit((unsigned char) name[0]))
	{
		pass(atof(name));
		return &steps[0];
	}
	for (int i = 0; i < (int) lengthof(steps); i++)
		if (strlen(steps[i].name) == length && strncmp(steps[i].name, name, length) == 0)
			return &steps[i];
	printf("Bail out! there is no step %s\n", name);
	exit(2);
}

/* A server has just started, in recovery. */
void
begin(const char *name)
{
	scenario = name;
	memset(&machine, 0, sizeof(machine));
	memset(&now, 0, sizeof(now));
	memset(&result, 0, sizeof(result));
	now.recovery = true;
	now.clock = BEGIN;
	now.monotonic = SECONDS(1000);
	now.max_ahead = SECONDS(1);
	now.max_wait = SECONDS(5);
	now.lease_duration = SECONDS(120);
	now.tick = 1000;
	own_uses = SNOWFLAKE_USES_NOTHING;
	num_rows = 0;
	num_starts = 1;
	for (int i = 0; i < NUM_REGISTRIES; i++)
		generations[i] = 1;
	rows[0].issued_until = DT_NOBEGIN;
	for (int i = 0; i < NUM_NUMBERS; i++)
		ends[i] = DT_NOBEGIN;
	snowflake_machine_init(&machine);
}

/* Steps, separated by commas. */
void
go(const char *names)
{
	for (;;)
	{
		size_t		length = strcspn(names, ",");

		take(find_step(names, length));
		if (names[length] == '\0')
			break;
		names += length + 2;
	}
}

/* A step, and what the machine has to make of it. */
void
on(const char *name, const char *expected)
{
	char		text[200];

	take(find_step(name, strlen(name)));
	snprintf(text, sizeof(text), "on %s, %s", name, expected);
	check_text(outcome(), expected, text);
}
