-- The owner of a table gains nothing when a superuser uses the tools on it: its code runs as the owner,
-- and cannot go back to the rights of the session.
\set VERBOSITY terse
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
CREATE ROLE snowflake_trapper;
CREATE ROLE snowflake_other;
CREATE SCHEMA trap AUTHORIZATION snowflake_trapper;
SET ROLE snowflake_trapper;
CREATE SEQUENCE trap.calls;
-- Folded whenever a query of its table is planned; counts its calls, fails as anybody else than the owner, and tries to get away.
CREATE FUNCTION trap.fold(x integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM pg_catalog.nextval('trap.calls');
	IF current_user <> 'snowflake_trapper' THEN
		RAISE EXCEPTION 'the trap runs as somebody else';
	END IF;
	IF current_setting('trap.armed', true) = 'on' THEN
		BEGIN
			PERFORM pg_catalog.set_config('role', 'none', false);
			IF current_user <> 'snowflake_trapper' THEN
				RAISE EXCEPTION SQLSTATE 'XTRAP' USING MESSAGE = 'the trap has the rights of the session';
			END IF;
		EXCEPTION WHEN insufficient_privilege THEN
			NULL;
		END;
	END IF;
	RETURN true;
END
$$;
CREATE TABLE trap.parent (id serial PRIMARY KEY, at timestamptz, x integer);
INSERT INTO trap.parent (at, x) SELECT '2026-01-01Z'::timestamptz + n * interval '1 hour', n FROM generate_series(1, 3) AS n;
CREATE INDEX ON trap.parent (x) WHERE trap.fold(1);
CREATE TABLE trap.child (id integer PRIMARY KEY REFERENCES trap.parent, x integer);
INSERT INTO trap.child SELECT id, x FROM trap.parent;
CREATE INDEX ON trap.child (x) WHERE trap.fold(2);
RESET ROLE;

CREATE FUNCTION called() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	result CONSTANT boolean := (SELECT is_called FROM trap.calls);
BEGIN
	PERFORM setval('trap.calls', 1, false);
	RETURN result;
END
$$;
SELECT setval('trap.calls', 1, false);
SET trap.armed = on;

-- by hand
SELECT count(*) FROM trap.parent;
SET ROLE snowflake_trapper;
SELECT count(*) FROM trap.parent;
RESET ROLE;

-- each of them ran the owner's code, as the owner
SELECT count(*) FROM snowflake_convert_column('trap.parent', 'id');
SELECT called();
SELECT * FROM snowflake_convert_column('trap.parent', 'id', dry_run => false);
SELECT called();
SELECT count(*) FROM snowflake_rekey_column('trap.parent', 'id', 'at');
SELECT called();
SELECT statement FROM snowflake_rekey_column('trap.parent', 'id', 'at', dry_run => false) WHERE step = 1;
SELECT called();
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'trap.parent_id_rekeyed'::regclass;
SELECT count(*) FROM snowflake_revert_column('trap.parent', 'id');
SELECT called();
SELECT * FROM snowflake_revert_column('trap.parent', 'id', dry_run => false);
SELECT called();
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = pg_get_serial_sequence('trap.parent', 'id')::regclass;
SELECT count(*) FROM snowflake_convert_schema('trap', dry_run => false);
SELECT count(*) FROM snowflake_revert_schema('trap', dry_run => false);
SELECT called();
SET ROLE snowflake_trapper;
CREATE TABLE trap.parted (id bigint DEFAULT snowflake_next_id(), x integer) PARTITION BY RANGE (id);
CREATE INDEX ON trap.parted (x) WHERE trap.fold(3);
RESET ROLE;
SELECT count(*) FROM snowflake_create_partitions('trap.parted', '2026-01-01Z', '2026-01-03Z', '1 day', dry_run => false);
SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class JOIN pg_inherits ON oid = inhrelid WHERE inhparent = 'trap.parted'::regclass;
SELECT count(*) FROM snowflake_drop_partitions('trap.parted', '2026-01-03Z', dry_run => false);

SELECT count(*) FROM snowflake_create_partitions('trap.parted', '2026-01-01Z', '2026-01-03Z', '1 day', dry_run => false);
ALTER TABLE trap.parted_20260101 OWNER TO snowflake_other;
SELECT count(*) FROM snowflake_drop_partitions('trap.parted', '2026-01-03Z', dry_run => false);
SET ROLE snowflake_trapper;
CREATE TABLE trap.audited (id bigint, x integer);
INSERT INTO trap.audited SELECT 7, 1 FROM generate_series(1, 2);
CREATE INDEX ON trap.audited (x) WHERE trap.fold(4);
CREATE VIEW trap.looking AS SELECT id FROM trap.audited WHERE trap.fold(x);
RESET ROLE;
SELECT called() IS NOT NULL AS again;
SELECT finding, count FROM snowflake_audit('trap.audited', 'id', NULL);
SELECT called();
SELECT finding, count FROM snowflake_audit('trap.looking', 'id', NULL);
SELECT called();

-- schemas that change their names meanwhile: the statements act as the owner all the same, on what is the owner's
GRANT CREATE ON DATABASE :"DBNAME" TO snowflake_trapper;
CREATE SCHEMA victim AUTHORIZATION snowflake_trapper;
CREATE TABLE victim.follower (id integer);
SET ROLE snowflake_trapper;
CREATE SCHEMA mover;
CREATE FUNCTION trap.swap() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
	IF to_regclass('mover.here') IS NOT NULL AND current_setting('trap.armed', true) = 'on' THEN
		ALTER SCHEMA mover RENAME TO moved;
		ALTER SCHEMA victim RENAME TO mover;
	END IF;
	RETURN 1;
END
$$;
CREATE FUNCTION trap.fold_swap(x integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN trap.swap() = 1;
END
$$;
SET trap.armed = off;
CREATE TABLE mover.here (id integer);
CREATE TABLE mover.moving (id integer PRIMARY KEY, x integer);
CREATE INDEX ON mover.moving (x) WHERE trap.fold_swap(x);
CREATE TABLE mover.follower (id integer REFERENCES mover.moving);
INSERT INTO mover.moving (id, x) VALUES (1, 1);
SET trap.armed = on;
RESET ROLE;
SELECT count(*) FROM snowflake_convert_column('mover.moving', 'id', dry_run => false);
SELECT table_schema, data_type FROM information_schema.columns WHERE table_name = 'follower' ORDER BY 1;

-- nor does a view show what its names are given to meanwhile: all is undone
SET client_min_messages = error;
DROP SCHEMA IF EXISTS mover, moved, victim CASCADE;
SET client_min_messages = warning;
SET ROLE snowflake_trapper;
SET trap.armed = off;
CREATE SCHEMA mover;
CREATE SCHEMA victim;
CREATE TABLE mover.here (id integer);
CREATE TABLE mover.moving (id integer PRIMARY KEY, x integer);
CREATE INDEX ON mover.moving (x) WHERE trap.fold_swap(x);
INSERT INTO mover.moving VALUES (1, 1);
CREATE VIEW mover.shown AS SELECT id FROM mover.moving;
CREATE TABLE victim.moving (id integer, x integer);
INSERT INTO victim.moving VALUES (42, 42);
RESET ROLE;
BEGIN;
SELECT split_part(statement, ' AS', 1) FROM snowflake_convert_column('mover.moving', 'id', dry_run => false) AS statement WHERE statement ~ 'VIEW';
ROLLBACK;
SET trap.armed = on;
SELECT count(*) FROM snowflake_convert_column('mover.moving', 'id', dry_run => false);
\echo :LAST_ERROR_SQLSTATE
SELECT to_regclass('victim.shown') IS NULL AND to_regclass('mover.shown') IS NOT NULL AS undone;
-- a search path is no statement, whoever has set it
SET trap.armed = off;
SELECT set_config('search_path', 'public;SELECT(1/0)', false);
SELECT statement FROM public.snowflake_convert_column('mover.moving', 'id', dry_run => false) AS statement WHERE statement ~ 'search_path';
SHOW search_path;
RESET search_path;
SET trap.armed = on;
-- the owner of the table has no way to what a view of another role is: it is not made again
SET ROLE snowflake_trapper;
CREATE TABLE trap.looked_at (id serial PRIMARY KEY);
GRANT USAGE, CREATE ON SCHEMA trap TO snowflake_other;
RESET ROLE;
CREATE MATERIALIZED VIEW trap.looker AS SELECT id FROM trap.looked_at;
ALTER MATERIALIZED VIEW trap.looker OWNER TO snowflake_other;
\set VERBOSITY default
SELECT snowflake_convert_column('trap.looked_at', 'id', dry_run => false);
\set VERBOSITY terse
DROP MATERIALIZED VIEW trap.looker;
-- nor does a view of the owner come to call a function of somebody else that fits the new type
SET ROLE snowflake_trapper;
SET trap.armed = off;
CREATE FUNCTION trap.shown(integer) RETURNS bigint LANGUAGE sql RETURN $1;
CREATE MATERIALIZED VIEW trap.looker AS SELECT trap.shown(id) FROM trap.looked_at;
INSERT INTO trap.looked_at DEFAULT VALUES;
SET ROLE snowflake_other;
CREATE FUNCTION trap.shown(snowflake_id) RETURNS bigint LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'called'; END $$;
RESET ROLE;
SELECT count(*) FROM snowflake_convert_column('trap.looked_at', 'id', type => 'snowflake_id', dry_run => false);
SELECT count(*) FROM snowflake_convert_column('trap.looked_at', 'id', dry_run => false);
-- nor does a comparison of ids call an operator of somebody else
SET ROLE snowflake_other;
CREATE FUNCTION trap.less(snowflake_id, bigint) RETURNS boolean LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'called'; END $$;
CREATE OPERATOR trap.= (FUNCTION = trap.less, LEFTARG = snowflake_id, RIGHTARG = bigint);
CREATE OPERATOR trap.< (FUNCTION = trap.less, LEFTARG = snowflake_id, RIGHTARG = bigint);
RESET ROLE;
SELECT count(*) FROM snowflake_convert_column('trap.looked_at', 'id', type => 'snowflake_id');
SET ROLE snowflake_trapper;
CREATE TABLE trap.compared (id snowflake_id PRIMARY KEY, at timestamptz, one snowflake_id);
ALTER TABLE trap.compared ADD FOREIGN KEY (one) REFERENCES trap.compared;
INSERT INTO trap.compared VALUES (1, '2026-01-01Z', 1);
RESET ROLE;
SET search_path = trap, public;
SELECT count(*) FROM snowflake_rekey_column('trap.compared', 'id', 'at', dry_run => false);
RESET search_path;
SELECT count(*) FROM trap.compared WHERE id::bigint > 1 AND id::bigint = one::bigint;
DROP OPERATOR trap.= (snowflake_id, bigint);
DROP OPERATOR trap.< (snowflake_id, bigint);
SET trap.armed = on;
-- and it is filled by its owner
SET ROLE snowflake_trapper;
CREATE TABLE trap.filling (id serial PRIMARY KEY, x integer);
INSERT INTO trap.filling (x) VALUES (1);
CREATE MATERIALIZED VIEW trap.filled AS SELECT id, x FROM trap.filling WHERE trap.fold(x);
CREATE INDEX ON trap.filled (id) WHERE trap.fold(6);
RESET ROLE;
SELECT called() IS NOT NULL AS again;
SELECT count(*) FROM snowflake_convert_column('trap.filling', 'id', dry_run => false);
SELECT called();
SELECT relispopulated FROM pg_class WHERE oid = 'trap.filled'::regclass;

-- keys of two owners are not changed in one call
CREATE SCHEMA pair;
GRANT USAGE, CREATE ON SCHEMA pair TO snowflake_other, snowflake_trapper;
CREATE TABLE pair.a (id serial PRIMARY KEY);
CREATE TABLE pair.b (id serial PRIMARY KEY);
ALTER TABLE pair.a OWNER TO snowflake_trapper;
ALTER TABLE pair.b OWNER TO snowflake_other;
SELECT count(*) FROM snowflake_convert_schema('pair');
SELECT count(*) FROM snowflake_convert_schema('pair', dry_run => false);
SELECT count(*) FROM snowflake_convert_schema('pair', leave_out => '{pair.a}', dry_run => false);
SELECT count(*) FROM snowflake_convert_column('pair.a', 'id', dry_run => false);
SELECT count(*) FROM snowflake_revert_schema('pair', dry_run => false);

-- tables of two owners
CREATE TABLE mixed (id bigint, x integer);
ALTER TABLE trap.audited INHERIT mixed;
SELECT finding FROM snowflake_audit('mixed', 'id', NULL);
ALTER TABLE trap.audited NO INHERIT mixed;
DROP TABLE mixed;
CREATE TABLE trap.third (id integer REFERENCES trap.parent);
ALTER TABLE trap.child OWNER TO snowflake_other;
SELECT snowflake_convert_column('trap.parent', 'id');
DROP TABLE trap.third;
-- also where a foreign key is only checked again, by a query that plans with both
SET ROLE snowflake_trapper;
CREATE TABLE trap.keyed (id serial PRIMARY KEY);
CREATE TABLE trap.third (id bigint REFERENCES trap.keyed);
RESET ROLE;
SELECT count(*) FROM snowflake_convert_column('trap.keyed', 'id');
ALTER TABLE trap.third OWNER TO snowflake_other;
\set VERBOSITY default
SELECT snowflake_convert_column('trap.keyed', 'id');
\set VERBOSITY terse
DROP TABLE trap.third;
ALTER TABLE trap.child OWNER TO snowflake_trapper;

-- so the owner needs what the statements need
REVOKE CREATE ON SCHEMA trap FROM snowflake_trapper;
ALTER SCHEMA trap OWNER TO CURRENT_USER;
GRANT USAGE ON SCHEMA trap TO snowflake_trapper, snowflake_other;
SELECT snowflake_create_partitions('trap.parted', '2026-01-01Z', '2026-01-03Z', '1 day');
SELECT count(*) FROM snowflake_convert_column('trap.parent', 'id', dry_run => false);
\set VERBOSITY default
SELECT snowflake_rekey_column('trap.parent', 'id', 'at', below => 4611686018427387904);
\set VERBOSITY terse

-- a caller without the owner's rights acts only as a role that it can SET ROLE to
SET ROLE snowflake_other;
SELECT snowflake_internal.execute_as_owner('trap.parent', 'SELECT 1');
SELECT snowflake_internal.execute_as_owner(4294967295::oid::regclass, 'SELECT 1');
RESET ROLE;

-- only the transaction's end undoes what an error left, and only what the statement set is undone
GRANT snowflake_trapper TO snowflake_other;
SET ROLE snowflake_other;
SELECT snowflake_internal.execute_as_owner('trap.parent', 'SET application_name = ''trapped''');
SELECT current_setting('application_name') = 'trapped' AS stayed, current_user;
SELECT snowflake_internal.execute_as_owner('trap.parent', 'SELECT 1/0');
SELECT current_user;
-- what is restricted to the owner may act as the owner
SELECT snowflake_internal.execute_as_owner('trap.parent', 'SELECT snowflake_internal.execute_as_owner(''trap.parent'', ''SELECT 1'')');
RESET ROLE;

\set VERBOSITY terse
SET client_min_messages = warning;
DROP FUNCTION called();
DROP SCHEMA pair CASCADE;
DROP SCHEMA IF EXISTS victim CASCADE;
DROP SCHEMA IF EXISTS mover CASCADE;
DROP SCHEMA IF EXISTS moved CASCADE;
DROP SCHEMA trap CASCADE;
REVOKE CREATE ON DATABASE :"DBNAME" FROM snowflake_trapper;
DROP ROLE snowflake_trapper;
DROP ROLE snowflake_other;
DROP EXTENSION snowflake_tools;
