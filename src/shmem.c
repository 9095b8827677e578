/*
 * shmem.c
 *	  Size, creation and attachment of the shared memory; its small accessors.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "guc.h"
#include "shmem.h"
#include "word.h"

#define TRANCHE_NAME	"snowflake"

SnowflakeShared *snowflake_shared = NULL;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

/*
 * The layouts in use: snowflake.layout, and those of snowflake.extra_layouts that
 * make other ids.  Read once, before shared memory is there.
 */
static SnowflakeLayout layouts[SNOWFLAKE_MAX_LAYOUTS];
static int	num_layouts = 0;

static int
layouts_in_use(void)
{
	if (num_layouts == 0)
		num_layouts = snowflake_guc_layouts(layouts);
	return num_layouts;
}

/* Each process counts on cache lines of its own. */
static Size
counts_stride(void)
{
	return CACHELINEALIGN(mul_size(layouts_in_use(), sizeof(pg_atomic_uint64)));
}

static Size
slots_size(void)
{
	return CACHELINEALIGN(add_size(offsetof(SnowflakeShared, slots),
								   mul_size(layouts_in_use(), sizeof(SnowflakeSlot))));
}

static Size
shared_size(void)
{
	return add_size(slots_size(), mul_size(MaxBackends, counts_stride()));
}

static void
request_shmem(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

/*
 * Names this start of the server, and says why it issues no ids whatever the lease
 * worker finds, if so.
 */
static void
init_status(SnowflakeShared *shared)
{
	SnowflakeStatus *status = &shared->status;
	SnowflakeProblem *problem = &status->problem;

	memset(status, 0, sizeof(*status));
	if (snowflake_rejected_name != NULL)
	{
		problem->sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		snprintf(problem->message, sizeof(problem->message),
				 "the server was started with an invalid %s: \"%s\"",
				 snowflake_rejected_name, snowflake_rejected_value);
		strlcpy(problem->detail, "No ids are issued with a default in place of what was asked for.",
				sizeof(problem->detail));
		strlcpy(problem->hint, "Correct the setting and restart the server; its log says what is wrong.",
				sizeof(problem->hint));
	}
	else if (IsBinaryUpgrade)
	{
		/* pg_upgrade's servers only copy the schema; their ids would be lost */
		problem->sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		strlcpy(problem->message, "no ids are issued during pg_upgrade", sizeof(problem->message));
		strlcpy(problem->detail, "They would belong to no server.", sizeof(problem->detail));
		strlcpy(problem->hint, "Ask for ids when the upgrade has ended.", sizeof(problem->hint));
	}
	else if (!IsUnderPostmaster && !IsPostmasterEnvironment)
	{
		problem->sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		strlcpy(problem->message, "no ids are issued in single-user mode", sizeof(problem->message));
		strlcpy(problem->detail, "There is no lease worker.", sizeof(problem->detail));
		strlcpy(problem->hint, "Start the server, and ask for ids there.", sizeof(problem->hint));
	}
	else if (!pg_strong_random(&shared->start, sizeof(shared->start)))
	{
		problem->sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		strlcpy(problem->message, "could not generate random values", sizeof(problem->message));
		strlcpy(problem->detail, "A registry tells the starts of a server apart by a random number.",
				sizeof(problem->detail));
		strlcpy(problem->hint, "See to the configuration of OpenSSL, and restart the server.", sizeof(problem->hint));
	}
	status->phase = problem->sqlerrcode != 0 ? SNOWFLAKE_REFUSED : SNOWFLAKE_STARTING;
}

static void
init_slot(SnowflakeSlot *slot, const SnowflakeLayout *layout)
{
	const char *name = snowflake_layout_name(layout);

	pg_atomic_init_u64(&slot->word, SNOWFLAKE_SEALED);
	pg_atomic_init_u64(&slot->limit, 0);
	pg_atomic_init_u64(&slot->opened, 0);
	pg_atomic_init_u32(&slot->full, 0);
	slot->seen = SNOWFLAKE_SEALED;
	pg_atomic_init_u64(&slot->counters.sequence_overflows, 0);
	pg_atomic_init_u64(&slot->counters.max_ahead_seen, 0);
	pg_atomic_init_u64(&slot->counters.waits, 0);
	pg_atomic_init_u64(&slot->counters.wait_time, 0);
	pg_atomic_init_u64(&slot->counters.stats_reset, (uint64) snowflake_clock_now());
	pg_atomic_init_u64(&slot->counters.ids_before_reset, 0);
	slot->layout = *layout;
	if (name != NULL)
		strlcpy(slot->name, name, sizeof(slot->name));
	else
		snowflake_layout_define(layout, slot->name);
}

static void
init_order(SnowflakeOrder *order)
{
	pg_atomic_init_u32(&order->asked, 0);
	pg_atomic_init_u32(&order->done, 0);
}

static void
init_shared(SnowflakeShared *shared)
{
	memset(shared, 0, slots_size());
	pg_atomic_init_u64(&shared->settings.max_ahead, 0);
	pg_atomic_init_u64(&shared->settings.clock_offset, 0);
	pg_atomic_init_u64(&shared->settings.max_wait, 0);
	pg_atomic_init_u32(&shared->settings.sequence_start, 0);
	pg_atomic_init_u32(&shared->settings.resets, 0);
	shared->lock = &(GetNamedLWLockTranche(TRANCHE_NAME))->lock;
	ConditionVariableInit(&shared->changed);
	pg_atomic_init_u64(&shared->lease.leased_until, 0);
	pg_atomic_init_u32(&shared->lease.requested, 0);
	pg_atomic_init_u64(&shared->lease.clock_rollbacks, 0);
	pg_atomic_init_u64(&shared->lease.worker_switches, 0);
	pg_atomic_init_u64(&shared->lease.renewals, 0);
	pg_atomic_init_u64(&shared->lease.failures, 0);
	pg_atomic_init_u32(&shared->worker, 0);
	pg_atomic_init_u32(&shared->helper, 0);
	pg_atomic_init_u32(&shared->look, 0);
	init_order(&shared->release);
	init_order(&shared->change);
	snowflake_machine_init(&shared->machine);
	init_status(shared);
	shared->num_slots = num_layouts;
	shared->num_processes = MaxBackends;
	shared->counts_offset = slots_size();
	shared->counts_stride = counts_stride();
	for (int slot = 0; slot < shared->num_slots; slot++)
		init_slot(&shared->slots[slot], &layouts[slot]);
	shared->invalid_layout = snowflake_rejected_name != NULL &&
		strcmp(snowflake_rejected_name, "snowflake.layout") == 0;
	shared->refused = shared->status.phase == SNOWFLAKE_REFUSED;
	snowflake_shared = shared;
	for (int process = 0; process < shared->num_processes; process++)
		for (int slot = 0; slot < shared->num_slots; slot++)
			pg_atomic_init_u64(snowflake_shmem_ids_issued(process, slot), 0);
	snowflake_settings_publish();
}

/* In the postmaster at start and after a crash; under EXEC_BACKEND in each child. */
static void
startup_shmem(void)
{
	SnowflakeShared *shared;
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();

	snowflake_shared = NULL;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("snowflake", shared_size(), &found);
	if (!found)
		init_shared(shared);
	snowflake_shared = shared;
	LWLockRelease(AddinShmemInitLock);
}

/* Installs the hooks; only while the library is preloaded. */
void
snowflake_shmem_init(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

/*
 * Ids of a slot that a process number has issued since the server started.
 * Only the process that has the number now writes; all read.
 */
pg_atomic_uint64 *
snowflake_shmem_ids_issued(int process, int slot)
{
	char	   *counts = (char *) snowflake_shared + snowflake_shared->counts_offset;

	return (pg_atomic_uint64 *) (counts + process * snowflake_shared->counts_stride) + slot;
}

/* The slot of a layout; NULL if it is not in use.  Layouts that make the same ids share one. */
SnowflakeSlot *
snowflake_slot_of(const SnowflakeLayout *layout)
{
	for (int i = 0; i < snowflake_shared->num_slots; i++)
		if (snowflake_layout_same_ids(&snowflake_shared->slots[i].layout, layout))
			return &snowflake_shared->slots[i];
	return NULL;
}

/* What the lease worker last found.  Any process may call this. */
void
snowflake_status_get(SnowflakeStatus *status)
{
	LWLockAcquire(snowflake_shared->lock, LW_SHARED);
	*status = snowflake_shared->status;
	LWLockRelease(snowflake_shared->lock);
}

/* Wakes the lease worker or the helper, if there is one. */
void
snowflake_wake(pg_atomic_uint32 *process)
{
	uint32		one_more = pg_atomic_read_u32(process);

	if (one_more != 0)
		SetLatch(&GetPGProcByNumber(one_more - 1)->procLatch);
}

/* A backend needs an id: its word found the limit, or no lease. */
void
snowflake_ask_for_lease(void)
{
	pg_atomic_write_u32(&snowflake_shared->lease.requested, 1);
	pg_memory_barrier();
	snowflake_wake(&snowflake_shared->worker);
}

/* Makes the lease worker's settings those of all backends.  Only it calls this. */
void
snowflake_settings_publish(void)
{
	SnowflakeSettings *settings = &snowflake_shared->settings;

	pg_atomic_write_u64(&settings->max_ahead, (uint64) snowflake_max_ahead * 1000);
	pg_atomic_write_u64(&settings->clock_offset, (uint64) (int64) (snowflake_clock_offset * 1000));
	pg_atomic_write_u64(&settings->max_wait, (uint64) snowflake_max_wait * 1000);
	pg_atomic_write_u32(&settings->sequence_start, (uint32) snowflake_sequence_start);
}
