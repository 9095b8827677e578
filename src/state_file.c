/*
 * state_file.c
 *	  Reading and writing the durable floor.
 *
 * The file is replaced as a whole: a new one is written beside it, fsynced and
 * renamed over it (durable_rename), so that a crash leaves the old or the new
 * one.  Nothing is ever guessed from a file that is not whole: what is read is
 * either what was written last on this cluster or a problem.  A second file,
 * written once, tells a file that is gone from one that never was.
 *
 * Nothing here raises an error: problems are returned, so that the lease
 * worker goes on.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "state_file.h"

#define STATE_MAGIC			"snowflk"	/* with its zero, 8 bytes */
#define STATE_VERSION		1
#define TEMP_SUFFIX			".tmp"

/* The file system's time is cut to a second, and the disk may be slow. */
#define COPIED_AFTER_US		(10 * USECS_PER_SEC)

#define RECOVER_HINT \
	"If the clock is right and was never ahead, remove the file: ids then begin after the last checkpoint. Else set another snowflake.worker_id as well."

/* The file as it stands on disk, in the server's byte order. */
typedef struct StateImage
{
	char		magic[8];
	uint32		version;
	pg_crc32c	crc;			/* of all that follows */
	uint64		system_identifier;
	SnowflakeState state;
} StateImage;

static pg_crc32c
image_crc(const StateImage *image)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, (const char *) &image->system_identifier,
				sizeof(StateImage) - offsetof(StateImage, system_identifier));
	FIN_CRC32C(crc);
	return crc;
}

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

/* Fills a problem with what is wrong with the contents. */
static void damage_problem(SnowflakeProblem *problem, const char *path, const char *format,...) pg_attribute_printf(3, 4);

static void
damage_problem(SnowflakeProblem *problem, const char *path, const char *format,...)
{
	va_list		args;

	memset(problem, 0, sizeof(*problem));
	problem->sqlerrcode = ERRCODE_DATA_CORRUPTED;
	snprintf(problem->message, sizeof(problem->message),
			 "file \"%s\" cannot be used", path);
	va_start(args, format);
	vsnprintf(problem->detail, sizeof(problem->detail), format, args);
	va_end(args);
	strlcpy(problem->hint, RECOVER_HINT, sizeof(problem->hint));
}

/* Whether an image of the given length is one that this cluster wrote. */
static bool
check_image(const StateImage *image, ssize_t length, SnowflakeProblem *problem)
{
	const ssize_t head = offsetof(StateImage, system_identifier);

	if (length < head || memcmp(image->magic, STATE_MAGIC, sizeof(image->magic)) != 0)
		damage_problem(problem, SNOWFLAKE_STATE_FILE, "It is not a state file of snowflake (%zd bytes).", length);
	else if (image->version != STATE_VERSION)
		damage_problem(problem, SNOWFLAKE_STATE_FILE, "It has version %u; this library reads version %d.",
					   image->version, STATE_VERSION);
	else if (length != sizeof(StateImage))
		damage_problem(problem, SNOWFLAKE_STATE_FILE, "It has not the right length of %zu bytes.", sizeof(StateImage));
	else if (image->crc != image_crc(image))
		damage_problem(problem, SNOWFLAKE_STATE_FILE, "Its checksum does not match its contents.");
	else if (image->system_identifier != GetSystemIdentifier())
		damage_problem(problem, SNOWFLAKE_STATE_FILE, "It belongs to the cluster with system identifier " UINT64_FORMAT ", this one is " UINT64_FORMAT ".",
					   image->system_identifier, GetSystemIdentifier());
	else if (image->state.num_entries > SNOWFLAKE_STATE_ENTRIES)
		damage_problem(problem, SNOWFLAKE_STATE_FILE, "It claims to have %u entries; there is room for %d.",
					   image->state.num_entries, SNOWFLAKE_STATE_ENTRIES);
	else
		return true;
	return false;
}

/*
 * Reads up to size bytes of a file, which lies in the data directory, where
 * every server process runs.  Fewer if it is shorter; NEVER if it does not exist.
 */
static SnowflakeStateRead
read_file(const char *path, char *buffer, size_t size, ssize_t *length, SnowflakeProblem *problem)
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
	for (*length = 0; *length < (ssize_t) size && n != 0; *length += Max(n, 0))
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
	TimestampTz changed;

	if (stat(SNOWFLAKE_STATE_FILE, &file) != 0)
		return true;
	changed = time_t_to_timestamptz(file.st_ctime);
	return changed < state->written_at - COPIED_AFTER_US || changed > state->written_at + COPIED_AFTER_US;
}

/*
 * Reads the state; MISSING if there was one and is gone.  A copy has no
 * fingerprint.
 */
SnowflakeStateRead
snowflake_state_read(SnowflakeState *state, SnowflakeProblem *problem)
{
	struct
	{
		StateImage	image;
		char		more;		/* shows that the file is too long */
	}			buffer;
	ssize_t		length;
	SnowflakeStateRead result;

	memset(&buffer, 0, sizeof(buffer));
	result = read_file(SNOWFLAKE_STATE_FILE, (char *) &buffer, sizeof(StateImage) + 1, &length, problem);
	if (result == SNOWFLAKE_STATE_NEVER)
		return access(SNOWFLAKE_STARTED_FILE, F_OK) != 0 && errno == ENOENT ?
			SNOWFLAKE_STATE_NEVER : SNOWFLAKE_STATE_MISSING;
	if (result == SNOWFLAKE_STATE_BAD || !check_image(&buffer.image, length, problem))
		return SNOWFLAKE_STATE_BAD;
	*state = buffer.image.state;
	if (is_copy(state))
		state->fingerprint = 0;
	return SNOWFLAKE_STATE_OK;
}

/* Replaces the state.  When this returns true, it is on disk. */
bool
snowflake_state_write(const SnowflakeState *state, SnowflakeProblem *problem)
{
	StateImage	image;

	/* padding included: the checksum covers every byte */
	memset(&image, 0, sizeof(image));
	memcpy(image.magic, STATE_MAGIC, sizeof(image.magic));
	image.version = STATE_VERSION;
	image.system_identifier = GetSystemIdentifier();
	image.state = *state;
	image.state.written_at = snowflake_clock_now();
	image.crc = image_crc(&image);
	return replace_file(SNOWFLAKE_STATE_FILE, SNOWFLAKE_STATE_FILE TEMP_SUFFIX,
						&image, sizeof(image), problem);
}

/* Reads the layout that ids were last issued under. */
SnowflakeStateRead
snowflake_started_read(char definition[SNOWFLAKE_DEFINITION_SIZE], SnowflakeProblem *problem)
{
	ssize_t		length = 0;
	SnowflakeStateRead result;
	SnowflakeLayout layout;
	SnowflakeLayoutError error;

	memset(definition, 0, SNOWFLAKE_DEFINITION_SIZE);
	result = read_file(SNOWFLAKE_STARTED_FILE, definition, SNOWFLAKE_DEFINITION_SIZE - 1, &length, problem);
	definition[strcspn(definition, "\n")] = '\0';
	if (result != SNOWFLAKE_STATE_OK || snowflake_layout_read(definition, &layout, &error))
		return result;
	damage_problem(problem, SNOWFLAKE_STARTED_FILE, "It does not hold a layout.");
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

/* The bound of a node number. */
TimestampTz
snowflake_state_bound(const SnowflakeState *state, uint64 node)
{
	for (uint32 i = 0; i < state->num_entries; i++)
		if (state->entries[i].node == node)
			return state->entries[i].bound;
	return state->common_bound;
}

/* The greatest bound of any node number. */
TimestampTz
snowflake_state_greatest(const SnowflakeState *state)
{
	TimestampTz greatest = state->common_bound;

	for (uint32 i = 0; i < state->num_entries; i++)
		greatest = Max(greatest, state->entries[i].bound);
	return greatest;
}

/* Entry with the least bound: the cheapest to merge into the common bound. */
static SnowflakeBound *
least_entry(SnowflakeState *state)
{
	SnowflakeBound *least = &state->entries[0];

	for (uint32 i = 1; i < state->num_entries; i++)
		if (state->entries[i].bound < least->bound)
			least = &state->entries[i];
	return least;
}

/*
 * Sets the bound of a node number.  If there is no room for one more entry,
 * the one with the least bound gives way to a common bound that covers it.
 */
void
snowflake_state_set(SnowflakeState *state, uint64 node, TimestampTz bound)
{
	SnowflakeBound *entry = NULL;

	for (uint32 i = 0; i < state->num_entries; i++)
		if (state->entries[i].node == node)
			entry = &state->entries[i];
	if (entry == NULL && state->num_entries < SNOWFLAKE_STATE_ENTRIES)
		entry = &state->entries[state->num_entries++];
	else if (entry == NULL)
	{
		entry = least_entry(state);
		state->common_bound = Max(state->common_bound, entry->bound);
	}
	entry->node = node;
	entry->bound = bound;
}

/* Raises the bounds of all node numbers to a floor. */
void
snowflake_state_floor(SnowflakeState *state, TimestampTz floor)
{
	state->common_bound = Max(state->common_bound, floor);
	for (uint32 i = 0; i < state->num_entries; i++)
		state->entries[i].bound = Max(state->entries[i].bound, floor);
}
