/*
 * layout.c
 *	  The grammar of layout definitions.
 *
 * A definition is a list of parts set off by commas:
 *
 *		timestamp N, datacenter N, worker N, clock N, sequence N
 *		tick N{us|ms|s}, epoch ISO-8601-with-zone
 *
 * The fields stand in the order of the id's bits, highest first; the timestamp
 * is the first of them, datacenter, worker and clock may be absent.  A tick is
 * 1ms and the epoch 1970-01-01T00:00:00Z unless given.  Instead of spelling
 * all out, the first part may be the name of a preset; the parts behind it
 * change widths the preset has, its tick or its epoch.  Words are recognised
 * in any case, blanks around them are ignored.
 */
#include "postgres.h"

#include <ctype.h>

#include "layout/layout.h"

/*
 * With a terminating zero; a longer part is no part, and is cut for the error.
 */
#define MAX_PART_SIZE		128

static const char *const field_names[SNOWFLAKE_NUM_FIELDS] = {
	"timestamp", "datacenter", "worker", "clock", "sequence"
};

/* The state of reading one definition. */
typedef struct LayoutReader
{
	SnowflakeLayout *layout;
	SnowflakeLayoutError *error;
	char		part[MAX_PART_SIZE];	/* the part being read */
	bool		cut;			/* only its begin: it is too long */
	bool		from_preset;	/* the first part named a preset */
	bool		seen[SNOWFLAKE_NUM_FIELDS];
	bool		seen_tick;
	bool		seen_epoch;
	SnowflakeField order[SNOWFLAKE_NUM_FIELDS]; /* fields, highest bits first */
	int			num_fields;
} LayoutReader;

static bool read_definition(LayoutReader *reader, const char *rest);

const char *
snowflake_field_name(SnowflakeField field)
{
	return field_names[field];
}

/*
 * Notes what is wrong and what to do; always false, for the caller to return.
 */
static bool refuse_definition(LayoutReader *reader, const char *hint,
							  const char *format,...) pg_attribute_printf(3, 4);

static bool
refuse_definition(LayoutReader *reader, const char *hint, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(reader->error->detail, sizeof(reader->error->detail), format,
			  args);
	va_end(args);
	strlcpy(reader->error->hint, hint, sizeof(reader->error->hint));
	return false;
}

/* Reads an unsigned decimal number of at most nine digits. */
static const char *
read_number(const char *p, int *value)
{
	int			digits = 0;

	*value = 0;
	for (; *p >= '0' && *p <= '9'; p++)
	{
		if (++digits > 9)
			return NULL;
		*value = *value * 10 + (*p - '0');
	}
	return digits > 0 ? p : NULL;
}

static const char *
skip_blanks(const char *p)
{
	while (isspace((unsigned char) *p))
		p++;
	return p;
}

/* The width of a field: 1 to 31 bits, of the timestamp 1 to 62. */
static bool
read_width(LayoutReader *reader, SnowflakeField field, const char *value)
{
	int			max = field == SNOWFLAKE_TIMESTAMP ? SNOWFLAKE_MAX_BITS - 1 :
	SNOWFLAKE_MAX_FIELD_BITS;
	const char *end;
	int			bits;

	if (reader->seen[field])
		return refuse_definition(reader, "Give each field once.",
								 "\"%s\" repeats the field %s.", reader->part,
								 field_names[field]);
	reader->seen[field] = true;

	end = read_number(value, &bits);
	if (end == NULL || *end != '\0' || bits < 1 || bits > max)
		return refuse_definition(reader,
								 "Give a field's width as a number of bits, as in \"sequence 12\".",
								 "\"%s\" must give the %s field 1 to %d bits.",
								 reader->part, field_names[field], max);

	if (reader->from_preset && reader->layout->bits[field] == 0)
		return refuse_definition(reader,
								 "Spell out the whole layout, with its fields in order.",
								 "\"%s\" changes a field that the preset does not have.",
								 reader->part);
	if (!reader->from_preset)
		reader->order[reader->num_fields++] = field;
	reader->layout->bits[field] = (uint8) bits;

	if (reader->order[0] != SNOWFLAKE_TIMESTAMP)
		return refuse_definition(reader,
								 "Ids sort by time only if the timestamp has the highest bits.",
								 "\"%s\" stands before the timestamp, which must be the first field.",
								 reader->part);
	return true;
}

/* The length of a tick: 1us to a day. */
static bool
read_tick(LayoutReader *reader, const char *value)
{
	const char *unit;
	int			number;
	int64		unit_us = 0;

	if (reader->seen_tick)
		return refuse_definition(reader, "Give the tick once.", "\"%s\" repeats the tick.",
								 reader->part);
	reader->seen_tick = true;

	unit = read_number(value, &number);
	if (unit != NULL)
	{
		unit = skip_blanks(unit);
		if (pg_strcasecmp(unit, "us") == 0)
			unit_us = 1;
		else if (pg_strcasecmp(unit, "ms") == 0)
			unit_us = 1000;
		else if (pg_strcasecmp(unit, "s") == 0)
			unit_us = USECS_PER_SEC;
	}
	if (unit_us == 0 || number < 1 || number > SNOWFLAKE_MAX_TICK_US / unit_us)
		return refuse_definition(reader,
								 "Give the length of a tick as a number with the unit us, ms or s, as in \"tick 1ms\".",
								 "\"%s\" must give a tick from 1us to 86400s.",
								 reader->part);
	reader->layout->tick_us = number * unit_us;
	return true;
}

static bool
read_epoch(LayoutReader *reader, const char *value)
{
	if (reader->seen_epoch)
		return refuse_definition(reader, "Give the epoch once.",
								 "\"%s\" repeats the epoch.", reader->part);
	reader->seen_epoch = true;
	if (!snowflake_epoch_read(value, &reader->layout->epoch))
		return refuse_definition(reader,
								 "Write the epoch as in \"epoch 2024-01-01T00:00:00Z\" or \"epoch 2016-09-20T00:00:00+08:00\".",
								 "\"%s\" must give an ISO 8601 time with a zone, in the years 0001 to 9999.",
								 reader->part);
	return true;
}

/* Takes over a preset: its layout and the order of its fields. */
static bool
read_preset(LayoutReader *reader, const SnowflakePreset *preset)
{
	if (!read_definition(reader, preset->definition))
		return false;
	memset(reader->seen, 0, sizeof(reader->seen));
	reader->seen_tick = reader->seen_epoch = false;
	reader->from_preset = true;
	return true;
}

/* The part at hand. */
static bool
read_part(LayoutReader *reader, bool first)
{
	const char *part = reader->part;
	const char *value = part;
	size_t		length;

	if (reader->cut)
		return refuse_definition(reader,
								 "Separate the parts by commas, and leave out needless blanks.",
								 "\"%s...\" is longer than %d characters.", part,
								 MAX_PART_SIZE - 1);
	while (*value != '\0' && !isspace((unsigned char) *value))
		value++;
	length = value - part;
	value = skip_blanks(value);

	for (int field = 0; field < SNOWFLAKE_NUM_FIELDS; field++)
		if (strlen(field_names[field]) == length &&
			pg_strncasecmp(part, field_names[field], length) == 0)
			return read_width(reader, (SnowflakeField) field, value);
	if (length == 4 && pg_strncasecmp(part, "tick", length) == 0)
		return read_tick(reader, value);
	if (length == 5 && pg_strncasecmp(part, "epoch", length) == 0)
		return read_epoch(reader, value);
	for (int i = 0; i < snowflake_num_presets; i++)
		if (pg_strcasecmp(part, snowflake_presets[i].name) == 0)
		{
			if (!first)
				return refuse_definition(reader,
										 "Name the preset first, then what is different.",
										 "The preset \"%s\" must be the first part.", part);
			return read_preset(reader, &snowflake_presets[i]);
		}
	return refuse_definition(reader,
							 "A layout is the name of a preset (see snowflake_layouts()), or parts such as \"timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z\".",
							 "\"%s\" is neither a preset nor one of timestamp, datacenter, worker, clock, sequence, tick and epoch.",
							 part);
}

/*
 * Takes the next part, without the blanks around it, and returns where it
 * ends.  Bytes that are not printable ASCII occur in no valid part; they are
 * replaced, so that an error message is valid in every encoding.
 */
static const char *
take_part(LayoutReader *reader, const char *rest)
{
	const char *end;
	size_t		length;

	rest = skip_blanks(rest);
	end = rest + strcspn(rest, ",");
	length = end - rest;
	while (length > 0 && isspace((unsigned char) rest[length - 1]))
		length--;
	reader->cut = length >= MAX_PART_SIZE;
	length = Min(length, MAX_PART_SIZE - 1);
	for (size_t i = 0; i < length; i++)
	{
		if (isspace((unsigned char) rest[i]))
			reader->part[i] = ' ';
		else
			reader->part[i] = rest[i] > ' ' && rest[i] <= '~' ? rest[i] : '?';
	}
	reader->part[length] = '\0';
	return end;
}

/* All parts of a definition, separated by commas. */
static bool
read_definition(LayoutReader *reader, const char *rest)
{
	bool		first = true;

	for (;; rest++)
	{
		rest = take_part(reader, rest);
		if (!read_part(reader, first))
			return false;
		if (*rest == '\0')
			return true;
		first = false;
	}
}

/* What can only be said of the whole: needed fields, sum of widths, end. */
static bool
complete_layout(LayoutReader *reader)
{
	SnowflakeLayout *layout = reader->layout;
	int			sum = 0;
	uint64		ticks;

	if (layout->bits[SNOWFLAKE_TIMESTAMP] == 0 ||
		layout->bits[SNOWFLAKE_SEQUENCE] == 0)
		return refuse_definition(reader,
								 "Add the field, as in \"timestamp 41, worker 10, sequence 12\".",
								 "A layout needs at least 1 bit of %s.",
								 layout->bits[SNOWFLAKE_TIMESTAMP] == 0 ? "timestamp" :
								 "sequence");
	for (int i = 0; i < reader->num_fields; i++)
		sum += layout->bits[reader->order[i]];
	if (sum > SNOWFLAKE_MAX_BITS)
		return refuse_definition(reader,
								 "Make a field narrower; ids are never negative, so the top bit of a bigint is not used.",
								 "The widths add up to %d bits, more than %d (last part \"%s\").",
								 sum, SNOWFLAKE_MAX_BITS, reader->part);
	layout->total_bits = (uint8) sum;
	for (int i = 0; i < reader->num_fields; i++)
	{
		sum -= layout->bits[reader->order[i]];
		layout->shift[reader->order[i]] = (uint8) sum;
	}

	/* the ticks that end before the end of timestamptz */
	ticks = ((uint64) END_TIMESTAMP - 1 - (uint64) layout->epoch) /
		(uint64) layout->tick_us;
	layout->max_tick =
		Min(snowflake_field_max(layout, SNOWFLAKE_TIMESTAMP), ticks - 1);
	return true;
}

/*
 * Reads a definition or the name of a preset.  False, with *error filled, if
 * it is not valid; *layout is then undefined.
 */
bool
snowflake_layout_read(const char *definition, SnowflakeLayout *layout,
					  SnowflakeLayoutError *error)
{
	LayoutReader reader = {.layout = layout,.error = error};

	memset(layout, 0, sizeof(*layout));
	layout->tick_us = 1000;
	layout->epoch = -(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
	return read_definition(&reader, definition) && complete_layout(&reader);
}

/*
 * The canonical definition: all parts spelled out, so equal layouts have equal
 * ones.
 */
void
snowflake_layout_define(const SnowflakeLayout *layout,
						char definition[SNOWFLAKE_DEFINITION_SIZE])
{
	const size_t size = SNOWFLAKE_DEFINITION_SIZE;
	int			length = 0;
	int			end = layout->total_bits;
	int64		tick = layout->tick_us;
	const char *unit = "us";

	while (end > 0)
		for (int field = 0; field < SNOWFLAKE_NUM_FIELDS; field++)
			if (layout->bits[field] > 0 &&
				layout->shift[field] + layout->bits[field] == end)
			{
				length += snprintf(definition + length, size - length,
								   "%s %d, ",
								   field_names[field], layout->bits[field]);
				end = layout->shift[field];
			}
	if (tick % USECS_PER_SEC == 0)
	{
		tick /= USECS_PER_SEC;
		unit = "s";
	}
	else if (tick % 1000 == 0)
	{
		tick /= 1000;
		unit = "ms";
	}
	length += snprintf(definition + length, size - length,
					   "tick " INT64_FORMAT "%s, epoch ", tick, unit);
	snowflake_epoch_write(layout->epoch, definition + length, size - length);
}

/*
 * Whether two layouts make the same ids of the same time, node number and
 * sequence: then they differ at most in how the node number is split.
 */
bool
snowflake_layout_same_ids(const SnowflakeLayout *a, const SnowflakeLayout *b)
{
	if (a->tick_us != b->tick_us || a->epoch != b->epoch ||
		snowflake_node_max(a) != snowflake_node_max(b) ||
		a->bits[SNOWFLAKE_TIMESTAMP] != b->bits[SNOWFLAKE_TIMESTAMP] ||
		a->shift[SNOWFLAKE_TIMESTAMP] != b->shift[SNOWFLAKE_TIMESTAMP] ||
		a->bits[SNOWFLAKE_SEQUENCE] != b->bits[SNOWFLAKE_SEQUENCE] ||
		a->shift[SNOWFLAKE_SEQUENCE] != b->shift[SNOWFLAKE_SEQUENCE])
		return false;
	for (uint64 bit = 1; bit <= snowflake_node_max(a); bit <<= 1)
		if (snowflake_node_place(a, bit) != snowflake_node_place(b, bit))
			return false;
	return true;
}

/* The preset with this layout, or NULL. */
const char *
snowflake_layout_name(const SnowflakeLayout *layout)
{
	for (int i = 0; i < snowflake_num_presets; i++)
	{
		SnowflakeLayout preset;
		SnowflakeLayoutError error;

		if (snowflake_layout_read(snowflake_presets[i].definition, &preset,
								  &error) &&
			memcmp(layout->bits, preset.bits, sizeof(preset.bits)) == 0 &&
			memcmp(layout->shift, preset.shift, sizeof(preset.shift)) == 0 &&
			layout->tick_us == preset.tick_us && layout->epoch == preset.epoch)
			return snowflake_presets[i].name;
	}
	return NULL;
}
