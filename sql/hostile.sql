-- The extension's schema can be one where others create functions: public belongs to the
-- owner of the database.  Functions of the extension, which a superuser may call, call each other and
-- no function of another user, however well it fits.
SET timezone = 'UTC';
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
RESET client_min_messages;

-- of each function one for texts, which a literal prefers, and one without what has a default
DO $$
DECLARE
	f record;
	types text;
	made integer := 0;
BEGIN
	FOR f IN
		SELECT p.proname, p.pronargs, p.pronargdefaults, p.proargtypes, p.prokind
		FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
		WHERE p.pronamespace = 'public'::regnamespace
		ORDER BY p.oid::regprocedure::text
	LOOP
		FOR n IN f.pronargs - f.pronargdefaults .. f.pronargs LOOP
			FOREACH types IN ARRAY ARRAY[
				(SELECT string_agg('text', ', ') FROM generate_series(1, n)),
				(SELECT string_agg(format_type(f.proargtypes[i - 1], NULL), ', ' ORDER BY i) FROM generate_series(1, n) AS i)]
			LOOP
				CONTINUE WHEN to_regprocedure(format('public.%I(%s)', f.proname, types)) IS NOT NULL;
				EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS bigint LANGUAGE plpgsql AS
					''BEGIN RAISE EXCEPTION $m$hijacked$m$; END''', f.proname, types);
				made := made + 1;
			END LOOP;
		END LOOP;
	END LOOP;
	RAISE NOTICE 'made many: %', made > 40;
END
$$;
SELECT public.snowflake_max_id('infinity', 'twitter');

-- all that is written in SQL
CREATE TABLE hostile (nr serial PRIMARY KEY, id bigint DEFAULT public.snowflake_nextval(), at timestamptz DEFAULT '2024-05-05 00:00Z');
INSERT INTO hostile SELECT FROM generate_series(1, 3);
SELECT count(DISTINCT id) FROM (SELECT public.snowflake_backfill_id(at) OVER (ORDER BY at, nr) AS id FROM hostile) AS b;
SELECT count(DISTINCT id) FROM (SELECT public.snowflake_backfill_id(at, 'js53'::text) OVER (ORDER BY at, nr) AS id FROM hostile) AS b;
SELECT count(DISTINCT public.snowflake_nextval('js53'::text)) FROM hostile;
CREATE TABLE leases AS SELECT n AS node_number, t AS launched_at, t AS starts_at, '2090-01-01'::timestamptz AS leased_until
FROM generate_series(0::bigint, 1023) AS n, CAST('2024-01-01' AS timestamptz) AS t;
SELECT count(*) FROM public.snowflake_audit('hostile'::regclass, 'id'::name, 'leases'::regclass, NULL::text);
SELECT count(*) > 3 AS guesses FROM public.snowflake_guess(1278735254799392768::bigint, '2026-11-21'::timestamptz);
SELECT count(*) FROM public.snowflake_convert_column('hostile'::regclass, 'nr'::name, NULL::text, true, 'bigint'::text);
SELECT count(*) > 0 AS keys FROM public.snowflake_convert_schema('public'::regnamespace, NULL::text, '{}'::regclass[], true, 'bigint'::text);
SELECT count(*) FROM public.snowflake_convert_column('hostile'::regclass, 'nr'::name, 'js53'::text, false, 'bigint'::text);
SELECT count(*) FROM public.snowflake_revert_column('hostile'::regclass, 'nr'::name, false);
CREATE TABLE events (id bigint DEFAULT public.snowflake_nextval()) PARTITION BY RANGE (id);
SELECT count(*) FROM public.snowflake_create_partitions('events'::regclass, '2026-01-01Z'::timestamptz, '2026-03-01Z'::timestamptz,
	'1 month'::interval, NULL::text, false);
SELECT count(*) FROM public.snowflake_create_partitions('events'::regclass, '2026-03-01Z'::timestamptz, '2026-05-01Z'::timestamptz,
	'1 month'::interval, 'js53'::text, true);
SELECT count(*) FROM public.snowflake_partition_bounds('2026-01-01Z'::timestamptz, '2026-03-01Z'::timestamptz, '1 month'::interval);
SELECT count(*) FROM pg_stat_snowflake WHERE layout = 'twitter';
DROP TABLE hostile, events, leases;

SET client_min_messages = warning;
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN SELECT p.oid FROM pg_proc AS p WHERE p.pronamespace = 'public'::regnamespace AND p.prosrc LIKE '%hijacked%' LOOP
		EXECUTE format('DROP FUNCTION %s', f);
	END LOOP;
END
$$;
RESET client_min_messages;

-- The owner of the schema renames it, makes it again, and puts functions there under the names of all of ours.
ALTER SCHEMA public RENAME TO moved;
CREATE SCHEMA public;
DO $$
DECLARE
	f record;
	made integer := 0;
BEGIN
	FOR f IN
		SELECT p.proname, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
		FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
		WHERE p.pronamespace = 'moved'::regnamespace AND p.prokind = 'f'
		ORDER BY p.oid::regprocedure::text
	LOOP
		EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS
			''BEGIN RAISE EXCEPTION $m$hijacked$m$; END''', f.proname, f.arguments, f.result);
		made := made + 1;
	END LOOP;
	RAISE NOTICE 'made many: %', made > 25;
END
$$;
SELECT public.snowflake_max_id('infinity', 'twitter');
SET search_path = moved;

-- all that is written in SQL
CREATE TABLE hostile (nr serial PRIMARY KEY, id bigint DEFAULT moved.snowflake_nextval(), at timestamptz DEFAULT '2024-05-05 00:00Z');
INSERT INTO hostile SELECT FROM generate_series(1, 3);
CREATE TABLE leases AS SELECT n AS node_number, t AS launched_at, t AS starts_at, '2090-01-01'::timestamptz AS leased_until
FROM generate_series(0::bigint, 1023) AS n, CAST('2024-01-01' AS timestamptz) AS t;
SELECT count(*) FROM moved.snowflake_audit('hostile', 'id', 'leases');
SELECT count(*) > 3 AS guesses FROM moved.snowflake_guess(1278735254799392768, '2026-11-21');
SELECT * FROM moved.snowflake_convert_column('hostile', 'nr', NULL, true) AS statement WHERE statement ~ 'DEFAULT';
SELECT count(*) > 0 AS keys FROM moved.snowflake_convert_schema('moved');
SELECT count(*) FROM moved.snowflake_convert_column('hostile', 'nr', 'js53', false);
SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'hostile'::regclass AND adnum = 1;
SELECT count(*) FROM moved.snowflake_revert_column('hostile', 'nr', false);
CREATE TABLE events (id bigint DEFAULT moved.snowflake_nextval()) PARTITION BY RANGE (id);
SELECT count(*) FROM moved.snowflake_create_partitions('events', '2026-01-01Z', '2026-03-01Z', '1 month', NULL, false);
SELECT count(*) FROM moved.snowflake_drop_partitions('events', '2026-02-01Z');
SELECT count(*) FROM moved.snowflake_partition_bounds('2026-01-01Z', '2026-03-01Z', '1 month');
SELECT count(*) FROM moved.snowflake_partition_bounds('2026-01-01Z', '2026-03-01Z', '1 month', 'js53');
SELECT moved.snowflake_within(id, '2026-01-01Z', 'infinity') FROM hostile LIMIT 1;
SELECT count(*) FROM moved.snowflake_layouts();
SELECT count(*) FROM pg_stat_snowflake WHERE layout = 'twitter';
DROP TABLE hostile, events;

RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA public CASCADE;
ALTER SCHEMA moved RENAME TO public;
DROP EXTENSION snowflake, snowflake_tools;
RESET client_min_messages;

-- no function of the extension names another one by a schema that somebody else can own
CREATE EXTENSION snowflake;
CREATE EXTENSION snowflake_tools;
SELECT p.oid::regprocedure FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
WHERE p.prosrc ~ 'public\.';
DROP EXTENSION snowflake, snowflake_tools;

-- a schema of that name that somebody else made is not taken over; 18 says in which statement
\set SHOW_CONTEXT never
CREATE SCHEMA snowflake_internal;
CREATE EXTENSION snowflake;
DROP SCHEMA snowflake_internal;
CREATE SCHEMA snowflake_tools;
CREATE EXTENSION snowflake_tools CASCADE;
DROP SCHEMA snowflake_tools;
\set SHOW_CONTEXT errors
-- that of the registry is no concern of this extension
CREATE SCHEMA snowflake;
CREATE EXTENSION snowflake;
SELECT (SELECT count(*) FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace) AS functions,
	(SELECT count(*) FROM pg_class WHERE relnamespace = 'snowflake'::regnamespace) AS relations;
DROP EXTENSION snowflake;
DROP SCHEMA snowflake;
