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

#include "state_file.h"

#define STATE_MAGIC			"snowflk"	/* with its zero, 8 bytes */
#define STATE_VERSION		1
#define STATE_TEMP_FILE		SNOWFLAKE_STATE_FILE ".tmp"

#define STARTED_TEXT \
	"This server has issued snowflake ids; see snowflake.state.  Do not remove either file.\n"

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
io_problem(SnowflakeProblem *problem, const char *action)
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
			 "could not %s file \"%s\": %s", action, SNOWFLAKE_STATE_FILE, strerror(code));
	strlcpy(problem->detail, "No id is issued before the bound above it is on disk.",
			sizeof(problem->detail));
	strlcpy(problem->hint, "Make the data directory writable and free space on it; drawing goes on by itself.",
			sizeof(problem->hint));
	return false;
}

/* Fills a problem with what is wrong with the contents. */
static void damage_problem(SnowflakeProblem *problem, const char *format,...) pg_attribute_printf(2, 3);

static void
damage_problem(SnowflakeProblem *problem, const char *format,...)
{
	va_list		args;

	memset(problem, 0, sizeof(*problem));
	problem->sqlerrcode = ERRCODE_DATA_CORRUPTED;
	snprintf(problem->message, sizeof(problem->message),
			 "file \"%s\" cannot be used", SNOWFLAKE_STATE_FILE);
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
		damage_problem(problem, "It is not a state file of snowflake (%zd bytes).", length);
	else if (image->version != STATE_VERSION)
		damage_problem(problem, "It has version %u; this library reads version %d.",
					   image->version, STATE_VERSION);
	else if (length != sizeof(StateImage))
		damage_problem(problem, "It has not the right length of %zu bytes.", sizeof(StateImage));
	else if (image->crc != image_crc(image))
		damage_problem(problem, "Its checksum does not match its contents.");
	else if (image->system_identifier != GetSystemIdentifier())
		damage_problem(problem, "It belongs to the cluster with system identifier " UINT64_FORMAT ", this one is " UINT64_FORMAT ".",
					   image->system_identifier, GetSystemIdentifier());
	else if (image->state.num_entries > SNOWFLAKE_STATE_ENTRIES)
		damage_problem(problem, "It claims to have %u entries; there is room for %d.",
					   image->state.num_entries, SNOWFLAKE_STATE_ENTRIES);
	else
		return true;
	return false;
}

/*
 * Reads up to size bytes from a file; one more than a whole image shows that
 * the file is too long.  -1 with errno set if that fails.
 */
static ssize_t
read_up_to(int fd, char *buffer, size_t size)
{
	size_t		length = 0;

	while (length < size)
	{
		ssize_t		n = read(fd, buffer + length, size - length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		length += n;
	}
	return length;
}

/* Reads the file; relative to the data directory, where every server process runs. */
SnowflakeStateRead
snowflake_state_read(SnowflakeState *state, SnowflakeProblem *problem)
{
	struct
	{
		StateImage	image;
		char		more;
	}			buffer;
	int			fd;
	ssize_t		length;

	memset(&buffer, 0, sizeof(buffer));
	fd = BasicOpenFile(SNOWFLAKE_STATE_FILE, O_RDONLY | PG_BINARY);
	if (fd < 0 && errno == ENOENT)
		return access(SNOWFLAKE_STARTED_FILE, F_OK) != 0 && errno == ENOENT ?
			SNOWFLAKE_STATE_NEVER : SNOWFLAKE_STATE_MISSING;
	if (fd < 0)
	{
		io_problem(problem, "open");
		return SNOWFLAKE_STATE_BAD;
	}
	length = read_up_to(fd, (char *) &buffer, sizeof(StateImage) + 1);
	if (length < 0)
		io_problem(problem, "read");
	close(fd);
	if (length < 0 || !check_image(&buffer.image, length, problem))
		return SNOWFLAKE_STATE_BAD;
	*state = buffer.image.state;
	return SNOWFLAKE_STATE_OK;
}

/* Writes a file and makes its contents durable; not yet its name. */
static bool
write_file(const char *path, const void *data, size_t size, SnowflakeProblem *problem)
{
	bool		done = false;
	int			fd;

	fd = BasicOpenFile(path, O_WRONLY | O_CREAT | O_TRUNC | PG_BINARY);
	if (fd < 0)
		return io_problem(problem, "create");
	errno = 0;
	if (write(fd, data, size) != (ssize_t) size)
	{
		/* a short write without an error means that the disk is full */
		if (errno == 0)
			errno = ENOSPC;
		io_problem(problem, "write");
	}
	else if (pg_fsync(fd) != 0)
		io_problem(problem, "fsync");
	else
		done = true;
	if (close(fd) != 0 && done)
		done = io_problem(problem, "close");
	return done;
}

/*
 * Replaces the file.  When this returns true, the state is on disk; when it
 * returns false, the file holds the old or the new one.
 */
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
	image.crc = image_crc(&image);

	/* durable_rename fsyncs the directory, and so the name of the first file */
	if (access(SNOWFLAKE_STARTED_FILE, F_OK) != 0 &&
		!write_file(SNOWFLAKE_STARTED_FILE, STARTED_TEXT, strlen(STARTED_TEXT), problem))
		return false;
	if (!write_file(STATE_TEMP_FILE, &image, sizeof(image), problem))
		return false;
	if (durable_rename(STATE_TEMP_FILE, SNOWFLAKE_STATE_FILE, DEBUG1) != 0)
		return io_problem(problem, "rename");
	return true;
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
