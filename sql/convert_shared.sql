-- Columns that take their values from one sequence, so that no two of them have an equal value:
-- converted they remember it, and go back to it together.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
-- the first ids of a server start max_ahead after the creation of the table: until then
SELECT pg_sleep(extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp()) + 0.1) AS slept \gset
CREATE ROLE regress_snowflake_owner;
CREATE ROLE regress_snowflake_other;
CREATE SCHEMA shop;
GRANT ALL ON SCHEMA shop TO regress_snowflake_owner, regress_snowflake_other;
SET search_path = shop, public;
CREATE VIEW public.defaults AS
SELECT d.adrelid::regclass AS relation, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, pg_get_expr(d.adbin, d.adrelid) AS "default"
FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum JOIN pg_class c ON c.oid = d.adrelid
WHERE c.relnamespace::regnamespace::text = 'shop' AND c.relkind IN ('r', 'p') ORDER BY c.relname COLLATE "C", a.attnum;
\set SHOW_CONTEXT never
\pset format unaligned

--
-- A sequence of neither: two rows are not equal after there and back
--
CREATE SEQUENCE number;
CREATE TABLE bill (id bigint PRIMARY KEY DEFAULT nextval('number'), note text);
CREATE TABLE receipt (id int PRIMARY KEY DEFAULT nextval('number'), note text);
INSERT INTO bill (note) VALUES ('one'), ('two');
INSERT INTO receipt (note) VALUES ('three'), ('four');
SELECT * FROM snowflake_convert_column('bill', 'id', dry_run => false);
SELECT * FROM snowflake_convert_column('receipt', 'id', dry_run => false);
SELECT * FROM defaults;
-- once is enough; a call costs what it costs without the sequence
SELECT * FROM snowflake_convert_column('bill', 'id', dry_run => false);
EXPLAIN (VERBOSE, COSTS OFF) INSERT INTO bill (note) VALUES ('five');
-- it is remembered by what it is, and there is nothing to forget it by
ALTER SEQUENCE number RENAME TO "Number";
ALTER TABLE receipt RENAME id TO nr;
\set VERBOSITY terse
DROP SEQUENCE "Number";
\set VERBOSITY default
SELECT * FROM snowflake_revert_column('bill', 'id');
SELECT * FROM snowflake_revert_column('receipt', 'nr', false);
SELECT * FROM defaults;
INSERT INTO bill (note) VALUES ('five') RETURNING id;
INSERT INTO receipt (note) VALUES ('six') RETURNING nr;
SELECT pg_get_serial_sequence('bill', 'id') IS NULL AND pg_get_serial_sequence('receipt', 'nr') IS NULL AS of_no_column;
SELECT relname FROM pg_class WHERE relkind = 'S' AND relnamespace = 'shop'::regnamespace ORDER BY 1;
-- past the ids of both, whichever is named
SELECT count(*) FROM snowflake_convert_column('bill', 'id', dry_run => false);
SELECT count(*) FROM snowflake_convert_column('receipt', 'nr', 'js53', false);
INSERT INTO bill VALUES (5000000000, 'past');
INSERT INTO receipt VALUES (5000000007, 'the last');
SELECT * FROM snowflake_revert_column('bill', 'id', false);
INSERT INTO bill (note) VALUES ('next') RETURNING id;
INSERT INTO receipt (note) VALUES ('next') RETURNING nr;
-- a default without the sequence is one that has forgotten it
SELECT count(*) FROM snowflake_convert_column('bill', 'id', dry_run => false);
ALTER TABLE bill ALTER id SET DEFAULT snowflake_nextval();
SELECT * FROM snowflake_revert_column('bill', 'id');
DROP TABLE bill, receipt;
DROP SEQUENCE "Number";

--
-- A sequence of one of them; a third column that is not converted
--
CREATE TABLE share_1 (id serial, note text);
CREATE TABLE share_2 (id int DEFAULT nextval('share_1_id_seq'), note text);
CREATE TABLE share_3 (id smallint DEFAULT nextval('share_1_id_seq'), note text);
INSERT INTO share_1 (note) VALUES ('one');
INSERT INTO share_2 (note) VALUES ('two');
INSERT INTO share_3 (note) VALUES ('three');
SELECT * FROM snowflake_convert_column('share_2', 'id', dry_run => false);
SELECT * FROM snowflake_convert_column('share_1', 'id', dry_run => false);
INSERT INTO share_3 (note) VALUES ('four') RETURNING id;
SELECT * FROM defaults;
-- as long as the third can go on with it
BEGIN;
SELECT * FROM snowflake_revert_column('share_1', 'id', false);
INSERT INTO share_2 (note) VALUES ('five') RETURNING id;
INSERT INTO share_3 (note) VALUES ('six') RETURNING id;
ROLLBACK;
INSERT INTO share_2 VALUES (32766, 'just');
BEGIN;
SELECT count(*) FROM snowflake_revert_column('share_1', 'id', false);
INSERT INTO share_3 (note) VALUES ('the last') RETURNING id;
ROLLBACK;
INSERT INTO share_2 VALUES (32767, 'too far');
SELECT * FROM snowflake_revert_column('share_1', 'id', false);
SELECT * FROM snowflake_revert_column('share_2', 'id');
-- as the hint says
SELECT count(*) FROM snowflake_convert_column('share_3', 'id', dry_run => false);
INSERT INTO share_3 (note) VALUES ('new') RETURNING id > 1000000 AS new_id;
SELECT regexp_replace(s, '\d{15,}', '<id>') FROM snowflake_revert_column('share_3', 'id', false) s;
SELECT * FROM defaults;
INSERT INTO share_1 (note) VALUES ('next');
INSERT INTO share_2 (note) VALUES ('next');
INSERT INTO share_3 (note) VALUES ('next');
SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE note = 'next' AND id = greatest + place) AS in_order
FROM (SELECT 1 AS place, * FROM share_1 UNION ALL SELECT 2, * FROM share_2 UNION ALL SELECT 3, * FROM share_3) s,
	(SELECT max(id) AS greatest FROM share_3 WHERE note = 'new') g;
-- a table that is dropped takes its own sequence along only if nobody remembers it
SELECT count(*) FROM snowflake_convert_column('share_2', 'id', dry_run => false);
\set VERBOSITY terse
DROP TABLE share_1;
\set VERBOSITY default
DROP TABLE share_1, share_2, share_3;

-- one of another column of the same table
CREATE TABLE two (id serial, nr int DEFAULT nextval('two_id_seq') PRIMARY KEY);
INSERT INTO two SELECT FROM generate_series(1, 3);
SELECT * FROM snowflake_convert_column('two', 'nr', dry_run => false);
SELECT * FROM snowflake_revert_column('two', 'nr');
DROP TABLE two;

-- down, a third one does not go along
CREATE SEQUENCE down INCREMENT -1;
CREATE TABLE down_1 (id int DEFAULT nextval('down'));
CREATE TABLE down_2 (id int DEFAULT nextval('down'));
INSERT INTO down_1 DEFAULT VALUES;
SELECT * FROM snowflake_convert_column('down_1', 'id', dry_run => false);
SELECT * FROM snowflake_revert_column('down_1', 'id', false);
SELECT * FROM snowflake_convert_column('down_2', 'id', dry_run => false);
SELECT * FROM snowflake_revert_column('down_1', 'id', false);
DROP TABLE down_1, down_2;
DROP SEQUENCE down;

--
-- One sequence for one column only, an expression, a whole schema, partitions
--
CREATE SCHEMA more;
SET search_path = more, shop, public;
CREATE SEQUENCE number MAXVALUE 100;
CREATE TABLE alone (id int PRIMARY KEY DEFAULT nextval('number'));
CREATE TABLE doubled (id int PRIMARY KEY DEFAULT nextval('number') * 2);
CREATE TABLE part (id bigint PRIMARY KEY DEFAULT nextval('number')) PARTITION BY RANGE (id);
CREATE TABLE part_all PARTITION OF part FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE part_copy (LIKE part INCLUDING ALL);
INSERT INTO alone DEFAULT VALUES;
SELECT kind, content FROM snowflake_convert_schema('more', dry_run => false);
SELECT kind, content FROM snowflake_convert_schema('more', 'js53', dry_run => false);
INSERT INTO part VALUES (42);
SELECT * FROM snowflake_revert_column('part', 'id');
SELECT * FROM snowflake_revert_column('part', 'id', false);
SELECT kind, content FROM snowflake_convert_schema('more');
INSERT INTO part DEFAULT VALUES RETURNING id;
INSERT INTO alone DEFAULT VALUES RETURNING id;
DROP SCHEMA more CASCADE;
SET search_path = shop, public;

-- a name with all that needs quotes
CREATE SEQUENCE "Nu'm\b""er";
CREATE TABLE quoted (id bigint DEFAULT nextval('"Nu''m\b""er"'));
SELECT * FROM snowflake_convert_column('quoted', 'id', dry_run => false);
SELECT * FROM snowflake_convert_column('quoted', 'id', dry_run => false);
SELECT * FROM snowflake_revert_column('quoted', 'id', false);
INSERT INTO quoted DEFAULT VALUES RETURNING id;
DROP TABLE quoted;

-- the sequence of an identity is dropped with it: not while another column has it to go back to
CREATE TABLE counted (id bigint GENERATED ALWAYS AS IDENTITY);
CREATE TABLE guest (id bigint DEFAULT nextval('counted_id_seq'));
SELECT count(*) FROM snowflake_convert_column('guest', 'id', dry_run => false);
SELECT * FROM snowflake_convert_column('counted', 'id');
ALTER TABLE guest ALTER id SET DEFAULT snowflake_nextval();
SELECT * FROM snowflake_convert_column('counted', 'id');
DROP TABLE guest, counted;

--
-- Who may
--
CREATE SEQUENCE theirs;
CREATE TABLE mine (id bigint DEFAULT nextval('theirs'));
ALTER TABLE mine OWNER TO regress_snowflake_owner;
CREATE TABLE foreigner (id bigint DEFAULT nextval('theirs'));
ALTER SEQUENCE theirs OWNER TO regress_snowflake_other;
ALTER TABLE foreigner OWNER TO regress_snowflake_other;
SET ROLE regress_snowflake_owner;
SELECT * FROM snowflake_convert_column('mine', 'id', dry_run => false);
SELECT * FROM snowflake_revert_column('mine', 'id');
RESET ROLE;
ALTER SEQUENCE theirs OWNER TO regress_snowflake_owner;
SET ROLE regress_snowflake_owner;
SELECT * FROM snowflake_revert_column('mine', 'id', false);
INSERT INTO mine DEFAULT VALUES RETURNING id;
SELECT count(*) FROM snowflake_convert_column('mine', 'id', dry_run => false);
RESET ROLE;
SELECT count(*) FROM snowflake_convert_column('foreigner', 'id', dry_run => false);
SET ROLE regress_snowflake_owner;
SELECT * FROM snowflake_revert_column('mine', 'id');
RESET ROLE;

\pset format aligned
SET client_min_messages = error;
DROP SCHEMA shop CASCADE;
RESET client_min_messages;
RESET search_path;
DROP VIEW defaults;
DROP ROLE regress_snowflake_owner, regress_snowflake_other;
DROP EXTENSION snowflake_tools;
