--
-- What only the own lease worker knows, and only the extension's owner may call: it calls as the owner.
-- So no key of a call says that it comes from the registry's own server.  The clock of such a call is the
-- registry's clock.
--

-- At each start of a writable server, and when a standby is promoted: counts the generation, and tells
-- what the node must know before it asks any registry.  A closed registry counts nothing.
--
-- mark: what tells this data directory from a copy of it; missing where the system cannot say.  A copy that was started
-- as it is, and so was not counted, has another one than is recorded.  That is only told: a generation that is counted
-- for it would have the parity of the next promotion of the other server.
CREATE FUNCTION snowflake.start_server(p_call jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_clock timestamptz;
	v_mark CONSTANT text := left(p_call ->> 'mark', 255);
	v_registry snowflake.registry;
	v_counted record;
	v_cluster snowflake.cluster;
BEGIN
	PERFORM snowflake.check_call(p_call, 'start');
	v_clock := snowflake.time_of((p_call -> 'clock')::bigint);
	v_registry := snowflake.lock_registry(true);
	IF v_registry.closed_at IS NULL THEN
		v_counted := snowflake.count_generation(snowflake.check_triggers(v_registry), v_clock);
		v_registry := v_counted.p_registry;
		IF v_counted.refusal IS NOT NULL THEN
			RETURN snowflake.answer(v_registry, 'refused', v_counted.refusal);
		END IF;
		IF v_registry.mark <> v_mark THEN
			PERFORM snowflake.warn('copy', v_clock, 'this data directory is a copy of another one',
				format('It has the mark %s, recorded is %s.', snowflake.printable(v_mark), v_registry.mark),
				'If the other server is running, or can run again, ids can repeat: '
				'see "Backups, restores and copies" in doc/operations.md.');
		END IF;
		IF v_registry.mark IS DISTINCT FROM v_mark AND v_mark IS NOT NULL THEN
			UPDATE snowflake.registry AS r SET mark = v_mark WHERE r.one RETURNING r.* INTO STRICT v_registry;
		END IF;
	END IF;
	SELECT c.* INTO v_cluster FROM snowflake.cluster AS c WHERE c.one;
	RETURN snowflake.answer(v_registry, 'yes', jsonb_build_object(
		'starts_at', snowflake.microseconds(greatest(v_registry.created_at, v_registry.counted_at)
			+ snowflake.span_of((p_call -> 'max_ahead')::bigint)),
		'uses', coalesce(v_cluster.uses, 'nothing'),
		'uses_incarnation', CASE v_cluster.uses WHEN 'own' THEN v_registry.incarnation ELSE v_cluster.incarnation END));
END
$$;
COMMENT ON FUNCTION snowflake.start_server(jsonb) IS
'counts the generation of this cluster and tells where its numbers come from; for the own lease worker';

-- On a standby, which only reads: whether its own tables would refuse this server if it were promoted.
CREATE FUNCTION snowflake.check_promotion(p_call jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_registry snowflake.registry;
	v_refusal jsonb;
BEGIN
	SELECT r.* INTO STRICT v_registry FROM snowflake.registry AS r WHERE r.one;
	v_refusal := CASE WHEN v_registry.closed_at IS NOT NULL THEN snowflake.refuse_closed(v_registry)
		ELSE snowflake.check_cluster(v_registry, p_call ->> 'layout') END;
	RETURN snowflake.answer(v_registry, CASE WHEN v_refusal IS NULL THEN 'yes' ELSE 'refused' END,
		coalesce(v_refusal, '{}'));
END
$$;
COMMENT ON FUNCTION snowflake.check_promotion(jsonb) IS
'tells what the tables of this standby would refuse after a promotion; for the own lease worker';

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
	v_incarnation uuid;
	v_registry snowflake.registry;
	v_cluster snowflake.cluster;
	v_other snowflake.node_number;
BEGIN
	PERFORM snowflake.check_call(p_call, 'uses');
	v_incarnation := p_call ->> 'incarnation';
	v_registry := snowflake.lock_registry(true);
	SELECT c.* INTO v_cluster FROM snowflake.cluster AS c WHERE c.one;
	IF v_cluster.incarnation = v_incarnation THEN
		RETURN snowflake.answer(v_registry, 'yes', '{}');
	END IF;
	IF (CASE v_cluster.uses WHEN 'own' THEN v_registry.incarnation ELSE v_cluster.incarnation END
		IS DISTINCT FROM (p_call ->> 'uses')::uuid) THEN
		RETURN snowflake.answer(v_registry, 'no', '{"reason": "uses"}');
	END IF;
	SELECT n.* INTO v_other FROM snowflake.node_number AS n
	WHERE NOT n.own AND n.leased_until > clock_timestamp() ORDER BY n.leased_until DESC LIMIT 1;
	IF FOUND AND v_registry.closed_at IS NULL THEN
		RETURN snowflake.answer(v_registry, 'refused', snowflake.refusal('55000',
			'cannot use another registry while this server''s own tables are one',
			format('Node number %s is leased until %s. The view snowflake.leases here shows to whom.',
				v_other.node_number, snowflake.time_text(v_other.leased_until)),
			'Set snowflake.registry to "own" on this server; or move all servers: run SELECT snowflake.successor() in '
			'the other registry, and snowflake.close_registry() with its result here; '
			'see "Another registry" in doc/operations.md.',
			v_other.leased_until - clock_timestamp()));
	END IF;
	INSERT INTO snowflake.cluster (one) SELECT true WHERE NOT EXISTS (SELECT FROM snowflake.cluster);
	UPDATE snowflake.cluster AS c SET uses = 'another', incarnation = v_incarnation WHERE c.one;
	RETURN snowflake.answer(v_registry, 'yes', '{}');
END
$$;
COMMENT ON FUNCTION snowflake.record_uses(jsonb) IS
'records that numbers of this cluster come from the registry with the incarnation; for the own lease worker';
