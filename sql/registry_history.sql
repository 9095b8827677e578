-- The extension snowflake_registry with a long history, and with many numbers: a call touches as few pages as with
-- none, whichever numbers the history is of.  No setting forbids the planner anything.
SELECT current_database() AS home \gset
CREATE DATABASE registry_history;
\c registry_history
\i test/elsewhere.sql
CREATE EXTENSION snowflake_registry;
\set SHOW_CONTEXT never
UPDATE snowflake.registry SET created_at = '2023-01-01';
-- An autoanalyze that comes while history is inserted sees an empty table, and plans are for that until the next one.
ALTER TABLE snowflake.worker_node SET (autovacuum_enabled = off);
ALTER TABLE snowflake.node_number SET (autovacuum_enabled = off);

-- The log of leases of the numbers first, first + 1, ..., one after the other, each of its own start.
CREATE FUNCTION add_history(num_rows int, first int, num_numbers int, same_start boolean DEFAULT false)
RETURNS void LANGUAGE sql AS $$
	INSERT INTO snowflake.worker_node (token, start, granted_by, kind, system_identifier, host_name, port, role, timeline, incarnation,
		generation, fixed, node_number, layout, launched_at, starts_at, leased_until, closed_at)
	SELECT gen_random_uuid(), CASE WHEN same_start THEN lpad('2', 32, '0')::uuid ELSE gen_random_uuid() END, n,
		'server', number, 'old', 5432, 'a', 1, r.incarnation, 1, false,
		number, 'timestamp 41, worker 20, sequence 2, tick 1ms, epoch 2010-01-01T00:00:00Z', began, began, began + '1 min', began + '1 min'
	FROM snowflake.registry AS r, generate_series(1, num_rows) AS n,
		LATERAL (SELECT first + n % num_numbers, '2024-01-01'::timestamptz + n * interval '2 min') AS lease (number, began)
$$;
-- Numbers that were leased, and are free: the earlier, the greater the number
CREATE FUNCTION add_numbers(first int, last int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO snowflake.node_number (node_number, ended_until) SELECT n, '2024-12-01'::timestamptz - n * interval '1 min' FROM generate_series(first, last) AS n
$$;
-- Numbers that are leased
CREATE FUNCTION lease_numbers(first int, last int) RETURNS void LANGUAGE sql AS $$
	UPDATE snowflake.node_number AS n SET token = gen_random_uuid(), start = gen_random_uuid(), granted_by = 1, last_call = 1, own = false, fixed = false, role = 'a',
		incarnation = r.incarnation, generation = 1, starts_at = '2025-01-01', leased_until = '2090-01-01', recorded_until = '2090-01-01', renewed_at = '2025-01-01'
	FROM snowflake.registry AS r WHERE n.node_number BETWEEN first AND last
$$;

-- A node's calls, beginning to end: start 1 is the first one here, 2 the next.  Each time is later than the one before, so that what was
-- released then is free.
CREATE SEQUENCE times;
CREATE FUNCTION clock(start int) RETURNS bigint LANGUAGE sql AS $$
	SELECT (extract(epoch FROM '2025-01-01'::timestamptz)::bigint + (10 * last_value + start) * 3600) * 1000000 FROM times
$$;
CREATE FUNCTION node(start int, call int, first int DEFAULT 0, last int DEFAULT 0, fixed boolean DEFAULT false)
RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('protocol', 1, 'start', lpad(start::text, 32, '0')::uuid, 'call', call, 'first_number', first, 'last_number', last,
		'fixed', fixed, 'layout', 'timestamp 41, worker 20, sequence 2, tick 1ms, epoch 2010-01-01T00:00:00Z',
		'clock', clock(start), 'max_ahead', 1001000, 'window', 60000000, 'kind', 'server', 'host_name', 'new', 'port', 5432, 'system_identifier', 1,
		'timeline', 1, 'launched_at', 0)
$$;
CREATE FUNCTION lease(start int) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('lease', jsonb_build_object('token', n.token, 'node_number', n.node_number, 'granted_by', n.granted_by,
		'incarnation', n.incarnation, 'generation', n.generation, 'leased_until', snowflake.microseconds(n.leased_until),
		'ids_end_at', clock($1) + 60000000))
	FROM snowflake.node_number AS n WHERE n.start = lpad($1::text, 32, '0')::uuid AND n.token IS NOT NULL
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
-- Whether each call touches no more pages than that.  First with the plans that the session has, which may
-- be from before the history; then with new ones.
CREATE FUNCTION check_calls(first int, last int, fixed boolean DEFAULT false, most int DEFAULT 300,
	OUT plans text, OUT fits boolean, OUT acquire text, OUT renew text, OUT release text) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
	FOREACH plans IN ARRAY '{kept,new}'::text[] LOOP
		IF plans = 'new' THEN
			DISCARD PLANS;
		END IF;
		PERFORM nextval('times');
		PERFORM snowflake.acquire_lease(node(1, 1, first, last, fixed));	-- into the caches
		PERFORM snowflake.renew_lease(node(1, 2) || lease(1));
		PERFORM snowflake.release_lease(node(1, 3) || lease(1));
		acquire := pages(format('SELECT snowflake.acquire_lease(%L)', node(2, 1, first, last, fixed)));
		SELECT n.node_number BETWEEN first AND last INTO fits FROM snowflake.node_number AS n WHERE n.start = lpad('2', 32, '0')::uuid AND n.token IS NOT NULL;
		renew := pages(format('SELECT snowflake.renew_lease(%L)', node(2, 2) || lease(2)));
		release := pages(format('SELECT snowflake.release_lease(%L)', node(2, 3) || lease(2)));
		SELECT CASE WHEN acquire::int <= most THEN 'few' ELSE acquire || ' pages' END,
			CASE WHEN renew::int <= 100 THEN 'few' ELSE renew || ' pages' END,
			CASE WHEN release::int <= 100 THEN 'few' ELSE release || ' pages' END
		INTO acquire, renew, release;
		DELETE FROM snowflake.worker_node WHERE host_name = 'new';
		RETURN NEXT;
	END LOOP;
END
$$;

-- no history
SELECT * FROM check_calls(0, 1022);
SELECT * FROM check_calls(7, 7, true);

-- that of one number, which is leased again
SELECT add_history(100000, 6, 1);
SELECT * FROM check_calls(6, 6, true);
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(6, 6, true);
SELECT * FROM check_calls(6, 7);
SELECT * FROM check_calls(0, 1022);
SELECT * FROM check_calls(6, 7, true);
-- the newest lease of each start that may still issue
SELECT pages('SELECT * FROM snowflake.nodes') < 150 AS few;
-- that of one start
SELECT add_history(20000, 200, 20, true);
SELECT * FROM check_calls(6, 7);
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(6, 7);

-- thirty thousand numbers that were leased: all free, or most of them; of all, or of some, be they those that were unused longest or not
SELECT add_numbers(0, 29999);
SELECT * FROM check_calls(0, 29999);
ANALYZE snowflake.node_number;
SELECT * FROM check_calls(0, 29999);
SELECT * FROM check_calls(0, 1022);
SELECT * FROM check_calls(0, 31);
SELECT * FROM check_calls(29968, 29999);
SELECT * FROM check_calls(100, 100, true);
SELECT * FROM check_calls(30000, 40000);
SELECT lease_numbers(1, 28000);
SELECT * FROM check_calls(0, 29999);
ANALYZE snowflake.node_number;
SELECT * FROM check_calls(0, 29999);
SELECT * FROM check_calls(100, 28031);
SELECT pages('SELECT * FROM snowflake.nodes') > 0 AS all_of_them;

\c :home
DROP DATABASE registry_history;
