-- Masked ids: known values, a permutation, nothing of the id to be seen, and what is refused.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
RESET client_min_messages;

--
-- Known values: never to be changed, since masked ids are in links and in other systems.  They
-- were computed by another implementation of FF1 (Bouncy Castle 1.72, FPEFF1Engine, radix 2,
-- 63 digits, no tweak): keys of 16, 24 and 32 bytes; ids at the edges of both halves.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set masks_csv :abs_srcdir '/test/data/masks.csv'
CREATE TABLE mask_csv (key_hex text, id bigint, masked bigint);
COPY mask_csv FROM :'masks_csv' (FORMAT csv, HEADER);
CREATE TABLE mask_known AS SELECT decode(key_hex, 'hex') AS key, id, masked FROM mask_csv;
SELECT length(key) AS key_length, count(DISTINCT key) AS keys, count(DISTINCT id) AS ids, count(*),
	count(*) FILTER (WHERE snowflake_mask(id, key) = masked) AS masked,
	count(*) FILTER (WHERE snowflake_unmask(masked, key) = id) AS unmasked
FROM mask_known GROUP BY 1 ORDER BY 1;
SELECT snowflake_mask(1278735254799392768, '\x2b7e151628aed2a6abf7158809cf4f3c');
SELECT snowflake_unmask(3311316104936880405, '\x2b7e151628aed2a6abf7158809cf4f3c');

--
-- A permutation: new ids, small numbers, numbers all over the range
--
CREATE TABLE mask_sample AS
SELECT key, id FROM (VALUES ('\x000102030405060708090a0b0c0d0e0f'::bytea),
	('\x000102030405060708090a0b0c0d0e0f1011121314151617'),
	('\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f')) k (key),
	(SELECT 2124094861761052672 + n FROM generate_series(0, 19999) n
	 UNION ALL SELECT n FROM generate_series(0, 19999) n
	 UNION ALL SELECT hashint8extended(n, 0) & 9223372036854775807 FROM generate_series(1, 20000) n
	 UNION ALL SELECT 9223372036854775807 - n FROM generate_series(0, 9999) n) i (id);
-- there and back, and the other way round
SELECT length(key), count(*), count(DISTINCT id) AS ids, count(DISTINCT snowflake_mask(id, key)) AS masked,
	min(snowflake_mask(id, key)) >= 0 AS not_negative,
	bool_and(snowflake_unmask(snowflake_mask(id, key), key) = id) AS back,
	bool_and(snowflake_mask(snowflake_unmask(id, key), key) = id) AS forth
FROM mask_sample GROUP BY key ORDER BY 1;
-- another key, another number; keys that begin alike too
SELECT count(*) FROM mask_sample a JOIN mask_sample b USING (id)
WHERE a.key < b.key AND snowflake_mask(id, a.key) = snowflake_mask(id, b.key);

--
-- Nothing to be seen: each bit of a masked id is set half of the time, changes half of the time
-- between ids that follow each other, and the order of ids is lost
--
CREATE TABLE mask_series AS
SELECT id, snowflake_mask(id, '\x000102030405060708090a0b0c0d0e0f') AS masked
FROM generate_series(2124094861761052672, 2124094861761052672 + 9999) id;
SELECT count(*), min(share) > 0.47 AND max(share) < 0.53 AS half_set, min(changes) > 0.47 AND max(changes) < 0.53 AS half_change
FROM (SELECT bit, avg(masked >> bit & 1) AS share, avg((masked # before) >> bit & 1) AS changes
	FROM (SELECT masked, lag(masked) OVER (ORDER BY id) AS before FROM mask_series) s, generate_series(0, 62) bit
	GROUP BY bit) b;
SELECT abs(corr(id - 2124094861761052672, masked)) < 0.03 AS no_order FROM mask_series;
-- the same for each bit of the id
SELECT count(*), min(changes) > 0.45 AND max(changes) < 0.55 AS half_change
FROM (SELECT bit, avg(length(replace((snowflake_mask(id, key) # snowflake_mask(id # (1::bigint << bit), key))::bit(63)::text, '0', ''))) / 63 AS changes
	FROM mask_sample, generate_series(0, 62) bit WHERE length(key) = 32 AND id % 100 = 0 GROUP BY bit) b;

--
-- How they are used
--
SELECT proname, provolatile, proisstrict, proparallel, proleakproof FROM pg_proc WHERE proname ~ '^snowflake_(un)?mask$' ORDER BY 1;
SELECT snowflake_mask(NULL, '\x00'), snowflake_mask(1, NULL), snowflake_unmask(NULL, NULL);
SELECT id = snowflake_unmask(snowflake_mask(id, key), key) AS same
FROM (SELECT snowflake_nextval() AS id, '\x000102030405060708090a0b0c0d0e0f'::bytea AS key) d;
-- anybody may
CREATE ROLE regress_masker;
SET ROLE regress_masker;
SELECT snowflake_mask(1, '\x2b7e151628aed2a6abf7158809cf4f3c');
RESET ROLE;
DROP ROLE regress_masker;
-- a call site whose key changes from row to row; keys with long and with short headers
SELECT count(*), count(*) FILTER (WHERE snowflake_mask(id, key) = masked) AS masked
FROM (SELECT * FROM mask_known ORDER BY id, key) k;
SELECT count(*) FROM mask_known WHERE snowflake_mask(id, substr(key || '\x00'::bytea, 1, length(key))) = masked;
-- one that was refused in between: every length from 0 to 70, and what each good one masks
DO $$
DECLARE
	masked bigint;
	accepted text := '';
BEGIN
	FOR n IN 0 .. 70 LOOP
		BEGIN
			masked := snowflake_mask(7, decode(repeat('ab', n), 'hex'));
			accepted := accepted || format(' %s: %s', n, masked);
			IF snowflake_unmask(masked, decode(repeat('ab', n), 'hex')) <> 7 THEN
				RAISE EXCEPTION 'not back with % bytes', n;
			END IF;
		EXCEPTION WHEN invalid_parameter_value THEN
			NULL;
		END;
	END LOOP;
	RAISE NOTICE '%', accepted;
END $$;

--
-- What is refused
--
SELECT snowflake_mask(-1, '\x000102030405060708090a0b0c0d0e0f');
SELECT snowflake_unmask(-9223372036854775808, '\x000102030405060708090a0b0c0d0e0f');
SELECT snowflake_mask(1, '');
SELECT snowflake_mask(1, '\x000102030405060708090a0b0c0d0e');
SELECT snowflake_mask(1, '\x000102030405060708090a0b0c0d0e0f10');
SELECT snowflake_unmask(1, 'a password that looks like a key, but is none');
SELECT snowflake_mask(1, decode(repeat('00', 1000000), 'hex'));

DROP TABLE mask_csv, mask_known, mask_sample, mask_series;
