# 002_crash.pl
#	  Whatever ends in the middle of drawing, a session, the lease worker or the whole
#	  server, in whatever way: no id repeats, and none is lower than any before, with
#	  the clock right and with the clock set back by an hour, when a fixed number
#	  refuses until it is right again.  A clean stop records the exact end, so that
#	  ids go on at the clock; after a kill they begin at the bound.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use Time::HiRes qw(time);

use constant HOUR => 3_600_000;

# What may happen, and whether the server itself lives on.
my %events = (
	'kill -9 of a session' => {
		run => sub {
			my ($node) = @_;
			kill_process($node->safe_psql('postgres', <<EOF), 9);
SELECT pid FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1
EOF
		},
		is_crash => 1
	},
	'kill -9 of the worker' => {
		run => sub { kill_process(worker_pid($_[0]), 9) },
		is_crash => 1
	},
	'kill -9 of the postmaster' => { run => sub { crash($_[0]) } },
	'immediate stop' => { run => sub { $_[0]->stop('immediate') } },
	'fast stop' => { run => sub { $_[0]->stop('fast') } },
	'termination of the worker' => {
		run => sub {
			my ($node) = @_;
			my $pid = worker_pid($node);
			$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
			poll('new worker', sub { worker_pid($node) != $pid });
		},
		goes_on => 1
	});

my $refuse = "SET snowflake.max_wait = '50ms'; SELECT snowflake_nextval()";

# Draws while it happens; returns the files.
sub draw_through
{
	my ($node, $name) = @_;
	my $drawers = start_drawers($node);

	$drawers->wait_for(500);
	$events{$name}{run}->($node);
	if ($events{$name}{goes_on})
	{
		$drawers->wait_for(500);
	}
	else
	{
		poll("$name: sessions to be cut off", sub { $drawers->errors =~ /connection|terminat/ });
	}
	my @files = $drawers->stop;
	if ($events{$name}{goes_on})
	{
		is($drawers->errors, '', "$name: sessions notice nothing");
	}
	else
	{
		like($drawers->errors, qr/connection|terminat/, "$name: sessions are cut off");
	}
	return @files;
}

sub draw_a_little
{
	my ($node) = @_;
	my $drawers = start_drawers($node, count => 2);

	$drawers->wait_for(500);
	return $drawers->stop;
}

# With ids that run ahead of the clock.
my $node = new_node('main', conf => "snowflake.layout = '${\ NARROW}'\n");
my @phases;
foreach my $name (sort keys %events)
{
	my $event = $events{$name};
	my $own = @phases;

	# With the clock right; a server that restarts its processes does that by itself.
	set_and_reload($node, 'restart_after_crash' => 'on');
	my $offset = log_end($node);
	push @phases, [ draw_through($node, $name) ];
	if ($event->{is_crash})
	{
		poll('restart after the crash', sub { log_since($node, $offset) =~ /server processes terminated; reinitializing/
			  && accepts_connections($node) });
	}
	elsif (!$event->{goes_on})
	{
		$node->start;
	}
	push @phases, [ draw_a_little($node) ];

	# With the clock an hour back.
	set_and_reload($node, 'restart_after_crash' => 'off');
	push @phases, [ draw_through($node, $name) ];
	if ($event->{goes_on})
	{
		set_clock($node, -HOUR);
	}
	else
	{
		wait_for_end($node) if $event->{is_crash};
		set_conf($node, 'snowflake.clock_offset' => '-1h');
		$node->start;
		worker_pid($node);
	}
	poll('lease', sub { stat_of($node, 'state') ne 'starting' });
	is(stat_of($node, 'state'), 'waiting', "$name, an hour back: the view says that draws wait");
	like(sql_error($node, $refuse), qr/^ERROR:  55P03: .*\nDETAIL:  .*\nHINT:  .*the clock was set back/,
		"$name, an hour back: a draw is refused");
	set_clock($node, 0);
	push @phases, [ draw_a_little($node) ];
}
check_phases('all events', @phases);
$node->stop;

# With a bound far ahead of the clock, to tell it from the clock.
$node = new_node('bound');
my ($old) = draw($node, 1);
poll('the clock to pass the first id', sub { time > id_time($old) + 0.1 });
$node->stop('fast');
set_conf($node, 'snowflake.max_ahead' => '10min');
$node->start;
my $before = time;
my ($clean) = draw($node, 1);
cmp_ok($clean, '>', $old, 'ids go on after a fast stop');
cmp_ok(id_time($clean), '<', time + 0.001, 'after a fast stop they carry the time of the clock');
cmp_ok(id_time($clean), '>=', $before - 0.001, 'and not an earlier one');

my $until = $node->safe_psql('postgres', 'SELECT extract(epoch FROM leased_until) FROM pg_stat_snowflake');
cmp_ok($until, '>', id_time($clean) + 300, 'the bound is far ahead');
crash($node);
$node->start;
my ($killed) = draw($node, 1);
cmp_ok(id_time($killed), '>=', $until - 0.001, 'after a kill they begin at the bound');
cmp_ok(id_time($killed), '<=', time + 600, 'but not more than max_ahead past the clock');

# Ids that run ahead of the clock when the server stops: their end is exact, too.
my @ahead = draw($node, 10000, 1);
my $last = $ahead[-1];
cmp_ok(id_time($last), '>', time, 'ids are ahead of the clock');
$node->stop('fast');
$node->start;
my ($next) = draw($node, 1);
is(($next >> 22) - ($last >> 22), 1, 'after a fast stop they begin in the tick behind the last id');
check_ids('ends and bounds', write_ids($old, $clean, $killed, @ahead, $next));
$node->stop;

done_testing();
