--
-- Generators: names for layouts, in this database
--
CREATE TABLE snowflake.generator (
	name text PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 63),
	layout text NOT NULL
);
COMMENT ON TABLE snowflake.generator IS
'named generators of this database, see snowflake_create_generator(); all with one layout draw from one word';
COMMENT ON COLUMN snowflake.generator.layout IS
'name of a preset, or definition';
GRANT SELECT ON snowflake.generator TO PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('snowflake.generator', '');

CREATE FUNCTION snowflake.generator_changed() RETURNS trigger
AS 'MODULE_PATHNAME', 'snowflake_generator_changed'
LANGUAGE C;
COMMENT ON FUNCTION snowflake.generator_changed() IS
'trigger: lets all sessions know that a generator was created, dropped or changed';
REVOKE EXECUTE ON FUNCTION snowflake.generator_changed() FROM PUBLIC;

CREATE TRIGGER generator_changed AFTER INSERT OR UPDATE OR DELETE ON snowflake.generator
FOR EACH ROW EXECUTE FUNCTION snowflake.generator_changed();
ALTER TABLE snowflake.generator ENABLE ALWAYS TRIGGER generator_changed;
CREATE TRIGGER generators_changed AFTER TRUNCATE ON snowflake.generator
FOR EACH STATEMENT EXECUTE FUNCTION snowflake.generator_changed();
ALTER TABLE snowflake.generator ENABLE ALWAYS TRIGGER generators_changed;
CREATE TRIGGER ignore_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.generator
FOR EACH ROW EXECUTE FUNCTION snowflake.ignore_replicated();
ALTER TABLE snowflake.generator ENABLE REPLICA TRIGGER ignore_replicated;

CREATE FUNCTION snowflake.generator_layout(layout text) RETURNS text
AS 'MODULE_PATHNAME', 'snowflake_generator_layout'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake.generator_layout(text) IS
'part of snowflake_create_generator: the layout as the table has it, if this server can draw with it';
REVOKE EXECUTE ON FUNCTION snowflake.generator_layout(text) FROM PUBLIC;

-- Definition of a generator's layout, or of the server's if none is named.  Raises 42704.
CREATE FUNCTION snowflake.layout_of(generator text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	layout text;
BEGIN
	IF generator IS NULL THEN
		RETURN (SELECT l.definition FROM @extschema@.snowflake_layout() AS l);
	END IF;
	SELECT l.definition INTO layout
	FROM snowflake.generator AS g, @extschema@.snowflake_layout(g.layout) AS l WHERE g.name = generator;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'generator "%" does not exist', generator
			USING ERRCODE = 'undefined_object',
			HINT = 'See the table snowflake.generator of this database, and snowflake_create_generator().';
	END IF;
	RETURN layout;
END
$$;
COMMENT ON FUNCTION snowflake.layout_of(text) IS
'definition of the layout of a generator, or of the server''s for NULL';

-- The expression of a default that draws, just as pg_get_expr() shows it, which never
-- writes E''.
CREATE FUNCTION snowflake.drawing_default(generator text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT '@extschema@.snowflake_nextval(' || coalesce('''' || replace(
		CASE current_setting('standard_conforming_strings') WHEN 'on' THEN generator
			ELSE replace(generator, chr(92), repeat(chr(92), 2)) END, '''', '''''') || '''::text', '') || ')'
$$;
COMMENT ON FUNCTION snowflake.drawing_default(text) IS
'the default of a column that draws ids, of the server''s layout or a generator';

CREATE FUNCTION snowflake_create_generator(name text, layout text) RETURNS void
LANGUAGE plpgsql STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	IF octet_length(name) NOT BETWEEN 1 AND 63 THEN
		RAISE EXCEPTION 'invalid name of a generator: "%"', name
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('It has %s bytes.', octet_length(name)),
			HINT = 'Choose a name of 1 to 63 bytes.';
	END IF;
	-- waits for another session that is creating one of this name
	INSERT INTO snowflake.generator AS g VALUES (name, snowflake.generator_layout(layout));
EXCEPTION
	WHEN unique_violation THEN
		RAISE EXCEPTION 'generator "%" already exists', name
			USING ERRCODE = 'duplicate_object',
			DETAIL = coalesce((SELECT format('Its layout is "%s".', g.layout) FROM snowflake.generator AS g WHERE g.name = name),
				'It was created since this transaction began.'),
			HINT = 'Choose another name, or drop it first with snowflake_drop_generator().';
END
$$;
COMMENT ON FUNCTION snowflake_create_generator(text, text) IS
'gives a layout a name for snowflake_nextval(name) in this database';
REVOKE EXECUTE ON FUNCTION snowflake_create_generator(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_create_generator(text, text) TO pg_database_owner WITH GRANT OPTION;

CREATE FUNCTION snowflake_drop_generator(name text) RETURNS void
LANGUAGE plpgsql STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	columns text;
BEGIN
	DELETE FROM snowflake.generator AS g WHERE g.name = name;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'generator "%" does not exist', name
			USING ERRCODE = 'undefined_object',
			HINT = 'See the table snowflake.generator of this database.';
	END IF;
	SELECT string_agg(format('%s.%I', d.adrelid::regclass, a.attname), ', ' ORDER BY d.adrelid::regclass::text, a.attname)
	INTO columns
	FROM pg_attrdef AS d JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
	WHERE strpos(pg_get_expr(d.adbin, d.adrelid), snowflake.drawing_default(name)) > 0;
	IF columns IS NOT NULL THEN
		RAISE WARNING 'columns have a default that draws from generator "%": %', name, columns
			USING HINT = 'Change these defaults, or rows cannot be inserted without an id.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_drop_generator(text) IS
'drops a named generator of this database; ids issued with its layout stay unique';
REVOKE EXECUTE ON FUNCTION snowflake_drop_generator(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_drop_generator(text) TO pg_database_owner WITH GRANT OPTION;
