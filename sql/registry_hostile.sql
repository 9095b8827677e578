-- The extension snowflake_registry among people who mean harm, or make mistakes: roles, schemas, settings.
SELECT current_database() AS home \gset
CREATE DATABASE registry_hostile TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
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
		'layout', 'timestamp 41, worker 4, sequence 4, tick 1ms, epoch 2020-01-01T00:00:00Z',
		'clock', 1709294400000000, 'max_ahead', 1001000, 'window', 60000000, 'first_number', n, 'last_number', n, 'fixed', true) || more
$$;
CREATE FUNCTION lease(n int, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql SECURITY DEFINER AS $$
	SELECT jsonb_build_object('lease', jsonb_build_object('token', w.token, 'node_number', w.node_number, 'granted_by', w.granted_by, 'incarnation', w.incarnation,
		'generation', w.generation, 'leased_until', snowflake.microseconds(coalesce(w.leased_until, l.leased_until)), 'ids_end_at', 1709294430000000) || more)
	FROM snowflake.worker_node AS w LEFT JOIN snowflake.node_number AS l USING (token) WHERE w.start = lpad(n::text, 32, '0')::uuid ORDER BY w.granted_by DESC LIMIT 1
$$;
CREATE FUNCTION shown(answer jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$ SELECT answer - '{clock,token,incarnation,protocol}'::text[] $$;

--
-- Impossible values: each for each key of each call.  What a key must be stands here once more, and what is to be
-- said follows from that; nothing but a value error, by name, or what the registry decides ever comes back.
--
CREATE TABLE call (label text PRIMARY KEY, function text, call jsonb);
INSERT INTO call
SELECT f.label, f.function, node(5, 5) || '{"lease": {"token": "00000000-0000-0000-0000-000000000001", "node_number": 3, "granted_by": 1,
		"incarnation": "00000000-0000-0000-0000-000000000001", "generation": 1, "leased_until": 1709294430000000, "ids_end_at": 1709294370000000},
	"uses": null, "starts_at": 1709294370000000, "ids_end_at": 1709294370000000, "fixed": false, "first_number": 4, "last_number": 7,
	"incarnation": "00000000-0000-0000-0000-000000000001", "mark": "m"}' || f.more
FROM (VALUES ('acquire', 'acquire_lease', '{}'::jsonb),
	('program', 'acquire_lease', '{"kind": "program", "name": "a", "lease": null}'), ('own', 'acquire_own_lease', '{}'), ('renew', 'renew_lease', '{}'),
	('release', 'release_lease', '{}'), ('start', 'start_server', '{}'), ('record', 'record_uses', '{}')) AS f (label, function, more);
-- least and most: of an integer.  Integers from least on that are too great for another value of the same call: unfit is said then.
CREATE TABLE key (calls text, path text, kind text, least numeric, most numeric, nullable boolean, bound text, unfit text);
INSERT INTO key (calls, path, kind, least, most, nullable, bound) VALUES
	('acquire program own renew release', 'protocol', 'integer', 1, 1000000, false, 'an integer from 1 to 1000000'),
	('acquire program own renew release', 'start', 'uuid', NULL, NULL, false, 'a UUID'),
	('acquire program own renew release', 'call', 'integer', 1, 9223372036854775807, false, 'an integer from 1 to 9223372036854775807'),
	('acquire own', 'lease', 'object', NULL, NULL, true, 'an object or null'),
	('renew release', 'lease', 'object', NULL, NULL, false, 'an object'),
	('acquire own renew release', 'lease.token', 'uuid', NULL, NULL, false, 'a UUID'),
	('acquire own renew release', 'lease.node_number', 'integer', 0, 9223372036854775807, false, 'an integer from 0 to 9223372036854775807'),
	('acquire own renew release', 'lease.granted_by', 'integer', 1, 4, false, 'an integer from 1 to 9223372036854775807'),
	('acquire own renew release', 'lease.incarnation', 'uuid', NULL, NULL, false, 'a UUID'),
	('acquire own renew release', 'lease.generation', 'integer', 1, 2147483647, false, 'an integer from 1 to 2147483647'),
	('acquire own renew release', 'lease.leased_until', 'integer', -62135596800000000, 253402300799999999, false, 'microseconds since 1970, in the years 1 to 9999'),
	('acquire own', 'lease.ids_end_at', 'integer', -62135596800000000, 253402300799999999, true, 'microseconds since 1970, in the years 1 to 9999, or null'),
	('release', 'lease.ids_end_at', 'integer', -62135596800000000, 253402300799999999, false, 'microseconds since 1970, in the years 1 to 9999'),
	('acquire program own', 'layout', 'text', NULL, NULL, false, 'a text of 1 to 255 bytes of printable characters'),
	('renew release', 'layout', 'string', NULL, NULL, false, 'a string'),
	('acquire program own', 'kind', 'kind', NULL, NULL, false, '"server" or "program"'),
	('acquire program own', 'host_name', 'text', NULL, NULL, false, 'a text of 1 to 255 bytes of printable characters'),
	('program', 'name', 'text', NULL, NULL, false, 'a text of 1 to 255 bytes of printable characters'),
	('acquire program own', 'launched_at', 'integer', -62135596800000000, 253402300799999999, false, 'microseconds since 1970, in the years 1 to 9999'),
	('acquire own', 'port', 'integer', 0, 65535, false, 'an integer from 0 to 65535'),
	('acquire own', 'system_identifier', 'integer', -9223372036854775808, 9223372036854775807, false, 'an integer from -9223372036854775808 to 9223372036854775807'),
	('acquire own', 'timeline', 'integer', 1, 4294967295, false, 'an integer from 1 to 4294967295'),
	('acquire program own renew start', 'clock', 'integer', -62135596800000000, 253402300799999999, false, 'microseconds since 1970, in the years 1 to 9999'),
	('acquire program own renew start', 'max_ahead', 'integer', 0, 86401000000, false, 'an integer from 0 to 86401000000'),
	('acquire program own renew', 'window', 'integer', 1, 172800000000, false, 'an integer from 1 to 172800000000'),
	('acquire program own', 'first_number', 'integer', 0, 7, false, 'an integer from 0 to 9223372036854775807'),
	('acquire program own', 'last_number', 'integer', 0, 9223372036854775807, false, 'an integer from 0 to 9223372036854775807'),
	('acquire own', 'fixed', 'boolean', NULL, NULL, false, 'true or false'),
	('acquire program own record', 'uses', 'uuid', NULL, NULL, true, 'a UUID or null'),
	('acquire program own', 'starts_at', 'integer', -62135596800000000, 253402300799999999, true, 'microseconds since 1970, in the years 1 to 9999, or null'),
	('acquire program own', 'ids_end_at', 'integer', -62135596800000000, 253402300799999999, true, 'microseconds since 1970, in the years 1 to 9999, or null'),
	('start', 'mark', 'string', NULL, NULL, true, 'a string or null'),
	('record', 'incarnation', 'uuid', NULL, NULL, false, 'a UUID');
UPDATE key SET unfit = 'less than the number of this call' WHERE path = 'lease.granted_by';
UPDATE key SET unfit = 'last_number, or at most 4294967295 less' WHERE path = 'first_number';
-- NULL: the key is missing
CREATE TABLE value (value jsonb);
INSERT INTO value VALUES
	(NULL), ('null'), ('true'), ('false'), ('"x"'), ('""'), ('"1"'), ('"null"'), ('[]'), ('[1]'), ('[null]'), ('{}'), ('{"a": {"b": []}}'), ('[["timestamp"]]'),
	('0'), ('1'), ('-1'), ('0.5'), ('1.5'), ('1e400'), ('-1e400'), ('1e-400'), ('2147483647'), ('2147483648'), ('-2147483649'), ('4294967296'),
	('2305843009213693952'), ('9223372036854775807'), ('9223372036854775808'), ('-9223372036854775808'), ('-9223372036854775809'), ('1e100000'),
	('"00000000-0000-0000-0000-000000000001"'), ('"{00000000-0000-0000-0000-000000000001}"'), ('"00000000-0000-0000-0000-00000000000g"'),
	('"\u0001"'), ('"a\u001b[31m"'), ('"a\r\nb"'), ('"a\u007fb"'), ('"a\u0080"'), ('"a\u009bb"'), ('"a\u00a0b"'), ('"a\u061c"'), ('"\u200b"'), ('"a\u200fb"'), ('"a\u2028b"'),
	('"a\u202eb"'), ('"a\u2066b"'), ('"\ufeffa"'), ('"\udb40\udc41"'), ('"a b"'), ('"\u00fc"'), ('"\u65e5\u672c"'), ('"\ud83d\ude00"'),
	(to_jsonb(repeat('x', 255))), (to_jsonb(repeat('x', 256))), (to_jsonb(repeat(U&'\00fc', 127))), (to_jsonb(repeat(U&'\00fc', 128))), (to_jsonb(repeat('x', 1000000)));
INSERT INTO value SELECT DISTINCT to_jsonb(v) FROM key, unnest(ARRAY[least, most, least - 1, most + 1]) AS v
WHERE v IS NOT NULL AND NOT EXISTS (SELECT FROM value WHERE value = to_jsonb(v));
-- What a value of a key is refused with; NULL if it can be.
CREATE FUNCTION expected(k key, value jsonb) RETURNS text LANGUAGE plpgsql SET search_path = test, pg_catalog AS $$
DECLARE
	kind CONSTANT text := coalesce(jsonb_typeof(value), 'null');
	content CONSTANT text := value #>> '{}';
	possible boolean;
BEGIN
	possible := CASE WHEN kind = 'null' AND k.nullable THEN true
		WHEN k.kind = 'integer' THEN kind = 'number' AND content::numeric BETWEEN k.least AND k.most AND content::numeric % 1 = 0
		WHEN k.kind IN ('boolean', 'string', 'object') THEN kind = k.kind
		WHEN k.kind = 'uuid' THEN kind = 'string' AND length(content) = 36 AND content ~ '^[-0-9a-f]*$'
		WHEN k.kind = 'kind' THEN kind = 'string' AND content IN ('server', 'program')
		ELSE kind = 'string' AND octet_length(content) BETWEEN 1 AND 255 AND content !~ U&'[\0001-\001f\007f-\00a0\061c\200b\200f\2028\202e\2066\feff\+0e0041]' END;
	RETURN CASE WHEN NOT possible THEN format('22023: value of "%s" in a registry call is out of range: %s. It must be %s.', k.path,
		coalesce(regexp_replace(left(value::text, 64), U&'[\007f-\00a0\061c\200b\200f\2028\202e\2066\feff\+0e0041]', '?', 'g'), 'missing'),
		CASE WHEN k.unfit IS NOT NULL AND kind = 'number' AND content::numeric BETWEEN k.least AND 9223372036854775807 AND content::numeric % 1 = 0 THEN k.unfit ELSE k.bound END) END;
END
$$;
-- what a call says; nothing of it stays
CREATE FUNCTION said(function text, call jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer jsonb;
	detail text;
BEGIN
	EXECUTE format('SELECT snowflake.%I($1)', function) INTO answer USING call;
	RAISE EXCEPTION 'answer' USING ERRCODE = 'ZZ000';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN CASE SQLSTATE WHEN 'ZZ000' THEN concat_ws(' ', answer ->> 'answer', answer ->> 'reason', answer ->> 'sqlstate') ELSE format('%s: %s. %s', SQLSTATE, SQLERRM, detail) END;
END
$$;
SELECT label, said(function, call) FROM call ORDER BY label;
CREATE TABLE tried AS
SELECT c.label, k.path, v.value, expected(k, v.value) AS expected,
	said(c.function, CASE WHEN v.value IS NULL THEN c.call #- string_to_array(k.path, '.') ELSE jsonb_set(c.call, string_to_array(k.path, '.'), v.value) END) AS said
FROM call AS c JOIN key AS k ON c.label = ANY (string_to_array(k.calls, ' ')), value AS v;
SELECT count(DISTINCT (label, path)) AS keys, count(DISTINCT value) AS values, count(*) FILTER (WHERE expected IS NOT NULL) AS refused, count(*) FILTER (WHERE said = 'yes') AS yes FROM tried;
-- each by its name
SELECT label, path, left(value::text, 40) AS value, expected, left(said, 200) AS said FROM tried WHERE said <> expected;
-- what is possible is decided: other errors say what other value does not go with it
SELECT DISTINCT label, path, left(value::text, 40) AS value, left(said, 200) AS said FROM tried
WHERE expected IS NULL AND said !~ '^(yes|no [a-z ]+|refused (55000|53400)|22023: value of "[a-z_.]+" in a registry call is out of range: .*)$'
	AND NOT (said = 'refused 22023' AND path = 'last_number' AND value > '15');
SELECT said, count(*) > 0 AS there FROM tried WHERE expected IS NULL AND said !~ '^22023' GROUP BY said ORDER BY said COLLATE "C";
-- Of more numbers than can be searched.
CREATE FUNCTION wide(first bigint, last bigint) RETURNS jsonb LANGUAGE sql AS $$
	SELECT node(6, 1) || jsonb_build_object('fixed', false, 'first_number', first, 'last_number', last, 'layout', 'timestamp 15, datacenter 16, worker 31, sequence 1, tick 1s, epoch 2024-03-01T11:58:20Z')
$$;
BEGIN;
INSERT INTO snowflake.cluster (layout) SELECT wide(0, 0) ->> 'layout';
SELECT said('acquire_lease', wide(first, last)) FROM (VALUES (0, 140737488355326), (0, 4294967296), (0, 4294967295), (140733193388031, 140737488355326), (9223372032559808512, 9223372036854775807)) AS v (first, last);
ROLLBACK;
-- What is not printable, of all code points (but for planes without characters): as Unicode has it
WITH shown AS (
	SELECT u.n, u.before <> u.after AS refused
	FROM generate_series(0, 271) AS piece,
		LATERAL (SELECT string_agg(chr(n), '' ORDER BY n) AS text, array_agg(n ORDER BY n) AS numbers
			FROM generate_series(greatest(piece * 4096, 1), piece * 4096 + 4095) AS n WHERE n NOT BETWEEN 55296 AND 57343) AS t,
		LATERAL unnest(t.numbers, string_to_array(t.text, NULL), string_to_array(snowflake.printable(t.text), NULL)) AS u (n, before, after)
	WHERE piece NOT BETWEEN 32 AND 222 AND piece NOT BETWEEN 226 AND 269)
SELECT string_agg(to_hex(first) || CASE WHEN first < last THEN '-' || to_hex(last) ELSE '' END, ' ' ORDER BY first) AS refused
FROM (SELECT min(n) AS first, max(n) AS last
	FROM (SELECT n, n - row_number() OVER (ORDER BY n) AS island FROM shown WHERE refused) AS r GROUP BY island) AS r;

--
-- A role that may call, and nothing else
--
CREATE ROLE registry_node;
CREATE ROLE registry_nobody;
GRANT USAGE ON SCHEMA test TO PUBLIC;
GRANT USAGE ON SCHEMA snowflake TO registry_node;
GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease TO registry_node;
SET ROLE registry_nobody;
SELECT snowflake.acquire_lease(node(1, 1));
SELECT count(*) FROM snowflake.nodes;
RESET ROLE;
SET SESSION AUTHORIZATION registry_node;
SELECT shown(snowflake.acquire_lease(node(1, 1)));
SELECT shown(snowflake.renew_lease(node(1, 2) || lease(1)));
SELECT shown(snowflake.release_lease(node(1, 3) || lease(1)));
-- all other functions are refused; so are the tables
RESET SESSION AUTHORIZATION;
SELECT p.oid::regprocedure FROM pg_proc AS p
WHERE p.pronamespace = 'snowflake'::regnamespace AND has_function_privilege('registry_node', p.oid, 'EXECUTE') ORDER BY 1;
SELECT count(*) AS anybody FROM pg_proc AS p
WHERE p.pronamespace = 'snowflake'::regnamespace AND has_function_privilege('registry_nobody', p.oid, 'EXECUTE');
SET SESSION AUTHORIZATION registry_node;
SELECT snowflake.acquire_own_lease(node(2, 1));
SELECT snowflake.start_server(node(2, 1));
SELECT snowflake.record_uses('{}');
SELECT snowflake.change_layout('');
SELECT snowflake.limit_leases('1 h');
SELECT snowflake.close_registry('{}');
SELECT snowflake.take_over('{}');
SELECT snowflake.take_over_lost('00000000-0000-0000-0000-000000000001');
SELECT snowflake.ids_end_before('2020-01-01');
SELECT snowflake.ids_end_before('2020-01-01', 'registry_nobody');
SELECT snowflake.grant_lease('{}', true);
SELECT count(*) FROM snowflake.node_number;
SELECT count(*) FROM snowflake.worker_node;
UPDATE snowflake.registry SET generation = 9;
INSERT INTO snowflake.cluster (uses) VALUES ('own');
SELECT count(*) FROM snowflake.nodes;
SELECT count(*) FROM snowflake.leases;
SELECT count(*) FROM snowflake.guard;
-- A shown role may look
RESET SESSION AUTHORIZATION;
GRANT pg_read_all_stats TO registry_nobody;
SET ROLE registry_nobody;
SELECT count(*) FROM snowflake.nodes;
SELECT count(*) FROM snowflake.guard;
SELECT count(*) FROM snowflake.leases;
SELECT count(*) FROM snowflake.worker_node;
RESET ROLE;
REVOKE pg_read_all_stats FROM registry_nobody;

-- What such a role says of itself: no key makes it the registry's own server, pushes the generation or what is used,
-- changes the layout, takes a number for long, or moves where others' leases start.  The role is on record.
SET SESSION AUTHORIZATION registry_node;
SELECT shown(snowflake.acquire_lease(node(2, 1, jsonb_build_object('own', true, 'p_own', true, 'timelines', '{9/9/9}', 'generation', 9, 'role', 'postgres', 'mark', 'm'))));
SELECT shown(snowflake.acquire_lease(node(3, 1, '{"starts_at": 1709294410000000}')));
SELECT snowflake.acquire_lease(node(4, 1, '{"clock": 3155760000000000}')) ->> 'message' AS refused;
SELECT snowflake.acquire_lease(node(4, 1, '{"starts_at": 3155760000000000}')) ->> 'message' AS refused;
SELECT snowflake.acquire_lease(node(4, 1, '{"layout": "timestamp 41, worker 4, sequence 4, tick 1ms, epoch 2019-01-01T00:00:00Z"}')) ->> 'message' AS refused;
SELECT (answer -> 'leased_until')::bigint - (answer -> 'clock')::bigint BETWEEN 0 AND 180000000 AS cut
FROM snowflake.acquire_lease(node(9, 1, jsonb_build_object('clock', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'window', 172800000000))) AS answer;
-- a lie about what it has been granted: no other node's lease ends or waits
SELECT snowflake.renew_lease(node(4, 1) || jsonb_build_object('call', 9) || lease(3, jsonb_build_object('token', gen_random_uuid(), 'leased_until', 3155760000000000))) ->> 'reason' AS reason;
RESET SESSION AUTHORIZATION;
SELECT generation, counted, counted_at, starts_at, mark FROM snowflake.registry;
TABLE snowflake.cluster;
SELECT DISTINCT role FROM snowflake.leases ORDER BY 1;
SELECT guard, times FROM snowflake.guard;
SET SESSION AUTHORIZATION registry_node;
SELECT shown(snowflake.renew_lease(node(3, 2) || lease(3))) ->> 'answer' AS goes_on;
SELECT shown(snowflake.acquire_lease(node(4, 1)));
-- the year 294276, and what no time is
SELECT snowflake.acquire_lease(node(4, 2, '{"clock": 9224318015999999999}'));
SELECT snowflake.acquire_lease(node(4, 2, '{"launched_at": 9223372036854775807}'));
SELECT snowflake.renew_lease(node(4, 2, '{"clock": 1e400}') || lease(4));
-- a lease of another node is neither renewed nor closed without its token and start
SELECT shown(snowflake.renew_lease(node(4, 2) || lease(3)));
SELECT shown(snowflake.release_lease(node(4, 3) || lease(3)));
RESET SESSION AUTHORIZATION;
SELECT node_number, token IS NOT NULL AS open FROM snowflake.node_number ORDER BY node_number;

--
-- Names: what somebody puts into another schema is never called
--
CREATE SCHEMA public;
GRANT ALL ON SCHEMA public TO PUBLIC;
GRANT USAGE ON SCHEMA snowflake TO registry_nobody;
SET ROLE registry_nobody;
CREATE FUNCTION public.mean(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '% was called as %', $1, current_user; END $$;
CREATE FUNCTION public.gen_random_uuid() RETURNS uuid LANGUAGE sql AS $$ SELECT public.mean('gen_random_uuid')::text::uuid $$;
CREATE FUNCTION public.snowflake_layout(text) RETURNS text LANGUAGE sql AS $$ SELECT public.mean('snowflake_layout')::text $$;
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT public.mean('clock_timestamp')::text::timestamptz $$;
CREATE FUNCTION public.less(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS $$ SELECT public.mean('less')::text::boolean $$;
CREATE OPERATOR public.< (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = public.less);
CREATE TEMP TABLE registry AS SELECT 1 AS one;
CREATE TEMP TABLE node_number AS SELECT 1 AS node_number;
RESET ROLE;
SET SESSION AUTHORIZATION registry_node;
SET search_path = public, test, pg_catalog;
SELECT shown(snowflake.acquire_lease(node(5, 1))), shown(snowflake.renew_lease(node(5, 2) || lease(5))), shown(snowflake.release_lease(node(5, 3) || lease(5)));
RESET SESSION AUTHORIZATION;
SELECT count(*) FROM snowflake.nodes;
ALTER SCHEMA public RENAME TO private;
CREATE SCHEMA public;
SET search_path = test;
SET SESSION AUTHORIZATION registry_node;
SELECT shown(snowflake.acquire_lease(node(6, 1))) ->> 'answer' AS answer;
RESET SESSION AUTHORIZATION;
DROP SCHEMA public CASCADE;
DROP SCHEMA private CASCADE;
SELECT count(*) FROM snowflake.worker_node;
-- nobody but the owner renames the schema
SET SESSION AUTHORIZATION registry_node;
ALTER SCHEMA snowflake RENAME TO other;
RESET SESSION AUTHORIZATION;

--
-- Settings of the session do not show
--
CREATE FUNCTION answers(n int, call int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	result := shown(snowflake.acquire_lease(node(n, call)))::text || shown(snowflake.renew_lease(node(n, call + 1) || lease(n)))::text
		|| shown(snowflake.release_lease(node(n, call + 2) || lease(n)))::text
		|| shown(snowflake.acquire_lease(node(n, call + 3, '{"host_name": "other", "system_identifier": 1, "clock": 1577836800000000}')))::text
		|| shown(snowflake.acquire_lease(node(n, call + 3, '{"layout": "another''s"}')))::text;
	DELETE FROM snowflake.worker_node WHERE node_number = n;
	UPDATE snowflake.node_number SET ended_until = DEFAULT, recorded_until = DEFAULT WHERE node_number = n;
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
-- and that of an order
BEGIN;
SELECT snowflake.successor() ->> 'protocol' AS protocol;
SHOW synchronous_commit;
ROLLBACK;
BEGIN;
SELECT snowflake.limit_leases('3 minutes');
SHOW synchronous_commit;
ROLLBACK;
RESET synchronous_commit;
-- each value of these two; a warning says that a commit is not on a synchronous standby
CREATE FUNCTION during_renewal(setting text, value text, number bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config(setting, value, true);
	IF shown(snowflake.renew_lease(node(8, number::integer) || lease(8))) ->> 'answer' <> 'yes' THEN
		RAISE EXCEPTION 'not renewed';
	END IF;
	RETURN current_setting(setting);
END
$$;
SELECT value, during_renewal('synchronous_commit', value, 2 + n) FROM unnest('{off,local,remote_write,on,remote_apply}'::text[]) WITH ORDINALITY AS v (value, n);
SELECT value, during_renewal('client_min_messages', value, 7 + n) FROM unnest('{error,warning,notice,log}'::text[]) WITH ORDINALITY AS v (value, n);
-- other isolation levels are refused, and what only reads
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT snowflake.renew_lease(node(8, 12) || lease(8));
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT snowflake.close_registry('{"incarnation": "00000000-0000-0000-0000-000000000001"}');
ROLLBACK;
BEGIN READ ONLY;
SELECT snowflake.renew_lease(node(8, 12) || lease(8));
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
CREATE OR REPLACE FUNCTION snowflake.check_database() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION registry_node;
SELECT snowflake.acquire_lease(node(1, 1));
RESET SESSION AUTHORIZATION;

--
-- Other encodings: nothing but ASCII is printable
--
\c :home
CREATE DATABASE registry_latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C';
\c registry_latin1
\set ECHO none
\i test/elsewhere.sql
\set ECHO all
CREATE EXTENSION snowflake_registry;
SET client_encoding = 'UTF8';
SELECT snowflake.printable('a b~'), snowflake.printable(U&'a\009bb'), snowflake.printable(U&'a\00fcb');
SELECT snowflake.check_call('{"name": "a b~", "fixed": false}', 'program');
SELECT snowflake.check_call('{"name": "a\u00fcb", "fixed": false}', 'program');
\c :home
CREATE DATABASE registry_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C';
\c registry_ascii
\set ECHO none
\i test/elsewhere.sql
\set ECHO all
CREATE EXTENSION snowflake_registry;
SELECT snowflake.printable('a b~'), snowflake.printable(convert_from('\x61e280ae62', 'SQL_ASCII')), snowflake.printable(convert_from('\x619b62', 'SQL_ASCII'));
SELECT snowflake.check_call('{"name": "a b~", "fixed": false}', 'program');
SELECT snowflake.check_call(jsonb_build_object('name', convert_from('\x61e280ae62', 'SQL_ASCII'), 'fixed', false), 'program');

\c :home
DROP DATABASE registry_latin1;
DROP DATABASE registry_ascii;
DROP DATABASE registry_hostile;
DROP ROLE registry_node, registry_nobody, registry_owner;
