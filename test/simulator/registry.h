/*
 * registry.h
 *	  The tables of a registry, and a twin in C of the functions of the extension
 *	  snowflake_registry (src/sql/registry).
 *
 * Each function is one transaction.  It changes nothing if its reason is an
 * error (SIM_FIRST_ERROR and later); a caller that wants the transaction not to
 * be durable keeps a copy made before.  Nothing here reads a clock, prints or
 * allocates but for rows, and the results depend on the arguments alone.
 *
 * A uuid is a uint64 here, 0 being NULL.  A text that SQL only compares (a role,
 * the mark) is a number.  Times are TimestampTz, spans microseconds; DT_NOBEGIN
 * stands for a time that is NULL, and for -infinity.  A call is a struct instead
 * of a jsonb: what is wrong with a jsonb (keys, types, texts) has no
 * counterpart; a value that is missing or out of its bounds is SIM_VALUE.
 *
 * Layouts are pointers; the same canonical definition is the same pointer.
 *
 * What becomes of a server is up to the caller:
 *	  a standby, a backup		sim_registry_copy(), and later another SimHere
 *	  promotion, recovery		an entry more in here->history, a later timeline
 *	  pg_upgrade				another here->system_identifier, no history
 *	  a copy by CREATE DATABASE	sim_registry_copy(), then another oid
 *	  a dump that is restored	sim_create_extension(), sim_insert_number(),
 *								sim_insert_log(), sim_insert_cluster()
 */
#ifndef SIM_REGISTRY_H
#define SIM_REGISTRY_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "layout/layout.h"

/* The version of the protocol that registry.c knows. */
#define SIM_PROTOCOL	1

/* The first and the last microsecond of the protocol's years, since 2000. */
#define SIM_FIRST_TIME	(INT64CONST(-62135596800000000) - INT64CONST(946684800000000))
#define SIM_LAST_TIME	(INT64CONST(253402300799999999) - INT64CONST(946684800000000))

/* Why an answer is not yes, and why an order is an error. */
typedef enum SimReason
{
	SIM_NO_REASON,

	/* The answer is no. */
	SIM_ROLLED_BACK,			/* check_renewal() */
	SIM_OTHER_INCARNATION,
	SIM_OTHER_GENERATION,
	SIM_NOT_OPEN,				/* "closed" */
	SIM_UNKNOWN,				/* release_lease() */
	SIM_OTHER_USES,				/* record_uses() */

	/* A call is refused; to an order it is an error. */
	SIM_PROTOCOL_UNKNOWN,		/* begin_call() */
	SIM_CLOSED,					/* refuse_closed() */
	SIM_NO_HISTORY,				/* count_generation() */
	SIM_USES_ANOTHER,			/* check_cluster() */
	SIM_OTHER_LAYOUT,
	SIM_REGISTRY_IS_SELF,		/* check_source() */
	SIM_OTHER_SOURCE,
	SIM_CALL_LATE,				/* close_leases_of_start() */
	SIM_NO_NUMBER_FREE,			/* choose_automatic() */
	SIM_NUMBER_HELD,			/* choose_fixed() */
	SIM_TOO_FEW_NUMBERS,		/* choose_number() */
	SIM_BEHIND_CREATION,		/* lease_starts_at(): created_at */
	SIM_BEHIND_START,			/* counted_at, starts_at */
	SIM_BEHIND_IDS,				/* those that the node knows of */
	SIM_END_IS_PAST,			/* refuse_end() */
	SIM_EARLIER_GENERATION,		/* check_renewal() */
	SIM_HAS_NODES,				/* record_uses() */

	/* An error: nothing was changed. */
	SIM_FIRST_ERROR,
	SIM_NO_TABLE = SIM_FIRST_ERROR, /* the extension is not there */
	SIM_VALUE,					/* refuse_value() */
	SIM_HOT_STANDBY,			/* refuse_session() */
	SIM_REPLICATION_ORIGIN,
	SIM_ISOLATION_LEVEL,
	SIM_LAYOUT_FULL,
	SIM_NO_SUCH_NUMBER,			/* of the layout */
	SIM_LAYOUT_NOT_GREATER,		/* change_layout() */
	SIM_LIMIT,					/* limit_leases() */
	SIM_TIME_OUT_OF_RANGE,		/* ids_end_before() */
	SIM_SUCCESSOR_IS_SELF,		/* close_registry() */
	SIM_DIFFERENT_LAYOUTS,		/* refuse_layouts() */
	SIM_NOT_CLOSED,				/* closed_registry() */
	SIM_NOT_COMMITTED,
	SIM_OTHER_SUCCESSOR,		/* take_over() */
	SIM_FLOOR_AHEAD,
	SIM_TAKES_SELF,				/* take_over_lost() */
	NUM_SIM_REASONS
} SimReason;

/* Entries of a timeline history: the promotions, in its order. */
#define SIM_MAX_HISTORY	64

typedef struct SimHistoryEntry
{
	uint32		timeline;
	uint64		switched_at;	/* LSN */
} SimHistoryEntry;

typedef struct SimHistory
{
	int			num_entries;
	SimHistoryEntry entries[SIM_MAX_HISTORY];
} SimHistory;

/* The server that carries out a call, and the session. */
typedef struct SimHere
{
	TimestampTz clock;			/* clock_timestamp() */
	uint64		system_identifier;
	uint32		timeline;
	TimestampTz launched_at;	/* pg_postmaster_start_time() */
	const SimHistory *history;	/* none on timeline 1; NULL: the file is
								 * missing */
	bool		in_recovery;
	bool		other_isolation;	/* the level is not READ COMMITTED */
	bool		replication_origin; /* the session has one */
	int			role;			/* session_user */
	uint64		transaction;	/* what it did before belongs to this one; 0:
								 * nothing yet */
	uint64		from_start;		/* close_leases_that_are_over() begins there */
	uint64		(*random) (void *state);	/* all 64 bits; random() */
	uint64		(*new_uuid) (void *state);	/* gen_random_uuid() */
	void	   *random_state;
} SimHere;

/* A row of node_number.  Without an open lease all after token is 0. */
typedef struct SimNumber
{
	uint64		node_number;
	TimestampTz ended_until;
	TimestampTz recorded_until;
	bool		granted_here;	/* a lease of it was granted; else it was
								 * restored */
	uint64		token;			/* 0: no lease is open */
	uint64		start;
	int64		granted_by;
	int64		last_call;
	bool		own;
	bool		fixed;
	uint64		system_identifier;	/* 0: NULL */
	int			role;
	uint64		incarnation;
	int			generation;
	TimestampTz starts_at;
	TimestampTz leased_until;
} SimNumber;

/* A row of worker_node, without what only people read. */
typedef struct SimLog
{
	uint64		token;
	uint64		start;
	int			role;
	uint64		system_identifier;	/* 0: NULL */
	uint64		incarnation;
	int			generation;
	uint64		node_number;
	const SnowflakeLayout *layout;
	TimestampTz starts_at;
	TimestampTz leased_until;	/* DT_NOBEGIN: the lease is open */
} SimLog;

/* A set of uuids. */
#define SIM_MAX_UUIDS	64

typedef struct SimUuids
{
	int			num;
	uint64		uuids[SIM_MAX_UUIDS];
} SimUuids;

/* The row of table registry. */
typedef struct SimRegistryRow
{
	uint64		incarnation;
	uint32		database;
	TimestampTz created_at;
	int			generation;
	uint64		system_identifier;	/* column server, with timeline */
	uint32		timeline;		/* 0: it has not counted yet */
	SimHistory	counted;
	TimestampTz counted_at;		/* DT_NOBEGIN: NULL */
	uint64		mark;			/* 0: NULL */
	TimestampTz starts_at;		/* DT_NOBEGIN: NULL */
	int64		end_limit;
	int64		old_limit;
	TimestampTz old_limit_until;	/* DT_NOBEGIN: NULL */
	SimUuids	taken_over;
	SimUuids	told;			/* those of them that told what they know */
	uint64		successor;		/* 0: it is open */
	TimestampTz closed_at;
	uint64		closed_by;
} SimRegistryRow;

typedef enum SimUses
{
	SIM_USES_NOTHING,
	SIM_USES_OWN,
	SIM_USES_REGISTRY			/* 'another' */
} SimUses;

/* The row of table cluster. */
typedef struct SimCluster
{
	bool		exists;
	SimUses		uses;
	uint64		incarnation;	/* with SIM_USES_REGISTRY, else 0 */
	const SnowflakeLayout *layout;	/* NULL: none yet */
	int64		greatest_id;	/* -1: no lease of another layout */
} SimCluster;

/*
 * The registry in one database; filled with zeros the extension is not there.
 * All may be read, and row, cluster and oid may be written.
 */
typedef struct SimRegistry
{
	bool		exists;
	bool		newer;			/* ALTER EXTENSION UPDATE was carried out: it
								 * knows a version of the protocol more
								 * (calls.c) */
	uint32		oid;			/* of the database; differs from row.database
								 * in a copy */
	SimRegistryRow row;
	SimCluster	cluster;
	SimNumber  *numbers;		/* by number */
	int			num_numbers;
	int			max_numbers;
	SimLog	   *log;			/* in the order of insertion */
	int			num_log;
	int			max_log;
} SimRegistry;

/*
 * Calls
 */

/* The newest lease that the node has opened; token 0: none. */
typedef struct SimNamedLease
{
	uint64		token;
	uint64		node_number;
	int64		granted_by;
	uint64		incarnation;
	int			generation;
	TimestampTz leased_until;
	TimestampTz ids_end_at;		/* DT_NOBEGIN: its ids go on */
} SimNamedLease;

/* What all calls of a node say. */
typedef struct SimNodeCall
{
	int			protocol;
	uint64		start;
	int64		call;
	const SnowflakeLayout *layout;
	SimNamedLease lease;
} SimNodeCall;

typedef struct SimAcquire
{
	SimNodeCall node;
	TimestampTz clock;
	int64		max_ahead;
	int64		window;
	uint64		first_number;
	uint64		last_number;
	bool		fixed;
	uint64		uses;			/* 0: NULL */
	TimestampTz starts_at;		/* DT_NOBEGIN: NULL, as the next one */
	TimestampTz ids_end_at;
	TimestampTz launched_at;
	bool		program;		/* leaves system_identifier unread */
	uint64		system_identifier;
} SimAcquire;

typedef struct SimRenew
{
	SimNodeCall node;
	TimestampTz clock;
	int64		max_ahead;
	int64		window;
} SimRenew;

/* start_server() */
typedef struct SimStart
{
	TimestampTz clock;
	int64		max_ahead;
	uint64		mark;			/* 0: missing */
} SimStart;

/* record_uses() */
typedef struct SimRecord
{
	uint64		incarnation;	/* of the registry that is used now */
	uint64		uses;			/* what the node has told it; 0: NULL */
} SimRecord;

typedef enum SimAnswerKind
{
	SIM_YES,
	SIM_NO,
	SIM_REFUSED,
	SIM_ERROR
} SimAnswerKind;

typedef struct SimAnswer
{
	SimAnswerKind kind;
	SimReason	reason;
	int64		wait;			/* of SIM_REFUSED */
	uint64		incarnation;	/* all but SIM_ERROR, as the next two */
	int			generation;
	TimestampTz clock;
	bool		warned;			/* guards (b) and (c): the tables were rolled
								 * back; the data directory is a copy */

	/* of acquire_lease() */
	uint64		token;
	uint64		node_number;
	TimestampTz starts_at;		/* of start_server(), too */
	TimestampTz leased_until;	/* of renew_lease(), too */
	TimestampTz cluster_ids_end_at; /* to a server; DT_NOBEGIN: NULL */

	/* of start_server() */
	SimUses		uses;
	uint64		uses_incarnation;	/* its own with SIM_USES_OWN */
} SimAnswer;

/* What closed_registry() returns; ends is allocated with malloc. */
typedef struct SimEnd
{
	uint64		node_number;
	TimestampTz ended;
} SimEnd;

typedef struct SimClosedRegistry
{
	uint64		incarnation;
	uint64		successor;
	SimUuids	taken_over;
	TimestampTz created_at;
	int			generation;
	TimestampTz counted_at;		/* DT_NOBEGIN: NULL, as the next one */
	TimestampTz starts_at;
	int64		limit;
	const SnowflakeLayout *layout;
	int64		greatest_id;
	int			num_ends;
	SimEnd	   *ends;
} SimClosedRegistry;

extern const char *sim_reason_name(SimReason reason);
extern int	sim_reason_sqlerrcode(SimReason reason);

extern void sim_registry_init(SimRegistry *registry, uint32 oid);

/* All of it, the oid too.  Takes over the memory that "to" had. */
extern void sim_registry_copy(SimRegistry *to, const SimRegistry *from);
extern void sim_registry_free(SimRegistry *registry);

/* NULL if there is none. */
extern const SimNumber *sim_find_number(const SimRegistry *registry, uint64 node_number);
extern const SimLog *sim_find_log(const SimRegistry *registry, uint64 token);
extern TimestampTz sim_end_of(const SimRegistry *registry, const SimLog *lease);
extern int64 sim_longest_window(const SimRegistryRow *row, TimestampTz now);

/* CREATE EXTENSION and DROP EXTENSION: nothing if it is there, or is not. */
extern SimReason sim_create_extension(SimRegistry *registry, const SimHere *here);
extern void sim_drop_extension(SimRegistry *registry);

/* INSERT as a restore makes it. */
extern void sim_insert_number(SimRegistry *registry, const SimNumber *number);
extern void sim_insert_log(SimRegistry *registry, const SimLog *lease);
extern void sim_insert_cluster(SimRegistry *registry, const SimCluster *cluster);

/* For every node */
extern SimAnswer sim_acquire_lease(SimRegistry *registry, const SimHere *here, const SimAcquire *in);
extern SimAnswer sim_renew_lease(SimRegistry *registry, const SimHere *here, const SimRenew *in);
extern SimAnswer sim_release_lease(SimRegistry *registry, const SimHere *here, const SimNodeCall *in);

/* For the own lease worker */
extern SimAnswer sim_start_server(SimRegistry *registry, const SimHere *here, const SimStart *in);
extern SimAnswer sim_check_promotion(const SimRegistry *registry, const SimHere *here, const SnowflakeLayout *layout);
extern SimAnswer sim_acquire_own_lease(SimRegistry *registry, const SimHere *here, const SimAcquire *in);
extern SimAnswer sim_record_uses(SimRegistry *registry, const SimHere *here, const SimRecord *in);

/* Orders of the owner.  closed_registry() only reads. */
extern SimReason sim_change_layout(SimRegistry *registry, const SimHere *here, const SnowflakeLayout *layout);
extern SimReason sim_limit_leases(SimRegistry *registry, const SimHere *here, int64 limit);
extern SimReason sim_ids_end_before(SimRegistry *registry, const SimHere *here, TimestampTz at);
extern SimReason sim_role_ends_before(SimRegistry *registry, const SimHere *here, TimestampTz at, int role, int *numbers);
extern SimReason sim_close_registry(SimRegistry *registry, const SimHere *here, uint64 successor, const SnowflakeLayout *layout);
extern SimReason sim_closed_registry(const SimRegistry *registry, const SimHere *here, SimClosedRegistry *out);
extern SimReason sim_take_over(SimRegistry *registry, const SimHere *here, const SimClosedRegistry *closed);
extern SimReason sim_take_over_lost(SimRegistry *registry, const SimHere *here, uint64 lost);

#endif							/* SIM_REGISTRY_H */
