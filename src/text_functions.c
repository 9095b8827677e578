/*
 * text_functions.c
 *	  The SQL-callable functions for ids as text, and their errors.
 *
 * Errors: 22003 for an id that is negative, 22023 for an unknown format, 22P02
 * for a text.  They quote what users gave, which may be long and in any
 * encoding: it is cut between characters only.
 */
#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"

#include "codec.h"
#include "compat.h"

/* Longer texts are cut in messages, to so many bytes. */
#define MAX_QUOTED		64

PG_FUNCTION_INFO_V1(snowflake_encode);
PG_FUNCTION_INFO_V1(snowflake_decode);

/* A text as messages quote it. */
static const char *
quoted(const text *value)
{
	int			length = VARSIZE_ANY_EXHDR(value);
	int			cut = Min(pg_mbcliplen(VARDATA_ANY(value), length, MAX_QUOTED), length);

	return psprintf("%.*s%s", cut, VARDATA_ANY(value), cut < length ? "..." : "");
}

/* The names of all formats. */
static const char *
format_names(void)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < snowflake_num_formats; i++)
		appendStringInfo(&names, "%s%s", i == 0 ? "" : ", ", snowflake_formats[i].name);
	return names.data;
}

/* The format of a name, or 22023. */
static const SnowflakeFormat *
find_format(const text *name)
{
	const SnowflakeFormat *format = snowflake_format_find(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));

	if (format == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown id format: \"%s\"", quoted(name)),
				 errdetail("The formats are %s.", format_names()),
				 errhint("Use one of these.")));
	return format;
}

/* An id must not be negative, or 22003. */
static void
check_not_negative(int64 id)
{
	if (id < 0)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id " INT64_FORMAT " cannot be encoded", id),
				 errdetail("Ids are from 0 to " INT64_FORMAT ".", PG_INT64_MAX),
				 errhint("Look where the number comes from: ids are never negative.")));
}

/* A text must be what some id is encoded as, or 22P02. */
static void
check_read(const SnowflakeFormat *format, const text *encoded, const SnowflakeTextRead *read)
{
	int			length = VARSIZE_ANY_EXHDR(encoded);
	const char *bad = VARDATA_ANY(encoded) + read->bad_offset;
	int			rest = length - (int) read->bad_offset;
	char		greatest[SNOWFLAKE_TEXT_SIZE] = "";

	if (read->fault == SNOWFLAKE_TEXT_FINE)
		return;
	snowflake_text_write(format, PG_INT64_MAX, greatest);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid %s id: \"%s\"", format->name, quoted(encoded)),
			 read->fault == SNOWFLAKE_TEXT_BAD_CHARACTER ?
			 errdetail("The character \"%.*s\" at position %zu is not one of %s.",
					   Min(pg_mbcharcliplen(bad, rest, 1), rest), bad,
					   read->bad_offset + 1, format->digits) :
			 read->fault == SNOWFLAKE_TEXT_BAD_LENGTH ?
			 errdetail("Its length is %d; ids in this format have %d characters.",
					   length, format->width) :
			 errdetail("It is too large: the greatest id, " INT64_FORMAT ", is \"%s\".",
					   PG_INT64_MAX, greatest),
			 errhint("%s", format->hint)));
}

Datum
snowflake_encode(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);
	const SnowflakeFormat *format = find_format(PG_GETARG_TEXT_PP(1));
	text	   *encoded;

	check_not_negative(id);
	encoded = palloc(VARHDRSZ + format->width);
	SET_VARSIZE(encoded, VARHDRSZ + format->width);
	snowflake_text_write(format, id, VARDATA(encoded));
	PG_RETURN_TEXT_P(encoded);
}

Datum
snowflake_decode(PG_FUNCTION_ARGS)
{
	text	   *encoded = PG_GETARG_TEXT_PP(0);
	const SnowflakeFormat *format = find_format(PG_GETARG_TEXT_PP(1));
	SnowflakeTextRead read = snowflake_text_read(format, VARDATA_ANY(encoded),
												 VARSIZE_ANY_EXHDR(encoded));

	check_read(format, encoded, &read);
	PG_RETURN_INT64(read.id);
}
