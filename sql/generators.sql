-- Named generators: layouts with a name, each with ids of its own.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
RESET client_min_messages;
SET timezone = 'UTC';
\d snowflake.generator

SELECT snowflake_create_generator('web', 'js53');
SELECT snowflake_create_generator('mobile', 'js53');
SELECT snowflake_create_generator('same as the server''s', 'twitter');
SELECT snowflake_create_generator('tiny', ' Timestamp 40 , worker 3, sequence 8, tick 10 ms, epoch 2024-01-01T00:00:00+02:00');
SELECT * FROM snowflake.generator ORDER BY name COLLATE "C";

-- ids of their layouts; those of one layout share a word, so they increase over generators
SELECT p.worker_id, p.datacenter_id, p."timestamp" BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() + interval '1 s' AS fresh,
	id < 1::bigint << 53 AS js_safe
FROM snowflake_nextval('web') AS id, snowflake_parse(id, 'js53') AS p;
SELECT snowflake_nextval('web') < snowflake_nextval('mobile') AS increasing;
SELECT snowflake_nextval() < snowflake_nextval('same as the server''s') AS increasing;
SELECT p.worker_id, p."timestamp" > now() - interval '1 min' AS fresh
FROM snowflake_parse(snowflake_nextval('tiny'), (SELECT layout FROM snowflake.generator WHERE name = 'tiny')) AS p;
SELECT count(*), count(DISTINCT id), max(id) < 1::bigint << 53 AS js_safe FROM snowflake_nextval_batch(500, 'web') AS id;
SELECT bool_and(id > before) AS increasing
FROM (SELECT id, lag(id) OVER (ORDER BY nr) AS before FROM snowflake_nextval_batch(300, 'mobile') WITH ORDINALITY AS b (id, nr)) AS s;
SELECT layout, array(SELECT unnest(generators) COLLATE "C" ORDER BY 1) AS generators, state, node_number, ids_issued > 0 AS drawn
FROM pg_stat_snowflake ORDER BY layout;

-- a name that differs from call to call, NULL, none, a batch too large for the layout
SELECT count(DISTINCT id) FROM (SELECT snowflake_nextval(CASE n % 3 WHEN 0 THEN 'web' WHEN 1 THEN 'tiny' ELSE 'mobile' END) AS id
	FROM generate_series(1, 300) AS n) AS s;
SELECT snowflake_nextval(NULL), (SELECT count(*) FROM snowflake_nextval_batch(NULL, 'web')), (SELECT count(*) FROM snowflake_nextval_batch(5, NULL));
SELECT snowflake_nextval('none');
SELECT snowflake_nextval('');
SELECT * FROM snowflake_nextval_batch(3, 'WEB');
SELECT snowflake_nextval_batch(0, 'web');
SELECT snowflake_nextval_batch(1000000, 'tiny');

-- a column's default, a prepared statement, PL/pgSQL, a parallel plan
CREATE TABLE visits (id bigint PRIMARY KEY DEFAULT snowflake_nextval('web'), page text);
INSERT INTO visits (page) SELECT 'a' FROM generate_series(1, 500) RETURNING NULL \g /dev/null
PREPARE draw(text) AS SELECT snowflake_nextval($1) > 0 AS drawn;
EXECUTE draw('web');
EXECUTE draw('none');
DO $$ BEGIN FOR i IN 1 .. 100 LOOP INSERT INTO visits (page) VALUES ('b'); END LOOP; END $$;
SELECT page, count(*), max(id) < 1::bigint << 53 AS js_safe FROM visits GROUP BY page ORDER BY page;
CREATE TABLE many AS SELECT generate_series(1, 20000) AS n;
ANALYZE many;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS OFF) SELECT snowflake_nextval('web') FROM many;
SELECT count(DISTINCT id), min(id) > (SELECT max(id) FROM visits) AS increasing FROM (SELECT snowflake_nextval('web') AS id FROM many) AS s;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;

-- bad names and layouts
SELECT snowflake_create_generator('', 'js53');
SELECT snowflake_create_generator(repeat('n', 64), 'js53');
SELECT snowflake_create_generator('web', 'twitter');
SELECT snowflake_create_generator(NULL, 'js53'), snowflake_create_generator('x', NULL);
SELECT snowflake_create_generator('x', 'tweeter');
SELECT snowflake_create_generator('x', 'mastodon');
SELECT snowflake_create_generator('x', 'timestamp 40, worker 3, sequence 8, tick 2s');
-- (its detail has the clock)
\set VERBOSITY terse
SELECT snowflake_create_generator('x', 'twitter, epoch 2091-01-01T00:00:00Z');
\set VERBOSITY default
-- this server's number is fixed, to 1
SELECT snowflake_create_generator('x', 'timestamp 40, worker 1, sequence 8');
SELECT snowflake_drop_generator('x');
SELECT snowflake_drop_generator(NULL);
SELECT count(*) FROM snowflake.generator;

-- rolled back
BEGIN;
SELECT snowflake_create_generator('brief', 'js53');
SELECT snowflake_nextval('brief') > 0 AS drawn;
ROLLBACK;
SELECT snowflake_nextval('brief');
BEGIN;
SELECT snowflake_drop_generator('tiny');
SAVEPOINT dropped;
SELECT snowflake_nextval('tiny');
ROLLBACK TO dropped;
SELECT snowflake_create_generator('tiny', 'twitter');
SELECT snowflake_nextval('tiny') < snowflake_nextval() AS the_servers;
ROLLBACK;
SELECT snowflake_nextval('tiny') < snowflake_nextval() / 10 AS its_own;

-- dropped and made again: another layout, or the same word
SELECT snowflake_drop_generator('mobile');
EXECUTE draw('mobile');
SELECT snowflake_drop_generator('web');
INSERT INTO visits (page) VALUES ('c');
SELECT snowflake_create_generator('web', 'js53');
INSERT INTO visits (page) VALUES ('d') RETURNING id > (SELECT max(id) FROM visits) AS increasing;
-- known at a call site, it is looked up again when it has changed
DO $$
DECLARE
	small boolean[];
BEGIN
	FOR i IN 1 .. 4 LOOP
		small := small || (snowflake_nextval('web') < 1::bigint << 53);
		IF i % 2 = 1 THEN
			UPDATE snowflake.generator SET layout = CASE i WHEN 1 THEN 'twitter' ELSE 'js53' END WHERE name = 'web';
		END IF;
	END LOOP;
	RAISE NOTICE '%', small;
	PERFORM snowflake_drop_generator('web');
	FOR i IN 1 .. 2 LOOP
		PERFORM snowflake_nextval('web');
	END LOOP;
END
$$;
-- by hand, as a restored dump does
UPDATE snowflake.generator SET layout = 'twitter' WHERE name = 'web';
SELECT snowflake_nextval('web') BETWEEN snowflake_nextval() - (1 << 30) AND snowflake_nextval() AS the_servers;
UPDATE snowflake.generator SET layout = 'tweeter' WHERE name = 'web';
SELECT snowflake_nextval('web');
UPDATE snowflake.generator SET layout = 'mastodon' WHERE name = 'web';
SELECT snowflake_nextval('web');
TRUNCATE snowflake.generator;
SELECT snowflake_nextval('web');
SELECT snowflake_create_generator('web', 'js53');

-- a name that needs quoting is found in defaults, too
SELECT snowflake_create_generator('it''s a \ name', 'js53');
CREATE TABLE quoted (id bigint DEFAULT snowflake_nextval('it''s a \ name'));
SELECT snowflake_drop_generator('it''s a \ name');
DROP TABLE quoted;

-- rights: anybody draws, the owner of the database creates and drops
CREATE ROLE regress_snowflake_clerk;
CREATE ROLE regress_snowflake_owner;
SET ROLE regress_snowflake_clerk;
SELECT snowflake_nextval('web') > 0 AS drawn, (SELECT count(*) FROM snowflake_nextval_batch(2, 'web')) AS batch;
SELECT * FROM snowflake.generator;
SELECT snowflake_create_generator('mine', 'js53');
SELECT snowflake_drop_generator('web');
INSERT INTO snowflake.generator VALUES ('mine', 'js53');
SELECT snowflake.generator_layout('js53');
RESET ROLE;
SELECT current_user AS superuser \gset
ALTER DATABASE :"DBNAME" OWNER TO regress_snowflake_owner;
SET ROLE regress_snowflake_owner;
SELECT snowflake_create_generator('mine', 'js53');
SELECT snowflake_nextval('mine') > 0 AS drawn;
SELECT snowflake_drop_generator('mine');
INSERT INTO snowflake.generator VALUES ('mine', 'js53');
RESET ROLE;
ALTER DATABASE :"DBNAME" OWNER TO :"superuser";
SELECT snowflake.generator_changed();

DROP TABLE visits, many;
DROP ROLE regress_snowflake_clerk, regress_snowflake_owner;
SELECT snowflake_drop_generator('web');
