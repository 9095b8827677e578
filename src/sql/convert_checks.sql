--
-- Converting existing columns: which columns belong together, and what is refused.
-- All of it runs with the rights of the caller, who must own the tables.
--
-- A column is named by the topmost table that has it and its name; the partitions
-- and children of that table, its members, have it too, at attribute numbers of
-- their own.
--
CREATE FUNCTION snowflake_internal.qualified_name(namespace oid, name name) RETURNS text
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('%I.%I', CASE WHEN n.oid = pg_my_temp_schema() THEN 'pg_temp' ELSE n.nspname END, name)
	FROM pg_namespace AS n WHERE n.oid = namespace
$$;
COMMENT ON FUNCTION snowflake_internal.qualified_name(oid, name) IS
'part of snowflake_convert_column: name of a relation that means the same under every search_path';

CREATE FUNCTION snowflake_internal.qualified_name(relation oid) RETURNS text
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT snowflake_internal.qualified_name(c.relnamespace, c.relname) FROM pg_class AS c WHERE c.oid = relation
$$;
COMMENT ON FUNCTION snowflake_internal.qualified_name(oid) IS
'part of snowflake_convert_column: the same for one that exists';

CREATE FUNCTION snowflake_internal.column_members(root oid, "column" name, OUT relation oid, OUT number smallint)
RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE member (relation) AS (
		SELECT root
		UNION
		SELECT i.inhrelid FROM member AS m JOIN pg_inherits AS i ON i.inhparent = m.relation
	)
	SELECT m.relation, a.attnum
	FROM member AS m
	JOIN pg_attribute AS a ON a.attrelid = m.relation AND a.attname = "column" AND a.attnum > 0
$$;
COMMENT ON FUNCTION snowflake_internal.column_members(oid, name) IS
'part of snowflake_convert_column: the table and all that inherit the column from it';

CREATE FUNCTION snowflake_internal.column_roots(relation oid, "column" name) RETURNS SETOF oid
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE ancestor (relation, up) AS (
		SELECT relation, NULL::oid
		UNION
		SELECT i.inhparent, a.relation
		FROM ancestor AS a JOIN pg_inherits AS i ON i.inhrelid = a.relation
		WHERE EXISTS (SELECT FROM pg_attribute AS p
			WHERE p.attrelid = i.inhparent AND p.attname = "column" AND p.attnum > 0)
	)
	SELECT DISTINCT a.relation FROM ancestor AS a
	WHERE NOT EXISTS (SELECT FROM ancestor AS below WHERE below.up = a.relation)
$$;
COMMENT ON FUNCTION snowflake_internal.column_roots(oid, name) IS
'part of snowflake_convert_column: the topmost tables that a column is inherited from, or its own';

-- Ids of the column are stored in all of these: itself, and what references it by
-- foreign keys, also by way of others.  A constraint's copies for partitions
-- (conparentid) say nothing new.
CREATE FUNCTION snowflake_internal.following_columns(origin oid, origin_column name,
	OUT root oid, OUT "column" name, OUT type oid) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE following (root, "column") AS (
		SELECT origin, origin_column
		UNION
		SELECT r.root, a.attname
		FROM following AS f
		CROSS JOIN LATERAL snowflake_internal.column_members(f.root, f."column") AS m
		JOIN pg_constraint AS c ON c.confrelid = m.relation AND c.contype = 'f' AND c.conparentid = 0
		CROSS JOIN LATERAL unnest(c.conkey, c.confkey) AS k (referencing, referenced)
		JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.referencing
		CROSS JOIN LATERAL snowflake_internal.column_roots(c.conrelid, a.attname) AS r (root)
		WHERE k.referenced = m.number
	)
	SELECT f.root, f."column", a.atttypid
	FROM following AS f JOIN pg_attribute AS a ON a.attrelid = f.root AND a.attname = f."column"
$$;
COMMENT ON FUNCTION snowflake_internal.following_columns(oid, name) IS
'part of snowflake_convert_column: the column and all that reference it, which must have its type';

--
-- Which sequence a column has its values from
--

CREATE FUNCTION snowflake_internal.is_converted(relation oid, "column" name) RETURNS boolean
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT EXISTS (SELECT FROM pg_attribute AS a
		JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
			AND p.refclassid = 'pg_proc'::regclass AND p.refobjid IN (SELECT snowflake_internal.nextval_functions())
		WHERE a.attrelid = relation AND a.attname = "column")
$$;
COMMENT ON FUNCTION snowflake_internal.is_converted(oid, name) IS
'part of snowflake_convert_column: whether the default of a column issues ids';

-- The sequence that the default names, in nextval() or instead_of(), unless the column owns it.
CREATE FUNCTION snowflake_internal.named_sequence(relation oid, "column" name) RETURNS oid
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT s.seqrelid
	FROM pg_attribute AS a
	JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass
	JOIN pg_sequence AS s ON s.seqrelid = p.refobjid
	WHERE a.attrelid = relation AND a.attname = "column"
		AND NOT EXISTS (SELECT FROM pg_depend AS o WHERE o.classid = 'pg_class'::regclass AND o.objid = s.seqrelid
			AND o.refclassid = 'pg_class'::regclass AND o.refobjid = relation AND o.refobjsubid = a.attnum AND o.deptype = 'a')
	ORDER BY s.seqrelid LIMIT 1
$$;
COMMENT ON FUNCTION snowflake_internal.named_sequence(oid, name) IS
'part of snowflake_convert_column: the sequence in the default of a column that does not own it';

CREATE FUNCTION snowflake_internal.owned_sequence(root oid, "column" name) RETURNS oid
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT s.seqrelid
	FROM pg_attribute AS a
	JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = root AND d.refobjsubid = a.attnum
		AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'
	JOIN pg_sequence AS s ON s.seqrelid = d.objid
	WHERE a.attrelid = root AND a.attname = "column"
	ORDER BY s.seqrelid LIMIT 1
$$;
COMMENT ON FUNCTION snowflake_internal.owned_sequence(oid, name) IS
'part of snowflake_revert_column: the sequence that the column still has';

CREATE FUNCTION snowflake_internal.former_sequence(root oid, "column" name) RETURNS oid
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce(snowflake_internal.named_sequence(root, "column"), snowflake_internal.owned_sequence(root, "column"))
$$;
COMMENT ON FUNCTION snowflake_internal.former_sequence(oid, name) IS
'part of snowflake_revert_column: the sequence that a converted column goes back to; NULL: a new one';

-- The columns that had their values from this sequence before they were converted, by their topmost tables;
-- and those that still have them from it, by the tables that have such a default.
CREATE FUNCTION snowflake_internal.sequence_users(sequence oid, OUT relation oid, OUT "column" name, OUT type oid, OUT converted boolean)
RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	WITH used AS (
		SELECT a.attrelid AS relation, a.attname AS "column", coalesce(nullif(t.typbasetype, 0), t.oid) AS type,
			snowflake_internal.is_converted(a.attrelid, a.attname) AS converted
		FROM (SELECT d.adrelid AS relation, d.adnum::integer AS number
			FROM pg_depend AS p JOIN pg_attrdef AS d ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
			WHERE p.refclassid = 'pg_class'::regclass AND p.refobjid = sequence
			UNION
			SELECT p.refobjid, p.refobjsubid
			FROM pg_depend AS p
			WHERE p.classid = 'pg_class'::regclass AND p.objid = sequence AND p.refclassid = 'pg_class'::regclass AND p.deptype = 'a'
				AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = p.refobjid AND a.attnum = p.refobjsubid
					AND snowflake_internal.is_converted(a.attrelid, a.attname))) AS u
		JOIN pg_attribute AS a ON a.attrelid = u.relation AND a.attnum = u.number
		JOIN pg_type AS t ON t.oid = a.atttypid
	)
	SELECT DISTINCT r.root, u."column", u.type, true
	FROM used AS u CROSS JOIN LATERAL snowflake_internal.column_roots(u.relation, u."column") AS r (root)
	WHERE u.converted AND snowflake_internal.former_sequence(r.root, u."column") = sequence
	UNION ALL
	SELECT u.relation, u."column", u.type, false FROM used AS u WHERE NOT u.converted
$$;
COMMENT ON FUNCTION snowflake_internal.sequence_users(oid) IS
'part of snowflake_revert_column: the columns that have or had their values from a sequence';

-- Columns that had their values from one sequence go back to it together: ids of one could be equal to
-- what the sequence then gives another.
CREATE FUNCTION snowflake_internal.reverted_columns(origin oid, origin_column name, OUT root oid, OUT "column" name)
RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT origin, origin_column
	UNION
	SELECT u.relation, u."column"
	FROM snowflake_internal.sequence_users(snowflake_internal.former_sequence(origin, origin_column)) AS u
	WHERE u.converted AND snowflake_internal.is_converted(origin, origin_column)
$$;
COMMENT ON FUNCTION snowflake_internal.reverted_columns(oid, name) IS
'part of snowflake_revert_column: the column, and all that shared its sequence';

CREATE FUNCTION snowflake_internal.check_column(relation oid, "column" name) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	table_name CONSTANT text := snowflake_internal.qualified_name(relation);
	roots text;
BEGIN
	IF relation IS NULL OR "column" IS NULL THEN
		RAISE EXCEPTION 'table and column must not be null'
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	IF table_name IS NULL THEN
		RAISE EXCEPTION 'relation with OID % does not exist', relation
			USING ERRCODE = 'undefined_table';
	END IF;
	PERFORM FROM pg_attribute AS a
	WHERE a.attrelid = relation AND a.attname = "column" AND a.attnum > 0 AND NOT a.attisdropped;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'column "%" of table % does not exist', "column", table_name
			USING ERRCODE = 'undefined_column',
			HINT = 'Write the name as it is stored, without quotes around it.';
	END IF;
	SELECT string_agg(snowflake_internal.qualified_name(r), ', ' ORDER BY r) INTO roots
	FROM snowflake_internal.column_roots(relation, "column") AS r WHERE r <> relation;
	IF roots IS NOT NULL THEN
		RAISE EXCEPTION 'column "%" of table % is inherited from %', "column", table_name, roots
			USING ERRCODE = 'invalid_table_definition',
			DETAIL = 'All partitions and children of a table change together.',
			HINT = format('Name %s instead.', roots);
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_column(oid, name) IS
'part of snowflake_convert_column: refuses what is no column, or one of a partition or child';

-- Refuses tables that cannot or must not be altered; reason is for the detail.
CREATE FUNCTION snowflake_internal.check_table(relation oid, reason text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	table_name CONSTANT text := snowflake_internal.qualified_name(relation);
	class CONSTANT pg_class := c FROM pg_class AS c WHERE c.oid = relation;
	extension name;
BEGIN
	IF class.relkind NOT IN ('r', 'p') THEN
		RAISE EXCEPTION '% is not a table', table_name
			USING ERRCODE = 'wrong_object_type',
			DETAIL = concat_ws(' ', format('It is %s.', CASE class.relkind WHEN 'v' THEN 'a view'
				WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table' WHEN 'S' THEN 'a sequence'
				WHEN 'c' THEN 'a composite type' WHEN 't' THEN 'a TOAST table' ELSE 'an index' END), reason);
	END IF;
	IF relation < 16384 THEN
		RAISE EXCEPTION '% is a system catalog', table_name
			USING ERRCODE = 'insufficient_privilege';
	END IF;
	IF NOT pg_has_role(class.relowner, 'USAGE') THEN
		RAISE EXCEPTION 'must be owner of table %', table_name
			USING ERRCODE = 'insufficient_privilege',
			DETAIL = concat_ws(' ', format('Its owner is "%s".', pg_get_userbyid(class.relowner)), reason),
			HINT = 'Let a role do it that owns all tables, or is a member of their owners.';
	END IF;
	IF pg_is_other_temp_schema(class.relnamespace) THEN
		RAISE EXCEPTION '% is a temporary table of another session', table_name
			USING ERRCODE = 'feature_not_supported';
	END IF;
	SELECT e.extname INTO extension
	FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
	WHERE d.classid = 'pg_class'::regclass AND d.objid = relation
		AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e';
	IF FOUND THEN
		RAISE EXCEPTION 'table % belongs to the extension "%"', table_name, extension
			USING ERRCODE = 'feature_not_supported',
			DETAIL = concat_ws(' ', 'A dump would create it again as the extension does.', reason);
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_table(oid, text) IS
'part of snowflake_convert_column: refuses tables that cannot be altered';

-- Objects that keep a column from being changed: those that depend on it and that
-- PostgreSQL does not change with its type, and those that depend on the sequence of its
-- identity, which is dropped.  Indexes, constraints, statistics, the column's own default
-- and sequences that it owns change with the type.
CREATE FUNCTION snowflake_internal.dependents(root oid, "column" name, widens boolean, identity boolean)
RETURNS SETOF text
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	WITH member AS (
		SELECT m.relation, m.number, c.reltype, t.typarray
		FROM snowflake_internal.column_members(root, "column") AS m
		JOIN pg_class AS c ON c.oid = m.relation JOIN pg_type AS t ON t.oid = c.reltype
	), dependent AS (
		SELECT d.classid, d.objid, d.objsubid, m.relation, m.number
		FROM member AS m JOIN pg_depend AS d
			ON d.refclassid = 'pg_class'::regclass AND d.refobjid = m.relation AND d.refobjsubid = m.number
		WHERE widens AND d.classid NOT IN ('pg_class'::regclass, 'pg_constraint'::regclass,
			'pg_statistic_ext'::regclass)
		UNION ALL
		-- columns of the table's row type
		SELECT d.classid, d.objid, d.objsubid, m.relation, m.number
		FROM member AS m JOIN pg_depend AS d
			ON d.refclassid = 'pg_type'::regclass AND d.refobjid IN (m.reltype, m.typarray)
		WHERE widens AND d.classid = 'pg_class'::regclass AND d.objsubid > 0
		UNION ALL
		SELECT d.classid, d.objid, d.objsubid, m.relation, m.number
		FROM member AS m JOIN pg_depend AS s
			ON s.refclassid = 'pg_class'::regclass AND s.refobjid = m.relation AND s.refobjsubid = m.number
			AND s.classid = 'pg_class'::regclass AND s.deptype = 'i'
		JOIN pg_class AS c ON c.oid = s.objid AND c.relkind = 'S'
		JOIN pg_depend AS d
			ON d.refclassid = 'pg_class'::regclass AND d.refobjid = s.objid AND d.deptype = 'n'
		WHERE identity
	)
	SELECT DISTINCT CASE
		WHEN r.oid IS NOT NULL THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
		WHEN g.attgenerated <> '' THEN pg_describe_object('pg_class'::regclass, a.adrelid, a.adnum)
		ELSE pg_describe_object(d.classid, d.objid, d.objsubid) END
	FROM dependent AS d
	LEFT JOIN pg_rewrite AS r
		ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid AND r.rulename = '_RETURN'
	LEFT JOIN pg_attrdef AS a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid
	LEFT JOIN pg_attribute AS g ON g.attrelid = a.adrelid AND g.attnum = a.adnum
	LEFT JOIN pg_trigger AS t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
	WHERE (a.adrelid, a.adnum) IS DISTINCT FROM (d.relation, d.number)
		AND coalesce(t.tgparentid, 0) = 0
	ORDER BY 1
$$;
COMMENT ON FUNCTION snowflake_internal.dependents(oid, name, boolean, boolean) IS
'part of snowflake_convert_column: objects that keep a column from being changed';

-- Refuses what PostgreSQL would refuse or could not do, before anything is changed.
CREATE FUNCTION snowflake_internal.check_type_change(root oid, "column" name) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	refusal CONSTANT text := format('the type of column "%s" of table %s cannot change to bigint',
		"column", snowflake_internal.qualified_name(root));
	members CONSTANT oid[] := ARRAY(SELECT m.relation FROM snowflake_internal.column_members(root, "column") AS m);
	culprit oid;
	constraint_name name;
	child oid;
	child_name name;
	origin oid;
	origin_name name;
BEGIN
	SELECT c.oid INTO culprit FROM pg_class AS c WHERE c.oid = ANY (members) AND c.reloftype <> 0;
	IF FOUND THEN
		RAISE EXCEPTION '%', refusal
			USING ERRCODE = 'wrong_object_type',
			DETAIL = format('%s is a typed table.', snowflake_internal.qualified_name(culprit)),
			HINT = 'Give it columns of its own with ALTER TABLE ... NOT OF first.';
	END IF;
	-- a partition key holds its columns by an internal dependency
	SELECT m.relation INTO culprit
	FROM snowflake_internal.column_members(root, "column") AS m JOIN pg_depend AS d
		ON d.classid = 'pg_class'::regclass AND d.objid = m.relation AND d.objsubid = m.number
		AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.relation AND d.refobjsubid = 0
		AND d.deptype = 'i';
	IF FOUND THEN
		RAISE EXCEPTION '%', refusal
			USING ERRCODE = 'feature_not_supported',
			DETAIL = format('It is part of the partition key of %s.', snowflake_internal.qualified_name(culprit)),
			HINT = 'Create a new partitioned table whose column is bigint, and move the rows.';
	END IF;
	SELECT m INTO culprit FROM unnest(members) AS m
	WHERE EXISTS (SELECT FROM snowflake_internal.column_roots(m, "column") AS r WHERE r <> root);
	IF FOUND THEN
		RAISE EXCEPTION '%', refusal
			USING ERRCODE = 'invalid_table_definition',
			DETAIL = format('%s inherits it from another table, too.', snowflake_internal.qualified_name(culprit)),
			HINT = 'End one of the inheritances with ALTER TABLE ... NO INHERIT first.';
	END IF;
	-- these constraints are there since PostgreSQL 18
	SELECT p.conrelid, p.conname, c.conrelid, c.conname INTO culprit, constraint_name, child, child_name
	FROM snowflake_internal.column_members(root, "column") AS m
	JOIN pg_constraint AS p ON p.conrelid = m.relation AND p.contype = 'n' AND m.number = p.conkey[1]
	JOIN pg_inherits AS i ON i.inhparent = m.relation
	JOIN snowflake_internal.column_members(root, "column") AS n ON n.relation = i.inhrelid
	JOIN pg_constraint AS c ON c.conrelid = n.relation AND c.contype = 'n' AND n.number = c.conkey[1]
	WHERE NOT p.connoinherit AND c.conislocal AND c.conname <> p.conname
	ORDER BY m.relation, n.relation LIMIT 1;
	IF FOUND THEN
		-- one that is inherited itself can be changed only where it comes from
		WITH RECURSIVE ancestor (relation) AS (
			SELECT culprit
			UNION
			SELECT i.inhparent FROM ancestor AS a JOIN pg_inherits AS i ON i.inhrelid = a.relation
		)
		SELECT p.conrelid, p.conname INTO origin, origin_name
		FROM ancestor AS a
		JOIN snowflake_internal.column_members(root, "column") AS m ON m.relation = a.relation
		JOIN pg_constraint AS p ON p.conrelid = a.relation AND p.contype = 'n' AND m.number = p.conkey[1]
		WHERE p.coninhcount = 0 AND NOT p.connoinherit;
		RAISE EXCEPTION '%', refusal
			USING ERRCODE = 'feature_not_supported',
			DETAIL = format('NOT NULL of the column is named "%s" in %s, and "%s" in %s that inherits it.',
				constraint_name, snowflake_internal.qualified_name(culprit), child_name, snowflake_internal.qualified_name(child)),
			HINT = format('Use ALTER TABLE %s ALTER CONSTRAINT %I NO INHERIT before, and the same with INHERIT afterwards.',
				snowflake_internal.qualified_name(origin), origin_name);
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_type_change(oid, name) IS
'part of snowflake_convert_column: refuses tables whose column cannot change its type';

-- Refuses a column, that to be converted or one that follows it, and its tables.
CREATE FUNCTION snowflake_internal.check_following(root oid, "column" name, type oid, is_origin boolean) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	table_name CONSTANT text := snowflake_internal.qualified_name(root);
	widens CONSTANT boolean := type IN ('smallint'::regtype, 'integer'::regtype);
	reason CONSTANT text := CASE WHEN NOT is_origin THEN
		format('Its column "%s" references the one to be converted and must follow it.', "column") END;
	dependents text;
BEGIN
	PERFORM snowflake_internal.check_table(m.relation, reason)
	FROM (SELECT m.relation FROM snowflake_internal.column_members(root, "column") AS m ORDER BY 1) AS m;
	IF NOT widens AND type <> 'bigint'::regtype THEN
		RAISE EXCEPTION 'column "%" of table % is of type %', "column", table_name, format_type(type, NULL)
			USING ERRCODE = 'datatype_mismatch',
			DETAIL = concat_ws(' ', 'Columns of type smallint, integer and bigint can be converted.', reason),
			HINT = 'Change the type first, a domain to the type below it.';
	END IF;
	PERFORM FROM pg_attribute AS a
	WHERE a.attrelid = root AND a.attname = "column" AND a.attgenerated <> '';
	IF FOUND THEN
		RAISE EXCEPTION 'column "%" of table % is generated', "column", table_name
			USING ERRCODE = 'feature_not_supported',
			DETAIL = concat_ws(' ', 'It has an expression in place of a default.', reason),
			HINT = 'Make it an ordinary column with ALTER COLUMN ... DROP EXPRESSION, or drop it, first.';
	END IF;
	IF widens THEN
		PERFORM snowflake_internal.check_type_change(root, "column");
	END IF;
	SELECT string_agg(d, E'\n') INTO dependents
	FROM snowflake_internal.dependents(root, "column", widens, is_origin) AS d;
	IF dependents IS NOT NULL THEN
		RAISE EXCEPTION 'column "%" of table % cannot be converted because other objects depend on it',
			"column", table_name
			USING ERRCODE = 'dependent_objects_still_exist', DETAIL = dependents,
			HINT = 'Drop them, convert the column, and create them again, all in one transaction.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_following(oid, name, oid, boolean) IS
'part of snowflake_convert_column: refuses a column that cannot be converted or cannot follow';

-- Refuses the column; with follow also those that change their type with it.
CREATE FUNCTION snowflake_internal.check_conversion(root oid, "column" name, follow boolean) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	PERFORM snowflake_internal.check_column(root, "column");
	PERFORM snowflake_internal.check_following(f.root, f."column", f.type, f.is_origin)
	FROM (SELECT f.*, (f.root, f."column") = (root, "column") AS is_origin
		FROM snowflake_internal.following_columns(root, "column") AS f
		ORDER BY is_origin DESC, f.root, f."column") AS f
	WHERE f.is_origin OR follow AND f.type <> 'bigint'::regtype;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_conversion(oid, name, boolean) IS
'part of snowflake_convert_column: refuses what cannot be converted';

-- The tables of these columns and of those that follow them, each once.  A table that references
-- is locked before the one that it references, as by an INSERT: it has fewer followers, and the
-- OID decides between equals.
CREATE FUNCTION snowflake_internal.tables_to_lock(roots oid[], columns name[], follow boolean) RETURNS text[]
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT array_agg(snowflake_internal.qualified_name(f.root) ORDER BY f.followers, f.root)
	FROM (SELECT f.root, max((SELECT count(*) FROM snowflake_internal.following_columns(f.root, f."column"))) AS followers
		FROM unnest(roots, columns) AS o (root, "column")
		CROSS JOIN LATERAL snowflake_internal.following_columns(o.root, o."column") AS f
		WHERE f.root = o.root OR follow AND f.type <> 'bigint'::regtype GROUP BY f.root) AS f
$$;
COMMENT ON FUNCTION snowflake_internal.tables_to_lock(oid[], name[], boolean) IS
'part of snowflake_convert_column: what is to be altered, in the order of locks';

CREATE FUNCTION snowflake_internal.check_isolation() RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
		-- the greatest value that an older snapshot sees need not be the greatest
		RAISE EXCEPTION 'columns are changed at isolation level read committed, not %',
			current_setting('transaction_isolation')
			USING ERRCODE = 'active_sql_transaction',
			HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_isolation() IS
'part of snowflake_convert_column: refuses transactions that do not see what was committed last';

-- Checks the column, or to revert it (not follow) all that go back together; and unless it is a dry
-- run locks all that is to be altered.  Locks are taken by name; what was found before may have
-- changed meanwhile, so it looks again until all that it finds is locked.  A locked table keeps its
-- name.
CREATE FUNCTION snowflake_internal.lock_and_check(root oid, "column" name, follow boolean, dry_run boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	locked text[] := '{}';
	tables text[];
	roots oid[] := ARRAY[root];
	columns name[] := ARRAY["column"];
BEGIN
	IF NOT dry_run THEN
		PERFORM snowflake_internal.check_isolation();
	END IF;
	LOOP
		PERFORM snowflake_internal.check_conversion(root, "column", follow);
		IF NOT follow THEN
			SELECT array_agg(r.root), array_agg(r."column") INTO roots, columns FROM snowflake_internal.reverted_columns(root, "column") AS r;
			PERFORM snowflake_internal.check_conversion(r.root, r."column", false)
			FROM unnest(roots, columns) AS r (root, "column") ORDER BY r.root;
		END IF;
		tables := snowflake_internal.tables_to_lock(roots, columns, follow);
		EXIT WHEN dry_run OR tables <@ locked;
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', array_to_string(tables, ', '));
		locked := tables;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_internal.lock_and_check(oid, name, boolean, boolean) IS
'part of snowflake_convert_column: refuses what cannot be converted, and locks what is to be altered';

-- Refuses what Citus would refuse for its tables.  expression is the new default; NULL: the
-- column goes back to a sequence.  Citus's catalogs need not be there.
CREATE FUNCTION snowflake_internal.check_citus(root oid, "column" name, expression text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	altered record;
	table_name text;
	refusal text;
	sequence oid;
BEGIN
	IF to_regclass('pg_catalog.pg_dist_partition') IS NULL OR to_regclass('pg_catalog.pg_dist_object') IS NULL THEN
		RETURN;
	END IF;
	FOR altered IN
		SELECT f.root, f."column", f.type <> 'bigint'::regtype AND expression IS NOT NULL AS widens,
			a.attidentity <> '' AS has_identity,
			coalesce(substring(d.partkey, ':varattno (\d+)')::integer = a.attnum, false) AS distributes,
			ARRAY(SELECT s.objid FROM pg_depend AS s JOIN pg_sequence AS q ON q.seqrelid = s.objid
				WHERE s.classid = 'pg_class'::regclass AND s.deptype = 'a'
					AND s.refclassid = 'pg_class'::regclass AND s.refobjid = f.root AND s.refobjsubid = a.attnum) AS owned,
			EXISTS (SELECT FROM pg_attrdef AS e JOIN pg_depend AS s ON s.classid = 'pg_attrdef'::regclass AND s.objid = e.oid
				JOIN pg_sequence AS q ON s.refclassid = 'pg_class'::regclass AND s.refobjid = q.seqrelid
				WHERE e.adrelid = f.root AND e.adnum = a.attnum) AS counts,
			expression IS NOT NULL AND snowflake_internal.named_sequence(f.root, f."column") IS NOT NULL AS shares
		FROM snowflake_internal.following_columns(root, "column") AS f
		JOIN pg_attribute AS a ON a.attrelid = f.root AND a.attname = f."column"
		JOIN pg_dist_partition AS d ON d.logicalrelid = f.root
		WHERE f.type <> 'bigint'::regtype AND expression IS NOT NULL
			OR f.root = root AND f."column" = "column" AND snowflake_internal.has_default(root, "column", expression) IS NOT TRUE
		ORDER BY f.root <> root, f.root, f."column"
	LOOP
		table_name := snowflake_internal.qualified_name(altered.root);
		refusal := format('Citus cannot alter column "%s" of table %s', altered."column", table_name);
		IF altered.distributes THEN
			RAISE EXCEPTION '%', refusal
				USING ERRCODE = 'feature_not_supported',
				DETAIL = 'The table is distributed by this column.',
				HINT = format('In one transaction, SELECT undistribute_table(%L, cascade_via_foreign_keys => true), %s, ' ||
					'SELECT create_distributed_table(%L, %L), and distribute the tables again that were undistributed with it.',
					table_name, CASE WHEN expression IS NULL THEN 'revert' ELSE 'convert' END, table_name, altered."column");
		ELSIF altered.has_identity THEN
			RAISE EXCEPTION '%', refusal
				USING ERRCODE = 'feature_not_supported',
				DETAIL = 'It is an identity column.',
				HINT = 'Create a table like it without the identity, distribute it, and move the rows.';
		ELSIF altered.widens AND (altered.owned <> '{}' OR altered.counts) OR altered.shares THEN
			RAISE EXCEPTION '%', refusal
				USING ERRCODE = 'feature_not_supported',
				DETAIL = CASE WHEN altered.shares THEN 'It has its values from a sequence that is not its own.'
					ELSE 'Its type is to change, and it has a sequence.' END,
				HINT = concat_ws(' ', 'First, in the same transaction:',
					CASE WHEN altered.counts THEN format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT;', table_name, altered."column") END,
					(SELECT format('DROP SEQUENCE %s;', string_agg(snowflake_internal.qualified_name(o), ', ' ORDER BY o))
					FROM unnest(altered.owned) AS o HAVING count(*) > 0));
		END IF;
	END LOOP;
	sequence := CASE WHEN expression IS NULL THEN snowflake_internal.former_sequence(root, "column") END;
	PERFORM FROM pg_dist_object AS o WHERE o.classid = 'pg_class'::regclass AND o.objid = sequence;
	IF FOUND THEN
		RAISE EXCEPTION 'Citus cannot alter sequence %', snowflake_internal.qualified_name(sequence)
			USING ERRCODE = 'feature_not_supported',
			DETAIL = 'It is on all servers of the cluster.',
			HINT = format('DROP SEQUENCE %s; a new one is made.', snowflake_internal.qualified_name(sequence));
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_internal.check_citus(oid, name, text) IS
'part of snowflake_convert_column: refuses what Citus would refuse';
