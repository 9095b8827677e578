--
-- What only the own lease worker knows, and only the extension's owner may call: it calls as the owner.
-- So no key of a call says that it comes from the registry's own server.  The clock of such a call is the
-- registry's clock.
--

-- The registry's row is locked.
CREATE FUNCTION snowflake.write_uses(p_uses text, p_incarnation uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	UPDATE snowflake.cluster AS c SET uses = p_uses, incarnation = p_incarnation
	WHERE c.one AND (c.uses, c.incarnation) IS DISTINCT FROM (p_uses, p_incarnation);
	IF NOT EXISTS (SELECT FROM snowflake.cluster AS c WHERE c.one) THEN
		INSERT INTO snowflake.cluster (uses, incarnation) VALUES (p_uses, p_incarnation);
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.write_uses(text, uuid) IS
'part of the registry: records where this cluster''s numbers come from';

-- At each start of a writable server, and when a standby is promoted: counts the generation, and tells
-- what the node must know before it asks any registry.  A closed registry counts nothing.
CREATE FUNCTION snowflake.start_server(p_call jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_registry snowflake.registry;
	v_now timestamptz;
	v_max_ahead interval;
	v_tick interval;
	v_cluster snowflake.cluster;
BEGIN
	PERFORM snowflake.check_protocol(p_call);
	v_now := snowflake.read_time(p_call, 'clock');
	v_max_ahead := snowflake.read_span(p_call, 'max_ahead', 0, 86400000000);
	v_tick := snowflake.read_span(p_call, 'tick', 1, 1000000);
	v_registry := snowflake.lock_registry(true);
	IF v_registry.closed_at IS NULL THEN
		v_registry := snowflake.count_generation(v_registry, v_now);
	END IF;
	SELECT c.* INTO v_cluster FROM snowflake.cluster AS c WHERE c.one;
	RETURN snowflake.answer(v_registry, 'yes', jsonb_build_object(
		'starts_at', snowflake.microseconds(greatest(v_registry.created_at, v_registry.counted_at) + v_max_ahead + v_tick),
		'uses', coalesce(v_cluster.uses, 'nothing'),
		'uses_incarnation', CASE v_cluster.uses WHEN 'own' THEN v_registry.incarnation ELSE v_cluster.incarnation END));
END
$$;
COMMENT ON FUNCTION snowflake.start_server(jsonb) IS
'counts the generation of this cluster and tells where its numbers come from; for the own lease worker';

CREATE FUNCTION snowflake.acquire_own_lease(p_call jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	RETURN snowflake.grant_lease(p_call, true);
END
$$;
COMMENT ON FUNCTION snowflake.acquire_own_lease(jsonb) IS
'grants a lease to this server, and records that its own tables are used; for the own lease worker';

-- After the first grant of another registry and before its first id.  What is recorded must be what the
-- node has told that registry: a restore may have brought another record meanwhile.  Then the answer is
-- no, and the node begins again.
CREATE FUNCTION snowflake.record_uses(p_call jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_registry snowflake.registry;
	v_cluster snowflake.cluster;
	v_host_name text;
	v_port integer;
	v_told uuid;
	v_incarnation uuid;
	v_other snowflake.worker_node;
BEGIN
	PERFORM snowflake.check_protocol(p_call);
	v_incarnation := snowflake.read_uuid(p_call, 'incarnation');
	v_told := snowflake.read_uuid(p_call, 'uses', true);
	v_host_name := snowflake.read_text(p_call, 'host_name');
	v_port := snowflake.read_integer(p_call, 'port', 0, 65535);
	v_registry := snowflake.lock_registry(true);
	SELECT c.* INTO v_cluster FROM snowflake.cluster AS c WHERE c.one;
	IF v_cluster.uses = 'another' AND v_cluster.incarnation = v_incarnation THEN
		RETURN snowflake.answer(v_registry, 'yes', '{}');
	END IF;
	v_cluster.incarnation := CASE v_cluster.uses WHEN 'own' THEN v_registry.incarnation ELSE v_cluster.incarnation END;
	IF v_cluster.incarnation IS DISTINCT FROM v_told THEN
		RETURN snowflake.answer(v_registry, 'no', '{"reason": "uses"}');
	END IF;
	v_other := snowflake.lease_of_others(v_registry.system_identifier, v_host_name, v_port, clock_timestamp());
	IF v_registry.closed_at IS NULL AND v_other.token IS NOT NULL THEN
		RAISE EXCEPTION 'cannot use another registry while this server''s own tables are one'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The %s, has a lease from here until %s.',
				snowflake.node_text(v_other), snowflake.time_text(v_other.leased_until)),
			HINT = format('Leave snowflake.registry empty on this server; or move all servers: run SELECT snowflake.close_registry(''%s'') here, see "Another registry" in doc/operations.md.',
				v_incarnation);
	END IF;
	PERFORM snowflake.write_uses('another', v_incarnation);
	RETURN snowflake.answer(v_registry, 'yes', '{}');
END
$$;
COMMENT ON FUNCTION snowflake.record_uses(jsonb) IS
'records that numbers of this cluster come from the registry with the incarnation; for the own lease worker';
