--
-- The tables.  Those of database postgres count, of this cluster or of the one that snowflake.registry
-- names.  All that uniqueness depends on is in node_number, registry and cluster.
--

-- The first table, as in calls: DROP EXTENSION mostly locks tables in the order in which they were created, so it waits
-- for a call before it holds what the call needs.
CREATE TABLE snowflake.registry (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	incarnation uuid NOT NULL,	-- of CREATE EXTENSION; anew in a copy of the database, and when opened again
	-- where the incarnation was made; another in a copy (CREATE DATABASE ... TEMPLATE).  NULL if server names it
	database oid,
	created_at timestamptz NOT NULL,	-- leases start at or after this plus the node's max_ahead
	-- 1, and one for each entry of the timeline history, and each registry taken over whose generation had the other
	-- parity: automatic numbers are even in odd generations, odd in even ones
	generation integer NOT NULL DEFAULT 1,
	server text COLLATE "C",	-- system identifier and timeline when it counted last; NULL only within CREATE EXTENSION
	counted text[] NOT NULL DEFAULT '{}',	-- entries of the history, as timeline/switch LSN, in the generation
	-- when the generation grew last, or the system identifier changed: leases start at or after this plus the node's
	-- max_ahead, at most 10 s
	counted_at timestamptz,
	mark text COLLATE "C",		-- tells the data directory from a copy of it; NULL if that is not known
	starts_at timestamptz,		-- all leases that are granted from now on start at or after this
	end_limit interval NOT NULL DEFAULT '3 min',	-- no lease ends later than this after the clock
	old_limit interval,			-- before it was lowered: counts for waits until old_limit_until
	old_limit_until timestamptz,	-- when the last lease under it is over
	taken_over uuid[] NOT NULL DEFAULT '{}',	-- registries taken over, and those that they had taken over
	told uuid[] NOT NULL DEFAULT '{}',	-- those of them that have told what they know; others were lost
	successor uuid,				-- takes over this one, which is closed; NULL, as the next two, while it is open
	closed_at timestamptz,
	closed_by xid8,
	CONSTRAINT registry_taken_over CHECK (array_position(taken_over, NULL) IS NULL),
	CONSTRAINT registry_limit CHECK (end_limit BETWEEN '10 s' AND '48 h'
		AND (old_limit IS NULL) = (old_limit_until IS NULL)),
	CONSTRAINT registry_closed CHECK (num_nulls(successor, closed_at, closed_by) IN (0, 3))
);
INSERT INTO snowflake.registry (incarnation, database, created_at)
SELECT pg_catalog.gen_random_uuid(), d.oid, pg_catalog.clock_timestamp()
FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database();
COMMENT ON TABLE snowflake.registry IS 'one row: which registry this is, and what holds for all its leases; not dumped';

-- The truth.  A renewal changes its row and nothing else, and no column of an index, so it is HOT.
CREATE TABLE snowflake.node_number (
	node_number bigint PRIMARY KEY,
	ended_until timestamptz NOT NULL DEFAULT '-infinity',	-- the greatest end of its leases, but the open one's
	free_since timestamptz,		-- when its last lease was closed; NULL if none was closed here
	recorded_until timestamptz NOT NULL DEFAULT '-infinity',	-- the greatest end ever granted here; never lowered
	-- The lease that is open; all NULL if there is none
	token uuid,					-- names it in calls
	start uuid,					-- of the node that has it, a random number made with its shared memory
	granted_by bigint,			-- number of the call that granted it
	last_call bigint,			-- of the last call about it: the start's next one has a greater number
	own boolean,				-- whether this server's own lease worker asked for it
	fixed boolean,				-- whether the node asked for this number; else the registry chose it
	system_identifier bigint,	-- of the server that has it; NULL for a program
	role text COLLATE "C",		-- that called
	incarnation uuid,			-- of the registry that granted it
	generation integer,			-- of the registry then; renewed in this one only
	starts_at timestamptz,		-- every id is of a tick that begins at or after this
	leased_until timestamptz,	-- and ends at or before this
	renewed_at timestamptz,		-- when it was granted or renewed last, by the registry's clock
	CONSTRAINT node_number_positive CHECK (node_number >= 0),
	CONSTRAINT node_number_open CHECK (num_nulls(token, start, granted_by, last_call, own, fixed, role,
		incarnation, generation, starts_at, leased_until, renewed_at) IN (0, 12)
		AND (token IS NOT NULL OR system_identifier IS NULL)),
	CONSTRAINT node_number_span CHECK (starts_at <= leased_until AND leased_until <= recorded_until)
)
-- room for the next version of each row in its page
WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- free numbers of one parity, the longest unused first
CREATE INDEX node_number_free ON snowflake.node_number ((node_number & 1), ended_until) WHERE token IS NULL;
CREATE INDEX node_number_start ON snowflake.node_number (start) WHERE token IS NOT NULL;
CREATE INDEX node_number_system_identifier ON snowflake.node_number (system_identifier)
	WHERE system_identifier IS NOT NULL;
COMMENT ON TABLE snowflake.node_number IS
'a row for each node number that was ever leased: where its ids end, and the lease that is open';

-- The log.  Nothing is decided by it.  doc/reference.md says what is in it.
CREATE TABLE snowflake.worker_node (
	token uuid PRIMARY KEY,
	start uuid NOT NULL,
	granted_by bigint NOT NULL,
	kind text COLLATE "C" NOT NULL,
	name text COLLATE "C",
	host_name text COLLATE "C" NOT NULL,
	port integer,
	role text COLLATE "C" NOT NULL,
	system_identifier bigint,
	timeline bigint,
	incarnation uuid NOT NULL,
	generation integer NOT NULL,
	fixed boolean NOT NULL,
	node_number bigint NOT NULL,
	layout text COLLATE "C" NOT NULL,
	launched_at timestamptz NOT NULL,
	starts_at timestamptz NOT NULL,
	leased_until timestamptz,	-- NULL while it is open: node_number has it then
	closed_at timestamptz,
	CONSTRAINT worker_node_kind CHECK (CASE kind
		WHEN 'program' THEN name IS NOT NULL AND num_nonnulls(system_identifier, port, timeline) = 0
		WHEN 'server' THEN name IS NULL AND num_nulls(system_identifier, port, timeline) = 0 ELSE false END),
	CONSTRAINT worker_node_closed CHECK ((leased_until IS NULL) = (closed_at IS NULL))
);
CREATE INDEX worker_node_leased_until ON snowflake.worker_node (leased_until);
COMMENT ON TABLE snowflake.worker_node IS
'the log: a row for each lease of a node number, usually one for each start of a node; rows of leases that are over '
'may be deleted';

CREATE TABLE snowflake.cluster (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	uses text COLLATE "C" CHECK (uses IN ('own', 'another')),	-- where its numbers come from; NULL: nowhere yet
	incarnation uuid,			-- of the other registry
	layout text COLLATE "C",	-- the default layout of all nodes of these tables; NULL: none yet
	greatest_id bigint NOT NULL DEFAULT -1,	-- that leases under other layouts allow; never lowered; -1: no leases
	CONSTRAINT cluster_incarnation CHECK ((uses IS NOT DISTINCT FROM 'another') = (incarnation IS NOT NULL))
);
COMMENT ON TABLE snowflake.cluster IS
'one row, or no row at first: where the node numbers of this cluster come from, and the default layout';

-- A row for each kind of guard, so that no call makes the table grow.
CREATE TABLE snowflake.guard (
	-- wait: leases waited after a promotion; rolled back: a node has a lease that the tables do not know; copy: the
	-- data directory is a copy; triggers: they were disabled
	guard text COLLATE "C" PRIMARY KEY CHECK (guard IN ('wait', 'rolled back', 'copy', 'triggers')),
	times bigint NOT NULL DEFAULT 1,
	first_at timestamptz NOT NULL,
	last_at timestamptz NOT NULL,
	detail text COLLATE "C" NOT NULL	-- of the last time
);
COMMENT ON TABLE snowflake.guard IS
'what the guards have found, for monitoring; nothing is decided by it, and rows may be deleted';

--
-- Triggers
--

-- Rows that logical replication brings are another cluster's leases.  They would go round for
-- ever between two clusters that publish all tables to each other.  Only an apply process counts:
-- a session that restores a dump under session_replication_role = replica keeps its rows.
CREATE FUNCTION snowflake.is_replicated() RETURNS boolean
LANGUAGE sql
AS $$
	SELECT pg_catalog.pg_replication_origin_session_is_setup()
$$;

-- SECURITY DEFINER, as only superusers may ask for the origin.
CREATE FUNCTION snowflake.leave_out_replicated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	IF snowflake.is_replicated() THEN
		RETURN NULL;
	END IF;
	RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END
$$;

CREATE FUNCTION snowflake.refuse_to_delete() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	RAISE EXCEPTION '% on table "%" is not possible', TG_OP, TG_TABLE_NAME
		USING ERRCODE = 'object_not_in_prerequisite_state',
		DETAIL = 'Ids stay unique because its rows are kept.',
		HINT = 'See "Starting over" in doc/operations.md.';
END
$$;

-- A row that is inserted only raises where ids end: it comes from a dump, from a registry that was taken over, or
-- is a number's first.  Its lease is over, or is one of another registry.
CREATE FUNCTION snowflake.merge_node_number() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_row snowflake.node_number;
BEGIN
	v_row.node_number := NEW.node_number;
	v_row.ended_until := greatest(NEW.ended_until, NEW.leased_until);
	v_row.recorded_until := NEW.recorded_until;
	PERFORM FROM snowflake.registry AS r WHERE r.one FOR UPDATE;
	UPDATE snowflake.node_number AS n
	SET ended_until = greatest(n.ended_until, v_row.ended_until),
		recorded_until = greatest(n.recorded_until, v_row.recorded_until)
	WHERE n.node_number = NEW.node_number;
	RETURN CASE WHEN NOT FOUND THEN v_row END;
END
$$;

-- A lease of the log that was open when it was dumped is no open one here: nothing would close it.  A dump has the ends
-- of all numbers before it has the log.
CREATE FUNCTION snowflake.close_restored() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_number snowflake.node_number;
BEGIN
	SELECT n.* INTO v_number FROM snowflake.node_number AS n WHERE n.node_number = NEW.node_number;
	IF v_number.token IS DISTINCT FROM NEW.token THEN
		NEW.leased_until := coalesce(v_number.ended_until, clock_timestamp());
		NEW.closed_at := clock_timestamp();
	END IF;
	RETURN NEW;
END
$$;

-- Of the log, leases that may still allow ids stay.
CREATE FUNCTION snowflake.refuse_to_forget() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	IF OLD.leased_until <= clock_timestamp() THEN
		RETURN OLD;
	END IF;
	RAISE EXCEPTION 'the lease % is not over', OLD.token
		USING ERRCODE = 'object_not_in_prerequisite_state',
		DETAIL = 'Rows of leases that are over may be deleted, others not.',
		HINT = 'Delete those WHERE leased_until < now().';
END
$$;

-- A record that is there stays.  But one that does not say yet where numbers come from learns it, if no lease was
-- granted here: a record of another registry would stop this one.  What other layouts allowed counts all the same, and
-- so does where leases start above that: no dump has it.
CREATE FUNCTION snowflake.keep_cluster() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_row snowflake.cluster := NEW;
	v_kept snowflake.cluster;
	v_learns boolean;
BEGIN
	PERFORM FROM snowflake.registry AS r WHERE r.one FOR UPDATE;
	UPDATE snowflake.cluster AS c SET layout = coalesce(c.layout, NEW.layout),
		greatest_id = greatest(c.greatest_id, NEW.greatest_id)
	WHERE c.one RETURNING c.* INTO v_kept;
	UPDATE snowflake.cluster AS c SET uses = NEW.uses, incarnation = NEW.incarnation
	WHERE c.one AND c.uses IS NULL AND NEW.uses IS NOT NULL
		AND NOT EXISTS (SELECT FROM snowflake.node_number AS n WHERE n.token IS NOT NULL OR n.free_since IS NOT NULL);
	v_learns := FOUND;
	IF v_kept.one THEN
		v_row := v_kept;
		RAISE NOTICE 'table snowflake.cluster keeps its row'
			USING DETAIL = CASE WHEN v_learns THEN format('It says "%s" now, as the row that is left out.', NEW.uses)
				ELSE format('It says "%s", the row that is left out "%s".',
					coalesce(v_kept.uses, 'nothing'), coalesce(NEW.uses, 'nothing')) END;
		IF v_kept.layout <> NEW.layout THEN
			RAISE WARNING 'the default layout stays "%"', v_kept.layout
				USING DETAIL = format('Ids of the dump were issued under "%s".', NEW.layout),
				HINT = 'Compare the ids of both before new ones are issued: see "Change of layout" in '
					'doc/operations.md.';
		END IF;
	END IF;
	UPDATE snowflake.registry AS r SET starts_at = greatest(r.starts_at, snowflake.start_above(v_row)) WHERE r.one;
	RETURN CASE WHEN v_kept.one THEN NULL ELSE NEW END;
END
$$;

-- Triggers run in the order of their names.
CREATE TRIGGER leave_out_replicated BEFORE INSERT OR DELETE ON snowflake.node_number FOR EACH ROW
	EXECUTE FUNCTION snowflake.leave_out_replicated();
CREATE TRIGGER leave_out_replicated_update BEFORE UPDATE ON snowflake.node_number FOR EACH ROW
	EXECUTE FUNCTION snowflake.leave_out_replicated();
CREATE TRIGGER merge BEFORE INSERT ON snowflake.node_number FOR EACH ROW EXECUTE FUNCTION snowflake.merge_node_number();
CREATE TRIGGER refuse_to_delete BEFORE DELETE OR TRUNCATE ON snowflake.node_number
	EXECUTE FUNCTION snowflake.refuse_to_delete();
CREATE TRIGGER leave_out_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.worker_node FOR EACH ROW
	EXECUTE FUNCTION snowflake.leave_out_replicated();
CREATE TRIGGER close_restored BEFORE INSERT ON snowflake.worker_node FOR EACH ROW WHEN (NEW.closed_at IS NULL)
	EXECUTE FUNCTION snowflake.close_restored();
CREATE TRIGGER refuse_to_forget BEFORE DELETE ON snowflake.worker_node FOR EACH ROW
	EXECUTE FUNCTION snowflake.refuse_to_forget();
CREATE TRIGGER refuse_to_delete BEFORE TRUNCATE ON snowflake.worker_node EXECUTE FUNCTION snowflake.refuse_to_delete();
CREATE TRIGGER leave_out_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.registry FOR EACH ROW
	EXECUTE FUNCTION snowflake.leave_out_replicated();
CREATE TRIGGER refuse_to_delete BEFORE DELETE OR TRUNCATE ON snowflake.registry
	EXECUTE FUNCTION snowflake.refuse_to_delete();
CREATE TRIGGER leave_out_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.cluster FOR EACH ROW
	EXECUTE FUNCTION snowflake.leave_out_replicated();
CREATE TRIGGER only_one BEFORE INSERT ON snowflake.cluster FOR EACH ROW EXECUTE FUNCTION snowflake.keep_cluster();
CREATE TRIGGER refuse_to_delete BEFORE DELETE OR TRUNCATE ON snowflake.cluster
	EXECUTE FUNCTION snowflake.refuse_to_delete();
CREATE TRIGGER leave_out_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.guard FOR EACH ROW
	EXECUTE FUNCTION snowflake.leave_out_replicated();

-- An apply process is in the role replica, in which triggers do not fire unless they are enabled so.  Its updates of
-- node_number are left out by a trigger that fires there only, as renewals should not wait for it.  Returns whether some
-- were not enabled so.
CREATE FUNCTION snowflake.enable_triggers() RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
	v_trigger record;
BEGIN
	FOR v_trigger IN
		SELECT c.relname, t.tgname, w.mode
		FROM pg_trigger AS t
			JOIN pg_class AS c ON c.oid = t.tgrelid
			JOIN pg_proc AS p ON p.oid = t.tgfoid,
			LATERAL (SELECT CASE t.tgname WHEN 'leave_out_replicated_update' THEN 'REPLICA' ELSE 'ALWAYS' END AS mode) AS w
		WHERE c.relnamespace = 'snowflake'::regnamespace AND p.pronamespace = c.relnamespace
			AND t.tgenabled <> left(w.mode, 1)::"char"
	LOOP
		EXECUTE format('ALTER TABLE snowflake.%I ENABLE %s TRIGGER %I',
			v_trigger.relname, v_trigger.mode, v_trigger.tgname);
	END LOOP;
	RETURN FOUND;
END
$$;
SELECT snowflake.enable_triggers();
