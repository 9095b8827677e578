/*
 * registry.h
 *	  The tables of a registry, and a twin in C of the functions of the extension
 *	  snowflake_registry (src/registry.sql).
 *
 * Each function is one transaction.  It changes the registry only if it returns
 * SIM_OK; so a caller that wants the transaction not to be durable keeps a copy
 * made before.  Nothing here reads a clock, prints or allocates but for rows,
 * and the results depend on the arguments alone.
 *
 * A uuid is a uint64 here, 0 being NULL.  The twin makes them with
 * here->new_uuid, again while that gives 0.  A text that SQL only compares (the
 * host name) is a number.  Times are TimestampTz, spans microseconds; DT_NOBEGIN
 * stands for a time that is NULL.  A call is a struct instead of a jsonb, so
 * what is wrong with a jsonb (keys, types, texts) has no counterpart; a value
 * that is missing or out of its bounds is SIM_VALUE.
 *
 * Layouts are pointers; the same canonical definition is the same pointer.
 *
 * What becomes of a server is up to the caller:
 *	  a standby, a backup		sim_registry_copy(), and later another SimHere
 *	  promotion, recovery		an entry more in here->history
 *	  pg_upgrade				another here->system_identifier, no history
 *	  a copy by CREATE DATABASE	sim_registry_copy(), then another oid
 *	  a dump that is restored	sim_create_extension(), sim_insert_row(),
 *								sim_insert_cluster()
 */
#ifndef SIM_REGISTRY_H
#define SIM_REGISTRY_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "layout/layout.h"

/* The version of the protocol that registry.c knows. */
#define SIM_PROTOCOL	1

/* One for each RAISE of src/registry.sql, in its order. */
typedef enum SimError
{
	SIM_OK,
	SIM_NO_TABLE,				/* the extension is not there */

	SIM_ROW_REFUSED,			/* constraint worker_node_span, _number */
	SIM_VALUE,					/* refuse_value() */
	SIM_PROTOCOL_UNKNOWN,		/* check_protocol() */

	SIM_HOT_STANDBY,			/* lock_registry() */
	SIM_ISOLATION_LEVEL,
	SIM_REPLICATION_ORIGIN,
	SIM_NO_REGISTRY_ROW,
	SIM_CLOSED,					/* check_open() */
	SIM_NO_HISTORY,				/* timeline_history() */
	SIM_USES_ANOTHER,			/* check_root() */
	SIM_REGISTRY_IS_SELF,		/* check_source() */
	SIM_OTHER_SOURCE,
	SIM_CALL_LATE,				/* begin_call() */
	SIM_LAYOUT_NOT_SET,			/* check_layout(): nobody has set it */
	SIM_LAYOUT_IN_USE,			/* another server has a lease */
	SIM_LAYOUT_NOT_GREATER,		/* ids would not be greater */
	SIM_NO_NUMBER_FREE,			/* choose_automatic(): 53400 */
	SIM_NUMBER_HELD,			/* check_holder() */
	SIM_TOO_FEW_NUMBERS,		/* choose_number() */
	SIM_BEHIND_CREATION,		/* lease_floor(): created_at */
	SIM_BEHIND_START,			/* counted_at, starts_at */
	SIM_BEHIND_IDS,				/* those that the node knows of */

	SIM_LAYOUT_ENDED,			/* grant_lease(): 2200H */
	SIM_RENEW_LAYOUT,			/* renew_lease(): another layout is in use */
	SIM_HAS_NODES,				/* record_uses(): others have leases from here */

	SIM_SUCCESSOR_IS_SELF,		/* close_registry() */
	SIM_NOT_CLOSED,				/* closed_registry() */
	SIM_NOT_COMMITTED,
	SIM_OTHER_SUCCESSOR,		/* take_over(jsonb) */
	SIM_FLOOR_AHEAD,
	SIM_TAKES_SELF,				/* take_over(uuid) */
	SIM_TIME_NOT_FINITE,		/* ids_end_before() */
	NUM_SIM_ERRORS
} SimError;

/* Entries of a timeline history: the promotions. */
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
	TimestampTz launched_at;	/* pg_postmaster_start_time() */
	const SimHistory *history;	/* none on timeline 1; NULL: the file is
								 * missing */
	bool		in_recovery;
	bool		other_isolation;	/* the level is not READ COMMITTED */
	bool		replication_origin; /* the session has one */
	uint64		transaction;	/* what it did before belongs to this one; 0:
								 * nothing yet */
	uint64		(*random) (void *state);	/* all 64 bits; random() */
	uint64		(*new_uuid) (void *state);	/* gen_random_uuid() */
	void	   *random_state;
} SimHere;

/* A row of worker_node. */
typedef struct SimRow
{
	uint64		token;
	uint64		start;
	int64		granted_by;
	int64		last_call;
	bool		program;		/* kind; the name is that of the host, and
								 * what only servers have is 0 */
	uint64		system_identifier;
	int			host;			/* host_name */
	int			port;
	uint32		timeline;
	uint64		incarnation;
	int			generation;
	bool		fixed;
	uint64		node_number;
	const SnowflakeLayout *layout;
	int64		greatest_id;
	TimestampTz launched_at;
	TimestampTz starts_at;
	TimestampTz leased_until;
	TimestampTz renewed_at;
	bool		closed;
	TimestampTz closed_at;		/* if closed, else DT_NOBEGIN */
} SimRow;

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
	uint64		system_identifier;
	int			generation;
	SimHistory	counted;
	TimestampTz counted_at;		/* DT_NOBEGIN: NULL */
	TimestampTz starts_at;		/* DT_NOBEGIN: NULL */
	SimUuids	taken_over;
	SimUuids	told;			/* those of them that told what they know */
	uint64		successor;		/* 0: it is open */
	TimestampTz closed_at;
	uint64		closed_by;
} SimRegistryRow;

typedef enum SimUses
{
	SIM_USES_NOTHING,			/* the table cluster has no row */
	SIM_USES_OWN,
	SIM_USES_REGISTRY			/* 'another' */
} SimUses;

/* What registry.c keeps beside the rows, so that no call reads all of them. */
typedef struct SimIndexes SimIndexes;

/*
 * The registry in one database; filled with zeros the extension is not there.
 * All may be read, and row, has_row, uses and oid may be written.
 */
typedef struct SimRegistry
{
	bool		exists;
	bool		newer;			/* ALTER EXTENSION UPDATE was carried out: it
								 * knows a version of the protocol more
								 * (calls.c) */
	uint32		oid;			/* of the database; differs from row.database
								 * in a copy */
	bool		has_row;		/* of table registry */
	SimRegistryRow row;

	SimUses		uses;			/* table cluster */
	uint64		uses_incarnation;	/* with SIM_USES_REGISTRY, else 0 */

	/* worker_node, in the order of insertion */
	SimRow	   *leases;
	int			num_leases;
	int			max_leases;
	SimIndexes *indexes;
} SimRegistry;

/*
 * Calls of a node
 */

/* The newest lease that the node has opened; token 0: none. */
typedef struct SimNamedLease
{
	uint64		token;
	int64		granted_by;
	TimestampTz ids_end_at;		/* for calls that close it */
} SimNamedLease;

/* What all of them say. */
typedef struct SimNodeCall
{
	int			protocol;
	uint64		start;
	int64		call;
	const SnowflakeLayout *layout;
	SimNamedLease lease;
} SimNodeCall;

/* Ids that have ended, of a lease that may not be on record; all NULL: none. */
typedef struct SimEnded
{
	TimestampTz ids_end_at;		/* DT_NOBEGIN: NULL */
	uint64		incarnation;	/* 0: NULL */
	int			generation;		/* 0: NULL */
} SimEnded;

typedef struct SimAcquire
{
	SimNodeCall node;
	TimestampTz clock;
	int64		max_ahead;
	int64		tick;
	int64		window;
	uint64		first_number;
	uint64		last_number;
	bool		fixed;
	bool		layout_set;
	uint64		uses;			/* 0: NULL */
	SimEnded	ended;
	TimestampTz starts_at;		/* DT_NOBEGIN: NULL */
	bool		program;		/* leaves port, timeline and system_identifier
								 * unread */
	int			host;
	int			port;
	uint32		timeline;
	TimestampTz launched_at;
	uint64		system_identifier;	/* acquire_own_lease() leaves it unread */
} SimAcquire;

typedef struct SimRenew
{
	SimNodeCall node;
	TimestampTz clock;
	int64		window;
} SimRenew;

/* start_server() */
typedef struct SimStart
{
	int			protocol;
	TimestampTz clock;
	int64		max_ahead;
	int64		tick;
} SimStart;

/* record_uses() */
typedef struct SimRecord
{
	int			protocol;
	uint64		incarnation;	/* of the registry that is used now */
	uint64		uses;			/* what the node has told it; 0: NULL */
	int			host;
	int			port;
} SimRecord;

/*
 * Answers
 */

/* Why an answer is no. */
typedef enum SimReason
{
	SIM_YES,
	SIM_UNKNOWN,
	SIM_REASON_INCARNATION,
	SIM_REASON_GENERATION,
	SIM_REASON_CLOSED,
	SIM_REASON_USES				/* of record_uses() */
} SimReason;

/* What all of them say. */
typedef struct SimAnswer
{
	SimReason	reason;
	uint64		incarnation;
	int			generation;
	TimestampTz clock;
} SimAnswer;

typedef struct SimGranted
{
	SimAnswer	answer;
	uint64		token;
	uint64		node_number;
	TimestampTz starts_at;
	TimestampTz leased_until;
} SimGranted;

typedef struct SimRenewed
{
	SimAnswer	answer;
	TimestampTz leased_until;	/* if the answer is yes */
} SimRenewed;

typedef struct SimStarted
{
	SimAnswer	answer;
	TimestampTz starts_at;
	SimUses		uses;
	uint64		uses_incarnation;	/* its own with SIM_USES_OWN */
} SimStarted;

/* A page of list_leases(); rows is allocated with malloc. */
typedef struct SimPage
{
	uint64		incarnation;	/* 0: NULL */
	SimUses		uses;
	uint64		uses_incarnation;
	int			num_rows;
	const SimRow **rows;		/* valid until the registry changes */
	bool		has_next;		/* after the last of rows */
} SimPage;

/* What closed_registry() returns; rows is allocated with malloc. */
typedef struct SimClosedRegistry
{
	int			protocol;
	uint64		incarnation;
	uint64		successor;
	SimUuids	taken_over;
	TimestampTz created_at;
	int			generation;
	TimestampTz floor;			/* DT_NOBEGIN: NULL */
	int			num_rows;
	SimRow	   *rows;
} SimClosedRegistry;

extern void sim_registry_init(SimRegistry *registry, uint32 oid);

/* All of it, the oid too.  Takes over the memory that "to" had. */
extern void sim_registry_copy(SimRegistry *to, const SimRegistry *from);
extern void sim_registry_free(SimRegistry *registry);

/* CREATE EXTENSION and DROP EXTENSION: nothing if it is there, or is not. */
extern void sim_create_extension(SimRegistry *registry, const SimHere *here);
extern void sim_drop_extension(SimRegistry *registry);

/*
 * INSERT as a restore makes it.  False if the token is there already: then
 * nothing is inserted.  A record in cluster is kept, and false returned.
 */
extern bool sim_insert_row(SimRegistry *registry, const SimRow *row);
extern bool sim_insert_cluster(SimRegistry *registry, SimUses uses, uint64 incarnation);

/* For every node */
extern SimError sim_acquire_lease(SimRegistry *registry, const SimHere *here, const SimAcquire *in, SimGranted *out);
extern SimError sim_renew_lease(SimRegistry *registry, const SimHere *here, const SimRenew *in, SimRenewed *out);
extern SimError sim_release_lease(SimRegistry *registry, const SimHere *here, const SimNodeCall *in, SimAnswer *out);

/* after_until DT_NOBEGIN: NULL.  max_rows: 10000 in SQL */
extern SimError sim_list_leases(const SimRegistry *registry, int64 after_number, TimestampTz after_until,
								int max_rows, SimPage *out);

/* For the own lease worker */
extern SimError sim_start_server(SimRegistry *registry, const SimHere *here, const SimStart *in, SimStarted *out);
extern SimError sim_acquire_own_lease(SimRegistry *registry, const SimHere *here, const SimAcquire *in, SimGranted *out);
extern SimError sim_record_uses(SimRegistry *registry, const SimHere *here, const SimRecord *in, SimAnswer *out);

/* For the owner.  closed_registry() only reads. */
extern SimError sim_close_registry(SimRegistry *registry, const SimHere *here, uint64 successor);
extern SimError sim_closed_registry(const SimRegistry *registry, const SimHere *here, bool history, SimClosedRegistry *out);
extern SimError sim_take_over(SimRegistry *registry, const SimHere *here, const SimClosedRegistry *closed, uint64 *incarnation);
extern SimError sim_take_over_lost(SimRegistry *registry, const SimHere *here, uint64 lost, uint64 *incarnation);
extern SimError sim_ids_end_before(SimRegistry *registry, const SimHere *here, TimestampTz at);

#endif							/* SIM_REGISTRY_H */
