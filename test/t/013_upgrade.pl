# 013_upgrade.pl
#	  pg_upgrade carries the extension's tables to the new cluster, and nothing beside them
#	  is needed.  With a fixed number ids go on after all old ones, also where these are far
#	  ahead of the clock.  A promoted server that is upgraded, with links, beside the old
#	  primary keeps its generation: no id is issued twice.  A cluster that used a registry,
#	  and whose new postgresql.conf does not name it, issues none before it is told to.
#
#	  From a major to itself; what is at stake is the new data directory.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;
use SnowflakeLocal;

use Cwd qw(getcwd);

# It leaves files where it runs.
sub upgrade
{
	my ($label, $old, $new, @options) = @_;
	my $bin = $old->config_data('--bindir');
	my $here = getcwd();

	chdir PostgreSQL::Test::Utils::tempdir() or die "chdir: $!";
	command_ok(
		[
			'pg_upgrade', '--no-sync', @options,
			'-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin,
			'-s', $new->host, '-p', $old->port, '-P', $new->port
		],
		"$label: pg_upgrade");
	chdir $here or die "chdir: $!";
}

#
# A fixed number, whose first ids are far ahead of the clock, so that the clock alone would let the new
# server repeat them
#
my $conf = "snowflake.layout = 'twitter, sequence 2'\nsnowflake.max_ahead = '2min'\n";
my $old = new_node('old', conf => $conf);
my $new = new_node('new', conf => $conf, start => 0);

$old->safe_psql('postgres', <<EOF);
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), note text);
INSERT INTO orders SELECT id, 'old' FROM snowflake_nextval_batch(1000) id;
CREATE TABLE parcel (id snowflake_id PRIMARY KEY, parent snowflake_id REFERENCES parcel);
INSERT INTO parcel VALUES (2124094861762502657, 2124094861762502657);
EOF
cmp_ok(stat_of($old, 'ahead'), 'gt', '00:00:10', 'fixed number: ids are far ahead of the clock');
$old->stop;
upgrade('fixed number', $old, $new);
$new->start;
$new->safe_psql('postgres', "INSERT INTO orders (note) SELECT 'new' FROM generate_series(1, 1000)");
is($new->safe_psql('postgres', <<EOF), 't', 'fixed number: all new ids are greater than all old ones');
SELECT min(id) FILTER (WHERE note = 'new') > max(id) FILTER (WHERE note = 'old') FROM orders
EOF
is($new->safe_psql('postgres', 'SET enable_seqscan = off; SELECT to_json(p), coalesce(id, 0) FROM parcel AS p WHERE id > 5 AND parent = ANY (ARRAY[2124094861762502657])'),
	'{"id":"2124094861762502657","parent":"2124094861762502657"}|2124094861762502657', 'the type snowflake_id, its casts and indexes');
is($new->safe_psql('postgres', <<EOF), 'own|2|2', 'fixed number: the tables have both clusters, one after the other');
SELECT uses, (SELECT count(*) FROM snowflake.worker_node), (SELECT count(DISTINCT system_identifier) FROM snowflake.worker_node)
FROM snowflake.cluster
EOF
$new->stop;

#
# A promoted server, upgraded beside the living old primary
#
my $primary = auto_node('primary', init => [ allows_streaming => 1 ]);
my $standby = PostgreSQL::Test::Cluster->new('standby');
my $linked = auto_node('linked', start => 0);

$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my @files = write_ids(issue_ids($primary, 100));
$primary->backup('backup');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);
$standby->promote;
push @files, write_ids(issue_ids($standby, 100));
$standby->stop;
upgrade('promoted', $standby, $linked, '--link');
$linked->start;
is($linked->safe_psql('postgres', 'SELECT timeline_id FROM pg_control_checkpoint()'), 1, 'promoted: the new cluster has no history');
is(join(' ', map { $_->safe_psql('postgres', 'SELECT generation FROM snowflake.registry') } $primary, $linked), '1 2',
	'promoted: it is of the second generation, the old primary of the first');
foreach my $i (1 .. 3)
{
	foreach my $node ($primary, $linked)
	{
		$node->safe_psql('postgres', 'SELECT snowflake_release()');
		push @files, write_ids(issue_ids($node, 1000));
	}
}
is(join(' ', map { id_node((read_ids($_))[0]) % 2 } @files), '0 1' . ' 0 1' x 3, 'promoted: one bit of their numbers differs');
check_ids('promoted: both', split_ids(12, 1023, @files));

#
# A cluster that uses a registry, which the new postgresql.conf does not name.  The old
# primary is the registry.
#
my $newer = auto_node('newer', start => 0);

set_and_reload($linked, 'snowflake.registry' => conninfo_of($primary));
poll('the other registry', sub { $linked->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster') eq 'another' });
poll('its lease', sub { stat_of($linked, 'registry') =~ /@{[ $primary->port ]}/ });
$linked->safe_psql('postgres', 'CREATE TABLE orders AS SELECT snowflake_nextval_batch(1000) AS id');
my $port = $linked->port;
is($primary->safe_psql('postgres', "SELECT count(*) FROM snowflake.worker_node WHERE port = $port AND closed_at IS NULL"),
	'1', 'registry: it has the lease of a node');
$linked->stop;
upgrade('registry', $linked, $newer);
$newer->start;
my $refused = qr/^ERROR:  55000: the registry's own cluster uses another registry\nDETAIL:  .*\nHINT:  Set snowflake\.registry \(in a program: its data source\) to that registry, or move: see "Another registry" in doc\/operations\.md/;
like(sql_error($newer, 'SELECT snowflake_nextval()'), $refused, 'registry: forgotten, no ids are issued');
$newer->restart;
like(sql_error($newer, 'SELECT snowflake_nextval()'), $refused, 'registry: nor after a restart');
set_and_reload($newer, 'snowflake.registry' => conninfo_of($primary));
poll('ids by the registry', sub { sql_error($newer, 'SELECT snowflake_nextval()') eq '' });
$newer->safe_psql('postgres', 'INSERT INTO orders SELECT snowflake_nextval_batch(1000)');
set_and_reload($newer, 'snowflake.registry' => '');
poll('the refusal, when the lease is over', sub { sql_error($newer, 'SELECT snowflake_nextval()') =~ $refused });
pass('registry: named again, ids go on until it is forgotten again');
# It leaves the others for good.
$primary->stop;
$newer->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
poll('ids of its own', sub { sql_error($newer, 'SELECT snowflake_nextval()') eq '' });
$newer->safe_psql('postgres', 'INSERT INTO orders SELECT snowflake_nextval_batch(1000)');
is($newer->safe_psql('postgres', 'SELECT count(DISTINCT id), (SELECT uses FROM snowflake.cluster) FROM orders'), '3000|own',
	'registry: then it issues ids of its own, none twice');
$newer->stop;

done_testing();
