/*
 * error.h
 *	  Why no id can be had, in a form that one process finds and another shows.
 *
 * Errors are raised where they are found.  The process that must go on catches
 * them once, as a problem; it is raised again in the sessions that ask for an
 * id.  Texts are printable ASCII: they are shown in databases of any encoding.
 */
#ifndef SNOWFLAKE_ERROR_H
#define SNOWFLAKE_ERROR_H

/* Room for snowflake.registry. */
#define SNOWFLAKE_REGISTRY_SIZE	1024
/* Room for host:port/dbname of a registry. */
#define SNOWFLAKE_ADDRESS_SIZE	192

typedef struct SnowflakeProblem
{
	int			sqlerrcode;		/* ERRCODE_..., 0: none */
	char		message[256];
	char		detail[768];	/* may be empty; room for two layouts */
	char		hint[512];		/* may be empty; room for one */
	bool		has_address;	/* the registry's, which not everybody may see */
	bool		from_registry;	/* of another cluster, which it does not name;
								 * the log does */
} SnowflakeProblem;

/* What a backend that got no id is told. */
typedef enum SnowflakePhase
{
	SNOWFLAKE_STARTING,			/* no lease yet: wait */
	SNOWFLAKE_READY,			/* there is one: wait until it is extended */
	SNOWFLAKE_RETRYING,			/* calls fail: wait, then fail with the
								 * problem */
	SNOWFLAKE_REFUSED			/* fail with the problem until somebody acts,
								 * or time has passed */
} SnowflakePhase;

/* Raises a problem; a macro, so that the report names the caller's place. */
#define snowflake_report_problem(elevel, problem) \
	ereport((elevel), \
			(errcode((problem)->sqlerrcode), \
			 errmsg_internal("%s", (problem)->message), \
			 (problem)->detail[0] ? errdetail_internal("%s", (problem)->detail) : 0, \
			 (problem)->hint[0] ? errhint("%s", (problem)->hint) : 0))

extern void snowflake_copy_printable(char *to, const char *from, size_t length,
									 size_t size);
extern void snowflake_problem_set(SnowflakeProblem *problem, int sqlerrcode,
								  const char *message,
								  const char *detail, const char *hint);
extern bool snowflake_is_sqlstate(const char *text);
extern void snowflake_problem_catch(SnowflakeProblem *problem,
									MemoryContext context);

#endif							/* SNOWFLAKE_ERROR_H */
