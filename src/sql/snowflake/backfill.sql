--
-- Ids for old rows; without a layout in the server's, which makes it stable
--
CREATE FUNCTION snowflake_backfill_id(created_at timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_backfill_id'
LANGUAGE C WINDOW STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_backfill_id(timestamptz) IS
'ids of the server''s layout for old rows, OVER (ORDER BY created_at, key): sorted by age, with the node number that '
'is never leased';

CREATE FUNCTION snowflake_backfill_id(created_at timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_backfill_id'
LANGUAGE C WINDOW IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_backfill_id(timestamptz, text) IS
'ids of the given layout for old rows, OVER (ORDER BY created_at, key): sorted by age, with the node number that is '
'never leased';

CREATE FUNCTION snowflake_backfill_id(created_at timestamptz, layout text, part integer, parts integer) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_backfill_id'
LANGUAGE C WINDOW IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_backfill_id(timestamptz, text, integer, integer) IS
'the same for one of several queries: those with another part, from 0 to parts - 1, make other ids';

