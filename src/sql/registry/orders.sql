--
-- Orders: what the owner says.  Each locks the registry as a call does.
--

-- The standbys that may not have flushed what was committed before: a failover to one of them would take
-- an order of the administrator back.  Waits for them a little.
CREATE FUNCTION snowflake.warn_of_standbys() RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
	v_flushed CONSTANT pg_lsn := CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_flush_lsn() END;
	v_behind text;
BEGIN
	FOR v_try IN 1 .. 30 LOOP
		SELECT string_agg(b.name, ', ' ORDER BY b.name) INTO v_behind
		FROM (SELECT format('"%s"', coalesce(nullif(r.application_name, ''), r.pid::text)) AS name
			FROM pg_stat_replication AS r
			WHERE r.state IN ('startup', 'catchup', 'streaming') AND coalesce(r.flush_lsn, '0/0') < v_flushed
				AND NOT EXISTS (SELECT FROM pg_replication_slots AS s
					WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
			UNION ALL
			SELECT format('that of slot "%s"', s.slot_name)
			FROM pg_replication_slots AS s
			WHERE s.slot_type = 'physical' AND NOT s.active AND s.restart_lsn < v_flushed) AS b;
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

-- To an owner, what a registry cannot do is an error.
CREATE FUNCTION snowflake.raise_refusal(p_refusal jsonb) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
	IF p_refusal IS NOT NULL THEN
		RAISE EXCEPTION '%', p_refusal ->> 'message'
			USING ERRCODE = p_refusal ->> 'sqlstate', DETAIL = p_refusal ->> 'detail', HINT = p_refusal ->> 'hint';
	END IF;
END
$$;

-- The head of an order: the registry is locked and has counted its promotions.  The warning is about orders of before:
-- this one is not committed yet.  p_successors: a closed registry carries it out if its successor is one of these; NULL: any.
CREATE FUNCTION snowflake.begin_order(p_successors uuid[] DEFAULT '{}') RETURNS snowflake.registry
LANGUAGE plpgsql
AS $$
DECLARE
	v_registry snowflake.registry;
	v_counted record;
BEGIN
	PERFORM snowflake.warn_of_standbys();
	v_registry := snowflake.lock_registry(true);
	IF v_registry.closed_at IS NULL THEN
		v_counted := snowflake.count_generation(snowflake.check_triggers(v_registry), clock_timestamp());
		PERFORM snowflake.raise_refusal(v_counted.refusal);
		RETURN v_counted.p_registry;
	ELSIF NOT coalesce(v_registry.successor = ANY (p_successors), p_successors IS NULL) THEN
		PERFORM snowflake.raise_refusal(snowflake.refuse_closed(v_registry));
	END IF;
	RETURN v_registry;
END
$$;

--
-- What holds for all leases
--

-- Closes all leases, whose nodes go on to their ends.  Those of the new layout start where its ids are greater than all
-- that may be issued until then: under leases on record; and under those that are not, of a failover or of nodes that
-- have asked elsewhere, which end within the longest window.
CREATE FUNCTION snowflake.change_layout(definition text) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_new CONSTANT snowflake.layout := snowflake.layout_of(definition);
	v_registry CONSTANT snowflake.registry := snowflake.begin_order();
	v_now CONSTANT timestamptz := clock_timestamp();
	v_window CONSTANT interval := snowflake.longest_window(v_registry, v_now);
	v_cluster snowflake.cluster;
	v_until timestamptz;
	v_starts_at timestamptz;
	v_at timestamptz;
BEGIN
	IF v_new IS NULL THEN
		RAISE EXCEPTION 'layout "%" is not written as it must be here', definition
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'All its parts are needed, as in "timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, '
				'epoch 2010-11-04T01:42:54.657Z".',
			HINT = 'Give the column definition of snowflake_layout().';
	END IF;
	INSERT INTO snowflake.cluster (one) SELECT true WHERE NOT EXISTS (SELECT FROM snowflake.cluster);
	SELECT c.* INTO STRICT v_cluster FROM snowflake.cluster AS c WHERE c.one;
	IF v_cluster.layout IS DISTINCT FROM definition THEN
		PERFORM snowflake.raise_refusal(snowflake.refuse_full(definition, v_now + v_window));
	END IF;
	IF v_cluster.layout <> definition THEN
		SELECT greatest(v_now + v_window, v_registry.starts_at, max(greatest(n.ended_until, n.leased_until)))
		INTO v_until FROM snowflake.node_number AS n;
		v_cluster.greatest_id := greatest(v_cluster.greatest_id,
			snowflake.greatest_id(v_until, snowflake.layout_of(v_cluster.layout)));
		v_starts_at := snowflake.first_time_above(v_cluster.greatest_id, v_new);
		-- ticks are at most a second, and one of each layout may be in between
		IF v_starts_at > v_now + v_window + interval '2 s' THEN
			v_at := snowflake.time_to_change(v_cluster.greatest_id, v_window,
				snowflake.layout_of(v_cluster.layout), v_new);
			RAISE EXCEPTION 'ids of layout "%" would not be greater than those that were issued', definition
				USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = format('Ids up to %s were allowed under "%s". %s', v_cluster.greatest_id, v_cluster.layout,
					CASE v_at WHEN 'infinity' THEN 'Those of the new layout stay less.'
					ELSE format('Those of the new layout are greater from %s on.',
						snowflake.time_text(v_at + v_window)) END),
				HINT = CASE v_at WHEN 'infinity' THEN 'Choose another layout. '
					ELSE format('Run this at %s or later, or choose another layout. ', snowflake.time_text(v_at)) END
					|| 'If no id is in use yet, see "Starting over" in doc/operations.md.';
		END IF;
		PERFORM snowflake.close_lease(n, n.leased_until) FROM snowflake.node_number AS n WHERE n.token IS NOT NULL;
	END IF;
	UPDATE snowflake.cluster AS c SET layout = definition, greatest_id = v_cluster.greatest_id WHERE c.one;
	UPDATE snowflake.registry AS r SET starts_at = greatest(r.starts_at, v_starts_at)
	WHERE r.one RETURNING r.starts_at INTO v_starts_at;
	RETURN v_starts_at;
END
$$;
COMMENT ON FUNCTION snowflake.change_layout(text) IS
'makes another layout the default of all nodes of this registry; returns the time that its leases start at or after; '
'then restart each node with it';

-- A limit that is lowered counts for waits until the last lease under the old one is over, whichever clock says so.  It
-- is seconds: a day can have 23 hours.
CREATE FUNCTION snowflake.limit_leases("limit" interval) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_limit CONSTANT interval := extract(epoch FROM "limit") * interval '1 s';
	v_registry CONSTANT snowflake.registry := snowflake.begin_order();
	v_now CONSTANT timestamptz := clock_timestamp();
	v_window CONSTANT interval := snowflake.longest_window(v_registry, v_now);
BEGIN
	IF (v_limit BETWEEN '10 s' AND '48 h') IS NOT TRUE THEN
		RAISE EXCEPTION 'a limit for ends of % is out of range', coalesce("limit"::text, 'null')
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'It must be from 10 s to 48 h.',
			HINT = 'Give more than the lease_duration and max_ahead of all nodes; the default is 3 minutes.';
	END IF;
	UPDATE snowflake.registry AS r
	SET end_limit = v_limit,
		old_limit = CASE WHEN v_window > v_limit + interval '10 s' THEN v_window - interval '10 s' END,
		old_limit_until = CASE WHEN v_window > v_limit + interval '10 s' THEN v_now + v_window + interval '10 s' END
	WHERE r.one;
END
$$;
COMMENT ON FUNCTION snowflake.limit_leases(interval) IS
'sets the limit for ends: how long after the registry''s clock a lease may end';

CREATE FUNCTION snowflake.check_end_of_ids(p_time timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
	IF (p_time >= '0001-01-01 00:00:00+00' AND p_time < '10000-01-01 00:00:00+00') IS NOT TRUE THEN
		RAISE EXCEPTION 'the time at which ids end is out of range: %', coalesce(p_time::text, 'null')
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'It must be in the years 1 to 9999.',
			HINT = 'Give a time that is after the last id.';
	END IF;
END
$$;

-- The clock was ahead when the tables were made, or at a promotion: its owner says that all ids that were issued or may
-- still be issued end before a time.  The ends of leases on record stay, and so does the time above which the ids of
-- another layout are.  Also in a closed registry, before it is taken over.
CREATE FUNCTION snowflake.ids_end_before("time" timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_time CONSTANT timestamptz := "time";
	v_registry snowflake.registry := snowflake.begin_order(NULL);
	v_starts_at CONSTANT timestamptz :=
		greatest(v_time, (SELECT snowflake.start_above(c) FROM snowflake.cluster AS c WHERE c.one));
BEGIN
	PERFORM snowflake.check_end_of_ids(v_time);
	UPDATE snowflake.registry AS r
	SET created_at = least(r.created_at, v_time),
		counted_at = CASE WHEN r.counted_at > v_time THEN v_time ELSE r.counted_at END,
		starts_at = CASE WHEN r.starts_at > v_starts_at THEN v_starts_at ELSE r.starts_at END
	WHERE r.one RETURNING r.* INTO STRICT v_registry;
	IF v_registry.starts_at > greatest(v_time, clock_timestamp()) THEN
		RAISE WARNING 'leases still start at %', snowflake.time_text(v_registry.starts_at)
			USING DETAIL = 'Only then ids of the default layout are greater than all that were allowed under another one.',
			HINT = 'Wait until then. If no id is in use yet, see "Starting over" in doc/operations.md.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.ids_end_before(timestamptz) IS
'says that all ids of this registry''s nodes end before a time, also those to come under leases that are open: leases '
'need not start later than that';

-- Ends what a role has taken: closes its leases, at the time that is given where that is earlier.  What is closed
-- already keeps its end: that of another lease may be the same.
CREATE FUNCTION snowflake.ids_end_before("time" timestamptz, role text, OUT numbers bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_time CONSTANT timestamptz := "time";
	v_role CONSTANT text := role;
	v_registry CONSTANT snowflake.registry := snowflake.begin_order();
BEGIN
	PERFORM snowflake.check_end_of_ids(v_time);
	PERFORM snowflake.close_lease(n, greatest(n.starts_at, least(n.leased_until, v_time)))
	FROM snowflake.node_number AS n WHERE n.token IS NOT NULL AND n.role = v_role;
	GET DIAGNOSTICS numbers = ROW_COUNT;
END
$$;
COMMENT ON FUNCTION snowflake.ids_end_before(timestamptz, text) IS
'says that all ids of the open leases of a role end before a time, also those to come; closes these leases, and '
'returns how many';

--
-- Moving to another registry
--

-- What the owner of the old registry gives to close_registry().  A copy of another database gets its own incarnation
-- now, or is refused where only its owner can tell that (managed.sql).
CREATE FUNCTION snowflake.successor() RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_registry CONSTANT snowflake.registry := snowflake.begin_order(NULL);
BEGIN
	RETURN jsonb_build_object('protocol', 1, 'incarnation', v_registry.incarnation,
		'layout', (SELECT c.layout FROM snowflake.cluster AS c WHERE c.one));
END
$$;
COMMENT ON FUNCTION snowflake.successor() IS
'what snowflake.close_registry() of another registry must know, which this one is to take over';

-- Refuses what cannot be taken over: another layout; or ids that are in no row of the closed registry, and end after
-- the longest window: its leases start after them, so would those of the successor.  p_floor: the latest of these ids;
-- p_latest: their end that does no harm.
CREATE FUNCTION snowflake.refuse_to_move(p_layout text, p_floor timestamptz, p_latest timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
	v_layout CONSTANT text := (SELECT c.layout FROM snowflake.cluster AS c WHERE c.one);
BEGIN
	IF v_layout <> p_layout THEN
		RAISE EXCEPTION 'the two registries have different layouts'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('That of this one is "%s", of the other one "%s".', v_layout, p_layout),
			HINT = 'Change the layout of one of them first, with snowflake.change_layout(): see "Change of layout" in '
				'doc/operations.md.';
	ELSIF p_floor > p_latest THEN
		RAISE EXCEPTION 'ids of the closed registry may end at %', snowflake.time_text(p_floor)
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock of this one shows %s; leases would be refused until that time.',
				snowflake.time_text(clock_timestamp())),
			HINT = 'Wait, or correct the clock. If no id is that late, see "A clock that was ahead" in '
				'doc/operations.md.';
	END IF;
END
$$;

CREATE FUNCTION snowflake.close_registry(successor jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_successor uuid;
	v_registry snowflake.registry;
	v_now timestamptz;
BEGIN
	PERFORM snowflake.check_call(successor, 'successor');
	v_successor := successor ->> 'incarnation';
	v_registry := snowflake.begin_order(ARRAY[v_successor]);
	v_now := clock_timestamp();
	IF v_registry.closed_at IS NOT NULL THEN
		RETURN;
	ELSIF v_successor = v_registry.incarnation THEN
		RAISE EXCEPTION 'a registry''s successor is another registry'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('The incarnation of this one is %s.', v_registry.incarnation),
			HINT = 'Give what snowflake.successor() of the new one returns.';
	END IF;
	PERFORM snowflake.refuse_to_move(successor ->> 'layout',
		greatest(v_registry.created_at, v_registry.counted_at, v_registry.starts_at),
		v_now + snowflake.longest_window(v_registry, v_now));
	UPDATE snowflake.registry AS r
	SET successor = v_successor, closed_at = v_now, closed_by = pg_current_xact_id() WHERE r.one;
END
$$;
COMMENT ON FUNCTION snowflake.close_registry(jsonb) IS
'closes the registry: from the commit on it grants, renews and changes nothing; the registry that '
'snowflake.successor() has described can take it over';

-- All that the successor must know; the same each time.  Only in a later transaction: a closing that is rolled back is
-- none.
CREATE FUNCTION snowflake.closed_registry() RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_registry snowflake.registry;
BEGIN
	PERFORM snowflake.check_database();
	SELECT r.* INTO STRICT v_registry FROM snowflake.registry AS r WHERE r.one;
	IF v_registry.closed_at IS NULL THEN
		RAISE EXCEPTION 'the registry is not closed'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'While it is open, the ends of its leases are not final.',
			HINT = 'Close it first: see "Another registry" in doc/operations.md.';
	ELSIF v_registry.closed_by = pg_current_xact_id_if_assigned() THEN
		RAISE EXCEPTION 'the closing of the registry is not committed yet'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'If it were rolled back, the registry would go on.',
			HINT = 'Commit, and run this in the next transaction.';
	END IF;
	PERFORM snowflake.warn_of_standbys();
	RETURN (SELECT jsonb_build_object('protocol', 1,
			'incarnation', v_registry.incarnation, 'successor', v_registry.successor,
			'taken_over', to_jsonb(v_registry.taken_over), 'created_at', snowflake.microseconds(v_registry.created_at),
			'generation', v_registry.generation, 'counted_at', snowflake.microseconds(v_registry.counted_at),
			'starts_at', snowflake.microseconds(v_registry.starts_at),
			'limit', (extract(epoch FROM
				snowflake.longest_window(v_registry, v_registry.closed_at) - interval '10 s') * 1000000)::bigint,
			'layout', c.layout, 'greatest_id', coalesce(c.greatest_id, -1),
			'node_numbers', coalesce(e.numbers, '[]'), 'ends', coalesce(e.ends, '[]'))
		FROM (SELECT jsonb_agg(n.node_number ORDER BY n.node_number) AS numbers,
				jsonb_agg(snowflake.microseconds(greatest(n.ended_until, n.leased_until))
					ORDER BY n.node_number) AS ends
			FROM snowflake.node_number AS n WHERE greatest(n.ended_until, n.leased_until) > '-infinity') AS e
			LEFT JOIN snowflake.cluster AS c ON c.one);
END
$$;
COMMENT ON FUNCTION snowflake.closed_registry() IS
'what the successor of this closed registry must know, for snowflake.take_over()';

-- Returns what closed_registry() has returned, if it is that.
CREATE FUNCTION snowflake.check_closed(p_closed jsonb) RETURNS jsonb
LANGUAGE plpgsql
AS $$
BEGIN
	PERFORM snowflake.check_call(p_closed, 'closed');
	PERFORM snowflake.refuse_value(k.key, p_closed -> k.key, k.must_be, 'closed')
	FROM (VALUES
		('taken_over', 'an array of UUIDs',
			p_closed @@ 'strict $.taken_over.type() == "array"
				&& !exists($.taken_over[*] ? (!(@.type() == "string"
					&& @ like_regex "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")))'),
		('node_numbers', 'an array of integers from 0 to 9223372036854775807',
			p_closed @@ 'strict $.node_numbers.type() == "array"
				&& !exists($.node_numbers[*] ? (!(@.type() == "number"
					&& @ >= 0 && @ <= 9223372036854775807 && @.floor() == @)))'),
		('ends', 'an array of as many times as node_numbers, in microseconds since 1970',
			p_closed @@ 'strict $.ends.type() == "array" && $.ends.size() == $.node_numbers.size()
				&& !exists($.ends[*] ? (!(@.type() == "number"
					&& @ >= -62135596800000000 && @ <= 253402300799999999 && @.floor() == @)))'),
		('layout', 'a layout as doc/protocol.md writes it',
			p_closed -> 'layout' = 'null' OR snowflake.layout_of(p_closed ->> 'layout') IS NOT NULL)
	) AS k (key, must_be, is_right)
	WHERE k.is_right IS NOT TRUE;
	RETURN p_closed;
END
$$;

-- Takes over the result of closed_registry(): the ends of its numbers, what holds for all its leases, and the parity of
-- its generation: if it differs, a generation is counted, as for a plain promotion.  Own tables that are closed, and
-- whose successor comes back with what it had taken over of them, are opened again, with a new incarnation.  Twice is
-- as once; but not if the first time was as of one that is lost.
CREATE FUNCTION snowflake.take_over(closed jsonb) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_closed CONSTANT jsonb := snowflake.check_closed(closed);
	v_incarnation CONSTANT uuid := v_closed ->> 'incarnation';
	v_successor CONSTANT uuid := v_closed ->> 'successor';
	v_taken_over CONSTANT uuid[] :=
		ARRAY(SELECT t.incarnation::uuid FROM jsonb_array_elements_text(v_closed -> 'taken_over') AS t (incarnation));
	v_created_at CONSTANT timestamptz := snowflake.time_of((v_closed -> 'created_at')::bigint);
	v_counted_at timestamptz := snowflake.time_of(nullif(v_closed -> 'counted_at', 'null')::bigint);
	v_starts_at timestamptz := snowflake.time_of(nullif(v_closed -> 'starts_at', 'null')::bigint);
	v_limit CONSTANT interval := snowflake.span_of((v_closed -> 'limit')::bigint);
	v_registry snowflake.registry := snowflake.begin_order(v_incarnation || v_taken_over);
	v_again CONSTANT boolean := v_incarnation = ANY (v_registry.told);
	v_now CONSTANT timestamptz := clock_timestamp();
	v_window interval;
	v_counted record;
BEGIN
	IF v_registry.closed_at IS NOT NULL AND v_registry.incarnation <> ALL (v_taken_over) THEN
		PERFORM snowflake.raise_refusal(snowflake.refuse_closed(v_registry));
	-- the second time, it names the incarnation with which these tables were closed
	ELSIF v_successor <> v_registry.incarnation AND NOT (v_again AND v_successor = ANY (v_registry.taken_over)) THEN
		RAISE EXCEPTION 'the closed registry names another successor'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('It names the registry with the incarnation %s; the incarnation of this one is %s.',
				v_successor, v_registry.incarnation),
			HINT = 'Take it over in the registry that it names.';
	ELSIF v_again THEN
		RETURN v_registry.incarnation;
	END IF;
	UPDATE snowflake.registry AS r SET end_limit = greatest(r.end_limit, v_limit)
	WHERE r.one RETURNING r.* INTO STRICT v_registry;
	v_window := snowflake.longest_window(v_registry, v_now);
	PERFORM snowflake.refuse_to_move(v_closed ->> 'layout', greatest(v_created_at, v_counted_at, v_starts_at),
		greatest(v_now + v_window, v_registry.starts_at, v_registry.created_at));

	INSERT INTO snowflake.node_number (node_number, ended_until)
	SELECT n.number::bigint, snowflake.time_of(e.ended::bigint)
	FROM jsonb_array_elements(v_closed -> 'node_numbers') WITH ORDINALITY AS n (number, place)
		JOIN jsonb_array_elements(v_closed -> 'ends') WITH ORDINALITY AS e (ended, place) USING (place);
	INSERT INTO snowflake.cluster (one) SELECT true WHERE NOT EXISTS (SELECT FROM snowflake.cluster);
	UPDATE snowflake.cluster AS c SET layout = coalesce(c.layout, v_closed ->> 'layout'),
		greatest_id = greatest(c.greatest_id, (v_closed -> 'greatest_id')::bigint) WHERE c.one;
	v_counted := snowflake.count_generation(
		snowflake.add_taken_over(v_registry, v_incarnation || v_taken_over, v_incarnation), v_now);
	PERFORM snowflake.raise_refusal(v_counted.refusal);
	v_registry := v_counted.p_registry;
	v_counted_at := greatest(v_registry.counted_at, v_counted_at);
	IF (v_registry.generation - (v_closed -> 'generation')::integer) % 2 <> 0 THEN
		v_registry.generation := v_registry.generation + 1;
		v_starts_at := greatest(v_starts_at,
			CASE WHEN v_counted_at + v_window > v_now THEN v_counted_at + v_window END);
		v_counted_at := greatest(v_counted_at, v_now);
	END IF;
	UPDATE snowflake.registry AS r
	SET generation = v_registry.generation, created_at = greatest(r.created_at, v_created_at),
		counted_at = v_counted_at,
		starts_at = greatest(r.starts_at, v_starts_at)
	WHERE r.one;
	RETURN v_registry.incarnation;
END
$$;
COMMENT ON FUNCTION snowflake.take_over(jsonb) IS
'takes over a closed registry, as its snowflake.closed_registry() describes it; returns the incarnation of this one';

-- Adds to the registries that are taken over; opens own tables that are closed.  p_told: the one that has told what it
-- knows, or NULL.
CREATE FUNCTION snowflake.add_taken_over(p_registry snowflake.registry, p_incarnations uuid[], p_told uuid)
RETURNS snowflake.registry
LANGUAGE plpgsql
AS $$
DECLARE
	v_opened CONSTANT uuid :=
		CASE WHEN p_registry.closed_at IS NOT NULL OR p_registry.incarnation = ANY (p_incarnations)
			THEN p_registry.incarnation END;
	v_here CONSTANT oid := (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
	v_registry snowflake.registry;
BEGIN
	UPDATE snowflake.registry AS r
	SET taken_over = r.taken_over || ARRAY(
			SELECT DISTINCT a.incarnation FROM unnest(p_incarnations || v_opened) AS a (incarnation)
			WHERE a.incarnation IS NOT NULL AND a.incarnation <> ALL (r.taken_over)),
		told = r.told || array_remove(ARRAY[p_told, CASE WHEN r.closed_at IS NOT NULL THEN r.incarnation END], NULL),
		incarnation = CASE WHEN v_opened IS NULL THEN r.incarnation ELSE gen_random_uuid() END,
		created_at = CASE WHEN r.database <> v_here THEN clock_timestamp() ELSE r.created_at END,
		database = CASE WHEN r.database IS NOT NULL THEN v_here END,
		successor = NULL, closed_at = NULL, closed_by = NULL
	WHERE r.one
	RETURNING r.* INTO STRICT v_registry;
	RETURN v_registry;
END
$$;

-- For a registry that is lost, or that a node leaves while others stay: nothing is known of its leases.  Own tables
-- that are a copy of its tables get a new incarnation.
CREATE FUNCTION snowflake.take_over_lost(incarnation uuid) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_incarnation CONSTANT uuid := incarnation;
	v_registry snowflake.registry := snowflake.begin_order(ARRAY[v_incarnation]);
	v_window CONSTANT interval := snowflake.longest_window(v_registry, clock_timestamp());
	v_floor CONSTANT timestamptz := clock_timestamp() + v_window;
BEGIN
	IF v_incarnation IS NULL OR v_incarnation = v_registry.incarnation
		AND NOT EXISTS (SELECT FROM snowflake.cluster AS c WHERE c.incarnation = v_incarnation) THEN
		RAISE EXCEPTION 'a registry takes over another registry'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('The incarnation of this one is %s.', v_registry.incarnation),
			HINT = 'Give the incarnation of the registry that is lost.';
	END IF;
	RAISE WARNING 'the registry with the incarnation % must never run again for the nodes that come here', v_incarnation
		USING DETAIL = format('Nothing is known of its leases, or of those of registries that it has taken over, or '
			'that have taken it over. Leases from here start at %s: by then they are over only if its limit for ends '
			'was at most %s.',
			snowflake.time_text(v_floor), v_window - interval '10 s'),
		HINT = 'Stop all these registries for good. If one had a greater limit, run SELECT snowflake.limit_leases() '
			'with it here, and then this again. No other registry may take them over.';
	v_registry := snowflake.add_taken_over(v_registry, ARRAY[v_incarnation], NULL);
	UPDATE snowflake.registry AS r SET starts_at = greatest(r.starts_at, v_floor) WHERE r.one;
	RETURN v_registry.incarnation;
END
$$;
COMMENT ON FUNCTION snowflake.take_over_lost(uuid) IS
'takes over a registry that is lost: accepts the nodes that used it; returns the incarnation of this one';
