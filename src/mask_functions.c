/*
 * mask_functions.c
 *	  The SQL-callable functions that mask ids, and their errors.
 *
 * Errors: 22003 for an id that is negative, 22023 for a key of a wrong length,
 * XX000 if OpenSSL refuses AES.  No message shows a key.
 *
 * A call site keeps the mask of its last key, since to make one takes longer
 * than to use it; the mask is freed with the memory of the call site.
 */
#include "postgres.h"

#include <openssl/err.h>

#include "fmgr.h"
#include "utils/memutils.h"

#include "compat.h"
#include "mask.h"

PG_FUNCTION_INFO_V1(snowflake_mask);
PG_FUNCTION_INFO_V1(snowflake_unmask);

/* In fn_extra: the mask of the last key, or NULL. */
typedef struct MaskCache
{
	SnowflakeMask *mask;
	uint8		key[SNOWFLAKE_MASK_MAX_KEY];
	size_t		key_length;
	MemoryContextCallback at_end;
} MaskCache;

/* An id must not be negative, or 22003; action is what cannot be done to it. */
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

	if (!snowflake_mask_key_fits(length))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid length of a key: %zu bytes", length),
				 errdetail("Keys have " SNOWFLAKE_MASK_KEY_SIZES " random bytes."),
				 errhint("Make one with gen_random_bytes(32) of pgcrypto or \"openssl rand -hex 32\"; a password is no key.")));
}

static void
forget_mask(void *arg)
{
	MaskCache  *cache = arg;

	snowflake_mask_free(cache->mask);
	explicit_bzero(cache, offsetof(MaskCache, at_end));
}

static MaskCache *
cache_of(FmgrInfo *flinfo)
{
	MaskCache  *cache = flinfo->fn_extra;

	if (cache == NULL)
	{
		cache = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(MaskCache));
		cache->at_end.func = forget_mask;
		cache->at_end.arg = cache;
		MemoryContextRegisterResetCallback(flinfo->fn_mcxt, &cache->at_end);
		flinfo->fn_extra = cache;
	}
	return cache;
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

/* The mask of a key, which stays the cache's. */
static SnowflakeMask *
mask_of(FmgrInfo *flinfo, const bytea *key)
{
	MaskCache  *cache = cache_of(flinfo);
	size_t		length = VARSIZE_ANY_EXHDR(key);

	if (cache->mask == NULL || cache->key_length != length ||
		memcmp(cache->key, VARDATA_ANY(key), length) != 0)
	{
		forget_mask(cache);
		check_key(key);
		cache->mask = snowflake_mask_create((const uint8 *) VARDATA_ANY(key), length);
		if (cache->mask == NULL)
			report_failure();
		memcpy(cache->key, VARDATA_ANY(key), length);
		cache->key_length = length;
	}
	return cache->mask;
}

Datum
snowflake_mask(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);
	SnowflakeMask *mask = mask_of(fcinfo->flinfo, PG_GETARG_BYTEA_PP(1));
	int64		masked;

	check_not_negative(id, "masked");
	if (!snowflake_mask_apply(mask, id, &masked))
		report_failure();
	PG_RETURN_INT64(masked);
}

Datum
snowflake_unmask(PG_FUNCTION_ARGS)
{
	int64		masked = PG_GETARG_INT64(0);
	SnowflakeMask *mask = mask_of(fcinfo->flinfo, PG_GETARG_BYTEA_PP(1));
	int64		id;

	check_not_negative(masked, "unmasked");
	if (!snowflake_mask_undo(mask, masked, &id))
		report_failure();
	PG_RETURN_INT64(id);
}
