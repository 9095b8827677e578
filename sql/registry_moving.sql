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
	AS 'SELECT CASE WHEN at IS NULL THEN NULL WHEN abs(at - extract(epoch FROM now()) * 1000000) < 3600000000 THEN round((at - extract(epoch FROM now()) * 1000000) / 60000000) * 60 || '' s'' ELSE ''long ago'' END';
	CREATE FUNCTION seconds(at timestamptz) RETURNS text LANGUAGE sql AS 'SELECT seconds(snowflake.microseconds(at))';
	CREATE FUNCTION node(n int, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $x$
		SELECT jsonb_build_object('protocol', 1, 'start', id(n), 'call', greatest((SELECT max(last_call) FROM snowflake.node_number WHERE start = id(n)),
				(SELECT max(granted_by) FROM snowflake.worker_node WHERE start = id(n)), 0) + 1,
			'kind', 'server', 'system_identifier', 7000 + n, 'host_name', 'host' || n, 'port', 5432, 'timeline', 1, 'launched_at', 0,
			'layout', 'timestamp 41, worker 4, sequence 4, tick 1ms, epoch 2020-01-01T00:00:00Z',
			'clock', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'max_ahead', 1001000, 'window', 60000000,
			'first_number', n, 'last_number', n, 'fixed', true) || more
	$x$;
	CREATE FUNCTION answer(answer jsonb) RETURNS text LANGUAGE sql AS $x$
		SELECT concat_ws(' ', answer ->> 'answer', answer ->> 'reason', answer ->> 'node_number',
			'from ' || seconds((answer ->> 'starts_at')::bigint), 'until ' || seconds((answer ->> 'leased_until')::bigint), answer ->> 'sqlstate', answer ->> 'message')
	$x$;
	-- texts with times or with what is drawn
	CREATE FUNCTION said(answer jsonb) RETURNS text LANGUAGE sql AS $x$
		SELECT regexp_replace(regexp_replace(concat_ws(E'\n', concat_ws(' ', answer ->> 'answer', answer ->> 'sqlstate', answer ->> 'message'), answer ->> 'detail', answer ->> 'hint'),
			'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}\+00', 'TIME', 'g'), '\d{17,}', 'IDENTIFIER', 'g')
	$x$;
	CREATE FUNCTION error_of(statement text) RETURNS text LANGUAGE plpgsql AS $x$
	DECLARE
		detail text;
		hint text;
	BEGIN
		EXECUTE statement;
		RETURN 'no error';
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
		RETURN said(jsonb_build_object('answer', 'ERROR', 'sqlstate', SQLSTATE, 'message', SQLERRM, 'detail', detail, 'hint', hint));
	END
	$x$;
	CREATE FUNCTION acquire(n int, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS 'SELECT answer(snowflake.acquire_lease(node(n, more)))';
	CREATE FUNCTION acquire_own(n int, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS 'SELECT answer(snowflake.acquire_own_lease(node(n, more)))';
	CREATE FUNCTION lease(n int, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $x$
		SELECT jsonb_build_object('lease', jsonb_build_object('token', w.token, 'node_number', w.node_number, 'granted_by', w.granted_by, 'incarnation', w.incarnation,
			'generation', w.generation, 'leased_until', snowflake.microseconds(coalesce(w.leased_until, l.leased_until))) || more)
		FROM snowflake.worker_node AS w LEFT JOIN snowflake.node_number AS l USING (token) WHERE w.start = id(n) ORDER BY w.granted_by DESC LIMIT 1 $x$;
	CREATE FUNCTION renew(n int) RETURNS text LANGUAGE sql AS 'SELECT answer(snowflake.renew_lease(node(n) || lease(n)))';
	CREATE FUNCTION release(n int) RETURNS text LANGUAGE sql AS $x$ SELECT answer(snowflake.release_lease(node(n) || lease(n, '{"ids_end_at": 1577836800000000}'))) $x$;
	CREATE FUNCTION start_server(n int) RETURNS jsonb LANGUAGE sql AS $x$
		SELECT snowflake.start_server(node(n)) - '{answer,clock,incarnation,starts_at,protocol}'::text[] $x$;
	CREATE FUNCTION record_uses(n int, used int) RETURNS jsonb LANGUAGE sql AS $x$
		SELECT snowflake.record_uses(jsonb_build_object('incarnation', id(n), 'uses', id(used))) $x$;
	CREATE FUNCTION close_registry(n int) RETURNS text LANGUAGE sql AS $x$ SELECT snowflake.close_registry(jsonb_build_object('protocol', 1, 'incarnation', id(n),
		'layout', 'timestamp 41, worker 4, sequence 4, tick 1ms, epoch 2020-01-01T00:00:00Z'))::text $x$;
	CREATE VIEW number AS SELECT node_number, right(start::text, 1) AS start, CASE WHEN incarnation::text LIKE '00000000-%' THEN right(incarnation::text, 2) WHEN incarnation IS NOT NULL THEN 'new' END AS incarnation,
		seconds(nullif(ended_until, '-infinity')) AS ended_until, seconds(starts_at) AS starts_at, seconds(leased_until) AS leased_until
		FROM snowflake.node_number ORDER BY node_number;
	CREATE VIEW registry AS SELECT CASE WHEN incarnation::text LIKE '00000000-%' THEN right(incarnation::text, 2) ELSE 'new' END AS incarnation, generation,
		seconds(starts_at) AS starts_at, ARRAY(SELECT right(t::text, 2) FROM unnest(taken_over) AS t WHERE t::text LIKE '00000000-%' ORDER BY t) AS taken_over,
		ARRAY(SELECT right(t::text, 2) FROM unnest(told) AS t WHERE t::text LIKE '00000000-%' ORDER BY t) AS told,
		closed_at IS NOT NULL AS closed, right(successor::text, 2) AS successor FROM snowflake.registry;
	CREATE FUNCTION forget() RETURNS void LANGUAGE plpgsql AS $x$
	BEGIN
		ALTER TABLE snowflake.node_number DISABLE TRIGGER refuse_to_delete;
		DELETE FROM snowflake.node_number;
		ALTER TABLE snowflake.node_number ENABLE ALWAYS TRIGGER refuse_to_delete;
		ALTER TABLE snowflake.worker_node DISABLE TRIGGER refuse_to_forget;
		DELETE FROM snowflake.worker_node;
		ALTER TABLE snowflake.worker_node ENABLE ALWAYS TRIGGER refuse_to_forget;
	END
	$x$;
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
SELECT said(snowflake.acquire_lease(node(3, jsonb_build_object('uses', id(33)))));
-- a node that is this server; only both together tell
SELECT said(snowflake.acquire_lease(node(3, jsonb_build_object('system_identifier', (SELECT system_identifier FROM pg_control_system()),
	'launched_at', (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint))));
SELECT acquire(4, jsonb_build_object('system_identifier', (SELECT system_identifier FROM pg_control_system())));
SELECT acquire(5, jsonb_build_object('launched_at', (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint));
-- a root: with a lease of another server it cannot begin to use another registry
SELECT said(record_uses(22, 11)), (record_uses(22, 11) -> 'wait')::bigint BETWEEN 1 AND 10000000 AS waits;
-- nor if the record is not what the node has told the other registry
SELECT record_uses(22, 33) - 'clock' AS answer;
TABLE snowflake.cluster;
-- when they are over it can; its own lease does not count
SELECT release(2), release(3), release(4), release(5);
SELECT start_server(1);
SELECT record_uses(22, 11) ->> 'answer' AS recorded;
SELECT record_uses(22, 22) ->> 'answer' AS again;
SELECT uses, incarnation FROM snowflake.cluster;
SELECT start_server(1);
-- then it grants and renews nothing, to nobody
SELECT said(snowflake.acquire_lease(node(2)));
SELECT acquire_own(1);
SELECT renew(1);
-- unless it has taken that one over
SELECT snowflake.successor();
\set VERBOSITY terse
SELECT snowflake.take_over_lost(id(22)) = id(11) AS same;
\set VERBOSITY default
SELECT start_server(1);
TABLE registry;
UPDATE snowflake.registry SET starts_at = NULL;
SELECT acquire(2, jsonb_build_object('uses', id(22))), acquire_own(1);
SELECT uses, incarnation FROM snowflake.cluster;

-- a restore keeps what the cluster has recorded
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('another', id(22));
TABLE snowflake.cluster;
-- what an apply process brings is left out; what a session brings that restores a dump is not
SELECT pg_replication_origin_create('registry_test') IS NOT NULL AS created, pg_replication_origin_session_setup('registry_test');
INSERT INTO snowflake.node_number (node_number, ended_until) VALUES (99, now());
DELETE FROM snowflake.worker_node;
UPDATE snowflake.registry SET generation = 9;
INSERT INTO snowflake.cluster (uses) VALUES ('own');
SELECT acquire(2);
\echo :LAST_ERROR_SQLSTATE
SELECT close_registry(22);
SELECT pg_replication_origin_session_reset(), pg_replication_origin_drop('registry_test');
SELECT count(*) FROM snowflake.worker_node;
SELECT node_number FROM number WHERE node_number = 99;
SET session_replication_role = replica;
INSERT INTO snowflake.node_number (node_number, ended_until) VALUES (99, '2020-01-01');
TRUNCATE snowflake.cluster;
RESET session_replication_role;
SELECT * FROM number WHERE node_number = 99;

--
-- Moving: A is closed, and B takes it over
--
UPDATE snowflake.registry SET taken_over = ARRAY[id(33)], told = '{}', starts_at = NULL;
SELECT forget();
SELECT acquire(2, '{"max_ahead": 0}'), acquire_own(1);
SELECT snowflake.closed_registry();
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake.close_registry(NULL);
SELECT snowflake.close_registry('{"incarnation": "x"}');
SELECT snowflake.close_registry('{"protocol": 2}');
SELECT close_registry(11);
BEGIN;
SELECT close_registry(22);
SELECT snowflake.closed_registry();
ROLLBACK;
SELECT acquire(2) ~ '^yes 2' AS still_open;
-- not one with another layout
SELECT error_of(format('SELECT snowflake.close_registry(%L)', jsonb_build_object('incarnation', id(22), 'layout', 'timestamp 41, worker 5, sequence 4, tick 1ms, epoch 2020-01-01T00:00:00Z')));
SELECT close_registry(22);
SELECT close_registry(22);
SELECT close_registry(44);
-- it grants, renews and changes nothing
CREATE TABLE closed AS SELECT snowflake.closed_registry() AS closed;
SELECT said(snowflake.acquire_lease(node(3)));
SELECT renew(2);
SELECT release(2);
SELECT acquire_own(1);
SELECT snowflake.limit_leases('1 h');
SELECT snowflake.change_layout('timestamp 41, worker 4, sequence 4, tick 1ms, epoch 2019-01-01T00:00:00Z');
SELECT snowflake.ids_end_before(now(), 'somebody');
SELECT start_server(1);
SELECT closed = snowflake.closed_registry() AS same FROM closed;
SELECT jsonb_pretty(closed || jsonb_build_object('created_at', seconds((closed ->> 'created_at')::bigint), 'ends', (SELECT jsonb_agg(seconds(e::bigint)) FROM jsonb_array_elements(closed -> 'ends') AS e))) AS closed FROM closed;
TABLE registry;

SELECT format('SELECT snowflake.take_over(%L) IS NOT NULL AS done', closed) AS take_over FROM closed \gset
\c registry_b
SELECT acquire(5);
-- a node that uses A is refused until B has taken A over; A's successor is B
SELECT acquire(2, jsonb_build_object('uses', id(11)));
UPDATE snowflake.registry SET incarnation = id(23);
:take_over;
\echo :LAST_ERROR_SQLSTATE
UPDATE snowflake.registry SET incarnation = id(22);
SELECT snowflake.take_over('{"protocol": 1}');
SELECT snowflake.take_over(NULL);
SELECT snowflake.take_over_lost(NULL);
SELECT snowflake.take_over_lost(id(22));
:take_over;
TABLE registry;
TABLE number;
-- twice is as once
CREATE TABLE before AS SELECT n, r FROM snowflake.node_number AS n, snowflake.registry AS r;
:take_over;
SELECT count(*) AS differences FROM ((SELECT n, r FROM snowflake.node_number AS n, snowflake.registry AS r) EXCEPT TABLE before) AS d;
-- leases start after the ends that were taken over; an automatic number that ends later is not free
SELECT acquire(2, jsonb_build_object('uses', id(11), 'start', id(7))), acquire(1, jsonb_build_object('uses', id(33), 'start', id(8)));
SELECT acquire(9, jsonb_build_object('uses', id(11), 'first_number', 2, 'last_number', 3, 'fixed', false));
TABLE number;
-- the log has no leases of the closed one
SELECT node_number FROM snowflake.leases WHERE incarnation <> id(22);

--
-- Going back: B is closed, and A, which B has taken over, is opened again, with a new incarnation
--
SELECT close_registry(11);
SELECT format('SELECT snowflake.take_over(%L) IS NOT NULL AS done', snowflake.closed_registry()) AS take_over_b \gset
-- a closed registry takes over nothing
:take_over;
\c registry_a
:take_over_b;
TABLE registry;
SELECT incarnation = (SELECT incarnation FROM snowflake.registry) AS same FROM snowflake.take_over((SELECT closed FROM closed)) AS incarnation;
:take_over_b;
SELECT cardinality(taken_over) AS once FROM snowflake.registry;
TABLE number;
-- nodes that use B, or used A before, come back; no lease from before is renewed
SELECT acquire(5, jsonb_build_object('uses', id(22), 'start', id(9))), acquire(6, jsonb_build_object('uses', id(11)));
SELECT renew(2);
-- what B said is no way to open A again when it is closed once more
UPDATE snowflake.registry SET incarnation = id(44);
SELECT close_registry(55);
:take_over_b;
-- another one that is lost does not open it
SELECT snowflake.take_over_lost(id(66));
-- the successor is lost: opened again all the same
\set VERBOSITY terse
SELECT snowflake.take_over_lost(id(55)) <> id(44) AS opened;
SELECT snowflake.take_over_lost(id(55)) IS NOT NULL AS again;
TABLE registry;

--
-- A registry that is lost: the leases of this one start when its leases are over, if its limit was not greater
--
UPDATE snowflake.registry SET starts_at = NULL;
SELECT snowflake.take_over_lost(id(67)) IS NOT NULL AS taken, acquire(8, jsonb_build_object('uses', id(67)));
TABLE registry;
UPDATE snowflake.registry SET end_limit = '10 min', starts_at = NULL;
SELECT snowflake.take_over_lost(id(67)) IS NOT NULL AS taken;
SELECT starts_at FROM registry;
UPDATE snowflake.registry SET end_limit = DEFAULT, starts_at = now() + '20 min';
SELECT snowflake.take_over_lost(id(68)) IS NOT NULL AS taken;
SELECT starts_at FROM registry;
-- own tables that are a copy of those of the registry that is used get a new incarnation
UPDATE snowflake.registry SET incarnation = id(69), starts_at = NULL;
UPDATE snowflake.cluster SET uses = 'another', incarnation = id(69);
SELECT acquire(7, jsonb_build_object('uses', id(69)));
SELECT snowflake.take_over_lost(id(69)) <> id(69) AS another;
SELECT incarnation, '69' = ANY (taken_over) AS taken_over, starts_at FROM registry;
SELECT acquire_own(7);
UPDATE snowflake.registry SET starts_at = NULL;
SELECT acquire_own(7);
\set VERBOSITY default

--
-- What failovers of the old registry may have lost: the floor, and the parity of the generation; and its layouts and limit
--
UPDATE snowflake.registry SET incarnation = id(12), taken_over = ARRAY[id(55)], told = '{}', generation = 2, counted_at = now() - interval '1 min', starts_at = NULL, end_limit = '10 min';
UPDATE snowflake.cluster SET greatest_id = 77;
SELECT close_registry(22);
SELECT c -> 'generation' AS generation, seconds((c ->> 'counted_at')::bigint) AS counted_at, c -> 'starts_at' AS starts_at, c -> 'limit' AS "limit", c -> 'greatest_id' AS greatest_id, c ->> 'layout' AS layout
FROM snowflake.closed_registry() AS c;
UPDATE snowflake.registry SET starts_at = now() + interval '8 s', old_limit = '20 min', old_limit_until = now() + '1 h';
SELECT seconds((c ->> 'starts_at')::bigint) AS starts_at, c -> 'limit' AS "limit" FROM snowflake.closed_registry() AS c;
SELECT format('SELECT snowflake.take_over(%L) IS NOT NULL AS done', snowflake.closed_registry()) AS take_over_later \gset
\c registry_b
\set VERBOSITY terse
SELECT snowflake.take_over_lost(id(11)) IS NOT NULL AS opened;
\set VERBOSITY default
UPDATE snowflake.registry SET incarnation = id(22), starts_at = NULL;
CREATE FUNCTION closed(n int, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('protocol', 1, 'incarnation', id(n), 'successor', id(22), 'taken_over', '[]'::jsonb, 'created_at', 0, 'generation', 1, 'counted_at', NULL, 'starts_at', NULL,
		'limit', 10000000, 'layout', NULL, 'greatest_id', -1, 'node_numbers', '[]'::jsonb, 'ends', '[]'::jsonb) || more
$$;
-- not one that says that ids end late: this one would refuse leases until then
SELECT error_of(format('SELECT snowflake.take_over(%L)', closed(66, '{"starts_at": 4102444800000000}')));
SELECT error_of(format('SELECT snowflake.take_over(%L)', closed(66, '{"created_at": 4102444800000000}')));
SELECT error_of(format('SELECT snowflake.take_over(%L)', closed(66, '{"counted_at": 4102444800000000}')));
-- nor one of another layout
SELECT error_of(format('SELECT snowflake.take_over(%L)', closed(66, '{"layout": "timestamp 41, worker 5, sequence 4, tick 1ms, epoch 2020-01-01T00:00:00Z"}')));
SELECT error_of(format('SELECT snowflake.take_over(%L)', closed(66, '{"layout": "twitter"}')));
-- nor one that lacks a key, not even one that can be null
SELECT error_of(format('SELECT snowflake.take_over(%L)', closed(66) - key)) FROM unnest('{starts_at,counted_at,layout,limit}'::text[]) AS key;
TABLE registry;
-- the generation here is 1: one is counted, once, and leases of before are not renewed
SELECT generation, acquire(7) FROM snowflake.registry;
:take_over_later;
SELECT generation, seconds(counted_at) AS counted_at, end_limit FROM snowflake.registry;
SELECT greatest_id FROM snowflake.cluster;
:take_over_later;
SELECT generation FROM snowflake.registry;
-- it is a plain promotion, within the longest window after the count of the closed one: leases wait for that
SELECT starts_at FROM registry;
SELECT renew(7);
UPDATE snowflake.registry SET starts_at = now() - interval '1 min', counted_at = now() - interval '1 min';
SELECT renew(7);
SELECT acquire(8, jsonb_build_object('uses', id(55)));
-- one that was taken over as lost, and then says what it knows: its floor and those that it had taken over count
\set VERBOSITY terse
SELECT snowflake.take_over_lost(id(78)) = id(22) AS lost;
\set VERBOSITY default
UPDATE snowflake.registry SET starts_at = now() + '1 min';
SELECT snowflake.microseconds(now() + '2 min') AS floor \gset
SELECT snowflake.take_over(closed(78, jsonb_build_object('taken_over', jsonb_build_array(id(79)), 'generation', 4, 'starts_at', :floor))) = id(22) AS found;
SELECT snowflake.microseconds(starts_at) = :floor AS floor, id(78) = ANY (taken_over) AND id(79) = ANY (taken_over) AS taken_over FROM snowflake.registry;
-- generations of one parity: none is counted
SELECT generation FROM snowflake.registry;
-- also one that was taken over as lost gives its parity, when it says what it knows; once
\set VERBOSITY terse
SELECT snowflake.take_over_lost(id(81)) = id(22) AS lost;
\set VERBOSITY default
SELECT snowflake.take_over(closed(81, '{"generation": 5}')) = id(22) AS done;
SELECT generation, array_position(told, id(81)) = cardinality(told) AS told FROM snowflake.registry;
SELECT snowflake.take_over(closed(81, '{"generation": 5}')) = id(22) AS done;
SELECT generation, array_position(told, id(81)) = cardinality(told) AS told FROM snowflake.registry;
-- and its floor, once: the owner may have lowered it since
UPDATE snowflake.registry SET starts_at = NULL;
SELECT closed(82, jsonb_build_object('created_at', snowflake.microseconds(now() + '8 min'), 'generation', 5, 'counted_at', snowflake.microseconds(now() + '7 min'), 'starts_at', snowflake.microseconds(now() + '9 min'))) AS closed \gset
SELECT snowflake.take_over(:'closed') = id(22) AS done;
SELECT created_at > now() AS created, counted_at > now() AS counted, starts_at > now() AS starts FROM snowflake.registry;
SELECT snowflake.ids_end_before(now());
SELECT created_at > now() AS created, counted_at > now() AS counted, starts_at > now() AS starts FROM snowflake.registry;
SELECT snowflake.take_over(:'closed') = id(22) AS done;
SELECT created_at > now() AS created, counted_at > now() AS counted, starts_at > now() AS starts FROM snowflake.registry;
-- the greater limit, and the greater id of other layouts, of either
SELECT snowflake.take_over(closed(83, '{"generation": 3, "limit": 3600000000, "greatest_id": 5}')) = id(22) AS done;
SELECT end_limit, greatest_id FROM snowflake.registry, snowflake.cluster;
-- ends that are here keep the later one
SELECT snowflake.take_over(closed(88, jsonb_build_object('generation', 3, 'node_numbers', jsonb_agg(n.node_number), 'ends', jsonb_agg(snowflake.microseconds(n.ended_until + CASE n.node_number WHEN 2 THEN '10 min' ELSE '-10 s' END::interval))))) = id(22) AS done
FROM snowflake.node_number AS n WHERE n.node_number IN (2, 1);
SELECT * FROM number WHERE node_number IN (1, 2);
-- one without a layout takes that of the closed one
\c :home
CREATE DATABASE registry_e;
\c registry_e
\i test/elsewhere.sql
:helpers
UPDATE snowflake.registry SET incarnation = id(22);
:take_over_later;
SELECT * FROM snowflake.cluster;
SELECT acquire(1, jsonb_build_object('uses', id(11), 'layout', 'timestamp 41, worker 5, sequence 4, tick 1ms, epoch 2020-01-01T00:00:00Z'));

--
-- What else the owner says
--
\c registry_b
UPDATE snowflake.registry SET created_at = '2050-01-01', counted_at = '2050-01-02', starts_at = '2050-01-03';
SELECT acquire(9);
SELECT snowflake.ids_end_before('infinity');
SELECT snowflake.ids_end_before(NULL);
SELECT snowflake.ids_end_before(now() - interval '1 min');
SELECT acquire(9) ~ '^yes 9 from 0 s' AS granted;
SELECT snowflake.ids_end_before('2060-01-01');
SELECT created_at < now() AS created, counted_at < now() AS counted, starts_at < now() AS starts FROM snowflake.registry;
UPDATE snowflake.registry SET counted_at = NULL, starts_at = NULL;
SELECT snowflake.ids_end_before('2020-01-01');
SELECT extract(year FROM created_at) AS created_at, counted_at, starts_at FROM snowflake.registry;
-- leases stay above the ids of another layout, which the clock may have put far ahead, too: it says so
BEGIN;
UPDATE snowflake.cluster SET greatest_id = snowflake.greatest_id('2050-01-01Z', snowflake.layout_of(layout));
UPDATE snowflake.registry SET starts_at = '2051-01-01Z';
SELECT snowflake.ids_end_before('2050-01-01 00:00:00.000001Z');
SELECT snowflake.time_text(starts_at) FROM snowflake.registry;
SELECT snowflake.ids_end_before('2020-01-01');
SELECT snowflake.time_text(starts_at) FROM snowflake.registry;
ROLLBACK;

--
-- Copies of the database
--
\c :home
CREATE DATABASE registry_c TEMPLATE registry_b;
\c registry_c
SELECT incarnation FROM snowflake.registry;
SELECT acquire(10) ~ '^yes 10' AS granted;
SELECT incarnation <> id(22) AS another, now() - created_at < '1 min' AS new FROM snowflake.registry;
SELECT close_registry(12);
-- a copy of a closed one is closed
\c :home
CREATE DATABASE registry_d TEMPLATE registry_c;
\c registry_d
SELECT acquire(10);

\c :home
DROP DATABASE registry_a;
DROP DATABASE registry_b;
DROP DATABASE registry_c;
DROP DATABASE registry_d;
DROP DATABASE registry_e;
