/* snowflake--1.0.sql: made of the files in src/sql, in the order of the Makefile */

\echo Use "CREATE EXTENSION snowflake" to load this file. \quit

-- Says what is missing on this server; the lease worker looks again when this is committed.
CREATE FUNCTION snowflake_creating() RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C;
SELECT snowflake_creating();
DROP FUNCTION snowflake_creating();

--
-- The tables that uniqueness depends on.  Those of database postgres count, of this
-- cluster or of the one that snowflake.registry names.  Only the functions in lease.sql
-- and lock_registry() write them, each after that lock, so that they run one after another.
--
CREATE SCHEMA snowflake;
COMMENT ON SCHEMA snowflake IS
'tables and inner functions of the extension snowflake: the registry of node numbers';
GRANT USAGE ON SCHEMA snowflake TO PUBLIC;

CREATE TABLE snowflake.worker_node (
	token uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	start uuid NOT NULL,
	granted_by bigint NOT NULL,
	last_call bigint NOT NULL,
	system_identifier bigint NOT NULL,
	host_name text COLLATE "C" NOT NULL,
	port integer NOT NULL,
	timeline integer NOT NULL,
	incarnation uuid NOT NULL,
	node_number bigint NOT NULL,
	datacenter_id integer,
	worker_id integer NOT NULL,
	clock integer,
	layout text COLLATE "C" NOT NULL,
	launched_at timestamptz NOT NULL,
	starts_at timestamptz NOT NULL,
	leased_until timestamptz NOT NULL,
	renewed_at timestamptz NOT NULL,
	closed_at timestamptz,
	CONSTRAINT worker_node_span CHECK (starts_at <= leased_until AND isfinite(leased_until))
)
-- Renewals leave old versions in the indexes; their number matters, however long the history is.
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Each look into the table is a probe of one of these, so that none takes longer as history
-- grows.  A lease that was closed where it started issued nothing; the layout rule leaves it out.
CREATE INDEX worker_node_end ON snowflake.worker_node (node_number, leased_until DESC);
CREATE INDEX worker_node_open ON snowflake.worker_node (node_number, leased_until DESC) WHERE closed_at IS NULL;
CREATE INDEX worker_node_call ON snowflake.worker_node (start, last_call DESC);
CREATE INDEX worker_node_open_start ON snowflake.worker_node (start) WHERE closed_at IS NULL;
CREATE INDEX worker_node_newest ON snowflake.worker_node (incarnation, renewed_at DESC)
	WHERE closed_at IS NULL OR leased_until > starts_at;
CREATE INDEX worker_node_layout ON snowflake.worker_node (layout, leased_until DESC)
	WHERE closed_at IS NULL OR leased_until > starts_at;
COMMENT ON TABLE snowflake.worker_node IS
'a row for each lease of a node number, usually one for each start of a server; history, never deleted';
COMMENT ON COLUMN snowflake.worker_node.token IS
'names the lease in later calls';
COMMENT ON COLUMN snowflake.worker_node.start IS
'the start of the server, a random number made with its shared memory';
COMMENT ON COLUMN snowflake.worker_node.granted_by IS
'number of the call that granted the lease';
COMMENT ON COLUMN snowflake.worker_node.last_call IS
'number of the last call that touched the row; a call of the same start with a number that is not greater is refused';
COMMENT ON COLUMN snowflake.worker_node.incarnation IS
'of the registry that granted the lease; rows of another one are history: no lease, but later leases start after their ends';
COMMENT ON COLUMN snowflake.worker_node.layout IS
'the server''s default layout';
COMMENT ON COLUMN snowflake.worker_node.launched_at IS
'when the server was started';
COMMENT ON COLUMN snowflake.worker_node.starts_at IS
'every id of the lease is of a tick that begins at or after this';
COMMENT ON COLUMN snowflake.worker_node.leased_until IS
'every id of the lease is of a tick that ends at or before this; lowered only when the lease is closed, to a proved end';
COMMENT ON COLUMN snowflake.worker_node.renewed_at IS
'when the lease was granted or renewed last, by the registry''s clock; later than that of every earlier grant and renewal';
COMMENT ON COLUMN snowflake.worker_node.closed_at IS
'NULL while the lease is open';

CREATE TABLE snowflake.registry (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	incarnation uuid NOT NULL,
	database oid NOT NULL,
	created_at timestamptz NOT NULL,
	generation integer NOT NULL DEFAULT 1,
	counted text[] NOT NULL DEFAULT '{}',
	system_identifier bigint NOT NULL,
	starts_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO snowflake.registry (incarnation, database, created_at, system_identifier)
SELECT gen_random_uuid(), d.oid, pg_catalog.clock_timestamp(), s.system_identifier
FROM pg_catalog.pg_database AS d, pg_catalog.pg_control_system() AS s WHERE d.datname = pg_catalog.current_database();
COMMENT ON TABLE snowflake.registry IS
'one row: which registry this is, and what holds for all its leases; not dumped';
COMMENT ON COLUMN snowflake.registry.incarnation IS
'made at CREATE EXTENSION, and anew in a copy of the database';
COMMENT ON COLUMN snowflake.registry.database IS
'OID of the database that the incarnation was made in; it differs in a copy (CREATE DATABASE ... TEMPLATE)';
COMMENT ON COLUMN snowflake.registry.created_at IS
'when the incarnation was made: its leases start at or after this plus snowflake.max_ahead and a tick';
COMMENT ON COLUMN snowflake.registry.generation IS
'1 and the number of entries counted; automatic numbers of this cluster are even in odd generations, odd in even ones';
COMMENT ON COLUMN snowflake.registry.counted IS
'entries of the server''s timeline history, as timeline/switch LSN, that the generation includes';
COMMENT ON COLUMN snowflake.registry.system_identifier IS
'of the server that has called its own table last; pg_upgrade makes another';
COMMENT ON COLUMN snowflake.registry.starts_at IS
'leases that are granted from now on start at or after this';

CREATE TABLE snowflake.cluster (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	uses text NOT NULL CHECK (uses IN ('own', 'another')),
	incarnation uuid,
	CONSTRAINT cluster_incarnation CHECK ((uses = 'another') = (incarnation IS NOT NULL))
);
COMMENT ON TABLE snowflake.cluster IS
'one row, or no row at first: where the node numbers of this cluster come from';
COMMENT ON COLUMN snowflake.cluster.uses IS
'own: the tables of this cluster; another: the registry with the incarnation';

GRANT SELECT ON snowflake.worker_node, snowflake.registry, snowflake.cluster TO pg_database_owner;

-- A restore makes a new incarnation, and keeps the history and where numbers come from.
SELECT pg_catalog.pg_extension_config_dump('snowflake.worker_node', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake.cluster', '');

-- Rows that logical replication brings are another cluster's leases.  They would go round for
-- ever between two clusters that publish all tables to each other.  Only an apply process counts:
-- a session that restores a dump under session_replication_role = replica keeps its rows.
CREATE FUNCTION snowflake.leave_out_replicated() RETURNS trigger
AS 'MODULE_PATHNAME', 'snowflake_leave_out_replicated'
LANGUAGE C;
COMMENT ON FUNCTION snowflake.leave_out_replicated() IS
'trigger: leaves out rows that logical replication brings';

CREATE FUNCTION snowflake.refuse_truncate() RETURNS trigger
AS 'MODULE_PATHNAME', 'snowflake_refuse_truncate'
LANGUAGE C;
COMMENT ON FUNCTION snowflake.refuse_truncate() IS
'trigger: refuses TRUNCATE';

CREATE FUNCTION snowflake.keep_cluster() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	kept snowflake.cluster;
BEGIN
	SELECT * INTO kept FROM snowflake.cluster;
	IF NOT FOUND THEN
		RETURN NEW;
	END IF;
	RAISE NOTICE 'table snowflake.cluster keeps its row'
		USING DETAIL = format('It says "%s", the row that is left out "%s".', kept.uses, NEW.uses);
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION snowflake.keep_cluster() IS
'trigger: a restore does not replace what this cluster has recorded';

CREATE TRIGGER leave_out_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.worker_node
FOR EACH ROW EXECUTE FUNCTION snowflake.leave_out_replicated();
CREATE TRIGGER leave_out_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.registry
FOR EACH ROW EXECUTE FUNCTION snowflake.leave_out_replicated();
CREATE TRIGGER leave_out_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.cluster
FOR EACH ROW EXECUTE FUNCTION snowflake.leave_out_replicated();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON snowflake.worker_node
FOR EACH STATEMENT EXECUTE FUNCTION snowflake.refuse_truncate();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON snowflake.registry
FOR EACH STATEMENT EXECUTE FUNCTION snowflake.refuse_truncate();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON snowflake.cluster
FOR EACH STATEMENT EXECUTE FUNCTION snowflake.refuse_truncate();
-- after leave_out_replicated: triggers run in the order of their names
CREATE TRIGGER only_one BEFORE INSERT ON snowflake.cluster
FOR EACH ROW EXECUTE FUNCTION snowflake.keep_cluster();
ALTER TABLE snowflake.worker_node ENABLE ALWAYS TRIGGER leave_out_replicated, ENABLE ALWAYS TRIGGER refuse_truncate;
ALTER TABLE snowflake.registry ENABLE ALWAYS TRIGGER leave_out_replicated, ENABLE ALWAYS TRIGGER refuse_truncate;
ALTER TABLE snowflake.cluster ENABLE ALWAYS TRIGGER leave_out_replicated, ENABLE ALWAYS TRIGGER refuse_truncate,
	ENABLE ALWAYS TRIGGER only_one;
REVOKE EXECUTE ON FUNCTION snowflake.leave_out_replicated(), snowflake.refuse_truncate(),
	snowflake.keep_cluster() FROM PUBLIC;

CREATE FUNCTION snowflake.check_version(version text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	own CONSTANT text := '1.0';
BEGIN
	IF (version ~ '^[0-9]{1,4}[.][0-9]{1,4}' AND
		split_part(version, '.', 1)::integer = split_part(own, '.', 1)::integer AND
		abs(substring(version, '[.]([0-9]+)')::integer - split_part(own, '.', 2)::integer) <= 1) IS NOT TRUE THEN
		RAISE EXCEPTION 'the registry has version % of snowflake, the node %', own, version
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'They can be one minor version apart.',
			HINT = 'Upgrade the older one.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_version(text) IS
'part of the lease functions: refuses a node whose version is too far from the registry''s';
REVOKE EXECUTE ON FUNCTION snowflake.check_version(text) FROM PUBLIC;

-- Locks the registry until the end of the transaction, and checks what every call depends
-- on.  The statements that follow see all that was committed before.
CREATE FUNCTION snowflake.lock_registry(version text) RETURNS snowflake.registry
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	result snowflake.registry;
	here oid;
BEGIN
	PERFORM snowflake.check_version(version);
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'leases need isolation level read committed, not %', current_setting('transaction_isolation')
			USING ERRCODE = 'active_sql_transaction',
			DETAIL = 'At another level a call does not see what others have committed while it waited for them.',
			HINT = 'Reset default_transaction_isolation for the role and the database that snowflake.registry names.';
	END IF;
	SELECT * INTO result FROM snowflake.registry AS r WHERE r.one FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the table snowflake.registry has no row'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Without it nothing can be leased.',
			HINT = 'Drop the extension in this database and create it again.';
	END IF;
	SELECT d.oid INTO STRICT here FROM pg_database AS d WHERE d.datname = current_database();
	IF result.database <> here THEN
		-- a copy of another database: other leases are granted there from now on
		UPDATE snowflake.registry AS r
		SET incarnation = gen_random_uuid(), database = here, created_at = clock_timestamp() WHERE r.one
		RETURNING * INTO STRICT result;
	END IF;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.lock_registry(text) IS
'part of the lease functions: lets them run one after another';
REVOKE EXECUTE ON FUNCTION snowflake.lock_registry(text) FROM PUBLIC;


--
-- New ids
--
CREATE FUNCTION snowflake_nextval() RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_nextval() IS
'next id of the server''s layout: unique, increasing, made of the time, the node number and a sequence';

CREATE FUNCTION snowflake_nextval_batch(n integer) RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval_batch'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 1000;
COMMENT ON FUNCTION snowflake_nextval_batch(integer) IS
'next n ids of the server''s layout, increasing; n from 1 to 1,000,000';

CREATE FUNCTION snowflake_nextval(layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval_layout'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_nextval(text) IS
'next id of a layout that is in use, snowflake.layout or one of snowflake.extra_layouts: unique and increasing among the ids of this layout';

CREATE FUNCTION snowflake_nextval_batch(n integer, layout text) RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval_batch_layout'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 1000;
COMMENT ON FUNCTION snowflake_nextval_batch(integer, text) IS
'next n ids of a layout that is in use, increasing; n from 1 to 1,000,000';
--
-- Parsing; without a layout by the server's, which makes it stable
--
CREATE FUNCTION snowflake_parse(id bigint,
	OUT "timestamp" timestamptz, OUT datacenter_id integer, OUT worker_id integer,
	OUT clock integer, OUT sequence integer)
AS 'MODULE_PATHNAME', 'snowflake_parse'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_parse(bigint) IS
'parts of an id of the server''s layout; fields that the layout does not have are NULL';

CREATE FUNCTION snowflake_parse(id bigint, layout text,
	OUT "timestamp" timestamptz, OUT datacenter_id integer, OUT worker_id integer,
	OUT clock integer, OUT sequence integer)
AS 'MODULE_PATHNAME', 'snowflake_parse_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_parse(bigint, text) IS
'parts of an id of the given layout; fields that the layout does not have are NULL';

CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamptz
AS 'MODULE_PATHNAME', 'snowflake_timestamp'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS
'time of an id of the server''s layout: the start of its tick';

CREATE FUNCTION snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
AS 'MODULE_PATHNAME', 'snowflake_timestamp_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_timestamp(bigint, text) IS
'time of an id of the given layout: the start of its tick';

CREATE FUNCTION snowflake_min_id(ts timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_min_id'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_min_id(timestamptz) IS
'first id of the tick that contains a time, in the server''s layout';

CREATE FUNCTION snowflake_min_id(ts timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_min_id_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_min_id(timestamptz, text) IS
'first id of the tick that contains a time, in the given layout';

CREATE FUNCTION snowflake_max_id(ts timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_max_id'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_max_id(timestamptz) IS
'last id of the tick that contains a time, in the server''s layout';

CREATE FUNCTION snowflake_max_id(ts timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_max_id_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_max_id(timestamptz, text) IS
'last id of the tick that contains a time, in the given layout';

CREATE FUNCTION snowflake_compose(ts timestamptz, worker_id integer, sequence integer,
	datacenter_id integer DEFAULT 0, clock integer DEFAULT 0) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_compose'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_compose(timestamptz, integer, integer, integer, integer) IS
'id of the server''s layout with the given parts, in the tick that contains the time';

CREATE FUNCTION snowflake_compose(ts timestamptz, worker_id integer, sequence integer, layout text,
	datacenter_id integer DEFAULT 0, clock integer DEFAULT 0) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_compose_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_compose(timestamptz, integer, integer, text, integer, integer) IS
'id of the given layout with the given parts, in the tick that contains the time';

--
-- Layouts
--
CREATE FUNCTION snowflake_layout(
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
AS 'MODULE_PATHNAME', 'snowflake_layout'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_layout() IS
'the server''s layout';

CREATE FUNCTION snowflake_layout(layout text,
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
AS 'MODULE_PATHNAME', 'snowflake_layout_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_layout(text) IS
'a layout given by the name of a preset or a definition';

CREATE FUNCTION snowflake_layouts(
	OUT name text, OUT definition text, OUT bits integer, OUT tick interval, OUT epoch timestamptz,
	OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'snowflake_layouts'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 16;
COMMENT ON FUNCTION snowflake_layouts() IS
'the presets: layouts of well-known id generators, by name';


-- A layout as its canonical definition; NULL is the server's.
CREATE FUNCTION snowflake.layout_definition(layout text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN $1 IS NULL THEN (SELECT l.definition FROM @extschema@.snowflake_layout() AS l)
		ELSE (SELECT l.definition FROM @extschema@.snowflake_layout($1) AS l) END
$$;
COMMENT ON FUNCTION snowflake.layout_definition(text) IS
'canonical definition of a layout, of the server''s for NULL';

-- By the settings, so that it also works on a server that has not preloaded the library.
CREATE FUNCTION snowflake.layouts_in_use(OUT layout text, OUT definition text, OUT extra boolean)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL SAFE ROWS 2 SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce(l.name, l.definition), l.definition, false FROM @extschema@.snowflake_layout() AS l
	UNION ALL
	SELECT coalesce(l.name, l.definition), l.definition, true
	FROM string_to_table(current_setting('snowflake.extra_layouts', true), ';') AS e (layout)
		CROSS JOIN LATERAL @extschema@.snowflake_layout(e.layout) AS l
	WHERE e.layout ~ '\S'
$$;
COMMENT ON FUNCTION snowflake.layouts_in_use() IS
'the layouts of snowflake.layout and snowflake.extra_layouts';

--
-- Monitoring
--
CREATE FUNCTION pg_stat_snowflake(
	OUT layout text, OUT state text, OUT detail text, OUT worker_id_from text, OUT registry text,
	OUT node_number bigint, OUT datacenter_id integer, OUT worker_id integer,
	OUT leased_until timestamptz, OUT last_id bigint, OUT ahead interval,
	OUT max_ahead_seen interval, OUT ids_issued bigint, OUT sequence_overflows bigint,
	OUT clock_rollbacks bigint, OUT waits bigint, OUT wait_time interval,
	OUT worker_switches bigint, OUT lease_renewals bigint, OUT lease_failures bigint,
	OUT ends_at timestamptz, OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pg_stat_snowflake'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 1;
COMMENT ON FUNCTION pg_stat_snowflake() IS
'the rows of the view pg_stat_snowflake';

CREATE VIEW pg_stat_snowflake AS SELECT * FROM pg_stat_snowflake();
COMMENT ON VIEW pg_stat_snowflake IS
'state, lease and counters of each layout in use; last_id, detail and registry are for members of pg_read_all_stats';

CREATE FUNCTION pg_stat_snowflake_reset() RETURNS void
AS 'MODULE_PATHNAME', 'pg_stat_snowflake_reset'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION pg_stat_snowflake_reset() IS
'sets the counters of pg_stat_snowflake to zero';
REVOKE EXECUTE ON FUNCTION pg_stat_snowflake_reset() FROM PUBLIC;
--
-- The lease functions: all that a node asks of a registry, and all choosing.
--
-- A node number is leased for a span of id time.  These rules keep two leases from issuing the
-- same (timestamp, node number), whatever clocks, pauses and networks do:
--
--	1. Calls run one after another: each locks the registry's row first.
--	2. A lease starts at or after every leased_until of its number, in rows of any incarnation.
--	3. leased_until is raised only by a renewal, of an open row of the present incarnation.
--	4. A number that is granted has no other open row: they are closed first, as they stand.
--	5. leased_until is lowered only when a row is closed by a call of its own start: to the end of
--	   its ids, which the call says; or to where it starts, if the node never had the lease.
--	6. A call that arrives late is refused, by its number.
--
-- Rows of another incarnation come from a dump, or from the template of the database.  Their ends
-- count wherever ids could repeat (2); nothing else depends on them once this incarnation has
-- granted a lease, so rows that are restored later do no harm.
--
-- Functions that the lease worker calls run as the extension's owner.  Their plans use indexes only, and
-- these in order: the planner would rather read all of a table that is small, or not analyzed yet.
--

--
-- Parameters
--
CREATE FUNCTION snowflake.check_parameter(fits boolean, name text, value text, bound text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	IF fits IS NOT TRUE THEN
		RAISE EXCEPTION 'parameter % of a lease function is out of range: %', name, coalesce(value, 'NULL')
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('It must be %s.', bound),
			HINT = 'Only the lease worker calls these functions; check the clock and the settings of its server.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_parameter(boolean, text, text, text) IS
'part of the lease functions: refuses a parameter that does not fit';

CREATE FUNCTION snowflake.field_bits(layout text, field text) RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce(substring(layout, '(?:^|, )' || field || ' ([0-9]+)(?:,|$)'), '0')::integer
$$;
COMMENT ON FUNCTION snowflake.field_bits(text, text) IS
'part of the lease functions: bits of a field of a layout, given by its canonical definition';

CREATE FUNCTION snowflake.node_number_parts(node_number bigint, layout text,
	OUT datacenter_id integer, OUT worker_id integer, OUT clock integer)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN datacenter_bits > 0 THEN node_number >> (worker_bits + clock_bits) END::integer,
		(node_number >> clock_bits & (1::bigint << worker_bits) - 1)::integer,
		CASE WHEN clock_bits > 0 THEN node_number & (1::bigint << clock_bits) - 1 END::integer
	FROM (SELECT snowflake.field_bits(layout, 'datacenter') AS datacenter_bits,
			snowflake.field_bits(layout, 'worker') AS worker_bits,
			snowflake.field_bits(layout, 'clock') AS clock_bits) AS l
$$;
COMMENT ON FUNCTION snowflake.node_number_parts(bigint, text) IS
'part of the lease functions: a node number is datacenter, worker and clock, from high to low';

--
-- Generations
--

-- A cluster's own tables are copied to its standbys, two of which could be writable at once, one promotion
-- apart.  The generation tells them: it grows with each entry of the server's timeline history that
-- was not counted yet.  Its leases start after the last ids of the one before.
CREATE FUNCTION snowflake.count_generation(timelines text[], system_identifier bigint, starts_at timestamptz) RETURNS snowflake.registry
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	result snowflake.registry;
BEGIN
	PERFORM snowflake.check_parameter(array_position(timelines, NULL) IS NULL AND timelines IS NOT NULL,
		'timelines', timelines::text, 'an array without NULLs');
	PERFORM snowflake.check_parameter(system_identifier IS NOT NULL, 'system_identifier', NULL, 'a number');
	UPDATE snowflake.registry AS r
	SET generation = r.generation + cardinality(new.entries), counted = r.counted || new.entries,
		system_identifier = system_identifier,
		starts_at = CASE WHEN new.entries <> '{}' OR r.system_identifier <> system_identifier
			THEN greatest(r.starts_at, starts_at) ELSE r.starts_at END
	FROM (SELECT ARRAY(SELECT DISTINCT t.entry FROM unnest(timelines) AS t (entry)
			WHERE NOT EXISTS (SELECT FROM snowflake.registry AS r WHERE r.one AND t.entry = ANY (r.counted))) AS entries) AS new
	WHERE r.one AND (new.entries <> '{}' OR r.system_identifier <> system_identifier);
	SELECT * INTO STRICT result FROM snowflake.registry AS r WHERE r.one;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.count_generation(text[], bigint, timestamptz) IS
'part of the lease functions: counts the entries of the timeline history that are new; if there are any, or the system identifier is another one, leases start at or after a time';

-- The registry's row is locked.
CREATE FUNCTION snowflake.write_uses(incarnation uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	uses CONSTANT text := CASE WHEN incarnation IS NULL THEN 'own' ELSE 'another' END;
BEGIN
	INSERT INTO snowflake.cluster (uses, incarnation)
	SELECT uses, incarnation WHERE NOT EXISTS (SELECT FROM snowflake.cluster AS c WHERE c.one);
	UPDATE snowflake.cluster AS c SET uses = uses, incarnation = incarnation
	WHERE c.one AND c.incarnation IS DISTINCT FROM incarnation;
END
$$;
COMMENT ON FUNCTION snowflake.write_uses(uuid) IS
'part of the lease functions: records where this cluster''s numbers come from, NULL being its own tables';

--
-- Calls of a start
--

-- Refuses a late call, and closes the open leases of its start: the one that the call names, if
-- it says where its ids end; and those that it does not name.  A lease that was granted later than the
-- named one never reached the node, and so issued nothing.  Returns the named lease as it was.
CREATE FUNCTION snowflake.begin_call(registry snowflake.registry, start uuid, call bigint,
	named uuid, named_end timestamptz) RETURNS snowflake.worker_node
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	lease snowflake.worker_node;
	last_call bigint;
BEGIN
	PERFORM snowflake.check_parameter(start IS NOT NULL, 'start', NULL, 'a uuid');
	PERFORM snowflake.check_parameter(call > 0, 'call', call::text, 'a positive number');
	PERFORM snowflake.check_parameter(named_end IS NULL OR isfinite(named_end), 'end', named_end::text, 'a finite time');
	SELECT w.last_call INTO last_call FROM snowflake.worker_node AS w
	WHERE w.start = start ORDER BY w.last_call DESC LIMIT 1;
	IF call <= last_call THEN
		RAISE EXCEPTION 'call % of this server arrived too late', call
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The registry has carried out call %s of the same start.', last_call),
			HINT = 'No action is needed: the lease worker makes a new call.';
	END IF;
	SELECT w.* INTO lease FROM snowflake.worker_node AS w WHERE w.token = named AND w.start = start;

	UPDATE snowflake.worker_node AS w
	SET leased_until = CASE
			WHEN w.incarnation <> registry.incarnation THEN w.leased_until
			WHEN w.token = lease.token THEN greatest(w.starts_at, named_end)
			WHEN w.granted_by > lease.granted_by THEN w.starts_at
			ELSE w.leased_until END,
		closed_at = clock_timestamp(), last_call = call
	WHERE w.start = start AND w.closed_at IS NULL
		AND (w.token IS DISTINCT FROM lease.token OR named_end IS NOT NULL);
	UPDATE snowflake.worker_node AS w SET last_call = call WHERE w.token = lease.token;
	RETURN lease;
END
$$;
COMMENT ON FUNCTION snowflake.begin_call(snowflake.registry, uuid, bigint, uuid, timestamptz) IS
'part of the lease functions: refuses late calls and closes what the start has no use for';

--
-- Layouts
--

-- The newest lease that may have issued ids, of this incarnation if it has any.  All its fields are
-- NULL if there is no lease.
CREATE FUNCTION snowflake.newest_lease(incarnation uuid) RETURNS snowflake.worker_node
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	result snowflake.worker_node;
BEGIN
	SELECT w.* INTO result FROM snowflake.worker_node AS w
	WHERE w.incarnation = incarnation AND (w.closed_at IS NULL OR w.leased_until > w.starts_at)
	ORDER BY w.renewed_at DESC LIMIT 1;
	IF NOT FOUND THEN
		-- one probe of the index for each incarnation
		WITH RECURSIVE newest AS (
			(SELECT w.* FROM snowflake.worker_node AS w
			WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at
			ORDER BY w.incarnation, w.renewed_at DESC LIMIT 1)
			UNION ALL
			SELECT following.* FROM newest, LATERAL (
				SELECT w.* FROM snowflake.worker_node AS w
				WHERE w.incarnation > newest.incarnation AND (w.closed_at IS NULL OR w.leased_until > w.starts_at)
				ORDER BY w.incarnation, w.renewed_at DESC LIMIT 1) AS following
		)
		SELECT n.* INTO result FROM newest AS n ORDER BY n.renewed_at DESC LIMIT 1;
	END IF;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.newest_lease(uuid) IS
'part of the lease functions: the lease whose layout is the recorded one';

-- Later than that of every lease, also after the registry's clock was set back: the newest lease
-- stays the newest.
CREATE FUNCTION snowflake.renewal_time(newest snowflake.worker_node) RETURNS timestamptz
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
	SELECT greatest(clock_timestamp(), newest.renewed_at + interval '1 microsecond')	-- greatest ignores NULL
$$;
COMMENT ON FUNCTION snowflake.renewal_time(snowflake.worker_node) IS
'part of the lease functions: when a lease is granted or renewed now';

-- The greatest id of the ticks that end at or before a time; -1 if there is no such tick.
CREATE FUNCTION snowflake.greatest_id(leased_until timestamptz, layout text) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN leased_until - l.tick < l.epoch THEN -1
		ELSE @extschema@.snowflake_max_id(least(leased_until - l.tick, l.last_id_time)::timestamptz, layout::text) END
	FROM @extschema@.snowflake_layout(layout::text) AS l
$$;
COMMENT ON FUNCTION snowflake.greatest_id(timestamptz, text) IS
'part of the lease functions: the greatest id that a lease of a default layout allows';

-- When the first tick begins whose ids are all greater than an id; infinity if there is no such tick.
-- Where the parameters are known, the planner may compute a branch that is not taken: so none fails.
CREATE FUNCTION snowflake.first_time_above(id bigint, layout text) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN id < 0 THEN l.epoch
		WHEN id >= @extschema@.snowflake_min_id(l.last_id_time::timestamptz, layout::text) THEN 'infinity'
		ELSE @extschema@.snowflake_timestamp(least(id, @extschema@.snowflake_max_id(l.last_id_time::timestamptz, layout::text))::bigint,
			layout::text) + l.tick END
	FROM @extschema@.snowflake_layout(layout::text) AS l
$$;
COMMENT ON FUNCTION snowflake.first_time_above(bigint, text) IS
'part of the lease functions: from when on the ids of a layout are greater than an id';

-- The greatest id that leases of any incarnation allow under default layouts other than the given one.
CREATE FUNCTION snowflake.greatest_id_of_others(layout text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
	-- one probe of the index for each layout
	WITH RECURSIVE used AS (
		(SELECT w.layout, w.leased_until FROM snowflake.worker_node AS w
		WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at
		ORDER BY w.layout, w.leased_until DESC LIMIT 1)
		UNION ALL
		SELECT following.* FROM used, LATERAL (
			SELECT w.layout, w.leased_until FROM snowflake.worker_node AS w
			WHERE w.layout > used.layout AND (w.closed_at IS NULL OR w.leased_until > w.starts_at)
			ORDER BY w.layout, w.leased_until DESC LIMIT 1) AS following
	)
	SELECT coalesce(max(snowflake.greatest_id(u.leased_until, u.layout)), -1) FROM used AS u WHERE u.layout <> $1
$$;
COMMENT ON FUNCTION snowflake.greatest_id_of_others(text) IS
'part of the lease functions: the greatest id that other layouts allow';

-- Whether a server may have leases with its default layout.  If the recorded one is another, this is a
-- change: ids of the new layout must be greater than all that were issued, and no other server may go on
-- under the old one.  Returns the time that leases of the new layout start at or after.
CREATE FUNCTION snowflake.check_layout(recorded text, layout text, layout_set boolean,
	node_clock timestamptz, max_ahead interval, host_name text, port integer, system_identifier bigint)
RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	layouts CONSTANT text := format('Ids were issued under "%s"; the server has "%s".', recorded, layout);
	-- the leases of other servers start after it, too, and their max_ahead may be less
	ahead CONSTANT interval := least(max_ahead, interval '10 s');
	other snowflake.worker_node;
	first_time timestamptz;
BEGIN
	IF recorded IS NULL OR recorded = layout THEN
		RETURN '-infinity';
	END IF;
	IF NOT layout_set THEN
		RAISE EXCEPTION 'snowflake.layout is not the one that ids were issued under'
			USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = layouts,
			HINT = format('Add "snowflake.layout = ''%s''" to postgresql.conf and restart the server.', recorded);
	END IF;
	-- at most one open row for each number
	SELECT w.* INTO other FROM snowflake.worker_node AS w
	WHERE w.closed_at IS NULL AND w.leased_until > least(node_clock, clock_timestamp())
		AND (w.host_name, w.port, w.system_identifier) <> (host_name, port, system_identifier)
	ORDER BY w.leased_until DESC LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'snowflake.layout is not the one that ids were issued under'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('%s The server on host "%s", port %s, has a lease until %s.',
				layouts, other.host_name, other.port, other.leased_until),
			HINT = format('Set snowflake.layout back and add the new layout to snowflake.extra_layouts; '
				'or stop all other servers: it is accepted from %s on.', other.leased_until);
	END IF;
	first_time := snowflake.first_time_above(snowflake.greatest_id_of_others(layout), layout);
	IF first_time > node_clock + ahead THEN
		RAISE EXCEPTION 'snowflake.layout is not the one that ids were issued under'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('%s Its ids would not be greater than all of them.', layouts),
			HINT = format('Set snowflake.layout back and add the new layout to snowflake.extra_layouts; '
				'as snowflake.layout it is %s.', CASE first_time WHEN 'infinity' THEN 'never accepted'
				ELSE format('accepted from %s on', first_time - ahead) END);
	END IF;
	RETURN first_time;
END
$$;
COMMENT ON FUNCTION snowflake.check_layout(text, text, boolean, timestamptz, interval, text, integer, bigint) IS
'part of the lease functions: whether a server may have leases with its default layout';

--
-- Choosing a number
--

-- The numbers from first to last that were leased, in rows of any incarnation, and the greatest end of
-- each: one probe of the index for each number, however long its history is.
CREATE FUNCTION snowflake.used_numbers(first bigint, last bigint)
RETURNS TABLE (node_number bigint, leased_until timestamptz)
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE used AS (
		(SELECT w.node_number, w.leased_until FROM snowflake.worker_node AS w
		WHERE w.node_number BETWEEN $1 AND $2
		ORDER BY w.node_number, w.leased_until DESC LIMIT 1)
		UNION ALL
		SELECT following.* FROM used, LATERAL (
			SELECT w.node_number, w.leased_until FROM snowflake.worker_node AS w
			WHERE w.node_number > used.node_number AND w.node_number <= $2
			ORDER BY w.node_number, w.leased_until DESC LIMIT 1) AS following
	)
	SELECT * FROM used
$$;
COMMENT ON FUNCTION snowflake.used_numbers(bigint, bigint) IS
'part of the lease functions: the node numbers that were leased, and until when';

-- One of the numbers first, first + step, ... up to last that was never leased, at random; NULL if all were.
CREATE FUNCTION snowflake.unused_number(first bigint, last bigint, step integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	count CONSTANT bigint := (last - first) / step + 1;
	used bigint[];
	candidate bigint;
BEGIN
	FOR try IN 1 .. 20 LOOP
		candidate := first + step * least(floor(random() * count)::bigint, count - 1);
		IF NOT EXISTS (SELECT FROM snowflake.worker_node AS w WHERE w.node_number = candidate) THEN
			RETURN candidate;
		END IF;
	END LOOP;
	-- most are used: the n-th of those that are not
	used := ARRAY(SELECT u.node_number FROM snowflake.used_numbers(first, last) AS u
		WHERE (u.node_number - first) % step = 0 ORDER BY u.node_number);
	IF cardinality(used) = count THEN
		RETURN NULL;
	END IF;
	candidate := least(floor(random() * (count - cardinality(used)))::bigint, count - cardinality(used) - 1);
	SELECT first + step * (candidate + count(*)) INTO candidate
	FROM unnest(used) WITH ORDINALITY AS u (node_number, nr)
	WHERE (u.node_number - first) / step - (u.nr - 1) <= candidate;	-- how many unused ones are lower
	RETURN candidate;
END
$$;
COMMENT ON FUNCTION snowflake.unused_number(bigint, bigint, integer) IS
'part of the lease functions: a node number that was never leased';

-- An automatic number is free if no lease of it can be live by anyone's clock, and if ids can go on in it
-- now.  Never used ones come first, then the longest unused.
CREATE FUNCTION snowflake.choose_automatic(first bigint, last bigint, step integer, node_clock timestamptz)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	earlier_clock CONSTANT timestamptz := least(node_clock, clock_timestamp());
	result bigint := snowflake.unused_number(first, last, step);
	earliest timestamptz;
BEGIN
	IF result IS NOT NULL THEN
		RETURN result;
	END IF;
	SELECT u.node_number INTO result FROM snowflake.used_numbers(first, last) AS u
	WHERE (u.node_number - first) % step = 0 AND u.leased_until <= node_clock
		AND NOT EXISTS (SELECT FROM snowflake.worker_node AS w
			WHERE w.node_number = u.node_number AND w.closed_at IS NULL AND w.leased_until > earlier_clock)
	ORDER BY u.leased_until, u.node_number LIMIT 1;
	IF FOUND THEN
		RETURN result;
	END IF;
	SELECT min(u.leased_until) INTO earliest FROM snowflake.used_numbers(first, last) AS u
	WHERE (u.node_number - first) % step = 0;
	RAISE EXCEPTION 'no node number is free'
		USING ERRCODE = 'configuration_limit_exceeded',
		DETAIL = format('Of %s numbers the earliest end is %s; the clock, of server or registry, that is behind shows %s.',
			(last - first) / step + 1, earliest, earlier_clock),
		HINT = 'Wait for that, stop a server that needs no number, or choose a layout with more worker bits.';
END
$$;
COMMENT ON FUNCTION snowflake.choose_automatic(bigint, bigint, integer, timestamptz) IS
'part of the lease functions: a number that any server may have';

-- The numbers from first to last are the server's own: one, or as many as its layout has clocks.  Of them it
-- gets the last one in which ids can go on, else one that was never leased, else the one that ends first.
CREATE FUNCTION snowflake.choose_fixed(first bigint, last bigint, node_clock timestamptz, max_ahead interval)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	result bigint;
BEGIN
	SELECT u.node_number INTO result FROM snowflake.used_numbers(first, last) AS u
	WHERE u.leased_until <= node_clock + max_ahead
	ORDER BY u.leased_until DESC, u.node_number LIMIT 1;
	result := coalesce(result, snowflake.unused_number(first, last, 1));
	IF result IS NULL THEN
		SELECT u.node_number INTO result FROM snowflake.used_numbers(first, last) AS u
		ORDER BY u.leased_until, u.node_number LIMIT 1;
	END IF;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.choose_fixed(bigint, bigint, timestamptz, interval) IS
'part of the lease functions: which of its own numbers a server is to have';

-- A fixed number that another start may still use is refused.  own_cluster: rows of this system identifier
-- are the server's own, or of the primary that it was a standby of; NULL if the registry is another cluster's.
CREATE FUNCTION snowflake.check_other_server(first bigint, last bigint, start uuid, own_cluster bigint,
	node_clock timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	other snowflake.worker_node;
BEGIN
	SELECT w.* INTO other FROM snowflake.worker_node AS w
	WHERE w.node_number BETWEEN first AND last AND w.closed_at IS NULL
		AND w.leased_until > least(node_clock, clock_timestamp())
		AND w.start <> start AND w.system_identifier IS DISTINCT FROM own_cluster
	ORDER BY w.leased_until DESC LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'node number % is leased to the server on host "%", port %, started at %',
			other.node_number, other.host_name, other.port, other.launched_at
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Its lease ends at %s.', other.leased_until),
			HINT = 'Set another snowflake.worker_id. If that server is gone for good, its number is free when its lease is over.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_other_server(bigint, bigint, uuid, bigint, timestamptz) IS
'part of the lease functions: refuses a fixed number that another server has';

CREATE FUNCTION snowflake.choose_number(registry snowflake.registry, own boolean, first bigint, last bigint,
	fixed boolean, start uuid, system_identifier bigint, node_clock timestamptz, max_ahead interval)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	odd_bit CONSTANT bigint := 1 - registry.generation % 2;	-- bit 0 of automatic numbers of the own table
BEGIN
	IF fixed THEN
		PERFORM snowflake.check_other_server(first, last, start, CASE WHEN own THEN system_identifier END, node_clock);
		RETURN snowflake.choose_fixed(first, last, node_clock, max_ahead);
	END IF;
	IF NOT own THEN
		RETURN snowflake.choose_automatic(first, last, 1, node_clock);
	END IF;
	IF first = last THEN
		RAISE EXCEPTION 'the layout has too few node numbers'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Without a registry, automatic numbers need two bits for datacenter, worker and clock in every layout in use: one of them tells a promoted server from the one before it.',
			HINT = 'Set snowflake.registry, set snowflake.worker_id to a number, or choose layouts with more worker bits.';
	END IF;
	RETURN snowflake.choose_automatic(first + abs((first & 1) - odd_bit), last - abs((last & 1) - odd_bit), 2, node_clock);
END
$$;
COMMENT ON FUNCTION snowflake.choose_number(snowflake.registry, boolean, bigint, bigint, boolean, uuid, bigint, timestamptz, interval) IS
'part of the lease functions: which node number a server is to have';

-- Ids of tables that are gone were at most max_ahead past the clock when these were made, and their ticks
-- end one tick later.
CREATE FUNCTION snowflake.creation_floor(registry snowflake.registry, max_ahead interval, tick interval)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT registry.created_at + max_ahead + tick
$$;
COMMENT ON FUNCTION snowflake.creation_floor(snowflake.registry, interval, interval) IS
'part of the lease functions: the end of all ids of the tables before';

-- The time that every lease of the registry starts at or after, as its tables say.
CREATE FUNCTION snowflake.registry_floor(registry snowflake.registry, max_ahead interval, tick interval)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT greatest(snowflake.creation_floor(registry, max_ahead, tick), registry.starts_at)
$$;
COMMENT ON FUNCTION snowflake.registry_floor(snowflake.registry, interval, interval) IS
'part of the lease functions: the time that all leases of the registry start at or after';

-- The time that a lease of a node starts at or after.  node_floor: the end of ids that the node knows of and
-- the registry does not; NULL if there are no such ids.
CREATE FUNCTION snowflake.lease_floor(registry snowflake.registry, node_clock timestamptz, max_ahead interval,
	tick interval, node_floor timestamptz) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	latest CONSTANT timestamptz := node_clock + interval '10 s';	-- and max_ahead, which ids may be ahead
BEGIN
	IF registry.created_at > latest THEN
		RAISE EXCEPTION 'the server''s clock is behind the creation of the extension'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock shows %s; the extension was created at %s.', node_clock, registry.created_at),
			HINT = 'Correct the clock. If it was ahead when the extension was created, DROP EXTENSION in database postgres of the registry and CREATE EXTENSION again.';
	END IF;
	IF registry.starts_at > latest + max_ahead THEN
		RAISE EXCEPTION 'the server''s clock is behind the time that leases start at'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock shows %s; leases start at %s, since the last promotion or pg_upgrade, or change of layout or registry.',
				node_clock, registry.starts_at),
			HINT = 'Correct the clock, or wait until it shows that time.';
	END IF;
	IF node_floor > latest + max_ahead THEN
		RAISE EXCEPTION 'the server''s clock is behind ids that the registry does not know of'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock shows %s; ids were issued until %s.', node_clock, node_floor),
			HINT = 'Correct the clock, or wait until it shows that time. If these ids are gone, restart the server.';
	END IF;
	RETURN greatest(snowflake.registry_floor(registry, max_ahead, tick), node_floor);	-- greatest ignores NULL
END
$$;
COMMENT ON FUNCTION snowflake.lease_floor(snowflake.registry, timestamptz, interval, interval, timestamptz) IS
'part of the lease functions: the time that a lease starts at or after, whatever its number';

-- A registry of another cluster is not the node's own.
CREATE FUNCTION snowflake.check_other_cluster(system_identifier bigint, launched_at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	IF pg_postmaster_start_time() = launched_at
		AND (SELECT c.system_identifier FROM pg_control_system() AS c) = system_identifier THEN
		RAISE EXCEPTION 'the registry is the server itself'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Both have the system identifier %s and were started at %s.', system_identifier, launched_at),
			HINT = 'Leave snowflake.registry empty on this server.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_other_cluster(bigint, timestamptz) IS
'part of the lease functions: refuses the node itself as the registry of another cluster';

-- A node must not use a registry other than the recorded one.
CREATE FUNCTION snowflake.check_registry(registry snowflake.registry, own boolean, incarnation uuid,
	system_identifier bigint, launched_at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	back CONSTANT text := 'Set snowflake.registry back; or, after pg_upgrade, a restore or a promotion, call snowflake_change_registry().';
BEGIN
	IF own AND EXISTS (SELECT FROM snowflake.cluster AS c WHERE c.one AND c.uses = 'another') THEN
		RAISE EXCEPTION 'the ids of this cluster were issued with another cluster''s registry'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = (SELECT format('Its incarnation is %s; snowflake.registry is empty.', c.incarnation)
				FROM snowflake.cluster AS c WHERE c.one),
			HINT = back;
	END IF;
	IF own THEN
		RETURN;
	END IF;
	PERFORM snowflake.check_other_cluster(system_identifier, launched_at);
	IF incarnation <> registry.incarnation THEN
		RAISE EXCEPTION 'the registry is not the one that this cluster''s ids were issued with'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Its incarnation is %s, the recorded one %s.', registry.incarnation, incarnation),
			HINT = back;
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_registry(snowflake.registry, boolean, uuid, bigint, timestamptz) IS
'part of the lease functions: refuses a registry other than the recorded one';

--
-- What the lease worker calls.  Each call is a transaction of its own.
--

-- At each start of a writable server, and when a standby is promoted.
CREATE FUNCTION snowflake.start_server(version text, timelines text[],
	node_clock timestamptz, max_ahead interval, tick interval, system_identifier bigint,
	OUT uses text, OUT incarnation uuid, OUT generation integer, OUT starts_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
BEGIN
	PERFORM snowflake.check_parameter(p.fits, p.name, p.value, p.bound) FROM (VALUES
		(isfinite(node_clock), 'node_clock', node_clock::text, 'a finite time'),
		(max_ahead BETWEEN '0' AND '1 day', 'max_ahead', max_ahead::text, 'from 0 to 1 day'),
		(tick > '0' AND tick <= '1 s', 'tick', tick::text, 'above 0, up to 1 s')) AS p (fits, name, value, bound);
	registry := snowflake.count_generation(timelines, system_identifier, node_clock + max_ahead + tick);
	generation := registry.generation;
	starts_at := snowflake.creation_floor(registry, max_ahead, tick);
	SELECT c.uses, c.incarnation INTO uses, incarnation FROM snowflake.cluster AS c WHERE c.one;
END
$$;
COMMENT ON FUNCTION snowflake.start_server(text, text[], timestamptz, interval, interval, bigint) IS
'counts the generation of this cluster and returns it, where its numbers come from, and the end of all ids of the tables before; for the lease worker';

-- Grants a lease.
--
-- own: the registry is the node's own cluster.  first_number, last_number: those the node can use, or with
-- "fixed" those that it is to use.  incarnation: of the registry that the node is bound to, NULL if any
-- will do.  known_until: the end of all ids of this start, whose last lease was of known_incarnation;
-- node_floor: of those that this last registry does not know of.  previous_token: the lease it had in this
-- start; its ids end at previous_end (NULL: they go on).
CREATE FUNCTION snowflake.acquire_lease(version text, start uuid, call bigint, own boolean, incarnation uuid,
	first_number bigint, last_number bigint, fixed boolean, layout text, layout_set boolean, tick interval,
	node_clock timestamptz, max_ahead interval, lease_window interval,
	host_name text, port integer, system_identifier bigint, timeline integer, timelines text[], launched_at timestamptz,
	known_until timestamptz, known_incarnation uuid, node_floor timestamptz, previous_token uuid, previous_end timestamptz,
	OUT token uuid, OUT registry_incarnation uuid, OUT node_number bigint, OUT starts_at timestamptz,
	OUT leased_until timestamptz, OUT registry_clock timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
	newest snowflake.worker_node;
	layout_floor timestamptz;
BEGIN
	SELECT l.definition INTO layout FROM @extschema@.snowflake_layout(layout::text) AS l;
	PERFORM snowflake.check_parameter(p.fits, p.name, p.value, p.bound) FROM (VALUES
		(own IS NOT NULL, 'own', NULL, 'true or false'),
		(fixed IS NOT NULL, 'fixed', NULL, 'true or false'),
		(layout IS NOT NULL, 'layout', NULL, 'a layout'),
		(layout_set IS NOT NULL, 'layout_set', NULL, 'true or false'),
		(first_number BETWEEN 0 AND last_number, 'first_number', first_number::text, format('from 0 to %s', last_number)),
		(last_number < 1::bigint << snowflake.field_bits(layout, 'datacenter') + snowflake.field_bits(layout, 'worker')
			+ snowflake.field_bits(layout, 'clock'), 'last_number', last_number::text, format('a node number of "%s"', layout)),
		(tick > '0' AND tick <= '1 s', 'tick', tick::text, 'above 0, up to 1 s'),
		(isfinite(node_clock), 'node_clock', node_clock::text, 'a finite time'),
		(max_ahead BETWEEN '0' AND '1 day', 'max_ahead', max_ahead::text, 'from 0 to 1 day'),
		(lease_window BETWEEN '0' AND '2 days', 'lease_window', lease_window::text, 'from 0 to 2 days'),
		(host_name IS NOT NULL, 'host_name', NULL, 'a text'),
		(port IS NOT NULL, 'port', NULL, 'a number'),
		(system_identifier IS NOT NULL, 'system_identifier', NULL, 'a number'),
		(timeline IS NOT NULL, 'timeline', NULL, 'a number'),
		(isfinite(launched_at), 'launched_at', launched_at::text, 'a finite time'),
		(known_until IS NULL OR known_until < 'infinity', 'known_until', known_until::text, 'a time or NULL'),
		(node_floor IS NULL OR node_floor < 'infinity', 'node_floor', node_floor::text, 'a time or NULL'))
		AS p (fits, name, value, bound);
	PERFORM snowflake.check_registry(registry, own, incarnation, system_identifier, launched_at);
	IF own THEN
		registry := snowflake.count_generation(timelines, system_identifier, node_clock + max_ahead + tick);
		PERFORM snowflake.write_uses(NULL);
	END IF;
	PERFORM snowflake.begin_call(registry, start, call, previous_token, previous_end);

	newest := snowflake.newest_lease(registry.incarnation);
	layout_floor := snowflake.check_layout(newest.layout, layout, layout_set, node_clock, max_ahead,
		host_name, port, system_identifier);
	IF known_incarnation IS DISTINCT FROM registry.incarnation THEN
		node_floor := greatest(node_floor, known_until);
	END IF;
	starts_at := greatest(layout_floor, snowflake.lease_floor(registry, node_clock, max_ahead, tick, node_floor));
	-- what holds for this lease holds for all that are granted later
	UPDATE snowflake.registry AS r
	SET starts_at = greatest(r.starts_at, layout_floor, CASE WHEN own THEN node_floor END)
	WHERE r.one AND (layout_floor > r.starts_at
		OR own AND node_floor > snowflake.registry_floor(registry, max_ahead, tick));

	node_number := snowflake.choose_number(registry, own, first_number, last_number, fixed, start,
		system_identifier, node_clock, max_ahead);
	UPDATE snowflake.worker_node AS w SET closed_at = clock_timestamp()
	WHERE w.node_number = node_number AND w.closed_at IS NULL;
	-- of all incarnations: a dump brings what was issued
	starts_at := greatest(starts_at, (SELECT w.leased_until FROM snowflake.worker_node AS w
		WHERE w.node_number = node_number ORDER BY w.leased_until DESC LIMIT 1));
	token := gen_random_uuid();
	registry_incarnation := registry.incarnation;
	registry_clock := clock_timestamp();
	leased_until := greatest(node_clock, starts_at) + lease_window;
	INSERT INTO snowflake.worker_node (token, start, granted_by, last_call, system_identifier, host_name, port, timeline,
		incarnation, node_number, datacenter_id, worker_id, clock, layout, launched_at, starts_at, leased_until, renewed_at)
	SELECT token, start, call, call, system_identifier, host_name, port, timeline,
		registry.incarnation, node_number, p.datacenter_id, p.worker_id, p.clock, layout, launched_at, starts_at, leased_until,
		snowflake.renewal_time(newest)
	FROM snowflake.node_number_parts(node_number, layout) AS p;
END
$$;
COMMENT ON FUNCTION snowflake.acquire_lease(text, uuid, bigint, boolean, uuid, bigint, bigint, boolean, text, boolean, interval,
	timestamptz, interval, interval, text, integer, bigint, integer, text[], timestamptz, timestamptz, uuid, timestamptz, uuid, timestamptz) IS
'grants a node number for ids from starts_at to leased_until; for the lease worker';

CREATE FUNCTION snowflake.renew_lease(version text, start uuid, call bigint, token uuid, lease_until timestamptz,
	layout text, node_clock timestamptz) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
	lease snowflake.worker_node;
	newest snowflake.worker_node;
	result timestamptz;
BEGIN
	PERFORM snowflake.check_parameter(isfinite(node_clock), 'node_clock', node_clock::text, 'a finite time');
	SELECT l.definition INTO layout FROM @extschema@.snowflake_layout(layout::text) AS l;
	PERFORM snowflake.check_parameter(layout IS NOT NULL, 'layout', NULL, 'a layout');
	lease := snowflake.begin_call(registry, start, call, token, NULL);
	PERFORM snowflake.check_parameter(lease_until <= greatest(node_clock, lease.starts_at) + interval '2 days' AND isfinite(lease_until),
		'lease_until', lease_until::text, 'up to 2 days after the clock and the lease''s start');
	newest := snowflake.newest_lease(registry.incarnation);
	IF layout <> newest.layout THEN
		RAISE EXCEPTION 'snowflake.layout is not the one that ids are issued under now'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Ids are issued under "%s"; the server has "%s".', newest.layout, layout),
			HINT = format('Set snowflake.layout to ''%s'' and add the other one to snowflake.extra_layouts.', newest.layout);
	END IF;
	UPDATE snowflake.worker_node AS w
	SET leased_until = greatest(w.leased_until, lease_until), renewed_at = snowflake.renewal_time(newest)
	WHERE w.token = lease.token AND w.incarnation = registry.incarnation AND w.closed_at IS NULL
	RETURNING w.leased_until INTO result;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.renew_lease(text, uuid, bigint, uuid, timestamptz, text, timestamptz) IS
'raises the end of an open lease and returns it, or NULL if the lease is not open; for the lease worker';

CREATE FUNCTION snowflake.release_lease(version text, start uuid, call bigint, token uuid, lease_end timestamptz)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
	lease snowflake.worker_node;
BEGIN
	PERFORM snowflake.check_parameter(isfinite(lease_end), 'lease_end', lease_end::text, 'a finite time');
	lease := snowflake.begin_call(registry, start, call, token, lease_end);
	RETURN lease.token IS NOT NULL AND lease.closed_at IS NULL;
END
$$;
COMMENT ON FUNCTION snowflake.release_lease(text, uuid, bigint, uuid, timestamptz) IS
'closes a lease at the end of its ids; returns whether it was open; for the lease worker';

-- change: another record is replaced, by order of a superuser.  Without it a record that a restore has
-- brought meanwhile is kept, and what was asked for is refused.
CREATE FUNCTION snowflake.record_uses(version text, incarnation uuid, change boolean DEFAULT true)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	registry CONSTANT snowflake.registry := snowflake.lock_registry(version);
BEGIN
	IF NOT change AND EXISTS (SELECT FROM snowflake.cluster AS c WHERE c.one AND c.incarnation IS DISTINCT FROM incarnation) THEN
		RAISE EXCEPTION 'the registry is not the one that this cluster''s ids were issued with'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = (SELECT format('Its incarnation is %s; the cluster uses %s.', incarnation,
				coalesce(c.incarnation::text, 'its own tables')) FROM snowflake.cluster AS c WHERE c.one),
			HINT = 'Set snowflake.registry back; or, after pg_upgrade, a restore or a promotion, call snowflake_change_registry().';
	END IF;
	PERFORM snowflake.write_uses(incarnation);
END
$$;
COMMENT ON FUNCTION snowflake.record_uses(text, uuid, boolean) IS
'records that numbers of this cluster come from the registry with the incarnation, NULL: from its own tables; for the lease worker';

-- Only for snowflake_change_registry(): reads the whole table.
CREATE FUNCTION snowflake.list_ends(version text, max_ahead interval, tick interval,
	OUT incarnation uuid, OUT starts_at timestamptz, OUT node_numbers bigint[], OUT ends timestamptz[],
	OUT layouts text[], OUT uses text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	registry CONSTANT snowflake.registry := snowflake.lock_registry(version);
BEGIN
	incarnation := registry.incarnation;
	starts_at := snowflake.registry_floor(registry, max_ahead, tick);
	SELECT c.uses INTO uses FROM snowflake.cluster AS c WHERE c.one;
	-- those that were renewed last come last; a lease that was closed where it started issued nothing
	SELECT coalesce(array_agg(e.node_number ORDER BY e.renewed_at, e.node_number), '{}'),
		coalesce(array_agg(e.leased_until ORDER BY e.renewed_at, e.node_number), '{}'),
		coalesce(array_agg(e.layout ORDER BY e.renewed_at, e.node_number), '{}')
	INTO node_numbers, ends, layouts
	FROM (SELECT w.node_number, w.layout, max(w.leased_until) AS leased_until, max(w.renewed_at) AS renewed_at
		FROM snowflake.worker_node AS w WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at
		GROUP BY w.node_number, w.layout) AS e;
END
$$;
COMMENT ON FUNCTION snowflake.list_ends(text, interval, interval) IS
'the greatest end of each node number and layout, the time that leases start at or after, and where the numbers of this cluster come from; for the lease worker';

-- Takes over what snowflake.list_ends() of another registry has returned: as closed rows of its incarnation,
-- but for those that are here already; and its floor, which stands for ids that are in no row.  Closes all
-- open leases of the start.
CREATE FUNCTION snowflake.hand_over(version text, own boolean, incarnation uuid, starts_at timestamptz,
	node_numbers bigint[], ends timestamptz[], layouts text[], start uuid, call bigint,
	host_name text, port integer, system_identifier bigint, timeline integer, launched_at timestamptz,
	OUT registry_incarnation uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
BEGIN
	PERFORM snowflake.check_parameter(p.fits, p.name, p.value, p.bound) FROM (VALUES
		(own IS NOT NULL, 'own', NULL, 'true or false'),
		(incarnation IS NOT NULL, 'incarnation', NULL, 'a uuid'),
		(starts_at IS NULL OR starts_at < 'infinity', 'starts_at', starts_at::text, 'a time or NULL'),
		(host_name IS NOT NULL, 'host_name', NULL, 'a text'),
		(port IS NOT NULL, 'port', NULL, 'a number'),
		(system_identifier IS NOT NULL, 'system_identifier', NULL, 'a number'),
		(timeline IS NOT NULL, 'timeline', NULL, 'a number'),
		(isfinite(launched_at), 'launched_at', launched_at::text, 'a finite time'))
		AS p (fits, name, value, bound);
	PERFORM snowflake.check_parameter(node_numbers IS NOT NULL AND cardinality(ends) = cardinality(node_numbers)
		AND cardinality(layouts) = cardinality(node_numbers), 'node_numbers', cardinality(node_numbers)::text || ' elements',
		format('as many as ends (%s) and layouts (%s)', cardinality(ends), cardinality(layouts)));
	PERFORM snowflake.check_parameter(n.node_number >= 0 AND isfinite(n.leased_until) AND n.layout IS NOT NULL,
		'node_numbers', format('%s until %s under "%s"', n.node_number, n.leased_until, n.layout),
		'numbers from 0 up, with finite ends and layouts')
	FROM unnest(node_numbers, ends, layouts) AS n (node_number, leased_until, layout);
	IF NOT own THEN
		PERFORM snowflake.check_other_cluster(system_identifier, launched_at);
	END IF;
	IF starts_at > clock_timestamp() + interval '10 s' THEN
		RAISE EXCEPTION 'the former registry issues no ids before %', starts_at
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock of the new one shows %s; it would refuse leases until that time.', clock_timestamp()),
			HINT = 'Wait until 10 s before that time, or correct the clock. If all ids issued are past, DROP EXTENSION in database postgres of the former registry and CREATE EXTENSION again.';
	END IF;
	PERFORM snowflake.begin_call(registry, start, call, NULL, NULL);
	UPDATE snowflake.registry AS r SET starts_at = starts_at WHERE r.one AND r.starts_at < starts_at;

	registry_incarnation := registry.incarnation;
	IF incarnation = registry.incarnation THEN
		incarnation := gen_random_uuid();	-- a copy of this cluster, or a standby of it that was promoted beside it
	END IF;
	INSERT INTO snowflake.worker_node (start, granted_by, last_call, system_identifier, host_name, port, timeline,
		incarnation, node_number, datacenter_id, worker_id, clock, layout, launched_at, starts_at, leased_until,
		renewed_at, closed_at)
	SELECT start, call, call, system_identifier, host_name, port, timeline,
		incarnation, n.node_number, p.datacenter_id, p.worker_id, p.clock, l.definition, launched_at, '-infinity', n.leased_until,
		c.now + n.nr * interval '1 microsecond', c.now
	FROM unnest(node_numbers, ends, layouts) WITH ORDINALITY AS n (node_number, leased_until, layout, nr),
		(SELECT clock_timestamp()) AS c (now),
		@extschema@.snowflake_layout(n.layout::text) AS l,
		snowflake.node_number_parts(n.node_number, l.definition) AS p
	WHERE NOT EXISTS (SELECT FROM snowflake.worker_node AS w
		WHERE w.node_number = n.node_number AND w.leased_until >= n.leased_until AND w.layout = l.definition
			AND w.closed_at IS NOT NULL)	-- an open one may be closed earlier
	ORDER BY n.nr;
END
$$;
COMMENT ON FUNCTION snowflake.hand_over(text, boolean, uuid, timestamptz, bigint[], timestamptz[], text[], uuid, bigint,
	text, integer, bigint, integer, timestamptz) IS
'takes over the ends of node numbers from another registry, as closed leases, and its floor; for the lease worker';

--
-- Reading, for snowflake_audit().  Nothing here locks the registry or writes: it works on a hot
-- standby, too.
--

-- What the leases of the node numbers from a first one up allow: of as many whole numbers as have
-- some 10,000 leases, or of one that has more; and the number to go on with.  Times are microseconds
-- since 1970, as no setting changes them.  A row that was handed over from another registry, whose
-- starts_at is -infinity (NULL here), stands for all leases of the number there.  All rows count,
-- those of other incarnations and layouts too: ids were issued under them.
--
-- leased_until is committed before an id under it is issued, and lowered only to the end of all ids.
-- So who reads this after a snapshot of some ids finds the leases of all ids in that snapshot.
CREATE FUNCTION snowflake.lease_page(first_number bigint, OUT next_number bigint,
	OUT node_numbers bigint[], OUT launched bigint[], OUT starts bigint[], OUT ends bigint[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	SELECT w.node_number INTO next_number FROM snowflake.worker_node AS w
	WHERE w.node_number >= first_number ORDER BY w.node_number OFFSET 10000 LIMIT 1;
	IF next_number IS NOT NULL AND NOT EXISTS (SELECT FROM snowflake.worker_node AS w
			WHERE w.node_number >= first_number AND w.node_number < next_number) THEN
		next_number := next_number + 1;		-- all of them are of one number
	END IF;
	SELECT coalesce(array_agg(w.node_number), '{}'),
		coalesce(array_agg(CASE WHEN isfinite(w.starts_at) THEN extract(epoch FROM w.launched_at) * 1000000 END::bigint), '{}'),
		coalesce(array_agg(CASE WHEN isfinite(w.starts_at) THEN extract(epoch FROM w.starts_at) * 1000000 END::bigint), '{}'),
		coalesce(array_agg((extract(epoch FROM w.leased_until) * 1000000)::bigint), '{}')
	INTO node_numbers, launched, starts, ends
	FROM snowflake.worker_node AS w
	WHERE w.node_number >= first_number AND w.node_number < coalesce(next_number, 9223372036854775807);
END
$$;
COMMENT ON FUNCTION snowflake.lease_page(bigint) IS
'part of snowflake_audit(): the leases of the node numbers from a first one up, some at a time';

-- The same for a node, with which registry this is, and which other one the numbers of its own cluster come
-- from.  The incarnation is NULL in a copy of the database that has granted no lease yet.
CREATE FUNCTION snowflake.list_leases(version text, first_number bigint, OUT incarnation uuid, OUT used uuid,
	OUT next_number bigint, OUT node_numbers bigint[], OUT launched bigint[], OUT starts bigint[], OUT ends bigint[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	PERFORM snowflake.check_version(version);
	SELECT r.incarnation INTO incarnation
	FROM snowflake.registry AS r JOIN pg_database AS d ON d.oid = r.database
	WHERE r.one AND d.datname = current_database();
	SELECT c.incarnation INTO used FROM snowflake.cluster AS c WHERE c.one;
	SELECT p.next_number, p.node_numbers, p.launched, p.starts, p.ends
	INTO next_number, node_numbers, launched, starts, ends
	FROM snowflake.lease_page(first_number) AS p;
END
$$;
COMMENT ON FUNCTION snowflake.list_leases(text, bigint) IS
'the leases of the node numbers from a first one up, some at a time; only reads; for the lease worker';

REVOKE EXECUTE ON FUNCTION
	snowflake.list_leases, snowflake.lease_page,
	snowflake.check_parameter, snowflake.field_bits, snowflake.node_number_parts,
	snowflake.count_generation, snowflake.write_uses, snowflake.begin_call,
	snowflake.newest_lease, snowflake.renewal_time, snowflake.greatest_id, snowflake.first_time_above,
	snowflake.greatest_id_of_others, snowflake.check_layout,
	snowflake.used_numbers, snowflake.unused_number, snowflake.choose_automatic, snowflake.choose_fixed,
	snowflake.check_other_server, snowflake.choose_number, snowflake.creation_floor, snowflake.registry_floor,
	snowflake.lease_floor, snowflake.check_other_cluster, snowflake.check_registry,
	snowflake.start_server, snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease,
	snowflake.record_uses, snowflake.list_ends, snowflake.hand_over
FROM PUBLIC;


--
-- What an administrator orders this server to do
--
CREATE FUNCTION snowflake_release() RETURNS void
AS 'MODULE_PATHNAME', 'snowflake_release'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_release() IS
'ends this server''s lease at the last id that it issued; the next id needs a new lease';
REVOKE EXECUTE ON FUNCTION snowflake_release() FROM PUBLIC;

CREATE FUNCTION snowflake_change_registry() RETURNS void
AS 'MODULE_PATHNAME', 'snowflake_change_registry'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_change_registry() IS
'lets this server lease its node number from the registry that snowflake.registry names now, after another one';
REVOKE EXECUTE ON FUNCTION snowflake_change_registry() FROM PUBLIC;
--
-- Ids as text
--
CREATE FUNCTION snowflake_encode(id bigint, format text) RETURNS text
AS 'MODULE_PATHNAME', 'snowflake_encode'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_encode(bigint, text) IS
'an id as text of a fixed width that sorts like the id in COLLATE "C"; format: base62, crockford32, hex or decimal';

CREATE FUNCTION snowflake_decode(encoded text, format text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_decode'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_decode(text, text) IS
'the id of a text that snowflake_encode wrote in the given format; any other text is an error';
--
-- Ids that tell nothing
--
CREATE FUNCTION snowflake_mask(id bigint, key bytea) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_mask'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_mask(bigint, bytea) IS
'an id for the public that shows neither time nor order: a permutation of the non-negative bigints (FF1 with AES) by a secret key of 16, 24 or 32 bytes';

CREATE FUNCTION snowflake_unmask(masked bigint, key bytea) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_unmask'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_unmask(bigint, bytea) IS
'the id that snowflake_mask turned into this number with the same key';

--
-- Ranges of time as ranges of ids, and partitions by them
--
CREATE FUNCTION snowflake_range(since timestamptz, until timestamptz) RETURNS int8range
AS 'MODULE_PATHNAME', 'snowflake_range'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_range(timestamptz, timestamptz) IS
'ids of the server''s layout whose timestamp is in [since, until)';

CREATE FUNCTION snowflake_range(since timestamptz, until timestamptz, layout text) RETURNS int8range
AS 'MODULE_PATHNAME', 'snowflake_range_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_range(timestamptz, timestamptz, text) IS
'ids of the given layout whose timestamp is in [since, until)';

-- A condition for queries.  The planner puts the two comparisons in its place, so that indexes
-- on the id are used and partitions are left out: therefore these functions are not STRICT and set
-- nothing, and the bounds are closed.
CREATE FUNCTION snowflake.first_id_from(since timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_first_id_from'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake.first_id_from(timestamptz) IS
'part of snowflake_within(): the first id of the ticks that begin at or after a time';

CREATE FUNCTION snowflake.first_id_from(since timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_first_id_from_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake.first_id_from(timestamptz, text) IS
'part of snowflake_within(): the first id of the ticks that begin at or after a time';

CREATE FUNCTION snowflake.last_id_within(since timestamptz, until timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_last_id_within'
LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake.last_id_within(timestamptz, timestamptz) IS
'part of snowflake_within(): the last id of the ticks that begin from since to before until; -1 if there is no such id';

CREATE FUNCTION snowflake.last_id_within(since timestamptz, until timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_last_id_within_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake.last_id_within(timestamptz, timestamptz, text) IS
'part of snowflake_within(): the last id of the ticks that begin from since to before until; -1 if there is no such id';

CREATE FUNCTION snowflake_within(id bigint, since timestamptz, until timestamptz) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
	SELECT id OPERATOR(pg_catalog.>=) snowflake.first_id_from(since)
		AND id OPERATOR(pg_catalog.<=) snowflake.last_id_within(since, until)
$$;
COMMENT ON FUNCTION snowflake_within(bigint, timestamptz, timestamptz) IS
'whether the timestamp of an id of the server''s layout is in [since, until); uses indexes on the id';

CREATE FUNCTION snowflake_within(id bigint, since timestamptz, until timestamptz, layout text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
	SELECT id OPERATOR(pg_catalog.>=) snowflake.first_id_from(since, layout)
		AND id OPERATOR(pg_catalog.<=) snowflake.last_id_within(since, until, layout)
$$;
COMMENT ON FUNCTION snowflake_within(bigint, timestamptz, timestamptz, text) IS
'whether the timestamp of an id of the given layout is in [since, until); uses indexes on the id';

-- Where the step begins that contains a time, in UTC: steps of months are counted from January of
-- the year 1, others from Monday, 1 January 2001.  So bounds do not depend on since.
CREATE FUNCTION snowflake.step_start(at timestamptz, step interval) RETURNS timestamp
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION snowflake.step_start(timestamptz, interval) IS
'part of snowflake_partition_bounds(): where the step begins that contains a time, in UTC';

-- The first and the last partition end where the layout does.
CREATE FUNCTION snowflake_partition_bounds(since timestamptz, until timestamptz, step interval, layout text)
RETURNS TABLE (from_time timestamptz, to_time timestamptz, from_id bigint, to_id bigint)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE ROWS 100 SET search_path = pg_catalog, pg_temp
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
	FROM @extschema@.snowflake_layout(layout) AS l;
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
	start := snowflake.step_start(since, step);
	to_time := greatest(start AT TIME ZONE 'UTC', described.epoch);
	WHILE to_time < until LOOP
		IF count = max_count THEN
			RAISE EXCEPTION 'from % to % there are too many steps of %', since, until, step
				USING ERRCODE = 'invalid_parameter_value',
				DETAIL = format('At most %s partitions are made at a time.', max_count),
				HINT = 'Choose a longer step, or a later since: a server slows down with thousands of partitions.';
		END IF;
		count := count + 1;
		from_time := to_time;
		to_time := least((start + count * step) AT TIME ZONE 'UTC', described.ends);
		ids := @extschema@.snowflake_range(from_time, to_time, layout);
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
COMMENT ON FUNCTION snowflake_partition_bounds(timestamptz, timestamptz, interval, text) IS
'bounds of partitions in time and in ids of the given layout: one step each, aligned to the step in UTC';

CREATE FUNCTION snowflake_partition_bounds(since timestamptz, until timestamptz, step interval)
RETURNS TABLE (from_time timestamptz, to_time timestamptz, from_id bigint, to_id bigint)
LANGUAGE sql STABLE STRICT PARALLEL SAFE ROWS 100 SET search_path = pg_catalog, pg_temp
AS $$
	SELECT * FROM @extschema@.snowflake_partition_bounds(since, until, step,
		(SELECT coalesce(l.name, l.definition) FROM @extschema@.snowflake_layout() AS l))
$$;
COMMENT ON FUNCTION snowflake_partition_bounds(timestamptz, timestamptz, interval) IS
'bounds of partitions in time and in ids of the server''s layout: one step each, aligned to the step in UTC';

-- What the names of partitions end with, for to_char: the time of the lower bound, as
-- short as both the first one and the step allow.
CREATE FUNCTION snowflake.partition_suffix(since timestamptz, step interval) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT suffix
	FROM unnest('{year,month,day,minute,second,microseconds}'::text[],
		'{_YYYY,_YYYY_MM,_YYYYMMDD,_YYYYMMDD_HH24MI,_YYYYMMDD_HH24MISS,_YYYYMMDD_HH24MISS_US}'::text[])
		WITH ORDINALITY AS v (unit, suffix, n)
	WHERE date_trunc(unit, since AT TIME ZONE 'UTC') = since AT TIME ZONE 'UTC' AND date_trunc(unit, step) = step
	ORDER BY n LIMIT 1
$$;
COMMENT ON FUNCTION snowflake.partition_suffix(timestamptz, interval) IS
'part of snowflake_create_partitions: the format of the time in the names';

-- As PostgreSQL names indexes: the table's name is cut so that the whole fits, and
-- a number is added if there is such a relation or type already.
CREATE FUNCTION snowflake.partition_name(schema oid, parent name, suffix text) RETURNS name
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
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
COMMENT ON FUNCTION snowflake.partition_name(oid, name, text) IS
'part of snowflake_create_partitions: a name that is not in use';

-- The partitions that a table has, but for the default one.
CREATE FUNCTION snowflake.partition_ranges(parent regclass)
RETURNS TABLE (partition regclass, ids int8range)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT c.oid, int8range(nullif(bound[1], 'MINVALUE')::bigint, nullif(bound[2], 'MAXVALUE')::bigint)
	FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid,
		regexp_match(pg_get_expr(c.relpartbound, c.oid),
			'^FOR VALUES FROM [(]''?(MINVALUE|-?[0-9]+)''?[)] TO [(]''?(MAXVALUE|-?[0-9]+)''?[)]$') AS bound
	WHERE i.inhparent = parent AND NOT i.inhdetachpending AND bound IS NOT NULL
$$;
COMMENT ON FUNCTION snowflake.partition_ranges(regclass) IS
'part of snowflake_create_partitions: the partitions of a table, with their bounds';

CREATE FUNCTION snowflake.check_partition_key(parent regclass) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_partitioned_table AS p
			JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
			WHERE p.partrelid = parent AND p.partstrat = 'r' AND p.partnatts = 1 AND a.atttypid = 'bigint'::regtype) THEN
		RAISE EXCEPTION 'table % is not partitioned by range on one bigint column', parent
			USING ERRCODE = 'wrong_object_type',
			DETAIL = coalesce('It is partitioned by ' || pg_get_partkeydef(parent) || '.', 'It is not partitioned.'),
			HINT = 'Create it with PARTITION BY RANGE (id), with id a bigint column.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_partition_key(regclass) IS
'part of snowflake_create_partitions: the table must be partitioned by id';

-- Runs with the caller's rights.  The lock keeps away other sessions that make partitions;
-- reads and writes go on until a partition is made.
CREATE FUNCTION snowflake_create_partitions(parent regclass, since timestamptz, until timestamptz, step interval,
	layout text DEFAULT NULL, dry_run boolean DEFAULT true) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
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
	PERFORM snowflake.check_partition_key(parent);
	definition := snowflake.layout_definition(layout);
	SELECT n.nspname AS schema, n.oid AS schema_oid, c.relname AS name, pg_get_userbyid(c.relowner) AS owner INTO parent_class
	FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = parent;
	IF NOT dry_run THEN
		EXECUTE format('LOCK TABLE ONLY %I.%I IN SHARE UPDATE EXCLUSIVE MODE', parent_class.schema, parent_class.name);
	END IF;

	FOR wanted IN
		WITH existing AS MATERIALIZED (SELECT * FROM snowflake.partition_ranges(parent))
		SELECT b.*, int8range(b.from_id, b.to_id) AS ids, e.*
		FROM @extschema@.snowflake_partition_bounds(since, until, step, definition) AS b,
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
		partition := snowflake.partition_name(parent_class.schema_oid, parent_class.name, to_char(
			wanted.from_time AT TIME ZONE 'UTC',
			snowflake.partition_suffix(snowflake.step_start(since, step) AT TIME ZONE 'UTC', step)));
		-- the table's owner is to own the partition, too
		FOREACH statement IN ARRAY ARRAY[
			format('CREATE TABLE %1$I.%2$I PARTITION OF %1$I.%3$I FOR VALUES FROM (%4$s) TO (%5$s);', parent_class.schema,
				partition, parent_class.name, wanted.from_id, coalesce(wanted.to_id::text, 'MAXVALUE')),
			CASE WHEN parent_class.owner <> current_user THEN
				format('ALTER TABLE %I.%I OWNER TO %I;', parent_class.schema, partition, parent_class.owner) END]
		LOOP
			CONTINUE WHEN statement IS NULL;
			IF NOT dry_run THEN
				EXECUTE statement;
			END IF;
			RETURN NEXT statement;
		END LOOP;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_create_partitions(regclass, timestamptz, timestamptz, interval, text, boolean) IS
'statements that make the missing partitions of a table, a step of time each; executed unless dry_run';

-- Runs with the caller's rights.  A partition that has ids of both sides stays.
CREATE FUNCTION snowflake_drop_partitions(parent regclass, before timestamptz,
	layout text DEFAULT NULL, dry_run boolean DEFAULT true) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	first_kept bigint;
	statement text;
BEGIN
	IF num_nulls(parent, before, dry_run) > 0 OR NOT isfinite(before) THEN
		RAISE EXCEPTION 'parent, before and dry_run must not be null, and before must be finite'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('The arguments are %s, %s and %s.', coalesce(parent::text, 'NULL'), coalesce(before::text, 'NULL'), coalesce(dry_run::text, 'NULL')),
			HINT = 'Only layout may be null, which is the server''s layout.';
	END IF;
	PERFORM snowflake.check_partition_key(parent);
	first_kept := snowflake.first_id_from(before, snowflake.layout_definition(layout));
	FOR statement IN
		SELECT format('DROP TABLE %I.%I;', n.nspname, c.relname)
		FROM snowflake.partition_ranges(parent) AS p JOIN pg_class AS c ON c.oid = p.partition
			JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE upper(p.ids) <= first_kept
		ORDER BY p.ids
	LOOP
		IF NOT dry_run THEN
			EXECUTE statement;
		END IF;
		RETURN NEXT statement;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_drop_partitions(regclass, timestamptz, text, boolean) IS
'statements that drop the partitions of a table whose ids are all from before a time; executed unless dry_run';

--
-- Which layout an id is of
--

-- The fields of a canonical definition: width, lowest bit in the id, and for those
-- that make up the node number their lowest bit in that.
CREATE FUNCTION snowflake.layout_fields(definition text,
	OUT field text, OUT bits integer, OUT shift integer, OUT node_shift integer)
RETURNS SETOF record
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 5 SET search_path = pg_catalog, pg_temp
AS $$
	SELECT f.field, f.bits, (sum(f.bits) OVER (ORDER BY f.place DESC) - f.bits)::integer,
		CASE WHEN f.rank > 0 THEN (sum(f.bits) OVER (PARTITION BY f.rank > 0 ORDER BY f.rank) - f.bits)::integer END
	FROM (SELECT m.part[1] AS field, m.part[2]::integer AS bits, m.place,
			coalesce(array_position('{clock,worker,datacenter}', m.part[1]), 0) AS rank
		FROM regexp_matches(definition, '(timestamp|datacenter|worker|clock|sequence) ([0-9]+)', 'g')
			WITH ORDINALITY AS m (part, place)) AS f
$$;
COMMENT ON FUNCTION snowflake.layout_fields(text) IS
'part of snowflake_guess() and snowflake_audit(): the fields of a layout and their places';

-- How many bits it takes to tell a part of an id: small numbers take few (Elias gamma
-- code: twice the bits of value + 1, less one), any other the field's width; and one
-- says which of the two it is.
CREATE FUNCTION snowflake.part_cost(value bigint, bits integer) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
	SELECT CASE WHEN bits = 0 THEN 0
		ELSE 1 + least(bits, 2 * pg_catalog.length(pg_catalog.ltrim((value + 1)::bit(64)::text, '0')) - 1) END
$$;
COMMENT ON FUNCTION snowflake.part_cost(bigint, integer) IS
'part of snowflake_guess(): how many bits it takes to tell the value of a field';

-- The candidates: the layouts in use and the presets.  "own" tells whether a layout is the
-- server's or an extra one, "since" is the first time that an id of the layout may well carry.
--
-- For most presets that is their epoch.  Two count from long before their first id:
-- Mastodon was begun in 2016 (earlier times are of posts that were imported), and of
-- liaoxuefeng's no id is known that is older than July 2013; 2012 leaves some room.
CREATE FUNCTION snowflake.guess_candidates(OUT layout text, OUT definition text, OUT tick interval,
	OUT since timestamptz, OUT own text, OUT place bigint)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 20 SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY
	SELECT k.layout, k.definition, k.tick, greatest(k.epoch, CASE k.layout
			WHEN 'mastodon' THEN '2016-01-01 00:00:00Z'
			WHEN 'liaoxuefeng' THEN '2012-01-01 00:00:00Z' END::timestamptz),
		CASE WHEN bool_and(k.extra) THEN 'an extra layout' WHEN NOT bool_and(k.extra) THEN 'the server''s layout' END,
		min(k.place)
	FROM (SELECT u.layout, u.definition, s.tick, s.epoch, u.extra, CASE WHEN u.extra THEN 101 ELSE 100 END AS place
		FROM snowflake.layouts_in_use() AS u, @extschema@.snowflake_layout(u.definition) AS s
		UNION ALL
		SELECT s.name, s.definition, s.tick, s.epoch, NULL, s.place
		FROM @extschema@.snowflake_layouts() WITH ORDINALITY
			AS s (name, definition, bits, tick, epoch, last_id_time, max_ids_per_second, js_safe, place)) AS k
	GROUP BY k.layout, k.definition, k.tick, k.epoch;
END
$$;
COMMENT ON FUNCTION snowflake.guess_candidates() IS
'part of snowflake_guess(): the layouts that an id may be of';

-- A layout is plausible if the id's time is an hour or more after "since" and at most an
-- hour (the greatest snowflake.max_ahead) past "at".
--
-- Of the plausible ones the first is the one in which the id is least surprising: the
-- sum of the bits that it takes to tell
--	 the time	 as one of the ticks from "since" on, recent ones being more likely: the
--				 chance grows evenly from 0 at "since" to that of "at"
--	 the number and the sequence	see part_cost()
-- less 8 for layouts in use.  A layout that reads bits of the
-- time as a number or a sequence finds them large; so layouts of different widths tell
-- apart well, and those that differ in nothing but the epoch only by the time.
CREATE FUNCTION snowflake_guess(id bigint, at timestamptz DEFAULT statement_timestamp(),
	OUT layout text, OUT "timestamp" timestamptz, OUT datacenter_id integer, OUT worker_id integer,
	OUT clock integer, OUT sequence integer, OUT surprise numeric, OUT own text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	margin CONSTANT interval := '1 hour';
BEGIN
	IF $1 < 0 THEN
		RAISE EXCEPTION 'id % is negative', $1
			USING ERRCODE = 'numeric_value_out_of_range',
			DETAIL = 'The ids of every layout are from 0 to 9223372036854775807 or less.',
			HINT = 'A number of 64 bits without a sign has lost its highest bit: look into the documentation of the software that issued it.';
	END IF;
	IF NOT isfinite($2) THEN
		RAISE EXCEPTION 'the time % is not finite', $2
			USING ERRCODE = 'datetime_field_overflow',
			DETAIL = 'Ids of a later time are not plausible.',
			HINT = 'Give the time at which the id was there, or leave it out for now.';
	END IF;
	RETURN QUERY
	SELECT c.layout, p."timestamp", p.datacenter_id, p.worker_id, p.clock, p.sequence,
		round((ln(t.life / t.tick) + ln(t.life / (2 * t.age))) / ln(2.0)
			+ snowflake.part_cost(n.number, n.bits)
			+ snowflake.part_cost(p.sequence, n.sequence_bits)
			- CASE WHEN c.own IS NULL THEN 0 ELSE 8 END, 1) AS surprise,
		c.own
	FROM snowflake.guess_candidates() AS c
		-- NULL for an id outside the layout; all that follows is NULL then, too
		CROSS JOIN LATERAL @extschema@.snowflake_parse(
			CASE WHEN $1 <= @extschema@.snowflake_max_id('infinity'::timestamptz, c.definition) THEN $1 END, c.definition) AS p
		CROSS JOIN LATERAL (SELECT coalesce(sum(($1 >> f.shift & (1::bigint << f.bits) - 1) << f.node_shift), 0)::bigint,
				coalesce(sum(f.bits) FILTER (WHERE f.node_shift IS NOT NULL), 0)::integer,
				max(f.bits) FILTER (WHERE f.field = 'sequence')
			FROM snowflake.layout_fields(c.definition) AS f) AS n (number, bits, sequence_bits)
		-- in seconds; at least an hour where the layout is plausible
		CROSS JOIN LATERAL (SELECT extract(epoch FROM c.tick), extract(epoch FROM greatest($2 + margin - c.since, margin)),
			extract(epoch FROM greatest(p."timestamp" - c.since, margin))) AS t (tick, life, age)
	WHERE p."timestamp" BETWEEN c.since + margin AND $2 + margin
	ORDER BY 7, c.place, c.layout COLLATE "C";
END
$$;
COMMENT ON FUNCTION snowflake_guess(bigint, timestamptz) IS
'the layouts that an id may well be of, with its parts, the most plausible first';

--
-- Whether the ids of a column can have been issued by the leases on record
--

CREATE FUNCTION snowflake.read_leases(another boolean, OUT incarnation uuid, OUT used uuid, OUT next_number bigint,
	OUT node_numbers bigint[], OUT launched bigint[], OUT starts bigint[], OUT ends bigint[], OUT problem text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'snowflake_read_leases'
LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake.read_leases(boolean) IS
'part of snowflake_audit(): the leases on record in this cluster, or in the registry that is set, some at a time; or why they cannot be read';

-- Whether the leases of this server's ids are in worker_node of this database.  A lease that is
-- open here and not over shows that the table is in use, wherever this server gets its own
-- number from: other servers share this registry.
CREATE FUNCTION snowflake.leases_are_here() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
	SELECT EXISTS (SELECT FROM snowflake.registry AS r, snowflake.worker_node AS w, pg_database AS d
			WHERE d.datname = current_database() AND r.database = d.oid AND w.incarnation = r.incarnation
				AND w.closed_at IS NULL AND w.leased_until > clock_timestamp())
		OR current_database() = 'postgres'
			AND NOT EXISTS (SELECT FROM snowflake.cluster AS c WHERE c.uses = 'another')
$$;
COMMENT ON FUNCTION snowflake.leases_are_here() IS
'part of snowflake_audit(): whether the leases are on record in this database';

-- For each node number the ticks in which its leases allow ids: of each lease those that begin
-- at or after its start, not before the one in which its server was started, and end at or before
-- its end.  The arrays are those of lease_page().
CREATE TYPE snowflake.leased_number AS (node_number bigint, ticks int8multirange, first bigint, past bigint);
COMMENT ON TYPE snowflake.leased_number IS
'part of snowflake_audit(): the ticks of ids that the leases of a node number allow, and their ends';

CREATE FUNCTION snowflake.leased_ticks(definition text, timestamp_shift integer,
	node_numbers bigint[], launched bigint[], starts bigint[], ends bigint[])
RETURNS SETOF snowflake.leased_number
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT w.node_number, range_agg(int8range(t.first, greatest(t.first, t.past))), min(t.first), max(t.past)
	FROM @extschema@.snowflake_layout($1) AS l,
		unnest($3, $4, $5, $6) AS w (node_number, launched, starts, ends),
		LATERAL (SELECT least(greatest('epoch'::timestamptz + w.launched * interval '1 us', l.epoch), l.last_id_time) AS launched_at,
			least(greatest('epoch'::timestamptz + w.starts * interval '1 us', l.epoch), l.last_id_time) AS starts_at,
			least(greatest('epoch'::timestamptz + w.ends * interval '1 us', l.epoch), l.last_id_time) AS leased_until) AS c,
		LATERAL (SELECT @extschema@.snowflake_min_id(c.starts_at, $1) AS id) AS s,
		LATERAL (SELECT
			greatest(@extschema@.snowflake_min_id(c.launched_at, $1) >> $2,
				(s.id >> $2) + (@extschema@.snowflake_timestamp(s.id, $1) < c.starts_at)::integer),
			@extschema@.snowflake_min_id(c.leased_until, $1) >> $2) AS t (first, past)
	GROUP BY w.node_number
$$;
COMMENT ON FUNCTION snowflake.leased_ticks(text, integer, bigint[], bigint[], bigint[], bigint[]) IS
'part of snowflake_audit(): the ticks of ids that leases allow';

-- The same of all leases on record, or why they are not known.  What the cluster's own tables say
-- of where its numbers come from counts, not the setting.
CREATE FUNCTION snowflake.all_leased(definition text, timestamp_shift integer,
	OUT unchecked text, OUT leased snowflake.leased_number[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	next_number bigint := 0;
	page record;
	another boolean;
	used uuid;
BEGIN
	IF definition !~ 'datacenter|worker|clock' THEN
		unchecked := 'the layout has no node number';
	ELSIF NOT has_table_privilege('snowflake.worker_node', 'SELECT') THEN
		unchecked := 'you may not read snowflake.worker_node, as members of pg_database_owner may';
	END IF;
	IF unchecked IS NOT NULL THEN
		RETURN;
	END IF;
	leased := '{}';
	IF snowflake.leases_are_here() THEN
		WHILE next_number IS NOT NULL LOOP
			SELECT * INTO page FROM snowflake.lease_page(next_number);
			leased := leased || ARRAY(SELECT t FROM snowflake.leased_ticks(definition, timestamp_shift,
				page.node_numbers, page.launched, page.starts, page.ends) AS t);
			next_number := page.next_number;
		END LOOP;
		IF leased = '{}' THEN
			unchecked := 'worker_node of this database has no rows';
		END IF;
		RETURN;
	END IF;
	<<registries>>
	FOREACH another IN ARRAY '{false,true}'::boolean[] LOOP
		FOR page IN SELECT * FROM snowflake.read_leases(another) LOOP
			unchecked := CASE WHEN page.problem IS NOT NULL THEN page.problem
				WHEN another AND page.incarnation IS DISTINCT FROM used THEN
					'the registry that snowflake.registry names is not the one that this cluster uses' END;
			EXIT registries WHEN unchecked IS NOT NULL;
			IF NOT another AND page.used IS NOT NULL THEN
				used := page.used;
				CONTINUE registries;
			END IF;
			leased := leased || ARRAY(SELECT t FROM snowflake.leased_ticks(definition, timestamp_shift,
				page.node_numbers, page.launched, page.starts, page.ends) AS t);
		END LOOP;
		EXIT registries;
	END LOOP;
	IF leased = '{}' THEN
		unchecked := coalesce(unchecked, format('worker_node of %s has no rows',
			CASE WHEN used IS NULL THEN 'database "postgres"' ELSE 'the registry' END));
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.all_leased(text, integer) IS
'part of snowflake_audit(): the ticks of ids that all leases on record allow, or why they are not known';

-- Whether an index that is always checked keeps the column unique, over partitions too.
CREATE FUNCTION snowflake.known_unique("table" regclass, attribute smallint) RETURNS boolean
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT EXISTS (SELECT FROM pg_index AS i
			WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indimmediate
				AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = $2)
		-- an index of a partitioned table is over all of it, one of a parent is not
		AND ((SELECT c.relkind FROM pg_class AS c WHERE c.oid = $1) = 'p'
			OR NOT EXISTS (SELECT FROM pg_inherits AS h WHERE h.inhparent = $1))
$$;
COMMENT ON FUNCTION snowflake.known_unique(regclass, smallint) IS
'part of snowflake_audit(): whether an index shows that a column has no duplicates';

-- The column's number, after checks that it can hold ids.
CREATE FUNCTION snowflake.audited_column("table" regclass, "column" name) RETURNS smallint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
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
	END IF;
	RETURN attribute.attnum;
END
$$;
COMMENT ON FUNCTION snowflake.audited_column(regclass, name) IS
'part of snowflake_audit(): the column''s number';

CREATE FUNCTION snowflake.audit_duplicates("table" regclass, "column" name,
	OUT count bigint, OUT id bigint, OUT detail text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	surplus bigint;
	times bigint;
	places text;
BEGIN
	IF snowflake.known_unique($1, snowflake.audited_column($1, $2)) THEN
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
COMMENT ON FUNCTION snowflake.audit_duplicates(regclass, name) IS
'part of snowflake_audit(): ids that more than one row has';

-- The ids by finding (NULL: a lease on record allows them) and by node number.  leased: NULL
-- if leases are not checked.
--
-- The function is stable: the table is read by the snapshot of the query that calls
-- snowflake_audit(), and the leases by it, or later.  See lease_page().
CREATE FUNCTION snowflake.audit_ids("table" regclass, "column" name, definition text,
	max_ahead interval, leased snowflake.leased_number[],
	OUT finding text, OUT node_number bigint, OUT count bigint, OUT lowest bigint, OUT highest bigint)
RETURNS SETOF record
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	layout CONSTANT record := @extschema@.snowflake_layout($3);
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
	FROM snowflake.layout_fields($3) AS f;
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
		@extschema@.snowflake_max_id('infinity'::timestamptz, $3), shift,
		@extschema@.snowflake_max_id(latest, $3) >> shift,
		ceil(3600 / extract(epoch FROM layout.tick)), coalesce(greatest_number::text, 'NULL'),
		$5 IS NULL, $2, $1, number_of) USING $5;
END
$$;
COMMENT ON FUNCTION snowflake.audit_ids(regclass, name, text, interval, snowflake.leased_number[]) IS
'part of snowflake_audit(): the ids of a column by finding and node number';

CREATE FUNCTION snowflake.audit_detail(finding text, numbers bigint, lowest bigint, highest bigint,
	definition text, max_ahead text, unchecked text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE finding
		WHEN 'null' THEN 'rows without an id'
		WHEN 'negative' THEN 'no layout has negative ids'
		WHEN 'outside layout' THEN
			format('ids of the layout are from 0 to %s', @extschema@.snowflake_max_id('infinity'::timestamptz, definition))
		WHEN 'future' THEN format('the last one is of %s, more than max_ahead (%s) past the clock',
			@extschema@.snowflake_timestamp(highest, definition), max_ahead)
		WHEN 'older value' THEN
			format('values from %s to %s: within an hour of the epoch, as those of a sequence are', lowest, highest)
		ELSE CASE WHEN numbers > 0 THEN format('other numbers (%s of them), ', numbers) ELSE '' END
			|| format('times from %s to %s: ', @extschema@.snowflake_timestamp(lowest, definition),
				@extschema@.snowflake_timestamp(highest, definition))
			|| CASE finding
				WHEN 'no lease' THEN 'worker_node has no row of the number'
				WHEN 'before leases' THEN 'before the first lease of the number'
				WHEN 'between leases' THEN 'after the end of a lease of the number, and before its next lease'
				WHEN 'after leases' THEN 'after the end of the last lease of the number'
				WHEN 'reserved number' THEN 'information: the number is that of backfilled ids'
				WHEN 'leases not checked' THEN unchecked END
		END
$$;
COMMENT ON FUNCTION snowflake.audit_detail(text, bigint, bigint, bigint, text, text, text) IS
'part of snowflake_audit(): the text of a finding';

-- Of each finding about leases the ten node numbers with the most ids have rows of their
-- own, all others share one.
CREATE FUNCTION snowflake_audit("table" regclass, "column" name, layout text DEFAULT NULL,
	OUT finding text, OUT node_number bigint, OUT count bigint, OUT id bigint, OUT detail text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	max_ahead CONSTANT text := coalesce(current_setting('snowflake.max_ahead', true), '1s');
	definition text;
	unchecked text;		-- why leases are not checked; NULL: they are
	leased snowflake.leased_number[];
BEGIN
	PERFORM snowflake.audited_column($1, $2);
	definition := snowflake.layout_definition($3);
	SELECT l.unchecked, CASE WHEN l.unchecked IS NULL THEN l.leased END INTO unchecked, leased
	FROM snowflake.all_leased(definition,
		(SELECT f.shift FROM snowflake.layout_fields(definition) AS f WHERE f.field = 'timestamp')) AS l;
	RETURN QUERY
	WITH ranked AS (
		SELECT a.*, a.finding !~ 'lease|reserved' AS as_one,
			row_number() OVER (PARTITION BY a.finding ORDER BY a.count DESC, a.node_number) > 10 AS rest
		FROM snowflake.audit_ids($1, $2, definition, max_ahead::interval, leased) AS a
		WHERE a.finding IS NOT NULL
	), summed AS (
		SELECT r.finding, CASE WHEN NOT (r.as_one OR r.rest) THEN r.node_number END AS node_number,
			sum(r.count)::bigint AS count,
			CASE WHEN r.finding IN ('outside layout', 'future') THEN max(r.highest) ELSE min(r.lowest) END AS id,
			snowflake.audit_detail(r.finding, count(*) FILTER (WHERE r.rest), min(r.lowest), max(r.highest),
				definition, max_ahead, unchecked) AS detail
		FROM ranked AS r GROUP BY 1, 2, r.as_one OR r.rest
		UNION ALL
		SELECT 'duplicate', NULL, d.count, d.id, d.detail
		FROM snowflake.audit_duplicates($1, $2) AS d WHERE d.count > 0
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
--
-- Ids for old rows; without a layout in the server's, which makes it stable
--
CREATE FUNCTION snowflake_backfill_id(created_at timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_backfill_id'
LANGUAGE C WINDOW STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_backfill_id(timestamptz) IS
'ids of the server''s layout for old rows, OVER (ORDER BY created_at, key): sorted by age, with the node number that is never leased';

CREATE FUNCTION snowflake_backfill_id(created_at timestamptz, layout text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_backfill_id'
LANGUAGE C WINDOW IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_backfill_id(timestamptz, text) IS
'ids of the given layout for old rows, OVER (ORDER BY created_at, key): sorted by age, with the node number that is never leased';

CREATE FUNCTION snowflake_backfill_id(created_at timestamptz, layout text, part integer, parts integer) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_backfill_id'
LANGUAGE C WINDOW IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_backfill_id(timestamptz, text, integer, integer) IS
'the same for one of several queries: those with another part, from 0 to parts - 1, make other ids';

GRANT EXECUTE ON FUNCTION snowflake_backfill_id(timestamptz), snowflake_backfill_id(timestamptz, text),
	snowflake_backfill_id(timestamptz, text, integer, integer) TO PUBLIC;

--
-- Converting existing columns: which columns belong together, and what is refused.
-- All of it runs with the rights of the caller, who must own the tables.
--
-- A column is named by the topmost table that has it and its name; the partitions
-- and children of that table, its members, have it too, at attribute numbers of
-- their own.
--
CREATE FUNCTION snowflake.qualified_name(namespace oid, name name) RETURNS text
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('%I.%I', CASE WHEN n.oid = pg_my_temp_schema() THEN 'pg_temp' ELSE n.nspname END, name)
	FROM pg_namespace AS n WHERE n.oid = namespace
$$;
COMMENT ON FUNCTION snowflake.qualified_name(oid, name) IS
'part of snowflake_convert_column: name of a relation that means the same under every search_path';

CREATE FUNCTION snowflake.qualified_name(relation oid) RETURNS text
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT snowflake.qualified_name(c.relnamespace, c.relname) FROM pg_class AS c WHERE c.oid = relation
$$;
COMMENT ON FUNCTION snowflake.qualified_name(oid) IS
'part of snowflake_convert_column: the same for one that exists';

CREATE FUNCTION snowflake.column_members(root oid, "column" name, OUT relation oid, OUT number smallint)
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
COMMENT ON FUNCTION snowflake.column_members(oid, name) IS
'part of snowflake_convert_column: the table and all that inherit the column from it';

CREATE FUNCTION snowflake.column_roots(relation oid, "column" name) RETURNS SETOF oid
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
COMMENT ON FUNCTION snowflake.column_roots(oid, name) IS
'part of snowflake_convert_column: the topmost tables that a column is inherited from, or its own';

-- Ids of the column are stored in all of these: itself, and what references it by
-- foreign keys, also by way of others.  A constraint's copies for partitions
-- (conparentid) say nothing new.
CREATE FUNCTION snowflake.following_columns(origin oid, origin_column name,
	OUT root oid, OUT "column" name, OUT type oid) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE following (root, "column") AS (
		SELECT origin, origin_column
		UNION
		SELECT r.root, a.attname
		FROM following AS f
		CROSS JOIN LATERAL snowflake.column_members(f.root, f."column") AS m
		JOIN pg_constraint AS c ON c.confrelid = m.relation AND c.contype = 'f' AND c.conparentid = 0
		CROSS JOIN LATERAL unnest(c.conkey, c.confkey) AS k (referencing, referenced)
		JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.referencing
		CROSS JOIN LATERAL snowflake.column_roots(c.conrelid, a.attname) AS r (root)
		WHERE k.referenced = m.number
	)
	SELECT f.root, f."column", a.atttypid
	FROM following AS f JOIN pg_attribute AS a ON a.attrelid = f.root AND a.attname = f."column"
$$;
COMMENT ON FUNCTION snowflake.following_columns(oid, name) IS
'part of snowflake_convert_column: the column and all that reference it, which must have its type';

CREATE FUNCTION snowflake.check_column(relation oid, "column" name) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	table_name CONSTANT text := snowflake.qualified_name(relation);
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
	SELECT string_agg(snowflake.qualified_name(r), ', ' ORDER BY r) INTO roots
	FROM snowflake.column_roots(relation, "column") AS r WHERE r <> relation;
	IF roots IS NOT NULL THEN
		RAISE EXCEPTION 'column "%" of table % is inherited from %', "column", table_name, roots
			USING ERRCODE = 'invalid_table_definition',
			DETAIL = 'All partitions and children of a table change together.',
			HINT = format('Name %s instead.', roots);
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_column(oid, name) IS
'part of snowflake_convert_column: refuses what is no column, or one of a partition or child';

-- Refuses tables that cannot or must not be altered; reason is for the detail.
CREATE FUNCTION snowflake.check_table(relation oid, reason text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	table_name CONSTANT text := snowflake.qualified_name(relation);
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
			HINT = 'Let a role convert the column that owns all tables, or is a member of their owners.';
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
COMMENT ON FUNCTION snowflake.check_table(oid, text) IS
'part of snowflake_convert_column: refuses tables that cannot be altered';

-- Objects that keep a column from being changed: those that depend on it and that
-- PostgreSQL does not change with its type, and those that depend on the sequence of its
-- identity, which is dropped.  Indexes, constraints, statistics, the column's own default
-- and sequences that it owns change with the type.
CREATE FUNCTION snowflake.dependents(root oid, "column" name, widens boolean, identity boolean)
RETURNS SETOF text
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	WITH member AS (
		SELECT m.relation, m.number, c.reltype, t.typarray
		FROM snowflake.column_members(root, "column") AS m
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
COMMENT ON FUNCTION snowflake.dependents(oid, name, boolean, boolean) IS
'part of snowflake_convert_column: objects that keep a column from being changed';

-- Refuses what PostgreSQL would refuse or could not do, before anything is changed.
CREATE FUNCTION snowflake.check_type_change(root oid, "column" name) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	refusal CONSTANT text := format('the type of column "%s" of table %s cannot change to bigint',
		"column", snowflake.qualified_name(root));
	members CONSTANT oid[] := ARRAY(SELECT m.relation FROM snowflake.column_members(root, "column") AS m);
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
			DETAIL = format('%s is a typed table.', snowflake.qualified_name(culprit)),
			HINT = 'Give it columns of its own with ALTER TABLE ... NOT OF first.';
	END IF;
	-- a partition key holds its columns by an internal dependency
	SELECT m.relation INTO culprit
	FROM snowflake.column_members(root, "column") AS m JOIN pg_depend AS d
		ON d.classid = 'pg_class'::regclass AND d.objid = m.relation AND d.objsubid = m.number
		AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.relation AND d.refobjsubid = 0
		AND d.deptype = 'i';
	IF FOUND THEN
		RAISE EXCEPTION '%', refusal
			USING ERRCODE = 'feature_not_supported',
			DETAIL = format('It is part of the partition key of %s.', snowflake.qualified_name(culprit)),
			HINT = 'Create a new partitioned table whose column is bigint, and move the rows.';
	END IF;
	SELECT m INTO culprit FROM unnest(members) AS m
	WHERE EXISTS (SELECT FROM snowflake.column_roots(m, "column") AS r WHERE r <> root);
	IF FOUND THEN
		RAISE EXCEPTION '%', refusal
			USING ERRCODE = 'invalid_table_definition',
			DETAIL = format('%s inherits it from another table, too.', snowflake.qualified_name(culprit)),
			HINT = 'End one of the inheritances with ALTER TABLE ... NO INHERIT first.';
	END IF;
	-- these constraints are there since PostgreSQL 18
	SELECT p.conrelid, p.conname, c.conrelid, c.conname INTO culprit, constraint_name, child, child_name
	FROM snowflake.column_members(root, "column") AS m
	JOIN pg_constraint AS p ON p.conrelid = m.relation AND p.contype = 'n' AND m.number = p.conkey[1]
	JOIN pg_inherits AS i ON i.inhparent = m.relation
	JOIN snowflake.column_members(root, "column") AS n ON n.relation = i.inhrelid
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
		JOIN snowflake.column_members(root, "column") AS m ON m.relation = a.relation
		JOIN pg_constraint AS p ON p.conrelid = a.relation AND p.contype = 'n' AND m.number = p.conkey[1]
		WHERE p.coninhcount = 0 AND NOT p.connoinherit;
		RAISE EXCEPTION '%', refusal
			USING ERRCODE = 'feature_not_supported',
			DETAIL = format('NOT NULL of the column is named "%s" in %s, and "%s" in %s that inherits it.',
				constraint_name, snowflake.qualified_name(culprit), child_name, snowflake.qualified_name(child)),
			HINT = format('Use ALTER TABLE %s ALTER CONSTRAINT %I NO INHERIT before, and the same with INHERIT afterwards.',
				snowflake.qualified_name(origin), origin_name);
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_type_change(oid, name) IS
'part of snowflake_convert_column: refuses tables whose column cannot change its type';

-- Refuses a column, that to be converted or one that follows it, and its tables.
CREATE FUNCTION snowflake.check_following(root oid, "column" name, type oid, is_origin boolean) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	table_name CONSTANT text := snowflake.qualified_name(root);
	widens CONSTANT boolean := type IN ('smallint'::regtype, 'integer'::regtype);
	reason CONSTANT text := CASE WHEN NOT is_origin THEN
		format('Its column "%s" references the one to be converted and must follow it.', "column") END;
	dependents text;
BEGIN
	PERFORM snowflake.check_table(m.relation, reason)
	FROM (SELECT m.relation FROM snowflake.column_members(root, "column") AS m ORDER BY 1) AS m;
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
		PERFORM snowflake.check_type_change(root, "column");
	END IF;
	SELECT string_agg(d, E'\n') INTO dependents
	FROM snowflake.dependents(root, "column", widens, is_origin) AS d;
	IF dependents IS NOT NULL THEN
		RAISE EXCEPTION 'column "%" of table % cannot be converted because other objects depend on it',
			"column", table_name
			USING ERRCODE = 'dependent_objects_still_exist', DETAIL = dependents,
			HINT = 'Drop them, convert the column, and create them again, all in one transaction.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_following(oid, name, oid, boolean) IS
'part of snowflake_convert_column: refuses a column that cannot be converted or cannot follow';

-- Refuses the column; with follow also those that change their type with it.
CREATE FUNCTION snowflake.check_conversion(root oid, "column" name, follow boolean) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	PERFORM snowflake.check_column(root, "column");
	PERFORM snowflake.check_following(f.root, f."column", f.type, f.is_origin)
	FROM (SELECT f.*, (f.root, f."column") = (root, "column") AS is_origin
		FROM snowflake.following_columns(root, "column") AS f
		ORDER BY is_origin DESC, f.root, f."column") AS f
	WHERE f.is_origin OR follow AND f.type <> 'bigint'::regtype;
END
$$;
COMMENT ON FUNCTION snowflake.check_conversion(oid, name, boolean) IS
'part of snowflake_convert_column: refuses what cannot be converted';

-- The tables of these columns and of those that follow them, each once.  A table that references
-- is locked before the one that it references, as by an INSERT: it has fewer followers, and the
-- OID decides between equals.
CREATE FUNCTION snowflake.tables_to_lock(roots oid[], columns name[], follow boolean) RETURNS text[]
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT array_agg(snowflake.qualified_name(f.root) ORDER BY f.followers, f.root)
	FROM (SELECT f.root, max((SELECT count(*) FROM snowflake.following_columns(f.root, f."column"))) AS followers
		FROM unnest(roots, columns) AS o (root, "column")
		CROSS JOIN LATERAL snowflake.following_columns(o.root, o."column") AS f
		WHERE f.root = o.root OR follow AND f.type <> 'bigint'::regtype GROUP BY f.root) AS f
$$;
COMMENT ON FUNCTION snowflake.tables_to_lock(oid[], name[], boolean) IS
'part of snowflake_convert_column: what is to be altered, in the order of locks';

CREATE FUNCTION snowflake.check_isolation() RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
		-- the greatest value that an older snapshot sees need not be the greatest
		RAISE EXCEPTION 'columns are converted at isolation level read committed, not %',
			current_setting('transaction_isolation')
			USING ERRCODE = 'active_sql_transaction',
			HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_isolation() IS
'part of snowflake_convert_column: refuses transactions that do not see what was committed last';

-- Checks the column, and unless it is a dry run locks all that is to be altered.  Locks are taken
-- by name; what was found before may have changed meanwhile, so it looks again until all that it
-- finds is locked.  A locked table keeps its name.
CREATE FUNCTION snowflake.lock_and_check(root oid, "column" name, follow boolean, dry_run boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	locked text[] := '{}';
	tables text[];
BEGIN
	IF NOT dry_run THEN
		PERFORM snowflake.check_isolation();
	END IF;
	LOOP
		PERFORM snowflake.check_conversion(root, "column", follow);
		tables := snowflake.tables_to_lock(ARRAY[root], ARRAY["column"], follow);
		EXIT WHEN dry_run OR tables <@ locked;
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', array_to_string(tables, ', '));
		locked := tables;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake.lock_and_check(oid, name, boolean, boolean) IS
'part of snowflake_convert_column: refuses what cannot be converted, and locks what is to be altered';

-- In an EXCEPTION block: raises the error again without CONTEXT, which would be about the inside of these
-- functions.  The statement that failed, if it was not one of RAISE, becomes the detail.
CREATE FUNCTION snowflake.raise_again(state text, message text, detail text, hint text, context text) RETURNS void
AS 'MODULE_PATHNAME', 'snowflake_raise_again'
LANGUAGE C;
COMMENT ON FUNCTION snowflake.raise_again(text, text, text, text, text) IS
'part of snowflake_convert_column: raises an error without CONTEXT';

-- Refuses what Citus would refuse for its tables.  expression is the new default; NULL: the
-- column goes back to a sequence.  Citus's catalogs need not be there.
CREATE FUNCTION snowflake.check_citus(root oid, "column" name, expression text) RETURNS void
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
				WHERE e.adrelid = f.root AND e.adnum = a.attnum) AS counts
		FROM snowflake.following_columns(root, "column") AS f
		JOIN pg_attribute AS a ON a.attrelid = f.root AND a.attname = f."column"
		JOIN pg_dist_partition AS d ON d.logicalrelid = f.root
		WHERE f.type <> 'bigint'::regtype AND expression IS NOT NULL
			OR f.root = root AND f."column" = "column" AND snowflake.has_default(root, "column", expression) IS NOT TRUE
		ORDER BY f.root <> root, f.root, f."column"
	LOOP
		table_name := snowflake.qualified_name(altered.root);
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
		ELSIF altered.widens AND (altered.owned <> '{}' OR altered.counts) THEN
			RAISE EXCEPTION '%', refusal
				USING ERRCODE = 'feature_not_supported',
				DETAIL = 'Its type is to change, and it has a sequence.',
				HINT = concat_ws(' ', 'First, in the same transaction:',
					CASE WHEN altered.counts THEN format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT;', table_name, altered."column") END,
					(SELECT format('DROP SEQUENCE %s;', string_agg(snowflake.qualified_name(o), ', ' ORDER BY o))
					FROM unnest(altered.owned) AS o HAVING count(*) > 0));
		END IF;
	END LOOP;
	sequence := CASE WHEN expression IS NULL THEN snowflake.owned_sequence(root, "column") END;
	PERFORM FROM pg_dist_object AS o WHERE o.classid = 'pg_class'::regclass AND o.objid = sequence;
	IF FOUND THEN
		RAISE EXCEPTION 'Citus cannot alter sequence %', snowflake.qualified_name(sequence)
			USING ERRCODE = 'feature_not_supported',
			DETAIL = 'It is on all servers of the cluster.',
			HINT = format('DROP SEQUENCE %s; a new one is made.', snowflake.qualified_name(sequence));
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_citus(oid, name, text) IS
'part of snowflake_convert_column: refuses what Citus would refuse';
--
-- Converting existing columns to ids of the extension, and back to a sequence.
-- Both return the statements; unless it is a dry run they execute them, too.
--

-- The expression of a default that issues ids, just as pg_get_expr() shows it.  A layout is
-- named by its preset or its canonical definition, so that it is the same however it was
-- written; neither has characters that need quoting.
CREATE FUNCTION snowflake.default_expression(layout text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT '@extschema@.snowflake_nextval(' || CASE WHEN layout IS NULL THEN '' ELSE
		(SELECT format('%L::text', coalesce(l.name, l.definition)) FROM @extschema@.snowflake_layout(layout) AS l) END || ')'
$$;
COMMENT ON FUNCTION snowflake.default_expression(text) IS
'part of snowflake_convert_column: the default of a column with ids of a layout, of the server''s for NULL';

CREATE FUNCTION snowflake.check_in_use(layout text) RETURNS void
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	given CONSTANT record := @extschema@.snowflake_layout(layout);
BEGIN
	IF given.definition !~ 'worker' OR given.tick > '1s' THEN
		RAISE EXCEPTION 'the layout "%" is for parsing only', coalesce(given.name, given.definition)
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Ids are issued with a worker field and a tick of at most 1s.';
	END IF;
	IF NOT EXISTS (SELECT FROM snowflake.layouts_in_use() AS u WHERE u.definition = given.definition) THEN
		RAISE EXCEPTION 'layout "%" is not in use', coalesce(given.name, given.definition)
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Layouts in use are fixed when the server starts.',
			HINT = format('Add "snowflake.extra_layouts = ''%s''" to postgresql.conf and restart the server.',
				concat_ws('; ', nullif(current_setting('snowflake.extra_layouts', true), ''),
					coalesce(given.name, given.definition)));
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_in_use(text) IS
'part of snowflake_convert_column: refuses a layout with which the server cannot issue ids';

CREATE FUNCTION snowflake.has_default(root oid, "column" name, expression text) RETURNS boolean
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT bool_and(expression IS NOT DISTINCT FROM pg_get_expr(d.adbin, d.adrelid))
	FROM snowflake.column_members(root, "column") AS m
	LEFT JOIN pg_attrdef AS d ON d.adrelid = m.relation AND d.adnum = m.number
$$;
COMMENT ON FUNCTION snowflake.has_default(oid, name, text) IS
'part of snowflake_convert_column: whether the column has this default in all members of the hierarchy';

-- Whether a partition other than the default one takes rows with this id, by the first column of its bounds.
CREATE FUNCTION snowflake.bound_takes(bound text, id bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT EXISTS (SELECT FROM regexp_match(bound,
			$re$FROM \((?:MINVALUE|'?(-?\d+)'?)[,)].* TO \((?:MAXVALUE|'?(-?\d+)'?)[,)]$re$) AS r (ends)
		WHERE r.ends IS NOT NULL AND coalesce(r.ends[1]::bigint <= id, true) AND coalesce(id < r.ends[2]::bigint, true))
$$;
COMMENT ON FUNCTION snowflake.bound_takes(text, bigint) IS
'part of snowflake_convert_column: whether an id is within the bounds of a partition';

CREATE FUNCTION snowflake.partitioned_by(relation oid, "column" name) RETURNS boolean
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT p.partattrs[0] = a.attnum AND p.partstrat IN ('r', 'l')
	FROM pg_partitioned_table AS p JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attname = "column"
	WHERE p.partrelid = relation
$$;
COMMENT ON FUNCTION snowflake.partitioned_by(oid, name) IS
'part of snowflake_convert_column: whether a table is partitioned by ranges or lists of a column; NULL: not at all';

-- Whether a new row with this id finds a partition.  Only ranges and lists of the column,
-- or ranges that begin with it, tell; of other keys it is enough that some partition does.
CREATE FUNCTION snowflake.takes_id(relation oid, "column" name, id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	keyed CONSTANT boolean := snowflake.partitioned_by(relation, "column");
	partition record;
BEGIN
	IF keyed IS NULL THEN
		RETURN true;
	END IF;
	FOR partition IN
		SELECT c.oid, pg_get_expr(c.relpartbound, c.oid) AS bound
		FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
		WHERE i.inhparent = relation
	LOOP
		IF (NOT keyed OR partition.bound = 'DEFAULT' OR snowflake.bound_takes(partition.bound, id)) AND
			snowflake.takes_id(partition.oid, "column", id) THEN
			RETURN true;
		END IF;
	END LOOP;
	RETURN NOT keyed AND NOT FOUND;		-- no partitions yet, whatever the id
END
$$;
COMMENT ON FUNCTION snowflake.takes_id(oid, name, bigint) IS
'part of snowflake_convert_column: whether there is a partition for an id';

-- The default partition that takes new rows with this id since no other one does; NULL: none.
CREATE FUNCTION snowflake.default_taking(relation oid, "column" name, id bigint) RETURNS oid
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	keyed CONSTANT boolean := snowflake.partitioned_by(relation, "column");
	partition record;
	result oid;
BEGIN
	FOR partition IN
		SELECT c.oid, pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT' AS is_default
		FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
		WHERE i.inhparent = relation AND keyed IS NOT NULL
			AND (NOT keyed OR pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT'
				OR snowflake.bound_takes(pg_get_expr(c.relpartbound, c.oid), id))
		ORDER BY is_default, c.oid
	LOOP
		result := CASE WHEN keyed AND partition.is_default THEN partition.oid
			ELSE snowflake.default_taking(partition.oid, "column", id) END;
		EXIT WHEN keyed OR result IS NOT NULL;
	END LOOP;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.default_taking(oid, name, bigint) IS
'part of snowflake_convert_column: the default partition that an id goes to';

-- A policy that hides rows from the owner is an error.
CREATE FUNCTION snowflake.greatest_value(root oid, "column" name) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
	result bigint;
BEGIN
	EXECUTE format('SELECT max(%I) FROM %s', "column", snowflake.qualified_name(root)) INTO result;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.greatest_value(oid, name) IS
'part of snowflake_convert_column: greatest value in the whole hierarchy';

-- Refuses unless all ids that are issued from now on are greater than all that are there,
-- and have a partition.  It issues none: it works where the server cannot, too.
CREATE FUNCTION snowflake.check_new_ids(root oid, "column" name, layout text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	table_name CONSTANT text := snowflake.qualified_name(root);
	first_id CONSTANT bigint := @extschema@.snowflake_min_id(clock_timestamp(), layout);
	type CONSTANT oid := a.atttypid FROM pg_attribute AS a WHERE a.attrelid = root AND a.attname = "column";
	greatest_id bigint;
	closed oid;
	taking record;
BEGIN
	SELECT f.root INTO closed FROM snowflake.following_columns(root, "column") AS f
	WHERE NOT snowflake.takes_id(f.root, f."column", first_id) ORDER BY f.root <> $1, f.root LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'no partition of table % takes new ids', snowflake.qualified_name(closed)
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Ids of the layout "%s" begin at %s now.', layout, first_id),
			HINT = 'Create a partition for them, see snowflake_create_partitions(), or a default partition.';
	END IF;
	FOR taking IN
		SELECT f."column", snowflake.qualified_name(p) AS partition, snowflake.qualified_name(i.inhparent) AS table_name
		FROM snowflake.following_columns(root, "column") AS f
		CROSS JOIN LATERAL snowflake.default_taking(f.root, f."column", first_id) AS p
		JOIN pg_inherits AS i ON i.inhrelid = p
		ORDER BY f.root <> root, f.root
	LOOP
		RAISE NOTICE 'new ids of column "%" go to %, the default partition of table %',
			taking."column", taking.partition, taking.table_name
			USING DETAIL = format('No other partition takes ids of the layout "%s" from %s on, where they begin now.', layout, first_id),
			HINT = 'Create partitions for them first, see snowflake_create_partitions(): PostgreSQL refuses them once the default partition has such rows.';
	END LOOP;
	IF type <> 'bigint'::regtype AND first_id > 2147483647 THEN
		RETURN;				-- whatever is in there, it need not be looked for
	END IF;
	greatest_id := snowflake.greatest_value(root, "column");
	IF greatest_id >= first_id THEN
		RAISE EXCEPTION 'new ids would not be greater than all in column "%" of table %', "column", table_name
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The greatest is %s, and ids of the layout "%s" begin at %s now.',
				greatest_id, layout, first_id),
			HINT = CASE WHEN greatest_id < @extschema@.snowflake_min_id('infinity'::timestamptz, layout)
				THEN format('They are greater from %s on. ', @extschema@.snowflake_timestamp(greatest_id, layout) +
					(SELECT l.tick FROM @extschema@.snowflake_layout(layout) AS l)) ELSE '' END ||
				'Use a layout with an earlier epoch or more bits below the timestamp.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_new_ids(oid, name, text) IS
'part of snowflake_convert_column: refuses a column whose values are greater than new ids';

-- A constraint that references a partition itself (which has its own index for it) would
-- keep the index of the whole table from being rebuilt.
CREATE FUNCTION snowflake.constraints_on_partitions(root oid, "column" name) RETURNS SETOF oid
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT c.oid
	FROM snowflake.column_members(root, "column") AS m
	JOIN pg_class AS r ON r.oid = m.relation AND r.relispartition
	JOIN pg_constraint AS c ON c.confrelid = m.relation AND c.contype = 'f' AND c.conparentid = 0
	JOIN pg_index AS i ON i.indexrelid = c.conindid AND m.number = ANY (i.indkey)
$$;
COMMENT ON FUNCTION snowflake.constraints_on_partitions(oid, name) IS
'part of snowflake_convert_column: foreign keys that are dropped and created again';

-- The statements, in the order of step: each table is altered, and so rewritten, once.
-- PostgreSQL creates foreign keys again with either of their tables; in between they
-- compare integer with bigint, which they can.
CREATE FUNCTION snowflake.conversion(roots oid[], columns name[], expression text,
	OUT step integer, OUT relation oid, OUT statement text) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	WITH origin AS (
		SELECT o.root, o."column" FROM unnest(roots, columns) AS o (root, "column")
	), changed AS (
		SELECT DISTINCT f.root, f."column"
		FROM origin AS o CROSS JOIN LATERAL snowflake.following_columns(o.root, o."column") AS f
		WHERE f.type <> 'bigint'::regtype
	), reborn AS (
		SELECT DISTINCT c.oid, c.conrelid, quote_ident(c.conname) AS name, pg_get_constraintdef(c.oid) AS definition,
			snowflake.qualified_name(c.conrelid) AS table_name, obj_description(c.oid, 'pg_constraint') AS comment
		FROM changed AS t CROSS JOIN LATERAL snowflake.constraints_on_partitions(t.root, t."column") AS f (oid)
		JOIN pg_constraint AS c ON c.oid = f.oid
	), identity AS (
		-- partitions share that of their table since PostgreSQL 17, children have their own
		SELECT o.root, o."column", m.relation
		FROM origin AS o CROSS JOIN LATERAL snowflake.column_members(o.root, o."column") AS m
		JOIN pg_attribute AS a ON a.attrelid = m.relation AND a.attnum = m.number AND a.attidentity <> ''
		JOIN pg_class AS c ON c.oid = m.relation
		WHERE NOT c.relispartition OR current_setting('server_version_num')::integer < 170000
	), action AS (
		SELECT 1 AS step, i.root, format('ALTER COLUMN %I DROP IDENTITY', i."column") AS action
		FROM identity AS i WHERE i.relation = i.root
		UNION ALL
		SELECT 2, c.root, format('ALTER COLUMN %I TYPE bigint', c."column") FROM changed AS c
		UNION ALL
		SELECT 3, o.root, format('ALTER COLUMN %I SET DEFAULT %s', o."column", expression)
		FROM origin AS o WHERE NOT snowflake.has_default(o.root, o."column", expression)
	)
	SELECT 1, r.oid, format('ALTER TABLE %s DROP CONSTRAINT %s;', r.table_name, r.name) FROM reborn AS r
	UNION ALL
	SELECT 2, i.relation, format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY;',
		snowflake.qualified_name(i.relation), i."column")
	FROM identity AS i WHERE i.relation <> i.root
	UNION ALL
	SELECT CASE WHEN a.root = ANY (roots) THEN 3 ELSE 4 END, a.root, format('ALTER TABLE %s %s;',
		snowflake.qualified_name(a.root), string_agg(a.action, ', ' ORDER BY a.step, a.action))
	FROM action AS a GROUP BY a.root
	UNION ALL
	SELECT 5, r.oid, format('ALTER TABLE %s ADD CONSTRAINT %s %s;', r.table_name, r.name, r.definition)
	FROM reborn AS r
	UNION ALL
	SELECT 6, r.oid, format('COMMENT ON CONSTRAINT %s ON %s IS %L;', r.name, r.table_name, r.comment)
	FROM reborn AS r WHERE r.comment IS NOT NULL
$$;
COMMENT ON FUNCTION snowflake.conversion(oid[], name[], text) IS
'part of snowflake_convert_column: what is to be executed';

CREATE FUNCTION snowflake.layout_label(layout text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce(l.name, l.definition) FROM @extschema@.snowflake_layout(snowflake.layout_definition(layout)) AS l
$$;
COMMENT ON FUNCTION snowflake.layout_label(text) IS
'part of snowflake_convert_column: the name of a layout, or its definition; of the server''s for NULL';

CREATE FUNCTION snowflake.prepare_conversion("table" regclass, "column" name, layout text, dry_run boolean)
RETURNS text[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	expression CONSTANT text := snowflake.default_expression(layout);
	message text;
	detail text;
	hint text;
	context text;
BEGIN
	PERFORM snowflake.check_in_use(layout);
	PERFORM snowflake.lock_and_check("table", "column", true, dry_run IS NOT FALSE);
	PERFORM snowflake.check_citus("table", "column", expression);
	IF NOT snowflake.has_default("table", "column", expression) THEN
		PERFORM snowflake.check_new_ids("table", "column", snowflake.layout_label(layout));
	END IF;
	RETURN ARRAY(SELECT c.statement FROM snowflake.conversion(ARRAY["table"::oid], ARRAY["column"], expression) AS c
		ORDER BY c.step, c.relation);
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	PERFORM snowflake.raise_again(SQLSTATE, message, detail, hint, context);
	RAISE;
END
$$;
COMMENT ON FUNCTION snowflake.prepare_conversion(regclass, name, text, boolean) IS
'part of snowflake_convert_column: checks, locks unless dry_run, and returns the statements';

-- The statements are executed with the search path of the session, as if by hand: the
-- functions of indexes and CHECK constraints may go by it.  So nothing else is done here.
CREATE FUNCTION snowflake_convert_column("table" regclass, "column" name, layout text DEFAULT NULL,
	dry_run boolean DEFAULT true) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	statement pg_catalog.text;
BEGIN
	FOREACH statement IN ARRAY snowflake.prepare_conversion("table", "column", layout, dry_run) LOOP
		IF dry_run IS FALSE THEN
			EXECUTE statement;
		END IF;
		RETURN NEXT statement;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_convert_column(regclass, name, text, boolean) IS
'makes an integer column, with all that reference it, bigint with ids as default; returns the statements, and executes them unless dry_run';

--
-- All of a schema
--

-- Columns that take their values from a sequence, and are part of a primary key or of a unique
-- index of all rows.  Those of partitions and children come from their tables.
CREATE FUNCTION snowflake.sequence_keys(schema oid, OUT root oid, OUT "column" name) RETURNS SETOF record
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT c.oid, a.attname
	FROM pg_class AS c
	JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0
	WHERE c.relnamespace = schema AND c.relkind IN ('r', 'p')
		AND a.atttypid IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
		AND (a.attidentity <> '' OR EXISTS (SELECT FROM pg_attrdef AS d
			JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass
			JOIN pg_class AS s ON s.oid = p.refobjid AND s.relkind = 'S'
			WHERE d.adrelid = c.oid AND d.adnum = a.attnum))
		AND EXISTS (SELECT FROM pg_index AS i
			WHERE i.indrelid = c.oid AND i.indisunique AND i.indpred IS NULL
				AND a.attnum = ANY ((i.indkey::smallint[])[0:i.indnkeyatts - 1]))
		AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid
			AND e.refclassid = 'pg_extension'::regclass AND e.deptype = 'e')
$$;
COMMENT ON FUNCTION snowflake.sequence_keys(oid) IS
'part of snowflake_convert_schema: the serial and identity keys of a schema';

-- These columns, but for the tables that are left out: those that can be converted, and why the others
-- cannot.
CREATE FUNCTION snowflake.check_schema(schema oid, layout text, leave_out regclass[], new_ids boolean,
	OUT roots oid[], OUT columns name[], OUT refused text[], OUT refusals text[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	key record;
	detail text;
	hint text;
BEGIN
	roots := '{}'; columns := '{}'; refused := '{}'; refusals := '{}';
	FOR key IN
		SELECT k.root, k."column", n.name
		FROM snowflake.sequence_keys(schema) AS k, snowflake.qualified_name(k.root) AS n (name)
		WHERE k.root <> ALL (leave_out) ORDER BY n.name COLLATE "C", k."column" COLLATE "C"
	LOOP
		BEGIN
			PERFORM snowflake.check_conversion(key.root, key."column", true);
			PERFORM snowflake.check_citus(key.root, key."column", snowflake.default_expression(layout));
			IF new_ids THEN
				PERFORM snowflake.check_new_ids(key.root, key."column", snowflake.layout_label(layout));
			END IF;
			roots := roots || key.root;
			columns := columns || key."column";
		EXCEPTION WHEN lock_not_available THEN
			RAISE;
		WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			refused := refused || key.name;
			refusals := refusals || concat_ws(' ', SQLERRM || '.',
				regexp_replace(nullif(replace(detail, E'\n', ', '), ''), '([^.])$', '\1.'), nullif(hint, ''));
		END;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake.check_schema(oid, text, regclass[], boolean) IS
'part of snowflake_convert_schema: which keys can be converted, and why others cannot';

-- As lock_and_check() and prepare_conversion(), of all these columns at once, so that each table is
-- rewritten once and locks are taken in one order.
CREATE FUNCTION snowflake.prepare_schema(schema regnamespace, layout text, leave_out regclass[], dry_run boolean,
	OUT tables text[], OUT statements text[], OUT refused text[], OUT refusals text[])
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	locked text[] := '{}';
	to_lock text[];
	keys record;
	message text;
	detail text;
	hint text;
	context text;
BEGIN
	IF schema IS NULL OR leave_out IS NULL OR array_position(leave_out, NULL) IS NOT NULL THEN
		RAISE EXCEPTION 'schema and leave_out must not be null'
			USING ERRCODE = 'null_value_not_allowed',
			DETAIL = format('They are %s and %s.', coalesce(schema::text, 'NULL'), coalesce(leave_out::text, 'NULL')),
			HINT = 'Give the name of a schema, as in snowflake_convert_schema(''public'').';
	END IF;
	PERFORM FROM pg_namespace AS n WHERE n.oid = schema;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'schema with OID % does not exist', schema::oid
			USING ERRCODE = 'invalid_schema_name', HINT = 'Give the name of a schema.';
	END IF;
	PERFORM snowflake.check_in_use(layout);
	IF dry_run IS FALSE THEN
		PERFORM snowflake.check_isolation();
	END IF;
	LOOP
		-- values that are committed before the locks are taken count
		keys := snowflake.check_schema(schema, layout, leave_out, dry_run IS NOT FALSE OR locked <> '{}');
		to_lock := coalesce(snowflake.tables_to_lock(keys.roots, keys.columns, true), '{}');
		EXIT WHEN dry_run IS NOT FALSE;
		IF keys.refused <> '{}' THEN
			RAISE EXCEPTION '% of % keys of schema % cannot be converted', cardinality(keys.refused),
				cardinality(keys.refused) + cardinality(keys.roots), schema
				USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = array_to_string(keys.refusals, E'\n'),
				HINT = format('Nothing is changed. Mend that, or leave the tables out: leave_out => %L.', ARRAY(SELECT DISTINCT unnest(keys.refused) ORDER BY 1));
		END IF;
		EXIT WHEN to_lock <@ locked;
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', array_to_string(to_lock, ', '));
		locked := to_lock;
	END LOOP;
	refused := keys.refused;
	refusals := keys.refusals;
	-- a table that is referenced comes before those that reference it
	SELECT coalesce(array_agg(s.name ORDER BY s.nr), '{}'), coalesce(array_agg(s.statement ORDER BY s.nr), '{}')
	INTO tables, statements
	FROM (SELECT c.statement, n.name, row_number() OVER (ORDER BY CASE c.step WHEN 4 THEN 3 ELSE c.step END,
				array_position(to_lock, n.name) DESC, c.relation, c.statement) AS nr
		FROM snowflake.conversion(keys.roots, keys.columns, snowflake.default_expression(layout)) AS c
		CROSS JOIN LATERAL (SELECT coalesce(snowflake.qualified_name(c.relation),
			(SELECT snowflake.qualified_name(k.conrelid) FROM pg_constraint AS k WHERE k.oid = c.relation)) AS name) AS n) AS s;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	PERFORM snowflake.raise_again(SQLSTATE, message, detail, hint, context);
	RAISE;
END
$$;
COMMENT ON FUNCTION snowflake.prepare_schema(regnamespace, text, regclass[], boolean) IS
'part of snowflake_convert_schema: checks, locks unless dry_run, and returns the statements and what is refused';

-- The statements are executed as those of snowflake_convert_column().
CREATE FUNCTION snowflake_convert_schema(schema regnamespace, layout text DEFAULT NULL,
	leave_out regclass[] DEFAULT '{}', dry_run boolean DEFAULT true,
	OUT "table" text, OUT statement text, OUT refusal text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	prepared record;
BEGIN
	prepared := snowflake.prepare_schema(schema, layout, leave_out, dry_run);
	FOR i IN 1 .. pg_catalog.cardinality(prepared.statements) LOOP
		"table" := prepared.tables[i];
		statement := prepared.statements[i];
		IF dry_run IS FALSE THEN
			EXECUTE statement;
		END IF;
		RETURN NEXT;
	END LOOP;
	statement := NULL;
	FOR i IN 1 .. pg_catalog.cardinality(prepared.refused) LOOP
		"table" := prepared.refused[i];
		refusal := prepared.refusals[i];
		RETURN NEXT;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_convert_schema(regnamespace, text, regclass[], boolean) IS
'converts all serial and identity keys of a schema, as snowflake_convert_column() does each; returns the statements, and in a dry run why others are refused';

--
-- Back to a sequence
--

-- Not a sequence that the defaults of other columns use, too: the next value here may be out
-- of the range of theirs.
CREATE FUNCTION snowflake.owned_sequence(root oid, "column" name) RETURNS oid
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
	SELECT s.seqrelid
	FROM pg_attribute AS a
	JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = root AND d.refobjsubid = a.attnum
		AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'
	JOIN pg_sequence AS s ON s.seqrelid = d.objid
	WHERE a.attrelid = root AND a.attname = "column"
		AND NOT EXISTS (SELECT FROM pg_depend AS u WHERE u.refclassid = 'pg_class'::regclass
			AND u.refobjid = s.seqrelid AND u.classid = 'pg_attrdef'::regclass)
	ORDER BY s.seqrelid LIMIT 1
$$;
COMMENT ON FUNCTION snowflake.owned_sequence(oid, name) IS
'part of snowflake_revert_column: the sequence that the column still has';

CREATE FUNCTION snowflake.new_sequence_name(root oid, "column" name) RETURNS text
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	class CONSTANT pg_class := c FROM pg_class AS c WHERE c.oid = root;
	stem text := class.relname || '_' || "column";
	candidate text;
BEGIN
	-- names have at most 63 bytes
	WHILE octet_length(stem) > 54 LOOP
		stem := left(stem, -1);
	END LOOP;
	FOR n IN 0 .. 9999 LOOP
		candidate := stem || '_seq' || coalesce(nullif(n, 0)::text, '');
		PERFORM FROM pg_class AS c WHERE c.relnamespace = class.relnamespace AND c.relname = candidate;
		EXIT WHEN NOT FOUND;
	END LOOP;
	RETURN snowflake.qualified_name(class.relnamespace, candidate::name);
END
$$;
COMMENT ON FUNCTION snowflake.new_sequence_name(oid, name) IS
'part of snowflake_revert_column: a free name, made as PostgreSQL makes it for serial';

-- The next value is greater than "last" and than all that the sequence has returned.  In a
-- transaction that is rolled back it stays where it was, unlike with setval().
CREATE FUNCTION snowflake.alter_sequence(sequence oid, last bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('ALTER SEQUENCE %s', snowflake.qualified_name(sequence)) ||
		CASE WHEN s.seqtypid <> 'bigint'::regtype THEN ' AS bigint' ELSE '' END ||
		CASE WHEN s.seqincrement < 0 THEN format(' INCREMENT BY 1 NO MINVALUE NO MAXVALUE START WITH %s', n.next)
			WHEN s.seqmax < n.next THEN ' NO MAXVALUE' ELSE '' END ||
		-- in step with the start, as another server's may be in between
		format(' RESTART WITH %s;', n.next + CASE WHEN s.seqincrement > 1
			THEN ((s.seqstart - n.next) % s.seqincrement + s.seqincrement) % s.seqincrement ELSE 0 END)
	FROM pg_sequence AS s, LATERAL (
		SELECT greatest(last + 1, coalesce(pg_sequence_last_value(sequence) + 1, s.seqstart),
			CASE WHEN s.seqincrement < 0 THEN 1 END) AS next) AS n
	WHERE s.seqrelid = sequence
$$;
COMMENT ON FUNCTION snowflake.alter_sequence(oid, bigint) IS
'part of snowflake_revert_column: the statement that lets a sequence go on after the column''s values';

-- A role that may insert needs the sequence for it; for ids of the extension it needed nothing.
CREATE FUNCTION snowflake.grant_sequence(root oid, "column" name, sequence oid, sequence_name text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('GRANT USAGE ON SEQUENCE %s TO %s;', sequence_name, string_agg(g.name, ', ' ORDER BY g.name))
	FROM (SELECT DISTINCT CASE p.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(p.grantee)) END AS name
		FROM snowflake.column_members(root, "column") AS m
		JOIN pg_class AS c ON c.oid = m.relation
		CROSS JOIN LATERAL (SELECT c.relacl UNION ALL SELECT a.attacl FROM pg_attribute AS a
			WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL) AS l (acl)
		CROSS JOIN LATERAL aclexplode(l.acl) AS p
		WHERE p.privilege_type = 'INSERT' AND p.grantee <> c.relowner
			AND (sequence IS NULL OR NOT has_sequence_privilege(p.grantee, sequence, 'USAGE'))) AS g
	HAVING count(*) > 0
$$;
COMMENT ON FUNCTION snowflake.grant_sequence(oid, name, oid, text) IS
'part of snowflake_revert_column: the statement that lets roles that may insert use the sequence';

CREATE FUNCTION snowflake.reversion(root oid, "column" name) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	table_name CONSTANT text := snowflake.qualified_name(root);
	last CONSTANT bigint := snowflake.greatest_value(root, "column");
	sequence CONSTANT oid := snowflake.owned_sequence(root, "column");
	sequence_name CONSTANT text := coalesce(snowflake.qualified_name(sequence),
		snowflake.new_sequence_name(root, "column"));
	owner CONSTANT oid := c.relowner FROM pg_class AS c WHERE c.oid = root;
	statements text[];
BEGIN
	IF last = 9223372036854775807 THEN
		RAISE EXCEPTION 'no sequence can go on after % in column "%" of table %', last, "column", table_name
			USING ERRCODE = 'numeric_value_out_of_range',
			DETAIL = 'It is the greatest bigint.',
			HINT = 'Change or delete that row first.';
	END IF;
	IF sequence IS NOT NULL THEN
		statements := ARRAY[snowflake.alter_sequence(sequence, last)];
	ELSE
		statements := ARRAY[
			format('CREATE SEQUENCE %s AS bigint START WITH %s;', sequence_name, greatest(last + 1, 1)),
			CASE WHEN pg_get_userbyid(owner) <> current_user
				THEN format('ALTER SEQUENCE %s OWNER TO %I;', sequence_name, pg_get_userbyid(owner)) END,
			format('ALTER SEQUENCE %s OWNED BY %s.%I;', sequence_name, table_name, "column")];
	END IF;
	RETURN array_remove(statements || snowflake.grant_sequence(root, "column", sequence, sequence_name) ||
		format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT nextval(%L::regclass);',
			table_name, "column", sequence_name), NULL);
END
$$;
COMMENT ON FUNCTION snowflake.reversion(oid, name) IS
'part of snowflake_revert_column: what is to be executed';

CREATE FUNCTION snowflake.prepare_reversion("table" regclass, "column" name, dry_run boolean) RETURNS text[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	message text;
	detail text;
	hint text;
	context text;
BEGIN
	PERFORM snowflake.lock_and_check("table", "column", false, dry_run IS NOT FALSE);
	PERFORM FROM pg_attribute AS a
	JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
		AND p.refclassid = 'pg_proc'::regclass AND p.refobjid IN (
			'@extschema@.snowflake_nextval()'::regprocedure, '@extschema@.snowflake_nextval(text)'::regprocedure)
	WHERE a.attrelid = "table" AND a.attname = "column";
	IF NOT FOUND THEN
		RAISE EXCEPTION 'column "%" of table % is not converted', "column", snowflake.qualified_name("table")
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Its default does not call snowflake_nextval().',
			HINT = 'Nothing needs to be done; snowflake_convert_column() converts a column.';
	END IF;
	PERFORM snowflake.check_citus("table", "column", NULL);
	RETURN snowflake.reversion("table", "column");
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	PERFORM snowflake.raise_again(SQLSTATE, message, detail, hint, context);
	RAISE;
END
$$;
COMMENT ON FUNCTION snowflake.prepare_reversion(regclass, name, boolean) IS
'part of snowflake_revert_column: checks, locks unless dry_run, and returns the statements';

CREATE FUNCTION snowflake_revert_column("table" regclass, "column" name, dry_run boolean DEFAULT true)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
AS $$
#variable_conflict use_variable
DECLARE
	statement pg_catalog.text;
BEGIN
	FOREACH statement IN ARRAY snowflake.prepare_reversion("table", "column", dry_run) LOOP
		IF dry_run IS FALSE THEN
			EXECUTE statement;
		END IF;
		RETURN NEXT statement;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_revert_column(regclass, name, boolean) IS
'lets a converted column take its values from a sequence again; it stays bigint; returns the statements, and executes them unless dry_run';

--
-- What every role may use.  PostgreSQL gives EXECUTE on a new function to PUBLIC by default,
-- but not where ALTER DEFAULT PRIVILEGES says otherwise; the rights of the extension are
-- the same everywhere.  All other functions are revoked from PUBLIC where they are created.
--
GRANT EXECUTE ON FUNCTION
	snowflake_nextval(), snowflake_nextval(text),
	snowflake_nextval_batch(integer), snowflake_nextval_batch(integer, text),
	snowflake_parse(bigint), snowflake_parse(bigint, text),
	snowflake_timestamp(bigint), snowflake_timestamp(bigint, text),
	snowflake_min_id(timestamptz), snowflake_min_id(timestamptz, text),
	snowflake_max_id(timestamptz), snowflake_max_id(timestamptz, text),
	snowflake_compose(timestamptz, integer, integer, integer, integer),
	snowflake_compose(timestamptz, integer, integer, text, integer, integer),
	snowflake_layout(), snowflake_layout(text), snowflake_layouts(),
	snowflake_encode(bigint, text), snowflake_decode(text, text),
	snowflake_mask(bigint, bytea), snowflake_unmask(bigint, bytea),
	snowflake_range(timestamptz, timestamptz), snowflake_range(timestamptz, timestamptz, text),
	snowflake_partition_bounds(timestamptz, timestamptz, interval),
	snowflake_partition_bounds(timestamptz, timestamptz, interval, text),
	snowflake_create_partitions(regclass, timestamptz, timestamptz, interval, text, boolean),
	snowflake_drop_partitions(regclass, timestamptz, text, boolean),
	snowflake_within(bigint, timestamptz, timestamptz), snowflake_within(bigint, timestamptz, timestamptz, text),
	snowflake_guess(bigint, timestamptz),
	snowflake_audit(regclass, name, text),
	snowflake_convert_column(regclass, name, text, boolean),
	snowflake_convert_schema(regnamespace, text, regclass[], boolean),
	snowflake_revert_column(regclass, name, boolean),
	pg_stat_snowflake()
TO PUBLIC;
GRANT SELECT ON pg_stat_snowflake TO PUBLIC;

-- The parts of these functions run with the rights of the caller.
GRANT USAGE ON SCHEMA snowflake TO PUBLIC;
GRANT EXECUTE ON FUNCTION
	snowflake.layout_definition, snowflake.layouts_in_use,
	snowflake.first_id_from(timestamptz), snowflake.first_id_from(timestamptz, text),
	snowflake.last_id_within(timestamptz, timestamptz), snowflake.last_id_within(timestamptz, timestamptz, text),
	snowflake.step_start, snowflake.partition_suffix, snowflake.partition_name, snowflake.partition_ranges, snowflake.check_partition_key,
	snowflake.layout_fields, snowflake.part_cost, snowflake.guess_candidates,
	snowflake.read_leases, snowflake.lease_page, snowflake.leases_are_here, snowflake.leased_ticks, snowflake.all_leased,
	snowflake.known_unique, snowflake.audited_column,
	snowflake.audit_duplicates, snowflake.audit_ids, snowflake.audit_detail,
	snowflake.qualified_name(oid, name), snowflake.qualified_name(oid), snowflake.column_members, snowflake.column_roots,
	snowflake.following_columns, snowflake.check_column, snowflake.check_table, snowflake.dependents,
	snowflake.check_type_change, snowflake.check_following, snowflake.check_conversion, snowflake.check_citus, snowflake.tables_to_lock,
	snowflake.check_isolation, snowflake.lock_and_check, snowflake.raise_again, snowflake.bound_takes, snowflake.partitioned_by,
	snowflake.default_taking, snowflake.layout_label, snowflake.sequence_keys, snowflake.check_schema, snowflake.prepare_schema,
	snowflake.default_expression, snowflake.check_in_use, snowflake.has_default, snowflake.takes_id,
	snowflake.greatest_value, snowflake.check_new_ids, snowflake.constraints_on_partitions, snowflake.conversion,
	snowflake.prepare_conversion, snowflake.owned_sequence, snowflake.new_sequence_name, snowflake.alter_sequence,
	snowflake.grant_sequence, snowflake.reversion, snowflake.prepare_reversion
TO PUBLIC;
