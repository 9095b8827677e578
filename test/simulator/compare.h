/*
 * compare.h
 *	  What the programs share that compare SQL functions with their twins in C:
 *	  random choices, layouts, and statements whose results become texts.
 *
 * There are two databases.  The statements of a sequence of calls are kept, to be
 * shown if something differs.
 */
#ifndef SIM_COMPARE_H
#define SIM_COMPARE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "layout/layout.h"

#define SECONDS(s)		((int64) ((s) * USECS_PER_SEC))
#define MINUTES(m)		SECONDS((m) * 60)

#define NUM_TABLES		2
#define TEXT_SIZE		262144
#define LOG_SIZE		1000
#define NUM_LAYOUTS		13
#define WIDE_LAYOUT		9		/* with many node numbers */

/* How an error of SQL is told: SQLSTATE, and a part of message, detail and hint. */
typedef struct ErrorKind
{
	const char *name;
	const char *sqlstate;
	const char *part;
} ErrorKind;

/* The program's; the first one is no error. */
extern const ErrorKind errors[];
extern const int num_errors;
extern const char *const test_file;

extern int	seed;
extern int	sequence;
extern uint64 random_state;
extern int64 num_calls;
extern int	layouts_of_sequence[3];
extern SnowflakeLayout layouts[NUM_LAYOUTS];
extern char actual[TEXT_SIZE];	/* the result of SQL */
extern char expected[TEXT_SIZE];	/* that of the twin */
extern bool alone;				/* there is no SQL to compare with: all that
								 * the twin has returned becomes */
extern uint64 hash;				/* this */

extern uint64 any(void);
extern int	below(int bound);
extern bool percent(int chance);
extern bool rarely(void);
extern const SnowflakeLayout *any_layout(void);

extern char *text_buffer(void);
extern const char *uuid_text(uint64 id);
extern const char *boolean_text(bool value);
extern const char *layout_text(const SnowflakeLayout *layout);
extern void append(char *text, const char *format,...) pg_attribute_printf(2, 3);

extern void read_layouts(void);
extern void choose_layouts(void);
extern void forget_statements(void);
extern void connect_to(int t, const char *conninfo);
extern void fail(const char *what) __attribute__((noreturn));
extern void run_sql(int t, const char *text);
extern void must_run(int t, const char *format,...) pg_attribute_printf(2, 3);
extern void compare_texts(const char *what);
extern void compare_lines(int t, const char *query);

#endif							/* SIM_COMPARE_H */
