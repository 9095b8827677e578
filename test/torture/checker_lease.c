/*
 * checker_lease.c
 *	  Lease histories: which server could issue ids of a node number for which time, and
 *	  whether that was recorded before it was done.
 *
 * A row covers the id time from its start to the end that its last version has.  The rows
 * of a node number in a table are checked against each other: a lease starts at or after
 * the ends of all rows before it.  So the ids of two leases differ, if each id is covered
 * by a lease of its server.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checker.h"

static LeaseHistory **
bucket_of(const LeaseTable *table, int64_t node)
{
	return (LeaseHistory **) &table->buckets[(uint64_t) node % TABLE_BUCKETS];
}

const LeaseHistory *
find_history(const LeaseTable *table, int64_t node)
{
	for (const LeaseHistory *history = *bucket_of(table, node); history; history = history->next)
		if (history->node == node)
			return history;
	return NULL;
}

static LeaseHistory *
find_or_make_history(LeaseTable *table, int64_t node)
{
	LeaseHistory *history = (LeaseHistory *) find_history(table, node);
	LeaseHistory **bucket = bucket_of(table, node);

	if (history)
		return history;
	history = allocate(sizeof(LeaseHistory));
	history->node = node;
	history->next = *bucket;
	*bucket = history;
	return history;
}

static LeaseRow *
find_or_make_row(LeaseHistory *history, int64_t row, const char *server)
{
	LeaseRow	new = {.row = row};
	LeaseRow   *result;

	/* mostly it is the last one */
	for (size_t i = history->nrows; i-- > 0;)
		if (history->rows[i].row == row)
			return &history->rows[i];
	history->rows = make_room(history->rows, history->nrows, sizeof(LeaseRow));
	result = &history->rows[history->nrows++];
	*result = new;
	result->server = allocate(strlen(server) + 1);
	strcpy(result->server, server);
	return result;
}

static void
report_row(ViolationKind kind, int64_t when, const LeaseTable *table, int64_t node,
		   const LeaseRow *row, const char *text)
{
	char		subject[200];

	snprintf(subject, sizeof(subject), "id=- node=%" PRId64 " server=%s", node, row->server);
	add_violation(kind, when, 1, subject, NO_STATEMENT, NO_STATEMENT,
				  "row %" PRId64 " of table %s %s", row->row, table->name, text);
}

/* From one version of a row to the next. */
static void
check_change(const LeaseTable *table, int64_t node, const LeaseRow *row,
			 const LeaseVersion *old, const LeaseVersion *new)
{
	char		text[200];

	if (new->state == DELETED)
		report_row(CHANGED, new->recorded, table, node, row, "was deleted");
	else if (new->starts != old->starts)
		report_row(CHANGED, new->recorded, table, node, row, "starts at another time than before");
	/* what is taken over again, from a later dump, may have a later end */
	else if (old->state == CLOSED && (new->state != CLOSED || (new->starts != TAKEN_OVER ? new->until != old->until :
															   new->until < old->until)))
	{
		snprintf(text, sizeof(text), "was closed at %" PRId64 ", and is %s until %" PRId64,
				 old->until, new->state == OPEN ? "open" : "closed", new->until);
		report_row(CHANGED, new->recorded, table, node, row, text);
	}
	else if (old->state == OPEN && new->state == OPEN && new->until < old->until)
	{
		snprintf(text, sizeof(text), "went from %" PRId64 ", recorded at %" PRId64 ", down to %" PRId64,
				 old->until, old->recorded, new->until);
		report_row(LOWERED, new->recorded, table, node, row, text);
	}
}

void
add_lease(LeaseTable *table, int64_t node, int64_t row_number, const char *server,
		  LeaseVersion version)
{
	LeaseRow   *row = find_or_make_row(find_or_make_history(table, node), row_number, server);

	if (strcmp(row->server, server) != 0)
		cannot_check("row %" PRId64 " of node number %" PRId64 " in table %s belongs to %s and %s",
					 row_number, node, table->name, row->server, server);
	if (row->nversions > 0)
		check_change(table, node, row, &row->versions[row->nversions - 1], &version);
	row->versions = make_room(row->versions, row->nversions, sizeof(LeaseVersion));
	row->versions[row->nversions++] = version;
}

static int
compare_rows(const void *a, const void *b)
{
	int64_t		x = ((const LeaseRow *) a)->row;
	int64_t		y = ((const LeaseRow *) b)->row;

	return (x > y) - (x < y);
}

static int
compare_row_ends(const void *a, const void *b)
{
	int64_t		x = ((const LeaseRow *) a)->until;
	int64_t		y = ((const LeaseRow *) b)->until;

	return (x > y) - (x < y);
}

static int
compare_ends(const void *a, const void *b)
{
	int64_t		x = ((const LeaseVersion *) a)->until;
	int64_t		y = ((const LeaseVersion *) b)->until;

	return (x > y) - (x < y);
}

/* When was an end as late as that of each version first recorded? */
static void
finish_versions(LeaseRow *row)
{
	int64_t		known = FOR_EVER;

	qsort(row->versions, row->nversions, sizeof(LeaseVersion), compare_ends);
	for (size_t i = row->nversions; i-- > 0;)
	{
		if (row->versions[i].recorded < known)
			known = row->versions[i].recorded;
		row->versions[i].known = known;
	}
}

/*
 * A number is granted anew only when its lease is closed, which then gets no more time.  A
 * row that was taken over is a lease of another table.
 */
static void
check_taken(const LeaseTable *table, int64_t node, const LeaseRow *row, int64_t granted)
{
	int64_t		before = INT64_MIN;
	const LeaseVersion *after = NULL;
	bool		open = false;
	char		text[200];

	if (row->starts == TAKEN_OVER)
		return;
	for (size_t i = 0; i < row->nversions; i++)
	{
		const LeaseVersion *version = &row->versions[i];

		if (version->recorded <= granted)
			open = version->state == OPEN;
		if (version->recorded <= granted && version->until > before)
			before = version->until;
		if (version->recorded > granted && (after == NULL || version->until > after->until))
			after = version;
	}
	if (open)
	{
		snprintf(text, sizeof(text), "was open when the next one was granted at %" PRId64, granted);
		report_row(TAKEN, granted, table, node, row, text);
	}
	if (after == NULL || after->until <= before)
		return;
	snprintf(text, sizeof(text), "was extended to %" PRId64 " after the next one was granted at %" PRId64,
			 after->until, granted);
	report_row(TAKEN, after->recorded, table, node, row, text);
}

/* The next lease of the number, NULL if there is none. */
static const LeaseRow *
next_lease(const LeaseHistory *history, size_t i)
{
	while (++i < history->nrows)
		if (history->rows[i].starts != TAKEN_OVER)
			return &history->rows[i];
	return NULL;
}

/* Keeps the rows that cover something, in the order of their ends. */
static void
finish_history(const LeaseTable *table, LeaseHistory *history)
{
	int64_t		reached = INT64_MIN;
	size_t		nkept = 0;
	char		text[200];

	qsort(history->rows, history->nrows, sizeof(LeaseRow), compare_rows);
	for (size_t i = 0; i < history->nrows; i++)
	{
		LeaseRow   *row = &history->rows[i];

		row->starts = row->versions[0].starts;
		row->granted = row->versions[0].recorded;
		row->until = row->versions[row->nversions - 1].until;
	}
	for (size_t i = 0; i < history->nrows; i++)
	{
		LeaseRow   *row = &history->rows[i];
		const LeaseRow *next = next_lease(history, i);
		int64_t		end;

		if (next)
			check_taken(table, history->node, row, next->granted);
		if (row->starts != TAKEN_OVER && row->starts < reached)
		{
			snprintf(text, sizeof(text), "starts at %" PRId64 ", before %" PRId64
					 ", the end of an earlier one", row->starts, reached);
			report_row(OVERLAP, row->granted, table, history->node, row, text);
		}
		/* what is taken over again later may be of another time */
		end = row->starts == TAKEN_OVER ? row->versions[0].until : row->until;
		if (end > reached)
			reached = end;
	}
	for (size_t i = 0; i < history->nrows; i++)
	{
		LeaseRow   *row = &history->rows[i];

		if (row->starts == TAKEN_OVER || row->until <= row->starts)
			continue;
		finish_versions(row);
		history->rows[nkept++] = *row;
	}
	history->nrows = nkept;
	qsort(history->rows, nkept, sizeof(LeaseRow), compare_row_ends);
}

void
finish_leases(LeaseTable *table)
{
	for (int i = 0; i < TABLE_BUCKETS; i++)
		for (LeaseHistory *history = table->buckets[i]; history; history = history->next)
			finish_history(table, history);
}

/* The first row that ends at or after that time, or history->nrows. */
static size_t
find_row(const LeaseHistory *history, int64_t end)
{
	size_t		low = 0;
	size_t		high = history->nrows;

	while (low < high)
	{
		size_t		middle = (low + high) / 2;

		if (history->rows[middle].until < end)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool
is_recorded(const LeaseRow *row, int64_t end, int64_t received)
{
	size_t		low = 0;
	size_t		high = row->nversions;

	while (low < high)
	{
		size_t		middle = (low + high) / 2;

		if (row->versions[middle].until < end)
			low = middle + 1;
		else
			high = middle;
	}
	return low < row->nversions && row->versions[low].known <= received;
}

/*
 * What keeps the server from issuing ids of this tick, by one history; NULL: nothing.
 * Mostly the first row that is looked at is the right one.
 */
static const char *
failure_in(const LeaseHistory *history, const char *server,
		   int64_t begin, int64_t end, int64_t received)
{
	const LeaseRow *other = NULL;
	const LeaseRow *late = NULL;
	static char text[200];

	for (size_t i = find_row(history, end); i < history->nrows; i++)
	{
		const LeaseRow *row = &history->rows[i];

		if (row->starts > begin)
			continue;
		if (strcmp(row->server, server) != 0)
			other = other ? other : row;
		else if (is_recorded(row, end, received))
			return NULL;
		else
			late = late ? late : row;
	}
	if (late)
		snprintf(text, sizeof(text), "its lease was recorded only after it was received (row %" PRId64 ")",
				 late->row);
	else if (other)
		snprintf(text, sizeof(text), "the lease that covers it belongs to %s (row %" PRId64 ")",
				 other->server, other->row);
	else
		return "no lease of the server covers it";
	return text;
}

/* NULL: the server could issue ids of this tick, by a lease in its tables[*table]. */
const char *
lease_failure(const NodeUse *use, int64_t begin, int64_t end, int64_t received, int *table)
{
	const char *result = "no lease of the server covers it";

	for (*table = 0; *table < use->server->ntables; ++*table)
	{
		if (use->histories[*table] == NULL)
			continue;
		result = failure_in(use->histories[*table], use->server->name, begin, end, received);
		if (result == NULL)
			return NULL;
	}
	return result;
}
