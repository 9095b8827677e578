-- Ranges of time as ranges of ids, partitions by them, and which plans they give.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
\pset format unaligned
\set SHOW_CONTEXT never

--
-- The range: all ids whose time is in [since, until)
--
SELECT snowflake_range('2026-11-21', '2026-11-22', 'twitter') AS day,
	snowflake_min_id('2026-11-21', 'twitter') AS first, snowflake_max_id('2026-11-21 23:59:59.999', 'twitter') AS last;
-- bounds within a tick, which is 1 ms and 1 s here: from the next tick on
SELECT snowflake_range('2026-11-21 00:00:00.001', '2026-11-21 00:00:00.002', 'twitter') AS tick,
	snowflake_range('2026-11-21 00:00:00.000001', '2026-11-21 00:00:00.001001', 'twitter') AS same,
	snowflake_range('2026-11-21 00:00:00.001', '2026-11-21 00:00:00.001001', 'twitter') AS same,
	snowflake_range('2026-11-21 00:00:00.001001', '2026-11-21 00:00:00.002', 'twitter') AS nothing;
SELECT snowflake_range('2026-11-21 00:00:00.5', '2026-11-21 00:00:01.5', 'uidgenerator') =
	snowflake_range('2026-11-21 00:00:01', '2026-11-21 00:00:02', 'uidgenerator') AS next_second;
SELECT snowflake_range('2026-11-21', '2026-11-21', 'twitter') AS nothing,
	snowflake_range('infinity', 'infinity', 'twitter') AS nothing,
	snowflake_range('-infinity', '-infinity', 'twitter') AS nothing;
-- no end only if there is no bigint past the last id
SELECT name, snowflake_range('-infinity', 'infinity', name),
	snowflake_range(epoch, last_id_time + tick, name) = snowflake_range('-infinity', 'infinity', name) AS whole,
	snowflake_range(last_id_time, 'infinity', name) = snowflake_range(last_id_time, last_id_time + '1 us', name) AND
	lower(snowflake_range(last_id_time, 'infinity', name)) = snowflake_min_id(last_id_time, name) AS last_tick,
	snowflake_range(last_id_time + tick, 'infinity', name) AS past_it
FROM snowflake_layouts() WHERE name IN ('twitter', 'js53', 'mastodon', 'uidgenerator28', 'instagram') ORDER BY name;
SELECT snowflake_range('2000-01-01', 'infinity', 'timestamp 62, sequence 1');

-- every preset, times in and on the edges of ticks: the first and last id in the range,
-- and the ones next to it
SELECT setseed(0.25);
CREATE TABLE span AS
SELECT l.name, l.tick, t.since, t.since + w.width AS until
FROM snowflake_layouts() AS l, generate_series(1, 50),
	LATERAL (SELECT l.epoch + floor(random() * 200000000) * l.tick +
		(ARRAY['0', '1 us', '-1 us'])[1 + floor(random() * 3)::int]::interval + '1 us' AS since) AS t,
	LATERAL (SELECT floor(random() * 4) * l.tick + floor(random() * 3) * interval '1 us' AS width) AS w;
SELECT count(*) AS spans, count(*) FILTER (WHERE isempty(ids)) > 50 AS some_empty,
	count(*) FILTER (WHERE NOT isempty(ids) AND NOT (
		snowflake_timestamp(lower(ids), name) >= since AND snowflake_timestamp(upper(ids) - 1, name) < until AND
		snowflake_timestamp(lower(ids) - 1, name) < since AND snowflake_timestamp(upper(ids), name) >= until)) AS wrong,
	-- it is empty when no tick begins there: since is in a tick that lasts until "until"
	count(*) FILTER (WHERE isempty(ids) AND since < until AND NOT
		(snowflake_timestamp(snowflake_min_id(since, name), name) < since AND
		snowflake_timestamp(snowflake_min_id(since, name), name) + tick >= until)) AS wrongly_empty
FROM span, snowflake_range(since, until, name) AS ids;

-- without a layout: by the server's
SELECT snowflake_range('2026-11-21', '2026-11-22') = snowflake_range('2026-11-21', '2026-11-22', 'twitter') AS same;
SELECT snowflake_range(until => '2026-11-22', since => '2026-11-21') = snowflake_range('2026-11-21', '2026-11-22') AS same;
SELECT snowflake_range(NULL, now()) IS NULL AND snowflake_range(now(), NULL) IS NULL AND
	snowflake_range(now(), now(), NULL) IS NULL AND snowflake_range(NULL, now(), 'twitter') IS NULL AS strict;

-- refused
SELECT snowflake_range('2026-11-22', '2026-11-21', 'twitter');
SELECT snowflake_range('2026-11-21 00:00:00.000002', '2026-11-21 00:00:00.000001', 'twitter');
SELECT snowflake_range('infinity', '-infinity');
SELECT snowflake_range('2010-11-04 01:42:54.656999', '2026-11-21', 'twitter');
SELECT snowflake_range('2026-11-21', '2080-07-10 17:30:30.209001', 'twitter');
SELECT snowflake_range('2026-11-21', '2026-11-22', 'twiter');
\set VERBOSITY sqlstate
SELECT snowflake_range('2026-11-22', '2026-11-21');
SELECT snowflake_range('2009-01-01', '2026-11-21');
SELECT snowflake_range('2026-11-21', '2090-01-01');
SELECT snowflake_range('2026-11-21', '2026-11-22', 'twiter');
\set VERBOSITY default

--
-- A condition on the time
--
-- the same ids as those of the range, and no error outside of the layout
WITH l AS (SELECT name, tick, epoch, last_id_time + tick AS ends FROM snowflake_layouts()),
	sample AS (SELECT l.*, t.at, snowflake_min_id(t.at, l.name) AS id
		FROM l, generate_series(0, 20) AS n, LATERAL (SELECT l.epoch + n * 10 * l.tick + n * interval '0.3 ms' AS at) AS t),
	bound AS (SELECT l.name, b.at FROM l, LATERAL (VALUES (l.epoch), (l.epoch - interval '1 us'), ('-infinity'), ('infinity'),
		(l.epoch + 70 * l.tick), (l.epoch + 70 * l.tick + interval '1 us'), (l.epoch + 130 * l.tick - interval '1 us'),
		(l.ends), (l.ends + interval '1 us'), (l.ends - l.tick + interval '1 us')) AS b (at))
SELECT count(*) AS compared, count(*) FILTER (WHERE snowflake_within(s.id, since.at, until.at, s.name) IS DISTINCT FROM
	(snowflake_timestamp(s.id, s.name) >= since.at AND snowflake_timestamp(s.id, s.name) < until.at)) AS wrong
FROM (TABLE sample UNION ALL SELECT name, tick, epoch, ends, ends - tick, snowflake_max_id('infinity', name) FROM l) AS s
JOIN bound AS since USING (name) JOIN bound AS until USING (name);
SELECT snowflake_within(snowflake_min_id('2026-11-21'), '2026-11-21', '2026-11-22') AS without_layout,
	snowflake_within(NULL, '2026-11-21', '2026-11-22') IS NULL AND snowflake_within(1, NULL, '2026-11-22', 'twitter') IS NULL AS null;
SELECT snowflake_within(1, '2026-11-21', '2026-11-22', 'twiter');
-- the planner puts the comparisons in its place
EXPLAIN (COSTS OFF) SELECT * FROM generate_series(1, 2::bigint) AS id
WHERE snowflake_within(id, '2026-11-21', '2026-11-22', 'twitter');
EXPLAIN (COSTS OFF) SELECT * FROM generate_series(1, 2::bigint) AS id
WHERE snowflake_within(id, now() - interval '1 day', now());

--
-- Bounds of partitions
--
SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-24', '1 day', 'twitter');
-- aligned to the step in UTC, whatever since is: they hold since and until
SELECT from_time, to_time FROM snowflake_partition_bounds('2026-01-31', '2026-05-01 00:00:00.000001', '1 month', 'twitter');
SELECT from_time, to_time FROM snowflake_partition_bounds('2026-01-01', '2026-02-01', '1 month', 'twitter');
SELECT count(*) FROM snowflake_partition_bounds('2026-11-21', '2026-11-21', '1 day', 'twitter');
SELECT count(*) FROM snowflake_partition_bounds('2026-11-21 06:00', '2026-11-21 06:00', '1 day', 'twitter');
-- no gaps, whatever the layout and wherever the bounds are in a tick
SELECT l.name FROM snowflake_layouts() AS l, LATERAL (
	SELECT count(*) AS n, count(*) FILTER (WHERE from_id <> coalesce(before, from_id)) AS gaps,
		int8range(min(from_id), max(to_id)) AS ids, min(from_time) AS first, max(to_time) AS last
	FROM (SELECT *, lag(to_id) OVER (ORDER BY from_time) AS before
		FROM snowflake_partition_bounds(l.epoch + '3.0004 s', l.epoch + '40 s', '1.7002 s', l.name)) AS b) AS all_bounds
WHERE n NOT BETWEEN 22 AND 23 OR gaps > 0 OR ids <> snowflake_range(first, last, l.name)
	OR first <= l.epoch + '3.0004 s' - interval '1.7002 s' OR first > l.epoch + '3.0004 s' OR last < l.epoch + '40 s';
-- the first one and the last one end where the layout does
SELECT l.name FROM snowflake_layouts() AS l, LATERAL (
	SELECT min(from_id) AS first, min(from_time) AS from_time FROM snowflake_partition_bounds(l.epoch, l.epoch + '1 day', '1 day', l.name)) AS b
WHERE first <> 0 OR from_time <> l.epoch;
-- months of the year, days from Mondays on
SELECT step, array_agg(from_time::date ORDER BY from_time) FROM unnest('{3 months, 5 months, 2 years, 7 days, 36 hours}'::interval[]) AS step,
	snowflake_partition_bounds('2026-05-17 12:34:56', '2026-05-17 12:34:56'::timestamptz + step * 1.2, step, 'twitter') GROUP BY step ORDER BY step;
-- up to the end of the layout: to_id is NULL if there is no bigint past the last id
SELECT b.* FROM snowflake_layout('twitter') AS l,
	snowflake_partition_bounds(last_id_time + tick - interval '2 h', last_id_time + tick, '1 hour', 'twitter') AS b;
SELECT b.to_id FROM snowflake_layout('js53') AS l,
	snowflake_partition_bounds(last_id_time + tick - interval '2 h', last_id_time + tick, '1 hour', 'js53') AS b;
-- as many as may be
SELECT count(*), count(DISTINCT from_id), max(to_time) FROM snowflake_partition_bounds('2026-11-21', '2026-11-21 02:46:40', '1 s', 'twitter');
-- days are those of UTC, in a zone where one has 23 hours too
CREATE TABLE march AS SELECT * FROM snowflake_partition_bounds('2026-03-01', '2026-04-01', '1 day', 'twitter');
SET timezone = 'America/New_York';
SELECT count(*) AS same FROM (TABLE march INTERSECT
	SELECT * FROM snowflake_partition_bounds('2026-03-01 00:00Z', '2026-04-01 00:00Z', '1 day', 'twitter')) AS same;
SELECT from_time FROM snowflake_partition_bounds('2026-03-07 00:00Z', '2026-03-10 00:00Z', '1 day', 'twitter');
SET timezone = 'UTC';

DROP TABLE march;

-- without a layout; strict
SELECT count(*) FROM (SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-24', '6 hours', 'twitter')
	INTERSECT SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-24', '6 hours')) AS same;
SELECT count(*) FROM snowflake_partition_bounds(NULL, '2026-11-24', '1 day');
SELECT count(*) FROM snowflake_partition_bounds('2026-11-21', '2026-11-24', '1 day', NULL);

-- refused
SELECT * FROM snowflake_partition_bounds('2026-11-22', '2026-11-21', '1 day', 'twitter');
SELECT * FROM snowflake_partition_bounds('2026-11-22', 'infinity', '1 day');
SELECT * FROM snowflake_partition_bounds('-infinity', '2026-11-22', '1 day');
SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-22', '0');
SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-22', '-1 day');
SELECT * FROM snowflake_partition_bounds('2026-01-01', '2026-03-22', '1 month -30 days');
SELECT * FROM snowflake_partition_bounds('2026-01-01', '2026-03-22', '1 month 1 day');
SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-21 02:46:40.000001', '1 s');
SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-22', '1 us', 'twitter');
SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-22', '999 ms', 'uidgenerator');
SELECT * FROM snowflake_partition_bounds('2010-11-04', '2026-11-22', '1 month', 'twitter');
SELECT * FROM snowflake_partition_bounds('2026-11-01', '2081-11-22', '1 month', 'twitter');
\set VERBOSITY sqlstate
SELECT * FROM snowflake_partition_bounds('2026-11-22', '2026-11-21', '1 day');
SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-22', '0');
SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-22', '1 s');
SELECT * FROM snowflake_partition_bounds('2026-11-21', '2026-11-22', '1 us');
SELECT * FROM snowflake_partition_bounds('2010-11-04', '2026-11-22', '1 month');
\set VERBOSITY default

--
-- Making partitions: first the statements, then all of them, then what is missing
--
CREATE TABLE orders (id bigint PRIMARY KEY, note text) PARTITION BY RANGE (id);
SELECT snowflake_create_partitions('orders', '2026-11-01', '2027-01-01', '1 month');
SELECT count(*) AS partitions FROM pg_inherits WHERE inhparent = 'orders'::regclass;
SELECT snowflake_create_partitions('orders', '2026-11-01', '2027-01-01', '1 month', dry_run => false);
SELECT snowflake_create_partitions('orders', '2026-11-01', '2027-01-01', '1 month', dry_run => false);
SELECT snowflake_create_partitions('orders', '2026-11-01', '2027-02-01', '1 month', NULL, false);
-- nobody who writes to the table has to wait when nothing is missing
BEGIN;
SELECT snowflake_create_partitions('orders', '2026-11-01', '2027-02-01', '1 month', dry_run => false);
SELECT relation::regclass, mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text LIKE 'orders%';
COMMIT;
INSERT INTO orders VALUES (snowflake_min_id('2026-12-01', 'twitter'), 'first of December'),
	(snowflake_min_id('2026-12-01', 'twitter') - 1, 'last of November'),
	(snowflake_max_id('2027-01-31 23:59:59.999', 'twitter'), 'last of January');
SELECT tableoid::regclass, note FROM orders ORDER BY id;
-- a range that partitions cover together is left out; others that overlap are refused
SELECT snowflake_create_partitions('orders', '2026-11-01', '2027-03-01', '2 months');
SELECT snowflake_create_partitions('orders', '2026-11-01', '2027-02-01', '3 months');
SELECT snowflake_create_partitions('orders', '2027-01-15', '2027-03-01', '1 month');
SELECT snowflake_create_partitions('orders', '2027-01-01', '2027-02-01', '1 day', dry_run => false);
CREATE TABLE orders_old PARTITION OF orders FOR VALUES FROM (MINVALUE) TO (snowflake_min_id('2026-01-01', 'twitter'));
SELECT snowflake_create_partitions('orders', '2026-01-01', '2026-02-01', '1 month');
SELECT snowflake_create_partitions('orders', '2025-12-01', '2026-02-01', '1 month');
CREATE TABLE orders_late PARTITION OF orders FOR VALUES FROM (snowflake_min_id('2027-06-01', 'twitter')) TO (MAXVALUE);
SELECT snowflake_create_partitions('orders', '2027-05-01', '2027-06-01', '1 month');
SELECT snowflake_create_partitions('orders', '2027-05-01', '2027-07-01', '1 month');
-- the statements are complete as they are
SELECT snowflake_create_partitions('orders', '2027-02-01', '2027-04-01', '1 month') \gexec
SELECT inhrelid::regclass AS partition, pg_get_expr(relpartbound, inhrelid) AS bounds
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'orders'::regclass ORDER BY inhrelid::regclass::text COLLATE "C";
-- rows in the default partition are in the way: PostgreSQL's error
CREATE TABLE orders_default PARTITION OF orders DEFAULT;
INSERT INTO orders VALUES (snowflake_min_id('2027-04-15', 'twitter'), 'in the default partition');
SELECT snowflake_create_partitions('orders', '2027-04-01', '2027-05-01', '1 month', dry_run => false);
DELETE FROM orders_default;
SELECT snowflake_create_partitions('orders', '2027-04-01', '2027-05-01', '1 month', dry_run => false);
DROP TABLE orders;

-- the end of the layout; another layout, in use or not
CREATE TABLE orders (id bigint) PARTITION BY RANGE (id);
SELECT snowflake_create_partitions('orders', last_id_time + tick - interval '2 h', last_id_time + tick, '1 hour', dry_run => false)
FROM snowflake_layout('twitter');
SELECT snowflake_create_partitions('orders', last_id_time + tick - interval '2 h', last_id_time + tick, '1 hour', dry_run => false)
FROM snowflake_layout('twitter');
SELECT snowflake_create_partitions('orders', '2026-11-01', '2026-12-01', '1 month', layout => 'js53');
SELECT snowflake_create_partitions('orders', '2026-11-01', '2026-12-01', '1 month', 'mastodon');
SELECT snowflake_create_partitions('orders', '2026-11-01', '2026-12-01', '1 month', 'no such layout');
DROP TABLE orders;

-- names: as short as the step and the first lower bound allow, in UTC
CREATE TABLE t (id bigint) PARTITION BY RANGE (id);
SELECT step, since, (SELECT string_agg(substring(s from 'TABLE (\S+)'), ' ')
	FROM snowflake_create_partitions('t', since::timestamptz, since::timestamptz + step::interval * 1.5, step::interval) AS s) AS names
FROM (VALUES (1, '1 year', '2026-01-01'), (2, '1 year', '2026-04-01'), (3, '12 months', '2026-01-01'),
	(4, '3 months', '2026-01-01'), (5, '1 month', '2026-01-01'), (6, '1 month', '2026-01-31'),
	(7, '31 days', '2026-01-01'), (8, '7 days', '2026-11-21'), (9, '1 day', '2026-11-21 06:00'),
	(10, '24 hours', '2026-11-21'), (11, '6 hours', '2026-11-21'), (12, '15 min', '2026-11-21'),
	(13, '90 s', '2026-11-21'), (14, '250 ms', '2026-11-21')) AS v (n, step, since) ORDER BY n;
SET timezone = 'Asia/Tokyo';
SELECT snowflake_create_partitions('t', '2026-11-01', '2026-12-01', '1 month');
SELECT snowflake_create_partitions('t', '2026-11-01 00:00Z', '2026-12-01 00:00Z', '1 month');
SET timezone = 'UTC';
DROP TABLE t;

-- names that are taken, too long, or need quotes
CREATE SCHEMA "Odd ""Schema";
CREATE TABLE "Odd ""Schema"."Or""ders" (id bigint) PARTITION BY RANGE (id);
CREATE TABLE "Odd ""Schema"."Or""ders_2026" ();
CREATE TYPE "Odd ""Schema"."Or""ders_2026_1" AS ENUM ();
CREATE TABLE "Or""ders_2026_2" ();
SELECT snowflake_create_partitions('"Odd ""Schema"."Or""ders"', '2026-01-01', '2027-01-01', '1 year', dry_run => false);
DROP TABLE "Or""ders_2026_2";
CREATE TABLE ééééééééééééééééééééééééééééééé (id bigint) PARTITION BY RANGE (id);
CREATE TABLE aééééééééééééééééééééééééééééééé (id bigint) PARTITION BY RANGE (id);
SELECT snowflake_create_partitions('ééééééééééééééééééééééééééééééé', '2026-11-01', '2026-12-01', '1 month', dry_run => false);
SELECT snowflake_create_partitions('aééééééééééééééééééééééééééééééé', '2026-11-01', '2026-12-01', '1 month', dry_run => false);
SELECT relname, octet_length(relname) FROM pg_class WHERE relname LIKE '%ééé%2026%' ORDER BY relname COLLATE "C";
DROP TABLE ééééééééééééééééééééééééééééééé, aééééééééééééééééééééééééééééééé;
-- two tables whose names differ in what is cut off
CREATE TABLE a_table_with_a_name_that_is_as_long_as_a_name_may_be_in_postgr1 (id bigint) PARTITION BY RANGE (id);
CREATE TABLE a_table_with_a_name_that_is_as_long_as_a_name_may_be_in_postgr2 (id bigint) PARTITION BY RANGE (id);
SELECT n, s FROM generate_series(1, 2) AS n,
	snowflake_create_partitions(('a_table_with_a_name_that_is_as_long_as_a_name_may_be_in_postgr' || n)::regclass,
	'2026-11-01', '2026-12-01', '1 month', dry_run => false) AS s;
DROP TABLE a_table_with_a_name_that_is_as_long_as_a_name_may_be_in_postgr1,
	a_table_with_a_name_that_is_as_long_as_a_name_may_be_in_postgr2;

-- refused
CREATE TABLE by_id (id bigint) PARTITION BY RANGE (id);
CREATE TABLE plain (id bigint);
CREATE TABLE by_list (id bigint) PARTITION BY LIST (id);
CREATE TABLE by_two (id bigint, at date) PARTITION BY RANGE (id, at);
CREATE TABLE by_integer (id integer) PARTITION BY RANGE (id);
CREATE TABLE by_expression (id bigint) PARTITION BY RANGE ((id + 1));
SELECT snowflake_create_partitions('plain', '2026-11-01', '2026-12-01', '1 month');
SELECT snowflake_create_partitions('by_list', '2026-11-01', '2026-12-01', '1 month');
SELECT snowflake_create_partitions('by_two', '2026-11-01', '2026-12-01', '1 month');
SELECT snowflake_create_partitions('by_integer', '2026-11-01', '2026-12-01', '1 month');
SELECT snowflake_create_partitions('by_expression', '2026-11-01', '2026-12-01', '1 month');
SELECT snowflake_create_partitions('pg_stat_snowflake', '2026-11-01', '2026-12-01', '1 month');
SELECT snowflake_create_partitions('by_id', '2026-11-01', '2026-12-01', '-1 month');
SELECT snowflake_create_partitions('by_id', '2000-11-01', '2026-12-01', '1 month', dry_run => false);
SELECT snowflake_create_partitions(NULL, '2026-11-01', '2026-12-01', '1 month');
SELECT snowflake_create_partitions('by_id', '2026-11-01', '2026-12-01', '1 month', dry_run => NULL);
\set VERBOSITY sqlstate
SELECT snowflake_create_partitions('plain', '2026-11-01', '2026-12-01', '1 month');
SELECT snowflake_create_partitions('by_id', '2026-11-01', '2026-12-01', '1 month', 'no such layout');
SELECT snowflake_create_partitions('by_id', '2026-11-01', '2026-12-01', NULL);
SELECT snowflake_create_partitions('no_such_table', '2026-11-01', '2026-12-01', '1 month');
\set VERBOSITY default
SELECT count(*) AS partitions FROM pg_inherits WHERE inhparent = 'by_id'::regclass;

-- dropping those that are past
SELECT count(*) FROM snowflake_create_partitions('by_id', '2026-09-15', '2027-01-01', '1 month', dry_run => false);
CREATE TABLE by_id_old PARTITION OF by_id FOR VALUES FROM (MINVALUE) TO (1000);
CREATE TABLE by_id_rest PARTITION OF by_id DEFAULT;
SELECT snowflake_drop_partitions('by_id', '2026-11-01');
SELECT count(*) AS partitions FROM pg_inherits WHERE inhparent = 'by_id'::regclass;
-- one that has later ids, too, stays
SELECT snowflake_drop_partitions('by_id', '2026-11-01 00:00:00.001', dry_run => false);
SELECT snowflake_drop_partitions('by_id', '2026-11-01 00:00:00.001', dry_run => false);
SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'by_id'::regclass ORDER BY 1;
-- by another layout the times are others; none before the epoch
SELECT count(*) FROM snowflake_drop_partitions('by_id', '2026-11-25', 'discord');
SELECT count(*) FROM snowflake_drop_partitions('by_id', '1999-01-01');
-- nor of negative numbers, nor with ids of the tick that has begun
CREATE TABLE by_day (id bigint) PARTITION BY RANGE (id);
CREATE TABLE by_day_none PARTITION OF by_day FOR VALUES FROM (MINVALUE) TO (0);
DO $$ BEGIN IF to_char(clock_timestamp() AT TIME ZONE 'UTC', 'HH24MISS') >= '235950' THEN PERFORM pg_sleep(11); END IF; END $$;	-- one day
\set by_day 'timestamp 20, worker 1, sequence 1, tick 86400s, epoch 2000-01-01T00:00:00Z'
SELECT snowflake_min_id(now() - interval '24 h', :'by_day') AS yesterday, snowflake_min_id(now(), :'by_day') AS today,
	snowflake_min_id(now() + interval '24 h', :'by_day') AS tomorrow \gset
CREATE TABLE by_day_1 PARTITION OF by_day FOR VALUES FROM (:yesterday) TO (:today);
CREATE TABLE by_day_2 PARTITION OF by_day FOR VALUES FROM (:today) TO (:tomorrow);
SELECT snowflake_drop_partitions('by_day', now(), :'by_day');
DROP TABLE by_day;
-- what is in use, or to come, is not dropped: up to the clock, in a dry run, too
CREATE FUNCTION later(before timestamptz, dry_run boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
BEGIN
	PERFORM snowflake_drop_partitions('by_id', before, NULL, dry_run);
	RETURN 'not refused';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', state, replace(message, before::text, 'BEFORE'),
		CASE WHEN substring(detail, '^It is (.*) now,')::timestamptz BETWEEN now() AND clock_timestamp()
			THEN regexp_replace(detail, '^It is .* now,', 'It is NOW now,') ELSE detail END, hint);
END
$$;
SELECT later(before, dry_run) FROM (VALUES (timestamptz '3999-01-01'), (now() + interval '1 year'), (now() + interval '1 hour')) AS b (before),
	unnest('{true,false}'::boolean[]) AS dry_run;
SELECT later(before, true) FROM (VALUES (now()), (statement_timestamp()), (clock_timestamp())) AS b (before);
-- Under the server's layout a time of last year is later than every id of js53.
CREATE TABLE by_js53 (id bigint DEFAULT snowflake_next_id('js53')) PARTITION BY RANGE (id);
CREATE TABLE by_js53_all PARTITION OF by_js53 FOR VALUES FROM (0) TO (9007199254740992);
SELECT snowflake_drop_partitions('by_js53', '2025-01-01 00:00Z');
SELECT snowflake_create_partitions('by_js53', '2025-01-01 00:00Z', '2025-02-01 00:00Z', '1 month');
SELECT snowflake_drop_partitions('by_js53', '2025-01-01 00:00Z', 'twitter');
SELECT snowflake_drop_partitions('by_js53', '2025-01-01 00:00Z', 'js53');
-- however the default says it
\set VERBOSITY terse
ALTER TABLE by_js53 ALTER id SET DEFAULT snowflake_next_id(layout => 'js53');
SELECT snowflake_drop_partitions('by_js53', '2025-01-01 00:00Z');
ALTER TABLE by_js53 ALTER id SET DEFAULT snowflake_nextval('js53'::varchar);
SELECT snowflake_drop_partitions('by_js53', '2025-01-01 00:00Z');
ALTER TABLE by_js53 ALTER id SET DEFAULT snowflake_next_id(concat('js', 53));
\set VERBOSITY default
SELECT snowflake_drop_partitions('by_js53', '2025-01-01 00:00Z');
SELECT snowflake_drop_partitions('by_js53', '2025-01-01 00:00Z', 'js53');
ALTER TABLE by_js53 ALTER id SET DEFAULT snowflake_next_id(layout => 'twitter');
SELECT snowflake_drop_partitions('by_js53', '2025-01-01 00:00Z');
-- a function of another name
CREATE FUNCTION app_snowflake_next_id(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
ALTER TABLE by_js53 ALTER id SET DEFAULT app_snowflake_next_id('js53');
SELECT snowflake_drop_partitions('by_js53', '2025-01-01 00:00Z');
DROP TABLE by_js53;
DROP FUNCTION app_snowflake_next_id(text);
-- a foreign table
CREATE FOREIGN DATA WRAPPER regress_snowflake_wrapper;
CREATE SERVER regress_snowflake_far FOREIGN DATA WRAPPER regress_snowflake_wrapper;
CREATE TABLE by_far (id bigint) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE far PARTITION OF by_far FOR VALUES FROM (0) TO (1000) SERVER regress_snowflake_far;
CREATE TABLE near PARTITION OF by_far FOR VALUES FROM (1000) TO (2000);
SELECT snowflake_drop_partitions('by_far', '2025-01-01 00:00Z', dry_run => false);
DROP TABLE by_far;
DROP FOREIGN DATA WRAPPER regress_snowflake_wrapper CASCADE;
SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'by_id'::regclass ORDER BY 1;
DROP FUNCTION later(timestamptz, boolean);
-- refused
-- a table that foreign keys reference: detached first, unless rows still reference the partition
CREATE TABLE kept (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
SELECT count(*) FROM snowflake_create_partitions('kept', '2026-09-01', '2026-12-01', '1 month', dry_run => false);
CREATE TABLE of_kept (kept_id bigint REFERENCES kept);
INSERT INTO kept SELECT snowflake_min_id(at) FROM unnest('{2026-09-05,2026-10-05,2026-11-05}'::timestamptz[]) AS at;
INSERT INTO of_kept SELECT snowflake_min_id(at) FROM unnest('{2026-10-05,2026-11-05}'::timestamptz[]) AS at;
SELECT snowflake_drop_partitions('kept', '2026-11-01');
SELECT snowflake_drop_partitions('kept', '2026-10-01', dry_run => false);
\set VERBOSITY sqlstate
SELECT snowflake_drop_partitions('kept', '2026-11-01', dry_run => false);
\set VERBOSITY default
DELETE FROM of_kept WHERE kept_id < snowflake_min_id('2026-11-01');
SELECT snowflake_drop_partitions('kept', '2026-11-01', dry_run => false);
SELECT count(*), count(kept_id) FROM kept LEFT JOIN of_kept ON kept_id = id;
DROP TABLE of_kept, kept;
SELECT snowflake_drop_partitions('by_list', '2026-11-01');
SELECT snowflake_drop_partitions('by_id', 'infinity', dry_run => false);
SELECT snowflake_drop_partitions('by_id', NULL);
\set VERBOSITY sqlstate
SELECT snowflake_drop_partitions('by_id', '2026-11-01', 'no such layout');
\set VERBOSITY default
CREATE TABLE by_id_past PARTITION OF by_id FOR VALUES FROM (0) TO (1000);
\set VERBOSITY terse
SET ROLE pg_monitor;
SELECT snowflake_drop_partitions('by_id', '2026-11-01', dry_run => false);
RESET ROLE;
\set VERBOSITY default

-- an ordinary user may see what would be done to any table, and do it to a table of their own
CREATE ROLE regress_snowflake_ranges;
SET ROLE regress_snowflake_ranges;
SELECT count(*) FROM snowflake_create_partitions('by_id', '2026-11-01', '2026-12-01', '1 month');
SELECT snowflake_create_partitions('by_id', '2026-11-01', '2026-12-01', '1 month', dry_run => false);
RESET ROLE;
CREATE SCHEMA own AUTHORIZATION regress_snowflake_ranges;
SET ROLE regress_snowflake_ranges;
CREATE TABLE own.orders (id bigint) PARTITION BY RANGE (id);
SELECT snowflake_create_partitions('own.orders', '2026-11-01', '2026-12-01', '1 month', dry_run => false);
RESET ROLE;
-- made by somebody else, they are the owner's as well
SELECT snowflake_create_partitions('own.orders', '2026-12-01', '2027-01-01', '1 month', dry_run => false);
SELECT relname, relowner::regrole FROM pg_class WHERE relnamespace = 'own'::regnamespace ORDER BY relname;
DROP TABLE plain, by_id, by_list, by_two, by_integer, by_expression;
SET client_min_messages = warning;
DROP SCHEMA own, "Odd ""Schema" CASCADE;
RESET client_min_messages;
DROP ROLE regress_snowflake_ranges;

--
-- Plans: partitions
--
CREATE TABLE event (id bigint PRIMARY KEY, note text) PARTITION BY RANGE (id);
SELECT count(*) FROM snowflake_create_partitions('event', '2026-01-01', '2027-01-01', '3 months', dry_run => false);
INSERT INTO event SELECT snowflake_compose(ts, 1, 0, 'twitter'), ts::date::text
FROM generate_series('2026-01-01'::timestamptz, '2026-12-31', '1 day') AS ts;
ANALYZE event;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
-- constants, and functions that are immutable: only the partitions at hand are in the plan
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE id >= 2123929381893046272 AND id < 2124291769758646272;
EXPLAIN (COSTS OFF) SELECT * FROM event
WHERE id >= snowflake_min_id('2026-06-30', 'twitter') AND id < snowflake_min_id('2026-07-02', 'twitter');
EXPLAIN (COSTS OFF) SELECT * FROM event
WHERE id >= lower(snowflake_range('2026-11-21', '2026-11-22', 'twitter'))
	AND id < upper(snowflake_range('2026-11-21', '2026-11-22', 'twitter'));
SELECT note FROM event
WHERE id >= lower(snowflake_range('2026-11-21', '2026-11-23', 'twitter'))
	AND id < upper(snowflake_range('2026-11-21', '2026-11-23', 'twitter')) ORDER BY id;
-- the server's layout, or times that are not known before: when the execution begins
EXPLAIN (COSTS OFF) SELECT * FROM event
WHERE id >= snowflake_min_id('2026-11-21') AND id < snowflake_min_id('2026-11-22');
EXPLAIN (COSTS OFF) SELECT * FROM event
WHERE id >= lower(snowflake_range('2026-11-21', '2026-11-22')) AND id < upper(snowflake_range('2026-11-21', '2026-11-22'));
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE id >= snowflake_min_id(now() + '50 years', 'twitter');
-- generic plans too
SET plan_cache_mode = force_generic_plan;
PREPARE of_time(timestamptz, timestamptz) AS
SELECT * FROM event WHERE id >= snowflake_min_id($1, 'twitter') AND id < snowflake_min_id($2, 'twitter');
EXPLAIN (COSTS OFF) EXECUTE of_time('2026-11-21', '2026-11-22');
SELECT count(*) FROM snowflake_range('2026-11-21', '2026-11-22') AS r, event WHERE id <@ r;
EXECUTE of_time('2026-11-21', '2026-11-23');
DEALLOCATE of_time;
RESET plan_cache_mode;
-- <@ is right; its plans are in range_plans.sql
SELECT count(*) FROM event WHERE id <@ snowflake_range('2026-11-21', '2026-11-23', 'twitter');
-- an open end is no bound to compare with
SELECT count(*) FROM event WHERE id <@ snowflake_range('2026-11-21', 'infinity', 'twitter');
SELECT count(*) FROM event WHERE id >= lower(snowflake_range('2026-11-21', 'infinity', 'twitter'));
SELECT upper(snowflake_range('2026-11-21', 'infinity', 'twitter')) IS NULL AS no_bound;
RESET enable_indexscan;
RESET enable_bitmapscan;

-- the index of a partition
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE id >= snowflake_min_id('2026-11-21') AND id < snowflake_min_id('2026-11-22');
RESET enable_seqscan;
RESET enable_bitmapscan;
DROP TABLE event;

--
-- Plans: BRIN.  A row a minute for a month, of three nodes whose clocks are seconds apart,
-- and a key without order beside it.
--
CREATE TABLE reading (id bigint, scattered bigint, note text);
INSERT INTO reading SELECT id, hashint8extended(id, 0), 'reading'
FROM generate_series('2026-11-01'::timestamptz, '2026-11-30 23:59', '1 minute') WITH ORDINALITY AS g (ts, n),
	snowflake_compose(ts + n % 3 * interval '4 s', (n % 3)::int, 0, 'twitter') AS id
ORDER BY n;
CREATE INDEX reading_id ON reading USING brin (id) WITH (pages_per_range = 4);
CREATE INDEX reading_scattered ON reading USING brin (scattered) WITH (pages_per_range = 4);
VACUUM ANALYZE reading;
SET enable_seqscan = off;
SET max_parallel_workers_per_gather = 0;
EXPLAIN (COSTS OFF) SELECT count(*) FROM reading
WHERE id >= snowflake_min_id('2026-11-21', 'twitter') AND id < snowflake_min_id('2026-11-22', 'twitter');

-- What a bitmap scan read: blocks of the table, rows that were wanted and rows that were not.
CREATE FUNCTION scan_of(query text, OUT rows int, OUT removed int, OUT blocks int)
LANGUAGE plpgsql AS $$
DECLARE
	node jsonb;
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) ' || query INTO plan;
	node := plan::jsonb -> 0 -> 'Plan';
	rows := (node ->> 'Actual Rows')::numeric;	-- with decimals since PostgreSQL 18
	removed := node -> 'Rows Removed by Index Recheck';
	blocks := node -> 'Lossy Heap Blocks';
END
$$;
-- a day is a 30th of the table: at most one group of blocks more than needed at each end;
-- the same share of a key without order is everywhere
SELECT s.rows, s.blocks <= ceil(pages / 30.0) + 2 * 4 AS reads_the_day, s.removed < 2 * 4 * (43200.0 / pages) AS little_removed
FROM (SELECT pg_relation_size('reading') / current_setting('block_size')::int AS pages) AS t,
	scan_of($$SELECT * FROM reading
		WHERE id >= snowflake_min_id('2026-11-21', 'twitter') AND id < snowflake_min_id('2026-11-22', 'twitter')$$) AS s;
SELECT s.blocks > 0.9 * pages AS reads_all, s.rows + s.removed > 0.9 * 43200 AS most_removed
FROM (SELECT pg_relation_size('reading') / current_setting('block_size')::int AS pages) AS t,
	scan_of($$SELECT * FROM reading WHERE scattered >= 0 AND scattered < 307445734561825860$$) AS s;
RESET enable_seqscan;
RESET max_parallel_workers_per_gather;
DROP FUNCTION scan_of;
DROP TABLE reading, span;
\pset format aligned
RESET timezone;
RESET datestyle;
RESET intervalstyle;
