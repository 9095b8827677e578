/*
 * shmem.h
 *	  The shared memory of the extension and the rules of its use.
 *
 * Who may do what
 *	  A backend (or parallel or background worker) issues ids.
 *	  The lease worker, one background worker, opens, extends and seals leases.
 *	  The helper is a process that calls the registry for the lease
 *	  worker, so that the lease worker never waits.
 *
 * The invariant
 *	  An unsealed word of node number N, of whatever layout, stands under a
 *	  limit of node number N, and the row of node_number that has this server's
 *	  lease of N is durable with a leased_until that is not before the limit.
 *
 *	  So the lease worker writes in this order: opening: durable row, limit,
 *	  word; extending: durable row, limit; ending: seal, then the row's true
 *	  end.  A backend reads in this order: word, limit, and publishes by
 *	  compare-and-swap on the word.  If the lease changed between its reads and
 *	  its swap, the word was sealed in between and the swap fails.
 *
 * No pointers of ours are kept here: under EXEC_BACKEND every process finds
 * its way from snowflake_shared, which it sets when it attaches.
 */
#ifndef SNOWFLAKE_SHMEM_H
#define SNOWFLAKE_SHMEM_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "utils/uuid.h"

#include "clock.h"
#include "error.h"
#include "layout/layout.h"

#define SNOWFLAKE_CACHE_LINE	pg_attribute_aligned(PG_CACHE_LINE_SIZE)

/* A process that has issued no id in its transaction has this bound. */
#define SNOWFLAKE_NO_BOUND		PG_UINT64_MAX

/* The bit of a word that lets no backend issue ids; see ids/word.h. */
#define SNOWFLAKE_SEALED		(UINT64CONST(1) << 63)

/*
 * What the lease worker last found, for backends that get no id and for the
 * view.
 */
typedef struct SnowflakeStatus
{
	SnowflakePhase phase;
	int64		refused_until;	/* with REFUSED, monotonic; PG_INT64_MAX: for
								 * how long is not known */
	bool		can_move;		/* to another number, if the clock is too far
								 * behind */
	char		address[SNOWFLAKE_ADDRESS_SIZE];	/* of the registry, empty:
													 * not known */
	SnowflakeProblem problem;	/* with RETRYING and REFUSED */
} SnowflakeStatus;

/*
 * Events of one layout; any process adds atomically, and a reset writes 0.
 * Times in microseconds.
 */
typedef struct SnowflakeCounters
{
	pg_atomic_uint64 sequence_overflows;	/* ids that ran into a later tick */
	pg_atomic_uint64 max_ahead_seen;
	pg_atomic_uint64 waits;
	pg_atomic_uint64 wait_time;
	pg_atomic_uint64 stats_reset;	/* TimestampTz */
	pg_atomic_uint64 ids_before_reset;	/* sum of ids_issued then */
} SnowflakeCounters;

/* A layout in use, and its word.  Fixed when the server starts. */
typedef struct SnowflakeSlot
{
	/*
	 * Alone on its cache line: the only shared memory that issuing an id
	 * writes. Backends change it by compare-and-swap; the lease worker seals
	 * it by atomic or, and writes it only while it is sealed.  See word.h.
	 */
	pg_atomic_uint64 word SNOWFLAKE_CACHE_LINE;

	/* Read by backends, written by the lease worker. */
	pg_atomic_uint64 limit SNOWFLAKE_CACHE_LINE;	/* first word not covered,
													 * see word.h */
	pg_atomic_uint64 opened;	/* the word when it was opened, 0: never */
	pg_atomic_uint64 waiting;	/* sealed under an open lease: the word that
								 * it would be opened with at the last look,
								 * if its limit was later; 0: it does not wait
								 * for that */
	pg_atomic_uint32 full;		/* 1: sealed since no tick is left for the
								 * lease, whatever the clock shows */
	uint32		openings;		/* the lease worker's: how often it was opened */
	uint64		latest;			/* the lease worker's: the greatest tick at
								 * which a word was opened or sealed */
	uint64		seen;			/* the lease worker's: the word at its last
								 * look */
	int64		warned_at;		/* the lease worker's: when it last warned of
								 * the layout's end; monotonic, 0: never */

	SnowflakeCounters counters SNOWFLAKE_CACHE_LINE;

	/* Of the settled id; see ids/settled.c. */
	pg_atomic_uint64 settled;	/* all ids before this tick were once settled;
								 * readers raise it */
	pg_atomic_uint64 went_back; /* 0, or the tick that ids have gone back
								 * from: none is settled before they are past
								 * it.  The lease worker raises it, and
								 * readers clear it */

	SnowflakeLayout layout SNOWFLAKE_CACHE_LINE;	/* fixed */
	char		name[SNOWFLAKE_DEFINITION_SIZE];	/* fixed: preset or
													 * definition */
} SnowflakeSlot;

/*
 * What a process has of a slot: it alone writes, but for "bound", which its
 * parallel workers lower; all read.
 */
typedef struct SnowflakeProcessSlot
{
	pg_atomic_uint64 ids_issued;	/* since the server started */
	pg_atomic_uint64 bound;		/* of the ids issued in its transaction: see
								 * ids/settled.c */
} SnowflakeProcessSlot;

/* A prepared transaction.  See ids/settled.c. */
typedef struct SnowflakePrepared
{
	pg_atomic_uint64 xid;		/* FullTransactionId; 0: the entry is free; 1:
								 * it is being written */
	pg_atomic_uint64 bounds[FLEXIBLE_ARRAY_MEMBER]; /* by slot, as those of
													 * processes */
} SnowflakePrepared;

/*
 * Settings that all backends must see at the same time.  Written by the lease
 * worker, but for resets; read by all, each for itself (atomics); times in
 * microseconds.
 */
typedef struct SnowflakeSettings
{
	pg_atomic_uint64 max_ahead;
	pg_atomic_uint64 clock_offset;	/* int64 */
	pg_atomic_uint64 max_wait;	/* the server's, not a session's */
	pg_atomic_uint32 sequence_start;	/* SnowflakeSequenceStart */
	pg_atomic_uint32 resets;	/* number of pg_stat_snowflake_reset(), which
								 * adds 1 */
} SnowflakeSettings;

/*
 * What the lease worker shows of the lease, and counts.  Atomics: readers see
 * each value whole.
 */
typedef struct SnowflakeLeaseView
{
	pg_atomic_uint64 leased_until;	/* TimestampTz */
	pg_atomic_uint64 settled_from;	/* TimestampTz: ids of earlier starts of
									 * this cluster end at or before this;
									 * DT_NOEND: not known yet */
	pg_atomic_uint32 requested; /* set by backends that found the limit, no
								 * lease, or the clock too far behind */
	uint64		opened_node;	/* the lease worker's: of the last lease that
								 * was opened */
	bool		has_opened;		/* the lease worker's: there was one */

	/* events, since the last reset, which any process makes */
	pg_atomic_uint64 clock_rollbacks;
	pg_atomic_uint64 worker_switches;
	pg_atomic_uint64 renewals;
	pg_atomic_uint64 failures;
} SnowflakeLeaseView;

/*
 * What the lease worker is told to do by a superuser.  A session adds 1 to
 * asked; the lease worker sets done to what asked was when it began, when that
 * is carried out.
 */
typedef struct SnowflakeOrder
{
	pg_atomic_uint32 asked;
	pg_atomic_uint32 done;
	pg_atomic_uint32 failed;	/* 1: the registry was not told; set before
								 * done */
} SnowflakeOrder;

typedef struct SnowflakeShared
{
	SnowflakeSettings settings SNOWFLAKE_CACHE_LINE;
	LWLock	   *lock SNOWFLAKE_CACHE_LINE;	/* protects status and the
											 * helper's mailbox; fixed: in the
											 * main segment, which PostgreSQL
											 * maps at one address in all
											 * processes */
	ConditionVariable changed;	/* broadcast after every change by the lease
								 * worker */
	SnowflakeLeaseView lease;
	pg_atomic_uint32 worker;	/* 1 + process number of the lease worker, 0:
								 * none */
	SnowflakeStatus status;		/* the lease worker, which alone writes, reads
								 * without the lock */
	pg_atomic_uint32 look;		/* the extension snowflake_registry was
								 * created in postgres, or dropped */
	SnowflakeOrder release;

	/*
	 * Fixed at start.  If refused, no ids are issued whatever the lease
	 * worker finds; status says why and never changes.
	 */
	bool		refused;
	bool		invalid_layout; /* snowflake.layout is not what was asked for */
	pg_uuid_t	start;			/* fixed: of this start of the server, random */
	int			num_slots;		/* fixed: layouts in use */
	int			num_processes;	/* fixed */
	Size		processes_offset;	/* fixed: from here to the processes'
									 * slots */
	Size		process_stride; /* fixed: bytes of one process's slots */
	int			num_prepared;	/* fixed: entries of prepared transactions */
	Size		prepared_offset;	/* fixed: from here to them */
	Size		prepared_stride;	/* fixed: bytes of one entry */
	pg_atomic_uint32 prepared_known;	/* 1: none is from before this start */
	SnowflakeSlot slots[FLEXIBLE_ARRAY_MEMBER]; /* the first one:
												 * snowflake.layout */
} SnowflakeShared;

/* NULL unless the library was preloaded; of this process, set at its start. */
extern SnowflakeShared *snowflake_shared;

extern Size snowflake_shmem_size(int num_layouts, SnowflakeShared *shared);
extern void snowflake_shmem_create(const SnowflakeLayout *layouts,
								   int num_layouts);
extern void snowflake_require_preload(void);
extern SnowflakeProcessSlot *snowflake_shmem_process_slot(int process, int slot);
extern SnowflakePrepared *snowflake_shmem_prepared(int entry);
extern SnowflakeSlot *snowflake_slot_of(const SnowflakeLayout *layout);
extern void snowflake_status_get(SnowflakeStatus *status);
extern void snowflake_wake(pg_atomic_uint32 *process);
extern void snowflake_ask_for_lease(void);

#define SNOWFLAKE_SETTING(name) \
	((int64) pg_atomic_read_u64(&snowflake_shared->settings.name))

/*
 * What our background workers have in common, in an initializer.  Each connects
 * to a database or to none.
 */
#define SNOWFLAKE_BACKGROUND_WORKER(name, main) \
	.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION, \
	.bgw_library_name = "snowflake", \
	.bgw_function_name = CppAsString(main), \
	.bgw_name = name, \
	.bgw_type = name

/* The clock that ids are made by. */
static inline TimestampTz
snowflake_id_clock(void)
{
	return snowflake_clock_now() + SNOWFLAKE_SETTING(clock_offset);
}

#endif							/* SNOWFLAKE_SHMEM_H */
