-- Ids parsed, composed, encoded, masked: what test/arch/run compares between architectures.
-- The last columns of known values say whether they are right.
\getenv data SNOWFLAKE_DATA
\set layouts_csv :data '/layouts.csv'
\set vectors_csv :data '/vectors.csv'
\set masks_csv :data '/masks.csv'
\set ON_ERROR_STOP
SET timezone = 'UTC';
CREATE TEMP TABLE layout_csv (preset text, layout text, fields text, total_bits int,
	epoch_ms bigint, epoch timestamptz, unit_ms int, past_the_end text, js_safe boolean);
COPY layout_csv FROM :'layouts_csv' (FORMAT csv, HEADER);
CREATE TEMP TABLE vector (layout text, id bigint, unix_ms bigint, datacenter int, worker int, sequence int, source text);
COPY vector FROM :'vectors_csv' (FORMAT csv, HEADER);
CREATE TEMP TABLE mask (key text, id bigint, masked bigint);
COPY mask FROM :'masks_csv' (FORMAT csv, HEADER);

CREATE TEMP TABLE ids AS
SELECT id FROM vector
UNION SELECT id FROM mask
UNION SELECT (1::bigint << n) - d FROM generate_series(0, 62) n, generate_series(0, 1) d
ORDER BY id;

SELECT 'vector', v.*, p.*, 'epoch'::timestamptz + v.unix_ms * interval '1 ms' = p."timestamp" AS known
FROM (SELECT preset, id, unix_ms FROM vector JOIN layout_csv USING (layout) WHERE preset IS NOT NULL) v,
	snowflake_parse(v.id, v.preset) p
ORDER BY preset, id;
SELECT 'mask', key, id, snowflake_mask(id, decode(key, 'hex')), snowflake_unmask(masked, decode(key, 'hex')),
	snowflake_mask(id, decode(key, 'hex')) = masked AND snowflake_unmask(masked, decode(key, 'hex')) = id AS known
FROM mask ORDER BY key, id;
SELECT 'layout', l.* FROM snowflake_layouts() l ORDER BY name;

-- every id by every layout that has it among its ids
SELECT 'parse', name, p.*, id
FROM ids, snowflake_layouts() l, LATERAL (SELECT 1 WHERE id <= snowflake_max_id('infinity', name)) fits,
	snowflake_parse(id, name) p
ORDER BY name, id;
SELECT 'compose', name, n, snowflake_compose(l.epoch + n * l.tick, n % 2, n % 4, name)
FROM snowflake_layouts() l, generate_series(0, 100000, 9973) n
WHERE definition LIKE '%worker%' AND definition LIKE '%sequence%'
ORDER BY name, n;
SELECT 'encode', format, snowflake_encode(id, format), id, snowflake_decode(snowflake_encode(id, format), format) = id AS known
FROM ids, unnest('{base62,crockford32,hex,decimal}'::text[]) format
ORDER BY format, id;
SELECT 'guess', id, g.layout, g."timestamp", g.worker_id, g.sequence FROM vector v, snowflake_guess(v.id, '2026-11-21 00:00Z') g
ORDER BY id, g.layout COLLATE "C";
