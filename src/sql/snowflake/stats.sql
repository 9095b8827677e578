
--
-- Monitoring
--
CREATE FUNCTION pg_stat_snowflake(
	OUT layout text, OUT state text, OUT detail text, OUT worker_id_from text, OUT registry text,
	OUT node_number bigint, OUT datacenter_id integer, OUT worker_id integer,
	OUT leased_until timestamptz, OUT last_id bigint, OUT ahead interval,
	OUT max_ahead_seen interval, OUT ids_issued bigint, OUT sequence_overflows bigint,
	OUT clock_rollbacks bigint, OUT waits bigint, OUT wait_time interval,
	OUT worker_switches bigint, OUT lease_renewals bigint, OUT lease_failures bigint,
	OUT ends_at timestamptz, OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pg_stat_snowflake'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 1;
COMMENT ON FUNCTION pg_stat_snowflake() IS
'the rows of the view pg_stat_snowflake';

CREATE VIEW pg_stat_snowflake AS SELECT * FROM pg_stat_snowflake();
COMMENT ON VIEW pg_stat_snowflake IS
'state, lease and counters of each layout in use; last_id, detail and registry are for members of pg_read_all_stats';

CREATE FUNCTION pg_stat_snowflake_reset() RETURNS void
AS 'MODULE_PATHNAME', 'pg_stat_snowflake_reset'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION pg_stat_snowflake_reset() IS
'sets the counters of pg_stat_snowflake to zero';
REVOKE EXECUTE ON FUNCTION pg_stat_snowflake_reset() FROM PUBLIC;
