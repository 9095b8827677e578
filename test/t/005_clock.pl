# 005_clock.pl
#	  The clock is set forward and back by 1 ms, 100 ms, 10 s and a day, while the
#	  server runs and while it is stopped.  No id repeats or is less than an earlier one;
#	  up to max_ahead behind the last id they go on at once; further behind it a call
#	  waits, asleep, if max_wait allows, and else fails at once with 55P03; no id is
#	  more than max_ahead past the clock.  Steps back are counted, and a step forward
#	  of more than a window is in the log.  Years back, the lease worker still looks every minute.
#
# snowflake.clock_offset moves the clock; at the end libfaketime moves that of the
# whole server, if it is installed.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;
use SnowflakeStatement;

use Time::HiRes qw(time usleep);

# 16,000 ids a second, so that one session can run ahead of the clock.
my $node = new_node('main', limit => '48 h', conf => <<EOF);
snowflake.layout = 'twitter, sequence 4'
snowflake.max_wait = 0
EOF
my @steps = (1, 100, 10_000, 86_400_000);	# ms
my $offset = 0;

# Sets the clock, and waits until ids go by it: a step forward shows in a new id, a
# step back is counted; one of 1 ms is neither.
sub set_offset
{
	my ($ms) = @_;
	my $step = $ms - $offset;
	my $seen = $step < 0 ? 'SELECT clock_rollbacks > ' . stat_of($node, 'clock_rollbacks') . ' FROM pg_stat_snowflake'
	  : "SELECT snowflake_timestamp(snowflake_nextval()) > clock_timestamp() + interval '@{[ $ms - 50 ]} ms'";

	$offset = $ms;
	set_and_reload($node, 'snowflake.clock_offset' => $ms);
	return usleep(100_000) if abs($step) < 100;
	poll("clock offset $ms", sub { ($node->psql('postgres', $seen))[1] eq 't' });
}

# Single calls and a batch: each id greater than all before, none too far past the clock.  Without
# a wait they fail where a busy machine keeps the worker from extending the lease: again.
my $last = 0;

sub goes_on
{
	my ($label, $max_wait) = @_;
	my $calls = "SET snowflake.max_wait = '@{[ $max_wait // 0 ]}';
		SELECT snowflake_nextval() FROM generate_series(1, 20);
		SELECT snowflake_nextval_batch(20);
		SELECT clock_timestamp() + interval '$offset ms'";
	my @ids = split /\n/, poll("$label: ids", sub {
			my ($status, $out, $error) = $node->psql('postgres', $calls);

			die "$label: $error" if $status != 0 && $error !~ /gave up waiting for the lease to be extended/;
			$status == 0 && $out });
	my $now = pop @ids;
	my @low = grep { my $low = $_ <= $last; $last = $_; $low } @ids;

	is(@ids . " ids, low: @low", '40 ids, low: ', "$label: 40 ids, each greater than all before");
	is($node->safe_psql('postgres', "SELECT snowflake_timestamp($last) <= '$now'::timestamptz + interval '1 s'"),
		't', "$label: they are not more than max_ahead past the clock");
}

# Further behind than a call would wait, which so does not begin to; until then the clock is,
# and with a step of a day no machine is so slow.
sub refuses
{
	my ($label, $until) = @_;
	my @calls = ('snowflake_nextval()', 'snowflake_nextval_batch(5)');
	my (@errors, @waited);

	foreach my $call (@calls)
	{
		my $waited = stat_of($node, 'wait_time');

		push @errors, run_sql($node, "SET snowflake.max_wait = '500ms'; SELECT $call;")->{error};
		push @waited, [ stat_of($node, 'wait_time'), $waited ];
	}
	my ($state, $detail) = map { stat_of($node, $_) } 'state', 'detail';

SKIP:
	{
		skip "$label: the machine was slower", 6 if time > $until;
		foreach my $i (0, 1)
		{
			like($errors[$i], qr/ERROR:  55P03: the next id would be [\d.]+ s ahead of the clock
DETAIL:  snowflake.max_ahead allows 1\.000 s; the clock is there in [\d.]+ s, snowflake.max_wait is 0\.500 s\.
HINT:  /m, "$label: $calls[$i] fails and says why");
			is($waited[$i][0], $waited[$i][1], "$label: $calls[$i] fails at once");
		}
		is($state, 'waiting', "$label: state");
		like($detail, qr/behind the (?:last id|start of the lease); until it reaches \d{4}-/, "$label: detail");
	}
}

#
# While the server runs, and two sessions issue ids
#
my $clients = start_clients($node, count => 2, sql => <<EOF);
SELECT snowflake_nextval() FROM generate_series(1, 3);
SELECT snowflake_nextval_batch(5);
DO 'BEGIN PERFORM pg_sleep(0.002); END';
EOF
$clients->wait_for(100);
my $base = 0;
foreach my $step (@steps)
{
	set_offset($base + $step);
	goes_on("running, forward by $step ms");

	my $rollbacks = stat_of($node, 'clock_rollbacks');
	my $until = time + $step / 1000 - 2;
	set_offset($base);
	if ($step <= 1000)
	{
		goes_on("running, back by $step ms");
		is(stat_of($node, 'state'), 'ready', "running, back by $step ms: state");
	}
	else
	{
		refuses("running, back by $step ms", $until);
		set_offset($base += $step);
		goes_on("running, forward again by $step ms");
		is(stat_of($node, 'state'), 'ready', "running, forward again by $step ms: state");
	}
	is(stat_of($node, 'clock_rollbacks'), $rollbacks + 1, "running, back by $step ms: counted")
	  if $step >= 100;
}
check_ids('while the clock was set', $clients->stop);
like($clients->errors, qr/ERROR:  55P03: the next id would be/, 'the sessions met the refusals');
unlike($clients->errors, qr/ERROR:  (?!55P03)/, 'and no other error');
my $log = slurp_file($node->logfile);
like($log, qr/WARNING: .*the clock was set forward by 86[34]\d\d\.\d+ s/, 'a day forward is in the log');
unlike($log, qr/the clock was set forward by \d{1,3}\./, 'a step of less than a window is not');
like($log, qr/LOG: .*the clock was set back by (9|10)\.\d+ s/, 'a step back is');

#
# Behind by more than max_ahead, but not more than max_wait
#
set_offset($base += 20_000);
goes_on('before the wait', '1min');
set_offset($base - 60_000);
my $counted = stat_of($node, 'waits');
like(sql_error($node, "SET snowflake.max_wait = 0; SELECT snowflake_nextval()"), qr/^ERROR:  55P03: the next id would be/, 'without a wait a call fails');
is(stat_of($node, 'waits'), $counted + 1, 'a call that fails for lack of time is counted, once');
my $waiter = start_sql($node, "SET snowflake.max_wait = '2min'; SELECT snowflake_nextval();");
my $pid = waiting_pid($node);
my $cpu = cpu_ticks($pid);
my $begin = time;
usleep(1_500_000);
is(waiting_pid($node), $pid, 'a call still waits after 1.5 s');
cmp_ok((cpu_ticks($pid) - $cpu) / (time - $begin), '<=', 3, 'with at most 3 % of a processor');
is(stat_of($node, 'state'), 'waiting', 'state meanwhile');
$begin = time;
$offset = $base -= 4000;
set_and_reload($node, 'snowflake.clock_offset' => $offset);
finish_sql($waiter);
is($waiter->{error}, '', 'it gets an id when the clock has come close enough');
cmp_ok($waiter->{out}, '>', $last, 'greater than all before');
cmp_ok(time - $begin, '<', 30, 'and soon then, not when the clock that it knew would have');
is(stat_of($node, "waits >= 1 AND wait_time BETWEEN '1.5 s' AND '50 s'"), 't', 'the wait was counted');
goes_on('after the wait', '1min');

#
# Faster than the layout has ids
#
my ($ids, $ahead) = split /\|/, $node->safe_psql('postgres', "SET snowflake.max_wait = '1min';
	SELECT count(DISTINCT id), extract(epoch FROM max(ahead)) FROM (
		SELECT id, snowflake_timestamp(id) - (clock_timestamp() + interval '$offset ms') AS ahead FROM (
			SELECT snowflake_nextval() AS id FROM generate_series(1, 40000) OFFSET 0) i) s");
is($ids, 40000, 'more ids than the layout has in the time');
cmp_ok($ahead, '>', 0.5, 'they run ahead of the clock');
cmp_ok($ahead, '<=', 1, 'but not more than max_ahead');
is(stat_of($node, "max_ahead_seen BETWEEN '0.5 s' AND '1 s'"), 't', 'the view says how far');
goes_on('after the burst', '1min');

#
# While the server is stopped.  How long that takes is part of a step back.
#
sub restart_at
{
	my ($ms, $since) = @_;

	$node->stop;
	my $at = time;
	$offset = $ms - (defined $since ? int(($at - $since) * 1000) : 0);
	set_conf($node, 'snowflake.clock_offset' => $offset);
	$node->start;
	poll('lease', sub { stat_of($node, 'state') ne 'starting' });
	return $at;
}

foreach my $step (@steps)
{
	restart_at($base += $step);
	my $begin = time;
	goes_on("stopped, forward by $step ms", '1min');
	my $until = restart_at($base - $step, $begin) + $step / 1000 - 2;
	if ($step <= 1000)
	{
		goes_on("stopped, back by $step ms", '1min');
		$base = $offset;
	}
	else
	{
		refuses("stopped, back by $step ms", $until);
	}
}

# A registry that does not allow leases a day ahead grants none.
limit_leases($node, '3 min');
$node->restart;
poll('lease', sub { stat_of($node, 'state') ne 'starting' });
like(sql_error($node, 'SELECT snowflake_nextval()'), qr/ERROR:  55000: the lease would end before it could be used
DETAIL:  It would be used from .* on, and leases end at .* at the latest: 180 s after the registry's clock/,
	'a day back, more than the limit for ends: the lease is refused');
is(stat_of($node, 'state'), 'refused', 'a day back, more than the limit for ends: state');
$node->stop;

#
# The clock of the whole server
#
SKIP:
{
	my ($library) = glob '/usr/lib/*/faketime/libfaketime.so.1';
	skip 'libfaketime is not installed', 1 unless $library;

	my $node = new_node('faked', start => 0, conf => "snowflake.max_wait = 0\n");
	my $file = PostgreSQL::Test::Utils::tempdir('clock') . '/offset';
	my $set = sub {
		append_to_file("$file.new", "$_[0]\n");
		rename "$file.new", $file or die "rename: $!";
		$node->reload if $node->{_pid};
	};
	my $start = sub {
		start_with($node, $library, FAKETIME_TIMESTAMP_FILE => $file, FAKETIME_NO_CACHE => 1,
			FAKETIME_DONT_FAKE_MONOTONIC => 1, FAKETIME_DISABLE_SHM => 1);

		# The postmaster forks its first children in a signal handler, where libfaketime
		# is off, and it stays so in them; but not those it starts later.
		kill_process(worker_pid($node), 'TERM');
		worker_pid($node);
	};
	my $phase = sub {
		return [ write_ids($node->safe_psql('postgres', "SET snowflake.max_wait = '1min';
			SELECT snowflake_nextval() FROM generate_series(1, 50)")) ];
	};
	my @phases;

	$set->('+0');
	$start->();
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake_registry; CREATE EXTENSION IF NOT EXISTS snowflake');
	limit_leases($node, '48 h');
	push @phases, $phase->();
	$set->('+1d');
	push @phases, $phase->();
	cmp_ok(id_time((read_ids(@{ $phases[1] }))[-1]) - time, '>', 86_000, 'whole server, a day forward: ids carry it');
	$set->('+23h');
	like(sql_error($node, 'SELECT snowflake_nextval()'), qr/^.*ERROR:  55P03: the next id would be 3[56]\d\d\.\d+ s ahead/,
		'whole server, an hour back: refused');
	poll('clock_rollbacks', sub { stat_of($node, 'clock_rollbacks') == 1 });
	$node->stop;
	$start->();
	poll('lease', sub { stat_of($node, 'state') eq 'waiting' });
	like(sql_error($node, 'SELECT snowflake_nextval()'), qr/^.*ERROR:  55P03: the next id would be 3[56]\d\d\.\d+ s ahead/,
		'whole server, restarted an hour back: refused');
	$set->('+2d');
	push @phases, $phase->();
	check_phases('whole server', @phases);
	$node->stop;
}

# A fixed number with a clock field moves on for a call of any layout, also of one in which nothing
# was issued since the start and whose ids start far ahead.
my $field = 'timestamp 41, worker 5, clock 3, tick 1ms, epoch 2020-01-01T00:00:00Z, sequence';
$node = new_node('field', conf => <<EOF);
snowflake.layout = '$field 10'
snowflake.extra_layouts = '$field 11'
snowflake.worker_id = 2
snowflake.max_wait = '1min'
snowflake.clock_offset = 3600000
EOF
$node->safe_psql('postgres', "SELECT snowflake_nextval(), snowflake_nextval('$field 11')");
$node->restart;
$node->safe_psql('postgres', "SELECT snowflake_nextval('$field 11')");
set_and_reload($node, 'snowflake.clock_offset' => 0);
poll('the clock is back', sub { $node->safe_psql('postgres', "SELECT max(ahead) > '30 min' FROM pg_stat_snowflake") eq 't' });
is(sql_error($node, 'SELECT snowflake_nextval()'), '', 'a call for another layout moves the number, too');
is(stat_of($node, 'worker_switches'), '1', 'once');
is($node->safe_psql('postgres', "SELECT worker_id FROM snowflake_parse(snowflake_nextval())"), '2', 'the worker id stays');
$node->stop;

# A lease of another registry is renewed also while nobody asks, so its lease worker waits for a time
# that it computes from the clock.  A library writes down how long each process waits.
my $library = build_library('waits', <<'EOF');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

int
epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	static int	(*real) (int, struct epoll_event *, int, int) = NULL;
	char		name[1024];
	FILE	   *file;

	if (real == NULL)
		real = (int (*) (int, struct epoll_event *, int, int)) dlsym(RTLD_NEXT, "epoll_wait");
	snprintf(name, sizeof(name), "%s/%d", getenv("WAITS"), (int) getpid());
	file = fopen(name, "a");
	fprintf(file, "%d\n", timeout);
	fclose(file);
	return real(epfd, events, maxevents, timeout);
}
EOF
my $waits = PostgreSQL::Test::Utils::tempdir('waits');
my $registry = new_registry('registry');
$node = new_member('idle', conninfo_of($registry));
wait_for_number($node);
$node->stop;
# from now on nobody asks for an id
start_with($node, $library, WAITS => $waits);
poll('lease', sub { stat_of($node, 'node_number') ne '' });
my $file = "$waits/" . worker_pid($node);
set_and_reload($node, 'snowflake.clock_offset' => -10 * 365 * 86_400_000);
poll('the clock is back', sub { stat_of($node, 'clock_rollbacks') eq '1' });
my $size = -s $file;
$node->reload;
poll('another wait', sub { -s $file > $size });
my @long = grep { $_ < 0 || $_ > 61_000 } split /\n/, slurp_file($file);
is("@long", '', 'ten years back, an idle node of a registry: no wait above a minute');
$node->stop;
$registry->stop;

done_testing();
