# 017_promotion.pl
#	  Two servers of one cluster that are writable at the same time, and what comes
#	  after, without a registry: a standby that is promoted while the old primary issues
#	  ids, is frozen or goes on; pg_rewind, switchover, point-in-time recovery, a second
#	  promotion, a fixed number.  Odd and even generations have no number in common; no id
#	  repeats.
use FindBin;
use lib "$FindBin::RealBin/../perl";
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
	my $clients = start_clients($node, count => 2, sql => $gently);

	$clients->wait_for(300);
	return $clients;
}

sub issue_gently
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
	is($number % 2, 1 - $timeline % 2, "$label: number $number is that of an " . ($timeline % 2 ? 'odd' : 'even') . ' generation');
	is($node->safe_psql('postgres', 'SELECT generation, cardinality(counted) FROM snowflake.registry'), "$timeline|" . ($timeline - 1),
		"$label: the generation is counted");
	is(newest_row($node, 'node_number, timeline, port, closed_at IS NULL'), "$number|$timeline|" . $node->port . '|t',
		"$label: its row");
	is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, "$label: it was not restarted") if $started;
	return $number;
}

# Before a second promotion: a count within the longest window after another one would make leases wait for that.
sub wait_for_longest_window
{
	my ($node) = @_;

	poll('the longest window', sub { $node->safe_psql('postgres', 'SELECT r.counted_at + snowflake.longest_window(r, now()) < now() FROM snowflake.registry AS r') eq 't' });
}

# Without ids of before that another limit allowed.
sub set_limit
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry');
	limit_leases($node, '15 s');
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
set_limit($primary);
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE TABLE t (id bigint DEFAULT snowflake_nextval(), n int)');
my @files = issue_gently($primary);
$primary->backup('early');

#
# Recovery to a point in time, beside the server that went on.
#
my $primary_clients = start_gently($primary);
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
my @restored = issue_gently($restored);
is($restored->safe_psql('postgres', 'SELECT count(*) FROM t'), '100', 'restored: it has the rows up to the point');
check_promoted('restored', $restored, 2);
$primary_clients->wait_for(300);
$restored->restart;
push @restored, issue_gently($restored);
check_promoted('restored and restarted', $restored, 2);
check_covered('restored', $restored, 'postgres', 12, 1023, @restored);
$restored->stop;
push @files, $primary_clients->stop;
is($primary_clients->errors, '', 'restored: the old primary notices nothing');
check_ids('restored and old primary', split_ids(12, 1023, @files, @restored));

#
# Promoted while the old primary is frozen while it issues ids.  That goes on
# afterwards, beside it.
#
my ($standby, $started) = new_standby($primary, 'early', 'standby');
like(sql_error($standby, 'SELECT snowflake_nextval()'), qr/^ERROR:  25006: cannot issue ids during recovery/,
	'a standby refuses');
$primary_clients = start_gently($primary);
my @processes = processes($primary);
signal_all('STOP', @processes);
$standby->promote;
my $standby_clients = start_gently($standby);
check_promoted('primary frozen', $standby, 2, $started);
signal_all('CONT', @processes);
$primary_clients->wait_for(300);
$standby_clients->wait_for(300);

# Both alive; the old one takes numbers that the new one does not know of.
foreach my $i (1 .. 3)
{
	$_->safe_psql('postgres', 'SELECT snowflake_release()') foreach $primary, $standby;
	$_->wait_for(100) foreach $primary_clients, $standby_clients;
	is(id_node((issue_ids($primary, 1))[0]) % 2, 0, 'the numbers of the old primary stay even');
	is(id_node((issue_ids($standby, 1))[0]) % 2, 1, 'and those of the new one odd');
}
my @primary_files = $primary_clients->stop;
my @standby_files = $standby_clients->stop;
push @files, @primary_files, @standby_files;
is($primary_clients->errors . $standby_clients->errors, '', 'both alive: no errors');
check_ids('two primaries', split_ids(12, 1023, @files));
check_covered('old primary', $primary, 'postgres', 12, 1023, @primary_files);
check_covered('new primary', $standby, 'postgres', 12, 1023, @standby_files);

#
# The old primary is rewound, so that the rows it wrote since are lost, follows, and
# is promoted again: generation 3, with the even numbers.
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
$standby_clients = start_gently($standby);
like(sql_error($primary, 'SELECT snowflake_nextval()'), qr/^ERROR:  25006: /, 'rewound: a standby');
wait_for_longest_window($standby);
$standby->wait_for_catchup($primary, 'write');
$primary->promote;
$primary_clients = start_gently($primary);
my $number = check_promoted('rewound', $primary, 3, $started);
is($primary->safe_psql('postgres', 'SELECT starts_at IS NULL, (SELECT count(*) FROM snowflake.guard) FROM snowflake.registry'), 't|0', 'rewound: nothing waits');
foreach my $i (1 .. 3)
{
	$primary->safe_psql('postgres', 'SELECT snowflake_release()');
	$_->wait_for(100) foreach $primary_clients, $standby_clients;
}
push @files, $primary_clients->stop, $standby_clients->stop;
check_ids('rewound', split_ids(12, 1023, @files));
$_->stop foreach $primary, $standby;

#
# Switchover there and back, all of it clean.
#
my $left = auto_node('left', init => [ allows_streaming => 1 ]);
set_limit($left);
$left->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my @phases = ([ issue_gently($left) ]);
$left->backup('early');
(my $right, $started) = new_standby($left, 'early', 'right');
$left->wait_for_catchup($right, 'write');
my $stopped = log_end($left);
$left->stop('fast');
# a stop that meets a renewal does not close the lease
is($right->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE closed_at IS NULL'),
	log_since($left, $stopped) =~ /released node number/ ? '0' : '1',
	'switchover: the standby has the end of the last lease');
$right->promote;
push @phases, [ issue_gently($right) ];
check_promoted('switchover', $right, 2, $started);
$left->enable_streaming($right);
$left->start;
$right->wait_for_catchup($left, 'write');
push @phases, [ issue_gently($right) ];
like(sql_error($left, 'SELECT snowflake_nextval()'), qr/^ERROR:  25006: /, 'switchover: the old primary is a standby');
$started = $left->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
wait_for_longest_window($right);
$right->wait_for_catchup($left, 'write');
$right->stop('fast');
$left->promote;
push @phases, [ issue_gently($left) ];
check_promoted('switched back', $left, 3, $started);
is($left->safe_psql('postgres', 'SELECT starts_at IS NULL, (SELECT count(*) FROM snowflake.guard) FROM snowflake.registry'), 't|0', 'switched back: nothing waits');
is($left->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node GROUP BY node_number HAVING count(*) > 1'), '',
	'switched back: each number was used once');
check_phases('switchovers', @phases);
check_covered('switchovers', $left, 'postgres', 12, 1023, map { @$_ } @phases);
$left->stop;

#
# A fixed number is the same on both; the new primary starts where the row ends, and
# after the ids that the old one, lost without notice, may have issued ahead.
#
my $fixed = auto_node('fixed', init => [ allows_streaming => 1 ], conf => "snowflake.worker_id = '7'\n");
$fixed->safe_psql('postgres', 'CREATE EXTENSION snowflake');
@phases = ([ issue_gently($fixed) ]);
$fixed->backup('early');
(my $heir, $started) = new_standby($fixed, 'early', 'heir');
my $clients = start_gently($fixed);
$fixed->wait_for_catchup($heir, 'replay');
crash($fixed);
push @{ $phases[0] }, $clients->stop;
my $end = newest_row($heir, 'extract(epoch FROM leased_until)');
$heir->promote;
my $first = run_sql($heir, "SET snowflake.max_wait = '2min'; SELECT snowflake_nextval();");
is($first->{error}, '', 'a fixed number: ids go on');
cmp_ok(id_time($first->{out}), '>=', $end - 0.001, 'a fixed number: they start where the row of the old primary ends');
push @phases, [ write_ids($first->{out}), issue_gently($heir) ];
is(stat_of($heir, 'worker_id_from, node_number'), 'setting|7', 'a fixed number: the same');
is($heir->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'a fixed number: not restarted');
is($heir->safe_psql('postgres', <<"SQL"), 't', 'a fixed number: the old row was closed where it ended');
SELECT bool_and(closed_at IS NOT NULL) AND max(extract(epoch FROM leased_until)) = $end
FROM snowflake.worker_node WHERE timeline = 1
SQL
check_phases('a fixed number', @phases);
check_covered('a fixed number', $heir, 'postgres', 12, 1023, map { @$_ } @phases);
$heir->stop;

done_testing();
