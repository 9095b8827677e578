/*
 * checker_lease.c
 *	  Lease histories: who could issue ids of a node number for which time, and whether
 *	  that was recorded before it was done.
 *
 * The rows of a node number, in the order of their grants and without deleted ones,
 * divide id time: a row covers what is behind the greatest bound of all rows before it,
 * up to the bound of its last version.
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
	LeaseRow   *result;

	/* mostly it is the last one */
	for (size_t i = history->nrows; i-- > 0;)
		if (history->rows[i].row == row)
			return &history->rows[i];
	history->rows = make_room(history->rows, history->nrows, sizeof(LeaseRow));
	result = &history->rows[history->nrows++];
	*result = (LeaseRow) {.row = row,.server = allocate(strlen(server) + 1)};
	strcpy(result->server, server);
	return result;
}

/* A bound may only go down when it becomes known where the ids ended. */
static void
check_lowered(const LeaseTable *table, int64_t node, const LeaseRow *row, LeaseVersion new)
{
	const LeaseVersion *old;
	char		subject[200];

	if (row->nversions == 0)
		return;
	old = &row->versions[row->nversions - 1];
	if (new.until >= old->until || (new.released && !old->released))
		return;
	snprintf(subject, sizeof(subject), "id=- node=%" PRId64 " server=%s", node, row->server);
	add_violation(LOWERED, new.recorded, 1, subject, NO_STATEMENT, NO_STATEMENT,
				  "the bound of row %" PRId64 " of table %s went from %" PRId64 ", recorded at %" PRId64
				  ", down to %" PRId64 ", recorded at %" PRId64,
				  row->row, table->name, old->until, old->recorded, new.until, new.recorded);
}

void
add_lease(LeaseTable *table, int64_t node, int64_t row_number, const char *server,
		  LeaseVersion version, bool deleted)
{
	LeaseRow   *row = find_or_make_row(find_or_make_history(table, node), row_number, server);

	if (strcmp(row->server, server) != 0)
		cannot_check("row %" PRId64 " of node number %" PRId64 " in table %s belongs to %s and %s",
					 row_number, node, table->name, row->server, server);
	check_lowered(table, node, row, version);
	row->deleted |= deleted;
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
compare_bounds(const void *a, const void *b)
{
	int64_t		x = ((const LeaseVersion *) a)->until;
	int64_t		y = ((const LeaseVersion *) b)->until;

	return (x > y) - (x < y);
}

/* When was a bound as high as that of each version first recorded? */
static void
finish_versions(LeaseRow *row)
{
	int64_t		known = FOR_EVER;

	qsort(row->versions, row->nversions, sizeof(LeaseVersion), compare_bounds);
	for (size_t i = row->nversions; i-- > 0;)
	{
		if (row->versions[i].recorded < known)
			known = row->versions[i].recorded;
		row->versions[i].known = known;
	}
}

/* Whose number was granted to somebody else may not get more time. */
static void
check_taken(const LeaseHistory *history, const LeaseRow *row, int64_t granted)
{
	int64_t		before = INT64_MIN;
	const LeaseVersion *after = NULL;
	char		subject[200];

	for (size_t i = 0; i < row->nversions; i++)
	{
		const LeaseVersion *version = &row->versions[i];

		if (version->recorded <= granted && version->until > before)
			before = version->until;
		if (version->recorded > granted && (after == NULL || version->until > after->until))
			after = version;
	}
	if (after == NULL || after->until <= before)
		return;
	snprintf(subject, sizeof(subject), "id=- node=%" PRId64 " server=%s", history->node, row->server);
	add_violation(TAKEN, after->recorded, 1, subject, NO_STATEMENT, NO_STATEMENT,
				  "row %" PRId64 " was extended to %" PRId64 " after the next one was granted at %" PRId64,
				  row->row, after->until, granted);
}

/* Keeps the rows that cover something, in order of time. */
static void
finish_history(LeaseHistory *history)
{
	int64_t		reached = INT64_MIN;
	size_t		nkept = 0;

	qsort(history->rows, history->nrows, sizeof(LeaseRow), compare_rows);
	for (size_t i = 0; i < history->nrows; i++)
	{
		LeaseRow   *row = &history->rows[i];

		if (i + 1 < history->nrows)
			check_taken(history, row, history->rows[i + 1].versions[0].recorded);
		row->from = reached;
		row->until = row->versions[row->nversions - 1].until;
		if (row->deleted || row->until <= reached)
			continue;
		reached = row->until;
		finish_versions(row);
		history->rows[nkept++] = *row;
	}
	history->nrows = nkept;
}

void
finish_leases(LeaseTable *table)
{
	for (int i = 0; i < TABLE_BUCKETS; i++)
		for (LeaseHistory *history = table->buckets[i]; history; history = history->next)
			finish_history(history);
}

/* The first row whose span ends at or after that time. */
static const LeaseRow *
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
	return low < history->nrows ? &history->rows[low] : NULL;
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

/* NULL if the server could issue ids of this tick, and this was recorded. */
const char *
lease_failure(const LeaseHistory *history, const char *server,
			  int64_t begin, int64_t end, int64_t received)
{
	const LeaseRow *row = history ? find_row(history, end) : NULL;
	static char text[200];

	if (row == NULL || begin < row->from)
		return "no lease of the server covers it";
	if (strcmp(row->server, server) != 0)
		snprintf(text, sizeof(text), "the lease that covers it belongs to %s (row %" PRId64 ")",
				 row->server, row->row);
	else if (!is_recorded(row, end, received))
		snprintf(text, sizeof(text), "its bound was recorded only after it was received (row %" PRId64 ")",
				 row->row);
	else
		return NULL;
	return text;
}
