/* snowflake_tools--@EXTVERSION@.sql: made of the files in src/sql/tools, in the order of the Makefile */

\echo Use "CREATE EXTENSION snowflake_tools" to load this file. \quit
