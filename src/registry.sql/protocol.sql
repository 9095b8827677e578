--
-- The protocol: all that a node asks of a registry.  One jsonb in, one jsonb out, so that a new key
-- changes no signature; each call is a transaction of its own.  doc/protocol.md has the keys and what
-- a node must do.  These functions run as the extension's owner, and a node's role needs EXECUTE on
-- them and USAGE on the schema, nothing else.
--

CREATE FUNCTION snowflake.answer(p_registry snowflake.registry, p_answer text, p_more jsonb) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT jsonb_build_object('protocol', 1, 'answer', p_answer, 'incarnation', p_registry.incarnation,
		'generation', p_registry.generation, 'clock', snowflake.microseconds(clock_timestamp())) || p_more
$$;
COMMENT ON FUNCTION snowflake.answer(snowflake.registry, text, jsonb) IS
'part of the registry: the answer to a call';

-- p_own: the own lease worker calls.  No key of a call claims that: see acquire_own_lease().
CREATE FUNCTION snowflake.grant_lease(p_call jsonb, p_own boolean) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_call snowflake.node_call;
	v_registry snowflake.registry;
	v_node_clock timestamptz;
	v_now timestamptz;		-- the registry's clock; that of its own server is the same
	v_max_ahead interval;
	v_tick interval;
	v_window interval;
	v_first bigint;
	v_last bigint;
	v_fixed boolean;
	v_layout_set boolean;
	v_uses uuid;
	v_ended_at timestamptz;
	v_ended_incarnation uuid;
	v_ended_generation integer;
	v_node_floor timestamptz;
	v_layout_floor timestamptz;
	v_own_floor timestamptz;
	v_named snowflake.worker_node;
	v_newest snowflake.worker_node;
	v_lease snowflake.worker_node;
BEGIN
	PERFORM snowflake.check_protocol(p_call);
	v_call := snowflake.read_call(p_call, false, true);
	v_node_clock := snowflake.read_time(p_call, 'clock');
	v_max_ahead := snowflake.read_span(p_call, 'max_ahead', 0, 86400000000);
	v_tick := snowflake.read_span(p_call, 'tick', 1, 1000000);
	v_window := snowflake.read_span(p_call, 'window', 1, 172800000000);
	-- the greatest number of the layout is reserved
	v_last := snowflake.read_integer(p_call, 'last_number', 0, (1::bigint << (v_call.layout).datacenter_bits
		+ (v_call.layout).worker_bits + (v_call.layout).clock_bits) - 2);
	-- more cannot be searched, and no deployment has so many nodes
	v_first := snowflake.read_integer(p_call, 'first_number', greatest(0, v_last - 4294967295), v_last);
	v_fixed := snowflake.read_boolean(p_call, 'fixed');
	v_layout_set := snowflake.read_boolean(p_call, 'layout_set');
	v_uses := snowflake.read_uuid(p_call, 'uses', true);
	IF coalesce(jsonb_typeof(p_call -> 'ended'), 'null') <> 'null' THEN
		v_ended_at := snowflake.read_time(p_call, 'ended.ids_end_at');
		v_ended_incarnation := snowflake.read_uuid(p_call, 'ended.incarnation');
		v_ended_generation := snowflake.read_integer(p_call, 'ended.generation', 1, 2147483647);
	END IF;
	v_node_floor := snowflake.read_time(p_call, 'starts_at', true);
	v_lease.kind := snowflake.read_text(p_call, 'kind');
	v_lease.host_name := snowflake.read_text(p_call, 'host_name');
	v_lease.launched_at := snowflake.read_time(p_call, 'launched_at');
	IF v_lease.kind = 'server' THEN
		v_lease.port := snowflake.read_integer(p_call, 'port', 0, 65535);
		v_lease.timeline := snowflake.read_integer(p_call, 'timeline', 1, 4294967295);
		IF NOT p_own THEN
			v_lease.system_identifier := snowflake.read_integer(p_call, 'system_identifier', -9223372036854775808, 9223372036854775807);
		END IF;
	ELSIF v_lease.kind = 'program' AND NOT p_own THEN
		v_lease.name := snowflake.read_text(p_call, 'name');
		-- any number of programs have one name: nothing tells whose a fixed number would be
		IF v_fixed THEN
			PERFORM snowflake.refuse_value('fixed', p_call -> 'fixed', 'false for a program');
		END IF;
	ELSE
		PERFORM snowflake.refuse_value('kind', p_call -> 'kind', '"server" or "program"');
	END IF;

	v_registry := snowflake.lock_registry(true);
	v_now := CASE WHEN p_own THEN v_node_clock ELSE clock_timestamp() END;
	PERFORM snowflake.check_open(v_registry);
	v_registry := snowflake.count_generation(v_registry, v_now);
	PERFORM snowflake.check_root(v_registry);
	IF p_own THEN
		v_lease.system_identifier := v_registry.system_identifier;
		PERFORM snowflake.write_uses('own', NULL);
	ELSE
		PERFORM snowflake.check_source(v_registry, v_uses, v_lease.system_identifier, v_lease.launched_at);
	END IF;
	v_named := snowflake.begin_call(v_registry, v_call);

	v_newest := snowflake.newest_lease(v_registry.incarnation);
	v_layout_floor := snowflake.check_layout(v_newest.layout, v_call.layout, v_layout_set,
		least(v_node_clock, v_now), v_max_ahead, v_lease.host_name, v_lease.port, v_lease.system_identifier);
	-- ids that this registry has in no row of this generation end before the lease starts
	v_node_floor := greatest(v_node_floor,
		CASE WHEN (v_ended_incarnation, v_ended_generation) IS DISTINCT FROM (v_registry.incarnation, v_registry.generation)
			THEN v_ended_at END,
		CASE WHEN (v_named.incarnation, v_named.generation) IS DISTINCT FROM (v_registry.incarnation, v_registry.generation)
			THEN v_call.lease_end END);
	v_lease.starts_at := greatest(v_layout_floor,
		CASE WHEN v_fixed AND (v_registry.generation > 1 OR v_registry.taken_over <> '{}') THEN v_node_clock END,
		snowflake.lease_floor(v_registry, v_node_clock, v_max_ahead, v_tick, v_node_floor));
	IF v_newest.layout <> (v_call.layout).definition THEN
		UPDATE snowflake.worker_node AS w SET closed_at = v_now
		WHERE w.closed_at IS NULL AND w.layout <> (v_call.layout).definition;
	END IF;
	-- what holds for this lease holds for all that are granted later; what a node knows of its own ids does
	-- not, but where the tables are its own, and are new, that is all ids; what follows from its own max_ahead
	-- does not hold for others
	v_own_floor := CASE WHEN p_own AND v_node_floor > snowflake.registry_floor(v_registry, v_max_ahead, v_tick)
		THEN v_node_floor END;
	UPDATE snowflake.registry AS r
	SET starts_at = greatest(r.starts_at, v_layout_floor, v_own_floor)
	WHERE r.one AND greatest(v_layout_floor, v_own_floor) > coalesce(r.starts_at, '-infinity');

	v_lease.node_number := snowflake.choose_number(v_registry, p_own, v_first, v_last, v_fixed, v_call.start,
		v_node_clock, v_now, v_max_ahead);
	UPDATE snowflake.worker_node AS w SET closed_at = clock_timestamp()
	WHERE w.node_number = v_lease.node_number AND w.closed_at IS NULL;
	-- of all incarnations: a dump brings what was issued
	v_lease.starts_at := greatest(v_lease.starts_at, (SELECT w.leased_until FROM snowflake.worker_node AS w
		WHERE w.node_number = v_lease.node_number ORDER BY w.leased_until DESC LIMIT 1));
	PERFORM snowflake.check_end(v_call.layout, greatest(v_lease.starts_at, v_node_clock), v_node_clock);
	v_lease.token := gen_random_uuid();
	v_lease.start := v_call.start;
	v_lease.granted_by := v_call.call;
	v_lease.last_call := v_call.call;
	v_lease.incarnation := v_registry.incarnation;
	v_lease.generation := v_registry.generation;
	v_lease.fixed := v_fixed;
	v_lease.layout := (v_call.layout).definition;
	SELECT p.datacenter_id, p.worker_id, p.clock INTO STRICT v_lease.datacenter_id, v_lease.worker_id, v_lease.clock
	FROM snowflake.node_number_parts(v_lease.node_number, v_call.layout) AS p;
	v_lease.leased_until := least(greatest(v_node_clock, v_lease.starts_at) + v_window, (v_call.layout).ends_at);
	v_lease.greatest_id := snowflake.greatest_id(v_lease.leased_until, v_call.layout);
	v_lease.renewed_at := snowflake.renewal_time(v_newest, v_now);
	INSERT INTO snowflake.worker_node SELECT v_lease.*;
	RETURN snowflake.answer(v_registry, 'yes', jsonb_build_object('token', v_lease.token,
		'node_number', v_lease.node_number, 'starts_at', snowflake.microseconds(v_lease.starts_at),
		'leased_until', snowflake.microseconds(v_lease.leased_until)));
END
$$;
COMMENT ON FUNCTION snowflake.grant_lease(jsonb, boolean) IS
'part of the registry: grants a lease';

CREATE FUNCTION snowflake.acquire_lease(p_call jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	RETURN snowflake.grant_lease(p_call, false);
END
$$;
COMMENT ON FUNCTION snowflake.acquire_lease(jsonb) IS
'grants a node number for ids from a time to another; part of the protocol';

CREATE FUNCTION snowflake.renew_lease(p_call jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_call snowflake.node_call;
	v_registry snowflake.registry;
	v_node_clock timestamptz;
	v_window interval;
	v_named snowflake.worker_node;
	v_newest snowflake.worker_node;
	v_reason text;
BEGIN
	PERFORM snowflake.check_protocol(p_call);
	v_call := snowflake.read_call(p_call, true, false);
	v_node_clock := snowflake.read_time(p_call, 'clock');
	v_window := snowflake.read_span(p_call, 'window', 1, 172800000000);

	v_registry := snowflake.lock_registry(true);
	PERFORM snowflake.check_open(v_registry);
	v_registry := snowflake.count_generation(v_registry, clock_timestamp());
	PERFORM snowflake.check_root(v_registry);
	v_named := snowflake.begin_call(v_registry, v_call);
	v_reason := CASE
		WHEN v_named.token IS NULL THEN 'unknown'
		WHEN v_named.incarnation <> v_registry.incarnation THEN 'incarnation'
		WHEN v_named.generation <> v_registry.generation THEN 'generation'
		WHEN v_named.closed_at IS NOT NULL THEN 'closed'
		-- a row that was restored, or taken over, since this one was granted
		WHEN EXISTS (SELECT FROM (SELECT w.token FROM snowflake.worker_node AS w
			WHERE w.node_number = v_named.node_number AND w.leased_until > v_named.starts_at
			ORDER BY w.leased_until DESC LIMIT 2) AS l WHERE l.token <> v_named.token) THEN 'closed' END;
	IF v_reason IS NOT NULL THEN
		RETURN snowflake.answer(v_registry, 'no', jsonb_build_object('reason', v_reason));
	END IF;

	v_newest := snowflake.newest_lease(v_registry.incarnation);
	IF (v_call.layout).definition <> v_newest.layout THEN
		RAISE EXCEPTION 'the layout is not the one that ids are issued under now'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Ids are issued under "%s"; the node has "%s".', v_newest.layout, (v_call.layout).definition),
			HINT = format('Set the layout to ''%s'' (a server can have the other one in snowflake.extra_layouts).', v_newest.layout);
	END IF;
	PERFORM snowflake.check_end(v_call.layout, v_named.leased_until, v_node_clock);
	v_named.leased_until := greatest(v_named.leased_until,
		least(greatest(v_node_clock, v_named.starts_at) + v_window, (v_call.layout).ends_at));
	UPDATE snowflake.worker_node AS w
	SET leased_until = v_named.leased_until, greatest_id = snowflake.greatest_id(v_named.leased_until, v_call.layout),
		renewed_at = snowflake.renewal_time(v_newest, clock_timestamp())
	WHERE w.token = v_named.token;
	RETURN snowflake.answer(v_registry, 'yes', jsonb_build_object('leased_until', snowflake.microseconds(v_named.leased_until)));
END
$$;
COMMENT ON FUNCTION snowflake.renew_lease(jsonb) IS
'raises the end of an open lease; the answer is no if the lease is none of this registry''s present generation; part of the protocol';

-- Makes leased_until exact.  If that is lost, the one before stands, which is as safe: so its commit need
-- not be durable.
CREATE FUNCTION snowflake.release_lease(p_call jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_call snowflake.node_call;
	v_registry snowflake.registry;
	v_named snowflake.worker_node;
BEGIN
	PERFORM snowflake.check_protocol(p_call);
	v_call := snowflake.read_call(p_call, true, true);
	v_registry := snowflake.lock_registry(false);
	PERFORM snowflake.check_open(v_registry);
	v_registry := snowflake.count_generation(v_registry, clock_timestamp());
	v_named := snowflake.begin_call(v_registry, v_call);
	IF v_named.token IS NULL OR v_named.closed_at IS NOT NULL THEN
		RETURN snowflake.answer(v_registry, 'no', jsonb_build_object('reason',
			CASE WHEN v_named.token IS NULL THEN 'unknown' ELSE 'closed' END));
	END IF;
	RETURN snowflake.answer(v_registry, 'yes', '{}');
END
$$;
COMMENT ON FUNCTION snowflake.release_lease(jsonb) IS
'closes a lease at the end of its ids; part of the protocol';

-- Some leases at a time, of all incarnations, in the order of their numbers and ends; each number goes on
-- after the end where the last page stopped, so that rows that are granted or renewed meanwhile come later.
-- Only reads, and counts nothing: works on a hot standby, too.
--
-- leased_until is committed before an id under it is issued, and lowered only to the end of all ids.
-- So who reads this after a snapshot of some ids finds the leases of all ids in that snapshot.
CREATE FUNCTION snowflake.list_leases(p_call jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_rows CONSTANT integer := 10000;	-- with at most 5 values of 20 characters each
	v_number bigint;
	v_until timestamptz;
	v_incarnation uuid;
	v_page jsonb;
BEGIN
	PERFORM snowflake.check_database();
	PERFORM snowflake.check_protocol(p_call);
	v_number := coalesce(snowflake.read_integer(p_call, 'after.node_number', 0, 9223372036854775807, true), -1);
	v_until := coalesce(snowflake.read_time(p_call, 'after.leased_until', true), '-infinity');
	-- none in a copy of the database that has granted no lease yet
	SELECT r.incarnation INTO v_incarnation
	FROM snowflake.registry AS r JOIN pg_database AS d ON d.oid = r.database OR r.closed_at IS NOT NULL
	WHERE r.one AND d.datname = current_database();
	SELECT jsonb_build_object(
		'node_numbers', coalesce(jsonb_agg(w.node_number), '[]'),
		'launched', coalesce(jsonb_agg(snowflake.microseconds(w.launched_at)), '[]'),
		'starts', coalesce(jsonb_agg(snowflake.microseconds(w.starts_at)), '[]'),
		'ends', coalesce(jsonb_agg(snowflake.microseconds(w.leased_until)), '[]'),
		'next', CASE WHEN count(*) >= v_rows THEN jsonb_build_object('node_number', max(w.node_number),
			'leased_until', (array_agg(snowflake.microseconds(w.leased_until)))[count(*)]) END)
	INTO STRICT v_page
	FROM (SELECT w.* FROM snowflake.worker_node AS w
		WHERE (w.node_number, w.leased_until) > (v_number, v_until)
		ORDER BY w.node_number, w.leased_until FETCH FIRST v_rows ROWS WITH TIES) AS w;
	RETURN jsonb_build_object('protocol', 1, 'incarnation', v_incarnation,
		'uses', (SELECT c.uses FROM snowflake.cluster AS c WHERE c.one),
		'uses_incarnation', (SELECT c.incarnation FROM snowflake.cluster AS c WHERE c.one)) || v_page;
END
$$;
COMMENT ON FUNCTION snowflake.list_leases(jsonb) IS
'the leases on record, some at a time; only reads; part of the protocol';
