# 004_layout_change.pl
#	  A server is started with another snowflake.layout.  Where every new id is
#	  greater than every old one, drawing goes on once snowflake_change_layout() has
#	  been called; otherwise it is refused until the layout is set back; nothing repeats.  A layout that cannot be read keeps the
#	  server from drawing, not from running.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;

my $node = new_node('main');
my $greatest = 0;
my @ids;

sub restart_with
{
	my ($layout, $mode) = @_;

	$node->stop($mode // 'fast');
	set_conf($node, 'snowflake.layout' => $layout);
	$node->start;
	is($node->safe_psql('postgres', 'SELECT 1'), 1, "the server starts with layout \"$layout\"");
}

# The lease of before the restart must be over, which the server tells the table.
sub change_layout
{
	my ($layout) = @_;

	check_refused("$layout before the change", qr/^ERROR:  55000: snowflake.layout is not the one of the registry
DETAIL:  The registry's is "timestamp 41, .*"\.
HINT:  Set snowflake.layout to that and restart the server; or change/);
	poll('change of the layout', sub { sql_error($node, "SELECT snowflake_change_layout('$layout')") eq '' });
	poll('draws', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
}

sub check_draws
{
	my ($label) = @_;
	my @new = (draw($node, 50), draw($node, 5000, 1));

	cmp_ok($new[0], '>', $greatest, "$label: ids go on above all earlier ones");
	is(stat_of($node, 'state'), 'ready', "$label: the view says so");
	$greatest = $new[-1];
	push @ids, @new;
}

sub check_refused
{
	my ($label, $message) = @_;

	poll('refusal', sub { stat_of($node, 'state') ne 'starting' });
	like(sql_error($node, 'SELECT snowflake_nextval()'), $message, "$label: a draw fails");
	like(sql_error($node, 'SELECT snowflake_nextval_batch(3)'), $message, "$label: a batch fails");
	is(stat_of($node, 'state'), 'refused', "$label: the view says so");
}

my $not_greater = qr/^ERROR:  55000: snowflake.layout is not the one that ids were issued under
DETAIL:  New ids would not be greater than all of the layout "timestamp 41, .*"\.
HINT:  Set snowflake.layout back and restart the server\./;

check_draws('twitter');

# Same epoch and widths, but for the name of the node number's bits.
restart_with('leaf');
change_layout('leaf');
check_draws('twitter to leaf');
is(stat_of($node, 'datacenter_id'), '', 'leaf has no datacenter');
restart_with('twitter', 'immediate');
change_layout('twitter');
check_draws('leaf to twitter, after an immediate stop');
is(stat_of($node, 'datacenter_id'), 0, 'twitter has one');

# Later epochs: the ids would be lower.
foreach my $layout ('pgedge', 'discord', 'twitter, epoch 2020-01-01T00:00:00Z')
{
	restart_with($layout);
	check_refused("twitter to $layout", $not_greater);
}
restart_with('twitter', 'immediate');
check_draws('back to twitter');

# An hour's later epoch makes the ids lower, an hour's earlier one higher.
restart_with('twitter, epoch 2010-11-04T02:42:54.657Z');
check_refused('later epoch', $not_greater);
like(sql_error($node, "SELECT snowflake_change_layout('twitter, epoch 2010-11-04T02:42:54.657Z')"),
	qr/^ERROR:  55000: new ids would not be greater than all of the layout/, 'later epoch: not to be changed to');
restart_with('twitter, epoch 2010-11-04T00:42:54.657Z');
change_layout('twitter, epoch 2010-11-04T00:42:54.657Z');
check_draws('earlier epoch');
restart_with('twitter');
check_refused('the first epoch again', $not_greater);
restart_with('twitter, epoch 2010-11-04T00:42:54.657Z');
check_draws('the earlier epoch again');
check_ids('all layouts', write_ids(@ids));

# Another server's ids are nothing to this one: a clean start under any layout.
my $other = new_node('other', conf => "snowflake.layout = 'pgedge'\n");
my ($id) = draw($other, 1);
is($other->safe_psql('postgres', "SELECT abs(extract(epoch FROM
		snowflake_timestamp($id, 'pgedge') - clock_timestamp())) < 60"), 't', 'a new server takes any layout');

#
# A layout that cannot be read
#
restart_with('twitter, sequence 40');
my $invalid = qr/^ERROR:  55000: the server was started with an invalid snowflake.layout: "twitter, sequence 40"
DETAIL:  .+
HINT:  Correct .* restart the server/;
check_refused('invalid layout', $invalid);
like(slurp_file($node->logfile), qr/invalid value for parameter "snowflake.layout": "twitter, sequence 40"/,
	'invalid layout: the log has it');
is($node->safe_psql('postgres', "SELECT worker_id FROM snowflake_parse($id, 'pgedge')"), 1,
	'invalid layout: parsing with an explicit layout works');
is($node->safe_psql('postgres', "SELECT snowflake_timestamp(0, 'pgedge') = '2023-01-01 00:00:00Z'"), 't',
	'invalid layout: so does the time');

# The worker that starts again, and a crash, change nothing about it.
set_and_reload($node, 'snowflake.worker_id' => 2);
my $pid = worker_pid($node);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
poll('new worker', sub { worker_pid($node) != $pid });
check_refused('invalid layout, another worker', $invalid);
set_conf($node, 'snowflake.worker_id' => 1);
restart_with('twitter, epoch 2010-11-04T00:42:54.657Z', 'immediate');
check_draws('a layout that can be read again');
$node->stop;

done_testing();
