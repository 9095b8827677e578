--
-- Inner functions, most of them parts of others, are in a schema of their own.  It belongs to the
-- extension's owner, so nobody else can rename it, make it again, and put a function there that would run with
-- the rights of the caller.  So no function of the extension calls one of the schema that the extension
-- stands in by name: here are the C functions of that schema under the names that inner functions call.
--
CREATE SCHEMA snowflake_internal;
COMMENT ON SCHEMA snowflake_internal IS
'inner functions of the extension snowflake; not to be called by users';
GRANT USAGE ON SCHEMA snowflake_internal TO PUBLIC;

CREATE FUNCTION snowflake_internal.layout(
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
AS 'MODULE_PATHNAME', 'snowflake_layout'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_internal.layout() IS
'snowflake_layout(), for inner functions';

CREATE FUNCTION snowflake_internal.layout(layout text,
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
AS 'MODULE_PATHNAME', 'snowflake_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_internal.layout(text) IS
'snowflake_layout(text), for inner functions';

CREATE FUNCTION snowflake_internal.layouts(
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'snowflake_layouts'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 16;
COMMENT ON FUNCTION snowflake_internal.layouts() IS
'snowflake_layouts(), for inner functions';

CREATE FUNCTION snowflake_internal.parse(id bigint, layout text,
	OUT "timestamp" timestamptz, OUT datacenter_id integer, OUT worker_id integer,
	OUT clock integer, OUT sequence integer)
AS 'MODULE_PATHNAME', 'snowflake_parse'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_internal.parse(bigint, text) IS
'snowflake_parse(bigint, text), for inner functions';

CREATE FUNCTION snowflake_internal.id_time(id bigint, layout text) RETURNS timestamptz
AS 'MODULE_PATHNAME', 'snowflake_timestamp'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_internal.id_time(bigint, text) IS
'snowflake_timestamp(bigint, text), for inner functions';

CREATE FUNCTION snowflake_internal.min_id(ts timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_min_id'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_internal.min_id(timestamptz, text) IS
'snowflake_min_id(timestamptz, text), for inner functions';

CREATE FUNCTION snowflake_internal.max_id(ts timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_max_id'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_internal.max_id(timestamptz, text) IS
'snowflake_max_id(timestamptz, text), for inner functions';

CREATE FUNCTION snowflake_internal.id_range(since timestamptz, until timestamptz, layout text) RETURNS int8range
AS 'MODULE_PATHNAME', 'snowflake_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_internal.id_range(timestamptz, timestamptz, text) IS
'snowflake_range(timestamptz, timestamptz, text), for inner functions';

-- In no schema that others can name again: a default names it where it stands now.
CREATE FUNCTION snowflake_internal.nextval_functions() RETURNS SETOF oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT p.oid FROM pg_extension AS e
		JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
			AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		JOIN pg_proc AS p ON p.oid = d.objid
	WHERE e.extname = 'snowflake' AND p.proname IN ('snowflake_nextval', 'snowflake_next_id')
$$;
COMMENT ON FUNCTION snowflake_internal.nextval_functions() IS
'the two snowflake_nextval() and the two snowflake_next_id() of the extension, wherever it stands';
