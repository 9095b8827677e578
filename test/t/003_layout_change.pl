# 003_layout_change.pl
#	  The first lease records the default layout.  A server that is started with another
#	  snowflake.layout issues no ids, and nothing else changes, until the layout is set back or the
#	  registry's owner gives the order in the hint: snowflake.change_layout().  Then all leases are
#	  closed, and new ones start where every new id is greater than every old one; until then ids are
#	  refused.  An order for a layout whose ids would not be greater is refused; nothing repeats.
#	  To start over, the extension is dropped.  snowflake.extra_layouts may change freely.  A
#	  layout that cannot be read keeps the server from issuing ids, not from running.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeNode;
use Time::HiRes qw(time);

# The longest window is 25 s, which each change of layout waits for.
my $node = new_node('main', limit => '15 s', conf => "snowflake.layout = 'twitter'\n");
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

# What is on record of leases and layouts.
sub on_record
{
	return $node->safe_psql('postgres', 'SELECT * FROM snowflake.node_number ORDER BY node_number;
		SELECT * FROM snowflake.worker_node ORDER BY token; SELECT * FROM snowflake.registry; SELECT * FROM snowflake.cluster');
}

sub recorded_layout
{
	return $node->safe_psql('postgres', 'SELECT layout FROM snowflake.cluster');
}

sub definition_of
{
	my ($layout) = @_;

	return $node->safe_psql('postgres', "SELECT definition FROM snowflake_layout('$layout')");
}

sub refused_as
{
	my ($recorded, $layout) = map { definition_of($_) } @_;

	return qr/^ERROR:  55000: the layout is not the one that ids are issued under
DETAIL:  Ids are issued under "\Q$recorded\E"; the node has "\Q$layout\E"\.
HINT:  Set the layout of the node to '\Q$recorded\E' \(of a server: snowflake\.layout, and restart it; it can have the other one in snowflake\.extra_layouts\)\. To change that of all nodes, run SELECT snowflake\.change_layout\('\Q$layout\E'\) in the registry: see "Change of layout" in doc\/operations\.md\. If no id is in use yet, see "Starting over" there\./;
}

# The server is refused with a layout, and its owner runs what the hint says.
sub change_to
{
	my ($recorded, $layout, $label) = @_;
	my $refused = refused_as($recorded, $layout);

	poll('refusal', sub { sql_error($node, 'SELECT snowflake_nextval()') =~ $refused });
	my $before = on_record();
	check_refused($label, $refused);
	is(on_record(), $before, "$label: nothing changes in the tables");
	my ($order) = sql_error($node, 'SELECT snowflake_nextval()') =~ /(SELECT snowflake\.change_layout\('.*?'\))/;
	my ($now, $starts_at, $then, $open) = split /[|\n]/, $node->safe_psql('postgres', <<SQL);
BEGIN;
SELECT extract(epoch FROM now()), extract(epoch FROM t), extract(epoch FROM clock_timestamp()) FROM ($order) AS c (t);
SELECT count(*) FROM snowflake.node_number WHERE token IS NOT NULL;
COMMIT;
SQL
	is(recorded_layout(), definition_of($layout), "$label: the order records it");
	ok($starts_at > $now + 24.99 && $starts_at < $then + 25.01, "$label: leases start after the longest window")
	  or diag("from $now to $then: $starts_at");
	is($open, 0, "$label: all leases are closed");
	my $behind = qr/^ERROR:  55000: the node's clock is behind the time that leases start at\nDETAIL:  .*or change of layout or registry\.\nHINT:  Wait until it shows that time/;
	my @seen;
	poll('ids', sub { my $error = sql_error($node, 'SELECT snowflake_nextval()'); push @seen, $error if $error; $error eq '' });
	# a lease may start 10 s and max_ahead after the clock
	cmp_ok(time, '>', $starts_at - 11.1, "$label: until then calls are refused");
	# the first ones may be the refusal of before the order
	is(join('', grep { $_ !~ $behind && $_ !~ $refused && !/^ERROR:  55P03: the next id would be / } @seen), '', "$label: with the reason");
	my ($id) = issue_ids($node, 1);
	is($node->safe_psql('postgres', "SELECT $id > greatest_id, snowflake_timestamp($id) >= to_timestamp($starts_at) FROM snowflake.cluster"), 't|t',
		"$label: ids are greater than all that were allowed");
	check_goes_on($label);
}

check_goes_on('twitter');
is(recorded_layout(), definition_of('twitter'), 'the first lease records the layout');

# Same epoch and widths, but for the name of the node number's bits.
restart_with('leaf');
change_to('twitter', 'leaf', 'twitter to leaf');
is(stat_of($node, 'datacenter_id'), '', 'leaf has no datacenter');
restart_with('twitter', 'immediate');
change_to('leaf', 'twitter', 'leaf to twitter, after an immediate stop');
is(stat_of($node, 'datacenter_id'), 0, 'twitter has one');

# Later epochs: the ids would be less.
foreach my $layout ('pgedge', 'discord', 'twitter, epoch 2010-11-04T02:42:54.657Z')
{
	my $before = on_record();

	restart_with($layout);
	check_refused("twitter to $layout", refused_as('twitter', $layout));
	my $closed = on_record();
	my $definition = definition_of($layout);
	my $error = sql_error($node, "SELECT snowflake.change_layout('$definition')");
	like($error, qr/^ERROR:  55000: ids of layout "\Q$definition\E" would not be greater than those that were issued\nDETAIL:  Ids up to \d+ were allowed under "\Q@{[ definition_of('twitter') ]}\E"\. Those of the new layout .*\nHINT:  .*choose another layout\. If no id is in use yet, see "Starting over" in doc\/operations\.md\./i,
		"twitter to $layout: the order is refused");
	is(on_record(), $closed, "twitter to $layout: and changes nothing");
	# a stop closes the lease
	is($before =~ tr/\n//, $closed =~ tr/\n//, "twitter to $layout: a refused start has no lease");
}
like(sql_error($node, "SELECT snowflake.change_layout('twitter')"), qr/^ERROR:  22023: layout "twitter" is not written as it must be here\n/,
	'an order has the layout as it is written out');
restart_with('twitter', 'immediate');
check_goes_on('back to twitter');

# Its own server has the recorded layout, and goes on in a lease that the order has closed, to its end.
my $earlier = 'twitter, epoch 2010-11-04T00:42:54.657Z';
set_and_reload($node, 'snowflake.worker_id' => 'auto');
my $number = poll('an automatic lease', sub { issue_ids($node, 1); my $n = stat_of($node, 'node_number'); $n =~ /^[02-9]$|../ && $n + 1 }) - 1;
is($node->safe_psql('postgres', "SELECT snowflake.change_layout('${\ definition_of($earlier)}') < now() + interval '27 s'"), 't',
	'an order while ids are issued');
my ($token, $until) = split /\|/, $node->safe_psql('postgres', "SELECT token, extract(epoch FROM leased_until) FROM snowflake.worker_node
	WHERE node_number = $number AND closed_at IS NOT NULL ORDER BY closed_at DESC LIMIT 1");
my @to_end;
poll('the refusal', sub {
		my ($status, $id, $error) = $node->psql('postgres', "SET snowflake.max_wait = '100ms'; SELECT snowflake_nextval()");
		push @to_end, $id if $status == 0;
		$error =~ /the layout is not the one that ids are issued under/ });
cmp_ok(scalar @to_end, '>', 0, 'an order while ids are issued: they go on');
is($node->safe_psql('postgres', "SELECT max(snowflake_timestamp(id)) < to_timestamp($until) FROM unnest('{" . join(',', @to_end) . "}'::bigint[]) AS id"), 't',
	'an order while ids are issued: to the end of the lease');
is($node->safe_psql('postgres', "SELECT extract(epoch FROM leased_until) FROM snowflake.worker_node WHERE token = '$token'"), $until,
	'an order while ids are issued: which stays');
push @ids, @to_end;
$greatest = $to_end[-1];
set_conf($node, 'snowflake.worker_id' => 1);
restart_with($earlier);
poll('ids', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
check_goes_on('an order while ids are issued, then a restart with the layout');

# A default that nobody set, as with a new postgresql.conf after pg_upgrade.
restart_with(undef);
check_refused('not set', refused_as($earlier, 'twitter'));
my ($line) = sql_error($node, 'SELECT snowflake_nextval()') =~ /HINT:  Set the layout of the node to '(timestamp.*?)'/;
restart_with($line);
check_goes_on('the layout of the hint');

# Another node of the registry has a lease, which ends after the longest window.
my $other = SnowflakeNode->new(9);
add_caller($node);
my $granted = $other->acquire($node, layout => $line);
is($granted->{answer}, 'yes', 'another node has a lease');
$node->safe_psql('postgres', "UPDATE snowflake.node_number SET leased_until = leased_until + '30 s', recorded_until = recorded_until + '30 s'
	WHERE token = '$granted->{token}'");
my $last = 'twitter, epoch 2010-11-03T00:42:54.657Z';
restart_with($last);
my $end = $node->safe_psql('postgres', "SELECT extract(epoch FROM leased_until) FROM snowflake.node_number WHERE token = '$granted->{token}'");
is($node->safe_psql('postgres', "SELECT snowflake.change_layout('${\ definition_of($last)}') < now() + interval '1 min'"), 't',
	'another node: ids of an epoch that is a day earlier are greater at once');
is(refusal($other->renew($node)) =~ /^(\w+: .*)$/m ? $1 : '', '55000: the layout is not the one that ids are issued under',
	'another node: its lease is not renewed');
is($node->safe_psql('postgres', "SELECT extract(epoch FROM leased_until) FROM snowflake.worker_node WHERE token = '$granted->{token}'"), $end,
	'another node: but it ends where it was to');
is($node->safe_psql('postgres', "SELECT snowflake_max_id(to_timestamp($end) - '1 ms'::interval, '$line') <= greatest_id FROM snowflake.cluster"), 't',
	'another node: its ids count among those that were allowed');
poll('ids', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
check_goes_on('the earlier epoch');
restart_with($line);
check_refused('back again', refused_as($last, $line));
like(sql_error($node, "SELECT snowflake.change_layout('$line')"), qr/^ERROR:  55000: ids of layout .* would not be greater/, 'back again: its ids are less');
restart_with($last);
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
restart_with($last, 'immediate');
check_refused('invalid extra layouts', qr/^ERROR:  55000: the server was started with an invalid snowflake.extra_layouts: "discord; /);
like(sql_error($node, "SELECT snowflake_nextval('discord')"), qr/^ERROR:  55000: the server was started with an invalid snowflake.extra_layouts/,
	'invalid extra layouts: none is in use');
set_conf($node, 'snowflake.extra_layouts' => undef);
restart_with($last, 'immediate');
check_goes_on('layouts that can be read again');

# To start over: another table knows nothing.
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
restart_with('discord');
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
