-- The extension snowflake_registry: which registry a cluster uses, and moving from one to another.  Several
-- registries are databases of this server here, each with the extension; which one is "own" is who calls.
SELECT current_database() AS home \gset
CREATE DATABASE registry_a;
CREATE DATABASE registry_b;
\set SHOW_CONTEXT never
-- In each: short calls, times in seconds from now, and its incarnation in a way that does not differ.
CREATE FUNCTION helpers() RETURNS text LANGUAGE sql AS $helpers$ SELECT $$
	CREATE EXTENSION snowflake_registry;
	UPDATE snowflake.registry SET created_at = '2024-01-01';
	CREATE FUNCTION id(n int) RETURNS uuid LANGUAGE sql IMMUTABLE
	AS 'SELECT lpad(n::text, 32, ''0'')::uuid';
	CREATE FUNCTION seconds(at bigint) RETURNS text LANGUAGE sql
	AS 'SELECT CASE WHEN at IS NULL THEN NULL WHEN abs(at - extract(epoch FROM now()) * 1000000) < 3600000000 THEN round((at - extract(epoch FROM now()) * 1000000) / 20000000) * 20 || '' s'' ELSE ''long ago'' END';
	CREATE FUNCTION node(n int, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $x$
		SELECT jsonb_build_object('protocol', 1, 'start', id(n), 'call', (SELECT coalesce(max(last_call), 0) + 1 FROM snowflake.worker_node WHERE start = id(n)),
			'kind', 'server', 'system_identifier', 7000 + n, 'host_name', 'host' || n, 'port', 5432, 'timeline', 1, 'launched_at', 0,
			'layout', '{"definition": "A", "epoch": 1577836800000000, "tick": 1000, "fields": [["timestamp", 41], ["worker", 4], ["sequence", 4]]}'::jsonb,
			'layout_set', true, 'tick', 1000, 'clock', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'max_ahead', 1000000, 'window', 60000000,
			'first_number', n, 'last_number', n, 'fixed', true) || more
	$x$;
	CREATE FUNCTION answer(answer jsonb) RETURNS text LANGUAGE sql AS $x$
		SELECT concat_ws(' ', answer ->> 'answer', answer ->> 'reason', answer ->> 'node_number',
			'from ' || seconds((answer ->> 'starts_at')::bigint), 'until ' || seconds((answer ->> 'leased_until')::bigint))
	$x$;
	CREATE FUNCTION acquire(n int, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS 'SELECT answer(snowflake.acquire_lease(node(n, more)))';
	CREATE FUNCTION acquire_own(n int, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS 'SELECT answer(snowflake.acquire_own_lease(node(n, more)))';
	CREATE FUNCTION renew(n int) RETURNS text LANGUAGE sql AS $x$
		SELECT answer(snowflake.renew_lease(node(n) || jsonb_build_object('lease', jsonb_build_object('token', token, 'granted_by', granted_by))))
		FROM snowflake.worker_node WHERE start = id(n) AND closed_at IS NULL $x$;
	CREATE FUNCTION release(n int) RETURNS text LANGUAGE sql AS $x$
		SELECT answer(snowflake.release_lease(node(n) || jsonb_build_object('lease', jsonb_build_object('token', token, 'granted_by', granted_by, 'ids_end_at', 1577836800000000))))
		FROM snowflake.worker_node WHERE start = id(n) AND closed_at IS NULL $x$;
	CREATE FUNCTION start_server(n int) RETURNS jsonb LANGUAGE sql AS $x$
		SELECT snowflake.start_server(node(n)) - '{answer,clock,incarnation,starts_at,protocol}'::text[] $x$;
	CREATE VIEW lease AS SELECT node_number, right(start::text, 1) AS start, CASE WHEN incarnation::text LIKE '00000000-%' THEN right(incarnation::text, 2) ELSE 'new' END AS incarnation,
		seconds(snowflake.microseconds(starts_at)) AS starts_at, seconds(snowflake.microseconds(leased_until)) AS leased_until, closed_at IS NULL AS open
		FROM snowflake.worker_node ORDER BY node_number, renewed_at;
	CREATE VIEW registry AS SELECT CASE WHEN incarnation::text LIKE '00000000-%' THEN right(incarnation::text, 2) ELSE 'new' END AS incarnation, generation,
		seconds(snowflake.microseconds(starts_at)) AS starts_at, ARRAY(SELECT right(t::text, 2) FROM unnest(taken_over) AS t WHERE t::text LIKE '00000000-%' ORDER BY t) AS taken_over,
		closed_at IS NOT NULL AS closed, right(successor::text, 2) AS successor FROM snowflake.registry;
$$ $helpers$;
SELECT helpers() \gset
DROP FUNCTION helpers;
\c registry_a
\i test/elsewhere.sql
:helpers
UPDATE snowflake.registry SET incarnation = id(11);
\c registry_b
\i test/elsewhere.sql
:helpers
UPDATE snowflake.registry SET incarnation = id(22);

--
-- Which registry a cluster uses
--
\c registry_a
-- nothing yet; then its own tables, which acquire_own_lease() records
SELECT start_server(1);
SELECT acquire_own(1), acquire(2);
SELECT start_server(1);
TABLE snowflake.cluster;
-- a node that has used this registry, or nothing; not one that has used another
SELECT acquire(3, jsonb_build_object('uses', id(11)));
SELECT acquire(3, jsonb_build_object('uses', id(33)));
\echo :LAST_ERROR_SQLSTATE
-- a node that is this server; only both together tell
DO $$
BEGIN
	PERFORM acquire(3, jsonb_build_object('system_identifier', (SELECT system_identifier FROM pg_control_system()),
		'launched_at', (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint));
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE '%: %', SQLSTATE, SQLERRM;
END
$$;
SELECT acquire(4, jsonb_build_object('system_identifier', (SELECT system_identifier FROM pg_control_system())));
-- a root: with a lease of another server it cannot begin to use another registry
DO $$
BEGIN
	PERFORM snowflake.record_uses(node(1) || jsonb_build_object('incarnation', id(22), 'uses', id(11)));
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE '%: %', SQLSTATE, SQLERRM;
END
$$;
-- nor if the record is not what the node has told the other registry
SELECT snowflake.record_uses(node(1) || jsonb_build_object('incarnation', id(22), 'uses', id(33))) - 'clock' AS answer;
TABLE snowflake.cluster;
-- when they are over it can; its own row does not count
SELECT release(2), release(3), release(4);
SELECT start_server(1);
SELECT snowflake.record_uses(node(1) || jsonb_build_object('incarnation', id(22), 'uses', id(11))) ->> 'answer' AS recorded;
SELECT snowflake.record_uses(node(1) || jsonb_build_object('incarnation', id(22), 'uses', id(22))) ->> 'answer' AS again;
SELECT uses, incarnation FROM snowflake.cluster;
SELECT start_server(1);
-- then it grants and renews nothing, to nobody
SELECT acquire(2);
\echo :LAST_ERROR_SQLSTATE
SELECT acquire_own(1);
SELECT renew(1);
-- unless it has taken that one over
\set VERBOSITY terse
SELECT snowflake.take_over(id(22)) = id(11) AS same;
\set VERBOSITY default
SELECT start_server(1);
SELECT acquire(2, jsonb_build_object('uses', id(22))), acquire_own(1);
TABLE snowflake.cluster;

-- a restore keeps what the cluster has recorded
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('another', id(22));
TABLE snowflake.cluster;
-- rows are history
TRUNCATE snowflake.worker_node;
\echo :LAST_ERROR_SQLSTATE
TRUNCATE snowflake.registry, snowflake.cluster;
-- what an apply process brings is left out; what a session brings that restores a dump is not
SELECT pg_replication_origin_create('registry_test') IS NOT NULL AS created, pg_replication_origin_session_setup('registry_test');
DELETE FROM snowflake.worker_node;
UPDATE snowflake.registry SET generation = 9;
INSERT INTO snowflake.cluster (uses) VALUES ('own');
SELECT acquire(2);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake.close_registry(id(22));
SELECT pg_replication_origin_session_reset(), pg_replication_origin_drop('registry_test');
SET session_replication_role = replica;
BEGIN;
DELETE FROM snowflake.worker_node WHERE node_number = 1;
TRUNCATE snowflake.cluster;
ROLLBACK;
RESET session_replication_role;

--
-- Moving: A is closed, and B takes it over
--
UPDATE snowflake.registry SET taken_over = ARRAY[id(33)], starts_at = NULL;
DELETE FROM snowflake.worker_node;
SELECT acquire(2, '{"max_ahead": 0}'), acquire_own(1);
SELECT snowflake.closed_registry();
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake.close_registry(NULL);
SELECT snowflake.close_registry(id(11));
BEGIN;
SELECT snowflake.close_registry(id(22));
SELECT snowflake.closed_registry();
ROLLBACK;
SELECT acquire(2) ~ '^yes 2' AS still_open;
SELECT snowflake.close_registry(id(22));
SELECT snowflake.close_registry(id(22));
SELECT snowflake.close_registry(id(44));
-- it grants, renews and changes nothing
CREATE TABLE closed AS SELECT snowflake.closed_registry() AS closed;
SELECT acquire(3);
\echo :LAST_ERROR_SQLSTATE
SELECT renew(2);
SELECT release(2);
SELECT acquire_own(1);
SELECT snowflake.ids_end_before(now());
SELECT start_server(1);
SELECT closed = snowflake.closed_registry() AS same FROM closed;
SELECT jsonb_pretty(jsonb_set(closed - '{rows,created_at,floor}'::text[], '{rows}', to_jsonb(ARRAY(SELECT format('%s of %s', r ->> 'node_number', r ->> 'start') FROM jsonb_array_elements(closed -> 'rows') AS r)))) AS closed FROM closed;
TABLE registry;

SELECT format('SELECT snowflake.take_over(%L::jsonb) IS NOT NULL AS done', closed) AS take_over FROM closed \gset
\c registry_b
SELECT acquire(5);
-- a node that uses A is refused until B has taken A over; A's successor is B
SELECT acquire(2, jsonb_build_object('uses', id(11)));
UPDATE snowflake.registry SET incarnation = id(23);
:take_over;
\echo :LAST_ERROR_SQLSTATE
UPDATE snowflake.registry SET incarnation = id(22);
SELECT snowflake.take_over('{"protocol": 1}'::jsonb);
SELECT snowflake.take_over(NULL::jsonb);
SELECT snowflake.take_over(NULL::uuid);
SELECT snowflake.take_over(id(22));
:take_over;
TABLE registry;
TABLE lease;
-- twice is as once
CREATE TABLE before AS SELECT w.*, r.starts_at AS floor, r.taken_over FROM snowflake.worker_node AS w, snowflake.registry AS r;
:take_over;
SELECT count(*) AS differences FROM ((SELECT w.*, r.starts_at AS floor, r.taken_over FROM snowflake.worker_node AS w, snowflake.registry AS r) EXCEPT TABLE before) AS d;
-- leases start after the ends that were taken over; an automatic number that ends later is not free
SELECT acquire(2, jsonb_build_object('uses', id(11), 'start', id(7))), acquire(1, jsonb_build_object('uses', id(33), 'start', id(8)));
TABLE lease;

--
-- Going back: B is closed, and A, which B has taken over, is opened again, with a new incarnation
--
SELECT snowflake.close_registry(id(11));
SELECT format('SELECT snowflake.take_over(%L::jsonb) IS NOT NULL AS done', snowflake.closed_registry()) AS take_over_b \gset
-- a closed registry takes over nothing
:take_over;
\c registry_a
:take_over_b;
TABLE registry;
SELECT incarnation = (SELECT incarnation FROM snowflake.registry) AS same FROM snowflake.take_over((SELECT closed FROM closed)) AS incarnation;
:take_over_b;
SELECT cardinality(taken_over) AS once FROM snowflake.registry;
TABLE lease;
-- nodes that use B, or used A before, come back; no lease from before is renewed
SELECT acquire(5, jsonb_build_object('uses', id(22), 'start', id(9))), acquire(6, jsonb_build_object('uses', id(11)));
SELECT renew(2);
-- what B said is no way to open A again when it is closed once more
UPDATE snowflake.registry SET incarnation = id(44);
SELECT snowflake.close_registry(id(55));
:take_over_b;
-- another one that is lost does not open it
SELECT snowflake.take_over(id(66));
-- the successor is lost: opened again all the same
\set VERBOSITY terse
SELECT snowflake.take_over(id(55)) <> id(44) AS opened;
SELECT snowflake.take_over(id(55)) IS NOT NULL AS again;
\set VERBOSITY default
TABLE registry;

--
-- What failovers of the old registry may have lost: the floor, and the parity of the generation
--
UPDATE snowflake.registry SET generation = 2, counted_at = now() - interval '1 min', starts_at = NULL;
SELECT snowflake.close_registry(id(22));
SELECT snowflake.closed_registry() -> 'generation' AS generation, seconds((snowflake.closed_registry() ->> 'floor')::bigint) AS floor;
SELECT format('SELECT snowflake.take_over(%L::jsonb) IS NOT NULL AS done', snowflake.closed_registry()) AS take_over \gset
UPDATE snowflake.registry SET starts_at = now() + interval '8 s';
SELECT seconds((snowflake.closed_registry() ->> 'floor')::bigint) AS floor;
SELECT format('SELECT snowflake.take_over(%L::jsonb) IS NOT NULL AS done', snowflake.closed_registry()) AS take_over_later \gset
\c registry_b
\set VERBOSITY terse
SELECT snowflake.take_over(id(11)) IS NOT NULL AS opened;
\set VERBOSITY default
UPDATE snowflake.registry SET incarnation = id(22);
DO $$
BEGIN
	PERFORM snowflake.take_over('{"protocol": 1, "incarnation": "00000000-0000-0000-0000-000000000066", "successor": "00000000-0000-0000-0000-000000000022", "taken_over": [], "rows": [], "created_at": 0, "generation": 1, "floor": 4102444800000000}'::jsonb);
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE '%: %', SQLSTATE, SQLERRM;
END
$$;
DO $$
BEGIN
	PERFORM snowflake.take_over('{"protocol": 1, "incarnation": "00000000-0000-0000-0000-000000000066", "successor": "00000000-0000-0000-0000-000000000022", "taken_over": [], "rows": [], "created_at": 4102444800000000, "generation": 1, "floor": 0}'::jsonb);
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE '%: %', SQLSTATE, SQLERRM;
END
$$;
-- the generation here is 1: one is counted, once, and leases of before are not renewed
SELECT generation, acquire(7) FROM snowflake.registry;
:take_over_later;
SELECT generation, seconds(snowflake.microseconds(counted_at)) AS counted_at FROM snowflake.registry;
:take_over_later;
SELECT generation FROM snowflake.registry;
SELECT renew(7);
TABLE registry;
SELECT starts_at > now() + interval '3 s' AS floor FROM snowflake.registry;
SELECT acquire(8, jsonb_build_object('uses', id(55)));
-- one that was taken over as lost, and then says what it knows: its floor and those that it had taken over count
\set VERBOSITY terse
SELECT snowflake.take_over(id(78)) = id(22) AS lost;
\set VERBOSITY default
SELECT snowflake.microseconds(starts_at + '1 s') AS floor FROM snowflake.registry \gset
SELECT snowflake.take_over(jsonb_build_object('protocol', 1, 'incarnation', id(78), 'successor', id(22), 'taken_over', jsonb_build_array(id(79)), 'rows', '[]'::jsonb,
	'created_at', 0, 'generation', 4, 'floor', :floor)) = id(22) AS found;
SELECT snowflake.microseconds(starts_at) = :floor AS floor, id(78) = ANY (taken_over) AND id(79) = ANY (taken_over) AS taken_over FROM snowflake.registry;
-- generations of one parity: none is counted
SELECT generation FROM snowflake.registry;
-- also one that was taken over as lost gives its parity, when it says what it knows; once
\set VERBOSITY terse
SELECT snowflake.take_over(id(81)) = id(22) AS lost;
\set VERBOSITY default
SELECT jsonb_build_object('protocol', 1, 'incarnation', id(81), 'successor', id(22), 'taken_over', '[]'::jsonb, 'rows', '[]'::jsonb,
	'created_at', 0, 'generation', 5, 'floor', 0) AS closed \gset
SELECT snowflake.take_over(:'closed'::jsonb) = id(22) AS done;
SELECT generation, array_position(told, id(81)) = cardinality(told) AS told FROM snowflake.registry;
SELECT snowflake.take_over(:'closed'::jsonb) = id(22) AS done;
SELECT generation, array_position(told, id(81)) = cardinality(told) AS told FROM snowflake.registry;
-- and its floor, once: the owner may have lowered it since
SELECT jsonb_build_object('protocol', 1, 'incarnation', id(82), 'successor', id(22), 'taken_over', '[]'::jsonb, 'rows', '[]'::jsonb,
	'created_at', snowflake.microseconds(now() + '8 s'), 'generation', 5, 'floor', snowflake.microseconds(now() + '9 s')) AS closed \gset
SELECT snowflake.take_over(:'closed'::jsonb) = id(22) AS done;
SELECT snowflake.ids_end_before(now()), created_at > now() AS created, starts_at > now() AS starts FROM snowflake.registry;
SELECT snowflake.take_over(:'closed'::jsonb) = id(22) AS done;
SELECT created_at > now() AS created, starts_at > now() AS starts FROM snowflake.registry;
-- rows that are here keep the later end
SELECT jsonb_build_object('protocol', 1, 'incarnation', id(88), 'successor', id(22), 'taken_over', '[]'::jsonb, 'created_at', 0, 'generation', 2, 'rows',
	jsonb_agg(to_jsonb(w) || jsonb_build_object('launched_at', 0, 'starts_at', 0, 'renewed_at', 0, 'closed_at', 0, 'leased_until', snowflake.microseconds(w.leased_until + CASE WHEN w.node_number = 2 THEN '10 min' ELSE '-10 s' END::interval)))) AS closed
FROM snowflake.worker_node AS w WHERE w.node_number IN (2, 5) \gset
SELECT snowflake.take_over(:'closed'::jsonb) = id(22) AS done;
SELECT * FROM lease WHERE node_number IN (2, 5);

--
-- What else the owner says
--
UPDATE snowflake.registry SET created_at = '2050-01-01', counted_at = '2050-01-02', starts_at = '2050-01-03';
\set VERBOSITY terse
SELECT acquire(9);
\set VERBOSITY default
SELECT snowflake.ids_end_before('infinity');
SELECT snowflake.ids_end_before(NULL);
SELECT snowflake.ids_end_before(now() - interval '1 min');
SELECT acquire(9) ~ '^yes 9 from 0 s' AS granted;
SELECT snowflake.ids_end_before('2060-01-01'), created_at < now() AS created, counted_at < now() AS counted, starts_at < now() AS starts FROM snowflake.registry;
UPDATE snowflake.registry SET counted_at = NULL, starts_at = NULL;
SELECT snowflake.ids_end_before('2020-01-01');
SELECT extract(year FROM created_at) AS created_at, counted_at, starts_at FROM snowflake.registry;

--
-- Copies of the database
--
\c :home
CREATE DATABASE registry_c TEMPLATE registry_b;
\c registry_c
SELECT incarnation FROM snowflake.registry;
SELECT snowflake.list_leases('{"protocol": 1}') -> 'incarnation' AS no_registry_yet;
SELECT acquire(10) ~ '^yes 10' AS granted;
SELECT incarnation <> id(22) AS another, now() - created_at < '1 min' AS new FROM snowflake.registry;
SELECT snowflake.list_leases('{"protocol": 1}') -> 'incarnation' = to_jsonb(incarnation) AS same FROM snowflake.registry;
SELECT snowflake.close_registry(id(12));
\c :home
CREATE DATABASE registry_d TEMPLATE registry_c;
\c registry_d
\set VERBOSITY terse
SELECT acquire(10);

\c :home
DROP DATABASE registry_a;
DROP DATABASE registry_b;
DROP DATABASE registry_c;
DROP DATABASE registry_d;
