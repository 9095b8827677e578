/*
 * shift.c
 *	  A library to load into a server (LD_PRELOAD): its wall clock is that of the machine
 *	  plus an offset, in all of its processes, from one instant on.
 *
 * The offset is a number of nanoseconds, 8 bytes in the byte order of the machine, in the
 * file that SHIFT_FILE names.  It is mapped, so that a process that writes those bytes by one
 * write moves the clock.  Without the file the library ends the process.
 *
 * Monotonic clocks are left alone, as they are when a clock is set.  (libfaketime is of no
 * use here: in the children that a postmaster forks in a signal handler, among them the
 * lease worker, it is off.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S	1000000000L

static const volatile int64_t *offset;
static int	(*real_clock_gettime) (clockid_t, struct timespec *);

__attribute__((constructor))
static void
map_offset(void)
{
	const char *name = getenv("SHIFT_FILE");
	int			fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	void	   *address = MAP_FAILED;

	if (fd >= 0)
		address = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
	if (address == MAP_FAILED)
		_exit(127);
	close(fd);
	offset = address;
	real_clock_gettime = (int (*) (clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
}

int
clock_gettime(clockid_t clock, struct timespec *ts)
{
	int			result = real_clock_gettime(clock, ts);

	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
	{
		int64_t		ns = ts->tv_sec * NS_PER_S + ts->tv_nsec + *offset;

		ts->tv_sec = ns / NS_PER_S;
		ts->tv_nsec = ns % NS_PER_S;
	}
	return result;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec ts;

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *result)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (result != NULL)
		*result = ts.tv_sec;
	return ts.tv_sec;
}
