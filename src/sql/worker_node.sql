--
-- The tables that uniqueness depends on.  Those of database postgres count, of this
-- cluster or of the one that snowflake.registry names.  Only the functions in lease.sql
-- and lock_registry() write them, each after that lock, so that they run one after another.
--
CREATE SCHEMA snowflake;
COMMENT ON SCHEMA snowflake IS
'tables and lease functions of the extension snowflake: the registry of node numbers';
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
	own CONSTANT text := '@EXTVERSION@';
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
			HINT = 'See "Starting over" in doc/operations.md.';
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

