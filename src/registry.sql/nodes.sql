--
-- One look: which nodes use this registry.
--

-- A lease may still issue ids if it is not over, or if it can be renewed.  A node renews when a quarter of
-- its window is used; one that has used half of it is late.  (A server that leases from its own tables is late
-- after a minute without ids.)
CREATE VIEW snowflake.nodes AS
SELECT n.node_number, n.kind, n.host_name, n.port, n.layout, n.leased_until, n.renewed_at,
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
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA snowflake FROM PUBLIC;
GRANT USAGE ON SCHEMA snowflake TO pg_read_all_stats;
GRANT SELECT ON snowflake.nodes TO pg_read_all_stats;
