
--
-- Converting existing columns to ids of the extension, and back to a sequence.
-- Both return the statements; unless it is a dry run they execute them, too.
--

-- Refuses a layout with which the server cannot issue ids.
CREATE FUNCTION snowflake_tools.layout_refusals(layout text) RETURNS SETOF snowflake_tools.refusal
LANGUAGE sql STABLE STRICT
AS $$
	WITH given AS (
		SELECT l.definition, coalesce(l.name, l.definition) AS label, l.tick <= '1s'
			AND EXISTS (SELECT FROM snowflake_internal.layout_fields(l.definition) AS f
				WHERE f.field = 'worker') AS is_issuable
		FROM snowflake_internal.layout(layout) AS l
	)
	SELECT 'invalid_parameter_value', format('the layout "%s" is for parsing only', g.label),
		'Ids are issued with a worker field and a tick of at most 1s.',
		'See snowflake_layouts() for the presets and snowflake_layout() for the server''s layout.'
	FROM given AS g WHERE NOT g.is_issuable
	UNION ALL
	SELECT 'object_not_in_prerequisite_state', format('layout "%s" is not in use', g.label),
		'Layouts in use are fixed when the server starts.',
		format('Add "snowflake.extra_layouts = ''%s''" to postgresql.conf and restart the server.',
			concat_ws('; ', nullif(current_setting('snowflake.extra_layouts', true), ''), g.label))
	FROM given AS g
	WHERE g.is_issuable AND NOT EXISTS (SELECT FROM snowflake_internal.layouts_in_use() AS u
		WHERE u.definition = g.definition)
$$;

-- The statements that come before (place 1) and after (4, 5) those that change the type of these.  A foreign key that
-- references a partition itself (which has its own index for it) would keep the index of the whole table from being
-- rebuilt, so it is dropped and created again.
CREATE FUNCTION snowflake_tools.foreign_key_steps(p_members snowflake_tools.member[],
	OUT place integer, OUT table_name text, OUT statement text) RETURNS SETOF record
LANGUAGE sql STABLE STRICT
AS $$
	WITH reborn AS (
		SELECT DISTINCT c.oid, quote_ident(c.conname) AS name, pg_get_constraintdef(c.oid) AS definition,
			snowflake_tools.qualified_name(c.conrelid) AS table_name, obj_description(c.oid, 'pg_constraint') AS comment
		FROM unnest(p_members) AS m JOIN pg_class AS r ON r.oid = m.relation AND r.relispartition
		JOIN pg_constraint AS c ON c.confrelid = m.relation AND c.contype = 'f' AND c.conparentid = 0
		JOIN pg_index AS i ON i.indexrelid = c.conindid AND m.number = ANY (i.indkey)
		WHERE m.becomes IS NOT NULL
	)
	SELECT 1, r.table_name, format('ALTER TABLE %s DROP CONSTRAINT %s;', r.table_name, r.name) FROM reborn AS r
	UNION ALL
	SELECT 4, r.table_name, format('ALTER TABLE %s ADD CONSTRAINT %s %s;', r.table_name, r.name, r.definition)
	FROM reborn AS r
	UNION ALL
	SELECT 5, r.table_name, format('COMMENT ON CONSTRAINT %s ON %s IS %L;', r.name, r.table_name, r.comment)
	FROM reborn AS r WHERE r.comment IS NOT NULL
$$;

-- The statements of a conversion, in order: each table is altered, and so rewritten, once, and a table that is
-- referenced comes before those that reference it. PostgreSQL creates foreign keys again with either of their tables;
-- in between they compare integer with bigint or snowflake_id, which they can.
CREATE FUNCTION snowflake_tools.conversion_steps(p_keys snowflake_tools.key[], p_expression text, p_role oid)
RETURNS snowflake_tools.step[]
LANGUAGE sql STABLE STRICT
AS $$
	WITH origin AS MATERIALIZED (
		SELECT o.*, snowflake_tools.qualified_name(o.root) AS name FROM unnest(p_keys) AS o
	), changed AS MATERIALIZED (
		SELECT m.* FROM snowflake_tools.members(p_keys, 'convert') AS m WHERE m.becomes IS NOT NULL
	), identity AS (
		-- partitions share that of their table since PostgreSQL 17, children have their own; together with ALTER TYPE
		-- it is dropped only if an identity can have the type
		SELECT o.name, o."column", m.relation, m.relation <> o.root OR o.type <> 'bigint'::regtype AS alone
		FROM origin AS o CROSS JOIN LATERAL snowflake_tools.column_members(o.root, o."column") AS m
		JOIN pg_attribute AS a ON a.attrelid = m.relation AND a.attnum = m.number AND a.attidentity <> ''
		JOIN pg_class AS c ON c.oid = m.relation
		WHERE NOT c.relispartition OR current_setting('server_version_num')::integer < 170000
	), action (step, name, action) AS (
		SELECT 1, i.name, format('ALTER COLUMN %I DROP IDENTITY', i."column")
		FROM identity AS i WHERE NOT i.alone
		UNION ALL
		SELECT DISTINCT 2, c.root_name, format('ALTER COLUMN %I TYPE %s', c."column", format_type(c.becomes, NULL))
		FROM changed AS c
		UNION ALL
		SELECT 3, o.name, format('ALTER COLUMN %I SET DEFAULT %s', o."column",
			snowflake_tools.new_default(o.root, o."column", p_expression))
		FROM origin AS o WHERE NOT snowflake_tools.has_default(o.root, o."column", p_expression)
	), owned AS (
		SELECT o.name AS table_name, snowflake_tools.qualified_name(s.sequence) AS name,
			m.relation <> o.root OR snowflake_tools.used_elsewhere(s.sequence, o.root, o."column") AS stays
		FROM origin AS o CROSS JOIN LATERAL snowflake_tools.column_members(o.root, o."column") AS m
		CROSS JOIN LATERAL snowflake_tools.owned_sequences(m.relation, o."column") AS s (sequence)
	), step (place, table_name, statement) AS (
		SELECT f.place, f.table_name, f.statement
		FROM snowflake_tools.foreign_key_steps(ARRAY(SELECT c::snowflake_tools.member FROM changed AS c)) AS f
		UNION ALL
		SELECT 2, n.name, format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY;', n.name, i."column")
		FROM identity AS i, snowflake_tools.qualified_name(i.relation) AS n (name) WHERE i.alone
		UNION ALL
		SELECT 3, a.name, format('ALTER TABLE %s %s;', a.name, string_agg(a.action, ', ' ORDER BY a.step, a.action))
		FROM action AS a GROUP BY a.name
		UNION ALL
		SELECT 6, o.table_name, format(CASE WHEN o.stays THEN 'ALTER SEQUENCE %s OWNED BY NONE;'
			ELSE 'DROP SEQUENCE %s;' END, o.name)
		FROM owned AS o
	)
	SELECT array_agg(('statement', s.table_name, s.statement, p_role)::snowflake_tools.step
		ORDER BY s.place, array_position(l.tables, s.table_name) DESC, s.table_name, s.statement)
	FROM step AS s, snowflake_tools.tables_to_lock(p_keys, 'convert') AS l (tables)
$$;

--
-- Back to a sequence
--

-- A free name that is not one of those taken: the first choice, or one that is made as PostgreSQL makes it for serial.
CREATE FUNCTION snowflake_tools.free_name(root oid, "column" name, ending text, taken text[], choice text DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
DECLARE
	name text;
	class CONSTANT pg_class := c FROM pg_class AS c WHERE c.oid = root;
	stem text := class.relname || '_' || "column";
	candidate text;
	n integer := 0;
BEGIN
	-- names have at most 63 bytes
	WHILE octet_length(stem) > 58 - octet_length(ending) LOOP
		stem := left(stem, -1);
	END LOOP;
	LOOP
		candidate := coalesce(choice, stem || ending || coalesce(nullif(n, 0)::text, ''));
		name := snowflake_tools.qualified_name(class.relnamespace, candidate::name);
		PERFORM FROM pg_class AS c WHERE c.relnamespace = class.relnamespace AND c.relname = candidate;
		EXIT WHEN NOT FOUND AND name <> ALL (taken);
		n := n + (choice IS NULL)::integer;
		choice := NULL;
	END LOOP;
	RETURN name;
END
$$;

-- The first value at or after one that is in step with the start, as another server's may be in between.
CREATE FUNCTION snowflake_tools.next_in_step(value bigint, start bigint, increment bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$
	SELECT (value + mod(mod(start::numeric - value, increment) + increment, increment))::bigint
$$;

-- The statement that lets a sequence go on after the column's values.
-- The next value is greater than "last" and than all that the sequence has returned.  In a
-- transaction that is rolled back it stays where it was, unlike with setval().
CREATE FUNCTION snowflake_tools.alter_sequence(sequence oid, last bigint) RETURNS text
LANGUAGE sql STABLE
AS $$
	SELECT format('ALTER SEQUENCE %s', snowflake_tools.qualified_name(sequence)) ||
		CASE WHEN s.seqtypid <> 'bigint'::regtype THEN ' AS bigint' ELSE '' END ||
		CASE WHEN s.seqincrement < 0 THEN format(' INCREMENT BY 1 NO MINVALUE NO MAXVALUE START WITH %s', n.next)
			WHEN s.seqmax < n.next THEN ' NO MAXVALUE' ELSE '' END ||
		format(' RESTART WITH %s;', n.next)
	FROM pg_sequence AS s, snowflake_tools.next_in_step(greatest(last + 1,
		coalesce(pg_sequence_last_value(sequence) + 1, s.seqstart),
		CASE WHEN s.seqincrement < 0 THEN 1 END), s.seqstart, greatest(s.seqincrement, 1)) AS n (next)
	WHERE s.seqrelid = sequence
$$;

-- The options of a sequence that is made again, and where it goes on: after "last", and after all that it had returned.
CREATE FUNCTION snowflake_tools.former_options(former jsonb, last bigint, OUT options text, OUT next bigint)
LANGUAGE sql IMMUTABLE
AS $$
	SELECT concat_ws(' ', 'INCREMENT BY ' || nullif(f.increment, 1), 'MINVALUE ' || f.minimum,
			'MAXVALUE ' || CASE WHEN f.maximum >= s.next THEN f.maximum END,
			'START WITH ' || nullif(CASE WHEN former ? 'sequence' THEN f.start ELSE s.next END, coalesce(f.minimum, 1)),
			'CACHE ' || f.cache, CASE WHEN f.cycle THEN 'CYCLE' END), s.next
	FROM (SELECT coalesce((former->>'increment')::bigint, 1) AS increment, coalesce((former->>'start')::bigint,
		1) AS start,
			(former->>'minimum')::bigint AS minimum, (former->>'maximum')::bigint AS maximum,
				(former->>'last')::bigint AS last,
			(former->>'cache')::bigint AS cache, (former->>'cycle')::boolean AS cycle) AS f
	CROSS JOIN LATERAL snowflake_tools.next_in_step(greatest($2 + 1, coalesce(f.last + 1, f.start)), f.start,
		f.increment) AS s (next)
$$;

-- The statements that give a sequence the privileges that it had, and take back the default ones of its maker.
CREATE FUNCTION snowflake_tools.former_grants(former jsonb, maker oid, namespace oid, sequence_name text)
RETURNS SETOF text
LANGUAGE sql STABLE
AS $$
	SELECT format('REVOKE ALL ON SEQUENCE %s FROM %s;', sequence_name, g.grantees)
	FROM snowflake_tools.default_grantees(maker, namespace, 'S') AS g (grantees) WHERE g.grantees IS NOT NULL
	UNION ALL
	(SELECT format('GRANT %s ON SEQUENCE %s TO %s%s;', string_agg(x.words[1], ', ' ORDER BY x.words[1]), sequence_name,
		CASE g.role WHEN '' THEN 'PUBLIC' ELSE quote_ident(g.role) END, x.words[2])
	FROM jsonb_each(former->'privileges') AS g (role, privileges)
	CROSS JOIN LATERAL jsonb_array_elements_text(g.privileges) AS p (privilege)
	CROSS JOIN LATERAL regexp_match(p.privilege, '^(SELECT|UPDATE|USAGE)( WITH GRANT OPTION)?$') AS x (words)
	WHERE x.words IS NOT NULL AND (g.role = '' OR g.role IN (SELECT r.rolname FROM pg_roles AS r))
	GROUP BY g.role, x.words[2] ORDER BY g.role COLLATE "C", x.words[2])
$$;

-- The statement that lets roles that may insert use the sequence.
-- A role that may insert needs the sequence for it; for ids of the extension it needed nothing.
CREATE FUNCTION snowflake_tools.grant_sequence(root oid, "column" name, sequence oid, former jsonb,
	sequence_name text) RETURNS text
LANGUAGE sql STABLE
AS $$
	SELECT format('GRANT USAGE ON SEQUENCE %s TO %s;', sequence_name, string_agg(g.name, ', ' ORDER BY g.name))
	FROM (SELECT DISTINCT CASE p.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(p.grantee)) END AS name
		FROM snowflake_tools.column_members(root, "column") AS m
		JOIN pg_class AS c ON c.oid = m.relation
		CROSS JOIN LATERAL (SELECT c.relacl UNION ALL SELECT a.attacl FROM pg_attribute AS a
			WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL) AS l (acl)
		CROSS JOIN LATERAL aclexplode(l.acl) AS p
		WHERE p.privilege_type = 'INSERT' AND p.grantee <> c.relowner
			AND (sequence IS NULL OR NOT has_sequence_privilege(p.grantee, sequence, 'USAGE'))
			AND NOT coalesce(former->'privileges'->CASE p.grantee WHEN 0 THEN ''
				ELSE pg_get_userbyid(p.grantee) END ? 'USAGE', false)) AS g
	HAVING count(*) > 0
$$;

-- A column's own sequence, or its identity, that was dropped is made again; one that had none gets one.
CREATE FUNCTION snowflake_tools.remaking(root oid, "column" name, former jsonb, new_sequence text) RETURNS text[]
LANGUAGE sql
AS $$
	WITH facts AS (
		SELECT c.relowner AS owner, c.relnamespace AS namespace, snowflake_tools.qualified_name(root) AS name, o.*,
			upper(former->>'identity') AS identity, former ? 'sequence'
				AND coalesce((former->>'start')::bigint, 1) <> o.next AS goes_on,
			-- as PostgreSQL makes one for an unlogged table since 15
			CASE WHEN c.relpersistence = 'u' AND current_setting('server_version_num')::integer >= 150000 THEN 'UNLOGGED '
				ELSE '' END AS unlogged,
			snowflake_tools.takes_no_null(root, "column") AS not_null
		FROM pg_class AS c, snowflake_tools.former_options(former, snowflake_tools.greatest_value(root, "column")) AS o
		WHERE c.oid = root
	), step (place, nr, statement) AS (
		SELECT 1, 1, format('CREATE %sSEQUENCE %s;', f.unlogged, concat_ws(' ', new_sequence, 'AS bigint',
			nullif(f.options, '')))
		FROM facts AS f WHERE f.identity IS NULL
		UNION ALL
		-- for whoever runs it by hand
		SELECT 2, 1, format('ALTER SEQUENCE %s OWNER TO %I;', new_sequence, o.name)
		FROM facts AS f, pg_get_userbyid(f.owner) AS o (name) WHERE f.identity IS NULL AND o.name <> current_user
		UNION ALL
		SELECT 3, 1, format('ALTER SEQUENCE %s OWNED BY %s.%I;', new_sequence, f.name, "column") FROM facts AS f
		WHERE f.identity IS NULL
		UNION ALL
		SELECT 4, 1, format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT%s, '
			'ALTER COLUMN %I ADD GENERATED %s AS IDENTITY (%s);', f.name, "column",
			CASE WHEN f.not_null THEN '' ELSE format(', ALTER COLUMN %I SET NOT NULL', "column") END, "column",
			CASE f.identity WHEN 'ALWAYS' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, concat_ws(' ', 'SEQUENCE NAME',
				new_sequence, nullif(f.options, '')))
		FROM facts AS f WHERE f.identity IS NOT NULL
		UNION ALL
		SELECT 5, 1, format('ALTER SEQUENCE %s RESTART WITH %s;', new_sequence, f.next) FROM facts AS f WHERE f.goes_on
		UNION ALL
		SELECT 6, 1, format('COMMENT ON SEQUENCE %s IS %L;', new_sequence, former->>'comment') WHERE former ? 'comment'
		UNION ALL
		SELECT 7, g.nr, g.statement
		FROM facts AS f CROSS JOIN LATERAL snowflake_tools.former_grants(former, f.owner, f.namespace, new_sequence)
			WITH ORDINALITY AS g (statement, nr)
		WHERE former ? 'sequence'
		UNION ALL
		SELECT 8, 1, snowflake_tools.grant_sequence(root, "column", NULL, former, new_sequence)
		FROM facts AS f WHERE f.identity IS NULL AND NOT former ? 'unused'
		UNION ALL
		SELECT 9, 1, format('ALTER TABLE %s ALTER COLUMN %I %s;', f.name, "column",
			CASE WHEN former ? 'unused' THEN 'DROP DEFAULT'
				ELSE format('SET DEFAULT nextval(%L::regclass)', new_sequence) END)
		FROM facts AS f WHERE f.identity IS NULL
	)
	SELECT array_agg(s.statement ORDER BY s.place, s.nr) FROM step AS s WHERE s.statement IS NOT NULL
$$;

-- All columns that go back together to a sequence that is there.
CREATE FUNCTION snowflake_tools.reversion(root oid, "column" name, sequence oid) RETURNS text[]
LANGUAGE sql
AS $$
	WITH reverted AS MATERIALIZED (
		SELECT r.root, r."column", snowflake_tools.qualified_name(r.root) AS name,
			snowflake_tools.greatest_value(r.root, r."column") AS greatest,
			row_number() OVER (ORDER BY (r.root, r."column") <> ($1, $2), r.root, r."column") AS nr
		FROM snowflake_tools.reverted_columns(root, "column") AS r
	), sequence AS (
		SELECT c.oid, c.relnamespace, c.relowner, snowflake_tools.qualified_name(c.oid) AS name FROM pg_class AS c
		WHERE c.oid = sequence
	), owner AS (
		-- the column that owned it, whose table may have got another owner or schema meanwhile
		SELECT r.name, r."column", s.name AS old_name, c.relowner, c.relnamespace::regnamespace AS namespace,
			c.relowner <> s.relowner AS other_owner, c.relnamespace <> s.relnamespace AS other_schema
		FROM sequence AS s CROSS JOIN reverted AS r JOIN pg_class AS c ON c.oid = r.root
		CROSS JOIN LATERAL snowflake_tools.kept_state(r.root, r."column") AS k
		WHERE k.owned ORDER BY r.nr LIMIT 1
	), named AS (
		SELECT s.oid, s.name AS old_name, CASE WHEN o.other_schema THEN snowflake_tools.qualified_name(o.namespace,
			c.relname) ELSE s.name END AS name
		FROM sequence AS s JOIN pg_class AS c ON c.oid = s.oid LEFT JOIN owner AS o ON true
	), step (place, nr, statement) AS (
		SELECT 1, 0, snowflake_tools.alter_sequence(n.oid, (SELECT max(r.greatest) FROM reverted AS r)) FROM named AS n
		UNION ALL
		SELECT 2, 0, format('ALTER SEQUENCE %s SET SCHEMA %s;', o.old_name, o.namespace) FROM owner AS o
		WHERE o.other_schema
		UNION ALL
		SELECT 3, 0, format('ALTER SEQUENCE %s OWNER TO %I;', n.name, pg_get_userbyid(o.relowner))
		FROM named AS n, owner AS o WHERE o.other_owner
		UNION ALL
		SELECT 4, 0, format('ALTER SEQUENCE %s OWNED BY %s.%I;', n.name, o.name, o."column") FROM named AS n, owner AS o
		UNION ALL
		SELECT 5, 2 * r.nr, snowflake_tools.grant_sequence(r.root, r."column", n.oid, NULL, n.name)
		FROM named AS n, reverted AS r
		UNION ALL
		SELECT 5, 2 * r.nr + 1, format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT nextval(%L::regclass);', r.name,
			r."column", n.name)
		FROM named AS n, reverted AS r
	)
	SELECT array_agg(s.statement ORDER BY s.place, s.nr) FROM step AS s WHERE s.statement IS NOT NULL
$$;

-- The statements of a reversion, in order.
CREATE FUNCTION snowflake_tools.reversion_steps(p_keys snowflake_tools.key[], p_role oid) RETURNS snowflake_tools.step[]
LANGUAGE plpgsql
AS $$
DECLARE
	v_key snowflake_tools.key;
	v_sequence oid;
	v_former jsonb;
	v_new_sequence text;
	v_new_sequences text[] := '{}';
	v_steps snowflake_tools.step[];
	v_members CONSTANT snowflake_tools.member[] := ARRAY(SELECT m FROM snowflake_tools.members(p_keys, 'revert') AS m);
BEGIN
	-- a sequence is of bigint
	v_steps := ARRAY(SELECT ('statement', s.table_name, s.statement, p_role)::snowflake_tools.step
		FROM (SELECT 3 AS place, m.root_name AS table_name, format('ALTER TABLE %s %s;', m.root_name,
				string_agg(DISTINCT format('ALTER COLUMN %I TYPE bigint', m."column"), ', ')) AS statement
			FROM unnest(v_members) AS m WHERE m.becomes IS NOT NULL GROUP BY m.root_name
			UNION ALL
			SELECT f.place, f.table_name, f.statement FROM snowflake_tools.foreign_key_steps(v_members) AS f) AS s
		ORDER BY s.place, s.table_name COLLATE "C", s.statement);
	FOREACH v_key IN ARRAY p_keys LOOP
		v_sequence := snowflake_tools.former_sequence(v_key.root, v_key."column");
		IF v_sequence IS NULL THEN
			v_former := coalesce((SELECT k.former FROM snowflake_tools.kept_state(v_key.root, v_key."column") AS k),
				'{}');
			v_new_sequence := snowflake_tools.free_name(v_key.root, v_key."column", '_seq', v_new_sequences,
				v_former->>'sequence');
			v_new_sequences := v_new_sequences || v_new_sequence;
		END IF;
		v_steps := v_steps || ARRAY(SELECT ('statement', snowflake_tools.qualified_name(v_key.root), s,
			p_role)::snowflake_tools.step
			FROM unnest(CASE WHEN v_sequence IS NULL
				THEN snowflake_tools.remaking(v_key.root, v_key."column", v_former, v_new_sequence)
				ELSE snowflake_tools.reversion(v_key.root, v_key."column", v_sequence) END) AS s);
	END LOOP;
	RETURN v_steps;
END
$$;

--
-- Both
--

-- What a dry run for a schema begins with: how many keys and things there are, the refusals, and the rest.
CREATE FUNCTION snowflake_tools.report(p_task text, p_schema regnamespace, p_keys snowflake_tools.checked_key[],
	p_left snowflake_tools.step[], p_findings snowflake_tools.step[]) RETURNS snowflake_tools.step[]
LANGUAGE sql STABLE
AS $$
	SELECT (SELECT ARRAY[('summary', p_schema::text, format('keys to %s: %s, refused: %s', p_task,
				count(*) FILTER (WHERE k.refusals = '{}'), count(*) FILTER (WHERE k.refusals <> '{}')) ||
			coalesce(', left: ' || nullif(cardinality(p_left), 0), '') ||
			CASE p_task WHEN 'convert' THEN format('; findings: %s', cardinality(p_findings))
				ELSE '' END, NULL)::snowflake_tools.step]
		FROM unnest(p_keys) AS k) ||
		ARRAY(SELECT ('refusal', k.name, concat_ws(E'\n', r.message
			|| '.', r.detail, r.hint), NULL)::snowflake_tools.step
			FROM unnest(p_keys) AS k CROSS JOIN LATERAL unnest(k.refusals) AS r) ||
		p_left || p_findings
$$;

-- For a schema, or else for one column: checks, locks unless p_dry_run, and returns the rows.  Findings are looked for
-- before it locks, as that may take a while.  Compiling these queries would take much longer than they do.  The role of
-- a table's statements is its owner: all have one owner if anything is to be executed.  p_path is the session's.
CREATE FUNCTION snowflake_tools.prepare(p_task text, p_of_schema boolean, p_schema regnamespace, p_root oid,
	p_column name, p_layout text, p_type text, p_leave_out regclass[], p_path text, p_dry_run boolean,
	OUT steps snowflake_tools.step[], OUT remembered snowflake_tools.remembered[])
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off SET jit = off
AS $$
DECLARE
	v_expression CONSTANT text := snowflake_tools.default_expression(p_layout);
	v_type CONSTANT oid := CASE p_type WHEN 'bigint' THEN 'bigint'::regtype
		WHEN 'snowflake_id' THEN snowflake_tools.id_type() END;
	v_findings snowflake_tools.step[] := '{}';
	v_refusals snowflake_tools.refusal[];
	v_checked snowflake_tools.checked_key[];
	v_keys snowflake_tools.key[];
	v_members snowflake_tools.member[];
	v_owner oid;
BEGIN
	v_refusals :=
		ARRAY(SELECT r FROM snowflake_tools.schema_argument_refusals(p_schema, p_leave_out) AS r WHERE p_of_schema) ||
		ARRAY(SELECT r FROM snowflake_tools.layout_refusals(p_layout) AS r WHERE p_task = 'convert') ||
		ARRAY(SELECT ROW('invalid_parameter_value', format('a key cannot be of type "%s"', p_type),
			'Ids are bigint or snowflake_id.',
			'Give type => ''bigint'' or type => ''snowflake_id''.')::snowflake_tools.refusal WHERE v_type IS NULL) ||
		ARRAY(SELECT ROW('object_not_in_prerequisite_state', format('operator %s is for the type snowflake_id',
			o.oid::regoperator), 'It would be called in place of the one for bigint, by whoever compares ids.',
			'Drop it, or give type => ''bigint''.')::snowflake_tools.refusal
			FROM pg_operator AS o WHERE v_type <> 'bigint'::regtype AND v_type IN (o.oprleft, o.oprright)
			ORDER BY o.oid);
	PERFORM snowflake_tools.refuse(v_refusals);
	IF p_task = 'convert' THEN
		v_keys := CASE WHEN p_of_schema THEN snowflake_tools.schema_keys(p_schema, p_task, v_type, p_leave_out)
			WHEN snowflake_tools.has_default(p_root, p_column, v_expression) THEN '{}'
			ELSE ARRAY[(p_root, p_column, v_type)::snowflake_tools.key] END;
		v_findings := snowflake_tools.conversion_findings(v_keys, p_layout);
	END IF;
	v_checked := snowflake_tools.locked_keys(p_schema, ARRAY[(p_root, p_column, v_type)::snowflake_tools.key], p_task,
		p_layout, p_leave_out, p_dry_run);
	v_keys := ARRAY(SELECT (k.root, k."column", v_type)::snowflake_tools.key FROM unnest(v_checked) AS k
		WHERE k.refusals = '{}');
	v_members := ARRAY(SELECT m FROM snowflake_tools.members(v_keys, p_task) AS m);
	IF v_keys <> '{}' THEN
		SELECT c.relowner INTO STRICT v_owner FROM pg_class AS c WHERE c.oid = v_keys[1].root;
	END IF;
	remembered := ARRAY(SELECT (c.relnamespace, c.relname,
			snowflake_tools.relation_facts(c.oid))::snowflake_tools.remembered
		FROM pg_class AS c WHERE c.oid IN (SELECT r.relation FROM snowflake_tools.remade(v_members) AS r));
	steps := CASE WHEN p_of_schema AND p_dry_run THEN snowflake_tools.report(p_task, p_schema, v_checked,
			ARRAY(SELECT o FROM snowflake_tools.other_keys(p_schema, p_leave_out) AS o
				WHERE p_task = 'convert'), v_findings)
			ELSE v_findings END ||
		ARRAY(SELECT v.step FROM snowflake_tools.view_steps(v_members, p_path) AS v WHERE v.place < 3) ||
		CASE p_task WHEN 'convert' THEN snowflake_tools.conversion_steps(v_keys, v_expression, v_owner)
			ELSE snowflake_tools.reversion_steps(v_keys, v_owner) END ||
		ARRAY(SELECT v.step FROM snowflake_tools.view_steps(v_members, p_path) AS v WHERE v.place >= 3);
END
$$;

-- Executes the statements, each as its role, with the search path of the session, as if by hand: the functions of
-- indexes and CHECK constraints may go by it.  So nothing else is done here and in the four that follow.  The literals
-- of the statements are those of standard_conforming_strings.
CREATE FUNCTION snowflake_tools.carry_out(p_steps snowflake_tools.step[],
	p_remembered snowflake_tools.remembered[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET standard_conforming_strings = on
AS $$
DECLARE
	v_step snowflake_tools.step;
BEGIN
	PERFORM snowflake_tools.check_remembered(p_remembered);
	FOREACH v_step IN ARRAY p_steps LOOP
		IF v_step.kind OPERATOR(pg_catalog.=) 'setting' THEN
			EXECUTE v_step.content;
		ELSIF v_step.kind OPERATOR(pg_catalog.=) 'statement' THEN
			-- before a materialized view calls what it uses
			IF pg_catalog.starts_with(v_step.content, 'REFRESH ') THEN
				PERFORM snowflake_tools.check_remembered(p_remembered);
			END IF;
			PERFORM snowflake_tools.execute_as(v_step.role, v_step.content);
		END IF;
	END LOOP;
	PERFORM snowflake_tools.check_remembered(p_remembered);
END
$$;

CREATE FUNCTION snowflake_convert_column("table" regclass, "column" name, layout text DEFAULT NULL,
	dry_run boolean DEFAULT true, type text DEFAULT 'bigint') RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	prepared pg_catalog.record;
	step snowflake_tools.step;
BEGIN
	layout := (snowflake_internal.layout(layout)).definition;
	prepared := snowflake_tools.prepare('convert', false, NULL, "table", "column", layout, type, '{}',
		pg_catalog.current_setting('search_path'), dry_run IS NOT FALSE);
	FOREACH step IN ARRAY prepared.steps LOOP
		IF step.kind OPERATOR(pg_catalog.=) 'finding' THEN
			RAISE NOTICE '%: %', step.object, step.content;
		ELSE
			RETURN NEXT step.content;
		END IF;
	END LOOP;
	IF dry_run IS FALSE THEN
		PERFORM snowflake_tools.carry_out(prepared.steps, prepared.remembered);
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_convert_column(regclass, name, text, boolean, text) IS
'makes an integer column, with all that reference it, bigint with ids as default; returns the statements, and '
'executes them unless dry_run; a NOTICE tells of each thing that may break later';

CREATE FUNCTION snowflake_convert_schema(schema regnamespace, layout text DEFAULT NULL,
	leave_out regclass[] DEFAULT '{}', dry_run boolean DEFAULT true, type text DEFAULT 'bigint',
	OUT kind text, OUT object text, OUT content text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	prepared pg_catalog.record;
BEGIN
	layout := (snowflake_internal.layout(layout)).definition;
	prepared := snowflake_tools.prepare('convert', true, schema, NULL, NULL, layout, type, leave_out,
		pg_catalog.current_setting('search_path'), dry_run IS NOT FALSE);
	RETURN QUERY SELECT s.kind, s.object, s.content FROM pg_catalog.unnest(prepared.steps) AS s;
	IF dry_run IS FALSE THEN
		PERFORM snowflake_tools.carry_out(prepared.steps, prepared.remembered);
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_convert_schema(regnamespace, text, regclass[], boolean, text) IS
'converts all serial and identity keys of a schema, as snowflake_convert_column() does each; returns the '
'statements, in a dry run why others are refused, and what may break later';

CREATE FUNCTION snowflake_revert_column("table" regclass, "column" name, dry_run boolean DEFAULT true)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	prepared pg_catalog.record;
BEGIN
	prepared := snowflake_tools.prepare('revert', false, NULL, "table", "column", NULL, 'bigint', '{}',
		pg_catalog.current_setting('search_path'), dry_run IS NOT FALSE);
	RETURN QUERY SELECT s.content FROM pg_catalog.unnest(prepared.steps) AS s;
	IF dry_run IS FALSE THEN
		PERFORM snowflake_tools.carry_out(prepared.steps, prepared.remembered);
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_revert_column(regclass, name, boolean) IS
'lets a converted column take its values from a sequence again; it stays bigint; returns the statements, and '
'executes them unless dry_run';

CREATE FUNCTION snowflake_revert_schema(schema regnamespace, dry_run boolean DEFAULT true,
	OUT kind text, OUT object text, OUT content text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	prepared pg_catalog.record;
BEGIN
	prepared := snowflake_tools.prepare('revert', true, schema, NULL, NULL, NULL, 'bigint', '{}',
		pg_catalog.current_setting('search_path'), dry_run IS NOT FALSE);
	RETURN QUERY SELECT s.kind, s.object, s.content FROM pg_catalog.unnest(prepared.steps) AS s;
	IF dry_run IS FALSE THEN
		PERFORM snowflake_tools.carry_out(prepared.steps, prepared.remembered);
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_revert_schema(regnamespace, boolean) IS
'lets all converted columns of a schema take their values from sequences again, as snowflake_revert_column() '
'does each; returns the statements, and in a dry run why others cannot';
