# 002_crash.pl
#	  Whatever ends while ids are issued, a session, the lease worker or the whole
#	  server, in whatever way: no id repeats, and none is less than any before, with
#	  the clock right and with the clock set back by an hour, when a fixed number
#	  refuses until it is right again.  A clean stop records the exact end, so that
#	  ids go on at the clock; after a kill they start at the end of the lease, which
#	  is never more than max_ahead, a tick and a second past the clock.
use FindBin;
use lib "$FindBin::RealBin/../perl";
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

# Issues ids while it happens; returns the files.
sub issue_through
{
	my ($node, $name) = @_;
	my $clients = start_clients($node);

	$clients->wait_for(500);
	$events{$name}{run}->($node);
	if ($events{$name}{goes_on})
	{
		$clients->wait_for(500);
	}
	else
	{
		poll("$name: sessions to be cut off", sub { $clients->errors =~ /connection|terminat/ });
	}
	my @files = $clients->stop;
	if ($events{$name}{goes_on})
	{
		is($clients->errors, '', "$name: sessions notice nothing");
	}
	else
	{
		like($clients->errors, qr/connection|terminat/, "$name: sessions are cut off");
	}
	return @files;
}

sub issue_a_few
{
	my ($node) = @_;
	my $clients = start_clients($node, count => 2);

	$clients->wait_for(500);
	return $clients->stop;
}

# With ids that run ahead of the clock.  The clock is an hour ahead, so that it can be
# set back without being behind the creation of the extension.  Leases may end that much later than it
# shows then.
my $node = new_node('main', limit => '2 h', conf => <<EOF);
snowflake.layout = '${\ NARROW}'
snowflake.clock_offset = '1h'
EOF
my @phases;
foreach my $name (sort keys %events)
{
	my $event = $events{$name};
	my $own = @phases;

	# With the clock right; a server that restarts its processes does that by itself.
	set_and_reload($node, 'restart_after_crash' => 'on');
	my $offset = log_end($node);
	push @phases, [ issue_through($node, $name) ];
	if ($event->{is_crash})
	{
		poll('restart after the crash', sub { log_since($node, $offset) =~ /server processes terminated; reinitializing/
			  && accepts_connections($node) });
	}
	elsif (!$event->{goes_on})
	{
		$node->start;
	}
	push @phases, [ issue_a_few($node) ];

	# With the clock an hour back.
	set_and_reload($node, 'restart_after_crash' => 'off');
	push @phases, [ issue_through($node, $name) ];
	if ($event->{goes_on})
	{
		set_clock($node, 0);
	}
	else
	{
		wait_for_end($node) if $event->{is_crash};
		set_conf($node, 'snowflake.clock_offset' => 0);
		$node->start;
		worker_pid($node);
	}
	poll('lease', sub { stat_of($node, 'state') ne 'starting' });
	is(stat_of($node, 'state'), 'waiting', "$name, an hour back: the view says that calls wait");
	like(sql_error($node, $refuse), qr/^ERROR:  55P03: .*\nDETAIL:  .*\nHINT:  .*the clock was set back/,
		"$name, an hour back: a call is refused");
	set_clock($node, HOUR);
	push @phases, [ issue_a_few($node) ];
}
check_phases('all events', @phases);
is($node->safe_psql('postgres', 'SELECT count(DISTINCT start) > 10, count(*) FILTER (WHERE closed_at IS NULL)
	FROM snowflake.worker_node'), 't|1', 'each start has a lease of its own, and the last one is open');
$node->stop;

# With the end of a lease far ahead of the clock, to tell it from the clock.  A stop has a second to close the
# lease; on a machine that is too busy for that, the ids of this number stay far ahead, and all is done again.
sub clock { return time + HOUR / 1000 }

# Whether the stop has closed the lease, which lowers its end to that of its ids.
sub stops_in_time
{
	my ($token, $until) = split /\|/, $node->safe_psql('postgres', 'SELECT token, leased_until FROM snowflake.node_number');

	$node->stop('fast');
	$node->start;
	return $node->safe_psql('postgres', "SELECT leased_until < '$until' FROM snowflake.worker_node WHERE token = '$token'") eq 't';
}

sub see_ends
{
	$node = new_node("end$_[0]", limit => '15 min', conf => "snowflake.clock_offset = '1h'\nsnowflake.max_ahead = '10min'\n");
	my ($old) = issue_ids($node, 1);
	poll('the clock to pass the first id', sub { clock() > id_time($old) + 0.1 });
	return 0 unless stops_in_time();
	my $before = clock();
	my ($clean) = issue_ids($node, 1);
	cmp_ok($clean, '>', $old, 'ids go on after a fast stop');
	cmp_ok(id_time($clean), '<', clock() + 0.001, 'after a fast stop they carry the time of the clock');
	cmp_ok(id_time($clean), '>=', $before - 0.001, 'and not an earlier one');

	my $until = $node->safe_psql('postgres', 'SELECT extract(epoch FROM leased_until) FROM pg_stat_snowflake');
	cmp_ok($until, '>', id_time($clean) + 300, 'the lease ends far ahead of the clock');
	cmp_ok($until, '<=', clock() + 601.002, 'but by no more than max_ahead, a tick and a second');
	crash($node);
	$node->start;
	my ($killed) = issue_ids($node, 1);
	cmp_ok(id_time($killed), '>=', $until - 0.001, 'after a kill ids start at the end of the lease');
	cmp_ok(id_time($killed), '<=', clock() + 600, 'but not more than max_ahead past the clock');

	# Ids that are ahead of the clock when the server stops: their end is exact, too.
	my @ahead = issue_ids($node, 10000, 1);
	my $last = $ahead[-1];
	cmp_ok(id_time($last), '>', clock(), 'ids are ahead of the clock');
	return 0 unless stops_in_time();
	my ($next) = issue_ids($node, 1);
	is(($next >> 22) - ($last >> 22), 1, 'after a fast stop they start in the tick after the last id');
	check_ids('ends of leases', write_ids($old, $clean, $killed, @ahead, $next));
	return 1;
}

my $try = 1;
until (see_ends($try))
{
	$node->stop('immediate');
	BAIL_OUT('no stop closes its lease') if $try++ == 10;
}
$node->stop;

done_testing();
