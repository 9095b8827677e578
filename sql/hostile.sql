-- The extension's schema can be one where others create functions: public belongs to the
-- owner of the database.  Functions of the extension, some with a superuser's rights, call each other and
-- no function of another user, however well it fits.
SET timezone = 'UTC';
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
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
SELECT count(*) FROM public.snowflake_audit('hostile'::regclass, 'id'::name, NULL::text);
SELECT count(*) > 3 AS guesses FROM public.snowflake_guess(1278735254799392768::bigint, '2026-11-21'::timestamptz);
SELECT count(*) FROM public.snowflake_convert_column('hostile'::regclass, 'nr'::name, NULL::text, true);
SELECT count(*) > 0 AS keys FROM public.snowflake_convert_schema('public'::regnamespace, NULL::text, '{}'::regclass[], true);
SELECT count(*) FROM public.snowflake_convert_column('hostile'::regclass, 'nr'::name, 'js53'::text, false);
SELECT count(*) FROM public.snowflake_revert_column('hostile'::regclass, 'nr'::name, false);
CREATE TABLE events (id bigint DEFAULT public.snowflake_nextval()) PARTITION BY RANGE (id);
SELECT count(*) FROM public.snowflake_create_partitions('events'::regclass, '2026-01-01Z'::timestamptz, '2026-03-01Z'::timestamptz,
	'1 month'::interval, NULL::text, false);
SELECT count(*) FROM public.snowflake_create_partitions('events'::regclass, '2026-03-01Z'::timestamptz, '2026-05-01Z'::timestamptz,
	'1 month'::interval, 'js53'::text, true);
SELECT count(*) FROM public.snowflake_partition_bounds('2026-01-01Z'::timestamptz, '2026-03-01Z'::timestamptz, '1 month'::interval);
SELECT count(*) FROM pg_stat_snowflake WHERE layout = 'twitter';
DROP TABLE hostile, events;

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
DROP EXTENSION snowflake;
RESET client_min_messages;
