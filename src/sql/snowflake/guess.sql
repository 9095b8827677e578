
--
-- Which layout an id is of
--

-- The fields of a layout: width, lowest bit in the id, and for those that make up the node number their lowest
-- bit in that.
CREATE FUNCTION snowflake_internal.layout_fields(layout text,
	OUT field text, OUT bits integer, OUT shift integer, OUT node_shift integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'snowflake_layout_fields'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5;

-- How many bits it takes to tell a part of an id: small numbers take few (Elias gamma
-- code: twice the bits of value + 1, less one), any other the field's width; and one
-- says which of the two it is.
CREATE FUNCTION snowflake_internal.part_cost(value bigint, bits integer) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
	SELECT CASE WHEN bits = 0 THEN 0
		ELSE 1 + least(bits, 2 * pg_catalog.length(pg_catalog.ltrim((value + 1)::bit(64)::text, '0')) - 1) END
$$;

-- The candidates: the layouts in use and the presets.  "own" tells whether a layout is the
-- server's or an extra one, "since" is the first time that an id of the layout may well carry.
--
-- For most presets that is their epoch.  Two count from long before their first id:
-- Mastodon was begun in 2016 (earlier times are of posts that were imported), and of
-- liaoxuefeng's no id is known that is older than July 2013; 2012 leaves some room.
CREATE FUNCTION snowflake_internal.guess_candidates(OUT layout text, OUT definition text, OUT tick interval,
	OUT since timestamptz, OUT own text, OUT place bigint)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 20
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
BEGIN
	RETURN QUERY
	SELECT k.layout, k.definition, k.tick, greatest(k.epoch, CASE k.layout
			WHEN 'mastodon' THEN '2016-01-01 00:00:00Z'
			WHEN 'liaoxuefeng' THEN '2012-01-01 00:00:00Z' END::timestamptz),
		CASE WHEN bool_and(k.extra) THEN 'an extra layout' WHEN NOT bool_and(k.extra) THEN 'the server''s layout' END,
		min(k.place)
	FROM (SELECT u.layout, u.definition, s.tick, s.epoch, u.extra, CASE WHEN u.extra THEN 101 ELSE 100 END AS place
		FROM snowflake_internal.layouts_in_use() AS u, snowflake_internal.layout(u.definition) AS s
		UNION ALL
		SELECT s.name, s.definition, s.tick, s.epoch, NULL, s.place
		FROM snowflake_internal.layouts() WITH ORDINALITY
			AS s (name, definition, bits, tick, epoch, last_id_time, max_ids_per_second, js_safe, place)) AS k
	GROUP BY k.layout, k.definition, k.tick, k.epoch;
END
$$;

-- A layout is plausible if the id's time is an hour or more after "since" and at most an
-- hour (the greatest snowflake.max_ahead) past "at".
--
-- Of the plausible ones the first is the one in which the id is least surprising: the
-- sum of the bits that it takes to tell
--	 the time	 as one of the ticks from "since" on, recent ones being more likely: the
--				 chance grows evenly from 0 at "since" to that of "at"
--	 the number and the sequence	see part_cost()
-- less 8 for layouts in use.  A layout that reads bits of the
-- time as a number or a sequence finds them large; so layouts of different widths tell
-- apart well, and those that differ in nothing but the epoch only by the time.
CREATE FUNCTION snowflake_guess(id bigint, at timestamptz DEFAULT statement_timestamp(),
	OUT layout text, OUT "timestamp" timestamptz, OUT datacenter_id integer, OUT worker_id integer,
	OUT clock integer, OUT sequence integer, OUT surprise numeric, OUT own text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE ROWS 10
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
AS $$
DECLARE
	v_margin CONSTANT interval := '1 hour';
BEGIN
	IF $1 < 0 THEN
		RAISE EXCEPTION 'id % is negative', $1
			USING ERRCODE = 'numeric_value_out_of_range',
			DETAIL = 'The ids of every layout are from 0 to 9223372036854775807 or less.',
			HINT = 'A number of 64 bits without a sign has lost its highest bit: look into the documentation of the '
				'software that issued it.';
	END IF;
	IF NOT isfinite($2) THEN
		RAISE EXCEPTION 'the time % is not finite', $2
			USING ERRCODE = 'datetime_field_overflow',
			DETAIL = 'Ids of a later time are not plausible.',
			HINT = 'Give the time at which the id was there, or leave it out for now.';
	END IF;
	RETURN QUERY
	SELECT c.layout, p."timestamp", p.datacenter_id, p.worker_id, p.clock, p.sequence,
		round((ln(t.life / t.tick) + ln(t.life / (2 * t.age))) / ln(2.0)
			+ snowflake_internal.part_cost(n.number, n.bits)
			+ snowflake_internal.part_cost(p.sequence, n.sequence_bits)
			- CASE WHEN c.own IS NULL THEN 0 ELSE 8 END, 1) AS surprise,
		c.own
	FROM snowflake_internal.guess_candidates() AS c
		-- NULL for an id outside the layout; all that follows is NULL then, too
		CROSS JOIN LATERAL snowflake_internal.parse(
			CASE WHEN $1 <= snowflake_internal.max_id('infinity'::timestamptz, c.definition) THEN $1 END,
			c.definition) AS p
		CROSS JOIN LATERAL (
			SELECT coalesce(sum(($1 >> f.shift & (1::bigint << f.bits) - 1) << f.node_shift), 0)::bigint,
				coalesce(sum(f.bits) FILTER (WHERE f.node_shift IS NOT NULL), 0)::integer,
				max(f.bits) FILTER (WHERE f.field = 'sequence')
			FROM snowflake_internal.layout_fields(c.definition) AS f) AS n (number, bits, sequence_bits)
		-- in seconds; at least an hour where the layout is plausible
		CROSS JOIN LATERAL (SELECT extract(epoch FROM c.tick),
			extract(epoch FROM greatest($2 + v_margin - c.since, v_margin)),
			extract(epoch FROM greatest(p."timestamp" - c.since, v_margin))) AS t (tick, life, age)
	WHERE p."timestamp" BETWEEN c.since + v_margin AND $2 + v_margin
	ORDER BY 7, c.place, c.layout COLLATE "C";
END
$$;
COMMENT ON FUNCTION snowflake_guess(bigint, timestamptz) IS
'the layouts that an id may well be of, with its parts, the most plausible first';
