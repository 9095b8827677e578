# 015_worker_node.pl
#	  Node numbers from the tables of the same server, with nothing set but
#	  shared_preload_libraries: a row and another number for each start, whatever ended
#	  the one before and wherever the clock is; numbers are used once before one is used
#	  again, and then only from where its ids ended; a clock that is set back while the
#	  server runs; renewal, release and rights.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeStatement;
use Time::HiRes qw(time);

use constant HOUR => 3_600_000;

# Numbers 0, 2, 4 and 6 before a promotion; 7 is reserved.
use constant FEW => 'timestamp 41, worker 3, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z';
# Four numbers for each worker id.
use constant CLOCKED =>
  'timestamp 41, worker 5, clock 2, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z';

my $quick = "SET snowflake.max_wait = '200ms'; SELECT snowflake_nextval()";

#
# A registry of an earlier generation than one that has answered before, as a former primary is.
#
my $former = auto_node('former');
$former->safe_psql('postgres', 'CREATE EXTENSION snowflake');
issue_ids($former, 1);
sub lease_of_generation
{
	my ($generation) = @_;

	$former->safe_psql('postgres', "UPDATE snowflake.registry SET generation = $generation; SELECT snowflake_release()");
	issue_ids($former, 1);
}
lease_of_generation(3);
is(stat_of($former, 'detail'), '', 'a later generation: nothing is said');
lease_of_generation(1);
my $said = 'the registry postgres is of generation 1, and one of generation 3 has answered before';
is(settle("ready|$said", sub { stat_of($former, 'state, detail') }), "ready|$said", 'an earlier generation: the view says it, though ids are issued');
like(slurp_file($former->logfile), qr/WARNING:  55000: snowflake: \Q$said\E\n.*DETAIL:  It is a server from before a promotion or a restore\.\n.*HINT:  Unless /,
	'an earlier generation: so does the log');
lease_of_generation(3);
is(settle('', sub { stat_of($former, 'detail') }), '', 'the later generation again: nothing is shown any more');
$former->stop;

#
# The first use: the extension is in the user's database only.
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
is(scalar @ids, 2, 'the transaction that creates the extension gets ids');
my $number = id_node($ids[0]);
like(log_since($node, $offset), qr/snowflake: created the extension snowflake_registry in database "postgres", for its tables/,
	'the log says what was created there');
like(log_since($node, $offset), qr/snowflake: leased node number $number from postgres until /, 'and which number is leased');
is($number % 2, 0, 'before a promotion numbers are even');

my $layout = $node->safe_psql('shop', 'SELECT definition FROM snowflake_layout()');
is(newest_row($node, <<SQL), join('|', ('t') x 13), 'the row says what was started, where and when');
node_number = $number, datacenter_id = node_number >> 5 AND worker_id = (node_number & 31), clock IS NULL, host_name <> '',
port = current_setting('port')::int, system_identifier = (SELECT system_identifier FROM pg_control_system()),
timeline = 1, launched_at = pg_postmaster_start_time(), layout = '$layout',
incarnation = (SELECT incarnation FROM snowflake.registry), 0 < granted_by AND granted_by <= last_call,
renewed_at BETWEEN launched_at AND clock_timestamp(),
closed_at IS NULL AND leased_until > renewed_at
	AND leased_until - greatest(renewed_at, starts_at) <= '11 s' + CASE WHEN last_call > granted_by THEN 4 * (renewed_at - launched_at) ELSE '0' END
SQL
chomp(my $host = `hostname`);
is(newest_row($node, 'host_name'), $host, 'the host name is this host');
my $id_time = $node->safe_psql('shop', "SELECT snowflake_timestamp($ids[0])");
is($node->safe_psql('postgres', <<SQL), 't|t|t', 'its ids start max_ahead after the creation, and are not far ahead');
SELECT w.starts_at >= created_at + '1 s', '$id_time' >= w.starts_at, '$id_time' < clock_timestamp() + '1 s'
FROM snowflake.worker_node AS w, snowflake.registry
SQL
is($node->safe_psql('postgres', <<'SQL'), 'own|t', 'the cluster uses its own tables');
SELECT uses, incarnation IS NULL FROM snowflake.cluster
SQL
my $seen = "ready|auto|postgres|$number|" . ($number >> 5) . '|' . ($number & 31) . '|t';
is(settle($seen, sub { $node->safe_psql('shop', <<'SQL') }), $seen, 'the view agrees');
SELECT state, worker_id_from, registry, node_number, datacenter_id, worker_id, leased_until > clock_timestamp() FROM pg_stat_snowflake
SQL
is($node->safe_psql('shop', "SELECT count(*) FROM pg_namespace WHERE nspname = 'snowflake'"), 0, 'the other database has no tables');
is($node->safe_psql('postgres', "SELECT string_agg(extname, ', ') FROM pg_extension WHERE extname LIKE 'snow%'"), 'snowflake_registry',
	'and postgres has nothing else');
# for the functions of the rest of this test
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');

#
# Each start, after whatever: a row, another number, and ids at the clock.
#
my @files = write_ids(@ids);
my %ends = (
	'clean restart' => sub { $node->stop('fast') },
	'kill -9' => sub { crash($node) },
	'immediate stop' => sub { $node->stop('immediate') });
# the extension was created at the true time, so an earlier clock would be refused
my @clocks = (2, 1);
my $clock_before = 0;
foreach my $clock (@clocks)
{
	foreach my $name (sort keys %ends)
	{
		my $label = "$name, clock $clock h ahead";
		my $clients = start_clients($node, count => 2, database => 'shop');

		$clients->wait_for(300);
		my ($token, $until) = split /\|/, newest_row($node, 'token, leased_until');
		my $stopped = time;
		$ends{$name}->();
		my $seconds = time - $stopped;
		push @files, $clients->stop;
		set_conf($node, 'snowflake.clock_offset' => $clock * HOUR);
		$node->start;
		my $begin = time;
		my @issued = issue_in($node, 'shop', 3);
		my $end = time;
		push @files, write_ids(@issued);
		my @numbers = lease_rows($node, 'node_number');
		is(scalar(keys %{ { map { $_ => 1 } @numbers } }), scalar @numbers, "$label: no number twice");
		is(scalar(grep { $_ % 2 } @numbers), 0, "$label: all are even");
		is(id_node($issued[0]), $numbers[-1], "$label: the ids have the number of the new row");
		cmp_ok(id_time($issued[0]), '>', $begin + $clock * 3600 - 0.002, "$label: the first id is not before the clock");
		cmp_ok(id_time($issued[0]), '<', $end + $clock * 3600 + 0.002, "$label: nor ahead of it");
		is(newest_row($node, 'launched_at = pg_postmaster_start_time(), closed_at IS NULL'), 't|t', "$label: the row is of this start");
		# it ends where its ids end, if that was told; else where it stands, whoever closes it
		my ($exact, $stands) = split /\|/, $node->safe_psql('postgres', <<SQL);
SELECT closed_at IS NOT NULL AND leased_until < closed_at + '3 h'::interval AND leased_until < '$until' AND leased_until > starts_at,
	leased_until >= '$until' AND leased_until >= launched_at + '$clock_before h'::interval + '9 s'::interval
FROM ${\ LEASES} AS w WHERE token = '$token'
SQL
		# a server that stops waits for this not longer than a second
		is($name ne 'clean restart' || ($exact eq 'f' && $seconds > 1) ? $stands : $exact, 't', "$label: the row of the start before");
		$clock_before = $clock;
	}
}
check_ids('starts', @files);
check_covered('starts', $node, 'shop', 12, 1023, @files);
is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node GROUP BY start HAVING count(*) > 1'), '', 'one row for each start');
like(slurp_file($node->logfile), qr/WARNING:  \w+: snowflake: the clocks of this server and of the registry postgres differ by 7[12]\d\d\.\d+ s/,
	'a clock that is hours ahead is noticed');
set_clock($node, 0);

#
# A fixed datacenter: numbers of that one only.
#
@files = ();
sub number_in
{
	my ($least, $greatest) = @_;

	return poll("a number from $least to $greatest", sub {
			my $n = id_node((issue_ids($node, 1))[0]);
			return $n >= $least && $n <= $greatest ? $n + 1 : 0 }) - 1;
}
my $clients = start_clients($node, count => 2, database => 'shop');
foreach my $step ([ 3, 96, 127 ], [ -1, 96, 127 ], [ 0, 0, 31 ])
{
	my ($datacenter, $least, $greatest) = @$step;

	$clients->wait_for(100);
	set_and_reload($node, 'snowflake.datacenter_id' => $datacenter);
	my $n = number_in($least, $greatest);
	is(newest_row($node, 'node_number, datacenter_id, worker_id, closed_at IS NULL'),
		"$n|" . ($n >> 5) . '|' . ($n & 31) . '|t', "datacenter_id $datacenter: number $n");
	is($n % 2, 0, "datacenter_id $datacenter: an even one");
}
$clients->wait_for(100);
push @files, $clients->stop;
is($clients->errors, '', 'datacenters: sessions notice nothing');
check_ids('datacenters', split_ids(12, 1023, @files));
check_covered('datacenters', $node, 'shop', 12, 1023, @files);

# The greatest number is reserved.
set_and_reload($node, 'snowflake.datacenter_id' => 31, 'snowflake.worker_id' => 31);
my $error;
poll('refusal', sub { ($error = sql_error($node, $quick, 'shop')) =~ /reserved/ });
like($error, qr/^ERROR:  55000: node number 1023 is reserved\nDETAIL:  .*\nHINT:  /, 'the greatest number is refused');
set_and_reload($node, 'snowflake.datacenter_id' => -1, 'snowflake.worker_id' => 'auto');
number_in(0, 1022);

#
# Handing the number back.
#
$number = stat_of($node, 'node_number');
$clients = start_clients($node, count => 2, database => 'shop');
$clients->wait_for(200);
$node->safe_psql('shop', 'SELECT snowflake_release()');
$clients->wait_for(200);
@files = $clients->stop;
is($clients->errors, '', 'release: sessions notice nothing');
check_ids('release', split_ids(12, 1023, @files));
my $second = stat_of($node, 'node_number');
isnt($second, $number, 'release: the next id has another number');
$node->safe_psql('shop', 'SELECT snowflake_release(), snowflake_release()');
is(stat_of($node, 'state, node_number, leased_until'), 'starting||', 'released twice: there is none');
is($node->safe_psql('postgres', <<SQL), 't|t', 'release: the rows have the end of the ids');
SELECT closed_at IS NOT NULL, leased_until < closed_at + '1 s'::interval FROM snowflake.worker_node
WHERE node_number IN ($number, $second) GROUP BY 1, 2
SQL
check_covered('release', $node, 'shop', 12, 1023, @files);
my $third = id_node((issue_ids($node, 1))[0]);
ok($third != $number && $third != $second, 'released twice: the next id takes a number');

#
# Rights
#
$node->safe_psql('shop', 'CREATE EXTENSION snowflake_tools; CREATE ROLE anybody LOGIN; GRANT INSERT, SELECT ON orders TO anybody');
my $as_anybody = 'SET SESSION AUTHORIZATION anybody;';
is(sql_error($node, "$as_anybody INSERT INTO orders (n) SELECT 2 FROM generate_series(1, 10)", 'shop'), '',
	'anybody can insert where the default issues ids');
foreach my $call ('snowflake_release()', 'pg_stat_snowflake_reset()')
{
	like(sql_error($node, "$as_anybody SELECT $call", 'shop'), qr/^ERROR:  42501: permission denied for function/, "anybody cannot call $call");
}
like(sql_error($node, "$as_anybody SELECT snowflake.acquire_lease('{}')"), qr/^ERROR:  42501: permission denied for schema snowflake/,
	'anybody cannot use the registry that the server has made');
is($node->safe_psql('postgres', <<'SQL'), '', 'nor has any right on its functions, tables and the view');
SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace
	AND has_function_privilege('anybody', oid, 'EXECUTE')
UNION ALL
SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'snowflake'::regnamespace AND relkind IN ('r', 'v')
	AND has_table_privilege('anybody', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')
SQL
is($node->safe_psql('postgres', <<'SQL'), 't|7', 'all of which are there');
SELECT (SELECT count(*) >= 25 FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace),
	(SELECT count(*) FROM pg_class WHERE relnamespace = 'snowflake'::regnamespace AND relkind IN ('r', 'v'))
SQL
$node->safe_psql('shop', 'GRANT EXECUTE ON FUNCTION snowflake_release() TO anybody');
is(sql_error($node, "$as_anybody SELECT snowflake_release()", 'shop'), '', 'release can be granted');
is(stat_of($node, 'node_number'), '', 'and releases');
like(sql_error($node, 'TRUNCATE snowflake.worker_node'),
	qr/^ERROR:  55000: TRUNCATE on table "worker_node" is not possible\nDETAIL:  .*\nHINT:  /, 'the log cannot be truncated');
like(sql_error($node, 'DELETE FROM snowflake.node_number'),
	qr/^ERROR:  55000: DELETE on table "node_number" is not possible\nDETAIL:  .*\nHINT:  /, 'nor is any number forgotten');
$node->stop;

#
# Few numbers: each once, then the one that was unused longest.
#
my $few = auto_node('few', conf => "snowflake.layout = '${\ FEW}'\n");
# so that the first leases do not all start at the same time, max_ahead after the creation
$few->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake; SELECT pg_sleep(1.2)');
my @few = write_ids(issue_ids($few, 20));
my @order = stat_of($few, 'node_number');

# Hands the number back and asks for ids; returns the next one.
sub next_few
{
	$few->safe_psql('postgres', 'SELECT snowflake_release()');
	push @few, write_ids(issue_ids($few, 20));
	return stat_of($few, 'node_number');
}

sub set_end
{
	my ($n, $end) = @_;

	$few->safe_psql('postgres', "UPDATE snowflake.node_number SET ended_until = $end WHERE node_number = $n");
}

# one that was never used is found by some looks at random, so that it may rarely be missed
until (keys %{ { map { $_ => 1 } @order } } == 4 || @order == 12)
{
	push @order, next_few();
}
is(join(',', sort keys %{ { map { $_ => 1 } @order } }), '0,2,4,6', 'few numbers: each even one, but for the reserved one');
cmp_ok(scalar @order, '<', 6, 'few numbers: each was used once before one was used again');
# each one's last use
my %last = map { $order[$_] => $_ } 0 .. $#order;
@order = sort { $last{$a} <=> $last{$b} } keys %last;
is(join(',', map { next_few() } 0 .. 1), "$order[0],$order[1]", 'few numbers: then again in the same order');
set_end($order[2], "clock_timestamp() + '1 h'::interval");
is(join(',', map { next_few() } 1 .. 4), "$order[3],$order[0],$order[1],$order[3]", 'few numbers: not one whose end is not past');
set_end($order[2], "clock_timestamp() - '4 h'::interval");
set_end($order[0], "clock_timestamp() - '3 h'::interval");
# it remembers where its ids of these numbers end, and takes no lease that starts before
$few->restart;
push @few, write_ids(issue_ids($few, 20));
is(join(',', stat_of($few, 'node_number'), next_few()), "$order[2],$order[0]", 'few numbers: the longest unused first');
check_ids('few numbers', split_ids(12, 7, @few));

#
# All of them are leased.  A session that waits gets a number as soon as one end is past.
#
# As if other servers had them, the first one for some seconds.
$few->safe_psql('postgres', 'SELECT snowflake_release()');
my $until = "now() + CASE n.node_number WHEN $order[3] THEN '15 s' ELSE '5 min' END::interval";
$few->safe_psql('postgres', <<SQL);
UPDATE snowflake.node_number AS n SET token = gen_random_uuid(), start = gen_random_uuid(), granted_by = 1, last_call = 1, own = false, fixed = false,
	system_identifier = 1, role = 'other', incarnation = r.incarnation, generation = 1, starts_at = now(), leased_until = $until,
	recorded_until = $until, renewed_at = now()
FROM snowflake.registry AS r
SQL
my $free_at = $few->safe_psql('postgres', "SELECT leased_until FROM snowflake.node_number WHERE node_number = $order[3]");
poll('a result', sub { ($error = sql_error($few, $quick)) !~ /gave up waiting/ });
like($error, qr/^ERROR:  53400: no node number is free\nDETAIL:  Of 4 numbers the earliest end is .*\nHINT:  /,
	'all are leased: an error');
is(stat_of($few, "state, detail LIKE '%no node number is free%', node_number IS NULL"), 'refused|t|t', 'all are leased: the view');
my $first_free = poll('ids', sub { my ($status, $out, $said) = $few->psql('postgres', $quick); die $said if $status && $said !~ /no node number is free|gave up waiting/; $out });
push @few, write_ids($first_free);
is($first_free >> 12 & 7, $order[3], 'all are leased: ids go on with the number that is free first');
is($few->safe_psql('postgres', <<SQL), 't|t', 'and start after its end');
SELECT snowflake_timestamp($first_free) >= '$free_at', starts_at >= '$free_at' AND ended_until = '$free_at'
FROM snowflake.node_number WHERE node_number = $order[3]
SQL
is($few->safe_psql('postgres', "SELECT snowflake.ids_end_before(now(), 'other')"), 3, 'the owner ends the leases of the others');
check_ids('all leased', split_ids(12, 7, @few));

#
# The clock is an hour ahead, and is set back while ids are issued.
#
set_clock($few, HOUR);
$clients = start_clients($few, count => 3);
$clients->wait_for(300);
my $old_number = stat_of($few, 'node_number');
my $switches = stat_of($few, 'worker_switches');
$offset = log_end($few);
set_clock($few, 0);
poll('another number', sub { stat_of($few, 'node_number') !~ /^($old_number)?$/ });
$clients->wait_for(300);
my @through = $clients->stop;
is($clients->errors, '', 'clock set back: sessions notice nothing');
is(stat_of($few, 'worker_switches') - $switches, 1, 'clock set back: the switch is counted');
my @said = log_since($few, $offset) =~
  /snowflake: the clock is 3[56]\d\d\.\d+ s behind the last id of node number $old_number; another one is taken/g;
is(scalar @said, 1, 'clock set back: and logged, once');
like(log_since($few, $offset), qr/snowflake: leased node number (?!$old_number)/, 'clock set back: the log has the new number');
my ($now) = issue_ids($few, 1);
push @through, write_ids($now);
is($few->safe_psql('postgres', "SELECT snowflake_timestamp($now) < clock_timestamp() + '1 s'::interval"), 't',
	'clock set back: the ids go on at the clock');
is($few->safe_psql('postgres', <<SQL), 't|t', 'clock set back: the row of the old number keeps its end');
SELECT leased_until > clock_timestamp() + '50 min'::interval, closed_at IS NOT NULL
FROM ${\ LEASES} AS w WHERE node_number = $old_number ORDER BY launched_at DESC, closed_at DESC LIMIT 1
SQL

# It is taken again only when the clock has come there.
push @few, split_ids(12, 7, @through);
unlike(join(',', map { next_few() } 1 .. 5), qr/$old_number/, 'clock set back: a number whose ids are ahead is not used again');
check_ids('clock set back', split_ids(12, 7, @few));
check_covered('clock set back', $few, 'postgres', 12, 7, @few);

#
# The end moves while ids are issued, and only then.
#
set_conf($few, 'snowflake.lease_duration' => '1s', 'snowflake.max_ahead' => 0);
$few->restart;
my $row = 'node_number, leased_until, renewed_at';
poll('row of this start', sub { newest_row($few, 'launched_at = pg_postmaster_start_time()') eq 't' });
my $idle = newest_row($few, $row);
poll('the end to pass', sub { newest_row($few, "leased_until + '300 ms'::interval < clock_timestamp()") eq 't' });
is(newest_row($few, $row), $idle, 'idle: the row stays as it is');
push @few, write_ids(issue_ids($few, 5));
my ($idle_number, $idle_until) = split /\|/, $idle;
is(newest_row($few, "node_number, leased_until > '$idle_until'"), "$idle_number|t",
	'idle, then ids: the same number, its end moved');
my $renewed = newest_row($few, $row);
$clients = start_clients($few, count => 2);
foreach my $i (1 .. 3)
{
	poll('renewal', sub { newest_row($few, $row) ne $renewed });
	$renewed = newest_row($few, $row);
	is(newest_row($few, 'node_number, leased_until > renewed_at'), "$idle_number|t", "renewal $i");
}
push @few, $clients->stop;
is($clients->errors, '', 'renewals: sessions notice nothing');
cmp_ok(stat_of($few, 'lease_renewals'), '>=', 4, 'renewals are counted');
check_ids('renewals', split_ids(12, 7, @few));
check_covered('renewals', $few, 'postgres', 12, 7, @few);

# A fixed number stays what it is.
set_and_reload($few, 'snowflake.worker_id' => 5);
poll('the fixed number', sub { issue_ids($few, 1); stat_of($few, 'node_number') eq '5' });
set_clock($few, HOUR);
issue_ids($few, 1);
set_clock($few, 0);
like(sql_error($few, $quick), qr/^ERROR:  55P03: the next id would be 3[56]\d\d\.\d+ s ahead/,
	'clock set back: a fixed number errors');
is(stat_of($few, 'node_number'), '5', 'clock set back: and is not given up');
$few->stop;

#
# A worker id with several numbers of its own goes on in another one, also over a
# restart.
#
my $clocked = auto_node('clocked', conf => "snowflake.layout = '${\ CLOCKED}'\nsnowflake.worker_id = '3'\nsnowflake.clock_offset = '3h'\n");
$clocked->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake');
# also where the clock is hours behind the ids of a number
limit_leases($clocked, '4 h');
my @clocked = write_ids(my ($id) = issue_ids($clocked, 10));
my @numbers = ($id >> 12 & 127);
$clocked->restart;
push @clocked, write_ids(($id) = issue_ids($clocked, 10));
is($id >> 12 & 127, $numbers[0], 'clock field: a restart with the clock right stays in the number');
foreach my $hours (2, 1)
{
	set_clock($clocked, $hours * HOUR);
	$id = run_sql($clocked, "SET snowflake.max_wait = '1min'; SELECT snowflake_nextval();")->{out};
	push @clocked, write_ids($id);
	push @numbers, $id >> 12 & 127;
	is($clocked->safe_psql('postgres', "SELECT worker_id, clock FROM snowflake_parse($id)"), '3|' . ($numbers[-1] & 3),
		"clock $hours h ahead: the same worker id");
}
$clocked->restart;
push @clocked, write_ids(($id) = issue_ids($clocked, 10));
is($id >> 12 & 127, $numbers[-1], 'clock field: a restart stays in the number, too');
$clocked->stop('fast');
set_conf($clocked, 'snowflake.clock_offset' => '10min');
$clocked->start;
push @clocked, write_ids(($id) = issue_ids($clocked, 10));
push @numbers, $id >> 12 & 127;
is(join(',', sort { $a <=> $b } @numbers), '12,13,14,15', 'clock field: a restart with the clock back again takes the last number');
crash($clocked);
set_conf($clocked, 'snowflake.clock_offset' => 0);
$clocked->start;
poll('a result', sub { ($error = sql_error($clocked, $quick)) !~ /gave up waiting/ });
like($error, qr/^ERROR:  55P03: the next id would be (?:[45]\d\d|60\d)\.\d+ s ahead/, 'clock field: all are ahead of the clock: an error');
is(stat_of($clocked, 'node_number'), $numbers[-1], 'clock field: with the one that is ahead least');
set_clock($clocked, 2 * HOUR);
$id = run_sql($clocked, "SET snowflake.max_wait = '1min'; SELECT snowflake_nextval();")->{out};
push @clocked, write_ids($id);
isnt($id >> 12 & 127, $numbers[0], 'clock field: goes on, but not in the number whose ids are ahead');
set_clock($clocked, 4 * HOUR);
push @clocked, write_ids(issue_ids($clocked, 10));
check_ids('clock field', split_ids(12, 127, @clocked));
check_covered('clock field', $clocked, 'postgres', 12, 127, @clocked);
$clocked->stop;

done_testing();
