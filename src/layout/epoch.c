/*
 * epoch.c
 *	  Reading and writing epochs: ISO 8601 with an explicit zone.
 *
 * timestamptz input is not used here: it would accept a time without a zone
 * and read it in the session's, so that one definition could mean two layouts.
 */
#include "postgres.h"

#include "utils/datetime.h"

#include "layout/layout.h"

/* Years 1 to 9999 in UTC, so that every epoch can be written as well. */
#define FIRST_EPOCH		((date2j(1, 1, 1) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY)
#define END_EPOCH		((date2j(10000, 1, 1) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY)

/* Whether a text begins as the form says, in which each 0 stands for a digit. */
static bool
has_form(const char *text, const char *form)
{
	for (; *form != '\0'; text++, form++)
		if (*form == '0' ? *text < '0' || *text > '9' : *text != *form)
			return false;
	return true;
}

/* The number that two digits are. */
static int
two(const char *digits)
{
	return (digits[0] - '0') * 10 + (digits[1] - '0');
}

/* One to six digits after a point, if there is one, into microseconds. */
static const char *
read_fraction(const char *p, int *fraction)
{
	int			unit = USECS_PER_SEC;

	*fraction = 0;
	if (*p != '.')
		return p;
	for (p++; *p >= '0' && *p <= '9'; p++)
	{
		unit /= 10;
		if (unit == 0)
			return NULL;
		*fraction += (*p - '0') * unit;
	}
	return unit < USECS_PER_SEC ? p : NULL;
}

/* Z, +HH, +HHMM or +HH:MM at the end of the text, into microseconds east of UTC. */
static bool
read_zone(const char *p, int64 *zone)
{
	int			sign = *p == '-' ? -1 : 1;
	int			hour,
				minute = 0;

	*zone = 0;
	if (*p == 'Z' || *p == 'z')
		return p[1] == '\0';
	if ((*p != '+' && *p != '-') || !has_form(p + 1, "00"))
		return false;
	hour = two(p + 1);
	p += p[3] == ':' ? 4 : 3;
	if (has_form(p, "00"))
	{
		minute = two(p);
		p += 2;
	}
	else if (p[-1] == ':')
		return false;
	if (*p != '\0' || hour > MAX_TZDISP_HOUR || minute >= MINS_PER_HOUR)
		return false;
	*zone = sign * (hour * USECS_PER_HOUR + minute * USECS_PER_MINUTE);
	return true;
}

/*
 * Reads an epoch such as 2010-11-04T01:42:54.657Z or 2016-09-20T00:00:00+08:00
 * (a blank for the T is accepted).  False if the text is anything else.
 */
bool
snowflake_epoch_read(const char *value, TimestampTz *epoch)
{
	const char *p;
	int			year,
				month,
				day,
				fraction;
	int64		seconds,
				zone;

	if (!has_form(value, "0000-00-00") ||
		(value[10] != 'T' && value[10] != 't' && value[10] != ' ') ||
		!has_form(value + 11, "00:00:00"))
		return false;
	year = two(value) * 100 + two(value + 2);
	month = two(value + 5);
	day = two(value + 8);
	if (year < 1 || month < 1 || month > MONTHS_PER_YEAR || day < 1 ||
		day > day_tab[isleap(year)][month - 1] ||
		two(value + 11) >= HOURS_PER_DAY ||
		two(value + 14) >= MINS_PER_HOUR || two(value + 17) >= SECS_PER_MINUTE)
		return false;
	seconds = (two(value + 11) * MINS_PER_HOUR + two(value + 14)) * SECS_PER_MINUTE +
		two(value + 17);
	p = read_fraction(value + 19, &fraction);
	if (p == NULL || !read_zone(p, &zone))
		return false;
	*epoch = (date2j(year, month, day) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY +
		seconds * USECS_PER_SEC + fraction - zone;
	return *epoch >= FIRST_EPOCH && *epoch < END_EPOCH;
}

/* Writes an epoch in UTC, with the digits of the fraction that it needs. */
void
snowflake_epoch_write(TimestampTz epoch, char *buffer, size_t size)
{
	int64		days = epoch / USECS_PER_DAY;
	int64		time = epoch % USECS_PER_DAY;
	int			year,
				month,
				day,
				fraction,
				seconds,
				length;

	if (time < 0)
	{
		time += USECS_PER_DAY;
		days--;
	}
	j2date((int) days + POSTGRES_EPOCH_JDATE, &year, &month, &day);
	seconds = (int) (time / USECS_PER_SEC);
	fraction = (int) (time % USECS_PER_SEC);
	length = snprintf(buffer, size, "%04d-%02d-%02dT%02d:%02d:%02d", year,
					  month, day,
					  seconds / SECS_PER_HOUR,
					  seconds / SECS_PER_MINUTE % MINS_PER_HOUR,
					  seconds % SECS_PER_MINUTE);
	if (fraction % 1000 != 0)
		length += snprintf(buffer + length, size - length, ".%06d", fraction);
	else if (fraction != 0)
		length += snprintf(buffer + length, size - length, ".%03d",
						   fraction / 1000);
	snprintf(buffer + length, size - length, "Z");
}
