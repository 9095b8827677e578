/*
 * mask.c
 *	  FF1 over strings of 63 bits, with OpenSSL's AES, and the SQL-callable
 *	  snowflake_mask() and snowflake_unmask().
 *
 * A mask is a keyed permutation of the non-negative bigints: radix 2, length
 * 63, no tweak.  What it gives for a key and an id never changes, in any
 * version.
 *
 * Why FF1: it is a standard for encrypting a number into a number of the same
 * range, so that others have studied it, and an application can mask and
 * unmask with a library of its own.  A block cipher of 64 bits would make
 * every other masked id negative.
 *
 * FF1 is a Feistel network of 10 rounds.  The halves are 31 and 32 bits: a
 * round adds to one half a pseudo-random function of the other, modulo the
 * half's size, and they change places.  Each round can be undone, whatever the
 * function is, so the whole is a permutation of [0, 2^63) for every key.
 *
 * Why 10 rounds: so many are proved to look like a random permutation even to
 * those who may choose what is masked and unmasked, as long as they see far
 * fewer than 2^31 pairs (J. Patarin, "Luby-Rackoff: 7 rounds are enough for
 * 2^n(1-epsilon) security", CRYPTO 2003; for halves of the same size, and with
 * AES taken for a random function).  The attacks on FF1 are about small
 * domains, for which NIST asks for a million values; here there are 2^63.
 *
 * What the standard computes in general is short here.  Its first block, of
 * the parameters, is the same in every call, so that its encryption is kept;
 * the second is zeros, the round and the other half.  Of the sum modulo 2^31
 * or 2^32, only bytes 4 to 7 of the result count.
 *
 * Errors: 22003 for an id that is negative, 22023 for a key of a wrong length,
 * XX000 if OpenSSL refuses AES.  No message shows a key.  A call site keeps
 * the mask of its last key, since to make one takes longer than to use it;
 * OpenSSL's part of it is freed with the memory of the call site.
 *
 * Algorithm: NIST SP 800-38G (2016), algorithms 6 (PRF), 7 (FF1.Encrypt) and 8
 * (FF1.Decrypt).
 */
#include "postgres.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include "fmgr.h"
#include "port/pg_bswap.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(snowflake_mask);
PG_FUNCTION_INFO_V1(snowflake_unmask);

/* Bytes of a key: those of AES-128, AES-192 and AES-256. */
#define KEY_SIZES		"16, 24 or 32"
#define MAX_KEY_SIZE	32

#define BLOCK_SIZE		16
#define NUM_ROUNDS		10

/* The halves of an id: u and v of the standard. */
#define HIGH_BITS		31
#define LOW_BITS		32

/* In fn_extra: the last key, and what it gives. */
typedef struct SnowflakeMask
{
	EVP_CIPHER_CTX *aes;		/* with the key; NULL: there is none */
	uint8		parameters[BLOCK_SIZE]; /* the first block, encrypted */
	uint8		key[MAX_KEY_SIZE];
	size_t		key_length;
	MemoryContextCallback at_end;
} SnowflakeMask;

/*
 * The first block: version 1, method 2 (FF1), addition modulo the radix, the
 * radix in 3 bytes, the rounds, the length of the left half, the lengths of
 * the whole and of the tweak in 4 bytes each.
 */
static const uint8 first_block[BLOCK_SIZE] = {
	1, 2, 1, 0, 0, 2, NUM_ROUNDS, HIGH_BITS, 0, 0, 0, HIGH_BITS + LOW_BITS, 0,
	0, 0, 0
};

static const EVP_CIPHER *
cipher_of(size_t key_length)
{
	switch (key_length)
	{
		case 16:
			return EVP_aes_128_ecb();
		case 24:
			return EVP_aes_192_ecb();
		case 32:
			return EVP_aes_256_ecb();
		default:
			return NULL;
	}
}

/* Encrypts one block; in and out may be the same. */
static bool
encrypt_block(SnowflakeMask *mask, const uint8 *in, uint8 *out)
{
	int			length;

	return EVP_EncryptUpdate(mask->aes, out, &length, in, BLOCK_SIZE) == 1 &&
		length == BLOCK_SIZE;
}

/*
 * Puts what a round adds to one half into *sum: the low 32 bits of a function
 * of the round and of the other half.
 */
static bool
round_sum(SnowflakeMask *mask, int number, uint32 other_half, uint32 *sum)
{
	uint8		block[BLOCK_SIZE];
	uint32		word = pg_hton32(other_half);

	/* CBC-MAC: the second block is xored to the first one's encryption. */
	memcpy(block, mask->parameters, BLOCK_SIZE);
	block[11] ^= number;
	for (int i = 0; i < 4; i++)
		block[12 + i] ^= ((uint8 *) &word)[i];

	if (!encrypt_block(mask, block, block))
		return false;
	memcpy(&word, block + 4, sizeof(word));
	*sum = pg_ntoh32(word);
	return true;
}

/* The bits of the half that a round changes: the left one first. */
static uint32
half_bits(int number)
{
	return number % 2 == 0 ? (1U << HIGH_BITS) - 1 : PG_UINT32_MAX;
}

/* The masked form of an id, which is not negative; false if OpenSSL fails. */
static bool
mask_apply(SnowflakeMask *mask, int64 id, int64 *masked)
{
	uint32		left = (uint32) (id >> LOW_BITS);
	uint32		right = (uint32) id;

	for (int number = 0; number < NUM_ROUNDS; number++)
	{
		uint32		sum;

		if (!round_sum(mask, number, right, &sum))
			return false;
		sum = (left + sum) & half_bits(number);
		left = right;
		right = sum;
	}
	*masked = ((int64) left << LOW_BITS) | right;
	return true;
}

/* The id of a masked form, which is not negative; false if OpenSSL fails. */
static bool
mask_undo(SnowflakeMask *mask, int64 masked, int64 *id)
{
	uint32		left = (uint32) (masked >> LOW_BITS);
	uint32		right = (uint32) masked;

	for (int number = NUM_ROUNDS - 1; number >= 0; number--)
	{
		uint32		sum;

		if (!round_sum(mask, number, left, &sum))
			return false;
		sum = (right - sum) & half_bits(number);
		right = left;
		left = sum;
	}
	*id = ((int64) left << LOW_BITS) | right;
	return true;
}

/*
 * An id must not be negative, or 22003; action is what cannot be done to it.
 */
static void
check_not_negative(int64 id, const char *action)
{
	if (id < 0)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id " INT64_FORMAT " cannot be %s", id, action),
				 errdetail("Ids, and masked ids, are from 0 to " INT64_FORMAT ".", PG_INT64_MAX),
				 errhint("Look where the number comes from: ids are never negative.")));
}

/* A key must have the length of one of AES, or 22023. */
static void
check_key(const bytea *key)
{
	size_t		length = VARSIZE_ANY_EXHDR(key);

	if (cipher_of(length) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid length of a key: %zu bytes", length),
				 errdetail("Keys have " KEY_SIZES " random bytes."),
				 errhint("Make one with gen_random_bytes(32) of pgcrypto or \"openssl rand -hex 32\"; a password is no key.")));
}

static void
forget_key(void *arg)
{
	SnowflakeMask *mask = arg;

	EVP_CIPHER_CTX_free(mask->aes);
	explicit_bzero(mask, offsetof(SnowflakeMask, at_end));
}

static void
report_failure(void)
{
	ERR_clear_error();
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("could not encrypt with AES"),
			 errhint("See the configuration of OpenSSL on the server, and its memory.")));
}

/* The mask of a call site, without a key at first. */
static SnowflakeMask *
call_site_mask(FmgrInfo *flinfo)
{
	SnowflakeMask *mask = flinfo->fn_extra;

	if (mask == NULL)
	{
		mask = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(SnowflakeMask));
		mask->at_end.func = forget_key;
		mask->at_end.arg = mask;
		MemoryContextRegisterResetCallback(flinfo->fn_mcxt, &mask->at_end);
		flinfo->fn_extra = mask;
	}
	return mask;
}

/* The mask of a key, which stays the call site's. */
static SnowflakeMask *
mask_of(FmgrInfo *flinfo, const bytea *key)
{
	SnowflakeMask *mask = call_site_mask(flinfo);
	const uint8 *bytes = (const uint8 *) VARDATA_ANY(key);
	size_t		length = VARSIZE_ANY_EXHDR(key);

	if (mask->aes != NULL && mask->key_length == length &&
		memcmp(mask->key, bytes, length) == 0)
		return mask;
	forget_key(mask);
	check_key(key);
	mask->aes = EVP_CIPHER_CTX_new();
	if (mask->aes == NULL ||
		EVP_EncryptInit_ex(mask->aes, cipher_of(length), NULL, bytes,
						   NULL) != 1 ||
		EVP_CIPHER_CTX_set_padding(mask->aes, 0) != 1 ||
		!encrypt_block(mask, first_block, mask->parameters))
	{
		forget_key(mask);
		report_failure();
	}
	memcpy(mask->key, bytes, length);
	mask->key_length = length;
	return mask;
}

Datum
snowflake_mask(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);
	SnowflakeMask *mask = mask_of(fcinfo->flinfo, PG_GETARG_BYTEA_PP(1));
	int64		masked = 0;

	check_not_negative(id, "masked");
	if (!mask_apply(mask, id, &masked))
		report_failure();
	PG_RETURN_INT64(masked);
}

Datum
snowflake_unmask(PG_FUNCTION_ARGS)
{
	int64		masked = PG_GETARG_INT64(0);
	SnowflakeMask *mask = mask_of(fcinfo->flinfo, PG_GETARG_BYTEA_PP(1));
	int64		id = 0;

	check_not_negative(masked, "unmasked");
	if (!mask_undo(mask, masked, &id))
		report_failure();
	PG_RETURN_INT64(id);
}
