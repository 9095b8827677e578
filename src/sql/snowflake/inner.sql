--
-- Inner functions, most of them parts of others, are in a schema of their own.  It belongs to a superuser, whoever
-- creates the extension, so nobody else can rename it, make it again, and put a function there that would run with
-- the rights of the caller.  So no function of the extension calls one of the schema that the extension
-- stands in by name: here are the C functions of that schema under the names that inner functions call.
-- What default expressions call is here, too: the extension snowflake_tools writes them, and need not stay.
--
CREATE SCHEMA snowflake_internal;
COMMENT ON SCHEMA snowflake_internal IS
'inner functions of the extension snowflake; not to be called by users';
GRANT USAGE ON SCHEMA snowflake_internal TO PUBLIC;

-- Says once what is missing on this server; all else about it is said by snowflake_nextval().  The library defines
-- its settings only if it is preloaded, and pg_settings has none that are not defined.
DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_settings AS s WHERE s.name OPERATOR(pg_catalog.=) 'snowflake.max_wait') THEN
		RAISE WARNING 'snowflake is not loaded via shared_preload_libraries'
			USING DETAIL = 'Ids can be parsed, but none can be issued.',
			HINT = 'Add snowflake to shared_preload_libraries in postgresql.conf and restart the server.';
	END IF;
END
$$;

CREATE FUNCTION snowflake_internal.layout(
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
AS 'MODULE_PATHNAME', 'snowflake_layout'
LANGUAGE C STABLE STRICT PARALLEL SAFE;

CREATE FUNCTION snowflake_internal.layout(layout text,
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
AS 'MODULE_PATHNAME', 'snowflake_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION snowflake_internal.layouts(
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'snowflake_layouts'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 16;

CREATE FUNCTION snowflake_internal.parse(id bigint, layout text,
	OUT "timestamp" timestamptz, OUT datacenter_id integer, OUT worker_id integer,
	OUT clock integer, OUT sequence integer)
AS 'MODULE_PATHNAME', 'snowflake_parse'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- What is done to a table is done as its owner, whose code it may run: see src/functions/owner.c.
CREATE FUNCTION snowflake_internal.execute_as_owner(relation regclass, statement text) RETURNS void
AS 'MODULE_PATHNAME', 'snowflake_execute_as_owner'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

CREATE FUNCTION snowflake_internal.max_id(ts timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_max_id'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION snowflake_internal.id_range(since timestamptz, until timestamptz, layout text) RETURNS int8range
AS 'MODULE_PATHNAME', 'snowflake_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
