/*
 * codec.c
 *	  Ids as text of a fixed width.
 *
 * A format is positional notation with leading zeros.  Two things make its
 * texts sort like the ids: all have the same width, and the digits stand in
 * ASCII order.
 *
 * Reading takes what writing makes and nothing else.  Crockford's Base32 lets
 * a reader accept lower case, I and L for 1, O for 0, and hyphens; here that
 * would give an id several texts, of which only one is found in an index.
 */
#include "postgres.h"

#include "common/int.h"

#include "codec.h"

#define AS_WRITTEN	"Give the text as snowflake_encode() writes it"

const SnowflakeFormat snowflake_formats[] = {
	{
		"base62", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 62, 11,
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

const int	snowflake_num_formats = lengthof(snowflake_formats);

/* The format of a name in any case, as encode() takes its own; NULL: none. */
const SnowflakeFormat *
snowflake_format_find(const char *name, size_t length)
{
	for (int i = 0; i < snowflake_num_formats; i++)
	{
		const SnowflakeFormat *format = &snowflake_formats[i];

		if (strlen(format->name) == length && pg_strncasecmp(format->name, name, length) == 0)
			return format;
	}
	return NULL;
}

/* Writes an id, which must not be negative; the format's width and no terminating zero. */
void
snowflake_text_write(const SnowflakeFormat *format, int64 id, char *encoded)
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

/*
 * Reads a text that need not end with a zero.
 *
 * All of it is looked at before its length is judged: a blank at its end, say,
 * is reported as what it is.  And as digits are single bytes, offsets and the
 * length are of characters, too, in every server encoding.
 */
SnowflakeTextRead
snowflake_text_read(const SnowflakeFormat *format, const char *encoded, size_t length)
{
	SnowflakeTextRead read = {SNOWFLAKE_TEXT_FINE, 0, 0};
	bool		too_large = false;

	for (size_t i = 0; i < length; i++)
	{
		const char *digit = memchr(format->digits, (unsigned char) encoded[i], format->base);

		if (digit == NULL)
		{
			read.fault = SNOWFLAKE_TEXT_BAD_CHARACTER;
			read.bad_offset = i;
			return read;
		}
		too_large = too_large ||
			pg_mul_s64_overflow(read.id, format->base, &read.id) ||
			pg_add_s64_overflow(read.id, digit - format->digits, &read.id);
	}
	if (length != (size_t) format->width)
		read.fault = SNOWFLAKE_TEXT_BAD_LENGTH;
	else if (too_large)
		read.fault = SNOWFLAKE_TEXT_TOO_LARGE;
	return read;
}
