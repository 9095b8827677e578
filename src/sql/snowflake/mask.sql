--
-- Ids that tell nothing
--
CREATE FUNCTION snowflake_mask(id bigint, key bytea) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_mask'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_mask(bigint, bytea) IS
'an id for the public that shows neither time nor order: a permutation of the non-negative bigints (FF1 with AES) by a '
'secret key of 16, 24 or 32 bytes';

CREATE FUNCTION snowflake_unmask(masked bigint, key bytea) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_unmask'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_unmask(bigint, bytea) IS
'the id that snowflake_mask turned into this number with the same key';
