# 041_floors.pl
#	  Ids that the tables of a registry do not know: what an open lease of another server
#	  covers for a while only, what was issued before the own tables were made anew, and
#	  what is issued while they are, and what a former server issued.  No id repeats, also
#	  after restarts.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;

my $registry = new_registry('registry', limit => '2 h');

# A server of its own, whose ids are far ahead of the clock.
sub new_ahead
{
	my ($name, $seconds, $conf) = @_;
	my $node = auto_node($name, conf => "snowflake.worker_id = '5'\nsnowflake.max_ahead = '${seconds}s'\n" . ($conf // ''));

	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	return $node;
}

# The newest lease in some tables starts after the last of these ids.
sub check_start
{
	my ($label, $tables, $file, $layout) = @_;
	my $last = (sort { $a <=> $b } read_ids($file))[-1];

	$layout //= 'twitter';
	is($tables->safe_psql('postgres', <<SQL), 't', "$label: the lease starts after the last id of before");
SELECT w.starts_at > snowflake_timestamp($last, '$layout')
FROM ${\ LEASES} AS w JOIN snowflake.registry AS r USING (incarnation) ORDER BY w.launched_at DESC, w.closed_at DESC, w.renewed_at DESC LIMIT 1
SQL
}

sub batch
{
	my ($node, $thousands) = @_;
	my $file = write_ids($node->safe_psql('postgres', 'SELECT snowflake_nextval_batch(1000) FROM generate_series(1, ' . ($thousands // 200) . ')'));

	return $file;
}

#
# Of the number that is taken over, another server has an open lease here, and closes it at an earlier end
#
my $other = new_member('other', conninfo_of($registry), conf => "snowflake.worker_id = '5'\nsnowflake.lease_duration = '1h'\n");
issue_ids($other, 10);
my $node = auto_node('node', conf => "snowflake.worker_id = '5'\n");
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
set_clock($node, 20_000);
my @files = batch($node);
set_clock($node, 0);
set_and_reload($node, 'snowflake.registry' => conninfo_of($registry));
poll('the setting', sub { $node->safe_psql('postgres', 'SHOW snowflake.registry') ne '' });
move_registry($node, $registry);
push @files, write_ids(issue_ids($other, 10));
$other->stop('fast');
$node->restart;
push @files, write_ids($node->safe_psql('postgres', "SET snowflake.max_wait = '60s'; SELECT snowflake_nextval()")), batch($node);
check_ids('an open lease of another server', split_ids(12, 1023, @files));
check_start('an open lease of another server', $registry, $files[0]);
is(id_node((read_ids($files[-1]))[0]), 5, 'an open lease of another server: the number is the same');
$node->stop;

#
# Own tables made anew, then a registry, then a restart with the number of before
#
$registry->safe_psql('postgres', 'DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry');
$node = new_ahead('again', 8);
set_clock($node, 7_000);
@files = batch($node);
set_clock($node, 0);
set_and_reload($node, 'snowflake.registry' => conninfo_of($registry), 'snowflake.worker_id' => 6);
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry');
push @files, batch($node);
set_conf($node, 'snowflake.worker_id' => 5);
$node->restart;
push @files, batch($node);
check_ids('tables made anew', split_ids(12, 1023, @files));
check_start('tables made anew', $registry, $files[0]);
is(id_node((read_ids($files[-1]))[0]), 5, 'tables made anew: the number of before');
$node->stop;

#
# Own tables made anew while ids are issued, then a crash
#
my $layout = 'twitter, sequence 4';
$node = new_ahead('crashing', 60, "snowflake.layout = '$layout'\n");
batch($node, 1);
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry');
# the lease worker has seen it by then, and waits for no renewal
sleep 3;
@files = batch($node, 60);
crash($node);
$node->start;
# the lease before it was recorded; its own ids wait for the clock
sql_error($node, 'SET snowflake.max_wait = 0; SELECT snowflake_nextval()');
poll('a lease', sub { $node->safe_psql('postgres', 'SELECT count(*) > 0 FROM snowflake.node_number WHERE renewed_at > pg_postmaster_start_time()') eq 't' });
check_start('made anew while ids are issued', $node, $files[0], $layout);
$node->stop;
$registry->stop;

#
# A move before a promotion or pg_upgrade was counted
#
my $new = new_registry('new');
$node = auto_node('uncounted');
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
issue_ids($node, 1);
# longer than the floor of the creation lasts
sleep 3;
set_and_reload($node, 'snowflake.registry' => conninfo_of($new));
wait_for_state($node, 'expired');
# the tables are as another server has left them; the lease worker may count before the closing does
my $before = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
$node->safe_psql('postgres', "UPDATE snowflake.registry SET server = '1/00000001'");
move_registry($node, $new);
is($new->safe_psql('postgres', "SELECT counted_at > '$before' FROM snowflake.registry"), 't',
	'a move before a pg_upgrade was counted: the time of the count is taken over');
$node->stop;
$new->stop;

done_testing();
