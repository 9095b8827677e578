--
-- Node numbers: who holds which, and until which id time.  The lease worker calls
-- the three functions below, on this cluster or, as snowflake.registry says, on
-- another one; nobody else needs to.
--
CREATE SCHEMA snowflake;
COMMENT ON SCHEMA snowflake IS
'tables and inner functions of the extension snowflake: the registry of node numbers, generators, ids for old rows';
GRANT USAGE ON SCHEMA snowflake TO PUBLIC;

-- One row.  Locked first by every function that reads or writes worker_node, so
-- that they run one after another.
CREATE TABLE snowflake.registry (
	incarnation uuid NOT NULL,
	database oid NOT NULL,
	layout text,
	floor timestamptz NOT NULL DEFAULT '-infinity'
);
CREATE UNIQUE INDEX registry_one_row ON snowflake.registry ((true));
ALTER TABLE snowflake.registry REPLICA IDENTITY FULL;
INSERT INTO snowflake.registry (incarnation, database)
SELECT gen_random_uuid(), oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database();
COMMENT ON TABLE snowflake.registry IS
'one row: which worker_node table this is, and the layout of its node numbers; not dumped';
COMMENT ON COLUMN snowflake.registry.incarnation IS
'made at CREATE EXTENSION; rows of worker_node with another one are history: no lease, but no id below their bounds';
COMMENT ON COLUMN snowflake.registry.database IS
'OID of the database that the incarnation was made in: another one in a copy (CREATE DATABASE ... TEMPLATE)';
COMMENT ON COLUMN snowflake.registry.layout IS
'definition of the layout, set by the first lease; see snowflake_change_layout()';
COMMENT ON COLUMN snowflake.registry.floor IS
'no lease starts before: all ids of earlier layouts are below';

CREATE TABLE snowflake.worker_node (
	token uuid PRIMARY KEY,
	id bigint GENERATED ALWAYS AS IDENTITY,
	incarnation uuid NOT NULL,
	node_number bigint NOT NULL,
	datacenter_id integer,
	worker_id integer NOT NULL,
	host_name text NOT NULL,
	port integer NOT NULL,
	system_identifier bigint NOT NULL,
	timeline integer NOT NULL,
	layout text NOT NULL,
	launched_at timestamptz NOT NULL,
	renewed_at timestamptz NOT NULL,
	leased_until timestamptz NOT NULL,
	released_at timestamptz
);
-- Each look into the table is one of these, so that none takes longer as history grows:
-- the last lease of a number, the last of all, the open one and the greatest bound.
CREATE INDEX worker_node_history ON snowflake.worker_node (incarnation, node_number, id);
CREATE INDEX worker_node_order ON snowflake.worker_node (incarnation, id);
CREATE INDEX worker_node_open ON snowflake.worker_node (incarnation, node_number) WHERE released_at IS NULL;
CREATE INDEX worker_node_bound ON snowflake.worker_node (node_number, leased_until);
GRANT SELECT ON snowflake.registry, snowflake.worker_node, snowflake.worker_node_id_seq TO pg_database_owner;
COMMENT ON TABLE snowflake.worker_node IS
'a row per lease of a node number: one for each start of a server';
COMMENT ON SEQUENCE snowflake.worker_node_id_seq IS
'numbers the leases';
COMMENT ON COLUMN snowflake.worker_node.token IS
'what the holder of the lease must show to renew or release it';
COMMENT ON COLUMN snowflake.worker_node.id IS
'the n-th lease';
COMMENT ON COLUMN snowflake.worker_node.incarnation IS
'of the registry that granted the lease; rows of another one, from a dump, are history';
COMMENT ON COLUMN snowflake.worker_node.launched_at IS
'when the server was started';
COMMENT ON COLUMN snowflake.worker_node.leased_until IS
'no id issued under this lease is of a tick that ends later; once released, the true end';
COMMENT ON COLUMN snowflake.worker_node.released_at IS
'NULL while the lease is open';

-- The history is dumped; a new incarnation is made where it is restored.
SELECT pg_catalog.pg_extension_config_dump('snowflake.worker_node', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake.worker_node_id_seq', '');

-- Rows that logical replication brings are another cluster's leases.  They would
-- go round for ever between two clusters that publish all tables to each other.
CREATE FUNCTION snowflake.ignore_replicated() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION snowflake.ignore_replicated() IS
'trigger: leaves out rows that logical replication brings';
REVOKE EXECUTE ON FUNCTION snowflake.ignore_replicated() FROM PUBLIC;

CREATE TRIGGER ignore_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.worker_node
FOR EACH ROW EXECUTE FUNCTION snowflake.ignore_replicated();
ALTER TABLE snowflake.worker_node ENABLE REPLICA TRIGGER ignore_replicated;
CREATE TRIGGER ignore_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.registry
FOR EACH ROW EXECUTE FUNCTION snowflake.ignore_replicated();
ALTER TABLE snowflake.registry ENABLE REPLICA TRIGGER ignore_replicated;

-- Locks the registry until the end of the transaction, and checks what its answers
-- depend on.  Other statements of the transaction see what was committed before.
CREATE FUNCTION snowflake.lock_registry(version text) RETURNS snowflake.registry
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	own CONSTANT text := '@EXTVERSION@';
	result snowflake.registry;
	here oid;
BEGIN
	IF split_part(version, '.', 1) <> split_part(own, '.', 1) OR
		abs(split_part(version, '.', 2)::integer - split_part(own, '.', 2)::integer) > 1 THEN
		RAISE EXCEPTION 'the registry has version % of snowflake, the node %', own, version
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'They can be one minor version apart.',
			HINT = 'Upgrade the older one.';
	END IF;
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'leases need isolation level read committed, not %',
			current_setting('transaction_isolation')
			USING ERRCODE = 'active_sql_transaction';
	END IF;
	IF current_setting('session_replication_role') = 'replica' THEN
		RAISE EXCEPTION 'leases need a session_replication_role other than replica'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Rows that are written under it are left out as if replication had brought them.',
			HINT = 'Reset it for the database and the role that snowflake.registry names.';
	END IF;
	SELECT * INTO STRICT result FROM snowflake.registry FOR UPDATE;
	SELECT oid INTO STRICT here FROM pg_database WHERE datname = current_database();
	IF result.database <> here THEN
		-- a copy of another database: other numbers are leased there from now on
		UPDATE snowflake.registry AS r SET incarnation = gen_random_uuid(), database = here,
			floor = greatest(r.floor, (SELECT max(w.leased_until) FROM snowflake.worker_node AS w))
		RETURNING * INTO STRICT result;
	END IF;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.lock_registry(text) IS
'part of the lease functions: lets them run one after another';
REVOKE EXECUTE ON FUNCTION snowflake.lock_registry(text) FROM PUBLIC;

