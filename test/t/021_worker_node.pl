# 021_worker_node.pl
#	  Node numbers from the table worker_node of the same server, with nothing set but
#	  shared_preload_libraries: a row and another number for each start, whatever ended
#	  the one before and wherever the clock is; numbers are used once before one is used
#	  again, and then only from where its ids ended; a clock that is set back while the
#	  server runs; renewal, release and rights.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeStatement;
use Time::HiRes qw(time);

use constant HOUR => 3_600_000;

# Numbers 0 to 3 on an odd timeline, 0 to 6 in all.
use constant FEW => 'timestamp 41, worker 3, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z';
# Four numbers for each worker id.
use constant CLOCKED =>
  'timestamp 41, worker 5, clock 2, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z';

my $quick = "SET snowflake.max_wait = '200ms'; SELECT snowflake_nextval()";

#
# A newcomer: the extension is in his database only.
#
my $node = auto_node('main');
$node->safe_psql('postgres', 'CREATE DATABASE shop');
my $offset = log_end($node);
my @ids = split /\n/, $node->safe_psql('shop', <<'SQL');
BEGIN;
CREATE EXTENSION snowflake;
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n int);
INSERT INTO orders (n) VALUES (1) RETURNING id;
SELECT snowflake_nextval();
COMMIT;
SQL
is(scalar @ids, 2, 'the transaction that created the extension draws');
like(log_since($node, $offset), qr/created the extension in database "postgres", for the table/,
	'the log says where it was created besides');
like(log_since($node, $offset), qr/snowflake: leased node number 0 from postgres until /, 'and which number was leased');

is(newest_row($node, <<'SQL'), 't|t|t|t|t|t|t|t|t|t|t', 'the row says what was started, where and when');
id = 1, node_number = 0, datacenter_id = 0 AND worker_id = 0, host_name <> '',
port = current_setting('port')::int, system_identifier = (SELECT system_identifier FROM pg_control_system()),
timeline = 1, launched_at = pg_postmaster_start_time(), layout = (SELECT definition FROM snowflake_layout()),
renewed_at BETWEEN launched_at AND clock_timestamp(),
released_at IS NULL AND leased_until BETWEEN clock_timestamp() + '60 s' AND clock_timestamp() + '130 s'
SQL
chomp(my $host = `hostname`);
is(newest_row($node, 'host_name'), $host, 'the host name is this host');
is($node->safe_psql('shop', <<'SQL'), 'ready|worker_node|postgres|0|0|0|t', 'the view agrees');
SELECT state, source, registry, node_number, datacenter_id, worker_id, leased_until > clock_timestamp() FROM pg_stat_snowflake
SQL
is($node->safe_psql('shop', 'SELECT count(*) FROM snowflake.worker_node'), '0', 'the table of the other database stays empty');

#
# Each start, after whatever: a row, another number, and ids at the clock.
#
my @files = write_ids(@ids);
my $number = 0;

my %ends = (
	'clean restart' => sub { $node->stop('fast') },
	'kill -9' => sub { crash($node) },
	'immediate stop' => sub { $node->stop('immediate') });
foreach my $clock (0, -1)
{
	foreach my $name (sort keys %ends)
	{
		my $label = $clock == 0 ? $name : "$name, clock $clock h";
		my $drawers = start_drawers($node, count => 2, database => 'shop');

		$drawers->wait_for(300);
		$ends{$name}->();
		push @files, $drawers->stop;
		set_conf($node, 'snowflake.clock_offset' => $clock * HOUR);
		$node->start;
		my $begin = time;
		my @drawn = draw_in($node, 'shop', 3);
		my $end = time;
		push @files, write_ids(@drawn);
		$number++;
		is_deeply([ lease_rows($node, 'node_number') ], [ 0 .. $number ], "$label: a row with the next number");
		is(id_node($drawn[0]), $number, "$label: the ids have it");
		cmp_ok(id_time($drawn[0]), '>', $begin + $clock * 3600 - 0.002, "$label: the first id is not before the clock");
		cmp_ok(id_time($drawn[0]), '<', $end + $clock * 3600 + 0.002, "$label: nor ahead of it");
		is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE released_at IS NULL'), '1',
			"$label: only that row is open");
		is(newest_row($node, 'launched_at = pg_postmaster_start_time()'), 't', "$label: it is of this start");
	}
}
# The ends of clean stops are exact, but none is before the last id.
check_ids('starts', @files);
check_covered('starts', $node, 'postgres', 12, 1023, @files);
is($node->safe_psql('postgres', <<'SQL'), '2', 'a clean stop gives the rest of the span back');
SELECT count(*) FROM snowflake.worker_node
WHERE node_number IN (0, 3) AND released_at IS NOT NULL AND leased_until < released_at + '2 s'
SQL
is($node->safe_psql('postgres', <<'SQL'), '4', 'after a kill the row keeps its bound');
SELECT count(*) FROM snowflake.worker_node
WHERE node_number IN (1, 2, 4, 5) AND released_at IS NOT NULL
	AND leased_until > renewed_at + '1 min'::interval - CASE WHEN node_number > 3 THEN '1 h' ELSE '0 h' END::interval
SQL
set_clock($node, 0);

#
# A fixed datacenter: numbers of that one only, in its own ring.
#
@files = ();
sub wait_for_number
{
	my ($n) = @_;

	poll("node number $n", sub { draw($node, 1); stat_of($node, 'node_number') eq $n });
}
my $drawers = start_drawers($node, count => 2, database => 'shop');
foreach my $step ([ 3, 96 ], [ -1, 97 ], [ 3, 98 ], [ 0, 7 ])
{
	my ($datacenter, $expected) = @$step;

	$drawers->wait_for(100);
	set_and_reload($node, 'snowflake.datacenter_id' => $datacenter);
	wait_for_number($expected);
	is(newest_row($node, 'node_number, datacenter_id, worker_id, released_at IS NULL'),
		"$expected|" . ($expected >> 5) . '|' . ($expected & 31) . '|t', "datacenter_id $datacenter: number $expected");
}
$drawers->wait_for(100);
push @files, $drawers->stop;
is($drawers->errors, '', 'datacenters: sessions notice nothing');
check_ids('datacenters', split_ids(12, 1023, @files));
check_covered('datacenters', $node, 'postgres', 12, 1023, @files);

# The greatest number is nobody's.
set_and_reload($node, 'snowflake.datacenter_id' => 31, 'snowflake.worker_id' => 31);
my $error;
poll('refusal', sub { ($error = sql_error($node, $quick, 'shop')) =~ /reserved/ });
like($error, qr/^ERROR:  55000: node number 1023 is reserved\nDETAIL:  .*\nHINT:  /, 'the greatest number is refused');
set_and_reload($node, 'snowflake.datacenter_id' => -1, 'snowflake.worker_id' => 'auto');
wait_for_number(16);

#
# Handing the number back.
#
$drawers = start_drawers($node, count => 2, database => 'shop');
$drawers->wait_for(200);
is($node->safe_psql('shop', 'SELECT snowflake_release()'), '16', 'release returns the number');
$drawers->wait_for(200);
@files = $drawers->stop;
is($drawers->errors, '', 'release: sessions notice nothing');
check_ids('release', @files);
is(stat_of($node, 'node_number'), '17', 'release: draws take the next number');
is($node->safe_psql('shop', 'SELECT snowflake_release(), snowflake_release()'), '17|', 'released twice: NULL');
is($node->safe_psql('postgres', <<'SQL'), 't', 'release: the row has the end of the ids');
SELECT released_at IS NOT NULL AND leased_until < clock_timestamp() + '1 s' FROM snowflake.worker_node WHERE node_number = 16
SQL
check_covered('release', $node, 'postgres', 12, 1023, @files);
is(id_node((draw($node, 1))[0]), 18, 'released twice: the next draw takes a number');

#
# Rights
#
$node->safe_psql('shop', 'CREATE ROLE anybody LOGIN; GRANT INSERT, SELECT ON orders TO anybody');
my $as_anybody = 'SET SESSION AUTHORIZATION anybody;';
is(sql_error($node, "$as_anybody INSERT INTO orders (n) SELECT 2 FROM generate_series(1, 10)", 'shop'), '',
	'anybody can insert where the default draws');
foreach my $call (
	'snowflake_release()',
	'snowflake_change_source()',
	"snowflake_change_layout('twitter')",
	'pg_stat_snowflake_reset()',
	"snowflake.renew_lease('1.0', gen_random_uuid(), now())",
	"snowflake.release_lease('1.0', gen_random_uuid(), now())")
{
	like(sql_error($node, "$as_anybody SELECT $call", 'shop'), qr/^ERROR:  42501: permission denied/, "anybody cannot call $call");
}
$node->safe_psql('shop', 'GRANT USAGE ON SCHEMA snowflake TO anybody');
is($node->safe_psql('shop', <<'SQL'), '0', 'with USAGE on the schema neither, nor read or write its tables');
SELECT count(*) FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace AND has_function_privilege('anybody', oid, 'EXECUTE')
	AND proname ~ '^(acquire|renew|release|lock_registry|choose|next|used|ring|ignore|generator_|take_|open_|backfill)'
UNION ALL
SELECT count(*) FROM pg_class WHERE relnamespace = 'snowflake'::regnamespace AND relkind = 'r'
	AND has_table_privilege('anybody', oid, CASE relname WHEN 'generator' THEN 'INSERT, UPDATE, DELETE, TRUNCATE'
		ELSE 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE' END)
ORDER BY 1 DESC LIMIT 1
SQL
$node->safe_psql('shop', 'GRANT EXECUTE ON FUNCTION snowflake_release() TO anybody');
is($node->safe_psql('shop', "$as_anybody SELECT snowflake_release()"), '18', 'release can be granted');
$node->stop;

#
# Few numbers: each once, then the one that was unused longest.  The clock is two hours
# back, so that none of this matters later.
#
my $few = auto_node('few', conf => "snowflake.layout = '${\ FEW}'\nsnowflake.clock_offset = '-2h'\n");
$few->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my @few = write_ids(draw($few, 20));
is(stat_of($few, 'node_number'), '0', 'few numbers: the first');

# Hands the number back and draws; returns the next one.
sub next_few
{
	$few->safe_psql('postgres', 'SELECT snowflake_release()');
	push @few, write_ids(draw($few, 20));
	return stat_of($few, 'node_number');
}

# The clock of the rows is that of the ids, an hour before this one's.
sub set_bound
{
	my ($n, $bound) = @_;

	$few->safe_psql('postgres', "UPDATE snowflake.worker_node SET leased_until = $bound WHERE node_number = $n");
}

is(join(',', map { next_few() } 1 .. 5), '1,2,3,0,1', 'few numbers: each once, then again in the same order');
set_bound(3, "clock_timestamp() - '1 h'::interval");
is(join(',', map { next_few() } 1 .. 4), '2,0,1,2', 'few numbers: not one whose bound is not past');
set_bound(0, "clock_timestamp() - '3 h'::interval");
set_bound(3, "clock_timestamp() - '4 h'::interval");
is(next_few(), '3', 'few numbers: the longest unused, not the next in the ring');
check_ids('few numbers', @few);

#
# The clock is set back by an hour while ids are drawn.
#
set_clock($few, 0);
$drawers = start_drawers($few, count => 3);
$drawers->wait_for(300);
my $old_number = stat_of($few, 'node_number');
my $switches = stat_of($few, 'worker_switches');
$offset = log_end($few);
set_clock($few, -&HOUR);
poll('another number', sub { stat_of($few, 'node_number') ne $old_number });
$drawers->wait_for(300);
my @through = $drawers->stop;
is($drawers->errors, '', 'clock set back: sessions notice nothing');
isnt(stat_of($few, 'node_number'), $old_number, 'clock set back: another number');
is(stat_of($few, 'worker_switches') - $switches, 1, 'clock set back: the switch is counted');
my @said = log_since($few, $offset) =~
  /the clock is 3[56]\d\d\.\d+ s behind the last id of node number $old_number; taking another one/g;
is(scalar @said, 1, 'clock set back: and logged, once');
like(log_since($few, $offset), qr/snowflake: switched to node number /, 'clock set back: the log has the new number');
my ($now) = draw($few, 1);
push @through, write_ids($now);
is($few->safe_psql('postgres', "SELECT snowflake_timestamp($now) < clock_timestamp() - '59 min'::interval"), 't',
	'clock set back: the ids go on at the clock');
is($few->safe_psql('postgres', <<SQL), 't|t', 'clock set back: the row of the old number keeps its span');
SELECT leased_until > clock_timestamp() - '1 min'::interval, released_at IS NOT NULL
FROM snowflake.worker_node WHERE node_number = $old_number ORDER BY id DESC LIMIT 1
SQL

# It comes up again only when the clock has.
push @few, split_ids(12, 7, @through);
unlike(join(',', map { next_few() } 1 .. 5), qr/$old_number/, 'clock set back: a number whose ids are ahead is not used again');
set_clock($few, 0);
push @few, write_ids(($now) = draw($few, 1));
is($few->safe_psql('postgres', "SELECT snowflake_timestamp($now) > clock_timestamp() - '1 min'::interval"), 't',
	'clock right again: ids at the clock');
check_ids('clock set back', @few);
check_covered('clock set back', $few, 'postgres', 12, 7, @few);

#
# The bound moves while ids are drawn, and only then.
#
set_conf($few, 'snowflake.lease_duration' => '1s', 'snowflake.max_ahead' => 0);
$few->restart;
my $row = 'node_number, leased_until, renewed_at';
poll('row of this start', sub { newest_row($few, 'launched_at = pg_postmaster_start_time()') eq 't' });
my $idle = newest_row($few, $row);
poll('the bound to pass', sub { newest_row($few, "leased_until + '300 ms'::interval < clock_timestamp()") eq 't' });
is(newest_row($few, $row), $idle, 'idle: the row stays as it is');
push @few, write_ids(draw($few, 5));
my ($idle_number, $idle_until) = split /\|/, $idle;
is(newest_row($few, "node_number, leased_until > '$idle_until'"), "$idle_number|t",
	'idle, then a draw: the same number, its bound moved');
my $renewed = newest_row($few, $row);
$drawers = start_drawers($few, count => 2);
foreach my $i (1 .. 3)
{
	poll('renewal', sub { newest_row($few, $row) ne $renewed });
	$renewed = newest_row($few, $row);
	is(newest_row($few, 'node_number, leased_until > renewed_at'), (split /\|/, $idle)[0] . '|t', "renewal $i");
}
push @few, $drawers->stop;
is($drawers->errors, '', 'renewals: sessions notice nothing');
check_ids('renewals', @few);
check_covered('renewals', $few, 'postgres', 12, 7, @few);

#
# All of them are live: what does not end cleanly leaves its bound behind.  A draw that
# waits gets a number as soon as one bound is past.
#
set_conf($few, 'snowflake.lease_duration' => '3min', 'snowflake.max_ahead' => '1s');
$few->restart;
my @left;
foreach my $i (1 .. 4)
{
	push @few, write_ids(draw($few, 20));
	push @left, stat_of($few, 'node_number');
	$few->stop('immediate');
	$few->start;
}
is(join(',', sort @left), '0,1,2,3', 'each immediate stop uses up a number');
poll('an answer', sub { ($error = sql_error($few, $quick)) !~ /gave up waiting/ });
like($error,
	qr/^ERROR:  53400: no node number is free\nDETAIL:  All .*earliest bound is .*\nHINT:  /, 'all are live: an error');
is(stat_of($few, "state, detail LIKE '%no node number is free%', node_number IS NULL"), 'starting|t|t', 'all are live: the view');
my $waiting = start_sql($few, "SET snowflake.max_wait = '2min'; SELECT snowflake_nextval();");
waiting_pid($few);
set_clock($few, 600_000);
finish_sql($waiting);
is($waiting->{error}, '', 'all are live: a draw that waits gets a number');
push @few, write_ids($waiting->{out});
is($waiting->{out} >> 12 & 7, $left[0], 'it is that of the earliest bound');
is($few->safe_psql('postgres', <<SQL), 't', 'and the ids begin behind it');
SELECT snowflake_timestamp($waiting->{out}) >= leased_until
FROM snowflake.worker_node WHERE node_number = $left[0] ORDER BY id DESC OFFSET 1 LIMIT 1
SQL
check_ids('all live', split_ids(12, 7, @few));
check_covered('all live', $few, 'postgres', 12, 7, @few);

# A fixed number stays what it is.
set_and_reload($few, 'snowflake.worker_id' => 5);
poll('the fixed number', sub { draw($few, 1); stat_of($few, 'node_number') eq '5' });
set_clock($few, -&HOUR);
like(sql_error($few, $quick), qr/^ERROR:  55P03: the next id would be 4[12]\d\d\.\d+ s ahead/,
	'clock set back: a fixed number errors');
is(stat_of($few, 'node_number'), '5', 'clock set back: and is not given up');
$few->stop;

#
# A worker id with several numbers of its own goes on in the next one, also over a
# restart, which begins nowhere behind.
#
my $clocked = auto_node('clocked', conf => "snowflake.layout = '${\ CLOCKED}'\nsnowflake.worker_id = '3'\n");
$clocked->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my @clocked = write_ids(my ($draw) = draw($clocked, 10));
is($draw >> 12 & 127, 12, 'clock field: the first number');
$clocked->restart;
push @clocked, write_ids(($draw) = draw($clocked, 10));
is($draw >> 12 & 127, 12, 'clock field: a restart with the clock right stays there');
foreach my $hours (1, 2)
{
	set_clock($clocked, -$hours * HOUR);
	# not more often than every five seconds
	$draw = run_sql($clocked, "SET snowflake.max_wait = '1min'; SELECT snowflake_nextval();")->{out};
	push @clocked, write_ids($draw);
	is($draw >> 12 & 127, 12 + $hours, "clock $hours h back: the next number");
	is($clocked->safe_psql('postgres', 'SELECT worker_id, clock FROM snowflake_parse(' . $draw . ')'), "3|$hours",
		"clock $hours h back: the same worker id");
}
$clocked->restart;
push @clocked, write_ids(($draw) = draw($clocked, 10));
is($draw >> 12 & 127, 14, 'clock field: a restart stays in the number, too');
$clocked->stop('fast');
set_conf($clocked, 'snowflake.clock_offset' => -3 * HOUR);
$clocked->start;
push @clocked, write_ids(($draw) = draw($clocked, 10));
is($draw >> 12 & 127, 15, 'clock field: a restart with the clock back again takes the next number');
crash($clocked);
set_conf($clocked, 'snowflake.clock_offset' => -4 * HOUR);
$clocked->start;
like(sql_error($clocked, $quick), qr/^ERROR:  55P03: /, 'clock field: all are ahead of the clock: an error');
set_clock($clocked, -&HOUR);
$draw = run_sql($clocked, "SET snowflake.max_wait = '1min'; SELECT snowflake_nextval();")->{out};
push @clocked, write_ids($draw);
isnt($draw >> 12 & 127, 12, 'clock field: goes on, but not in the number whose ids are ahead');
set_clock($clocked, 0);
push @clocked, write_ids(draw($clocked, 10));
check_ids('clock field', split_ids(12, 127, @clocked));
check_covered('clock field', $clocked, 'postgres', 12, 127, @clocked);
$clocked->stop;

done_testing();
