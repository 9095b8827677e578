/*
 * checker_clock.c
 *	  What a server's clock can have shown at a time.
 *
 * The items of the configuration overlap and leave gaps; in a gap the clock was right.
 * finish_clock() makes of them spans that follow each other, from the beginning of time.
 */
#include <stdlib.h>

#include "checker.h"

static int
compare_times(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a;
	int64_t		y = *(const int64_t *) b;

	return (x > y) - (x < y);
}

/* No item begins or ends in the span that begins at from. */
static ClockSpan
span_at(const Server *server, int64_t from)
{
	ClockSpan	span = {.from = from};
	bool		found = false;

	for (size_t i = 0; i < server->nclock_items; i++)
	{
		const ClockItem *item = &server->clock_items[i];

		if (from < item->from || from > item->to)
			continue;
		if (!found || item->offset < span.least)
			span.least = item->offset;
		if (!found || item->offset > span.greatest)
			span.greatest = item->offset;
		found = true;
	}
	return span;
}

void
finish_clock(Server *server)
{
	size_t		nborders = 0;
	int64_t    *borders = allocate((2 * server->nclock_items + 1) * sizeof(int64_t));

	borders[nborders++] = INT64_MIN;
	for (size_t i = 0; i < server->nclock_items; i++)
	{
		borders[nborders++] = server->clock_items[i].from;
		if (server->clock_items[i].to < FOR_EVER)
			borders[nborders++] = server->clock_items[i].to + 1;
	}
	qsort(borders, nborders, sizeof(int64_t), compare_times);
	server->clock_spans = allocate(nborders * sizeof(ClockSpan));
	for (size_t i = 0; i < nborders; i++)
		server->clock_spans[i] = span_at(server, borders[i]);
	server->nclock_spans = nborders;
	free(borders);
}

/* The least and greatest offset that can have been in force in between, both included. */
ClockSpan
clock_between(const Server *server, int64_t from, int64_t to)
{
	const ClockSpan *spans = server->clock_spans;
	size_t		low = 0;
	size_t		high = server->nclock_spans;
	ClockSpan	result;

	/* spans[low] begins at or before from, spans[high] after it */
	while (high - low > 1)
	{
		size_t		middle = (low + high) / 2;

		if (spans[middle].from <= from)
			low = middle;
		else
			high = middle;
	}
	result = spans[low];
	for (size_t i = low + 1; i < server->nclock_spans && spans[i].from <= to; i++)
	{
		if (spans[i].least < result.least)
			result.least = spans[i].least;
		if (spans[i].greatest > result.greatest)
			result.greatest = spans[i].greatest;
	}
	return result;
}
