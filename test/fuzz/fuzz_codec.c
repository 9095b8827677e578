/*
 * fuzz_codec.c
 *	  Fuzz target: ids as text, and masked ids.
 *
 * The first byte chooses what the others are: two ids; a text and the name of a format; or
 * keys and ids, which one call site masks one after the other.
 *
 * What each format writes is computed here once more, from its definition in doc/reference.md.
 */
#include "fuzz.h"

#include "fmgr.h"
#include "mb/pg_wchar.h"

extern Datum snowflake_encode(PG_FUNCTION_ARGS);
extern Datum snowflake_decode(PG_FUNCTION_ARGS);
extern Datum snowflake_mask(PG_FUNCTION_ARGS);
extern Datum snowflake_unmask(PG_FUNCTION_ARGS);

typedef struct Format
{
	const char *name;
	const char *digits;
	int			width;
} Format;

static const Format formats[] = {
	{"base62", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 11},
	{"crockford32", "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 13},
	{"hex", "0123456789abcdef", 16},
	{"decimal", "0123456789", 19},
};

/* Server encodings of all kinds; clients' own do not come into a function. */
static const int encodings[] = {
	PG_UTF8, PG_SQL_ASCII, PG_LATIN1, PG_EUC_JP, PG_EUC_CN, PG_EUC_TW, PG_EUC_JIS_2004, PG_WIN1251, PG_MULE_INTERNAL
};

/* A text or bytea, in either form that a function gets. */
static Datum
make_varlena(const void *data, size_t size, bool short_head)
{
	char	   *value = palloc(size + VARHDRSZ);

	if (short_head && size + VARHDRSZ_SHORT <= VARATT_SHORT_MAX)
	{
		/* nothing to spare after its end */
		value = palloc(size + VARHDRSZ_SHORT);
		SET_VARSIZE_SHORT(value, size + VARHDRSZ_SHORT);
		memcpy(VARDATA_SHORT(value), data, size);
	}
	else
	{
		SET_VARSIZE(value, size + VARHDRSZ);
		memcpy(VARDATA(value), data, size);
	}
	return PointerGetDatum(value);
}

static Datum
call(PGFunction function, FmgrInfo *flinfo, Datum first, Datum second)
{
	LOCAL_FCINFO(fcinfo, 2);

	InitFunctionCallInfoData(*fcinfo, flinfo, 2, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = first;
	fcinfo->args[0].isnull = false;
	fcinfo->args[1].value = second;
	fcinfo->args[1].isnull = false;
	return function(fcinfo);
}

static bool
is_format(const char *name, size_t length, const Format *format)
{
	return strlen(format->name) == length && pg_strncasecmp(name, format->name, length) == 0;
}

/* The text of an id, by the definition of a format. */
static void
write_expected(const Format *format, int64 id, char *text)
{
	for (int i = format->width - 1; i >= 0; i--, id /= (int64) strlen(format->digits))
		text[i] = format->digits[id % (int64) strlen(format->digits)];
	fuzz_check(id == 0);
}

/* Whether a text is that of an id, and of which. */
static bool
read_expected(const Format *format, const char *text, size_t length, int64 *id)
{
	__int128	value = 0;

	if (length != (size_t) format->width)
		return false;
	for (size_t i = 0; i < length; i++)
	{
		const char *digit = text[i] == '\0' ? NULL : strchr(format->digits, text[i]);

		if (digit == NULL)
			return false;
		value = value * (int) strlen(format->digits) + (digit - format->digits);
	}
	*id = (int64) value;
	return value <= PG_INT64_MAX;
}

/* An id to its text and back; returns the text, or NULL if the id is refused. */
static const char *
check_id(const Format *format, int64 id, int form)
{
	char		name[16];
	char		expected[20];
	Datum		format_name;
	Datum		encoded = 0;
	Datum		decoded = 0;

	strlcpy(name, format->name, sizeof(name));
	if (form & 1)
		name[0] -= 'a' - 'A';
	format_name = make_varlena(name, strlen(name), form & 2);

	if (id < 0)
	{
		fuzz_refuses(call(snowflake_encode, NULL, Int64GetDatum(id), format_name), ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE);
		return NULL;
	}
	fuzz_check(fuzz_accepts(encoded = call(snowflake_encode, NULL, Int64GetDatum(id), format_name)));
	write_expected(format, id, expected);
	fuzz_check(VARSIZE_ANY_EXHDR(encoded) == (size_t) format->width);
	fuzz_check(memcmp(VARDATA_ANY(encoded), expected, format->width) == 0);

	encoded = make_varlena(expected, format->width, form & 4);
	fuzz_check(fuzz_accepts(decoded = call(snowflake_decode, NULL, encoded, format_name)));
	fuzz_check(DatumGetInt64(decoded) == id);
	return VARDATA_ANY(encoded);
}

/* Two ids, in every format: their texts sort as they do. */
static void
check_ids(FuzzInput *input)
{
	int			form = (int) fuzz_take(input, 1);
	int64		a = (int64) fuzz_take(input, 8);
	int64		b;

	/* often a near one, past the ends of the range as well */
	b = form & 8 ? (int64) ((uint64) a + (uint64) (int8) fuzz_take(input, 1)) : (int64) fuzz_take(input, 8);
	for (size_t i = 0; i < lengthof(formats); i++)
	{
		const char *first = check_id(&formats[i], a, form);
		const char *second = check_id(&formats[i], b, form >> 4);

		if (first != NULL && second != NULL)
		{
			int			order = memcmp(first, second, formats[i].width);

			fuzz_check((order < 0) == (a < b) && (order == 0) == (a == b));
		}
	}
}

/* Any text, in any format: it is that of one id, or refused. */
static void
check_text(FuzzInput *input)
{
	int			form = (int) fuzz_take(input, 1);
	size_t		chosen = fuzz_take(input, 1) % 8;
	const char *name = chosen < lengthof(formats) ? formats[chosen].name : fuzz_take_string(input);
	const char *text = (const char *) input->data;
	const Format *format = NULL;
	Datum		encoded;
	Datum		format_name;
	Datum		decoded = 0;
	int64		id;

	fuzz_encoding = encodings[(form >> 2) % lengthof(encodings)];
	if (pg_encoding_verifymbstr(fuzz_encoding, text, (int) input->size) != (int) input->size ||
		memchr(text, '\0', input->size) != NULL ||
		pg_encoding_verifymbstr(fuzz_encoding, name, (int) strlen(name)) != (int) strlen(name))
		return;
	for (size_t i = 0; i < lengthof(formats); i++)
		if (is_format(name, strlen(name), &formats[i]))
			format = &formats[i];

	format_name = make_varlena(name, strlen(name), form & 1);
	encoded = make_varlena(text, input->size, form & 2);
	if (format == NULL)
	{
		fuzz_refuses(call(snowflake_encode, NULL, Int64GetDatum(0), format_name), ERRCODE_INVALID_PARAMETER_VALUE);
		fuzz_refuses(call(snowflake_decode, NULL, encoded, format_name), ERRCODE_INVALID_PARAMETER_VALUE);
	}
	else if (!read_expected(format, text, input->size, &id))
		fuzz_refuses(call(snowflake_decode, NULL, encoded, format_name), ERRCODE_INVALID_TEXT_REPRESENTATION);
	else
	{
		fuzz_check(fuzz_accepts(decoded = call(snowflake_decode, NULL, encoded, format_name)));
		fuzz_check(DatumGetInt64(decoded) == id);
		fuzz_check(fuzz_accepts(encoded = call(snowflake_encode, NULL, decoded, format_name)));
		fuzz_check(VARSIZE_ANY_EXHDR(encoded) == input->size);
		fuzz_check(memcmp(VARDATA_ANY(encoded), text, input->size) == 0);
	}
}

/*
 * One id with one key, by a call site that perhaps has the mask of another key, and by a
 * fresh one: both give the same, and what masks an id unmasks it.
 */
static void
check_mask(FmgrInfo *used, PGFunction there, PGFunction back, int64 id, Datum key)
{
	FmgrInfo	fresh = {0};
	Datum		masked = 0;
	Datum		again = 0;
	size_t		length = VARSIZE_ANY_EXHDR(key);

	if (length != 16 && length != 24 && length != 32)
		fuzz_refuses(call(there, used, Int64GetDatum(id), key), ERRCODE_INVALID_PARAMETER_VALUE);
	else if (id < 0)
		fuzz_refuses(call(there, used, Int64GetDatum(id), key), ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE);
	else
	{
		fuzz_check(fuzz_accepts(masked = call(there, used, Int64GetDatum(id), key)));
		fuzz_check(DatumGetInt64(masked) >= 0);
		fuzz_check(fuzz_accepts(again = call(there, &fresh, Int64GetDatum(id), key)));
		fuzz_check(masked == again);
		fuzz_check(fuzz_accepts(again = call(back, &fresh, masked, key)));
		fuzz_check(DatumGetInt64(again) == id);
	}
}

static void
check_masks(FuzzInput *input)
{
	static const uint8 lengths[] = {16, 24, 32, 0, 15, 17, 31, 33};
	FmgrInfo	mask = {0};
	FmgrInfo	unmask = {0};
	uint8		bytes[33] = {0};

	for (int calls = 0; input->size > 0 && calls < 8; calls++)
	{
		int			form = (int) fuzz_take(input, 1);
		size_t		length = lengths[form % lengthof(lengths)];
		int64		id = (int64) fuzz_take(input, 8);
		Datum		key;

		/* often the key of the last call, or one that begins like it */
		if (form & 8)
			for (size_t i = 0; i < length; i++)
				bytes[i] = (uint8) fuzz_take(input, 1);
		key = make_varlena(bytes, length, form & 16);
		check_mask(&mask, snowflake_mask, snowflake_unmask, id, key);
		check_mask(&unmask, snowflake_unmask, snowflake_mask, id, key);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FuzzInput	input = {data, size};

	fuzz_encoding = PG_UTF8;
	switch (fuzz_take(&input, 1) % 3)
	{
		case 0:
			check_ids(&input);
			break;
		case 1:
			check_text(&input);
			break;
		default:
			check_masks(&input);
	}
	fuzz_end_statement();
	return 0;
}
