/*
 * world.h
 *	  What surrounds the lease machine in its tests: the lease worker's part, own
 *	  tables, registries, words and both clocks, all in variables.
 *
 * A test lets something happen, by the name of a step, and compares the state and
 * the action that come back, as a text:
 *
 *	  open: wait 0.25		the state, and how many seconds the machine waits
 *	  open: wait 60			the longest: it waits until something happens
 *	  new: wait to retry	a failure was not long enough ago
 *	  open: wait until due	the lease is to be renewed then
 *	  new: start create		it calls START, which may create the extension
 *	  leaving asking: acquire	the words are open under the lease of another registry
 *
 * The worker hands over a result only while a call is out, and only that of this
 * call's number (next_event() in worker.c): the machine does not look at numbers.
 */
#ifndef WORLD_H
#define WORLD_H

#include "utils/timestamp.h"

#include "lease/machine.h"

#define SECONDS(s)		((int64) ((s) * USECS_PER_SEC))
#define NUM_STATES		(SNOWFLAKE_LEASE_STOPPED + 1)
#define NUM_EVENTS		(SNOWFLAKE_EVENT_STOP + 1)
#define NUM_NUMBERS		1024
/* The random walk has fewer grants than events. */
#define MAX_ROWS		1000000

/* Rows of worker_node.  The token of a lease is the number of its row. */
typedef struct Row
{
	int			registry;		/* see registry_of() */
	int			generation;		/* of the registry then */
	int			start;			/* of the server, counted */
	uint64		granted_by;
	uint64		node;
	TimestampTz starts_at;
	TimestampTz leased_until;
	TimestampTz issued_until;	/* the end of its ids */
	bool		over;			/* it is never to be opened or renewed again */
} Row;

/* What can happen. */
typedef struct Step
{
	const char *name;
	SnowflakeEventKind kind;
	SnowflakeResultKind result;
	int			sqlerrcode;		/* FAILED and REFUSED: with it; 0: 55P03 */
	bool		overloaded;		/* FAILED: so is the registry */
	double		wait;			/* REFUSED: so many seconds */
	bool		promoted;		/* before the event, as the next three */
	bool		wanted;
	bool		issued;
	bool		openable;
	/* REQUEST; the registry NULL: the settings give no number */
	const char *registry;
	bool		fixed;
	uint64		first;
	uint64		last;
} Step;

extern SnowflakeMachine machine;
extern SnowflakeNow now;
extern uint64 seed;				/* of the start, for the lease worker */
extern SnowflakeAction action;
extern SnowflakeCall call;		/* the last one */
extern SnowflakeResult result;	/* the next one; FAILED: answer() makes it */

/* The own tables and two other registries. */
#define NUM_REGISTRIES		3

/* Rows of all registries, and the record in the own tables. */
extern Row	rows[MAX_ROWS];
extern int	num_rows;
extern int	num_starts;
extern int	generations[NUM_REGISTRIES];
extern SnowflakeUses own_uses;
extern pg_uuid_t own_incarnation;

extern const char *scenario;
extern int	num_checks;
extern int	num_failures;

extern bool check(bool passed, const char *name);
extern void check_number(int64 actual, int64 expected, const char *name);
extern void check_text(const char *actual, const char *expected, const char *name);

extern pg_uuid_t uuid_of(const char *text);
extern bool same_uuid(const pg_uuid_t *a, const pg_uuid_t *b);
extern int	registry_of(const char *conninfo);
extern pg_uuid_t incarnation_of(int registry);
extern Row *row_of(const pg_uuid_t *token);
extern TimestampTz floor_of_call(void);
extern void answer(SnowflakeResultKind kind);
extern void answer_step(const Step *step);
extern const Step *find_step(const char *name, size_t length);
extern const char *outcome(void);
extern void begin(const char *name);
extern void take(const Step *step);
extern void pass(double seconds);
extern void go(const char *names);
extern void on(const char *names, const char *expected);

extern void walk(uint64 seed);
extern void test_reasons(void);

#endif							/* WORLD_H */
