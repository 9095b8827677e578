-- Converting columns of existing tables: what is refused, before anything is done, and
-- equally in a dry run.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE ROLE regress_snowflake_owner;
CREATE ROLE regress_snowflake_other;
CREATE SCHEMA shop AUTHORIZATION regress_snowflake_owner;
GRANT ALL ON SCHEMA shop TO regress_snowflake_other;
SET search_path = shop, public;

-- the columns of tables
CREATE VIEW public.columns AS
SELECT a.attrelid::regclass AS relation, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
	pg_get_expr(d.adbin, d.adrelid) AS "default", nullif(a.attidentity, '') AS identity, a.attnotnull AS not_null
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p') AND c.relnamespace::regnamespace::text = 'shop'
ORDER BY c.relname COLLATE "C", a.attnum;
-- what a statement is refused with, without the ids and times of now
CREATE FUNCTION public.refusal(statement text) RETURNS text LANGUAGE plpgsql
AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'not refused';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN regexp_replace(regexp_replace(concat_ws(E'\n', SQLSTATE || ': ' || SQLERRM, nullif(detail, ''), nullif(hint, '')),
		'\m\d{8,19}\M', '<id>', 'g'), '20[234]\d-\d\d-\d\d \S+', '<time>', 'g');
END
$$;
CREATE FUNCTION public.convert_refusal("table" text, "column" text, layout text DEFAULT NULL) RETURNS text LANGUAGE sql
AS $$
	SELECT CASE WHEN dry = wet THEN dry ELSE format('dry: %s wet: %s', dry, wet) END
	FROM public.refusal(format('SELECT public.snowflake_convert_column(%L, %L, %L)', "table", "column", layout)) dry,
		public.refusal(format('SELECT public.snowflake_convert_column(%L, %L, %L, false)', "table", "column", layout)) wet
$$;
\set SHOW_CONTEXT never
\pset null '-'
\pset format unaligned
CREATE TABLE t_serial (id serial PRIMARY KEY);
CREATE TABLE t_bigserial (id bigserial);

--
-- What depends on the column's type keeps it from being changed, but for views and rules; nothing is half done
--
CREATE TABLE held (id serial PRIMARY KEY, note text);
CREATE TABLE holder (held_id int REFERENCES held);
CREATE VIEW v_held AS SELECT id + 1 AS next FROM held;
CREATE MATERIALIZED VIEW m_held AS SELECT note FROM held WHERE id > 5;
CREATE RULE r_held AS ON DELETE TO held WHERE old.id < 5 DO INSTEAD NOTHING;
ALTER TABLE held ADD twice int GENERATED ALWAYS AS (id * 2) STORED;
CREATE POLICY p_held ON held USING (id > 0);
CREATE FUNCTION f_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$;
CREATE TRIGGER t_of BEFORE UPDATE OF id ON held FOR EACH ROW EXECUTE FUNCTION f_trigger();
CREATE TRIGGER t_when BEFORE UPDATE ON held FOR EACH ROW WHEN (new.id > 0) EXECUTE FUNCTION f_trigger();
CREATE TRIGGER t_harmless BEFORE UPDATE OF note ON held FOR EACH ROW EXECUTE FUNCTION f_trigger();
CREATE FUNCTION f_held() RETURNS bigint BEGIN ATOMIC SELECT max(id) FROM held; END;
CREATE TABLE uses_row (h held, hs held[]);
SET client_min_messages = error;	-- of wal_level
CREATE PUBLICATION p_columns FOR TABLE held (id, note);
CREATE PUBLICATION p_rows FOR TABLE held WHERE (id > 5);
CREATE PUBLICATION p_all FOR TABLE held;
SET client_min_messages = warning;
SELECT convert_refusal('held', 'id');
DROP VIEW v_held;
DROP MATERIALIZED VIEW m_held;
DROP RULE r_held ON held;
ALTER TABLE held DROP twice;
DROP POLICY p_held ON held;
DROP TRIGGER t_of ON held;
DROP TRIGGER t_when ON held;
DROP FUNCTION f_held;
DROP TABLE uses_row;
DROP PUBLICATION p_columns, p_rows;
-- of a column that would follow
CREATE POLICY p_holder ON holder USING (held_id > 5);
SELECT convert_refusal('held', 'id');
SELECT relation, name, type FROM columns WHERE relation IN ('held'::regclass, 'holder'::regclass);
DROP POLICY p_holder ON holder;
SELECT * FROM snowflake_convert_column('held', 'id', dry_run => false);
-- bigint already: nothing of this matters
CREATE VIEW v_held AS SELECT id + 1 AS next FROM held;
ALTER TABLE held ALTER id DROP DEFAULT;
SELECT * FROM snowflake_convert_column('held', 'id', dry_run => false);
-- the sequence of an identity would go
CREATE TABLE share_3 (id int GENERATED ALWAYS AS IDENTITY);
CREATE TABLE share_4 (id int DEFAULT nextval('share_3_id_seq'));
SELECT convert_refusal('share_3', 'id');
DROP TABLE share_4, share_3;
-- an error in the middle undoes all
CREATE TABLE broken (id int);
CREATE TABLE breaks (broken_id int);
INSERT INTO breaks VALUES (5);
ALTER TABLE broken ADD PRIMARY KEY (id);
CREATE FUNCTION fragile(i anyelement) RETURNS int IMMUTABLE LANGUAGE plpgsql
AS $$ BEGIN IF pg_typeof(i) <> 'integer'::regtype THEN RAISE 'not an integer'; END IF; RETURN 1; END $$;
ALTER TABLE breaks ADD FOREIGN KEY (broken_id) REFERENCES broken NOT VALID, ADD CHECK (fragile(broken_id) = 1);
SELECT refusal($$SELECT snowflake_convert_column('broken', 'id', NULL, false)$$);
SELECT * FROM columns WHERE relation::text ~ '^br';
DROP TABLE held, holder, breaks, broken CASCADE;

--
-- Columns and tables that make no sense
--
CREATE DOMAIN number AS int;
CREATE TYPE row_type AS (id int, note text);
CREATE TABLE odd (id number, name text, total numeric, double int GENERATED ALWAYS AS (1) STORED, gone int);
ALTER TABLE odd DROP gone;
CREATE TABLE typed OF row_type;
CREATE VIEW a_view AS SELECT 1 AS id;
CREATE FOREIGN DATA WRAPPER nothing;
CREATE SERVER nothing FOREIGN DATA WRAPPER nothing;
CREATE FOREIGN TABLE abroad (id int) SERVER nothing;
CREATE TABLE home (id int, k int) PARTITION BY LIST (k);
CREATE FOREIGN TABLE home_1 PARTITION OF home FOR VALUES IN (1) SERVER nothing;
SELECT convert_refusal('odd', 'id');
SELECT convert_refusal('odd', 'name');
SELECT convert_refusal('odd', 'total');
SELECT convert_refusal('odd', 'double');
SELECT convert_refusal('odd', 'gone');
SELECT convert_refusal('odd', '........pg.dropped.5........');
SELECT convert_refusal('odd', 'ctid');
SELECT convert_refusal('odd', 'ID');
SELECT convert_refusal('typed', 'id');
SELECT convert_refusal('a_view', 'id');
SELECT convert_refusal('abroad', 'id');
SELECT convert_refusal('home', 'id');
SELECT convert_refusal('t_serial_id_seq', 'last_value');
SELECT convert_refusal('t_serial_pkey', 'id');
SELECT convert_refusal('row_type', 'id');
SELECT convert_refusal('pg_class', 'relpages');
SELECT convert_refusal('information_schema.sql_features', 'feature_id');
CREATE TABLE member (id serial PRIMARY KEY);
ALTER EXTENSION snowflake ADD TABLE member;
SELECT convert_refusal('member', 'id');
ALTER EXTENSION snowflake DROP TABLE member;
DROP TABLE member;
SELECT convert_refusal('t_nowhere', 'id');
SELECT convert_refusal('4294967295', 'id');
SELECT convert_refusal(NULL, 'id');
SELECT convert_refusal('t_serial', NULL);
SELECT convert_refusal('t_serial', 'id', 'nobody''s');
-- a reference that cannot follow
CREATE TABLE target (id int PRIMARY KEY);
CREATE TABLE by_domain (target_id number REFERENCES target);
SELECT convert_refusal('target', 'id');
DROP TABLE by_domain;
CREATE TABLE by_generated (target_id int GENERATED ALWAYS AS (1) STORED REFERENCES target);
SELECT convert_refusal('target', 'id');
DROP TABLE by_generated;
CREATE TABLE by_key (target_id int REFERENCES target) PARTITION BY LIST (target_id);
SELECT convert_refusal('target', 'id');
DROP TABLE by_key, target;
-- a typed table's bigint is fine
CREATE TYPE row_type_8 AS (id bigint);
CREATE TABLE typed_8 OF row_type_8;
SELECT snowflake_convert_column('typed_8', 'id');
DROP TABLE odd, typed, typed_8, home;
DROP FOREIGN TABLE abroad;
DROP FOREIGN DATA WRAPPER nothing CASCADE;
-- a partition, or what inherits the column
CREATE TABLE part (id int, k int) PARTITION BY LIST (k);
CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1) PARTITION BY LIST (k);
CREATE TABLE part_1_1 PARTITION OF part_1 FOR VALUES IN (1);
CREATE TABLE child (own int) INHERITS (t_serial);
CREATE TABLE "grand child" () INHERITS (child);
SELECT convert_refusal('part_1', 'id');
SELECT convert_refusal('part_1_1', 'id');
SELECT convert_refusal('child', 'id');
SELECT convert_refusal('"grand child"', 'own');
SELECT refusal($$SELECT snowflake_revert_column('part_1', 'id', false)$$);
DROP TABLE part, child, "grand child";
-- with two parents it can be converted as bigint only
CREATE TABLE father (number int);
CREATE TABLE mother (number int);
CREATE TABLE heir () INHERITS (father, mother);
SELECT convert_refusal('father', 'number');
SELECT convert_refusal('heir', 'number');
DROP TABLE heir, father, mother;
-- snapshots that are older than the locks
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT refusal($$SELECT snowflake_convert_column('t_bigserial', 'id', 'js53', false)$$);
SELECT refusal($$SELECT snowflake_revert_column('t_bigserial', 'id', false)$$);
SELECT count(*) FROM snowflake_convert_column('t_bigserial', 'id', 'js53');
COMMIT;

--
-- Ids as partition key: there must be room for new ones
--
CREATE TABLE by_id (id bigint DEFAULT 1, k int) PARTITION BY RANGE (id);
SELECT convert_refusal('by_id', 'id');
CREATE TABLE by_id_1 PARTITION OF by_id FOR VALUES FROM (-1000) TO (1000000);
CREATE TABLE by_id_2 PARTITION OF by_id FOR VALUES FROM (8000000000000000000) TO (MAXVALUE);
SELECT convert_refusal('by_id', 'id');
BEGIN;
CREATE TABLE by_id_default PARTITION OF by_id DEFAULT;
SELECT snowflake_convert_column('by_id', 'id', dry_run => false);
ROLLBACK;
-- a partition that is partitioned must have room, too
CREATE TABLE by_id_3 PARTITION OF by_id FOR VALUES FROM (1000000) TO (8000000000000000000) PARTITION BY RANGE (id);
CREATE TABLE by_id_3_1 PARTITION OF by_id_3 FOR VALUES FROM (MINVALUE) TO (2000000);
SELECT convert_refusal('by_id', 'id');
CREATE TABLE by_id_3_2 PARTITION OF by_id_3 FOR VALUES FROM (2000000) TO (MAXVALUE);
SELECT snowflake_convert_column('by_id', 'id', dry_run => false);
INSERT INTO by_id (k) VALUES (1) RETURNING tableoid::regclass;
CREATE TABLE by_day (id bigint, day date) PARTITION BY RANGE (day);
SELECT snowflake_convert_column('by_day', 'id');
CREATE TABLE by_list (id bigint, k int) PARTITION BY LIST (id);
CREATE TABLE by_list_1 PARTITION OF by_list FOR VALUES IN (1, 2, 3);
SELECT convert_refusal('by_list', 'id');
CREATE TABLE by_hash (id bigint, k int) PARTITION BY HASH (id);
CREATE TABLE by_hash_1 PARTITION OF by_hash FOR VALUES WITH (MODULUS 1, REMAINDER 0);
SELECT snowflake_convert_column('by_hash', 'id', dry_run => false);
-- nor of one that references the column
CREATE TABLE referenced (id bigint PRIMARY KEY);
CREATE TABLE referencing (parent bigint REFERENCES referenced) PARTITION BY RANGE (parent);
CREATE TABLE referencing_1 PARTITION OF referencing FOR VALUES FROM (0) TO (1000000);
SELECT convert_refusal('referenced', 'id');
CREATE TABLE referencing_2 PARTITION OF referencing FOR VALUES FROM (1000000) TO (MAXVALUE);
SELECT convert_refusal('referenced', 'id');
DROP TABLE referencing, referenced;
CREATE TABLE by_both (k int, id bigint) PARTITION BY RANGE (id, k);
CREATE TABLE by_both_1 PARTITION OF by_both FOR VALUES FROM (1, 1) TO (2, 2);
SELECT convert_refusal('by_both', 'id');
CREATE TABLE by_both_2 PARTITION OF by_both FOR VALUES FROM (2, 2) TO (MAXVALUE, MAXVALUE);
SELECT snowflake_convert_column('by_both', 'id');
CREATE TABLE by_k_and_id (k int, id bigint) PARTITION BY RANGE (k, id);
CREATE TABLE by_k_and_id_1 PARTITION OF by_k_and_id FOR VALUES FROM (1, 1) TO (2, 2);
SELECT snowflake_convert_column('by_k_and_id', 'id');
-- a key cannot change its type
CREATE TABLE by_integer (id int, k int) PARTITION BY RANGE (id);
CREATE TABLE by_expression (id int, k int) PARTITION BY RANGE ((id / 1000));
CREATE TABLE by_k (id int, k int) PARTITION BY LIST (k);
CREATE TABLE by_k_1 PARTITION OF by_k FOR VALUES IN (1) PARTITION BY HASH (id);
SELECT convert_refusal('by_integer', 'id');
SELECT convert_refusal('by_expression', 'id');
SELECT convert_refusal('by_k', 'id');
DROP TABLE by_id, by_day, by_list, by_hash, by_both, by_k_and_id, by_integer, by_expression, by_k;

--
-- New ids are greater than all that are there
--
CREATE TABLE high (id bigint DEFAULT 1, k int) PARTITION BY LIST (k);
CREATE TABLE high_1 PARTITION OF high FOR VALUES IN (1);
CREATE TABLE high_2 PARTITION OF high FOR VALUES IN (2);
INSERT INTO high VALUES (snowflake_min_id(clock_timestamp() - interval '1 s', 'twitter') - 1, 2);
SELECT count(*) FROM snowflake_convert_column('high', 'id');
INSERT INTO high VALUES (snowflake_min_id(clock_timestamp() + interval '1 hour', 'twitter'), 2);
SELECT convert_refusal('high', 'id');
SELECT count(*) FROM snowflake_convert_column('high', 'id', 'uidgenerator');
UPDATE high SET id = snowflake_min_id('2060-01-01 00:00:00.5+00', 'twitter') + 1 WHERE id > 5;
SELECT convert_refusal('high', 'id');
SELECT convert_refusal('high', 'id', 'timestamp 30, worker 10, sequence 10, tick 1s, epoch 2024-01-01T00:00:00Z');
UPDATE high SET id = 9223372036854775807;
SELECT convert_refusal('high', 'id');
DELETE FROM high;
-- a layout whose ids are small yet
CREATE TABLE low (id int);
INSERT INTO low VALUES (2147483647);
SELECT convert_refusal('low', 'id', 'timestamp 30, worker 2, sequence 1, tick 1s, epoch 2025-01-01T00:00:00Z');
SELECT count(*) FROM snowflake_convert_column('low', 'id', 'timestamp 30, worker 10, sequence 10, tick 1s, epoch 2024-01-01T00:00:00Z');
-- layouts that are not in use, that are for parsing only, and no layout at all
SELECT convert_refusal('low', 'id', 'discord');
SELECT convert_refusal('low', 'id', 'js53, epoch 2023-01-01T00:00:00Z');
SELECT convert_refusal('low', 'id', 'mastodon');
SELECT convert_refusal('low', 'id', 'no such layout');
-- rows that a policy hides from the owner count
ALTER TABLE low OWNER TO regress_snowflake_owner;
ALTER TABLE low ALTER id TYPE bigint;
UPDATE low SET id = 9223372036854775807;
ALTER TABLE low ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SET ROLE regress_snowflake_owner;
SELECT count(*) FROM low;
SELECT convert_refusal('low', 'id');
ALTER TABLE low NO FORCE ROW LEVEL SECURITY;
SELECT convert_refusal('low', 'id');
RESET ROLE;
DROP TABLE high, low;

--
-- Rights: those of the caller
--
SET ROLE regress_snowflake_owner;
CREATE TABLE mine (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text);
GRANT INSERT, SELECT, REFERENCES ON mine TO regress_snowflake_other;
SET ROLE regress_snowflake_other;
SELECT convert_refusal('mine', 'id');
CREATE TABLE theirs (mine_id int REFERENCES mine);
SET ROLE regress_snowflake_owner;
SELECT convert_refusal('mine', 'id');
-- nor with a child that is another's
RESET ROLE;
CREATE TABLE child () INHERITS (mine);
ALTER TABLE child OWNER TO regress_snowflake_other;
SET ROLE regress_snowflake_owner;
SELECT convert_refusal('mine', 'id');
RESET ROLE;
DROP TABLE child;
-- theirs need not change when it is bigint already, though the one that it references does
SET ROLE regress_snowflake_other;
ALTER TABLE theirs ALTER mine_id TYPE bigint;
SET ROLE regress_snowflake_owner;
BEGIN;
SELECT * FROM snowflake_convert_column('mine', 'id', dry_run => false);
ROLLBACK;
RESET ROLE;
DROP TABLE theirs;
SET ROLE regress_snowflake_owner;
SELECT * FROM snowflake_convert_column('mine', 'id', dry_run => false);
SET ROLE regress_snowflake_other;
INSERT INTO mine (note) VALUES ('inserted') RETURNING id > 1000000 AS new_id;
SELECT refusal($$SELECT snowflake_revert_column('mine', 'id')$$);
RESET ROLE;
-- also by a role that is not the owner but may act as it; inserts go on
SELECT regexp_replace(s, '\d{15,}', '<id>') FROM snowflake_revert_column('mine', 'id') s;
SET ROLE regress_snowflake_owner;
SELECT regexp_replace(s, '\d{15,}', '<id>') FROM snowflake_revert_column('mine', 'id') s;
RESET ROLE;
SELECT count(*) FROM snowflake_revert_column('mine', 'id', false);
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'mine_id_seq';
SET ROLE regress_snowflake_other;
INSERT INTO mine (note) VALUES ('inserted') RETURNING id > 1000000 AS next;
RESET ROLE;
DROP TABLE mine;

--
-- Back to a sequence
--
SELECT refusal($$SELECT snowflake_revert_column(NULL, 'id')$$);
SELECT refusal($$SELECT snowflake_revert_column('t_serial', NULL)$$);
SELECT refusal($$SELECT snowflake_revert_column('t_serial', 'nr')$$);
SELECT refusal($$SELECT snowflake_revert_column('t_serial', 'id')$$);
SELECT refusal($$SELECT snowflake_revert_column('pg_class', 'relpages')$$);

CREATE TABLE at_the_end (id bigint DEFAULT public.snowflake_nextval());
INSERT INTO at_the_end VALUES (9223372036854775807);
SELECT refusal($$SELECT snowflake_revert_column('at_the_end', 'id')$$);

--
-- Of a schema
--
CREATE TABLE viewed (id serial PRIMARY KEY);
CREATE POLICY p_viewed ON viewed USING (id > 5);
SELECT refusal($$SELECT snowflake_convert_schema(NULL)$$);
SELECT refusal($$SELECT snowflake_convert_schema('shop', leave_out => NULL)$$);
SELECT refusal($$SELECT snowflake_convert_schema(1::oid::regnamespace)$$);
SELECT refusal($$SELECT snowflake_convert_schema('shop', 'discord')$$);
SELECT refusal($$SELECT snowflake_convert_schema('shop', 'no such layout')$$);
SELECT refusal($$SELECT snowflake_convert_schema('shop', leave_out => '{t_serial}', dry_run => false)$$);
SELECT refusal($$SELECT snowflake_revert_schema(NULL)$$);
SELECT refusal($$SELECT snowflake_revert_schema('shop', dry_run => false)$$);

-- whose owner may not use the schema
CREATE SCHEMA closed;
CREATE TABLE closed.inside (id bigserial PRIMARY KEY);
ALTER TABLE closed.inside OWNER TO regress_snowflake_owner;
SELECT refusal($$SELECT snowflake_convert_column('closed.inside', 'id', dry_run => false)$$);
SELECT kind, content FROM snowflake_convert_schema('closed');
DROP SCHEMA closed CASCADE;

--
-- Triggers of constraints, on either side of a foreign key and of a partition's copy, that would be enabled
--
CREATE TABLE author (id serial PRIMARY KEY, n int, UNIQUE (id, n) DEFERRABLE);
CREATE TABLE book (author_id int REFERENCES author, day date) PARTITION BY LIST (day);
CREATE TABLE book_1 PARTITION OF book DEFAULT;
CREATE TABLE essay (id bigserial PRIMARY KEY, author_id int REFERENCES author, FOREIGN KEY (id) REFERENCES essay);
ALTER TABLE author DISABLE TRIGGER ALL;
SELECT convert_refusal('author', 'id');
ALTER TABLE author ENABLE TRIGGER ALL;
ALTER TABLE book_1 DISABLE TRIGGER ALL;
SELECT kind, object, content FROM snowflake_convert_schema('shop') WHERE object ~ 'author';
ALTER TABLE book_1 ENABLE TRIGGER ALL;
-- one of a column that keeps its type is not made again
ALTER TABLE essay DISABLE TRIGGER ALL;
SELECT count(*) FROM snowflake_convert_column('essay', 'id', dry_run => false);
SELECT tgenabled, count(*) FROM pg_trigger WHERE tgrelid = 'essay'::regclass GROUP BY 1;
SELECT convert_refusal('author', 'id');
ALTER TABLE essay ENABLE TRIGGER ALL;
-- and so on the way back
SELECT count(*) FROM snowflake_convert_column('author', 'id', dry_run => false, type => 'snowflake_id');
ALTER TABLE essay DISABLE TRIGGER ALL;
SELECT refusal($$SELECT snowflake_revert_column('author', 'id')$$);
SELECT refusal($$SELECT snowflake_revert_column('author', 'id', false)$$);
DROP TABLE author, book, essay;

--
-- What is temporary, as another role than the one that has logged in
--
CREATE TEMPORARY TABLE passing (id serial PRIMARY KEY);
CREATE TEMPORARY TABLE passing_identity (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
SELECT count(*) FROM snowflake_convert_schema(pg_my_temp_schema()::regnamespace, dry_run => false);
SELECT refusal($$SELECT snowflake_revert_column('passing', 'id', false)$$);
SELECT count(*) FROM snowflake_convert_column('passing', 'id', dry_run => false);
ALTER TABLE passing OWNER TO regress_snowflake_owner;
ALTER TABLE passing_identity OWNER TO regress_snowflake_owner;
SELECT kind, regexp_replace(content, 'pg_temp_\d+', 'pg_temp_N') AS content
FROM snowflake_revert_schema(pg_my_temp_schema()::regnamespace) ORDER BY 1, 2;
SET ROLE regress_snowflake_owner;
SELECT regexp_replace(refusal($$SELECT snowflake_revert_column('passing', 'id', false)$$), 'pg_temp_\d+', 'pg_temp_N');
SELECT regexp_replace(refusal($$SELECT snowflake_rekey_column('passing', 'id', 'now()', dry_run => false)$$), 'pg_temp_\d+', 'pg_temp_N');
RESET ROLE;
CREATE TABLE seen (id serial PRIMARY KEY);
ALTER TABLE seen OWNER TO regress_snowflake_owner;
SET ROLE regress_snowflake_owner;
CREATE TEMPORARY VIEW seen_here AS SELECT id FROM seen;
SELECT convert_refusal('seen', 'id');
RESET ROLE;
DROP TABLE passing, passing_identity, seen CASCADE;

--
-- Materialized views that could not be filled again, or that their owner could not create
--
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_snowflake_space LOCATION '';
CREATE TABLE counted (id serial PRIMARY KEY);
CREATE MATERIALIZED VIEW other_source AS SELECT 1 AS one;
CREATE VIEW way AS SELECT one FROM other_source;
CREATE MATERIALIZED VIEW source AS SELECT id FROM counted;
CREATE MATERIALIZED VIEW filled TABLESPACE regress_snowflake_space AS SELECT id, one FROM source, way;
CREATE MATERIALIZED VIEW above AS SELECT count(*) FROM filled;
ALTER TABLE counted OWNER TO regress_snowflake_owner;
ALTER MATERIALIZED VIEW source OWNER TO regress_snowflake_owner;
ALTER MATERIALIZED VIEW filled OWNER TO regress_snowflake_owner;
ALTER MATERIALIZED VIEW above OWNER TO regress_snowflake_owner;
GRANT SELECT ON way TO regress_snowflake_owner;
REFRESH MATERIALIZED VIEW source WITH NO DATA;
REFRESH MATERIALIZED VIEW other_source WITH NO DATA;
SELECT convert_refusal('counted', 'id');
REFRESH MATERIALIZED VIEW source;
REFRESH MATERIALIZED VIEW other_source;
SELECT convert_refusal('counted', 'id');
GRANT CREATE ON TABLESPACE regress_snowflake_space TO regress_snowflake_owner;
REFRESH MATERIALIZED VIEW above WITH NO DATA;
REFRESH MATERIALIZED VIEW filled WITH NO DATA;
REFRESH MATERIALIZED VIEW source WITH NO DATA;
SELECT count(*) FROM snowflake_convert_column('counted', 'id', dry_run => false);
SELECT relname, relispopulated FROM pg_class WHERE relname IN ('source', 'filled', 'above', 'other_source') ORDER BY 1;
DROP TABLE counted CASCADE;
DROP VIEW way;
DROP MATERIALIZED VIEW other_source;
REVOKE ALL ON TABLESPACE regress_snowflake_space FROM regress_snowflake_owner;
DROP TABLESPACE regress_snowflake_space;

\pset format aligned
\pset null ''
SET client_min_messages = error;
DROP SCHEMA shop CASCADE;
RESET client_min_messages;
RESET search_path;
DROP VIEW columns;
DROP FUNCTION refusal, convert_refusal;
DROP ROLE regress_snowflake_owner, regress_snowflake_other;
RESET timezone;
RESET datestyle;
DROP EXTENSION snowflake_tools;
