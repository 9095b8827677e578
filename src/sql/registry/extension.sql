--
-- What only CREATE EXTENSION can do.  A restore makes a new incarnation, and keeps where ids end, the log and
-- where numbers come from.
--
SELECT snowflake.check_database();
-- The promotions of before are counted now: what a standby that has these tables is promoted with is one more.  If the
-- history cannot be read, there is no extension: a failover could lose a later count, and what was granted after it.
-- An apply process that creates the extension counts, too.
ALTER TABLE snowflake.registry DISABLE TRIGGER leave_out_replicated;
SELECT snowflake.raise_refusal((snowflake.count_generation(r, pg_catalog.clock_timestamp())).refusal)
FROM snowflake.registry AS r;
ALTER TABLE snowflake.registry ENABLE ALWAYS TRIGGER leave_out_replicated, ALTER server SET NOT NULL;
SELECT pg_catalog.pg_extension_config_dump('snowflake.node_number', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake.worker_node', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake.cluster', '');
