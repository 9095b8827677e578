-- The registry with a long history: a call touches as few pages as with none, whichever
-- numbers and layouts the history is of.  A look into the table that reads it all would touch thousands.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS snowflake;
CREATE EXTENSION snowflake;
RESET client_min_messages;
\set SHOW_CONTEXT never
UPDATE snowflake.registry SET created_at = '2023-01-01';

-- Closed leases of the numbers first, first + 1, ..., one after the other, each of its own start.
CREATE FUNCTION add_history(num_rows int, first int, num_numbers int, other_incarnation boolean DEFAULT false,
	layout text DEFAULT 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-01-01T00:00:00Z', same_start boolean DEFAULT false)
RETURNS void LANGUAGE sql AS $$
	INSERT INTO snowflake.worker_node (start, granted_by, last_call, system_identifier, host_name, port, timeline, incarnation,
		node_number, worker_id, layout, launched_at, starts_at, leased_until, renewed_at, closed_at)
	SELECT CASE WHEN same_start THEN lpad('2', 32, '0')::uuid ELSE gen_random_uuid() END, n - num_rows, n - num_rows,
		number, 'old', 5432, 1, CASE WHEN other_incarnation THEN md5(layout)::uuid ELSE r.incarnation END,
		number, number, layout, began, began, began + '1 min', began, began + '1 min'
	FROM snowflake.registry AS r, generate_series(1, num_rows) AS n,
		LATERAL (SELECT first + n % num_numbers, '2024-01-01'::timestamptz + n * interval '2 min') AS lease (number, began)
$$;

-- A node's lease, beginning to end: start 1 is the first one here, 2 the next.
CREATE FUNCTION acquire(start int, first int, last int, fixed boolean, layout text) RETURNS bigint LANGUAGE sql AS $$
	SELECT node_number FROM snowflake.acquire_lease(version => '1.0', start => lpad(start::text, 32, '0')::uuid,
		call => 1, own => false, incarnation => NULL, first_number => first, last_number => last, fixed => fixed,
		layout => layout, layout_set => true, tick => '1 ms', node_clock => '2025-01-01'::timestamptz + start * interval '1 h',
		max_ahead => '1 s', lease_window => '1 min', host_name => 'new', port => 5432, system_identifier => 1, timeline => 1,
		timelines => NULL, launched_at => '2025-01-01', known_until => NULL, known_incarnation => NULL, node_floor => NULL, previous_token => NULL, previous_end => NULL)
$$;
CREATE FUNCTION renew(start int, layout text) RETURNS timestamptz LANGUAGE sql AS $$
	SELECT snowflake.renew_lease('1.0', w.start, 2, w.token, '2025-01-01'::timestamptz + $1 * interval '1 h 10 min', $2,
		'2025-01-01'::timestamptz + $1 * interval '1 h') FROM snowflake.worker_node AS w
	WHERE w.start = lpad($1::text, 32, '0')::uuid AND w.last_call > 0
$$;
CREATE FUNCTION release(start int) RETURNS boolean LANGUAGE sql AS $$
	SELECT snowflake.release_lease('1.0', w.start, 3, w.token, '2025-01-01'::timestamptz + $1 * interval '1 h 1 min')
	FROM snowflake.worker_node AS w WHERE w.start = lpad($1::text, 32, '0')::uuid AND w.last_call > 0
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
CREATE FUNCTION check_calls(first int, last int, fixed boolean DEFAULT false, most int DEFAULT 250,
	layout text DEFAULT 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-01-01T00:00:00Z',
	OUT fits boolean, OUT acquire text, OUT renew text, OUT release text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM acquire(1, first, last, fixed, layout), renew(1, layout), release(1);	-- into the caches
	acquire := pages(format('SELECT acquire(2, %s, %s, %L, %L)', first, last, fixed, layout));
	SELECT node_number BETWEEN first AND last INTO fits FROM snowflake.worker_node WHERE start = lpad('2', 32, '0')::uuid AND last_call > 0;
	renew := pages(format('SELECT renew(2, %L)', layout));
	release := pages('SELECT release(2)');
	SELECT CASE WHEN acquire::int <= most THEN 'few' ELSE acquire || ' pages' END,
		CASE WHEN renew::int <= 100 THEN 'few' ELSE renew || ' pages' END,
		CASE WHEN release::int <= 100 THEN 'few' ELSE release || ' pages' END
	INTO acquire, renew, release;
	DELETE FROM snowflake.worker_node WHERE host_name = 'new';
END
$$;

-- no history
SELECT * FROM check_calls(0, 1022);
SELECT * FROM check_calls(7, 7, true);

-- that of one number, which is leased again
SELECT add_history(100000, 7, 1);
SELECT * FROM check_calls(7, 7, true);
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(7, 7, true);
SELECT * FROM check_calls(7, 7);
SELECT * FROM check_calls(0, 1022);
SELECT * FROM check_calls(6, 7, true);
-- a change of the layout
SELECT * FROM check_calls(8, 8, layout => 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2009-01-01T00:00:00Z');
DELETE FROM snowflake.worker_node;
VACUUM snowflake.worker_node;

-- that of some numbers, all of which were used: each is looked at
SELECT add_history(20000, 100, 20);
SELECT * FROM check_calls(100, 119, most => 1000);
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(100, 119, most => 1000);
SELECT * FROM check_calls(100, 119, true);
-- that of many starts that issued nothing, and that of one start
SELECT add_history(20000, 200, 20, same_start => true);
UPDATE snowflake.worker_node SET leased_until = starts_at WHERE node_number >= 200;
VACUUM snowflake.worker_node;
SELECT * FROM check_calls(7, 7);
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(7, 7);
DELETE FROM snowflake.worker_node;
VACUUM snowflake.worker_node;

-- what dumps brought from other incarnations, and in several layouts
SELECT add_history(20000, 5, 3, true);
SELECT * FROM check_calls(5, 7);
SELECT add_history(20000, 5, 3, true, 'timestamp 41, worker 10, sequence 10, tick 1ms, epoch 2010-01-01T00:00:00Z');
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(5, 7);
SELECT * FROM check_calls(6, 6, true);
SELECT * FROM check_calls(8, 8, layout => 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2009-01-01T00:00:00Z');

DROP FUNCTION add_history, acquire, renew, release, pages, check_calls;
RESET plan_cache_mode;
DROP EXTENSION snowflake;
