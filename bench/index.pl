# index.pl
#	  The index of a primary key when 8 clients have inserted 10 million rows: how large
#	  and how full it is, how long that took, how often a page of it was not in shared
#	  buffers; then reading the newest rows by key, and REINDEX.  Keys by a bigserial, ids of
#	  ours by one node and by 8 nodes, and uuids.
#
#	  make bench PARTS=index ROWS=1000000	fewer rows
#
# Takes about 40 minutes with 7 rounds on two cores, half of which are the uuids', and
# 4 GB below TMPDIR.  A table is dropped before the next one is made.
use strict;
use warnings;
use utf8;

use List::Util qw(shuffle);
use Time::HiRes qw(time);

use Bench;

my $clients = 8;
my $rows_each = 100;
my $rows = length($ENV{ROWS} // '') ? $ENV{ROWS} : quick(10_000_000, 100_000);
die "ROWS is a whole number above 0\n" unless $rows =~ /^[1-9]\d*$/;
my $statements = int($rows / $clients / $rows_each) || 1;
$rows = $statements * $clients * $rows_each;
my $buffers = quick('128MB', '2MB');

# Sizes are those that PostgreSQL has by default; but no disk is waited for.
my $server = new_server('index', 'shared_buffers' => "'$buffers'", 'fsync' => 'off', 'synchronous_commit' => 'off',
	'max_wal_size' => "'1GB'", 'checkpoint_timeout' => "'1d'");

my $nodes = 'snowflake, 8 nodes';
my @subjects = ('bigserial', 'snowflake', $nodes, 'uuid v4', 'uuid v7');
my %keys = (
	'bigserial' => 'bigserial',
	'snowflake' => 'bigint DEFAULT snowflake_nextval()',
	$nodes => 'bigint',
	'uuid v4' => 'uuid DEFAULT gen_random_uuid()',
	'uuid v7' => 'uuid DEFAULT uuid_v7()');
my $rows_of = "FROM generate_series(1, $rows_each) n";
my $insert = $server->script('insert.sql', "INSERT INTO measured (payload) SELECT n $rows_of;\n");
# Each client is a node of its own, whose rows come 100 ms later than those of the one before, as by
# replication: 10 bits of node number above 12 of sequence, and milliseconds above both.
my $insert_of_nodes = $server->script('nodes.sql', "INSERT INTO measured (id, payload) "
	  . "SELECT (snowflake_nextval() & ~4190208::bigint | (:client_id::bigint << 12)) - (100 * :client_id::bigint << 22), n $rows_of;\n");
my $details = $server->sql("SELECT count(*) FROM pg_available_extensions WHERE name = 'pgstattuple'");
$server->sql('CREATE EXTENSION pgstattuple') if $details;
$server->sql(<<'END');
CREATE FUNCTION uuid_v7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
	SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') ||
		'7' || substr(gen_random_uuid()::text, 16))::uuid
$$;
END
my $many = $rows % 1_000_000 ? $rows : $rows / 1_000_000 . ' million';

my @common = (references => ['bigserial'], subjects => \@subjects);
figure(id => 'size', title => "Index after $many rows", unit => 'MB', absolute => 1, @common);
figure(id => 'pages', title => 'Leaf pages: how full, and how many are out of order', unit => '%', x => '',
	subjects => \@subjects) if $details;
figure(id => 'time', title => "Time with $many rows", unit => 's', x => '', @common);
figure(id => 'misses', title => "Index pages read from outside of shared buffers, per 1000 rows", unit => 'pages',
	absolute => 1, x => '', @common);
figure(id => 'wal', title => 'WAL per row', unit => 'bytes', absolute => 1, @common);

note('size', "Inserted by $clients clients, $rows_each rows a statement.  With 8 nodes, rows of node n come n times 100 ms "
	  . 'after their time.');
note('time', 'REINDEX with the defaults of maintenance_work_mem and of its parallel workers.');
note('misses', "shared_buffers = $buffers.  A new page of the index counts as read.  The newest 1 % are read by key, in random"
	  . ' order, after a restart of the server.');
note('wal', 'full_page_writes = on, max_wal_size = 1GB: checkpoints come as they would.');

my $read = 'reading the newest 1 %';
foreach my $run (1 .. $Bench::runs)
{
	foreach my $subject (shuffle @subjects)
	{
		progress("round $run of $Bench::runs: $subject");
		$server->sql("CREATE TABLE measured (id $keys{$subject} PRIMARY KEY, payload integer NOT NULL)");
		measure_insert($subject, $run);
		measure_index($subject, $run);
		measure_reading($subject, $run);
		sample('time', $subject, 'REINDEX', $run, $server->seconds('REINDEX INDEX measured_pkey'));
		$server->sql('DROP TABLE measured, newest');
	}
}
finish();

sub measure_insert
{
	my ($subject, $run) = @_;

	$server->sql('CHECKPOINT');
	my $wal = $server->wal_position;
	my $begin = time;
	$server->pgbench('-M', 'prepared', '-c', $clients, '-j', 2, '-t', $statements,
		'-f', $subject eq $nodes ? $insert_of_nodes : $insert);
	sample('time', $subject, 'INSERT', $run, time - $begin);
	sample('wal', $subject, undef, $run, ($server->wal_position - $wal) / $rows);
	sample('misses', $subject, 'INSERT', $run, misses() / $rows * 1000);
	my $there = $server->sql('SELECT count(*) FROM measured');
	die "$there rows instead of $rows" if $there != $rows;
}

sub measure_index
{
	my ($subject, $run) = @_;

	sample('size', $subject, undef, $run, $server->sql("SELECT pg_relation_size('measured_pkey')") / (1024 * 1024));
	return unless $details;
	my ($density, $fragmentation) =
	  split /\|/, $server->sql("SELECT avg_leaf_density, leaf_fragmentation FROM pgstatindex('measured_pkey')");
	sample('pages', $subject, 'density', $run, $density);
	sample('pages', $subject, 'fragmentation', $run, $fragmentation);
}

# The rows at the end of the table, by their keys, in random order, with nothing in
# shared buffers.
sub measure_reading
{
	my ($subject, $run) = @_;

	my $block = $server->sql("SELECT pg_relation_size('measured') / current_setting('block_size')::int * 99 / 100");
	$server->sql("CREATE TABLE newest AS SELECT id FROM measured WHERE ctid >= '($block,0)' ORDER BY random()");
	my $read_rows = $server->sql('SELECT count(*) FROM newest');
	$server->stop;
	$server->start;
	my $before = misses();
	sample('time', $subject, $read, $run, $server->seconds(
		(map { "SET $_ = off" } qw(enable_seqscan enable_hashjoin enable_mergejoin enable_bitmapscan enable_memoize)),
		'SET max_parallel_workers_per_gather = 0',
		'SELECT count(m.payload) FROM newest JOIN measured m USING (id)'));
	sample('misses', $subject, $read, $run, (misses() - $before) / $read_rows * 1000);
}

# A session that is no longer seen has added its counts.
sub misses
{
	while ($server->sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") > 1)
	{
	}
	return $server->sql("SELECT idx_blks_read FROM pg_statio_user_indexes WHERE indexrelname = 'measured_pkey'");
}
