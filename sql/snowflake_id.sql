-- The type snowflake_id: a string in JSON, and a bigint in all else.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\pset format unaligned
\pset tuples_only
\set SHOW_CONTEXT never

CREATE TABLE parcel (id snowflake_id PRIMARY KEY DEFAULT snowflake_nextval(), parent snowflake_id REFERENCES parcel, big bigint, note text);
INSERT INTO parcel (note) VALUES ('default');
INSERT INTO parcel (note) SELECT 'default' FROM generate_series(1, 100);
SELECT count(DISTINCT id), pg_typeof(min(id)), min(id) > 9007199254740992 FROM parcel;
DELETE FROM parcel;
INSERT INTO parcel VALUES (2124094861762502657, NULL, 2124094861762502657, 'a'), ('2124094861762502658', 2124094861762502657, 7, 'b');
INSERT INTO parcel VALUES (5, NULL, 5, 'integer'), (6::smallint, NULL, 6, 'smallint'), (7::numeric, NULL, 7, 'numeric'), (8::bigint, NULL, 8, 'bigint');

--
-- JSON has a string, also in arrays, records, domains and functions that PostgREST, PostGraphile and object mappers call
--
SELECT row_to_json(p) FROM parcel AS p WHERE id > 100 ORDER BY id;
SELECT to_json(id), to_jsonb(id), to_jsonb(p), json_build_array(id, big), jsonb_build_object('id', id, 'of', parent) FROM parcel AS p WHERE note = 'b';
SELECT json_agg(id ORDER BY id), jsonb_agg(p ORDER BY id), json_object_agg(note, id ORDER BY id), to_jsonb(array_agg(id ORDER BY id)) FROM parcel AS p WHERE id > 100;
CREATE DOMAIN parcel_id AS snowflake_id CHECK (value > 0);
CREATE DOMAIN number_id AS bigint;
SELECT to_json(id::parcel_id), to_json(id::number_id), to_json(ARRAY[id, 1]), to_json(ROW(id, id::bigint)), to_json(max(id)) FROM parcel WHERE note = 'a' GROUP BY id;
SELECT 0::parcel_id;
-- in the form of PostgREST's statements, with embedded rows, and of PostGraphile's
WITH pgrst_source AS (SELECT "parcel"."id", "parcel"."note", COALESCE("parcel_1"."parcel_1", '[]') AS "children", row_to_json("up_1".*) AS "up" FROM "parcel"
	LEFT JOIN LATERAL (SELECT "up"."id" FROM "parcel" AS "up" WHERE "up"."id" = "parcel"."parent") AS "up_1" ON TRUE
	LEFT JOIN LATERAL (SELECT json_agg("parcel_1") AS "parcel_1" FROM (SELECT "child"."id", "child"."parent" FROM "parcel" AS "child"
		WHERE "child"."parent" = "parcel"."id") AS "parcel_1") AS "parcel_1" ON TRUE
	WHERE "parcel"."id" = ANY ('{2124094861762502657,2124094861762502658}') AND "parcel"."id" >= '2124094861762502657')
SELECT pg_catalog.count(_postgrest_t) AS page_total, coalesce(json_agg(_postgrest_t), '[]') AS body FROM (SELECT * FROM pgrst_source) _postgrest_t;
WITH pgrst_payload AS (SELECT '[{"id": "9007199254740993", "note": "text"}, {"id": 9007199254740995, "note": "number"}]'::json AS json_data),
	pgrst_source AS (INSERT INTO "parcel" ("id", "note") SELECT "id", "note" FROM pgrst_payload, json_to_recordset(json_data) AS _("id" snowflake_id, "note" text)
		RETURNING "parcel"."id", "parcel"."note")
SELECT coalesce(json_agg(_postgrest_t), '[]') FROM (SELECT * FROM pgrst_source) _postgrest_t;
SELECT to_json((json_build_object('@id', (__local_0__."id"), '@parent', (__local_0__."parent")))) FROM "parcel" AS __local_0__ WHERE (__local_0__."id") = ('2124094861762502658')::snowflake_id;
-- it is read from strings and numbers, exactly
SELECT id FROM jsonb_populate_record(NULL::parcel, '{"id": 2124094861762502657}')
UNION ALL SELECT id FROM jsonb_populate_record(NULL::parcel, '{"id": "2124094861762502657"}')
UNION ALL SELECT id FROM json_populate_recordset(NULL::parcel, '[{"id": 2124094861762502657}, {"id": "2124094861762502657"}]');
SELECT xmlforest(id) IS NOT NULL, format('%s', id), id || 'x', id::text, concat(id) FROM parcel WHERE note = 'a';

--
-- Input and output
--
SELECT '9223372036854775807'::snowflake_id, '-9223372036854775808'::snowflake_id, ' 12 '::snowflake_id;
SELECT '9223372036854775808'::snowflake_id;
SELECT 'x'::snowflake_id;
SELECT 9223372036854775808::snowflake_id;
SELECT 5.5::snowflake_id;
SELECT '2124094861762502657'::snowflake_id::integer;
SELECT 7::snowflake_id::integer, 7::snowflake_id::numeric, 7::snowflake_id::bigint::float8;
COPY (SELECT id, parent FROM parcel WHERE id > 9007199254740999 ORDER BY id) TO STDOUT;
-- what else the type has of bigint
SELECT typname, typlen = 8, typbyval = (SELECT typbyval FROM pg_type WHERE oid = 'bigint'::regtype), typcategory FROM pg_type WHERE oid = 'snowflake_id'::regtype;

--
-- Expressions of both types
--
SELECT pg_typeof(coalesce(id, 0)), pg_typeof(coalesce(id, 0::bigint)), pg_typeof(coalesce(big, id)), pg_typeof(CASE WHEN true THEN id ELSE 0 END),
	pg_typeof(greatest(id, 5)), pg_typeof(nullif(id, 5)), pg_typeof(ARRAY[id, 0]), pg_typeof(id + 1), pg_typeof(coalesce(id, '0')) FROM parcel WHERE note = 'a';
SELECT pg_typeof(x) FROM (SELECT id FROM parcel UNION SELECT 0::bigint) AS u (x) LIMIT 1;
SELECT pg_typeof(x) FROM (SELECT 0::bigint UNION SELECT id FROM parcel) AS u (x) LIMIT 1;
SELECT pg_typeof(x) FROM (SELECT 0 UNION SELECT id FROM parcel) AS u (x) LIMIT 1;
SELECT pg_typeof(x) FROM (VALUES (0), (1::snowflake_id)) AS v (x) LIMIT 1;
SELECT id % 10, id / 2 > 0, -id < 0, id > 1, id >= 1::smallint, id BETWEEN 1 AND 2, abs(id) > 0, id = '2124094861762502657', id <> 5, mod(id, 7), id >> 22, id & 4095,
	to_char(id, '9999999999999999999') FROM parcel WHERE note = 'a';
SELECT sum(id), max(id), min(id), avg(id), count(DISTINCT id), pg_typeof(max(id)), pg_typeof(array_agg(id)) FROM parcel WHERE id BETWEEN 5 AND 8;
SELECT count(*) FROM parcel WHERE id IN (SELECT big FROM parcel);
SELECT count(*) FROM parcel WHERE big IN (SELECT id FROM parcel);
SELECT count(*) FROM parcel WHERE id IN (5, 6, 2124094861762502657);
SELECT count(*) FROM parcel WHERE id = ANY (ARRAY[5, 6]);
SELECT count(*) FROM parcel WHERE id = ANY ('{5,6}'::bigint[]);
SELECT count(*) FROM parcel WHERE id = ANY ('{5,6}');
SELECT count(*) FROM parcel AS a JOIN parcel AS b ON a.id = b.big;
SELECT count(*), pg_typeof(min(id)) FROM parcel JOIN (SELECT big AS id FROM parcel) AS b USING (id);
SELECT array_agg(id ORDER BY id)::bigint[], '{5,6}'::bigint[]::snowflake_id[] = array_agg(id ORDER BY id), array_position(array_agg(id ORDER BY id), 6),
	array_append(array_agg(id ORDER BY id), 9), array_agg(id) && '{5}', array_agg(id) @> '{5,6}' FROM parcel WHERE id IN (5, 6);
SELECT id, row_number() OVER (ORDER BY id), lag(id) OVER (ORDER BY id), count(*) OVER (ORDER BY id RANGE BETWEEN 2 PRECEDING AND CURRENT ROW) FROM parcel WHERE id < 100 ORDER BY id DESC;
SELECT DISTINCT id FROM parcel WHERE id < 7 ORDER BY id;
SELECT (p."timestamp", p.sequence) FROM parcel, snowflake_parse(id) AS p WHERE note = 'a';
SELECT snowflake_timestamp(id), snowflake_decode(snowflake_encode(id, 'base62'), 'base62') = id, snowflake_unmask(snowflake_mask(id, '0123456789abcdef'), '0123456789abcdef') = id,
	(SELECT layout FROM snowflake_guess(id, '2026-11-22') LIMIT 1) FROM parcel WHERE note = 'a';
CREATE FUNCTION taken(bigint) RETURNS text LANGUAGE sql AS $$SELECT 'bigint'$$;
CREATE FUNCTION taken(text) RETURNS text LANGUAGE sql AS $$SELECT 'text'$$;
CREATE FUNCTION taken(numeric) RETURNS text LANGUAGE sql AS $$SELECT 'numeric'$$;
SELECT taken(id) FROM parcel WHERE note = 'a';
-- statements of others see nothing of the type
SELECT taken(5::bigint), taken(5.5), taken('x'), pg_typeof(coalesce(5::bigint, 0)), 5::bigint = 5.0, 5::bigint % 2, '{5}'::bigint[] && '{5}';
-- not as for bigint: the page says what to write instead (details and hints differ between majors)
\set VERBOSITY terse
SELECT id = 5.0 FROM parcel;
SELECT id * 0.5::float8 FROM parcel;
SELECT ARRAY[id] && ARRAY[big] FROM parcel;
SELECT id <@ snowflake_range('2026-11-21', '2026-11-22') FROM parcel;
CREATE TABLE numbered (id snowflake_id GENERATED ALWAYS AS IDENTITY);
CREATE FUNCTION ids() RETURNS TABLE (id bigint) LANGUAGE plpgsql AS $$BEGIN RETURN QUERY SELECT p.id FROM parcel AS p; END$$;
SELECT * FROM ids();
\set VERBOSITY default
SELECT count(*) FROM parcel WHERE id::bigint = 5.0 OR snowflake_range('2026-11-21', '2026-11-22') @> id::bigint OR ARRAY[id] && ARRAY[big]::snowflake_id[];

--
-- Keys, indexes and plans
--
CREATE TABLE plain (id bigint PRIMARY KEY, parcel_id bigint REFERENCES parcel);
CREATE TABLE item (id parcel_id PRIMARY KEY, plain_id snowflake_id REFERENCES plain ON UPDATE CASCADE, parcel_id parcel_id REFERENCES parcel ON DELETE CASCADE);
INSERT INTO plain VALUES (1, 5), (2, 2124094861762502657);
INSERT INTO plain VALUES (3, 4);
INSERT INTO item VALUES (1, 1, 6), (2, 2, 7);
INSERT INTO item VALUES (3, 3, 6);
UPDATE plain SET id = 4 WHERE id = 1;
DELETE FROM parcel WHERE id = 6;
DELETE FROM parcel WHERE id = 5;
SELECT * FROM item;
INSERT INTO parcel (id, note) VALUES (7, 'again') ON CONFLICT (id) DO UPDATE SET note = excluded.note RETURNING id, note;
INSERT INTO parcel (id, note) VALUES (7, 'twice');
CREATE TABLE many AS SELECT n::snowflake_id AS id, n::snowflake_id % 10 AS rest FROM generate_series(1, 10000) AS n;
CREATE UNIQUE INDEX many_btree ON many (id);
CREATE INDEX many_hash ON many USING hash (id);
CREATE INDEX many_brin ON many USING brin (id);
ANALYZE many;
CREATE TABLE big AS SELECT n AS id FROM generate_series(1, 10000::bigint) AS n;
CREATE INDEX ON big (id);
ANALYZE big;
SELECT attname, n_distinct, (histogram_bounds IS NOT NULL) FROM pg_stats WHERE tablename = 'many' ORDER BY 1;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET plan_cache_mode = force_generic_plan;
PREPARE by_unknown AS SELECT id FROM many WHERE id = $1;
PREPARE by_bigint (bigint) AS SELECT id FROM many WHERE id = $1 OR id = $1 + 1;
PREPARE by_array (bigint[]) AS SELECT id FROM many WHERE id = ANY ($1);
PREPARE by_range (integer) AS SELECT id FROM many WHERE id > $1 ORDER BY id LIMIT 1;
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'by_unknown';
DROP INDEX many_btree;
EXPLAIN (COSTS OFF) EXECUTE by_unknown (7);
EXECUTE by_unknown (7);
DROP INDEX many_hash;
CREATE UNIQUE INDEX many_btree ON many (id);
EXPLAIN (COSTS OFF) EXECUTE by_unknown (7);
EXPLAIN (COSTS OFF) EXECUTE by_array ('{7,8}');
EXPLAIN (COSTS OFF) EXECUTE by_range (7);
EXECUTE by_bigint (7);
EXECUTE by_array ('{7,8}');
EXECUTE by_range (7);
SET enable_hashjoin = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM many JOIN big ON many.id = big.id;
SELECT count(*) FROM many JOIN big ON many.id = big.id;
RESET enable_hashjoin;
SET enable_mergejoin = off;
SELECT count(*) FROM many JOIN big ON many.id = big.id;
RESET ALL;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE INDEX ON many USING gin ((ARRAY[id]));
SELECT count(*) FROM many WHERE ARRAY[id] @> '{7}';

--
-- Partitions, and the functions that make them
--
CREATE TABLE event (id snowflake_id PRIMARY KEY DEFAULT snowflake_nextval(), note text) PARTITION BY RANGE (id);
SELECT snowflake_create_partitions('event', '2026-01-01', '2026-07-01', '3 months', 'twitter', false);
SELECT count(*) FROM snowflake_create_partitions('event', '2026-01-01', '2027-01-01', '3 months', 'twitter', false);
SELECT count(*) FROM snowflake_create_partitions('event', '2026-01-01', '2027-01-01', '3 months', 'twitter', false);
INSERT INTO event SELECT snowflake_compose(ts, 1, 0, 'twitter'), ts::date::text FROM generate_series('2026-01-01'::timestamptz, '2026-12-31', '1 day') AS ts;
ANALYZE event;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE snowflake_within(id, '2026-11-21', '2026-11-22', 'twitter');
SELECT count(*) FROM event WHERE snowflake_within(id, '2026-11-21', '2026-11-23', 'twitter');
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT tableoid::regclass, note FROM event WHERE id = snowflake_compose('2026-05-05', 1, 0, 'twitter');
SELECT snowflake_drop_partitions('event', '2026-04-01', 'twitter', false);
CREATE TABLE hashed (id snowflake_id PRIMARY KEY) PARTITION BY HASH (id);
CREATE TABLE hashed_big (id bigint PRIMARY KEY) PARTITION BY HASH (id);
SELECT format('CREATE TABLE %1$s_%2$s PARTITION OF %1$s FOR VALUES WITH (MODULUS 2, REMAINDER %2$s)', t, n) FROM unnest('{hashed,hashed_big}'::text[]) AS t, generate_series(0, 1) AS n \gexec
INSERT INTO hashed SELECT generate_series(1, 1000);
INSERT INTO hashed_big SELECT generate_series(1, 1000);
SELECT count(*) FROM hashed_0 JOIN hashed_big_0 USING (id);
EXPLAIN (COSTS OFF) SELECT * FROM hashed WHERE id = 7::bigint;
CREATE TABLE listed (id parcel_id) PARTITION BY LIST (id);
CREATE TABLE listed_1 PARTITION OF listed FOR VALUES IN (1, '2124094861762502657');
INSERT INTO listed VALUES (2124094861762502657);

--
-- Views, functions, columns that change their type
--
CREATE VIEW seen AS SELECT id, coalesce(parent, 0) AS parent FROM parcel WHERE id > 100 AND id <> 7::bigint;
SELECT json_agg(s ORDER BY id) FROM seen AS s WHERE id < 9007199254740999;
CREATE MATERIALIZED VIEW kept AS SELECT id, max(id) AS newest FROM parcel GROUP BY id;
SELECT attname, atttypid::regtype FROM pg_attribute WHERE attrelid = 'kept'::regclass AND attnum > 0;
CREATE FUNCTION newest() RETURNS snowflake_id LANGUAGE sql AS 'SELECT max(id) FROM parcel';
CREATE FUNCTION children(of bigint) RETURNS SETOF bigint LANGUAGE sql AS 'SELECT id FROM parcel WHERE parent = $1';
SELECT to_json(newest()), children(2124094861762502657);
CREATE TABLE changed (id integer PRIMARY KEY, other bigint);
CREATE INDEX changed_other ON changed (other);
INSERT INTO changed VALUES (1, 2124094861762502657);
CREATE TABLE referring (id integer REFERENCES changed);
INSERT INTO referring VALUES (1);
ALTER TABLE changed ALTER id TYPE snowflake_id;
ALTER TABLE referring ALTER id TYPE bigint;
SELECT ARRAY[pg_relation_filenode('changed'), pg_relation_filenode('changed_other')]::text AS before \gset
ALTER TABLE changed ALTER other TYPE snowflake_id;
SELECT ARRAY[pg_relation_filenode('changed'), pg_relation_filenode('changed_other')]::text = :'before' AS not_rewritten;
SELECT to_json(c), to_json(r) FROM changed AS c JOIN referring AS r USING (id);
ALTER TABLE changed ALTER other TYPE bigint, ALTER id TYPE integer;
SELECT to_json(c) FROM changed AS c;

--
-- Auditing, and rights
--
CREATE TABLE found (id snowflake_id);
INSERT INTO found SELECT generate_series(1, 10) UNION ALL SELECT 5;
SELECT finding, count, id FROM snowflake_audit('found', 'id', NULL);
ALTER TABLE found ALTER id TYPE parcel_id;
SELECT count(*) FROM snowflake_audit('found', 'id', NULL);
SELECT snowflake_audit('parcel', 'note', NULL);
CREATE ROLE regress_snowflake_sender;
GRANT ALL ON SCHEMA public TO regress_snowflake_sender;
SET ROLE regress_snowflake_sender;
CREATE TABLE sent (id snowflake_id PRIMARY KEY DEFAULT snowflake_nextval());
INSERT INTO sent DEFAULT VALUES RETURNING id > 0;
SELECT snowflake_internal.snowflake_id_in('5'), snowflake_internal.snowflake_id_out(5), snowflake_internal.snowflake_id_send(5);
DROP TABLE sent;
RESET ROLE;
REVOKE ALL ON SCHEMA public FROM regress_snowflake_sender;
DROP ROLE regress_snowflake_sender;

-- DROP EXTENSION ... CASCADE drops the columns: change their type before
CREATE DATABASE regress_snowflake_left;
\set home :DBNAME
\c regress_snowflake_left
SET client_min_messages = warning;
CREATE EXTENSION snowflake;
CREATE TABLE parcel (id snowflake_id PRIMARY KEY, big snowflake_id, note text);
\set VERBOSITY terse
DROP EXTENSION snowflake;
ALTER TABLE parcel ALTER big TYPE bigint;
DROP EXTENSION snowflake CASCADE;
SELECT attname, atttypid::regtype FROM pg_attribute WHERE attrelid = 'parcel'::regclass AND attnum > 0 AND NOT attisdropped;
\c :home
DROP DATABASE regress_snowflake_left;
DROP MATERIALIZED VIEW kept;
DROP VIEW seen;
DROP FUNCTION newest(), children(bigint), ids(), taken(bigint), taken(text), taken(numeric);
DROP TABLE parcel, plain, item, many, big, event, hashed, hashed_big, listed, changed, referring, found;
DROP DOMAIN parcel_id, number_id;
RESET timezone;
RESET datestyle;
DROP EXTENSION snowflake_tools;
