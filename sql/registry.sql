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

\d snowflake.worker_node
\d snowflake.registry
\d snowflake.cluster
\d snowflake.nodes
SELECT incarnation IS NOT NULL AS incarnation, now() - created_at < '1 min' AS created, generation, counted, counted_at, starts_at, taken_over
FROM snowflake.registry;
-- all members have a comment; no role but the owner may call one, and nobody else sees the tables
SELECT classid::regclass, objid FROM pg_depend
WHERE refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_registry') AND deptype = 'e'
	AND classid <> 'pg_type'::regclass	-- row types are members since PostgreSQL 17
	AND obj_description(objid, classid::regclass::text) IS NULL;
SELECT count(*) > 40 AS functions, bool_and(proconfig = '{"search_path=pg_catalog, pg_temp",standard_conforming_strings=on}') AS settings,
	bool_or(proacl IS NULL OR proacl::text ~ '[{,]=') AS public, array_agg(proname ORDER BY proname) FILTER (WHERE prosecdef) AS as_owner
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
CREATE FUNCTION next_call(n int) RETURNS bigint LANGUAGE sql
AS $$ SELECT coalesce(max(last_call), 0) + 1 FROM snowflake.worker_node WHERE start = id(n) $$;
-- the lease that a call of a start was granted, as a later call names it
CREATE FUNCTION lease(n int, granted bigint, ids_end text DEFAULT NULL) RETURNS jsonb LANGUAGE sql
AS $$ SELECT jsonb_build_object('lease', jsonb_build_object('granted_by', granted, 'ids_end_at', at(ids_end),
	'token', coalesce((SELECT token FROM snowflake.worker_node WHERE start = id(n) AND granted_by = granted), id(999)))) $$;
-- A node with a 16-number layout: 1 bit is the datacenter's, 2 the worker's, 1 the clock's.
CREATE FUNCTION node(n int, clock text, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('protocol', 1, 'start', id(n), 'call', next_call(n), 'lease', NULL,
		'kind', 'server', 'system_identifier', 7000 + n, 'host_name', 'host' || n, 'port', 5432, 'timeline', 1, 'launched_at', at('2024-02-01'),
		'layout', '{"definition": "A", "epoch": 1577836800000000, "tick": 1000, "fields": [["timestamp", 41], ["datacenter", 1], ["worker", 2], ["clock", 1], ["sequence", 4]]}'::jsonb,
		'layout_set', true, 'tick', 1000, 'clock', at(clock), 'max_ahead', 1000000, 'window', 60000000,
		'first_number', 4, 'last_number', 5, 'fixed', false, 'uses', NULL, 'ended', NULL, 'starts_at', NULL) || more
$$;
CREATE FUNCTION answer(answer jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', answer ->> 'answer', answer ->> 'reason', answer ->> 'node_number',
		'from ' || shown(snowflake.time_of((answer ->> 'starts_at')::bigint)), 'until ' || shown(snowflake.time_of((answer ->> 'leased_until')::bigint)))
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
CREATE VIEW lease AS
SELECT right(start::text, 2) AS start, granted_by, last_call, node_number, shown(starts_at) AS starts_at, shown(leased_until) AS leased_until,
	greatest_id >> 8 AS tick, closed_at IS NULL AS open
FROM snowflake.worker_node ORDER BY start, granted_by, node_number;
-- as if the extension had been created at the beginning of 2024
CREATE FUNCTION start_again() RETURNS void LANGUAGE sql AS $$
	DELETE FROM snowflake.worker_node;
	DELETE FROM snowflake.cluster;
	UPDATE snowflake.registry SET incarnation = id(99), created_at = '2023-12-31 23:59:59.999Z', generation = 1, counted = '{}', counted_at = NULL,
		system_identifier = (SELECT system_identifier FROM pg_control_system()), starts_at = NULL, taken_over = '{}', told = '{}',
		successor = NULL, closed_at = NULL, closed_by = NULL;
$$;
-- as a dump's rows are: of another incarnation
CREATE FUNCTION restore() RETURNS void LANGUAGE sql AS $$ UPDATE snowflake.worker_node SET incarnation = id(11) $$;

--
-- What a call must be.  Each value is refused by its name; keys that are not known are left unread.
--
CREATE FUNCTION refusal(call jsonb, function text DEFAULT 'acquire_lease') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	answer jsonb;
BEGIN
	EXECUTE format('SELECT snowflake.%I($1)', function) INTO answer USING call;
	RETURN answer ->> 'answer';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN format('%s %s: %s', SQLSTATE, replace(SQLERRM, ' in a registry call is out of range', ''), detail);
END
$$;
SELECT start_again();
SELECT refusal(NULL), refusal('[]'), refusal('{}'), refusal('{"protocol": 2}'), refusal('{"protocol": 0}'), refusal('{"protocol": "1"}'), refusal(node(1, '12:00') || '{"no_such_key": 1}') \gx
SELECT start_again();
-- each key, missing
SELECT key, refusal(node(1, '12:00') - key) FROM jsonb_object_keys(node(1, '12:00')) AS key
WHERE key NOT IN ('lease', 'uses', 'ended', 'starts_at') ORDER BY key COLLATE "C";
SELECT start_again(), refusal(node(1, '12:00') - '{lease,uses,ended,starts_at}'::text[]) AS without_the_others;
-- each key, out of range
SELECT key, left(value, 60) AS value, refusal(jsonb_set(node(1, '12:00') || '{"lease": {"token": "00000000-0000-0000-0000-000000000001", "granted_by": 1, "ids_end_at": 1709294430000000}, "call": 5}',
	string_to_array(key, '.'), value::jsonb))
FROM (VALUES ('start', '"x"'), ('start', '"{00000000-0000-0000-0000-000000000001}"'), ('call', '0'), ('call', '9223372036854775808'), ('call', '1.5'), ('call', '"7"'),
	('kind', '"other"'), ('kind', '1'), ('host_name', '""'), ('host_name', to_jsonb(repeat('x', 256))::text), ('host_name', '"a\u001bb"'), ('host_name', '"a\u007f"'), ('port', '65536'),
	('system_identifier', '1e30'), ('timeline', '0'), ('launched_at', '253402300800000000'), ('clock', '9224318015999999999'), ('clock', '1e300'),
	('clock', '-62135596800000001'), ('max_ahead', '-1'), ('max_ahead', '86400000001'), ('tick', '0'), ('tick', '1000001'), ('window', '0'), ('window', '172800000001'),
	('first_number', '8'), ('last_number', '15'), ('fixed', '"true"'), ('layout_set', 'null'), ('uses', '"own"'), ('ended', '{"ids_end_at": "now"}'), ('ended', '{}'), ('ended', '"none"'),
	('ended', '{"ids_end_at": 1709294430000000, "incarnation": 7}'), ('ended', '{"ids_end_at": 1709294430000000, "incarnation": "00000000-0000-0000-0000-000000000001", "generation": 0}'), ('starts_at', '"infinity"'), ('lease.token', 'null'), ('lease.granted_by', '5'), ('lease.ids_end_at', '"x"'), ('lease.ids_end_at', '253402300799999999'),
	('layout', 'null'), ('layout.definition', '""'), ('layout.epoch', 'true'), ('layout.tick', '0'), ('layout.fields', '{}'), ('layout.fields', '[]'),
	('layout.fields', '[["timestamp", 63], ["worker", 1]]'), ('layout.fields', '[["timestamp", 41], ["worker", 10]]'), ('layout.fields', '[["worker", 41], ["timestamp", 10], ["sequence", 1]]'),
	('layout.fields', '[["timestamp", 41], ["worker", 5], ["worker", 5], ["sequence", 1]]'), ('layout.fields', '[["timestamp", 41], ["machine", 5]]'),
	('layout.fields', '[["timestamp", 41], ["worker", 32], ["sequence", 1]]'), ('layout.fields', '[["timestamp", 41], ["worker", 10], ["sequence", 13]]'),
	('layout.fields', '["timestamp"]')) AS v (key, value);
SELECT key, refusal((node(1, '12:00') || '{"lease": {"token": "00000000-0000-0000-0000-000000000001", "granted_by": 1, "ids_end_at": 1709294430000000}, "call": 5}') - key, 'renew_lease') AS renew,
	refusal((node(1, '12:00') || '{"lease": {"token": "00000000-0000-0000-0000-000000000001", "granted_by": 1, "ids_end_at": 1709294430000000}, "call": 6}') - key, 'release_lease') AS release
FROM unnest('{protocol,start,call,lease,layout,clock,window}'::text[]) AS key;
SELECT refusal(node(1, '12:00') || '{"lease": {"token": "00000000-0000-0000-0000-000000000001", "granted_by": 1}, "call": 6}', 'release_lease');
SELECT refusal('{"protocol": 1, "after": {"node_number": -1}}', 'list_leases'), refusal('{"protocol": 1, "after": {"node_number": 1, "leased_until": "x"}}', 'list_leases'),
	refusal('{}', 'list_leases'), refusal('{}', 'start_server'), refusal('{"protocol": 1}', 'start_server'), refusal('{"protocol": 1}', 'record_uses') \gx
SELECT count(*) FROM snowflake.worker_node;
-- a lease whose ids go on stays open while another is asked for; what was granted since, and not used, ends where it started
SELECT start_again();
SELECT acquire(1, '12:00', 6, 6, true), acquire(1, '12:00:10', 7, 7, true, 1), acquire(1, '12:00:20', 5, 5, true, 1);
SELECT start, node_number, starts_at, leased_until, open FROM lease ORDER BY node_number;

--
-- All of a row and of an answer
--
SELECT start_again();
SELECT acquire(1, '12:00', 13, 13, true);
SELECT token IS NOT NULL AS token, start, granted_by, last_call, kind, system_identifier, host_name, port, timeline, incarnation, generation, fixed,
	node_number, datacenter_id, worker_id, clock, layout, greatest_id >> 8 = (at('12:01') - at('2020-01-01')) / 1000 - 1 AS last_tick, greatest_id & 255 AS rest,
	shown(launched_at) AS launched_at, shown(starts_at) AS starts_at, shown(leased_until) AS leased_until, now() - renewed_at < '1 min' AS renewed_at, closed_at
FROM snowflake.worker_node \gx
SELECT start_again();
SELECT jsonb_object_agg(key, CASE key WHEN 'clock' THEN to_jsonb(abs(value::bigint - at(shown(now()))) < 60000000) WHEN 'token' THEN to_jsonb(true)
	ELSE value END) AS answer FROM jsonb_each(snowflake.acquire_lease(node(1, '12:00') || '{"first_number": 6, "last_number": 6, "fixed": true}'));
SELECT snowflake.renew_lease(node(1, '12:00:30') || lease(1, 1)) - 'clock' AS renewed;
SELECT snowflake.release_lease(node(1, '12:00:30') || lease(1, 1, '12:00:31')) - 'clock' AS released;
-- parts, greatest ids and first times, at the ends of layouts too
SELECT l.name, p.*, shown((l.layout).ends_at) AS ends_at, shown(g.at) AS at, snowflake.greatest_id(g.at, l.layout) AS greatest_id,
	shown(snowflake.first_time_above(snowflake.greatest_id(g.at, l.layout), l.layout)) AS first_time
FROM (VALUES ('twitter', '{"definition": "t", "epoch": 1288834974657000, "tick": 1000, "fields": [["timestamp", 41], ["datacenter", 5], ["worker", 5], ["sequence", 12]]}', 1022),
	('sonyflake', '{"definition": "s", "epoch": 1409529600000000, "tick": 10000, "fields": [["timestamp", 39], ["sequence", 8], ["worker", 16]]}', 65534),
	('clocks', '{"definition": "c", "epoch": 0, "tick": 1000000, "fields": [["timestamp", 33], ["clock", 3], ["sequence", 3], ["worker", 5]]}', 255),
	('long', '{"definition": "l", "epoch": 1577836800000000, "tick": 1000000, "fields": [["timestamp", 61], ["sequence", 1], ["worker", 1]]}', 1),
	('short', '{"definition": "l", "epoch": 1577836800000000, "tick": 1000, "fields": [["timestamp", 1], ["sequence", 31], ["worker", 31]]}', 2147483646))
	AS v (name, text, number), LATERAL (SELECT v.name, snowflake.read_layout(jsonb_build_object('layout', v.text::jsonb)) AS layout) AS l,
	LATERAL snowflake.node_number_parts(v.number, l.layout) AS p,
	LATERAL (VALUES (snowflake.time_of((l.layout).epoch)), (snowflake.time_of((l.layout).epoch + (l.layout).tick)), ((l.layout).ends_at)) AS g (at);
-- ids above all times; from 18 on, a function's plan knows its arguments
SELECT snowflake.first_time_above(9223372036854775807, snowflake.read_layout('{"layout":
	{"definition": "l", "epoch": 1577836800000000, "tick": 1000000, "fields": [["timestamp", 61], ["sequence", 1], ["worker", 1]]}}'));

--
-- Choice of automatic numbers
--
-- those that were never leased first, at random; bit 0 is clear in odd generations
SELECT start_again();
SELECT acquire(1, '12:00', 4, 7) ~ '^yes [46]', acquire(2, '12:00', 4, 7) ~ '^yes [46]';
-- then none is free while a lease may be live
SELECT acquire(5, '12:00:59.999999', 4, 7);
\echo :LAST_ERROR_SQLSTATE
-- and set in even ones
UPDATE snowflake.registry SET generation = 2;
SELECT acquire(3, '12:00', 4, 7) ~ '^yes [57]', acquire(4, '12:00', 4, 7) ~ '^yes [57]';
SELECT acquire(5, '12:00:59.999999', 4, 7);
UPDATE snowflake.registry SET generation = 3;
SELECT acquire(5, '12:01', 4, 7) ~ '^yes [46]';
SELECT array_agg(node_number ORDER BY node_number) AS numbers, min(starts_at), max(leased_until) FROM lease;
-- whoever asks, with any range of two or more
SELECT start_again();
SELECT acquire(1, '12:00', 5, 6), acquire_own(2, '12:00', 7, 8);
UPDATE snowflake.registry SET generation = 2;
SELECT acquire(3, '12:00', 6, 7), acquire_own(4, '12:00', 8, 9);
SELECT acquire(5, '12:00', 6, 6);
\echo :LAST_ERROR_SQLSTATE
-- the longest unused one: starts where it ended; a renewal makes it younger
SELECT start_again();
SELECT acquire(n, '12:00', n, n, true) FROM generate_series(0, 6, 2) AS n;
SELECT renew(0, '12:04'), release(2, '12:03'), release(4, '12:00:10'), renew(6, '12:05');
SELECT acquire(10, '12:04', 0, 7);
SELECT acquire(11, '12:04', 0, 7);
SELECT acquire(12, '12:04', 0, 7);
SELECT acquire(12, '12:05', 0, 7);
SELECT * FROM lease;
-- of equal ends the lower number
SELECT start_again();
SELECT acquire(n, '12:00', n, n, true) FROM generate_series(4, 6, 2) AS n;
SELECT acquire(10, '12:02', 4, 7);
-- an open lease may be live by the registry's clock, too, if that is earlier; a closed one is not
SELECT start_again();
SELECT acquire(1, '2050-01-01', 4, 5);
\set VERBOSITY terse
SELECT acquire(2, '2050-01-02', 4, 5);
\set VERBOSITY default
SELECT release(1, '2050-01-01');
SELECT acquire(2, '2050-01-02', 4, 5);
-- by the node's clock a closed one can end in the future: never starts there
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5);
SELECT release(1, '12:00:30');
SELECT acquire(2, '12:00:29', 4, 5);
SELECT acquire(2, '12:00:30', 4, 5);
-- An autoanalyze that comes while many leases are inserted sees an empty table: calls then read all of it.
ALTER TABLE snowflake.worker_node SET (autovacuum_enabled = off);
-- how the unused numbers are chosen when most are used: all of them, and no other one
SELECT start_again();
INSERT INTO snowflake.worker_node (token, start, granted_by, last_call, kind, system_identifier, host_name, port, timeline, incarnation, generation, fixed,
	node_number, worker_id, layout, greatest_id, launched_at, starts_at, leased_until, renewed_at)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, 'server', 1, 'h', 1, 1, id(99), 1, false, n, 1, 'A', 1, now(), now(), now(), now()
FROM generate_series(0, 999) AS n WHERE n NOT IN (0, 1, 500, 998, 999);
SELECT array_agg(DISTINCT snowflake.unused_number(0, 999, 1)) FROM generate_series(1, 100);
SELECT array_agg(DISTINCT snowflake.unused_number(0, 998, 2)) FROM generate_series(1, 100);
SELECT array_agg(DISTINCT snowflake.unused_number(1, 999, 2)) FROM generate_series(1, 100);
SELECT array_agg(DISTINCT snowflake.unused_number(999, 999, 1)), array_agg(DISTINCT snowflake.unused_number(2, 499, 1)) FROM generate_series(1, 3);
-- of more than 16384 numbers, the longest unused of as many as that, or the next as many if none of those is free
SELECT start_again();
INSERT INTO snowflake.worker_node (token, start, granted_by, last_call, kind, system_identifier, host_name, port, timeline, incarnation, generation, fixed,
	node_number, worker_id, layout, greatest_id, launched_at, starts_at, leased_until, renewed_at)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, 'server', 1, 'h', 1, 1, id(99), 1, false, n, 1, 'A', 1, now(), '2023-01-01',
	CASE WHEN n IN (7, 32763, 32769, 65537, 65539) THEN '2024-01-01'::timestamptz + n * interval '1 s' ELSE '2024-01-03' END, now()
FROM generate_series(1, 65539, 2) AS n;
SELECT array_agg(DISTINCT snowflake.choose_automatic(1, 65539, 2, '2024-01-02', '2024-01-02')) FROM generate_series(1, 40);
SELECT array_agg(DISTINCT snowflake.choose_automatic(9, 32761, 2, '2024-01-03', '2024-01-03')) FROM generate_series(1, 3);
SELECT snowflake.choose_automatic(1, 65539, 2, '2024-01-01', '2024-01-02');
UPDATE snowflake.worker_node SET leased_until = '2024-01-03' WHERE node_number <> 32763;
SELECT array_agg(DISTINCT snowflake.choose_automatic(1, 65539, 2, '2024-01-02', '2024-01-02')) FROM generate_series(1, 20);
DELETE FROM snowflake.worker_node WHERE node_number = 65537;
SELECT array_agg(DISTINCT snowflake.choose_automatic(1, 65539, 2, '2024-01-01', '2024-01-01')) FROM generate_series(1, 3);
-- when few are used: they are spread
SELECT count(DISTINCT number) > 900 AS different, min(number) < 1::bigint << 58 AS low, max(number) > 7::bigint << 58 AS high,
	count(*) FILTER (WHERE number % 3 = 0) BETWEEN 250 AND 420 AS thirds
FROM generate_series(1, 1000) AS n, LATERAL (SELECT n, snowflake.unused_number(0, (1::bigint << 61) - 1, 1) AS number) AS u;

--
-- Where leases start
--
-- at the greatest end of the number's history, not only of the newest row
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true);
SELECT renew(1, '12:30'), release(1, '12:20');
SELECT acquire(2, '12:10', 4, 4, true);
SELECT release(2, '12:05');
SELECT * FROM lease;
-- also in rows that were restored; an open one is closed, and no other row is changed
SELECT restore();
SELECT acquire(3, '12:30', 5, 5, true);
SELECT restore();
UPDATE snowflake.worker_node SET leased_until = '2024-03-01 13:00Z' WHERE start = id(3);
SELECT acquire(4, '12:30', 5, 5, true);
SELECT acquire(4, '13:00', 5, 5, true);
SELECT acquire(5, '13:00', 4, 4, true);
SELECT * FROM lease;
-- they are no lease
UPDATE snowflake.worker_node SET closed_at = NULL WHERE start = id(1);
SELECT renew(1, '13:40');
SELECT release(1, '12:15');
SELECT * FROM lease WHERE start = '01';
-- after the creation of the tables, max_ahead and a tick, whatever the number; not if the clock is behind that
SELECT start_again();
UPDATE snowflake.registry SET created_at = '2024-03-01 12:00Z';
SELECT acquire(1, '12:00', 4, 5, more => '{"max_ahead": 2500000}');
SELECT acquire(1, '11:59:50', 6, 7, previous => 1, previous_end => '12:00:03');
SELECT acquire(1, '11:59:49.999999');
-- after the time of a count, in the same way; and at a time that is stored
SELECT start_again();
UPDATE snowflake.registry SET counted_at = '2024-03-01 12:00Z';
SELECT acquire(1, '12:00', 4, 5);
UPDATE snowflake.registry SET starts_at = '2024-03-01 12:00:05Z';
SELECT acquire(2, '12:00', 6, 7), acquire(2, '11:59:54', 8, 9, previous => 1, previous_end => '12:00:06');
SELECT acquire(3, '11:59:49');
-- another system identifier, as after pg_upgrade: the time is stored, and all rows are closed, as the server may
-- be a promoted one that does not know it
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true), acquire(2, '12:00', 6, 6, true);
UPDATE snowflake.registry SET system_identifier = 7;
SELECT renew(1, '12:00:30');
SELECT generation, counted_at IS NOT NULL AS counted FROM snowflake.registry;
SELECT * FROM lease;
-- a fixed number, which generations do not keep apart: after the node's clock, if the server was promoted
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true), acquire(2, '12:00', 6, 7);
UPDATE snowflake.registry SET generation = 2;
SELECT acquire(3, '12:00', 3, 3, true);
-- where the tables are its own, what a server knows holds for all; what its own max_ahead tells does not
SELECT start_again();
UPDATE snowflake.registry SET created_at = '2024-03-01 12:00Z';
SELECT acquire_own(1, '12:00', more => jsonb_build_object('max_ahead', 60000000, 'starts_at', at('12:01:00.001')));
SELECT acquire(2, '12:00', 6, 7);
SELECT acquire_own(3, '12:00', 8, 9, more => jsonb_build_object('max_ahead', 60000000, 'starts_at', at('12:01:00.002')));
SELECT acquire(4, '12:01', 10, 11);
-- after what the node knows of and the registry does not
SELECT start_again();
SELECT acquire(1, '12:00', more => jsonb_build_object('starts_at', at('12:00:11')));
SELECT acquire(2, '12:00', more => jsonb_build_object('starts_at', at('12:00:11.000001')));
SELECT acquire(2, '12:00', 6, 7, more => jsonb_build_object('ended', jsonb_build_object('ids_end_at', at('12:00:07'), 'incarnation', id(98), 'generation', 1)));
SELECT start_again();
SELECT acquire(1, '12:00', more => jsonb_build_object('ended', jsonb_build_object('ids_end_at', at('12:00:07'), 'incarnation', id(99), 'generation', 2)));
SELECT acquire(2, '12:00', 6, 7, more => jsonb_build_object('ended', jsonb_build_object('ids_end_at', at('12:00:07'), 'incarnation', id(98), 'generation', 1)));
SELECT start_again();
SELECT acquire(1, '12:00', more => jsonb_build_object('ended', jsonb_build_object('ids_end_at', at('12:00:07'), 'incarnation', id(99), 'generation', 1)));
-- not what others must heed
SELECT starts_at FROM snowflake.registry;
-- a clock past the layout's end, or a start there
SELECT acquire(2, '2090-01-01');
\echo :LAST_ERROR_SQLSTATE
SELECT shown(snowflake.time_of(at('2089-09-06 15:47:35.552'))) AS layout_end, acquire(2, '2089-09-06 15:47:30');
-- it ends there, and is not renewed
SELECT renew(2, '2089-09-06 15:47:31');
-- tables that are older than the layout's epoch: a lease that has issued nothing ends where it starts
SELECT start_again();
UPDATE snowflake.registry SET created_at = '2019-12-31 12:00Z';
SELECT acquire(1, '12:00');
SELECT acquire(1, '12:00', 6, 7, previous => 1, previous_end => '2019-12-31 12:00:01.001');
SELECT release(1, '2019-12-31 12:00:01.001', 2);
SELECT * FROM lease;

--
-- Calls of a start
--
-- a late call is refused, whatever it is
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true, more => '{"call": 7}');
SELECT acquire(1, '12:00', more => '{"call": 7}');
\echo :LAST_ERROR_SQLSTATE
SELECT renew(1, '12:01', 6, more => '{"call": 7}');
SELECT release(1, '12:00', 5, more => '{"call": 6}');
SELECT renew(1, '12:01', 7, more => '{"call": 8}'), renew(1, '12:01:30', 7, more => '{"call": 20}');
SELECT renew(1, '12:02', 7, more => '{"call": 19}');
SELECT * FROM lease;
-- a call that names the lease closes the others: those that were granted later where they started, the others as they are
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true);
UPDATE snowflake.worker_node SET closed_at = NULL;
SELECT acquire(1, '12:01', 5, 5, true, more => '{"call": 5}');
SELECT acquire(1, '12:02', 6, 6, true, more => '{"call": 6}');
UPDATE snowflake.worker_node SET closed_at = NULL;
SELECT renew(1, '12:03', 5);
SELECT * FROM lease;
-- also when the named one is not on record here: the number of its call tells
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true, more => '{"call": 3}');
SELECT acquire(1, '12:01', 5, 5, true, more => '{"call": 5}');
UPDATE snowflake.worker_node SET closed_at = NULL;
SELECT renew(1, '12:03', 4, more => '{"call": 9}');
SELECT * FROM lease;
-- none is named: all keep their ends
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true);
SELECT acquire(1, '12:01', 5, 5, true);
SELECT * FROM lease;
-- the named one ends where its ids end, not before it started; others' rows are not touched
SELECT acquire(2, '12:01', 6, 6, true);
SELECT acquire(1, '12:02', 7, 7, true, previous => 2, previous_end => '12:01:40');
SELECT acquire(1, '12:02', 8, 8, true, previous => 3, previous_end => '11:00');
SELECT * FROM lease;
-- a release; again; of what another start has; of a lease that is not the newest: the newer one was never opened
SELECT release(2, '12:01:30'), release(2, '12:01:20'), release(1, '12:01:50', 4, jsonb_build_object('start', id(2)) || '{"call": 9}');
SELECT acquire(2, '12:02', 9, 9, true);
SELECT release(2, '12:01:30');
SELECT * FROM lease WHERE start = '02';
-- a row that was restored after its number was granted again is not renewed, also of this incarnation and generation
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5);
CREATE TABLE salvaged AS TABLE snowflake.worker_node;
DELETE FROM snowflake.worker_node;
SELECT acquire(2, '12:00', 4, 5);
INSERT INTO snowflake.worker_node TABLE salvaged;
SELECT renew(1, '12:00:30'), renew(2, '12:00:30');
DROP TABLE salvaged;
-- the call that was granted the lease is told rightly
SELECT start_again();
SELECT acquire(1, '12:00');
SELECT renew(1, '12:00:30', more => '{"call": 3}' || jsonb_set(lease(1, 1), '{lease,granted_by}', '2'));
-- a renewal: only of an open row, of this incarnation and generation, and on record; else the answer is no
SELECT start_again();
SELECT acquire(1, '12:00');
SELECT renew(1, '12:00:30'), renew(1, '12:00:20'), renew(1, '12:10', more => '{"window": 172800000000}');
SELECT renew(1, '12:01', 1, jsonb_build_object('start', id(2)));
UPDATE snowflake.registry SET generation = 2;
SELECT renew(1, '12:01');
UPDATE snowflake.registry SET generation = 1, incarnation = id(98);
SELECT renew(1, '12:01');
UPDATE snowflake.registry SET incarnation = id(99);
SELECT renew(1, '12:01');
SELECT release(1, '12:01'), renew(1, '12:01');
SELECT * FROM lease;
-- after a no, the next lease starts at or after the end of the ids that the node says, whatever the tables know
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5);
UPDATE snowflake.registry SET generation = 2;
SELECT acquire(1, '12:00:20', 4, 5, previous => 1, previous_end => '12:00:21');
SELECT start_again();
SELECT acquire(1, '12:00:20', 4, 5, more => jsonb_build_object('call', 9) || lease(1, 7, '12:00:21'));
-- of this generation it need not
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5);
SELECT acquire(1, '12:00:20', 6, 7, previous => 1, previous_end => '12:00:21');

--
-- Fixed numbers
--
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true);
SELECT acquire(2, '12:00:59.999999', 4, 4, true);
\echo :LAST_ERROR_SQLSTATE
SELECT acquire(1, '12:00:30', 4, 4, true);
SELECT acquire(2, '12:01:30', 4, 4, true);
-- by the earlier clock
SELECT start_again();
SELECT acquire(1, '2050-01-01', 4, 4, true);
\set VERBOSITY terse
SELECT acquire(2, '2050-01-02', 4, 4, true);
\set VERBOSITY default
-- in the own table, an open row of the same server is closed at once; by whoever says that it is that server, it is not
SELECT start_again();
SELECT acquire_own(1, '12:00', 4, 4, true), acquire_own(2, '12:00:10', 4, 4, true, '{"system_identifier": 1}');
SELECT acquire(3, '12:00:20', 4, 4, true, more => jsonb_build_object('system_identifier', (SELECT system_identifier FROM pg_control_system())));
SELECT DISTINCT system_identifier = (SELECT system_identifier FROM pg_control_system()) AS own FROM snowflake.worker_node;
SELECT acquire_own(4, '12:00:30', 4, 4, true), acquire(5, '12:00:20', 6, 6, true);
SELECT acquire_own(6, '12:00:30', 6, 6, true);
-- the clocks of a number: the last one in which ids can go on, else an unused one, else that which ends first
SELECT start_again();
SELECT acquire(1, '12:00', 4, 5, true) ~ '^yes [45] ';
SELECT acquire(1, '12:05', 4, 5, true, previous => 1, previous_end => '12:03') ~ '^yes [45] from 12:03';
SELECT DISTINCT count(*) FROM snowflake.worker_node GROUP BY node_number;
SELECT acquire(1, '11:00', 4, 5, true, previous => 2, previous_end => '12:05') ~ '^yes [45] from 2024-01-01';
SELECT acquire(1, '11:00', 4, 5, true, previous => 3, previous_end => '12:04') ~ '^yes [45] from 12:04';
SELECT DISTINCT count(*) FROM snowflake.worker_node GROUP BY node_number;
-- one of them leased to another, if only by an automatic lease
SELECT start_again();
SELECT acquire(1, '12:05', 6, 7) ~ '^yes 6 ';
\set VERBOSITY terse
SELECT acquire(2, '12:05', 6, 7, true);
\set VERBOSITY default

--
-- Layouts
--
CREATE FUNCTION layout(name text, epoch text, bits int DEFAULT 41) RETURNS jsonb LANGUAGE sql
AS $$ SELECT jsonb_build_object('layout', jsonb_build_object('definition', name, 'epoch', at(epoch), 'tick', 1000,
	'fields', jsonb_build_array(jsonb_build_array('timestamp', bits)) || '[["worker", 4], ["sequence", 4]]')) $$;
SELECT start_again();
SELECT acquire(1, '12:00');
-- refused while others have leases; nobody has set it; its ids are not greater
SELECT acquire(2, '12:00:30', more => layout('B', '2019-01-01'));
\echo :LAST_ERROR_SQLSTATE
SELECT acquire(2, '12:02', more => layout('B', '2019-01-01') || '{"layout_set": false}');
SELECT acquire(2, '12:02', more => layout('B', '2021-01-01'));
SELECT acquire(2, '12:02', more => layout('B', '2021-01-01', 20));
-- accepted: from then on it is the recorded one, and leases start where all its ids are greater
SELECT acquire(2, '12:02', 6, 7, more => layout('B', '2019-01-01'));
-- all rows of the layout before are closed, so that none is renewed when it comes back
SELECT renew(1, '12:02');
SELECT renew(2, '12:02:20');
\echo :LAST_ERROR_SQLSTATE
SELECT renew(2, '12:02:30', more => layout('B', '2019-01-01'));
SELECT * FROM lease;
-- the same server does not stand in its own way; the time is stored
SELECT start_again();
SELECT acquire(1, '12:00');
\set VERBOSITY terse
SELECT acquire(3, '12:00:30', 6, 7, more => layout('C', '2019-12-31 23:59:30') || '{"system_identifier": 7001}');
SELECT acquire(3, '12:00:30', 6, 7, more => layout('C', '2019-12-31 23:59:30') || '{"host_name": "host1"}');
SELECT acquire(3, '12:00:30', 6, 7, more => layout('C', '2019-12-31 23:59:30') || '{"host_name": "host1", "system_identifier": 7001, "port": 5433}');
\set VERBOSITY default
SELECT acquire(3, '12:00:30', 6, 7, more => layout('C', '2019-12-31 23:59:30') || '{"host_name": "host1", "system_identifier": 7001}');
SELECT starts_at = snowflake.time_of(at('12:00:30')) AS stored FROM snowflake.registry;
-- not by a clock that is far ahead of the registry's
SELECT start_again();
SELECT acquire(1, '2050-01-01');
SELECT release(1, '2050-01-01');
SELECT acquire(2, '2050-01-02', more => layout('B', '2019-12-31'));
SELECT starts_at FROM snowflake.registry;
-- a lease that was closed where it started issued nothing
SELECT start_again();
SELECT acquire(1, '12:00');
SELECT release(1, '2023-01-01');
SELECT acquire(2, '12:00:30', more => layout('B', '2023-01-01'));
-- the newest lease is so by renewals, however the registry's clock was set when it was granted
SELECT start_again();
SELECT acquire(1, '12:00');
UPDATE snowflake.worker_node SET renewed_at = '2090-01-01';
SELECT release(1, '12:00:00.5');
SELECT acquire(2, '12:30', 6, 7, more => layout('B', '2019-01-01'));
SELECT renew(2, '12:30:30', more => layout('B', '2019-01-01'));
SELECT renewed_at > '2090-01-01' AS newest FROM snowflake.worker_node WHERE start = id(2);
-- the first tick in which all ids are greater, also if a tick is longer
SELECT start_again();
SELECT acquire(1, '12:00');
SELECT release(1, '12:00:00.5');
SELECT acquire(2, '12:30', more => jsonb_set(layout('D', '2021-01-01'), '{layout,tick}', '10000'));
-- rows of other incarnations count where this one has none
SELECT start_again();
SELECT acquire(1, '12:00');
SELECT release(1, '2023-01-01');
SELECT acquire(2, '12:00:30', more => layout('B', '2023-01-01'));
SELECT restore();
SELECT acquire(3, '12:02', more => layout('C', '2022-01-01'));
SELECT acquire(3, '12:02', more => layout('B', '2023-01-01'));

--
-- Pages of leases: each goes on where the last one stopped, and none is left out
--
SELECT start_again();
INSERT INTO snowflake.worker_node (token, start, granted_by, last_call, kind, system_identifier, host_name, port, timeline, incarnation, generation, fixed,
	node_number, worker_id, layout, greatest_id, launched_at, starts_at, leased_until, renewed_at, closed_at)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, 'server', 1, 'h', 1, 1, id(99), 1, false, n % 3, 1, 'A', 1,
	now(), '2024-01-01'::timestamptz + n / 2 * interval '1 s', '2024-01-01'::timestamptz + (n / 2 + 1) * interval '1 s', now(), now()
FROM generate_series(0, 24999) AS n;
CREATE FUNCTION pages(OUT page int, OUT leases int, OUT bytes int, OUT first int, OUT last int) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	answer jsonb := '{"next": null}';
BEGIN
	page := 0;
	LOOP
		answer := snowflake.list_leases(jsonb_build_object('protocol', 1, 'after', answer -> 'next'));
		SELECT page + 1, count(*), length(answer::text) / 1000000, min(n::int), max(n::int) INTO page, leases, bytes, first, last
		FROM jsonb_array_elements(answer -> 'node_numbers') AS n;
		RETURN NEXT;
		EXIT WHEN answer ->> 'next' IS NULL OR page > 9;
	END LOOP;
END
$$;
SELECT *, sum(leases) OVER (ORDER BY page) FROM pages();
-- all with one end: one page, however many
UPDATE snowflake.worker_node SET node_number = 1, starts_at = '2024-01-01', leased_until = '2024-02-01';
SELECT * FROM pages();
SELECT start_again();
SELECT snowflake.list_leases('{"protocol": 1}') - 'incarnation' AS nothing;
SELECT acquire(1, '12:00', 4, 5);
SELECT snowflake.list_leases('{"protocol": 1}');

--
-- What the tables keep, and what a dump has
--
SELECT start_again();
SELECT acquire(1, '12:00');
\set VERBOSITY terse
INSERT INTO snowflake.registry (incarnation, database, created_at, system_identifier) VALUES (id(1), 1, now(), 1);
INSERT INTO snowflake.cluster (one, uses) VALUES (false, 'own');
INSERT INTO snowflake.cluster (uses) VALUES ('both');
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('own', id(6));
INSERT INTO snowflake.cluster (uses) VALUES ('another');
UPDATE snowflake.worker_node SET leased_until = starts_at - interval '1 us';
UPDATE snowflake.worker_node SET leased_until = 'infinity';
UPDATE snowflake.worker_node SET node_number = -1;
\set VERBOSITY default
-- without its row the registry grants nothing
BEGIN;
DELETE FROM snowflake.registry;
SELECT acquire(2, '12:00');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
-- the history is dumped, which registry it was is not
SELECT config::regclass, condition
FROM pg_extension, unnest(extconfig, extcondition) AS u (config, condition)
WHERE extname = 'snowflake_registry' ORDER BY 1;
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
SELECT kind, name, system_identifier, host_name, port, timeline, fixed, node_number, shown(leased_until) AS leased_until FROM snowflake.worker_node;
-- what a server has is left unread
SELECT acquire_program(2, '12:01', more => '{"port": "x", "system_identifier": -1e30, "timeline": null}');
SELECT kind, name, system_identifier, port, timeline FROM snowflake.worker_node WHERE start = id(2);
SELECT key, refusal(node(3, '12:00') || '{"kind": "program", "name": "a"}' || jsonb_build_object(key, value::jsonb)) FROM (VALUES ('name', '""'), ('name', 'null'),
	('name', to_jsonb(repeat('x', 256))::text), ('name', '"a\u001bb"'), ('name', '7'), ('host_name', 'null'), ('fixed', 'true')) AS v (key, value);
-- its own server is no program
SELECT refusal(node(3, '12:00') || '{"kind": "program", "name": "a"}', 'acquire_own_lease');
-- no server gets the number of a program as a fixed one while the lease goes on
SELECT start_again();
SELECT acquire_program(1, '12:00', 4, 5);
SELECT acquire(2, '12:00:30', 4, 4, true);
SELECT acquire_own(3, '12:00:30', 4, 4, true);
SELECT acquire(2, '12:01', 4, 4, true);
-- nor is another layout accepted: neither of a server, nor of a program, whatever its name and host are
SELECT start_again();
SELECT acquire_program(1, '12:00', 4, 5);
SELECT acquire(2, '12:00:30', 4, 5, more => layout('B', '2019-01-01'));
SELECT acquire_program(3, '12:00:30', 4, 5, layout('B', '2019-01-01'));
SELECT acquire_program(3, '12:01', 4, 5, layout('B', '2019-01-01'));
-- a registry with a program is a root
SELECT start_again();
SELECT acquire_program(1, '12:00');
UPDATE snowflake.worker_node SET leased_until = '2050-01-01Z';
SELECT snowflake.record_uses(jsonb_build_object('protocol', 1, 'incarnation', id(7), 'host_name', 'host1', 'port', 5432));
UPDATE snowflake.worker_node SET leased_until = '2024-01-02Z';
SELECT snowflake.record_uses(jsonb_build_object('protocol', 1, 'incarnation', id(7), 'host_name', 'host1', 'port', 5432)) ->> 'answer';
SELECT acquire_program(1, '12:00');
-- one that has used another registry is refused, until that is taken over; pg_upgrade closes its lease
SELECT start_again();
SELECT acquire_program(1, '12:00', more => jsonb_build_object('uses', id(7)));
SELECT acquire_program(1, '12:00', more => jsonb_build_object('uses', id(99)));
UPDATE snowflake.registry SET system_identifier = system_identifier + 1;
SELECT renew(1, '12:00:30');
-- its rows go to the successor
SELECT start_again();
SELECT acquire_program(1, '12:00', 4, 5), acquire(2, '12:00', 6, 7);
SELECT snowflake.close_registry(id(98));
CREATE TABLE closed AS SELECT snowflake.closed_registry() AS registry;
SELECT start_again();
UPDATE snowflake.registry SET incarnation = id(98);
SELECT snowflake.take_over(registry) FROM closed;
SELECT kind, name, system_identifier, host_name, port, timeline, shown(leased_until) AS leased_until FROM snowflake.worker_node ORDER BY start;
SELECT acquire_program(1, '12:01:30', more => jsonb_build_object('uses', id(99)));
DROP TABLE closed;
-- a program has a name, a server has what a server has
\set VERBOSITY terse
UPDATE snowflake.worker_node SET name = NULL WHERE kind = 'program';
UPDATE snowflake.worker_node SET fixed = true WHERE kind = 'program';
UPDATE snowflake.worker_node SET port = 1 WHERE kind = 'program';
UPDATE snowflake.worker_node SET port = NULL WHERE kind = 'server';
UPDATE snowflake.worker_node SET name = 'a' WHERE kind = 'server';
\set VERBOSITY default

-- One look
SELECT start_again();
SELECT acquire(n, shown(now()), n, n, true, more => jsonb_build_object('window', CASE n WHEN 4 THEN 3600000000 ELSE 1 END)) ~ '^yes' FROM generate_series(3, 4) AS n;
SELECT acquire(5, '12:00', 5, 5, true);
SELECT acquire(6, '12:00', 6, 6, true);
SELECT release(6, '12:00');
SELECT acquire_program(n, shown(now()), 8, 11) ~ '^yes' FROM generate_series(7, 8) AS n;
UPDATE snowflake.worker_node SET generation = 7 WHERE node_number = 5;
SELECT pg_sleep(0.1);
SELECT CASE kind WHEN 'server' THEN node_number END AS node_number, kind, name, host_name, port, layout, now() - renewed_at < '1 min' AS renewed, late FROM snowflake.nodes AS n ORDER BY n.node_number;

--
-- In another database than postgres, such as a copy, every call is refused, and changes nothing.
--
SELECT start_again();
SELECT acquire(1, '12:00', 4, 4, true);
CREATE TABLE before AS SELECT md5(w::text || r) AS rows FROM snowflake.worker_node AS w, snowflake.registry AS r;
DROP EVENT TRIGGER elsewhere;
SELECT replace(pg_get_functiondef('snowflake.check_database()'::regprocedure), 'NULL <> ', 'current_database() <> ') AS as_installed \gset
:as_installed;
CREATE TABLE call AS SELECT node(1, '12:00') || lease(1, 1, '12:00') || jsonb_build_object('incarnation', id(7), 'successor', id(99), 'created_at', 0,
	'generation', 1, 'floor', 0, 'taken_over', '[]'::jsonb, 'rows', '[]'::jsonb) AS call;
CREATE FUNCTION call(function regprocedure) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	EXECUTE format('SELECT %s(%s) FROM call', split_part(function::text, '(', 1), CASE split_part(function::text, '(', 2) WHEN 'jsonb)' THEN 'call'
		WHEN 'uuid)' THEN quote_literal(id(7)) || '::uuid' WHEN 'timestamp with time zone)' THEN 'now()' ELSE 'true' END);
	RETURN 'carried out';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN format(E'%s: %s\n%s\n%s', SQLSTATE, SQLERRM, detail, hint);
END
$$;
-- all functions that are not parts of others
SELECT string_agg(p.oid::regprocedure::text, E'\n' ORDER BY p.oid::regprocedure::text COLLATE "C") AS functions, r.refused
FROM pg_proc AS p, call(p.oid::regprocedure) AS r (refused)
WHERE p.pronamespace = 'snowflake'::regnamespace AND obj_description(p.oid, 'pg_proc') !~ '^(part of the registry|trigger): '
GROUP BY r.refused;
SELECT md5(w::text || r) = b.rows AS unchanged FROM snowflake.worker_node AS w, snowflake.registry AS r, before AS b;

\c :home
DROP DATABASE registry_rules;
