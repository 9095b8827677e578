--
-- The registry of node numbers: tables, and functions that are the only ones to write them.
-- Nothing here calls anything outside pg_catalog and the schema made here, which belongs
-- to the extension or to the owner: so nobody can put a function in the place of one of ours.
--
DO $$
BEGIN
	IF EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'snowflake') THEN
		RAISE EXCEPTION 'schema "snowflake" is there already'
			USING ERRCODE = 'duplicate_schema',
			DETAIL = 'The extension snowflake_registry makes a schema of this name, and trusts what is in it.',
			HINT = 'Rename that schema, or drop it.';
	END IF;
END
$$;
CREATE SCHEMA snowflake;
COMMENT ON SCHEMA snowflake IS
'the registry of node numbers: tables and functions of snowflake_registry';
