/*
 * machine.c
 *	  The lease machine: what the lease worker decides, without I/O.
 *
 * Why no id repeats
 *	  - The words are opened, and their limits moved, only for a row that a
 *		call's result has shown to be durable with that leased_until; a result
 *		counts only if it is that of the call that is out.
 *	  - A lease that is over (SEALING) is never opened or renewed again: its
 *		end is told to the registry, and others may start there.
 *	  - Before the first id from a registry, the own table says that it is
 *	    used.
 *
 * A call that was given up on, or that went out before a lease worker was
 * killed, may still be carried out.  The registry closes what it granted when
 * the next call of this start comes, and refuses it after that (see
 * acquire_lease).
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "lease/machine.h"

/*
 * The first automatic lease of a start is short, so that crashes in a row use
 * up few numbers.
 */
#define FIRST_WINDOW_US		(10 * USECS_PER_SEC)
/* What a lease lasts beyond what backends can use at once. */
#define RESERVE_US			(1 * USECS_PER_SEC)
/*
 * A fixed number of the own table is renewed when this much of the reserve is
 * used.
 */
#define RENEW_RESERVE_US	(500 * INT64CONST(1000))
/* Others when this part of the window is used. */
#define RENEW_DIVISOR		4

/* Own leases are renewed while ids were issued so lately. */
#define ACTIVE_US			(60 * USECS_PER_SEC)
/* A backend that waits asks again at least every second. */
#define WANTED_US			(2 * USECS_PER_SEC)
/* The words are looked at so often while ids are issued. */
#define WATCH_US			(250 * INT64CONST(1000))
/* If the word of a result, of promotion or of a host name is lost. */
#define LOOK_US				(500 * INT64CONST(1000))

/* After a failure, the next call; nobody waits: later and later. */
#define RETRY_US			(1 * USECS_PER_SEC)
#define LAST_RETRY_US		(30 * USECS_PER_SEC)

/*
 * A burst may be ahead by a tick more than it may; a clock that was set back,
 * by more.
 */
#define LEAST_MOVE_US		(1 * USECS_PER_SEC)
/* Another number is tried this often while the clock stays behind. */
#define MOVE_AGAIN_US		(1 * USECS_PER_SEC)

/* At server start, in shared memory that is zero. */
void
snowflake_machine_init(SnowflakeMachine *m)
{
	m->state = SNOWFLAKE_LEASE_STANDBY;
	m->known_until = DT_NOBEGIN;
	m->floor = m->own_floor = DT_NOBEGIN;
	m->end = DT_NOBEGIN;
}

const char *
snowflake_lease_state_name(SnowflakeLeaseState state)
{
	static const char *const names[] = {
		"standby", "new", "no table", "none", "asking", "granted", "open",
		"sealing", "ending",
		"changing", "stopped"
	};

	return names[state];
}

static bool
is_own(const SnowflakeNumberRequest *request)
{
	return request->registry[0] == '\0';
}

/* Whether a backend waits for an id. */
static bool
is_wanted(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	return m->wanted_at != 0 && now->monotonic - m->wanted_at < WANTED_US;
}

static bool
is_active(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	return m->active_at != 0 && now->monotonic - m->active_at < ACTIVE_US;
}

/* When the next call may be made. */
static int64
retry_at(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	int64		delay = RETRY_US;

	if (m->failures == 0)
		return 0;
	for (int i = 1; i < m->failures && delay < LAST_RETRY_US &&
		 !is_wanted(m, now); i++)
		delay *= 2;
	return m->failed_at + Min(delay, LAST_RETRY_US);
}

static void
fail(SnowflakeMachine *m, const SnowflakeNow *now,
	 const SnowflakeProblem *problem)
{
	m->problem = *problem;
	m->failures = Min(m->failures + 1, 30);
	m->failed_at = now->monotonic;
}

static void
succeed(SnowflakeMachine *m)
{
	memset(&m->problem, 0, sizeof(m->problem));
	m->failures = 0;
}

/* Refuses until somebody acts: no call was made. */
static void
refuse(SnowflakeMachine *m, const char *message, const char *detail,
	   const char *hint)
{
	snowflake_problem_set(&m->problem,
						  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message,
						  detail, hint);
}

/* The longest window of a lease for a request. */
static int64
full_window(const SnowflakeNumberRequest *request, const SnowflakeNow *now)
{
	int64		least = now->max_ahead + now->tick + RESERVE_US;

	if (request->fixed && is_own(request))
		return least;
	return Max(now->lease_duration, least);
}

static int64
first_window(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	int64		full = full_window(&m->request, now);

	return m->request.fixed ? full : Min(full, FIRST_WINDOW_US);
}

/* The leased_until that a renewal asks for. */
static TimestampTz
renewed_until(const SnowflakeMachine *m, const SnowflakeNow *now,
			  int64 *window)
{
	*window = Min(2 * m->window, full_window(&m->lease_request, now));
	*window = Max(*window, first_window(m, now));
	return Max(now->clock, m->starts_at) + *window;
}

/* How much of the lease may be left when it is renewed. */
static int64
renew_left(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	if (m->lease_request.fixed && is_own(&m->lease_request))
		return full_window(&m->lease_request, now) - RENEW_RESERVE_US;
	return m->window - m->window / RENEW_DIVISOR;
}

/*
 * Leases of another registry are always kept, those of the own table while ids
 * are issued.
 */
static bool
is_kept(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	return !is_own(&m->lease_request) || is_active(m, now);
}

static bool
renewal_is_due(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	int64		left = m->leased_until - now->clock;
	int64		window;

	if (renewed_until(m, now, &window) <= m->leased_until + now->tick)
		return false;

	/*
	 * a backend that waits has found the limit if it is as near as ids may be
	 * ahead
	 */
	return (is_wanted(m, now) && left <= now->max_ahead + 2 * now->tick) ||
		(is_kept(m, now) && left <= renew_left(m, now));
}

/* Whether there is another number to go to when the clock is behind. */
bool
snowflake_machine_can_move(const SnowflakeMachine *m)
{
	return m->lease_request.last > m->lease_request.first;
}

/*
 * Whether the clock is so far behind the last id that backends fail, and
 * another number helps.
 */
static bool
must_move(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	return is_wanted(m, now) && snowflake_machine_can_move(m) &&
		now->behind > Max(now->max_wait, LEAST_MOVE_US) &&
		(m->moved_at == 0 || now->monotonic - m->moved_at >= MOVE_AGAIN_US);
}

/*
 * The lease is over.  Its words are sealed first, if they can be open; a call
 * that is out is given up on.
 */
static void
end_lease(SnowflakeMachine *m, SnowflakeAfterEnd then)
{
	m->call = SNOWFLAKE_CALL_NONE;
	m->then = then;
	m->state = SNOWFLAKE_LEASE_SEALING;
}

/*
 * What follows once the words are sealed; a lease whose row may be open has an
 * end.
 */
static void
go_on(SnowflakeMachine *m)
{
	switch (m->then)
	{
		case SNOWFLAKE_THEN_ASK:
			m->state = SNOWFLAKE_LEASE_ASKING;
			break;
		case SNOWFLAKE_THEN_CHANGE:
			m->state = SNOWFLAKE_LEASE_CHANGING;
			break;
		default:
			m->state = SNOWFLAKE_LEASE_ENDING;
			break;
	}
}

/* The row is closed, or cannot be: what was to follow follows. */
static void
finish_ending(SnowflakeMachine *m)
{
	switch (m->then)
	{
		case SNOWFLAKE_THEN_STOP:
			m->state = SNOWFLAKE_LEASE_STOPPED;
			break;
		case SNOWFLAKE_THEN_REST:
			m->state = SNOWFLAKE_LEASE_NONE;
			m->wanted_at = m->active_at = 0;
			memset(&m->problem, 0, sizeof(m->problem));
			break;
		default:
			m->state = SNOWFLAKE_LEASE_NEW;
			break;
	}
}

static bool
lease_is_on(const SnowflakeMachine *m)
{
	return m->state == SNOWFLAKE_LEASE_OPEN ||
		m->state == SNOWFLAKE_LEASE_GRANTED;
}

/* An order of the worker's that ends the lease, if there is one. */
static void
follow_order(SnowflakeMachine *m, SnowflakeAfterEnd then)
{
	if (m->state == SNOWFLAKE_LEASE_STANDBY ||
		m->state == SNOWFLAKE_LEASE_STOPPED)
	{
		if (then == SNOWFLAKE_THEN_STOP)
			m->state = SNOWFLAKE_LEASE_STOPPED;
		return;
	}
	if (lease_is_on(m) || m->state == SNOWFLAKE_LEASE_SEALING)
	{
		end_lease(m, then);
		return;
	}
	if (then == SNOWFLAKE_THEN_REST && m->state != SNOWFLAKE_LEASE_ASKING)
		return;
	m->call = SNOWFLAKE_CALL_NONE;
	m->then = then;
	if (then == SNOWFLAKE_THEN_CHANGE || m->has_lease)
		go_on(m);
	else
		finish_ending(m);
}

/*
 * The extension was created in postgres, so what the own table said counts no
 * more: this start is counted there before the next lease.
 */
static void
follow_creation(SnowflakeMachine *m)
{
	m->created = true;
	switch (m->state)
	{
		case SNOWFLAKE_LEASE_NEW:
		case SNOWFLAKE_LEASE_NO_TABLE:
		case SNOWFLAKE_LEASE_NONE:
		case SNOWFLAKE_LEASE_ASKING:
			m->call = SNOWFLAKE_CALL_NONE;
			m->state = SNOWFLAKE_LEASE_NEW;
			succeed(m);			/* it may have cured what was wrong */
			break;
		case SNOWFLAKE_LEASE_GRANTED:
		case SNOWFLAKE_LEASE_OPEN:
			/* its row is gone, or what it recorded */
			end_lease(m, SNOWFLAKE_THEN_START);
			succeed(m);
			break;
		case SNOWFLAKE_LEASE_SEALING:
		case SNOWFLAKE_LEASE_ENDING:
			if (m->then == SNOWFLAKE_THEN_ASK ||
				m->then == SNOWFLAKE_THEN_REST)
				m->then = SNOWFLAKE_THEN_START;
			break;
		default:
			break;
	}
}

/* The settings ask for something else than before. */
static void
follow_request(SnowflakeMachine *m, const SnowflakeNumberRequest *request)
{
	bool		other_registry =
	strcmp(m->request.registry, request->registry) != 0;

	m->request = *request;
	succeed(m);
	if (m->call == SNOWFLAKE_CALL_ACQUIRE)
		m->call = SNOWFLAKE_CALL_NONE;
	if (!lease_is_on(m))
	{
		if (m->state == SNOWFLAKE_LEASE_NONE && other_registry &&
			m->uses != SNOWFLAKE_USES_NOTHING)
			m->state = SNOWFLAKE_LEASE_ASKING;
		return;
	}
	if (!request->valid ||
		strcmp(m->lease_request.registry, request->registry) != 0)
		end_lease(m, SNOWFLAKE_THEN_START);
	else if (request->fixed != m->lease_request.fixed ||
			 m->node < request->first || m->node > request->last)
		end_lease(m, SNOWFLAKE_THEN_ASK);
	else
		m->lease_request = *request;
}

/*
 * Results
 */
static void
take_granted(SnowflakeMachine *m, const SnowflakeNow *now,
			 const SnowflakeResult *result)
{
	if (result->node < m->request.first || result->node > m->request.last ||
		result->starts_at > result->leased_until)
	{
		SnowflakeProblem problem;
		char		detail[128];

		snprintf(detail, sizeof(detail),
				 "It granted node number " UINT64_FORMAT "; asked for was one from " UINT64_FORMAT " to " UINT64_FORMAT ".",
				 result->node, m->request.first, m->request.last);
		snowflake_problem_set(&problem,
							  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							  "the registry granted a lease that was not asked for", detail,
							  "See whether somebody has changed the functions in the schema snowflake there.");
		fail(m, now, &problem);
		return;
	}
	succeed(m);

	/*
	 * the registry has heard of known_until, and counts it for this lease
	 * only
	 */
	if (!m->had_lease ||
		memcmp(&m->incarnation, &result->incarnation,
			   sizeof(m->incarnation)) != 0)
		m->floor = Max(m->floor, m->known_until);
	if (!is_own(&m->request))
		m->floor = Max(m->floor, m->own_floor);
	m->has_lease = m->had_lease = true;
	m->lease_request = m->request;
	m->token = result->token;
	m->incarnation = result->incarnation;
	m->node = result->node;
	m->starts_at = result->starts_at;
	m->leased_until = result->leased_until;
	m->end = DT_NOBEGIN;
	m->window = first_window(m, now);
	m->wanted_at = 0;
	if (is_own(&m->request))
		m->uses = SNOWFLAKE_USES_OWN;
	m->state = is_own(&m->request) ||
		(m->uses == SNOWFLAKE_USES_ANOTHER &&
		 memcmp(&m->used_incarnation, &m->incarnation,
				sizeof(m->incarnation)) == 0) ?
		SNOWFLAKE_LEASE_OPEN : SNOWFLAKE_LEASE_GRANTED;
}

static void
take_renewed(SnowflakeMachine *m, const SnowflakeNow *now,
			 const SnowflakeResult *result)
{
	switch (result->kind)
	{
		case SNOWFLAKE_RESULT_OK:
			succeed(m);
			(void) renewed_until(m, now, &m->window);
			m->leased_until = Max(m->leased_until, result->leased_until);
			m->wanted_at = 0;
			break;
		case SNOWFLAKE_RESULT_CLOSED:
			end_lease(m, SNOWFLAKE_THEN_ASK);
			break;
		case SNOWFLAKE_RESULT_MISSING:
			end_lease(m, SNOWFLAKE_THEN_START);
			break;
		case SNOWFLAKE_RESULT_FAILED:
			fail(m, now, &result->problem);
			break;
	}
}

/*
 * If the registry could not be told, the next call names the lease with its
 * end: a registry that does not know it, because the setting has changed, does
 * nothing.
 */
static void
take_released(SnowflakeMachine *m, const SnowflakeResult *result)
{
	if (result->kind != SNOWFLAKE_RESULT_FAILED)
	{
		m->has_lease = false;
		succeed(m);
	}
	finish_ending(m);
}

static void
take_result(SnowflakeMachine *m, const SnowflakeNow *now,
			const SnowflakeResult *result)
{
	SnowflakeCallKind call = m->call;

	if (call == SNOWFLAKE_CALL_NONE)
		return;
	m->call = SNOWFLAKE_CALL_NONE;
	if (call == SNOWFLAKE_CALL_RENEW)
		take_renewed(m, now, result);
	else if (call == SNOWFLAKE_CALL_RELEASE)
		take_released(m, result);
	else if (call == SNOWFLAKE_CALL_CHANGE)
	{
		if (result->kind == SNOWFLAKE_RESULT_OK)
		{
			m->has_lease = m->had_lease = false;
			/* all ends are handed over, number by number */
			if (result->notice[0] == '\0')
				m->known_until = DT_NOBEGIN;
			else
				m->floor = Max(m->floor, m->known_until);
		}
		succeed(m);
		m->state = SNOWFLAKE_LEASE_NEW;
	}
	else if (result->kind == SNOWFLAKE_RESULT_FAILED)
		fail(m, now, &result->problem);
	else if (result->kind == SNOWFLAKE_RESULT_MISSING)
	{
		succeed(m);
		if (m->state == SNOWFLAKE_LEASE_GRANTED)
			end_lease(m, SNOWFLAKE_THEN_START); /* with an end, which calls
												 * name */
		else
			m->state = SNOWFLAKE_LEASE_NO_TABLE;
	}
	else if (call == SNOWFLAKE_CALL_START)
	{
		succeed(m);
		m->uses = result->uses;
		m->used_incarnation = result->incarnation;
		/* the own tables do not say what they issued before they were made */
		m->own_floor = m->uses == SNOWFLAKE_USES_OWN ? DT_NOBEGIN :
			result->starts_at;

		/*
		 * new tables may be about to be restored: what that brings must
		 * count, and of the record and the leases the record comes first
		 */
		m->state = (m->created || m->uses == SNOWFLAKE_USES_NOTHING) &&
			!is_wanted(m, now) ?
			SNOWFLAKE_LEASE_NONE : SNOWFLAKE_LEASE_ASKING;
		m->created = false;
	}
	else if (call == SNOWFLAKE_CALL_ACQUIRE)
		take_granted(m, now, result);
	else if (call == SNOWFLAKE_CALL_RECORD)
	{
		succeed(m);
		m->uses = SNOWFLAKE_USES_ANOTHER;
		m->used_incarnation = m->incarnation;
		m->state = SNOWFLAKE_LEASE_OPEN;
	}
}

static void
take_sealed(SnowflakeMachine *m, TimestampTz end)
{
	if (m->state != SNOWFLAKE_LEASE_SEALING)
		return;
	/* nothing was issued if the words were not open */
	m->end = Max(end, m->starts_at);
	m->known_until = Max(m->known_until, end);
	go_on(m);
}

/* What an event changes, before it is decided what is due. */
static void
note_event(SnowflakeMachine *m, const SnowflakeEvent *event,
		   const SnowflakeNow *now)
{
	if (now->wanted)
		m->wanted_at = now->monotonic;
	if (now->wanted || now->issued)
		m->active_at = now->monotonic;
	if (m->state == SNOWFLAKE_LEASE_STANDBY && !now->recovery)
		m->state = SNOWFLAKE_LEASE_NEW;

	switch (event->kind)
	{
		case SNOWFLAKE_EVENT_TIME:
			break;
		case SNOWFLAKE_EVENT_WORKER:
			m->call = SNOWFLAKE_CALL_NONE;
			if (m->state == SNOWFLAKE_LEASE_STOPPED)
				m->state = now->recovery ? SNOWFLAKE_LEASE_STANDBY :
					SNOWFLAKE_LEASE_NEW;
			if (m->then == SNOWFLAKE_THEN_STOP)
				m->then = SNOWFLAKE_THEN_START;
			break;
		case SNOWFLAKE_EVENT_REQUEST:
			follow_request(m, event->request);
			break;
		case SNOWFLAKE_EVENT_RESULT:
			take_result(m, now, event->result);
			break;
		case SNOWFLAKE_EVENT_SEALED:
			take_sealed(m, event->end);
			break;
		case SNOWFLAKE_EVENT_LOOK:
			follow_creation(m);
			break;
		case SNOWFLAKE_EVENT_RELEASE:
			follow_order(m, SNOWFLAKE_THEN_REST);
			break;
		case SNOWFLAKE_EVENT_CHANGE:
			follow_order(m, SNOWFLAKE_THEN_CHANGE);
			break;
		case SNOWFLAKE_EVENT_STOP:
			follow_order(m, SNOWFLAKE_THEN_STOP);
			break;
	}
}

/*
 * Actions
 */
/* Monotonic; 0: until something happens. */
static void
wait_until(SnowflakeAction *action, int64 until)
{
	action->kind = SNOWFLAKE_ACTION_WAIT;
	action->until = until;
}

/* A call to the registry of a request; the caller fills in the rest. */
static SnowflakeCall *
make_call(SnowflakeMachine *m, const SnowflakeNow *now, SnowflakeCallKind kind,
		  const SnowflakeNumberRequest *request, SnowflakeAction *action)
{
	SnowflakeCall *call = &action->call;

	action->kind = SNOWFLAKE_ACTION_CALL;
	memset(call, 0, sizeof(*call));
	call->kind = kind;
	call->number = m->call_number = m->calls + 1;
	m->calls += kind == SNOWFLAKE_CALL_CHANGE ? SNOWFLAKE_CHANGE_CALLS : 1;
	if (request != NULL)
		strlcpy(call->registry, request->registry, sizeof(call->registry));
	call->clock = now->clock;
	call->max_ahead = now->max_ahead;
	call->tick = now->tick;
	call->known_until = m->known_until;
	call->old_known = m->had_lease;
	call->known_incarnation = m->incarnation;
	call->has_lease = m->has_lease;
	call->token = m->token;
	call->node = m->node;
	call->end = m->end;
	call->incarnation = m->incarnation;
	m->call = kind;
	m->called_at = now->monotonic;
	return call;
}

static void
call_acquire(SnowflakeMachine *m, const SnowflakeNow *now,
			 SnowflakeAction *action)
{
	SnowflakeCall *call =
	make_call(m, now, SNOWFLAKE_CALL_ACQUIRE, &m->request, action);

	call->first = m->request.first;
	call->last_number = m->request.last;
	call->fixed = m->request.fixed;
	call->window = first_window(m, now);
	call->floor = is_own(&m->request) ? m->floor : Max(m->floor, m->own_floor);
	call->has_incarnation = !is_own(&m->request) &&
		m->uses == SNOWFLAKE_USES_ANOTHER;
	call->incarnation = m->used_incarnation;
}

static void
call_change(SnowflakeMachine *m, const SnowflakeNow *now,
			SnowflakeAction *action)
{
	SnowflakeCall *call =
	make_call(m, now, SNOWFLAKE_CALL_CHANGE, &m->request, action);

	call->create = true;
	strlcpy(call->old_registry, m->lease_request.registry,
			sizeof(call->old_registry));
}

/* Whether numbers may come from where the settings say; else refuses. */
static bool
check_uses(SnowflakeMachine *m)
{
	bool		was_another = m->had_lease && !is_own(&m->lease_request);

	/*
	 * what a table that was dropped had recorded counts until the change is
	 * ordered
	 */
	if (m->uses == SNOWFLAKE_USES_NOTHING &&
		!(was_another && is_own(&m->request)))
		return true;
	if (m->uses != SNOWFLAKE_USES_NOTHING &&
		(m->uses == SNOWFLAKE_USES_OWN) == is_own(&m->request))
		return true;
	if (is_own(&m->request))
		refuse(m,
			   "the node numbers of this cluster come from a registry, and snowflake.registry is empty",
			   "The own table does not know what the servers of that registry issue.",
			   "Set snowflake.registry. To use the own table from now on, see \"Another registry\" in doc/operations.md.");
	else
		refuse(m,
			   "the node numbers of this cluster come from its own table, and snowflake.registry is set",
			   "The registry does not know what this cluster has issued.",
			   "Unset snowflake.registry. To use the registry from now on, see \"Another registry\" in doc/operations.md.");
	return false;
}

static void
decide_asking(SnowflakeMachine *m, const SnowflakeNow *now,
			  SnowflakeAction *action)
{
	if (!m->request.valid || !check_uses(m))
		wait_until(action, 0);
	else if (retry_at(m, now) > now->monotonic)
		wait_until(action, retry_at(m, now));
	else
		call_acquire(m, now, action);
}

/* When an open lease is looked at again. */
static int64
next_look(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	int64		watch = now->monotonic + WATCH_US;

	if (is_active(m, now))
		return watch;
	if (!is_kept(m, now))
		return 0;
	return Max(now->monotonic + m->leased_until - now->clock -
			   renew_left(m, now), watch);
}

static void
decide_open(SnowflakeMachine *m, const SnowflakeNow *now,
			SnowflakeAction *action)
{
	if (must_move(m, now))
	{
		m->moved_at = now->monotonic;
		end_lease(m, SNOWFLAKE_THEN_ASK);
		action->kind = SNOWFLAKE_ACTION_SEAL;
	}
	else if (m->call == SNOWFLAKE_CALL_NONE && renewal_is_due(m, now) &&
			 retry_at(m, now) <= now->monotonic)
	{
		int64		window;
		SnowflakeCall *call =
		make_call(m, now, SNOWFLAKE_CALL_RENEW, &m->lease_request, action);

		call->end = renewed_until(m, now, &window);
	}
	else
	{
		/*
		 * the clock was set back: what has failed is not due any more.  If it
		 * is due again within a second, it waits for that.
		 */
		if (m->call == SNOWFLAKE_CALL_NONE && is_kept(m, now) &&
			!renewal_is_due(m, now))
		{
			memset(&m->problem, 0, sizeof(m->problem));
			m->failures = Min(m->failures, 1);
		}
		wait_until(action,
				   m->call != SNOWFLAKE_CALL_NONE ? now->monotonic + LOOK_US :
				   next_look(m, now));
	}
}

/* What is due in the state. */
static void
decide(SnowflakeMachine *m, const SnowflakeNow *now, SnowflakeAction *action)
{
	if (m->call != SNOWFLAKE_CALL_NONE && m->state != SNOWFLAKE_LEASE_OPEN)
	{
		wait_until(action, now->monotonic + LOOK_US);
		return;
	}
	if (m->state == SNOWFLAKE_LEASE_NONE && is_wanted(m, now))
		m->state = m->uses == SNOWFLAKE_USES_NOTHING ? SNOWFLAKE_LEASE_NEW :
			SNOWFLAKE_LEASE_ASKING;
	switch (m->state)
	{
		case SNOWFLAKE_LEASE_STANDBY:
			wait_until(action, now->monotonic + LOOK_US);
			break;
		case SNOWFLAKE_LEASE_NO_TABLE:
		case SNOWFLAKE_LEASE_NEW:
			if (m->state == SNOWFLAKE_LEASE_NO_TABLE &&
				(!is_wanted(m, now) || !m->request.valid))
				wait_until(action, 0);
			else if (retry_at(m, now) > now->monotonic)
				wait_until(action, retry_at(m, now));
			else
				make_call(m, now, SNOWFLAKE_CALL_START, NULL, action)->create =
					is_wanted(m, now) && m->request.valid;
			break;
		case SNOWFLAKE_LEASE_NONE:
			wait_until(action, 0);
			break;
		case SNOWFLAKE_LEASE_ASKING:
			decide_asking(m, now, action);
			break;
		case SNOWFLAKE_LEASE_GRANTED:
			if (retry_at(m, now) > now->monotonic)
				wait_until(action, retry_at(m, now));
			else
				make_call(m, now, SNOWFLAKE_CALL_RECORD, NULL, action);
			break;
		case SNOWFLAKE_LEASE_OPEN:
			decide_open(m, now, action);
			break;
		case SNOWFLAKE_LEASE_SEALING:
			action->kind = SNOWFLAKE_ACTION_SEAL;
			break;
		case SNOWFLAKE_LEASE_ENDING:
			if (m->then != SNOWFLAKE_THEN_STOP &&
				retry_at(m, now) > now->monotonic)
				wait_until(action, retry_at(m, now));
			else
				make_call(m, now, SNOWFLAKE_CALL_RELEASE, &m->lease_request,
						  action)->last =
					m->then == SNOWFLAKE_THEN_STOP;
			break;
		case SNOWFLAKE_LEASE_CHANGING:
			call_change(m, now, action);
			break;
		case SNOWFLAKE_LEASE_STOPPED:
			action->kind = SNOWFLAKE_ACTION_EXIT;
			break;
	}
}

/*
 * One step: takes in an event and what the worker sees now, and says what to
 * do next.  After the action (but WAIT and EXIT) the worker makes another
 * step.
 */
void
snowflake_machine_step(SnowflakeMachine *m, const SnowflakeEvent *event,
					   const SnowflakeNow *now, SnowflakeAction *action)
{
	bool		was_open = m->state == SNOWFLAKE_LEASE_OPEN;
	TimestampTz leased_until = m->leased_until;

	note_event(m, event, now);
	if (m->state == SNOWFLAKE_LEASE_OPEN &&
		(!was_open || m->leased_until != leased_until || now->openable ||
		 event->kind == SNOWFLAKE_EVENT_WORKER))
		action->kind = SNOWFLAKE_ACTION_OPEN;
	else
		decide(m, now, action);

	if (action->kind == SNOWFLAKE_ACTION_WAIT)
	{
		int64		latest = now->monotonic + SNOWFLAKE_LONGEST_WAIT_US;

		action->until = action->until == 0 ? latest :
			Min(action->until, latest);
	}
}

/*
 * What a backend that got no id is told; the problem is set with RETRYING and
 * REFUSED.
 */
SnowflakePhase
snowflake_machine_phase(const SnowflakeMachine *m, const SnowflakeNow *now,
						const SnowflakeProblem **problem)
{
	*problem = &m->problem;
	if (m->state == SNOWFLAKE_LEASE_OPEN)
		return m->problem.sqlerrcode != 0 ? SNOWFLAKE_RETRYING :
			SNOWFLAKE_READY;
	if (!m->request.valid)
	{
		*problem = &m->request.problem;
		return m->request.problem.sqlerrcode != 0 ? SNOWFLAKE_REFUSED :
			SNOWFLAKE_STARTING;
	}
	if (m->problem.sqlerrcode == 0)
		return SNOWFLAKE_STARTING;
	return m->problem.sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE ?
		SNOWFLAKE_REFUSED : SNOWFLAKE_RETRYING;
}
