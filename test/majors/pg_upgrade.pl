# pg_upgrade.pl
#	  pg_upgrade from one major to another with tables in use, as doc/operations.md says:
#	  sessions get ids until the old server stops and as soon as the new one runs; no id
#	  repeats, ids of a fixed number go on after the old ones, and what the extension has
#	  in the database is as it was, but for two columns of snowflake.registry: the new server
#	  writes its system identifier there, and all its leases start after that moment.
#
# test/majors/run runs this, with the two installations in OLD_INSTALLATION and
# NEW_INSTALLATION.  (test/t/013_upgrade.pl has one major only.)
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;

use Cwd qw(getcwd);

# What the extension has, and what the database has of it; of the leases, those before the
# newest one, whose end is written when the old server stops.
my %survives = (
	'node numbers and their leases' => 'SELECT * FROM snowflake.worker_node WHERE renewed_at < \'%s\' ORDER BY renewed_at',
	'the registry' => q{SELECT to_jsonb(r) - '{system_identifier,counted_at}'::text[] FROM snowflake.registry AS r},
	'where the node numbers come from' => 'SELECT uses, incarnation FROM snowflake.cluster',
	'defaults' => q{SELECT adrelid::regclass, pg_get_expr(adbin, adrelid) FROM pg_attrdef ORDER BY 1, 2},
	'bounds of partitions' => q{SELECT oid::regclass, pg_get_expr(relpartbound, oid) FROM pg_class WHERE relispartition AND relkind = 'r' ORDER BY 1},
	'indexes' => q{SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1},
	'the version' => q{SELECT extversion FROM pg_extension WHERE extname = 'snowflake'},
	'rights' => q{SELECT oid::regprocedure, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc WHERE proname ~ 'snowflake' ORDER BY oid::regprocedure::text},
	'rows, by the index on their time' => q{SET enable_seqscan = off;
		SELECT count(*), sum(id) FROM orders WHERE snowflake_timestamp(id, 'twitter') > '2024-01-01' AND note = 'first'},
	'rows, in their partitions' => q{SELECT tableoid::regclass, count(*), sum(id) FROM event WHERE note = 'first' GROUP BY 1 ORDER BY 1});

my $schema = <<'SQL';
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), note text);
CREATE INDEX orders_time ON orders ((snowflake_timestamp(id, 'twitter')));
CREATE TABLE event (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), note text) PARTITION BY RANGE (id);
SELECT snowflake_create_partitions('event', '2026-01-01', '2040-01-01', '1 year', dry_run => false);
CREATE TABLE event_other PARTITION OF event DEFAULT;
CREATE TABLE invoice (id bigint PRIMARY KEY DEFAULT snowflake_nextval('leaf'), note text);
CREATE ROLE clerk;
GRANT EXECUTE ON FUNCTION pg_stat_snowflake_reset() TO clerk;
INSERT INTO orders (note) SELECT 'first' FROM generate_series(1, 1000);
INSERT INTO event (note) SELECT 'first' FROM generate_series(1, 1000);
INSERT INTO invoice (note) SELECT 'first' FROM generate_series(1, 1000);
SQL

# The ids of the server's layout are compared apart from those of another one.
my %statements = (
	default => "INSERT INTO orders (note) SELECT 'used' FROM generate_series(1, 20) RETURNING id;\n"
	  . "INSERT INTO event (note) SELECT 'used' FROM generate_series(1, 20) RETURNING id;",
	leaf => "INSERT INTO invoice (note) SELECT 'used' FROM generate_series(1, 20) RETURNING id;");

sub new_cluster
{
	my ($name, $path, $conf, @init) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, install_path => $path);

	$node->init(extra => \@init);
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'snowflake'\nfsync = on\njit = off\nlog_error_verbosity = verbose\nsnowflake.extra_layouts = 'leaf'\n$conf");
	return $node;
}

sub start_sessions
{
	my ($node) = @_;
	my %sessions = map { $_ => start_clients($node, count => 2, sql => $statements{$_}) } keys %statements;

	$_->wait_for(200) foreach values %sessions;
	return \%sessions;
}

# Whether the registry has the server's own identifier, and when it counted last, in seconds since 1970.
my $identified = 'SELECT r.system_identifier = c.system_identifier FROM snowflake.registry AS r, pg_control_system() AS c';
my $counted = 'SELECT extract(epoch FROM counted_at) FROM snowflake.registry';

sub clock
{
	my ($node) = @_;

	return $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())');
}

sub contents
{
	my ($node, $before) = @_;

	return { map { $_ => $node->safe_psql('postgres', $survives{$_} =~ s/%s/$before/r) } keys %survives };
}

sub upgrade
{
	my ($label, $conf, $max_ahead) = @_;
	my $old = new_cluster("old_$label", $ENV{OLD_INSTALLATION}, $conf);

	$old->start;
	$old->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	$old->safe_psql('postgres', $schema);
	my %phases = map { $_ => [] } keys %statements;
	my $version = $old->safe_psql('postgres', 'SHOW server_version_num');

	# In use until it stops.
	my $sessions = start_sessions($old);
	is($old->safe_psql('postgres', "SELECT max(ahead) > '5 s' FROM pg_stat_snowflake"), 't', "$label: the old server's ids are far ahead of the clock")
	  if $max_ahead > 5;
	$old->stop('fast');
	push @{ $phases{$_} }, [ $sessions->{$_}->stop ] foreach keys %statements;
	$old->start;
	issue_ids($old, 1);
	my $newest = $old->safe_psql('postgres', 'SELECT max(renewed_at) FROM snowflake.worker_node');
	my $before = contents($old, $newest);
	cmp_ok($before->{'node numbers and their leases'}, 'ne', '', "$label: there are leases before");
	my $kept = $old->safe_psql('postgres', 'SELECT max(id) FROM orders');
	is($old->safe_psql('postgres', $identified), 't', "$label: the registry has the old server's identifier");
	is($old->safe_psql('postgres', $counted), '', "$label: and has counted nothing");
	my $stopped = clock($old);
	$old->stop('fast');

	# As doc/operations.md says.
	my @init = $ENV{NEW_INSTALLATION} =~ m{/(\d+)$} && $1 >= 18 ? ('--no-data-checksums') : ();
	my $new = new_cluster("new_$label", $ENV{NEW_INSTALLATION}, $conf, @init);
	my @command = ("$ENV{NEW_INSTALLATION}/bin/pg_upgrade", '--no-sync',
		'-d', $old->data_dir, '-D', $new->data_dir,
		'-b', "$ENV{OLD_INSTALLATION}/bin", '-B', "$ENV{NEW_INSTALLATION}/bin",
		'-s', $new->host, '-p', $old->port, '-P', $new->port);

	# It leaves files where it runs; those of the sessions have their names from here.
	my $here = getcwd();
	chdir PostgreSQL::Test::Utils::tempdir() or die "chdir: $!";
	command_ok([ @command, '--check' ], "$label: pg_upgrade --check");
	command_ok(\@command, "$label: pg_upgrade");
	chdir $here or die "chdir: $!";

	$new->start;
	cmp_ok($new->safe_psql('postgres', 'SHOW server_version_num'), '>', $version, "$label: the new server is of a newer major");
	$sessions = start_sessions($new);
	push @{ $phases{$_} }, [ $sessions->{$_}->stop ] foreach keys %statements;
	is($sessions->{$_}->errors, '', "$label: no call of the new server fails, layout $_") foreach sort keys %statements;

	my $after = contents($new, $newest);
	is($after->{$_}, $before->{$_}, "$label: $_") foreach sort keys %survives;
	is($new->safe_psql('postgres', $identified), 't', "$label: the registry has the new server's identifier");
	# by the clock at the first start
	my $first_start = $new->safe_psql('postgres', $counted);
	cmp_ok($first_start, '>', $stopped, "$label: it counted after the old server was stopped");
	cmp_ok($first_start, '<', clock($new), "$label: and before now");
	is($new->safe_psql('postgres', "SELECT count(*) > 0 AND bool_and(w.starts_at >= r.counted_at + '$max_ahead s') FROM snowflake.worker_node AS w, snowflake.registry AS r "
			. 'WHERE w.system_identifier = r.system_identifier'), 't', "$label: leases start after all that the old server could issue");
	foreach my $kind (sort keys %statements)
	{
		# an automatic number is another one, whose ids may be less than those ahead of the clock
		if ($conf =~ /worker_id/)
		{
			check_phases("$label, $kind", @{ $phases{$kind} });
		}
		else
		{
			check_ids("$label, $kind", map { @$_ } @{ $phases{$kind} });
		}
	}
	cmp_ok($new->safe_psql('postgres', 'SELECT min(id) FROM orders WHERE id > ' . $kept), '>', $kept, "$label: ids are greater than all that were stored")
	  if $conf =~ /worker_id/;
	is($new->safe_psql('postgres', 'SELECT state FROM pg_stat_snowflake ORDER BY layout LIMIT 1'), 'ready', "$label: state");
	is($new->safe_psql('postgres', "SELECT count(*) - count(DISTINCT id) FROM (SELECT id FROM orders UNION ALL SELECT id FROM event) AS e"),
		'0', "$label: no id is there twice");
	$new->stop;
}

upgrade('automatic', '', 1);
# the first ids of a new extension are max_ahead later than its creation
upgrade('fixed', "snowflake.worker_id = 1\nsnowflake.max_ahead = '30s'\nsnowflake.layout = 'twitter, sequence 4'\n", 30);

done_testing();
