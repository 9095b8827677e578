/*
 * settled.h
 *	  The settled id: up to where a reader may read.
 */
#ifndef SNOWFLAKE_SETTLED_H
#define SNOWFLAKE_SETTLED_H

#include "access/parallel.h"

#include "compat.h"
#include "shmem.h"

/*
 * The bound of this process's transaction.  A parallel worker's is that of its
 * leader, which waits for it.
 */
static inline pg_atomic_uint64 *
snowflake_settled_bound(int slot)
{
	int			process = IsParallelWorker() ? snowflake_leader_proc_number() :
	snowflake_my_proc_number();

	return &snowflake_shmem_process_slot(process, slot)->bound;
}

/*
 * Lowers a bound to the tick and sequence of the word that is about to be
 * issued.  The swap of that word is a full barrier.
 */
static inline void
snowflake_settled_lower(pg_atomic_uint64 *bound, uint64 place)
{
	uint64		present = pg_atomic_read_u64(bound);

	while (place < present &&
		   !pg_atomic_compare_exchange_u64(bound, &present, place))
		;
}

extern void snowflake_settled_init(void);
extern uint64 snowflake_settled_before(SnowflakeSlot *slot, uint64 word);

#endif							/* SNOWFLAKE_SETTLED_H */
