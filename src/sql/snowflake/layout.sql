--
-- Layouts
--
CREATE FUNCTION snowflake_layout(
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
AS 'MODULE_PATHNAME', 'snowflake_layout'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_layout() IS
'the server''s layout';

CREATE FUNCTION snowflake_layout(layout text,
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
AS 'MODULE_PATHNAME', 'snowflake_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_layout(text) IS
'a layout given by the name of a preset or a definition';

CREATE FUNCTION snowflake_layouts(
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'snowflake_layouts'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 16;
COMMENT ON FUNCTION snowflake_layouts() IS
'the presets: layouts of well-known id generators, by name';

-- A layout as its canonical definition; NULL is the server's.
CREATE FUNCTION snowflake_internal.layout_definition(layout text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT CASE WHEN $1 IS NULL THEN (SELECT l.definition FROM snowflake_internal.layout() AS l)
		ELSE (SELECT l.definition FROM snowflake_internal.layout($1) AS l) END
$$;

-- The layouts of snowflake.layout and snowflake.extra_layouts; by the settings, so that it also works on a server
-- that has not preloaded the library.
CREATE FUNCTION snowflake_internal.layouts_in_use(OUT layout text, OUT definition text, OUT extra boolean)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL SAFE ROWS 2
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT coalesce(l.name, l.definition), l.definition, false FROM snowflake_internal.layout() AS l
	UNION ALL
	SELECT coalesce(l.name, l.definition), l.definition, true
	FROM string_to_table(current_setting('snowflake.extra_layouts', true), ';') AS e (layout)
		CROSS JOIN LATERAL snowflake_internal.layout(e.layout) AS l
	WHERE e.layout ~ '\S'
$$;
