-- Ids as text: known texts, round trips, order, and what is refused.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
RESET client_min_messages;

--
-- Known texts
--
CREATE TABLE known (id bigint PRIMARY KEY, base62 text, crockford32 text, hex text, "decimal" text);
INSERT INTO known VALUES
	(0, '00000000000', '0000000000000', '0000000000000000', '0000000000000000000'),
	(1, '00000000001', '0000000000001', '0000000000000001', '0000000000000000001'),
	(9, '00000000009', '0000000000009', '0000000000000009', '0000000000000000009'),
	(10, '0000000000A', '000000000000A', '000000000000000a', '0000000000000000010'),
	(31, '0000000000V', '000000000000Z', '000000000000001f', '0000000000000000031'),
	(32, '0000000000W', '0000000000010', '0000000000000020', '0000000000000000032'),
	(61, '0000000000z', '000000000001X', '000000000000003d', '0000000000000000061'),
	(62, '00000000010', '000000000001Y', '000000000000003e', '0000000000000000062'),
	(9007199254740991, '00fFgnDxSe7', '007ZZZZZZZZZZ', '001fffffffffffff', '0009007199254740991'),
	(9007199254740992, '00fFgnDxSe8', '0080000000000', '0020000000000000', '0009007199254740992'),
	(1278735254799392768, '1WScVFdvCcK', '13FQTY1R1C800', '11befaf070162000', '1278735254799392768'),
	(4611686018427387904, '5UfZOVH2ZO4', '4000000000000', '4000000000000000', '4611686018427387904'),
	(9223372036854775807, 'AzL8n0Y58m7', '7ZZZZZZZZZZZZ', '7fffffffffffffff', '9223372036854775807');
-- both ways; no rows are wanted
CREATE TABLE text_known AS
SELECT id, f.* FROM known, LATERAL (VALUES ('base62', base62), ('crockford32', crockford32),
	('hex', hex), ('decimal', "decimal")) AS f (format, encoded);
SELECT *, snowflake_encode(id, format), snowflake_decode(encoded, format) FROM text_known
WHERE snowflake_encode(id, format) <> encoded OR snowflake_decode(encoded, format) <> id;
SELECT format, count(*) FROM text_known GROUP BY format ORDER BY format;

-- the rows of the data file that are in these formats
\getenv abs_srcdir PG_ABS_SRCDIR
\set encodings_csv :abs_srcdir '/test/data/encodings.csv'
CREATE TABLE encoding_csv (encoding text, encoded text, id bigint, source text);
COPY encoding_csv FROM :'encodings_csv' (FORMAT csv, HEADER);
CREATE TABLE other_text AS
SELECT CASE WHEN encoding LIKE 'base62%' THEN 'base62' WHEN encoding LIKE 'Crockford%' THEN 'crockford32'
	WHEN encoding = '8 bytes big endian' THEN 'hex' WHEN encoding LIKE 'decimal%' THEN 'decimal' END AS format,
	encoded, id
FROM encoding_csv;
DELETE FROM other_text WHERE format IS NULL;
SELECT *, snowflake_encode(id, format) = encoded AND snowflake_decode(encoded, format) = id AS same
FROM other_text WHERE id IS NOT NULL ORDER BY format, encoded COLLATE "C";

--
-- Round trips and order, against the same in SQL
--
CREATE FUNCTION positional(id bigint, digits text, width int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(substr(digits, (1 + id / power(length(digits)::numeric, place)::bigint % length(digits))::int, 1),
		'' ORDER BY place DESC)
	FROM generate_series(0, width - 1) AS place
$$;
CREATE TABLE format (name text PRIMARY KEY, digits text, width int);
INSERT INTO format VALUES
	('base62', '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz', 11),
	('crockford32', '0123456789ABCDEFGHJKMNPQRSTVWXYZ', 13),
	('hex', '0123456789abcdef', 16),
	('decimal', '0123456789', 19);
-- of all sizes: 200 pseudo-random ids of each number of bits, and where digits and bits carry
SELECT setseed(0.25);
CREATE TABLE sample AS
SELECT floor(random() * 2147483648)::bigint << 32 >> (63 - bits) |
	floor(random() * 4294967296)::bigint >> greatest(32 - bits, 0) AS id
FROM generate_series(1, 63) AS bits, generate_series(1, 200)
UNION
SELECT least(power(base::numeric, place) + step, 9223372036854775807)::bigint
FROM (VALUES (2, 62), (10, 18), (32, 12), (62, 10)) AS b (base, places),
	LATERAL generate_series(0, places) AS place, generate_series(-1, 1) AS step
UNION
SELECT 9223372036854775807 - step FROM generate_series(0, 100) AS step;
SELECT count(*) > 10000 AS many, min(id), max(id), count(DISTINCT id % 1024) AS endings FROM sample;
CREATE TABLE encoded AS
SELECT f.name, f.width, id, snowflake_encode(id, f.name) AS encoded, positional(id, f.digits, f.width) AS wanted
FROM sample, format f;
SELECT name, count(*) > 10000 AS many, count(*) FILTER (WHERE encoded = wanted) = count(*) AS written,
	count(*) FILTER (WHERE snowflake_decode(encoded, name) = id) = count(*) AS read,
	count(*) FILTER (WHERE octet_length(encoded) = width) = count(*) AS wide
FROM encoded GROUP BY name ORDER BY name;
SELECT name, count(*) FILTER (WHERE encoded COLLATE "C" > before COLLATE "C") = count(*) - 1 AS sorted
FROM (SELECT name, encoded, lag(encoded) OVER (PARTITION BY name ORDER BY id) AS before FROM encoded) AS pair
GROUP BY name ORDER BY name;

-- the name of a format is taken in any case, as encode() takes its own
SELECT snowflake_encode(62, 'Base62'), snowflake_decode('000000000001Y', 'CROCKFORD32');
-- strict
SELECT snowflake_encode(NULL, 'hex') IS NULL AND snowflake_encode(1, NULL) IS NULL AND
	snowflake_decode(NULL, 'hex') IS NULL AND snowflake_decode('x', NULL) IS NULL AS strict;

--
-- Refused
--
SELECT snowflake_encode(-1, 'base62');
SELECT snowflake_encode(-9223372036854775808, 'hex');
SELECT snowflake_encode(1, 'base64');
SELECT snowflake_decode('1', '');
SELECT snowflake_decode('1', 'hex ');
SELECT snowflake_decode('1', 'base6');
SELECT snowflake_encode(1, 'base622');
-- length
SELECT snowflake_decode('', 'base62');
SELECT snowflake_decode('AzL8n0Y58m', 'base62');
SELECT snowflake_decode('AzL8n0Y58m70', 'base62');
SELECT snowflake_decode('7ZZZZZZZZZZZ', 'crockford32');
SELECT snowflake_decode('07ZZZZZZZZZZZZ', 'crockford32');
SELECT snowflake_decode('7ffffffffffffff', 'hex');
SELECT snowflake_decode('07fffffffffffffff', 'hex');
SELECT snowflake_decode('62', 'decimal');
SELECT snowflake_decode('09223372036854775807', 'decimal');
SELECT snowflake_decode(repeat('1', 1000), 'decimal');
-- too large: 2^63
SELECT snowflake_decode('AzL8n0Y58m8', 'base62');
SELECT snowflake_decode('8000000000000', 'crockford32');
SELECT snowflake_decode('8000000000000000', 'hex');
SELECT snowflake_decode('9223372036854775808', 'decimal');
-- characters
SELECT snowflake_decode(' AzL8n0Y58m7', 'base62');
SELECT snowflake_decode('AzL8n0Y58m7 ', 'base62');
SELECT snowflake_decode('AzL8n0Y58_7', 'base62');
SELECT snowflake_decode('13fqty1r1c800', 'crockford32');
SELECT snowflake_decode('I3FQTY1R1C800', 'crockford32');
SELECT snowflake_decode('13FQTY1R1C8O0', 'crockford32');
SELECT snowflake_decode('13FQ-TY1R-1C800', 'crockford32');
SELECT snowflake_decode('11BEFAF070162000', 'hex');
SELECT snowflake_decode('0x11befaf0701620', 'hex');
SELECT snowflake_decode('-000000000000000001', 'decimal');
SELECT snowflake_decode('+1278735254799392768', 'decimal');
-- what the hints say
SELECT snowflake_decode(translate(upper(typed COLLATE "C"), 'ILO-', '110'), 'crockford32')
FROM (VALUES ('13fqty1r1c800'), ('i3fqty1RLc8oO'), ('13FQ-TY1R-1C800')) AS v (typed);
SELECT snowflake_decode(lower('11BEFAF070162000' COLLATE "C"), 'hex');

CREATE FUNCTION sqlstate_of(encoded text, format text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE snowflake_encode(snowflake_decode(encoded, format), format) WHEN encoded THEN 'same' ELSE 'other' END;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
-- of the characters of ASCII, each at each place: the digits are read, all else is refused
SELECT name, sqlstate_of(overlay(repeat('0', width) PLACING chr(code) FROM place), name) AS outcome,
	count(*) / (width - 1.0) = count(DISTINCT code) AS at_every_place, count(DISTINCT code) AS characters,
	min(strpos(digits, chr(code))) AS first_digit, max(strpos(digits, chr(code))) AS last_digit
FROM format, generate_series(1, 127) AS code, LATERAL generate_series(2, width) AS place
GROUP BY name, width, outcome ORDER BY name, outcome;
-- as the first digit, only those that keep the id below 2^63
SELECT name, string_agg(chr(code), '' ORDER BY code) AS first_digits
FROM format, generate_series(1, 127) AS code
WHERE sqlstate_of(chr(code) || repeat('0', width - 1), name) = 'same' GROUP BY name ORDER BY name;
-- nothing wraps: 2^63 + 1, 2^64 - 1, 2^64, 2^64 + 1, the greatest
SELECT format, encoded, sqlstate_of(encoded, format) FROM (VALUES
	('base62', 'AzL8n0Y58m9'), ('base62', 'LygHa16AHYF'), ('base62', 'LygHa16AHYG'),
	('base62', 'LygHa16AHYH'), ('base62', 'zzzzzzzzzzz'),
	('crockford32', '8000000000001'), ('crockford32', 'FZZZZZZZZZZZZ'), ('crockford32', 'G000000000000'),
	('crockford32', 'G000000000001'), ('crockford32', 'ZZZZZZZZZZZZZ'),
	('hex', '8000000000000001'), ('hex', 'ffffffffffffffff'),
	('decimal', '9223372036854775809'), ('decimal', '9999999999999999999')) AS v (format, encoded);
-- every length but the right one
SELECT name, sqlstate_of(repeat('0', length), name) AS outcome, count(*), min(length), max(length)
FROM format, generate_series(0, 40) AS length GROUP BY name, outcome ORDER BY name, outcome;
-- and the data file's that a strict reader must refuse
SELECT format, encoded, sqlstate_of(encoded, format) FROM other_text WHERE id IS NULL ORDER BY format;

-- characters of several bytes: quoted whole, also where a long text is cut
SELECT current_database() AS test_database \gset
CREATE DATABASE regress_snowflake_utf8 TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
\c regress_snowflake_utf8
SET client_min_messages = warning;
CREATE EXTENSION snowflake;
RESET client_min_messages;
\encoding UTF8
SELECT snowflake_decode(U&'AzL8n0Y5\00F6m7', 'base62');
SELECT snowflake_decode(U&'\00F6', 'base62');
SELECT snowflake_decode(U&'AzL8n0Y58\20AC', 'base62');
SELECT snowflake_decode(U&'0000000000\+01F600', 'base62');
SELECT snowflake_decode(U&'\FF11\FF12\FF13', 'decimal');
SELECT snowflake_decode(repeat(U&'\20AC', 100), 'hex');
SELECT snowflake_decode('0' || repeat(U&'\20AC', 100), 'hex');
SELECT snowflake_decode(repeat('0', 64), 'hex');
SELECT snowflake_decode(repeat('0', 63) || U&'\20AC', 'hex');
SELECT snowflake_encode(1, U&'h\00E9x');
SELECT snowflake_encode(1, repeat(U&'\00E9', 33));
\c :test_database
DROP DATABASE regress_snowflake_utf8;

--
-- In generated columns, indexes and parallel plans, by an ordinary user
--
SELECT oid::regprocedure AS function, provolatile, proisstrict, proparallel, prosecdef, proargnames
FROM pg_proc WHERE proname IN ('snowflake_encode', 'snowflake_decode') ORDER BY proname;
CREATE ROLE regress_snowflake_clerk;
GRANT SELECT ON sample TO regress_snowflake_clerk;
SET ROLE regress_snowflake_clerk;
CREATE TEMP TABLE invoice (id bigint PRIMARY KEY,
	code text COLLATE "C" GENERATED ALWAYS AS (snowflake_encode(id, 'crockford32')) STORED UNIQUE);
INSERT INTO invoice VALUES (1278735254799392768), (1278735254799392769);
INSERT INTO invoice VALUES (-1);
SELECT id FROM invoice WHERE code = '13FQTY1R1C801';
CREATE TEMP TABLE orders AS SELECT id FROM sample;
CREATE UNIQUE INDEX orders_code ON orders (snowflake_encode(id, 'base62') COLLATE "C");
ANALYZE orders;
EXPLAIN (COSTS OFF) SELECT id FROM orders WHERE snowflake_encode(id, 'base62') COLLATE "C" = 'AzL8n0Y58m7';
SELECT id FROM orders WHERE snowflake_encode(id, 'base62') COLLATE "C" = 'AzL8n0Y58m7';
EXPLAIN (COSTS OFF) SELECT id FROM orders ORDER BY snowflake_encode(id, 'base62') COLLATE "C" DESC LIMIT 1;
SELECT id FROM orders ORDER BY snowflake_encode(id, 'base62') COLLATE "C" DESC LIMIT 3;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS OFF) SELECT count(*) FROM sample
WHERE snowflake_decode(snowflake_encode(id, 'base62'), 'base62') = id;
SELECT count(*) = (SELECT count(*) FROM orders) AS all_same FROM sample
WHERE snowflake_decode(snowflake_encode(id, 'base62'), 'base62') = id;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;
DROP TABLE invoice, orders;
RESET ROLE;

-- what a double, and so a JavaScript number, makes of an id
SELECT id, id::float8::bigint AS rounded
FROM (VALUES (9007199254740991), (9007199254740993), (1278735254799392775)) AS v (id);
SELECT count(*) AS ids, count(DISTINCT id::float8) AS numbers
FROM generate_series(1278735254799392768, 1278735254799392768 + 4095) AS id;
SELECT name FROM snowflake_layouts() WHERE js_safe ORDER BY name;

REVOKE ALL ON sample FROM regress_snowflake_clerk;
DROP ROLE regress_snowflake_clerk;
DROP FUNCTION positional(bigint, text, int), sqlstate_of(text, text);
DROP TABLE known, text_known, encoding_csv, other_text, format, sample, encoded;
