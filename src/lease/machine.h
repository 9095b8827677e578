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

/* Whatever is computed from a clock that was wrong ends with this. */
#define SNOWFLAKE_LONGEST_WAIT_US	(60 * USECS_PER_SEC)

/*
 * In all states but OPEN the words are sealed, or about to be: no backend
 * issues ids; but see "leaving".  A row means one of worker_node that is
 * durable.
 */
typedef enum SnowflakeLeaseState
{
	SNOWFLAKE_LEASE_STANDBY,	/* recovery: nothing is asked for before
								 * promotion */
	SNOWFLAKE_LEASE_NEW,		/* this start is not counted in the own tables
								 * yet, and what the cluster uses is not known */
	SNOWFLAKE_LEASE_NO_TABLE,	/* the extension is not in the own database:
								 * as NEW, when ids are wanted or it was
								 * created */
	SNOWFLAKE_LEASE_NONE,		/* counted; a lease is asked for when ids are
								 * wanted */
	SNOWFLAKE_LEASE_ASKING,		/* counted; a lease is asked for now.  If
								 * there was one, its end is known and is said
								 * along */
	SNOWFLAKE_LEASE_GRANTED,	/* there is a row of ours, "next"; that its
								 * registry is used is to be recorded before
								 * the first id */
	SNOWFLAKE_LEASE_OPEN,		/* the words are open, or being opened; the
								 * row is durable up to leased_until */
	SNOWFLAKE_LEASE_SEALING,	/* the row is open, the lease is over: the
								 * words are to be sealed, which tells its
								 * true end */
	SNOWFLAKE_LEASE_ENDING,		/* sealed; the registry is to close the row at
								 * that end, or the same with the next call */
	SNOWFLAKE_LEASE_STOPPED		/* sealed and told: the lease worker ends */
} SnowflakeLeaseState;

/* What follows when a lease has ended. */
typedef enum SnowflakeAfterEnd
{
	SNOWFLAKE_THEN_REST,		/* close the row; no lease before ids are
								 * wanted */
	SNOWFLAKE_THEN_ASK,			/* another one of the same registry */
	SNOWFLAKE_THEN_START,		/* close the row; then as after a start */
	SNOWFLAKE_THEN_NEXT,		/* the one that another registry has granted */
	SNOWFLAKE_THEN_STOP			/* close the row; then stop */
} SnowflakeAfterEnd;

typedef enum SnowflakeLeaseRow
{
	SNOWFLAKE_ROW_NONE,			/* this start has had no lease yet */
	SNOWFLAKE_ROW_OPEN,			/* calls say its end, once it is sealed */
	SNOWFLAKE_ROW_CLOSED		/* its registry has closed it at that end */
} SnowflakeLeaseRow;

/* A lease: what was asked for, and what was granted. */
typedef struct SnowflakeLease
{
	SnowflakeLeaseRow row;
	SnowflakeNumberRequest request;
	uint64		granted_by;		/* number of the call */
	pg_uuid_t	token;
	pg_uuid_t	incarnation;	/* of the registry */
	int32		generation;		/* of the registry then */
	uint64		node;
	TimestampTz starts_at;		/* no id of a tick that begins before */
	TimestampTz leased_until;	/* of the row, as far as is known */
	TimestampTz end;			/* of its ids, once the words are sealed */
	int64		window;			/* the last one that was asked for */
} SnowflakeLease;

typedef struct SnowflakeMachine
{
	SnowflakeLeaseState state;
	SnowflakeAfterEnd then;		/* in SEALING and ENDING */
	SnowflakeNumberRequest request; /* what the settings ask for */

	/* The call that is out.  NONE: none is. */
	SnowflakeCallKind call;
	uint64		call_number;	/* its number, or that of the last one */
	int64		called_at;		/* monotonic */

	/* What is known of the own tables, from NONE on. */
	SnowflakeUses uses;
	pg_uuid_t	used_incarnation;

	bool		created;		/* the extension was, since the last START */

	/* The newest lease that was opened, or was to be when it ended. */
	SnowflakeLease lease;

	/*
	 * In the states from NEW to GRANTED: the settings name another registry
	 * than that of the lease, which goes on meanwhile.  Its words are open;
	 * it is not renewed.
	 */
	bool		leaving;
	SnowflakeLease next;		/* in GRANTED, and in SEALING before it is
								 * opened */

	TimestampTz known_until;	/* no id of this start's ended leases ends
								 * later */
	TimestampTz floor;			/* nor of those that the registry of the lease
								 * may not know of */
	TimestampTz own_floor;		/* nor of those from before the own tables
								 * were made */

	/* Failures.  Monotonic times; 0: never. */
	SnowflakeProblem problem;	/* of the last call; sqlerrcode 0: none */
	int			failures;		/* in a row */
	int64		failed_at;		/* the last one; 0: it is tried again at once */

	/* What backends do. */
	int64		wanted_at;		/* when one last waited for an id */
	int64		active_at;		/* when ids were last wanted or issued */
	int64		moved_at;		/* when the number was last left because the
								 * clock was behind */
} SnowflakeMachine;

/* What the worker sees when it makes a step. */
typedef struct SnowflakeNow
{
	TimestampTz clock;			/* that ids are made by */
	int64		monotonic;
	bool		recovery;
	bool		wanted;			/* a backend has asked since the last step */
	bool		issued;			/* ids were issued since the last step */
	int64		behind;			/* how long until the clock allows the next id */
	int64		max_ahead;		/* the settings */
	int64		max_wait;
	int64		lease_duration;
	int64		tick;			/* the longest of the layouts in use */
	bool		openable;		/* in OPEN: a word is sealed, since the clock
								 * was past its layout's end, and is not any
								 * more */
} SnowflakeNow;

typedef enum SnowflakeEventKind
{
	SNOWFLAKE_EVENT_TIME,		/* time has passed */
	SNOWFLAKE_EVENT_WORKER,		/* a lease worker begins; a call of one before
								 * it is lost */
	SNOWFLAKE_EVENT_REQUEST,	/* the settings ask for this */
	SNOWFLAKE_EVENT_RESULT,		/* of the call that is out */
	SNOWFLAKE_EVENT_SEALED,		/* the words are sealed; the end of their ids */
	SNOWFLAKE_EVENT_LOOK,		/* the extension snowflake_registry was
								 * created in postgres, or dropped */
	SNOWFLAKE_EVENT_RELEASE,	/* snowflake_release() */
	SNOWFLAKE_EVENT_STOP		/* the worker is to end */
} SnowflakeEventKind;

typedef struct SnowflakeEvent
{
	SnowflakeEventKind kind;
	const SnowflakeNumberRequest *request;
	const SnowflakeResult *result;
	TimestampTz end;			/* SEALED; DT_NOBEGIN: they were not open */
} SnowflakeEvent;

typedef enum SnowflakeActionKind
{
	SNOWFLAKE_ACTION_WAIT,		/* until the time, not longer than
								 * SNOWFLAKE_LONGEST_WAIT_US, or something
								 * happens */
	SNOWFLAKE_ACTION_CALL,		/* make the call */
	SNOWFLAKE_ACTION_OPEN,		/* open the words of the lease up to its
								 * leased_until, or extend those that are open */
	SNOWFLAKE_ACTION_SEAL,		/* seal the words, and tell the end */
	SNOWFLAKE_ACTION_EXIT		/* end */
} SnowflakeActionKind;

typedef struct SnowflakeAction
{
	SnowflakeActionKind kind;
	int64		until;			/* WAIT: monotonic */
	SnowflakeCall call;			/* CALL */
} SnowflakeAction;

extern void snowflake_machine_init(SnowflakeMachine *m);
extern void snowflake_machine_step(SnowflakeMachine *m,
								   const SnowflakeEvent *event,
								   const SnowflakeNow *now,
								   SnowflakeAction *action);
extern SnowflakePhase snowflake_machine_phase(const SnowflakeMachine *m,
											  const SnowflakeNow *now,
											  const SnowflakeProblem **problem);
extern bool snowflake_machine_is_open(const SnowflakeMachine *m);
extern bool snowflake_machine_can_move(const SnowflakeMachine *m);
extern const char *snowflake_lease_state_name(SnowflakeLeaseState state);

#endif							/* SNOWFLAKE_MACHINE_H */
