/*
 * tables.h
 *	  The tables of a registry, and a twin in C of the functions of
 *	  src/sql/lease.sql and src/sql/worker_node.sql.
 *
 * Each function is one transaction.  It changes the tables only if it returns
 * SIM_OK; so a caller that wants the transaction not to be durable keeps a copy
 * made before.  Nothing here reads a clock, prints or allocates but for rows,
 * and the results depend on the arguments alone.
 *
 * Ids that SQL has as uuid are uint64 here, 0 being NULL.  The twin makes them
 * with here->random, again while that gives 0.  A text that SQL only compares
 * (the host name) is a number.  Times are TimestampTz, spans microseconds;
 * DT_NOBEGIN stands for -infinity, and for NULL where SQL has NULL.
 *
 * Layouts are pointers; the same canonical definition is the same pointer.
 * Where SQL orders by the text, tables.c compares the definitions.
 *
 * The twin has no version, isolation level, nor check of types: those RAISEs,
 * and what cannot be given here (NULLs), have no SimError.
 */
#ifndef SIM_TABLES_H
#define SIM_TABLES_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "layout/layout.h"

/* One for each RAISE of lease.sql and worker_node.sql. */
typedef enum SimError
{
	SIM_OK,
	SIM_NO_TABLE,				/* the extension is not there */
	SIM_NO_REGISTRY_ROW,		/* the table snowflake.registry has no row */
	SIM_PARAMETER,				/* check_parameter() */
	SIM_CALL_LATE,				/* begin_call() */
	SIM_LAYOUT_NOT_SET,			/* check_layout(): nobody has set it */
	SIM_LAYOUT_IN_USE,			/* another server has an unexpired lease */
	SIM_LAYOUT_NOT_GREATER,		/* ids would not be greater */
	SIM_NO_NUMBER_FREE,			/* choose_automatic(): 53400 */
	SIM_NUMBER_HELD,			/* check_holder() */
	SIM_TOO_FEW_NUMBERS,		/* choose_number(): own, one automatic number */
	SIM_BEHIND_CREATION,		/* lease_floor(): created_at */
	SIM_BEHIND_START,			/* starts_at */
	SIM_BEHIND_IDS,				/* node_floor */
	SIM_USES_ANOTHER,			/* check_registry(): own, but another is
								 * recorded */
	SIM_REGISTRY_IS_SELF,
	SIM_OTHER_INCARNATION,
	SIM_NO_ROOT,				/* check_root(): this cluster uses another */
	SIM_HAS_NODES,				/* record_uses(): this cluster is a registry */
	SIM_RENEW_LAYOUT,			/* renew_lease(): another layout is in use */
	SIM_RECORDED_OTHER,			/* record_uses() without change */
	SIM_REGISTRY_BEHIND			/* hand_over(): starts_at is to come */
} SimError;

/* The server that carries out a call: its clock, and its random(). */
typedef struct SimHere
{
	TimestampTz clock;			/* clock_timestamp() */
	uint64		system_identifier;
	TimestampTz launched_at;	/* pg_postmaster_start_time() */
	uint64		(*random) (void *state);
	void	   *random_state;
	const uint64 *unused;		/* the number never leased that a choice at
								 * random gives, if it may; NULL: any.  For
								 * the test that this is a twin */
} SimHere;

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

/* A row of worker_node. */
typedef struct SimRow
{
	uint64		token;
	uint64		start;
	int64		granted_by;
	int64		last_call;
	uint64		system_identifier;
	int			host;			/* host_name */
	int			port;
	uint32		timeline;
	uint64		incarnation;
	uint64		node_number;
	const SnowflakeLayout *layout;
	TimestampTz launched_at;
	TimestampTz starts_at;
	TimestampTz leased_until;
	TimestampTz renewed_at;
	bool		closed;
	TimestampTz closed_at;		/* if closed, else DT_NOBEGIN */
} SimRow;

typedef enum SimUses
{
	SIM_USES_NOTHING,			/* the table cluster has no row */
	SIM_USES_OWN,
	SIM_USES_REGISTRY			/* 'another' */
} SimUses;

/* What tables.c keeps beside the rows, so that no call reads all of them. */
typedef struct SimIndex SimIndex;

/*
 * The tables of one database; filled with zeros there are no tables.  All may
 * be read; what the comments allow may be written.
 */
typedef struct SimTables
{
	bool		exists;
	uint32		oid;			/* of the database that the tables are in;
								 * differs from database in a copy */

	/* worker_node, in the order of insertion; not to be written */
	SimRow	   *rows;
	int			num_rows;
	int			max_rows;
	SimIndex   *index;

	/* registry: may be written */
	bool		has_registry;
	uint64		incarnation;
	uint32		database;
	TimestampTz created_at;
	int			generation;
	SimHistory	counted;
	uint64		system_identifier;
	TimestampTz starts_at;

	/* cluster: may be written */
	SimUses		uses;
	uint64		uses_incarnation;	/* with SIM_USES_REGISTRY, else 0 */
} SimTables;

/* The parameters of acquire_lease(), in its order. */
typedef struct SimAcquire
{
	uint64		start;
	int64		call;
	bool		own;
	uint64		incarnation;	/* 0: any will do */
	uint64		first_number;
	uint64		last_number;
	bool		fixed;
	const SnowflakeLayout *layout;
	bool		layout_set;
	int64		tick;
	TimestampTz node_clock;
	int64		max_ahead;
	int64		lease_window;
	int			host;
	int			port;
	uint64		system_identifier;
	uint32		timeline;
	const SimHistory *timelines;	/* own */
	TimestampTz launched_at;
	TimestampTz known_until;	/* DT_NOBEGIN: NULL */
	uint64		known_incarnation;	/* 0: NULL */
	TimestampTz node_floor;		/* DT_NOBEGIN: NULL */
	uint64		previous_token; /* 0: NULL */
	TimestampTz previous_end;	/* DT_NOBEGIN: NULL */
} SimAcquire;

typedef struct SimGranted
{
	uint64		token;
	uint64		registry_incarnation;
	uint64		node_number;
	TimestampTz starts_at;
	TimestampTz leased_until;
	TimestampTz registry_clock;
} SimGranted;

typedef struct SimStarted
{
	SimUses		uses;
	uint64		incarnation;
	int			generation;
	TimestampTz starts_at;
} SimStarted;

typedef struct SimRenew
{
	uint64		start;
	int64		call;
	uint64		token;
	TimestampTz lease_until;
	const SnowflakeLayout *layout;
	TimestampTz node_clock;
} SimRenew;

/* An element of the arrays that list_ends() returns and hand_over() takes. */
typedef struct SimEnd
{
	uint64		node_number;
	TimestampTz leased_until;
	const SnowflakeLayout *layout;
} SimEnd;

/* What list_ends() returns; ends is allocated with malloc. */
typedef struct SimEnds
{
	uint64		incarnation;
	TimestampTz starts_at;
	SimUses		uses;
	int			num_ends;
	SimEnd	   *ends;
} SimEnds;

/* The parameters of hand_over(), in its order. */
typedef struct SimHandOver
{
	bool		own;
	uint64		incarnation;
	TimestampTz starts_at;		/* DT_NOBEGIN: NULL */
	int			num_ends;
	const SimEnd *ends;
	uint64		start;
	int64		call;
	int			host;
	int			port;
	uint64		system_identifier;
	uint32		timeline;
	TimestampTz launched_at;
} SimHandOver;

extern void sim_tables_init(SimTables *tables, uint32 oid);

/* All of it, the oid too.  Takes over the memory that "to" had. */
extern void sim_tables_copy(SimTables *to, const SimTables *from);
extern void sim_tables_free(SimTables *tables);

/* CREATE EXTENSION and DROP EXTENSION: nothing if it is there, or is not. */
extern void sim_create_extension(SimTables *tables, const SimHere *here);
extern void sim_drop_extension(SimTables *tables);

/*
 * INSERT as a restore makes it.  False if the token is there already: then
 * nothing is inserted.  A record in cluster is kept, and false returned.
 */
extern bool sim_insert_row(SimTables *tables, const SimRow *row);
extern bool sim_insert_cluster(SimTables *tables, SimUses uses, uint64 incarnation);

extern SimError sim_start_server(SimTables *tables, const SimHere *here, const SimHistory *timelines,
								 TimestampTz node_clock, int64 max_ahead, int64 tick, uint64 system_identifier,
								 SimStarted *out);
extern SimError sim_acquire_lease(SimTables *tables, const SimHere *here, const SimAcquire *in, SimGranted *out);

/* *leased_until is DT_NOBEGIN if SQL returns NULL: the lease is not open. */
extern SimError sim_renew_lease(SimTables *tables, const SimHere *here, const SimRenew *in, TimestampTz *leased_until);
extern SimError sim_release_lease(SimTables *tables, const SimHere *here, uint64 start, int64 call,
								  uint64 token, TimestampTz lease_end, bool *was_open);

/* incarnation 0: its own tables. */
extern SimError sim_record_uses(SimTables *tables, const SimHere *here, uint64 incarnation, bool change);
extern SimError sim_list_ends(SimTables *tables, const SimHere *here, int64 max_ahead, int64 tick, SimEnds *out);
extern SimError sim_hand_over(SimTables *tables, const SimHere *here, const SimHandOver *in, uint64 *registry_incarnation);

#endif							/* SIM_TABLES_H */
