-- The registry of node numbers: its functions, called as a node's lease worker does.
-- The server's own leases are in another database; here the tables are ours, and the
-- nodes' clocks show what we say.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS snowflake;
CREATE EXTENSION snowflake;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\set SHOW_CONTEXT never

\d snowflake.worker_node
\d snowflake.registry
\d snowflake.cluster
SELECT incarnation IS NOT NULL AS incarnation, now() - created_at < '1 min' AS created, generation, counted, starts_at
FROM snowflake.registry;

-- the n-th start, or token or incarnation
CREATE FUNCTION id(n int) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT lpad(n::text, 32, '0')::uuid $$;
CREATE FUNCTION at(clock text) RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT CASE WHEN clock LIKE '%-%' THEN clock ELSE '2024-03-01 ' || clock END::timestamptz $$;
CREATE FUNCTION next_call(n int) RETURNS bigint LANGUAGE sql
AS $$ SELECT coalesce(max(last_call), 0) + 1 FROM snowflake.worker_node WHERE start = id(n) $$;
-- the lease that a call of a start was granted
CREATE FUNCTION token(n int, granted bigint) RETURNS uuid LANGUAGE sql
AS $$ SELECT token FROM snowflake.worker_node WHERE start = id(n) AND granted_by = granted $$;
-- A node with a 16-number layout asks: 1 bit is the datacenter's, 2 the worker's, 1 the clock's.
CREATE FUNCTION acquire(n int, clock text, first bigint DEFAULT 4, last bigint DEFAULT 7, fixed boolean DEFAULT false,
	own boolean DEFAULT false, call bigint DEFAULT NULL, previous bigint DEFAULT NULL, previous_end text DEFAULT NULL,
	layout text DEFAULT 'timestamp 41, datacenter 1, worker 2, clock 1, sequence 4, epoch 2020-01-01T00:00:00Z',
	layout_set boolean DEFAULT true, version text DEFAULT '1.0', incarnation uuid DEFAULT NULL, cluster bigint DEFAULT NULL,
	known_until text DEFAULT NULL, known uuid DEFAULT NULL, node_floor text DEFAULT NULL, timelines text[] DEFAULT '{}', max_ahead interval DEFAULT '1 s', host text DEFAULT NULL, port int DEFAULT 5432,
	OUT node_number bigint, OUT starts_at timestamptz, OUT leased_until timestamptz)
LANGUAGE sql AS $$
	SELECT node_number, starts_at, leased_until
	FROM snowflake.grant_lease(version => version, start => id(n), call => coalesce(call, next_call(n)), own => own,
		incarnation => incarnation, first_number => first, last_number => last, fixed => fixed,
		layout => layout, layout_set => layout_set, tick => '1 ms',
		node_clock => at(clock), max_ahead => max_ahead, lease_window => '1 min',
		host_name => coalesce(host, 'host' || n), port => port, system_identifier => coalesce(cluster, CASE WHEN own THEN 7 ELSE 7000 + n END), timeline => 1,
		timelines => timelines, launched_at => '2024-02-01', known_until => at(known_until), known_incarnation => known, node_floor => at(node_floor),
		previous_token => token(n, previous), previous_end => at(previous_end))
$$;
CREATE FUNCTION renew(n int, until text, granted bigint DEFAULT 1, call bigint DEFAULT NULL,
	layout text DEFAULT 'timestamp 41, datacenter 1, worker 2, clock 1, sequence 4, epoch 2020-01-01T00:00:00Z',
	clock text DEFAULT '12:00') RETURNS timestamptz LANGUAGE sql
AS $$ SELECT snowflake.renew_lease('1.0', id(n), coalesce(call, next_call(n)), token(n, granted), at(until), layout, at(clock)) $$;
CREATE FUNCTION release(n int, until text, granted bigint DEFAULT 1, call bigint DEFAULT NULL) RETURNS boolean LANGUAGE sql
AS $$ SELECT snowflake.release_lease('1.0', id(n), coalesce(call, next_call(n)), token(n, granted), at(until)) $$;
CREATE VIEW lease AS
SELECT right(start::text, 2) AS start, granted_by, last_call, node_number, starts_at, leased_until, closed_at IS NULL AS open
FROM snowflake.worker_node ORDER BY start, granted_by, node_number;
-- as if the extension had been created at the beginning of 2024
CREATE FUNCTION start_again() RETURNS void LANGUAGE sql AS $$
	DELETE FROM snowflake.worker_node;
	DELETE FROM snowflake.cluster;
	UPDATE snowflake.registry SET incarnation = id(99), created_at = '2023-12-31 23:59:59.999Z', generation = 1, counted = '{}', system_identifier = 7,
		starts_at = '-infinity';
$$;
-- as a dump's rows are: of another incarnation
CREATE FUNCTION restore() RETURNS void LANGUAGE sql AS $$ UPDATE snowflake.worker_node SET incarnation = id(11) $$;

-- all of a row
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 13, 13);
SELECT token IS NOT NULL AS token, start, granted_by, last_call, system_identifier, host_name, port, timeline, incarnation,
	node_number, datacenter_id, worker_id, clock, layout, launched_at, starts_at, leased_until,
	now() - renewed_at < '1 min' AS renewed_at, closed_at
FROM snowflake.worker_node \gx
SELECT token = (SELECT token FROM snowflake.worker_node WHERE node_number = 6) AS token, registry_incarnation, node_number,
	registry_clock - now() < '1 min' AS registry_clock
FROM snowflake.acquire_lease('1.0', id(2), 1, false, id(99), 6, 6, false,
	'timestamp 41, datacenter 1, worker 2, clock 1, sequence 4, epoch 2020-01-01T00:00:00Z', true, '1 ms',
	at('12:00'), '1 s', '1 min', 'host2', 5432, 2, 1, NULL, at('11:00'), NULL, NULL, NULL, NULL, NULL);
SELECT n.node_number, l.layout, p.*
FROM (VALUES ('twitter', 1022), ('leaf', 1022), ('discord', 33), ('sonyflake', 65534), ('timestamp 41, clock 3, sequence 3, worker 5', 255)) AS l (layout, number),
	snowflake_layout(l.layout) AS d, LATERAL (SELECT l.number::bigint) AS n (node_number),
	snowflake.node_number_parts(n.node_number, d.definition) AS p;

-- automatic numbers: those that were never leased first, at random
SELECT start_again();
SELECT count(acquire(n, '12:00')) FROM generate_series(1, 4) AS n;
SELECT array_agg(node_number ORDER BY node_number) AS numbers, min(starts_at), max(leased_until) FROM lease;
-- then none is free while a lease may be live
SELECT * FROM acquire(5, '12:00:59.999999');
\echo :LAST_ERROR_SQLSTATE
-- the longest unused one: starts where it ended; a renewal makes it younger
SELECT start_again();
SELECT count(acquire(n, '12:00', n, n)) FROM generate_series(4, 7) AS n;
SELECT renew(4, '12:05'), release(5, '12:03'), release(6, '12:00:10'), renew(7, '12:06');
SELECT * FROM acquire(10, '12:04');
SELECT * FROM acquire(11, '12:04');
SELECT * FROM acquire(12, '12:04');
SELECT * FROM acquire(12, '12:05');
SELECT * FROM lease;
-- of equal ends the lower number
SELECT start_again();
SELECT count(acquire(n, '12:00', n, n)) FROM generate_series(4, 7) AS n;
SELECT * FROM acquire(10, '12:02');
-- an open lease may be live by the registry's clock, too, if that is earlier; a closed one is not
SELECT start_again();
SELECT * FROM acquire(1, '2090-01-01', 4, 4);
\set VERBOSITY terse
SELECT * FROM acquire(2, '2090-01-02', 4, 4);
\set VERBOSITY default
SELECT release(1, '2090-01-01');
SELECT * FROM acquire(2, '2090-01-02', 4, 4);
-- by the node's clock a closed one can end in the future: never starts there
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT release(1, '12:00:30');
SELECT * FROM acquire(2, '12:00:29', 4, 4);
SELECT * FROM acquire(2, '12:00:30', 4, 4);

-- how the unused numbers are chosen when most are used: all of them, and no other one
SELECT start_again();
SELECT count(acquire(n, '12:00', n, n, layout => 'twitter')) FROM generate_series(0, 999) AS n WHERE n NOT IN (0, 1, 500, 998, 999);
SELECT array_agg(DISTINCT snowflake.unused_number(0, 999, 1)) FROM generate_series(1, 100);
SELECT array_agg(DISTINCT snowflake.unused_number(0, 998, 2)) FROM generate_series(1, 100);
SELECT array_agg(DISTINCT snowflake.unused_number(1, 999, 2)) FROM generate_series(1, 100);
SELECT array_agg(DISTINCT snowflake.unused_number(999, 999, 1)), array_agg(DISTINCT snowflake.unused_number(2, 499, 1)) FROM generate_series(1, 3);
-- when few are used: they are spread
SELECT count(DISTINCT number) > 900 AS different, min(number) < 1::bigint << 58 AS low, max(number) > 7::bigint << 58 AS high,
	count(*) FILTER (WHERE number % 3 = 0) BETWEEN 250 AND 420 AS thirds
FROM generate_series(1, 1000) AS n, LATERAL (SELECT n, snowflake.unused_number(0, (1::bigint << 61) - 1, 1) AS number) AS u;

-- starts at the greatest end of the number's history, not only of the newest row
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT renew(1, '12:30'), release(1, '12:20');
SELECT * FROM acquire(2, '12:10', 4, 4, fixed => true);
SELECT release(2, '12:05');
SELECT * FROM lease;
-- also in rows that were restored; an open one is closed, and no other row is changed
SELECT restore();
SELECT * FROM acquire(3, '12:30', 5, 5);
SELECT restore();
UPDATE snowflake.worker_node SET leased_until = at('13:00') WHERE start = id(3);
SELECT * FROM acquire(4, '12:30', 5, 5);
SELECT * FROM acquire(4, '12:30', 5, 5, fixed => true);
SELECT * FROM acquire(4, '13:00', 5, 5);
SELECT * FROM acquire(5, '13:00', 4, 4);
SELECT * FROM lease;
-- they are no lease
UPDATE snowflake.worker_node SET closed_at = NULL WHERE start IN (id(1), id(2));
SELECT renew(1, '13:40') IS NULL AS history, release(2, '12:15');
SELECT * FROM lease WHERE start < '05';
-- nor is it harmful that they come when a lease was granted
UPDATE snowflake.worker_node SET node_number = 4, leased_until = '2090-01-01', renewed_at = '2090-01-01', layout = 'an old one'
WHERE start = id(1);
SELECT renew(5, '13:30');
SELECT release(5, '13:20');
SELECT * FROM acquire(6, '13:30', 6, 6);
-- later ones start after them, too
UPDATE snowflake.worker_node SET leased_until = at('13:40'), renewed_at = '2000-01-01' WHERE start = id(1);
SELECT * FROM acquire(7, '13:50', 4, 4);

-- fixed numbers: refused while another start's lease may be live
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4, fixed => true);
SELECT * FROM acquire(2, '12:00:59.999999', 4, 5, fixed => true);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(2, '12:00', 6, 6, fixed => true);
SELECT release(1, '12:00:30');
SELECT * FROM acquire(3, '12:00', 4, 5, fixed => true);
SELECT * FROM acquire(4, '12:02', 4, 5, fixed => true);
SELECT renew(3, '12:10') IS NULL AS closed;
-- its own lease does not keep a start out
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4, fixed => true);
SELECT * FROM acquire(1, '12:00', 4, 4, fixed => true, previous => 1);
-- by the earlier clock
SELECT start_again();
SELECT * FROM acquire(1, '2090-01-01', 4, 4, fixed => true);
SELECT * FROM acquire(2, '2090-01-02', 4, 4, fixed => true);
-- in the own table a lease of the same cluster does not count, but another cluster's does
SELECT start_again();
SELECT * FROM acquire(21, '12:00', 6, 6, fixed => true, cluster => 7, own => true);
SELECT * FROM acquire(22, '12:00', 6, 6, fixed => true, cluster => 2, own => true);
SELECT * FROM acquire(22, '12:00', 6, 6, fixed => true, cluster => 7);
SELECT * FROM acquire(22, '12:00', 6, 6, fixed => true, cluster => 7, own => true);
SELECT * FROM lease;
-- with a clock field: the last number in which ids can go on, another one if there is none, else the one that ends first
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 6, 6, fixed => true);
SELECT * FROM acquire(1, '12:00:29', 6, 7, fixed => true, previous => 1, previous_end => '12:00:30');
SELECT * FROM acquire(1, '12:00', 6, 7, fixed => true, previous => 2, previous_end => '12:00:30');
SELECT * FROM acquire(1, '11:00', 6, 7, fixed => true, previous => 3, previous_end => '12:00:40');
-- one of them leased to another, if only by an automatic lease
SELECT * FROM acquire(2, '12:05', 6, 7);
SELECT * FROM acquire(1, '12:05', 6, 7, fixed => true);

-- the generation: what the timeline history has that was not counted; leases start after it
SELECT start_again();
SELECT * FROM snowflake.start_server('1.0', '{}', at('12:00'), '1 s', '1 ms', 7);
SELECT * FROM snowflake.start_server('1.0', '{1/0/30}', at('12:00'), '1 s', '1 ms', 7);
SELECT * FROM snowflake.start_server('1.0', '{1/0/30}', at('13:00'), '1 s', '1 ms', 7);
SELECT generation, counted, starts_at FROM snowflake.registry;
SELECT * FROM snowflake.start_server('1.0', '{1/0/30,2/0/40,3/0/50,3/0/50}', at('11:00'), '1 s', '1 ms', 7);
SELECT generation, starts_at FROM snowflake.registry;
SELECT * FROM snowflake.start_server('1.0', '{}', at('13:00'), '1 s', '1 ms', 7);
-- pg_upgrade makes another system and leaves no history; leases start after it as well
SELECT * FROM snowflake.start_server('1.0', '{}', at('14:00'), '1 s', '1 ms', 8);
SELECT generation, system_identifier, starts_at FROM snowflake.registry;
SELECT start_again();
SELECT system_identifier FROM snowflake.registry;
SELECT * FROM acquire(1, '12:00', 3, 3, fixed => true, own => true);
SELECT * FROM acquire(2, '12:01', 4, 4, fixed => true, own => true);
SELECT * FROM acquire(3, '12:02', 5, 5, fixed => true, own => true, cluster => 8);
SELECT * FROM acquire(4, '12:01', 6, 6, fixed => true, own => true, cluster => 8);
SELECT system_identifier, starts_at FROM snowflake.registry;
SELECT start_again();
SELECT generation FROM snowflake.start_server('1.0', '{1/0/30,2/0/40,3/0/50}', at('12:00'), '1 s', '1 ms', 7);
-- bit 0 of automatic numbers; another cluster's generation is not counted
SELECT array_agg(DISTINCT node_number) FROM generate_series(1, 7) AS n, LATERAL acquire(n, '12:00', 0, 14, own => true, timelines => '{1/0/30}');
SELECT * FROM acquire(9, '12:00', 0, 12, own => true);
\echo :LAST_ERROR_SQLSTATE
SELECT array_agg(DISTINCT node_number), min(starts_at), max(starts_at)
FROM generate_series(11, 18) AS n, LATERAL acquire(n, '12:01', 0, 14, own => true, timelines => '{5/0/60}');
SELECT start_again();
UPDATE snowflake.registry SET generation = 2;
SELECT array_agg(DISTINCT node_number) FROM generate_series(21, 24) AS n, LATERAL acquire(n, '12:01', 0, 3, timelines => '{1/0/30}');
SELECT generation FROM snowflake.registry;
-- the longest unused one of these
SELECT start_again();
SELECT count(acquire(n, '12:00', n - 10, n - 10, fixed => true)) FROM unnest('{11, 13, 10, 12}'::int[]) AS n;
SELECT renew(10, '12:03'), renew(12, '12:03');
SELECT * FROM acquire(1, '12:05', 0, 3, own => true);
-- two bits are needed, but for a fixed number
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 0, 0, own => true, layout => 'twitter');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(1, '12:10', 0, 0, fixed => true, own => true, layout => 'twitter');
SELECT * FROM acquire(2, '12:00', 0, 2, own => true, timelines => NULL);
SELECT * FROM acquire(2, '12:00', 0, 2, own => true, timelines => '{NULL}');

-- where leases start: not before the table was made, with the asking node's max_ahead
SELECT start_again();
UPDATE snowflake.registry SET created_at = at('12:00');
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT * FROM acquire(2, '12:00', 5, 5, max_ahead => '1 h');
SELECT * FROM acquire(3, '11:59:50', 6, 6);
SELECT * FROM acquire(4, '11:59:49.999999', 7, 7);
\echo :LAST_ERROR_SQLSTATE
-- nor before the generation
UPDATE snowflake.registry SET starts_at = at('12:00:20');
SELECT * FROM acquire(4, '12:00:09', 7, 7);
SELECT * FROM acquire(5, '12:00:08.999999', 8, 8);
\echo :LAST_ERROR_SQLSTATE
-- nor before what the node knows of former tables; in the own one that holds for all
UPDATE snowflake.registry SET starts_at = '-infinity';
SELECT * FROM acquire(5, '12:05', 8, 8, known_until => '12:05:11.000001');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(5, '12:05', 8, 8, known_until => '12:05:03');
SELECT * FROM acquire(6, '12:05', 9, 9);
SELECT * FROM acquire(7, '12:05', 10, 10, own => true, fixed => true, known_until => '12:05:03');
SELECT * FROM acquire(8, '12:05', 12, 12, own => true, fixed => true);
-- what it knows of this table is no matter
SELECT * FROM acquire(7, '12:05', 14, 14, own => true, fixed => true, known_until => '2090-01-01', known => id(99), previous => 1, previous_end => '12:05:01');
SELECT * FROM acquire(7, '12:05', 14, 14, own => true, fixed => true, known_until => '2090-01-01', known => id(98));
-- but ids that this registry does not know of count for all leases of the start
UPDATE snowflake.registry SET starts_at = '-infinity';
SELECT * FROM acquire(5, '12:05', 2, 2, node_floor => '12:05:04', known_until => '12:05:03', known => id(99), previous => 1, previous_end => '12:05:04');
SELECT * FROM acquire(5, '12:05', 3, 3, node_floor => '12:05:11.000001', previous => 2, previous_end => '12:05:04');

-- calls of a start: a late one is refused, whatever it is
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4, call => 5);
SELECT * FROM acquire(1, '12:00', 5, 5, call => 5);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(1, '12:00', 5, 5, call => 4);
SELECT renew(1, '12:10', 5, call => 5);
SELECT release(1, '12:00', 5, call => 3);
SELECT * FROM snowflake.hand_over('1.0', false, id(11), NULL, '{}', '{}', '{}', id(1), 4, 'host1', 5432, 1, 1, '2024-02-01');
SELECT renew(1, '12:10', 5, call => 8);
SELECT renew(1, '12:20', 5, call => 7);
SELECT release(1, '12:05', 5, call => 10), release(1, '12:01', 5, call => 12);
SELECT * FROM acquire(1, '12:00', 5, 5, call => 11);
SELECT * FROM lease;
-- the lease that it names ends where it says, which can only be later if the registry lost a renewal
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT * FROM acquire(1, '12:00', 5, 5, previous => 1, previous_end => '12:00:30');
SELECT * FROM acquire(1, '12:00', 6, 6, previous => 2, previous_end => '18:00');
SELECT * FROM acquire(1, '12:00', 7, 7, previous => 3, previous_end => '2023-01-01');
SELECT * FROM lease;
-- a closed one is left alone, as one that was taken over is
SELECT * FROM acquire(1, '12:00', 8, 8, previous => 1, previous_end => '12:00:10');
SELECT * FROM lease;
-- of those it does not name, a later one never reached the node, and an earlier one may have issued ids until its end
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT * FROM acquire(1, '12:00', 5, 5, previous => 1);
SELECT * FROM lease;
SELECT renew(1, '12:10', 1);
SELECT * FROM acquire(1, '12:00', 6, 6, previous => 1);
SELECT release(1, '12:00:10', 4);
SELECT * FROM lease;
-- all others if it names no lease, or one of another start
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT * FROM acquire(2, '12:00', 5, 5);
SELECT snowflake.release_lease('1.0', id(2), 9, token(1, 1), at('12:00:20'));
SELECT snowflake.renew_lease('1.0', id(2), 10, token(1, 1), at('12:30'), 'twitter', at('12:00'));
SELECT * FROM lease;
SELECT * FROM acquire(1, '12:00', 6, 6);
SELECT * FROM lease;
-- restored rows of the start are closed as they are
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT restore();
SELECT * FROM acquire(1, '12:00', 5, 5, previous => 1, previous_end => '12:00:10');
SELECT * FROM lease;

-- renewal: raises the end of an open lease, never lowers it
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
UPDATE snowflake.worker_node SET renewed_at = '2024-01-01';
SELECT renew(1, '12:02'), renew(1, '12:01:30');
SELECT renewed_at > '2024-01-01' AS renewed FROM snowflake.worker_node;
SELECT renew(1, '12:30', 7) IS NULL AS unknown;
SELECT renew(1, '12:30') IS NULL AS closed, renew(3, '12:30') IS NULL AS unknown;
SELECT * FROM lease;
-- release: the end becomes the true end of its ids
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT release(1, '12:00:40'), release(1, '12:00:20'), release(1, '12:00:10', 9), release(3, '12:00');
SELECT * FROM lease;

-- layouts: as long as nothing was issued, any
\set old 'timestamp 41, worker 4, sequence 4, tick 1ms, epoch 2020-01-01T00:00:00Z'
\set wide 'timestamp 41, worker 4, sequence 12, tick 1ms, epoch 2020-01-01T00:00:00Z'
\set slow 'timestamp 35, worker 4, sequence 12, tick 10ms, epoch 2020-01-01T00:00:00Z'
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4, layout => :'wide');
SELECT release(1, '2023-01-01');
SELECT * FROM acquire(1, '12:00', 5, 5, layout => :'old', layout_set => false);
-- one that nobody set replaces no other one; the same is not asked for
SELECT * FROM acquire(2, '12:02', 6, 6, layout => :'wide', layout_set => false);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(2, '12:02', 6, 6, layout => :'old', layout_set => false);
-- while another server may issue ids
SELECT * FROM acquire(3, '12:02:59.999999', 7, 7, layout => :'wide');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
SELECT * FROM acquire(3, '12:02:59', 7, 7, layout => :'wide', host => 'host2');
SELECT * FROM acquire(3, '12:02:59', 7, 7, layout => :'wide', cluster => 7002);
SELECT * FROM acquire(3, '12:02:59', 7, 7, layout => :'wide', host => 'host2', cluster => 7002, port => 5433);
\set VERBOSITY default
SELECT * FROM acquire(3, '12:02:59.999999', 7, 7, layout => :'wide', host => 'host2', cluster => 7002);
-- from then on the other one is refused, and a server with the new one starts after all ids of the old one
SELECT renew(2, '12:10', 2, layout => :'old') AS not_known;
SELECT renew(2, '12:10', layout => :'old');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(4, '12:02', 8, 8, layout => :'old', layout_set => false);
SELECT * FROM acquire(4, '12:02:55', 8, 8, layout => :'wide');
SELECT starts_at FROM snowflake.registry;
SELECT renew(3, '12:10', layout => :'wide', clock => '12:03');
-- a lease that was closed where it started issued nothing: the one before counts again
SELECT release(3, '2023-01-01');
UPDATE snowflake.worker_node SET closed_at = now(), leased_until = starts_at WHERE start = id(4);
SELECT renew(2, '12:10', layout => :'old');

-- by the earlier clock
SELECT start_again();
SELECT * FROM acquire(1, '2050-01-01', 4, 4, layout => :'old');
SELECT * FROM acquire(2, '2050-01-02', 5, 5, layout => :'wide');
-- the ids that such a lease might have issued do not count
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4, layout => :'wide');
SELECT release(1, '2023-01-01');
SELECT * FROM acquire(2, '12:00', 5, 5, layout => :'old');
SELECT release(2, '12:00:00.5');
SELECT * FROM acquire(3, '12:00', 6, 6, layout => 'timestamp 41, worker 3, sequence 5, epoch 2020-01-01T00:00:00Z');
-- leases of the new layout start where the ids of the old one end, also those of servers whose clock is behind
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4, layout => :'old');
SELECT release(1, '12:00:00.5');
SELECT * FROM acquire(2, '12:00', 5, 5, layout => 'timestamp 41, worker 3, sequence 5, epoch 2020-01-01T00:00:00Z');
SELECT * FROM acquire(3, '11:59:55', 6, 6, layout => 'timestamp 41, worker 3, sequence 5, epoch 2020-01-01T00:00:00Z');

-- the first time that is late enough: of the first tick that is greater than all ids
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4, layout => :'wide');
SELECT release(1, '12:00:00.5');
SELECT * FROM acquire(2, '12:30', 5, 5, layout => :'old');
SELECT * FROM acquire(2, '12:30', 5, 5, layout => 'timestamp 41, worker 4, sequence 11, epoch 2021-01-01T00:00:00Z');
SELECT * FROM acquire(2, '12:30', 5, 5, layout => :'slow');
SELECT * FROM acquire(2, '2028-04-30 23:59:59.999999', 5, 5, layout => 'timestamp 41, worker 4, sequence 11, epoch 2020-01-01T00:00:00Z');
SELECT * FROM acquire(2, '2028-05-01', 5, 5, layout => 'timestamp 41, worker 4, sequence 11, epoch 2020-01-01T00:00:00Z');
SELECT snowflake.greatest_id(t, :'slow'), snowflake_timestamp(nullif(snowflake.greatest_id(t, :'slow'), -1), :'slow')
FROM unnest('{2019-01-01, 2020-01-01 00:00:00.009, 2020-01-01 00:00:00.01, 2024-01-01 00:00:00.019999, 2024-01-01 00:00:00.02, 2290-01-01}'::timestamptz[]) AS t;
SELECT id, snowflake.first_time_above(id, :'slow') FROM unnest(ARRAY[-1, 0, 65535, 65536, 9223372036854775807]) AS id;
SELECT snowflake.first_time_above(snowflake_min_id('infinity', :'slow') - 65536, :'slow') = last_id_time AS last,
	snowflake.first_time_above(snowflake_min_id(last_id_time, :'slow'), :'slow') AS never FROM snowflake_layout(:'slow');
-- all other layouts count, of restored rows too; and if this incarnation has leases, its own are the recorded ones
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4, layout => :'wide');
SELECT release(1, '12:00:00.5'), restore();
SELECT * FROM acquire(2, '12:30', 5, 5, layout => :'old');
SELECT * FROM acquire(2, '12:30', 5, 5, layout => :'wide', layout_set => false);
SELECT release(2, '12:30:00.5', 1);
UPDATE snowflake.worker_node SET layout = :'old', renewed_at = '2090-01-01' WHERE start = id(1);
SELECT * FROM acquire(3, '12:30:01', 6, 6, layout => :'wide', layout_set => false);
-- the newest one is so by renewals, however the registry's clock is set
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4, layout => :'old');
UPDATE snowflake.worker_node SET renewed_at = '2090-01-01';
SELECT release(1, '12:00:00.5');
SELECT * FROM acquire(2, '12:30', 5, 5, layout => :'wide');
SELECT renew(2, '12:32', layout => :'wide');
SELECT renewed_at FROM snowflake.worker_node WHERE start = id(2);

-- where the numbers of this cluster come from
SELECT start_again();
SELECT * FROM snowflake.start_server('1.0', '{}', at('12:00'), '1 s', '1 ms', 7);
SELECT count(*) FROM snowflake.cluster;
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT count(*) FROM snowflake.cluster;
SELECT * FROM acquire(1, '12:00', 9, 9, fixed => true, own => true);
TABLE snowflake.cluster;
SELECT incarnation IS NULL AS own, uses FROM snowflake.start_server('1.0', '{}', at('12:00'), '1 s', '1 ms', 7);
SELECT * FROM acquire(3, '12:00', 10, 10, fixed => true, own => true);
TABLE snowflake.cluster;
SELECT snowflake.record_uses('1.0', id(5));
TABLE snowflake.cluster;
SELECT * FROM snowflake.start_server('1.0', '{}', at('12:00'), '1 s', '1 ms', 7);
SELECT * FROM acquire(3, '12:10', 11, 11, own => true);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake.record_uses('1.0', NULL);
TABLE snowflake.cluster;
-- a restore keeps the row
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('another', id(6));
SET session_replication_role = replica;
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('another', id(6));
RESET session_replication_role;
TABLE snowflake.cluster;
DELETE FROM snowflake.cluster;
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('own', id(6));
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('another', NULL);
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('another', id(6));
TABLE snowflake.cluster;

-- a registry is another server, and the one that the node has a record of
SELECT start_again();
SELECT acquire_lease IS NOT NULL AS granted FROM snowflake.acquire_lease('1.0', id(1), 1, false, NULL, 4, 4, false, :'old', true, '1 ms',
	at('12:00'), '1 s', '1 min', 'host', 5432, (SELECT system_identifier FROM pg_control_system()), 1, NULL,
	pg_postmaster_start_time() + interval '1 us', NULL, NULL, NULL, NULL, NULL);
DO $$
BEGIN
	PERFORM snowflake.acquire_lease('1.0', id(2), 1, false, NULL, 5, 5, false, 'twitter', true, '1 ms',
		at('12:00'), '1 s', '1 min', 'host', 5432, (SELECT system_identifier FROM pg_control_system()), 1, NULL,
		pg_postmaster_start_time(), NULL, NULL, NULL, NULL, NULL);
EXCEPTION WHEN object_not_in_prerequisite_state THEN
	RAISE NOTICE '%', SQLERRM;
END
$$;
SELECT acquire_lease IS NOT NULL AS granted FROM snowflake.acquire_lease('1.0', id(2), 1, false, NULL, 5, 5, false, :'old', true, '1 ms',
	at('12:00'), '1 s', '1 min', 'host', 5432, 1, 1, NULL, pg_postmaster_start_time(), NULL, NULL, NULL, NULL, NULL);
SELECT * FROM acquire(3, '12:00', 6, 6, layout => :'old', incarnation => id(98));
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(3, '12:00', 6, 6, layout => :'old', incarnation => id(99));
-- a copy of the database is another registry
UPDATE snowflake.registry SET database = 1;
\set VERBOSITY terse
SELECT * FROM acquire(4, '12:00', 7, 7, layout => :'old', incarnation => id(99));
\set VERBOSITY default
SELECT renew(3, '12:30', layout => :'old') IS NULL AS history;
SELECT incarnation <> id(99) AS another, database <> 1 AS here, now() - created_at < '1 min' AS now FROM snowflake.registry;

-- handing over
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT * FROM acquire(2, '12:02', 4, 4);
SELECT * FROM acquire(3, '12:00', 6, 6);
SELECT incarnation, starts_at, node_numbers, ends, layouts = array_fill(layout, '{2}') AS layouts, uses
FROM snowflake.list_ends('1.0', '1 s', '1 ms'), (SELECT layout FROM snowflake.worker_node LIMIT 1) AS l;
UPDATE snowflake.registry SET starts_at = at('13:00');
SELECT starts_at FROM snowflake.list_ends('1.0', '1 s', '1 ms');
UPDATE snowflake.registry SET starts_at = at('11:00');
SELECT * FROM snowflake.hand_over('1.0', false, id(11), NULL, '{4,4,6,7}', ARRAY[at('12:03'), at('12:03:01'), at('12:01'), at('12:01')],
	ARRAY['leaf', :'old', (SELECT layout FROM snowflake.worker_node LIMIT 1), 'twitter'], id(3), 2, 'host3', 5432, 7003, 1, '2024-02-01');
SELECT * FROM snowflake.hand_over('1.0', false, id(11), NULL, '{4,8}', ARRAY[at('12:03'), at('12:04')], ARRAY['leaf', 'twitter'],
	id(3), 3, 'host3', 5432, 7003, 1, '2024-02-01');
SELECT * FROM lease;
SELECT incarnation, node_number, datacenter_id, worker_id, clock, layout, host_name, renewed_at IS NULL AS renewed
FROM snowflake.worker_node WHERE starts_at = '-infinity' ORDER BY node_number, layout;
SELECT * FROM acquire(5, '12:04', 7, 7);
SELECT * FROM acquire(6, '12:04', 8, 8);
-- an open row that ends later may be closed earlier
SELECT * FROM acquire(8, '12:10', 11, 11);
SELECT snowflake.hand_over('1.0', false, id(11), NULL, '{11}', ARRAY[at('12:10:30')], ARRAY['twitter'], id(9), 1, 'host9', 5432, 7009, 1, '2024-02-01') IS NOT NULL AS done;
SELECT release(8, '12:10:10');
SELECT starts_at FROM acquire(8, '12:10:20', 11, 11, fixed => true);
-- the layout of the last one is the newest
SELECT layout FROM snowflake.worker_node WHERE starts_at = '-infinity' AND start = id(3) AND node_number = 4 ORDER BY renewed_at DESC LIMIT 1;
-- the floor stands for ids that are in no row; it is never lowered, nor far in the future
SELECT snowflake.hand_over('1.0', false, id(11), at('12:04:05'), '{}', '{}', '{}', id(3), 4, 'host3', 5432, 7003, 1, '2024-02-01') IS NOT NULL AS done;
SELECT snowflake.hand_over('1.0', false, id(11), at('12:04:01'), '{}', '{}', '{}', id(3), 5, 'host3', 5432, 7003, 1, '2024-02-01') IS NOT NULL AS done;
SELECT starts_at FROM snowflake.registry;
SELECT starts_at FROM acquire(7, '12:04', 10, 10);
DO $$
BEGIN
	PERFORM snowflake.hand_over('1.0', false, id(11), clock_timestamp() + '9 s', '{}', '{}', '{}', id(3), 6, 'host3', 5432, 7003, 1, '2024-02-01');
	RAISE NOTICE 'the registry waits for a clock that is ahead by a little';
	PERFORM snowflake.hand_over('1.0', false, id(11), clock_timestamp() + '12 s', '{}', '{}', '{}', id(3), 7, 'host3', 5432, 7003, 1, '2024-02-01');
EXCEPTION WHEN object_not_in_prerequisite_state THEN
	RAISE NOTICE '%', regexp_replace(SQLERRM, '\d.*', '...');
END
$$;
SELECT starts_at FROM snowflake.registry;
-- of its own incarnation: from a copy of the cluster
SELECT * FROM snowflake.hand_over('1.0', false, id(99), NULL, '{9}', ARRAY[at('12:03')], ARRAY['twitter'], id(3), 8, 'host3', 5432, 7003, 1, '2024-02-01');
SELECT count(*) FROM lease WHERE node_number = 9;
-- the node itself is no other cluster
DO $$
BEGIN
	PERFORM snowflake.hand_over('1.0', true, id(11), NULL, '{}', '{}', '{}', id(3), 9, 'host3', 5432,
		(SELECT system_identifier FROM pg_control_system()), 1, pg_postmaster_start_time());
	PERFORM snowflake.hand_over('1.0', false, id(11), NULL, '{}', '{}', '{}', id(3), 10, 'host3', 5432,
		(SELECT system_identifier FROM pg_control_system()), 1, pg_postmaster_start_time());
EXCEPTION WHEN object_not_in_prerequisite_state THEN
	RAISE NOTICE '%', SQLERRM;
END
$$;
SELECT snowflake.hand_over('1.0', false, id(11), NULL, '{9}', '{}', '{twitter}', id(3), 9, 'host3', 5432, 7003, 1, '2024-02-01');
SELECT snowflake.hand_over('1.0', false, id(11), NULL, '{9}', '{infinity}', '{twitter}', id(3), 9, 'host3', 5432, 7003, 1, '2024-02-01');
SELECT snowflake.hand_over('1.0', false, id(11), NULL, '{-1}', '{2024-01-01}', '{twitter}', id(3), 9, 'host3', 5432, 7003, 1, '2024-02-01');
SELECT snowflake.hand_over('1.0', false, id(11), NULL, '{9}', '{2024-01-01}', '{tweeter}', id(3), 9, 'host3', 5432, 7003, 1, '2024-02-01');
SELECT snowflake.hand_over('1.0', false, NULL, NULL, '{9}', '{2024-01-01}', '{twitter}', id(3), 9, 'host3', 5432, 7003, 1, '2024-02-01');

-- parameters that would block a number for ever, or are none
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
\set VERBOSITY terse
SELECT snowflake.renew_lease('1.0', id(1), 2, token(1, 1), t.until, 'twitter', t.clock)
FROM (VALUES ('infinity'::timestamptz, at('12:00'))) AS t (until, clock);
SELECT renew(1, '2024-03-03 12:00:00.000001');
SELECT snowflake.renew_lease('1.0', id(1), 2, token(1, 1), NULL, 'twitter', at('12:00'));
SELECT snowflake.renew_lease('1.0', id(1), 2, token(1, 1), at('12:30'), 'twitter', '-infinity');
SELECT snowflake.renew_lease('1.0', id(1), 2, token(1, 1), at('12:30'), 'twitter', NULL);
SELECT snowflake.renew_lease('1.0', id(1), 2, token(1, 1), at('12:30'), NULL, at('12:00'));
SELECT snowflake.renew_lease('1.0', NULL, 2, token(1, 1), at('12:30'), 'twitter', at('12:00'));
SELECT snowflake.renew_lease('1.0', id(1), NULL, token(1, 1), at('12:30'), 'twitter', at('12:00'));
SELECT snowflake.release_lease('1.0', id(1), 2, token(1, 1), '-infinity');
SELECT snowflake.release_lease('1.0', id(1), 2, token(1, 1), NULL);
SELECT snowflake.release_lease('1.0', id(1), NULL, token(1, 1), at('12:00'));
SELECT * FROM acquire(2, '12:00', NULL, 7);
SELECT * FROM acquire(2, '12:00', 1, 0);
SELECT * FROM acquire(2, '12:00', -1, 0);
SELECT * FROM acquire(2, '12:00', 15, 16);
SELECT * FROM acquire(2, '12:00', own => NULL);
SELECT * FROM acquire(2, '12:00', fixed => NULL);
SELECT * FROM acquire(2, '12:00', layout_set => NULL);
SELECT * FROM acquire(2, '12:00', layout => NULL);
SELECT * FROM acquire(2, '12:00', layout => 'layout A');
SELECT * FROM acquire(2, NULL);
SELECT * FROM acquire(2, '12:00', max_ahead => '-1 us');
SELECT * FROM acquire(2, '12:00', max_ahead => '1 day 1 us');
SELECT * FROM acquire(2, '12:00', max_ahead => NULL);
SELECT * FROM acquire(2, '12:00', call => 0);
SELECT * FROM acquire(NULL, '12:00', call => 1);
CREATE FUNCTION acquire_with(tick interval DEFAULT '1 ms', clock timestamptz DEFAULT at('12:00'), span interval DEFAULT '1 min',
	host text DEFAULT 'host', port int DEFAULT 1, cluster bigint DEFAULT 1, timeline int DEFAULT 1,
	launched timestamptz DEFAULT at('11:00'), known timestamptz DEFAULT NULL, floor timestamptz DEFAULT NULL, ended timestamptz DEFAULT NULL) RETURNS bigint LANGUAGE sql
AS $$ SELECT node_number FROM snowflake.acquire_lease('1.0', id(2), 1, false, NULL, 5, 5, false,
	'timestamp 41, datacenter 1, worker 2, clock 1, sequence 4, epoch 2020-01-01T00:00:00Z', true, tick,
	clock, '1 s', span, host, port, cluster, timeline, NULL, launched, known, NULL, floor, NULL, ended) $$;
SELECT acquire_with(tick => '0');
SELECT acquire_with(tick => '1.000001 s');
SELECT acquire_with(tick => NULL);
SELECT acquire_with(clock => 'infinity');
SELECT acquire_with(clock => '-infinity');
SELECT acquire_with(span => '-1 us');
SELECT acquire_with(span => '2 days 1 us');
SELECT acquire_with(span => NULL);
SELECT acquire_with(host => NULL);
SELECT acquire_with(port => NULL);
SELECT acquire_with(cluster => NULL);
SELECT acquire_with(timeline => NULL);
SELECT acquire_with(launched => 'infinity');
SELECT acquire_with(known => 'infinity');
SELECT acquire_with(floor => 'infinity');
SELECT acquire_with(ended => 'infinity');
-- what is stored must be readable for others: microseconds since 1970 in 63 bits
SELECT acquire_with(clock => '294276-12-31 23:00Z');
SELECT acquire_with(clock => '10000-01-01Z');
SELECT acquire_with(clock => '0001-12-31Z BC');
SELECT acquire_with(launched => '294276-12-31 23:00Z');
SELECT acquire_with(known => '294276-12-31 23:00Z');
SELECT acquire_with(floor => '294276-12-31 23:00Z');
SELECT acquire_with(ended => '294276-12-31 23:00Z');
SELECT acquire_with(ended => '-infinity');
SELECT acquire_with(span => '2 days');
SELECT snowflake.renew_lease('1.0', id(2), 2, token(2, 1), '294276-12-31 23:00Z', 'twitter', at('12:00'));
SELECT snowflake.renew_lease('1.0', id(2), 2, token(2, 1), at('12:00'), 'twitter', '294276-12-31 23:00Z');
SELECT snowflake.release_lease('1.0', id(2), 2, token(2, 1), '294276-12-31 23:00Z');
SELECT snowflake.hand_over('1.0', false, id(11), NULL, '{9}', '{294276-12-31 23:00Z}', '{twitter}', id(3), 9, 'host3', 5432, 7003, 1, '2024-02-01');
SELECT snowflake.hand_over('1.0', false, id(11), '294276-12-31 23:00Z', '{}', '{}', '{}', id(3), 9, 'host3', 5432, 7003, 1, '2024-02-01');
SELECT snowflake.start_server('1.0', '{}', '294276-12-31 23:00Z', '1 s', '1 ms', 7);
SELECT launched IS NOT NULL AS readable FROM snowflake.list_leases('1.0', 0);
SELECT snowflake.start_server('1.0', NULL, at('12:00'), '1 s', '1 ms', 7);
SELECT snowflake.start_server('1.0', '{}', 'infinity', '1 s', '1 ms', 7);
SELECT snowflake.start_server('1.0', '{}', at('12:00'), '2 days', '1 ms', 7);
SELECT snowflake.start_server('1.0', '{}', at('12:00'), '1 s', '2 s', 7);
\set VERBOSITY default
SELECT * FROM acquire(3, '12:00', 16, 20);
\echo :LAST_ERROR_SQLSTATE
DROP FUNCTION acquire_with;
SELECT * FROM lease;
-- a day is 24 hours
SET timezone = 'Europe/Berlin';
SELECT start_again();
SELECT extract(epoch FROM leased_until - starts_at) / 3600 AS hours
FROM snowflake.acquire_lease('1.0', id(2), 1, false, NULL, 5, 5, false, 'twitter', true, '1 ms',
	'2024-01-01 00:00Z', '1 day', '1 day', 'host', 1, 1, 1, NULL, '2024-02-01', '2024-01-01 23:00Z', NULL, NULL, NULL, NULL);
UPDATE snowflake.registry SET created_at = '2024-03-30 12:00Z';
SELECT starts_at AT TIME ZONE 'UTC' AS starts_at FROM acquire(3, '2024-03-30 12:00Z', 5, 5, layout => 'twitter', max_ahead => '1 day');
SET timezone = 'UTC';

-- a registry whose own numbers come from another one grants and renews nothing to others
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
INSERT INTO snowflake.cluster (uses, incarnation) VALUES ('another', id(98));
SELECT * FROM acquire(2, '12:00', 5, 5);
\echo :LAST_ERROR_SQLSTATE
SELECT renew(1, '12:05');
SELECT release(1, '12:00:30');
SELECT * FROM lease;
-- and begins to use another one only when nobody has a lease of it that is not over
SELECT start_again();
SELECT node_number FROM acquire(1, '12:00', 4, 4);
SELECT node_number FROM acquire(2, '12:00', 5, 5);
SELECT node_number FROM acquire(3, '12:00', 6, 6, cluster => (SELECT system_identifier FROM pg_control_system()));
UPDATE snowflake.worker_node SET leased_until = '2098-01-01' WHERE node_number = 4;
UPDATE snowflake.worker_node SET leased_until = '2099-01-01' WHERE node_number = 5;
UPDATE snowflake.worker_node SET leased_until = '2100-01-01' WHERE node_number = 6;
SELECT snowflake.record_uses('1.0', id(98), false);
\echo :LAST_ERROR_SQLSTATE
UPDATE snowflake.worker_node SET incarnation = id(11) WHERE node_number = 5;
SELECT snowflake.record_uses('1.0', id(98), false);
UPDATE snowflake.worker_node SET leased_until = starts_at WHERE node_number = 4;
SELECT snowflake.record_uses('1.0', id(98), false);
SELECT uses, incarnation FROM snowflake.cluster;
UPDATE snowflake.worker_node SET leased_until = '2098-01-01' WHERE node_number = 4;
SELECT snowflake.record_uses('1.0', id(97), true);
SELECT uses, incarnation FROM snowflake.cluster;

-- versions and isolation levels
SELECT start_again();
SELECT * FROM acquire(3, '12:00', 4, 4, version => '1.2');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(3, '12:00', 4, 4, version => '2.0');
SELECT * FROM acquire(3, '12:00', 4, 4, version => '0.9');
SELECT * FROM acquire(3, '12:00', 4, 4, version => NULL);
SELECT * FROM acquire(3, '12:00', 4, 4, version => 'one');
SELECT * FROM acquire(3, '12:00', 4, 4, version => '1.1');
SELECT * FROM acquire(4, '12:00', 5, 5, version => '1.0.3');
\set VERBOSITY terse
SELECT snowflake.start_server('1.2', '{}', at('12:00'), '1 s', '1 ms', 7);
SELECT snowflake.renew_lease('1.2', id(3), 2, token(3, 1), at('12:00'), 'twitter', at('12:00'));
SELECT snowflake.release_lease('1.2', id(3), 2, token(3, 1), at('12:00'));
SELECT snowflake.record_uses('1.2', NULL);
SELECT snowflake.list_ends('1.2', '1 s', '1 ms');
SELECT snowflake.hand_over('1.2', false, id(11), NULL, '{}', '{}', '{}', id(1), 1, 'host', 1, 1, 1, now());
\set VERBOSITY default
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM acquire(5, '12:00', 6, 6);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT renew(3, '12:00');
ROLLBACK;
-- without its row the registry grants nothing
BEGIN;
DELETE FROM snowflake.registry;
SELECT * FROM acquire(5, '12:00', 6, 6);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT * FROM lease;

-- rows that an apply process brings are left out, those that a restore brings are not
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT pg_replication_origin_create('regress_snowflake') IS NOT NULL AS created;
SELECT pg_replication_origin_session_setup('regress_snowflake');
SET session_replication_role = replica;
DELETE FROM snowflake.worker_node;
UPDATE snowflake.worker_node SET leased_until = '2025-01-01';
INSERT INTO snowflake.worker_node (start, granted_by, last_call, system_identifier, host_name, port, timeline, incarnation,
	node_number, worker_id, layout, launched_at, starts_at, leased_until, renewed_at)
SELECT start, granted_by, last_call, system_identifier, host_name, port, timeline, incarnation,
	5, worker_id, layout, launched_at, starts_at, leased_until, renewed_at FROM snowflake.worker_node;
DELETE FROM snowflake.registry;
UPDATE snowflake.registry SET starts_at = 'infinity';
INSERT INTO snowflake.cluster (uses) VALUES ('own');
RESET session_replication_role;
DELETE FROM snowflake.worker_node;
SELECT pg_replication_origin_session_reset();
SELECT pg_replication_origin_drop('regress_snowflake');
SELECT * FROM lease;
SELECT starts_at, (SELECT count(*) FROM snowflake.cluster) AS cluster FROM snowflake.registry;
SET session_replication_role = replica;
INSERT INTO snowflake.worker_node (start, granted_by, last_call, system_identifier, host_name, port, timeline, incarnation,
	node_number, worker_id, layout, launched_at, starts_at, leased_until, renewed_at)
SELECT start, granted_by, last_call, system_identifier, host_name, port, timeline, id(11),
	5, worker_id, layout, launched_at, starts_at, leased_until, renewed_at FROM snowflake.worker_node;
TRUNCATE snowflake.worker_node;
\echo :LAST_ERROR_SQLSTATE
RESET session_replication_role;
SELECT * FROM lease;
TRUNCATE snowflake.worker_node, snowflake.registry;
TRUNCATE snowflake.registry;
TRUNCATE snowflake.cluster;
SELECT snowflake.leave_out_replicated();
CREATE TABLE other (a int);
CREATE TRIGGER wrong BEFORE INSERT ON other FOR EACH STATEMENT EXECUTE FUNCTION snowflake.leave_out_replicated();
INSERT INTO other VALUES (1);
DROP TABLE other;
-- what is kept by constraints
\set VERBOSITY terse
INSERT INTO snowflake.registry (incarnation, database, created_at, system_identifier) VALUES (id(1), 1, now(), 1);
INSERT INTO snowflake.cluster (one, uses) VALUES (false, 'own');
INSERT INTO snowflake.cluster (uses) VALUES ('both');
UPDATE snowflake.worker_node SET leased_until = starts_at - interval '1 us';
UPDATE snowflake.worker_node SET leased_until = 'infinity';
\set VERBOSITY default

-- the history is dumped, which registry it was is not
SELECT config::regclass, condition
FROM pg_extension, unnest(extconfig, extcondition) AS u(config, condition)
WHERE extname = 'snowflake' ORDER BY 1;
SELECT c.oid::regclass AS table_without_primary_key FROM pg_class AS c
WHERE c.relnamespace = 'snowflake'::regnamespace AND c.relkind = 'r'
	AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary);

-- rights: nobody but superusers by default, some grants make a node
SELECT p.proname, p.prosecdef AS definer, p.proconfig AS settings
FROM pg_proc AS p WHERE p.pronamespace IN ('snowflake'::regnamespace, 'snowflake_internal'::regnamespace) AND p.prosecdef ORDER BY p.proname;
SELECT p.proname, p.proconfig AS settings
FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
WHERE p.pronamespace IN ('snowflake'::regnamespace, 'snowflake_internal'::regnamespace) AND l.lanname IN ('sql', 'plpgsql')
	AND 'search_path=pg_catalog, pg_temp' <> ALL (coalesce(p.proconfig, '{}'));
SELECT p.proname, a.grantee
FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
WHERE p.pronamespace = 'snowflake'::regnamespace AND a.grantee <> p.proowner
	AND p.proname IN ('start_server', 'acquire_lease', 'renew_lease', 'release_lease', 'record_uses', 'list_ends', 'hand_over',
		'lock_registry', 'begin_call', 'choose_number', 'count_generation', 'write_uses', 'check_layout', 'used_numbers', 'unused_number');
CREATE ROLE regress_snowflake_node;
GRANT USAGE ON SCHEMA snowflake TO regress_snowflake_node;
GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease,
	snowflake.list_ends, snowflake.hand_over TO regress_snowflake_node;
SELECT start_again();
SELECT token(1, 1) IS NULL AS no_lease;
SET ROLE regress_snowflake_node;
SELECT node_number FROM snowflake.acquire_lease('1.0', id(1), 1, false, NULL, 4, 4, false, 'twitter', true, '1 ms',
	at('12:00'), '1 s', '1 min', 'host', 5432, 1, 1, NULL, at('11:00'), NULL, NULL, NULL, NULL, NULL);
SELECT snowflake.renew_lease('1.0', id(1), 2, NULL, at('12:10'), 'twitter', at('12:00'));
SELECT snowflake.release_lease('1.0', id(1), 3, NULL, at('12:10'));
SELECT node_numbers FROM snowflake.list_ends('1.0', '1 s', '1 ms');
SELECT count(*) FROM snowflake.worker_node;
SELECT count(*) FROM snowflake.registry;
UPDATE snowflake.worker_node SET leased_until = '2024-01-01';
SELECT snowflake.lock_registry('1.0');
SELECT snowflake.start_server('1.0', '{}', at('12:00'), '1 s', '1 ms', 7);
SELECT snowflake.record_uses('1.0', NULL);
-- nor say that the registry is its own, or which timelines that has
SELECT node_number FROM snowflake.acquire_lease('1.0', id(1), 4, true, NULL, 5, 5, false, 'twitter', true, '1 ms',
	'2070-01-01', '1 s', '1 min', 'host', 5432, 1, 1, '{9/9/9}', at('11:00'), NULL, NULL, NULL, NULL, NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT node_number FROM snowflake.acquire_lease('1.0', id(1), 4, false, NULL, 5, 5, false, 'twitter', true, '1 ms',
	at('12:00'), '1 s', '1 min', 'host', 5432, 1, 1, '{9/9/9}', at('11:00'), NULL, NULL, NULL, NULL, NULL);
SELECT node_number FROM snowflake.grant_lease('1.0', id(1), 4, true, NULL, 5, 5, false, 'twitter', true, '1 ms',
	at('12:00'), '1 s', '1 min', 'host', 5432, 1, 1, '{}', at('11:00'), NULL, NULL, NULL, NULL, NULL);
RESET ROLE;
SELECT generation, starts_at FROM snowflake.registry;
-- the database's owner may read, to dump
SELECT relname, array_agg(privilege_type::text) AS database_owner
FROM pg_class, aclexplode(relacl)
WHERE relnamespace = 'snowflake'::regnamespace AND grantee = 'pg_database_owner'::regrole
	AND relname IN ('worker_node', 'registry', 'cluster')
GROUP BY 1 ORDER BY 1;
SELECT has_schema_privilege('pg_database_owner', 'snowflake', 'USAGE') AS usage,
	has_schema_privilege('pg_database_owner', 'snowflake', 'CREATE') AS create;
DROP OWNED BY regress_snowflake_node;
DROP ROLE regress_snowflake_node;

DROP VIEW lease;
DROP FUNCTION id, at, next_call, token, acquire, renew, release, start_again, restore;
DROP EXTENSION snowflake;
SELECT count(*) FROM pg_namespace WHERE nspname = 'snowflake';
