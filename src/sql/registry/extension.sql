--
-- What only CREATE EXTENSION can do.  A restore makes a new incarnation, and keeps where ids end, the log and
-- where numbers come from.
--
SELECT snowflake.check_database();
-- The promotions of before are counted now: what a standby that has these tables is promoted with is one more.  Where
-- the history cannot be read, the first call counts.
SELECT snowflake.count_generation(r, pg_catalog.clock_timestamp()) FROM snowflake.registry AS r
	WHERE NOT snowflake.is_replicated();
SELECT pg_catalog.pg_extension_config_dump('snowflake.node_number', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake.worker_node', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake.cluster', '');
