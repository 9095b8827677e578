# 042_writable_again.pl
#	  "Before a server becomes writable" in doc/operations.md: histories in which a registry's server
#	  becomes writable that does not know of leases, of numbers that it grants itself.  A backup that is restored
#	  twice; a switchover, and back before the former primary has received the new timeline; a restore to
#	  before the last switchover, along each of the two timelines; two promotions within the longest window.
#	  Where its timeline history shows it, the registry itself waits, says so, and no id repeats.  Where it
#	  does not, ids repeat without the wait of the page, so the test can fail; and a node that comes from the
#	  other server is told.  With the wait of the page none does.
#
# The nodes are programs that this test is itself, by doc/protocol.md.  The clocks of all servers and
# programs are that of the machine and an offset, so that a wait is a change of the offset.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeReadme;
use SnowflakeRegistry;
use JSON::PP ();
use Time::HiRes qw(time);

use constant LAYOUT => 'timestamp 41, worker 3, sequence 2, tick 10ms, epoch 2024-01-01T00:00:00Z';
use constant EPOCH => 1_704_067_200_000_000;
use constant TICK => 10_000;
use constant SECOND => 1_000_000;
# seven numbers: 7 is reserved
use constant { EVEN => '0,2,4,6', ODD => '1,3,5' };
# long, so that a slow machine does not outlast the leases
use constant LIMIT => 3600 * SECOND;
# what programs ask for: as long as a call may
use constant LONGEST => 172_800 * SECOND;

my $library = build_library('shift', slurp_file("$FindBin::RealBin/../torture/shift.c"));
my $shift_file = write_ids();
my $offset = 0;
my $json = JSON::PP->new->canonical;
my ($longest_window_sql) = map { $_->{text} } grep { $_->{kind} eq 'code' && $_->{text} =~ /AS longest_window/ }
  read_document("$FindBin::RealBin/../../doc/operations.md");

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

sub call
{
	my ($registry, $function, $program, %keys) = @_;
	my $call = $json->encode({ protocol => 1, start => $program->{start}, call => ++$program->{calls}, layout => LAYOUT, clock => clock(),
		max_ahead => SECOND, window => LONGEST, %keys });

	return $json->decode($registry->safe_psql('postgres', "SELECT snowflake.$function('$call')"));
}

# Asks for a lease as a new program.
sub ask
{
	my ($registry, %keys) = @_;
	my $program = { start => sprintf('%08x-0000-4000-8000-%012x', int rand 2**32, int rand 2**32), calls => 0 };

	$program->{answer} = call($registry, 'acquire_lease', $program, kind => 'program', name => 'p', host_name => 'h', launched_at => clock(),
		first_number => 0, last_number => 6, fixed => JSON::PP::false, lease => undef, uses => undef, ids_end_at => undef, starts_at => undef, %keys);
	return $program;
}

# A new lease; it goes on, whatever comes.
sub acquire
{
	my $program = ask(@_);
	my $answer = $program->{answer};

	die "$answer->{message}: $answer->{detail}" if $answer->{answer} ne 'yes';
	return $program;
}

# As many new programs as there are automatic numbers now, each with one.
sub all_numbers
{
	my ($label, $registry, $expected) = @_;
	my @programs = map { acquire($registry) } split /,/, $expected;

	is(join(',', sort map { $_->{answer}{node_number} } @programs), $expected, "$label: all numbers of its parity");
	return @programs;
}

sub renew
{
	my ($program, $registry) = @_;
	my $answer = $program->{answer};

	return call($registry, 'renew_lease', $program, lease => { granted_by => 1, map { $_ => $answer->{$_} } qw(token node_number incarnation generation leased_until) });
}

# The ids that a lease allows now: one in each tick from the clock to max_ahead past it.
sub ids_of
{
	my ($program) = @_;
	my ($number, $starts_at, $leased_until) = @{ $program->{answer} }{qw(node_number starts_at leased_until)};
	my $now = clock();
	my $first = ($now > $starts_at ? $now : $starts_at) - EPOCH;
	my @ids;

	for (my $tick = int(($first + TICK - 1) / TICK); ; $tick++)
	{
		last if EPOCH + $tick * TICK > $now + SECOND || EPOCH + ($tick + 1) * TICK > $leased_until;
		push @ids, $tick << 5 | $number << 2;
	}
	return @ids;
}

# Issues ids under both kinds of leases at the same time for some seconds.
sub equal_ids
{
	my ($lost, $new) = @_;
	my %count;

	for (1 .. 4)
	{
		$count{$_}++ foreach map { ids_of($_) } @$lost, @$new;
		wait_microseconds(2 * SECOND);
	}
	return scalar grep { $_ > 1 } values %count;
}

sub lives
{
	my (@programs) = @_;
	my $now = clock();

	return scalar grep { $_->{answer}{leased_until} > $now } @programs;
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

# A backup that is restored by recovery, and archives nothing.
sub restored
{
	my ($name, $from, %settings) = @_;
	my $server = PostgreSQL::Test::Cluster->new($name);

	$server->init_from_backup($from, 'backup', has_restoring => 1, standby => 0);
	$server->append_conf('postgresql.conf', "recovery_target_action = promote\narchive_mode = off\n");
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
		FROM unnest(snowflake.timeline_history(split_part(snowflake.this_server(), '/', 2))) AS e");
}

# The server knows of no lease of these, which go on: without a wait ids repeat.
sub check_repeats
{
	my ($label, $server, $history, $numbers, @lost) = @_;
	my $before = guards($server);

	is(history($server), $history, "$label: its history");
	cmp_ok(lives(@lost), '>', 0, "$label: leases that it does not know of go on");
	my @new = all_numbers($label, $server, $numbers);
	my $equal = equal_ids(\@lost, \@new);
	cmp_ok($equal, '>', 0, "$label: without the wait ids repeat: $equal");
	is(guards($server), $before, "$label: no guard has seen it");
	return @new;
}

# The same, but the registry's guard sees it: leases wait.
sub check_waits
{
	my ($label, $server, $history, @lost) = @_;

	is(history($server), $history, "$label: its history");
	cmp_ok(lives(@lost), '>', 0, "$label: leases that it does not know of go on");
	my $now = clock();
	my $answer = ask($server)->{answer};
	is("$answer->{answer} " . ($answer->{message} // ''), "refused the node's clock is behind the time that leases start at", "$label: leases wait");
	is(guards($server), 'wait 1', "$label: for monitoring");
	like(slurp_file($server->logfile), qr/WARNING:  01000: snowflake: leases of this registry start at \S+ \S+\n.* DETAIL:  New in its timeline history are \d+ entries: .*\n.* HINT:  .*[Ss]ee "[^"]+" in doc\/operations\.md/,
		"$label: the log says until when");
	cmp_ok($server->safe_psql('postgres', 'SELECT snowflake.microseconds(starts_at) FROM snowflake.registry'), '>=', $now + LIMIT + 10 * SECOND,
		"$label: for the longest window");
	return;
}

# After the wait nothing repeats.
sub check_distinct
{
	my ($label, $server, $numbers, @lost) = @_;

	is(lives(@lost), 0, "$label: the leases that it does not know of are over");
	my @new = all_numbers($label, $server, $numbers);
	is(equal_ids(\@lost, \@new), 0, "$label: after the wait no id repeats");
	return @new;
}

#
# A backup that is restored twice
#

wait_microseconds(0);
my $first = new_registry('a', init => [ allows_streaming => 1, has_archiving => 1 ], start => 0);
start($first);
$first->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry');
limit_leases($first, LIMIT / SECOND . ' s');
# the first lease decides the layout
acquire($first, window => SECOND);
$first->backup('backup');
my $second = new_standby('b', $first, 'backup');
start($second);
$first->safe_psql('postgres', 'SELECT pg_switch_wal()');
# as the document has it
my $longest_window = $first->safe_psql('postgres',
	'SELECT (extract(epoch FROM longest_window) * 1000000)::bigint FROM (' . ($longest_window_sql =~ s/;\s*\z//r) . ') AS w');
is($longest_window, LIMIT + 10 * SECOND, 'the longest window of the page');
my @immediate = (recovery_target_timeline => 'current', recovery_target => 'immediate');
my $r = restored('r1', $first, @immediate);
my @of_r = all_numbers('restored', $r, ODD);
$r->stop('fast');
$r = restored('r2', $first, @immediate);
push @of_r, check_repeats('restored twice', $r, '1', ODD, @of_r);
$r->stop('fast');
wait_microseconds($longest_window);
$r = restored('r3', $first, @immediate);
check_distinct('restored twice', $r, ODD, @of_r);
$r->stop('fast');

#
# A switchover: b has all of a.  It is a plain promotion, which waits for nothing.
#

$first->safe_psql('postgres', "SELECT pg_create_restore_point('before')");
my @of_a = all_numbers('a', $first, EVEN);
$first->wait_for_catchup($second, 'replay', $first->lsn('insert'));
$first->safe_psql('postgres', 'SELECT pg_switch_wal()');
$first->stop('fast');
$first->backup_fs_cold('cold');
$second->promote;
is($second->safe_psql('postgres', 'SELECT count(*) FROM snowflake.node_number WHERE leased_until > clock_timestamp()'), 4, 'the switchover has lost nothing');
my @of_b = all_numbers('switchover', $second, ODD);
is(guards($second), '', 'switchover: leases wait for nothing');
$second->safe_psql('postgres', 'SELECT pg_switch_wal()');
$second->stop('fast');

# Back to a, which has not received the new timeline.  A node of b that comes there shows it; its number is kept for it.
my $back = promoted_copy('back1', $first, 'cold');
my $answer = renew($of_b[0], $back);
is("$answer->{answer}, " . ($answer->{reason} // ''), 'no, rolled back', 'back, a node of the other server: no');
is(guards($back), 'rolled back 1', 'back, a node of the other server: for monitoring');
my $number = $of_b[0]{answer}{node_number};
like(slurp_file($back->logfile), qr/WARNING:  01000: snowflake: node number $number is leased until \S+ \S+, and the tables do not know of it\n.* DETAIL:  .* The role "\w+" says so\.\n.* HINT:  /,
	'back, a node of the other server: the log says which number, and who says so');
is(join(',', sort map { acquire($back)->{answer}{node_number} } 1, 2), join(',', grep { $_ != $number } split /,/, ODD),
	'back, a node of the other server: nobody else gets its number');
is(ask($back)->{answer}{sqlstate}, '53400', 'back, a node of the other server: while its ids go on');
$back->stop('fast');
$back = promoted_copy('back2', $first, 'cold');
check_repeats('back before the new timeline was received', $back, '1', ODD, @of_b);
$back->stop('fast');

# Restored to before the switchover
my @restored = (
	[ 'restored to before the switchover, current', '1', ODD, \@of_b, recovery_target_timeline => 'current' ],
	[ 'restored to before the switchover, latest', '1,2', EVEN, \@of_a, recovery_target_timeline => '2', recovery_target_name => 'before' ]);
foreach my $i (0, 1)
{
	my ($label, $history, $numbers, $lost, @settings) = @{ $restored[$i] };
	my $server = restored("restored$i", $first, @settings);

	check_waits($label, $server, $history, @$lost);
	push @{ $restored[$i] }, $server;
}
wait_microseconds($longest_window);
foreach my $case (@restored)
{
	my ($label, $history, $numbers, $lost) = @$case;
	my $server = $case->[-1];

	check_distinct($label, $server, $numbers, @$lost);
	is(guards($server), 'wait 1', "$label: it waits once");
	$server->stop('fast');
}
$back = promoted_copy('back3', $first, 'cold');
check_distinct('back before the new timeline was received', $back, ODD, @of_b);
$back->stop('fast');

#
# Two promotions.  The first one has lost leases; the second one waits for them.
#

my $one = promoted_copy('one', $first, 'cold');
acquire($one, window => SECOND);
$one->backup('of_one');
my $two = new_standby('two', $one, 'of_one');
$two->append_conf('postgresql.conf', "primary_conninfo = ''\n");
start($two);
wait_microseconds(2 * SECOND);
my @of_one = all_numbers('the first promotion', $one, ODD);
cmp_ok($_->{answer}{leased_until}, '<=', clock() + LIMIT, 'the first promotion: no lease ends later than the limit') foreach @of_one;
$two->promote;
is($two->safe_psql('postgres', 'SELECT count(*) FROM snowflake.node_number WHERE leased_until > clock_timestamp()'), 0, 'the first promotion has lost leases');
my $plain = ask($two)->{answer};
is("$plain->{answer} " . ($plain->{message} // ''), "refused the node's clock is behind the time that leases start at", 'the second promotion: leases wait');
is(guards($two), 'wait 1', 'the second promotion: for monitoring');
is($two->safe_psql('postgres', 'SELECT snowflake.microseconds(starts_at) FROM snowflake.registry')
	  - $one->safe_psql('postgres', 'SELECT snowflake.microseconds(counted_at) FROM snowflake.registry'), $longest_window,
	'the second promotion: until the longest window after the first one is over');
wait_microseconds($longest_window);
all_numbers('the second promotion', $two, EVEN);
$two->stop('fast');
$two->backup_fs_cold('of_two');

# The third one has the numbers of the first.  Its server has gone on, against the page.
is(lives(@of_one), 0, 'the third promotion: the lost leases are over');
my @of_one_later = all_numbers('the first promotion, later', $one, ODD);
$one->stop('fast');
my $three = promoted_copy('three1', $two, 'of_two');
check_repeats('the third promotion, the first primary was not stopped', $three, '1,2,3', ODD, @of_one_later);
$three->stop('fast');
wait_microseconds($longest_window);
$three = promoted_copy('three2', $two, 'of_two');
check_distinct('the third promotion', $three, ODD, @of_one, @of_one_later);
$three->stop('fast');

done_testing();
