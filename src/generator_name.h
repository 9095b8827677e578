/*
 * generator_name.h
 *	  From the name of a generator to the word of its layout.
 */
#ifndef SNOWFLAKE_GENERATOR_NAME_H
#define SNOWFLAKE_GENERATOR_NAME_H

#include "utils/array.h"

#include "generator.h"

/* A generator, as the table has it. */
typedef struct SnowflakeNamedLayout
{
	text	   *name;
	SnowflakeLayout layout;
} SnowflakeNamedLayout;

/* Greater whenever a generator may have been created, dropped or changed. */

extern uint32 snowflake_generator_changes;

extern SnowflakeGenerator *snowflake_generator_named(const text *name);
extern List *snowflake_generators_read(void);
extern ArrayType *snowflake_generator_names(const List *generators, const SnowflakeLayout *layout);

#endif							/* SNOWFLAKE_GENERATOR_NAME_H */
