--
-- One look: which nodes use this registry, and which leases there were.
--

-- The newest lease of each start that may still issue ids, or could go on.  A node renews when a quarter of
-- its window is used; one that has used half of it is late.  (A server that leases from its own tables is late
-- after a minute without ids.)  over: it issues nothing until it is renewed, or it is dead.  A closed one is shown to
-- its end: its node goes on until then if an order closed it.  After a clean stop that is at most max_ahead away.
CREATE VIEW snowflake.nodes AS
SELECT DISTINCT ON (w.start) w.node_number, w.kind, w.name, w.host_name, w.port, w.role, w.layout,
	coalesce(w.leased_until, n.leased_until) AS leased_until, n.renewed_at,
	coalesce(n.renewed_at + (n.leased_until - greatest(n.renewed_at, n.starts_at)) / 2
		< statement_timestamp(), true) AS late,
	coalesce(w.leased_until, n.leased_until) <= statement_timestamp() AS over
FROM snowflake.worker_node AS w
	LEFT JOIN snowflake.node_number AS n ON n.node_number = w.node_number AND n.token = w.token
WHERE w.leased_until IS NULL OR w.leased_until > statement_timestamp() AND w.leased_until > w.starts_at
ORDER BY w.start, w.granted_by DESC;
COMMENT ON VIEW snowflake.nodes IS
'the newest lease of each start of a node that may still issue ids, and whether its renewal is late, or its lease over';

-- The log without its secrets: start and token.  A node number is datacenter, worker and clock, from high to low.  It
-- calls no function of ours: a role that may read the view needs no other right.
CREATE VIEW snowflake.leases AS
SELECT w.node_number,
	(w.node_number >> b.worker + coalesce(b.clock, 0) & (1::bigint << b.datacenter) - 1)::integer AS datacenter_id,
	(w.node_number >> coalesce(b.clock, 0) & (1::bigint << b.worker) - 1)::integer AS worker_id,
	(w.node_number & (1::bigint << b.clock) - 1)::integer AS clock,
	w.starts_at, coalesce(w.leased_until, n.leased_until) AS leased_until, w.closed_at,
	w.kind, w.name, w.host_name, w.port, w.role,
	w.system_identifier, w.timeline, w.incarnation, w.generation, w.fixed, w.layout, w.launched_at
FROM snowflake.worker_node AS w
	LEFT JOIN snowflake.node_number AS n ON n.node_number = w.node_number AND n.token = w.token,
	LATERAL (SELECT substring(w.layout, 'datacenter ([0-9]+)')::integer AS datacenter,
		substring(w.layout, 'worker ([0-9]+)')::integer AS worker,
		substring(w.layout, 'clock ([0-9]+)')::integer AS clock) AS b;
COMMENT ON VIEW snowflake.leases IS
'all leases in the log, for audits';

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
GRANT SELECT ON snowflake.nodes, snowflake.guard TO pg_read_all_stats;
-- pg_dump of the database by its owner, who need not be a superuser, has the rows of these three.
GRANT USAGE ON SCHEMA snowflake TO pg_database_owner;
GRANT SELECT ON snowflake.node_number, snowflake.worker_node, snowflake.cluster TO pg_database_owner;
