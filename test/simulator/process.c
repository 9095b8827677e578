/*
 * process.c
 *	  Processes of the simulated servers, and what the files of src/ call of the server.
 *
 * A process is a coroutine: it runs on a stack of its own, with the code of src/, until
 * it sleeps or is suspended at a point (hooks.h).  What fork() would give it, copies of the static
 * variables of src/, the build makes possible: it renames the data sections of generator.o,
 * worker.o and helper.o (see compile), so that their contents can be exchanged when another process
 * runs.  A new process finds them as the program had them when it began.
 */
#include "sim.h"

#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <ucontext.h>

#include "common/pg_prng.h"
#include "lease/worker.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "registry/helper.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "ids/generator.h"

#define STACK_SIZE		(256 * 1024)
/* More than any process passes before it sleeps. */
#define MOST_POINTS		1000000
#define SIM_NUM_FILES	2		/* as in hooks.h */
#define WAKE_US			20		/* how long it takes to be woken */

int			sim_fuel = MOST_POINTS;
int			sim_price[SIM_NUM_FILES] = {1, 1};
Process    *current_process = NULL;
Server	   *current_server = NULL;

static jmp_buf scheduler;
static bool in_lock = false;
static uint64 last_incarnation = 0;

/*
 * Sections
 */
extern char __start_sim_generator[],
			__stop_sim_generator[];
extern char __start_sim_worker[],
			__stop_sim_worker[];
extern char __start_sim_helper[],
			__stop_sim_helper[];

static struct
{
	char	   *begin;
	Size		size;
	char	   *pristine;
	Process    *resident;		/* whose contents are there; NULL: nobody's */
}			sections[NUM_SECTIONS];

static const bool uses_section[PROCESS_BACKEND + 1][NUM_SECTIONS] = {
	[PROCESS_WORKER] = {false, true, true},
	[PROCESS_HELPER] = {false, false, true},
	[PROCESS_BACKEND] = {true, false, false},
};

void
processes_init(void)
{
	static bool done = false;

	if (done)
		return;
	done = true;
	sections[SECTION_GENERATOR].begin = __start_sim_generator;
	sections[SECTION_GENERATOR].size = __stop_sim_generator - __start_sim_generator;
	sections[SECTION_WORKER].begin = __start_sim_worker;
	sections[SECTION_WORKER].size = __stop_sim_worker - __start_sim_worker;
	sections[SECTION_HELPER].begin = __start_sim_helper;
	sections[SECTION_HELPER].size = __stop_sim_helper - __start_sim_helper;
	for (int i = 0; i < NUM_SECTIONS; i++)
	{
		sections[i].pristine = malloc(sections[i].size);
		memcpy(sections[i].pristine, sections[i].begin, sections[i].size);
	}
}

void
process_begin_run(uint64 seed)
{
	pg_prng_seed(&pg_global_prng_state, seed);
	last_incarnation = 0;
	current_process = NULL;
	for (int i = 0; i < NUM_SECTIONS; i++)
		sections[i].resident = NULL;
}

/* What is in the section belongs to nobody from now on, after it was kept. */
static void
leave_section(int i)
{
	Process    *p = sections[i].resident;

	if (p != NULL)
		memcpy(p->images[i], sections[i].begin, sections[i].size);
	sections[i].resident = NULL;
}

static void
enter_sections(Process *p)
{
	for (int i = 0; i < NUM_SECTIONS; i++)
	{
		if (!uses_section[p->kind][i] || sections[i].resident == p)
			continue;
		leave_section(i);
		memcpy(sections[i].begin, p->images[i], sections[i].size);
		sections[i].resident = p;
	}
}

/*
 * Globals of the server
 */
PROC_HDR	proc_header;
PROC_HDR   *ProcGlobal = &proc_header;
PGPROC	   *MyProc = NULL;
struct Latch *MyLatch = NULL;
int			MyProcPid = 1;
int			MaxBackends = MAX_PROCESSES;
int			max_prepared_xacts = 0;
int			ParallelWorkerNumber = -1;
volatile sig_atomic_t ShutdownRequestPending = false;
volatile sig_atomic_t QueryCancelPending = false;
volatile sig_atomic_t ConfigReloadPending = false;
volatile sig_atomic_t InterruptPending = false;
volatile sig_atomic_t ProcDiePending = false;
sigjmp_buf *PG_exception_stack = NULL;
ErrorContextCallback *error_context_stack = NULL;
MemoryContext CurrentMemoryContext = NULL;
MemoryContext TopMemoryContext = NULL;
emit_log_hook_type emit_log_hook = NULL;

/* The settings (guc.c). */
double		snowflake_clock_offset = 0;
int			snowflake_datacenter_id = -1;
char	   *snowflake_extra_layouts = "";
char	   *snowflake_layout_setting = "";
bool		snowflake_layout_is_set = true;
int			snowflake_lease_duration;
int			snowflake_max_ahead;
int			snowflake_max_wait;
char	   *snowflake_registry;
bool		snowflake_preloads_citus = false;
int			snowflake_sequence_start;
char	   *snowflake_worker_id;

void
snowflake_guc_publish(void)
{
	SnowflakeSettings *settings = &snowflake_shared->settings;

	pg_atomic_write_u64(&settings->max_ahead, (uint64) snowflake_max_ahead * 1000);
	pg_atomic_write_u64(&settings->clock_offset, (uint64) ((int64) current_server->conf.clock_offset * 1000));
	pg_atomic_write_u64(&settings->max_wait, (uint64) snowflake_max_wait * 1000);
	pg_atomic_write_u32(&settings->sequence_start, (uint32) snowflake_sequence_start);
}

/* The settings as the server's processes see them; read again at reload only. */
static void
read_settings(Server *server)
{
	snowflake_datacenter_id = server->conf.datacenter_id;
	snowflake_layout_is_set = server->conf.layout_is_set;
	snowflake_lease_duration = server->conf.lease_duration;
	snowflake_max_ahead = server->conf.max_ahead;
	snowflake_max_wait = server->conf.max_wait;
	snowflake_registry = server->conf.registry;
	snowflake_sequence_start = server->conf.sequence_start;
	snowflake_worker_id = server->conf.worker_id;
}

void
enter_server(Server *server)
{
	current_server = server;
	snowflake_shared = server->shared;
	proc_header.allProcs = server->procs;
	read_settings(server);
}

/*
 * The scheduler's side
 */
static void
load_process(Process *p)
{
	if (current_server != p->server)
		enter_server(p->server);
	current_process = p;
	snowflake_max_wait = p->kind == PROCESS_BACKEND && p->max_wait >= 0 ? (int) p->max_wait : p->server->conf.max_wait;
	enter_sections(p);
	MyProc = &p->server->procs[p->slot];
	MyLatch = &MyProc->procLatch;
	PG_exception_stack = p->exception_stack;
	emit_log_hook = p->log_hook;
	ShutdownRequestPending = p->shutdown_pending;
	ConfigReloadPending = p->reload_pending;
	ProcDiePending = p->die_pending;
	InterruptPending = p->die_pending || p->cancel_pending;
}

static void
unload_process(Process *p)
{
	p->exception_stack = PG_exception_stack;
	p->log_hook = emit_log_hook;
	/* set by others only, but for what the process has taken notice of */
	p->reload_pending = ConfigReloadPending;
	current_process = NULL;
	sim_fuel = MOST_POINTS;
	sim_price[0] = 1;
}

static void
entry(void)
{
	Process    *p = current_process;

	PG_exception_stack = NULL;
	/* as under EXEC_BACKEND */
	if (p->kind != PROCESS_BACKEND)
	{
		if (p->kind == PROCESS_WORKER)
			snowflake_lease_worker_shmem_create();
		snowflake_helper_shmem_create();
	}
	switch (p->kind)
	{
		case PROCESS_WORKER:
			snowflake_lease_worker_main((Datum) 0);
			break;
		case PROCESS_HELPER:
			p->server->helper_starts = false;
			snowflake_helper_main((Datum) 0);
			break;
		case PROCESS_BACKEND:
			backend_main(p);
			break;
	}
	proc_exit(0);
}

enum
{
	SLEEPS = 1,
	ENDED
};

static int
switch_to_current(void)
{
	static ucontext_t context;
	int			outcome = _setjmp(scheduler);

	if (outcome != 0)
		return outcome;
	if (current_process->started)
		_longjmp(current_process->where, 1);
	current_process->started = true;
	getcontext(&context);
	context.uc_stack.ss_sp = current_process->stack;
	context.uc_stack.ss_size = STACK_SIZE;
	context.uc_link = NULL;
	makecontext(&context, entry, 0);
	setcontext(&context);
	return ENDED;
}

/* Lets a process run until it sleeps or ends. */
void
process_run(Process *p)
{
	Armed	   *armed = &p->server->armed[p->kind];
	int			outcome;

	load_process(p);
	sim_fuel = armed->points > 0 ? armed->points : MOST_POINTS;
	sim_price[0] = !(armed->points > 0 && armed->words);
	outcome = switch_to_current();
	if (armed->points > 0)
		armed->points = Max(sim_fuel, 1);
	unload_process(p);
	if (p->kind == PROCESS_WORKER)
		check_machine(p->server);
	if (outcome == ENDED)
	{
		process_drop(p);
		if (p->kind == PROCESS_WORKER)
			server_worker_ended(p->server);
		else if (p->kind == PROCESS_BACKEND)
			server_backend_ended(p->server);
	}
}

static void
leave(int outcome)
{
	if (outcome == ENDED)
		_longjmp(scheduler, ENDED);
	if (_setjmp(current_process->where) == 0)
		_longjmp(scheduler, SLEEPS);
}

/* The process sleeps until a time, or until it is woken. */
void
process_sleep(int64 until)
{
	Process    *p = current_process;

	p->wake_at = NEVER;
	p->sleeps = true;
	if (until != NEVER)
		process_wake(p, Max(until, world.now));
	leave(SLEEPS);
	p->sleeps = false;
}

/* The process runs at a time, or earlier if that was said before. */
void
process_wake(Process *p, int64 at)
{
	if (!p->used || at >= p->wake_at)
		return;
	p->wake_at = at;
	p->wake_number = ++world.next_number;
	schedule(at, EVENT_PROCESS, p->server->index, p->slot, p->wake_number, NULL);
}

static char *free_stacks[MAX_SERVERS * MAX_PROCESSES];
static int	num_free_stacks = 0;

static char *
take_stack(void)
{
	return num_free_stacks > 0 ? free_stacks[--num_free_stacks] : malloc(STACK_SIZE);
}

static void
give_stack(char *stack)
{
	if (stack != NULL)
		free_stacks[num_free_stacks++] = stack;
}

void
process_start(Server *server, int slot, ProcessKind kind)
{
	Process    *p = &server->processes[slot];
	char	   *stack = p->stack;
	char	   *images[NUM_SECTIONS];

	Assert(!p->used);
	memcpy(images, p->images, sizeof(images));
	memset(p, 0, sizeof(*p));
	memcpy(p->images, images, sizeof(images));
	p->used = true;
	p->kind = kind;
	p->server = server;
	p->slot = slot;
	p->incarnation = ++last_incarnation;
	p->stack = stack != NULL ? stack : take_stack();
	for (int i = 0; i < NUM_SECTIONS; i++)
	{
		if (!uses_section[kind][i])
			continue;
		if (p->images[i] == NULL)
			p->images[i] = malloc(sections[i].size);
		memcpy(p->images[i], sections[i].pristine, sections[i].size);
	}
	server->procs[slot].pgprocno = slot;
	p->prng.state = draw(&server->prng);
	p->max_wait = -1;
	p->wake_at = NEVER;
	process_wake(p, world.now + WAKE_US);
}

static void
free_list(void **list)
{
	while (*list != NULL)
	{
		void	   *next = *(void **) *list;

		free(*list);
		*list = next;
	}
}

/* The process is gone, wherever it was. */
void
process_drop(Process *p)
{
	if (!p->used)
		return;
	transactions_forget(p);
	for (int i = 0; i < NUM_SECTIONS; i++)
		if (sections[i].resident == p)
			sections[i].resident = NULL;
	free_list(&p->memory);
	free_list(&p->call_memory);
	p->used = false;
	p->wake_at = NEVER;
	p->wake_number = ++world.next_number;
}

/* The world ends. */
void
process_free(Process *p)
{
	for (int i = 0; i < NUM_SECTIONS; i++)
		free(p->images[i]);
	give_stack(p->stack);
}

bool
process_exists(const Server *server, ProcessKind kind)
{
	for (int i = 0; i < MAX_PROCESSES; i++)
		if (server->processes[i].used && server->processes[i].kind == kind)
			return true;
	return false;
}

/* Memory that lives as long as the process, or a call of the helper. */
void *
process_allocate(Size size, bool for_call)
{
	void	  **list = for_call ? &current_process->call_memory : &current_process->memory;
	void	  **memory = calloc(1, size + 16);

	memory[0] = *list;
	*list = memory;
	return (char *) memory + 16;
}

/*
 * Points
 */

/* The process has come to the point where it is suspended or killed. */
void
sim_preempt(void)
{
	Process    *p = current_process;
	Armed	   *armed;

	if (p == NULL || in_lock)
	{
		sim_fuel = p == NULL ? MOST_POINTS : 0;
		return;
	}
	armed = &p->server->armed[p->kind];
	if (armed->points == 0)
	{
		sim_fail(p->server, "%s runs for ever", process_name(p));
		process_sleep(NEVER);
	}
	armed->points = 0;
	sim_fuel = MOST_POINTS;
	sim_price[0] = 1;
	note(armed->kill ? 1 : 2);
	if (armed->kill)
	{
		story(p->server, "%s is killed", p->kind == PROCESS_WORKER ? "the lease worker" : "the helper");
		proc_exit(2);
	}
	story(p->server, "%s is suspended for %.6f s", p->kind == PROCESS_WORKER ? "the lease worker" :
		  p->kind == PROCESS_HELPER ? "the helper" : "a backend", armed->pause / 1e6);
	p->server->suspended_until = Max(p->server->suspended_until, world.now + armed->pause);
	if (armed->release)
		give_order(p->server, &p->server->shared->release.asked);
	process_sleep(world.now + armed->pause);
}

/* SIGTERM */
void
process_terminate(Process *p)
{
	if (!p->used)
		return;
	if (p->kind == PROCESS_BACKEND)
		process_drop(p);
	else
	{
		if (p->term_is_die)
			p->die_pending = true;
		else
			p->shutdown_pending = true;
		p->latch_set = true;
		if (p->in_latch || p->transaction != NULL)
			process_wake(p, world.now + WAKE_US);
	}
}

/* A session is cancelled, or terminated: it notices when it waits for an id, or for its client. */
void
process_cancel(Process *p, bool die)
{
	if (!p->used || (!die && !p->in_call))
		return;
	story(p->server, "a backend is %s", die ? "terminated" : "cancelled");
	if (!p->in_call)
	{
		process_drop(p);
		server_backend_ended(p->server);
		return;
	}
	if (die)
		p->die_pending = true;
	else
		p->cancel_pending = true;
	/* one that is suspended goes on as before */
	if (p->cv_prepared && p->sleeps)
		process_wake(p, world.now + WAKE_US);
}

/*
 * Time
 */
#define COARSE_US	4000

int
sim_clock_gettime(clockid_t id, struct timespec *ts)
{
	int64		at;

	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
	{
		at = server_clock(current_server);
		if (current_process != NULL && at > current_process->max_clock)
			current_process->max_clock = at;
		if (current_process != NULL && id == CLOCK_REALTIME)
			current_process->last_clock = at;
		at += (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
		if (id == CLOCK_REALTIME_COARSE)
			at -= at % COARSE_US;
	}
	else
		at = server_monotonic(current_server);
	ts->tv_sec = at / USECS_PER_SEC;
	ts->tv_nsec = at % USECS_PER_SEC * 1000;
	return 0;
}

int
sim_clock_getres(clockid_t id, struct timespec *ts)
{
	ts->tv_sec = 0;
	ts->tv_nsec = COARSE_US * 1000 / 10;
	return 0;
}

/*
 * Latches, conditions, locks
 */
void
SetLatch(Latch *latch)
{
	int			slot = (int) (((char *) latch - (char *) current_server->procs) / (ptrdiff_t) sizeof(PGPROC));
	Process    *p = &current_server->processes[slot];

	p->latch_set = true;
	if (p->used && p->in_latch)
		process_wake(p, world.now + WAKE_US);
}

void
ResetLatch(Latch *latch)
{
	current_process->latch_set = false;
}

int
WaitLatch(Latch *latch, int wakeEvents, long timeout, uint32 wait_event_info)
{
	Process    *p = current_process;

	if (!p->latch_set)
	{
		p->in_latch = true;
		process_sleep(wakeEvents & WL_TIMEOUT ? world.now + timeout * 1000 : NEVER);
		p->in_latch = false;
	}
	return p->latch_set ? WL_LATCH_SET : WL_TIMEOUT;
}

void
ConditionVariableInit(ConditionVariable *cv)
{
}

void
ConditionVariablePrepareToSleep(ConditionVariable *cv)
{
	current_process->cv_prepared = true;
	current_process->cv_signaled = false;
}

bool
ConditionVariableTimedSleep(ConditionVariable *cv, long timeout, uint32 wait_event_info)
{
	Process    *p = current_process;

	if (!p->cv_prepared)
	{
		ConditionVariablePrepareToSleep(cv);
		return false;
	}
	if (!p->cv_signaled)
		process_sleep(world.now + timeout * 1000);
	CHECK_FOR_INTERRUPTS();
	if (!p->cv_signaled)
	{
		/* a millisecond each, at least */
		if (p->in_call && ++p->num_waits > (world.now - p->asked_at) / MILLISECONDS(1) + 1)
			sim_fail(p->server, "a call of server %d does not sleep: it has waited %d times in %.3f s", p->server->index, p->num_waits,
					 (world.now - p->asked_at) / 1e6);
		return true;
	}
	p->cv_signaled = false;
	return false;
}

void
ConditionVariableCancelSleep(void)
{
	current_process->cv_prepared = false;
}

void
ConditionVariableBroadcast(ConditionVariable *cv)
{
	for (int i = 0; i < MAX_PROCESSES; i++)
	{
		Process    *p = &current_server->processes[i];

		if (!p->used || !p->cv_prepared || p->cv_signaled)
			continue;
		p->cv_signaled = true;
		if (p->sleeps)
			process_wake(p, world.now + WAKE_US);
	}
}

static LWLockPadded the_lock;

LWLockPadded *
GetNamedLWLockTranche(const char *tranche_name)
{
	return &the_lock;
}

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	in_lock = true;
	return true;
}

void
LWLockRelease(LWLock *lock)
{
	in_lock = false;
}

/*
 * Shared memory
 */
Size
add_size(Size s1, Size s2)
{
	return s1 + s2;
}

Size
mul_size(Size s1, Size s2)
{
	return s1 * s2;
}

void *
ShmemInitStruct(const char *name, Size size, bool *foundPtr)
{
	static const char *const names[NUM_SEGMENTS] = {"snowflake", "snowflake lease worker", "snowflake helper"};
	Segment    *segment;
	int			i = 0;

	while (strcmp(names[i], name) != 0)
		i++;
	segment = &current_server->segments[i];
	*foundPtr = segment->memory != NULL;
	if (segment->memory == NULL)
	{
		segment->size = (size + 127) & ~(Size) 127;
		segment->memory = aligned_alloc(128, segment->size);
		memset(segment->memory, 0x5a, segment->size);
	}
	return segment->memory;
}

/* At the start of a server: shared memory of its own, new. */
void
server_make_shared(Server *server)
{
	SnowflakeLayout layouts[MAX_LAYOUTS];
	uint64		start;

	for (int i = 0; i < NUM_SECTIONS; i++)
		leave_section(i);
	for (int i = 0; i < NUM_SEGMENTS; i++)
	{
		free(server->segments[i].memory);
		server->segments[i].memory = NULL;
	}
	server->shared = NULL;
	enter_server(server);
	for (int i = 0; i < server->conf.num_layouts; i++)
		layouts[i] = sim_layouts[server->conf.layouts[i]];
	snowflake_shmem_create(layouts, server->conf.num_layouts);
	snowflake_lease_worker_shmem_create();
	snowflake_helper_shmem_create();
	server->shared = snowflake_shared;
	start = sim_random(NULL);
	memset(&snowflake_shared->start, 0, sizeof(snowflake_shared->start));
	memcpy(&snowflake_shared->start, &start, sizeof(start));
	snowflake_guc_publish();
}

SnowflakeMachine *
server_machine(Server *server)
{
	return (SnowflakeMachine *) server->segments[1].memory;
}

/*
 * Errors
 */
static ErrorData error;
static char error_message[1024];

bool
errstart(int elevel, const char *domain)
{
	if (elevel < ERROR)
		return false;
	memset(&error, 0, sizeof(error));
	error_message[0] = '\0';
	error.elevel = elevel;
	error.message = error_message;
	return true;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	if (PG_exception_stack == NULL || error.elevel > ERROR)
		proc_exit(1);
	in_lock = false;
	siglongjmp(*PG_exception_stack, 1);
}

void
pg_re_throw(void)
{
	if (PG_exception_stack == NULL)
		proc_exit(1);
	siglongjmp(*PG_exception_stack, 1);
}

int
errcode(int sqlerrcode)
{
	error.sqlerrcode = sqlerrcode;
	return 0;
}

int
errmsg(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	pg_vsnprintf(error_message, sizeof(error_message), fmt, args);
	va_end(args);
	return 0;
}

int
errmsg_internal(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	pg_vsnprintf(error_message, sizeof(error_message), fmt, args);
	va_end(args);
	return 0;
}

int
errdetail(const char *fmt,...)
{
	return 0;
}

int
errdetail_internal(const char *fmt,...)
{
	return 0;
}

int
errhint(const char *fmt,...)
{
	return 0;
}

ErrorData *
CopyErrorData(void)
{
	return &error;
}

int
geterrcode(void)
{
	return error.sqlerrcode;
}

void
FreeErrorData(ErrorData *edata)
{
}

void
FlushErrorState(void)
{
}

const char *
last_error_message(void)
{
	return error_message;
}

int
last_error_code(void)
{
	return error.sqlerrcode;
}

void
sim_report_error(int sqlerrcode, const char *message)
{
	errstart(ERROR, NULL);
	errcode(sqlerrcode);
	errmsg_internal("%s", message);
	errfinish(NULL, 0, NULL);
}

/*
 * Memory.  Contexts are not told apart: what a call allocates is freed when its context is
 * deleted, all else when the process ends.
 */
void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return process_allocate(size, false);
}

MemoryContext
AllocSetContextCreateInternal(MemoryContext parent, const char *name, Size minContextSize,
							  Size initBlockSize, Size maxBlockSize)
{
	return NULL;
}

void
MemoryContextReset(MemoryContext context)
{
}

void
MemoryContextDelete(MemoryContext context)
{
	free_list(&current_process->call_memory);
}

void *
palloc(Size size)
{
	return process_allocate(size, true);
}

char *
pstrdup(const char *in)
{
	return strcpy(palloc(strlen(in) + 1), in);
}

void
pfree(void *pointer)
{
}

char *
psprintf(const char *fmt,...)
{
	char	   *text = palloc(1024);
	va_list		args;

	va_start(args, fmt);
	pg_vsnprintf(text, 1024, fmt, args);
	va_end(args);
	return text;
}

/*
 * Processes
 */
void
proc_exit(int code)
{
	Process    *p = current_process;
	void		(*on_exit) (int code, Datum arg) = p->on_exit;

	sim_fuel = MOST_POINTS;
	in_lock = false;
	p->server->armed[p->kind].points = 0;
	p->on_exit = NULL;
	if (on_exit != NULL)
		on_exit(code, (Datum) 0);
	leave(ENDED);
	abort();
}

void
before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	current_process->on_exit = function;
}

void
SignalHandlerForShutdownRequest(int signo)
{
}

void
SignalHandlerForConfigReload(int signo)
{
}

void
die(int signo)
{
}

pqsigfunc
pqsignal(int signo, pqsigfunc func)
{
	if (signo == SIGTERM)
		current_process->term_is_die = func == die;
	return NULL;
}

void
ProcessInterrupts(void)
{
	if (ProcDiePending)
		proc_exit(1);
	InterruptPending = false;
	if (!current_process->cancel_pending)
		return;
	current_process->cancel_pending = false;
	sim_report_error(ERRCODE_QUERY_CANCELED, "canceling statement due to user request");
}

void
ProcessConfigFile(GucContext context)
{
	server_reload(current_server);
}

void
SetConfigOption(const char *name, const char *value, GucContext context, GucSource source)
{
}

void
BackgroundWorkerUnblockSignals(void)
{
}

void
BackgroundWorkerInitializeConnection(const char *dbname, const char *username, uint32 flags)
{
}

void
RegisterBackgroundWorker(BackgroundWorker *worker)
{
}

/* Our handle: the slot of the process is known, so it says only that there was one. */
bool
RegisterDynamicBackgroundWorker(BackgroundWorker *worker, BackgroundWorkerHandle **handle)
{
	Server	   *server = current_server;

	if (server->slots_until > world.now)
		return false;
	*handle = (BackgroundWorkerHandle *) server;
	if (server->state == SERVER_STOPPING || server->helper_starts)
		return true;
	server->helper_starts = true;
	schedule(world.now + MILLISECONDS(5), EVENT_SERVER, server->index, 1, server->epoch, NULL);
	return true;
}

BgwHandleStatus
GetBackgroundWorkerPid(BackgroundWorkerHandle *handle, pid_t *pidp)
{
	if (current_server->helper_starts)
		return BGWH_NOT_YET_STARTED;
	return process_exists(current_server, PROCESS_HELPER) ? BGWH_STARTED : BGWH_STOPPED;
}

void
pgstat_report_appname(const char *cmd_str)
{
}

long
pgstat_report_stat(bool force)
{
	return 0;
}

bool
RecoveryInProgress(void)
{
	return current_server->follows >= 0;
}

bool
IsTransactionState(void)
{
	return false;
}

bool
IsTransactionOrTransactionBlock(void)
{
	return false;
}

void
AbortCurrentTransaction(void)
{
}

Oid
GetUserId(void)
{
	return 10;
}

bool
has_privs_of_role(Oid member, Oid role)
{
	return true;
}

const char *
timestamptz_to_str(TimestampTz t)
{
	return "a time";
}

const char *
GetConfigOption(const char *name, bool missing_ok, bool restrict_privileged)
{
	return NULL;
}

void
snowflake_host_name(char name[SNOWFLAKE_HOST_NAME_SIZE])
{
	memset(name, 0, SNOWFLAKE_HOST_NAME_SIZE);
	if (host_is_named(current_server))
		pg_snprintf(name, SNOWFLAKE_HOST_NAME_SIZE, "pg-%d.example", current_server->host);
	else
		strlcpy(name, "localhost", SNOWFLAKE_HOST_NAME_SIZE);
}

/*
 * The network interfaces of the host.  Only the last three have an address that counts, and only if the host has
 * its name: the one with the lowest index.
 */
int
getifaddrs(struct ifaddrs **all)
{
	static const struct
	{
		int			family;
		int			index;
		int			length;
	}			kinds[] = {
		{0, 0, 0},				/* no address at all */
		{AF_PACKET, 1, 6},		/* the loopback: zeros */
		{AF_INET, 2, 6},		/* another family */
		{AF_PACKET, 3, 8},		/* an address of another length */
		{AF_PACKET, 5, 6},
		{AF_PACKET, 4, 6},
		{AF_PACKET, 6, 6}
	};
	static struct ifaddrs interfaces[lengthof(kinds)];
	static struct sockaddr_ll links[lengthof(kinds)];
	int			count = host_is_named(current_server) ? lengthof(kinds) : lengthof(kinds) - 3;

	memset(interfaces, 0, sizeof(interfaces));
	memset(links, 0, sizeof(links));
	for (int i = 0; i < count; i++)
	{
		uint64		address = i < 2 ? 0 : current_server->plan->mac ^ (i == (int) lengthof(kinds) - 2 ? 0 : 0x55);

		links[i].sll_family = kinds[i].family;
		links[i].sll_ifindex = kinds[i].index;
		links[i].sll_halen = kinds[i].length;
		for (int byte = 0; byte < 6; byte++)
			links[i].sll_addr[byte] = (unsigned char) (address >> (40 - 8 * byte));
		if (kinds[i].family != 0)
			interfaces[i].ifa_addr = (struct sockaddr *) &links[i];
		if (i + 1 < count)
			interfaces[i].ifa_next = &interfaces[i + 1];
	}
	*all = interfaces;
	return 0;
}

void
freeifaddrs(struct ifaddrs *all)
{
}
