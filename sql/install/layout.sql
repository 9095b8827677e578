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
AS 'MODULE_PATHNAME', 'snowflake_layout_layout'
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

