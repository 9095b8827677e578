/*
 * text.c
 *	  Ids as text of a fixed width: the formats, and the SQL-callable
 *	  snowflake_encode() and snowflake_decode().
 *
 * A format is positional notation with leading zeros.  Each id has exactly one
 * text in it.  Two things make texts of a format sort byte by byte (COLLATE
 * "C") like the ids: all have the same width, and the digits stand in ASCII
 * order.
 *
 * Reading takes what writing makes and nothing else.  Crockford's Base32 lets
 * a reader accept lower case, I and L for 1, O for 0, and hyphens; here that
 * would give an id several texts, and only one of them is found in an index.
 *
 * Errors: 22003 for an id that is negative, 22023 for an unknown format, 22P02
 * for a text.  They quote what users gave, which may be long and in any
 * encoding: it is cut between characters only.
 */
#include "postgres.h"

#include "common/int.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"

#include "compat.h"

/* Longer texts are cut in messages, to so many bytes. */
#define MAX_QUOTED		64

PG_FUNCTION_INFO_V1(snowflake_encode);
PG_FUNCTION_INFO_V1(snowflake_decode);

typedef struct SnowflakeFormat
{
	const char *name;
	const char *digits;			/* in ASCII order: texts sort like ids */
	int			base;			/* how many digits there are */
	int			width;			/* of the greatest id, hence of all */
	const char *hint;			/* what to do about a text that is refused */
} SnowflakeFormat;

#define AS_WRITTEN	"Give the text as snowflake_encode() writes it"

static const SnowflakeFormat formats[] = {
	{
		"base62",
		"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 62,
		11,
		AS_WRITTEN ": with leading zeros, and upper and lower case kept apart."
	},
	{
		"crockford32", "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 32, 13,
		AS_WRITTEN "; for one that was typed in, decode"
		" translate(upper(encoded COLLATE \"C\"), 'ILO-', '110')."
	},
	{
		"hex", "0123456789abcdef", 16, 16,
		AS_WRITTEN "; for one in upper case, decode lower(encoded COLLATE \"C\")."
	},
	{
		"decimal", "0123456789", 10, 19,
		AS_WRITTEN "; for one without leading zeros, use encoded::bigint instead."
	},
};

/* Room for an id in any format, with a terminating zero. */
#define TEXT_SIZE		20

/*
 * Writes an id, which must not be negative; the format's width and no
 * terminating zero.
 */
static void
write_text(const SnowflakeFormat *format, int64 id, char *encoded)
{
	uint64		rest = (uint64) id;
	uint64		base = (uint64) format->base;

	Assert(id >= 0);
	for (int i = format->width - 1; i >= 0; i--)
	{
		encoded[i] = format->digits[rest % base];
		rest /= base;
	}
	Assert(rest == 0);
}

/* A text as messages quote it. */
static const char *
quoted(const text *value)
{
	int			length = VARSIZE_ANY_EXHDR(value);
	int			cut =
	Min(pg_mbcliplen(VARDATA_ANY(value), length, MAX_QUOTED), length);

	return psprintf("%.*s%s", cut, VARDATA_ANY(value),
					cut < length ? "..." : "");
}

/* The names of all formats. */
static const char *
format_names(void)
{
	StringInfoData names;

	initStringInfo(&names);
	for (size_t i = 0; i < lengthof(formats); i++)
		appendStringInfo(&names, "%s%s", i == 0 ? "" : ", ", formats[i].name);
	return names.data;
}

/* The format of a name in any case, as encode() takes its own; or 22023. */
static const SnowflakeFormat *
find_format(const text *name)
{
	size_t		length = VARSIZE_ANY_EXHDR(name);

	for (size_t i = 0; i < lengthof(formats); i++)
		if (strlen(formats[i].name) == length &&
			pg_strncasecmp(formats[i].name, VARDATA_ANY(name), length) == 0)
			return &formats[i];
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown id format: \"%s\"", quoted(name)),
			 errdetail("The formats are %s.", format_names()),
			 errhint("Use one of these.")));
	return NULL;				/* not reached */
}

/* An id must not be negative, or 22003. */
static void
check_not_negative(int64 id)
{
	if (id < 0)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id " INT64_FORMAT " cannot be encoded", id),
				 errdetail("Ids are from 0 to " INT64_FORMAT ".",
						   PG_INT64_MAX),
				 errhint("Look where the number comes from: ids are never negative.")));
}

/*
 * The id that a text is of, or 22P02 if it is of none.
 *
 * All of it is looked at before its length is judged: a blank at its end, say,
 * is reported as what it is.  And as digits are single bytes, positions and the
 * length are of characters, too, in every server encoding.
 */
static int64
read_text(const SnowflakeFormat *format, const text *encoded)
{
	const char *begin = VARDATA_ANY(encoded);
	const char *end = begin + VARSIZE_ANY_EXHDR(encoded);
	const char *next;
	int			length = (int) (end - begin);
	int			rest;
	int64		id = 0;
	bool		too_large = false;
	char		greatest[TEXT_SIZE] = "";

	for (next = begin; next < end; next++)
	{
		const char *digit =
		memchr(format->digits, (unsigned char) *next, format->base);

		if (digit == NULL)
			break;
		too_large = too_large ||
			pg_mul_s64_overflow(id, format->base, &id) ||
			pg_add_s64_overflow(id, digit - format->digits, &id);
	}
	if (next == end && length == format->width && !too_large)
		return id;

	write_text(format, PG_INT64_MAX, greatest);
	rest = (int) (end - next);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid %s id: \"%s\"", format->name, quoted(encoded)),
			 rest > 0 ?
			 errdetail("The character \"%.*s\" at position %d is not one of %s.",
					   Min(pg_mbcharcliplen(next, rest, 1), rest), next,
					   length - rest + 1, format->digits) :
			 length != format->width ?
			 errdetail("Its length is %d; ids in this format have %d characters.",
					   length, format->width) :
			 errdetail("It is too large: the greatest id, " INT64_FORMAT ", is \"%s\".",
					   PG_INT64_MAX, greatest),
			 errhint("%s", format->hint)));
	return 0;					/* not reached */
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
	write_text(format, id, VARDATA(encoded));
	PG_RETURN_TEXT_P(encoded);
}

Datum
snowflake_decode(PG_FUNCTION_ARGS)
{
	text	   *encoded = PG_GETARG_TEXT_PP(0);

	PG_RETURN_INT64(read_text(find_format(PG_GETARG_TEXT_PP(1)), encoded));
}
