-- test/elsewhere.sql
--	  Lets CREATE EXTENSION snowflake_registry be carried out in this database, for tests and
--	  measurements that want several registries, or rows of their own, in one cluster: in the one
--	  function that refuses it, snowflake.check_database(), the condition becomes one that is never
--	  true, as soon as the extension's script has created it.
CREATE SCHEMA elsewhere;
CREATE FUNCTION elsewhere.allow() RETURNS event_trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_refuses CONSTANT text := (SELECT pg_get_functiondef(p.oid) FROM pg_proc AS p
		WHERE p.oid = to_regprocedure('snowflake.check_database()') AND strpos(p.prosrc, 'current_database() <> ') > 0);
BEGIN
	IF v_refuses IS NOT NULL THEN
		EXECUTE replace(v_refuses, 'current_database() <> ', 'NULL <> ');
	END IF;
END
$$;
CREATE EVENT TRIGGER elsewhere ON ddl_command_end WHEN TAG IN ('CREATE FUNCTION') EXECUTE FUNCTION elsewhere.allow();
