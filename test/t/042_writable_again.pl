# 042_writable_again.pl
#	  "Before a server becomes writable" in doc/operations.md: histories in which a registry's server
#	  becomes writable that does not know of leases, of numbers that it grants itself.  A switchover, and
#	  back before the former primary has received the new timeline; a restore to before the last
#	  switchover, along each of the two timelines; a backup that is restored twice; two promotions, and nodes
#	  whose max_ahead is longer than their lease_duration.  Each without the wait of the page: ids
#	  repeat, so the test can fail.  And with the wait that the page's formula gives: none does.
#
# The nodes are programs that this test is itself, by doc/protocol.md.  The clocks of all servers and
# programs are that of the machine and an offset, so that a wait is a change of the offset.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;
use Time::HiRes qw(time);

use constant LAYOUT => 'timestamp 41, worker 3, sequence 2, tick 10ms, epoch 2024-01-01T00:00:00Z';
use constant EPOCH => 1_704_067_200_000_000;
use constant TICK => 10_000;
use constant RESERVE => 1_000_000;
use constant SECOND => 1_000_000;
# seven numbers: 7 is reserved
use constant { EVEN => '0,2,4,6', ODD => '1,3,5' };

my $library = build_library('shift', slurp_file("$FindBin::RealBin/../torture/shift.c"));
my $shift_file = write_ids();
my $offset = 0;

sub clock
{
	return int(time() * SECOND) + $offset;
}

sub wait_microseconds
{
	$offset += $_[0];
	open my $file, '+<', $shift_file or die "$shift_file: $!";
	syswrite $file, pack('q', $offset * 1000);
	close $file or die "$shift_file: $!";
	return;
}

sub start
{
	my ($server) = @_;

	start_with($server, $library, SHIFT_FILE => $shift_file);
	return $server;
}

#
# Programs
#

sub new_program
{
	my (%settings) = @_;
	my $start = sprintf '%08x-0000-4000-8000-%012x', int rand 2**32, int rand 2**32;

	return { %settings, start => $start, calls => 0 };
}

sub longer
{
	my ($one, $other) = @_;

	return $one > $other ? $one : $other;
}

# The window of a lease, as a server asks for it (full_window() in src/lease/machine.c).
sub window
{
	my ($program) = @_;

	return longer($program->{lease_duration}, $program->{max_ahead} + TICK + RESERVE);
}

# The longest window, as doc/operations.md has it.
sub longest_window
{
	my ($wait) = sort { $b <=> $a } map { $_->{max_ahead} + TICK + longer($_->{lease_duration}, $_->{max_ahead} + TICK + SECOND) + 10 * SECOND } @_;

	return $wait;
}

# A new lease; the one before is kept by nobody, and goes on: another process has it.
sub acquire
{
	my ($program, $registry) = @_;
	my $clock = clock();

	$program->{calls}++;
	my $call = <<"EOS";
{"protocol": 1, "start": "$program->{start}", "call": $program->{calls}, "kind": "program", "name": "p", "host_name": "h",
 "launched_at": $clock, "clock": $clock, "max_ahead": $program->{max_ahead}, "tick": @{[ TICK ]}, "window": @{[ window($program) ]},
 "first_number": 0, "last_number": 6, "fixed": false, "layout_set": true, "lease": null, "uses": null, "ended": null, "starts_at": null,
 "layout": {"definition": "@{[ LAYOUT ]}", "epoch": @{[ EPOCH ]}, "tick": @{[ TICK ]}, "fields": [["timestamp", 41], ["worker", 3], ["sequence", 2]]}}
EOS
	my $answer = $registry->safe_psql('postgres', "SELECT concat_ws(' ', a ->> 'node_number', a ->> 'starts_at', a ->> 'leased_until')
		FROM snowflake.acquire_lease('$call') AS a");
	my ($number, $starts_at, $leased_until) = split / /, $answer;

	return { number => $number, starts_at => $starts_at, leased_until => $leased_until, max_ahead => $program->{max_ahead}, clock => $clock };
}

# As many new programs as there are automatic numbers now, each with one.
sub all_numbers
{
	my ($registry, $expected, %settings) = @_;
	my @leases = map { acquire(new_program(%settings), $registry) } split /,/, $expected;

	is(join(',', sort map { $_->{number} } @leases), $expected, $registry->name . ': all numbers of its parity');
	return @leases;
}

# The ids that a lease allows now: one in each tick from the clock to max_ahead past it.
sub ids_of
{
	my ($lease) = @_;
	my $now = clock();
	my $first = longer($now, $lease->{starts_at}) - EPOCH;
	my @ids;

	for (my $tick = int(($first + TICK - 1) / TICK); ; $tick++)
	{
		last if EPOCH + $tick * TICK > $now + $lease->{max_ahead} || EPOCH + ($tick + 1) * TICK > $lease->{leased_until};
		push @ids, $tick << 5 | $lease->{number} << 2;
	}
	return @ids;
}

# Issues ids under both kinds of leases at the same time, again and again until the lost ones are over.
sub equal_ids
{
	my ($lost, $new) = @_;
	my %count;
	my $step = 2 * SECOND;

	for (1 .. 4)
	{
		$count{$_}++ foreach map { ids_of($_) } @$lost, @$new;
		wait_microseconds($step);
	}
	return scalar grep { $_ > 1 } values %count;
}

sub lives
{
	my (@leases) = @_;
	my $now = clock();

	return scalar grep { $_->{leased_until} > $now } @leases;
}

#
# Servers
#

sub new_standby
{
	my ($name, $from, $backup, %options) = @_;
	my $server = PostgreSQL::Test::Cluster->new($name);

	$server->init_from_backup($from, $backup, has_streaming => 1, %options);
	return $server;
}

# A cold copy of a server is a standby that receives nothing, and is promoted.
sub promoted_copy
{
	my ($name, $from, $backup) = @_;
	my $server = new_standby($name, $from, $backup);

	$server->append_conf('postgresql.conf', "primary_conninfo = ''\n");
	start($server);
	$server->promote;
	return $server;
}

# A backup that is restored by recovery.
sub restored
{
	my ($name, $from, %settings) = @_;
	my $server = PostgreSQL::Test::Cluster->new($name);

	$server->init_from_backup($from, 'backup', has_restoring => 1, standby => 0);
	$server->append_conf('postgresql.conf', "recovery_target_action = promote\n");
	$server->append_conf('postgresql.conf', "$_ = '$settings{$_}'\n") foreach sort keys %settings;
	start($server);
	poll('the end of recovery', sub { $server->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 'f' });
	return $server;
}

# The history of a server's timeline.
sub history
{
	my ($server) = @_;

	return $server->safe_psql('postgres', "SELECT string_agg(split_part(e, '/', 1), ',' ORDER BY split_part(e, '/', 1)::int)
		FROM unnest(snowflake.timeline_history()) AS e");
}

#
# Nodes whose leases are long: an hour.
#

wait_microseconds(0);
my %long = (lease_duration => 3600 * SECOND, max_ahead => SECOND);
my $first = new_registry('a', init => [ allows_streaming => 1, has_archiving => 1 ], start => 0);
start($first);
$first->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry');
$first->backup('backup');
my $second = new_standby('b', $first, 'backup');
start($second);
# the first lease decides the layout
acquire(new_program(%long, lease_duration => SECOND), $first);
wait_microseconds(10 * SECOND);
$first->safe_psql('postgres', "SELECT pg_create_restore_point('before')");
my @of_a = all_numbers($first, EVEN, %long);

# A switchover: b has all of a.
$first->wait_for_catchup($second, 'replay', $first->lsn('insert'));
$first->safe_psql('postgres', 'SELECT pg_switch_wal()');
$first->stop('fast');
$first->backup_fs_cold('cold');
$second->promote;
is($second->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE closed_at IS NULL'), 4, 'the switchover has lost nothing');
my @of_b = all_numbers($second, ODD, %long);
$second->safe_psql('postgres', 'SELECT pg_switch_wal()');
$second->stop('fast');

# The backup is restored, and is lost.
my $r = restored('r', $first, recovery_target_timeline => 'current', recovery_target => 'immediate');
my @of_r = all_numbers($r, ODD, %long);
$r->stop('fast');

# What becomes writable next: how, its history, its numbers, and the leases that it does not know of.
my @becoming = (
	[ 'back before the new timeline was received', sub { promoted_copy($_[0], $first, 'cold') }, '1', ODD, \@of_b ],
	[ 'restored to before the switchover, current', sub { restored($_[0], $first, recovery_target_timeline => 'current') }, '1', ODD, \@of_b ],
	[ 'restored to before the switchover, latest', sub { restored($_[0], $first, recovery_target_timeline => '2', recovery_target_name => 'before') }, '1,2', EVEN, \@of_a ],
	[ 'restored twice', sub { restored($_[0], $first, recovery_target_timeline => 'current', recovery_target => 'immediate') }, '1', ODD, \@of_r ]);

# Without the wait, and with it.
sub become
{
	my ($repeated, $label, $name) = @_;

	foreach my $i (0 .. $#becoming)
	{
		my ($how, $make, $history, $numbers, $lost) = @{ $becoming[$i] };
		my $server = $make->("$name$i");

		is(history($server), $history, "$label, $how: its history");
		is(lives(@$lost) > 0 ? 1 : 0, $repeated, "$label, $how: leases that it does not know of go on, or not");
		my @new = all_numbers($server, $numbers, %long);
		my $equal = equal_ids($lost, \@new);
		is($equal > 0 ? 1 : 0, $repeated, "$label, $how: equal ids: $equal");
		$server->stop('fast');
	}
	return;
}

become(1, 'no wait', 'early');
wait_microseconds(longest_window(\%long));
become(0, 'the longest window', 'late');

#
# Two promotions.  The first one has lost leases of nodes whose max_ahead is longer than their lease_duration.
#

my %ahead = (lease_duration => 60 * SECOND, max_ahead => 600 * SECOND);
my $one = promoted_copy('one', $first, 'cold');
$one->backup('of_one');
my $two = new_standby('two', $one, 'of_one');
$two->append_conf('postgresql.conf', "primary_conninfo = ''\n");
start($two);
my @of_one = all_numbers($one, ODD, %ahead);
my $counted_at = $one->safe_psql('postgres', 'SELECT snowflake.microseconds(counted_at) FROM snowflake.registry');
is((sort { $b <=> $a } map { $_->{leased_until} } @of_one)[0] - $counted_at, longest_window(\%ahead) - 10 * SECOND,
	'a lease ends as late as the longest window allows');
$two->promote;
is($two->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE generation = 2'), 0, 'the first promotion has lost leases');
# it counts
all_numbers($two, EVEN, %long);
$two->stop('fast');
$two->backup_fs_cold('of_two');
$one->stop('fast');

sub become_third
{
	my ($repeated, $label, $name) = @_;
	my $three = promoted_copy($name, $two, 'of_two');

	my @new = all_numbers($three, ODD, %long);
	my $equal = equal_ids(\@of_one, \@new);
	is($equal > 0 ? 1 : 0, $repeated, "$label: equal ids: $equal");
	$three->stop('fast');
	return;
}

wait_microseconds($ahead{lease_duration});
become_third(1, 'two promotions, and the wait is lease_duration', 'early4');
wait_microseconds(longest_window(\%ahead));
become_third(0, 'two promotions, and the wait is the longest window', 'late4');

done_testing();
