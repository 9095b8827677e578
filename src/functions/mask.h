/*
 * mask.h
 *	  A keyed permutation of the non-negative bigints: ids that tell nothing.
 *
 * A mask is FF1 (NIST SP 800-38G, format-preserving encryption) with AES, for
 * strings of 63 bits: radix 2, length 63, no tweak.  mask.c has the reasons.
 * What it gives for a key and an id never changes, in any version.
 *
 * A mask belongs to one process and is not shared.  Nothing here raises an
 * error.
 */
#ifndef SNOWFLAKE_MASK_H
#define SNOWFLAKE_MASK_H

/* Bytes of a key: those of AES-128, AES-192 and AES-256. */
#define SNOWFLAKE_MASK_KEY_SIZES	"16, 24 or 32"
#define SNOWFLAKE_MASK_MAX_KEY		32

typedef struct SnowflakeMask SnowflakeMask;

extern bool snowflake_mask_key_fits(size_t length);
extern SnowflakeMask *snowflake_mask_create(const uint8 *key, size_t length);
extern void snowflake_mask_free(SnowflakeMask *mask);

extern bool snowflake_mask_apply(SnowflakeMask *mask, int64 id, int64 *masked);
extern bool snowflake_mask_undo(SnowflakeMask *mask, int64 masked, int64 *id);

#endif							/* SNOWFLAKE_MASK_H */
