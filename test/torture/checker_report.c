/*
 * checker_report.c
 *	  What the checker prints about violations and deliveries.  It owns the violations:
 *	  of each kind their number, and the SHOWN ones that were received first.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checker.h"

#define SHOWN			10
#define SECOND			INT64_C(1000000)
#define GAP				(SECOND / 5)
#define RATE_BUCKET		(SECOND / 4)

typedef struct Violation
{
	int64_t		when;			/* real time; the list is in this order */
	char		subject[200];
	char		text[300];
	uint32_t	first;			/* statements, or NO_STATEMENT */
	uint32_t	second;
} Violation;

static const char *const kind_names[] = {
	"negative", "duplicate", "order", "ahead", "behind", "lease", "overlap", "lowered", "taken", "changed"
};

static Violation shown[NUM_VIOLATION_KINDS][SHOWN];
static int	nshown[NUM_VIOLATION_KINDS];
static uint64_t totals[NUM_VIOLATION_KINDS];

/* A violation by so many ids, that shows at a time. */
void
add_violation(ViolationKind kind, int64_t when, uint64_t ids, const char *subject,
			  uint32_t first, uint32_t second, const char *format,...)
{
	Violation	violation = {.when = when,.first = first,.second = second};
	Violation  *list = shown[kind];
	int			place = nshown[kind];
	va_list		args;

	totals[kind] += ids;
	while (place > 0 && list[place - 1].when > when)
		place--;
	if (place == SHOWN)
		return;
	if (nshown[kind] < SHOWN)
		nshown[kind]++;
	memmove(&list[place + 1], &list[place], (nshown[kind] - place - 1) * sizeof(Violation));
	list[place] = violation;
	snprintf(list[place].subject, sizeof(list[place].subject), "%s", subject);
	va_start(args, format);
	vsnprintf(list[place].text, sizeof(list[place].text), format, args);
	va_end(args);
}

const char *
describe_id(int64_t id, int64_t node, const Server *server)
{
	static char text[200];

	snprintf(text, sizeof(text), "id=%" PRId64 " node=%" PRId64 " server=%s", id, node, server->name);
	return text;
}

static void
print_time(const char *label, int64_t time)
{
	time_t		seconds = time / SECOND;
	struct tm	parts;
	char		text[40];

	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &parts));
	printf(" %s=%" PRId64 " (%s.%06dZ)", label, time, text, (int) (time % SECOND));
}

static void
print_statement(const char *label, uint32_t number)
{
	const Statement *statement = &statements[number];
	const LogRecord *record = statement->record;

	printf("  %s: log=%s kind=%s server=%s ids=%" PRIu64 " sqlstate=%.8s", label, statement->log->file,
		   statement->log->kind, statement->log->server->name, record->ids,
		   record->sqlstate[0] ? record->sqlstate : "-");
	print_time("sent", record->sent_real);
	print_time("received", record->received_real);
	printf(" sent_mono=%" PRId64 " received_mono=%" PRId64 "\n", record->sent_mono, record->received_mono);
}

/* Returns how many there are. */
uint64_t
print_violations(void)
{
	uint64_t	total = 0;

	for (int kind = 0; kind < NUM_VIOLATION_KINDS; kind++)
	{
		for (int i = 0; i < nshown[kind]; i++)
		{
			const Violation *violation = &shown[kind][i];

			printf("violation %s %s : %s\n", kind_names[kind], violation->subject, violation->text);
			if (violation->first != NO_STATEMENT)
				print_statement("first", violation->first);
			if (violation->second != NO_STATEMENT)
				print_statement("second", violation->second);
		}
		if (totals[kind] > 0)
			printf("violations %s %" PRIu64 "\n", kind_names[kind], totals[kind]);
		total += totals[kind];
	}
	return total;
}

static int
compare_deliveries(const void *a, const void *b)
{
	int64_t		x = ((const Delivery *) a)->received;
	int64_t		y = ((const Delivery *) b)->received;

	return (x > y) - (x < y);
}

static void
print_gaps(const Server *server, int64_t end)
{
	for (size_t i = 0; i < server->ndeliveries; i++)
	{
		int64_t		from = server->deliveries[i].received;
		int64_t		to = i + 1 < server->ndeliveries ? server->deliveries[i + 1].received : end;

		if (to - from >= GAP)
			printf("gap %s %" PRId64 " %" PRId64 "\n", server->name, from, to);
	}
}

/* Buckets without ids are left out. */
static void
print_rates(const Server *server)
{
	uint64_t	ids = 0;

	for (size_t i = 0; i < server->ndeliveries; i++)
	{
		int64_t		bucket = server->deliveries[i].received / RATE_BUCKET;

		ids += server->deliveries[i].ids;
		if (i + 1 < server->ndeliveries && server->deliveries[i + 1].received / RATE_BUCKET == bucket)
			continue;
		printf("rate %s %" PRId64 " %" PRIu64 "\n", server->name, bucket * RATE_BUCKET, ids);
		ids = 0;
	}
}

/* end is the latest time in any log. */
void
report_deliveries(Server *server, int64_t end)
{
	if (server->ndeliveries == 0)
		return;
	qsort(server->deliveries, server->ndeliveries, sizeof(Delivery), compare_deliveries);
	print_gaps(server, end);
	print_rates(server);
}

void
cannot_check(const char *format,...)
{
	va_list		args;

	fputs("checker: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(2);
}

void *
allocate(size_t size)
{
	void	   *result = calloc(1, size);

	if (result == NULL)
		cannot_check("out of memory");
	return result;
}

/* Room for one element more than count, in an array that only grows by this. */
void *
make_room(void *array, size_t count, size_t size)
{
	if ((count & (count - 1)) != 0)
		return array;
	array = realloc(array, (count ? count * 2 : 1) * size);
	if (array == NULL)
		cannot_check("out of memory");
	return array;
}
