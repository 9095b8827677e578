--
-- Converting existing columns to ids of the extension, and back to a sequence.
-- Both return the statements; unless it is a dry run they execute them, too.
--

-- The expression of a default that issues ids, just as pg_get_expr() shows it.  A layout is
-- named by its preset or its canonical definition, so that it is the same however it was
-- written; neither has characters that need quoting.
CREATE FUNCTION snowflake_internal.default_expression(layout text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('%I.%I(%s)', n.nspname, p.proname, CASE WHEN layout IS NOT NULL THEN
		(SELECT format('%L::text', coalesce(l.name, l.definition)) FROM snowflake_internal.layout(layout) AS l) END)
	FROM snowflake_internal.nextval_functions() AS f (oid) JOIN pg_proc AS p ON p.oid = f.oid
		JOIN pg_namespace AS n ON n.oid = p.pronamespace
	WHERE p.pronargs = CASE WHEN layout IS NULL THEN 0 ELSE 1 END
$$;
COMMENT ON FUNCTION snowflake_internal.default_expression(text) IS
'part of snowflake_convert_column: the default of a column with ids of a layout, of the server''s for NULL';

CREATE FUNCTION snowflake_internal.check_in_use(layout text) RETURNS void
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	given CONSTANT record := snowflake_internal.layout(layout);
BEGIN
	IF given.definition !~ 'worker' OR given.tick > '1s' THEN
		RAISE EXCEPTION 'the layout "%" is for parsing only', coalesce(given.name, given.definition)
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Ids are issued with a worker field and a tick of at most 1s.';
	END IF;
	IF NOT EXISTS (SELECT FROM snowflake_internal.layouts_in_use() AS u WHERE u.definition = given.definition) THEN
		RAISE EXCEPTION 'layout "%" is not in use', coalesce(given.name, given.definition)
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Layouts in use are fixed when the server starts.',
			HINT = format('Add "snowflake.extra_layouts = ''%s''" to postgresql.conf and restart the server.',
				concat_ws('; ', nullif(current_setting('snowflake.extra_layouts', true), ''),
					coalesce(given.name, given.definition)));
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_in_use(text) IS
'part of snowflake_convert_column: refuses a layout with which the server cannot issue ids';

-- In the default of a converted column that took its values from a sequence that is not its own: the way
-- back.  As a constant in an expression the sequence keeps its name through renames, dumps and pg_upgrade,
-- and is not dropped by mistake.  The planner leaves nothing of the call but the id.
CREATE FUNCTION snowflake_internal.instead_of(sequence regclass, id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT id';
COMMENT ON FUNCTION snowflake_internal.instead_of(regclass, bigint) IS
'returns the id; in the default of a column it names the sequence that the column goes back to with snowflake_revert_column()';

CREATE FUNCTION snowflake_internal.new_default(root oid, "column" name, expression text) RETURNS text
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN s.oid IS NULL THEN expression
		ELSE format('snowflake_internal.instead_of(%L::regclass, %s)', snowflake_internal.qualified_name(s.oid), expression) END
	FROM snowflake_internal.named_sequence(root, "column") AS s (oid)
$$;
COMMENT ON FUNCTION snowflake_internal.new_default(oid, name, text) IS
'part of snowflake_convert_column: the default, with the sequence that the column has its values from if that is not its own';

CREATE FUNCTION snowflake_internal.has_default(root oid, "column" name, expression text) RETURNS boolean
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT bool_and(coalesce(pg_get_expr(d.adbin, d.adrelid) IN (expression, format('snowflake_internal.instead_of(''%s''::regclass, %s)',
		-- as pg_get_expr() quotes it
		replace(snowflake_internal.named_sequence(m.relation, "column")::regclass::text, '''', ''''''), expression)), false))
	FROM snowflake_internal.column_members(root, "column") AS m
	LEFT JOIN pg_attrdef AS d ON d.adrelid = m.relation AND d.adnum = m.number
$$;
COMMENT ON FUNCTION snowflake_internal.has_default(oid, name, text) IS
'part of snowflake_convert_column: whether the column has this default in all members of the hierarchy';

-- Whether a partition other than the default one takes rows with this id, by the first column of its bounds.
CREATE FUNCTION snowflake_internal.bound_takes(bound text, id bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT EXISTS (SELECT FROM regexp_match(bound,
			$re$FROM \((?:MINVALUE|'?(-?\d+)'?)[,)].* TO \((?:MAXVALUE|'?(-?\d+)'?)[,)]$re$) AS r (ends)
		WHERE r.ends IS NOT NULL AND coalesce(r.ends[1]::bigint <= id, true) AND coalesce(id < r.ends[2]::bigint, true))
$$;
COMMENT ON FUNCTION snowflake_internal.bound_takes(text, bigint) IS
'part of snowflake_convert_column: whether an id is within the bounds of a partition';

CREATE FUNCTION snowflake_internal.partitioned_by(relation oid, "column" name) RETURNS boolean
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT p.partattrs[0] = a.attnum AND p.partstrat IN ('r', 'l')
	FROM pg_partitioned_table AS p JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attname = "column"
	WHERE p.partrelid = relation
$$;
COMMENT ON FUNCTION snowflake_internal.partitioned_by(oid, name) IS
'part of snowflake_convert_column: whether a table is partitioned by ranges or lists of a column; NULL: not at all';

-- Whether a new row with this id finds a partition.  Only ranges and lists of the column,
-- or ranges that begin with it, tell; of other keys it is enough that some partition does.
CREATE FUNCTION snowflake_internal.takes_id(relation oid, "column" name, id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	keyed CONSTANT boolean := snowflake_internal.partitioned_by(relation, "column");
	partition record;
BEGIN
	IF keyed IS NULL THEN
		RETURN true;
	END IF;
	FOR partition IN
		SELECT c.oid, pg_get_expr(c.relpartbound, c.oid) AS bound
		FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
		WHERE i.inhparent = relation
	LOOP
		IF (NOT keyed OR partition.bound = 'DEFAULT' OR snowflake_internal.bound_takes(partition.bound, id)) AND
			snowflake_internal.takes_id(partition.oid, "column", id) THEN
			RETURN true;
		END IF;
	END LOOP;
	RETURN NOT keyed AND NOT FOUND;		-- no partitions yet, whatever the id
END
$$;
COMMENT ON FUNCTION snowflake_internal.takes_id(oid, name, bigint) IS
'part of snowflake_convert_column: whether there is a partition for an id';

-- The default partition that takes new rows with this id since no other one does; NULL: none.
CREATE FUNCTION snowflake_internal.default_taking(relation oid, "column" name, id bigint) RETURNS oid
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	keyed CONSTANT boolean := snowflake_internal.partitioned_by(relation, "column");
	partition record;
	result oid;
BEGIN
	FOR partition IN
		SELECT c.oid, pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT' AS is_default
		FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
		WHERE i.inhparent = relation AND keyed IS NOT NULL
			AND (NOT keyed OR pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT'
				OR snowflake_internal.bound_takes(pg_get_expr(c.relpartbound, c.oid), id))
		ORDER BY is_default, c.oid
	LOOP
		result := CASE WHEN keyed AND partition.is_default THEN partition.oid
			ELSE snowflake_internal.default_taking(partition.oid, "column", id) END;
		EXIT WHEN keyed OR result IS NOT NULL;
	END LOOP;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake_internal.default_taking(oid, name, bigint) IS
'part of snowflake_convert_column: the default partition that an id goes to';

-- A policy that hides rows from the owner is an error.
CREATE FUNCTION snowflake_internal.greatest_value(root oid, "column" name) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
	result bigint;
BEGIN
	EXECUTE format('SELECT max(%I) FROM %s', "column", snowflake_internal.qualified_name(root)) INTO result;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake_internal.greatest_value(oid, name) IS
'part of snowflake_convert_column: greatest value in the whole hierarchy';

-- Refuses unless all ids that are issued from now on are greater than all that are there,
-- and have a partition.  It issues none: it works where the server cannot, too.
CREATE FUNCTION snowflake_internal.check_new_ids(root oid, "column" name, layout text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	table_name CONSTANT text := snowflake_internal.qualified_name(root);
	first_id CONSTANT bigint := snowflake_internal.min_id(clock_timestamp(), layout);
	type CONSTANT oid := a.atttypid FROM pg_attribute AS a WHERE a.attrelid = root AND a.attname = "column";
	greatest_id bigint;
	closed oid;
	taking record;
BEGIN
	SELECT f.root INTO closed FROM snowflake_internal.following_columns(root, "column") AS f
	WHERE NOT snowflake_internal.takes_id(f.root, f."column", first_id) ORDER BY f.root <> $1, f.root LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'no partition of table % takes new ids', snowflake_internal.qualified_name(closed)
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Ids of the layout "%s" begin at %s now.', layout, first_id),
			HINT = 'Create a partition for them, see snowflake_create_partitions(), or a default partition.';
	END IF;
	FOR taking IN
		SELECT f."column", snowflake_internal.qualified_name(p) AS partition, snowflake_internal.qualified_name(i.inhparent) AS table_name
		FROM snowflake_internal.following_columns(root, "column") AS f
		CROSS JOIN LATERAL snowflake_internal.default_taking(f.root, f."column", first_id) AS p
		JOIN pg_inherits AS i ON i.inhrelid = p
		ORDER BY f.root <> root, f.root
	LOOP
		RAISE NOTICE 'new ids of column "%" go to %, the default partition of table %',
			taking."column", taking.partition, taking.table_name
			USING DETAIL = format('No other partition takes ids of the layout "%s" from %s on, where they begin now.', layout, first_id),
			HINT = 'Create partitions for them first, see snowflake_create_partitions(): PostgreSQL refuses them once the default partition has such rows.';
	END LOOP;
	IF type <> 'bigint'::regtype AND first_id > 2147483647 THEN
		RETURN;				-- whatever is in there, it need not be looked for
	END IF;
	greatest_id := snowflake_internal.greatest_value(root, "column");
	IF greatest_id >= first_id THEN
		RAISE EXCEPTION 'new ids would not be greater than all in column "%" of table %', "column", table_name
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The greatest is %s, and ids of the layout "%s" begin at %s now.',
				greatest_id, layout, first_id),
			HINT = CASE WHEN greatest_id < snowflake_internal.min_id('infinity'::timestamptz, layout)
				THEN format('They are greater from %s on. ', snowflake_internal.id_time(greatest_id, layout) +
					(SELECT l.tick FROM snowflake_internal.layout(layout) AS l)) ELSE '' END ||
				'Use a layout with an earlier epoch or more bits below the timestamp.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_new_ids(oid, name, text) IS
'part of snowflake_convert_column: refuses a column whose values are greater than new ids';

-- A constraint that references a partition itself (which has its own index for it) would
-- keep the index of the whole table from being rebuilt.
CREATE FUNCTION snowflake_internal.constraints_on_partitions(root oid, "column" name) RETURNS SETOF oid
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT c.oid
	FROM snowflake_internal.column_members(root, "column") AS m
	JOIN pg_class AS r ON r.oid = m.relation AND r.relispartition
	JOIN pg_constraint AS c ON c.confrelid = m.relation AND c.contype = 'f' AND c.conparentid = 0
	JOIN pg_index AS i ON i.indexrelid = c.conindid AND m.number = ANY (i.indkey)
$$;
COMMENT ON FUNCTION snowflake_internal.constraints_on_partitions(oid, name) IS
'part of snowflake_convert_column: foreign keys that are dropped and created again';

-- The statements, in the order of step: each table is altered, and so rewritten, once.
-- PostgreSQL creates foreign keys again with either of their tables; in between they
-- compare integer with bigint, which they can.
CREATE FUNCTION snowflake_internal.conversion(roots oid[], columns name[], expression text,
	OUT step integer, OUT relation oid, OUT statement text) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	WITH origin AS (
		SELECT o.root, o."column" FROM unnest(roots, columns) AS o (root, "column")
	), changed AS (
		SELECT DISTINCT f.root, f."column"
		FROM origin AS o CROSS JOIN LATERAL snowflake_internal.following_columns(o.root, o."column") AS f
		WHERE f.type <> 'bigint'::regtype
	), reborn AS (
		SELECT DISTINCT c.oid, c.conrelid, quote_ident(c.conname) AS name, pg_get_constraintdef(c.oid) AS definition,
			snowflake_internal.qualified_name(c.conrelid) AS table_name, obj_description(c.oid, 'pg_constraint') AS comment
		FROM changed AS t CROSS JOIN LATERAL snowflake_internal.constraints_on_partitions(t.root, t."column") AS f (oid)
		JOIN pg_constraint AS c ON c.oid = f.oid
	), identity AS (
		-- partitions share that of their table since PostgreSQL 17, children have their own
		SELECT o.root, o."column", m.relation
		FROM origin AS o CROSS JOIN LATERAL snowflake_internal.column_members(o.root, o."column") AS m
		JOIN pg_attribute AS a ON a.attrelid = m.relation AND a.attnum = m.number AND a.attidentity <> ''
		JOIN pg_class AS c ON c.oid = m.relation
		WHERE NOT c.relispartition OR current_setting('server_version_num')::integer < 170000
	), action AS (
		SELECT 1 AS step, i.root, format('ALTER COLUMN %I DROP IDENTITY', i."column") AS action
		FROM identity AS i WHERE i.relation = i.root
		UNION ALL
		SELECT 2, c.root, format('ALTER COLUMN %I TYPE bigint', c."column") FROM changed AS c
		UNION ALL
		SELECT 3, o.root, format('ALTER COLUMN %I SET DEFAULT %s', o."column",
			snowflake_internal.new_default(o.root, o."column", expression))
		FROM origin AS o WHERE NOT snowflake_internal.has_default(o.root, o."column", expression)
	)
	SELECT 1, r.oid, format('ALTER TABLE %s DROP CONSTRAINT %s;', r.table_name, r.name) FROM reborn AS r
	UNION ALL
	SELECT 2, i.relation, format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY;',
		snowflake_internal.qualified_name(i.relation), i."column")
	FROM identity AS i WHERE i.relation <> i.root
	UNION ALL
	SELECT CASE WHEN a.root = ANY (roots) THEN 3 ELSE 4 END, a.root, format('ALTER TABLE %s %s;',
		snowflake_internal.qualified_name(a.root), string_agg(a.action, ', ' ORDER BY a.step, a.action))
	FROM action AS a GROUP BY a.root
	UNION ALL
	SELECT 5, r.oid, format('ALTER TABLE %s ADD CONSTRAINT %s %s;', r.table_name, r.name, r.definition)
	FROM reborn AS r
	UNION ALL
	SELECT 6, r.oid, format('COMMENT ON CONSTRAINT %s ON %s IS %L;', r.name, r.table_name, r.comment)
	FROM reborn AS r WHERE r.comment IS NOT NULL
$$;
COMMENT ON FUNCTION snowflake_internal.conversion(oid[], name[], text) IS
'part of snowflake_convert_column: what is to be executed';

CREATE FUNCTION snowflake_internal.layout_label(layout text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce(l.name, l.definition) FROM snowflake_internal.layout(snowflake_internal.layout_definition(layout)) AS l
$$;
COMMENT ON FUNCTION snowflake_internal.layout_label(text) IS
'part of snowflake_convert_column: the name of a layout, or its definition; of the server''s for NULL';

CREATE FUNCTION snowflake_internal.prepare_conversion("table" regclass, "column" name, layout text, dry_run boolean)
RETURNS text[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	expression CONSTANT text := snowflake_internal.default_expression(layout);
BEGIN
	PERFORM snowflake_internal.check_in_use(layout);
	PERFORM snowflake_internal.lock_and_check("table", "column", true, dry_run IS NOT FALSE);
	PERFORM snowflake_internal.check_citus("table", "column", expression);
	IF NOT snowflake_internal.has_default("table", "column", expression) THEN
		PERFORM snowflake_internal.check_new_ids("table", "column", snowflake_internal.layout_label(layout));
	END IF;
	RETURN ARRAY(SELECT c.statement FROM snowflake_internal.conversion(ARRAY["table"::oid], ARRAY["column"], expression) AS c
		ORDER BY c.step, c.relation);
END
$$;
COMMENT ON FUNCTION snowflake_internal.prepare_conversion(regclass, name, text, boolean) IS
'part of snowflake_convert_column: checks, locks unless dry_run, and returns the statements';

-- The statements are executed with the search path of the session, as if by hand: the
-- functions of indexes and CHECK constraints may go by it.  So nothing else is done here.
CREATE FUNCTION snowflake_convert_column("table" regclass, "column" name, layout text DEFAULT NULL,
	dry_run boolean DEFAULT true) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	statement pg_catalog.text;
BEGIN
	FOREACH statement IN ARRAY snowflake_internal.prepare_conversion("table", "column", layout, dry_run) LOOP
		IF dry_run IS FALSE THEN
			EXECUTE statement;
		END IF;
		RETURN NEXT statement;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_convert_column(regclass, name, text, boolean) IS
'makes an integer column, with all that reference it, bigint with ids as default; returns the statements, and executes them unless dry_run';

--
-- All of a schema
--

-- Columns of any type that take their values from a sequence, by their default or their domain's, and are
-- part of a primary key or of a unique index of all rows.  Those of partitions and children come from their
-- tables.
CREATE FUNCTION snowflake_internal.sequence_keys(schema oid, OUT root oid, OUT "column" name) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT c.oid, a.attname
	FROM pg_class AS c
	JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0
	WHERE c.relnamespace = schema AND c.relkind IN ('r', 'p')
		AND (a.attidentity <> ''
			OR (c.oid, a.attnum) IN (SELECT d.adrelid, d.adnum
				FROM pg_depend AS p
				JOIN pg_class AS s ON p.refclassid = 'pg_class'::regclass AND s.oid = p.refobjid AND s.relkind = 'S'
				JOIN pg_attrdef AS d ON p.classid = 'pg_attrdef'::regclass AND d.oid = p.objid)
			OR NOT a.atthasdef AND a.atttypid IN (SELECT p.objid
				FROM pg_depend AS p
				JOIN pg_class AS s ON p.refclassid = 'pg_class'::regclass AND s.oid = p.refobjid AND s.relkind = 'S'
				WHERE p.classid = 'pg_type'::regclass))
		AND NOT snowflake_internal.is_converted(c.oid, a.attname)
		AND EXISTS (SELECT FROM pg_index AS i
			WHERE i.indrelid = c.oid AND i.indisunique AND i.indpred IS NULL
				AND a.attnum = ANY ((i.indkey::smallint[])[0:i.indnkeyatts - 1]))
		AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid
			AND e.refclassid = 'pg_extension'::regclass AND e.deptype = 'e')
$$;
COMMENT ON FUNCTION snowflake_internal.sequence_keys(oid) IS
'part of snowflake_convert_schema: the serial and identity keys of a schema';

CREATE FUNCTION snowflake_internal.refusal(message text, detail text, hint text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT concat_ws(' ', message || '.', regexp_replace(nullif(replace(detail, E'\n', ', '), ''), '([^.])$', '\1.'), nullif(hint, ''))
$$;
COMMENT ON FUNCTION snowflake_internal.refusal(text, text, text) IS
'part of snowflake_convert_schema: an error in one line';

CREATE FUNCTION snowflake_internal.check_schema_name(schema regnamespace) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	IF schema IS NULL THEN
		RAISE EXCEPTION 'schema must not be null'
			USING ERRCODE = 'null_value_not_allowed', HINT = 'Give the name of a schema, such as ''public''.';
	END IF;
	PERFORM FROM pg_namespace AS n WHERE n.oid = schema;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'schema with OID % does not exist', schema::oid
			USING ERRCODE = 'invalid_schema_name', HINT = 'Give the name of a schema.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_schema_name(regnamespace) IS
'part of snowflake_convert_schema and snowflake_revert_schema: refuses what is no schema';

-- All that keeps a key from being converted: of itself, of each column that follows it, of Citus, and of the
-- values that are there.  Each check raises an error; what is not about the key is not caught.
CREATE FUNCTION snowflake_internal.refusals(root oid, "column" name, layout text, new_ids boolean) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	checked record;
	detail text;
	hint text;
	result text[] := '{}';
BEGIN
	FOR checked IN
		SELECT f.root, f."column", f.type, f.what
		FROM (SELECT f.*, CASE WHEN (f.root, f."column") = (root, "column") THEN 1 ELSE 2 END AS what
			FROM snowflake_internal.following_columns(root, "column") AS f) AS f
		WHERE f.what = 1 OR f.type <> 'bigint'::regtype
		UNION ALL SELECT NULL, NULL, NULL, 3
		UNION ALL SELECT NULL, NULL, NULL, 4 WHERE new_ids
		ORDER BY 4, 1, 2
	LOOP
		-- values are looked at only if the column can have ids at all
		EXIT WHEN checked.what = 4 AND result <> '{}';
		BEGIN
			CASE checked.what
				WHEN 3 THEN PERFORM snowflake_internal.check_citus(root, "column", snowflake_internal.default_expression(layout));
				WHEN 4 THEN PERFORM snowflake_internal.check_new_ids(root, "column", snowflake_internal.layout_label(layout));
				ELSE
					IF checked.what = 1 THEN
						PERFORM snowflake_internal.check_column(root, "column");
					END IF;
					PERFORM snowflake_internal.check_following(checked.root, checked."column", checked.type, checked.what = 1);
			END CASE;
		EXCEPTION WHEN undefined_table OR undefined_column OR invalid_table_definition OR wrong_object_type OR insufficient_privilege
			OR feature_not_supported OR datatype_mismatch OR object_not_in_prerequisite_state OR dependent_objects_still_exist THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			result := result || snowflake_internal.refusal(SQLERRM, detail, hint);
		END;
	END LOOP;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake_internal.refusals(oid, name, text, boolean) IS
'part of snowflake_convert_schema: all that keeps a key from being converted';

-- These columns, but for the tables that are left out: those that can be converted, and why the others
-- cannot, which can be for several reasons.
CREATE FUNCTION snowflake_internal.check_schema(schema oid, layout text, leave_out regclass[], new_ids boolean,
	OUT roots oid[], OUT columns name[], OUT refused text[], OUT refusals text[], OUT keys integer)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	key record;
	reasons text[];
BEGIN
	roots := '{}'; columns := '{}'; refused := '{}'; refusals := '{}'; keys := 0;
	FOR key IN
		SELECT k.root, k."column", n.name
		FROM snowflake_internal.sequence_keys(schema) AS k, snowflake_internal.qualified_name(k.root) AS n (name)
		WHERE k.root <> ALL (leave_out) ORDER BY n.name COLLATE "C", k."column" COLLATE "C"
	LOOP
		keys := keys + 1;
		reasons := snowflake_internal.refusals(key.root, key."column", layout, new_ids);
		IF reasons = '{}' THEN
			roots := roots || key.root;
			columns := columns || key."column";
		ELSE
			refused := refused || array_fill(key.name, ARRAY[cardinality(reasons)]);
			refusals := refusals || reasons;
		END IF;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_schema(oid, text, regclass[], boolean) IS
'part of snowflake_convert_schema: which keys can be converted, and why others cannot';

-- As lock_and_check() and prepare_conversion(), of all these columns at once, so that each table is
-- rewritten once and locks are taken in one order.
CREATE FUNCTION snowflake_internal.prepare_schema(schema regnamespace, layout text, leave_out regclass[], dry_run boolean,
	OUT tables text[], OUT statements text[], OUT refused text[], OUT refusals text[])
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	locked text[] := '{}';
	to_lock text[];
	keys record;
BEGIN
	IF schema IS NULL OR leave_out IS NULL OR array_position(leave_out, NULL) IS NOT NULL THEN
		RAISE EXCEPTION 'schema and leave_out must not be null'
			USING ERRCODE = 'null_value_not_allowed',
			DETAIL = format('They are %s and %s.', coalesce(schema::text, 'NULL'), coalesce(leave_out::text, 'NULL')),
			HINT = 'Give the name of a schema, as in snowflake_convert_schema(''public'').';
	END IF;
	PERFORM snowflake_internal.check_schema_name(schema);
	PERFORM snowflake_internal.check_in_use(layout);
	IF dry_run IS FALSE THEN
		PERFORM snowflake_internal.check_isolation();
	END IF;
	LOOP
		-- values that are committed before the locks are taken count
		keys := snowflake_internal.check_schema(schema, layout, leave_out, dry_run IS NOT FALSE OR locked <> '{}');
		to_lock := coalesce(snowflake_internal.tables_to_lock(keys.roots, keys.columns, true), '{}');
		EXIT WHEN dry_run IS NOT FALSE;
		IF keys.refused <> '{}' THEN
			RAISE EXCEPTION '% of % keys of schema % cannot be converted', keys.keys - cardinality(keys.roots), keys.keys, schema
				USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = array_to_string(keys.refusals, E'\n'),
				HINT = format('Nothing is changed. Mend that, or leave the tables out: leave_out => %L.', ARRAY(SELECT DISTINCT unnest(keys.refused) ORDER BY 1));
		END IF;
		EXIT WHEN to_lock <@ locked;
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', array_to_string(to_lock, ', '));
		locked := to_lock;
	END LOOP;
	refused := keys.refused;
	refusals := keys.refusals;
	-- a table that is referenced comes before those that reference it
	SELECT coalesce(array_agg(s.name ORDER BY s.nr), '{}'), coalesce(array_agg(s.statement ORDER BY s.nr), '{}')
	INTO tables, statements
	FROM (SELECT c.statement, n.name, row_number() OVER (ORDER BY CASE c.step WHEN 4 THEN 3 ELSE c.step END,
				array_position(to_lock, n.name) DESC, c.relation, c.statement) AS nr
		FROM snowflake_internal.conversion(keys.roots, keys.columns, snowflake_internal.default_expression(layout)) AS c
		CROSS JOIN LATERAL (SELECT coalesce(snowflake_internal.qualified_name(c.relation),
			(SELECT snowflake_internal.qualified_name(k.conrelid) FROM pg_constraint AS k WHERE k.oid = c.relation)) AS name) AS n) AS s;
END
$$;
COMMENT ON FUNCTION snowflake_internal.prepare_schema(regnamespace, text, regclass[], boolean) IS
'part of snowflake_convert_schema: checks, locks unless dry_run, and returns the statements and what is refused';

-- The statements are executed as those of snowflake_convert_column().
CREATE FUNCTION snowflake_convert_schema(schema regnamespace, layout text DEFAULT NULL,
	leave_out regclass[] DEFAULT '{}', dry_run boolean DEFAULT true,
	OUT "table" text, OUT statement text, OUT refusal text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	prepared record;
BEGIN
	prepared := snowflake_internal.prepare_schema(schema, layout, leave_out, dry_run);
	FOR i IN 1 .. pg_catalog.cardinality(prepared.statements) LOOP
		"table" := prepared.tables[i];
		statement := prepared.statements[i];
		IF dry_run IS FALSE THEN
			EXECUTE statement;
		END IF;
		RETURN NEXT;
	END LOOP;
	statement := NULL;
	FOR i IN 1 .. pg_catalog.cardinality(prepared.refused) LOOP
		"table" := prepared.refused[i];
		refusal := prepared.refusals[i];
		RETURN NEXT;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_convert_schema(regnamespace, text, regclass[], boolean) IS
'converts all serial and identity keys of a schema, as snowflake_convert_column() does each; returns the statements, and in a dry run why others are refused';

--
-- Back to a sequence
--

CREATE FUNCTION snowflake_internal.free_name(root oid, "column" name, ending text, taken text[]) RETURNS text
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name text;
	class CONSTANT pg_class := c FROM pg_class AS c WHERE c.oid = root;
	stem text := class.relname || '_' || "column";
	candidate text;
BEGIN
	-- names have at most 63 bytes
	WHILE octet_length(stem) > 58 - octet_length(ending) LOOP
		stem := left(stem, -1);
	END LOOP;
	FOR n IN 0 .. 9999 LOOP
		candidate := stem || ending || coalesce(nullif(n, 0)::text, '');
		name := snowflake_internal.qualified_name(class.relnamespace, candidate::name);
		PERFORM FROM pg_class AS c WHERE c.relnamespace = class.relnamespace AND c.relname = candidate;
		EXIT WHEN NOT FOUND AND name <> ALL (taken);
	END LOOP;
	RETURN name;
END
$$;
COMMENT ON FUNCTION snowflake_internal.free_name(oid, name, text, text[]) IS
'part of snowflake_revert_column: a free name that is not one of those taken, made as PostgreSQL makes it for serial';

-- The next value is greater than "last" and than all that the sequence has returned.  In a
-- transaction that is rolled back it stays where it was, unlike with setval().
CREATE FUNCTION snowflake_internal.alter_sequence(sequence oid, last bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('ALTER SEQUENCE %s', snowflake_internal.qualified_name(sequence)) ||
		CASE WHEN s.seqtypid <> 'bigint'::regtype THEN ' AS bigint' ELSE '' END ||
		CASE WHEN s.seqincrement < 0 THEN format(' INCREMENT BY 1 NO MINVALUE NO MAXVALUE START WITH %s', n.next)
			WHEN s.seqmax < n.next THEN ' NO MAXVALUE' ELSE '' END ||
		-- in step with the start, as another server's may be in between
		format(' RESTART WITH %s;', n.next + CASE WHEN s.seqincrement > 1
			THEN ((s.seqstart - n.next) % s.seqincrement + s.seqincrement) % s.seqincrement ELSE 0 END)
	FROM pg_sequence AS s, LATERAL (
		SELECT greatest(last + 1, coalesce(pg_sequence_last_value(sequence) + 1, s.seqstart),
			CASE WHEN s.seqincrement < 0 THEN 1 END) AS next) AS n
	WHERE s.seqrelid = sequence
$$;
COMMENT ON FUNCTION snowflake_internal.alter_sequence(oid, bigint) IS
'part of snowflake_revert_column: the statement that lets a sequence go on after the column''s values';

-- A role that may insert needs the sequence for it; for ids of the extension it needed nothing.
CREATE FUNCTION snowflake_internal.grant_sequence(root oid, "column" name, sequence oid, sequence_name text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('GRANT USAGE ON SEQUENCE %s TO %s;', sequence_name, string_agg(g.name, ', ' ORDER BY g.name))
	FROM (SELECT DISTINCT CASE p.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(p.grantee)) END AS name
		FROM snowflake_internal.column_members(root, "column") AS m
		JOIN pg_class AS c ON c.oid = m.relation
		CROSS JOIN LATERAL (SELECT c.relacl UNION ALL SELECT a.attacl FROM pg_attribute AS a
			WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL) AS l (acl)
		CROSS JOIN LATERAL aclexplode(l.acl) AS p
		WHERE p.privilege_type = 'INSERT' AND p.grantee <> c.relowner
			AND (sequence IS NULL OR NOT has_sequence_privilege(p.grantee, sequence, 'USAGE'))) AS g
	HAVING count(*) > 0
$$;
COMMENT ON FUNCTION snowflake_internal.grant_sequence(oid, name, oid, text) IS
'part of snowflake_revert_column: the statement that lets roles that may insert use the sequence';

-- Refuses a sequence that the caller may not alter, or that columns that are not converted take their values
-- from and cannot take what comes after "last".
CREATE FUNCTION snowflake_internal.check_former_sequence(sequence oid, last bigint) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	sequence_name CONSTANT text := snowflake_internal.qualified_name(sequence);
	owner CONSTANT oid := c.relowner FROM pg_class AS c WHERE c.oid = sequence;
	falls CONSTANT boolean := s.seqincrement < 0 FROM pg_sequence AS s WHERE s.seqrelid = sequence;
	user_of record;
BEGIN
	IF NOT pg_has_role(owner, 'USAGE') THEN
		RAISE EXCEPTION 'must be owner of sequence %', sequence_name
			USING ERRCODE = 'insufficient_privilege',
			DETAIL = format('Its owner is "%s"; the column had its values from it.', pg_get_userbyid(owner)),
			HINT = 'Let a role revert the column that owns the sequence, or is a member of its owner.';
	END IF;
	SELECT u."column", snowflake_internal.qualified_name(u.relation) AS table_name, format_type(u.type, NULL) AS type INTO user_of
	FROM snowflake_internal.sequence_users(sequence) AS u
	WHERE NOT u.converted AND (falls OR last >= CASE u.type WHEN 'smallint'::regtype THEN 32767
		WHEN 'integer'::regtype THEN 2147483647 END)
	ORDER BY u.relation, u."column" LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'sequence % cannot go on after % while column "%" of table % uses it',
			sequence_name, last, user_of."column", user_of.table_name
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = CASE WHEN falls THEN 'The sequence counts down, and that column is not converted.'
				ELSE format('That column is of type %s, and not converted.', user_of.type) END,
			HINT = 'Convert that column as well, and all go back to the sequence together; or give it another default.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_former_sequence(oid, bigint) IS
'part of snowflake_revert_column: refuses a sequence that cannot go on after the columns'' values';

-- new_sequence is the name of a sequence to be made, if the column has none to go back to.
CREATE FUNCTION snowflake_internal.reversion(root oid, "column" name, new_sequence text) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	table_name CONSTANT text := snowflake_internal.qualified_name(root);
	sequence CONSTANT oid := snowflake_internal.former_sequence(root, "column");
	sequence_name CONSTANT text := coalesce(snowflake_internal.qualified_name(sequence), new_sequence);
	owner CONSTANT oid := c.relowner FROM pg_class AS c WHERE c.oid = root;
	reverted record;
	greatest_id bigint;
	last bigint;
	statements text[];
	defaults text[] := '{}';
BEGIN
	FOR reverted IN
		SELECT r.root, r."column", snowflake_internal.qualified_name(r.root) AS table_name
		FROM snowflake_internal.reverted_columns(root, "column") AS r ORDER BY (r.root, r."column") <> ($1, $2), r.root, r."column"
	LOOP
		greatest_id := snowflake_internal.greatest_value(reverted.root, reverted."column");
		IF greatest_id = 9223372036854775807 THEN
			RAISE EXCEPTION 'no sequence can go on after % in column "%" of table %', greatest_id, reverted."column", reverted.table_name
				USING ERRCODE = 'numeric_value_out_of_range',
				DETAIL = 'It is the greatest bigint.',
				HINT = 'Change or delete that row first.';
		END IF;
		last := greatest(last, greatest_id);
		defaults := defaults || snowflake_internal.grant_sequence(reverted.root, reverted."column", sequence, sequence_name) ||
			format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT nextval(%L::regclass);',
				reverted.table_name, reverted."column", sequence_name);
	END LOOP;
	IF sequence IS NOT NULL THEN
		PERFORM snowflake_internal.check_former_sequence(sequence, last);
		statements := ARRAY[snowflake_internal.alter_sequence(sequence, last)];
	ELSE
		statements := ARRAY[
			format('CREATE SEQUENCE %s AS bigint START WITH %s;', sequence_name, greatest(last + 1, 1)),
			CASE WHEN pg_get_userbyid(owner) <> current_user
				THEN format('ALTER SEQUENCE %s OWNER TO %I;', sequence_name, pg_get_userbyid(owner)) END,
			format('ALTER SEQUENCE %s OWNED BY %s.%I;', sequence_name, table_name, "column")];
	END IF;
	RETURN array_remove(statements || defaults, NULL);
END
$$;
COMMENT ON FUNCTION snowflake_internal.reversion(oid, name, text) IS
'part of snowflake_revert_column: what is to be executed';

CREATE FUNCTION snowflake_internal.prepare_reversion("table" regclass, "column" name, dry_run boolean) RETURNS text[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	PERFORM snowflake_internal.lock_and_check("table", "column", false, dry_run IS NOT FALSE);
	IF NOT snowflake_internal.is_converted("table", "column") THEN
		RAISE EXCEPTION 'column "%" of table % is not converted', "column", snowflake_internal.qualified_name("table")
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Its default does not call snowflake_nextval().',
			HINT = 'Nothing needs to be done; snowflake_convert_column() converts a column.';
	END IF;
	PERFORM snowflake_internal.check_citus(r.root, r."column", NULL)
	FROM (SELECT r.* FROM snowflake_internal.reverted_columns("table", "column") AS r ORDER BY r.root) AS r;
	RETURN snowflake_internal.reversion("table", "column", snowflake_internal.free_name("table", "column", '_seq', '{}'));
END
$$;
COMMENT ON FUNCTION snowflake_internal.prepare_reversion(regclass, name, boolean) IS
'part of snowflake_revert_column: checks, locks unless dry_run, and returns the statements';

CREATE FUNCTION snowflake_revert_column("table" regclass, "column" name, dry_run boolean DEFAULT true)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	statement pg_catalog.text;
BEGIN
	FOREACH statement IN ARRAY snowflake_internal.prepare_reversion("table", "column", dry_run) LOOP
		IF dry_run IS FALSE THEN
			EXECUTE statement;
		END IF;
		RETURN NEXT statement;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_revert_column(regclass, name, boolean) IS
'lets a converted column take its values from a sequence again; it stays bigint; returns the statements, and executes them unless dry_run';

--
-- All of a schema, back to sequences
--

CREATE FUNCTION snowflake_internal.converted_columns(schema oid, OUT root oid, OUT "column" name) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT c.oid, a.attname
	FROM pg_class AS c
	JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0 AND a.atthasdef
	WHERE c.relnamespace = schema AND c.relkind IN ('r', 'p')
		AND snowflake_internal.is_converted(c.oid, a.attname)
		AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid
			AND e.refclassid = 'pg_extension'::regclass AND e.deptype = 'e')
$$;
COMMENT ON FUNCTION snowflake_internal.converted_columns(oid) IS
'part of snowflake_revert_schema: the columns of a schema whose default issues ids';

-- The columns that go back: those of the schema and those that shared a sequence with one of them, each once; the
-- first of those that go back together leads.  Why others cannot.
CREATE FUNCTION snowflake_internal.check_reversion(schema oid,
	OUT roots oid[], OUT columns name[], OUT leads boolean[], OUT refused text[], OUT refusals text[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	key record;
	others record;
	detail text;
	hint text;
BEGIN
	roots := '{}'; columns := '{}'; leads := '{}'; refused := '{}'; refusals := '{}';
	FOR key IN
		SELECT k.root, k."column", n.name
		FROM snowflake_internal.converted_columns(schema) AS k, snowflake_internal.qualified_name(k.root) AS n (name)
		ORDER BY n.name COLLATE "C", k."column" COLLATE "C"
	LOOP
		CONTINUE WHEN EXISTS (SELECT FROM unnest(roots, columns) AS d (root, "column") WHERE (d.root, d."column") = (key.root, key."column"));
		BEGIN
			SELECT array_agg(r.root) AS roots, array_agg(r."column") AS columns, array_agg(r.leads) AS leads INTO others
			FROM (SELECT r.*, (r.root, r."column") = (key.root, key."column") AS leads
				FROM snowflake_internal.reverted_columns(key.root, key."column") AS r ORDER BY leads DESC, r.root, r."column") AS r;
			FOR i IN 1 .. cardinality(others.roots) LOOP
				PERFORM snowflake_internal.check_conversion(others.roots[i], others.columns[i], false);
				PERFORM snowflake_internal.check_citus(others.roots[i], others.columns[i], NULL);
			END LOOP;
			-- its result is of no use before the locks are taken
			PERFORM snowflake_internal.reversion(key.root, key."column", '');
			roots := roots || others.roots;
			columns := columns || others.columns;
			leads := leads || others.leads;
		EXCEPTION WHEN undefined_table OR undefined_column OR invalid_table_definition OR wrong_object_type OR insufficient_privilege
			OR feature_not_supported OR datatype_mismatch OR object_not_in_prerequisite_state OR numeric_value_out_of_range
			OR dependent_objects_still_exist THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			refused := refused || key.name;
			refusals := refusals || snowflake_internal.refusal(SQLERRM, detail, hint);
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_reversion(oid) IS
'part of snowflake_revert_schema: which columns can go back to a sequence, and why others cannot';

-- As prepare_schema().
CREATE FUNCTION snowflake_internal.prepare_schema_reversion(schema regnamespace, dry_run boolean,
	OUT tables text[], OUT statements text[], OUT refused text[], OUT refusals text[])
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	locked text[] := '{}';
	to_lock text[];
	keys record;
	new_sequence text;
	new_sequences text[] := '{}';
	made text[];
BEGIN
	PERFORM snowflake_internal.check_schema_name(schema);
	IF dry_run IS FALSE THEN
		PERFORM snowflake_internal.check_isolation();
	END IF;
	LOOP
		keys := snowflake_internal.check_reversion(schema);
		EXIT WHEN dry_run IS NOT FALSE;
		IF keys.refused <> '{}' THEN
			RAISE EXCEPTION '% of % columns of schema % cannot go back to a sequence', cardinality(keys.refused),
				cardinality(keys.refused) + cardinality(keys.roots), schema
				USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = array_to_string(keys.refusals, E'\n'),
				HINT = 'Nothing is changed. Mend that, or call snowflake_revert_column() for each of the others.';
		END IF;
		to_lock := coalesce(snowflake_internal.tables_to_lock(keys.roots, keys.columns, false), '{}');
		EXIT WHEN to_lock <@ locked;
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', array_to_string(to_lock, ', '));
		locked := to_lock;
	END LOOP;
	refused := keys.refused;
	refusals := keys.refusals;
	tables := '{}';
	statements := '{}';
	FOR i IN 1 .. cardinality(keys.roots) LOOP
		CONTINUE WHEN NOT keys.leads[i];
		new_sequence := snowflake_internal.free_name(keys.roots[i], keys.columns[i], '_seq', new_sequences);
		new_sequences := new_sequences || new_sequence;
		made := snowflake_internal.reversion(keys.roots[i], keys.columns[i], new_sequence);
		statements := statements || made;
		tables := tables || array_fill(snowflake_internal.qualified_name(keys.roots[i]), ARRAY[cardinality(made)]);
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_internal.prepare_schema_reversion(regnamespace, boolean) IS
'part of snowflake_revert_schema: checks, locks unless dry_run, and returns the statements and what is refused';

CREATE FUNCTION snowflake_revert_schema(schema regnamespace, dry_run boolean DEFAULT true,
	OUT "table" text, OUT statement text, OUT refusal text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	prepared record;
BEGIN
	prepared := snowflake_internal.prepare_schema_reversion(schema, dry_run);
	FOR i IN 1 .. pg_catalog.cardinality(prepared.statements) LOOP
		"table" := prepared.tables[i];
		statement := prepared.statements[i];
		IF dry_run IS FALSE THEN
			EXECUTE statement;
		END IF;
		RETURN NEXT;
	END LOOP;
	statement := NULL;
	FOR i IN 1 .. pg_catalog.cardinality(prepared.refused) LOOP
		"table" := prepared.refused[i];
		refusal := prepared.refusals[i];
		RETURN NEXT;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_revert_schema(regnamespace, boolean) IS
'lets all converted columns of a schema take their values from sequences again, as snowflake_revert_column() does each; returns the statements, and in a dry run why others cannot';
