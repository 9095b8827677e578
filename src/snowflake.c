/*
 * snowflake.c
 *	  Module initialisation: a table of contents.
 *
 * Without preloading the library defines nothing: the parse side works, and
 * snowflake_nextval() says what to configure.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "guc.h"
#include "lease/worker.h"
#include "shmem.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	snowflake_guc_init();
	snowflake_shmem_init();
	if (!IsBinaryUpgrade)		/* pg_upgrade's servers issue no ids */
		snowflake_lease_worker_register();
}
