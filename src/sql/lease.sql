--
-- The lease functions: all that a node asks of a registry, and all choosing.
--
-- A node number is leased for a span of id time.  These rules keep two leases from issuing the
-- same (timestamp, node number), whatever clocks, pauses and networks do:
--
--	1. Calls run one after another: each locks the registry's row first.
--	2. A lease starts at or after every leased_until of its number, in rows of any incarnation.
--	3. leased_until is raised only by a renewal, of an open row of the present incarnation.
--	4. A number that is granted has no other open row: they are closed first, as they stand.
--	5. leased_until is lowered only when a row is closed by a call of its own start: to the end of
--	   its ids, which the call says; or to where it starts, if the node never had the lease.
--	6. A call that arrives late is refused, by its number.
--
-- Rows of another incarnation come from a dump, or from the template of the database.  Their ends
-- count wherever ids could repeat (2); nothing else depends on them once this incarnation has
-- granted a lease, so rows that are restored later do no harm.
--
-- Functions that the lease worker calls run as the extension's owner.  Their plans use indexes only, and
-- these in order: the planner would rather read all of a table that is small, or not analyzed yet.
--

--
-- Parameters
--
CREATE FUNCTION snowflake.check_parameter(fits boolean, name text, value text, bound text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	IF fits IS NOT TRUE THEN
		RAISE EXCEPTION 'parameter % of a lease function is out of range: %', name, coalesce(value, 'NULL')
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('It must be %s.', bound),
			HINT = 'Only the lease worker calls these functions; check the clock and the settings of its server.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_parameter(boolean, text, text, text) IS
'part of the lease functions: refuses a parameter that does not fit';

-- Later or earlier times could not be written as microseconds since 1970, and so not be read by others.
CREATE FUNCTION snowflake.is_time(at timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT at >= '0001-01-01 00:00Z' AND at < '10000-01-01 00:00Z'
$$;
COMMENT ON FUNCTION snowflake.is_time(timestamptz) IS
'part of the lease functions: whether a time is in the years 1 to 9999';

CREATE FUNCTION snowflake.field_bits(layout text, field text) RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce(substring(layout, '(?:^|, )' || field || ' ([0-9]+)(?:,|$)'), '0')::integer
$$;
COMMENT ON FUNCTION snowflake.field_bits(text, text) IS
'part of the lease functions: bits of a field of a layout, given by its canonical definition';

CREATE FUNCTION snowflake.node_number_parts(node_number bigint, layout text,
	OUT datacenter_id integer, OUT worker_id integer, OUT clock integer)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN datacenter_bits > 0 THEN node_number >> (worker_bits + clock_bits) END::integer,
		(node_number >> clock_bits & (1::bigint << worker_bits) - 1)::integer,
		CASE WHEN clock_bits > 0 THEN node_number & (1::bigint << clock_bits) - 1 END::integer
	FROM (SELECT snowflake.field_bits(layout, 'datacenter') AS datacenter_bits,
			snowflake.field_bits(layout, 'worker') AS worker_bits,
			snowflake.field_bits(layout, 'clock') AS clock_bits) AS l
$$;
COMMENT ON FUNCTION snowflake.node_number_parts(bigint, text) IS
'part of the lease functions: a node number is datacenter, worker and clock, from high to low';

--
-- Generations
--

-- A cluster's own tables are copied to its standbys, two of which could be writable at once, one promotion
-- apart.  The generation tells them: it grows with each entry of the server's timeline history that
-- was not counted yet.  Its leases start after the last ids of the one before.
CREATE FUNCTION snowflake.count_generation(timelines text[], system_identifier bigint, starts_at timestamptz) RETURNS snowflake.registry
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	result snowflake.registry;
BEGIN
	PERFORM snowflake.check_parameter(array_position(timelines, NULL) IS NULL AND timelines IS NOT NULL,
		'timelines', timelines::text, 'an array without NULLs');
	PERFORM snowflake.check_parameter(system_identifier IS NOT NULL, 'system_identifier', NULL, 'a number');
	UPDATE snowflake.registry AS r
	SET generation = r.generation + cardinality(new.entries), counted = r.counted || new.entries,
		system_identifier = system_identifier,
		starts_at = CASE WHEN new.entries <> '{}' OR r.system_identifier <> system_identifier
			THEN greatest(r.starts_at, starts_at) ELSE r.starts_at END
	FROM (SELECT ARRAY(SELECT DISTINCT t.entry FROM unnest(timelines) AS t (entry)
			WHERE NOT EXISTS (SELECT FROM snowflake.registry AS r WHERE r.one AND t.entry = ANY (r.counted))) AS entries) AS new
	WHERE r.one AND (new.entries <> '{}' OR r.system_identifier <> system_identifier);
	SELECT * INTO STRICT result FROM snowflake.registry AS r WHERE r.one;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.count_generation(text[], bigint, timestamptz) IS
'part of the lease functions: counts the entries of the timeline history that are new; if there are any, or the system identifier is another one, leases start at or after a time';

-- The registry's row is locked.
CREATE FUNCTION snowflake.write_uses(incarnation uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	uses CONSTANT text := CASE WHEN incarnation IS NULL THEN 'own' ELSE 'another' END;
BEGIN
	INSERT INTO snowflake.cluster (uses, incarnation)
	SELECT uses, incarnation WHERE NOT EXISTS (SELECT FROM snowflake.cluster AS c WHERE c.one);
	UPDATE snowflake.cluster AS c SET uses = uses, incarnation = incarnation
	WHERE c.one AND c.incarnation IS DISTINCT FROM incarnation;
END
$$;
COMMENT ON FUNCTION snowflake.write_uses(uuid) IS
'part of the lease functions: records where this cluster''s numbers come from, NULL being its own tables';

--
-- Calls of a start
--

-- Refuses a late call, and closes the open leases of its start: the one that the call names, if
-- it says where its ids end; and those that it does not name.  A lease that was granted later than the
-- named one never reached the node, and so issued nothing.  Returns the named lease as it was.
CREATE FUNCTION snowflake.begin_call(registry snowflake.registry, start uuid, call bigint,
	named uuid, named_end timestamptz) RETURNS snowflake.worker_node
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	lease snowflake.worker_node;
	last_call bigint;
BEGIN
	PERFORM snowflake.check_parameter(start IS NOT NULL, 'start', NULL, 'a uuid');
	PERFORM snowflake.check_parameter(call > 0, 'call', call::text, 'a positive number');
	PERFORM snowflake.check_parameter(named_end IS NULL OR snowflake.is_time(named_end), 'end', named_end::text, 'in the years 1 to 9999');
	SELECT w.last_call INTO last_call FROM snowflake.worker_node AS w
	WHERE w.start = start ORDER BY w.last_call DESC LIMIT 1;
	IF call <= last_call THEN
		RAISE EXCEPTION 'call % of this server arrived too late', call
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The registry has carried out call %s of the same start.', last_call),
			HINT = 'No action is needed: the lease worker makes a new call.';
	END IF;
	SELECT w.* INTO lease FROM snowflake.worker_node AS w WHERE w.token = named AND w.start = start;

	UPDATE snowflake.worker_node AS w
	SET leased_until = CASE
			WHEN w.incarnation <> registry.incarnation THEN w.leased_until
			WHEN w.token = lease.token THEN greatest(w.starts_at, named_end)
			WHEN w.granted_by > lease.granted_by THEN w.starts_at
			ELSE w.leased_until END,
		closed_at = clock_timestamp(), last_call = call
	WHERE w.start = start AND w.closed_at IS NULL
		AND (w.token IS DISTINCT FROM lease.token OR named_end IS NOT NULL);
	UPDATE snowflake.worker_node AS w SET last_call = call WHERE w.token = lease.token;
	RETURN lease;
END
$$;
COMMENT ON FUNCTION snowflake.begin_call(snowflake.registry, uuid, bigint, uuid, timestamptz) IS
'part of the lease functions: refuses late calls and closes what the start has no use for';

--
-- Layouts
--

-- The newest lease that may have issued ids, of this incarnation if it has any.  All its fields are
-- NULL if there is no lease.
CREATE FUNCTION snowflake.newest_lease(incarnation uuid) RETURNS snowflake.worker_node
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	result snowflake.worker_node;
BEGIN
	SELECT w.* INTO result FROM snowflake.worker_node AS w
	WHERE w.incarnation = incarnation AND (w.closed_at IS NULL OR w.leased_until > w.starts_at)
	ORDER BY w.renewed_at DESC LIMIT 1;
	IF NOT FOUND THEN
		-- one probe of the index for each incarnation
		WITH RECURSIVE newest AS (
			(SELECT w.* FROM snowflake.worker_node AS w
			WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at
			ORDER BY w.incarnation, w.renewed_at DESC LIMIT 1)
			UNION ALL
			SELECT following.* FROM newest, LATERAL (
				SELECT w.* FROM snowflake.worker_node AS w
				WHERE w.incarnation > newest.incarnation AND (w.closed_at IS NULL OR w.leased_until > w.starts_at)
				ORDER BY w.incarnation, w.renewed_at DESC LIMIT 1) AS following
		)
		SELECT n.* INTO result FROM newest AS n ORDER BY n.renewed_at DESC LIMIT 1;
	END IF;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.newest_lease(uuid) IS
'part of the lease functions: the lease whose layout is the recorded one';

-- Later than that of every lease, also after the registry's clock was set back: the newest lease
-- stays the newest.
CREATE FUNCTION snowflake.renewal_time(newest snowflake.worker_node) RETURNS timestamptz
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
	SELECT greatest(clock_timestamp(), newest.renewed_at + interval '1 microsecond')	-- greatest ignores NULL
$$;
COMMENT ON FUNCTION snowflake.renewal_time(snowflake.worker_node) IS
'part of the lease functions: when a lease is granted or renewed now';

-- The greatest id of the ticks that end at or before a time; -1 if there is no such tick.
CREATE FUNCTION snowflake.greatest_id(leased_until timestamptz, layout text) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN leased_until - l.tick < l.epoch THEN -1
		ELSE snowflake_internal.max_id(least(leased_until - l.tick, l.last_id_time)::timestamptz, layout::text) END
	FROM snowflake_internal.layout(layout::text) AS l
$$;
COMMENT ON FUNCTION snowflake.greatest_id(timestamptz, text) IS
'part of the lease functions: the greatest id that a lease of a default layout allows';

-- When the first tick begins whose ids are all greater than an id; infinity if there is no such tick.
-- Where the parameters are known, the planner may compute a branch that is not taken: so none fails.
CREATE FUNCTION snowflake.first_time_above(id bigint, layout text) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN id < 0 THEN l.epoch
		WHEN id >= snowflake_internal.min_id(l.last_id_time::timestamptz, layout::text) THEN 'infinity'
		ELSE snowflake_internal.id_time(least(id, snowflake_internal.max_id(l.last_id_time::timestamptz, layout::text))::bigint,
			layout::text) + l.tick END
	FROM snowflake_internal.layout(layout::text) AS l
$$;
COMMENT ON FUNCTION snowflake.first_time_above(bigint, text) IS
'part of the lease functions: from when on the ids of a layout are greater than an id';

-- The greatest id that leases of any incarnation allow under default layouts other than the given one.
CREATE FUNCTION snowflake.greatest_id_of_others(layout text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
	-- one probe of the index for each layout
	WITH RECURSIVE used AS (
		(SELECT w.layout, w.leased_until FROM snowflake.worker_node AS w
		WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at
		ORDER BY w.layout, w.leased_until DESC LIMIT 1)
		UNION ALL
		SELECT following.* FROM used, LATERAL (
			SELECT w.layout, w.leased_until FROM snowflake.worker_node AS w
			WHERE w.layout > used.layout AND (w.closed_at IS NULL OR w.leased_until > w.starts_at)
			ORDER BY w.layout, w.leased_until DESC LIMIT 1) AS following
	)
	SELECT coalesce(max(snowflake.greatest_id(u.leased_until, u.layout)), -1) FROM used AS u WHERE u.layout <> $1
$$;
COMMENT ON FUNCTION snowflake.greatest_id_of_others(text) IS
'part of the lease functions: the greatest id that other layouts allow';

-- Whether a server may have leases with its default layout.  If the recorded one is another, this is a
-- change: ids of the new layout must be greater than all that were issued, and no other server may go on
-- under the old one.  Returns the time that leases of the new layout start at or after.
CREATE FUNCTION snowflake.check_layout(recorded text, layout text, layout_set boolean,
	node_clock timestamptz, max_ahead interval, host_name text, port integer, system_identifier bigint)
RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	layouts CONSTANT text := format('Ids were issued under "%s"; the server has "%s".', recorded, layout);
	-- the leases of other servers start after it, too, and their max_ahead may be less
	ahead CONSTANT interval := least(max_ahead, interval '10 s');
	other snowflake.worker_node;
	first_time timestamptz;
BEGIN
	IF recorded IS NULL OR recorded = layout THEN
		RETURN '-infinity';
	END IF;
	IF NOT layout_set THEN
		RAISE EXCEPTION 'snowflake.layout is not the one that ids were issued under'
			USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = layouts,
			HINT = format('Add "snowflake.layout = ''%s''" to postgresql.conf and restart the server.', recorded);
	END IF;
	-- at most one open row for each number
	SELECT w.* INTO other FROM snowflake.worker_node AS w
	WHERE w.closed_at IS NULL AND w.leased_until > least(node_clock, clock_timestamp())
		AND (w.host_name, w.port, w.system_identifier) <> (host_name, port, system_identifier)
	ORDER BY w.leased_until DESC LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'snowflake.layout is not the one that ids were issued under'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('%s The server on host "%s", port %s, has a lease until %s.',
				layouts, other.host_name, other.port, other.leased_until),
			HINT = format('Set snowflake.layout back and add the new layout to snowflake.extra_layouts; '
				'or stop all other servers: it is accepted from %s on.', other.leased_until);
	END IF;
	first_time := snowflake.first_time_above(snowflake.greatest_id_of_others(layout), layout);
	IF first_time > node_clock + ahead THEN
		RAISE EXCEPTION 'snowflake.layout is not the one that ids were issued under'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('%s Its ids would not be greater than all of them.', layouts),
			HINT = format('Set snowflake.layout back and add the new layout to snowflake.extra_layouts; '
				'as snowflake.layout it is %s.', CASE first_time WHEN 'infinity' THEN 'never accepted'
				ELSE format('accepted from %s on', first_time - ahead) END);
	END IF;
	RETURN first_time;
END
$$;
COMMENT ON FUNCTION snowflake.check_layout(text, text, boolean, timestamptz, interval, text, integer, bigint) IS
'part of the lease functions: whether a server may have leases with its default layout';

--
-- Choosing a number
--

-- The numbers from first to last that were leased, in rows of any incarnation, and the greatest end of
-- each: one probe of the index for each number, however long its history is.
CREATE FUNCTION snowflake.used_numbers(first bigint, last bigint)
RETURNS TABLE (node_number bigint, leased_until timestamptz)
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE used AS (
		(SELECT w.node_number, w.leased_until FROM snowflake.worker_node AS w
		WHERE w.node_number BETWEEN $1 AND $2
		ORDER BY w.node_number, w.leased_until DESC LIMIT 1)
		UNION ALL
		SELECT following.* FROM used, LATERAL (
			SELECT w.node_number, w.leased_until FROM snowflake.worker_node AS w
			WHERE w.node_number > used.node_number AND w.node_number <= $2
			ORDER BY w.node_number, w.leased_until DESC LIMIT 1) AS following
	)
	SELECT * FROM used
$$;
COMMENT ON FUNCTION snowflake.used_numbers(bigint, bigint) IS
'part of the lease functions: the node numbers that were leased, and until when';

-- One of the numbers first, first + step, ... up to last that was never leased, at random; NULL if all were.
CREATE FUNCTION snowflake.unused_number(first bigint, last bigint, step integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	count CONSTANT bigint := (last - first) / step + 1;
	used bigint[];
	candidate bigint;
BEGIN
	FOR try IN 1 .. 20 LOOP
		candidate := first + step * least(floor(random() * count)::bigint, count - 1);
		IF NOT EXISTS (SELECT FROM snowflake.worker_node AS w WHERE w.node_number = candidate) THEN
			RETURN candidate;
		END IF;
	END LOOP;
	-- most are used: the n-th of those that are not
	used := ARRAY(SELECT u.node_number FROM snowflake.used_numbers(first, last) AS u
		WHERE (u.node_number - first) % step = 0 ORDER BY u.node_number);
	IF cardinality(used) = count THEN
		RETURN NULL;
	END IF;
	candidate := least(floor(random() * (count - cardinality(used)))::bigint, count - cardinality(used) - 1);
	SELECT first + step * (candidate + count(*)) INTO candidate
	FROM unnest(used) WITH ORDINALITY AS u (node_number, nr)
	WHERE (u.node_number - first) / step - (u.nr - 1) <= candidate;	-- how many unused ones are lower
	RETURN candidate;
END
$$;
COMMENT ON FUNCTION snowflake.unused_number(bigint, bigint, integer) IS
'part of the lease functions: a node number that was never leased';

-- An automatic number is free if no lease of it can be live by anyone's clock, and if ids can go on in it
-- now.  Never used ones come first, then the longest unused.
CREATE FUNCTION snowflake.choose_automatic(first bigint, last bigint, step integer, node_clock timestamptz)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	earlier_clock CONSTANT timestamptz := least(node_clock, clock_timestamp());
	result bigint := snowflake.unused_number(first, last, step);
	earliest timestamptz;
BEGIN
	IF result IS NOT NULL THEN
		RETURN result;
	END IF;
	SELECT u.node_number INTO result FROM snowflake.used_numbers(first, last) AS u
	WHERE (u.node_number - first) % step = 0 AND u.leased_until <= node_clock
		AND NOT EXISTS (SELECT FROM snowflake.worker_node AS w
			WHERE w.node_number = u.node_number AND w.closed_at IS NULL AND w.leased_until > earlier_clock)
	ORDER BY u.leased_until, u.node_number LIMIT 1;
	IF FOUND THEN
		RETURN result;
	END IF;
	SELECT min(u.leased_until) INTO earliest FROM snowflake.used_numbers(first, last) AS u
	WHERE (u.node_number - first) % step = 0;
	RAISE EXCEPTION 'no node number is free'
		USING ERRCODE = 'configuration_limit_exceeded',
		DETAIL = format('Of %s numbers the earliest end is %s; the clock, of server or registry, that is behind shows %s.',
			(last - first) / step + 1, earliest, earlier_clock),
		HINT = 'Wait for that, stop a server that needs no number, or choose a layout with more worker bits.';
END
$$;
COMMENT ON FUNCTION snowflake.choose_automatic(bigint, bigint, integer, timestamptz) IS
'part of the lease functions: a number that any server may have';

-- The numbers from first to last are the server's own: one, or as many as its layout has clocks.  Of them it
-- gets the last one in which ids can go on, else one that was never leased, else the one that ends first.
CREATE FUNCTION snowflake.choose_fixed(first bigint, last bigint, node_clock timestamptz, max_ahead interval)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	result bigint;
BEGIN
	SELECT u.node_number INTO result FROM snowflake.used_numbers(first, last) AS u
	WHERE u.leased_until <= node_clock + max_ahead
	ORDER BY u.leased_until DESC, u.node_number LIMIT 1;
	result := coalesce(result, snowflake.unused_number(first, last, 1));
	IF result IS NULL THEN
		SELECT u.node_number INTO result FROM snowflake.used_numbers(first, last) AS u
		ORDER BY u.leased_until, u.node_number LIMIT 1;
	END IF;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.choose_fixed(bigint, bigint, timestamptz, interval) IS
'part of the lease functions: which of its own numbers a server is to have';

-- A fixed number that another start may still use is refused.  own_cluster: rows of this system identifier
-- are the server's own, or of the primary that it was a standby of; NULL if the registry is another cluster's.
CREATE FUNCTION snowflake.check_other_server(first bigint, last bigint, start uuid, own_cluster bigint,
	node_clock timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	other snowflake.worker_node;
BEGIN
	SELECT w.* INTO other FROM snowflake.worker_node AS w
	WHERE w.node_number BETWEEN first AND last AND w.closed_at IS NULL
		AND w.leased_until > least(node_clock, clock_timestamp())
		AND w.start <> start AND w.system_identifier IS DISTINCT FROM own_cluster
	ORDER BY w.leased_until DESC LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'node number % is leased to the server on host "%", port %, started at %',
			other.node_number, other.host_name, other.port, other.launched_at
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Its lease ends at %s.', other.leased_until),
			HINT = 'Set another snowflake.worker_id. If that server is gone for good, its number is free when its lease is over.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_other_server(bigint, bigint, uuid, bigint, timestamptz) IS
'part of the lease functions: refuses a fixed number that another server has';

CREATE FUNCTION snowflake.choose_number(registry snowflake.registry, own boolean, first bigint, last bigint,
	fixed boolean, start uuid, system_identifier bigint, node_clock timestamptz, max_ahead interval)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	odd_bit CONSTANT bigint := 1 - registry.generation % 2;	-- bit 0 of automatic numbers of the own table
BEGIN
	IF fixed THEN
		PERFORM snowflake.check_other_server(first, last, start, CASE WHEN own THEN system_identifier END, node_clock);
		RETURN snowflake.choose_fixed(first, last, node_clock, max_ahead);
	END IF;
	IF NOT own THEN
		RETURN snowflake.choose_automatic(first, last, 1, node_clock);
	END IF;
	IF first = last THEN
		RAISE EXCEPTION 'the layout has too few node numbers'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Without a registry, automatic numbers need two bits for datacenter, worker and clock in every layout in use: one of them tells a promoted server from the one before it.',
			HINT = 'Set snowflake.registry, set snowflake.worker_id to a number, or choose layouts with more worker bits.';
	END IF;
	RETURN snowflake.choose_automatic(first + abs((first & 1) - odd_bit), last - abs((last & 1) - odd_bit), 2, node_clock);
END
$$;
COMMENT ON FUNCTION snowflake.choose_number(snowflake.registry, boolean, bigint, bigint, boolean, uuid, bigint, timestamptz, interval) IS
'part of the lease functions: which node number a server is to have';

-- Ids of tables that are gone were at most max_ahead past the clock when these were made, and their ticks
-- end one tick later.
CREATE FUNCTION snowflake.creation_floor(registry snowflake.registry, max_ahead interval, tick interval)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT registry.created_at + max_ahead + tick
$$;
COMMENT ON FUNCTION snowflake.creation_floor(snowflake.registry, interval, interval) IS
'part of the lease functions: the end of all ids of the tables before';

-- The time that every lease of the registry starts at or after, as its tables say.
CREATE FUNCTION snowflake.registry_floor(registry snowflake.registry, max_ahead interval, tick interval)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT greatest(snowflake.creation_floor(registry, max_ahead, tick), registry.starts_at)
$$;
COMMENT ON FUNCTION snowflake.registry_floor(snowflake.registry, interval, interval) IS
'part of the lease functions: the time that all leases of the registry start at or after';

-- The time that a lease of a node starts at or after.  node_floor: the end of ids that the node knows of and
-- the registry does not; NULL if there are no such ids.
CREATE FUNCTION snowflake.lease_floor(registry snowflake.registry, node_clock timestamptz, max_ahead interval,
	tick interval, node_floor timestamptz) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	latest CONSTANT timestamptz := node_clock + interval '10 s';	-- and max_ahead, which ids may be ahead
BEGIN
	IF registry.created_at > latest THEN
		RAISE EXCEPTION 'the server''s clock is behind the creation of the extension'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock shows %s; the extension was created at %s.', node_clock, registry.created_at),
			HINT = 'Correct the clock. If it was ahead when the extension was created, see "Starting over" in doc/operations.md.';
	END IF;
	IF registry.starts_at > latest + max_ahead THEN
		RAISE EXCEPTION 'the server''s clock is behind the time that leases start at'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock shows %s; leases start at %s, since the last promotion or pg_upgrade, or change of layout or registry.',
				node_clock, registry.starts_at),
			HINT = 'Correct the clock, or wait until it shows that time.';
	END IF;
	IF node_floor > latest + max_ahead THEN
		RAISE EXCEPTION 'the server''s clock is behind ids that the registry does not know of'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock shows %s; ids were issued until %s.', node_clock, node_floor),
			HINT = 'Correct the clock, or wait until it shows that time. If these ids are gone, restart the server.';
	END IF;
	RETURN greatest(snowflake.registry_floor(registry, max_ahead, tick), node_floor);	-- greatest ignores NULL
END
$$;
COMMENT ON FUNCTION snowflake.lease_floor(snowflake.registry, timestamptz, interval, interval, timestamptz) IS
'part of the lease functions: the time that a lease starts at or after, whatever its number';

-- A registry of another cluster is not the node's own.
CREATE FUNCTION snowflake.check_other_cluster(system_identifier bigint, launched_at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	IF pg_postmaster_start_time() = launched_at
		AND (SELECT c.system_identifier FROM pg_control_system() AS c) = system_identifier THEN
		RAISE EXCEPTION 'the registry is the server itself'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Both have the system identifier %s and were started at %s.', system_identifier, launched_at),
			HINT = 'Leave snowflake.registry empty on this server.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_other_cluster(bigint, timestamptz) IS
'part of the lease functions: refuses the node itself as the registry of another cluster';

-- A cluster that takes its own numbers from another registry grants nothing to others: that registry does not
-- know what is granted here.
CREATE FUNCTION snowflake.check_root() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	used CONSTANT uuid := (SELECT c.incarnation FROM snowflake.cluster AS c WHERE c.one AND c.uses = 'another');
BEGIN
	IF used IS NOT NULL THEN
		RAISE EXCEPTION 'the registry''s own numbers come from another registry'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('So it grants and renews no leases. The other one has the incarnation %s.', used),
			HINT = 'Set snowflake.registry to that other registry, as it is set on the server named here.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_root() IS
'part of the lease functions: refuses nodes of other clusters if this cluster uses another registry';

-- A node must not use a registry other than the recorded one.
CREATE FUNCTION snowflake.check_registry(registry snowflake.registry, own boolean, incarnation uuid,
	system_identifier bigint, launched_at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	back CONSTANT text := 'Set snowflake.registry back. To change it, see "Another registry" in doc/operations.md.';
BEGIN
	IF own AND EXISTS (SELECT FROM snowflake.cluster AS c WHERE c.one AND c.uses = 'another') THEN
		RAISE EXCEPTION 'the ids of this cluster were issued with another cluster''s registry'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = (SELECT format('Its incarnation is %s; snowflake.registry is empty.', c.incarnation)
				FROM snowflake.cluster AS c WHERE c.one),
			HINT = back;
	END IF;
	IF own THEN
		RETURN;
	END IF;
	PERFORM snowflake.check_other_cluster(system_identifier, launched_at);
	PERFORM snowflake.check_root();
	IF incarnation <> registry.incarnation THEN
		RAISE EXCEPTION 'the registry is not the one that this cluster''s ids were issued with'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Its incarnation is %s, the recorded one %s.', registry.incarnation, incarnation),
			HINT = back;
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_registry(snowflake.registry, boolean, uuid, bigint, timestamptz) IS
'part of the lease functions: refuses a registry other than the recorded one';

--
-- What the lease worker calls.  Each call is a transaction of its own.
--

-- At each start of a writable server, and when a standby is promoted.
CREATE FUNCTION snowflake.start_server(version text, timelines text[],
	node_clock timestamptz, max_ahead interval, tick interval, system_identifier bigint,
	OUT uses text, OUT incarnation uuid, OUT generation integer, OUT starts_at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
BEGIN
	PERFORM snowflake.check_parameter(p.fits, p.name, p.value, p.bound) FROM (VALUES
		(snowflake.is_time(node_clock), 'node_clock', node_clock::text, 'in the years 1 to 9999'),
		(max_ahead BETWEEN '0' AND '1 day', 'max_ahead', max_ahead::text, 'from 0 to 1 day'),
		(tick > '0' AND tick <= '1 s', 'tick', tick::text, 'above 0, up to 1 s')) AS p (fits, name, value, bound);
	registry := snowflake.count_generation(timelines, system_identifier, node_clock + max_ahead + tick);
	generation := registry.generation;
	starts_at := snowflake.creation_floor(registry, max_ahead, tick);
	SELECT c.uses, c.incarnation INTO uses, incarnation FROM snowflake.cluster AS c WHERE c.one;
END
$$;
COMMENT ON FUNCTION snowflake.start_server(text, text[], timestamptz, interval, interval, bigint) IS
'counts the generation of this cluster and returns it, where its numbers come from, and the end of all ids of the tables before; for the lease worker';

-- Grants a lease.
--
-- Only the extension's owner may call it; the lease worker of the own server calls as that role.  So nobody
-- else can say that the registry is its own, or which timelines its server has.
--
-- own: the registry is the node's own cluster.  first_number, last_number: those the node can use, or with
-- "fixed" those that it is to use.  incarnation: of the registry that the node is bound to, NULL if any
-- will do.  known_until: the end of all ids of this start, whose last lease was of known_incarnation;
-- node_floor: of those that this last registry does not know of.  previous_token: the lease it had in this
-- start; its ids end at previous_end (NULL: they go on).
CREATE FUNCTION snowflake.grant_lease(version text, start uuid, call bigint, own boolean, incarnation uuid,
	first_number bigint, last_number bigint, fixed boolean, layout text, layout_set boolean, tick interval,
	node_clock timestamptz, max_ahead interval, lease_window interval,
	host_name text, port integer, system_identifier bigint, timeline integer, timelines text[], launched_at timestamptz,
	known_until timestamptz, known_incarnation uuid, node_floor timestamptz, previous_token uuid, previous_end timestamptz,
	OUT token uuid, OUT registry_incarnation uuid, OUT node_number bigint, OUT starts_at timestamptz,
	OUT leased_until timestamptz, OUT registry_clock timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
	newest snowflake.worker_node;
	layout_floor timestamptz;
BEGIN
	SELECT l.definition INTO layout FROM snowflake_internal.layout(layout::text) AS l;
	PERFORM snowflake.check_parameter(p.fits, p.name, p.value, p.bound) FROM (VALUES
		(own IS NOT NULL, 'own', NULL, 'true or false'),
		(fixed IS NOT NULL, 'fixed', NULL, 'true or false'),
		(layout IS NOT NULL, 'layout', NULL, 'a layout'),
		(layout_set IS NOT NULL, 'layout_set', NULL, 'true or false'),
		(first_number BETWEEN 0 AND last_number, 'first_number', first_number::text, format('from 0 to %s', last_number)),
		(last_number < 1::bigint << snowflake.field_bits(layout, 'datacenter') + snowflake.field_bits(layout, 'worker')
			+ snowflake.field_bits(layout, 'clock'), 'last_number', last_number::text, format('a node number of "%s"', layout)),
		(tick > '0' AND tick <= '1 s', 'tick', tick::text, 'above 0, up to 1 s'),
		(snowflake.is_time(node_clock), 'node_clock', node_clock::text, 'in the years 1 to 9999'),
		(max_ahead BETWEEN '0' AND '1 day', 'max_ahead', max_ahead::text, 'from 0 to 1 day'),
		(lease_window BETWEEN '0' AND '2 days', 'lease_window', lease_window::text, 'from 0 to 2 days'),
		(host_name IS NOT NULL, 'host_name', NULL, 'a text'),
		(port IS NOT NULL, 'port', NULL, 'a number'),
		(system_identifier IS NOT NULL, 'system_identifier', NULL, 'a number'),
		(timeline IS NOT NULL, 'timeline', NULL, 'a number'),
		(snowflake.is_time(launched_at), 'launched_at', launched_at::text, 'in the years 1 to 9999'),
		(known_until IS NULL OR snowflake.is_time(known_until), 'known_until', known_until::text, 'in the years 1 to 9999, or NULL'),
		(node_floor IS NULL OR snowflake.is_time(node_floor), 'node_floor', node_floor::text, 'in the years 1 to 9999, or NULL'))
		AS p (fits, name, value, bound);
	PERFORM snowflake.check_registry(registry, own, incarnation, system_identifier, launched_at);
	IF own THEN
		registry := snowflake.count_generation(timelines, system_identifier, node_clock + max_ahead + tick);
		PERFORM snowflake.write_uses(NULL);
	END IF;
	PERFORM snowflake.begin_call(registry, start, call, previous_token, previous_end);

	newest := snowflake.newest_lease(registry.incarnation);
	layout_floor := snowflake.check_layout(newest.layout, layout, layout_set, node_clock, max_ahead,
		host_name, port, system_identifier);
	IF known_incarnation IS DISTINCT FROM registry.incarnation THEN
		node_floor := greatest(node_floor, known_until);
	END IF;
	starts_at := greatest(layout_floor, snowflake.lease_floor(registry, node_clock, max_ahead, tick, node_floor));
	-- what holds for this lease holds for all that are granted later
	UPDATE snowflake.registry AS r
	SET starts_at = greatest(r.starts_at, layout_floor, CASE WHEN own THEN node_floor END)
	WHERE r.one AND (layout_floor > r.starts_at
		OR own AND node_floor > snowflake.registry_floor(registry, max_ahead, tick));

	node_number := snowflake.choose_number(registry, own, first_number, last_number, fixed, start,
		system_identifier, node_clock, max_ahead);
	UPDATE snowflake.worker_node AS w SET closed_at = clock_timestamp()
	WHERE w.node_number = node_number AND w.closed_at IS NULL;
	-- of all incarnations: a dump brings what was issued
	starts_at := greatest(starts_at, (SELECT w.leased_until FROM snowflake.worker_node AS w
		WHERE w.node_number = node_number ORDER BY w.leased_until DESC LIMIT 1));
	token := gen_random_uuid();
	registry_incarnation := registry.incarnation;
	registry_clock := clock_timestamp();
	leased_until := greatest(node_clock, starts_at) + lease_window;
	INSERT INTO snowflake.worker_node (token, start, granted_by, last_call, system_identifier, host_name, port, timeline,
		incarnation, node_number, datacenter_id, worker_id, clock, layout, launched_at, starts_at, leased_until, renewed_at)
	SELECT token, start, call, call, system_identifier, host_name, port, timeline,
		registry.incarnation, node_number, p.datacenter_id, p.worker_id, p.clock, layout, launched_at, starts_at, leased_until,
		snowflake.renewal_time(newest)
	FROM snowflake.node_number_parts(node_number, layout) AS p;
END
$$;
COMMENT ON FUNCTION snowflake.grant_lease(text, uuid, bigint, boolean, uuid, bigint, bigint, boolean, text, boolean, interval,
	timestamptz, interval, interval, text, integer, bigint, integer, text[], timestamptz, timestamptz, uuid, timestamptz, uuid, timestamptz) IS
'grants a node number for ids from starts_at to leased_until, also to the registry''s own server; for the lease worker';

-- The same for nodes of other clusters.
CREATE FUNCTION snowflake.acquire_lease(version text, start uuid, call bigint, own boolean, incarnation uuid,
	first_number bigint, last_number bigint, fixed boolean, layout text, layout_set boolean, tick interval,
	node_clock timestamptz, max_ahead interval, lease_window interval,
	host_name text, port integer, system_identifier bigint, timeline integer, timelines text[], launched_at timestamptz,
	known_until timestamptz, known_incarnation uuid, node_floor timestamptz, previous_token uuid, previous_end timestamptz,
	OUT token uuid, OUT registry_incarnation uuid, OUT node_number bigint, OUT starts_at timestamptz,
	OUT leased_until timestamptz, OUT registry_clock timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	IF own OR timelines IS NOT NULL THEN
		RAISE EXCEPTION 'permission denied for parameter "%" of acquire_lease()', CASE WHEN own THEN 'own' ELSE 'timelines' END
			USING ERRCODE = 'insufficient_privilege',
			DETAIL = 'Only the lease worker of the registry''s own server gives it.',
			HINT = 'A node of another cluster calls with own => false, timelines => NULL.';
	END IF;
	SELECT l.* INTO token, registry_incarnation, node_number, starts_at, leased_until, registry_clock
	FROM snowflake.grant_lease(version, start, call, own, incarnation, first_number, last_number, fixed, layout, layout_set,
		tick, node_clock, max_ahead, lease_window, host_name, port, system_identifier, timeline, timelines, launched_at,
		known_until, known_incarnation, node_floor, previous_token, previous_end) AS l;
END
$$;
COMMENT ON FUNCTION snowflake.acquire_lease(text, uuid, bigint, boolean, uuid, bigint, bigint, boolean, text, boolean, interval,
	timestamptz, interval, interval, text, integer, bigint, integer, text[], timestamptz, timestamptz, uuid, timestamptz, uuid, timestamptz) IS
'grants a node number to a server of another cluster, for ids from starts_at to leased_until; for the lease worker';

CREATE FUNCTION snowflake.renew_lease(version text, start uuid, call bigint, token uuid, lease_until timestamptz,
	layout text, node_clock timestamptz) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
	lease snowflake.worker_node;
	newest snowflake.worker_node;
	result timestamptz;
BEGIN
	PERFORM snowflake.check_parameter(snowflake.is_time(node_clock), 'node_clock', node_clock::text, 'in the years 1 to 9999');
	SELECT l.definition INTO layout FROM snowflake_internal.layout(layout::text) AS l;
	PERFORM snowflake.check_parameter(layout IS NOT NULL, 'layout', NULL, 'a layout');
	PERFORM snowflake.check_root();
	lease := snowflake.begin_call(registry, start, call, token, NULL);
	PERFORM snowflake.check_parameter(lease_until <= greatest(node_clock, lease.starts_at) + interval '2 days' AND snowflake.is_time(lease_until),
		'lease_until', lease_until::text, 'up to 2 days after the clock and the lease''s start');
	newest := snowflake.newest_lease(registry.incarnation);
	IF layout <> newest.layout THEN
		RAISE EXCEPTION 'snowflake.layout is not the one that ids are issued under now'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Ids are issued under "%s"; the server has "%s".', newest.layout, layout),
			HINT = format('Set snowflake.layout to ''%s'' and add the other one to snowflake.extra_layouts.', newest.layout);
	END IF;
	UPDATE snowflake.worker_node AS w
	SET leased_until = greatest(w.leased_until, lease_until), renewed_at = snowflake.renewal_time(newest)
	WHERE w.token = lease.token AND w.incarnation = registry.incarnation AND w.closed_at IS NULL
	RETURNING w.leased_until INTO result;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.renew_lease(text, uuid, bigint, uuid, timestamptz, text, timestamptz) IS
'raises the end of an open lease and returns it, or NULL if the lease is not open; for the lease worker';

CREATE FUNCTION snowflake.release_lease(version text, start uuid, call bigint, token uuid, lease_end timestamptz)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
	lease snowflake.worker_node;
BEGIN
	PERFORM snowflake.check_parameter(snowflake.is_time(lease_end), 'lease_end', lease_end::text, 'in the years 1 to 9999');
	lease := snowflake.begin_call(registry, start, call, token, lease_end);
	RETURN lease.token IS NOT NULL AND lease.closed_at IS NULL;
END
$$;
COMMENT ON FUNCTION snowflake.release_lease(text, uuid, bigint, uuid, timestamptz) IS
'closes a lease at the end of its ids; returns whether it was open; for the lease worker';

-- change: another record is replaced, by order of a superuser.  Without it a record that a restore has
-- brought meanwhile is kept, and what was asked for is refused.
CREATE FUNCTION snowflake.record_uses(version text, incarnation uuid, change boolean DEFAULT true)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	registry CONSTANT snowflake.registry := snowflake.lock_registry(version);
	other snowflake.worker_node;
BEGIN
	IF NOT change AND incarnation IS NOT NULL THEN
		SELECT w.* INTO other FROM snowflake.worker_node AS w, pg_control_system() AS here
		WHERE w.closed_at IS NULL AND w.incarnation = registry.incarnation AND w.leased_until > clock_timestamp()
			AND w.system_identifier <> here.system_identifier
		ORDER BY w.leased_until DESC LIMIT 1;
		IF FOUND THEN
			RAISE EXCEPTION 'this cluster is the registry of other servers'
				USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = format('The server on host "%s", port %s, has a lease of it until %s.',
					other.host_name, other.port, other.leased_until),
				HINT = 'Leave snowflake.registry empty on this server, or set it on those servers to the registry that is set here.';
		END IF;
	END IF;
	IF NOT change AND EXISTS (SELECT FROM snowflake.cluster AS c WHERE c.one AND c.incarnation IS DISTINCT FROM incarnation) THEN
		RAISE EXCEPTION 'the registry is not the one that this cluster''s ids were issued with'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = (SELECT format('Its incarnation is %s; the cluster uses %s.', incarnation,
				coalesce(c.incarnation::text, 'its own tables')) FROM snowflake.cluster AS c WHERE c.one),
			HINT = 'Set snowflake.registry back. To change it, see "Another registry" in doc/operations.md.';
	END IF;
	PERFORM snowflake.write_uses(incarnation);
END
$$;
COMMENT ON FUNCTION snowflake.record_uses(text, uuid, boolean) IS
'records that numbers of this cluster come from the registry with the incarnation, NULL: from its own tables; for the lease worker';

-- Only for snowflake_change_registry(): reads the whole table.
CREATE FUNCTION snowflake.list_ends(version text, max_ahead interval, tick interval,
	OUT incarnation uuid, OUT starts_at timestamptz, OUT node_numbers bigint[], OUT ends timestamptz[],
	OUT layouts text[], OUT uses text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	registry CONSTANT snowflake.registry := snowflake.lock_registry(version);
BEGIN
	incarnation := registry.incarnation;
	starts_at := snowflake.registry_floor(registry, max_ahead, tick);
	SELECT c.uses INTO uses FROM snowflake.cluster AS c WHERE c.one;
	-- those that were renewed last come last; a lease that was closed where it started issued nothing
	SELECT coalesce(array_agg(e.node_number ORDER BY e.renewed_at, e.node_number), '{}'),
		coalesce(array_agg(e.leased_until ORDER BY e.renewed_at, e.node_number), '{}'),
		coalesce(array_agg(e.layout ORDER BY e.renewed_at, e.node_number), '{}')
	INTO node_numbers, ends, layouts
	FROM (SELECT w.node_number, w.layout, max(w.leased_until) AS leased_until, max(w.renewed_at) AS renewed_at
		FROM snowflake.worker_node AS w WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at
		GROUP BY w.node_number, w.layout) AS e;
END
$$;
COMMENT ON FUNCTION snowflake.list_ends(text, interval, interval) IS
'the greatest end of each node number and layout, the time that leases start at or after, and where the numbers of this cluster come from; for the lease worker';

-- Takes over what snowflake.list_ends() of another registry has returned: as closed rows of its incarnation,
-- but for those that are here already; and its floor, which stands for ids that are in no row.  Closes all
-- open leases of the start.
CREATE FUNCTION snowflake.hand_over(version text, own boolean, incarnation uuid, starts_at timestamptz,
	node_numbers bigint[], ends timestamptz[], layouts text[], start uuid, call bigint,
	host_name text, port integer, system_identifier bigint, timeline integer, launched_at timestamptz,
	OUT registry_incarnation uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
	registry snowflake.registry := snowflake.lock_registry(version);
BEGIN
	PERFORM snowflake.check_parameter(p.fits, p.name, p.value, p.bound) FROM (VALUES
		(own IS NOT NULL, 'own', NULL, 'true or false'),
		(incarnation IS NOT NULL, 'incarnation', NULL, 'a uuid'),
		(starts_at IS NULL OR snowflake.is_time(starts_at), 'starts_at', starts_at::text, 'in the years 1 to 9999, or NULL'),
		(host_name IS NOT NULL, 'host_name', NULL, 'a text'),
		(port IS NOT NULL, 'port', NULL, 'a number'),
		(system_identifier IS NOT NULL, 'system_identifier', NULL, 'a number'),
		(timeline IS NOT NULL, 'timeline', NULL, 'a number'),
		(snowflake.is_time(launched_at), 'launched_at', launched_at::text, 'in the years 1 to 9999'))
		AS p (fits, name, value, bound);
	PERFORM snowflake.check_parameter(node_numbers IS NOT NULL AND cardinality(ends) = cardinality(node_numbers)
		AND cardinality(layouts) = cardinality(node_numbers), 'node_numbers', cardinality(node_numbers)::text || ' elements',
		format('as many as ends (%s) and layouts (%s)', cardinality(ends), cardinality(layouts)));
	PERFORM snowflake.check_parameter(n.node_number >= 0 AND snowflake.is_time(n.leased_until) AND n.layout IS NOT NULL,
		'node_numbers', format('%s until %s under "%s"', n.node_number, n.leased_until, n.layout),
		'numbers from 0 up, with ends in the years 1 to 9999, and layouts')
	FROM unnest(node_numbers, ends, layouts) AS n (node_number, leased_until, layout);
	IF NOT own THEN
		PERFORM snowflake.check_other_cluster(system_identifier, launched_at);
	END IF;
	IF starts_at > clock_timestamp() + interval '10 s' THEN
		RAISE EXCEPTION 'the former registry issues no ids before %', starts_at
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The clock of the new one shows %s; it would refuse leases until that time.', clock_timestamp()),
			HINT = 'Wait until 10 s before that time, or correct the clock. If that time is wrong, see "Starting over" in doc/operations.md.';
	END IF;
	PERFORM snowflake.begin_call(registry, start, call, NULL, NULL);
	UPDATE snowflake.registry AS r SET starts_at = starts_at WHERE r.one AND r.starts_at < starts_at;

	registry_incarnation := registry.incarnation;
	IF incarnation = registry.incarnation THEN
		incarnation := gen_random_uuid();	-- a copy of this cluster, or a standby of it that was promoted beside it
	END IF;
	INSERT INTO snowflake.worker_node (start, granted_by, last_call, system_identifier, host_name, port, timeline,
		incarnation, node_number, datacenter_id, worker_id, clock, layout, launched_at, starts_at, leased_until,
		renewed_at, closed_at)
	SELECT start, call, call, system_identifier, host_name, port, timeline,
		incarnation, n.node_number, p.datacenter_id, p.worker_id, p.clock, l.definition, launched_at, '-infinity', n.leased_until,
		c.now + n.nr * interval '1 microsecond', c.now
	FROM unnest(node_numbers, ends, layouts) WITH ORDINALITY AS n (node_number, leased_until, layout, nr),
		(SELECT clock_timestamp()) AS c (now),
		snowflake_internal.layout(n.layout::text) AS l,
		snowflake.node_number_parts(n.node_number, l.definition) AS p
	WHERE NOT EXISTS (SELECT FROM snowflake.worker_node AS w
		WHERE w.node_number = n.node_number AND w.leased_until >= n.leased_until AND w.layout = l.definition
			AND w.closed_at IS NOT NULL)	-- an open one may be closed earlier
	ORDER BY n.nr;
END
$$;
COMMENT ON FUNCTION snowflake.hand_over(text, boolean, uuid, timestamptz, bigint[], timestamptz[], text[], uuid, bigint,
	text, integer, bigint, integer, timestamptz) IS
'takes over the ends of node numbers from another registry, as closed leases, and its floor; for the lease worker';

--
-- Reading, for snowflake_audit().  Nothing here locks the registry or writes: it works on a hot
-- standby, too.
--

-- What the leases of the node numbers from a first one up allow: of as many whole numbers as have
-- some 10,000 leases, or of one that has more; and the number to go on with.  Times are microseconds
-- since 1970, as no setting changes them.  A row that was handed over from another registry, whose
-- starts_at is -infinity (NULL here), stands for all leases of the number there.  All rows count,
-- those of other incarnations and layouts too: ids were issued under them.
--
-- leased_until is committed before an id under it is issued, and lowered only to the end of all ids.
-- So who reads this after a snapshot of some ids finds the leases of all ids in that snapshot.
CREATE FUNCTION snowflake.lease_page(first_number bigint, OUT next_number bigint,
	OUT node_numbers bigint[], OUT launched bigint[], OUT starts bigint[], OUT ends bigint[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	SELECT w.node_number INTO next_number FROM snowflake.worker_node AS w
	WHERE w.node_number >= first_number ORDER BY w.node_number OFFSET 10000 LIMIT 1;
	IF next_number IS NOT NULL AND NOT EXISTS (SELECT FROM snowflake.worker_node AS w
			WHERE w.node_number >= first_number AND w.node_number < next_number) THEN
		next_number := next_number + 1;		-- all of them are of one number
	END IF;
	SELECT coalesce(array_agg(w.node_number), '{}'),
		coalesce(array_agg(CASE WHEN isfinite(w.starts_at) THEN extract(epoch FROM w.launched_at) * 1000000 END::bigint), '{}'),
		coalesce(array_agg(CASE WHEN isfinite(w.starts_at) THEN extract(epoch FROM w.starts_at) * 1000000 END::bigint), '{}'),
		coalesce(array_agg((extract(epoch FROM w.leased_until) * 1000000)::bigint), '{}')
	INTO node_numbers, launched, starts, ends
	FROM snowflake.worker_node AS w
	WHERE w.node_number >= first_number AND w.node_number < coalesce(next_number, 9223372036854775807);
END
$$;
COMMENT ON FUNCTION snowflake.lease_page(bigint) IS
'part of snowflake_audit(): the leases of the node numbers from a first one up, some at a time';

-- The same for a node, with which registry this is, and which other one the numbers of its own cluster come
-- from.  The incarnation is NULL in a copy of the database that has granted no lease yet.
CREATE FUNCTION snowflake.list_leases(version text, first_number bigint, OUT incarnation uuid, OUT used uuid,
	OUT next_number bigint, OUT node_numbers bigint[], OUT launched bigint[], OUT starts bigint[], OUT ends bigint[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	PERFORM snowflake.check_version(version);
	SELECT r.incarnation INTO incarnation
	FROM snowflake.registry AS r JOIN pg_database AS d ON d.oid = r.database
	WHERE r.one AND d.datname = current_database();
	SELECT c.incarnation INTO used FROM snowflake.cluster AS c WHERE c.one;
	SELECT p.next_number, p.node_numbers, p.launched, p.starts, p.ends
	INTO next_number, node_numbers, launched, starts, ends
	FROM snowflake.lease_page(first_number) AS p;
END
$$;
COMMENT ON FUNCTION snowflake.list_leases(text, bigint) IS
'the leases of the node numbers from a first one up, some at a time; only reads; for the lease worker';

REVOKE EXECUTE ON FUNCTION
	snowflake.list_leases, snowflake.lease_page,
	snowflake.check_parameter, snowflake.is_time, snowflake.field_bits, snowflake.node_number_parts,
	snowflake.count_generation, snowflake.write_uses, snowflake.begin_call,
	snowflake.newest_lease, snowflake.renewal_time, snowflake.greatest_id, snowflake.first_time_above,
	snowflake.greatest_id_of_others, snowflake.check_layout,
	snowflake.used_numbers, snowflake.unused_number, snowflake.choose_automatic, snowflake.choose_fixed,
	snowflake.check_other_server, snowflake.choose_number, snowflake.creation_floor, snowflake.registry_floor,
	snowflake.lease_floor, snowflake.check_other_cluster, snowflake.check_root, snowflake.check_registry,
	snowflake.start_server, snowflake.grant_lease, snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease,
	snowflake.record_uses, snowflake.list_ends, snowflake.hand_over
FROM PUBLIC;

