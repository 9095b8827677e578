# 023_promotion.pl
#	  Two servers of one cluster that are writable at the same time, and what comes
#	  after, without a registry: a standby that is promoted while the old primary draws,
#	  is frozen or goes on; pg_rewind, switchover, point-in-time recovery, a second
#	  promotion, a fixed number.  Odd and even timelines have no number in common; no id
#	  repeats.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeStatement;
use File::Copy;

my $gently = <<'SQL';
SET snowflake.max_wait = '30s';
SELECT snowflake_nextval() FROM generate_series(1, 20);
SELECT snowflake_nextval_batch(10);
DO 'BEGIN PERFORM pg_sleep(0.002); END';
SQL

sub start_gently
{
	my ($node) = @_;
	my $drawers = start_drawers($node, count => 2, sql => $gently);

	$drawers->wait_for(300);
	return $drawers;
}

sub draw_gently
{
	return start_gently($_[0])->stop;
}

# All processes of a server.
sub signal_all
{
	my ($signal, @pids) = @_;

	is(kill($signal, @pids), scalar @pids, "$signal to all processes");
}

sub processes
{
	my ($node) = @_;

	return ($node->{_pid}, split /\n/, $node->safe_psql('postgres',
			"SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type <> 'snowflake helper'"));
}

sub timeline
{
	my ($node) = @_;

	return $node->safe_psql('postgres', 'SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)::int');
}

# After a promotion: the number, its row, and nothing restarted.
sub check_promoted
{
	my ($label, $node, $timeline, $started) = @_;
	my $number = stat_of($node, 'node_number');

	is(timeline($node), $timeline, "$label: timeline $timeline");
	if ($timeline % 2 == 0)
	{
		ok($number >= 512 && $number <= 1022, "$label: number $number is in the upper half");
	}
	else
	{
		ok($number <= 511, "$label: number $number is in the lower half");
	}
	is(newest_row($node, 'node_number, timeline, port, released_at IS NULL'), "$number|$timeline|" . $node->port . '|t',
		"$label: its row");
	is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, "$label: it was not restarted") if $started;
	return $number;
}

sub new_standby
{
	my ($primary, $backup, $name) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$standby->init_from_backup($primary, $backup, has_streaming => 1);
	set_conf($standby, archive_mode => 'off');
	$standby->start;
	return ($standby, $standby->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'));
}

my $primary = auto_node('primary', init => [ allows_streaming => 1, has_archiving => 1 ],
	conf => "snowflake.lease_duration = '3s'\nwal_log_hints = on\nwal_keep_size = '200MB'\n");
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE TABLE t (id bigint DEFAULT snowflake_nextval(), n int)');
my @files = draw_gently($primary);
$primary->backup('early');

#
# Recovery to a point in time, beside the server that went on.
#
my $primary_drawers = start_gently($primary);
$primary->safe_psql('postgres', <<'SQL');
INSERT INTO t (n) SELECT i FROM generate_series(1, 100) i;
SELECT pg_create_restore_point('here');
SQL
$primary->safe_psql('postgres', 'SELECT snowflake_release()');
$primary->safe_psql('postgres', 'INSERT INTO t (n) VALUES (101)');
my $segment = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_switch_wal())');
poll('archive', sub { -e $primary->archive_dir . "/$segment" });

my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'early', has_restoring => 1, standby => 0);
set_conf($restored, archive_mode => 'off', recovery_target_name => 'here', recovery_target_action => 'promote');
$restored->start;
$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'no promotion';
my @restored = draw_gently($restored);
is($restored->safe_psql('postgres', 'SELECT count(*) FROM t'), '100', 'restored: it has the rows up to the point');
check_promoted('restored', $restored, 2);
$primary_drawers->wait_for(300);
$restored->restart;
push @restored, draw_gently($restored);
check_promoted('restored and restarted', $restored, 2);
check_covered('restored', $restored, 'postgres', 12, 1023, @restored);
$restored->stop;
push @files, $primary_drawers->stop;
is($primary_drawers->errors, '', 'restored: the old primary notices nothing');
check_ids('restored and old primary', split_ids(12, 1023, @files, @restored));

#
# Promoted while the old primary is frozen in the middle of drawing.  That goes on
# afterwards, beside it.
#
my ($standby, $started) = new_standby($primary, 'early', 'standby');
like(sql_error($standby, 'SELECT snowflake_nextval()'), qr/^ERROR:  25006: cannot draw ids during recovery/,
	'a standby refuses');
$primary_drawers = start_gently($primary);
my @processes = processes($primary);
signal_all('STOP', @processes);
$standby->promote;
my $standby_drawers = start_gently($standby);
check_promoted('primary frozen', $standby, 2, $started);
signal_all('CONT', @processes);
$primary_drawers->wait_for(300);
$standby_drawers->wait_for(300);

# Both alive; the old one takes numbers that the new one does not know of.
foreach my $i (1 .. 3)
{
	cmp_ok($primary->safe_psql('postgres', 'SELECT snowflake_release()'), '<=', 511, 'the old primary stays in the lower half');
	cmp_ok($standby->safe_psql('postgres', 'SELECT snowflake_release()'), '>=', 512, 'and the new one in the upper');
	$_->wait_for(100) foreach $primary_drawers, $standby_drawers;
}
my @primary_files = $primary_drawers->stop;
my @standby_files = $standby_drawers->stop;
push @files, @primary_files, @standby_files;
is($primary_drawers->errors . $standby_drawers->errors, '', 'both alive: no errors');
check_ids('two primaries', split_ids(12, 1023, @files));
check_covered('old primary', $primary, 'postgres', 12, 1023, @primary_files);
check_covered('new primary', $standby, 'postgres', 12, 1023, @standby_files);

#
# The old primary is rewound, so that the rows it wrote since are lost, follows, and
# is promoted again: timeline 3, with the numbers of timeline 1.
#
$primary->stop('fast');
$standby->safe_psql('postgres', 'CHECKPOINT');
my $conf = $primary->data_dir . '/postgresql.conf';
copy($conf, $primary->basedir . '/postgresql.conf') or die "copy: $!";
$primary->command_ok([ 'pg_rewind', '-D', $primary->data_dir, '--source-server', $standby->connstr('postgres') ], 'pg_rewind');
copy($primary->basedir . '/postgresql.conf', $conf) or die "copy: $!";
$primary->enable_streaming($standby);
set_conf($primary, archive_mode => 'off');
$primary->start;
$started = $primary->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
$standby_drawers = start_gently($standby);
like(sql_error($primary, 'SELECT snowflake_nextval()'), qr/^ERROR:  25006: /, 'rewound: a standby');
$standby->wait_for_catchup($primary, 'write');
$primary->promote;
$primary_drawers = start_gently($primary);
my $number = check_promoted('rewound', $primary, 3, $started);
foreach my $i (1 .. 3)
{
	$primary->safe_psql('postgres', 'SELECT snowflake_release()');
	$_->wait_for(100) foreach $primary_drawers, $standby_drawers;
}
push @files, $primary_drawers->stop, $standby_drawers->stop;
check_ids('rewound', split_ids(12, 1023, @files));
$_->stop foreach $primary, $standby;

#
# Switchover there and back, all of it clean.
#
my $left = auto_node('left', init => [ allows_streaming => 1 ]);
$left->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my @phases = ([ draw_gently($left) ]);
$left->backup('early');
(my $right, $started) = new_standby($left, 'early', 'right');
$left->wait_for_catchup($right, 'write');
$left->stop('fast');
is($right->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE released_at IS NULL'), '0',
	'switchover: the standby has the end of the last lease');
$right->promote;
push @phases, [ draw_gently($right) ];
check_promoted('switchover', $right, 2, $started);
$left->enable_streaming($right);
$left->start;
$right->wait_for_catchup($left, 'write');
push @phases, [ draw_gently($right) ];
like(sql_error($left, 'SELECT snowflake_nextval()'), qr/^ERROR:  25006: /, 'switchover: the old primary is a standby');
$started = $left->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
$right->stop('fast');
$left->promote;
push @phases, [ draw_gently($left) ];
is(check_promoted('switched back', $left, 3, $started), '1', 'switched back: the next number of its half');
check_phases('switchovers', @phases);
check_covered('switchovers', $left, 'postgres', 12, 1023, map { @$_ } @phases);
$left->stop;

#
# A fixed number is the same on both; the new primary begins where the row ends, which
# the old one, lost without notice, cannot have passed.
#
my $fixed = auto_node('fixed', init => [ allows_streaming => 1 ],
	conf => "snowflake.worker_id = '7'\nsnowflake.lease_duration = '1min'\n");
$fixed->safe_psql('postgres', 'CREATE EXTENSION snowflake');
@phases = ([ draw_gently($fixed) ]);
$fixed->backup('early');
(my $heir, $started) = new_standby($fixed, 'early', 'heir');
my $drawers = start_gently($fixed);
$fixed->wait_for_catchup($heir, 'replay');
crash($fixed);
push @{ $phases[0] }, $drawers->stop;
my $bound = newest_row($heir, 'extract(epoch FROM leased_until)');
$heir->promote;
poll('its lease', sub { stat_of($heir, 'state') ne 'starting' });
like(sql_error($heir, "SET snowflake.max_wait = '500ms'; SELECT snowflake_nextval()"),
	qr/^ERROR:  55P03: the next id would be \d+\.\d+ s ahead/, 'a fixed number: refused while the row of the old primary lasts');
set_and_reload($heir, 'snowflake.clock_offset' => 60_000);
my $first = run_sql($heir, "SET snowflake.max_wait = '2min'; SELECT snowflake_nextval();");
is($first->{error}, '', 'a fixed number: draws later');
cmp_ok(id_time($first->{out}), '>=', $bound - 0.001, 'a fixed number: ids begin where the row of the old primary ends');
push @phases, [ write_ids($first->{out}), draw_gently($heir) ];
is(stat_of($heir, 'source, node_number'), 'fixed|7', 'a fixed number: the same');
is($heir->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'a fixed number: not restarted');
check_phases('a fixed number', @phases);
check_covered('a fixed number', $heir, 'postgres', 12, 1023, map { @$_ } @phases);
$heir->stop;

#
# The same where the standby did not get the last renewals, and the ids were as far
# ahead of the clock as they may be.
#
my $ahead = auto_node('ahead', init => [ allows_streaming => 1 ], conf => <<'EOC');
snowflake.layout = 'twitter, sequence 4'
snowflake.worker_id = '7'
snowflake.max_ahead = '2s'
snowflake.lease_duration = '1s'
EOC
$ahead->safe_psql('postgres', 'CREATE EXTENSION snowflake');
@phases = ([ write_ids(draw($ahead, 10)) ]);
$ahead->backup('early');
my ($behind) = new_standby($ahead, 'early', 'behind');
$ahead->wait_for_catchup($behind, 'replay');
$bound = newest_row($behind, 'leased_until');
$behind->stop('fast');
$drawers = start_drawers($ahead, count => 2, sql => 'SELECT snowflake_nextval_batch(1000);');
poll('the bound to pass', sub {
		$ahead->safe_psql('postgres', "SELECT clock_timestamp() > '$bound' AND ahead > '1.8 s' FROM pg_stat_snowflake") eq 't' });
$ahead->stop('immediate');
push @{ $phases[0] }, $drawers->stop;
$behind->start;
$behind->promote;
$first = run_sql($behind, "SET snowflake.max_wait = '30s'; SELECT snowflake_nextval();");
is($first->{error}, '', 'renewals lost: draws');
push @phases, [ write_ids($first->{out}), write_ids(draw($behind, 10)) ];
check_phases('renewals lost', @phases);
$behind->stop;

done_testing();
