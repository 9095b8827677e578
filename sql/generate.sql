-- New ids: single ones and batches, in the places where applications get them.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
RESET client_min_messages;
SET timezone = 'UTC';

-- an id tells when and by which server it was made, and is greater than the one before
SELECT p.datacenter_id, p.worker_id, p.clock,
	p."timestamp" BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() + interval '1 s' AS fresh
FROM snowflake_parse(snowflake_nextval()) p;
SELECT snowflake_nextval() < snowflake_nextval() AS increasing;
CREATE TABLE issued (nr serial, id bigint);
INSERT INTO issued (id) SELECT snowflake_nextval() FROM generate_series(1, 20000);
INSERT INTO issued (id) SELECT * FROM snowflake_nextval_batch(20000);
INSERT INTO issued (id) SELECT snowflake_nextval() FROM generate_series(1, 1000);
SELECT count(*), count(DISTINCT id), min(id) > 0 AS positive FROM issued;
SELECT count(*) AS out_of_order FROM (SELECT id - lag(id) OVER (ORDER BY nr) AS step FROM issued) s WHERE step <= 0;

-- batches
SELECT count(*), count(DISTINCT id) FROM snowflake_nextval_batch(1) id;
SELECT count(*), count(DISTINCT id) FROM snowflake_nextval_batch(100000) id;
SELECT count(*) FROM (SELECT snowflake_nextval_batch(3) FROM generate_series(1, 2)) s;
SELECT count(*) FROM (SELECT * FROM snowflake_nextval_batch(1000000) LIMIT 5) s;
SELECT count(*) FROM snowflake_nextval_batch(NULL);
SELECT snowflake_nextval_batch(0);
SELECT snowflake_nextval_batch(-1);
SELECT snowflake_nextval_batch(1000001);

-- a column's default, by all ways in
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text);
INSERT INTO orders (customer) VALUES ('a'), ('b') RETURNING id > 0 AS issued, customer;
INSERT INTO orders (customer) SELECT 'c' FROM generate_series(1, 100);
COPY orders (customer) FROM stdin;
d
e
\.
PREPARE add_order(text) AS INSERT INTO orders (customer) VALUES ($1);
EXECUTE add_order('f');
EXECUTE add_order('f');
DO $$ BEGIN FOR i IN 1 .. 10 LOOP INSERT INTO orders (customer) VALUES ('g'); END LOOP; END $$;
INSERT INTO orders VALUES (DEFAULT, 'h') ON CONFLICT DO NOTHING;
MERGE INTO orders o USING (VALUES ('i')) v(customer) ON o.customer = v.customer
WHEN NOT MATCHED THEN INSERT (customer) VALUES (v.customer);
SELECT customer, count(DISTINCT id) FROM orders GROUP BY customer ORDER BY customer;

-- in a read-only transaction, a cursor, a rolled-back transaction and parallel workers
BEGIN READ ONLY;
SELECT snowflake_nextval() > max(id) AS issued FROM orders;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT snowflake_nextval() > 0 AS issued FROM generate_series(1, 3);
FETCH 2 FROM c;
COMMIT;
CREATE TABLE many AS SELECT generate_series(1, 20000) AS n;
ANALYZE many;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS OFF) SELECT snowflake_nextval() FROM many;
SELECT count(DISTINCT id) FROM (SELECT snowflake_nextval() AS id FROM many) s;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;

-- layouts in use, by name or definition: each has ids of its own
SELECT p.worker_id, p.datacenter_id, p."timestamp" BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() + interval '1 s' AS fresh,
	id < 1::bigint << 53 AS js_safe
FROM snowflake_nextval('js53') AS id, snowflake_parse(id, 'js53') AS p;
SELECT p.worker_id, p.datacenter_id, p."timestamp" BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() + interval '1 s' AS fresh
FROM snowflake_nextval('timestamp 30, worker 10, sequence 10, tick 1s, epoch 2024-01-01T00:00:00Z') AS id,
	snowflake_parse(id, 'timestamp 30, worker 10, sequence 10, tick 1s, epoch 2024-01-01T00:00:00Z') AS p;
SELECT count(*), count(DISTINCT id), max(id) < 1::bigint << 53 AS js_safe FROM snowflake_nextval_batch(500, 'js53') AS id;
SELECT bool_and(id > before) AS increasing
FROM (SELECT id, lag(id) OVER (ORDER BY nr) AS before FROM snowflake_nextval_batch(300, 'js53') WITH ORDINALITY AS b (id, nr)) AS s;
-- all names of one layout mean the same one, also those of the server's
SELECT snowflake_nextval('js53') < snowflake_nextval(' Timestamp 38 , worker 7, sequence 8, tick 10 ms, epoch 2024-01-01T02:00:00+02:00') AS increasing;
SELECT snowflake_nextval() < snowflake_nextval('twitter') AS increasing, snowflake_nextval('twitter') < snowflake_nextval() AS again;
SELECT max(id) AS last FROM snowflake_nextval_batch(10) AS id \gset
SELECT min(id) > :last AS increasing
FROM snowflake_nextval_batch(10, 'timestamp 41, datacenter 5, worker 5, sequence 12, epoch 2010-11-04T01:42:54.657Z') AS id;
-- the same under another name
SELECT snowflake_nextval() < snowflake_next_id() AS increasing, snowflake_next_id() < snowflake_nextval() AS again,
	snowflake_next_id('js53') < snowflake_nextval('js53') AS js53, snowflake_nextval('twitter') < snowflake_next_id('twitter') AS twitter;
SELECT count(*) FROM (SELECT p.proargtypes, p.prosrc, p.provolatile, p.proparallel, p.proisstrict, p.proacl, p.proargnames
	FROM pg_proc AS p WHERE p.proname IN ('snowflake_nextval', 'snowflake_next_id') GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING count(*) = 2) AS both_names;
-- a layout that differs from call to call, and NULL
SELECT count(DISTINCT id), count(*) FILTER (WHERE id < 1::bigint << 53) AS js_safe
FROM (SELECT snowflake_nextval(CASE n % 3 WHEN 0 THEN 'js53' WHEN 1 THEN 'uidgenerator' ELSE 'twitter' END) AS id
	FROM generate_series(1, 300) AS n) AS s;
SELECT snowflake_nextval(NULL), (SELECT count(*) FROM snowflake_nextval_batch(NULL, 'js53')) AS batch,
	(SELECT count(*) FROM snowflake_nextval_batch(5, NULL)) AS of_null;
-- layouts that are not in use, that are for parsing only, and no layouts at all
\set SHOW_CONTEXT never
SELECT snowflake_nextval('discord');
SELECT snowflake_nextval('js53, epoch 2023-01-01T00:00:00Z');
\set VERBOSITY terse
SELECT * FROM snowflake_nextval_batch(3, 'discord');
\set VERBOSITY default
SELECT snowflake_nextval('mastodon');
SELECT snowflake_nextval('tweeter');
SELECT snowflake_nextval('');
SELECT * FROM snowflake_nextval_batch(3, 'timestamp 41');
\set VERBOSITY sqlstate
SELECT snowflake_nextval('discord');
SELECT * FROM snowflake_nextval_batch(3, 'discord');
SELECT snowflake_nextval('tweeter');
\set VERBOSITY default
SELECT snowflake_nextval_batch(0, 'js53');
SELECT snowflake_nextval_batch(1000000, 'timestamp 30, worker 2, sequence 1, tick 1s, epoch 2025-01-01T00:00:00Z');
-- as many as the hint says; only its first part is issued
SELECT count(*) FROM (SELECT snowflake_nextval_batch(12, 'timestamp 30, worker 2, sequence 1, tick 1s, epoch 2025-01-01T00:00:00Z') LIMIT 1) AS s;
SELECT snowflake_nextval_batch(13, 'timestamp 30, worker 2, sequence 1, tick 1s, epoch 2025-01-01T00:00:00Z');
-- after an error the call site issues ids again
DO $$
DECLARE
	layout text;
	small boolean[];
BEGIN
	FOREACH layout IN ARRAY ARRAY['js53', 'twitter', 'discord', 'js53', 'tweeter', 'twitter'] LOOP
		BEGIN
			small := small || (snowflake_nextval(layout) < 1::bigint << 53);
		EXCEPTION WHEN OTHERS THEN
			small := small || NULL::boolean;
		END;
	END LOOP;
	RAISE NOTICE '%', small;
END
$$;
-- a column's default, a prepared statement, PL/pgSQL, a read-only transaction, a parallel plan
CREATE TABLE visits (id bigint PRIMARY KEY DEFAULT snowflake_nextval('js53'), page text);
INSERT INTO visits (page) SELECT 'a' FROM generate_series(1, 500);
PREPARE issue(text) AS SELECT snowflake_nextval($1) > 0 AS issued;
EXECUTE issue('js53');
\set VERBOSITY terse
EXECUTE issue('discord');
\set VERBOSITY default
DO $$ BEGIN FOR i IN 1 .. 100 LOOP INSERT INTO visits (page) VALUES ('b'); END LOOP; END $$;
SELECT page, count(*), max(id) < 1::bigint << 53 AS js_safe FROM visits GROUP BY page ORDER BY page;
BEGIN READ ONLY;
SELECT snowflake_nextval('js53') > max(id) AS issued FROM visits;
ROLLBACK;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS OFF) SELECT snowflake_nextval('js53') FROM many;
SELECT count(DISTINCT id), min(id) > (SELECT max(id) FROM visits) AS increasing FROM (SELECT snowflake_nextval('js53') AS id FROM many) AS s;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;

-- by a user who has no more than INSERT on the table
CREATE ROLE regress_snowflake_clerk;
GRANT INSERT (customer), SELECT ON orders TO regress_snowflake_clerk;
SET ROLE regress_snowflake_clerk;
INSERT INTO orders (customer) VALUES ('clerk') RETURNING id > 0 AS issued;
SELECT snowflake_nextval() > 0 AS issued, snowflake_nextval('js53') > 0 AS js53, (SELECT count(*) FROM snowflake_nextval_batch(2, 'js53')) AS batch;
RESET ROLE;

-- every id is there once
SELECT count(*) = count(DISTINCT id) AS distinct FROM (SELECT id FROM issued UNION ALL SELECT id FROM orders) s;

DROP TABLE issued, orders, visits, many;
DROP ROLE regress_snowflake_clerk;
