/*
 * state.c
 *	  The floor below which no id may be issued again, and its form on disk.
 *
 * No bound of a node number ever falls but by snowflake_state_set for that
 * number.  Nothing is guessed from an image that is not whole: it gives what was
 * put into it on this cluster, or a problem.
 */
#include "postgres.h"

#include "state.h"

#define STATE_MAGIC			"snowflk"	/* with its zero, 8 bytes */
#define STATE_VERSION		1

#define RECOVER_HINT \
	"If the clock is right and was never ahead, remove the file: ids then begin after the last checkpoint. Else set another snowflake.worker_id as well."

/* The place of a node number's entry; num_entries if it has none. */
static uint32
entry_of(const SnowflakeState *state, uint64 node)
{
	uint32		i = 0;

	while (i < state->num_entries && state->entries[i].node != node)
		i++;
	return i;
}

/* The bound of a node number. */
TimestampTz
snowflake_state_bound(const SnowflakeState *state, uint64 node)
{
	uint32		i = entry_of(state, node);

	return i < state->num_entries ? state->entries[i].bound : state->common_bound;
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
	uint32		i = entry_of(state, node);
	SnowflakeBound *entry = &state->entries[i];

	if (i == SNOWFLAKE_STATE_ENTRIES)
	{
		entry = least_entry(state);
		state->common_bound = Max(state->common_bound, entry->bound);
	}
	else if (i == state->num_entries)
		state->num_entries++;
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

static pg_crc32c
image_crc(const SnowflakeStateImage *image)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, (const char *) &image->system_identifier,
				sizeof(SnowflakeStateImage) - offsetof(SnowflakeStateImage, system_identifier));
	FIN_CRC32C(crc);
	return crc;
}

/* The image of a state of this cluster. */
void
snowflake_state_to_image(const SnowflakeState *state, uint64 system_identifier,
						 SnowflakeStateImage *image)
{
	/* padding included: the checksum covers every byte */
	memset(image, 0, sizeof(*image));
	memcpy(image->magic, STATE_MAGIC, sizeof(image->magic));
	image->version = STATE_VERSION;
	image->system_identifier = system_identifier;
	image->state = *state;
	image->crc = image_crc(image);
}

/* Fills a problem with what is wrong with the contents of a file. */
void
snowflake_state_damaged(SnowflakeProblem *problem, const char *path, const char *format,...)
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

#define damaged(problem, ...) snowflake_state_damaged(problem, SNOWFLAKE_STATE_FILE, __VA_ARGS__)

/*
 * The state in the contents of a file, which may be of any length; a problem if they
 * are not an image that this cluster wrote, and the state is then left alone.
 */
bool
snowflake_state_from_image(SnowflakeState *state, uint64 system_identifier,
						   const void *contents, size_t length, SnowflakeProblem *problem)
{
	SnowflakeStateImage image;

	memset(&image, 0, sizeof(image));
	memcpy(&image, contents, Min(length, sizeof(image)));
	if (length < offsetof(SnowflakeStateImage, system_identifier) ||
		memcmp(image.magic, STATE_MAGIC, sizeof(image.magic)) != 0)
		damaged(problem, "It is not a state file of snowflake (%zu bytes).", length);
	else if (image.version != STATE_VERSION)
		damaged(problem, "It has version %u; this library reads version %d.",
				image.version, STATE_VERSION);
	else if (length != sizeof(image))
		damaged(problem, "It has not the right length of %zu bytes.", sizeof(image));
	else if (image.crc != image_crc(&image))
		damaged(problem, "Its checksum does not match its contents.");
	else if (image.system_identifier != system_identifier)
		damaged(problem, "It belongs to the cluster with system identifier " UINT64_FORMAT ", this one is " UINT64_FORMAT ".",
				image.system_identifier, system_identifier);
	else if (image.state.num_entries > SNOWFLAKE_STATE_ENTRIES)
		damaged(problem, "It claims to have %u entries; there is room for %d.",
				image.state.num_entries, SNOWFLAKE_STATE_ENTRIES);
	else if ((uint32) image.state.origin > SNOWFLAKE_REMOTE)
		damaged(problem, "It says that its node number is of the unknown origin %u.",
				(uint32) image.state.origin);
	else if (memchr(image.state.layout, '\0', sizeof(image.state.layout)) == NULL)
		damaged(problem, "Its layout has no end.");
	else
	{
		*state = image.state;
		return true;
	}
	return false;
}
