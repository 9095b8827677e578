-- Ids for old rows, and the shares of the reserved node number.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS snowflake;
CREATE EXTENSION snowflake;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\set SHOW_CONTEXT never

\d snowflake.backfill
\d snowflake.backfill_layout
\d snowflake.backfill_share

--
-- Shares, as a database asks the registry for one
--
UPDATE snowflake.registry SET incarnation = '99999999-0000-0000-0000-000000000000';
-- cluster, database, and the n-th creation of the extension there
CREATE FUNCTION share(cluster bigint, database int, creation int DEFAULT 1, shared boolean DEFAULT true,
	version text DEFAULT '1.0') RETURNS int LANGUAGE sql AS $$
	SELECT snowflake.acquire_backfill_share(version, cluster, database::oid, shared, lpad(creation::text, 32, '0')::uuid)
$$;
CREATE VIEW given AS
SELECT CASE WHEN incarnation::text ~ '^(9{8}|1{8})' THEN left(incarnation::text, 1) ELSE 'new' END AS registry, share, system_identifier AS cluster, database,
	right(asker::text, 1) AS creation, shared
FROM snowflake.backfill_share ORDER BY registry DESC, share;

-- another one for each database, and the same one each time
SELECT share(1, 500), share(1, 501), share(2, 500), share(1, 501), share(1, 500), share(2, 500);
-- the extension was created anew
SELECT share(1, 500, 2), share(1, 500, 2), share(1, 500, 1);
-- of the registry's own cluster: pg_upgrade has changed the system identifier
SELECT share(3, 500, shared => false), share(4, 500, shared => false), share(4, 500, shared => true);
-- asked without the incarnation
SELECT snowflake.acquire_backfill_share('1.0', 1, 500, true), snowflake.acquire_backfill_share('1.0', 1, 500, true);
SELECT * FROM given;
SELECT count(*) FROM snowflake.backfill_share WHERE given_at BETWEEN now() - interval '1 min' AND clock_timestamp();

-- a copy of the registry: its past counts as taken, other clusters' databases are still
-- known, and its own cluster's are others
BEGIN;
UPDATE snowflake.registry SET database = 1;
SELECT share(2, 500), share(4, 500, shared => false), share(4, 500, shared => false), share(9, 900);
SELECT share, cluster, database, shared FROM given WHERE registry <> '9';
ROLLBACK;
-- a dump was restored into a registry in use: who is not alone with his share gets another one
BEGIN;
INSERT INTO snowflake.backfill_share
SELECT '11111111-0000-0000-0000-000000000000', share, 77, 700, asker, true, given_at
FROM snowflake.backfill_share WHERE share IN (2, 8);
SELECT share(1, 500), share(1, 501), share(77, 700), share(4, 500, shared => false), share(1, 501), share(77, 700);
SELECT * FROM given;
ROLLBACK;

-- a timeline of the other kind
SELECT snowflake.acquire_backfill_share('1.0', 1, 500, true, lpad('1', 32, '0')::uuid, generation => g) FROM unnest('{2, 4, 1, 3}'::int[]) AS g;
DELETE FROM snowflake.backfill_share WHERE share % 2 = 1;

-- sixteen, and no more; a gap is filled
SELECT count(share(8, n)), max(share(8, n)) FROM generate_series(1, 9) AS n;
SELECT share(9, 900);
\echo :LAST_ERROR_SQLSTATE
SELECT share(8, 9);
DELETE FROM snowflake.backfill_share WHERE share = 10;
SELECT share(9, 900), share(9, 900);

-- who is not to have one
SELECT share(9, 901, version => '1.2');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT share(8, 9);
ROLLBACK;
SELECT snowflake.acquire_backfill_share('1.0', 8, 9, NULL);
DELETE FROM snowflake.backfill_share WHERE share = 10;
\set VERBOSITY sqlstate
SELECT snowflake.acquire_backfill_share('1.0', NULL, 9, true);
SELECT snowflake.acquire_backfill_share('1.0', 8, NULL, true);
SELECT snowflake.acquire_backfill_share(NULL, 9, 900, NULL);
INSERT INTO snowflake.backfill_share
SELECT incarnation, share, 1, 1, asker, true, now() FROM snowflake.backfill_share WHERE share = 0;
\set VERBOSITY default
-- rows that logical replication brings are left out
SET session_replication_role = replica;
DELETE FROM snowflake.backfill_share;
UPDATE snowflake.backfill_share SET share = share + 100;
SELECT share(8, 9);
RESET session_replication_role;
SELECT count(*), max(share) FROM snowflake.backfill_share;
DELETE FROM snowflake.backfill_share;

--
-- Ids
--
CREATE FUNCTION definition(layout text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT definition FROM snowflake_layout(layout) $$;
-- in a layout, for a share
CREATE FUNCTION made(at timestamptz, layout text, share int DEFAULT 0) RETURNS bigint LANGUAGE sql
AS $$ SELECT snowflake.backfill_id(at, definition(layout), share) $$;

-- plans are made while the table is known to be empty
VACUUM ANALYZE snowflake.backfill;
-- of the tick, with the greatest node number; then the next one
SELECT id, p.*, p.sequence >> 7 AS share, p.sequence & 127 AS counter
FROM (SELECT made('2020-07-02 17:00:17.153999Z', 'twitter', share) AS id
	FROM (VALUES (0), (15), (0), (15), (0)) AS v (share)) AS m, snowflake_parse(id, 'twitter') AS p;
SELECT layout_id, first_word, next_word FROM snowflake.backfill ORDER BY 1;
SELECT id, layout = definition('twitter') AS layout, share, epoch, ends_at, last_tick, timestamp_shift, sequence_shift,
	counter_bits, fixed_bits FROM snowflake.backfill_layout ORDER BY id;
-- all layouts that ids are issued in, whatever the order of their fields, with the least and
-- the greatest share; no rows are wanted
CREATE TABLE layout AS
SELECT name, definition, epoch, tick, sequence_bits, least(5, sequence_bits / 2) AS share_bits,
	(1::bigint << coalesce(substring(definition from 'datacenter (\d+)')::int, 0)) - 1 AS max_datacenter,
	(1::bigint << substring(definition from 'worker (\d+)')::int) - 1 AS max_worker,
	(1::bigint << coalesce(substring(definition from 'clock (\d+)')::int, 0)) - 1 AS max_clock
FROM (SELECT name, definition, epoch, tick, substring(definition from 'sequence (\d+)')::int AS sequence_bits
	FROM (SELECT * FROM snowflake_layouts() UNION ALL
		SELECT l.* FROM (VALUES
			('timestamp 36, clock 3, sequence 10, worker 6, datacenter 4, tick 10ms, epoch 2020-01-01T00:00:00Z'),
			('timestamp 31, sequence 1, worker 31, tick 1s'),
			('timestamp 30, worker 2, sequence 31, tick 1s, epoch 2020-01-01T00:00:00Z')) AS v (layout),
			snowflake_layout(layout) AS l) AS all_layouts) AS bits
WHERE definition ~ 'worker';
SELECT count(*), count(name) AS presets, min(share_bits), max(share_bits) FROM layout;
SELECT layout.name, share, id, p.*
FROM layout, LATERAL (VALUES (0), ((1 << share_bits) - 1)) AS s (share), generate_series(0, 2) AS n,
	LATERAL made(epoch + interval '1 month' + n * interval '7 s', definition, share) AS id,
	snowflake_parse(id, definition) AS p
WHERE p.timestamp > epoch + interval '1 month' + n * interval '7 s' OR
	p.timestamp <= epoch + interval '1 month' + n * interval '7 s' - tick OR
	coalesce(p.datacenter_id, 0) <> max_datacenter OR p.worker_id <> max_worker OR coalesce(p.clock, 0) <> max_clock OR
	p.sequence >> sequence_bits - share_bits <> share;
-- those of one tick differ in the counter alone; no rows are wanted
SELECT definition, ids
FROM (SELECT definition, ARRAY(SELECT made(epoch + interval '2 months', definition)
		FROM generate_series(1, least(3, 1 << sequence_bits))) AS ids FROM layout OFFSET 0) AS m
WHERE EXISTS (SELECT FROM unnest(ids) WITH ORDINALITY AS u (id, nr), snowflake_parse(id, definition) AS p,
		snowflake_parse(ids[1], definition) AS one
	WHERE p.sequence <> one.sequence + nr - 1 OR (p.timestamp, p.worker_id) IS DISTINCT FROM (one.timestamp, one.worker_id));
-- as the server's layout or a generator's, with this database's share
SELECT snowflake_create_generator('js', 'js53'), snowflake_create_generator('same', definition('js53'));
SELECT count(DISTINCT id) AS ids, count(DISTINCT p.timestamp) AS ticks, min(p.worker_id) AS worker_id,
	bool_and(p.sequence >> 4 = snowflake.backfill_share()) AS share
FROM (SELECT snowflake_backfill_id('2024-02-29 12:00Z', generator) AS id
	FROM generate_series(1, 20), unnest('{js, same}'::text[]) AS generator) AS m, snowflake_parse(id, 'js53') AS p;
SELECT count(DISTINCT id) AS ids, count(DISTINCT p.timestamp) AS ticks, min(p.datacenter_id) AS datacenter_id,
	min(p.worker_id) AS worker_id, bool_and(p.sequence >> 7 = snowflake.backfill_share()) AS share
FROM (SELECT snowflake_backfill_id('2020-02-29 12:00Z') AS id FROM generate_series(1, 20)) AS m, snowflake_parse(id) AS p;
SELECT snowflake_backfill_id(NULL) IS NULL AND snowflake_backfill_id(NULL, 'js') IS NULL AND
	snowflake_backfill_id('2020-02-29', NULL) IS NULL AS strict;
-- rows with different times, even at midnight, do not all have the same ids modulo 16
SELECT count(*) FROM (
	SELECT made('2021-01-01Z'::timestamptz + n * interval '1 day', 'twitter') & 15 AS modulo, count(*) AS days
	FROM generate_series(0, 999) AS n GROUP BY 1) AS d WHERE days BETWEEN 30 AND 100;

--
-- Which id: the first free one of the tick or of those behind it.  Ticks of 1 s with 8
-- counters, all starting at 0 (4 for each of the 2 shares); times over 40 s, of which some are frequent.
--
\set small 'timestamp 30, worker 3, sequence 3, tick 1s, epoch 2020-01-01T00:00:00Z'
CREATE TABLE call (nr int PRIMARY KEY, at timestamptz, second int, id bigint, word bigint);
CREATE FUNCTION call(until int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	layout CONSTANT text := definition('timestamp 30, worker 3, sequence 3, tick 1s, epoch 2020-01-01T00:00:00Z');
	row call;
BEGIN
	FOR nr IN (SELECT coalesce(max(c.nr), 0) + 1 FROM call AS c) .. until LOOP
		row.nr := nr;
		row.second := CASE WHEN random() < 0.5 THEN floor(random() * 40) ELSE floor(random() * 5) * 8 END;
		row.at := '2020-01-01Z'::timestamptz + (row.second + random() * 0.999) * interval '1 s';
		row.id := snowflake.backfill_id(row.at, layout, 1);
		row.word := ((row.id >> 6) << 2) | (row.id & 3);
		INSERT INTO call SELECT row.*;
	END LOOP;
END
$$;
CREATE FUNCTION mistakes(OUT not_first bigint, OUT repeated bigint, OUT out_of_order bigint) LANGUAGE sql AS $$
	SELECT
		-- a word from the tick's start on that was not given out earlier
		(SELECT count(*) FROM call AS c, generate_series(c.second * 4, c.word - 1) AS free
		WHERE NOT EXISTS (SELECT FROM call AS before WHERE before.nr < c.nr AND before.word = free)),
		(SELECT count(*) - count(DISTINCT id) FROM call),
		-- a later call for the same or a younger time, with a smaller id
		(SELECT count(*) FROM call AS one, call AS later
		WHERE one.nr < later.nr AND one.at <= later.at AND one.id >= later.id)
$$;
SELECT setseed(0.25);
SELECT call(30);
DO $$
BEGIN
	FOR nr IN 31 .. 100 LOOP
		PERFORM call(nr);
		COMMIT;
	END LOOP;
END
$$;
SELECT call(400);
SELECT * FROM mistakes();
SELECT count(*) AS calls, count(DISTINCT second) AS seconds,
	count(*) FILTER (WHERE word / 4 > second) AS in_later_ticks,
	min(id & 7) AS sequence_from, max(id & 7) AS sequence_to FROM call;
-- as others would have it that know only what is in the table
SELECT count(*) AS words, count(*) FILTER (WHERE NOT EXISTS (
	SELECT FROM snowflake.backfill AS b JOIN snowflake.backfill_layout AS l ON l.id = b.layout_id
	WHERE l.layout = definition(:'small') AND l.share = 1 AND c.word >= b.first_word AND c.word < b.next_word)) AS unknown
FROM call AS c;
-- rolled back, in part and as a whole: given again
BEGIN;
SELECT made('2019-01-01Z', 'twitter') AS first \gset
SAVEPOINT a;
SELECT made('2019-01-01Z', 'twitter') - :first AS step, made('2019-01-02Z', 'twitter') AS second_day \gset
SELECT :step AS step;
ROLLBACK TO a;
SELECT made('2019-01-01Z', 'twitter') - :first AS step, made('2019-01-02Z', 'twitter') = :second_day AS same;
ROLLBACK;
SELECT made('2019-01-01Z', 'twitter') = :first AS same;

--
-- Any number of rows may have one time.  Each id takes a look into the index (or two), and the
-- versions that a row has left behind in the same transaction are not in its way
--
CREATE VIEW read AS
SELECT pg_stat_get_xact_numscans('snowflake.backfill'::regclass) AS seq_scans,
	pg_stat_get_xact_tuples_returned('snowflake.backfill_pkey'::regclass) AS entries;
BEGIN;
SELECT seq_scans, entries FROM read \gset
SELECT count(DISTINCT id) AS ids, min(p.timestamp), max(p.timestamp)
FROM (SELECT made('2018-01-01Z', 'twitter') AS id FROM generate_series(1, 20000)) AS m, snowflake_parse(id, 'twitter') AS p;
SELECT count(DISTINCT made('2017-01-01Z'::timestamptz + n * interval '1 s', 'twitter')) AS ids FROM generate_series(1, 1000) AS n;
SELECT seq_scans - :seq_scans AS seq_scans, entries - :entries < 5 * 21000 AS few_entries FROM read;
COMMIT;
SELECT count(*) FROM snowflake.backfill AS b WHERE b.next_word - b.first_word = 20000;
-- many rows dated midnight, and others of the next milliseconds: in order of age, the ids are in order, too
CREATE TABLE old (name text PRIMARY KEY, created_at timestamptz NOT NULL);
INSERT INTO old
SELECT 'row ' || n, '2015-06-01Z'::timestamptz + n % 2 * interval '1 day'
	+ CASE WHEN n % 3 = 0 THEN n % 50 ELSE 0 END * interval '1 ms'
FROM generate_series(1, 8000) AS n ORDER BY md5(n::text);
ALTER TABLE old ADD COLUMN id bigint;
CREATE VIEW out_of_order AS SELECT count(*) > 0 AS out_of_order
FROM (SELECT created_at < lag(created_at) OVER (ORDER BY id) AS younger FROM old) AS o WHERE younger;
BEGIN;
UPDATE old SET id = snowflake_backfill_id(created_at);
SELECT count(DISTINCT id) AS ids, out_of_order FROM old, out_of_order GROUP BY 2;
ROLLBACK;
UPDATE old SET id = made.id
FROM (SELECT name, snowflake_backfill_id(created_at) AS id
	FROM (SELECT name, created_at FROM old ORDER BY created_at) AS by_age) AS made
WHERE made.name = old.name;
SELECT count(DISTINCT id) AS ids, out_of_order FROM old, out_of_order GROUP BY 2;
ALTER TABLE old DROP CONSTRAINT old_pkey, ADD PRIMARY KEY (id), ALTER COLUMN id SET DEFAULT snowflake_nextval();
INSERT INTO old (name, created_at) VALUES ('new', now()) RETURNING id > ALL (SELECT id FROM old) AS greatest;
SELECT count(*),
	count(*) FILTER (WHERE snowflake_timestamp(id) NOT BETWEEN created_at AND created_at + interval '40 ms') AS elsewhere
FROM old WHERE name <> 'new';

--
-- Refused
--
SELECT made('2010-11-04 01:42:54.656999Z', 'twitter');
\echo :LAST_ERROR_SQLSTATE
SELECT made('2010-11-04 01:42:54.657Z', 'twitter') >> 22 AS tick;
SELECT made('-infinity', definition('twitter'));
\set VERBOSITY terse
SELECT made('infinity', 'twitter');
\echo :LAST_ERROR_SQLSTATE
SELECT made('2070-01-01Z', 'twitter');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_backfill_id('2070-01-01Z', 'js');
\set VERBOSITY default
SELECT snowflake_timestamp(made(clock_timestamp(), 'twitter'), 'twitter')
	BETWEEN now() - interval '1 ms' AND clock_timestamp() AS now;
-- the last tick of a layout: four ids, then no more
\set short 'timestamp 8, worker 2, sequence 3, tick 1s, epoch 2020-01-01T00:00:00Z'
SELECT made('2020-01-01 00:04:15.999Z', :'short'), made('2020-01-01 00:04:14.001Z', :'short') AS before;
SELECT count(made('2020-01-01 00:04:15Z', :'short')) FROM generate_series(1, 3);
SELECT made('2020-01-01 00:04:15Z', :'short');
\echo :LAST_ERROR_SQLSTATE
SELECT count(made('2020-01-01 00:04:14Z', :'short')) FROM generate_series(1, 4);
SELECT count(made('2020-01-01 00:04:14Z', :'short')) FROM generate_series(1, 3);
SELECT made('2020-01-01 00:04:14Z', :'short');
SELECT made('2020-01-01 00:04:16Z', :'short');
-- ids do not run into the future: two of a second, and the transaction does not last 100 s
\set VERBOSITY sqlstate
SELECT count(made(now(), 'timestamp 32, worker 2, sequence 1, tick 1s')) FROM generate_series(1, 200);
SELECT count(made(now() - interval '99 s', 'timestamp 32, worker 2, sequence 1, tick 1s')) FROM generate_series(1, 200);
\set VERBOSITY default
-- a share that the layout has no room for
SELECT made('2020-01-01Z', 'twitter', 32);
\echo :LAST_ERROR_SQLSTATE
SELECT made('2020-01-01Z', 'js53, epoch 2020-01-01T00:00:00Z', 15) IS NOT NULL AS fits;
SELECT made('2020-01-01Z', 'js53', 16);
SELECT made('2020-01-01Z', 'timestamp 40, worker 20, sequence 2', 2);
-- layouts that ids are not issued in, and generators that there are not
SELECT made('2020-01-01Z', 'mastodon');
\echo :LAST_ERROR_SQLSTATE
SELECT made('2020-01-01Z', 'timestamp 30, worker 3, sequence 3, tick 1001ms');
SELECT snowflake_backfill_id('2020-01-01Z', 'no such');
\echo :LAST_ERROR_SQLSTATE
-- transactions that do not see all, or may not write
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT snowflake_backfill_id('2020-01-01Z');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT snowflake_backfill_id('2020-01-01Z', 'js');
ROLLBACK;
BEGIN READ ONLY;
SELECT made('2020-01-01Z', 'twitter');
ROLLBACK;
SET session_replication_role = replica;
SELECT made('2020-01-01Z', 'twitter');
\echo :LAST_ERROR_SQLSTATE
-- rows that logical replication brings are left out
CREATE TEMP TABLE before AS SELECT count(*) AS runs, sum(next_word) AS words FROM snowflake.backfill;
DELETE FROM snowflake.backfill;
UPDATE snowflake.backfill SET next_word = first_word + 1;
INSERT INTO snowflake.backfill VALUES (1, 1, 2);
DELETE FROM snowflake.backfill_layout;
UPDATE snowflake.backfill_layout SET counter_bits = 3;
RESET session_replication_role;
SELECT count(*) = min(runs) AND sum(next_word) = min(words) AS same FROM snowflake.backfill, before;
SELECT count(*) FROM snowflake.backfill_layout WHERE counter_bits = 3 AND share = 0;
-- layouts that make the same ids, their node number split otherwise, share them
SELECT snowflake_create_generator('leaf', 'leaf'),
	snowflake_create_generator('turned', 'timestamp 41, worker 5, datacenter 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z');
SELECT count(DISTINCT id) FROM (SELECT CASE n % 3 WHEN 0 THEN snowflake_backfill_id('2021-01-01 00:00Z') WHEN 1 THEN
	snowflake_backfill_id('2021-01-01 00:00Z', 'leaf') ELSE snowflake_backfill_id('2021-01-01 00:00Z', 'turned') END AS id
	FROM generate_series(1, 30) AS n) AS s;
SELECT count(*) FROM snowflake.backfill_layout WHERE same_as <> id;

-- what is kept by constraints
\set VERBOSITY sqlstate
INSERT INTO snowflake.backfill VALUES (1, 5, 5);
INSERT INTO snowflake.backfill_layout (same_as, layout, share, epoch, ends_at, last_tick, timestamp_shift, sequence_shift,
	counter_bits, fixed_bits)
SELECT same_as, layout, share, epoch, ends_at, last_tick, timestamp_shift, sequence_shift, counter_bits, fixed_bits
FROM snowflake.backfill_layout;
\set VERBOSITY default

--
-- Rights: the database's owner, and whom he lets
--
SELECT current_database() AS database, current_user AS superuser \gset
CREATE ROLE regress_snowflake_owner;
CREATE ROLE regress_snowflake_user;
ALTER DATABASE :"database" OWNER TO regress_snowflake_owner;
SET ROLE regress_snowflake_user;
SELECT snowflake_backfill_id('2020-01-01Z');
SELECT snowflake_backfill_id('2020-01-01Z', 'js');
RESET ROLE;
SET ROLE regress_snowflake_owner;
SELECT snowflake_backfill_id('2020-01-01Z') > 0 AND snowflake_backfill_id('2024-01-01Z', 'js') > 0 AS made;
SELECT count(*) >= 0 AS readable
FROM snowflake.backfill, snowflake.backfill_layout, snowflake.backfill_share, snowflake.backfill_layout_id_seq;
DELETE FROM snowflake.backfill;
UPDATE snowflake.backfill_layout SET fixed_bits = 0 WHERE false;
SELECT 1 FROM snowflake.backfill_layout FOR UPDATE;
DELETE FROM snowflake.backfill_share;
SELECT snowflake.backfill_id('2020-01-01Z', 'twitter', 0);
SELECT snowflake.take_word(1, 1);
SELECT snowflake.open_backfill('twitter', 0);
SELECT snowflake.acquire_backfill_share('1.0', 1, 1, true);
GRANT EXECUTE ON FUNCTION snowflake_backfill_id(timestamptz) TO regress_snowflake_user;
RESET ROLE;
SET ROLE regress_snowflake_user;
SELECT snowflake_backfill_id('2020-01-01Z') > 0 AS made;
SELECT snowflake_backfill_id('2020-01-01Z', 'js');
RESET ROLE;
SET ROLE regress_snowflake_owner;
REVOKE EXECUTE ON FUNCTION snowflake_backfill_id(timestamptz) FROM regress_snowflake_user;
RESET ROLE;
SET ROLE regress_snowflake_user;
SELECT snowflake_backfill_id('2020-01-01Z');
RESET ROLE;
ALTER DATABASE :"database" OWNER TO :"superuser";
DROP ROLE regress_snowflake_owner, regress_snowflake_user;

DROP VIEW given, out_of_order, read;
DROP TABLE old, call, layout;
DROP FUNCTION share, definition, made, call, mistakes;
DROP EXTENSION snowflake;
