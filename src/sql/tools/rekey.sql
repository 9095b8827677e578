
--
-- New ids for existing keys, in order of age, and for all that references them
--

CREATE FUNCTION snowflake_tools.backfill_id(created_at timestamptz, layout text, part integer,
	parts integer) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_backfill_id'
LANGUAGE C WINDOW IMMUTABLE STRICT PARALLEL SAFE;

-- A column that is carried along without a foreign key, in the rows for which the condition is true.
CREATE TYPE snowflake_tools.also AS (root oid, "column" name, condition text);

-- What is written as "table.column" or "table.column WHERE condition"; a table without a schema is in that of the key.
CREATE FUNCTION snowflake_tools.also_columns(p_root oid, p_also text[]) RETURNS snowflake_tools.also[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT ARRAY(SELECT ((CASE cardinality(n.parts)
		WHEN 2 THEN snowflake_tools.qualified_name(t.relnamespace, n.parts[1]::name)
			WHEN 3 THEN format('%I.%I', n.parts[1], n.parts[2]) END)::regclass::oid, n.parts[cardinality(n.parts)],
				a.words[2])::snowflake_tools.also
		FROM unnest(p_also) WITH ORDINALITY AS e (text, nr)
		LEFT JOIN pg_class AS t ON t.oid = p_root
		CROSS JOIN LATERAL regexp_match(e.text, '^\s*(.*?)\s*(?:\mWHERE\M\s*(.*))?$', 'i') AS a (words)
		CROSS JOIN LATERAL parse_ident(a.words[1]) AS n (parts) ORDER BY e.nr)
$$;

-- The key and these, which change together.
CREATE FUNCTION snowflake_tools.rekeyed_keys(p_root oid, p_column name,
	p_also snowflake_tools.also[]) RETURNS snowflake_tools.key[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT ARRAY[(p_root, p_column, NULL)::snowflake_tools.key]
		|| ARRAY(SELECT (a.root, a."column", NULL)::snowflake_tools.key FROM unnest(p_also) AS a)
$$;

-- The triggers that are disabled meanwhile, whichever of them session_replication_role lets fire.
CREATE FUNCTION snowflake_tools.firing_triggers(p_keys snowflake_tools.key[]) RETURNS SETOF oid
LANGUAGE sql STABLE STRICT
AS $$
	SELECT DISTINCT t.oid
	FROM snowflake_tools.following_columns(p_keys) AS f
	CROSS JOIN LATERAL snowflake_tools.column_members(f.root, f."column") AS m
	JOIN pg_class AS c ON c.oid = m.relation
	JOIN pg_trigger AS t ON t.tgrelid = m.relation AND NOT t.tgisinternal AND t.tgenabled <> 'D'
	-- an update is a delete and an insert where it moves a row to another partition
	WHERE t.tgtype & 16 <> 0 AND (t.tgattr = '' OR m.number = ANY (t.tgattr)
			-- it may be generated from the key
			OR EXISTS (SELECT FROM pg_attribute AS g
				WHERE g.attrelid = t.tgrelid AND g.attnum = ANY (t.tgattr) AND g.attgenerated <> ''))
		OR c.relispartition AND t.tgtype & 12 <> 0
$$;

-- What is known of the rows that get new ids.  In the search path of the session, as order_by is; so nothing is
-- called without its schema.  Class 22 and cardinality_violation: the expression of a row fails, as a cast does.
CREATE FUNCTION snowflake_tools.rekeyed_rows(root oid, "column" name, order_by text, below bigint,
	OUT rows bigint, OUT keys bigint, OUT aged bigint, OUT oldest timestamptz, OUT youngest timestamptz)
LANGUAGE plpgsql
AS $$
DECLARE
	table_name CONSTANT pg_catalog.text := snowflake_tools.qualified_name(root);
	found pg_catalog.jsonb;
BEGIN
	found := snowflake_tools.look_as_owner(root,
		pg_catalog.format('SELECT pg_catalog.jsonb_build_array(pg_catalog.count(*),
		pg_catalog.count(DISTINCT r.key), pg_catalog.count(r.age), pg_catalog.min(r.age), pg_catalog.max(r.age))
		FROM (SELECT %1$I AS key, (%2$s)::pg_catalog.timestamptz AS age FROM %3$s
			WHERE %1$I OPERATOR(pg_catalog.<) %4$L::pg_catalog.int8) AS r', "column", order_by, table_name, below));
	rows := found OPERATOR(pg_catalog.->>) 0;
	keys := found OPERATOR(pg_catalog.->>) 1;
	aged := found OPERATOR(pg_catalog.->>) 2;
	oldest := found OPERATOR(pg_catalog.->>) 3;
	youngest := found OPERATOR(pg_catalog.->>) 4;
EXCEPTION WHEN syntax_error OR undefined_column OR undefined_function OR undefined_table OR ambiguous_column
	OR cannot_coerce
	OR datatype_mismatch OR grouping_error OR invalid_schema_name OR data_exception OR cardinality_violation THEN
	RAISE EXCEPTION 'order_by "%" gives no times of the rows of table %', order_by, table_name
		USING ERRCODE = 'invalid_parameter_value', DETAIL = pg_catalog.format('PostgreSQL says: %s.', SQLERRM),
		HINT = 'Give a column or an expression of type timestamptz, timestamp or date, such as created_at.';
END
$$;

-- Refuses rows without an age, or with one of the future, and keys that do not tell rows apart.
CREATE FUNCTION snowflake_tools.check_rekeyed_rows(root oid, "column" name, order_by text, rows bigint, keys bigint,
	aged bigint, youngest timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
DECLARE
	table_name CONSTANT text := snowflake_tools.qualified_name(root);
BEGIN
	IF keys < rows THEN
		RAISE EXCEPTION 'column "%" of table % has values that occur more than once', "column", table_name
			USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = format('Its %s rows have %s values.', rows, keys),
			HINT = 'What references the column does not tell which of the rows it means.  Make the values unique first.';
	ELSIF aged < rows THEN
		RAISE EXCEPTION 'order_by "%" is null in % of % rows', order_by, rows - aged, rows
			USING ERRCODE = 'null_value_not_allowed', DETAIL = format('Each row of table %s needs a time.', table_name),
			HINT = format('Use an expression like coalesce(%s, ''2020-01-01Z'').', order_by);
	ELSIF youngest > clock_timestamp() THEN
		RAISE EXCEPTION 'order_by "%" is %, in the future', order_by, youngest
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('This is the youngest row of table %s; its id would be greater than those that are issued now.',
				table_name),
			HINT = format('Use an expression like least(%s, now()).', order_by);
	END IF;
END
$$;

-- Refuses tables that have no partition for new ids.  Of the key there are ids of both times; in what references it
-- perhaps only some in between, or none, where no row changes.  What a condition of "also" picks is not looked at.
CREATE FUNCTION snowflake_tools.check_takers(root oid, "column" name, layout text, below bigint,
	also snowflake_tools.also[], oldest timestamptz, youngest timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog,
	pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off SET row_security = off
AS $$
DECLARE
	label CONSTANT text := snowflake_tools.layout_label(layout);
	ids CONSTANT bigint[] := ARRAY[snowflake_tools.min_id(oldest, label), snowflake_tools.min_id(youngest, label)];
	lacking text;
BEGIN
	SELECT min(snowflake_tools.qualified_name(f.root)) INTO lacking
	FROM snowflake_tools.following_columns(snowflake_tools.rekeyed_keys(root, "column", also)) AS f
	JOIN pg_class AS t ON t.oid = f.root AND t.relkind = 'p'
	CROSS JOIN LATERAL (SELECT count(*) AS ids FROM unnest(ids) AS i (id)
		WHERE EXISTS (SELECT FROM snowflake_tools.takers(f.root, f."column", i.id))) AS taken
	WHERE CASE WHEN f.root = $1 AND f."column" = $2 THEN taken.ids < 2
		WHEN taken.ids > 0 OR also[f.key - 1].condition IS NOT NULL THEN false
		ELSE snowflake_tools.look_as_owner(f.root, format('SELECT to_jsonb(EXISTS (SELECT FROM %s WHERE %I < %s))',
			snowflake_tools.qualified_name(f.root), f."column", below))::boolean END;
	IF lacking IS NOT NULL THEN
		RAISE EXCEPTION 'no partition of table % takes new ids', lacking
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('In the layout "%s" ids of the oldest row begin at %s, those of the youngest at %s.', label,
				ids[1], ids[2]),
			HINT = 'Create a partition for them, see snowflake_create_partitions(), or a default partition.';
	END IF;
END
$$;

-- Checks, and locks unless dry_run; without a search path, because of rekeyed_rows().  The times of the oldest and the
-- youngest of these rows, NULL if there is none.
CREATE FUNCTION snowflake_tools.prepare_rekeying(root oid, "column" name, order_by text, layout text, below bigint,
	also snowflake_tools.also[], dry_run boolean, OUT oldest timestamptz, OUT youngest timestamptz)
LANGUAGE plpgsql
AS $$
DECLARE
	found pg_catalog.record;
	other snowflake_tools.also;
BEGIN
	PERFORM snowflake_tools.locked_keys(NULL, snowflake_tools.rekeyed_keys(root, "column", also), 'rekey', layout, '{}',
		dry_run);
	FOREACH other IN ARRAY also LOOP
		PERFORM snowflake_tools.look_as_owner(root,
			pg_catalog.format('SELECT pg_catalog.to_jsonb(pg_catalog.count(*)) FROM %s AS t WHERE %s',
			snowflake_tools.qualified_name(other.root), coalesce(other.condition, 'true')));
	END LOOP;
	found := snowflake_tools.rekeyed_rows(root, "column", order_by, below);
	PERFORM snowflake_tools.check_rekeyed_rows(root, "column", order_by, found.rows, found.keys, found.aged,
		found.youngest);
	oldest := found.oldest;
	youngest := found.youngest;
END
$$;

-- The statements that give new ids.  map is the table of old and new ids that stays.
CREATE FUNCTION snowflake_tools.rekeying(root oid, "column" name, order_by text, layout text, below bigint,
	part integer, parts integer, also snowflake_tools.also[], map text) RETURNS text[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	WITH foreign_key AS (
		-- between columns that get new ids; none may hold in between.  Those that partitions have from their tables go
		-- and come with these
		SELECT DISTINCT quote_ident(c.conname) AS name, pg_get_constraintdef(c.oid) AS definition,
			snowflake_tools.qualified_name(c.conrelid) AS table_name, obj_description(c.oid, 'pg_constraint') AS comment
		FROM snowflake_tools.following_columns(root, "column") AS f
		CROSS JOIN LATERAL snowflake_tools.column_members(f.root, f."column") AS m
		JOIN pg_constraint AS c ON c.confrelid = m.relation AND c.contype = 'f' AND c.conparentid = 0
			AND m.number = ANY (c.confkey)
	), firing AS (
		SELECT t.oid, snowflake_tools.qualified_name(t.tgrelid) AS table_name, quote_ident(t.tgname) AS name,
			CASE t.tgenabled WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE' END AS enable
		FROM snowflake_tools.firing_triggers(snowflake_tools.rekeyed_keys(root, "column", also)) AS f (oid)
		JOIN pg_trigger AS t ON t.oid = f.oid
	), carried (root, "column", condition, nr) AS (
		SELECT f.root, f."column", NULL, 0 FROM snowflake_tools.following_columns(root, "column") AS f
		UNION ALL
		SELECT a.* FROM unnest(also) WITH ORDINALITY AS a (root, "column", condition, nr)
	), step (place, statement) AS (
		SELECT 1, format('CREATE TABLE %s (old_id bigint PRIMARY KEY, new_id bigint NOT NULL UNIQUE);', map)
		UNION ALL
		SELECT 3, format('INSERT INTO %1$s SELECT r.id, '
			'snowflake_tools.backfill_id(r.age, %2$L, %3$s, %4$s) OVER (ORDER BY r.age, r.id) '
			'FROM (SELECT %5$I AS id, (%6$s)::timestamptz AS age FROM %7$s WHERE %5$I OPERATOR(pg_catalog.<) %8$s) AS r;',
			map, snowflake_tools.layout_label(layout), part, parts, "column", order_by,
				snowflake_tools.qualified_name(root), below)
		UNION ALL
		SELECT 4, format('ANALYZE %s;', map)
		UNION ALL
		SELECT 5, format('ALTER TABLE %s DROP CONSTRAINT %s;', f.table_name, f.name) FROM foreign_key AS f
		UNION ALL
		SELECT 6, format('ALTER TABLE ONLY %s DISABLE TRIGGER %s;', f.table_name, f.name) FROM firing AS f
		UNION ALL
		-- all columns of a row at once: checks may compare them; no column of the map is where a condition could name it
		SELECT 7 + c.nr, CASE WHEN count(*) = 1 AND c.condition IS NULL
			THEN format('UPDATE %s AS t SET %2$I = m.new_id FROM %3$s AS m WHERE t.%2$I OPERATOR(pg_catalog.=) m.old_id;',
				snowflake_tools.qualified_name(c.root), min(c."column"::text), map)
			ELSE format('UPDATE %s AS t SET %s WHERE (%s)%s;', snowflake_tools.qualified_name(c.root),
				string_agg(format('%1$I = coalesce((SELECT m.new_id FROM %2$s AS m '
					'WHERE m.old_id OPERATOR(pg_catalog.=) t.%1$I), t.%1$I)',
					c."column", map), ', ' ORDER BY c."column"),
				string_agg(format('EXISTS (SELECT FROM %2$s AS m WHERE m.old_id OPERATOR(pg_catalog.=) t.%1$I)',
					c."column", map), ' OR ' ORDER BY c."column"),
				' AND (' || c.condition || ')') END
		FROM carried AS c GROUP BY c.root, c.nr, c.condition
		UNION ALL
		SELECT 8 + cardinality(also), format('ALTER TABLE ONLY %s %s TRIGGER %s;', f.table_name, f.enable, f.name)
		FROM firing AS f
		UNION ALL
		SELECT 9 + cardinality(also), format('ALTER TABLE %s ADD CONSTRAINT %s %s;', f.table_name, f.name, f.definition)
		FROM foreign_key AS f
		UNION ALL
		SELECT 10 + cardinality(also), format('COMMENT ON CONSTRAINT %s ON %s IS %L;', f.name, f.table_name, f.comment)
		FROM foreign_key AS f WHERE f.comment IS NOT NULL
	)
	SELECT array_agg(s.statement ORDER BY s.place, s.statement COLLATE "C") FROM step AS s
$$;

-- What holds ids and is not carried along, as far as the catalogs and the text of functions tell.
CREATE FUNCTION snowflake_tools.rekey_findings(p_keys snowflake_tools.key[], map text) RETURNS text[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off SET jit = off
AS $$
	WITH RECURSIVE carried AS (
		SELECT m.root, m."column", m.relation, m.number FROM snowflake_tools.members(p_keys, 'rekey') AS m
	), dependent (relation, depth) AS (
		SELECT r.ev_class, 1
		FROM carried AS c JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.relation
			AND d.refobjsubid IN (0, c.number) AND d.classid = 'pg_rewrite'::regclass
		JOIN pg_rewrite AS r ON r.oid = d.objid AND r.ev_class <> c.relation
		UNION
		SELECT r.ev_class, w.depth + 1
		FROM dependent AS w JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = w.relation
			AND d.classid = 'pg_rewrite'::regclass
		JOIN pg_rewrite AS r ON r.oid = d.objid AND r.ev_class <> w.relation
		WHERE w.depth < 100
	), named AS (
		SELECT c.relname::text AS name FROM carried AS t JOIN pg_class AS c ON c.oid = t.root
		UNION
		SELECT t."column" FROM carried AS t WHERE t."column" <> p_keys[1]."column"
	), finding (place, name, text) AS (
		SELECT 0, a.attname::text, format('column %I of table %s is generated from %I, and changes', a.attname,
			snowflake_tools.qualified_name(a.attrelid), o."column")
		FROM carried AS o
		JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = o.relation
			AND d.refobjsubid = o.number
		JOIN pg_attrdef AS e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
		JOIN pg_attribute AS a ON a.attrelid = e.adrelid AND a.attnum = e.adnum AND a.attgenerated <> ''
			AND a.attinhcount = 0
		UNION ALL
		SELECT DISTINCT 0, k.conname::text, format('constraint %I of table %s is not validated: '
			'the update of a row that violates it fails', k.conname, snowflake_tools.qualified_name(k.conrelid))
		FROM carried AS o JOIN pg_constraint AS k ON k.conrelid = o.relation
		WHERE k.contype IN ('c', 'n') AND NOT k.convalidated AND k.coninhcount = 0
			-- PostgreSQL 18: none that is not enforced
			AND coalesce((to_jsonb(k)->>'conenforced')::boolean, true)
		UNION ALL
		SELECT 1, t.tgname::text, format('trigger %I of table %s does not fire', t.tgname,
			snowflake_tools.qualified_name(t.tgrelid))
		FROM snowflake_tools.firing_triggers(p_keys) AS f (oid) JOIN pg_trigger AS t ON t.oid = f.oid
		UNION ALL
		SELECT 2, to_char(max(w.depth), '000'),
			format('materialized view %1$s has the old ids: REFRESH MATERIALIZED VIEW %1$s;',
			snowflake_tools.qualified_name(w.relation))
		FROM dependent AS w JOIN pg_class AS c ON c.oid = w.relation AND c.relkind = 'm' GROUP BY w.relation
		UNION ALL
		SELECT 3, u.name::text,
			format('column %I of table %s has a name of columns that reference the key, and no foreign key',
			u.name, snowflake_tools.qualified_name(u.relation))
		FROM snowflake_tools.unlinked_columns(ARRAY(SELECT m FROM snowflake_tools.members(p_keys, 'rekey') AS m),
			'{integer,bigint,numeric,text}') AS u
		UNION ALL
		-- as frameworks name them
		SELECT 3, a.attname::text,
			format('column %I of table %s has ids of what %I says, without a foreign key: see "also"',
			a.attname, snowflake_tools.qualified_name(a.attrelid), b.attname)
		FROM pg_class AS c
		JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0
		JOIN pg_attribute AS b ON b.attrelid = c.oid AND b.attname = CASE a.attname
			WHEN 'object_id' THEN 'content_type_id'
			ELSE regexp_replace(a.attname, '_id$', '_type') END AND b.attname <> a.attname
		WHERE c.relkind IN ('r', 'p') AND a.atttypid IN ('integer'::regtype, 'bigint'::regtype, 'text'::regtype,
			'varchar'::regtype)
			AND c.relnamespace IN (SELECT t.relnamespace FROM carried AS o JOIN pg_class AS t ON t.oid = o.root)
			AND NOT EXISTS (SELECT FROM carried AS o WHERE o.relation = c.oid AND o.number = a.attnum)
			AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.contype = 'f'
				AND a.attnum = ANY (k.conkey))
		UNION ALL
		SELECT 4, a.attname::text, format('column %I of table %s is %s, in which there can be ids', a.attname,
			snowflake_tools.qualified_name(a.attrelid), format_type(a.atttypid, a.atttypmod))
		FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
			AND a.attinhcount = 0
		WHERE c.relkind IN ('r', 'p', 'f') AND (a.atttypid IN ('json'::regtype, 'jsonb'::regtype, 'xml'::regtype,
			'bigint[]'::regtype, 'integer[]'::regtype)
				OR a.atttypid IN (SELECT t.oid FROM pg_type AS t WHERE t.typname = 'hstore'))
			AND c.relnamespace IN (SELECT t.relnamespace FROM carried AS o JOIN pg_class AS t ON t.oid = o.root)
		UNION ALL
		SELECT 5, f.function::text, format('function %s names %s: look for ids in its text', f.function, f.named)
		FROM snowflake_tools.functions_naming(ARRAY(SELECT n.name FROM named AS n)) AS f WHERE f.named IS NOT NULL
		UNION ALL
		SELECT DISTINCT 6, t.pubname::text, format('publication %I sends the changes to its subscribers', t.pubname)
		FROM pg_publication_tables AS t
		JOIN pg_namespace AS n ON n.nspname = t.schemaname JOIN pg_class AS c ON c.relnamespace = n.oid
			AND c.relname = t.tablename
		JOIN carried AS o ON o.relation = c.oid
		UNION ALL
		SELECT 7, '', format('other databases, programs, files and links are not looked at: '
			'table %s has the old and the new id of each row', map)
	)
	SELECT array_agg(f.text ORDER BY f.place, f.name COLLATE "C", f.text COLLATE "C") FROM finding AS f
$$;

-- The first id that a serial's numbers do not reach, as snowflake_guess() takes it: an hour after the epoch.
CREATE FUNCTION snowflake_tools.least_issued(layout text) RETURNS bigint
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT snowflake_tools.min_id(l.epoch + interval '1 hour', l.definition)
	FROM snowflake_internal.layout(snowflake_tools.layout_label(layout)) AS l
$$;

-- New ids must not be there already, nor be greater than those that are issued now.
CREATE FUNCTION snowflake_tools.check_map(root oid, "column" name, layout text, map text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog,
	pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off SET row_security = off
AS $$
#variable_conflict use_variable
DECLARE
	label CONSTANT text := snowflake_tools.layout_label(layout);
	first_id CONSTANT bigint := snowflake_tools.min_id(clock_timestamp(), label);
	id bigint;
BEGIN
	id := snowflake_tools.look_as_owner(root, format('SELECT to_jsonb(max(new_id)) FROM %s', map))::bigint;
	IF id >= first_id THEN
		RAISE EXCEPTION 'new id % of table % would be of the future', id, snowflake_tools.qualified_name(root)
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Many rows have one time, and ids of the layout "%s" begin at %s now.', label, first_id),
			HINT = format('Try again after %s.', snowflake_tools.id_time(id, label));
	END IF;
	id := snowflake_tools.look_as_owner(root,
		format('SELECT to_jsonb(min(m.new_id)) FROM %s AS m JOIN %s AS t ON t.%I = m.new_id',
		map, snowflake_tools.qualified_name(root), "column"))::bigint;
	IF id IS NOT NULL THEN
		RAISE EXCEPTION 'new id % is in column "%" of table % already', id, "column", snowflake_tools.qualified_name(root)
			USING ERRCODE = 'unique_violation', DETAIL = 'An earlier backfill has made ids for rows of the same time.',
			HINT = 'Give a part that no other call had, such as part => 1, parts => 64.';
	END IF;
END
$$;

-- The statements are executed as those of snowflake_convert_column(); the map is made in the tablespace of the
-- database, where its owner may always do so.
CREATE FUNCTION snowflake_rekey_column("table" regclass, "column" name, order_by text, layout text DEFAULT NULL,
	below bigint DEFAULT NULL, part integer DEFAULT 0, parts integer DEFAULT 1, dry_run boolean DEFAULT true,
	also text[] DEFAULT '{}', OUT step integer, OUT statement text, OUT finding text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET row_security = off SET default_tablespace = ''
AS $$
#variable_conflict use_variable
DECLARE
	first_issued pg_catalog.int8;
	map pg_catalog.text;
	others snowflake_tools.also[];
	times pg_catalog.record;
	statements pg_catalog.text[];
BEGIN
	IF pg_catalog.num_nulls("table", "column", order_by, part, parts, also) OPERATOR(pg_catalog.>) 0 THEN
		RAISE EXCEPTION 'table, column, order_by, part, parts and also must not be null'
			USING ERRCODE = 'null_value_not_allowed',
			HINT = 'Only layout and below may be null: the server''s layout, and the numbers that are no issued ids.';
	END IF;
	layout := (snowflake_internal.layout(layout)).definition;
	first_issued := coalesce(below, snowflake_tools.least_issued(layout));
	others := snowflake_tools.also_columns("table", also);
	times := snowflake_tools.prepare_rekeying("table", "column", order_by, layout, first_issued, others,
		dry_run IS NOT FALSE);
	IF times.oldest IS NULL THEN
		RETURN;
	END IF;
	-- refuses times outside the layout, and parts that there are not
	PERFORM snowflake_tools.backfill_id(times.oldest, snowflake_tools.layout_label(layout), part, parts) OVER ();
	PERFORM snowflake_tools.check_takers("table", "column", layout, first_issued, others, times.oldest,
		times.youngest);
	map := snowflake_tools.free_name("table", "column", '_rekeyed', '{}');
	IF dry_run IS FALSE THEN
		-- deferred ones would run at the end of the transaction, no longer as the owner
		PERFORM snowflake_internal.execute_as_owner("table", 'SET CONSTRAINTS ALL IMMEDIATE');
	END IF;
	statements := snowflake_tools.rekeying("table", "column", order_by, layout, first_issued, part, parts, others, map);
	FOR i IN 1 .. pg_catalog.cardinality(statements) LOOP
		step := i;
		statement := statements[i];
		IF dry_run IS FALSE THEN
			PERFORM snowflake_internal.execute_as_owner("table", statement);
			IF pg_catalog.starts_with(statement, 'ANALYZE') THEN
				PERFORM snowflake_tools.check_map("table", "column", layout, map);
			END IF;
		END IF;
		RETURN NEXT;
	END LOOP;
	step := NULL;
	statement := NULL;
	FOREACH finding IN ARRAY snowflake_tools.rekey_findings(snowflake_tools.rekeyed_keys("table", "column", others),
		map) LOOP
		RETURN NEXT;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_rekey_column(regclass, name, text, text, bigint, integer, integer, boolean, text[]) IS
'gives the existing values of a key new ids in order of age, with all that references it; returns the '
'statements, executes them unless dry_run, and says what is not carried along';
