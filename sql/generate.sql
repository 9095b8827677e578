-- Drawing: single ids and batches, in the places that applications draw them.
SET timezone = 'UTC';

-- an id says when it was made, by whom, and comes after the one before
SELECT p.datacenter_id, p.worker_id, p.clock,
	p."timestamp" BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() + interval '1 s' AS fresh
FROM snowflake_parse(snowflake_nextval()) p;
SELECT snowflake_nextval() < snowflake_nextval() AS increasing;
CREATE TABLE drawn (nr serial, id bigint);
INSERT INTO drawn (id) SELECT snowflake_nextval() FROM generate_series(1, 20000);
INSERT INTO drawn (id) SELECT * FROM snowflake_nextval_batch(20000);
INSERT INTO drawn (id) SELECT snowflake_nextval() FROM generate_series(1, 1000);
SELECT count(*), count(DISTINCT id), min(id) > 0 AS positive FROM drawn;
SELECT count(*) AS out_of_order FROM (SELECT id - lag(id) OVER (ORDER BY nr) AS step FROM drawn) s WHERE step <= 0;

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
INSERT INTO orders (customer) VALUES ('a'), ('b') RETURNING id > 0 AS drawn, customer;
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
SELECT snowflake_nextval() > max(id) AS drawn FROM orders;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT snowflake_nextval() > 0 AS drawn FROM generate_series(1, 3);
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

-- by a user who has no more than INSERT on the table
CREATE ROLE regress_snowflake_clerk;
GRANT INSERT (customer), SELECT ON orders TO regress_snowflake_clerk;
SET ROLE regress_snowflake_clerk;
INSERT INTO orders (customer) VALUES ('clerk') RETURNING id > 0 AS drawn;
SELECT snowflake_nextval() > 0 AS drawn;
RESET ROLE;

-- every id is there once, whoever drew it
SELECT count(*) = count(DISTINCT id) AS distinct FROM (SELECT id FROM drawn UNION ALL SELECT id FROM orders) s;

DROP TABLE drawn, orders, many;
DROP ROLE regress_snowflake_clerk;
