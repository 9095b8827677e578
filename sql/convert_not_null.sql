-- A child whose NOT NULL has another name than its parent's: since PostgreSQL 18, where these are
-- constraints with names, the type of the parent's column cannot change.  Before that nothing is
-- in the way (convert_not_null_1.out is that of PostgreSQL 18).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
RESET client_min_messages;
\pset format unaligned
\set SHOW_CONTEXT never
CREATE TABLE parent (id serial PRIMARY KEY, note text);
CREATE TABLE child (id int NOT NULL) INHERITS (parent);
CREATE TABLE grandchild () INHERITS (child);
INSERT INTO parent (note) VALUES ('old');
INSERT INTO child (note, id) VALUES ('old', 2);
INSERT INTO grandchild (note, id) VALUES ('old', 3);
SELECT current_setting('server_version_num')::int >= 180000 AS named \gset
SELECT snowflake_convert_column('parent', 'id');
\if :named
ALTER TABLE public.parent ALTER CONSTRAINT parent_id_not_null NO INHERIT;
\endif
SELECT snowflake_convert_column('parent', 'id', dry_run => false);
\if :named
ALTER TABLE public.parent ALTER CONSTRAINT parent_id_not_null INHERIT;
\endif
-- all have it, and none takes a null
SELECT attrelid::regclass AS relation, atttypid::regtype AS type, attnotnull AS not_null
FROM pg_attribute WHERE attname = 'id' AND attrelid IN ('parent'::regclass, 'child'::regclass, 'grandchild'::regclass)
ORDER BY attrelid;
SELECT tableoid::regclass AS relation, note, id FROM parent ORDER BY id;
\if :named
-- the names are what they were; a child that inherits the constraint is not in the way
SELECT conrelid::regclass AS relation, conname AS name, coninhcount AS parents, conislocal AS own
FROM pg_constraint WHERE contype = 'n' AND conrelid IN ('parent'::regclass, 'child'::regclass, 'grandchild'::regclass)
ORDER BY conrelid;
\endif
DROP TABLE parent, child, grandchild;
-- of the same name, and inherited only
CREATE TABLE parent (id serial, note text);
CREATE TABLE child (id int CONSTRAINT parent_id_not_null NOT NULL) INHERITS (parent);
CREATE TABLE grandchild () INHERITS (child);
SELECT snowflake_convert_column('parent', 'id', dry_run => false);
DROP TABLE parent, child, grandchild;
-- a constraint that is inherited itself is to be changed where it comes from
CREATE TABLE parent (id int CONSTRAINT top NOT NULL);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE grandchild (id int CONSTRAINT own NOT NULL) INHERITS (child);
SELECT snowflake_convert_column('parent', 'id');
\if :named
ALTER TABLE public.parent ALTER CONSTRAINT top NO INHERIT;
SELECT snowflake_convert_column('parent', 'id');
ALTER TABLE public.child ALTER CONSTRAINT top NO INHERIT;
SELECT snowflake_convert_column('parent', 'id');
\endif
DROP TABLE parent, child, grandchild;
\pset format aligned
DROP EXTENSION snowflake_tools;
