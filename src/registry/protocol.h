/*
 * protocol.h
 *	  The registry calls and their results: doc/protocol.md in C.
 *
 * A call is one transaction in the database postgres of this cluster (over
 * SPI) or of the cluster that snowflake.registry names (over libpq).  If its
 * result is not FAILED, what it did is durable: committed, and replicated
 * where that server waits for a standby.  A call that failed may have been
 * carried out, or may be carried out later.
 *
 * The calls of a start are numbered upwards.  The registry refuses a call that
 * comes after one with a greater number.
 *
 * Times are TimestampTz, spans microseconds.
 */
#ifndef SNOWFLAKE_PROTOCOL_H
#define SNOWFLAKE_PROTOCOL_H

#include "utils/uuid.h"

#include "error.h"
#include "layout/layout.h"

/* LOOK, START and RECORD go to the own tables, the others to a registry. */
typedef enum SnowflakeCallKind
{
	SNOWFLAKE_CALL_NONE,
	SNOWFLAKE_CALL_LOOK,		/* on a standby: would a promotion refuse ids? */
	SNOWFLAKE_CALL_START,		/* count this start, say what is used */
	SNOWFLAKE_CALL_ACQUIRE,		/* grant a lease */
	SNOWFLAKE_CALL_RECORD,		/* record which registry is used */
	SNOWFLAKE_CALL_RENEW,		/* raise leased_until */
	SNOWFLAKE_CALL_RELEASE		/* close the lease where its ids end */
} SnowflakeCallKind;

/*
 * The lease that a call names: the newest one that the node has opened, or was
 * granted and has dropped.
 */
typedef struct SnowflakeNamedLease
{
	pg_uuid_t	token;
	uint64		node;
	uint64		granted_by;		/* number of the call that granted it; 0: no
								 * lease is named */
	pg_uuid_t	incarnation;	/* of the registry */
	int32		generation;		/* of the registry at the grant */
	TimestampTz leased_until;
	TimestampTz ids_end_at;		/* DT_NOBEGIN: its words are not sealed */
} SnowflakeNamedLease;

/* The registry that a cluster uses, as its own tables record it. */
typedef struct SnowflakeUsed
{
	bool		known;			/* false: it has used no registry yet */
	pg_uuid_t	incarnation;	/* of that registry */
} SnowflakeUsed;

typedef struct SnowflakeStartCall
{
	bool		create;			/* create the extension if it is missing */
} SnowflakeStartCall;

typedef struct SnowflakeAcquireCall
{
	int64		window;			/* of the lease */
	uint64		first;			/* least number to choose from */
	uint64		last;			/* greatest one */
	bool		fixed;			/* the numbers belong to this server */
	SnowflakeUsed uses;			/* as the own tables record it */
	TimestampTz ids_end_at;		/* of this start's leases that ended;
								 * DT_NOBEGIN: no id was issued */
	TimestampTz starts_at;		/* the lease starts at or after this;
								 * DT_NOBEGIN: no such bound */
} SnowflakeAcquireCall;

typedef struct SnowflakeRecordCall
{
	pg_uuid_t	incarnation;	/* of the registry that granted, to record */
	SnowflakeUsed uses;			/* what ACQUIRE said; recorded until now */
} SnowflakeRecordCall;

typedef struct SnowflakeRenewCall
{
	int64		window;
} SnowflakeRenewCall;

typedef struct SnowflakeCall
{
	SnowflakeCallKind kind;
	uint64		number;			/* among the calls of this start */
	char		registry[SNOWFLAKE_REGISTRY_SIZE];	/* connection string;
													 * empty: the own tables */
	bool		last;			/* the server is stopping: be quick */
	SnowflakeLayout layout;		/* snowflake.layout */
	SnowflakeNamedLease lease;
	TimestampTz clock;			/* of this node; START, ACQUIRE and RENEW say
								 * it, */
	int64		max_ahead;		/* and this, with the longest tick of the
								 * layouts in use */
	union						/* by the kind; RELEASE has no more */
	{
		SnowflakeStartCall start;
		SnowflakeAcquireCall acquire;
		SnowflakeRecordCall record;
		SnowflakeRenewCall renew;
	}			u;
} SnowflakeCall;

typedef enum SnowflakeResultKind
{
	SNOWFLAKE_RESULT_FAILED,	/* see the problem */
	SNOWFLAKE_RESULT_OK,
	SNOWFLAKE_RESULT_NO,		/* RENEW: the lease is not to be renewed.
								 * RELEASE: the row was closed, or is not
								 * there.  RECORD: the own tables name another
								 * registry than they did at START */
	SNOWFLAKE_RESULT_REFUSED,	/* as the problem says; nothing was granted,
								 * renewed or released */
	SNOWFLAKE_RESULT_MISSING	/* own tables: the extension is not there */
} SnowflakeResultKind;

/* What a cluster's own tables say of where its numbers come from. */
typedef enum SnowflakeUses
{
	SNOWFLAKE_USES_NOTHING,		/* it has had no lease yet */
	SNOWFLAKE_USES_OWN,
	SNOWFLAKE_USES_ANOTHER		/* the registry of this incarnation */
} SnowflakeUses;

typedef struct SnowflakeStartResult
{
	SnowflakeUses uses;
	pg_uuid_t	incarnation;	/* of the registry that is used */
	TimestampTz starts_at;		/* ids from before the own tables were made
								 * end at or before this */
} SnowflakeStartResult;

typedef struct SnowflakeAcquireResult
{
	pg_uuid_t	token;
	pg_uuid_t	incarnation;	/* of the registry */
	int32		generation;
	TimestampTz clock;			/* the registry's */
	uint64		node;
	TimestampTz starts_at;
	TimestampTz leased_until;
	TimestampTz cluster_ids_end_at; /* of other starts of this cluster;
									 * DT_NOBEGIN: they have ended */
} SnowflakeAcquireResult;

typedef struct SnowflakeRenewResult
{
	TimestampTz leased_until;
} SnowflakeRenewResult;

/* No answer of a registry keeps a node away for longer. */
#define SNOWFLAKE_LONGEST_REFUSAL_US	(10 * USECS_PER_SEC)

typedef struct SnowflakeResult
{
	SnowflakeResultKind kind;
	char		address[SNOWFLAKE_ADDRESS_SIZE];	/* that was called */
	pg_uuid_t	incarnation;	/* of the registry; with an answer */
	int32		generation;		/* the same */
	SnowflakeProblem problem;	/* of FAILED and REFUSED */
	bool		rolled_back;	/* of NO: the registry does not know how far
								 * the lease goes */
	int64		wait;			/* of REFUSED: the next call is not before */
	bool		overloaded;		/* of FAILED: another registry has no time, no
								 * connection or no server for this call yet;
								 * each call is a load to it */
	union						/* of OK, by the kind of the call */
	{
		SnowflakeStartResult start;
		SnowflakeAcquireResult acquire;
		SnowflakeRenewResult renew;
	}			u;
} SnowflakeResult;

/* Bytes of a result; a registry that sends more is refused. */
#define SNOWFLAKE_RESULT_SIZE		(64 * 1024)

/* An answer is not what the functions of the protocol return. */
#define SNOWFLAKE_ANSWER_HINT \
	"See which server answers there, and whether somebody has changed the functions in its schema snowflake."

/*
 * What raises PostgreSQL's warning at COMMIT that a wait for a synchronous
 * standby was cancelled: the warning has no SQLSTATE of its own.
 */
#define SNOWFLAKE_SYNC_REP_ROUTINE	"SyncRepWaitForLSN"

/* The statement of one transaction. */
typedef struct SnowflakeQuery
{
	const char *text;			/* with the parameter $1: the call */
	const char *call;			/* a JSON object */
	bool		create;			/* own tables: create the extension */
	bool		last;			/* the server is stopping: be quick */
	bool		local_commit;	/* the commit waits for no standby */
} SnowflakeQuery;

/* The one row that a statement returned; all NULL if it is not one row. */
#define SNOWFLAKE_QUERY_COLUMNS		15

typedef struct SnowflakeRow
{
	char	   *columns[SNOWFLAKE_QUERY_COLUMNS];	/* NULL: null */
} SnowflakeRow;

/* RFC 1035: 255 octets; Linux: 64 */
#define SNOWFLAKE_HOST_NAME_SIZE	256

extern void snowflake_host_name(char name[SNOWFLAKE_HOST_NAME_SIZE]);
extern void snowflake_query_build(const SnowflakeCall *call,
								  SnowflakeQuery *query);
extern SnowflakeResultKind snowflake_row_read(const SnowflakeCall *call,
											  const SnowflakeRow *row,
											  SnowflakeResult *result);
extern void snowflake_result_error(SnowflakeResult *result, int sqlerrcode,
								   const char *message,
								   const char *detail, const char *hint);

/*
 * The transports.  Each runs one transaction, in a process that does nothing
 * else, and returns OK with the row filled (in the current memory context),
 * MISSING, or FAILED with the result's problem filled.
 */
extern SnowflakeResultKind snowflake_local_run(const SnowflakeQuery *query,
											   SnowflakeRow *row,
											   SnowflakeResult *result);
extern SnowflakeResultKind snowflake_remote_run(const char *registry,
												const SnowflakeQuery *query,
												SnowflakeRow *row,
												SnowflakeResult *result);
extern void snowflake_remote_address(const char *registry,
									 char address[SNOWFLAKE_ADDRESS_SIZE]);

#endif							/* SNOWFLAKE_PROTOCOL_H */
