# 016_operations.pl
#	  What administrators do to the database postgres, where the tables are, while ids are
#	  issued: it is dropped, renamed, copied, dumped, restored, replicated, given other
#	  defaults, and its commits wait for a standby that is not there.  Ids go on as long
#	  as they can, then errors say why, then they go on by themselves; none repeats.
use FindBin;
use lib "$FindBin::RealBin/../perl";
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

# The helper is connected to the database for some seconds after each call.
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

# So long that the helper leaves between two renewals.
my $node = auto_node('main', conf => <<'EOC');
snowflake.lease_duration = '16s'
wal_writer_delay = '10s'
wal_level = replica
max_wal_senders = 2
EOC
$node->safe_psql('postgres', 'CREATE DATABASE app');
$node->safe_psql('app', 'CREATE EXTENSION snowflake');
try_sql($node, 'no database postgres', 'DROP DATABASE postgres', 'app');
my $quick = "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()";
my $error;
poll('the reason', sub { ($error = sql_error($node, $quick, 'app')) !~ /gave up waiting/ });
like($error, qr/^ERROR:  55P03: database "postgres" does not exist\n(DETAIL:  .*\n)?HINT:  Create it: /m,
	'without the database the error says what is missing');
$node->safe_psql('app', 'CREATE DATABASE postgres');
poll('the first id', sub { sql_error($node, $quick, 'app') eq '' });

my @files;

# Errors come soon if it may not wait long.
sub start_slowly
{
	my ($max_wait) = (@_, '30s');
	my $clients = start_clients($node, count => 2, database => 'app', sql => "SET snowflake.max_wait = '$max_wait';\n$slowly");

	$clients->wait_for(200);
	return $clients;
}

sub stop_clients
{
	my ($clients) = @_;
	my @new = $clients->stop;

	push @files, @new;
	return @new;
}

sub node_number
{
	return $node->safe_psql('app', 'SELECT node_number FROM pg_stat_snowflake');
}

#
# Copied, renamed, dropped
#
my $clients = start_slowly();
try_sql($node, 'CREATE DATABASE TEMPLATE', 'CREATE DATABASE copied TEMPLATE postgres', 'app');
is($node->safe_psql('copied', 'SELECT count(*) > 0 FROM snowflake.worker_node'), 't', 'the copy has the rows');
like(sql_error($node, 'SELECT snowflake.closed_registry()', 'copied'), qr/^ERROR:  55000: the database "copied" cannot be a registry\n/, 'and is no registry');
try_sql($node, 'rename there and back', 'ALTER DATABASE postgres RENAME TO gone', 'app');
usleep(500_000);
like(sql_error($node, 'SELECT snowflake.closed_registry()', 'gone'), qr/^ERROR:  55000: the database "gone" cannot be a registry\n/, 'under another name it is none');
try_sql($node, 'rename back', 'ALTER DATABASE gone RENAME TO postgres', 'app');
$clients->wait_for(200);
my $number = node_number();
stop_clients($clients);
is($clients->errors, '', 'copied and renamed: sessions notice nothing');

$clients = start_slowly('300ms');
try_sql($node, 'rename for long', 'ALTER DATABASE postgres RENAME TO gone', 'app');
poll('errors', sub { $clients->errors =~ /ERROR/ });
like($clients->errors, qr/\A(psql:.*)?ERROR:  55P03: .*database "postgres" does not exist/, 'renamed for long: errors say why');
try_sql($node, 'rename back later', 'ALTER DATABASE gone RENAME TO postgres', 'app');
$clients->wait_for(200);
stop_clients($clients);
is(node_number(), $number, 'renamed for long: the same number goes on');

foreach my $drop (
	[ 'DROP DATABASE', sub {
			try_sql($node, 'DROP DATABASE', 'DROP DATABASE postgres', 'app');
			usleep(200_000);
			try_sql($node, 'CREATE DATABASE', 'CREATE DATABASE postgres', 'app') } ],
	[ 'another one in its place', sub {
			try_sql($node, 'DROP DATABASE', 'DROP DATABASE postgres', 'app');
			try_sql($node, 'RENAME', 'ALTER DATABASE copied RENAME TO postgres', 'app') } ],
	[ 'DROP EXTENSION', sub { try_sql($node, 'DROP EXTENSION', 'DROP EXTENSION snowflake_registry') } ],
	[ 'DROP and CREATE EXTENSION in one transaction', sub {
			try_sql($node, 'both', 'BEGIN; DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry; COMMIT') } ])
{
	my ($label, $run) = @$drop;

	$clients = start_slowly('300ms');
	my $incarnation = $node->safe_psql('postgres', 'SELECT incarnation FROM snowflake.registry');
	my ($greatest) = issue_in($node, 'app', 1);
	$run->();
	poll("$label: row", sub {
			my ($status, $out) = $node->psql('postgres', <<SQL);
SELECT count(*) FROM snowflake.node_number JOIN snowflake.registry USING (incarnation)
WHERE incarnation <> '$incarnation' AND leased_until > clock_timestamp()
SQL
			($out // '') eq '1' });
	$clients->wait_for(200);
	stop_clients($clients);
	unlike($clients->errors, qr/ERROR:  (?!55P03)/, "$label: no other errors than of waiting");
	cmp_ok((issue_in($node, 'app', 1))[0], '>', $greatest, "$label: ids go on after the earlier ones");
	is($node->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster'), 'own', "$label: the cluster uses its own tables");
}

# The clock was ahead, and is right besides: the new table tells nothing of ids that are ahead.
$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake');
set_clock($node, 3_600_000);
my ($greatest) = issue_in($node, 'app', 1);
try_sql($node, 'ids ahead', 'BEGIN; DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry; COMMIT');
set_clock($node, 0);
poll('refusal', sub { ($error = sql_error($node, $quick, 'app')) =~ /55000/ });
like($error,
	qr/^ERROR:  55000: the node's clock is behind ids that the registry does not know of\nDETAIL:  .*\nHINT:  .*restart the node/,
	'dropped, and the clock set back: no id less than those before');
set_clock($node, 3_605_000);
poll('ids', sub { sql_error($node, $quick, 'app') eq '' });
push @files, write_ids(my ($next) = issue_in($node, 'app', 1));
cmp_ok($next, '>', $greatest, 'dropped, and the clock as before: ids go on after the earlier ones');
check_ids('copied, renamed, dropped', split_ids(12, 1023, @files));
# what was issued ahead is given up
$node->stop('fast');
set_conf($node, 'snowflake.clock_offset' => undef);
$node->start;
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
$node->restart;
@files = grep { !grep { id_time($_) > time + 60 } read_ids($_) } @files;

#
# Dumped and restored under the same name, and the extension in other databases
#
my @before = start_slowly()->stop;
push @before, write_ids(issue_in($node, 'app', 10));
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$directory/postgres.dump", '-d', $node->connstr('postgres') ], 'pg_dump of postgres');
$node->restart;
push @before, write_ids(issue_in($node, 'app', 10));
# while ids are wanted the lease worker creates the extension itself
sleep 3;
try_sql($node, 'replace: DROP', 'DROP DATABASE postgres', 'app');
try_sql($node, 'replace: CREATE', 'CREATE DATABASE postgres TEMPLATE template0', 'app');
$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr('postgres'), "$directory/postgres.dump" ], 'pg_restore of postgres');
my @after = write_ids(issue_in($node, 'app', 10));
poll('row in the restored table', sub { issue_in($node, 'app', 1); $node->safe_psql('postgres', <<'SQL') eq 't' });
SELECT EXISTS (SELECT FROM snowflake.worker_node JOIN snowflake.registry USING (incarnation))
SQL
push @after, write_ids(issue_in($node, 'app', 10));
$node->restart;
push @after, write_ids(issue_in($node, 'app', 10)), start_slowly()->stop;
check_phases('replaced by its dump', \@before, \@after);
is($node->safe_psql('postgres', <<'SQL'), 't|t', 'the history of the dump is there');
SELECT count(DISTINCT w.incarnation) >= 2,
	bool_or(w.incarnation <> r.incarnation AND w.launched_at < pg_postmaster_start_time() - '1 s'::interval)
FROM snowflake.worker_node w, snowflake.registry r
SQL

$node->safe_psql('template1', 'CREATE EXTENSION snowflake');
try_sql($node, 'in template1', 'CREATE DATABASE child');
push @files, write_ids(map { issue_in($node, $_, 5) } qw(child app postgres template1 child));
is($node->safe_psql('child', "SELECT to_regnamespace('snowflake')"), '', 'a child of template1 has no tables');
check_ids('several databases', split_ids(12, 1023, @files, @before, @after));

#
# Other defaults of the database, also over a crash right after the lease.
#
$node->safe_psql('postgres', <<'SQL');
CREATE SCHEMA trap;
CREATE FUNCTION trap.gen_random_uuid() RETURNS uuid LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped''; END';
CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped''; END';
ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
ALTER DATABASE postgres SET synchronous_commit = off;
ALTER DATABASE postgres SET search_path = trap, pg_catalog;
ALTER DATABASE postgres SET session_replication_role = 'replica';
ALTER DATABASE postgres SET "TimeZone" = 'Asia/Kathmandu';
ALTER DATABASE postgres SET "DateStyle" = 'German';
ALTER DATABASE postgres SET "IntervalStyle" = 'iso_8601';
ALTER DATABASE postgres SET default_transaction_read_only = on;
SQL
set_conf($node, 'snowflake.lease_duration' => '3s');
my @ids;
foreach my $end ('fast', 'immediate', 'crash')
{
	$end eq 'crash' ? crash($node) : $node->stop($end);
	$node->start;
	push @ids, issue_in($node, 'app', 3);
	is(newest_row($node, 'launched_at = pg_postmaster_start_time(), node_number'), 't|' . id_node($ids[-1]),
		"odd defaults: a row after $end");
}
my $token = newest_row($node, 'token');
$node->stop('fast');
$node->start;
push @ids, issue_in($node, 'app', 3);
poll('row', sub { newest_row($node, 'token') ne $token });
$token = newest_row($node, 'token');
crash($node);
$node->start;
push @ids, issue_in($node, 'app', 3);
is($node->safe_psql('postgres', "SELECT count(*) FROM snowflake.worker_node WHERE token = '$token'"), '1',
	'odd defaults: the row of a lease is there after a crash that came at once');
$clients = start_slowly();
my $renewed = newest_row($node, 'leased_until');
poll('renewal', sub { newest_row($node, "leased_until > '$renewed'") eq 't' });
stop_clients($clients);
is($clients->errors, '', 'odd defaults: renewals work');
$node->safe_psql('app', 'ALTER DATABASE postgres RESET ALL');
check_covered('odd defaults', $node, 'postgres', 12, 1023, write_ids(@ids));
push @files, write_ids($_) foreach @ids;

#
# Commits wait for a standby that is not there, also where warnings are not logged.
#
$clients = start_slowly('300ms');
set_and_reload($node, synchronous_standby_names => 'nobody');
poll('errors', sub { $clients->errors =~ /ERROR/ });
unlike($clients->errors, qr/ERROR:  (?!55P03)/, 'no standby: ids run into the end of the lease');
set_and_reload($node, synchronous_standby_names => '');
$clients->wait_for(200);
stop_clients($clients);

$node->safe_psql('app', 'SELECT snowflake_release()');
set_and_reload($node, synchronous_standby_names => 'nobody');
my $worker_pid = worker_pid($node);
my $ticks = cpu_ticks($worker_pid);
my $asked = time;
poll('the reason', sub {
		($error = sql_error($node, "SET snowflake.max_wait = '2500ms'; SELECT snowflake_nextval()", 'app')) !~ /^$|gave up waiting|No background worker/ });
like($error, qr/^ERROR:  55P03: .*\nDETAIL:  .*synchronous standby/, 'no standby: the error says why there is no number');
cmp_ok((cpu_ticks($worker_pid) - $ticks) / (time - $asked), '<', 20, 'no standby: the lease worker waits asleep');
my $helper = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake helper' AND wait_event = 'SyncRep'";
my $offset;
foreach my $i (1 .. 2)
{
	$offset = log_end($node);
	my $pid = poll('helper that waits', sub { $node->safe_psql('postgres', $helper) });
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	poll('the cancelled wait to be a failure', sub { log_since($node, $offset) =~ /canceling wait for synchronous replication/ });
	like(sql_error($node, "SET snowflake.max_wait = '10ms'; SELECT snowflake_nextval()", 'app'), qr/^ERROR:  55P03: /,
		"cancelled wait $i: no id is issued");
	is(stat_of($node, 'state, node_number, leased_until'), 'starting||', "cancelled wait $i: there is no number");
	set_and_reload($node, log_min_messages => 'log') if $i == 1;
}
set_and_reload($node, synchronous_standby_names => '', log_min_messages => undef);
my $resumed = run_sql($node, "SET snowflake.max_wait = '1min'; SELECT snowflake_nextval();", 'app');
is($resumed->{error}, '', 'waits no longer: ids go on');
push @files, write_ids($resumed->{out});
is(newest_row($node, 'node_number, closed_at IS NULL'), id_node($resumed->{out}) . '|t', 'waits no longer: with an open row');
is($node->safe_psql('postgres', <<'SQL'), '1', 'waits no longer: what was not used is not left open');
SELECT count(*) FROM snowflake.worker_node WHERE closed_at IS NULL AND launched_at = pg_postmaster_start_time()
SQL
check_ids('all of main', split_ids(12, 1023, @files, @before, @after));
$node->stop;

#
# A dump by the owner of the database, who has no other rights.  The leases of the first three starts are
# compared: a busy machine may not have closed them when the server stopped.
#
my $shop = auto_node('shop');
$shop->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE ROLE owner LOGIN NOSUPERUSER');
$shop->safe_psql('postgres', 'ALTER DATABASE postgres OWNER TO owner; GRANT ALL ON SCHEMA public TO owner');
my @shop;
foreach my $i (1 .. 3)
{
	push @shop, issue_in($shop, 'postgres', 2);
	$shop->restart;
}
$shop->safe_psql('postgres', <<'SQL');
SET SESSION AUTHORIZATION owner;
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n int);
INSERT INTO orders (n) SELECT i FROM generate_series(1, 100) i;
SQL
$shop->command_ok([ 'pg_dump', '-U', 'owner', '-Fc', '-f', "$directory/shop.dump", '-d', $shop->connstr('postgres') ],
	'pg_dump by the owner');
my $of_lease = "concat_ws(',', token, start, granted_by, host_name, port, role, system_identifier, incarnation, node_number, layout, launched_at, starts_at, leased_until)";
my $history = $shop->safe_psql('postgres', <<SQL);
SELECT string_agg($of_lease, ';' ORDER BY launched_at) FROM ${\ LEASES} AS w
WHERE launched_at < (SELECT max(launched_at) FROM snowflake.worker_node)
SQL
is(scalar(my @rows = split /;/, $history), 3, 'three starts are in the table');

my $other = auto_node('other');
$other->safe_psql('postgres', 'CREATE ROLE owner LOGIN NOSUPERUSER');
$other->command_ok([ 'pg_restore', '-e', '-d', $other->connstr('postgres'), "$directory/shop.dump" ], 'restored by a superuser');
my @other = issue_in($other, 'postgres', 2);
$other->restart;
push @other, issue_in($other, 'postgres', 2);
$other->safe_psql('postgres', "GRANT INSERT, SELECT ON orders TO owner; SET SESSION AUTHORIZATION owner; INSERT INTO orders (n) SELECT i FROM generate_series(1, 100) i");
is($other->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM orders'), '200|200', 'restored: new ids clash with none');
is($other->safe_psql('postgres', <<SQL), $history, 'restored: the history came along');
SELECT string_agg($of_lease, ';' ORDER BY launched_at) FROM ${\ LEASES} AS w
WHERE system_identifier <> (SELECT system_identifier FROM pg_control_system())
	AND launched_at < (SELECT max(launched_at) FROM snowflake.worker_node WHERE system_identifier = w.system_identifier)
SQL
is($other->safe_psql('postgres', <<'SQL'), '2|t', 'restored: its own rows are of its own incarnation');
SELECT count(*), bool_and(w.incarnation = r.incarnation) FROM snowflake.worker_node w, snowflake.registry r
WHERE w.system_identifier = (SELECT system_identifier FROM pg_control_system())
SQL
is($other->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster'), 'own', 'restored: what the cluster uses came along');
check_ids('the dumped server', split_ids(12, 1023, write_ids(@shop)));
check_ids('the restored server', split_ids(12, 1023, write_ids(@other)));
$_->stop foreach $shop, $other;

#
# All tables are published both ways.
#
my @pair = map {
	auto_node($_, init => [ allows_streaming => 'logical' ], conf => "snowflake.lease_duration = '3s'\ndeadlock_timeout = '3s'\n")
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
INSERT INTO snowflake.guard (guard, first_at, last_at, detail) VALUES ('wait', now(), now(), '$own');
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

# Leases are taken, renewed and closed.
foreach my $n (@pair)
{
	my $own = $tables{ $n->name };
	$n->safe_psql('postgres', "INSERT INTO $own (n) SELECT i FROM generate_series(51, 100) i; SELECT snowflake_release()");
	$n->safe_psql('postgres', "INSERT INTO $own (n) SELECT i FROM generate_series(101, 150) i");
	my $was = newest_row($n, 'renewed_at');
	poll('renewal', sub { issue_ids($n, 1); newest_row($n, 'renewed_at') ne $was });
	$n->safe_psql('postgres', "DELETE FROM $own WHERE n = 150; UPDATE snowflake.guard SET times = 2");
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
	is($from->safe_psql('postgres', 'SELECT guard, times, detail FROM snowflake.guard'), "wait|2|$own", $from->name . ' has its own guards only');
	is($from->safe_psql('postgres', $worker), $workers[$i], $from->name . ': the replication worker has not been restarted');
	unlike(slurp_file($from->logfile), qr/ERROR: /, $from->name . ': no errors in the log');
}

# Somebody has locked the table for long.
my $gate = $pair[0]->background_psql('postgres');
$gate->query_safe('BEGIN; SELECT FROM snowflake.registry FOR UPDATE');
$pair[0]->safe_psql('postgres', 'SELECT snowflake_release()');
poll('the reason', sub {
		($error = sql_error($pair[0], "SET snowflake.max_wait = '12s'; SELECT snowflake_nextval()")) !~ /gave up waiting|no answer yet/ });
like($error, qr/^.*ERROR:  55P03: a table of the schema snowflake is locked\nHINT:  See what holds a lock/, 'locked: errors say so');
$gate->query_safe('COMMIT');
is(scalar issue_ids($pair[0], 1), 1, 'locked: ids go on afterwards');

# The administrator's statement and a call, which lock the tables in different orders: the
# statement is begun while the call waits, which then goes on.  Returns its SQLSTATE.
sub run_during_call
{
	my ($sql) = @_;
	my $wait_for_lock = sub {
		my ($type) = @_;
		poll("a lock that the $type waits for", sub { $pair[0]->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity
					WHERE backend_type = '$type' AND wait_event_type = 'Lock'") });
	};

	issue_ids($pair[0], 1);
	$gate->query_safe('BEGIN; SELECT FROM snowflake.registry FOR UPDATE');
	my $release = start_sql($pair[0], 'SELECT snowflake_release();');
	$wait_for_lock->('snowflake helper');
	my $statement = start_sql($pair[0], "$sql;");
	$wait_for_lock->('client backend');
	$gate->query_safe('COMMIT');
	finish_sql($release);
	return finish_sql($statement)->{code};
}
my $before_drop = log_end($pair[0]);
is(run_during_call('DROP EXTENSION snowflake_registry'), '', 'DROP EXTENSION during a call');
unlike(log_since($pair[0], $before_drop), qr/deadlock detected/, 'DROP EXTENSION during a call: it waits for the call');
$pair[0]->safe_psql('postgres', 'CREATE ROLE creator SUPERUSER; SET ROLE creator; CREATE EXTENSION snowflake_registry');
is(run_during_call('REASSIGN OWNED BY creator TO CURRENT_USER'), '', 'REASSIGN OWNED during a call: the call is cancelled');
$gate->quit;
is(scalar issue_ids($pair[0], 1), 1, 'REASSIGN OWNED during a call: ids go on afterwards');
$_->stop foreach @pair;

done_testing();
