-- The extension's schema can be one where others create functions: public belongs to the
-- owner of the database.  Functions of the extension, some of which run as a superuser, call each
-- other and nobody else's, however well his would fit.
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
SELECT public.snowflake_create_generator('hostile'::text, 'timestamp 41, worker 9, sequence 12, epoch 2024-01-01T00:00:00Z'::text);
SELECT count(DISTINCT public.snowflake_backfill_id(at)) FROM hostile;
SELECT count(DISTINCT public.snowflake_backfill_id(at, 'hostile'::text)) FROM hostile;
\set VERBOSITY sqlstate
SELECT public.snowflake_backfill_id('2100-01-01'::timestamptz);
SELECT public.snowflake_backfill_id('1970-01-01'::timestamptz);
\set VERBOSITY default
SELECT count(*) FROM public.snowflake_audit('hostile'::regclass, 'id'::name, NULL::text);
SELECT count(*) > 3 AS guesses FROM public.snowflake_guess(1278735254799392768::bigint, '2026-11-21'::timestamptz);
SELECT count(*) FROM public.snowflake_convert_column('hostile'::regclass, 'nr'::name, NULL::text, true);
SELECT count(*) FROM public.snowflake_convert_column('hostile'::regclass, 'nr'::name, 'hostile'::text, false);
SELECT count(*) FROM public.snowflake_revert_column('hostile'::regclass, 'nr'::name, false);
CREATE TABLE events (id bigint DEFAULT public.snowflake_nextval()) PARTITION BY RANGE (id);
SELECT count(*) FROM public.snowflake_create_partitions('events'::regclass, '2026-01-01Z'::timestamptz, '2026-03-01Z'::timestamptz,
	'1 month'::interval, NULL::text, false);
SELECT count(*) FROM public.snowflake_create_partitions('events'::regclass, '2026-03-01Z'::timestamptz, '2026-05-01Z'::timestamptz,
	'1 month'::interval, 'hostile'::text, true);
SELECT count(*) FROM public.snowflake_partition_bounds('2026-01-01Z'::timestamptz, '2026-03-01Z'::timestamptz, '1 month'::interval);
SELECT public.snowflake_change_layout('mastodon'::text);
SELECT public.snowflake_change_layout('twitter'::text);
SELECT public.snowflake_change_layout('leaf'::text);
SELECT public.snowflake_change_layout('pgedge'::text);
SELECT count(*) FROM pg_stat_snowflake WHERE layout = 'twitter';
SELECT public.snowflake_drop_generator('hostile'::text);
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
