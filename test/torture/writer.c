/*
 * writer.c
 *	  A client session that asks for ids for ever and logs every id that it received.
 *
 *	  writer CONNINFO KIND LOG STEP RATE MOST SEED [LAYOUT]
 *
 *	  KIND		single: one id a statement, by a prepared SELECT
 *				batch: up to MOST ids, by COPY of snowflake_nextval_batch()
 *				insert: up to MOST rows, by INSERT ... RETURNING id of table orders
 *				extra: up to MOST ids of LAYOUT, by SELECT
 *	  LOG		file to append to, see log.h
 *	  STEP		how far the ids of consecutive sequence values are apart
 *	  RATE		ids per second to aim at
 *	  SEED		of the random numbers of ids
 *
 * It survives whatever happens to the server: it logs errors and lost connections, and
 * goes on.  What it logs is what arrived here, also from a statement that failed in the
 * middle; so it reads rows as they come, and at a broken connection what is left in
 * libpq's buffer too.
 *
 * SIGTERM and SIGINT: it ends with status 0, at once while it sleeps or connects, else
 * after the statement at hand.  If that takes more than STOP_TIMEOUT it counts as lost.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "log.h"

/* microseconds */
#define SECOND			INT64_C(1000000)
#define CONNECT_PAUSE	50000
#define ERROR_PAUSE		20000
#define STOP_TIMEOUT	(10 * SECOND)

#define TRUNCATE_INTERVAL	200 /* statements */

/* A row of COPY (FORMAT binary) that is one bigint: number of fields, length, value. */
#define COPY_HEADER_SIZE	19
#define COPY_ROW_SIZE		14
#define COPY_TRAILER_SIZE	2

typedef enum Kind
{
	SINGLE,
	BATCH,
	INSERT,
	EXTRA
} Kind;

/* What was asked for. */
static const char *conninfo;
static Kind kind;
static uint64_t step;
static double rate;
static uint32_t most;
static const char *layout;

static PGconn *conn;
static bool prepared;			/* in this session */
static uint64_t random_state;

/* The record of the statement at hand, with room for max_runs. */
static int	log_fd;
static LogRecord *record;
static uint32_t max_runs;
static int64_t last_id;

/* Set by the signal handler; idle allows it to end us there and then. */
static volatile sig_atomic_t stop;
static volatile sig_atomic_t idle;

static void die(const char *format,...) __attribute__((format(printf, 1, 2), noreturn));

static void
die(const char *format,...)
{
	va_list		args;

	fputs("writer: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(2);
}

static int64_t
microseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * SECOND + now.tv_nsec / 1000;
}

/* xorshift64* */
static uint64_t
random_number(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * UINT64_C(0x2545f4914f6cdd1d);
}

static uint32_t
random_below(uint32_t limit)
{
	return ((random_number() >> 32) * limit) >> 32;
}

/* From 1 to most, each power of two as likely to be reached as any other. */
static uint32_t
random_log_uniform(void)
{
	int			octaves = 32 - __builtin_clz(most);
	uint64_t	n;

	do
	{
		uint32_t	power = UINT32_C(1) << random_below(octaves);

		n = (uint64_t) power + random_below(power);
	} while (n > most);
	return n;
}

static void
handle_stop(int signal_number)
{
	(void) signal_number;
	if (idle)
		_exit(0);
	stop = true;
}

static void
begin_idle(void)
{
	idle = true;
	if (stop)
		_exit(0);
}

static void
pause_for(int64_t duration)
{
	struct timespec time = {duration / SECOND, duration % SECOND * 1000};

	begin_idle();
	nanosleep(&time, NULL);
	idle = false;
}

/*
 * The record.
 */

static void
make_room_for_runs(void)
{
	max_runs = max_runs ? max_runs * 2 : 64;
	record = realloc(record, sizeof(LogRecord) + max_runs * sizeof(LogRun));
	if (record == NULL)
		die("out of memory");
}

static void
begin_record(void)
{
	memset(record, 0, sizeof(LogRecord));
	record->magic = LOG_MAGIC;
	record->sent_real = microseconds(CLOCK_REALTIME);
	record->sent_mono = microseconds(CLOCK_MONOTONIC);
}

static inline void
add_id(int64_t id)
{
	if (record->nruns > 0 && (uint64_t) id == (uint64_t) last_id + step)
		record->runs[record->nruns - 1].count++;
	else
	{
		LogRun		run = {.first = id,.count = 1};

		if (record->nruns == max_runs)
			make_room_for_runs();
		record->runs[record->nruns++] = run;
	}
	last_id = id;
	record->ids++;
}

/* The first failure of a statement is the one that tells. */
static void
set_failed(const char *sqlstate)
{
	if (record->sqlstate[0] == '\0')
		snprintf(record->sqlstate, sizeof(record->sqlstate), "%s", sqlstate);
}

static void
write_record(void)
{
	size_t		size = sizeof(LogRecord) + record->nruns * sizeof(LogRun);
	ssize_t		written;

	record->received_mono = microseconds(CLOCK_MONOTONIC);
	record->received_real = microseconds(CLOCK_REALTIME);
	do
		written = write(log_fd, record, size);
	while (written < 0 && errno == EINTR);
	if (written != (ssize_t) size)
		die("cannot write the log: %s", written < 0 ? strerror(errno) : "incomplete");
}

/*
 * What the server sends.
 */

static int64_t
read_bigint(const char *data)
{
	uint64_t	value;

	memcpy(&value, data, sizeof(value));
	return (int64_t) be64toh(value);
}

/* False if nothing will come any more; something may be left in libpq's buffer. */
static bool
wait_for_input(void)
{
	static int64_t stop_time;
	struct pollfd descriptor = {.fd = PQsocket(conn),.events = POLLIN};

	if (descriptor.fd < 0)
		return false;
	while (poll(&descriptor, 1, SECOND / 1000) <= 0)
	{
		if (stop && stop_time == 0)
			stop_time = microseconds(CLOCK_MONOTONIC) + STOP_TIMEOUT;
		if (stop && microseconds(CLOCK_MONOTONIC) > stop_time)
			return false;
	}
	return PQconsumeInput(conn);
}

/* A message has whole rows; the first one begins with the header. */
static void
take_copy_data(const char *data, int length, bool first)
{
	static const char signature[] = "PGCOPY\n\377\r\n"; /* with its zero byte */
	static const char start_of_row[] = {0, 1, 0, 0, 0, 8};

	if (first && length >= COPY_HEADER_SIZE && memcmp(data, signature, sizeof(signature)) == 0)
	{
		data += COPY_HEADER_SIZE;
		length -= COPY_HEADER_SIZE;
	}
	while (length >= COPY_ROW_SIZE && memcmp(data, start_of_row, sizeof(start_of_row)) == 0)
	{
		add_id(read_bigint(data + sizeof(start_of_row)));
		data += COPY_ROW_SIZE;
		length -= COPY_ROW_SIZE;
	}
	if (length == COPY_TRAILER_SIZE && memcmp(data, "\377\377", COPY_TRAILER_SIZE) == 0)
		length = 0;
	if (length != 0)
		die("COPY sent something else than a bigint");
}

/* PQgetResult() tells how it ended, unless the connection is lost: then false. */
static bool
receive_copy(void)
{
	bool		first = true;
	bool		lost = false;
	char	   *data;
	int			length;

	while ((length = PQgetCopyData(conn, &data, true)) >= 0)
	{
		if (length > 0)
		{
			take_copy_data(data, length, first);
			PQfreemem(data);
			first = false;
		}
		else if (lost)
			return false;
		else
			lost = !wait_for_input();
	}
	return true;
}

/* False: no other result will come. */
static bool
take_result(const PGresult *result)
{
	const char *sqlstate;

	switch (PQresultStatus(result))
	{
		case PGRES_COMMAND_OK:
			break;
		case PGRES_COPY_OUT:
			return receive_copy();
		case PGRES_SINGLE_TUPLE:
		case PGRES_TUPLES_OK:
			for (int row = 0; row < PQntuples(result); row++)
			{
				if (PQgetlength(result, row, 0) != sizeof(int64_t))
					die("a statement returned something else than a bigint");
				add_id(read_bigint(PQgetvalue(result, row, 0)));
			}
			break;
		default:
			sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
			set_failed(sqlstate ? sqlstate : LOG_CONNECTION_LOST);
			break;
	}
	return true;
}

/* PQgetResult() would drop the rows that came together with the end of the connection. */
static bool
result_is_ready(void)
{
	while (PQisBusy(conn))
		if (!wait_for_input() && PQisBusy(conn))
			return false;
	return true;
}

/* Everything that the server says to what was sent.  False: the session is over. */
static bool
receive_results(void)
{
	while (result_is_ready())
	{
		PGresult   *result = PQgetResult(conn);
		bool		goes_on;

		if (result == NULL)
			return PQstatus(conn) == CONNECTION_OK;
		goes_on = take_result(result);
		PQclear(result);
		if (!goes_on)
			return false;
	}
	return false;
}

static void
receive(bool was_sent)
{
	if (was_sent)
	{
		PQsetSingleRowMode(conn);
		if (receive_results())
			return;
	}
	set_failed(LOG_CONNECTION_LOST);
	PQfinish(conn);
	conn = NULL;
}

/*
 * What we ask for.
 */

/* parameter: $1, or NULL if there is none */
static bool
send_sql(const char *sql, const char *parameter)
{
	return PQsendQueryParams(conn, sql, parameter ? 1 : 0, NULL, &parameter, NULL, NULL, 1);
}

static void
ask_for_one(void)
{
	if (!prepared)
	{
		receive(PQsendPrepare(conn, "one", "SELECT snowflake_nextval()", 0, NULL));
		if (record->sqlstate[0] != '\0')
			return;
		prepared = true;
		begin_record();
	}
	receive(PQsendQueryPrepared(conn, "one", 0, NULL, NULL, NULL, 1));
}

static void
ask_for_batch(void)
{
	char		sql[100];

	snprintf(sql, sizeof(sql), "COPY (SELECT snowflake_nextval_batch(%u)) TO STDOUT (FORMAT binary)",
			 random_log_uniform());
	receive(send_sql(sql, NULL));
}

static void
insert_rows(void)
{
	char		sql[100];

	snprintf(sql, sizeof(sql), "INSERT INTO orders (n) SELECT generate_series(1, %u) RETURNING id",
			 1 + random_below(most));
	receive(send_sql(sql, NULL));
}

static void
ask_for_extra(void)
{
	char		sql[100];

	snprintf(sql, sizeof(sql), "SELECT snowflake_nextval($1) FROM generate_series(1, %u)",
			 1 + random_below(most));
	receive(send_sql(sql, layout));
}

/* The table is to stay small; a failure does no harm. */
static void
truncate_sometimes(void)
{
	static int	statements;

	if (kind != INSERT || ++statements % TRUNCATE_INTERVAL != 0)
		return;
	begin_record();
	receive(send_sql("TRUNCATE orders", NULL));
}

static void
ask(void)
{
	begin_record();
	if (kind == SINGLE)
		ask_for_one();
	else if (kind == BATCH)
		ask_for_batch();
	else if (kind == INSERT)
		insert_rows();
	else
		ask_for_extra();
	write_record();
}

static void
ignore_notice(void *arg, const char *message)
{
	(void) arg;
	(void) message;
}

static void
connect_to_server(void)
{
	begin_record();
	begin_idle();
	conn = PQconnectdb(conninfo);
	idle = false;
	if (PQstatus(conn) == CONNECTION_OK)
	{
		PQsetNoticeProcessor(conn, ignore_notice, NULL);
		prepared = false;
		return;
	}
	PQfinish(conn);
	conn = NULL;
	set_failed(LOG_CANNOT_CONNECT);
	write_record();
	pause_for(CONNECT_PAUSE);
}

/* Keeps to the rate; what an outage has kept us from is made up for one second at most. */
static void
wait_for_turn(void)
{
	static int64_t due;
	int64_t		now = microseconds(CLOCK_MONOTONIC);

	if (due == 0)
		due = now;
	else if (due < now - SECOND)
		due = now - SECOND;
	due += record->ids / rate * SECOND;
	if (due > now)
		pause_for(due - now);
}

static void
ask_for_ever(void)
{
	while (!stop)
	{
		if (conn == NULL)
			connect_to_server();
		if (conn == NULL)
			continue;
		ask();
		if (conn == NULL)
			pause_for(CONNECT_PAUSE);
		else if (record->sqlstate[0] != '\0')
			pause_for(ERROR_PAUSE);
		wait_for_turn();
		if (conn != NULL && !stop)
			truncate_sometimes();
	}
}

static Kind
parse_kind(const char *name)
{
	static const char *const names[] = {"single", "batch", "insert", "extra"};

	for (int i = SINGLE; i <= EXTRA; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	die("\"%s\" is not single, batch, insert or extra", name);
}

static int64_t
parse_number(const char *text, int64_t least, int64_t greatest)
{
	char	   *end;
	int64_t		value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno != 0 || *text == '\0' || *end != '\0' || value < least || value > greatest)
		die("\"%s\" is not a number from %lld to %lld", text, (long long) least, (long long) greatest);
	return value;
}

static void
set_signals(void)
{
	struct sigaction action = {.sa_handler = handle_stop};

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int
main(int argc, char **argv)
{
	if (argc != 8 && argc != 9)
		die("usage: writer CONNINFO KIND LOG STEP RATE MOST SEED [LAYOUT]");
	conninfo = argv[1];
	kind = parse_kind(argv[2]);
	layout = argv[8];
	if ((kind == EXTRA) != (layout != NULL))
		die("a layout is given for kind extra only");
	step = parse_number(argv[4], 1, INT64_MAX);
	rate = parse_number(argv[5], 1, INT64_MAX);
	most = parse_number(argv[6], 1, INT32_MAX);
	random_state = (uint64_t) parse_number(argv[7], 0, INT64_MAX) * 2 + 1;
	log_fd = open(argv[3], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (log_fd < 0)
		die("%s: %s", argv[3], strerror(errno));
	make_room_for_runs();
	set_signals();
	ask_for_ever();
	PQfinish(conn);
	return 0;
}
