/*
 * protocol.c
 *	  The registry calls as statements, and their answers as results: the same
 *	  over SPI and libpq.
 *
 * A statement has one parameter, the call as a JSON object, and takes the
 * values of the answer out as texts.  doc/protocol.md has all keys.  Times are
 * microseconds since 1970 both ways, so that no setting of a session matters.
 * The functions themselves, and their rules, are in src/registry.sql.
 *
 * For the helper.  Allocates in the current memory context; raises errors
 * about values that no registry returns.
 */
#include "postgres.h"

#include <ctype.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/int.h"
#include "lib/stringinfo.h"
#include "postmaster/postmaster.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "clock.h"
#include "registry/protocol.h"
#include "shmem.h"

/* Grows only when safety depends on it. */
#define PROTOCOL	1

/* The years 1 to 9999, in microseconds since 1970. */
#define FIRST_TIME_US	(-62135596800 * USECS_PER_SEC)
#define PAST_TIME_US	(253402300800 * USECS_PER_SEC)

#define VALUE(key)		SNOWFLAKE_ANSWER_VALUE(key)
#define FROM(function)	" FROM snowflake." function "($1::pg_catalog.jsonb) AS r"

#define START_TEXT \
	"SELECT " VALUE("uses") ", " VALUE("uses_incarnation") ", " VALUE("starts_at") FROM("start_server")
/* The function: one for the own tables, one for nodes of other clusters. */
#define ACQUIRE_TEXT(function) \
	"SELECT " VALUE("token") ", " VALUE("incarnation") ", " VALUE("generation") ", " VALUE("clock") ", " \
	VALUE("node_number") ", " VALUE("starts_at") ", " VALUE("leased_until") ", " VALUE("answer") FROM(function)
#define RECORD_TEXT \
	"SELECT " VALUE("answer") FROM("record_uses")
#define RENEW_TEXT \
	"SELECT " VALUE("answer") ", " VALUE("leased_until") FROM("renew_lease")
#define RELEASE_TEXT \
	"SELECT " VALUE("answer") FROM("release_lease")

/*
 * Values
 */

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
read_number(const char *text, const char *what, int64 least, int64 most)
{
	const char *next = text;
	int64		number = 0;

	if (text == NULL || !snowflake_number_scan(&next, &number) ||
		*next != '\0' || number < least || number > most)
		refuse_value(text, what);
	return number;
}

static TimestampTz
read_time(const char *text, const char *what)
{
	return SNOWFLAKE_UNIX_EPOCH +
		read_number(text, what, FIRST_TIME_US, PAST_TIME_US - 1);
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
	if (text == NULL || !snowflake_is_uuid(text))
		refuse_value(text, what);
	return *DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(text)));
}

/* OK or NO, as the answer says. */
static SnowflakeResultKind
read_answer(const char *text)
{
	if (text != NULL && strcmp(text, "yes") == 0)
		return SNOWFLAKE_RESULT_OK;
	if (text == NULL || strcmp(text, "no") != 0)
		refuse_value(text, "answer");
	return SNOWFLAKE_RESULT_NO;
}

/*
 * The host name; what is not printable ASCII could not be stored in every
 * database.
 */
void
snowflake_host_name(char name[SNOWFLAKE_HOST_NAME_SIZE])
{
	memset(name, 0, SNOWFLAKE_HOST_NAME_SIZE);
	if (gethostname(name, SNOWFLAKE_HOST_NAME_SIZE - 1) != 0 || name[0] == '\0')
		strlcpy(name, "unknown", SNOWFLAKE_HOST_NAME_SIZE);
	snowflake_copy_printable(name, name, strlen(name), SNOWFLAKE_HOST_NAME_SIZE);
}

/*
 * Keys of a call
 */

static void
add_key(StringInfo json, const char *key)
{
	char		last = json->data[json->len - 1];

	appendStringInfo(json, "%s\"%s\":", last == '{' ? "" : ",", key);
}

static void
add_number(StringInfo json, const char *key, int64 number)
{
	add_key(json, key);
	appendStringInfo(json, INT64_FORMAT, number);
}

static void
add_boolean(StringInfo json, const char *key, bool value)
{
	add_key(json, key);
	appendStringInfoString(json, value ? "true" : "false");
}

static void
add_text(StringInfo json, const char *key, const char *text)
{
	add_key(json, key);
	escape_json(json, text);
}

static void
add_uuid(StringInfo json, const char *key, const pg_uuid_t *uuid)
{
	add_text(json, key,
			 DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(uuid))));
}

/* DT_NOBEGIN: left out, which is null. */
static void
add_time(StringInfo json, const char *key, TimestampTz at)
{
	if (!TIMESTAMP_IS_NOBEGIN(at))
		add_number(json, key, at - SNOWFLAKE_UNIX_EPOCH);
}

static void
add_uses(StringInfo json, const SnowflakeUsed *uses)
{
	if (uses->known)
		add_uuid(json, "uses", &uses->incarnation);
}

static void
add_host(StringInfo json)
{
	char		name[SNOWFLAKE_HOST_NAME_SIZE];

	snowflake_host_name(name);
	add_text(json, "host_name", name);
	add_number(json, "port", PostPortNumber);
}

static int
compare_places(const void *a, const void *b)
{
	const uint8 *const *one = a;
	const uint8 *const *other = b;

	return **one < **other ? 1 : -1;
}

/* The fields from high to low. */
static void
add_layout(StringInfo json, const SnowflakeLayout *layout)
{
	char		definition[SNOWFLAKE_DEFINITION_SIZE];
	const uint8 *places[SNOWFLAKE_NUM_FIELDS] = {NULL};
	int			num_fields = 0;

	snowflake_layout_define(layout, definition);
	add_key(json, "layout");
	appendStringInfoChar(json, '{');
	add_text(json, "definition", definition);
	add_time(json, "epoch", layout->epoch);
	add_number(json, "tick", layout->tick_us);
	for (int i = 0; i < SNOWFLAKE_NUM_FIELDS; i++)
		if (layout->bits[i] > 0)
			places[num_fields++] = &layout->shift[i];
	qsort(places, num_fields, sizeof(places[0]), compare_places);
	add_key(json, "fields");
	for (int i = 0; i < num_fields; i++)
	{
		SnowflakeField field = (SnowflakeField) (places[i] - layout->shift);

		appendStringInfo(json, "%s[\"%s\",%d]", i == 0 ? "[" : ",",
						 snowflake_field_name(field), layout->bits[field]);
	}
	appendStringInfoString(json, "]}");
}

/* What all calls of a node say. */
static void
add_node_call(StringInfo json, const SnowflakeCall *call)
{
	add_uuid(json, "start", &snowflake_shared->start);
	add_number(json, "call", (int64) call->number);
	add_layout(json, &call->layout);
	if (call->lease.granted_by == 0)
		return;
	add_key(json, "lease");
	appendStringInfoChar(json, '{');
	add_uuid(json, "token", &call->lease.token);
	add_number(json, "granted_by", (int64) call->lease.granted_by);
	add_time(json, "ids_end_at", call->lease.ids_end_at);
	appendStringInfoChar(json, '}');
}

/*
 * Calls
 */
static void
build_start(StringInfo json, const SnowflakeStartCall *start)
{
	add_time(json, "clock", start->clock);
	add_number(json, "max_ahead", start->max_ahead);
	add_number(json, "tick", start->tick);
}

static void
build_acquire(StringInfo json, const SnowflakeAcquireCall *acquire,
			  bool layout_set)
{
	add_text(json, "kind", "server");
	add_host(json);
	add_number(json, "system_identifier", (int64) GetSystemIdentifier());
	add_time(json, "launched_at", PgStartTime);
	add_number(json, "timeline", GetWALInsertionTimeLine());
	add_time(json, "clock", acquire->clock);
	add_number(json, "max_ahead", acquire->max_ahead);
	add_number(json, "tick", acquire->tick);
	add_number(json, "window", acquire->window);
	add_number(json, "first_number", (int64) acquire->first);
	add_number(json, "last_number", (int64) acquire->last);
	add_boolean(json, "fixed", acquire->fixed);
	add_boolean(json, "layout_set", layout_set);
	add_uses(json, &acquire->uses);
	add_time(json, "starts_at", acquire->starts_at);
	if (TIMESTAMP_IS_NOBEGIN(acquire->ids_end_at))
		return;
	add_key(json, "ended");
	appendStringInfoChar(json, '{');
	add_time(json, "ids_end_at", acquire->ids_end_at);
	add_uuid(json, "incarnation", &acquire->incarnation);
	add_number(json, "generation", acquire->generation);
	appendStringInfoChar(json, '}');
}

static void
build_record(StringInfo json, const SnowflakeRecordCall *record)
{
	add_uuid(json, "incarnation", &record->incarnation);
	add_uses(json, &record->uses);
	add_host(json);
}

static void
build_renew(StringInfo json, const SnowflakeRenewCall *renew)
{
	add_time(json, "clock", renew->clock);
	add_number(json, "window", renew->window);
}

/* The statement of a call. */
void
snowflake_query_build(const SnowflakeCall *call, SnowflakeQuery *query)
{
	StringInfoData json;

	memset(query, 0, sizeof(*query));
	query->max_size = SNOWFLAKE_RESULT_SIZE;
	query->last = call->last;
	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	add_number(&json, "protocol", PROTOCOL);
	switch (call->kind)
	{
		case SNOWFLAKE_CALL_NONE:
			break;				/* not a call */
		case SNOWFLAKE_CALL_START:
			query->text = START_TEXT;
			query->create = call->u.start.create;
			build_start(&json, &call->u.start);
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			query->text = call->registry[0] == '\0' ?
				ACQUIRE_TEXT("acquire_own_lease") : ACQUIRE_TEXT("acquire_lease");
			add_node_call(&json, call);
			build_acquire(&json, &call->u.acquire, call->layout_set);
			break;
		case SNOWFLAKE_CALL_RECORD:
			query->text = RECORD_TEXT;
			build_record(&json, &call->u.record);
			break;
		case SNOWFLAKE_CALL_RENEW:
			query->text = RENEW_TEXT;
			add_node_call(&json, call);
			build_renew(&json, &call->u.renew);
			break;
		case SNOWFLAKE_CALL_RELEASE:
			query->text = RELEASE_TEXT;
			add_node_call(&json, call);

			/*
			 * It makes leased_until exact: if that is lost, the one before
			 * stands, which is as safe.
			 */
			query->local_commit = true;
			break;
	}
	appendStringInfoChar(&json, '}');
	query->call = json.data;
}

/*
 * Answers
 */
static void
read_start(char *const *columns, SnowflakeStartResult *start)
{
	const char *uses = columns[0];

	if (uses != NULL && strcmp(uses, "nothing") == 0)
		start->uses = SNOWFLAKE_USES_NOTHING;
	else if (uses != NULL && strcmp(uses, "own") == 0)
		start->uses = SNOWFLAKE_USES_OWN;
	else if (uses != NULL && strcmp(uses, "another") == 0)
		start->uses = SNOWFLAKE_USES_ANOTHER;
	else
		refuse_value(uses, "uses");
	if (start->uses != SNOWFLAKE_USES_NOTHING)
		start->incarnation = read_uuid(columns[1], "uses_incarnation");
	start->starts_at = read_time(columns[2], "starts_at");
}

static void
read_acquire(char *const *columns, SnowflakeAcquireResult *acquire)
{
	acquire->token = read_uuid(columns[0], "token");
	acquire->incarnation = read_uuid(columns[1], "incarnation");
	acquire->generation =
		(int32) read_number(columns[2], "generation", 1, PG_INT32_MAX);
	acquire->clock = read_time(columns[3], "clock");
	acquire->node =
		(uint64) read_number(columns[4], "node_number", 0, PG_INT64_MAX);
	acquire->starts_at = read_time(columns[5], "starts_at");
	acquire->leased_until = read_time(columns[6], "leased_until");
	if (read_answer(columns[7]) != SNOWFLAKE_RESULT_OK)
		refuse_value(columns[7], "answer");
}

/* Understands the row that the statement of a call has returned. */
SnowflakeResultKind
snowflake_row_read(const SnowflakeCall *call, const SnowflakeRow *row,
				   SnowflakeResult *result)
{
	char	   *const *columns = row->columns;
	SnowflakeResultKind kind = SNOWFLAKE_RESULT_OK;

	switch (call->kind)
	{
		case SNOWFLAKE_CALL_NONE:
			break;
		case SNOWFLAKE_CALL_START:
			read_start(columns, &result->u.start);
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			read_acquire(columns, &result->u.acquire);
			break;
		case SNOWFLAKE_CALL_RENEW:
			kind = read_answer(columns[0]);
			if (kind == SNOWFLAKE_RESULT_OK)
				result->u.renew.leased_until =
					read_time(columns[1], "leased_until");
			break;
		case SNOWFLAKE_CALL_RECORD:
		case SNOWFLAKE_CALL_RELEASE:
			kind = read_answer(columns[0]);
			break;
	}
	return kind;
}

/*
 * Fills a result with an error; texts may be NULL, detail and hint also empty.
 * That a statement was cancelled since it waited for a lock would say nothing
 * to a backend.
 */
void
snowflake_result_error(SnowflakeResult *result, int sqlerrcode,
					   const char *message,
					   const char *detail, const char *hint)
{
	if (sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE &&
		(hint == NULL || hint[0] == '\0'))
	{
		message = "a table of the schema snowflake is locked";
		hint = "See what holds a lock on it, in pg_locks and pg_prepared_xacts of its server.";
	}
	result->kind = SNOWFLAKE_RESULT_FAILED;
	snowflake_problem_set(&result->problem, sqlerrcode,
						  message != NULL ? message : "unknown error", detail,
						  hint);
}
