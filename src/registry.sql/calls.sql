--
-- Calls: one jsonb each.  A value that is missing or impossible is refused by its name; keys that
-- this version of the protocol does not know are left unread.  doc/protocol.md has all keys.
--

-- What is not printable becomes a question mark, so that no text of a node can hide or change a line of a log: Unicode's
-- control and format characters, line ends, spaces but that of ASCII, private use and what is invisible.  Where the
-- encoding is another one than UTF8, code points are not known, and only ASCII is printable.
CREATE FUNCTION snowflake.printable(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	IF p_text COLLATE "C" !~ '[^ -~]' THEN
		RETURN p_text;
	ELSIF getdatabaseencoding() <> 'UTF8' THEN
		RETURN regexp_replace(p_text COLLATE "C", '[^ -~]', '?', 'g');
	END IF;
	RETURN regexp_replace(p_text COLLATE "C", E'[\\u0001-\\u001f\\u007f-\\u00a0\\u00ad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2'
		'\\u115f\\u1160\\u1680\\u17b4\\u17b5\\u180b-\\u180f\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\u3164'
		'\\ue000-\\uf8ff\\ufdd0-\\ufdef\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff\\U000110bd\\U000110cd'
		'\\U00013430-\\U0001343f\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U0010ffff]', '?', 'g');
END
$$;
COMMENT ON FUNCTION snowflake.printable(text) IS
'part of the registry: a text of a call with question marks for what is not printable';

CREATE FUNCTION snowflake.refuse_value(p_path text, p_value jsonb, p_bound text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
	RAISE EXCEPTION 'value of "%" in a registry call is out of range: %', p_path, coalesce(snowflake.printable(left(p_value::text, 64)), 'missing')
		USING ERRCODE = 'invalid_parameter_value',
		DETAIL = format('It must be %s.', p_bound),
		HINT = 'Check the clock and the settings of the node that calls.';
END
$$;
COMMENT ON FUNCTION snowflake.refuse_value(text, jsonb, text) IS
'part of the registry: refuses a value of a call';

-- p_path: the keys that lead to the value, with dots.  p_null: it may be null or missing.
CREATE FUNCTION snowflake.read_integer(p_call jsonb, p_path text, p_least bigint, p_most bigint, p_null boolean DEFAULT false)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_value CONSTANT jsonb := p_call #> string_to_array(p_path, '.');
	v_number numeric;
BEGIN
	IF p_null AND coalesce(jsonb_typeof(v_value), 'null') = 'null' THEN
		RETURN NULL;
	END IF;
	IF jsonb_typeof(v_value) = 'number' THEN
		v_number := v_value #>> '{}';
		IF v_number BETWEEN p_least AND p_most AND v_number = trunc(v_number) THEN
			RETURN v_number;
		END IF;
	END IF;
	PERFORM snowflake.refuse_value(p_path, v_value, format('an integer from %s to %s', p_least, p_most));
END
$$;
COMMENT ON FUNCTION snowflake.read_integer(jsonb, text, bigint, bigint, boolean) IS
'part of the registry: reads an integer of a call';

CREATE FUNCTION snowflake.read_boolean(p_call jsonb, p_path text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_value CONSTANT jsonb := p_call #> string_to_array(p_path, '.');
BEGIN
	IF jsonb_typeof(v_value) IS DISTINCT FROM 'boolean' THEN
		PERFORM snowflake.refuse_value(p_path, v_value, 'true or false');
	END IF;
	RETURN v_value;
END
$$;
COMMENT ON FUNCTION snowflake.read_boolean(jsonb, text) IS
'part of the registry: reads a boolean of a call';

CREATE FUNCTION snowflake.read_text(p_call jsonb, p_path text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_value CONSTANT jsonb := p_call #> string_to_array(p_path, '.');
	v_text CONSTANT text := v_value #>> '{}';
BEGIN
	IF jsonb_typeof(v_value) IS DISTINCT FROM 'string' OR octet_length(v_text) NOT BETWEEN 1 AND 255
		OR v_text <> snowflake.printable(v_text) THEN
		PERFORM snowflake.refuse_value(p_path, v_value, CASE getdatabaseencoding()
			WHEN 'UTF8' THEN 'a text of 1 to 255 bytes of printable characters'
			ELSE 'a text of 1 to 255 printable characters of ASCII' END);
	END IF;
	RETURN v_text;
END
$$;
COMMENT ON FUNCTION snowflake.read_text(jsonb, text) IS
'part of the registry: reads a text of a call';

CREATE FUNCTION snowflake.read_uuid(p_call jsonb, p_path text, p_null boolean DEFAULT false) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_value CONSTANT jsonb := p_call #> string_to_array(p_path, '.');
	v_text CONSTANT text := v_value #>> '{}';
BEGIN
	IF p_null AND coalesce(jsonb_typeof(v_value), 'null') = 'null' THEN
		RETURN NULL;
	END IF;
	IF jsonb_typeof(v_value) IS DISTINCT FROM 'string'
		OR v_text COLLATE "C" !~ '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$' THEN
		PERFORM snowflake.refuse_value(p_path, v_value, 'a UUID');
	END IF;
	RETURN v_text;
END
$$;
COMMENT ON FUNCTION snowflake.read_uuid(jsonb, text, boolean) IS
'part of the registry: reads a UUID of a call';

-- Times are microseconds since 1970 in calls, and in texts they are in UTC: so no setting of
-- a session changes them.  The years are 1 to 9999.  (An interval times an integer is computed with
-- floating point, which is exact for whole seconds and for less than a second.)
CREATE FUNCTION snowflake.time_of(p_microseconds bigint) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT '1970-01-01 00:00:00+00'::timestamptz + p_microseconds / 1000000 * interval '1 second'
		+ p_microseconds % 1000000 * interval '1 microsecond'
$$;
COMMENT ON FUNCTION snowflake.time_of(bigint) IS
'part of the registry: the time that is this many microseconds after 1970 began';

CREATE FUNCTION snowflake.microseconds(p_time timestamptz) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT (extract(epoch FROM p_time) * 1000000)::bigint
$$;
COMMENT ON FUNCTION snowflake.microseconds(timestamptz) IS
'part of the registry: how many microseconds after 1970 began a time is';

CREATE FUNCTION snowflake.time_text(p_time timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT to_char(p_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"')
$$;
COMMENT ON FUNCTION snowflake.time_text(timestamptz) IS
'part of the registry: a time in a message';

CREATE FUNCTION snowflake.read_time(p_call jsonb, p_path text, p_null boolean DEFAULT false) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT snowflake.time_of(snowflake.read_integer(p_call, p_path, -62135596800000000, 253402300799999999, p_null))
$$;
COMMENT ON FUNCTION snowflake.read_time(jsonb, text, boolean) IS
'part of the registry: reads a time of a call';

CREATE FUNCTION snowflake.read_span(p_call jsonb, p_path text, p_least bigint, p_most bigint) RETURNS interval
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT snowflake.read_integer(p_call, p_path, p_least, p_most) * interval '1 microsecond'
$$;
COMMENT ON FUNCTION snowflake.read_span(jsonb, text, bigint, bigint) IS
'part of the registry: reads a span of time of a call, in microseconds';

-- The protocol's version grows only when safety depends on it.  A registry knows its own and all before.
CREATE FUNCTION snowflake.check_protocol(p_call jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_known CONSTANT integer := 1;
	v_asked bigint;
BEGIN
	IF jsonb_typeof(p_call) IS DISTINCT FROM 'object' THEN
		RAISE EXCEPTION 'a registry call is not a JSON object'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Each call has one object with the keys of doc/protocol.md.',
			HINT = 'Send an object.';
	END IF;
	v_asked := snowflake.read_integer(p_call, 'protocol', 1, 1000000);
	IF v_asked > v_known THEN
		RAISE EXCEPTION 'version % of the registry''s protocol is not known here', v_asked
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('The registry knows versions up to %s.', v_known),
			HINT = 'Update snowflake_registry in the registry before its nodes.';
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake.check_protocol(jsonb) IS
'part of the registry: refuses a version of the protocol that is not known';

-- A layout in numbers, so that no text has to be understood: an id is the tick, counted from the
-- epoch, and below it "shift" bits of other fields.
CREATE TYPE snowflake.layout AS (definition text, epoch bigint, tick bigint, timestamp_bits integer, shift integer,
	datacenter_bits integer, worker_bits integer, clock_bits integer, ends_at timestamptz);
COMMENT ON TYPE snowflake.layout IS
'part of the registry: a layout; epoch and tick are in microseconds, ends_at is the end of its last tick, in the year 9999 at the latest';

CREATE FUNCTION snowflake.read_layout(p_call jsonb) RETURNS snowflake.layout
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_fields CONSTANT jsonb := p_call #> '{layout,fields}';
	v_names CONSTANT text[] := '{timestamp,datacenter,worker,clock,sequence}';
	v_bits integer[] := '{0,0,0,0,0}';
	v_place integer;
	v_layout snowflake.layout;
BEGIN
	IF jsonb_typeof(v_fields) IS DISTINCT FROM 'array' THEN
		PERFORM snowflake.refuse_value('layout.fields', v_fields, 'an array of fields, each an array of name and bits');
	END IF;
	FOR v_field IN 0 .. jsonb_array_length(v_fields) - 1 LOOP
		v_place := array_position(v_names, v_fields -> v_field ->> 0);
		IF v_place IS NULL OR v_bits[v_place] > 0 OR (v_place = 1) <> (v_field = 0) THEN
			PERFORM snowflake.refuse_value(format('layout.fields.%s.0', v_field), v_fields -> v_field -> 0,
				'a field''s name: timestamp first, then worker, sequence, and perhaps datacenter and clock, each once');
		END IF;
		v_bits[v_place] := snowflake.read_integer(p_call, format('layout.fields.%s.1', v_field), 1,
			CASE WHEN v_field = 0 THEN 62 ELSE 31 END);
	END LOOP;
	IF v_bits[1] = 0 OR v_bits[3] = 0 OR v_bits[5] = 0 OR (SELECT sum(b.bits) FROM unnest(v_bits) AS b (bits)) > 63 THEN
		PERFORM snowflake.refuse_value('layout.fields', v_fields, 'timestamp, worker and sequence, of at most 63 bits with all others');
	END IF;
	v_layout.definition := snowflake.read_text(p_call, 'layout.definition');
	v_layout.epoch := snowflake.read_integer(p_call, 'layout.epoch', -62135596800000000, 253402300799999999);
	v_layout.tick := snowflake.read_integer(p_call, 'layout.tick', 1, 1000000);
	v_layout.timestamp_bits := v_bits[1];
	v_layout.datacenter_bits := v_bits[2];
	v_layout.worker_bits := v_bits[3];
	v_layout.clock_bits := v_bits[4];
	v_layout.shift := v_bits[2] + v_bits[3] + v_bits[4] + v_bits[5];
	v_layout.ends_at := snowflake.time_of(least(v_layout.epoch + (1::bigint << v_bits[1])::numeric * v_layout.tick,
		253402300799999999)::bigint);
	RETURN v_layout;
END
$$;
COMMENT ON FUNCTION snowflake.read_layout(jsonb) IS
'part of the registry: reads the node''s default layout of a call';

-- The greatest id of the ticks that end at or before a time; -1 if there is no such tick.
CREATE FUNCTION snowflake.greatest_id(p_until timestamptz, p_layout snowflake.layout) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT CASE WHEN t.ticks <= 0 THEN -1
		ELSE (t.ticks - 1) << p_layout.shift | (1::bigint << p_layout.shift) - 1 END
	FROM (SELECT least((snowflake.microseconds(p_until) - p_layout.epoch) / p_layout.tick,
		1::bigint << p_layout.timestamp_bits) AS ticks) AS t
$$;
COMMENT ON FUNCTION snowflake.greatest_id(timestamptz, snowflake.layout) IS
'part of the registry: the greatest id that a lease of a default layout allows';

-- When the first tick begins whose ids are all greater than an id; infinity if there is no such tick.
CREATE FUNCTION snowflake.first_time_above(p_id bigint, p_layout snowflake.layout) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT CASE WHEN p_id < 0 THEN snowflake.time_of(p_layout.epoch)
		WHEN t.begins >= snowflake.microseconds(p_layout.ends_at) THEN 'infinity'
		ELSE snowflake.time_of(t.begins) END
	-- The cast must not fail where its result is not used either: a plan for these values works out what is constant.
	FROM (SELECT least(p_layout.epoch + ((p_id >> p_layout.shift) + 1)::numeric * p_layout.tick, 9223372036854775807)::bigint AS begins) AS t
$$;
COMMENT ON FUNCTION snowflake.first_time_above(bigint, snowflake.layout) IS
'part of the registry: from when on the ids of a layout are greater than an id';

CREATE FUNCTION snowflake.node_number_parts(p_node_number bigint, p_layout snowflake.layout,
	OUT datacenter_id integer, OUT worker_id integer, OUT clock integer)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT CASE WHEN p_layout.datacenter_bits > 0 THEN p_node_number >> p_layout.worker_bits + p_layout.clock_bits END::integer,
		(p_node_number >> p_layout.clock_bits & (1::bigint << p_layout.worker_bits) - 1)::integer,
		CASE WHEN p_layout.clock_bits > 0 THEN p_node_number & (1::bigint << p_layout.clock_bits) - 1 END::integer
$$;
COMMENT ON FUNCTION snowflake.node_number_parts(bigint, snowflake.layout) IS
'part of the registry: a node number is datacenter, worker and clock, from high to low';

-- What all calls of a node say: which start and call it is, and the newest lease that the node has
-- opened.  lease_end: that of its ids, if the node has sealed it; NULL if ids go on.
CREATE TYPE snowflake.node_call AS (start uuid, call bigint, token uuid, granted_by bigint, lease_end timestamptz,
	layout snowflake.layout);
COMMENT ON TYPE snowflake.node_call IS
'part of the registry: what all calls of a node say';

-- p_lease: whether a lease must be named.  p_ended: whether its ids have ended; a node that asks for
-- another lease may say that they have not, with null.
CREATE FUNCTION snowflake.read_call(p_call jsonb, p_lease boolean, p_ended boolean) RETURNS snowflake.node_call
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_call snowflake.node_call;
BEGIN
	v_call.start := snowflake.read_uuid(p_call, 'start');
	v_call.call := snowflake.read_integer(p_call, 'call', 1, 9223372036854775807);
	v_call.layout := snowflake.read_layout(p_call);
	IF p_lease OR coalesce(jsonb_typeof(p_call -> 'lease'), 'null') <> 'null' THEN
		v_call.token := snowflake.read_uuid(p_call, 'lease.token');
		v_call.granted_by := snowflake.read_integer(p_call, 'lease.granted_by', 1, v_call.call - 1);
		IF p_ended THEN
			v_call.lease_end := snowflake.read_time(p_call, 'lease.ids_end_at', NOT p_lease);
			-- it may be before the epoch: so may be where a lease starts that has issued nothing
			IF v_call.lease_end > (v_call.layout).ends_at THEN
				PERFORM snowflake.refuse_value('lease.ids_end_at', p_call #> '{lease,ids_end_at}',
					format('at most %s, where the layout ends', snowflake.microseconds((v_call.layout).ends_at)));
			END IF;
		END IF;
	END IF;
	RETURN v_call;
END
$$;
COMMENT ON FUNCTION snowflake.read_call(jsonb, boolean, boolean) IS
'part of the registry: reads what all calls of a node say';
