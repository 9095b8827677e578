/*
 * problem.h
 *	  Why no id can be had, in a form that one process finds and another shows.
 */
#ifndef SNOWFLAKE_PROBLEM_H
#define SNOWFLAKE_PROBLEM_H

typedef struct SnowflakeProblem
{
	int			sqlerrcode;		/* ERRCODE_..., 0: none */
	char		message[256];
	char		detail[768];	/* may be empty; room for two layouts */
	char		hint[512];		/* may be empty; room for one */
	bool		has_address;	/* the registry's, which not everybody may see */
} SnowflakeProblem;

/* Raises a problem; a macro, so that the report names the caller's place. */
#define snowflake_report_problem(elevel, problem) \
	ereport((elevel), \
			(errcode((problem)->sqlerrcode), \
			 errmsg_internal("%s", (problem)->message), \
			 (problem)->detail[0] ? errdetail_internal("%s", (problem)->detail) : 0, \
			 (problem)->hint[0] ? errhint("%s", (problem)->hint) : 0))

#endif							/* SNOWFLAKE_PROBLEM_H */
