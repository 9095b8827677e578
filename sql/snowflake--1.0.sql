/* snowflake--1.0.sql */

\echo Use "CREATE EXTENSION snowflake" to load this file. \quit

-- Say once what is missing; everything else about it is said by the draws.
CREATE FUNCTION snowflake_warn_unless_preloaded() RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C;
SELECT snowflake_warn_unless_preloaded();
DROP FUNCTION snowflake_warn_unless_preloaded();

--
-- Drawing
--
CREATE FUNCTION snowflake_nextval() RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_nextval() IS
'next id of the server''s layout: unique, increasing, made of the time, the node number and a sequence';

CREATE FUNCTION snowflake_nextval_batch(n integer) RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval_batch'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 1000;
COMMENT ON FUNCTION snowflake_nextval_batch(integer) IS
'next n ids of the server''s layout, increasing; n from 1 to 1,000,000';

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
AS 'MODULE_PATHNAME', 'snowflake_parse_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_parse(bigint, text) IS
'parts of an id of the given layout; fields that the layout does not have are NULL';

CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamptz
AS 'MODULE_PATHNAME', 'snowflake_timestamp'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS
'begin of the tick of an id of the server''s layout';

CREATE FUNCTION snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
AS 'MODULE_PATHNAME', 'snowflake_timestamp_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_timestamp(bigint, text) IS
'begin of the tick of an id of the given layout';

CREATE FUNCTION snowflake_min_id(ts timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_min_id'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_min_id(timestamptz) IS
'first id of the tick that contains a time, in the server''s layout';

CREATE FUNCTION snowflake_min_id(ts timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_min_id_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_min_id(timestamptz, text) IS
'first id of the tick that contains a time, in the given layout';

CREATE FUNCTION snowflake_max_id(ts timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_max_id'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_max_id(timestamptz) IS
'last id of the tick that contains a time, in the server''s layout';

CREATE FUNCTION snowflake_max_id(ts timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_max_id_layout'
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
AS 'MODULE_PATHNAME', 'snowflake_compose_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_compose(timestamptz, integer, integer, text, integer, integer) IS
'id of the given layout with the given parts, in the tick that contains the time';

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

--
-- Monitoring
--
CREATE FUNCTION pg_stat_snowflake(
	OUT layout text, OUT generators text[], OUT state text, OUT detail text,
	OUT source text, OUT registry text,
	OUT node_number bigint, OUT datacenter_id integer, OUT worker_id integer,
	OUT leased_until timestamptz, OUT last_id bigint, OUT ahead interval,
	OUT max_ahead_seen interval, OUT ids_issued bigint, OUT sequence_overflows bigint,
	OUT clock_rollbacks bigint, OUT waits bigint, OUT wait_time interval,
	OUT worker_switches bigint, OUT lease_renewals bigint, OUT lease_failures bigint,
	OUT ends_at timestamptz, OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pg_stat_snowflake'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 1;
COMMENT ON FUNCTION pg_stat_snowflake() IS
'the rows of the view pg_stat_snowflake';

CREATE VIEW pg_stat_snowflake AS SELECT * FROM pg_stat_snowflake();
COMMENT ON VIEW pg_stat_snowflake IS
'state, lease and counters of each layout in use; last_id, detail and registry are for members of pg_read_all_stats';
GRANT SELECT ON pg_stat_snowflake TO PUBLIC;

CREATE FUNCTION pg_stat_snowflake_reset() RETURNS void
AS 'MODULE_PATHNAME', 'pg_stat_snowflake_reset'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION pg_stat_snowflake_reset() IS
'sets the counters of pg_stat_snowflake to zero';
REVOKE EXECUTE ON FUNCTION pg_stat_snowflake_reset() FROM PUBLIC;
