/*
 * hooks.h
 *	  Included before each file of src/ that the simulator compiles: each access to an atomic
 *	  is a point where the process may be suspended or killed, and time is the world's.
 *
 * The files themselves are compiled as they are.
 */
#ifndef SIM_HOOKS_H
#define SIM_HOOKS_H

#include "postgres.h"

#include <time.h>

#include "port/atomics.h"

/*
 * So many points from now on the running process is suspended or killed.  Those of a file count only
 * if its price is not 0: so the few points in words.c, where much depends on the order, are found.
 */
#ifndef SIM_FILE
#define SIM_FILE		0
#endif
#define SIM_NUM_FILES	2

extern int	sim_fuel;
extern int	sim_price[SIM_NUM_FILES];
extern void sim_preempt(void);
extern int	sim_clock_gettime(clockid_t id, struct timespec *ts);
extern int	sim_clock_getres(clockid_t id, struct timespec *ts);

static inline void
sim_point(void)
{
	if (unlikely((sim_fuel -= sim_price[SIM_FILE]) < 0))
		sim_preempt();
}

#define clock_gettime(id, ts) sim_clock_gettime(id, ts)
#define clock_getres(id, ts) sim_clock_getres(id, ts)

#define pg_atomic_read_u32(p) (sim_point(), pg_atomic_read_u32(p))
#define pg_atomic_read_u64(p) (sim_point(), pg_atomic_read_u64(p))
#define pg_atomic_write_u32(p, v) (sim_point(), pg_atomic_write_u32(p, v))
#define pg_atomic_write_u64(p, v) (sim_point(), pg_atomic_write_u64(p, v))
#define pg_atomic_exchange_u32(p, v) (sim_point(), pg_atomic_exchange_u32(p, v))
#define pg_atomic_fetch_or_u64(p, v) (sim_point(), pg_atomic_fetch_or_u64(p, v))
#define pg_atomic_compare_exchange_u64(p, e, v) (sim_point(), pg_atomic_compare_exchange_u64(p, e, v))

#endif							/* SIM_HOOKS_H */
