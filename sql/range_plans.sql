-- Plans for <@, which differ between majors: PostgreSQL 17 makes it a comparison with the
-- bounds of the range (range_plans_1.out), before that all of the table is looked at.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\pset format unaligned
CREATE TABLE event (id bigint PRIMARY KEY, note text) PARTITION BY RANGE (id);
SELECT count(*) FROM snowflake_create_partitions('event', '2026-01-01', '2027-01-01', '3 months', dry_run => false);
INSERT INTO event SELECT snowflake_compose(ts, 1, 0, 'twitter'), ts::date::text
FROM generate_series('2026-01-01'::timestamptz, '2026-12-31', '1 day') AS ts;
ANALYZE event;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE id <@ snowflake_range('2026-11-21', '2026-11-22', 'twitter');
SELECT count(*) FROM event WHERE id <@ snowflake_range('2026-11-21', '2026-11-23', 'twitter');
-- the server's layout: STABLE, and not known to the planner
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE id <@ snowflake_range('2026-11-21', '2026-11-22');
SELECT count(*) FROM event WHERE id <@ snowflake_range('2026-11-21', '2026-11-23');
-- snowflake_within() leaves out partitions when planned, or when executed with the server's layout
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE snowflake_within(id, '2026-11-21', '2026-11-22', 'twitter');
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE snowflake_within(id, '2026-11-21', '2026-11-22');
SELECT count(*) FROM event WHERE snowflake_within(id, '2026-11-21', '2026-11-23', 'twitter');
RESET enable_indexscan;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE snowflake_within(id, '2026-11-21', '2026-11-22', 'twitter');
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE id <@ snowflake_range('2026-11-21', '2026-11-22', 'twitter');
DROP TABLE event;
