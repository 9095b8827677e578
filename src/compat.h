/*
 * compat.h
 *	  All differences between the PostgreSQL majors the extension builds on.
 */
#ifndef SNOWFLAKE_COMPAT_H
#define SNOWFLAKE_COMPAT_H

#include "libpq/pqsignal.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

/* What pg_get_loaded_modules() shows; the Makefile has the version. */
#if PG_VERSION_NUM >= 180000
#define SNOWFLAKE_MODULE_MAGIC	PG_MODULE_MAGIC_EXT(.name = "snowflake",.version = SNOWFLAKE_VERSION)
#else
#define SNOWFLAKE_MODULE_MAGIC	PG_MODULE_MAGIC
#endif

/* A function that does not return */
#ifndef pg_noreturn
#define pg_noreturn pg_attribute_noreturn()
#endif

/* VARDATA_ANY and its kin have left postgres.h. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* Handlers for pqsignal; since 19 their type is not that of signal(). */
#ifndef PG_SIG_IGN
#define PG_SIG_IGN	SIG_IGN
#endif

/* Index of this process below MaxBackends; auxiliary processes lie above. */
static inline int
snowflake_my_proc_number(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyProc->pgprocno;
#endif
}

/* The same of the leader of this parallel worker. */
static inline int
snowflake_leader_proc_number(void)
{
#if PG_VERSION_NUM >= 170000
	return GetNumberFromPGProc(MyProc->lockGroupLeader);
#else
	return MyProc->lockGroupLeader->pgprocno;
#endif
}

/*
 * What pg_stat_activity shows while a backend, the lease worker or the helper
 * waits.  Each file that waits has one name, which a process looks up once.
 */
static inline uint32
snowflake_wait_event(const char *name)
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;

	if (event == 0)
		event = WaitEventExtensionNew(name);
	return event;
#else
	(void) name;
	return PG_WAIT_EXTENSION;
#endif
}

/*
 * Whether a role has the rights of another one and may SET ROLE to it, as
 * snowflake_tools.can_become() says of the caller; needs utils/acl.h.
 */
#if PG_VERSION_NUM >= 160000
#define snowflake_can_become(member, role) \
	(has_privs_of_role(member, role) && member_can_set_role(member, role))
#else
#define snowflake_can_become(member, role) \
	(has_privs_of_role(member, role) && is_member_of_role(member, role))
#endif

/* The range between two bounds; needs utils/rangetypes.h. */
#if PG_VERSION_NUM >= 160000
#define snowflake_make_range(type, lower, upper) make_range(type, lower, upper, false, NULL)
#else
#define snowflake_make_range(type, lower, upper) make_range(type, lower, upper, false)
#endif

#endif							/* SNOWFLAKE_COMPAT_H */
