/*
 * protocol.c
 *	  The registry calls as statements, and their answers as results: the same
 *	  over SPI and libpq.
 *
 * A statement has one parameter, the call as a JSON object, and takes the
 * values of the answer out as texts.  doc/protocol.md has all keys.  Times are
 * microseconds since 1970 both ways, so that no setting of a session matters.
 * The functions themselves, and their rules, are in src/sql/registry.
 *
 * For the helper.  Allocates in the current memory context; raises errors
 * about values that no registry returns.
 */
#include "postgres.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
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

#define MARK_SIZE	64

#define VALUE(key)		"r OPERATOR(pg_catalog.->>) '" key "'"
#define FROM(function)	" FROM snowflake." function "($1::pg_catalog.jsonb) AS r"

/* The first columns of all: REASON is of NO, those after it are of REFUSED. */
enum
{
	ANSWER, ANSWER_INCARNATION, ANSWER_GENERATION, ANSWER_REASON, ANSWER_SQLSTATE, ANSWER_MESSAGE, ANSWER_DETAIL, ANSWER_HINT, ANSWER_WAIT, FIRST_VALUE
};

#define ANSWER_TEXT \
	"SELECT " VALUE("answer") ", " VALUE("incarnation") ", " VALUE("generation") ", " VALUE("reason") ", " \
	VALUE("sqlstate") ", " VALUE("message") ", " VALUE("detail") ", " \
	VALUE("hint") ", " VALUE("wait")
#define LOOK_TEXT \
	ANSWER_TEXT FROM("check_promotion")
#define START_TEXT \
	ANSWER_TEXT ", " VALUE("uses") ", " VALUE("uses_incarnation") ", " VALUE("starts_at") FROM("start_server")
/* The function: one for the own tables, one for nodes of other clusters. */
#define ACQUIRE_TEXT(function) \
	ANSWER_TEXT ", " VALUE("token") ", " VALUE("clock") ", " VALUE("node_number") ", " VALUE("starts_at") ", " \
	VALUE("leased_until") ", " VALUE("cluster_ids_end_at") FROM(function)
#define RECORD_TEXT \
	ANSWER_TEXT FROM("record_uses")
#define RENEW_TEXT \
	ANSWER_TEXT ", " VALUE("leased_until") FROM("renew_lease")
#define RELEASE_TEXT \
	ANSWER_TEXT FROM("release_lease")

/*
 * Values
 */

static void refuse_value(const char *text, const char *what) pg_attribute_noreturn();

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

/* A whole number, and nothing else: strtoi64() would take blanks and a plus, too. */
static int64
read_number(const char *text, const char *what, int64 least, int64 most)
{
	char	   *end;
	int64		number;

	if (text == NULL || text[strspn(text, "-0123456789")] != '\0')
		refuse_value(text, what);
	errno = 0;
	number = strtoi64(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' ||
		number < least || number > most)
		refuse_value(text, what);
	return number;
}

static TimestampTz
read_time(const char *text, const char *what)
{
	return SNOWFLAKE_UNIX_EPOCH +
		read_number(text, what, FIRST_TIME_US, PAST_TIME_US - 1);
}

/* As uuid_out() writes it: 8-4-4-4-12 digits. */
static pg_uuid_t
read_uuid(const char *text, const char *what)
{
	bool		valid = text != NULL && strlen(text) == 36;

	for (int i = 0; valid && i < 36; i++)
		valid = i == 8 || i == 13 || i == 18 || i == 23 ? text[i] == '-' :
			isxdigit((unsigned char) text[i]) != 0;
	if (!valid)
		refuse_value(text, what);
	return *DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(text)));
}

/*
 * Why the registry grants, renews or releases nothing, in its own words; the
 * node asks again after its wait.
 */
static void
read_refusal(char *const *columns, SnowflakeResult *result)
{
	const char *state = columns[ANSWER_SQLSTATE];
	int			sqlerrcode = 0;

	if (snowflake_is_sqlstate(state))
		sqlerrcode = MAKE_SQLSTATE(state[0], state[1], state[2], state[3],
								   state[4]);
	else
		refuse_value(state, "sqlstate");
	if (columns[ANSWER_MESSAGE] == NULL)
		refuse_value(NULL, "message");
	snowflake_problem_set(&result->problem, sqlerrcode,
						  columns[ANSWER_MESSAGE], columns[ANSWER_DETAIL],
						  columns[ANSWER_HINT]);
	result->wait = read_number(columns[ANSWER_WAIT], "wait", 0, SNOWFLAKE_LONGEST_REFUSAL_US);
}

/* OK, NO or REFUSED, as the answer says. */
static SnowflakeResultKind
read_answer(char *const *columns, SnowflakeResult *result)
{
	const char *text = columns[ANSWER];

	result->incarnation = read_uuid(columns[ANSWER_INCARNATION], "incarnation");
	result->generation = (int32) read_number(columns[ANSWER_GENERATION], "generation", 1, PG_INT32_MAX);
	if (text != NULL && strcmp(text, "yes") == 0)
		return SNOWFLAKE_RESULT_OK;
	if (text != NULL && strcmp(text, "no") == 0)
	{
		const char *reason = columns[ANSWER_REASON];

		result->rolled_back = reason != NULL && strcmp(reason, "rolled back") == 0;
		return SNOWFLAKE_RESULT_NO;
	}
	if (text == NULL || strcmp(text, "refused") != 0)
		refuse_value(text, "answer");
	read_refusal(columns, result);
	return SNOWFLAKE_RESULT_REFUSED;
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
 * What tells this data directory from a copy of it: when PG_VERSION, which is
 * never written again, was born, and its inode; not the device, which can
 * change with the next mount.  False where the system does not say.
 */
static bool
look_at_mark(char mark[MARK_SIZE])
{
#ifdef STATX_BTIME
	struct statx st;

	if (statx(AT_FDCWD, "PG_VERSION", 0, STATX_INO | STATX_BTIME, &st) == 0 &&
		(st.stx_mask & STATX_BTIME) != 0 && (st.stx_mask & STATX_INO) != 0)
	{
		snprintf(mark, MARK_SIZE, UINT64_FORMAT " " INT64_FORMAT ".%09u",
				 (uint64) st.stx_ino, (int64) st.stx_btime.tv_sec,
				 (unsigned) st.stx_btime.tv_nsec);
		return true;
	}
#endif
	return false;
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

/* By its canonical text. */
static void
add_layout(StringInfo json, const SnowflakeLayout *layout)
{
	char		definition[SNOWFLAKE_DEFINITION_SIZE];

	snowflake_layout_define(layout, definition);
	add_text(json, "layout", definition);
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
	add_number(json, "node_number", (int64) call->lease.node);
	add_number(json, "granted_by", (int64) call->lease.granted_by);
	add_uuid(json, "incarnation", &call->lease.incarnation);
	add_number(json, "generation", call->lease.generation);
	add_time(json, "leased_until", call->lease.leased_until);
	add_time(json, "ids_end_at", call->lease.ids_end_at);
	appendStringInfoChar(json, '}');
}

static void
add_clock(StringInfo json, const SnowflakeCall *call)
{
	add_time(json, "clock", call->clock);
	add_number(json, "max_ahead", call->max_ahead);
}

/*
 * Calls
 */
static void
build_start(StringInfo json, const SnowflakeCall *call)
{
	char		mark[MARK_SIZE];

	add_clock(json, call);
	if (look_at_mark(mark))
		add_text(json, "mark", mark);
}

static void
build_acquire(StringInfo json, const SnowflakeCall *call)
{
	const SnowflakeAcquireCall *acquire = &call->u.acquire;

	add_node_call(json, call);
	add_text(json, "kind", "server");
	add_host(json);
	add_number(json, "system_identifier", (int64) GetSystemIdentifier());
	add_time(json, "launched_at", PgStartTime);
	add_number(json, "timeline", GetWALInsertionTimeLine());
	add_clock(json, call);
	add_number(json, "window", acquire->window);
	add_number(json, "first_number", (int64) acquire->first);
	add_number(json, "last_number", (int64) acquire->last);
	add_key(json, "fixed");
	appendStringInfoString(json, acquire->fixed ? "true" : "false");
	add_uses(json, &acquire->uses);
	add_time(json, "starts_at", acquire->starts_at);
	add_time(json, "ids_end_at", acquire->ids_end_at);
}

/* The statement of a call. */
void
snowflake_query_build(const SnowflakeCall *call, SnowflakeQuery *query)
{
	StringInfoData json;

	memset(query, 0, sizeof(*query));
	query->last = call->last;
	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	add_number(&json, "protocol", PROTOCOL);
	switch (call->kind)
	{
		case SNOWFLAKE_CALL_NONE:
			break;				/* not a call */
		case SNOWFLAKE_CALL_LOOK:
			query->text = LOOK_TEXT;
			add_layout(&json, &call->layout);
			query->local_commit = true;
			break;
		case SNOWFLAKE_CALL_START:
			query->text = START_TEXT;
			query->create = call->u.start.create;
			build_start(&json, call);
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			query->text = call->registry[0] == '\0' ?
				ACQUIRE_TEXT("acquire_own_lease") : ACQUIRE_TEXT("acquire_lease");
			build_acquire(&json, call);
			break;
		case SNOWFLAKE_CALL_RECORD:
			query->text = RECORD_TEXT;
			add_uuid(&json, "incarnation", &call->u.record.incarnation);
			add_uses(&json, &call->u.record.uses);
			add_host(&json);
			break;
		case SNOWFLAKE_CALL_RENEW:
			query->text = RENEW_TEXT;
			add_node_call(&json, call);
			add_clock(&json, call);
			add_number(&json, "window", call->u.renew.window);
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
	const char *uses = columns[FIRST_VALUE];

	if (uses != NULL && strcmp(uses, "nothing") == 0)
		start->uses = SNOWFLAKE_USES_NOTHING;
	else if (uses != NULL && strcmp(uses, "own") == 0)
		start->uses = SNOWFLAKE_USES_OWN;
	else if (uses != NULL && strcmp(uses, "another") == 0)
		start->uses = SNOWFLAKE_USES_ANOTHER;
	else
		refuse_value(uses, "uses");
	if (start->uses != SNOWFLAKE_USES_NOTHING)
		start->incarnation = read_uuid(columns[FIRST_VALUE + 1], "uses_incarnation");
	start->starts_at = read_time(columns[FIRST_VALUE + 2], "starts_at");
}

static void
read_acquire(char *const *columns, const SnowflakeResult *result, SnowflakeAcquireResult *acquire)
{
	char	   *const *values = columns + FIRST_VALUE;

	acquire->incarnation = result->incarnation;
	acquire->generation = result->generation;
	acquire->token = read_uuid(values[0], "token");
	acquire->clock = read_time(values[1], "clock");
	acquire->node =
		(uint64) read_number(values[2], "node_number", 0, PG_INT64_MAX);
	acquire->starts_at = read_time(values[3], "starts_at");
	acquire->leased_until = read_time(values[4], "leased_until");
	acquire->cluster_ids_end_at = values[5] == NULL ? DT_NOBEGIN :
		read_time(values[5], "cluster_ids_end_at");
}

/* Understands the row that the statement of a call has returned. */
SnowflakeResultKind
snowflake_row_read(const SnowflakeCall *call, const SnowflakeRow *row,
				   SnowflakeResult *result)
{
	char	   *const *columns = row->columns;
	SnowflakeResultKind kind = read_answer(columns, result);

	/* these are never answered so */
	if (kind == SNOWFLAKE_RESULT_NO &&
		(call->kind == SNOWFLAKE_CALL_LOOK || call->kind == SNOWFLAKE_CALL_START ||
		 call->kind == SNOWFLAKE_CALL_ACQUIRE))
		refuse_value(columns[ANSWER], "answer");
	result->problem.from_registry = kind == SNOWFLAKE_RESULT_REFUSED && call->registry[0] != '\0';
	if (kind != SNOWFLAKE_RESULT_OK)
		return kind;
	switch (call->kind)
	{
		case SNOWFLAKE_CALL_NONE:
		case SNOWFLAKE_CALL_LOOK:
		case SNOWFLAKE_CALL_RECORD:
		case SNOWFLAKE_CALL_RELEASE:
			break;
		case SNOWFLAKE_CALL_START:
			read_start(columns, &result->u.start);
			break;
		case SNOWFLAKE_CALL_ACQUIRE:
			read_acquire(columns, result, &result->u.acquire);
			break;
		case SNOWFLAKE_CALL_RENEW:
			result->u.renew.leased_until =
				read_time(columns[FIRST_VALUE], "leased_until");
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
