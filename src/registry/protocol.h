/*
 * protocol.h
 *	  The registry calls and their results: doc/protocol.md in C.
 *
 * A call is one transaction in the database postgres of this cluster (over
 * SPI) or of the cluster that snowflake.registry names (over libpq).  When its
 * result is not FAILED, what it did is durable: committed, and replicated
 * where that server waits for a standby.  A call that failed may have been
 * carried out all the same, or may be later.
 *
 * Each call of a server's start has a number of its own, greater than those
 * before; the registry refuses a call that comes after a later one.
 *
 * Times are TimestampTz, spans microseconds.
 */
#ifndef SNOWFLAKE_PROTOCOL_H
#define SNOWFLAKE_PROTOCOL_H

#include "utils/uuid.h"

#include "error.h"
#include "guc.h"
#include "layout/layout.h"
#include "shmem.h"

/* START and RECORD go to the own tables, the others to a registry. */
typedef enum SnowflakeCallKind
{
	SNOWFLAKE_CALL_NONE,
	SNOWFLAKE_CALL_START,		/* count this start in the own tables */
	SNOWFLAKE_CALL_ACQUIRE,		/* a lease */
	SNOWFLAKE_CALL_RECORD,		/* note in the own tables which registry the
								 * lease is from */
	SNOWFLAKE_CALL_RENEW,		/* a later leased_until */
	SNOWFLAKE_CALL_RELEASE		/* close the lease at its true end */
} SnowflakeCallKind;

/* The lease that a call names: the newest one that the node has opened. */
typedef struct SnowflakeNamedLease
{
	pg_uuid_t	token;
	uint64		granted_by;		/* number of the call; 0: no lease is named */
	TimestampTz ids_end_at;		/* DT_NOBEGIN: its words are not sealed */
} SnowflakeNamedLease;

/* The registry that a cluster uses, as its own tables record it. */
typedef struct SnowflakeUsed
{
	bool		known;			/* it has used one */
	pg_uuid_t	incarnation;
} SnowflakeUsed;

typedef struct SnowflakeStartCall
{
	TimestampTz clock;			/* of this node */
	int64		max_ahead;
	int64		tick;			/* the longest of the layouts in use */
	bool		create;			/* create the extension if it is missing */
} SnowflakeStartCall;

typedef struct SnowflakeAcquireCall
{
	TimestampTz clock;
	int64		max_ahead;
	int64		tick;
	int64		window;			/* of the lease */
	uint64		first;			/* the numbers to choose from */
	uint64		last;
	bool		fixed;			/* all of them are this server's */
	SnowflakeUsed uses;
	TimestampTz ids_end_at;		/* of this start's leases that are over;
								 * DT_NOBEGIN: it has issued none */
	pg_uuid_t	incarnation;	/* if it has, the registry of the last lease */
	int32		generation;		/* and its generation then */
	TimestampTz starts_at;		/* the lease starts at or after it;
								 * DT_NOBEGIN: whenever */
} SnowflakeAcquireCall;

typedef struct SnowflakeRecordCall
{
	pg_uuid_t	incarnation;	/* of the registry that has granted */
	SnowflakeUsed uses;			/* what that was told */
} SnowflakeRecordCall;

typedef struct SnowflakeRenewCall
{
	TimestampTz clock;
	int64		window;
} SnowflakeRenewCall;

typedef struct SnowflakeCall
{
	SnowflakeCallKind kind;
	uint64		number;			/* of this start's calls */
	char		registry[SNOWFLAKE_REGISTRY_SIZE];	/* connection string;
													 * empty: the own tables */
	bool		last;			/* the server is stopping: be quick */
	SnowflakeLayout layout;		/* the server's default one */
	bool		layout_set;		/* somebody has set it */
	SnowflakeNamedLease lease;
	union						/* by the kind; RELEASE has nothing more */
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
	SNOWFLAKE_RESULT_NO,		/* RENEW: another lease is to be asked for;
								 * RELEASE: there was nothing to close;
								 * RECORD: the own tables name another
								 * registry than START did */
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
	pg_uuid_t	incarnation;	/* that is used; own: of the own tables */
	TimestampTz starts_at;		/* no id of tables before these ends later */
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
} SnowflakeAcquireResult;

typedef struct SnowflakeRenewResult
{
	TimestampTz leased_until;
} SnowflakeRenewResult;

typedef struct SnowflakeResult
{
	SnowflakeResultKind kind;
	char		address[SNOWFLAKE_ADDRESS_SIZE];	/* where that was */
	SnowflakeProblem problem;	/* FAILED */
	union						/* OK; by the kind of the call */
	{
		SnowflakeStartResult start;
		SnowflakeAcquireResult acquire;
		SnowflakeRenewResult renew;
	}			u;
} SnowflakeResult;

/* What a registry may send: a result, or a page of leases. */
#define SNOWFLAKE_RESULT_SIZE		(64 * 1024)
#define SNOWFLAKE_PAGE_SIZE			(4 * 1024 * 1024)

/* An answer is not what the functions of the protocol return. */
#define SNOWFLAKE_ANSWER_HINT \
	"See which server answers there, and whether somebody has changed the functions in its schema snowflake."

/* The statement of one transaction. */
typedef struct SnowflakeQuery
{
	const char *text;			/* with the parameter $1: the call */
	const char *call;			/* a JSON object */
	int			max_size;		/* bytes of the result; more is refused */
	bool		create;			/* own tables: create the extension */
	bool		last;			/* be quick */
	bool		local_commit;	/* need not wait for a standby */
} SnowflakeQuery;

/* What a statement returned: one row, of texts. */
#define SNOWFLAKE_QUERY_COLUMNS		9

typedef struct SnowflakeRow
{
	char	   *columns[SNOWFLAKE_QUERY_COLUMNS];	/* NULL: null */
} SnowflakeRow;

/* A value of an answer, as text. */
#define SNOWFLAKE_ANSWER_VALUE(key) "r OPERATOR(pg_catalog.->>) '" key "'"

/* RFC 1035: 255 octets; Linux: 64 */
#define SNOWFLAKE_HOST_NAME_SIZE	256

extern void snowflake_host_name(char name[SNOWFLAKE_HOST_NAME_SIZE]);
extern void snowflake_query_build(const SnowflakeCall *call,
								  SnowflakeQuery *query);
extern SnowflakeResultKind snowflake_row_read(const SnowflakeCall *call,
											  const SnowflakeRow *row,
											  SnowflakeResult *result);
extern bool snowflake_is_uuid(const char *text);
extern bool snowflake_number_scan(const char **text, int64 *number);
extern bool snowflake_time_is_usable(int64 since_1970);
extern void snowflake_result_too_long(SnowflakeResult *result,
									  const SnowflakeQuery *query);
extern void snowflake_result_error(SnowflakeResult *result, int sqlerrcode,
								   const char *message,
								   const char *detail, const char *hint);

/*
 * The transports: each runs one transaction in a process that is there for
 * that, and fills the row, allocated in the current memory context.  OK,
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
