/*
 * checker.h
 *	  What the files of the checker share.  All times are microseconds; real ones, and
 *	  those in ids, since 1970.
 */
#ifndef CHECKER_H
#define CHECKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"

#define FOR_EVER	INT64_MAX

/*
 * Ids of one statement and one tick and node number whose sequence values follow each
 * other.  See key_of().
 */
typedef struct Piece
{
	uint64_t	key;			/* of the first one */
	uint32_t	statement;
	uint32_t	count;
} Piece;

/* Servers whose ids are to be distinct, and have one layout. */
typedef struct Deployment
{
	struct Deployment *next;
	char	   *name;
	int			time_shift;
	int64_t		tick;
	int64_t		epoch;
	int			node_shift;
	int			node_bits;
	int			sequence_shift;
	int			sequence_bits;
	Piece	   *pieces;
	size_t		npieces;
} Deployment;

typedef enum LeaseState
{
	OPEN,
	CLOSED,
	DELETED
} LeaseState;

/* A row of a lease history as it was recorded at one time. */
typedef struct LeaseVersion
{
	int64_t		recorded;
	int64_t		starts;			/* TAKEN_OVER: an end for later ones */
	int64_t		until;
	int64_t		known;			/* when an end as late was first recorded */
	LeaseState	state;
} LeaseVersion;

#define TAKEN_OVER	INT64_MIN

typedef struct LeaseRow
{
	int64_t		row;
	char	   *server;
	LeaseVersion *versions;
	size_t		nversions;
	int64_t		starts;			/* the id time it covers */
	int64_t		until;
	int64_t		granted;		/* when it was recorded first */
} LeaseRow;

/* The leases of one node number in a table. */
typedef struct LeaseHistory
{
	struct LeaseHistory *next;
	int64_t		node;
	LeaseRow   *rows;
	size_t		nrows;
} LeaseHistory;

#define TABLE_BUCKETS	1024

typedef struct LeaseTable
{
	struct LeaseTable *next;
	char	   *name;
	int64_t		as_of;			/* complete for ids received before */
	LeaseHistory *buckets[TABLE_BUCKETS];
} LeaseTable;

/* What a server's clock may have shown: real time + offset. */
typedef struct ClockItem
{
	int64_t		from;
	int64_t		to;
	int64_t		offset;
} ClockItem;

/* From then until the next one. */
typedef struct ClockSpan
{
	int64_t		from;
	int64_t		least;
	int64_t		greatest;
} ClockSpan;

typedef struct Delivery
{
	int64_t		received;		/* real */
	uint64_t	ids;
} Delivery;

/* Where leases of a server are, and the deployment that ids of these leases are of, too. */
typedef struct ServerTable
{
	LeaseTable *table;
	Deployment *deployment;		/* or NULL */
} ServerTable;

#define MAX_TABLES	20			/* of a server */

typedef struct Server
{
	struct Server *next;
	char	   *name;
	Deployment *deployment;
	ServerTable tables[MAX_TABLES];
	int			ntables;
	int64_t		max_ahead;
	ClockItem  *clock_items;
	size_t		nclock_items;
	ClockSpan  *clock_spans;
	size_t		nclock_spans;
	Delivery   *deliveries;
	size_t		ndeliveries;
	uint64_t	leased;			/* ids whose lease was checked */
} Server;

typedef struct Log
{
	struct Log *next;
	char	   *file;
	char	   *kind;
	Server	   *server;
} Log;

typedef struct Statement
{
	const LogRecord *record;
	const Log  *log;
} Statement;

#define NO_STATEMENT	UINT32_MAX

/* What a server did with a node number. */
typedef struct NodeUse
{
	struct NodeUse *next;
	struct NodeUse *next_in_bucket;
	Server	   *server;
	int64_t		node;
	const LeaseHistory *histories[MAX_TABLES];	/* NULL: no lease there */
	uint32_t	number;			/* of this use */
	uint64_t	ids;
	int64_t		last_id;		/* of the statement of its last span */
	size_t		nspans;
	size_t		span;			/* the last one */
} NodeUse;

/* The ids of a statement and a node number. */
typedef struct NodeSpan
{
	int64_t		least;
	int64_t		greatest;
	uint32_t	statement;
	uint32_t	use;
} NodeSpan;

typedef enum ViolationKind
{
	NEGATIVE,
	DUPLICATE,
	ORDER,
	AHEAD,
	BEHIND,
	LEASE,
	OVERLAP,
	LOWERED,
	TAKEN,
	CHANGED
} ViolationKind;

#define NUM_VIOLATION_KINDS	(CHANGED + 1)

/* checker.c */
extern Statement *statements;
extern size_t nstatements;

/* checker_config.c */
extern Deployment *deployments;
extern LeaseTable *tables;
extern Server *servers;
extern Log *logs;
extern int64_t until;

extern void read_config(const char *file, int depth);

/* checker_lease.c */
extern void add_lease(LeaseTable *table, int64_t node, int64_t row, const char *server,
					  LeaseVersion version);
extern void finish_leases(LeaseTable *table);
extern const LeaseHistory *find_history(const LeaseTable *table, int64_t node);
extern const char *lease_failure(const NodeUse *use, int64_t begin, int64_t end, int64_t received,
								 int *table);

/* checker_clock.c */
extern void finish_clock(Server *server);
extern ClockSpan clock_between(const Server *server, int64_t from, int64_t to);

/* checker_pairs.c */
extern void add_piece(Deployment *deployment, uint32_t statement, int64_t id, uint32_t count);
extern void add_to_order(NodeUse *use, uint32_t statement, int64_t first, int64_t last);
extern void check_duplicates(Deployment *deployment);
extern void check_order(const NodeUse *const *uses);

/* checker_report.c */
extern void add_violation(ViolationKind kind, int64_t when, uint64_t ids, const char *subject,
						  uint32_t first, uint32_t second, const char *format,...)
			__attribute__((format(printf, 7, 8)));
extern const char *describe_id(int64_t id, int64_t node, const Server *server);
extern uint64_t print_violations(void);
extern void report_deliveries(Server *server, int64_t end);
extern void cannot_check(const char *format,...)
			__attribute__((format(printf, 1, 2), noreturn));
extern void *make_room(void *array, size_t count, size_t size);
extern void *allocate(size_t size);

#endif							/* CHECKER_H */
