-- Views, materialized views and rules on keys and on what references them: dropped and made again, with all that they
-- have; and back.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
-- the first ids of a server start max_ahead after the creation of the table: until then
SELECT pg_sleep(extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp()) + 0.1) AS slept \gset
CREATE ROLE regress_snowflake_owner;
CREATE ROLE regress_snowflake_other;
CREATE ROLE regress_snowflake_reader;
CREATE SCHEMA shop;
GRANT ALL ON SCHEMA shop TO regress_snowflake_owner, regress_snowflake_other;
GRANT USAGE ON SCHEMA shop TO regress_snowflake_reader;
SET search_path = shop, public;
\set SHOW_CONTEXT never
\pset format unaligned
\pset null '-'

-- what relations are and have, line by line
CREATE VIEW public.seen AS
SELECT c.relname AS relation, x.line
FROM pg_class AS c CROSS JOIN LATERAL (
	SELECT concat_ws(' ', c.relkind, 'of', pg_get_userbyid(c.relowner) <> current_user AND c.relowner <> 10, c.reloptions, c.relispopulated,
		obj_description(c.oid, 'pg_class')) WHERE c.relkind IN ('v', 'm')
	UNION ALL SELECT regexp_replace(pg_get_viewdef(c.oid), '\s+', ' ', 'g') WHERE c.relkind IN ('v', 'm')
	UNION ALL SELECT replace(a::text, s.rolname, 'superuser') FROM unnest(c.relacl) AS a, pg_roles AS s WHERE s.oid = 10 AND c.relkind IN ('v', 'm')
	UNION ALL SELECT concat_ws(' ', a.attname, replace(a.attacl::text, s.rolname, 'superuser'), col_description(c.oid, a.attnum), a.attstattarget >= 0, array_remove(a.attoptions, (SELECT o FROM unnest(a.attoptions) AS o WHERE o LIKE 'pg_attver=%')),
			(SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef AS d WHERE d.adrelid = c.oid AND d.adnum = a.attnum))
		FROM pg_attribute AS a, pg_roles AS s WHERE s.oid = 10 AND a.attrelid = c.oid AND a.attnum > 0 AND c.relkind IN ('v', 'm')
	UNION ALL SELECT concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisclustered, obj_description(i.indexrelid, 'pg_class'))
		FROM pg_index AS i WHERE i.indrelid = c.oid AND c.relkind = 'm'
	UNION ALL SELECT pg_get_statisticsobjdef(s.oid) FROM pg_statistic_ext AS s WHERE s.stxrelid = c.oid AND c.relkind = 'm'
	UNION ALL SELECT concat_ws(' ', pg_get_triggerdef(t.oid), obj_description(t.oid, 'pg_trigger')) FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal
	UNION ALL SELECT concat_ws(' ', regexp_replace(pg_get_ruledef(r.oid), '\s+', ' ', 'g'), r.ev_enabled, obj_description(r.oid, 'pg_rewrite'))
		FROM pg_rewrite AS r WHERE r.ev_class = c.oid AND r.rulename <> '_RETURN') AS x (line)
WHERE c.relnamespace = 'shop'::regnamespace;
-- statements in a line, without what differs from version to version
CREATE FUNCTION public.short(words text) RETURNS text LANGUAGE sql AS
$$SELECT replace(regexp_replace(regexp_replace(words, ' AS\n.*?(?= WITH NO DATA;$|;$)', ' AS ...'), '\s+', ' ', 'g'), r.rolname, 'superuser') FROM pg_roles AS r WHERE r.oid = 10$$;
-- as they are at the time of each call
CREATE FUNCTION public.lines() RETURNS TABLE (relation name, line text) LANGUAGE sql SET search_path = pg_catalog AS 'SELECT * FROM public.seen';

CREATE TABLE album (id serial PRIMARY KEY, title text);
CREATE TABLE track (id serial PRIMARY KEY, album_id int REFERENCES album, seconds int, title text);
CREATE TABLE log (what text);
INSERT INTO album (title) VALUES ('one'), ('two');
INSERT INTO track (album_id, seconds) VALUES (1, 100), (1, 200), (2, 300);

-- all that there is, and names that need quotes
ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT SELECT ON TABLES TO regress_snowflake_reader;
CREATE VIEW long WITH (security_barrier, check_option = 'local') AS SELECT id, album_id, seconds FROM track WHERE seconds > 150;
REVOKE ALL ON long FROM regress_snowflake_reader;
ALTER VIEW long ALTER seconds SET DEFAULT 151;
COMMENT ON VIEW long IS 'it''s long';
COMMENT ON COLUMN long.album_id IS 'where it is';
GRANT SELECT ON long TO PUBLIC;
GRANT INSERT (id, seconds), UPDATE (seconds) ON long TO regress_snowflake_other WITH GRANT OPTION;
REVOKE TRUNCATE, TRIGGER ON long FROM CURRENT_USER;
CREATE VIEW "Of ""long'" WITH (security_invoker) AS SELECT l.id AS "I'd %I", count(*) OVER () AS n, coalesce(l.id, 0) AS k FROM long AS l JOIN album AS a ON a.id = l.album_id;
CREATE VIEW of_both AS SELECT o."I'd %I" AS id, a.title FROM "Of ""long'" AS o JOIN album AS a ON a.id = o."I'd %I" GROUP BY 1, a.id;
CREATE MATERIALIZED VIEW total WITH (fillfactor = 50) AS SELECT album_id, sum(seconds) AS seconds FROM track GROUP BY album_id;
CREATE UNIQUE INDEX "Total" ON total (album_id);
CREATE INDEX total_seconds ON total (seconds DESC) WHERE seconds > 5;
ALTER MATERIALIZED VIEW total CLUSTER ON "Total";
COMMENT ON INDEX "Total" IS 'of an index';
COMMENT ON MATERIALIZED VIEW total IS 'all of it';
ALTER MATERIALIZED VIEW total ALTER album_id SET STATISTICS 7, ALTER seconds SET (n_distinct = 5);
CREATE STATISTICS total_statistics (dependencies) ON album_id, seconds FROM total;
CREATE VIEW of_total AS SELECT album_id FROM total;
CREATE MATERIALIZED VIEW empty AS SELECT album_id FROM of_total WITH NO DATA;
CREATE FUNCTION insert_track() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN INSERT INTO shop.log VALUES ('trigger ' || NEW.seconds); RETURN NEW; END $$;
CREATE VIEW writable AS SELECT id, seconds FROM track;
CREATE TRIGGER "In place" INSTEAD OF INSERT ON writable FOR EACH ROW EXECUTE FUNCTION insert_track();
COMMENT ON TRIGGER "In place" ON writable IS 'of a trigger';
CREATE RULE no_delete AS ON DELETE TO writable DO INSTEAD INSERT INTO log VALUES ('rule ' || OLD.id);
COMMENT ON RULE no_delete ON writable IS 'of a rule';
CREATE RULE kept AS ON DELETE TO album WHERE OLD.id < 2 DO INSTEAD INSERT INTO log VALUES ('kept ' || OLD.id);
ALTER TABLE album DISABLE RULE kept;
COMMENT ON RULE kept ON album IS 'of a table''s rule';
CREATE RULE elsewhere AS ON UPDATE TO log DO ALSO UPDATE album SET title = NEW.what WHERE id = 1;
ALTER TABLE log ENABLE ALWAYS RULE elsewhere;
-- with a grant of another role
CREATE VIEW theirs AS SELECT id FROM album;
GRANT SELECT ON theirs TO regress_snowflake_owner WITH GRANT OPTION;
SET ROLE regress_snowflake_owner;
GRANT SELECT ON theirs TO regress_snowflake_reader;
RESET ROLE;
-- no part of it
CREATE VIEW untouched AS SELECT title FROM album;
SELECT 'untouched'::regclass::oid AS untouched \gset
CREATE TEMPORARY TABLE before AS SELECT * FROM lines();
SELECT count(*) > 50 AS many FROM before;
-- what is compared while they are made again, without oids
BEGIN;
CREATE TYPE mood AS ENUM ('good');
CREATE COLLATION mine FROM "C";
CREATE FUNCTION equal(integer, integer) RETURNS boolean LANGUAGE sql AS 'SELECT $1 = $2';
CREATE OPERATOR === (FUNCTION = equal, LEFTARG = integer, RIGHTARG = integer);
CREATE VIEW uses AS SELECT id === 1 AS one, title COLLATE mine AS title, 'good'::mood AS mood, 1::snowflake_id AS id,
	'{1}'::snowflake_id[] AS ids FROM album;
ALTER VIEW uses ALTER one SET DEFAULT equal(1, 2);
CREATE INDEX total_equal ON total (equal(album_id, 1));
SELECT c.relname, regexp_replace(replace(regexp_replace(f::text, '\m\d{5,}\M', '-', 'g'), r.rolname, 'superuser'), '(arwdD?xt?)m/', '\1/') AS fact
FROM pg_class AS c CROSS JOIN LATERAL jsonb_array_elements(snowflake_tools.relation_facts(c.oid)::jsonb) WITH ORDINALITY AS f (f, n), pg_roles AS r
WHERE r.oid = 10 AND c.relname IN ('uses', 'long', 'total', 'writable', 'album') ORDER BY c.relname, f.n;
ROLLBACK;

SELECT short(s) FROM snowflake_convert_column('album', 'id') AS s;
-- operators and functions of the session's path are not those of a view
CREATE FUNCTION shop.coalesced(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION shop.sum(integer) RETURNS integer LANGUAGE sql AS 'SELECT -1';
SET search_path = shop, pg_catalog, public;
SELECT count(*) FROM snowflake_convert_schema('shop', dry_run => false);
SHOW search_path;
DROP FUNCTION shop.sum(integer);
SET search_path = shop, public;
(SELECT 'lost', * FROM before EXCEPT SELECT 'lost', * FROM lines()) UNION ALL (SELECT 'new', * FROM lines() EXCEPT SELECT 'new', * FROM before) ORDER BY 2, 3, 1;
SELECT 'untouched'::regclass::oid = :untouched AS same;
SELECT a.attrelid::regclass AS relation, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
WHERE c.relkind IN ('v', 'm') AND c.relnamespace = 'shop'::regnamespace AND a.attname ~ 'id|I' AND a.attnum > 0 ORDER BY a.attrelid::regclass::text COLLATE "C", a.attnum;
-- they work
INSERT INTO album (title) VALUES ('new');
INSERT INTO track (album_id, seconds) SELECT max(id), 400 FROM album;
SELECT count(*) FILTER (WHERE id > 1000000) AS new, count(*) FROM long;
SELECT * FROM total ORDER BY 1;
REFRESH MATERIALIZED VIEW total;
REFRESH MATERIALIZED VIEW empty;
SELECT count(*) FROM empty;
INSERT INTO writable VALUES (1, 2);
DELETE FROM writable WHERE id = 1;
INSERT INTO long VALUES (9, 1, 100);
SELECT * FROM log;
SET ROLE regress_snowflake_reader;
SELECT count(*) FROM theirs;
SELECT count(*) FROM long;
SELECT count(*) FROM writable;
RESET ROLE;

--
-- What cannot be made again is refused, as before
--
CREATE TABLE own (id serial PRIMARY KEY);
ALTER TABLE own OWNER TO regress_snowflake_owner;
CREATE VIEW of_other AS SELECT id FROM own;
ALTER VIEW of_other OWNER TO regress_snowflake_other;
CREATE TABLE log_of_other (what text);
CREATE RULE of_other AS ON UPDATE TO log_of_other DO ALSO DELETE FROM own WHERE id = 1;
ALTER TABLE log_of_other OWNER TO regress_snowflake_other;
CREATE VIEW used AS SELECT id FROM own;
ALTER VIEW used OWNER TO regress_snowflake_owner;
CREATE FUNCTION uses() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM used; END;
CREATE TABLE has_row (u used);
CREATE SEQUENCE of_view;
ALTER SEQUENCE of_view OWNER TO regress_snowflake_owner;
ALTER SEQUENCE of_view OWNED BY used.id;
CREATE VIEW granted AS SELECT id FROM own;
ALTER VIEW granted OWNER TO regress_snowflake_owner;
SET ROLE regress_snowflake_owner;
GRANT SELECT ON granted TO regress_snowflake_other WITH GRANT OPTION;
SET ROLE regress_snowflake_other;
GRANT SELECT ON granted TO regress_snowflake_reader;
GRANT SELECT (id) ON granted TO PUBLIC;
SET ROLE regress_snowflake_owner;
SELECT snowflake_convert_column('own', 'id', dry_run => false);
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT snowflake_convert_column('own', 'id', dry_run => false);
DROP FUNCTION uses;
DROP TABLE has_row;
DROP SEQUENCE of_view;
DROP VIEW of_other;
DROP TABLE log_of_other;
REVOKE CREATE ON SCHEMA shop FROM regress_snowflake_owner;
SELECT snowflake_convert_column('own', 'id', dry_run => false);
GRANT CREATE ON SCHEMA shop TO regress_snowflake_owner;
ALTER EXTENSION snowflake ADD VIEW used;
SELECT snowflake_convert_column('own', 'id', dry_run => false);
ALTER EXTENSION snowflake DROP VIEW used;
-- by hand, by another role: what is made again belongs to whom it belonged
CREATE PROCEDURE public.by_hand(statements text) LANGUAGE plpgsql AS
$$DECLARE s text; BEGIN FOR s IN EXECUTE statements LOOP EXECUTE s; END LOOP; END$$;
BEGIN;
CALL by_hand('SELECT snowflake_convert_column(''own'', ''id'')');
SELECT relname, pg_get_userbyid(relowner) AS owner FROM pg_class WHERE relname IN ('used', 'granted') ORDER BY 1;
CALL by_hand('SELECT snowflake_revert_column(''own'', ''id'')');
SELECT pg_get_userbyid(relowner) AS owner FROM pg_class WHERE oid = pg_get_serial_sequence('own', 'id')::regclass;
ROLLBACK;
DROP PROCEDURE by_hand;
-- by a role that may act as all of them
GRANT regress_snowflake_other TO regress_snowflake_owner;
SET ROLE regress_snowflake_owner;
SELECT short(s) FROM snowflake_convert_column('own', 'id', dry_run => false) AS s;
RESET ROLE;
SELECT c.relname, pg_get_userbyid(c.relowner), replace(c.relacl::text, 'Dxtm', 'Dxt') AS acl FROM pg_class AS c WHERE c.relname IN ('used', 'granted') ORDER BY 1;
SELECT attacl FROM pg_attribute WHERE attrelid = 'granted'::regclass AND attname = 'id';
-- a materialized view stays where it is, whatever the session makes new ones in
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_snowflake_space LOCATION '';
CREATE TABLE spaced (id serial PRIMARY KEY);
CREATE MATERIALIZED VIEW here AS SELECT id FROM spaced;
CREATE MATERIALIZED VIEW there TABLESPACE regress_snowflake_space AS SELECT id FROM spaced;
CREATE VIEW nowhere AS SELECT id FROM spaced;
SET default_tablespace = regress_snowflake_space;
SELECT short(s) FROM snowflake_convert_column('spaced', 'id', dry_run => false) AS s WHERE s ~ 'CREATE';
RESET default_tablespace;
SELECT relname, reltablespace <> 0 AS moved FROM pg_class WHERE relname IN ('here', 'there') ORDER BY 1;
DROP TABLE spaced CASCADE;
DROP TABLESPACE regress_snowflake_space;

-- the rule of a view that uses another one
CREATE TABLE ruled (id serial PRIMARY KEY, n int);
CREATE VIEW a_ruled AS SELECT id, n FROM ruled;
CREATE VIEW z_ruled AS SELECT id, n FROM ruled;
CREATE RULE through AS ON INSERT TO z_ruled DO INSTEAD INSERT INTO a_ruled VALUES (NEW.id, NEW.n);
SELECT count(*) FROM snowflake_convert_column('ruled', 'id', dry_run => false);
INSERT INTO z_ruled VALUES (5000000000, 1);
SELECT * FROM a_ruled;
DROP TABLE ruled CASCADE;
-- default privileges that take a right from whoever creates a view
CREATE TABLE untruncated (id serial PRIMARY KEY);
ALTER TABLE untruncated OWNER TO regress_snowflake_owner;
SET ROLE regress_snowflake_owner;
CREATE VIEW of_untruncated AS SELECT id FROM untruncated;
ALTER DEFAULT PRIVILEGES REVOKE TRUNCATE ON TABLES FROM regress_snowflake_owner;
CREATE VIEW later_untruncated AS SELECT id FROM untruncated;
SELECT count(*) FROM snowflake_convert_column('untruncated', 'id', dry_run => false);
SELECT relname, has_table_privilege(oid, 'TRUNCATE') AS truncates FROM pg_class WHERE relname LIKE '%of_untruncated' OR relname = 'later_untruncated' ORDER BY 1;
ALTER DEFAULT PRIVILEGES GRANT TRUNCATE ON TABLES TO regress_snowflake_owner;
RESET ROLE;
DROP TABLE untruncated CASCADE;

\pset format aligned
\pset null ''
SET client_min_messages = error;
DROP VIEW seen CASCADE;
DROP FUNCTION lines, short;
DROP SCHEMA shop CASCADE;
RESET client_min_messages;
RESET search_path;
DROP ROLE regress_snowflake_owner, regress_snowflake_other, regress_snowflake_reader;
DROP EXTENSION snowflake_tools;
