/*
 * files.c
 *	  Files in memory, for the calls of src/state_file.c; each call can be made to fail.
 *
 * The linker turns read, write, close, stat and access to the functions here (--wrap), which
 * leave to the system what is not theirs.
 */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "storage/fd.h"

#define MAX_FILES		4
#define MAX_SIZE		4096
#define FIRST_FD		1000000

typedef struct MemoryFile
{
	char		path[64];		/* empty: there is none */
	uint8		contents[MAX_SIZE];
	size_t		size;
	size_t		position;		/* of the one who has it open */
	bool		is_open;
	time_t		changed;
} MemoryFile;

uint64		fuzz_faults = 0;

static MemoryFile files[MAX_FILES];

extern ssize_t __real_read(int fd, void *buffer, size_t size);
extern ssize_t __real_write(int fd, const void *data, size_t size);
extern int	__real_close(int fd);
extern int	__real_stat(const char *path, struct stat *result);
extern int	__real_access(const char *path, int mode);
extern ssize_t __wrap_read(int fd, void *buffer, size_t size);
extern ssize_t __wrap_write(int fd, const void *data, size_t size);
extern int	__wrap_close(int fd);
extern int	__wrap_stat(const char *path, struct stat *result);
extern int	__wrap_access(const char *path, int mode);

/* What happens to a call: 0, or the number of one of its faults. */
static int
next_fault(void)
{
	int			fault = (int) (fuzz_faults & 7);

	fuzz_faults >>= 3;
	return fault;
}

/* Sets errno for a fault, if it is one of the n given. */
static bool
fails(int fault, int n, const int *codes)
{
	if (fault == 0 || fault > n)
		return false;
	errno = codes[fault - 1];
	return true;
}

/* The file of that path, "" for a place without one; NULL with ENOENT. */
static MemoryFile *
find_file(const char *path)
{
	for (int i = 0; i < MAX_FILES; i++)
		if (strcmp(files[i].path, path) == 0)
			return &files[i];
	errno = ENOENT;
	return NULL;
}

static bool
is_ours(const char *path)
{
	return strncmp(path, "snowflake.", strlen("snowflake.")) == 0;
}

static MemoryFile *
file_of(int fd)
{
	return fd >= FIRST_FD && fd < FIRST_FD + MAX_FILES ? &files[fd - FIRST_FD] : NULL;
}

/* Puts a file in place, last changed at that time. */
void
fuzz_put_file(const char *path, const void *contents, size_t size, time_t changed)
{
	MemoryFile *file = find_file(path);

	if (file == NULL)
		file = find_file("");
	fuzz_check(file != NULL && size <= MAX_SIZE && strlen(path) < sizeof(file->path));
	strlcpy(file->path, path, sizeof(file->path));
	memcpy(file->contents, contents, size);
	file->size = size;
	file->changed = changed;
}

void
fuzz_remove_files(void)
{
	for (int i = 0; i < MAX_FILES; i++)
	{
		fuzz_check(!files[i].is_open);
		files[i].path[0] = '\0';
	}
}

int
BasicOpenFile(const char *path, int flags)
{
	MemoryFile *file;

	if (fails(next_fault(), 3, (int[]) {EACCES, ENOSPC, EMFILE}))
		return -1;
	if (flags & O_TRUNC)
		fuzz_put_file(path, "", 0, time(NULL));
	file = find_file(path);
	if (file == NULL)
		return -1;
	fuzz_check(!file->is_open);
	file->is_open = true;
	file->position = 0;
	return FIRST_FD + (int) (file - files);
}

ssize_t
__wrap_read(int fd, void *buffer, size_t size)
{
	MemoryFile *file = file_of(fd);
	int			fault;

	if (file == NULL)
		return __real_read(fd, buffer, size);
	fuzz_check(file->is_open);
	fault = next_fault();
	if (fails(fault, 2, (int[]) {EINTR, EIO}))
		return -1;
	/* fewer bytes than were asked for */
	if (fault != 0)
		size = (size + fault) / (fault + 1);
	size = Min(size, file->size - file->position);
	memcpy(buffer, file->contents + file->position, size);
	file->position += size;
	return (ssize_t) size;
}

ssize_t
__wrap_write(int fd, const void *data, size_t size)
{
	MemoryFile *file = file_of(fd);
	int			fault;

	if (file == NULL)
		return __real_write(fd, data, size);
	fuzz_check(file->is_open && file->size + size <= MAX_SIZE);
	fault = next_fault();
	if (fails(fault, 2, (int[]) {ENOSPC, EIO}))
		return -1;
	/* a disk that becomes full says nothing */
	if (fault == 3)
		size /= 2;
	memcpy(file->contents + file->size, data, size);
	file->size += size;
	return (ssize_t) size;
}

int
__wrap_close(int fd)
{
	MemoryFile *file = file_of(fd);

	if (file == NULL)
		return __real_close(fd);
	fuzz_check(file->is_open);
	file->is_open = false;
	return fails(next_fault(), 2, (int[]) {EIO, EDQUOT}) ? -1 : 0;
}

int
__wrap_stat(const char *path, struct stat *result)
{
	MemoryFile *file;

	if (!is_ours(path))
		return __real_stat(path, result);
	file = find_file(path);
	if (file == NULL)
		return -1;
	memset(result, 0, sizeof(*result));
	result->st_ctime = file->changed;
	return 0;
}

int
__wrap_access(const char *path, int mode)
{
	if (!is_ours(path))
		return __real_access(path, mode);
	return find_file(path) != NULL ? 0 : -1;
}

/* When it fails, what was written is lost. */
int
pg_fsync(int fd)
{
	MemoryFile *file = file_of(fd);

	fuzz_check(file != NULL && file->is_open);
	if (!fails(next_fault(), 2, (int[]) {EIO, ENOSPC}))
		return 0;
	file->size /= 2;
	return -1;
}

/* The directory is synced last: when that fails, the new file is in place. */
int
durable_rename(const char *old, const char *new, int elevel)
{
	int			fault = next_fault();
	MemoryFile *from = find_file(old);
	MemoryFile *to = find_file(new);

	fuzz_check(from != NULL && !from->is_open && (to == NULL || !to->is_open));
	if (fails(fault, 1, (int[]) {EIO}))
		return -1;
	if (to != NULL)
		to->path[0] = '\0';
	strlcpy(from->path, new, sizeof(from->path));
	return fails(fault, 3, (int[]) {0, EIO, 0}) ? -1 : 0;
}
