
--
-- What the default of a converted column calls to keep the way back for snowflake_revert_column().  These
-- return the id.  No tool takes such a default for a sequence's, and the planner leaves nothing of the call but
-- the id.
--

-- A sequence that is used elsewhere stays.  As a constant in an expression it keeps its name through renames,
-- dumps and pg_upgrade, and is not dropped by mistake.  "owned": the column owned it, and will again.
CREATE FUNCTION snowflake_internal.instead_of(sequence regclass, owned boolean, id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT id';

-- The sequence of a serial or an identity is dropped, so nobody can take old numbers from it, and nothing is
-- left when the table is dropped.  What it was is kept, to make it again.
CREATE FUNCTION snowflake_internal.instead_of(former jsonb, id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT id';
