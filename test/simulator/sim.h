/*
 * sim.h
 *	  The simulator: whole deployments of snowflake in one process, from a seed.
 *
 *	  simulator.c	options, runs, cutting a failure down, the story
 *	  world.c		true time, events, servers, clocks; what faults do
 *	  plan.c		draws a deployment and its faults from a seed
 *	  process.c		processes as coroutines, and what src/ calls of the server
 *	  move.c		the operator: closes registries, has them taken over, changes settings
 *	  calls.c		registry calls: the network, transactions, commits
 *	  registry.c	the tables and the functions of src/sql/registry (registry.h)
 *	  checker.c		what must hold
 *	  judge.c		which refusals are needed
 *	  finding.c		what is said of what was found
 *
 * The files of src/ run as they are (hooks.h): the lease worker, the helper and the
 * backends with all that they call, but for the settings' definition (guc.c), the
 * statements (protocol.c) and the transports (local.c, remote.c).
 *
 * Time is true time, microseconds since the begin of the run; each server has clocks of
 * its own.  Nothing may depend on addresses, on the real clock or on memory that
 * was not set, so that a seed gives the same run to the last bit.
 */
#ifndef SIM_H
#define SIM_H

#include "postgres.h"

#include <setjmp.h>

#include "storage/proc.h"

#include "guc.h"
#include "ids/wait.h"
#include "lease/machine.h"
#include "registry/protocol.h"
#include "registry.h"
#include "shmem.h"

#include "../stubs/states.h"

#define MAX_SERVERS		12
#define MAX_LAYOUTS		4
#define MAX_PROCESSES	8		/* of a server: its lease worker, helpers,
								 * backends */
#define WORKER_SLOT		0
#define HELPER_SLOT		1
#define BACKEND_SLOT	3
#define MAX_BACKENDS	(MAX_PROCESSES - BACKEND_SLOT)
#define SECONDS(s)		((int64) ((s) * USECS_PER_SEC))
#define MILLISECONDS(ms) ((int64) ((ms) * 1000))
#define NEVER			PG_INT64_MAX
#define CALM_US			SECONDS(300)	/* at the end of a run nothing goes
										 * wrong */

/*
 * Random numbers: splitmix64.  Each purpose has a stream of its own, so that a run from which
 * faults are taken away stays as it was otherwise.
 */
typedef struct Prng
{
	uint64		state;
} Prng;

static inline uint64
mix(uint64 z)
{
	z = (z ^ (z >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline uint64
draw(Prng *prng)
{
	return mix(prng->state += UINT64CONST(0x9e3779b97f4a7c15));
}

/* From 0 to below n. */
static inline uint64
below(Prng *prng, uint64 n)
{
	return n <= 1 ? 0 : (uint64) (((unsigned __int128) draw(prng) * n) >> 64);
}

static inline int64
between(Prng *prng, int64 least, int64 most)
{
	return least + (int64) below(prng, (uint64) (most - least + 1));
}

static inline bool
chance(Prng *prng, int permille)
{
	return below(prng, 1000) < (uint64) permille;
}

extern int64 spread(Prng *prng, int64 least, int64 most);
extern int64 exponential(Prng *prng, int64 mean);

/*
 * Deployments, as drawn (plan.c).
 */
typedef enum FaultKind
{
	FAULT_CRASH,
	FAULT_STOP,
	FAULT_FREEZE,
	FAULT_STEP,
	FAULT_DRIFT,
	FAULT_CLOCK_STOP,
	FAULT_SYNC,
	FAULT_PAUSE,
	FAULT_KILL,
	FAULT_CUT,
	FAULT_LATE,
	FAULT_DISK,
	FAULT_LOCK,
	FAULT_BURST,
	FAULT_IDLE,
	FAULT_RELEASE,
	FAULT_MOVE,
	FAULT_SETTINGS,
	FAULT_PROMOTE,
	FAULT_STANDBY,
	FAULT_RESTORE,
	FAULT_UPGRADE,
	FAULT_DUMP,
	FAULT_DROP,
	FAULT_CLONE,
	FAULT_LAYOUT,
	FAULT_TEMPLATE,
	FAULT_HISTORY,
	FAULT_NAME,
	FAULT_CANCEL,
	FAULT_FULL,
	FAULT_SLOTS,
	FAULT_GRANTS,
	FAULT_DATABASE,
	FAULT_MONOTONIC,
	FAULT_BACKEND,
	FAULT_END,
	NUM_FAULTS
} FaultKind;

typedef struct Fault
{
	int64		at;
	FaultKind	kind;
	int			server;
	uint64		seed;			/* of its details */
} Fault;

/* Assumptions of README that can be broken, one at a time. */
typedef enum Break
{
	BREAK_NOTHING,
	BREAK_COMMITS,				/* a commit that was acknowledged is lost */
	BREAK_ASYNC_FIXED,			/* a registry of fixed numbers fails over to
								 * an asynchronous standby */
	BREAK_COPY,					/* a copy is started writable without a
								 * registry */
	BREAK_THREE_PRIMARIES,		/* two standbys of one primary are promoted,
								 * all writable */
	BREAK_PROMOTED_CLOCK,		/* ends that a failover has lost are not over
								 * by the clock of the next primary */
	BREAK_SHORT_WAIT,			/* before a server becomes writable, only
								 * lease_duration is waited for, and nothing
								 * for the last primary */
	BREAK_FIXED_TWICE,			/* a fixed number has two running servers,
								 * promoted */
	BREAK_DROP,					/* DROP EXTENSION in a registry that others
								 * use */
	BREAK_MEMORY,				/* a running machine's memory image is
								 * restored */
	NUM_BREAKS
} Break;

extern const char *const break_names[NUM_BREAKS];
extern const char *const fault_names[NUM_FAULTS];

typedef struct Conf
{
	char		worker_id[16];
	int			datacenter_id;
	char		registry[32];	/* "c3": cluster 3; empty: own */
	int			lease_duration; /* milliseconds, as the next two */
	int			max_ahead;
	int			max_wait;
	int			sequence_start;
	int			clock_offset;	/* milliseconds */
	bool		layout_is_set;
	int			num_layouts;
	int			layouts[MAX_LAYOUTS];	/* into sim_layouts */
} Conf;

typedef enum Role
{
	ROLE_NODE,					/* issues ids */
	ROLE_REGISTRY				/* grants leases, issues none */
} Role;

typedef struct ServerPlan
{
	Role		role;
	int			cluster;
	int			follows;		/* a standby of that server, which may be one
								 * itself; -1: a primary */
	bool		sync;			/* its primary waits for it */
	bool		spare;			/* not there at first */
	Conf		conf;
	int			num_backends;
	int64		think;			/* mean time between bursts of a backend */
	int			burst;			/* mean length */
	int64		offset;			/* of its clock */
	int			drift;			/* millionths */
	uint64		mac;			/* of its network interface */
	int64		named_at;		/* before that the host has neither its name
								 * nor the interface */
} ServerPlan;

typedef struct Plan
{
	uint64		seed;			/* of all that is not a fault */
	Break		breaks;
	int64		length;
	bool		shared;			/* several clusters: all use a registry */
	bool		moving;			/* nodes change their registry now and then */
	bool		async;			/* the registry's standbys are asynchronous,
								 * and are promoted while the primary lives;
								 * its backups are restored */
	bool		few;			/* its first registry has few numbers, and
								 * fails over again and again */
	bool		mixed;			/* numbers are fixed or automatic, and change */
	bool		right_clocks;	/* they differ by less than 10 s, as
								 * doc/operations.md wants it */
	int64		longest_step;	/* of a clock */
	int			least_max_ahead;	/* milliseconds, of all servers, at all
									 * times */
	int			last_step;		/* the server whose clock is far ahead before
								 * all are right; -1: none */
	bool		far_ahead;		/* ids run far ahead, and leases are short */
	int64		layout_ends;	/* when the default layout ends; 0: it goes on */
	int64		order_at;		/* when the operator orders another one for
								 * that; 0: never */
	int			num_servers;
	int			num_clusters;
	ServerPlan	servers[MAX_SERVERS];
	int			num_faults;
	Fault	   *faults;
} Plan;

#define MAX_SIM_LAYOUTS	16

extern void draw_worker_id(Prng *prng, Conf *conf);
extern int	draw_max_ahead(Prng *prng, const Plan *plan);
extern bool draw_other_layout(Prng *prng, Conf *conf);
extern void draw_extra_layouts(Prng *prng, Conf *conf);
extern void plan_draw_hour(Plan *plan, uint64 seed);
extern void plan_draw(Plan *plan, uint64 seed, uint64 run, Break breaks);

extern SnowflakeLayout sim_layouts[];
extern const char *const sim_layout_texts[];
extern const int sim_num_layouts;
extern void sim_layouts_init(void);

/*
 * Processes
 */
typedef enum ProcessKind
{
	PROCESS_WORKER,
	PROCESS_HELPER,
	PROCESS_BACKEND
} ProcessKind;

typedef enum Section
{
	SECTION_GENERATOR,
	SECTION_WORKER,
	SECTION_HELPER,
	NUM_SECTIONS
} Section;

struct Server;
struct Transaction;

typedef struct Process
{
	bool		used;
	ProcessKind kind;
	struct Server *server;
	int			slot;
	uint64		incarnation;	/* one that was never before */
	char	   *stack;
	jmp_buf		where;
	bool		started;
	char	   *images[NUM_SECTIONS];
	void	   *memory;			/* allocated for the process, a list */
	void	   *call_memory;	/* for a call */

	/* sleeping */
	int64		wake_at;
	uint64		wake_number;	/* of the event that counts */
	bool		sleeps;
	bool		in_latch;
	bool		latch_set;
	bool		cv_prepared;
	bool		cv_signaled;

	/* what the server's code keeps in globals */
	sigjmp_buf *exception_stack;
	emit_log_hook_type log_hook;
	bool		shutdown_pending;
	bool		reload_pending;
	bool		die_pending;
	bool		cancel_pending;
	bool		term_is_die;
	int			num_waits;		/* of the call, until their time was over */
	int64		asked_at;		/* when the call began */
	bool		in_call;		/* a backend's */
	void		(*on_exit) (int code, Datum arg);

	/* a backend's */
	Prng		prng;
	int64		max_wait;		/* of the session, milliseconds; -1: that of
								 * the server */
	TimestampTz max_clock;		/* the latest reading of the clock in this
								 * call */
	TimestampTz last_clock;		/* the last one, if it is exact */
	struct Transaction *transaction;
} Process;

/* What happens to the next process of a kind when it runs. */
typedef struct Armed
{
	int			points;			/* 0: nothing */
	bool		words;			/* only those in words.c count */
	bool		kill;
	bool		release;		/* its server's lease ends meanwhile */
	int64		pause;
} Armed;

/*
 * Servers
 */
typedef enum ServerState
{
	SERVER_DOWN,
	SERVER_STARTING,
	SERVER_STANDBY,
	SERVER_RUNNING,
	SERVER_STOPPING,
	SERVER_GONE					/* it never comes back */
} ServerState;

typedef struct Clock
{
	int64		since;			/* true time of the last change */
	TimestampTz value;			/* then */
	int			drift;			/* millionths */
	bool		stopped;
} Clock;

typedef struct Segment
{
	void	   *memory;
	Size		size;
} Segment;

#define NUM_SEGMENTS	3

typedef struct Server
{
	int			index;
	const ServerPlan *plan;
	ServerState state;
	uint64		epoch;			/* of its starts and ends; events of others
								 * are stale */
	Conf		conf;			/* as its processes know them */
	Conf		file;			/* as they are after a reload */
	Clock		clock;
	Clock		mono;			/* the monotonic one */
	int64		mono_stopped_until;
	bool		newer;			/* its files are of a version that has another
								 * version of the protocol */
	int64		update_at;		/* when its extension is updated to that; 0:
								 * not yet known */
	int64		frozen_until;
	int			host;

	/* the data directory */
	int			cluster;
	uint64		system_identifier;
	uint32		timeline;
	uint64		lsn;
	SimHistory	history;		/* the promotions of this data directory */
	SimRegistry tables;			/* committed */
	uint64		incarnation;	/* the last one of its tables */
	uint64		reign;			/* of these tables: the writable server, from
								 * its promotion on, that has changed them
								 * last */
	int			drops;			/* how often the extension was dropped */
	int			follows;		/* -1: it is a primary */
	SimRegistry backup;			/* an older state, and */
	bool		has_backup;
	uint64		backup_reign;
	int			backup_drops;
	uint64		backup_lsn;
	uint32		backup_timeline;
	SimHistory	backup_history;
	SimRegistry copy;			/* of the database postgres, which may become
								 * it */
	void	   *image;			/* BREAK_MEMORY: its shared memory then */
	uint64		image_epoch;
	uint64		mark;			/* what tells this data directory from others */
	TimestampTz least_clock;	/* from a promotion until it is counted, the
								 * clock is not behind; 0: no matter */

	/* while it runs */
	TimestampTz launched_at;
	Segment		segments[NUM_SEGMENTS];
	SnowflakeShared *shared;
	PGPROC		procs[MAX_PROCESSES];
	Process		processes[MAX_PROCESSES];
	Armed		armed[PROCESS_BACKEND + 1];
	int64		worker_at;		/* when the postmaster starts the lease worker */
	bool		helper_starts;

	/* the state of its surroundings */
	int64		cut_until;		/* no network */
	int64		late_until;		/* calls get lost or are late */
	int64		slow_until;		/* the disk is slow */
	int64		locked_until;	/* a session locks the tables */
	int64		unnamed_until;	/* the host has no name that gives a number */
	int64		history_until;	/* the timeline history file is not there */
	int64		cancel_until;	/* waits for a synchronous standby are
								 * cancelled */
	int64		full_until;		/* the disk is full: commits fail */
	int64		slots_until;	/* no slot for background workers is free */
	int64		revoked_until;	/* nodes may not call the functions */
	int64		missing_until;	/* there is no database postgres */
	int64		idle_until;		/* nobody asks for ids */
	int64		burst_until;	/* everybody does */

	/* what the judge looks at */
	int64		struck_at;		/* when something was last changed at once */
	int64		held_until;		/* a transaction is under way for so long */
	int64		suspended_until;	/* a process is */

	/* transactions here, one after the other */
	struct Transaction *holder;
	struct Transaction *queue_first;
	struct Transaction *queue_last;

	/* the checker's */
	struct CheckedServer *checked;
	Prng		prng;			/* of backends */
	Prng		net;			/* of calls */
} Server;

/*
 * The world
 */
typedef enum EventKind
{
	EVENT_PROCESS,
	EVENT_TRANSACTION,
	EVENT_FAULT,
	EVENT_SERVER,
	EVENT_CLOCK,
	EVENT_LAYOUTS,
	EVENT_MOVE,
	EVENT_ORDER
} EventKind;

typedef struct Event
{
	int64		at;
	uint64		number;
	EventKind	kind;
	int			a;
	int			b;
	uint64		c;
	void	   *pointer;
} Event;

typedef struct World
{
	Plan	   *plan;
	int64		now;
	uint64		events;			/* that were handled */
	uint64		faults;
	uint64		ids;
	uint64		hash;
	uint64		next_number;
	uint64		fault_counts[NUM_FAULTS];
	uint64		done_counts[NUM_FAULTS];	/* those that have done something */
	uint64		told;			/* lines of the story, also if nobody hears it */
	int			num_servers;
	bool		has_gaps[MAX_SERVERS];	/* of each cluster: its rows do not
										 * tell of all ids, only its floor
										 * does */
	uint64		num_reigns;
	int			primaries[MAX_SERVERS]; /* of each cluster: where its address
										 * leads */
	Server	   *servers;
	bool		verbose;		/* tells the story */
	bool		calm;			/* no more faults */
	bool		failed;
	int			failed_at_fault;	/* so many faults had happened */
	char		failure[8192];
	Prng		ids_of;			/* uuids */
	uint64		next_id;
} World;

extern World world;

#define TRUE_EPOCH	(INT64CONST(800000000) * USECS_PER_SEC) /* May 2025 */

static inline void
note(uint64 value)
{
	world.hash = mix(world.hash ^ value) + UINT64CONST(0x9e3779b97f4a7c15);
}

extern void world_run(Plan *plan, bool verbose);
extern void world_free(void);
extern void schedule(int64 at, EventKind kind, int a, int b, uint64 c, void *pointer);
extern TimestampTz server_clock(const Server *server);
extern bool is_own_fixed(const Server *server);
extern int	num_uncounted(const SimRegistry *tables, const SimHere *here);
extern TimestampTz server_id_clock(const Server *server);
extern int64 server_monotonic(const Server *server);
extern void disturb(Server *server);
extern void server_crash(Server *server, int64 restart_after);
extern bool server_is_writable(const Server *server);
extern bool host_is_named(const Server *server);
extern Server *cluster_primary(int cluster);
extern void story(const Server *server, const char *format,...) pg_attribute_printf(2, 3);
extern uint64 sim_random(void *state);
extern const char *time_name(TimestampTz at);
extern void server_worker_ended(Server *server);
extern void server_backend_ended(Server *server);
extern void server_reload(Server *server);
extern void pass_creation(Server *server);
extern void start_is_counted(Server *server);
extern bool is_past(const Server *server, int64 end);

extern void lose(Server *server);
extern void lose_others(Server *server);
extern void order_given(Server *server);
extern void give_order(Server *server, pg_atomic_uint32 *asked);
extern void reload(Server *server);
extern void step_clock(Server *server, int64 by);

/* finding.c */
extern bool sim_fail(const Server *server, const char *format,...) pg_attribute_printf(2, 3);
extern void sim_fail_repeated(const Server *server, const char *format,...) pg_attribute_printf(2, 3);
extern void finding_add(const char *name, const char *format,...) pg_attribute_printf(2, 3);
extern const char *process_name(const Process *p);

/* move.c */
extern void move_reset(void);
extern void move_free(void);
extern void move_begin(Prng *prng);
extern void move_event(int step);
extern int64 move_done_at(void);

/* process.c */
extern void processes_init(void);
extern void process_begin_run(uint64 seed);
extern void process_free(Process *p);
extern void process_start(Server *server, int slot, ProcessKind kind);
extern void process_drop(Process *p);
extern void process_run(Process *p);
extern void process_wake(Process *p, int64 at);
extern void process_terminate(Process *p);
extern void process_cancel(Process *p, bool die);
extern void process_sleep(int64 until);
extern bool process_exists(const Server *server, ProcessKind kind);
extern void enter_server(Server *server);
extern void *process_allocate(Size size, bool for_call);
extern Process *current_process;
extern Server *current_server;
extern void sim_report_error(int sqlerrcode, const char *message);
extern void backend_main(Process *p);
extern const char *last_error_message(void);
extern int	last_error_code(void);
extern void server_make_shared(Server *server);
extern SnowflakeMachine *server_machine(Server *server);

/* calls.c */
extern void transaction_step(struct Transaction *t, int step, uint64 number);
extern void transactions_lost(Server *server);
extern void transactions_forget(Process *p);
extern void transactions_free(void);
extern void standby_receive(Server *standby, const Server *from);
extern Server *sync_standby(const Server *primary);
extern SimHere here_of(Server *server, TimestampTz clock);

/* checker.c */
extern void checker_begin(void);
extern void checker_free(void);
extern void check_incarnation(Server *server);
extern void check_separated(Server *server);
extern void check_branched(Server *server);
extern bool check_can_merge(void);
extern void check_merged(uint64 incarnation, uint64 taken);
extern int64 check_former_end(int cluster, const SimRegistry *tables, uint64 reign, uint64 other_reign);
extern int64 check_end_of(uint64 incarnation, uint64 successor);
extern void check_held_before(const Server *registry, const SimAcquire *in, bool own, TimestampTz clock);
extern void check_window(const Server *server, const Server *registry, const SimRenew *in, const SimAnswer *renewed);
extern void check_granted(Server *server, Server *registry, const SimAcquire *in, const SimAnswer *granted);
extern void check_row_ends(const Server *registry, const Server *server, uint64 start);
extern void check_forgotten(const Server *server);
extern void check_call_begins(Process *p, int slot);
extern void check_id(Process *p, int slot, int64 id, int64 count, int64 step);
extern void check_no_id(Process *p, int slot);
extern void check_machine(Server *server);
extern void check_calm(void);
extern TimestampTz last_id_time(const Server *server);
extern bool check_is_told(const SimRegistry *tables, uint64 node_number, TimestampTz end);
extern void check_call_result(Server *server, SimReason reason);
extern void check_not_renewed(Server *server, const Server *registry, uint64 token, SimReason reason);

/* judge.c */

/* A call that a registry has answered. */
typedef struct JudgedCall
{
	Server	   *from;
	Server	   *registry;
	const SimHere *here;
	TimestampTz now;			/* the registry's clock, for the call */
	bool		own;
	bool		late;			/* nobody waits for it, or it is not the last
								 * one */
	const SimRegistryRow *before;	/* the call */
	const SimNodeCall *node;	/* NULL: it is about no lease */
	const SimStart *start;		/* one of these, or none */
	const SimAcquire *acquire;
	const SimRenew *renew;
	const SimRecord *record;
} JudgedCall;

typedef struct JudgeCounts
{
	uint64		refusals[NUM_SIM_REASONS];	/* of registries */
	uint64		errors;			/* of sessions, */
	uint64		needed;			/* and those for which the reason held */
	uint64		calls;			/* of sessions that were timed */
} JudgeCounts;

extern JudgeCounts judge_counts;	/* of all runs */
extern void judge_begin(void);
extern void judge_clock(TimestampTz clock);
extern void judge_call(const JudgedCall *call, const SimAnswer *answer);
extern void judge_said(Server *server, SimReason reason, int64 wait, bool own, bool granted);
extern void judge_overloaded(const Server *server);
extern void judge_error(Server *server, int slot, const char *message, int64 begun_at, int64 max_wait);
extern void judge_ended(Process *p, int slot, bool issued, int64 begun_at, int64 max_wait);
extern int64 quiet_since(const Server *server);

#endif							/* SIM_H */
