/*
 * machine.h
 *	  The lease machine: what the lease worker decides, without I/O.
 *
 * The worker (worker.c) looks at the world, calls snowflake_machine_step()
 * with what it saw, and performs the action that comes back, until the action
 * is to wait.  The machine reads no clock, no setting and no table; it is
 * compiled and tested outside the server as well.
 *
 * It is in shared memory and written by the lease worker alone.  It is valid
 * after every step: a lease worker that failed is followed by one that
 * says so (SNOWFLAKE_EVENT_WORKER) and goes on.
 */
#ifndef SNOWFLAKE_MACHINE_H
#define SNOWFLAKE_MACHINE_H

#include "lease/request.h"
#include "registry/protocol.h"

/* Bounds each wait, also one that was computed from a clock that was wrong. */
#define SNOWFLAKE_LONGEST_WAIT_US	(60 * USECS_PER_SEC)

/*
 * Backends issue ids in OPEN only, and while the machine is leaving a registry
 * (see "leaving").  In other states the words are sealed, or about to be.
 * "Row" is the lease in a row of node_number that is durable.
 */
typedef enum SnowflakeLeaseState
{
	SNOWFLAKE_LEASE_STANDBY,	/* recovery: no call of the machine before
								 * promotion */
	SNOWFLAKE_LEASE_NEW,		/* START is due: the own tables count this
								 * start and say which registry is used */
	SNOWFLAKE_LEASE_NO_TABLE,	/* the extension is missing.  START is due
								 * when an id is wanted or the extension is
								 * created */
	SNOWFLAKE_LEASE_NONE,		/* counted.  A lease is asked for when an id
								 * is wanted */
	SNOWFLAKE_LEASE_ASKING,		/* ACQUIRE is due.  It names the lease before,
								 * with its end if the words are sealed */
	SNOWFLAKE_LEASE_GRANTED,	/* the row "next" is open.  RECORD is due
								 * before the first id */
	SNOWFLAKE_LEASE_OPEN,		/* the words are open, or being opened; the
								 * row is durable up to leased_until */
	SNOWFLAKE_LEASE_SEALING,	/* the lease is over, its row open.  The words
								 * are to be sealed; that gives the end of its
								 * ids */
	SNOWFLAKE_LEASE_ENDING,		/* sealed.  RELEASE is due, which closes the
								 * row at that end; if it fails, the next call
								 * does */
	SNOWFLAKE_LEASE_STOPPED		/* sealed, and RELEASE made: the lease worker
								 * ends */
} SnowflakeLeaseState;

/* What follows when a lease has ended. */
typedef enum SnowflakeAfterEnd
{
	SNOWFLAKE_THEN_REST,		/* RELEASE, then NONE */
	SNOWFLAKE_THEN_ASK,			/* ASKING, of the same registry */
	SNOWFLAKE_THEN_START,		/* RELEASE, then NEW */
	SNOWFLAKE_THEN_NEXT,		/* OPEN, under the lease "next" */
	SNOWFLAKE_THEN_STOP			/* RELEASE, then STOPPED */
} SnowflakeAfterEnd;

/* A lease: what was asked for, and what was granted; zeros before the first one. */
typedef struct SnowflakeLease
{
	bool		row_open;		/* the registry may not know its end */
	SnowflakeNumberRequest request;
	uint64		granted_by;		/* number of the call */
	pg_uuid_t	token;
	pg_uuid_t	incarnation;	/* of the registry */
	int32		generation;		/* of the registry then */
	uint64		node;
	TimestampTz starts_at;		/* its ticks begin at or after this */
	TimestampTz opens_at;		/* the same, or later: where its words open */
	TimestampTz leased_until;	/* its ticks end at or before this; the row
								 * may have more by now */
	TimestampTz end;			/* of its ids; DT_NOBEGIN: the words are not
								 * sealed */
	int64		window;			/* what the last call asked for */
	int64		full_window;	/* what it could have asked for, by the
								 * settings then */
	int64		renew_left;		/* it is renewed when so much of it is left,
								 * which differs from node to node */
} SnowflakeLease;

/* Of so many node numbers it is known where their ids end. */
#define SNOWFLAKE_ENDED_NUMBERS		16

typedef struct SnowflakeEndedNumber
{
	uint64		node;
	TimestampTz end;			/* of all its ids of this start; DT_NOBEGIN:
								 * there are none */
} SnowflakeEndedNumber;

typedef struct SnowflakeMachine
{
	SnowflakeLeaseState state;
	SnowflakeAfterEnd then;		/* in SEALING and ENDING */
	SnowflakeNumberRequest request; /* what the settings ask for */

	/* The registry call that is out. */
	SnowflakeCallKind call;		/* NONE: no call is out */
	uint64		call_number;	/* of this call, or of the last one */
	int64		called_at;		/* monotonic */
	TimestampTz asked_clock;	/* what the call says */
	int64		asked_window;	/* likewise, of ACQUIRE and RENEW */
	TimestampTz latest_start;	/* of ACQUIRE: no registry grants a lease that
								 * starts later */

	/* What the own tables said to the last START, and was recorded since. */
	SnowflakeUses uses;
	pg_uuid_t	used_incarnation;	/* of the registry that is used */

	bool		created;		/* CREATE EXTENSION since the last START */

	/* The newest lease that was opened, or was granted and dropped. */
	SnowflakeLease lease;

	/*
	 * Leaving: the settings name another registry than that of the lease. The
	 * other one is asked, in the states from NEW to GRANTED, while the words
	 * stay open up to leased_until.  The lease is not renewed.
	 */
	bool		leaving;
	SnowflakeLease next;		/* that was granted and is not open yet: in
								 * GRANTED, and in SEALING with THEN_NEXT */

	/* Ends of ids: what a registry is told, so that it grants nothing before. */
	TimestampTz known_until;	/* of all leases of this start that ended */
	TimestampTz floor;			/* of those among them that the registry of
								 * the lease may have no row of */
	TimestampTz own_floor;		/* of leases before the own tables were made */
	SnowflakeEndedNumber ended[SNOWFLAKE_ENDED_NUMBERS];	/* by number, of leases
															 * that ended: the
															 * latest ends */

	/*
	 * Ids of earlier starts of this cluster end at or before this; DT_NOEND:
	 * not known before the first lease
	 */
	TimestampTz settled_from;

	/* Failures */
	SnowflakeProblem problem;	/* of the last call; sqlerrcode 0: none */
	int64		refused_until;	/* it was refused until then, monotonic; 0: it
								 * was not; PG_INT64_MAX: for how long is not
								 * known */
	int64		retry_at;		/* no call is made before, monotonic; 0: the
								 * next one is due at once */
	int			overloads;		/* so many calls, one after the other, have
								 * found the registry overloaded */
	uint64		random;			/* what nodes differ in: the state of the
								 * generator of spread() */

	/* What backends do.  Times are monotonic; 0: never. */
	int64		wanted_at;		/* when a backend last waited for an id */
	int64		active_at;		/* when ids were last wanted or issued */
	int64		moved_at;		/* when the machine last left a number because
								 * the clock was behind */
} SnowflakeMachine;

/* What the worker sees when it makes a step. */
typedef struct SnowflakeNow
{
	TimestampTz clock;			/* of ids: with snowflake.clock_offset */
	int64		monotonic;
	bool		recovery;
	bool		wanted;			/* a backend has asked since the last step */
	bool		issued;			/* ids were issued since the last step */
	int64		behind;			/* how long until the clock allows the next id */
	int64		max_ahead;		/* a setting, as the next two */
	int64		max_wait;
	int64		lease_duration;
	int64		tick;			/* the longest of the layouts in use */
	bool		openable;		/* in OPEN: what kept a word sealed is over,
								 * so opening again opens it */
} SnowflakeNow;

typedef enum SnowflakeEventKind
{
	SNOWFLAKE_EVENT_TIME,		/* time has passed */
	SNOWFLAKE_EVENT_WORKER,		/* a lease worker begins; the call that was
								 * out is lost */
	SNOWFLAKE_EVENT_REQUEST,	/* the settings ask for this */
	SNOWFLAKE_EVENT_RESULT,		/* of the call that is out */
	SNOWFLAKE_EVENT_SEALED,		/* the words are sealed; "end" is that of
								 * their ids */
	SNOWFLAKE_EVENT_LOOK,		/* CREATE or DROP EXTENSION snowflake_registry
								 * in database postgres was committed */
	SNOWFLAKE_EVENT_RELEASE,	/* snowflake_release() */
	SNOWFLAKE_EVENT_STOP		/* the lease worker is to end */
} SnowflakeEventKind;

typedef struct SnowflakeEvent
{
	SnowflakeEventKind kind;
	const SnowflakeNumberRequest *request;	/* of REQUEST */
	const SnowflakeResult *result;	/* of RESULT */
	TimestampTz end;			/* of SEALED; DT_NOBEGIN: no id was issued */
	uint64		seed;			/* of WORKER: a number of this start, random */
} SnowflakeEvent;

typedef enum SnowflakeActionKind
{
	SNOWFLAKE_ACTION_WAIT,		/* until something happens, at most until
								 * "until" */
	SNOWFLAKE_ACTION_CALL,		/* make the call */
	SNOWFLAKE_ACTION_OPEN,		/* open the words of the lease up to its
								 * leased_until, or extend those that are open */
	SNOWFLAKE_ACTION_SEAL,		/* seal the words; EVENT_SEALED follows */
	SNOWFLAKE_ACTION_EXIT		/* end the lease worker */
} SnowflakeActionKind;

typedef struct SnowflakeAction
{
	SnowflakeActionKind kind;
	int64		until;			/* of WAIT, monotonic; at most
								 * SNOWFLAKE_LONGEST_WAIT_US from now */
	SnowflakeCall call;			/* of CALL */
} SnowflakeAction;

extern void snowflake_machine_init(SnowflakeMachine *m);
extern void snowflake_machine_step(SnowflakeMachine *m,
								   const SnowflakeEvent *event,
								   const SnowflakeNow *now,
								   SnowflakeAction *action);
extern SnowflakePhase snowflake_machine_phase(const SnowflakeMachine *m,
											  const SnowflakeNow *now,
											  const SnowflakeProblem **problem);
extern TimestampTz snowflake_machine_asked_end(const SnowflakeMachine *m, TimestampTz starts_at);
extern bool snowflake_machine_is_open(const SnowflakeMachine *m);
extern bool snowflake_machine_can_move(const SnowflakeMachine *m);

#endif							/* SNOWFLAKE_MACHINE_H */
