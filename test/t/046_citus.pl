# 046_citus.pl
#	  The guard for servers of a Citus cluster: a worker with an automatic number of its own
#	  table issues no ids; the coordinator does, and can be the registry of the workers.
#	  What Citus would refuse is refused when a column is converted or reverted, also in a
#	  dry run.  Citus itself is not needed (SnowflakeCitus.pm); test/citus/run has it.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeCitus;
use SnowflakeRegistry;
use SnowflakeStatement;

my $refused = qr/^ERROR:  55000: a worker of a Citus cluster needs snowflake\.registry\nDETAIL:  Without it, .*\nHINT:  Run on the coordinator, with its address:\nSELECT run_command_on_workers\(\$\$ALTER SYSTEM SET snowflake\.registry = 'host=coordinator port=5432'\$\$\);\n/;
my $warning = qr/WARNING:  all workers of a Citus cluster need snowflake\.registry\nDETAIL:  .*\nHINT:  Run on the coordinator/;

sub create_extension
{
	my ($node) = @_;

	my $err;
	$node->psql('app', 'CREATE EXTENSION snowflake', stderr => \$err);
	return $err;
}

# A server with a database that Citus has, in which it has this group.
sub new_server
{
	my ($name, $group) = @_;
	my $node = new_node($name, start => 0, conf => "snowflake.worker_id = 'auto'\nsnowflake.lease_duration = '3s'\n");

	$node->start;
	$node->safe_psql('postgres', 'CREATE DATABASE app');
	$node->safe_psql('app', CITUS);
	$node->safe_psql('app', NODES . "UPDATE pg_dist_local_group SET groupid = $group") if defined $group;
	return $node;
}

#
# One server
#
my $alone = new_server('alone');
$alone->safe_psql('postgres', 'CREATE DATABASE early');
$alone->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$alone->safe_psql('early', 'CREATE EXTENSION snowflake');
my $early = $alone->background_psql('early', on_error_stop => 0);
like($early->query_safe('SELECT snowflake_nextval()'), qr/^\d+$/, 'before Citus is created: issued');
$alone->safe_psql('early', CITUS . NODES . 'UPDATE pg_dist_local_group SET groupid = 2');
$early->query('SELECT snowflake_nextval()');
like($early->{stderr}, qr/a worker of a Citus cluster needs/, 'it is created meanwhile: refused');
$early->quit;

unlike(create_extension($alone), qr/WARNING/, 'a server alone: no warning');
my $session = $alone->background_psql('app', on_error_stop => 0);
like($session->query_safe('SELECT snowflake_nextval()'), qr/^\d+$/, 'a server alone issues ids');

# A worker without metadata knows no other server, but those have opened the session.
{
	local $ENV{PGAPPNAME} = 'citus_internal gpid=10000000042';
	like(sql_error($alone, 'SELECT snowflake_nextval()', 'app'),
		qr/^ERROR:  55000: a worker of a Citus cluster needs .*registry = 'host=\.\.\. port=\.\.\.'/s, 'a worker without metadata: refused');
	like(sql_error($alone, "SET application_name = 'mine'; SELECT snowflake_nextval()", 'app'), qr/a worker of a Citus cluster needs/,
		'a name that is set in such a session: refused');
	$ENV{PGAPPNAME} = 'citus_internal';
	is(sql_error($alone, 'SELECT snowflake_nextval()', 'app'), '', 'a session with a name that Citus does not give: issued');
}

is(sql_error($alone, "SET application_name = 'mine'; SELECT snowflake_nextval()", 'app'), '', 'a session of a client: issued');
like(sql_error($alone, "SET application_name = 'citus_internal gpid=10000000042'; SELECT snowflake_nextval()", 'app'),
	qr/a worker of a Citus cluster needs/, 'a pooler has set the name that Citus gives: refused');

# Citus does the same to tell sessions of a change.
sub change_nodes
{
	$alone->safe_psql('app', "SET allow_system_table_mods = on; $_[0]; ALTER TABLE pg_dist_local_group SET (fillfactor = 50)");
}

change_nodes("INSERT INTO pg_dist_node (nodeid, groupid, nodename) VALUES (1, 0, 'coordinator')");
{
	local $ENV{PGAPPNAME} = 'citus_internal gpid=10000000042';
	is(sql_error($alone, 'SELECT snowflake_nextval()', 'app'), '', 'a coordinator alone, in a session of its own: issued');
}
change_nodes('DELETE FROM pg_dist_node; ' . NODES . 'UPDATE pg_dist_local_group SET groupid = 1');
$session->query('SELECT snowflake_nextval()');
like($session->{stderr}, qr/a worker of a Citus cluster needs/, 'it becomes a worker: also sessions that have issued ids are refused');
like(sql_error($alone, 'SELECT snowflake_nextval()', 'app'), $refused, 'new ones, too');
change_nodes("INSERT INTO pg_dist_node (nodeid, groupid, nodename, noderole) VALUES (4, 0, 'standby', 'secondary')");
like(sql_error($alone, 'SELECT snowflake_nextval()', 'app'), qr/= 'host=\.\.\. port=\.\.\.'/, 'two addresses of the coordinator: the hint has none');
change_nodes("DELETE FROM pg_dist_node WHERE nodeid = 4; UPDATE pg_dist_node SET nodename = 'x'' y' WHERE nodeid = 1");
like(sql_error($alone, 'SELECT snowflake_nextval()', 'app'), qr/= 'host=\.\.\. port=\.\.\.'/, 'an address with a quote: the hint has none');
change_nodes('DELETE FROM pg_dist_node; UPDATE pg_dist_local_group SET groupid = 0');
$session->{stderr} = '';
like($session->query_safe('SELECT snowflake_nextval()'), qr/^\d+$/, 'it is alone again: issued');
$session->quit;
$alone->stop;

#
# The coordinator, and a worker
#
my $coordinator = new_server('coordinator', 0);
$coordinator->safe_psql('postgres', 'CREATE EXTENSION snowflake');
like(create_extension($coordinator), $warning, 'the coordinator: CREATE EXTENSION warns');
is(sql_error($coordinator, 'SELECT snowflake_nextval()', 'app'), '', 'the coordinator issues ids');

set_and_reload($coordinator, 'snowflake.registry' => conninfo_of($coordinator));
like(poll('refusal when the lease is over', sub { sql_error($coordinator, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()", 'app') =~ s/^ERROR:  55P03(?s:.*)//r }),
	qr/^ERROR:  55000: the registry is the server itself\nDETAIL:  .*\nHINT:  Leave snowflake\.registry empty on this server\./,
	'the coordinator with itself as the registry: refused');
set_and_reload($coordinator, 'snowflake.registry' => undef);
is(settle('', sub { sql_error($coordinator, 'SELECT snowflake_nextval()', 'app') }), '', 'and empty again: issued');

my $worker = new_server('worker', 2);
like(create_extension($worker), $warning, 'a worker: CREATE EXTENSION warns');
$worker->safe_psql('app', 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), v int)');
foreach my $statement ('SELECT snowflake_nextval()', "SELECT snowflake_nextval('twitter')",
	'SELECT snowflake_nextval_batch(10)', "SELECT snowflake_nextval_batch(10, 'twitter')",
	'INSERT INTO t (v) SELECT generate_series(1, 10)')
{
	like(sql_error($worker, $statement, 'app'), $refused, "a worker: refused: $statement");
}
is(sql_error($worker, "SELECT snowflake_parse(1, 'twitter'), snowflake_min_id(now())", 'app'), '', 'a worker: ids can be parsed');
$worker->safe_psql('postgres', 'CREATE DATABASE other');
$worker->safe_psql('other', 'CREATE EXTENSION snowflake');
is(sql_error($worker, 'SELECT snowflake_nextval()', 'other'), '', 'a worker: issued in a database without Citus');

# A number that somebody chose
set_and_reload($worker, 'snowflake.worker_id' => 5);
is(sql_error($worker, 'SELECT snowflake_nextval()', 'app'), '', 'a fixed number: issued');
set_and_reload($worker, 'snowflake.worker_id' => 'auto');
like(sql_error($worker, 'SELECT snowflake_nextval()', 'app'), $refused, 'automatic again: refused');

# As the hint says
$worker->safe_psql('postgres', q{ALTER SYSTEM SET snowflake.registry = '} . conninfo_of($coordinator) . q{'});
$worker->safe_psql('postgres', 'SELECT pg_reload_conf()');
like(poll('the registry', sub { my $e = sql_error($worker, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()", 'app'); $e =~ /the one that/ && $e }),
	qr/^ERROR:  55000: the registry is not the one that the node's ids were issued with\n/, 'with the registry, and its own lease over: told what is wrong then');
# its own tables were used, in the database without Citus; they wait no longer than this when they are used again
limit_leases($worker, '10 s');
move_registry($worker, $coordinator);
is(settle('', sub { sql_error($worker, 'SELECT snowflake_nextval()', 'app') }), '', 'the registry has taken its own tables over');
poll('a number from there', sub { registry_row($coordinator, $worker, 'node_number') ne '' });
is(settle('', sub { sql_error($worker, 'INSERT INTO t (v) SELECT generate_series(1, 10)', 'app') }), '', 'with the registry: issued');
isnt(id_node($worker->safe_psql('app', 'SELECT min(id) FROM t')),
	id_node($coordinator->safe_psql('app', 'SELECT snowflake_nextval()')), 'with a number that is not the coordinator\'s');

# A session and the lease worker do not take over settings at the same time.
my $holder = $worker->background_psql('app');
$holder->query_safe('SELECT pg_advisory_lock(1)');
my $long = start_sql($worker, 'DO $$ BEGIN PERFORM snowflake_nextval(); PERFORM pg_advisory_xact_lock(1); PERFORM snowflake_nextval(); END $$;', 'app');
poll('the statement to issue an id', sub { $worker->safe_psql('app', "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") });
$worker->safe_psql('postgres', 'ALTER SYSTEM RESET snowflake.registry');
$worker->reload;
$worker->safe_psql('postgres', "SELECT snowflake.take_over_lost('" . incarnation_of($coordinator) . "')");
poll('an automatic number of the own table', sub {
		sql_error($worker, 'SELECT snowflake_nextval()', 'other') eq '' && $worker->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster') eq 'own' });
$holder->quit;
finish_sql($long);
like($long->{error}, qr/ERROR:  55000: a worker of a Citus cluster needs/, 'the registry is left while a statement goes on: refused');
my $lease_worker = worker_pid($worker);
kill 'STOP', $lease_worker;
set_and_reload($worker, 'snowflake.registry' => conninfo_of($coordinator));
poll('the setting', sub { $worker->safe_psql('app', 'SHOW snowflake.registry') });
my $unseen = sql_error($worker, "SET snowflake.max_wait = '100ms'; SELECT snowflake_nextval()", 'app');
my $over = $worker->safe_psql('app', 'SELECT bool_and(leased_until < clock_timestamp()) FROM pg_stat_snowflake') eq 't';
like($unseen, $over ? qr/$refused|^ERROR:  55P03: gave up waiting for the lease to be extended/ : $refused,
	'it is set again, and the lease worker has not seen it: refused');
kill 'CONT', $lease_worker;
move_registry($worker, $coordinator);
is(settle('', sub { sql_error($worker, 'SELECT snowflake_nextval()', 'app') }), '', 'and it goes on');
$worker->stop;

#
# Conversion
#
my $refusal = qr/^ERROR:  0A000: Citus cannot alter column "(\w+)" of table public\.(\w+)\nDETAIL:  (.*)\nHINT:  (.*)\n/;
my $undistribute = qr/In one transaction, SELECT undistribute_table\('public\.by_id', cascade_via_foreign_keys => true\), (\w+), SELECT create_distributed_table\('public\.by_id', 'id'\), /;

sub refusal_of
{
	my ($function, $table) = @_;

	return sql_error($coordinator, "SELECT snowflake_${function}_column('$table', 'id')", 'app') =~ $refusal ? "$2.$1: $3 $4" : '';
}

sub returns
{
	my ($function, $table) = @_;

	return $coordinator->safe_psql('app', "SELECT count(*) > 0 FROM snowflake_${function}_column('$table', 'id')");
}

$coordinator->safe_psql('app', 'CREATE EXTENSION snowflake_tools');
$coordinator->safe_psql('app', <<'EOS' . distribute('by_id', 'id') . distribute('narrow', 'k') . distribute('wide', 'k') . distribute('plain', 'k')
CREATE TABLE by_id (id bigserial PRIMARY KEY, k int);
CREATE TABLE narrow (id serial, k int);
CREATE TABLE wide (k int, id bigserial);
CREATE TABLE plain (k int, id int);
CREATE TABLE counted (k int, id bigint GENERATED ALWAYS AS IDENTITY);
CREATE TABLE country (id int PRIMARY KEY, name text);
CREATE TABLE by_country (country_id int REFERENCES country, k int);
CREATE TABLE elsewhere (id serial);
CREATE TABLE shares (k int, id bigint DEFAULT nextval('elsewhere_id_seq'));
EOS
	  . distribute('counted', 'k') . distribute('shares', 'k') . distribute('country') . distribute('by_country', 'country_id'));
like(refusal_of('convert', 'by_id'), qr/^by_id\.id: The table is distributed by this column\. $undistribute/, 'convert: the distribution column');
is(refusal_of('convert', 'narrow'), 'narrow.id: Its type is to change, and it has a sequence. First, in the same transaction: '
	  . 'ALTER TABLE public.narrow ALTER COLUMN id DROP DEFAULT; DROP SEQUENCE public.narrow_id_seq;', 'convert: a serial of type integer');
is(refusal_of('convert', 'shares'), 'shares.id: It has its values from a sequence that is not its own. First, in the same transaction: '
	  . 'ALTER TABLE public.shares ALTER COLUMN id DROP DEFAULT;', 'convert: a sequence of another table');
like(refusal_of('convert', 'counted'), qr/^counted\.id: It is an identity column\. Create a table/, 'convert: an identity');
like(refusal_of('convert', 'country'), qr/^by_country\.country_id: The table is distributed by this column\./,
	'convert: the distribution column of a table that references it');
is(returns('convert', $_), 't', "convert: $_") foreach qw(wide plain elsewhere);
my @of_schema = split /\n/, $coordinator->safe_psql('app', "SELECT c FROM snowflake_convert_schema('public') AS c");
is_deeply([ map { /public\.(\w+)/ } grep { /Citus cannot alter/ } @of_schema ], ['by_id'], 'convert the keys of a schema: the same one is refused')
  or diag(join "\n", @of_schema);
is(sql_error($coordinator, 'BEGIN; ALTER TABLE narrow ALTER COLUMN id DROP DEFAULT; DROP SEQUENCE narrow_id_seq;
	SELECT snowflake_convert_column(\'narrow\', \'id\', dry_run => false); COMMIT', 'app'), '', 'convert: a serial without its sequence');
$coordinator->safe_psql('app', "SELECT snowflake_convert_column('$_', 'id', dry_run => false)") foreach qw(wide plain elsewhere);
$coordinator->safe_psql('app', 'ALTER TABLE by_id ALTER COLUMN id SET DEFAULT snowflake_nextval(); DROP SEQUENCE by_id_id_seq');
is(returns('convert', 'by_id'), 'f', 'convert: the distribution column, done already');
is(sql_error($coordinator, "SELECT snowflake_convert_column('by_id', 'id', dry_run => false)", 'app'), '', 'convert: the same, executed');
like(refusal_of('revert', 'by_id'), qr/^by_id\.id: The table is distributed by this column\. $undistribute/, 'revert: the distribution column');
$coordinator->safe_psql('app', 'CREATE TABLE by_hand (k int, id bigserial);' . distribute('by_hand', 'k') . 'ALTER TABLE by_hand ALTER COLUMN id SET DEFAULT snowflake_nextval()');
like(sql_error($coordinator, "SELECT snowflake_revert_column('by_hand', 'id')", 'app'),
	qr/^ERROR:  0A000: Citus cannot alter sequence public\.by_hand_id_seq\nDETAIL:  .*\nHINT:  DROP SEQUENCE public\.by_hand_id_seq; a new one is made\.\n/,
	'revert: a sequence that is on all servers');
$coordinator->safe_psql('app', 'DROP SEQUENCE by_hand_id_seq');
is(returns('revert', $_), 't', "revert: $_") foreach qw(wide plain elsewhere by_hand);
$coordinator->safe_psql('app', 'CREATE ROLE clerk; CREATE SCHEMA clerk AUTHORIZATION clerk');
is(sql_error($coordinator, "SET ROLE clerk; CREATE TABLE clerk.t (id serial); SELECT snowflake_convert_column('clerk.t', 'id')", 'app'), '',
	'convert: by a role without rights of its own');

#
# A worker that is the registry: it is refused, and the hints end where the documents send it
#
my $chosen = new_server('chosen', 1);
$chosen->safe_psql('app', 'CREATE EXTENSION snowflake');
$chosen->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake_registry');
my $asking = new_server('asking', 0);
$asking->safe_psql('app', 'CREATE EXTENSION snowflake');
set_and_reload($asking, 'snowflake.registry' => conninfo_of($chosen));
is(settle('', sub { sql_error($asking, 'SELECT snowflake_nextval()', 'app') }), '', 'a coordinator with a worker as its registry: issued');
like(sql_error($chosen, 'SELECT snowflake_nextval()', 'app'), qr/a worker of a Citus cluster needs.*\nIf a worker is the registry, .*"Another registry than the coordinator" in doc\/citus\.md/s,
	'that worker: refused');
set_and_reload($chosen, 'snowflake.registry' => conninfo_of($asking));
my $root = poll('an answer', sub { my $e = sql_error($chosen, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()", 'app'); $e !~ /^ERROR:  55P03|^$/ && $e });
like($root, qr/^ERROR:  55000: the registry's own cluster uses another registry\nDETAIL:  .*\nHINT:  .*see "Another registry" in doc\/operations\.md/,
	'as the statements of the hint say: refused, since a registry is a root');
set_and_reload($asking, 'snowflake.registry' => undef);
move_registry($chosen, $asking);
foreach my $server ($asking, $chosen)
{
	is(settle('', sub { sql_error($server, 'SELECT snowflake_nextval()', 'app') }), '', $server->name . ', when the registry has moved to the coordinator: issued');
}

# Each is the coordinator of one database and a worker in the other.
foreach my $server ($asking, $chosen)
{
	$server->safe_psql('postgres', 'CREATE DATABASE crossed');
	$server->safe_psql('crossed', 'CREATE EXTENSION snowflake;' . CITUS . NODES . 'UPDATE pg_dist_local_group SET groupid = ' . ($server == $asking ? 1 : 0));
}
like(sql_error($asking, 'SELECT snowflake_nextval()', 'crossed'), qr/a worker of a Citus cluster needs/, 'two coordinators: the registry is refused where it is a worker');
is(settle('', sub { sql_error($chosen, 'SELECT snowflake_nextval()', 'crossed') }), '', 'the other one has the setting: issued');
my $outside = new_registry('outside');
move_registry($asking, $outside);
set_and_reload($_, 'snowflake.registry' => conninfo_of($outside)) foreach $asking, $chosen;
foreach my $server ($asking, $chosen)
{
	is(settle('', sub { sql_error($server, 'SELECT snowflake_nextval()', $_) }), '', $server->name . ", with a registry outside: issued in $_")
	  foreach qw(app crossed);
}
$_->stop foreach $asking, $chosen, $outside;

#
# A registry where the extension is missing
#
my $bare = new_node('bare', preload => 0, start => 0);
$bare->start;
my $late = new_member('late', conninfo_of($bare), start => 0);
$late->start;
$late->safe_psql('postgres', 'CREATE EXTENSION snowflake');
like(sql_error($late, "SET snowflake.max_wait = '3s'; SELECT snowflake_nextval()"),
	qr/^ERROR:  55P03: schema "snowflake" does not exist\nDETAIL:  The registry is .*\nHINT:  Create the extension snowflake_registry/,
	'the extension is missing in the registry: refused');
unlike(slurp_file($bare->logfile), qr/ERROR/, 'the log of the registry has no error');
$bare->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry');
is(sql_error($late, 'SELECT snowflake_nextval()'), '', 'it is created: issued');
$late->stop;
$bare->stop;
$coordinator->stop;

done_testing();
