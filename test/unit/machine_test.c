/*
 * machine_test.c
 *	  Unit tests of the lease machine (src/lease/machine.c), outside the server.
 *
 * First comes the table of all events in all states, then scenarios, the reasons
 * for which there is no id (reasons.c), and a random walk (walk.c).  Machines come into their states by steps and are never
 * compared as a whole, so the tests do not depend on fields that are added.
 *
 * The output is TAP.  SEED in the environment changes the random walk.
 */
#include "postgres.h"

#include <ctype.h>
#include <math.h>

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
#define SEALING		OPEN ", release"
#define ENDING		OPEN ", release, sealed"
#define STOPPED		OPEN ", stop, sealed, ok"
#define GRANTED		"registry, promoted, wanted, ok, ok"
#define REFUSED_CALL	"registry, promoted, wanted, ok"
#define REFUSED		REFUSED_CALL ", refused"
#define REMOTE_OPEN	GRANTED ", ok, time"
#define RENEWING	REMOTE_OPEN ", due"
/* Leaving the own tables, with number 1, for another registry; and the other way. */
#define LEAVING		OPEN ", registry"
#define L_NO_TABLE	LEAVING ", missing"
#define L_ASKING	LEAVING ", ok"
#define L_GRANTED	LEAVING ", ok, ok"
#define L_OVER		L_GRANTED ", ok"
#define RETURNING	REMOTE_OPEN ", own, ok"

static const struct
{
	const char *path;			/* the steps into the state */
	const char *events;			/* each of them */
	const char *expected;
}			expectations[] = {

	/* recovery: only promotion and the end are of interest */
	{STANDBY, "time, wanted, worker, registry, ok, sealed, look, release",
	"standby: wait 0.5"},
	{STANDBY, "promoted", "new: start"},
	{STANDBY ", wanted", "promoted", "new: start create"},
	{STANDBY ", invalid, wanted", "promoted", "new: start"},
	{STANDBY, "stop", "stopped: exit"},

	/* START is out */
	{NEW, "time, registry, sealed, release", "new: wait 0.5"},
	{NEW, "worker, look", "new: start"},
	{NEW, "ok", "none: wait 60"},
	{NEW, "failed", "new: wait to retry"},
	{NEW, "missing", "no table: wait 60"},
	{NEW, "stop", "stopped: exit"},

	/* the extension is created for the first id, not before */
	{NO_TABLE, "time, worker, registry, ok, sealed, release",
	"no table: wait 60"},
	{NO_TABLE, "wanted", "no table: start create"},
	{NO_TABLE, "look", "new: start"},
	{NO_TABLE, "stop", "stopped: exit"},
	{NO_TABLE ", wanted", "ok", "asking: acquire"},
	{NO_TABLE ", wanted", "failed", "no table: wait to retry"},
	{NO_TABLE ", invalid", "wanted", "no table: wait 60"},

	/* what the cluster uses may have been restored since: START is made again */
	{NONE, "time, worker, registry, ok, sealed, release", "none: wait 60"},
	{NONE, "look", "new: start"},
	{NONE, "wanted", "new: start create"},
	{NONE, "stop", "stopped: exit"},
	{ENDING ", ok", "wanted", "asking: acquire"},
	{ENDING ", ok", "own 7", "none: wait 60"},
	{ENDING ", ok", "registry", "asking: acquire"},

	/* ACQUIRE is out */
	{ASKING, "time, sealed", "asking: wait 0.5"},
	{ASKING, "look", "new: start create"},
	{ASKING, "worker, own 7, registry", "asking: acquire"},
	{ASKING, "invalid", "asking: wait 60"},
	{ASKING, "ok", "open: open"},
	{ASKING, "failed, refused", "asking: wait to retry"},
	{ASKING, "missing", "no table: start create"},
	{ASKING, "release", "none: wait 60"},
	{ASKING, "stop", "stopped: exit"},

	/*
	 * another registry has refused: the own tables may have another record by
	 * now
	 */
	{REFUSED, "time, wanted, worker, ok, missing, sealed, release", "new: wait to retry"},
	{REFUSED, "retry", "new: start"},
	{REFUSED, "own, elsewhere, look", "new: start create"},
	{REFUSED, "stop", "stopped: exit"},
	{"registry, promoted, wanted, ok", "failed", "asking: wait to retry"},
	{"registry, promoted, wanted, ok", "missing", "no table: start create"},

	/* RECORD is out */
	{GRANTED, "time", "granted: wait 0.5"},
	{GRANTED, "sealed", "granted: wait 0.5"},
	{GRANTED, "worker", "granted: record"},
	{GRANTED, "elsewhere, registry, registry below 512, invalid, own, missing, no, look, release, stop",
	"sealing: seal"},
	{GRANTED, "ok", "open: open"},
	{GRANTED, "failed, refused", "granted: wait to retry"},
	{GRANTED ", elsewhere", "sealed", "ending: release"},
	{GRANTED ", release", "sealed", "ending: release"},
	{GRANTED ", no", "sealed", "ending: release"},
	{GRANTED ", no, sealed", "ok", "new: start create"},

	/* a lease of the own tables */
	{OPEN, "time, own, own below 512, ok, sealed", "open: wait 0.25"},
	{OPEN, "worker, openable", "open: open"},
	{OPEN, "own from 512, own 7, invalid, look, release, stop",
	"sealing: seal"},
	{OPEN, "registry, registry 1, registry 7, elsewhere", "leaving new: start create"},

	/* a lease of another registry; RENEW is out */
	{RENEWING, "time, registry, sealed", "open: wait 0.5"},
	{RENEWING, "worker, openable, ok", "open: open"},
	{RENEWING, "no, missing, registry 7, look, release, stop",
	"sealing: seal"},
	{RENEWING, "own, elsewhere", "leaving new: start create"},
	{RENEWING, "failed, refused", "open: wait 0.25"},
	{RENEWING ", no", "sealed", "asking: acquire"},
	{RENEWING ", missing", "sealed", "ending: release"},

	/* only the true end leads out of it; an order replaces what follows */
	{SEALING, "time, openable, worker, registry, ok, look, release, stop",
	"sealing: seal"},
	{SEALING, "sealed", "ending: release"},
	{SEALING ", stop", "sealed", "ending: release last"},
	{SEALING ", stop, worker", "sealed", "ending: release"},
	{SEALING ", worker, sealed", "ok", "none: wait 60"},
	{SEALING ", stop, look", "sealed", "ending: release last"},

	/* RELEASE is out; what follows does not depend on its result */
	{ENDING, "time, registry, sealed, look, release", "ending: wait 0.5"},
	{ENDING, "worker", "ending: release"},
	{ENDING, "ok, failed, refused, no, missing", "none: wait 60"},
	{ENDING, "stop", "ending: release last"},
	{ENDING ", look", "ok", "new: start"},
	{ENDING ", stop", "failed", "stopped: exit"},

	/* only another lease worker goes on */
	{STOPPED, "time, registry, ok, sealed, look, release, stop",
	"stopped: exit"},
	{STOPPED, "worker", "new: start"},
	{STANDBY ", stop", "worker", "standby: wait 0.5"},

	/* leaving: START is out, while the words are open */
	{LEAVING, "time, wanted, openable, sealed", "leaving new: wait 0.5"},
	{LEAVING, "worker, elsewhere, registry 1", "leaving new: start create"},
	{LEAVING, "ok", "leaving asking: acquire"},
	{LEAVING, "failed, refused", "leaving new: wait to retry"},
	{LEAVING, "missing", "leaving no table: start create"},
	{LEAVING, "own, own below 512", "open: open"},
	{LEAVING, "own 7, own from 512, invalid, look, release, stop", "sealing: seal"},

	/* the extension is created whether ids are wanted or not */
	{L_NO_TABLE, "time, wanted, openable, sealed", "leaving no table: wait 0.5"},
	{L_NO_TABLE, "worker", "leaving no table: start create"},
	{L_NO_TABLE, "elsewhere", "leaving new: start create"},
	{L_NO_TABLE, "ok", "leaving asking: acquire"},
	{L_NO_TABLE, "failed", "leaving no table: wait to retry"},
	{L_NO_TABLE, "own", "open: open"},
	{L_NO_TABLE, "own 7, invalid, look, release, stop", "sealing: seal"},

	/* ACQUIRE is out */
	{L_ASKING, "time, wanted, openable, sealed", "leaving asking: wait 0.5"},
	{L_ASKING, "worker", "leaving asking: acquire"},
	{L_ASKING, "elsewhere, registry 7", "leaving new: start create"},
	{L_ASKING, "ok", "leaving granted: record"},
	{L_ASKING, "failed", "leaving asking: wait to retry"},
	{L_ASKING, "refused", "leaving new: wait to retry"},
	{L_ASKING, "own", "open: open"},
	{L_ASKING, "own 7, invalid, look, release, stop", "sealing: seal"},
	{RETURNING, "missing", "leaving no table: start create"},
	{RETURNING, "failed, refused", "leaving asking: wait to retry"},
	{RETURNING, "ok", "sealing: seal"},
	{RETURNING, "registry", "open: open"},

	/* RECORD is out */
	{L_GRANTED, "time, wanted, openable, sealed", "leaving granted: wait 0.5"},
	{L_GRANTED, "worker", "leaving granted: record"},
	{L_GRANTED, "elsewhere, registry 1, registry 7, no, missing", "leaving new: start create"},
	{L_GRANTED, "failed, refused", "leaving granted: wait to retry"},
	{L_GRANTED, "own", "open: open"},
	{L_GRANTED, "ok, own 7, invalid, look, release, stop", "sealing: seal"},

	/* it has been left: the next lease is opened when the words are sealed */
	{L_OVER, "time, openable, worker, ok", "sealing: seal"},
	{L_OVER, "sealed", "open: open"},
	{L_OVER ", worker", "sealed", "open: open"},
	{L_OVER ", release", "sealed", "ending: release"},
	{L_OVER ", look", "sealed", "ending: release"},
	{L_OVER ", stop", "sealed", "ending: release last"},

	/*
	 * its own number, as a fixed one: it is asked for when the lease is about
	 * to end
	 */
	{OPEN ", registry 1, ok", "time, wanted, worker, sealed", "leaving asking: wait 0.25"},
	{OPEN ", registry 0 to 3, ok", "7 s", "leaving asking: wait 0.25"},
	{OPEN ", registry 1, ok", "9.1 s, 1000 s", "sealing: seal"},
	{OPEN ", registry 1, ok, 9.1 s", "sealed", "asking: acquire"},
	{OPEN ", registry 7", "ok", "leaving asking: acquire"},
};

static void
test_table(void)
{
	bool		met[2][NUM_STATES][NUM_EVENTS] = {0};
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
			met[machine.leaving][machine.state][isdigit((unsigned char) *event) ? SNOWFLAKE_EVENT_TIME :
												find_step(event, length)->kind] = true;
			on(name, expectations[i].expected);
			if (event[length] == '\0')
				break;
			event += length + 2;
		}
	}
	for (int state = 0; state < NUM_STATES; state++)
		for (int kind = 0; kind < NUM_EVENTS; kind++)
		{
			missing += !met[false][state][kind];
			missing += state >= SNOWFLAKE_LEASE_NEW && state <= SNOWFLAKE_LEASE_GRANTED &&
				state != SNOWFLAKE_LEASE_NONE && !met[true][state][kind];
		}
	scenario = "table";
	check_number(missing, 0, "pairs of state and event that are missing");
}

/*
 * Scenarios
 */
/* The call names no lease (0), or the one of this row, with this end. */
static void
check_named(int row, TimestampTz end)
{
	pg_uuid_t	incarnation;

	check_number(call.lease.granted_by, row == 0 ? 0 : rows[row].granted_by, "the call that was granted the lease is named");
	if (row == 0)
		return;
	incarnation = incarnation_of(rows[row].registry);
	check(row_of(&call.lease.token) == &rows[row] && call.lease.node == rows[row].node, "token and number are those of the lease");
	check(same_uuid(&call.lease.incarnation, &incarnation) && call.lease.generation == rows[row].generation,
		  "the registry and its generation at the grant");
	check_number(call.lease.leased_until, machine.lease.leased_until, "the end that is known here");
	check_number(call.lease.ids_end_at, end, "the end of its ids");
}

/* What ACQUIRE says of leases that are over. */
static void
check_ended(TimestampTz end, int row, TimestampTz starts_at)
{
	const SnowflakeAcquireCall *asked = &call.u.acquire;

	check_number(call.kind, SNOWFLAKE_CALL_ACQUIRE, "a lease is asked for");
	check_number(asked->ids_end_at, end, "no id of this start ends later");
	if (end != DT_NOBEGIN)
		check(row_of(&call.lease.token) == &rows[row], "the last lease that was opened is named");
	check_number(asked->starts_at, starts_at, "the lease is to start at or after it");
}

static void
check_uses(const SnowflakeUsed *said, int registry)
{
	pg_uuid_t	incarnation = incarnation_of(registry);

	check(said->known && same_uuid(&said->incarnation, &incarnation), "the registry that is used is said");
}

/* It answers the call that is out; the test may change the answer. */
static SnowflakeResult *
answered(void)
{
	answer(SNOWFLAKE_RESULT_OK);
	return &result;
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
	check_phase(STOPPED, SNOWFLAKE_STARTING, false);
	check_phase(NEW ", failed", SNOWFLAKE_RETRYING, false);
	check_phase(NEW ", failed, retry, missing", SNOWFLAKE_STARTING, false);
	check_phase(ASKING ", failed", SNOWFLAKE_RETRYING, false);
	check_phase(ASKING ", refused", SNOWFLAKE_REFUSED, false);
	check_phase(GRANTED ", failed", SNOWFLAKE_RETRYING, false);
	check_phase(GRANTED ", failed, look", SNOWFLAKE_STARTING, false);
	check_phase(RENEWING ", failed", SNOWFLAKE_RETRYING, false);
	check_phase(RENEWING ", refused", SNOWFLAKE_RETRYING, false);
	check_phase(RENEWING ", failed, retry, missing, sealed, ok", SNOWFLAKE_STARTING, false);
	check_phase(OPEN ", 3 s, failed, 70 s", SNOWFLAKE_RETRYING, false); /* it is idle */
	check_phase(OPEN ", 3 s, refused, 70 s", SNOWFLAKE_RETRYING, false);	/* likewise: it may be
																			 * over */
	check_phase(ASKING ", not usable", SNOWFLAKE_REFUSED, false);
	check_phase(ASKING ", none free", SNOWFLAKE_REFUSED, false);
	check_phase(RENEWING ", none free", SNOWFLAKE_RETRYING, false);
	check_phase(RENEWING ", refused, 6.8 s", SNOWFLAKE_RETRYING, false);
	check_phase(RENEWING ", refused, 8 s", SNOWFLAKE_REFUSED, false);	/* it is over */
	check_phase(RENEWING ", failed, 8 s", SNOWFLAKE_RETRYING, false);
	check_phase(RENEWING ", not usable, 8 s", SNOWFLAKE_RETRYING, false);
	check_phase(RENEWING ", failed, retry, ok", SNOWFLAKE_READY, false);
	check_phase(RENEWING ", no", SNOWFLAKE_STARTING, false);
	check_phase(RENEWING ", failed, release, sealed, retry, failed", SNOWFLAKE_STARTING, false);
	check_phase(ASKING ", failed, look", SNOWFLAKE_STARTING, false);
	check_phase(REFUSED, SNOWFLAKE_REFUSED, false);
	check_phase(REFUSED ", retry", SNOWFLAKE_REFUSED, false);
	check_phase(REFUSED ", elsewhere", SNOWFLAKE_STARTING, false);
	check_phase(STANDBY ", invalid", SNOWFLAKE_REFUSED, true);
	check_phase(ASKING ", invalid", SNOWFLAKE_REFUSED, true);
	check_phase(OPEN ", invalid", SNOWFLAKE_REFUSED, true);

	/* ids go on while a registry is left, until the lease is over */
	check_phase(LEAVING, SNOWFLAKE_READY, false);
	check_phase(L_NO_TABLE, SNOWFLAKE_READY, false);
	check_phase(L_ASKING, SNOWFLAKE_READY, false);
	check_phase(L_GRANTED, SNOWFLAKE_READY, false);
	check_phase(L_ASKING ", failed", SNOWFLAKE_RETRYING, false);
	check_phase(L_ASKING ", refused", SNOWFLAKE_RETRYING, false);
	check_phase(L_ASKING ", refused, 9 s", SNOWFLAKE_RETRYING, false);
	check_phase(L_ASKING ", refused, 10 s", SNOWFLAKE_REFUSED, false);
	check_phase(L_ASKING ", failed, 10 s", SNOWFLAKE_RETRYING, false);
	check_phase(L_ASKING ", 10 s", SNOWFLAKE_STARTING, false);
	check_phase(L_ASKING ", refused, own", SNOWFLAKE_READY, false);
	check_phase(L_OVER ", sealed", SNOWFLAKE_READY, false);
}

static void
test_first_lease(void)
{
	begin("first lease");
	go(NONE);
	on("wanted", "new: start create");
	on("ok", "asking: acquire");
	check_text(call.registry, "", "it is asked of the own tables");
	check(call.u.acquire.first == 0 && call.u.acquire.last == 1022 && !call.u.acquire.fixed,
		  "for the numbers of the request");
	check_number(call.u.acquire.window, SECONDS(10), "the first window is short");
	check(call.clock == now.clock && call.max_ahead == now.max_ahead + now.tick,
		  "the call has the clock, and how far ahead ids may be");
	check(!call.u.acquire.uses.known, "nothing is used yet");
	check_ended(DT_NOBEGIN, 0, DT_NOBEGIN);
	check_named(0, 0);
	on("ok", "open: open");
	check_number(machine.lease.leased_until, rows[1].leased_until, "the words are opened up to the end of the row");
	check(machine.lease.node == rows[1].node && machine.lease.starts_at == rows[1].starts_at, "for its number and start");

	begin("first lease of a registry");
	go("registry, promoted, wanted");
	check(call.kind == SNOWFLAKE_CALL_START && call.registry[0] == '\0' && call.clock == now.clock &&
		  call.max_ahead == now.max_ahead + now.tick, "START goes to the own tables");
	go("ok");
	check_text(call.registry, "host=registry", "it is asked of the registry");
	on("ok", "granted: record");
	check_text(call.registry, "", "it is recorded in the own tables");
	check(same_uuid(&call.u.record.incarnation, &machine.next.incarnation), "its incarnation is recorded");
	check(!call.u.record.uses.known, "if nothing was used before");
	on("failed", "granted: wait to retry");
	on("retry", "granted: record");
	on("ok", "open: open");

	begin("later start");
	own_uses = SNOWFLAKE_USES_OWN;
	own_incarnation = incarnation_of(0);
	go(NEW);
	on("ok", "asking: acquire");	/* nobody waits for an id */
	check_uses(&call.u.acquire.uses, 0);
	on("ok", "open: open");

	begin("later start with a registry");
	own_uses = SNOWFLAKE_USES_ANOTHER;
	own_incarnation = incarnation_of(1);
	go("registry, promoted");
	on("ok", "asking: acquire");
	check_uses(&call.u.acquire.uses, 1);
	on("ok", "open: open");

	begin("registry that grants with another incarnation");
	own_uses = SNOWFLAKE_USES_ANOTHER;
	own_incarnation = incarnation_of(2);
	go("registry, promoted, ok");
	check_uses(&call.u.acquire.uses, 2);
	on("ok", "granted: record");
	check_uses(&call.u.record.uses, 2);

	begin("own tables that say another registry is used");
	own_uses = SNOWFLAKE_USES_ANOTHER;
	own_incarnation = incarnation_of(1);
	go("own, promoted, ok");
	check_uses(&call.u.acquire.uses, 1);
	on("ok", "open: open");
	go("release, sealed, ok, wanted");
	check_uses(&call.u.acquire.uses, 0);

	begin("registry with the incarnation of the own tables");
	own_uses = SNOWFLAKE_USES_OWN;
	own_incarnation = incarnation_of(1);
	go("registry, promoted, ok");
	on("ok", "granted: record");	/* own is not another */

	begin("record of another registry meanwhile");
	go(GRANTED);
	own_uses = SNOWFLAKE_USES_ANOTHER;
	own_incarnation = incarnation_of(2);
	on("no", "sealing: seal");
	go("sealed");
	check_named(1, rows[1].starts_at);
	go("ok");
	on("ok", "asking: acquire");
	check_uses(&call.u.acquire.uses, 2);
}

/* The answer to ACQUIRE is refused, with this detail; it is asked again, and then granted. */
static void
check_refused(const char *detail)
{
	uint64		named = call.lease.granted_by;

	on("ok", "asking: wait to retry");
	check_number(machine.problem.sqlerrcode, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "the problem");
	check_text(machine.problem.message, "the registry granted a lease that was not asked for", "the message");
	check_text(machine.problem.detail, detail, "the detail");
	check_text(machine.problem.hint, SNOWFLAKE_ANSWER_HINT, "the hint");
	on("retry", "asking: acquire");
	check_number(call.lease.granted_by, named, "the lease is not named: it was not opened");
}

static void
test_not_asked_for(void)
{
	static const char *const details[] = {
		"It granted node number 511; asked for was one from 512 to 1022.",
		"It granted node number 1023; asked for was one from 512 to 1022.",
		"The lease starts at 0 and ends at -1.",
		"The lease starts at 0; ids of this server end at 1.",
		"The lease starts at 11.001001; asked for was one that starts at or before 11.001.",
		"The lease starts at 0 and had ended at 0, before it was asked for."
	};

	for (int i = 0; i < (int) lengthof(details); i++)
	{
		SnowflakeAcquireResult *granted;

		begin("lease that was not asked for");
		go("registry, promoted, wanted");
		if (i == 3)
			answered()->u.start.starts_at = now.clock + SECONDS(1);
		go("ok, own from 512");
		if (i == 3)
			go("registry");
		granted = &answered()->u.acquire;
		if (i < 2)
			granted->node = i == 0 ? 511 : 1023;
		if (i == 2)
			granted->leased_until = granted->starts_at - SECONDS(1);
		if (i == 3)
			granted->starts_at = now.clock;
		if (i == 4)
			granted->starts_at = granted->leased_until = now.clock + SECONDS(11.001) + 1;
		if (i == 5)
			granted->leased_until = granted->starts_at;
		check_refused(details[i]);
	}

	begin("lease that starts as late as it can");
	go(ASKING);
	now.max_ahead = SECONDS(5);
	now.clock += SECONDS(60);	/* the call has said what they were */
	answered()->u.acquire.starts_at = now.clock - SECONDS(60) + SECONDS(11.001);
	result.u.acquire.leased_until = result.u.acquire.starts_at;
	on("ok", "open: open");

	begin("lease of a fixed number that starts late");
	go("own 7, promoted, wanted, ok");
	answered()->u.acquire.starts_at = now.clock + SECONDS(1e9);
	result.u.acquire.leased_until = DT_NOEND;
	on("ok", "open: open");		/* its ids were so far ahead */
	check_number(machine.lease.leased_until, machine.lease.starts_at + SECONDS(2.001), "it ends a window later");
}

/* Ids of earlier starts end at or before what the first grant says of them, and what it does not say has ended. */
static void
test_settled(void)
{
	TimestampTz asked;

	begin("first grant, by which ids of earlier starts go on");
	go(ASKING);
	answered()->u.acquire.cluster_ids_end_at = now.clock + SECONDS(5);
	go("ok");
	check_number(machine.settled_from, now.clock + SECONDS(5), "nothing is settled before their end");

	begin("first grant, by which they go on for longer than any lease");
	go(ASKING);
	answered()->u.acquire.cluster_ids_end_at = DT_NOEND;
	go("ok");
	check_number(machine.settled_from, now.clock + 2 * USECS_PER_DAY, "they do not");

	begin("first grant, by which they end where ids may be already");
	go(ASKING);
	answered()->u.acquire.cluster_ids_end_at = now.clock + now.max_ahead;
	go("ok");
	check_number(machine.lease.opens_at, now.clock + now.max_ahead, "its ids are later");

	begin("first grant, by which they end later than ids may be");
	go(ASKING);
	answered()->u.acquire.cluster_ids_end_at = now.clock + now.max_ahead + 1;
	result.u.acquire.starts_at = now.clock - 1;
	rows[1].starts_at = result.u.acquire.starts_at;
	go("ok");
	check_number(machine.lease.opens_at, now.clock - 1, "its ids do not wait");

	begin("first grant, by which they end after the lease");
	go(ASKING);
	now.max_ahead = SECONDS(60);
	answered()->u.acquire.cluster_ids_end_at = now.clock + SECONDS(60);
	result.u.acquire.starts_at = now.clock - 1;
	rows[1].starts_at = result.u.acquire.starts_at;
	go("ok");
	check_number(machine.lease.opens_at, now.clock - 1, "they wait even less");

	begin("first grant by another registry than the one that was used");
	own_uses = SNOWFLAKE_USES_ANOTHER;
	own_incarnation = incarnation_of(2);
	go("registry, promoted, ok");
	answered()->u.acquire.cluster_ids_end_at = DT_NOBEGIN;
	go("ok");
	check_number(machine.settled_from, now.clock + now.max_ahead + now.tick, "it does not know of them");

	begin("first grant, by which they have ended, of a lease that starts long before");
	go(ASKING);
	asked = now.clock;
	pass(3);
	answered()->u.acquire.cluster_ids_end_at = DT_NOBEGIN;
	result.u.acquire.starts_at = asked - SECONDS(60);
	rows[1].starts_at = result.u.acquire.starts_at;
	on("ok", "open: open");
	check_number(machine.settled_from, asked, "the clock can be set back to where they were");
	go("release, sealed, ok, wanted");
	on("ok", "open: open");
	check_number(machine.settled_from, asked, "later grants say nothing");
}

/* No end counts that is later than the one that was asked for. */
static void
test_ends(void)
{
	TimestampTz asked;

	begin("grant with a later end than was asked for");
	go(ASKING);
	asked = now.clock + SECONDS(10);
	now.lease_duration = SECONDS(1);	/* what the settings say later is no
										 * matter */
	pass(3);
	answered()->u.acquire.leased_until = DT_NOEND - 1;
	on("ok", "open: open");
	check_number(machine.lease.leased_until, asked, "the end is that which was asked for");
	check_number(machine.problem.sqlerrcode, 0, "it is no failure");
	on("wanted", "open: wait 0.25");
	now.lease_duration = SECONDS(120);
	now.issued = true;
	on("5 s", "open: renew");	/* as ever */

	begin("grant with an end that is as late as was asked for");
	go(ASKING);
	answered()->u.acquire.starts_at = now.clock + SECONDS(2);
	result.u.acquire.leased_until = now.clock + SECONDS(12);
	rows[1].starts_at = result.u.acquire.starts_at;
	on("ok", "open: open");
	check_number(machine.lease.leased_until, now.clock + SECONDS(12), "the window begins where the lease does");

	begin("grant with an earlier end");
	go(ASKING);
	answered()->u.acquire.leased_until = now.clock + SECONDS(3);
	on("ok", "open: open");
	check_number(machine.lease.leased_until, now.clock + SECONDS(3), "it is the end");

	begin("renewal with a later end than was asked for");
	go(RENEWING);
	asked = now.clock + call.u.renew.window;
	pass(2);
	answered()->u.renew.leased_until = DT_NOEND - 1;
	on("ok", "open: open");
	check_number(machine.lease.leased_until, asked, "the end is that which was asked for");
	check_number(machine.problem.sqlerrcode, 0, "it is no failure");
	on("time", "open: wait 0.25");
	on("3 s", "open: renew");	/* as ever */
	check_number(call.u.renew.window, SECONDS(40), "for twice as long");

	begin("renewal after one whose answer was lost");
	go(RENEWING);
	now.clock += SECONDS(1000);
	on("failed", "open: wait 0.25");
	on("retry", "open: renew");
	on("failed", "open: wait 0.25");	/* the row has this end */
	rows[1].leased_until = now.clock + SECONDS(20);
	now.clock -= SECONDS(1000);
	on("retry", "open: renew");
	asked = now.clock + call.u.renew.window;
	on("ok", "open: open");
	check(rows[1].leased_until > asked, "the registry has a later end");
	check_number(machine.lease.leased_until, asked, "the end is that which was asked for");
	check_number(machine.problem.sqlerrcode, 0, "it is no failure");
	on("time", "open: wait 0.25");
}

/* A lease with ids up to a time ends, and the next one is asked for. */
static void
end_with_ids(TimestampTz end)
{
	row_of(&machine.lease.token)->issued_until = end;
	go("time, wanted, release, sealed, ok, wanted");
	check_number(call.kind, SNOWFLAKE_CALL_ACQUIRE, "a lease is asked for");
}

/* What is granted has this number, and starts then. */
static void
grant_at(uint64 node, TimestampTz starts_at)
{
	SnowflakeAcquireResult *granted = &answered()->u.acquire;

	granted->node = node;
	granted->starts_at = starts_at;
	granted->leased_until = starts_at + SECONDS(5);
}

/* No lease is opened under which this start could repeat its own ids. */
static void
test_own_ids(void)
{
	TimestampTz end;

	begin("the number again, before its ids end");
	go(ASKING);
	end = now.clock + SECONDS(1);
	grant_at(20, now.clock);
	go("ok");
	end_with_ids(end);
	grant_at(20, end - 1);
	check_refused("The lease starts at 0.999999; ids of this server end at 1.");
	grant_at(20, end);
	on("ok", "open: open");
	end_with_ids(end + SECONDS(1));
	grant_at(20, end);			/* there is a later end */
	check_refused("The lease starts at 1; ids of this server end at 2.");
	grant_at(21, end - SECONDS(1)); /* another number, which the registry
									 * knows of */
	on("ok", "open: open");
	end_with_ids(end + SECONDS(0.5));
	grant_at(20, end + SECONDS(1) - 1);
	check_refused("The lease starts at 1.999999; ids of this server end at 2.");
	grant_at(21, end + SECONDS(0.5));
	on("ok", "open: open");
	end_with_ids(DT_NOBEGIN);	/* nothing was issued */
	grant_at(21, end + SECONDS(0.5) - 1);
	check_refused("The lease starts at 1.499999; ids of this server end at 1.5.");

	begin("many numbers");
	go(ASKING);
	for (int i = 0; i <= SNOWFLAKE_ENDED_NUMBERS; i++)
	{
		grant_at(i, now.clock);
		on("ok", "open: open");
		end_with_ids(now.clock + SECONDS(i == 5 ? 1 : 100 + i));
	}
	for (int i = 0; i <= SNOWFLAKE_ENDED_NUMBERS; i++)
	{
		grant_at(i, now.clock + SECONDS(1));
		if (i == 5)				/* the end that came first */
			continue;
		go("ok");
		check_number(machine.problem.sqlerrcode, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "its end is known");
		go("1 s");
	}

	begin("many leases of one number");
	go(ASKING);
	end = now.clock + SECONDS(1);
	grant_at(20, now.clock);
	go("ok");
	end_with_ids(end);
	for (int i = 0; i <= SNOWFLAKE_ENDED_NUMBERS; i++)
	{
		grant_at(21, now.clock + SECONDS(2 + 0.1 * i));
		on("ok", "open: open");
		end_with_ids(machine.lease.starts_at + SECONDS(0.1));
	}
	grant_at(20, end - 1);
	check_refused("The lease starts at 0.999999; ids of this server end at 1.");

	begin("number 0, by a clock of the last century");
	now.clock = -SECONDS(1000);
	go(ASKING);
	grant_at(0, now.clock);
	on("ok", "open: open");

	for (int i = 0; i < 2; i++)
	{
		begin(i == 0 ? "another incarnation, before the ids end" : "another generation, before the ids end");
		go(ASKING);
		end = now.clock + SECONDS(1);
		grant_at(20, now.clock);
		go("ok");
		end_with_ids(end);
		for (int early = 1; early >= 0; early--)
		{
			grant_at(22, end - early);
			if (i == 0)
				result.u.acquire.incarnation = uuid_of("another");
			else
				result.u.acquire.generation = 2;
			if (early)
				check_refused("The lease starts at 0.999999; ids of this server end at 1.");
			else
				on("ok", "open: open");
		}
		/* and so later, of the same one */
		end_with_ids(DT_NOBEGIN);
		grant_at(24, end - 1);
		result.u.acquire.incarnation = machine.lease.incarnation;
		result.u.acquire.generation = machine.lease.generation;
		check_refused("The lease starts at 0.999999; ids of this server end at 1.");
	}

	begin("the number of the lease that goes on");
	go(L_ASKING);
	grant_at(1, machine.lease.leased_until - 1);
	on("ok", "leaving asking: wait to retry");
	check_text(machine.problem.detail, "The lease starts at 9.999999; ids of this server end at 10.", "the detail");
	on("retry", "leaving asking: acquire");
	grant_at(1, machine.lease.leased_until);
	on("ok", "leaving granted: record");
}

static void
check_renewal(const char *after, double window)
{
	now.issued = true;
	on(after, "open: renew");
	check_number(call.u.renew.window, SECONDS(window), "the window that is asked for");
	check(call.clock == now.clock && call.max_ahead == now.max_ahead + now.tick, "from now on");
	check_named(1, DT_NOBEGIN);
	on("ok", "open: open");
	check_number(machine.lease.leased_until, now.clock + SECONDS(window), "the words are extended");
	on("time", "open: wait 0.25");
}

static void
test_renewal(void)
{
	begin("renewal");
	go(OPEN);
	for (int i = 0; i < 5; i++)
	{
		static const double windows[] = {20, 40, 80, 120, 120};

		on("before due", "open: wait 0.25");
		check_renewal("due", windows[i]);
	}

	begin("renewal after the longest window was raised");
	go(OPEN);
	on("1 s", "open: wait 0.25");
	now.lease_duration = SECONDS(3600);
	check_renewal("0", 3600);
	on("1 s", "open: wait 0.25");	/* only once */
	now.lease_duration = SECONDS(60);
	on("1 s", "open: wait 0.25");

	begin("renewal of a fixed number in the own tables");
	go("own 7, promoted, wanted, ok");
	check_number(call.u.acquire.window, now.max_ahead + now.tick + SECONDS(1), "the window");
	check(call.u.acquire.fixed, "it is fixed");
	go("ok, time");
	on("0.4 s", "open: wait 0.25");
	check_renewal("0.1 s", 2.001);
	check_renewal("0.5 s", 2.001);

	begin("renewal of a fixed number of another registry");
	go("registry 7, promoted, wanted, ok");
	check_number(call.u.acquire.window, now.lease_duration, "the window");
	go("ok, ok, time");
	on("before due", "open: wait 0.25");
	check_renewal("due", 120);
	check_text(call.registry, "host=registry", "there");

	begin("renewal when a backend has found the limit");
	now.max_ahead = SECONDS(20);
	go(OPEN);
	on("wanted", "open: renew");
	on("ok", "open: open");
	on("time", "open: wait 0.25");	/* those who wait have to ask again */

	/* doc/operations.md counts on it: "The longest window" */
	begin("the longest window where ids may be further ahead than lease_duration");
	now.max_ahead = SECONDS(20);
	now.lease_duration = SECONDS(5);
	go(OPEN);
	on("wanted", "open: renew");
	check_number(call.u.renew.window, SECONDS(20), "twice the first one");
	go("ok, wanted");
	check_number(call.u.renew.window, SECONDS(21.001), "max_ahead, a tick and a second");
	go("ok");
	on("1 s", "open: wait 0.25");
	on("wanted", "open: renew");
	check_number(call.u.renew.window, SECONDS(21.001), "and never more");

	begin("renewal that could gain nothing, with ticks of a second");
	now.max_ahead = SECONDS(20);
	now.lease_duration = SECONDS(5);
	now.tick = SECONDS(1);
	go(OPEN ", wanted, ok");
	check_number(machine.lease.leased_until, now.clock + SECONDS(20), "twice the first window");
	go("wanted, ok");
	check_number(machine.lease.leased_until, now.clock + SECONDS(22), "the longest window");
	on("wanted", "open: wait 0.25");

	begin("renewal when a backend may have found the limit");
	now.max_ahead = SECONDS(9.997);
	go(OPEN);
	on("wanted", "open: wait 0.25");
	now.max_ahead = SECONDS(9.998); /* and two ticks: all of the lease */
	on("wanted", "open: renew");

	begin("renewal of a lease that starts later");
	now.max_ahead = SECONDS(20);
	go(ASKING);
	answered()->u.acquire.starts_at = now.clock + SECONDS(5);
	rows[1].starts_at = result.u.acquire.starts_at;
	result.u.acquire.leased_until = rows[1].leased_until = now.clock + SECONDS(15);
	go("ok, wanted");
	check_number(call.u.renew.window, SECONDS(20), "the window is counted from there");
	go("ok");
	check_number(machine.lease.leased_until, now.clock + SECONDS(25), "by the registry");

	begin("renewal that raises nothing");
	go(RENEWING);
	answered()->u.renew.leased_until = now.clock;
	on("ok", "open: wait 0.25");
	check_number(machine.lease.leased_until, rows[1].starts_at + SECONDS(10), "leased_until stays");
	on("wanted", "open: wait 0.25");
	on("before due", "open: wait 0.25");
	on("due", "open: renew");	/* a quarter of what is left is used */

	begin("renewal of an idle lease of the own tables");
	go(OPEN);
	on("61 s", "open: wait 60");
	on("1000 s", "open: wait 60");
	on("issued", "open: renew");

	begin("renewal of a lease of the own tables for which nobody has asked, soon after boot");
	now.monotonic = SECONDS(5);
	own_uses = SNOWFLAKE_USES_OWN;
	own_incarnation = incarnation_of(0);
	go("own, promoted, ok, ok");
	on("time", "open: wait 60");
	on("8 s", "open: wait 60");

	begin("renewal of an idle lease of another registry");
	go(REMOTE_OPEN ", 61 s");
	check_number(machine.call, SNOWFLAKE_CALL_RENEW, "it is renewed");
	on("ok", "open: open");
	on("time", "open: wait until due");
	on("before due", "open: wait 0.25");
	on("due", "open: renew");

	begin("renewal that fails");
	go(RENEWING);
	on("failed", "open: wait 0.25");
	on("before retry", "open: wait 0.25");
	on("retry", "open: renew");
	on("refused", "open: wait 0.25");	/* the lease goes on */
	on("before retry", "open: wait 0.25");
	on("retry", "open: renew");
	on("ok", "open: open");

	begin("renewal that gives less than was asked for");
	go(RENEWING);
	answered()->u.renew.leased_until = machine.lease.leased_until + 1;
	on("ok", "open: open");
	on("time", "open: wait 0.25");
	on("before due", "open: wait 0.25");
	on("due", "open: renew");

	begin("renewal that gives nothing to a lease which is over");
	go(OPEN);
	now.clock += SECONDS(3600);
	on("time", "open: renew");
	answered()->u.renew.leased_until = machine.lease.leased_until;
	on("ok", "open: wait 0.25");
	check_number(machine.lease.renew_left, 0, "nothing is left to be renewed");

	begin("renewals of a lease that a limit for ends cuts");
	now.lease_duration = SECONDS(3600);
	go("registry 7, worker, promoted, wanted, ok");
	answered()->u.acquire.leased_until = now.clock + SECONDS(160);
	go("ok, ok, time");
	for (int i = 0; i < 5; i++)
	{
		go("due");
		check_number(machine.call, SNOWFLAKE_CALL_RENEW, "it is renewed");
		answered()->u.renew.leased_until = now.clock + SECONDS(160);
		on("ok", "open: open");
		check(machine.lease.renew_left >= SECONDS(110) && machine.lease.renew_left <= SECONDS(130),
			  "the next one is due when about a quarter of what it got is used");
	}
	now.lease_duration = SECONDS(60);

	begin("lease of the own tables when the extension was created");
	go(OPEN ", 3 s");
	on("failed", "open: wait 0.25");
	on("look", "sealing: seal");
	go("sealed, no");
	on("ok", "none: wait 60");	/* although a restore has brought the record */
	go("stop, worker");
	on("ok", "asking: acquire");	/* by then it is over */

	begin("renewal that is answered no");
	go(RENEWING);
	rows[1].issued_until = now.clock;
	on("no", "sealing: seal");
	on("sealed", "asking: acquire");	/* in the same moment */
	check_text(call.registry, "host=registry", "of the same registry");
	check_named(1, now.clock);
	check_ended(now.clock, 1, DT_NOBEGIN);
	on("ok", "open: open");
	check_number(row_of(&machine.lease.token)->granted_by, call.number, "it is another lease");

	begin("renewal that is answered no after it was refused");
	go(RENEWING ", refused, retry, no");
	check(machine.refused_until == 0 && machine.problem.sqlerrcode == 0, "calls wait for the next lease");

	begin("renewal that is answered no after it has failed");
	go(RENEWING ", failed, retry");
	check_number(machine.call, SNOWFLAKE_CALL_RENEW, "it is repeated");
	go("no");
	on("sealed", "asking: acquire");	/* in the same moment */

	begin("renewal when the own tables are gone");
	go(OPEN ", 3 s");
	on("missing", "sealing: seal");
	on("sealed", "ending: release");
	check_named(1, rows[1].starts_at);	/* a lease without ids ends where it
										 * starts */
	on("missing", "new: start");
	on("missing", "no table: wait 60");

	begin("result of a call that was given up on");
	go(RENEWING ", elsewhere");
	check(machine.call == SNOWFLAKE_CALL_START && machine.call_number == call.number && call.number == 5,
		  "the worker takes only the result of the next one");
}

static void
test_retries(void)
{
	begin("nobody waits, soon after boot");
	now.monotonic = SECONDS(1);
	go("own, promoted");
	on("ok", "none: wait 60");

	begin("nobody waits any more, soon after boot");
	now.monotonic = SECONDS(1);
	now.max_ahead = SECONDS(20);
	go(OPEN);
	on("time", "open: wait 0.25");
	go("wanted");
	on("ok", "open: open");
	on("time", "open: wait 0.25");
	go("release, sealed");
	on("ok", "none: wait 60");

	begin("retries while nobody waits");
	go(NEW);
	for (int i = 0; i < 3; i++)
	{
		on("failed", "new: wait to retry");
		on("retry", "new: start");
	}
	scenario = "retries while somebody waits";
	go("failed, retry");
	on("wanted", "new: wait 0.5");
	on("failed", "new: wait to retry");
	on("worker", "new: wait to retry");
	on("own", "new: start create"); /* what was changed may help */
	on("failed", "new: wait to retry");
	on("look", "new: start create");

	begin("retries of a registry that refuses");
	own_uses = SNOWFLAKE_USES_ANOTHER;
	own_incarnation = incarnation_of(2);
	go("registry, promoted");
	for (int i = 0; i < 3; i++)
	{
		scenario = "retries of a registry that refuses";
		on("ok", "asking: acquire");	/* START has succeeded: at once */
		on("refused", "new: wait to retry");
		on("retry", "new: start");
	}
	on("ok", "asking: acquire");
	on("ok", "granted: record");
	on("failed", "granted: wait to retry");

	begin("retries that stop when the first lease need not be asked for");
	go(NEW ", failed, retry, failed, retry");
	on("ok", "none: wait 60");
	on("wanted", "new: start create");
	on("failed", "new: wait to retry");
}

static int
compare_doubles(const void *a, const void *b)
{
	double		x = *(const double *) a,
				y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* Sorts the values; 0 is the least one, 1 the greatest. */
static double
quantile(double *values, int num, double which)
{
	qsort(values, num, sizeof(*values), compare_doubles);
	return values[(int) ((num - 1) * which)];
}

/* So many seconds the next call waits; a failure has just been noted. */
static double
wait_of(void)
{
	return (machine.retry_at - now.monotonic) / (double) USECS_PER_SEC;
}

static void
check_within(double actual, double least, double most, const char *name)
{
	if (!check(actual >= least && actual <= most, name))
		printf("# expected %g to %g, was %g\n", least, most, actual);
}

/* A registry is asked again after these waits, in seconds; a hundred servers do not ask together. */
static void
test_waits(void)
{
	static const double overloaded[] = {2, 4, 8, 12, 12, 12};
	static double first[100];
	int			same = 0;

	for (int i = 0; i < (int) lengthof(first); i++)
	{
		begin("waits of a hundred servers");
		seed = i + 1;
		go("registry, worker, promoted, wanted, ok, failed");
		first[i] = wait_of();
		for (int j = 0; j < i; j++)
			same += fabs(first[i] - first[j]) < 0.00001;
	}
	seed = 0;
	check_within(same, 0, 20, "they differ");
	check_within(quantile(first, lengthof(first), 0.1), 0.75, 0.85, "some wait less than a second");
	check_within(quantile(first, lengthof(first), 0.9), 1.15, 1.25, "some wait more");

	begin("waits for a registry that is overloaded");
	go("registry, promoted, wanted, ok");
	for (int i = 0; i < (int) lengthof(overloaded); i++)
	{
		on("overloaded", "asking: wait to retry");
		check_within(wait_of(), overloaded[i] * 0.75, overloaded[i] * 1.25, "longer each time, up to 15 s");
		on("before retry", "asking: wait to retry");
		on("retry", "asking: acquire");
	}
	on("failed", "asking: wait to retry");
	check_within(wait_of(), 0.75, 1.25, "it is not there: about a second");
	go("retry, overloaded");
	check_within(wait_of(), 1.5, 2.5, "it is overloaded again");
	go("retry, overloaded, retry, ok, ok");
	check_number(machine.state, SNOWFLAKE_LEASE_OPEN, "it grants");
	go("due, overloaded");
	check_within(wait_of(), 1.5, 2.5, "after a success the first wait is short again");

	begin("waits of a server that has a lease");
	now.lease_duration = SECONDS(24);
	go("registry 7, promoted, wanted, ok, ok, ok, time, due");
	for (int i = 0; i < 20; i++)
	{
		double		left = (machine.lease.leased_until - now.clock) / (double) USECS_PER_SEC;

		go("overloaded");
		if (left > 0)
			check_within(wait_of(), 0.75, Max(left / 3, 1.25), "at most a third of what is left");
		go("time, retry");
		check_text(outcome(), "open: renew", "then it asks again");
	}
	go("overloaded");
	check_within(wait_of(), 9, 15, "when the lease is over, as long as without one");

	begin("waits of a server that leaves a registry that is overloaded");
	now.lease_duration = SECONDS(24);
	go("registry 7, promoted, wanted, ok, ok, ok, time, elsewhere, ok");
	for (int i = 0; i < 5; i++)
	{
		double		left = (machine.lease.leased_until - now.clock) / (double) USECS_PER_SEC;

		go("overloaded");
		check_within(wait_of(), 0.75, Max(left / 3, 1.25), "at most a third of what is left");
		go("retry");
	}
}

/* A registry refuses the call that is out, and says that the next one waits so many seconds. */
static void
refuse(double seconds)
{
	answer_step(find_step("refused", strlen("refused")));
	result.wait = SECONDS(seconds);
	go("refused");
}

/* It is refused after these steps; the wait is from "least" to "most". */
static void
check_refused_wait(const char *path, double seconds, double least, double most)
{
	for (int i = 0; i < 10; i++)
	{
		begin("wait after a refusal");
		seed = i + 1;
		go("worker");
		go(path);
		refuse(seconds);
		scenario = path;
		check_within(wait_of(), least, most, "it waits as long as the answer says");
	}
	seed = 0;
}

/* After a refusal a registry is asked again when it has said, but not by all at once. */
static void
test_refusal_waits(void)
{
	static double waits[100];
	int			same = 0;

	check_refused_wait(REFUSED_CALL, 0, 0, 0);
	check_refused_wait(REFUSED_CALL, 0.1, 0.075, 0.125);
	check_refused_wait(REFUSED_CALL, 4, 3, 5);
	check_refused_wait(REFUSED_CALL, 8, 6, 10);
	check_refused_wait(REFUSED_CALL, 10, 6, 10);
	check_refused_wait(REFUSED_CALL, 1e6, 6, 10);	/* no answer is trusted */

	/* the own tables */
	check_refused_wait(NEW, 10, 0.75, 1.25);
	check_refused_wait(ASKING, 10, 0.75, 1.25);
	check_refused_wait(ASKING, 0.1, 0.075, 0.125);
	check_refused_wait(OPEN ", due", 10, 0.75, 1.25);
	check_refused_wait("registry, promoted, wanted", 10, 0.75, 1.25);
	check_refused_wait(GRANTED, 10, 0.75, 1.25);
	check_refused_wait(LEAVING, 10, 0.75, 1.25);

	for (int i = 0; i < (int) lengthof(waits); i++)
	{
		begin("waits of a hundred servers that are refused");
		seed = i + 1;
		go("worker");
		go(REFUSED_CALL ", refused");
		waits[i] = wait_of();
		for (int j = 0; j < i; j++)
			same += fabs(waits[i] - waits[j]) < 0.00001;
	}
	seed = 0;
	check_number(same, 0, "they differ");
	check_within(quantile(waits, lengthof(waits), 0.1), 6, 6.8, "some wait less");
	check_within(quantile(waits, lengthof(waits), 0.9), 9.2, 10, "some wait longer");

	begin("refused at once");
	go(REFUSED_CALL);
	on("refused at once", "new: start create");
	on("ok", "asking: acquire");
	on("refused at once", "new: wait to retry");	/* no registry makes it
													 * call without a pause */
	check_within(wait_of(), 0.375, 0.625, "half a second");
	on("before retry", "new: wait to retry");
	go("retry");
	on("ok", "asking: acquire");
	go("failed, retry");
	on("refused at once", "new: start create"); /* not one upon another */

	begin("the own tables refuse at once");
	go(ASKING);
	on("refused at once", "asking: acquire");
	on("refused at once", "asking: wait to retry");
	begin("a renewal is refused at once");
	go(RENEWING);
	on("refused at once", "open: renew");
	on("refused at once", "open: wait 0.25");
	on("before retry", "open: wait 0.25");
	on("retry", "open: renew");

	begin("a registry that was overloaded refuses");
	go(REFUSED_CALL ", overloaded, retry, overloaded, retry, overloaded, retry");
	go("refused, retry, wanted, ok, overloaded");
	check_within(wait_of(), 1.5, 2.5, "the first wait is short again");

	for (int i = 0; i < 2; i++)
	{
		begin(i == 0 ? "waits of a server whose renewals are refused" :
			  "waits of a server that leaves for a registry that refuses");
		now.lease_duration = SECONDS(24);
		go("registry 7, promoted, wanted, ok, ok, ok, time");
		go(i == 0 ? "due" : "elsewhere, ok");
		for (int j = 0; j < 20; j++)
		{
			double		left = (machine.lease.leased_until - now.clock) / (double) USECS_PER_SEC;

			go("refused");
			if (left > 0)
				check_within(wait_of(), Min(6, left / 3 - 0.001), Max(left / 3, 1.25), "at most a third of what is left");
			else
				check_within(wait_of(), 6, 10, "when the lease is over, as long as without one");
			go(i == 0 ? "retry" : "retry, ok");
			check_text(outcome(), i == 0 ? "open: renew" : "leaving asking: acquire", "then it asks again");
		}
	}
}

/* A refusal ends no lease: its ids go on up to its end, and then its row is named. */
static void
test_refused_with_lease(void)
{
	static const char *const paths[] = {
		RENEWING, OPEN ", due", LEAVING, L_ASKING, L_GRANTED, RETURNING
	};
	const SnowflakeProblem *problem;

	for (int i = 0; i < (int) lengthof(paths); i++)
	{
		SnowflakeLease lease;
		TimestampTz end;
		int			refused = 0;

		begin("refused");
		go(paths[i]);
		scenario = paths[i];
		lease = machine.lease;
		end = rows[1].leased_until;
		while (now.clock < end - 1)
		{
			if (machine.call != SNOWFLAKE_CALL_NONE)
			{
				if (call.kind == SNOWFLAKE_CALL_RENEW || call.kind == SNOWFLAKE_CALL_ACQUIRE)
					check_named(1, DT_NOBEGIN);
				go("refused");
				refused++;
			}
			else
				pass((Min(Max(action.until - now.monotonic, 1), end - 1 - now.clock)) / (double) USECS_PER_SEC);
			now.issued = true;
			go("wanted");
			if (action.kind == SNOWFLAKE_ACTION_SEAL || !snowflake_machine_is_open(&machine) || rows[1].over)
				break;
		}
		check(now.clock == end - 1 && refused >= 2, "it is refused until the lease ends");
		check(memcmp(&machine.lease, &lease, sizeof(lease)) == 0, "the lease stays as it is");
		check_number(snowflake_machine_phase(&machine, &now, &problem), SNOWFLAKE_RETRYING, "ids go on to its last moment");
		pass(1e-6);
		check_number(snowflake_machine_phase(&machine, &now, &problem), SNOWFLAKE_REFUSED, "then they are refused");
		check(problem == &machine.problem && problem->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
			  "with the problem of the answer");
		go("time");
		check(snowflake_machine_is_open(&machine) && !rows[1].over, "it is not sealed");
	}

	begin("what a refusal's wait says");
	go(ASKING ", refused for 4 s");
	check_number(machine.refused_until, now.monotonic + SECONDS(4), "calls wait until then");
	go("retry, refused");
	check_number(machine.refused_until, PG_INT64_MAX, "calls fail");

	begin("RECORD is refused");
	go(GRANTED);
	on("refused", "granted: wait to retry");
	check_number(snowflake_machine_phase(&machine, &now, &problem), SNOWFLAKE_REFUSED, "no id yet");
	on("retry", "granted: record");
	on("ok", "open: open");
	check_number(machine.lease.granted_by, rows[1].granted_by, "under the lease that was granted");

	begin("RELEASE is refused");
	go(SEALING);
	rows[1].issued_until = now.clock + SECONDS(1);
	go("sealed");
	on("refused", "none: wait 60");
	check(machine.lease.row_open, "the row may be open");
	check(machine.refused_until == 0 && machine.retry_at == 0, "nothing waits for it");
	on("wanted", "asking: acquire");
	check_named(1, rows[1].issued_until);
	check_ended(rows[1].issued_until, 1, DT_NOBEGIN);
	begin("RELEASE is refused when the lease worker ends");
	go(OPEN ", stop, sealed");
	on("refused", "stopped: exit");
	check(machine.lease.row_open, "the row may be open");
}

/* What an answer says holds until the next result of a call, or a change. */
static void
test_refused_flag(void)
{
	static const struct
	{
		const char *path;
		bool		refused;
	}			cases[] = {
		{NEW, false},
		{REFUSED, true},
		{REFUSED ", retry", true},
		{REFUSED ", retry, wanted, ok", true},	/* the registry has not
												 * answered yet */
		{REFUSED ", worker", true},
		{REFUSED ", retry, wanted, ok, ok", false},
		{REFUSED ", retry, wanted, ok, failed", false},
		{REFUSED ", retry, wanted, ok, overloaded", false},
		{REFUSED ", retry, wanted, ok, not usable", false},
		{REFUSED ", retry, failed", false},
		{REFUSED ", retry, missing", false},
		{REFUSED ", retry, wanted, ok, refused", true},
		{REFUSED ", elsewhere", false},
		{REFUSED ", look", false},
		{NEW ", refused", true},
		{NEW ", refused, retry, ok", false},	/* to NONE */
		{NEW ", refused, retry, failed", false},
		{ASKING ", refused", true},
		{ASKING ", none free", true},
		{ASKING ", refused, retry, ok", false},
		{ASKING ", refused, retry, failed", false},
		{ASKING ", refused, retry, missing", false},
		{GRANTED ", refused", true},
		{GRANTED ", refused, retry, ok", false},
		{GRANTED ", refused, retry, no", false},
		{GRANTED ", refused, retry, failed", false},
		{RENEWING ", refused", true},
		{RENEWING ", refused, retry, ok", false},
		{RENEWING ", refused, retry, failed", false},
		{RENEWING ", refused, registry below 512", false},
		{RENEWING ", refused, release, sealed, retry, failed", false},
		{L_ASKING ", refused", true},
		{L_ASKING ", refused, own", false},
		{L_GRANTED ", refused", true},
		{L_GRANTED ", refused, retry, ok", false},
	};
	const SnowflakeProblem *problem;

	for (int i = 0; i < (int) lengthof(cases); i++)
	{
		begin("flag");
		go(cases[i].path);
		scenario = cases[i].path;
		check_number(machine.refused_until != 0, cases[i].refused, "whether the last answer was a refusal");
	}

	begin("a refusal, and a failure after it");
	go(RENEWING ", refused, 8 s, failed");
	check_number(snowflake_machine_phase(&machine, &now, &problem), SNOWFLAKE_RETRYING, "a failure may be over soon");
	go("retry, refused");
	check_number(snowflake_machine_phase(&machine, &now, &problem), SNOWFLAKE_REFUSED, "a refusal again");
	go("retry, ok");
	check_number(snowflake_machine_phase(&machine, &now, &problem), SNOWFLAKE_READY, "it is renewed");

	begin("clock set back after a renewal was refused");
	go(RENEWING ", refused");
	now.clock -= SECONDS(3600);
	on("time", "open: wait 0.25");
	check(machine.refused_until == 0 && machine.problem.sqlerrcode == 0, "no renewal is due that could be refused");
	now.clock += SECONDS(3600 + 8);
	check_number(snowflake_machine_phase(&machine, &now, &problem), SNOWFLAKE_READY,
				 "whether the lease can be renewed is not known now");
}

/* A hundred servers that were granted leases together do not renew them together. */
static void
test_spread_renewals(void)
{
	static double due[2][100];

	for (int i = 0; i < (int) lengthof(due[0]); i++)
	{
		begin("renewals of a hundred servers");
		seed = i + 1;
		go("registry 7, worker, promoted, wanted, ok, ok, ok, time");
		due[0][i] = (machine.lease.window - machine.lease.renew_left) / (double) USECS_PER_SEC;
		go("due, ok");
		due[1][i] = (machine.lease.window - machine.lease.renew_left) / (double) USECS_PER_SEC;
	}
	seed = 0;
	for (int i = 0; i < 2; i++)
	{
		check_within(quantile(due[i], lengthof(due[i]), 0), 22.5, 24, "the first one");
		check_within(quantile(due[i], lengthof(due[i]), 0.25), 24, 29, "a quarter of them");
		check_within(quantile(due[i], lengthof(due[i]), 0.75), 31, 36, "three quarters");
		check_within(quantile(due[i], lengthof(due[i]), 1), 36, 37.5, "the last one");
	}
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
	check_named(1, rows[1].issued_until);
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
	go(RENEWING ", failed, retry, failed, retry, failed");
	check(machine.problem.sqlerrcode != 0, "the failure is known");
	now.clock -= SECONDS(3600);
	on("time", "open: wait 0.25");
	check(machine.problem.sqlerrcode == 0, "no renewal is due that could fail");
	now.clock += SECONDS(3600);
	on("before retry", "open: wait 0.25");	/* it is due again */
	on("retry", "open: renew");

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
test_requests(void)
{
	begin("request that the lease fits");
	go(OPEN ", own below 512");
	check(machine.state == SNOWFLAKE_LEASE_OPEN && machine.lease.request.last == 511, "the lease stays");

	begin("request for other numbers");
	go(OPEN ", own from 512");
	on("sealed", "asking: acquire");
	check(call.u.acquire.first == 512 && call.u.acquire.last == 1022, "others are asked for");
	check_named(1, rows[1].starts_at);
	begin("request for a fixed number");
	go("own 8 to 11, promoted, wanted, ok, ok, time");
	on("own", "sealing: seal");

	begin("request that is invalid");
	go(OPEN ", invalid");
	on("sealed", "ending: release");
	on("ok", "new: start");
	on("ok", "asking: wait 60");
	on("own", "asking: acquire");

	begin("request for another registry while a lease of one is not opened");
	go(GRANTED ", elsewhere");
	on("sealed", "ending: release");
	check_text(call.registry, "host=registry", "the lease is closed where it was taken");
	check_named(1, rows[1].starts_at);
	on("ok", "new: start create");
	on("ok", "asking: acquire");
	check_text(call.registry, "host=elsewhere", "the other one is asked");
}

/* The settings name another registry, while ids go on under a lease. */
static void
test_leaving(void)
{
	begin("leaving");
	go(OPEN ", time");
	go("registry");
	check_text(call.registry, "", "START goes to the own tables");
	check(call.lease.granted_by == 0, "it is about no lease");
	on("ok", "leaving asking: acquire");
	check_text(call.registry, "host=registry", "another registry is asked");
	check_number(call.u.acquire.window, SECONDS(10), "for a short lease");
	check_uses(&call.u.acquire.uses, 0);
	check_named(1, DT_NOBEGIN); /* its ids go on */
	check_ended(DT_NOBEGIN, 1, DT_NOBEGIN);
	on("issued", "leaving asking: wait 0.5");
	on("ok", "leaving granted: record");
	check_uses(&call.u.record.uses, 0);
	check(machine.lease.granted_by == rows[1].granted_by, "the words are still those of the lease");
	rows[1].issued_until = now.clock + SECONDS(1);
	on("ok", "sealing: seal");
	on("sealed", "open: open"); /* without another call */
	check(machine.lease.granted_by == rows[2].granted_by && machine.lease.node == rows[2].node, "it is the next lease");
	on("3 s", "open: renew");
	check_text(call.registry, "host=registry", "it is renewed where it is from");
	check_named(2, DT_NOBEGIN);
	go("no, sealed");
	check_ended(rows[1].issued_until, 2, rows[1].issued_until);
	check_named(2, rows[2].starts_at);
	go("ok, time, release");
	on("sealed", "ending: release");
	check_named(3, rows[3].starts_at);

	begin("leaving for a registry that is recorded");
	go(OPEN ", registry");
	own_uses = SNOWFLAKE_USES_ANOTHER;
	own_incarnation = incarnation_of(1);
	go("ok");
	on("ok", "sealing: seal");	/* nothing is to be recorded */
	on("sealed", "open: open");

	begin("leaving for the own tables");
	go(RETURNING);
	check_text(call.registry, "", "they are asked");
	check_uses(&call.u.acquire.uses, 1);
	check_named(1, DT_NOBEGIN);
	on("ok", "sealing: seal");	/* they record themselves */
	on("sealed", "open: open");

	begin("leaving, the own tables are new");
	go(REMOTE_OPEN ", 3 s, ok, elsewhere");
	own_uses = SNOWFLAKE_USES_NOTHING;
	on("ok", "leaving asking: acquire");	/* also when nobody waits */
	check(!call.u.acquire.uses.known, "nothing is used that they know of");

	begin("leaving, the lease is not renewed");
	go(L_ASKING);
	now.issued = true;
	on("3 s", "leaving asking: wait 0.5");
	now.issued = true;
	on("6.9 s", "leaving asking: wait 0.5");
	on("wanted", "leaving asking: wait 0.5");
	on("failed", "leaving asking: wait to retry");
	on("wanted", "leaving asking: wait to retry");
	now.behind = SECONDS(60);
	on("wanted", "leaving asking: wait to retry");
	on("retry", "leaving asking: acquire"); /* when it is over, too */
	check_named(1, DT_NOBEGIN);
	on("1000 s", "leaving asking: wait 0.5");

	begin("leaving for a registry that refuses");
	go(L_ASKING);
	for (int i = 0; i < 3; i++)
	{
		on("refused", "leaving new: wait to retry");
		check(machine.lease.row_open && !rows[1].over, "the lease goes on");
		on("retry", "leaving new: start create");
		on("ok", "leaving asking: acquire");	/* START has succeeded: at
												 * once */
		check_named(1, DT_NOBEGIN);
	}

	begin("leaving, the setting goes back");
	go(L_GRANTED ", own");
	check(!machine.leaving && machine.call == SNOWFLAKE_CALL_NONE, "no result is waited for");
	now.issued = true;
	on("3 s", "open: renew");
	check_text(call.registry, "", "the lease is renewed");
	check_named(1, DT_NOBEGIN); /* what was granted meanwhile is over: it is
								 * named by no call */
	on("ok", "open: open");
	go("registry, ok, ok, ok, sealed");
	check_number(machine.lease.granted_by, rows[3].granted_by, "a lease that was dropped is not opened later");

	begin("leaving, the setting goes back to other numbers");
	go(L_GRANTED);
	rows[1].issued_until = now.clock;
	on("own from 512", "sealing: seal");
	on("sealed", "asking: acquire");
	check_text(call.registry, "", "the former registry is asked");
	check_named(1, now.clock);

	begin("leaving for one registry, then for another");
	go(L_GRANTED ", elsewhere, ok");
	check_text(call.registry, "host=elsewhere", "it is asked");
	check_named(1, DT_NOBEGIN);
	go("ok, ok, sealed");
	check_number(machine.lease.granted_by, rows[3].granted_by, "the first lease is not opened");

	begin("leaving, and what is recorded is another registry");
	go(L_GRANTED);
	own_uses = SNOWFLAKE_USES_ANOTHER;
	own_incarnation = incarnation_of(2);
	on("no", "leaving new: start create");
	on("ok", "leaving asking: acquire");
	check_uses(&call.u.acquire.uses, 2);
	check_named(1, DT_NOBEGIN);

	begin("released while leaving");
	go(L_GRANTED);
	rows[1].issued_until = now.clock;
	go("release, sealed");
	check_text(call.registry, "", "the lease is closed where it is from");
	check_named(1, now.clock);
	on("ok", "none: wait 60");
	on("wanted", "asking: acquire");
	check_text(call.registry, "host=registry", "the next one is asked of the other registry");
	check_named(1, now.clock);
	check_ended(now.clock, 1, DT_NOBEGIN);

	begin("stopped while leaving");
	go(L_GRANTED);
	rows[1].issued_until = now.clock;
	go("stop, sealed");
	check_text(call.registry, "", "the lease is closed where it is from");
	check_named(1, now.clock);
	on("ok", "stopped: exit");

	begin("the same fixed number elsewhere");
	go("registry 7, promoted, wanted, ok, ok, ok, time, elsewhere 7, ok");
	check_text(outcome(), "leaving asking: wait 0.25", "it is not asked for yet");
	on("118.997 s", "leaving asking: wait 0.25");
	rows[1].issued_until = now.clock + SECONDS(1);
	on("0.001 s", "sealing: seal"); /* 1.002 s are left */
	on("sealed", "asking: acquire");
	check_text(call.registry, "host=elsewhere", "of the other registry");
	check_named(1, rows[1].issued_until);
	check_ended(rows[1].issued_until, 1, DT_NOBEGIN);
	on("refused", "new: wait to retry");

	begin("the same fixed number elsewhere, and back");
	go("registry 7, promoted, wanted, ok, ok, ok, time, elsewhere 7, ok, 60 s");
	on("registry 7", "open: open");
	now.issued = true;
	on("time", "open: renew");

	begin("a number that was fixed becomes an automatic one elsewhere");
	go("registry 7, promoted, wanted, ok, ok, ok, time, elsewhere");
	on("ok", "leaving asking: acquire");
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
	check_named(1, rows[1].issued_until);
	check_ended(rows[1].issued_until, 1, DT_NOBEGIN);
	go("ok, time, 3 s");
	check_named(2, DT_NOBEGIN);

	begin("release that the registry got");
	go(ENDING);
	check(machine.lease.row_open, "the row is open");
	go("no");
	check(!machine.lease.row_open, "it is closed, or there is none");
	go("wanted");
	check_named(1, rows[1].starts_at);	/* it is the newest one still */
	on("stop", "stopped: exit");

	begin("release after a failure");
	go(RENEWING ", failed, release");
	on("sealed", "ending: wait to retry");
	on("retry", "ending: release");
	begin("stop after a failure");
	go(RENEWING ", failed, stop");
	on("sealed", "ending: release last");

	begin("stop that the registry did not get");
	go(OPEN ", stop, sealed, failed");
	check(machine.lease.row_open, "the row may be open");
	on("stop", "stopped: exit");	/* it is not told again */
	go("worker");
	on("ok", "asking: acquire");
	check_named(1, rows[1].starts_at);

	begin("release of a lease that is not opened");
	go(GRANTED ", release, sealed");
	check_named(1, rows[1].starts_at);
	on("ok", "none: wait 60");

	begin("extension created again while there is no lease");
	go(REMOTE_OPEN ", release, sealed, ok");
	own_uses = SNOWFLAKE_USES_NOTHING;
	go("look, wanted");
	for (int i = 0; i < 5 && machine.call != SNOWFLAKE_CALL_NONE && machine.call != SNOWFLAKE_CALL_RECORD; i++)
		go("ok");
	check(machine.call == SNOWFLAKE_CALL_RECORD, "the registry is recorded before the first id");

	begin("extension created again, after a failure");
	go(NEW ", failed, retry, failed");
	on("look", "new: start");
}

/* What a registry is told of ids that it does not know. */
static void
test_floors(void)
{
	TimestampTz made;

	begin("floor of own tables that say nothing");
	go("registry, promoted, wanted");
	made = answered()->u.start.starts_at = now.clock + SECONDS(3);
	on("ok", "asking: acquire");
	check_ended(DT_NOBEGIN, 0, made);	/* a registry that the server joins is
										 * told */
	go("ok, ok");
	go("stop, sealed, ok, worker, ok");
	check_number(call.u.acquire.starts_at, DT_NOBEGIN, "as the own tables say each time");

	begin("floor of own tables that are used");
	go("own, promoted, wanted");
	answered()->u.start.starts_at = now.clock + SECONDS(3);
	on("ok", "asking: acquire");
	check_ended(DT_NOBEGIN, 0, DT_NOBEGIN); /* they know it */

	begin("floor of own tables that were made again");
	go("registry, promoted, wanted");
	answered()->u.start.starts_at = now.clock + SECONDS(3600);
	go("ok, failed, look");
	made = answered()->u.start.starts_at = now.clock + SECONDS(4);
	on("ok", "asking: acquire");
	check_ended(DT_NOBEGIN, 0, made);	/* the former one is no matter */

	for (int i = 0; i < 3; i++)
	{
		TimestampTz end;

		begin(i == 0 ? "floor after another incarnation" : i == 1 ? "floor after another generation" :
			  "floor after neither");
		go(OPEN);
		end = rows[1].issued_until = now.clock + SECONDS(1);
		go("8 s, no, sealed");
		check_ended(end, 1, DT_NOBEGIN);	/* enough for its first lease */
		answered();
		if (i == 0)
			result.u.acquire.incarnation = uuid_of("made anew");
		if (i == 1)
			result.u.acquire.generation = 2;
		on("ok", "open: open");
		go("release, sealed, ok, wanted");
		check_number(call.u.acquire.ids_end_at, end, "no id of this start ends later");
		check(same_uuid(&call.lease.incarnation, &machine.lease.incarnation) &&
			  call.lease.generation == 1 + (i == 1), "the registry of the last lease");
		check_number(call.u.acquire.starts_at, i == 2 ? DT_NOBEGIN : end, "where later leases start");
	}

	begin("floor after a lease that was not opened");
	go(OPEN);
	rows[1].issued_until = now.clock + SECONDS(1);
	go("release, sealed, ok, registry, ok, release, sealed, ok, wanted");
	/* the registry that granted a lease in vain may not know of ids before it */
	check_ended(rows[1].issued_until, 2, rows[1].issued_until);
}

/* After whatever step a lease worker is killed, the next one comes to a lease. */
static void
test_killed_workers(void)
{
	static const char *const life[] = {
		"own", "promoted", "wanted", "ok", "ok", "time", "3 s", "ok", "time",
		"own from 512", "sealed", "ok", "time", "release", "sealed", "ok",
		"wanted", "ok", "time", "registry", "missing", "ok", "refused", "retry", "ok",
		"ok", "ok", "sealed", "time", "3 s", "no", "sealed", "ok", "time", "elsewhere 7", "ok",
		"ok", "no", "ok", "ok", "ok", "sealed", "time", "registry 7", "ok", "150 s", "sealed", "ok", "ok",
		"time", "own", "look", "sealed", "ok", "ok", "ok", "time", "stop", "sealed", "ok"
	};

	for (int killed = 1; killed <= (int) lengthof(life); killed++)
	{
		char		text[80];
		uint64		number;

		begin("lease worker killed");
		for (int i = 0; i < killed; i++)
			go(life[i]);
		number = machine.call_number;
		go("worker");
		check(machine.call == SNOWFLAKE_CALL_NONE || machine.call_number > number,
			  "the next one waits for no call that was out");
		go("promoted");
		for (int i = 0; i < 20 && machine.state != SNOWFLAKE_LEASE_OPEN; i++)
			go(machine.state == SNOWFLAKE_LEASE_SEALING ? "sealed" :
			   machine.call != SNOWFLAKE_CALL_NONE ? "ok" : "wanted");
		if (machine.leaving)
			go("150 s");		/* the same fixed number */
		for (int i = 0; i < 20 && machine.state != SNOWFLAKE_LEASE_OPEN; i++)
			go(machine.state == SNOWFLAKE_LEASE_SEALING ? "sealed" :
			   machine.call != SNOWFLAKE_CALL_NONE ? "ok" : "1 s");
		snprintf(text, sizeof(text), "after %d steps, the next one comes to a lease", killed);
		check(machine.state == SNOWFLAKE_LEASE_OPEN && !row_of(&machine.lease.token)->over &&
			  strcmp(machine.lease.request.registry, machine.request.registry) == 0, text);
	}
}

int
main(void)
{
	const char *seed = getenv("SEED");

	test_table();
	test_phases();
	test_first_lease();
	test_not_asked_for();
	test_settled();
	test_ends();
	test_own_ids();
	test_renewal();
	test_retries();
	test_waits();
	test_refusal_waits();
	test_refused_with_lease();
	test_refused_flag();
	test_spread_renewals();
	test_clock_behind();
	test_wrong_clock();
	test_requests();
	test_leaving();
	test_orders();
	test_floors();
	test_killed_workers();
	test_reasons();
	walk(seed == NULL ? 1 : strtoul(seed, NULL, 10));
	printf("1..%d\n", num_checks);
	return num_failures > 0;
}
