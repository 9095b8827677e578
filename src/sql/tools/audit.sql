
--
-- Whether the ids of a column can have been issued by the leases on record
--

-- That the table has these columns, of these types or domains over them, and that the caller may read them.
CREATE FUNCTION snowflake_tools.check_columns(p_table regclass, p_columns name[], p_types regtype[], p_hint text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
	v_kind CONSTANT "char" := (SELECT c.relkind FROM pg_class AS c WHERE c.oid = p_table);
	v_column record;
BEGIN
	IF v_kind NOT IN ('r', 'p', 'v', 'm', 'f') THEN
		RAISE EXCEPTION '"%" is not a table or view', p_table
			USING ERRCODE = 'wrong_object_type', HINT = p_hint;
	END IF;
	FOR v_column IN
		-- a domain has the output function of the type that it is made of, and that of snowflake_id does what bigint's does
		SELECT w.name, w.type, a.attnum, format_type(a.atttypid, a.atttypmod) AS found, o.prosrc = b.prosrc AS fits
		FROM unnest(p_columns, p_types) WITH ORDINALITY AS w (name, type, nr)
			JOIN pg_type AS wt ON wt.oid = w.type JOIN pg_proc AS b ON b.oid = wt.typoutput
			LEFT JOIN pg_attribute AS a ON a.attrelid = p_table AND a.attname = w.name AND NOT a.attisdropped
			LEFT JOIN pg_type AS t ON t.oid = a.atttypid LEFT JOIN pg_proc AS o ON o.oid = t.typoutput
		ORDER BY w.nr
	LOOP
		IF v_column.attnum IS NULL THEN
			RAISE EXCEPTION 'table "%" has no column "%"', p_table, v_column.name
				USING ERRCODE = 'undefined_column', HINT = p_hint;
		ELSIF NOT v_column.fits THEN
			RAISE EXCEPTION 'column "%" of table "%" is of type %, not %', v_column.name, p_table, v_column.found, v_column.type
				USING ERRCODE = 'datatype_mismatch', HINT = p_hint;
		ELSIF NOT has_column_privilege(p_table, v_column.attnum, 'SELECT') THEN
			RAISE EXCEPTION 'you may not read column "%" of table "%"', v_column.name, p_table
				USING ERRCODE = 'insufficient_privilege', DETAIL = 'The audit reads it with your rights.',
				HINT = format('Let its owner say: GRANT SELECT (%s) ON %s TO %I.',
					(SELECT string_agg(quote_ident(c), ', ') FROM unnest(p_columns) AS c), p_table, current_user);
		END IF;
	END LOOP;
END
$$;

-- For a node number the ticks in which its leases allow ids: of each lease those that begin at or after its start, not
-- before the one in which its node was started, and end at or before its end.
CREATE TYPE snowflake_tools.leased_number AS (node_number bigint, ticks int8multirange, first bigint, past bigint);

-- All leases of a table with the columns of snowflake.leases, read as the caller; NULL if there are none.  One whose
-- start or end is not known allows nothing.
CREATE FUNCTION snowflake_tools.leased_numbers(p_leases regclass, p_layout text)
RETURNS snowflake_tools.leased_number[]
LANGUAGE plpgsql STABLE STRICT
AS $$
DECLARE
	v_leased snowflake_tools.leased_number[];
BEGIN
	PERFORM snowflake_tools.check_columns(p_leases, '{node_number, launched_at, starts_at, leased_until}',
		'{bigint, timestamptz, timestamptz, timestamptz}',
		'Give the view snowflake.leases, a foreign table of it, or a table or view with these columns: '
		'node_number (bigint), launched_at, starts_at and leased_until (timestamptz).');
	EXECUTE format($query$
		SELECT array_agg(n::snowflake_tools.leased_number)
		FROM (SELECT c.node_number, range_agg(int8range(t.first, greatest(t.first, t.past))), min(t.first), max(t.past)
			FROM snowflake_internal.layout($1) AS l,
				LATERAL (SELECT i.node_number::bigint,
						least(greatest(i.launched_at::timestamptz, l.epoch), l.last_id_time) AS launched_at,
						least(greatest(i.starts_at::timestamptz, l.epoch), l.last_id_time) AS starts_at,
						least(greatest(i.leased_until::timestamptz, l.epoch), l.last_id_time) AS leased_until
					FROM %s AS i
					WHERE isfinite(i.starts_at::timestamptz) AND isfinite(i.leased_until::timestamptz)) AS c,
				LATERAL (SELECT snowflake_tools.min_id(c.starts_at, $1) AS id) AS s,
				LATERAL (SELECT
					greatest(snowflake_tools.min_id(c.launched_at, $1) >> $2,
						(s.id >> $2) + (snowflake_tools.id_time(s.id, $1) < c.starts_at)::integer),
					snowflake_tools.min_id(c.leased_until, $1) >> $2) AS t (first, past)
			GROUP BY c.node_number) AS n
		$query$, p_leases) INTO v_leased
	USING p_layout, (SELECT f.shift FROM snowflake_internal.layout_fields(p_layout) AS f WHERE f.field = 'timestamp');
	RETURN v_leased;
END
$$;

-- Whether an index that is always checked keeps the column unique, over partitions too.
CREATE FUNCTION snowflake_tools.known_unique(p_table regclass, p_column name) RETURNS boolean
LANGUAGE sql STABLE STRICT
AS $$
	SELECT EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
			WHERE i.indrelid = p_table AND a.attname = p_column AND i.indisunique AND i.indisvalid AND i.indimmediate
				AND i.indpred IS NULL AND i.indnkeyatts = 1)
		-- an index of a partitioned table is over all of it, one of a parent is not
		AND ((SELECT c.relkind FROM pg_class AS c WHERE c.oid = p_table) = 'p'
			OR NOT EXISTS (SELECT FROM pg_inherits AS h WHERE h.inhparent = p_table))
$$;

-- Ids that occur more than once; count is NULL if there are none.
CREATE FUNCTION snowflake_tools.audit_duplicates(p_table regclass, p_column name,
	OUT count bigint, OUT id bigint, OUT detail text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
	IF NOT snowflake_tools.known_unique(p_table, p_column) THEN
		SELECT r.count, r.id, format('%s rows too many; the id shown is there %s times, in %s', r.surplus, r.times, r.places)
		INTO count, id, detail
		FROM jsonb_to_record(snowflake_tools.look_as_owner(p_table, format($query$
			WITH found AS (
				SELECT t.%1$I::bigint AS id, count(*) AS n FROM %2$s AS t WHERE t.%1$I IS NOT NULL
				GROUP BY 1 HAVING count(*) > 1
			), summed AS (
				SELECT count(*) AS count, sum(f.n - 1) AS surplus, min(f.id) AS id FROM found AS f
			), shown AS (
				SELECT s.*, count(*) AS times, %3$s AS places FROM summed AS s JOIN %2$s AS t ON t.%1$I = s.id
				GROUP BY s.count, s.surplus, s.id
			)
			SELECT to_jsonb(s) FROM shown AS s
			$query$, p_column, p_table,
			-- a view's rows come from no one table; tableoid takes the right on the whole table
			CASE WHEN (SELECT c.relkind FROM pg_class AS c WHERE c.oid = p_table) <> 'v'
					AND has_table_privilege(p_table, 'SELECT')
				THEN 'array_to_string((array_agg(DISTINCT t.tableoid::regclass::text))[:10], '', '')'
				ELSE quote_literal(p_table) || '::text' END)))
			AS r (count bigint, surplus bigint, id bigint, times bigint, places text);
	END IF;
END
$$;

-- The ids that no lease on record allows, by finding and, of findings about leases, by node number: the ten with the
-- most ids, all others together.  p_leased is NULL if leases are not checked.
--
-- The function is stable: the table is read by the snapshot of the query that calls snowflake_audit(), and the leases
-- by the same one or, in another database, by a later one.  So the leases of all ids that are read are there.
CREATE FUNCTION snowflake_tools.audit_ids(p_table regclass, p_column name, p_layout text, p_max_ahead interval,
	p_leased snowflake_tools.leased_number[],
	OUT finding text, OUT node_number bigint, OUT count bigint, OUT others bigint, OUT lowest bigint, OUT highest bigint)
RETURNS SETOF record
LANGUAGE plpgsql STABLE
AS $$
DECLARE
	v_layout CONSTANT record := snowflake_internal.layout(p_layout);
	v_latest CONSTANT timestamptz :=
		least(greatest(clock_timestamp() + p_max_ahead, v_layout.epoch), v_layout.last_id_time);
	v_shift integer;		-- of the timestamp
	v_number text;			-- the node number, as an expression over an id
	v_reserved bigint;		-- the greatest number, of ids that are backfilled
BEGIN
	SELECT max(f.shift) FILTER (WHERE f.field = 'timestamp'),
		coalesce(string_agg(format('((i.id >> %s & %s) << %s)', f.shift, (1::bigint << f.bits) - 1, f.node_shift), ' | ')
			FILTER (WHERE f.node_shift IS NOT NULL), 'NULL::bigint'),
		(1::bigint << sum(f.bits) FILTER (WHERE f.node_shift IS NOT NULL)::integer) - 1
	INTO v_shift, v_number, v_reserved
	FROM snowflake_internal.layout_fields(p_layout) AS f;
	RETURN QUERY SELECT r.* FROM jsonb_to_recordset(snowflake_tools.look_as_owner(p_table, format($query$
		WITH found (finding, number, count, lowest, highest) AS (
			SELECT CASE
					WHEN i.id IS NULL THEN 'null'
					WHEN i.id < 0 THEN 'negative'
					WHEN i.id > %1$s THEN 'outside layout'
					WHEN i.id >> %2$s > %3$s THEN 'future'
					WHEN l.ticks @> (i.id >> %2$s) THEN NULL
					WHEN i.id >> %2$s < %4$s THEN 'older value'
					WHEN n.number = %5$s THEN 'reserved number'
					WHEN %6$L THEN 'leases not checked'
					WHEN l.node_number IS NULL THEN 'no lease'
					WHEN i.id >> %2$s < l.first THEN 'before leases'
					WHEN i.id >> %2$s >= l.past THEN 'after leases'
					ELSE 'between leases' END, n.number, count(*), min(i.id), max(i.id)
			FROM (SELECT %7$I::bigint AS id FROM %8$s) AS i
				CROSS JOIN LATERAL (SELECT %9$s) AS n (number)
				LEFT JOIN unnest(%10$L::snowflake_tools.leased_number[]) AS l ON l.node_number = n.number
			GROUP BY 1, 2
		), ranked AS (
			SELECT f.*, f.finding !~ 'lease|reserved' AS as_one,
				row_number() OVER (PARTITION BY f.finding ORDER BY f.count DESC, f.number) > 10 AS rest
			FROM found AS f WHERE f.finding IS NOT NULL
		), summed AS (
			SELECT r.finding, CASE WHEN NOT (r.as_one OR r.rest) THEN r.number END AS node_number, sum(r.count) AS count,
				count(*) FILTER (WHERE r.rest) AS others, min(r.lowest) AS lowest, max(r.highest) AS highest
			FROM ranked AS r GROUP BY 1, 2, r.as_one OR r.rest
		)
		SELECT jsonb_agg(s) FROM summed AS s
		$query$,
		snowflake_internal.max_id('infinity'::timestamptz, p_layout), v_shift,
		snowflake_internal.max_id(v_latest, p_layout) >> v_shift,
		ceil(3600 / extract(epoch FROM v_layout.tick)), coalesce(v_reserved::text, 'NULL'),
		p_leased IS NULL, p_column, p_table, v_number, p_leased)))
		AS r (finding text, node_number bigint, count bigint, others bigint, lowest bigint, highest bigint);
END
$$;

CREATE FUNCTION snowflake_tools.audit_detail(p_finding text, p_others bigint, p_lowest bigint, p_highest bigint,
	p_layout text, p_max_ahead text, p_unchecked text) RETURNS text
LANGUAGE sql STABLE
AS $$
	SELECT CASE p_finding
		WHEN 'null' THEN 'rows without an id'
		WHEN 'negative' THEN 'no layout has negative ids'
		WHEN 'outside layout' THEN
			format('ids of the layout are from 0 to %s', snowflake_internal.max_id('infinity'::timestamptz, p_layout))
		WHEN 'future' THEN format('the last one is of %s, more than max_ahead (%s) past the clock',
			snowflake_tools.id_time(p_highest, p_layout), p_max_ahead)
		WHEN 'older value' THEN
			format('values from %s to %s: within an hour of the epoch, as those of a sequence are', p_lowest, p_highest)
		ELSE CASE WHEN p_others > 0 THEN format('other numbers (%s of them), ', p_others) ELSE '' END
			|| format('times from %s to %s: ', snowflake_tools.id_time(p_lowest, p_layout),
				snowflake_tools.id_time(p_highest, p_layout))
			|| CASE p_finding
				WHEN 'no lease' THEN 'no lease of the number is on record: ids from elsewhere, or rows of the log were deleted'
				WHEN 'before leases' THEN 'before the first lease of the number on record'
				WHEN 'between leases' THEN 'after the end of a lease of the number, and before its next lease on record'
				WHEN 'after leases' THEN 'after the end of the last lease of the number on record'
				WHEN 'reserved number' THEN 'information: the number is that of backfilled ids'
				WHEN 'leases not checked' THEN p_unchecked END
		END
$$;

CREATE FUNCTION snowflake_audit("table" regclass, "column" name, leases regclass, layout text DEFAULT NULL,
	OUT finding text, OUT node_number bigint, OUT count bigint, OUT id bigint, OUT detail text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
DECLARE
	v_layout CONSTANT text := snowflake_internal.layout_definition($4);
	v_max_ahead CONSTANT text := coalesce(current_setting('snowflake.max_ahead', true), '1s');
	v_leased snowflake_tools.leased_number[];
	v_unchecked text;		-- why leases are not checked; NULL: they are
	v_owner CONSTANT oid := (SELECT c.relowner FROM pg_class AS c WHERE c.oid = $1);
	v_other regclass;
BEGIN
	IF $1 IS NULL OR $2 IS NULL THEN
		RAISE EXCEPTION 'the table and the column must not be null' USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Give both, as in snowflake_audit(''orders'', ''id'', ''snowflake.leases'').';
	END IF;
	PERFORM snowflake_tools.check_columns($1, ARRAY[$2], '{bigint}',
		'Give a table, and its column that has the ids, or a view of the table''s owner in which they are cast to bigint.');
	-- whose code would run with the rights of the table's owner
	SELECT c.oid INTO v_other
	FROM snowflake_tools.column_members($1, $2) AS m JOIN pg_class AS c ON c.oid = m.relation
	WHERE c.relowner <> v_owner ORDER BY c.oid LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'tables % and % have different owners', $1, v_other USING ERRCODE = 'insufficient_privilege',
			DETAIL = format('They are "%s" and "%s", and a table is read as its owner.', pg_get_userbyid(v_owner),
				(SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = v_other)),
			HINT = 'Audit each of them on its own.';
	END IF;
	v_leased := snowflake_tools.leased_numbers($3, v_layout);
	IF NOT EXISTS (SELECT FROM snowflake_internal.layout_fields(v_layout) AS f WHERE f.node_shift IS NOT NULL) THEN
		v_leased := NULL;
		v_unchecked := 'the layout has no node number';
	ELSIF v_leased IS NULL THEN
		v_unchecked := CASE WHEN $3 IS NULL THEN 'no leases were given' ELSE format('"%s" has no leases', $3) END;
	END IF;
	RETURN QUERY
	WITH summed AS (
		SELECT a.finding, a.node_number, a.count,
			CASE WHEN a.finding IN ('outside layout', 'future') THEN a.highest ELSE a.lowest END AS id,
			snowflake_tools.audit_detail(a.finding, a.others, a.lowest, a.highest, v_layout, v_max_ahead, v_unchecked) AS detail
		FROM snowflake_tools.audit_ids($1, $2, v_layout, v_max_ahead::interval, v_leased) AS a
		UNION ALL
		SELECT 'duplicate', NULL, d.count, d.id, d.detail
		FROM snowflake_tools.audit_duplicates($1, $2) AS d WHERE d.count IS NOT NULL
		UNION ALL
		SELECT 'rows hidden', NULL, NULL, NULL, 'row security is active: rows that it hides were not looked at'
		WHERE CASE WHEN snowflake_tools.can_become(v_owner) THEN snowflake_tools.hides_rows($1)
			ELSE row_security_active($1) END
	)
	SELECT s.* FROM summed AS s
	ORDER BY array_position('{duplicate,"null",negative,outside layout,older value,future,no lease,before leases,
			between leases,after leases,reserved number,leases not checked,rows hidden}', s.finding),
		s.node_number IS NULL, s.count DESC, s.node_number;
END
$$;
COMMENT ON FUNCTION snowflake_audit(regclass, name, regclass, text) IS
'ids of a column that occur twice, or that were issued under no lease on record: a row for each finding';
