/*
 * shmem.c
 *	  Size, creation and attachment of the shared memory; its small accessors.
 */
#include "postgres.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "shmem.h"

SnowflakeShared *snowflake_shared = NULL;

/*
 * What snowflake_shmem_create() needs, in bytes: the slots, what each process
 * has of them, in cache lines of its own, and prepared transactions, of which
 * each process may be about to prepare one more.  Says where they are in "shared",
 * unless that is NULL.
 */
Size
snowflake_shmem_size(int num_layouts, SnowflakeShared *shared)
{
	Size		slots = add_size(offsetof(SnowflakeShared, slots),
								 mul_size(num_layouts, sizeof(SnowflakeSlot)));
	Size		process = CACHELINEALIGN(mul_size(num_layouts,
												  sizeof(SnowflakeProcessSlot)));
	Size		entry = add_size(offsetof(SnowflakePrepared, bounds),
								 mul_size(num_layouts, sizeof(pg_atomic_uint64)));
	int			num_prepared = max_prepared_xacts == 0 ? 0 :
	max_prepared_xacts + MaxBackends;
	Size		processes_end = add_size(CACHELINEALIGN(slots),
										 mul_size(MaxBackends, process));

	if (shared != NULL)
	{
		shared->num_slots = num_layouts;
		shared->num_processes = MaxBackends;
		shared->processes_offset = CACHELINEALIGN(slots);
		shared->process_stride = process;
		shared->num_prepared = num_prepared;
		shared->prepared_offset = processes_end;
		shared->prepared_stride = entry;
	}
	return add_size(processes_end, mul_size(num_prepared, entry));
}

static void
init_slot(SnowflakeSlot *slot, const SnowflakeLayout *layout)
{
	const char *name = snowflake_layout_name(layout);

	pg_atomic_init_u64(&slot->word, SNOWFLAKE_SEALED);
	pg_atomic_init_u64(&slot->limit, 0);
	pg_atomic_init_u64(&slot->opened, 0);
	pg_atomic_init_u64(&slot->waiting, 0);
	pg_atomic_init_u32(&slot->full, 0);
	pg_atomic_init_u64(&slot->settled, 0);
	pg_atomic_init_u64(&slot->went_back, 0);
	slot->seen = SNOWFLAKE_SEALED;
	pg_atomic_init_u64(&slot->counters.sequence_overflows, 0);
	pg_atomic_init_u64(&slot->counters.max_ahead_seen, 0);
	pg_atomic_init_u64(&slot->counters.waits, 0);
	pg_atomic_init_u64(&slot->counters.wait_time, 0);
	pg_atomic_init_u64(&slot->counters.stats_reset,
					   (uint64) snowflake_clock_now());
	pg_atomic_init_u64(&slot->counters.ids_before_reset, 0);
	slot->layout = *layout;
	if (name != NULL)
		strlcpy(slot->name, name, sizeof(slot->name));
	else
		snowflake_layout_define(layout, slot->name);
}

static void
init_shared(SnowflakeShared *shared, const SnowflakeLayout *layouts,
			int num_layouts)
{
	memset(shared, 0, snowflake_shmem_size(num_layouts, NULL));
	snowflake_shmem_size(num_layouts, shared);
	pg_atomic_init_u64(&shared->settings.max_ahead, 0);
	pg_atomic_init_u64(&shared->settings.clock_offset, 0);
	pg_atomic_init_u64(&shared->settings.max_wait, 0);
	pg_atomic_init_u32(&shared->settings.sequence_start, 0);
	pg_atomic_init_u32(&shared->settings.resets, 0);
	shared->lock = &(GetNamedLWLockTranche("snowflake"))->lock;
	ConditionVariableInit(&shared->changed);
	pg_atomic_init_u64(&shared->lease.leased_until, 0);
	pg_atomic_init_u64(&shared->lease.settled_from, (uint64) DT_NOEND);
	pg_atomic_init_u32(&shared->lease.requested, 0);
	pg_atomic_init_u64(&shared->lease.clock_rollbacks, 0);
	pg_atomic_init_u64(&shared->lease.worker_switches, 0);
	pg_atomic_init_u64(&shared->lease.renewals, 0);
	pg_atomic_init_u64(&shared->lease.failures, 0);
	pg_atomic_init_u32(&shared->worker, 0);
	pg_atomic_init_u32(&shared->look, 0);
	pg_atomic_init_u32(&shared->release.asked, 0);
	pg_atomic_init_u32(&shared->release.done, 0);
	pg_atomic_init_u32(&shared->release.failed, 0);
	shared->status.phase = SNOWFLAKE_STARTING;
	pg_atomic_init_u32(&shared->prepared_known, 0);
	for (int slot = 0; slot < shared->num_slots; slot++)
		init_slot(&shared->slots[slot], &layouts[slot]);
	for (int process = 0; process < shared->num_processes; process++)
		for (int slot = 0; slot < shared->num_slots; slot++)
		{
			SnowflakeProcessSlot *mine = snowflake_shmem_process_slot(process, slot);

			pg_atomic_init_u64(&mine->ids_issued, 0);
			pg_atomic_init_u64(&mine->bound, SNOWFLAKE_NO_BOUND);
		}
	for (int entry = 0; entry < shared->num_prepared; entry++)
	{
		SnowflakePrepared *prepared = snowflake_shmem_prepared(entry);

		pg_atomic_init_u64(&prepared->xid, 0);
		for (int slot = 0; slot < shared->num_slots; slot++)
			pg_atomic_init_u64(&prepared->bounds[slot], SNOWFLAKE_NO_BOUND);
	}
}

/*
 * Creates the shared memory, with the layouts in use, or attaches to it.  For
 * the startup hook, which holds AddinShmemInitLock.
 */
void
snowflake_shmem_create(const SnowflakeLayout *layouts, int num_layouts)
{
	bool		found;

	snowflake_shared =
		ShmemInitStruct("snowflake", snowflake_shmem_size(num_layouts, NULL),
						&found);
	if (!found)
		init_shared(snowflake_shared, layouts, num_layouts);
}

/* Ids need the shared memory of a preloaded library. */
void
snowflake_require_preload(void)
{
	if (unlikely(snowflake_shared == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("snowflake must be loaded via shared_preload_libraries"),
				 errdetail("Ids are issued from shared memory that is set up when the server starts."),
				 errhint("Add snowflake to shared_preload_libraries in postgresql.conf and restart the server.")));
}

/* What a process, by its number, has of a slot. */
SnowflakeProcessSlot *
snowflake_shmem_process_slot(int process, int slot)
{
	char	   *processes = (char *) snowflake_shared +
	snowflake_shared->processes_offset;

	return (SnowflakeProcessSlot *) (processes +
									 process * snowflake_shared->process_stride) +
		slot;
}

/* An entry for a prepared transaction. */
SnowflakePrepared *
snowflake_shmem_prepared(int entry)
{
	return (SnowflakePrepared *) ((char *) snowflake_shared +
								  snowflake_shared->prepared_offset +
								  entry * snowflake_shared->prepared_stride);
}

/*
 * The slot of a layout; NULL if it is not in use.  Layouts that make the same
 * ids share one.
 */
SnowflakeSlot *
snowflake_slot_of(const SnowflakeLayout *layout)
{
	for (int i = 0; i < snowflake_shared->num_slots; i++)
		if (snowflake_layout_same_ids(&snowflake_shared->slots[i].layout,
									  layout))
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
