--
-- Default layouts.  A call names its layout by its canonical text, and all that calls do is to compare it.  Only
-- orders and people have to understand it: an id is the tick, counted from the epoch, and below it "shift" bits
-- of other fields.  The tick is in microseconds.
--
CREATE TYPE snowflake.layout AS (epoch timestamptz, tick bigint, timestamp_bits integer, shift integer);

-- NULL if the text is not canonical: all parts, fields from high to low, the tick in the largest unit that makes it
-- whole, the epoch in UTC, with no fraction of a second, or three digits of it, or six.
CREATE FUNCTION snowflake.layout_of(p_definition text) RETURNS snowflake.layout
LANGUAGE plpgsql STABLE
AS $$
DECLARE
	v_part CONSTANT text[] := regexp_match(p_definition COLLATE "C",
		'^timestamp ([1-9][0-9]?)((?:, (?:datacenter|worker|clock|sequence) [1-9][0-9]?)+), '
		'tick ([1-9][0-9]{0,6})(s|(?<!000)[mu]s), '
		'epoch ([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]'
		'(?:[.](?!000Z)[0-9]{3}|[.][0-9]{3}(?!000)[0-9]{3})?Z)$');
	v_fields text[];
	v_layout snowflake.layout;
BEGIN
	SELECT array_agg(f.part[1]), sum(f.part[2]::integer) INTO v_fields, v_layout.shift
	FROM regexp_matches(v_part[2] COLLATE "C", '([a-z]+) ([0-9]+)', 'g') AS f (part)
	HAVING count(*) = count(DISTINCT f.part[1]) AND max(f.part[2]::integer) <= 31;
	v_layout.timestamp_bits := v_part[1]::integer;
	v_layout.tick := v_part[3]::bigint * CASE v_part[4] WHEN 's' THEN 1000000 WHEN 'ms' THEN 1000 ELSE 1 END;
	v_layout.epoch := v_part[5]::timestamptz;
	IF v_fields @> '{worker,sequence}' AND v_layout.shift + v_layout.timestamp_bits <= 63
		AND v_layout.tick <= 1000000 THEN
		RETURN v_layout;
	END IF;
	RETURN NULL;
EXCEPTION WHEN datetime_field_overflow OR invalid_datetime_format THEN
	RETURN NULL;
END
$$;

-- The greatest id of the ticks that end at or before a time; -1 if there is no such tick.
CREATE FUNCTION snowflake.greatest_id(p_until timestamptz, p_layout snowflake.layout) RETURNS bigint
LANGUAGE sql STABLE
AS $$
	SELECT CASE WHEN t.ticks <= 0 THEN -1
		ELSE (t.ticks - 1) << p_layout.shift | (1::bigint << p_layout.shift) - 1 END
	FROM (SELECT least(floor(extract(epoch FROM p_until - p_layout.epoch) * 1000000 / p_layout.tick),
		1::bigint << p_layout.timestamp_bits)::bigint AS ticks) AS t
$$;

-- The greatest node number: datacenter, worker and clock of the layout.
CREATE FUNCTION snowflake.greatest_number(p_definition text) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$
	SELECT (1::bigint << sum(f.part[1]::integer)::integer) - 1
	FROM regexp_matches(p_definition COLLATE "C", '(?:datacenter|worker|clock) ([0-9]+)', 'g') AS f (part)
$$;

-- When the first tick begins whose ids are all greater than an id; infinity if there is no such tick before the year
-- 10000.
CREATE FUNCTION snowflake.first_time_above(p_id bigint, p_layout snowflake.layout) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
	SELECT CASE WHEN p_id < 0 THEN p_layout.epoch
		WHEN t.tick >= 1::bigint << p_layout.timestamp_bits OR t.begins >= 253402300800000000 THEN 'infinity'
		ELSE snowflake.time_of(t.begins::bigint) END
	FROM (SELECT (p_id >> p_layout.shift) + 1 AS tick,
		least(snowflake.microseconds(p_layout.epoch) + ((p_id >> p_layout.shift) + 1)::numeric * p_layout.tick,
			253402300800000000) AS begins) AS t
$$;

-- Refuses a layout that has no tick after a time.
CREATE FUNCTION snowflake.refuse_full(p_definition text, p_time timestamptz) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
	SELECT snowflake.refusal('2200H', format('the timestamp field of layout "%s" is full', p_definition),
		format('Its last tick ends at or before %s.', snowflake.time_text(p_time)), 'Choose another layout, or correct the clock.')
	FROM snowflake.layout_of(p_definition) AS l
	WHERE snowflake.first_time_above(snowflake.greatest_id(p_time, l), l) = 'infinity'
$$;

-- From when on a layout can take the place of another one, whose leases end within p_window until then: its ids are
-- greater than all that were allowed, or are so 2 s later, as ticks are at most a second; infinity: never.  If they
-- count up faster, each try comes nearer to that time.
CREATE FUNCTION snowflake.time_to_change(p_greatest_id bigint, p_window interval, p_old snowflake.layout,
	p_new snowflake.layout) RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
DECLARE
	v_at timestamptz := snowflake.first_time_above(p_greatest_id, p_new) - p_window;
	v_later timestamptz;
BEGIN
	FOR v_try IN 1 .. 64 LOOP
		EXIT WHEN v_at = 'infinity';
		v_later := snowflake.first_time_above(
			greatest(p_greatest_id, snowflake.greatest_id(v_at + p_window, p_old)), p_new) - p_window;
		IF v_later <= v_at + interval '2 s' THEN
			RETURN v_at;
		END IF;
		v_at := v_later;
	END LOOP;
	RETURN 'infinity';
END
$$;

-- From when on ids are greater than those that leases under other default layouts allowed; NULL if there were none, or
-- no id is greater.
CREATE FUNCTION snowflake.start_above(p_cluster snowflake.cluster) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
	SELECT nullif(snowflake.first_time_above(p_cluster.greatest_id, snowflake.layout_of(p_cluster.layout)), 'infinity')
	WHERE p_cluster.greatest_id >= 0
$$;
