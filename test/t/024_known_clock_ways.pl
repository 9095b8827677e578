# 024_known_clock_ways.pl
#	  The second half of 023_known_ways.pl, where the table of all ways is: those in which
#	  other generators lost their ids to the clock, to a restart, or to the edge of what
#	  they may issue.
#
#	  A library shows the servers a clock that stands still until the test sets it, so
#	  each id is known beforehand, to the last bit.  The first sequence of a tick is 0: a
#	  generator that forgets what it issued in a tick issues the same again.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeStatement;

use Fcntl;
use List::Util 'max';
use Time::HiRes qw(time usleep);

use constant SECOND => 1_000_000;	# microseconds, as all times here
use constant NARROW_EPOCH => 1_704_067_200 * SECOND;

my $library = build_library('still_clock', <<'EOF');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* A file of eight bytes has the wall clock, microseconds since 1970. */
static const volatile int64_t *
still_clock(void)
{
	static void *clock = NULL;

	if (clock == NULL)
	{
		int			fd = open(getenv("STILL_CLOCK"), O_RDONLY);

		clock = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
		if (clock == MAP_FAILED)
			abort();
		close(fd);
	}
	return clock;
}

int
clock_gettime(clockid_t id, struct timespec *ts)
{
	static int	(*real) (clockid_t, struct timespec *) = NULL;
	int64_t		now;

	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
	{
		if (real == NULL)
			real = (int (*) (clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
		return real(id, ts);
	}
	now = *still_clock();
	ts->tv_sec = now / 1000000;
	ts->tv_nsec = now % 1000000 * 1000;
	return 0;
}
EOF

#
# The clock
#
my $clock_file = PostgreSQL::Test::Utils::tempdir('clock') . '/now';
my $start = int(time) * SECOND;
my $now;

sub set_time
{
	($now) = @_;
	sysopen my $file, $clock_file, O_WRONLY | O_CREAT or die "$clock_file: $!";
	syswrite($file, pack 'q', $now) == 8 or die "$clock_file: $!";
	close $file;
}

#
# The server, a session that never waits, and what comes next
#
my $node = new_node('main', start => 0, conf => <<EOF);
snowflake.layout = '${\ NARROW}'
snowflake.sequence_start = 'zero'
snowflake.max_ahead = '1s'
EOF
my ($session, $last);
my @ids;

sub start_node
{
	my ($node) = @_;

	start_with($node, $library, STILL_CLOCK => $clock_file);
}

# Waits until the lease is open, without issuing an id: for the first lease of a cluster one is
# asked for.
sub open_session
{
	my ($node) = @_;

	$node->psql('postgres', 'SET snowflake.max_wait = 0; SELECT snowflake_nextval()')
	  if $node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.cluster') eq '0';
	poll('lease', sub { stat_of($node, 'state') !~ /^(starting|expired)$/ });
	$session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_safe('SET snowflake.max_wait = 0');
	$session->query_safe('SET client_min_messages = error');
}

sub restart_with
{
	my ($end, %settings) = @_;

	$session->quit if $end eq 'fast';
	$end eq 'crash' ? crash($node) : $node->stop($end);
	set_conf($node, %settings) if %settings;
	start_node($node);
	open_session($node);
}

# Returns the ids, and leaves the error behind.
sub next_now
{
	my ($call) = (@_, 'snowflake_nextval()');
	my $out = scalar($session->query("SELECT $call")) // '';
	my @new = grep { /^\d+\z/ } split /\n/, $out;

	push @ids, @new;
	$last = $new[-1] if @new;
	return wantarray ? @new : $new[0];
}

sub error_of_call
{
	my ($call) = (@_, 'snowflake_nextval()');

	$session->{stderr} = '';
	my @new = next_now($call);
	my $error = $session->{stderr};
	$session->{stderr} = '';
	return @new ? "ids @new" : $error;
}

sub tick_of { return $_[0] >> 14 }
sub tick_at { return int(($_[0] - NARROW_EPOCH) / 1000) }
sub begin_of { return NARROW_EPOCH + 1000 * tick_of($_[0]) }
sub id_at { return $_[0] << 14 | 1 << 4 | $_[1] }

# The N-th id after another one, while the clock has not passed it.
sub after
{
	my ($id, $n) = (@_, 1);
	my $count = tick_of($id) * 16 + ($id & 15) + $n;

	return id_at($count >> 4, $count & 15);
}

# What a call must return.
sub expected
{
	my $next = after($last);

	return tick_at($now) > tick_of($next) ? id_at(tick_at($now), 0) : $next;
}

sub gives_expected
{
	my ($label, $n) = (@_, 3);
	my @wrong;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $i (1 .. $n)
	{
		my $expected = expected();
		my $id = next_now() // 'nothing';

		push @wrong, "$id instead of $expected" if $id ne $expected;
	}
	is("@wrong", '', "$label: the next ids, and no others");
}

# Long lists; the first difference is enough to see.
sub same_ids
{
	my ($got, $expected, $label) = @_;
	my ($i) = grep { ($got->[$_] // 'nothing') ne ($expected->[$_] // 'nothing') } 0 .. max($#$got, $#$expected);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(defined $i ? "number $i: " . ($got->[$i] // 'nothing') : 'all', defined $i ? $expected->[$i] // 'nothing' : 'all', $label);
}

# Time goes on, and the lease with it, as far as ids may be ahead and some more; the first
# id is then the first one of a tick.
sub go_on
{
	my ($seconds) = @_;

	set_time($now + $seconds * SECOND);
	poll('lease', sub {
			error_of_call();
			return $node->safe_psql('postgres', <<SQL) eq 't' });
SELECT leased_until > to_timestamp($now / 1e6) + current_setting('snowflake.max_ahead')::interval + '400 ms'
FROM pg_stat_snowflake
SQL
	set_time($now + 2000);
}

sub refuses
{
	my ($label, $call) = (@_, 'snowflake_nextval()');

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like(error_of_call($call), qr/ERROR:  the next id would be [\d.]+ s ahead of the clock/, "$label: refused");
}

set_time($start);
start_node($node);
$node->safe_psql('postgres', <<'EOF');
CREATE EXTENSION snowflake_registry;
CREATE EXTENSION snowflake;

-- Issues ids again and again, whatever happens; returns how many ids there were, and the
-- conditions of all errors.
CREATE FUNCTION issue_stubbornly(tries int) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		issued int := 0;
		codes text[] := '{}';
	BEGIN
		FOR i IN 1 .. tries LOOP
			BEGIN
				IF i % 2 = 0 THEN
					PERFORM snowflake_nextval();
				ELSE
					PERFORM snowflake_nextval_batch(3);
				END IF;
				issued := issued + 1;
			EXCEPTION WHEN OTHERS THEN
				codes := codes || sqlstate::text;
			END;
		END LOOP;
		RETURN issued || ' ' || (SELECT coalesce(string_agg(DISTINCT c, ','), 'none') FROM unnest(codes) c);
	END $$;
EOF
# At the end the clock is an hour behind the ids.
limit_leases($node, '2 h');
# Not before the first ids of a new extension, and early enough to go back.
set_time($start + 7200 * SECOND);
open_session($node);
poll('lease', sub { error_of_call() =~ /^ids/ });
set_time($now + 2000);
next_now();
is($last, id_at(tick_at($now), 0), 'the first id is that of the clock');
gives_expected('the clock stands still', 40);

#
# 1. Others set the sequence back to 0 for the "new" tick, and saw only then that the
# clock was behind; at the next attempt it was 0 still.
#
set_time($now + 50_000);
gives_expected('1, sequence reset too early: before');
my $in_tick = $now;
set_time($in_tick - 5000);
gives_expected('1, sequence reset too early: 5 ms back');
set_time($in_tick - 2 * SECOND);
refuses("1, sequence reset too early: two seconds back, attempt $_") foreach 1 .. 3;
refuses('1, sequence reset too early: two seconds back, a batch', 'snowflake_nextval_batch(5)');
set_time($in_tick - 5000);
gives_expected('1, sequence reset too early: 5 ms back again');
set_time($in_tick);
gives_expected('1, sequence reset too early: in the first tick again');

#
# 16. Others read the wall clock once, and added what the monotonic clock said; their
# ids went astray from the time as the wall clock was corrected.
#
my @astray;
foreach my $step ((1000, 1, 999, -3000, 2000, 2500, 0, -500, 500, 400, 7000, -1) x 15)
{
	set_time($now + $step);
	my $expected = expected();
	my $id = next_now() // 'nothing';

	push @astray, "$id instead of $expected" if $id ne $expected;
}
is(scalar(@astray), 0, '16, monotonic clock: each id carries what the wall clock says, forward and back')
  or diag(join "\n", @astray);
usleep(100_000);
gives_expected('16, monotonic clock: time that only that clock sees does not count', 20);

#
# 14. Others waited for the clock as long as it was behind when they looked first, and
# did not look again.
#
sub wait_for_clock
{
	my ($max_wait) = @_;
	my $wait = start_sql($node, "SET snowflake.max_wait = '$max_wait'; SELECT snowflake_nextval();");

	waiting_pid($node);
	return $wait;
}

set_time($now + 100_000);
next_now();
my $end = begin_of($last);
set_time($end - 1_300_000);			# 0.3 s too far
my $wait = wait_for_clock('5s');
set_time($end - 10_000_000);
finish_sql($wait);
is($wait->{out}, '', '14, wait not checked again: set back meanwhile, no id');
is($wait->{code}, '55P03', '14, wait not checked again: but an error');
refuses('14, wait not checked again: and later');

set_time($end - 1_300_000);
$wait = wait_for_clock('60s');
foreach my $back (1_700_000, 1_400_000, 1_001_000)
{
	set_time($end - $back);
	usleep(450_000);				# not to wait for anything: it may look again meanwhile
	$wait->{run}->pump_nb;
	is($wait->{out}, '', "14, wait not checked again: $back us back, it goes on waiting");
}
set_time($end - 1_000_000);
finish_sql($wait);
is($wait->{out}, after($last), '14, wait not checked again: the clock is close enough, the next id');
push @ids, $last = $wait->{out};

#
# 8. Others let the check fall when it raised an error: a handler caught it, and the next
# attempt found nothing to stop it.
#
set_time($now + 2 * SECOND);
gives_expected('8, check lost in a handler: before');
my $before_errors = $now;
set_time($now - 3 * SECOND);
$session->query_safe('BEGIN');
is($session->query_safe('SELECT issue_stubbornly(200)'), '0 55P03', '8, check lost in a handler: clock behind, no attempt succeeds');
$session->query_safe("SET LOCAL snowflake.max_wait = '10ms'");
set_time($before_errors - 1_005_000);
is($session->query_safe('SELECT issue_stubbornly(20)'), '0 55P03', '8, check lost in a handler: nor one that waits first');
set_time($before_errors);
gives_expected('8, check lost in a handler: the same transaction, clock right');
set_time($now - 3 * SECOND);
is($session->query_safe('SELECT issue_stubbornly(20)'), '0 55P03', '8, check lost in a handler: and behind again');
$session->query_safe('ROLLBACK');
set_time($before_errors);
gives_expected('8, check lost in a handler: after the transaction');

# The lease cannot be renewed, and the clock is past its end.
$node->safe_psql('postgres', 'ALTER TABLE snowflake.node_number ADD CONSTRAINT obstacle CHECK (false) NOT VALID');
poll('the end that is in the table', sub { stat_of($node, 'leased_until = (SELECT leased_until FROM snowflake.node_number)') eq 't' });
my $end_of_lease = $node->safe_psql('postgres', 'SELECT extract(epoch FROM leased_until) FROM pg_stat_snowflake');
my $failures = stat_of($node, 'lease_failures');
set_time($end_of_lease * SECOND + 1000);
$session->query_safe('BEGIN');
$session->query_safe("SET LOCAL snowflake.max_wait = '20ms'");
my $results = join ';', map { $session->query_safe('SELECT issue_stubbornly(10)') } 1 .. 5;
like($results, qr/^(0 55P03;?){5}$/, '8, check lost in a handler: the end of the lease cannot be raised, no attempt succeeds');
poll('more failures', sub { stat_of($node, "lease_failures > $failures + 2") eq 't' });
like($session->query_safe('SELECT issue_stubbornly(100)'), qr/^0 55P03$/,
	'8, check lost in a handler: nor when that has failed several times in a row');
is($node->safe_psql('postgres', 'SELECT state, leased_until = to_timestamp(' . $end_of_lease . ') FROM pg_stat_snowflake'), 'expired|t',
	'8, check lost in a handler: and the view says so');
like(sql_error($node, 'SET snowflake.max_wait = 0; SELECT snowflake_nextval()'), qr/^ERROR:  55P03: .*violates check constraint "obstacle"/,
	'8, check lost in a handler: the error says why');
like(slurp_file($node->logfile), qr/WARNING:  23514: snowflake: .*violates check constraint "obstacle"/, '8, check lost in a handler: so does the log');
$node->safe_psql('postgres', 'ALTER TABLE snowflake.node_number DROP CONSTRAINT obstacle');
poll('ids', sub { $session->query_safe('SELECT issue_stubbornly(1)') eq '1 none' });
$last = id_at(tick_at($now), 2);	# a batch of three
gives_expected('8, check lost in a handler: the same transaction, the end raised');
$session->query_safe('COMMIT');
poll('the log', sub { slurp_file($node->logfile) =~ /LOG:  00000: snowflake: ready again/ });

#
# 12. Others checked whether a batch's first id was allowed, not its last.
#
# Ids may be 100 ms ahead: the tick of the clock and a hundred more.
set_and_reload($node, 'snowflake.max_ahead' => '100ms');
poll('max_ahead', sub { error_of_call('snowflake_nextval_batch(1601)') =~ /batch of 1601 ids is too large/ });
foreach my $rest (15, 16, 17)
{
	go_on(1);
	my @batch = next_now('snowflake_nextval_batch(1600)');
	my $first = id_at(tick_at($now), 0);

	same_ids(\@batch, [ map { after($first, $_) } 0 .. 1599 ], "12, edge of a batch: 1600 ids, $rest to come");
	like(error_of_call('snowflake_nextval_batch(1601)'), qr/ERROR:  batch of 1601 ids is too large.*HINT:  Ask for at most 1600/s,
		'12, edge of a batch: 1601 are too many');
	if ($rest > 16)
	{
		refuses('12, edge of a batch: one more than max_ahead allows', 'snowflake_nextval_batch(17)');
	}
	else
	{
		is(scalar(next_now("snowflake_nextval_batch($rest)")), after($first, 1600), "12, edge of a batch: $rest fit");
		gives_expected('12, edge of a batch: the last one', 1) if $rest == 15;
		is(begin_of($last), $now + 100_000, '12, edge of a batch: no further than max_ahead');
	}
	refuses("12, edge of a batch: $rest, and one id more");
}

# The lease worker sleeps, and the end of the lease is ten ticks ahead.
sub stop_worker
{
	my $pid = worker_pid($node);

	kill 'STOP', $pid or die "kill: $!";
	poll('worker to stop', sub { slurp_file("/proc/$pid/stat") =~ /\) T / });
	return $pid;
}

foreach my $n (159, 160, 161)
{
	go_on(1);
	my $pid = stop_worker();
	my $limit = tick_at(SECOND * $node->safe_psql('postgres', 'SELECT extract(epoch FROM leased_until) FROM pg_stat_snowflake'));
	my $first = id_at($limit - 10, 0);
	my $gave_up = qr/ERROR:  gave up waiting for the lease to be extended/;

	set_time(begin_of($first));
	if ($n > 160)
	{
		like(error_of_call("snowflake_nextval_batch($n)"), $gave_up, '12, edge of a lease: one id more than it covers');
		is(stat_of($node, 'last_id'), after($first, 159), '12, edge of a lease: the last id ends with the lease');
	}
	else
	{
		my @batch = next_now("snowflake_nextval_batch($n)");
		same_ids(\@batch, [ map { after($first, $_) } 0 .. $n - 1 ], "12, edge of a lease: $n ids");
		gives_expected('12, edge of a lease: the last one', 1) if $n == 159;
		is($last, id_at($limit - 1, 15), '12, edge of a lease: up to the last id that the lease covers');
	}
	like(error_of_call(), $gave_up, "12, edge of a lease: $n ids, and one more");
	kill 'CONT', $pid or die "kill: $!";
	poll('lease', sub { error_of_call() =~ /^ids/ });
	cmp_ok($last, '>=', id_at($limit, 0), "12, edge of a lease: $n ids, and then it is extended");
}

#
# 6, 7. Others saved the time at which they were seen last.  What they had borrowed
# from the future was issued again after a restart, and so was all since the last save
# when the clock was set back.
#
# Nothing moves between the crash and the start.
sub leased_until
{
	return SECOND * $node->safe_psql('postgres', 'SELECT extract(epoch FROM leased_until) FROM pg_stat_snowflake');
}

sub begins_at_end
{
	my ($label, $before) = @_;
	my $id = next_now() // 0;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok(begin_of($id), '>=', $before, "$label: ids start at the end of the lease before, after all its ids");
}

restart_with('fast', 'snowflake.max_ahead' => '10s');
go_on(20);
next_now('snowflake_nextval_batch(50000)');
cmp_ok(begin_of($last), '>', $now + 3 * SECOND, '6, borrowed future: ids run ahead of the clock');
my $until = leased_until();
restart_with('crash', 'snowflake.max_ahead' => '1min');
begins_at_end('6, borrowed future: crash', $until);
next_now('snowflake_nextval_batch(50000)');
wait_for_new_helper($node);
restart_with('fast');
is(next_now(), id_at(tick_of($ids[-2]) + 1, 1), '6, borrowed future: clean restart, the second id of the next tick');

$until = leased_until();
next_now('snowflake_nextval_batch(50000)');
my $right = $now;
set_time($right - 30 * SECOND);
restart_with('crash', 'snowflake.max_ahead' => '3min');
begins_at_end('7, last-seen time saved: crash right after the last id, clock 30 s back', $until);

#
# 9. Others read the clock in the zone of the server: the ids of an hour came again when
# summer time ended.
#
my $zone = 'America/New_York';
my ($summer) = split /\n/, $node->safe_psql('postgres', <<EOF);
SELECT extract(epoch FROM t)::bigint FROM generate_series(date_trunc('hour', now() + '1 day'), now() + '400 days', '1 h') AS t
WHERE t AT TIME ZONE '$zone' = (t + '1 h'::interval) AT TIME ZONE '$zone'
EOF
{
	local $ENV{TZ} = $zone;

	set_time(($summer + 1800) * SECOND);
	restart_with('fast', 'snowflake.max_ahead' => '1s', TimeZone => $zone);
	set_time($now + 2000);		# the lease begins in the tick that was
	gives_expected('9, local zone: half an hour before the clocks are put back');
	go_on(3600);
	gives_expected('9, local zone: the same time of day, an hour later');
	$until = leased_until();
	set_time($now - 3600 * SECOND);
	restart_with('crash');
	refuses('9, local zone: crashed, and an hour back to the same time of day');
	set_time($now + 3605 * SECOND);
	poll('lease', sub { error_of_call() =~ /^ids/ });
	cmp_ok(begin_of($last), '>=', $until, '9, local zone: an hour later, ids go on after the lease before');
}
check_ids('all of these', write_ids(@ids));
$session->quit;
$node->stop;

#
# 17. Others let the timestamp run over into the sign or to 0, or, here, into the node
# number beside it, in the middle of a batch that crossed the end.
#
# A minute after the first ids of the new extension.
$end = int(time) + 3660;
my $late = new_node('late', start => 0, conf => <<EOF);
snowflake.layout = 'timestamp 7, worker 4, sequence 4, tick 1s, epoch ${\ epoch_at($end - 128)}'
snowflake.worker_id = '5'
snowflake.sequence_start = 'zero'
snowflake.max_ahead = '1h'
EOF

sub epoch_at
{
	my ($sec, $min, $hour, $day, $month, $year) = gmtime $_[0];

	return sprintf '%04d-%02d-%02dT%02d:%02d:%02dZ', $year + 1900, $month + 1, $day, $hour, $min, $sec;
}

sub late_id { return $_[1] + 125 * 256 + $_[0] * 16 + int($_[1] / 16) * 240 }	# the n-th of three ticks

set_time(int(time) * SECOND);
start_node($late);
# the first lease of a cluster is taken at its first id
$late->psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake; SET snowflake.max_wait = 0; SELECT snowflake_nextval()');
my $full = qr/ERROR:  the timestamp field of layout .* is full/;
foreach my $case ([ 5, 49, 'crosses the end' ], [ 6, 48, 'ends with the last id there is' ], [ 7, 47, 'ends before it' ])
{
	my ($number, $n, $what) = @$case;
	my $label = "17, end of the field: a batch that $what";

	# the lease begins in a tick before
	set_time(($end - 5) * SECOND);
	set_and_reload($late, 'snowflake.worker_id' => $number);
	poll("node number $number", sub { stat_of($late, 'node_number') eq $number });
	set_time(($end - 3) * SECOND);
	open_session($late);
	@ids = ();
	$session->query_safe('BEGIN; DECLARE c NO SCROLL CURSOR FOR SELECT snowflake_nextval_batch(' . $n . ')');
	my @batch = map { grep { /^\d+\z/ } scalar $session->query('FETCH 1 FROM c') } 1 .. $n;
	same_ids(\@batch, [ map { late_id($number, $_) } 0 .. ($n > 48 ? 48 : $n) - 1 ], "$label: its ids");
	if ($n > 48)
	{
		like($session->{stderr}, $full, "$label: then an error");
		$session->{stderr} = '';
	}
	$session->query('ROLLBACK');
	is(next_now(), late_id($number, 47), "$label: the last one") if $n < 48;
	like(error_of_call($_), $full, "$label: then nothing more, $_")
	  foreach 'snowflake_nextval()', 'snowflake_nextval_batch(1)', 'snowflake_nextval_batch(100)';
	$session->quit;
}
$late->stop;

done_testing();
