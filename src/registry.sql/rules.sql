--
-- The rules.  A node number is leased for a span of id time: a lease allows ids of ticks that begin
-- at or after its starts_at and end at or before its leased_until, whatever clocks, pauses and
-- networks do.  Two leases never allow the same (tick, node number), because
--
--	1. calls run one after another: each locks the registry's row first, and computes all that it
--	   writes after that (lock_registry());
--	2. a lease starts at or after every leased_until of its number, in rows of any incarnation
--	   (grant_lease());
--	3. leased_until is raised only by a renewal of an open row of the present incarnation and
--	   generation, which no other row of its number follows; other rows are not renewed: the answer is
--	   no (renew_lease());
--	4. a number that is granted has no other open row: they are closed first, as they stand
--	   (grant_lease());
--	5. leased_until is lowered only when a row of the present incarnation is closed by a call of its
--	   own start: to the end of its ids, which the call says; or to where it starts, if it was granted
--	   by a later call than the lease that the node opened last (begin_call());
--	6. a call whose number is not greater than all seen of its start is refused (begin_call());
--	7. bit 0 of an automatic number is clear in odd generations and set in even ones.  So a server
--	   that was promoted never grants what the one before it grants, whichever rows were lost; nor
--	   does a registry that takes it over, whose generation gets the same parity
--	   (choose_number(), count_generation(), take_over());
--	8. what may be in no row here ends before the leases of this table start: ids of tables before it
--	   (created_at), of an earlier generation or a server before pg_upgrade (counted_at), of
--	   registries taken over (starts_at), and of the node that calls (lease_floor()).  A fixed number,
--	   which generations do not keep apart, also starts at or after its node's clock if the server was
--	   promoted, or has taken over a registry.  (Otherwise its own rows are all there are, and a clock that was ahead at a start
--	   must not hold up the number.);
--	9. a closed registry changes nothing; only its successor accepts its nodes, after it has taken
--	   over the ends of all its numbers (check_open(), check_source(), take_over()).  It opens again only
--	   to take over its successor, or one that has taken that over;
--	10. a cluster that uses another registry grants nothing, unless it has taken that one over
--	   (check_root(), record_uses());
--	11. ids of a new default layout are greater than all that leases allow under others
--	   (check_layout()), and rows of the others are closed, so that none is renewed when its layout is
--	   accepted again (grant_lease()).
--
-- Rows of another incarnation come from a dump, from the template of the database or from a registry
-- that was taken over.  Their ends count wherever ids could repeat (2); nothing else depends on them
-- once this incarnation has granted a lease, so rows that are restored later do no harm.
--
-- Every statement sees all that was committed before it began: the isolation level is READ COMMITTED,
-- and the functions are VOLATILE.
--

--
-- The database
--

-- Servers use the registry in database postgres of a cluster.  What another one in the same cluster granted,
-- that one would grant again.  So each function that can be called asks this, as the database may be a copy or
-- have another name by now.
CREATE FUNCTION snowflake.check_database() RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	IF current_database() <> 'postgres' THEN
		RAISE EXCEPTION 'the database "%" cannot be a registry', current_database()
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'The registry of a cluster is its database "postgres". Another one would lease the same node numbers again.',
			HINT = 'Use snowflake_registry in the database "postgres". Managed PostgreSQL has its script for other databases: see "Managed PostgreSQL" in doc/operations.md.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_database() IS
'part of the registry: refuses another database than postgres';

--
-- The lock
--

-- Locks the registry until the end of the transaction, and sees to what every call depends on.
-- p_durable: the commit is to be as durable as this server makes it by default, whatever the role and
-- the database have set.
CREATE FUNCTION snowflake.lock_registry(p_durable boolean) RETURNS snowflake.registry
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_registry snowflake.registry;
	v_database oid;
BEGIN
	PERFORM snowflake.check_database();
	IF pg_is_in_recovery() THEN
		RAISE EXCEPTION 'the registry is a hot standby'
			USING ERRCODE = 'read_only_sql_transaction',
			DETAIL = 'A standby grants and renews nothing.',
			HINT = 'Name all its servers in the node''s address of the registry, with target_session_attrs=read-write (JDBC: targetServerType=primary).';
	END IF;
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'leases need isolation level read committed, not %', current_setting('transaction_isolation')
			USING ERRCODE = 'active_sql_transaction',
			DETAIL = 'At another level a call does not see what others have committed while it waited for them.',
			HINT = 'Reset default_transaction_isolation for the role and the database that the node connects to.';
	END IF;
	IF snowflake.is_replicated() THEN
		RAISE EXCEPTION 'the registry cannot be called in a session with a replication origin'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'What such a session writes counts as replicated, and is left out of the tables.',
			HINT = 'Call it in another session.';
	END IF;
	IF p_durable AND current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	-- a commit that is not on a synchronous standby is told by a warning
	IF p_durable AND current_setting('client_min_messages') = 'error' THEN
		PERFORM set_config('client_min_messages', 'warning', true);
	END IF;
	SELECT r.* INTO v_registry FROM snowflake.registry AS r WHERE r.one FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the table snowflake.registry has no row'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Without it nothing can be leased.',
			HINT = 'See "Starting over" in doc/operations.md.';
	END IF;
	SELECT d.oid INTO STRICT v_database FROM pg_database AS d WHERE d.datname = current_database();
	IF v_registry.database <> v_database AND v_registry.closed_at IS NULL THEN
		-- a copy of another database: other leases are granted there from now on
		UPDATE snowflake.registry AS r
		SET incarnation = gen_random_uuid(), database = v_database, created_at = clock_timestamp() WHERE r.one
		RETURNING r.* INTO STRICT v_registry;
	END IF;
	RETURN v_registry;
END
$$;
COMMENT ON FUNCTION snowflake.lock_registry(boolean) IS
'part of the registry: lets calls run one after another';

CREATE FUNCTION snowflake.check_open(p_registry snowflake.registry) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	IF p_registry.closed_at IS NOT NULL THEN
		RAISE EXCEPTION 'the registry is closed'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Its incarnation is %s; the registry with the incarnation %s takes it over.',
				p_registry.incarnation, p_registry.successor),
			HINT = 'Have the other registry take it over: see "Another registry" in doc/operations.md. If it has, this node asks the wrong one: set snowflake.registry (in a program: its data source) to the other one, and reload.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_open(snowflake.registry) IS
'part of the registry: refuses what would change a closed registry';

--
-- Generations
--

-- The promotions in this server's timeline history, as timeline/switch LSN.  The timeline comes from the
-- position in WAL, as the control file is late after a promotion.  What a missing file does not tell would count
-- as no promotion, so it is refused.  Comments in the file may be in any encoding.
CREATE FUNCTION snowflake.timeline_history() RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_timeline CONSTANT text := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
	v_file CONSTANT text := 'pg_wal/' || v_timeline || '.history';
	v_lines text[];
	v_line text;
	v_entry text[];
	v_entries text[] := '{}';
BEGIN
	IF v_timeline = '00000001' THEN
		RETURN '{}';
	END IF;
	v_lines := string_to_array(encode(pg_read_binary_file(v_file, 0, 10000000, true), 'escape'), E'\n');
	FOREACH v_line IN ARRAY coalesce(v_lines, '{}') LOOP
		CONTINUE WHEN v_line COLLATE "C" ~ '^[[:space:]]*(#|$)';
		v_entry := regexp_match(v_line COLLATE "C", '^[[:space:]]*([0-9]{1,10})[[:space:]]+([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})([[:space:]]|$)');
		IF v_entry IS NULL THEN
			v_entries := '{}';
			EXIT;
		END IF;
		v_entries := v_entries || (v_entry[1]::bigint || '/' || v_entry[2]::pg_lsn);
	END LOOP;
	IF v_entries = '{}' THEN
		RAISE EXCEPTION 'could not find the history of timeline %', ('x' || v_timeline)::bit(32)::bigint
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The file "%s" does not exist or does not have it. It tells how often this cluster was promoted, which keeps the numbers of two primaries apart.', v_file),
			HINT = 'Put it back from the WAL archive or the former primary.';
	END IF;
	RETURN v_entries;
END
$$;
COMMENT ON FUNCTION snowflake.timeline_history() IS
'part of the registry: the promotions of this server';

-- At the head of every call that grants, renews or closes: the generation grows by the entries that are
-- not counted yet.  The time of the count is stored, and also that of pg_upgrade, which takes no history
-- along and makes another system identifier.  (Timelines begin at 1 again then, but WAL goes on in a new
-- segment: no later entry is like one of before.)  A server that was promoted and upgraded before its first call
-- stays in its generation: so that it renews nothing that its old primary may have closed, all rows are
-- closed then.  p_now: the registry's clock.
CREATE FUNCTION snowflake.count_generation(p_registry snowflake.registry, p_now timestamptz) RETURNS snowflake.registry
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_registry snowflake.registry := p_registry;
	v_new CONSTANT text[] := ARRAY(SELECT DISTINCT h.entry FROM unnest(snowflake.timeline_history()) AS h (entry)
		WHERE h.entry <> ALL (p_registry.counted) ORDER BY h.entry);
	v_system_identifier CONSTANT bigint := (SELECT c.system_identifier FROM pg_control_system() AS c);
BEGIN
	IF v_new <> '{}' OR v_system_identifier <> p_registry.system_identifier THEN
		UPDATE snowflake.registry AS r
		SET generation = r.generation + cardinality(v_new), counted = r.counted || v_new,
			system_identifier = v_system_identifier, counted_at = greatest(r.counted_at, p_now)
		WHERE r.one
		RETURNING r.* INTO STRICT v_registry;
	END IF;
	IF v_system_identifier <> p_registry.system_identifier THEN
		UPDATE snowflake.worker_node AS w SET closed_at = p_now WHERE w.closed_at IS NULL;
	END IF;
	RETURN v_registry;
END
$$;
COMMENT ON FUNCTION snowflake.count_generation(snowflake.registry, timestamptz) IS
'part of the registry: counts the promotions that are new; after pg_upgrade, closes all leases';

--
-- Which registry a cluster uses
--

CREATE FUNCTION snowflake.check_root(p_registry snowflake.registry) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_uses CONSTANT uuid := (SELECT c.incarnation FROM snowflake.cluster AS c WHERE c.one AND c.uses = 'another');
BEGIN
	IF v_uses IS NOT NULL AND v_uses <> ALL (p_registry.taken_over) THEN
		RAISE EXCEPTION 'the registry''s own cluster uses another registry'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The registry to use has the incarnation %s; this one, with the incarnation %s, has not taken it over.',
				v_uses, p_registry.incarnation),
			HINT = 'Set snowflake.registry (in a program: its data source) to that registry, or move: see "Another registry" in doc/operations.md.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_root(snowflake.registry) IS
'part of the registry: refuses to grant where the own cluster uses another registry';

-- A node has used nothing yet, this registry, or one that was taken over; and it is not this server.
CREATE FUNCTION snowflake.check_source(p_registry snowflake.registry, p_uses uuid, p_system_identifier bigint,
	p_launched_at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	IF pg_postmaster_start_time() = p_launched_at
		AND (SELECT c.system_identifier FROM pg_control_system() AS c) = p_system_identifier THEN
		RAISE EXCEPTION 'the registry is the server itself'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Both have the system identifier %s and were started at %s.', p_system_identifier,
				snowflake.time_text(p_launched_at)),
			HINT = 'Leave snowflake.registry empty on this server.';
	END IF;
	IF p_uses <> p_registry.incarnation AND p_uses <> ALL (p_registry.taken_over) THEN
		RAISE EXCEPTION 'the registry is not the one that the node''s ids were issued with'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Its incarnation is %s, the recorded one %s.', p_registry.incarnation, p_uses),
			HINT = 'Set snowflake.registry (in a program: its data source) to the recorded one again; or move: see "Another registry" in doc/operations.md. If the recorded one is lost, see "A lost registry" in doc/operations.md.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_source(snowflake.registry, uuid, bigint, timestamptz) IS
'part of the registry: refuses a node that has used a registry which was not taken over';

--
-- Calls of a start
--

-- Refuses a late call, and closes the open rows of its start: the named one, if its ids have ended, and
-- all others.  A row that was granted by a later call than the named one was never opened, and so
-- issued nothing.  The named row may not be on record here; which rows are later is known all the same.
-- Returns the named row as it was; its columns are NULL if it is not on record.
CREATE FUNCTION snowflake.begin_call(p_registry snowflake.registry, p_call snowflake.node_call) RETURNS snowflake.worker_node
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_last snowflake.worker_node;
	v_named snowflake.worker_node;
	v_row snowflake.worker_node;
	v_end timestamptz;
BEGIN
	SELECT w.* INTO v_last FROM snowflake.worker_node AS w
	WHERE w.start = p_call.start ORDER BY w.last_call DESC LIMIT 1;
	IF p_call.call <= v_last.last_call THEN
		RAISE EXCEPTION 'call % of this start arrived too late', p_call.call
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The registry has carried out call %s of the same start.', v_last.last_call),
			HINT = 'No action is needed: the node makes a new call.';
	END IF;
	SELECT w.* INTO v_named FROM snowflake.worker_node AS w WHERE w.token = p_call.token AND w.start = p_call.start;
	-- a wrong one would end leases that have issued ids where they started
	IF v_named.granted_by <> p_call.granted_by THEN
		PERFORM snowflake.refuse_value('lease.granted_by', to_jsonb(p_call.granted_by),
			format('%s, the call that was granted the lease', v_named.granted_by));
	END IF;

	FOR v_row IN SELECT w.* FROM snowflake.worker_node AS w
		WHERE w.start = p_call.start AND w.closed_at IS NULL
			AND (w.token IS DISTINCT FROM p_call.token OR p_call.lease_end IS NOT NULL)
	LOOP
		v_end := CASE
			WHEN v_row.incarnation <> p_registry.incarnation THEN v_row.leased_until
			WHEN v_row.token = p_call.token THEN greatest(v_row.starts_at, p_call.lease_end)
			WHEN v_row.granted_by > p_call.granted_by THEN v_row.starts_at
			ELSE v_row.leased_until END;
		UPDATE snowflake.worker_node AS w
		SET leased_until = v_end, closed_at = clock_timestamp(), last_call = p_call.call,
			greatest_id = CASE WHEN v_end = w.leased_until THEN w.greatest_id
				WHEN w.layout = (p_call.layout).definition THEN snowflake.greatest_id(v_end, p_call.layout)
				ELSE greatest(w.greatest_id, snowflake.greatest_id(v_end, p_call.layout)) END
		WHERE w.token = v_row.token;
	END LOOP;
	-- the number is kept in a row of the start, if it has any
	UPDATE snowflake.worker_node AS w SET last_call = p_call.call WHERE w.token = coalesce(v_named.token, v_last.token);
	RETURN v_named;
END
$$;
COMMENT ON FUNCTION snowflake.begin_call(snowflake.registry, snowflake.node_call) IS
'part of the registry: refuses late calls and closes what the start has no use for';

--
-- Layouts
--

-- The newest lease that may have issued ids, of this incarnation if it has any.  All its columns are
-- NULL if there is no lease.
CREATE FUNCTION snowflake.newest_lease(p_incarnation uuid) RETURNS snowflake.worker_node
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_newest snowflake.worker_node;
BEGIN
	SELECT w.* INTO v_newest FROM snowflake.worker_node AS w
	WHERE w.incarnation = p_incarnation AND (w.closed_at IS NULL OR w.leased_until > w.starts_at)
	ORDER BY w.renewed_at DESC LIMIT 1;
	IF NOT FOUND THEN
		-- jumps from one incarnation to the next
		WITH RECURSIVE newest AS (
			(SELECT w.incarnation, w.token, w.renewed_at FROM snowflake.worker_node AS w
			WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at
			ORDER BY w.incarnation DESC, w.renewed_at DESC LIMIT 1)
			UNION ALL
			SELECT following.* FROM newest, LATERAL (
				SELECT w.incarnation, w.token, w.renewed_at FROM snowflake.worker_node AS w
				WHERE w.incarnation < newest.incarnation AND (w.closed_at IS NULL OR w.leased_until > w.starts_at)
				ORDER BY w.incarnation DESC, w.renewed_at DESC LIMIT 1) AS following
		)
		SELECT w.* INTO v_newest FROM snowflake.worker_node AS w
		WHERE w.token = (SELECT n.token FROM newest AS n ORDER BY n.renewed_at DESC LIMIT 1);
	END IF;
	RETURN v_newest;
END
$$;
COMMENT ON FUNCTION snowflake.newest_lease(uuid) IS
'part of the registry: the lease whose layout is the recorded one';

-- Later than that of every lease, also after the registry's clock was set back: the newest lease
-- stays the newest.
CREATE FUNCTION snowflake.renewal_time(p_newest snowflake.worker_node, p_now timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT greatest(p_now, p_newest.renewed_at + interval '1 microsecond')	-- greatest() ignores NULL
$$;
COMMENT ON FUNCTION snowflake.renewal_time(snowflake.worker_node, timestamptz) IS
'part of the registry: when a lease is granted or renewed now';

-- The greatest id that leases of any incarnation allow under default layouts other than the given one.
CREATE FUNCTION snowflake.greatest_id_of_others(p_definition text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	-- jumps from one layout to the next
	WITH RECURSIVE used AS (
		(SELECT w.layout, w.greatest_id FROM snowflake.worker_node AS w
		WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at
		ORDER BY w.layout DESC, w.greatest_id DESC LIMIT 1)
		UNION ALL
		SELECT following.* FROM used, LATERAL (
			SELECT w.layout, w.greatest_id FROM snowflake.worker_node AS w
			WHERE w.layout < used.layout AND (w.closed_at IS NULL OR w.leased_until > w.starts_at)
			ORDER BY w.layout DESC, w.greatest_id DESC LIMIT 1) AS following
	)
	SELECT coalesce(max(u.greatest_id), -1) FROM used AS u WHERE u.layout <> p_definition
$$;
COMMENT ON FUNCTION snowflake.greatest_id_of_others(text) IS
'part of the registry: the greatest id that other layouts allow';

-- A lease of another node that is not over; NULL if there is none.  A server that was restarted is the
-- same node; a program never is, as nothing says that the one before has ended.
CREATE FUNCTION snowflake.lease_of_others(p_system_identifier bigint, p_host_name text, p_port integer, p_now timestamptz)
RETURNS snowflake.worker_node
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT w.* FROM snowflake.worker_node AS w
	WHERE (w.closed_at IS NULL OR w.leased_until > w.starts_at) AND w.leased_until > p_now
		AND ((w.host_name, w.port, w.system_identifier) = (p_host_name, p_port, p_system_identifier)) IS NOT TRUE
	ORDER BY w.leased_until DESC LIMIT 1
$$;
COMMENT ON FUNCTION snowflake.lease_of_others(bigint, text, integer, timestamptz) IS
'part of the registry: the lease of another node that ends last';

CREATE FUNCTION snowflake.node_text(p_lease snowflake.worker_node) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT format('%s on host "%s", ', p_lease.kind, p_lease.host_name)
		|| CASE p_lease.kind WHEN 'program' THEN format('name "%s"', p_lease.name) ELSE format('port %s', p_lease.port) END
$$;
COMMENT ON FUNCTION snowflake.node_text(snowflake.worker_node) IS
'part of the registry: the node of a lease in a message';

-- Whether a node may have leases with its default layout.  If the recorded one is another, this is a
-- change: ids of the new layout must be greater than all that were issued, and no other server may go on
-- under the old one.  Returns the time that leases of the new layout start at or after.
CREATE FUNCTION snowflake.check_layout(p_recorded text, p_layout snowflake.layout, p_layout_set boolean,
	p_now timestamptz, p_max_ahead interval, p_host_name text, p_port integer, p_system_identifier bigint)
RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_layouts CONSTANT text := format('Ids were issued under "%s"; the node has "%s".', p_recorded, p_layout.definition);
	-- the leases of other servers start after it, too, and their max_ahead may be less
	v_ahead CONSTANT interval := least(p_max_ahead, interval '10 s');
	v_other snowflake.worker_node;
	v_first_time timestamptz;
BEGIN
	IF p_recorded IS NULL OR p_recorded = p_layout.definition THEN
		RETURN NULL;
	END IF;
	IF NOT p_layout_set THEN
		RAISE EXCEPTION 'the layout is not the one that ids were issued under'
			USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = v_layouts,
			HINT = format('Set the layout to ''%s'' (of a server: snowflake.layout in postgresql.conf) and restart the node.', p_recorded);
	END IF;
	v_other := snowflake.lease_of_others(p_system_identifier, p_host_name, p_port, p_now);
	IF v_other.token IS NOT NULL THEN
		RAISE EXCEPTION 'the layout is not the one that ids were issued under'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('%s The %s, has a lease until %s.',
				v_layouts, snowflake.node_text(v_other), snowflake.time_text(v_other.leased_until)),
			HINT = format('Set the layout back (a server can have the new one in snowflake.extra_layouts); '
				'or stop all other nodes: it is accepted from %s on.', snowflake.time_text(v_other.leased_until));
	END IF;
	v_first_time := snowflake.first_time_above(snowflake.greatest_id_of_others(p_layout.definition), p_layout);
	IF v_first_time > p_now + v_ahead THEN
		RAISE EXCEPTION 'the layout is not the one that ids were issued under'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('%s Its ids would not be greater than all of them.', v_layouts),
			HINT = format('Set the layout back (a server can have the new one in snowflake.extra_layouts); '
				'as the layout it is %s.', CASE v_first_time WHEN 'infinity' THEN 'never accepted'
				ELSE format('accepted from %s on', snowflake.time_text(v_first_time - v_ahead)) END);
	END IF;
	RETURN v_first_time;
END
$$;
COMMENT ON FUNCTION snowflake.check_layout(text, snowflake.layout, boolean, timestamptz, interval, text, integer, bigint) IS
'part of the registry: whether a node may have leases with its default layout';

-- No lease starts at the end of its layout, or goes on past it.  p_from: where it would.
CREATE FUNCTION snowflake.check_end(p_layout snowflake.layout, p_from timestamptz, p_node_clock timestamptz) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	IF p_from >= p_layout.ends_at THEN
		RAISE EXCEPTION 'the timestamp field of layout "%" ends at %', p_layout.definition, snowflake.time_text(p_layout.ends_at)
			USING ERRCODE = 'sequence_generator_limit_exceeded',
			DETAIL = format('The lease would go on from %s; the clock shows %s.', snowflake.time_text(p_from),
				snowflake.time_text(p_node_clock)),
			HINT = 'Check the clock, or choose a layout with a later epoch or more timestamp bits.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_end(snowflake.layout, timestamptz, timestamptz) IS
'part of the registry: refuses a lease past the end of its layout';

--
-- Choosing a number
--

-- The numbers from first to last that were leased, in rows of any incarnation, and the greatest end of
-- each: jumps from one number to the next, however long their history is.
CREATE FUNCTION snowflake.used_numbers(p_first bigint, p_last bigint)
RETURNS TABLE (node_number bigint, leased_until timestamptz)
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	WITH RECURSIVE used AS (
		(SELECT w.node_number, w.leased_until FROM snowflake.worker_node AS w
		WHERE w.node_number BETWEEN p_first AND p_last
		ORDER BY w.node_number DESC, w.leased_until DESC LIMIT 1)
		UNION ALL
		SELECT following.* FROM used, LATERAL (
			SELECT w.node_number, w.leased_until FROM snowflake.worker_node AS w
			WHERE w.node_number < used.node_number AND w.node_number >= p_first
			ORDER BY w.node_number DESC, w.leased_until DESC LIMIT 1) AS following
	)
	SELECT u.node_number, u.leased_until FROM used AS u
$$;
COMMENT ON FUNCTION snowflake.used_numbers(bigint, bigint) IS
'part of the registry: the node numbers that were leased, and until when';

-- One of the numbers first, first + step, ... up to last that was never leased, at random; NULL if all were.
CREATE FUNCTION snowflake.unused_number(p_first bigint, p_last bigint, p_step integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_count CONSTANT bigint := (p_last - p_first) / p_step + 1;
	v_unused bigint[];
	v_candidate bigint;
BEGIN
	FOR v_try IN 1 .. 20 LOOP
		v_candidate := p_first + p_step * least(floor(random() * v_count)::bigint, v_count - 1);
		PERFORM FROM snowflake.worker_node AS w WHERE w.node_number = v_candidate
		ORDER BY w.node_number, w.leased_until LIMIT 1;
		IF NOT FOUND THEN
			RETURN v_candidate;
		END IF;
	END LOOP;
	-- Most are likely to be used, so the numbers are hardly more than their leases.  The sub-SELECT cannot become a join, which
	-- would read all of the history.
	v_unused := ARRAY(SELECT n FROM generate_series(p_first, p_last, p_step) AS n
		WHERE (SELECT w.node_number FROM snowflake.worker_node AS w
			WHERE w.node_number = n ORDER BY w.leased_until DESC LIMIT 1) IS NULL
		ORDER BY n);
	IF v_unused = '{}' THEN
		RETURN NULL;
	END IF;
	RETURN v_unused[least(floor(random() * cardinality(v_unused))::integer, cardinality(v_unused) - 1) + 1];
END
$$;
COMMENT ON FUNCTION snowflake.unused_number(bigint, bigint, integer) IS
'part of the registry: a node number that was never leased';

-- The longest unused of the numbers first, first + step, ... up to last, all of which were leased; NULL if
-- none is free.  An automatic number is free if no lease of it can be live by anyone's clock, and if ids can
-- go on in it now.  earliest: the first end of all, free or not.
CREATE FUNCTION snowflake.longest_unused(p_first bigint, p_last bigint, p_step integer,
	p_node_clock timestamptz, p_earlier_clock timestamptz, OUT number bigint, OUT earliest timestamptz)
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT (array_agg(n ORDER BY l.leased_until, n) FILTER (WHERE l.leased_until <= p_node_clock
			AND (o.leased_until > p_earlier_clock) IS NOT TRUE))[1], min(l.leased_until)
	FROM generate_series(p_first, p_last, p_step) AS n,
		LATERAL (SELECT w.leased_until FROM snowflake.worker_node AS w
			WHERE w.node_number = n ORDER BY w.leased_until DESC LIMIT 1) AS l
		LEFT JOIN LATERAL (SELECT w.leased_until FROM snowflake.worker_node AS w
			WHERE w.node_number = n AND w.closed_at IS NULL ORDER BY w.leased_until DESC LIMIT 1) AS o ON true
$$;
COMMENT ON FUNCTION snowflake.longest_unused(bigint, bigint, integer, timestamptz, timestamptz) IS
'part of the registry: the free number whose last lease ended first';

-- Numbers that were never leased come first, then the longest unused.  Of more than 16384 numbers, a piece
-- of that size is searched, chosen at random, and the next only if none is free in it: a look at all of
-- them would take longer than a node waits.
CREATE FUNCTION snowflake.choose_automatic(p_first bigint, p_last bigint, p_step integer,
	p_node_clock timestamptz, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_earlier_clock CONSTANT timestamptz := least(p_node_clock, p_now);
	v_span CONSTANT bigint := 16384 * p_step;
	v_pieces CONSTANT bigint := (p_last - p_first) / v_span + 1;
	v_piece bigint := least(floor(random() * v_pieces)::bigint, v_pieces - 1);
	v_first bigint;
	v_last bigint;
	v_number bigint;
	v_end timestamptz;
	v_earliest timestamptz;
BEGIN
	FOR v_try IN 1 .. v_pieces LOOP
		v_first := p_first + v_piece * v_span;
		v_last := least(v_first + v_span - p_step, p_last);
		v_number := snowflake.unused_number(v_first, v_last, p_step);
		IF v_number IS NULL THEN
			SELECT u.number, u.earliest INTO STRICT v_number, v_end
			FROM snowflake.longest_unused(v_first, v_last, p_step, p_node_clock, v_earlier_clock) AS u;
			v_earliest := least(v_earliest, v_end);
		END IF;
		IF v_number IS NOT NULL THEN
			RETURN v_number;
		END IF;
		v_piece := (v_piece + 1) % v_pieces;
	END LOOP;
	RAISE EXCEPTION 'no node number is free'
		USING ERRCODE = 'configuration_limit_exceeded',
		DETAIL = format('Of %s numbers the earliest end is %s; the clock, of node or registry, that is behind shows %s.',
			(p_last - p_first) / p_step + 1, snowflake.time_text(v_earliest), snowflake.time_text(v_earlier_clock)),
		HINT = 'Wait for that, stop a node that needs no number, or choose a layout with more worker bits.';
END
$$;
COMMENT ON FUNCTION snowflake.choose_automatic(bigint, bigint, integer, timestamptz, timestamptz) IS
'part of the registry: a number that any node may have';

-- The numbers from first to last are the node's own: one, or as many as its layout has clocks.  Of them it
-- gets the last one in which ids can go on, else one that was never leased, else the one that ends first.
CREATE FUNCTION snowflake.choose_fixed(p_first bigint, p_last bigint, p_node_clock timestamptz, p_max_ahead interval)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_number bigint;
BEGIN
	SELECT u.node_number INTO v_number FROM snowflake.used_numbers(p_first, p_last) AS u
	WHERE u.leased_until <= p_node_clock + p_max_ahead
	ORDER BY u.leased_until DESC, u.node_number LIMIT 1;
	v_number := coalesce(v_number, snowflake.unused_number(p_first, p_last, 1));
	IF v_number IS NULL THEN
		SELECT u.node_number INTO v_number FROM snowflake.used_numbers(p_first, p_last) AS u
		ORDER BY u.leased_until, u.node_number LIMIT 1;
	END IF;
	RETURN v_number;
END
$$;
COMMENT ON FUNCTION snowflake.choose_fixed(bigint, bigint, timestamptz, interval) IS
'part of the registry: which of its own numbers a node is to have';

-- A fixed number that another start may still use is refused.  p_own_server: rows of this system identifier
-- are the server's own, or of the primary that it was a standby of; NULL for a call of another server.
CREATE FUNCTION snowflake.check_holder(p_first bigint, p_last bigint, p_start uuid, p_own_server bigint,
	p_node_clock timestamptz, p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_other snowflake.worker_node;
BEGIN
	SELECT w.* INTO v_other FROM snowflake.worker_node AS w
	WHERE w.node_number BETWEEN p_first AND p_last AND w.closed_at IS NULL
		AND w.leased_until > least(p_node_clock, p_now)
		AND w.start <> p_start AND (w.system_identifier = p_own_server) IS NOT TRUE
	ORDER BY w.node_number DESC, w.leased_until DESC LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'node number % is leased to the %, started at %',
			v_other.node_number, snowflake.node_text(v_other), snowflake.time_text(v_other.launched_at)
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Its lease ends at %s.', snowflake.time_text(v_other.leased_until)),
			HINT = 'If that is this server before a crash, or a node that is gone for good, wait until its lease is over. Otherwise set another snowflake.worker_id.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_holder(bigint, bigint, uuid, bigint, timestamptz, timestamptz) IS
'part of the registry: refuses a fixed number that another server has';

CREATE FUNCTION snowflake.choose_number(p_registry snowflake.registry, p_own boolean, p_first bigint, p_last bigint,
	p_fixed boolean, p_start uuid, p_node_clock timestamptz, p_now timestamptz, p_max_ahead interval)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_bit CONSTANT bigint := 1 - p_registry.generation % 2;	-- bit 0 of automatic numbers
BEGIN
	IF p_fixed THEN
		PERFORM snowflake.check_holder(p_first, p_last, p_start, CASE WHEN p_own THEN p_registry.system_identifier END,
			p_node_clock, p_now);
		RETURN snowflake.choose_fixed(p_first, p_last, p_node_clock, p_max_ahead);
	END IF;
	IF p_first = p_last THEN
		RAISE EXCEPTION 'the layout has too few node numbers'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Automatic numbers need two bits for datacenter, worker and clock in every layout in use: one of them tells a promoted registry from the one before it.',
			HINT = 'Choose a layout with more worker bits; or give a server a fixed number, by snowflake.worker_id.';
	END IF;
	RETURN snowflake.choose_automatic(p_first + abs((p_first & 1) - v_bit), p_last - abs((p_last & 1) - v_bit), 2,
		p_node_clock, p_now);
END
$$;
COMMENT ON FUNCTION snowflake.choose_number(snowflake.registry, boolean, bigint, bigint, boolean, uuid, timestamptz, timestamptz, interval) IS
'part of the registry: which node number a node is to have';

--
-- Floors
--

-- Ids that may be in no row of these tables were at most max_ahead past the clock when the tables were made,
-- or the server was promoted or went through pg_upgrade; and their ticks end one tick later.
CREATE FUNCTION snowflake.registry_floor(p_registry snowflake.registry, p_max_ahead interval, p_tick interval)
RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	-- greatest() ignores NULL
	SELECT greatest(greatest(p_registry.created_at, p_registry.counted_at) + p_max_ahead + p_tick, p_registry.starts_at)
$$;
COMMENT ON FUNCTION snowflake.registry_floor(snowflake.registry, interval, interval) IS
'part of the registry: the time that all its leases start at or after';

-- The time that a lease starts at or after, whatever its number.  p_node_floor: the end of ids that the
-- node knows of and the tables may not; NULL if there are no such ids.
CREATE FUNCTION snowflake.lease_floor(p_registry snowflake.registry, p_node_clock timestamptz, p_max_ahead interval,
	p_tick interval, p_node_floor timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_latest CONSTANT timestamptz := p_node_clock + interval '10 s';	-- and max_ahead, which ids may be ahead
	v_start CONSTANT timestamptz := greatest(p_registry.counted_at, p_registry.starts_at - p_max_ahead);
BEGIN
	IF p_registry.created_at > v_latest THEN
		RAISE EXCEPTION 'the node''s clock is behind the creation of the extension'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock shows %s; the extension was created at %s.',
				snowflake.time_text(p_node_clock), snowflake.time_text(p_registry.created_at)),
			HINT = 'Correct the clock. If that of the registry was ahead when the extension was created, see "A clock that was ahead" in doc/operations.md.';
	END IF;
	IF v_start > v_latest THEN
		RAISE EXCEPTION 'the node''s clock is behind the time that leases start at'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock shows %s; leases start at %s, since the last promotion or pg_upgrade, or change of layout or registry.',
				snowflake.time_text(p_node_clock), snowflake.time_text(v_start)),
			HINT = 'Correct the clock, or wait until it shows that time. If no id is that late, see "A clock that was ahead" in doc/operations.md.';
	END IF;
	IF p_node_floor > v_latest + p_max_ahead THEN
		RAISE EXCEPTION 'the node''s clock is behind ids that the registry does not know of'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock shows %s; ids were issued until %s.',
				snowflake.time_text(p_node_clock), snowflake.time_text(p_node_floor)),
			HINT = 'Correct the clock, or wait until it shows that time. If these ids are gone, restart the node.';
	END IF;
	RETURN greatest(snowflake.registry_floor(p_registry, p_max_ahead, p_tick), p_node_floor);
END
$$;
COMMENT ON FUNCTION snowflake.lease_floor(snowflake.registry, timestamptz, interval, interval, timestamptz) IS
'part of the registry: the time that a lease starts at or after, whatever its number';
