# 009_clients.pl
#	  Ids as applications use them: as a column's default for a user who may do nothing
#	  but INSERT, in read-only transactions, prepared statements, PL/pgSQL, COPY,
#	  INSERT ... SELECT, parallel queries and cursors; no two are the same.  And who may
#	  see and reset the statistics.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeStatement;

my $node = new_node('main', conf => "max_worker_processes = 8\n");
my @files;						# of the ids that each way returned, in order

# What a script prints in one session, which must be N ids.
sub ids_of
{
	my ($label, $n, $sql, $user) = @_;
	my $result = run_sql($node, $sql, 'postgres', $user);
	my @ids = grep { /^\d+\z/ } split /\n/, $result->{out};

	is($result->{error}, '', "$label: no error");
	is(scalar @ids, $n, "$label: $n ids");
	push @files, write_ids(@ids);
	return @ids;
}

$node->safe_psql('postgres', q{
	CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n int);
	CREATE ROLE clerk LOGIN;
	GRANT INSERT ON orders TO clerk;
});

#
# A user without further rights
#
is(run_sql($node, 'INSERT INTO orders (n) SELECT generate_series(1, 1000);', 'postgres', 'clerk')->{error}, '',
	'a user who may INSERT only');
like(run_sql($node, 'SELECT id FROM orders;', 'postgres', 'clerk')->{error}, qr/ERROR:  42501/, 'who may not read');
ids_of('the user gets ids', 2, 'SELECT snowflake_nextval(); SELECT snowflake_nextval_batch(1);', 'clerk');

#
# Ways to insert
#
my $lines = join('', map { "$_\n" } 1 .. 1000);
is(run_sql($node, "COPY orders (n) FROM STDIN;\n$lines\\.\n")->{error}, '', 'COPY');
is(run_sql($node, 'INSERT INTO orders (n) SELECT n FROM orders;')->{error}, '', 'INSERT ... SELECT');
ids_of('VALUES', 3, 'INSERT INTO orders (n) VALUES (1), (2), (3) RETURNING id;');
ids_of('UPDATE', 1000, 'WITH u AS (UPDATE orders SET id = DEFAULT WHERE id IN (SELECT id FROM orders ORDER BY id LIMIT 1000)
	RETURNING id) SELECT id FROM u ORDER BY id;');
ids_of('ON CONFLICT', 2, 'INSERT INTO orders (n) VALUES (1), (2) ON CONFLICT DO NOTHING RETURNING id;');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM orders'), '4005|4005', 'all rows are there');

#
# Read-only transactions
#
ids_of('read-only', 4, <<'EOF');
BEGIN READ ONLY; SELECT snowflake_nextval(); SELECT snowflake_nextval_batch(2); COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT snowflake_nextval(); COMMIT;
EOF

#
# Prepared statements, with plans of both kinds
#
foreach my $mode ('force_custom_plan', 'force_generic_plan')
{
	ids_of("prepared, $mode", 40, "SET plan_cache_mode = $mode;
		PREPARE single AS SELECT snowflake_nextval();
		PREPARE batch (int) AS SELECT snowflake_nextval_batch(\$1);
		PREPARE enter (int) AS INSERT INTO orders (n) VALUES (\$1) RETURNING id;\n"
		. "EXECUTE single; EXECUTE batch(2); EXECUTE enter(1);\n" x 10);
}

#
# PL/pgSQL and what can happen to a transaction
#
ids_of('PL/pgSQL', 2000, <<'EOF');
CREATE FUNCTION issue_many() RETURNS SETOF bigint LANGUAGE plpgsql AS $$
	DECLARE
		id bigint;
	BEGIN
		FOR i IN 1 .. 1000 LOOP
			id := snowflake_nextval();
			RETURN NEXT id;
			BEGIN
				INSERT INTO orders (n) VALUES (i) RETURNING orders.id INTO id;
				RETURN NEXT id;
				RAISE EXCEPTION USING errcode = 'P0001';
			EXCEPTION WHEN sqlstate 'P0001' THEN
			END;
		END LOOP;
	END $$;
SELECT issue_many();
EOF
ids_of('rolled back', 3, 'BEGIN; SELECT snowflake_nextval(); SAVEPOINT s; SELECT snowflake_nextval(); ROLLBACK TO s;
	ROLLBACK; SELECT snowflake_nextval();');

#
# Cursors
#
ids_of('cursor', 15, <<'EOF');
BEGIN;
DECLARE single NO SCROLL CURSOR WITH HOLD FOR SELECT snowflake_nextval() FROM generate_series(1, 20);
DECLARE batch CURSOR FOR SELECT snowflake_nextval_batch(5000);
FETCH 5 FROM single; FETCH 5 FROM batch;
COMMIT;
FETCH 5 FROM single;
EOF

#
# Parallel queries: the workers issue ids, too.
#
my $parallel = <<'EOF';
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = off;
EOF
$node->safe_psql('postgres', 'CREATE TABLE many AS SELECT generate_series(1, 50000) AS n; ANALYZE many');
my $plan = run_sql($node, "$parallel EXPLAIN (ANALYZE, VERBOSE, COSTS off, TIMING off) SELECT snowflake_nextval() FROM many;")->{out};
like($plan, qr/Gather.*Workers Launched: [12].*Parallel Seq Scan.*\n\s+Output: snowflake_nextval\(\)/s,
	'parallel query: the workers issue ids') or diag($plan);
my $result = run_sql($node, "$parallel SELECT snowflake_nextval() FROM many;");
my @ids = sort { $a <=> $b } split /\n/, $result->{out};
is(scalar @ids, 50000, 'parallel query: all ids');
push @files, write_ids(@ids);
# The setting's name changed in PostgreSQL 16.
my $forced = $node->safe_psql('postgres', "SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')");
ids_of('forced into a worker', 11, "SET $forced = on; SELECT snowflake_nextval(); SELECT snowflake_nextval_batch(10);");

check_ids('all that clients got', @files);

#
# Rights
#
sub as_clerk { return run_sql($node, $_[0], 'postgres', 'clerk') }

like(as_clerk('SELECT pg_stat_snowflake_reset();')->{error}, qr/ERROR:  42501: permission denied for function pg_stat_snowflake_reset/,
	'a user may not reset the statistics');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION pg_stat_snowflake_reset() TO clerk');
cmp_ok(stat_of($node, 'ids_issued'), '>', 100_000, 'the statistics before');
is(as_clerk('SELECT pg_stat_snowflake_reset();')->{error}, '', 'unless granted');
is(stat_of($node, "ids_issued = 0 AND stats_reset > now() - interval '1 min'"), 't', 'and then they start anew');

# The view has something to say when the clock is behind.
set_clock($node, 60_000);
my ($last) = issue_ids($node, 1);
set_clock($node, 0);
my $columns = 'SELECT state, last_id, detail IS NOT NULL, registry, node_number, ids_issued FROM pg_stat_snowflake;';
like(as_clerk($columns)->{out}, qr/^waiting\|\|f\|\|1\|\d+\z/, 'last_id, detail and registry are hidden from users');
$node->safe_psql('postgres', 'GRANT pg_read_all_stats TO clerk');
like(as_clerk($columns)->{out}, qr/^waiting\|$last\|t\|postgres\|1\|\d+\z/, 'but not from pg_read_all_stats');

$node->safe_psql('postgres', 'CREATE DATABASE office OWNER clerk');
like(run_sql($node, 'CREATE EXTENSION snowflake_tools;', 'postgres', 'clerk')->{error},
	qr/ERROR:  42501: permission denied to create extension "snowflake_tools"/, 'not everybody creates an extension');
is(run_sql($node, 'CREATE EXTENSION snowflake; SELECT snowflake_layout();', 'office', 'clerk')->{error}, '', 'the owner of a database does');
$node->stop;

done_testing();
