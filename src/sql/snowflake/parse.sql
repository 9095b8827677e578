--
-- Parsing; without a layout by the server's, which makes it stable
--
CREATE FUNCTION snowflake_parse(id bigint,
	OUT "timestamp" timestamptz, OUT datacenter_id integer, OUT worker_id integer,
	OUT clock integer, OUT sequence integer)
AS 'MODULE_PATHNAME', 'snowflake_parse'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_parse(bigint) IS
'parts of an id of the server''s layout; fields that the layout does not have are NULL';

CREATE FUNCTION snowflake_parse(id bigint, layout text,
	OUT "timestamp" timestamptz, OUT datacenter_id integer, OUT worker_id integer,
	OUT clock integer, OUT sequence integer)
AS 'MODULE_PATHNAME', 'snowflake_parse'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_parse(bigint, text) IS
'parts of an id of the given layout; fields that the layout does not have are NULL';

CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamptz
AS 'MODULE_PATHNAME', 'snowflake_timestamp'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS
'time of an id of the server''s layout: the start of its tick';

CREATE FUNCTION snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
AS 'MODULE_PATHNAME', 'snowflake_timestamp'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_timestamp(bigint, text) IS
'time of an id of the given layout: the start of its tick';

CREATE FUNCTION snowflake_min_id(ts timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_min_id'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_min_id(timestamptz) IS
'first id of the tick that contains a time, in the server''s layout';

CREATE FUNCTION snowflake_min_id(ts timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_min_id'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_min_id(timestamptz, text) IS
'first id of the tick that contains a time, in the given layout';

CREATE FUNCTION snowflake_max_id(ts timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_max_id'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_max_id(timestamptz) IS
'last id of the tick that contains a time, in the server''s layout';

CREATE FUNCTION snowflake_max_id(ts timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_max_id'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_max_id(timestamptz, text) IS
'last id of the tick that contains a time, in the given layout';

CREATE FUNCTION snowflake_compose(ts timestamptz, worker_id integer, sequence integer,
	datacenter_id integer DEFAULT 0, clock integer DEFAULT 0) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_compose'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_compose(timestamptz, integer, integer, integer, integer) IS
'id of the server''s layout with the given parts, in the tick that contains the time';

CREATE FUNCTION snowflake_compose(ts timestamptz, worker_id integer, sequence integer, layout text,
	datacenter_id integer DEFAULT 0, clock integer DEFAULT 0) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_compose'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_compose(timestamptz, integer, integer, text, integer, integer) IS
'id of the given layout with the given parts, in the tick that contains the time';

