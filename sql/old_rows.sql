-- Ids for old rows.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS snowflake;
-- everybody may call the functions, whatever the default privileges are
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
CREATE EXTENSION snowflake;
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\set SHOW_CONTEXT never

\df snowflake_backfill_id
CREATE ROLE regress_snowflake_backfill;
SET ROLE regress_snowflake_backfill;
SELECT snowflake_backfill_id('2020-07-02 17:00:17.153999Z') OVER (),
	snowflake_backfill_id('2020-07-02 17:00:17.153999Z', 'twitter') OVER (),
	snowflake_backfill_id('2020-07-02 17:00:17.153999Z', 'twitter', 0, 1) OVER ();
RESET ROLE;
DROP ROLE regress_snowflake_backfill;

--
-- Places
--
-- of the tick that contains the time, with the greatest node number; then the next one
SELECT created_at, id, p.* FROM (
	SELECT created_at, snowflake_backfill_id(created_at, 'twitter') OVER (ORDER BY created_at) AS id
	FROM (VALUES ('2010-11-04 01:42:54.657Z'::timestamptz), ('2020-07-02 17:00:17.153Z'), ('2020-07-02 17:00:17.153999Z'),
		('2020-07-02 17:00:17.154Z'), ('2080-07-10 17:30:30.208999Z')) AS v (created_at)) AS m,
	snowflake_parse(id, 'twitter') AS p ORDER BY id;
-- each place by its definition: the first one that is free, not before the tick, and the part's.
-- Ticks of 1 s with 8 ids, crowded at some times; all parts of 1, 3 and 8
\set small 'timestamp 30, sequence 3, worker 4, datacenter 2, tick 1s, epoch 2020-01-01T00:00:00Z'
SELECT setseed(0.25);
CREATE TABLE crowded AS
SELECT nr, second, '2020-01-01Z'::timestamptz + (second + random() * 0.999) * interval '1 s' AS created_at
FROM (SELECT nr, CASE WHEN nr % 2 = 0 THEN floor(random() * 400) ELSE floor(random() * 3) * 100 END AS second
	FROM generate_series(1, 600) AS nr) AS s;
CREATE FUNCTION places(small text, part int, parts int)
RETURNS TABLE (part int, parts int, nr int, second float8, created_at timestamptz, id bigint, place bigint) LANGUAGE sql AS $$
	SELECT part, parts, m.*, extract(epoch FROM p.timestamp - '2020-01-01Z')::bigint * 8 + p.sequence
	FROM (SELECT nr, second, created_at, snowflake_backfill_id(created_at, small, part, parts) OVER (ORDER BY created_at, nr) AS id FROM crowded) AS m,
		snowflake_parse(id, small) AS p
$$;
CREATE TABLE placed AS
SELECT p.* FROM (VALUES (1), (3), (8)) AS v (parts), generate_series(0, v.parts - 1) AS part, places(:'small', part, v.parts) AS p;
SELECT parts, count(*), count(*) FILTER (WHERE place / 8 > second) AS in_later_ticks,
	count(*) FILTER (WHERE place IS DISTINCT FROM (
		SELECT min(free) FROM generate_series(first, first + 7) AS free WHERE free % parts = part)) AS wrong
FROM (SELECT *, greatest(1 + lag(place) OVER (PARTITION BY parts, part ORDER BY created_at, nr), second::bigint * 8) AS first
	FROM placed) AS p
GROUP BY parts ORDER BY parts;
-- parts interleave: their ids differ
SELECT parts, count(*) AS ids, count(DISTINCT id) AS distinct_ids FROM placed GROUP BY 1 ORDER BY 1;
SELECT part, created_at, (snowflake_parse(id, 'twitter')).sequence FROM (
	SELECT 2 AS part, created_at, snowflake_backfill_id(created_at, 'twitter', 2, 4) OVER (ORDER BY created_at) AS id
	FROM (VALUES ('2020-01-01Z'::timestamptz), ('2020-01-01Z'), ('2020-01-02Z')) AS v (created_at)
	UNION ALL
	SELECT 0, created_at, snowflake_backfill_id(created_at, 'twitter', 0, 4) OVER (ORDER BY created_at)
	FROM (VALUES ('2020-01-01Z'::timestamptz), ('2020-01-01Z'), ('2020-01-02Z')) AS v (created_at)) AS m;

-- all layouts that ids are issued in, whatever the order of their fields
CREATE TABLE layout AS
SELECT definition, epoch, tick, substring(definition FROM 'sequence (\d+)')::int AS sequence_bits,
	(1::bigint << coalesce(substring(definition FROM 'datacenter (\d+)')::int, 0)) - 1 AS max_datacenter,
	(1::bigint << substring(definition FROM 'worker (\d+)')::int) - 1 AS max_worker,
	(1::bigint << coalesce(substring(definition FROM 'clock (\d+)')::int, 0)) - 1 AS max_clock
FROM (SELECT * FROM snowflake_layouts() UNION ALL
	SELECT l.* FROM (VALUES
		('timestamp 36, clock 3, sequence 10, worker 6, datacenter 4, tick 10ms, epoch 2020-01-01T00:00:00Z'),
		('timestamp 31, sequence 1, worker 31, tick 1s'),
		('timestamp 30, worker 2, sequence 31, tick 1s, epoch 2020-01-01T00:00:00Z')) AS v (layout),
		snowflake_layout(layout) AS l) AS l
WHERE definition ~ 'worker';
CREATE FUNCTION made(layout layout) RETURNS TABLE (n int, at timestamptz, id bigint) LANGUAGE sql AS $$
	SELECT n, at, snowflake_backfill_id(at, layout.definition) OVER (ORDER BY n)
	FROM (SELECT n, layout.epoch + interval '1 month' + n / 2 * layout.tick AS at FROM generate_series(0, 5) AS n) AS t
$$;
SELECT count(DISTINCT definition) AS layouts, count(id) AS ids, count(*) FILTER (WHERE p.timestamp > at OR p.timestamp <= at - tick
	OR p.sequence <> n % 2 OR coalesce(p.datacenter_id, 0) <> max_datacenter OR p.worker_id <> max_worker
	OR coalesce(p.clock, 0) <> max_clock) AS wrong
FROM layout, made(layout), snowflake_parse(id, definition) AS p;
-- as many parts as a tick has ids: the last one
CREATE FUNCTION last_part(layout layout) RETURNS bigint LANGUAGE sql AS $$
	SELECT snowflake_backfill_id(layout.epoch + interval '1 month', layout.definition, ids - 1, ids) OVER ()
	FROM CAST(1 << layout.sequence_bits AS int) AS ids
$$;
SELECT count(*), count(*) FILTER (WHERE p.sequence <> (1 << sequence_bits) - 1) AS wrong
FROM layout, last_part(layout) AS id, snowflake_parse(id, definition) AS p WHERE sequence_bits < 31;

--
-- Many rows
--
-- the server's layout, and times of ids that are issued: none is equal
CREATE TABLE old AS SELECT nr, snowflake_timestamp(id) AS created_at, id AS issued
FROM snowflake_nextval_batch(100000) WITH ORDINALITY AS n (id, nr);
INSERT INTO old SELECT nr, CASE WHEN nr % 2 = 0 THEN '2024-05-05 12:00Z' ELSE '2024-05-05Z'::timestamptz + nr % 1000 * interval '1 min' END
FROM generate_series(100001, 1000000) AS nr;
CREATE TABLE made AS SELECT nr, created_at, snowflake_backfill_id(created_at) OVER (ORDER BY created_at, nr) AS id FROM old;
SELECT count(*), count(DISTINCT id) AS ids, count(*) FILTER (WHERE snowflake_timestamp(id) NOT BETWEEN created_at AND created_at + interval '200 ms') AS elsewhere,
	bool_and((snowflake_parse(id)).datacenter_id = 31 AND (snowflake_parse(id)).worker_id = 31) AS reserved FROM made;
SELECT count(*) FILTER (WHERE id <= last) AS out_of_order FROM (SELECT id, lag(id) OVER (ORDER BY created_at, nr) AS last FROM made) AS o;
SELECT count(*) FROM old JOIN made ON made.id = old.issued;
SELECT snowflake_nextval() > max(issued) AS after_issued FROM old;
-- a million at the same time take 2^20 / 4096 ms at most
SELECT count(DISTINCT id), min(snowflake_timestamp(id, 'twitter')), max(snowflake_timestamp(id, 'twitter')),
	count(*) FILTER (WHERE id <= last) AS out_of_order
FROM (SELECT id, lag(id) OVER (ORDER BY n) AS last FROM (
	SELECT n, snowflake_backfill_id('2024-05-05 12:00Z', 'twitter') OVER (ORDER BY n) AS id FROM generate_series(1, 1000000) AS n) AS m) AS l;
-- what is read is not kept: the rows of the window stay in memory, however many there are
CREATE FUNCTION temporary_blocks(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Temp Written Blocks';
END
$$;
SET work_mem = '64kB';
SELECT temporary_blocks('SELECT snowflake_backfill_id(''2020-01-01Z'', ''twitter'') OVER () FROM old');
RESET work_mem;
-- several tables in one query
SELECT count(*), count(DISTINCT id) AS ids, count(*) FILTER (WHERE id < last) AS out_of_order
FROM (SELECT id, lag(id) OVER (ORDER BY created_at, source, key) AS last FROM (
	SELECT source, key, created_at, snowflake_backfill_id(created_at) OVER (ORDER BY created_at, source, key) AS id
	FROM (SELECT 'crowded' AS source, nr::bigint AS key, created_at FROM crowded UNION ALL
		SELECT 'old', nr, created_at FROM old WHERE nr < 1000 UNION ALL
		SELECT 'copy', nr, created_at FROM crowded) AS tables) AS m) AS o;
-- each execution starts again, and gives the same ids
PREPARE made(text) AS SELECT sum(hashint8(id)) FROM (
	SELECT snowflake_backfill_id(created_at, $1) OVER (ORDER BY created_at, nr) AS id FROM crowded) AS m;
SET plan_cache_mode = force_generic_plan;
EXECUTE made('twitter') \gset first_
EXECUTE made('twitter') \gset second_
EXECUTE made('discord') \gset third_
RESET plan_cache_mode;
SELECT :first_sum = :second_sum AS same, :first_sum = :third_sum AS same_in_another_layout;
-- rows without a time have no id and take no place
SELECT nr, (snowflake_parse(snowflake_backfill_id(created_at, 'twitter') OVER (ORDER BY nr), 'twitter')).sequence
FROM (VALUES (1, NULL::timestamptz), (2, '2020-01-01Z'), (3, NULL), (4, '2020-01-01Z')) AS v (nr, created_at);
SELECT snowflake_backfill_id('2020-01-01Z', NULL) OVER () IS NULL AND snowflake_backfill_id('2020-01-01Z', 'twitter', NULL, 4) OVER () IS NULL
	AND snowflake_backfill_id('2020-01-01Z', 'twitter', 3, NULL) OVER () IS NULL AS strict;
-- a transaction that may not write
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SELECT snowflake_backfill_id('2020-01-01Z', 'twitter') OVER () > 0 AS made;
COMMIT;

--
-- Refused
--
CREATE VIEW two_days AS SELECT * FROM (VALUES (1, '2020-01-02Z'::timestamptz), (2, '2020-01-01Z'), (3, '2020-01-02Z')) AS v (nr, created_at);
-- out of order
SELECT snowflake_backfill_id(created_at, 'twitter') OVER (ORDER BY nr) FROM two_days;
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_backfill_id(created_at) OVER (ORDER BY created_at DESC) FROM two_days;
SELECT snowflake_backfill_id(at, 'twitter') OVER (ORDER BY nr)
FROM (VALUES (1, '2019-01-01Z'::timestamptz), (2, '2020-01-01 00:00:00.0001Z'), (3, '2020-01-01Z')) AS v (nr, at);
-- one window without partitions; two partitions of which none has an id, too
SELECT snowflake_backfill_id(created_at, 'twitter') OVER (PARTITION BY created_at ORDER BY nr) FROM two_days;
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_backfill_id(NULL, 'twitter') OVER (PARTITION BY created_at ORDER BY nr) FROM two_days;
\set VERBOSITY terse
SELECT id FROM two_days AS t, LATERAL (SELECT snowflake_backfill_id(created_at, 'twitter') OVER (ORDER BY created_at) AS id
	FROM two_days WHERE nr > t.nr) AS m;
-- so is a plan that computes the window again and again
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SELECT count(DISTINCT made.id) FROM crowded LEFT JOIN (
	SELECT nr, snowflake_backfill_id(created_at) OVER (ORDER BY created_at, nr) AS id FROM crowded) AS made USING (nr);
WITH made AS MATERIALIZED (SELECT nr, snowflake_backfill_id(created_at) OVER (ORDER BY created_at, nr) AS id FROM crowded)
SELECT count(DISTINCT made.id) FROM crowded LEFT JOIN made USING (nr);
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
\set VERBOSITY default
-- a partition of all rows is none
SELECT count(DISTINCT snowflake_backfill_id) FROM (
	SELECT snowflake_backfill_id(created_at, 'twitter') OVER (PARTITION BY nr > 0 ORDER BY created_at, nr) FROM two_days) AS m;
-- without a window
SELECT snowflake_backfill_id('2020-01-01Z');
CREATE OPERATOR #@@# (FUNCTION = snowflake_backfill_id, RIGHTARG = timestamptz);
SELECT #@@# '2020-01-01Z'::timestamptz;
\echo :LAST_ERROR_SQLSTATE
DROP OPERATOR #@@# (NONE, timestamptz);
-- times that the layout does not have
SELECT snowflake_backfill_id('2010-11-04 01:42:54.656999Z', 'twitter') OVER ();
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
SELECT snowflake_backfill_id('2080-07-10 17:30:30.209Z', 'twitter') OVER ();
SELECT snowflake_backfill_id('infinity') OVER ();
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_backfill_id('-infinity') OVER ();
\set VERBOSITY default
-- the last tick
\set short 'timestamp 8, worker 2, sequence 3, tick 1s, epoch 2020-01-01T00:00:00Z'
SELECT count(*), max(id) = snowflake_max_id('infinity', :'short') AS last FROM (
	SELECT snowflake_backfill_id('2020-01-01 00:04:14Z', :'short') OVER () AS id FROM generate_series(1, 16)) AS m;
SELECT snowflake_backfill_id('2020-01-01 00:04:14Z', :'short') OVER () AS id FROM generate_series(1, 17);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_backfill_id('2020-01-01 00:04:14Z', :'short', 2, 3) OVER () AS id FROM generate_series(1, 6);
\echo :LAST_ERROR_SQLSTATE
-- parts
SELECT snowflake_backfill_id('2020-01-01Z', 'twitter', 0, 4097) OVER ();
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_backfill_id('2020-01-01Z', 'twitter', 4, 4) OVER ();
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
SELECT snowflake_backfill_id('2020-01-01Z', 'twitter', -1, 4) OVER ();
SELECT snowflake_backfill_id('2020-01-01Z', 'twitter', 0, 0) OVER ();
SELECT snowflake_backfill_id('2020-01-01Z', 'twitter', 0, -1) OVER ();
SELECT snowflake_backfill_id('2020-01-01Z', 'timestamp 30, worker 2, sequence 31, tick 1s, epoch 2020-01-01T00:00:00Z', 2147483646, 2147483647) OVER () > 0 AS made;
-- arguments that change
SELECT snowflake_backfill_id(created_at, CASE nr WHEN 2 THEN 'twitter' ELSE 'discord' END) OVER (ORDER BY created_at) FROM two_days;
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_backfill_id(created_at, CASE nr WHEN 2 THEN 'twitter' ELSE 'pgedge1' END) OVER (ORDER BY created_at) FROM two_days;
SELECT snowflake_backfill_id(created_at, 'twitter', nr, 9) OVER (ORDER BY created_at) FROM two_days;
SELECT snowflake_backfill_id(created_at, 'twitter', 1, nr) OVER (ORDER BY created_at) FROM two_days;
\set VERBOSITY default
-- an argument of a row, but the same in all
SELECT count(id) FROM (SELECT snowflake_backfill_id(created_at, repeat(' ', nr - nr) || 'twitter', part, nr - nr + 2) OVER (ORDER BY created_at) AS id
	FROM two_days, (VALUES (1)) AS v (part)) AS m;
-- layouts
SELECT snowflake_backfill_id('2020-01-01Z', 'mastodon') OVER ();
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
SELECT snowflake_backfill_id('2020-01-01Z', 'timestamp 30, worker 3, sequence 3, tick 1001ms') OVER ();
SELECT snowflake_backfill_id('2020-01-01Z', 'no such') OVER ();
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY default

-- a layout is the same however it is stored
CREATE TEMP TABLE stored AS SELECT i, 'twitter' AS layout FROM generate_series(1, 2) AS i;
SELECT count(id) FROM (SELECT snowflake_backfill_id('2020-01-01Z', CASE i WHEN 1 THEN layout ELSE repeat('twitter', 1) END) OVER (ORDER BY i) AS id
	FROM stored) AS b;

DROP VIEW two_days;
DROP FUNCTION places, made, last_part, temporary_blocks;
DROP TABLE old, made, layout, placed, crowded;
DROP EXTENSION snowflake;
