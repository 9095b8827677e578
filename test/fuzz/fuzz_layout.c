/*
 * fuzz_layout.c
 *	  Fuzz target: the grammar of layouts, epochs, presets, and the arithmetic of ids.
 *
 * Input: a definition, a zero, and bytes from which the numbers are made.
 *
 * A definition is refused with an error that says enough, or gives a layout that keeps
 * every bound, and whose canonical text gives the same layout.  What that text means is
 * read and computed here once more, in another way: its widths make up the id from the
 * highest bits to the lowest, its epoch is a date of the Gregorian calendar.
 */
#include "fuzz.h"

#include <ctype.h>
#include <math.h>

#include "utils/timestamp.h"

#include "layout/layout.h"
#include "layout/fields.h"

/* The value of a field in the id at hand. */
#define PART(name)		snowflake_field_get(layout, id, SNOWFLAKE_##name)

/* Of years 1 to 9999, in microseconds since 2000-01-01. */
#define FIRST_EPOCH		(-730119 * USECS_PER_DAY)
#define END_EPOCH		(2921940 * USECS_PER_DAY)

/* The canonical text, read as what it is: widths from the highest bits down. */
typedef struct Fields
{
	int			num_fields;
	SnowflakeField field[SNOWFLAKE_NUM_FIELDS];
	int			bits[SNOWFLAKE_NUM_FIELDS];
} Fields;

static bool
is_same(const SnowflakeLayout *a, const SnowflakeLayout *b)
{
	return memcmp(a->bits, b->bits, sizeof(a->bits)) == 0 &&
		memcmp(a->shift, b->shift, sizeof(a->shift)) == 0 &&
		a->total_bits == b->total_bits && a->tick_us == b->tick_us &&
		a->epoch == b->epoch && a->max_tick == b->max_tick;
}

static void
check_bounds(const SnowflakeLayout *layout)
{
	uint64		used = 0;
	uint64		widest = (UINT64CONST(1) << layout->bits[SNOWFLAKE_TIMESTAMP]) - 1;
	__int128	past = layout->epoch + ((__int128) layout->max_tick + 1) * layout->tick_us;
	int			sum = 0;

	fuzz_check(layout->bits[SNOWFLAKE_TIMESTAMP] >= 1 && layout->bits[SNOWFLAKE_TIMESTAMP] <= 62);
	fuzz_check(layout->bits[SNOWFLAKE_SEQUENCE] >= 1);
	for (int field = 0; field < SNOWFLAKE_NUM_FIELDS; field++)
	{
		uint64		place = ((UINT64CONST(1) << layout->bits[field]) - 1) << layout->shift[field];

		fuzz_check(field == SNOWFLAKE_TIMESTAMP || layout->bits[field] <= 31);
		fuzz_check((used & place) == 0);
		used |= place;
		sum += layout->bits[field];
	}
	fuzz_check(sum <= 63 && layout->total_bits == sum);
	fuzz_check(used == (UINT64CONST(1) << sum) - 1);
	fuzz_check(layout->shift[SNOWFLAKE_TIMESTAMP] + layout->bits[SNOWFLAKE_TIMESTAMP] == sum);

	fuzz_check(layout->tick_us >= 1 && layout->tick_us <= 86400 * INT64CONST(1000000));
	fuzz_check(layout->epoch >= FIRST_EPOCH && layout->epoch < END_EPOCH);
	/* The end of the last tick is a time, that of the next is not. */
	fuzz_check(layout->max_tick <= widest && past < END_TIMESTAMP);
	fuzz_check(layout->max_tick == widest || past + layout->tick_us >= END_TIMESTAMP);
}

/* Days from 2000-03-01, by counting leap days; years begin in March. */
static int64
days_of(int64 year, int month, int day)
{
	year = year - 2000 - (month < 3);
	month = (month + 9) % 12;
	return year * 365 + (int64) floor(year / 4.0) - (int64) floor(year / 100.0) +
		(int64) floor(year / 400.0) + (153 * month + 2) / 5 + day - 1;
}

/* An epoch of which we know the form. */
static TimestampTz
read_canonical_epoch(const char *text)
{
	int			year,
				month,
				day,
				hour,
				minute,
				second,
				digits = 0,
				fraction = 0;

	fuzz_check(strlen(text) >= 20 && text[strlen(text) - 1] == 'Z');
	fuzz_check(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &year, &month, &day, &hour, &minute, &second) == 6);
	if (text[19] == '.')
		fuzz_check(sscanf(text + 20, "%d%n", &fraction, &digits) == 1 && (digits == 3 || digits == 6));
	fuzz_check(text[19 + (digits > 0) + digits] == 'Z');
	if (digits == 3)
		fraction *= 1000;
	return (days_of(year, month, day) + 60) * USECS_PER_DAY +
		((hour * 60 + minute) * 60 + second) * INT64CONST(1000000) + fraction;
}

/* The fields of a canonical text, and its epoch and tick compared with the layout's. */
static void
read_canonical(const char *definition, const SnowflakeLayout *layout, Fields *fields)
{
	const char *rest = definition;
	int			number,
				length;
	char		unit[3];

	fields->num_fields = 0;
	for (;;)
	{
		int			field = 0;

		while (field < SNOWFLAKE_NUM_FIELDS &&
			   strncmp(rest, snowflake_field_name(field), strlen(snowflake_field_name(field))) != 0)
			field++;
		if (field == SNOWFLAKE_NUM_FIELDS)
			break;
		rest += strlen(snowflake_field_name(field));
		fuzz_check(sscanf(rest, " %d, %n", &number, &length) == 1);
		fuzz_check(number == layout->bits[field] && fields->num_fields < SNOWFLAKE_NUM_FIELDS);
		rest += length;
		fields->field[fields->num_fields] = field;
		fields->bits[fields->num_fields++] = number;
	}
	fuzz_check(sscanf(rest, "tick %d%2[mus], epoch %n", &number, unit, &length) == 2);
	fuzz_check(layout->tick_us == number * (strcmp(unit, "s") == 0 ? INT64CONST(1000000) :
											strcmp(unit, "ms") == 0 ? 1000 : 1));
	fuzz_check(layout->epoch == read_canonical_epoch(rest + length));
}

/* The canonical text is read as the same layout, and so is the preset's name. */
static void
check_canonical(const SnowflakeLayout *layout, char *definition)
{
	char		again[SNOWFLAKE_DEFINITION_SIZE];
	const char *name = snowflake_layout_name(layout);
	SnowflakeLayout copy;
	SnowflakeLayoutError error;

	memset(definition, 0x7f, SNOWFLAKE_DEFINITION_SIZE);
	snowflake_layout_define(layout, definition);
	fuzz_check(strnlen(definition, SNOWFLAKE_DEFINITION_SIZE) < SNOWFLAKE_DEFINITION_SIZE - 1);
	fuzz_check(snowflake_layout_read(definition, &copy, &error) && is_same(layout, &copy));
	snowflake_layout_define(&copy, again);
	fuzz_check(strcmp(definition, again) == 0);
	fuzz_check(snowflake_layout_same_ids(layout, &copy));
	fuzz_check(strcmp(snowflake_layout_label(layout), name != NULL ? name : definition) == 0);
	if (name != NULL)
		fuzz_check(snowflake_layout_read(name, &copy, &error) && is_same(layout, &copy));
}

/* Neither case nor the kind and number of blanks change what a definition means. */
static void
check_spelling(const char *definition, const SnowflakeLayout *layout)
{
	char	   *other = pstrdup(definition);
	char	   *short_one = palloc(strlen(definition) + 1);
	char	   *end = short_one;
	SnowflakeLayout copy;
	SnowflakeLayoutError error;

	for (char *p = other; *p != '\0'; p++)
		*p = *p == ' ' ? '\t' : isupper((unsigned char) *p) ? tolower(*p) : toupper((unsigned char) *p);
	fuzz_check(snowflake_layout_read(other, &copy, &error) == (layout != NULL));
	fuzz_check(layout == NULL || is_same(layout, &copy));

	if (layout == NULL)
		return;
	for (const char *p = definition; *p != '\0'; p++)
		if (!isspace((unsigned char) *p))
			*end++ = *p;
		else if (end > short_one && end[-1] != ' ')
			*end++ = ' ';
	*end = '\0';
	fuzz_check(snowflake_layout_read(short_one, &copy, &error) && is_same(layout, &copy));
}

/* An epoch written in any zone is the same epoch. */
static void
check_zone(FuzzInput *input, TimestampTz epoch)
{
	int			hours = (int) fuzz_take_up_to(input, 15);
	int			minutes = (int) fuzz_take_up_to(input, 59);
	int			form = (int) fuzz_take(input, 1);
	int			sign = form & 1 ? -1 : 1;
	TimestampTz local = epoch + sign * (hours * 60 + minutes) * 60 * INT64CONST(1000000);
	char		text[64];
	char		zone[16];
	TimestampTz again;

	if (local < FIRST_EPOCH || local >= END_EPOCH)
		return;
	snowflake_epoch_write(local, text, sizeof(text));
	fuzz_check(read_canonical_epoch(text) == local);
	snprintf(zone, sizeof(zone), form & 2 ? "%c%02d:%02d" : "%c%02d%02d", sign < 0 ? '-' : '+', hours, minutes);
	if (minutes == 0 && form & 4)
		zone[3] = '\0';
	strlcpy(text + strlen(text) - 1, zone, sizeof(zone));
	fuzz_check(snowflake_epoch_read(text, &again) && again == epoch);
}

/* Any epoch, of whole seconds, milliseconds or microseconds, is written and read. */
static void
check_epoch(FuzzInput *input)
{
	static const int64 units[] = {1000000, 1000, 1};
	int64		unit = units[fuzz_take(input, 1) % 3];
	TimestampTz epoch = FIRST_EPOCH + (TimestampTz) fuzz_take_up_to(input, END_EPOCH - FIRST_EPOCH - 1) / unit * unit;
	TimestampTz again;
	char		text[64];

	snowflake_epoch_write(epoch, text, sizeof(text));
	fuzz_check(read_canonical_epoch(text) == epoch);
	fuzz_check(snowflake_epoch_read(text, &again) && again == epoch);
	check_zone(input, epoch);
}

/* Ids are their parts, one after the other as the definition says, and give them back. */
static void
check_parts(FuzzInput *input, const SnowflakeLayout *layout, const Fields *fields)
{
	uint64		value[SNOWFLAKE_NUM_FIELDS] = {0};
	uint64		node;
	int64		expected = 0;
	int64		id;

	for (int i = 0; i < fields->num_fields; i++)
	{
		uint64		max = layout->max_tick;

		if (fields->field[i] != SNOWFLAKE_TIMESTAMP)
			max = (UINT64CONST(1) << fields->bits[i]) - 1;
		value[fields->field[i]] = fuzz_take_up_to(input, max);
		expected = (expected << fields->bits[i]) | (int64) value[fields->field[i]];
	}
	node = snowflake_node_join(layout, value[SNOWFLAKE_DATACENTER], value[SNOWFLAKE_WORKER], value[SNOWFLAKE_CLOCK]);
	fuzz_check(node <= snowflake_node_max(layout));
	id = snowflake_id_pack(layout, value[SNOWFLAKE_TIMESTAMP], node, value[SNOWFLAKE_SEQUENCE]);
	fuzz_check(id == expected && id >= 0 && snowflake_id_in_layout(layout, id));

	fuzz_check(PART(TIMESTAMP) == value[SNOWFLAKE_TIMESTAMP] && PART(DATACENTER) == value[SNOWFLAKE_DATACENTER] &&
			   PART(WORKER) == value[SNOWFLAKE_WORKER] && PART(CLOCK) == value[SNOWFLAKE_CLOCK] &&
			   PART(SEQUENCE) == value[SNOWFLAKE_SEQUENCE]);
	fuzz_check(id >= snowflake_tick_first_id(layout, PART(TIMESTAMP)) && id <= snowflake_tick_last_id(layout, PART(TIMESTAMP)));
	fuzz_check(PART(TIMESTAMP) == 0 ||
			   snowflake_tick_last_id(layout, PART(TIMESTAMP) - 1) + 1 == snowflake_tick_first_id(layout, PART(TIMESTAMP)));

	/* the node number's order is that of its fields */
	fuzz_check(snowflake_node_place(layout, node) ==
			   (uint64) (id - snowflake_tick_first_id(layout, PART(TIMESTAMP)) -
						 ((int64) PART(SEQUENCE) << layout->shift[SNOWFLAKE_SEQUENCE])));

	/* any number is an id of the layout or is refused */
	id = (int64) fuzz_take(input, 8);
	if (id % 2 == 0)
		id = (int64) ((uint64) snowflake_layout_max_id(layout) + fuzz_take_up_to(input, 2));
	if (!snowflake_id_in_layout(layout, id))
	{
		fuzz_check(id < 0 || (uint64) id >> layout->total_bits != 0 ||
				   (uint64) id >> layout->shift[SNOWFLAKE_TIMESTAMP] > layout->max_tick);
		fuzz_refuses(snowflake_check_id(layout, id), ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE);
		return;
	}
	fuzz_check(fuzz_accepts(snowflake_check_id(layout, id)));
	fuzz_check(PART(TIMESTAMP) <= layout->max_tick);
	fuzz_check(id == snowflake_id_pack(layout, PART(TIMESTAMP),
									   snowflake_node_join(layout, PART(DATACENTER), PART(WORKER), PART(CLOCK)),
									   PART(SEQUENCE)));
}

/* A tick and the times in it. */
static void
check_ticks(FuzzInput *input, const SnowflakeLayout *layout)
{
	uint64		tick = fuzz_take_up_to(input, layout->max_tick);
	TimestampTz begin = (TimestampTz) (layout->epoch + (__int128) tick * layout->tick_us);
	TimestampTz last = begin + layout->tick_us - 1;
	TimestampTz at = begin + (TimestampTz) fuzz_take_up_to(input, (uint64) layout->tick_us - 1);

	fuzz_check(snowflake_tick_begin(layout, tick) == begin);
	fuzz_check(snowflake_tick_begin(layout, tick + 1) == last + 1);
	fuzz_check(snowflake_tick_at(layout, begin) == tick && snowflake_tick_at(layout, at) == tick &&
			   snowflake_tick_at(layout, last) == tick);
	fuzz_check(snowflake_tick_from(layout, begin) == tick && snowflake_tick_from(layout, last + 1) == tick + 1);
	fuzz_check(at == begin || snowflake_tick_from(layout, at) == tick + 1);
	fuzz_check(snowflake_tick_from(layout, layout->epoch - 1) == 0);
}

/* What users give: within the bounds it makes an id of exactly these parts, outside an error. */
static void
check_compose(FuzzInput *input, const SnowflakeLayout *layout)
{
	TimestampTz end = snowflake_tick_begin(layout, layout->max_tick + 1);
	int32		value[SNOWFLAKE_NUM_FIELDS];
	TimestampTz at;
	int64		id = 0;
	int64		first = 0;
	int64		last = 0;
	bool		fits = true;

	switch (fuzz_take(input, 1) % 5)
	{
		case 0:
			at = (TimestampTz) fuzz_take(input, 8);
			break;
		case 1:
			at = layout->epoch - (TimestampTz) fuzz_take(input, 1);
			break;
		case 2:
			at = end - 1 + (TimestampTz) fuzz_take_up_to(input, 2);
			break;
		default:
			at = (TimestampTz) ((uint64) layout->epoch + fuzz_take_up_to(input, (uint64) end - (uint64) layout->epoch));
	}
	for (int field = SNOWFLAKE_DATACENTER; field < SNOWFLAKE_NUM_FIELDS; field++)
	{
		uint64		max = (UINT64CONST(1) << layout->bits[field]) - 1;

		/* one more than fits comes often, too */
		value[field] = fuzz_take(input, 1) % 4 != 0 ? (int32) fuzz_take_up_to(input, max + fuzz_take(input, 1) % 2) :
			(int32) fuzz_take(input, 4);
		fits = fits && value[field] >= 0 && (uint64) value[field] <= max;
	}

#define COMPOSE() \
	(id = snowflake_compose_id(layout, at, value[SNOWFLAKE_DATACENTER], value[SNOWFLAKE_WORKER], \
							   value[SNOWFLAKE_CLOCK], value[SNOWFLAKE_SEQUENCE]))

	if (at < layout->epoch || at >= end)
	{
		fuzz_refuses(COMPOSE(), ERRCODE_DATETIME_VALUE_OUT_OF_RANGE);
		if (TIMESTAMP_NOT_FINITE(at))
		{
			fuzz_check(fuzz_accepts(first = snowflake_first_id_at(layout, at)));
			fuzz_check(fuzz_accepts(last = snowflake_last_id_at(layout, at)));
			fuzz_check(first == last && first == (at == DT_NOBEGIN ? 0 : snowflake_layout_max_id(layout)));
			return;
		}
		fuzz_refuses(snowflake_first_id_at(layout, at), ERRCODE_DATETIME_VALUE_OUT_OF_RANGE);
		fuzz_refuses(snowflake_last_id_at(layout, at), ERRCODE_DATETIME_VALUE_OUT_OF_RANGE);
	}
	else if (!fits)
		fuzz_refuses(COMPOSE(), ERRCODE_INVALID_PARAMETER_VALUE);
	else
	{
		fuzz_check(fuzz_accepts(COMPOSE()));
		fuzz_check(at >= snowflake_tick_begin(layout, PART(TIMESTAMP)) && at < snowflake_tick_begin(layout, PART(TIMESTAMP) + 1));
		fuzz_check(PART(DATACENTER) == (uint32) value[SNOWFLAKE_DATACENTER] &&
				   PART(WORKER) == (uint32) value[SNOWFLAKE_WORKER] &&
				   PART(CLOCK) == (uint32) value[SNOWFLAKE_CLOCK] &&
				   PART(SEQUENCE) == (uint32) value[SNOWFLAKE_SEQUENCE]);
		fuzz_check(fuzz_accepts(first = snowflake_first_id_at(layout, at)) && first <= id);
		fuzz_check(fuzz_accepts(last = snowflake_last_id_at(layout, at)) && last >= id);
		fuzz_check(last - first == ((int64) 1 << layout->shift[SNOWFLAKE_TIMESTAMP]) - 1);
	}
}

/* The error of a layout that is refused: whole sentences, of ASCII whatever was given. */
static void
check_refusal(const char *definition, const SnowflakeLayoutError *error)
{
	SnowflakeLayout layout;

	fuzz_refuses(snowflake_layout_parse(definition, &layout), ERRCODE_INVALID_PARAMETER_VALUE);
	fuzz_check(strcmp(fuzz_error.detail, error->detail) == 0 && strcmp(fuzz_error.hint, error->hint) == 0);
	for (const char *p = error->detail; *p != '\0'; p++)
		fuzz_check(*p >= ' ' && *p <= '~');
	fuzz_layout_setting = definition;
	if (definition[0] != '\0')
		fuzz_refuses(snowflake_default_layout(), ERRCODE_INVALID_PARAMETER_VALUE);
}

/*
 * The layout of a setting, which is kept; a long setting must not be taken for its first
 * part, nor the other way round.
 */
static void
check_setting(const char *text, const SnowflakeLayout *layout)
{
	const SnowflakeLayout *by_setting = NULL;
	SnowflakeLayout other;
	SnowflakeLayoutError error;
	char	   *part = pstrdup(text);

	fuzz_layout_setting = text;
	fuzz_check(fuzz_accepts(by_setting = snowflake_default_layout()) && is_same(layout, by_setting));
	if (strlen(text) < 256)
		return;
	part[255] = '\0';
	fuzz_layout_setting = part;
	if (snowflake_layout_read(part, &other, &error))
		fuzz_check(fuzz_accepts(by_setting = snowflake_default_layout()) && is_same(&other, by_setting));
	else
		fuzz_refuses(snowflake_default_layout(), ERRCODE_INVALID_PARAMETER_VALUE);
}

static void
check_accepted(FuzzInput *input, const char *text, const SnowflakeLayout *layout)
{
	char		definition[SNOWFLAKE_DEFINITION_SIZE];
	SnowflakeLayout parsed;
	Fields		fields;

	check_bounds(layout);
	check_canonical(layout, definition);
	read_canonical(definition, layout, &fields);

	fuzz_check(fuzz_accepts(snowflake_layout_parse(text, &parsed)) && is_same(layout, &parsed));
	check_setting(text, layout);
	if (layout->bits[SNOWFLAKE_WORKER] > 0 && layout->tick_us <= 1000000)
		fuzz_check(fuzz_accepts(snowflake_check_issuable(layout)));
	else
		fuzz_refuses(snowflake_check_issuable(layout), ERRCODE_INVALID_PARAMETER_VALUE);

	check_zone(input, layout->epoch);
	check_parts(input, layout, &fields);
	check_ticks(input, layout);
	check_compose(input, layout);
	check_epoch(input);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FuzzInput	input = {data, size};
	char	   *definition = fuzz_take_string(&input);
	SnowflakeLayout layout;
	SnowflakeLayoutError error;

	/* nothing may be left as it was */
	memset(&layout, 0x7f, sizeof(layout));
	memset(&error, 0x7f, sizeof(error));
	if (snowflake_layout_read(definition, &layout, &error))
	{
		check_spelling(definition, &layout);
		check_accepted(&input, definition, &layout);
	}
	else
	{
		check_spelling(definition, NULL);
		check_refusal(definition, &error);
	}
	fuzz_end_statement();
	return 0;
}
