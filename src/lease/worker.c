/*
 * worker.c
 *	  The background worker that holds this server's lease: it looks at the
 *	  world, lets the lease machine decide, and performs what comes back.
 *
 * It is connected to no database, so it blocks no DROP DATABASE.  When it is
 * stopped it seals the words and has the helper tell the registry their true
 * end; the postmaster starts it again unless the server is shutting down.  If
 * it fails, the words stay as they are: backends go on up to the limit, and
 * the next worker goes on with the machine that is in shared memory.
 *
 * It also tells backends, the view and the log how things stand, and watches
 * the clock.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/shmem.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "guc.h"
#include "ids/word.h"
#include "lease/machine.h"
#include "lease/words.h"
#include "lease/worker.h"
#include "registry/helper.h"
#include "shmem.h"

#define RESTART_SECONDS		1

/* How long the result of the last call is waited for. */
#define LAST_RESULT_US		(900 * INT64CONST(1000))
#define LAST_RESULT_MS		20L

/*
 * A request that the settings do not give is read again: the host name may be
 * right by now.  So is a clock that is wrong.
 */
#define READ_AGAIN_US		(1 * USECS_PER_SEC)

/* A call that takes longer is mentioned. */
#define PATIENCE_US			(1 * USECS_PER_SEC)
/* And a longer wait for the clock: a burst may be a tick ahead. */
#define CLOCK_PATIENCE_US	(2 * USECS_PER_SEC)

/* The same trouble is logged again after this time. */
#define LOG_AGAIN_US		(60 * USECS_PER_SEC)
/* So many different ones are told apart. */
#define KINDS_OF_TROUBLE	8
/* What happens again and again is logged so often within that time. */
#define LOG_OFTEN			20

/*
 * Less is not a step of the clock: the two clocks are not read at the same
 * instant, and the wall clock is slewed by up to 500 millionths; twice that is
 * allowed for.
 */
#define STEP_TOLERANCE_US	1000
#define SLEW_DIVISOR		1000
/*
 * No registry lets an automatic lease start further ahead than this, beyond
 * max_ahead: 10 s (machine.c) and the longest tick.
 */
#define LONGEST_START_US	(11 * USECS_PER_SEC)
/* Shorter steps back are counted but not logged. */
#define LOG_BACK_US			100000

/* How often something was logged lately. */
typedef struct LogLimit
{
	int64		since;			/* monotonic */
	int			lines;			/* since then */
} LogLimit;

/* The lease machine, in shared memory; written by the lease worker alone. */
static SnowflakeMachine *machine = NULL;

/* A number is taken, given back, or left; the clock is set, or differs. */
static LogLimit leased_lines = {0, 0};
static LogLimit released_lines = {0, 0};
static LogLimit left_lines = {0, 0};
static LogLimit clock_lines = {0, 0};

static SnowflakeNumberRequest settings_request;
static int64 request_read_at = 0;

/*
 * Of the registry: as it answered last, or as a new setting names it; empty:
 * not known yet.
 */
static char registry_address[SNOWFLAKE_ADDRESS_SIZE] = "";

/*
 * A registry from before a promotion or a restore has answered last: no call
 * fails, but the view shows it.  SQLSTATE 0: none has.
 */
static SnowflakeProblem former_registry = {0};

/* The snowflake_release() being carried out: asked when it began; 0: none. */
static uint32 releasing = 0;

/* Whether a line may be logged; the first that may not be is mentioned. */
static bool
may_log(LogLimit *limit)
{
	int64		now = snowflake_monotonic_now();

	if (limit->lines == 0 || now - limit->since >= LOG_AGAIN_US)
	{
		limit->since = now;
		limit->lines = 0;
	}
	if (limit->lines > LOG_OFTEN)
		return false;
	if (limit->lines++ < LOG_OFTEN)
		return true;
	ereport(LOG,
			(errmsg("snowflake: further lines like the one before are left out for up to a minute"),
			 errdetail("There have been %d.", LOG_OFTEN)));
	return false;
}

/* The window of a lease: a clock that moves by more has been set. */
static int64
clock_tolerance(void)
{
	return Max((int64) snowflake_lease_duration * 1000,
			   2 * SNOWFLAKE_SETTING(max_ahead) + USECS_PER_SEC);
}

/*
 * Compares how far the clock and the monotonic clock have come since the last
 * call: counts steps back, warns about steps forward of more than a window.
 * Only reports: that no id repeats after a step follows from word and limit
 * alone.
 */
static void
watch_clock(void)
{
	static SnowflakeClockPair last = {0, 0};
	SnowflakeClockPair now = snowflake_clock_pair();
	int64		passed,
				step,
				tolerance;

	now.clock += SNOWFLAKE_SETTING(clock_offset);
	passed = now.monotonic - last.monotonic;
	step = now.clock - last.clock - passed;
	tolerance = STEP_TOLERANCE_US + passed / SLEW_DIVISOR;
	if (last.monotonic != 0 && step <= -tolerance)
	{
		pg_atomic_fetch_add_u64(&snowflake_shared->lease.clock_rollbacks, 1);
		if (step <= -LOG_BACK_US && may_log(&clock_lines))
			ereport(LOG,
					(errmsg("snowflake: the clock was set back by %.3f s",
							-step / 1e6)));
	}
	else if (last.monotonic != 0 && step > clock_tolerance() &&
			 may_log(&clock_lines))
		ereport(WARNING,
				(errmsg("snowflake: the clock was set forward by %.3f s",
						step / 1e6),
				 errdetail("Ids carry the new time at once; if it is wrong, they cannot go on when the clock is set back.")));
	last = now;
}

/*
 * How long until the clock allows the id after a word.  After the number's last
 * word there is none: how long until the layout ends.
 */
static int64
word_behind(const SnowflakeNow *now, const SnowflakeSlot *slot, uint64 word)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		tick = snowflake_word_is_last(layout, word) ? layout->max_tick + 1 :
	snowflake_word_tick(layout, word + 1);

	return snowflake_tick_begin(layout, tick) - now->max_ahead - now->clock;
}

/*
 * How long until the clock is close enough for the next id of the layout for
 * which that takes longest, in microseconds; not more than 0 if it is.  A word
 * of which nothing was issued does not count, since no other number would
 * start earlier; unless the lease was granted before the clock was set back:
 * the registry is asked again, to say why.  Such a lease may start after the
 * layout's end; then its word is sealed.
 */
static int64
time_behind(const SnowflakeNow *now)
{
	int64		behind = 0;

	for (int i = 0; i < snowflake_shared->num_slots; i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		bool		sealed =
		(pg_atomic_read_u64(&slot->word) & SNOWFLAKE_SEALED) != 0;
		uint64		word = snowflake_next_follows(slot);
		bool		issued = word != 0 &&
		((!sealed && word != pg_atomic_read_u64(&slot->opened)) ||
		 snowflake_word_is_late(&slot->layout, word, machine->lease.opens_at));
		int64		until;

		if (sealed && ((word == 0 && pg_atomic_read_u32(&slot->full) == 0) ||
					   snowflake_layout_is_over(&slot->layout)))
			continue;
		until = word != 0 ? word_behind(now, slot, word) :
			machine->lease.opens_at - now->max_ahead - now->clock;
		if (issued ||
			(!machine->lease.request.fixed && until > LONGEST_START_US))
			behind = Max(behind, until);
	}
	return behind;
}

/*
 * When the clock allows the next id, if calls of a server wait for that which
 * has no other number to take; else 0.
 */
static TimestampTz
waits_until(const SnowflakeNow *now)
{
	int64		behind = 0;

	if (!snowflake_machine_is_open(machine) ||
		snowflake_machine_can_move(machine))
		return 0;
	for (int i = 0; i < snowflake_shared->num_slots; i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];
		uint64		word = snowflake_next_follows(slot);

		if (word != 0 && !snowflake_word_is_last(&slot->layout, word))
			behind = Max(behind, word_behind(now, slot, word));
	}
	return behind > CLOCK_PATIENCE_US ? now->clock + behind : 0;
}

/*
 * Whether a word of the open lease was left sealed because the clock was past
 * the end of its layout, and it is not any more, or, with or_still, still is.
 */
static bool
was_past_an_end(bool or_still)
{
	if (machine->state != SNOWFLAKE_LEASE_OPEN)
		return false;
	for (int i = 0; i < snowflake_shared->num_slots; i++)
	{
		SnowflakeSlot *slot = &snowflake_shared->slots[i];

		if (snowflake_next_follows(slot) == 0 && pg_atomic_read_u32(&slot->full) == 0 &&
			(or_still || !snowflake_layout_is_over(&slot->layout)))
			return true;
	}
	return false;
}

/* What the machine is to know of the world now. */
static void
look_at_world(SnowflakeNow *now)
{
	memset(now, 0, sizeof(*now));
	now->clock = snowflake_id_clock();
	now->monotonic = snowflake_monotonic_now();
	now->recovery = RecoveryInProgress();
	now->max_ahead = SNOWFLAKE_SETTING(max_ahead);
	now->max_wait = SNOWFLAKE_SETTING(max_wait);
	now->lease_duration = (int64) snowflake_lease_duration * 1000;
	for (int i = 0; i < snowflake_shared->num_slots; i++)
		now->tick = Max(now->tick, snowflake_shared->slots[i].layout.tick_us);
	now->behind = time_behind(now);
	now->openable = was_past_an_end(false);
}

/*
 * Log and status
 */

/*
 * Logs a trouble, not again within a minute; and once, with NULL, that all of
 * it is over.  Trouble that comes and goes is not logged each time.
 */
static void
log_trouble(const SnowflakeProblem *problem)
{
	static struct
	{
		char		message[sizeof(problem->message)];
		int64		at;
	}			logged[KINDS_OF_TROUBLE];
	static int	num_logged = 0;
	static LogLimit limit = {0, 0};
	int64		now = snowflake_monotonic_now();
	int			i = 0;

	if (problem == NULL)
	{
		if (num_logged > 0)
			ereport(LOG,
					(errmsg("snowflake: ready again")));
		num_logged = 0;
		return;
	}
	while (i < num_logged && strcmp(logged[i].message, problem->message) != 0)
		i++;
	if ((i < num_logged && now - logged[i].at < LOG_AGAIN_US) ||
		!may_log(&limit))
		return;
	if (i == KINDS_OF_TROUBLE)
		i = 0;
	strlcpy(logged[i].message, problem->message, sizeof(logged[i].message));
	logged[i].at = now;
	num_logged = Max(num_logged, i + 1);
	ereport(WARNING,
			(errcode(problem->sqlerrcode),
			 errmsg("snowflake: %s", problem->message),
			 problem->from_registry ?
			 errdetail("%s The registry is %s.", problem->detail, registry_address) :
			 problem->detail[0] ? errdetail_internal("%s", problem->detail) :
			 0,
			 problem->hint[0] ? errhint("%s", problem->hint) : 0));
}

/* The call has been out for too long. */
static void
fill_no_answer(SnowflakeProblem *problem)
{
	char		message[sizeof(problem->message)];
	char		address[SNOWFLAKE_ADDRESS_SIZE] = "postgres";
	const char *registry = machine->call == SNOWFLAKE_CALL_START ||
	machine->call == SNOWFLAKE_CALL_RECORD ? "" :
	machine->call == SNOWFLAKE_CALL_ACQUIRE ? machine->request.registry :
	machine->lease.request.registry;

	if (registry[0] != '\0' && strcmp(registry, settings_request.registry) == 0)
		strlcpy(address, registry_address, sizeof(address));	/* who answers */
	else if (registry[0] != '\0')
		snowflake_remote_address(registry, address);
	snprintf(message, sizeof(message), "no answer yet from the registry %s",
			 address);
	snowflake_problem_set(problem, ERRCODE_LOCK_NOT_AVAILABLE, message,
						  !snowflake_helper_is_there() ?
						  "No background worker could be started for the call." :
						  "The transaction has not ended: it may be waiting for the network, a lock or a synchronous standby.",
						  "See that max_worker_processes leaves room for two beside those of PostgreSQL and other extensions, and what \"snowflake helper\" waits for in pg_stat_activity.");
	problem->has_address = registry[0] != '\0';
}

/* Logs that ids wait for the clock, which backends find by themselves. */
static void
log_clock_behind(TimestampTz until)
{
	SnowflakeProblem problem;
	char		detail[128];

	snprintf(detail, sizeof(detail), "Ids go on when it has reached %s.",
			 timestamptz_to_str(until));
	snowflake_problem_set(&problem, ERRCODE_LOCK_NOT_AVAILABLE,
						  "the clock is too far behind for the next id", detail,
						  "Correct the clock if it is wrong; else wait.");
	log_trouble(&problem);
}

/*
 * Tells backends, the view and the log how things stand.  Returns whether
 * something has changed for those who wait.
 */
static bool
tell_status(const SnowflakeNow *now)
{
	const SnowflakeMachine *m = machine;
	TimestampTz until = waits_until(now);
	const SnowflakeProblem *problem;
	SnowflakeStatus status;

	memset(&status, 0, sizeof(status));
	status.phase = snowflake_machine_phase(m, now, &problem);
	status.can_move = snowflake_machine_can_move(m);
	if (status.phase == SNOWFLAKE_REFUSED)
		status.refused_until = problem == &m->problem && m->refused_until != 0 ?
			m->refused_until : PG_INT64_MAX;
	strlcpy(status.address, registry_address, sizeof(status.address));
	if (status.phase == SNOWFLAKE_RETRYING ||
		status.phase == SNOWFLAKE_REFUSED)
		status.problem = *problem;
	else if (m->call != SNOWFLAKE_CALL_NONE &&
			 now->monotonic - m->called_at > PATIENCE_US &&
			 (m->state != SNOWFLAKE_LEASE_OPEN ||
			  m->lease.leased_until <= now->clock))
	{
		status.phase = SNOWFLAKE_RETRYING;
		fill_no_answer(&status.problem);
	}
	if (status.problem.sqlerrcode != 0)
		log_trouble(&status.problem);
	else if (until != 0)
		log_clock_behind(until);
	else if (m->state == SNOWFLAKE_LEASE_OPEN)
		log_trouble(NULL);

	/* no call fails for it, but somebody must see it */
	if (status.problem.sqlerrcode == 0 && former_registry.sqlerrcode != 0)
		status.problem = former_registry;

	/*
	 * to a backend, most of what can go wrong there is but a wait that was
	 * too long
	 */
	if (status.phase == SNOWFLAKE_RETRYING &&
		status.problem.sqlerrcode != ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)
		status.problem.sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE;
	if (memcmp(&snowflake_shared->status, &status, sizeof(status)) == 0)
		return false;
	LWLockAcquire(snowflake_shared->lock, LW_EXCLUSIVE);
	snowflake_shared->status = status;
	LWLockRelease(snowflake_shared->lock);
	return true;
}

/*
 * A lease was granted: the log has its number, and clocks that differ too
 * much, or do no more.
 */
static void
note_granted(const SnowflakeResult *result)
{
	static int64 warned_at = 0;
	static bool differed = false;
	int64		now = snowflake_monotonic_now();
	int64		differ = snowflake_id_clock() - result->u.acquire.clock;

	if (Max(differ, -differ) <= clock_tolerance())
	{
		if (differed && may_log(&clock_lines))
			ereport(LOG,
					(errmsg("snowflake: the clocks of this server and of the registry %s agree again",
							result->address)));
		differed = false;
	}
	else if ((!differed || now - warned_at > LOG_AGAIN_US) &&
			 may_log(&clock_lines))
	{
		differed = true;
		warned_at = now;
		ereport(WARNING,
				(errmsg("snowflake: the clocks of this server and of the registry %s differ by %.3f s",
						result->address, Max(differ, -differ) / 1e6),
				 errhint("Correct the one that is wrong.")));
	}
	if (may_log(&leased_lines))
		ereport(LOG,
				(errmsg("snowflake: leased node number " UINT64_FORMAT " from %s until %s", result->u.acquire.node,
						result->address, timestamptz_to_str(result->u.acquire.leased_until))));
}

/*
 * The log says once that the registry leases for less than was asked for,
 * which it does where its limit for ends is less, or a clock is wrong.
 */
static void
note_cut(TimestampTz starts_at, TimestampTz leased_until)
{
	static bool said = false;
	TimestampTz asked = snowflake_machine_asked_end(machine, starts_at);
	char		asked_text[MAXDATELEN + 1];

	if (leased_until >= asked)
		said = false;
	else if (!said)
	{
		said = true;
		strlcpy(asked_text, timestamptz_to_str(asked), sizeof(asked_text));
		ereport(LOG,
				(errmsg("snowflake: the registry %s has cut a lease: it ends at %s, not at %s",
						registry_address, timestamptz_to_str(leased_until), asked_text),
				 errdetail("No lease ends later than the registry's limit for ends after its clock."),
				 errhint("Set snowflake.lease_duration and snowflake.max_ahead to at least 10 s less than that limit. If they are, compare the clocks.")));
	}
}

/*
 * Guards that a node sees: the registry that answers has an earlier generation
 * than one that has answered before, or its tables do not know the lease.
 */
static void
note_guards(const SnowflakeResult *result)
{
	const SnowflakeLease *lease = &machine->lease;
	static pg_uuid_t incarnation;
	static int32 generation = 0;
	static LogLimit limit = {0, 0};
	char		message[sizeof(former_registry.message)];

	if (result->generation == 0)
		return;
	if (generation == 0)
	{
		incarnation = lease->incarnation;
		generation = lease->generation;
	}
	if (memcmp(&incarnation, &result->incarnation, sizeof(incarnation)) == 0 &&
		result->generation < generation)
	{
		pg_atomic_fetch_add_u64(&snowflake_shared->lease.failures, 1);
		snprintf(message, sizeof(message), "the registry %s is of generation %d, and one of generation %d has answered before",
				 registry_address, result->generation, generation);
		snowflake_problem_set(&former_registry, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message,
							  "It is a server from before a promotion or a restore.",
							  "Unless a backup was restored in place of the other one, stop it, and let it come back only as a standby: see \"Failover\" in doc/operations.md.");
		former_registry.has_address = true;
		if (may_log(&limit))
			ereport(WARNING,
					(errcode(former_registry.sqlerrcode),
					 errmsg("snowflake: %s", former_registry.message),
					 errdetail_internal("%s", former_registry.detail),
					 errhint("%s", former_registry.hint)));
		return;
	}
	former_registry.sqlerrcode = 0;
	incarnation = result->incarnation;
	generation = result->generation;
	if (result->kind == SNOWFLAKE_RESULT_NO && result->rolled_back && may_log(&limit))
		ereport(WARNING,
				(errmsg("snowflake: the tables of the registry %s do not know how far the lease of node number " UINT64_FORMAT " goes",
						registry_address, lease->node),
				 errdetail("It is from %s on.", timestamptz_to_str(lease->starts_at)),
				 errhint("They were rolled back, or another server with the same tables has granted it: see \"Failover\" in doc/operations.md.")));
}

/* What the log, the counters and the view have of the result of the call that is out. */
static void
note_result(const SnowflakeResult *result)
{
	const SnowflakeMachine *m = machine;
	SnowflakeLeaseView *view = &snowflake_shared->lease;
	bool		failed = result->kind == SNOWFLAKE_RESULT_FAILED ||
	result->kind == SNOWFLAKE_RESULT_REFUSED;

	if (m->call == SNOWFLAKE_CALL_ACQUIRE || m->call == SNOWFLAKE_CALL_RENEW)
		note_guards(result);
	if (failed)
		pg_atomic_fetch_add_u64(&view->failures, 1);
	if (m->call == SNOWFLAKE_CALL_ACQUIRE && result->kind == SNOWFLAKE_RESULT_OK)
	{
		note_cut(result->u.acquire.starts_at, result->u.acquire.leased_until);
		note_granted(result);
	}
	else if (m->call == SNOWFLAKE_CALL_RENEW && result->kind == SNOWFLAKE_RESULT_OK)
	{
		note_cut(m->lease.starts_at, result->u.renew.leased_until);
		pg_atomic_fetch_add_u64(&view->renewals, 1);
	}
	else if (m->call == SNOWFLAKE_CALL_RENEW && result->kind == SNOWFLAKE_RESULT_NO)
	{
		pg_atomic_fetch_add_u64(&view->failures, 1);
		if (may_log(&left_lines))
			ereport(LOG,
					(errmsg("snowflake: the lease of node number " UINT64_FORMAT " was closed by the registry; another one is taken",
							m->lease.node),
					 errdetail("No id was issued past the end of that lease.")));
	}
	else if (m->call == SNOWFLAKE_CALL_RELEASE)
	{
		pg_atomic_write_u32(&snowflake_shared->release.failed, failed);
		if (!may_log(&released_lines))
			return;
		if (failed)
			ereport(LOG,
					(errmsg("snowflake: could not close the lease of node number " UINT64_FORMAT ": %s",
							m->lease.node, result->problem.message),
					 errdetail("Others can have the number when its leased_until is past.")));
		else
			ereport(LOG,
					(errmsg("snowflake: released node number " UINT64_FORMAT,
							m->lease.node)));
	}
}

/*
 * Actions
 */

/*
 * Opens the words for the machine's lease, or extends those that are open, and wakes
 * those who wait for that.
 */
static void
open_words(void)
{
	const SnowflakeMachine *m = machine;
	SnowflakeLeaseView *view = &snowflake_shared->lease;

	pg_atomic_write_u64(&view->leased_until, (uint64) m->lease.leased_until);
	pg_atomic_write_u64(&view->settled_from, (uint64) m->settled_from);
	snowflake_words_open(m->lease.node, m->lease.opens_at, m->lease.leased_until);
	if (view->has_opened && view->opened_node != m->lease.node)
		pg_atomic_fetch_add_u64(&view->worker_switches, 1);
	view->has_opened = true;
	view->opened_node = m->lease.node;
	ConditionVariableBroadcast(&snowflake_shared->changed);
}

/* Seals the words; the event tells the end of their ids. */
static void
seal_words(const SnowflakeNow *now, SnowflakeEvent *event)
{
	const SnowflakeMachine *m = machine;

	if (m->then == SNOWFLAKE_THEN_ASK && now->behind > now->max_wait &&
		may_log(&left_lines))
		ereport(LOG,
				(errmsg("snowflake: the clock is %.3f s behind the last id of node number " UINT64_FORMAT "; another one is taken",
						(now->behind + now->max_ahead) / 1e6,
						m->lease.node)));
	event->kind = SNOWFLAKE_EVENT_SEALED;
	event->end = snowflake_words_seal(m->lease.node, m->lease.starts_at);
}

static void
make_call(SnowflakeCall *call)
{
	call->layout = snowflake_shared->slots[0].layout;
	snowflake_helper_prepare();
	snowflake_helper_ask(call);
}

/*
 * On a standby that is to use its own tables: the log says, when the server
 * starts and whenever this has changed, what they would refuse after a
 * promotion.  No other call is made there.
 */
static void
look_at_promotion(void)
{
	static int64 looked_at = 0;
	static uint64 asked = 0;	/* number of the call that is out; 0: none */
	static char said[sizeof(((SnowflakeProblem *) NULL)->message)] = "";
	static SnowflakeResult result;
	int64		now = snowflake_monotonic_now();

	if (!settings_request.valid || settings_request.registry[0] != '\0')
		return;
	if (looked_at == 0 || now - looked_at > LOG_AGAIN_US)
	{
		SnowflakeCall call = {.kind = SNOWFLAKE_CALL_LOOK};

		looked_at = now;
		asked = call.number = ++machine->call_number;
		make_call(&call);
		return;
	}
	if (asked == 0 || !snowflake_helper_result(asked, &result))
		return;
	asked = 0;
	if (result.kind == SNOWFLAKE_RESULT_REFUSED && strcmp(said, result.problem.message) != 0)
	{
		strlcpy(said, result.problem.message, sizeof(said));
		ereport(WARNING,
				(errcode(result.problem.sqlerrcode),
				 errmsg("snowflake: if this standby is promoted, it issues no ids: %s", said),
				 errdetail_internal("%s", result.problem.detail),
				 errhint("%s", result.problem.hint)));
	}
	else if (result.kind == SNOWFLAKE_RESULT_OK && said[0] != '\0')
	{
		said[0] = '\0';
		ereport(LOG,
				(errmsg("snowflake: if this standby is promoted, it issues ids")));
	}
}

/*
 * The order of a superuser: snowflake_release()
 */

/* Tells that the order has been carried out, if one was. */
static void
check_release(void)
{
	SnowflakeLeaseState state = machine->state;

	if (releasing == 0 || state == SNOWFLAKE_LEASE_SEALING ||
		state == SNOWFLAKE_LEASE_ENDING)
		return;
	pg_write_barrier();			/* failed is set before done */
	pg_atomic_write_u32(&snowflake_shared->release.done, releasing);
	releasing = 0;
	ConditionVariableBroadcast(&snowflake_shared->changed);
}

/* Begins with the order, if there is one; false if there is none. */
static bool
take_release(void)
{
	SnowflakeOrder *order = &snowflake_shared->release;
	uint32		asked = pg_atomic_read_u32(&order->asked);

	if (releasing != 0 || asked == pg_atomic_read_u32(&order->done))
		return false;
	releasing = asked;
	pg_atomic_write_u32(&order->failed, 0);
	return true;
}

/*
 * Steps
 */

/*
 * Lets the machine decide, and performs what it says, until it waits.  Returns
 * false to end.
 */
static bool
run_machine(SnowflakeEvent event, int64 *wake_at)
{
	SnowflakeMachine *m = machine;

	for (;;)
	{
		SnowflakeNow now;
		SnowflakeAction action;

		look_at_world(&now);
		now.wanted =
			pg_atomic_exchange_u32(&snowflake_shared->lease.requested, 0) != 0;
		now.issued = snowflake_words_issued();
		snowflake_machine_step(m, &event, &now, &action);
		memset(&event, 0, sizeof(event));
		switch (action.kind)
		{
			case SNOWFLAKE_ACTION_CALL:
				make_call(&action.call);
				break;
			case SNOWFLAKE_ACTION_OPEN:
				open_words();
				break;
			case SNOWFLAKE_ACTION_SEAL:
				seal_words(&now, &event);
				break;
			case SNOWFLAKE_ACTION_WAIT:
				*wake_at = action.until;
				return true;
			case SNOWFLAKE_ACTION_EXIT:
				return false;
		}
	}
}

/*
 * The settings are read again after a reload, and while they give no number.
 */
static bool
request_changed(bool reloaded)
{
	SnowflakeNumberRequest now;

	if (request_read_at != 0 && !reloaded &&
		(settings_request.valid ||
		 snowflake_monotonic_now() - request_read_at < READ_AGAIN_US))
		return false;
	request_read_at = snowflake_monotonic_now();
	snowflake_request_read(&now);
	if (memcmp(&now, &settings_request, sizeof(now)) == 0)
		return false;
	settings_request = now;
	return true;
}

/*
 * Forgets the address of the former registry when another one is set: until it
 * has answered, it is called as the setting says.
 */
static void
name_registry(void)
{
	static char named[SNOWFLAKE_REGISTRY_SIZE] = "";

	if (strcmp(named, settings_request.registry) == 0)
		return;
	strlcpy(named, settings_request.registry, sizeof(named));
	if (named[0] == '\0')
		strlcpy(registry_address, "postgres", sizeof(registry_address));
	else
		snowflake_remote_address(named, registry_address);
}

/* What has happened since the last pass; false: nothing (more). */
static bool
next_event(SnowflakeEvent *event, bool *reloaded)
{
	static bool begun = false;
	static SnowflakeResult result;
	SnowflakeMachine *m = machine;

	memset(event, 0, sizeof(*event));
	if (!begun)
	{
		begun = true;
		event->kind = SNOWFLAKE_EVENT_WORKER;
		memcpy(&event->seed, &snowflake_shared->start, sizeof(event->seed));
	}
	else if (request_changed(*reloaded))
	{
		name_registry();
		event->kind = SNOWFLAKE_EVENT_REQUEST;
		event->request = &settings_request;
	}
	/* before the result of a START that has created it */
	else if (pg_atomic_exchange_u32(&snowflake_shared->look, 0) != 0)
		event->kind = SNOWFLAKE_EVENT_LOOK;
	else if (m->call != SNOWFLAKE_CALL_NONE &&
			 snowflake_helper_result(m->call_number, &result))
	{
		event->kind = SNOWFLAKE_EVENT_RESULT;
		event->result = &result;
		/* a lease is closed where it is from: at the former registry */
		if (result.address[0] != '\0' && m->call != SNOWFLAKE_CALL_START &&
			m->call != SNOWFLAKE_CALL_RECORD &&
			m->call != SNOWFLAKE_CALL_RELEASE)
			strlcpy(registry_address, result.address, sizeof(registry_address));
		note_result(&result);
	}
	else if (take_release())
		event->kind = SNOWFLAKE_EVENT_RELEASE;
	else
		return false;
	*reloaded = false;
	return true;
}

/*
 * One round: all that has happened.  Returns the milliseconds until the next.
 */
static long
make_pass(bool reloaded)
{
	SnowflakeMachine *m = machine;
	SnowflakeLeaseState state = m->state;
	int64		max_ahead = SNOWFLAKE_SETTING(max_ahead);
	int64		clock_offset = SNOWFLAKE_SETTING(clock_offset);
	int64		wake_at = 0;
	SnowflakeEvent event;
	SnowflakeNow now;

	snowflake_guc_publish();
	watch_clock();
	do
	{
		if (!next_event(&event, &reloaded))
			memset(&event, 0, sizeof(event));
		(void) run_machine(event, &wake_at);
		check_release();
	} while (event.kind != SNOWFLAKE_EVENT_TIME);

	if (m->state == SNOWFLAKE_LEASE_STANDBY)
		look_at_promotion();

	/* a helper is at hand for the next call, also while the server stops */
	if (m->state != SNOWFLAKE_LEASE_STANDBY &&
		(m->state != SNOWFLAKE_LEASE_NO_TABLE ||
		 m->call != SNOWFLAKE_CALL_NONE))
		snowflake_helper_prepare();
	look_at_world(&now);

	/* those who wait ask for another pass when they find the same as before */
	if (tell_status(&now) || state != m->state ||
		max_ahead != SNOWFLAKE_SETTING(max_ahead) ||
		clock_offset != SNOWFLAKE_SETTING(clock_offset))
		ConditionVariableBroadcast(&snowflake_shared->changed);
	/* for the log, too: it says when the clock has caught up */
	if (!settings_request.valid || waits_until(&now) != 0 || was_past_an_end(true))
		wake_at = Min(wake_at, now.monotonic + READ_AGAIN_US);
	return (long) (Max(wake_at - now.monotonic, 0) / 1000) + 1;
}

/*
 * Ends the lease.  Never long: what cannot be told the registry can be told
 * later.
 */
static void
stop_machine(void)
{
	int64		end = snowflake_monotonic_now() + LAST_RESULT_US;
	SnowflakeEvent event = {.kind = SNOWFLAKE_EVENT_STOP};
	SnowflakeResult result;
	int64		wake_at;

	while (run_machine(event, &wake_at) && snowflake_monotonic_now() < end)
	{
		memset(&event, 0, sizeof(event));
		ResetLatch(MyLatch);
		if (snowflake_helper_result(machine->call_number, &result))
		{
			note_result(&result);
			event.kind = SNOWFLAKE_EVENT_RESULT;
			event.result = &result;
			continue;
		}
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 LAST_RESULT_MS,
						 snowflake_wait_event("SnowflakeLease"));
	}
}

/*
 * The process
 */

/* Backends have nobody to wake any more. */
static void
forget_worker(int code, Datum arg)
{
	pg_atomic_write_u32(&snowflake_shared->worker, 0);
}

static void
start_worker(void)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, PG_SIG_IGN);	/* there is nothing to cancel */
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	/* no database, but visible in pg_stat_activity */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("snowflake lease worker");

	before_shmem_exit(forget_worker, (Datum) 0);
	pg_atomic_write_u32(&snowflake_shared->worker,
						snowflake_my_proc_number() + 1);
}

void
snowflake_lease_worker_main(Datum arg)
{
	MemoryContext context;

	start_worker();
	context = AllocSetContextCreate(TopMemoryContext,
									"snowflake lease worker",
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	while (!ShutdownRequestPending)
	{
		bool		reloaded = false;
		long		timeout = SNOWFLAKE_LONGEST_WAIT_US / 1000;

		/*
		 * before the work, so that what asks for more of it meanwhile is not
		 * lost
		 */
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			reloaded = true;
		}
		if (!snowflake_shared->refused)
			timeout = make_pass(reloaded);
		/* FreeErrorData() leaves some of an error that was caught */
		MemoryContextReset(context);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout, snowflake_wait_event("SnowflakeLease"));
	}
	if (!snowflake_shared->refused)
		stop_machine();

	/* not 0: after pg_terminate_backend() the worker is wanted again */
	proc_exit(1);
}

Size
snowflake_lease_worker_shmem_size(void)
{
	return CACHELINEALIGN(sizeof(SnowflakeMachine));
}

/* For the startup hook, which holds AddinShmemInitLock. */
void
snowflake_lease_worker_shmem_create(void)
{
	bool		found;

	machine =
		ShmemInitStruct("snowflake lease worker", sizeof(SnowflakeMachine),
						&found);
	if (found)
		return;
	memset(machine, 0, sizeof(SnowflakeMachine));
	snowflake_machine_init(machine);
}

void
snowflake_lease_worker_register(void)
{
	BackgroundWorker worker = {
		SNOWFLAKE_BACKGROUND_WORKER("snowflake lease worker", snowflake_lease_worker_main),
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = RESTART_SECONDS,
	};

	RegisterBackgroundWorker(&worker);
}
