-- The registry with a long history: a call touches as few pages as with none, whichever
-- numbers the history is of.  A look into the table that reads it all would touch thousands.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS snowflake;
CREATE EXTENSION snowflake;
RESET client_min_messages;
\set SHOW_CONTEXT never

-- Closed leases of the numbers first, first + 1, ..., one after the other.
CREATE FUNCTION add_history(num_rows int, first int, num_numbers int, other_incarnation boolean DEFAULT false)
RETURNS void LANGUAGE sql AS $$
	INSERT INTO snowflake.worker_node (token, incarnation, node_number, worker_id, host_name, port,
		system_identifier, timeline, layout, launched_at, renewed_at, leased_until, released_at)
	SELECT gen_random_uuid(), CASE WHEN other_incarnation THEN gen_random_uuid() ELSE r.incarnation END,
		number, number, 'host', 5432, number, 1, 'layout A', began, began, began + '1 min', began + '1 min'
	FROM snowflake.registry AS r, generate_series(1, num_rows) AS n,
		LATERAL (SELECT first + n % num_numbers, '2024-01-01'::timestamptz + n * interval '2 min') AS lease (number, began)
$$;

-- A node's lease, beginning to end: token 1 is its first one here, 2 the next.
CREATE FUNCTION acquire(token int, first int, last int, exclusive boolean DEFAULT false, mask int DEFAULT 0)
RETURNS bigint
LANGUAGE sql AS $$
	SELECT node_number FROM snowflake.acquire_lease(version => '1.0', token => lpad(token::text, 32, '0')::uuid,
		incarnation => NULL, layout => 'layout A', datacenter_bits => 0, worker_bits => 10, clock_bits => 0,
		first_number => first, last_number => last, exclusive => exclusive, shared => true,
		node_clock => '2025-01-01'::timestamptz + token * interval '1 h', max_ahead => '1 s', lease_window => '1 min', host_name => 'host',
		port => 5432, system_identifier => 1, timeline => 1, launched_at => '2025-01-01',
		ring_mask => mask)
$$;
CREATE FUNCTION renew(token int) RETURNS timestamptz LANGUAGE sql AS $$
	SELECT snowflake.renew_lease('1.0', lpad(token::text, 32, '0')::uuid,
		'2025-01-01'::timestamptz + token * interval '1 h 10 min')
$$;
CREATE FUNCTION release(token int) RETURNS boolean LANGUAGE sql AS $$
	SELECT snowflake.release_lease('1.0', lpad(token::text, 32, '0')::uuid, '2025-01-01'::timestamptz + token * interval '1 h 1 min')
$$;

-- How many pages a statement touches, with all that it calls.
CREATE FUNCTION pages(statement text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || statement INTO plan;
	RETURN (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::int + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::int;
END
$$;
-- Whether each call touches no more pages than that; a node's calls are planned anew each time.
SET plan_cache_mode = force_custom_plan;
CREATE FUNCTION check_calls(first int, last int, exclusive boolean DEFAULT false, most int DEFAULT 60,
	mask int DEFAULT 0, OUT number bigint, OUT acquire text, OUT renew text, OUT release text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM acquire(1, first, last, exclusive, mask), renew(1), release(1);	-- into the caches
	acquire := pages(format('SELECT acquire(2, %s, %s, %L, %s)', first, last, exclusive, mask));
	SELECT node_number INTO number FROM snowflake.worker_node WHERE token = lpad('2', 32, '0')::uuid;
	renew := pages('SELECT renew(2)');
	release := pages('SELECT release(2)');
	SELECT CASE WHEN acquire::int <= most THEN 'few' ELSE acquire || ' pages' END,
		CASE WHEN renew::int <= most THEN 'few' ELSE renew || ' pages' END,
		CASE WHEN release::int <= most THEN 'few' ELSE release || ' pages' END
	INTO acquire, renew, release;
	DELETE FROM snowflake.worker_node WHERE host_name = 'host' AND launched_at = '2025-01-01';
END
$$;

-- no history
SELECT * FROM check_calls(0, 1022);
SELECT * FROM check_calls(7, 7, true);

-- that of one number, which is leased again: a fixed worker id
SELECT add_history(20000, 7, 1);
SELECT * FROM check_calls(7, 7, true);
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(7, 7, true);
SELECT * FROM check_calls(7, 7);
SELECT * FROM check_calls(0, 1022);
-- a ring of which another number was leased last, and one that was never leased from
SELECT * FROM check_calls(6, 7);
SELECT * FROM check_calls(512, 543);

-- the ring's leases are all older than other rings'
SELECT add_history(20000, 100, 20);
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(7, 7, true);
SELECT * FROM check_calls(0, 31);
-- a ring of which all numbers were used: each is looked at
SELECT * FROM check_calls(100, 119, most => 200);
-- and so are the numbers between them that are not in the ring: here the odd ones
SELECT * FROM check_calls(100, 119, most => 200, mask => 1);

-- what a dump brought from another incarnation
TRUNCATE snowflake.worker_node;
SELECT add_history(20000, 5, 3, true);
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(5, 7);
SELECT * FROM check_calls(6, 6, true);

DROP FUNCTION add_history, acquire, renew, release, pages, check_calls;
RESET plan_cache_mode;
DROP EXTENSION snowflake;
