/*
 * stats.c
 *	  Reading the counters of a layout in use.
 *
 * Ids are counted by each process for itself and only ever upwards; a reset
 * notes the sum instead of clearing what others write.  Sums taken while ids
 * are issued may miss a few.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "stats.h"
#include "word.h"

static uint64
sum_ids_issued(int slot)
{
	uint64		sum = 0;

	for (int process = 0; process < snowflake_shared->num_processes; process++)
		sum += pg_atomic_read_u64(snowflake_shmem_ids_issued(process, slot));
	return sum;
}

/* Ids issued since the last reset. */
uint64
snowflake_stats_ids_issued(int slot)
{
	return sum_ids_issued(slot) -
		pg_atomic_read_u64(&snowflake_shared->slots[slot].counters.ids_before_reset);
}

/* Sets the counters of all layouts, and of the lease that they share, to zero. */
void
snowflake_stats_reset(void)
{
	for (int slot = 0; slot < snowflake_shared->num_slots; slot++)
	{
		SnowflakeCounters *counters = &snowflake_shared->slots[slot].counters;

		pg_atomic_write_u64(&counters->sequence_overflows, 0);
		pg_atomic_write_u64(&counters->max_ahead_seen, 0);
		pg_atomic_write_u64(&counters->waits, 0);
		pg_atomic_write_u64(&counters->wait_time, 0);
		pg_atomic_write_u64(&counters->stats_reset, (uint64) snowflake_clock_now());
		pg_atomic_write_u64(&counters->ids_before_reset, sum_ids_issued(slot));
	}
	pg_atomic_write_u64(&snowflake_shared->lease.clock_rollbacks, 0);
	pg_atomic_write_u64(&snowflake_shared->lease.worker_switches, 0);
	pg_atomic_write_u64(&snowflake_shared->lease.renewals, 0);
	pg_atomic_write_u64(&snowflake_shared->lease.failures, 0);
	/* backends forget what they have reported */
	pg_atomic_fetch_add_u32(&snowflake_shared->settings.resets, 1);
}

const char *
snowflake_from_name(SnowflakeWorkerIdFrom from)
{
	switch (from)
	{
		case SNOWFLAKE_FROM_SETTING:
			return "setting";
		case SNOWFLAKE_FROM_HOSTNAME:
			return "hostname";
		case SNOWFLAKE_FROM_MAC:
			return "mac";
		case SNOWFLAKE_FROM_REGISTRY:
			break;
	}
	return "auto";
}

/*
 * The state of a layout in use, as the next call would find it, and in detail why
 * and until when.
 *
 *	  ready		a call gets an id, if need be after the lease is extended
 *	  starting	the lease worker has not opened a lease yet, or keeps trying to
 *	  waiting	the next id would be more than max_ahead past the clock
 *	  expired	the lease is over and could not be extended
 *	  refused	there is no lease and waiting does not bring one, or the
 *				timestamp field is full
 *	  standby	no ids are issued during recovery
 */
const char *
snowflake_stats_state(SnowflakeSlot *slot, const SnowflakeStatus *status,
					  char *detail, size_t size)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		word = pg_atomic_read_u64(&slot->word);
	TimestampTz leased_until = (TimestampTz) pg_atomic_read_u64(&snowflake_shared->lease.leased_until);
	TimestampTz now = snowflake_id_clock();
	TimestampTz last = snowflake_tick_begin(layout, snowflake_word_tick(layout, word));
	int64		max_ahead = SNOWFLAKE_SETTING(max_ahead);
	bool		failing = status->phase == SNOWFLAKE_REFUSED || status->phase == SNOWFLAKE_RETRYING;

	detail[0] = '\0';
	if (RecoveryInProgress())
	{
		snprintf(detail, size, "until this standby is promoted");
		return "standby";
	}
	if (failing)
		snprintf(detail, size, "%s", status->problem.message);
	if (now >= snowflake_tick_begin(layout, layout->max_tick + 1) ||
		pg_atomic_read_u32(&slot->full) != 0 ||
		(!(word & SNOWFLAKE_SEALED) && snowflake_word_is_last(layout, word)))
	{
		snprintf(detail, size, "the timestamp field is full");
		return "refused";
	}
	if (word & SNOWFLAKE_SEALED)
	{
		if (status->phase == SNOWFLAKE_REFUSED)
			return "refused";
		if (!failing)
			snprintf(detail, size, "until the lease worker has opened a lease");
		return "starting";
	}
	if (failing)
		return now < leased_until ? "ready" : "expired";
	if (last - now > max_ahead)
	{
		pg_read_barrier();		/* opened is set before the word */
		snprintf(detail, size, "the clock is behind %s; until it reaches %s",
				 word == pg_atomic_read_u64(&slot->opened) ? "the start of the lease" : "the last id",
				 timestamptz_to_str(last - max_ahead));
		return "waiting";
	}
	return "ready";
}
