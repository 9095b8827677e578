-- Layouts: the grammar, the presets, and what is refused.
CREATE EXTENSION snowflake;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

-- the server's layout, and the presets
SELECT * FROM snowflake_layout() \gx
SELECT name, definition FROM snowflake_layouts() ORDER BY name;
SELECT name, bits, tick, epoch, last_id_time, max_ids_per_second, js_safe
FROM snowflake_layouts() ORDER BY name;

-- each preset against its published description; layouts of 64 bits give up
-- the top bit of their timestamp, and end earlier
\getenv abs_srcdir PG_ABS_SRCDIR
\set layouts_csv :abs_srcdir '/test/data/layouts.csv'
CREATE TABLE layout_csv (preset text, layout text, fields text, total_bits int,
	epoch_ms bigint, epoch timestamptz, unit_ms int, past_the_end text, js_safe boolean);
COPY layout_csv FROM :'layouts_csv' (FORMAT csv, HEADER);
CREATE FUNCTION definition_of(fields text, total_bits int, unit_ms int, epoch timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$
	SELECT string_agg(CASE part[1] WHEN 't' THEN 'timestamp' WHEN 'dc' THEN 'datacenter'
			WHEN 'w' THEN 'worker' WHEN 's' THEN 'sequence' END || ' ' ||
			CASE WHEN part[1] = 't' AND total_bits = 64 THEN part[2]::int - 1 ELSE part[2]::int END,
			', ' ORDER BY nr) || format(', tick %sms, epoch %s', unit_ms,
			to_char(epoch AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
	FROM regexp_matches(fields, '([a-z]+)(\d+)', 'g') WITH ORDINALITY AS parts(part, nr)
$$;
SELECT count(*) FILTER (WHERE preset IS NOT NULL) AS presets, count(*) AS layouts FROM layout_csv;
SELECT c.preset, l.name, l.definition
FROM layout_csv c, snowflake_layout(definition_of(c.fields, c.total_bits, c.unit_ms, c.epoch)) l
WHERE c.preset IS DISTINCT FROM l.name AND c.layout NOT LIKE 'seata%';
SELECT c.layout, c.bits, c.last_id_time, c.js_safe FROM (
	SELECT l.*, c.layout, c.total_bits, c.past_the_end, c.unit_ms, c.js_safe AS csv_js_safe
	FROM layout_csv c, snowflake_layout(definition_of(c.fields, c.total_bits, c.unit_ms, c.epoch)) l
	WHERE c.layout NOT LIKE 'seata%') c
WHERE bits <> least(total_bits, 63) OR js_safe <> csv_js_safe OR
	(total_bits < 64 AND past_the_end NOT LIKE '>%' AND
	 last_id_time + unit_ms * interval '1 ms' <> (trim(trailing 'Z' from past_the_end) || 'Z')::timestamptz);

-- definitions
CREATE FUNCTION show(layout text) RETURNS text LANGUAGE sql AS
	$$ SELECT concat_ws(': ', name, definition) FROM snowflake_layout(layout) $$;
SELECT show('twitter');
SELECT show('  TWITTER  ');
SELECT show('timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z');
SELECT show('Timestamp 41,worker	10 , SEQUENCE 12,tick 1 MS,epoch 2023-01-01 00:00:00Z');
SELECT show('twitter, epoch 2024-01-01T00:00:00Z');
SELECT show('sonyflake, tick 1ms, worker 14, sequence 10');
SELECT show('twitter, epoch 2010-11-04T01:42:54.657+00:00');
SELECT show('timestamp 41, worker 10, sequence 12');
SELECT show('tick 100us, timestamp 50, clock 2, sequence 3, worker 4, datacenter 4');
SELECT show('timestamp 32, sequence 31');
SELECT show('timestamp 62, sequence 1');
SELECT last_id_time FROM snowflake_layout('timestamp 62, sequence 1');
-- the last tick that timestamptz can show, to its end
SELECT last_id_time FROM snowflake_layout('timestamp 62, sequence 1, tick 86400s');
SELECT last_id_time FROM snowflake_layout('timestamp 62, sequence 1, tick 86400s, epoch 1970-01-01T12:00:00Z');
SELECT show('timestamp 30, sequence 10, tick 86400s, epoch 0001-01-01T00:00:00Z');
SELECT show('timestamp 41, worker 1, sequence 1, epoch 2016-09-20T00:00:00.123456+0830');
SELECT show('timestamp 41, worker 1, sequence 1, epoch 1999-12-31T23:59:59.999999-12');
SELECT show('timestamp 41, worker 1, sequence 1, epoch 1999-12-31T23:59:59.5Z');
SELECT show('timestamp 41, worker 1, sequence 1, epoch 2024-02-29T00:00:00z');

-- every canonical definition reads back as itself
SELECT name FROM snowflake_layouts() l
WHERE (SELECT (x.name, x.definition) FROM snowflake_layout(l.definition) x) IS DISTINCT FROM (l.name, l.definition);

-- refused, with the part and the bound
\set VERBOSITY default
SELECT snowflake_layout('');
SELECT snowflake_layout('tweeter');
SELECT snowflake_layout('timestamp 41, machine 10, sequence 12');
SELECT snowflake_layout('timestamp 41, worker 10, worker 10, sequence 2');
SELECT snowflake_layout('timestamp 41, worker 10, sequence 13');
SELECT snowflake_layout('twitter, sequence 13');
SELECT snowflake_layout('timestamp 30, worker 32, sequence 1');
SELECT snowflake_layout('timestamp 63, sequence 1');
SELECT snowflake_layout('timestamp 0, worker 10, sequence 12');
SELECT snowflake_layout('timestamp 41, worker -1, sequence 12');
SELECT snowflake_layout('timestamp 41, worker 10.5, sequence 12');
SELECT snowflake_layout('timestamp 41, worker, sequence 12');
SELECT snowflake_layout('timestamp 99999999999999999999, sequence 12');
SELECT snowflake_layout('worker 10, sequence 12');
SELECT snowflake_layout('tick 1ms');
-- nothing after the 127th character is overlooked
SELECT show('timestamp 41, worker 10, sequence' || repeat(' ', 117) || '1');
SELECT snowflake_layout('timestamp 41, worker 10, sequence' || repeat(' ', 118) || '12');
SELECT snowflake_layout('twitter, epoch' || repeat(' ', 102) || '2024-01-01T00:00:00Zulu');
SELECT snowflake_layout('timestamp 41, worker 10');
SELECT snowflake_layout('worker 10, timestamp 41, sequence 12');
SELECT snowflake_layout('leaf, datacenter 5');
SELECT snowflake_layout('tick 1ms, twitter');
SELECT snowflake_layout('twitter, leaf');
SELECT snowflake_layout('twitter~');
SELECT snowflake_layout('twitter,');
SELECT snowflake_layout('twitter, tick 1ms, tick 2ms');
SELECT snowflake_layout('twitter, tick 0ms');
SELECT snowflake_layout('twitter, tick 1min');
SELECT snowflake_layout('twitter, tick 86401s');
SELECT snowflake_layout('twitter, tick ms');
SELECT snowflake_layout('twitter, epoch 2024-01-01T00:00:00Z, epoch 2024-01-01T00:00:00Z');
SELECT snowflake_layout('twitter, epoch 2024-01-01T00:00:00');
SELECT snowflake_layout('twitter, epoch 2024-01-01');
SELECT snowflake_layout('twitter, epoch now');
SELECT snowflake_layout(repeat('x', 1000));
-- what is too long is not cut off silently
SELECT snowflake_layout('twitter' || repeat(' ', 130) || 'garbage');
SELECT snowflake_layout('twitter, worker 1' || repeat(' ', 120) || '0');
SELECT name FROM snowflake_layout('twitter' || repeat(' ', 1000));
-- a part is quoted in ASCII, so that cutting it leaves no half of a character
SELECT snowflake_layout(E'twitter, w\303\266rker 5');
SELECT snowflake_layout('twitter, ' || repeat(E'\303\266', 70));
-- and other wrong epochs
DO $$
DECLARE
	epoch text;
BEGIN
	FOREACH epoch IN ARRAY ARRAY['2023-02-29T00:00:00Z', '2024-13-01T00:00:00Z', '2024-00-01T00:00:00Z',
		'2024-04-31T00:00:00Z', '2024-01-00T00:00:00Z', '0000-01-01T00:00:00Z', '24-01-01T00:00:00Z',
		'2024-01-01T24:00:00Z', '2024-01-01T00:60:00Z', '2024-01-01T00:00:60Z', '2024-01-01T00:00:00.Z',
		'2024-01-01T00:00:00.1234567Z', '2024-01-01T00:00:00+16', '2024-01-01T00:00:00+08:60',
		'2024-01-01T00:00:00+8', '0001-01-01T00:00:00+01', '9999-12-31T23:00:00-01', '2024-01-01T00:00:00 Europe/Berlin', '2024-01-01T00:00:00Zx', '']
	LOOP
		BEGIN
			PERFORM snowflake_layout('twitter, epoch ' || epoch);
			RAISE WARNING 'accepted: %', epoch;
		EXCEPTION WHEN invalid_parameter_value THEN
			NULL;
		END;
	END LOOP;
END
$$;
-- the worker above the timestamp, as Seata has it: ids would not sort by time
SELECT snowflake_layout('worker 10, timestamp 41, sequence 12, tick 1ms, epoch 2020-05-02T16:00:00Z');

-- nothing depends on the session's zone and style
SET timezone = 'Asia/Kathmandu';
SET datestyle = 'SQL, DMY';
SELECT definition FROM snowflake_layout('uidgenerator');
SELECT show('twitter, epoch 2024-01-02T00:00:00Z');
SET timezone = 'America/St_Johns';
SET datestyle = 'German';
SELECT show('twitter, epoch 2024-01-02T00:00:00Z');
SELECT epoch = '2016-09-20 00:00:00+08'::timestamptz FROM snowflake_layout('uidgenerator');
RESET timezone;
RESET datestyle;

DROP FUNCTION show(text), definition_of(text, int, int, timestamptz);
DROP TABLE layout_csv;
