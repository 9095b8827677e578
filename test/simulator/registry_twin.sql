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
CREATE FUNCTION twin.control_system(OUT system_identifier bigint) LANGUAGE sql
AS $$ SELECT current_setting('twin.system_identifier')::bigint $$;
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

-- To show that the comparison can fail: texts of functions, and what stands there instead.
CREATE TABLE twin.plants (function text, this text, that text);

-- Rows with equal keys are taken in the order of their tokens.
CREATE TABLE twin.changes (this text, that text);
INSERT INTO twin.changes VALUES
	('clock_timestamp()', 'twin.clock()'),
	('gen_random_uuid()', 'twin.new_uuid()'),
	('(random()', '(twin.random()'),
	('pg_control_system()', 'twin.control_system()'),
	('pg_postmaster_start_time()', 'twin.launched_at()'),
	('pg_is_in_recovery()', 'twin.in_recovery()'),
	(E'snowflake.is_replicated() THEN\n\t\tRAISE', E'twin.has_origin() THEN\n\t\tRAISE'),	-- not the triggers
	('pg_walfile_name(pg_current_wal_lsn())', 'twin.wal_file()'),
	('pg_read_binary_file(v_file, 0, 10000000, true)', 'twin.read_file(v_file)'),
	('v_rows CONSTANT integer := 10000', 'v_rows CONSTANT integer := 4'),
	('ORDER BY w.last_call DESC LIMIT 1', 'ORDER BY w.last_call DESC, w.token DESC LIMIT 1'),
	('renewed_at DESC LIMIT 1', 'renewed_at DESC, token DESC LIMIT 1');

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
	CREATE TABLE IF NOT EXISTS twin.saved_worker_node (LIKE snowflake.worker_node);
	CREATE TABLE IF NOT EXISTS twin.saved_registry (LIKE snowflake.registry);
	CREATE TABLE IF NOT EXISTS twin.saved_cluster (LIKE snowflake.cluster);
END
$$;

-- The state that a standby has, and a backup; later the server goes on from it.
CREATE PROCEDURE twin.save_tables() LANGUAGE plpgsql
AS $$
BEGIN
	DELETE FROM twin.saved_worker_node;
	DELETE FROM twin.saved_registry;
	DELETE FROM twin.saved_cluster;
	INSERT INTO twin.saved_worker_node SELECT * FROM snowflake.worker_node;
	INSERT INTO twin.saved_registry SELECT * FROM snowflake.registry;
	INSERT INTO twin.saved_cluster SELECT * FROM snowflake.cluster;
END
$$;
CREATE PROCEDURE twin.empty_tables() LANGUAGE plpgsql
AS $$
BEGIN
	DELETE FROM snowflake.worker_node;
	DELETE FROM snowflake.registry;
	DELETE FROM snowflake.cluster;
END
$$;
CREATE PROCEDURE twin.go_back() LANGUAGE plpgsql
AS $$
BEGIN
	CALL twin.empty_tables();
	INSERT INTO snowflake.worker_node SELECT * FROM twin.saved_worker_node;
	INSERT INTO snowflake.registry SELECT * FROM twin.saved_registry;
	INSERT INTO snowflake.cluster SELECT * FROM twin.saved_cluster;
END
$$;

-- As a restore does, but that rows may be there already
CREATE PROCEDURE twin.insert_rows(rows jsonb) LANGUAGE sql
AS $$
	INSERT INTO snowflake.worker_node (token, start, granted_by, last_call, kind, name, system_identifier, host_name, port,
		timeline, incarnation, generation, fixed, node_number, datacenter_id, worker_id, clock, layout, greatest_id,
		launched_at, starts_at, leased_until, renewed_at, closed_at)
	SELECT w.token, w.start, w.granted_by, w.last_call, w.kind, w.name, w.system_identifier, w.host_name, w.port,
		w.timeline, w.incarnation, w.generation, w.fixed, w.node_number, w.datacenter_id, w.worker_id, w.clock, w.layout, w.greatest_id,
		snowflake.time_of(w.launched_at), snowflake.time_of(w.starts_at), snowflake.time_of(w.leased_until),
		snowflake.time_of(w.renewed_at), snowflake.time_of(w.closed_at)
	FROM jsonb_to_recordset(rows) AS w (token uuid, start uuid, granted_by bigint, last_call bigint, kind text,
		name text, system_identifier bigint, host_name text, port integer, timeline bigint, incarnation uuid, generation integer,
		fixed boolean, node_number bigint, datacenter_id integer, worker_id integer, clock integer, layout text,
		greatest_id bigint, launched_at bigint, starts_at bigint, leased_until bigint, renewed_at bigint, closed_at bigint)
	ON CONFLICT DO NOTHING
$$;

-- Answers: all keys, sorted.
CREATE FUNCTION twin.answer(answer jsonb) RETURNS text LANGUAGE sql
AS $$
	SELECT string_agg(a.key || '=' || CASE
			WHEN a.key IN ('incarnation', 'token', 'uses_incarnation', 'successor') THEN twin.id((a.value #>> '{}')::uuid)::text
			WHEN a.key IN ('clock', 'starts_at', 'leased_until') THEN twin.us((a.value #>> '{}')::bigint)::text
			ELSE a.value #>> '{}' END, ' ' ORDER BY a.key COLLATE "C")
	FROM jsonb_each(answer) AS a
$$;

CREATE FUNCTION twin.page(page jsonb) RETURNS text LANGUAGE sql
AS $$
	SELECT concat_ws(' ', page ->> 'protocol', twin.id((page ->> 'incarnation')::uuid), coalesce(page ->> 'uses', 'nothing'),
		twin.id((page ->> 'uses_incarnation')::uuid), coalesce(page -> 'next' ->> 'node_number', 'end'),
		twin.us((page -> 'next' ->> 'leased_until')::bigint))
		|| coalesce((SELECT string_agg(format(';%s %s %s %s', n, twin.us(l::bigint), twin.us(s::bigint), twin.us(e::bigint)), ''
			ORDER BY n::bigint, e::bigint, s::bigint, l::bigint)
		FROM ROWS FROM (jsonb_array_elements_text(page -> 'node_numbers'), jsonb_array_elements_text(page -> 'launched'),
			jsonb_array_elements_text(page -> 'starts'), jsonb_array_elements_text(page -> 'ends')) AS u (n, l, s, e)), '')
$$;

-- What closed_registry() returns: a line for it, and one for each row, in its order.
CREATE FUNCTION twin.closed(closed jsonb) RETURNS text LANGUAGE sql
AS $$
	SELECT concat_ws('|', 'closed', closed ->> 'protocol', twin.id((closed ->> 'incarnation')::uuid), twin.id((closed ->> 'successor')::uuid),
		twin.ids(ARRAY(SELECT jsonb_array_elements_text(closed -> 'taken_over')::uuid)), twin.us((closed ->> 'created_at')::bigint),
		closed ->> 'generation', twin.us((closed ->> 'floor')::bigint), closed ->> 'history')
		|| coalesce((SELECT string_agg(E'\n' || concat_ws('|', 'lease', twin.id(w.token), twin.id(w.start), w.granted_by, w.last_call, w.kind,
			w.name, w.system_identifier, w.host_name, w.port, w.timeline, twin.id(w.incarnation), w.generation, w.fixed, w.node_number,
			coalesce(w.datacenter_id, -1), w.worker_id, coalesce(w.clock, -1), w.layout, w.greatest_id, twin.us(w.launched_at),
			twin.us(w.starts_at), twin.us(w.leased_until), twin.us(w.renewed_at), twin.us(w.closed_at)), '' ORDER BY e.nr)
		FROM jsonb_array_elements(closed -> 'rows') WITH ORDINALITY AS e (r, nr),
			jsonb_to_record(e.r) AS w (token uuid, start uuid, granted_by bigint, last_call bigint, kind text,
			name text, system_identifier bigint, host_name text, port integer, timeline bigint, incarnation uuid, generation integer,
			fixed boolean, node_number bigint, datacenter_id integer, worker_id integer, clock integer, layout text,
			greatest_id bigint, launched_at bigint, starts_at bigint, leased_until bigint, renewed_at bigint, closed_at bigint)), '')
$$;

-- All of the tables, a line for each row.
CREATE FUNCTION twin.tables() RETURNS SETOF text LANGUAGE sql
AS $$
	SELECT concat_ws('|', 'registry', twin.id(incarnation), twin.us(created_at), system_identifier, generation,
		array_to_string(ARRAY(SELECT c.entry FROM unnest(counted) AS c (entry) ORDER BY c.entry COLLATE "C"), ' '),
		twin.us(counted_at), twin.us(starts_at), twin.ids(taken_over), twin.ids(ARRAY(SELECT DISTINCT t.told FROM unnest(told) AS t (told))),
		twin.id(successor), twin.us(closed_at),
		CASE WHEN database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()) THEN 'here' ELSE 'copied' END)
	FROM snowflake.registry
	UNION ALL
	SELECT concat_ws('|', 'cluster', uses, twin.id(incarnation)) FROM snowflake.cluster
	UNION ALL
	(SELECT concat_ws('|', 'lease', twin.id(token), twin.id(start), granted_by, last_call, kind, name, system_identifier, host_name, port,
		timeline, twin.id(incarnation), generation, fixed, node_number, coalesce(datacenter_id, -1), worker_id, coalesce(clock, -1),
		layout, greatest_id, twin.us(launched_at), twin.us(starts_at), twin.us(leased_until), twin.us(renewed_at), twin.us(closed_at))
	FROM snowflake.worker_node ORDER BY twin.id(token))
$$;
