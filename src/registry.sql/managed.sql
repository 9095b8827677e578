--
-- A registry that is no extension: the role that owns it is no superuser, and its tables are dumped with
-- their rows.  It cannot read the timeline history, and a dump that is restored has the row of the original.
-- So it records where its tables are, and refuses every call where they are not.
--

-- Its programs name the database, and timeline_history() refuses all others.
CREATE OR REPLACE FUNCTION snowflake.check_database() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS '';
COMMENT ON FUNCTION snowflake.check_database() IS
'part of the registry: any database can be one';

-- Only superusers may ask for the origin.  An apply process is in the role replica; so is a restore that asks
-- for it, whose rows are left out, too, that of table registry with them.
CREATE OR REPLACE FUNCTION snowflake.is_replicated() RETURNS boolean
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT current_setting('session_replication_role') = 'replica'
$$;

-- Timeline, and which tables: a restore makes others, also in the same database.  pg_upgrade keeps all but
-- the system identifier.
CREATE FUNCTION snowflake.tables_here() RETURNS text[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
	SELECT ARRAY[('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint::text,
		concat_ws('/', s.system_identifier, d.oid, 'snowflake.registry'::regclass::oid)]
	FROM pg_control_system() AS s, pg_database AS d WHERE d.datname = current_database()
$$;
COMMENT ON FUNCTION snowflake.tables_here() IS
'part of the registry: the timeline, and the system identifier, database and OID of the table registry';
UPDATE snowflake.registry SET counted = snowflake.tables_here();
COMMENT ON TABLE snowflake.registry IS
'one row: which registry this is, and what holds for all its leases; dumped, but a dump that is restored is another registry';
COMMENT ON COLUMN snowflake.registry.counted IS
'the timeline, and which tables, when the generation was counted last';

-- Nothing that is not counted, or an error.
CREATE OR REPLACE FUNCTION snowflake.timeline_history() RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_here CONSTANT text[] := snowflake.tables_here();
	v_counted CONSTANT text[] := (SELECT r.counted FROM snowflake.registry AS r WHERE r.one);
BEGIN
	IF v_counted IS DISTINCT FROM v_here THEN
		RAISE EXCEPTION 'the registry was promoted, restored, copied or upgraded'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('It is on timeline %s with the tables %s; recorded are timeline %s and the tables %s.',
				v_here[1], v_here[2], v_counted[1], v_counted[2]),
			HINT = 'If it takes the place of another server, stop that one and wait until its leases are over. Then run SELECT snowflake.leases_are_over() as its owner: see "Managed PostgreSQL" in doc/operations.md.';
	END IF;
	RETURN '{}';
END
$$;
COMMENT ON FUNCTION snowflake.timeline_history() IS
'part of the registry: refuses a timeline or tables that are not the recorded ones';

-- The owner says so.  Said twice, it counts once.  Numbers of the other parity come next, so that a promotion from the
-- recorded timeline is safe even if it is said too early, unless leases that an earlier promotion lost are not over.
-- (Two are counted as one, so their parity can be that of leases which another server of the first promotion grants.)
-- Other tables than before are another registry, since the original may still run.  What looks the same, as from a
-- snapshot of the storage, the owner says: copied.
CREATE FUNCTION snowflake.leases_are_over(copied boolean DEFAULT false) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
AS $$
DECLARE
	v_copied CONSTANT boolean := coalesce(copied, false);
	v_registry snowflake.registry := snowflake.lock_registry(true);
	v_here CONSTANT text[] := snowflake.tables_here();
BEGIN
	IF v_registry.counted IS DISTINCT FROM v_here OR v_copied THEN
		UPDATE snowflake.registry AS r
		SET generation = r.generation + 1, counted = v_here, counted_at = greatest(r.counted_at, clock_timestamp()),
			system_identifier = split_part(v_here[2], '/', 1)::bigint,
			incarnation = CASE WHEN r.closed_at IS NULL AND (v_copied OR r.counted[2] IS DISTINCT FROM v_here[2])
				THEN gen_random_uuid() ELSE r.incarnation END
		WHERE r.one
		RETURNING r.* INTO STRICT v_registry;
	END IF;
	RETURN v_registry.incarnation;
END
$$;
COMMENT ON FUNCTION snowflake.leases_are_over(boolean) IS
'says that all leases are over which were granted before a promotion, restore, copy or upgrade; returns the incarnation, which is new if the tables are others';
