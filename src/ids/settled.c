/*
 * settled.c
 *	  The settled id: up to where a reader may read.
 *
 * A reader that asks for "id > last" misses the rows of a transaction that took
 * an id before another one, and commits after it.  So each process has, for
 * each slot, a bound: a place, which is a tick and a sequence, that no id which it
 * has issued in its transaction is before.
 *
 * The invariant
 *	  If an id is issued and its transaction is not visible to new snapshots,
 *	  and has not been rolled back, the id is not before the bound of its
 *	  process, or of its prepared transaction.
 *
 *	  A bound is lowered before the swap that issues the id, also if the swap may
 *	  fail, and it is taken away after the transaction's end is visible (a callback of
 *	  xact.c).  PREPARE TRANSACTION first copies it into an entry, which has the
 *	  full transaction id, and counts until that is not in progress any more: no
 *	  callback comes with COMMIT PREPARED.  Ids of a parallel worker belong to
 *	  its leader's transaction, and lower the leader's bound.
 *
 * The argument
 *	  The reader reads the word, then the bounds of all processes, then the
 *	  entries.  An id whose swap comes after the word that was read is not before
 *	  that word's tick.  An id whose swap comes earlier had a bound before that:
 *	  the reader sees the bound, or that of its entry, or the transaction has
 *	  ended, and the reader's next statement sees what it has written.  So all ids
 *	  before both are settled.  A word that is opened goes on after the last tick
 *	  of the words before it, or says that it has gone back (lease/words.c).
 *
 *	  A bound can be lower than it need be: a process that failed to swap the word
 *	  to an early place has issued later ids.  So what was once settled stays so,
 *	  and the greatest answer is kept, unless ids went back.
 *
 * Everything is in atomics; there is no lock of ours.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/transam.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"

#include "ids/settled.h"
#include "ids/word.h"

/*
 * An entry that is being written has this transaction id, a free one 0: neither
 * is ever in progress.
 */
#define BEING_WRITTEN	BootstrapTransactionId

/*
 * The end of a transaction
 */

static bool
is_in_progress(uint64 xid)
{
	uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());

	/* one that is so old can have the number of another one */
	return next - xid <= PG_INT32_MAX &&
		TransactionIdIsInProgress((TransactionId) xid);
}

/* Takes an entry; what has ended leaves its own.  There is always one: shmem.c. */
static SnowflakePrepared *
take_entry(void)
{
	for (;;)
	{
		for (int i = 0; i < snowflake_shared->num_prepared; i++)
		{
			SnowflakePrepared *entry = snowflake_shmem_prepared(i);
			uint64		xid = pg_atomic_read_u64(&entry->xid);

			if (xid != BEING_WRITTEN && !is_in_progress(xid) &&
				pg_atomic_compare_exchange_u64(&entry->xid, &xid, BEING_WRITTEN))
				return entry;
		}
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Before PREPARE TRANSACTION: from now on an entry has its bounds.  If it fails,
 * the transaction ends, and the entry with it.  A transaction without ids has an
 * entry, too: so what has none is from before the start of the server.
 */
static void
keep_bounds(void)
{
	uint64		xid;
	SnowflakePrepared *entry;

	if (snowflake_shared->num_prepared == 0)
		return;					/* it is about to fail */
	xid = U64FromFullTransactionId(GetTopFullTransactionId());
	entry = take_entry();
	for (int i = 0; i < snowflake_shared->num_slots; i++)
		pg_atomic_write_u64(&entry->bounds[i],
							pg_atomic_read_u64(snowflake_settled_bound(i)));
	pg_write_barrier();
	pg_atomic_write_u64(&entry->xid, xid);
}

static void
clear_bounds(void)
{
	for (int i = 0; i < snowflake_shared->num_slots; i++)
	{
		pg_atomic_uint64 *bound = snowflake_settled_bound(i);

		if (pg_atomic_read_u64(bound) == SNOWFLAKE_NO_BOUND)
			continue;
		pg_memory_barrier();
		pg_atomic_write_u64(bound, SNOWFLAKE_NO_BOUND);
	}
}

/*
 * COMMIT and ABORT come after the transaction's end is visible to new snapshots,
 * PREPARE after the prepared transaction is.  A parallel worker lowers its
 * leader's bound, and never takes it away.
 */
static void
at_transaction_event(XactEvent event, void *arg)
{
	/*
	 * a parallel worker begins with transactions that are none of its
	 * leader's
	 */
	if (snowflake_shared == NULL || IsParallelWorker())
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			keep_bounds();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			clear_bounds();
			break;
		default:
			break;
	}
}

/* In the postmaster, for all processes. */
void
snowflake_settled_init(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
}

/*
 * The reader
 */

/*
 * The place that no id of a running transaction is before, nor one that is still
 * to be issued: that of the word, or of a bound.  After snowflake_catch_up() has
 * read the word there was a barrier.
 */
static uint64
least_of_processes(SnowflakeSlot *slot, uint64 word)
{
	const SnowflakeLayout *layout = &slot->layout;
	int			index = (int) (slot - snowflake_shared->slots);
	uint64		tick = snowflake_word_tick(layout, word);
	uint64		least;

	/*
	 * Nothing more comes in the word's own tick, unless nothing has come yet:
	 * then the next start may begin with it.
	 */
	if ((word & ~SNOWFLAKE_SEALED) != pg_atomic_read_u64(&slot->opened) &&
		((word & SNOWFLAKE_SEALED) != 0 ||
		 snowflake_word_sequence(layout, word) ==
		 snowflake_field_max(layout, SNOWFLAKE_SEQUENCE)))
		tick++;
	least = tick << snowflake_word_tick_shift(layout);
	for (int process = 0; process < snowflake_shared->num_processes; process++)
	{
		uint64		bound =
		pg_atomic_read_u64(&snowflake_shmem_process_slot(process, index)->bound);

		least = Min(least, bound);
	}
	return least;
}

static uint64
least_of_prepared(int slot, uint64 least)
{
	for (int i = 0; i < snowflake_shared->num_prepared; i++)
	{
		SnowflakePrepared *entry = snowflake_shmem_prepared(i);
		uint64		xid = pg_atomic_read_u64(&entry->xid);
		uint64		bound;

		pg_read_barrier();
		bound = pg_atomic_read_u64(&entry->bounds[slot]);

		/*
		 * while a transaction is in progress, its entry is not another one's;
		 * before it is written, its process has the bound
		 */
		if (bound < least && is_in_progress(xid))
			least = bound;
	}
	return least;
}

static bool
has_entry(TransactionId xid)
{
	for (int i = 0; i < snowflake_shared->num_prepared; i++)
		if ((TransactionId) pg_atomic_read_u64(&snowflake_shmem_prepared(i)->xid) == xid)
			return true;
	return false;
}

/*
 * What was prepared before this start of the server, or before its promotion,
 * has no entry, and nobody knows its ids.  Raises 55000.  Once there is none,
 * there never is.
 */
static void
check_prepared(void)
{
	if (snowflake_shared->num_prepared == 0 ||
		pg_atomic_read_u32(&snowflake_shared->prepared_known) != 0)
		return;
	if (SPI_connect() != SPI_OK_CONNECT ||
		SPI_execute("SELECT p.transaction, p.gid FROM pg_catalog.pg_prepared_xact() AS p",
					true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the prepared transactions");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		bool		isnull;
		TransactionId xid =
		DatumGetTransactionId(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));

		if (!has_entry(xid) && TransactionIdIsInProgress(xid))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the settled id is not known while a prepared transaction is older than this start of the server"),
					 errdetail("The transaction \"%s\" was prepared before the server was started or promoted.",
							   SPI_getvalue(row, SPI_tuptable->tupdesc, 2)),
					 errhint("End it with COMMIT PREPARED or ROLLBACK PREPARED.")));
	}
	SPI_finish();
	pg_atomic_write_u32(&snowflake_shared->prepared_known, 1);
}

/*
 * Raises 55000 while ids of an earlier start may be later.  A word that has not
 * moved since it was opened can stand anywhere before the clock; if it is ahead
 * of the clock, as in a lease that starts later, it moves when its tick is over; so
 * does one that waits for a later limit.
 */
static void
check_start(SnowflakeSlot *slot, uint64 word, uint64 before)
{
	TimestampTz from = (TimestampTz)
	pg_atomic_read_u64(&snowflake_shared->lease.settled_from);
	uint64		waiting = pg_atomic_read_u64(&slot->waiting);

	word &= ~SNOWFLAKE_SEALED;
	if (pg_atomic_read_u64(&slot->settled) == 0 &&
		word == pg_atomic_read_u64(&slot->opened))
	{
		from = Max(from, snowflake_tick_begin(&slot->layout,
											  snowflake_word_tick(&slot->layout, waiting != 0 ? waiting : word) + 1));
		if (from <= snowflake_id_clock())
			from = DT_NOEND;
	}
	else if (!TIMESTAMP_IS_NOEND(from) &&
			 snowflake_tick_begin(&slot->layout, before) >= from)
		return;
	/* so that the word gets there, also if nobody wants an id */
	snowflake_ask_for_lease();
	if (TIMESTAMP_IS_NOEND(from))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the settled id is not known before the server has a node number"),
				 errdetail("It has had none since it was started or promoted."),
				 errhint("Try again; if it gets none, see pg_stat_snowflake and the server's log.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the settled id is not known before %s", timestamptz_to_str(from)),
			 errdetail("Ids from before the server was started or promoted can be as late as that."),
			 errhint("Try again at that time. If it is still refused, a transaction that took an id earlier is open: end it, or wait for it.")));
}

/*
 * Raises 55000 while ids that were issued after the clock was set back may be
 * before others.
 */
static void
check_back(SnowflakeSlot *slot, uint64 before)
{
	uint64		back = pg_atomic_read_u64(&slot->went_back);

	while (back != 0)
	{
		/*
		 * one who has read the word before it was opened there gets no
		 * further
		 */
		if (before <= back)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the settled id is not known since ids have gone back"),
					 errdetail("The clock was set back, or snowflake.max_ahead was lowered. New ids are greater than all earlier ones from %s on.",
							   timestamptz_to_str(snowflake_tick_begin(&slot->layout, back + 1))),
					 errhint("Try again then, and read again from the time that the clock was set back to, or that max_ahead was lowered at.")));
		if (pg_atomic_compare_exchange_u64(&slot->went_back, &back, 0))
			break;
	}
}

/*
 * The first tick that is not settled: every id of an earlier one that was issued
 * belongs to a transaction that has ended, and none will be issued.  "word" is
 * what snowflake_catch_up() returned.  Never less than before.  Raises 55000
 * while it is not known.
 */
uint64
snowflake_settled_before(SnowflakeSlot *slot, uint64 word)
{
	const SnowflakeLayout *layout = &slot->layout;
	uint64		least = least_of_processes(slot, word);
	uint64		before,
				settled;

	pg_read_barrier();
	least = least_of_prepared((int) (slot - snowflake_shared->slots), least);
	before = least >> snowflake_word_tick_shift(layout);
	pg_read_barrier();
	check_prepared();
	check_start(slot, word, before);
	check_back(slot, before);
	settled = pg_atomic_read_u64(&slot->settled);
	while (settled < before &&
		   !pg_atomic_compare_exchange_u64(&slot->settled, &settled, before))
		;
	return Max(settled, before);
}
