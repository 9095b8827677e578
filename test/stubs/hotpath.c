/*
 * hotpath.c
 *	  What issuing an id comes to of the server, for bench/hotpath.c, which issues ids without one;
 *	  its linker leaves the rest undefined.
 */
#include "postgres.h"

/* Its result differs between majors; nobody looks at it. */
#define ConditionVariableCancelSleep declared_by_the_server

#include <sys/mman.h>
#include <time.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

/*
 * Variables
 */
bool		IsUnderPostmaster = true;
bool		IsBinaryUpgrade = false;
bool		process_shared_preload_libraries_in_progress = true;
volatile sig_atomic_t InterruptPending = false;
int			MaxBackends = 0;	/* the program sets it */
int			max_prepared_xacts = 0;
int			ParallelWorkerNumber = -1;
int			MyProcPid = 0;
struct Latch *MyLatch = NULL;
MemoryContext TopMemoryContext = NULL;
MemoryContext CurrentMemoryContext = NULL;
LWLockPadded *MainLWLockArray = NULL;
PROC_HDR   *ProcGlobal = NULL;
sigjmp_buf *PG_exception_stack = NULL;
ErrorContextCallback *error_context_stack = NULL;
emit_log_hook_type emit_log_hook = NULL;

#if PG_VERSION_NUM >= 170000
ProcNumber	MyProcNumber = 0;
#else
static PGPROC my_proc;
PGPROC	   *MyProc = &my_proc;
#endif

static LWLockPadded locks[64];

/*
 * Functions.  Nobody competes for locks: slots are taken before the fork.
 */
bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	return true;
}

void
LWLockRelease(LWLock *lock)
{
}

LWLockPadded *
GetNamedLWLockTranche(const char *name)
{
	return locks;
}

void *
ShmemInitStruct(const char *name, Size size, bool *found)
{
	void	   *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	*found = false;
	if (pages == MAP_FAILED)
		abort();
	return pages;
}

/* Weak: the libraries for clients have them in some minor releases. */
__attribute__((weak))
Size
add_size(Size a, Size b)
{
	return a + b;
}

__attribute__((weak))
Size
mul_size(Size a, Size b)
{
	return a * b;
}

void
ConditionVariableInit(ConditionVariable *cv)
{
}

/* An id that is too far ahead of the clock is waited for: no wakeup, so it sleeps for as long as it asked. */
bool
ConditionVariableTimedSleep(ConditionVariable *cv, long timeout, uint32 wait_event)
{
	struct timespec pause = {timeout / 1000, timeout % 1000 * 1000000};

	nanosleep(&pause, NULL);
	return true;
}

#undef ConditionVariableCancelSleep
extern bool ConditionVariableCancelSleep(void);

bool
ConditionVariableCancelSleep(void)
{
	return false;
}

bool
RecoveryInProgress(void)
{
	return false;
}

/* A message of the extension means that we did not set up what it needs. */
bool
errstart(int elevel, const char *domain)
{
	fprintf(stderr, "hotpath: the extension reports something of level %d\n", elevel);
	exit(1);
}

pg_attribute_cold bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}
