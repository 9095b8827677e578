
--
-- What goes on without an error now, and breaks later, or does not follow
--

-- Whether a text has a word.
CREATE FUNCTION snowflake_tools.has_word(body text, word text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT body ~* ('\m' || regexp_replace(word, '(\W)', '\\\1', 'g') || '\M')
$$;

-- Functions but for those of extensions, by a look into their text.
CREATE FUNCTION snowflake_tools.functions_naming(names text[], OUT function regprocedure, OUT body text, OUT named text) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT p.oid, b.body, string_agg(DISTINCT n.name, ', ' ORDER BY n.name)
	FROM pg_proc AS p
	CROSS JOIN LATERAL (SELECT coalesce(pg_get_function_sqlbody(p.oid), p.prosrc)) AS b (body)
	JOIN unnest(names) AS n (name) ON snowflake_tools.has_word(b.body, n.name)
	WHERE p.oid >= 16384 AND NOT EXISTS (SELECT FROM pg_depend AS d
		WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e')
	GROUP BY p.oid, b.body
$$;

-- Columns that by their name have ids of this column, and have no foreign key.
CREATE FUNCTION snowflake_tools.unlinked_columns(root oid, "column" name, types regtype[], OUT relation oid, OUT name name, OUT type oid) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	WITH carried AS (
		SELECT f.root, f."column", m.relation, m.number, c.relnamespace
		FROM snowflake_tools.following_columns(root, "column") AS f
		CROSS JOIN LATERAL snowflake_tools.column_members(f.root, f."column") AS m
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

-- Each SELECT is one thing that ids may break, with its message, and stands for itself.  What is found only by a
-- look into a text says so.
CREATE FUNCTION snowflake_tools.conversion_findings(origin oid, origin_column name, layout text) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	WITH carried AS (
		SELECT f.root, f."column", m.relation, m.number, c.relname, snowflake_tools.qualified_name(f.root) AS name
		FROM snowflake_tools.following_columns(origin, origin_column) AS f
		CROSS JOIN LATERAL snowflake_tools.column_members(f.root, f."column") AS m
		JOIN pg_class AS c ON c.oid = m.relation
	), sequence AS (
		SELECT c.relname
		FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = snowflake_tools.named_sequence(a.attrelid, a.attname)
			OR c.relkind = 'S' AND c.oid IN (SELECT d.objid FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass
				AND d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum AND d.deptype IN ('a', 'i'))
		WHERE a.attrelid = origin AND a.attname = origin_column
	), naming AS MATERIALIZED (
		SELECT f.function, f.body, f.named
		FROM snowflake_tools.functions_naming(ARRAY(SELECT c.relname::text FROM carried AS c UNION SELECT s.relname FROM sequence AS s
			UNION SELECT c."column" FROM carried AS c WHERE c."column" <> origin_column)) AS f
	), narrow AS (
		SELECT c.oid, c.relname, a.attname, snowflake_tools.qualified_name(c.oid) || '.' || quote_ident(a.attname) AS name
		FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0
		WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p') AND a.atttypid IN ('integer'::regtype, 'smallint'::regtype)
			AND NOT EXISTS (SELECT FROM carried AS o WHERE (o.relation, o.number) = (c.oid, a.attnum))
	), expression AS (
		SELECT c."column", c.name, CASE r.rulename WHEN '_RETURN' THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
				ELSE pg_describe_object(d.classid, d.objid, 0) END AS object,
			CASE d.classid WHEN 'pg_rewrite'::regclass THEN pg_get_ruledef(d.objid) WHEN 'pg_trigger'::regclass THEN pg_get_triggerdef(d.objid)
				WHEN 'pg_class'::regclass THEN pg_get_indexdef(d.objid) WHEN 'pg_constraint'::regclass THEN pg_get_constraintdef(d.objid)
				WHEN 'pg_attrdef'::regclass THEN (SELECT pg_get_expr(e.adbin, e.adrelid) FROM pg_attrdef AS e WHERE e.oid = d.objid)
				WHEN 'pg_policy'::regclass THEN (SELECT concat_ws(' ', pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))
					FROM pg_policy AS p WHERE p.oid = d.objid) END AS body
		FROM carried AS c
		JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.relation AND d.refobjsubid = c.number
		LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
	), finding (place, text) AS (
		SELECT 1, format('new ids of column "%s" go to %s, the default partition of table %s: create partitions first, PostgreSQL refuses them once it has such rows',
			f."column", snowflake_tools.qualified_name(t.by_default), snowflake_tools.qualified_name(i.inhparent))
		FROM snowflake_tools.following_columns(origin, origin_column) AS f
		CROSS JOIN LATERAL snowflake_tools.takers(f.root, f."column",
			snowflake_tools.min_id(clock_timestamp(), snowflake_tools.layout_label(layout))) AS t
		JOIN pg_inherits AS i ON i.inhrelid = t.by_default
		UNION
		SELECT 2, format('constraint %I of table %s limits %s, by a look into its text: %s',
			k.conname, snowflake_tools.qualified_name(k.conrelid), c."column", d.definition)
		FROM carried AS c JOIN pg_constraint AS k ON k.conrelid = c.relation AND k.contype = 'c' AND k.coninhcount = 0 AND c.number = ANY (k.conkey)
		CROSS JOIN LATERAL pg_get_constraintdef(k.oid) AS d (definition)
		-- it has a number, and not only as a lower bound
		WHERE regexp_replace(d.definition, '>=? *''?-?[0-9]+', '', 'g') ~ '\m[0-9]'
		UNION
		SELECT 3, format('%s casts %s of table %s to integer, by a look into its text', e.object, e."column", e.name)
		FROM expression AS e
		WHERE e.body ~ ('\m' || regexp_replace(e."column", '(\W)', '\\\1', 'g') || '"?\)?::(integer|smallint)\M')
		UNION
		SELECT 4, format('function %s takes or returns integer, and names %s, by a look into its text', n.function, n.named)
		FROM naming AS n JOIN pg_proc AS p ON p.oid = n.function
		WHERE ARRAY['integer'::regtype, 'smallint'::regtype]::oid[] && (coalesce(p.proallargtypes, p.proargtypes::oid[]) || p.prorettype)
		UNION
		SELECT 5, format('function %s has integer variables or casts, and names %s, by a look into its text', n.function, n.named)
		FROM naming AS n WHERE n.body ~* '\m(int|integer|int4|smallint|int2)\M'
		UNION
		SELECT 6, format('function %s has RETURNING, and names %s and the integer %s, by a look into its text', n.function, n.named,
			string_agg(DISTINCT o.name, ', ' ORDER BY o.name))
		FROM naming AS n JOIN narrow AS o ON snowflake_tools.has_word(n.body, o.relname) AND snowflake_tools.has_word(n.body, o.attname)
		WHERE n.body ~* '\mreturning\M' GROUP BY n.function, n.named
		UNION
		SELECT 7, format('trigger function %s reads %s of a row, and names the integer %s, by a look into its text', p.oid::regprocedure, c."column",
			string_agg(DISTINCT o.name, ', ' ORDER BY o.name))
		FROM carried AS c JOIN pg_trigger AS t ON t.tgrelid = c.relation AND NOT t.tgisinternal JOIN pg_proc AS p ON p.oid = t.tgfoid
		JOIN narrow AS o ON snowflake_tools.has_word(p.prosrc, o.relname) AND snowflake_tools.has_word(p.prosrc, o.attname)
		WHERE snowflake_tools.has_word(p.prosrc, 'new.' || c."column") OR snowflake_tools.has_word(p.prosrc, 'old.' || c."column")
		GROUP BY p.oid, c."column"
		UNION
		SELECT 8, format('column %I of table %s is %s, has a name of columns that reference the key, and no foreign key',
			u.name, snowflake_tools.qualified_name(u.relation), format_type(u.type, NULL))
		FROM snowflake_tools.unlinked_columns(origin, origin_column, '{integer,smallint}') AS u
		UNION
		SELECT 9, format('function %s uses a sequence, and names %s, by a look into its text: ids come from none', n.function, n.named)
		FROM naming AS n WHERE n.body ~* '\m(nextval|currval|lastval|setval|pg_get_serial_sequence)\M'
	)
	SELECT array_agg(f.text ORDER BY f.place, f.text COLLATE "C") FROM finding AS f
$$;
