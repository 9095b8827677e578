--
-- The tables that uniqueness depends on.  Those of database postgres count, of this cluster or
-- of the one that snowflake.registry names.
--
CREATE TABLE snowflake.worker_node (
	token uuid PRIMARY KEY,
	start uuid NOT NULL,
	granted_by bigint NOT NULL,
	last_call bigint NOT NULL,
	kind text COLLATE "C" NOT NULL,
	name text COLLATE "C",
	system_identifier bigint,
	host_name text COLLATE "C" NOT NULL,
	port integer,
	timeline bigint,
	incarnation uuid NOT NULL,
	generation integer NOT NULL,
	fixed boolean NOT NULL,
	node_number bigint NOT NULL,
	datacenter_id integer,
	worker_id integer NOT NULL,
	clock integer,
	layout text COLLATE "C" NOT NULL,
	greatest_id bigint NOT NULL,
	launched_at timestamptz NOT NULL,
	starts_at timestamptz NOT NULL,
	leased_until timestamptz NOT NULL,
	renewed_at timestamptz NOT NULL,
	closed_at timestamptz,
	CONSTRAINT worker_node_kind CHECK (CASE kind WHEN 'program' THEN name IS NOT NULL AND NOT fixed AND num_nonnulls(system_identifier, port, timeline) = 0
		ELSE name IS NULL AND num_nulls(system_identifier, port, timeline) = 0 END),
	CONSTRAINT worker_node_span CHECK (starts_at <= leased_until AND isfinite(starts_at) AND isfinite(leased_until)),
	CONSTRAINT worker_node_number CHECK (node_number >= 0)
)
-- Renewals leave old versions in the indexes; their number matters, however long the history is.
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Every look into the table reads one of these in its order, and ends at the first row that fits
-- (ORDER BY ... LIMIT 1); where several values are wanted it jumps from one to the next.  So no call
-- takes longer as history grows, and no statistics lead the planner to another way.  A lease that was
-- closed where it started issued nothing; those that ask for issued ids leave it out.
CREATE INDEX worker_node_end ON snowflake.worker_node (node_number, leased_until);
CREATE INDEX worker_node_open ON snowflake.worker_node (node_number, leased_until) WHERE closed_at IS NULL;
CREATE INDEX worker_node_call ON snowflake.worker_node (start, last_call);
CREATE INDEX worker_node_open_start ON snowflake.worker_node (start) WHERE closed_at IS NULL;
CREATE INDEX worker_node_newest ON snowflake.worker_node (incarnation, renewed_at)
	WHERE closed_at IS NULL OR leased_until > starts_at;
CREATE INDEX worker_node_layout ON snowflake.worker_node (layout, greatest_id)
	WHERE closed_at IS NULL OR leased_until > starts_at;
CREATE INDEX worker_node_live ON snowflake.worker_node (leased_until)
	WHERE closed_at IS NULL OR leased_until > starts_at;
COMMENT ON TABLE snowflake.worker_node IS
'a row for each lease of a node number, usually one for each start of a node; history, never deleted';
COMMENT ON COLUMN snowflake.worker_node.token IS
'names the lease in later calls';
COMMENT ON COLUMN snowflake.worker_node.start IS
'the start of the node, a random number made with its shared memory';
COMMENT ON COLUMN snowflake.worker_node.granted_by IS
'number of the call that granted the lease';
COMMENT ON COLUMN snowflake.worker_node.last_call IS
'number of the last call that touched the row; a call of the same start with a number that is not greater is refused';
COMMENT ON COLUMN snowflake.worker_node.kind IS
'what the node is: server or program';
COMMENT ON COLUMN snowflake.worker_node.name IS
'of the program; several can have the same; NULL for a server';
COMMENT ON COLUMN snowflake.worker_node.system_identifier IS
'of the server; NULL for a program, as port and timeline are';
COMMENT ON COLUMN snowflake.worker_node.host_name IS
'where the node runs';
COMMENT ON COLUMN snowflake.worker_node.port IS
'of the server';
COMMENT ON COLUMN snowflake.worker_node.timeline IS
'of the server';
COMMENT ON COLUMN snowflake.worker_node.incarnation IS
'of the registry that granted the lease; rows of another one are history: no lease, but later leases start after their ends';
COMMENT ON COLUMN snowflake.worker_node.generation IS
'of the registry when it granted the lease, which it renews in this generation only';
COMMENT ON COLUMN snowflake.worker_node.fixed IS
'whether the node asked for this number; else the registry chose it';
COMMENT ON COLUMN snowflake.worker_node.node_number IS
'that is leased';
COMMENT ON COLUMN snowflake.worker_node.datacenter_id IS
'part of the node number; NULL if the layout has no such field';
COMMENT ON COLUMN snowflake.worker_node.worker_id IS
'part of the node number';
COMMENT ON COLUMN snowflake.worker_node.clock IS
'part of the node number; NULL if the layout has no such field';
COMMENT ON COLUMN snowflake.worker_node.layout IS
'the node''s default layout';
COMMENT ON COLUMN snowflake.worker_node.greatest_id IS
'that the lease allows in the default layout; -1 if there is none';
COMMENT ON COLUMN snowflake.worker_node.launched_at IS
'when the node was started';
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
	system_identifier bigint NOT NULL,
	generation integer NOT NULL DEFAULT 1,
	counted text[] NOT NULL DEFAULT '{}',
	counted_at timestamptz,
	starts_at timestamptz,
	taken_over uuid[] NOT NULL DEFAULT '{}',
	told uuid[] NOT NULL DEFAULT '{}',
	successor uuid,
	closed_at timestamptz,
	closed_by xid8,
	CONSTRAINT registry_taken_over CHECK (array_position(taken_over, NULL) IS NULL),
	CONSTRAINT registry_closed CHECK ((successor IS NULL) = (closed_at IS NULL) AND (successor IS NULL) = (closed_by IS NULL))
);
INSERT INTO snowflake.registry (incarnation, database, created_at, system_identifier)
SELECT pg_catalog.gen_random_uuid(), d.oid, pg_catalog.clock_timestamp(), s.system_identifier
FROM pg_catalog.pg_database AS d, pg_catalog.pg_control_system() AS s WHERE d.datname = pg_catalog.current_database();
COMMENT ON TABLE snowflake.registry IS
'one row: which registry this is, and what holds for all its leases; not dumped';
COMMENT ON COLUMN snowflake.registry.one IS
'true: there is one row';
COMMENT ON COLUMN snowflake.registry.incarnation IS
'made at CREATE EXTENSION, anew in a copy of the database, and when a closed registry is opened again';
COMMENT ON COLUMN snowflake.registry.database IS
'OID of the database that the incarnation was made in; it differs in a copy (CREATE DATABASE ... TEMPLATE)';
COMMENT ON COLUMN snowflake.registry.created_at IS
'when the tables were made: leases start at or after this plus the node''s max_ahead and a tick';
COMMENT ON COLUMN snowflake.registry.system_identifier IS
'of the server when it counted last; pg_upgrade makes another';
COMMENT ON COLUMN snowflake.registry.generation IS
'1, and one for each entry counted and each registry taken over whose generation had the other parity; automatic numbers are even in odd generations, odd in even ones';
COMMENT ON COLUMN snowflake.registry.counted IS
'entries of the server''s timeline history, as timeline/switch LSN, that the generation includes';
COMMENT ON COLUMN snowflake.registry.counted_at IS
'the clock when the generation grew last, or the system identifier changed: leases start at or after this plus the node''s max_ahead and a tick';
COMMENT ON COLUMN snowflake.registry.starts_at IS
'leases that are granted from now on start at or after this';
COMMENT ON COLUMN snowflake.registry.taken_over IS
'incarnations of the registries that this one has taken over, and that those had taken over';
COMMENT ON COLUMN snowflake.registry.told IS
'those of them that have told what they know; the others were taken over as lost';
COMMENT ON COLUMN snowflake.registry.successor IS
'incarnation of the registry that takes over this one, which is closed; NULL while it is open';
COMMENT ON COLUMN snowflake.registry.closed_at IS
'when the registry was closed';
COMMENT ON COLUMN snowflake.registry.closed_by IS
'the transaction that closed the registry';

CREATE TABLE snowflake.cluster (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	uses text COLLATE "C" NOT NULL CHECK (uses IN ('own', 'another')),
	incarnation uuid,
	CONSTRAINT cluster_incarnation CHECK ((uses = 'another') = (incarnation IS NOT NULL))
);
COMMENT ON TABLE snowflake.cluster IS
'one row, or no row at first: where the node numbers of this cluster come from';
COMMENT ON COLUMN snowflake.cluster.one IS
'true: there is one row';
COMMENT ON COLUMN snowflake.cluster.uses IS
'own: the tables of this cluster; another: the registry with the incarnation';
COMMENT ON COLUMN snowflake.cluster.incarnation IS
'of the other registry';

-- Rows that logical replication brings are another cluster's leases.  They would go round for
-- ever between two clusters that publish all tables to each other.  Only an apply process counts:
-- a session that restores a dump under session_replication_role = replica keeps its rows.
CREATE FUNCTION snowflake.is_replicated() RETURNS boolean
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT pg_replication_origin_session_is_setup()
$$;
COMMENT ON FUNCTION snowflake.is_replicated() IS
'part of the registry: whether the session applies what logical replication brings';

-- SECURITY DEFINER, as only superusers may ask for the origin.
CREATE FUNCTION snowflake.leave_out_replicated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	IF snowflake.is_replicated() THEN
		RETURN NULL;
	END IF;
	IF TG_OP = 'DELETE' THEN
		RETURN OLD;
	END IF;
	RETURN NEW;
END
$$;
COMMENT ON FUNCTION snowflake.leave_out_replicated() IS
'trigger: leaves out rows that logical replication brings';

CREATE FUNCTION snowflake.refuse_truncate() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	RAISE EXCEPTION 'table "%" cannot be truncated', TG_TABLE_NAME
		USING ERRCODE = 'object_not_in_prerequisite_state',
		DETAIL = 'Ids stay unique because its rows are kept.',
		HINT = 'See "Starting over" in doc/operations.md.';
END
$$;
COMMENT ON FUNCTION snowflake.refuse_truncate() IS
'trigger: refuses TRUNCATE';

CREATE FUNCTION snowflake.keep_cluster() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_kept snowflake.cluster;
BEGIN
	SELECT c.* INTO v_kept FROM snowflake.cluster AS c WHERE c.one;
	IF NOT FOUND THEN
		RETURN NEW;
	END IF;
	RAISE NOTICE 'table snowflake.cluster keeps its row'
		USING DETAIL = format('It says "%s", the row that is left out "%s".', v_kept.uses, NEW.uses);
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
