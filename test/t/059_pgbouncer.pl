# 059_pgbouncer.pl
#	  PgBouncer in front of a registry, with the configuration that doc/operations.md has: in
#	  transaction mode, with a pool of four connections, TLS on both sides and SCRAM.  Two servers
#	  with roles of their own are nodes through it.  Ids go on, and none repeats, while all of the
#	  pool is taken, while it is paused and reloaded, when it is killed and started again, and when
#	  the registry is restarted behind it.
#
# Of the page's configuration only places are changed: hosts, ports and files.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeReadme;
use SnowflakeRegistry;
use File::Spec;
use IPC::Run ();

use constant SECRET => 'Sesame-of-the-pool';

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } File::Spec->path, '/usr/sbin';
plan skip_all => 'pgbouncer is not installed (of Debian: package pgbouncer)' unless $pgbouncer;

my @page = grep { $_->{kind} eq 'code' } read_document("$FindBin::RealBin/../../doc/operations.md");
my $directory = PostgreSQL::Test::Utils::tempdir('pool');

sub write_file
{
	my ($name, $text) = @_;

	unlink "$directory/$name";
	append_to_file("$directory/$name", $text);
	chmod 0600, "$directory/$name" or die "chmod: $!";
	return "$directory/$name";
}

sub make_certificate
{
	my ($name) = @_;

	system_or_bail(qw(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 -keyout),
		"$directory/$name.key", '-out', "$directory/$name.crt", '-subj', "/CN=$name", '-addext', "subjectAltName=DNS:$name");
}

sub block_of
{
	my ($what, $pattern) = @_;
	my @found = grep { $_->{text} =~ $pattern } @page;

	is(scalar @found, 1, "the page has one block for $what");
	return $found[0]{text};
}

chmod 0700, $directory or die "chmod: $!";
make_certificate($_) foreach 'localhost', 'pool.test';

#
# The registry, and the roles of two nodes
#
my $registry = new_registry('registry', start => 0, init => [ allows_streaming => 1 ], conf => <<EOS);
listen_addresses = '127.0.0.1'
ssl = on
ssl_cert_file = '$directory/localhost.crt'
ssl_key_file = '$directory/localhost.key'
EOS
unlink $registry->data_dir . '/pg_hba.conf' or die "unlink: $!";
$registry->append_conf('pg_hba.conf', <<EOS);
local   all,replication all               trust
hostssl postgres all 127.0.0.1/32 scram-sha-256
EOS
$registry->start;
my $rights = block_of('the role of a node', qr/CREATE ROLE snowflake_node/);
my @roles = ('snowflake_node', 'snowflake_other');
$registry->safe_psql('postgres', join ';', "SET client_min_messages = error", map { $rights =~ s/snowflake_node/$_/gr =~ s/'secret'/"'" . SECRET . "'"/er } @roles);
$registry->safe_psql('postgres', 'CREATE EXTENSION snowflake');

#
# PgBouncer, as on the page
#
my $port = PostgreSQL::Test::Cluster::get_free_port();
# run by this test: users
my $users = write_file('userlist.txt', $registry->safe_psql('postgres',
	block_of('the users of the pool', qr/rolpassword/)) . "\n");
my $configuration = block_of('the pool', qr/^\[pgbouncer\]/m);
my %places = (
	listen_addr => '127.0.0.1',
	listen_port => $port,
	unix_socket_dir => $directory,
	auth_file => $users,
	client_tls_cert_file => "$directory/pool.test.crt",
	client_tls_key_file => "$directory/pool.test.key",
	server_tls_ca_file => "$directory/localhost.crt");

foreach my $name (sort keys %places)
{
	is($configuration =~ s/^\Q$name\E = .*/$name = $places{$name}/mg, 1, "the page's configuration has $name");
}
is($configuration =~ s/host=registry1 port=5432/'host=localhost port=' . $registry->port/ge, 1, "the page's configuration names the registry");
$configuration .= <<EOS;
logfile = $directory/pgbouncer.log
pidfile = $directory/pgbouncer.pid
EOS
my $ini = write_file('pgbouncer.ini', $configuration);

my $pid;

sub start_pool
{
	unlink "$directory/pgbouncer.pid";
	system_or_bail($pgbouncer, '-q', '-d', $ini);
	($pid) = poll('pgbouncer', sub { -e "$directory/pgbouncer.pid" && slurp_file("$directory/pgbouncer.pid") }) =~ /^(\d+)$/m;
}

END
{
	local $?;
	kill 9, $pid if $pid;
}

# The user "pgbouncer" is the administrator for those who run it, by the socket.
sub tell_pool
{
	my ($command) = @_;
	my ($out, $error) = ('', '');

	IPC::Run::run([ $registry->installed_command('psql'), '-XA', '-h', $directory, '-p', $port, '-U', 'pgbouncer', '-d', 'pgbouncer', '-c', $command ],
		'<', \'', '>', \$out, '2>', \$error) or die "$command: $error";
	return $out;
}

start_pool();

#
# Two nodes
#
my $passfile = write_file('passfile', "*:$port:postgres:*:" . SECRET . "\n");
my %by_pool = (host => 'pool.test', hostaddr => '127.0.0.1', port => $port, passfile => $passfile,
	sslmode => 'verify-full', sslrootcert => "$directory/pool.test.crt");
my @nodes = map { new_member($_, conninfo_of($registry, %by_pool, user => $_)) } @roles;
my @clients = map { start_clients($_, count => 1, sql => GENTLE) } @nodes;

# psql as the role of the first node.
sub psql_by_pool
{
	return ($registry->installed_command('psql'), '-XAtqw', '-d', conninfo_of($registry, %by_pool, user => $roles[0], dbname => 'postgres', @_));
}

# "" or the error.
sub call_by_pool
{
	my ($out, $error) = ('', '');

	IPC::Run::run([ psql_by_pool(@_), '-c', 'SELECT 1' ], '<', \'', '>', \$out, '2>', \$error);
	return $error;
}

# It stays until it is ended, which returns what it printed.
sub start_session
{
	my $self = { in => "$_[0];\n", out => '' };

	$self->{run} = IPC::Run::start([ psql_by_pool() ], '<', \$self->{in}, '>&', \$self->{out},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	$self->{run}->pump while length $self->{in};
	return $self;
}

sub end_session
{
	my ($self) = @_;

	$self->{run}->finish;
	return $self->{out} =~ s/\s+\z//r;
}

sub counts
{
	my ($column) = @_;

	return map { stat_of($_, $column) } @nodes;
}

sub wait_for_more
{
	my ($column) = @_;
	my @before = counts($column);

	poll("more $column", sub { my @now = counts($column); !grep { $now[$_] <= $before[$_] } 0 .. $#nodes });
}

# Twice, as the first one can have been under way.
sub check_ids_go_on
{
	my ($label) = @_;

	is(settle('ready ready', sub { join ' ', counts('state') }), 'ready ready', "$label: the nodes are ready");
	wait_for_more('lease_renewals') foreach 1, 2;
	$_->wait_for(500) foreach @clients;
	pass("$label: leases are renewed, ids go on");
}

# A column of SHOW POOLS, of all pools of the registry.
sub sum_of_pools
{
	my ($name) = @_;
	my ($head, @rows) = map { [ split /\|/, $_, -1 ] } split /\n/, tell_pool('SHOW POOLS');
	my ($column) = grep { $head->[$_] eq $name } 0 .. $#$head;
	my $sum = 0;

	$sum += $_->[$column] foreach grep { $_->[0] eq 'postgres' } @rows;
	return $sum;
}

sub count_connections
{
	return $registry->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'snowflake%'});
}

check_ids_go_on('at first');
is(join(' ', counts('registry')), join(' ', ("pool.test:$port/postgres") x 2), 'the view names the pool');
is($registry->safe_psql('postgres', 'SELECT count(*), count(DISTINCT node_number), bool_and(renewed_at > launched_at + $$1 s$$)
		FROM ' . LEASES . ' AS w WHERE closed_at IS NULL'), '2|2|t', 'the registry has a lease of each node');
is($registry->safe_psql('postgres', q{SELECT string_agg(DISTINCT usename || ', ' || application_name, '; ') FROM pg_stat_activity
		WHERE usename LIKE 'snowflake%'}), join('; ', map { "$_, snowflake lease worker" } @roles), 'each calls with its role');
like(call_by_pool(sslmode => 'disable', sslrootcert => ''), qr/SSL required/, 'nobody gets into the pool without TLS');
like(call_by_pool(passfile => write_file('wrong', "*:*:*:*:not the right one\n")), qr/authentication failed/,
	'nor with a wrong password');

# In transaction mode those that stay without a transaction take no connection.
my @idle = map { start_session('SELECT 1') } 1 .. 5;
poll('idle sessions', sub { sum_of_pools('cl_active') + sum_of_pools('cl_waiting') >= 5 });
check_ids_go_on('five idle sessions');
is(join(' ', map { end_session($_) } @idle), join(' ', (1) x 5), 'five idle sessions: each had its answer');

#
# All four connections are taken
#
my $holder = $registry->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
my @sessions = map { start_session('BEGIN; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0;
	SELECT 2 FROM pg_advisory_xact_lock_shared(1); COMMIT') } 1 .. 6;
poll('a full pool', sub { sum_of_pools('sv_active') == 4 && sum_of_pools('cl_waiting') >= 2 });
wait_for_more('lease_failures');
is(count_connections(), 4, 'full: the registry has four connections, of both roles');
is(settle('expired expired', sub { join ' ', counts('state') }), 'expired expired', 'full: ids end with the leases');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$holder->quit;
is(join(' ', map { end_session($_) } @sessions), join(' ', (2) x 6), 'full: those that waited had their turn');
check_ids_go_on('room again');
cmp_ok(count_connections(), '<=', 4, 'room again: at most four connections');

#
# Killed
#
kill_process($pid, 'KILL');
is(settle('expired expired', sub { join ' ', counts('state') }), 'expired expired', 'killed: ids end with the leases');
like((nextval_error_with_reason($nodes[0], '500ms'))[0], qr/^ERROR:  55P03: could not reach the registry pool\.test:$port\/postgres\n/,
	'killed: why there is no id');
start_pool();
check_ids_go_on('started again');

#
# Paused, and reloaded with another size
#
tell_pool('PAUSE');
wait_for_more('lease_failures');
tell_pool('RESUME');
check_ids_go_on('paused');
append_to_file($ini, "max_db_connections = 2\n");
tell_pool('RELOAD');
like(tell_pool('SHOW CONFIG'), qr/^max_db_connections\|2\|/m, 'reloaded: the size is another one');
check_ids_go_on('reloaded');

#
# The registry crashes, and fails over
#
crash($registry);
is(settle('expired expired', sub { join ' ', counts('state') }), 'expired expired', 'registry killed: ids end with the leases');
unlike((nextval_error_with_reason($nodes[0], '500ms'))[0], qr/^ERROR:  (?!55P03)/, 'registry killed: why there is no id');
$registry->start;
check_ids_go_on('registry started again');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$registry->backup('backup');
$standby->init_from_backup($registry, 'backup', has_streaming => 1);
$standby->start;
$registry->wait_for_catchup($standby, 'replay');
my @numbers = counts('node_number');
$registry->stop('fast');
$standby->promote;
write_file('pgbouncer.ini', $configuration =~ s/(host=localhost port=)\d+/$1 . $standby->port/er);
tell_pool($_) foreach 'RELOAD', 'RECONNECT';
poll('other numbers', sub { my @now = counts('node_number'); !grep { $now[$_] eq '' || $now[$_] == $numbers[$_] } 0, 1 });
check_ids_go_on('registry failed over');

my @files = map { $_->stop } @clients;
unlike($_->errors, qr/ERROR:  (?!55P03)/, 'no other errors') foreach @clients;
check_ids('all', split_ids(12, 1023, @files));
check_covered('all', $standby, 'postgres', 12, 1023, @files);
$_->stop foreach @nodes, $standby;

done_testing();
