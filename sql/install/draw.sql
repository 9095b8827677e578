--
-- Drawing
--
CREATE FUNCTION snowflake_nextval() RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_nextval() IS
'next id of the server''s layout: unique, increasing, made of the time, the node number and a sequence';

CREATE FUNCTION snowflake_nextval_batch(n integer) RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval_batch'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 1000;
COMMENT ON FUNCTION snowflake_nextval_batch(integer) IS
'next n ids of the server''s layout, increasing; n from 1 to 1,000,000';

CREATE FUNCTION snowflake_nextval(generator text) RETURNS bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval_generator'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_nextval(text) IS
'next id of the layout of a named generator of this database';

CREATE FUNCTION snowflake_nextval_batch(n integer, generator text) RETURNS SETOF bigint
AS 'MODULE_PATHNAME', 'snowflake_nextval_batch_generator'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 1000;
COMMENT ON FUNCTION snowflake_nextval_batch(integer, text) IS
'next n ids of the layout of a named generator, increasing; n from 1 to 1,000,000';

