--
-- The rules.  A node number is leased for a span of id time: a lease allows ids of ticks that begin
-- at or after its starts_at and end at or before its leased_until, whatever clocks, pauses and
-- networks do.  Two leases never allow the same (tick, node number), because
--
--	1. calls run one after another: each locks the registry's row first, and computes all that it
--	   writes after that (lock_registry());
--	2. a number has at most one open lease, and a lease starts at or after every end in its number's
--	   history: granting closes the open one as it stands, which raises ended_until (open_lease());
--	3. leased_until is raised only by a renewal of an open lease of the present incarnation and generation that
--	   starts at or after the number's ended_until; other leases are not renewed: the answer is no (renew_lease());
--	4. the end of an open lease is lowered only when a call of its own start closes it in the present incarnation: to
--	   the end of its ids, which the call says; or to where it starts, if it was granted by a later call than the
--	   lease that the node opened last (close_leases_of_start()).  Or by an order, whose owner says that no id of it
--	   is later (ids_end_before());
--	5. a call whose number is not greater than those seen in an open lease of its start is refused
--	   (close_leases_of_start());
--	6. bit 0 of an automatic number is clear in odd generations and set in even ones.  So a server
--	   that was promoted never grants what the one before it grants, whichever rows were lost; nor
--	   does a registry that takes it over, whose generation gets the same parity
--	   (choose_number(), count_generation(), take_over());
--	7. what may be in no row here ends before the leases of this table start: ids of tables before it
--	   (created_at), of an earlier generation or a server before pg_upgrade (counted_at), of generations of the same
--	   parity and of registries taken over (starts_at), and of the node that calls (lease_starts_at()).  A fixed
--	   number, which generations do not keep apart, also starts at or after its node's clock if the server was
--	   promoted, or has taken over a registry.  (Otherwise its own rows are all there are, and a clock that was ahead
--	   at a start must not hold up the number.);
--	8. no lease ends later than the limit for ends after the registry's clock, so a lease that is in no row is over
--	   when the server that granted it has been stopped for the longest window (lease_end());
--	9. a closed registry changes nothing; only its successor accepts its nodes, after it has taken
--	   over the ends of all its numbers (begin_call(), check_source(), take_over()).  It opens again only
--	   to take over its successor, or one that has taken that over;
--	10. a cluster that uses another registry grants nothing, unless it has taken that one over
--	   (check_cluster(), record_uses());
--	11. all leases are of one default layout.  An order changes it: it closes all leases, and those of the new one
--	   start where its ids are greater than all that leases allowed before (check_cluster(), change_layout()).
--
-- Every statement sees all that was committed before it began: the isolation level is READ COMMITTED,
-- and the functions are VOLATILE.
--
-- Rows that are inserted, by a restore or by take_over(), only raise ended_until (merge_node_number()).  So a lease
-- that such a row overlaps is not renewed (3), and rows that are restored at any time do no harm.
--

--
-- The database
--

-- Servers use the registry in database postgres of a cluster.  What another one in the same cluster granted,
-- that one would grant again.  So each call and order asks this, as the database may be a copy or have another
-- name by now.
CREATE FUNCTION snowflake.check_database() RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
	IF current_database() <> 'postgres' THEN
		RAISE EXCEPTION 'the database "%" cannot be a registry', current_database()
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'The registry of a cluster is its database "postgres". '
				'Another one would lease the same node numbers again.',
			HINT = 'Use snowflake_registry in the database "postgres". Managed PostgreSQL has its script for other '
				'databases: see "Managed PostgreSQL" in doc/operations.md.';
	END IF;
END
$$;

--
-- The lock
--

-- System identifier and timeline.  The timeline comes from the position in WAL, as the control file is late after a
-- promotion.
CREATE FUNCTION snowflake.this_server() RETURNS text
LANGUAGE sql
AS $$
	SELECT concat_ws('/', (pg_control_system()).system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))
$$;

-- Locks the registry until the end of the transaction, and sees to what every call and order depends on.
-- p_durable: the commit waits for the disk, and for synchronous standbys, whatever the role and the database have set.
CREATE FUNCTION snowflake.lock_registry(p_durable boolean) RETURNS snowflake.registry
LANGUAGE plpgsql
AS $$
DECLARE
	v_found record;
	v_registry snowflake.registry;
BEGIN
	PERFORM snowflake.check_database();
	IF pg_is_in_recovery() THEN
		RAISE EXCEPTION 'the registry is a hot standby'
			USING ERRCODE = 'read_only_sql_transaction',
			DETAIL = 'A standby grants and renews nothing.',
			HINT = 'Name all its servers in the node''s address of the registry, with target_session_attrs=read-write '
				'(JDBC: targetServerType=primary).';
	ELSIF snowflake.is_replicated() THEN
		RAISE EXCEPTION 'the registry cannot be called in a session with a replication origin'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'What such a session writes counts as replicated, and is left out of the tables.',
			HINT = 'Call it in another session.';
	ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'leases need isolation level read committed, not %', current_setting('transaction_isolation')
			USING ERRCODE = 'active_sql_transaction',
			DETAIL = 'At another level a call does not see what others have committed while it waited for them.',
			HINT = 'Reset default_transaction_isolation for the role and the database that the node connects to.';
	END IF;
	IF p_durable AND current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	-- a commit that is not on a synchronous standby is told by a warning
	IF p_durable AND current_setting('client_min_messages') = 'error' THEN
		PERFORM set_config('client_min_messages', 'warning', true);
	END IF;
	SELECT r, d.oid AS database INTO v_found FROM snowflake.registry AS r, pg_database AS d
	WHERE r.one AND d.datname = current_database() FOR UPDATE OF r;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the table snowflake.registry has no row'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'Without it nothing can be leased.',
			HINT = 'See "Starting over" in doc/operations.md.';
	END IF;
	v_registry := v_found.r;
	IF v_registry.database <> v_found.database AND v_registry.closed_at IS NULL THEN
		-- a copy of another database: other leases are granted there from now on
		UPDATE snowflake.registry AS r
		SET incarnation = gen_random_uuid(), database = v_found.database, created_at = clock_timestamp() WHERE r.one
		RETURNING r.* INTO STRICT v_registry;
	END IF;
	RETURN v_registry;
END
$$;

-- A warning of a guard, in the log and where monitoring sees it.
CREATE FUNCTION snowflake.warn(p_guard text, p_now timestamptz, p_message text, p_detail text, p_hint text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
	RAISE WARNING 'snowflake: %', p_message USING DETAIL = p_detail, HINT = p_hint;
	INSERT INTO snowflake.guard AS g (guard, first_at, last_at, detail)
	VALUES (p_guard, p_now, p_now, p_message || '. ' || p_detail)
	ON CONFLICT (guard) DO UPDATE SET times = g.times + 1, last_at = EXCLUDED.last_at, detail = EXCLUDED.detail;
END
$$;

--
-- Generations
--

-- The longest window: how long after a server that granted leases was stopped the last one is over.  10 s are for
-- clocks that differ.
CREATE FUNCTION snowflake.longest_window(p_registry snowflake.registry, p_now timestamptz) RETURNS interval
LANGUAGE sql IMMUTABLE
AS $$
	-- greatest() ignores NULL
	SELECT greatest(p_registry.end_limit,
		CASE WHEN p_registry.old_limit_until > p_now THEN p_registry.old_limit END) + interval '10 s'
$$;

-- The promotions in this server's timeline history, in its order, as timeline/switch LSN; NULL if the file is missing,
-- or lacks its first lines: what it does not tell would count as no promotion.  Comments in the file may be in any
-- encoding.
CREATE FUNCTION snowflake.timeline_history(p_timeline text) RETURNS text[]
LANGUAGE sql
AS $$
	SELECT CASE WHEN p_timeline = '00000001' THEN '{}'
		WHEN bool_and(e.entry IS NOT NULL) AND (array_agg(e.entry[1] ORDER BY e.line))[1] = '1'
			THEN array_agg(e.entry[1]::bigint || '/' || e.entry[2]::pg_lsn ORDER BY e.line) END
	FROM (SELECT l.line, regexp_match(l.text COLLATE "C",
			'^[[:space:]]*([0-9]{1,10})[[:space:]]+([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})([[:space:]]|$)') AS entry
		FROM string_to_table(encode(
			pg_read_binary_file('pg_wal/' || p_timeline || '.history', 0, 10000000, true), 'escape'), E'\n')
			WITH ORDINALITY AS l (text, line)
		WHERE p_timeline <> '00000001' AND l.text COLLATE "C" !~ '^[[:space:]]*(#|$)') AS e
$$;

-- Whether the one new entry is that of a plain promotion: the last line of the file, of the timeline just before the
-- present one, and with places in WAL that never go down from line to line.
CREATE FUNCTION snowflake.is_plain(p_history text[], p_new text[], p_timeline bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
	SELECT cardinality(p_new) = 1 AND p_new[1] = p_history[cardinality(p_history)]
		AND split_part(p_new[1], '/', 1)::bigint = p_timeline - 1
		AND NOT EXISTS (SELECT FROM generate_series(2, cardinality(p_history)) AS i
			WHERE regexp_replace(p_history[i], '^[0-9]+/', '')::pg_lsn
				< regexp_replace(p_history[i - 1], '^[0-9]+/', '')::pg_lsn)
$$;

-- At the head of every call and order: the generation grows by the entries that are
-- not counted yet.  The time of the count is stored, and also that of pg_upgrade, which takes no history
-- along and makes another system identifier.  (Timelines begin at 1 again then, but WAL goes on in a new
-- segment: no later entry is like one of before.)  A server that was promoted and upgraded before its first call
-- stays in its generation: so that it renews nothing that its old primary may have closed, all leases are
-- closed then.
--
-- Parity keeps this generation apart from the one before.  Where that is not all: a count that is no plain promotion,
-- or that follows another one within the longest window: all leases start after the longest window.
--
-- p_now: the registry's clock.  refusal: the history cannot be read.
CREATE FUNCTION snowflake.count_generation(INOUT p_registry snowflake.registry, p_now timestamptz, OUT refusal jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
	v_here CONSTANT text := snowflake.this_server();
	v_timeline CONSTANT text := split_part(v_here, '/', 2);
	v_upgraded CONSTANT boolean := split_part(v_here, '/', 1) <> split_part(p_registry.server, '/', 1);
	v_history text[];
	v_new text[];
	v_floor timestamptz;
BEGIN
	IF v_here = p_registry.server THEN
		RETURN;
	END IF;
	v_history := snowflake.timeline_history(v_timeline);
	IF v_history IS NULL THEN
		refusal := snowflake.refusal('55000',
			format('could not find the history of timeline %s', ('x' || v_timeline)::bit(32)::bigint),
			format('The file "pg_wal/%s.history" does not exist or does not have it. It tells how often this cluster '
				'was promoted, which keeps the numbers of two primaries apart.', v_timeline),
			'Put it back from the WAL archive or the former primary.');
		RETURN;
	END IF;
	v_new := ARRAY(SELECT h.entry FROM unnest(v_history) WITH ORDINALITY AS h (entry, line)
		WHERE h.entry <> ALL (p_registry.counted) ORDER BY h.line);
	IF v_upgraded IS NULL OR v_upgraded AND v_new = '{}' THEN
		v_floor := NULL;	-- CREATE EXTENSION, or pg_upgrade
	ELSIF snowflake.is_plain(v_history, v_new, ('x' || v_timeline)::bit(32)::bigint) THEN
		v_floor := CASE WHEN p_registry.counted_at + snowflake.longest_window(p_registry, p_now) > p_now
			THEN p_registry.counted_at + snowflake.longest_window(p_registry, p_now) END;
	ELSE
		v_floor := p_now + snowflake.longest_window(p_registry, p_now);
	END IF;
	IF v_floor IS NOT NULL THEN
		PERFORM snowflake.warn('wait', p_now,
			format('leases of this registry start at %s', snowflake.time_text(v_floor)),
			format('New in its timeline history are %s entries: %s.', cardinality(v_new),
				left(array_to_string(v_new, ', '), 1000)),
			'Nodes go on with the leases that they have. See "Failover" in doc/operations.md.');
	END IF;
	UPDATE snowflake.registry AS r
	SET generation = r.generation + cardinality(v_new), counted = r.counted || v_new, server = v_here,
		counted_at = CASE WHEN p_registry.server IS NULL THEN r.counted_at ELSE greatest(r.counted_at, p_now) END,
		starts_at = greatest(r.starts_at, v_floor), mark = NULL
	WHERE r.one
	RETURNING r.* INTO STRICT p_registry;
	IF v_upgraded THEN
		PERFORM snowflake.close_lease(n, n.leased_until) FROM snowflake.node_number AS n WHERE n.token IS NOT NULL;
	END IF;
END
$$;

-- Where leases of this generation start, by what may be in no row of it: a plain failover has lost at most what ends
-- before the count and the parity; the rest is over then.
CREATE FUNCTION snowflake.generation_starts_at(p_registry snowflake.registry, p_max_ahead interval) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
	SELECT greatest(p_registry.counted_at + least(p_max_ahead, interval '10 s'), p_registry.starts_at)
$$;

-- Enables triggers again that a restore has disabled.  starts_at is raised as keep_cluster() would have done.
CREATE FUNCTION snowflake.check_triggers(p_registry snowflake.registry) RETURNS snowflake.registry
LANGUAGE plpgsql
AS $$
BEGIN
	IF snowflake.enable_triggers() THEN
		PERFORM snowflake.warn('triggers', clock_timestamp(), 'triggers of the registry were disabled',
			'This call enables them again. Until then logical replication could change leases.',
			'Do not restore into its tables with --disable-triggers. See "What the registry warns of" in '
			'doc/operations.md.');
		UPDATE snowflake.registry AS r
		SET starts_at = greatest(r.starts_at, (SELECT snowflake.start_above(c) FROM snowflake.cluster AS c WHERE c.one))
		WHERE r.one
		RETURNING r.* INTO STRICT p_registry;
	END IF;
	RETURN p_registry;
END
$$;

--
-- Which registry a cluster uses
--

CREATE FUNCTION snowflake.refuse_closed(p_registry snowflake.registry) RETURNS jsonb
LANGUAGE sql
AS $$
	SELECT snowflake.refusal('55000', 'the registry is closed',
		format('Its incarnation is %s; the registry with the incarnation %s takes it over.',
			p_registry.incarnation, p_registry.successor),
		'Have the other registry take it over: see "Another registry" in doc/operations.md. If it has, this node asks '
		'the wrong one: set snowflake.registry (in a program: its data source) to the other one, and reload.')
$$;

-- Whether the registry's own cluster lets it grant, and whether a call's layout is the recorded one, if there is one.
CREATE FUNCTION snowflake.check_cluster(p_registry snowflake.registry, p_layout text) RETURNS jsonb
LANGUAGE plpgsql
AS $$
DECLARE
	v_cluster snowflake.cluster;
BEGIN
	SELECT c.* INTO v_cluster FROM snowflake.cluster AS c WHERE c.one;
	IF v_cluster.incarnation IS NOT NULL AND v_cluster.incarnation <> ALL (p_registry.taken_over) THEN
		RETURN snowflake.refusal('55000', 'the registry''s own cluster uses another registry',
			format('The registry to use has the incarnation %s; '
				'this one, with the incarnation %s, has not taken it over.',
				v_cluster.incarnation, p_registry.incarnation),
			'Set snowflake.registry (in a program: its data source) to that registry, or move: '
			'see "Another registry" in doc/operations.md.');
	END IF;
	IF v_cluster.layout <> p_layout THEN
		RETURN snowflake.refusal('55000', 'the layout is not the one that ids are issued under',
			format('Ids are issued under "%s"; the node has "%s".',
				v_cluster.layout, snowflake.printable(left(p_layout, 255))),
			format('Set the layout of the node to ''%s'' (of a server: snowflake.layout, and restart it; '
				'it can have the other one in snowflake.extra_layouts). '
				'To change that of all nodes, run SELECT snowflake.change_layout(%L) in the registry: '
				'see "Change of layout" in doc/operations.md. '
				'If no id is in use yet, see "Starting over" there.',
				v_cluster.layout, snowflake.printable(left(p_layout, 255))));
	END IF;
	IF v_cluster.layout IS NULL AND snowflake.layout_of(p_layout) IS NULL THEN
		PERFORM snowflake.refuse_value('layout', to_jsonb(p_layout), 'a layout as doc/protocol.md writes it');
	END IF;
	RETURN CASE WHEN v_cluster.layout IS NULL THEN snowflake.refuse_full(p_layout, clock_timestamp()) END;
END
$$;

-- A node has used nothing yet, this registry, or one that was taken over; and it is not this server.
CREATE FUNCTION snowflake.check_source(p_registry snowflake.registry, p_uses uuid, p_system_identifier bigint,
	p_launched_at timestamptz) RETURNS jsonb
LANGUAGE plpgsql
AS $$
BEGIN
	IF pg_postmaster_start_time() = p_launched_at
		AND p_system_identifier = split_part(p_registry.server, '/', 1)::bigint THEN
		RETURN snowflake.refusal('55000', 'the registry is the server itself',
			format('Both have the system identifier %s and were started at %s.', p_system_identifier,
				snowflake.time_text(p_launched_at)),
			'Set snowflake.registry to "own" on this server.');
	END IF;
	IF p_uses IS NOT NULL AND p_uses <> p_registry.incarnation AND p_uses <> ALL (p_registry.taken_over) THEN
		RETURN snowflake.refusal('55000', 'the registry is not the one that the node''s ids were issued with',
			format('Its incarnation is %s, the recorded one %s.', p_registry.incarnation, p_uses),
			'Set snowflake.registry (in a program: its data source) to the recorded one again; or move: see "Another '
			'registry" in doc/operations.md. If the recorded one is lost, see "A lost registry" in doc/operations.md.');
	END IF;
	RETURN NULL;
END
$$;

--
-- Closing
--

-- Closes the open lease of a number, at p_end, which is at or before the end on record.
CREATE FUNCTION snowflake.close_lease(p_lease snowflake.node_number, p_end timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
	v_now CONSTANT timestamptz := clock_timestamp();
BEGIN
	UPDATE snowflake.node_number AS n
	SET ended_until = greatest(n.ended_until, p_end), free_since = v_now, token = NULL, start = NULL, granted_by = NULL,
		last_call = NULL, own = NULL, fixed = NULL, system_identifier = NULL, role = NULL,
		incarnation = NULL, generation = NULL,
		starts_at = NULL, leased_until = NULL, renewed_at = NULL
	WHERE n.node_number = p_lease.node_number;
	UPDATE snowflake.worker_node AS w SET leased_until = p_end, closed_at = v_now WHERE w.token = p_lease.token;
END
$$;

-- The lease that a call names, the newest one that the node has opened; all NULL if it names none.  ids_end_at: the end
-- of its ids, if the node has sealed it.
CREATE TYPE snowflake.named_lease AS (token uuid, node_number bigint, granted_by bigint,
	incarnation uuid, generation integer, leased_until timestamptz, ids_end_at timestamptz);

-- Closes the open leases of a start that a call shows to be over: the named one, if its ids have ended, and all others.
-- One that was granted by a later call than the named one was never opened, and so issued nothing.  The named one may
-- not be on record here; which are later is known all the same.  refusal: the call is late.  named: the open lease that
-- is named, as it was; NULL if it is not on record.
CREATE FUNCTION snowflake.close_leases_of_start(p_registry snowflake.registry, p_start uuid, p_call bigint,
	p_named snowflake.named_lease, OUT named snowflake.node_number, OUT refusal jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
	v_lease snowflake.node_number;
BEGIN
	FOR v_lease IN
		SELECT n.* FROM snowflake.node_number AS n WHERE n.start = p_start AND n.token IS NOT NULL
		ORDER BY n.last_call DESC
	LOOP
		-- the first of them has seen the last call
		IF p_call <= v_lease.last_call THEN
			refusal := snowflake.refusal('55000', format('call %s of this start arrived too late', p_call),
				format('The registry has carried out call %s of the same start.', v_lease.last_call),
				'No action is needed: the node makes a new call.', '0 s');
			RETURN;
		END IF;
		IF v_lease.token = p_named.token THEN
			-- a wrong one would end leases that have issued ids where they started
			IF v_lease.granted_by <> p_named.granted_by THEN
				PERFORM snowflake.refuse_value('lease.granted_by', to_jsonb(p_named.granted_by),
					format('%s, the call that was granted the lease', v_lease.granted_by));
			END IF;
			named := v_lease;
			CONTINUE WHEN p_named.ids_end_at IS NULL;
		END IF;
		PERFORM snowflake.close_lease(v_lease, CASE
			WHEN v_lease.incarnation <> p_registry.incarnation THEN v_lease.leased_until
			WHEN v_lease.token = p_named.token
				THEN least(v_lease.leased_until, greatest(v_lease.starts_at, p_named.ids_end_at))
			WHEN v_lease.granted_by > p_named.granted_by THEN v_lease.starts_at
			ELSE v_lease.leased_until END);
	END LOOP;
END
$$;

-- A call that names this incarnation and generation, and a later end than its number was ever granted, shows that
-- the tables were rolled back, or that another server grants the same leases.  The number's end rises to it, at most to
-- the limit for ends, unless the number is another node's, or none of the layout; recorded_until does not, so that the
-- same is seen by the call for the node's next lease.  Returns whether it is so.
CREATE FUNCTION snowflake.is_rolled_back(p_registry snowflake.registry, p_now timestamptz,
	p_named snowflake.named_lease) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
	v_end CONSTANT timestamptz := least(p_named.leased_until, p_now + p_registry.end_limit);
	v_row snowflake.node_number;
BEGIN
	IF ((p_named.incarnation, p_named.generation) = (p_registry.incarnation, p_registry.generation)) IS NOT TRUE THEN
		RETURN false;
	END IF;
	SELECT n.* INTO v_row FROM snowflake.node_number AS n WHERE n.node_number = p_named.node_number;
	IF p_named.leased_until <= v_row.recorded_until THEN
		RETURN false;
	END IF;
	-- unless it is known by now, from the call before this one
	IF (v_row.ended_until >= v_end) IS NOT TRUE THEN
		PERFORM snowflake.warn('rolled back', p_now,
			format('node number %s is leased until %s, and the tables do not know of it',
				p_named.node_number, snowflake.time_text(p_named.leased_until)),
			CASE WHEN v_row.recorded_until > '-infinity'
				THEN format('They have leases of it until %s.', snowflake.time_text(v_row.recorded_until))
				ELSE 'They have no lease of it.' END
				|| format(' The role "%s" says so.', session_user),
			'The storage of the registry was rolled back, or another server is a copy of it: see "Failover" in '
			'doc/operations.md.');
	END IF;
	IF v_row.token = p_named.token THEN
		PERFORM snowflake.close_lease(v_row, v_row.leased_until);
	END IF;
	IF (v_row.token IS NULL OR v_row.token = p_named.token)
		AND NOT EXISTS (SELECT FROM snowflake.cluster AS c
			WHERE c.one AND p_named.node_number > snowflake.greatest_number(c.layout)) THEN
		INSERT INTO snowflake.node_number (node_number, ended_until) VALUES (p_named.node_number, v_end);
	END IF;
	RETURN true;
END
$$;

--
-- Choosing a number
--

-- The open leases that are over by both clocks are closed: a few, from a start on that is drawn, or all of them.
-- p_clock: the earlier of node's and registry's.
CREATE FUNCTION snowflake.close_leases_that_are_over(p_clock timestamptz, p_all boolean) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
	v_from CONSTANT uuid := gen_random_uuid();
BEGIN
	PERFORM snowflake.close_lease(n.lease, (n.lease).leased_until)
	FROM (SELECT o AS lease FROM snowflake.node_number AS o WHERE o.token IS NOT NULL AND (p_all OR o.start >= v_from)
		ORDER BY o.start LIMIT CASE WHEN NOT p_all THEN 16 END) AS n
	WHERE (n.lease).leased_until <= p_clock - CASE WHEN p_all THEN interval '0' ELSE interval '1 min' END;
END
$$;

-- Of the numbers first, first + step, ... up to last, the first that was never leased: it follows one that was.
CREATE FUNCTION snowflake.first_unused(p_first bigint, p_last bigint, p_step integer) RETURNS bigint
LANGUAGE sql
AS $$
	SELECT min(c.number)
	FROM (SELECT p_first
		UNION ALL
		SELECT n.node_number + p_step FROM snowflake.node_number AS n
		WHERE n.node_number BETWEEN p_first AND p_last - p_step
			AND (n.node_number - p_first) % p_step = 0) AS c (number)
	WHERE NOT EXISTS (SELECT FROM snowflake.node_number AS n WHERE n.node_number = c.number)
$$;

-- One of the numbers first, first + 2, ... up to last that was never leased: of 16 at random, or of all.
CREATE FUNCTION snowflake.unused_number(p_first bigint, p_last bigint, p_all boolean) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
	v_number bigint;
BEGIN
	IF p_all THEN
		RETURN snowflake.first_unused(p_first, p_last, 2);
	END IF;
	-- one look each: a query of all might read the table
	FOR i IN 1 .. 16 LOOP
		v_number := p_first
			+ 2 * least((p_last - p_first) / 2, floor(random() * ((p_last - p_first) / 2 + 1)::float8)::bigint);
		IF NOT EXISTS (SELECT FROM snowflake.node_number AS n WHERE n.node_number = v_number) THEN
			RETURN v_number;
		END IF;
	END LOOP;
	RETURN NULL;
END
$$;

-- The free number whose leases ended first.  Mostly it is among the first by the index.  Where those are of another
-- range: of a few numbers all are read; of many, those that are longest unused, up to one of the range.  The planner
-- does not know the range, takes each for a narrow one, and would read all of it: so it does not see it there.
CREATE FUNCTION snowflake.longest_unused(p_first bigint, p_last bigint, p_node_clock timestamptz) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
	v_number bigint;
BEGIN
	SELECT c.node_number INTO v_number
	FROM (SELECT n.node_number, n.ended_until FROM snowflake.node_number AS n
		WHERE n.token IS NULL AND (n.node_number & 1) = (p_first & 1) AND n.ended_until <= p_node_clock
		ORDER BY n.ended_until LIMIT 16) AS c
	WHERE c.node_number BETWEEN p_first AND p_last
	ORDER BY c.ended_until, c.node_number LIMIT 1;
	IF FOUND THEN
		RETURN v_number;
	ELSIF p_last - p_first < 4096 THEN
		RETURN (SELECT (array_agg(n.node_number ORDER BY n.ended_until, n.node_number))[1]
			FROM snowflake.node_number AS n
			WHERE n.token IS NULL AND (n.node_number & 1) = (p_first & 1) AND n.ended_until <= p_node_clock
				AND n.node_number BETWEEN p_first AND p_last);
	END IF;
	RETURN (SELECT n.node_number FROM snowflake.node_number AS n
		WHERE n.token IS NULL AND (n.node_number & 1) = (p_first & 1) AND n.ended_until <= p_node_clock
			AND CASE WHEN n.node_number BETWEEN p_first AND p_last THEN true ELSE false END
		ORDER BY n.ended_until LIMIT 1);
END
$$;

-- An automatic number is free if it has no open lease that is live by anyone's clock, and if ids can go on in it now.
-- Those that were never leased come first, as far as a few looks find one.
CREATE FUNCTION snowflake.choose_automatic(p_first bigint, p_last bigint, p_node_clock timestamptz, p_now timestamptz,
	OUT number bigint, OUT refusal jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
	v_clock CONSTANT timestamptz := least(p_node_clock, p_now);
	v_earliest timestamptz;
BEGIN
	PERFORM snowflake.close_leases_that_are_over(v_clock, false);
	number := coalesce(snowflake.unused_number(p_first, p_last, false),
		snowflake.longest_unused(p_first, p_last, p_node_clock));
	IF number IS NULL THEN
		PERFORM snowflake.close_leases_that_are_over(v_clock, true);
		number := coalesce(snowflake.longest_unused(p_first, p_last, p_node_clock),
			snowflake.unused_number(p_first, p_last, true));
	END IF;
	IF number IS NULL THEN
		SELECT min(greatest(n.ended_until, n.leased_until)) INTO v_earliest FROM snowflake.node_number AS n
		WHERE n.node_number BETWEEN p_first AND p_last AND (n.node_number & 1) = (p_first & 1);
		refusal := snowflake.refusal('53400', 'no node number is free',
			format('Of %s numbers the earliest end is %s; the clock, of node or registry, that is behind shows %s.',
				(p_last - p_first) / 2 + 1, snowflake.time_text(v_earliest), snowflake.time_text(v_clock)),
			'Wait for that, stop a node that needs no number, or choose a layout with more worker bits.',
			v_earliest - v_clock);
	END IF;
END
$$;

-- The numbers from first to last are the node's own: one, or as many as its layout has clocks.  Of them it gets the
-- last one in which ids can go on, else one that was never leased, else the one that ends first.  Those that another
-- start may still use are refused; p_own: but not those that this server has itself, or had as a standby of its
-- primary.
CREATE FUNCTION snowflake.choose_fixed(p_first bigint, p_last bigint, p_start uuid, p_own boolean,
	p_node_clock timestamptz, p_now timestamptz, p_max_ahead interval, OUT number bigint, OUT refusal jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
	v_other snowflake.node_number;
BEGIN
	SELECT n.* INTO v_other FROM snowflake.node_number AS n
	WHERE n.node_number BETWEEN p_first AND p_last AND n.leased_until > least(p_node_clock, p_now)
		AND n.start <> p_start AND NOT (p_own AND n.own)
	ORDER BY n.node_number DESC LIMIT 1;
	IF FOUND THEN
		refusal := snowflake.refusal('55000', format('node number %s is leased to another %s',
				v_other.node_number, CASE WHEN v_other.system_identifier IS NULL THEN 'program' ELSE 'server' END),
			format('Its lease ends at %s. The view snowflake.leases of the registry shows where it is.',
				snowflake.time_text(v_other.leased_until)),
			'If that is this server before a crash, or a node that is gone for good, wait until its lease is over. '
			'Otherwise set another snowflake.worker_id.',
			v_other.leased_until - least(p_node_clock, p_now));
		RETURN;
	END IF;
	SELECT c.number INTO number
	FROM (SELECT n.node_number, greatest(n.ended_until, n.leased_until) FROM snowflake.node_number AS n
		WHERE n.node_number BETWEEN p_first AND p_last
		UNION ALL
		SELECT snowflake.first_unused(p_first, p_last, 1), NULL) AS c (number, until)
	WHERE c.number IS NOT NULL
	ORDER BY CASE WHEN c.until <= p_node_clock + p_max_ahead THEN 1 WHEN c.until IS NULL THEN 2 ELSE 3 END,
		CASE WHEN c.until <= p_node_clock + p_max_ahead THEN c.until END DESC, c.until, c.number
	LIMIT 1;
END
$$;

CREATE FUNCTION snowflake.choose_number(p_registry snowflake.registry, p_call jsonb, p_own boolean,
	p_node_clock timestamptz, p_now timestamptz, OUT number bigint, OUT refusal jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
	v_first CONSTANT bigint := (p_call -> 'first_number')::bigint;
	v_last CONSTANT bigint := (p_call -> 'last_number')::bigint;
	v_bit CONSTANT bigint := 1 - p_registry.generation % 2;	-- bit 0 of automatic numbers
	v_chosen record;
BEGIN
	IF (p_call -> 'fixed')::boolean THEN
		v_chosen := snowflake.choose_fixed(v_first, v_last, (p_call ->> 'start')::uuid, p_own, p_node_clock, p_now,
			snowflake.span_of((p_call -> 'max_ahead')::bigint));
	ELSIF v_first = v_last THEN
		refusal := snowflake.refusal('55000', 'the layout has too few node numbers',
			'Automatic numbers need two bits for datacenter, worker and clock in every layout in use: '
			'one of them tells a promoted registry from the one before it.',
			'Choose a layout with more worker bits; or give a server a fixed number, by snowflake.worker_id.');
		RETURN;
	ELSE
		v_chosen := snowflake.choose_automatic(v_first + abs((v_first & 1) - v_bit),
			v_last - abs((v_last & 1) - v_bit), p_node_clock, p_now);
	END IF;
	number := v_chosen.number;
	refusal := v_chosen.refusal;
END
$$;

--
-- Where a lease starts and ends
--

-- The time that a lease starts at or after, whatever its number.  p_node_floor: the end of ids that the
-- node knows of and the tables may not; NULL if there are no such ids.
CREATE FUNCTION snowflake.lease_starts_at(p_registry snowflake.registry, p_node_clock timestamptz,
	p_max_ahead interval, p_fixed boolean, p_node_floor timestamptz, OUT starts_at timestamptz, OUT refusal jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
	v_latest CONSTANT timestamptz := p_node_clock + interval '10 s' + p_max_ahead;
	v_created CONSTANT timestamptz := p_registry.created_at + p_max_ahead;
	v_generation CONSTANT timestamptz := snowflake.generation_starts_at(p_registry, p_max_ahead);
BEGIN
	IF v_created > v_latest THEN
		refusal := snowflake.refusal('55000', 'the node''s clock is behind the creation of the extension',
			format('The clock shows %s; the extension was created at %s.',
				snowflake.time_text(p_node_clock), snowflake.time_text(p_registry.created_at)),
			'Correct the clock. If that of the registry was ahead when the extension was created, '
			'see "A clock that was ahead" in doc/operations.md.',
			v_created - v_latest);
	ELSIF v_generation > v_latest THEN
		refusal := snowflake.refusal('55000', 'the node''s clock is behind the time that leases start at',
			format('The clock shows %s; leases start at %s, since the last promotion, restore or pg_upgrade, '
				'or change of layout or registry.',
				snowflake.time_text(p_node_clock), snowflake.time_text(v_generation)),
			'Wait until it shows that time, or correct the clock. If no id is that late, '
			'see "A clock that was ahead" in doc/operations.md.',
			v_generation - v_latest);
	ELSIF p_node_floor > v_latest THEN
		refusal := snowflake.refusal('55000', 'the node''s clock is behind ids that the registry does not know of',
			format('The clock shows %s; ids were issued until %s.',
				snowflake.time_text(p_node_clock), snowflake.time_text(p_node_floor)),
			'Correct the clock, or wait until it shows that time. If these ids are gone, restart the node. If they are from '
			'before its move to this registry, see "Another registry" in doc/operations.md.',
			p_node_floor - v_latest);
	END IF;
	-- greatest() ignores NULL
	starts_at := greatest(v_created, v_generation, p_node_floor,
		CASE WHEN p_fixed AND (p_registry.generation > 1 OR cardinality(p_registry.taken_over) > 0) THEN p_node_clock END);
END
$$;

-- Where a lease ends that asks for a window from its start, or the node's clock, on: no later than the limit for ends
-- after the registry's clock, and no earlier than before.  p_leased_until: its end so far, or NULL.
CREATE FUNCTION snowflake.lease_end(p_registry snowflake.registry, p_call jsonb, p_node_clock timestamptz,
	p_now timestamptz, p_starts_at timestamptz, p_leased_until timestamptz,
	OUT leased_until timestamptz, OUT refusal jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
	v_from CONSTANT timestamptz := greatest(p_node_clock, p_starts_at);
	v_latest CONSTANT timestamptz := p_now + p_registry.end_limit;
BEGIN
	-- greatest() ignores NULL
	leased_until := greatest(p_leased_until,
		least(v_from + snowflake.span_of((p_call -> 'window')::bigint), v_latest));
	IF leased_until <= v_from THEN
		refusal := snowflake.refusal('55000', 'the lease would end before it could be used',
			format('It would be used from %s on, and leases end at %s at the latest: %s s after the registry''s clock, '
				'which shows %s. That of the node shows %s.',
				snowflake.time_text(v_from), snowflake.time_text(v_latest),
				extract(epoch FROM p_registry.end_limit)::bigint, snowflake.time_text(p_now),
				snowflake.time_text(p_node_clock)),
			'Correct the clock that is wrong. If both are right, see snowflake.limit_leases() in doc/reference.md.',
			v_from - v_latest);
	END IF;
END
$$;
