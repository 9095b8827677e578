# 010_ends_of_time.pl
#	  Before a layout's epoch and after its last tick there are no ids, and no others
#	  instead: before the epoch of any layout in use they are refused with 55000; in the
#	  last tick they go on until the clock passes it or its sequence is used up, then
#	  a call fails with 2200H, also after a restart and with the clock set back.  A year
#	  before the end the log warns.  A clock that was wrong uses up no number, and when it is
#	  right ids go on by themselves in all layouts in use, also after the last id of a number.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeStatement;

use Config;
use Fcntl;
use POSIX 'strftime';
use Time::HiRes ();

my $now = time;

# Whole seconds since 1970 as an epoch, and as timestamptz prints it in UTC.
sub epoch_at { return strftime('%Y-%m-%dT%H:%M:%SZ', gmtime $_[0]) }
sub time_at { return strftime('%Y-%m-%d %H:%M:%S+00', gmtime $_[0]) }

sub new_server
{
	my ($name, $layout, $extra) = (@_, '');

	my $node = new_node($name, conf => <<EOF);
timezone = 'UTC'
log_timezone = 'UTC'
snowflake.layout = '$layout'
snowflake.extra_layouts = '$extra'
snowflake.max_wait = 0
EOF
	# the first lease of a cluster is taken at its first id
	poll('lease', sub {
			return 1 if stat_of($node, 'state') ne 'starting';
			$node->psql('postgres', 'SELECT snowflake_nextval()');
			return 0 });
	return $node;
}

# Sets the clock to a time (seconds since 1970), and waits until a call gets an id, or
# the error given.  Returns the clock's offset.
sub set_time
{
	my ($node, $time, $error) = (@_, qr/^$/);

	my $offset = 1000 * $time - int(1000 * Time::HiRes::time());

	set_and_reload($node, 'snowflake.clock_offset' => $offset);
	poll("clock at $time", sub { sql_error($node, 'SELECT snowflake_nextval()') =~ $error });
	return "$offset ms";
}

# How a call fails when the field is full.
sub is_full
{
	my ($node, $end, $label) = @_;

	foreach my $call ('snowflake_nextval()', 'snowflake_nextval_batch(1)')
	{
		my $ends = time_at($end);

		like(sql_error($node, "SELECT $call"),
			qr/ERROR:  2200H: the timestamp field of layout "timestamp .*" is full\nDETAIL:  Its last tick ends at \Q$ends\E\.\nHINT:  Correct the clock/,
			"$label: $call fails with 2200H");
	}
}

#
# Before the epoch, of the default layout or of another one in use
#
my $epoch = $now + 30 * 86400;
my $early = 'twitter, epoch ' . epoch_at($epoch);
my $begins = strftime('%Y-%m-%d %H:%M:%S', gmtime $epoch);
my $to_come = qr/ERROR:  55000: the epoch of layout ".*" is to come\nDETAIL:  It begins at \Q$begins\E\+00\.\nHINT:  Correct the clock, or choose/;

foreach my $case ([ 'early', $early ], [ 'early_extra', 'twitter', $early ])
{
	my ($name, @layouts) = @$case;
	my $node = new_server($name, @layouts);

	like(sql_error($node, 'SELECT snowflake_nextval()'), $to_come, "$name: a month before the epoch a call fails");
	like(sql_error($node, 'SELECT snowflake_nextval_batch(2)'), $to_come, "$name: and a batch");
	is(stat_of($node, "concat_ws(',', state, last_id, ids_issued)"), 'refused,0', "$name: the view says so");
	is($node->safe_psql('postgres', "SELECT to_regnamespace('snowflake')"), '', "$name: there are no tables, and so no lease");
	next if $name ne 'early';

	# Nobody restarts or reloads it.
	set_time($node, $epoch - 5, $to_come);
	is(settle('', sub { sql_error($node, 'SELECT snowflake_nextval()') }), '', 'when the epoch has come there are ids');
	is($node->safe_psql('postgres', "SELECT worker_id, \"timestamp\" >= '@{[ time_at($epoch) ]}'
		FROM snowflake_parse(snowflake_nextval())"), '1|t', 'of that time');
	unlike(slurp_file($node->logfile), qr/WARNING: .*the timestamp field/, 'no warning of an end that is decades away');
	$node->stop;
}

# A start with a clock that is far ahead, beyond the end of the layout, issues nothing, and must
# not take the number either.
my $node = new_server('glitch', 'twitter');
my $before = $node->safe_psql('postgres', "SET snowflake.max_wait = '30s'; SELECT snowflake_nextval()");
$node->stop;
set_conf($node, 'snowflake.clock_offset' => 73 * 365 * 86400 * 1000);
$node->start;
poll('refusal', sub { stat_of($node, 'state') eq 'refused' });
like(sql_error($node, 'SELECT snowflake_nextval()'), qr/ERROR:  2200H: the timestamp field of layout ".*" is full\nDETAIL:  Its last tick ends at 2080-/,
	'a clock beyond the end: refused');
is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), '1', 'a clock beyond the end: no lease is granted');
$node->stop;
set_conf($node, 'snowflake.clock_offset' => 0);
$node->start;
cmp_ok($node->safe_psql('postgres', "SET snowflake.max_wait = '30s'; SELECT snowflake_nextval()"), '>', $before,
	'when the clock is right again ids go on');
# The view does not say "ready" while there is no worker to open a lease: the postmaster, which
# would start one, is stopped.
set_and_reload($node, 'snowflake.max_wait' => '30s');
my $session = $node->background_psql('postgres');
my $worker = worker_pid($node);
kill 'STOP', $node->{_pid} or die "kill: $!";
kill 'TERM', $worker or die "kill: $!";
my $without = eval { settle('starting', sub { $session->query_safe('SELECT state FROM pg_stat_snowflake') }) };
kill 'CONT', $node->{_pid} or die "kill: $!";
is($without, 'starting', 'without a lease worker the state is starting');
$session->quit;
is(sql_error($node, 'SELECT snowflake_nextval()'), '', 'and a call waits for the next one');
$node->stop;

#
# The clock of the whole server is past the end of all layouts in use, or of some, when it starts
#
my $library = build_library('wrong_clock', <<'EOF');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* A file of eight bytes has the seconds by which the wall clock is wrong. */
static int64_t
error_of_clock(void)
{
	static const volatile int64_t *seconds = NULL;

	if (seconds == NULL)
	{
		int			fd = open(getenv("WRONG_CLOCK"), O_RDONLY);

		seconds = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
		if (seconds == MAP_FAILED)
			abort();
		close(fd);
	}
	return *seconds;
}

int
clock_gettime(clockid_t id, struct timespec *ts)
{
	static int	(*real) (clockid_t, struct timespec *) = NULL;
	int			result;

	if (real == NULL)
		real = (int (*) (clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
	result = real(id, ts);
	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
		ts->tv_sec += error_of_clock();
	return result;
}

int
gettimeofday(struct timeval *tv, void *tz)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}
EOF
my $clock_file = PostgreSQL::Test::Utils::tempdir('clock') . '/seconds';

sub set_wrong
{
	my ($years) = @_;

	sysopen my $file, $clock_file, O_WRONLY | O_CREAT or die "$clock_file: $!";
	syswrite($file, pack 'q', $years * 365 * 86400) == 8 or die "$clock_file: $!";
	close $file;
}

# It is full in seven years; twitter in 2080, js53 in 2111.
my $short = 'timestamp 29, worker 10, sequence 10, tick 1s, epoch ' . epoch_at($now + 7 * 365 * 86400 - (1 << 29));
my @layouts = ($short, 'twitter', 'js53');

# Of a server: the states of these layouts.  No id is asked for.
sub states
{
	my ($node) = @_;

	return $node->safe_psql('postgres', "SELECT string_agg(state, ' ' ORDER BY ends_at) FROM pg_stat_snowflake");
}

# PostgreSQL's time_t on machines of 32 bits.
my $ends_in_2038 = $Config{longsize} == 4;

# A lease ends with the default layout, the first one here.
foreach my $case (
	[ 'one', 1, 12, 'refused ready ready', 'twitter', "$short; js53" ],
	[ 'two', 1, 80, 'refused refused ready', 'js53', "$short; twitter" ],
	[ 'automatic', 'auto', 120, undef, 'twitter', "$short; js53" ],
	[ 'asked', 'auto', 80, 'refused refused ready', 'js53', "$short; twitter" ])
{
	my ($name, $worker_id, $years, $wrong, @in_use) = @$case;
	my $label = "a start $years years ahead, $name";
	my %ids;

	if ($ends_in_2038)
	{
		note("$label: not on a machine of 32 bits");
		next;
	}
	my $node = new_server("wrong_$name", @in_use);
	set_conf($node, 'snowflake.worker_id' => $worker_id);
	$node->restart;
	poll('lease', sub { states($node) eq 'ready ready ready' });
	my $call = sub {
		my ($layout, $max_wait) = (@_, 0);

		push @{ $ids{$layout} }, $node->safe_psql('postgres', "SET snowflake.max_wait = '$max_wait'; SELECT snowflake_nextval('$layout')");
	};
	$call->($_) foreach @layouts;
	$node->stop;

	set_wrong($years);
	my $before = log_end($node);
	start_with($node, $library, WRONG_CLOCK => $clock_file);
	my $year = (gmtime)[5] + 1900 + $years;
	poll('lease', sub { log_since($node, $before) =~ (defined $wrong ?
				qr/leased node number \d+ from .* until (?:$year|@{[ $year - 1 ]})-/ : qr/the timestamp field of layout ".*" is full$/m) });
	poll('states', sub { states($node) eq $wrong }) if defined $wrong;
	if ($name eq 'asked')
	{
		like(sql_error($node, "SELECT snowflake_nextval('$_')"), qr/ERROR:  2200H: the timestamp field of layout/, "$label: full")
		  foreach $short, 'twitter';
		$call->('js53');
	}

	# nothing wakes the lease worker then: a helper does when it ends
	poll('no helper', sub {
			$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowflake helper'") == 0 })
	  if defined $wrong;
	sleep 1;
	set_wrong(0);
	my $right_at = Time::HiRes::time();
	is(settle('ready ready ready', sub { states($node) =~ s/ waiting$/ ready/r }), 'ready ready ready',
		"$label: when the clock is right, they are ready before anybody asks");
	# in two seconds; a lease worker that does not look for itself sleeps for a minute
	cmp_ok(Time::HiRes::time() - $right_at, '<', 25, "$label: and soon");
	# calls need not wait, but where ids were issued meanwhile: another number is taken
	$call->($_, $name eq 'asked' ? '30s' : 0) foreach @layouts;
	foreach my $layout (@layouts)
	{
		my %seen = map { $_ => 1 } @{ $ids{$layout} };

		is(scalar(keys %seen), scalar @{ $ids{$layout} }, "$label: ids of $layout are different");
		is($node->safe_psql('postgres', "SELECT snowflake_timestamp($ids{$layout}[-1], '$layout') BETWEEN now() - interval '10 min' AND now() + interval '1 s'"),
			't', "$label: the last one has the right time");
	}
	$node->stop;
}

# Tables that were made then are refused, with what to do, not called full.
if (!$ends_in_2038)
{
	set_wrong(80);
	$node = new_node('made_ahead', start => 0, conf => <<EOF);
snowflake.worker_id = 'auto'
snowflake.max_wait = 0
EOF
	start_with($node, $library, WRONG_CLOCK => $clock_file);
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake');
	poll('2200H', sub { sql_error($node, 'SELECT snowflake_nextval()') =~ /2200H: the timestamp field/ });
	set_wrong(0);
	poll('the reason', sub { sql_error($node, 'SELECT snowflake_nextval()') =~ /ERROR:  55000: the node's clock is behind the creation of the extension/ });
	pass('after a creation 80 years ahead, the reason is told');
	$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
	poll('ids', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
	is($node->safe_psql('postgres', "SELECT snowflake_timestamp(snowflake_nextval()) < now() + interval '10 s'"), 't', 'and ids go on when it is created again');
	$node->stop;
}

#
# A clock was ahead, and the very last id of a number was issued; when it is right, there are ids of another number
#
my $end = time + 7200;
$node = new_server('ahead', 'timestamp 14, worker 4, sequence 2, tick 1s, epoch ' . epoch_at($end - (1 << 14)));
set_conf($node, 'snowflake.worker_id' => 'auto');
$node->restart;
poll('ids', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
set_time($node, $end - 30);
$node->safe_psql('postgres', "
	SET snowflake.max_wait = '60s';
	CREATE TABLE ahead (id bigint);
	DO \$\$
		BEGIN
			LOOP
				BEGIN
					INSERT INTO ahead SELECT snowflake_nextval();
				EXCEPTION WHEN sqlstate '2200H' THEN
					RETURN;
				END;
			END LOOP;
		END \$\$");
is($node->safe_psql('postgres', "SELECT p.timestamp, p.sequence FROM ahead, snowflake_parse(id) AS p ORDER BY id DESC LIMIT 1"),
	time_at($end - 1) . '|3', 'the clock is ahead: the last id of a number is issued');
my $used = $node->safe_psql('postgres', 'SELECT worker_id FROM snowflake_parse((SELECT max(id) FROM ahead))');
set_time($node, time);
isnt($node->safe_psql('postgres', "SET snowflake.max_wait = '30s'; SELECT worker_id FROM snowflake_parse(snowflake_nextval())"), $used,
	'when it is right, ids are of another number');
$node->stop;

#
# The clock goes through the last tick; there are more ids in it than are issued
#
$end = time + 7200;
$node = new_server('late', 'timestamp 7, worker 4, sequence 20, tick 1s, epoch ' . epoch_at($end - 128));
is(stat_of($node, 'ends_at'), time_at($end), 'the view shows the end');
like(sql_error($node, 'SELECT snowflake_nextval()'), qr/ERROR:  55000: the epoch of layout "timestamp 7, .*" is to come/, 'before the epoch');

set_conf($node, 'snowflake.max_ahead' => 0);
my $offset = set_time($node, $end - 8);
poll('the warning', sub {
		slurp_file($node->logfile) =~ /WARNING: .*the timestamp field of layout "timestamp 7, .*" is full at \Q@{[ time_at($end) ]}\E/ });
pass('the log warns of the end');
$node->safe_psql('postgres', "
	SET snowflake.max_wait = '30s';
	CREATE TABLE issued (n serial, id bigint, began timestamptz, at timestamptz);
	DO \$\$
		DECLARE
			id bigint;
			began timestamptz;
		BEGIN
			WHILE id IS NOT NULL OR NOT EXISTS (SELECT FROM issued) LOOP
				began := clock_timestamp() + interval '$offset';
				BEGIN
					id := snowflake_nextval();
				EXCEPTION WHEN sqlstate '2200H' THEN
					id := NULL;
				END;
				INSERT INTO issued (id, began, at) VALUES (id, began, clock_timestamp() + interval '$offset');
				PERFORM pg_sleep(0.005);
			END LOOP;
		END \$\$");
my $in_last = "snowflake_timestamp(id) = '@{[ time_at($end - 1) ]}'";
# ten, or as many as a machine that stalls got around to try
is($node->safe_psql('postgres', "SELECT count(*) FILTER (WHERE $in_last) >= least(10,
	count(*) FILTER (WHERE began >= '@{[ time_at($end - 1) ]}' AND at < '@{[ time_at($end) ]}')) FROM issued"), 't',
	'ids go on through the last tick');
is($node->safe_psql('postgres', "SELECT max(at) >= '@{[ time_at($end) ]}' AND max(began) < '@{[ time_at($end + 60) ]}'
	FROM issued WHERE id IS NULL"), 't', 'until the clock has passed it');
is($node->safe_psql('postgres', "SELECT count(*) FILTER (WHERE snowflake_timestamp(id) > at),
	count(*) FILTER (WHERE id <= before) FROM (SELECT *, lag(id) OVER (ORDER BY n) AS before FROM issued) s"), '0|0',
	'ids increase and are never past the clock (max_ahead is 0)');
is_full($node, $end, 'after the end');
$node->restart;
poll('refusal', sub { sql_error($node, 'SELECT snowflake_nextval()') !~ /gave up waiting for a node number/ });
is_full($node, $end, 'restarted after the end');
is(stat_of($node, 'detail'), 'the timestamp field is full', 'restarted after the end: detail of the view');
$node->stop;
set_conf($node, 'snowflake.clock_offset' => 0);
$node->start;
poll('refusal', sub { sql_error($node, 'SELECT snowflake_nextval()') !~ /gave up waiting for a node number/ });
like(sql_error($node, 'SELECT snowflake_nextval()'), qr/ERROR:  55000: the epoch of layout/, 'restarted, the clock back before the epoch');
$node->stop;

#
# The sequence of the last tick is used up before the clock comes there
#
$node = new_server('used_up', 'timestamp 7, worker 4, sequence 4, tick 1s, epoch ' . epoch_at($end - 128));
set_conf($node, 'snowflake.max_ahead' => '1h', 'snowflake.sequence_start' => 'zero');
set_time($node, $end - 30);

my ($ids, $error) = ('', '');
$node->psql('postgres', "SET snowflake.max_wait = '30s';" . 'SELECT snowflake_nextval();' x 2000, stdout => \$ids, stderr => \$error,
	on_error_stop => 1);
my @ids = split /\n/, $ids;
cmp_ok(scalar @ids, '<', 62 * 16, 'the ids before the end are used up');
like($error, qr/ERROR:  the timestamp field of layout/, 'by a session that goes on');
is(join(' ', map { $_ - $ids[-16] } @ids[ -16 .. -1 ]), join(' ', 0 .. 15), 'the last tick gave its 16 ids');
is($node->safe_psql('postgres', "SELECT \"timestamp\", sequence FROM snowflake_parse($ids[-1])"),
	time_at($end - 1) . '|15', 'the last id is the last one of the layout');
check_ids('up to the end', write_ids(@ids));
is_full($node, $end, 'used up');
$node->restart;
poll('refusal', sub { sql_error($node, 'SELECT snowflake_nextval()') !~ /gave up waiting for a node number/ });
is_full($node, $end, 'used up and restarted');
$node->stop;

done_testing();
