# 003_layout_change.pl
#	  A server is started with another snowflake.layout.  Where every new id is
#	  greater than every old one and no other server goes on, that is all; else ids are
#	  refused until the layout is set back, or until the time that the hint names;
#	  nothing repeats.  A default that nobody set never replaces a layout.  To start over,
#	  the extension is dropped.  snowflake.extra_layouts may change freely.  A layout that
#	  cannot be read keeps the server from issuing ids, not from running.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;

my $node = new_node('main', conf => "snowflake.layout = 'twitter'\n");
my $greatest = 0;
my @ids;

sub restart_with
{
	my ($layout, $mode) = @_;

	$node->stop($mode // 'fast');
	set_conf($node, 'snowflake.layout' => $layout);
	$node->start;
	is($node->safe_psql('postgres', 'SELECT 1'), 1, 'the server starts with layout ' . ($layout // '(not set)'));
}

sub check_goes_on
{
	my ($label) = @_;
	my @new = (issue_ids($node, 50), issue_ids($node, 5000, 1));

	cmp_ok($new[0], '>', $greatest, "$label: ids go on, greater than all earlier ones");
	is(stat_of($node, 'state'), 'ready', "$label: the view says so");
	$greatest = $new[-1];
	push @ids, @new;
}

sub check_refused
{
	my ($label, $message) = @_;

	poll('refusal', sub { stat_of($node, 'state') ne 'starting' });
	like(sql_error($node, 'SELECT snowflake_nextval()'), $message, "$label: a call fails");
	like(sql_error($node, 'SELECT snowflake_nextval_batch(3)'), $message, "$label: a batch fails");
	is(stat_of($node, 'state'), 'refused', "$label: the view says so");
}

my $refused = qr/^ERROR:  55000: the layout is not the one that ids were issued under/;
my $set_back = qr/HINT:  Set the layout back \(a server can have the new one in snowflake\.extra_layouts\);/;
my $not_greater = qr/$refused
DETAIL:  Ids were issued under "timestamp 41, .*"; the node has "timestamp .*"\. Its ids would not be greater than all of them\.
$set_back as the layout it is accepted from \d{4}-.* on\./;

check_goes_on('twitter');

# Same epoch and widths, but for the name of the node number's bits.
restart_with('leaf');
check_goes_on('twitter to leaf');
is(stat_of($node, 'datacenter_id'), '', 'leaf has no datacenter');

# The lease of before the crash must be over, which takes about a second.
restart_with('twitter', 'immediate');
poll('ids', sub { my $error = sql_error($node, 'SELECT snowflake_nextval()');
	die $error if $error !~ /^$|^$not_greater/; $error eq '' });
check_goes_on('leaf to twitter, after an immediate stop');
is(stat_of($node, 'datacenter_id'), 0, 'twitter has one');

# Later epochs: the ids would be less.
foreach my $layout ('pgedge', 'discord', 'twitter, epoch 2020-01-01T00:00:00Z')
{
	restart_with($layout);
	check_refused("twitter to $layout", $not_greater);
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), 3, 'a refused start has no lease');
restart_with('twitter', 'immediate');
check_goes_on('back to twitter');

# An hour's later epoch makes the ids less, until that hour is over.
my $later = 'twitter, epoch 2010-11-04T02:42:54.657Z';
restart_with($later);
check_refused('later epoch', $not_greater);
my ($from) = sql_error($node, 'SELECT snowflake_nextval()') =~ /accepted from (.*) on\./;
is($node->safe_psql('postgres', "SELECT '$from'::timestamptz BETWEEN now() + '50 min' AND now() + '1 hour 5 s'"), 't',
	'later epoch: the hint names the time');
set_and_reload($node, 'snowflake.clock_offset' => '1h');
poll('later epoch: ids', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
check_goes_on('later epoch, an hour later');
restart_with('twitter');
check_goes_on('the first epoch again');
restart_with('twitter, epoch 2010-11-04T00:42:54.657Z');
check_goes_on('earlier epoch');
restart_with('twitter');
check_refused('the first epoch again', $not_greater);

# A default that nobody set, as with a new postgresql.conf after pg_upgrade.
restart_with(undef);
check_refused('not set', qr/$refused
DETAIL:  Ids were issued under "timestamp 41, .*"; the node has "timestamp .*"\.
HINT:  Set the layout to 'timestamp 41, .*epoch 2010-11-04T00:42:54.657Z' \(of a server: snowflake\.layout in postgresql\.conf\) and restart the node\./);
my ($line) = sql_error($node, 'SELECT snowflake_nextval()') =~ /'(timestamp.*?)'/;
restart_with($line);
check_goes_on('the layout of the hint');

# Another server of the registry has a lease, here one that was not there before.
$node->safe_psql('postgres', <<EOF);
INSERT INTO snowflake.worker_node
SELECT (jsonb_populate_record(w, jsonb_build_object('token', gen_random_uuid(), 'start', gen_random_uuid(), 'host_name', 'other.example',
	'port', 5433, 'node_number', 9, 'worker_id', 9, 'leased_until', starts_at + '3 hours', 'renewed_at', starts_at,
	'greatest_id', snowflake_max_id(starts_at + '3 hours')))).*
FROM snowflake.worker_node AS w WHERE closed_at IS NULL
EOF
my $earlier = 'twitter, epoch 2010-11-03T00:42:54.657Z';
restart_with($earlier);
check_refused('another server', qr/$refused
DETAIL:  Ids were issued under "[^"]*"; the node has "[^"]*"\. The server on host "other.example", port 5433, has a lease until \d{4}-.*
$set_back or stop all other nodes: it is accepted from \d{4}-.* on\./);

# It has released it.
$node->safe_psql('postgres', "UPDATE snowflake.worker_node SET closed_at = now(), leased_until = starts_at + '1 ms' WHERE node_number = 9");
poll('ids', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
check_goes_on('another server, which has stopped');
restart_with($line);
check_refused('its ids are greater', $not_greater);
restart_with($earlier);
check_goes_on('the earlier epoch again');
check_ids('all layouts', write_ids(@ids));

#
# Further layouts.  They share the number and its leases, so it does not matter which of them
# are in use, and when; the same layout in other words is the same.
#
my $small = 'timestamp 41, worker 3, sequence 10, tick 1ms, epoch 2020-01-01T00:00:00Z';
my %last = (discord => 0, $small => 0);
foreach my $extra ('discord', undef, "$small; ; discord; timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2015-01-01T00:00:00Z")
{
	$node->stop;
	set_conf($node, 'snowflake.extra_layouts' => $extra);
	$node->start;
	if (!$extra)
	{
		like(sql_error($node, "SELECT snowflake_nextval('discord')"), qr/^ERROR:  55000: layout "discord" is not in use
DETAIL:  .*
HINT:  Add "snowflake.extra_layouts = 'discord'" to postgresql.conf and restart the server\./,
			'a layout that is not in use');
		next;
	}
	foreach my $layout (grep { $extra =~ /\Q$_/ } sort keys %last)
	{
		my $id = $node->safe_psql('postgres', "SELECT snowflake_nextval('$layout')");

		cmp_ok($id, '>', $last{$layout}, "an id of $layout, with extra layouts $extra");
		is($node->safe_psql('postgres', "SELECT worker_id FROM snowflake_parse($id, '$layout')"), 1, 'has the node number');
		$last{$layout} = $id;
	}
}
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT node_number) FROM pg_stat_snowflake'), '3|1',
	'the view has a row for each layout, and they have one number');
check_goes_on('with extra layouts');
like(sql_error($node, "SELECT snowflake_nextval('leaf')"),
	qr/\nHINT:  Add "snowflake.extra_layouts = '\Q$small\E; ; discord; .*Z; leaf'" to/, 'the hint keeps the others');

# A number must fit all of them.
set_and_reload($node, 'snowflake.worker_id' => 7);
poll('refusal', sub { stat_of($node, 'state') eq 'refused' });
check_refused('a number that is reserved in an extra layout',
	qr/^ERROR:  55000: node number 7 is reserved\nDETAIL:  It is the greatest of the layout "timestamp 41, worker 3, /);
set_and_reload($node, 'snowflake.worker_id' => 8);
check_refused('a number that does not fit an extra layout', qr/^ERROR:  55000: node number [78] /);
poll('refusal', sub { stat_of($node, 'detail') =~ /number 8/ });
check_refused('a number that does not fit an extra layout',
	qr/^ERROR:  55000: node number 8 does not fit layout "timestamp 41, worker 3, .*\nDETAIL:  .* from 0 to 6\./);
set_and_reload($node, 'snowflake.worker_id' => 'auto');
poll('automatic numbers', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
cmp_ok(stat_of($node, 'node_number'), '<', 7, 'an automatic number fits all layouts');
set_and_reload($node, 'snowflake.worker_id' => 1);
poll('number 1', sub { stat_of($node, 'node_number') eq '1' });
check_goes_on('number 1 again');

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
is($node->safe_psql('postgres', "SELECT worker_id FROM snowflake_parse($last{discord}, 'discord')"), 1,
	'invalid layout: parsing with an explicit layout works');

# The worker that starts again, and a crash, change nothing about it.
set_and_reload($node, 'snowflake.worker_id' => 2);
my $pid = worker_pid($node);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
poll('new worker', sub { worker_pid($node) != $pid });
check_refused('invalid layout, another worker', $invalid);
set_conf($node, 'snowflake.worker_id' => 1, 'snowflake.extra_layouts' => 'discord; sonyflake, tick 2s');
restart_with($earlier, 'immediate');
check_refused('invalid extra layouts', qr/^ERROR:  55000: the server was started with an invalid snowflake.extra_layouts: "discord; /);
like(sql_error($node, "SELECT snowflake_nextval('discord')"), qr/^ERROR:  55000: the server was started with an invalid snowflake.extra_layouts/,
	'invalid extra layouts: none is in use');
set_conf($node, 'snowflake.extra_layouts' => undef);
restart_with($earlier, 'immediate');
check_goes_on('layouts that can be read again');

# To start over: another table knows nothing.
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
restart_with('discord');
set_and_reload($node, 'snowflake.clock_offset' => undef);
my ($id) = issue_ids($node, 1);
cmp_ok($id, '<', $greatest, 'started over with a layout of lesser ids');
is($node->safe_psql('postgres', "SELECT abs(extract(epoch FROM snowflake_timestamp($id) - clock_timestamp())) < 60"), 't',
	'which carry the time');

# But the server that issued them knows how far they go, as long as it runs.
my $again = 'DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry';
set_clock($node, 120_000);
($greatest) = issue_ids($node, 1);
$node->safe_psql('postgres', $again);
($id) = issue_ids($node, 1);
cmp_ok($id, '>', $greatest, 'dropped and created while it runs: ids go on, greater than all earlier ones');
$greatest = $id;
set_clock($node, 0);
$node->safe_psql('postgres', "$again; SELECT snowflake_release()");
poll('refusal', sub { sql_error($node, 'SELECT snowflake_nextval()') =~ /^ERROR:  55000/ });
check_refused('dropped and created, the clock set back', qr/^ERROR:  55000: the node's clock is behind ids that the registry does not know of
DETAIL:  .*
HINT:  Correct the clock, .* restart the node\./);
set_and_reload($node, 'snowflake.clock_offset' => '2min');
poll('ids', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
cmp_ok((issue_ids($node, 1))[0], '>', $greatest, 'dropped and created, the clock right: ids go on, greater than all earlier ones');
$node->stop;

done_testing();
