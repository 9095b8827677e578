# 036_no_ids_here.pl
#	  Servers that cannot issue ids at all say so at once, in the error and in the view, with
#	  what to change: in single-user mode, whatever the number is to come from; with a
#	  layout that is for parsing only; with a datacenter or a worker id that the layout has no
#	  room for.  Parsing works on each.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use IPC::Run ();

my $node = new_node('main');
$node->safe_psql('postgres', 'CREATE TABLE orders AS SELECT snowflake_nextval() AS id');
my $before = $node->safe_psql('postgres', 'SELECT id FROM orders');

#
# Single-user mode; each line of input is a statement
#
sub single_user
{
	my ($statement, @settings) = @_;
	my ($in, $out, $err) = ("$statement\n", '', '');
	my @command = ($node->installed_command('postgres'), '--single', '-D', $node->data_dir,
		(map { ('-c', $_) } @settings), 'postgres');

	IPC::Run::run(\@command, '<', \$in, '>', \$out, '2>', \$err, IPC::Run::timeout(180))
	  or die "single-user mode: $err";
	return ($out, $err);
}

$node->stop;
foreach my $setting ('snowflake.worker_id=1', 'snowflake.worker_id=auto', 'snowflake.registry=host=/nowhere')
{
	my ($out, $err) = single_user('SELECT snowflake_nextval()', $setting);

	like($err, qr/ERROR:  55000: no ids are issued in single-user mode\n.*DETAIL:  There is no lease worker.*HINT:  Start the server, and ask for ids there/s,
		"single-user mode, $setting: an error");
	unlike($out, qr/= "/, "single-user mode, $setting: no id");
	is(() = $err =~ /ERROR: /g, 1, "single-user mode, $setting: no other error");
}
my ($out) = single_user('SELECT snowflake_parse(id) FROM orders', 'snowflake.worker_id=auto');
like($out, qr/snowflake_parse = "\(.*,0,1,,\d+\)"/, 'single-user mode: parsing works');

#
# Layouts and numbers that do not go together
#
my $twitter = 'timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z';
foreach my $case (
	(map { [ { layout => $_ }, qq{the layout "$_" is for parsing only}, 'Ids are issued with a worker field and a tick of at most 1s',
				'Choose another snowflake.layout and restart the server' ] }
		'mastodon', 'timestamp 30, worker 10, sequence 16, tick 10s, epoch 2020-01-01T00:00:00Z'),
	[ { layout => NARROW, datacenter_id => 3 }, 'snowflake.datacenter_id 3 does not fit the layout',
		'snowflake.layout has no datacenter field', '' ],
	[ { layout => NARROW, datacenter_id => 3, worker_id => 'auto' }, 'snowflake.datacenter_id 3 does not fit the layout',
		'snowflake.layout has no datacenter field', '' ],
	[ { layout => $twitter, worker_id => 32 }, 'worker id 32 does not fit the layout', '.*31', '' ],
	[ { layout => $twitter, worker_id => 31, datacenter_id => 31 }, 'node number 1023 is reserved',
		'It is the greatest of the layout', '' ])
{
	my ($settings, $message, $detail, $hint) = @$case;
	my $label = join ', ', map { "$_ $settings->{$_}" } sort keys %$settings;

	set_conf($node, map { ("snowflake.$_" => $settings->{$_}) } 'layout', 'worker_id', 'datacenter_id');
	set_conf($node, 'snowflake.worker_id' => 1) unless defined $settings->{worker_id};
	$node->start;
	like(sql_error($node, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: \Q$message\E\nDETAIL:  $detail.*HINT:  $hint/s,
		"$label: refused");
	is(stat_of($node, 'state'), 'refused', "$label: so does the view say");
	is($node->safe_psql('postgres', "SELECT (p).worker_id FROM (SELECT snowflake_parse($before, 'twitter')) AS t(p)"), 1,
		"$label: parsing works");
	$node->stop;
}

# And back: ids go on.
set_conf($node, 'snowflake.layout' => undef, 'snowflake.datacenter_id' => undef, 'snowflake.worker_id' => 1);
$node->start;
cmp_ok((issue_ids($node, 1))[0], '>', $before, 'with what they were, ids go on');
$node->stop;

# A registry that is not there: its address is not for everybody.
set_conf($node, 'snowflake.registry' => 'host=/nowhere', 'snowflake.worker_id' => 'auto');
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE plain');
sub reason
{
	my ($begin) = @_;

	return poll('the reason', sub {
			my $error = sql_error($node, "$begin SET snowflake.max_wait = '100ms'; SELECT snowflake_nextval()");
			$error !~ /gave up waiting|no answer yet/ && $error });
}
like(reason(''), qr/^ERROR:  55P03: could not reach the registry \/nowhere:/, 'a registry that is not there: an error has its address');
like(reason('SET ROLE plain;'), qr/^ERROR:  55P03: could not get a node number from the registry\nDETAIL:  Members of pg_read_all_stats can see the reason\.\n/,
	'a registry that is not there: not for an ordinary role');
$node->stop;

done_testing();
