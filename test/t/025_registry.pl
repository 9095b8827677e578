# 025_registry.pl
#	  Three primaries get their node numbers from one registry, which is not preloaded:
#	  with a role that may do nothing else and its password in a file, from a service
#	  file, over TLS.  What can be wrong with the registry, the layout or the versions
#	  is an error that says so and tells no secret.  A number is handed back; another
#	  source is refused until a superuser says so.  Fifty servers that ask at the same
#	  time get different numbers.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeRegistry;
use Time::HiRes qw(time);

use constant SECRET => 'Sesame-of-the-registry';
use constant LAYOUT =>
  'timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z';

my $directory = PostgreSQL::Test::Utils::tempdir('secrets');

sub write_file
{
	my ($name, $text) = @_;

	append_to_file("$directory/$name", $text);
	chmod 0600, "$directory/$name" or die "chmod: $!";
	return "$directory/$name";
}

#
# The registry
#
my $has_tls = system("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9"
	  . " -keyout $directory/key -out $directory/certificate -subj /CN=registry.test"
	  . " -addext subjectAltName=DNS:registry.test >$directory/openssl.log 2>&1") == 0;
my $registry = new_registry('registry', start => 0, conf => "listen_addresses = '127.0.0.1'\n"
	  . ($has_tls ? "ssl = on\nssl_cert_file = '$directory/certificate'\nssl_key_file = '$directory/key'\n" : ''));
my $port = $registry->port;

unlink $registry->data_dir . '/pg_hba.conf' or die "unlink: $!";
$registry->append_conf('pg_hba.conf', <<EOS);
local   all all              trust
hostssl all tls 127.0.0.1/32 scram-sha-256
host    all tls 127.0.0.1/32 reject
host    all all 127.0.0.1/32 scram-sha-256
EOS
$registry->start;
$registry->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$registry->safe_psql('postgres', "CREATE ROLE $_ LOGIN PASSWORD '" . SECRET . "'")
  foreach 'node', 'tls', 'unprivileged', 'half';
$registry->safe_psql('postgres', <<EOS);
GRANT USAGE ON SCHEMA snowflake TO node, tls, half;
GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease TO node, tls;
GRANT EXECUTE ON FUNCTION snowflake.renew_lease, snowflake.release_lease TO half;
EOS

my $passfile = write_file('passfile', join '', map { "$_:*:*:*:" . SECRET . "\n" } '127.0.0.1', 'registry.test');
my $wrong_passfile = write_file('wrong', "*:*:*:*:not the right one\n");
my $service_file = write_file('pg_service.conf', <<EOS . "password=" . SECRET . "\n");
[mesh]
host=127.0.0.1
port=$port
dbname=postgres
user=node
EOS

#
# Three primaries draw at the same time
#
my %by_address = (host => '127.0.0.1', user => 'node', passfile => $passfile);
my %by_tls = (host => 'registry.test', hostaddr => '127.0.0.1', user => 'tls', passfile => $passfile,
	sslmode => 'verify-full', sslrootcert => "$directory/certificate");
my $by_password = new_member('password', place($registry, %by_address));
my $by_service = new_member('service', 'service=mesh', start => 0);
my $third = new_member('third', $has_tls ? place($registry, %by_tls) : place($registry));
my @nodes = ($by_password, $by_service, $third);
{
	local $ENV{PGSERVICEFILE} = $service_file;
	$by_service->start;
	$by_service->safe_psql('postgres', 'CREATE EXTENSION snowflake');
}
my %place = (password => "127.0.0.1:$port/postgres", service => "127.0.0.1:$port/postgres",
	third => ($has_tls ? 'registry.test' : $registry->host) . ":$port/postgres");
my (@files, %number);

my @drawers = map { start_drawers($_, count => 2, sql => GENTLE) } @nodes;
$_->wait_for(2000) foreach @drawers;
foreach my $node (@nodes)
{
	my $name = $node->name;

	$number{$name} = wait_for_number($node);
	is(stat_of($node, 'state, detail, source, registry'), "ready||worker_node|$place{$name}", "$name: view");
	is($node->safe_psql('postgres', 'CREATE ROLE visitor; SET ROLE visitor;
			SELECT state, detail IS NULL, registry IS NULL, last_id IS NULL FROM pg_stat_snowflake'),
		'ready|t|t|t', "$name: what a user sees who is not in pg_read_all_stats");
	is(registry_row($registry, $node, 'node_number, datacenter_id, worker_id, released_at IS NULL, layout,
			leased_until > launched_at AND leased_until <= renewed_at + interval \'3 s\''),
		join('|', $number{$name}, $number{$name} >> 5, $number{$name} & 31, 't', LAYOUT, 't'),
		"$name: row in the registry");
	is(registry_row($registry, $node, 'system_identifier, timeline, extract(epoch FROM launched_at)'),
		$node->safe_psql('postgres', 'SELECT system_identifier, 1, extract(epoch FROM pg_postmaster_start_time())
			FROM pg_control_system()'), "$name: the row tells the server");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), 0, "$name: no local row");
}
is($registry->safe_psql('postgres', 'SELECT string_agg(node_number::text, $$,$$ ORDER BY id) FROM snowflake.worker_node'),
	'0,1,2', 'numbers in ring order, one lease for each server');

# For longer than a lease lasts.
my $bound = registry_row($registry, $third, "extract(epoch FROM leased_until + interval '1 s')");
poll('leases to be renewed', sub { time > $bound });
$_->wait_for(1000) foreach @drawers;
foreach my $i (0 .. $#nodes)
{
	my @own = $drawers[$i]->stop;
	my %seen = map { id_node($_) => 1 } read_ids(@own);

	is($drawers[$i]->errors, '', $nodes[$i]->name . ': no errors');
	is(join(',', keys %seen), $number{ $nodes[$i]->name }, $nodes[$i]->name . ': ids have its number');
	push @files, @own;
}
check_ids('three primaries', @files);
is($registry->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE renewed_at > launched_at + $$3 s$$'), 3,
	'leases were renewed, by the same rows');
is(sql_error($registry, 'SELECT snowflake_nextval()') =~ /^ERROR:  55000: / ? 'refused' : 'drawn', 'refused',
	'the registry itself draws no ids: it is not preloaded');

#
# Handing a number back
#
like($by_password->safe_psql('postgres', 'SET ROLE visitor; SELECT has_function_privilege($$snowflake_release()$$, $$EXECUTE$$),
		has_function_privilege($$snowflake_change_source()$$, $$EXECUTE$$)'), qr/^f\|f$/, 'not for everybody');
is($by_password->safe_psql('postgres', 'SELECT snowflake_release()'), $number{password}, 'snowflake_release()');
poll('row to be closed', sub { registry_row($registry, $by_password, 'released_at IS NOT NULL') eq 't' });
is($by_password->safe_psql('postgres', 'SELECT snowflake_release() IS NULL'), 't', 'snowflake_release() again: nothing to release');
is(registry_row($registry, $by_password, 'node_number, leased_until <= clock_timestamp() + interval \'1 s\''), "$number{password}|t",
	'and nobody has asked for another lease, and the end is the true one');
push @files, write_ids(draw($by_password, 100));
is(wait_for_number($by_password), 3, 'the next draw takes another number');
like(slurp_file($by_password->logfile), qr/snowflake: released the node number/, 'the log says that it was released');

#
# What can be wrong
#
# Never without a registry: it would take a number of its own table as soon as that is there.
my $no_place = 'host=/nonexistent';
my $node = new_member('wrong', $no_place, start => 0, conf => "snowflake.max_wait = '1s'\n");

sub check_wrong
{
	my ($label, $place, $pattern) = @_;

	set_conf($node, 'snowflake.registry' => $place);
	$node->start;
	my ($error, $seconds) = draw_error_with_reason($node, '1s');
	like($error, $pattern, "$label: error");
	ok($seconds > 0.9 && $seconds < 30, "$label: after max_wait ($seconds s)");
	unlike($error, qr/Sesame|not the right/, "$label: no secret in it");
	my ($message) = $error =~ /^ERROR:  \w+: (.*)/;
	my $expected = 'starting|t|' . ($message // 'no error');
	is(settle($expected, sub { stat_of($node, 'state, node_number IS NULL, detail') }), $expected, "$label: view");
	$node->stop;
}

$node->start;
set_and_reload($node, 'snowflake.registry' => "host=127.0.0.1 password=" . SECRET);
poll('log', sub { slurp_file($node->logfile) =~ /snowflake.registry must not contain a password/ });
set_conf($node, 'snowflake.registry' => $no_place);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$node->stop;

check_wrong('wrong password', place($registry, %by_address, passfile => $wrong_passfile),
	qr/^ERROR:  55P03: could not reach the registry 127.0.0.1:$port\/postgres\nDETAIL:  .*password authentication failed for user "node".*\nHINT:  /);
check_wrong('no password', place($registry, %by_address, passfile => "$directory/nowhere"),
	qr/^ERROR:  55P03: could not reach the registry 127.0.0.1:$port\/postgres\nDETAIL:  .*no password supplied\nHINT:  /);
check_wrong('no privilege at all', place($registry, %by_address, user => 'unprivileged'),
	qr/^ERROR:  55P03: permission denied for function acquire_lease\nDETAIL:  The registry is .*\nHINT:  Grant USAGE on the schema/);
check_wrong('none on a function', place($registry, %by_address, user => 'half'),
	qr/^ERROR:  55P03: permission denied for function acquire_lease\nDETAIL:  The registry is .*\nHINT:  Grant USAGE on the schema/);
check_wrong('no extension', place($registry, %by_address, dbname => 'template1'),
	qr/^ERROR:  55P03: schema "snowflake" does not exist\nDETAIL:  The registry is 127.0.0.1:$port\/template1\.\nHINT:  Create the extension/);
check_wrong('no database', place($registry, %by_address, dbname => 'nowhere'),
	qr/^ERROR:  55P03: could not reach the registry 127.0.0.1:$port\/nowhere\nDETAIL:  .*database "nowhere" does not exist\nHINT:  /);
check_wrong('no server', "host=$directory port=$port dbname=postgres",
	qr/^ERROR:  55P03: could not reach the registry \Q$directory\E:$port\/postgres\nDETAIL:  .*No such file or directory.*\nHINT:  /);
check_wrong('no service', 'service=nowhere',
	qr/^ERROR:  55P03: could not reach the registry service nowhere\nDETAIL:  .*\nHINT:  /);
SKIP:
{
	skip 'openssl is not installed', 8 unless $has_tls;
	check_wrong('certificate of another name', place($registry, %by_tls, host => 'other.test'),
		qr/^ERROR:  55P03: could not reach the registry other.test:$port\/postgres\nDETAIL:  .*certificate.*does not match host name "other.test"\nHINT:  /);
	check_wrong('TLS only, without TLS', place($registry, %by_tls, sslmode => 'disable'),
		qr/^ERROR:  55P03: could not reach the registry registry.test:$port\/postgres\nDETAIL:  .*pg_hba.conf rejects.*\nHINT:  /);
}
is(registry_row($registry, $node, "node_number"), "", 'none of these got a row');

#
# Versions, by SQL
#
my $acquire = "SELECT node_number FROM snowflake.acquire_lease(version => '%s', token => gen_random_uuid(),
	incarnation => NULL, layout => '${\ LAYOUT}', datacenter_bits => 5, worker_bits => 5, clock_bits => 0,
	first_number => %d, last_number => %d, exclusive => false, shared => true, node_clock => clock_timestamp(),
	max_ahead => '1 s', lease_window => '3 s', host_name => 'fake', port => 1, system_identifier => 1,
	timeline => 1, launched_at => clock_timestamp())";

foreach my $version ('1.2', '2.0', '1.12', '0.9')
{
	like(sql_error($registry, sprintf $acquire, $version, 900, 909),
		qr/^ERROR:  55000: the registry has version 1.0 of snowflake, the node \Q$version\E\nDETAIL:  .*\nHINT:  /,
		"version $version is refused");
	like(sql_error($registry, "SELECT snowflake.$_"), qr/^ERROR:  55000: the registry has version 1.0 of snowflake, the node \Q$version\E/,
		"version $version: $_ is refused")
	  foreach "renew_lease('$version', gen_random_uuid(), now())", "release_lease('$version', gen_random_uuid(), now())";
}
is($registry->safe_psql('postgres', sprintf $acquire, '1.1', 900, 909), 900, 'version 1.1 is served');

#
# Another source than before
#
sub check_source_refused
{
	my ($label, $member, $message) = @_;
	my $error;

	poll("$label: refusal", sub { $error = sql_error($member, 'SELECT snowflake_nextval()') });
	like($error, qr/^ERROR:  55000: $message\nDETAIL:  .*\nHINT:  .*snowflake_change_source\(\)/, "$label: a draw is refused");
	is(stat_of($member, 'state, node_number IS NULL'), 'refused|t', "$label: view");
}

set_and_reload($third, 'snowflake.registry' => undef);
poll('third to notice', sub { stat_of($third, 'state') ne 'ready' });
check_source_refused('no registry any more', $third, 'the node number of this server came from another source before');
$third->restart;
check_source_refused('no registry any more, after a restart', $third, 'the node number of this server came from another source before');
$third->safe_psql('postgres', 'SELECT snowflake_change_source()');
push @files, write_ids(draw($third, 100));
is(stat_of($third, 'registry'), 'postgres', 'no registry any more: after snowflake_change_source() the local table is used');
is($third->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), 1, 'no registry any more: a local row');
set_and_reload($third, 'snowflake.registry' => place($registry));
poll('third to notice', sub { stat_of($third, 'state') ne 'ready' });
check_source_refused('a registry again', $third, 'the node number of this server came from another source before');
$third->safe_psql('postgres', 'SELECT snowflake_change_source()');
push @files, write_ids(draw($third, 100));
is(stat_of($third, 'registry'), $registry->host . ":$port/postgres", 'a registry again: after snowflake_change_source()');

$registry->safe_psql('postgres', 'CREATE DATABASE other');
$registry->safe_psql('other', 'CREATE EXTENSION snowflake');
set_and_reload($third, 'snowflake.registry' => place($registry, dbname => 'other'));
poll('third to notice', sub { stat_of($third, 'state') ne 'ready' });
check_source_refused('another registry', $third, "the registry is not the one that this server's ids came from");
is(registry_row($registry, $third, "node_number", "other"), "", 'another registry: no row there');
$third->safe_psql('postgres', 'SELECT snowflake_change_source()');
push @files, write_ids(draw($third, 100));
is(stat_of($third, 'registry'), $registry->host . ":$port/other", 'another registry: after snowflake_change_source()');
is($third->safe_psql('postgres', 'SELECT timestamp > clock_timestamp() - interval $$1 min$$ FROM snowflake_parse(snowflake_nextval())'), 't', 'and it draws');
check_ids('with other sources', @files);
$third->stop;

#
# Another layout
#
use constant EARLIER => 'twitter, epoch 2009-01-01T00:00:00Z';

set_conf($node, 'snowflake.layout' => EARLIER, 'snowflake.registry' => place($registry, %by_address), 'snowflake.max_wait' => '30s');
# that they live is to be seen also if the machine stalls
set_and_reload($_, 'snowflake.lease_duration' => '1min') foreach $by_password, $by_service;
foreach my $member ($by_password, $by_service)
{
	poll('a long lease', sub { draw($member, 1); registry_row($registry, $member, "leased_until > clock_timestamp() + interval '30 s'") eq 't' });
}
$node->start;
poll('refusal', sub { stat_of($node, 'state') eq 'refused' });
like(sql_error($node, 'SELECT snowflake_nextval()'),
	qr/^ERROR:  55000: snowflake.layout is not the one of the registry\nDETAIL:  The registry's is "${\ LAYOUT}"\.\nHINT:  .*snowflake_change_layout\(\)/,
	'another layout is refused');
like(sql_error($registry, "SELECT snowflake_change_layout('${\ EARLIER}')"),
	qr/^ERROR:  55000: node numbers are leased under the layout "${\ LAYOUT}"\nDETAIL:  The last of these leases lasts until .*\nHINT:  /,
	'change of the layout: refused while leases live');
$_->stop foreach $by_password, $by_service;
poll('fake lease to end', sub { sql_error($registry, "SELECT snowflake_change_layout('twitter, epoch 2024-01-01T00:00:00Z')")
		=~ /^ERROR:  55000: new ids would not be greater than all of the layout/ });
like(sql_error($registry, "SELECT snowflake_change_layout('twitter, epoch 2024-01-01T00:00:00Z')"),
	qr/^ERROR:  55000: .*\nDETAIL:  Ids of the old layout can be up to \d+, those of the new one begin at \d+\.\nHINT:  /,
	'change of the layout: refused when ids would not grow');
is(sql_error($registry, "SET ROLE node; SELECT snowflake_change_layout('${\ EARLIER}')") =~ /^ERROR:  42501: / ? 'denied' : 'allowed', 'denied',
	'change of the layout: not for the role of the nodes');
is(sql_error($registry, "SELECT snowflake_change_layout('${\ EARLIER}')"), '', 'change of the layout: done');
poll('draw', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
my ($least) = sort { $a <=> $b } draw($node, 100);
my ($greatest) = sort { $b <=> $a } read_ids(@files);
cmp_ok($least, '>', $greatest, 'new ids are greater than all old ones');
$by_password->start;
poll('refusal', sub { stat_of($by_password, 'state') eq 'refused' });
like(sql_error($by_password, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: snowflake.layout is not the one of the registry\n/,
	'a server with the old layout is refused');
set_conf($by_password, 'snowflake.layout' => EARLIER);
$by_password->restart;
check_ids('with the new layout', @files, write_ids(draw($node, 100)), write_ids(draw($by_password, 100)));
$_->stop foreach $by_password, $node;

#
# Fifty at once: sessions that wait for a lock, and then all ask
#
sub fifty_at_once
{
	my ($label) = @_;
	my $gate = $registry->background_psql('other', on_error_stop => 1);
	my (@runs, @results);

	$gate->query('SELECT pg_advisory_lock(1)');
	foreach my $i (1 .. 50)
	{
		my $base = "$directory/$label.$i";
		my $pid = fork // die "fork: $!";

		if (!$pid)
		{
			open STDOUT, '>', "$base.out";
			open STDERR, '>', "$base.err";
			exec $registry->installed_command('psql'), '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $registry->connstr('other'),
			  '-c', "DO \$\$ BEGIN PERFORM pg_advisory_lock_shared(1); END \$\$",
			  '-c', sprintf($acquire =~ s/lease_window => '3 s'/lease_window => '10 min'/r, '1.0', 0, 59)
			  or POSIX::_exit(1);
		}
		push @runs, $pid;
	}
	poll('fifty sessions', sub { $registry->safe_psql('postgres',
				"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 50 });
	$gate->query('SELECT pg_advisory_unlock(1)');
	waitpid $_, 0 foreach @runs;
	$gate->quit;
	foreach my $i (1 .. 50)
	{
		my ($number, $error) = map { slurp_file("$directory/$label.$i.$_") } 'out', 'err';

		push @results, $number =~ /^(\d+)$/ ? $1 : $error;
	}
	return @results;
}

$registry->safe_psql('other', 'DROP EXTENSION snowflake; CREATE EXTENSION snowflake');
is(join(',', sort { $a <=> $b } fifty_at_once('empty')), join(',', 0 .. 49), 'fifty at once, empty table: fifty numbers');
is($registry->safe_psql('other', 'SELECT count(*), count(DISTINCT node_number) FROM snowflake.worker_node WHERE released_at IS NULL'),
	'50|50', 'fifty at once, empty table: fifty open rows');

# Numbers 0 to 9 were given back, 10 to 19 expired, ten were never used: thirty are left.
$registry->safe_psql('other', <<EOS);
UPDATE snowflake.worker_node SET leased_until = now() + '1 hour';
UPDATE snowflake.worker_node SET leased_until = now() - '1 s'::interval WHERE node_number < 20;
UPDATE snowflake.worker_node SET released_at = now() WHERE node_number < 10;
EOS
my @results = fifty_at_once('full');
is(join(',', sort { $a <=> $b } grep { /^\d+$/ } @results), join(',', 0 .. 19, 50 .. 59), 'fifty at once, thirty free: thirty numbers');
is(scalar(grep { /^ERROR:  53400: no node number is free\nDETAIL:  All numbers from 0 to 59 \(60\) are leased; the earliest bound is / } @results), 20,
	'fifty at once, thirty free: errors for the others');
is($registry->safe_psql('other', 'SELECT max(n) FROM (SELECT count(*) n FROM snowflake.worker_node
		WHERE released_at IS NULL GROUP BY node_number) s'), 1, 'fifty at once, thirty free: one open row for a number');

#
# No secret anywhere
#
foreach my $member (@nodes, $node)
{
	unlike(slurp_file($member->logfile), qr/${\ SECRET}|not the right one/, $member->name . ': no secret in the log');
}
$registry->stop;

done_testing();
