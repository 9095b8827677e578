/* snowflake--@EXTVERSION@.sql: made of the files in src/sql/snowflake, in the order of the Makefile */

\echo Use "CREATE EXTENSION snowflake" to load this file. \quit

-- Says what is missing on this server.
CREATE FUNCTION snowflake_creating() RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C;
SELECT snowflake_creating();
DROP FUNCTION snowflake_creating();

