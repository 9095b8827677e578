
--
-- New ids
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

CREATE FUNCTION snowflake_nextval(layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval_layout'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_nextval(text) IS
'next id of a layout that is in use, snowflake.layout or one of snowflake.extra_layouts: unique and increasing among '
'the ids of this layout';

-- The same under a name that tools do not take for a sequence's, as they do where a default has "nextval".
CREATE FUNCTION snowflake_next_id() RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_next_id() IS
'snowflake_nextval() under a name that tools do not take for a sequence''s';

CREATE FUNCTION snowflake_next_id(layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval_layout'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_next_id(text) IS
'snowflake_nextval(text) under a name that tools do not take for a sequence''s';

CREATE FUNCTION snowflake_settled_id() RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_settled_id'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_settled_id() IS
'up to where the next statement may read: each id of this cluster, of the server''s layout, at or below it '
'belongs to a transaction that has ended, and none will be issued';

CREATE FUNCTION snowflake_settled_id(layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_settled_id'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_settled_id(text) IS
'up to where the next statement may read, of the ids of a layout that is in use';

CREATE FUNCTION snowflake_nextval_batch(n integer, layout text) RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval_batch'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 1000;
COMMENT ON FUNCTION snowflake_nextval_batch(integer, text) IS
'next n ids of a layout that is in use, increasing; n from 1 to 1,000,000';
