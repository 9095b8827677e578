# 001_concurrent.pl
#	  No two calls return the same id, and every session sees its own increase:
#	  over 16 sessions with single calls and batches in turn, two databases at once,
#	  the workers of a parallel query, and batches that cross the borders of ticks.
#	  pg_stat_snowflake.ids_issued counts exactly what was issued.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;

# Runs a script in several psql sessions, which begin together: as soon as all of them
# wait for a lock.  Returns the files of their output.
sub run_sessions
{
	my ($node, $count, $script, @databases) = @_;
	my (@barriers, @runs, @files);

	foreach my $database (@databases)
	{
		push @barriers, $node->background_psql($database);
		$barriers[-1]->query_safe('SELECT pg_advisory_lock(1)');
	}
	my $input = write_ids("SELECT pg_advisory_lock_shared(1) \\gset\n$script");
	foreach my $i (0 .. $count - 1)
	{
		my $out = write_ids();

		push @runs, IPC::Run::start(
			[ $node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1',
				'-d', $node->connstr($databases[ $i % @databases ]), '-o', $out,
				'-f', $input ]);
		push @files, $out;
	}
	$node->poll_query_until('postgres',
		"SELECT count(*) = $count FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
	  or die 'sessions did not start';
	$_->quit foreach @barriers;
	foreach my $run (@runs)
	{
		$run->finish or die 'a session failed';
	}
	return @files;
}

my $node = new_node('main', conf => <<EOF);
max_parallel_workers = 4
max_worker_processes = 8
EOF
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION snowflake');

# 1. Sixteen sessions, each with 100,000 ids: one at a time, and in batches of sizes
# that share no divisor with the 4096 ids of a tick.
my $script = <<EOF x 10;
SELECT snowflake_nextval() FROM generate_series(1, 2500);
SELECT snowflake_nextval_batch(7) FROM generate_series(1, 200);
SELECT snowflake_nextval_batch(5000);
SELECT snowflake_nextval();
SELECT snowflake_nextval_batch(1099);
EOF
$node->safe_psql('postgres', 'SELECT pg_stat_snowflake_reset()');
my @files = run_sessions($node, 16, $script, 'postgres', 'other');
my ($least, $greatest, $count) = check_ids('16 sessions in two databases', @files);
is($count, 1_600_000, '16 sessions got what they asked for');
is(stat_of($node, 'ids_issued'), 1_600_000, 'ids_issued counts them all');
is(stat_of($node, 'last_id'), $greatest, 'last_id is the greatest');

# 2. Workers of a parallel query.
$node->safe_psql('postgres', <<EOF);
CREATE TABLE numbers AS SELECT n FROM generate_series(1, 200000) n;
ALTER TABLE numbers SET (parallel_workers = 4);
ANALYZE numbers;
EOF
my $parallel = <<EOF;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET parallel_leader_participation = on;
EOF
my $query = 'SELECT snowflake_nextval() FROM numbers';
my $plan = $node->safe_psql('postgres',
	"$parallel EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF) $query");
like($plan, qr/Workers Launched: [1-9]/, 'parallel workers run');
like($plan, qr/Parallel Seq Scan[^\n]*\n\s+Output: snowflake_nextval\(\)/,
	'parallel workers issue ids');

my @parallel_ids = split /\n/, $node->safe_psql('postgres', "$parallel $query");
my %seen = map { $_ => 1 } @parallel_ids;
is(scalar(@parallel_ids), 200_000, 'a parallel query gets an id for each row');
is(scalar(keys %seen), 200_000, 'ids of parallel workers are distinct');
is(scalar(grep { $_ <= $greatest } @parallel_ids), 0, 'ids of parallel workers are greater than all before');
is(stat_of($node, 'ids_issued'), 2_000_000, 'ids_issued counts those of parallel workers');

# 3. Sixteen ids a tick: nearly every batch crosses borders of ticks.
$node->stop;
$node = new_node('narrow', conf => "snowflake.layout = '${\ NARROW}'\n");
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION snowflake');
@files = run_sessions($node, 4, <<EOF x 3, 'postgres', 'other');
SELECT snowflake_nextval_batch(1000);
SELECT snowflake_nextval() FROM generate_series(1, 50);
SELECT snowflake_nextval_batch(17) FROM generate_series(1, 20);
EOF
(undef, undef, $count) = check_ids('batches over many ticks', @files);
is($count, 4 * 3 * (1000 + 50 + 340), 'batches over many ticks are complete');
is(stat_of($node, 'ids_issued'), $count, 'ids_issued counts batches of many parts');

# One session alone: no id is left out within a batch.
my @batch = issue_ids($node, 1000, 1);
my @ticks = map { $_ >> 14 } @batch;
cmp_ok($ticks[-1] - $ticks[0], '>=', 62, 'a batch of 1000 takes at least 62 borders');
my $gaps = grep { my ($a, $b) = @batch[ $_ - 1, $_ ];
	($a & 15) < 15 ? $b != $a + 1 : ($b >> 14) <= ($a >> 14) } 1 .. $#batch;
cmp_ok($gaps, '<=', 62, 'a batch uses up each tick that the clock does not overtake');

$node->stop;
done_testing();
