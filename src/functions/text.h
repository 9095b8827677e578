/*
 * text.h
 *	  Ids as text of a fixed width.
 *
 * Holds no state: every function is pure, never raises an error, allocates
 * nothing and may be called anywhere.
 *
 * Each id has exactly one text in each format, and texts of one format compare
 * byte by byte (COLLATE "C") as their ids do.
 */
#ifndef SNOWFLAKE_TEXT_H
#define SNOWFLAKE_TEXT_H

typedef struct SnowflakeFormat
{
	const char *name;
	const char *digits;			/* in ASCII order: texts sort like ids */
	int			base;			/* how many digits there are */
	int			width;			/* of the greatest id, hence of all */
	const char *hint;			/* what to do about a text that is refused */
} SnowflakeFormat;

extern const SnowflakeFormat snowflake_formats[];
extern const int snowflake_num_formats;

/* Room for an id in any format, with a terminating zero. */
#define SNOWFLAKE_TEXT_SIZE		20

/* What is wrong with a text; the first of these that applies. */
typedef enum SnowflakeTextFault
{
	SNOWFLAKE_TEXT_FINE,
	SNOWFLAKE_TEXT_BAD_CHARACTER,	/* not a digit of the format */
	SNOWFLAKE_TEXT_BAD_LENGTH,	/* all are digits, but too few or too many */
	SNOWFLAKE_TEXT_TOO_LARGE	/* greater than any bigint */
} SnowflakeTextFault;

typedef struct SnowflakeTextRead
{
	SnowflakeTextFault fault;
	int64		id;				/* if nothing is wrong */
	size_t		bad_offset;		/* of the first bad character */
} SnowflakeTextRead;

extern const SnowflakeFormat *snowflake_format_find(const char *name,
													size_t length);
extern void snowflake_text_write(const SnowflakeFormat *format, int64 id,
								 char *encoded);
extern SnowflakeTextRead snowflake_text_read(const SnowflakeFormat *format,
											 const char *encoded,
											 size_t length);

#endif							/* SNOWFLAKE_TEXT_H */
