-- New ids for the existing values of a key, and for what references it by each kind of foreign key.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
-- the first ids of a server start max_ahead after the creation of the table: until then
SELECT pg_sleep(extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp()) + 0.1) AS slept \gset
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE ROLE regress_snowflake_owner;
CREATE ROLE regress_snowflake_other;
CREATE SCHEMA keys;
GRANT ALL ON SCHEMA keys TO regress_snowflake_owner, regress_snowflake_other;
SET search_path = keys, public;
\set SHOW_CONTEXT never
\pset format unaligned
\pset null '-'

--
-- Each kind of foreign key.  Afterwards the age of a row, a minute for each of its old numbers, is in
-- its id and in all that reference it.
--
CREATE TABLE person (nr bigint PRIMARY KEY DEFAULT snowflake_nextval(), born timestamptz NOT NULL, tenant int NOT NULL DEFAULT 1,
	parent bigint REFERENCES person DEFERRABLE INITIALLY DEFERRED, boss bigint, UNIQUE (tenant, nr),
	FOREIGN KEY (tenant, boss) REFERENCES person (tenant, nr), CHECK (parent <> nr AND boss <> nr));
CREATE TABLE child (extra text) INHERITS (person);
ALTER TABLE child ADD PRIMARY KEY (nr);
CREATE TABLE child_note (child bigint UNIQUE REFERENCES child ON DELETE CASCADE);
CREATE TABLE detail (person bigint PRIMARY KEY REFERENCES person ON UPDATE RESTRICT ON DELETE RESTRICT);
CREATE TABLE of_detail (person bigint REFERENCES detail (person) ON UPDATE SET NULL, other bigint);
ALTER TABLE of_detail ADD FOREIGN KEY (other) REFERENCES person NOT VALID;
CREATE TABLE part (id int, person bigint REFERENCES person, PRIMARY KEY (id)) PARTITION BY HASH (id);
CREATE TABLE part_0 PARTITION OF part FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE part_1 (person bigint, gone int, id int NOT NULL);		-- other attribute numbers
ALTER TABLE part_1 DROP COLUMN gone;
ALTER TABLE part ATTACH PARTITION part_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
-- rows go to another partition
CREATE TABLE moved (person bigint REFERENCES person) PARTITION BY RANGE (person);
CREATE TABLE moved_old PARTITION OF moved FOR VALUES FROM (0) TO (1000);
CREATE TABLE moved_new PARTITION OF moved FOR VALUES FROM (1000) TO (MAXVALUE);
CREATE TABLE "Odd ""' %s $$ -- Table" ("I'd %I; DROP" bigint CONSTRAINT "a ' b" REFERENCES person);
COMMENT ON CONSTRAINT "a ' b" ON "Odd ""' %s $$ -- Table" IS 'its ''comment''';
CREATE DOMAIN person_id AS bigint CHECK (VALUE > 0);
CREATE TABLE by_domain (person person_id REFERENCES person);
INSERT INTO person (nr, born) SELECT n, '2024-01-01 00:00Z'::timestamptz + (100 - n) * interval '1 min' FROM generate_series(1, 20) AS n;
UPDATE person SET parent = 21 - nr WHERE nr < 20 AND nr % 3 = 0;
UPDATE person SET boss = 1 + nr % 19 WHERE nr % 4 = 0;
INSERT INTO child (nr, born) SELECT n, '2024-01-01 00:00Z'::timestamptz + (100 - n) * interval '1 min' FROM generate_series(30, 33) AS n;
INSERT INTO child_note SELECT nr FROM child;
INSERT INTO detail SELECT n FROM generate_series(1, 5) AS n;
INSERT INTO of_detail VALUES (1, 7), (2, NULL), (NULL, 8), (5, 5);
INSERT INTO part SELECT n, n FROM generate_series(1, 8) AS n;
INSERT INTO moved VALUES (1), (2);
INSERT INTO "Odd ""' %s $$ -- Table" VALUES (3);
INSERT INTO by_domain VALUES (4);
INSERT INTO person (born) VALUES ('2024-02-01 00:00Z');		-- has an issued id
CREATE VIEW public.minutes AS
SELECT 100 - extract(epoch FROM snowflake_timestamp(id, 'twitter') - '2024-01-01 00:00Z') / 60 AS nr, place, id FROM (
	SELECT nr AS id, tableoid::regclass::text || '.nr' AS place FROM person UNION ALL SELECT parent, 'parent' FROM person UNION ALL SELECT boss, 'boss' FROM person
	UNION ALL SELECT child, 'child_note' FROM child_note UNION ALL SELECT person, 'detail' FROM detail UNION ALL SELECT person, 'of_detail' FROM of_detail
	UNION ALL SELECT other, 'other' FROM of_detail UNION ALL SELECT person, tableoid::regclass::text FROM part
	UNION ALL SELECT person, tableoid::regclass::text FROM moved UNION ALL SELECT "I'd %I; DROP", 'odd' FROM "Odd ""' %s $$ -- Table"
	UNION ALL SELECT person, 'domain' FROM by_domain) AS r WHERE id IS NOT NULL AND id < snowflake_min_id('2024-06-01', 'twitter');
CREATE TEMPORARY TABLE constraints_before AS SELECT conrelid::regclass, conname, conparentid <> 0 AS copied, convalidated,
	pg_get_constraintdef(oid), obj_description(oid) FROM pg_constraint WHERE connamespace = 'keys'::regnamespace AND contype = 'f' AND conparentid = 0;

SELECT step, statement FROM snowflake_rekey_column('person', 'nr', 'born') WHERE statement IS NOT NULL;
SELECT finding FROM snowflake_rekey_column('person', 'nr', 'born', dry_run => NULL) WHERE finding IS NOT NULL;
SELECT count(*) FROM person WHERE nr < 100;
SELECT count(statement) FROM snowflake_rekey_column('person', 'nr', 'born', dry_run => false);
SELECT place, string_agg(round(nr)::text, ' ' ORDER BY nr) FROM minutes GROUP BY 1 ORDER BY place COLLATE "C";
SELECT count(*), min(old_id), max(old_id) FROM person_nr_rekeyed;
SELECT bool_and(p.born = snowflake_timestamp(m.new_id)) FROM person_nr_rekeyed AS m JOIN person AS p ON p.nr = m.new_id;
SELECT count(*), min(snowflake_timestamp(nr)) > now() - interval '1 h' AS issued FROM person WHERE born = '2024-02-01 00:00Z';
SELECT * FROM constraints_before EXCEPT SELECT conrelid::regclass, conname, conparentid <> 0, convalidated, pg_get_constraintdef(oid), obj_description(oid)
FROM pg_constraint;
-- once is enough; and all rows if asked, whose ids are those of an earlier call, but for another part
SELECT count(*) FROM snowflake_rekey_column('person', 'nr', 'born', dry_run => false);
SELECT statement FROM snowflake_rekey_column('person', 'nr', 'born', below => 9223372036854775807) WHERE step < 3;
SELECT count(statement) FROM snowflake_rekey_column('person', 'nr', 'born + interval ''1 min''', below => 9223372036854775807, dry_run => false);
\echo :LAST_ERROR_SQLSTATE
SELECT count(statement) FROM snowflake_rekey_column('person', 'nr', 'born', below => 9223372036854775807, part => 1, parts => 64, dry_run => false);
SELECT bool_and(snowflake_timestamp(nr) = born AND nr % 4096 % 64 = 1) FROM person;
SELECT count(*) FROM person_nr_rekeyed1;
DROP TABLE person_nr_rekeyed, person_nr_rekeyed1;
-- keys are enforced
INSERT INTO detail VALUES (1);
\echo :LAST_ERROR_SQLSTATE
BEGIN;
INSERT INTO person (born, parent) VALUES (now(), 1);
COMMIT;
\echo :LAST_ERROR_SQLSTATE

--
-- By an ordinary role; triggers do not fire, and are as they were
--
CREATE TABLE item (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), at date NOT NULL);
CREATE TABLE item_note (item bigint REFERENCES item);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'fired'; END $$;
CREATE TRIGGER plain BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER "Always" AFTER UPDATE ON item_note EXECUTE FUNCTION refuse();
ALTER TABLE item_note ENABLE ALWAYS TRIGGER "Always";
CREATE TRIGGER replica AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION refuse();
ALTER TABLE item ENABLE REPLICA TRIGGER replica;
CREATE TRIGGER off AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION refuse();
ALTER TABLE item DISABLE TRIGGER off;
INSERT INTO item SELECT n, '2024-03-01'::date - n FROM generate_series(-2, 3) AS n;
INSERT INTO item_note VALUES (3), (3), (-2);
ALTER TABLE item ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON item USING (id = 1);
ALTER TABLE item OWNER TO regress_snowflake_owner;
ALTER TABLE item_note OWNER TO regress_snowflake_owner;
CREATE TEMPORARY TABLE triggers_before AS SELECT tgrelid, tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal;
SET ROLE regress_snowflake_owner;
SELECT count(statement), count(finding) FROM snowflake_rekey_column('item', 'id', 'at', dry_run => false);
SELECT id = new_id AS same, at, snowflake_timestamp(id), old_id, (SELECT count(*) FROM item_note WHERE item = id)
FROM item LEFT JOIN item_id_rekeyed ON new_id = id ORDER BY id;
RESET ROLE;
SELECT tgrelid, tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal EXCEPT SELECT * FROM triggers_before;
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'item_id_rekeyed'::regclass;
DROP TABLE item_id_rekeyed;
-- the table of ids belongs to the owner, whoever calls
UPDATE item_note SET item = NULL;
\echo :LAST_ERROR_SQLSTATE
ALTER TABLE item DISABLE TRIGGER plain;
INSERT INTO item VALUES (7, '2023-01-01');
SET session_replication_role = replica;
SELECT statement FROM snowflake_rekey_column('item', 'id', 'at', dry_run => false) WHERE step = 2;
RESET session_replication_role;
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'item'::regclass AND NOT tgisinternal ORDER BY tgname;
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'item_id_rekeyed'::regclass;
DROP TABLE item_id_rekeyed;

--
-- Refused, with nothing changed
--
INSERT INTO item VALUES (8, '2023-01-01'), (9, '2999-01-01');
SELECT snowflake_rekey_column('item', 'id', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_rekey_column('item', 'id', 'at', part => NULL);
SELECT snowflake_rekey_column('item', 'nothing', 'at');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_rekey_column('item', 'id', 'nothing');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_rekey_column('item', 'id', 'id');
SELECT snowflake_rekey_column('item', 'id', 'now() FROM');
SELECT snowflake_rekey_column('item', 'id', 'max(at)');
-- a text that is no time, a time that there is not, a failing expression, more than one row
ALTER TABLE item ADD note text DEFAULT 'note';
SELECT snowflake_rekey_column('item', 'id', 'note');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_rekey_column('item', 'id', 'replace(note, ''note'', ''2024-02-30'')');
SELECT snowflake_rekey_column('item', 'id', 'at + 1 / (id - id)::int');
SELECT snowflake_rekey_column('item', 'id', '(SELECT i.at FROM item AS i)');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_rekey_column('item', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_rekey_column('item', 'id', 'nullif(at, ''2999-01-01'')');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_rekey_column('item', 'id', 'least(at, ''2001-01-01'')');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_rekey_column('item', 'id', 'least(at, now())', part => 5, parts => 5);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_rekey_column('item', 'id', 'least(at, now())', 'nothing');
SELECT snowflake_rekey_column('item', 'id', 'least(at, now())', 'js53');
\echo :LAST_ERROR_SQLSTATE
SET ROLE regress_snowflake_other;
SELECT snowflake_rekey_column('item', 'id', 'least(at, now())');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
ALTER TABLE item FORCE ROW LEVEL SECURITY;
SET ROLE regress_snowflake_owner;
SELECT snowflake_rekey_column('item', 'id', 'least(at, now())');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
ALTER TABLE item NO FORCE ROW LEVEL SECURITY;
CREATE RULE no_update AS ON UPDATE TO item_note DO INSTEAD NOTHING;
ALTER TABLE item_note ENABLE REPLICA RULE no_update;
SELECT snowflake_rekey_column('item', 'id', 'least(at, now())');
\echo :LAST_ERROR_SQLSTATE
DROP RULE no_update ON item_note;
-- an owner who has revoked rights from himself, as whom the tables are read and changed
BEGIN;
REVOKE UPDATE ON item_note FROM regress_snowflake_owner;
SAVEPOINT before;
SELECT snowflake_rekey_column('item', 'id', 'least(at, now())');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO before;
GRANT UPDATE (item) ON item_note TO regress_snowflake_owner;
SELECT count(statement) FROM snowflake_rekey_column('item', 'id', 'least(at, now())');
REVOKE SELECT ON item_note FROM regress_snowflake_owner;
\set VERBOSITY terse
SELECT snowflake_rekey_column('item', 'id', 'least(at, now())');
\set VERBOSITY default
ROLLBACK;
-- the table of ids is made in the schema of the key alone
BEGIN;
CREATE SCHEMA closed;
GRANT USAGE ON SCHEMA closed TO regress_snowflake_owner;
CREATE TABLE closed.tag (item bigint);
ALTER TABLE closed.tag OWNER TO regress_snowflake_owner;
SELECT statement FROM snowflake_rekey_column('item', 'id', 'least(at, now())', also => '{closed.tag.item}') WHERE statement ~ 'tag';
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT snowflake_rekey_column('item', 'id', 'least(at, now())', dry_run => false);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
-- columns
CREATE TABLE narrow (id int PRIMARY KEY, at date);
SELECT snowflake_rekey_column('narrow', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
CREATE TABLE serial (id bigserial PRIMARY KEY, at date);
SELECT snowflake_rekey_column('serial', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
CREATE TABLE identity (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at date);
SELECT snowflake_rekey_column('identity', 'id', 'at');
CREATE TABLE wide (id bigint PRIMARY KEY, at date);
CREATE TABLE of_wide (n int, id bigint GENERATED ALWAYS AS (n) STORED REFERENCES wide);
SELECT snowflake_rekey_column('wide', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
DROP TABLE of_wide;
CREATE TABLE of_wide (id int REFERENCES wide);
SELECT snowflake_rekey_column('wide', 'id', 'at');
DROP TABLE of_wide;
-- a value in two tables of a hierarchy
CREATE TABLE of_wide () INHERITS (wide);
SELECT snowflake_rekey_column('of_wide', 'id', 'at');
INSERT INTO wide VALUES (1, '2024-01-01');
INSERT INTO of_wide VALUES (1, '2024-01-01');
SELECT snowflake_rekey_column('wide', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
DROP TABLE of_wide;
-- its key is that of another table, or what references it is
CREATE TABLE base (id bigint PRIMARY KEY);
INSERT INTO base VALUES (1);
ALTER TABLE wide ADD FOREIGN KEY (id) REFERENCES base;
SELECT snowflake_rekey_column('wide', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
ALTER TABLE wide DROP CONSTRAINT wide_id_fkey;
CREATE TABLE both_of (id bigint REFERENCES wide CONSTRAINT other REFERENCES base);
SELECT snowflake_rekey_column('wide', 'id', 'at');
DROP TABLE both_of;
-- all of these at once
BEGIN;
CREATE SCHEMA closed;
GRANT USAGE ON SCHEMA closed TO regress_snowflake_owner, regress_snowflake_other;
CREATE TABLE closed.refused (id bigserial PRIMARY KEY REFERENCES base, at date);
CREATE TABLE closed.with_values (id bigint PRIMARY KEY DEFAULT snowflake_nextval('js53'), at date);
CREATE RULE on_insert AS ON INSERT TO closed.refused DO ALSO NOTHING;
CREATE RULE on_update AS ON UPDATE TO closed.refused DO ALSO NOTHING;
CREATE RULE disabled AS ON UPDATE TO closed.refused DO ALSO NOTHING;
ALTER TABLE closed.refused DISABLE RULE disabled;
ALTER TABLE closed.refused ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE closed.refused OWNER TO regress_snowflake_owner;
ALTER TABLE closed.with_values OWNER TO regress_snowflake_owner;
CREATE TABLE closed.of_refused (id bigint REFERENCES closed.refused);
ALTER TABLE closed.of_refused OWNER TO regress_snowflake_other;
SAVEPOINT before;
SELECT snowflake_rekey_column('closed.refused', 'id', 'at');
ROLLBACK TO before;
SELECT snowflake_rekey_column('closed.with_values', 'id', 'at');
ROLLBACK;
-- so many rows of now that their ids would be of the future: two ids a second
BEGIN;
INSERT INTO wide SELECT n, now() FROM generate_series(2, 100) AS n;
\set VERBOSITY sqlstate
SELECT snowflake_rekey_column('wide', 'id', 'now()', 'timestamp 30, worker 2, sequence 1, tick 1s, epoch 2025-01-01T00:00:00Z', dry_run => false);
\set VERBOSITY default
ROLLBACK;
-- by SQLSTATE and message
CREATE FUNCTION refusal(query text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE query;
	RETURN 'not refused';
EXCEPTION WHEN OTHERS THEN
	RETURN format('%s: %s', SQLSTATE, regexp_replace(SQLERRM, '\d{8,}', '<id>'));
END
$$;
\pset tuples_only on
SELECT refusal(format('SELECT snowflake_rekey_column(%s)', arguments)) FROM (VALUES
	($$NULL, 'id', 'at'$$), ($$'item', 'nothing', 'at'$$), ($$'item', 'id', 'nothing'$$), ($$'item', 'id', 'note'$$),
	($$'item', 'id', 'nullif(at, ''2999-01-01'')'$$), ($$'item', 'id', 'least(at, ''2001-01-01'')'$$),
	($$'item', 'id', 'least(at, now())', part => 5, parts => 5$$), ($$'item', 'id', 'least(at, now())', parts => 5000$$),
	($$'item', 'id', 'least(at, now())', 'no such layout'$$), ($$'item', 'id', 'least(at, now())', 'js53'$$)) AS a (arguments);
BEGIN;
INSERT INTO wide SELECT n, now() FROM generate_series(2, 100) AS n;
SELECT refusal($$SELECT snowflake_rekey_column('wide', 'id', 'now()', 'timestamp 30, worker 2, sequence 1, tick 1s, epoch 2025-01-01T00:00:00Z', dry_run => false)$$);
ROLLBACK;
\pset tuples_only off
DROP FUNCTION refusal(text);
-- the table of ids does not go where the session would create tables, which its owner may not do
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_snowflake_space LOCATION '';
BEGIN;
DELETE FROM item WHERE at > now();
SET LOCAL default_tablespace = regress_snowflake_space;
SELECT statement FROM snowflake_rekey_column('item', 'id', 'at', part => 1, parts => 64, dry_run => false) WHERE step = 1;
SELECT DISTINCT reltablespace FROM pg_class WHERE relname ~ '^item_id_rekeyed';
SHOW default_tablespace;
ROLLBACK;
DROP TABLESPACE regress_snowflake_space;
RESET allow_in_place_tablespaces;
-- each step is a row, and nothing else
RESET client_min_messages;
BEGIN;
SELECT step, statement FROM snowflake_rekey_column('wide', 'id', 'at', dry_run => false) WHERE finding IS NULL;
ROLLBACK;
SET client_min_messages = warning;
-- triggers that an update of the column cannot fire are left alone, those of a row that moves are not
BEGIN;
CREATE TRIGGER inserts BEFORE INSERT ON wide FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER other BEFORE UPDATE OF at ON wide FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER this BEFORE UPDATE OF id ON wide FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TABLE of_wide (id bigint REFERENCES wide) PARTITION BY RANGE (id);
CREATE TABLE of_wide_1 PARTITION OF of_wide FOR VALUES FROM (1) TO (100);
CREATE TABLE of_wide_rest PARTITION OF of_wide DEFAULT;
INSERT INTO of_wide VALUES (1);
CREATE TRIGGER inserts BEFORE INSERT ON of_wide FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER deletes AFTER DELETE ON of_wide FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT finding FROM snowflake_rekey_column('wide', 'id', 'at', dry_run => false) WHERE finding ~ 'trigger';
SELECT tableoid::regclass FROM of_wide;
ROLLBACK;
-- a foreign key that only some of the partitions or children have, unless all with rows of their own have one
BEGIN;
CREATE TABLE of_wide (kind text, id bigint) PARTITION BY LIST (kind);
CREATE TABLE of_wide_1 (id bigint REFERENCES wide, kind text);
ALTER TABLE of_wide ATTACH PARTITION of_wide_1 FOR VALUES IN ('wide');
CREATE TABLE of_wide_2 PARTITION OF of_wide FOR VALUES IN ('base');
CREATE TABLE of_wide_3 PARTITION OF of_wide DEFAULT;
CREATE TABLE note (id bigint);
CREATE TABLE heir (FOREIGN KEY (id) REFERENCES wide) INHERITS (note);
INSERT INTO of_wide VALUES ('wide', 1), ('base', 1);
SAVEPOINT before;
SELECT snowflake_rekey_column('wide', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO before;
ALTER TABLE of_wide DETACH PARTITION of_wide_1;
ALTER TABLE note ADD FOREIGN KEY (id) REFERENCES wide;
SELECT count(statement) FROM snowflake_rekey_column('wide', 'id', 'at', dry_run => false);
ALTER TABLE of_wide ATTACH PARTITION of_wide_1 FOR VALUES IN ('wide');
SELECT kind, id = (SELECT id FROM wide) AS new FROM of_wide ORDER BY id;
ROLLBACK TO before;
DROP TABLE note, heir, of_wide_2;
ALTER TABLE of_wide_3 ADD FOREIGN KEY (id) REFERENCES wide;
SELECT statement FROM snowflake_rekey_column('wide', 'id', 'at') WHERE statement ~ 'of_wide';
-- triggers of a foreign key, on either side, that would be enabled afterwards
ALTER TABLE wide DISABLE TRIGGER ALL;
SELECT snowflake_rekey_column('wide', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO before;
DROP TABLE note, heir, of_wide;
CREATE TABLE of_wide (id bigint REFERENCES wide) PARTITION BY LIST (id);
CREATE TABLE of_wide_1 PARTITION OF of_wide DEFAULT;
ALTER TABLE of_wide_1 DISABLE TRIGGER ALL;
SELECT snowflake_rekey_column('wide', 'id', 'at');
ROLLBACK;
-- a foreign key to a partition that the row leaves, of whatever level, unless it is of the column itself
BEGIN;
CREATE TABLE of_wide (n int, id bigint REFERENCES wide) PARTITION BY RANGE (id);
CREATE TABLE of_wide_1 PARTITION OF of_wide FOR VALUES FROM (1) TO (100) PARTITION BY LIST (n);
CREATE TABLE of_wide_7 (id bigint, n int UNIQUE, UNIQUE (n, id));
ALTER TABLE of_wide_1 ATTACH PARTITION of_wide_7 FOR VALUES IN (7);
CREATE TABLE of_wide_rest PARTITION OF of_wide DEFAULT;
CREATE TABLE note (n int, id bigint, FOREIGN KEY (n, id) REFERENCES of_wide_7 (n, id));
SELECT count(statement) FROM snowflake_rekey_column('wide', 'id', 'at');
ALTER TABLE note ADD FOREIGN KEY (n) REFERENCES of_wide_7 (n) ON DELETE CASCADE;
SAVEPOINT before;
SELECT snowflake_rekey_column('wide', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO before;
ALTER TABLE of_wide DETACH PARTITION of_wide_1;
ALTER TABLE of_wide_1 ADD FOREIGN KEY (id) REFERENCES wide;
SELECT count(statement) FROM snowflake_rekey_column('wide', 'id', 'at');
ROLLBACK;
-- a foreign key to or from a column that is generated from the key
BEGIN;
ALTER TABLE wide ADD twice bigint GENERATED ALWAYS AS (id * 2) STORED UNIQUE;
CREATE TABLE note (twice bigint REFERENCES wide (twice) ON UPDATE SET NULL);
SELECT snowflake_rekey_column('wide', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN;
CREATE TABLE of_wide (id bigint REFERENCES wide, copied bigint GENERATED ALWAYS AS (id) STORED REFERENCES base);
SELECT snowflake_rekey_column('wide', 'id', 'at');
ROLLBACK;
-- partitions that take new ids: of the key from the oldest to the youngest, of what references it some
BEGIN;
ALTER TABLE base ADD at date DEFAULT '2024-01-01';
INSERT INTO base VALUES (2, '2024-02-01');
ALTER TABLE base RENAME TO base_1;
CREATE TABLE base (id bigint PRIMARY KEY, at date) PARTITION BY RANGE (id);
ALTER TABLE base ATTACH PARTITION base_1 FOR VALUES FROM (0) TO (1000);
SAVEPOINT before;
SELECT snowflake_rekey_column('base', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO before;
SELECT snowflake_min_id('2024-01-15', 'twitter') AS id \gset
CREATE TABLE base_2 PARTITION OF base FOR VALUES FROM (:id) TO (MAXVALUE);
SAVEPOINT before;
SELECT snowflake_rekey_column('base', 'id', 'at');
ROLLBACK TO before;
CREATE TABLE base_rest PARTITION OF base DEFAULT;
CREATE TABLE of_base (id bigint REFERENCES base) PARTITION BY RANGE (id);
CREATE TABLE of_base_1 PARTITION OF of_base FOR VALUES FROM (0) TO (1000);
INSERT INTO of_base VALUES (2);
-- of these no row changes, so they need no partition
CREATE TABLE of_none (id bigint REFERENCES base) PARTITION BY RANGE (id);
CREATE TABLE of_some (id bigint, kind text) PARTITION BY RANGE (id);
CREATE TABLE of_some_1 PARTITION OF of_some FOR VALUES FROM (0) TO (1000);
INSERT INTO of_some VALUES (2, 'other');
SAVEPOINT before;
SELECT snowflake_rekey_column('base', 'id', 'at');
ROLLBACK TO before;
CREATE TABLE of_base_2 PARTITION OF of_base FOR VALUES FROM (:id) TO (MAXVALUE);
SAVEPOINT before;
SELECT snowflake_rekey_column('base', 'id', 'at', also => '{of_some.id}');
ROLLBACK TO before;
SELECT count(statement) FROM snowflake_rekey_column('base', 'id', 'at', dry_run => false,
	also => '{of_some.id WHERE kind = ''base''}');
SELECT tableoid::regclass FROM of_base;
ROLLBACK;
-- tables whose updates a publication cannot send
SET client_min_messages = error;
BEGIN;
CREATE TABLE none (id bigint PRIMARY KEY REFERENCES wide);
ALTER TABLE none REPLICA IDENTITY NOTHING;
CREATE TABLE late (id bigint PRIMARY KEY DEFERRABLE REFERENCES wide);
CREATE TABLE named (id bigint NOT NULL UNIQUE REFERENCES wide);
ALTER TABLE named REPLICA IDENTITY USING INDEX named_id_key;
CREATE TABLE of_wide (id bigint REFERENCES wide) PARTITION BY LIST (id);
CREATE TABLE of_wide_1 PARTITION OF of_wide DEFAULT;
CREATE UNLOGGED TABLE of_wide_2 PARTITION OF of_wide FOR VALUES IN (1);
CREATE PUBLICATION regress_snowflake_inserts FOR ALL TABLES WITH (publish = 'insert, delete');
SELECT count(statement) FROM snowflake_rekey_column('wide', 'id', 'at');
SAVEPOINT before;
CREATE PUBLICATION regress_snowflake_root FOR TABLE of_wide WITH (publish_via_partition_root);
SELECT snowflake_rekey_column('wide', 'id', 'at');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO before;
CREATE PUBLICATION regress_snowflake_all FOR ALL TABLES;
SELECT snowflake_rekey_column('wide', 'id', 'at');
ROLLBACK TO before;
CREATE PUBLICATION regress_snowflake_all FOR ALL TABLES;
ALTER TABLE none REPLICA IDENTITY FULL;
ALTER TABLE late REPLICA IDENTITY FULL;
ALTER TABLE of_wide_1 REPLICA IDENTITY FULL;
SELECT count(statement) FROM snowflake_rekey_column('wide', 'id', 'at', dry_run => false);
ROLLBACK;
SET client_min_messages = warning;
-- all are locked, also where nothing but rows changes
BEGIN;
SELECT count(statement) FROM snowflake_rekey_column('wide', 'id', 'at', dry_run => false);
SELECT mode FROM pg_locks WHERE relation = 'wide'::regclass AND pid = pg_backend_pid() AND mode = 'AccessExclusiveLock';
ROLLBACK;
-- what is computed from a key; ids of several tables in one column, as frameworks have them: found, and carried along if asked
CREATE TABLE photo (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), at date, label text GENERATED ALWAYS AS ('P-' || id) STORED);
CREATE TABLE tagging (tag text, taggable_type text, taggable_id bigint);
CREATE TABLE action (content_type_id int, object_id varchar(20), own_id bigint);
CREATE TABLE linked (photo_type text, photo_id bigint PRIMARY KEY REFERENCES photo);
-- those of another schema are another program's
CREATE SCHEMA elsewhere
	CREATE TABLE tagging (tag text, taggable_type text, taggable_id bigint, photo_id bigint, doc jsonb);
CREATE TYPE elsewhere.hstore AS (text text);
ALTER TABLE action ADD extra elsewhere.hstore;
INSERT INTO photo VALUES (1, '2024-01-01'), (2, '2024-01-02');
INSERT INTO tagging VALUES ('a', 'Photo', 1), ('b', 'Photo', 2), ('c', 'Post', 1), ('d', 'Photo', NULL);
CREATE TRIGGER labelled AFTER UPDATE OF label ON photo FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER touched BEFORE UPDATE ON tagging FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE VIEW photo_ids AS SELECT id FROM photo;
CREATE MATERIALIZED VIEW kept AS SELECT id FROM photo_ids;
CREATE MATERIALIZED VIEW again_kept AS SELECT count(*) FROM kept;
CREATE MATERIALIZED VIEW not_of_ids AS SELECT at FROM photo;
SET client_min_messages = error;
CREATE PUBLICATION regress_snowflake_photos FOR TABLE linked, photo;
CREATE PUBLICATION regress_snowflake_others FOR TABLE action, elsewhere.tagging;
SET client_min_messages = warning;
SELECT finding FROM snowflake_rekey_column('photo', 'id', 'at') WHERE finding !~ 'function|^other|keys.*jsonb';
DROP MATERIALIZED VIEW not_of_ids, again_kept, kept;
DROP VIEW photo_ids;
DROP PUBLICATION regress_snowflake_photos, regress_snowflake_others;
SELECT step, statement FROM snowflake_rekey_column('photo', 'id', 'at', dry_run => false, also => '{tagging.taggable_id WHERE taggable_type = ''Photo''}')
WHERE statement ~ 'tagging' OR finding ~ 'tagging';
SELECT tag, taggable_type, p.at FROM tagging LEFT JOIN photo AS p ON p.id = taggable_id ORDER BY tag;
SELECT label = 'P-' || id AS new FROM photo;
ALTER TABLE tagging ADD CHECK (tag <> 'z') NOT VALID, ADD CHECK (tag <> 'y');
SELECT finding FROM snowflake_rekey_column('photo', 'id', 'at', below => 9223372036854775807, also => '{keys.tagging.taggable_id}') WHERE finding ~ 'tagg';
ALTER TABLE tagging DROP CONSTRAINT tagging_tag_check;
SELECT snowflake_rekey_column('photo', 'id', 'at', below => 9223372036854775807, also => '{nothing.id}');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_rekey_column('photo', 'id', 'at', also => '{id}');
SELECT snowflake_rekey_column('photo', 'id', 'at', below => 9223372036854775807, also => '{tagging.nothing}');
SELECT snowflake_rekey_column('photo', 'id', 'at', below => 9223372036854775807, also => '{action.object_id}');
ALTER TABLE tagging OWNER TO regress_snowflake_other;
\set VERBOSITY terse
SELECT snowflake_rekey_column('photo', 'id', 'at', below => 9223372036854775807, also => '{tagging.taggable_id}');
ALTER TABLE tagging OWNER TO CURRENT_USER;
\set VERBOSITY sqlstate
SELECT snowflake_rekey_column('photo', 'id', 'at', below => 9223372036854775807, also => '{tagging.taggable_id WHERE (}');
\set VERBOSITY default
-- a column of the table that has a name of the map's; what references a column of "also", unless that is carried along by itself
ALTER TABLE tagging DROP COLUMN tag, ADD old_id int DEFAULT 7, ADD UNIQUE (taggable_id);
INSERT INTO photo VALUES (3, '2024-01-03');
INSERT INTO tagging VALUES ('Photo', 3, 7), ('Photo', 4, 8);
BEGIN;
SELECT statement FROM snowflake_rekey_column('photo', 'id', 'at', below => 4, dry_run => false, also => '{tagging.taggable_id WHERE old_id = 7}')
WHERE statement ~ 'tagging';
SELECT taggable_type, p.at, old_id FROM tagging LEFT JOIN photo AS p ON p.id = taggable_id WHERE old_id > 7 OR p.at = '2024-01-03' ORDER BY 3;
ROLLBACK;
CREATE TABLE far (tagged bigint REFERENCES tagging (taggable_id));
SELECT snowflake_rekey_column('photo', 'id', 'at', below => 4, also => '{tagging.taggable_id}');
DELETE FROM tagging WHERE taggable_id NOT IN (SELECT p.id FROM photo AS p);
ALTER TABLE tagging ADD FOREIGN KEY (taggable_id) REFERENCES photo;
INSERT INTO far VALUES (3);
SELECT count(statement) FROM snowflake_rekey_column('photo', 'id', 'at', below => 4, dry_run => false, also => '{tagging.taggable_id}');
SELECT p.at FROM far JOIN tagging AS t ON t.taggable_id = far.tagged JOIN photo AS p ON p.id = t.taggable_id;
DROP TABLE far;
DROP TABLE linked, photo, tagging, action, photo_id_rekeyed, photo_id_rekeyed1, elsewhere.tagging;
DROP SCHEMA elsewhere CASCADE;
-- another layout; no default; an expression of its own with names of the session's search path
CREATE FUNCTION age_of(bigint) RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT at FROM keys.wide WHERE id = $1';
SELECT count(*) FROM snowflake_rekey_column('wide', 'id', 'age_of(wide.id)', 'js53', dry_run => false);
SELECT snowflake_timestamp(id, 'js53') FROM wide;

SET client_min_messages = error;
DROP SCHEMA keys CASCADE;
DROP VIEW IF EXISTS minutes;
RESET client_min_messages;
RESET search_path;
\set SHOW_CONTEXT errors
DROP ROLE regress_snowflake_owner, regress_snowflake_other;
RESET timezone;
RESET datestyle;
\pset format aligned
\pset null ''
DROP EXTENSION snowflake_tools;
