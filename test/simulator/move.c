/*
 * move.c
 *	  The operator: closes registries, has them taken over and changes settings, as doc/operations.md
 *	  says ("Another registry"), but in any order and at any time; now and then it closes a
 *	  registry, or changes a setting, for no reason.
 *
 * A move brings all nodes to one registry.  Any registry can be that: also the tables of a node, so that
 * it goes back to its own, or others come to it.  What the nodes use now says what is to be
 * done next: the tables that accept them are closed, and taken over; what is closed is taken over by its
 * successor; and what cannot be found any more, or was closed for tables that have another incarnation by
 * now, is taken over by its incarnation, when all of its leases are over.
 *
 * In the end, when no more faults happen, the operator puts right what is wrong.
 */
#include "sim.h"

#define LOOK_US			SECONDS(1)
#define NUM_PAPERS		4

/* What closed_registry() has returned is kept, and is taken over again. */
typedef struct Paper
{
	SimClosedRegistry closed;
	int			cluster;		/* that took it over */
} Paper;

typedef struct Move
{
	bool		active;
	bool		last;			/* it is calm */
	int			target;			/* a cluster */
	int64		step_at;
	int64		done_at;		/* nothing is left to do since; 0: something
								 * is */
	int64		set_at[MAX_SERVERS];	/* the setting of a server; 0: it was
										 * set */
	Paper		papers[NUM_PAPERS];
	int			num_papers;
	Prng		prng;
} Move;

static Move move;

static bool
is_node(const Server *s)
{
	return s->plan->role == ROLE_NODE && s->follows < 0 && s->state != SERVER_GONE && !s->plan->spare;
}

/*
 * The server of a cluster at which orders are given; NULL: there is none now.  A call that has begun there is
 * carried out afterwards.
 */
static Server *
order_server(int cluster)
{
	Server	   *s = cluster_primary(cluster);

	return s != NULL && s->state == SERVER_RUNNING && s->frozen_until <= world.now &&
		s->locked_until <= world.now && s->tables.exists && s->tables.row.database == s->tables.oid ? s : NULL;
}

static bool
has_taken(const SimRegistry *tables, uint64 incarnation)
{
	const SimUuids *taken = &tables->row.taken_over;

	for (int i = 0; i < taken->num; i++)
		if (taken->uuids[i] == incarnation)
			return true;
	return false;
}

/* Whether these tables accept nodes that have used an incarnation, or did until they were closed. */
static bool
accepts(const SimRegistry *tables, uint64 incarnation)
{
	return tables->exists && (tables->row.incarnation == incarnation || has_taken(tables, incarnation));
}

/* What a node has used; 0: nothing. */
static uint64
used_by(const Server *s)
{
	if (!s->tables.exists)
		return 0;
	return s->tables.cluster.uses == SIM_USES_OWN ? s->tables.row.incarnation : s->tables.cluster.incarnation;
}

static bool
is_root(const SimRegistry *tables)
{
	return tables->cluster.uses != SIM_USES_REGISTRY || has_taken(tables, tables->cluster.incarnation);
}

/* The setting of a server that is to use the tables of a cluster. */
static void
name_cluster(const Server *s, int cluster, char name[32])
{
	name[0] = '\0';
	if (s->cluster != cluster)
		pg_snprintf(name, 32, "c%d", cluster);
}

static void
set_registry(Server *s, int cluster)
{
	char		name[32];

	name_cluster(s, cluster, name);
	if (strcmp(s->file.registry, name) == 0)
		return;
	strlcpy(s->file.registry, name, sizeof(name));
	story(s, "settings: registry \"%s\"", name);
	reload(s);
}

/* Whether a move to a cluster has nothing left to do. */
static bool
is_done(int cluster)
{
	const Server *target = cluster_primary(cluster);

	if (target == NULL || !target->tables.exists || target->tables.row.successor != 0 || !is_root(&target->tables))
		return false;
	for (int i = 0; i < world.num_servers; i++)
	{
		const Server *s = &world.servers[i];
		char		name[32];

		if (!is_node(s))
			continue;
		name_cluster(s, cluster, name);
		if (strcmp(s->file.registry, name) != 0 || move.set_at[i] != 0 ||
			(used_by(s) != 0 && !accepts(&target->tables, used_by(s))))
			return false;
	}
	return true;
}

/* Since when the move has had nothing left to do; PG_INT64_MAX: something is. */
int64
move_done_at(void)
{
	return move.done_at != 0 && is_done(move.target) ? move.done_at : PG_INT64_MAX;
}

/*
 * Orders
 */

/*
 * Whether all former primaries have been stopped for the longest window (A3).  What takes over a registry of
 * the other parity counts a generation, as if it was promoted.
 */
static bool
are_former_over(const Server *s)
{
	return is_past(s, check_former_end(s->cluster, &s->tables, s->reign, 0));
}

static void
close_tables(Server *s, uint64 successor)
{
	SimHere		here = here_of(s, server_clock(s));
	SimReason	reason;

	if (is_own_fixed(s) && !are_former_over(s))
		return;
	reason = sim_close_registry(&s->tables, &here, successor, NULL);
	story(s, "close_registry() of %08x for %08x: %s", (unsigned) s->tables.row.incarnation, (unsigned) successor,
		  sim_reason_name(reason));
	if (reason != SIM_NO_REASON)
		return;
	start_is_counted(s);
	order_given(s);
}

static void
keep_paper(SimClosedRegistry *closed, int cluster)
{
	Paper	   *paper = &move.papers[move.num_papers++ % NUM_PAPERS];

	free(paper->closed.ends);
	paper->closed = *closed;
	paper->cluster = cluster;
}

static void
take_paper(Server *to, const SimClosedRegistry *closed)
{
	SimHere		here = here_of(to, server_clock(to));
	int			generation;
	uint64		incarnation;
	SimReason	reason;

	if (!check_can_merge() || to->tables.row.taken_over.num + closed->taken_over.num > SIM_MAX_UUIDS - 3)
		return;
	generation = to->tables.row.generation + num_uncounted(&to->tables, &here);
	if ((generation - closed->generation) % 2 != 0 && !are_former_over(to))
		return;
	reason = sim_take_over(&to->tables, &here, closed);
	incarnation = to->tables.row.incarnation;
	story(to, "take_over(jsonb) of %08x: %s", (unsigned) closed->incarnation, sim_reason_name(reason));
	if (reason != SIM_NO_REASON)
		return;
	if (to->tables.row.generation > generation)
		to->reign = ++world.num_reigns; /* as if it was promoted */
	check_incarnation(to);
	check_merged(incarnation, closed->incarnation);
	for (int i = 0; i < closed->taken_over.num; i++)
		if (!accepts(&to->tables, closed->taken_over.uuids[i]))
			sim_fail(to, "server %d has taken over a registry, but not those that it had taken over", to->index);
	start_is_counted(to);
	order_given(to);
}

static void
take_tables(Server *from, Server *to)
{
	SimHere		here = here_of(from, server_clock(from));
	SimClosedRegistry closed;

	if (sim_closed_registry(&from->tables, &here, &closed) != SIM_NO_REASON)
		return;
	take_paper(to, &closed);
	keep_paper(&closed, to->cluster);
}

/* What one registry has taken over without them, no other one does with them. */
static void
burn_papers(uint64 lost)
{
	for (int i = 0; i < NUM_PAPERS; i++)
	{
		SimClosedRegistry *closed = &move.papers[i].closed;
		bool		tells = closed->incarnation == lost;

		for (int j = 0; j < closed->taken_over.num; j++)
			tells |= closed->taken_over.uuids[j] == lost;
		if (!tells)
			continue;
		free(closed->ends);
		memset(closed, 0, sizeof(*closed));
	}
}

/*
 * A registry that is lost never runs again: neither a former primary that has it, where the standby that was
 * promoted has not, nor a standby of that.
 */
static void
stop_lost(const Server *to, uint64 lost)
{
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (s->cluster != to->cluster && s != cluster_primary(s->cluster) && accepts(&s->tables, lost) &&
			s->tables.row.successor == 0)
			lose(s);
	}
}

/* Nobody can say what a registry has leased; it has been stopped for the longest window. */
static void
take_lost(Server *to, uint64 lost)
{
	SimHere		here = here_of(to, server_clock(to));
	int64		end;
	uint64		incarnation;
	SimReason	reason;

	stop_lost(to, lost);
	end = check_end_of(lost, to->tables.row.incarnation);
	if (!is_past(to, end) || !check_can_merge() ||
		to->tables.row.taken_over.num > SIM_MAX_UUIDS - 3)
		return;
	reason = sim_take_over_lost(&to->tables, &here, lost);
	incarnation = to->tables.row.incarnation;
	story(to, "take_over(uuid) of %08x, whose leases are over at %s: %s", (unsigned) lost, time_name(end),
		  sim_reason_name(reason));
	if (reason != SIM_NO_REASON)
		return;
	check_incarnation(to);
	check_merged(incarnation, lost);
	burn_papers(lost);
	start_is_counted(to);
	order_given(to);
}

/*
 * What is to be done next
 */

/* The tables that accept an incarnation and are closed, or are not, but for those; NULL: there are none. */
static Server *
find_tables(uint64 incarnation, bool closed, const Server *but)
{
	for (int i = 0; i < world.plan->num_clusters; i++)
	{
		Server	   *s = cluster_primary(i);

		if (s != NULL && s != but && accepts(&s->tables, incarnation) && (s->tables.row.successor != 0) == closed)
			return s;
	}
	return NULL;
}

static Server *
find_incarnation(uint64 incarnation)
{
	for (int i = 0; i < world.plan->num_clusters; i++)
	{
		Server	   *s = cluster_primary(i);

		if (s != NULL && s->tables.exists && s->tables.row.incarnation == incarnation)
			return s;
	}
	return NULL;
}

/*
 * Closed tables are taken over by their successor.  If that has another incarnation by now, nobody can, and
 * the target says that all of their leases are over.
 */
static void
bring_closed(Server *from, Server *target, uint64 incarnation)
{
	Server	   *to = find_incarnation(from->tables.row.successor);

	if (order_server(from->cluster) != from)
		return;					/* later */
	if (to != NULL && order_server(to->cluster) == to)
		take_tables(from, to);
	else if (to == NULL && target->tables.row.successor == 0)
		take_lost(target, has_taken(&target->tables, from->tables.row.incarnation) ? incarnation :
				  from->tables.row.incarnation);
}

static bool
is_slow(const Server *s)
{
	return s->slow_until > world.now;
}

/* Whether a call may be under way for long: then the operator is quick. */
static bool
is_any_slow(void)
{
	for (int i = 0; i < world.num_servers; i++)
		if (is_slow(&world.servers[i]))
			return true;
	return false;
}

/* Nodes that have used an incarnation are to come to the target. */
static void
bring(uint64 incarnation, Server *target)
{
	Server	   *open = find_tables(incarnation, false, target);
	Server	   *closed = find_tables(incarnation, true, target);

	if (open != NULL && order_server(open->cluster) == open)
	{
		/* a call has begun, and ends after it is closed and taken over */
		if (!world.calm && !is_slow(open) && chance(&move.prng, 400))
		{
			open->slow_until = world.now + SECONDS(20);
			return;
		}
		if (!is_slow(open) || open->holder != NULL || open->slow_until <= world.now + SECONDS(5))
			close_tables(open, target->tables.row.incarnation);
	}
	else if (open == NULL && closed != NULL)
		bring_closed(closed, target, incarnation);
	else if (open == NULL)
		take_lost(target, incarnation);
}

/* The target is closed: its successor, or what has taken that over, comes back to it. */
static void
open_again(Server *target)
{
	const SimRegistryRow *row = &target->tables.row;
	Server	   *open = find_tables(row->incarnation, false, target);
	Server	   *closed = find_tables(row->incarnation, true, target);
	Server	   *successor = find_incarnation(row->successor);

	if (open != NULL && order_server(open->cluster) == open)
		close_tables(open, row->incarnation);
	else if (open != NULL)
		return;
	else if (closed != NULL)
		bring_closed(closed, target, row->incarnation);
	else if (successor != NULL && order_server(successor->cluster) == successor)
		take_tables(target, successor);
	else if (successor == NULL && find_tables(row->successor, false, target) == NULL &&
			 find_tables(row->successor, true, target) == NULL)
		take_lost(target, row->successor);
}

static void
do_next(void)
{
	Server	   *target = order_server(move.target);

	if (target == NULL)
		return;
	if (target->tables.row.successor != 0)
	{
		open_again(target);
		return;
	}
	for (int i = 0; i < world.num_servers; i++)
	{
		const Server *s = &world.servers[i];
		uint64		used = used_by(s);

		if (!is_node(s) || used == 0 || accepts(&target->tables, used))
			continue;
		bring(used, target);
		return;
	}
	if (!is_root(&target->tables))
		bring(target->tables.cluster.incarnation, target);
}

/*
 * Moves
 */

/* A run begins. */
void
move_reset(void)
{
	memset(&move, 0, sizeof(move));
	move.prng.state = mix(world.plan->seed ^ 79);
	if (world.plan->moving)
		schedule(LOOK_US, EVENT_MOVE, 0, 0, 0, NULL);
}

void
move_free(void)
{
	for (int i = 0; i < NUM_PAPERS; i++)
		free(move.papers[i].closed.ends);
	memset(&move, 0, sizeof(move));
}

static int
draw_cluster(Prng *prng)
{
	/* the first two have no nodes */
	return (int) below(prng, chance(prng, 700) ? 2 : world.plan->num_clusters);
}

/* Somebody does what leads nowhere. */
static void
err(Prng *prng)
{
	Server	   *from = order_server(draw_cluster(prng));
	Server	   *to = order_server(draw_cluster(prng));
	Server	   *s = &world.servers[below(prng, world.num_servers)];
	const Paper *paper = &move.papers[below(prng, NUM_PAPERS)];

	switch (below(prng, 4))
	{
		case 0:
			if (from != NULL && to != NULL && from != to)
				close_tables(from, to->tables.row.incarnation);
			break;
		case 1:
			if (from != NULL && to != NULL && from != to)
				take_tables(from, to);
			break;
		case 2:
			if (paper->closed.incarnation != 0 && to != NULL)
				take_paper(to, &paper->closed);
			break;
		default:
			if (is_node(s))
				set_registry(s, draw_cluster(prng));
			break;
	}
}

/* All nodes are to use the tables of another cluster. */
void
move_begin(Prng *prng)
{
	int			cluster = draw_cluster(prng);
	int64		begin = world.now;

	if (chance(prng, 150))
		err(prng);
	if (move.active || order_server(cluster) == NULL || is_done(cluster))
		return;
	move.active = true;
	move.target = cluster;
	move.step_at = world.now + spread(prng, 1, SECONDS(60));
	for (int i = 0; i < world.num_servers; i++)
		if (world.servers[i].plan->role == ROLE_NODE)
			move.set_at[i] = begin + spread(prng, 1, SECONDS(120));
	story(NULL, "all nodes are to use the registry of cluster %d", cluster);
}

/* The last move: to where most are. */
static void
begin_last(void)
{
	if (!move.active || order_server(move.target) == NULL)
		move.target = 0;
	move.active = move.last = true;
	move.done_at = 0;
	move.step_at = world.now;
	for (int i = 0; i < world.num_servers; i++)
		move.set_at[i] = world.servers[i].plan->role == ROLE_NODE ? world.now : 0;
	story(NULL, "all nodes are to use the registry of cluster %d in the end", move.target);
}

void
move_event(int step)
{
	schedule(world.now + LOOK_US, EVENT_MOVE, 0, 0, 0, NULL);
	if (world.calm && !move.last)
		begin_last();
	if (!move.active)
		return;
	for (int i = 0; i < world.num_servers; i++)
		if (move.set_at[i] != 0 && move.set_at[i] <= world.now)
		{
			move.set_at[i] = 0;
			set_registry(&world.servers[i], move.target);
		}
	if (move.step_at <= world.now)
	{
		do_next();
		move.step_at = world.now + (world.calm || is_any_slow() ? LOOK_US : spread(&move.prng, MILLISECONDS(100), SECONDS(20)));
	}
	if (!world.calm && chance(&move.prng, 20) && move.papers[0].closed.incarnation != 0 &&
		order_server(move.papers[0].cluster) != NULL)
		take_paper(order_server(move.papers[0].cluster), &move.papers[0].closed);
	if (!is_done(move.target))
		move.done_at = 0;
	else if (move.done_at == 0)
		move.done_at = world.now;
	if (move.done_at != 0 && !world.calm)
	{
		move.active = false;
		story(NULL, "all nodes can use the registry of cluster %d", move.target);
	}
}
