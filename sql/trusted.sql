-- The owner of a database creates snowflake and snowflake_tools.  What they make belongs to a superuser, and nothing
-- that the owner has made before, in whatever schema, is executed meanwhile, nor by others afterwards.
SET client_min_messages = warning;
\set home :DBNAME
CREATE ROLE regress_snowflake_keeper;
CREATE ROLE regress_snowflake_guest;
CREATE DATABASE regress_snowflake_kept OWNER regress_snowflake_keeper;
\c regress_snowflake_kept
SET client_min_messages = warning;
SET timezone = 'UTC';
\pset format unaligned
\pset tuples_only
-- hints differ between majors
\set VERBOSITY terse

-- a guest does not
GRANT CREATE ON SCHEMA public TO regress_snowflake_guest;
SET ROLE regress_snowflake_guest;
CREATE EXTENSION snowflake;
RESET ROLE;

--
-- What the owner lays in wait.  Whatever is executed says so in a table, and with whose rights.
--
SET ROLE regress_snowflake_keeper;
CREATE SCHEMA lair;
CREATE TABLE lair.caught (who text, what text);
GRANT ALL ON SCHEMA lair TO PUBLIC;
GRANT ALL ON lair.caught TO PUBLIC;
SET search_path = lair;
CREATE FUNCTION lair.spring(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO lair.caught VALUES (current_user, what);
	RAISE WARNING 'caught % by %', current_user, what;
	BEGIN
		ALTER ROLE regress_snowflake_keeper SUPERUSER;
	EXCEPTION WHEN insufficient_privilege THEN
		NULL;
	END;
END $$;
-- operators that fit better, or as well, of the types that the scripts and functions use
DO $$
DECLARE
	types text[] := '{bigint,integer,smallint,text,name,oid,boolean,jsonb,interval,numeric,"char",regclass,timestamptz,timestamp,int8range,unknown}';
	made integer := 0;
	f text;
BEGIN
	FOR l IN 1 .. cardinality(types) LOOP
		FOR r IN 1 .. cardinality(types) LOOP
			CONTINUE WHEN 'unknown' IN (types[l], types[r]);
			f := format('trap_%s_%s', l, r);
			EXECUTE format('CREATE FUNCTION lair.%I(%s, %s) RETURNS boolean LANGUAGE plpgsql AS
				$f$ BEGIN PERFORM lair.spring(%L); RETURN true; END $f$', f, types[l], types[r], f);
			FOREACH f IN ARRAY '{=,<>,<,>,<=,>=,||,+,-,*,@>,~,->>,?}'::text[] LOOP
				EXECUTE format('CREATE OPERATOR lair.%s (FUNCTION = %I, LEFTARG = %s, RIGHTARG = %s)', f, format('trap_%s_%s', l, r), types[l], types[r]);
				made := made + 1;
			END LOOP;
		END LOOP;
	END LOOP;
	RAISE WARNING 'made many: %', made > 3000;
END
$$;
-- functions of PostgreSQL's names, and of those of the extensions with other arguments
CREATE FUNCTION lair.format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.spring('format'); RETURN $1; END $$;
CREATE FUNCTION lair.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.spring('statement_timestamp'); RETURN now(); END $$;
CREATE FUNCTION lair.length(text) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.spring('length'); RETURN 1; END $$;
CREATE FUNCTION lair.int8in(text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.spring('int8in'); RETURN 1; END $$;
CREATE FUNCTION lair.snowflake_nextval(integer) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.spring('nextval'); RETURN 1; END $$;
-- types of PostgreSQL's names, and a cast
CREATE DOMAIN lair.text AS pg_catalog.text CHECK (lair.spring('text') IS NULL);
CREATE DOMAIN lair.regclass AS pg_catalog.regclass CHECK (lair.spring('regclass') IS NULL);
CREATE DOMAIN lair.name AS pg_catalog.name CHECK (lair.spring('name') IS NULL);
CREATE DOMAIN lair.int8 AS pg_catalog.int8 CHECK (lair.spring('int8') IS NULL);
CREATE TYPE lair.record AS (a int);
CREATE TYPE lair.coin AS (a int);
CREATE FUNCTION lair.to_coin(bigint) RETURNS lair.coin LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.spring('cast'); RETURN NULL; END $$;
CREATE CAST (bigint AS lair.coin) WITH FUNCTION lair.to_coin(bigint) AS IMPLICIT;
CREATE EVENT TRIGGER snare ON ddl_command_end EXECUTE FUNCTION lair.spring();
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO regress_snowflake_guest;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO regress_snowflake_guest;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO regress_snowflake_guest;

-- what is there already is not taken over
CREATE SCHEMA snowflake_internal;
CREATE EXTENSION snowflake SCHEMA lair;
DROP SCHEMA snowflake_internal;
CREATE FUNCTION lair.snowflake_nextval() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
CREATE EXTENSION snowflake SCHEMA lair;
DROP FUNCTION lair.snowflake_nextval();
CREATE TYPE lair.snowflake_id;
CREATE DOMAIN lair.snowflake_id AS bigint;
CREATE EXTENSION snowflake SCHEMA lair;
DROP DOMAIN lair.snowflake_id;
CREATE VIEW lair.pg_stat_snowflake AS SELECT 1 AS one;
CREATE EXTENSION snowflake SCHEMA lair;
DROP VIEW lair.pg_stat_snowflake;
CREATE FUNCTION lair.pg_stat_snowflake(text DEFAULT 'x', OUT a int) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
\set VERBOSITY sqlstate
CREATE EXTENSION snowflake SCHEMA lair;
\set VERBOSITY terse
DROP FUNCTION lair.pg_stat_snowflake(text);
CREATE EXTENSION snowflake SCHEMA lair;
CREATE SCHEMA snowflake_tools;
CREATE EXTENSION snowflake_tools SCHEMA lair;
DROP SCHEMA snowflake_tools;
CREATE EXTENSION snowflake_tools SCHEMA lair;
RESET search_path;

-- The extensions are the owner's.  What they made is a superuser's, calls nothing of his, and runs with its caller's rights.
SELECT e.extname, r.rolname = 'regress_snowflake_keeper' AS owner FROM pg_extension AS e JOIN pg_roles AS r ON r.oid = e.extowner
WHERE e.extname ~ '^snowflake' ORDER BY 1;
CREATE VIEW lair.member AS
SELECT d.classid::regclass AS catalog, d.objid, pg_describe_object(d.classid, d.objid, 0) AS object
FROM pg_extension AS e JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
WHERE e.extname ~ '^snowflake';
SELECT m.object FROM lair.member AS m
	LEFT JOIN pg_proc AS p ON m.catalog = 'pg_proc'::regclass AND p.oid = m.objid
	LEFT JOIN pg_class AS c ON m.catalog = 'pg_class'::regclass AND c.oid = m.objid
	LEFT JOIN pg_namespace AS n ON m.catalog = 'pg_namespace'::regclass AND n.oid = m.objid
	LEFT JOIN pg_type AS t ON m.catalog = 'pg_type'::regclass AND t.oid = m.objid
WHERE coalesce(p.proowner, c.relowner, n.nspowner, t.typowner) <> 10 OR p.prosecdef;
SELECT pg_describe_object(d.classid, d.objid, 0), pg_describe_object(d.refclassid, d.refobjid, 0)
FROM pg_depend AS d JOIN lair.member AS m ON m.catalog = d.classid AND m.objid = d.objid
WHERE d.deptype = 'n' AND pg_describe_object(d.refclassid, d.refobjid, 0) NOT IN ('schema lair', 'language plpgsql')
	AND (d.refclassid, d.refobjid) NOT IN (SELECT o.catalog, o.objid FROM lair.member AS o)
	AND pg_describe_object(d.refclassid, d.refobjid, 0) !~ '^type snowflake_tools\.\w+\[\]$';
-- only what is for administrators
SELECT lair.snowflake_release();
SELECT lair.pg_stat_snowflake_reset();
GRANT EXECUTE ON FUNCTION lair.snowflake_release() TO regress_snowflake_keeper;
SELECT has_function_privilege('regress_snowflake_keeper', 'lair.snowflake_release()', 'EXECUTE');
CREATE FUNCTION snowflake_internal.mine() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION snowflake_tools.mine() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE OR REPLACE FUNCTION snowflake_internal.layout_definition(layout text) RETURNS text LANGUAGE sql AS 'SELECT 1';
ALTER SCHEMA snowflake_internal RENAME TO mine;
ALTER FUNCTION lair.snowflake_nextval() RENAME TO mine;
DROP FUNCTION lair.snowflake_nextval();
DROP SCHEMA snowflake_internal CASCADE;
ALTER TYPE lair.snowflake_id RENAME TO mine;
DROP CAST (bigint AS lair.snowflake_id);
CREATE CAST (lair.snowflake_id AS text) WITH INOUT AS IMPLICIT;
-- the owner of an extension may add what is his, but take nothing away and move nothing
ALTER EXTENSION snowflake SET SCHEMA public;
ALTER EXTENSION snowflake_tools SET SCHEMA public;
ALTER EXTENSION snowflake DROP FUNCTION lair.snowflake_nextval();
ALTER EXTENSION snowflake DROP SCHEMA snowflake_internal;
CREATE FUNCTION lair.snowflake_next_id(a integer) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.spring('next_id'); RETURN 1; END $$;
CREATE SCHEMA den;
CREATE FUNCTION den.snowflake_next_id() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.spring('next_id'); RETURN 1; END $$;
ALTER EXTENSION snowflake ADD FUNCTION lair.snowflake_next_id(integer);
ALTER EXTENSION snowflake ADD FUNCTION den.snowflake_next_id();
SELECT f::regprocedure FROM snowflake_tools.nextval_functions() AS f ORDER BY 1;
-- operators and a cast of the type
CREATE FUNCTION lair.trap_id(lair.snowflake_id, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.spring('id'); RETURN true; END $$;
CREATE FUNCTION lair.to_coin(lair.snowflake_id) RETURNS lair.coin LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.spring('cast'); RETURN NULL; END $$;
CREATE CAST (lair.snowflake_id AS lair.coin) WITH FUNCTION lair.to_coin(lair.snowflake_id) AS IMPLICIT;
DO $$
DECLARE
	f text;
BEGIN
	FOREACH f IN ARRAY '{=,<>,<,>,<=,>=,||,+,-,*,@>,~,&,>>}'::text[] LOOP
		EXECUTE format('CREATE OPERATOR lair.%s (FUNCTION = lair.trap_id, LEFTARG = lair.snowflake_id, RIGHTARG = bigint)', f);
	END LOOP;
END
$$;

--
-- A superuser uses it, in a search path of the owner's.  (Statements are executed as if by hand: with his operators before
-- PostgreSQL's, they would call his.)
--
RESET ROLE;
SET search_path = lair, pg_catalog;
SELECT snowflake_nextval() OPERATOR(pg_catalog.>) 0;
SELECT snowflake_within(snowflake_nextval(), '2026-01-01Z', 'infinity');
SELECT pg_catalog.count(*) OPERATOR(pg_catalog.>) 3 FROM snowflake_guess(1278735254799392768::bigint, '2026-11-21'::timestamptz);
CREATE TABLE public.mine (nr serial PRIMARY KEY, at timestamptz DEFAULT '2024-05-05 00:00Z');
INSERT INTO public.mine DEFAULT VALUES;
SELECT snowflake_convert_column('public.mine'::pg_catalog.regclass, 'nr'::pg_catalog.name, NULL::pg_catalog.text, false);
INSERT INTO public.mine DEFAULT VALUES;
SELECT kind, object FROM snowflake_convert_schema('public'::regnamespace);
SELECT pg_catalog.count(*) FROM snowflake_audit('public.mine'::pg_catalog.regclass, 'nr'::pg_catalog.name, NULL::pg_catalog.text) AS a WHERE finding IS NULL;
SET search_path = lair;
SELECT statement FROM snowflake_rekey_column('public.mine'::pg_catalog.regclass, 'nr'::pg_catalog.name, 'at'::pg_catalog.text, NULL::pg_catalog.text, NULL, 0, 1, false) WHERE step OPERATOR(pg_catalog.=) 1;
SELECT count(*) FROM snowflake_revert_column('public.mine'::pg_catalog.regclass, 'nr'::pg_catalog.name, false);
SET search_path = lair, pg_catalog;
CREATE TABLE public.events (id bigint DEFAULT snowflake_nextval()) PARTITION BY RANGE (id);
SELECT pg_catalog.count(*) FROM snowflake_create_partitions('public.events'::pg_catalog.regclass, '2026-01-01Z'::timestamptz, '2026-03-01Z'::timestamptz, '1 month'::interval, NULL::pg_catalog.text, false);
SELECT pg_catalog.count(*) FROM snowflake_drop_partitions('public.events'::pg_catalog.regclass, '2026-02-01Z'::timestamptz, NULL::pg_catalog.text, false);
CREATE TABLE public.parcels (id snowflake_id DEFAULT snowflake_nextval()) PARTITION BY RANGE (id);
SELECT pg_catalog.count(*) FROM snowflake_create_partitions('public.parcels'::pg_catalog.regclass, '2024-01-01Z'::timestamptz, '2080-01-01Z'::timestamptz, '1 year'::interval, NULL::pg_catalog.text, false);
INSERT INTO public.parcels DEFAULT VALUES;
SELECT snowflake_within(id, '2026-01-01Z', 'infinity'), pg_catalog.to_json(id) IS NOT NULL FROM public.parcels;
SELECT pg_catalog.count(*) FROM snowflake_drop_partitions('public.parcels'::pg_catalog.regclass, '2026-02-01Z'::timestamptz, NULL::pg_catalog.text, false);
SELECT pg_catalog.count(*) FROM snowflake_audit('public.parcels'::pg_catalog.regclass, 'id'::pg_catalog.name, NULL::pg_catalog.regclass);
RESET search_path;
TABLE lair.caught;
SELECT rolname, rolsuper FROM pg_roles WHERE rolname = 'regress_snowflake_keeper';

-- the owner drops them as he may any extension of his, with what depends on them
SET ROLE regress_snowflake_keeper;
CREATE TABLE den.his (id bigint DEFAULT lair.snowflake_nextval());
DROP EXTENSION snowflake_tools;
DROP EXTENSION snowflake CASCADE;
SELECT count(*) FROM pg_attrdef WHERE adrelid = 'den.his'::regclass;
SELECT nspname FROM pg_namespace WHERE nspname ~ '^snowflake';
-- made again by CASCADE, both are his
CREATE EXTENSION snowflake_tools SCHEMA den CASCADE;
SELECT extname, extowner::regrole, extnamespace::regnamespace FROM pg_extension WHERE extname ~ '^snowflake' ORDER BY 1;
RESET ROLE;
\c :home
SET client_min_messages = warning;
DROP DATABASE regress_snowflake_kept;
DROP ROLE regress_snowflake_keeper, regress_snowflake_guest;
