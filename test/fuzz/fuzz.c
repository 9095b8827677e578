/*
 * fuzz.c
 *	  Input and checks of the fuzz targets.
 */
#include "fuzz.h"

#include <ctype.h>

#include "mb/pg_wchar.h"

static const char *
sqlstate(int code)
{
	static char state[6];

	for (int i = 0; i < 5; i++, code >>= 6)
		state[i] = PGUNSIXBIT(code);
	return state;
}

void
fuzz_fail(const char *what, const char *file, int line)
{
	fprintf(stderr, "PROPERTY BROKEN: %s (%s:%d)\n", what, file, line);
	if (fuzz_error.sqlerrcode != 0)
		fprintf(stderr, "last error: %s: %s\nDETAIL: %s\nHINT: %s\n",
				sqlstate(fuzz_error.sqlerrcode), fuzz_error.message, fuzz_error.detail, fuzz_error.hint);
	abort();
}

/* A number of so many bytes, the lowest first. */
uint64
fuzz_take(FuzzInput *input, int bytes)
{
	uint64		value = 0;

	for (int i = 0; i < bytes && input->size > 0; i++, input->data++, input->size--)
		value |= (uint64) *input->data << (8 * i);
	return value;
}

/* A number up to a bound; the ends come more often than others. */
uint64
fuzz_take_up_to(FuzzInput *input, uint64 max)
{
	switch (fuzz_take(input, 1) % 6)
	{
		case 0:
			return 0;
		case 1:
			return Min(max, 1);
		case 2:
			return max - Min(max, 1);
		case 3:
			return max;
		default:
			return max == PG_UINT64_MAX ? fuzz_take(input, 8) : fuzz_take(input, 8) % (max + 1);
	}
}

/* What is before the next zero, or all that is left, without a byte to spare after it. */
char *
fuzz_take_string(FuzzInput *input)
{
	size_t		length = strnlen((const char *) input->data, input->size);
	char	   *string = palloc(length + 1);

	memcpy(string, input->data, length);
	string[length] = '\0';
	input->data += length;
	input->size -= length;
	(void) fuzz_take(input, 1);
	return string;
}

static bool
is_valid(const char *text)
{
	int			length = (int) strlen(text);

	return pg_encoding_verifymbstr(fuzz_encoding, text, length) == length;
}

/* A sentence, which was not cut off. */
static bool
is_sentence(const char *text)
{
	size_t		length = strlen(text);

	return length > 1 && text[length - 1] == '.' && is_valid(text);
}

/* Says what, why and what to do; always false. */
bool
fuzz_check_error(const char *file, int line)
{
	if (fuzz_error.sqlerrcode == 0)
		fuzz_fail("an error has an SQLSTATE", file, line);
	if (fuzz_error.message[0] == '\0' || isupper((unsigned char) fuzz_error.message[0]) ||
		!is_valid(fuzz_error.message))
		fuzz_fail("an error has a message, valid in the server's encoding", file, line);
	if (!is_sentence(fuzz_error.detail))
		fuzz_fail("the detail of an error is a sentence, valid in the server's encoding", file, line);
	if (!is_sentence(fuzz_error.hint))
		fuzz_fail("the hint of an error is a sentence, valid in the server's encoding", file, line);
	return false;
}
