# 019_registry.pl
#	  Three primaries get their node numbers from one registry, which is not preloaded:
#	  with a role that may do nothing else and its password in a file, from a service
#	  file, over TLS.  What can be wrong with the registry, the layout or the versions
#	  is an error that says so and tells no secret.  A number is released; another
#	  registry, which has not taken over this one, is refused, while ids go on to the end of the lease.
#	  Fifty servers that ask at the same time get different numbers.
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
$registry->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake');
$registry->safe_psql('postgres', "CREATE ROLE $_ LOGIN PASSWORD '" . SECRET . "'")
  foreach 'node', 'tls', 'clear', 'unprivileged', 'half';
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
my $by_tls = $has_tls ? conninfo_of($registry, %by_tls) : conninfo_of($registry);
my $third = new_member('third', $by_tls);
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
is($registry->safe_psql('postgres', 'SELECT count(*), count(DISTINCT node_number), bool_and(node_number < 1023 AND node_number % 2 = 0)
		FROM snowflake.worker_node'), '3|3|t', 'one lease for each server, with different numbers, even in the first generation');

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
is($registry->safe_psql('postgres', "SELECT count(*), count(w.renewed_at > w.launched_at + '3 s'::interval OR NULL) FROM ${\ LEASES} AS w"), '3|3',
	'leases were renewed, by the same rows');
is(sql_error($registry, 'SELECT snowflake_nextval()') =~ /^ERROR:  55000: / ? 'refused' : 'issued', 'refused',
	'the registry itself issues no ids: it is not preloaded');

#
# Releasing a number
#
is($by_password->safe_psql('postgres', 'SET ROLE visitor; SELECT has_function_privilege($$snowflake_release()$$, $$EXECUTE$$)'), 'f',
	'not for everybody');
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
	[ "no registry", 'snowflake.registry must be "own", or a libpq connection string or URI' ])
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
	qr/^ERROR:  55P03: permission denied for schema snowflake\nDETAIL:  The registry is .*\nHINT:  Grant USAGE on the schema/);
# as the documents say: who asks for it gets the password, unless the setting forbids it
check_wrong('a server that asks for the password in clear text', conninfo_of($registry, %by_address, user => 'clear'),
	qr/^ERROR:  55P03: permission denied for schema snowflake\n/);
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
# A registry that does not know the protocol of the node; 053_protocol_versions.pl has the other side
#
my $begin_call = $registry->safe_psql('postgres', "SELECT pg_get_functiondef('snowflake.begin_call'::regproc)");
my $of_before = $begin_call =~ s/(\(p_call -> 'protocol'\)::integer > )1/${1}0/r;
isnt($of_before, $begin_call, 'a registry of an earlier protocol');
$registry->safe_psql('postgres', $of_before);
set_conf($node, 'snowflake.registry' => conninfo_of($registry, %by_address));
$node->start;
poll('refusal', sub { ($error = sql_error($node, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()")) =~ /55000/ });
like($error, qr/^ERROR:  55000: version 1 of the registry's protocol is not known here\nDETAIL:  The registry knows version 1\.\nHINT:  Update snowflake_registry in the registry before its nodes/,
	'a registry of an earlier protocol: refused');
is(registry_row($registry, $node, 'node_number'), '', 'a registry of an earlier protocol: no row');
$node->stop;
$registry->safe_psql('postgres', $begin_call);
is(settle('', sub { sql_error($third, 'SELECT snowflake_nextval()') }), '', 'a registry of the protocol again: ids are issued');

#
# Another registry than before, which has not taken over the one that was used.  The lease goes on to
# its end.
#
sub check_refused
{
	my ($label, $member, $message) = @_;
	my $error;

	poll("$label: refusal", sub { ($error = sql_error($member, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()")) =~ /55000/ });
	like($error, qr/^ERROR:  55000: $message\nDETAIL:  .*\nHINT:  .*see "Another registry" in doc\/operations\.md/, "$label: no id");
}

# The view has the trouble, and ids go on.
sub check_goes_on
{
	my ($label, $member, $message) = @_;
	my $lease = registry_row($registry, $member, 'token, leased_until');

	is(settle("ready|$message", sub { stat_of($member, 'state, detail') }), "ready|$message", "$label: the view has the trouble");
	my @ids = issue_ids($member, 100);
	push @files, write_ids(@ids);
	is(stat_of($member, 'node_number'), id_node($ids[-1]), "$label: ids go on");
	is(registry_row($registry, $member, 'token, leased_until'), $lease, "$label: under the lease, which is not renewed");
}

my $own_message = "the registry's own cluster uses another registry";
my $other_message = "the registry is not the one that the node's ids were issued with";
my $other = new_registry('other');
my $token = registry_row($registry, $third, 'token');

# so that it does not end while the machine stalls
set_and_reload($third, 'snowflake.lease_duration' => '1min');
poll('a long lease', sub { issue_ids($third, 1); registry_row($registry, $third, "leased_until > clock_timestamp() + interval '40 s'") eq 't' });
set_and_reload($third, 'snowflake.registry' => undef);
check_goes_on('no registry any more', $third, $own_message);
set_and_reload($third, 'snowflake.registry' => conninfo_of($other));
check_goes_on('another registry', $third, $other_message);
is(registry_row($other, $third, 'node_number'), '', 'another registry: no row there');
is($third->safe_psql('postgres', 'SELECT uses, incarnation FROM snowflake.cluster'), 'another|' . incarnation_of($registry),
	'another registry: nothing else is recorded');
set_and_reload($third, 'snowflake.registry' => conninfo_of($third));
check_goes_on('itself', $third, $own_message);

# Back in time: nothing has happened.
my $until = registry_row($registry, $third, 'leased_until');
set_and_reload($third, 'snowflake.registry' => $by_tls, 'snowflake.lease_duration' => '3s');
poll('no trouble', sub { stat_of($third, "state = 'ready' AND detail IS NULL") eq 't' });
is(registry_row($registry, $third, 'token, closed_at IS NULL'), "$token|t", 'the registry again: the same lease');
poll('renewal', sub { issue_ids($third, 1); registry_row($registry, $third, "leased_until > '$until'") eq 't' });
pass('the registry again: it is renewed');
push @files, write_ids(issue_ids($third, 100));

# To its end, and not longer.
set_and_reload($third, 'snowflake.registry' => undef);
check_refused('no registry any more, the lease has ended', $third, $own_message);
is(stat_of($third, 'state, leased_until <= clock_timestamp(), snowflake_timestamp(last_id) < leased_until'), 'expired|t|t',
	'no registry any more, the lease has ended: view');
$third->restart;
check_refused('no registry any more, after a restart', $third, $own_message);
is(stat_of($third, 'state, node_number IS NULL'), 'refused|t', 'no registry any more, after a restart: view');
is($third->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), 0, 'no registry any more: no local row');
set_and_reload($third, 'snowflake.registry' => conninfo_of($other));
check_refused('another registry, after a restart', $third, $other_message);
is(registry_row($other, $third, 'node_number'), '', 'another registry, after a restart: no row there');
set_and_reload($third, 'snowflake.registry' => conninfo_of($registry));
push @files, write_ids(issue_ids($third, 100));
is(stat_of($third, 'registry'), name_of($registry), 'the registry again: ids go on');
check_ids('one registry and then others', split_ids(12, 1023, @files));

#
# A registry is a root: its cluster uses no other, and one whose cluster does is none.
#
set_conf($node, 'snowflake.registry' => conninfo_of($third));
$node->start;
check_refused('a registry whose cluster uses another', $node, $own_message);
is(registry_row($third, $node, 'node_number'), '', 'a registry whose cluster uses another: no row there');
$third->stop;
set_and_reload($node, 'snowflake.registry' => conninfo_of($node));
poll('itself', sub { ($error = sql_error($node, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()")) =~ /itself/ });
like($error, qr/^ERROR:  55000: the registry is the server itself\nDETAIL:  .*\nHINT:  Set snowflake.registry to "own"/,
	'a registry that is the server itself is refused');
$node->stop;

my $root = auto_node('root', conf => "snowflake.registry = '${\ conninfo_of($other)}'\n");
$root->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake');
my $leaf = new_member('leaf', conninfo_of($root));
my $leaf_number = wait_for_number($leaf);
poll('refusal', sub { ($error = sql_error($root, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()")) =~ /55000/ });
like($error, qr/^ERROR:  55000: cannot use another registry while this server's own tables are one\nDETAIL:  Node number $leaf_number is leased until .*\. The view snowflake\.leases here shows to whom\.\nHINT:  Set snowflake.registry to "own" on this server; or move all servers: .*snowflake\.successor\(\).*snowflake\.close_registry\(\)/,
	'a registry that is to use another: refused');
is($root->safe_psql('postgres', 'SELECT uses IS NULL AND incarnation IS NULL FROM snowflake.cluster'), 't', 'a registry that is to use another: nothing is recorded');
$until = registry_row($root, $leaf, 'leased_until');
poll('renewal', sub { registry_row($root, $leaf, "leased_until > '$until'") eq 't' });
pass('a registry that is to use another: it goes on to serve');
set_and_reload($root, 'snowflake.registry' => undef);
isnt(wait_for_number($root), $leaf_number, 'a registry that is to use another, and then not: it has a number of its own tables');
is($root->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster'), 'own', 'a registry that is to use another, and then not: that is recorded');
$_->stop foreach $leaf, $root;

#
# Another layout: refused, until the registry's owner says so.  Nodes go on to the ends of their leases.
#
use constant EARLIER => 'timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2009-01-01T00:00:00Z';
use constant LATER => 'timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z';

sub check_layout_refused
{
	my ($label, $member, $recorded, $layout) = @_;
	my $error;

	poll("$label: refusal", sub { ($error = sql_error($member, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()")) =~ /55000/ });
	like($error, qr/^ERROR:  55000: the layout is not the one that ids are issued under\nDETAIL:  Ids are issued under "\Q$recorded\E"; the node has "\Q$layout\E"\.\nHINT:  Set the layout of the node to '\Q$recorded\E' .*run SELECT snowflake\.change_layout\('\Q$layout\E'\) in the registry: /,
		"$label: refused");
}

# that it lives is to be seen also if the machine stalls
set_and_reload($by_service, 'snowflake.lease_duration' => '1min');
poll('a long lease', sub { issue_ids($by_service, 1); registry_row($registry, $by_service, "leased_until > clock_timestamp() + interval '30 s'") eq 't' });
$by_password->stop;
set_conf($node, 'snowflake.layout' => EARLIER, 'snowflake.registry' => conninfo_of($registry, %by_address), 'snowflake.max_wait' => '30s');
$node->start;
check_layout_refused('another layout', $node, LAYOUT, EARLIER);
is(registry_row($registry, $node, 'node_number'), '', 'another layout: no row');
$node->stop;
set_conf($node, 'snowflake.layout' => LATER);
$node->start;
check_layout_refused('lesser ids', $node, LAYOUT, LATER);
like(sql_error($registry, "SELECT snowflake.change_layout('${\ LATER}')"),
	qr/^ERROR:  55000: ids of layout "\Q${\ LATER}\E" would not be greater than those that were issued\n/, 'lesser ids: nor is it changed');
$node->stop;
set_conf($node, 'snowflake.layout' => EARLIER);
$node->start;
my ($old_token, $old_until) = split /\|/, registry_row($registry, $by_service, 'token, extract(epoch FROM leased_until)');
is(sql_error($registry, "SELECT snowflake.change_layout('${\ EARLIER}')"), '', 'the owner changes the layout');
push @files, write_ids(issue_ids($by_service, 100));
is(stat_of($by_service, 'state'), 'ready', 'the owner changes the layout: a node of the old one goes on');
is($registry->safe_psql('postgres', "SELECT closed_at IS NOT NULL, leased_until >= to_timestamp($old_until) FROM snowflake.worker_node WHERE token = '$old_token'"), 't|t',
	'the owner changes the layout: its lease is closed as it stands');
poll('ids', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
my ($least) = sort { $a <=> $b } issue_ids($node, 100);
poll('the end of the lease', sub {
		my ($status, $id, $error) = $by_service->psql('postgres', "SET snowflake.max_wait = '100ms'; SELECT snowflake_nextval()");
		push @files, write_ids($id) if $status == 0;
		$error =~ /the layout is not the one that ids are issued under/ });
my ($greatest) = sort { $b <=> $a } read_ids(@files);
cmp_ok($least, '>', $greatest, 'the owner changes the layout: all ids of the new one are greater');
cmp_ok(id_time($greatest), '<', $registry->safe_psql('postgres', "SELECT extract(epoch FROM leased_until) FROM snowflake.worker_node WHERE token = '$old_token'"),
	'those of the old one are within the lease');
check_layout_refused('the old layout, when its lease is over', $by_service, EARLIER, LAYOUT);
$by_service->stop;
like(sql_error($registry, "SELECT snowflake.change_layout('${\ LAYOUT}')"), qr/^ERROR:  55000: ids of layout .* would not be greater/, 'the old layout: not again');
set_conf($by_password, 'snowflake.layout' => LAYOUT);
$by_password->start;
check_layout_refused('the old layout', $by_password, EARLIER, LAYOUT);
$by_password->stop;
# nobody has set it: as after pg_upgrade with a new postgresql.conf
set_conf($by_password, 'snowflake.layout' => undef);
$by_password->start;
check_layout_refused('a default that nobody has set', $by_password, EARLIER, LAYOUT);
set_conf($by_password, 'snowflake.layout' => EARLIER);
$by_password->restart;
check_ids('with the new layout', split_ids(12, 1023, @files, write_ids(issue_ids($node, 100)), write_ids(issue_ids($by_password, 100))));
$_->stop foreach $by_password, $node;

#
# Fifty at once: sessions that wait for a lock, and then all ask
#
# Of these, sixty are automatic numbers of a first generation.
my $acquire = <<'SQL' =~ s/LAYOUT/${\ LAYOUT}/r;
SELECT coalesce(a ->> 'node_number', format(E'%s: %s\nDETAIL:  %s', a ->> 'sqlstate', a ->> 'message', a ->> 'detail'))
FROM snowflake.acquire_lease(jsonb_build_object('protocol', 1, 'start', gen_random_uuid(), 'call', 1,
	'layout', 'LAYOUT', 'kind', 'server', 'host_name', 'fake', 'port', 1, 'system_identifier', 1, 'timeline', 1,
	'launched_at', 0, 'clock', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'max_ahead', 1000000,
	'window', 600000000, 'first_number', 0, 'last_number', 119, 'fixed', false)) AS a
SQL

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
			  '-c', $acquire
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
		my ($answer, $error) = map { slurp_file("$directory/$label.$i.$_") } 'out', 'err';

		chomp $answer;
		push @results, $answer . $error;
	}
	return @results;
}

# leases of before have any numbers, some of these too
forget_leases($other);
is(scalar(keys %{ { map { $_ => 1 } grep { /^\d+$/ && $_ < 120 && $_ % 2 == 0 } fifty_at_once('empty') } }), 50, 'fifty at once, empty table: fifty numbers');
# those of before are no leases any more
my $open = 'SELECT count(*) FILTER (WHERE n.token IS NOT NULL), count(*) FILTER (WHERE w.token IS NOT NULL), count(*) FILTER (WHERE n.node_number = w.node_number)
	FROM (SELECT * FROM snowflake.node_number WHERE token IS NOT NULL) AS n FULL JOIN (SELECT * FROM snowflake.worker_node WHERE closed_at IS NULL) AS w USING (token)';
is($other->safe_psql('postgres', $open), '50|50|50', 'fifty at once, empty table: fifty open leases, in the log, too');

# Ten of the numbers were released, ten expired, ten were never used: thirty are left.
$other->safe_psql('postgres', <<EOS);
WITH w AS (SELECT token, row_number() OVER (ORDER BY node_number) AS n FROM snowflake.node_number WHERE token IS NOT NULL)
UPDATE snowflake.node_number AS u SET starts_at = now() - '1 h'::interval, leased_until = now() + CASE WHEN n <= 20 THEN '-1 s' ELSE '1 hour' END::interval,
	recorded_until = now() + '1 hour'
FROM w WHERE w.token = u.token;
SELECT snowflake.close_lease(n, n.leased_until) FROM snowflake.node_number AS n WHERE n.leased_until < now() ORDER BY n.node_number LIMIT 10;
EOS
my @results = fifty_at_once('full');
is(scalar(keys %{ { map { $_ => 1 } grep { /^\d+$/ } @results } }), 30, 'fifty at once, thirty free: thirty numbers');
is(scalar(grep { /^53400: no node number is free\nDETAIL:  Of 60 numbers the earliest end is / } @results), 20,
	'fifty at once, thirty free: the others are refused');
is($other->safe_psql('postgres', $open), '60|60|60', 'fifty at once, thirty free: one open lease for a number, in the log, too');
unlike(slurp_file($other->logfile), qr/no node number is free/, 'fifty at once, thirty free: a refusal is nothing for the log');

#
# No secret anywhere
#
foreach my $member (@nodes, $node)
{
	unlike(slurp_file($member->logfile), qr/${\ SECRET}|not the right one/, $member->name . ': no secret in the log');
}
$_->stop foreach $registry, $other;

done_testing();
