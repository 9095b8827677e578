# 046_orders.pl
#	  Orders to the lease worker, snowflake_release() and snowflake_change_source(), while
#	  it cannot carry them out: they end with an error after some seconds, one session at a
#	  time can wait for the same, and what was given up or cancelled is not carried out
#	  later, when nobody expects it any more.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use IPC::Run ();
use Time::HiRes qw(time);

my $node = new_node('main', conf => "snowflake.worker_id = 'auto'\n");

draw($node, 1);
my $number = stat_of($node, 'node_number');
my $worker = worker_pid($node);

sub freeze_worker
{
	kill 'STOP', $worker or die "cannot stop $worker: $!";
}

# It goes on, and has had time for more than a pass of its loop.
sub thaw_worker
{
	kill 'CONT', $worker or die "cannot continue $worker: $!";
	$node->safe_psql('postgres', 'SELECT snowflake_nextval() FROM generate_series(1, 10)');
	$node->reload;
	poll('the worker to have read the settings', sub {
			$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity
				WHERE pid = $worker AND wait_event_type = 'Extension'") });
	$node->safe_psql('postgres', 'SELECT pg_sleep(0.5)');
}

# In the background; its output is in $_[0]->{err} when it is done.
sub start_order
{
	my ($call) = @_;
	my $order = { err => '' };

	$order->{run} = IPC::Run::start([ $node->installed_command('psql'), '-XAt', '-v', 'VERBOSITY=verbose',
			'-d', $node->connstr('postgres') . ' application_name=order', '-c', "SELECT $call" ],
		'<', '/dev/null', '>', '/dev/null', '2>', \$order->{err});
	$order->{pid} = poll('order that waits', sub { $node->safe_psql('postgres',
				"SELECT pid FROM pg_stat_activity WHERE application_name = 'order' AND wait_event_type = 'Extension'") });
	return $order;
}

foreach my $case (
	[ 'snowflake_release()', qr/the node number was not released in time/ ],
	[ 'snowflake_change_source()', qr/no node number was taken from the new source in time/ ])
{
	my ($call, $message) = @$case;

	freeze_worker();
	my $start = time;
	my $order = start_order($call);
	like(sql_error($node, "SELECT $call"),
		qr/^ERROR:  55006: another session is doing the same\nHINT:  Wait until it has ended/m,
		"$call: a second session is told of the first");
	$order->{run}->finish;
	like($order->{err}, qr/ERROR:  55P03: $message\n.*HINT:  See pg_stat_snowflake/s, "$call: it ends with an error");
	cmp_ok(time - $start, '>=', 4.5, "$call: after some seconds");

	$order = start_order($call);
	is($node->safe_psql('postgres', "SELECT pg_cancel_backend($order->{pid})"), 't', "$call: cancelled");
	$order->{run}->finish;
	like($order->{err}, qr/ERROR:  57014: /, "$call: it can be cancelled");
	thaw_worker();
	is(stat_of($node, 'node_number'), $number, "$call: neither was carried out later");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), 1, "$call: no other lease was taken");
}

# The same orders, with nothing in their way
is($node->safe_psql('postgres', 'SELECT snowflake_release()'), $number, 'the number is handed back');
is($node->safe_psql('postgres', 'SELECT snowflake_release()'), '', 'there is none to hand back any more');
draw($node, 1);
isnt(stat_of($node, 'node_number'), $number, 'the next draw has another');
$node->safe_psql('postgres', 'SELECT snowflake_change_source()');
isnt(stat_of($node, 'node_number'), '', 'and the source can be changed to the same one');
$node->stop;

done_testing();
