# 048_containers.pl
#	  The manifests in doc/kubernetes.md: servers are started with the arguments, variables,
#	  settings, SQL, paths and modes that they have.  Without Kubernetes, paths are below a
#	  temporary directory, the test makes the files of secrets, and a preloaded library gives
#	  the names of hosts and root as the owner of the key.  Each key of a manifest is used
#	  here, or the text says that it was not run.
#
#	  Pod: the entry point of the image, for both ways to a number, and a second start after
#	  Kubernetes has changed modes in the volume for fsGroup.
#
#	  CloudNativePG: a primary as the operator makes it, a standby, switchover, and another
#	  cluster by pg_basebackup.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;
use SnowflakeReadme;
use CPAN::Meta::YAML ();
use File::Basename qw(dirname);
use File::Find ();
use File::Path qw(make_path);

my $top = "$FindBin::RealBin/../..";
my @document = read_document("$top/doc/kubernetes.md");
my @operations = read_document("$top/doc/operations.md");
my $root = PostgreSQL::Test::Utils::tempdir_short;
my $library = build_library('pod', <<'EOS');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int
gethostname(char *name, size_t size)
{
	strncpy(name, getenv("HOST_NAME"), size);
	return 0;
}

int
stat(const char *path, struct stat *buffer)
{
	int			result = ((int (*) (const char *, struct stat *)) dlsym(RTLD_NEXT, "stat")) (path, buffer);

	if (getenv("KEY_OF_ROOT") != NULL && strcmp(path, getenv("KEY_OF_ROOT")) == 0)
		buffer->st_uid = 0;
	return result;
}
EOS

plan skip_all => 'openssl is not installed' if system('openssl version >/dev/null 2>&1') != 0;

#
# Manifests
#
sub manifest
{
	my ($section) = @_;
	my ($code, @more) = grep { $_->{section} eq $section && $_->{kind} eq 'code' } @document;

	is("$code->{language}, @more", 'yaml, ', "$section: there is one manifest");
	return ($code->{text}, CPAN::Meta::YAML->read_string($code->{text})->[0]);
}

sub leaves
{
	my ($value, @path) = @_;

	return map { leaves($value->{$_}, @path, $_) } sort keys %$value if ref $value eq 'HASH';
	return map { leaves($_, @path) } @$value if ref $value;
	return join '.', @path;
}

# What is not in the list USED has a key that is in the text's list of what was not run, and the
# other way round.
sub check_all_used
{
	my ($section, $manifest, @used) = @_;
	my %unused = map { $_ => 1 } leaves($manifest);
	my ($text) = map { $_->{text} =~ /\bNot\s+run: (.*)/s } grep { $_->{section} eq $section } @document;
	my %said = map { $_ => 1 } $text =~ /`(\w+)`/g;

	foreach my $used (@used)
	{
		fail("$section: has no $used") unless delete $unused{$used};
	}
	my @unsaid = grep { !grep { $said{$_} } split /\./ } keys %unused;
	delete @said{ map { split /\./ } keys %unused };
	is("@unsaid", '', "$section: the text names every key that was not run");
	is(join(' ', sort keys %said), '', "$section: and no other");
}

sub below_root
{
	my ($value) = @_;

	return $value =~ s{(^|[\s=])/}{$1$root/}gr;
}

#
# The registry, as the document sets it up, with certificates
#
my $pki = PostgreSQL::Test::Utils::tempdir;
my $new_key = '-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes';

sub openssl
{
	system("openssl $_[0] >>$pki/log 2>&1") == 0 or die slurp_file("$pki/log");
}

openssl("req -x509 $new_key -days 9 -subj /CN=authority -keyout $pki/ca.key -out $pki/ca.crt");
foreach my $name ('registry1', 'snowflake_node')
{
	openssl("req -new $new_key -subj /CN=$name -keyout $pki/$name.key -out $pki/$name.csr");
	openssl("x509 -req -days 9 -in $pki/$name.csr -CA $pki/ca.crt -CAkey $pki/ca.key -CAcreateserial -out $pki/$name.crt");
}
my $registry = new_registry('registry', start => 0, conf => <<"EOS");
listen_addresses = '127.0.0.1'
ssl = on
ssl_ca_file = '$pki/ca.crt'
ssl_cert_file = '$pki/registry1.crt'
ssl_key_file = '$pki/registry1.key'
EOS
my ($hba) = map { $_->{text} =~ /^(hostssl .*)\n\z/ ? $1 : () } @operations;
$hba =~ s/10\.\S+ scram-sha-256$/127.0.0.1\/32 cert/ or die "unknown line of pg_hba.conf: $hba";
unlink $registry->data_dir . '/pg_hba.conf';
$registry->append_conf('pg_hba.conf', "local all all trust\n$hba\n");
$registry->start;
$registry->safe_psql('postgres', $_->{sql}) foreach grep { $_->{sql} =~ /CREATE ROLE/ } examples(@operations);

# Where it is in this test
sub reach_registry
{
	my ($value) = @_;

	return $value =~ /host=registry1/ ? "$value hostaddr=127.0.0.1 port=" . $registry->port : $value;
}

# A secret for a node, mounted as Kubernetes does: by default all can read it.
sub mount_secret
{
	my ($mode, %files) = @_;
	my %secret = ('ca.crt' => 'ca.crt', 'tls.crt' => 'snowflake_node.crt', 'tls.key' => 'snowflake_node.key');

	foreach my $path (keys %files)
	{
		my $file = "$root$path";

		make_path(dirname($file));
		append_to_file($file, slurp_file("$pki/$secret{ $files{$path} }"));
		chmod oct($mode // '0644'), $file or die "$file: $!";
	}
}

#
# The pod of a StatefulSet
#
my ($text, $pod) = manifest('Kubernetes');
my $container = $pod->{spec}{containers}[0];
my %mounted_at = map { $_->{name} => $_->{mountPath} } @{ $container->{volumeMounts} };
my %env = map { $_->{name} => below_root($_->{value} // 'secret') } @{ $container->{env} };
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $pid;

check_all_used('Kubernetes', $pod, map { "spec.$_" } qw(containers.args containers.env.name containers.env.value containers.name
	  containers.volumeMounts.name containers.volumeMounts.mountPath volumes.name volumes.secret.defaultMode));

# The entry point has paths of Debian and of the image, too.
my $entrypoint = slurp_file("$top/debian/container-entrypoint");
my $bindir = $registry->config_data('--bindir');
$entrypoint =~ s{/usr/lib/postgresql/\$PG_MAJOR/bin}{$bindir} or die 'the entry point has another directory of programs';
$entrypoint =~ s{/var/run/postgresql}{$root/var/run/postgresql} or die 'the entry point has another directory of sockets';
append_to_file("$root/container-entrypoint", $entrypoint);
make_path("$root/var/run/postgresql", "$root$mounted_at{data}");
chmod 02777, "$root$mounted_at{data}" or die $!;
foreach my $volume (@{ $pod->{spec}{volumes} })
{
	mount_secret($volume->{secret}{defaultMode}, map { ("$mounted_at{ $volume->{name} }/$_" => $_) } 'ca.crt', 'tls.crt', 'tls.key');
}

sub run_container
{
	my ($preload, @args) = @_;

	$pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		open STDOUT, '>>', "$PostgreSQL::Test::Utils::log_path/048_containers_pod.log";
		open STDERR, '>&', \*STDOUT;
		%ENV = (PATH => '/usr/bin:/bin', PG_MAJOR => 'none', LD_PRELOAD => $library, HOST_NAME => 'pg-2', %env, %$preload);
		exec 'sh', "$root/container-entrypoint", map({ reach_registry(below_root($_)) } @args),
		  '-c', "port=$port", '-c', 'listen_addresses=127.0.0.1', '-c', 'fsync=off';
	}
}

sub stop_container
{
	kill 'INT', $pid;
	waitpid $pid, 0;
	$pid = undef;
}

END
{
	local $?;
	stop_container() if $pid;
}

sub container_sql
{
	my ($sql) = @_;
	local $ENV{PGPASSWORD} = $env{POSTGRES_PASSWORD};
	my ($out, $error) = run_command([ "$bindir/psql", '-XAtq', '-v', 'VERBOSITY=verbose',
			'-d', "host=127.0.0.1 port=$port user=postgres dbname=postgres", '-c', $sql ]);

	return $out . $error;
}

sub container_id
{
	return poll('an id', sub { container_sql('SELECT snowflake_nextval()') =~ /^(\d+)\z/ && $1 });
}

my @way1 = @{ $container->{args} };
my @way2 = $text =~ /^ *# - (-c|snowflake\.\S+)/mg;
my $key = { KEY_OF_ROOT => $root . ($way1[-1] =~ /sslkey=(\S+)/)[0] };
splice @way2, 0, 0, @way1[ 0, 1 ];
is("@way2", '-c shared_preload_libraries=snowflake -c snowflake.worker_id=hostname', 'Kubernetes: way 2 is there, as a comment');

run_container({}, @way1);
poll('the entry point', sub { container_sql('CREATE EXTENSION snowflake') =~ /^$|already exists/ });
my $error = poll('the refusal', sub { container_sql("SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()") =~ /(55P03.*could not reach.*)/s && $1 });
like($error, qr/private key file .* must have/, 'Kubernetes: a key with mode 0640 that another than root owns is refused');
stop_container();

# As for fsGroup, but for the group itself
File::Find::find(sub { chmod +((stat)[2] & 07777) | (-d _ ? 02770 : 0660), $_ unless -l }, "$root$mounted_at{data}");
run_container($key, @way1);
my $id = container_id();
is(id_node($id) . '|auto|t', container_sql('SELECT node_number, worker_id_from, registry LIKE \'registry1:%\' FROM pg_stat_snowflake'),
	'Kubernetes: way 1: an id with the number in the view, from the registry');
is($registry->safe_psql('postgres', "SELECT node_number, host_name FROM snowflake.worker_node WHERE port = $port AND closed_at IS NULL"),
	id_node($id) . '|pg-2', 'Kubernetes: way 1: the number is leased in the registry');
stop_container();

File::Path::remove_tree("$env{PGDATA}");
run_container({}, @way2);
poll('the entry point', sub { container_sql('CREATE EXTENSION snowflake') =~ /^$|already exists/ });
is(id_node(container_id()), 2, 'Kubernetes: way 2: the number is that of pg-2');
stop_container();

#
# CloudNativePG
#
my ($spec, %seen);
(undef, my $cluster) = manifest('CloudNativePG');
$spec = $cluster->{spec};
my $name = $cluster->{metadata}{name};
my %parameters = %{ $spec->{postgresql}{parameters} };

check_all_used('CloudNativePG', $cluster, 'metadata.name', map { "spec.$_" } 'bootstrap.initdb.postInitApplicationSQL',
	map({ "postgresql.$_" } 'shared_preload_libraries', 'synchronous.method', 'synchronous.number', map { "parameters.$_" } keys %parameters),
	map { "projectedVolumeTemplate.$_" } 'defaultMode', 'sources.secret.items.key', 'sources.secret.items.path');
mount_secret($spec->{projectedVolumeTemplate}{defaultMode},
	map { ("/projected/$_->{path}" => $_->{key}) } @{ $spec->{projectedVolumeTemplate}{sources}[0]{secret}{items} });
$key = { KEY_OF_ROOT => $root . ($parameters{'snowflake.registry'} =~ /sslkey=(\S+)/)[0] };

# The operator's own settings that could matter, and then those of the manifest
my $primary = PostgreSQL::Test::Cluster->new("$name-1");
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', <<EOS . join '', map { "$_ = '" . reach_registry(below_root($parameters{$_})) . "'\n" } sort keys %parameters);
fsync = on
wal_level = logical
wal_log_hints = on
restart_after_crash = off
max_worker_processes = 32
shared_preload_libraries = '${\ join ', ', @{ $spec->{postgresql}{shared_preload_libraries} }}'
EOS

# The job that makes the cluster has another name than the pod.
start_with($primary, $library, HOST_NAME => "$name-1-initdb", %$key);
$primary->safe_psql('postgres', 'CREATE ROLE app LOGIN');
$primary->safe_psql('postgres', 'CREATE DATABASE app OWNER app');
$primary->safe_psql('app', $_) foreach @{ $spec->{bootstrap}{initdb}{postInitApplicationSQL} };
$primary->stop;
start_with($primary, $library, HOST_NAME => "$name-1", %$key);

# The ids of a role that is no superuser, with another number than all before
sub check_app
{
	my ($label, $node) = @_;
	my @ids = split /\n/, $node->safe_psql('app', 'SELECT snowflake_nextval_batch(1000)', extra_params => [ '-U', 'app' ]);
	my $number = id_node($ids[0]);
	my $port = $node->port;

	is($seen{$number}, undef, "CloudNativePG: $label: ids with a new number");
	$seen{$number} = $label;
	is(join('|', scalar @ids, $number, $node->name),
		$registry->safe_psql('postgres', "SELECT 1000, node_number, host_name FROM snowflake.worker_node WHERE port = $port ORDER BY launched_at DESC LIMIT 1"),
		"CloudNativePG: $label: the number is leased in the registry");
	return @ids;
}

sub timeline
{
	my ($node) = @_;

	return $node->safe_psql('postgres', 'SELECT timeline_id FROM pg_control_checkpoint()');
}

my @ids = check_app('primary', $primary);
is($primary->safe_psql('postgres', "SELECT count(*) FROM pg_extension WHERE extname = 'snowflake_registry'"), 1,
	'CloudNativePG: the server has created the extension in postgres');
$primary->backup('join');
my $standby = PostgreSQL::Test::Cluster->new("$name-2");
$standby->init_from_backup($primary, 'join', has_streaming => 1);
start_with($standby, $library, HOST_NAME => "$name-2", %$key);
my $synchronous = $spec->{postgresql}{synchronous};
set_and_reload($primary, synchronous_standby_names => uc($synchronous->{method}) . " $synchronous->{number} (\"$name-2\")");
poll('a synchronous standby', sub { $primary->safe_psql('postgres', 'SELECT sync_state FROM pg_stat_replication') eq 'quorum' });
like(sql_error($standby, 'SELECT snowflake_nextval()', 'app'), qr/^ERROR:  25006: /, 'CloudNativePG: a standby issues no ids');
push @ids, split /\n/, $primary->safe_psql('app', 'SELECT snowflake_nextval_batch(1000)');

# Switchover: the former primary is a standby again
$primary->stop;
$standby->promote;
push @ids, check_app('promoted standby', $standby);
set_conf($primary, synchronous_standby_names => undef);
$primary->enable_streaming($standby);
start_with($primary, $library, HOST_NAME => "$name-1", %$key);
poll('the former primary to stream', sub { $standby->safe_psql('postgres', 'SELECT state FROM pg_stat_replication') eq 'streaming' });

# Another cluster, by pg_basebackup, that ends recovery without a new timeline
$standby->backup('clone');
my $clone = PostgreSQL::Test::Cluster->new('other-1');
$clone->init_from_backup($standby, 'clone');
start_with($clone, $library, HOST_NAME => 'other-1', %$key);
is(timeline($clone), timeline($standby), 'CloudNativePG: pg_basebackup: the timeline stays the same');
push @ids, check_app('pg_basebackup', $clone), split /\n/, $standby->safe_psql('app', 'SELECT snowflake_nextval_batch(1000)');
is(scalar keys %{ { map { $_ => 1 } @ids } }, 5000, 'CloudNativePG: 5000 ids are distinct');
$_->stop foreach $clone, $primary, $standby, $registry;

done_testing();
