
--
-- What every role may use.  PostgreSQL gives EXECUTE on a new function to PUBLIC by default,
-- but not where ALTER DEFAULT PRIVILEGES says otherwise; the rights of the extension are
-- the same everywhere.  All other functions are revoked from PUBLIC where they are created.
--
GRANT EXECUTE ON FUNCTION
	snowflake_nextval(), snowflake_nextval(text), snowflake_next_id(), snowflake_next_id(text),
	snowflake_nextval_batch(integer), snowflake_nextval_batch(integer, text),
	snowflake_settled_id(), snowflake_settled_id(text),
	snowflake_parse(bigint), snowflake_parse(bigint, text),
	snowflake_timestamp(bigint), snowflake_timestamp(bigint, text),
	snowflake_min_id(timestamptz), snowflake_min_id(timestamptz, text),
	snowflake_max_id(timestamptz), snowflake_max_id(timestamptz, text),
	snowflake_compose(timestamptz, integer, integer, integer, integer),
	snowflake_compose(timestamptz, integer, integer, text, integer, integer),
	snowflake_layout(), snowflake_layout(text), snowflake_layouts(),
	snowflake_encode(bigint, text), snowflake_decode(text, text),
	snowflake_mask(bigint, bytea), snowflake_unmask(bigint, bytea),
	snowflake_range(timestamptz, timestamptz), snowflake_range(timestamptz, timestamptz, text),
	snowflake_partition_bounds(timestamptz, timestamptz, interval),
	snowflake_partition_bounds(timestamptz, timestamptz, interval, text),
	snowflake_create_partitions(regclass, timestamptz, timestamptz, interval, text, boolean),
	snowflake_drop_partitions(regclass, timestamptz, text, boolean),
	snowflake_within(bigint, timestamptz, timestamptz), snowflake_within(bigint, timestamptz, timestamptz, text),
	snowflake_time_expression(text, text, text),
	snowflake_guess(bigint, timestamptz),
	snowflake_backfill_id(timestamptz), snowflake_backfill_id(timestamptz, text),
	snowflake_backfill_id(timestamptz, text, integer, integer),
	pg_stat_snowflake()
TO PUBLIC;
GRANT SELECT ON pg_stat_snowflake TO PUBLIC;
GRANT USAGE ON TYPE snowflake_id TO PUBLIC;

-- Inner functions run with the rights of the caller, or of a role that it may SET ROLE to.
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA snowflake_internal TO PUBLIC;
