/*
 * state_file.c
 *	  Fuzz target: the state file, and the file with the layout.
 *
 * Input: a byte that says how the rest is made into a file, a number from which faults and
 * flipped bits are taken, and the file.
 *
 * A file is accepted only if it is whole: its length, magic, version, cluster and checksum are
 * right (the checksum is computed here once more) and everything in it is within its bounds.
 * What is written is read; no part of it, and none with other bits, is.  When a call of the
 * system fails, the old or the new file is there.
 */
#include "fuzz.h"

#include "access/xlog.h"

#include "state_file.h"

#define HEAD	offsetof(SnowflakeStateImage, system_identifier)

/* Bits in the first byte of the input */
#define MENDED			1		/* the head and the checksum are made right */
#define STARTED			2		/* it is the other file */
#define BITS_FLIPPED	4		/* with how many others it is read */

/* CRC-32C, bit by bit. */
static uint32
checksum(const void *data, size_t size)
{
	const uint8 *bytes = data;
	uint32		crc = 0xffffffff;

	for (size_t i = 0; i < size; i++)
	{
		static uint32 table[256];

		if (table[1] == 0)
			for (uint32 n = 0; n < 256; n++)
			{
				table[n] = n;
				for (int bit = 0; bit < 8; bit++)
					table[n] = table[n] >> 1 ^ (table[n] & 1 ? 0x82f63b78 : 0);
			}
		crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 0xff];
	}
	return ~crc;
}

/* Whether what is in a state may be used. */
static bool
is_within_bounds(const SnowflakeState *state)
{
	return state->num_entries <= SNOWFLAKE_STATE_ENTRIES &&
		(uint32) state->origin <= SNOWFLAKE_REMOTE &&
		memchr(state->layout, '\0', sizeof(state->layout)) != NULL;
}

/* Whether a file's contents are what this cluster would write, by the same rules as the reader. */
static bool
is_whole(const void *contents, size_t size)
{
	SnowflakeStateImage image;

	if (size != sizeof(image))
		return false;
	memcpy(&image, contents, size);
	return memcmp(image.magic, "snowflk", 8) == 0 && image.version == 1 &&
		image.system_identifier == GetSystemIdentifier() &&
		image.crc == checksum((const char *) contents + HEAD, size - HEAD) &&
		is_within_bounds(&image.state);
}

static void
raise_problem(const SnowflakeProblem *problem)
{
	snowflake_report_problem(ERROR, problem);
}

/* Problems are raised as errors in the end. */
static void
check_problem(const SnowflakeProblem *problem, int code)
{
	fuzz_check(problem->sqlerrcode != 0 && (code == 0 || problem->sqlerrcode == code));
	fuzz_refuses(raise_problem(problem), problem->sqlerrcode);
}

static bool
read_image(const void *contents, size_t size, SnowflakeState *state)
{
	SnowflakeState untouched;
	SnowflakeProblem problem;
	void	   *copy = memcpy(palloc(size), contents, size);
	bool		accepted;

	memset(state, 0x7f, sizeof(*state));
	memset(&untouched, 0x7f, sizeof(untouched));
	memset(&problem, 0x7f, sizeof(problem));
	accepted = snowflake_state_from_image(state, GetSystemIdentifier(), copy, size, &problem);
	fuzz_check(accepted == is_whole(contents, size));
	if (!accepted)
	{
		fuzz_check(memcmp(state, &untouched, sizeof(*state)) == 0);
		check_problem(&problem, ERRCODE_DATA_CORRUPTED);
	}
	return accepted;
}

static bool
is_same(const SnowflakeState *a, const SnowflakeState *b)
{
	SnowflakeState copy = *a;

	/* set when it is written */
	copy.written_at = b->written_at;
	return memcmp(&copy, b, sizeof(copy)) == 0;
}

/* The file as it is now, without faults; how it is read, some calls of the system failing. */
static SnowflakeStateRead
read_state(SnowflakeState *state, uint64 faults)
{
	SnowflakeProblem problem;
	SnowflakeStateRead result;
	SnowflakeState other;

	memset(&problem, 0x7f, sizeof(problem));
	fuzz_faults = 0;
	result = snowflake_state_read(state, &problem);
	if (result == SNOWFLAKE_STATE_BAD)
		check_problem(&problem, ERRCODE_DATA_CORRUPTED);

	memset(&problem, 0x7f, sizeof(problem));
	fuzz_faults = faults;
	if (snowflake_state_read(&other, &problem) == SNOWFLAKE_STATE_BAD)
		check_problem(&problem, 0);
	else
		fuzz_check(result == SNOWFLAKE_STATE_OK ? memcmp(&other, state, sizeof(other)) == 0 :
				   result != SNOWFLAKE_STATE_BAD);
	fuzz_faults = 0;
	return result;
}

/*
 * Any contents, as bytes and as a file.  A file that was changed more than some seconds
 * after what it says, or before, is a copy and has no fingerprint.
 */
static void
check_contents(const void *contents, size_t size, uint64 faults)
{
	const int64 unix_epoch = (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (int64) SECS_PER_DAY;
	SnowflakeState by_bytes;
	SnowflakeState by_file;
	bool		accepted = read_image(contents, size, &by_bytes);
	int64		written = accepted ? by_bytes.written_at / USECS_PER_SEC + unix_epoch : 0;
	int			delay = (int) (int8) (faults >> 56);

	fuzz_put_file(SNOWFLAKE_STATE_FILE, contents, size, written + delay);
	fuzz_check(read_state(&by_file, faults) == (accepted ? SNOWFLAKE_STATE_OK : SNOWFLAKE_STATE_BAD));
	if (!accepted)
		return;
	if (delay < -11 || delay > 11)
		fuzz_check(by_file.fingerprint == 0);
	else if (delay > -9 && delay < 9)
		fuzz_check(by_file.fingerprint == by_bytes.fingerprint);
	by_file.fingerprint = by_bytes.fingerprint;
	fuzz_check(memcmp(&by_file, &by_bytes, sizeof(by_file)) == 0);
}

/* A file that was not written to its end, or that the disk changed. */
static void
check_damage(const SnowflakeState *state, uint64 seed, int flipped)
{
	SnowflakeStateImage image;
	SnowflakeState damaged;
	uint8	   *bytes = palloc0(sizeof(image) + 1);
	uint8		bits = (uint8) (seed >> 8);

	snowflake_state_to_image(state, GetSystemIdentifier(), &image);
	memcpy(bytes, &image, sizeof(image));
	fuzz_check(read_image(bytes, sizeof(image), &damaged) && memcmp(state, &damaged, sizeof(damaged)) == 0);
	fuzz_check(!read_image(bytes, sizeof(image) + 1, &damaged));
	for (size_t length = seed % flipped; length < sizeof(image); length += flipped)
	{
		fuzz_check(!read_image(bytes, length, &damaged));
		bytes[length] ^= bits != 0 ? bits : 1;
		fuzz_check(!read_image(bytes, sizeof(image), &damaged));
		bytes[length] = ((uint8 *) &image)[length];
	}
}

/* The bounds: each call changes what it says, and no other number's bound falls. */
static void
check_bounds(FuzzInput *input, SnowflakeState *state)
{
	while (input->size > 0)
	{
		SnowflakeState before = *state;
		int			form = (int) fuzz_take(input, 1);
		uint64		node = form & 1 ? fuzz_take(input, 1) : before.entries[form / 2 % SNOWFLAKE_STATE_ENTRIES].node;
		TimestampTz bound = (TimestampTz) fuzz_take(input, 8);

		if (form & 128)
			snowflake_state_floor(state, bound);
		else
			snowflake_state_set(state, node, bound);

		fuzz_check(is_within_bounds(state));
		for (uint32 i = 0; i <= before.num_entries; i++)
		{
			uint64		other = i < before.num_entries ? before.entries[i].node : ~node;
			TimestampTz was = snowflake_state_bound(&before, other);
			TimestampTz is = snowflake_state_bound(state, other);

			fuzz_check(is <= snowflake_state_greatest(state));
			if (form & 128)
				fuzz_check(is == Max(was, bound));
			else if (other == node)
				fuzz_check(is == bound);
			else
				fuzz_check(is >= was);
		}
		fuzz_check(form & 128 ? snowflake_state_bound(state, node) >= bound : snowflake_state_bound(state, node) == bound);
	}
}

/* One state after the other is written, and the second may fail. */
static void
check_writing(const SnowflakeState *old, const SnowflakeState *new, uint64 faults)
{
	SnowflakeProblem problem;
	SnowflakeState found;
	bool		written;

	fuzz_remove_files();
	fuzz_check(read_state(&found, 0) == SNOWFLAKE_STATE_NEVER);
	fuzz_put_file(SNOWFLAKE_STARTED_FILE, "", 0, 0);
	fuzz_check(read_state(&found, 0) == SNOWFLAKE_STATE_MISSING);

	fuzz_check(snowflake_state_write(old, &problem));
	fuzz_check(read_state(&found, faults) == SNOWFLAKE_STATE_OK && is_same(old, &found));

	memset(&problem, 0x7f, sizeof(problem));
	fuzz_faults = faults;
	written = snowflake_state_write(new, &problem);
	fuzz_faults = 0;
	if (!written)
		check_problem(&problem, 0);
	fuzz_check(read_state(&found, 0) == SNOWFLAKE_STATE_OK);
	fuzz_check(is_same(new, &found) || (!written && is_same(old, &found)));
}

/* The file with the layout: one line that is a definition, or refused. */
static void
check_started(const uint8 *contents, size_t size, uint64 faults)
{
	char		definition[SNOWFLAKE_DEFINITION_SIZE];
	char		canonical[SNOWFLAKE_DEFINITION_SIZE];
	char		found[SNOWFLAKE_DEFINITION_SIZE];
	SnowflakeLayout layout;
	SnowflakeLayoutError error;
	SnowflakeProblem problem;
	bool		whole = false;
	bool		written;

	if (size > 0 && size <= sizeof(definition) && contents[size - 1] == '\n')
	{
		memcpy(definition, contents, size);
		definition[size - 1] = '\0';
		whole = strlen(definition) == size - 1 && snowflake_layout_read(definition, &layout, &error);
	}
	fuzz_put_file(SNOWFLAKE_STARTED_FILE, contents, size, 0);
	memset(&problem, 0x7f, sizeof(problem));
	fuzz_check(snowflake_started_read(found, &problem) == (whole ? SNOWFLAKE_STATE_OK : SNOWFLAKE_STATE_BAD));
	if (whole)
		fuzz_check(strcmp(found, definition) == 0);
	else
		check_problem(&problem, ERRCODE_DATA_CORRUPTED);

	/* another is written over it; then none of its parts is taken for it */
	(void) snowflake_layout_read("twitter", &layout, &error);
	snowflake_layout_define(&layout, canonical);
	memset(&problem, 0x7f, sizeof(problem));
	fuzz_faults = faults;
	written = snowflake_started_write(canonical, &problem);
	fuzz_faults = 0;
	if (!written)
		check_problem(&problem, 0);
	if (snowflake_started_read(found, &problem) != SNOWFLAKE_STATE_OK)
		fuzz_check(!written && !whole);
	else
		fuzz_check(strcmp(found, canonical) == 0 || (!written && strcmp(found, definition) == 0));
	fuzz_put_file(SNOWFLAKE_STARTED_FILE, canonical, faults % strlen(canonical), 0);
	fuzz_check(snowflake_started_read(found, &problem) == SNOWFLAKE_STATE_BAD);
}

/* The bytes of the input as an image; what is too short is zeros. */
static void
mend(const FuzzInput *input, SnowflakeStateImage *image)
{
	memset(image, 0, sizeof(*image));
	memcpy(image, input->data, Min(input->size, sizeof(*image)));
	memcpy(image->magic, "snowflk", 8);
	image->version = 1;
	image->system_identifier = GetSystemIdentifier();
	image->crc = checksum((char *) image + HEAD, sizeof(*image) - HEAD);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FuzzInput	input = {data, size};
	int			form = (int) fuzz_take(&input, 1);
	uint64		seed = fuzz_take(&input, 8);

	if (form & STARTED)
		check_started(input.data, input.size, seed);
	else if (!(form & MENDED))
		check_contents(input.data, input.size, seed);
	else
	{
		SnowflakeStateImage image;
		SnowflakeState state;

		mend(&input, &image);
		check_contents(&image, sizeof(image), seed);
		if (is_within_bounds(&image.state))
		{
			state = image.state;
			check_damage(&state, seed, form & BITS_FLIPPED ? 8 : 64);
			input.data += Min(input.size, sizeof(image));
			input.size -= Min(input.size, sizeof(image));
			check_bounds(&input, &state);
			check_writing(&image.state, &state, seed);
		}
	}
	fuzz_remove_files();
	fuzz_end_statement();
	return 0;
}
