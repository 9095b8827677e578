/*
 * registry.c
 *	  What the calls are in SQL: the same text and the same answers whether they
 *	  go over SPI or libpq.
 *
 * Everything is text with explicit casts; times are ISO 8601 in UTC one way and
 * microseconds since 1970 the other, so that no setting of a session matters.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "host.h"
#include "registry.h"

#define MICROSECONDS(x) "(extract(epoch FROM " x ") * 1000000)::bigint::text"

#define ACQUIRE_TEXT \
	"SELECT registry_incarnation::text, node_number::text, " \
	MICROSECONDS("starts_at") ", " MICROSECONDS("leased_until") \
	" FROM snowflake.acquire_lease(version => $1, token => $2::uuid, incarnation => $3::uuid, layout => $4," \
	" datacenter_bits => $5::integer, worker_bits => $6::integer, clock_bits => $7::integer," \
	" first_number => $8::bigint, last_number => $9::bigint, exclusive => $10::boolean, shared => $11::boolean," \
	" node_clock => $12::timestamptz, max_ahead => $13::interval, lease_window => $14::interval," \
	" host_name => $15, port => $16::integer, system_identifier => $17::bigint, timeline => $18::integer," \
	" launched_at => $19::timestamptz, previous_token => $20::uuid, previous_end => $21::timestamptz," \
	" previous_until => $22::timestamptz, unused_tokens => $23::uuid[]," \
	" ring_mask => $24::bigint, ring_bits => $25::bigint)"

#define RENEW_TEXT \
	"SELECT " MICROSECONDS("snowflake.renew_lease(version => $1, token => $2::uuid, lease_until => $3::timestamptz)")

#define RELEASE_TEXT \
	"SELECT snowflake.release_lease(version => $1, token => $2::uuid, lease_end => $3::timestamptz," \
	" row_until => $4::timestamptz)::text"

#define SHARE_TEXT \
	"SELECT snowflake.acquire_backfill_share(version => $1, system_identifier => $2::bigint," \
	" database => $3::oid, shared => $4::boolean, asker => $5::uuid, incarnation => $6::uuid," \
	" generation => $7::integer)::text"

static char *
uuid_text(const pg_uuid_t *uuid)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(uuid)));
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
					tm.tm_year > 0 ? tm.tm_year : 1 - tm.tm_year, tm.tm_mon, tm.tm_mday,
					tm.tm_hour, tm.tm_min, tm.tm_sec, (int) fsec, tm.tm_year > 0 ? "" : " BC");
}

/* The same for a bound that need not be known: NULL. */
static char *
known_text(TimestampTz at)
{
	return TIMESTAMP_IS_NOEND(at) ? NULL : time_text(at);
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

static char *
unused_text(const SnowflakeCall *call)
{
	char	   *text = pstrdup("{");

	for (int i = 0; i < call->num_unused; i++)
		text = psprintf("%s%s%s", text, i == 0 ? "" : ",", uuid_text(&call->unused[i]));

	return psprintf("%s}", text);
}

static void
build_acquire(const SnowflakeCall *call, const char **p)
{
	const SnowflakeLayout *layout = &call->layout;
	char	   *definition = palloc(SNOWFLAKE_DEFINITION_SIZE);
	char	   *host = palloc(SNOWFLAKE_HOST_NAME_SIZE);

	snowflake_host_name(host);
	snowflake_layout_define(layout, definition);
	*p++ = call->any_incarnation ? NULL : uuid_text(&call->incarnation);
	*p++ = definition;
	*p++ = number_text(layout->bits[SNOWFLAKE_DATACENTER]);
	*p++ = number_text(layout->bits[SNOWFLAKE_WORKER]);
	*p++ = number_text(layout->bits[SNOWFLAKE_CLOCK]);
	*p++ = number_text(call->first);
	*p++ = number_text(call->last_number);
	*p++ = call->exclusive ? "true" : "false";
	*p++ = call->remote ? "true" : "false";
	*p++ = time_text(call->clock);
	*p++ = span_text(call->max_ahead);
	*p++ = span_text(call->window);
	*p++ = host;
	*p++ = number_text(PostPortNumber);
	*p++ = number_text((int64) GetSystemIdentifier());
	*p++ = number_text(call->timeline);
	*p++ = time_text(PgStartTime);
	*p++ = call->has_previous ? uuid_text(&call->previous) : NULL;
	*p++ = call->has_previous ? time_text(call->previous_end) : NULL;
	*p++ = call->has_previous ? known_text(call->previous_until) : NULL;
	*p++ = unused_text(call);
	*p++ = number_text(call->ring_mask);
	*p++ = number_text(call->ring_bits);
}

/* The statement of a call.  Allocates in the current memory context. */
void
snowflake_query_build(const SnowflakeCall *call, SnowflakeQuery *query)
{
	query->parameters[0] = SNOWFLAKE_VERSION;
	if (call->kind == SNOWFLAKE_SHARE)
	{
		query->text = SHARE_TEXT;
		query->num_parameters = 7;
		query->parameters[1] = number_text((int64) GetSystemIdentifier());
		query->parameters[2] = number_text((int64) call->database);
		query->parameters[3] = call->remote ? "true" : "false";
		query->parameters[4] = uuid_text(&call->asker);
		query->parameters[5] = uuid_text(&call->incarnation);
		query->parameters[6] = number_text(call->generation);
		return;
	}
	query->parameters[1] = uuid_text(&call->token);
	if (call->kind == SNOWFLAKE_ACQUIRE)
	{
		query->text = ACQUIRE_TEXT;
		query->num_parameters = SNOWFLAKE_CALL_PARAMETERS;
		build_acquire(call, &query->parameters[2]);
		return;
	}
	query->text = call->kind == SNOWFLAKE_RENEW ? RENEW_TEXT : RELEASE_TEXT;
	query->num_parameters = call->kind == SNOWFLAKE_RENEW ? 3 : 4;
	query->parameters[2] = time_text(call->until);
	query->parameters[3] = known_text(call->row_until);
}

static TimestampTz
read_time(const char *text)
{
	return text == NULL ? DT_NOBEGIN : SNOWFLAKE_UNIX_EPOCH + strtoll(text, NULL, 10);
}

/*
 * Understands the one row that a call returned; as many columns as the
 * statement has, NULL for null.  Returns the kind of the answer, for the caller
 * to set once the transaction is durable.
 */
SnowflakeAnswerKind
snowflake_query_read(const SnowflakeCall *call, char *const *columns, SnowflakeAnswer *answer)
{
	switch (call->kind)
	{
		case SNOWFLAKE_ACQUIRE:
			if (columns[0] == NULL || columns[1] == NULL || columns[3] == NULL)
				elog(ERROR, "snowflake.acquire_lease() returned NULL");
			answer->incarnation = *DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(columns[0])));
			answer->node = strtoull(columns[1], NULL, 10);
			answer->starts_at = read_time(columns[2]);
			answer->until = read_time(columns[3]);
			return SNOWFLAKE_ANSWER_OK;
		case SNOWFLAKE_RENEW:
			answer->until = read_time(columns[0]);
			return columns[0] != NULL ? SNOWFLAKE_ANSWER_OK : SNOWFLAKE_ANSWER_NOT_OPEN;
		case SNOWFLAKE_SHARE:
			if (columns[0] == NULL)
				elog(ERROR, "snowflake.acquire_backfill_share() returned NULL");
			answer->node = strtoull(columns[0], NULL, 10);
			return SNOWFLAKE_ANSWER_OK;
		case SNOWFLAKE_RELEASE:
			break;
	}
	return columns[0] != NULL && strcmp(columns[0], "true") == 0 ?
		SNOWFLAKE_ANSWER_OK : SNOWFLAKE_ANSWER_NOT_OPEN;
}

/* The text may be in any encoding, and is shown in databases of any other. */
static void
keep_ascii(char *text)
{
	for (char *p = text; *p != '\0'; p++)
		if (IS_HIGHBIT_SET(*p))
			*p = '?';
}

/* Fills an answer with an error; texts may be NULL. */
void
snowflake_answer_error(SnowflakeAnswer *answer, int sqlerrcode, const char *message,
					   const char *detail, const char *hint)
{
	SnowflakeProblem *problem = &answer->problem;

	answer->kind = SNOWFLAKE_ANSWER_FAILED;
	memset(problem, 0, sizeof(*problem));
	problem->sqlerrcode = sqlerrcode;
	strlcpy(problem->message, message != NULL ? message : "unknown error", sizeof(problem->message));
	if (detail != NULL)
		strlcpy(problem->detail, detail, sizeof(problem->detail));
	if (hint != NULL)
		strlcpy(problem->hint, hint, sizeof(problem->hint));
	keep_ascii(problem->message);
	keep_ascii(problem->detail);
	keep_ascii(problem->hint);
}

/*
 * The same with one that the server with the tables reported.  That a statement was
 * cancelled since it waited for a lock would say nothing to a draw.
 */
void
snowflake_answer_server_error(SnowflakeAnswer *answer, int sqlerrcode, const char *message,
							  const char *detail, const char *hint)
{
	if (sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && hint == NULL)
		snowflake_answer_error(answer, sqlerrcode, "a table of the schema snowflake is locked", detail,
							   "See who holds a lock on it, in pg_locks and pg_prepared_xacts of its server.");
	else
		snowflake_answer_error(answer, sqlerrcode, message, detail, hint);
}
