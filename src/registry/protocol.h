/*
 * protocol.h
 *	  The calls of the registry's functions, and their results.
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

typedef enum SnowflakeCallKind
{
	SNOWFLAKE_CALL_NONE,
	SNOWFLAKE_CALL_START,		/* count this start in the own table */
	SNOWFLAKE_CALL_ACQUIRE,		/* a lease */
	SNOWFLAKE_CALL_RECORD,		/* note in the own table which registry the
								 * lease is from */
	SNOWFLAKE_CALL_RENEW,		/* a later leased_until */
	SNOWFLAKE_CALL_RELEASE,		/* close the lease at its true end */
	SNOWFLAKE_CALL_CHANGE		/* snowflake_change_registry() */
} SnowflakeCallKind;

/* CHANGE calls several functions: so many numbers from its own on are its. */
#define SNOWFLAKE_CHANGE_CALLS	4

typedef struct SnowflakeCall
{
	SnowflakeCallKind kind;
	uint64		number;			/* of this start's calls */
	char		registry[SNOWFLAKE_REGISTRY_SIZE];	/* connection string;
													 * empty: the own table */
	bool		create;			/* START, CHANGE: create the extension if it
								 * is missing */
	bool		last;			/* the server is stopping: be quick */
	char		layout[SNOWFLAKE_DEFINITION_SIZE];	/* the server's default
													 * one, canonical */
	bool		layout_set;		/* somebody has set it */

	/*
	 * The lease that the server has, or had: RENEW and RELEASE are about it,
	 * ACQUIRE and CHANGE say that it is over.
	 */
	bool		has_lease;
	pg_uuid_t	token;
	uint64		node;			/* CHANGE */
	TimestampTz end;			/* all its ids end at or before; RENEW: the
								 * leased_until that is wanted */

	/* ACQUIRE, CHANGE, START */
	bool		has_incarnation;
	pg_uuid_t	incarnation;	/* the registry must be this one; RECORD: it
								 * is */
	uint64		first;			/* the numbers to choose from */
	uint64		last_number;
	bool		fixed;			/* all of them are this server's */
	TimestampTz clock;			/* of this node */
	int64		max_ahead;
	int64		tick;			/* the longest of the layouts in use */
	int64		window;			/* of the lease */
	TimestampTz known_until;	/* no id of this start ends later */
	pg_uuid_t	known_incarnation;	/* of the last lease's registry, if
									 * old_known */
	TimestampTz floor;			/* no id that the registry of the last lease
								 * does not know of ends later */
	char		old_registry[SNOWFLAKE_REGISTRY_SIZE];	/* CHANGE: where the
														 * last lease is from */
	bool		old_known;		/* this start had a lease from there */
} SnowflakeCall;

typedef enum SnowflakeResultKind
{
	SNOWFLAKE_RESULT_FAILED,	/* see the problem */
	SNOWFLAKE_RESULT_OK,
	SNOWFLAKE_RESULT_CLOSED,	/* RENEW, RELEASE: the lease is closed */
	SNOWFLAKE_RESULT_MISSING	/* own table: the extension is not there */
} SnowflakeResultKind;

/* What a cluster's own table says of where its numbers come from. */
typedef enum SnowflakeUses
{
	SNOWFLAKE_USES_NOTHING,		/* it has had no lease yet */
	SNOWFLAKE_USES_OWN,
	SNOWFLAKE_USES_ANOTHER		/* the registry of this incarnation */
} SnowflakeUses;

typedef struct SnowflakeResult
{
	SnowflakeResultKind kind;
	SnowflakeUses uses;			/* START */
	pg_uuid_t	incarnation;	/* START: that is used; ACQUIRE: of the
								 * registry */
	pg_uuid_t	token;			/* ACQUIRE, as the next three */
	uint64		node;
	TimestampTz starts_at;		/* START: that all leases of the own table
								 * start at or after */
	TimestampTz registry_clock;
	TimestampTz leased_until;	/* ACQUIRE, RENEW */
	char		address[SNOWFLAKE_ADDRESS_SIZE];	/* where that was */
	char		notice[256];	/* CHANGE: what could not be handed over */
	SnowflakeProblem problem;
} SnowflakeResult;

/* What a registry may send: a result, a page of leases or ends. */
#define SNOWFLAKE_RESULT_SIZE		(64 * 1024)
#define SNOWFLAKE_PAGE_SIZE			(4 * 1024 * 1024)

/* An answer is not what the functions of the protocol return. */
#define SNOWFLAKE_ANSWER_HINT \
	"See which server answers there, and whether somebody has changed the functions in its schema snowflake."

/* The statement of one transaction. */
#define SNOWFLAKE_QUERY_PARAMETERS	25
#define SNOWFLAKE_QUERY_COLUMNS		7

typedef struct SnowflakeQuery
{
	const char *text;
	int			num_parameters;
	const char *parameters[SNOWFLAKE_QUERY_PARAMETERS]; /* all text; NULL: null */
	int			max_size;		/* bytes of the result; more is refused */
	bool		create;			/* own table: create the extension */
	bool		last;			/* be quick */
	bool		local_commit;	/* need not wait for a standby */
} SnowflakeQuery;

/* What a statement returned: one row, of texts. */
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
extern void snowflake_query_list_ends(const SnowflakeCall *call,
									  SnowflakeQuery *query);
extern void snowflake_query_hand_over(SnowflakeCall *call,
									  const SnowflakeRow *ends,
									  SnowflakeQuery *query);
extern void snowflake_query_hand_over_lease(SnowflakeCall *call,
											SnowflakeQuery *query);
extern bool snowflake_is_incarnation(const pg_uuid_t *incarnation,
									 const char *text);
extern void snowflake_query_record(const char *incarnation, bool change,
								   SnowflakeQuery *query);
extern void snowflake_query_list_leases(const char *first_number,
										SnowflakeQuery *query);
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
