-- The registry of node numbers: its functions, called as a node's lease worker does.
-- The server's own leases are in another database; here the table is ours, and the
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
SELECT incarnation IS NOT NULL AS incarnation, layout, floor FROM snowflake.registry;
UPDATE snowflake.registry SET incarnation = '99999999-0000-0000-0000-000000000000';

-- the token of the n-th request here
CREATE FUNCTION token(n int) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT lpad(n::text, 32, '0')::uuid $$;
-- A node with a 16-number layout asks: 1 bit is the datacenter's, 2 the worker's, 1 the clock's.
CREATE FUNCTION acquire(n int, clock text, first int DEFAULT 4, last int DEFAULT 7,
	exclusive boolean DEFAULT false, previous int DEFAULT NULL, previous_end text DEFAULT NULL,
	unused int[] DEFAULT '{}', layout text DEFAULT 'layout A', version text DEFAULT '1.0',
	incarnation uuid DEFAULT NULL, cluster bigint DEFAULT NULL, shared boolean DEFAULT true,
	previous_until text DEFAULT NULL,
	OUT node_number bigint, OUT starts_at timestamptz, OUT leased_until timestamptz)
LANGUAGE sql AS $$
	SELECT node_number, starts_at, leased_until
	FROM snowflake.acquire_lease(version => version, token => token(n), incarnation => incarnation,
		layout => layout, datacenter_bits => 1, worker_bits => 2, clock_bits => 1,
		first_number => first, last_number => last, exclusive => exclusive, shared => shared,
		node_clock => ('2024-03-01 ' || clock)::timestamptz, max_ahead => '1 s', lease_window => '1 min',
		host_name => 'host' || n, port => 5400 + n, system_identifier => coalesce(cluster, 7000 + n), timeline => 1,
		launched_at => '2024-02-01', previous_token => token(previous),
		previous_end => ('2024-03-01 ' || previous_end)::timestamptz,
		previous_until => ('2024-03-01 ' || previous_until)::timestamptz,
		unused_tokens => ARRAY(SELECT token(u) FROM unnest(unused) AS u))
$$;
CREATE FUNCTION renew(n int, until text, version text DEFAULT '1.0') RETURNS timestamptz LANGUAGE sql
AS $$ SELECT snowflake.renew_lease(version, token(n), ('2024-03-01 ' || until)::timestamptz) $$;
CREATE FUNCTION release(n int, until text, version text DEFAULT '1.0') RETURNS boolean LANGUAGE sql
AS $$ SELECT snowflake.release_lease(version, token(n), ('2024-03-01 ' || until)::timestamptz) $$;
CREATE VIEW lease AS
SELECT id, node_number, right(token::text, 2) AS token, leased_until, released_at IS NULL AS open
FROM snowflake.worker_node;
-- as if the extension had just been created
CREATE FUNCTION start_again() RETURNS void LANGUAGE sql AS $$
	TRUNCATE snowflake.worker_node RESTART IDENTITY;
	UPDATE snowflake.registry SET layout = NULL, floor = '-infinity';
$$;

-- the first lease, all of its row; the registry notes the layout
SELECT * FROM acquire(1, '12:00');
SELECT id, token, incarnation, node_number, datacenter_id, worker_id, host_name, port, system_identifier,
	timeline, layout, launched_at, now() - renewed_at < '1 min' AS renewed_at, leased_until, released_at
FROM snowflake.worker_node \gx
SELECT incarnation, layout, floor FROM snowflake.registry;
SELECT registry_incarnation FROM snowflake.acquire_lease('1.0', token(2),
	'99999999-0000-0000-0000-000000000000', 'layout A', 0, 5, 0, 30, 31, false, true, '2024-03-01', '1 s', '1 min',
	'host2', 5432, 1, 1, '2024-02-01');
SELECT node_number, datacenter_id, worker_id FROM snowflake.worker_node ORDER BY id;

-- numbers that were never leased first, in ring order behind the newest, whatever is free
SELECT start_again();
SELECT * FROM acquire(1, '12:00');
SELECT release(1, '12:00');
SELECT * FROM acquire(2, '13:00', 6, 6, exclusive => true);
SELECT * FROM acquire(3, '14:00');
SELECT * FROM acquire(4, '15:00');
SELECT * FROM lease ORDER BY id;
-- then the longest unused, if its bound is not past this node's clock: starts there
SELECT * FROM acquire(5, '11:59:59.999999');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(5, '12:00');
SELECT * FROM acquire(6, '13:00:59.999999');
SELECT * FROM acquire(7, '13:02');
SELECT * FROM lease ORDER BY id;
-- a renewal makes it younger
SELECT renew(3, '14:10'), renew(4, '14:10'), renew(5, '14:10') IS NULL AS closed, renew(6, '14:20');
SELECT * FROM acquire(8, '15:00:30');
SELECT * FROM acquire(9, '15:00:30');
SELECT * FROM acquire(10, '15:00:30');
SELECT * FROM lease ORDER BY id;
-- of equal bounds the lower number
SELECT * FROM acquire(11, '15:02', 6, 7);
-- a ring of which nothing is left, and an empty one
SELECT * FROM acquire(12, '12:00', 4, 4);
SELECT * FROM acquire(12, '12:00', 1, 0);

-- gaps that fixed numbers left: the next one behind the newest, else the first one
SELECT start_again();
SELECT count(acquire(n, '12:00', n, n, exclusive => true)) FROM unnest('{6, 1, 2, 5}'::int[]) AS n;
SELECT * FROM acquire(20, '12:00', 0, 7);
SELECT count(acquire(21, '12:00', 0, 0, exclusive => true));
SELECT * FROM acquire(22, '12:00', 0, 7);
SELECT count(acquire(23, '12:10', 5, 5, exclusive => true));
SELECT * FROM acquire(24, '12:10', 0, 7);
SELECT * FROM acquire(25, '12:10', 0, 7);
SELECT start_again();
SELECT count(acquire(n, '12:00', n, n, exclusive => true)) FROM unnest('{5, 7, 6, 3}'::int[]) AS n;
SELECT * FROM acquire(20, '12:00');

-- starts at the greatest bound of the number's history, not only of the newest row
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 4);
SELECT renew(1, '12:30'), release(1, '12:20');
SELECT * FROM acquire(2, '12:10', 4, 4, exclusive => true);
SELECT release(2, '12:05');
SELECT * FROM lease ORDER BY id;
SELECT * FROM acquire(3, '12:06', 4, 4);
-- rows of another incarnation are history: no lease, but ids begin behind them
UPDATE snowflake.worker_node SET incarnation = '11111111-0000-0000-0000-000000000000' WHERE token = token(3);
SELECT renew(3, '12:40') IS NULL AS unknown, release(3, '12:10');
SELECT * FROM acquire(4, '12:20', 4, 5);
SELECT * FROM acquire(5, '12:20', 4, 5);
SELECT * FROM lease ORDER BY id;
UPDATE snowflake.worker_node SET incarnation = '11111111-0000-0000-0000-000000000000', leased_until = '2024-03-01 13:00';
SELECT * FROM acquire(6, '12:30', 4, 5);

-- the lease before this one is closed at its true end, earlier than its bound or (ids that only the state file knew of) later
SELECT start_again();
SELECT * FROM acquire(1, '12:00');
SELECT * FROM acquire(2, '12:00', previous => 1, previous_end => '12:00:30');
SELECT * FROM acquire(3, '12:00', previous => 2, previous_end => '18:00');
SELECT * FROM lease ORDER BY id;
-- but a closed one is left alone, as one that was taken over is
SELECT * FROM acquire(4, '12:00', previous => 1, previous_end => '12:00:10');
SELECT * FROM lease ORDER BY id;
-- leases whose grant never reached the node are gone, unless somebody took them over
SELECT * FROM acquire(5, '12:02', unused => '{1, 3, 4}');
SELECT * FROM acquire(6, '12:02');
SELECT * FROM lease ORDER BY id;
-- a request that is sent twice is granted once
SELECT * FROM acquire(6, '12:02');
-- a lease whose bound is not the one that the node knows of was renewed since: the node's
-- memory is an older copy, and the row's bound stands
SELECT start_again();
SELECT * FROM acquire(1, '12:00');
SELECT * FROM acquire(2, '12:00', previous => 1, previous_end => '12:00:10', previous_until => '12:00:59');
SELECT * FROM acquire(3, '12:00', previous => 2, previous_end => '12:00:20', previous_until => '12:01');
SELECT snowflake.release_lease('1.0', token(3), '2024-03-01 12:00:30', '2024-03-01 12:00:59');
SELECT * FROM lease ORDER BY id;

-- times and spans that would block a number for ever
SELECT snowflake.renew_lease('1.0', token(3), 'infinity');
SELECT snowflake.acquire_lease('1.0', token(4), NULL, 'layout A', 0, 5, 0, 4, 7, false, true, t.clock, '1 s', t.span,
	'host', 5432, 1, 1, now()) FROM (VALUES ('infinity'::timestamptz, '1 min'::interval)) AS t (clock, span);
SELECT snowflake.acquire_lease('1.0', token(4), NULL, 'layout A', 0, 5, 0, 4, 7, false, true, t.clock, '1 s', t.span,
	'host', 5432, 1, 1, now()) FROM (VALUES ('2024-03-01'::timestamptz, '3 days'::interval)) AS t (clock, span);
-- a copy of the database becomes another registry, which starts behind all that it knows
SELECT start_again();
SELECT * FROM acquire(1, '12:00');
UPDATE snowflake.registry SET database = 1;
\set VERBOSITY terse
SELECT * FROM acquire(2, '12:00', incarnation => '99999999-0000-0000-0000-000000000000');
\set VERBOSITY default
SELECT * FROM acquire(2, '12:00');
SELECT incarnation <> '99999999-0000-0000-0000-000000000000' AS another, floor,
	database = (SELECT oid FROM pg_database WHERE datname = current_database()) AS here FROM snowflake.registry;
UPDATE snowflake.registry SET incarnation = '99999999-0000-0000-0000-000000000000';

-- fixed numbers: refused while another server's lease lasts
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 5, exclusive => true);
SELECT * FROM acquire(2, '12:00:59', 4, 5, exclusive => true);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(2, '12:00:59', 5, 5, exclusive => true);
SELECT * FROM acquire(3, '12:00', 4, 4, exclusive => true);
SELECT * FROM acquire(3, '12:01', 4, 4, exclusive => true);
SELECT * FROM lease ORDER BY id;
-- the holder itself, with the token of its lease
SELECT * FROM acquire(4, '12:01', 4, 4, exclusive => true, previous => 3, previous_end => '12:01:10');
SELECT release(4, '12:01:20');
SELECT * FROM acquire(5, '12:01', 4, 4, exclusive => true);
-- in the cluster's own table, its earlier lease does not keep it out, but another cluster's does
SELECT * FROM acquire(21, '12:02:30', 6, 6, exclusive => true, cluster => 1, shared => false);
SELECT * FROM acquire(22, '12:02:40', 6, 6, exclusive => true, cluster => 2, shared => false);
SELECT * FROM acquire(22, '12:02:40', 6, 6, exclusive => true, cluster => 1);
SELECT * FROM acquire(22, '12:02:40', 6, 6, exclusive => true, cluster => 1, shared => false);
SELECT renew(21, '12:10') IS NULL AS closed;
-- a clock set far back: the same number, from its bound on
SELECT * FROM acquire(6, '11:00', 4, 4, exclusive => true, previous => 5, previous_end => '12:01:30');
SELECT * FROM lease WHERE token = '06';
-- with a clock field: stays if the bound is at most max_ahead ahead, else the next of its numbers
SELECT start_again();
SELECT * FROM acquire(1, '12:00', 4, 5, exclusive => true);
SELECT * FROM acquire(2, '12:00:29', 4, 5, exclusive => true, previous => 1, previous_end => '12:00:30');
SELECT * FROM acquire(3, '12:00', 4, 5, exclusive => true, previous => 2, previous_end => '12:00:30');
SELECT * FROM acquire(4, '11:00', 4, 5, exclusive => true, previous => 3, previous_end => '12:00:10');
SELECT * FROM acquire(5, '10:00', 4, 5, exclusive => true, previous => 4, previous_end => '12:00:20');
SELECT * FROM lease ORDER BY id;
-- one of them held by somebody else, if only by an automatic lease
SELECT * FROM acquire(6, '12:05', 5, 5, previous => 5, previous_end => '12:00:20');
SELECT * FROM acquire(7, '12:05', 4, 5, exclusive => true);
SELECT * FROM acquire(7, '12:06', 4, 5, exclusive => true);

-- renewal: raises the bound of an open lease, never lowers it
SELECT start_again();
SELECT * FROM acquire(1, '12:00');
UPDATE snowflake.worker_node SET renewed_at = '2024-01-01';
SELECT renew(1, '12:02');
SELECT renewed_at > '2024-01-01' AS renewed FROM snowflake.worker_node;
SELECT renew(1, '12:01:30');
SELECT renew(2, '12:01:30') IS NULL AS unknown;
SELECT release(1, '12:01:40');
SELECT renew(1, '13:00') IS NULL AS closed;
SELECT * FROM lease;
-- release: the bound of an open lease becomes the true end of its ids
SELECT * FROM acquire(2, '12:00');
SELECT release(1, '12:00'), release(2, '13:00'), release(2, '12:00'), release(3, '12:00');
SELECT * FROM lease ORDER BY id;

-- who is not to have a lease
SELECT * FROM acquire(3, '12:00', layout => 'layout B');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(3, '12:00', incarnation => '22222222-0000-0000-0000-000000000000');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(3, '12:00', version => '1.2');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM acquire(3, '12:00', version => '2.0');
SELECT * FROM acquire(3, '12:00', version => '0.9');
SELECT renew(2, '12:00', version => '1.2');
SELECT release(2, '12:00', version => '1.2');
SELECT * FROM acquire(3, '12:00', version => '1.1');
SELECT renew(3, '12:10', version => '1.1'), release(3, '12:09', version => '1.1');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM acquire(4, '12:00');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT renew(3, '12:00');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT release(3, '12:00');
ROLLBACK;
SELECT * FROM lease ORDER BY id;

-- layouts: set before the first lease
SELECT definition AS narrow FROM snowflake_layout('timestamp 41, worker 4, sequence 4, tick 1ms, epoch 2000-01-01T00:00:00Z') \gset
SELECT definition AS wide FROM snowflake_layout('timestamp 41, worker 6, sequence 12, tick 1ms, epoch 2000-01-01T00:00:00Z') \gset
SELECT start_again();
SELECT snowflake_change_layout('timestamp 41, worker 4, sequence 4, tick 1ms, epoch 2000-01-01T00:00:00Z');
SELECT layout, floor FROM snowflake.registry;
SELECT snowflake_change_layout(:'wide');
SELECT snowflake_change_layout(:'narrow');
SELECT layout, floor FROM snowflake.registry;
SELECT * FROM acquire(1, '12:00', layout => :'wide');
SELECT * FROM acquire(1, '12:00', layout => :'narrow');
-- changed with all leases over: whoever holds an old one is out, and all new ids are greater
SELECT snowflake_change_layout(:'wide');
SELECT layout, floor FROM snowflake.registry;
SELECT renew(1, '12:10') IS NULL AS closed;
SELECT * FROM lease ORDER BY id;
SELECT * FROM acquire(2, '11:00', layout => :'narrow');
SELECT * FROM acquire(2, '11:00', layout => :'wide');
SELECT snowflake_min_id(a.starts_at, :'wide') > snowflake_max_id(l.leased_until, :'narrow') AS greater
FROM lease l, acquire(3, '11:00', layout => :'wide') a WHERE l.id = 1;
-- not while one lasts, by the registry's own clock
SELECT snowflake.renew_lease('1.0', token(2), '2060-01-01');
SELECT snowflake_change_layout('twitter');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake.release_lease('1.0', token(2), '2024-03-01 12:02');
-- not to one whose ids would begin lower
SELECT snowflake_change_layout(:'narrow');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_change_layout('twitter, epoch 2024-01-01T00:00:00Z');
SELECT snowflake_change_layout('twitter, epoch 2025-01-01T00:00:00Z');
SELECT snowflake_change_layout('tweeter');
-- NULL changes nothing
SELECT snowflake_change_layout(NULL);
SELECT layout = :'wide' AS unchanged, floor FROM snowflake.registry;
-- nor in a transaction that cannot see what others did meanwhile
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT snowflake_change_layout('twitter');
ROLLBACK;

-- rows that logical replication brings are left out, and a node whose session looks
-- like that gets no lease
SELECT start_again();
SELECT * FROM acquire(1, '12:00');
SET session_replication_role = replica;
DELETE FROM snowflake.worker_node;
UPDATE snowflake.worker_node SET leased_until = '2024-01-01';
INSERT INTO snowflake.worker_node (token, incarnation, node_number, worker_id, host_name, port,
	system_identifier, timeline, layout, launched_at, renewed_at, leased_until)
SELECT token(2), incarnation, 5, 1, 'elsewhere', 1, 1, 1, layout, launched_at, renewed_at, leased_until
FROM snowflake.worker_node;
DELETE FROM snowflake.registry;
UPDATE snowflake.registry SET floor = 'infinity';
INSERT INTO snowflake.registry VALUES (token(3));
SELECT * FROM acquire(2, '12:00');
\echo :LAST_ERROR_SQLSTATE
SELECT renew(1, '12:10');
SELECT release(1, '12:00');
RESET session_replication_role;
SELECT * FROM lease;
SELECT incarnation, floor FROM snowflake.registry;

-- what is kept by constraints
INSERT INTO snowflake.registry (incarnation, database) VALUES (token(1), 1);
INSERT INTO snowflake.worker_node (id, token) VALUES (1, token(1));
INSERT INTO snowflake.worker_node (token, incarnation, node_number, worker_id, host_name, port,
	system_identifier, timeline, layout, launched_at, renewed_at, leased_until)
SELECT token, incarnation, 5, 1, 'elsewhere', 1, 1, 1, layout, launched_at, renewed_at, leased_until
FROM snowflake.worker_node;
-- without its row the registry grants nothing
BEGIN;
DELETE FROM snowflake.registry;
SELECT * FROM acquire(4, '12:00');
ROLLBACK;

-- the history is dumped, which registry it was is not
SELECT config::regclass, condition
FROM pg_extension, unnest(extconfig, extcondition) AS u(config, condition)
WHERE extname = 'snowflake' ORDER BY 1;

-- rights: nobody but superusers by default, three grants make a node
SELECT proname, proconfig AS settings,
	(SELECT array_agg(grantee::regrole) FROM aclexplode(coalesce(proacl, acldefault('f', proowner)))
	WHERE grantee <> proowner) AS others
FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace
	OR proname IN ('snowflake_change_layout', 'snowflake_change_source', 'snowflake_release')
ORDER BY proname;
CREATE ROLE regress_snowflake_node;
CREATE ROLE regress_snowflake_operator;
SET ROLE regress_snowflake_node;
SELECT snowflake.renew_lease('1.0', NULL, NULL);
RESET ROLE;
GRANT USAGE ON SCHEMA snowflake TO regress_snowflake_node;
SET ROLE regress_snowflake_node;
SELECT snowflake.acquire_lease('1.0', NULL, NULL, NULL, 0, 0, 0, 0, 0, false, false, NULL, NULL, NULL,
	NULL, 0, 0, 0, NULL);
SELECT snowflake.renew_lease('1.0', NULL, NULL);
SELECT snowflake.release_lease('1.0', NULL, NULL);
RESET ROLE;
GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease
TO regress_snowflake_node;
SET ROLE regress_snowflake_node;
SELECT * FROM acquire(2, '12:00');
SELECT renew(2, '12:10'), release(2, '12:05');
SELECT count(*) FROM snowflake.worker_node;
SELECT count(*) FROM snowflake.registry;
UPDATE snowflake.worker_node SET leased_until = '2024-01-01';
SELECT snowflake.lock_registry('1.0');
SELECT snowflake.ring_from(0, 0, 0);
SELECT snowflake.ring_size(0, 0, 0, 0);
SELECT snowflake.choose_number(NULL, 0, 0, 0, 0, false, NULL, NULL, NULL);
SELECT snowflake.next_number(NULL, 0, 0, 0, 0, 0);
SELECT snowflake.used_numbers(NULL, 0, 0, 0, 0);
SELECT snowflake_change_layout('twitter');
SELECT snowflake_change_source();
SELECT snowflake_release();
RESET ROLE;
-- an operator who may change the layout needs nothing else
GRANT EXECUTE ON FUNCTION snowflake_change_layout(text) TO regress_snowflake_operator;
SELECT start_again();
SET ROLE regress_snowflake_operator;
SELECT snowflake_change_layout('twitter');
RESET ROLE;
SELECT layout LIKE 'timestamp 41, %' AS changed FROM snowflake.registry;
-- the database's owner may read, so that he can dump
SELECT relname, array_agg(privilege_type::text) AS database_owner
FROM pg_class, aclexplode(relacl)
WHERE relnamespace = 'snowflake'::regnamespace AND grantee = 'pg_database_owner'::regrole
GROUP BY 1 ORDER BY 1;
SELECT has_schema_privilege('pg_database_owner', 'snowflake', 'USAGE') AS usage,
	has_schema_privilege('pg_database_owner', 'snowflake', 'CREATE') AS create;
REVOKE ALL ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease
FROM regress_snowflake_node;
REVOKE ALL ON SCHEMA snowflake FROM regress_snowflake_node;
REVOKE ALL ON FUNCTION snowflake_change_layout(text) FROM regress_snowflake_operator;
DROP ROLE regress_snowflake_node, regress_snowflake_operator;

DROP VIEW lease;
DROP FUNCTION token, acquire, renew, release, start_again;
DROP EXTENSION snowflake;
SELECT count(*) FROM pg_namespace WHERE nspname = 'snowflake';
