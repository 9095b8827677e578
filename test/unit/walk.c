/*
 * walk.c
 *	  A million random events for the lease machine, with invariants that are checked
 *	  after each step: registries that fail, refuse and close leases, lease workers that
 *	  are killed between two steps, clocks that are set, orders and other settings.
 */
#include "postgres.h"

#include "world.h"

#define WALK_EVENTS		1000000

#define INVARIANTS(I) \
	I(DURABLE, "words are opened for a lease that is on, up to an end that its row has") \
	I(REQUESTED, "words are opened for a number and a registry that the settings ask for") \
	I(RECORDED, "words are opened when the registry is recorded in the own table") \
	I(OVER, "a lease that is over is never opened or renewed again") \
	I(SEALED, "in all states but open and sealing the words are sealed") \
	I(SEALING, "a lease ends by sealing, and sealing ends by its result") \
	I(DECREASE, "leased_until never decreases while the words are open") \
	I(NUMBER, "call numbers increase, and a change takes four") \
	I(STATE, "a call is made in the state that it belongs to") \
	I(ONE, "no call is made while one is out, unless it was given up on") \
	I(LATER, "a renewal asks for a later end") \
	I(ALLOWED, "a lease is asked for where the settings say, if the record allows it") \
	I(END, "a lease is named with an end at or after all its ids") \
	I(KNOWN, "known_until is at or after all ids that were not handed over") \
	I(TOLD, "a lease is forgotten only when the registry knows its end") \
	I(RECOVERY, "no call and no id before promotion") \
	I(RETRY, "after a failure the next call is made a second later, or after a change") \
	I(BUSY, "few actions follow an event") \
	I(WAIT, "a wait ends in the future, and within a minute") \
	I(PHASE, "backends are told to wait or to fail, with the problem")

#define ENUMERATOR(name, text)	name,
#define TEXT(name, text)		text,

typedef enum Invariant
{
	INVARIANTS(ENUMERATOR)
	NUM_INVARIANTS
} Invariant;

static const char *const texts[] = {INVARIANTS(TEXT)};
static int	broken[NUM_INVARIANTS];

/* The events and how often they happen; a result needs a call. */
static const struct
{
	const char *name;
	int			weight;
}			chances[] = {
	{"result", 40}, {"time", 25}, {"wanted", 15}, {"worker", 1}, {"own", 2},
	{"own below 512", 1}, {"own from 512", 1}, {"own 7", 1}, {"own 8 to 11", 1},
	{"registry", 2}, {"registry 7", 1}, {"elsewhere", 1}, {"invalid", 1},
	{"sealed", 1}, {"look", 1}, {"release", 1}, {"change", 2}, {"stop", 1}
};

static uint64 random_state;
static int	num_steps;
static int	met[NUM_STATES];

/* What is so, and what the machine cannot know. */
static bool words_open;
static bool table_there;
static bool recorded;			/* by the machine, since the last look */
static TimestampTz issued_until;	/* by ended leases, if not handed over */
static int64 failed_at;			/* 0: nothing has failed */

static void
must(Invariant invariant, bool holds)
{
	if (!holds && broken[invariant]++ == 0)
		printf("# step %d, %s: %s\n", num_steps, outcome(), texts[invariant]);
}

/* Below a bound: xorshift64* */
static uint32
draw(uint32 bound)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return ((random_state * UINT64CONST(0x2545F4914F6CDD1D)) >> 33) % bound;
}

static const Step *
step_of(const char *name)
{
	return find_step(name, strlen(name));
}

static void
restart_server(void)
{
	memset(&machine, 0, sizeof(machine));
	snowflake_machine_init(&machine);
	words_open = false;
	now.recovery = draw(2) == 0;
	issued_until = DT_NOBEGIN;
	failed_at = 0;
}

/* Between two events: time passes, ids are issued, tables are dropped. */
static void
live(void)
{
	int64		passed = draw(20) == 0 ? SECONDS(draw(90)) : draw(SECONDS(1.5));

	now.monotonic += passed;
	now.clock += passed;
	if (draw(200) == 0)
		now.clock += draw(SECONDS(60)) - SECONDS(30);
	if (draw(1000) == 0)
		now.lease_duration = SECONDS(1 + draw(300));
	now.behind = draw(30) == 0 ? SECONDS(draw(20)) : 0;
	now.openable = words_open && draw(30) == 0;
	if (words_open && draw(2) == 0)
	{
		Row		   *row = row_of(&machine.token);

		row->issued_until = Max(row->issued_until, machine.leased_until - draw(SECONDS(1)));
		row->issued_until = Max(row->issued_until, machine.starts_at);
		now.issued = true;
	}
	if (draw(300) == 0)
		table_there = false;
	if (draw(20) == 0)
		now.recovery = false;
	if (draw(5000) == 0)
		restart_server();
}

/* The result of the call that is out; a failed one may have been carried out. */
static const Step *
choose_result(void)
{
	/* START and RECORD name no registry */
	bool		own = call.registry[0] == '\0';

	if (draw(5) == 0)
	{
		Row		   *row = row_of(&call.token);

		if (call.kind == SNOWFLAKE_CALL_RENEW && draw(2) == 0)
			row->leased_until = Max(row->leased_until, call.end);
		return step_of("failed");
	}
	if (own && !table_there && !call.create)
	{
		result.kind = SNOWFLAKE_RESULT_MISSING;
		return step_of("missing");
	}
	if (own && !table_there)
	{
		table_there = true;
		own_uses = SNOWFLAKE_USES_NOTHING;
	}
	if ((call.kind == SNOWFLAKE_CALL_RENEW || call.kind == SNOWFLAKE_CALL_RELEASE) && draw(10) == 0)
	{
		result.kind = SNOWFLAKE_RESULT_CLOSED;
		return step_of("closed");
	}
	answer(SNOWFLAKE_RESULT_OK);
	if (call.kind == SNOWFLAKE_CALL_ACQUIRE && draw(50) == 0)
		result.node = 5000;
	if (call.kind == SNOWFLAKE_CALL_CHANGE && draw(2) == 0)
		strlcpy(result.notice, "some ends are not known", sizeof(result.notice));
	return step_of("ok");
}

static const Step *
choose_event(void)
{
	int			total = 0;
	int			chosen;
	int			i = 0;

	for (int j = 0; j < (int) lengthof(chances); j++)
		total += chances[j].weight;
	chosen = draw(total);
	while (chosen >= chances[i].weight)
		chosen -= chances[i++].weight;
	if (strcmp(chances[i].name, "result") == 0)
		return machine.call != SNOWFLAKE_CALL_NONE ? choose_result() : step_of("time");
	if (strcmp(chances[i].name, "sealed") == 0 && machine.state == SNOWFLAKE_LEASE_SEALING)
		return step_of("time");
	if (strcmp(chances[i].name, "look") == 0)
	{
		table_there = true;
		own_uses = SNOWFLAKE_USES_NOTHING;
	}
	return step_of(chances[i].name);
}

/* What is so after an event, whatever the machine makes of it. */
static void
note_event(const Step *event)
{
	if (event->kind == SNOWFLAKE_EVENT_LOOK)
		recorded = false;
	if (event->kind == SNOWFLAKE_EVENT_REQUEST || event->kind == SNOWFLAKE_EVENT_LOOK)
		failed_at = 0;
	if (event->kind != SNOWFLAKE_EVENT_RESULT)
		return;
	if (event->result == SNOWFLAKE_RESULT_FAILED || result.kind != event->result)
	{
		/* a RELEASE that failed is not made again, and has no pause */
		if (call.kind != SNOWFLAKE_CALL_RELEASE)
			failed_at = call.kind == SNOWFLAKE_CALL_CHANGE ? 0 : now.monotonic;
		return;
	}
	failed_at = result.node == 5000 ? now.monotonic : 0;
	if (result.kind == SNOWFLAKE_RESULT_OK &&
		(call.kind == SNOWFLAKE_CALL_START || call.kind == SNOWFLAKE_CALL_RECORD ||
		 call.kind == SNOWFLAKE_CALL_CHANGE))
		recorded = own_uses == SNOWFLAKE_USES_ANOTHER;
	if (call.kind == SNOWFLAKE_CALL_CHANGE && result.notice[0] == '\0')
		issued_until = DT_NOBEGIN;
}

static void
check_call(const SnowflakeMachine *before, const Step *event)
{
	static const SnowflakeCallKind calls[NUM_STATES] = {
		[SNOWFLAKE_LEASE_NEW] = SNOWFLAKE_CALL_START,
		[SNOWFLAKE_LEASE_NO_TABLE] = SNOWFLAKE_CALL_START,
		[SNOWFLAKE_LEASE_ASKING] = SNOWFLAKE_CALL_ACQUIRE,
		[SNOWFLAKE_LEASE_GRANTED] = SNOWFLAKE_CALL_RECORD,
		[SNOWFLAKE_LEASE_OPEN] = SNOWFLAKE_CALL_RENEW,
		[SNOWFLAKE_LEASE_ENDING] = SNOWFLAKE_CALL_RELEASE,
		[SNOWFLAKE_LEASE_CHANGING] = SNOWFLAKE_CALL_CHANGE
	};
	const Row  *row = row_of(&call.token);
	bool		own = machine.request.registry[0] == '\0';

	must(STATE, call.kind == calls[machine.state] && machine.call == call.kind);
	must(NUMBER, call.number == before->calls + 1 && machine.call_number == call.number &&
		 machine.calls == before->calls + (call.kind == SNOWFLAKE_CALL_CHANGE ? SNOWFLAKE_CHANGE_CALLS : 1));
	must(ONE, before->call == SNOWFLAKE_CALL_NONE ||
		 (event->kind != SNOWFLAKE_EVENT_TIME && event->kind != SNOWFLAKE_EVENT_SEALED &&
		  (event->kind != SNOWFLAKE_EVENT_REQUEST || before->call == SNOWFLAKE_CALL_ACQUIRE)));
	must(RETRY, failed_at == 0 || now.monotonic - failed_at >= SECONDS(1) ||
		 call.last || call.kind == SNOWFLAKE_CALL_CHANGE);
	must(RECOVERY, !now.recovery || before->state != SNOWFLAKE_LEASE_STANDBY);
	if (call.kind == SNOWFLAKE_CALL_RENEW)
	{
		must(OVER, !row->over);
		must(LATER, call.has_lease && call.end > machine.leased_until);
		return;
	}
	if (call.kind == SNOWFLAKE_CALL_ACQUIRE)
		must(ALLOWED, machine.request.valid && strcmp(call.registry, machine.request.registry) == 0 &&
			 (machine.uses == SNOWFLAKE_USES_NOTHING || own == (machine.uses == SNOWFLAKE_USES_OWN)));
	if (call.kind != SNOWFLAKE_CALL_RECORD)
		must(KNOWN, call.known_until >= issued_until);
	if (call.has_lease && call.kind != SNOWFLAKE_CALL_RECORD)
		must(END, row->over && call.end >= row->issued_until && call.end >= machine.starts_at);
}

static void
check_open(void)
{
	const Row  *row = row_of(&machine.token);
	const SnowflakeNumberRequest *request = &machine.request;

	must(DURABLE, machine.state == SNOWFLAKE_LEASE_OPEN && machine.leased_until <= row->leased_until);
	must(OVER, !row->over);
	must(REQUESTED, request->valid && machine.node >= request->first && machine.node <= request->last &&
		 strcmp(request->registry, machine.lease_request.registry) == 0);
	must(RECORDED, request->registry[0] == '\0' || recorded);
	must(RECOVERY, !now.recovery);
}

static void
check_step(const SnowflakeMachine *before, const Step *event)
{
	const SnowflakeProblem *problem;
	SnowflakePhase phase = snowflake_machine_phase(&machine, &now, &problem);
	bool		was_on = before->state == SNOWFLAKE_LEASE_OPEN || before->state == SNOWFLAKE_LEASE_GRANTED;

	met[machine.state]++;
	must(SEALED, !words_open || machine.state == SNOWFLAKE_LEASE_OPEN || machine.state == SNOWFLAKE_LEASE_SEALING);
	must(SEALING, !was_on || machine.state == SNOWFLAKE_LEASE_OPEN ||
		 machine.state == SNOWFLAKE_LEASE_SEALING || machine.state == before->state);
	must(SEALING, before->state != SNOWFLAKE_LEASE_SEALING || machine.state == SNOWFLAKE_LEASE_SEALING ||
		 event->kind == SNOWFLAKE_EVENT_SEALED);
	must(DECREASE, before->state != SNOWFLAKE_LEASE_OPEN || machine.state != SNOWFLAKE_LEASE_OPEN ||
		 machine.leased_until >= before->leased_until);
	must(ONE, before->call == SNOWFLAKE_CALL_NONE || machine.call != SNOWFLAKE_CALL_NONE ||
		 event->kind != SNOWFLAKE_EVENT_TIME || action.kind == SNOWFLAKE_ACTION_SEAL);
	must(TOLD, !before->has_lease || machine.has_lease || event->kind == SNOWFLAKE_EVENT_RESULT);
	must(PHASE, (phase == SNOWFLAKE_READY) <= (machine.state == SNOWFLAKE_LEASE_OPEN) &&
		 (problem->sqlerrcode != 0) == (phase == SNOWFLAKE_RETRYING || phase == SNOWFLAKE_REFUSED));
	if (action.kind == SNOWFLAKE_ACTION_WAIT)
		must(WAIT, action.until > now.monotonic && action.until <= now.monotonic + SECONDS(60));
	else if (action.kind == SNOWFLAKE_ACTION_CALL)
		check_call(before, event);
	else if (action.kind == SNOWFLAKE_ACTION_OPEN)
		check_open();
}

static void
perform(void)
{
	if (action.kind == SNOWFLAKE_ACTION_OPEN)
		words_open = true;
	if (action.kind == SNOWFLAKE_ACTION_SEAL)
	{
		words_open = false;
		issued_until = Max(issued_until, row_of(&machine.token)->issued_until);
	}
}

/* As run_machine() of worker.c; returns false if the lease worker is killed. */
static bool
run_machine(const Step *event)
{
	for (int actions = 0; actions < 20; actions++)
	{
		static SnowflakeMachine before;

		before = machine;
		note_event(event);
		take(event);
		num_steps++;
		check_step(&before, event);
		must(BUSY, actions <= 4);
		if (action.kind == SNOWFLAKE_ACTION_WAIT)
			return true;
		if (action.kind == SNOWFLAKE_ACTION_EXIT || draw(50) == 0)
			return false;
		perform();
		if (draw(50) == 0)
			return false;
		event = step_of(action.kind == SNOWFLAKE_ACTION_SEAL ? "sealed" : "time");
	}
	return true;
}

void
walk(uint64 seed)
{
	bool		alive = false;
	int			least = WALK_EVENTS;

	begin("random walk");
	printf("# SEED=" UINT64_FORMAT "\n", seed);
	random_state = seed * 2 + 1;
	table_there = true;
	restart_server();
	for (int i = 0; i < WALK_EVENTS; i++)
	{
		live();
		alive = run_machine(alive ? choose_event() : step_of("worker"));
	}
	for (int i = 0; i < NUM_INVARIANTS; i++)
		check(broken[i] == 0, texts[i]);
	for (int state = 0; state < NUM_STATES; state++)
		least = Min(least, met[state]);
	if (!check(least >= WALK_EVENTS / 1000, "it comes into all states again and again"))
		printf("# into one of them %d times\n", least);
}
