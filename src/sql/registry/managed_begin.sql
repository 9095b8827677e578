/* managed_registry--@EXTVERSION@.sql: made of files in src/sql/registry, in the order of the Makefile */

--
-- The registry without CREATE EXTENSION, in a database whose owner is no superuser:
-- psql -1 -f managed_registry--@EXTVERSION@.sql.  "Managed PostgreSQL" in doc/operations.md says what it lacks.
--
\set ON_ERROR_STOP on
-- CREATE EXTENSION would do it: else a function or operator in a schema of the owner's path, where others may
-- create, could take the place of PostgreSQL's.
SET search_path = pg_catalog, pg_temp;
