/* snowflake--@EXTVERSION@.sql: made of the files in src/sql/snowflake, in the order of the Makefile */

\echo Use "CREATE EXTENSION snowflake" to load this file. \quit
