# 008_odd_places.pl
#	  Servers that are not as usual: without preloading, without the worker, with a
#	  worker that is killed, in single-user mode, as pg_upgrade starts them, and with
#	  databases that come and go.  Ids are issued or refused with a hint, the parse
#	  side always works, and no id repeats or is less than those before afterwards.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeStatement;

my $preload_hint = qr/HINT:  Add snowflake to shared_preload_libraries in postgresql\.conf and restart the server\./;

# All that uniqueness depends on.
sub tables
{
	my ($node) = @_;

	return $node->safe_psql('postgres', 'SELECT * FROM snowflake.node_number ORDER BY node_number;
		SELECT * FROM snowflake.worker_node ORDER BY token; SELECT * FROM snowflake.registry; SELECT * FROM snowflake.cluster');
}

sub parse_side_works
{
	my ($node, $label) = @_;

	is($node->safe_psql('postgres', "SELECT worker_id, sequence, snowflake_min_id(\"timestamp\") <= 2123966287573946369
		FROM snowflake_parse(2123966287573946369)"), '1|1|t', "$label: the parse side works");
}

#
# Not preloaded
#
my $node = new_node('plain', preload => 0, start => 0);
$node->start;
my (undef, undef, $warning) = $node->psql('postgres', 'CREATE EXTENSION snowflake');
like($warning, qr/WARNING:  snowflake is not loaded via shared_preload_libraries\nDETAIL:  .*\n$preload_hint/,
	'not preloaded: CREATE EXTENSION works and warns');
parse_side_works($node, 'not preloaded');
foreach my $call ('snowflake_nextval()', 'snowflake_nextval_batch(1)', '* FROM pg_stat_snowflake', 'pg_stat_snowflake_reset()')
{
	like(sql_error($node, "SELECT $call"), qr/ERROR:  55000: snowflake must be loaded via .*\nDETAIL:  .*\n$preload_hint/,
		"not preloaded: SELECT $call");
}
is($node->safe_psql('postgres', 'SELECT name FROM snowflake_layout()'), 'twitter', 'not preloaded: the default layout');
is($node->safe_psql('postgres', "SET snowflake.layout = 'js53'; SELECT name FROM snowflake_layout();
	SELECT * FROM snowflake_parse(snowflake_max_id('infinity', 'js53'));") =~ /^js53\n.*\|\|127\|\|255\z/s, 1,
	'not preloaded: the ordinary setting snowflake.layout changes it');
$node->safe_psql('postgres', "ALTER DATABASE postgres SET snowflake.layout = 'discord'");
is($node->safe_psql('postgres', 'SELECT name FROM snowflake_layout()'), 'discord', 'not preloaded: also for a database');
like(sql_error($node, "SET snowflake.layout = 'nonsense'; SELECT snowflake_timestamp(1)"),
	qr/ERROR:  22023: invalid layout: "nonsense"/, 'not preloaded: a bad one is refused when it is used');

#
# Beside a library that asks for shared memory and a named lock, as many do
#
SKIP:
{
	skip 'pg_stat_statements is not installed', 2
	  unless $node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_stat_statements'") eq '1';
	$node->stop;
	$node = new_node('beside', conf => "shared_preload_libraries = 'pg_stat_statements, snowflake'\n", start => 0);
	ok($node->start(fail_ok => 1), 'another library is asked what it needs');
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_stat_statements; CREATE EXTENSION snowflake');
	is($node->safe_psql('postgres', "SELECT snowflake_nextval() IS NOT NULL;
		SELECT calls FROM pg_stat_statements WHERE query LIKE 'SELECT snowflake_nextval()%'"), "t\n1", 'both work');
}
$node->stop;

#
# The worker cannot start
#
$node = new_node('no_worker', conf => "max_worker_processes = 0\n");
my $result = run_sql($node, "SET snowflake.max_wait = '700ms'; SELECT snowflake_nextval();");
like($result->{error}, qr/ERROR:  55P03: gave up waiting for a node number\nDETAIL:  .*0\.700 s\.\nHINT:  .*max_worker_processes/,
	'no worker: a call fails');
cmp_ok($result->{seconds}, '>', 0.7, 'no worker: after max_wait');
is(stat_of($node, "concat_ws(',', state, detail)"), 'starting,until the lease worker has opened a lease', 'no worker: state');
parse_side_works($node, 'no worker');
is($node->safe_psql('postgres', "SELECT to_regnamespace('snowflake')"), '', 'no worker: no tables');
$node->stop;

#
# The worker is ended again and again
#
set_conf($node, max_worker_processes => 8);
$node->start;
my $clients = start_clients($node, count => 2);
foreach (1 .. 2)
{
	$clients->wait_for(1000);
	kill_process(worker_pid($node), 'TERM');
}
$clients->wait_for(1000);
my (undef, $last) = check_ids('worker ended', $clients->stop);
is($clients->errors, '', 'worker ended: calls wait for the next one');
$node->stop;

#
# Single-user mode has no lease worker.  Each line of input is a statement.  Nothing waits: it would do so for an hour.
#
my @single = ($node->installed_command('postgres'), '--single', '-c', 'snowflake.max_wait=1h', '-D', $node->data_dir, 'postgres');
my ($in, $out, $error) = ("SELECT snowflake_nextval()\nSELECT snowflake_nextval_batch(2)\nSELECT snowflake_release()\n"
	. "SELECT state, detail FROM pg_stat_snowflake\nSELECT sequence FROM snowflake_parse($last)\n", '', '');

IPC::Run::run(\@single, '<', \$in, '>', \$out, '2>', \$error, IPC::Run::timeout(60)) or die "single-user mode: $error";
is(scalar(() = $error =~ /ERROR:  55000: no ids are issued in single-user mode\n.*DETAIL:  .*\n.*HINT:  .*Start the server/g), 3,
	'single-user mode: ids are refused, and snowflake_release()') or diag($error);
like($out, qr/state = "refused".*detail = "no ids are issued in single-user mode"/s, 'single-user mode: the view says so');
like($out, qr/sequence = "@{[ $last & 4095 ]}"/, 'single-user mode: the parse side works');

#
# As pg_upgrade starts the old and the new server
#
$node->start;
poll('lease', sub { stat_of($node, 'state') eq 'ready' });
$node->stop;
system_or_bail('pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, '-o', '-b', 'start');
$node->_update_pid(1);
my $tables = tables($node);
foreach my $call ('snowflake_nextval()', 'snowflake_nextval_batch(2)')
{
	like(sql_error($node, "SET snowflake.max_wait = '1h'; SELECT $call"), qr/ERROR:  55000: no ids are issued during pg_upgrade/,
		"binary upgrade: $call");
}
is(stat_of($node, 'state'), 'refused', 'binary upgrade: state');
parse_side_works($node, 'binary upgrade');
is(tables($node), $tables, 'binary upgrade: the tables are as before');
$node->stop;

#
# Several databases
#
$node->start;
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach 'db1', 'db2';
$node->safe_psql('db2', 'CREATE EXTENSION snowflake; SELECT snowflake_nextval()');
$node->safe_psql('db1', 'CREATE EXTENSION snowflake');
my @clients = map { start_clients($node, count => 1, database => $_) } 'db1', 'postgres';
$_->wait_for(500) foreach @clients;
my $sql = 'CREATE DATABASE db3 TEMPLATE db2; ALTER DATABASE db2 RENAME TO db4; DROP DATABASE db4;';
$result = run_sql($node, $sql);
is($result->{error}, '', 'databases are copied, renamed and dropped while ids are issued elsewhere');
# the server itself gives up, with an error, after five seconds each
cmp_ok($result->{seconds}, '<', 60, 'without a long wait');
$_->wait_for(500) foreach @clients;
my @files = ((map { $_->stop } @clients), write_ids(issue_ids($node, 1), $node->safe_psql('db3', 'SELECT snowflake_nextval()')));
my ($least) = check_ids('several databases', @files);
cmp_ok($least, '>', $last, 'several databases: greater than all before');
is(join('', map { $_->errors } @clients), '', 'several databases: no errors');
$node->stop;

done_testing();
