/*
 * dates.c
 *	  The server's functions of dates, for src/layout/epoch.c in programs without a server.
 *
 * Years begin in March here, so that a leap day is the last.
 */
#include "postgres.h"

#include "utils/datetime.h"

const int	day_tab[2][13] = {
	{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0},
	{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0}
};

int
date2j(int year, int month, int day)
{
	int			months = (month + 9) % 12;
	int			years = year - (month < 3);

	return 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day + 1721119;
}

void
j2date(int julian, int *year, int *month, int *day)
{
	int			years = (int) ((julian - date2j(0, 3, 1)) * INT64CONST(400) / 146097);
	int			days;
	int			months;

	/* at most one more */
	if (date2j(years + 1, 3, 1) <= julian)
		years++;
	days = julian - date2j(years, 3, 1);
	months = (5 * days + 2) / 153;
	*year = years + (months >= 10);
	*month = (months + 2) % 12 + 1;
	*day = days - (153 * months + 2) / 5 + 1;
}
