--
-- Ids for old rows
--
--	  tick that contains the row's time | greatest node number | share | counter
--
-- Unique:
--   * The greatest node number is never leased, so no id that is drawn is equal.
--   * The share is the database's own (see the registry's side), so no id that another
--     database makes up is equal.
--   * Within the database each id of a layout is given out once.  tick << counter bits |
--     counter is called a word here; the words that were given out are in the table
--     snowflake.backfill.  Whoever takes one holds the row lock of its layout until the
--     end of his transaction, reads after that what others have committed, and writes
--     in the same transaction as the row that the id is for.
-- An id that was rolled back may be given out again: it is in no table, and what a client
-- has read of a transaction that was rolled back never happened.
-- All this is for one layout, as it is for draws.  After snowflake_change_layout() ids for times
-- before the change belong in the old layout, by a generator that has it: those of
-- the new one could be equal to ids that were drawn in the old one.
--
-- Sorted by age: take two calls, the later one with the same time or a younger one.  The
-- later one has the greater id.  For the first call has taken a word w1, and all words from
-- the start s1 of its tick to w1 are given out then (it takes the first one that is free).
-- The start of the second call is s2 >= s1.  If s2 <= w1, the words from s2 to w1 are given out,
-- so it takes one above w1; else it takes one from s2 on, which is above w1.  So
--   * calls in order of age give ids in order of age, whatever was given out before;
--   * in any other order ids sort by their ticks, and in a tick by the calls, as long as each is
--     of the tick that contains its time.  That is until the counter of a tick is used up; from
--     then on ids for its time are of the following ticks.
--

CREATE FUNCTION snowflake.ask_backfill_share(asker uuid) RETURNS integer
AS 'MODULE_PATHNAME', 'snowflake_ask_backfill_share'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION snowflake.ask_backfill_share(uuid) IS
'part of snowflake_backfill_id(): asks the registry for the share of an incarnation, once in a session';
REVOKE EXECUTE ON FUNCTION snowflake.ask_backfill_share(uuid) FROM PUBLIC;

CREATE FUNCTION snowflake.backfill_share() RETURNS integer
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN snowflake.ask_backfill_share((SELECT r.incarnation FROM snowflake.registry AS r));
END
$$;
COMMENT ON FUNCTION snowflake.backfill_share() IS
'part of snowflake_backfill_id(): this database''s share of the reserved node number';
REVOKE EXECUTE ON FUNCTION snowflake.backfill_share() FROM PUBLIC;

-- What does not change from id to id is worked out once.  The row that same_as names is
-- also the lock: unlike a lock of the table it does not keep vacuum away, and unlike an
-- advisory lock nobody else can take it.  Layouts that make the same ids (they split the node
-- number otherwise: here its bits are all ones) share it, and the words.
CREATE TABLE snowflake.backfill_layout (
	id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	same_as integer NOT NULL,
	layout text NOT NULL,
	share integer NOT NULL,
	epoch timestamptz NOT NULL,
	ends_at timestamptz NOT NULL,
	last_tick bigint NOT NULL,
	timestamp_shift integer NOT NULL,
	sequence_shift integer NOT NULL,
	counter_bits integer NOT NULL,
	fixed_bits bigint NOT NULL,
	UNIQUE (layout, share)
);
GRANT SELECT ON snowflake.backfill_layout, snowflake.backfill_layout_id_seq TO pg_database_owner;
COMMENT ON TABLE snowflake.backfill_layout IS
'a row per layout and share that ids for old rows were made up in; locked by whoever makes some up';
COMMENT ON SEQUENCE snowflake.backfill_layout_id_seq IS
'numbers the layouts of ids for old rows';
COMMENT ON COLUMN snowflake.backfill_layout.same_as IS
'id of the first row whose layout makes the same ids: its own, if it is that';
COMMENT ON COLUMN snowflake.backfill_layout.layout IS
'its definition';
COMMENT ON COLUMN snowflake.backfill_layout.share IS
'the database''s share of the reserved node number; one that was dumped elsewhere is history';
COMMENT ON COLUMN snowflake.backfill_layout.counter_bits IS
'the sequence field without the bits of the share';
COMMENT ON COLUMN snowflake.backfill_layout.fixed_bits IS
'node number and share at their places in an id';

-- Runs of words that were given out: first_word to next_word - 1.  Runs may overlap, and
-- are never put together; but of the runs that begin at or before a word that was given out,
-- the last one reaches beyond it.  So a word is free if the run that begins
-- last at or before it ends there or before.
--
-- next_word is in the key though the first two columns would be one: in a transaction that takes
-- 100,000 words for one time the run has 100,000 versions, which vacuum cannot remove yet.
-- A backward scan of the index comes to the greatest, the living one, first.
CREATE TABLE snowflake.backfill (
	layout_id integer NOT NULL,
	first_word bigint NOT NULL,
	next_word bigint NOT NULL CHECK (next_word > first_word),
	PRIMARY KEY (layout_id, first_word, next_word)
);
GRANT SELECT ON snowflake.backfill TO pg_database_owner;
COMMENT ON TABLE snowflake.backfill IS
'which ids for old rows were made up: runs of (tick << counter bits | counter)';
COMMENT ON COLUMN snowflake.backfill.layout_id IS
'same_as of the rows in backfill_layout';

-- Dumped with the rows that have the ids.
SELECT pg_catalog.pg_extension_config_dump('snowflake.backfill_layout', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake.backfill_layout_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake.backfill', '');

CREATE TRIGGER ignore_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.backfill_layout
FOR EACH ROW EXECUTE FUNCTION snowflake.ignore_replicated();
ALTER TABLE snowflake.backfill_layout ENABLE REPLICA TRIGGER ignore_replicated;
CREATE TRIGGER ignore_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.backfill
FOR EACH ROW EXECUTE FUNCTION snowflake.ignore_replicated();
ALTER TABLE snowflake.backfill ENABLE REPLICA TRIGGER ignore_replicated;

-- Makes the row of a layout and share.
CREATE FUNCTION snowflake.open_backfill(layout text, share integer) RETURNS snowflake.backfill_layout
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	sequence_bits CONSTANT integer := substring(layout FROM 'sequence ([0-9]+)');
	share_bits CONSTANT integer := least(5, sequence_bits / 2);
	counter_bits CONSTANT integer := sequence_bits - share_bits;
	described record;
	greatest_parts bigint[];
	timestamp_shift integer;
	result snowflake.backfill_layout;
BEGIN
	SELECT * INTO STRICT described FROM @extschema@.snowflake_layout(layout);
	IF layout !~ 'worker' OR described.tick > '1s' THEN
		RAISE EXCEPTION 'the layout is for parsing only'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('It is "%s"; ids are issued with a worker field and a tick of at most 1s.', layout),
			HINT = 'Use a generator with such a layout.';
	END IF;
	IF share >= 1 << share_bits THEN
		RAISE EXCEPTION 'the layout has too few sequence bits for the share of this database'
			USING ERRCODE = 'configuration_limit_exceeded',
			DETAIL = format('The share is %s; of the %s sequence bits %s are for shares, from 0 to %s.',
				share, sequence_bits, share_bits, (1 << share_bits) - 1),
			HINT = 'Use a generator whose layout has 10 or more sequence bits, or see snowflake.backfill_share in the registry.';
	END IF;

	-- one at a time, so that of two layouts with the same ids the second finds the first
	LOCK TABLE snowflake.backfill_layout IN SHARE ROW EXCLUSIVE MODE;
	SELECT b.* INTO result FROM snowflake.backfill_layout AS b WHERE b.layout = layout AND b.share = share;
	IF FOUND THEN
		RETURN result;
	END IF;
	-- the first tick's last id has all bits below the timestamp set
	timestamp_shift := length(ltrim(@extschema@.snowflake_max_id(described.epoch, layout)::bit(64)::text, '0'));
	SELECT array_agg((1::bigint << coalesce(substring(layout FROM field || ' ([0-9]+)')::integer, 0)) - 1 ORDER BY nr)
	INTO greatest_parts FROM unnest('{datacenter, worker, clock}'::text[]) WITH ORDINALITY AS u (field, nr);
	SELECT nextval('snowflake.backfill_layout_id_seq'), NULL, layout, share, described.epoch,
		described.last_id_time + described.tick,
		@extschema@.snowflake_max_id('infinity'::timestamptz, layout) >> timestamp_shift, timestamp_shift,
		length(ltrim(@extschema@.snowflake_compose(described.epoch, 0, 1, layout, 0, 0)::bit(64)::text, '0')) - 1,
		counter_bits,
		@extschema@.snowflake_compose(described.epoch, greatest_parts[2]::integer, share << counter_bits,
			layout, greatest_parts[1]::integer, greatest_parts[3]::integer)
	INTO result;
	SELECT coalesce(min(b.id), result.id) INTO result.same_as FROM snowflake.backfill_layout AS b
	WHERE b.same_as = b.id AND b.share = share AND b.counter_bits = counter_bits AND b.fixed_bits = result.fixed_bits
		AND (b.epoch, b.ends_at, b.last_tick) = (result.epoch, result.ends_at, result.last_tick)
		AND (b.timestamp_shift, b.sequence_shift) = (timestamp_shift, result.sequence_shift);
	INSERT INTO snowflake.backfill_layout OVERRIDING SYSTEM VALUE SELECT result.*;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.open_backfill(text, integer) IS
'part of snowflake_backfill_id(): what all ids of a layout and share have in common';
REVOKE EXECUTE ON FUNCTION snowflake.open_backfill(text, integer) FROM PUBLIC;

-- Takes the first free word from "start" on.  A plan is made once in a session, perhaps when
-- the table is empty, and then has to do for all that is written meanwhile: it must use the index.
CREATE FUNCTION snowflake.take_word(layout_id integer, start bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_variable
DECLARE
	word bigint := start;
	first bigint;			-- the run that begins last at or before word
	next bigint;
	start_first bigint;		-- the same for start
	start_next bigint;
BEGIN
	LOOP
		SELECT b.first_word, b.next_word INTO first, next FROM snowflake.backfill AS b
		WHERE b.layout_id = layout_id AND b.first_word <= word
		ORDER BY b.first_word DESC, b.next_word DESC LIMIT 1;
		EXIT WHEN (next > word) IS NOT TRUE;
		IF word = start THEN
			start_first := first;
			start_next := next;
		END IF;
		word := next;
	END LOOP;

	IF next = word THEN
		UPDATE snowflake.backfill AS b SET next_word = word + 1
		WHERE b.layout_id = layout_id AND b.first_word = first AND b.next_word = next;
	ELSE
		INSERT INTO snowflake.backfill (layout_id, first_word, next_word) VALUES (layout_id, word, word + 1);
	END IF;
	-- a run that has reached others: it goes over them at one step the next time
	IF start_first <> first THEN
		UPDATE snowflake.backfill AS b SET next_word = word + 1
		WHERE b.layout_id = layout_id AND b.first_word = start_first AND b.next_word = start_next;
	END IF;
	RETURN word;
END
$$;
COMMENT ON FUNCTION snowflake.take_word(integer, bigint) IS
'part of snowflake_backfill_id(): takes the first free (tick, counter)';
REVOKE EXECUTE ON FUNCTION snowflake.take_word(integer, bigint) FROM PUBLIC;

-- layout: its definition.
CREATE FUNCTION snowflake.backfill_id(at timestamptz, layout text, share integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	this snowflake.backfill_layout;
	tick bigint;
	start bigint;
	word bigint;
	result bigint;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'ids for old rows need isolation level read committed, not %',
			current_setting('transaction_isolation')
			USING ERRCODE = 'active_sql_transaction',
			DETAIL = 'A transaction of another level does not see which ids were given out since it began.',
			HINT = 'Begin it with BEGIN ISOLATION LEVEL READ COMMITTED.';
	END IF;
	IF current_setting('session_replication_role') = 'replica' THEN
		RAISE EXCEPTION 'ids for old rows need a session_replication_role other than replica'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Rows that are written under it are left out as if replication had brought them.',
			HINT = 'Reset session_replication_role.';
	END IF;
	SELECT b.* INTO this FROM snowflake.backfill_layout AS b WHERE b.layout = layout AND b.share = share;
	IF NOT FOUND THEN
		this := snowflake.open_backfill(layout, share);
	END IF;
	PERFORM FROM snowflake.backfill_layout AS b WHERE b.id = this.same_as FOR UPDATE;
	IF at > clock_timestamp() THEN
		RAISE EXCEPTION 'time % is in the future', at
			USING ERRCODE = 'datetime_field_overflow', DETAIL = format('The clock shows %s.', clock_timestamp()),
			HINT = 'Ids are made up for times that are over; for new rows use snowflake_nextval().';
	END IF;
	IF at < this.epoch OR at >= this.ends_at THEN
		RAISE EXCEPTION 'time % is outside layout "%"', at,
			(SELECT coalesce(l.name, l.definition) FROM @extschema@.snowflake_layout(layout) AS l)
			USING ERRCODE = 'datetime_field_overflow',
			DETAIL = format('Its ids carry times from %s to before %s.', this.epoch, this.ends_at),
			HINT = 'Give the bound for such rows, or use a generator with another epoch.';
	END IF;

	-- A tick's counter starts at one of its first 16 values: were it always 0, ids of
	-- rows with different times would be equal modulo the powers of two.
	tick := @extschema@.snowflake_min_id(at, layout) >> this.timestamp_shift;
	start := (tick << this.counter_bits)
		+ ((tick & 1073741823) * 2654435761 >> 28) % least(16, greatest(1, 1 << this.counter_bits >> 3));
	word := snowflake.take_word(this.same_as, start);
	IF word >> this.counter_bits > this.last_tick THEN
		RAISE EXCEPTION 'the timestamp field of layout "%" is full',
			(SELECT coalesce(l.name, l.definition) FROM @extschema@.snowflake_layout(layout) AS l)
			USING ERRCODE = 'sequence_generator_limit_exceeded',
			DETAIL = format('All ids from %s to its end at %s are given out.', at, this.ends_at),
			HINT = 'Use a generator whose layout has a later end.';
	END IF;
	result := (word >> this.counter_bits << this.timestamp_shift) | this.fixed_bits
		| ((word & ((1::bigint << this.counter_bits) - 1)) << this.sequence_shift);
	IF word >> this.counter_bits > tick AND
		@extschema@.snowflake_timestamp(result, layout) > clock_timestamp() THEN
		RAISE EXCEPTION 'no id is left for time %', at
			USING ERRCODE = 'datetime_field_overflow',
			DETAIL = format('All ids from then to now are given out; there are %s in a tick.',
				1::bigint << this.counter_bits),
			HINT = 'Try again later, or use a generator whose layout has more sequence bits.';
	END IF;
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.backfill_id(timestamptz, text, integer) IS
'part of snowflake_backfill_id(): for a layout and share';
REVOKE EXECUTE ON FUNCTION snowflake.backfill_id(timestamptz, text, integer) FROM PUBLIC;

CREATE FUNCTION snowflake_backfill_id(at timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN snowflake.backfill_id(at, snowflake.layout_of(NULL), snowflake.backfill_share());
END
$$;
COMMENT ON FUNCTION snowflake_backfill_id(timestamptz) IS
'an id for an old row: of the server''s layout and the tick that contains the time; no other id is equal, if the row is written in the same (sub)transaction';

CREATE FUNCTION snowflake_backfill_id(at timestamptz, generator text) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN snowflake.backfill_id(at, snowflake.layout_of(generator), snowflake.backfill_share());
END
$$;
COMMENT ON FUNCTION snowflake_backfill_id(timestamptz, text) IS
'an id for an old row: of the generator''s layout and the tick that contains the time; no other id is equal, if the row is written in the same (sub)transaction';
REVOKE EXECUTE ON FUNCTION snowflake_backfill_id(timestamptz), snowflake_backfill_id(timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_backfill_id(timestamptz), snowflake_backfill_id(timestamptz, text)
TO pg_database_owner WITH GRANT OPTION;

