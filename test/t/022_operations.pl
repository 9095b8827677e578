# 022_operations.pl
#	  What administrators do to the database with the table worker_node while ids are
#	  drawn: it is dropped, renamed, copied, dumped, restored, replicated, given other
#	  defaults, and its commits wait for a standby that is not there.  Ids go on as long
#	  as they can, then errors say why, then draws resume by themselves; none repeats.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeStatement;
use Time::HiRes qw(time usleep);

# There are not too many ids.
my $slowly = <<'SQL';
SELECT snowflake_nextval() FROM generate_series(1, 20);
SELECT snowflake_nextval_batch(10);
DO 'BEGIN PERFORM pg_sleep(0.002); END';
SQL

my $directory = PostgreSQL::Test::Utils::tempdir('operations');

# A helper may be connected to the database for a moment.
sub try_sql
{
	my ($node, $label, $sql, $database) = @_;
	my $end = time + 60;
	my $error;

	do
	{
		$error = sql_error($node, $sql, $database);
	} while ($error =~ /being accessed by other users/ && time < $end);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($error, '', "$label: succeeds");
}

my $node = auto_node('main', conf => <<'EOC');
snowflake.database = 'leases'
snowflake.lease_duration = '3s'
wal_writer_delay = '10s'
wal_level = replica
max_wal_senders = 2
EOC
$node->safe_psql('postgres', 'CREATE DATABASE app');
$node->safe_psql('app', 'CREATE EXTENSION snowflake');
like(sql_error($node, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()", 'app'),
	qr/^ERROR:  \w{5}: database "leases" does not exist\n(DETAIL:  .*\n)?HINT:  Create it, or set snowflake.database/m,
	'without the database draws say what is missing');
$node->safe_psql('postgres', 'CREATE DATABASE leases');
poll('the first id', sub { sql_error($node, 'SELECT snowflake_nextval()', 'app') eq '' });
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');

my @files;

# Errors come soon if it may not wait long.
sub start_slowly
{
	my ($max_wait) = (@_, '30s');
	my $drawers = start_drawers($node, count => 2, database => 'app', sql => "SET snowflake.max_wait = '$max_wait';\n$slowly");

	$drawers->wait_for(200);
	return $drawers;
}

sub stop_drawers
{
	my ($drawers) = @_;
	my @new = $drawers->stop;

	push @files, @new;
	return @new;
}

#
# Copied, renamed, dropped
#
my $drawers = start_slowly();
my $renewals = newest_row($node, 'renewed_at', 'leases');
foreach my $i (1 .. 3)
{
	try_sql($node, "CREATE DATABASE TEMPLATE $i", "CREATE DATABASE copy$i TEMPLATE leases");
	poll('renewal', sub { newest_row($node, 'renewed_at', 'leases') ne $renewals });
	$renewals = newest_row($node, 'renewed_at', 'leases');
}
is($node->safe_psql('copy1', 'SELECT count(*) > 0 FROM snowflake.worker_node'), 't', 'the copy has the rows');
try_sql($node, 'rename there and back', 'ALTER DATABASE leases RENAME TO gone');
usleep(500_000);
try_sql($node, 'rename back', 'ALTER DATABASE gone RENAME TO leases');
$drawers->wait_for(200);
my $number = stat_of($node, 'node_number');
stop_drawers($drawers);
is($drawers->errors, '', 'copied and renamed: sessions notice nothing');

$drawers = start_slowly('300ms');
try_sql($node, 'rename for long', 'ALTER DATABASE leases RENAME TO gone');
poll('errors', sub { $drawers->errors =~ /ERROR/ });
like($drawers->errors, qr/\A(psql:.*)?ERROR:  \w{5}: .*database "leases" does not exist/, 'renamed for long: errors say why');
try_sql($node, 'rename back later', 'ALTER DATABASE gone RENAME TO leases');
$drawers->wait_for(200);
stop_drawers($drawers);
is(stat_of($node, 'node_number'), $number, 'renamed for long: the same number goes on');

foreach my $drop (
	[ 'DROP DATABASE', sub {
			try_sql($node, 'DROP DATABASE', 'DROP DATABASE leases');
			usleep(200_000);
			try_sql($node, 'CREATE DATABASE', 'CREATE DATABASE leases') } ],
	[ 'another one in its place', sub {
			try_sql($node, 'DROP DATABASE', 'DROP DATABASE leases');
			try_sql($node, 'RENAME', 'ALTER DATABASE copy2 RENAME TO leases') } ],
	[ 'DROP EXTENSION', sub {
			try_sql($node, 'DROP EXTENSION', 'DROP EXTENSION snowflake', 'leases');
			usleep(200_000);
			# where the worker creates it at the same moment, one of the two fails
			sql_error($node, 'CREATE EXTENSION IF NOT EXISTS snowflake', 'leases');
			try_sql($node, 'CREATE EXTENSION', 'CREATE EXTENSION IF NOT EXISTS snowflake', 'leases') } ],
	[ 'DROP and CREATE EXTENSION in one transaction', sub {
			try_sql($node, 'both', 'BEGIN; DROP EXTENSION snowflake; CREATE EXTENSION snowflake; COMMIT', 'leases') } ])
{
	my ($label, $run) = @$drop;

	$drawers = start_slowly('300ms');
	my $greatest = (draw($node, 1))[0];
	$run->();
	poll("$label: row", sub {
			my ($status, $out) = $node->psql('leases', <<'SQL');
SELECT count(*) FROM snowflake.worker_node, snowflake.registry
WHERE worker_node.incarnation = registry.incarnation AND released_at IS NULL AND leased_until > clock_timestamp()
SQL
			($out // '') eq '1' });
	$drawers->wait_for(200);
	stop_drawers($drawers);
	unlike($drawers->errors, qr/ERROR:  (?!55P03|3D000|42)/, "$label: no other errors than of waiting");
	cmp_ok((draw($node, 1))[0], '>', $greatest, "$label: ids go on above");
}

# The clock is set back besides: the new table tells nothing of ids that are ahead, and
# neither does the state file of a number that was never used.
my ($greatest) = draw($node, 1);
$node->safe_psql('leases', 'DROP EXTENSION snowflake');
my $offset = log_end($node);
set_and_reload($node, 'snowflake.datacenter_id' => 9);
set_clock($node, -3_600_000);
poll('lease from the new table', sub {
		sql_error($node, "SET snowflake.max_wait = '200ms'; SELECT snowflake_nextval()") eq ''
		  || log_since($node, $offset) =~ /node numbers come from another table/ });
my $error;
poll('the new lease', sub {
		($error = sql_error($node, "SET snowflake.max_wait = '200ms'; SELECT snowflake_nextval()")) !~ /gave up waiting/ });
like($error,
	qr/^ERROR:  55P03: the next id would be 3[2-6]\d\d\.\d+ s ahead/, 'dropped, and the clock set back: no id below those before');
set_clock($node, 0);
set_and_reload($node, 'snowflake.datacenter_id' => -1);
push @files, write_ids(my ($next) = draw($node, 1));
cmp_ok($next, '>', $greatest, 'dropped, and the clock right again: ids go on above');
check_ids('copied, renamed, dropped', split_ids(12, 1023, @files));

#
# Dumped and restored under the same name, and the extension in other databases
#
my @before = start_slowly()->stop;
push @before, write_ids(draw($node, 10));
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$directory/leases.dump", '-d', $node->connstr('leases') ], 'pg_dump of leases');
$node->stop('fast');
$node->start;
push @before, write_ids(draw($node, 10));
try_sql($node, 'replace: DROP', 'DROP DATABASE leases');
try_sql($node, 'replace: CREATE', 'CREATE DATABASE leases TEMPLATE template0');
$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr('leases'), "$directory/leases.dump" ], 'pg_restore of leases');
poll('row in the restored table', sub { draw($node, 1); $node->safe_psql('leases', <<'SQL') eq 't' });
SELECT EXISTS (SELECT FROM snowflake.worker_node w, snowflake.registry r WHERE w.incarnation = r.incarnation)
SQL
my @after = write_ids(draw($node, 10));
$node->restart;
push @after, write_ids(draw($node, 10)), start_slowly()->stop;
check_phases('replaced by its dump', \@before, \@after);
is($node->safe_psql('leases', <<'SQL'), 't|t', 'the history of the dump is there');
SELECT count(DISTINCT w.incarnation) >= 2,
	bool_or(w.incarnation <> r.incarnation AND w.launched_at < pg_postmaster_start_time() - '1 s'::interval)
FROM snowflake.worker_node w, snowflake.registry r
SQL

$node->safe_psql('template1', 'CREATE EXTENSION snowflake');
try_sql($node, 'in template1', 'CREATE DATABASE child');
push @files, write_ids(map { draw_in($node, $_, 5) } qw(child app postgres leases template1 child));
is($node->safe_psql('child', 'SELECT count(*) FROM snowflake.worker_node'), '0', 'a child of template1 has no rows');
check_ids('several databases', split_ids(12, 1023, @files, @before, @after));

#
# Other defaults of the database, also over a crash right after the lease.
#
$node->safe_psql('leases', <<'SQL');
CREATE SCHEMA trap;
CREATE FUNCTION trap.gen_random_uuid() RETURNS uuid LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped''; END';
CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped''; END';
ALTER DATABASE leases SET default_transaction_isolation = 'serializable';
ALTER DATABASE leases SET synchronous_commit = off;
ALTER DATABASE leases SET search_path = trap, pg_catalog;
ALTER DATABASE leases SET session_replication_role = 'replica';
ALTER DATABASE leases SET "TimeZone" = 'Asia/Kathmandu';
ALTER DATABASE leases SET "DateStyle" = 'German';
ALTER DATABASE leases SET "IntervalStyle" = 'iso_8601';
ALTER DATABASE leases SET default_transaction_read_only = on;
SQL
my @ids;
foreach my $end ('fast', 'immediate', 'immediate', 'crash')
{
	$end eq 'crash' ? crash($node) : $node->stop($end);
	$node->start;
	push @ids, draw_in($node, 'app', 3);
	is(newest_row($node, 'launched_at = pg_postmaster_start_time(), node_number', 'leases'), 't|' . id_node($ids[-1]),
		"odd defaults: a row after $end");
}
my $token = newest_row($node, 'token', 'leases');
$node->stop('fast');
$node->start;
push @ids, draw_in($node, 'app', 3);
poll('row', sub { newest_row($node, 'token', 'leases') ne $token });
$token = newest_row($node, 'token', 'leases');
crash($node);
$node->start;
push @ids, draw_in($node, 'app', 3);
is($node->safe_psql('leases', "SELECT count(*) FROM snowflake.worker_node WHERE token = '$token'"), '1',
	'odd defaults: the row of a lease is there after a crash that came at once');
$drawers = start_slowly();
$renewals = newest_row($node, 'leased_until', 'leases');
poll('renewal', sub { newest_row($node, 'leased_until > \'' . $renewals . '\'', 'leases') eq 't' });
stop_drawers($drawers);
is($drawers->errors, '', 'odd defaults: renewals work');
check_covered('odd defaults', $node, 'leases', 12, 1023, write_ids(@ids));
push @files, write_ids($_) foreach @ids;

#
# Commits wait for a standby that is not there, also where warnings are not logged.
#
$node->safe_psql('postgres', 'ALTER DATABASE leases RESET ALL');
$drawers = start_slowly('300ms');
set_and_reload($node, synchronous_standby_names => 'nobody');
poll('errors', sub { $drawers->errors =~ /ERROR/ });
unlike($drawers->errors, qr/ERROR:  (?!55P03)/, 'no standby: draws run into the bound');
set_and_reload($node, synchronous_standby_names => '');
$drawers->wait_for(200);
stop_drawers($drawers);

set_and_reload($node, synchronous_standby_names => 'nobody');
$number = $node->safe_psql('app', 'SELECT snowflake_release()');
my $worker_pid = worker_pid($node);
my $ticks = cpu_ticks($worker_pid);
my $asked = time;
poll('the reason', sub {
		($error = sql_error($node, "SET snowflake.max_wait = '2500ms'; SELECT snowflake_nextval()", 'app')) !~ /gave up waiting|No background worker/ });
like($error, qr/^ERROR:  55P03: .*\nDETAIL:  .*synchronous standby/, 'no standby: a draw says why it got no number');
cmp_ok((cpu_ticks($worker_pid) - $ticks) / (time - $asked), '<', 20, 'no standby: the lease worker waits asleep');
my $helper = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake helper' AND wait_event = 'SyncRep'";
foreach my $i (1 .. 2)
{
	$offset = log_end($node);
	my $pid = poll('helper that waits', sub { $node->safe_psql('postgres', $helper) });
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	poll("end of helper $pid", sub { $node->safe_psql('postgres', $helper) ne $pid });
	like(sql_error($node, "SET snowflake.max_wait = '10ms'; SELECT snowflake_nextval()", 'app'), qr/^ERROR:  55P03: /,
		"cancelled wait $i: no id is drawn");
	is(stat_of($node, 'state, node_number, leased_until'), 'starting||', "cancelled wait $i: there is no number");
	like(log_since($node, $offset), qr/canceling wait for synchronous replication/, "cancelled wait $i: the log says so") if $i == 1;
	set_and_reload($node, log_min_messages => 'log');
}
set_and_reload($node, synchronous_standby_names => '', log_min_messages => undef);
my $resumed = run_sql($node, "SET snowflake.max_wait = '1min'; SELECT snowflake_nextval();", 'app');
is($resumed->{error}, '', 'waits no longer: draws resume');
push @files, write_ids($resumed->{out});
is(newest_row($node, 'node_number, released_at IS NULL', 'leases'), id_node($resumed->{out}) . '|t',
	'waits no longer: with an open row');
is($node->safe_psql('leases', <<'SQL'), '1', 'waits no longer: what was not used is not left open');
SELECT count(*) FROM snowflake.worker_node JOIN snowflake.registry USING (incarnation) WHERE released_at IS NULL
SQL

#
# The log is not filled by what happens often.
#
$offset = log_end($node);
my $begin = time;
foreach my $i (1 .. 15)
{
	push @files, write_ids(split /\n/, $node->safe_psql('app', "SELECT snowflake_nextval() FROM generate_series(1, 5)"));
	isnt($node->safe_psql('app', 'SELECT snowflake_release()'), '', "release $i") if $i == 1 || $i == 15;
	$node->safe_psql('app', 'SELECT snowflake_release()') unless $i == 1 || $i == 15;
}
my $log = log_since($node, $offset);
foreach my $line ('snowflake: leased node number', 'snowflake: released the node number')
{
	my @lines = $log =~ /\Q$line/g;
	cmp_ok(scalar @lines, '<=', 2 + (time - $begin) / 60, "log: \"$line\" not 15 times");
}
check_ids('all of main', split_ids(12, 1023, @files, @before, @after));
$node->stop;

#
# A dump by the owner of the database, who is nobody special.
#
my $shop = auto_node('shop', conf => "snowflake.database = 'shop'\n");
$shop->safe_psql('postgres', 'CREATE ROLE owner LOGIN NOSUPERUSER');
$shop->safe_psql('postgres', 'CREATE DATABASE shop OWNER owner');
$shop->safe_psql('shop', 'CREATE EXTENSION snowflake; GRANT ALL ON SCHEMA public TO owner');
my @shop;
foreach my $i (1 .. 3)
{
	push @shop, draw_in($shop, 'shop', 2);
	$shop->restart;
}
$shop->safe_psql('shop', <<'SQL');
SET SESSION AUTHORIZATION owner;
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n int);
INSERT INTO orders (n) SELECT i FROM generate_series(1, 100) i;
SQL
$shop->command_ok([ 'pg_dump', '-U', 'owner', '-Fc', '-f', "$directory/shop.dump", '-d', $shop->connstr('shop') ],
	'pg_dump by the owner');
my $history = $shop->safe_psql('shop', <<'SQL');
SELECT string_agg(w::text, ';' ORDER BY id) FROM snowflake.worker_node w WHERE released_at IS NOT NULL
SQL
is(scalar(my @rows = split /;/, $history), 3, 'three starts are in the table');

my $other = auto_node('other', conf => "snowflake.database = 'shop'\n");
$other->safe_psql('postgres', 'CREATE ROLE owner LOGIN NOSUPERUSER');
$other->safe_psql('postgres', 'CREATE DATABASE shop OWNER owner TEMPLATE template0');
$other->command_ok([ 'pg_restore', '-e', '-d', $other->connstr('shop'), "$directory/shop.dump" ], 'restored by a superuser');
my @other = draw_in($other, 'shop', 2);
$other->restart;
push @other, draw_in($other, 'shop', 2);
$other->safe_psql('shop', "SET SESSION AUTHORIZATION owner; INSERT INTO orders (n) SELECT i FROM generate_series(1, 100) i");
is($other->safe_psql('shop', 'SELECT count(*), count(DISTINCT id) FROM orders'), '200|200', 'restored: draws clash with none');
is($other->safe_psql('shop', <<'SQL'), $history, 'restored: the history came along');
SELECT string_agg(w::text, ';' ORDER BY id) FROM snowflake.worker_node w
WHERE system_identifier <> (SELECT system_identifier FROM pg_control_system()) AND released_at IS NOT NULL
SQL
is($other->safe_psql('shop', <<'SQL'), '2|t|t', 'restored: its own rows are of its own table and follow');
SELECT count(*), bool_and(w.incarnation = r.incarnation),
	max(id) > (SELECT max(id) FROM snowflake.worker_node WHERE incarnation <> r.incarnation)
FROM snowflake.worker_node w, snowflake.registry r
WHERE system_identifier = (SELECT system_identifier FROM pg_control_system()) GROUP BY r.incarnation
SQL
check_ids('the dumped server', write_ids(@shop));
check_ids('the restored server', write_ids(@other));
$_->stop foreach $shop, $other;

#
# All tables are published both ways.
#
my @pair = map {
	auto_node($_, init => [ allows_streaming => 'logical' ], conf => "snowflake.lease_duration = '3s'\n")
} qw(left right);
my %tables = (left => 'from_left', right => 'from_right');
foreach my $n (@pair)
{
	# 15 has no origin = none: what was brought here is not taken back
	my $own = $tables{ $n->name };
	$n->safe_psql('postgres', <<SQL);
CREATE EXTENSION snowflake;
CREATE TABLE from_left (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n int);
CREATE TABLE from_right (LIKE from_left INCLUDING ALL);
CREATE FUNCTION ignore() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER ignore BEFORE INSERT OR UPDATE OR DELETE ON $own FOR EACH ROW EXECUTE FUNCTION ignore();
ALTER TABLE $own ENABLE REPLICA TRIGGER ignore;
INSERT INTO $own (n) SELECT i FROM generate_series(1, 50) i;
CREATE PUBLICATION everything FOR ALL TABLES;
SQL
}
foreach my $i (0, 1)
{
	my ($from, $to) = ($pair[$i], $pair[ 1 - $i ]);
	$to->safe_psql('postgres', "CREATE SUBSCRIPTION sub_" . $to->name
		  . ' CONNECTION $$' . $from->connstr('postgres') . '$$ PUBLICATION everything');
}
foreach my $i (0, 1)
{
	$pair[$i]->wait_for_subscription_sync($pair[ 1 - $i ], 'sub_' . $pair[$i]->name);
}
my $worker = "SELECT pid FROM pg_stat_subscription WHERE relid IS NULL";
my @workers = map { $_->safe_psql('postgres', $worker) } @pair;

# Leases are taken, renewed and given back.
foreach my $n (@pair)
{
	my $own = $tables{ $n->name };
	$n->safe_psql('postgres', "INSERT INTO $own (n) SELECT i FROM generate_series(51, 100) i; SELECT snowflake_release()");
	$n->safe_psql('postgres', "INSERT INTO $own (n) SELECT i FROM generate_series(101, 150) i");
	my $was = newest_row($n, 'renewed_at');
	poll('renewal', sub { draw($n, 1); newest_row($n, 'renewed_at') ne $was });
	$n->safe_psql('postgres', "DELETE FROM $own WHERE n = 150");
}
foreach my $i (0, 1)
{
	my ($from, $to) = ($pair[$i], $pair[ 1 - $i ]);
	my $own = $tables{ $from->name };
	my $contents = "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM $own";

	$from->wait_for_catchup('sub_' . $to->name);
	is($to->safe_psql('postgres', $contents), $from->safe_psql('postgres', $contents), "$own is replicated");
	like($to->safe_psql('postgres', $contents), qr/^149\|149\|/, "$own has all rows");
	is($from->safe_psql('postgres', <<'SQL'), '0|2|1', $from->name . ' has its own leases only');
SELECT count(*) FILTER (WHERE system_identifier <> (SELECT system_identifier FROM pg_control_system())),
	count(*), (SELECT count(*) FROM snowflake.registry)
FROM snowflake.worker_node
SQL
	is($from->safe_psql('postgres', $worker), $workers[$i], $from->name . ': the replication worker has not been restarted');
	unlike(slurp_file($from->logfile), qr/ERROR: /, $from->name . ': no errors in the log');
}

# Somebody has locked the table for long.
my $gate = $pair[0]->background_psql('postgres');
$gate->query_safe('BEGIN; SELECT FROM snowflake.registry FOR UPDATE');
$pair[0]->safe_psql('postgres', 'SELECT snowflake_release()');
poll('the reason', sub {
		($error = sql_error($pair[0], "SET snowflake.max_wait = '12s'; SELECT snowflake_nextval()")) !~ /gave up waiting|no answer yet/ });
like($error, qr/^.*ERROR:  55P03: a table of the schema snowflake is locked\nHINT:  See who holds a lock/, 'locked: errors say so');
$gate->query_safe('COMMIT');
$gate->quit;
is(scalar draw($pair[0], 1), 1, 'locked: ids go on afterwards');
$_->stop foreach @pair;

done_testing();
