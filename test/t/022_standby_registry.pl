# 022_standby_registry.pl
#	  Standbys of servers with a registry issue no ids and ask for no lease.  Promoted, a
#	  server takes one without a restart, beside the old primary, which lives and issues
#	  ids, too; no id repeats.  The registry may be away meanwhile, and its own cluster may
#	  fail over.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;

my $registry = new_registry('registry', init => [ allows_streaming => 1 ]);
$registry->backup('early');
my $heir = PostgreSQL::Test::Cluster->new('heir');
$heir->init_from_backup($registry, 'early', has_streaming => 1);
$heir->start;
my $conninfo = conninfo_of($registry, host => $registry->host . ',' . $heir->host, port => $registry->port . ',' . $heir->port,
	target_session_attrs => 'read-write');
my $primary = new_member('primary', $conninfo, init => [ allows_streaming => 1 ]);
my @files = write_ids(issue_ids($primary, 100));
is(stat_of($primary, 'registry'), name_of($registry), 'of two hosts the one that is writable is used');

$primary->backup('running');

sub new_standby
{
	my ($name) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$standby->init_from_backup($primary, 'running', has_streaming => 1);
	$standby->start;
	return $standby;
}

sub rows
{
	my ($node) = @_;

	return $registry->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE port = ' . $node->port);
}

my $standby = new_standby('standby');
my $primary_number = wait_for_number($primary);
my @clients = (start_clients($primary, count => 2, sql => GENTLE));
$clients[0]->wait_for(500);
is($standby->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 't', 'it is a standby');
like(sql_error($standby, 'SELECT snowflake_nextval()'), qr/^ERROR:  25006: cannot issue ids during recovery\nHINT:  /, 'a standby: no ids');
is(stat_of($standby, 'state, detail, node_number IS NULL'), 'standby|until this standby is promoted|t', 'a standby: view');
like(sql_error($standby, 'SELECT snowflake_release()'), qr/^ERROR:  25006: /, 'a standby: no snowflake_release()');
$standby->restart;
is(rows($standby), 0, 'a standby: no row');

# Promotion beside the primary, which goes on: both are writable now.
my $started = $standby->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
$standby->promote;
push @clients, start_clients($standby, count => 2, sql => GENTLE);
$_->wait_for(500) foreach @clients;
my $number = wait_for_number($standby);
isnt($number, $primary_number, 'promoted: a number of its own');
is(stat_of($standby, 'state, worker_id_from, registry'), 'ready|auto|' . name_of($registry), 'promoted: view');
is(rows($standby), 1, 'promoted: one row');
is(registry_row($registry, $standby, 'node_number, closed_at IS NULL, timeline'), "$number|t|2", 'promoted: its row');
is(registry_row($registry, $primary, 'node_number, closed_at IS NULL, timeline'), "$primary_number|t|1", 'the row of the primary is open still');
is($standby->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'promoted: no restart');
is($standby->safe_psql('postgres', 'SELECT generation FROM snowflake.registry'), 2, 'promoted: counted in its own table');
is($standby->safe_psql('postgres', 'BEGIN READ ONLY; SELECT snowflake_nextval() > 0'), 't', 'ids in a read-only transaction');

# The cluster of the registry fails over.
$registry->wait_for_catchup($heir);
$registry->stop('fast');
$heir->promote;
my $later = registry_row($heir, $primary, "extract(epoch FROM leased_until + interval '1 s')");
poll('leases of the new generation', sub { registry_row($heir, $_, "generation = 2 AND leased_until > to_timestamp($later)") eq 't' })
  foreach $primary, $standby;
$_->wait_for(500) foreach @clients;
push @files, map { $_->stop } @clients;
is($_->errors, '', 'no session notices anything') foreach @clients;
foreach my $node ($primary, $standby)
{
	my $label = 'the registry failed over: ' . $node->name;

	is(registry_row($heir, $node, 'generation, node_number'), '2|' . wait_for_number($node), "$label: a lease of the new generation");
	is(wait_for_number($node) % 2, 1, "$label: an odd number, which the old registry never grants");
	is($heir->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE generation = 1 AND closed_at IS NULL AND port = ' . $node->port),
		0, "$label: the lease before is closed");
}
check_ids('promotions', split_ids(12, 1023, @files));

# The registry is away when a standby is promoted, and comes back.
my $second = new_standby('second');
$heir->stop;
$second->promote;
like((nextval_error_with_reason($second, '300ms'))[0], qr/^ERROR:  55P03: could not reach the registry .*\nDETAIL:  .*\nHINT:  /,
	'promoted while the registry is down: why there is no id');
$heir->start;
poll('id', sub { sql_error($second, 'SELECT snowflake_nextval()') eq '' });
$standby->restart;
push @files, map { write_ids(issue_ids($_, 100)) } $second, $standby, $primary;
is(scalar(keys %{ { map { wait_for_number($_) => 1 } $second, $standby, $primary } }), 3, 'three servers, three numbers');
is($heir->safe_psql('postgres', 'SELECT count(DISTINCT system_identifier) FROM snowflake.worker_node'), 1, 'all are of one cluster');
check_ids('all', split_ids(12, 1023, @files));
$_->stop foreach $second, $standby, $primary, $heir;

done_testing();
