/*
 * reasons.c
 *	  Why there is no id, and that ids go on by themselves: "Why there is no id" in
 *	  src/README names each row of reasons[] under what ends it.
 *
 * Each row is brought about and lasts for some time; then the world is right.  From
 * then on ids must be issued again within two seconds; within ten where another registry has refused, and within 15 s
 * where it was overloaded; whether a backend asks all the time or nobody does.  The lease worker's part is that of
 * worker.c, and the result of a call comes after RESULT_AFTER.
 */
#include "postgres.h"

#include "world.h"

#define RESULT_AFTER	0.05
/* In seconds. */
#define WITHIN			2.0
#define WITHIN_REFUSED		10.2
#define WITHIN_OVERLOADED	15.2
/* A backend that waits asks this often. */
#define ASK_AGAIN		1.0
/* The lease worker reads the settings, and looks at sealed words, this often. */
#define LOOK_AGAIN		1.0
#define YEARS			(365 * 86400.0)

typedef struct Reason
{
	const char *name;
	const char *path;			/* the steps until it begins */
	SnowflakeCallKind call;		/* the calls that go wrong; NONE: no call does */
	const char *fails;			/* how; "odd": a number that was not asked
								 * for; NULL: no result comes */
	const char *begins;			/* steps at the begin and the end of it; may
								 * be NULL */
	const char *ends;
	double		ahead;			/* meanwhile the clock is so many seconds
								 * ahead */
	double		behind;			/* the clock is so far behind the lease that
								 * is open: another one must be taken */
	bool		first;			/* no lease was ever taken here */
	bool		asked;			/* ids go on when one is asked for */
	bool		stands;			/* meanwhile no lease worker runs, and the
								 * call that was out is lost */
	SnowflakePhase phase;		/* what backends are told, in the end */
	int			sqlerrcode;		/* and with which SQLSTATE */
} Reason;

#define P03		ERRCODE_LOCK_NOT_AVAILABLE
#define P55		ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE
#define P53		ERRCODE_CONFIGURATION_LIMIT_EXCEEDED

/* As long as a registry can say. */
#define LONG_REFUSAL	"refused"

#define OWN			"own, promoted"
#define REMOTE		"registry, promoted"
#define OPENED		", ok, ok, time"

static const Reason reasons[] = {
	{"recovery", "own",.ends = "promoted",.phase = SNOWFLAKE_STARTING},
	{"start fails", OWN, SNOWFLAKE_CALL_START, "failed",.phase = SNOWFLAKE_RETRYING,.sqlerrcode = P03},
	{"start refused", OWN, SNOWFLAKE_CALL_START, LONG_REFUSAL,.phase = SNOWFLAKE_REFUSED,.sqlerrcode = P55},
	{"creation fails", OWN, SNOWFLAKE_CALL_START, "failed",.first = true,.asked = true,
	.phase = SNOWFLAKE_RETRYING,.sqlerrcode = P03},
	{"call fails", OWN, SNOWFLAKE_CALL_ACQUIRE, "failed",.phase = SNOWFLAKE_RETRYING,.sqlerrcode = P03},
	{"call of another registry fails", REMOTE, SNOWFLAKE_CALL_ACQUIRE, "failed",
	.phase = SNOWFLAKE_RETRYING,.sqlerrcode = P03},
	{"call refused", OWN, SNOWFLAKE_CALL_ACQUIRE, LONG_REFUSAL,.phase = SNOWFLAKE_REFUSED,.sqlerrcode = P55},
	{"call of another registry refused", REMOTE, SNOWFLAKE_CALL_ACQUIRE, LONG_REFUSAL,
	.phase = SNOWFLAKE_REFUSED,.sqlerrcode = P55},
	{"registry overloaded", REMOTE, SNOWFLAKE_CALL_ACQUIRE, "overloaded",
	.phase = SNOWFLAKE_RETRYING,.sqlerrcode = P03},
	{"renewal overloaded", REMOTE OPENED, SNOWFLAKE_CALL_RENEW, "overloaded",.phase = SNOWFLAKE_RETRYING,.sqlerrcode = P03},
	{"record fails", REMOTE, SNOWFLAKE_CALL_RECORD, "failed",.first = true,.begins = "wanted",
	.phase = SNOWFLAKE_RETRYING,.sqlerrcode = P03},
	{"renewal fails", REMOTE OPENED, SNOWFLAKE_CALL_RENEW, "failed",.phase = SNOWFLAKE_RETRYING,.sqlerrcode = P03},
	{"renewal refused", REMOTE OPENED, SNOWFLAKE_CALL_RENEW, LONG_REFUSAL,.phase = SNOWFLAKE_REFUSED,.sqlerrcode = P55},
	{"renewal of an own lease fails", OWN OPENED, SNOWFLAKE_CALL_RENEW, "failed",.asked = true,
	.phase = SNOWFLAKE_RETRYING,.sqlerrcode = P03},
	{"number not asked for", OWN, SNOWFLAKE_CALL_ACQUIRE, "odd",.phase = SNOWFLAKE_REFUSED,.sqlerrcode = P55},
	{"no number free", REMOTE, SNOWFLAKE_CALL_ACQUIRE, "none free",.phase = SNOWFLAKE_REFUSED,.sqlerrcode = P53},
	{"no answer", OWN, SNOWFLAKE_CALL_ACQUIRE, NULL,.asked = true,.phase = SNOWFLAKE_STARTING},
	{"no answer to a renewal", REMOTE OPENED, SNOWFLAKE_CALL_RENEW, NULL,.phase = SNOWFLAKE_READY},
	{"no lease worker", REMOTE OPENED ", 3 s",.stands = true,.ends = "worker",.phase = SNOWFLAKE_READY},
	{"no number in the settings", OWN OPENED,.begins = "invalid",.ends = "own",.phase = SNOWFLAKE_REFUSED,.sqlerrcode = P55},
	{"registry left refuses", OWN OPENED ", registry", SNOWFLAKE_CALL_ACQUIRE, LONG_REFUSAL,
	.phase = SNOWFLAKE_REFUSED,.sqlerrcode = P55},
	{"past the last end", REMOTE, SNOWFLAKE_CALL_ACQUIRE, LONG_REFUSAL,.ahead = 80 * YEARS,
	.phase = SNOWFLAKE_REFUSED,.sqlerrcode = P55},
	{"renewal past the last end", REMOTE OPENED, SNOWFLAKE_CALL_RENEW, LONG_REFUSAL,.ahead = 80 * YEARS,
	.phase = SNOWFLAKE_REFUSED,.sqlerrcode = P55},
	{"past the end of a layout", REMOTE,.ahead = 12 * YEARS,.ends = "openable",.phase = SNOWFLAKE_READY},
	{"clock behind", OWN OPENED,.behind = 60,.asked = true},
};

/* How long it lasts, in seconds. */
static const double durations[] = {0.3, 1, 2.9, 7.7, 61, 500, 5000};

/* What the clock showed when it was right, and the lease then. */
static TimestampTz begun_at;
static uint64 left;
static uint64 lost;				/* a call whose result never comes */

/* Monotonic: when it becomes right, and when a backend asked last. */
static int64 right_at;
static int64 asked_at;
static bool words_open;

/* The result of the call that is out, if one comes. */
static bool
give_result(const Reason *reason, bool wrong)
{
	if (machine.call_number != lost && (!wrong || machine.call != reason->call))
	{
		pass(RESULT_AFTER);
		answer(SNOWFLAKE_RESULT_OK);
		/* where the last lease of the number ends, whatever the clock shows */
		if (machine.call == SNOWFLAKE_CALL_ACQUIRE)
			result.u.acquire.starts_at = begun_at;
		go("ok");
		return true;
	}
	if (reason->fails == NULL || machine.call_number == lost)
		return false;
	pass(RESULT_AFTER);
	if (strcmp(reason->fails, "odd") != 0)
		go(reason->fails);
	else
	{
		answer(SNOWFLAKE_RESULT_OK);
		result.u.acquire.node = 5000;
		go("ok");
	}
	return true;
}

/* The lease worker sleeps, as long as the machine says: the world may become right meanwhile. */
static void
sleep_until(int64 until)
{
	if (now.monotonic < right_at)
		until = Min(until, right_at);
	pass(Max(until - now.monotonic, 0) / (double) USECS_PER_SEC);
}

static void
wait_for_next(bool asking)
{
	int64		until = asking ? Min(action.until, asked_at + SECONDS(ASK_AGAIN)) : action.until;

	sleep_until(until);
	if (now.monotonic < until)
		return;
	if (asking)
		asked_at = now.monotonic;
	go(asking ? "wanted" : "time");
}

/* What the lease worker does next. */
static void
live(const Reason *reason, bool wrong, bool asking)
{
	now.behind = machine.lease.granted_by == left ? SECONDS(reason->behind) : 0;
	if (wrong && reason->stands)
		sleep_until(right_at);
	else if (action.kind == SNOWFLAKE_ACTION_SEAL)
	{
		words_open = false;
		go("sealed");
	}
	else if (action.kind != SNOWFLAKE_ACTION_WAIT)
	{
		words_open |= action.kind == SNOWFLAKE_ACTION_OPEN;
		go("time");
	}
	else if (machine.call == SNOWFLAKE_CALL_NONE || !give_result(reason, wrong))
		wait_for_next(asking);
}

/* The world is right; the lease worker notices what it has to look for a second later. */
static void
make_right(const Reason *reason)
{
	now.clock -= SECONDS(reason->ahead);
	if (reason->ends == NULL)
		return;
	if (strcmp(reason->ends, "openable") == 0)
		words_open = false;
	if (strcmp(reason->ends, "promoted") == 0)
		now.recovery = false;
	else
	{
		pass(LOOK_AGAIN);
		go(reason->ends);
	}
}

static bool
is_issuing(const Reason *reason)
{
	const SnowflakeProblem *problem;

	return words_open && machine.state == SNOWFLAKE_LEASE_OPEN && action.kind == SNOWFLAKE_ACTION_WAIT &&
		(reason->behind == 0 || machine.lease.granted_by != left) &&
		machine.lease.leased_until > now.clock && machine.lease.starts_at <= now.clock + now.max_ahead &&
		snowflake_machine_phase(&machine, &now, &problem) == SNOWFLAKE_READY;
}

static void
check_told(const Reason *reason)
{
	const SnowflakeProblem *problem;

	check_number(snowflake_machine_phase(&machine, &now, &problem), reason->phase, "what backends are told");
	check_number(problem->sqlerrcode, reason->sqlerrcode, "with the SQLSTATE");
}

static void
bring_about(const Reason *reason, double duration)
{
	bool		remote = strncmp(reason->path, REMOTE, strlen(REMOTE)) == 0;

	begin(reason->name);
	if (!reason->first)
	{
		own_uses = remote ? SNOWFLAKE_USES_ANOTHER : SNOWFLAKE_USES_OWN;
		own_incarnation = incarnation_of(remote);
	}
	go(reason->path);
	begun_at = now.clock;
	left = machine.lease.granted_by;
	lost = reason->stands ? machine.call_number : 0;
	words_open = machine.state == SNOWFLAKE_LEASE_OPEN;
	now.clock += SECONDS(reason->ahead);
	if (reason->begins != NULL)
		go(reason->begins);
	asked_at = now.monotonic;
	right_at = now.monotonic + SECONDS(duration);
}

/* Seconds until ids go on, after it is right. */
static double
walk_reason(const Reason *reason, double duration, bool asking)
{
	bring_about(reason, reason->behind == 0 ? duration : 0);
	while (now.monotonic < right_at)
		live(reason, true, asking);
	if (duration > 60 && reason->behind == 0)
		check_told(reason);
	make_right(reason);
	while (!is_issuing(reason) && now.monotonic - right_at < SECONDS(300))
		live(reason, false, asking);
	return (now.monotonic - right_at) / (double) USECS_PER_SEC;
}

/* Within how many seconds ids must go on. */
static double
within(const Reason *reason)
{
	const Step *fails = reason->fails == NULL || strcmp(reason->fails, "odd") == 0 ? NULL :
	find_step(reason->fails, strlen(reason->fails));

	if (fails != NULL && fails->overloaded)
		return WITHIN_OVERLOADED;
	/* the own tables are asked again soon */
	return fails != NULL && fails->result == SNOWFLAKE_RESULT_REFUSED && machine.request.registry[0] != '\0' ?
		WITHIN_REFUSED : WITHIN;
}

void
test_reasons(void)
{
	for (int i = 0; i < (int) lengthof(reasons); i++)
	{
		const Reason *reason = &reasons[i];
		double		longest = 0;
		char		text[80];

		for (int j = 0; j < (int) lengthof(durations); j++)
			for (int asking = reason->asked; asking <= 1; asking++)
				longest = Max(longest, walk_reason(reason, durations[j], asking));
		snprintf(text, sizeof(text), "ids go on within %g s", longest);
		(void) check(longest <= within(reason), text);
	}
}
