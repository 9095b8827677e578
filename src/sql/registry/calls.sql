--
-- Calls and answers: one jsonb each.  A value of a call that is missing or impossible is an error that names
-- it; keys that this version of the protocol does not know are left unread.  What the registry decides is an
-- answer.  doc/protocol.md has all keys.
--
-- The functions without a search_path of their own are called by those that have one, and by nobody else.
--

-- Times are microseconds since 1970 in calls, and in texts they are in UTC: so no setting of a session
-- changes them.  The years are 1 to 9999.  (An interval times an integer is computed with floating point,
-- which is exact for whole seconds and for less than a second.)
CREATE FUNCTION snowflake.time_of(p_microseconds bigint) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
	SELECT '1970-01-01 00:00:00+00'::timestamptz + p_microseconds / 1000000 * interval '1 second'
		+ p_microseconds % 1000000 * interval '1 microsecond'
$$;

CREATE FUNCTION snowflake.microseconds(p_time timestamptz) RETURNS bigint
LANGUAGE sql STABLE
AS $$
	SELECT (extract(epoch FROM p_time) * 1000000)::bigint
$$;

CREATE FUNCTION snowflake.time_text(p_time timestamptz) RETURNS text
LANGUAGE sql STABLE
AS $$
	SELECT to_char(p_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"')
$$;

-- What is not printable becomes a question mark, so that no text of a node can hide or change a line of a log:
-- Unicode's control and format characters, line ends, spaces but that of ASCII, private use and what is invisible.
-- Where the encoding is another one than UTF8, code points are not known, and only ASCII is printable.
CREATE FUNCTION snowflake.printable(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
	IF p_text COLLATE "C" !~ '[^ -~]' THEN
		RETURN p_text;
	ELSIF getdatabaseencoding() <> 'UTF8' THEN
		RETURN regexp_replace(p_text COLLATE "C", '[^ -~]', '?', 'g');
	END IF;
	RETURN regexp_replace(p_text COLLATE "C",
		E'[\\u0001-\\u001f\\u007f-\\u00a0\\u00ad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2'
		'\\u115f\\u1160\\u1680\\u17b4\\u17b5\\u180b-\\u180f\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\u3164'
		'\\ue000-\\uf8ff\\ufdd0-\\ufdef\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff\\U000110bd\\U000110cd'
		'\\U00013430-\\U0001343f\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U0010ffff]', '?', 'g');
END
$$;

-- Every value of a call, and what it must be; the first that is not is the error.  A later version of the protocol may
-- have others, and is refused for that.  p_kind: acquire, renew, release; start and uses, of the own lease worker;
-- successor and closed, what the functions of these names say.  Keys of acquire can be of a server or a program only.
CREATE FUNCTION snowflake.check_call(p_call jsonb, p_kind text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
	v_is_later CONSTANT boolean := p_kind IN ('acquire', 'renew', 'release')
		AND coalesce(p_call -> 'protocol' > '1', false);
	v_key text;
	v_must_be text;
BEGIN
	IF jsonb_typeof(p_call) IS DISTINCT FROM 'object' THEN
		RAISE EXCEPTION 'a registry call is not a JSON object'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Each call has one object with the keys of doc/protocol.md.',
			HINT = CASE WHEN p_kind IN ('successor', 'closed') THEN snowflake.hint_of_call(p_kind)
				ELSE 'Send an object.' END;
	END IF;
	SELECT k.key, CASE k.type WHEN 'an integer' THEN format('an integer from %s to %s', k.least, k.most)
		ELSE replace(k.type, 'a time', 'microseconds since 1970, in the years 1 to 9999') END
	INTO v_key, v_must_be
	FROM (SELECT r.kinds, u.key, r.type, r.least, r.most, p_call #> string_to_array(u.key, '.') AS value
		FROM (VALUES
			('{acquire,renew,release}'::text[], '{protocol}'::text[], 'an integer', 1, 1000000),
			('{acquire,renew,release}', '{call}', 'an integer', 1, 9223372036854775807),
			('{acquire}', '{lease}', 'an object or null', NULL, NULL),
			('{renew,release}', '{lease}', 'an object', NULL, NULL),
			('{acquire,renew,release}', '{start,lease.token,lease.incarnation}', 'a UUID', NULL, NULL),
			('{acquire,renew,release}', '{lease.generation}', 'an integer', 1, 2147483647),
			('{acquire,renew,release}', '{lease.granted_by}', 'an integer', 1, 9223372036854775807),
			('{acquire,renew,release}', '{lease.node_number}', 'an integer', 0, 9223372036854775807),
			('{acquire,renew,release}', '{lease.leased_until}', 'a time', NULL, NULL),
			('{release}', '{lease.ids_end_at}', 'a time', NULL, NULL),
			('{renew,release}', '{layout}', 'a string', NULL, NULL),
			('{acquire,renew,start}', '{clock}', 'a time', NULL, NULL),
			('{acquire,renew,start}', '{max_ahead}', 'an integer', 0, 86401000000),
			('{acquire,renew}', '{window}', 'an integer', 1, 172800000000),
			('{acquire}', '{last_number,first_number}', 'an integer', 0, 9223372036854775807),
			('{acquire}', '{starts_at,ids_end_at,lease.ids_end_at}', 'a time, or null', NULL, NULL),
			('{acquire}', '{launched_at}', 'a time', NULL, NULL),
			('{acquire}', '{host_name,layout}', 'a text of 1 to 255 bytes of printable characters', NULL, NULL),
			('{acquire}', '{kind}', '"server" or "program"', NULL, NULL),
			('{server}', '{fixed}', 'true or false', NULL, NULL),
			('{server}', '{port}', 'an integer', 0, 65535),
			('{server}', '{timeline}', 'an integer', 1, 4294967295),
			('{server}', '{system_identifier}', 'an integer', -9223372036854775808, 9223372036854775807),
			('{program}', '{name}', 'a text of 1 to 255 bytes of printable characters', NULL, NULL),
			-- any number of programs have one name: nothing tells whose a fixed number would be
			('{program}', '{fixed}', 'false for a program', NULL, NULL),
			('{acquire,uses}', '{uses}', 'a UUID or null', NULL, NULL),
			('{start}', '{mark}', 'a string or null', NULL, NULL),
			('{uses,closed,successor}', '{incarnation}', 'a UUID', NULL, NULL),
			('{closed}', '{protocol}', 'an integer', 1, 1),
			('{closed}', '{successor}', 'a UUID', NULL, NULL),
			('{closed}', '{generation}', 'an integer', 1, 2147483647),
			('{closed}', '{created_at}', 'a time', NULL, NULL),
			('{closed}', '{counted_at,starts_at}', 'a time, or null', NULL, NULL),
			('{closed}', '{limit}', 'an integer', 10000000, 172800000000),
			('{closed,successor}', '{layout}', 'a string or null', NULL, NULL),
			('{closed}', '{greatest_id}', 'an integer', -1, 9223372036854775807)
		) AS r (kinds, keys, type, least, most), unnest(r.keys) AS u (key)
		WHERE r.kinds && ARRAY[p_kind, CASE p_kind WHEN 'acquire' THEN p_call ->> 'kind' END]) AS k
	WHERE (k.key NOT LIKE 'lease.%' OR jsonb_typeof(p_call -> 'lease') = 'object')
		AND (k.key = 'protocol' OR NOT v_is_later)
		AND NOT CASE jsonb_typeof(k.value)
			WHEN 'number' THEN (k.type = 'an integer' OR k.type LIKE 'a time%')
				AND k.value::numeric BETWEEN coalesce(k.least, -62135596800000000)
					AND coalesce(k.most, 253402300799999999)
				AND floor(k.value::numeric) = k.value::numeric
			WHEN 'string' THEN CASE
				WHEN k.type LIKE 'a UUID%'
					THEN k.value #>> '{}' ~ '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$'
				WHEN k.type LIKE 'a text%' THEN octet_length(k.value #>> '{}') BETWEEN 1 AND 255
					AND k.value #>> '{}' = snowflake.printable(k.value #>> '{}')
				WHEN k.type LIKE '"%' THEN k.value #>> '{}' IN ('server', 'program')
				ELSE k.type LIKE 'a string%' END
			WHEN 'boolean' THEN k.type = 'true or false' OR k.type = 'false for a program' AND k.value = 'false'
			WHEN 'object' THEN k.type LIKE 'an object%'
			WHEN 'array' THEN false
			ELSE k.type LIKE '% or null' AND (k.value IS NOT NULL OR p_kind <> 'closed') END
	LIMIT 1;
	IF v_key IS NOT NULL THEN
		PERFORM snowflake.refuse_value(v_key, p_call #> string_to_array(v_key, '.'), v_must_be, p_kind);
	ELSIF v_is_later THEN
		RETURN;
	ELSIF p_kind IN ('acquire', 'renew', 'release')
		AND (p_call #> '{lease,granted_by}')::numeric >= (p_call -> 'call')::numeric THEN
		PERFORM snowflake.refuse_value('lease.granted_by', p_call #> '{lease,granted_by}',
			'less than the number of this call');
	ELSIF p_kind = 'acquire'
		AND (p_call -> 'last_number')::numeric - (p_call -> 'first_number')::numeric NOT BETWEEN 0 AND 4294967295 THEN
		PERFORM snowflake.refuse_value('first_number', p_call -> 'first_number',
			'last_number, or at most 4294967295 less');
	END IF;
END
$$;

-- What to do about a call that is not as it must be.  People give what orders need.
CREATE FUNCTION snowflake.hint_of_call(p_kind text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
	SELECT CASE p_kind WHEN 'successor' THEN 'Give what snowflake.successor() of the new registry returns.'
		WHEN 'closed' THEN 'Give what snowflake.closed_registry() of the closed registry returns.'
		ELSE 'Check the clock and the settings of the node that calls.' END
$$;

CREATE FUNCTION snowflake.refuse_value(p_key text, p_value jsonb, p_must_be text, p_kind text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
	RAISE EXCEPTION 'value of "%" in a registry call is out of range: %', p_key,
		coalesce(snowflake.printable(left(p_value::text, 64)), 'missing')
		USING ERRCODE = 'invalid_parameter_value',
		DETAIL = format('It must be %s.', p_must_be),
		HINT = snowflake.hint_of_call(p_kind);
END
$$;

-- An answer to a call.
CREATE FUNCTION snowflake.answer(p_registry snowflake.registry, p_answer text, p_more jsonb) RETURNS jsonb
LANGUAGE plpgsql
AS $$
BEGIN
	RETURN jsonb_build_object('protocol', 1, 'answer', p_answer, 'incarnation', p_registry.incarnation,
		'generation', p_registry.generation, 'clock', snowflake.microseconds(clock_timestamp())) || p_more;
END
$$;

-- Why no lease was granted, renewed or released: the part of an answer that says so.  The node raises it as it is, and
-- asks again after p_wait.
CREATE FUNCTION snowflake.refusal(p_sqlstate text, p_message text, p_detail text, p_hint text,
	p_wait interval DEFAULT '10 s')
RETURNS jsonb
LANGUAGE sql STABLE
AS $$
	SELECT jsonb_build_object('sqlstate', p_sqlstate, 'message', p_message, 'detail', p_detail, 'hint', p_hint,
		'wait', (extract(epoch FROM least(greatest(p_wait, '0 s'), '10 s')) * 1000000)::bigint)
$$;
