/*
 * holder.h
 *	  One round of the holder's work.
 */
#ifndef SNOWFLAKE_HOLDER_H
#define SNOWFLAKE_HOLDER_H

/* Returned by a pass: there is nothing to do until somebody asks. */
#define SNOWFLAKE_PASS_IDLE		(-1L)

extern long snowflake_holder_pass(void);
extern bool snowflake_holder_stop(void);

#endif							/* SNOWFLAKE_HOLDER_H */
