/*
 * compare.c
 *	  What the programs share that compare SQL functions with their twins in C
 *	  (compare.h).
 */
#include "postgres.h"

#include <libpq-fe.h>

#include "compare.h"

int			seed;
int			sequence;
uint64		random_state;
int64		num_calls;
int			layouts_of_sequence[3];
char		actual[TEXT_SIZE];
char		expected[TEXT_SIZE];

bool		alone;
uint64		hash;

static PGconn *databases[NUM_TABLES];
static char *history[LOG_SIZE]; /* the statements of the sequence */
static int	num_history;

/*
 * Some make ids as great as others do at the same time; some begin or end while
 * the calls are made.
 */
static const char *const definitions[NUM_LAYOUTS] = {
	"timestamp 41, worker 2, sequence 1, tick 1ms, epoch 2020-01-01T00:00:00Z",
	"timestamp 41, worker 3, sequence 12, tick 1ms, epoch 2020-01-01T00:00:00Z",
	"timestamp 41, datacenter 1, worker 1, clock 1, sequence 4, tick 1ms, epoch 2020-01-01T00:00:00Z",
	"timestamp 41, worker 2, clock 1, sequence 4, tick 1ms, epoch 2020-01-01T00:00:00Z",
	"timestamp 41, sequence 4, worker 3, tick 1ms, epoch 2020-01-01T00:00:00Z",
	"timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2014-09-01T00:00:00Z",
	"timestamp 30, worker 2, sequence 1, tick 1s, epoch 2024-01-01T00:00:00Z",
	"timestamp 10, worker 2, sequence 2, tick 1s, epoch 2024-02-29T12:00:00Z",
	"timestamp 41, worker 3, sequence 3, tick 1ms, epoch 2030-01-01T00:00:00Z",
	"timestamp 41, datacenter 5, worker 5, clock 3, sequence 9, tick 1ms, epoch 2010-11-04T01:42:54.657Z",
	"timestamp 41, sequence 12, tick 1ms, epoch 2020-01-01T00:00:00Z",
	"timestamp 20, worker 1, sequence 1, tick 1s, epoch 2024-02-29T12:00:00Z",
	"timestamp 10, worker 1, sequence 3, tick 1s, epoch 2024-02-29T12:00:00Z"
};

SnowflakeLayout layouts[NUM_LAYOUTS];

/* Places of layouts whose ids are of one size, the last one being any. */
static const int sizes[][3] = {{2, 3, 4}, {2, 3, 4}, {7, 11, 12}};

/*
 * Random choices
 */

uint64
any(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * UINT64CONST(0x2545F4914F6CDD1D);
}

int
below(int bound)
{
	return (int) ((any() >> 33) % bound);
}

/* In so many cases of a hundred. */
bool
percent(int chance)
{
	return below(100) < chance;
}

/* For what a server would not do: a parameter out of its range. */
bool
rarely(void)
{
	return below(300) == 0;
}

const SnowflakeLayout *
any_layout(void)
{
	return &layouts[percent(95) ? layouts_of_sequence[below(3)] : below(NUM_LAYOUTS)];
}

void
read_layouts(void)
{
	for (int i = 0; i < NUM_LAYOUTS; i++)
	{
		SnowflakeLayoutError error;

		if (!snowflake_layout_read(definitions[i], &layouts[i], &error))
			fail(error.detail);
	}
}

void
choose_layouts(void)
{
	for (int i = 0, size = below(2 * lengthof(sizes)); i < 3; i++)
		layouts_of_sequence[i] = size < (int) lengthof(sizes) ? sizes[size][i] :
			percent(i * 25) ? layouts_of_sequence[0] : below(NUM_LAYOUTS);
}

/*
 * Texts; some are valid at the same time
 */

char *
text_buffer(void)
{
	static char buffers[64][256];
	static int	last;

	return buffers[last++ % lengthof(buffers)];
}

const char *
uuid_text(uint64 id)
{
	char	   *text = text_buffer();

	if (id == 0)
		return "NULL";
	snprintf(text, 256, "twin.uuid(" UINT64_FORMAT ")", id);
	return text;
}

const char *
boolean_text(bool value)
{
	return value ? "true" : "false";
}

const char *
layout_text(const SnowflakeLayout *layout)
{
	char	   *text = text_buffer();

	if (layout == NULL)
		return "NULL";
	text[0] = '\'';
	snowflake_layout_define(layout, text + 1);
	return strcat(text, "'");
}

void
append(char *text, const char *format,...)
{
	size_t		length = strlen(text);
	va_list		args;

	va_start(args, format);
	vsnprintf(text + length, TEXT_SIZE - length, format, args);
	va_end(args);
}

/*
 * SQL
 */

void
forget_statements(void)
{
	num_history = 0;
}

void
fail(const char *what)
{
	printf("seed %d, sequence %d, call " INT64_FORMAT ": %s; the last statements are:\n", seed, sequence, num_calls, what);
	for (int i = Max(0, num_history - 20); i < num_history; i++)
		printf("%s\n", history[i]);
	printf("SQL:  %s\ntwin: %s\nto repeat it: TWIN_SEED=%d TWIN_SEQUENCE=%d test/run %s\n",
		   actual, expected, seed, sequence, test_file);
	exit(1);
}

/* The name of an error, or all of it if it is none of ours. */
static void
name_error(const PGresult *result)
{
	const char *parts[] = {PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY),
		PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL),
	PQresultErrorField(result, PG_DIAG_MESSAGE_HINT)};
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	for (int i = 1; i < num_errors; i++)
		for (int part = 0; part < (int) lengthof(parts); part++)
			if (sqlstate != NULL && strcmp(sqlstate, errors[i].sqlstate) == 0 &&
				parts[part] != NULL && strstr(parts[part], errors[i].part) != NULL)
			{
				strcpy(actual, errors[i].name);
				return;
			}
	snprintf(actual, sizeof(actual), "%s %s", sqlstate != NULL ? sqlstate : "", PQresultErrorMessage(result));
}

/* The rows as text: columns with "|", rows with a line end. */
static void
take_rows(const PGresult *result)
{
	char	   *end = actual;

	for (int row = 0; row < PQntuples(result); row++)
	{
		if (row > 0)
			*end++ = '\n';
		for (int column = 0; column < PQnfields(result); column++)
		{
			int			length = PQgetlength(result, row, column);

			if (end + length + 3 > actual + sizeof(actual))
				fail("the buffer is too small");
			if (column > 0)
				*end++ = '|';
			memcpy(end, PQgetvalue(result, row, column), length);
			end += length;
		}
	}
	*end = '\0';
}

/* Runs statements in one transaction; what the last one returns becomes actual. */
void
run_sql(int t, const char *text)
{
	PGresult   *result;

	if (alone)
		return;
	if (num_history == LOG_SIZE)
		fail("too many statements");
	free(history[num_history]);
	history[num_history] = strdup(text);
	num_history++;
	result = PQexec(databases[t], text);
	if (PQstatus(databases[t]) != CONNECTION_OK)
		fail("the connection is lost");
	actual[0] = '\0';
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		take_rows(result);
	else if (PQresultStatus(result) != PGRES_COMMAND_OK)
		name_error(result);
	PQclear(result);
}

/* FNV-1a */
static void
hash_expected(void)
{
	for (const char *c = expected; *c != '\0'; c++)
		hash = (hash ^ (unsigned char) *c) * UINT64CONST(0x100000001b3);
	hash *= UINT64CONST(0x100000001b3);
}

/* What SQL has returned and what the twin has; what: is said if they differ. */
void
compare_texts(const char *what)
{
	if (alone)
		hash_expected();
	else if (strcmp(actual, expected) != 0)
		fail(what);
}

/* Statements that have no counterpart but in the variables. */
void
must_run(int t, const char *format,...)
{
	static char text[TEXT_SIZE];
	va_list		args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	run_sql(t, text);
	strcpy(expected, "");
	compare_texts("a statement failed");
}

/* A query of lines, for which expected has others; leaves the first one that differs in both. */
void
compare_lines(int t, const char *query)
{
	char	   *a = actual;
	char	   *b = expected;

	if (alone)
	{
		hash_expected();
		return;
	}
	run_sql(t, query);
	num_history--;
	if (strcmp(actual, expected) == 0)
		return;
	for (;;)
	{
		size_t		length_a = strcspn(a, "\n");
		size_t		length_b = strcspn(b, "\n");

		if (length_a != length_b || memcmp(a, b, length_a) != 0)
		{
			memmove(actual, a, length_a);
			actual[length_a] = '\0';
			memmove(expected, b, length_b);
			expected[length_b] = '\0';
			fail("the tables differ");
		}
		a += length_a + 1;
		b += length_b + 1;
	}
}

/* The functions warn, and see to it that warnings are sent. */
static void
ignore_notice(void *arg, const char *message)
{
}

/* A session keeps all functions that it has seen, also those that were dropped. */
void
connect_to(int t, const char *conninfo)
{
	if (alone)
		return;
	PQfinish(databases[t]);
	databases[t] = PQconnectdb(conninfo);
	if (PQstatus(databases[t]) != CONNECTION_OK)
	{
		fprintf(stderr, "%s", PQerrorMessage(databases[t]));
		exit(2);
	}
	PQsetNoticeProcessor(databases[t], ignore_notice, NULL);
	must_run(t, "SET client_min_messages = error; SET synchronous_commit = off; SET timezone = 'UTC'");
}
