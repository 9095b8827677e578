# 040_backfill.pl
#	  Ids for old rows in several databases and servers of one deployment: each database
#	  asks the registry for its share of the reserved number, and no two make the same id.
#	  What a server says that cannot ask.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeRegistry;

# The same times for everybody, with many in one tick.
my $ids = q{SELECT snowflake_backfill_id('2024-05-05 12:00:00Z'::timestamptz + i * interval '1 ms') FROM generate_series(0, 9) AS i, generate_series(1, 300)};

sub backfill
{
	my ($node, $database) = @_;

	return write_ids(sort { $a <=> $b } split /\n/, $node->safe_psql($database, $ids));
}

my $registry = new_registry('registry');
my @nodes = map { new_member("node$_", place($registry)) } 1, 2;
$_->safe_psql('postgres', 'CREATE DATABASE shop') foreach @nodes;
$_->safe_psql('shop', 'CREATE EXTENSION snowflake') foreach @nodes;
my @files = map { backfill(@$_) } [ $nodes[0], 'postgres' ], [ $nodes[0], 'shop' ], [ $nodes[1], 'postgres' ], [ $nodes[1], 'shop' ];
push @files, backfill($nodes[0], 'shop');
check_ids('four databases of two servers', @files);
is(scalar(grep { id_node($_) != 1023 } read_ids(@files)), 0, 'all have the reserved number');
is($registry->safe_psql('postgres', 'SELECT count(*), count(DISTINCT share), count(DISTINCT database) FROM snowflake.backfill_share'),
	'4|4|2', 'each database has a share of its own, though two have one OID each');

# A restored dump and a copied database go on with shares of their own.
$nodes[0]->safe_psql('shop', 'CREATE TABLE old AS ' . $ids =~ s/FROM/AS id FROM/r);
push @files, write_ids(sort { $a <=> $b } split /\n/, $nodes[0]->safe_psql('shop', 'SELECT id FROM old'));
my $dump = PostgreSQL::Test::Utils::tempdir('dump') . '/shop.sql';
$nodes[0]->command_ok([ 'pg_dump', '-f', $dump, $nodes[0]->connstr('shop') ], 'dumped');
$nodes[0]->safe_psql('postgres', $_) foreach 'CREATE DATABASE copy TEMPLATE shop', 'CREATE DATABASE restored';
$nodes[0]->command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-q', '-f', $dump, $nodes[0]->connstr('restored') ], 'restored');
push @files, map { backfill($nodes[0], $_) } 'copy', 'restored', 'shop';
check_ids('a copy and a restored dump', @files);

# Many sessions at once: they wait for each other.
my $drawers = start_drawers($nodes[1], count => 3, database => 'shop', sql => q{SELECT snowflake_backfill_id(now() - interval '1 day') FROM generate_series(1, 50);});
$drawers->wait_for(400);
push @files, $drawers->stop;
is($drawers->errors, '', 'sessions that make up ids at the same time');
check_ids('many sessions', @files);
$nodes[1]->restart;
push @files, backfill($nodes[1], 'shop');
crash($nodes[1]);
$nodes[1]->start;
push @files, backfill($nodes[1], 'shop');
check_ids('after a restart and a crash', @files);

# Another registry than ids came from is not asked before a superuser says so.
set_and_reload($nodes[1], 'snowflake.registry' => '');
poll('the setting', sub { $nodes[1]->safe_psql('postgres', 'SHOW snowflake.registry') eq '' });
poll('a refusal', sub { sql_error($nodes[1], 'SELECT snowflake_nextval()') ne '' });
like(sql_error($nodes[1], q{SELECT snowflake_backfill_id(now())}), qr/^ERROR:  55000: the node number of this server came from another source before/,
	'the registry is unset: error, as for draws');
set_and_reload($nodes[1], 'snowflake.registry' => place($registry));
poll('draws', sub { sql_error($nodes[1], 'SELECT snowflake_nextval()') eq '' });
push @files, backfill($nodes[1], 'shop');
check_ids('the registry is set again', @files);

# Nobody to ask.
$registry->stop;
like(sql_error($nodes[0], q{SELECT snowflake_backfill_id(now())}), qr/^ERROR:  55P03: could not reach the registry .*\nDETAIL:  .*\nHINT:  /,
	'the registry is down: error');
my $session = $nodes[1]->background_psql('postgres', on_error_stop => 0);
$session->query(q{BEGIN READ ONLY; SELECT snowflake_backfill_id(now())});
like($session->{stderr}, qr/cannot execute snowflake_backfill_id\(\) in a read-only transaction/, 'in a read-only transaction: error');
$session->quit;
$registry->start;
is($nodes[0]->safe_psql('postgres', q{SELECT snowflake_backfill_id(now()) > 0}), 't', 'the registry is back: goes on');
$_->stop foreach @nodes, $registry;

# On a standby; where the extension is not in snowflake.database yet; not preloaded.
my $primary = new_node('primary', init => [ allows_streaming => 1 ], conf => "snowflake.database = 'leases'\nsnowflake.worker_id = 'auto'\n");
$primary->safe_psql('postgres', $_) foreach 'CREATE DATABASE leases', 'CREATE EXTENSION IF NOT EXISTS snowflake';
is($primary->safe_psql('postgres', q{SELECT snowflake_backfill_id(now()) > 0}), 't', 'the extension is created where the shares are');
is($primary->safe_psql('leases', 'SELECT count(*) FROM snowflake.backfill_share'), 1, 'the share is there');
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
like(sql_error($standby, q{SELECT snowflake_backfill_id(now())}), qr/^ERROR:  25006: cannot execute snowflake_backfill_id\(\) during recovery/, 'a standby: error');
$standby->promote;
poll('draws', sub { sql_error($standby, 'SELECT snowflake_nextval()') eq '' });
check_ids('the old primary and the promoted one', map { backfill($_, 'postgres') } $primary, $standby, $primary, $standby);
$standby->stop;
# A share that may be lost with the primary is not used, whatever the log shows.
$primary->safe_psql('postgres', 'CREATE DATABASE unreplicated');
$primary->safe_psql('unreplicated', 'CREATE EXTENSION snowflake; SELECT snowflake_nextval()');
set_and_reload($primary, 'synchronous_standby_names' => 'nobody', 'log_min_messages' => 'error');
poll('the setting', sub { $primary->safe_psql('postgres', 'SHOW synchronous_standby_names') eq 'nobody' });
my $asking = $primary->background_psql('unreplicated', on_error_stop => 0);
$asking->query_until(qr/asked/, "\\echo asked\nSELECT snowflake_backfill_id(now() - interval '1 day');\n");
poll('the wait', sub { $primary->safe_psql('postgres', q{SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
	WHERE backend_type = 'snowflake share worker' AND wait_event = 'SyncRep'}) });
$asking->query('SELECT 1');
like($asking->{stderr}, qr/ERROR:  a lease was not replicated to a synchronous standby/, 'a share that was not replicated: error');
$asking->quit;
set_and_reload($primary, 'synchronous_standby_names' => '', 'log_min_messages' => 'warning');
set_conf($primary, 'shared_preload_libraries' => '');
$primary->restart;
like(sql_error($primary, q{SELECT snowflake_backfill_id(now())}), qr/^ERROR:  55000: snowflake must be loaded via shared_preload_libraries/, 'not preloaded: error');
$primary->stop;

done_testing();
