-- The extension snowflake_registry with a long history: a call touches as few pages as with none,
-- whichever numbers and layouts the history is of.  No setting forbids the planner anything.
SELECT current_database() AS home \gset
CREATE DATABASE registry_history;
\c registry_history
\i test/elsewhere.sql
CREATE EXTENSION snowflake_registry;
\set SHOW_CONTEXT never
UPDATE snowflake.registry SET created_at = '2023-01-01';
-- An autoanalyze that comes while history is inserted sees an empty table, and plans are for that until the next one.
ALTER TABLE snowflake.worker_node SET (autovacuum_enabled = off);

-- Closed leases of the numbers first, first + 1, ..., one after the other, each of its own start.
CREATE FUNCTION add_history(num_rows int, first int, num_numbers int, other_incarnation boolean DEFAULT false,
	epoch int DEFAULT 2010, same_start boolean DEFAULT false)
RETURNS void LANGUAGE sql AS $$
	INSERT INTO snowflake.worker_node (token, start, granted_by, last_call, kind, system_identifier, host_name, port, timeline, incarnation,
		generation, fixed, node_number, worker_id, layout, greatest_id, launched_at, starts_at, leased_until, renewed_at, closed_at)
	SELECT gen_random_uuid(), CASE WHEN same_start THEN lpad('2', 32, '0')::uuid ELSE gen_random_uuid() END, n - num_rows, n - num_rows,
		'server', number, 'old', 5432, 1, CASE WHEN other_incarnation THEN md5(epoch::text)::uuid ELSE r.incarnation END, 1, false,
		number, number, 'epoch ' || epoch, n, began, began, began + '1 min', began, began + '1 min'
	FROM snowflake.registry AS r, generate_series(1, num_rows) AS n,
		LATERAL (SELECT first + n % num_numbers, '2024-01-01'::timestamptz + n * interval '2 min') AS lease (number, began)
$$;

-- A node's calls, beginning to end: start 1 is the first one here, 2 the next.
CREATE FUNCTION node(start int, call int, first int DEFAULT 0, last int DEFAULT 0, fixed boolean DEFAULT false, epoch int DEFAULT 2010)
RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('protocol', 1, 'start', lpad(start::text, 32, '0')::uuid, 'call', call, 'first_number', first, 'last_number', last,
		'fixed', fixed, 'layout', jsonb_build_object('definition', 'epoch ' || epoch,
			'epoch', extract(epoch FROM make_timestamptz(epoch, 1, 1, 0, 0, 0, 'UTC'))::bigint * 1000000,
			'tick', 1000, 'fields', '[["timestamp", 41], ["worker", 10], ["sequence", 12]]'::jsonb),
		'layout_set', true, 'tick', 1000, 'clock', (extract(epoch FROM '2025-01-01'::timestamptz) + start * 3600)::bigint * 1000000,
		'max_ahead', 1000000, 'window', 60000000, 'kind', 'server', 'host_name', 'new', 'port', 5432, 'system_identifier', 1,
		'timeline', 1, 'launched_at', 0)
$$;
CREATE FUNCTION lease(start int) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('lease', jsonb_build_object('token', w.token, 'granted_by', w.granted_by,
		'ids_end_at', (extract(epoch FROM '2025-01-01'::timestamptz) + $1 * 3600 + 60)::bigint * 1000000))
	FROM snowflake.worker_node AS w WHERE w.start = lpad($1::text, 32, '0')::uuid AND w.host_name = 'new'
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
CREATE FUNCTION check_calls(first int, last int, fixed boolean DEFAULT false, most int DEFAULT 400, epoch int DEFAULT 2010,
	OUT plans text, OUT fits boolean, OUT acquire text, OUT renew text, OUT release text) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
	FOREACH plans IN ARRAY '{kept,new}'::text[] LOOP
		IF plans = 'new' THEN
			DISCARD PLANS;
		END IF;
		PERFORM snowflake.acquire_lease(node(1, 1, first, last, fixed, epoch));	-- into the caches
		PERFORM snowflake.renew_lease(node(1, 2, epoch => epoch) || lease(1));
		PERFORM snowflake.release_lease(node(1, 3, epoch => epoch) || lease(1));
		acquire := pages(format('SELECT snowflake.acquire_lease(%L)', node(2, 1, first, last, fixed, epoch)));
		SELECT node_number BETWEEN first AND last INTO fits FROM snowflake.worker_node WHERE start = lpad('2', 32, '0')::uuid AND host_name = 'new';
		renew := pages(format('SELECT snowflake.renew_lease(%L)', node(2, 2, epoch => epoch) || lease(2)));
		release := pages(format('SELECT snowflake.release_lease(%L)', node(2, 3, epoch => epoch) || lease(2)));
		SELECT CASE WHEN acquire::int <= most THEN 'few' ELSE acquire || ' pages' END,
			CASE WHEN renew::int <= 150 THEN 'few' ELSE renew || ' pages' END,
			CASE WHEN release::int <= 150 THEN 'few' ELSE release || ' pages' END
		INTO acquire, renew, release;
		DELETE FROM snowflake.worker_node WHERE host_name = 'new';
		UPDATE snowflake.worker_node SET last_call = granted_by WHERE start = lpad('2', 32, '0')::uuid AND last_call > granted_by;
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
-- a change of the layout
SELECT * FROM check_calls(8, 8, true, epoch => 2009);
-- a page of leases; the newest lease of each start that may still issue
SELECT pages($$SELECT snowflake.list_leases('{"protocol": 1, "after": {"node_number": 6, "leased_until": 0}}')$$) < 12000 AS few,
	pages('SELECT * FROM snowflake.nodes') < 150 AS few;
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
SELECT * FROM check_calls(6, 7);
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(6, 7);
DELETE FROM snowflake.worker_node;
VACUUM snowflake.worker_node;

-- what dumps brought from other incarnations, and in several layouts
SELECT add_history(20000, 5, 3, true);
SELECT * FROM check_calls(4, 7);
SELECT add_history(20000, 5, 3, true, 2011);
ANALYZE snowflake.worker_node;
SELECT * FROM check_calls(4, 7, epoch => 2011);
SELECT * FROM check_calls(6, 6, true, epoch => 2011);
SELECT * FROM check_calls(8, 8, true, epoch => 2009);

\c :home
DROP DATABASE registry_history;
