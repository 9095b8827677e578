
--
-- What keeps columns from being changed.  All keys of a schema are looked at together, as each query here costs much
-- more to plan than to execute for one of them.
--

-- Why a key cannot be changed: what is raised.
CREATE TYPE snowflake_tools.refusal AS (condition text, message text, detail text, hint text);

-- The same of the column nr of a key.  A column that is refused at one stage is not looked at by the rules of the next.
CREATE TYPE snowflake_tools.found AS (key bigint, stage integer, nr bigint,
	condition text, message text, detail text, hint text);

-- Each SELECT of the functions that follow is one rule, with its message, and stands for itself.  This one has those
-- of the names that were given.
CREATE FUNCTION snowflake_tools.name_refusals(p_keys snowflake_tools.key[]) RETURNS SETOF snowflake_tools.found
LANGUAGE sql STABLE STRICT
AS $$
	WITH key AS (
		SELECT k.*, snowflake_tools.qualified_name(k.root) AS name
		FROM unnest(p_keys) WITH ORDINALITY AS k (root, "column", type, nr)
	)
	SELECT k.nr, 1, 1, 'null_value_not_allowed', 'table and column must not be null',
		format('They are %s and %s.', coalesce(k.root::regclass::text, 'NULL'), coalesce(k."column", 'NULL')),
		'Give the name of a table and of its column.'
	FROM key AS k WHERE k.root IS NULL OR k."column" IS NULL
	UNION ALL
	SELECT k.nr, 1, 1, 'undefined_column', format('column "%s" of table %s does not exist', k."column",
			coalesce(k.name, k.root::text)),
		format('It has %s.', coalesce((SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_attribute AS a
			WHERE a.attrelid = k.root AND a.attnum > 0 AND NOT a.attisdropped), 'none')),
		'Write the name as it is stored, without quotes around it.'
	FROM key AS k
	WHERE k.root IS NOT NULL AND k."column" IS NOT NULL AND NOT EXISTS (SELECT FROM pg_attribute AS a
		WHERE a.attrelid = k.root AND a.attname = k."column" AND a.attnum > 0 AND NOT a.attisdropped)
	UNION ALL
	SELECT k.nr, 1, 1, 'invalid_table_definition',
		format('column "%s" of table %s is inherited from %s', k."column", k.name, r.names),
		'All partitions and children of a table change together.', format('Name %s instead.', r.names)
	FROM key AS k CROSS JOIN LATERAL (SELECT string_agg(snowflake_tools.qualified_name(r), ', ' ORDER BY r)
		FROM snowflake_tools.column_roots(k.root, k."column") AS r WHERE r <> k.root) AS r (names)
	WHERE r.names IS NOT NULL
$$;

-- The tables.
CREATE FUNCTION snowflake_tools.table_refusals(p_members snowflake_tools.member[]) RETURNS SETOF snowflake_tools.found
LANGUAGE sql STABLE STRICT
AS $$
	WITH member AS (
		SELECT m.key, m.nr, m.root, m.relation, m.reason, t.relkind, t.relowner, t.relnamespace,
			snowflake_tools.qualified_name(t.oid) AS name, t.oid >= 16384 AND t.relkind IN ('r', 'p') AS is_table
		FROM unnest(p_members) AS m JOIN pg_class AS t ON t.oid = m.relation
	)
	SELECT m.key, 2, m.nr, 'wrong_object_type', format('%s is not a table', m.name),
		concat_ws(' ', format('It is %s.', CASE m.relkind WHEN 'v' THEN 'a view'
			WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table' WHEN 'S' THEN 'a sequence'
			WHEN 'c' THEN 'a composite type' WHEN 't' THEN 'a TOAST table' ELSE 'an index' END), m.reason),
		'Only columns of tables can be changed.'
	FROM member AS m WHERE m.relkind NOT IN ('r', 'p')
	UNION ALL
	SELECT m.key, 2, m.nr, 'insufficient_privilege', format('%s is a system catalog', m.name),
		concat_ws(' ', 'Its rows are those of PostgreSQL.', m.reason), 'Name a table of your own.'
	FROM member AS m WHERE m.relation < 16384
	UNION ALL
	SELECT m.key, 2, m.nr, 'insufficient_privilege', format('must be owner of table %s', m.name),
		concat_ws(' ', format('Its owner is "%s".', pg_get_userbyid(m.relowner)), m.reason),
		'Let a role do it that owns all tables, or is a member of their owners.'
	FROM member AS m WHERE m.is_table AND NOT snowflake_tools.can_become(m.relowner)
	UNION ALL
	SELECT m.key, 2, m.nr, 'insufficient_privilege',
		format('role "%s" may not use schema %s', pg_get_userbyid(m.relowner), m.relnamespace::regnamespace),
		concat_ws(' ', format('It owns table %s, and what is done to a table is done as its owner.', m.name), m.reason),
		format('Use GRANT USAGE ON SCHEMA %s TO %I.', m.relnamespace::regnamespace, pg_get_userbyid(m.relowner))
	FROM member AS m
	WHERE m.is_table AND m.relation = m.root AND NOT has_schema_privilege(m.relowner, m.relnamespace, 'USAGE')
	UNION ALL
	SELECT m.key, 2, m.nr, 'insufficient_privilege', format('tables %s and %s have different owners', o.name, m.name),
		concat_ws(' ', format('They are "%s" and "%s", and what is done to a table is done as its owner.',
			pg_get_userbyid(o.relowner), pg_get_userbyid(m.relowner)), m.reason),
		format('Use ALTER TABLE %s OWNER TO %I, and give it back afterwards.', m.name, pg_get_userbyid(o.relowner))
	FROM member AS o JOIN member AS m ON m.key = o.key AND m.relowner <> o.relowner
	WHERE o.relation = o.root AND o.nr = 1 AND m.is_table
	UNION ALL
	SELECT m.key, 2, m.nr, 'feature_not_supported', format('%s is a temporary table of another session', m.name),
		concat_ws(' ', 'Only that session can change it.', m.reason), 'Call it there.'
	FROM member AS m WHERE pg_is_other_temp_schema(m.relnamespace)
	UNION ALL
	SELECT m.key, 2, m.nr, 'feature_not_supported', format('table %s belongs to the extension "%s"', m.name, e.extname),
		concat_ws(' ', 'A dump would create it again as the extension does.', m.reason), 'Leave it as it is.'
	FROM member AS m
	JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = m.relation AND d.deptype = 'e'
	JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
$$;

-- The kind of the columns.
CREATE FUNCTION snowflake_tools.column_refusals(p_members snowflake_tools.member[], p_task text)
RETURNS SETOF snowflake_tools.found
LANGUAGE sql STABLE STRICT
AS $$
	WITH changed AS (
		SELECT c.*, a.attnum, a.atthasdef, a.attidentity, a.attgenerated, coalesce(nullif(t.typbasetype, 0),
			t.oid) AS base, i.type AS id_type
		FROM unnest(p_members) AS c CROSS JOIN snowflake_tools.id_type() AS i (type)
		JOIN pg_attribute AS a ON a.attrelid = c.root AND a.attnum = c.number
		JOIN pg_type AS t ON t.oid = c.type
		WHERE c.relation = c.root
	)
	SELECT c.key, 3, c.nr, 'datatype_mismatch',
		format('column "%s" of table %s is of type %s', c."column", c.root_name, format_type(c.type, NULL)),
		concat_ws(' ', 'Columns of type smallint, integer and bigint can be converted.', c.reason),
		'Change the type first, a domain to the type below it.'
	FROM changed AS c
	WHERE p_task = 'convert' AND c.type NOT IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype,
		coalesce(c.id_type, 0))
	UNION ALL
	SELECT c.key, 3, c.nr, 'datatype_mismatch',
		format('column "%s" of table %s is of type %s', c."column", c.root_name, format_type(c.type, NULL)),
		concat_ws(' ', 'New ids need bigint.', c.reason),
		'Convert the key first with snowflake_convert_column(): what references it follows.'
	FROM changed AS c WHERE p_task = 'rekey' AND c.base NOT IN ('bigint'::regtype, coalesce(c.id_type, 0))
	UNION ALL
	SELECT c.key, 3, c.nr, 'feature_not_supported', format('column "%s" of table %s is generated', c."column",
		c.root_name),
		concat_ws(' ', 'It has an expression in place of a default.', c.reason),
		'Make it an ordinary column with ALTER COLUMN ... DROP EXPRESSION, or drop it, first.'
	FROM changed AS c WHERE c.attgenerated <> ''
	UNION ALL
	-- of a key of the same call it is dropped
	SELECT c.key, 3, c.nr, 'datatype_mismatch', format('identity column "%s" of table %s cannot be of type %s',
			c."column", c.root_name, format_type(c.becomes, NULL)),
		c.reason, 'Convert it to bigint first with snowflake_convert_column().'
	FROM changed AS c
	WHERE c.follows AND c.attidentity <> '' AND c.becomes = c.id_type
		AND NOT EXISTS (SELECT FROM changed AS o WHERE NOT o.follows AND (o.root, o."column") = (c.root, c."column"))
	UNION ALL
	SELECT c.key, 3, c.nr, 'object_not_in_prerequisite_state',
		format('column "%s" of table %s is not converted', c."column", c.root_name),
		'Its default calls neither snowflake_next_id() nor snowflake_nextval().',
		'Nothing needs to be done; snowflake_convert_column() converts a column.'
	FROM changed AS c WHERE p_task = 'revert' AND c.reason IS NULL
		AND NOT snowflake_tools.is_converted(c.root, c."column")
	UNION ALL
	SELECT c.key, 3, c.nr, 'object_not_in_prerequisite_state',
		format('column "%s" of table %s owns sequence %s', c."column", c.root_name, q.name),
		CASE WHEN u.used THEN 'Its values do not come from that sequence, which others use.'
			WHEN c.atthasdef AND n.sequence IS NULL AND o.count = 1
				THEN 'Its values do not come from that sequence, but from its default.'
			ELSE 'Its values do not come from that sequence, and it has another one.' END,
		format('Use ALTER SEQUENCE %s OWNED BY NONE first.', q.name)
	FROM changed AS c
	CROSS JOIN LATERAL snowflake_tools.owned_sequences(c.root, c."column") AS s (oid)
	CROSS JOIN LATERAL snowflake_tools.qualified_name(s.oid) AS q (name)
	CROSS JOIN LATERAL snowflake_tools.used_elsewhere(s.oid, c.root, c."column") AS u (used)
	CROSS JOIN LATERAL snowflake_tools.named_sequence(c.root, c."column") AS n (sequence)
	CROSS JOIN LATERAL (SELECT count(*) FROM snowflake_tools.owned_sequences(c.root, c."column")) AS o
	WHERE p_task = 'convert' AND NOT c.follows
		AND NOT EXISTS (SELECT FROM pg_attrdef AS d JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass
			AND p.objid = d.oid
			WHERE d.adrelid = c.root AND d.adnum = c.attnum AND p.refclassid = 'pg_class'::regclass
				AND p.refobjid = s.oid)
		AND (u.used AND NOT c.atthasdef OR c.attidentity <> '' OR n.sequence IS NOT NULL
			OR c.atthasdef AND NOT snowflake_tools.is_converted(c.root, c."column")
			OR o.count > 1)
$$;

-- Objects that keep a column from being converted, one in a line: those that depend on it and that PostgreSQL does not
-- change with its type, but for views and rules that can be made again; and those that depend on the sequence of its
-- identity, which is dropped.  Indexes, constraints, statistics, the column's own default and sequences that it owns
-- change with the type.
CREATE FUNCTION snowflake_tools.dependents(p_members snowflake_tools.member[], OUT key bigint, OUT nr bigint,
	OUT objects text)
RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	WITH member AS (
		SELECT m.*, c.reltype, t.typarray
		FROM unnest(p_members) AS m JOIN pg_class AS c ON c.oid = m.relation JOIN pg_type AS t ON t.oid = c.reltype
	), remade AS MATERIALIZED (
		SELECT r.* FROM snowflake_tools.remade(p_members) AS r
	), dependent AS (
		SELECT m.key, m.nr, m.relation, m.number, d.classid, d.objid, d.objsubid
		FROM member AS m JOIN pg_depend AS d
			ON d.refclassid = 'pg_class'::regclass AND d.refobjid = m.relation AND d.refobjsubid = m.number
		WHERE m.becomes IS NOT NULL AND d.classid NOT IN ('pg_class'::regclass, 'pg_constraint'::regclass,
			'pg_statistic_ext'::regclass,
			'pg_rewrite'::regclass)
		UNION ALL
		-- columns of the table's row type
		SELECT m.key, m.nr, m.relation, m.number, d.classid, d.objid, d.objsubid
		FROM member AS m JOIN pg_depend AS d
			ON d.refclassid = 'pg_type'::regclass AND d.refobjid IN (m.reltype, m.typarray)
		WHERE m.becomes IS NOT NULL AND d.classid = 'pg_class'::regclass AND d.objsubid > 0
			AND d.objid NOT IN (SELECT r.relation FROM remade AS r)
		UNION ALL
		SELECT m.key, m.nr, m.relation, m.number, d.classid, d.objid, d.objsubid
		FROM member AS m JOIN pg_depend AS s
			ON s.refclassid = 'pg_class'::regclass AND s.refobjid = m.relation AND s.refobjsubid = m.number
			AND s.classid = 'pg_class'::regclass AND s.deptype = 'i'
		JOIN pg_class AS c ON c.oid = s.objid AND c.relkind = 'S'
		JOIN pg_depend AS d
			ON d.refclassid = 'pg_class'::regclass AND d.refobjid = s.objid AND d.deptype = 'n'
		WHERE NOT m.follows
	)
	SELECT n.key, n.nr, string_agg(n.name, E'\n' ORDER BY n.name)
	FROM (SELECT DISTINCT d.key, d.nr, CASE
			WHEN r.oid IS NOT NULL THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
			WHEN g.attgenerated <> '' THEN pg_describe_object('pg_class'::regclass, a.adrelid, a.adnum)
			ELSE pg_describe_object(d.classid, d.objid, d.objsubid) END AS name
		FROM dependent AS d
		LEFT JOIN pg_rewrite AS r
			ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid AND r.rulename = '_RETURN'
		LEFT JOIN pg_attrdef AS a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid
		LEFT JOIN pg_attribute AS g ON g.attrelid = a.adrelid AND g.attnum = a.adnum
		LEFT JOIN pg_trigger AS t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
		WHERE (a.adrelid, a.adnum) IS DISTINCT FROM (d.relation, d.number)
			AND coalesce(t.tgparentid, 0) = 0
		UNION
		SELECT r.key, r.nr, o.obstacle
		FROM remade AS r JOIN snowflake_tools.remade_obstacles(ARRAY(SELECT DISTINCT r.relation FROM remade AS r)) AS o
			ON o.relation = r.relation
		UNION
		-- the table's owner could have it made again as something else
		SELECT r.key, r.nr, format('%s, whose owner is "%s"', pg_describe_object('pg_class'::regclass, c.oid, 0),
			pg_get_userbyid(c.relowner))
		FROM remade AS r JOIN pg_class AS c ON c.oid = r.relation
		JOIN member AS m ON m.key = r.key AND m.nr = r.nr AND m.relation = m.root
		JOIN pg_class AS t ON t.oid = m.root AND t.relowner <> c.relowner) AS n
	GROUP BY n.key, n.nr
$$;

-- A change of the type, and what depends on the columns.
CREATE FUNCTION snowflake_tools.type_refusals(p_members snowflake_tools.member[]) RETURNS SETOF snowflake_tools.found
LANGUAGE sql STABLE STRICT
AS $$
	WITH member AS (
		SELECT m.*, t.reloftype, t.relowner, snowflake_tools.qualified_name(m.relation) AS name,
			format('the type of column "%s" of table %s cannot change to %s', m."column", m.root_name,
				format_type(m.becomes, NULL)) AS message
		FROM unnest(p_members) AS m JOIN pg_class AS t ON t.oid = m.relation
		WHERE m.becomes IS NOT NULL
	)
	SELECT c.key, 4, c.nr, 'dependent_objects_still_exist', format(
			'column "%s" of table %s cannot be converted because other objects depend on it', c."column", c.root_name),
		d.objects, 'Drop them, convert the column, and create them again, all in one transaction.'
	FROM snowflake_tools.dependents(p_members) AS d
	JOIN unnest(p_members) AS c ON c.key = d.key AND c.nr = d.nr AND c.relation = c.root
	UNION ALL
	SELECT m.key, 4, m.nr, 'wrong_object_type', m.message, format('%s is a typed table.', m.name),
		'Give it columns of its own with ALTER TABLE ... NOT OF first.'
	FROM member AS m WHERE m.reloftype <> 0
	UNION ALL
	-- the foreign key is checked again, by a query that reads both tables
	SELECT DISTINCT m.key, 4, m.nr, 'insufficient_privilege', format('tables %s and %s have different owners', m.name,
			o.name),
		format('They are "%s" and "%s", and the foreign key "%s" is checked again.', pg_get_userbyid(m.relowner),
			pg_get_userbyid(t.relowner), k.conname),
		format('Use ALTER TABLE %s OWNER TO %I, and give it back afterwards.', o.name, pg_get_userbyid(m.relowner))
	FROM member AS m JOIN pg_constraint AS k ON k.contype = 'f' AND (k.confrelid = m.relation
		AND m.number = ANY (k.confkey) OR k.conrelid = m.relation AND m.number = ANY (k.conkey))
	JOIN pg_class AS t ON t.oid IN (k.conrelid, k.confrelid) AND t.relowner <> m.relowner
	CROSS JOIN LATERAL snowflake_tools.qualified_name(t.oid) AS o (name)
	UNION ALL
	-- a partition key holds its columns by an internal dependency
	SELECT m.key, 4, m.nr, 'feature_not_supported', m.message, format('It is part of the partition key of %s.', m.name),
		'Create a new partitioned table whose column is bigint, and move the rows.'
	FROM member AS m WHERE EXISTS (SELECT FROM pg_depend AS d
		WHERE d.classid = 'pg_class'::regclass AND d.objid = m.relation AND d.objsubid = m.number
			AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.relation AND d.refobjsubid = 0
				AND d.deptype = 'i')
	UNION ALL
	SELECT m.key, 4, m.nr, 'invalid_table_definition', m.message, format('%s inherits it from another table, too.',
		m.name),
		'End one of the inheritances with ALTER TABLE ... NO INHERIT first.'
	FROM member AS m
	WHERE m.relation <> m.root AND EXISTS (SELECT FROM snowflake_tools.column_roots(m.relation, m."column") AS r
		WHERE r <> m.root)
	UNION ALL
	-- these constraints are there since PostgreSQL 18; one that is inherited itself can be changed only where it
	-- comes from
	SELECT m.key, 4, m.nr, 'feature_not_supported', m.message,
		format('NOT NULL of the column is named "%s" in %s, and "%s" in %s that inherits it.', p.conname, m.name,
			c.conname, n.name),
		format('Use ALTER TABLE %s ALTER CONSTRAINT %I NO INHERIT before, and the same with INHERIT afterwards.',
			o.name, o.conname)
	FROM member AS m
	JOIN pg_constraint AS p ON p.conrelid = m.relation AND p.contype = 'n' AND m.number = p.conkey[1]
		AND NOT p.connoinherit
	JOIN pg_inherits AS i ON i.inhparent = m.relation
	JOIN member AS n ON n.key = m.key AND n.nr = m.nr AND n.relation = i.inhrelid
	JOIN pg_constraint AS c ON c.conrelid = n.relation AND c.contype = 'n' AND n.number = c.conkey[1]
		AND c.conislocal AND c.conname <> p.conname
	CROSS JOIN LATERAL (
		WITH RECURSIVE ancestor (relation) AS (
			SELECT m.relation
			UNION
			SELECT i.inhparent FROM ancestor AS a JOIN pg_inherits AS i ON i.inhrelid = a.relation
		)
		SELECT t.name, k.conname
		FROM ancestor AS a JOIN member AS t ON t.key = m.key AND t.nr = m.nr AND t.relation = a.relation
		JOIN pg_constraint AS k ON k.conrelid = t.relation AND k.contype = 'n' AND t.number = k.conkey[1]
		WHERE k.coninhcount = 0 AND NOT k.connoinherit) AS o
$$;

-- A constraint that is made again, as each is whose column changes its type, and each foreign key that rekeying drops;
-- its triggers are enabled then.  Copies are looked at, too: partitions have triggers of their own.
CREATE FUNCTION snowflake_tools.constraint_refusals(p_members snowflake_tools.member[], p_task text)
RETURNS SETOF snowflake_tools.found
LANGUAGE sql STABLE
AS $$
	SELECT m.key, 4, min(m.nr), 'object_not_in_prerequisite_state',
		format('triggers of constraint "%s" of table %s are not enabled as usual', k.conname,
			snowflake_tools.qualified_name(k.conrelid)),
		'It is dropped and created again, which would enable them.',
		'Use ALTER TABLE ... ENABLE TRIGGER ALL for the tables on both sides, or drop the constraint first.'
	FROM unnest(p_members) AS m
	JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = m.relation AND m.number = ANY (k.confkey)
		OR p_task <> 'rekey' AND k.conrelid = m.relation AND m.number = ANY (k.conkey)
	WHERE CASE p_task WHEN 'rekey' THEN m.key = 1 ELSE m.becomes IS NOT NULL END
		AND EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgconstraint = k.oid AND t.tgenabled <> 'O')
	GROUP BY m.key, k.conname, k.conrelid
$$;

-- A conversion: the partitions of new ids, and the default.
CREATE FUNCTION snowflake_tools.conversion_refusals(p_members snowflake_tools.member[], p_layout text)
RETURNS SETOF snowflake_tools.found
LANGUAGE sql STABLE
AS $$
	WITH changed AS (
		SELECT m.* FROM unnest(p_members) AS m WHERE m.relation = m.root
	), new_id AS (
		SELECT l.label, snowflake_tools.min_id(clock_timestamp(), l.label) AS id
		FROM snowflake_tools.layout_label(p_layout) AS l (label)
	), key AS (
		-- that get the default
		SELECT c.*, n.label, n.id
		FROM changed AS c CROSS JOIN new_id AS n CROSS JOIN snowflake_tools.default_expression(p_layout) AS e (expression)
		WHERE NOT c.follows AND NOT snowflake_tools.has_default(c.root, c."column", e.expression)
	)
	SELECT k.key, 5, coalesce(c.nr, 1), 'object_not_in_prerequisite_state',
		format('no partition of table %s takes new ids', snowflake_tools.qualified_name(f.root)),
		format('Ids of the layout "%s" begin at %s now.', k.label, k.id),
		'Create a partition for them, see snowflake_create_partitions(), or a default partition.'
	FROM snowflake_tools.following_columns(ARRAY(SELECT (k.root, k."column", NULL)::snowflake_tools.key
		FROM key AS k ORDER BY k.key)) AS f
	JOIN (SELECT k.*, row_number() OVER (ORDER BY k.key) AS place FROM key AS k) AS k ON k.place = f.key
	JOIN pg_class AS t ON t.oid = f.root AND t.relkind = 'p'
	LEFT JOIN changed AS c ON c.key = k.key AND c.root = f.root AND c."column" = f."column"
	WHERE NOT EXISTS (SELECT FROM snowflake_tools.takers(f.root, f."column", k.id))
	UNION ALL
	SELECT c.key, 5, 1, 'insufficient_privilege',
		format('role "%s" may not use schema %s', pg_get_userbyid(t.relowner), f.pronamespace::regnamespace),
		format('It owns table %s, whose default is to call a function there.', c.root_name),
		format('Use GRANT USAGE ON SCHEMA %s TO %I.', f.pronamespace::regnamespace, pg_get_userbyid(t.relowner))
	FROM changed AS c JOIN pg_class AS t ON t.oid = c.root
	CROSS JOIN (SELECT DISTINCT p.pronamespace
		FROM snowflake_tools.nextval_functions() AS n (oid) JOIN pg_proc AS p ON p.oid = n.oid) AS f
	WHERE NOT c.follows AND NOT has_schema_privilege(t.relowner, f.pronamespace, 'USAGE')
$$;

-- Rekeying.
CREATE FUNCTION snowflake_tools.rekey_refusals(p_members snowflake_tools.member[], p_layout text)
RETURNS SETOF snowflake_tools.found
LANGUAGE sql STABLE
AS $$
	WITH member AS (
		SELECT m.*, snowflake_tools.qualified_name(m.relation) AS name FROM unnest(p_members) AS m
	), changed AS (
		SELECT m.*, t.relowner, t.relnamespace, a.attidentity, d.oid AS "default",
			pg_get_expr(d.adbin, d.adrelid) AS expression,
			snowflake_tools.is_converted(m.root, m."column") AS converted
		FROM member AS m JOIN pg_class AS t ON t.oid = m.root JOIN pg_attribute AS a ON a.attrelid = m.root
			AND a.attnum = m.number
		LEFT JOIN pg_attrdef AS d ON d.adrelid = m.root AND d.adnum = m.number
		WHERE m.relation = m.root
	)
	SELECT c.key, 4, 1, 'insufficient_privilege',
		format('role "%s" may not create tables in schema %s', pg_get_userbyid(c.relowner),
			c.relnamespace::regnamespace),
		format('It owns table %s, and a table of the old and the new ids is made there.', c.root_name), h.hint
	FROM changed AS c CROSS JOIN LATERAL snowflake_tools.creation_hint(c.relowner, c.relnamespace) AS h (hint)
	WHERE c.key = 1 AND NOT c.follows AND h.hint IS NOT NULL
	UNION ALL
	SELECT c.key, 4, c.nr, 'insufficient_privilege',
		format('the owner of table %s may not update its column "%s"', c.root_name, c."column"),
		concat_ws(' ', format('"%s" needs SELECT and UPDATE.', pg_get_userbyid(c.relowner)), c.reason),
		format('Use GRANT SELECT, UPDATE ON %s TO %I.', c.root_name, pg_get_userbyid(c.relowner))
	FROM changed AS c
	WHERE NOT has_column_privilege(c.relowner, c.root, c.number, 'SELECT')
		OR NOT has_column_privilege(c.relowner, c.root, c.number, 'UPDATE')
	UNION ALL
	SELECT c.key, 4, c.nr, 'object_not_in_prerequisite_state',
		format('column "%s" of table %s has its values from a sequence', c."column", c.root_name),
		concat_ws(' ', 'Later rows would get small numbers again.', c.reason),
		'Convert it first with snowflake_convert_column().'
	FROM changed AS c
	WHERE c.attidentity <> '' OR NOT c.converted AND EXISTS (SELECT FROM pg_depend AS p
		JOIN pg_sequence AS s ON p.refclassid = 'pg_class'::regclass AND p.refobjid = s.seqrelid
		WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = c."default")
	UNION ALL
	SELECT m.key, 4, m.nr, 'feature_not_supported', format('table %s has the rule "%s" for UPDATE', m.name, r.rulename),
		concat_ws(' ', 'It could do something else in place of the update.', m.reason),
		'In one transaction, use ALTER TABLE ... DISABLE RULE, rekey, and enable the rule.'
	FROM member AS m JOIN pg_rewrite AS r ON r.ev_class = m.relation AND r.ev_type = '2' AND r.ev_enabled <> 'D'
	UNION ALL
	SELECT m.key, 4, m.nr, 'insufficient_privilege', format('row security is forced on table %s', m.name),
		concat_ws(' ', 'Rows that a policy hides would keep their ids.', m.reason),
		'In one transaction, use ALTER TABLE ... NO FORCE ROW LEVEL SECURITY, rekey, and force it again.'
	FROM member AS m WHERE snowflake_tools.hides_rows(m.relation)
	UNION ALL
	SELECT c.key, 4, 1, 'invalid_parameter_value',
		format('column "%s" of table %s has ids of another layout', c."column", c.root_name),
		format('Its default is %s.', c.expression),
		'Give that layout, so that all ids of the column sort by age; leave it out for the server''s.'
	FROM changed AS c
	WHERE NOT c.follows AND c.converted AND strpos(replace(c.expression, '.snowflake_nextval(', '.snowflake_next_id('),
		snowflake_tools.default_expression(p_layout)) = 0
	UNION ALL
	SELECT m.key, 4, m.nr, 'insufficient_privilege', format('tables %s and %s have different owners', o.root_name,
		m.name),
		format('They are "%s" and "%s", and what is done to a table is done as its owner.',
			pg_get_userbyid(o.relowner), pg_get_userbyid(t.relowner)),
		format('Use ALTER TABLE %s OWNER TO %I, and give it back afterwards.', m.name, pg_get_userbyid(o.relowner))
	FROM changed AS o JOIN member AS m ON m.key > 1 JOIN pg_class AS t ON t.oid = m.relation
		AND t.relowner <> o.relowner
	WHERE o.key = 1 AND o.nr = 1
	UNION ALL
	SELECT m.key, 4, m.nr, 'feature_not_supported',
		format('column "%s" of table %s references column "%s" of table %s', m."column", m.root_name, a."column",
			a.root_name),
		'What references a column of "also" is not carried along.',
		'Give the column of "also" a foreign key to the key: what references it is carried along then.'
	FROM changed AS m JOIN changed AS a ON a.key = m.key AND NOT a.follows
	WHERE m.key > 1 AND m.follows
		AND NOT EXISTS (SELECT FROM changed AS o WHERE o.key = 1 AND (o.root, o."column") = (a.root, a."column"))
	UNION ALL
	-- one foreign key of a column that gets new ids leads to another column
	SELECT m.key, 4, m.nr, 'object_not_in_prerequisite_state',
		format('column "%s" of table %s references table %s', m."column", m.name,
			snowflake_tools.qualified_name(k.confrelid)),
		format('A new id would have no row there, by the foreign key "%s".', k.conname),
		'Rekey the column that is referenced there, which takes this one along; or drop that foreign key first.'
	FROM member AS m JOIN pg_constraint AS k ON k.conrelid = m.relation AND k.contype = 'f' AND k.conparentid = 0
	CROSS JOIN LATERAL unnest(k.conkey, k.confkey) AS u (referencing, referenced)
	WHERE u.referencing = m.number
		AND NOT EXISTS (SELECT FROM member AS o WHERE (o.relation, o.number) = (k.confrelid, u.referenced))
	UNION ALL
	-- rows of other tables below the root can mean something else; only a foreign key of the root is meant for all
	SELECT m.key, 4, m.nr, 'feature_not_supported',
		format('column "%s" of table %s references the key in some partitions or children only', m."column",
			m.root_name),
		format('Without a foreign key: %s.', string_agg(m.name, ', ' ORDER BY m.name COLLATE "C")),
		'Add the foreign key to them; or in one transaction, detach those that have it, rekey, and attach them.'
	FROM member AS m JOIN pg_class AS t ON t.oid = m.relation AND t.relkind = 'r'
	WHERE m.follows AND NOT EXISTS (SELECT FROM member AS r
		JOIN pg_constraint AS k ON k.conrelid = r.relation AND k.contype = 'f'
		CROSS JOIN LATERAL unnest(k.conkey, k.confkey) AS u (referencing, referenced)
		JOIN member AS o ON (o.key, o.relation, o.number) = (m.key, k.confrelid, u.referenced)
		WHERE (r.key, r.nr, r.number) = (m.key, m.nr, u.referencing) AND r.relation IN (m.root, m.relation))
	GROUP BY m.key, m.nr, m."column", m.root_name
	UNION ALL
	-- an update is a delete and an insert where it moves a row to another partition
	SELECT m.key, 4, min(m.nr), 'feature_not_supported',
		format('foreign key "%s" of table %s references a partition', k.conname,
			snowflake_tools.qualified_name(k.conrelid)),
		format('A row whose new id belongs to another partition is deleted from %s.',
			snowflake_tools.qualified_name(k.confrelid)),
		'Drop that foreign key first.'
	-- pg_partition_tree() would lock the partitions
	FROM member AS m JOIN member AS p ON (p.key, p.nr) = (m.key, m.nr) AND p.relation <> m.relation
		AND m.relation IN (SELECT pg_partition_ancestors(p.relation))
	JOIN pg_constraint AS k ON k.confrelid = p.relation AND k.contype = 'f' AND k.conparentid = 0
	-- a partition key holds its columns by an internal dependency
	WHERE EXISTS (SELECT FROM pg_depend AS d
			WHERE d.classid = 'pg_class'::regclass AND d.objid = m.relation AND d.objsubid = m.number
				AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.relation AND d.refobjsubid = 0
				AND d.deptype = 'i')
		-- those of the column itself are dropped meanwhile
		AND NOT EXISTS (SELECT FROM member AS o WHERE o.relation = k.confrelid AND o.number = ANY (k.confkey))
	GROUP BY m.key, k.conname, k.conrelid, k.confrelid
	UNION ALL
	SELECT m.key, 4, m.nr, 'feature_not_supported',
		format('foreign key "%s" of table %s has a generated column', k.conname,
			snowflake_tools.qualified_name(k.conrelid)),
		format('Column "%s" of table %s is generated from "%s", and gets another value on this side only.', g.attname,
			m.name, m."column"),
		'Drop that foreign key first.'
	FROM member AS m
	JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
		AND d.refobjid = m.relation AND d.refobjsubid = m.number
	JOIN pg_attrdef AS e ON e.oid = d.objid
	JOIN pg_attribute AS g ON g.attrelid = e.adrelid AND g.attnum = e.adnum AND g.attgenerated <> ''
	JOIN pg_constraint AS k ON k.contype = 'f' AND k.conparentid = 0
		AND (k.confrelid = g.attrelid AND g.attnum = ANY (k.confkey)
			OR k.conrelid = g.attrelid AND g.attnum = ANY (k.conkey))
	UNION ALL
	-- what a publication has, its partitions have, though publish_via_partition_root does not show these
	SELECT m.key, 4, m.nr, 'object_not_in_prerequisite_state',
		format('table %s is published without a replica identity', m.name),
		concat_ws(' ', 'PostgreSQL would refuse the update.', m.reason),
		format('Use ALTER TABLE %s REPLICA IDENTITY FULL first.', m.name)
	FROM member AS m JOIN pg_class AS t ON t.oid = m.relation AND t.relkind = 'r' AND t.relpersistence = 'p'
		AND t.relreplident <> 'f'
	WHERE NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = t.oid AND i.indisvalid AND i.indimmediate
		AND CASE t.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END)
		AND EXISTS (SELECT FROM pg_publication AS p CROSS JOIN LATERAL pg_get_publication_tables(p.pubname) AS g
			WHERE p.pubupdate AND (g.relid = t.oid OR g.relid IN (SELECT pg_partition_ancestors(t.oid))))
$$;

-- What the values tell, once the catalogs refuse nothing.
CREATE FUNCTION snowflake_tools.value_refusals(p_members snowflake_tools.member[], p_task text, p_layout text)
RETURNS SETOF snowflake_tools.found
LANGUAGE sql
AS $$
	WITH new_id AS (
		SELECT b.label, d.tick, snowflake_tools.min_id(clock_timestamp(), b.label) AS id,
			snowflake_tools.min_id('infinity'::timestamptz, b.label) AS last_tick,
			snowflake_tools.default_expression(p_layout) AS expression
		FROM snowflake_tools.layout_label(p_layout) AS b (label)
		CROSS JOIN LATERAL snowflake_internal.layout(b.label) AS d
		WHERE p_task <> 'revert'
	), looked AS MATERIALIZED (
		SELECT c.*, CASE WHEN c.readable AND NOT c.hidden THEN snowflake_tools.greatest_value(c.root,
			c."column") END AS greatest
		FROM (SELECT m.key, m.root, m."column", m.follows, m.root_name AS name, t.relowner, t.relnamespace,
				pg_get_userbyid(t.relowner) AS owner, snowflake_tools.hides_rows(m.root) AS hidden,
				has_column_privilege(t.relowner, m.root, m."column", 'SELECT') AS readable
			FROM unnest(p_members) AS m JOIN pg_class AS t ON t.oid = m.root LEFT JOIN new_id AS n ON true
			WHERE m.relation = m.root AND (p_task = 'revert' AND m.reason IS NULL
				-- whatever is in a column that is not bigint, it need not be looked for
				OR p_task <> 'revert' AND NOT m.follows AND (m.type NOT IN ('smallint'::regtype, 'integer'::regtype)
					OR n.id <= 2147483647)
					AND NOT snowflake_tools.has_default(m.root, m."column", n.expression))) AS c
	), key AS (
		-- reverted: with the greatest value of all that go back together
		SELECT l.*, m.last, snowflake_tools.former_sequence(l.root, l."column") AS sequence
		FROM looked AS l JOIN (SELECT l.key, max(l.greatest) AS last FROM looked AS l GROUP BY l.key) AS m USING (key)
		WHERE p_task = 'revert' AND NOT l.follows
	), sequence AS (
		SELECT k.key, k.last, s.seqrelid, s.seqincrement < 0 AS falls, c.relowner, c.relnamespace,
			snowflake_tools.qualified_name(c.oid) AS name
		FROM key AS k JOIN pg_sequence AS s ON s.seqrelid = k.sequence JOIN pg_class AS c ON c.oid = s.seqrelid
	), refusal (key, nr, condition, message, detail, hint) AS (
		SELECT l.key, 1, 'insufficient_privilege', format('cannot read all values of column "%s" of table %s',
			l."column", l.name),
			CASE WHEN l.hidden THEN 'Row security is forced on the table, and may hide rows.'
				ELSE format('Its owner "%s" does not have SELECT on the column.', l.owner) END,
			CASE WHEN l.hidden THEN 'Use ALTER TABLE ... NO FORCE ROW LEVEL SECURITY, and force it again afterwards.'
				ELSE 'Grant it first.' END
		FROM looked AS l WHERE l.hidden OR NOT l.readable
		UNION ALL
		SELECT l.key, 1, 'object_not_in_prerequisite_state',
			format('new ids would not be greater than all in column "%s" of table %s', l."column", l.name),
			format('The greatest is %s, and ids of the layout "%s" begin at %s now.', l.greatest, n.label, n.id),
			CASE WHEN l.greatest < n.last_tick
				THEN format('They are greater from %s on. ', snowflake_tools.id_time(l.greatest, n.label) + n.tick)
					ELSE '' END ||
				'Use a layout with an earlier epoch or more bits below the timestamp.'
		FROM looked AS l CROSS JOIN new_id AS n WHERE l.greatest >= n.id
		UNION ALL
		SELECT l.key, 1, 'numeric_value_out_of_range',
			format('no sequence can go on after %s in column "%s" of table %s', l.greatest, l."column", l.name),
			'It is the greatest bigint.', 'Change or delete that row first.'
		FROM looked AS l WHERE p_task = 'revert' AND l.greatest = 9223372036854775807
		UNION ALL
		SELECT k.key, 1, 'not_null_violation', format('column "%s" of table %s has null values', k."column", k.name),
			'It becomes an identity again, which is NOT NULL.', 'Change or delete these rows first.'
		FROM key AS k CROSS JOIN LATERAL snowflake_tools.kept_state(k.root, k."column") AS s
		WHERE s.former ? 'identity' AND CASE WHEN k.readable AND NOT k.hidden
			AND NOT snowflake_tools.takes_no_null(k.root, k."column")
			THEN snowflake_tools.look_as_owner(k.root, format('SELECT to_jsonb(count(*)) FROM %s WHERE %I IS NULL', k.name,
				k."column"))::bigint > 0 END
		UNION ALL
		SELECT k.key, 2, 'insufficient_privilege', format('cannot create a sequence in schema %s',
			k.relnamespace::regnamespace),
			format('Column "%s" of table %s gets one of its own there, made as its owner.', k."column", k.name), h.hint
		FROM key AS k CROSS JOIN LATERAL snowflake_tools.creation_hint(k.relowner, k.relnamespace) AS h (hint)
		WHERE k.sequence IS NULL AND h.hint IS NOT NULL
		UNION ALL
		-- the one that it owned goes with it
		SELECT s.key, 2, 'insufficient_privilege', format('cannot create a sequence in schema %s',
			l.relnamespace::regnamespace),
			format('Sequence %s gets the schema and the owner of table %s.', s.name, l.name), h.hint
		FROM sequence AS s JOIN looked AS l USING (key)
		CROSS JOIN LATERAL snowflake_tools.kept_state(l.root, l."column") AS k
		CROSS JOIN LATERAL snowflake_tools.creation_hint(l.relowner, l.relnamespace) AS h (hint)
		WHERE k.owned AND (s.relnamespace, s.relowner) <> (l.relnamespace, l.relowner) AND h.hint IS NOT NULL
		UNION ALL
		-- a default is the table owner's word: who may act for both would act on another role's sequence
		SELECT s.key, 2, 'insufficient_privilege', format('the owner of table %s does not own sequence %s', l.name,
			s.name),
			format('The owner of the table is "%s", that of the sequence "%s".', l.owner, pg_get_userbyid(s.relowner)),
			format('If the column had its values from this sequence, use ALTER SEQUENCE %s OWNER TO %I first.', s.name,
				l.owner)
		FROM sequence AS s JOIN looked AS l USING (key) WHERE NOT pg_has_role(l.relowner, s.relowner, 'USAGE')
		UNION ALL
		SELECT s.key, 2, 'object_not_in_prerequisite_state',
			format('sequence %s cannot go on after %s while column "%s" of table %s uses it',
				s.name, s.last, u."column", snowflake_tools.qualified_name(u.relation)),
			CASE WHEN s.falls THEN 'The sequence counts down, and that column is not converted.'
				ELSE format('That column is of type %s, and not converted.', format_type(u.type, NULL)) END,
			'Convert that column as well, and all go back to the sequence together; or give it another default.'
		FROM sequence AS s CROSS JOIN LATERAL snowflake_tools.sequence_users(s.seqrelid) AS u
		WHERE NOT u.converted AND (s.falls
			OR s.last >= CASE u.type WHEN 'smallint'::regtype THEN 32767 WHEN 'integer'::regtype THEN 2147483647 END)
		UNION ALL
		-- as it was before only while no value is later than the sequence's last one
		SELECT d.key, 3, 'object_not_in_prerequisite_state',
			format('table %s is partitioned by column "%s"', snowflake_tools.qualified_name(d.relation), d.by_column),
			format('A sequence goes on %s: there is no partition for its values, or one gets them all.',
				coalesce('after ' || d.last, 'at 1')),
			'First move the rows to a table that is not partitioned by it, or that has one partition for all values.'
		FROM (SELECT DISTINCT l.key, t.relation, t.by_column, k.last, k.root, k."column", k.sequence
			FROM looked AS l JOIN key AS k USING (key)
			CROSS JOIN LATERAL snowflake_tools.divided_tables(l.root, l."column") AS t) AS d
		WHERE NOT EXISTS (SELECT
			-- the last value before the column was converted
			FROM snowflake_tools.kept_state(d.root, d."column") AS k LEFT JOIN sequence AS s ON s.key = d.key
			WHERE (s.seqrelid IS NOT NULL OR k.former IS NOT NULL)
				AND coalesce(d.last <= CASE WHEN s.seqrelid IS NULL THEN (k.former->>'last')::bigint
					WHEN pg_has_role(s.relowner, 'USAGE') THEN pg_sequence_last_value(s.seqrelid) END, d.last IS NULL))
	)
	SELECT r.key, 11, r.nr, r.condition, r.message, r.detail, r.hint FROM refusal AS r
$$;

-- What Citus would refuse for its tables.  Its catalogs need not be there.
CREATE FUNCTION snowflake_tools.citus_refusals(p_members snowflake_tools.member[], p_task text, p_layout text)
RETURNS SETOF snowflake_tools.found
LANGUAGE plpgsql STABLE
AS $$
BEGIN
	IF to_regclass('pg_catalog.pg_dist_partition') IS NULL OR to_regclass('pg_catalog.pg_dist_object') IS NULL THEN
		RETURN;
	END IF;
	RETURN QUERY
	WITH changed AS (
		SELECT m.* FROM unnest(p_members) AS m WHERE m.relation = m.root
	), altered AS (
		SELECT c.*, a.attidentity <> '' AS has_identity,
			format('Citus cannot alter column "%s" of table %s', c."column", c.root_name) AS message,
			coalesce(substring(d.partkey, ':varattno (\d+)')::integer = a.attnum, false) AS distributes,
			p_task = 'convert' AND snowflake_tools.named_sequence(c.root, c."column") IS NOT NULL AS shares,
			EXISTS (SELECT FROM pg_attrdef AS e JOIN pg_depend AS s ON s.classid = 'pg_attrdef'::regclass
				AND s.objid = e.oid
				JOIN pg_sequence AS q ON s.refclassid = 'pg_class'::regclass AND s.refobjid = q.seqrelid
				WHERE e.adrelid = c.root AND e.adnum = a.attnum) AS counts,
			(SELECT string_agg(snowflake_tools.qualified_name(s), ', ' ORDER BY s)
				FROM snowflake_tools.owned_sequences(c.root, c."column") AS s) AS owned
		FROM changed AS c
		JOIN changed AS k ON k.key = c.key AND NOT k.follows
		JOIN pg_attribute AS a ON a.attrelid = c.root AND a.attnum = c.number
		JOIN pg_dist_partition AS d ON d.logicalrelid = c.root
		WHERE p_task = 'revert' OR c.becomes IS NOT NULL
			OR NOT snowflake_tools.has_default(k.root, k."column", snowflake_tools.default_expression(p_layout))
	)
	SELECT c.key, 10, 1 + c.follows::integer::bigint, 'feature_not_supported', c.message,
		'The table is distributed by this column.',
		format('In one transaction, SELECT undistribute_table(%L, cascade_via_foreign_keys => true), %s, ' ||
			'SELECT create_distributed_table(%L, %L), and distribute the tables again that were undistributed with it.',
			c.root_name, p_task, c.root_name, c."column")
	FROM altered AS c WHERE c.distributes
	UNION ALL
	SELECT c.key, 10, 1 + c.follows::integer, 'feature_not_supported', c.message,
		'It is an identity column.', 'Create a table like it without the identity, distribute it, and move the rows.'
	FROM altered AS c WHERE c.has_identity AND NOT c.distributes
	UNION ALL
	SELECT c.key, 10, 1 + c.follows::integer, 'feature_not_supported', c.message,
		CASE WHEN c.shares THEN 'It has its values from a sequence that is not its own.'
			ELSE 'Its type is to change, and it has a sequence.' END,
		concat_ws(' ', 'First, in the same transaction:',
			CASE WHEN c.counts THEN format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT;', c.root_name, c."column") END,
			'DROP SEQUENCE ' || c.owned || ';')
	FROM altered AS c
	WHERE (c.shares OR c.becomes IS NOT NULL AND (c.owned IS NOT NULL OR c.counts)) AND NOT (c.has_identity
		OR c.distributes)
	UNION ALL
	SELECT c.key, 10, 3, 'feature_not_supported', format('Citus cannot alter sequence %s',
		snowflake_tools.qualified_name(o.objid)),
		'It is on all servers of the cluster.', format('DROP SEQUENCE %s; a new one is made.',
			snowflake_tools.qualified_name(o.objid))
	FROM changed AS c JOIN pg_dist_object AS o
		ON o.classid = 'pg_class'::regclass AND o.objid = snowflake_tools.former_sequence(c.root, c."column")
	WHERE p_task = 'revert' AND NOT c.follows AND NOT EXISTS (SELECT FROM altered AS a WHERE a.key = c.key
		AND a.distributes);
END
$$;

-- A key, and why it cannot be changed.
CREATE TYPE snowflake_tools.checked_key AS (root oid, "column" name, name text, refusals snowflake_tools.refusal[]);

-- All that keeps these keys from being changed; with p_look, also their values, if nothing else does.
CREATE FUNCTION snowflake_tools.checked_keys(p_keys snowflake_tools.key[], p_task text, p_layout text, p_look boolean)
RETURNS snowflake_tools.checked_key[]
LANGUAGE plpgsql
AS $$
DECLARE
	v_members snowflake_tools.member[] := ARRAY(SELECT m FROM snowflake_tools.members(p_keys, p_task) AS m);
	v_found snowflake_tools.found[];
	v_refused bigint[];
BEGIN
	v_found := ARRAY(SELECT u.f
		FROM (SELECT f, rank() OVER (PARTITION BY (f).key, (f).nr ORDER BY (f).stage) AS reached
			FROM (SELECT f FROM snowflake_tools.name_refusals(p_keys) AS f
				UNION ALL SELECT f FROM snowflake_tools.table_refusals(v_members) AS f
				UNION ALL SELECT f FROM snowflake_tools.column_refusals(v_members, p_task) AS f
				UNION ALL SELECT f FROM snowflake_tools.type_refusals(v_members) AS f WHERE p_task <> 'rekey'
				UNION ALL SELECT f FROM snowflake_tools.constraint_refusals(v_members, p_task) AS f
				UNION ALL SELECT f FROM snowflake_tools.conversion_refusals(v_members, p_layout) AS f
					WHERE p_task = 'convert'
				UNION ALL SELECT f FROM snowflake_tools.rekey_refusals(v_members, p_layout) AS f
					WHERE p_task = 'rekey') AS r) AS u
		WHERE u.reached = 1);
	IF p_task <> 'rekey' THEN
		v_found := v_found || ARRAY(SELECT f FROM snowflake_tools.citus_refusals(v_members, p_task, p_layout) AS f);
		IF p_look THEN
			v_refused := ARRAY(SELECT DISTINCT f.key FROM unnest(v_found) AS f);
			v_found := v_found || ARRAY(SELECT f FROM snowflake_tools.value_refusals(
				ARRAY(SELECT m FROM unnest(v_members) AS m WHERE m.key <> ALL (v_refused)), p_task, p_layout) AS f);
		END IF;
	END IF;
	RETURN ARRAY(SELECT (k.root, k."column", snowflake_tools.qualified_name(k.root),
			coalesce(f.refusals, '{}'))::snowflake_tools.checked_key
		FROM unnest(p_keys) WITH ORDINALITY AS k (root, "column", type, nr)
		LEFT JOIN (SELECT f.key, array_agg((f.condition, f.message, f.detail, f.hint)::snowflake_tools.refusal
				ORDER BY greatest(f.stage, 9), f.nr, f.message COLLATE "C", f.detail COLLATE "C") AS refusals
			FROM unnest(v_found) AS f GROUP BY f.key) AS f ON f.key = k.nr
		ORDER BY k.nr);
END
$$;

-- A refusal in one line.
CREATE FUNCTION snowflake_tools.refusal_text(refusal snowflake_tools.refusal) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
	SELECT format('%s. %s %s', refusal.message, rtrim(replace(refusal.detail, E'\n', ', '), '.') || '.', refusal.hint)
$$;

-- Raises the first of these, with the others in its detail, if there are any.
CREATE FUNCTION snowflake_tools.refuse(p_refusals snowflake_tools.refusal[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
	IF p_refusals <> '{}' THEN
		RAISE EXCEPTION '%', (p_refusals[1]).message
			USING ERRCODE = (p_refusals[1]).condition, HINT = (p_refusals[1]).hint,
			DETAIL = concat_ws(E'\n', (p_refusals[1]).detail,
				(SELECT string_agg(snowflake_tools.refusal_text(r), E'\n') FROM unnest(p_refusals[2:]) AS r));
	END IF;
END
$$;

--
-- Locks
--

-- The tables to be altered, in the order of locks.
-- A table that references is locked before the one that it references, as by an INSERT: it has fewer
-- followers, and the greater OID decides between equals.
CREATE FUNCTION snowflake_tools.tables_to_lock(p_keys snowflake_tools.key[], p_task text) RETURNS text[]
LANGUAGE sql STABLE STRICT
AS $$
	WITH member AS MATERIALIZED (
		SELECT m.* FROM snowflake_tools.members(p_keys, p_task) AS m
	), changed AS MATERIALIZED (
		SELECT m.root, m."column", m.root_name FROM member AS m
		UNION
		-- a foreign key is made again with either of its columns; the other one may be bigint already
		SELECT o.relation, a.attname, snowflake_tools.qualified_name(o.relation)
		FROM member AS m JOIN pg_constraint AS k ON k.contype = 'f' AND k.conparentid = 0
		CROSS JOIN LATERAL unnest(k.conkey, k.confkey) AS u (referencing, referenced)
		CROSS JOIN LATERAL (VALUES (k.conrelid, u.referencing), (k.confrelid, u.referenced)) AS o (relation, number)
		JOIN pg_attribute AS a ON a.attrelid = o.relation AND a.attnum = o.number
		WHERE m.becomes IS NOT NULL
			AND (m.relation, m.number) IN ((k.conrelid, u.referencing), (k.confrelid, u.referenced))
			AND o.relation NOT IN (SELECT w.relation FROM member AS w)
	), numbered AS (
		SELECT c.*, row_number() OVER (ORDER BY c.root, c."column") AS nr FROM changed AS c
	), followed AS (
		SELECT f.key, count(*) AS followers
		FROM snowflake_tools.following_columns(ARRAY(SELECT (n.root, n."column", NULL)::snowflake_tools.key
			FROM numbered AS n ORDER BY n.nr)) AS f
		GROUP BY f.key
	)
	SELECT coalesce(array_agg(t.root_name ORDER BY t.followers, t.root DESC), '{}')
	FROM (SELECT n.root, n.root_name, max(f.followers) AS followers
		FROM numbered AS n JOIN followed AS f ON f.key = n.nr GROUP BY n.root, n.root_name) AS t
$$;

-- Statements that lock the sequences that keys go back to, and change nothing: other columns may take values from them
-- until then.  A sequence that the table's owner may not alter is refused later.
CREATE FUNCTION snowflake_tools.sequence_locks(p_keys snowflake_tools.key[]) RETURNS snowflake_tools.step[]
LANGUAGE sql STABLE STRICT
AS $$
	SELECT ARRAY(SELECT DISTINCT ('statement', s.name, format('ALTER SEQUENCE %s OWNER TO %I;', s.name,
		pg_get_userbyid(c.relowner)), t.relowner)::snowflake_tools.step
		FROM unnest(p_keys) AS k JOIN pg_class AS t ON t.oid = k.root
		JOIN pg_class AS c ON c.oid = snowflake_tools.former_sequence(k.root, k."column")
		CROSS JOIN LATERAL snowflake_tools.qualified_name(c.oid) AS s (name)
		WHERE pg_has_role(t.relowner, c.relowner, 'USAGE') ORDER BY 1)
$$;

--
-- All of a schema
--

-- Refuses what is no schema.
CREATE FUNCTION snowflake_tools.schema_argument_refusals(schema regnamespace, leave_out regclass[])
RETURNS SETOF snowflake_tools.refusal
LANGUAGE sql STABLE
AS $$
	SELECT 'null_value_not_allowed', 'schema and leave_out must not be null',
		format('They are %s and %s.', coalesce(schema::text, 'NULL'), coalesce(leave_out::text, 'NULL')),
		'Give the name of a schema, as in snowflake_convert_schema(''public'').'
	WHERE schema IS NULL OR leave_out IS NULL OR array_position(leave_out, NULL) IS NOT NULL
	UNION ALL
	SELECT 'invalid_schema_name', format('schema with OID %s does not exist', schema::oid),
		'Somebody may have dropped it.', 'Give the name of a schema.'
	WHERE schema IS NOT NULL AND NOT EXISTS (SELECT FROM pg_namespace AS n WHERE n.oid = schema)
$$;

-- The tables of a schema whose columns are looked at, without those of extensions.
CREATE FUNCTION snowflake_tools.own_columns(p_schema oid, OUT root oid, OUT "column" name, OUT number smallint,
	OUT type oid,
	OUT identity boolean, OUT has_default boolean) RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	SELECT c.oid, a.attname, a.attnum, a.atttypid, a.attidentity <> '', a.atthasdef
	FROM pg_class AS c
	JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0
	WHERE c.relnamespace = p_schema AND c.relkind IN ('r', 'p')
		AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid
			AND e.refclassid = 'pg_extension'::regclass AND e.deptype = 'e')
$$;

-- Columns of any type that take their values from a sequence, by their default or their domain's, and are
-- part of a primary key or of a unique index of all rows of the table, or of one of its partitions or children.
CREATE FUNCTION snowflake_tools.sequence_keys(p_schema oid) RETURNS SETOF snowflake_tools.key
LANGUAGE sql STABLE STRICT
AS $$
	SELECT c.root, c."column", NULL::oid
	FROM snowflake_tools.own_columns(p_schema) AS c
	WHERE (c.identity
			OR (c.root, c.number) IN (SELECT d.adrelid, d.adnum
				FROM pg_depend AS p
				JOIN pg_class AS s ON p.refclassid = 'pg_class'::regclass AND s.oid = p.refobjid AND s.relkind = 'S'
				JOIN pg_attrdef AS d ON p.classid = 'pg_attrdef'::regclass AND d.oid = p.objid)
			OR NOT c.has_default AND c.type IN (SELECT p.objid
				FROM pg_depend AS p
				JOIN pg_class AS s ON p.refclassid = 'pg_class'::regclass AND s.oid = p.refobjid AND s.relkind = 'S'
				WHERE p.classid = 'pg_type'::regclass))
		AND EXISTS (SELECT FROM snowflake_tools.column_members(c.root, c."column") AS m
			JOIN pg_index AS i ON i.indrelid = m.relation
			WHERE i.indisunique AND i.indpred IS NULL
				AND m.number = ANY ((i.indkey::smallint[])[0:i.indnkeyatts - 1]))
		AND NOT snowflake_tools.is_converted(c.root, c."column")
$$;

-- The keys of a schema that are to be changed.
-- Of columns that go back to a sequence together the first one stands for all.
CREATE FUNCTION snowflake_tools.schema_keys(p_schema oid, p_task text, p_type oid, p_leave_out regclass[])
RETURNS snowflake_tools.key[]
LANGUAGE sql STABLE
AS $$
	WITH key AS (
		SELECT s.root, s."column", snowflake_tools.qualified_name(s.root) AS name
		FROM snowflake_tools.sequence_keys(p_schema) AS s WHERE p_task = 'convert' AND s.root <> ALL (p_leave_out)
		UNION ALL
		(SELECT DISTINCT ON (t.sequence, CASE WHEN t.sequence IS NULL THEN (c.root, c."column",
			NULL)::snowflake_tools.key END)
			c.root, c."column", n.name
		FROM snowflake_tools.own_columns(p_schema) AS c, snowflake_tools.qualified_name(c.root) AS n (name),
			snowflake_tools.former_sequence(c.root, c."column") AS t (sequence)
		WHERE p_task = 'revert' AND c.has_default AND snowflake_tools.is_converted(c.root, c."column")
		ORDER BY t.sequence, CASE WHEN t.sequence IS NULL THEN (c.root, c."column", NULL)::snowflake_tools.key END,
			n.name COLLATE "C", c."column" COLLATE "C")
	)
	SELECT ARRAY(SELECT (k.root, k."column", p_type)::snowflake_tools.key
		FROM key AS k ORDER BY k.name COLLATE "C", k."column" COLLATE "C")
$$;

-- What is refused for a schema, as one.
CREATE FUNCTION snowflake_tools.schema_refusals(schema regnamespace, task text, keys snowflake_tools.checked_key[])
RETURNS SETOF snowflake_tools.refusal
LANGUAGE sql STABLE
AS $$
	WITH refused AS (
		SELECT count(*) AS number, ARRAY(SELECT DISTINCT r.name FROM unnest(keys) AS r
			WHERE r.refusals <> '{}' ORDER BY 1) AS names,
			(SELECT string_agg(snowflake_tools.refusal_text(r), E'\n')
				FROM unnest(keys) AS k, unnest(k.refusals) AS r) AS reasons
		FROM unnest(keys) AS k WHERE k.refusals <> '{}' HAVING count(*) > 0
	), owner AS (
		SELECT k.name, c.relowner, row_number() OVER (ORDER BY k.name COLLATE "C") AS nr
		FROM unnest(keys) AS k JOIN pg_class AS c ON c.oid = k.root
	)
	SELECT 'object_not_in_prerequisite_state', format('%s of %s keys of schema %s cannot %s', r.number, cardinality(keys),
		schema, CASE task WHEN 'convert' THEN 'be converted' ELSE 'go back to a sequence' END), r.reasons,
		CASE task WHEN 'convert'
			THEN format('Nothing is changed. Mend that, or leave the tables out: leave_out => %L.', r.names)
			ELSE 'Nothing is changed. Mend that, or call snowflake_revert_column() for each of the others.' END
	FROM refused AS r
	UNION ALL
	SELECT 'insufficient_privilege', format('tables %s and %s have different owners', f.name, o.name),
		format('They are "%s" and "%s", and what is done to a table is done as its owner.',
			pg_get_userbyid(f.relowner), pg_get_userbyid(o.relowner)),
		CASE task WHEN 'convert' THEN 'Nothing is changed. Leave out the tables of other owners, ' ||
				'and convert each of these with snowflake_convert_column().'
			ELSE 'Nothing is changed. Call snowflake_revert_column() for each.' END
	FROM owner AS f JOIN owner AS o ON f.nr = 1 AND o.relowner <> f.relowner
	WHERE NOT EXISTS (SELECT FROM refused)
	ORDER BY 2 LIMIT 1
$$;

-- The keys of a schema, to get the type of the one that is given, or those that are given; unless it is a dry run all
-- that is to be altered is then locked.  Locks are taken by name; what was found before may have changed meanwhile,
-- so it looks again until all that it finds is locked.  A locked table keeps its name.
CREATE FUNCTION snowflake_tools.locked_keys(p_schema regnamespace, p_keys snowflake_tools.key[], p_task text,
	p_layout text, p_leave_out regclass[], p_dry_run boolean) RETURNS snowflake_tools.checked_key[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off SET jit = off
AS $$
DECLARE
	v_locked text[] := '{}';
	v_to_lock text[];
	v_views snowflake_tools.step[];
	v_sequences snowflake_tools.step[];
	v_step snowflake_tools.step;
	v_keys snowflake_tools.key[] := p_keys;
	v_checked snowflake_tools.checked_key[];
	v_refusals snowflake_tools.refusal[];
	v_isolation CONSTANT text := current_setting('transaction_isolation');
BEGIN
	-- the greatest value that an older snapshot sees need not be the greatest
	IF NOT p_dry_run AND v_isolation IN ('repeatable read', 'serializable') THEN
		RAISE EXCEPTION 'columns are changed at isolation level read committed, not %', v_isolation
			USING ERRCODE = 'active_sql_transaction',
			DETAIL = 'At this level the transaction does not see what others have committed since it began.',
			HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
	END IF;
	LOOP
		IF p_schema IS NOT NULL THEN
			v_keys := snowflake_tools.schema_keys(p_schema, p_task, p_keys[1].type, p_leave_out);
		END IF;
		-- values that are committed before the locks are taken count
		v_checked := snowflake_tools.checked_keys(v_keys, p_task, p_layout, p_dry_run OR v_locked <> '{}');
		IF p_schema IS NULL THEN
			v_refusals := ARRAY(SELECT r FROM unnest(v_checked) AS k, unnest(k.refusals) AS r);
		ELSIF NOT p_dry_run THEN
			v_refusals := ARRAY(SELECT r FROM snowflake_tools.schema_refusals(p_schema, p_task, v_checked) AS r);
		END IF;
		PERFORM snowflake_tools.refuse(v_refusals);
		EXIT WHEN p_dry_run;
		v_to_lock := snowflake_tools.tables_to_lock(v_keys, p_task);
		v_views := snowflake_tools.view_locks(ARRAY(SELECT m FROM snowflake_tools.members(v_keys, p_task) AS m));
		v_sequences := CASE p_task WHEN 'revert' THEN snowflake_tools.sequence_locks(v_keys) ELSE '{}' END;
		EXIT WHEN v_to_lock || ARRAY(SELECT s.object FROM unnest(v_views || v_sequences) AS s) <@ v_locked;
		FOREACH v_step IN ARRAY v_views LOOP
			PERFORM snowflake_tools.execute_as(v_step.role, v_step.content);
		END LOOP;
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', array_to_string(v_to_lock, ', '));
		-- an INSERT locks its table before the sequence
		FOREACH v_step IN ARRAY v_sequences LOOP
			PERFORM snowflake_tools.execute_as(v_step.role, v_step.content);
		END LOOP;
		v_locked := v_to_lock || ARRAY(SELECT s.object FROM unnest(v_views || v_sequences) AS s);
	END LOOP;
	RETURN v_checked;
END
$$;
