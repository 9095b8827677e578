# 046_citus.pl
#	  Where Citus is preloaded, a server whose snowflake.registry is empty issues no ids until it is set: to
#	  "own" on the coordinator, whose tables are the registry then, and to its address on the workers.
#	  What Citus would refuse is refused when a column is converted or reverted, also in a
#	  dry run.  Citus itself is not needed (SnowflakeCitus.pm); test/citus/run has it.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeCitus;
use SnowflakeRegistry;

my $message = 'a server with Citus needs snowflake.registry';
my $refused = qr/^ERROR:  55000: \Q$message\E\nDETAIL:  Citus is in shared_preload_libraries, .*\nHINT:  Set snowflake\.registry to the coordinator's connection string, or to "own" on the coordinator: see /;
my $directory = fake_citus('citus', 'citus_columnar');

sub new_server
{
	my ($name, %options) = @_;
	my $node = new_node($name, %options, start => 0, conf => <<EOS);
dynamic_library_path = '$directory:\$libdir'
shared_preload_libraries = 'citus, snowflake'
snowflake.worker_id = 'auto'
snowflake.lease_duration = '3s'
EOS

	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	return $node;
}

sub error_of
{
	my ($node) = @_;

	return sql_error($node, 'SELECT snowflake_nextval()');
}

# Until the lease worker has taken over a setting.
sub check_issued
{
	my ($label, $node) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(settle('', sub { error_of($node) }), '', "$label: issued");
}

sub check_refused
{
	my ($label, $node, $pattern) = @_;
	my $error;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eval { poll('refusal', sub { ($error = error_of($node)) =~ $pattern }) };
	like($error, $pattern, "$label: refused");
}

#
# The coordinator
#
my $coordinator = new_server('coordinator', init => [ allows_streaming => 1 ]);
check_refused('nothing is set', $coordinator, $refused);
is(stat_of($coordinator, 'state, detail, registry IS NULL'), "refused|$message|t", 'nothing is set: the view says so');
like(slurp_file($coordinator->logfile), qr/WARNING:  55000: snowflake: $message\n/, 'nothing is set: and the log');
is($coordinator->safe_psql('postgres', "SELECT to_regnamespace('snowflake') IS NULL, worker_id FROM snowflake_parse(4096)"), 't|1',
	'nothing is set: no tables are made, and ids can be parsed');
set_and_reload($coordinator, 'snowflake.registry' => 'own');
check_issued('own', $coordinator);
is(stat_of($coordinator, 'state, detail, registry'), 'ready||postgres', 'own: the view says so');
my $session = $coordinator->background_psql('postgres', on_error_stop => 0);
$session->query_safe('SELECT snowflake_nextval()');
set_and_reload($coordinator, 'snowflake.registry' => undef);
check_refused('empty again', $coordinator, $refused);
$session->query('SELECT snowflake_nextval()');
like($session->{stderr}, qr/\Q$message\E/, 'empty again: sessions that have issued ids are refused, too');
$session->quit;
set_and_reload($coordinator, 'snowflake.registry' => conninfo_of($coordinator));
check_refused('its own address', $coordinator, qr/^ERROR:  55000: the registry is the server itself\nDETAIL:  .*\nHINT:  Set snowflake\.registry to "own" on this server\./);
set_and_reload($coordinator, 'snowflake.registry' => 'own');
check_issued('own again', $coordinator);

# A standby without the setting says what it would refuse.
$coordinator->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($coordinator, 'backup', has_streaming => 1);
set_conf($standby, 'snowflake.registry' => undef);
$standby->start;
poll('the log of the standby', sub { slurp_file($standby->logfile) =~ /WARNING:  55000: snowflake: $message\n/ });
pass('a standby without the setting says so in its log');
$standby->promote;
check_refused('promoted', $standby, $refused);
$standby->stop;

#
# A worker
#
my $worker = new_server('worker');
check_refused('a worker', $worker, $refused);
set_and_reload($worker, 'snowflake.registry' => conninfo_of($coordinator));
check_issued('a worker with the address', $worker);
isnt(stat_of($worker, 'node_number'), stat_of($coordinator, 'node_number'), 'with a number that is not the coordinator\'s');
set_and_reload($worker, 'snowflake.registry' => undef);
check_refused('empty again', $worker, $refused);
set_and_reload($worker, 'snowflake.registry' => 'own');
check_refused('a worker with own', $worker, qr/^ERROR:  55000: the registry's own cluster uses another registry\n/);
set_and_reload($worker, 'snowflake.registry' => conninfo_of($coordinator));
check_issued('with the address again', $worker);
$worker->stop;

# How Citus can be preloaded, and with a fixed number
foreach my $case ([ "$directory/citus, snowflake", 'auto' ], [ "snowflake, $directory/citus.so", 5 ], [ "snowflake, $directory/citus_columnar", 'auto' ])
{
	my ($libraries, $worker_id) = @$case;

	set_conf($worker, shared_preload_libraries => $libraries, 'snowflake.worker_id' => $worker_id, 'snowflake.registry' => undef);
	$worker->start;
	check_refused("$libraries, number $worker_id", $worker, $libraries =~ /columnar/ ? qr/uses another registry\n/ : $refused);
	$worker->stop;
}

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

$coordinator->safe_psql('postgres', 'CREATE DATABASE app');
$coordinator->safe_psql('app', CITUS . 'CREATE EXTENSION snowflake_tools CASCADE');
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
