
--
-- What goes on without an error now, and breaks later, or does not follow
--

CREATE FUNCTION snowflake_internal.has_word(body text, word text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT body ~* ('\m' || regexp_replace(word, '(\W)', '\\\1', 'g') || '\M')
$$;
COMMENT ON FUNCTION snowflake_internal.has_word(text, text) IS
'part of snowflake_convert_column and snowflake_rekey_column: whether a text has a word';

-- Functions but for those of extensions, by a look into their text.
CREATE FUNCTION snowflake_internal.functions_naming(names text[], OUT function regprocedure, OUT body text, OUT named text) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT p.oid, b.body, string_agg(DISTINCT n.name, ', ' ORDER BY n.name)
	FROM pg_proc AS p
	CROSS JOIN LATERAL (SELECT coalesce(pg_get_function_sqlbody(p.oid), p.prosrc)) AS b (body)
	JOIN unnest(names) AS n (name) ON snowflake_internal.has_word(b.body, n.name)
	WHERE p.oid >= 16384 AND NOT EXISTS (SELECT FROM pg_depend AS d
		WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e')
	GROUP BY p.oid, b.body
$$;
COMMENT ON FUNCTION snowflake_internal.functions_naming(text[]) IS
'part of snowflake_convert_column and snowflake_rekey_column: functions whose text has one of these names';

-- Columns that by their name have ids of this column, and have no foreign key.
CREATE FUNCTION snowflake_internal.unlinked_columns(root oid, "column" name, types regtype[], OUT relation oid, OUT name name, OUT type oid) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	WITH carried AS (
		SELECT f.root, f."column", m.relation, m.number, c.relnamespace
		FROM snowflake_internal.following_columns(root, "column") AS f
		CROSS JOIN LATERAL snowflake_internal.column_members(f.root, f."column") AS m
		JOIN pg_class AS c ON c.oid = f.root
	)
	SELECT c.oid, a.attname, a.atttypid
	FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0
	WHERE c.relkind IN ('r', 'p', 'f') AND a.atttypid = ANY (types)
		AND c.relnamespace IN (SELECT o.relnamespace FROM carried AS o)
		AND (a.attname IN (SELECT o."column" FROM carried AS o WHERE (o.root, o."column") <> ($1, $2))
			OR a.attname = (SELECT t.relname || '_' || $2 FROM pg_class AS t WHERE t.oid = $1))
		AND NOT EXISTS (SELECT FROM carried AS o WHERE (o.relation, o.number) = (c.oid, a.attnum))
		AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.contype = 'f' AND a.attnum = ANY (k.conkey))
$$;
COMMENT ON FUNCTION snowflake_internal.unlinked_columns(oid, name, regtype[]) IS
'part of snowflake_convert_column and snowflake_rekey_column: columns with a name of columns that reference a key';

-- Each SELECT is one thing, with its message, and stands for itself.
CREATE FUNCTION snowflake_internal.conversion_findings(origin oid, origin_column name, layout text) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	WITH finding (place, text) AS (
		SELECT 1, format('new ids of column "%s" go to %s, the default partition of table %s: create partitions first, PostgreSQL refuses them once it has such rows',
			f."column", snowflake_internal.qualified_name(t.by_default), snowflake_internal.qualified_name(i.inhparent))
		FROM snowflake_internal.following_columns(origin, origin_column) AS f
		CROSS JOIN LATERAL snowflake_internal.takers(f.root, f."column",
			snowflake_internal.min_id(clock_timestamp(), snowflake_internal.layout_label(layout))) AS t
		JOIN pg_inherits AS i ON i.inhrelid = t.by_default
	)
	SELECT array_agg(f.text ORDER BY f.place, f.text COLLATE "C") FROM finding AS f
$$;
COMMENT ON FUNCTION snowflake_internal.conversion_findings(oid, name, text) IS
'part of snowflake_convert_column: what may break later';
