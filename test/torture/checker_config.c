/*
 * checker_config.c
 *	  Reads the checker's configuration.  It owns what is configured: deployments,
 *	  servers, lease tables and logs.
 *
 * One item a line, its words separated by blanks; a word that begins with # begins a
 * comment.  What an item names must have been defined before.  Numbers of shifts and
 * bits are those of the layout, all others are times.
 *
 *	  deployment NAME TIME_SHIFT TICK EPOCH NODE_SHIFT NODE_BITS SEQUENCE_SHIFT SEQUENCE_BITS
 *	  server NAME DEPLOYMENT TABLES MAX_AHEAD
 *										TABLES: where its leases are, TABLE or
 *										TABLE:DEPLOYMENT,...  The ids of a lease in
 *										the latter are of that deployment as well
 *	  log FILE SERVER KIND
 *	  clock SERVER FROM TO OFFSET		its clock may have been that far off; TO -: still
 *	  lease TABLE SERVER NODE ROW RECORDED STARTS UNTIL open|closed|deleted
 *										rows are numbered in the order they were granted.
 *										STARTS -: no lease; only later ones start at or
 *										after its end
 *	  leases TABLE AS_OF				complete for ids received before; -: for all.  The
 *										last one counts
 *	  until TIME						what was received later is left for next time, for
 *										clocks may have been set since the items were written
 *	  include FILE
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checker.h"

#define MAX_WORDS	9			/* of a line */
#define MAX_DEPTH	10
#define LAYOUT_BITS	63

Deployment *deployments;
LeaseTable *tables;
Server	   *servers;
Log		   *logs;
int64_t		until = FOR_EVER;

/* Where the next one goes. */
static Deployment **last_deployment = &deployments;
static Server **last_server = &servers;
static Log **last_log = &logs;

/* Where we are. */
static const char *config_file;
static int	config_line;

static void wrong(const char *what, const char *word) __attribute__((noreturn));

static void
wrong(const char *what, const char *word)
{
	cannot_check("%s:%d: %s: \"%s\"", config_file, config_line, what, word);
}

/* What strtoll() cannot hold it makes the greatest or least number, out of all ranges. */
static int64_t
number_between(const char *word, int64_t least, int64_t greatest)
{
	char	   *end;
	int64_t		value = strtoll(word, &end, 10);

	if (*word == '\0' || *end != '\0')
		wrong("not a number", word);
	if (value < least || value > greatest)
		wrong("number out of range", word);
	return value;
}

/* Leaves room to add times to it. */
static int64_t
number(const char *word)
{
	return number_between(word, INT64_MIN / 4, INT64_MAX / 4);
}

static int64_t
number_or_for_ever(const char *word)
{
	return strcmp(word, "-") == 0 ? FOR_EVER : number(word);
}

static char *
copy(const char *word)
{
	return strcpy(allocate(strlen(word) + 1), word);
}

static Deployment *
find_deployment(const char *name)
{
	for (Deployment *deployment = deployments; deployment; deployment = deployment->next)
		if (strcmp(deployment->name, name) == 0)
			return deployment;
	return NULL;
}

static bool
same_layout(const Deployment *a, const Deployment *b)
{
	return a->time_shift == b->time_shift && a->tick == b->tick && a->epoch == b->epoch &&
		a->node_shift == b->node_shift && a->node_bits == b->node_bits &&
		a->sequence_shift == b->sequence_shift && a->sequence_bits == b->sequence_bits;
}

static Server *
find_server(const char *name)
{
	for (Server *server = servers; server; server = server->next)
		if (strcmp(server->name, name) == 0)
			return server;
	return NULL;
}

static Server *
known_server(const char *name)
{
	Server	   *server = find_server(name);

	if (server == NULL)
		wrong("unknown server", name);
	return server;
}

static LeaseTable *
find_table(const char *name)
{
	LeaseTable *table;

	for (table = tables; table; table = table->next)
		if (strcmp(table->name, name) == 0)
			return table;
	table = allocate(sizeof(LeaseTable));
	table->name = copy(name);
	table->next = tables;
	tables = table;
	return table;
}

static void
take_deployment(char **words)
{
	Deployment *deployment = allocate(sizeof(Deployment));

	if (find_deployment(words[0]))
		wrong("deployment is there twice", words[0]);
	deployment->name = copy(words[0]);
	deployment->time_shift = number_between(words[1], 0, LAYOUT_BITS - 1);
	deployment->tick = number_between(words[2], 1, INT64_MAX / 4);
	deployment->epoch = number(words[3]);
	deployment->node_shift = number_between(words[4], 0, LAYOUT_BITS - 1);
	deployment->node_bits = number_between(words[5], 0, deployment->time_shift - deployment->node_shift);
	deployment->sequence_shift = number_between(words[6], 0, LAYOUT_BITS - 1);
	deployment->sequence_bits = number_between(words[7], 0, 31);
	if (deployment->sequence_shift + deployment->sequence_bits > deployment->time_shift)
		wrong("sequence reaches into the timestamp", words[7]);
	*last_deployment = deployment;
	last_deployment = &deployment->next;
}

/* TABLE[:DEPLOYMENT],... */
static void
take_tables(Server *server, char *words)
{
	char	   *save;

	for (char *word = strtok_r(words, ",", &save); word; word = strtok_r(NULL, ",", &save))
	{
		ServerTable *entry = &server->tables[server->ntables];
		char	   *deployment = strchr(word, ':');

		if (server->ntables++ == MAX_TABLES)
			wrong("too many tables", word);
		if (deployment)
		{
			*deployment++ = '\0';
			entry->deployment = find_deployment(deployment);
			if (entry->deployment == NULL)
				wrong("unknown deployment", deployment);
			if (!same_layout(entry->deployment, server->deployment))
				wrong("another layout", deployment);
		}
		entry->table = find_table(word);
	}
}

static void
take_server(char **words)
{
	Server	   *server = allocate(sizeof(Server));

	if (find_server(words[0]))
		wrong("server is there twice", words[0]);
	server->name = copy(words[0]);
	server->deployment = find_deployment(words[1]);
	if (server->deployment == NULL)
		wrong("unknown deployment", words[1]);
	take_tables(server, words[2]);
	server->max_ahead = number(words[3]);
	*last_server = server;
	last_server = &server->next;
}

static void
take_log(char **words)
{
	Log		   *log = allocate(sizeof(Log));

	log->file = copy(words[0]);
	log->server = known_server(words[1]);
	log->kind = copy(words[2]);
	*last_log = log;
	last_log = &log->next;
}

static void
take_clock(char **words)
{
	Server	   *server = known_server(words[0]);
	ClockItem	item = {
		.from = number(words[1]),
		.to = number_or_for_ever(words[2]),
		.offset = number(words[3])
	};

	if (item.to < item.from)
		wrong("it ends before it begins", words[2]);
	server->clock_items = make_room(server->clock_items, server->nclock_items, sizeof(item));
	server->clock_items[server->nclock_items++] = item;
}

static LeaseState
state_of(const char *word)
{
	static const char *const names[] = {"open", "closed", "deleted"};

	for (LeaseState state = OPEN; state <= DELETED; state++)
		if (strcmp(names[state], word) == 0)
			return state;
	wrong("unknown state", word);
}

static void
take_lease(char **words)
{
	LeaseVersion version = {
		.recorded = number(words[4]),
		.starts = strcmp(words[5], "-") == 0 ? TAKEN_OVER : number(words[5]),
		.until = number(words[6]),
		.state = state_of(words[7])
	};

	add_lease(find_table(words[0]), number(words[2]), number(words[3]), words[1], version);
}

static void
take_leases(char **words)
{
	find_table(words[0])->as_of = number_or_for_ever(words[1]);
}

static void
take_until(char **words)
{
	until = number_or_for_ever(words[0]);
}

/* The words of a line, without comments. */
static int
split(char *line, char **words)
{
	int			nwords = 0;
	char	   *save;

	for (char *word = strtok_r(line, " \t\r\n", &save); word && *word != '#';
		 word = strtok_r(NULL, " \t\r\n", &save))
	{
		if (nwords == MAX_WORDS)
			wrong("too many words", word);
		words[nwords++] = word;
	}
	return nwords;
}

static void
take_line(char *line, int depth)
{
	static const struct
	{
		const char *name;
		int			nwords;
		void		(*take) (char **words);
	}			items[] = {
		{"deployment", 8, take_deployment},
		{"server", 4, take_server},
		{"log", 3, take_log},
		{"clock", 4, take_clock},
		{"lease", 8, take_lease},
		{"leases", 2, take_leases},
		{"until", 1, take_until},
		{"include", 1, NULL}
	};
	char	   *words[MAX_WORDS];
	int			nwords = split(line, words);

	if (nwords == 0)
		return;
	for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++)
	{
		if (strcmp(words[0], items[i].name) != 0)
			continue;
		if (nwords != items[i].nwords + 1)
			wrong("wrong number of fields", words[0]);
		if (items[i].take)
			items[i].take(words + 1);
		else
			read_config(words[1], depth + 1);
		return;
	}
	wrong("unknown item", words[0]);
}

void
read_config(const char *file, int depth)
{
	const char *outer_file = config_file;
	int			outer_line = config_line;
	FILE	   *in = depth > MAX_DEPTH ? NULL : fopen(file, "r");
	char	   *line = NULL;
	size_t		size = 0;

	if (in == NULL && depth > 0)
		wrong(depth > MAX_DEPTH ? "includes itself" : strerror(errno), file);
	if (in == NULL)
		cannot_check("%s: %s", file, strerror(errno));
	config_file = file;
	config_line = 0;
	while (getline(&line, &size, in) >= 0)
	{
		config_line++;
		take_line(line, depth);
	}
	if (ferror(in))
		cannot_check("%s: %s", file, strerror(errno));
	fclose(in);
	free(line);
	config_file = outer_file;
	config_line = outer_line;
}
