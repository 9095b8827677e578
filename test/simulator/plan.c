/*
 * plan.c
 *	  Draws a deployment and its faults.
 *
 * Swarm testing: each run has its own mix of faults, and half of the kinds not at all, so
 * that no kind hides what another one would show.
 */
#include "sim.h"

#define BUSY_LAYOUT		12		/* with 4 worker bits, and many sequences */
#define ENDING_LAYOUT	13		/* and the next one */
#define EPOCH "epoch 2020-01-01T00:00:00Z"

/* The last one is drawn for each deployment that uses it up, and only these have it. */
#define NUM_DRAWN		(lengthof(sim_layout_texts) - 1)
static char last_layout[SNOWFLAKE_DEFINITION_SIZE];

/* Tiny ones, usual ones, and some with a clock field. */
const char *const sim_layout_texts[] = {
	"twitter",
	"timestamp 41, worker 2, sequence 4, tick 1ms, " EPOCH,
	"timestamp 41, worker 3, sequence 1, tick 1ms, " EPOCH,
	"timestamp 33, worker 3, sequence 1, tick 100ms, " EPOCH,
	"timestamp 41, worker 2, clock 2, sequence 4, tick 1ms, " EPOCH,
	"timestamp 41, worker 1, clock 2, sequence 2, tick 1ms, " EPOCH,
	"sonyflake",
	"timestamp 39, datacenter 1, worker 2, sequence 3, tick 10ms, " EPOCH,
	"timestamp 31, worker 4, sequence 6, tick 1s, " EPOCH,
	"worker 3, timestamp 41, sequence 2, tick 1ms, " EPOCH,
	"timestamp 41, sequence 3, worker 3, tick 1ms, " EPOCH,
	"discord",
	"timestamp 41, worker 4, sequence 12, tick 1ms, " EPOCH,
	/* they are full half an hour and two hours after the begin */
	"timestamp 31, worker 3, sequence 4, tick 10ms, epoch 2024-09-01T17:30:00Z",
	"timestamp 31, worker 3, sequence 4, tick 10ms, epoch 2024-09-01T19:00:00Z",
	last_layout,
};
const int	sim_num_layouts = lengthof(sim_layout_texts);
SnowflakeLayout sim_layouts[lengthof(sim_layout_texts)];

static bool usable[lengthof(sim_layout_texts)];

void
sim_layouts_init(void)
{
	StaticAssertStmt(lengthof(sim_layout_texts) <= MAX_SIM_LAYOUTS, "too many layouts");
	for (int i = 0; i < (int) NUM_DRAWN; i++)
	{
		SnowflakeLayoutError error;

		usable[i] = snowflake_layout_read(sim_layout_texts[i], &sim_layouts[i], &error) &&
			snowflake_layout_is_issuable(&sim_layouts[i]);
	}
}

static const int weights[NUM_FAULTS] = {
	[FAULT_CRASH] = 6,
	[FAULT_STOP] = 3,
	[FAULT_FREEZE] = 4,
	[FAULT_STEP] = 8,
	[FAULT_DRIFT] = 1,
	[FAULT_CLOCK_STOP] = 1,
	[FAULT_SYNC] = 5,
	[FAULT_PAUSE] = 20,
	[FAULT_KILL] = 8,
	[FAULT_CUT] = 3,
	[FAULT_LATE] = 5,
	[FAULT_DISK] = 2,
	[FAULT_LOCK] = 2,
	[FAULT_BURST] = 3,
	[FAULT_IDLE] = 2,
	[FAULT_RELEASE] = 4,
	[FAULT_MOVE] = 1,
	[FAULT_SETTINGS] = 3,
	[FAULT_PROMOTE] = 4,
	[FAULT_STANDBY] = 6,
	[FAULT_RESTORE] = 2,
	[FAULT_UPGRADE] = 2,
	[FAULT_DUMP] = 2,
	[FAULT_DROP] = 2,
	[FAULT_CLONE] = 2,
	[FAULT_LAYOUT] = 1,
	[FAULT_TEMPLATE] = 2,
	[FAULT_HISTORY] = 2,
	[FAULT_NAME] = 2,
	[FAULT_CANCEL] = 3,
	[FAULT_FULL] = 2,
	[FAULT_SLOTS] = 2,
	[FAULT_GRANTS] = 1,
	[FAULT_DATABASE] = 1,
	[FAULT_MONOTONIC] = 1,
	[FAULT_BACKEND] = 6,
	[FAULT_END] = 3,
};

static uint64
least_node_max(const Conf *conf)
{
	uint64		least = snowflake_node_max(&sim_layouts[conf->layouts[0]]);

	for (int i = 1; i < conf->num_layouts; i++)
		least = Min(least, snowflake_node_max(&sim_layouts[conf->layouts[i]]));
	return least;
}

static void
draw_layouts(Prng *prng, Conf *conf, uint64 least)
{
	conf->num_layouts = chance(prng, 600) ? 1 : (int) between(prng, 2, MAX_LAYOUTS);
	do
	{
		for (int i = 0; i < conf->num_layouts; i++)
		{
			bool		again;

			do
			{
				conf->layouts[i] = (int) below(prng, NUM_DRAWN);
				/* it ends, and the others go on */
				if (i == 1 && conf->layouts[0] < ENDING_LAYOUT && chance(prng, 500))
					conf->layouts[i] = (int) between(prng, ENDING_LAYOUT, NUM_DRAWN - 1);
				again = !usable[conf->layouts[i]];
				for (int j = 0; j < i; j++)
					again |= conf->layouts[j] == conf->layouts[i];
			} while (again);
		}
	} while (least_node_max(conf) < least);
}

/* Another default layout that the numbers of the servers fit as well; false: none was found. */
bool
draw_other_layout(Prng *prng, Conf *conf)
{
	uint64		least = least_node_max(conf);

	for (int i = 0; i < 20; i++)
	{
		Conf		other = *conf;

		other.layouts[0] = (int) below(prng, NUM_DRAWN);
		other.num_layouts = 1;
		if (!usable[other.layouts[0]] || other.layouts[0] == conf->layouts[0] || least_node_max(&other) < least)
			continue;
		*conf = other;
		return true;
	}
	return false;
}

/* Other extra layouts, with as many numbers as those now. */
void
draw_extra_layouts(Prng *prng, Conf *conf)
{
	uint64		least = least_node_max(conf);

	conf->num_layouts = 1;
	for (int tries = (int) below(prng, 8); tries > 0 && conf->num_layouts < MAX_LAYOUTS; tries--)
	{
		int			layout = (int) below(prng, NUM_DRAWN);
		bool		fits = usable[layout] && snowflake_node_max(&sim_layouts[layout]) >= least;

		for (int i = 0; i < conf->num_layouts; i++)
			fits &= conf->layouts[i] != layout;
		if (fits)
			conf->layouts[conf->num_layouts++] = layout;
	}
}

/* snowflake.datacenter_id, now and then one that does not fit the layout. */
static int
draw_datacenter(Prng *prng, const SnowflakeLayout *layout)
{
	uint64		max = snowflake_field_max(layout, SNOWFLAKE_DATACENTER);

	if (!chance(prng, max > 0 ? 400 : 100))
		return -1;
	return (int) below(prng, Min(max, 1023) + (chance(prng, 100) ? 2 : 1));
}

/* Where node numbers of a server with a registry come from. */
void
draw_worker_id(Prng *prng, Conf *conf)
{
	const SnowflakeLayout *layout = &sim_layouts[conf->layouts[0]];

	conf->datacenter_id = draw_datacenter(prng, layout);
	switch (below(prng, 6))
	{
		case 0:
			strlcpy(conf->worker_id, "hostname", sizeof(conf->worker_id));
			break;
		case 1:
			strlcpy(conf->worker_id, "mac", sizeof(conf->worker_id));
			break;
		case 2:
		case 3:
			pg_snprintf(conf->worker_id, sizeof(conf->worker_id), "%d",
						(int) below(prng, snowflake_field_max(layout, SNOWFLAKE_WORKER) + 1));
			break;
		default:
			strlcpy(conf->worker_id, "auto", sizeof(conf->worker_id));
			break;
	}
}

int
draw_max_ahead(Prng *prng, const Plan *plan)
{
	return chance(prng, 300) ? plan->least_max_ahead : (int) spread(prng, Max(plan->least_max_ahead, 1), 10000);
}

static void
draw_conf(Prng *prng, const Plan *plan, Conf *conf)
{
	memset(conf, 0, sizeof(*conf));
	strlcpy(conf->worker_id, "auto", sizeof(conf->worker_id));
	conf->datacenter_id = -1;
	conf->lease_duration = chance(prng, 300) ? 120000 : (int) spread(prng, 1000, 600000);
	conf->max_ahead = chance(prng, 500) ? 1000 : draw_max_ahead(prng, plan);
	conf->max_wait = chance(prng, 500) ? 5000 : chance(prng, 100) ? 0 : (int) spread(prng, 10, 20000);
	conf->sequence_start = (int) below(prng, 3);
	conf->layout_is_set = true;
}

static void
draw_server(Prng *prng, ServerPlan *server, Role role, int cluster, int follows)
{
	memset(server, 0, sizeof(*server));
	server->role = role;
	server->cluster = cluster;
	server->follows = follows;
	server->num_backends = (int) between(prng, 1, MAX_BACKENDS);
	server->think = spread(prng, MILLISECONDS(300), SECONDS(20));
	server->burst = (int) between(prng, 1, 8);
	server->offset = chance(prng, 700) ? between(prng, -MILLISECONDS(10), MILLISECONDS(10)) :
		between(prng, -SECONDS(60), SECONDS(60));
	server->drift = (int) between(prng, -100, 100);
	/* a part of the addresses have the same low bits */
	server->mac = (draw(prng) & UINT64CONST(0xfffffffff0ff)) | 1 << 20;
	server->named_at = chance(prng, 200) ? spread(prng, SECONDS(1), SECONDS(120)) : 0;
}

/* What is there only when a copy is made. */
static void
draw_spare(Prng *prng, Plan *plan, const Conf *conf)
{
	ServerPlan *server = &plan->servers[plan->num_servers++];

	draw_server(prng, server, ROLE_NODE, plan->num_clusters++, -1);
	server->spare = true;
	server->conf = *conf;
}

/* A standby of a node that was drawn just now. */
static void
draw_standby(Prng *prng, Plan *plan, const ServerPlan *primary)
{
	ServerPlan *server = &plan->servers[plan->num_servers++];

	draw_server(prng, server, ROLE_NODE, primary->cluster, (int) (primary - plan->servers));
	server->conf = primary->conf;
}

/* A cluster with its own tables, and its standbys. */
static void
draw_own(Prng *prng, Plan *plan)
{
	Conf		conf;

	draw_conf(prng, plan, &conf);
	plan->num_servers = chance(prng, 250) ? 1 : (int) between(prng, 2, 4);
	plan->num_clusters = 1;
	if (plan->breaks == BREAK_THREE_PRIMARIES)
		plan->num_servers = 4;
	else if (plan->breaks == BREAK_FIXED_TWICE || plan->breaks == BREAK_PROMOTED_CLOCK)
		plan->num_servers = 3;
	if (plan->breaks == BREAK_FIXED_TWICE ||
		(chance(prng, 300) && plan->breaks != BREAK_THREE_PRIMARIES))
	{
		draw_layouts(prng, &conf, 1);
		if (plan->breaks != BREAK_FIXED_TWICE && chance(prng, 300))
			strlcpy(conf.worker_id, "hostname", sizeof(conf.worker_id));
		else
			pg_snprintf(conf.worker_id, sizeof(conf.worker_id), "%d",
						(int) below(prng, Min(least_node_max(&conf),
											  snowflake_field_max(&sim_layouts[conf.layouts[0]], SNOWFLAKE_WORKER) + 1)));
	}
	else
	{
		draw_layouts(prng, &conf, 3);
		if (plan->breaks == BREAK_NOTHING)
			conf.datacenter_id = draw_datacenter(prng, &sim_layouts[conf.layouts[0]]);
	}
	for (int i = 0; i < plan->num_servers; i++)
	{
		draw_server(prng, &plan->servers[i], ROLE_NODE, 0, i == 0 ? -1 :
					plan->breaks == BREAK_NOTHING && chance(prng, 400) ? (int) below(prng, i) : 0);
		plan->servers[i].conf = conf;
		plan->servers[i].sync = i == 1 && chance(prng, 500);
	}
	if (plan->breaks == BREAK_COPY)
		draw_spare(prng, plan, &conf);
}

/* A registry, and its standbys. */
static void
draw_registry(Prng *prng, Plan *plan, int standbys, bool sync)
{
	int			first = plan->num_servers;

	for (int i = 0; i <= standbys; i++)
	{
		/* the second standby may follow the first one */
		draw_server(prng, &plan->servers[plan->num_servers], ROLE_REGISTRY, plan->num_clusters,
					i == 0 ? -1 : first + (i == 2 && chance(prng, 500)));
		plan->servers[plan->num_servers++].sync = sync && i <= 1;
	}
	plan->num_clusters++;
}

/*
 * Nodes that use one of two registries, or their own tables, and change.  few: they share few numbers, and all
 * use the first registry; what it has lost before it is closed is seen then.
 */
static void
draw_moving(Prng *prng, Plan *plan, bool few)
{
	Conf		conf;
	int			nodes = !few && chance(prng, 300) ? 1 : (int) between(prng, 2, 4);
	bool		alike = few || chance(prng, 600);
	bool		standbys = !few && chance(prng, 500);

	plan->shared = plan->moving = true;
	plan->few = few;
	plan->async = few || chance(prng, 500);
	plan->mixed = !plan->async && !standbys && chance(prng, 300);
	draw_conf(prng, plan, &conf);
	do
		draw_layouts(prng, &conf, 3);
	while (few && least_node_max(&conf) > 7);
	conf.lease_duration = Min(conf.lease_duration, chance(prng, 400) ? 240000 : 30000);
	for (int i = 0; i < 2; i++)
		draw_registry(prng, plan, few ? (i == 0 ? (int) between(prng, 1, 2) : 0) : plan->async ? (int) below(prng, 3) : 0, false);
	if (nodes > 1 || chance(prng, 300))
		strlcpy(conf.registry, "c0", sizeof(conf.registry));
	for (int i = 0; i < nodes; i++)
	{
		ServerPlan *server = &plan->servers[plan->num_servers++];

		draw_server(prng, server, ROLE_NODE, plan->num_clusters++, -1);
		server->conf = conf;
		if (!alike)
			strlcpy(server->conf.registry, chance(prng, 400) ? "" : chance(prng, 500) ? "c0" : "c1",
					sizeof(conf.registry));

		/*
		 * one of the nodes may be the registry, or it is not known yet that
		 * it uses another one
		 */
		if (!alike && i > 0 && chance(prng, 300))
			pg_snprintf(server->conf.registry, sizeof(conf.registry), "c%d", 2 + (int) below(prng, nodes));
		if (standbys && plan->num_servers + nodes - i <= MAX_SERVERS && chance(prng, 500))
			draw_standby(prng, plan, server);
	}
}

/*
 * A small registry without a synchronous standby: it fails over while the old primary lives, and nodes reach
 * either.
 */
static void
draw_async(Prng *prng, Plan *plan)
{
	Conf		conf;
	bool		busy = chance(prng, 250);
	int			nodes = busy ? 5 : (int) between(prng, 2, 6);

	plan->shared = plan->async = true;
	draw_conf(prng, plan, &conf);
	draw_layouts(prng, &conf, 3);
	if (busy || chance(prng, 300))
	{
		conf.num_layouts = 1;
		conf.layouts[0] = BUSY_LAYOUT;
	}
	conf.lease_duration = Min(conf.lease_duration, busy ? 20000 : 120000);
	strlcpy(conf.registry, "c0", sizeof(conf.registry));
	draw_registry(prng, plan, (int) between(prng, 1, 2), false);
	for (int i = 0; i < nodes; i++)
	{
		ServerPlan *server = &plan->servers[plan->num_servers++];

		draw_server(prng, server, ROLE_NODE, plan->num_clusters++, -1);
		server->conf = conf;
		if (busy)
		{
			server->num_backends = MAX_BACKENDS;
			server->think = MILLISECONDS(800);
			server->burst = 60;
		}
		else if (plan->num_servers + nodes - i <= MAX_SERVERS && chance(prng, 100))
			draw_standby(prng, plan, server);
	}
	if (busy)
		plan->length = CALM_US + spread(prng, SECONDS(300), SECONDS(1200));
}

/* Clusters that share a registry. */
static void
draw_shared(Prng *prng, Plan *plan)
{
	Conf		conf;
	int			nodes = (int) between(prng, 1, 6);

	/* what a failover loses matters for them; two have the same number */
	bool		fixed = plan->breaks == BREAK_NOTHING && chance(prng, 300);
	bool		standby = fixed || chance(prng, 500) || plan->breaks == BREAK_ASYNC_FIXED;

	plan->shared = true;
	plan->mixed = plan->breaks == BREAK_NOTHING;
	draw_conf(prng, plan, &conf);
	/* without an assumption, ids repeat where numbers are few */
	do
		draw_layouts(prng, &conf, 1 + (uint64) between(prng, 0, 8));
	while (plan->breaks != BREAK_NOTHING && (least_node_max(&conf) > 15 || least_node_max(&conf) < 3));
	strlcpy(conf.registry, "c0", sizeof(conf.registry));
	if (fixed)
	{
		nodes = Max(nodes, 3);
		conf.lease_duration = Min(conf.lease_duration, chance(prng, 500) ? 30000 : 120000);
	}
	draw_registry(prng, plan, standby ? 1 : 0, standby && plan->breaks != BREAK_ASYNC_FIXED);
	for (int i = 0; i < nodes; i++)
	{
		ServerPlan *server = &plan->servers[plan->num_servers++];

		draw_server(prng, server, ROLE_NODE, plan->num_clusters++, -1);
		server->conf = conf;
		if (plan->breaks == BREAK_ASYNC_FIXED)
			strlcpy(server->conf.worker_id, chance(prng, 500) ? "0" : "1", sizeof(server->conf.worker_id));
		else if (fixed)
			strlcpy(server->conf.worker_id, chance(prng, 500) ? "0" : "1", sizeof(server->conf.worker_id));
		else if (chance(prng, 400) && plan->breaks == BREAK_NOTHING)
			draw_worker_id(prng, &server->conf);
		if (plan->num_servers + nodes - i <= MAX_SERVERS && chance(prng, 200))
			draw_standby(prng, plan, server);
	}
	if (plan->num_servers < 9 && chance(prng, 400))
		draw_spare(prng, plan, &conf);
}

static void
draw_faults(Prng *prng, Plan *plan, int64 mean)
{
	int			chosen[NUM_FAULTS];
	int			total = 0;
	int			room = 0;
	int64		at = SECONDS(1);

	for (int i = 0; i < NUM_FAULTS; i++)
	{
		chosen[i] = chance(prng, 550) ? weights[i] * (int) between(prng, 1, 4) : 0;
		if (plan->breaks != BREAK_NOTHING && (i == FAULT_PROMOTE || i == FAULT_STANDBY || i == FAULT_CLONE ||
											  i == FAULT_DROP || i == FAULT_STEP || i == FAULT_CRASH))
			chosen[i] = 2 * weights[i];
		if (plan->breaks == BREAK_DROP && (i == FAULT_DROP || i == FAULT_STEP))
			chosen[i] = 30;
		if (plan->moving && i == FAULT_MOVE)
			chosen[i] = 30;
		if (plan->moving && (i == FAULT_STEP || i == FAULT_RELEASE))
			chosen[i] = 2 * weights[i];
		/* a failover that loses something, and then the next one */
		if (plan->async && (i == FAULT_PROMOTE || i == FAULT_STANDBY))
			chosen[i] = 6 * weights[i];
		if (plan->few && (i == FAULT_PROMOTE || i == FAULT_STANDBY || i == FAULT_MOVE))
			chosen[i] = 120;
		total += chosen[i];
	}
	/* what an unreplicated commit does is seen when its standby is promoted */
	for (int i = 0; i < plan->num_servers; i++)
		if (plan->servers[i].sync && plan->servers[i].follows >= 0 && chance(prng, 800))
		{
			total -= chosen[FAULT_PROMOTE] + chosen[FAULT_STANDBY] + chosen[FAULT_CANCEL];
			chosen[FAULT_PROMOTE] = chosen[FAULT_STANDBY] = chosen[FAULT_CANCEL] = 40;
			total += 120;
		}
	if (total == 0)
		total = chosen[FAULT_CRASH] = 1;
	plan->num_faults = 0;
	plan->faults = NULL;
	for (at += exponential(prng, mean); at < plan->length - CALM_US; at += exponential(prng, mean))
	{
		Fault	   *fault;
		int			luck = (int) below(prng, total);
		int			kind = 0;

		while ((luck -= chosen[kind]) >= 0)
			kind++;
		if (plan->num_faults == room)
			plan->faults = realloc(plan->faults, (room = 2 * room + 64) * sizeof(Fault));
		fault = &plan->faults[plan->num_faults++];
		fault->at = at;
		fault->kind = kind;
		fault->server = (int) below(prng, plan->num_servers);
		fault->seed = draw(prng);
	}
}

/*
 * A layout with the node numbers of another one, which ends at a time.  Its ticks are long and its sequences few, so
 * that servers use up the last tick.  Its epoch is hours before all clocks.
 */
static void
make_last_layout(Prng *prng, const SnowflakeLayout *numbers, TimestampTz end)
{
	static const struct
	{
		int			milliseconds;
		int			timestamp;	/* bits for nine hours or more */
		int			sequence;
	}			ticks[] = {{10, 22, 1}, {100, 19, 2}, {1000, 15, 5}};
	int			tick = (int) below(prng, lengthof(ticks));
	int			bits = ticks[tick].timestamp + (int) below(prng, 6);
	char		numbers_text[64] = "";
	char		epoch[64];
	SnowflakeLayoutError error;

	for (SnowflakeField field = SNOWFLAKE_DATACENTER; field < SNOWFLAKE_SEQUENCE; field++)
		if (numbers->bits[field] > 0)
			pg_snprintf(numbers_text + strlen(numbers_text), sizeof(numbers_text) - strlen(numbers_text), "%s %d, ",
						snowflake_field_name(field), numbers->bits[field]);
	snowflake_epoch_write(end - (INT64CONST(1) << bits) * MILLISECONDS(ticks[tick].milliseconds), epoch, sizeof(epoch));
	pg_snprintf(last_layout, sizeof(last_layout), "timestamp %d, %ssequence %d, tick %dms, epoch %s", bits, numbers_text,
				ticks[tick].sequence + (int) below(prng, 2), ticks[tick].milliseconds, epoch);
	if (!snowflake_layout_read(last_layout, &sim_layouts[NUM_DRAWN], &error))
		abort();
}

/*
 * In one of eight deployments the default layout ends, mostly before all is calm.  In half of these an operator orders
 * another one, before or after that.  Others stay as they are: this draws from a stream of its own.
 */
static void
draw_end(Plan *plan)
{
	Prng		prng = {mix(plan->seed ^ 427)};
	int64		calm_at = plan->length - CALM_US;

	if (plan->breaks != BREAK_NOTHING || !chance(&prng, 125))
		return;
	plan->layout_ends = chance(&prng, 300) ? between(&prng, calm_at, plan->length - SECONDS(5)) :
		between(&prng, SECONDS(60), calm_at);
	/* nodes have the same one; the last server is a node */
	make_last_layout(&prng, &sim_layouts[plan->servers[plan->num_servers - 1].conf.layouts[0]],
					 TRUE_EPOCH + plan->layout_ends);
	for (int i = 0; i < plan->num_servers; i++)
		plan->servers[i].conf.layouts[0] = NUM_DRAWN;
	if (chance(&prng, 500))
		plan->order_at = Max(plan->layout_ends + between(&prng, -SECONDS(120), SECONDS(120)), SECONDS(1));
}

/*
 * In one of four deployments with right clocks ids run as far ahead of the clock as they ever may, and leases are as
 * short as a registry can make them, so a number's word can be past the end of the lease that it is to be opened for.
 * With clocks that differ by almost as much as such a lease is long, ids would wait for renewals.
 */
static void
draw_far_ahead(Plan *plan)
{
	Prng		prng = {mix(plan->seed ^ 428)};

	if (plan->breaks != BREAK_NOTHING || !plan->right_clocks || !chance(&prng, 250))
		return;
	plan->far_ahead = true;
	for (int i = 0; i < plan->num_servers; i++)
	{
		plan->servers[i].conf.max_ahead = 10000;
		plan->servers[i].conf.lease_duration = 1000;
	}
}

/*
 * Whether clocks differ by less than 10 s, and operators wait, as doc/operations.md says, before a server becomes
 * writable.  Fixed numbers depend on clocks in other ways.
 */
static bool
draw_right_clocks(const Plan *plan)
{
	Prng		prng = {mix(plan->seed ^ 426)};

	for (int i = 0; i < plan->num_servers; i++)
		if (plan->servers[i].role == ROLE_NODE && strcmp(plan->servers[i].conf.worker_id, "auto") != 0)
			return false;
	return !plan->mixed && (plan->breaks == BREAK_SHORT_WAIT || (plan->breaks == BREAK_NOTHING && chance(&prng, 500)));
}

void
plan_draw(Plan *plan, uint64 seed, uint64 run, Break breaks)
{
	Prng		prng = {mix(seed) + mix(run + 0x5eed)};

	memset(plan, 0, sizeof(*plan));
	plan->breaks = breaks;
	plan->seed = draw(&prng);
	plan->length = CALM_US + spread(&prng, SECONDS(300), SECONDS(7200));
	plan->least_max_ahead = chance(&prng, 300) ? 0 : chance(&prng, 300) ? 1 : 10;
	plan->longest_step = chance(&prng, 600) ? SECONDS(10) : spread(&prng, MILLISECONDS(100), SECONDS(7200));
	if (breaks == BREAK_COPY || breaks == BREAK_THREE_PRIMARIES || breaks == BREAK_PROMOTED_CLOCK ||
		breaks == BREAK_FIXED_TWICE)
		draw_own(&prng, plan);
	else if (breaks == BREAK_ASYNC_FIXED || breaks == BREAK_DROP)
		draw_shared(&prng, plan);
	else if (breaks == BREAK_SHORT_WAIT)
		draw_async(&prng, plan);
	else if (chance(&prng, 180))
		draw_moving(&prng, plan, true);
	else if (chance(&prng, 400))
		draw_own(&prng, plan);
	else if (chance(&prng, 350))
		draw_moving(&prng, plan, false);
	else if (chance(&prng, 400))
		draw_async(&prng, plan);
	else
		draw_shared(&prng, plan);
	/* nodes do not follow a registry whose extension is new, until all change */
	if (breaks == BREAK_DROP)
		plan->length = CALM_US + SECONDS(300);
	plan->last_step = chance(&prng, 400) ? (int) below(&prng, plan->num_servers) : -1;
	plan->right_clocks = draw_right_clocks(plan);
	draw_end(plan);
	draw_far_ahead(plan);
	draw_faults(&prng, plan, spread(&prng, MILLISECONDS(500), SECONDS(30)));
}

/* An hour of five nodes that share a registry, with ten faults a minute: to measure. */
void
plan_draw_hour(Plan *plan, uint64 seed)
{
	Prng		prng = {mix(seed)};

	do
	{
		free(plan->faults);
		memset(plan, 0, sizeof(*plan));
		plan->seed = draw(&prng);
		plan->length = SECONDS(3600);
		plan->last_step = -1;
		plan->longest_step = SECONDS(10);
		draw_shared(&prng, plan);
		draw_faults(&prng, plan, SECONDS(6));
	} while (plan->num_servers != 6 || plan->servers[1].role != ROLE_NODE);
}
