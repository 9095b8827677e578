--
-- Moving to another registry, and what else the owner says.
--

-- The standbys that may not have flushed what was committed before: a failover to one of them would take
-- an order of the administrator back.  Waits for them a little.
CREATE FUNCTION snowflake.warn_of_standbys() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_flushed pg_lsn;
	v_behind text;
BEGIN
	IF pg_is_in_recovery() THEN
		RETURN;
	END IF;
	v_flushed := pg_current_wal_flush_lsn();
	FOR v_try IN 1 .. 30 LOOP
		SELECT string_agg(b.name, ', ' ORDER BY b.name) INTO v_behind
		FROM (SELECT format('"%s"', coalesce(nullif(r.application_name, ''), r.pid::text)) AS name
			FROM pg_stat_replication AS r
			WHERE r.state IN ('startup', 'catchup', 'streaming') AND coalesce(r.flush_lsn, '0/0') < v_flushed
				AND NOT EXISTS (SELECT FROM pg_replication_slots AS s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
			UNION ALL
			SELECT format('that of slot "%s"', s.slot_name)
			FROM pg_replication_slots AS s WHERE s.slot_type = 'physical' AND NOT s.active AND s.restart_lsn < v_flushed) AS b;
		EXIT WHEN v_behind IS NULL;
		PERFORM pg_sleep(0.1);
	END LOOP;
	IF v_behind IS NOT NULL THEN
		RAISE WARNING 'not all standbys have what was done here'
			USING DETAIL = format('Standbys that have not flushed it: %s.', v_behind),
			HINT = 'Run this again until the warning is gone. Until then, promote none of them.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.warn_of_standbys() IS
'part of the registry: warns about standbys that have not flushed what was committed';

CREATE FUNCTION snowflake.close_registry(successor uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_successor CONSTANT uuid := successor;
	v_registry snowflake.registry := snowflake.lock_registry(true);
	v_now CONSTANT timestamptz := clock_timestamp();
BEGIN
	IF v_successor IS NULL OR v_successor = v_registry.incarnation THEN
		RAISE EXCEPTION 'a registry''s successor is another registry'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('The incarnation of this one is %s.', v_registry.incarnation),
			HINT = 'Give the incarnation in the table snowflake.registry of the new one.';
	END IF;
	IF v_registry.successor = v_successor THEN
		RETURN;
	END IF;
	PERFORM snowflake.check_open(v_registry);
	PERFORM snowflake.count_generation(v_registry, v_now);
	UPDATE snowflake.registry AS r
	SET successor = v_successor, closed_at = v_now, closed_by = pg_current_xact_id() WHERE r.one;
END
$$;
COMMENT ON FUNCTION snowflake.close_registry(uuid) IS
'closes the registry: from the commit on it grants, renews and changes nothing; the registry with the incarnation can take it over';

-- All that the successor must know; the same each time.  Leases that a failover has lost are in no row: they have
-- numbers of the other parity than the generation has, or end at or before the floor.  Only in a later
-- transaction: a closing that is rolled back is none.
CREATE FUNCTION snowflake.closed_registry(history boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_history CONSTANT boolean := coalesce(history, false);
	v_registry snowflake.registry;
	v_rows jsonb;
BEGIN
	PERFORM snowflake.check_database();
	SELECT r.* INTO STRICT v_registry FROM snowflake.registry AS r WHERE r.one;
	IF v_registry.closed_at IS NULL THEN
		RAISE EXCEPTION 'the registry is not closed'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'While it is open, the ends of its leases are not final.',
			HINT = 'Close it first: see "Another registry" in doc/operations.md.';
	END IF;
	IF v_registry.closed_by = pg_current_xact_id_if_assigned() THEN
		RAISE EXCEPTION 'the closing of the registry is not committed yet'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'If it were rolled back, the registry would go on.',
			HINT = 'Commit, and run this in the next transaction.';
	END IF;
	PERFORM snowflake.warn_of_standbys();
	SELECT coalesce(jsonb_agg(jsonb_build_object(
			'token', w.token, 'start', w.start, 'granted_by', w.granted_by, 'last_call', w.last_call, 'kind', w.kind,
			'name', w.name, 'system_identifier', w.system_identifier, 'host_name', w.host_name, 'port', w.port, 'timeline', w.timeline,
			'incarnation', w.incarnation, 'generation', w.generation, 'fixed', w.fixed, 'node_number', w.node_number,
			'datacenter_id', w.datacenter_id, 'worker_id', w.worker_id, 'clock', w.clock,
			'layout', w.layout, 'greatest_id', w.greatest_id, 'launched_at', snowflake.microseconds(w.launched_at),
			'starts_at', snowflake.microseconds(w.starts_at), 'leased_until', snowflake.microseconds(w.leased_until),
			'renewed_at', snowflake.microseconds(w.renewed_at),
			'closed_at', snowflake.microseconds(coalesce(w.closed_at, v_registry.closed_at)))
		ORDER BY w.renewed_at, w.token), '[]')
	INTO STRICT v_rows
	FROM snowflake.worker_node AS w
	WHERE v_history OR w.token IN (
		SELECT e.token FROM (SELECT DISTINCT ON (w.node_number) w.token FROM snowflake.worker_node AS w
			ORDER BY w.node_number, w.leased_until DESC, w.token) AS e
		UNION
		SELECT e.token FROM (SELECT DISTINCT ON (w.layout) w.token FROM snowflake.worker_node AS w
			WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at
			ORDER BY w.layout, w.renewed_at DESC, w.token) AS e
		UNION
		SELECT e.token FROM (SELECT DISTINCT ON (w.layout) w.token FROM snowflake.worker_node AS w
			WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at
			ORDER BY w.layout, w.greatest_id DESC, w.token) AS e);
	RETURN jsonb_build_object('protocol', 1, 'incarnation', v_registry.incarnation, 'successor', v_registry.successor,
		'taken_over', to_jsonb(v_registry.taken_over), 'created_at', snowflake.microseconds(v_registry.created_at),
		'generation', v_registry.generation,
		'floor', snowflake.microseconds(greatest(v_registry.starts_at, v_registry.counted_at)),
		'history', v_history, 'rows', v_rows);
END
$$;
COMMENT ON FUNCTION snowflake.closed_registry(boolean) IS
'what the successor of this closed registry must know, for snowflake.take_over(); with all rows if history is true';

-- Takes over the result of closed_registry(): its rows as history, as those of a dump, its floor for all
-- leases, and the parity of its generation: if it differs, a generation is counted, as for a promotion.  Where own
-- tables are closed, and their successor comes back with what it had taken over of them, they are opened again,
-- with a new incarnation.  Twice is as once; but not if the first time was as of one that is lost.  Returns the incarnation of this registry.
CREATE FUNCTION snowflake.take_over(closed jsonb) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_closed CONSTANT jsonb := closed;
	v_registry snowflake.registry;
	v_now timestamptz;
	v_incarnation uuid;
	v_successor uuid;
	v_created_at timestamptz;
	v_generation integer;
	v_floor timestamptz;
	v_taken_over uuid[];
	v_again boolean;
	v_reopens boolean;
BEGIN
	PERFORM snowflake.check_protocol(v_closed);
	v_incarnation := snowflake.read_uuid(v_closed, 'incarnation');
	v_successor := snowflake.read_uuid(v_closed, 'successor');
	v_created_at := snowflake.read_time(v_closed, 'created_at');
	v_generation := snowflake.read_integer(v_closed, 'generation', 1, 2147483647);
	v_floor := snowflake.read_time(v_closed, 'floor', true);
	IF jsonb_typeof(v_closed -> 'taken_over') IS DISTINCT FROM 'array' THEN
		PERFORM snowflake.refuse_value('taken_over', v_closed -> 'taken_over', 'an array of UUIDs');
	END IF;
	IF jsonb_typeof(v_closed -> 'rows') IS DISTINCT FROM 'array' THEN
		PERFORM snowflake.refuse_value('rows', v_closed -> 'rows', 'an array of rows');
	END IF;
	v_taken_over := ARRAY(SELECT snowflake.read_uuid(v_closed, format('taken_over.%s', n))
		FROM generate_series(0, jsonb_array_length(v_closed -> 'taken_over') - 1) AS n);
	IF v_incarnation = ANY (ARRAY(SELECT unnest(r.taken_over) FROM snowflake.registry AS r WHERE r.one)) THEN
		PERFORM snowflake.warn_of_standbys();
	END IF;

	v_registry := snowflake.lock_registry(true);
	v_now := clock_timestamp();
	v_again := v_incarnation = ANY (v_registry.told);
	v_reopens := v_registry.closed_at IS NOT NULL AND v_registry.incarnation = ANY (v_taken_over)
		AND v_registry.successor = ANY (v_incarnation || v_taken_over);
	IF NOT v_reopens THEN
		PERFORM snowflake.check_open(v_registry);
	END IF;
	-- the second time, it names the incarnation with which these tables were closed
	IF v_successor <> v_registry.incarnation AND NOT (v_again AND v_successor = ANY (v_registry.taken_over)) THEN
		RAISE EXCEPTION 'the closed registry names another successor'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('It names the registry with the incarnation %s; the incarnation of this one is %s.',
				v_successor, v_registry.incarnation),
			HINT = 'Take it over in the registry that it names.';
	END IF;
	-- what holds for all leases is taken over once: ids_end_before() may have lowered it since
	IF v_again THEN
		v_floor := NULL;
		v_created_at := NULL;
	END IF;
	IF greatest(v_floor, v_created_at) > greatest(v_now + interval '10 s', v_registry.starts_at, v_registry.created_at) THEN
		RAISE EXCEPTION 'ids of the closed registry may end at %', snowflake.time_text(greatest(v_floor, v_created_at))
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock of this one shows %s; it would refuse leases until that time.', snowflake.time_text(v_now)),
			HINT = 'Run this again when it is 10 s before that time; or correct the clock. If no id is that late, see "A clock that was ahead" in doc/operations.md.';
	END IF;
	v_registry := snowflake.count_generation(v_registry, v_now);
	IF NOT v_again AND (v_registry.generation - v_generation) % 2 <> 0 THEN
		UPDATE snowflake.registry AS r
		SET generation = r.generation + 1, counted_at = greatest(r.counted_at, v_now) WHERE r.one;
	END IF;

	-- a row that is here already keeps the later end
	INSERT INTO snowflake.worker_node AS w (token, start, granted_by, last_call, kind, name, system_identifier, host_name, port,
		timeline, incarnation, generation, fixed, node_number, datacenter_id, worker_id, clock, layout, greatest_id,
		launched_at, starts_at, leased_until, renewed_at, closed_at)
	SELECT t.token, t.start, t.granted_by, t.last_call, t.kind, t.name, t.system_identifier, t.host_name, t.port,
		t.timeline, t.incarnation, t.generation, t.fixed, t.node_number, t.datacenter_id, t.worker_id, t.clock, t.layout, t.greatest_id,
		snowflake.time_of(t.launched_at), snowflake.time_of(t.starts_at), snowflake.time_of(t.leased_until),
		snowflake.time_of(t.renewed_at), snowflake.time_of(t.closed_at)
	FROM jsonb_to_recordset(v_closed -> 'rows') AS t (token uuid, start uuid, granted_by bigint, last_call bigint, kind text,
		name text, system_identifier bigint, host_name text, port integer, timeline bigint, incarnation uuid, generation integer,
		fixed boolean, node_number bigint, datacenter_id integer, worker_id integer, clock integer, layout text,
		greatest_id bigint, launched_at bigint, starts_at bigint, leased_until bigint, renewed_at bigint, closed_at bigint)
	ON CONFLICT ON CONSTRAINT worker_node_pkey DO UPDATE
	SET leased_until = EXCLUDED.leased_until, greatest_id = greatest(w.greatest_id, EXCLUDED.greatest_id)
	WHERE EXCLUDED.leased_until > w.leased_until;

	v_registry := snowflake.add_taken_over(v_registry, v_incarnation || v_taken_over, greatest(v_floor, v_registry.starts_at));
	UPDATE snowflake.registry AS r SET created_at = greatest(r.created_at, v_created_at),
		told = CASE WHEN v_again THEN r.told ELSE r.told || v_incarnation END
	WHERE r.one;
	RETURN v_registry.incarnation;
END
$$;
COMMENT ON FUNCTION snowflake.take_over(jsonb) IS
'takes over a closed registry, as its snowflake.closed_registry() describes it; returns the incarnation of this one';

-- Adds to the registries that are taken over; opens own tables that are closed.
CREATE FUNCTION snowflake.add_taken_over(p_registry snowflake.registry, p_incarnations uuid[], p_starts_at timestamptz)
RETURNS snowflake.registry
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_reopened CONSTANT boolean := p_registry.closed_at IS NOT NULL;
	v_all CONSTANT uuid[] := p_incarnations || CASE WHEN v_reopened THEN ARRAY[p_registry.incarnation] ELSE '{}' END;
	v_here CONSTANT oid := (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
	v_registry snowflake.registry;
BEGIN
	UPDATE snowflake.registry AS r
	SET taken_over = r.taken_over || ARRAY(SELECT DISTINCT a.incarnation FROM unnest(v_all) AS a (incarnation)
			WHERE a.incarnation <> ALL (r.taken_over)),
		told = r.told || CASE WHEN v_reopened THEN ARRAY[r.incarnation] ELSE '{}' END,
		starts_at = p_starts_at,
		incarnation = CASE WHEN v_reopened THEN gen_random_uuid() ELSE r.incarnation END,
		created_at = CASE WHEN r.database <> v_here THEN clock_timestamp() ELSE r.created_at END,
		database = v_here, successor = NULL, closed_at = NULL, closed_by = NULL
	WHERE r.one
	RETURNING r.* INTO STRICT v_registry;
	RETURN v_registry;
END
$$;
COMMENT ON FUNCTION snowflake.add_taken_over(snowflake.registry, uuid[], timestamptz) IS
'part of the registry: adds to the registries that are taken over';

-- For a registry that is lost, or that a node leaves while others stay: nothing is known of its leases.
CREATE FUNCTION snowflake.take_over(incarnation uuid) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_incarnation CONSTANT uuid := incarnation;
	v_registry snowflake.registry := snowflake.lock_registry(true);
BEGIN
	IF v_incarnation IS NULL OR v_incarnation = v_registry.incarnation THEN
		RAISE EXCEPTION 'a registry takes over another registry'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('The incarnation of this one is %s.', v_registry.incarnation),
			HINT = 'Give the incarnation of the registry that is lost.';
	END IF;
	IF v_incarnation IS DISTINCT FROM v_registry.successor THEN
		PERFORM snowflake.check_open(v_registry);
	END IF;
	RAISE WARNING 'the registry with the incarnation % must never run again for the nodes that come here', v_incarnation
		USING DETAIL = 'Nothing is known of its leases. Those of all registries that it has taken over, or that have taken it over, must be over, too, or ids can repeat.',
		HINT = 'Stop all these registries for good, and wait for the longest window (see "A lost registry" in doc/operations.md); if it was not over yet, run this again then. No other registry may take it over.';
	v_registry := snowflake.count_generation(v_registry, clock_timestamp());
	v_registry := snowflake.add_taken_over(v_registry, ARRAY[v_incarnation], greatest(v_registry.starts_at, clock_timestamp()));
	RETURN v_registry.incarnation;
END
$$;
COMMENT ON FUNCTION snowflake.take_over(uuid) IS
'takes over a registry that is lost: accepts the nodes that used it; returns the incarnation of this one';

-- The clock was ahead when the tables were made, or at a promotion: its owner says that all ids end before
-- a time.  The ends of leases on record stay.  Also in a closed registry, before it is taken over.
CREATE FUNCTION snowflake.ids_end_before("time" timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_time CONSTANT timestamptz := "time";
	v_registry CONSTANT snowflake.registry := snowflake.lock_registry(true);
BEGIN
	IF isfinite(v_time) IS NOT TRUE THEN
		RAISE EXCEPTION 'the time at which ids end must be finite'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Leases start at or after it.',
			HINT = 'Give a time that is after the last id.';
	END IF;
	IF v_registry.closed_at IS NULL THEN
		PERFORM snowflake.count_generation(v_registry, clock_timestamp());
	END IF;
	UPDATE snowflake.registry AS r
	SET created_at = least(r.created_at, v_time),
		counted_at = CASE WHEN r.counted_at > v_time THEN v_time ELSE r.counted_at END,
		starts_at = CASE WHEN r.starts_at > v_time THEN v_time ELSE r.starts_at END
	WHERE r.one;
END
$$;
COMMENT ON FUNCTION snowflake.ids_end_before(timestamptz) IS
'says that all ids of this registry''s nodes end before a time: leases need not start later than that';
