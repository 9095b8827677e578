# 055_async_failover.pl
#	  A registry fails over to an asynchronous standby that has missed some grants, while the
#	  old primary lives and both are writable.  Five nodes go on through either, as a name
#	  that moves leads them; the layout has 16 node numbers.  A million ids and more are
#	  distinct: the promoted registry renews none of the leases before, whether it has
#	  them or not, and grants numbers of the other parity.  Then it is closed, and a third one
#	  takes it over, while leases go on that the failover has lost.  Soon after the failover it would
#	  wait for them; its parity keeps them apart without that.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;

# 64,000 ids a second for each number.  Sessions use some of them, in bursts: nodes that had one number
# would soon issue equal ids.
use constant LAYOUT => 'timestamp 41, worker 4, sequence 6, tick 1ms, epoch 2024-01-01T00:00:00Z';
use constant BURSTS => "SELECT snowflake_nextval_batch(200);\nDO \$\$ BEGIN PERFORM pg_sleep(0.008); END \$\$;";

my $old = new_registry('old', init => [ allows_streaming => 1 ], limit => '1 h');
$old->backup('early');
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init_from_backup($old, 'early', has_streaming => 1);
$new->start;

# A name for each node that leads to one of the two: a directory with a link to the server's socket.
my $names = PostgreSQL::Test::Utils::tempdir('names');

sub lead
{
	my ($i, $registry) = @_;
	my $socket = "$names/$i/.s.PGSQL.5432";

	symlink $registry->host . '/.s.PGSQL.' . $registry->port, "$socket.next" or die "symlink: $!";
	rename "$socket.next", $socket or die "rename: $!";
}

my @nodes;

sub add_node
{
	my $i = @nodes;

	mkdir "$names/$i" or die "mkdir: $!";
	lead($i, $old);
	push @nodes, new_member("node$i", "host=$names/$i port=5432", conf => "snowflake.layout = '" . LAYOUT . "'\n");
	return wait_for_number($nodes[$i]);
}

sub number
{
	my ($i) = @_;

	return stat_of($nodes[$i], 'node_number');
}

# Until these nodes have a lease from this registry, or have renewed one there.
sub lead_and_wait
{
	my ($registry, @i) = @_;
	my $since = $registry->safe_psql('postgres', 'SELECT clock_timestamp()');

	lead($_, $registry) foreach @i;
	foreach my $i (@i)
	{
		poll("node $i to be with the other registry", sub {
				registry_row($registry, $nodes[$i], "renewed_at > '$since' AND leased_until > clock_timestamp()") eq 't' });
		wait_for_state($nodes[$i], 'ready');
	}
}

sub refused_renewals
{
	my ($i) = @_;

	my @lines = log_since($nodes[$i], 0) =~ /the lease of node number \d+ was closed by the registry/g;

	return scalar @lines;
}

# Two nodes are on record at the standby, three are not: it receives nothing any more.
my @numbers = map { add_node() } 0, 1;
$old->wait_for_catchup($new);
set_and_reload($new, primary_conninfo => '');
poll('the standby to be cut off', sub {
		$old->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_replication') eq '0' });
push @numbers, map { add_node() } 2 .. 4;
is(join(',', map { $_ % 2 } @numbers), '0,0,0,0,0', 'before the failover: even numbers');

my @clients = map { start_clients($_, count => 1, sql => BURSTS) } @nodes;
$_->wait_for(30_000) foreach @clients;

# Promoted, while the old one lives.
$new->promote;
is($new->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), 2, 'the failover has lost three leases');
is(join(',', map { $_->safe_psql('postgres', 'SELECT pg_is_in_recovery()') } $old, $new), 'f,f', 'both are writable');

# One that the new one knows, and two that it does not: no, and another lease.
lead_and_wait($new, 1 .. 3);
$_->wait_for(30_000) foreach @clients;
is(join(',', map { refused_renewals($_) } 0 .. 4), '0,1,1,1,0', 'renewals at the new one: no');
is(join(',', number(0), number(4)), "$numbers[0],$numbers[4]", 'renewals at the old one: yes');

# The two that are with the old one take numbers, until it has granted again those of the three.  (It would close their
# leases by itself, a minute after they are over, or when no other number is free.)
foreach my $i (1 .. 3)
{
	poll("number $numbers[$i] to be granted again", sub {
			$old->safe_psql('postgres', 'SELECT snowflake.close_leases_that_are_over(clock_timestamp(), true)');
			$_->safe_psql('postgres', 'SELECT snowflake_release()') foreach @nodes[ 0, 4 ];
			wait_for_state($_, 'ready') foreach @nodes[ 0, 4 ];
			$old->safe_psql('postgres', "SELECT count(*) > 1 FROM snowflake.worker_node
				WHERE node_number = $numbers[$i]") eq 't' });
	$_->wait_for(20_000) foreach @clients;
}

# There and back, and to the other one at last.
lead_and_wait($old, 2);
lead_and_wait($new, 0);
$_->wait_for(30_000) foreach @clients;
is(join(',', map { refused_renewals($_) } 0 .. 4), '1,1,2,1,0', 'each way: no');

is($old->safe_psql('postgres', 'SELECT DISTINCT generation, node_number % 2 FROM snowflake.worker_node'), '1|0',
	'the old one has granted even numbers');

# The old one is stopped, and the leases of two nodes from there go on, on no record.  The successor of the
# new one knows nothing of them, and takes over the parity.
foreach my $i (2, 4)
{
	set_and_reload($nodes[$i], 'snowflake.lease_duration' => '20min');
	poll("a long lease of node $i", sub { stat_of($nodes[$i], "leased_until > now() + interval '15 min'") eq 't' });
}
foreach my $i (0, 1, 3)
{
	set_and_reload($nodes[$i], 'snowflake.lease_duration' => '1min');
	poll("a lease of node $i for as long as the move takes", sub { stat_of($nodes[$i], "leased_until > now() + interval '30 s'") eq 't' });
}
$old->stop('fast');
my $third = new_registry('third');
my $incarnation = incarnation_of($third);
$new->safe_psql('postgres', sprintf "SELECT snowflake.close_registry('%s')", $third->safe_psql('postgres', 'SELECT snowflake.successor()'));
my $closed = $new->safe_psql('postgres', 'SELECT snowflake.closed_registry()');
is($third->safe_psql('postgres', "BEGIN; SELECT snowflake.take_over('$closed') = '$incarnation';
	SELECT starts_at = snowflake.time_of(('$closed'::jsonb -> 'counted_at')::bigint) + '1 h 10 s', generation FROM snowflake.registry; ROLLBACK"), "t\nt|2",
	'a third one would wait for the longest window after the failover');
is($third->safe_psql('postgres', "SELECT snowflake.take_over(jsonb_set('$closed', '{counted_at}', to_jsonb(snowflake.microseconds(clock_timestamp() - interval '2 h'))))"),
	$incarnation, 'after that it takes over, at once');
lead_and_wait($third, 0, 1, 3);
foreach (1 .. 6)
{
	$_->safe_psql('postgres', 'SELECT snowflake_release()') foreach @nodes[ 0, 1, 3 ];
	wait_for_state($_, 'ready') foreach @nodes[ 0, 1, 3 ];
	$_->wait_for(1_000) foreach @clients;
}
is(join(',', map { stat_of($nodes[$_], 'leased_until > clock_timestamp() AND node_number % 2 = 0') } 2, 4), 't,t',
	'leases that were lost go on');
is($third->safe_psql('postgres', "SELECT DISTINCT generation, node_number % 2 FROM snowflake.worker_node WHERE incarnation = '$incarnation'"),
	'2|1', 'the third one has granted odd numbers');

my $ids = 0;
poll('a million ids', sub { $ids = 0; $ids += -s $_ foreach map { @{ $_->{files} } } @clients; $ids > 20 * 1_010_000 });
my @files = map { $_->stop } @clients;
is(join('', map { $_->errors } @clients), '', 'no error');
my (undef, undef, $count) = check_ids('five nodes of two registries', @files);
cmp_ok($count, '>=', 1_000_000, 'a million ids');
is($new->safe_psql('postgres', 'SELECT DISTINCT generation, node_number % 2 FROM snowflake.worker_node ORDER BY 1'), "1|0\n2|1",
	'the new one has granted odd numbers');

done_testing();
