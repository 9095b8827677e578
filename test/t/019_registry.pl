# 019_registry.pl
#	  Three primaries get their node numbers from one registry, which is not preloaded:
#	  with a role that may do nothing else and its password in a file, from a service
#	  file, over TLS.  What can be wrong with the registry, the layout or the versions
#	  is an error that says so and tells no secret.  A number is released; another
#	  registry is refused until a superuser says so (035_orders.pl tests the change itself).  Fifty
#	  servers that ask at the same time get different numbers.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
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
my $error;
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
host    all clear 127.0.0.1/32 password
host    all all 127.0.0.1/32 scram-sha-256
EOS
$registry->start;
$registry->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$registry->safe_psql('postgres', "CREATE ROLE $_ LOGIN PASSWORD '" . SECRET . "'")
  foreach 'node', 'tls', 'clear', 'unprivileged', 'half';
$registry->safe_psql('postgres', <<EOS);
GRANT USAGE ON SCHEMA snowflake TO node, tls, half;
GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease,
	snowflake.list_ends, snowflake.hand_over TO node, tls;
GRANT EXECUTE ON FUNCTION snowflake.renew_lease, snowflake.release_lease TO half;
EOS

my $passfile = write_file('passfile', join '', map { "$_:*:*:*:" . SECRET . "\n" } '127.0.0.1', 'registry.test');
my $wrong_passfile = write_file('wrong', "*:*:*:*:not the right one\n");
my $service_file = write_file('pg_service.conf', <<EOS . "password=" . SECRET . "\n");
[mesh]
host=127.0.0.1
port=$port
user=node
EOS

#
# Three primaries issue ids at the same time
#
my %by_address = (host => '127.0.0.1', user => 'node', passfile => $passfile);
my %by_tls = (host => 'registry.test', hostaddr => '127.0.0.1', user => 'tls', passfile => $passfile,
	sslmode => 'verify-full', sslrootcert => "$directory/certificate");
my $by_password = new_member('password', conninfo_of($registry, %by_address));
my $by_service = new_member('service', 'service=mesh', start => 0);
my $third = new_member('third', $has_tls ? conninfo_of($registry, %by_tls) : conninfo_of($registry));
my @nodes = ($by_password, $by_service, $third);
{
	local $ENV{PGSERVICEFILE} = $service_file;
	$by_service->start;
	$by_service->safe_psql('postgres', 'CREATE EXTENSION snowflake');
}
my %address = (password => "127.0.0.1:$port/postgres", service => "127.0.0.1:$port/postgres",
	third => ($has_tls ? 'registry.test' : $registry->host) . ":$port/postgres");
my (@files, %number);

my @clients = map { start_clients($_, count => 2, sql => GENTLE) } @nodes;
$_->wait_for(2000) foreach @clients;
foreach my $node (@nodes)
{
	my $name = $node->name;

	$number{$name} = wait_for_number($node);
	is(stat_of($node, 'state, detail, worker_id_from, registry'), "ready||auto|$address{$name}", "$name: view");
	is($node->safe_psql('postgres', 'CREATE ROLE visitor; SET ROLE visitor;
			SELECT state, detail IS NULL, registry IS NULL, last_id IS NULL FROM pg_stat_snowflake'),
		'ready|t|t|t', "$name: what a user sees who is not in pg_read_all_stats");
	is(registry_row($registry, $node, 'node_number, datacenter_id, worker_id, closed_at IS NULL, layout,
			leased_until > launched_at AND leased_until <= renewed_at + interval \'5 s\''),
		join('|', $number{$name}, $number{$name} >> 5, $number{$name} & 31, 't', LAYOUT, 't'),
		"$name: row in the registry");
	is(registry_row($registry, $node, 'system_identifier, timeline, extract(epoch FROM launched_at)'),
		$node->safe_psql('postgres', 'SELECT system_identifier, 1, extract(epoch FROM pg_postmaster_start_time())
			FROM pg_control_system()'), "$name: the row tells the server");
	is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM snowflake.worker_node), uses, incarnation FROM snowflake.cluster'),
		'0|another|' . $registry->safe_psql('postgres', 'SELECT incarnation FROM snowflake.registry'),
		"$name: no local row, and the registry is recorded");
}
is($registry->safe_psql('postgres', 'SELECT count(*), count(DISTINCT node_number), bool_and(node_number < 1023) FROM snowflake.worker_node'),
	'3|3|t', 'one lease for each server, with different numbers');

# For longer than a lease lasts.
my $later = registry_row($registry, $third, "extract(epoch FROM leased_until + interval '1 s')");
poll('leases to be renewed', sub { time > $later });
$_->wait_for(1000) foreach @clients;
foreach my $i (0 .. $#nodes)
{
	my @own = $clients[$i]->stop;
	my %seen = map { id_node($_) => 1 } read_ids(@own);

	is($clients[$i]->errors, '', $nodes[$i]->name . ': no errors');
	is(join(',', keys %seen), $number{ $nodes[$i]->name }, $nodes[$i]->name . ': ids have its number');
	push @files, @own;
}
check_ids('three primaries', @files);
is($registry->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE renewed_at > launched_at + $$3 s$$'), 3,
	'leases were renewed, by the same rows');
is(sql_error($registry, 'SELECT snowflake_nextval()') =~ /^ERROR:  55000: / ? 'refused' : 'issued', 'refused',
	'the registry itself issues no ids: it is not preloaded');

#
# Releasing a number
#
like($by_password->safe_psql('postgres', 'SET ROLE visitor; SELECT has_function_privilege($$snowflake_release()$$, $$EXECUTE$$),
		has_function_privilege($$snowflake_change_registry()$$, $$EXECUTE$$)'), qr/^f\|f$/, 'not for everybody');
$by_password->safe_psql('postgres', 'SELECT snowflake_release()');
is(registry_row($registry, $by_password, 'node_number, closed_at IS NOT NULL, leased_until <= clock_timestamp() + interval \'1 s\''),
	"$number{password}|t|t", 'snowflake_release(): the row is closed, and the end is the true one');
$by_password->safe_psql('postgres', 'SELECT snowflake_release()');
is(registry_row($registry, $by_password, 'closed_at IS NOT NULL'), 't', 'snowflake_release() again: nothing to release, no other lease');
push @files, write_ids(issue_ids($by_password, 100));
my $next = wait_for_number($by_password);
is(scalar(grep { $_ == $next } values %number), 0, 'the next id takes another number');
like(slurp_file($by_password->logfile), qr/snowflake: released node number $number{password}/, 'the log says that it was released');

#
# What can be wrong
#
# Never without a registry: it would use its own tables from then on.
my $nowhere = 'host=/nonexistent';
my $node = new_member('wrong', $nowhere, start => 0, conf => "snowflake.max_wait = '1s'\n");

sub check_wrong
{
	my ($label, $conninfo, $pattern) = @_;

	set_and_reload($node, 'snowflake.registry' => $conninfo);
	my ($error, $seconds);
	poll("$label: error", sub { ($error, $seconds) = nextval_error_with_reason($node, '1s'); $error =~ $pattern });
	like($error, $pattern, "$label: error");
	ok($seconds > 0.9 && $seconds < 30, "$label: after max_wait ($seconds s)");
	unlike($error, qr/Sesame|not the right/, "$label: no secret in it");
	my ($message) = $error =~ /^ERROR:  \w+: (.*)/;
	my $expected = 'starting|t|' . ($message // 'no error');
	is(settle($expected, sub { stat_of($node, 'state, node_number IS NULL, detail') }), $expected, "$label: view");
}

$node->start;
foreach my $bad (
	[ "host=127.0.0.1 password=" . SECRET, 'snowflake.registry must not contain a password' ],
	[ "host=127.0.0.1 dbname=other", 'snowflake.registry must not name a database other than postgres' ],
	[ "no registry", 'snowflake.registry must be a libpq connection string or URI' ])
{
	set_and_reload($node, 'snowflake.registry' => $bad->[0]);
	poll('log', sub { slurp_file($node->logfile) =~ /$bad->[1]/ });
	is($node->safe_psql('postgres', 'SHOW snowflake.registry'), $nowhere, "$bad->[1]: the old value stays");
}
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');

check_wrong('wrong password', conninfo_of($registry, %by_address, passfile => $wrong_passfile),
	qr/^ERROR:  55P03: could not reach the registry 127.0.0.1:$port\/postgres\nDETAIL:  .*password authentication failed for user "node".*\nHINT:  /);
check_wrong('no password', conninfo_of($registry, %by_address, passfile => "$directory/nowhere"),
	qr/^ERROR:  55P03: could not reach the registry 127.0.0.1:$port\/postgres\nDETAIL:  .*no password supplied\nHINT:  /);
check_wrong('no privilege at all', conninfo_of($registry, %by_address, user => 'unprivileged'),
	qr/^ERROR:  55P03: permission denied for function acquire_lease\nDETAIL:  The registry is .*\nHINT:  Grant USAGE on the schema/);
# as the documents say: who asks for it gets the password, unless the setting forbids it
check_wrong('a server that asks for the password in clear text', conninfo_of($registry, %by_address, user => 'clear'),
	qr/^ERROR:  55P03: permission denied for function acquire_lease\n/);
check_wrong('the same, with channel_binding', conninfo_of($registry, %by_address, user => 'clear', channel_binding => 'require'),
	qr/^ERROR:  55P03: could not reach the registry 127.0.0.1:$port\/postgres\nDETAIL:  .*channel binding required.*\nHINT:  /);
check_wrong('none on a function', conninfo_of($registry, %by_address, user => 'half'),
	qr/^ERROR:  55P03: permission denied for function acquire_lease\nDETAIL:  The registry is .*\nHINT:  Grant USAGE on the schema/);
$registry->safe_psql('postgres', 'ALTER SCHEMA snowflake RENAME TO hidden');
check_wrong('no extension', conninfo_of($registry, %by_address),
	qr/^ERROR:  55P03: schema "snowflake" does not exist\nDETAIL:  The registry is 127.0.0.1:$port\/postgres\.\nHINT:  Create the extension/);
check_wrong('no server', "host=$directory port=$port",
	qr/^ERROR:  55P03: could not reach the registry \Q$directory\E:$port\/postgres\nDETAIL:  .*No such file or directory.*\nHINT:  /);
# not before: with the setting as it was, the server would get a row
$registry->safe_psql('postgres', 'ALTER SCHEMA hidden RENAME TO snowflake');
check_wrong('no service', 'service=nowhere',
	qr/^ERROR:  55P03: could not reach the registry service nowhere\nDETAIL:  .*\nHINT:  /);
SKIP:
{
	skip 'openssl is not installed', 9 unless $has_tls;
	command_ok([ 'psql', '-d', "host=127.0.0.1 port=$port dbname=postgres user=tls passfile=$passfile channel_binding=require", '-c', 'SELECT' ],
		'channel_binding goes with a certificate that nobody knows');
	check_wrong('certificate of another name', conninfo_of($registry, %by_tls, host => 'other.test'),
		qr/^ERROR:  55P03: could not reach the registry other.test:$port\/postgres\nDETAIL:  .*certificate.*does not match host name "other.test"\nHINT:  /);
	check_wrong('TLS only, without TLS', conninfo_of($registry, %by_tls, sslmode => 'disable'),
		qr/^ERROR:  55P03: could not reach the registry registry.test:$port\/postgres\nDETAIL:  .*pg_hba.conf rejects.*\nHINT:  /);
}
is(registry_row($registry, $node, "node_number"), "", 'none of these got a row');

$node->stop;

#
# Versions, by SQL
#
my $acquire = "SELECT node_number FROM snowflake.acquire_lease(version => '%s', start => gen_random_uuid(), call => 1, own => false,
	incarnation => NULL, first_number => %d, last_number => %d, fixed => false, layout => '${\ LAYOUT}', layout_set => true,
	tick => '1 ms', node_clock => clock_timestamp(), max_ahead => '1 s', lease_window => '3 s', host_name => 'fake', port => 1,
	system_identifier => 1, timeline => 1, timelines => NULL, launched_at => clock_timestamp(), known_until => NULL, known_incarnation => NULL, node_floor => NULL,
	previous_token => NULL, previous_end => NULL)";

foreach my $version ('1.2', '2.0', '1.12', '0.9')
{
	like(sql_error($registry, sprintf $acquire, $version, 900, 909),
		qr/^ERROR:  55000: the registry has version 1.0 of snowflake, the node \Q$version\E\nDETAIL:  .*\nHINT:  /,
		"version $version is refused");
	like(sql_error($registry, "SELECT snowflake.$_"), qr/^ERROR:  55000: the registry has version 1.0 of snowflake, the node \Q$version\E/,
		"version $version: $_ is refused")
	  foreach "renew_lease('$version', gen_random_uuid(), 1, gen_random_uuid(), now(), 'twitter', now())",
	  "release_lease('$version', gen_random_uuid(), 1, gen_random_uuid(), now())", "list_ends('$version', '1 s', '1 ms')";
}
like($registry->safe_psql('postgres', sprintf $acquire, '1.1', 900, 909), qr/^90\d$/, 'version 1.1 is served');

#
# Another registry than before
#
sub check_refused
{
	my ($label, $member, $message) = @_;
	my $error;

	poll("$label: refusal", sub { ($error = sql_error($member, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()")) =~ /55000/ });
	like($error, qr/^ERROR:  55000: $message\nDETAIL:  .*\nHINT:  .*see "Another registry" in doc\/operations\.md/, "$label: no id");
	is(stat_of($member, 'state, node_number IS NULL'), 'refused|t', "$label: view");
}

my $from_registry = 'the node numbers of this cluster come from a registry, and snowflake.registry is empty';
set_and_reload($third, 'snowflake.registry' => undef);
check_refused('no registry any more', $third, $from_registry);
$third->restart;
check_refused('no registry any more, after a restart', $third, $from_registry);
is($third->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), 0, 'no registry any more: no local row');
set_and_reload($third, 'snowflake.registry' => conninfo_of($registry));
push @files, write_ids(issue_ids($third, 100));
is(stat_of($third, 'registry'), name_of($registry), 'the registry again: ids go on');

my $other = new_registry('other');
set_and_reload($third, 'snowflake.registry' => conninfo_of($other));
check_refused('another registry', $third, "the registry is not the one that this cluster's ids were issued with");
is(registry_row($other, $third, 'node_number'), '', 'another registry: no row there');
set_and_reload($third, 'snowflake.registry' => conninfo_of($third));
poll('itself', sub { sql_error($third, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()") =~
	/^ERROR:  55000: the registry is the server itself\nDETAIL:  .*\nHINT:  Leave snowflake.registry empty/ });
pass('a registry that is the server itself is refused');
set_and_reload($third, 'snowflake.registry' => conninfo_of($registry));
push @files, write_ids(issue_ids($third, 100));
check_ids('one registry and then others', split_ids(12, 1023, @files));
$third->stop;

#
# Another layout
#
use constant EARLIER => 'twitter, epoch 2009-01-01T00:00:00Z';
use constant LATER => 'twitter, epoch 2024-01-01T00:00:00Z';

sub check_layout_refused
{
	my ($label, $member, $detail, $hint) = @_;
	my $error;

	poll("$label: refusal", sub { ($error = sql_error($member, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()")) =~ /$detail/ });
	like($error, qr/^ERROR:  55000: snowflake.layout is not the one that ids were issued under\nDETAIL:  Ids were issued under "[^"]+"; the server has "[^"]+"\. $detail.*\nHINT:  $hint/,
		"$label: refused");
}

# that they live is to be seen also if the machine stalls
set_and_reload($by_service, 'snowflake.lease_duration' => '1min');
poll('a long lease', sub { issue_ids($by_service, 1); registry_row($registry, $by_service, "leased_until > clock_timestamp() + interval '30 s'") eq 't' });
$by_password->stop;
set_conf($node, 'snowflake.layout' => EARLIER, 'snowflake.registry' => conninfo_of($registry, %by_address), 'snowflake.max_wait' => '30s');
$node->start;
check_layout_refused('another layout', $node, 'The server on host "[^"]+", port ' . $by_service->port . ', has a lease until ',
	'Set snowflake.layout back and add the new layout to snowflake.extra_layouts; or stop all other servers');
$by_service->stop;
$node->stop;
set_conf($node, 'snowflake.layout' => LATER);
$node->start;
check_layout_refused('lesser ids', $node, 'Its ids would not be greater than all of them\.',
	'Set snowflake.layout back and add the new layout to snowflake.extra_layouts; as snowflake.layout it is accepted from 20\d\d-');
$node->stop;
set_conf($node, 'snowflake.layout' => EARLIER);
$node->start;
my ($least) = sort { $a <=> $b } issue_ids($node, 100);
my ($greatest) = sort { $b <=> $a } read_ids(@files);
cmp_ok($least, '>', $greatest, 'all others stopped: accepted, and all ids are greater');
set_conf($by_password, 'snowflake.layout' => LAYOUT);
$by_password->start;
check_layout_refused('the old layout', $by_password, 'The server on host "[^"]+", port ' . $node->port . ', has a lease until ', 'Set');
$by_password->stop;
# nobody has set it: as after pg_upgrade with a new postgresql.conf
set_conf($by_password, 'snowflake.layout' => undef);
$by_password->start;
poll('refusal', sub { $error = sql_error($by_password, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()"); $error =~ /55000/ });
like($error, qr/^ERROR:  55000: snowflake.layout is not the one .*\nDETAIL:  .*\nHINT:  Add "snowflake.layout = '.*epoch 2009-01-01T00:00:00Z'" to postgresql.conf and restart/,
	'a default that nobody has set: refused, with the line to add');
set_conf($by_password, 'snowflake.layout' => EARLIER);
$by_password->restart;
check_ids('with the new layout', split_ids(12, 1023, @files, write_ids(issue_ids($node, 100)), write_ids(issue_ids($by_password, 100))));
$_->stop foreach $by_password, $node;

#
# Fifty at once: sessions that wait for a lock, and then all ask
#
sub fifty_at_once
{
	my ($label) = @_;
	my $gate = $other->background_psql('postgres', on_error_stop => 1);
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
			exec $other->installed_command('psql'), '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $other->connstr('postgres'),
			  '-c', "DO \$\$ BEGIN PERFORM pg_advisory_lock_shared(1); END \$\$",
			  '-c', sprintf($acquire =~ s/lease_window => '3 s'/lease_window => '10 min'/r, '1.0', 0, 59)
			  or POSIX::_exit(1);
		}
		push @runs, $pid;
	}
	poll('fifty sessions', sub { $other->safe_psql('postgres',
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

is(scalar(keys %{ { map { $_ => 1 } grep { /^\d+$/ && $_ < 60 } fifty_at_once('empty') } }), 50, 'fifty at once, empty table: fifty numbers');
is($other->safe_psql('postgres', 'SELECT count(*), count(DISTINCT node_number) FROM snowflake.worker_node WHERE closed_at IS NULL'),
	'50|50', 'fifty at once, empty table: fifty open rows');

# Ten of the numbers were released, ten expired, ten were never used: thirty are left.
$other->safe_psql('postgres', <<EOS);
WITH w AS (SELECT token, row_number() OVER (ORDER BY node_number) AS n FROM snowflake.worker_node)
UPDATE snowflake.worker_node SET starts_at = '-infinity', closed_at = CASE WHEN n <= 10 THEN now() END,
	leased_until = now() + CASE WHEN n <= 20 THEN '-1 s' ELSE '1 hour' END::interval
FROM w WHERE w.token = worker_node.token
EOS
my @results = fifty_at_once('full');
is(scalar(keys %{ { map { $_ => 1 } grep { /^\d+$/ } @results } }), 30, 'fifty at once, thirty free: thirty numbers');
is(scalar(grep { /^ERROR:  53400: no node number is free\nDETAIL:  Of 60 numbers the earliest end is / } @results), 20,
	'fifty at once, thirty free: errors for the others');
is($other->safe_psql('postgres', 'SELECT max(n) FROM (SELECT count(*) n FROM snowflake.worker_node
		WHERE closed_at IS NULL GROUP BY node_number) s'), 1, 'fifty at once, thirty free: one open row for a number');

#
# No secret anywhere
#
foreach my $member (@nodes, $node)
{
	unlike(slurp_file($member->logfile), qr/${\ SECRET}|not the right one/, $member->name . ': no secret in the log');
}
$_->stop foreach $registry, $other;

done_testing();
