
--
-- Converting existing columns: which columns belong together.
-- The checks run with the rights of the caller; tables are read and changed as their owner.
--
-- Functions that are called for each column are in PL/pgSQL, which keeps their plans; those in SQL are planned again
-- and again, which takes far longer than they do.
--
-- A column is named by the topmost table that has it and its name; the partitions
-- and children of that table, its members, have it too, at attribute numbers of
-- their own.
--
-- Name of a relation that means the same under every search_path.
CREATE FUNCTION snowflake_tools.qualified_name(namespace oid, name name) RETURNS text
LANGUAGE sql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT format('%I.%I', CASE WHEN n.oid = pg_my_temp_schema() THEN 'pg_temp' ELSE n.nspname END, name)
	FROM pg_namespace AS n WHERE n.oid = namespace
$$;

-- The same for one that exists.
CREATE FUNCTION snowflake_tools.qualified_name(relation oid) RETURNS text
LANGUAGE sql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT snowflake_tools.qualified_name(c.relnamespace, c.relname) FROM pg_class AS c WHERE c.oid = relation
$$;

-- The table and all that inherit the column from it.
CREATE FUNCTION snowflake_tools.column_members(p_root oid, p_column name, OUT relation oid, OUT number smallint)
RETURNS SETOF record
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
	RETURN QUERY
	WITH RECURSIVE member (relation) AS (
		SELECT p_root
		UNION
		SELECT i.inhrelid FROM member AS m JOIN pg_inherits AS i ON i.inhparent = m.relation
	)
	SELECT m.relation, a.attnum
	FROM member AS m
	JOIN pg_attribute AS a ON a.attrelid = m.relation AND a.attname = p_column AND a.attnum > 0;
END
$$;

-- The topmost tables that a column is inherited from, or its own.
CREATE FUNCTION snowflake_tools.column_roots(relation oid, "column" name) RETURNS SETOF oid
LANGUAGE sql STABLE STRICT
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

-- A column by the topmost table that has it, and the type that it is to get.  What handles several of them at once
-- names each by its number.
CREATE TYPE snowflake_tools.key AS (root oid, "column" name, type oid);

-- Ids of a key are stored in all of these: itself, and what references it by foreign keys, also by way of
-- others.  A constraint's copies for partitions (conparentid) say nothing new.
CREATE FUNCTION snowflake_tools.following_columns(p_keys snowflake_tools.key[],
	OUT key bigint, OUT root oid, OUT "column" name, OUT type oid) RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	WITH RECURSIVE following (key, root, "column") AS (
		SELECT k.nr, k.root, k."column" FROM unnest(p_keys) WITH ORDINALITY AS k (root, "column", type, nr)
		UNION
		SELECT f.key, r.root, a.attname
		FROM following AS f
		CROSS JOIN LATERAL snowflake_tools.column_members(f.root, f."column") AS m
		JOIN pg_constraint AS c ON c.confrelid = m.relation AND c.contype = 'f' AND c.conparentid = 0
		CROSS JOIN LATERAL unnest(c.conkey, c.confkey) AS k (referencing, referenced)
		JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.referencing
		CROSS JOIN LATERAL snowflake_tools.column_roots(c.conrelid, a.attname) AS r (root)
		WHERE k.referenced = m.number
	)
	SELECT f.key, f.root, f."column", a.atttypid
	FROM following AS f JOIN pg_attribute AS a ON a.attrelid = f.root AND a.attname = f."column"
$$;

-- The same of one.
CREATE FUNCTION snowflake_tools.following_columns(p_root oid, p_column name,
	OUT root oid, OUT "column" name, OUT type oid) RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	SELECT f.root, f."column", f.type
	FROM snowflake_tools.following_columns(ARRAY[(p_root, p_column, NULL)::snowflake_tools.key]) AS f
$$;

-- Whether NOT NULL holds for all rows: since PostgreSQL 18 it may be NOT VALID.
CREATE FUNCTION snowflake_tools.takes_no_null(p_relation oid, p_column name) RETURNS boolean
LANGUAGE sql STABLE STRICT
AS $$
	SELECT a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint AS k
		WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND k.conkey[1] = a.attnum AND NOT k.convalidated)
	FROM pg_attribute AS a WHERE a.attrelid = p_relation AND a.attname = p_column
$$;

--
-- Which sequence a column has its values from
--

-- Whether the default of a column issues ids.
CREATE FUNCTION snowflake_tools.is_converted(p_relation oid, p_column name) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_attribute AS a
		JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
			AND p.refclassid = 'pg_proc'::regclass AND p.refobjid IN (SELECT snowflake_tools.nextval_functions())
		WHERE a.attrelid = p_relation AND a.attname = p_column);
END
$$;

-- The sequence that the default names, in nextval() or instead_of(), unless the column owns it.
CREATE FUNCTION snowflake_tools.named_sequence(p_relation oid, p_column name) RETURNS oid
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
	RETURN (SELECT s.seqrelid
	FROM pg_attribute AS a
	JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
		AND p.refclassid = 'pg_class'::regclass
	JOIN pg_sequence AS s ON s.seqrelid = p.refobjid
	WHERE a.attrelid = p_relation AND a.attname = p_column
		AND NOT EXISTS (SELECT FROM pg_depend AS o WHERE o.classid = 'pg_class'::regclass AND o.objid = s.seqrelid
			AND o.refclassid = 'pg_class'::regclass AND o.refobjid = p_relation AND o.refobjsubid = a.attnum
				AND o.deptype = 'a')
	ORDER BY s.seqrelid LIMIT 1);
END
$$;

-- The sequences that a column owns, without that of its identity.
CREATE FUNCTION snowflake_tools.owned_sequences(p_root oid, p_column name) RETURNS SETOF oid
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
	RETURN QUERY
	SELECT s.seqrelid
	FROM pg_attribute AS a
	JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = p_root AND d.refobjsubid = a.attnum
		AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'
	JOIN pg_sequence AS s ON s.seqrelid = d.objid
	WHERE a.attrelid = p_root AND a.attname = p_column;
END
$$;

-- Whether others use a sequence, too: then it cannot be dropped.
CREATE FUNCTION snowflake_tools.used_elsewhere(p_sequence oid, p_root oid, p_column name) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM pg_depend AS p LEFT JOIN pg_attrdef AS d ON p.classid = 'pg_attrdef'::regclass
		AND d.oid = p.objid
		WHERE p.refclassid = 'pg_class'::regclass AND p.refobjid = p_sequence AND p.deptype = 'n'
			AND NOT EXISTS (SELECT FROM snowflake_tools.column_members(p_root, p_column) AS m
				WHERE (m.relation, m.number) = (d.adrelid, d.adnum)));
END
$$;

-- The sequence that a converted column goes back to; NULL: a new one.
CREATE FUNCTION snowflake_tools.former_sequence(root oid, "column" name) RETURNS oid
LANGUAGE sql STABLE STRICT
AS $$
	SELECT coalesce(snowflake_tools.named_sequence(root, "column"),
		(SELECT min(s) FROM snowflake_tools.owned_sequences(root, "column") AS s))
$$;

-- The columns that had their values from this sequence before they were converted, by their topmost tables;
-- and those that still have them from it, by the tables that have such a default.
CREATE FUNCTION snowflake_tools.sequence_users(sequence oid, OUT relation oid, OUT "column" name, OUT type oid,
	OUT converted boolean)
RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	WITH used AS (
		SELECT a.attrelid AS relation, a.attname AS "column", coalesce(nullif(t.typbasetype, 0), t.oid) AS type,
			snowflake_tools.is_converted(a.attrelid, a.attname) AS converted
		FROM (SELECT d.adrelid AS relation, d.adnum::integer AS number
			FROM pg_depend AS p JOIN pg_attrdef AS d ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
			WHERE p.refclassid = 'pg_class'::regclass AND p.refobjid = sequence
			UNION
			SELECT p.refobjid, p.refobjsubid
			FROM pg_depend AS p
			WHERE p.classid = 'pg_class'::regclass AND p.objid = sequence AND p.refclassid = 'pg_class'::regclass
				AND p.deptype = 'a'
				AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = p.refobjid AND a.attnum = p.refobjsubid
					AND snowflake_tools.is_converted(a.attrelid, a.attname))) AS u
		JOIN pg_attribute AS a ON a.attrelid = u.relation AND a.attnum = u.number
		JOIN pg_type AS t ON t.oid = a.atttypid
	)
	SELECT DISTINCT r.root, u."column", u.type, true
	FROM used AS u CROSS JOIN LATERAL snowflake_tools.column_roots(u.relation, u."column") AS r (root)
	WHERE u.converted AND snowflake_tools.former_sequence(r.root, u."column") = sequence
	UNION ALL
	SELECT u.relation, u."column", u.type, false FROM used AS u WHERE NOT u.converted
$$;

-- Columns that had their values from one sequence go back to it together: ids of one could be equal to
-- what the sequence then gives another.
CREATE FUNCTION snowflake_tools.reverted_columns(origin oid, origin_column name, OUT root oid, OUT "column" name)
RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	SELECT origin, origin_column
	UNION
	SELECT u.relation, u."column"
	FROM snowflake_tools.sequence_users(snowflake_tools.former_sequence(origin, origin_column)) AS u
	WHERE u.converted AND snowflake_tools.is_converted(origin, origin_column)
$$;

--
-- The new default, and where new ids come to lie
--

-- The expression of a default that issues ids, just as pg_get_expr() shows it.  A layout is
-- named by its preset or its canonical definition, so that it is the same however it was
-- written; neither has characters that need quoting.
CREATE FUNCTION snowflake_tools.default_expression(layout text) RETURNS text
LANGUAGE sql STABLE
AS $$
	SELECT format('%I.%I(%s)', n.nspname, p.proname, CASE WHEN layout IS NOT NULL THEN
		(SELECT format('%L::text', coalesce(l.name, l.definition)) FROM snowflake_internal.layout(layout) AS l) END)
	FROM snowflake_tools.nextval_functions() AS f (oid) JOIN pg_proc AS p ON p.oid = f.oid
		JOIN pg_namespace AS n ON n.oid = p.pronamespace
	WHERE p.proname = 'snowflake_next_id' AND p.pronargs = CASE WHEN layout IS NULL THEN 0 ELSE 1 END
$$;

-- What the column's own sequence was, or is.  What is as PostgreSQL makes it for a bigserial is left out.
CREATE FUNCTION snowflake_tools.describe_sequence(p_root oid, p_column name) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
	RETURN (SELECT jsonb_strip_nulls(jsonb_build_object('sequence', c.relname,
		'identity', CASE a.attidentity WHEN 'a' THEN 'always' WHEN 'd' THEN 'by default' END,
		'unused', CASE WHEN a.attidentity = '' AND NOT a.atthasdef THEN true END,
		'last', CASE WHEN n.up THEN pg_sequence_last_value(c.oid) END,
		'start', CASE WHEN n.up THEN nullif(s.seqstart, 1) END,
		'increment', CASE WHEN n.up THEN nullif(s.seqincrement, 1) END,
		'minimum', CASE WHEN n.up THEN nullif(s.seqmin, 1) END,
		'maximum', CASE WHEN n.up THEN nullif(s.seqmax, CASE s.seqtypid WHEN 'smallint'::regtype THEN 32767
			WHEN 'integer'::regtype THEN 2147483647 ELSE 9223372036854775807 END) END,
		'cache', nullif(s.seqcache, 1), 'cycle', nullif(s.seqcycle, false),
		'comment', obj_description(c.oid, 'pg_class'),
		'privileges', (SELECT jsonb_object_agg(g.role, g.privileges)
			FROM (SELECT coalesce(r.rolname, '') AS role,
					jsonb_agg(p.privilege_type || CASE WHEN p.is_grantable THEN ' WITH GRANT OPTION'
						ELSE '' END ORDER BY p.privilege_type) AS privileges
				FROM aclexplode(c.relacl) AS p LEFT JOIN pg_roles AS r ON r.oid = p.grantee
				WHERE p.grantee <> c.relowner AND (p.grantee = 0 OR r.oid IS NOT NULL) GROUP BY 1) AS g)))
	FROM pg_attribute AS a
	JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = p_root AND d.refobjsubid = a.attnum
		AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
	JOIN pg_class AS c ON c.oid = d.objid
	JOIN pg_sequence AS s ON s.seqrelid = c.oid
	CROSS JOIN LATERAL (SELECT s.seqincrement > 0 AS up) AS n
	WHERE a.attrelid = p_root AND a.attname = p_column);
END
$$;

-- The first argument of instead_of() in the default of a converted column, and whether the column owned the
-- sequence that it names.
CREATE FUNCTION snowflake_tools.kept_state(p_root oid, p_column name, OUT former jsonb, OUT owned boolean)
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
	SELECT replace(substring(e.text, $re$^snowflake_internal\.instead_of\('((?:[^']|'')*)'::jsonb, $re$), '''''',
		'''')::jsonb,
		e.text ~ $re$^snowflake_internal\.instead_of\('(?:[^']|'')*'::regclass, true, $re$
	INTO former, owned
	FROM pg_attribute AS a
	JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	CROSS JOIN LATERAL pg_get_expr(d.adbin, d.adrelid) AS e (text)
	WHERE a.attrelid = p_root AND a.attname = p_column AND snowflake_tools.is_converted(p_root, p_column);
END
$$;

-- The default, with what the column needs to go back.
CREATE FUNCTION snowflake_tools.new_default(p_root oid, p_column name, p_expression text) RETURNS text
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
	RETURN (SELECT CASE WHEN k.former IS NOT NULL THEN format('snowflake_internal.instead_of(%L::jsonb, %s)', k.former,
		p_expression)
		WHEN n.sequence IS NOT NULL THEN format('snowflake_internal.instead_of(%L::regclass, %s, %s)',
			snowflake_tools.qualified_name(n.sequence), CASE WHEN k.owned THEN 'true' ELSE 'false' END, p_expression)
		WHEN snowflake_tools.used_elsewhere(o.sequence, p_root, p_column)
			THEN format('snowflake_internal.instead_of(%L::regclass, true, %s)',
			snowflake_tools.qualified_name(o.sequence), p_expression)
		WHEN o.former IS NOT NULL THEN format('snowflake_internal.instead_of(%L::jsonb, %s)', o.former, p_expression)
		ELSE p_expression END
	FROM snowflake_tools.named_sequence(p_root, p_column) AS n (sequence)
	CROSS JOIN (SELECT (SELECT min(s) FROM snowflake_tools.owned_sequences(p_root, p_column) AS s),
		snowflake_tools.describe_sequence(p_root, p_column)) AS o (sequence, former)
	LEFT JOIN snowflake_tools.kept_state(p_root, p_column) AS k ON true);
END
$$;

-- Whether the column has this default, under either name, in all members of the hierarchy, and owns no sequence there.
CREATE FUNCTION snowflake_tools.has_default(p_root oid, p_column name, p_expression text) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
	RETURN (SELECT bool_and(coalesce(e.text = p_expression
			OR starts_with(e.text, 'snowflake_internal.instead_of(')
				AND right(e.text, length(p_expression) + 3) = format(', %s)', p_expression), false)
		AND NOT EXISTS (SELECT FROM snowflake_tools.owned_sequences(m.relation, p_column)))
	FROM snowflake_tools.column_members(p_root, p_column) AS m
	LEFT JOIN pg_attrdef AS d ON d.adrelid = m.relation AND d.adnum = m.number
	CROSS JOIN LATERAL replace(pg_get_expr(d.adbin, d.adrelid), '.snowflake_nextval(',
		'.snowflake_next_id(') AS e (text));
END
$$;

-- Whether a partition other than the default one takes rows with this id, by the first column of its bounds.
CREATE FUNCTION snowflake_tools.bound_takes(bound text, id bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT
AS $$
	SELECT EXISTS (SELECT FROM regexp_match(bound,
			$re$FROM \((?:MINVALUE|'?(-?\d+)'?)[,)].* TO \((?:MAXVALUE|'?(-?\d+)'?)[,)]$re$) AS r (ends)
		WHERE r.ends IS NOT NULL AND coalesce(r.ends[1]::bigint <= id, true) AND coalesce(id < r.ends[2]::bigint, true))
$$;

-- Whether a table is partitioned by ranges or lists of a column; NULL: not at all.
CREATE FUNCTION snowflake_tools.partitioned_by(relation oid, "column" name) RETURNS boolean
LANGUAGE sql STABLE STRICT
AS $$
	SELECT p.partattrs[0] = a.attnum AND p.partstrat IN ('r', 'l')
	FROM pg_partitioned_table AS p JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attname = "column"
	WHERE p.partrelid = relation
$$;

-- The partitions of a table, with their bounds (of those that only inherit from it, NULL).
CREATE FUNCTION snowflake_tools.bounds(relation oid, OUT partition oid, OUT bound text) RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	SELECT c.oid, pg_get_expr(c.relpartbound, c.oid)
	FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
	WHERE i.inhparent = relation
$$;

-- The tables in which new rows with this id may come to lie, and the default partition by which they come
-- there.  Only ranges and lists of the column, or ranges that begin with it (keyed), tell; by other keys each
-- partition may, and one that there is not yet.
CREATE FUNCTION snowflake_tools.takers(root oid, "column" name, id bigint, OUT relation oid, OUT by_default oid)
RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	WITH RECURSIVE taker (relation, by_default) AS (
		SELECT root, NULL::oid
		UNION ALL
		SELECT b.partition, coalesce(t.by_default, CASE WHEN k.keyed AND b.bound = 'DEFAULT' THEN b.partition END)
		FROM taker AS t
		CROSS JOIN LATERAL snowflake_tools.partitioned_by(t.relation, "column") AS k (keyed)
		CROSS JOIN LATERAL snowflake_tools.bounds(t.relation) AS b
		WHERE NOT k.keyed OR snowflake_tools.bound_takes(b.bound, id)
			OR b.bound = 'DEFAULT' AND NOT EXISTS (SELECT FROM snowflake_tools.bounds(t.relation) AS o
				WHERE snowflake_tools.bound_takes(o.bound, id))
	)
	SELECT t.relation, t.by_default
	FROM taker AS t
	CROSS JOIN LATERAL snowflake_tools.partitioned_by(t.relation, "column") AS k (keyed)
	WHERE k.keyed IS NULL OR NOT k.keyed AND NOT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = t.relation)
$$;

-- The tables whose partitions are chosen by ranges or lists of these values, or of what an expression makes of
-- them, but for those whose one partition takes all.
CREATE FUNCTION snowflake_tools.divided_tables(root oid, "column" name, OUT relation oid, OUT by_column name)
RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	SELECT m.relation, f."column"
	FROM snowflake_tools.following_columns(root, "column") AS f
	CROSS JOIN LATERAL snowflake_tools.column_members(f.root, f."column") AS m
	JOIN pg_partitioned_table AS p ON p.partrelid = m.relation AND p.partstrat IN ('r', 'l')
	-- a partition key holds the columns of its expressions, too, by an internal dependency
	WHERE (p.partattrs[0] = m.number
			OR p.partattrs[0] = 0 AND m.number <> ALL (p.partattrs::smallint[]) AND EXISTS (SELECT FROM pg_depend AS d
				WHERE d.classid = 'pg_class'::regclass AND d.objid = m.relation AND d.objsubid = m.number
					AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.relation AND d.refobjsubid = 0
						AND d.deptype = 'i'))
		AND NOT (SELECT count(*) = 1 AND bool_and(b.bound = 'DEFAULT' OR snowflake_tools.bound_takes(b.bound, 1)
			AND b.bound ~ $re$ TO \(MAXVALUE[,)]$re$)
			FROM snowflake_tools.bounds(m.relation) AS b)
$$;

-- Whether row security hides rows from the table's owner.
CREATE FUNCTION snowflake_tools.hides_rows(relation oid) RETURNS boolean
LANGUAGE sql STABLE
AS $$
	SELECT c.relrowsecurity AND c.relforcerowsecurity AND NOT (r.rolsuper OR r.rolbypassrls)
	FROM pg_class AS c JOIN pg_roles AS r ON r.oid = c.relowner WHERE c.oid = relation
$$;

-- Whether the caller has the rights of a role and may SET ROLE to it.
CREATE FUNCTION snowflake_tools.can_become(role oid) RETURNS boolean
LANGUAGE sql STABLE
AS $$
	SELECT pg_has_role(role, 'USAGE') AND pg_has_role(role,
		CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END)
$$;

-- What lets a role create a relation in a schema; NULL if it may.  Nothing temporary is made as another role than the
-- one that has logged in: see src/functions/owner.c.
CREATE FUNCTION snowflake_tools.creation_hint(p_role oid, p_schema oid) RETURNS text
LANGUAGE sql STABLE
AS $$
	SELECT CASE WHEN p_schema = pg_my_temp_schema()
		THEN format('Only a session in which "%s" has logged in can, with the right TEMPORARY on the database.',
			pg_get_userbyid(p_role))
		ELSE format('Use GRANT CREATE ON SCHEMA %s TO %I.', p_schema::regnamespace, pg_get_userbyid(p_role)) END
	WHERE NOT has_schema_privilege(p_role, p_schema, 'CREATE')
		OR p_schema = pg_my_temp_schema() AND p_role <> (SELECT a.usesysid FROM pg_stat_get_activity(pg_backend_pid()) AS a)
$$;

-- The greatest value in the whole hierarchy.  A policy that hides rows from the owner is an error.
CREATE FUNCTION snowflake_tools.greatest_value(root oid, "column" name) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog,
	pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off SET row_security = off
AS $$
BEGIN
	RETURN snowflake_tools.look_as_owner(root, format('SELECT to_jsonb(max(%I)) FROM %s', "column",
		snowflake_tools.qualified_name(root)))::bigint;
END
$$;

-- The name of a layout, or its definition; of the server's for NULL.
CREATE FUNCTION snowflake_tools.layout_label(layout text) RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT coalesce(l.name, l.definition)
	FROM snowflake_internal.layout(snowflake_internal.layout_definition(layout)) AS l
$$;

--
-- What changes together
--

-- The type snowflake_id, that of the owner and schema of snowflake_next_id(): the owner of the extension may add
-- types of his own to it.
CREATE FUNCTION snowflake_tools.id_type() RETURNS oid
LANGUAGE sql STABLE
AS $$
	SELECT t.oid FROM snowflake_tools.nextval_functions() AS f (oid) JOIN pg_proc AS p ON p.oid = f.oid
		JOIN pg_type AS t ON t.typnamespace = p.pronamespace AND t.typname = 'snowflake_id' AND t.typowner = p.proowner
	WHERE p.proname = 'snowflake_next_id' AND p.pronargs = 0
$$;

-- A table with a column that changes: key is the number of the key with which it changes, nr that of the column, 1 for
-- the key itself; relation is the table, or what inherits the column from it; reason says why another column changes;
-- becomes is its new type, NULL if that does not change.
CREATE TYPE snowflake_tools.member AS (key bigint, nr bigint, root oid, "column" name, type oid, follows boolean,
	becomes oid, root_name text, reason text, relation oid, number smallint);

-- The columns that change when these keys are converted, reverted (those that shared a sequence go back together) or
-- rekeyed.
CREATE FUNCTION snowflake_tools.members(p_keys snowflake_tools.key[], p_task text) RETURNS SETOF snowflake_tools.member
LANGUAGE sql STABLE STRICT
AS $$
	WITH key AS (
		SELECT k.* FROM unnest(p_keys) WITH ORDINALITY AS k (root, "column", type, nr)
	), id AS (
		SELECT snowflake_tools.id_type() AS type
	), found (key, root, "column", type, becomes, reverts) AS (
		-- what is a snowflake_id already stays one, until it is reverted
		SELECT f.key, f.root, f."column", f.type,
			CASE WHEN p_task = 'convert' AND f.type NOT IN (k.type, coalesce(i.type, k.type)) THEN k.type END, false
		FROM snowflake_tools.following_columns(p_keys) AS f JOIN key AS k ON k.nr = f.key CROSS JOIN id AS i
		WHERE p_task <> 'revert'
		UNION
		SELECT k.nr, r.root, r."column", a.atttypid, CASE WHEN a.atttypid = i.type THEN 'bigint'::regtype END, true
		FROM key AS k CROSS JOIN id AS i CROSS JOIN LATERAL snowflake_tools.reverted_columns(k.root, k."column") AS r
		JOIN pg_attribute AS a ON a.attrelid = r.root AND a.attname = r."column"
		WHERE p_task = 'revert'
		UNION
		SELECT k.nr, f.root, f."column", f.type, 'bigint'::regtype, false
		FROM key AS k CROSS JOIN id AS i CROSS JOIN LATERAL snowflake_tools.reverted_columns(k.root, k."column") AS r
		JOIN pg_attribute AS a ON a.attrelid = r.root AND a.attname = r."column" AND a.atttypid = i.type
		CROSS JOIN LATERAL snowflake_tools.following_columns(r.root, r."column") AS f
		WHERE p_task = 'revert' AND f.type = i.type AND (f.root, f."column") <> (r.root, r."column")
	), changed AS (
		SELECT DISTINCT ON (f.key, o.follows, f.root, f."column") f.*, o.follows,
			dense_rank() OVER (PARTITION BY f.key ORDER BY o.follows, f.root, f."column") AS nr
		FROM found AS f JOIN key AS k ON k.nr = f.key
		CROSS JOIN LATERAL (SELECT (f.root, f."column") <> (k.root, k."column")) AS o (follows)
		WHERE NOT o.follows OR p_task <> 'convert' OR f.becomes IS NOT NULL
		ORDER BY f.key, o.follows, f.root, f."column", f.reverts DESC
	)
	SELECT c.key, c.nr, c.root, c."column", c.type, c.follows, c.becomes, snowflake_tools.qualified_name(c.root),
		CASE WHEN c.follows AND NOT c.reverts THEN format('Its column "%s" references the one %s.', c."column",
			CASE p_task WHEN 'rekey' THEN 'that is to get new ids'
				ELSE format('to be %sed and must follow it', p_task) END) END,
		m.relation, m.number
	FROM changed AS c CROSS JOIN LATERAL snowflake_tools.column_members(c.root, c."column") AS m
$$;
