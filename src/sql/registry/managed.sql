--
-- A registry that is no extension: the role that owns it is no superuser, and its tables are dumped with
-- their rows.  It cannot read the timeline history, and a dump that is restored has the row of the original.
-- So it records where its tables are, and refuses every call where they are not.
--

-- Its programs name the database, and count_generation() refuses all others.
CREATE OR REPLACE FUNCTION snowflake.check_database() RETURNS void
LANGUAGE sql
AS '';

-- Only superusers may ask for the origin.  An apply process is in the role replica; so is a restore that asks
-- for it, whose rows are left out, too, that of table registry with them.
CREATE OR REPLACE FUNCTION snowflake.is_replicated() RETURNS boolean
LANGUAGE sql
AS $$
	SELECT pg_catalog.current_setting('session_replication_role') = 'replica'
$$;

-- Also which tables these are: a restore makes others, also in the same database.  pg_upgrade keeps all but
-- the system identifier.
CREATE OR REPLACE FUNCTION snowflake.this_server() RETURNS text
LANGUAGE sql
AS $$
	SELECT concat_ws('/', s.system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), d.oid,
		'snowflake.registry'::regclass::oid)
	FROM pg_control_system() AS s, pg_database AS d WHERE d.datname = current_database()
$$;
-- The column database is empty, as the server names it: no call makes an incarnation, the owner does.
UPDATE snowflake.registry SET server = snowflake.this_server(), database = NULL;
ALTER TABLE snowflake.registry ALTER server SET NOT NULL;
COMMENT ON TABLE snowflake.registry IS
'one row: which registry this is, and what holds for all its leases; dumped, but a dump that is restored '
'is another registry';

-- Nothing that is not counted, or a refusal.
CREATE OR REPLACE FUNCTION snowflake.count_generation(INOUT p_registry snowflake.registry, p_now timestamptz,
	OUT refusal jsonb)
LANGUAGE plpgsql
AS $$
BEGIN
	IF snowflake.this_server() IS DISTINCT FROM p_registry.server THEN
		refusal := snowflake.refusal('55000', 'the registry was promoted, restored, copied or upgraded',
			format('It is %s, recorded is %s: system identifier, timeline, database and table.',
				snowflake.this_server(), p_registry.server),
			'If it takes the place of another server, stop that one and wait until its leases are over. Then run '
			'SELECT snowflake.leases_are_over() as its owner: see "Managed PostgreSQL" in doc/operations.md.');
	END IF;
END
$$;

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
	v_registry snowflake.registry := snowflake.check_triggers(snowflake.lock_registry(true));
	v_here CONSTANT text := snowflake.this_server();
	v_now CONSTANT timestamptz := clock_timestamp();
BEGIN
	IF v_registry.server IS DISTINCT FROM v_here OR v_copied THEN
		UPDATE snowflake.registry AS r
		SET generation = r.generation + 1, server = v_here, counted_at = greatest(r.counted_at, v_now),
			incarnation = CASE WHEN r.closed_at IS NULL AND (v_copied
				OR overlay(r.server PLACING '' FROM strpos(r.server, '/') FOR 9) IS DISTINCT FROM
					overlay(v_here PLACING '' FROM strpos(v_here, '/') FOR 9))
				THEN gen_random_uuid() ELSE r.incarnation END
		WHERE r.one
		RETURNING r.* INTO STRICT v_registry;
	END IF;
	RETURN v_registry.incarnation;
END
$$;
COMMENT ON FUNCTION snowflake.leases_are_over(boolean) IS
'says that all leases are over which were granted before a promotion, restore, copy or upgrade; returns the '
'incarnation, which is new if the tables are others';
