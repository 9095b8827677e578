/*
 * protocol.c
 *	  The registry's functions in SQL: the same statements and the same rows
 *	  over SPI and libpq.
 *
 * Everything is text with explicit casts; times are ISO 8601 in UTC one way
 * and microseconds since 1970 the other, so that no setting of a session
 * matters.  The functions themselves, and their rules, are in
 * src/sql/lease.sql.
 *
 * For the helper.  Allocates in the current memory context; raises an error if
 * the timeline history of this server cannot be read.
 */
#include "postgres.h"

#include <ctype.h>
#include <unistd.h>

#include "access/timeline.h"
#include "access/xlog.h"
#include "common/int.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "registry/protocol.h"
#include "shmem.h"

#define FIRST_TIMELINE	1

/* The years 1 to 9999, in microseconds since 1970. */
#define FIRST_TIME_US	(-62135596800 * USECS_PER_SEC)
#define PAST_TIME_US	(253402300800 * USECS_PER_SEC)

#define MICROSECONDS(x) "(extract(epoch FROM " x ") * 1000000)::bigint::text"

#define START_TEXT \
	"SELECT uses, incarnation::text, " MICROSECONDS("starts_at") \
	" FROM snowflake.start_server(version => $1, timelines => $2::text[], node_clock => $3::timestamptz," \
	" max_ahead => $4::interval, tick => $5::interval, system_identifier => $6::bigint)"

/* The function: one for the own table, one for nodes of other clusters. */
#define ACQUIRE_TEXT(function) \
	"SELECT token::text, registry_incarnation::text, node_number::text, " \
	MICROSECONDS("starts_at") ", " MICROSECONDS("leased_until") ", " MICROSECONDS("registry_clock") \
	" FROM snowflake." function "(version => $1, start => $2::uuid, call => $3::bigint, own => $4::boolean," \
	" incarnation => $5::uuid, first_number => $6::bigint, last_number => $7::bigint, fixed => $8::boolean," \
	" layout => $9, layout_set => $10::boolean, tick => $11::interval, node_clock => $12::timestamptz," \
	" max_ahead => $13::interval, lease_window => $14::interval, host_name => $15, port => $16::integer," \
	" system_identifier => $17::bigint, timeline => $18::integer, timelines => $19::text[]," \
	" launched_at => $20::timestamptz, known_until => $21::timestamptz, known_incarnation => $22::uuid, node_floor => $23::timestamptz," \
	" previous_token => $24::uuid, previous_end => $25::timestamptz)"

#define RECORD_TEXT \
	"SELECT snowflake.record_uses(version => $1, incarnation => $2::uuid, change => $3::boolean)::text"

#define RENEW_TEXT \
	"SELECT " MICROSECONDS("snowflake.renew_lease(version => $1, start => $2::uuid, call => $3::bigint," \
	" token => $4::uuid, lease_until => $5::timestamptz, layout => $6, node_clock => $7::timestamptz)")

#define RELEASE_TEXT \
	"SELECT snowflake.release_lease(version => $1, start => $2::uuid, call => $3::bigint, token => $4::uuid," \
	" lease_end => $5::timestamptz)::text"

#define LIST_TEXT \
	"SELECT incarnation::text, " MICROSECONDS("starts_at") ", node_numbers::text," \
	" ARRAY(SELECT " MICROSECONDS("e.leased_until") " FROM unnest(ends) WITH ORDINALITY AS e (leased_until, nr) ORDER BY e.nr)::text," \
	" layouts::text, uses" \
	" FROM snowflake.list_ends(version => $1, max_ahead => $2::interval, tick => $3::interval)"

#define HAND_OVER_TEXT \
	"SELECT registry_incarnation::text FROM snowflake.hand_over(version => $1, own => $2::boolean," \
	" incarnation => $3::uuid, starts_at => $4::timestamptz, node_numbers => $5::bigint[]," \
	" ends => $6::timestamptz[], layouts => $7::text[], start => $8::uuid, call => $9::bigint," \
	" host_name => $10, port => $11::integer, system_identifier => $12::bigint," \
	" timeline => $13::integer, launched_at => $14::timestamptz)"

#define LIST_LEASES_TEXT \
	"SELECT incarnation::text, used::text, next_number::text, node_numbers::text, launched::text, starts::text," \
	" ends::text FROM snowflake.list_leases(version => $1, first_number => $2::bigint)"

static char *
uuid_text(const pg_uuid_t *uuid)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(uuid)));
}

/* Raises an error about a value that a function of the registry returned. */
static void
refuse_value(const char *text, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("the answer of the registry is not valid"),
			 text != NULL ? errdetail("It has \"%.64s\" for %s.", text, what) :
			 errdetail("It has NULL for %s.", what),
			 errhint(SNOWFLAKE_ANSWER_HINT)));
}

/*
 * Reads a whole number at the start of a text, and goes on to what follows it;
 * false if there is none, or it has more than 64 bits.
 */
bool
snowflake_number_scan(const char **text, int64 *number)
{
	bool		negative = **text == '-';
	const char *digits = *text + (negative ? 1 : 0);
	const char *next = digits;

	*number = 0;
	for (; *next >= '0' && *next <= '9'; next++)
	{
		int64		digit = *next - '0';

		if (pg_mul_s64_overflow(*number, 10, number) ||
			pg_add_s64_overflow(*number, negative ? -digit : digit, number))
			return false;
	}
	*text = next;
	return next > digits;
}

/* Whether a time that a registry sent is in the years 1 to 9999. */
bool
snowflake_time_is_usable(int64 since_1970)
{
	return since_1970 >= FIRST_TIME_US && since_1970 < PAST_TIME_US;
}

static int64
read_number(const char *text, const char *what)
{
	const char *next = text;
	int64		number;

	if (text == NULL || !snowflake_number_scan(&next, &number) || *next != '\0')
		refuse_value(text, what);
	return number;
}

/* NULL, or a uuid as uuid_out() writes it: 8-4-4-4-12 digits. */
bool
snowflake_is_uuid(const char *text)
{
	bool		valid = text == NULL || strlen(text) == 36;

	for (int i = 0; text != NULL && valid && i < 36; i++)
		valid = i == 8 || i == 13 || i == 18 || i == 23 ? text[i] == '-' :
			isxdigit((unsigned char) text[i]) != 0;
	return valid;
}

static pg_uuid_t
read_uuid(const char *text, const char *what)
{
	if (!snowflake_is_uuid(text))
		refuse_value(text, what);
	return *DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(text)));
}

/* Whether the text that a registry has sent is this incarnation. */
bool
snowflake_is_incarnation(const pg_uuid_t *incarnation, const char *text)
{
	return text != NULL && strcmp(uuid_text(incarnation), text) == 0;
}

static char *
time_text(TimestampTz at)
{
	struct pg_tm tm;
	fsec_t		fsec;

	if (TIMESTAMP_IS_NOBEGIN(at))
		return pstrdup("-infinity");
	if (timestamp2tm(at, NULL, &tm, &fsec, NULL, NULL) != 0)
		elog(ERROR, "timestamp out of range: " INT64_FORMAT, at);	/* GCOV_EXCL_LINE */
	return psprintf("%04d-%02d-%02d %02d:%02d:%02d.%06d+00%s",
					tm.tm_year > 0 ? tm.tm_year : 1 - tm.tm_year, tm.tm_mon,
					tm.tm_mday,
					tm.tm_hour, tm.tm_min, tm.tm_sec, (int) fsec,
					tm.tm_year > 0 ? "" : " BC");
}

static TimestampTz
read_time(const char *text, const char *what)
{
	int64		since_1970 = read_number(text, what);

	if (!snowflake_time_is_usable(since_1970))
		refuse_value(text, what);
	return SNOWFLAKE_UNIX_EPOCH + since_1970;
}

static char *
span_text(int64 microseconds)
{
	return psprintf(INT64_FORMAT ".%06d seconds", microseconds / USECS_PER_SEC,
					(int) (microseconds % USECS_PER_SEC));
}

static char *
number_text(int64 number)
{
	return psprintf(INT64_FORMAT, number);
}

static const char *
boolean_text(bool value)
{
	return value ? "true" : "false";
}

/*
 * The host name; what is not printable ASCII could not be stored in every
 * database.
 */
void
snowflake_host_name(char name[SNOWFLAKE_HOST_NAME_SIZE])
{
	memset(name, 0, SNOWFLAKE_HOST_NAME_SIZE);
	if (gethostname(name, SNOWFLAKE_HOST_NAME_SIZE - 1) != 0)
		strlcpy(name, "unknown", SNOWFLAKE_HOST_NAME_SIZE);
	snowflake_copy_printable(name, name, strlen(name), SNOWFLAKE_HOST_NAME_SIZE);
}

static char *
host_text(void)
{
	char		name[SNOWFLAKE_HOST_NAME_SIZE];

	snowflake_host_name(name);
	return pstrdup(name);
}

/*
 * The promotions of this server's history, as timeline/switch point, an array.
 * Raises an error if the history file is not there: what it does not tell
 * would count as no promotion.
 */
static char *
timelines_text(void)
{
	TimeLineID	now = GetWALInsertionTimeLine();
	List	   *history = readTimeLineHistory(now);
	StringInfoData text;
	ListCell   *cell;

	if (now != FIRST_TIMELINE && list_length(history) < 2)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not find the history of timeline %u", now),
				 errdetail("The file \"pg_wal/%08X.history\" does not exist. It tells how often this cluster was promoted, which keeps the numbers of two primaries apart.",
						   now),
				 errhint("Put it back from the WAL archive or the former primary.")));
	initStringInfo(&text);
	appendStringInfoChar(&text, '{');
	foreach(cell, history)
	{
		TimeLineHistoryEntry *entry = lfirst(cell);

		if (entry->tli != now)
			appendStringInfo(&text, "%s%u/%X/%X", text.len > 1 ? "," : "",
							 entry->tli,
							 LSN_FORMAT_ARGS(entry->end));
	}
	appendStringInfoChar(&text, '}');
	return text.data;
}

static void
begin_query(SnowflakeQuery *query, const char *text)
{
	memset(query, 0, sizeof(*query));
	query->text = text;
	query->max_size = SNOWFLAKE_RESULT_SIZE;
	query->parameters[query->num_parameters++] = SNOWFLAKE_VERSION;
}

static void
add(SnowflakeQuery *query, const char *parameter)
{
	query->parameters[query->num_parameters++] = parameter;
}

/* This start of the server, and the number of the call. */
static void
add_start(SnowflakeQuery *query, const SnowflakeCall *call)
{
	add(query, uuid_text(&snowflake_shared->start));
	add(query, number_text((int64) call->number));
}

static void
build_start(const SnowflakeCall *call, SnowflakeQuery *query)
{
	begin_query(query, START_TEXT);
	add(query, timelines_text());
	add(query, time_text(call->clock));
	add(query, span_text(call->max_ahead));
	add(query, span_text(call->tick));
	add(query, number_text((int64) GetSystemIdentifier()));
}

static void
build_acquire(const SnowflakeCall *call, SnowflakeQuery *query)
{
	bool		own = call->registry[0] == '\0';

	begin_query(query, own ? ACQUIRE_TEXT("grant_lease") : ACQUIRE_TEXT("acquire_lease"));
	add_start(query, call);
	add(query, boolean_text(own));
	add(query, call->has_incarnation ? uuid_text(&call->incarnation) : NULL);
	add(query, number_text((int64) call->first));
	add(query, number_text((int64) call->last_number));
	add(query, boolean_text(call->fixed));
	add(query, call->layout);
	add(query, boolean_text(call->layout_set));
	add(query, span_text(call->tick));
	add(query, time_text(call->clock));
	add(query, span_text(call->max_ahead));
	add(query, span_text(call->window));
	add(query, host_text());
	add(query, number_text(PostPortNumber));
	add(query, number_text((int64) GetSystemIdentifier()));
	add(query, number_text(GetWALInsertionTimeLine()));
	add(query, own ? timelines_text() : NULL);
	add(query, time_text(PgStartTime));
	add(query,
		TIMESTAMP_IS_NOBEGIN(call->known_until) ? NULL :
		time_text(call->known_until));
	add(query, call->old_known ? uuid_text(&call->known_incarnation) : NULL);
	add(query,
		TIMESTAMP_IS_NOBEGIN(call->floor) ? NULL : time_text(call->floor));
	add(query, call->has_lease ? uuid_text(&call->token) : NULL);
	add(query, call->has_lease ? time_text(call->end) : NULL);
}

/*
 * That the registry of an incarnation is used; NULL: the own table.  Only a
 * change replaces another record.
 */
void
snowflake_query_record(const char *incarnation, bool change,
					   SnowflakeQuery *query)
{
	begin_query(query, RECORD_TEXT);
	add(query, incarnation);
	add(query, boolean_text(change));
}

/* The statement of a call that is one transaction: all but CHANGE. */
void
snowflake_query_build(const SnowflakeCall *call, SnowflakeQuery *query)
{
	switch (call->kind)
	{
		case SNOWFLAKE_CALL_START:
			build_start(call, query);
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			build_acquire(call, query);
			break;
		case SNOWFLAKE_CALL_RECORD:
			snowflake_query_record(uuid_text(&call->incarnation), false,
								   query);
			break;
		case SNOWFLAKE_CALL_RENEW:
			begin_query(query, RENEW_TEXT);
			add_start(query, call);
			add(query, uuid_text(&call->token));
			add(query, time_text(call->end));
			add(query, call->layout);
			add(query, time_text(call->clock));
			break;
		default:
			begin_query(query, RELEASE_TEXT);
			add_start(query, call);
			add(query, uuid_text(&call->token));
			add(query, time_text(call->end));

			/*
			 * It makes leased_until exact: if that is lost, the one before
			 * stands, which is as safe.
			 */
			query->local_commit = true;
			break;
	}
	query->create = call->create;
	query->last = call->last;
}

/* What a change of registry hands over; see snowflake_query_hand_over(). */
void
snowflake_query_list_ends(const SnowflakeCall *call, SnowflakeQuery *query)
{
	begin_query(query, LIST_TEXT);
	query->max_size = SNOWFLAKE_PAGE_SIZE;
	add(query, span_text(call->max_ahead));
	add(query, span_text(call->tick));
}

/* This server, and the next number of the call. */
static void
add_server(SnowflakeQuery *query, SnowflakeCall *call)
{
	call->number++;
	add_start(query, call);
	add(query, host_text());
	add(query, number_text(PostPortNumber));
	add(query, number_text((int64) GetSystemIdentifier()));
	add(query, number_text(GetWALInsertionTimeLine()));
	add(query, time_text(PgStartTime));
}

/* An array of microseconds since 1970, as an array of times. */
static char *
times_text(const char *microseconds)
{
	StringInfoData text;
	const char *next = microseconds + 1;	/* after the brace */

	initStringInfo(&text);
	appendStringInfoChar(&text, '{');
	while (*next != '}')
	{
		int64		since_1970;

		if (!snowflake_number_scan(&next, &since_1970) ||
			(*next != ',' && *next != '}') ||
			!snowflake_time_is_usable(since_1970))
			elog(ERROR, "snowflake.list_ends() returned an end that is no time");
		appendStringInfo(&text, "%s\"%s\"", text.len > 1 ? "," : "",
						 time_text(SNOWFLAKE_UNIX_EPOCH + since_1970));
		if (*next == ',')
			next++;
	}
	appendStringInfoChar(&text, '}');
	return text.data;
}

/* Hands over what snowflake_query_list_ends() returned. */
void
snowflake_query_hand_over(SnowflakeCall *call, const SnowflakeRow *ends,
						  SnowflakeQuery *query)
{
	char	   *const *columns = ends->columns;

	for (int i = 0; i < 5; i++)
		if (columns[i] == NULL)
			elog(ERROR, "snowflake.list_ends() returned NULL");
	if (columns[3][0] != '{')
		elog(ERROR, "snowflake.list_ends() returned ends that are no array");
	begin_query(query, HAND_OVER_TEXT);
	add(query, boolean_text(call->registry[0] == '\0'));
	add(query, columns[0]);
	add(query, time_text(read_time(columns[1], "starts_at")));
	add(query, columns[2]);
	add(query, times_text(columns[3]));
	add(query, columns[4]);
	add_server(query, call);
}

/* Hands over the lease that a change of registry has ended. */
void
snowflake_query_hand_over_lease(SnowflakeCall *call, SnowflakeQuery *query)
{
	begin_query(query, HAND_OVER_TEXT);
	add(query, boolean_text(call->registry[0] == '\0'));
	add(query, uuid_text(&call->incarnation));
	add(query, NULL);
	add(query, psprintf("{" UINT64_FORMAT "}", call->node));
	add(query, psprintf("{\"%s\"}", time_text(call->end)));
	add(query, psprintf("{\"%s\"}", call->layout));
	add_server(query, call);
}

/* What snowflake_audit() reads: the leases of the numbers from a first one up. */
void
snowflake_query_list_leases(const char *first_number, SnowflakeQuery *query)
{
	begin_query(query, LIST_LEASES_TEXT);
	query->max_size = SNOWFLAKE_PAGE_SIZE;
	add(query, first_number);
}

/* Understands the row that the statement of a call has returned. */
SnowflakeResultKind
snowflake_row_read(const SnowflakeCall *call, const SnowflakeRow *row,
				   SnowflakeResult *result)
{
	char	   *const *columns = row->columns;

	switch (call->kind)
	{
		case SNOWFLAKE_CALL_START:
			result->uses = columns[0] == NULL ? SNOWFLAKE_USES_NOTHING :
				strcmp(columns[0], "own") == 0 ? SNOWFLAKE_USES_OWN :
				SNOWFLAKE_USES_ANOTHER;
			if (columns[1] != NULL)
				result->incarnation = read_uuid(columns[1], "incarnation");
			result->starts_at = columns[2] == NULL ? DT_NOBEGIN :
				read_time(columns[2], "starts_at");
			return SNOWFLAKE_RESULT_OK;
		case SNOWFLAKE_CALL_ACQUIRE:
			for (int i = 0; i < 6; i++)
				if (columns[i] == NULL)
					elog(ERROR, "snowflake.acquire_lease() returned NULL");
			result->token = read_uuid(columns[0], "token");
			result->incarnation = read_uuid(columns[1], "registry_incarnation");
			result->node = (uint64) read_number(columns[2], "node_number");
			result->starts_at = read_time(columns[3], "starts_at");
			result->leased_until = read_time(columns[4], "leased_until");
			result->registry_clock = read_time(columns[5], "registry_clock");
			if ((int64) result->node < 0)
				refuse_value(columns[2], "node_number");
			return SNOWFLAKE_RESULT_OK;
		case SNOWFLAKE_CALL_RENEW:
			if (columns[0] == NULL)
				return SNOWFLAKE_RESULT_CLOSED;
			result->leased_until = read_time(columns[0], "leased_until");
			return SNOWFLAKE_RESULT_OK;
		case SNOWFLAKE_CALL_RELEASE:
			return columns[0] != NULL && strcmp(columns[0], "true") == 0 ?
				SNOWFLAKE_RESULT_OK : SNOWFLAKE_RESULT_CLOSED;
		default:
			return SNOWFLAKE_RESULT_OK;
	}
}

/*
 * Fills a result with the error that a registry sent more than it may.  Nothing
 * of it is used.
 */
void
snowflake_result_too_long(SnowflakeResult *result, const SnowflakeQuery *query)
{
	char		message[256];

	snprintf(message, sizeof(message),
			 "the answer of the registry is longer than %d kB",
			 query->max_size / 1024);
	snowflake_result_error(result, ERRCODE_LOCK_NOT_AVAILABLE, message,
						   psprintf("The registry is %s.", result->address),
						   SNOWFLAKE_ANSWER_HINT);
	result->problem.has_address = true;
}

/*
 * Fills a result with an error; texts may be NULL.  That a statement was
 * cancelled since it waited for a lock would say nothing to a backend.
 */
void
snowflake_result_error(SnowflakeResult *result, int sqlerrcode,
					   const char *message,
					   const char *detail, const char *hint)
{
	if (sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && hint == NULL)
	{
		message = "a table of the schema snowflake is locked";
		hint = "See what holds a lock on it, in pg_locks and pg_prepared_xacts of its server.";
	}
	result->kind = SNOWFLAKE_RESULT_FAILED;
	snowflake_problem_set(&result->problem, sqlerrcode,
						  message != NULL ? message : "unknown error", detail,
						  hint);
}
