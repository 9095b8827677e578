-- The extension snowflake_registry: the rules of leases, called as a node calls them.  The tables are ours,
-- and nodes' clocks show what we say; the registry's clock shows the time of the test.
SELECT current_database() AS home \gset
CREATE DATABASE registry_rules;
\c registry_rules
\set SHOW_CONTEXT never
-- Servers look for it in the database postgres only.
CREATE EXTENSION snowflake_registry;
\echo :LAST_ERROR_SQLSTATE
\i test/elsewhere.sql
CREATE EXTENSION snowflake_registry;

\d snowflake.node_number
\d snowflake.worker_node
\d snowflake.registry
\d snowflake.cluster
\d snowflake.guard
\d snowflake.nodes
\d snowflake.leases
SELECT incarnation IS NOT NULL AS incarnation, now() - created_at < '1 min' AS created, generation, counted, counted_at, starts_at, end_limit, taken_over, told,
	server = snowflake.this_server() AS server, mark
FROM snowflake.registry;
-- a renewal is HOT: no index has a column that it changes
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'snowflake.node_number'::regclass
	AND pg_get_indexdef(indexrelid) ~ 'leased_until|recorded_until|last_call|renewed_at';
-- tables and views have comments, and the functions that others call; no role but the owner may call one, and nobody else sees the tables
SELECT c.relname FROM pg_class AS c
WHERE c.relnamespace = 'snowflake'::regnamespace AND c.relkind IN ('r', 'v') AND obj_description(c.oid, 'pg_class') IS NULL;
SELECT oid::regprocedure AS function, obj_description(oid, 'pg_proc') AS comment, prosecdef AS as_owner
FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace AND obj_description(oid, 'pg_proc') IS NOT NULL ORDER BY oid::regprocedure::text COLLATE "C";
SELECT count(*) FILTER (WHERE prosecdef OR obj_description(oid, 'pg_proc') IS NOT NULL OR prorettype = 'trigger'::regtype) > 20 AS called_by_others,
	bool_and(proconfig @> '{"search_path=pg_catalog, pg_temp",standard_conforming_strings=on}')
		FILTER (WHERE prosecdef OR obj_description(oid, 'pg_proc') IS NOT NULL OR prorettype = 'trigger'::regtype) AS settings,
	bool_or(proacl IS NULL OR proacl::text ~ '[{,]=') AS public
FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace;
SELECT c.relname, a.grantee::regrole, a.privilege_type FROM pg_class AS c, aclexplode(c.relacl) AS a
WHERE c.relnamespace = 'snowflake'::regnamespace AND a.grantee <> c.relowner ORDER BY c.relname, 2;

-- the n-th start
CREATE FUNCTION id(n int) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT lpad(n::text, 32, '0')::uuid $$;
-- microseconds since 1970, and back
CREATE FUNCTION at(clock text) RETURNS bigint LANGUAGE sql STABLE SET timezone = 'UTC'
AS $$ SELECT extract(epoch FROM CASE WHEN clock LIKE '%-%' THEN clock ELSE '2024-03-01 ' || clock END::timestamptz)::numeric * 1000000 $$;
CREATE FUNCTION shown(at timestamptz) RETURNS text LANGUAGE sql STABLE
AS $$ SELECT replace(rtrim(rtrim(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), '0'), '.'), '2024-03-01 ', '') $$;
-- the clock of the registry, later or earlier, as a node's
CREATE FUNCTION soon(later interval) RETURNS text LANGUAGE sql
AS $$ SELECT to_char((clock_timestamp() + later) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.USZ') $$;
CREATE FUNCTION next_call(n int) RETURNS bigint LANGUAGE sql
AS $$ SELECT greatest((SELECT max(last_call) FROM snowflake.node_number WHERE start = id(n)), (SELECT max(granted_by) FROM snowflake.worker_node WHERE start = id(n)), 0) + 1 $$;
-- the lease that a call of a start was granted, as a later call names it: its end as it is on record
CREATE FUNCTION lease(n int, granted bigint, ids_end text DEFAULT NULL, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql
AS $$ SELECT jsonb_build_object('lease', jsonb_build_object('granted_by', granted, 'ids_end_at', at(ids_end), 'token', coalesce(w.token, id(999)),
	'node_number', coalesce(w.node_number, 12), 'incarnation', coalesce(w.incarnation, id(99)), 'generation', coalesce(w.generation, 1),
	'leased_until', coalesce(snowflake.microseconds(coalesce(w.leased_until, l.leased_until)), at('2024-01-01Z'))) || more)
	FROM (SELECT) AS one LEFT JOIN snowflake.worker_node AS w ON w.start = id(n) AND w.granted_by = granted
		LEFT JOIN snowflake.node_number AS l ON l.token = w.token $$;
-- A node with a 16-number layout: 1 bit is the datacenter's, 2 the worker's, 1 the clock's.
CREATE FUNCTION layout_a() RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT 'timestamp 41, datacenter 1, worker 2, clock 1, sequence 4, tick 1ms, epoch 2020-01-01T00:00:00Z' $$;
CREATE FUNCTION node(n int, clock text, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('protocol', 1, 'start', id(n), 'call', next_call(n), 'lease', NULL,
		'kind', 'server', 'system_identifier', 7000 + n, 'host_name', 'host' || n, 'port', 5432, 'timeline', 1, 'launched_at', at('2024-02-01'),
		'layout', layout_a(), 'clock', at(clock), 'max_ahead', 1001000, 'window', 60000000,
		'first_number', 4, 'last_number', 5, 'fixed', false, 'uses', NULL, 'ids_end_at', NULL, 'starts_at', NULL) || more
$$;
-- In texts of the registry its clock and what follows from it are whole minutes from now.
CREATE FUNCTION masked(said text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	part text;
BEGIN
	FOREACH part IN ARRAY ARRAY(SELECT DISTINCT (regexp_matches(said, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}\+00', 'g'))[1]) LOOP
		IF abs(extract(epoch FROM part::timestamptz - clock_timestamp())) < 86400 THEN
			said := replace(said, part, format('(now + %s min)', round(extract(epoch FROM part::timestamptz - clock_timestamp()) / 60)));
		END IF;
	END LOOP;
	RETURN said;
END
$$;
-- A refusal is shown in full where test.details is on.
CREATE FUNCTION answer(answer jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN answer ->> 'answer' <> 'refused' THEN
		concat_ws(' ', answer ->> 'answer', answer ->> 'reason', answer ->> 'node_number',
			'from ' || shown(snowflake.time_of((answer ->> 'starts_at')::bigint)), 'until ' || shown(snowflake.time_of((answer ->> 'leased_until')::bigint)))
	ELSE masked(concat_ws(E'\n', format('refused %s: %s', answer ->> 'sqlstate', answer ->> 'message'),
		CASE WHEN current_setting('test.details', true) = 'on' THEN
			format(E'DETAIL:  %s\nHINT:  %s\nWAIT:    %s s', answer ->> 'detail', answer ->> 'hint', CASE (answer -> 'wait')::bigint WHEN 0 THEN '0' WHEN 10000000 THEN '10' ELSE 'less than 10' END) END)) END
$$;
CREATE FUNCTION acquire(n int, clock text, first int DEFAULT 4, last int DEFAULT 5, fixed boolean DEFAULT false,
	previous bigint DEFAULT NULL, previous_end text DEFAULT NULL, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql
AS $$ SELECT answer(snowflake.acquire_lease(node(n, clock) || jsonb_build_object('first_number', first, 'last_number', last, 'fixed', fixed)
	|| CASE WHEN previous IS NULL THEN '{}' ELSE lease(n, previous, previous_end) END || more)) $$;
CREATE FUNCTION acquire_own(n int, clock text, first int DEFAULT 4, last int DEFAULT 5, fixed boolean DEFAULT false, more jsonb DEFAULT '{}')
RETURNS text LANGUAGE sql
AS $$ SELECT answer(snowflake.acquire_own_lease(node(n, clock) || jsonb_build_object('first_number', first, 'last_number', last, 'fixed', fixed) || more)) $$;
-- until one minute after the clock, or as long as the window is
CREATE FUNCTION renew(n int, clock text, granted bigint DEFAULT 1, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql
AS $$ SELECT answer(snowflake.renew_lease(node(n, clock) || lease(n, granted) || more)) $$;
CREATE FUNCTION release(n int, ids_end text, granted bigint DEFAULT 1, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql
AS $$ SELECT answer(snowflake.release_lease(node(n, '12:00') || lease(n, granted, ids_end) || more)) $$;
-- the log, with what the truth has of leases that are open
CREATE VIEW lease AS
SELECT right(w.start::text, 2) AS start, w.granted_by, l.last_call, w.node_number, shown(w.starts_at) AS starts_at,
	shown(coalesce(w.leased_until, l.leased_until)) AS leased_until, l.token IS NOT NULL AS open
FROM snowflake.worker_node AS w LEFT JOIN snowflake.node_number AS l USING (token) ORDER BY start, granted_by, w.node_number;
-- the truth
CREATE VIEW number AS
SELECT n.node_number, shown(nullif(n.ended_until, '-infinity')) AS ended_until, shown(nullif(n.recorded_until, '-infinity')) AS recorded_until,
	right(n.start::text, 2) AS start, shown(n.starts_at) AS starts_at, shown(n.leased_until) AS leased_until
FROM snowflake.node_number AS n ORDER BY n.node_number;
-- as if the extension had been created at the beginning of 2024
CREATE FUNCTION start_again() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	ALTER TABLE snowflake.node_number DISABLE TRIGGER USER;
	ALTER TABLE snowflake.cluster DISABLE TRIGGER USER;
	ALTER TABLE snowflake.worker_node DISABLE TRIGGER USER;
	DELETE FROM snowflake.node_number;
	DELETE FROM snowflake.worker_node;
	DELETE FROM snowflake.cluster;
	DELETE FROM snowflake.guard;
	ALTER TABLE snowflake.node_number ENABLE ALWAYS TRIGGER leave_out_replicated, ENABLE REPLICA TRIGGER leave_out_replicated_update,
		ENABLE ALWAYS TRIGGER merge, ENABLE ALWAYS TRIGGER refuse_to_delete;
	ALTER TABLE snowflake.worker_node ENABLE ALWAYS TRIGGER leave_out_replicated, ENABLE ALWAYS TRIGGER close_restored,
		ENABLE ALWAYS TRIGGER refuse_to_forget, ENABLE ALWAYS TRIGGER refuse_to_delete;
	ALTER TABLE snowflake.cluster ENABLE ALWAYS TRIGGER leave_out_replicated, ENABLE ALWAYS TRIGGER only_one,
		ENABLE ALWAYS TRIGGER refuse_to_delete;
	UPDATE snowflake.registry SET incarnation = id(99), created_at = '2023-12-31 23:59:59.998Z', generation = 1, counted = '{}', counted_at = NULL,
		server = snowflake.this_server(), mark = NULL, starts_at = NULL, end_limit = DEFAULT, old_limit = NULL, old_limit_until = NULL, taken_over = '{}',
		told = '{}', successor = NULL, closed_at = NULL, closed_by = NULL;
END
$$;
-- the triggers are as the extension has them
CREATE TABLE triggers AS SELECT tgrelid, tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal;
SELECT start_again();
SELECT tgrelid::regclass, tgname FROM (TABLE triggers EXCEPT SELECT tgrelid, tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal) AS t;
-- the error of a statement
CREATE FUNCTION error_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN format(E'%s: %s\nDETAIL:  %s\nHINT:  %s', SQLSTATE, SQLERRM, detail, hint);
END
$$;
-- what a dump brings of a number
CREATE FUNCTION restore(number bigint, until text) RETURNS void LANGUAGE sql
AS $$ INSERT INTO snowflake.node_number (node_number, ended_until) VALUES (number, snowflake.time_of(at(until))) $$;

--
-- What a call must be.  Each value is refused by its name, as an error; keys that are not known are left unread.
--
CREATE FUNCTION refusal(call jsonb, function text DEFAULT 'acquire_lease') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	answer jsonb;
BEGIN
	EXECUTE format('SELECT snowflake.%I($1)', function) INTO answer USING call;
	RETURN concat_ws(' ', answer ->> 'answer', answer ->> 'reason', answer ->> 'sqlstate', answer ->> 'message');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN format('%s %s: %s', SQLSTATE, replace(SQLERRM, ' in a registry call is out of range', ''), detail);
END
$$;
SELECT refusal(NULL), refusal('[]'), refusal('{}'), refusal('{"protocol": 0}'), refusal('{"protocol": "1"}'), refusal(node(1, '12:00') || '{"no_such_key": 1}') \gx
-- a later version of the protocol is an answer
SET test.details = on;
SELECT acquire(1, '12:00', more => '{"protocol": 2}'), renew(1, '12:00', more => '{"protocol": 1000000}'), release(1, '12:00', more => '{"protocol": 2}') \gx
RESET test.details;
SELECT start_again();
-- each key, missing
SELECT key, refusal(node(1, '12:00') - key) FROM jsonb_object_keys(node(1, '12:00')) AS key
WHERE key NOT IN ('lease', 'uses', 'ids_end_at', 'starts_at') ORDER BY key COLLATE "C";
SELECT start_again(), refusal(node(1, '12:00') - '{lease,uses,ids_end_at,starts_at}'::text[]) AS without_the_others;
-- each key, out of range
CREATE FUNCTION full_call(call bigint) RETURNS jsonb LANGUAGE sql AS $$
	SELECT node(1, '12:00') || jsonb_build_object('call', call, 'lease', jsonb_build_object('token', id(1), 'granted_by', 1, 'node_number', 3, 'incarnation', id(9), 'generation', 1,
		'leased_until', at('12:01'), 'ids_end_at', at('12:00:30')))
$$;
SELECT key, left(value, 60) AS value, refusal(jsonb_set(full_call(5), string_to_array(key, '.'), value::jsonb))
FROM (VALUES ('start', '"x"'), ('start', '"{00000000-0000-0000-0000-000000000001}"'), ('call', '0'), ('call', '9223372036854775808'), ('call', '1.5'), ('call', '"7"'),
	('kind', '"other"'), ('kind', '1'), ('host_name', '""'), ('host_name', to_jsonb(repeat('x', 256))::text), ('host_name', '"a\u001bb"'), ('host_name', '"a\u007f"'), ('port', '65536'),
	('system_identifier', '1e30'), ('timeline', '0'), ('launched_at', '253402300800000000'), ('clock', '9224318015999999999'), ('clock', '1e300'),
	('clock', '-62135596800000001'), ('max_ahead', '-1'), ('max_ahead', '86401000001'), ('window', '0'), ('window', '172800000001'),
	('first_number', '8'), ('last_number', '9223372036854775808'), ('last_number', '4294967300'), ('fixed', '"true"'), ('uses', '"own"'), ('ids_end_at', '"now"'), ('ids_end_at', '{}'),
	('starts_at', '"infinity"'), ('lease', '7'), ('lease', '[]'), ('lease', '{}'), ('lease.token', 'null'), ('lease.node_number', '-1'), ('lease.granted_by', '5'), ('lease.incarnation', '7'), ('lease.generation', '0'),
	('lease.leased_until', 'null'), ('lease.ids_end_at', '"x"'), ('lease.ids_end_at', '253402300800000000'), ('layout', 'null'), ('layout', '""'), ('layout', '{}'), ('layout', '"twitter"'),
	('layout', '"timestamp 41, worker 10, sequence 12"')) AS v (key, value);
SELECT key, refusal(full_call(5) - key, 'renew_lease') AS renew, refusal(full_call(6) - key, 'release_lease') AS release
FROM unnest('{protocol,start,call,lease,layout,clock,max_ahead,window}'::text[]) AS key;
SELECT key, refusal(full_call(7) #- ARRAY['lease', key], 'renew_lease') AS renew, refusal(full_call(8) #- ARRAY['lease', key], 'release_lease') AS release
FROM jsonb_object_keys(full_call(1) -> 'lease') AS key;
SELECT refusal('{}', 'start_server'), refusal('{"clock": 0}', 'start_server'), refusal('{"clock": 0, "max_ahead": 0, "mark": 1}', 'start_server'),
	refusal('{}', 'record_uses'), refusal(jsonb_build_object('incarnation', id(1), 'uses', 'own'), 'record_uses') \gx
SELECT count(*), sum(times) AS warned FROM snowflake.guard;
SELECT count(*) FROM snowflake.node_number;
-- a lease whose ids go on stays open while another is asked for; what was granted since, and not used, ends where it started
SELECT start_again();
SELECT acquire(1, '12:00', 6, 6, true), acquire(1, '12:00:10', 7, 7, true, 1), acquire(1, '12:00:20', 5, 5, true, 1);
SELECT start, node_number, starts_at, leased_until, open FROM lease ORDER BY node_number;

--
-- All of a row and of an answer
--
SELECT start_again();
SELECT acquire(1, '12:00', 13, 13, true);
SELECT node_number, ended_until, free_since, recorded_until = leased_until AS recorded, token IS NOT NULL AS token, start, granted_by, last_call, own, fixed, system_identifier,
	role = session_user AS role, incarnation, generation, shown(starts_at) AS starts_at, shown(leased_until) AS leased_until, now() - renewed_at < '1 min' AS renewed_at
FROM snowflake.node_number \gx
SELECT w.token = n.token AS token, w.start, w.granted_by, w.kind, w.name, w.host_name, w.port, w.role = session_user AS role, w.system_identifier, w.timeline, w.incarnation, w.generation,
	w.fixed, w.node_number, w.layout, shown(w.launched_at) AS launched_at, shown(w.starts_at) AS starts_at, w.leased_until, w.closed_at
FROM snowflake.worker_node AS w, snowflake.node_number AS n \gx
-- a renewal changes the number's row, and nothing else
CREATE TABLE before AS SELECT w.xmin::text AS xid, w.ctid::text AS place FROM snowflake.worker_node AS w UNION ALL SELECT c.xmin::text, c.ctid::text FROM snowflake.cluster AS c UNION ALL SELECT r.xmin::text, r.ctid::text FROM snowflake.registry AS r;
SELECT renew(1, '12:00:30');
SELECT count(*) AS changed FROM (TABLE before EXCEPT (SELECT w.xmin::text AS xid, w.ctid::text AS place FROM snowflake.worker_node AS w UNION ALL SELECT c.xmin::text, c.ctid::text FROM snowflake.cluster AS c
	UNION ALL SELECT r.xmin::text, r.ctid::text FROM snowflake.registry AS r)) AS c;
DROP TABLE before;
SELECT shown(leased_until) AS leased_until, recorded_until = leased_until AS recorded, last_call FROM snowflake.node_number;
-- closed: the log has the end, the number is free
SELECT release(1, '12:00:31');
SELECT shown(leased_until) AS leased_until, now() - closed_at < '1 min' AS closed_at FROM snowflake.worker_node;
SELECT node_number, shown(ended_until) AS ended_until, now() - free_since < '1 min' AS free_since, shown(recorded_until) AS recorded_until,
	num_nonnulls(token, start, granted_by, last_call, own, fixed, system_identifier, role, incarnation, generation, starts_at, leased_until, renewed_at) AS others
FROM snowflake.node_number;
SELECT start_again();
SELECT jsonb_object_agg(key, CASE key WHEN 'clock' THEN to_jsonb(abs(value::bigint - at(shown(now()))) < 60000000) WHEN 'token' THEN to_jsonb(true)
	ELSE value END) AS answer FROM jsonb_each(snowflake.acquire_lease(node(1, '12:00') || '{"first_number": 6, "last_number": 6, "fixed": true}'));
SELECT snowflake.renew_lease(node(1, '12:00:30') || lease(1, 1)) - 'clock' AS renewed;
SELECT snowflake.renew_lease(node(2, '12:00:30', '{"call": 5}') || lease(1, 1)) - 'clock' AS not_renewed;
SELECT snowflake.release_lease(node(1, '12:00:30') || lease(1, 1, '12:00:31')) - 'clock' AS released;
SELECT snowflake.acquire_lease(node(1, '2023-01-01')) - 'clock' AS refused;
-- a number's parts, by its layout
CREATE TABLE layouts (name text, text text, number bigint);
INSERT INTO layouts VALUES ('twitter', 'timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z', 1022),
	('sonyflake', 'timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2014-09-01T00:00:00Z', 65534),
	('clocks', 'timestamp 33, clock 3, sequence 3, worker 5, tick 1s, epoch 1970-01-01T00:00:00Z', 255),
	('long', 'timestamp 61, sequence 1, worker 1, tick 1s, epoch 2020-01-01T00:00:00Z', 1),
	('short', 'timestamp 1, sequence 31, worker 31, tick 1ms, epoch 2020-01-01T00:00:00Z', 2147483646),
	('microseconds', 'timestamp 52, worker 4, sequence 4, tick 3us, epoch 2020-01-01T00:00:00.000001Z', 15);
SELECT start_again();
INSERT INTO snowflake.worker_node (token, start, granted_by, kind, name, host_name, role, incarnation, generation, fixed, node_number, layout, launched_at, starts_at, leased_until, closed_at)
SELECT gen_random_uuid(), id(1), 1, 'program', name, 'h', 'a', id(99), 1, false, number, text, now(), now(), now(), now() FROM layouts;
SELECT name, node_number, datacenter_id, worker_id, clock FROM snowflake.leases ORDER BY name COLLATE "C";
-- the greatest ids and first times: at and inside ticks, and at the ends of layouts
SELECT l.name, shown(g.at) AS at, snowflake.greatest_id(g.at, l.layout) AS greatest_id,
	shown(snowflake.first_time_above(snowflake.greatest_id(g.at, l.layout), l.layout)) AS first_time
FROM (SELECT name, snowflake.layout_of(text) AS layout FROM layouts) AS l,
	LATERAL (VALUES ((l.layout).epoch), ((l.layout).epoch + (l.layout).tick * interval '1 us'), ((l.layout).epoch + (l.layout).tick * 2.5::float8 * interval '1 us'),
		(snowflake.time_of(least(snowflake.microseconds((l.layout).epoch) + 2::numeric ^ (l.layout).timestamp_bits * (l.layout).tick, at('9999-12-31'))::bigint))) AS g (at)
ORDER BY l.name COLLATE "C", g.at, greatest_id;
DROP TABLE layouts;
-- ids above all times
SELECT snowflake.first_time_above(9223372036854775807, snowflake.layout_of('timestamp 61, sequence 1, worker 1, tick 1s, epoch 2020-01-01T00:00:00Z'));
-- when a layout can take the place of another one: now; after what was allowed; when its ids, which count up faster, have come up to those; never
SELECT what, coalesce(shown(nullif(snowflake.time_to_change(snowflake.greatest_id(until::timestamptz, l.old), '3 min', l.old, l.new), 'infinity')), 'never') AS at
FROM (VALUES ('now', '2024-03-01 12:03Z', 'tick 1ms, epoch 2020-01-01T00:00:00Z', 'tick 1ms, epoch 2019-12-31T23:59:00Z'),
	('the same epoch', '2024-03-01 12:03Z', 'tick 1ms, epoch 2020-01-01T00:00:00Z', 'tick 1ms, epoch 2020-01-01T00:00:00Z'),
	('later ends', '2024-03-01 13:03Z', 'tick 1ms, epoch 2020-01-01T00:00:00Z', 'tick 1ms, epoch 2020-01-01T00:00:00Z'),
	('a later epoch', '2024-03-01 12:03Z', 'tick 1ms, epoch 2020-01-01T00:00:00Z', 'tick 1ms, epoch 2020-01-01T00:01:00Z'),
	('twice as fast', '2024-03-01 12:03Z', 'tick 2ms, epoch 2024-03-01T00:00:00Z', 'tick 1ms, epoch 2024-03-01T12:00:00Z'),
	('ten times as fast', '2024-03-01 12:03Z', 'tick 10ms, epoch 2024-02-01T00:00:00Z', 'tick 1ms, epoch 2024-03-01T12:00:00Z'),
	('half as fast', '2024-03-01 12:03Z', 'tick 1ms, epoch 2024-03-01T00:00:00Z', 'tick 2ms, epoch 2024-03-01T00:00:00Z')) AS v (what, until, old, new),
	LATERAL (SELECT snowflake.layout_of('timestamp 41, worker 4, sequence 4, ' || v.old) AS old, snowflake.layout_of('timestamp 41, worker 4, sequence 4, ' || v.new) AS new) AS l;
-- only texts that are written as a node writes them
SELECT text, snowflake.layout_of(text) IS NOT NULL AS known FROM (VALUES (layout_a()), ('twitter'), (''), (NULL),
	('timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z'), ('timestamp 41, worker 10, sequence 12, tick 1000us, epoch 2010-11-04T01:42:54.657Z'),
	('timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657+00'), ('timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04'),
	('timestamp 41, worker 10, sequence 12, epoch 2010-11-04T01:42:54Z, tick 1ms'), ('worker 10, timestamp 41, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54Z'),
	('timestamp 41, worker 10, tick 1ms, epoch 2010-11-04T01:42:54Z'), ('timestamp 41, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54Z'), ('timestamp 41, worker 10, worker 1, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54Z'),
	('timestamp 41, worker 32, sequence 1, tick 1ms, epoch 2010-11-04T01:42:54Z'), ('timestamp 41, worker 31, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54Z'),
	('timestamp 41, worker 10, sequence 12, tick 2s, epoch 2010-11-04T01:42:54Z'), ('timestamp 41, worker 10, sequence 12, tick 0ms, epoch 2010-11-04T01:42:54Z'),
	('timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-02-30T01:42:54Z'), ('timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T24:00:00Z'),
	('timestamp 41, worker 10, sequence 12, tick 1ms, epoch 0000-11-04T01:42:54Z'), (E'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54Z\n'),
	(' timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54Z'), ('timestamp 041, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54Z')) AS t (text);

--
-- Choice of automatic numbers
--
-- those that were never leased first, at random; bit 0 is clear in odd generations
SELECT start_again();
SELECT acquire(1, '12:00', 4, 7) ~ '^yes [46]', acquire(2, '12:00', 4, 7) ~ '^yes [46]';
-- then none is free while a lease may be live
SET test.details = on;
SELECT acquire(5, '12:00:59.999999', 4, 7);
RESET test.details;
-- and set in even ones
UPDATE snowflake.registry SET generation = 2;
SELECT acquire(3, '12:00', 4, 7) ~ '^yes [57]', acquire(4, '12:00', 4, 7) ~ '^yes [57]';
SELECT acquire(5, '12:00:59.999999', 4, 7);
UPDATE snowflake.registry SET generation = 3;
SELECT acquire(5, '12:01', 4, 7) ~ '^yes [46]';
SELECT count(*), array_agg(DISTINCT node_number ORDER BY node_number) AS numbers, min(starts_at), max(leased_until) FROM lease;
-- whoever asks, with any range of two or more
SELECT start_again();
SELECT acquire(1, '12:00', 5, 6), acquire_own(2, '12:00', 7, 8);
UPDATE snowflake.registry SET generation = 2;
SELECT acquire(3, '12:00', 6, 7), acquire_own(4, '12:00', 8, 9);
SET test.details = on;
SELECT acquire(5, '12:00', 6, 6);
RESET test.details;
-- the longest unused one: starts where it ended; a renewal makes it younger
SELECT start_again();
SELECT acquire(n, '12:00', n, n, true) FROM generate_series(0, 6, 2) AS n;
SELECT renew(0, '12:04'), release(2, '12:00:40'), release(4, '12:00:10'), renew(6, '12:05');
SELECT acquire(10, '12:04:01', 0, 7);
SELECT acquire(11, '12:04:02', 0, 7);
SELECT acquire(12, '12:04:03', 0, 7);
SELECT acquire(12, '12:05', 0, 7);
SELECT * FROM lease;
SELECT * FROM number;
-- an open lease may be live by the registry's clock, too, if that is earlier; a closed one is not
SELECT start_again();
SELECT acquire(1, soon('0'), 4, 5) ~ '^yes 4 ';
SELECT acquire(2, soon('2 min'), 4, 5);
SELECT release(1, soon('1 min'));
SELECT acquire(2, soon('2 min'), 4, 5) ~ '^yes 4 ';
-- by the node's clock a closed one can end in the future: never starts there
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5);
SELECT release(1, '12:00:30');
SELECT acquire(2, '12:00:29', 4, 5);
SELECT acquire(2, '12:00:30', 4, 5);
-- An autoanalyze that comes while many numbers are inserted sees an empty table: calls then read all of it.
ALTER TABLE snowflake.node_number SET (autovacuum_enabled = off);
-- Numbers from first up by step, as if leases of them had ended.
CREATE FUNCTION used(first bigint, last bigint, step bigint, until text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO snowflake.node_number (node_number, ended_until) SELECT n, snowflake.time_of(at(until)) FROM generate_series(first, last, step) AS n
$$;
-- how the unused numbers are chosen when most are used: all of them, and no other one
SELECT start_again();
SELECT used(0, 999, 1, '2024-01-01Z');
ALTER TABLE snowflake.node_number DISABLE TRIGGER refuse_to_delete;
DELETE FROM snowflake.node_number WHERE node_number IN (0, 1, 500, 998, 999);
SELECT array_agg(DISTINCT snowflake.unused_number(0, 998, true)) FROM generate_series(1, 10);
SELECT array_agg(DISTINCT snowflake.unused_number(1, 999, true)), snowflake.unused_number(2, 498, true) FROM generate_series(1, 10);
SELECT array_agg(DISTINCT n ORDER BY n) FROM (SELECT snowflake.unused_number(0, 998, false) AS n FROM generate_series(1, 1000)) AS u WHERE n IS NOT NULL;
-- of many numbers, the longest unused of all that are free by the node's clock; one that was never used, if none is
SELECT start_again();
SELECT used(1, 65539, 2, '2024-01-03Z');
ALTER TABLE snowflake.node_number DISABLE TRIGGER refuse_to_delete;
UPDATE snowflake.node_number SET ended_until = '2024-01-01Z'::timestamptz + node_number * interval '1 s' WHERE node_number IN (7, 32763, 32769, 65537, 65539);
CREATE FUNCTION chosen(first bigint, last bigint, node_clock text, clock text) RETURNS text LANGUAGE sql
AS $$ SELECT coalesce(c.number::text, answer(snowflake.answer(r, 'refused', c.refusal)))
	FROM snowflake.registry AS r, snowflake.choose_automatic(first, last, snowflake.time_of(at(node_clock)), snowflake.time_of(at(clock))) AS c $$;
SELECT array_agg(DISTINCT chosen(1, 65539, '2024-01-02Z', '2024-01-02Z')) FROM generate_series(1, 10);
SELECT chosen(9, 32761, '2024-01-03Z', '2024-01-03Z')::int BETWEEN 9 AND 32761 AS one_of_these;
SELECT chosen(1, 65539, '2024-01-01Z', '2024-01-02Z');
DELETE FROM snowflake.node_number WHERE node_number = 32769;
SELECT chosen(1, 65539, '2024-01-01Z', '2024-01-01Z');
-- when few are used: they are spread
SELECT count(DISTINCT number) > 900 AS different, min(number) < 1::bigint << 58 AS low, max(number) > 7::bigint << 58 AS high,
	count(*) FILTER (WHERE number % 3 = 0) BETWEEN 250 AND 420 AS thirds, count(*) FILTER (WHERE number % 2 <> 1) AS others
FROM generate_series(1, 1000) AS n, LATERAL (SELECT n, snowflake.unused_number(1, (1::bigint << 61) - 1, false) AS number) AS u;
CREATE FUNCTION wide() RETURNS jsonb LANGUAGE sql
AS $$ SELECT '{"layout": "timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2020-01-01T00:00:00Z"}'::jsonb $$;
-- Each grant closes a few leases that are over by both clocks for a minute, from a start on that is drawn, which is before these; if no number is
-- free, all that are over: their numbers are free from then on.
SELECT start_again();
SELECT count(*) FROM generate_series(0, 58, 2) AS n
WHERE acquire(n, '12:00', n, n, true, more => wide() || jsonb_build_object('start', format('ffffffff-ffff-4fff-8fff-%s', lpad(n::text, 12, '0')))) !~ '^yes';
CREATE VIEW open AS SELECT count(*) FROM snowflake.node_number WHERE token IS NOT NULL AND node_number < 60;
SELECT acquire(20, '12:01:59.999999', 100, 101, more => wide());
TABLE open;
SELECT acquire(21, '12:02', 102, 103, more => wide());
TABLE open;
SELECT acquire(22, '12:02', 104, 105, more => wide());
TABLE open;
SELECT DISTINCT shown(ended_until) FROM snowflake.node_number WHERE node_number < 60;
SELECT acquire(23, '12:05', 100, 101, more => wide()), count(*) AS of_its_own FROM snowflake.node_number WHERE node_number = 102 AND token IS NOT NULL;
-- A number that is none of the layout makes no row: neither a range of them, nor a lease that the tables do not know.
SET test.details = on;
SELECT acquire(24, '12:05', 1024, 1025, more => wide());
SELECT acquire(24, '12:05', 1000, 1024, true, more => wide());
RESET test.details;
SELECT acquire(24, '12:05', 1000, 1023, true, more => wide());
\set VERBOSITY terse
SELECT n, renew(24, '12:05:30', 4, wide() || jsonb_build_object('lease', jsonb_build_object('token', id(77), 'node_number', n, 'granted_by', 1, 'incarnation', incarnation, 'generation', generation,
	'leased_until', at('12:07')))) FROM snowflake.registry, generate_series(1023, 1024) AS n;
\set VERBOSITY default
SELECT node_number, shown(ended_until) AS ended_until FROM snowflake.node_number WHERE node_number >= 1000 ORDER BY 1;

--
-- Where leases start
--
-- at the greatest end of the number's history, not only of the newest lease
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true);
SELECT renew(1, '12:30'), release(1, '12:20');
SELECT acquire(2, '12:10', 4, 4, true);
SELECT release(2, '12:05');
SELECT acquire(2, '12:30', 4, 4, true), release(2, '12:25', 2);
SELECT * FROM lease;
SELECT * FROM number;
-- also what was restored; a row that is restored only raises where ids end, and a lease that it overlaps is not renewed
SELECT start_again();
SELECT restore(5, '12:31');
SELECT acquire(3, '12:30', 5, 5, true);
SELECT restore(5, '12:31:30'), restore(5, '12:20');
SELECT renew(3, '12:31:10'), * FROM number;
SELECT acquire(4, '12:32', 5, 5, true);
SELECT restore(5, '12:32');
SELECT renew(4, '12:32:10'), * FROM number;
-- a restored row that says that a lease is open brings no lease
INSERT INTO snowflake.node_number SELECT (jsonb_populate_record(n, '{"node_number": 7}')).* FROM snowflake.node_number AS n;
SELECT * FROM number;
-- after the creation of the tables and max_ahead, whatever the number; not if the clock is behind that
SELECT start_again();
UPDATE snowflake.registry SET created_at = '2024-03-01 12:00Z';
SELECT acquire(1, '12:00', 4, 5, more => '{"max_ahead": 2500000}');
SELECT acquire(1, '11:59:50', 6, 7, previous => 1, previous_end => '12:00:03');
SET test.details = on;
SELECT acquire(1, '11:59:49.999999');
-- after the time of a count, in the same way, but at most 10 s; and at a time that is stored
SELECT start_again();
UPDATE snowflake.registry SET counted_at = '2024-03-01 12:00Z';
SELECT acquire(1, '12:00', 4, 5), acquire(5, '12:00', 10, 11, more => '{"max_ahead": 60000000}');
UPDATE snowflake.registry SET starts_at = '2024-03-01 12:00:05Z';
SELECT acquire(2, '12:00', 6, 7), acquire(3, '11:59:54', 8, 9);
SELECT acquire(4, '11:59:49');
RESET test.details;
-- the table of another server, as after pg_upgrade: the time is stored, and all leases are closed, as the server may
-- be a promoted one that does not know it
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true), acquire(2, '12:00', 6, 6, true);
UPDATE snowflake.registry SET server = '7/00000001', mark = 'this one';
SELECT renew(1, '12:00:30');
SELECT generation, counted_at IS NOT NULL AS counted, server = snowflake.this_server() AS server, starts_at, mark FROM snowflake.registry;
SELECT guard FROM snowflake.guard;
SELECT * FROM lease;
-- the same for the own server, whose clock it is
SELECT start_again();
UPDATE snowflake.registry SET server = '7/00000001';
SELECT acquire_own(1, '12:00', more => '{"max_ahead": 60000000}');
-- a fixed number, which generations do not keep apart: after the node's clock, if the server was promoted, or has taken over a registry
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true), acquire(2, '12:00', 6, 7);
UPDATE snowflake.registry SET generation = 2;
SELECT acquire(3, '12:00', 3, 3, true);
UPDATE snowflake.registry SET generation = 1, taken_over = ARRAY[id(98)];
SELECT acquire(4, '12:00', 2, 2, true);
-- where the tables are its own, what a server knows holds for all; what its own max_ahead tells does not
SELECT start_again();
UPDATE snowflake.registry SET created_at = '2024-03-01 12:00Z';
SELECT acquire_own(1, '12:00', more => jsonb_build_object('max_ahead', 60000000, 'starts_at', at('12:01:00.001')));
SELECT acquire(2, '12:00', 6, 7);
SELECT acquire_own(3, '12:00', 8, 9, more => jsonb_build_object('max_ahead', 60000000, 'starts_at', at('12:01:00.002')));
SELECT acquire(4, '12:01', 10, 11);
-- after what the node knows of and the registry does not: its own word, ids of its memory, ids of the lease that it names, of other tables
SELECT start_again();
SELECT acquire(1, '12:00', more => jsonb_build_object('starts_at', at('12:00:11.001')));
SET test.details = on;
SELECT acquire(2, '12:00', 6, 7, more => jsonb_build_object('starts_at', at('12:00:11.001001')));
RESET test.details;
SELECT acquire(3, '12:00', 6, 7, more => jsonb_build_object('ids_end_at', at('12:00:07')));
SELECT acquire(4, '12:00', 8, 9, more => jsonb_build_object('ids_end_at', at('12:00:06'), 'call', 9) || lease(4, 7, '12:00:05', jsonb_build_object('incarnation', id(98))));
SELECT acquire(5, '12:00', 10, 11, more => jsonb_build_object('ids_end_at', at('12:00:05'), 'call', 9) || lease(5, 7, '12:00:06', jsonb_build_object('generation', 2)));
-- of this incarnation and generation the tables know all
SELECT acquire(1, '12:00', 12, 13, more => jsonb_build_object('ids_end_at', at('12:00:20')) || lease(1, 1, '12:00:19'));
-- not what others must heed
SELECT starts_at FROM snowflake.registry;
-- tables that are older than the layout's epoch: a lease that has issued nothing ends where it starts
SELECT start_again();
UPDATE snowflake.registry SET created_at = '2019-12-31 12:00Z';
SELECT acquire(1, '12:00');
SELECT acquire(1, '12:00', 6, 7, previous => 1, previous_end => '2019-12-31 12:00:01.001');
SELECT release(1, '2019-12-31 12:00:01.001', 2);
SELECT * FROM lease;

--
-- The limit for ends: no lease ends later than that after the registry's clock
--
SELECT start_again();
-- cut, but granted and renewed
CREATE FUNCTION left_of(answer jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT CASE answer ->> 'answer' WHEN 'yes' THEN 'until (now + ' || round(((answer -> 'leased_until')::bigint - (answer -> 'clock')::bigint) / 10000000.0) * 10 || ' s)' ELSE answer(answer) END
$$;
SELECT left_of(snowflake.acquire_lease(node(1, soon('0'), '{"window": 172800000000}')));
SELECT left_of(snowflake.renew_lease(node(1, soon('100 s'), '{"window": 100000000}') || lease(1, 1)));
SET test.details = on;
-- not if nothing of it could be used: by the node's clock, or since it starts later
SELECT answer(snowflake.acquire_lease(node(2, soon('188 s'), '{"first_number": 6, "last_number": 7}')));
SELECT acquire(2, '2050-01-01Z', 6, 7), renew(1, '2050-01-01Z');
SELECT restore(9, soon('5 min'));
SELECT acquire(3, soon('0'), 9, 9, true);
RESET test.details;
-- the own server's clock is the registry's
SELECT acquire_own(4, '2050-01-01Z', 10, 11, more => '{"window": 172800000000}');
SELECT renew(4, '2050-01-01 00:02Z', more => '{"window": 172800000000}');
SELECT acquire_own(5, '2050-01-01Z', 10, 10, true);
-- nothing of these is on record
SELECT node_number FROM number WHERE node_number NOT IN (4, 5, 9, 10);
-- the owner sets it, up to two days, and from ten seconds on
SELECT snowflake.limit_leases('48 h');
SELECT left_of(snowflake.acquire_lease(node(6, soon('0'), '{"window": 172800000000, "first_number": 12, "last_number": 13}')));
SELECT snowflake.limit_leases('48 h 1 us');
SELECT snowflake.limit_leases('9.999999 s');
SELECT snowflake.limit_leases(NULL);
-- lowered: ends on record stay, and for as long as the last of them could be, waits are for the former limit
SELECT snowflake.limit_leases('1 h'), snowflake.limit_leases('10 s');
SELECT r.end_limit, r.old_limit, abs(extract(epoch FROM r.old_limit_until - now() - interval '48 h 20 s')) < 60 AS until, snowflake.longest_window(r, now()),
	snowflake.longest_window(r, r.old_limit_until) AS later FROM snowflake.registry AS r;
SELECT left_of(snowflake.acquire_lease(node(7, soon('0'), '{"window": 172800000000, "first_number": 14, "last_number": 15}')));
SELECT shown(leased_until) > soon('47 h') AS stays, renew(6, soon('0')) ~ '^yes' AS renewed FROM snowflake.node_number WHERE node_number = 12;
UPDATE snowflake.registry SET old_limit_until = now();
SELECT snowflake.longest_window(r, now()) FROM snowflake.registry AS r;
SELECT snowflake.limit_leases('1 h'), snowflake.limit_leases('3 h');
SELECT end_limit, old_limit, old_limit_until FROM snowflake.registry;

--
-- Calls of a start
--
-- a late call is refused, whatever it is
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true, more => '{"call": 7}');
SET test.details = on;
SELECT acquire(1, '12:00', more => '{"call": 7}');
RESET test.details;
SELECT renew(1, '12:01', 6, more => '{"call": 7}');
SELECT release(1, '12:00', 5, more => '{"call": 6}');
SELECT renew(1, '12:01', 7, more => '{"call": 8}'), renew(1, '12:01:30', 7, more => '{"call": 20}');
SELECT renew(1, '12:02', 7, more => '{"call": 19}');
SELECT * FROM lease;
-- a call that names the lease closes the others: those that were granted later where they started, the others as they are
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true);
SELECT acquire(1, '12:01', 5, 5, true, 1, more => '{"call": 5}');
SELECT acquire(1, '12:02', 6, 6, true, 5, more => '{"call": 6}');
SELECT * FROM lease;
SELECT renew(1, '12:02', 5);
SELECT * FROM lease;
-- also when the named one is not on record here: the number of its call tells
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true, more => '{"call": 3}');
SELECT acquire(1, '12:01', 5, 5, true, 3, more => '{"call": 5}');
SELECT renew(1, '12:03', 4, more => '{"call": 9}' || lease(1, 4, NULL, jsonb_build_object('node_number', 4, 'leased_until', at('12:01'))));
SELECT * FROM lease;
-- none is named: all keep their ends
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true);
SELECT acquire(1, '12:01', 5, 5, true);
SELECT * FROM lease;
-- the named one ends where its ids end, not before it started, nor later than it was leased; others' leases are not touched
SELECT acquire(2, '12:01', 6, 6, true);
SELECT acquire(1, '12:02', 7, 7, true, previous => 2, previous_end => '12:01:40');
SELECT acquire(1, '12:02', 8, 8, true, previous => 3, previous_end => '11:00');
SELECT acquire(1, '12:02', 9, 9, true, previous => 4, previous_end => '13:00');
SELECT * FROM lease;
-- a release; again; of what another start has; of a lease that is not the newest: the newer one was never opened
SELECT release(2, '12:01:30'), release(2, '12:01:20'), release(2, '12:01:50', 5, (lease(1, 5, '12:01:50') || '{"call": 9}'));
SELECT acquire(2, '12:02', 10, 10, true);
SELECT release(2, '12:01:30');
SELECT * FROM lease WHERE start = '02' OR granted_by = 5;
-- the call that was granted the lease is told rightly
SELECT start_again();
SELECT acquire(1, '12:00');
SELECT renew(1, '12:00:30', more => '{"call": 3}' || lease(1, 1, NULL, '{"granted_by": 2}'));
-- a renewal: only of an open lease, of this incarnation and generation, and on record; else the answer is no.  It ends no ids.
SELECT start_again();
SELECT acquire(1, '12:00');
SELECT renew(1, '12:00:30'), renew(1, '12:00:20'), renew(1, '12:10', more => '{"window": 172800000000}'), renew(1, '12:10', more => lease(1, 1, '12:00:30'));
SELECT renew(2, '12:01', 1, lease(1, 1) || '{"call": 9}');
SELECT renew(1, '12:01', 1, lease(1, 1, NULL, jsonb_build_object('token', id(998))));
SELECT * FROM lease;
SELECT start_again();
SELECT acquire(1, '12:00');
UPDATE snowflake.registry SET generation = 2;
SELECT renew(1, '12:01');
UPDATE snowflake.registry SET generation = 1, incarnation = id(98);
SELECT renew(1, '12:01');
UPDATE snowflake.registry SET incarnation = id(99);
SELECT renew(1, '12:01');
SELECT release(1, '12:01'), renew(1, '12:01');
SELECT * FROM lease;
-- where no new lease could start yet, a lease of an earlier generation goes on to its end: refused, not no
SELECT start_again();
SELECT acquire(1, '12:00', more => '{"window": 120000000}');
UPDATE snowflake.registry SET generation = 2, counted_at = '2024-03-01 12:00:59.999Z';
SET test.details = on;
SELECT renew(1, '12:00:58'), renew(1, '12:00:59.999');
UPDATE snowflake.registry SET starts_at = '2024-03-01 12:01:30Z';
SELECT renew(1, '12:01:10');
RESET test.details;
SELECT renew(1, '12:01:28.999');
-- and no at its end, however long that wait is
UPDATE snowflake.registry SET starts_at = '2024-03-01 13:00Z';
SELECT renew(1, '12:01:59.999'), renew(1, '12:02');
-- after a no, the next lease starts at or after the end of the ids that the node says, whatever the tables know
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5);
UPDATE snowflake.registry SET generation = 2;
SELECT acquire(1, '12:00:20', 4, 5, previous => 1, previous_end => '12:00:21');
-- of this generation it need not
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5);
SELECT acquire(1, '12:00:20', 6, 7, previous => 1, previous_end => '12:00:21');

--
-- An end that the tables have never had shows that they were rolled back, or that another server grants the same leases
--
\set VERBOSITY terse
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5);
SELECT renew(1, '12:00:10', more => lease(1, 1, NULL, jsonb_build_object('leased_until', at('12:00:59'))));
-- the lease is on record: it is closed, and the number's end rises to that
SELECT renew(1, '12:00:20', more => lease(1, 1, NULL, jsonb_build_object('leased_until', at('12:05'))));
SELECT * FROM lease;
SELECT * FROM number;
SELECT guard, times, now() - first_at < '1 min' AS first_at, first_at < last_at AS later, replace(masked(detail), format('"%s"', session_user), '"ROLE"') AS detail FROM snowflake.guard;
-- the caller's next lease starts after it, whatever its number
SELECT acquire(1, '12:04:50', 6, 7, more => lease(1, 1, '12:04:52', jsonb_build_object('leased_until', at('12:05'))));
SELECT times, first_at < last_at AS later FROM snowflake.guard;
-- another node has the number: its lease stays as it is
SELECT acquire(2, '12:10', 4, 4, true);
SELECT renew(3, '12:10', more => '{"call": 9}' || lease(3, 1, NULL, jsonb_build_object('node_number', 4, 'leased_until', at('12:20'))));
SELECT * FROM number;
SELECT renew(2, '12:10:30');
-- a number that was never leased here; at most to the limit for ends
SELECT renew(3, '12:10', more => '{"call": 10}' || lease(3, 1, NULL, jsonb_build_object('node_number', 14, 'leased_until', at('2090-01-01'))));
SELECT ended_until > now() + '2 min' AND ended_until < now() + '4 min' AS limited FROM snowflake.node_number WHERE node_number = 14;
-- what another incarnation or generation granted says nothing
SELECT renew(3, '12:10', more => '{"call": 11}' || lease(3, 1, NULL, jsonb_build_object('node_number', 12, 'leased_until', at('2090-01-01'), 'generation', 2)));
SELECT renew(3, '12:10', more => '{"call": 12}' || lease(3, 1, NULL, jsonb_build_object('node_number', 12, 'leased_until', at('2090-01-01'), 'incarnation', id(98))));
SELECT times FROM snowflake.guard;
SELECT node_number, ended_until < now() + '4 min' AS limited FROM snowflake.node_number ORDER BY node_number;
\set VERBOSITY default

--
-- Fixed numbers
--
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true);
SET test.details = on;
SELECT acquire(2, '12:00:59.999999', 4, 4, true), acquire(2, '12:00:39', 4, 4, true);
RESET test.details;
SELECT acquire(1, '12:00:30', 4, 4, true);
SELECT acquire(2, '12:01:30', 4, 4, true);
-- by the earlier clock
SELECT start_again();
SELECT acquire(1, soon('0'), 4, 4, true) ~ '^yes';
SELECT regexp_replace(acquire(2, soon('2 min'), 4, 4, true), 'at .*', '');
-- the log may have forgotten whose it is
ALTER TABLE snowflake.worker_node DISABLE TRIGGER refuse_to_forget;
DELETE FROM snowflake.worker_node;
ALTER TABLE snowflake.worker_node ENABLE ALWAYS TRIGGER refuse_to_forget;
SELECT acquire(2, soon('2 min'), 4, 4, true);
-- in the own table, an open lease of the same server is closed at once; by whoever says that it is that server, it is not
SELECT start_again();
SELECT acquire_own(1, '12:00', 4, 4, true), acquire_own(2, '12:00:10', 4, 4, true, '{"system_identifier": 1}');
SELECT acquire(3, '12:00:20', 4, 4, true, more => jsonb_build_object('system_identifier', (SELECT system_identifier FROM pg_control_system())));
SELECT own, start = id(2) AS start FROM snowflake.node_number;
SELECT acquire_own(4, '12:00:30', 4, 4, true), acquire(5, '12:00:20', 6, 6, true);
SELECT acquire_own(6, '12:00:30', 6, 6, true);
-- the clocks of a number: the last one in which ids can go on, else an unused one, else that which ends first
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5, true) ~ '^yes [45] ';
SELECT acquire(1, '12:05', 4, 5, true, previous => 1, previous_end => '12:00:40') ~ '^yes [45] from 12:00:40';
SELECT DISTINCT count(*) FROM snowflake.worker_node GROUP BY node_number;
SELECT acquire(1, '11:00', 4, 5, true, previous => 2, previous_end => '12:05:30') ~ '^yes [45] from 2024-01-01';
SELECT acquire(1, '11:00', 4, 5, true, previous => 3, previous_end => '11:00:40') ~ '^yes [45] from 11:00:40';
SELECT acquire(1, '10:00', 4, 5, true, previous => 4, previous_end => '11:00:41') ~ '^yes [45] from 11:00:41';
SELECT count(*) FROM snowflake.worker_node GROUP BY node_number ORDER BY 1;
-- one of them leased to another, if only by an automatic lease
SELECT start_again();
SELECT acquire(1, '12:05', 6, 7) ~ '^yes 6 ';
SELECT acquire(2, '12:05', 6, 7, true);

--
-- Layouts: the first lease records one, and only an order changes it
--
CREATE FUNCTION layout(epoch text, bits int DEFAULT 41) RETURNS jsonb LANGUAGE sql
AS $$ SELECT jsonb_build_object('layout', format('timestamp %s, worker 4, sequence 4, tick 1ms, epoch %s', bits, epoch)) $$;
-- Orders have the registry's clock: a change waits for the longest window from now on.
CREATE FUNCTION change(epoch text, bits int DEFAULT 41) RETURNS text LANGUAGE sql
AS $$ SELECT masked(snowflake.time_text(snowflake.change_layout(layout(epoch, bits) ->> 'layout'))) $$;
CREATE FUNCTION not_changed(epoch text, bits int DEFAULT 41) RETURNS text LANGUAGE sql
AS $$ SELECT regexp_replace(masked(error_of(format('SELECT snowflake.change_layout(%L)', layout(epoch, bits) ->> 'layout'))), 'Ids up to \d+', 'Ids up to N') $$;
SELECT start_again();
SELECT layout, greatest_id FROM snowflake.cluster;
-- one that is not written as it must be is no first one
SELECT refusal(node(1, '12:00', '{"layout": "twitter"}')), count(*) FROM snowflake.cluster;
SELECT acquire(1, '12:00', more => layout('2021-01-01T00:00:00Z'));
SELECT uses, layout, greatest_id FROM snowflake.cluster;
SET test.details = on;
SELECT acquire(2, '12:00:30', 6, 7, more => layout('2019-01-01T00:00:00Z'));
SELECT renew(1, '12:00:30', more => layout('2019-01-01T00:00:00Z'));
RESET test.details;
SELECT acquire_own(2, '12:00:30', 6, 7, more => layout('2019-01-01T00:00:00Z'));
SELECT acquire(2, '12:00:30', 6, 7, more => '{"layout": "timestamp 41, sequence 4, worker 4, tick 1ms, epoch 2021-01-01T00:00:00Z"}');
SELECT acquire(2, '12:00:30', 6, 7, more => '{"layout": "a\u0026b"}');
-- a release ends a lease under whatever layout
SELECT release(1, '12:00:31', more => layout('2019-01-01T00:00:00Z'));
-- the order: all leases are closed as they stand, and those of the new layout start where its ids are greater than all that were allowed
SELECT acquire(1, '12:00', 6, 7, more => layout('2021-01-01T00:00:00Z')), acquire(2, '12:00', 8, 9, more => layout('2021-01-01T00:00:00Z'));
SELECT change('2020-12-31T23:59:00Z');
SELECT * FROM lease;
SELECT c.layout, snowflake.greatest_id(r.starts_at + interval '-1 min', snowflake.layout_of(layout('2021-01-01T00:00:00Z') ->> 'layout')) < c.greatest_id AS below,
	snowflake.greatest_id(r.starts_at + '1 min', snowflake.layout_of(layout('2021-01-01T00:00:00Z') ->> 'layout')) = c.greatest_id AS least,
	abs(extract(epoch FROM r.starts_at - now() - interval '2 min 10 s')) < 60 AS starts_at
FROM snowflake.cluster AS c, snowflake.registry AS r;
SELECT renew(1, '12:00:30', 2), renew(1, '12:00:30', 2, layout('2020-12-31T23:59:00Z'));
SET test.details = on;
SELECT masked(acquire(1, '12:02', 6, 7, more => layout('2020-12-31T23:59:00Z')));
RESET test.details;
SELECT answer(snowflake.acquire_lease(node(3, soon('2 min 5 s')) || layout('2020-12-31T23:59:00Z') || '{"window": 100000000}')) ~ '^yes' AS then_granted;
-- again: nothing changes
CREATE TABLE before AS SELECT r.starts_at, c.greatest_id, c.layout FROM snowflake.registry AS r, snowflake.cluster AS c;
SELECT change('2020-12-31T23:59:00Z') IS NOT NULL AS again, count(*) AS open FROM snowflake.node_number WHERE token IS NOT NULL;
SELECT count(*) AS changed FROM (TABLE before EXCEPT SELECT r.starts_at, c.greatest_id, c.layout FROM snowflake.registry AS r, snowflake.cluster AS c) AS c;
-- what was allowed never falls, though the ids of this layout are much greater
SELECT change('2010-01-01T00:00:00Z') IS NOT NULL AS changed;
SELECT c.greatest_id > b.greatest_id AS greater, r.starts_at = b.starts_at AS starts_at FROM snowflake.registry AS r, snowflake.cluster AS c, before AS b;
DROP TABLE before;
-- refused where ids would be greater later only: when, or that they never are
SELECT start_again();
SELECT acquire(1, '12:00', more => layout('2021-01-01T00:00:00Z'));
SELECT not_changed('2021-01-01T01:00:00Z');
SELECT masked(error_of($$ SELECT snowflake.change_layout('timestamp 40, worker 3, sequence 1, tick 1ms, epoch 2021-01-01T00:00:00Z') $$)) ~ 'Those of the new layout stay less' AS less;
-- or the layout is full, which no order could undo
SELECT not_changed('2021-01-01T00:00:00Z', 20);
SELECT not_changed('2021-01-01T00:00:00Z', 1);
SELECT layout FROM snowflake.cluster;
SELECT count(*) AS open FROM snowflake.node_number WHERE token IS NOT NULL;
-- ends that are later than the longest window count, and so does what other layouts allowed
UPDATE snowflake.node_number SET leased_until = now() + '1 h', recorded_until = now() + '1 h';
SELECT not_changed('2020-12-31T23:58:00Z');
UPDATE snowflake.node_number SET leased_until = now() + '4 min';
SELECT change('2020-12-31T23:58:00Z');
UPDATE snowflake.cluster SET greatest_id = 9223372036854775807;
SELECT not_changed('2019-01-01T00:00:00Z');
-- with a longer limit it waits longer
SELECT start_again();
SELECT acquire(1, '12:00', more => layout('2021-01-01T00:00:00Z'));
SELECT snowflake.limit_leases('1 h');
SELECT change('2021-01-01T00:00:00Z'), change('2020-12-31T23:59:59Z');
-- before the first lease, the order only records; it is not for texts that no node writes
SELECT start_again();
SELECT snowflake.change_layout('twitter');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake.change_layout(NULL);
SELECT not_changed('2021-01-01T00:00:00Z', 20);
SELECT acquire(1, '12:00', more => layout('2021-01-01T00:00:00Z', 20));
SELECT count(*) FROM snowflake.cluster;
SELECT change('2021-01-01T00:00:00Z');
SELECT uses, layout, greatest_id FROM snowflake.cluster;
SELECT acquire_own(1, '12:00', more => layout('2021-01-01T00:00:00Z'));
SELECT uses, layout FROM snowflake.cluster;

--
-- What a role has taken is ended by the owner
--
SELECT start_again();
CREATE ROLE regress_snowflake_a;
CREATE ROLE regress_snowflake_b;
GRANT USAGE ON SCHEMA snowflake TO regress_snowflake_a, regress_snowflake_b;
GRANT EXECUTE ON FUNCTION snowflake.acquire_lease TO regress_snowflake_a, regress_snowflake_b;
SELECT node(1, '12:00', '{"first_number": 0, "last_number": 1, "window": 3600000000}') AS one, node(2, '12:00', '{"first_number": 2, "last_number": 3, "window": 3600000000}') AS two,
	node(3, '12:00', '{"first_number": 4, "last_number": 5, "window": 3600000000}') AS three \gset
SET SESSION AUTHORIZATION regress_snowflake_a;
SELECT snowflake.acquire_lease(:'one') ->> 'node_number', snowflake.acquire_lease(:'two') ->> 'node_number';
SET SESSION AUTHORIZATION regress_snowflake_b;
SELECT snowflake.acquire_lease(:'three') ->> 'node_number';
RESET SESSION AUTHORIZATION;
SELECT node_number, role FROM snowflake.leases ORDER BY 1;
SELECT snowflake.ids_end_before('2024-03-01 12:30Z', 'regress_snowflake_a');
SELECT * FROM number;
SELECT * FROM lease;
-- at their ends, where the time is later; at their start, where it is earlier
SELECT snowflake.ids_end_before('2024-03-01 14:00Z', 'regress_snowflake_b'), snowflake.ids_end_before('2020-01-01Z', 'regress_snowflake_b');
SELECT acquire(4, '12:40', 0, 1, more => jsonb_build_object('launched_at', 0));
SELECT snowflake.ids_end_before('2020-01-01Z', session_user::text);
SELECT * FROM number;
SELECT snowflake.ids_end_before('infinity', 'regress_snowflake_b');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake.ids_end_before(NULL, 'regress_snowflake_b');
SET timezone = 'UTC';
SELECT snowflake.ids_end_before('0001-12-31 23:59:59.999999Z BC', 'regress_snowflake_b');
SELECT snowflake.ids_end_before('10000-01-01Z', 'regress_snowflake_b');
SELECT snowflake.ids_end_before('9999-12-31 23:59:59.999999Z', 'regress_snowflake_b');
RESET timezone;
DROP OWNED BY regress_snowflake_a, regress_snowflake_b;
DROP ROLE regress_snowflake_a;
DROP ROLE regress_snowflake_b;

--
-- The view leases
--
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5);
SELECT acquire(1, '12:00', 6, 7, previous => 1, previous_end => '12:00:30');
-- all leases, with who it was, and without the secrets
SELECT node_number, datacenter_id, worker_id, clock, shown(starts_at) AS starts_at, shown(leased_until) AS leased_until, closed_at IS NULL AS open, kind, name, host_name, port,
	role = session_user AS role, system_identifier, timeline, incarnation, generation, fixed, layout, shown(launched_at) AS launched_at FROM snowflake.leases ORDER BY node_number \gx
SELECT attname FROM pg_attribute WHERE attrelid IN ('snowflake.leases'::regclass, 'snowflake.nodes'::regclass) AND attname IN ('token', 'start', 'granted_by');

--
-- What the tables keep, and what a dump has
--
SELECT start_again();
SELECT acquire(1, '12:00');
SELECT acquire(2, '12:00', 6, 7), release(2, '12:00:10');
\set VERBOSITY terse
DELETE FROM snowflake.node_number;
DELETE FROM snowflake.registry WHERE false;
DELETE FROM snowflake.cluster;
TRUNCATE snowflake.node_number;
TRUNCATE snowflake.registry, snowflake.cluster;
TRUNCATE snowflake.worker_node;
\set VERBOSITY default
TRUNCATE snowflake.cluster;
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
INSERT INTO snowflake.registry (incarnation, database, created_at, server) VALUES (id(1), 1, now(), '');
INSERT INTO snowflake.cluster (one, uses) VALUES (false, 'own');
UPDATE snowflake.cluster SET uses = 'both';
UPDATE snowflake.cluster SET incarnation = id(6);
UPDATE snowflake.cluster SET uses = 'another', incarnation = NULL;
UPDATE snowflake.node_number SET leased_until = starts_at - interval '1 us';
UPDATE snowflake.node_number SET leased_until = recorded_until + interval '1 us';
UPDATE snowflake.node_number SET token = NULL;
UPDATE snowflake.node_number SET node_number = -1 WHERE node_number = 4;
UPDATE snowflake.worker_node SET closed_at = now();
UPDATE snowflake.registry SET end_limit = '9 s';
\set VERBOSITY default
-- of the log, leases that may still allow ids stay; the others may go, and nothing depends on them
SELECT regexp_replace(refused, '[-0-9a-f]{36}', 'TOKEN') AS refused FROM (SELECT 1) AS one, LATERAL (SELECT error_of('DELETE FROM snowflake.worker_node') AS refused) AS d;
DELETE FROM snowflake.worker_node WHERE leased_until < now();
SELECT count(*) FROM snowflake.worker_node;
UPDATE snowflake.worker_node SET leased_until = now() + '1 min', closed_at = now();
SELECT regexp_replace(refused, '[-0-9a-f]{36}', 'TOKEN') AS refused FROM (SELECT 1) AS one, LATERAL (SELECT error_of('DELETE FROM snowflake.worker_node') AS refused) AS d;
SELECT acquire(2, '12:00:20', 6, 7), renew(1, '12:00:20', more => lease(1, 1, NULL, jsonb_build_object('leased_until', at('12:01'))));
-- without its row the registry grants nothing
BEGIN;
ALTER TABLE snowflake.registry DISABLE TRIGGER USER;
DELETE FROM snowflake.registry;
SELECT acquire(2, '12:00');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
-- where ids end, the log and where numbers come from are dumped; which registry it was is not
SELECT config::regclass, condition
FROM pg_extension, unnest(extconfig, extcondition) AS u (config, condition)
WHERE extname = 'snowflake_registry' ORDER BY config::regclass::text;
-- a record that is there stays, whatever a dump brings; but what other layouts allowed counts
SELECT start_again();
SELECT acquire_own(1, '12:00');
INSERT INTO snowflake.cluster (uses, incarnation, layout, greatest_id) VALUES ('another', id(7), layout('2019-01-01T00:00:00Z') ->> 'layout', 5);
INSERT INTO snowflake.cluster (uses, layout, greatest_id) VALUES ('own', layout_a(), 4);
TABLE snowflake.cluster;
-- an open lease that a dump brings is over: where the number's ids end
SELECT acquire(2, '12:00', 6, 7);
CREATE TABLE dumped AS SELECT n.node_number, n.leased_until, w.token, w FROM snowflake.node_number AS n JOIN snowflake.worker_node AS w USING (token);
SELECT start_again();
INSERT INTO snowflake.node_number (node_number, ended_until) SELECT node_number, leased_until FROM dumped;
INSERT INTO snowflake.worker_node SELECT (w).* FROM dumped;
SELECT node_number, shown(leased_until) AS leased_until, closed_at IS NULL AS open FROM snowflake.leases ORDER BY 1;
SELECT count(*) FROM snowflake.nodes;
DROP TABLE dumped;
-- A record that does not say where numbers come from learns it, if no lease was granted here
SELECT start_again();
SELECT change('2021-01-01T00:00:00Z');
SELECT used(4, 5, 1, '12:00');
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('another', id(7));
SELECT uses, incarnation FROM snowflake.cluster;
INSERT INTO snowflake.cluster (uses) VALUES ('own');
SELECT uses, incarnation FROM snowflake.cluster;
SELECT start_again();
SELECT acquire(1, '12:00');
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('another', id(7));
SELECT release(1, '12:00:30');
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('another', id(7));
SELECT uses, incarnation FROM snowflake.cluster;
-- Triggers that a restore with --disable-triggers has disabled: the next order, or start of the server, enables them, and counts what is in cluster
SELECT start_again();
ALTER TABLE snowflake.cluster DISABLE TRIGGER ALL;
INSERT INTO snowflake.cluster (uses, layout, greatest_id) VALUES ('own', layout_a(), 999999999);
ALTER TABLE snowflake.cluster ENABLE TRIGGER ALL;
ALTER TABLE snowflake.node_number ENABLE TRIGGER ALL;
ALTER TABLE snowflake.registry ENABLE TRIGGER ALL;
SELECT tgrelid::regclass, tgname, tgenabled FROM pg_trigger WHERE tgrelid IN ('snowflake.cluster'::regclass, 'snowflake.node_number'::regclass) AND tgenabled NOT IN ('A', 'R') ORDER BY 1, 2;
SELECT shown(starts_at) FROM snowflake.registry;
SELECT snowflake.ids_end_before('2060-01-01Z');
SELECT guard, times, detail FROM snowflake.guard WHERE guard = 'triggers';
SELECT tgrelid::regclass, tgname, tgenabled FROM pg_trigger WHERE tgrelid IN ('snowflake.cluster'::regclass, 'snowflake.node_number'::regclass) ORDER BY 1, 2;
SELECT starts_at = snowflake.start_above(c) FROM snowflake.registry, snowflake.cluster AS c;
ALTER TABLE snowflake.guard ENABLE TRIGGER ALL;
SELECT snowflake.start_server('{"clock": 0, "max_ahead": 0, "mark": null}') ->> 'answer';
SELECT snowflake.start_server('{"clock": 0, "max_ahead": 0, "mark": null}') ->> 'answer';
-- a window of 24 hours is that long when clocks are put forward, too
SET timezone = 'Europe/Berlin';
SELECT start_again();
SELECT acquire(1, '2024-03-30 12:00Z', more => '{"window": 86400000000}');
RESET timezone;

--
-- Programs: nodes without a port, a cluster and a timeline.  Several can have one name on one host.
--
SELECT start_again();
CREATE FUNCTION acquire_program(n int, clock text, first int DEFAULT 4, last int DEFAULT 5, more jsonb DEFAULT '{}') RETURNS text LANGUAGE sql
AS $$ SELECT answer(snowflake.acquire_lease(node(n, clock) - '{port,system_identifier,timeline}'::text[]
	|| jsonb_build_object('kind', 'program', 'name', 'orders-api', 'host_name', 'host1', 'first_number', first, 'last_number', last) || more)) $$;
SELECT acquire_program(1, '12:00'), renew(1, '12:00:30'), release(1, '12:00:40');
SELECT kind, name, system_identifier, host_name, port, timeline, fixed, node_number, shown(leased_until) AS leased_until FROM snowflake.leases;
-- what a server has is left unread
SELECT acquire_program(2, '12:01', more => '{"port": "x", "system_identifier": -1e30, "timeline": null}');
SELECT kind, name, w.system_identifier, port, timeline, n.system_identifier FROM snowflake.worker_node AS w JOIN snowflake.node_number AS n USING (token);
SELECT key, refusal(node(3, '12:00') || '{"kind": "program", "name": "a"}' || jsonb_build_object(key, value::jsonb)) FROM (VALUES ('name', '""'), ('name', 'null'),
	('name', to_jsonb(repeat('x', 256))::text), ('name', '"a\u001bb"'), ('name', '7'), ('host_name', 'null'), ('fixed', 'true')) AS v (key, value);
-- no server gets the number of a program as a fixed one while the lease goes on
SELECT start_again();
SELECT acquire_program(1, '12:00', 4, 5);
SET test.details = on;
SELECT acquire(2, '12:00:30', 4, 4, true);
RESET test.details;
SELECT acquire_own(3, '12:00:30', 4, 4, true);
SELECT acquire(2, '12:01', 4, 4, true);
-- nor is another layout accepted of a program
SELECT acquire_program(3, '12:02', 4, 5, layout('2019-01-01T00:00:00Z'));
-- a registry with a program is a root
SELECT start_again();
SELECT acquire_program(1, '12:00');
UPDATE snowflake.node_number SET leased_until = now() + '10 min', recorded_until = now() + '10 min';
SET test.details = on;
SELECT answer(snowflake.record_uses(jsonb_build_object('incarnation', id(7))));
RESET test.details;
UPDATE snowflake.node_number SET leased_until = '2024-01-02Z';
SELECT snowflake.record_uses(jsonb_build_object('incarnation', id(7))) ->> 'answer';
SELECT acquire_program(1, '12:00');
-- one that has used another registry is refused, until that is taken over; pg_upgrade closes its lease
SELECT start_again();
SET test.details = on;
SELECT acquire_program(1, '12:00', more => jsonb_build_object('uses', id(7)));
RESET test.details;
SELECT acquire_program(1, '12:00', more => jsonb_build_object('uses', id(99)));
UPDATE snowflake.registry SET server = '7/00000001';
SELECT renew(1, '12:00:30');
SELECT shown(leased_until) AS leased_until, closed_at IS NULL AS open FROM snowflake.worker_node;
-- a program has a name, a server has what a server has
\set VERBOSITY terse
UPDATE snowflake.worker_node SET name = NULL WHERE kind = 'program';
UPDATE snowflake.worker_node SET port = 1 WHERE kind = 'program';
UPDATE snowflake.worker_node SET kind = 'server' WHERE kind = 'program';
UPDATE snowflake.worker_node SET kind = 'other' WHERE kind = 'program';
\set VERBOSITY default

--
-- One look: the newest lease of each start that may still issue, or could go on
--
SELECT start_again();
SELECT acquire(n, soon('0'), n, n, true, more => jsonb_build_object('window', CASE n WHEN 4 THEN 170000000 ELSE 1 END)) ~ '^yes' FROM generate_series(3, 4) AS n;
-- over long ago; closed where it started; closed, and not over; asked again, and the former one is not over
SELECT acquire(5, '12:00', 5, 5, true);
SELECT acquire(6, '12:00', 6, 6, true);
SELECT release(6, '2023-01-01');
SELECT acquire(7, soon('0'), 7, 7, true, more => '{"window": 170000000}') ~ '^yes', release(7, soon('60 s'));
SELECT acquire(8, soon('0'), 8, 8, true, more => '{"window": 170000000}') ~ '^yes', acquire(8, soon('0'), 9, 9, true, 1, more => '{"window": 170000000}') ~ '^yes';
SELECT acquire_program(n, soon('0'), 10, 13, '{"window": 170000000}') ~ '^yes' FROM generate_series(10, 11) AS n;
-- half of its window is used
UPDATE snowflake.node_number SET renewed_at = renewed_at - interval '200 s' WHERE start = id(10);
SELECT CASE kind WHEN 'server' THEN n.node_number END AS node_number, kind, name, host_name, port, role = session_user AS role, layout = layout_a() AS layout,
	now() - renewed_at < '1 min' AS renewed, late, over
FROM snowflake.nodes AS n ORDER BY n.kind, CASE kind WHEN 'server' THEN n.node_number END, n.late;

--
-- In another database than postgres, such as a copy, every call is refused, and changes nothing.
--
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true);
CREATE TABLE before AS SELECT md5(n::text || w || r) AS rows FROM snowflake.node_number AS n, snowflake.worker_node AS w, snowflake.registry AS r;
DROP EVENT TRIGGER elsewhere;
SELECT replace(pg_get_functiondef('snowflake.check_database()'::regprocedure), 'NULL <> ', 'current_database() <> ') AS as_installed \gset
:as_installed;
CREATE TABLE call AS SELECT node(1, '12:00') || lease(1, 1, '12:00') || jsonb_build_object('incarnation', id(7), 'successor', id(99), 'created_at', 0, 'counted_at', NULL, 'limit', 10000000,
	'generation', 1, 'greatest_id', -1, 'taken_over', '[]'::jsonb, 'node_numbers', '[]'::jsonb, 'ends', '[]'::jsonb) AS call;
CREATE FUNCTION call(function regprocedure) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN error_of(format('SELECT %s(%s) FROM call', split_part(function::text, '(', 1), (SELECT string_agg(CASE a::regtype WHEN 'jsonb'::regtype THEN 'call'
		WHEN 'uuid'::regtype THEN quote_literal(id(7)) || '::uuid' WHEN 'timestamptz'::regtype THEN 'now()' WHEN 'interval'::regtype THEN quote_literal('1 h') || '::interval'
		ELSE quote_literal(layout_a()) || '::text' END, ', ') FROM pg_proc AS p, unnest(p.proargtypes) AS a WHERE p.oid = function)));
END
$$;
-- all functions that others call; one only looks
SELECT string_agg(p.oid::regprocedure::text, E'\n' ORDER BY p.oid::regprocedure::text COLLATE "C") AS functions, r.refused
FROM pg_proc AS p, call(p.oid::regprocedure) AS r (refused)
WHERE p.pronamespace = 'snowflake'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NOT NULL
GROUP BY r.refused ORDER BY r.refused COLLATE "C";
SELECT md5(n::text || w || r) = b.rows AS unchanged FROM snowflake.node_number AS n, snowflake.worker_node AS w, snowflake.registry AS r, before AS b;

\c :home
DROP DATABASE registry_rules;
