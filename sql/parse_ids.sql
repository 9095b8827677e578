-- The parse side: ids of real systems, the inverse functions, and what is refused.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

--
-- Ids with known parts
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
SELECT count(*) AS vectors, count(DISTINCT layout) AS layouts FROM vector_csv;

-- a preset where there is one, else all spelled out
CREATE TABLE vector AS
SELECT v.*, coalesce(l.preset, (
		SELECT string_agg(CASE part[1] WHEN 't' THEN 'timestamp' WHEN 'dc' THEN 'datacenter'
				WHEN 'w' THEN 'worker' WHEN 's' THEN 'sequence' END || ' ' ||
				CASE WHEN part[1] = 't' AND total_bits = 64 THEN part[2]::int - 1 ELSE part[2]::int END,
				', ' ORDER BY nr) || format(', tick %sms, epoch %s', l.unit_ms,
				to_char(l.epoch AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
		FROM regexp_matches(l.fields, '([a-z]+)(\d+)', 'g') WITH ORDINALITY AS parts(part, nr))) AS definition
FROM vector_csv v LEFT JOIN layout_csv l USING (layout)
WHERE v.layout NOT LIKE 'seata%';
SELECT count(*) AS vectors, count(definition) AS definitions FROM vector;

-- all parts that the source states; no rows are wanted
SELECT v.layout, v.id, v.unix_ms, v.datacenter, v.worker, v.sequence, p.*
FROM vector v, snowflake_parse(v.id, v.definition) p
WHERE p."timestamp" <> 'epoch'::timestamptz + v.unix_ms * interval '1 ms' OR
	snowflake_timestamp(v.id, v.definition) <> p."timestamp" OR
	p.datacenter_id IS DISTINCT FROM coalesce(v.datacenter, p.datacenter_id) OR
	p.worker_id IS DISTINCT FROM coalesce(v.worker, p.worker_id) OR
	p.sequence IS DISTINCT FROM coalesce(v.sequence, p.sequence) OR
	p.clock IS NOT NULL;
-- and back to the same id
SELECT v.layout, v.id
FROM vector v, snowflake_parse(v.id, v.definition) p
WHERE snowflake_compose(p."timestamp", coalesce(p.worker_id, 0), p.sequence, v.definition,
	coalesce(p.datacenter_id, 0), coalesce(p.clock, 0)) <> v.id;
-- the worker above the timestamp is refused
SELECT snowflake_parse(9007199254745088, 'worker 10, timestamp 41, sequence 12, tick 1ms, epoch 2020-05-02T16:00:00Z');

--
-- Round trips: every preset, edges and pseudo-random parts
--
SELECT setseed(0.5);
CREATE TABLE trip AS
SELECT l.name, l.definition, bit.*,
	floor(random() * (1::bigint << least(bit.t, 41)))::bigint AS tick,
	floor(random() * (1::bigint << bit.dc))::int AS datacenter_id,
	floor(random() * (1::bigint << bit.w))::int AS worker_id,
	floor(random() * (1::bigint << bit.s))::int AS sequence
FROM snowflake_layouts() l,
	LATERAL (SELECT
		coalesce(substring(definition from 'timestamp (\d+)')::int, 0) AS t,
		coalesce(substring(definition from 'datacenter (\d+)')::int, 0) AS dc,
		coalesce(substring(definition from 'worker (\d+)')::int, 0) AS w,
		coalesce(substring(definition from 'sequence (\d+)')::int, 0) AS s) bit,
	generate_series(1, 50);
SELECT count(*) AS trips,
	count(*) FILTER (WHERE p.tick_begin <> p."timestamp" OR
		(trip.datacenter_id, trip.worker_id, trip.sequence) IS DISTINCT FROM
		(coalesce(p.datacenter_id, 0), coalesce(p.worker_id, 0), p.sequence)) AS wrong
FROM trip, LATERAL (
	SELECT x.*, l.epoch + trip.tick * l.tick AS tick_begin
	FROM snowflake_layout(trip.name) l,
		snowflake_parse(snowflake_compose(l.epoch + trip.tick * l.tick, trip.worker_id,
			trip.sequence, trip.name, trip.datacenter_id), trip.name) x) p;

-- the clock field, and an order below the timestamp that is all ours
SELECT *, snowflake_compose("timestamp", worker_id, sequence, l, datacenter_id, clock) AS again
FROM (VALUES ('timestamp 40, clock 3, sequence 10, worker 6, datacenter 4, epoch 2020-01-01T00:00:00Z')) v(l),
	snowflake_parse(7777777777777777777, l) \gx

--
-- min, max, infinity, edges
--
SELECT snowflake_min_id('2024-05-06 07:08:09.123456+00', 'twitter'),
	snowflake_max_id('2024-05-06 07:08:09.123456+00', 'twitter');
SELECT snowflake_parse(snowflake_min_id('2024-05-06 07:08:09.123456+00', 'twitter'), 'twitter'),
	snowflake_parse(snowflake_max_id('2024-05-06 07:08:09.123456+00', 'twitter'), 'twitter');
SELECT l.name FROM snowflake_layouts() l
WHERE snowflake_max_id('2020-06-01', l.name) + 1 <>
	snowflake_min_id(snowflake_timestamp(snowflake_min_id('2020-06-01', l.name), l.name) + l.tick, l.name)
	AND l.epoch < '2020-06-01';
SELECT name, snowflake_min_id('-infinity', name) AS first, snowflake_min_id('infinity', name) AS min_end,
	snowflake_max_id('-infinity', name) AS max_begin, snowflake_max_id('infinity', name) AS last
FROM snowflake_layouts() WHERE name IN ('twitter', 'js53', 'mastodon') ORDER BY name;
SELECT name FROM snowflake_layouts()
WHERE snowflake_timestamp(0, name) <> epoch OR
	snowflake_timestamp(snowflake_max_id('infinity', name), name) <> last_id_time OR
	snowflake_min_id(epoch, name) <> 0 OR
	snowflake_max_id(last_id_time, name) <> snowflake_max_id('infinity', name);
-- the range of timestamptz ends before this layout's field does
SELECT snowflake_max_id('infinity', 'timestamp 62, sequence 1') AS last,
	snowflake_timestamp(snowflake_max_id('infinity', 'timestamp 62, sequence 1'), 'timestamp 62, sequence 1');

-- without a layout: by the server's
SELECT snowflake_parse(1278735254799392768), snowflake_timestamp(1278735254799392768);
SELECT snowflake_compose('2020-07-03 01:00:17.153+08', 2, 0, 11) AS id,
	snowflake_compose('2020-07-03 01:00:17.153+08', 2, 0, 'twitter', 11) AS same;
SELECT snowflake_compose(worker_id => 2, sequence => 0, datacenter_id => 11,
	layout => 'twitter', ts => '2020-07-03 01:00:17.153+08') AS same;
SELECT snowflake_min_id(now()) <= snowflake_max_id(now());

-- strict
SELECT snowflake_parse(NULL) IS NULL AND snowflake_parse(1, NULL) IS NULL AND
	snowflake_timestamp(NULL) IS NULL AND snowflake_min_id(NULL) IS NULL AND
	snowflake_max_id(NULL, 'twitter') IS NULL AND snowflake_compose(NULL, 1, 1) IS NULL AND
	snowflake_compose(now(), 1, 1, NULL::text) IS NULL AS strict;

--
-- Refused
--
SELECT snowflake_parse(-1);
SELECT snowflake_timestamp(-9223372036854775808, 'leaf');
SELECT snowflake_parse(9007199254740992, 'js53');
SELECT snowflake_timestamp(9223372036854775807, 'timestamp 62, sequence 1');
SELECT snowflake_parse(1, 'twiter');
SELECT snowflake_min_id('2010-11-04 01:42:54.656999+00', 'twitter');
SELECT snowflake_max_id('2080-07-10 17:30:30.209+00', 'twitter');
SELECT snowflake_compose('infinity', 1, 1, 'twitter');
SELECT snowflake_compose('2009-01-01', 1, 1, 'twitter');
SELECT snowflake_compose('2024-01-01', 32, 1, 'twitter');
SELECT snowflake_compose('2024-01-01', -1, 1, 'twitter');
SELECT snowflake_compose('2024-01-01', 1, 4096, 'twitter');
SELECT snowflake_compose('2024-01-01', 1, 1, 'twitter', 32);
SELECT snowflake_compose('2024-01-01', 1, 1, 'leaf', 1);
SELECT snowflake_compose('2024-01-01', 1, 1, 'twitter', clock => 1);
\set VERBOSITY sqlstate
SELECT snowflake_parse(-1);
SELECT snowflake_parse(1, 'twiter');
SELECT snowflake_min_id('2009-01-01');
SELECT snowflake_compose('2024-01-01', 32, 1);
\set VERBOSITY default

--
-- In indexes, generated columns and partitions: the forms with a layout
--
CREATE TABLE event (id bigint PRIMARY KEY, note text,
	at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'twitter')) STORED)
	PARTITION BY RANGE (id);
CREATE TABLE event_2023 PARTITION OF event
	FOR VALUES FROM (snowflake_min_id('2023-01-01', 'twitter')) TO (snowflake_min_id('2024-01-01', 'twitter'));
CREATE TABLE event_2024 PARTITION OF event
	FOR VALUES FROM (snowflake_min_id('2024-01-01', 'twitter')) TO (snowflake_min_id('2025-01-01', 'twitter'));
INSERT INTO event (id, note) SELECT snowflake_compose(ts, 1, 0, 'twitter'), ts::date::text
FROM generate_series('2023-10-01'::timestamptz, '2024-03-01', '1 month') ts;
INSERT INTO event (id) VALUES (snowflake_min_id('2025-01-01', 'twitter'));
SELECT tableoid::regclass, note, at FROM event ORDER BY id;
EXPLAIN (COSTS OFF) SELECT * FROM event WHERE id >= snowflake_min_id('2024-02-01', 'twitter');
CREATE INDEX event_day ON event ((snowflake_timestamp(id, 'twitter')));
\set VERBOSITY sqlstate
CREATE INDEX event_bad ON event ((snowflake_timestamp(id)));
\set VERBOSITY default
CREATE INDEX event_worker ON event (((snowflake_parse(id, 'twitter')).worker_id));
SET enable_seqscan = off;
SELECT note FROM event WHERE snowflake_timestamp(id, 'twitter') BETWEEN '2023-11-15' AND '2024-01-15' ORDER BY 1;
RESET enable_seqscan;

-- nothing depends on the session's zone and style
CREATE TABLE seen (zone text, style text, id bigint, epoch double precision);
DO $$
DECLARE
	zone text;
	style text;
BEGIN
	FOREACH zone IN ARRAY ARRAY['UTC', 'Asia/Kathmandu', 'America/St_Johns', '<+03>-3'] LOOP
		FOREACH style IN ARRAY ARRAY['ISO, MDY', 'SQL, DMY', 'German', 'Postgres, MDY'] LOOP
			PERFORM set_config('timezone', zone, true), set_config('datestyle', style, true);
			INSERT INTO seen VALUES (zone, style,
				snowflake_min_id(to_timestamp(1704164645.678), 'uidgenerator'),
				extract(epoch FROM snowflake_timestamp(1823945883910279168, 'twitter, epoch 2010-11-04T01:42:54.657Z')));
		END LOOP;
	END LOOP;
END
$$;
SELECT count(*), min(id) = max(id) AS same_id, min(epoch) AS epoch, min(epoch) = max(epoch) AS same_time FROM seen;

-- layouts that change from row to row take no memory that grows with the rows
WITH parsed AS MATERIALIZED (
	SELECT count(snowflake_parse(g, CASE g % 2 WHEN 0 THEN 'twitter' ELSE 'leaf' END)) AS n FROM generate_series(1, 50000) AS g
)
SELECT n, (SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE n > 0) < 40000000 AS small FROM parsed;

-- volatility, strictness and parallel safety of all functions but those of the registry
CREATE EXTENSION snowflake_tools;
SELECT p.oid::regprocedure AS function, p.provolatile, p.proisstrict, p.proparallel, p.prosecdef
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname IN ('snowflake', 'snowflake_tools')
WHERE p.pronamespace = 'public'::regnamespace
ORDER BY p.oid::regprocedure::text COLLATE "C";
-- every object has a comment, but for inner functions, casts, and row types, which are members since PostgreSQL 17
SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend d
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	AND refobjid IN (SELECT oid FROM pg_extension WHERE extname IN ('snowflake', 'snowflake_tools'))
	AND classid NOT IN ('pg_type'::regclass, 'pg_cast'::regclass) AND obj_description(objid, classid::regclass::name) IS NULL
	AND (classid, objid) NOT IN (SELECT 'pg_proc'::regclass, p.oid FROM pg_proc p WHERE p.pronamespace <> 'public'::regnamespace);

DROP EXTENSION snowflake_tools;
DROP TABLE event, seen, trip, vector, vector_csv, layout_csv;
RESET timezone;
RESET datestyle;
