# 020_registry_faults.pl
#	  Whatever happens to the registry, to a server that has a lease, or to a clock:
#	  ids go on until the end of the lease and then stop, errors say why, everything goes on
#	  by itself, and no id repeats.  The registry is down at the start, stopped, killed and
#	  frozen; a server is stopped while the registry is frozen; one is frozen while it issues
#	  ids, and goes on when another has its number; all numbers are leased and one more server
#	  comes; clocks are an hour off.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;
use SnowflakeStatement;
use Time::HiRes qw(time);

use constant HOUR => 3_600_000;
# Four automatic numbers: the even ones.
use constant FEW => 'timestamp 41, worker 3, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z';

my $unreachable = qr/ERROR:  55P03: could not reach the registry \S+\nDETAIL:  .+\nHINT:  Check snowflake\.registry, that server and the network\. Ids go on by themselves when it answers again\.$/m;

# Clocks are up to two hours ahead of its own.
my $registry = new_registry('registry', limit => '3 h');
my $address = name_of($registry);
my @files;

#
# Not there when a server starts
#
my ($one, $two) = map { new_member($_, conninfo_of($registry), start => 0, conf => "snowflake.max_wait = '1s'\nsnowflake.lease_duration = '6s'\n") } 'one', 'two';

$registry->stop;
$one->start;
$one->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my ($error, $seconds) = nextval_error_with_reason($one, '1s');
like($error, qr/^$unreachable/, 'registry down at the start: why there is no id');
like($error, qr/registry \Q$address\E\n/, 'registry down at the start: which registry');
ok($seconds > 0.9 && $seconds < 30, "registry down at the start: after max_wait ($seconds s)");
is(stat_of($one, "state, detail, node_number IS NULL"), "starting|could not reach the registry $address|t",
	'registry down at the start: view');
# \q: the server started meanwhile inherits the pipe that psql reads from
my $waiting = start_sql($one, "SET snowflake.max_wait = '60s'; SELECT snowflake_nextval();\n\\q");
waiting_pid($one);
$registry->start;
finish_sql($waiting);
is($waiting->{error}, '', 'registry comes up: a session that waited gets an id');
push @files, write_ids($waiting->{out});
$two->start;
$two->safe_psql('postgres', 'CREATE EXTENSION snowflake');

#
# Goes away while ids are issued
#
my %outages = (
	stopped => [ sub { $registry->stop('fast') }, sub { $registry->start } ],
	killed => [ sub { crash($registry) }, sub { $registry->start } ],
	frozen => [ sub { freeze($registry) }, sub { thaw($registry) } ]);

sub check_outage
{
	my ($name) = @_;
	my ($end, $begin) = @{ $outages{$name} };
	my @clients = map { start_clients($_, count => 2, sql => GENTLE) } $one, $two;
	my $failures = stat_of($one, 'lease_failures');

	$_->wait_for(500) foreach @clients;
	my @numbers = map { wait_for_number($_) } $one, $two;
	my $since = time;
	$end->();
	foreach my $node ($one, $two)
	{
		wait_for_state($node, 'expired');
		my $expected = "t|t|could not reach the registry $address";
		is(settle($expected, sub { stat_of($node, 'leased_until <= clock_timestamp(),
				snowflake_timestamp(last_id) < leased_until, detail') }),
			$expected, "registry $name: no id past the end of the lease of " . $node->name);
	}
	my ($error, $seconds) = nextval_error_with_reason($one, '500ms');
	like($error, qr/^$unreachable/, "registry $name: why there is no id");
	ok($seconds < 30, "registry $name: after max_wait ($seconds s)");
	ok(poll('failures', sub { stat_of($one, 'lease_failures') > $failures }), "registry $name: failures are counted");

	my $back = time;
	$begin->();
	$_->wait_for(500) foreach @clients;
	foreach my $i (0, 1)
	{
		my @own = $clients[$i]->stop;

		is(scalar(ids_after(\@own, $since + 1)) > scalar(ids_after(\@own, $since + 7)), 1,
			"registry $name: ids went on for a while");
		isnt(scalar(ids_after(\@own, $back)), 0, "registry $name: and again when it was back");
		is(join(',', sort keys %{ { map { id_node($_) => 1 } read_ids(@own) } }), $numbers[$i],
			"registry $name: with the same number");
		push @files, @own;
	}
	unlike($clients[0]->errors, qr/ERROR:  (?!55P03: (?:could not reach|no answer yet|gave up waiting for the lease))/, "registry $name: no other errors");
	is(settle('ready', sub { stat_of($one, 'state') }), 'ready', "registry $name: ready again");
}

my $offset = log_end($two);
my $start = time;
check_outage($_) foreach sort keys %outages;
my $log = log_since($two, $offset);
like($log, qr/WARNING:  55P03: snowflake: could not reach the registry \Q$address\E/, 'outages: the log says so');
cmp_ok(scalar(() = $log =~ /WARNING:  55P03: snowflake: could not reach/g), '<=', 3 + (time - $start) / 60, 'outages: once for each, and once a minute');
like($log, qr/snowflake: ready again/, 'outages: the log tells the end');

# Frozen while a server has no lease, and stops; while one has, and stops.
freeze($registry);
$start = time;
$one->stop('fast');
cmp_ok(time - $start, '<', 30, 'registry frozen: a server that has a lease stops');
$one->start;
my ($frozen_error) = nextval_error($one, '100ms');
like($frozen_error, qr/^ERROR:  55P03: /, 'registry frozen: no id');
$start = time;
$one->stop('fast');
cmp_ok(time - $start, '<', 30, 'registry frozen: a server that asks for a lease stops');
thaw($registry);
$one->start;
poll('ids', sub { sql_error($one, 'SELECT snowflake_nextval()') eq '' && sql_error($two, 'SELECT snowflake_nextval()') eq '' });
push @files, write_ids(issue_ids($one, 1000)), write_ids(issue_ids($two, 1000));
check_ids('outages of the registry', split_ids(12, 1023, @files));

#
# An hour ahead and an hour behind, while ids are issued
#
sub check_honest
{
	my ($label, $node, $ms) = @_;

	is($node->safe_psql('postgres', "SET snowflake.max_wait = '30s';
			SELECT snowflake_timestamp(snowflake_nextval()) - clock_timestamp() - '$ms ms'::interval
			BETWEEN '-1 min' AND '1.001 s'"), 't', "$label: ids carry the time of the clock of the server");
}

# The clock of the extension's creation is the earliest there can be, so all are ahead.
set_clock($_, HOUR) foreach $one, $two;
$_->safe_psql('postgres', 'SELECT pg_stat_snowflake_reset()') foreach $one, $two;
my @clients = map { start_clients($_, count => 2, sql => GENTLE) } $one, $two;
$_->wait_for(500) foreach @clients;
my $before = wait_for_number($two);
set_clock($one, 2 * HOUR);
set_clock($two, 0);
poll('another number', sub { stat_of($two, 'node_number') !~ /^($before)?$/ });
poll('id', sub { sql_error($two, 'SELECT snowflake_nextval()') eq '' });
check_honest('an hour ahead', $one, 2 * HOUR);
check_honest('an hour behind', $two, 0);
is(stat_of($two, 'worker_switches'), 1, 'an hour behind: one switch');
like(slurp_file($two->logfile), qr/snowflake: the clock is 3\d\d\d\.\d+ s behind the last id of node number $before; another one is taken/,
	'an hour behind: the log says so');
$_->wait_for(500) foreach @clients;
isnt(wait_for_number($one), wait_for_number($two), 'an hour apart: different numbers');
set_clock($one, 0);
poll('id', sub { sql_error($one, 'SELECT snowflake_nextval()') eq '' });
check_honest('the clock right again', $_, 0) foreach $one, $two;
$_->wait_for(500) foreach @clients;
my @clock_files = map { $_->stop } @clients;
my %by_number;
push @{ $by_number{ id_node($_) } }, $_ foreach read_ids(@clock_files);
is(keys %by_number, 4, 'clocks: four numbers were used');
check_ids('clocks', split_ids(12, 1023, @clock_files, @files));
$_->stop foreach $one, $two;

#
# Three numbers and four servers
#
# As if it were another one.
$registry->safe_psql('postgres', 'DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry');
my ($frozen, $stopped, $killed, $late) = map { new_member($_, conninfo_of($registry),
		conf => "snowflake.layout = '${\ FEW}'\nsnowflake.lease_duration = '8s'\n") } 'frozen', 'stopped', 'killed', 'late';
@files = ();
# The ids of the last number end later.
$registry->safe_psql('postgres', "INSERT INTO snowflake.node_number (node_number, ended_until) VALUES (6, now() + interval '1 h')");

sub end_of
{
	my ($node) = @_;

	return registry_row($registry, $node, 'extract(epoch FROM leased_until)');
}

sub issue_all
{
	push @files, write_ids(issue_ids($_, 200)) foreach @_;
}

my $clients = start_clients($frozen, count => 3, sql => GENTLE);
my $others = start_clients($killed, count => 2, sql => GENTLE);
issue_all($stopped);
$_->wait_for(500) foreach $clients, $others;
my %number = map { $_->name => wait_for_number($_) } $frozen, $stopped, $killed;
is(join(',', sort values %number), '0,2,4', 'three servers have the three numbers');

($error, $seconds) = nextval_error_with_reason($late, '1s');
like($error, qr/^ERROR:  53400: no node number is free\nDETAIL:  Of 4 numbers the earliest end is (\S+ \S+); the clock, .* shows (\S+ \S+)\.\nHINT:  /,
	'one more: error');
ok($seconds < 30, "one more: it need not wait for that ($seconds s)");
is(stat_of($late, 'state, detail'), 'refused|no node number is free', 'one more: view');
unlike(slurp_file($registry->logfile), qr/no node number is free/, 'one more: nothing for the log of the registry');
my ($earliest, $asked) = $error =~ /the earliest end is (\S+ \S+); the clock, .* shows (\S+ \S+)\.\n/;
ok($registry->safe_psql('postgres', "SELECT '$earliest'::timestamptz - '$asked' BETWEEN '1 us' AND '9 s'") eq 't',
	'one more: the end that it names is to come');

$stopped->stop('fast');
is(wait_for_number($late), $number{stopped}, 'one more: gets the number of the one that stops');
issue_all($late);

# Frozen, not renewed: its number is free for another one when its lease is over.
my $late_clients = start_clients($late, count => 2, sql => GENTLE);
freeze($frozen);
my $lease_end = end_of($frozen);
$stopped->start;
is(wait_for_number($stopped), $number{frozen}, 'a server takes the number of the frozen one');
cmp_ok(time, '>', $lease_end, 'but not before its end');
is($registry->safe_psql('postgres', "SELECT min(leased_until) = to_timestamp($lease_end), bool_and(closed_at IS NOT NULL)
		FROM snowflake.worker_node WHERE port = " . $frozen->port), 't|t', 'the row of the frozen one is closed where it ended');
my $taker = start_clients($stopped, count => 2, sql => GENTLE);
$taker->wait_for(500);

# It goes on while another one has its number.
$offset = log_end($frozen);
thaw($frozen);
poll('loss', sub { log_since($frozen, $offset) =~ /snowflake: the lease of node number $number{frozen} was closed by the registry/ });
pass('the frozen one goes on and finds its lease closed');
like((nextval_error_with_reason($frozen, '500ms'))[0], qr/^ERROR:  53400: no node number is free\n/, 'no number is left for it');
cmp_ok(stat_of($frozen, 'lease_failures'), '>=', 1, 'the loss is counted');
$taker->wait_for(500);

# Kill another one: its number is free when its lease is over.
crash($killed);
push @files, $others->stop;
$lease_end = end_of($killed);
is(wait_for_number($frozen), $number{killed}, 'the frozen one gets the number of one that is killed');
cmp_ok(time, '>', $lease_end, 'but not before its end');
is(stat_of($frozen, 'worker_switches'), 1, 'the switch is counted');
like(log_since($frozen, $offset), qr/snowflake: leased node number $number{killed} from \Q$address\E until /, 'and logged');
$_->wait_for(500) foreach $clients, $taker, $late_clients;
push @files, map { $_->stop } $clients, $taker, $late_clients;
unlike($clients->errors, qr/ERROR:  (?!53400|55P03)/, 'no other errors');
check_ids('three numbers, four servers', split_ids(12, 7, @files));
$_->stop foreach $frozen, $stopped, $late, $registry;

done_testing();
