
--
-- The type snowflake_id: a bigint that JSON has as a string
--
-- PostgreSQL writes its own types of numbers, and domains over them, into JSON as numbers, and any other type as a
-- string, of which JavaScript reads all digits.  In all else the type is a bigint: it has the same 8 bytes, the same
-- text and binary format and, by the binary casts, the operators, indexes, hashes and functions of bigint.
--
-- Both ways the casts are implicit.  If those to the type were by assignment only, coalesce(id, 0), greatest(id, 1),
-- ARRAY[id, 0], CASE and UNION with an integer would be errors; and with a bigint they would be of type bigint, so
-- that JSON has numbers again without a word.  Now the first expression decides which of the two types it is.
--
-- No statement becomes ambiguous, because no operator, and no function for users, has an argument of the type: for
-- all of them it is a bigint.  So id = 5.0, ids && ARRAY[5] and id <@ int8range are errors, and what would mend them
-- breaks more.  With an operator of snowflake_id and numeric, bigint = numeric is ambiguous; with an implicit cast to
-- numeric, id % 10 and id = '5' are; with one to double precision, id = '5' compares doubles, and uses no index.
-- Operators of arrays and ranges would be taken for ids && '{5}' and for int8range '[1,9)' @> '[2,3)', too.
--
CREATE TYPE snowflake_id;

CREATE FUNCTION snowflake_internal.snowflake_id_in(cstring) RETURNS snowflake_id
AS 'int8in'
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION snowflake_internal.snowflake_id_out(snowflake_id) RETURNS cstring
AS 'int8out'
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION snowflake_internal.snowflake_id_recv(internal) RETURNS snowflake_id
AS 'int8recv'
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION snowflake_internal.snowflake_id_send(snowflake_id) RETURNS bytea
AS 'int8send'
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

CREATE TYPE snowflake_id (
	INPUT = snowflake_internal.snowflake_id_in,
	OUTPUT = snowflake_internal.snowflake_id_out,
	RECEIVE = snowflake_internal.snowflake_id_recv,
	SEND = snowflake_internal.snowflake_id_send,
	LIKE = pg_catalog.int8,
	CATEGORY = 'N'
);
COMMENT ON TYPE snowflake_id IS
'a bigint that JSON has as a string, so that JavaScript reads it exactly';

CREATE CAST (snowflake_id AS bigint) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (bigint AS snowflake_id) WITHOUT FUNCTION AS IMPLICIT;
-- Those of other types go by the text.  With a function of bigint they would need one of the casts above, and
-- pg_upgrade, which makes each cast by itself, would make them before it: no dependency says that.
CREATE CAST (integer AS snowflake_id) WITH INOUT AS IMPLICIT;
CREATE CAST (smallint AS snowflake_id) WITH INOUT AS IMPLICIT;
CREATE CAST (numeric AS snowflake_id) WITH INOUT AS ASSIGNMENT;
CREATE CAST (snowflake_id AS numeric) WITH INOUT AS ASSIGNMENT;
CREATE CAST (snowflake_id AS integer) WITH INOUT AS ASSIGNMENT;
