--
-- registry_twin.sql
--	  What test/t/051_registry_twin.pl makes in a database before it compares the functions
--	  of snowflake_registry with their twin in C: what they ask the server for (clock, random
--	  numbers, promotions, ...) becomes functions of settings, in the functions as they are
--	  installed.
--
CREATE SCHEMA twin;

-- Times are microseconds since 2000, as in C, and the ends of bigint are infinite.
CREATE FUNCTION twin.at(us bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE
AS $$
	SELECT CASE us WHEN -9223372036854775808 THEN '-infinity' WHEN 9223372036854775807 THEN 'infinity'
		ELSE '2000-01-01 00:00:00Z'::timestamptz + (us || ' us')::interval END
$$;
CREATE FUNCTION twin.us(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
	SELECT CASE WHEN at IS NULL OR at = '-infinity' THEN -9223372036854775808 WHEN at = 'infinity' THEN 9223372036854775807
		ELSE (extract(epoch FROM at) * 1000000)::bigint - 946684800000000 END
$$;
-- In a jsonb they are microseconds since 1970.
CREATE FUNCTION twin.us(at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT coalesce(at - 946684800000000, -9223372036854775808) $$;

-- A uuid is its last 64 bits, and 0 is NULL.
CREATE FUNCTION twin.uuid(id bigint) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN id <> 0 THEN lpad(to_hex(id), 32, '0')::uuid END $$;
CREATE FUNCTION twin.id(uuid uuid) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT coalesce(('x' || right(replace(uuid::text, '-', ''), 16))::bit(64)::bigint, 0) $$;
CREATE FUNCTION twin.ids(uuids uuid[]) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT array_to_string(ARRAY(SELECT twin.id(u) FROM unnest(uuids) AS u ORDER BY twin.id(u)), ' ') $$;

-- The server.  The clock stands still in a call.
CREATE FUNCTION twin.clock() RETURNS timestamptz LANGUAGE sql
AS $$ SELECT twin.at(current_setting('twin.clock')::bigint) $$;
CREATE FUNCTION twin.new_uuid() RETURNS uuid LANGUAGE sql
AS $$ SELECT twin.uuid(set_config('twin.uuid', (current_setting('twin.uuid')::bigint + 1)::text, false)::bigint) $$;
CREATE FUNCTION twin.random() RETURNS double precision LANGUAGE sql
AS $$ SELECT set_config('twin.random', ((current_setting('twin.random')::integer * 25173::bigint + 13849) % 65536)::text, false)::integer / 65536.0::double precision $$;
CREATE FUNCTION twin.control_system(OUT pg_control_version integer, OUT system_identifier bigint) LANGUAGE sql
AS $$ SELECT NULL::integer, current_setting('twin.system_identifier')::bigint $$;
CREATE FUNCTION twin.launched_at() RETURNS timestamptz LANGUAGE sql
AS $$ SELECT twin.at(current_setting('twin.launched_at')::bigint) $$;
CREATE FUNCTION twin.in_recovery() RETURNS boolean LANGUAGE sql
AS $$ SELECT current_setting('twin.in_recovery')::boolean $$;
CREATE FUNCTION twin.has_origin() RETURNS boolean LANGUAGE sql
AS $$ SELECT current_setting('twin.has_origin')::boolean $$;
CREATE FUNCTION twin.wal_file() RETURNS text LANGUAGE sql
AS $$ SELECT lpad(to_hex(current_setting('twin.timeline')::integer), 8, '0') || '0000000000000001' $$;
-- missing if it is empty
CREATE FUNCTION twin.read_file(file text) RETURNS bytea LANGUAGE sql
AS $$
	SELECT nullif(current_setting('twin.history'), '')::bytea
	WHERE file = 'pg_wal/' || lpad(to_hex(current_setting('twin.timeline')::integer), 8, '0') || '.history'
$$;

-- the role that calls
CREATE FUNCTION twin.role() RETURNS text LANGUAGE sql
AS $$ SELECT 'role' || current_setting('twin.role') $$;

-- To show that the comparison can fail: texts of functions, and what stands there instead.
CREATE TABLE twin.plants (function text, this text, that text);

-- Of equal rows the one with the least number is taken.
CREATE TABLE twin.changes (this text, that text);
INSERT INTO twin.changes VALUES
	('clock_timestamp()', 'twin.clock()'),
	('v_from CONSTANT uuid := gen_random_uuid()', 'v_from CONSTANT uuid := ''00000000-0000-0000-0000-000000000000'''),
	('gen_random_uuid()', 'twin.new_uuid()'),
	('random()', 'twin.random()'),
	('session_user', 'twin.role()'),
	('pg_control_system()', 'twin.control_system()'),
	('pg_postmaster_start_time()', 'twin.launched_at()'),
	('pg_is_in_recovery()', 'twin.in_recovery()'),
	(E'IF snowflake.is_replicated() THEN\n\t\tRAISE', E'IF twin.has_origin() THEN\n\t\tRAISE'),	-- not the triggers
	('pg_walfile_name(pg_current_wal_lsn())', 'twin.wal_file()'),
	('pg_current_xact_id()', 'current_setting(''twin.transaction'')::xid8'),
	('pg_current_xact_id_if_assigned()', 'current_setting(''twin.transaction'')::xid8'),
	('PERFORM snowflake.warn_of_standbys()', 'NULL'),
	('pg_read_binary_file(''pg_wal/'' || p_timeline || ''.history'', 0, 10000000, true)', 'twin.read_file(''pg_wal/'' || p_timeline || ''.history'')'),
	('ORDER BY n.ended_until LIMIT', 'ORDER BY n.ended_until, n.node_number LIMIT'),
	('ORDER BY o.start LIMIT', 'ORDER BY o.start, o.node_number LIMIT');

-- After each CREATE EXTENSION
CREATE PROCEDURE twin.change_functions() LANGUAGE plpgsql
AS $$
DECLARE
	definition text;
	change twin.changes;
	num_changed integer;
	plant twin.plants;
BEGIN
	FOR change IN SELECT * FROM twin.changes
	LOOP
		num_changed := 0;
		FOR definition IN SELECT pg_get_functiondef(p.oid) FROM pg_proc AS p
			WHERE p.pronamespace = 'snowflake'::regnamespace AND strpos(p.prosrc, change.this) > 0
		LOOP
			EXECUTE replace(definition, change.this, change.that);
			num_changed := num_changed + 1;
		END LOOP;
		ASSERT num_changed > 0, change.this;
	END LOOP;

	FOR plant IN SELECT * FROM twin.plants
	LOOP
		num_changed := 0;
		FOR definition IN SELECT pg_get_functiondef(p.oid) FROM pg_proc AS p
			WHERE p.pronamespace = 'snowflake'::regnamespace AND p.proname = plant.function AND strpos(p.prosrc, plant.this) > 0
		LOOP
			EXECUTE replace(definition, plant.this, plant.that);
			num_changed := num_changed + 1;
		END LOOP;
		ASSERT num_changed > 0, plant.function || ' does not have: ' || plant.this;
	END LOOP;
END
$$;

-- The state that a standby has, and a backup; later the server goes on from it.
CREATE PROCEDURE twin.save_tables() LANGUAGE plpgsql
AS $$
BEGIN
	DROP TABLE IF EXISTS twin.node_number, twin.worker_node, twin.registry, twin.cluster;
	CREATE TABLE twin.node_number AS TABLE snowflake.node_number;
	CREATE TABLE twin.worker_node AS TABLE snowflake.worker_node;
	CREATE TABLE twin.registry AS TABLE snowflake.registry;
	CREATE TABLE twin.cluster AS TABLE snowflake.cluster;
END
$$;
CREATE PROCEDURE twin.go_back() LANGUAGE plpgsql
AS $$
DECLARE
	v_table text;
BEGIN
	FOREACH v_table IN ARRAY '{node_number,worker_node,registry,cluster}'::text[] LOOP
		EXECUTE format('ALTER TABLE snowflake.%I DISABLE TRIGGER USER; DELETE FROM snowflake.%I; INSERT INTO snowflake.%I TABLE twin.%I; '
			, v_table, v_table, v_table, v_table);
	END LOOP;
	PERFORM snowflake.enable_triggers();
END
$$;

-- Answers.  Of a refusal the message says the reason.
CREATE FUNCTION twin.answer(a jsonb) RETURNS text LANGUAGE sql
AS $$
	SELECT format('%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s', a ->> 'answer', coalesce(a ->> 'reason', (a ->> 'sqlstate') || ' ' || (a ->> 'message')),
		coalesce((a -> 'wait')::bigint, 0), twin.id((a ->> 'incarnation')::uuid), a ->> 'generation', twin.us((a -> 'clock')::bigint),
		twin.id((a ->> 'token')::uuid), coalesce((a -> 'node_number')::bigint, 0), twin.us((a -> 'starts_at')::bigint),
		twin.us((a -> 'leased_until')::bigint), twin.us(nullif(a -> 'cluster_ids_end_at', 'null')::bigint), coalesce(a ->> 'uses', 'nothing'), twin.id((a ->> 'uses_incarnation')::uuid))
$$;

-- What closed_registry() returns.
CREATE FUNCTION twin.closed(c jsonb) RETURNS text LANGUAGE sql
AS $$
	SELECT format('%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|', twin.id((c ->> 'incarnation')::uuid), twin.id((c ->> 'successor')::uuid),
		twin.ids(ARRAY(SELECT jsonb_array_elements_text(c -> 'taken_over')::uuid)), twin.us((c -> 'created_at')::bigint), c ->> 'generation',
		twin.us((c ->> 'counted_at')::bigint), twin.us((c ->> 'starts_at')::bigint), c ->> 'limit', c ->> 'layout', c ->> 'greatest_id')
		|| coalesce((SELECT string_agg(format('%s:%s', n, twin.us(e::bigint)), ' ' ORDER BY n::bigint)
		FROM ROWS FROM (jsonb_array_elements_text(c -> 'node_numbers'), jsonb_array_elements_text(c -> 'ends')) AS u (n, e)), '')
$$;

-- All of the tables, a line for each row.
CREATE FUNCTION twin.tables() RETURNS SETOF text LANGUAGE sql
AS $$
	SELECT concat_ws('|', 'registry', twin.id(incarnation), twin.us(created_at), generation, coalesce(server, ''),
		array_to_string(counted, ' '), twin.us(counted_at), coalesce(mark, '0'), twin.us(starts_at), (extract(epoch FROM end_limit) * 1000000)::bigint,
		coalesce((extract(epoch FROM old_limit) * 1000000)::bigint, 0), twin.us(old_limit_until), twin.ids(taken_over),
		twin.ids(ARRAY(SELECT DISTINCT t.told FROM unnest(told) AS t (told))), twin.id(successor), twin.us(closed_at))
	FROM snowflake.registry
	UNION ALL
	SELECT concat_ws('|', 'cluster', coalesce(uses, 'nothing'), twin.id(incarnation), coalesce(layout, ''), greatest_id) FROM snowflake.cluster
	UNION ALL
	(SELECT concat_ws('|', 'number', node_number, twin.us(ended_until), twin.us(recorded_until), twin.id(token), twin.id(start),
		coalesce(granted_by, 0), coalesce(last_call, 0), coalesce(own, false), coalesce(fixed, false), coalesce(system_identifier, 0),
		coalesce(role, 'role0'), twin.id(incarnation), coalesce(generation, 0), twin.us(starts_at), twin.us(leased_until))
	FROM snowflake.node_number ORDER BY node_number)
	UNION ALL
	(SELECT concat_ws('|', 'lease', twin.id(token), twin.id(start), role, coalesce(system_identifier, 0), twin.id(incarnation), generation, node_number, layout,
		twin.us(starts_at), twin.us(leased_until))
	FROM snowflake.worker_node ORDER BY twin.id(token))
$$;
