--
-- What only CREATE EXTENSION can do.  A restore makes a new incarnation, and keeps the history and
-- where numbers come from.
--
SELECT snowflake.check_database();
SELECT pg_catalog.pg_extension_config_dump('snowflake.worker_node', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake.cluster', '');
