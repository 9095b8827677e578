/*
 * finding.c
 *	  What the simulator says when it has found something.
 *
 *	  The first line says what is wrong.  The next ones have each a name and a value: the process that was
 *	  running, and of the server that it is about: its clocks, its lease, its number, the call that is out, what it waits for
 *	  and why, its words and limits.
 */
#include "sim.h"

#include "ids/word.h"

/* Adds a line to the finding. */
void
finding_add(const char *name, const char *format,...)
{
	size_t		length = strlen(world.failure);
	va_list		args;

	pg_snprintf(world.failure + length, sizeof(world.failure) - length, "\n    %s: ", name);
	length = strlen(world.failure);
	va_start(args, format);
	pg_vsnprintf(world.failure + length, sizeof(world.failure) - length, format, args);
	va_end(args);
}

const char *
process_name(const Process *p)
{
	static char name[80];

	pg_snprintf(name, sizeof(name), "%s of server %d", p->kind == PROCESS_WORKER ? "the lease worker" :
				p->kind == PROCESS_HELPER ? "the helper" : "a backend", p->server->index);
	return name;
}

/* After its number. */
static const char *
call_name(SnowflakeCallKind kind)
{
	static const char *const names[] = {
		"", ", check_promotion", ", start_server", ", acquire_lease", ", record_uses", ", renew_lease", ", release_lease"
	};

	return names[kind];
}

/* What has to happen so that the server goes on. */
static const char *
waits_for(const SnowflakeMachine *m)
{
	if (m->call != SNOWFLAKE_CALL_NONE && m->state != SNOWFLAKE_LEASE_OPEN)
		return "the result of its call";
	if (!m->request.valid && !snowflake_machine_is_open(m))
		return "settings that give a number";
	switch (m->state)
	{
		case SNOWFLAKE_LEASE_STANDBY:
			return "the end of recovery";
		case SNOWFLAKE_LEASE_NEW:
			return "its next call, start_server";
		case SNOWFLAKE_LEASE_NO_TABLE:
			return "an id that is wanted, or the extension";
		case SNOWFLAKE_LEASE_NONE:
			return "an id that is wanted";
		case SNOWFLAKE_LEASE_ASKING:
			return "its next call, acquire_lease";
		case SNOWFLAKE_LEASE_GRANTED:
			return "its next call, record_uses";
		case SNOWFLAKE_LEASE_OPEN:
			return "nothing, the words are open; a renewal when it is due";
		case SNOWFLAKE_LEASE_SEALING:
			return "the words to be sealed";
		case SNOWFLAKE_LEASE_ENDING:
			return "its next call, release_lease";
		case SNOWFLAKE_LEASE_STOPPED:
			return "another lease worker";
	}
	return "what nobody knows";
}

/* Not before it is due, and the reason. */
static void
tell_wait(const Server *server, const SnowflakeMachine *m)
{
	int64		left = m->retry_at - server_monotonic(server);

	finding_add("waits for", "%s", waits_for(m));
	if (left > 0)
		finding_add("not before", "%.3f s from now%s", left / 1e6,
					server->mono.stopped ? ", by a monotonic clock that stands still" : "");
	if (m->refused_until != 0 || m->overloads > 0)
		finding_add("since", "%s", m->refused_until != 0 ? "it was refused" : "the registry has no time");
	if (m->problem.sqlerrcode != 0)
		finding_add("reason", "%s", m->problem.message);
	if (m->request.problem.sqlerrcode != 0)
		finding_add("reason in the settings", "%s", m->request.problem.message);
}

static void
tell_word(const char *name, const SnowflakeSlot *slot, uint64 word)
{
	char		text[160];

	pg_snprintf(text, sizeof(text), "%s of layout \"%s\"", name, slot->name);
	word &= ~SNOWFLAKE_SEALED;
	finding_add(text, "number " UINT64_FORMAT ", tick at %s, " UINT64_FORMAT, snowflake_word_node(&slot->layout, word),
				time_name(snowflake_tick_begin(&slot->layout, snowflake_word_tick(&slot->layout, word))), word);
}

static void
tell_server(Server *server)
{
	const SnowflakeMachine *m = server_machine(server);

	finding_add("server", "%d of cluster %d, timeline %u, registry \"%s\"", server->index, server->cluster, server->timeline,
				server->conf.registry);
	if (m == NULL || server->shared == NULL)
		return;
	finding_add("clock", "%s, monotonic %.6f%s", time_name(server_id_clock(server)), server_monotonic(server) / 1e6,
				server->mono.stopped ? ", which stands still" : "");
	finding_add("lease", "state %s%s, from %s until %s, generation %d", lease_state_name(m->state),
				m->leaving ? ", leaving" : "", time_name(m->lease.starts_at), time_name(m->lease.leased_until), m->lease.generation);
	finding_add("number", UINT64_FORMAT, m->lease.node);
	finding_add("call", "%snumber " UINT64_FORMAT "%s, made %.3f s ago", m->call == SNOWFLAKE_CALL_NONE ? "none is out, the last one was " : "",
				m->call_number, call_name(m->call), (server_monotonic(server) - m->called_at) / 1e6);
	tell_wait(server, m);
	for (int i = 0; i < server->shared->num_slots; i++)
	{
		const SnowflakeSlot *slot = &server->shared->slots[i];

		tell_word(slot->word.value & SNOWFLAKE_SEALED ? "sealed word" : "word", slot, slot->word.value);
		tell_word("limit", slot, slot->limit.value);
	}
}

static void
find(const Server *server, const char *format, va_list args)
{
	world.failed = true;
	pg_vsnprintf(world.failure, sizeof(world.failure), format, args);
	if (current_process != NULL)
		finding_add("process", "%s", process_name(current_process));
	if (server != NULL)
		tell_server(&world.servers[server->index]);
}

/* Something is wrong with a server (NULL: with none).  False if that is not of interest, and nothing may be added. */
bool
sim_fail(const Server *server, const char *format,...)
{
	va_list		args;

	/* without an assumption, only ids that repeat are of interest */
	if (world.failed || world.plan->breaks != BREAK_NOTHING)
		return false;
	va_start(args, format);
	find(server, format, args);
	va_end(args);
	return true;
}

/* An id has repeated. */
void
sim_fail_repeated(const Server *server, const char *format,...)
{
	va_list		args;

	if (world.failed)
		return;
	va_start(args, format);
	find(server, format, args);
	va_end(args);
}
