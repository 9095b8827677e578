--
-- Calls and answers: one jsonb each.  A value of a call that is missing or impossible is an error that names
-- it; keys that this version of the protocol does not know are left unread.  What the registry decides is an
-- answer.  doc/protocol.md has all keys.
--
-- The functions without a search_path of their own are called by those that have one, and by nobody else.
--

-- Times are microseconds since 1970 in calls, and in texts they are in UTC: so no setting of a session
-- changes them.  The years are 1 to 9999.  (bigint * interval is floating point, and takes a new session longer.)
CREATE FUNCTION snowflake.span_of(p_microseconds bigint) RETURNS interval
LANGUAGE sql STABLE
AS $$
	SELECT (p_microseconds::text || ' us')::interval
$$;

CREATE FUNCTION snowflake.time_of(p_microseconds bigint) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
	SELECT '1970-01-01 00:00:00+00'::timestamptz + (p_microseconds::text || ' us')::interval
$$;

CREATE FUNCTION snowflake.microseconds(p_time timestamptz) RETURNS bigint
LANGUAGE sql STABLE
AS $$
	SELECT (extract(epoch FROM p_time) * 1000000.0)::bigint
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

-- By itself: a renewal has no such text, and does not plan it.
CREATE FUNCTION snowflake.is_text(p_text text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
	RETURN octet_length(p_text) BETWEEN 1 AND 255 AND p_text = snowflake.printable(p_text);
END
$$;

-- Every value of a call, and what it must be; the first that is not is the error.  A later version of the protocol may
-- have others, and is refused for that.  p_kind: acquire, renew, release; start and uses, of the own lease worker;
-- successor and closed, what the functions of these names say.  Keys of acquire can be of a server or a program only.
-- (A new session plans rules in JSON and its paths in half the time.  The words before " or " say what a value must be.
-- strict: an array is not its elements.)
CREATE FUNCTION snowflake.check_call(p_call jsonb, p_kind text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
	v_rule jsonb;
	v_key text;
BEGIN
	IF jsonb_typeof(p_call) IS DISTINCT FROM 'object' THEN
		RAISE EXCEPTION 'a registry call is not a JSON object'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Each call has one object with the keys of doc/protocol.md.',
			HINT = CASE WHEN p_kind IN ('successor', 'closed') THEN snowflake.hint_of_call(p_kind)
				ELSE 'Send an object.' END;
	END IF;
	-- any number of programs have one name: nothing tells whose a fixed number would be
	SELECT r.rule, k.key INTO v_rule, v_key
	FROM jsonb_array_elements('[
			[["acquire", "renew", "release"], "protocol", "an integer", 1, 1000000],
			[["acquire", "renew", "release"], "call", "an integer", 1, 9223372036854775807],
			[["acquire"], "lease", "an object or null"],
			[["renew", "release"], "lease", "an object"],
			[["acquire", "renew", "release"], "start lease.token lease.incarnation", "a UUID"],
			[["acquire", "renew", "release"], "lease.generation", "an integer", 1, 2147483647],
			[["acquire", "renew", "release"], "lease.granted_by", "an integer", 1, 9223372036854775807],
			[["acquire", "renew", "release"], "lease.node_number", "an integer", 0, 9223372036854775807],
			[["acquire", "renew", "release"], "lease.leased_until", "a time"],
			[["release"], "lease.ids_end_at", "a time"],
			[["renew", "release"], "layout", "a string"],
			[["acquire", "renew", "start"], "clock", "a time"],
			[["acquire", "renew", "start"], "max_ahead", "an integer", 0, 86401000000],
			[["acquire", "renew"], "window", "an integer", 1, 172800000000],
			[["acquire"], "last_number first_number", "an integer", 0, 9223372036854775807],
			[["acquire"], "starts_at ids_end_at lease.ids_end_at", "a time, or null"],
			[["acquire"], "launched_at", "a time"],
			[["acquire"], "host_name layout", "a text of 1 to 255 bytes of printable characters"],
			[["acquire"], "kind", "server or program"],
			[["server"], "fixed", "true or false"],
			[["server"], "port", "an integer", 0, 65535],
			[["server"], "timeline", "an integer", 1, 4294967295],
			[["server"], "system_identifier", "an integer", -9223372036854775808, 9223372036854775807],
			[["program"], "name", "a text of 1 to 255 bytes of printable characters"],
			[["program"], "fixed", "false for a program"],
			[["acquire", "uses"], "uses", "a UUID or null"],
			[["start"], "mark", "a string or null"],
			[["uses", "closed", "successor"], "incarnation", "a UUID"],
			[["closed"], "protocol", "an integer", 1, 1],
			[["closed"], "successor", "a UUID"],
			[["closed"], "generation", "an integer", 1, 2147483647],
			[["closed"], "created_at", "a time"],
			[["closed"], "counted_at starts_at", "a time, or null"],
			[["closed"], "limit", "an integer", 10000000, 172800000000],
			[["closed", "successor"], "layout", "a string or null"],
			[["closed"], "greatest_id", "an integer", -1, 9223372036854775807],
			[["acquire", "renew", "release"], "lease.granted_by", "less than the number of this call"],
			[["acquire"], "first_number", "last_number, or at most 4294967295 less"]
		]') AS r (rule), string_to_table(r.rule ->> 1, ' ') AS k (key)
	WHERE r.rule -> 0 ?| ARRAY[p_kind, CASE p_kind WHEN 'acquire' THEN p_call ->> 'kind' END]
		AND (k.key = 'protocol'
			OR (p_kind IN ('acquire', 'renew', 'release') AND p_call -> 'protocol' > '1') IS NOT TRUE)
		AND (k.key NOT LIKE 'lease.%' OR jsonb_typeof(p_call -> 'lease') = 'object')
		AND (r.rule ->> 2 LIKE '% or null' AND 'null' = coalesce(p_call #> string_to_array(k.key, '.'),
			CASE WHEN p_kind <> 'closed' THEN 'null'::jsonb END)) IS NOT TRUE
		AND ((p_call @? ('strict $.' || k.key || ' ? (' || CASE rtrim(split_part(r.rule ->> 2, ' or ', 1), ',')
				WHEN 'an integer' THEN '@ >= ' || (r.rule ->> 3) || ' && @ <= ' || (r.rule ->> 4) || ' && @.floor() == @'
				WHEN 'a time' THEN '@ >= -62135596800000000 && @ <= 253402300799999999 && @.floor() == @'
				WHEN 'a UUID' THEN '@ like_regex "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"'
				WHEN 'an object' THEN '@.type() == "object"'
				WHEN 'server' THEN '@ == "server" || @ == "program"'
				WHEN 'true' THEN '@.type() == "boolean"'
				WHEN 'false for a program' THEN '@ == false'
				WHEN 'less than the number of this call' THEN '@ < $.call'
				WHEN 'last_number' THEN '@ <= $.last_number && @ >= $.last_number - 4294967295'
				ELSE '@.type() == "string"' END || ')')::jsonpath) IS NOT TRUE
			OR r.rule ->> 2 LIKE 'a text%' AND NOT snowflake.is_text(p_call ->> k.key))
	LIMIT 1;
	IF FOUND THEN
		PERFORM snowflake.refuse_value(v_key, p_call #> string_to_array(v_key, '.'),
			CASE v_rule ->> 2 WHEN 'an integer' THEN format('an integer from %s to %s', v_rule -> 3, v_rule -> 4)
			WHEN 'server or program' THEN '"server" or "program"'
			ELSE replace(v_rule ->> 2, 'a time', 'microseconds since 1970, in the years 1 to 9999') END, p_kind);
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
LANGUAGE sql
AS $$
	SELECT jsonb_build_object('protocol', 1, 'answer', p_answer, 'incarnation', p_registry.incarnation,
		'generation', p_registry.generation, 'clock', snowflake.microseconds(clock_timestamp())) || p_more
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
