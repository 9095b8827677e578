--
-- Ids as text
--
CREATE FUNCTION snowflake_encode(id bigint, format text) RETURNS text
AS 'MODULE_PATHNAME', 'snowflake_encode'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_encode(bigint, text) IS
'an id as text of a fixed width that sorts like the id in COLLATE "C"; format: base62, crockford32, hex or decimal';

CREATE FUNCTION snowflake_decode(encoded text, format text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_decode'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_decode(text, text) IS
'the id of a text that snowflake_encode wrote in the given format; any other text is an error';
