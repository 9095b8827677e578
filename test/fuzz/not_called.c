/*
 * not_called.c
 *	  Functions of the server that the files of the target registry name, and that no
 *	  fuzzed call comes to.  No header has their arguments here.
 */
#include <stdlib.h>

#define NOT_CALLED(function) \
	void		function(void); \
	void \
	function(void) \
	{ \
		abort(); \
	}

NOT_CALLED(AbortCurrentTransaction)
NOT_CALLED(BackgroundWorkerUnblockSignals)
NOT_CALLED(GetBackgroundWorkerPid)
NOT_CALLED(LWLockAcquire)
NOT_CALLED(LWLockRelease)
NOT_CALLED(ProcessConfigFile)
NOT_CALLED(RegisterDynamicBackgroundWorker)
NOT_CALLED(SetConfigOption)
NOT_CALLED(ShmemInitStruct)
NOT_CALLED(SignalHandlerForConfigReload)
NOT_CALLED(SignalHandlerForShutdownRequest)
NOT_CALLED(WaitLatch)
NOT_CALLED(die)
NOT_CALLED(pgstat_report_stat)
NOT_CALLED(proc_exit)
NOT_CALLED(snowflake_wake)
