-- The extension snowflake_registry among people who mean harm, or make mistakes: roles, schemas, settings.
SELECT current_database() AS home \gset
CREATE DATABASE registry_hostile;
\c registry_hostile
\i test/elsewhere.sql
\set SHOW_CONTEXT never
SET client_min_messages = warning;

-- A schema that was there before is refused: what is in it would be trusted.
CREATE SCHEMA snowflake;
CREATE EXTENSION snowflake_registry;
\echo :LAST_ERROR_SQLSTATE
DROP SCHEMA snowflake;
-- No schema public is needed; the schema is a member, so that it can neither go nor be another's.
DROP SCHEMA public CASCADE;
CREATE EXTENSION snowflake_registry;
DROP SCHEMA snowflake CASCADE;
ALTER EXTENSION snowflake_registry SET SCHEMA pg_catalog;
SELECT refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_registry') AS member
FROM pg_depend WHERE classid = 'pg_namespace'::regclass AND objid = 'snowflake'::regnamespace AND deptype = 'e';

CREATE SCHEMA test;
SET search_path = test;
UPDATE snowflake.registry SET created_at = '2024-01-01Z';
CREATE FUNCTION node(n int, call int, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql SET search_path = pg_catalog AS $$
	SELECT jsonb_build_object('protocol', 1, 'start', lpad(n::text, 32, '0')::uuid, 'call', call,
		'kind', 'server', 'system_identifier', 7000 + n, 'host_name', 'host' || n, 'port', 5432, 'timeline', 1, 'launched_at', 0,
		'layout', '{"definition": "A", "epoch": 1577836800000000, "tick": 1000, "fields": [["timestamp", 41], ["worker", 4], ["sequence", 4]]}'::jsonb,
		'layout_set', true, 'tick', 1000, 'clock', 1709294400000000, 'max_ahead', 1000000, 'window', 60000000,
		'first_number', n, 'last_number', n, 'fixed', true) || more
$$;
CREATE FUNCTION lease(n int) RETURNS jsonb LANGUAGE sql SECURITY DEFINER AS $$
	SELECT jsonb_build_object('lease', jsonb_build_object('token', token, 'granted_by', granted_by, 'ids_end_at', 1709294430000000))
	FROM snowflake.worker_node WHERE start = lpad(n::text, 32, '0')::uuid ORDER BY granted_by DESC LIMIT 1
$$;
CREATE FUNCTION shown(answer jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$ SELECT answer - '{clock,token,incarnation,protocol}'::text[] $$;

--
-- A role that may call, and nothing else
--
CREATE ROLE registry_node;
CREATE ROLE registry_nobody;
GRANT USAGE ON SCHEMA test TO PUBLIC;
GRANT USAGE ON SCHEMA snowflake TO registry_node;
GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease, snowflake.list_leases TO registry_node;
SET ROLE registry_nobody;
SELECT snowflake.acquire_lease(node(1, 1));
SELECT count(*) FROM snowflake.nodes;
SET ROLE registry_node;
SELECT shown(snowflake.acquire_lease(node(1, 1)));
SELECT shown(snowflake.renew_lease(node(1, 2) || lease(1)));
SELECT shown(snowflake.list_leases('{"protocol": 1}'));
SELECT shown(snowflake.release_lease(node(1, 3) || lease(1)));
-- all other functions are refused; so are the tables
RESET ROLE;
SELECT p.oid::regprocedure FROM pg_proc AS p
WHERE p.pronamespace = 'snowflake'::regnamespace AND has_function_privilege('registry_node', p.oid, 'EXECUTE') ORDER BY 1;
SELECT count(*) AS anybody FROM pg_proc AS p
WHERE p.pronamespace = 'snowflake'::regnamespace AND has_function_privilege('registry_nobody', p.oid, 'EXECUTE');
SET ROLE registry_node;
SELECT snowflake.acquire_own_lease(node(2, 1));
SELECT snowflake.start_server(node(2, 1));
SELECT snowflake.record_uses('{}');
SELECT snowflake.close_registry('00000000-0000-0000-0000-000000000001');
SELECT snowflake.take_over('00000000-0000-0000-0000-000000000001'::uuid);
SELECT snowflake.ids_end_before('2020-01-01');
SELECT count(*) FROM snowflake.worker_node;
UPDATE snowflake.registry SET generation = 9;
INSERT INTO snowflake.cluster (uses) VALUES ('own');
SELECT count(*) FROM snowflake.nodes;
-- A shown role may look
RESET ROLE;
GRANT pg_read_all_stats TO registry_nobody;
SET ROLE registry_nobody;
SELECT count(*) FROM snowflake.nodes;
SELECT count(*) FROM snowflake.worker_node;
RESET ROLE;
REVOKE pg_read_all_stats FROM registry_nobody;

-- What such a role says of itself: no key makes it the registry's own server, pushes the generation or what is used,
-- or moves where others' leases start.
SET ROLE registry_node;
SELECT shown(snowflake.acquire_lease(node(2, 1, jsonb_build_object('own', true, 'p_own', true, 'timelines', '{9/9/9}', 'generation', 9, 'clock', 3155760000000000))));
SELECT shown(snowflake.acquire_lease(node(3, 1, '{"starts_at": 1709294410000000}')));
RESET ROLE;
SELECT generation, counted, counted_at, starts_at FROM snowflake.registry;
TABLE snowflake.cluster;
SET ROLE registry_node;
SELECT shown(snowflake.acquire_lease(node(4, 1)));
-- the year 294276, and what no time is
SELECT snowflake.acquire_lease(node(4, 2, '{"clock": 9224318015999999999}'));
SELECT snowflake.acquire_lease(node(4, 2, '{"launched_at": 9223372036854775807}'));
SELECT snowflake.renew_lease(node(4, 2, '{"clock": 1e400}') || lease(4));
-- a lease of another node is neither renewed nor closed without its token and start
SELECT shown(snowflake.renew_lease(node(4, 2) || lease(3)));
SELECT shown(snowflake.release_lease(node(4, 3) || lease(3)));
RESET ROLE;
SELECT node_number, closed_at IS NULL AS open FROM snowflake.worker_node ORDER BY node_number;

--
-- Names: what somebody puts into another schema is never called
--
CREATE SCHEMA public;
GRANT ALL ON SCHEMA public TO PUBLIC;
GRANT USAGE ON SCHEMA snowflake TO registry_nobody;
SET ROLE registry_nobody;
CREATE FUNCTION public.mean(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '% was called as %', $1, current_user; END $$;
CREATE FUNCTION public.greatest_id(timestamptz, snowflake.layout) RETURNS bigint LANGUAGE sql AS $$ SELECT public.mean('greatest_id')::text::bigint $$;
CREATE FUNCTION public.snowflake_layout(text) RETURNS text LANGUAGE sql AS $$ SELECT public.mean('snowflake_layout')::text $$;
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT public.mean('clock_timestamp')::text::timestamptz $$;
CREATE FUNCTION public.less(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS $$ SELECT public.mean('less')::text::boolean $$;
CREATE OPERATOR public.< (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = public.less);
CREATE TEMP TABLE registry AS SELECT 1 AS one;
RESET ROLE;
SET ROLE registry_node;
SET search_path = public, test, pg_catalog;
SELECT shown(snowflake.acquire_lease(node(5, 1))), shown(snowflake.renew_lease(node(5, 2) || lease(5))), shown(snowflake.release_lease(node(5, 3) || lease(5)));
RESET ROLE;
SELECT count(*) FROM snowflake.nodes;
ALTER SCHEMA public RENAME TO private;
CREATE SCHEMA public;
SET search_path = test;
SET ROLE registry_node;
SELECT shown(snowflake.acquire_lease(node(6, 1))) ->> 'answer' AS answer;
RESET ROLE;
DROP SCHEMA public CASCADE;
DROP SCHEMA private CASCADE;
SELECT count(*) FROM snowflake.worker_node;
-- nobody but the owner renames the schema
SET ROLE registry_node;
ALTER SCHEMA snowflake RENAME TO other;
RESET ROLE;

--
-- Settings of the session do not show
--
CREATE FUNCTION answers(n int, call int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	result text;
BEGIN
	result := shown(snowflake.acquire_lease(node(n, call)))::text || shown(snowflake.renew_lease(node(n, call + 1) || lease(n)))::text
		|| shown(snowflake.release_lease(node(n, call + 2) || lease(n)))::text;
	BEGIN
		PERFORM snowflake.acquire_lease(node(n, call + 3, '{"host_name": "other", "system_identifier": 1, "clock": 1577836800000000}'));
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
		result := result || SQLERRM || detail;
	END;
	DELETE FROM snowflake.worker_node WHERE node_number = n;
	RETURN result;
END
$$;
CREATE TABLE same AS SELECT answers(7, 1) AS answer;
TABLE same;
SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Shanghai';
SELECT answer = answers(7, 1) AS same FROM same;
SET datestyle = 'German'; SET timezone = '<X>-13:37'; SET intervalstyle = 'sql_standard'; SET extra_float_digits = 0;
SELECT answer = answers(7, 1) AS same FROM same;
SET datestyle = 'Postgres, MDY'; SET timezone = 'America/New_York'; SET lc_time = 'C'; SET bytea_output = 'escape';
-- 19 has no other strings any more
DO $$
BEGIN
	IF current_setting('server_version_num')::integer < 190000 THEN
		PERFORM set_config(s, 'off', false) FROM unnest('{standard_conforming_strings,escape_string_warning}'::text[]) AS s;
	END IF;
END
$$;
SELECT answer = answers(7, 1) AS same FROM same;
SET array_nulls = off; SET transform_null_equals = on; SET quote_all_identifiers = on; SET xmlbinary = 'hex'; SET check_function_bodies = off; SET plpgsql.variable_conflict = use_column;
SELECT answer = answers(7, 1) AS same FROM same;
RESET ALL;
SET client_min_messages = warning;
SET search_path = test;
-- the commit is durable, whatever the role has; but for a release
SET synchronous_commit = off;
BEGIN;
SELECT shown(snowflake.release_lease(node(6, 2) || lease(6))) ->> 'answer' AS answer;
SHOW synchronous_commit;
SELECT shown(snowflake.acquire_lease(node(8, 1))) ->> 'answer' AS answer;
SHOW synchronous_commit;
COMMIT;
SHOW synchronous_commit;
BEGIN;
SELECT shown(snowflake.renew_lease(node(8, 2) || lease(8))) ->> 'answer' AS answer;
SHOW synchronous_commit;
COMMIT;
SET synchronous_commit = remote_apply;
BEGIN;
SELECT shown(snowflake.renew_lease(node(8, 3) || lease(8))) ->> 'answer' AS answer;
SHOW synchronous_commit;
COMMIT;
RESET synchronous_commit;
-- other isolation levels are refused, and what only reads
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT snowflake.renew_lease(node(8, 4) || lease(8));
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT snowflake.close_registry('00000000-0000-0000-0000-000000000001');
ROLLBACK;
BEGIN READ ONLY;
SELECT snowflake.renew_lease(node(8, 4) || lease(8));
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
SELECT snowflake.list_leases('{"protocol": 1}') IS NOT NULL AS listed;
ROLLBACK;

--
-- The owner is no superuser any more: what he puts in a function runs as him
--
CREATE ROLE registry_owner SUPERUSER;
SET SESSION AUTHORIZATION registry_owner;
DROP EXTENSION snowflake_registry;
-- default privileges give nothing
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO registry_nobody;
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO registry_nobody;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TYPES TO registry_nobody;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO registry_nobody;
CREATE EXTENSION snowflake_registry;
SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'snowflake'::regnamespace AND c.relkind IN ('r', 'v')
	AND has_table_privilege('registry_nobody', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER');
SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'snowflake'::regnamespace AND has_function_privilege('registry_nobody', p.oid, 'EXECUTE');
SELECT t.typname FROM pg_type AS t WHERE t.typnamespace = 'snowflake'::regnamespace AND t.typtype = 'c' AND has_type_privilege('registry_nobody', t.oid, 'USAGE');
SELECT has_schema_privilege('registry_nobody', 'snowflake', 'USAGE, CREATE') AS schema;
DROP OWNED BY registry_nobody;
RESET SESSION AUTHORIZATION;
ALTER ROLE registry_owner NOSUPERUSER;
GRANT USAGE ON SCHEMA snowflake TO registry_node;
GRANT EXECUTE ON FUNCTION snowflake.acquire_lease TO registry_node;
SET SESSION AUTHORIZATION registry_owner;
CREATE OR REPLACE FUNCTION snowflake.check_protocol(p_call jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
RESET SESSION AUTHORIZATION;
SET ROLE registry_node;
SELECT snowflake.acquire_lease('{}');
RESET ROLE;

\c :home
DROP DATABASE registry_hostile;
DROP ROLE registry_node, registry_nobody, registry_owner;
