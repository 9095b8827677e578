
--
-- What an administrator orders this server to do
--
CREATE FUNCTION snowflake_release() RETURNS void
AS 'MODULE_PATHNAME', 'snowflake_release'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_release() IS
'ends this server''s lease at the last id that it issued; the next id needs a new lease';
REVOKE EXECUTE ON FUNCTION snowflake_release() FROM PUBLIC;
