-- What breaks after a conversion without an error now, and keys that are left: each kind, and beside it what looks like
-- it and is none.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION snowflake_tools;
-- the first ids of a server start max_ahead after the creation of the table: until then
SELECT pg_sleep(extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp()) + 0.1) AS slept \gset
CREATE ROLE regress_snowflake_owner;
CREATE SCHEMA shop;
CREATE SCHEMA other;
SET search_path = shop, public;
\pset format unaligned
\pset null '-'

CREATE TABLE customer (id bigserial PRIMARY KEY, name text);
CREATE TABLE account (account_id serial PRIMARY KEY, code int UNIQUE);
-- another column is another owner's affair
CREATE TABLE of_another (code int REFERENCES account (code));
ALTER TABLE of_another OWNER TO regress_snowflake_owner;
CREATE TABLE orders (id serial PRIMARY KEY, customer_id bigint REFERENCES customer, sold_to bigint REFERENCES customer);
CREATE TABLE detail (id bigint REFERENCES customer);
CREATE TABLE "two Words" (id serial PRIMARY KEY);

-- names of columns: "id" tells nothing, and "customer_id", "orders_id", "account_id" and "sold_to" do
CREATE TABLE letter (sold_to int, customer_id smallint, account_id int, orders_id int, gone int, id int, account_account_id int);
ALTER TABLE letter DROP gone;
CREATE TABLE wide (orders_id bigint, account_id numeric);
CREATE TABLE letter_key (id int PRIMARY KEY);
CREATE TABLE linked (sold_to int REFERENCES letter_key, customer_id int);
CREATE TABLE parted (customer_id int, orders_id text) PARTITION BY LIST (customer_id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE VIEW seen AS SELECT sold_to FROM letter;
CREATE TABLE other.letter (customer_id int);
CREATE FOREIGN DATA WRAPPER regress_snowflake_wrapper;
CREATE SERVER regress_snowflake_server FOREIGN DATA WRAPPER regress_snowflake_wrapper;
CREATE FOREIGN TABLE far (customer_id int) SERVER regress_snowflake_server;

-- expressions, with a cast of a key, or of something else
CREATE TABLE reading (id bigserial PRIMARY KEY, n bigint, customer_id bigint REFERENCES customer, identity text);
ALTER TABLE reading ADD CONSTRAINT above CHECK (id >= 100), ADD CONSTRAINT below CHECK (id < 100), ADD CONSTRAINT of_n CHECK (n < 100),
	ADD CONSTRAINT cast_of_key CHECK (n > customer_id::smallint), ADD CONSTRAINT cast_alone CHECK (id::integer IS NOT NULL);
CREATE INDEX reading_cast ON reading ((id::integer));
CREATE INDEX reading_n ON reading ((n::integer)) WHERE id > 5;
CREATE VIEW reading_view AS SELECT id::integer AS i, customer_id::smallint AS c FROM reading;
CREATE VIEW reading_other AS SELECT id, n::integer AS i, identity::integer AS t FROM reading;
CREATE RULE reading_rule AS ON DELETE TO reading DO ALSO INSERT INTO letter (id) VALUES (OLD.id::smallint);
CREATE POLICY using_it ON reading USING (id::integer = 1);
CREATE POLICY checking_it ON reading FOR INSERT WITH CHECK (id::integer = 1);
CREATE POLICY without ON reading USING (n::integer = 1 AND id > 2);
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER reading_when BEFORE UPDATE ON reading FOR EACH ROW WHEN (NEW.id::integer > 1) EXECUTE FUNCTION nothing();
CREATE TRIGGER reading_n BEFORE UPDATE ON reading FOR EACH ROW WHEN (NEW.n::integer > 1 AND NEW.id > 1) EXECUTE FUNCTION nothing();

-- a default partition that gets the new ids, or does not
CREATE TABLE event (id bigserial PRIMARY KEY CHECK (id < 2000000)) PARTITION BY RANGE (id);
CREATE TABLE event_old PARTITION OF event FOR VALUES FROM (0) TO (1000000);
CREATE TABLE event_rest PARTITION OF event DEFAULT;
CREATE TABLE covered (id bigserial PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE covered_all PARTITION OF covered FOR VALUES FROM (0) TO (MAXVALUE);
CREATE TABLE covered_rest PARTITION OF covered DEFAULT;
CREATE TABLE by_day (id bigserial, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE by_day_rest PARTITION OF by_day DEFAULT;

-- texts of functions, which name a key by its table, its sequence, or a column that references it
CREATE TABLE note (nr int, small smallint, wide bigint, made serial, identified int GENERATED ALWAYS AS IDENTITY, customer int REFERENCES account,
	gone int);
ALTER TABLE note DROP gone;
CREATE INDEX ON note (small);
CREATE VIEW note_view AS SELECT nr FROM note;
CREATE TABLE note_part (parted_nr int) PARTITION BY LIST (parted_nr);
CREATE TABLE note_part_1 PARTITION OF note_part FOR VALUES IN (1);
CREATE FUNCTION takes(integer) RETURNS void LANGUAGE sql AS 'SELECT 1 FROM customer';
ALTER FUNCTION takes DEPENDS ON EXTENSION snowflake_tools;
CREATE FUNCTION returns() RETURNS smallint LANGUAGE plpgsql AS 'BEGIN RETURN sold_to FROM something; END';
CREATE FUNCTION by_out(OUT a bigint, OUT b integer) LANGUAGE plpgsql AS $$ BEGIN SELECT name, 2 FROM "Customer" INTO a, b; END $$;
CREATE FUNCTION variable() RETURNS bigint LANGUAGE plpgsql AS 'DECLARE n INT4; BEGIN SELECT count(*) FROM orders INTO n; RETURN n; END';
CREATE FUNCTION by_sequence() RETURNS bigint LANGUAGE sql AS $$ SELECT nextval('orders_id_seq') $$;
CREATE FUNCTION many() RETURNS integer LANGUAGE sql AS 'SELECT 1 FROM customer, orders, account, note WHERE sold_to = customer_id';
CREATE FUNCTION two_words() RETURNS integer LANGUAGE sql AS 'SELECT 1 FROM "two Words"';
CREATE FUNCTION returning_it() RETURNS void LANGUAGE plpgsql
AS $$ BEGIN WITH x AS (INSERT INTO customer VALUES (1) RETURNING id) INSERT INTO note (nr, small, wide, made, identified, customer) SELECT id FROM x; END $$;
CREATE FUNCTION returning_parted() RETURNS void LANGUAGE plpgsql
AS $$ BEGIN WITH x AS (INSERT INTO orders VALUES (1) RETURNING id) INSERT INTO note_part_1 (parted_nr) SELECT id FROM x; INSERT INTO note_part (parted_nr) VALUES (1); END $$;
CREATE FUNCTION reads_new() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO note (nr) VALUES (NEW.id); RETURN NULL; END';
CREATE FUNCTION reads_old() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN UPDATE note SET small = 1 WHERE nr = old."sold_to"; RETURN NULL; END';
CREATE FUNCTION reads_other() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO note (nr) VALUES (NEW.identity); RETURN NULL; END';
CREATE TRIGGER a AFTER INSERT ON customer FOR EACH ROW EXECUTE FUNCTION reads_new();
CREATE TRIGGER b AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION reads_old();
CREATE TRIGGER c AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION reads_other();
CREATE FUNCTION parsed() RETURNS bigint BEGIN ATOMIC SELECT id FROM customer WHERE id::integer = 5; END;
-- not these: of another table, without a key's name, or without an integer
CREATE SEQUENCE document_seq;
CREATE FUNCTION no_name(integer) RETURNS integer LANGUAGE plpgsql AS $$ DECLARE n int; BEGIN RETURN nextval('x') FROM customers, id, my_orders; END $$;
CREATE FUNCTION no_sequence() RETURNS integer LANGUAGE sql AS $$ SELECT nextval('document_seq') + nextval('note_made_seq'); SELECT 1 $$;
CREATE FUNCTION no_words() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RETURN two FROM id; END $$;
CREATE FUNCTION no_integer(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT $1 FROM customer';
CREATE FUNCTION no_view() RETURNS void LANGUAGE plpgsql
AS $$ BEGIN WITH x AS (INSERT INTO customer VALUES (1) RETURNING id) INSERT INTO note_view (nr) SELECT id FROM x; END $$;
CREATE FUNCTION no_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO note (nr) VALUES (NEW.id); RETURN NULL; END';
CREATE TRIGGER d AFTER INSERT ON letter FOR EACH ROW EXECUTE FUNCTION no_trigger();
CREATE FUNCTION extensions(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1 FROM customer';
ALTER EXTENSION snowflake_tools ADD FUNCTION extensions(integer);

-- keys that others make
CREATE FUNCTION next_id() RETURNS bigint LANGUAGE sql AS 'SELECT 5::bigint';
CREATE TABLE by_function (n bigint DEFAULT 7, id bigint PRIMARY KEY DEFAULT next_id(), at date DEFAULT now());
INSERT INTO by_function DEFAULT VALUES;
CREATE TABLE by_program (customer_id bigint REFERENCES customer, id bigint PRIMARY KEY);
CREATE TABLE by_type (id snowflake_id PRIMARY KEY);
CREATE TABLE unreadable (id bigint PRIMARY KEY);
INSERT INTO unreadable VALUES (6);
ALTER TABLE unreadable OWNER TO regress_snowflake_owner;
REVOKE ALL ON unreadable FROM regress_snowflake_owner;
CREATE TABLE hiding (id bigint PRIMARY KEY);
INSERT INTO hiding VALUES (7);
ALTER TABLE hiding OWNER TO regress_snowflake_owner;
ALTER TABLE hiding ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
-- not these
CREATE TABLE converted (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
CREATE TABLE referencing (id bigint PRIMARY KEY REFERENCES customer, other bigint REFERENCES by_program);
CREATE TABLE unique_only (id bigint UNIQUE NOT NULL);
CREATE TABLE of_two (a bigint, b bigint, PRIMARY KEY (a, b));
CREATE TABLE computed (n bigint, id bigint PRIMARY KEY GENERATED ALWAYS AS (n * 2) STORED);
CREATE TABLE left_out (id bigint PRIMARY KEY);
CREATE TABLE other.by_program (id bigint PRIMARY KEY);

SELECT f.object, f.content FROM snowflake_convert_schema('shop', leave_out => '{left_out}') AS f WHERE f.kind = 'finding';
SELECT f.object, f.content FROM snowflake_convert_schema('shop', leave_out => '{left_out}') AS f WHERE f.kind = 'left';
SELECT f.object, f.content FROM snowflake_convert_schema('shop', leave_out => '{left_out}') AS f WHERE f.kind IN ('summary', 'refusal');

\pset format aligned
\pset null ''
SET client_min_messages = error;
ALTER EXTENSION snowflake_tools DROP FUNCTION extensions(integer);
DROP SCHEMA shop, other CASCADE;
DROP FOREIGN DATA WRAPPER regress_snowflake_wrapper CASCADE;
RESET client_min_messages;
RESET search_path;
DROP ROLE regress_snowflake_owner;
DROP EXTENSION snowflake_tools;
