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
