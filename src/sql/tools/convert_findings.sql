
--
-- What goes on without an error now, and breaks later, or does not follow.  Each object is told of once, whichever keys
-- it has to do with.  What is found only by a look into a text says so.
--

-- The words of a text, each once.
CREATE FUNCTION snowflake_tools.words(p_text text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT
AS $$
	SELECT array_agg(DISTINCT w) FROM regexp_split_to_table(lower(p_text), '[^[:alnum:]_]+') AS w WHERE w <> ''
$$;

-- Functions but for those of extensions, with the words of their text, and which of the names are among them.  Each
-- text is read once.
CREATE FUNCTION snowflake_tools.functions_naming(p_names text[],
	OUT function regprocedure, OUT body text, OUT words text[], OUT named text) RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	WITH function AS MATERIALIZED (
		SELECT p.oid, b.body, snowflake_tools.words(b.body) AS words
		FROM pg_proc AS p CROSS JOIN LATERAL (SELECT coalesce(pg_get_function_sqlbody(p.oid), p.prosrc)) AS b (body)
		WHERE p.oid >= 16384 AND NOT EXISTS (SELECT FROM pg_depend AS d
			WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_extension'::regclass
				AND d.deptype = 'e')
	), name AS MATERIALIZED (
		SELECT n.name, snowflake_tools.words(n.name) AS words FROM unnest(p_names) AS n (name)
	), naming AS (
		SELECT f.oid, array_agg(DISTINCT n.name ORDER BY n.name) AS names
		FROM function AS f CROSS JOIN LATERAL unnest(f.words) AS w (word)
		JOIN name AS n ON n.words[1] = w.word AND n.words <@ f.words
		GROUP BY f.oid
	)
	SELECT f.oid, f.body, f.words, array_to_string(n.names[:4], ', ') || coalesce(' and '
		|| nullif(greatest(cardinality(n.names) - 4, 0), 0) || ' more', '')
	FROM function AS f LEFT JOIN naming AS n ON n.oid = f.oid
$$;

-- Columns that by their name have ids of these keys, and have no foreign key.  A name that a key has itself, as "id",
-- tells nothing, unless it begins with that of its table.
CREATE FUNCTION snowflake_tools.unlinked_columns(p_members snowflake_tools.member[], p_types regtype[],
	OUT relation oid, OUT name name, OUT type oid) RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	WITH member AS MATERIALIZED (
		SELECT m.*, c.relname, c.relnamespace FROM unnest(p_members) AS m JOIN pg_class AS c ON c.oid = m.relation
	), telling AS (
		SELECT m."column" AS name FROM member AS m
		WHERE m.follows AND m."column" NOT IN (SELECT k."column" FROM member AS k WHERE NOT k.follows)
		UNION
		SELECT CASE WHEN starts_with(m."column", m.relname || '_') THEN m."column" ELSE m.relname || '_'
			|| m."column" END
		FROM member AS m WHERE NOT m.follows
	)
	SELECT c.oid, a.attname, a.atttypid
	FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		AND a.attinhcount = 0
	WHERE c.relkind IN ('r', 'p', 'f') AND a.atttypid = ANY (p_types)
		AND c.relnamespace IN (SELECT m.relnamespace FROM member AS m)
		AND a.attname IN (SELECT t.name FROM telling AS t)
		AND NOT EXISTS (SELECT FROM member AS m WHERE m.relation = c.oid AND m.number = a.attnum)
		AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.contype = 'f'
			AND a.attnum = ANY (k.conkey))
$$;

-- Of functions, by a look into their text.
CREATE FUNCTION snowflake_tools.function_findings(p_members snowflake_tools.member[]) RETURNS SETOF snowflake_tools.step
LANGUAGE sql STABLE STRICT
AS $$
	WITH member AS MATERIALIZED (
		SELECT DISTINCT m.root, m."column", m.follows, m.relation, m.number, c.relname
		FROM unnest(p_members) AS m JOIN pg_class AS c ON c.oid = m.relation
	), sequence AS (
		SELECT c.relname
		FROM member AS m
		CROSS JOIN LATERAL (SELECT snowflake_tools.named_sequence(m.root, m."column")
			UNION ALL
			SELECT d.objid FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
				AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.root AND d.refobjsubid = m.number) AS s (oid)
		JOIN pg_class AS c ON c.oid = s.oid AND c.relkind = 'S'
		WHERE NOT m.follows AND m.relation = m.root
	), function AS MATERIALIZED (
		SELECT f.* FROM snowflake_tools.functions_naming(ARRAY(SELECT m.relname::text FROM member AS m
			UNION SELECT s.relname FROM sequence AS s
			UNION SELECT m."column" FROM member AS m WHERE m."column" NOT IN (SELECT k."column" FROM member AS k
				WHERE NOT k.follows))) AS f
	), reading AS (
		-- trigger functions
		SELECT f.function, f.words, string_agg(DISTINCT m."column", ', ') AS columns
		FROM (SELECT DISTINCT t.tgfoid, m."column" FROM member AS m JOIN pg_trigger AS t ON t.tgrelid = m.relation) AS m
		JOIN function AS f ON f.function = m.tgfoid
		WHERE f.body ~* ('\m(new|old)\."?' || regexp_replace(m."column", '(\W)', '\\\1', 'g') || '\M')
		GROUP BY f.function, f.words
	), narrow AS (
		-- integers in which there may be ids: neither converted, nor of another sequence or foreign key
		SELECT lower(c.relname) AS table_word, lower(a.attname) AS column_word, c.oid, a.attname
		FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
			AND a.attinhcount = 0
		WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p') AND a.atttypid IN ('integer'::regtype, 'smallint'::regtype)
			AND NOT EXISTS (SELECT FROM member AS m WHERE m.relation = c.oid AND m.number = a.attnum)
			AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.contype = 'f'
				AND a.attnum = ANY (k.conkey))
			AND NOT EXISTS (SELECT FROM pg_depend AS d JOIN pg_class AS s ON s.oid = d.objid AND s.relkind = 'S'
				WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
					AND d.refobjid = c.oid AND d.refobjsubid = a.attnum)
	), reason (function, place, text) AS (
		SELECT f.function, 1, 'takes or returns integer'
		FROM function AS f JOIN pg_proc AS p ON p.oid = f.function
		WHERE f.named IS NOT NULL
			AND ARRAY['integer'::regtype, 'smallint'::regtype]::oid[] && (coalesce(p.proallargtypes,
				p.proargtypes::oid[]) || p.prorettype)
		UNION ALL
		SELECT f.function, 2, 'has integer variables or casts'
		FROM function AS f WHERE f.named IS NOT NULL AND f.words && '{int,integer,int4,smallint,int2}'
		UNION ALL
		SELECT r.function, 3, format('%s, and names the integer %s', r.what,
			string_agg(DISTINCT snowflake_tools.qualified_name(n.oid) || '.' || quote_ident(n.attname), ', '))
		FROM (SELECT f.function, f.words, 'has RETURNING' AS what FROM function AS f WHERE f.named IS NOT NULL
			AND 'returning' = ANY (f.words)
			UNION ALL
			SELECT r.function, r.words, format('reads %s of a row', r.columns) FROM reading AS r) AS r
		CROSS JOIN LATERAL unnest(r.words) AS w (word)
		JOIN narrow AS n ON n.table_word = w.word AND n.column_word = ANY (r.words)
		GROUP BY r.function, r.what
		UNION ALL
		SELECT f.function, 4, 'uses a sequence, and ids come from none'
		FROM function AS f WHERE f.named IS NOT NULL AND f.words && '{nextval,currval,lastval,setval,pg_get_serial_sequence}'
	)
	SELECT 'finding', 'function ' || f.function, 'its text ' || concat_ws(E';\n', 'names '
		|| f.named, r.reasons), NULL::oid
	FROM function AS f JOIN (SELECT r.function, string_agg(r.text, E';\n' ORDER BY r.place, r.text) AS reasons
		FROM reason AS r GROUP BY r.function) AS r ON r.function = f.function
$$;

-- The bigint keys of a schema that have their values neither from a sequence nor from us, as ids by a function of
-- somebody else or by programs, and what to do with them.  A key that references another one has its values.
CREATE FUNCTION snowflake_tools.other_keys(p_schema oid, p_leave_out regclass[]) RETURNS SETOF snowflake_tools.step
LANGUAGE sql
AS $$
	WITH other AS (
		SELECT c.root, c."column", snowflake_tools.qualified_name(c.root) AS name, t.relowner,
			(SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef AS d WHERE d.adrelid = c.root
				AND d.adnum = c.number) AS expression
		FROM snowflake_tools.own_columns(p_schema) AS c JOIN pg_class AS t ON t.oid = c.root
		JOIN pg_attribute AS a ON a.attrelid = c.root AND a.attnum = c.number AND a.attgenerated = ''
		WHERE c.type IN ('bigint'::regtype, (SELECT coalesce(snowflake_tools.id_type(), 0)))
			AND c.root <> ALL (p_leave_out)
			AND EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.root AND i.indisprimary
				AND i.indkey = c.number::text::int2vector)
			AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = c.root AND k.contype = 'f'
				AND c.number = ANY (k.conkey))
			AND (c.root, c."column") NOT IN (SELECT s.root, s."column"
				FROM snowflake_tools.sequence_keys(p_schema) AS s)
			AND NOT snowflake_tools.is_converted(c.root, c."column")
	), looked AS MATERIALIZED (
		SELECT o.*, CASE WHEN snowflake_tools.can_become(o.relowner) AND NOT snowflake_tools.hides_rows(o.root)
			AND has_column_privilege(o.relowner, o.root, o."column", 'SELECT')
			THEN snowflake_tools.greatest_value(o.root, o."column") END AS greatest
		FROM other AS o
	)
	SELECT 'left', l.name, concat_ws(E'\n',
		format('%s is a bigint key %s.  Keep its values.', l."column", coalesce('by '
			|| l.expression, 'without a default')),
		'SELECT * FROM snowflake_guess(' || l.greatest || ') shows which layouts can have made the greatest one.',
		format('SELECT snowflake_convert_column(%L, %L, layout => ...) makes new ids of such a layout,', l.name,
			l."column"),
		'if its first one is greater than all values.'), NULL::oid
	FROM looked AS l ORDER BY l.name COLLATE "C"
$$;

-- All that is found.
CREATE FUNCTION snowflake_tools.conversion_findings(p_keys snowflake_tools.key[],
	p_layout text) RETURNS snowflake_tools.step[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
	v_members snowflake_tools.member[] := ARRAY(SELECT m FROM snowflake_tools.members(p_keys, 'rekey') AS m);
	v_new_id bigint := snowflake_tools.min_id(clock_timestamp(), snowflake_tools.layout_label(p_layout));
BEGIN
	RETURN ARRAY(WITH member AS MATERIALIZED (
		SELECT DISTINCT m.root, m."column", m.root_name, m.relation, m.number FROM unnest(v_members) AS m
	), expression AS (
		SELECT m."column", m.root_name, CASE r.rulename WHEN '_RETURN' THEN pg_describe_object('pg_class'::regclass,
			r.ev_class, 0)
				ELSE pg_describe_object(d.classid, d.objid, 0) END AS object,
			CASE d.classid WHEN 'pg_rewrite'::regclass THEN pg_get_ruledef(d.objid)
				WHEN 'pg_trigger'::regclass THEN pg_get_triggerdef(d.objid)
				WHEN 'pg_class'::regclass THEN pg_get_indexdef(d.objid)
					WHEN 'pg_constraint'::regclass THEN pg_get_constraintdef(d.objid)
				WHEN 'pg_attrdef'::regclass THEN (SELECT pg_get_expr(e.adbin, e.adrelid) FROM pg_attrdef AS e
					WHERE e.oid = d.objid)
				WHEN 'pg_policy'::regclass THEN (SELECT concat_ws(' ', pg_get_expr(p.polqual, p.polrelid),
					pg_get_expr(p.polwithcheck, p.polrelid))
					FROM pg_policy AS p WHERE p.oid = d.objid) END AS body
		FROM member AS m
		JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = m.relation
			AND d.refobjsubid = m.number
		LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
	), finding (place, object, text) AS (
		SELECT 1, 'table ' || snowflake_tools.qualified_name(i.inhparent), format(
			E'new ids of %s go to its default partition %s: create partitions first,\n'
			'PostgreSQL refuses them once it has such rows',
			m."column", snowflake_tools.qualified_name(t.by_default))
		FROM member AS m JOIN pg_class AS c ON c.oid = m.root AND c.relkind = 'p'
		CROSS JOIN LATERAL snowflake_tools.takers(m.root, m."column", v_new_id) AS t
		JOIN pg_inherits AS i ON i.inhrelid = t.by_default
		WHERE m.relation = m.root
		UNION
		SELECT 2, format('constraint %I of table %s', k.conname, snowflake_tools.qualified_name(k.conrelid)),
			format('its text limits %s: %s', m."column", d.definition)
		FROM member AS m JOIN pg_constraint AS k ON k.conrelid = m.relation AND k.contype = 'c' AND k.coninhcount = 0
			AND m.number = ANY (k.conkey)
		CROSS JOIN LATERAL pg_get_constraintdef(k.oid) AS d (definition)
		-- it has a number, and not only as a lower bound
		WHERE regexp_replace(d.definition, '>=? *''?-?[0-9]+', '', 'g') ~ '\m[0-9]'
		UNION
		SELECT 3, e.object, format('its text casts %s of %s to integer', string_agg(DISTINCT e."column", ', '),
			string_agg(DISTINCT e.root_name, ', '))
		FROM expression AS e
		WHERE e.body ~ ('\m' || regexp_replace(e."column", '(\W)', '\\\1', 'g') || '"?\)?::(integer|smallint)\M')
		GROUP BY e.object
		UNION
		SELECT 4, f.object, f.content FROM snowflake_tools.function_findings(v_members) AS f
		UNION
		SELECT 5, format('column %s.%I', snowflake_tools.qualified_name(u.relation), u.name),
			format('%s with a name of columns that reference a key, without a foreign key', format_type(u.type, NULL))
		FROM snowflake_tools.unlinked_columns(v_members, '{integer,smallint}') AS u
	)
	SELECT ('finding', f.object, f.text, NULL)::snowflake_tools.step FROM finding AS f
	ORDER BY f.place, f.object COLLATE "C", f.text COLLATE "C");
END
$$;
