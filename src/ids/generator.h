/*
 * generator.h
 *	  Issuing ids.
 */
#ifndef SNOWFLAKE_GENERATOR_H
#define SNOWFLAKE_GENERATOR_H

#include "layout/layout.h"
#include "shmem.h"

/* Greatest number of ids in one batch. */
#define SNOWFLAKE_MAX_BATCH		1000000

/*
 * What a process issues ids with: the word of a layout.  Lives as long as the
 * process.
 */
typedef struct SnowflakeGenerator SnowflakeGenerator;

/*
 * Ids that were issued at once: count of them, each step greater than the one
 * before.
 */
typedef struct SnowflakePart
{
	int64		first;
	int64		step;
	int64		count;
	int64		waited;			/* microseconds, over all parts of a batch;
								 * the caller sets it to 0 before the first */
} SnowflakePart;

extern SnowflakeGenerator *snowflake_default_generator(void);
extern SnowflakeGenerator *snowflake_generator_of(const SnowflakeLayout *layout);
extern int64 snowflake_issue(SnowflakeGenerator *g);
extern void snowflake_issue_part(SnowflakeGenerator *g, int64 count,
								 SnowflakePart *part);
extern uint64 snowflake_catch_up(const SnowflakeGenerator *g);
extern SnowflakeSlot *snowflake_generator_slot(const SnowflakeGenerator *g);
extern void snowflake_check_batch(const SnowflakeGenerator *g, int64 count);

#endif							/* SNOWFLAKE_GENERATOR_H */
