/*
 * move.c
 *	  The operator that changes the registry of all nodes, as doc/operations.md says
 *	  ("Another registry").
 *
 * If the old registry does not answer, or is not known since the node was started, the
 * notice says that all ids of its numbers must be past; so the clocks are held from then
 * on: they are not set back behind these ids.
 */
#include "sim.h"

#define LOOK_US			SECONDS(1)
#define CHANGE_WAIT_US	SECONDS(60)
#define LONGEST_US		SECONDS(900)

typedef struct Move
{
	bool		active;
	bool		for_ever;		/* the clocks are held */
	char		target[32];
	int			step;
	int			node;
	int64		since;
	uint32		asked;			/* the order that is out; 0: none */
	uint64		epoch;			/* of the server then */
} Move;

static Move move;

enum
{
	WAIT_UNTIL_REFUSED,
	WAIT_FOR_CLOCKS,
	CHANGE,
	REST						/* before the next node */
};

/* Of standbys and of those that are gone nothing is asked. */
static bool
is_node(const Server *s)
{
	return s->plan->role == ROLE_NODE && s->follows < 0 && s->state != SERVER_GONE;
}

static bool
is_running_node(const Server *s)
{
	return s->plan->role == ROLE_NODE && s->state == SERVER_RUNNING;
}

/* Whether its numbers come from where its settings say. */
static bool
has_changed(const Server *s)
{
	if (s->file.registry[0] == '\0')
		return s->tables.uses == SIM_USES_OWN;
	return s->tables.uses == SIM_USES_REGISTRY && cluster_primary(atoi(s->file.registry + 1)) != NULL &&
		s->tables.uses_incarnation == cluster_primary(atoi(s->file.registry + 1))->tables.incarnation;
}

bool
move_is_active(void)
{
	return move.active;
}

/*
 * A standby that has not heard of a change must not look as if its record was what the settings
 * name: it would not be refused.
 */
bool
move_allows_promotion(const Server *server, const Server *parent)
{
	if (server->tables.uses == parent->tables.uses &&
		server->tables.uses_incarnation == parent->tables.uses_incarnation)
		return true;
	return server->tables.uses != SIM_USES_NOTHING && !has_changed(server);
}

static bool
is_refused(Server *s)
{
	const SnowflakeMachine *m = server_machine(s);

	return m->state == SNOWFLAKE_LEASE_ASKING && !has_changed(s) && s->tables.uses != SIM_USES_NOTHING &&
		strcmp(s->conf.registry, s->file.registry) == 0 && m->call == SNOWFLAKE_CALL_NONE &&
		m->problem.sqlerrcode != 0;
}

static void
hold_clocks(void)
{
	TimestampTz end = DT_NOBEGIN;

	for (int i = 0; i < world.num_servers; i++)
		end = Max(end, last_id_time(&world.servers[i]));
	if (end == DT_NOBEGIN)
		return;
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		s->held_clock = Max(end, s->held_clock);
		if (server_clock(s) < end)
			step_clock(s, end - server_clock(s) + 1);
	}
}

static void
finish_move(void)
{
	story(NULL, "the change of registry is over%s", move.for_ever ? "; the clocks are held" : "");
	move.active = false;
	for (int i = 0; i < world.num_servers && !move.for_ever; i++)
		world.servers[i].held_clock = 0;
}

static void
go_to(int step)
{
	move.step = step;
	move.since = world.now;
}

static void
next_node(void)
{
	move.asked = 0;
	do
		move.node++;
	while (move.node < world.num_servers && !is_running_node(&world.servers[move.node]));
	if (move.node >= world.num_servers)
		finish_move();
	else
		go_to(CHANGE);
}

/* A run begins. */
void
move_reset(void)
{
	memset(&move, 0, sizeof(move));
	if (world.plan->moving)
		schedule(LOOK_US, EVENT_MOVE, 0, 0, 0, NULL);
}

/* Settings of all nodes name another registry from now on. */
void
move_begin(Prng *prng)
{
	char		target[32] = "";
	int			nodes = 0;
	int			choice;

	if (move.active)
		return;
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (!is_node(s))
			continue;
		nodes += cluster_primary(s->cluster) == s;
		/* a server that has issued nothing yet would not wait for the others */
		if (s->state != SERVER_RUNNING || !has_changed(s))
			return;
	}
	choice = (int) below(prng, nodes == 1 ? 3 : 2);
	if (choice < 2)
		pg_snprintf(target, sizeof(target), "c%d", choice);
	for (int i = 0; i < world.num_servers; i++)
		if (is_node(&world.servers[i]) && strcmp(world.servers[i].file.registry, target) == 0)
			return;
	strlcpy(move.target, target, sizeof(target));
	move.active = true;
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (s->plan->role != ROLE_NODE)
			continue;

		/*
		 * a former primary is stopped; if it used its own tables, no row
		 * tells of its last ids
		 */
		if (is_node(s) && cluster_primary(s->cluster) != s)
			lose(s);
		move.for_ever |= s->file.registry[0] == '\0' && world.has_gaps[s->cluster];
		strlcpy(s->file.registry, target, sizeof(target));
		reload(s);
	}
	story(NULL, "the registry of all nodes is to be \"%s\"", target);
	go_to(WAIT_UNTIL_REFUSED);
}

/* A node that was restored, or was down, uses another registry than its settings say. */
static void
look_for_refused(void)
{
	for (int i = 0; i < world.num_servers; i++)
		if (is_running_node(&world.servers[i]) && is_refused(&world.servers[i]))
		{
			move.active = true;
			move.asked = 0;
			move.node = i;
			hold_clocks();
			go_to(CHANGE);
			return;
		}
}

/* The lease worker or the helper ends somewhere in what it has to do now. */
static void
end_amid(Server *s)
{
	Armed	   *armed = &s->armed[chance(&s->net, 300) ? PROCESS_HELPER : PROCESS_WORKER];

	armed->words = false;
	armed->points = (int) spread(&s->net, 1, 200);
	armed->kill = true;
}

static void
change(Server *s)
{
	pg_atomic_uint32 *done;

	if (!is_running_node(s))
	{
		if (world.now - move.since > LONGEST_US)
			next_node();
		return;
	}
	done = &s->shared->change.done;
	if (move.asked == 0 || move.epoch != s->epoch)
	{
		/* what would have been told is lost */
		move.for_ever |= move.asked != 0;
		move.asked = 0;
		if (has_changed(s) || world.now - move.since > LONGEST_US)
			next_node();
		else if (is_refused(s))
		{
			hold_clocks();
			story(s, "snowflake_change_registry()");
			give_order(s, &s->shared->change.asked);
			move.asked = pg_atomic_read_u32(&s->shared->change.asked);
			move.epoch = s->epoch;
			if (!world.calm && chance(&s->net, 200))
				end_amid(s);
		}
	}
	else if ((int32) (pg_atomic_read_u32(done) - move.asked) >= 0)
	{
		move.asked = 0;
		if (s->shared->outcome.done && s->shared->outcome.notice[0] != '\0')
		{
			story(s, "%s", s->shared->outcome.notice);
			hold_clocks();
			move.for_ever = true;
		}
		if (s->shared->outcome.done && !move.for_ever)
			check_handed_over(move.target[0] == '\0' ? &s->tables : &cluster_primary(atoi(move.target + 1))->tables);
		if (has_changed(s))
			go_to(REST);
	}
}

/* Nobody has ordered the change yet. */
static void
check_not_followed(void)
{
	for (int i = 0; i < world.num_servers; i++)
	{
		Server	   *s = &world.servers[i];

		if (is_running_node(s) && server_machine(s)->state == SNOWFLAKE_LEASE_OPEN &&
			s->tables.uses != SIM_USES_NOTHING && strcmp(server_machine(s)->lease_request.registry, move.target) == 0)
			sim_fail("server %d follows a setting of the registry without snowflake_change_registry()", i);
	}
}

void
move_event(void)
{
	schedule(world.now + LOOK_US, EVENT_MOVE, 0, 0, 0, NULL);
	if (!move.active)
	{
		look_for_refused();
		return;
	}
	switch (move.step)
	{
		case WAIT_UNTIL_REFUSED:
			check_not_followed();
			for (int i = 0; i < world.num_servers; i++)
				if (is_node(&world.servers[i]) &&
					!(is_running_node(&world.servers[i]) && is_refused(&world.servers[i])))
					return;
			go_to(WAIT_FOR_CLOCKS);
			break;
		case WAIT_FOR_CLOCKS:
			/* also those that are down: what they have issued is past */
			if (world.now - move.since < SECONDS(15))
				return;
			hold_clocks();
			move.node = -1;
			next_node();
			break;
		case CHANGE:
			change(&world.servers[move.node]);
			break;
		case REST:
			if (world.now - move.since > (int64) world.servers[move.node].conf.lease_duration * 1000)
				next_node();
			break;
	}
}
