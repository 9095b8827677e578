--
-- The time of an id where the extension is not
--

-- The id is a bigint, but a text for "spreadsheet": a cell has no more than 53 bits of a number.  There its last ten
-- digits, b, are split from the others, a: 10^10 has ten factors of 2, so a's last bits are enough to find the last
-- 24 bits of the id, and BITAND, which takes 48 bits, finds them.  Without them all terms are exact.
CREATE FUNCTION snowflake_time_expression("column" text, layout text, dialect text DEFAULT 'postgresql') RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET quote_all_identifiers = off
SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
AS $$
DECLARE
	v_tick numeric;			-- microseconds
	v_epoch timestamp;		-- UTC
	v_since_1970 numeric;	-- microseconds
	v_bits integer;			-- of the timestamp, which is the highest field
	v_shift integer;
	v_ticks text;
	v_low integer;
	v_low_bits text;
BEGIN
	SELECT trunc(extract(epoch FROM l.tick) * 1000000), l.epoch, trunc(extract(epoch FROM l.epoch) * 1000000), f.bits, f.shift
	INTO STRICT v_tick, v_epoch, v_since_1970, v_bits, v_shift
	FROM snowflake_internal.layout(layout) AS l, snowflake_internal.layout_fields(layout) AS f WHERE f.field = 'timestamp';
	CASE dialect
	WHEN 'postgresql' THEN
		v_ticks := format('(%I >> %s)', "column", v_shift);
		-- a product of an interval is rounded to 53 bits; one of 1024 ticks ends with ten zeros more
		IF 2::numeric ^ v_bits * v_tick <= 2::numeric ^ 53 THEN
			v_ticks := format('%s * interval ''%s us''', v_ticks, v_tick);
		ELSE
			v_ticks := format('(%I >> %s) * interval ''%s us'' + (%s & 1023) * interval ''%s us''', "column", v_shift + 10,
				v_tick * 1024, v_ticks, v_tick);
		END IF;
		RETURN format('((timestamp %L + %s) AT TIME ZONE ''UTC'')', v_epoch, v_ticks);
	WHEN 'clickhouse' THEN
		RETURN format('fromUnixTimestamp64Micro(toInt64(%s + bitShiftRight(%s, %s) * %s), ''UTC'')', v_since_1970,
			'`' || replace(replace("column", '\', '\\'), '`', '\`') || '`', v_shift, v_tick);
	WHEN 'duckdb' THEN
		RETURN format('make_timestamp(%s + (%I >> %s) * %s)', v_since_1970, "column", v_shift, v_tick);
	WHEN 'spreadsheet' THEN
		IF v_bits > 53 OR "column" !~ '^\$?[A-Za-z]{1,3}\$?[1-9][0-9]{0,6}$' THEN
			RAISE EXCEPTION 'there is no expression for a spreadsheet'
				USING ERRCODE = 'invalid_parameter_value',
				DETAIL = format('The cell is "%s"; the timestamp has %s bits.', "column", v_bits),
				HINT = 'Give a cell, such as A2, and a layout with at most 53 bits of timestamp.';
		END IF;
		v_low := least(v_shift, 24);
		v_low_bits := 'VALUE(RIGHT(%2$s,10))';
		IF v_low > 10 THEN
			v_low_bits := 'BITAND(%1$s,' || (1 << (v_low - 10)) - 1 || ')*10000000000+' || v_low_bits;
		END IF;
		v_ticks := format('(%1$s*10000000000+(VALUE(RIGHT(%2$s,10))-BITAND(' || v_low_bits || ',%3$s)))/%4$s',
			format('VALUE("0"&LEFT(%1$s,MAX(LEN(%1$s)-10,0)))', "column"), "column", (1 << v_low) - 1,
			trunc(2::numeric ^ v_shift));
		IF v_shift > v_low THEN
			v_ticks := format('INT(%s)', v_ticks);
		END IF;
		RETURN format('=%s*%s/86400000000+%s', v_ticks, v_tick, trim_scale(round(25569 + v_since_1970 / 86400000000, 12)));
	ELSE
		RAISE EXCEPTION 'dialect "%" is not known', dialect
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = 'Known are postgresql, clickhouse, duckdb and spreadsheet.',
			HINT = 'Where integers have 64 bits, the one for duckdb may do.';
	END CASE;
END
$$;
COMMENT ON FUNCTION snowflake_time_expression(text, text, text) IS
'the arithmetic that gives the time of an id where the extension is not: postgresql, clickhouse, duckdb or spreadsheet';
