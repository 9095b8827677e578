/*
 * shmem.c
 *	  Size, creation and attachment of the shared memory; its small accessors.
 */
#include "postgres.h"

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "storage/ipc.h"
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

/* Each process counts on cache lines of its own. */
static Size
counts_stride(void)
{
	return CACHELINEALIGN(mul_size(snowflake_max_layouts, sizeof(pg_atomic_uint64)));
}

static Size
slots_size(void)
{
	return CACHELINEALIGN(add_size(offsetof(SnowflakeShared, slots),
								   mul_size(snowflake_max_layouts, sizeof(SnowflakeSlot))));
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

/* Why this server will not draw whatever the holder finds, if so. */
static void
init_status(SnowflakeStatus *status)
{
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
		strlcpy(problem->hint, "Draw ids when the upgrade has ended.", sizeof(problem->hint));
	}
	status->phase = problem->sqlerrcode != 0 ? SNOWFLAKE_REFUSED : SNOWFLAKE_STARTING;
}

static void
init_slot(SnowflakeSlot *slot)
{
	pg_atomic_init_u64(&slot->word, SNOWFLAKE_SEALED);
	pg_atomic_init_u64(&slot->limit, 0);
	pg_atomic_init_u64(&slot->opened, 0);
	pg_atomic_init_u32(&slot->requested, 0);
	slot->seen = SNOWFLAKE_SEALED;
	slot->wanted_at = 0;
	pg_atomic_init_u64(&slot->counters.sequence_overflows, 0);
	pg_atomic_init_u64(&slot->counters.max_ahead_seen, 0);
	pg_atomic_init_u64(&slot->counters.waits, 0);
	pg_atomic_init_u64(&slot->counters.wait_time, 0);
	pg_atomic_init_u64(&slot->counters.stats_reset, (uint64) snowflake_clock_now());
	pg_atomic_init_u64(&slot->counters.ids_before_reset, 0);
	init_status(&slot->status);
}

static void
init_lease(SnowflakeLease *lease)
{
	memset(lease, 0, sizeof(*lease));
	pg_atomic_init_u64(&lease->leased_until, 0);
	pg_atomic_init_u64(&lease->highest, 0);
	pg_atomic_init_u64(&lease->writes, 0);
	pg_atomic_init_u64(&lease->changes, 0);
	pg_atomic_init_u32(&lease->requested, 0);
	pg_atomic_init_u64(&lease->clock_rollbacks, 0);
	pg_atomic_init_u64(&lease->worker_switches, 0);
	pg_atomic_init_u64(&lease->renewals, 0);
	pg_atomic_init_u64(&lease->failures, 0);
}

static void
set_layout(SnowflakeSlot *slot, const SnowflakeLayout *layout)
{
	const char *name = snowflake_layout_name(layout);

	slot->layout = *layout;
	if (name != NULL)
		strlcpy(slot->name, name, sizeof(slot->name));
	else
		snowflake_layout_define(layout, slot->name);
}

/* The layout of snowflake.layout, which check_layout has accepted. */
static void
init_default_layout(SnowflakeSlot *slot)
{
	SnowflakeLayout layout;
	SnowflakeLayoutError error;

	if (!snowflake_layout_read(snowflake_layout_setting, &layout, &error))
		elog(ERROR, "invalid snowflake.layout \"%s\": %s", snowflake_layout_setting, error.detail);	/* GCOV_EXCL_LINE */
	set_layout(slot, &layout);
}

/*
 * Time of the last checkpoint, before recovery replaces it; the startup process
 * has not been launched yet.
 */
static TimestampTz
last_checkpoint(void)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);
	TimestampTz time = crc_ok ? time_t_to_timestamptz(control->checkPointCopy.time) : 0;

	pfree(control);
	return time;
}

static void
init_shared(SnowflakeShared *shared)
{
	pg_atomic_init_u64(&shared->settings.max_ahead, 0);
	pg_atomic_init_u64(&shared->settings.clock_offset, 0);
	pg_atomic_init_u64(&shared->settings.max_wait, 0);
	pg_atomic_init_u32(&shared->settings.sequence_start, 0);
	pg_atomic_init_u32(&shared->settings.resets, 0);
	shared->lock = &(GetNamedLWLockTranche(TRANCHE_NAME))->lock;
	ConditionVariableInit(&shared->changed);
	init_lease(&shared->lease);
	pg_atomic_init_u32(&shared->worker, 0);
	pg_atomic_init_u32(&shared->helper, 0);
	memset(&shared->desk, 0, sizeof(shared->desk));
	memset(&shared->home, 0, sizeof(shared->home));
	pg_atomic_init_u32(&shared->orders.look, 0);
	pg_atomic_init_u32(&shared->orders.release, 0);
	pg_atomic_init_u32(&shared->orders.change_source, 0);
	shared->checkpoint_at_start = last_checkpoint();
	shared->num_slots = snowflake_max_layouts;
	shared->num_processes = MaxBackends;
	shared->counts_offset = slots_size();
	shared->counts_stride = counts_stride();
	for (int slot = 0; slot < shared->num_slots; slot++)
		init_slot(&shared->slots[slot]);
	init_default_layout(&shared->slots[0]);
	pg_atomic_init_u32(&shared->num_used, 1);
	shared->invalid_layout = snowflake_rejected_name != NULL &&
		strcmp(snowflake_rejected_name, "snowflake.layout") == 0;
	shared->refused = shared->slots[0].status.phase == SNOWFLAKE_REFUSED;
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

/* How many slots are in use: the first ones. */
int
snowflake_slots_used(void)
{
	int			used = (int) pg_atomic_read_u32(&snowflake_shared->num_used);

	pg_read_barrier();			/* their layouts were set before */
	return used;
}

/* The slot of a layout among the first ones; NULL if it is none of theirs. */
static SnowflakeSlot *
find_slot(const SnowflakeLayout *layout, int used)
{
	SnowflakeSlot *slots = snowflake_shared->slots;

	for (int i = 0; i < used; i++)
		if (snowflake_layout_same_ids(&slots[i].layout, layout))
			return &slots[i];
	return NULL;
}

/* Whether a layout has a slot, or there is one that it could take into use. */
bool
snowflake_slot_is_left(const SnowflakeLayout *layout)
{
	int			used = snowflake_slots_used();

	return used < snowflake_shared->num_slots || find_slot(layout, used) != NULL;
}

/*
 * The slot of a layout, taken into use if it is not yet; NULL if there is none left.
 * Layouts that make the same ids share one, under the name of the first.  It stays in
 * use until the server stops.  The lock is for those who take one into use; what is in
 * use does not change.
 */
SnowflakeSlot *
snowflake_slot_of(const SnowflakeLayout *layout)
{
	SnowflakeSlot *found = find_slot(layout, snowflake_slots_used());
	int			used;

	if (found != NULL)
		return found;
	LWLockAcquire(snowflake_shared->lock, LW_EXCLUSIVE);
	used = snowflake_slots_used();
	found = find_slot(layout, used);
	if (found == NULL && used < snowflake_shared->num_slots)
	{
		found = &snowflake_shared->slots[used];
		set_layout(found, layout);
		if (snowflake_shared->refused)
			found->status = snowflake_shared->slots[0].status;
		pg_write_barrier();
		pg_atomic_write_u32(&snowflake_shared->num_used, used + 1);
	}
	LWLockRelease(snowflake_shared->lock);
	return found;
}

/* How things stand with a layout.  For anybody. */
void
snowflake_status_get(SnowflakeSlot *slot, SnowflakeStatus *status)
{
	LWLockAcquire(snowflake_shared->lock, LW_SHARED);
	*status = slot->status;
	LWLockRelease(snowflake_shared->lock);
}

/* Only the holder calls this.  Both are filled with zeros first, so that they compare. */
void
snowflake_status_set(SnowflakeSlot *slot, const SnowflakeStatus *status)
{
	if (memcmp(&slot->status, status, sizeof(*status)) == 0)
		return;					/* nobody else writes that of a slot in use */
	LWLockAcquire(snowflake_shared->lock, LW_EXCLUSIVE);
	slot->status = *status;
	LWLockRelease(snowflake_shared->lock);
	pg_atomic_fetch_add_u64(&snowflake_shared->lease.changes, 1);
}

/* Where the last lease came from.  For anybody. */
void
snowflake_home_get(SnowflakeHome *home)
{
	LWLockAcquire(snowflake_shared->lock, LW_SHARED);
	*home = snowflake_shared->home;
	LWLockRelease(snowflake_shared->lock);
}

/* Only the holder calls this, when it opens the lease of a claim. */
void
snowflake_home_set(const SnowflakeClaim *claim)
{
	SnowflakeHome *home = &snowflake_shared->home;

	LWLockAcquire(snowflake_shared->lock, LW_EXCLUSIVE);
	home->known = !claim->unregistered;
	strlcpy(home->registry, claim->wish.registry, sizeof(home->registry));
	home->incarnation = claim->incarnation;
	LWLockRelease(snowflake_shared->lock);
}

/* Makes the holder's settings those of all drawers.  Only the holder calls this. */
void
snowflake_settings_publish(void)
{
	SnowflakeSettings *settings = &snowflake_shared->settings;

	pg_atomic_write_u64(&settings->max_ahead, (uint64) snowflake_max_ahead * 1000);
	pg_atomic_write_u64(&settings->clock_offset, (uint64) (int64) (snowflake_clock_offset * 1000));
	pg_atomic_write_u64(&settings->max_wait, (uint64) snowflake_max_wait * 1000);
	pg_atomic_write_u32(&settings->sequence_start, (uint32) snowflake_sequence_start);
}
