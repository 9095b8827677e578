-- The settings, the view and who may see and do what.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
RESET client_min_messages;
SET timezone = 'UTC';

-- settings
SELECT name, left(setting, 12) AS setting, unit, context, vartype, boot_val, min_val, max_val, enumvals
FROM pg_settings WHERE name LIKE 'snowflake.%' ORDER BY name COLLATE "C";
SHOW snowflake.max_wait;
SET snowflake.max_wait = '250ms';
SHOW snowflake.max_wait;
-- the message has the unit of the bounds since PostgreSQL 17
\set VERBOSITY sqlstate
SET snowflake.max_wait = -1;
SET snowflake.max_wait = '25h';
ALTER SYSTEM SET snowflake.lease_duration = '1ms';
ALTER SYSTEM SET snowflake.max_ahead = '2h';
ALTER SYSTEM SET snowflake.clock_offset = '40000d';
\set VERBOSITY default
SET snowflake.max_wait = 'soon';
RESET snowflake.max_wait;
SET snowflake.max_ahead = '2s';
SET snowflake.layout = 'leaf';
SET snowflake.extra_layouts = 'discord';
SET snowflake.nonsense = 1;
-- what a reload would be refused for
ALTER SYSTEM SET snowflake.layout = 'tweeter';
ALTER SYSTEM SET snowflake.layout = 'twitter, sequence 14';
ALTER SYSTEM SET snowflake.extra_layouts = 'js53; tweeter';
ALTER SYSTEM SET snowflake.extra_layouts = 'js53, leaf';
-- numbers that there is room for
ALTER SYSTEM SET snowflake.worker_id = '0';
ALTER SYSTEM SET snowflake.datacenter_id = 0;
ALTER SYSTEM RESET snowflake.worker_id;
ALTER SYSTEM RESET snowflake.datacenter_id;
ALTER SYSTEM SET snowflake.worker_id = 'seven';
ALTER SYSTEM SET snowflake.worker_id = '-1';
ALTER SYSTEM SET snowflake.worker_id = '2147483648';
ALTER SYSTEM SET snowflake.worker_id = '';
ALTER SYSTEM SET snowflake.datacenter_id = -2;
ALTER SYSTEM SET snowflake.sequence_start = 'one';
ALTER SYSTEM SET snowflake.registry = 'host=registry password=secret';
ALTER SYSTEM SET snowflake.registry = 'postgresql://me:secret@registry/postgres';
ALTER SYSTEM SET snowflake.registry = 'host=registry dbname=db';
ALTER SYSTEM SET snowflake.registry = 'host';
ALTER SYSTEM SET snowflake.registry = ' ';

-- the view
\d pg_stat_snowflake
SELECT snowflake_nextval() > 0 AS issued;
SELECT layout, state, detail, worker_id_from, registry, node_number, datacenter_id, worker_id,
	leased_until > last_id_time AS covered, ahead >= '0' AND ahead <= '1s' AS ahead,
	ends_at, stats_reset < now() AS stats_reset
FROM pg_stat_snowflake s, snowflake_timestamp(s.last_id) last_id_time WHERE layout = 'twitter' \gx
-- a row for each layout in use; the lease is the same, and has started
DO $$
BEGIN
	FOR i IN 1..50 LOOP
		EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_snowflake WHERE state = 'waiting');
		PERFORM pg_sleep(0.1);
	END LOOP;
END
$$;
SELECT layout, state, worker_id_from, node_number, datacenter_id, worker_id,
	leased_until = max(leased_until) OVER () AS same_lease, ends_at
FROM pg_stat_snowflake ORDER BY layout COLLATE "C";

-- counters
SELECT pg_stat_snowflake_reset();
SELECT DISTINCT sequence_overflows, max_ahead_seen, waits, wait_time FROM pg_stat_snowflake;
SELECT count(*) FROM (SELECT snowflake_nextval() FROM generate_series(1, 100)) s;
SELECT count(*) FROM snowflake_nextval_batch(200000);
SELECT count(*) FROM snowflake_nextval_batch(300, 'js53');
SELECT layout, ids_issued, sequence_overflows > 0 AS overflows, max_ahead_seen > '0' AS ahead_seen,
	max_ahead_seen <= '1s' AS ahead_bounded, clock_rollbacks, worker_switches, lease_failures,
	now() - stats_reset < '1 min' AS reset
FROM pg_stat_snowflake WHERE layout IN ('twitter', 'js53') ORDER BY layout;
-- after another reset also what is less than this session has seen before
SELECT count(*) FROM snowflake_nextval_batch(12000, 'js53');
SELECT pg_sleep(1.1) AS slept \gset
SELECT pg_stat_snowflake_reset();
SELECT count(*) FROM snowflake_nextval_batch(3000, 'js53');
SELECT max_ahead_seen > '0' AS ahead_seen FROM pg_stat_snowflake WHERE layout = 'js53';
-- rights
CREATE ROLE regress_snowflake_user;
CREATE ROLE regress_snowflake_monitor IN ROLE pg_read_all_stats;
CREATE ROLE regress_snowflake_operator;
GRANT EXECUTE ON FUNCTION pg_stat_snowflake_reset() TO regress_snowflake_operator;
SET ROLE regress_snowflake_user;
SELECT snowflake_nextval() > 0 AS issued, snowflake_timestamp(1) IS NOT NULL AS parsed;
SELECT layout, state, node_number, last_id, detail, registry FROM pg_stat_snowflake WHERE layout = 'twitter';
SELECT pg_stat_snowflake_reset();
\set VERBOSITY sqlstate
SHOW snowflake.registry;
\set VERBOSITY default
SET ROLE regress_snowflake_monitor;
SELECT last_id > 0 AS last_id FROM pg_stat_snowflake WHERE layout = 'twitter';
SELECT pg_stat_snowflake_reset();
SET ROLE regress_snowflake_operator;
SELECT pg_stat_snowflake_reset();
RESET ROLE;
DROP OWNED BY regress_snowflake_operator;
DROP ROLE regress_snowflake_user, regress_snowflake_monitor, regress_snowflake_operator;
SELECT extname, extrelocatable FROM pg_extension WHERE extname = 'snowflake';

-- drop and create again, in a schema of its own
CREATE SCHEMA ids;
DROP EXTENSION snowflake;
CREATE EXTENSION snowflake SCHEMA ids;
SELECT ids.snowflake_nextval() > 0 AS issued;
CREATE TABLE kept (id bigint DEFAULT ids.snowflake_nextval());
DROP EXTENSION snowflake;
DROP TABLE kept;
DROP EXTENSION snowflake;
DROP SCHEMA ids;
