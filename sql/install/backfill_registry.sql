--
-- Ids for old rows, the registry's side: who has which share
--
-- The greatest node number of a layout is never leased.  The databases that make up ids for
-- old rows divide it: each has a share, a small number that stands in the top bits of
-- the sequence field of all these ids.
--
-- Two databases never get the same share:
--   * A new share is one that no row has, of whatever incarnation.  So in a copy of the
--     registry, and where its dump was restored, the shares of its past count as taken.
--   * A share is given again only to the database that has it, and only while no row of
--     another incarnation has it too (a dump that was restored into a registry in use).
-- A database is known by its OID and
--   * the incarnation of its extension (asker): an extension that was created anew, or that a
--     dump was restored into, does not know all that was given out under the old share;
--   * the system identifier of its cluster.  In the registry's own cluster it is the
--     registry's incarnation instead: pg_upgrade changes the system identifier and keeps the
--     OIDs, but in a registry that was restored elsewhere the old OIDs mean nothing.
--   * whether its timeline is an odd or an even one of the cluster's history, so that a
--     primary that was left behind and a standby that was promoted differ.
-- A file-level copy of a cluster on the same timeline cannot be told from the cluster: of the
-- two only one may go on making up ids (a copy of the database, by a dump or as a template, may).
--
CREATE TABLE snowflake.backfill_share (
	incarnation uuid NOT NULL,
	share integer NOT NULL,
	system_identifier bigint NOT NULL,
	database oid NOT NULL,
	asker uuid,
	shared boolean NOT NULL,
	given_at timestamptz NOT NULL,
	PRIMARY KEY (incarnation, share)
);
GRANT SELECT ON snowflake.backfill_share TO pg_database_owner;
COMMENT ON TABLE snowflake.backfill_share IS
'a row per database that makes up ids for old rows; it may be deleted when all ids that have its share are gone';
COMMENT ON COLUMN snowflake.backfill_share.incarnation IS
'of the registry that gave the share';
COMMENT ON COLUMN snowflake.backfill_share.share IS
'the top bits of the sequence field of these ids';
COMMENT ON COLUMN snowflake.backfill_share.system_identifier IS
'of the database''s cluster when the share was given';
COMMENT ON COLUMN snowflake.backfill_share.asker IS
'incarnation of the extension in the database';
COMMENT ON COLUMN snowflake.backfill_share.shared IS
'false: the database is of the registry''s own cluster';

SELECT pg_catalog.pg_extension_config_dump('snowflake.backfill_share', '');

CREATE TRIGGER ignore_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake.backfill_share
FOR EACH ROW EXECUTE FUNCTION snowflake.ignore_replicated();
ALTER TABLE snowflake.backfill_share ENABLE REPLICA TRIGGER ignore_replicated;

-- shared: the database is of another cluster, or asks as if it was.  incarnation: of the
-- registry that its server's leases come from; NULL: of this one.  generation: the
-- how-manieth timeline of its cluster; odd ones have the even shares, even ones the odd shares.
CREATE FUNCTION snowflake.acquire_backfill_share(
	version text, system_identifier bigint, database oid, shared boolean, asker uuid DEFAULT NULL,
	incarnation uuid DEFAULT NULL, generation integer DEFAULT 1)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	greatest_share CONSTANT integer := 31;	-- no layout has a wider one
	parity CONSTANT integer := (generation + 1) % 2;
	registry snowflake.registry := snowflake.lock_registry(version);
	result integer;
BEGIN
	IF incarnation <> registry.incarnation THEN
		RAISE EXCEPTION 'the registry is not the one that this server''s ids came from'
			USING ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = format('Its incarnation is %s, that of the last node number %s.',
				registry.incarnation, incarnation),
			HINT = 'Try again; if draws are refused as well, see their error.';
	END IF;
	SELECT b.share INTO result FROM snowflake.backfill_share AS b
	WHERE b.database = database AND b.asker IS NOT DISTINCT FROM asker AND b.shared = shared AND b.share % 2 = parity
		AND CASE WHEN shared THEN b.system_identifier = system_identifier
			ELSE b.incarnation = registry.incarnation END
		AND NOT EXISTS (SELECT FROM snowflake.backfill_share AS other
			WHERE other.share = b.share AND other.incarnation <> b.incarnation)
	ORDER BY b.share LIMIT 1;
	IF FOUND THEN
		RETURN result;
	END IF;
	SELECT min(free.share) INTO result FROM generate_series(parity, greatest_share, 2) AS free (share)
	WHERE NOT EXISTS (SELECT FROM snowflake.backfill_share AS b WHERE b.share = free.share);
	IF result IS NULL THEN
		RAISE EXCEPTION 'no share of the reserved node number is free'
			USING ERRCODE = 'configuration_limit_exceeded',
			DETAIL = format('All %s of %s timelines are given to databases that made up ids for old rows%s.',
				(greatest_share + 1) / 2, CASE parity WHEN 0 THEN 'odd' ELSE 'even' END,
				(SELECT '; of this cluster, these are gone: ' || string_agg(format('%s (database %s)', b.share, b.database), ', ' ORDER BY b.share)
				FROM snowflake.backfill_share AS b WHERE NOT b.shared AND b.share % 2 = parity
					AND NOT EXISTS (SELECT FROM pg_database AS d WHERE d.oid = b.database))),
			HINT = 'Delete a row of snowflake.backfill_share in the registry when all ids that have its share are gone.';
	END IF;
	INSERT INTO snowflake.backfill_share (incarnation, share, system_identifier, database, asker, shared, given_at)
	VALUES (registry.incarnation, result, system_identifier, database, asker, shared, clock_timestamp());
	RETURN result;
END
$$;
COMMENT ON FUNCTION snowflake.acquire_backfill_share(text, bigint, oid, boolean, uuid, uuid, integer) IS
'gives a database its share of the reserved node number, the same each time; for snowflake_backfill_id()';
REVOKE EXECUTE ON FUNCTION snowflake.acquire_backfill_share FROM PUBLIC;

