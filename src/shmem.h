/*
 * shmem.h
 *	  The shared memory of the extension and the rules of its use.
 *
 * Who may do what
 *	  A drawer is any backend (or parallel or background worker) that draws.
 *	  The holder is the one process that opens, extends and seals leases: the
 *	  lease worker, or the server itself in single-user mode.
 *	  The helper is a short-lived process that talks to the registry for the
 *	  holder, so that the holder never waits and blocks no DROP DATABASE.
 *
 * The invariant
 *	  An unsealed word of node number N, of whatever layout, stands under a limit
 *	  of node number N, the state file on disk holds for N a bound not below the
 *	  limit, and so does the row of worker_node that is this server's claim on N,
 *	  if it has one (claim.h: unregistered).
 *	  Bounds are times, so one bound serves all layouts; N is the same in all.
 *
 *	  So the holder writes in this order: opening: durable bounds, limit, word;
 *	  extending: durable bounds, limit; ending: seal, then durable end.  A
 *	  drawer reads in this order: word, limit, and publishes by compare-and-
 *	  swap on the word.  If the lease changed between its reads and its swap,
 *	  the word was sealed in between and the swap fails.
 *
 * No pointers of ours are kept here: under EXEC_BACKEND every process finds
 * its way from snowflake_shared, which it sets when it attaches.
 */
#ifndef SNOWFLAKE_SHMEM_H
#define SNOWFLAKE_SHMEM_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"

#include "claim.h"
#include "clock.h"
#include "layout.h"
#include "problem.h"
#include "registry.h"

/* Whether waiting can help a draw that the word does not allow. */
typedef enum SnowflakePhase
{
	SNOWFLAKE_STARTING,			/* no lease yet: wait */
	SNOWFLAKE_READY,			/* the holder extends the lease when asked:
								 * wait */
	SNOWFLAKE_RETRYING,			/* the holder keeps trying: wait, then fail
								 * with the problem */
	SNOWFLAKE_REFUSED			/* fails until somebody acts, see the problem */
} SnowflakePhase;

/* What the holder last found, for drawers that do not get an id and for the view. */
typedef struct SnowflakeStatus
{
	SnowflakePhase phase;
	SnowflakeSource source;
	bool		can_move;		/* to another number, if the clock is too far
								 * behind */
	char		place[SNOWFLAKE_PLACE_SIZE];	/* of the registry, empty:
												 * none */
	SnowflakeProblem problem;	/* with RETRYING and REFUSED */
} SnowflakeStatus;

#define SNOWFLAKE_CACHE_LINE	pg_attribute_aligned(PG_CACHE_LINE_SIZE)

/*
 * The lease of the server's node number, which all layouts in use share.  The holder
 * alone writes (but for requested, and resets of the counters).  Atomics: readers see
 * each value whole.
 */
typedef struct SnowflakeLease
{
	pg_atomic_uint64 leased_until;	/* the durable bound, TimestampTz */
	pg_atomic_uint64 highest;	/* greatest bound so far; never lowered, 0:
								 * none yet */
	pg_atomic_uint64 writes;	/* number of the last state that was written */
	pg_atomic_uint64 changes;	/* of what drawers wait for, so far */
	pg_atomic_uint32 requested; /* set by drawers that found the limit, no
								 * lease, or the clock too far behind */

	/* events, since the last reset */
	pg_atomic_uint64 clock_rollbacks;
	pg_atomic_uint64 worker_switches;
	pg_atomic_uint64 renewals;
	pg_atomic_uint64 failures;

	/*
	 * the holder's alone, not atomic; here they outlive a lease worker. begin
	 * and opened_at are set before claim.opened is.
	 */
	TimestampTz begin;			/* of all words under the lease: no id is of a
								 * tick that begins before */
	TimestampTz opened_at;		/* by the clock of ids */
	bool		has_last_node;
	uint64		last_node;		/* node number of the last lease */
	SnowflakeClaim claim;
	pg_uuid_t	asked;			/* token of the lease that is being asked for;
								 * zero: none */
} SnowflakeLease;

/* Events of one layout; any process adds atomically.  Times in microseconds. */
typedef struct SnowflakeCounters
{
	pg_atomic_uint64 sequence_overflows;	/* draws that ran into a later
											 * tick */
	pg_atomic_uint64 max_ahead_seen;
	pg_atomic_uint64 waits;
	pg_atomic_uint64 wait_time;
	pg_atomic_uint64 stats_reset;	/* TimestampTz */
	pg_atomic_uint64 ids_before_reset;	/* sum of ids_issued then */
} SnowflakeCounters;

/* One layout in use, and the word of all generators that have it. */
typedef struct SnowflakeSlot
{
	/*
	 * Alone on its cache line: the only shared memory a draw writes.  Drawers
	 * change it by compare-and-swap, the holder seals it by atomic or and
	 * writes it only while it is sealed.  See word.h.
	 */
	pg_atomic_uint64 word SNOWFLAKE_CACHE_LINE;

	/* Read by draws; written by the holder, but for requested: by draws that wait. */
	pg_atomic_uint64 limit SNOWFLAKE_CACHE_LINE;	/* first word not covered,
													 * see word.h */
	pg_atomic_uint64 opened;	/* the word when it was opened, 0: never */
	pg_atomic_uint32 requested; /* as the lease's, by drawers of this layout */
	uint64		seen;			/* the holder's: the word at its last pass */
	bool		wanted;			/* the holder's: requested since the words
								 * were opened last */
	int64		wanted_at;		/* the holder's: when requested last, by the
								 * monotonic clock; 0: never */

	SnowflakeCounters counters SNOWFLAKE_CACHE_LINE;
	SnowflakeLayout layout SNOWFLAKE_CACHE_LINE;	/* fixed before any draw */
	char		name[SNOWFLAKE_DEFINITION_SIZE];	/* preset or definition;
													 * fixed */
	SnowflakeStatus status;		/* protected by SnowflakeShared.lock; the
								 * holder, who alone writes, reads without */
} SnowflakeSlot;

/*
 * Settings that all backends must see at the same time.  Written by the
 * holder, read by all, each for itself (atomics); times in microseconds.
 */
typedef struct SnowflakeSettings
{
	pg_atomic_uint64 max_ahead;
	pg_atomic_uint64 clock_offset;	/* int64 */
	pg_atomic_uint64 max_wait;	/* the server's, not a session's */
	pg_atomic_uint32 sequence_start;	/* SnowflakeSequenceStart */
	pg_atomic_uint32 resets;	/* number of pg_stat_snowflake_reset() */
} SnowflakeSettings;

/*
 * Where the holder leaves a call for the helper, and the helper the answer; one
 * at a time.  All protected by SnowflakeShared.lock.
 */
typedef struct SnowflakeDesk
{
	uint32		asked;			/* number of the last call; 0: none yet */
	uint32		answered;		/* of the last call that was answered */
	SnowflakeCall call;
	SnowflakeAnswer answer;
} SnowflakeDesk;

/* Where the last lease came from.  All protected by SnowflakeShared.lock. */
typedef struct SnowflakeHome
{
	bool		known;			/* false: none yet, or the table is being
								 * created */
	char		registry[SNOWFLAKE_REGISTRY_SIZE];	/* connection string;
													 * empty: local */
	pg_uuid_t	incarnation;	/* of the table */
} SnowflakeHome;

/* What the holder has been asked to do; set by any process, cleared when done. */
typedef struct SnowflakeOrders
{
	pg_atomic_uint32 look;		/* the extension was created somewhere */
	pg_atomic_uint32 release;
	pg_atomic_uint32 change_source;
} SnowflakeOrders;

typedef struct SnowflakeShared
{
	SnowflakeSettings settings SNOWFLAKE_CACHE_LINE;
	LWLock	   *lock SNOWFLAKE_CACHE_LINE;	/* protects every slot's status,
											 * the desk, the home, and taking a slot
											 * into use; fixed: in the main
											 * segment, which PostgreSQL maps
											 * at one address in all processes */
	ConditionVariable changed;	/* broadcast after every change by the holder */
	SnowflakeLease lease;
	pg_atomic_uint32 worker;	/* 1 + process number of the lease worker, 0:
								 * none */
	pg_atomic_uint32 helper;	/* the same of the helper */
	SnowflakeDesk desk;
	SnowflakeHome home;
	SnowflakeOrders orders;

	/*
	 * Fixed at start.  If refused, no ids are issued whatever the holder
	 * finds; the first slot's status says why and never changes.
	 */
	bool		refused;
	bool		invalid_layout; /* the first slot's is not what was asked for */
	TimestampTz checkpoint_at_start;	/* fixed: time of the last one before
										 * the server started; 0: not known */
	int			num_slots;		/* fixed at start: snowflake.max_layouts */
	pg_atomic_uint32 num_used;	/* of them, layouts in use; only grows */
	int			num_processes;	/* fixed at start */
	Size		counts_offset;	/* fixed: from here to ids_issued */
	Size		counts_stride;	/* fixed: bytes of one process's counts */
	SnowflakeSlot slots[FLEXIBLE_ARRAY_MEMBER]; /* the first one:
												 * snowflake.layout */
} SnowflakeShared;

/* NULL unless the library was preloaded; of this process, set at its start. */
extern SnowflakeShared *snowflake_shared;

extern void snowflake_shmem_init(void);
extern pg_atomic_uint64 *snowflake_shmem_ids_issued(int process, int slot);
extern int	snowflake_slots_used(void);
extern bool snowflake_slot_is_left(const SnowflakeLayout *layout);
extern SnowflakeSlot *snowflake_slot_of(const SnowflakeLayout *layout);
extern void snowflake_status_get(SnowflakeSlot *slot, SnowflakeStatus *status);
extern void snowflake_status_set(SnowflakeSlot *slot, const SnowflakeStatus *status);
extern void snowflake_home_get(SnowflakeHome *home);
extern void snowflake_home_set(const SnowflakeClaim *claim);
extern void snowflake_settings_publish(void);

#define SNOWFLAKE_SETTING(name) \
	((int64) pg_atomic_read_u64(&snowflake_shared->settings.name))

/* The clock that ids are made by. */
static inline TimestampTz
snowflake_id_clock(void)
{
	return snowflake_clock_now() + SNOWFLAKE_SETTING(clock_offset);
}

#endif							/* SNOWFLAKE_SHMEM_H */
