
--
-- Whether the ids of a column can have been issued by the leases on record
--

-- For pg_database_owner, see the end of this script: the leases are those of the whole cluster, and of others.
CREATE FUNCTION snowflake_tools.read_leases(another boolean, OUT incarnation uuid, OUT used uuid,
	OUT node_numbers bigint[], OUT launched bigint[], OUT starts bigint[], OUT ends bigint[], OUT problem text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'snowflake_read_leases'
LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_tools.read_leases(boolean) IS
'part of snowflake_audit(): the leases on record in this cluster, or in the registry that is set, some at a time; or why they cannot be read';

-- For each node number the ticks in which its leases allow ids: of each lease those that begin
-- at or after its start, not before the one in which its server was started, and end at or before
-- its end.  The arrays are those of read_leases().
CREATE TYPE snowflake_tools.leased_number AS (node_number bigint, ticks int8multirange, first bigint, past bigint);
COMMENT ON TYPE snowflake_tools.leased_number IS
'part of snowflake_audit(): the ticks of ids that the leases of a node number allow, and their ends';

CREATE FUNCTION snowflake_tools.leased_ticks(definition text, timestamp_shift integer,
	node_numbers bigint[], launched bigint[], starts bigint[], ends bigint[])
RETURNS SETOF snowflake_tools.leased_number
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT w.node_number, range_agg(int8range(t.first, greatest(t.first, t.past))), min(t.first), max(t.past)
	FROM snowflake_internal.layout($1) AS l,
		unnest($3, $4, $5, $6) AS w (node_number, launched, starts, ends),
		LATERAL (SELECT least(greatest('epoch'::timestamptz + w.launched * interval '1 us', l.epoch), l.last_id_time) AS launched_at,
			least(greatest('epoch'::timestamptz + w.starts * interval '1 us', l.epoch), l.last_id_time) AS starts_at,
			least(greatest('epoch'::timestamptz + w.ends * interval '1 us', l.epoch), l.last_id_time) AS leased_until) AS c,
		LATERAL (SELECT snowflake_tools.min_id(c.starts_at, $1) AS id) AS s,
		LATERAL (SELECT
			greatest(snowflake_tools.min_id(c.launched_at, $1) >> $2,
				(s.id >> $2) + (snowflake_tools.id_time(s.id, $1) < c.starts_at)::integer),
			snowflake_tools.min_id(c.leased_until, $1) >> $2) AS t (first, past)
	GROUP BY w.node_number
$$;
COMMENT ON FUNCTION snowflake_tools.leased_ticks(text, integer, bigint[], bigint[], bigint[], bigint[]) IS
'part of snowflake_audit(): the ticks of ids that leases allow';

-- The same of all leases on record, or why they are not known.  What the cluster's own tables say
-- of where its numbers come from counts, not the setting.
CREATE FUNCTION snowflake_tools.all_leased(definition text, timestamp_shift integer,
	OUT unchecked text, OUT leased snowflake_tools.leased_number[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
#variable_conflict use_variable
DECLARE
	page record;
	another boolean;
	used uuid;
BEGIN
	IF NOT EXISTS (SELECT FROM snowflake_internal.layout_fields(definition) AS f WHERE f.node_shift IS NOT NULL) THEN
		unchecked := 'the layout has no node number';
	ELSIF NOT has_function_privilege('snowflake_tools.read_leases(boolean)', 'EXECUTE') THEN
		unchecked := 'you may not read the leases on record, as members of pg_database_owner may';
	END IF;
	IF unchecked IS NOT NULL THEN
		RETURN;
	END IF;
	leased := '{}';
	<<registries>>
	FOREACH another IN ARRAY '{false,true}'::boolean[] LOOP
		FOR page IN SELECT * FROM snowflake_tools.read_leases(another) LOOP
			unchecked := CASE WHEN page.problem IS NOT NULL THEN page.problem
				WHEN another AND page.incarnation IS DISTINCT FROM used THEN
					'the registry that snowflake.registry names is not the one that this cluster uses' END;
			EXIT registries WHEN unchecked IS NOT NULL;
			IF NOT another AND page.used IS NOT NULL THEN
				used := page.used;
				CONTINUE registries;
			END IF;
			leased := leased || ARRAY(SELECT t FROM snowflake_tools.leased_ticks(definition, timestamp_shift,
				page.node_numbers, page.launched, page.starts, page.ends) AS t);
		END LOOP;
		EXIT registries;
	END LOOP;
	-- a number's leases may be on several pages
	leased := ARRAY(SELECT (l.node_number, range_agg(l.ticks), min(l.first), max(l.past))::snowflake_tools.leased_number
		FROM unnest(leased) AS l GROUP BY l.node_number);
	IF leased = '{}' THEN
		unchecked := coalesce(unchecked, format('worker_node of %s has no rows',
			CASE WHEN used IS NULL THEN 'database "postgres"' ELSE 'the registry' END));
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_tools.all_leased(text, integer) IS
'part of snowflake_audit(): the ticks of ids that all leases on record allow, or why they are not known';

-- Whether an index that is always checked keeps the column unique, over partitions too.
CREATE FUNCTION snowflake_tools.known_unique("table" regclass, attribute smallint) RETURNS boolean
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT EXISTS (SELECT FROM pg_index AS i
			WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indimmediate
				AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = $2)
		-- an index of a partitioned table is over all of it, one of a parent is not
		AND ((SELECT c.relkind FROM pg_class AS c WHERE c.oid = $1) = 'p'
			OR NOT EXISTS (SELECT FROM pg_inherits AS h WHERE h.inhparent = $1))
$$;
COMMENT ON FUNCTION snowflake_tools.known_unique(regclass, smallint) IS
'part of snowflake_audit(): whether an index shows that a column has no duplicates';

-- The column's number, after checks that it can hold ids.
CREATE FUNCTION snowflake_tools.audited_column("table" regclass, "column" name) RETURNS smallint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
DECLARE
	kind CONSTANT "char" := (SELECT c.relkind FROM pg_class AS c WHERE c.oid = $1);
	attribute record;
BEGIN
	IF $1 IS NULL OR $2 IS NULL THEN
		RAISE EXCEPTION 'the table and the column must not be null'
			USING ERRCODE = 'invalid_parameter_value', HINT = 'Give both, as in snowflake_audit(''orders'', ''id'').';
	ELSIF kind IS NULL THEN
		RAISE EXCEPTION 'table with OID % does not exist', $1::oid
			USING ERRCODE = 'undefined_table', HINT = 'Give the name of a table.';
	ELSIF kind NOT IN ('r', 'p', 'v', 'm', 'f') THEN
		RAISE EXCEPTION '"%" has no rows with ids', $1
			USING ERRCODE = 'wrong_object_type', HINT = 'Give a table, a partition, a view or a foreign table.';
	END IF;
	SELECT a.attnum, format_type(a.atttypid, a.atttypmod) AS type,
		'bigint'::regtype IN (WITH RECURSIVE base AS (
			SELECT a.atttypid AS type
			UNION ALL SELECT t.typbasetype FROM base, pg_type AS t WHERE t.oid = base.type AND t.typbasetype <> 0)
			SELECT base.type FROM base) AS is_bigint
	INTO attribute
	FROM pg_attribute AS a WHERE a.attrelid = $1 AND a.attname = $2 AND NOT a.attisdropped;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'table "%" has no column "%"', $1, $2
			USING ERRCODE = 'undefined_column', HINT = 'Give the name of the column that has the ids.';
	ELSIF NOT attribute.is_bigint THEN
		RAISE EXCEPTION 'column "%" of table "%" is of type %, not bigint', $2, $1, attribute.type
			USING ERRCODE = 'invalid_parameter_value', DETAIL = 'Ids are of type bigint.',
			HINT = 'Give the column that has the ids, or a view in which it is cast to bigint.';
	ELSIF NOT has_column_privilege($1, $2, 'SELECT') THEN
		RAISE EXCEPTION 'you may not read column "%" of table "%"', $2, $1
			USING ERRCODE = 'insufficient_privilege', DETAIL = 'It looks at all ids with your rights.',
			HINT = format('Let its owner say: GRANT SELECT (%I) ON %s TO %I.', $2, $1, current_user);
	END IF;
	RETURN attribute.attnum;
END
$$;
COMMENT ON FUNCTION snowflake_tools.audited_column(regclass, name) IS
'part of snowflake_audit(): the column''s number';

CREATE FUNCTION snowflake_tools.audit_duplicates("table" regclass, "column" name,
	OUT count bigint, OUT id bigint, OUT detail text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
#variable_conflict use_variable
DECLARE
	surplus bigint;
	times bigint;
	places text;
BEGIN
	IF snowflake_tools.known_unique($1, snowflake_tools.audited_column($1, $2)) THEN
		count := 0;
		RETURN;
	END IF;
	EXECUTE format('SELECT count(*), sum(d.n - 1), min(d.id) FROM
			(SELECT t.%1$I AS id, count(*) AS n FROM %2$s AS t WHERE t.%1$I IS NOT NULL GROUP BY 1 HAVING count(*) > 1) AS d',
		$2, $1) INTO count, surplus, id;
	IF count = 0 THEN
		RETURN;
	END IF;
	EXECUTE format('SELECT count(*), %3$s FROM %2$s AS t WHERE t.%1$I = $1', $2, $1,
		-- a view's rows come from no one table; tableoid takes the right on the whole table
		CASE WHEN (SELECT c.relkind FROM pg_class AS c WHERE c.oid = $1) <> 'v' AND has_table_privilege($1, 'SELECT')
			THEN 'string_agg(DISTINCT t.tableoid::regclass::text, '', '')' ELSE quote_literal($1) END)
		INTO times, places USING id;
	detail := format('%s rows too many; the id shown is there %s times, in %s', surplus, times, places);
END
$$;
COMMENT ON FUNCTION snowflake_tools.audit_duplicates(regclass, name) IS
'part of snowflake_audit(): ids that more than one row has';

-- The ids by finding (NULL: a lease on record allows them) and by node number.  leased: NULL
-- if leases are not checked.
--
-- The function is stable: the table is read by the snapshot of the query that calls
-- snowflake_audit(), and the leases later.  See list_leases() of the registry.
CREATE FUNCTION snowflake_tools.audit_ids("table" regclass, "column" name, definition text,
	max_ahead interval, leased snowflake_tools.leased_number[],
	OUT finding text, OUT node_number bigint, OUT count bigint, OUT lowest bigint, OUT highest bigint)
RETURNS SETOF record
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
#variable_conflict use_column
DECLARE
	layout CONSTANT record := snowflake_internal.layout($3);
	latest CONSTANT timestamptz := least(greatest(clock_timestamp() + $4, layout.epoch), layout.last_id_time);
	shift integer;		-- of the timestamp
	number_of text;		-- the node number, as an expression over an id
	greatest_number bigint;
BEGIN
	SELECT max(f.shift) FILTER (WHERE f.field = 'timestamp'),
		coalesce(string_agg(format('((i.id >> %s & %s) << %s)', f.shift, (1::bigint << f.bits) - 1, f.node_shift), ' | ')
			FILTER (WHERE f.node_shift IS NOT NULL), 'NULL::bigint'),
		(1::bigint << sum(f.bits) FILTER (WHERE f.node_shift IS NOT NULL)::integer) - 1
	INTO shift, number_of, greatest_number
	FROM snowflake_internal.layout_fields($3) AS f;
	RETURN QUERY EXECUTE format($query$
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
			LEFT JOIN unnest($1) AS l ON l.node_number = n.number
		GROUP BY 1, 2
		$query$,
		snowflake_internal.max_id('infinity'::timestamptz, $3), shift,
		snowflake_internal.max_id(latest, $3) >> shift,
		ceil(3600 / extract(epoch FROM layout.tick)), coalesce(greatest_number::text, 'NULL'),
		$5 IS NULL, $2, $1, number_of) USING $5;
END
$$;
COMMENT ON FUNCTION snowflake_tools.audit_ids(regclass, name, text, interval, snowflake_tools.leased_number[]) IS
'part of snowflake_audit(): the ids of a column by finding and node number';

CREATE FUNCTION snowflake_tools.audit_detail(finding text, numbers bigint, lowest bigint, highest bigint,
	definition text, max_ahead text, unchecked text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT CASE finding
		WHEN 'null' THEN 'rows without an id'
		WHEN 'negative' THEN 'no layout has negative ids'
		WHEN 'outside layout' THEN
			format('ids of the layout are from 0 to %s', snowflake_internal.max_id('infinity'::timestamptz, definition))
		WHEN 'future' THEN format('the last one is of %s, more than max_ahead (%s) past the clock',
			snowflake_tools.id_time(highest, definition), max_ahead)
		WHEN 'older value' THEN
			format('values from %s to %s: within an hour of the epoch, as those of a sequence are', lowest, highest)
		ELSE CASE WHEN numbers > 0 THEN format('other numbers (%s of them), ', numbers) ELSE '' END
			|| format('times from %s to %s: ', snowflake_tools.id_time(lowest, definition),
				snowflake_tools.id_time(highest, definition))
			|| CASE finding
				WHEN 'no lease' THEN 'worker_node has no row of the number: it is of another registry or generator, from where rows came by restore, replication or import'
				WHEN 'before leases' THEN 'before the first lease of the number'
				WHEN 'between leases' THEN 'after the end of a lease of the number, and before its next lease'
				WHEN 'after leases' THEN 'after the end of the last lease of the number'
				WHEN 'reserved number' THEN 'information: the number is that of backfilled ids'
				WHEN 'leases not checked' THEN unchecked END
		END
$$;
COMMENT ON FUNCTION snowflake_tools.audit_detail(text, bigint, bigint, bigint, text, text, text) IS
'part of snowflake_audit(): the text of a finding';

-- Of each finding about leases the ten node numbers with the most ids have rows of their
-- own, all others share one.
CREATE FUNCTION snowflake_audit("table" regclass, "column" name, layout text DEFAULT NULL,
	OUT finding text, OUT node_number bigint, OUT count bigint, OUT id bigint, OUT detail text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED ROWS 10 SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
#variable_conflict use_column
DECLARE
	max_ahead CONSTANT text := coalesce(current_setting('snowflake.max_ahead', true), '1s');
	definition text;
	unchecked text;		-- why leases are not checked; NULL: they are
	leased snowflake_tools.leased_number[];
BEGIN
	PERFORM snowflake_tools.audited_column($1, $2);
	definition := snowflake_internal.layout_definition($3);
	SELECT l.unchecked, CASE WHEN l.unchecked IS NULL THEN l.leased END INTO unchecked, leased
	FROM snowflake_tools.all_leased(definition,
		(SELECT f.shift FROM snowflake_internal.layout_fields(definition) AS f WHERE f.field = 'timestamp')) AS l;
	RETURN QUERY
	WITH ranked AS (
		SELECT a.*, a.finding !~ 'lease|reserved' AS as_one,
			row_number() OVER (PARTITION BY a.finding ORDER BY a.count DESC, a.node_number) > 10 AS rest
		FROM snowflake_tools.audit_ids($1, $2, definition, max_ahead::interval, leased) AS a
		WHERE a.finding IS NOT NULL
	), summed AS (
		SELECT r.finding, CASE WHEN NOT (r.as_one OR r.rest) THEN r.node_number END AS node_number,
			sum(r.count)::bigint AS count,
			CASE WHEN r.finding IN ('outside layout', 'future') THEN max(r.highest) ELSE min(r.lowest) END AS id,
			snowflake_tools.audit_detail(r.finding, count(*) FILTER (WHERE r.rest), min(r.lowest), max(r.highest),
				definition, max_ahead, unchecked) AS detail
		FROM ranked AS r GROUP BY 1, 2, r.as_one OR r.rest
		UNION ALL
		SELECT 'duplicate', NULL, d.count, d.id, d.detail
		FROM snowflake_tools.audit_duplicates($1, $2) AS d WHERE d.count > 0
		UNION ALL
		SELECT 'rows hidden', NULL, NULL, NULL, 'row security is active for you: rows that it hides were not looked at'
		WHERE row_security_active($1)
	)
	SELECT s.* FROM summed AS s
	ORDER BY array_position('{duplicate,"null",negative,outside layout,older value,future,no lease,before leases,
			between leases,after leases,reserved number,leases not checked,rows hidden}', s.finding),
		s.node_number IS NULL, s.count DESC, s.node_number;
END
$$;
COMMENT ON FUNCTION snowflake_audit(regclass, name, text) IS
'ids of a column that occur twice, or that were issued under no lease on record: a row for each finding';
