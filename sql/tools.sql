-- snowflake and snowflake_tools: what each makes, and that nothing of what the tools wrote needs them.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS snowflake;
CREATE EXTENSION snowflake;
RESET client_min_messages;
-- the first ids of a server start max_ahead after the creation of the table: until then
SELECT pg_sleep(extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp()) + 0.1) AS slept \gset
\pset format unaligned
\pset tuples_only
-- without types, of which 17 and later have more
CREATE VIEW member AS
SELECT e.extname AS extension, pg_describe_object(d.classid, d.objid, 0) AS object
FROM pg_extension AS e JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
WHERE e.extname ~ '^snowflake' AND e.extname <> 'snowflake_registry' AND d.classid <> 'pg_type'::regclass;
SELECT object FROM member ORDER BY object COLLATE "C";
-- but for those that read and write the type
SELECT count(*), count(*) <= 25 AS few FROM pg_proc WHERE pronamespace = 'snowflake_internal'::regnamespace AND proname !~ '^snowflake_id_';
SELECT count(*) FROM pg_type WHERE typnamespace = 'snowflake_internal'::regnamespace;

-- a schema of its own, and functions where CREATE EXTENSION says
CREATE SCHEMA shop;
CREATE EXTENSION snowflake_tools SCHEMA shop;
SELECT object FROM member WHERE extension = 'snowflake_tools' AND object !~ 'snowflake_tools\.' ORDER BY object COLLATE "C";
SELECT DISTINCT regexp_replace(object, '(\.).*', '\1') FROM member WHERE extension = 'snowflake_tools' ORDER BY 1;
-- functions in C that are called with null
SELECT p.oid::regprocedure
FROM pg_extension AS e JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.classid = 'pg_proc'::regclass
	JOIN pg_proc AS p ON p.oid = d.objid JOIN pg_language AS l ON l.oid = p.prolang
WHERE e.extname ~ '^snowflake' AND l.lanname = 'c' AND NOT p.proisstrict ORDER BY p.proname COLLATE "C";
ALTER EXTENSION snowflake_tools SET SCHEMA public;
ALTER EXTENSION snowflake SET SCHEMA shop;
DROP EXTENSION snowflake;

-- Converted tables go on without the tools, and with them they go back: an own sequence, an identity, and a sequence of two
-- tables.
SET search_path = shop, public;
CREATE SEQUENCE number;
CREATE TABLE bill (id bigint PRIMARY KEY DEFAULT nextval('number'), note text);
CREATE TABLE receipt (id bigint PRIMARY KEY DEFAULT nextval('number'), note text);
CREATE TABLE visit (id bigserial PRIMARY KEY, note text);
CREATE TABLE item (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (INCREMENT 5), note text);
INSERT INTO bill VALUES (DEFAULT, 'before');
INSERT INTO receipt VALUES (DEFAULT, 'before');
INSERT INTO visit VALUES (DEFAULT, 'before');
INSERT INTO item VALUES (DEFAULT, 'before'), (DEFAULT, 'before');
SELECT object, count(*) FROM snowflake_convert_schema('shop', dry_run => false) GROUP BY 1 ORDER BY 1;
DROP EXTENSION snowflake_tools;
SELECT count(*) FROM pg_namespace WHERE nspname = 'snowflake_tools';
INSERT INTO bill VALUES (DEFAULT, 'between');
INSERT INTO receipt VALUES (DEFAULT, 'between');
INSERT INTO visit VALUES (DEFAULT, 'between');
INSERT INTO item VALUES (DEFAULT, 'between');
SELECT bool_and(snowflake_timestamp(id) > now() - interval '1 hour') FROM (SELECT * FROM bill UNION ALL TABLE receipt UNION ALL TABLE visit
	UNION ALL TABLE item) AS t WHERE note = 'between';
SELECT adrelid::regclass, pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid IN ('bill'::regclass, 'item'::regclass) ORDER BY 1;
-- the tools stand elsewhere now
CREATE EXTENSION snowflake_tools SCHEMA public;
DELETE FROM bill WHERE note = 'between';
DELETE FROM receipt WHERE note = 'between';
DELETE FROM visit WHERE note = 'between';
DELETE FROM item WHERE note = 'between';
SELECT object, count(*) FROM snowflake_revert_schema('shop', dry_run => false) GROUP BY 1 ORDER BY 1;
DROP EXTENSION snowflake_tools;
INSERT INTO bill VALUES (DEFAULT, 'after') RETURNING *;
INSERT INTO receipt VALUES (DEFAULT, 'after') RETURNING *;
INSERT INTO visit VALUES (DEFAULT, 'after') RETURNING *;
INSERT INTO item VALUES (DEFAULT, 'after') RETURNING *;

RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA shop CASCADE;
DROP VIEW member;
