--
-- One look: which nodes use this registry.
--

-- A lease may still issue ids if it is not over, or if it can be renewed.  A node renews when a quarter of
-- its window is used; one that has used half of it is late.  (A server that leases from its own tables is late
-- after a minute without ids.)
CREATE VIEW snowflake.nodes AS
SELECT n.node_number, n.kind, n.name, n.host_name, n.port, n.layout, n.leased_until, n.renewed_at,
	n.renewed_at + (n.leased_until - greatest(n.renewed_at, n.starts_at)) / 2 < statement_timestamp() AS late
FROM (SELECT DISTINCT ON (l.start) l.*
	FROM (SELECT w.* FROM snowflake.worker_node AS w
		WHERE (w.closed_at IS NULL OR w.leased_until > w.starts_at) AND w.leased_until > statement_timestamp()
		UNION ALL
		SELECT w.* FROM snowflake.worker_node AS w, snowflake.registry AS r
		WHERE w.closed_at IS NULL AND w.leased_until <= statement_timestamp()
			AND r.closed_at IS NULL AND w.incarnation = r.incarnation AND w.generation = r.generation) AS l
	ORDER BY l.start, l.granted_by DESC) AS n;
COMMENT ON VIEW snowflake.nodes IS
'the newest lease of each start of a node that may still issue ids, and whether its renewal is late';

--
-- Who may do what: the owner all, other roles nothing but what an administrator grants.  The address of a node
-- is shown to those who may see it elsewhere.
--
-- Also whatever default privileges have given: they would be write access to the tables.
DO $$
DECLARE
	v_given record;
BEGIN
	FOR v_given IN
		SELECT format('TABLE %s', c.oid::regclass) AS object, a.grantee
		FROM pg_class AS c, aclexplode(c.relacl) AS a
		WHERE c.relnamespace = 'snowflake'::regnamespace AND c.relkind IN ('r', 'v') AND a.grantee <> c.relowner
		UNION
		SELECT format('FUNCTION %s', p.oid::regprocedure), a.grantee
		FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
		WHERE p.pronamespace = 'snowflake'::regnamespace AND a.grantee <> p.proowner
		UNION
		SELECT format('TYPE %s', t.oid::regtype), a.grantee
		FROM pg_type AS t, aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) AS a
		WHERE t.typnamespace = 'snowflake'::regnamespace AND t.typtype = 'c' AND a.grantee <> t.typowner
		UNION
		SELECT 'SCHEMA snowflake', a.grantee
		FROM pg_namespace AS n, aclexplode(n.nspacl) AS a WHERE n.nspname = 'snowflake' AND a.grantee <> n.nspowner
	LOOP
		EXECUTE format('REVOKE ALL ON %s FROM %s', v_given.object,
			CASE WHEN v_given.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(v_given.grantee)) END);
	END LOOP;
END
$$;
GRANT USAGE ON SCHEMA snowflake TO pg_read_all_stats;
GRANT SELECT ON snowflake.nodes TO pg_read_all_stats;
-- pg_dump of the database by its owner, who need not be a superuser, has the rows of these two.
GRANT USAGE ON SCHEMA snowflake TO pg_database_owner;
GRANT SELECT ON snowflake.worker_node, snowflake.cluster TO pg_database_owner;
