/*
 * world.c
 *	  True time, events, servers and their clocks, and what the faults do.
 *
 * A fault draws its details from its own seed, and does nothing if it does not fit: a
 * server that is down cannot be stopped, and what README assumes is kept, unless the plan
 * breaks that assumption.
 */
#include "sim.h"

#include <ctype.h>
#include <stdarg.h>

#include "ids/generator.h"

World		world;

const char *const fault_names[NUM_FAULTS] = {
	"crash", "stop", "freeze", "step", "drift", "clock stop", "sync", "pause", "kill", "cut", "late", "disk",
	"lock", "burst", "idle", "release", "move", "settings", "promote", "standby", "restore", "upgrade", "dump",
	"drop", "clone", "layout", "template", "history", "name", "cancel", "full", "slots", "grants", "database",
	"monotonic", "backend", "end"
};

const char *const break_names[NUM_BREAKS] = {
	"nothing", "commits", "async-fixed", "copy", "three-primaries", "promoted-clock", "short-wait", "fixed-twice",
	"drop", "memory"
};

/* What EVENT_SERVER says. */
enum
{
	SERVER_STARTS,
	SERVER_STARTS_HELPER,
	SERVER_IS_UP,
	SERVER_RECEIVES,
	SERVER_IS_STOPPED,
	SERVER_STARTS_WORKER,
	SERVER_HAS_COPY,
	SERVER_IS_PROMOTED,
	SERVER_STARTS_BACKENDS
};

/*
 * Random numbers
 */

/* From least to most; each order of magnitude as often. */
int64
spread(Prng *prng, int64 least, int64 most)
{
	int			least_bits = 63 - __builtin_clzll((uint64) least | 1);
	int			most_bits = 63 - __builtin_clzll((uint64) most | 1);
	int			bits = (int) between(prng, least_bits, most_bits);
	int64		value = (INT64CONST(1) << bits) + (int64) (draw(prng) & ((UINT64CONST(1) << bits) - 1));

	return Max(least, Min(value, most));
}

/* About the mean, without floating point. */
int64
exponential(Prng *prng, int64 mean)
{
	return mean / 4 + (int64) below(prng, (uint64) mean) + (chance(prng, 100) ? (int64) below(prng, (uint64) mean * 6) : 0);
}

uint64
sim_random(void *state)
{
	return draw(&world.ids_of);
}

/*
 * Events: a heap
 */
static Event *heap = NULL;
static int	heap_size = 0;
static int	heap_room = 0;

static inline bool
is_earlier(const Event *a, const Event *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

void
schedule(int64 at, EventKind kind, int a, int b, uint64 c, void *pointer)
{
	Event		event = {at, ++world.next_number, kind, a, b, c, pointer};
	int			i;

	if (heap_size == heap_room)
		heap = realloc(heap, (heap_room = Max(1024, 2 * heap_room)) * sizeof(Event));
	for (i = heap_size++; i > 0 && is_earlier(&event, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = event;
}

static Event
take_event(void)
{
	Event		first = heap[0];
	Event		last = heap[--heap_size];
	int			i = 0;

	for (;;)
	{
		int			child = 2 * i + 1;

		if (child >= heap_size)
			break;
		if (child + 1 < heap_size && is_earlier(&heap[child + 1], &heap[child]))
			child++;
		if (!is_earlier(&heap[child], &last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return first;
}

/*
 * The story
 */
const char *
time_name(TimestampTz at)
{
	static char texts[8][40];
	static int	next = 0;
	char	   *text = texts[next++ % 8];

	if (at == DT_NOBEGIN)
		return "-infinity";
	pg_snprintf(text, sizeof(texts[0]), "%.6f", (at - TRUE_EPOCH) / 1e6);
	return text;
}

void
story(const Server *server, const char *format,...)
{
	va_list		args;

	world.told++;
	if (!world.verbose)
		return;
	printf("%14.6f  ", world.now / 1e6);
	if (server != NULL)
		printf("server %d  ", server->index);
	else
		printf("          ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

/*
 * Clocks
 */
static TimestampTz
clock_at(const Clock *c)
{
	int64		passed = world.now - c->since;

	return c->stopped ? c->value : c->value + passed + passed * c->drift / 1000000;
}

TimestampTz
server_clock(const Server *server)
{
	return clock_at(&server->clock);
}

/* The clock that ids are made by. */
TimestampTz
server_id_clock(const Server *server)
{
	return server_clock(server) + MILLISECONDS(server->conf.clock_offset);
}

int64
server_monotonic(const Server *server)
{
	/* 0 is none to the lease machine */
	return clock_at(&server->mono) + SECONDS(1000);
}

static void
set_monotonic(Server *server, int drift, bool stopped)
{
	server->mono.value = clock_at(&server->mono);
	server->mono.since = world.now;
	server->mono.drift = drift;
	server->mono.stopped = stopped;
	if (server->mono_stopped_until > world.now)
		server->mono_stopped_until = world.now;
	if (stopped)
		server->mono_stopped_until = NEVER;
}

/* Something about the server has changed at once. */
void
disturb(Server *server)
{
	server->struck_at = world.now;
}

/*
 * Where clocks are right, they differ by less than 10 s: each shows the true time but for 3 s, for what it
 * drifts (RIGHT_DRIFT), and for clock_offset.
 */
#define RIGHT_DRIFT	100

static TimestampTz
nearly_right(TimestampTz value)
{
	TimestampTz right = TRUE_EPOCH + world.now;

	return Max(Min(value, right + SECONDS(3)), right - SECONDS(3));
}

static void
set_clock(Server *server, TimestampTz value)
{
	judge_clock(server_id_clock(server));
	disturb(server);
	if (world.plan->right_clocks)
		value = nearly_right(value);
	server->clock.value = Max(value, server->least_clock);
	server->clock.since = world.now;
}

void
step_clock(Server *server, int64 by)
{
	set_clock(server, server_clock(server) + by);
	story(server, "the clock is set %s by %.6f s", by < 0 ? "back" : "forward", (by < 0 ? -by : by) / 1e6);
}

/* Whether the tables know of all promotions and of the last pg_upgrade of the server. */
static bool
has_counted(const Server *server)
{
	const SimHistory *counted = &server->tables.row.counted;

	if (server->tables.row.system_identifier != server->system_identifier)
		return false;
	for (int i = 0; i < server->history.num_entries; i++)
	{
		bool		found = false;

		for (int j = 0; j < counted->num_entries; j++)
			found |= counted->entries[j].timeline == server->history.entries[i].timeline &&
				counted->entries[j].switched_at == server->history.entries[i].switched_at;
		if (!found)
			return false;
	}
	return true;
}

/* The clock, or that of ids, must not be behind a time; often it shows just that. */
static void
step_to_least(Server *server, TimestampTz least, int64 offset)
{
	int64		ahead = server_clock(server) + offset - least;

	if (ahead < 0 || (ahead > 0 && ahead < SECONDS(20) && chance(&server->net, 500)))
		step_clock(server, -ahead);
}

/* Of the clock of ids, before and after a reload. */
static int64
least_offset(const Server *server)
{
	return MILLISECONDS(Min(server->conf.clock_offset, server->file.clock_offset));
}

/*
 * Where clocks are not right, a server that is promoted, restored or upgraded waits for nothing; but its clock
 * is not behind these ends.  Until the call that counts it, it is not set back behind them either.
 */
static void
pass_ends(Server *server, TimestampTz end)
{
	world.has_gaps[server->cluster] = true;
	if (world.plan->right_clocks || world.plan->breaks == BREAK_PROMOTED_CLOCK || end == DT_NOBEGIN)
		return;
	step_to_least(server, end, least_offset(server));
	server->least_clock = end - least_offset(server);
}

void
start_is_counted(Server *server)
{
	if (has_counted(server))
		server->least_clock = 0;
}

/*
 * Servers
 */
Server *
cluster_primary(int cluster)
{
	return world.primaries[cluster] < 0 ? NULL : &world.servers[world.primaries[cluster]];
}

bool
server_is_writable(const Server *server)
{
	return server->state == SERVER_RUNNING;
}

static bool
is_node(const Server *server)
{
	return server->plan->role == ROLE_NODE;
}

static bool
is_up(const Server *server)
{
	return server->state == SERVER_RUNNING || server->state == SERVER_STANDBY;
}

/* Whether a server is a standby of another one, perhaps by way of others. */
static bool
is_below(const Server *server, const Server *other)
{
	while (server->follows >= 0)
	{
		server = &world.servers[server->follows];
		if (server == other)
			return true;
	}
	return false;
}

/* The primary that a standby gets everything from. */
static Server *
origin_of(Server *standby)
{
	while (standby->follows >= 0)
		standby = &world.servers[standby->follows];
	return standby;
}

static bool
uses_own(const Server *server)
{
	return server->file.registry[0] == '\0' && server->tables.cluster.uses != SIM_USES_REGISTRY;
}

static bool
is_automatic(const Server *server)
{
	return strcmp(server->file.worker_id, "auto") == 0;
}

static void
schedule_server(Server *server, int64 at, int what)
{
	schedule(at, EVENT_SERVER, server->index, what, server->epoch, NULL);
}

static void
end_processes(Server *server)
{
	for (int i = 0; i < MAX_PROCESSES; i++)
		process_drop(&server->processes[i]);
	server->helper_starts = false;
}

/* All that was not committed is gone. */
static void
take_down(Server *server, ServerState state)
{
	if (server->state == SERVER_DOWN || server->state == SERVER_GONE)
	{
		server->state = state;
		return;
	}
	if (is_node(server))
		end_processes(server);
	transactions_lost(server);
	disturb(server);
	server->epoch++;
	server->state = state;
	server->frozen_until = server->locked_until = 0;
	memset(server->armed, 0, sizeof(server->armed));
}

static void
start_server(Server *server, int64 after)
{
	server->epoch++;
	server->state = SERVER_DOWN;
	schedule_server(server, world.now + after, SERVER_STARTS);
}

void
server_crash(Server *server, int64 restart_after)
{
	story(server, "crashes");
	take_down(server, SERVER_DOWN);
	start_server(server, restart_after);
}

void
lose(Server *server)
{
	if (server->state == SERVER_GONE)
		return;
	story(server, "is gone for good");
	take_down(server, SERVER_GONE);
	server->epoch++;
}

static void
begin_start(Server *server, Prng *prng)
{
	Prng		luck = {mix(world.plan->seed ^ mix((uint64) server->index << 32 ^ server->epoch))};

	server->state = SERVER_STARTING;
	server->conf = server->file;
	if (!server->newer && chance(&luck, 20))
	{
		server->newer = true;
		story(server, "has the files of the next version");
	}
	server->launched_at = server_clock(server);
	if (is_node(server))
		server_make_shared(server);
	schedule_server(server, world.now + spread(prng, MILLISECONDS(20), SECONDS(5)), SERVER_IS_UP);
}

static void
is_up_now(Server *server)
{
	server->state = server->follows >= 0 ? SERVER_STANDBY : SERVER_RUNNING;
	disturb(server);
	story(server, "is up, %s, with clock %s", server->follows >= 0 ? "a standby" : "writable",
		  time_name(server_clock(server)));
	if (server->follows >= 0)
		schedule_server(server, world.now + MILLISECONDS(100), SERVER_RECEIVES);
	else if (world.primaries[server->cluster] < 0)
		world.primaries[server->cluster] = server->index;
	if (!is_node(server))
		return;
	process_start(server, WORKER_SLOT, PROCESS_WORKER);
	for (int i = 0; i < server->plan->num_backends; i++)
		process_start(server, BACKEND_SLOT + i, PROCESS_BACKEND);
}

static void
receive(Server *server)
{
	const Server *from = &world.servers[server->follows];

	if (server->state == SERVER_STANDBY && server->frozen_until <= world.now && server->cut_until <= world.now &&
		is_up(from) && from->frozen_until <= world.now && from->cut_until <= world.now)
		standby_receive(server, from);
	schedule_server(server, world.now + spread(&server->net, MILLISECONDS(10), SECONDS(30)), SERVER_RECEIVES);
}

static void
stop_server(Server *server, Prng *prng)
{
	story(server, "is stopped");
	server->state = SERVER_STOPPING;
	for (int i = 0; i < MAX_PROCESSES; i++)
		process_terminate(&server->processes[i]);
	schedule_server(server, world.now + MILLISECONDS(1000) + (int64) below(prng, SECONDS(2)), SERVER_IS_STOPPED);
}

/* A client connects again. */
void
server_backend_ended(Server *server)
{
	if (server->state == SERVER_RUNNING || server->state == SERVER_STANDBY)
		schedule_server(server, world.now + spread(&server->net, MILLISECONDS(1), SECONDS(5)), SERVER_STARTS_BACKENDS);
}

/* The lease worker has ended: the postmaster starts it again after a second. */
void
server_worker_ended(Server *server)
{
	disturb(server);
	if (server->state == SERVER_RUNNING || server->state == SERVER_STANDBY)
		schedule_server(server, world.now + SECONDS(1), SERVER_STARTS_WORKER);
}

void
server_reload(Server *server)
{
	Conf		conf = server->file;


	/* what is fixed when the server starts */
	conf.num_layouts = server->conf.num_layouts;
	memcpy(conf.layouts, server->conf.layouts, sizeof(conf.layouts));
	server->conf = conf;
	enter_server(server);
}

void
reload(Server *server)
{
	Process    *p = &server->processes[WORKER_SLOT];

	disturb(server);
	/* the signal waits until the postmaster handles it */
	if (server->state == SERVER_STARTING)
		server_reload(server);
	if (!is_up(server) || !p->used)
		return;
	p->reload_pending = p->latch_set = true;
	if (p->in_latch)
		process_wake(p, world.now + 20);
}

/* A session tells the lease worker something. */
void
give_order(Server *server, pg_atomic_uint32 *asked)
{
	Process    *p = &server->processes[WORKER_SLOT];

	disturb(server);
	pg_atomic_write_u32(asked, pg_atomic_read_u32(asked) + 1);
	p->latch_set = true;
	if (p->used && p->in_latch)
		process_wake(p, world.now + 20);
}

/* The tables of the simulator have no room for more promotions. */
static bool
has_long_history(const Server *server)
{
	return server->history.num_entries + server->tables.row.counted.num_entries +
		server->backup_history.num_entries >= SIM_MAX_HISTORY - 2;
}

/* Whether the server leases fixed numbers from its own tables. */
bool
is_own_fixed(const Server *server)
{
	return is_node(server) && server->file.registry[0] == '\0' && !is_automatic(server);
}

/*
 * When a server may begin with these tables: all other ones that were writable have been stopped for the
 * longest window, but for that of the reign that has written them last, if there is one (A3).  A fixed number
 * starts after all its ids.
 */
static int64
ends_to_pass(const Server *server, const SimRegistry *tables, uint64 reign)
{
	const Server *last = cluster_primary(server->cluster);
	uint64		spared = world.plan->breaks == BREAK_SHORT_WAIT && last != NULL ? last->reign : 0;
	int64		end = check_former_end(server->cluster, tables, reign, spared);

	return is_own_fixed(server) ? Max(end, last_id_time(server)) : end;
}

/* Whether that time has come: the true time, or what may be any time, by its clock. */
bool
is_past(const Server *server, int64 end)
{
	return end <= (world.plan->right_clocks ? world.now : server_clock(server));
}

/* How long a server that is down waits before it starts with tables whose former servers are stopped now. */
static int64
wait_until(int64 end, Prng *prng)
{
	int64		more = chance(prng, 300) ? 0 : spread(prng, MILLISECONDS(100), SECONDS(60));

	return (world.plan->right_clocks && end > world.now ? end - world.now : 0) + more;
}

/*
 * All servers that were writable, but for that of a reign, are stopped for good, if they are not yet.  Whether
 * the longest window is over since then.
 */
static bool
have_former_stopped(const Server *server, uint64 reign, int64 *end)
{
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (s != server && s->cluster == server->cluster && s->follows < 0 && s->reign != reign &&
			world.plan->breaks != BREAK_SHORT_WAIT)
			lose(s);
	}
	*end = ends_to_pass(server, &server->tables, reign);
	return is_past(server, *end);
}

/* How often the extension of a cluster was dropped. */
static int
drops_of(int cluster)
{
	int			drops = 0;

	for (int i = 0; i < world.num_servers; i++)
		if (world.servers[i].cluster == cluster)
			drops = Max(drops, world.servers[i].drops);
	return drops;
}

/*
 * Promotion.  At most two primaries are writable, one promotion apart; and what is in the tables of
 * neither is over.
 */
static void
promote(Server *server, Prng *prng)
{
	Server	   *parent = origin_of(server);
	bool		registry = server->plan->role == ROLE_REGISTRY;
	bool		sync = registry && !world.plan->async && world.plan->breaks != BREAK_ASYNC_FIXED;
	bool		cascaded = server->follows != parent->index;
	uint32		timeline = 0;
	Break		breaks = world.plan->breaks;
	int64		end = ends_to_pass(server, &server->tables, server->reign);

	if ((sync && !server->plan->sync) || has_long_history(server))
		return;
	/* tables that were dropped do not come back (A4) */
	if (server->drops != drops_of(server->cluster) || (server->drops > 0 && !server->tables.exists))
		return;
	if (world.plan->right_clocks && !have_former_stopped(server, server->reign, &end))
	{
		story(server, "is promoted later: former primaries are to be stopped for %.6f s", (end - world.now) / 1e6);
		schedule_server(server, end + (chance(prng, 500) ? 0 : spread(prng, 1, SECONDS(10))), SERVER_IS_PROMOTED);
		return;
	}
	/* either the clock shows that they are over, or it is set */
	if (!is_past(server, end) && breaks != BREAK_PROMOTED_CLOCK && chance(prng, 500))
		return;
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (s->cluster != server->cluster)
			continue;
		timeline = Max(timeline, s->timeline);
		if (s != server && s->follows < 0 && s != parent && breaks != BREAK_THREE_PRIMARIES)
			lose(s);
	}

	/*
	 * What has not received its primary's last promotion is a sibling of it.
	 * A fixed number has one running server; fixed and automatic ones are not
	 * mixed.
	 */
	if (sync || (server->reign != parent->reign && breaks != BREAK_THREE_PRIMARIES) ||
		(is_own_fixed(server) && breaks != BREAK_FIXED_TWICE) ||
		(server->file.registry[0] == '\0' && is_automatic(server) != is_automatic(parent)) ||
		(breaks != BREAK_ASYNC_FIXED && chance(prng, world.plan->async ? 300 : 500)))
		lose(parent);
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (s == server || s->cluster != server->cluster || s->follows < 0 || s->state == SERVER_GONE ||
			(s->follows != parent->index && world.servers[s->follows].state != SERVER_GONE) || is_below(s, server))
			continue;
		if ((breaks == BREAK_THREE_PRIMARIES && is_up(s)) || (parent->state != SERVER_GONE && chance(prng, 500)))
			continue;
		s->follows = server->index;
	}
	pass_ends(server, end);
	server->history.entries[server->history.num_entries].timeline = server->timeline;
	server->history.entries[server->history.num_entries].switched_at = server->lsn + 10 * below(prng, 10);
	server->lsn = server->history.entries[server->history.num_entries].switched_at + 10;
	server->history.num_entries++;
	server->timeline = timeline + 1;
	server->reign = ++world.num_reigns;
	server->follows = -1;
	server->state = SERVER_RUNNING;
	for (int i = 0; i < world.num_servers; i++)
		if (world.servers[i].cluster == server->cluster)
			disturb(&world.servers[i]);
	world.primaries[server->cluster] = server->index;
	story(server, "is promoted, timeline %u%s", server->timeline, cascaded ? ", a standby of a standby" : "");
	for (int i = 0; i < MAX_PROCESSES; i++)
		if (server->processes[i].used)
			process_wake(&server->processes[i], world.now + 20);
}

/* Whether its standby was promoted while it ran. */
static bool
is_former_primary(const Server *server)
{
	return server->state == SERVER_RUNNING && server->follows < 0 && world.primaries[server->cluster] != server->index;
}

/* What a new standby follows: the primary, or mostly another standby of it if there is one. */
static Server *
choose_upstream(const Server *server, Server *primary, Prng *prng)
{
	if (server->plan->sync || world.plan->breaks != BREAK_NOTHING)
		return primary;
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (s != server && s->state == SERVER_STANDBY && is_below(s, primary) && !is_below(s, server) &&
			chance(prng, 600))
			return s;
	}
	return primary;
}

/*
 * A server of the cluster that is gone comes back as a standby, from a base backup; or a former primary that
 * runs, after pg_rewind.
 */
static void
make_standby(Server *server, Prng *prng)
{
	Server	   *primary = cluster_primary(server->cluster);
	Server	   *upstream;

	if (server->plan->spare || primary == NULL || primary->state != SERVER_RUNNING || primary == server)
		return;
	if (is_former_primary(server))
	{
		story(server, "is stopped, and rewound");
		take_down(server, SERVER_GONE);
	}
	if (server->state != SERVER_GONE)
		return;
	upstream = choose_upstream(server, primary, prng);
	server->follows = upstream->index;
	server->system_identifier = upstream->system_identifier;
	server->mark = sim_random(NULL);
	server->file = primary->file;
	standby_receive(server, upstream);
	story(server, "is made a standby of server %d", upstream->index);
	start_server(server, SECONDS(1));
}

/*
 * A copy of a server is started writable, with the same registry; it is a cluster of its own.  A former copy that is
 * there is thrown away.
 */
static void
clone(Server *server, Prng *prng)
{
	Server	   *original = &world.servers[below(prng, world.num_servers)];

	if (!server->plan->spare || original == server || original->state != SERVER_RUNNING || !is_node(original) ||
		(world.plan->shared && original->tables.cluster.uses != SIM_USES_REGISTRY))
		return;
	lose(server);
	sim_registry_copy(&server->tables, &original->tables);
	server->incarnation = original->incarnation;
	server->reign = ++world.num_reigns;
	server->system_identifier = original->system_identifier;
	server->mark = sim_random(NULL);
	server->timeline = original->timeline;
	server->history = original->history;
	server->lsn = original->lsn;
	server->file = original->file;
	server->has_backup = false;
	server->follows = -1;

	/*
	 * pg_createsubscriber: a standby of the original is promoted, and gets a
	 * system identifier of its own
	 */
	if (world.plan->shared && !has_long_history(server) && chance(prng, 400))
	{
		server->history.entries[server->history.num_entries].timeline = server->timeline++;
		server->history.entries[server->history.num_entries++].switched_at = server->lsn;
		server->system_identifier = sim_random(NULL);
		story(server, "pg_createsubscriber");
	}
	story(server, "is a copy of server %d", original->index);
	start_server(server, spread(prng, MILLISECONDS(100), SECONDS(10)));
}

/* All other servers of the cluster are gone. */
void
lose_others(Server *server)
{
	for (int i = 0; i < world.num_servers; i++)
		if (&world.servers[i] != server && world.servers[i].cluster == server->cluster)
			lose(&world.servers[i]);
	world.primaries[server->cluster] = server->index;
}

/*
 * An order of the administrator (A1): it was given on the only server of the cluster that is writable or can
 * be again, and is on every standby and in every backup.
 */
void
order_given(Server *server)
{
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (s->cluster != server->cluster)
			continue;
		disturb(s);
		s->has_backup = false;
		if (s == server || s->state == SERVER_GONE)
			continue;
		if (s->follows < 0)
			lose(s);
		else
		{
			if (!is_below(s, server))
				s->follows = server->index;
			standby_receive(s, server);
		}
	}
	world.primaries[server->cluster] = server->index;
}

/* Whether the timeline of a server is that of its backup, or goes on from there. */
static bool
goes_on_from_backup(const Server *server)
{
	const SimHistory *now = &server->history;
	const SimHistory *then = &server->backup_history;

	return now->num_entries >= then->num_entries &&
		memcmp(now->entries, then->entries, then->num_entries * sizeof(SimHistoryEntry)) == 0;
}

/*
 * PITR in place: an earlier state of the tables, as after a promotion.  Along a later timeline
 * (recovery_target_timeline = latest), it is no plain one.
 */
static void
restore(Server *server, Prng *prng)
{
	bool		latest = world.plan->right_clocks && server->timeline != server->backup_timeline &&
	goes_on_from_backup(server) && chance(prng, 500);
	int64		end;

	if (!server->has_backup || server->follows >= 0 || has_long_history(server) ||
		(!is_node(server) && !world.plan->async) || (world.plan->moving && world.plan->mixed))
		return;
	end = ends_to_pass(server, &server->backup, latest ? 0 : server->backup_reign);
	if (!world.plan->right_clocks && !is_past(server, end) && world.plan->breaks != BREAK_PROMOTED_CLOCK && chance(prng, 500))
		return;
	lose_others(server);
	take_down(server, SERVER_DOWN);
	pass_ends(server, end);
	sim_registry_copy(&server->tables, &server->backup);
	server->reign = ++world.num_reigns;
	server->mark = sim_random(NULL);
	if (!latest)
		server->history = server->backup_history;
	server->history.entries[server->history.num_entries].timeline = latest ? server->timeline : server->backup_timeline;
	server->history.entries[server->history.num_entries].switched_at = server->backup_lsn;
	server->history.num_entries++;
	server->timeline++;
	/* tables of before a DROP EXTENSION do not know of the next ones */
	if (server->backup_drops != server->drops)
		check_forgotten(server);
	story(server, "is restored from its backup, timeline %u%s", server->timeline, latest ? ", along the latest one" : "");
	start_server(server, wait_until(end, prng));
}

static void
back_up(Server *server)
{
	sim_registry_copy(&server->backup, &server->tables);
	server->backup_reign = server->reign;
	server->backup_drops = server->drops;
	server->backup_history = server->history;
	server->backup_timeline = server->timeline;
	server->backup_lsn = server->lsn;
	server->has_backup = true;
	story(server, "is backed up");
}

static void
upgrade(Server *server, Prng *prng)
{
	int64		end = DT_NOBEGIN;

	if (server->follows >= 0)
		return;
	if (!server->tables.exists || !has_counted(server))
	{
		lose_others(server);
		end = ends_to_pass(server, &server->tables, 0);
		pass_ends(server, end);
	}
	/* standbys are made anew */
	for (int i = 0; i < world.num_servers; i++)
		if (is_below(&world.servers[i], server))
			lose(&world.servers[i]);
	take_down(server, SERVER_DOWN);
	server->timeline = 1;
	server->history.num_entries = 0;

	/*
	 * WAL goes on in a new segment (pg_resetwal -l): no promotion is at the
	 * place of one of before
	 */
	server->lsn += 1000;
	server->has_backup = false;
	server->system_identifier = sim_random(NULL);
	server->mark = sim_random(NULL);
	story(server, "is put through pg_upgrade");
	start_server(server, SECONDS(1) + wait_until(end, prng));
}

/* Whether another server's numbers come from the tables of this one. */
static bool
is_used_by_others(const Server *server)
{
	for (int i = 0; i < world.num_servers; i++)
		if (world.servers[i].cluster != server->cluster && world.servers[i].tables.cluster.uses == SIM_USES_REGISTRY &&
			world.servers[i].tables.cluster.incarnation == server->tables.row.incarnation)
			return true;
	return false;
}

/* Whether no transaction is going on there, none is held up, and orders can be given. */
static bool
is_free(const Server *server)
{
	return server->state == SERVER_RUNNING && server->frozen_until <= world.now && server->locked_until <= world.now &&
		server->history_until <= world.now && server->holder == NULL;
}

/* Dump and restore into a new cluster that takes the place of the old one. */
static void
move_dump(Server *server, Prng *prng)
{
	SimRegistry old;
	SimHere		here;

	if (server->follows >= 0 || !is_node(server) || !server->tables.exists)
		return;
	/* that it was closed, or what it has taken over, is not in a dump (A1) */
	if (server->tables.row.successor != 0 || server->tables.row.taken_over.num > 0 || is_used_by_others(server))
		return;
	lose_others(server);
	take_down(server, SERVER_DOWN);
	if (chance(prng, 500))
		step_clock(server, -spread(prng, 1, world.plan->longest_step));
	/* the floor of a registry is not dumped */
	if (world.has_gaps[server->cluster] || world.plan->moving)
		pass_creation(server);
	memset(&old, 0, sizeof(old));
	sim_registry_copy(&old, &server->tables);
	server->system_identifier = sim_random(NULL);
	server->mark = sim_random(NULL);
	server->timeline = 1;
	server->history.num_entries = 0;
	server->reign = ++world.num_reigns;
	server->has_backup = false;
	here = here_of(server, server_clock(server));
	sim_drop_extension(&server->tables);
	(void) sim_create_extension(&server->tables, &here);
	server->tables.newer = server->newer;
	for (int i = 0; i < old.num_numbers; i++)
		sim_insert_number(&server->tables, &old.numbers[i]);
	for (int i = 0; i < old.num_log; i++)
		sim_insert_log(&server->tables, &old.log[i]);
	sim_insert_cluster(&server->tables, &old.cluster);
	sim_registry_free(&old);
	check_incarnation(server);
	story(server, "is replaced by a new cluster with its dump");
	start_server(server, spread(prng, MILLISECONDS(100), SECONDS(60)));
}

/* The nodes of a registry are stopped (A4); they start again after a while. */
static void
stop_nodes(const Server *registry, Prng *prng)
{
	if (world.plan->breaks == BREAK_DROP)
		return;
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (s->cluster == registry->cluster || !is_node(s) || s->state == SERVER_DOWN || s->state == SERVER_GONE)
			continue;
		take_down(s, SERVER_DOWN);
		start_server(s, spread(prng, SECONDS(1), SECONDS(20)));
	}
}

/* What had used the registry before is to come to the new one. */
static void
take_over_former(Server *server, uint64 former, const SimUuids *taken_over)
{
	SimHere		here = here_of(server, server_clock(server));

	if (sim_take_over_lost(&server->tables, &here, former) != SIM_NO_REASON)
		return;
	for (int i = 0; i < taken_over->num; i++)
		(void) sim_take_over_lost(&server->tables, &here, taken_over->uuids[i]);
	check_incarnation(server);
	order_given(server);
	story(server, "take_over('...'::uuid) of the former registry");
}

static void
create_extension(Server *server, Prng *prng, uint64 former, const SimUuids *taken_over)
{
	SimHere		here;

	pass_creation(server);
	disturb(server);
	here = here_of(server, server_clock(server));
	(void) sim_create_extension(&server->tables, &here);
	server->tables.newer = server->newer;
	check_incarnation(server);
	story(server, "CREATE EXTENSION");
	if (is_node(server))
	{
		Process    *p = &server->processes[WORKER_SLOT];

		pg_atomic_write_u32(&server->shared->look, 1);
		p->latch_set = true;

		/*
		 * ids under the old lease would soon be later than A4 says: the lease
		 * worker is not stuck
		 */
		memset(&server->armed[PROCESS_WORKER], 0, sizeof(Armed));
		process_wake(p, world.now + 20);
	}
	else if (former != 0)
		take_over_former(server, former, taken_over);
}

/* DROP EXTENSION, and perhaps CREATE EXTENSION. */
static void
drop_extension(Server *server, Prng *prng)
{
	bool		registry = server->plan->role == ROLE_REGISTRY;
	uint64		former = server->tables.row.successor == 0 ? server->tables.row.incarnation : 0;
	SimUuids	taken_over = server->tables.row.taken_over;

	if (!is_free(server) || !server->tables.exists || taken_over.num > SIM_MAX_UUIDS / 2 ||
		((!registry || former == 0) && !check_can_merge()))
		return;
	/* it would not know any more that others have its numbers now */
	if (!registry && ((!uses_own(server) && world.plan->shared) || former == 0 || !server->processes[WORKER_SLOT].used))
		return;
	if (registry && chance(prng, 500) && world.plan->breaks != BREAK_DROP)
		return;
	if (registry || world.plan->moving)
	{
		stop_nodes(server, prng);
		order_given(server);
	}
	for (int i = 0; i < world.num_servers; i++)
		if (&world.servers[i] != server && world.servers[i].cluster == server->cluster && world.servers[i].follows < 0)
			lose(&world.servers[i]);
	sim_drop_extension(&server->tables);
	server->drops++;

	/*
	 * what is made now has nothing to do with the nodes of tables that were
	 * closed
	 */
	if (former == 0)
		check_separated(server);
	else if (!registry)
		check_branched(server);
	world.has_gaps[server->cluster] = true;
	check_forgotten(server);
	disturb(server);
	story(server, "DROP EXTENSION");
	if (registry || world.plan->moving || chance(prng, 500))
		create_extension(server, prng, former, &taken_over);
	if (registry)
		order_given(server);
}

/*
 * No id is later than a new extension's creation and the least max_ahead: README assumes
 * it (A4), to the microsecond.  Called before each creation.
 */
void
pass_creation(Server *server)
{
	TimestampTz last = last_id_time(server);

	if (world.plan->breaks != BREAK_DROP && last != DT_NOBEGIN)
		step_to_least(server, last - MILLISECONDS(world.plan->least_max_ahead), 0);
}

/*
 * CREATE DATABASE ... TEMPLATE postgres; a while later the copy takes the place of postgres.
 */
static void
copy_database(Server *server, Prng *prng)
{
	if (!is_free(server) || !server->tables.exists || (!is_node(server) && !chance(prng, 300)))
		return;
	sim_registry_copy(&server->copy, &server->tables);
	server->copy.oid++;
	story(server, "CREATE DATABASE ... TEMPLATE postgres");
	schedule_server(server, world.now + spread(prng, 1, SECONDS(30)), SERVER_HAS_COPY);
}

/*
 * What was granted meanwhile is not in the copy.  As after DROP EXTENSION, no id may be later than its
 * creation, when the first call finds it (calls.c).
 */
static void
use_copy(Server *server)
{
	SimRegistry *tables = &server->tables;
	const SimRegistryRow *copied = &server->copy.row;
	uint64		former = tables->row.incarnation;
	SimUuids	none = {0};

	/* somebody is connected, or it is of other tables; orders are in the copy */
	if (!is_free(server) || !server->copy.exists || !tables->exists || copied->incarnation != former ||
		server->copy.oid == tables->oid || server->copy.cluster.uses != tables->cluster.uses ||
		server->copy.cluster.incarnation != tables->cluster.incarnation || copied->successor != tables->row.successor ||
		copied->taken_over.num != tables->row.taken_over.num)
		return;
	if (copied->taken_over.num > SIM_MAX_UUIDS / 2)
		return;
	if (!is_node(server) || world.plan->moving)
	{
		stop_nodes(server, &server->net);
		order_given(server);
	}
	sim_registry_copy(tables, &server->copy);
	world.has_gaps[server->cluster] = true;
	story(server, "the copy takes the place of database postgres");

	/*
	 * so that nobody is connected; and while the server goes on under a lease
	 * that is not in the copy, it may not crash (A4)
	 */
	if (is_node(server))
		server_crash(server, spread(&server->net, MILLISECONDS(100), SECONDS(10)));
	else if (tables->row.successor == 0)
	{
		pass_creation(server);
		take_over_former(server, former, &none);
	}
}

bool
host_is_named(const Server *server)
{
	return world.now >= Max(server->plan->named_at, server->unnamed_until);
}

/* The host loses its name and its interface for a while, and the settings are read again. */
static void
lose_name(Server *server, int64 span)
{
	server->unnamed_until = world.now + span;
	story(server, "the host has no name and no network interface for %.6f s", span / 1e6);
	reload(server);
}

/* The owner sets the limit for ends; nodes may ask for more. */
static void
limit_leases(Server *server, Prng *prng)
{
	SimHere		here = here_of(server, server_clock(server));
	int64		limit = spread(prng, SECONDS(10), SECONDS(1200));
	SimReason	reason;

	if (server != cluster_primary(server->cluster) || !is_free(server) || !server->tables.exists ||
		server->tables.row.database != server->tables.oid)
		return;
	reason = sim_limit_leases(&server->tables, &here, limit);
	story(server, "limit_leases() to %.6f s: %s", limit / 1e6, sim_reason_name(reason));
	if (reason != SIM_NO_REASON)
		return;
	start_is_counted(server);
	order_given(server);
}

static void
change_settings(Server *server, Prng *prng)
{
	Conf	   *conf = &server->file;

	if (chance(prng, 100))
	{
		limit_leases(server, prng);
		return;
	}

	switch (below(prng, 7))
	{
		case 6:
			/* the clock that counts a promotion may not be set back */
			if (server->least_clock != 0 || world.plan->breaks != BREAK_NOTHING)
				return;
			conf->clock_offset = chance(prng, 300) ? 0 : (int) between(prng, -30000, 30000);
			if (world.plan->right_clocks)
				conf->clock_offset /= 30;
			break;
		case 0:
			conf->max_ahead = draw_max_ahead(prng, world.plan);
			break;
		case 1:
			conf->max_wait = chance(prng, 200) ? 0 : (int) spread(prng, 100, 20000);
			break;
		case 2:
			conf->lease_duration = (int) spread(prng, 1000, 600000);
			break;
		case 3:
			conf->sequence_start = (int) below(prng, 3);
			break;
		default:

			/*
			 * without a registry, fixed and automatic numbers are not mixed,
			 * and a number has one server
			 */
			if (!world.plan->mixed || conf->registry[0] == '\0')
				return;
			draw_worker_id(prng, conf);
			break;
	}
	story(server, "settings: worker_id %s, datacenter_id %d, max_ahead %d, max_wait %d, lease_duration %d, sequence_start %d, clock_offset %d",
		  conf->worker_id, conf->datacenter_id, conf->max_ahead, conf->max_wait, conf->lease_duration, conf->sequence_start, conf->clock_offset);
	reload(server);
}

/* Gives a node the default layout; it is restarted with it, now or by chance. */
static void
set_layout(Server *s, int layout, bool now, Prng *prng)
{
	if (s->file.layouts[0] != layout)
	{
		s->file.layouts[0] = layout;
		s->file.num_layouts = 1;
	}
	if (s->conf.layouts[0] != layout && is_up(s) && s->frozen_until <= world.now && (now || chance(prng, 700)))
		stop_server(s, prng);
}

/*
 * The operator makes another layout the default of all nodes: an order in the registry, then the settings.  Now and then
 * it changes the settings although the order was refused.
 */
static void
order_layout(Prng *prng)
{
	Server	   *registry = cluster_primary(0);
	Conf		conf = world.servers[world.num_servers - 1].file;
	SimHere		here;
	SimReason	reason;

	/*
	 * what the first lease has recorded, a failover may have lost: then
	 * nothing is known of ids before
	 */
	if (registry == NULL || !is_free(registry) || registry->tables.cluster.layout == NULL || !draw_other_layout(prng, &conf))
		return;
	here = here_of(registry, server_clock(registry));

	/*
	 * where clocks are not right, what a failover has lost ends within the
	 * longest window all the same
	 */
	if (!world.plan->right_clocks && check_former_end(0, &registry->tables, registry->reign, 0) >
		here.clock + sim_longest_window(&registry->tables.row, here.clock))
		return;
	reason = sim_change_layout(&registry->tables, &here, &sim_layouts[conf.layouts[0]]);
	story(registry, "change_layout('%s'): %s", sim_layout_texts[conf.layouts[0]], sim_reason_name(reason));
	if (reason == SIM_NO_REASON)
	{
		check_incarnation(registry);
		start_is_counted(registry);
		order_given(registry);
	}
	else if (!chance(prng, 100))
		return;
	for (int i = 0; i < world.num_servers; i++)
		if (is_node(&world.servers[i]))
			set_layout(&world.servers[i], conf.layouts[0], false, prng);
}

#define ORDER_AGAIN_US	SECONDS(60)

/* The default layout ends, or has ended: the operator orders another one, and again where that was refused. */
static void
replace_ending_layout(void)
{
	const Server *registry = cluster_primary(0);
	Prng		prng = {world.plan->seed ^ (uint64) world.now};

	if (world.calm || world.plan->moving)
		return;
	if (registry != NULL && registry->tables.cluster.layout == &sim_layouts[world.plan->servers[0].conf.layouts[0]])
		order_layout(&prng);
	schedule(world.now + ORDER_AGAIN_US, EVENT_ORDER, 0, 0, 0, NULL);
}

#define LAYOUTS_RIGHT_US	SECONDS(30)

/* Nodes get the layout that their registry has on record; again and again, as the first lease may record it. */
static void
put_layouts_right(void)
{
	Prng		prng = {world.plan->seed ^ 78};

	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];
		const Server *registry = s->file.registry[0] == '\0' ? s : cluster_primary(atoi(s->file.registry + 1));

		for (int j = 0; is_node(s) && registry != NULL && j < sim_num_layouts; j++)
			if (registry->tables.cluster.layout == &sim_layouts[j])
				set_layout(s, j, true, &prng);
	}
	schedule(world.now + LAYOUTS_RIGHT_US, EVENT_LAYOUTS, 0, 0, 0, NULL);
}

/* Another default layout; or other extra layouts for a node, from its next start on.  Nodes that change their registry keep theirs. */
static void
change_layout(Server *server, Prng *prng)
{
	if (is_node(server) && chance(prng, 600))
	{
		draw_extra_layouts(prng, &server->file);
		story(server, "snowflake.extra_layouts is to have %d layouts", server->file.num_layouts - 1);
		if (server->state == SERVER_RUNNING && server->frozen_until <= world.now)
			stop_server(server, prng);
	}
	else if (!world.plan->moving)
		order_layout(prng);
}

/* How long most things last. */
static int64
a_while(Prng *prng)
{
	return spread(prng, MILLISECONDS(1), SECONDS(300));
}

/* The words are as they were a while ago: the memory image of a running machine is restored. */
static void
break_memory(Server *server, Prng *prng)
{
	if (!is_node(server) || server->state != SERVER_RUNNING)
		return;
	if (server->image != NULL && server->image_epoch == server->epoch && chance(prng, 300))
	{
		story(server, "its memory is as it was before");
		for (int i = 0; i < server->shared->num_slots; i++)
			server->shared->slots[i].word.value = ((uint64 *) server->image)[i];
		return;
	}
	if (server->image == NULL)
		server->image = malloc(MAX_LAYOUTS * sizeof(uint64));
	for (int i = 0; i < server->shared->num_slots; i++)
		((uint64 *) server->image)[i] = server->shared->slots[i].word.value;
	server->image_epoch = server->epoch;
}

/*
 * The synchronous standby is away, and sessions do not wait for it; then the primary is perhaps lost, and the
 * standby is promoted, without what was not replicated.
 */
static void
cancel_waits(Server *server, Prng *prng)
{
	Server	   *standby = sync_standby(server);
	int64		until = world.now + spread(prng, SECONDS(1), SECONDS(300));

	if (standby == NULL)
		return;
	standby->cut_until = server->cancel_until = until;
	if (standby->state == SERVER_STANDBY && chance(prng, 500))
		schedule_server(standby, until, SERVER_IS_PROMOTED);
	story(server, "waits for server %d, which has no network, are cancelled for %.6f s", standby->index,
		  (until - world.now) / 1e6);
}

/*
 * The next end of a layout in use, if that is soon; of the default layout only where the plan has an end of it.
 * DT_NOEND: there is none.
 */
static TimestampTz
next_layout_end(const Server *server)
{
	TimestampTz next = DT_NOEND;

	for (int i = world.plan->layout_ends > 0 ? 0 : 1; i < server->file.num_layouts; i++)
	{
		const SnowflakeLayout *layout = &sim_layouts[server->file.layouts[i]];
		TimestampTz end = snowflake_tick_begin(layout, layout->max_tick + 1);

		if (end > server_id_clock(server) && end < server_id_clock(server) + SECONDS(86400))
			next = Min(next, end);
	}
	return next;
}

/*
 * The clock is past the end of a layout for a few seconds, in which nobody asks for ids; mostly the server
 * starts meanwhile.  A promotion, or an extension, is not counted with that clock.
 */
static void
pass_layout_end(Server *server, Prng *prng)
{
	TimestampTz end = next_layout_end(server);

	if (!is_node(server) || server->state != SERVER_RUNNING || server->frozen_until > world.now ||
		end == DT_NOEND || !server->tables.exists || !has_counted(server) || server->least_clock != 0)
		return;
	step_clock(server, end - server_id_clock(server) + spread(prng, 1, SECONDS(60)));
	if (chance(prng, 800))
		server_crash(server, SECONDS(1));
	server->idle_until = Max(server->idle_until, world.now + SECONDS(15));
	schedule(world.now + between(prng, SECONDS(5), SECONDS(12)), EVENT_CLOCK, server->index, 0, 0, NULL);
}

static void
correct_clock(Server *server, Prng *prng)
{
	set_clock(server, TRUE_EPOCH + world.now + between(prng, -MILLISECONDS(10), MILLISECONDS(10)));
	server->clock.drift = 0;
	server->clock.stopped = false;
	story(server, "the clock is right again");
}

/*
 * The server that a fault happens to: as drawn, or the next one that it fits.
 */
static Server *
choose_server(const Fault *fault)
{
	if (fault->kind == FAULT_DROP && world.plan->breaks == BREAK_DROP && world.primaries[0] >= 0)
		return cluster_primary(0);
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[(fault->server + i) % world.num_servers];

		if ((fault->kind == FAULT_PROMOTE && s->state == SERVER_STANDBY) ||
			(fault->kind == FAULT_STANDBY && (s->state == SERVER_GONE || is_former_primary(s)) && !s->plan->spare) ||
			(fault->kind == FAULT_CANCEL && s->state == SERVER_RUNNING && sync_standby(s) != NULL) ||
			(fault->kind == FAULT_END && is_node(s) && s->state == SERVER_RUNNING && next_layout_end(s) != DT_NOEND) ||
			(fault->kind == FAULT_CLONE && s->plan->spare))
			return s;
	}
	return &world.servers[fault->server];
}

/* What sets a clock to just when an assumption holds, or to what is not right. */
static bool
spoils_clocks(FaultKind kind)
{
	return kind == FAULT_CLOCK_STOP || kind == FAULT_END || kind == FAULT_DROP || kind == FAULT_DUMP ||
		kind == FAULT_TEMPLATE;
}

static void
bring(const Fault *fault)
{
	Server	   *server = choose_server(fault);
	Prng		prng = {fault->seed};
	FaultKind	kind = fault->kind;
	bool		up = is_up(server) && server->frozen_until <= world.now;

	if (world.plan->right_clocks && spoils_clocks(kind))
		return;
	if (world.plan->breaks == BREAK_MEMORY)
		break_memory(server, &prng);
	if (world.plan->breaks == BREAK_COMMITS && chance(&prng, 500))
		back_up(server);
	world.faults++;
	note(kind);
	if (kind != FAULT_BURST && kind != FAULT_IDLE && kind != FAULT_PAUSE && kind != FAULT_BACKEND)
		disturb(server);
	switch (kind)
	{
		case FAULT_CRASH:
			if (is_up(server) || server->state == SERVER_STOPPING || server->state == SERVER_STARTING)
			{
				server_crash(server, spread(&prng, MILLISECONDS(100), SECONDS(120)));
				if (world.plan->breaks == BREAK_COMMITS && server->has_backup)
				{
					story(server, "has lost what it committed lately");
					sim_registry_copy(&server->tables, &server->backup);
				}
				if (chance(&prng, 300))
					step_clock(server, -spread(&prng, 1, SECONDS(600)));
			}
			break;
		case FAULT_STOP:
			if (up)
				stop_server(server, &prng);
			break;
		case FAULT_FREEZE:
			/* what is put off until then is not put off longer */
			if (up)
			{
				int64		until = world.now + a_while(&prng);

				server->frozen_until = Min(until, world.plan->length - CALM_US);
				story(server, "is frozen for %.6f s", (server->frozen_until - world.now) / 1e6);
			}
			break;
		case FAULT_STEP:
			step_clock(server, (chance(&prng, 500) ? 1 : -1) * spread(&prng, 1, world.plan->longest_step));
			break;
		case FAULT_DRIFT:
			set_clock(server, server_clock(server));
			server->clock.drift = (int) between(&prng, -500, 500);
			if (world.plan->right_clocks)
				server->clock.drift = server->clock.drift * RIGHT_DRIFT / 500;
			break;
		case FAULT_CLOCK_STOP:
			set_clock(server, server_clock(server));
			server->clock.stopped = !server->clock.stopped;
			story(server, "the clock %s", server->clock.stopped ? "stops" : "goes on");
			break;
		case FAULT_SYNC:
			correct_clock(server, &prng);
			break;
		case FAULT_PAUSE:
			{
				Armed	   *armed = &server->armed[chance(&prng, 600) ? PROCESS_BACKEND :
												   chance(&prng, 350) ? PROCESS_HELPER : PROCESS_WORKER];

				armed->words = armed == &server->armed[PROCESS_WORKER] && chance(&prng, 750);
				armed->points = (int) spread(&prng, 1, armed->words ? 30 : 60);
				armed->kill = false;
				armed->release = armed != &server->armed[PROCESS_WORKER] && chance(&prng, 250);
				armed->pause = a_while(&prng);
				break;
			}
		case FAULT_KILL:
			if (chance(&prng, 100) && up && is_node(server))
			{
				story(server, "the lease worker is terminated");
				process_terminate(&server->processes[WORKER_SLOT]);
			}
			else
			{
				Armed	   *armed = &server->armed[chance(&prng, 200) ? PROCESS_HELPER : PROCESS_WORKER];

				armed->points = (int) spread(&prng, 1, 200);
				armed->words = armed == &server->armed[PROCESS_WORKER] && chance(&prng, 300);
				if (armed->words)
					armed->points = (int) spread(&prng, 1, 30);
				armed->kill = true;
				break;
			}
		case FAULT_CUT:
			server->cut_until = world.now + a_while(&prng);
			story(server, "has no network for %.6f s", (server->cut_until - world.now) / 1e6);
			break;
		case FAULT_LATE:
			server->late_until = world.now + a_while(&prng);
			story(server, "calls are lost or late for %.6f s", (server->late_until - world.now) / 1e6);
			break;
		case FAULT_DISK:
			server->slow_until = world.now + a_while(&prng);
			story(server, "the disk is slow for %.6f s", (server->slow_until - world.now) / 1e6);
			break;
		case FAULT_LOCK:
			server->locked_until = world.now + a_while(&prng) / 8;
			story(server, "the tables are locked for %.6f s", (server->locked_until - world.now) / 1e6);
			break;
		case FAULT_BURST:
			server->burst_until = world.now + a_while(&prng) / 4;
			break;
		case FAULT_IDLE:
			server->idle_until = world.now + spread(&prng, SECONDS(1), SECONDS(600));
			break;
		case FAULT_RELEASE:
			if (server->state == SERVER_RUNNING && is_node(server))
			{
				Armed	   *armed = &server->armed[PROCESS_WORKER];

				story(server, "snowflake_release()");
				give_order(server, &server->shared->release.asked);
				/* while it seals */
				if (armed->points == 0 && chance(&prng, 400))
				{
					memset(armed, 0, sizeof(*armed));
					armed->points = (int) spread(&prng, 1, 30);
					armed->words = true;
					armed->pause = a_while(&prng);
				}
			}
			break;
		case FAULT_MOVE:
			if (world.plan->moving)
				move_begin(&prng);
			break;
		case FAULT_SETTINGS:
			if (is_node(server))
				change_settings(server, &prng);
			break;
		case FAULT_PROMOTE:
			if (server->state != SERVER_STANDBY)
				break;
			promote(server, &prng);
			/* before it has started */
			if (server->state == SERVER_RUNNING && chance(&prng, 200))
				upgrade(server, &prng);
			break;
		case FAULT_LAYOUT:
			change_layout(server, &prng);
			break;
		case FAULT_CLONE:
			clone(server, &prng);
			break;
		case FAULT_STANDBY:
			make_standby(server, &prng);
			break;
		case FAULT_RESTORE:
			if (server->state == SERVER_RUNNING && chance(&prng, 500))
				back_up(server);
			else if (server->state == SERVER_RUNNING)
				restore(server, &prng);
			break;
		case FAULT_UPGRADE:
			if (server->state == SERVER_RUNNING)
				upgrade(server, &prng);
			break;
		case FAULT_DUMP:
			if (server->state == SERVER_RUNNING)
				move_dump(server, &prng);
			break;
		case FAULT_DROP:
			drop_extension(server, &prng);
			break;
		case FAULT_TEMPLATE:
			copy_database(server, &prng);
			break;
		case FAULT_HISTORY:
			server->history_until = world.now + a_while(&prng);
			story(server, "the history file of its timeline is missing for %.6f s", (server->history_until - world.now) / 1e6);
			break;
		case FAULT_NAME:
			if (is_node(server))
				lose_name(server, a_while(&prng));
			break;
		case FAULT_CANCEL:
			cancel_waits(server, &prng);
			break;
		case FAULT_FULL:
			server->full_until = world.now + a_while(&prng);
			story(server, "the disk is full for %.6f s", (server->full_until - world.now) / 1e6);
			break;
		case FAULT_SLOTS:
			server->slots_until = world.now + a_while(&prng);
			story(server, "no slot for a background worker is free for %.6f s", (server->slots_until - world.now) / 1e6);
			break;
		case FAULT_GRANTS:
			server->revoked_until = world.now + a_while(&prng);
			story(server, "nodes may not call it for %.6f s", (server->revoked_until - world.now) / 1e6);
			break;
		case FAULT_DATABASE:
			server->missing_until = world.now + a_while(&prng);
			story(server, "there is no database postgres for %.6f s", (server->missing_until - world.now) / 1e6);
			break;
		case FAULT_MONOTONIC:
			set_monotonic(server, (int) between(&prng, -500, 500), chance(&prng, 500));
			story(server, "the monotonic clock %s", server->mono.stopped ? "stops" : "drifts");
			break;
		case FAULT_BACKEND:
			if (is_node(server) && up)
				process_cancel(&server->processes[BACKEND_SLOT + below(&prng, server->plan->num_backends)],
							   chance(&prng, 300));
			break;
		case FAULT_END:
			pass_layout_end(server, &prng);
			break;
		default:
			break;
	}
}

/* What has no line in the story. */
static bool
is_told(FaultKind kind)
{
	return kind != FAULT_BURST && kind != FAULT_IDLE && kind != FAULT_PAUSE && kind != FAULT_KILL && kind != FAULT_DRIFT;
}

static void
strike(const Fault *fault)
{
	uint64		told = world.told;

	bring(fault);
	world.fault_counts[fault->kind]++;
	if (!is_told(fault->kind) || world.told != told)
		world.done_counts[fault->kind]++;
}

/*
 * The last fault: a clock is far ahead, until all are right; perhaps past the end of layouts, and perhaps
 * when its server starts.
 */
static void
last_step(void)
{
	Prng		prng = {world.plan->seed ^ 78};
	Server	   *server;

	if (world.plan->last_step < 0 || world.plan->right_clocks)
		return;
	server = &world.servers[world.plan->last_step];
	step_clock(server, chance(&prng, 700) ? SECONDS(3600) : SECONDS(70 * 365 * 86400.0));
	if (is_up(server) && chance(&prng, 700))
		server_crash(server, SECONDS(1));
	/* else ids of that time would make it take another lease */
	if (chance(&prng, 500))
		server->idle_until = world.plan->length - CALM_US;
}

/* Nothing goes wrong any more; what is wrong is put right. */
static void
calm_down(void)
{
	Prng		prng = {world.plan->seed ^ 77};

	world.calm = true;
	story(NULL, "no more faults");
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		s->cut_until = s->late_until = s->slow_until = s->idle_until = s->burst_until = 0;
		s->unnamed_until = s->history_until = s->cancel_until = 0;
		s->full_until = s->slots_until = s->revoked_until = s->missing_until = 0;
		if (s->file.clock_offset != 0)
		{
			/*
			 * nor is the clock of ids that counts a promotion set back by
			 * this
			 */
			if (s->least_clock != 0)
				s->least_clock += least_offset(s);
			s->file.clock_offset = 0;
			reload(s);
		}
		if (s->locked_until > world.now)
			s->locked_until = world.now;
		if (s->frozen_until > world.now)
			s->frozen_until = world.now;
		memset(s->armed, 0, sizeof(s->armed));
		correct_clock(s, &prng);
		set_monotonic(s, 0, false);
		s->suspended_until = Min(s->suspended_until, world.now);
		/* whatever was suspended goes on */
		for (int j = 0; j < MAX_PROCESSES; j++)
			if (s->processes[j].used)
				process_wake(&s->processes[j], world.now + 20);
	}
	put_layouts_right();
}

static void
server_event(Server *server, int what)
{
	switch (what)
	{
		case SERVER_STARTS:
			begin_start(server, &server->net);
			break;
		case SERVER_STARTS_HELPER:
			for (int slot = HELPER_SLOT; slot < BACKEND_SLOT; slot++)
				if (!server->processes[slot].used)
				{
					if (server->state == SERVER_RUNNING)
						process_start(server, slot, PROCESS_HELPER);
					break;
				}
			server->helper_starts = false;
			break;
		case SERVER_IS_UP:
			is_up_now(server);
			break;
		case SERVER_RECEIVES:
			if (server->follows >= 0)
				receive(server);
			break;
		case SERVER_IS_STOPPED:
			take_down(server, SERVER_DOWN);
			start_server(server, spread(&server->net, MILLISECONDS(100), SECONDS(60)));
			break;
		case SERVER_STARTS_WORKER:
			server_reload(server);	/* as the postmaster did */
			disturb(server);
			if (is_up(server) && !server->processes[WORKER_SLOT].used)
				process_start(server, WORKER_SLOT, PROCESS_WORKER);
			break;
		case SERVER_STARTS_BACKENDS:
			for (int i = 0; i < server->plan->num_backends && is_up(server); i++)
				if (!server->processes[BACKEND_SLOT + i].used)
					process_start(server, BACKEND_SLOT + i, PROCESS_BACKEND);
			break;
		case SERVER_HAS_COPY:
			use_copy(server);
			break;
		case SERVER_IS_PROMOTED:
			if (server->state == SERVER_STANDBY && !world.calm)
				promote(server, &server->net);
			break;
	}
}

static void
handle(const Event *event)
{
	Server	   *server;

	switch (event->kind)
	{
		case EVENT_PROCESS:
			{
				Process    *p;

				server = &world.servers[event->a];
				p = &server->processes[event->b];
				if (!p->used || p->wake_number != event->c)
					break;
				if (server->frozen_until > world.now)
				{
					p->wake_at = NEVER;
					process_wake(p, server->frozen_until + 1);
					break;
				}
				p->wake_at = NEVER;
				process_run(p);
				break;
			}
		case EVENT_TRANSACTION:
			transaction_step(event->pointer, event->a, event->c);
			break;
		case EVENT_FAULT:
			if (!world.calm)
				strike(&world.plan->faults[event->a]);
			break;
		case EVENT_CLOCK:
			server = &world.servers[event->a];
			correct_clock(server, &server->net);
			break;
		case EVENT_LAYOUTS:
			put_layouts_right();
			break;
		case EVENT_ORDER:
			replace_ending_layout();
			break;
		case EVENT_MOVE:
			move_event(event->a);
			break;
		case EVENT_SERVER:
			server = &world.servers[event->a];
			if (server->epoch == event->c)
				server_event(server, event->b);
			break;
	}
}

static void
init_server(Server *server, const ServerPlan *plan)
{
	server->plan = plan;
	server->file = server->conf = plan->conf;
	server->cluster = plan->cluster;
	server->follows = plan->follows;
	server->host = server->index;
	server->timeline = 1;
	server->lsn = 1000;
	server->prng.state = mix(world.plan->seed + 1000 + server->index);
	server->net.state = mix(world.plan->seed + 2000 + server->index);
	server->clock.value = TRUE_EPOCH + plan->offset;
	if (world.plan->right_clocks)
		server->clock.value = nearly_right(server->clock.value);
	server->clock.drift = plan->drift;
	server->mark = sim_random(NULL);
	sim_registry_init(&server->tables, 5);
	sim_registry_init(&server->backup, 5);
	sim_registry_init(&server->copy, 5);
	if (plan->follows >= 0)
	{
		server->system_identifier = world.servers[plan->follows].system_identifier;
		server->reign = world.servers[plan->follows].reign;
	}
	else
	{
		server->system_identifier = sim_random(NULL);
		server->reign = ++world.num_reigns;
	}
	if (plan->role == ROLE_REGISTRY && plan->follows < 0)
	{
		SimHere		here = here_of(server, server_clock(server));

		(void) sim_create_extension(&server->tables, &here);
		server->tables.newer = server->newer;
		check_incarnation(server);
		if (world.plan->far_ahead)
			(void) sim_limit_leases(&server->tables, &here, SECONDS(10));
	}
	if (plan->spare)
		server->state = SERVER_GONE;
	else
		schedule_server(server, (int64) below(&server->net, SECONDS(3)), SERVER_STARTS);
}

static const char *
event_name(const Event *event)
{
	static const char *const names[] = {
		"a process", "a registry call", "a fault", "a server", "a clock", "settings of layouts", "a move of the operator",
		"an order for a layout that ends"
	};

	return event->kind == EVENT_PROCESS ? process_name(&world.servers[event->a].processes[event->b]) : names[event->kind];
}

/* Runs a deployment; world has what came of it. */
void
world_run(Plan *plan, bool verbose)
{
	int64		calm_at = plan->length - CALM_US;
	int			same = 0;
	bool		stepped = false;

	memset(&world, 0, sizeof(world));
	world.plan = plan;
	world.verbose = verbose;
	world.num_servers = plan->num_servers;
	if (plan->num_servers > MAX_SERVERS)
		abort();
	world.servers = aligned_alloc(128, (sizeof(Server) * MAX_SERVERS + 127) & ~(size_t) 127);
	memset(world.servers, 0, sizeof(Server) * MAX_SERVERS);
	world.ids_of.state = mix(plan->seed);
	heap_size = 0;
	current_server = NULL;
	process_begin_run(plan->seed);
	for (int i = 0; i < MAX_SERVERS; i++)
		world.primaries[i] = -1;
	checker_begin();
	judge_begin();
	for (int i = 0; i < plan->num_servers; i++)
	{
		world.servers[i].index = i;
		init_server(&world.servers[i], &plan->servers[i]);
	}
	move_reset();
	for (int i = 0; i < plan->num_faults; i++)
		schedule(plan->faults[i].at, EVENT_FAULT, i, 0, 0, NULL);
	if (plan->order_at > 0)
		schedule(plan->order_at, EVENT_ORDER, 0, 0, 0, NULL);
	while (heap_size > 0 && !world.failed && (!world.calm || heap[0].at <= plan->length))
	{
		Event		event;

		if (!stepped && heap[0].at > calm_at - SECONDS(30))
		{
			stepped = true;
			world.now = Max(world.now, calm_at - SECONDS(30));
			last_step();
		}
		if (!world.calm && heap[0].at > calm_at)
		{
			world.now = calm_at;
			calm_down();
			continue;			/* what it has woken comes first */
		}
		event = take_event();
		same = event.at == world.now ? same + 1 : 0;
		if (same > 1000000)
			sim_fail(event.kind == EVENT_PROCESS ? &world.servers[event.a] : NULL, "time stands still: %s",
					 event_name(&event));
		world.now = event.at;
		world.events++;
		handle(&event);
	}
	if (!world.failed)
		world.now = Max(world.now, plan->length);
	if (!world.failed)
		check_calm();
	if (world.failed)
		story(NULL, "THE PROMISE IS BROKEN: %s", world.failure);
	note(world.ids);
}

void
world_free(void)
{
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		for (int j = 0; j < MAX_PROCESSES; j++)
		{
			process_drop(&s->processes[j]);
			process_free(&s->processes[j]);
		}
		for (int j = 0; j < NUM_SEGMENTS; j++)
			free(s->segments[j].memory);
		sim_registry_free(&s->tables);
		sim_registry_free(&s->backup);
		sim_registry_free(&s->copy);
		free(s->image);
	}
	transactions_free();
	move_free();
	checker_free();
	free(world.servers);
	world.servers = NULL;
}
