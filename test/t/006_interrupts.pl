# 006_interrupts.pl
#	  A call that waits for an id can be ended at any time: by statement_timeout, a cancel, the
#	  end of its session, a fast shutdown and snowflake.max_wait.  And it goes on by
#	  itself as soon as what it waits for is there.  Shown for both kinds of waits: for
#	  the clock, which was set back, and for the lease, whose worker is stopped.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeStatement;

use Time::HiRes 'time';

# Far more than an interrupt takes, also if the machine stalls; far less than the waits
# that it ends.
my $promptly = 60;

# One wait after the other, all of which would last for nearly ten minutes.
sub interrupt_waits
{
	my ($node, $label) = @_;
	my $begin_wait = sub { start_sql($node, "SET snowflake.max_wait = '20min'; SELECT $_[0];") };
	my %calls = (pg_cancel_backend => 'snowflake_nextval_batch(3)', pg_terminate_backend => 'snowflake_nextval()');

	my $result = run_sql($node,
		"SET statement_timeout = '500ms'; SET snowflake.max_wait = '20min'; SELECT snowflake_nextval();");
	like($result->{error}, qr/ERROR:  57014: canceling statement due to statement timeout/, "$label: statement_timeout");
	cmp_ok($result->{seconds}, '<', $promptly, "$label: statement_timeout ends the wait promptly");

	foreach my $function (sort keys %calls)
	{
		my $wait = $begin_wait->($calls{$function});
		my $pid = waiting_pid($node);
		my $begin = time;

		is($node->safe_psql('postgres', "SELECT $function($pid)"), 't', "$label: $function in $calls{$function}");
		finish_sql($wait);
		is($wait->{code}, $function eq 'pg_cancel_backend' ? '57014' : '57P01', "$label: $function: SQLSTATE");
		is($wait->{out}, '', "$label: $function: no id");
		cmp_ok(time - $begin, '<', $promptly, "$label: $function ends the wait promptly");
	}
}

# max_wait, in two sizes, and what it reports
sub give_up
{
	my ($node, $label, $message, $max_wait, $at_least) = @_;
	my $result = run_sql($node, "SET snowflake.max_wait = '$max_wait'; SELECT snowflake_nextval();");

	like($result->{error}, qr/ERROR:  55P03: $message.*\nDETAIL:  .*snowflake\.max_wait is \d+\.\d+ s\.\nHINT:  /,
		"$label: fails with max_wait = $max_wait");
	cmp_ok($result->{seconds}, '>=', $at_least, "$label: not before $max_wait is over") if $at_least;
	cmp_ok($result->{seconds}, '<', $at_least + $promptly, "$label: soon when $max_wait is over");
}

# Two sessions wait while the server is told to stop; $release then lets it do so.
sub shut_down
{
	my ($node, $label, $release) = @_;
	my @waits = map { start_sql($node, "SET snowflake.max_wait = '20min'; SELECT $_;") }
	  ('snowflake_nextval()', 'snowflake_nextval_batch(3)');
	my $offset = log_end($node);

	poll('two waits', sub { $node->safe_psql('postgres', "SELECT count(*) = 2 FROM pg_stat_activity
		WHERE wait_event_type = 'Extension' AND backend_type = 'client backend'") eq 't' });
	is($node->safe_psql('postgres', "SELECT DISTINCT wait_event FROM pg_stat_activity
		WHERE wait_event_type = 'Extension' AND backend_type = 'client backend'"),
		$node->safe_psql('postgres', 'SHOW server_version_num') >= 170000 ? 'SnowflakeNextval' : 'Extension',
		"$label: the wait event, which has a name since PostgreSQL 17");
	my $begin = time;
	kill 'INT', $node->{_pid};
	foreach my $wait (@waits)
	{
		is(finish_sql($wait)->{code}, '57P01', "$label: fast shutdown ends the session");
	}
	cmp_ok(time - $begin, '<', $promptly, "$label: fast shutdown ends the waits promptly");
	$release->();
	poll('shutdown', sub { !-e $node->data_dir . '/postmaster.pid' });
	cmp_ok(time - $begin, '<', 2 * $promptly, "$label: the server is down promptly");
	$node->_update_pid(0);
	# the last line, which the server writes after it has removed that file
	poll('shutdown in good order', sub { log_since($node, $offset) =~ /database system is shut down/ });
}

my $gave_up = 'gave up waiting for the lease to be extended';

sub lease_ends
{
	my ($node) = @_;

	poll('end of the lease',
		sub { run_sql($node, 'SET snowflake.max_wait = 0; SELECT snowflake_nextval();')->{error} =~ $gave_up });
}

my $node = new_node('main');

#
# The clock is ten minutes behind
#
set_clock($node, 601_000);
my ($last) = issue_ids($node, 1);
set_clock($node, 0);
interrupt_waits($node, 'clock');
give_up($node, 'clock', 'the next id would be [3-6]\d\d\.\d+ s ahead of the clock', 0, 0);
give_up($node, 'clock, no use to wait', 'the next id would be [3-6]\d\d\.\d+ s ahead of the clock', '2min', 0);

my $wait = start_sql($node, "SET snowflake.max_wait = '20min'; SELECT snowflake_nextval();");
waiting_pid($node);
my $begin = time;
set_and_reload($node, 'snowflake.clock_offset' => 601_000);
is(finish_sql($wait)->{error}, '', 'clock: a wait ends by itself when the clock is set right');
cmp_ok(time - $begin, '<', $promptly, 'clock: at once');
cmp_ok($wait->{out}, '>', $last, 'clock: with a greater id');
$last = $wait->{out};

set_clock($node, 0);
shut_down($node, 'clock', sub { });

#
# The lease cannot be extended: its worker is stopped, and the lease runs out
#
set_conf($node, 'snowflake.clock_offset' => 601_000);
$node->start;
my $worker = worker_pid($node);
($last) = issue_ids($node, 1);
kill 'STOP', $worker or die "kill: $!";
lease_ends($node);
interrupt_waits($node, 'lease');
give_up($node, 'lease', $gave_up, 0, 0);
give_up($node, 'lease', $gave_up, '1s', 1);
foreach my $case ([ 0, 'Try again, or raise snowflake\.max_wait\.' ], [ '10ms', 'The lease worker has not answered; see the server\'s log' ])
{
	my ($max_wait, $hint) = @$case;

	like(sql_error($node, "SET snowflake.max_wait = '$max_wait'; SELECT snowflake_nextval()"), qr/^ERROR:  55P03: $gave_up\n.*\nHINT:  $hint/,
		"lease: what to do, with max_wait = $max_wait");
}
is(stat_of($node, "leased_until < clock_timestamp() + interval '602 s'"), 't', 'lease: it is over');

$wait = start_sql($node, "SET snowflake.max_wait = '20min'; SELECT snowflake_nextval();");
my $pid = waiting_pid($node);
my $cpu = cpu_ticks($pid);
sleep 1;						# not to wait for anything: to measure
is(waiting_pid($node), $pid, 'lease: a call still waits');
cmp_ok(cpu_ticks($pid) - $cpu, '<=', 3, 'lease: and uses next to no processor time');
$begin = time;
kill 'CONT', $worker or die "kill: $!";
is(finish_sql($wait)->{error}, '', 'lease: a wait ends by itself when the worker goes on');
cmp_ok(time - $begin, '<', $promptly, 'lease: at once');
cmp_ok($wait->{out}, '>', $last, 'lease: with a greater id');

kill 'STOP', $worker or die "kill: $!";
lease_ends($node);
shut_down($node, 'lease', sub { kill 'CONT', $worker });

done_testing();
