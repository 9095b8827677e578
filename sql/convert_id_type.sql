-- Keys become of type snowflake_id, with what references them and the views on them, and bigint again.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
-- the first ids of a server start max_ahead after the creation of the table: until then
SELECT pg_sleep(extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp()) + 0.1) AS slept \gset
CREATE SCHEMA shop;
SET search_path = shop, public;
\set SHOW_CONTEXT never
\pset format unaligned
\pset null '-'
CREATE VIEW public.columns AS
SELECT a.attrelid::regclass AS relation, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
	pg_get_expr(d.adbin, d.adrelid) AS "default", nullif(a.attidentity, '') AS identity
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v') AND c.relnamespace::regnamespace::text = 'shop' AND a.attname ~ 'id$'
ORDER BY c.relname COLLATE "C", a.attnum;
CREATE TABLE album (id serial PRIMARY KEY, title text);
CREATE TABLE track (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, album_id int REFERENCES album, CHECK (album_id > 0));
CREATE TABLE part (album_id bigint, day date, FOREIGN KEY (album_id) REFERENCES album) PARTITION BY RANGE (day);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE TABLE of_track (track_id bigint REFERENCES track);
CREATE VIEW shown AS SELECT a.id, t.id AS track_id FROM album AS a JOIN track AS t ON t.album_id = a.id;
INSERT INTO album (title) VALUES ('one');
INSERT INTO track (album_id) VALUES (1);
INSERT INTO part VALUES (1, '2024-05-05');
SELECT count(*) FROM snowflake_convert_column('album', 'id', type => 'nothing');
\echo :LAST_ERROR_SQLSTATE
SELECT s FROM snowflake_convert_column('album', 'id', dry_run => false, type => 'snowflake_id') AS s WHERE s ~ '^ALTER|DROP';
SELECT * FROM columns;
-- once is enough; one that has ids already only changes its type; bigint by default does not change it back
SELECT * FROM snowflake_convert_column('album', 'id', dry_run => false, type => 'snowflake_id');
SELECT * FROM snowflake_convert_column('album', 'id', dry_run => false);
SELECT count(*) FROM snowflake_convert_column('track', 'id', dry_run => false);
SELECT s FROM snowflake_convert_column('track', 'id', dry_run => false, type => 'snowflake_id') AS s WHERE s ~ '^ALTER|DROP';
INSERT INTO album (title) VALUES ('two');
INSERT INTO track (album_id) SELECT max(id) FROM album;
INSERT INTO of_track SELECT max(id) FROM track;
INSERT INTO part SELECT max(id), '2024-06-06' FROM album;
INSERT INTO track (album_id) VALUES (77);
SELECT jsonb_typeof(to_jsonb(a)->'id') AS type, id > 1000000 AS new_id FROM album AS a ORDER BY id;
SELECT count(*) FROM shown;
DELETE FROM part;
DELETE FROM of_track;
DELETE FROM track WHERE id > 1000000;
DELETE FROM album WHERE id > 1000000;
-- and back
SELECT regexp_replace(content, '\s+', ' ', 'g') FROM snowflake_revert_schema('shop', dry_run => false) WHERE content ~ '^ALTER TABLE|^CREATE SEQ';
SELECT * FROM columns;
INSERT INTO album (title) VALUES ('two') RETURNING id;
INSERT INTO track (album_id) VALUES (2) RETURNING id;
SELECT count(*) FROM shown;
-- a whole schema; a key of snowflake_id can get new ids
SELECT content FROM snowflake_convert_schema('shop', type => 'snowflake_id') WHERE kind IN ('summary', 'left', 'refusal', 'finding');
SELECT count(*) FROM snowflake_convert_schema('shop', dry_run => false, type => 'snowflake_id');
SELECT DISTINCT type FROM columns;
SELECT count(statement) FROM snowflake_rekey_column('album', 'id', '''2024-05-05''::date + id::int', dry_run => false);
SELECT count(*), min(snowflake_timestamp(a.id)) FROM album AS a JOIN track ON album_id = a.id;
-- what a policy reads is not made bigint again
CREATE POLICY few ON album USING (id > 5);
SELECT content FROM snowflake_revert_schema('shop') WHERE kind = 'refusal';
-- a partition key cannot
CREATE TABLE by_id (id bigserial PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE by_id_all PARTITION OF by_id DEFAULT;
SELECT content FROM snowflake_convert_schema('shop', type => 'snowflake_id') WHERE kind = 'refusal';

-- what references one partition goes there and back
CREATE SCHEMA parts;
CREATE TABLE parts.part (id bigint GENERATED ALWAYS AS IDENTITY, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE parts.part_1 PARTITION OF parts.part FOR VALUES IN (1);
CREATE TABLE parts.ref (id bigint, k int, CONSTRAINT of_part FOREIGN KEY (id, k) REFERENCES parts.part_1 (id, k) ON DELETE CASCADE);
COMMENT ON CONSTRAINT of_part ON parts.ref IS 'of one partition';
INSERT INTO parts.part (k) VALUES (1);
INSERT INTO parts.ref VALUES (1, 1);
SELECT * FROM snowflake_convert_column('parts.part', 'id', dry_run => false, type => 'snowflake_id');
SELECT * FROM snowflake_revert_column('parts.part', 'id', dry_run => false);
SELECT attrelid::regclass AS relation, format_type(atttypid, NULL) AS type FROM pg_attribute
WHERE attrelid IN ('parts.part'::regclass, 'parts.part_1'::regclass, 'parts.ref'::regclass) AND attname = 'id' ORDER BY 1;
SELECT pg_get_constraintdef(oid), obj_description(oid) FROM pg_constraint WHERE conname = 'of_part' AND conparentid = 0;
-- an identity that follows cannot, until it is none any more; of a schema both are converted
CREATE TABLE parts.party (id int PRIMARY KEY);
CREATE TABLE parts.person (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY REFERENCES parts.party);
SELECT * FROM snowflake_convert_column('parts.party', 'id', type => 'snowflake_id');
BEGIN;
ALTER TABLE parts.party ALTER id ADD GENERATED ALWAYS AS IDENTITY;
SELECT count(*) FROM snowflake_convert_schema('parts', dry_run => false, type => 'snowflake_id');
ROLLBACK;
SELECT count(*) FROM snowflake_convert_column('parts.person', 'id', dry_run => false);
SELECT count(*) FROM snowflake_convert_column('parts.party', 'id', dry_run => false, type => 'snowflake_id');

\pset format aligned
\pset null ''
DROP VIEW columns;
SET client_min_messages = error;
DROP SCHEMA shop, parts CASCADE;
RESET client_min_messages;
RESET search_path;
DROP EXTENSION snowflake_tools;
