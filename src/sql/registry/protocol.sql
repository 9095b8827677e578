--
-- The protocol: all that a node asks of a registry.  One jsonb in, one jsonb out, so that a new key
-- changes no signature; each call is a transaction of its own.  doc/protocol.md has the keys and what
-- a node must do.  These functions run as the extension's owner, and a node's role needs EXECUTE on
-- them and USAGE on the schema, nothing else.
--

-- The head of a call: the registry is locked and has counted its promotions, and the call is one of a node that may ask
-- it.  Then the leases of the start are closed that the call shows to be over.  p_own: the own lease worker asks for a
-- lease; the registry's clock is in the call then, and what it uses is in the tables.  named: the lease that the call
-- names; lease: the same, as it was on record, all NULL if it was not.
CREATE FUNCTION snowflake.begin_call(p_call jsonb, p_kind text, p_own boolean,
	OUT registry snowflake.registry, OUT named snowflake.named_lease, OUT lease snowflake.node_number,
	OUT refusal jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
	v_counted record;
	v_closed record;
BEGIN
	PERFORM snowflake.check_call(p_call, p_kind);
	registry := snowflake.lock_registry(p_kind <> 'release');
	-- such a transaction cannot be prepared: it would hold up all others, and outlive its session
	IF current_setting('max_prepared_transactions') <> '0' THEN
		PERFORM pg_notify('snowflake', '');
	END IF;
	IF (p_call -> 'protocol')::integer > 1 THEN
		refusal := snowflake.refusal('55000',
			format('version %s of the registry''s protocol is not known here', p_call -> 'protocol'),
			'The registry knows version 1.', 'Update snowflake_registry in the registry before its nodes.');
	ELSIF registry.closed_at IS NOT NULL THEN
		refusal := snowflake.refuse_closed(registry);
	ELSIF registry.server IS DISTINCT FROM snowflake.this_server() THEN
		v_counted := snowflake.count_generation(registry,
			CASE WHEN p_own THEN snowflake.time_of((p_call -> 'clock')::bigint) ELSE clock_timestamp() END);
		registry := v_counted.p_registry;
		refusal := v_counted.refusal;
	END IF;
	IF refusal IS NULL AND p_kind <> 'release' THEN
		refusal := snowflake.check_cluster(registry, p_call ->> 'layout');
	END IF;
	IF refusal IS NULL AND p_kind = 'acquire' AND NOT p_own THEN
		refusal := snowflake.check_source(registry, (p_call ->> 'uses')::uuid,
			CASE p_call ->> 'kind' WHEN 'server' THEN (p_call -> 'system_identifier')::bigint END,
			snowflake.time_of((p_call -> 'launched_at')::bigint));
	END IF;
	IF refusal IS NULL THEN
		named := ROW((p_call #>> '{lease,token}')::uuid, (p_call #> '{lease,node_number}')::bigint,
			(p_call #> '{lease,granted_by}')::bigint,
			(p_call #>> '{lease,incarnation}')::uuid, (p_call #> '{lease,generation}')::integer,
			snowflake.time_of((p_call #> '{lease,leased_until}')::bigint), NULL)::snowflake.named_lease;
		IF p_kind <> 'renew' THEN	-- which ends no ids
			named.ids_end_at := snowflake.time_of(nullif(p_call #> '{lease,ids_end_at}', 'null')::bigint);
		END IF;
		v_closed := snowflake.close_leases_of_start(registry,
			(p_call ->> 'start')::uuid, (p_call -> 'call')::bigint, named);
		lease := v_closed.named;
		refusal := v_closed.refusal;
	END IF;
END
$$;

-- Grants the lease: closes what is open of its number, writes the row, and the log.
CREATE FUNCTION snowflake.open_lease(p_registry snowflake.registry, p_call jsonb, p_own boolean, p_number bigint,
	p_starts_at timestamptz, p_node_clock timestamptz, p_now timestamptz,
	OUT lease snowflake.node_number, OUT refusal jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
	v_server CONSTANT boolean := p_call ->> 'kind' = 'server';
	v_row snowflake.node_number;
	v_end record;
BEGIN
	SELECT n.* INTO v_row FROM snowflake.node_number AS n WHERE n.node_number = p_number;
	lease.starts_at := greatest(p_starts_at, v_row.ended_until, v_row.leased_until);
	v_end := snowflake.lease_end(p_registry, p_call, p_node_clock, p_now, lease.starts_at, NULL);
	IF v_end.refusal IS NOT NULL THEN
		refusal := v_end.refusal;
		RETURN;
	END IF;
	lease.leased_until := v_end.leased_until;
	IF v_row.node_number IS NULL THEN
		-- so that no node makes the table grow without end
		IF (p_call -> 'last_number')::bigint > snowflake.greatest_number(p_call ->> 'layout') THEN
			refusal := snowflake.refusal('22023',
				format('node number %s does not fit the layout', p_call -> 'last_number'),
				format('The node asks for numbers up to this one; those of "%s" are 0 to %s.', p_call ->> 'layout',
					snowflake.greatest_number(p_call ->> 'layout')),
				'Correct last_number: see doc/protocol.md.');
			RETURN;
		END IF;
		INSERT INTO snowflake.node_number (node_number) VALUES (p_number);
	ELSIF v_row.token IS NOT NULL THEN
		PERFORM snowflake.close_lease(v_row, v_row.leased_until);
	END IF;
	UPDATE snowflake.node_number AS n
	SET recorded_until = greatest(n.recorded_until, lease.leased_until),
		token = gen_random_uuid(), start = (p_call ->> 'start')::uuid,
		granted_by = (p_call -> 'call')::bigint, last_call = (p_call -> 'call')::bigint,
		own = p_own, fixed = (p_call -> 'fixed')::boolean,
		system_identifier = CASE WHEN v_server THEN (p_call -> 'system_identifier')::bigint END, role = session_user,
		incarnation = p_registry.incarnation, generation = p_registry.generation, starts_at = lease.starts_at,
		leased_until = lease.leased_until, renewed_at = p_now
	WHERE n.node_number = p_number
	RETURNING n.* INTO STRICT lease;
	INSERT INTO snowflake.worker_node (token, start, granted_by, kind, name,
		host_name, port, role, system_identifier, timeline,
		incarnation, generation, fixed, node_number, layout, launched_at, starts_at)
	VALUES (lease.token, lease.start, lease.granted_by, p_call ->> 'kind',
		CASE WHEN NOT v_server THEN p_call ->> 'name' END,
		p_call ->> 'host_name', CASE WHEN v_server THEN (p_call -> 'port')::integer END, lease.role,
		lease.system_identifier, CASE WHEN v_server THEN (p_call -> 'timeline')::bigint END,
		lease.incarnation, lease.generation, lease.fixed, p_number,
		p_call ->> 'layout', snowflake.time_of((p_call -> 'launched_at')::bigint), lease.starts_at);
END
$$;

-- Ids of other starts of the server's cluster end at or before this: what its settled id waits for.  A failover of the
-- registry may have lost leases of them.  NULL: they have ended.  p_clock: the earlier of node's and registry's.
-- The log is read from its latest end on; the planner does not see how few rows are of this cluster, lest it reads all.
CREATE FUNCTION snowflake.cluster_ids_end_at(p_registry snowflake.registry, p_call jsonb, p_clock timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql
AS $$
DECLARE
	v_server CONSTANT bigint := p_call -> 'system_identifier';
	v_start CONSTANT uuid := p_call ->> 'start';
	v_end timestamptz;
BEGIN
	-- greatest() ignores NULL
	v_end := greatest(p_registry.counted_at + interval '10 s'
			+ least(snowflake.span_of((p_call -> 'max_ahead')::bigint), interval '10 s'),
		(SELECT max(n.leased_until) FROM snowflake.node_number AS n
			WHERE n.system_identifier = v_server AND n.start <> v_start),
		(SELECT w.leased_until FROM snowflake.worker_node AS w
			WHERE w.leased_until > p_clock
				AND CASE WHEN w.system_identifier = v_server AND w.start <> v_start THEN true ELSE false END
			ORDER BY w.leased_until DESC LIMIT 1));
	RETURN CASE WHEN v_end > p_clock THEN v_end END;
END
$$;

-- p_own: the own lease worker calls.  No key of a call claims that: see acquire_own_lease().
CREATE FUNCTION snowflake.grant_lease(p_call jsonb, p_own boolean) RETURNS jsonb
LANGUAGE plpgsql
AS $$
DECLARE
	v_begun CONSTANT record := snowflake.begin_call(p_call, 'acquire', p_own);
	v_registry CONSTANT snowflake.registry := v_begun.registry;
	-- the values of a later version may be others
	v_node_clock CONSTANT timestamptz := CASE WHEN v_begun.refusal IS NULL
		THEN snowflake.time_of((p_call -> 'clock')::bigint) END;
	-- the registry's clock
	v_now CONSTANT timestamptz := CASE WHEN p_own THEN v_node_clock ELSE clock_timestamp() END;
	v_named CONSTANT snowflake.named_lease := v_begun.named;
	v_floor timestamptz;
	v_starts record;
	v_chosen record;
	v_opened record;
BEGIN
	IF v_begun.refusal IS NOT NULL THEN
		RETURN snowflake.answer(v_registry, 'refused', v_begun.refusal);
	END IF;
	-- the end of all ids that the node knows of, and the tables may not: what it says in starts_at; of leases of
	-- another incarnation or generation; of a lease that was rolled back.  greatest() ignores NULL
	v_floor := greatest(snowflake.time_of(nullif(p_call -> 'starts_at', 'null')::bigint),
		CASE WHEN (v_named.incarnation, v_named.generation)
				IS DISTINCT FROM (v_registry.incarnation, v_registry.generation)
			THEN greatest(v_named.ids_end_at, snowflake.time_of(nullif(p_call -> 'ids_end_at', 'null')::bigint))
			WHEN snowflake.is_rolled_back(v_registry, v_now, v_named) THEN v_named.leased_until END);
	v_starts := snowflake.lease_starts_at(v_registry, v_node_clock,
		snowflake.span_of((p_call -> 'max_ahead')::bigint), (p_call -> 'fixed')::boolean, v_floor);
	IF v_starts.refusal IS NOT NULL THEN
		RETURN snowflake.answer(v_registry, 'refused', v_starts.refusal);
	END IF;
	v_chosen := snowflake.choose_number(v_registry, p_call, p_own, v_node_clock, v_now);
	IF v_chosen.refusal IS NOT NULL THEN
		RETURN snowflake.answer(v_registry, 'refused', v_chosen.refusal);
	END IF;
	v_opened := snowflake.open_lease(v_registry, p_call, p_own, v_chosen.number, v_starts.starts_at,
		v_node_clock, v_now);
	IF v_opened.refusal IS NOT NULL THEN
		RETURN snowflake.answer(v_registry, 'refused', v_opened.refusal);
	END IF;

	-- the first lease records the default layout; the first of the own server, that its tables are used
	IF NOT EXISTS (SELECT FROM snowflake.cluster AS c
		WHERE c.one AND c.layout IS NOT NULL AND (NOT p_own OR c.uses = 'own')) THEN
		INSERT INTO snowflake.cluster (one) SELECT true WHERE NOT EXISTS (SELECT FROM snowflake.cluster);
		UPDATE snowflake.cluster AS c
		SET layout = coalesce(c.layout, p_call ->> 'layout'), uses = CASE WHEN p_own THEN 'own' ELSE c.uses END,
			incarnation = CASE WHEN NOT p_own THEN c.incarnation END WHERE c.one;
	END IF;
	-- what a node knows of its own ids holds for its next lease only; but where the tables are its own, that is all ids
	IF p_own AND v_floor > coalesce(v_registry.starts_at, '-infinity') THEN
		UPDATE snowflake.registry AS r SET starts_at = v_floor WHERE r.one;
	END IF;
	RETURN snowflake.answer(v_registry, 'yes', jsonb_build_object('token', (v_opened.lease).token,
		'node_number', v_chosen.number, 'starts_at', snowflake.microseconds((v_opened.lease).starts_at),
		'leased_until', snowflake.microseconds((v_opened.lease).leased_until))
		|| CASE WHEN p_call ->> 'kind' = 'server' THEN jsonb_build_object('cluster_ids_end_at', snowflake.microseconds(
			snowflake.cluster_ids_end_at(v_registry, p_call, least(v_node_clock, v_now)))) ELSE '{}' END);
END
$$;

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
	v_begun CONSTANT record := snowflake.begin_call(p_call, 'renew', false);
	v_registry CONSTANT snowflake.registry := v_begun.registry;
	v_named CONSTANT snowflake.named_lease := v_begun.named;
	v_lease CONSTANT snowflake.node_number := v_begun.lease;
	v_node_clock CONSTANT timestamptz := CASE WHEN v_begun.refusal IS NULL
		THEN snowflake.time_of((p_call -> 'clock')::bigint) END;
	-- the registry's clock
	v_now CONSTANT timestamptz := CASE WHEN v_lease.own THEN v_node_clock ELSE clock_timestamp() END;
	v_max_ahead interval;
	v_starts_at timestamptz;
	v_end record;
BEGIN
	IF v_begun.refusal IS NOT NULL THEN
		RETURN snowflake.answer(v_registry, 'refused', v_begun.refusal);
	END IF;
	IF (v_lease.incarnation = v_registry.incarnation AND v_lease.generation = v_registry.generation
		AND v_lease.starts_at >= v_lease.ended_until
		AND v_named.leased_until <= v_lease.recorded_until) IS NOT TRUE THEN
		v_max_ahead := snowflake.span_of((p_call -> 'max_ahead')::bigint);
		v_starts_at := snowflake.generation_starts_at(v_registry, v_max_ahead);
		IF v_named.incarnation = v_registry.incarnation AND v_named.generation < v_registry.generation
			AND v_named.leased_until > v_node_clock AND v_starts_at > v_node_clock + v_max_ahead THEN
			-- nothing would be granted instead: it uses up what it has
			RETURN snowflake.answer(v_registry, 'refused', snowflake.refusal('55000',
				'the lease is of an earlier generation of the registry',
				format('New ones start at %s; the clock of the node shows %s.',
					snowflake.time_text(v_starts_at), snowflake.time_text(v_node_clock)),
				'No action is needed: the node goes on to the end of its lease, and asks for another one then.',
				v_starts_at - v_node_clock - v_max_ahead));
		END IF;
		RETURN snowflake.answer(v_registry, 'no', jsonb_build_object('reason', CASE
			WHEN snowflake.is_rolled_back(v_registry, v_now, v_named) THEN 'rolled back'
			WHEN v_named.incarnation <> v_registry.incarnation THEN 'incarnation'
			WHEN v_named.generation <> v_registry.generation THEN 'generation'
			ELSE 'closed' END));
	END IF;
	v_end := snowflake.lease_end(v_registry, p_call, v_node_clock, v_now, v_lease.starts_at, v_lease.leased_until);
	IF v_end.refusal IS NOT NULL THEN
		RETURN snowflake.answer(v_registry, 'refused', v_end.refusal);
	END IF;
	UPDATE snowflake.node_number AS n
	SET leased_until = v_end.leased_until, recorded_until = greatest(n.recorded_until, v_end.leased_until),
		last_call = (p_call -> 'call')::bigint, renewed_at = v_now
	WHERE n.node_number = v_lease.node_number;
	RETURN snowflake.answer(v_registry, 'yes',
		jsonb_build_object('leased_until', snowflake.microseconds(v_end.leased_until)));
END
$$;
COMMENT ON FUNCTION snowflake.renew_lease(jsonb) IS
'raises the end of an open lease; the answer is no if the lease is none of this registry''s present generation; '
'part of the protocol';

-- Makes the end exact.  If that is lost, the one before stands, which is as safe: so its commit need
-- not be durable.
CREATE FUNCTION snowflake.release_lease(p_call jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_begun CONSTANT record := snowflake.begin_call(p_call, 'release', false);
BEGIN
	IF v_begun.refusal IS NOT NULL THEN
		RETURN snowflake.answer(v_begun.registry, 'refused', v_begun.refusal);
	ELSIF (v_begun.lease).token IS NULL THEN
		RETURN snowflake.answer(v_begun.registry, 'no', '{"reason": "unknown"}');
	END IF;
	RETURN snowflake.answer(v_begun.registry, 'yes', '{}');
END
$$;
COMMENT ON FUNCTION snowflake.release_lease(jsonb) IS
'closes a lease at the end of its ids; part of the protocol';
