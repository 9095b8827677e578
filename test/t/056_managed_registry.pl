# 056_managed_registry.pl
#	  A registry where no extension files can be installed (doc/operations.md, "Managed
#	  PostgreSQL"): made by a role that is no superuser and owns a database, called by one that
#	  has nothing but EXECUTE.  A standby is promoted, a dump is restored beside the original and
#	  in its place, and the database is copied: each is refused until the owner has said that all
#	  leases are over.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeNode;
use SnowflakeReadme;
use SnowflakeRegistry qw(forget_leases);
use JSON::PP ();
use POSIX qw(strftime);

my $json = JSON::PP->new;
my $directory = PostgreSQL::Test::Utils::tempdir('managed');
my ($script) = glob "$FindBin::RealBin/../../sql/managed_registry--*.sql";
my @documents = map { read_document("$FindBin::RealBin/../../doc/$_.md") } qw(operations protocol);
my %example = map { my $example = $_; map { /^run by \S+056_managed_registry\.pl, (.*)/ ? ($1 => $example) : () } @{ $_->{markers} } } examples(@documents);
my %block = map { $_ => $example{$_}{sql} } keys %example;
my $tables = qr/\d+\/[0-9A-F]{8}\/\d+\/\d+/;
my $refused = qr/^(?:ERROR:  )?55000: the registry was promoted, restored, copied or upgraded\nDETAIL:  It is $tables, recorded is $tables: system identifier, timeline, database and table\.\nHINT:  .*run SELECT snowflake\.leases_are_over\(\) as its owner: see "Managed PostgreSQL" in doc\/operations\.md/;

# Where nothing of PostgreSQL is installed
my $top = "$FindBin::RealBin/../..";
system_or_bail('sh', '-c', 'mkdir -p "$2/src/sql" "$2/sql" && cd "$1" && cp Makefile *.control "$2" && cp -R src/sql/registry "$2/src/sql"', 'sh', $top, $directory);
{
	local %ENV = (PATH => '/usr/bin:/bin');

	command_ok([ 'make', '-s', '-C', $directory, 'managed', 'PG_CONFIG=/nonexistent' ], 'make managed, without pg_config');
}
my ($made) = glob "$directory/sql/managed_registry--*.sql";
is(slurp_file($made // '/dev/null'), slurp_file($script), 'writes the file that make installs');

is(join(', ', sort keys %block), 'acquire, copied, id, over, parts, renew, rights, take over', 'the documents have the statements');

# What a node asks, by the role that has nothing but EXECUTE.
package Caller
{
	sub new { my ($class, $server, $database) = @_; return bless { server => $server, database => $database }, $class }
	sub name { return "$_[0]{database} of " . $_[0]{server}->name }

	sub psql
	{
		my ($self, undef, $sql, %options) = @_;

		return $self->{server}->psql(undef, $sql, connstr => $self->{server}->connstr($self->{database}) . ' user=orders_api', %options);
	}
}

package main;

sub as_owner
{
	my ($server, $database, $sql) = @_;
	my ($status, $out, $error) = $server->psql(undef, $sql, connstr => $server->connstr($database) . ' user=app_owner',
		extra_params => [ '-v', 'VERBOSITY=verbose', '-v', 'ON_ERROR_STOP=1' ], on_error_stop => 0);

	$error =~ s/^psql:<stdin>:\d+: //mg;
	return $status == 0 ? $out : $error;
}

# What is said beside the result.
sub said_by_owner
{
	my ($server, $database) = @_;
	my (undef, undef, $error) = $server->psql(undef, 'SELECT snowflake.closed_registry()',
		connstr => $server->connstr($database) . ' user=app_owner', extra_params => [ '-v', 'VERBOSITY=verbose' ]);

	return $error;
}

sub acquire
{
	my ($node, $caller, %keys) = @_;

	return $node->acquire($caller, kind => 'program', name => 'orders-api', %keys);
}

sub check_refused
{
	my ($label, $caller, $node) = @_;

	like(refusal(acquire(SnowflakeNode->new(90), $caller)), $refused, "$label: no lease");
	like(refusal($node->ask($caller, 'renew_lease', lease => $node->{opened})), $refused, "$label: no renewal");
	like(refusal($node->ask($caller, 'release_lease', lease => { %{ $node->{opened} }, ids_end_at => $node->{lease}{from} })), $refused, "$label: no release");
	like(as_owner($caller->{server}, $caller->{database}, 'SELECT count(*) FROM snowflake.leases'), qr/^\d+$/, "$label: leases are read");
	foreach my $order (q(close_registry('{"incarnation": "00000000-0000-0000-0000-000000000001"}')), "ids_end_before('2100-01-01Z')",
		"ids_end_before('2100-01-01Z', 'orders_api')", "take_over_lost('00000000-0000-0000-0000-000000000001')",
		"change_layout('@{[ SnowflakeNode::LAYOUT ]}')", "limit_leases('1 h')")
	{
		like(as_owner($caller->{server}, $caller->{database}, "SELECT snowflake.$order"), $refused, "$label: no $order");
	}
}

sub row { my ($caller) = @_; return as_owner($caller->{server}, $caller->{database}, 'SELECT incarnation, generation FROM snowflake.registry') }

#
# It is made, and called
#
my $primary = new_node('primary', preload => 0, start => 0, init => [ allows_streaming => 1 ]);
$primary->start;
$primary->safe_psql('postgres', 'CREATE ROLE app_owner LOGIN; CREATE ROLE orders_api LOGIN; CREATE DATABASE app OWNER app_owner');
my $app = Caller->new($primary, 'app');

sub install
{
	my ($server, $database) = @_;

	return PostgreSQL::Test::Utils::run_log([ 'psql', '-X', '-q', '-1', '-f', $script, '-d', $server->connstr($database) . ' user=app_owner' ]);
}
# Another role may create in the owner's path, and puts functions there that fit better than PostgreSQL's.
$primary->safe_psql('app', q{
	CREATE ROLE stranger LOGIN; GRANT CREATE ON SCHEMA public TO stranger; SET ROLE stranger;
	CREATE FUNCTION public.num_nonnulls(bigint, integer, bigint) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
	CREATE FUNCTION public.format(text, regprocedure) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
	CREATE FUNCTION public.divide(interval, integer) RETURNS interval LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
	CREATE OPERATOR public./ (FUNCTION = public.divide, LEFTARG = interval, RIGHTARG = integer)});
ok(install($primary, 'app'), 'the owner of the database makes it');
is($primary->safe_psql('app', q{
	SELECT count(*) FROM pg_depend AS d
	WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid IN (SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace)
		AND d.classid <> 'pg_operator'::regclass
		OR d.refclassid = 'pg_operator'::regclass AND d.refobjid IN (SELECT oid FROM pg_operator WHERE oprnamespace = 'public'::regnamespace)}),
	0, 'nothing of it depends on what others have put into the path');
ok(!install($primary, 'app'), 'it is made once');
# leases are of 3 s
$primary->safe_psql('app', "UPDATE snowflake.registry SET end_limit = '10 s'");
add_caller($primary, 'app');
like(acquire(SnowflakeNode->new(1), $app)->{error}, qr/^ERROR:  42501: permission denied for schema snowflake/, 'a role without rights is refused');
as_owner($primary, 'app', $block{rights});
foreach my $denied ('SELECT FROM snowflake.node_number', 'SELECT FROM snowflake.worker_node', 'SELECT FROM snowflake.leases', 'SELECT FROM snowflake.registry', 'SELECT FROM snowflake.nodes', 'SELECT snowflake.leases_are_over()')
{
	like(($app->psql(undef, $denied))[2], qr/permission denied/, "that of a program cannot: $denied");
}
is($primary->safe_psql('app', "SELECT count(*) FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace AND (proowner <> 'app_owner'::regrole OR has_function_privilege('public', oid, 'EXECUTE'))"),
	0, 'all is the owner\'s, and nothing is for everybody');
is($primary->safe_psql('app', <<'SQL'), 't|t|t', 'those that are called from outside have the settings of the functions of the extension');
SELECT count(*) > 40, count(*) FILTER (WHERE outside) > 15, bool_and(proconfig @> '{"search_path=pg_catalog, pg_temp",standard_conforming_strings=on}') FILTER (WHERE outside)
FROM pg_proc, LATERAL (SELECT prosecdef OR prorettype = 'trigger'::regtype OR obj_description(oid, 'pg_proc') IS NOT NULL) AS o (outside)
WHERE pronamespace = 'snowflake'::regnamespace
SQL

# The example of doc/protocol.md: a registry answers the same, but for its clock and what is random.
sub call_of { my ($name) = @_; return $json->decode($block{$name} =~ /'(.*)'/s ? $1 : die "no call: $name") }

sub example
{
	my ($name, $granted) = @_;
	my $sql = $block{$name} =~ s/0{8}(?:-0{4}){3}-0{12}/$granted->{token}/r =~ s/"node_number": \d+/"node_number": $granted->{node_number}/r;
	my $answer = $json->decode(($app->psql(undef, $sql))[1]);
	my $shown = $json->decode($example{$name}{expected}{text});

	is(join(' ', sort keys %$answer), join(' ', sort keys %$shown), "example, $name: the keys");
	foreach my $key (grep { !/^(?:token|node_number|clock)$/ } sort keys %$shown)
	{
		is($answer->{$key}, $shown->{$key}, "example, $name: $key");
	}
	return ($answer, $shown);
}
my $row = $primary->safe_psql('app', 'SELECT incarnation, created_at FROM snowflake.registry');
my $call = call_of('acquire');
my $shown = $json->decode($example{acquire}{expected}{text});
$primary->safe_psql('app', "UPDATE snowflake.registry SET incarnation = '$shown->{incarnation}', created_at = snowflake.time_of($call->{clock} / 1000000 * 1000000 - 60000000)");
my ($granted) = example('acquire');
foreach my $number ($granted->{node_number}, $shown->{node_number})
{
	ok($number % 2 == 0 && $number >= $call->{first_number} && $number <= $call->{last_number}, "example, acquire: number $number can be granted");
}
example('renew', $granted);
$primary->safe_psql('app', "UPDATE snowflake.registry SET (incarnation, created_at) = (SELECT * FROM (VALUES ('" . join("'::uuid, '", split /\|/, $row) . "'::timestamptz)) AS v)");
forget_leases($primary, 'app');

# An id from its parts: each result is the one that is shown, and what the extension makes of them
sub computed
{
	my ($name) = @_;
	my @shown = (split /\n/, $example{$name}{expected}{text})[2] =~ /\d+/g;

	is($primary->safe_psql('postgres', $block{$name}), join('|', @shown), "an id from its parts: $name");
	return @shown;
}
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my ($timestamp, $datacenter, $worker, $sequence) = computed('parts');
my ($id) = computed('id');
my $definition = $call->{layout};
my ($epoch, $tick) = split /\|/, $primary->safe_psql('postgres',
	"SELECT (extract(epoch FROM epoch) * 1000000)::bigint, (extract(epoch FROM tick) * 1000000)::bigint FROM snowflake_layout('$definition')");
my $clock = strftime('%Y-%m-%d %H:%M:%S', gmtime($call->{clock} / 1_000_000)) . sprintf('.%06d', $call->{clock} % 1_000_000);
my ($tick_begin, $last_tick) = ($epoch + $timestamp * $tick, int(($shown->{leased_until} - $epoch) / $tick) - 1);
my $words = join ' ', map { $_->{text} =~ s/\s+/ /gr } grep { $_->{section} eq 'An id from its parts' && $_->{kind} eq 'paragraph' } @documents;

is($block{parts} =~ s/\D+/ /gr, " $call->{clock} $epoch $tick $shown->{node_number} 5 $shown->{node_number} 31 $sequence ", 'they are parts of the example');
is($block{id} =~ s/\D+/ /gr, " $timestamp 22 $datacenter 17 $worker 12 $sequence ", 'and so is the id');
is($primary->safe_psql('postgres', "SELECT snowflake_compose('${clock}Z', $worker, $sequence, '$definition', $datacenter)"), $id, 'snowflake_compose() makes it');
is($primary->safe_psql('postgres', "SELECT datacenter_id, worker_id, sequence, \"timestamp\" <= '${clock}Z' AND '${clock}Z' < \"timestamp\" + '1 ms'::interval FROM snowflake_parse($id, '$definition')"),
	"$datacenter|$worker|$sequence|t", 'snowflake_parse() reads it');
ok($tick_begin >= $shown->{starts_at} && $tick_begin <= $call->{clock}, 'its tick is in the lease');
like($words, qr/clock shows $call->{clock}\b.*= $tick_begin\. .*the timestamp $last_tick: it ends at @{[ $epoch + ($last_tick + 1) * $tick ]}, and/, 'and the words have the same numbers');

my ($first, $second) = map { SnowflakeNode->new($_) } 1, 2;
is(acquire($_, $app)->{answer}, 'yes', 'a lease') foreach $first, $second;
is($first->renew($app)->{answer}, 'yes', 'its renewal');
is_deeply([ map { $_->{lease}{number} % 2 } $first, $second ], [ 0, 0 ], 'numbers of the first generation are even');
like(as_owner($primary, 'app', "SELECT kind, name, host_name, role FROM snowflake.$_ ORDER BY node_number"), qr/^program\|orders-api\|host\d\|orders_api\nprogram\|orders-api\|host\d\|orders_api\z/,
	"the view $_ has both") foreach 'nodes', 'leases';
my $before = row($app);
is(as_owner($primary, 'app', $block{over}) . '|1', $before, 'where nothing has changed, the statement changes nothing');
is(row($app), $before, 'neither the generation');
my ($incarnation) = $before =~ /^(.*)\|/;
like(as_owner($primary, 'app', "TRUNCATE snowflake.$_"), qr/^ERROR:  55000: TRUNCATE on table "$_" is not possible/, "TRUNCATE $_ is refused") foreach qw(node_number worker_node registry cluster);

# What an apply process would bring
is($primary->safe_psql('app', <<'SQL'), '1|2|f', 'rows of replication are left out');
SET session_replication_role = replica;
UPDATE snowflake.registry SET generation = 7;
DELETE FROM snowflake.worker_node;
UPDATE snowflake.node_number SET recorded_until = 'infinity';
SELECT (SELECT generation FROM snowflake.registry), (SELECT count(*) FROM snowflake.worker_node), bool_or(recorded_until = 'infinity') FROM snowflake.node_number
SQL

#
# A dump: beside the original, and in its place.  The original goes on.
#
my $dump = "$directory/app.sql";
command_ok([ 'pg_dump', '-f', $dump, '-d', $primary->connstr('app') . ' user=app_owner', '-n', 'snowflake' ], 'the owner dumps it');
sub restore
{
	my ($server, $database) = @_;

	ok(PostgreSQL::Test::Utils::run_log([ 'psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $server->connstr($database) . ' user=app_owner' ]),
		"the owner restores it in $database");
}
$primary->safe_psql('postgres', 'CREATE DATABASE copy OWNER app_owner');
restore($primary, 'copy');
add_caller($primary, 'copy');
my $copy = Caller->new($primary, 'copy');
check_refused('a restored dump', $copy, $second);
like(row($copy), qr/^$incarnation\|/, 'the incarnation so far can be noted');
isnt(as_owner($primary, 'copy', $block{over}), $incarnation, 'then it has a new incarnation');
like(row($copy), qr/\|2\z/, 'and another generation');
is($second->renew($copy)->{reason}, 'incarnation', 'a lease of the original is not renewed');
like(refusal(acquire($second, $copy, uses => $incarnation)), qr/^55000: the registry is not the one that the node's ids were issued with/, 'its program is refused');
is(acquire(my $third = SnowflakeNode->new(3), $copy)->{answer}, 'yes', 'another one is not');
is($third->{lease}{number} % 2, 1, 'and has an odd number');
is($first->renew($app)->{answer}, 'yes', 'the original goes on');

# in the same database: the storage is rolled back, as it were
acquire(my $lost = SnowflakeNode->new(4), $app);
as_owner($primary, 'app', 'DROP SCHEMA snowflake CASCADE');
restore($primary, 'app');
check_refused('a dump in its place', $app, $first);
my $said = as_owner($primary, 'app', $block{over});
isnt($said, $incarnation, 'then it has a new incarnation');
acquire($_, $app) foreach my @more = map { SnowflakeNode->new($_) } 5 .. 8;
is(join(' ', overlaps($first, $lost, @more)), '', 'no lease that the dump lacks is granted again');
like(refusal(acquire($lost, $app, uses => $incarnation)), qr/^55000: the registry is not the one/, 'a program of before is refused');
as_owner($primary, 'app', $block{'take over'} =~ s/[0-9a-f-]{36}/$incarnation/r);
like(refusal(acquire($lost, $app, uses => $incarnation)), qr/^55000: the node's clock is behind the time that leases start at\n/, 'until the first one is taken over');
poll('the longest window to be over', sub { acquire($lost, $app, uses => $incarnation)->{answer} eq 'yes' });
pass('and the longest window is over');

# a template copy
$primary->safe_psql('postgres', 'CREATE DATABASE clone TEMPLATE app OWNER app_owner');
check_refused('a template copy', my $clone = Caller->new($primary, 'clone'), $lost);
like(row($clone), qr/^$said\|/, 'the incarnation so far can be noted');
unlike(as_owner($primary, 'clone', $block{over}), qr/$said|ERROR/, 'then it has a new incarnation');
is(acquire(SnowflakeNode->new(9), $clone)->{answer}, 'yes', 'and grants');

#
# A standby is promoted that lacks a grant; the primary goes on.
#
$primary->safe_psql('postgres', "ALTER SYSTEM RESET primary_conninfo");
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

# an order that a connected standby has not flushed: seen with the rights to see its connection
my $receiver = $standby->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver');
kill 'STOP', $receiver;
as_owner($primary, 'clone', q(SELECT snowflake.close_registry('{"incarnation": "00000000-0000-0000-0000-000000000001"}')));
unlike(said_by_owner($primary, 'clone'), qr/WARNING/, 'a standby lags: not seen');
$primary->safe_psql('postgres', 'GRANT pg_read_all_stats TO app_owner');
like(said_by_owner($primary, 'clone'), qr/WARNING:  01000: not all standbys have what was done here\nDETAIL:  .*"standby"\./, 'then it is');
kill 'CONT', $receiver;
my $promoted = Caller->new($standby, 'app');
like(as_owner($standby, 'app', $block{over}), qr/^ERROR:  25006: the registry is a hot standby/, 'a standby counts nothing');
$standby->safe_psql('postgres', "ALTER SYSTEM SET primary_conninfo = ''");
$standby->reload;
poll('the end of the stream', sub { $standby->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_wal_receiver') eq '0' });
my $kept = $more[0];
acquire(my $after = SnowflakeNode->new(10), $app);
$standby->promote;
my ($now, $generation) = split /\|/, row($app);
check_refused('a promotion', $promoted, $kept);
my $said_at = SnowflakeNode::now();
is(as_owner($standby, 'app', $block{over}), $now, 'then it has the incarnation that it had');
is(as_owner($standby, 'app', $block{over}), $now, 'the statement can be run twice');
is((split /\|/, row($promoted))[1], $generation + 1, 'the generation is counted once');
is($kept->renew($promoted)->{reason}, 'generation', 'a lease of before is not renewed');
my @new = map { SnowflakeNode->new($_) } 11 .. 14;
foreach (@new)
{
	is(acquire($_, $promoted, uses => $now)->{answer}, 'yes', 'a lease of the promoted server');
	cmp_ok($_->{lease}{from}, '>', $said_at + SnowflakeNode::MAX_AHEAD, 'that starts when the owner has said so');
	isnt($_->{lease}{number} % 2, $after->{lease}{number} % 2, 'of the other parity');
}
is($after->renew($app)->{answer}, 'yes', 'the old primary, which still runs, goes on with its own');
is(join(' ', overlaps($after, @more, @new)), '', 'no number has two leases for a time');

# What looks as before
my $copied = as_owner($standby, 'app', $block{copied});
unlike($copied, qr/$now|ERROR/, 'a snapshot: a new incarnation');
is(row($promoted), "$copied|" . ($generation + 2), 'and another generation');

#
# A closed one is taken over, also after a promotion
#
as_owner($standby, 'app', q(SELECT snowflake.close_registry('{"incarnation": "00000000-0000-0000-0000-000000000001"}')));
like(refusal(acquire(SnowflakeNode->new(15), $promoted)), qr/^55000: the registry is closed\n/, 'a closed one grants nothing');
like(as_owner($standby, 'app', 'SELECT snowflake.closed_registry()'), qr/^\{.*"node_numbers": \[\d/, 'and tells its successor');
is(as_owner($standby, 'app', $block{copied}), $copied, 'it keeps its incarnation');

done_testing();
