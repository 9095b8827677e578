# cluster.pl
#	  snowflake in a Citus cluster: a coordinator with a standby, two workers, and a third that joins.
#	  test/citus/run runs this where Citus is installed.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeReadme;
use SnowflakeRegistry;
use SnowflakeStatement;
use Time::HiRes qw(time);

my $refused = qr/^ERROR:  55000: a server with Citus needs snowflake\.registry\n/m;

sub new_server
{
	my ($name) = @_;
	my $node = new_node($name, start => 0, conf => <<'EOS');
shared_preload_libraries = 'citus, snowflake'
snowflake.worker_id = 'auto'
snowflake.max_wait = '5s'
max_connections = 60
wal_level = logical
max_wal_senders = 10
max_replication_slots = 10
citus.enable_statistics_collection = off
EOS

	$node->append_conf('postgresql.conf', "citus.local_hostname = '" . $node->host . "'");
	$node->start;
	$node->safe_psql('postgres', 'CREATE DATABASE app');
	$node->safe_psql('app', 'CREATE EXTENSION citus');
	return $node;
}

my $coordinator = new_server('coordinator');
my @workers = map { new_server($_) } qw(first second);
my $address = conninfo_of($coordinator);
# as in doc/citus.md
my $tell = "SELECT run_command_on_workers(\$\$ALTER SYSTEM SET snowflake.registry = '$address'\$\$);\n"
  . "SELECT run_command_on_workers('SELECT pg_reload_conf()')";

sub place
{
	my ($node) = @_;

	return sprintf "'%s', %d", $node->host, $node->port;
}

# In the database of the tables.
sub query
{
	my ($sql, $node) = @_;

	return ($node // $coordinator)->safe_psql('app', $sql);
}

sub error_of
{
	my ($sql, $node) = @_;

	return sql_error($node // $coordinator, $sql, 'app');
}

# A distributed table with ids that make themselves, and as many rows as "source" without any.
sub new_table
{
	my ($name, $by, $column) = @_;

	query("CREATE TABLE $name (k int, id bigint DEFAULT snowflake_nextval(), v int)" . ($column // ''));
	query("SELECT create_distributed_table('$name', '$by')");
}

# All ids are there, and no two are equal; returns how many servers have made them.
sub check_table
{
	my ($label, $name, $rows) = @_;
	my ($count, $ids, $distinct, $numbers) = split /\|/, query("SELECT count(*), count(id), count(DISTINCT id),
		count(DISTINCT (id >> 12) & 1023) FROM $name");

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is("$count $ids $distinct", $rows ? "$rows $rows $rows" : "$count $count $count", "$label: $count ids are distinct");
	return $numbers;
}

#
# Without a registry
#
query('SELECT citus_set_coordinator_host(' . place($coordinator) . ')');
query('SELECT citus_add_node(' . place($_) . ')') foreach @workers;
query('CREATE EXTENSION snowflake');
like(error_of('SELECT snowflake_nextval()', $_), $refused, $_->name . ': refused') foreach $coordinator, @workers;
set_and_reload($coordinator, 'snowflake.registry' => 'own');
poll('the setting', sub { error_of('SELECT snowflake_nextval()') eq '' });

query("CREATE TABLE source (k int, v int); SELECT create_distributed_table('source', 'k')");
query('INSERT INTO source SELECT g, g % 10 FROM generate_series(1, 20000) AS g');
new_table('target', 'k');
my $error = error_of('INSERT INTO target (k) SELECT k FROM source');
like($error, $refused, 'INSERT ... SELECT over workers: refused');
like($error, qr/^CONTEXT:  while executing command on \S+:\d+$/m, 'the error names the worker');
is(error_of('INSERT INTO target (k) SELECT g FROM generate_series(1, 100) AS g'), '', 'the coordinator issues ids');
like(error_of('INSERT INTO target (k) VALUES (1)', $_), $refused, $_->name . ': refused') foreach @workers;

query($tell);
poll('the setting', sub { !grep { error_of('SELECT snowflake_nextval()', $_) } @workers });
query('INSERT INTO target (k) SELECT k FROM source');
is(check_table('with the registry', 'target', 20100), 3, 'of all servers');

# A coordinator with itself as the registry
set_and_reload($coordinator, 'snowflake.registry' => $address);
query('SELECT snowflake_release()');
like(poll('refusal', sub { error_of('SELECT snowflake_nextval()') }), qr/the registry is the server itself\n.*Set snowflake\.registry to "own"/s,
	'the coordinator is not its own registry');
is(error_of('SELECT snowflake_nextval()', $workers[0]), '', 'the workers go on');
set_and_reload($coordinator, 'snowflake.registry' => 'own');
poll('own tables', sub { error_of('SELECT snowflake_nextval()') eq '' });

#
# Kinds of tables and statements
#
query("CREATE TABLE country (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), v int); SELECT create_reference_table('country')");
query($_) foreach 'INSERT INTO country (v) SELECT k FROM source', 'INSERT INTO country (v) VALUES (1), (2)', "COPY country (v) FROM PROGRAM 'seq 1 1000'";
is(check_table('a reference table', 'country', 21002), 3, 'made by all servers');
is(query("SELECT count(DISTINCT result) || ' ' || count(*) FROM run_command_on_placements('country', 'SELECT md5(string_agg(id::text, '','' ORDER BY id)) FROM %s')"),
	'1 3', 'replicas are equal');

new_table('by_id', 'id');
query('INSERT INTO by_id (k) SELECT k FROM source');
is(check_table('distributed by the id', 'by_id', 20000), 2, 'made by the workers');

new_table('copied', 'k');
query("COPY copied (k) FROM PROGRAM 'seq 1 20000'");
is(check_table('COPY', 'copied', 20000), 1, 'made by the server of the client');
query('INSERT INTO copied (k) SELECT g FROM generate_series(1, 1000) AS g', $_) foreach @workers;
is(check_table('clients of workers', 'copied', 22000), 3, 'made by those workers');

query('CREATE TABLE local (k int, id bigint DEFAULT snowflake_nextval(), v int); SELECT citus_add_local_table_to_metadata(\'local\')');
query('INSERT INTO local (k) SELECT k FROM source');
check_table('a local table', 'local', 20000);

SKIP: {
	skip 'citus_columnar is not installed', 1 if error_of('CREATE EXTENSION IF NOT EXISTS citus_columnar');
	new_table('packed', 'k', ' USING columnar');
	query('INSERT INTO packed (k) SELECT k FROM source');
	check_table('a columnar table', 'packed', 20000);
}

query("SET citus.enable_schema_based_sharding = on; CREATE SCHEMA tenant");
query('CREATE TABLE tenant.t (k int, id bigint DEFAULT snowflake_nextval())');
query('INSERT INTO tenant.t (k) SELECT g FROM generate_series(1, 1000) AS g');
check_table('a distributed schema', 'tenant.t', 1000);

query('ALTER TABLE source ADD COLUMN id bigint DEFAULT snowflake_nextval()');
is(check_table('a new column', 'source', 20000), 2, 'made by the workers');

like(error_of($_), qr/must not be VOLATILE|non-IMMUTABLE functions/, "Citus refuses: $_")
  foreach 'UPDATE target SET id = snowflake_nextval()', 'UPDATE target SET id = DEFAULT', 'UPDATE country SET id = snowflake_nextval()',
  'MERGE INTO target AS t USING source AS s ON t.k = s.k + 1000000 WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)';

query("CREATE TABLE lost (v int); SELECT create_reference_table('lost'); INSERT INTO lost VALUES (1)");
query('ALTER TABLE lost ADD COLUMN id bigint DEFAULT snowflake_nextval()');
is(query("SELECT count(DISTINCT result) FROM run_command_on_placements('lost', 'SELECT min(id) FROM %s')"), 3,
	'a new column of a reference table: as bad as doc/citus.md says');

#
# A worker that joins and leaves, and one without metadata
#
my $third = new_server('third');
query('CREATE EXTENSION snowflake', $third);
set_and_reload($third, 'snowflake.registry' => 'own');
poll('the setting', sub { error_of('SELECT snowflake_nextval()', $third) eq '' });
pass('before it joins, a server with its own tables issues ids');
set_and_reload($third, 'snowflake.registry' => undef);
poll('refusal', sub { error_of('SELECT snowflake_nextval()', $third) =~ $refused });
query('SELECT citus_add_node(' . place($third) . ')');
query("SELECT rebalance_table_shards(shard_transfer_mode => 'block_writes')");
like(error_of('INSERT INTO target (k) SELECT k FROM source'), $refused, 'it has shards and no setting: INSERT ... SELECT is refused');
query($tell);
like(poll('the setting', sub { my $e = error_of('SELECT snowflake_nextval()', $third); $e !~ $refused && $e }),
	qr/the registry is not the one that the node's ids were issued with/, 'its earlier ids were of its own tables');
# "Another registry" in doc/operations.md
my $successor = $coordinator->safe_psql('postgres', 'SELECT incarnation FROM snowflake.registry');
$third->safe_psql('postgres', "SELECT snowflake.close_registry('$successor')");
my $closed = $third->safe_psql('postgres', 'SELECT snowflake.closed_registry()');
$coordinator->safe_psql('postgres', "SELECT snowflake.take_over('$closed'::jsonb)");
poll('the registry', sub { error_of('SELECT snowflake_nextval()', $third) eq '' });
query('INSERT INTO target (k) SELECT k FROM source');
cmp_ok(check_table('with three workers', 'target', 40100), '>=', 4, 'of all servers');

query('SELECT citus_drain_node(' . place($third) . ", 'block_writes'); SELECT citus_remove_node(" . place($third) . ')');
is(error_of('SELECT snowflake_nextval()', $third), '', 'removed: it issues ids of the registry');
$third->safe_psql('postgres', 'ALTER SYSTEM RESET snowflake.registry');
$third->reload;
like(poll('refusal', sub { error_of('SELECT snowflake_nextval()', $third) }), $refused, 'removed, without the setting: refused');
$third->stop;

query('SELECT stop_metadata_sync_to_node(' . place($workers[0]) . ')');
is(query('SELECT (SELECT count(*) FROM pg_dist_node), groupid FROM pg_dist_local_group', $workers[0]), '0|0', 'a worker without metadata');
$workers[0]->safe_psql('postgres', 'ALTER SYSTEM RESET snowflake.registry');
$workers[0]->reload;
like(poll('refusal', sub { error_of('INSERT INTO target (k) SELECT k FROM source') }), $refused, 'without metadata and without the setting: refused');
query($tell);
poll('the setting', sub { error_of('INSERT INTO target (k) SELECT k FROM source') eq '' });
query('SELECT start_metadata_sync_to_node(' . place($workers[0]) . ')');
check_table('without metadata', 'target');

#
# doc/citus.md, with our addresses
#
foreach my $example (examples(read_document("$FindBin::RealBin/../../doc/citus.md")))
{
	my $sql = $example->{sql} =~ s/'host=10\.0\.0\.1 .*?'(?=\$\$)/'$address user=snowflake_node'/sr =~ s/\bcountry\b/country_of_doc/gr;

	is(error_of($sql), '', "doc/citus.md, line $example->{line}");
}
my ($one_registry) = grep { /one_registry/ } map { $_->{sql} } examples(read_document("$FindBin::RealBin/../../doc/citus.md"));
# not while one is renewed
like(poll('one registry', sub { my $out = query($one_registry); $out =~ /t\z/ && $out }), qr/^1\|t\n\d+\|t\n\d+\|t\nt\z/, 'doc/citus.md: all leases are in one registry');
is(query("SELECT string_agg(DISTINCT result, ' ') FROM run_command_on_all_nodes('SELECT datconnlimit FROM pg_database WHERE datname = ''app''')"), '87',
	'doc/citus.md: the limit is on all servers');
is(query("SELECT string_agg(result, ' ') FROM run_command_on_all_nodes('SELECT snowflake_nextval() > 0')"), 't t t', 'doc/citus.md: all servers issue ids');
is(query("SELECT count(DISTINCT result) FROM run_command_on_all_nodes('SELECT node_number FROM pg_stat_snowflake')"), 3, 'with different numbers');
is(query("SELECT count(DISTINCT result) FROM run_command_on_placements('country_of_doc', 'SELECT min(id) FROM %s')"), 1, 'one id in all replicas');
is(query('SELECT count(DISTINCT id), max(id) > 1000000 FROM orders'), '2|t', 'converted');
poll('a lease of two hours', sub {
		query("SELECT bool_and(result::boolean) FROM run_command_on_workers('SELECT leased_until > now() + interval ''1h'' FROM pg_stat_snowflake')") eq 't' });
pass('a longer lease_duration is in use at once');

#
# Crashes and outages
#
query("SELECT run_command_on_workers(\$\$ALTER SYSTEM SET snowflake.lease_duration = '3s'\$\$)");
$_->restart foreach @workers;
my $insert = 'INSERT INTO crashed (k) SELECT k FROM source LIMIT 20; INSERT INTO crashed (k) SELECT k FROM source WHERE v = 5;';
new_table('crashed', 'k');
poll('ids', sub { error_of($insert) eq '' });
my @clients = map { start_clients($_, count => 2, database => 'app', sql => $insert . '--' . '.' x 3000) } $coordinator, $workers[1];
my $rows = query('SELECT count(*) FROM crashed');
poll('rows', sub { query('SELECT count(*) FROM crashed') > $rows + 5000 });
crash($workers[0]);
$workers[0]->start;
$_->stop foreach @clients;
poll('the worker', sub { error_of($insert) eq '' });
cmp_ok(check_table('a worker crashes', 'crashed'), '>=', 3, 'it has another number after the crash');

is(error_of('INSERT INTO copied (k) VALUES (1)', $_), '', $_->name . ': issues ids') foreach @workers;
$coordinator->stop('immediate');
my $stopped = time;
is(error_of('INSERT INTO copied (k) VALUES (1)', $workers[1]), '', 'the coordinator is down: a worker goes on');
like(poll('the end of the lease', sub { error_of("SET snowflake.max_wait = '100ms'; INSERT INTO copied (k) VALUES (1)", $workers[1]) }),
	qr/^ERROR:  55P03: could not reach the registry/, 'until its lease ends');
cmp_ok(time - $stopped, '<', 10, 'which is soon');
$workers[0]->restart;
like(error_of("SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()", $workers[0]), qr/^ERROR:  55P03: could not reach the registry/,
	'a worker that starts meanwhile issues no ids');
$coordinator->start;
poll('ids', sub { error_of('INSERT INTO copied (k) VALUES (1)', $_) eq '' }) foreach @workers;
pass('the coordinator is back: ids go on');
check_table('an outage of the coordinator', 'copied');

#
# Conversion: what is returned Citus executes, and what is refused it refuses
#
sub statements_of
{
	my ($function, $table) = @_;

	return query("SELECT string_agg(s, ' ') FROM snowflake_${function}_column('$table', 'id') AS s");
}

query(<<'EOS');
CREATE TABLE c_wide (k int, id bigserial);
CREATE TABLE c_plain (k int, id int);
CREATE TABLE c_narrow (k int, id serial);
CREATE TABLE c_counted (k int, id bigint GENERATED ALWAYS AS IDENTITY);
CREATE TABLE c_by_id (k int, id bigserial);
CREATE TABLE c_country (k int, id int PRIMARY KEY);
CREATE TABLE c_town (k int, country int REFERENCES c_country);
SELECT create_reference_table('c_country');
EOS
query('CREATE EXTENSION IF NOT EXISTS snowflake_tools');
query("SELECT create_distributed_table('c_$_', 'k')") foreach qw(wide plain narrow counted town);
query("SELECT create_distributed_table('c_by_id', 'id')");
foreach my $table (qw(wide plain country))
{
	my $statements = statements_of('convert', "c_$table");

	is(error_of("BEGIN; $statements COMMIT"), '', "convert: Citus executes what is returned: $table");
}
my %alter = (narrow => 'ALTER COLUMN id TYPE bigint', counted => 'ALTER COLUMN id DROP IDENTITY', by_id => 'ALTER COLUMN id SET DEFAULT snowflake_nextval()');
foreach my $table (sort keys %alter)
{
	like(error_of("SELECT snowflake_convert_column('c_$table', 'id')"), qr/^ERROR:  0A000: Citus cannot alter column "id"/, "convert: refused: $table");
	like(error_of("ALTER TABLE c_$table $alter{$table}"), qr/^ERROR: /, "Citus refuses it, too: $table");
}
my ($first) = error_of("SELECT snowflake_convert_column('c_narrow', 'id')") =~ /^HINT:  First, in the same transaction: (.*)$/m;
is(error_of("BEGIN; $first SELECT snowflake_convert_column('c_narrow', 'id', dry_run => false); COMMIT"), '', 'convert: as the hint says');
query("CREATE TABLE c_hand (k int, id bigserial); SELECT create_distributed_table('c_hand', 'k'); ALTER TABLE c_hand ALTER COLUMN id SET DEFAULT snowflake_nextval()");
like(error_of("SELECT snowflake_revert_column('c_hand', 'id')"), qr/^ERROR:  0A000: Citus cannot alter sequence .*\nHINT:  DROP SEQUENCE public\.c_hand_id_seq;/s,
	'revert: a sequence of all servers: refused');
like(error_of('ALTER SEQUENCE c_hand_id_seq RESTART WITH 5'), qr/^ERROR: /, 'Citus refuses it, too');
query('DROP SEQUENCE c_hand_id_seq');
is(error_of("SELECT snowflake_revert_column('c_$_', 'id', dry_run => false); INSERT INTO c_$_ (k) VALUES (1)"), '', "revert: $_") foreach qw(wide plain narrow hand);

query(<<'EOS');
CREATE SCHEMA shop;
CREATE TABLE shop.country (id serial PRIMARY KEY, name text);
CREATE TABLE shop.visit (id bigserial PRIMARY KEY, day date);
CREATE TABLE shop.town (id bigserial PRIMARY KEY, name text);
SELECT create_distributed_table('shop.visit', 'id'), create_reference_table('shop.town');
EOS
is(query("SELECT string_agg(object, ' ' ORDER BY object) FROM snowflake_convert_schema('shop') WHERE content ~ '^Citus cannot'"), 'shop.visit',
	'the keys of a schema: that of the distribution is refused');
is(error_of("SELECT snowflake_convert_schema('shop', leave_out => '{shop.visit}', dry_run => false)"), '', 'the others are converted');
query("INSERT INTO shop.$_ (name) VALUES ('x')") foreach qw(country town);
is(query('SELECT count(*) FROM shop.country, shop.town WHERE country.id > 1000000 AND town.id > 1000000'), 1, 'and have ids');

#
# The coordinator fails over
#
$coordinator->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($coordinator, 'backup', has_streaming => 1);
chmod 0600, $standby->data_dir . '/server.key' or die "chmod: $!";
$standby->append_conf('postgresql.conf', "citus.local_hostname = '" . $standby->host . "'");
$standby->start;
my $hosts = sprintf 'host=%s,%s port=%d,%d target_session_attrs=read-write', map({ $_->host } $coordinator, $standby), map({ $_->port } $coordinator, $standby);
query("SELECT run_command_on_workers(\$\$ALTER SYSTEM SET snowflake.registry = '$hosts'\$\$); SELECT run_command_on_workers('SELECT pg_reload_conf()')");
foreach my $worker (@workers)
{
	poll('the setting', sub { query('SHOW snowflake.registry', $worker) eq $hosts && error_of('SELECT snowflake_nextval()', $worker) eq '' });
}
$coordinator->wait_for_catchup($standby);
$coordinator->stop('immediate');
$standby->promote;
query('SELECT citus_update_node(nodeid, ' . place($standby) . ') FROM pg_dist_node WHERE groupid = 0', $standby);
poll('ids', sub { !grep { error_of('INSERT INTO target (k) SELECT k FROM source', $_) } $standby, @workers });
my @made;
poll('numbers of the promoted registry', sub {
		@made = map { id_node(query('SELECT snowflake_nextval()', $_)) } $standby, @workers;
		return !grep { $_ % 2 != $made[0] % 2 } @made });
is(scalar(keys %{ { map { $_ => 1 } @made } }), 3, 'the coordinator has failed over: all servers have new numbers')
  or diag("@made");
is(query('SELECT count(*) = count(DISTINCT id) FROM target', $standby), 't', 'all ids are distinct');

# A new address: only the statements of step 3
my $new_address = conninfo_of($standby);
query("SELECT run_command_on_workers(\$\$ALTER SYSTEM SET snowflake.registry = '$new_address'\$\$); SELECT run_command_on_workers('SELECT pg_reload_conf()')", $standby);
foreach my $worker (@workers)
{
	poll('the new address', sub { query('SELECT registry FROM pg_stat_snowflake', $worker) eq name_of($standby) });
	is(error_of("SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()", $worker), '', $worker->name . ', with the new address alone: issues ids');
}

$_->stop foreach @workers, $standby;
done_testing();
