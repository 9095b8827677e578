/* snowflake_registry--@EXTVERSION@.sql: made of the files in src/sql/registry, in the order of the Makefile */

\echo Use "CREATE EXTENSION snowflake_registry" to load this file. \quit

