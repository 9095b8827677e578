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
	I(DURABLE, "words are opened for a lease of this start, as its row has it, up to an end that it has") \
	I(REQUESTED, "words are opened for a number and a registry that the settings ask for") \
	I(RECORDED, "words are opened when the registry is recorded in the own tables") \
	I(OVER, "a lease that is over, or that a call has shown to be, is never opened or renewed") \
	I(CHANGE, "words of a lease are opened when those of the one before are sealed") \
	I(SEALED, "in all states but open and sealing the words are sealed, unless a registry is left") \
	I(SEALING, "a lease ends by sealing, and sealing ends by its result") \
	I(LEAVING, "while a registry is left its lease stays as it is, to the last moment") \
	I(REPEAT, "no lease is taken that starts before ids which it could repeat have ended") \
	I(DECREASE, "leased_until never decreases while the words are open") \
	I(NUMBER, "call numbers increase") \
	I(STATE, "a call is made in the state that it belongs to, to where it belongs") \
	I(ONE, "no call is made while one is out, unless it was given up on") \
	I(LATER, "a renewal asks for a later end") \
	I(ALLOWED, "a lease is asked for as the settings say, and the record is told") \
	I(NAMED, "calls name the newest lease that was opened, and the call that was granted it") \
	I(END, "a lease is named with an end at or after all its ids when it is sealed, else without") \
	I(KNOWN, "the end of ended leases that is said is at or after all their ids") \
	I(FLOOR, "a registry that may not know of ids is told to start after them") \
	I(FIXED, "a fixed number is not asked for elsewhere while its ids go on") \
	I(TOLD, "a lease is forgotten only when the registry knows its end") \
	I(RECOVERY, "no call and no id before promotion") \
	I(RETRY, "after a failure the next call is made about a second later; if the registry is overloaded, within 15 s; after a refusal, when the registry says, but of the own tables within about a second; or after a change") \
	I(THIRD, "no wait for the next call is longer than a third of what is left of the lease") \
	I(RENEWED, "a lease is not due before about a quarter of the window is used, unless it got less") \
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
	{"registry", 2}, {"registry 7", 1}, {"registry 0 to 3", 1}, {"elsewhere", 2}, {"elsewhere 7", 1},
	{"invalid", 1}, {"sealed", 1}, {"look", 1}, {"release", 1}, {"stop", 1}
};

static uint64 random_state;
static int	num_steps;
static int	met[2][NUM_STATES];

/* What is so, and what the machine cannot know. */
static int	open_row;			/* whose words are open; 0: they are sealed */
static TimestampTz open_until;	/* their limit */
static int	opened;				/* the newest row that was opened; 0: none of
								 * this start */
static int	holder;				/* the registry that has taken over the others */
static bool table_there;
static SnowflakeUses recorded;	/* as the machine was told last */
static pg_uuid_t recorded_incarnation;
static int64 failed_at;			/* 0: nothing has failed */
static int64 least_wait;		/* after that */
static int64 longest_wait;
static bool may_refuse;			/* backends may be told so */
static bool not_asked_for;		/* the next result grants what it must not */
static TimestampTz number_ends[NUM_NUMBERS];	/* of ids of sealed leases of
												 * this start */

/* The ends of sealed leases of this start, by the registry and its generation. */
#define MAX_ENDS		1000
static struct
{
	pg_uuid_t	incarnation;
	int			generation;
	TimestampTz end;
}			ends[MAX_ENDS];
static int	num_ends;

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
	num_starts++;
	open_row = opened = num_ends = 0;
	for (int i = 0; i < NUM_NUMBERS; i++)
		number_ends[i] = DT_NOBEGIN;
	recorded = SNOWFLAKE_USES_NOTHING;
	now.recovery = draw(2) == 0;
	failed_at = 0;
}

/* Registries are promoted, and moved. */
static void
live_elsewhere(void)
{
	int			registry = draw(NUM_REGISTRIES);

	if (draw(500) == 0)
		generations[registry]++;
	if (draw(100) == 0)
		holder = registry;
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
	now.openable = machine.state == SNOWFLAKE_LEASE_OPEN && open_row != 0 && draw(30) == 0;
	if (open_row != 0 && draw(2) == 0)
	{
		Row		   *row = &rows[open_row];

		row->issued_until = Max(row->issued_until, Max(row->starts_at, open_until - draw(SECONDS(1))));
		now.issued = true;
	}
	if (draw(100) == 0)
		table_there = false;
	if (draw(20) == 0)
		now.recovery = false;
	live_elsewhere();
	if (draw(5000) == 0)
		restart_server();
}

/*
 * The registry that is asked: the row that is named is closed, if its ids have
 * ended, and what was granted by later calls was never opened.
 */
static void
carry_out(void)
{
	for (int i = num_rows; i > 0 && rows[i].start == num_starts && rows[i].granted_by > call.lease.granted_by; i--)
		rows[i].over |= rows[i].registry == registry_of(call.registry);
	if (call.lease.granted_by != 0 && call.lease.ids_end_at != DT_NOBEGIN)
		row_of(&call.lease.token)->over = true;
}

static bool
record_differs(void)
{
	const SnowflakeRecordCall *said = &call.u.record;

	return own_uses == SNOWFLAKE_USES_NOTHING ? said->uses.known :
		!said->uses.known || !same_uuid(&said->uses.incarnation, &own_incarnation);
}

static const Step *
give_result(const char *name)
{
	const Step *step = step_of(name);

	if (step->result != SNOWFLAKE_RESULT_OK)
		answer_step(step);
	return step;
}

/* The machine keeps the latest ends of so many numbers. */
static bool
is_kept(uint64 node)
{
	int			later = 0;

	for (int i = 0; i < NUM_NUMBERS; i++)
		later += number_ends[i] >= number_ends[node];
	return number_ends[node] != DT_NOBEGIN && later <= SNOWFLAKE_ENDED_NUMBERS;
}

/* Something else answers at the registry's address. */
static void
answer_falsely(void)
{
	const SnowflakeAcquireCall *asked = &call.u.acquire;
	SnowflakeAcquireResult *granted = &result.u.acquire;
	int			what = draw(5);

	if (call.kind == SNOWFLAKE_CALL_RENEW)
		result.u.renew.leased_until += SECONDS(draw(1000000000));
	if (call.kind != SNOWFLAKE_CALL_ACQUIRE)
		return;
	if (what == 0)
		granted->leased_until += SECONDS(draw(1000000000));
	else if (what == 1)
		granted->node = 5000;
	else if (what == 2 && is_kept(granted->node))
		granted->starts_at = number_ends[granted->node] - 1;
	else if (what == 3 && asked->ids_end_at != DT_NOBEGIN)
	{
		granted->incarnation = uuid_of("another");
		granted->starts_at = asked->ids_end_at - 1;
	}
	else if (what == 4 && !asked->fixed)
		granted->starts_at = call.clock + call.max_ahead + SECONDS(10) + 1;
	else
		return;
	not_asked_for = what != 0;
}

/* The result of the call that is out. */
static const Step *
choose_result(void)
{
	/* START and RECORD name no registry */
	int			registry = registry_of(call.registry);
	bool		own = registry == 0;
	bool		failed = draw(5) == 0;
	bool		of_lease = call.kind == SNOWFLAKE_CALL_ACQUIRE || call.kind == SNOWFLAKE_CALL_RENEW;

	not_asked_for = false;
	/* it may have been carried out all the same */
	if (failed && draw(2) == 0)
		return give_result(own || draw(2) == 0 ? "failed" : "overloaded");
	if (own && !table_there && !(call.kind == SNOWFLAKE_CALL_START && call.u.start.create))
		return give_result("missing");
	if (own && !table_there)
	{
		table_there = true;
		own_uses = SNOWFLAKE_USES_NOTHING;
	}
	if ((of_lease && registry != holder) || draw(50) == 0)
		return give_result(draw(10) == 0 ? "refused at once" : draw(2) == 0 ? "refused for 4 s" : "refused");
	/* the clock is too far behind */
	if (call.kind == SNOWFLAKE_CALL_ACQUIRE && floor_of_call() > call.clock + now.max_ahead + SECONDS(10))
		return give_result("refused");
	if ((call.kind == SNOWFLAKE_CALL_RENEW || call.kind == SNOWFLAKE_CALL_RELEASE) &&
		(draw(10) == 0 || row_of(&call.lease.token)->generation != generations[registry]))
		return give_result("no");
	if (call.kind == SNOWFLAKE_CALL_RECORD && record_differs())
		return give_result("no");
	if (call.kind != SNOWFLAKE_CALL_START && call.kind != SNOWFLAKE_CALL_RECORD)
		carry_out();
	answer(SNOWFLAKE_RESULT_OK);
	if (failed)
		return give_result("failed");
	if (draw(20) == 0)
		answer_falsely();
	if (call.kind == SNOWFLAKE_CALL_START && draw(10) == 0)
		result.u.start.starts_at = now.clock;
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

/* A call has failed, or was refused: how long the next one has to wait. */
static void
note_failure(const Step *event)
{
	int64		left = open_row == 0 ? 0 : open_until - now.clock;
	int64		wait = SECONDS(event->wait);

	failed_at = now.monotonic;
	may_refuse = event->result == SNOWFLAKE_RESULT_REFUSED;
	if (event->result == SNOWFLAKE_RESULT_FAILED)
	{
		least_wait = SECONDS(0.75);
		longest_wait = event->overloaded ? SECONDS(15) : SECONDS(1.25);
	}
	else
	{
		if (machine.refused_until != 0) /* and the call before as well */
			wait = Max(wait, SECONDS(0.5));
		wait = Min(wait, SECONDS(call.registry[0] == '\0' ? 1 : 8));
		least_wait = wait * 3 / 4;
		longest_wait = wait * 5 / 4;
	}
	if (left > 0)
		least_wait = Min(least_wait, Max(left / 3, SECONDS(0.75)));
}

/* What is so after an event, whatever the machine makes of it. */
static void
note_event(const Step *event)
{
	if (event->kind == SNOWFLAKE_EVENT_LOOK)
		recorded = SNOWFLAKE_USES_NOTHING;
	if (event->kind == SNOWFLAKE_EVENT_REQUEST || event->kind == SNOWFLAKE_EVENT_LOOK)
		failed_at = 0;
	if (event->kind != SNOWFLAKE_EVENT_RESULT)
		return;
	if (event->result == SNOWFLAKE_RESULT_FAILED || event->result == SNOWFLAKE_RESULT_REFUSED)
	{
		/* a RELEASE that failed is not made again, and has no pause */
		if (call.kind != SNOWFLAKE_CALL_RELEASE)
			note_failure(event);
		return;
	}
	failed_at = 0;
	if (result.kind != SNOWFLAKE_RESULT_OK)
		return;
	if (call.kind == SNOWFLAKE_CALL_ACQUIRE && not_asked_for)
	{
		failed_at = now.monotonic;
		least_wait = SECONDS(0.75);
		longest_wait = SECONDS(1.25);
		may_refuse = true;
	}
	else if (call.kind == SNOWFLAKE_CALL_START || call.kind == SNOWFLAKE_CALL_RECORD ||
			 (call.kind == SNOWFLAKE_CALL_ACQUIRE && call.registry[0] == '\0'))
	{
		recorded = own_uses;
		recorded_incarnation = own_incarnation;
	}
}

/* A call has just failed. */
static void
check_wait(void)
{
	int64		left = machine.lease.leased_until - now.clock;
	int64		wait = machine.retry_at - now.monotonic;

	must(RETRY, wait >= least_wait && wait <= longest_wait);
	must(THIRD, open_row == 0 || left <= 0 || wait <= Max(SECONDS(1.25), left / 3));
}

/* What is said of the start's leases, in the calls that do. */
static void
check_named(void)
{
	const SnowflakeNamedLease *named = &call.lease;
	const Row  *row = row_of(&named->token);

	must(NAMED, named->granted_by >= rows[opened].granted_by || opened == 0);
	if (named->granted_by == 0)
		return;
	must(NAMED, row->start == num_starts && row->granted_by == named->granted_by && row->node == named->node &&
		 same_uuid(&named->incarnation, &machine.lease.incarnation) && row->generation == named->generation &&
		 named->leased_until >= row->issued_until && named->leased_until <= row->leased_until);
	/* one that was never opened may be named when it is given back */
	must(NAMED, row == &rows[opened] || (row->over && row->issued_until == DT_NOBEGIN));
	must(END, (named->ids_end_at == DT_NOBEGIN) == (open_row != 0));
	must(END, named->ids_end_at == DT_NOBEGIN ||
		 (row->over && named->ids_end_at >= row->issued_until && named->ids_end_at >= row->starts_at));
	must(END, call.kind != SNOWFLAKE_CALL_RELEASE || open_row == 0);
}

static void
check_acquire(void)
{
	const SnowflakeAcquireCall *asked = &call.u.acquire;
	const SnowflakeNumberRequest *request = &machine.request;

	must(ALLOWED, request->valid && strcmp(call.registry, request->registry) == 0 &&
		 asked->first == request->first && asked->last == request->last && asked->fixed == request->fixed);
	must(ALLOWED, asked->uses.known == (recorded != SNOWFLAKE_USES_NOTHING) &&
		 (!asked->uses.known || same_uuid(&asked->uses.incarnation, &recorded_incarnation)));
	for (int i = 0; i < num_ends; i++)
	{
		must(KNOWN, asked->ids_end_at >= ends[i].end);
		if (!same_uuid(&ends[i].incarnation, &call.lease.incarnation) || ends[i].generation != call.lease.generation)
			must(FLOOR, asked->starts_at >= ends[i].end);
	}
	must(FIXED, open_row == 0 || !asked->fixed ||
		 rows[open_row].node < asked->first || rows[open_row].node > asked->last);
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
		[SNOWFLAKE_LEASE_ENDING] = SNOWFLAKE_CALL_RELEASE
	};
	const Row  *row = row_of(&call.lease.token);

	must(STATE, call.kind == calls[machine.state] && machine.call == call.kind);
	must(NUMBER, call.number == before->call_number + 1 && machine.call_number == call.number &&
		 machine.called_at == now.monotonic);
	must(ONE, before->call == SNOWFLAKE_CALL_NONE ||
		 (event->kind != SNOWFLAKE_EVENT_TIME && event->kind != SNOWFLAKE_EVENT_SEALED));
	must(RETRY, failed_at == 0 || now.monotonic - failed_at >= least_wait || call.last);
	must(RECOVERY, !now.recovery || before->state != SNOWFLAKE_LEASE_STANDBY);
	if (call.kind == SNOWFLAKE_CALL_START || call.kind == SNOWFLAKE_CALL_RECORD)
	{
		must(STATE, call.registry[0] == '\0' && call.lease.granted_by == 0);
		return;
	}
	check_named();
	if (call.kind == SNOWFLAKE_CALL_ACQUIRE)
		check_acquire();
	else
		must(STATE, call.lease.granted_by != 0 && registry_of(call.registry) == row->registry);
	if (call.kind == SNOWFLAKE_CALL_RENEW)
	{
		must(OVER, !row->over && &rows[opened] == row);
		must(LATER, Max(now.clock, row->starts_at) + call.u.renew.window > machine.lease.leased_until);
	}
}

static void
check_open(void)
{
	const SnowflakeLease *lease = &machine.lease;
	const Row  *row = row_of(&lease->token);
	const SnowflakeNumberRequest *request = &machine.request;

	must(RENEWED, lease->renew_left >= 0 && lease->renew_left <= lease->window * 13 / 16 + 1);
	must(DURABLE, machine.state == SNOWFLAKE_LEASE_OPEN && lease->leased_until <= row->leased_until &&
		 lease->node == row->node && lease->starts_at == row->starts_at && row->start == num_starts);
	must(OVER, !row->over);
	must(CHANGE, open_row == 0 || row == &rows[open_row]);
	must(CHANGE, row >= &rows[opened]);
	must(REQUESTED, request->valid && lease->node >= request->first && lease->node <= request->last &&
		 registry_of(request->registry) == row->registry);
	must(RECORDED, row->registry == 0 || row == &rows[opened] ||
		 (recorded == SNOWFLAKE_USES_ANOTHER && same_uuid(&recorded_incarnation, &lease->incarnation)));
	must(RECOVERY, !now.recovery);
}

/* The lease that was granted is taken: which of this start's ids it could repeat. */
static void
check_granted(void)
{
	const SnowflakeLease *next = &machine.next;

	must(REPEAT, !not_asked_for);
	must(REPEAT, next->starts_at >= number_ends[next->node]);
	must(REPEAT, open_row == 0 || next->node != rows[open_row].node || next->starts_at >= open_until);
	for (int i = 0; i < num_ends; i++)
		must(REPEAT, next->starts_at >= ends[i].end ||
			 (same_uuid(&ends[i].incarnation, &next->incarnation) && ends[i].generation == next->generation));
}

/* Why a lease whose registry is left may end: else it goes on. */
static bool
may_end(const SnowflakeMachine *before, const Step *event)
{
	return event->kind == SNOWFLAKE_EVENT_RELEASE || event->kind == SNOWFLAKE_EVENT_STOP ||
		event->kind == SNOWFLAKE_EVENT_LOOK || event->kind == SNOWFLAKE_EVENT_REQUEST ||
		(event->kind == SNOWFLAKE_EVENT_RESULT && machine.then == SNOWFLAKE_THEN_NEXT &&
		 machine.next.granted_by > machine.lease.granted_by) ||
		(machine.request.fixed && machine.then == SNOWFLAKE_THEN_ASK &&
		 before->lease.leased_until - now.clock <= now.max_ahead + 2 * now.tick);
}

static void
check_step(const SnowflakeMachine *before, const Step *event)
{
	const SnowflakeProblem *problem;
	SnowflakePhase phase = snowflake_machine_phase(&machine, &now, &problem);
	bool		is_open = machine.state == SNOWFLAKE_LEASE_OPEN || machine.leaving;
	bool		was_on = before->state == SNOWFLAKE_LEASE_OPEN || before->leaving;

	met[machine.leaving][machine.state]++;
	must(SEALED, open_row == 0 || is_open || machine.state == SNOWFLAKE_LEASE_SEALING);
	must(SEALED, !machine.leaving || &rows[opened] == row_of(&machine.lease.token));
	must(SEALING, !was_on || is_open || machine.state == SNOWFLAKE_LEASE_SEALING);
	must(SEALING, before->state != SNOWFLAKE_LEASE_GRANTED || is_open ||
		 machine.state == SNOWFLAKE_LEASE_SEALING || machine.state == before->state);
	must(SEALING, before->state != SNOWFLAKE_LEASE_SEALING || machine.state == SNOWFLAKE_LEASE_SEALING ||
		 event->kind == SNOWFLAKE_EVENT_SEALED);
	must(LEAVING, !before->leaving || !machine.leaving ||
		 memcmp(&before->lease, &machine.lease, sizeof(before->lease)) == 0);
	must(LEAVING, !before->leaving || machine.state != SNOWFLAKE_LEASE_SEALING || may_end(before, event));
	must(DECREASE, !was_on || !is_open || machine.lease.leased_until >= before->lease.leased_until);
	must(ONE, before->call == SNOWFLAKE_CALL_NONE || machine.call != SNOWFLAKE_CALL_NONE ||
		 event->kind != SNOWFLAKE_EVENT_TIME || action.kind == SNOWFLAKE_ACTION_SEAL);
	must(TOLD, before->lease.granted_by == 0 || machine.lease.granted_by != 0);
	must(TOLD, machine.lease.row_open || !before->lease.row_open ||
		 (event->kind == SNOWFLAKE_EVENT_RESULT && before->call == SNOWFLAKE_CALL_RELEASE &&
		  event->result != SNOWFLAKE_RESULT_FAILED && event->result != SNOWFLAKE_RESULT_REFUSED));
	must(PHASE, phase != SNOWFLAKE_READY || machine.state == SNOWFLAKE_LEASE_OPEN ||
		 (machine.leaving && machine.lease.leased_until > now.clock));
	must(PHASE, phase != SNOWFLAKE_REFUSED || !is_open || machine.lease.leased_until <= now.clock);
	must(PHASE, phase != SNOWFLAKE_REFUSED || may_refuse || !machine.request.valid);
	must(PHASE, (problem->sqlerrcode != 0) == (phase == SNOWFLAKE_RETRYING || phase == SNOWFLAKE_REFUSED));
	if (event->kind == SNOWFLAKE_EVENT_RESULT && before->call == SNOWFLAKE_CALL_ACQUIRE &&
		machine.next.granted_by == before->call_number)
		check_granted();
	if (failed_at == now.monotonic && event->kind == SNOWFLAKE_EVENT_RESULT)
		check_wait();
	if (action.kind == SNOWFLAKE_ACTION_WAIT)
		must(WAIT, action.until > now.monotonic && action.until <= now.monotonic + SECONDS(60));
	else if (action.kind == SNOWFLAKE_ACTION_CALL)
		check_call(before, event);
	else if (action.kind == SNOWFLAKE_ACTION_OPEN)
		check_open();
}

/* The words of the row are sealed: what their ids' end is. */
static void
note_end(const Row *row)
{
	pg_uuid_t	incarnation = incarnation_of(row->registry);
	int			i = 0;

	while (i < num_ends && (!same_uuid(&ends[i].incarnation, &incarnation) || ends[i].generation != row->generation))
		i++;
	if (i == num_ends)
	{
		ends[i].incarnation = incarnation;
		ends[i].generation = row->generation;
		ends[i].end = DT_NOBEGIN;
		num_ends = Min(num_ends + 1, MAX_ENDS - 1);
	}
	ends[i].end = Max(ends[i].end, row->issued_until);
	number_ends[row->node] = Max(number_ends[row->node], row->issued_until);
}

static void
perform(void)
{
	if (action.kind == SNOWFLAKE_ACTION_OPEN)
	{
		open_row = opened = row_of(&machine.lease.token) - rows;
		open_until = machine.lease.leased_until;
	}
	if (action.kind == SNOWFLAKE_ACTION_SEAL && open_row != 0)
	{
		must(OVER, row_of(&machine.lease.token) == &rows[open_row]);
		note_end(&rows[open_row]);
		open_row = 0;
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
		/* a call that is given up on may be carried out later */
		if (action.kind == SNOWFLAKE_ACTION_CALL && call.kind == SNOWFLAKE_CALL_RELEASE && draw(4) == 0)
			carry_out();
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
	{
		least = Min(least, met[false][state]);
		if (state >= SNOWFLAKE_LEASE_NEW && state <= SNOWFLAKE_LEASE_GRANTED && state != SNOWFLAKE_LEASE_NONE)
			least = Min(least, met[true][state]);
	}
	if (!check(least >= WALK_EVENTS / 5000, "it comes into all states again and again"))
		printf("# into one of them %d times\n", least);
}
