-- The time of an id where the extension is not.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\pset format unaligned
\set SHOW_CONTEXT never
\set VERBOSITY default

CREATE FUNCTION pg_temp.layouts() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT name FROM snowflake_layouts()
	UNION ALL VALUES ('timestamp 45, worker 10, sequence 4, tick 1ms, epoch 2024-01-01T00:00:00Z'),
		('timestamp 40, clock 2, sequence 6, datacenter 3, worker 4, tick 1ms, epoch 2020-01-01T00:00:00Z'),
		('timestamp 41, worker 10, sequence 12, tick 1ms, epoch 1969-07-20T20:17:40.000123Z'),
		('timestamp 53, worker 8, sequence 2, tick 1us, epoch 2024-01-01T00:00:00Z'),
		('timestamp 58, worker 3, sequence 1, tick 10us, epoch 2000-01-01T00:00:00.5Z'),
		('timestamp 41, worker 10, sequence 12, tick 16ms, epoch 2000-01-01T00:00:00Z'),
		('timestamp 29, worker 20, sequence 14, tick 1s, epoch 2020-01-01T00:00:00Z')
$$;
-- ids at both ends and at a thousand places between
CREATE TEMPORARY TABLE sample AS
SELECT l.layout, least(s.id, snowflake_max_id('infinity', l.layout)) AS id
FROM pg_temp.layouts() AS l (layout), generate_series(0, 1000) AS i,
	LATERAL (SELECT snowflake_min_id('-infinity', l.layout) + trunc(i / 1000.0 *
		(snowflake_max_id('infinity', l.layout) - snowflake_min_id('-infinity', l.layout)))::bigint AS id) AS s;
DO $$
DECLARE
	v_layout text;
	v_different bigint;
	v_all bigint := 0;
BEGIN
	FOR v_layout IN SELECT pg_temp.layouts() LOOP
		EXECUTE format('SELECT count(*) FROM sample WHERE layout = $1 AND %s IS DISTINCT FROM snowflake_timestamp(id, $1)',
			snowflake_time_expression('id', v_layout)) INTO v_different USING v_layout;
		IF v_different > 0 THEN
			RAISE WARNING '%: % ids differ', v_layout, v_different;
		END IF;
		v_all := v_all + 1;
	END LOOP;
	RAISE NOTICE '% layouts', v_all;
END
$$;

-- a generated column of a table, with a name that is to be quoted, and of the type snowflake_id
SELECT format('CREATE TEMPORARY TABLE "Order" ("Id" bigint, id snowflake_id, at timestamptz GENERATED ALWAYS AS (%s) STORED, '
	'at2 timestamptz GENERATED ALWAYS AS (%s) STORED)',
	snowflake_time_expression('Id', 'twitter'), snowflake_time_expression('id', 'twitter')) \gexec
INSERT INTO "Order" VALUES (2123929381893046272, 2123929381893046272);
SET timezone = 'Asia/Tokyo';
SET datestyle = 'German';
SELECT at = snowflake_timestamp("Id", 'twitter') AS same, at2 = at AS same2 FROM "Order";
SELECT snowflake_time_expression('id', 'twitter') AS whatever_the_settings;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

SELECT l.layout || ', ' || d.dialect AS expression, snowflake_time_expression(CASE d.dialect WHEN 'spreadsheet' THEN 'A2' ELSE 'Id' END,
	l.layout, d.dialect) AS of
FROM (VALUES ('postgresql'), ('clickhouse'), ('duckdb'), ('spreadsheet')) AS d (dialect), (VALUES ('twitter'), ('uidgenerator'), ('sonyflake2'),
	('timestamp 40, clock 2, sequence 6, datacenter 3, worker 4, tick 1ms, epoch 2020-01-01T00:00:00Z')) AS l (layout)
\gx

SELECT snowflake_time_expression('a"`\b', 'twitter', 'clickhouse') AS clickhouse, snowflake_time_expression('a"`\b', 'twitter', 'duckdb') AS duckdb;
SELECT snowflake_time_expression(NULL, 'twitter') IS NULL AS null;
SELECT snowflake_time_expression('id', 'twitter', 'Oracle');
SELECT snowflake_time_expression('id', 'twiter');
SELECT snowflake_time_expression('id', 'twitter', 'spreadsheet');
SELECT snowflake_time_expression('A2', 'timestamp 58, worker 3, sequence 1, tick 10us, epoch 2000-01-01T00:00:00.5Z', 'spreadsheet');
DROP TABLE sample, "Order";
