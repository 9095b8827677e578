/*
 * state_file.c
 *	  Reading and writing the durable floor, whose contents state.c has.
 *
 * The file is replaced as a whole: a new one is written beside it, fsynced and
 * renamed over it (durable_rename), so that a crash leaves the old or the new
 * one.  A second file, written once, tells a file that is gone from one that
 * never was.
 *
 * Nothing here raises an error: problems are returned, so that the lease
 * worker goes on.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/int.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "state_file.h"

#define TEMP_SUFFIX			".tmp"

/* The file system's time is cut to a second, and the disk may be slow. */
#define COPIED_AFTER_US		(10 * USECS_PER_SEC)

/* Fills a problem with the error of a system call. */
static bool
io_problem(SnowflakeProblem *problem, const char *action, const char *path)
{
	int			code = errno;

	memset(problem, 0, sizeof(*problem));
	switch (code)
	{
		case ENOSPC:
		case EDQUOT:
			problem->sqlerrcode = ERRCODE_DISK_FULL;
			break;
		case EACCES:
		case EPERM:
		case EROFS:
			problem->sqlerrcode = ERRCODE_INSUFFICIENT_PRIVILEGE;
			break;
		default:
			problem->sqlerrcode = ERRCODE_IO_ERROR;
	}
	snprintf(problem->message, sizeof(problem->message),
			 "could not %s file \"%s\": %s", action, path, strerror(code));
	strlcpy(problem->detail, "No id is issued before the bound above it is on disk.",
			sizeof(problem->detail));
	strlcpy(problem->hint, "Make the data directory writable and free space on it; drawing goes on by itself.",
			sizeof(problem->hint));
	return false;
}

/*
 * Reads up to size bytes of a file, which lies in the data directory, where
 * every server process runs.  Fewer if it is shorter; NEVER if it does not exist.
 */
static SnowflakeStateRead
read_file(const char *path, char *buffer, size_t size, size_t *length, SnowflakeProblem *problem)
{
	int			fd = BasicOpenFile(path, O_RDONLY | PG_BINARY);
	ssize_t		n = 1;

	if (fd < 0 && errno == ENOENT)
		return SNOWFLAKE_STATE_NEVER;
	if (fd < 0)
	{
		io_problem(problem, "open", path);
		return SNOWFLAKE_STATE_BAD;
	}
	for (*length = 0; *length < size && n != 0; *length += Max(n, 0))
	{
		n = read(fd, buffer + *length, size - *length);
		if (n < 0 && errno != EINTR)
		{
			io_problem(problem, "read", path);
			close(fd);
			return SNOWFLAKE_STATE_BAD;
		}
	}
	close(fd);
	return SNOWFLAKE_STATE_OK;
}

/*
 * Writes a temporary file and makes its contents durable.  Problems are those
 * of the file that it will become.
 */
static bool
write_file(const char *temp, const char *path, const void *data, size_t size,
		   SnowflakeProblem *problem)
{
	bool		done = false;
	int			fd;

	fd = BasicOpenFile(temp, O_WRONLY | O_CREAT | O_TRUNC | PG_BINARY);
	if (fd < 0)
		return io_problem(problem, "create", path);
	errno = 0;
	if (write(fd, data, size) != (ssize_t) size)
	{
		/* a short write without an error means that the disk is full */
		if (errno == 0)
			errno = ENOSPC;
		io_problem(problem, "write", path);
	}
	else if (pg_fsync(fd) != 0)
		io_problem(problem, "fsync", path);
	else
		done = true;
	if (close(fd) != 0 && done)
		done = io_problem(problem, "close", path);
	return done;
}

/*
 * Replaces a file.  When this returns true, the new one is on disk; when it
 * returns false, the old or the new one is.
 */
static bool
replace_file(const char *path, const char *temp, const void *data, size_t size,
			 SnowflakeProblem *problem)
{
	if (!write_file(temp, path, data, size, problem))
		return false;
	errno = 0;
	if (durable_rename(temp, path, DEBUG1) == 0)
		return true;
	if (errno == 0)
		errno = EIO;
	return io_problem(problem, "rename", path);
}

/*
 * Whether the file was changed long after its contents were written: it is a
 * copy, even if it was put where the original was.
 */
static bool
is_copy(const SnowflakeState *state)
{
	struct stat file;
	int64		delay;

	if (stat(SNOWFLAKE_STATE_FILE, &file) != 0)
		return true;
	return pg_sub_s64_overflow(time_t_to_timestamptz(file.st_ctime), state->written_at, &delay) ||
		delay < -COPIED_AFTER_US || delay > COPIED_AFTER_US;
}

/*
 * Reads the state; MISSING if there was one and is gone.  A copy has no
 * fingerprint.
 */
SnowflakeStateRead
snowflake_state_read(SnowflakeState *state, SnowflakeProblem *problem)
{
	char		contents[sizeof(SnowflakeStateImage) + 1];	/* one more shows a file that is too long */
	size_t		length;
	SnowflakeStateRead result;

	result = read_file(SNOWFLAKE_STATE_FILE, contents, sizeof(contents), &length, problem);
	if (result == SNOWFLAKE_STATE_NEVER)
		return access(SNOWFLAKE_STARTED_FILE, F_OK) != 0 && errno == ENOENT ?
			SNOWFLAKE_STATE_NEVER : SNOWFLAKE_STATE_MISSING;
	if (result == SNOWFLAKE_STATE_BAD ||
		!snowflake_state_from_image(state, GetSystemIdentifier(), contents, length, problem))
		return SNOWFLAKE_STATE_BAD;
	if (is_copy(state))
		state->fingerprint = 0;
	return SNOWFLAKE_STATE_OK;
}

/* Replaces the state.  When this returns true, it is on disk. */
bool
snowflake_state_write(const SnowflakeState *state, SnowflakeProblem *problem)
{
	SnowflakeState written = *state;
	SnowflakeStateImage image;

	written.written_at = snowflake_clock_now();
	snowflake_state_to_image(&written, GetSystemIdentifier(), &image);
	return replace_file(SNOWFLAKE_STATE_FILE, SNOWFLAKE_STATE_FILE TEMP_SUFFIX,
						&image, sizeof(image), problem);
}

/*
 * Reads the layout that ids were last issued under.  It is a line: without the end of the
 * line it may be a part of another definition.
 */
SnowflakeStateRead
snowflake_started_read(char definition[SNOWFLAKE_DEFINITION_SIZE], SnowflakeProblem *problem)
{
	char		contents[SNOWFLAKE_DEFINITION_SIZE + 1];	/* with one byte that is too many */
	size_t		length;
	SnowflakeStateRead result;
	SnowflakeLayout layout;
	SnowflakeLayoutError error;

	definition[0] = '\0';
	result = read_file(SNOWFLAKE_STARTED_FILE, contents, sizeof(contents), &length, problem);
	if (result != SNOWFLAKE_STATE_OK)
		return result;
	if (length > 0 && length < sizeof(contents) && contents[length - 1] == '\n')
	{
		contents[length - 1] = '\0';
		strlcpy(definition, contents, SNOWFLAKE_DEFINITION_SIZE);
		if (strlen(contents) == length - 1 && snowflake_layout_read(contents, &layout, &error))
			return SNOWFLAKE_STATE_OK;
	}
	snowflake_state_damaged(problem, SNOWFLAKE_STARTED_FILE, "It does not hold a layout.");
	return SNOWFLAKE_STATE_BAD;
}

/* Notes the layout that ids are issued under.  When this returns true, it is on disk. */
bool
snowflake_started_write(const char *definition, SnowflakeProblem *problem)
{
	char		line[SNOWFLAKE_DEFINITION_SIZE + 1];
	char		present[SNOWFLAKE_DEFINITION_SIZE];

	if (snowflake_started_read(present, problem) == SNOWFLAKE_STATE_OK &&
		strcmp(present, definition) == 0)
		return true;
	snprintf(line, sizeof(line), "%s\n", definition);
	return replace_file(SNOWFLAKE_STARTED_FILE, SNOWFLAKE_STARTED_FILE TEMP_SUFFIX,
						line, strlen(line), problem);
}
