/*
 * world.c
 *	  What surrounds the lease machine in its tests (see world.h).
 */
#include "postgres.h"

#include <ctype.h>

#include "world.h"

#define EVENT(event)		.kind = SNOWFLAKE_EVENT_##event
#define TIME_AND(what)		EVENT(TIME), .what = true
#define RESULT(what)		EVENT(RESULT), .result = SNOWFLAKE_RESULT_##what
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
	{.name = "elsewhere", REQUEST("host=elsewhere", false, 0, 1022)},
	{.name = "invalid", REQUEST(NULL, false, 0, 0)},
	{.name = "ok", RESULT(OK)},
	{.name = "failed", RESULT(FAILED)},
	{.name = "closed", RESULT(CLOSED)},
	{.name = "missing", RESULT(MISSING)},
	{.name = "sealed", EVENT(SEALED)},
	{.name = "look", EVENT(LOOK)},
	{.name = "release", EVENT(RELEASE)},
	{.name = "change", EVENT(CHANGE)},
	{.name = "stop", EVENT(STOP)},
};

SnowflakeMachine machine;
SnowflakeNow now;
SnowflakeAction action;
SnowflakeCall call;
SnowflakeResult result;

Row			rows[MAX_ROWS];
int			num_rows;
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

/* The state and the action, as a text. */
const char *
outcome(void)
{
	static const char *const calls[] = {"none", "start", "acquire", "record", "renew", "release", "change"};
	static const char *const actions[] = {"wait", "call", "open", "seal", "exit"};
	static char text[80];
	const char *state = snowflake_lease_state_name(machine.state);

	if (action.kind == SNOWFLAKE_ACTION_CALL)
		snprintf(text, sizeof(text), "%s: %s%s%s", state, calls[action.call.kind],
				 action.call.create && action.call.kind == SNOWFLAKE_CALL_START ? " create" : "",
				 action.call.last ? " last" : "");
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
pg_uuid_t
uuid_of(const char *text)
{
	pg_uuid_t	uuid;

	memset(&uuid, 0, sizeof(uuid));
	strlcpy((char *) uuid.data, text, sizeof(uuid.data));
	return uuid;
}

Row *
row_of(const pg_uuid_t *token)
{
	return &rows[atoi((const char *) token->data)];
}

static void
grant_lease(void)
{
	char		token[UUID_LEN];

	snprintf(token, sizeof(token), "%d", ++num_rows);
	result.token = uuid_of(token);
	result.incarnation = uuid_of(call.registry);
	result.node = call.first + num_rows % (call.last_number - call.first + 1);
	result.starts_at = now.clock;
	result.leased_until = now.clock + call.window;
	rows[num_rows].leased_until = result.leased_until;
	rows[num_rows].issued_until = DT_NOBEGIN;
	rows[num_rows].over = false;
	if (call.registry[0] == '\0')
		own_uses = SNOWFLAKE_USES_OWN;
}

/* The result of the call that is out. */
void
answer(SnowflakeResultKind kind)
{
	pg_uuid_t	incarnation = uuid_of(call.registry);

	memset(&result, 0, sizeof(result));
	result.kind = kind;
	if (machine.call == SNOWFLAKE_CALL_ACQUIRE && call.has_incarnation &&
		memcmp(&call.incarnation, &incarnation, UUID_LEN) != 0)
		result.kind = SNOWFLAKE_RESULT_FAILED;
	if (result.kind == SNOWFLAKE_RESULT_FAILED)
	{
		result.problem.sqlerrcode = kind == SNOWFLAKE_RESULT_FAILED ?
			ERRCODE_LOCK_NOT_AVAILABLE : ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		strlcpy(result.problem.message, "the call failed", sizeof(result.problem.message));
	}
	if (result.kind != SNOWFLAKE_RESULT_OK)
		return;
	switch (machine.call)
	{
		case SNOWFLAKE_CALL_START:
			result.uses = own_uses;
			result.incarnation = own_incarnation;
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			grant_lease();
			break;
		case SNOWFLAKE_CALL_RECORD:
		case SNOWFLAKE_CALL_CHANGE:
			if (machine.call == SNOWFLAKE_CALL_CHANGE)
				call.incarnation = incarnation;
			own_uses = call.registry[0] == '\0' && machine.call == SNOWFLAKE_CALL_CHANGE ?
				SNOWFLAKE_USES_OWN : SNOWFLAKE_USES_ANOTHER;
			own_incarnation = call.incarnation;
			break;
		case SNOWFLAKE_CALL_RENEW:
			row_of(&call.token)->leased_until = Max(row_of(&call.token)->leased_until, call.end);
			result.leased_until = row_of(&call.token)->leased_until;
			break;
		default:
			break;
	}
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
	if (step->kind == SNOWFLAKE_EVENT_REQUEST)
		read_request(step, &request);
	if (step->kind == SNOWFLAKE_EVENT_RESULT && result.kind == SNOWFLAKE_RESULT_FAILED)
		answer(step->result);
	if (step->kind == SNOWFLAKE_EVENT_SEALED)
		event.end = row_of(&machine.token)->issued_until;
	now.recovery = now.recovery && !step->promoted;
	now.wanted |= step->wanted;
	now.issued |= step->issued;
	now.openable |= step->openable;
	snowflake_machine_step(&machine, &event, &now, &action);
	if (action.kind == SNOWFLAKE_ACTION_CALL)
		call = action.call;
	if (machine.state == SNOWFLAKE_LEASE_SEALING)
		row_of(&machine.token)->over = true;
	now.wanted = now.issued = now.openable = false;
	memset(&result, 0, sizeof(result));
}

/* Both clocks move on. */
static void
pass(double seconds)
{
	now.clock += SECONDS(seconds);
	now.monotonic += SECONDS(seconds);
}

/* "3 s" lets that much time pass. */
const Step *
find_step(const char *name, size_t length)
{
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
	now.clock = SECONDS(800000000);
	now.monotonic = SECONDS(1000);
	now.max_ahead = SECONDS(1);
	now.max_wait = SECONDS(5);
	now.lease_duration = SECONDS(120);
	now.tick = 1000;
	own_uses = SNOWFLAKE_USES_NOTHING;
	num_rows = 0;
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
