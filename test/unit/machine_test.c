/*
 * machine_test.c
 *	  Unit tests of the lease machine (src/lease/machine.c), outside the server.
 *
 * First comes the table of all events in all states, then scenarios, then a
 * random walk (walk.c).  Machines come into their states by steps and are never
 * compared as a whole, so the tests do not depend on fields that are added.
 *
 * The output is TAP.  SEED in the environment changes the random walk.
 */
#include "postgres.h"

#include "world.h"

/*
 * All events in all states
 */
#define STANDBY		"own"
#define NEW			STANDBY ", promoted"
#define NO_TABLE	NEW ", missing"
#define NONE		NEW ", ok"
#define ASKING		NEW ", wanted, ok"
#define OPEN		ASKING ", ok, time"
#define REFUSED		OPEN ", registry, sealed, ok, ok"
#define SEALING		OPEN ", release"
#define ENDING		OPEN ", release, sealed"
#define CHANGING	OPEN ", change, sealed"
#define STOPPED		OPEN ", stop, sealed, ok"
#define GRANTED		"registry, promoted, wanted, ok, ok"
#define REMOTE_OPEN	GRANTED ", ok, time"
#define RENEWING	REMOTE_OPEN ", 3 s"

static const struct
{
	const char *path;			/* the steps into the state */
	const char *events;			/* each of them */
	const char *expected;
}			expectations[] = {

	/* recovery: only promotion and the end are of interest */
	{STANDBY, "time, wanted, worker, registry, ok, sealed, look, release, change",
	"standby: wait 0.5"},
	{STANDBY, "promoted", "new: start"},
	{STANDBY, "stop", "stopped: exit"},

	/* START is out */
	{NEW, "time, registry, sealed, release", "new: wait 0.5"},
	{NEW, "worker, look", "new: start"},
	{NEW, "ok", "none: wait 60"},
	{NEW, "failed", "new: wait 1"},
	{NEW, "missing", "no table: wait 60"},
	{NEW, "change", "changing: change"},
	{NEW, "stop", "stopped: exit"},

	/* the table is created for the first id, not before */
	{NO_TABLE, "time, worker, registry, ok, sealed, release",
	"no table: wait 60"},
	{NO_TABLE, "wanted", "no table: start create"},
	{NO_TABLE, "look", "new: start"},
	{NO_TABLE, "change", "changing: change"},
	{NO_TABLE, "stop", "stopped: exit"},
	{NO_TABLE ", wanted", "ok", "asking: acquire"},
	{NO_TABLE ", wanted", "failed", "no table: wait 1"},
	{NO_TABLE ", invalid", "wanted", "no table: wait 60"},

	/* what the cluster uses may have been restored since: START is made again */
	{NONE, "time, worker, registry, ok, sealed, release", "none: wait 60"},
	{NONE, "look", "new: start"},
	{NONE, "wanted", "new: start create"},
	{NONE, "change", "changing: change"},
	{NONE, "stop", "stopped: exit"},
	{ENDING ", ok", "wanted", "asking: acquire"},
	{ENDING ", ok", "own 7", "none: wait 60"},
	{ENDING ", ok", "registry", "asking: wait 60"},

	/* ACQUIRE is out */
	{ASKING, "time, sealed", "asking: wait 0.5"},
	{ASKING, "look", "new: start create"},
	{ASKING, "worker, own 7, registry", "asking: acquire"},
	{ASKING, "invalid", "asking: wait 60"},
	{ASKING, "ok", "open: open"},
	{ASKING, "failed", "asking: wait 1"},
	{ASKING, "missing", "no table: start create"},
	{ASKING, "release", "none: wait 60"},
	{ASKING, "change", "changing: change"},
	{ASKING, "stop", "stopped: exit"},

	/* ACQUIRE is not made before the settings or the record change */
	{REFUSED, "time, wanted, worker", "asking: wait 60"},
	{REFUSED, "look", "new: start"},
	{REFUSED, "own", "asking: acquire"},
	{REFUSED, "release", "none: wait 60"},
	{REFUSED, "change", "changing: change"},
	{REFUSED, "stop", "stopped: exit"},

	/* RECORD is out */
	{GRANTED, "time, registry, sealed", "granted: wait 0.5"},
	{GRANTED, "worker", "granted: record"},
	{GRANTED, "elsewhere, missing, look, release, change, stop",
	"sealing: seal"},
	{GRANTED, "ok", "open: open"},
	{GRANTED, "failed", "granted: wait 1"},

	/* a lease of the own table */
	{OPEN, "time, own, ok, sealed", "open: wait 0.25"},
	{OPEN, "worker, openable", "open: open"},
	{OPEN, "own from 512, registry, invalid, look, release, change, stop",
	"sealing: seal"},

	/* a lease of another registry; RENEW is out */
	{RENEWING, "time, registry, sealed", "open: wait 0.5"},
	{RENEWING, "worker, openable, ok", "open: open"},
	{RENEWING, "own, closed, missing, look, release, change, stop",
	"sealing: seal"},
	{RENEWING, "failed", "open: wait 0.25"},

	/* only the true end leads out of it; an order replaces what follows */
	{SEALING, "time, openable, worker, registry, ok, look, release, change, stop",
	"sealing: seal"},
	{SEALING, "sealed", "ending: release"},
	{SEALING ", change", "sealed", "changing: change"},
	{SEALING ", stop", "sealed", "ending: release last"},
	{SEALING ", stop, worker", "sealed", "ending: release"},

	/* RELEASE is out; what follows does not depend on its result */
	{ENDING, "time, registry, sealed, look, release", "ending: wait 0.5"},
	{ENDING, "worker", "ending: release"},
	{ENDING, "ok, failed, closed, missing", "none: wait 60"},
	{ENDING, "change", "changing: change"},
	{ENDING, "stop", "ending: release last"},
	{ENDING ", stop", "failed", "stopped: exit"},

	/* CHANGE is out */
	{CHANGING, "time, registry, sealed, look, release", "changing: wait 0.5"},
	{CHANGING, "worker, change", "changing: change"},
	{CHANGING, "ok, failed", "new: start"},
	{CHANGING, "stop", "ending: release last"},

	/* only another lease worker goes on */
	{STOPPED, "time, registry, ok, sealed, look, release, change, stop",
	"stopped: exit"},
	{STOPPED, "worker", "new: start"},
	{STANDBY ", stop", "worker", "standby: wait 0.5"},
};

static void
test_table(void)
{
	bool		met[NUM_STATES][NUM_EVENTS] = {0};
	int			missing = 0;

	for (int i = 0; i < (int) lengthof(expectations); i++)
	{
		const char *event = expectations[i].events;

		for (;;)
		{
			size_t		length = strcspn(event, ",");
			char		name[80];

			strlcpy(name, event, Min(length + 1, sizeof(name)));
			begin("table");
			go(expectations[i].path);
			scenario = expectations[i].path;
			met[machine.state][find_step(event, length)->kind] = true;
			on(name, expectations[i].expected);
			if (event[length] == '\0')
				break;
			event += length + 2;
		}
	}
	for (int state = 0; state < NUM_STATES; state++)
		for (int kind = 0; kind < NUM_EVENTS; kind++)
			missing += !met[state][kind];
	scenario = "table";
	check_number(missing, 0, "pairs of state and event that are missing");
}

/*
 * Scenarios
 */
static void
check_lease_named(bool has_lease, TimestampTz end)
{
	check(call.has_lease == has_lease, "the call says whether there was a lease");
	if (has_lease)
		check_number(call.end, end, "it names the end of its ids");
}

static void
check_phase(const char *path, SnowflakePhase expected, bool of_request)
{
	const SnowflakeProblem *problem;

	begin("phase");
	go(path);
	scenario = path;
	check_number(snowflake_machine_phase(&machine, &now, &problem), expected, "the phase");
	check(problem == (of_request ? &machine.request.problem : &machine.problem), "whose problem");
	check((problem->sqlerrcode != 0) == (expected == SNOWFLAKE_RETRYING || expected == SNOWFLAKE_REFUSED),
		  "a problem is given if one is needed");
}

static void
test_phases(void)
{
	check_phase("promoted", SNOWFLAKE_STARTING, true);	/* settings not read */
	check_phase(STANDBY, SNOWFLAKE_STARTING, false);
	check_phase(NEW, SNOWFLAKE_STARTING, false);
	check_phase(NO_TABLE, SNOWFLAKE_STARTING, false);
	check_phase(NONE, SNOWFLAKE_STARTING, false);
	check_phase(ASKING, SNOWFLAKE_STARTING, false);
	check_phase(GRANTED, SNOWFLAKE_STARTING, false);
	check_phase(OPEN, SNOWFLAKE_READY, false);
	check_phase(RENEWING, SNOWFLAKE_READY, false);
	check_phase(SEALING, SNOWFLAKE_STARTING, false);
	check_phase(ENDING, SNOWFLAKE_STARTING, false);
	check_phase(CHANGING, SNOWFLAKE_STARTING, false);
	check_phase(STOPPED, SNOWFLAKE_STARTING, false);
	check_phase(NEW ", failed", SNOWFLAKE_RETRYING, false);
	check_phase(ASKING ", failed", SNOWFLAKE_RETRYING, false);
	check_phase(GRANTED ", failed", SNOWFLAKE_RETRYING, false);
	check_phase(RENEWING ", failed", SNOWFLAKE_RETRYING, false);
	check_phase(RENEWING ", failed, 1 s, ok", SNOWFLAKE_READY, false);
	check_phase(ASKING ", failed, look", SNOWFLAKE_STARTING, false);
	check_phase(REFUSED, SNOWFLAKE_REFUSED, false);
	check_phase(STANDBY ", invalid", SNOWFLAKE_REFUSED, true);
	check_phase(ASKING ", invalid", SNOWFLAKE_REFUSED, true);
	check_phase(OPEN ", invalid", SNOWFLAKE_REFUSED, true);
}

/* A result of ACQUIRE that the world would not give. */
static void
grant(uint64 node, TimestampTz starts_at, TimestampTz leased_until)
{
	result.kind = SNOWFLAKE_RESULT_OK;
	result.node = node;
	result.starts_at = starts_at;
	result.leased_until = leased_until;
}

static void
test_first_lease(void)
{
	begin("first lease");
	go(NONE);
	on("wanted", "new: start create");
	on("ok", "asking: acquire");
	check_text(call.registry, "", "it is asked of the own table");
	check(call.first == 0 && call.last_number == 1022 && !call.fixed, "for the numbers of the request");
	check_number(call.window, SECONDS(10), "the first window is short");
	check(call.clock == now.clock && call.max_ahead == now.max_ahead && call.tick == now.tick,
		  "the call has clock and settings");
	check(!call.has_incarnation && call.known_until == DT_NOBEGIN, "nothing is known of earlier leases");
	check_lease_named(false, 0);
	on("ok", "open: open");
	check_number(machine.leased_until, rows[1].leased_until, "the words are opened up to the end of the row");

	begin("first lease of a registry");
	go("registry, promoted, wanted, ok");
	check_text(call.registry, "host=registry", "it is asked of the registry");
	on("ok", "granted: record");
	check(memcmp(&call.incarnation, &machine.incarnation, UUID_LEN) == 0, "its incarnation is recorded");
	on("failed", "granted: wait 1");
	on("1 s", "granted: record");
	on("ok", "open: open");

	begin("later start");
	own_uses = SNOWFLAKE_USES_OWN;
	go(NEW);
	on("ok", "asking: acquire");	/* nobody waits for an id */
	on("ok", "open: open");

	begin("later start with a registry");
	own_uses = SNOWFLAKE_USES_ANOTHER;
	own_incarnation = uuid_of("host=registry");
	go("registry, promoted");
	on("ok", "asking: acquire");
	check(call.has_incarnation && memcmp(&call.incarnation, &own_incarnation, UUID_LEN) == 0,
		  "it must be the recorded one");
	on("ok", "open: open");

	begin("registry that grants with another incarnation");
	own_uses = SNOWFLAKE_USES_ANOTHER;
	own_incarnation = uuid_of("host=registry");
	go("registry, promoted, ok");
	grant(5, now.clock, now.clock + call.window);
	on("ok", "granted: record");

	begin("lease that was not asked for");
	go("own from 512, promoted, wanted, ok");
	for (int i = 0; i < 3; i++)
	{
		go("wanted");
		grant(i == 0 ? 511 : i == 1 ? 1023 : 600, now.clock + (i == 2), now.clock);
		on("ok", "asking: wait 1");
		check_number(machine.problem.sqlerrcode, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "the problem");
		on("1 s", "asking: acquire");
		check_lease_named(false, 0);
	}
}

static void
check_renewal(const char *after, double window)
{
	now.issued = true;
	on(after, "open: renew");
	check_number(call.end - now.clock, SECONDS(window), "the window that is asked for");
	check(memcmp(&call.token, &machine.token, UUID_LEN) == 0, "of the lease");
	on("ok", "open: open");
	check_number(machine.leased_until, call.end, "the words are extended");
	on("time", "open: wait 0.25");
}

static void
test_renewal(void)
{
	begin("renewal");
	go(OPEN);
	on("2.4 s", "open: wait 0.25");
	check_renewal("0.1 s", 20);
	on("4.9 s", "open: wait 0.25");
	check_renewal("0.1 s", 40);
	check_renewal("10 s", 80);
	check_renewal("20 s", 120);
	on("29.9 s", "open: wait 0.25");
	check_renewal("0.1 s", 120);

	begin("renewal of a fixed number in the own table");
	go("own 7, promoted, wanted, ok");
	check_number(call.window, now.max_ahead + now.tick + SECONDS(1), "the window");
	go("ok, time");
	on("0.4 s", "open: wait 0.25");
	check_renewal("0.1 s", 2.001);
	check_renewal("0.5 s", 2.001);

	begin("renewal of a fixed number of another registry");
	go("registry 7, promoted, wanted, ok");
	check_number(call.window, now.lease_duration, "the window");
	go("ok, ok, time");
	on("29.9 s", "open: wait 0.25");
	check_renewal("0.1 s", 120);

	begin("renewal when a backend has found the limit");
	now.max_ahead = SECONDS(20);
	go(OPEN);
	on("wanted", "open: renew");
	on("ok", "open: open");
	on("time", "open: wait 0.25");	/* those who wait have to ask again */

	begin("renewal of a lease that starts later");
	now.max_ahead = SECONDS(20);
	go(ASKING);
	grant(5, now.clock + SECONDS(5), now.clock + SECONDS(15));
	go("ok, wanted");
	check_number(call.end, machine.starts_at + SECONDS(20), "the window is counted from there");

	begin("renewal of an idle lease of the own table");
	go(OPEN);
	on("61 s", "open: wait 60");
	on("1000 s", "open: wait 60");
	on("issued", "open: renew");

	begin("renewal of an idle lease of another registry");
	go(REMOTE_OPEN ", 61 s");
	check_number(machine.call, SNOWFLAKE_CALL_RENEW, "it is renewed");
	on("ok", "open: open");
	on("time", "open: wait 5");
	on("5 s", "open: renew");

	begin("renewal that fails");
	go(RENEWING);
	on("failed", "open: wait 0.25");
	on("0.9 s", "open: wait 0.25");
	on("0.1 s", "open: renew");
	on("failed", "open: wait 0.25");	/* nobody waits now: two seconds */
	on("1.9 s", "open: wait 0.25");
	on("0.1 s", "open: renew");
	on("ok", "open: open");

	begin("lease of the own table when the extension was created");
	go(OPEN ", 3 s");
	on("failed", "open: wait 0.25");
	on("look", "sealing: seal");
	go("sealed, closed");
	on("ok", "none: wait 60");	/* although a restore has brought the record */
	go("stop, worker");
	on("ok", "asking: acquire");	/* by then it is over */

	begin("renewal of a lease that is closed");
	go(RENEWING);
	rows[1].issued_until = now.clock;
	on("closed", "sealing: seal");
	on("sealed", "asking: acquire");
	check_lease_named(true, now.clock);
	check_number(call.known_until, now.clock, "no id of this start ends later");
	on("ok", "open: open");

	begin("renewal when the own table is gone");
	go(OPEN ", 3 s");
	on("missing", "sealing: seal");
	on("sealed", "ending: release");
	check_number(call.end, machine.starts_at, "a lease without ids ends where it starts");
	on("missing", "new: start");
	on("missing", "no table: wait 60");

	begin("result of a call that was given up on");
	go(RENEWING ", elsewhere");
	check_number(machine.call, SNOWFLAKE_CALL_NONE, "the worker takes no result");
	go("sealed");
	check(machine.call_number == call.number && call.number > 4, "the next call has another number");
}

static void
test_retries(void)
{
	static const char *const waits[] = {"1", "2", "4", "8", "16", "30", "30"};
	char		text[80];

	begin("retries while nobody waits");
	go(NEW);
	for (int i = 0; i < (int) lengthof(waits); i++)
	{
		snprintf(text, sizeof(text), "new: wait %s", waits[i]);
		on("failed", text);
		snprintf(text, sizeof(text), "%s s", waits[i]);
		on(text, "new: start");
	}
	scenario = "retries while somebody waits";
	go("failed, 1 s");
	on("wanted", "new: start create");
	on("failed", "new: wait 1");
	on("worker", "new: wait 1");
	on("own", "new: start create"); /* what was changed may help */
	on("failed", "new: wait 1");
	on("look", "new: start create");
}

static void
test_clock_behind(void)
{
	begin("clock behind the last id");
	go(OPEN);
	now.behind = SECONDS(5);
	on("wanted", "open: wait 0.25");	/* backends wait that long */
	now.behind = SECONDS(5) + 1;
	on("3 s", "open: renew");	/* nobody waits now */
	rows[1].issued_until = now.clock + SECONDS(6);
	on("wanted", "sealing: seal");
	on("sealed", "asking: acquire");
	check_lease_named(true, rows[1].issued_until);
	on("ok", "open: open");
	on("wanted", "open: wait 0.25");
	on("0.9 s", "open: wait 0.25"); /* at most once a second */
	on("0.1 s", "sealing: seal");

	begin("clock behind, and no time to wait");
	go(OPEN);
	now.max_wait = 0;
	now.behind = SECONDS(1);
	on("wanted", "open: wait 0.25");
	now.behind = SECONDS(1) + 1;
	on("wanted", "sealing: seal");

	begin("clock set back after a renewal has failed");
	go(RENEWING ", failed, 1 s, failed, 2 s, failed");
	check(machine.problem.sqlerrcode != 0, "the failure is known");
	now.clock -= SECONDS(3600);
	on("time", "open: wait 0.25");
	check(machine.problem.sqlerrcode == 0, "no renewal is due that could fail");
	now.clock += SECONDS(3600);
	on("0.9 s", "open: wait 0.25"); /* it is due again */
	on("0.1 s", "open: renew");

	begin("clock behind, a fixed number");
	go("own 7, promoted, wanted, ok, ok, time");
	now.behind = SECONDS(60);
	check(!snowflake_machine_can_move(&machine), "there is no other");
	on("wanted", "open: wait 0.25");

	begin("clock behind, several fixed numbers");
	go("own 8 to 11, promoted, wanted, ok, ok, time");
	now.behind = SECONDS(60);
	check(snowflake_machine_can_move(&machine), "there are others");
	on("wanted", "sealing: seal");
}

static void
test_wrong_clock(void)
{
	begin("words that the clock was too late for");
	go(OPEN ", 1000 s");
	on("openable", "open: open");	/* nobody has asked */
	on("time", "open: wait 60");
	go("wanted");
	check_number(machine.call, SNOWFLAKE_CALL_RENEW, "it is renewed");
	on("openable", "open: open");
	check_number(machine.call, SNOWFLAKE_CALL_RENEW, "the call is still out");
	on("time", "open: wait 0.5");
	on("ok", "open: open");

	begin("clock set back by ten years, an idle lease of another registry");
	go(REMOTE_OPEN ", 61 s, ok, time");
	now.clock -= SECONDS(10 * 365 * 86400.0);
	on("time", "open: wait 60");
	now.clock += SECONDS(10 * 365 * 86400.0);
	on("60 s", "open: renew");
}

static void
check_refused(const char *message, const char *detail, const char *hint)
{
	check_number(machine.problem.sqlerrcode, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "the SQLSTATE");
	check_text(machine.problem.message, message, "the message");
	check_text(machine.problem.detail, detail, "the detail");
	check_text(machine.problem.hint, hint, "the hint");
}

static void
check_refused_own(void)
{
	check_refused("the node numbers of this cluster come from a registry, and snowflake.registry is empty",
				  "The own table does not know what the servers of that registry issue.",
				  "Set snowflake.registry. To use the own table from now on, see \"Another registry\" in doc/operations.md.");
}

static void
test_requests(void)
{
	begin("request that the lease fits");
	go(OPEN ", own below 512");
	check(machine.state == SNOWFLAKE_LEASE_OPEN && machine.lease_request.last == 511, "the lease stays");

	begin("request for other numbers");
	go(OPEN ", own from 512");
	on("sealed", "asking: acquire");
	check(call.first == 512 && call.last_number == 1022, "others are asked for");
	check_lease_named(true, machine.starts_at);
	begin("request for a fixed number");
	go("own 8 to 11, promoted, wanted, ok, ok, time");
	on("own", "sealing: seal");

	begin("request for another registry");
	go(REMOTE_OPEN);
	on("elsewhere", "sealing: seal");
	on("sealed", "ending: release");
	check_text(call.registry, "host=registry", "the lease is closed where it was taken");
	check_lease_named(true, machine.starts_at);
	on("ok", "new: start");
	check_lease_named(false, 0);
	on("ok", "asking: acquire");
	check_text(call.registry, "host=elsewhere", "the other one is asked");
	on("ok", "asking: wait 1"); /* it has another incarnation */
	on("registry", "asking: acquire");
	on("ok", "open: open");

	begin("request that is invalid");
	go(OPEN ", invalid");
	on("sealed", "ending: release");
	on("ok", "new: start");
	on("ok", "asking: wait 60");
	on("own", "asking: acquire");

	begin("request for a registry, the own table was used");
	go(REFUSED);
	check_refused("the node numbers of this cluster come from its own table, and snowflake.registry is set",
				  "The registry does not know what this cluster has issued.",
				  "Unset snowflake.registry. To use the registry from now on, see \"Another registry\" in doc/operations.md.");

	begin("request for the own table, a registry was used");
	go(REMOTE_OPEN ", release, sealed, ok");
	on("own", "asking: wait 60");
	check_refused_own();

	begin("request for the own table, which was created again");
	go(REMOTE_OPEN);
	own_uses = SNOWFLAKE_USES_NOTHING;
	go("look, sealed, ok");
	on("own", "new: wait 0.5");
	on("wanted", "new: wait 0.5");
	on("ok", "asking: wait 60");
	check_refused_own();
	on("registry", "asking: acquire");
}

static void
test_orders(void)
{
	begin("release that the registry did not get");
	go(SEALING);
	rows[1].issued_until = now.clock + SECONDS(1);
	go("sealed, failed");
	on("time", "none: wait 60");	/* those who waited have to ask again */
	on("wanted", "asking: acquire");
	check_lease_named(true, rows[1].issued_until);
	check_number(call.known_until, rows[1].issued_until, "no id of this start ends later");
	go("ok, time, 3 s");
	check(memcmp(&call.token, &machine.token, UUID_LEN) == 0, "the next call names the new lease");

	begin("release after a failure");
	go(RENEWING ", failed, release");
	on("sealed", "ending: wait 1");
	on("1 s", "ending: release");
	begin("stop after a failure");
	go(RENEWING ", failed, stop");
	on("sealed", "ending: release last");

	begin("stop that the registry did not get");
	go(OPEN ", stop, sealed, failed, worker");
	on("ok", "asking: acquire");
	check_lease_named(true, machine.starts_at);

	begin("change of registry");
	go(REMOTE_OPEN ", own");
	rows[1].issued_until = now.clock;
	go("change, sealed");
	check_text(call.registry, "", "it is to the own table");
	check_text(call.old_registry, "host=registry", "from the other registry");
	check(call.create && call.old_known, "the table may be created");
	check_lease_named(true, now.clock);
	check_number(call.known_until, now.clock, "no id of this start ends later");
	on("ok", "new: start");
	check_number(call.number, machine.calls, "calls are counted");
	check_lease_named(false, 0);
	check(call.known_until == DT_NOBEGIN, "all ends are handed over");
	go("change");
	check(!call.old_known, "a second change hands over no lease");
	on("ok", "new: start");
	on("ok", "asking: acquire");
	on("ok", "open: open");

	begin("change of registry, not all is known");
	go(REMOTE_OPEN ", own");
	rows[1].issued_until = now.clock;
	go("change, sealed");
	answer(SNOWFLAKE_RESULT_OK);
	strlcpy(result.notice, "some ends are not known", sizeof(result.notice));
	on("ok", "new: start");
	check_number(call.known_until, now.clock, "the end is known still");

	begin("change of registry that fails");
	go(OPEN ", change, sealed");
	on("failed", "new: start");
	check_lease_named(true, machine.starts_at);

	begin("extension created again while there is no lease");
	go(REMOTE_OPEN ", release, sealed, ok");
	own_uses = SNOWFLAKE_USES_NOTHING;
	go("look, wanted");
	for (int i = 0; i < 5 && machine.call != SNOWFLAKE_CALL_NONE && machine.call != SNOWFLAKE_CALL_RECORD; i++)
		go("ok");
	check(machine.call == SNOWFLAKE_CALL_RECORD, "the registry is recorded before the first id");
}

/* What a registry is told of ids that it does not know. */
static void
test_floors(void)
{
	TimestampTz made;

	begin("floor of an own table that says nothing");
	go("registry, promoted, wanted");
	answer(SNOWFLAKE_RESULT_OK);
	made = result.starts_at = now.clock + SECONDS(3);
	on("ok", "asking: acquire");
	check_number(call.floor, made, "a registry that the server joins is told");
	go("ok, ok");
	go("stop, sealed, ok, worker, ok");
	check_number(call.floor, made, "for all leases of this start");

	begin("floor of an own table that is used");
	go("own, promoted, wanted");
	answer(SNOWFLAKE_RESULT_OK);
	result.starts_at = now.clock + SECONDS(3);
	on("ok", "asking: acquire");
	check(call.floor == DT_NOBEGIN, "it knows itself");

	begin("floor of an own table that was made again");
	go("registry, promoted, wanted");
	answer(SNOWFLAKE_RESULT_OK);
	result.starts_at = now.clock + SECONDS(3600);
	go("ok, failed, look");
	answer(SNOWFLAKE_RESULT_OK);
	made = result.starts_at = now.clock + SECONDS(4);
	on("ok", "asking: acquire");
	check_number(call.floor, made, "the former one is no matter");

	begin("floor after another incarnation");
	go(OPEN);
	rows[1].issued_until = now.clock + SECONDS(1);
	go("8 s, closed, sealed");
	check(call.kind == SNOWFLAKE_CALL_ACQUIRE && call.floor == DT_NOBEGIN, "known_until is enough for its first lease");
	check_number(call.known_until, rows[1].issued_until, "no id of this start ends later");
	answer(SNOWFLAKE_RESULT_OK);
	result.incarnation = uuid_of("made anew");
	on("ok", "open: open");
	go("release, sealed, ok, wanted");
	check_number(call.floor, rows[1].issued_until, "later leases start after it, too");

	begin("floor after a change of registry, not all is known");
	go(REMOTE_OPEN ", own");
	rows[1].issued_until = now.clock;
	go("change, sealed");
	answer(SNOWFLAKE_RESULT_OK);
	strlcpy(result.notice, "some ends are not known", sizeof(result.notice));
	go("ok, ok");
	check_number(call.floor, rows[1].issued_until, "the new registry is told");
}

/*
 * After whatever step a lease worker is killed, the next one comes to a lease.  If
 * it is refused one, because of the settings, the change is ordered (again).
 */
static void
test_killed_workers(void)
{
	static const char *const life[] = {
		"own", "promoted", "wanted", "ok", "ok", "time", "3 s", "ok", "time",
		"own from 512", "sealed", "ok", "time", "release", "sealed", "ok",
		"wanted", "ok", "time", "registry", "change", "sealed", "ok", "ok",
		"ok", "time", "8 s", "ok", "look", "sealed", "ok", "ok", "ok", "ok",
		"time", "stop", "sealed", "ok"
	};

	for (int killed = 1; killed <= (int) lengthof(life); killed++)
	{
		char		text[80];
		uint64		calls;

		begin("lease worker killed");
		for (int i = 0; i < killed; i++)
			go(life[i]);
		calls = machine.calls;
		go("worker");
		check(machine.call == SNOWFLAKE_CALL_NONE || machine.call_number > calls,
			  "the next one waits for no call that was out");
		go("promoted");
		for (int i = 0; i < 20 && machine.state != SNOWFLAKE_LEASE_OPEN; i++)
			go(machine.state == SNOWFLAKE_LEASE_SEALING ? "sealed" :
			   machine.call != SNOWFLAKE_CALL_NONE ? "ok" :
			   machine.state == SNOWFLAKE_LEASE_ASKING ? "change" : "wanted");
		snprintf(text, sizeof(text), "after %d steps, the next one comes to a lease", killed);
		check(machine.state == SNOWFLAKE_LEASE_OPEN && !row_of(&machine.token)->over, text);
	}
}

int
main(void)
{
	const char *seed = getenv("SEED");

	test_table();
	test_phases();
	test_first_lease();
	test_renewal();
	test_retries();
	test_clock_behind();
	test_wrong_clock();
	test_requests();
	test_orders();
	test_floors();
	test_killed_workers();
	walk(seed == NULL ? 1 : strtoul(seed, NULL, 10));
	printf("1..%d\n", num_checks);
	return num_failures > 0;
}
