
--
-- Inner functions and types have a schema of their own, as those of snowflake have.  They call those of
-- snowflake_internal, and none of the schemas that the extensions stand in: here are C functions of snowflake under
-- names of this schema.  Those without a search_path of their own are called by those that have one, and by nobody else;
-- but for those that are to run with the session's, which call only others with one, and name all else with its schema.
--
CREATE SCHEMA snowflake_tools;
COMMENT ON SCHEMA snowflake_tools IS
'inner functions of the extension snowflake_tools; not to be called by users';
GRANT USAGE ON SCHEMA snowflake_tools TO PUBLIC;

CREATE FUNCTION snowflake_tools.id_time(id bigint, layout text) RETURNS timestamptz
AS 'MODULE_PATHNAME', 'snowflake_timestamp'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION snowflake_tools.min_id(ts timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_min_id'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- What a query of one value returns, executed as the owner of a relation, whose code it may run: see
-- src/functions/owner.c.
CREATE FUNCTION snowflake_tools.look_as_owner(relation regclass, query text) RETURNS jsonb
AS 'MODULE_PATHNAME', 'snowflake_look_as_owner'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

-- The same rule for what is made again.
CREATE FUNCTION snowflake_tools.execute_as(role oid, statement text) RETURNS void
AS 'MODULE_PATHNAME', 'snowflake_execute_as_role'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

-- The two snowflake_nextval() and the two snowflake_next_id() of snowflake, wherever it stands: a default names it
-- where it stands now.  The owner of the extension may add functions of his own to it, but none in C.
CREATE FUNCTION snowflake_tools.nextval_functions() RETURNS SETOF oid
LANGUAGE sql STABLE
AS $$
	SELECT p.oid FROM pg_extension AS e
		JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
			AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		JOIN pg_proc AS p ON p.oid = d.objid
		JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname = 'c'
	WHERE e.extname = 'snowflake' AND p.proname IN ('snowflake_nextval', 'snowflake_next_id')
$$;
