-- The rights of the extension do not depend on the default privileges of the role that
-- creates it: in one database everybody may execute new functions, in the other nobody.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
CREATE ROLE regress_snowflake_clerk;
CREATE DATABASE regress_snowflake_grants;
-- what the clerk may do with the extension's objects
\set rights 'SELECT string_agg(object, E''\n'' ORDER BY object COLLATE "C") AS rights FROM (SELECT pg_describe_object(classid, objid, 0), CASE classid::regclass::text WHEN ''pg_proc'' THEN has_function_privilege(''regress_snowflake_clerk'', objid, ''EXECUTE'') WHEN ''pg_class'' THEN has_table_privilege(''regress_snowflake_clerk'', objid, ''SELECT'') WHEN ''pg_namespace'' THEN has_schema_privilege(''regress_snowflake_clerk'', objid, ''USAGE'') END FROM pg_depend JOIN pg_extension AS e ON e.oid = refobjid WHERE e.extname IN (''snowflake'', ''snowflake_tools'') AND deptype = ''e'') AS s (object, may) WHERE may'
:rights \gset usual_
\set regression :DBNAME
\c regress_snowflake_grants
SET client_min_messages = warning;
SET timezone = 'UTC';
ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TYPES FROM PUBLIC;
CREATE FUNCTION nobodys() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT has_function_privilege('regress_snowflake_clerk', 'nobodys()', 'EXECUTE') AS by_default;
DROP FUNCTION nobodys();
CREATE EXTENSION snowflake_tools CASCADE;
:rights \gset strict_
SELECT array_length(string_to_array(:'strict_rights', E'\n'), 1) > 50 AS many,
	ARRAY(SELECT unnest(string_to_array(:'usual_rights', E'\n')) EXCEPT SELECT unnest(string_to_array(:'strict_rights', E'\n'))) AS missing,
	ARRAY(SELECT unnest(string_to_array(:'strict_rights', E'\n')) EXCEPT SELECT unnest(string_to_array(:'usual_rights', E'\n'))) AS added;
-- what is for administrators
SELECT p.oid::regprocedure::text COLLATE "C" AS "not for everybody"
FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
WHERE NOT has_function_privilege('regress_snowflake_clerk', p.oid, 'EXECUTE')
ORDER BY 1;
-- each runs with the rights of its caller
SELECT p.oid::regprocedure AS "with the owner's rights"
FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
WHERE p.prosecdef;

-- each function that is for everybody, by an ordinary user
GRANT ALL ON SCHEMA public TO regress_snowflake_clerk;
SET ROLE regress_snowflake_clerk;
CREATE TABLE visit (id bigint PRIMARY KEY DEFAULT snowflake_nextval('js53'), page text);
INSERT INTO visit (page) VALUES ('a'), ('b');
CREATE TABLE parcel (id snowflake_id PRIMARY KEY DEFAULT snowflake_nextval());
INSERT INTO parcel DEFAULT VALUES;
SELECT snowflake_nextval() < snowflake_nextval() AS increasing, (SELECT count(*) FROM snowflake_nextval_batch(2)) AS batch,
	(SELECT count(*) FROM snowflake_nextval_batch(2, 'js53')) AS another;
SELECT snowflake_timestamp(id, 'js53') = p."timestamp" AS "timestamp", snowflake_min_id(p."timestamp", 'js53') <= id AS min_id,
	snowflake_max_id(p."timestamp", 'js53') >= id AS max_id, snowflake_compose(p."timestamp", p.worker_id, p.sequence, 'js53') = id AS compose,
	snowflake_range(p."timestamp", p."timestamp" + interval '1 s', 'js53') @> id AS range,
	snowflake_decode(snowflake_encode(id, 'base62'), 'base62') = id AS encode,
	snowflake_unmask(snowflake_mask(id, '0123456789abcdef'), '0123456789abcdef') = id AS mask
FROM visit, snowflake_parse(id, 'js53') AS p;
SELECT snowflake_timestamp(id) = p."timestamp" AS "timestamp", snowflake_min_id(p."timestamp") <= id AS min_id,
	snowflake_max_id(p."timestamp") >= id AS max_id,
	snowflake_compose(p."timestamp", p.worker_id, p.sequence, p.datacenter_id) = id AS compose,
	snowflake_range(p."timestamp", p."timestamp" + interval '1 s') @> id AS range
FROM snowflake_nextval() AS id, snowflake_parse(id) AS p;
SELECT snowflake_layout() = snowflake_layout('twitter') AS layout, count(*) > 10 AS layouts FROM snowflake_layouts();
SELECT layout FROM snowflake_guess((SELECT max(id) FROM visit)) LIMIT 1;
SELECT count(DISTINCT id), min(snowflake_timestamp(id)) FROM (SELECT snowflake_backfill_id(at) OVER (ORDER BY at) AS id
	FROM (VALUES ('2024-05-05 00:00Z'::timestamptz), ('2024-05-05 00:00Z')) AS old (at)) AS b;
SELECT count(*) FROM snowflake_partition_bounds('2026-01-01', '2026-03-01', '1 month')
JOIN snowflake_partition_bounds('2026-01-01', '2026-03-01', '1 month', 'js53') AS other USING (from_time);
CREATE TABLE event (id bigint DEFAULT snowflake_nextval()) PARTITION BY RANGE (id);
SELECT count(*) FROM snowflake_create_partitions('event', '2026-01-01', '2026-03-01', '1 month', dry_run => false);
CREATE TABLE old (id serial);
INSERT INTO old DEFAULT VALUES;
SELECT count(*) FROM snowflake_convert_column('old', 'id', 'js53', false);
SELECT finding FROM snowflake_audit('old', 'id', NULL, 'js53');
SELECT count(*) FROM snowflake_revert_column('old', 'id', false);
ALTER TABLE old ADD PRIMARY KEY (id);
SELECT content FROM snowflake_convert_schema('public', 'js53', '{}', false);
SELECT count(statement) FROM snowflake_rekey_column('old', 'id', '''2026-01-01''', 'js53', dry_run => false);
DROP TABLE event;	-- partitioned by its ids, it has no way back
SELECT content FROM snowflake_revert_schema('public', false) WHERE object = 'public.old';
SELECT count(*) FROM pg_stat_snowflake WHERE layout IN ('twitter', 'js53');
SELECT snowflake_release();
SELECT pg_stat_snowflake_reset();
RESET ROLE;

\c :regression
SET client_min_messages = warning;
DROP DATABASE regress_snowflake_grants;
DROP ROLE regress_snowflake_clerk;
DROP EXTENSION snowflake_tools;
