/* managed_registry--@EXTVERSION@.sql: made of files in src/registry.sql, in the order of the Makefile */

--
-- The registry without CREATE EXTENSION, in a database whose owner is no superuser:
-- psql -1 -f managed_registry--@EXTVERSION@.sql.  "Managed PostgreSQL" in doc/operations.md says what it lacks.
--
\set ON_ERROR_STOP on
