/*
 * registry.h
 *	  Calls of the functions that keep the tables of the schema snowflake: of this
 *	  cluster over SPI, or of another one over libpq.
 *
 * A call is one transaction.  When it has been answered with OK, what it did is
 * durable: committed, and replicated where the registry's server waits for a
 * standby.  For processes that are there for one call (helper.h, share.c); nothing
 * here knows shared memory.
 */
#ifndef SNOWFLAKE_REGISTRY_H
#define SNOWFLAKE_REGISTRY_H

#include "utils/uuid.h"

#include "claim.h"
#include "layout.h"
#include "problem.h"

typedef enum SnowflakeCallKind
{
	SNOWFLAKE_ACQUIRE,
	SNOWFLAKE_RENEW,
	SNOWFLAKE_RELEASE,
	SNOWFLAKE_SHARE				/* a database's share of backfilled ids */
} SnowflakeCallKind;

/* Room for host:port/dbname. */
#define SNOWFLAKE_PLACE_SIZE	192

/* Where a registry was found; empty strings: not known. */
typedef struct SnowflakePeer
{
	char		host[256];
	char		address[64];	/* numeric; empty for a Unix-domain socket */
	char		port[8];
} SnowflakePeer;

/* Leases asked for without ever seeing the answer; older ones expire by themselves. */
#define SNOWFLAKE_MAX_UNUSED	8

/* What is asked of the registry.  Times are TimestampTz, spans microseconds. */
typedef struct SnowflakeCall
{
	SnowflakeCallKind kind;
	bool		remote;			/* to a registry, else to the local table */
	char		registry[SNOWFLAKE_REGISTRY_SIZE];	/* remote: connection
													 * string */
	bool		create;			/* local: create the extension if it is
								 * missing */
	bool		last;			/* the server is stopping: be quick */
	pg_uuid_t	token;			/* of the lease; for ACQUIRE a new one */
	TimestampTz until;			/* RENEW: bound wanted; RELEASE: true end */
	TimestampTz row_until;		/* RELEASE: as previous_until */
	Oid			database;		/* SHARE: of this cluster */
	uint32		generation;		/* SHARE: see snowflake_floor_generation */
	pg_uuid_t	asker;			/* SHARE: incarnation of the extension in it */

	pg_uuid_t	incarnation;	/* SHARE, ACQUIRE: that the table must be */

	/* ACQUIRE only */
	bool		any_incarnation;	/* it need not be that one */
	SnowflakeLayout layout;
	uint64		first;			/* the numbers to choose from */
	uint64		last_number;
	uint64		ring_mask;		/* of these, those that have ring_bits here */
	uint64		ring_bits;
	bool		exclusive;		/* all of them are this server's */
	TimestampTz clock;			/* of this node */
	int64		max_ahead;
	int64		window;
	uint32		timeline;
	bool		has_previous;
	pg_uuid_t	previous;		/* token of the lease before */
	TimestampTz previous_end;	/* all ids under it end at or before */
	TimestampTz previous_until; /* if its row has this bound; DT_NOEND: any */
	int			num_unused;
	pg_uuid_t	unused[SNOWFLAKE_MAX_UNUSED];

	SnowflakePeer peer;			/* last and remote: as the last answer had it,
								 * so that no name is looked up */
} SnowflakeCall;

/*
 * What came of a call.  Anything but FAILED is set last of all, when the
 * transaction is known to be durable, so that a call that is broken off anywhere
 * has failed.
 */
typedef enum SnowflakeAnswerKind
{
	SNOWFLAKE_ANSWER_FAILED,	/* see the problem; may have been carried out
								 * all the same */
	SNOWFLAKE_ANSWER_OK,
	SNOWFLAKE_ANSWER_NOT_OPEN,	/* RENEW, RELEASE: somebody has the lease
								 * ended */
	SNOWFLAKE_ANSWER_MISSING,	/* local: no extension, and none was to be
								 * created */
	SNOWFLAKE_ANSWER_BUSY		/* local: another transaction is creating it */
} SnowflakeAnswerKind;

typedef struct SnowflakeAnswer
{
	SnowflakeAnswerKind kind;
	pg_uuid_t	incarnation;	/* ACQUIRE, OK */
	uint64		node;			/* ACQUIRE, OK; SHARE, OK: the share */
	TimestampTz starts_at;		/* ACQUIRE, OK: greatest bound in the number's
								 * history */
	TimestampTz until;			/* ACQUIRE, RENEW, OK: the bound */
	char		place[SNOWFLAKE_PLACE_SIZE];	/* the database, or
												 * host:port/dbname */
	SnowflakePeer peer;			/* remote */
	SnowflakeProblem problem;
} SnowflakeAnswer;

/* registry.c */
#define SNOWFLAKE_CALL_PARAMETERS	25
#define SNOWFLAKE_CALL_COLUMNS		4

typedef struct SnowflakeQuery
{
	const char *text;
	int			num_parameters;
	const char *parameters[SNOWFLAKE_CALL_PARAMETERS];	/* all text; NULL: null */
} SnowflakeQuery;

extern void snowflake_query_build(const SnowflakeCall *call, SnowflakeQuery *query);
extern SnowflakeAnswerKind snowflake_query_read(const SnowflakeCall *call, char *const *columns,
												SnowflakeAnswer *answer);
extern void snowflake_answer_error(SnowflakeAnswer *answer, int sqlerrcode, const char *message,
								   const char *detail, const char *hint);
extern void snowflake_answer_server_error(SnowflakeAnswer *answer, int sqlerrcode, const char *message,
										  const char *detail, const char *hint);

#define SNOWFLAKE_REACH_HINT \
	"Check snowflake.registry, that server and the network."

/* The transports. */
extern void snowflake_call_local(const SnowflakeCall *call, SnowflakeAnswer *answer);
extern void snowflake_call_remote(const SnowflakeCall *call, SnowflakeAnswer *answer);

#endif							/* SNOWFLAKE_REGISTRY_H */
