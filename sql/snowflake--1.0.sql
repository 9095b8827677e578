/* snowflake--1.0.sql */

\echo Use "CREATE EXTENSION snowflake" to load this file. \quit

-- Says what is missing, and has the lease worker look when this is committed.
CREATE FUNCTION snowflake_creating() RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C;
SELECT snowflake_creating();
DROP FUNCTION snowflake_creating();

--
-- Drawing
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
'begin of the tick of an id of the server''s layout';

CREATE FUNCTION snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
AS 'MODULE_PATHNAME', 'snowflake_timestamp_layout'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_timestamp(bigint, text) IS
'begin of the tick of an id of the given layout';

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

--
-- Monitoring
--
CREATE FUNCTION pg_stat_snowflake(
	OUT layout text, OUT generators text[], OUT state text, OUT detail text,
	OUT source text, OUT registry text,
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
GRANT SELECT ON pg_stat_snowflake TO PUBLIC;

CREATE FUNCTION pg_stat_snowflake_reset() RETURNS void
AS 'MODULE_PATHNAME', 'pg_stat_snowflake_reset'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION pg_stat_snowflake_reset() IS
'sets the counters of pg_stat_snowflake to zero';
REVOKE EXECUTE ON FUNCTION pg_stat_snowflake_reset() FROM PUBLIC;

--
-- Node numbers: who holds which, and until which id time.  The lease worker calls
-- the three functions below, on this cluster or, as snowflake.registry says, on
-- another one; nobody else needs to.
--
CREATE SCHEMA snowflake;
COMMENT ON SCHEMA snowflake IS
'the registry of node numbers of the extension snowflake';
GRANT USAGE ON SCHEMA snowflake TO pg_database_owner;

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
CREATE INDEX worker_node_history ON snowflake.worker_node (node_number, incarnation, id);
CREATE INDEX worker_node_order ON snowflake.worker_node (incarnation, id);
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
	own CONSTANT text := '1.0';
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

-- A ring is the numbers first..last, or of these the ones whose bit "mask" is "bits"
-- (mask is one bit, or 0).
CREATE FUNCTION snowflake.ring_from(n bigint, mask bigint, bits bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN n & mask = bits THEN n
		WHEN bits = 0 THEN (n | (mask - 1)) + 1
		ELSE (n | mask) & ~(mask - 1) END
$$;
COMMENT ON FUNCTION snowflake.ring_from(bigint, bigint, bigint) IS
'part of the lease functions: the first number from n on that is in the ring';
REVOKE EXECUTE ON FUNCTION snowflake.ring_from(bigint, bigint, bigint) FROM PUBLIC;

CREATE FUNCTION snowflake.ring_size(first bigint, last bigint, mask bigint, bits bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	-- of the numbers below "below", whole periods of the bit and a rest
	SELECT CASE WHEN mask = 0 THEN last - first + 1 ELSE (
		SELECT sum(sign * (below / (2 * mask) * mask + CASE bits WHEN 0 THEN least(below % (2 * mask), mask)
			ELSE greatest(below % (2 * mask) - mask, 0) END))::bigint
		FROM (VALUES (last + 1, 1), (first, -1)) AS v (below, sign)) END
$$;
COMMENT ON FUNCTION snowflake.ring_size(bigint, bigint, bigint, bigint) IS
'part of the lease functions: how many numbers are in the ring';
REVOKE EXECUTE ON FUNCTION snowflake.ring_size(bigint, bigint, bigint, bigint) FROM PUBLIC;

-- The numbers of a ring that were leased, each with its last lease's bound: one
-- look into the index for each, however long their history is.
CREATE FUNCTION snowflake.used_numbers(incarnation uuid, first bigint, last bigint, mask bigint, bits bigint,
	OUT node_number bigint, OUT leased_until timestamptz) RETURNS SETOF record
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE used (n) AS (
		SELECT (SELECT min(w.node_number) FROM snowflake.worker_node AS w
			WHERE w.incarnation = $1 AND w.node_number BETWEEN $2 AND $3 AND w.node_number & $4 = $5)
		UNION ALL
		SELECT (SELECT min(w.node_number) FROM snowflake.worker_node AS w
			WHERE w.incarnation = $1 AND w.node_number > n AND w.node_number <= $3 AND w.node_number & $4 = $5)
		FROM used WHERE n IS NOT NULL
	)
	SELECT n, l.leased_until
	FROM used, LATERAL (SELECT w.leased_until FROM snowflake.worker_node AS w
		WHERE w.incarnation = $1 AND w.node_number = n
		ORDER BY w.node_number DESC, w.incarnation DESC, w.id DESC LIMIT 1) AS l
$$;
COMMENT ON FUNCTION snowflake.used_numbers(uuid, bigint, bigint, bigint, bigint) IS
'part of the lease functions: the node numbers that were leased, and until when';
REVOKE EXECUTE ON FUNCTION snowflake.used_numbers(uuid, bigint, bigint, bigint, bigint) FROM PUBLIC;

-- The next number of the ring that was never leased, going round from
-- the one behind "after"; if there is none, the longest unused and its bound.
CREATE FUNCTION snowflake.next_number(incarnation uuid, first bigint, last bigint, mask bigint, bits bigint,
	after bigint,
	OUT node_number bigint, OUT leased_until timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	first_in_ring CONSTANT bigint := snowflake.ring_from(first, mask, bits);
	used bigint[];
BEGIN
	node_number := snowflake.ring_from(after + 1, mask, bits);
	IF node_number BETWEEN first AND last IS NOT TRUE THEN
		node_number := first_in_ring;
	END IF;
	IF NOT EXISTS (SELECT FROM snowflake.worker_node AS w
			WHERE w.incarnation = incarnation AND w.node_number = node_number) THEN
		RETURN;
	END IF;
	SELECT array_agg(u.node_number ORDER BY u.node_number),
		(array_agg(u.node_number ORDER BY u.leased_until, u.node_number))[1], min(u.leased_until)
	INTO used, node_number, leased_until
	FROM snowflake.used_numbers(incarnation, first, last, mask, bits) AS u;
	IF cardinality(used) = snowflake.ring_size(first, last, mask, bits) THEN
		RETURN;
	END IF;
	leased_until := NULL;
	SELECT n INTO node_number
	FROM (SELECT first_in_ring AS n WHERE used[1] > first_in_ring
		UNION ALL
		SELECT next FROM (SELECT lead(n) OVER (ORDER BY n) AS following,
				snowflake.ring_from(n + 1, mask, bits) AS next FROM unnest(used) AS n) AS pair
		WHERE next <= last AND following IS DISTINCT FROM next) AS gap
	ORDER BY n <= after, n LIMIT 1;
END
$$;
COMMENT ON FUNCTION snowflake.next_number(uuid, bigint, bigint, bigint, bigint, bigint) IS
'part of the lease functions: a node number that was never leased, or the longest unused';
REVOKE EXECUTE ON FUNCTION snowflake.next_number(uuid, bigint, bigint, bigint, bigint, bigint) FROM PUBLIC;

-- Chooses a node number of the ring.
--
-- Not exclusive: never leased, in ring order; else longest unused, if its bound is
-- past the node's clock.  Exclusive (the ring is the numbers of one fixed worker
-- id): the last one leased, if ids can go on in it, else as above; where another
-- server holds one, none.  own_cluster: rows of this system identifier are the
-- server's own, or of the primary that it was a standby of; NULL: none is.
CREATE FUNCTION snowflake.choose_number(incarnation uuid, first_number bigint, last_number bigint,
	mask bigint, bits bigint,
	exclusive boolean, own_cluster bigint, node_clock timestamptz, max_ahead interval) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	newest snowflake.worker_node;
	holder snowflake.worker_node;
	candidate bigint;
	earliest timestamptz;
BEGIN
	IF first_number > last_number OR mask & (mask - 1) <> 0 OR mask < 0 OR bits NOT IN (0, mask) OR
		snowflake.ring_from(first_number, mask, bits) > last_number THEN
		RAISE EXCEPTION 'there are no node numbers from % to %', first_number, last_number
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	SELECT w.* INTO newest FROM snowflake.worker_node AS w
	WHERE w.incarnation = incarnation AND w.node_number BETWEEN first_number AND last_number
		AND w.node_number & mask = bits
	ORDER BY w.id DESC LIMIT 1;
	IF exclusive THEN
		SELECT w.* INTO holder FROM snowflake.worker_node AS w
		WHERE w.incarnation = incarnation AND w.node_number BETWEEN first_number AND last_number
			AND w.released_at IS NULL AND w.leased_until > node_clock
			AND w.system_identifier IS DISTINCT FROM own_cluster
		ORDER BY w.leased_until DESC LIMIT 1;
		IF FOUND THEN
			RAISE EXCEPTION 'node number % is held by the server on host "%", port %, started at %',
				holder.node_number, holder.host_name, holder.port, holder.launched_at
				USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = format('Its lease lasts until %s.', holder.leased_until),
				HINT = 'Set another snowflake.worker_id. If that server is gone for good, its number is free when its lease is over.';
		END IF;
		IF newest.leased_until <= node_clock + max_ahead THEN
			RETURN newest.node_number;
		END IF;
	END IF;
	SELECT u.node_number, u.leased_until INTO candidate, earliest
	FROM snowflake.next_number(incarnation, first_number, last_number, mask, bits, newest.node_number) AS u;
	IF NOT exclusive AND earliest > node_clock THEN
		RAISE EXCEPTION 'no node number is free'
			USING ERRCODE = 'configuration_limit_exceeded',
			DETAIL = format('All numbers from %s to %s (%s) are leased; the earliest bound is %s, the node''s clock %s.',
				first_number, last_number, snowflake.ring_size(first_number, last_number, mask, bits),
				earliest, node_clock),
			HINT = 'Wait for that, stop a server that needs no number, or choose a layout with more worker bits.';
	END IF;
	RETURN candidate;
END
$$;
COMMENT ON FUNCTION snowflake.choose_number(uuid, bigint, bigint, bigint, bigint, boolean, bigint, timestamptz, interval) IS
'part of the lease functions: which node number a server is to have';
REVOKE EXECUTE ON FUNCTION
	snowflake.choose_number(uuid, bigint, bigint, bigint, bigint, boolean, bigint, timestamptz, interval) FROM PUBLIC;

-- Grants a lease.
--
-- previous_token: of the lease that the node had before, and is done with.  Its ids
-- end at previous_end if the row's bound is previous_until (NULL: in any case), else
-- at the row's bound, or at previous_end if that is later.  unused_tokens: of leases that the node asked for and will
-- never use, since the answer did not come in time.  shared: the node is of another
-- cluster, or asks as if it was.  ring_mask, ring_bits: of the numbers, those whose bit
-- ring_mask is ring_bits (0, 0: all).
CREATE FUNCTION snowflake.acquire_lease(
	version text, token uuid, incarnation uuid, layout text,
	datacenter_bits integer, worker_bits integer, clock_bits integer,
	first_number bigint, last_number bigint, exclusive boolean, shared boolean,
	node_clock timestamptz, max_ahead interval, lease_window interval,
	host_name text, port integer, system_identifier bigint, timeline integer, launched_at timestamptz,
	previous_token uuid DEFAULT NULL, previous_end timestamptz DEFAULT NULL,
	previous_until timestamptz DEFAULT NULL, unused_tokens uuid[] DEFAULT '{}',
	ring_mask bigint DEFAULT 0, ring_bits bigint DEFAULT 0,
	OUT registry_incarnation uuid, OUT node_number bigint,
	OUT starts_at timestamptz, OUT leased_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
BEGIN
	IF NOT isfinite(node_clock) OR NOT isfinite(previous_end) OR NOT lease_window BETWEEN '0' AND '2 days' OR NOT max_ahead BETWEEN '0' AND '1 day' THEN
		RAISE EXCEPTION 'a lease of % from % with max_ahead % is out of range', lease_window, node_clock, max_ahead
			USING ERRCODE = 'invalid_parameter_value', DETAIL = 'Windows are up to 2 days.';
	END IF;
	registry_incarnation := registry.incarnation;
	IF incarnation <> registry.incarnation THEN
		RAISE EXCEPTION 'the registry is not the one that this server''s ids came from'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Its incarnation is %s, that of the last node number %s.',
				registry.incarnation, incarnation),
			HINT = 'Set snowflake.registry back; or, if no server uses the old registry any more, call snowflake_change_source().';
	END IF;
	IF layout <> registry.layout THEN
		RAISE EXCEPTION 'snowflake.layout is not the one of the registry'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The registry''s is "%s".', registry.layout),
			HINT = 'Set snowflake.layout to that and restart the server; or change the registry''s with snowflake_change_layout().';
	END IF;

	DELETE FROM snowflake.worker_node AS w
	WHERE w.token = ANY (unused_tokens) AND w.released_at IS NULL;
	UPDATE snowflake.worker_node AS w
	SET leased_until = CASE WHEN w.leased_until IS DISTINCT FROM coalesce(previous_until, w.leased_until)
			THEN greatest(w.leased_until, previous_end) ELSE coalesce(previous_end, w.leased_until) END,
		released_at = clock_timestamp()
	WHERE w.token = previous_token AND w.released_at IS NULL;

	node_number := snowflake.choose_number(registry.incarnation, first_number, last_number,
		ring_mask, ring_bits, exclusive,
		CASE WHEN NOT shared THEN system_identifier END, node_clock, max_ahead);
	UPDATE snowflake.worker_node AS w SET released_at = clock_timestamp()
	WHERE w.incarnation = registry.incarnation AND w.node_number = node_number AND w.released_at IS NULL;
	SELECT nullif(greatest(registry.floor, max(w.leased_until)), '-infinity') INTO starts_at
	FROM snowflake.worker_node AS w
	WHERE w.node_number = node_number AND w.layout = layout;	-- of all incarnations: a dump brings what was issued
	leased_until := greatest(starts_at, node_clock + lease_window);

	INSERT INTO snowflake.worker_node (token, incarnation, node_number, datacenter_id, worker_id,
		host_name, port, system_identifier, timeline, layout, launched_at, renewed_at, leased_until)
	VALUES (token, registry.incarnation, node_number,
		CASE WHEN datacenter_bits > 0 THEN node_number >> (worker_bits + clock_bits) END,
		node_number >> clock_bits & (1::bigint << worker_bits) - 1,
		host_name, port, system_identifier, timeline, layout, launched_at, clock_timestamp(), leased_until);
	UPDATE snowflake.registry AS r SET layout = layout WHERE r.layout IS NULL;
END
$$;
COMMENT ON FUNCTION snowflake.acquire_lease(text, uuid, uuid, text, integer, integer, integer,
	bigint, bigint, boolean, boolean, timestamptz, interval, interval, text, integer, bigint, integer, timestamptz,
	uuid, timestamptz, timestamptz, uuid[], bigint, bigint) IS
'grants a node number: its ids begin at starts_at, which may be NULL, and end at leased_until; for the lease worker';
REVOKE EXECUTE ON FUNCTION snowflake.acquire_lease FROM PUBLIC;

CREATE FUNCTION snowflake.renew_lease(version text, token uuid, lease_until timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
	result timestamptz;
BEGIN
	IF NOT isfinite(lease_until) THEN
		RAISE EXCEPTION 'a lease until % is out of range', lease_until
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	UPDATE snowflake.worker_node AS w
	SET leased_until = greatest(w.leased_until, lease_until), renewed_at = clock_timestamp()
	WHERE w.token = token AND w.incarnation = registry.incarnation AND w.released_at IS NULL
	RETURNING w.leased_until INTO result;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.renew_lease(text, uuid, timestamptz) IS
'moves the bound of an open lease ahead and returns it, or NULL if the lease is not open; for the lease worker';
REVOKE EXECUTE ON FUNCTION snowflake.renew_lease FROM PUBLIC;

CREATE FUNCTION snowflake.release_lease(version text, token uuid, lease_end timestamptz,
	row_until timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
BEGIN
	IF NOT isfinite(lease_end) THEN
		RAISE EXCEPTION 'a lease until % is out of range', lease_end
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	UPDATE snowflake.worker_node AS w
	SET leased_until = CASE WHEN w.leased_until IS DISTINCT FROM coalesce(row_until, w.leased_until)
			THEN greatest(w.leased_until, lease_end) ELSE coalesce(lease_end, w.leased_until) END,
		released_at = clock_timestamp()
	WHERE w.token = token AND w.incarnation = registry.incarnation AND w.released_at IS NULL;
	RETURN FOUND;
END
$$;
COMMENT ON FUNCTION snowflake.release_lease(text, uuid, timestamptz, timestamptz) IS
'ends an open lease, at lease_end if its bound is row_until or earlier, and returns true, or false if it is not open; for the lease worker';
REVOKE EXECUTE ON FUNCTION snowflake.release_lease FROM PUBLIC;

--
-- Changes that are the administrator's to decide
--
CREATE FUNCTION snowflake_change_layout(layout text) RETURNS void
LANGUAGE plpgsql STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(NULL);
	new_layout record;
	old_layout record;
	bound timestamptz;
	new_floor timestamptz;
BEGIN
	SELECT * INTO new_layout FROM @extschema@.snowflake_layout(layout);
	IF new_layout.definition !~ 'worker' OR new_layout.tick > '1s' THEN
		RAISE EXCEPTION 'the layout "%" is for parsing only', layout
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Ids are issued with a worker field and a tick of at most 1s.';
	END IF;
	IF registry.layout IS NULL OR registry.layout = new_layout.definition THEN
		UPDATE snowflake.registry AS r SET layout = new_layout.definition;
		RETURN;
	END IF;
	SELECT * INTO old_layout FROM @extschema@.snowflake_layout(registry.layout);

	SELECT max(w.leased_until) INTO bound FROM snowflake.worker_node AS w
	WHERE w.incarnation = registry.incarnation AND w.released_at IS NULL
		AND w.leased_until > clock_timestamp();
	IF bound IS NOT NULL THEN
		RAISE EXCEPTION 'node numbers are leased under the layout "%"', registry.layout
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The last of these leases lasts until %s.', bound),
			HINT = 'Stop the servers that use the registry, or start them with the new snowflake.layout, and try again.';
	END IF;
	SELECT greatest(max(w.leased_until), registry.floor) INTO bound FROM snowflake.worker_node AS w
	WHERE w.incarnation = registry.incarnation;
	IF bound IS NOT NULL AND bound > '-infinity' THEN
		-- the tick that contains it begins when the old one that contains bound is over
		new_floor := bound + old_layout.tick + new_layout.tick;
		IF @extschema@.snowflake_min_id(new_floor, new_layout.definition) <=
			@extschema@.snowflake_max_id(bound, registry.layout) THEN
			RAISE EXCEPTION 'new ids would not be greater than all of the layout "%"', registry.layout
				USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = format('Ids of the old layout can be up to %s, those of the new one begin at %s.',
					@extschema@.snowflake_max_id(bound, registry.layout),
					@extschema@.snowflake_min_id(new_floor, new_layout.definition)),
				HINT = 'Choose a layout with an earlier epoch or more bits below the timestamp.';
		END IF;
	END IF;
	UPDATE snowflake.worker_node AS w SET released_at = clock_timestamp()
	WHERE w.incarnation = registry.incarnation AND w.released_at IS NULL;
	UPDATE snowflake.registry AS r
	SET layout = new_layout.definition, floor = coalesce(new_floor, r.floor);
END
$$;
COMMENT ON FUNCTION snowflake_change_layout(text) IS
'changes the layout of the registry in this database, when no lease is live and all new ids are greater than all old ones';
REVOKE EXECUTE ON FUNCTION snowflake_change_layout(text) FROM PUBLIC;

CREATE FUNCTION snowflake_change_source() RETURNS void
AS 'MODULE_PATHNAME', 'snowflake_change_source'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_change_source() IS
'lets this server take its node number from where snowflake.registry says now, though it came from another place before';
REVOKE EXECUTE ON FUNCTION snowflake_change_source() FROM PUBLIC;

CREATE FUNCTION snowflake_release() RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_release'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_release() IS
'hands this server''s node number back and returns it, NULL if there is none; the next draw takes one again';
REVOKE EXECUTE ON FUNCTION snowflake_release() FROM PUBLIC;
