-- A ring is the numbers first..last, or of these the ones whose bit "mask" is "bits"
-- (mask is one bit, or 0).
CREATE FUNCTION snowflake.ring_from(n bigint, mask bigint, bits bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE WHEN n & mask = bits THEN n
		WHEN bits = 0 THEN (n | (mask - 1)) + 1
		ELSE (n | mask) & ~(mask - 1) END
$$;
COMMENT ON FUNCTION snowflake.ring_from(bigint, bigint, bigint) IS
'part of the lease functions: the first number from n on that is in the ring';
REVOKE EXECUTE ON FUNCTION snowflake.ring_from(bigint, bigint, bigint) FROM PUBLIC;

CREATE FUNCTION snowflake.ring_size(first bigint, last bigint, mask bigint, bits bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	-- of the numbers below "below", whole periods of the bit and a rest
	SELECT CASE WHEN mask = 0 THEN last - first + 1 ELSE (
		SELECT sum(sign * (below / (2 * mask) * mask + CASE bits WHEN 0 THEN least(below % (2 * mask), mask)
			ELSE greatest(below % (2 * mask) - mask, 0) END))::bigint
		FROM (VALUES (last + 1, 1), (first, -1)) AS v (below, sign)) END
$$;
COMMENT ON FUNCTION snowflake.ring_size(bigint, bigint, bigint, bigint) IS
'part of the lease functions: how many numbers are in the ring';
REVOKE EXECUTE ON FUNCTION snowflake.ring_size(bigint, bigint, bigint, bigint) FROM PUBLIC;

-- The last lease of each number of a ring that was leased, from the highest number
-- down: one look into the index for each number, also for those between that are not in
-- the ring, however long their history is.
CREATE FUNCTION snowflake.used_numbers(incarnation uuid, first bigint, last bigint, mask bigint, bits bigint,
	OUT node_number bigint, OUT leased_until timestamptz, OUT id bigint) RETURNS SETOF record
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE used (n, leased_until, id) AS (
		(SELECT w.node_number, w.leased_until, w.id FROM snowflake.worker_node AS w
		WHERE w.incarnation = $1 AND w.node_number BETWEEN $2 AND $3
		ORDER BY w.incarnation DESC, w.node_number DESC, w.id DESC LIMIT 1)
		UNION ALL
		SELECT below.* FROM used, LATERAL (
			SELECT w.node_number, w.leased_until, w.id FROM snowflake.worker_node AS w
			WHERE w.incarnation = $1 AND w.node_number >= $2 AND w.node_number < n
			ORDER BY w.incarnation DESC, w.node_number DESC, w.id DESC LIMIT 1) AS below
	)
	SELECT * FROM used WHERE n & $4 = $5
$$;
COMMENT ON FUNCTION snowflake.used_numbers(uuid, bigint, bigint, bigint, bigint) IS
'part of the lease functions: the node numbers that were leased, until when, and by which lease';
REVOKE EXECUTE ON FUNCTION snowflake.used_numbers(uuid, bigint, bigint, bigint, bigint) FROM PUBLIC;

-- The next number of the ring that was never leased, going round from
-- the one behind "after"; if there is none, the longest unused and its bound.
CREATE FUNCTION snowflake.next_number(incarnation uuid, first bigint, last bigint, mask bigint, bits bigint,
	after bigint,
	OUT node_number bigint, OUT leased_until timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	first_in_ring CONSTANT bigint := snowflake.ring_from(first, mask, bits);
	used bigint[];
BEGIN
	node_number := snowflake.ring_from(after + 1, mask, bits);
	IF node_number BETWEEN first AND last IS NOT TRUE THEN
		node_number := first_in_ring;
	END IF;
	IF NOT EXISTS (SELECT FROM snowflake.worker_node AS w
			WHERE w.incarnation = incarnation AND w.node_number = node_number) THEN
		RETURN;
	END IF;
	SELECT array_agg(u.node_number ORDER BY u.node_number),
		(array_agg(u.node_number ORDER BY u.leased_until, u.node_number))[1], min(u.leased_until)
	INTO used, node_number, leased_until
	FROM snowflake.used_numbers(incarnation, first, last, mask, bits) AS u;
	IF cardinality(used) = snowflake.ring_size(first, last, mask, bits) THEN
		RETURN;
	END IF;
	leased_until := NULL;
	SELECT n INTO node_number
	FROM (SELECT first_in_ring AS n WHERE used[1] > first_in_ring
		UNION ALL
		SELECT next FROM (SELECT lead(n) OVER (ORDER BY n) AS following,
				snowflake.ring_from(n + 1, mask, bits) AS next FROM unnest(used) AS n) AS pair
		WHERE next <= last AND following IS DISTINCT FROM next) AS gap
	ORDER BY n <= after, n LIMIT 1;
END
$$;
COMMENT ON FUNCTION snowflake.next_number(uuid, bigint, bigint, bigint, bigint, bigint) IS
'part of the lease functions: a node number that was never leased, or the longest unused';
REVOKE EXECUTE ON FUNCTION snowflake.next_number(uuid, bigint, bigint, bigint, bigint, bigint) FROM PUBLIC;

-- Chooses a node number of the ring.
--
-- Not exclusive: never leased, in ring order; else longest unused, if its bound is
-- past the node's clock.  Exclusive (the ring is the numbers of one fixed worker
-- id): the last one leased, if ids can go on in it, else as above; where another
-- server holds one, none.  own_cluster: rows of this system identifier are the
-- server's own, or of the primary that it was a standby of; NULL: none is.
-- Index scans only: where a number has many rows, or the table is not analyzed yet, the
-- planner would rather begin to read the whole of it.
CREATE FUNCTION snowflake.choose_number(incarnation uuid, first_number bigint, last_number bigint,
	mask bigint, bits bigint,
	exclusive boolean, own_cluster bigint, node_clock timestamptz, max_ahead interval) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_variable
DECLARE
	newest record;
	holder snowflake.worker_node;
	candidate bigint;
	earliest timestamptz;
BEGIN
	IF first_number > last_number OR mask & (mask - 1) <> 0 OR mask < 0 OR bits NOT IN (0, mask) OR
		snowflake.ring_from(first_number, mask, bits) > last_number THEN
		RAISE EXCEPTION 'there are no node numbers from % to %', first_number, last_number
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	-- mostly one of the last leases; in the small ring of a fixed worker id, or where other rings had
	-- all of these, each number's last one
	IF NOT exclusive THEN
		SELECT w.node_number, w.leased_until INTO newest
		FROM (SELECT * FROM snowflake.worker_node AS w WHERE w.incarnation = incarnation ORDER BY w.id DESC LIMIT 100) AS w
		WHERE w.node_number BETWEEN first_number AND last_number AND w.node_number & mask = bits
		ORDER BY w.id DESC LIMIT 1;
	END IF;
	IF newest IS NULL THEN
		SELECT u.node_number, u.leased_until INTO newest
		FROM snowflake.used_numbers(incarnation, first_number, last_number, mask, bits) AS u
		ORDER BY u.id DESC LIMIT 1;
	END IF;
	IF exclusive THEN
		SELECT w.* INTO holder FROM snowflake.worker_node AS w
		WHERE w.incarnation = incarnation AND w.node_number BETWEEN first_number AND last_number
			AND w.released_at IS NULL AND w.leased_until > node_clock
			AND w.system_identifier IS DISTINCT FROM own_cluster
		ORDER BY w.leased_until DESC LIMIT 1;
		IF FOUND THEN
			RAISE EXCEPTION 'node number % is held by the server on host "%", port %, started at %',
				holder.node_number, holder.host_name, holder.port, holder.launched_at
				USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = format('Its lease lasts until %s.', holder.leased_until),
				HINT = 'Set another snowflake.worker_id. If that server is gone for good, its number is free when its lease is over.';
		END IF;
		IF newest.leased_until <= node_clock + max_ahead THEN
			RETURN newest.node_number;
		END IF;
	END IF;
	SELECT u.node_number, u.leased_until INTO candidate, earliest
	FROM snowflake.next_number(incarnation, first_number, last_number, mask, bits, newest.node_number) AS u;
	IF NOT exclusive AND earliest > node_clock THEN
		RAISE EXCEPTION 'no node number is free'
			USING ERRCODE = 'configuration_limit_exceeded',
			DETAIL = format('All numbers from %s to %s (%s) are leased; the earliest bound is %s, the node''s clock %s.',
				first_number, last_number, snowflake.ring_size(first_number, last_number, mask, bits),
				earliest, node_clock),
			HINT = 'Wait for that, stop a server that needs no number, or choose a layout with more worker bits.';
	END IF;
	RETURN candidate;
END
$$;
COMMENT ON FUNCTION snowflake.choose_number(uuid, bigint, bigint, bigint, bigint, boolean, bigint, timestamptz, interval) IS
'part of the lease functions: which node number a server is to have';
REVOKE EXECUTE ON FUNCTION
	snowflake.choose_number(uuid, bigint, bigint, bigint, bigint, boolean, bigint, timestamptz, interval) FROM PUBLIC;

