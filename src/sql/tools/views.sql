
--
-- Views, materialized views and rules on columns whose type changes, and the views on these: they are dropped and made
-- again, with all that they have, as the owner of the tables, who owns them, too: its code may give other meanings to
-- the names in their definitions.  What somebody has granted is granted as that role.
--

-- A row of what snowflake_convert_schema() returns; role is that which executes a statement.  A setting is one of the
-- session.
CREATE TYPE snowflake_tools.step AS (kind text, object text, content text, role oid);

-- A view (rule is NULL) or the rule of a table; depth is greater than that of all that it uses.
CREATE FUNCTION snowflake_tools.remade(p_members snowflake_tools.member[],
	OUT key bigint, OUT nr bigint, OUT relation oid, OUT rule oid, OUT depth integer) RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	WITH RECURSIVE remade (key, nr, relation, rule, depth) AS (
		SELECT m.key, m.nr, r.ev_class, CASE WHEN r.rulename <> '_RETURN' THEN r.oid END, 1
		FROM unnest(p_members) AS m
		JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = m.relation
			AND d.refobjsubid = m.number
			AND d.classid = 'pg_rewrite'::regclass
		JOIN pg_rewrite AS r ON r.oid = d.objid
		WHERE m.becomes IS NOT NULL
		UNION
		SELECT u.key, u.nr, r.ev_class, CASE WHEN r.rulename <> '_RETURN' THEN r.oid END, u.depth + 1
		FROM remade AS u
		JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = u.relation
			AND d.classid = 'pg_rewrite'::regclass
		JOIN pg_rewrite AS r ON r.oid = d.objid AND r.ev_class <> u.relation
		WHERE u.rule IS NULL
	)
	SELECT r.key, r.nr, r.relation, r.rule, max(r.depth)
	FROM remade AS r
	-- the rules of a view come and go with it
	WHERE r.rule IS NULL OR r.relation NOT IN (SELECT v.relation FROM remade AS v WHERE v.rule IS NULL)
	GROUP BY r.key, r.nr, r.relation, r.rule
$$;

-- What keeps one of these from being dropped and made again.
CREATE FUNCTION snowflake_tools.remade_obstacles(p_relations oid[], OUT relation oid, OUT obstacle text)
RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	WITH RECURSIVE remade AS (
		SELECT c.*, c.relkind IN ('v', 'm') AS is_view, pg_describe_object('pg_class'::regclass, c.oid, 0) AS object
		FROM pg_class AS c WHERE c.oid = ANY (p_relations)
	), filled (oid, object, source, is_read) AS (
		SELECT r.oid, r.object, r.oid, true FROM remade AS r WHERE r.relkind = 'm' AND r.relispopulated
		UNION
		-- also by way of views
		SELECT f.oid, f.object, c.oid, c.relkind = 'v'
		FROM filled AS f JOIN pg_rewrite AS w ON w.ev_class = f.source AND w.rulename = '_RETURN'
		JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
			AND d.refclassid = 'pg_class'::regclass
		JOIN pg_class AS c ON c.oid = d.refobjid AND c.relkind IN ('v', 'm')
		WHERE f.is_read
	)
	SELECT r.oid, format('%s, whose owner "%s" may not create in schema %s', r.object, pg_get_userbyid(r.relowner),
		CASE WHEN r.relnamespace = pg_my_temp_schema() THEN 'pg_temp of this session'
			ELSE r.relnamespace::regnamespace::text END)
	FROM remade AS r WHERE r.is_view AND snowflake_tools.creation_hint(r.relowner, r.relnamespace) IS NOT NULL
	UNION ALL
	SELECT r.oid, format('%s, whose owner "%s" may not create in tablespace "%s"', r.object,
		pg_get_userbyid(r.relowner), t.spcname)
	FROM remade AS r JOIN pg_tablespace AS t ON t.oid = r.reltablespace
	WHERE r.is_view AND NOT has_tablespace_privilege(r.relowner, t.oid, 'CREATE')
	UNION ALL
	SELECT f.oid, format('%s, which cannot be filled again while %s is not populated', f.object,
		pg_describe_object('pg_class'::regclass, c.oid, 0))
	FROM filled AS f JOIN pg_class AS c ON c.oid = f.source WHERE NOT c.relispopulated
	UNION ALL
	-- there since PostgreSQL 17
	SELECT r.oid, format('%s, whose owner "%s" may not refresh it', r.object, pg_get_userbyid(r.relowner))
	FROM remade AS r
	WHERE r.relkind = 'm' AND r.relispopulated AND CASE WHEN current_setting('server_version_num')::integer >= 170000
		THEN NOT has_table_privilege(r.relowner, r.oid, 'MAINTAIN') END
	UNION ALL
	SELECT r.oid, format('%s, which is temporary, of another session', r.object)
	FROM remade AS r WHERE pg_is_other_temp_schema(r.relnamespace)
	UNION ALL
	SELECT DISTINCT r.oid, format('%s, with a grant of "%s", as whom you may not act', r.object,
		pg_get_userbyid(g.grantor))
	FROM remade AS r
	CROSS JOIN LATERAL (SELECT r.relacl UNION ALL SELECT a.attacl FROM pg_attribute AS a
		WHERE a.attrelid = r.oid) AS l (acl)
	CROSS JOIN LATERAL aclexplode(l.acl) AS g
	WHERE r.is_view AND NOT snowflake_tools.can_become(g.grantor)
	UNION ALL
	SELECT r.oid, format('%s, which belongs to an extension', r.object)
	FROM remade AS r JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = r.oid AND d.deptype = 'e'
	WHERE r.is_view
	UNION ALL
	SELECT DISTINCT r.oid, format('%s, which has a security label', r.object)
	FROM remade AS r JOIN pg_seclabel AS l ON l.classoid = 'pg_class'::regclass AND l.objoid = r.oid WHERE r.is_view
	UNION ALL
	SELECT r.oid, format('%s, which %s uses', r.object, pg_describe_object(d.classid, d.objid, d.objsubid))
	FROM remade AS r JOIN pg_type AS t ON t.oid = r.reltype
	JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = r.oid
		OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray)
	LEFT JOIN pg_rewrite AS w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
	LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
	WHERE r.is_view AND coalesce(w.ev_class, c.oid, 0) <> ALL (p_relations)
		-- a sequence can belong to a column of a view
		AND (d.deptype = 'n' OR d.deptype = 'a' AND c.relkind = 'S')
$$;

-- The roles that PostgreSQL's default privileges give rights on what a role creates in a schema; NULL if there are
-- none.
CREATE FUNCTION snowflake_tools.default_grantees(p_maker oid, p_namespace oid, p_type "char") RETURNS text
LANGUAGE sql STABLE
AS $$
	SELECT string_agg(DISTINCT CASE p.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END, ', ')
	FROM pg_default_acl AS d CROSS JOIN LATERAL aclexplode(d.defaclacl) AS p
	LEFT JOIN pg_roles AS r ON r.oid = p.grantee
	WHERE d.defaclrole = p_maker AND d.defaclnamespace IN (0, p_namespace) AND d.defaclobjtype = p_type
		AND p.grantee <> p_maker
		AND (p.grantee = 0 OR r.oid IS NOT NULL)
$$;

-- The statements that give a view the privileges that it has, each with the role that executes it.
CREATE FUNCTION snowflake_tools.view_grants(p_view oid, OUT nr bigint, OUT role oid, OUT statement text)
RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	WITH view AS (
		SELECT c.*, snowflake_tools.qualified_name(c.oid) AS name FROM pg_class AS c WHERE c.oid = p_view
	), acl AS (
		SELECT g.grantor, g.grantee, g.is_grantable, g.privilege_type AS privilege, g.nr, 0 AS number
		FROM view AS v CROSS JOIN LATERAL aclexplode(v.relacl)
			WITH ORDINALITY AS g (grantor, grantee, privilege_type, is_grantable, nr)
		WHERE g.grantee <> v.relowner
		UNION ALL
		SELECT g.grantor, g.grantee, g.is_grantable, format('%s (%I)', g.privilege_type, a.attname), g.nr, a.attnum
		FROM pg_attribute AS a CROSS JOIN LATERAL aclexplode(a.attacl)
			WITH ORDINALITY AS g (grantor, grantee, privilege_type, is_grantable, nr)
		WHERE a.attrelid = p_view
	)
	SELECT 0, v.relowner, format('GRANT ALL ON %s TO %I;', v.name, pg_get_userbyid(v.relowner))
	FROM view AS v JOIN pg_default_acl AS d ON d.defaclrole = v.relowner AND d.defaclnamespace = 0
		AND d.defaclobjtype = 'r' AND NOT d.defaclacl @> (acldefault('r', v.relowner))[1]
	UNION ALL
	SELECT 1, v.relowner, format('REVOKE ALL ON %s FROM %s;', v.name, g.grantees)
	FROM view AS v, snowflake_tools.default_grantees(v.relowner, v.relnamespace, 'r') AS g (grantees)
	WHERE g.grantees IS NOT NULL
	UNION ALL
	SELECT 2, v.relowner, format('REVOKE %s ON %s FROM %I;', string_agg(d.privilege_type, ', '), v.name,
		pg_get_userbyid(v.relowner))
	FROM view AS v CROSS JOIN LATERAL aclexplode(acldefault('r', v.relowner)) AS d
	WHERE v.relacl IS NOT NULL AND NOT EXISTS (SELECT FROM aclexplode(v.relacl) AS g
		WHERE g.grantee = v.relowner AND g.privilege_type = d.privilege_type)
	GROUP BY v.relowner, v.name
	UNION ALL
	-- in the order in which they were granted; those of columns come after those of the view, which may allow them
	SELECT 2 + a.number::bigint * 100000 + min(a.nr), a.grantor, format('GRANT %s ON %s TO %s%s;',
		string_agg(a.privilege, ', ' ORDER BY a.privilege), v.name,
		CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
		CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
	FROM acl AS a, view AS v GROUP BY a.number, a.grantor, a.grantee, a.is_grantable, v.name
$$;

-- The statements that drop these, and the ones that make them again, which begin at place 3.  In place 3 and 4 they
-- are those of a search path with nothing but pg_catalog, as they name all else with its schema; what a materialized
-- view calls when it is filled may go by the path of the session.
CREATE FUNCTION snowflake_tools.view_steps(p_members snowflake_tools.member[], p_path text,
	OUT place integer, OUT step snowflake_tools.step) RETURNS SETOF record
LANGUAGE sql STABLE STRICT
SET datestyle = 'ISO' SET extra_float_digits = 3
AS $$
	WITH remade AS MATERIALIZED (
		SELECT r.relation, r.rule, max(r.depth) AS depth FROM snowflake_tools.remade(p_members) AS r
		GROUP BY r.relation, r.rule
	), view AS MATERIALIZED (
		SELECT c.*, r.depth, snowflake_tools.qualified_name(c.oid) AS name, c.relkind = 'm' AS is_filled,
			CASE c.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END AS kind
		FROM remade AS r JOIN pg_class AS c ON c.oid = r.relation WHERE r.rule IS NULL
	), rule AS MATERIALIZED (
		SELECT w.*, c.relowner, snowflake_tools.qualified_name(c.oid) AS name
		FROM pg_rewrite AS w JOIN pg_class AS c ON c.oid = w.ev_class
		WHERE w.rulename <> '_RETURN' AND (w.ev_class IN (SELECT v.oid FROM view AS v)
			OR w.oid IN (SELECT r.rule FROM remade AS r))
	), statement (place, depth, nr, role, object, text) AS (
		-- also those of views, which may use other views
		SELECT 1, 0, 0, r.relowner, r.name, format('DROP RULE %I ON %s;', r.rulename, r.name) FROM rule AS r
		UNION ALL
		SELECT 2, -v.depth, 0, v.relowner, v.name, format('DROP %s %s;', v.kind, v.name) FROM view AS v
		UNION ALL
		SELECT 3, 0, 0, NULL, '', 'SET LOCAL search_path = pg_catalog, pg_temp;' FROM remade HAVING count(*) > 0
		UNION ALL
		SELECT 3, v.depth, 0, v.relowner, v.name, concat_ws(' ', 'CREATE', v.kind, v.name,
			'USING ' || (SELECT quote_ident(a.amname) FROM pg_am AS a
				WHERE a.oid = v.relam AND a.amname <> current_setting('default_table_access_method')),
			'WITH (' || (SELECT string_agg(split_part(o, '=', 1) || '='
				|| quote_literal(substr(o, strpos(o, '=') + 1)), ', ')
				FROM unnest(v.reloptions) AS o) || ')',
			'TABLESPACE ' || (SELECT quote_ident(t.spcname) FROM pg_database AS d JOIN pg_tablespace AS t
				ON t.oid = coalesce(nullif(v.reltablespace, 0), d.dattablespace)
				WHERE d.datname = current_database() AND v.is_filled
					AND (v.reltablespace <> 0 OR current_setting('default_tablespace') <> '')),
			'AS' || E'\n' || rtrim(pg_get_viewdef(v.oid), ';'), CASE WHEN v.is_filled THEN 'WITH NO DATA' END) || ';'
		FROM view AS v
		UNION ALL
		-- for whoever runs it by hand
		SELECT 4, 0, 0, v.relowner, v.name, format('ALTER %s %s OWNER TO %I;', v.kind, v.name, o.name)
		FROM view AS v, pg_get_userbyid(v.relowner) AS o (name) WHERE o.name <> current_user
		UNION ALL
		SELECT 4, 0, 1, v.relowner, v.name, format('ALTER VIEW %s ALTER COLUMN %I SET DEFAULT %s;', v.name, a.attname,
			pg_get_expr(d.adbin, d.adrelid))
		FROM view AS v JOIN pg_attrdef AS d ON d.adrelid = v.oid JOIN pg_attribute AS a ON a.attrelid = v.oid
			AND a.attnum = d.adnum
		UNION ALL
		SELECT 4, 0, 2, v.relowner, v.name, concat('COMMENT ON ', CASE d.objsubid
			WHEN 0 THEN format('%s %s', v.kind, v.name)
			ELSE format('COLUMN %s.%I', v.name, a.attname) END, format(' IS %L;', d.description))
		FROM view AS v JOIN pg_description AS d ON d.classoid = 'pg_class'::regclass AND d.objoid = v.oid
		LEFT JOIN pg_attribute AS a ON a.attrelid = v.oid AND a.attnum = d.objsubid
		UNION ALL
		SELECT 4, 0, 3, v.relowner, v.name, concat_ws(E';\n', pg_get_triggerdef(t.oid),
			format('COMMENT ON TRIGGER %I ON %s IS ', t.tgname, v.name)
				|| quote_literal(obj_description(t.oid, 'pg_trigger'))) || ';'
		FROM view AS v JOIN pg_trigger AS t ON t.tgrelid = v.oid AND NOT t.tgisinternal
		UNION ALL
		SELECT 4, 0, 4, v.relowner, v.name, concat_ws(' ', format('ALTER MATERIALIZED VIEW %s ALTER COLUMN %I', v.name,
			a.attname), s.setting) || ';'
		FROM view AS v JOIN pg_attribute AS a ON a.attrelid = v.oid AND a.attnum > 0 AND NOT a.attisdropped
		-- newer minor releases give each column a pg_attver, which nobody can set
		CROSS JOIN LATERAL (SELECT 'SET (' || string_agg(o, ', ') || ')' FROM unnest(a.attoptions) AS o
			WHERE o NOT LIKE 'pg_attver=%') AS o (options)
		CROSS JOIN LATERAL (VALUES (CASE WHEN a.attstattarget >= 0 THEN 'SET STATISTICS ' || a.attstattarget END),
			(o.options)) AS s (setting)
		WHERE v.is_filled AND s.setting IS NOT NULL
		UNION ALL
		SELECT 4, 0, 5, v.relowner, v.name, pg_get_statisticsobjdef(s.oid) || ';'
		FROM view AS v JOIN pg_statistic_ext AS s ON s.stxrelid = v.oid
		UNION ALL
		SELECT 4, 0, 6, v.relowner, v.name, concat_ws(E';\n', pg_get_indexdef(i.indexrelid),
			CASE WHEN i.indisclustered THEN format('ALTER MATERIALIZED VIEW %s CLUSTER ON %I', v.name, c.relname) END,
			'COMMENT ON INDEX ' || snowflake_tools.qualified_name(c.oid) || ' IS '
				|| quote_literal(obj_description(c.oid, 'pg_class'))) || ';'
		FROM view AS v JOIN pg_index AS i ON i.indrelid = v.oid JOIN pg_class AS c ON c.oid = i.indexrelid
		UNION ALL
		SELECT 4, 0, 7, r.relowner, r.name, concat_ws(E'\n', pg_get_ruledef(r.oid),
			format('ALTER TABLE %s ', r.name) || CASE r.ev_enabled WHEN 'D' THEN 'DISABLE'
				WHEN 'R' THEN 'ENABLE REPLICA'
				WHEN 'A' THEN 'ENABLE ALWAYS' END || format(' RULE %I;', r.rulename),
			format('COMMENT ON RULE %I ON %s IS ', r.rulename, r.name)
				|| quote_literal(obj_description(r.oid, 'pg_rewrite')) || ';')
		FROM rule AS r
		UNION ALL
		SELECT 4, 0, 10 + g.nr, g.role, v.name, g.statement
		FROM view AS v CROSS JOIN LATERAL snowflake_tools.view_grants(v.oid) AS g
		UNION ALL
		SELECT 5, 0, 0, NULL, '', format('SELECT pg_catalog.set_config(''search_path'', %L, true);', p_path)
		FROM remade HAVING count(*) > 0
		UNION ALL
		SELECT 6, v.depth, 0, v.relowner, v.name, format('REFRESH MATERIALIZED VIEW %s;', v.name)
		FROM view AS v WHERE v.is_filled AND v.relispopulated
	)
	SELECT s.place, (CASE WHEN s.role IS NULL THEN 'setting' ELSE 'statement' END, s.object, s.text,
		s.role)::snowflake_tools.step
	FROM statement AS s ORDER BY s.place, s.depth, s.object COLLATE "C", s.nr, s.text COLLATE "C"
$$;

-- Statements that lock these, and change nothing; a query locks a view before what the view reads.
CREATE FUNCTION snowflake_tools.view_locks(p_members snowflake_tools.member[]) RETURNS snowflake_tools.step[]
LANGUAGE sql STABLE STRICT
AS $$
	SELECT ARRAY(SELECT ('statement', v.name, format('ALTER TABLE %s OWNER TO %I;', v.name,
		pg_get_userbyid(c.relowner)), c.relowner)::snowflake_tools.step
		FROM (SELECT r.relation, max(r.depth) AS depth FROM snowflake_tools.remade(p_members) AS r
			GROUP BY r.relation) AS r
		JOIN pg_class AS c ON c.oid = r.relation CROSS JOIN LATERAL snowflake_tools.qualified_name(c.oid) AS v (name)
		ORDER BY r.depth DESC, v.name)
$$;

-- What a relation is, told without its name: owner, privileges, what it uses, and what it has.  What it uses may be
-- another object of the same kind, schema, name and owner: of two functions, that for the new type.
CREATE FUNCTION snowflake_tools.relation_facts(p_relation oid) RETURNS text
LANGUAGE sql STABLE STRICT
AS $$
	SELECT jsonb_build_array(c.relkind, c.relowner, c.reloptions, obj_description(c.oid, 'pg_class'),
		ARRAY(SELECT a::text FROM unnest(coalesce(c.relacl, acldefault('r', c.relowner))) AS a ORDER BY 1),
		ARRAY(SELECT format('%s %s', a.attname, ARRAY(SELECT g::text FROM unnest(a.attacl) AS g ORDER BY 1))
			FROM pg_attribute AS a
			WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum),
		ARRAY(SELECT format('%s %s', t.tgname, t.tgfoid) FROM pg_trigger AS t
			WHERE t.tgrelid = c.oid AND NOT t.tgisinternal ORDER BY 1),
		ARRAY(SELECT i.relname FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid
			WHERE x.indrelid = c.oid ORDER BY 1),
		ARRAY(SELECT format('%s %s', r.rulename, r.ev_enabled) FROM pg_rewrite AS r
			WHERE r.ev_class = c.oid ORDER BY 1),
		ARRAY(SELECT DISTINCT format('%s %s %s %s %s', d.refclassid, u.namespace, u.name, u.owner, u.part)
			FROM (SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite AS r WHERE r.ev_class = c.oid
				UNION ALL SELECT 'pg_class'::regclass, x.indexrelid FROM pg_index AS x WHERE x.indrelid = c.oid
					AND c.relkind = 'm'
				UNION ALL SELECT 'pg_attrdef'::regclass, f.oid FROM pg_attrdef AS f WHERE f.adrelid = c.oid
					AND c.relkind = 'v') AS o (class, oid)
			JOIN pg_depend AS d ON d.classid = o.class AND d.objid = o.oid
			CROSS JOIN LATERAL (
				SELECT r.relnamespace, r.relname, r.relowner, concat_ws(' ', r.relkind, a.attname)
				FROM pg_class AS r LEFT JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum = d.refobjsubid
				WHERE d.refclassid = 'pg_class'::regclass AND r.oid = d.refobjid
				UNION ALL
				SELECT p.pronamespace, p.proname, p.proowner, p.prokind::text FROM pg_proc AS p
				WHERE d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
				UNION ALL
				SELECT p.oprnamespace, p.oprname, p.oprowner, '' FROM pg_operator AS p
				WHERE d.refclassid = 'pg_operator'::regclass AND p.oid = d.refobjid
				UNION ALL
				SELECT l.collnamespace, l.collname, l.collowner, '' FROM pg_collation AS l
				WHERE d.refclassid = 'pg_collation'::regclass AND l.oid = d.refobjid
				UNION ALL
				SELECT t.typnamespace, t.typname, t.typowner, '' FROM pg_type AS t
				WHERE d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
					AND snowflake_tools.id_type() NOT IN (t.oid, t.typelem)) AS u (namespace, name, owner, part)
			ORDER BY 1))::text
	FROM pg_class AS c WHERE c.oid = p_relation
$$;

-- A relation that is made again, by the schema that it is in.
CREATE TYPE snowflake_tools.remembered AS (namespace oid, name name, facts text);

-- Fails if one is not what it was: statements name relations, and somebody may have given a name to another relation
-- meanwhile, also code that they have run; or may have granted or revoked something.
CREATE FUNCTION snowflake_tools.check_remembered(p_remembered snowflake_tools.remembered[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
DECLARE
	v_relation CONSTANT text := (SELECT min(format('%I.%I', r.namespace::regnamespace, r.name))
		FROM unnest(p_remembered) AS r LEFT JOIN pg_class AS c ON c.relnamespace = r.namespace AND c.relname = r.name
		WHERE r.facts IS DISTINCT FROM snowflake_tools.relation_facts(c.oid));
BEGIN
	IF v_relation IS NOT NULL THEN
		RAISE EXCEPTION '% was changed while it was being re-created', v_relation
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Somebody has changed or renamed it, or a schema, '
				'or its definition would use functions, operators or types of others.',
			HINT = 'Nothing is changed. Try again.';
	END IF;
END
$$;
