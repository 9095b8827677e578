--
-- twin.sql
--	  What test/t/042_twin.pl makes in a database before it compares the functions of
--	  lease.sql with their twin in C: clock_timestamp() and gen_random_uuid() become
--	  functions of settings, in the functions as they are installed.  random() stays:
--	  the twin takes over the numbers that it has chosen.
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

-- A uuid is its last 64 bits, and 0 is NULL.
CREATE FUNCTION twin.uuid(id bigint) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN id <> 0 THEN lpad(to_hex(id), 32, '0')::uuid END $$;
CREATE FUNCTION twin.id(uuid uuid) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT coalesce(('x' || right(replace(uuid::text, '-', ''), 16))::bit(64)::bigint, 0) $$;

-- The clock stands still in a call.
CREATE FUNCTION twin.clock() RETURNS timestamptz LANGUAGE sql
AS $$ SELECT twin.at(current_setting('twin.clock')::bigint) $$;
CREATE FUNCTION twin.new_uuid() RETURNS uuid LANGUAGE sql
AS $$ SELECT twin.uuid(set_config('twin.uuid', (current_setting('twin.uuid')::bigint + 1)::text, false)::bigint) $$;

-- To show that the comparison can fail: texts of functions, and what stands there instead.
CREATE TABLE twin.plants (function text, this text, that text);

-- After each CREATE EXTENSION
CREATE PROCEDURE twin.change_functions() LANGUAGE plpgsql
AS $$
DECLARE
	definition text;
	num_changed integer := 0;
	plant twin.plants;
BEGIN
	FOR definition IN SELECT pg_get_functiondef(p.oid) FROM pg_proc AS p
		WHERE p.pronamespace = 'snowflake'::regnamespace AND p.prosrc ~ 'clock_timestamp|gen_random_uuid'
	LOOP
		definition := replace(definition, 'clock_timestamp()', 'twin.clock()');
		definition := replace(definition, 'gen_random_uuid()', 'twin.new_uuid()');
		EXECUTE definition;
		num_changed := num_changed + 1;
	END LOOP;
	ASSERT num_changed >= 8, num_changed;
	ALTER TABLE snowflake.worker_node ALTER token SET DEFAULT twin.new_uuid();

	FOR plant IN SELECT * FROM twin.plants
	LOOP
		definition := pg_get_functiondef(('snowflake.' || plant.function)::regproc);
		ASSERT strpos(definition, plant.this) > 0, plant.function || ' does not have: ' || plant.this;
		EXECUTE replace(definition, plant.this, plant.that);
	END LOOP;
END
$$;

CREATE FUNCTION twin.ends(node_numbers bigint[], ends timestamptz[], layouts text[]) RETURNS text LANGUAGE sql
AS $$
	SELECT array_to_string(ARRAY(SELECT concat_ws(' ', n, twin.us(e), l) FROM unnest(node_numbers, ends, layouts) AS u (n, e, l)), ';')
$$;

-- All of the tables, a line for each row.
CREATE FUNCTION twin.tables() RETURNS SETOF text LANGUAGE sql
AS $$
	SELECT concat_ws('|', 'registry', twin.id(incarnation), twin.us(created_at), generation,
		array_to_string(ARRAY(SELECT c.entry FROM unnest(counted) AS c (entry) ORDER BY c.entry COLLATE "C"), ' '),
		system_identifier, twin.us(starts_at),
		CASE WHEN database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()) THEN 'here' ELSE 'copied' END)
	FROM snowflake.registry
	UNION ALL
	SELECT concat_ws('|', 'cluster', uses, twin.id(incarnation)) FROM snowflake.cluster
	UNION ALL
	(SELECT concat_ws('|', 'lease', twin.id(token), twin.id(start), granted_by, last_call, system_identifier, host_name, port,
		timeline, twin.id(incarnation), node_number, coalesce(datacenter_id, -1), worker_id, coalesce(clock, -1), layout,
		twin.us(launched_at), twin.us(starts_at), twin.us(leased_until), twin.us(renewed_at), twin.us(closed_at))
	FROM snowflake.worker_node ORDER BY twin.id(token))
$$;
