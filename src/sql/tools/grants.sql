
--
-- What every role may use, as in snowflake: no default privileges count.
--
GRANT EXECUTE ON FUNCTION
	snowflake_audit(regclass, name, regclass, text),
	snowflake_convert_column(regclass, name, text, boolean, text),
	snowflake_convert_schema(regnamespace, text, regclass[], boolean, text),
	snowflake_revert_column(regclass, name, boolean),
	snowflake_revert_schema(regnamespace, boolean),
	snowflake_rekey_column(regclass, name, text, text, bigint, integer, integer, boolean, text[])
TO PUBLIC;

-- Inner functions run with the rights of the caller.
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA snowflake_tools TO PUBLIC;
