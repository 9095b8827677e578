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

/* Reads exactly n digits; returns NULL if there are fewer. */
static const char *
read_digits(const char *p, int n, int *value)
{
	*value = 0;
	for (; n > 0; n--, p++)
	{
		if (*p < '0' || *p > '9')
			return NULL;
		*value = *value * 10 + (*p - '0');
	}
	return p;
}

/* Reads the character wanted, then exactly two digits up to max. */
static const char *
read_two(const char *p, char wanted, int max, int *value)
{
	if (p == NULL || *p != wanted)
		return NULL;
	p = read_digits(p + 1, 2, value);
	return *value <= max ? p : NULL;
}

/* YYYY-MM-DD into days since 2000-01-01; years 1 to 9999. */
static const char *
read_date(const char *p, int *days)
{
	int			year,
				month,
				day;

	p = read_digits(p, 4, &year);
	p = read_two(p, '-', MONTHS_PER_YEAR, &month);
	p = read_two(p, '-', 31, &day);
	if (p == NULL || year < 1 || month < 1 || day < 1 ||
		day > day_tab[isleap(year)][month - 1])
		return NULL;
	*days = date2j(year, month, day) - POSTGRES_EPOCH_JDATE;
	return p;
}

/* HH:MM:SS with up to six digits of a fraction, into microseconds. */
static const char *
read_time(const char *p, int64 *time)
{
	int			hour,
				minute,
				second,
				unit = USECS_PER_SEC;

	p = read_digits(p, 2, &hour);
	p = read_two(p, ':', MINS_PER_HOUR - 1, &minute);
	p = read_two(p, ':', SECS_PER_MINUTE - 1, &second);
	if (p == NULL || hour >= HOURS_PER_DAY)
		return NULL;
	*time = ((hour * MINS_PER_HOUR + minute) * SECS_PER_MINUTE + second) * USECS_PER_SEC;
	if (*p != '.')
		return p;
	for (p++; *p >= '0' && *p <= '9'; p++)
	{
		unit /= 10;
		if (unit == 0)
			return NULL;
		*time += (*p - '0') * unit;
	}
	return unit < USECS_PER_SEC ? p : NULL;
}

/* Z, +HH, +HHMM or +HH:MM, into microseconds east of UTC. */
static const char *
read_zone(const char *p, int64 *zone)
{
	int			sign = *p == '-' ? -1 : 1;
	int			hour,
				minute = 0;

	*zone = 0;
	if (*p == 'Z' || *p == 'z')
		return p + 1;
	if (*p != '+' && *p != '-')
		return NULL;
	p = read_digits(p + 1, 2, &hour);
	if (p == NULL || hour > MAX_TZDISP_HOUR)
		return NULL;
	if (*p == ':')
		p = read_two(p, ':', MINS_PER_HOUR - 1, &minute);
	else if (*p != '\0')
		p = read_digits(p, 2, &minute);
	if (p == NULL || minute >= MINS_PER_HOUR)
		return NULL;
	*zone = sign * (hour * USECS_PER_HOUR + minute * USECS_PER_MINUTE);
	return p;
}

/*
 * Reads an epoch such as 2010-11-04T01:42:54.657Z or 2016-09-20T00:00:00+08:00
 * (a blank for the T is accepted).  False if the text is anything else.
 */
bool
snowflake_epoch_read(const char *value, TimestampTz *epoch)
{
	const char *p;
	int			days;
	int64		time,
				zone;

	p = read_date(value, &days);
	if (p == NULL || (*p != 'T' && *p != 't' && *p != ' '))
		return false;
	p = read_time(p + 1, &time);
	if (p == NULL)
		return false;
	p = read_zone(p, &zone);
	if (p == NULL || *p != '\0')
		return false;
	*epoch = days * USECS_PER_DAY + time - zone;
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
