# 018_upgrade.pl
#	  pg_upgrade takes no state file along: the new cluster's ids begin behind what
#	  the old one can have issued, and its servers in binary mode issue none.
#
#	  The old server's ids run over a minute ahead of its clock, so that the clock alone would
#	  let the new one repeat them.  From a major to itself; what is at stake is the
#	  new data directory.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;

my $conf = <<EOF;
snowflake.layout = 'twitter, sequence 2'
snowflake.max_ahead = '2min'
EOF
my $old = new_node('old', conf => $conf);
my $new = new_node('new', conf => $conf, start => 0);

$old->safe_psql('postgres', <<EOF);
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), note text);
INSERT INTO orders SELECT id, 'old' FROM snowflake_nextval_batch(320000) id;
EOF
cmp_ok(stat_of($old, 'ahead'), 'gt', '00:00:10', 'ids are far ahead of the clock');
$old->stop;

chdir PostgreSQL::Test::Utils::tempdir() or die "chdir: $!";
my $bin = $old->config_data('--bindir');
command_ok(
	[
		'pg_upgrade', '--no-sync',
		'-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin,
		'-s', $new->host, '-p', $old->port, '-P', $new->port
	],
	'pg_upgrade');
ok(!-e $new->data_dir . '/snowflake.state', 'it took no state file along, and made none');

$new->start;
$new->safe_psql('postgres', "INSERT INTO orders (note) SELECT 'new' FROM generate_series(1, 1000)");
is($new->safe_psql('postgres', <<EOF), 't', 'all new ids are greater than all old ones');
SELECT min(id) FILTER (WHERE note = 'new') > max(id) FILTER (WHERE note = 'old') FROM orders
EOF
$new->stop;

done_testing();
