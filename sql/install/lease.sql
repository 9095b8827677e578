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
	WHERE w.node_number = node_number;	-- of all incarnations and layouts: a dump brings what was issued
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

