
--
-- Ranges of time as ranges of ids, and partitions by them
--
CREATE FUNCTION snowflake_range(since timestamptz, until timestamptz) RETURNS int8range
AS 'MODULE_PATHNAME', 'snowflake_range'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_range(timestamptz, timestamptz) IS
'ids of the server''s layout whose timestamp is in [since, until)';

CREATE FUNCTION snowflake_range(since timestamptz, until timestamptz, layout text) RETURNS int8range
AS 'MODULE_PATHNAME', 'snowflake_range'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_range(timestamptz, timestamptz, text) IS
'ids of the given layout whose timestamp is in [since, until)';

-- A condition for queries.  The planner puts the two comparisons in its place, so that indexes
-- on the id are used and partitions are left out: therefore these functions are not STRICT and set
-- nothing, and the bounds are closed.

-- The first id of the ticks that begin at or after a time.
CREATE FUNCTION snowflake_internal.first_id_from(since timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_first_id_from'
LANGUAGE C STABLE STRICT PARALLEL SAFE;

CREATE FUNCTION snowflake_internal.first_id_from(since timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_first_id_from'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- The last id of the ticks that begin from since to before until; -1 if there is no such id.
CREATE FUNCTION snowflake_internal.last_id_within(since timestamptz, until timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_last_id_within'
LANGUAGE C STABLE STRICT PARALLEL SAFE;

CREATE FUNCTION snowflake_internal.last_id_within(since timestamptz, until timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_last_id_within'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION snowflake_within(id bigint, since timestamptz, until timestamptz) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
	SELECT id OPERATOR(pg_catalog.>=) snowflake_internal.first_id_from(since)
		AND id OPERATOR(pg_catalog.<=) snowflake_internal.last_id_within(since, until)
$$;
COMMENT ON FUNCTION snowflake_within(bigint, timestamptz, timestamptz) IS
'whether the timestamp of an id of the server''s layout is in [since, until); uses indexes on the id';

CREATE FUNCTION snowflake_within(id bigint, since timestamptz, until timestamptz, layout text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
	SELECT id OPERATOR(pg_catalog.>=) snowflake_internal.first_id_from(since, layout)
		AND id OPERATOR(pg_catalog.<=) snowflake_internal.last_id_within(since, until, layout)
$$;
COMMENT ON FUNCTION snowflake_within(bigint, timestamptz, timestamptz, text) IS
'whether the timestamp of an id of the given layout is in [since, until); uses indexes on the id';

-- Where the step begins that contains a time, in UTC: steps of months are counted from January of
-- the year 1, others from Monday, 1 January 2001.  So bounds do not depend on since.
CREATE FUNCTION snowflake_internal.step_start(at timestamptz, step interval) RETURNS timestamp
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
#variable_conflict use_variable
DECLARE
	months CONSTANT integer := extract(year FROM step) * 12 + extract(month FROM step);
	rest CONSTANT interval := step - make_interval(months => months);
	month integer;
BEGIN
	IF months < 0 OR rest < '0' OR step = '0' THEN
		RAISE EXCEPTION 'step % is not positive', step
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Each partition must end after it begins.',
			HINT = 'Choose one like 1 month, 1 day or 6 hours.';
	END IF;
	IF months > 0 AND rest > '0' THEN
		RAISE EXCEPTION 'step % has months and days', step
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Bounds are aligned to the step, which needs either months or a fixed time.',
			HINT = 'Choose one like 1 month, 1 day or 6 hours.';
	END IF;
	IF months = 0 THEN
		RETURN date_bin(step, at AT TIME ZONE 'UTC', timestamp '2001-01-01');
	END IF;
	month := extract(year FROM at AT TIME ZONE 'UTC') * 12 + extract(month FROM at AT TIME ZONE 'UTC') - 1 - 12;
	month := month - month % months;
	RETURN timestamp '0001-01-01' + make_interval(months => month);
END
$$;

-- The first and the last partition end where the layout does.
CREATE FUNCTION snowflake_internal.partition_bounds(since timestamptz, until timestamptz, step interval, layout text)
RETURNS TABLE (from_time timestamptz, to_time timestamptz, from_id bigint, to_id bigint)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE ROWS 100
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
#variable_conflict use_variable
DECLARE
	max_count CONSTANT integer := 10000;
	start timestamp;
	count integer := 0;
	described record;
	ids int8range;
BEGIN
	SELECT coalesce(l.name, l.definition) AS label, l.tick, l.epoch, l.last_id_time + l.tick AS ends INTO described
	FROM snowflake_internal.layout(layout) AS l;
	IF NOT (isfinite(since) AND isfinite(until) AND isfinite(step)) OR since > until THEN
		RAISE EXCEPTION 'there are no partitions from % to %', since, until
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'The times and the step must be finite, and until not earlier than since.',
			HINT = 'Give finite times, the earlier one first.';
	END IF;
	IF since < until AND (since < described.epoch OR until > described.ends) THEN
		RAISE EXCEPTION 'partitions from % to % are not within layout "%"', since, until, described.label
			USING ERRCODE = 'datetime_field_overflow',
			DETAIL = format('Its ids carry times from %s to before %s.', described.epoch, described.ends),
			HINT = 'Choose since and until within that.';
	END IF;
	start := snowflake_internal.step_start(since, step);
	to_time := greatest(start AT TIME ZONE 'UTC', described.epoch);
	WHILE since < until AND to_time < until LOOP
		IF count = max_count THEN
			RAISE EXCEPTION 'from % to % there are too many steps of %', since, until, step
				USING ERRCODE = 'invalid_parameter_value',
				DETAIL = format('At most %s partitions are made at a time.', max_count),
				HINT = 'Choose a longer step, or a later since: a server slows down with thousands of partitions.';
		END IF;
		count := count + 1;
		from_time := to_time;
		to_time := least((start + count * step) AT TIME ZONE 'UTC', described.ends);
		ids := snowflake_internal.id_range(from_time, to_time, layout);
		IF isempty(ids) THEN
			RAISE EXCEPTION 'step % is too short for layout "%"', step, described.label
				USING ERRCODE = 'invalid_parameter_value',
				DETAIL = format('No tick begins from %s to before %s.', from_time, to_time),
				HINT = format('Choose a step of at least one tick, %s.', described.tick);
		END IF;
		from_id := lower(ids);
		to_id := upper(ids);
		RETURN NEXT;
	END LOOP;
END
$$;

CREATE FUNCTION snowflake_partition_bounds(since timestamptz, until timestamptz, step interval, layout text)
RETURNS TABLE (from_time timestamptz, to_time timestamptz, from_id bigint, to_id bigint)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 100
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT * FROM snowflake_internal.partition_bounds(since, until, step, layout)
$$;
COMMENT ON FUNCTION snowflake_partition_bounds(timestamptz, timestamptz, interval, text) IS
'bounds of partitions in time and in ids of the given layout: one step each, aligned to the step in UTC';

CREATE FUNCTION snowflake_partition_bounds(since timestamptz, until timestamptz, step interval)
RETURNS TABLE (from_time timestamptz, to_time timestamptz, from_id bigint, to_id bigint)
LANGUAGE sql STABLE STRICT PARALLEL SAFE ROWS 100
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT * FROM snowflake_internal.partition_bounds(since, until, step,
		(SELECT coalesce(l.name, l.definition) FROM snowflake_internal.layout() AS l))
$$;
COMMENT ON FUNCTION snowflake_partition_bounds(timestamptz, timestamptz, interval) IS
'bounds of partitions in time and in ids of the server''s layout: one step each, aligned to the step in UTC';

-- What the names of partitions end with, for to_char: the time of the lower bound, as
-- short as both the first one and the step allow.
CREATE FUNCTION snowflake_internal.partition_suffix(since timestamptz, step interval) RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT suffix
	FROM unnest('{year,month,day,minute,second,microseconds}'::text[],
		'{_YYYY,_YYYY_MM,_YYYYMMDD,_YYYYMMDD_HH24MI,_YYYYMMDD_HH24MISS,_YYYYMMDD_HH24MISS_US}'::text[])
		WITH ORDINALITY AS v (unit, suffix, n)
	WHERE date_trunc(unit, since AT TIME ZONE 'UTC') = since AT TIME ZONE 'UTC' AND date_trunc(unit, step) = step
	ORDER BY n LIMIT 1
$$;

-- A name that is not in use, as PostgreSQL makes those of indexes: the table's name is cut so that the whole fits,
-- and a number is added if there is such a relation or type already.
CREATE FUNCTION snowflake_internal.partition_name(schema oid, parent name, suffix text) RETURNS name
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
#variable_conflict use_variable
DECLARE
	number integer := 0;
	stem text;
	tail text := suffix;
BEGIN
	LOOP
		stem := parent;
		WHILE octet_length(stem || tail) > current_setting('max_identifier_length')::integer LOOP
			stem := left(stem, -1);
		END LOOP;
		IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = schema AND c.relname = stem || tail) AND
			NOT EXISTS (SELECT FROM pg_type AS t WHERE t.typnamespace = schema AND t.typname = stem || tail) THEN
			RETURN stem || tail;
		END IF;
		number := number + 1;
		tail := suffix || '_' || number;
	END LOOP;
END
$$;

-- The partitions that a table has, but for the default one.  An older snapshot can have some that are detached by now:
-- pg_partition_ancestors() does not look at it, and leaves out one that is being detached.
CREATE FUNCTION snowflake_internal.partition_ranges(parent regclass)
RETURNS TABLE (partition regclass, ids int8range)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
	SELECT c.oid, int8range(nullif(bound[1], 'MINVALUE')::bigint, nullif(bound[2], 'MAXVALUE')::bigint)
	FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid,
		regexp_match(pg_get_expr(c.relpartbound, c.oid),
			'^FOR VALUES FROM [(]''?(MINVALUE|-?[0-9]+)''?[)] TO [(]''?(MAXVALUE|-?[0-9]+)''?[)]$') AS bound
	WHERE i.inhparent = parent AND bound IS NOT NULL
		AND parent IN (SELECT pg_partition_ancestors(c.oid))
$$;

-- The table must be partitioned by ranges of one column of type bigint, or snowflake_id, which has its output function.
-- Without a layout its ids must have that of the server, as far as the default of the key tells.
CREATE FUNCTION snowflake_internal.check_partition_key(parent regclass, layout text) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
#variable_conflict use_variable
DECLARE
	named text[];
	issued text;
BEGIN
	IF NOT EXISTS (SELECT FROM pg_partitioned_table AS p
			JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
			JOIN pg_type AS t ON t.oid = a.atttypid AND t.typtype = 'b'
			JOIN pg_proc AS o ON o.oid = t.typoutput
			WHERE p.partrelid = parent AND p.partstrat = 'r' AND p.partnatts = 1 AND o.prosrc = 'int8out') THEN
		RAISE EXCEPTION 'table % is not partitioned by range on one bigint or snowflake_id column', parent
			USING ERRCODE = 'wrong_object_type',
			DETAIL = coalesce('It is partitioned by ' || pg_get_partkeydef(parent) || '.', 'It is not partitioned.'),
			HINT = 'Create it with PARTITION BY RANGE (id), with id a bigint or snowflake_id column.';
	END IF;
	-- the layout that the default names; if it computes one, nobody knows
	SELECT regexp_match(e.text, '\msnowflake_next(?:val|_id)\((?!\))(?:layout => )?\(*(?:''([^'']+)'')?'), e.text
	INTO named, issued
	FROM pg_partitioned_table AS p JOIN pg_attrdef AS d ON d.adrelid = p.partrelid AND d.adnum = p.partattrs[0],
		pg_get_expr(d.adbin, d.adrelid) AS e (text)
	WHERE p.partrelid = parent;
	issued := coalesce(named[1], issued);
	IF layout IS NULL AND named IS NOT NULL AND (named[1] IS NULL
		OR snowflake_internal.layout_definition(issued) <> snowflake_internal.layout_definition(NULL)) THEN
		RAISE EXCEPTION 'table % has ids of layout "%"', parent, issued
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('Its default says so; that of the server is "%s", which puts other ids at a time.',
				snowflake_internal.layout_definition(NULL)),
			HINT = format('Name the layout of the ids, such as layout => %L.', coalesce(named[1], 'js53'));
	END IF;
END
$$;

-- Partitions are made as the table's owner, who owns them.  The lock keeps away other sessions that make partitions;
-- reads and writes go on until a partition is made.
CREATE FUNCTION snowflake_create_partitions(parent regclass, since timestamptz, until timestamptz, step interval,
	layout text DEFAULT NULL, dry_run boolean DEFAULT true) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
#variable_conflict use_variable
DECLARE
	definition text;
	parent_class record;
	wanted record;
	partition name;
	statement text;
BEGIN
	IF num_nulls(parent, since, until, step, dry_run) > 0 THEN
		RAISE EXCEPTION 'parent, since, until, step and dry_run must not be null'
			USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Only layout may be null, which is the server''s layout.';
	END IF;
	PERFORM snowflake_internal.check_partition_key(parent, layout);
	definition := snowflake_internal.layout_definition(layout);
	SELECT n.nspname AS schema, n.oid AS schema_oid, c.relname AS name, pg_get_userbyid(c.relowner) AS owner
	INTO parent_class
	FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = parent;
	IF NOT has_schema_privilege(parent_class.owner, parent_class.schema_oid, 'CREATE') THEN
		RAISE EXCEPTION 'role "%" may not create tables in schema %', parent_class.owner, parent_class.schema
			USING ERRCODE = 'insufficient_privilege',
			DETAIL = format('It owns table %s, and partitions are made as its owner.', parent),
			HINT = format('Use GRANT CREATE ON SCHEMA %I TO %I.', parent_class.schema, parent_class.owner);
	END IF;
	IF NOT dry_run THEN
		EXECUTE format('LOCK TABLE ONLY %I.%I IN SHARE UPDATE EXCLUSIVE MODE', parent_class.schema, parent_class.name);
	END IF;

	FOR wanted IN
		WITH existing AS MATERIALIZED (SELECT * FROM snowflake_internal.partition_ranges(parent))
		SELECT b.*, int8range(b.from_id, b.to_id) AS ids, e.*
		FROM snowflake_internal.partition_bounds(since, until, step, definition) AS b,
			LATERAL (SELECT range_agg(x.ids) AS covered, (array_agg(x.partition ORDER BY x.ids))[1] AS partition
				FROM existing AS x WHERE x.ids && int8range(b.from_id, b.to_id)) AS e
		ORDER BY b.from_id
	LOOP
		CONTINUE WHEN wanted.covered = int8multirange(wanted.ids);
		IF wanted.covered IS NOT NULL THEN
			RAISE EXCEPTION 'the partition of % from % to % would overlap %',
				parent, wanted.from_time, wanted.to_time, wanted.partition
				USING ERRCODE = 'invalid_object_definition',
				DETAIL = format('It would have the ids %s; there are partitions for %s.', wanted.ids, wanted.covered),
				HINT = 'Choose since and step so that the bounds meet those of the existing partitions.';
		END IF;
		partition := snowflake_internal.partition_name(parent_class.schema_oid, parent_class.name, to_char(
			wanted.from_time AT TIME ZONE 'UTC',
			snowflake_internal.partition_suffix(snowflake_internal.step_start(since, step) AT TIME ZONE 'UTC', step)));
		statement := format('CREATE TABLE %1$I.%2$I PARTITION OF %1$I.%3$I FOR VALUES FROM (%4$s) TO (%5$s);',
			parent_class.schema,
			partition, parent_class.name, wanted.from_id, coalesce(wanted.to_id::text, 'MAXVALUE'));
		IF NOT dry_run THEN
			PERFORM snowflake_internal.execute_as_owner(parent, statement);
		END IF;
		RETURN NEXT statement;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_create_partitions(regclass, timestamptz, timestamptz, interval, text, boolean) IS
'statements that make the missing partitions of a table, a step of time each; executed unless dry_run';

-- Runs as the owner of the table and of its partitions.  A partition that has ids of both sides stays, so none that
-- new ids go to is dropped: before is not later than the server's clock.  One of negative numbers only has no time,
-- and stays.  Where foreign keys reference the table, PostgreSQL drops a partition only after DETACH, which looks for
-- rows that reference it.  The lock keeps away other sessions that detach.
CREATE FUNCTION snowflake_drop_partitions(parent regclass, before timestamptz,
	layout text DEFAULT NULL, dry_run boolean DEFAULT true) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
#variable_conflict use_variable
DECLARE
	clock CONSTANT timestamptz := clock_timestamp();
	first_kept bigint;
	other regclass;
	statement text;
BEGIN
	IF num_nulls(parent, before, dry_run) > 0 OR NOT isfinite(before) THEN
		RAISE EXCEPTION 'parent, before and dry_run must not be null, and before must be finite'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('The arguments are %s, %s and %s.', coalesce(parent::text, 'NULL'),
				coalesce(before::text, 'NULL'), coalesce(dry_run::text, 'NULL')),
			HINT = 'Only layout may be null, which is the server''s layout.';
	END IF;
	IF before > clock THEN
		RAISE EXCEPTION 'before % is later than now', before
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('It is %s now, and new ids go to the partitions that end later.', clock),
			HINT = 'Give a time that has passed, such as now() - interval ''1 year''.';
	END IF;
	PERFORM snowflake_internal.check_partition_key(parent, layout);
	-- more ids come in the tick of the clock
	SELECT snowflake_internal.first_id_from(least(before, clock - l.tick + interval '1 us'), l.definition) INTO first_kept
	FROM snowflake_internal.layout(snowflake_internal.layout_definition(layout)) AS l;
	IF NOT dry_run THEN
		PERFORM snowflake_internal.execute_as_owner(parent,
			format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', parent));
	END IF;
	SELECT p.partition INTO other
	FROM snowflake_internal.partition_ranges(parent) AS p JOIN pg_class AS c ON c.oid = p.partition
	WHERE upper(p.ids) BETWEEN 1 AND first_kept AND c.relowner <> (SELECT t.relowner FROM pg_class AS t WHERE t.oid = parent)
	ORDER BY p.ids LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'tables % and % have different owners', parent, other
			USING ERRCODE = 'insufficient_privilege',
			DETAIL = 'A partition is dropped as the owner of its table.',
			HINT = format('Use ALTER TABLE %s OWNER TO %I, or drop it by hand.', other,
				(SELECT pg_get_userbyid(t.relowner) FROM pg_class AS t WHERE t.oid = parent));
	END IF;
	FOR statement IN
		SELECT format(s.form, parent, p.partition, CASE c.relkind WHEN 'f' THEN 'FOREIGN TABLE' ELSE 'TABLE' END)
		FROM snowflake_internal.partition_ranges(parent) AS p JOIN pg_class AS c ON c.oid = p.partition,
			unnest('{"ALTER TABLE %1$s DETACH PARTITION %2$s;","DROP %3$s %2$s;"}'::text[]) WITH ORDINALITY AS s (form, nr)
		WHERE upper(p.ids) BETWEEN 1 AND first_kept AND (s.nr = 2 OR EXISTS (SELECT FROM pg_constraint AS k
			WHERE k.contype = 'f' AND k.confrelid = p.partition AND k.conparentid <> 0))
		ORDER BY p.ids, s.nr
	LOOP
		IF NOT dry_run THEN
			PERFORM snowflake_internal.execute_as_owner(parent, statement);
		END IF;
		RETURN NEXT statement;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_drop_partitions(regclass, timestamptz, text, boolean) IS
'statements that drop the partitions of a table whose ids are all from before a time; executed unless dry_run';
