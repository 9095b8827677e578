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
 *	  - No end counts that is later than the one that was asked for, and no
 *		lease that starts before ids which it could repeat have ended: what a
 *		false registry answers holds for one window, but for the start of a
 *		fixed number.
 *	  - Before the first id from a registry, the own tables say that it is
 *		used.
 *	  - A lease whose registry is left goes on to its end, while another
 *		registry is asked: one that has not taken the first one over refuses.
 *
 * A call that was given up on, or that went out before a lease worker was
 * killed, may still be carried out.  The registry closes what it granted when
 * the next call of this start comes, and refuses it after that (see
 * acquire_lease).
 */
#include "postgres.h"

#include "utils/datetime.h"
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
 * A fixed number of the own tables is renewed when this much of the reserve is
 * used.
 */
#define RENEW_RESERVE_US	(500 * INT64CONST(1000))
/* Others when about this part of the window is used. */
#define RENEW_DIVISOR		4

/* Own leases are renewed while ids were issued so lately. */
#define ACTIVE_US			(60 * USECS_PER_SEC)
/* A backend that waits asks again at least every second. */
#define WANTED_US			(2 * USECS_PER_SEC)
/* The words are looked at so often while ids are issued. */
#define WATCH_US			(250 * INT64CONST(1000))
/* Without a wake-up, a result or the end of recovery is looked for so often. */
#define LOOK_US				(500 * INT64CONST(1000))

/*
 * After a failure, the next call follows after about this time, also if nobody
 * waits for it.  While the registry is overloaded, the time doubles with each
 * failure, up to the longest one.  Nodes that lost their registry together must
 * not come back together, so each wait is drawn: see spread().
 */
#define RETRY_US			(1 * USECS_PER_SEC)
#define LONGEST_RETRY_US	(12 * USECS_PER_SEC)

/*
 * After a refusal, the next call follows when the registry says.  That is drawn,
 * too: from at most REFUSAL_US, so that no wait is longer than
 * SNOWFLAKE_LONGEST_REFUSAL_US.  After one refusal upon another it is at least
 * REFUSED_AGAIN_US, so that a node does not call without a pause.
 */
#define REFUSAL_US			(SNOWFLAKE_LONGEST_REFUSAL_US * 4 / 5)
#define REFUSED_AGAIN_US	(500 * INT64CONST(1000))

/*
 * A clock that is behind by no more was not set back: a burst can be a tick
 * further ahead than max_ahead.
 */
#define LEAST_MOVE_US		(1 * USECS_PER_SEC)
/* Another number is tried this often while the clock stays behind. */
#define MOVE_AGAIN_US		(1 * USECS_PER_SEC)

/*
 * No registry lets a lease of an automatic number start later than this after
 * the first id that the clock does not allow yet (lease_starts_at()).
 */
#define LATEST_START_US		(10 * USECS_PER_SEC)

/* No registry's limit for ends is longer. */
#define LATEST_END_US		(2 * USECS_PER_DAY)

/* At server start, in shared memory that is zero. */
void
snowflake_machine_init(SnowflakeMachine *m)
{
	m->state = SNOWFLAKE_LEASE_STANDBY;
	m->known_until = DT_NOBEGIN;
	m->settled_from = DT_NOEND;
	m->floor = m->own_floor = DT_NOBEGIN;
	m->lease.end = DT_NOBEGIN;
	for (int i = 0; i < SNOWFLAKE_ENDED_NUMBERS; i++)
		m->ended[i].end = DT_NOBEGIN;
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

/* A random time that is a quarter shorter to a quarter longer: splitmix64. */
static int64
spread(SnowflakeMachine *m, int64 mean)
{
	uint64		z = (m->random += UINT64CONST(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94D049BB133111EB);
	z ^= z >> 31;
	return mean - mean / 4 + (int64) (z % (uint64) (mean / 2 + 1));
}

/*
 * While there is a lease, the next call waits at most for a third of what is
 * left of it, unless so little is left that this would be no wait.
 */
static int64
shorten_wait(const SnowflakeMachine *m, const SnowflakeNow *now, int64 wait,
			 int64 least)
{
	int64		left = m->lease.leased_until - now->clock;

	if (snowflake_machine_is_open(m) && left > 0)
		wait = Min(wait, Max(left / 3, least));
	return wait;
}

/* How long the next call waits after a failure. */
static int64
retry_wait(SnowflakeMachine *m, const SnowflakeNow *now)
{
	int64		least = spread(m, RETRY_US);
	int64		wait = RETRY_US;

	if (m->overloads == 0)
		return least;
	for (int i = 0; i < m->overloads && wait < LONGEST_RETRY_US; i++)
		wait *= 2;
	return shorten_wait(m, now, spread(m, Min(wait, LONGEST_RETRY_US)), least);
}

/*
 * How long the next call waits after a refusal: as long as the registry said;
 * but the own tables, which no fleet shares, are asked again soon.
 */
static int64
refusal_wait(SnowflakeMachine *m, const SnowflakeNow *now, int64 wait,
			 bool own)
{
	int64		least = spread(m, RETRY_US);

	if (m->refused_until != 0)
		wait = Max(wait, REFUSED_AGAIN_US);
	wait = spread(m, Min(wait, own ? RETRY_US : REFUSAL_US));
	return shorten_wait(m, now, wait, least);
}

/* "own": the own tables were called. */
static void
note_failure(SnowflakeMachine *m, const SnowflakeNow *now,
			 const SnowflakeResult *result, bool own)
{
	bool		refused = result->kind == SNOWFLAKE_RESULT_REFUSED;

	m->problem = result->problem;
	m->overloads = result->overloaded ? m->overloads + 1 : 0;
	m->retry_at = now->monotonic +
		(refused ? refusal_wait(m, now, result->wait, own) :
		 retry_wait(m, now));
	m->refused_until = !refused ? 0 :
		result->wait < SNOWFLAKE_LONGEST_REFUSAL_US ?
		now->monotonic + result->wait : PG_INT64_MAX;
}

/* What the last call has failed with counts no more. */
static void
forget_problem(SnowflakeMachine *m)
{
	memset(&m->problem, 0, sizeof(m->problem));
	m->refused_until = 0;
}

static void
note_success(SnowflakeMachine *m)
{
	forget_problem(m);
	m->overloads = 0;
	m->retry_at = 0;
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

/* Whether a reload has raised the longest window since the last call. */
static bool
window_is_raised(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	return full_window(&m->lease.request, now) > m->lease.full_window;
}

/*
 * The window that a renewal asks for: twice the last one, so that crashes in a
 * row do not use numbers up; or all of it, if somebody has just raised it.
 */
static int64
next_window(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	int64		full = full_window(&m->lease.request, now);

	if (window_is_raised(m, now))
		return full;
	return Max(Min(2 * m->lease.window, full), first_window(m, now));
}

/* How much of the lease may be left when it is renewed. */
static int64
renew_left(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	if (m->lease.request.fixed && is_own(&m->lease.request))
		return full_window(&m->lease.request, now) - RENEW_RESERVE_US;
	return m->lease.renew_left;
}

/*
 * Leases of another registry are always kept, those of the own tables while
 * ids are issued.
 */
static bool
is_kept(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	return !is_own(&m->lease.request) || is_active(m, now);
}

static bool
renewal_is_due(const SnowflakeMachine *m, const SnowflakeNow *now)
{
	int64		left = m->lease.leased_until - now->clock;

	/* the registry counts the window as this does */
	if (Max(now->clock, m->lease.starts_at) + next_window(m, now) <=
		m->lease.leased_until + now->tick)
		return false;

	/*
	 * a backend that waits has found the limit if it is as near as ids may be
	 * ahead
	 */
	return (is_wanted(m, now) && left <= now->max_ahead + 2 * now->tick) ||
		(is_kept(m, now) &&
		 (left <= renew_left(m, now) || window_is_raised(m, now)));
}

/* Whether the words are open, but for those that words.c keeps sealed. */
bool
snowflake_machine_is_open(const SnowflakeMachine *m)
{
	return m->state == SNOWFLAKE_LEASE_OPEN || m->leaving;
}

/* Whether there is another number to go to when the clock is behind. */
bool
snowflake_machine_can_move(const SnowflakeMachine *m)
{
	return m->lease.request.last > m->lease.request.first;
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
	m->leaving = false;
	m->state = SNOWFLAKE_LEASE_SEALING;
}

/* Whether a lease is of the registry, and its generation, of the newest one. */
static bool
is_akin(const SnowflakeMachine *m, const pg_uuid_t *incarnation,
		int32 generation)
{
	return memcmp(&m->lease.incarnation, incarnation,
				  sizeof(*incarnation)) == 0 &&
		m->lease.generation == generation;
}

/* The lease that was granted takes the place of the one before, which is over. */
static void
take_next(SnowflakeMachine *m)
{
	/*
	 * the registry has heard of these ids, and counts them for this lease
	 * only
	 */
	if (!is_akin(m, &m->next.incarnation, m->next.generation))
		m->floor = Max(m->floor, m->known_until);
	m->lease = m->next;
}

/*
 * The lease that was granted is not to be opened.  It ends where it starts, as
 * the next call says; if another lease is open, that call names it instead,
 * which says the same.
 */
static void
drop_next(SnowflakeMachine *m, SnowflakeAfterEnd then)
{
	m->call = SNOWFLAKE_CALL_NONE;
	if (m->leaving)
	{
		m->state = SNOWFLAKE_LEASE_NEW;
		return;
	}
	take_next(m);
	end_lease(m, then);
}

/* The lease that was granted, and recorded, is the one to issue ids under. */
static void
open_next(SnowflakeMachine *m)
{
	take_next(m);
	m->wanted_at = 0;
	m->state = SNOWFLAKE_LEASE_OPEN;
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
			forget_problem(m);
			break;
		default:
			m->state = SNOWFLAKE_LEASE_NEW;
			break;
	}
}

/*
 * What follows once the words are sealed; a lease whose row may be open has an
 * end.
 */
static void
follow_sealing(SnowflakeMachine *m)
{
	switch (m->then)
	{
		case SNOWFLAKE_THEN_ASK:
			m->state = SNOWFLAKE_LEASE_ASKING;
			break;
		case SNOWFLAKE_THEN_NEXT:
			open_next(m);
			break;
		default:
			if (m->lease.row_open)
				m->state = SNOWFLAKE_LEASE_ENDING;
			else
				finish_ending(m);
			break;
	}
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
	if (snowflake_machine_is_open(m) || m->state == SNOWFLAKE_LEASE_SEALING)
		end_lease(m, then);
	else if (m->state == SNOWFLAKE_LEASE_GRANTED)
		drop_next(m, then);
	else if (then != SNOWFLAKE_THEN_REST || m->state == SNOWFLAKE_LEASE_ASKING)
	{
		m->call = SNOWFLAKE_CALL_NONE;
		m->then = then;
		follow_sealing(m);
	}
}

/*
 * The extension snowflake_registry was created in postgres, or dropped there.
 * What the own tables said counts no more: this start is counted there before
 * the next lease.
 */
static void
follow_creation(SnowflakeMachine *m)
{
	m->created = true;
	if (snowflake_machine_is_open(m))
	{
		/* its row is gone, or what it recorded */
		end_lease(m, SNOWFLAKE_THEN_START);
		note_success(m);
		return;
	}
	switch (m->state)
	{
		case SNOWFLAKE_LEASE_NEW:
		case SNOWFLAKE_LEASE_NO_TABLE:
		case SNOWFLAKE_LEASE_NONE:
		case SNOWFLAKE_LEASE_ASKING:
			m->call = SNOWFLAKE_CALL_NONE;
			m->state = SNOWFLAKE_LEASE_NEW;
			note_success(m);	/* it may have cured what was wrong */
			break;
		case SNOWFLAKE_LEASE_GRANTED:
			drop_next(m, SNOWFLAKE_THEN_START);
			note_success(m);
			break;
		case SNOWFLAKE_LEASE_SEALING:
		case SNOWFLAKE_LEASE_ENDING:
			if (m->then != SNOWFLAKE_THEN_STOP)
				m->then = SNOWFLAKE_THEN_START;
			break;
		default:
			break;
	}
}

/* Whether the number of the lease is one that the settings ask for. */
static bool
has_number(const SnowflakeMachine *m)
{
	return m->lease.node >= m->request.first && m->lease.node <= m->request.last;
}

/* The settings ask for something else, while the words are open. */
static void
follow_request_open(SnowflakeMachine *m)
{
	if (!m->request.valid)
		end_lease(m, SNOWFLAKE_THEN_START);
	else if (strcmp(m->lease.request.registry, m->request.registry) != 0)
	{
		/* also if another one was asked already, or had granted */
		m->call = SNOWFLAKE_CALL_NONE;
		m->leaving = true;
		m->state = SNOWFLAKE_LEASE_NEW;
	}
	else if (m->request.fixed != m->lease.request.fixed || !has_number(m))
		end_lease(m, SNOWFLAKE_THEN_ASK);
	else
	{
		/* the registry of the lease is not left any more */
		if (m->leaving)
			m->call = SNOWFLAKE_CALL_NONE;
		m->leaving = false;
		m->lease.request = m->request;
		m->state = SNOWFLAKE_LEASE_OPEN;
	}
}

/* The settings ask for something else than before. */
static void
follow_request(SnowflakeMachine *m, const SnowflakeNumberRequest *request)
{
	bool		other_registry = strcmp(m->request.registry, request->registry) != 0;

	m->request = *request;
	note_success(m);
	if (m->call == SNOWFLAKE_CALL_ACQUIRE)
		m->call = SNOWFLAKE_CALL_NONE;
	if (snowflake_machine_is_open(m))
		follow_request_open(m);
	else if (m->state == SNOWFLAKE_LEASE_GRANTED)
		drop_next(m, SNOWFLAKE_THEN_START);
	else if (m->state == SNOWFLAKE_LEASE_NONE && other_registry &&
			 m->uses != SNOWFLAKE_USES_NOTHING)
		m->state = SNOWFLAKE_LEASE_ASKING;
}

/*
 * Results
 */

/* Whether the own tables name the registry that has granted the next lease. */
static bool
is_recorded(const SnowflakeMachine *m)
{
	return is_own(&m->next.request) ||
		(m->uses == SNOWFLAKE_USES_ANOTHER &&
		 memcmp(&m->used_incarnation, &m->next.incarnation,
				sizeof(m->next.incarnation)) == 0);
}

/* Ids are to be issued under the next lease; the open one ends first. */
static void
change_over(SnowflakeMachine *m)
{
	if (m->leaving)
		end_lease(m, SNOWFLAKE_THEN_NEXT);
	else
		open_next(m);
}

/*
 * Where the lease was to end that ACQUIRE or RENEW has asked for: the registry
 * counts the window as this does.
 */
TimestampTz
snowflake_machine_asked_end(const SnowflakeMachine *m, TimestampTz starts_at)
{
	return Max(m->asked_clock, starts_at) + m->asked_window;
}

/* ACQUIRE asks for a lease that starts at or after this. */
static TimestampTz
asked_start(const SnowflakeMachine *m)
{
	return is_own(&m->request) ? m->floor : Max(m->floor, m->own_floor);
}

/*
 * The end of the ids that a lease could repeat: those of its number, and those
 * that its registry may not know of, which ACQUIRE has named.
 */
static TimestampTz
end_before(const SnowflakeMachine *m, const SnowflakeAcquireResult *granted)
{
	TimestampTz end = asked_start(m);

	for (int i = 0; i < SNOWFLAKE_ENDED_NUMBERS; i++)
		if (m->ended[i].node == granted->node)
			end = Max(end, m->ended[i].end);
	if (!is_akin(m, &granted->incarnation, granted->generation))
		end = Max(end, m->known_until);
	/* its ids go on */
	if (m->leaving && m->lease.node == granted->node)
		end = Max(end, m->lease.leased_until);
	return end;
}

/* Whether no registry grants such a lease to this call; then the detail says why. */
static bool
was_not_asked_for(const SnowflakeMachine *m,
				  const SnowflakeAcquireResult *granted,
				  char *detail, size_t size)
{
	TimestampTz least = end_before(m, granted);
	const char *format;
	TimestampTz bound;
	char		start[MAXDATELEN + 1];

	if (granted->node < m->request.first || granted->node > m->request.last)
	{
		snprintf(detail, size,
				 "It granted node number " UINT64_FORMAT "; asked for was one from " UINT64_FORMAT " to " UINT64_FORMAT ".",
				 granted->node, m->request.first, m->request.last);
		return true;
	}
	if (granted->starts_at > granted->leased_until)
	{
		format = "The lease starts at %s and ends at %s.";
		bound = granted->leased_until;
	}
	else if (granted->leased_until <= m->asked_clock)
	{
		/* each of them would be the reason for a next call, at once */
		format = "The lease starts at %s and had ended at %s, before it was asked for.";
		bound = granted->leased_until;
	}
	else if (granted->starts_at < least)
	{
		format = "The lease starts at %s; ids of this server end at %s.";
		bound = least;
	}
	else if (granted->starts_at > m->latest_start)
	{
		format = "The lease starts at %s; asked for was one that starts at or before %s.";
		bound = m->latest_start;
	}
	else
		return false;
	strlcpy(start, timestamptz_to_str(granted->starts_at), sizeof(start));
	snprintf(detail, size, format, start, timestamptz_to_str(bound));
	return true;
}

/*
 * When about a quarter of what ACQUIRE or RENEW has given is used, it is
 * renewed; that may be much less than the window it asked for.
 */
static void
set_renewal(SnowflakeMachine *m, SnowflakeLease *lease)
{
	int64		given = lease->leased_until -
	Max(m->asked_clock, lease->starts_at);

	given = Min(Max(given, 0), lease->window);
	lease->renew_left = given - spread(m, given / RENEW_DIVISOR);
}

static void
take_granted(SnowflakeMachine *m, const SnowflakeNow *now,
			 const SnowflakeAcquireResult *granted)
{
	SnowflakeLease *next = &m->next;
	SnowflakeResult wrong = {.kind = SNOWFLAKE_RESULT_FAILED};
	char		detail[sizeof(wrong.problem.detail)];

	if (was_not_asked_for(m, granted, detail, sizeof(detail)))
	{
		snowflake_problem_set(&wrong.problem,
							  ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							  "the registry granted a lease that was not asked for", detail,
							  SNOWFLAKE_ANSWER_HINT);
		note_failure(m, now, &wrong, is_own(&m->request));
		return;
	}
	note_success(m);
	memset(next, 0, sizeof(*next));
	next->row_open = true;
	next->request = m->request;
	next->granted_by = m->call_number;
	next->token = granted->token;
	next->incarnation = granted->incarnation;
	next->generation = granted->generation;
	next->node = granted->node;
	next->starts_at = next->opens_at = granted->starts_at;
	next->leased_until = Min(granted->leased_until,
							 snowflake_machine_asked_end(m, granted->starts_at));
	next->end = DT_NOBEGIN;
	if (m->settled_from == DT_NOEND)
	{
		/* what has ended by the registry's word had ended when it was asked */
		m->settled_from = Max(Min(granted->cluster_ids_end_at,
								  m->asked_clock + LATEST_END_US),
							  Max(granted->starts_at, m->asked_clock));
		/* it has no log of what another registry has granted */
		if (m->uses != SNOWFLAKE_USES_NOTHING &&
			memcmp(&m->used_incarnation, &granted->incarnation, sizeof(pg_uuid_t)) != 0)
			m->settled_from = Max(m->settled_from,
								  m->asked_clock + now->max_ahead + now->tick);
	}

	/*
	 * for readers: ids go on after those of earlier starts, if that makes
	 * nobody wait
	 */
	if (granted->cluster_ids_end_at < next->leased_until &&
		granted->cluster_ids_end_at <= m->asked_clock + now->max_ahead)
		next->opens_at = Max(next->opens_at, granted->cluster_ids_end_at);
	next->window = m->asked_window;
	next->full_window = full_window(&m->request, now);
	set_renewal(m, next);
	if (is_own(&m->request))
	{
		m->uses = SNOWFLAKE_USES_OWN;
		m->used_incarnation = granted->incarnation;
	}
	if (is_recorded(m))
		change_over(m);
	else
		m->state = SNOWFLAKE_LEASE_GRANTED;
}

static void
take_started(SnowflakeMachine *m, const SnowflakeNow *now,
			 const SnowflakeStartResult *started)
{
	m->retry_at = 0;
	m->uses = started->uses;
	m->used_incarnation = started->incarnation;
	m->own_floor = started->starts_at;
	m->state = SNOWFLAKE_LEASE_ASKING;

	/*
	 * new tables may be about to be restored: what that brings must count,
	 * and of the record and the leases the record comes first
	 */
	if ((m->created || m->uses == SNOWFLAKE_USES_NOTHING) && !m->leaving &&
		!is_wanted(m, now))
	{
		note_success(m);
		m->state = SNOWFLAKE_LEASE_NONE;
	}
	m->created = false;
}

static void
take_no_table(SnowflakeMachine *m)
{
	note_success(m);
	m->state = SNOWFLAKE_LEASE_NO_TABLE;
}

static void
take_acquired(SnowflakeMachine *m, const SnowflakeNow *now,
			  const SnowflakeResult *result)
{
	if (result->kind == SNOWFLAKE_RESULT_OK)
		take_granted(m, now, &result->u.acquire);
	else if (result->kind == SNOWFLAKE_RESULT_MISSING)
		take_no_table(m);
	else
	{
		note_failure(m, now, result, is_own(&m->request));
		/* perhaps the own tables say by now that another one is used */
		if (m->refused_until != 0 && !is_own(&m->request))
			m->state = SNOWFLAKE_LEASE_NEW;
	}
}

static void
take_recorded(SnowflakeMachine *m, const SnowflakeNow *now,
			  const SnowflakeResult *result)
{
	switch (result->kind)
	{
		case SNOWFLAKE_RESULT_OK:
			note_success(m);
			m->uses = SNOWFLAKE_USES_ANOTHER;
			m->used_incarnation = m->next.incarnation;
			change_over(m);
			break;
		case SNOWFLAKE_RESULT_NO:
		case SNOWFLAKE_RESULT_MISSING:
			note_success(m);
			drop_next(m, SNOWFLAKE_THEN_START);
			break;
		case SNOWFLAKE_RESULT_REFUSED:
		case SNOWFLAKE_RESULT_FAILED:
			note_failure(m, now, result, true);
			break;
	}
}

static void
take_renewed(SnowflakeMachine *m, const SnowflakeNow *now,
			 const SnowflakeResult *result)
{
	TimestampTz asked = snowflake_machine_asked_end(m, m->lease.starts_at);
	TimestampTz given = result->u.renew.leased_until;

	switch (result->kind)
	{
		case SNOWFLAKE_RESULT_OK:
			note_success(m);
			/* it gave less than was asked for: not again at once */
			if (given < asked)
				m->retry_at = now->monotonic + retry_wait(m, now);
			m->lease.window = m->asked_window;
			m->lease.full_window = full_window(&m->lease.request, now);
			/* more is no failure: the answer to another renewal was lost */
			m->lease.leased_until = Max(m->lease.leased_until,
										Min(given, asked));
			set_renewal(m, &m->lease);
			m->wanted_at = 0;
			break;
		case SNOWFLAKE_RESULT_NO:
			note_success(m);	/* what it refused before is not so now */
			end_lease(m, SNOWFLAKE_THEN_ASK);
			break;
		case SNOWFLAKE_RESULT_MISSING:
			end_lease(m, SNOWFLAKE_THEN_START);
			break;
		case SNOWFLAKE_RESULT_REFUSED:
		case SNOWFLAKE_RESULT_FAILED:
			note_failure(m, now, result, is_own(&m->lease.request));
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
	if (result->kind == SNOWFLAKE_RESULT_OK || result->kind == SNOWFLAKE_RESULT_NO)
	{
		m->lease.row_open = false;
		note_success(m);
	}
	finish_ending(m);
}

static void
take_result(SnowflakeMachine *m, const SnowflakeNow *now,
			const SnowflakeResult *result)
{
	SnowflakeCallKind call = m->call;

	m->call = SNOWFLAKE_CALL_NONE;
	switch (call)
	{
		case SNOWFLAKE_CALL_NONE:
		case SNOWFLAKE_CALL_LOOK:	/* not the machine's */
			break;
		case SNOWFLAKE_CALL_START:
			if (result->kind == SNOWFLAKE_RESULT_OK)
				take_started(m, now, &result->u.start);
			else if (result->kind == SNOWFLAKE_RESULT_MISSING)
				take_no_table(m);
			else
				note_failure(m, now, result, true);
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			take_acquired(m, now, result);
			break;
		case SNOWFLAKE_CALL_RECORD:
			take_recorded(m, now, result);
			break;
		case SNOWFLAKE_CALL_RENEW:
			take_renewed(m, now, result);
			break;
		case SNOWFLAKE_CALL_RELEASE:
			take_released(m, result);
			break;
	}
}

/*
 * Keeps where the ids of a number end; if there are too many numbers, the
 * first end is forgotten.
 */
static void
keep_end(SnowflakeMachine *m, uint64 node, TimestampTz end)
{
	SnowflakeEndedNumber *kept = &m->ended[0];

	for (int i = 0; i < SNOWFLAKE_ENDED_NUMBERS; i++)
	{
		SnowflakeEndedNumber *ended = &m->ended[i];

		if (ended->node == node)
		{
			kept = ended;
			break;
		}
		if (ended->end < kept->end)
			kept = ended;
	}
	kept->end = kept->node == node ? Max(kept->end, end) : end;
	kept->node = node;
}

static void
take_sealed(SnowflakeMachine *m, TimestampTz end)
{
	if (m->state != SNOWFLAKE_LEASE_SEALING)
		return;
	/* nothing was issued if the words were not open */
	m->lease.end = Max(end, m->lease.starts_at);
	m->known_until = Max(m->known_until, end);
	if (end != DT_NOBEGIN)
		keep_end(m, m->lease.node, end);
	follow_sealing(m);
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
			m->random += event->seed;
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
		case SNOWFLAKE_EVENT_STOP:
			follow_order(m, SNOWFLAKE_THEN_STOP);
			break;
	}
}

/*
 * Actions
 */

/* "until" is monotonic; 0: until something happens. */
static void
wait_until(SnowflakeAction *action, int64 until)
{
	action->kind = SNOWFLAKE_ACTION_WAIT;
	action->until = until;
}

/*
 * A call; the caller fills in the rest.  Without a request it goes to the own
 * tables, and is about no lease.
 */
static SnowflakeCall *
make_call(SnowflakeMachine *m, const SnowflakeNow *now, SnowflakeCallKind kind,
		  const SnowflakeNumberRequest *request, SnowflakeAction *action)
{
	SnowflakeCall *call = &action->call;

	action->kind = SNOWFLAKE_ACTION_CALL;
	memset(call, 0, sizeof(*call));
	call->kind = kind;
	call->number = ++m->call_number;
	call->clock = m->asked_clock = now->clock;
	call->max_ahead = now->max_ahead + now->tick;
	if (request != NULL)
	{
		strlcpy(call->registry, request->registry, sizeof(call->registry));
		call->lease.granted_by = m->lease.granted_by;
		call->lease.token = m->lease.token;
		call->lease.node = m->lease.node;
		call->lease.incarnation = m->lease.incarnation;
		call->lease.generation = m->lease.generation;
		call->lease.leased_until = m->lease.leased_until;
		call->lease.ids_end_at =
			snowflake_machine_is_open(m) ? DT_NOBEGIN : m->lease.end;
	}
	m->call = kind;
	m->called_at = now->monotonic;
	return call;
}

/* What the own tables have on record, for the registry that is asked. */
static SnowflakeUsed
told_uses(const SnowflakeMachine *m)
{
	SnowflakeUsed used = {0};

	used.known = m->uses != SNOWFLAKE_USES_NOTHING;
	if (used.known)
		used.incarnation = m->used_incarnation;
	return used;
}

static void
call_acquire(SnowflakeMachine *m, const SnowflakeNow *now,
			 SnowflakeAction *action)
{
	SnowflakeCall *call =
	make_call(m, now, SNOWFLAKE_CALL_ACQUIRE, &m->request, action);
	SnowflakeAcquireCall *acquire = &call->u.acquire;

	acquire->window = m->asked_window = first_window(m, now);
	acquire->first = m->request.first;
	acquire->last = m->request.last;
	acquire->fixed = m->request.fixed;
	acquire->uses = told_uses(m);
	acquire->ids_end_at = m->known_until;
	acquire->starts_at = asked_start(m);
	m->latest_start = acquire->fixed ? DT_NOEND :
		call->clock + call->max_ahead + LATEST_START_US;
}

static void
call_record(SnowflakeMachine *m, const SnowflakeNow *now,
			SnowflakeAction *action)
{
	SnowflakeRecordCall *call =
	&make_call(m, now, SNOWFLAKE_CALL_RECORD, NULL, action)->u.record;

	call->incarnation = m->next.incarnation;
	call->uses = told_uses(m);
}

/*
 * What no generation keeps apart from the open lease is its own number, if that
 * is asked for as a fixed one.  The lease goes on until it is about to end, and
 * is sealed: then another registry is asked, and told where its ids end.
 */
static void
decide_asking(SnowflakeMachine *m, const SnowflakeNow *now,
			  SnowflakeAction *action)
{
	if (!m->leaving || !m->request.fixed || !has_number(m))
		call_acquire(m, now, action);
	else if (m->lease.leased_until - now->clock >
			 now->max_ahead + 2 * now->tick)
		wait_until(action, now->monotonic + WATCH_US);
	else
	{
		end_lease(m, SNOWFLAKE_THEN_ASK);
		action->kind = SNOWFLAKE_ACTION_SEAL;
	}
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
	return Max(now->monotonic + m->lease.leased_until - now->clock -
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
			 m->retry_at <= now->monotonic)
		make_call(m, now, SNOWFLAKE_CALL_RENEW, &m->lease.request, action)->u.renew.window =
			m->asked_window = next_window(m, now);
	else
	{
		/*
		 * the clock was set back: what has failed is not due any more.  If it
		 * is due again before the next call may be made, it waits for that.
		 * While nothing is due because nobody wants ids, nothing is asked:
		 * the next one who does waits for an answer.
		 */
		if (m->call == SNOWFLAKE_CALL_NONE && !renewal_is_due(m, now))
		{
			if (is_kept(m, now))
				forget_problem(m);
			else
				m->refused_until = 0;
		}
		wait_until(action,
				   m->call != SNOWFLAKE_CALL_NONE ? now->monotonic + LOOK_US :
				   next_look(m, now));
	}
}

/* What is due in the state, if no call must be waited for. */
static void
decide_state(SnowflakeMachine *m, const SnowflakeNow *now,
			 SnowflakeAction *action)
{
	int64		retry = m->retry_at;
	bool		must_wait = retry > now->monotonic;

	wait_until(action, 0);
	switch (m->state)
	{
		case SNOWFLAKE_LEASE_STANDBY:
			wait_until(action, now->monotonic + LOOK_US);
			break;
		case SNOWFLAKE_LEASE_NO_TABLE:
		case SNOWFLAKE_LEASE_NEW:
			if (m->state == SNOWFLAKE_LEASE_NO_TABLE && !m->leaving &&
				(!is_wanted(m, now) || !m->request.valid))
				break;
			if (must_wait)
				wait_until(action, retry);
			else
				make_call(m, now, SNOWFLAKE_CALL_START, NULL, action)->u.start.create =
					m->request.valid && (m->leaving || is_wanted(m, now));
			break;
		case SNOWFLAKE_LEASE_NONE:
			break;
		case SNOWFLAKE_LEASE_ASKING:
			if (!m->request.valid)
				break;
			if (must_wait)
				wait_until(action, retry);
			else
				decide_asking(m, now, action);
			break;
		case SNOWFLAKE_LEASE_GRANTED:
			if (must_wait)
				wait_until(action, retry);
			else
				call_record(m, now, action);
			break;
		case SNOWFLAKE_LEASE_OPEN:
			decide_open(m, now, action);
			break;
		case SNOWFLAKE_LEASE_SEALING:
			action->kind = SNOWFLAKE_ACTION_SEAL;
			break;
		case SNOWFLAKE_LEASE_ENDING:
			if (m->then != SNOWFLAKE_THEN_STOP && must_wait)
				wait_until(action, retry);
			else
				make_call(m, now, SNOWFLAKE_CALL_RELEASE, &m->lease.request, action)->last =
					m->then == SNOWFLAKE_THEN_STOP;
			break;
		case SNOWFLAKE_LEASE_STOPPED:
			action->kind = SNOWFLAKE_ACTION_EXIT;
			break;
	}
}

/* What is due. */
static void
decide_action(SnowflakeMachine *m, const SnowflakeNow *now, SnowflakeAction *action)
{
	if (m->call != SNOWFLAKE_CALL_NONE && m->state != SNOWFLAKE_LEASE_OPEN)
	{
		wait_until(action, now->monotonic + LOOK_US);
		return;
	}
	if (m->state == SNOWFLAKE_LEASE_NONE && is_wanted(m, now))
		m->state = m->uses == SNOWFLAKE_USES_NOTHING ? SNOWFLAKE_LEASE_NEW :
			SNOWFLAKE_LEASE_ASKING;
	decide_state(m, now, action);
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
	TimestampTz leased_until = m->lease.leased_until;

	note_event(m, event, now);
	if (m->state == SNOWFLAKE_LEASE_OPEN &&
		(!was_open || m->lease.leased_until != leased_until || now->openable ||
		 event->kind == SNOWFLAKE_EVENT_WORKER))
		action->kind = SNOWFLAKE_ACTION_OPEN;
	else
		decide_action(m, now, action);

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
	bool		over = m->lease.leased_until <= now->clock;

	*problem = &m->problem;
	if (m->state == SNOWFLAKE_LEASE_OPEN ?
		!(over && m->refused_until != 0) :
		m->leaving && !over)
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
	/* the worker's own: the extension cannot be used as it is */
	return m->refused_until != 0 ||
		m->problem.sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE ?
		SNOWFLAKE_REFUSED : SNOWFLAKE_RETRYING;
}
