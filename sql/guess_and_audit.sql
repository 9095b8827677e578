-- What an id is, and whether the ids of a column can have been issued.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS snowflake;
CREATE EXTENSION snowflake_tools CASCADE;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\set SHOW_CONTEXT never

--
-- snowflake_guess(): ids of known layouts
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set layouts_csv :abs_srcdir '/test/data/layouts.csv'
\set vectors_csv :abs_srcdir '/test/data/vectors.csv'
CREATE TABLE layout_csv (preset text, layout text, fields text, total_bits int,
	epoch_ms bigint, epoch timestamptz, unit_ms int, past_the_end text, js_safe boolean);
COPY layout_csv FROM :'layouts_csv' (FORMAT csv, HEADER);
CREATE TABLE vector_csv (layout text, id bigint, unix_ms bigint, datacenter int, worker int,
	sequence int, source text);
COPY vector_csv FROM :'vectors_csv' (FORMAT csv, HEADER);
CREATE TABLE guess AS
SELECT l.preset, v.id, v.unix_ms, g.*
FROM vector_csv v JOIN layout_csv l USING (layout)
LEFT JOIN LATERAL snowflake_guess(v.id, '2026-11-21 00:00Z') WITH ORDINALITY
	AS g (layout, "timestamp", datacenter_id, worker_id, clock, sequence, surprise, own, place) ON g.layout = l.preset
WHERE l.preset IS NOT NULL;
-- how often the right layout is there, first, and among the first three
SELECT count(*) AS vectors, count(place) AS listed,
	count(*) FILTER (WHERE place = 1) AS first, count(*) FILTER (WHERE place <= 3) AS first_three
FROM guess;
-- not listed: the first second of an epoch and the last tick of a layout
SELECT preset, id, to_timestamp(unix_ms / 1000) AS "time" FROM guess WHERE place IS NULL ORDER BY preset, id;
SELECT count(*) AS wrong FROM guess WHERE "timestamp" <> 'epoch'::timestamptz + unix_ms * interval '1 ms';

SELECT * FROM snowflake_guess(1785223470585921538, '2026-11-21 00:00Z');
SELECT layout, "timestamp", worker_id, sequence, surprise FROM snowflake_guess(103270115826048975, '2026-11-21 00:00Z') LIMIT 3;
SELECT layout, "timestamp", worker_id, sequence, surprise FROM snowflake_guess(1452736581206048, '2026-11-21 00:00Z') LIMIT 3;
-- layouts with the same widths differ by their epochs only: at the time of the id most are not yet possible
SELECT string_agg(layout, ' ') FROM snowflake_guess(175928847299117063, '2026-11-21 00:00Z');
SELECT string_agg(layout, ' ') FROM snowflake_guess(175928847299117063, '2016-05-01 00:00Z');
-- the server's own ids; those of one millisecond in 8,192 look more like uidgenerator's
SELECT g.layout, g."timestamp" BETWEEN now() - interval '1 min' AND now() + interval '1 min' AS fresh, g.own
FROM (SELECT snowflake_nextval() AS id, pg_sleep(0.002) FROM generate_series(1, 3)) AS i,
	LATERAL (SELECT * FROM snowflake_guess(i.id) LIMIT 1) AS g
GROUP BY 1, 2, 3 ORDER BY count(*) DESC LIMIT 1;

-- from an hour after the begin to an hour past the given time
SELECT ts, bool_or(layout = 'cosid') AS cosid
FROM unnest('{2019-12-24 16:59:59.999Z, 2019-12-24 17:00Z, 2026-01-01 01:00Z, 2026-01-01 01:00:00.001Z}'::timestamptz[]) ts
LEFT JOIN LATERAL snowflake_guess(snowflake_compose(ts, 1, 1, 'cosid'), '2026-01-01 00:00Z') ON true GROUP BY 1 ORDER BY 1;
SELECT ts, bool_or(layout = 'mastodon') AS mastodon
FROM unnest('{2016-01-01 00:59:59.999Z, 2016-01-01 01:00Z}'::timestamptz[]) ts
LEFT JOIN LATERAL snowflake_guess(snowflake_compose(ts, 0, 1, 'mastodon'), '2026-01-01 00:00Z') ON true GROUP BY 1 ORDER BY 1;
SELECT id, count(layout)
FROM unnest('{0, 100000, 9223372036854775807}'::bigint[]) id LEFT JOIN LATERAL snowflake_guess(id, '2024-01-01 00:00Z') ON true
GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM snowflake_guess(1785223470585921538, '1999-01-01 00:00Z');
SELECT count(*) FROM snowflake_guess(NULL);
SELECT count(*) FROM snowflake_guess(1, NULL);
SELECT * FROM snowflake_guess(-1);
SELECT * FROM snowflake_guess(1, 'infinity');
\set VERBOSITY sqlstate
SELECT * FROM snowflake_guess(-9223372036854775808);
SELECT * FROM snowflake_guess(1, '-infinity');
\set VERBOSITY default

-- extra layouts are candidates, presets or not
SELECT layout, own, surprise FROM snowflake_guess(snowflake_compose('2026-10-01 00:00Z', 5, 7, 'js53'), '2026-11-21 00:00Z') LIMIT 1;
SELECT * FROM snowflake_guess(snowflake_compose('2026-10-01 00:00Z', 9, 7,
	'timestamp 30, worker 10, sequence 10, tick 1s, epoch 2024-01-01T00:00:00Z'), '2026-11-21 00:00Z') LIMIT 1;
SELECT * FROM snowflake_internal.layout_fields('timestamp 40, sequence 10, datacenter 5, clock 2, worker 5, tick 1ms');
SELECT value, snowflake_internal.part_cost(value, 12) AS bits FROM unnest('{0, 1, 2, 3, 62, 63, 4095}'::bigint[]) value;

--
-- snowflake_audit(), where the leases of this cluster are on record; test/t/029_audit.pl has them elsewhere.  Those
-- that are made up here are of other incarnations: what a restore brings.
--
\set regression :DBNAME
\c postgres
SET client_min_messages = warning;
CREATE EXTENSION snowflake_tools CASCADE;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
-- Ids of the layout twitter: datacenter 2, worker 3 are number 67.
CREATE FUNCTION id(ts text, worker int DEFAULT 3, datacenter int DEFAULT 2, sequence int DEFAULT 0) RETURNS bigint
LANGUAGE sql AS $$ SELECT snowflake_compose(('2024-03-01 ' || ts || 'Z')::timestamptz, worker, sequence, 'twitter', datacenter) $$;
-- starts: NULL is when the server was launched, as for a number that was never used before.
CREATE FUNCTION lease(number int, launched text, until text, starts text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
	INSERT INTO snowflake.worker_node (token, start, granted_by, kind, system_identifier, host_name, port, role, timeline,
		incarnation, generation, fixed, node_number, layout, launched_at, starts_at, leased_until, closed_at)
	SELECT gen_random_uuid(), gen_random_uuid(), 1, 'server', 1, 'regress_snowflake', 1, 'any', 1,
		gen_random_uuid(), 1, true, number, 'any', launched::timestamptz,
		coalesce(starts, launched)::timestamptz, until::timestamptz, now()
$$;
CREATE TABLE orders (id bigint, note text);
SELECT * FROM snowflake_audit('orders', 'id', 'snowflake.leases');
INSERT INTO orders VALUES (id('12:00')), (id('12:00:00.001'));
SELECT * FROM snowflake_audit('orders', 'id', 'snowflake.leases');
SELECT lease(67, '2024-03-01 12:00Z', '2024-03-01 12:10Z');
SELECT lease(9, '2024-01-01 00:00Z', '2100-01-01 00:00Z');
SELECT * FROM snowflake_audit('orders', 'id', 'snowflake.leases');

-- the ends of leases: ticks from the one of the server's launch, up to the one that ends at leased_until
SELECT lease(67, '2024-03-01 13:00:00.0009Z', '2024-03-01 13:05:00.0005Z', starts => '2024-03-01 12:10Z');
INSERT INTO orders VALUES (id('12:09:59.999')), (id('13:00')), (id('13:04:59.999')), (id('13:04:59.999', sequence => 4095));
SELECT * FROM snowflake_audit('orders', 'id', 'snowflake.leases');
INSERT INTO orders VALUES (id('11:59:59.999')), (id('12:10', sequence => 1)), (id('12:59:59.999')), (id('13:05'));
SELECT * FROM snowflake_audit('orders', 'id', 'snowflake.leases');
-- one that was closed where it starts allows nothing
SELECT lease(67, '2024-03-01 11:59Z', '2024-03-01 12:00Z'),
	lease(67, '2024-03-01 13:30Z', '2024-03-01 12:30Z', starts => '2024-03-01 12:30Z');
SELECT finding, count FROM snowflake_audit('orders', 'id', 'snowflake.leases');
-- a lease that starts later than its server, within a tick
CREATE TABLE started AS SELECT id(ts, 4) FROM unnest('{13:00,14:00:00.001,14:00:00.002,14:00:00.003,14:00:01}'::text[]) ts;
SELECT lease(68, '2024-03-01 13:50Z', '2024-03-01 14:00:01Z', starts => '2024-03-01 14:00:00.0015Z');
SELECT finding, count, id = id('14:00:00.001', 4) AS before FROM snowflake_audit('started', 'id', 'snowflake.leases');
DROP TABLE started;
-- not of a lease whose end is not known
SELECT lease(69, '2024-03-01 14:00Z', t) FROM unnest('{-infinity,infinity}'::text[]) AS t;
CREATE TABLE endless AS SELECT id('14:00', 5) AS id;
SELECT finding, count FROM snowflake_audit('endless', 'id', 'snowflake.leases');
DROP TABLE endless;

-- everything else
INSERT INTO orders SELECT generate_series(0, 999);
INSERT INTO orders VALUES (NULL), (NULL), (-5), (-9223372036854775808), (id('12:00', 0, 0)), (id('12:00', 0, 0, 1)),
	(id('12:00', 31, 31)), (id('12:00', 31, 30)), (snowflake_compose('2079-01-01Z', 3, 1, 'twitter', 2)),
	(snowflake_max_id('infinity', 'twitter')), (snowflake_compose('2024-05-05Z', 9, 1, 'twitter'));
INSERT INTO orders SELECT id('12:00', n, 5) FROM generate_series(1, 12) n;
INSERT INTO orders SELECT id('12:00'), 'again' FROM generate_series(1, 3);
SELECT * FROM snowflake_audit('orders', 'id', 'snowflake.leases');

-- ids between now and the clock plus max_ahead are not of the future
CREATE TABLE soon AS SELECT snowflake_compose(clock_timestamp() + interval '500 ms', 9, 1, 'twitter') AS id;
SELECT * FROM snowflake_audit('soon', 'id', 'snowflake.leases');
INSERT INTO soon SELECT snowflake_compose(clock_timestamp() + interval '1 min', 9, 1, 'twitter');
SELECT finding, node_number, count FROM snowflake_audit('soon', 'id', 'snowflake.leases');

-- by another layout, which need not be in use
CREATE TABLE wide AS SELECT snowflake_compose('2024-03-01 12:00Z', 67, 1, 'js53, sequence 6') AS id;
SELECT * FROM snowflake_audit('wide', 'id', 'snowflake.leases', 'js53, sequence 6');
INSERT INTO wide VALUES (snowflake_compose('2024-03-01 12:10Z', 67, 1, 'js53, sequence 6')), (9007199254740991),
	(snowflake_compose('2024-03-01 12:10Z', 127, 1, 'js53, sequence 6')), (7);
SELECT * FROM snowflake_audit('wide', 'id', 'snowflake.leases', 'js53, sequence 6');
-- all fields of the node number, in an order below the timestamp that is all ours: (3 << 5 | 9) << 2 | 1
\set layout 'timestamp 40, sequence 10, datacenter 5, clock 2, worker 5, tick 1ms, epoch 2024-06-01T00:00:00Z'
CREATE TABLE log AS SELECT snowflake_compose('2026-10-01 00:00Z', 9, 7, :'layout', 3, 1) AS id;
SELECT finding, node_number, id = (SELECT id FROM log) AS same FROM snowflake_audit('log', 'id', 'snowflake.leases', :'layout');
-- no node number at all
CREATE TABLE toots AS SELECT 103270115826048975 AS id;
SELECT * FROM snowflake_audit('toots', 'id', 'snowflake.leases', 'mastodon');

-- duplicates: in a table, over partitions, inheritance children and the rows of a view
CREATE TABLE events (id bigint, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);
CREATE TABLE events_2 PARTITION OF events FOR VALUES IN (2);
INSERT INTO events SELECT id('12:00', sequence => s), 1 + s % 2 FROM generate_series(0, 9) s;
SELECT * FROM snowflake_audit('events', 'id', 'snowflake.leases');
INSERT INTO events SELECT id('12:00', sequence => s), 1 FROM generate_series(1, 3, 2) s;
SELECT * FROM snowflake_audit('events', 'id', 'snowflake.leases');
SELECT * FROM snowflake_audit('events_1', 'id', 'snowflake.leases');
CREATE VIEW all_events AS SELECT id FROM events;
CREATE MATERIALIZED VIEW kept_events AS SELECT id FROM events;
SELECT * FROM snowflake_audit('all_events', 'id', 'snowflake.leases');
SELECT * FROM snowflake_audit('kept_events', 'id', 'snowflake.leases');
CREATE TABLE parent (id bigint PRIMARY KEY);
CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);
INSERT INTO parent VALUES (id('12:01'));
INSERT INTO child VALUES (id('12:01'));
SELECT * FROM snowflake_audit('parent', 'id', 'snowflake.leases');
SELECT * FROM snowflake_audit('child', 'id', 'snowflake.leases');
-- which indexes show that there are none
CREATE TABLE indexed (a bigint UNIQUE, b bigint, c bigint) PARTITION BY RANGE (a);
CREATE TABLE indexed_1 PARTITION OF indexed (UNIQUE (c)) FOR VALUES FROM (0) TO (1);
CREATE TABLE single (id bigint PRIMARY KEY, a bigint UNIQUE DEFERRABLE, b bigint, c bigint, d bigint, e bigint);
CREATE UNIQUE INDEX ON single (b) WHERE c = 1;
CREATE UNIQUE INDEX ON single (c, d);
CREATE UNIQUE INDEX ON single ((e + 1));
CREATE UNIQUE INDEX ON single (d) INCLUDE (e);
CREATE INDEX ON single (e);
SELECT t, attname, snowflake_tools.known_unique(t, attname)
FROM unnest('{indexed, indexed_1, single, parent, child}'::regclass[]) WITH ORDINALITY AS u (t, nr)
JOIN pg_attribute ON attrelid = t AND attnum > 0 ORDER BY nr, attnum;

-- names and types
CREATE DOMAIN order_id AS bigint;
CREATE DOMAIN web_order_id AS order_id;
CREATE TEMP TABLE "Odd "" Table" ("I'd %I $1" web_order_id, n integer, "null" text);
INSERT INTO "Odd "" Table" VALUES (id('12:00')), (id('12:00'));
SELECT * FROM snowflake_audit('"Odd "" Table"', 'I''d %I $1', 'snowflake.leases');
SELECT * FROM snowflake_audit('"Odd "" Table"', 'n', 'snowflake.leases');
SELECT * FROM snowflake_audit('orders', 'nothing', 'snowflake.leases');
SELECT * FROM snowflake_audit('parent_pkey', 'id', 'snowflake.leases');
SELECT * FROM snowflake_audit(1, 'id', 'snowflake.leases');
SELECT * FROM snowflake_audit(NULL, 'id', 'snowflake.leases');
SELECT * FROM snowflake_audit('orders', NULL, 'snowflake.leases');
SELECT * FROM snowflake_audit('orders', 'id', 'snowflake.leases', 'nothing');
SELECT * FROM snowflake_audit('nothing', 'id', 'snowflake.leases');
\set VERBOSITY sqlstate
SELECT * FROM snowflake_audit('orders', 'note', 'snowflake.leases');
SELECT * FROM snowflake_audit('orders', 'nothing', 'snowflake.leases');
SELECT * FROM snowflake_audit('parent_pkey', 'id', 'snowflake.leases');
SELECT * FROM snowflake_audit(1, 'id', 'snowflake.leases');
SELECT * FROM snowflake_audit('orders', NULL, 'snowflake.leases');
SELECT * FROM snowflake_audit('orders', 'id', 'snowflake.leases', 'nothing');
\set VERBOSITY default

-- leases: a table or view that has the columns, of the types or domains over them, whatever else and in whatever order;
-- rows without a number, a start or an end count for nothing
CREATE DOMAIN lease_number AS bigint;
CREATE DOMAIN lease_time AS timestamptz;
CREATE TABLE former (launched_at lease_time, "node number" text, node_number lease_number, leased_until timestamptz(3), starts_at lease_time);
SELECT finding, node_number, substring(detail, '.*: (.*)') AS why FROM snowflake_audit('soon', 'id', 'former');
INSERT INTO former VALUES (NULL, NULL, 9, now() + '1 h', '2024-01-01'), (now(), NULL, NULL, now(), now()), (now(), NULL, 10, NULL, now()),
	(now(), NULL, 11, now() + '1 h', NULL);
SELECT finding, node_number FROM snowflake_audit('soon', 'id', 'former');
INSERT INTO soon SELECT snowflake_compose(clock_timestamp(), n, 1, 'twitter') FROM generate_series(9, 11) AS n;
SELECT finding, node_number FROM snowflake_audit('soon', 'id', 'former');
CREATE VIEW both_logs AS SELECT node_number, launched_at, starts_at, leased_until FROM snowflake.leases
	UNION ALL SELECT 11, launched_at, starts_at, leased_until FROM former WHERE node_number = 9;
SELECT finding, node_number FROM snowflake_audit('soon', 'id', 'both_logs');
DROP VIEW both_logs;
SELECT finding, node_number, substring(detail, '.*: (.*)') AS why FROM snowflake_audit('wide', 'id', NULL, 'js53, sequence 6');
ALTER TABLE former ALTER starts_at TYPE timestamp;
SELECT * FROM snowflake_audit('soon', 'id', 'former');
ALTER TABLE former ALTER node_number TYPE int;
SELECT * FROM snowflake_audit('soon', 'id', 'former');
ALTER TABLE former RENAME node_number TO number;
SELECT * FROM snowflake_audit('soon', 'id', 'former');
SELECT * FROM snowflake_audit('soon', 'id', 'parent_pkey');
SELECT * FROM snowflake_audit('soon', 'id', 1);
\set VERBOSITY sqlstate
SELECT * FROM snowflake_audit('soon', 'id', 'former');
ALTER TABLE former RENAME number TO node_number;
SELECT * FROM snowflake_audit('soon', 'id', 'former');
\set VERBOSITY default
DROP TABLE former;
DROP DOMAIN lease_number, lease_time;

-- by an ordinary user: the table and the leases with the user's own rights
CREATE ROLE regress_snowflake_auditor;
SET ROLE regress_snowflake_auditor;
SELECT * FROM snowflake_audit('events', 'id', NULL);
SELECT layout FROM snowflake_guess(1785223470585921538, '2026-11-21 00:00Z') LIMIT 1;
RESET ROLE;
GRANT SELECT (id) ON events, parent, child TO regress_snowflake_auditor;
SET ROLE regress_snowflake_auditor;
SELECT * FROM snowflake_audit('events', 'id', NULL);
SELECT * FROM snowflake_audit('events', 'id', 'snowflake.leases');
RESET ROLE;
GRANT USAGE ON SCHEMA snowflake TO regress_snowflake_auditor;
SET ROLE regress_snowflake_auditor;
SELECT * FROM snowflake_audit('events', 'id', 'snowflake.leases');
RESET ROLE;
GRANT SELECT (node_number, launched_at, starts_at, leased_until) ON snowflake.leases TO regress_snowflake_auditor;
GRANT SELECT ON events TO regress_snowflake_auditor;
ALTER TABLE parent ENABLE ROW LEVEL SECURITY;
SET ROLE regress_snowflake_auditor;
SELECT * FROM snowflake_audit('events', 'id', 'snowflake.leases');
SELECT * FROM snowflake_audit('parent', 'id', 'snowflake.leases');
RESET ROLE;
DROP OWNED BY regress_snowflake_auditor;
DROP ROLE regress_snowflake_auditor;

-- ids that were really issued
SELECT snowflake_nextval() > 0 AS issued;
CREATE TABLE issued AS SELECT id FROM snowflake_nextval_batch(10000) id;
INSERT INTO issued SELECT snowflake_nextval() FROM generate_series(1, 100);
SELECT * FROM snowflake_audit('issued', 'id', 'snowflake.leases');
INSERT INTO issued SELECT snowflake_compose(p."timestamp", 30, 0, 0)
FROM (SELECT max(id) AS id FROM issued) d, snowflake_parse(d.id) p;
INSERT INTO issued SELECT snowflake_compose(p."timestamp" - interval '1 year', p.worker_id, 0, p.datacenter_id)
FROM (SELECT min(id) AS id FROM issued) d, snowflake_parse(d.id) p;
SELECT finding, count FROM snowflake_audit('issued', 'id', 'snowflake.leases');
DROP TABLE issued;
-- one of them is not over
UPDATE snowflake.worker_node SET leased_until = starts_at WHERE host_name = 'regress_snowflake';
DELETE FROM snowflake.worker_node WHERE host_name = 'regress_snowflake';
SET client_min_messages = warning;
DROP VIEW all_events;
DROP MATERIALIZED VIEW kept_events;
DROP TABLE orders, soon, wide, log, toots, events, parent, child, indexed, single;
DROP FUNCTION id, lease;
DROP TABLE "Odd "" Table";
DROP DOMAIN web_order_id, order_id;
DROP EXTENSION snowflake_tools;

\c :regression
SET client_min_messages = warning;
DROP TABLE guess, layout_csv, vector_csv;
DROP EXTENSION snowflake, snowflake_tools;
CREATE EXTENSION snowflake;
