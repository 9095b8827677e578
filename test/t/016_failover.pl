# 016_failover.pl
#	  A standby refuses draws (25006) and parses; promoted, it draws without a restart,
#	  and all its ids are above those of the old primary, also where that ran ahead of
#	  the clock, where the standby has an old state file or none or a clock that is
#	  behind, and where a backup becomes a new primary with its clock an hour back.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeStatement;

# 16,000 ids a second: soon as far ahead of the clock as max_ahead allows, much farther
# than a promotion takes.
my $primary = new_node('primary', init => [ allows_streaming => 1, has_archiving => 1 ], conf => <<EOF);
snowflake.layout = 'twitter, sequence 4'
snowflake.max_ahead = '4s'
snowflake.lease_duration = '5s'
EOF
$primary->safe_psql('postgres', 'CREATE TABLE t (id bigint DEFAULT snowflake_nextval(), n int)');
my @before = draw($primary, 10);
$primary->backup('early');

sub new_standby
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($primary, 'early', has_streaming => 1);
	return $node;
}

# One that has the state file of the backup, and one that never had one, as if made
# before the primary drew.
my $standby = new_standby('standby');
my $bare = new_standby('bare');
unlink $bare->data_dir . '/snowflake.state' or die "unlink: $!";
$_->start foreach $standby, $bare;

# And one whose clock is half an hour behind, if libfaketime is there.  Its worker is
# started once more, since libfaketime does not work in the postmaster's first children.
my ($library) = glob '/usr/lib/*/faketime/libfaketime.so.1';
my $slow = $library ? new_standby('slow') : undef;
if ($slow)
{
	my $file = PostgreSQL::Test::Utils::tempdir('clock') . '/offset';

	append_to_file($file, "+0\n");
	start_with($slow, $library, FAKETIME_TIMESTAMP_FILE => $file, FAKETIME_NO_CACHE => 1,
		FAKETIME_DONT_FAKE_MONOTONIC => 1, FAKETIME_DISABLE_SHM => 1);
	kill_process(worker_pid($slow), 'TERM');
	worker_pid($slow);
	append_to_file("$file.new", "-30m\n");
	rename "$file.new", $file or die "rename: $!";
}
my @standbys = grep { $_ } $standby, $bare, $slow;

foreach my $call ('snowflake_nextval()', 'snowflake_nextval_batch(2)')
{
	like(sql_error($standby, "SELECT $call"),
		qr/ERROR:  25006: cannot draw ids during recovery\nDETAIL:  .*\nHINT:  /, "standby: $call is refused");
}
is($standby->safe_psql('postgres', "SELECT worker_id, sequence, snowflake_timestamp($before[-1])
		= snowflake_timestamp($before[-1], 'twitter, sequence 4') FROM snowflake_parse($before[-1])"),
	$primary->safe_psql('postgres', "SELECT 1, sequence, true FROM snowflake_parse($before[-1])"),
	'standby: the parse side works');
is(stat_of($standby, "concat_ws(',', state, detail)"), 'starting,until this standby is promoted', 'standby: state');
ok(-e $standby->data_dir . '/snowflake.state', 'standby: its state file is that of the backup');

# The primary runs ahead and is lost.
$primary->safe_psql('postgres', "INSERT INTO t (n) SELECT generate_series(1, 80000)");
is($primary->safe_psql('postgres', "SELECT max_ahead_seen > '2.5 s' FROM pg_stat_snowflake"), 't', 'the primary runs ahead of its clock');
my $last = (draw($primary, 1))[0];
$primary->safe_psql('postgres', 'INSERT INTO t VALUES (0, 0); SELECT pg_switch_wal()');
$primary->wait_for_catchup($_) foreach @standbys;
$primary->stop('immediate');

sub promoted_draws_above
{
	my ($node, $label, $started) = @_;
	my $first = run_sql($node, "SET snowflake.max_wait = '60s'; SELECT snowflake_nextval();");

	is($first->{error}, '', "$label: draws");
	cmp_ok($first->{out}, '>', $last, "$label: above the ids of the old primary");
	is($node->safe_psql('postgres', "SELECT count(*) FROM t WHERE id >= $first->{out}"), '0', "$label: also those in the table");
	is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, "$label: without a restart") if $started;
}

foreach my $node ($standby, $bare)
{
	my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

	$node->promote;
	promoted_draws_above($node, 'promoted ' . $node->name, $started);
}
SKIP:
{
	skip 'libfaketime is not installed', 1 unless $slow;
	$slow->promote;
	poll('lease', sub { stat_of($slow, 'state') ne 'starting' });
	like(sql_error($slow, 'SELECT snowflake_nextval()'), qr/ERROR:  55P03: the next id would be 1[5-8]\d\d\.\d+ s ahead/,
		'promoted with its clock behind: refused');
	set_and_reload($slow, 'snowflake.max_ahead' => '1h');
	poll('max_ahead', sub { sql_error($slow, 'SELECT snowflake_nextval()') eq '' });
	promoted_draws_above($slow, 'promoted with its clock behind');
	$slow->stop;
}
like(slurp_file($standby->logfile), qr/snowflake: .*timeline.* 2; ids begin at/, 'the log says why it begins later');
$standby->restart;
cmp_ok((draw($standby, 1))[0], '>', $last, 'restarted after the promotion');
$_->stop foreach $standby, $bare;

#
# A backup with the archived WAL becomes a new primary.  Its clock is an hour back: it
# must not begin where its clock and its old state file are.
#
my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'early', has_restoring => 1, standby => 0);
set_conf($restored, 'snowflake.clock_offset' => -3_600_000, archive_mode => 'off');
$restored->start;
$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'no promotion';
poll('lease', sub { stat_of($restored, 'state') ne 'starting' });
is($restored->safe_psql('postgres', 'SELECT count(*) FROM t'), 80_001, 'restored backup: it has the rows of the old primary');
like(sql_error($restored, "SELECT snowflake_nextval()"), qr/ERROR:  55P03: the next id would be 3[2-6]\d\d\.\d+ s ahead/,
	'restored backup, an hour back: refused');
set_and_reload($restored, 'snowflake.clock_offset' => 0);
poll('clock', sub { stat_of($restored, 'ahead') lt '00:01:00' });
promoted_draws_above($restored, 'restored backup');
$restored->stop;

done_testing();
