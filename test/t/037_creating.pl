# 037_creating.pl
#	  The tables of leases are not there yet, or are made anew.  Where ids are wanted, and the
#	  extension snowflake_registry is missing in the database postgres, the server creates it there,
#	  also without a schema public; an older version it leaves as it is.  A transaction that is
#	  creating it and already wants an id is told to commit first, at no cost for others but
#	  the wait.  A schema "snowflake" of somebody else is not taken over.  CREATE and DROP
#	  EXTENSION are noticed when they are committed, whichever role gives them.  Where the database postgres is
#	  missing, or no background worker is free, ids are refused with what to do; the log says it
#	  once, and ids go on when it is mended.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;

my $extensions = use_copied_installation();
my $node = auto_node('main', conf => "max_worker_processes = 2\nmax_logical_replication_workers = 0\nmax_parallel_workers = 0\n");
my $being_created = qr/ERROR:  (?:55P03: )?the extension snowflake_registry is being created in the database "postgres"\nDETAIL:  .*\nHINT:  Commit the transaction that creates it, and ask for ids then\./;
my @ids;

$node->safe_psql('postgres', 'CREATE DATABASE app');
$node->safe_psql($_, 'CREATE EXTENSION snowflake') foreach qw(app postgres);

sub check_ids_come
{
	my ($label) = @_;
	my @more = issue_in($node, 'app', 5);

	push @ids, @more;
	is(scalar @more, 5, "$label: ids come");
}

sub registry_version
{
	my ($node) = @_;

	return $node->safe_psql('postgres', "SELECT coalesce((SELECT extversion FROM pg_extension WHERE extname = 'snowflake_registry'), 'missing')");
}

# As on a server that has issued no ids yet.
sub start_over
{
	$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
	$node->restart;
}

sub count_lines
{
	my ($offset, $pattern) = @_;

	return scalar(() = log_since($node, $offset) =~ /^.*$pattern.*$/mg);
}

sub start_creating
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query_safe(q{SET snowflake.max_wait = '2s'; BEGIN; CREATE EXTENSION snowflake_registry; SAVEPOINT created});
	return $session;
}

#
# Being created, and rolled back
#
is(registry_version($node), 'missing', 'nothing is created where no id is wanted, also if postgres has snowflake');
my $offset = log_end($node);
my $session = start_creating();
$session->query('SELECT snowflake_nextval()');
like($session->{stderr}, $being_created, 'the transaction that creates the extension is told to commit first');
$session->{stderr} = '';
like(sql_error($node, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()", 'app'), qr/^$being_created/,
	'so are others meanwhile');
is(count_lines($offset, 'WARNING: .* snowflake: the extension .* is being created'), 1, 'the log says so once');
$session->query_safe('ROLLBACK');
$session->quit;
check_ids_come('rolled back');
my $version = registry_version($node);
isnt($version, 'missing', 'rolled back: the server has created the extension');
is(count_lines($offset, 'snowflake: created the extension snowflake_registry in database "postgres", for its tables'), 1, 'rolled back: the log says so');
is($node->safe_psql('app', "SELECT to_regnamespace('snowflake')"), '', 'the database that issues ids has no schema snowflake');

#
# Committed
#
start_over();
$offset = log_end($node);
$session = start_creating();
$session->query('SELECT snowflake_nextval()');
like($session->{stderr}, $being_created, 'the same again');
$session->{stderr} = '';
$session->query_safe('ROLLBACK TO created; COMMIT');
check_ids_come('committed');
like($session->query_safe('SELECT snowflake_nextval()'), qr/^\d+$/, 'committed: also in that session');
$session->quit;
is(count_lines($offset, 'snowflake: created the extension'), 0, 'committed: the server has nothing to create');

#
# Noticed, while nobody asks for ids
#
sub number
{
	return $node->safe_psql('app', 'SELECT node_number FROM pg_stat_snowflake');
}

sub rows
{
	return $node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node');
}

$node->safe_psql('postgres', 'CREATE ROLE maker SUPERUSER LOGIN; CREATE ROLE plain LOGIN');
my ($number, $rows) = (number(), rows());
$node->safe_psql('postgres', 'BEGIN; DROP EXTENSION snowflake_registry; ROLLBACK; BEGIN; DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry; ABORT');
$node->safe_psql('postgres', 'DROP EXTENSION snowflake; CREATE EXTENSION snowflake');
check_ids_come('dropped, and rolled back');
is(join('|', number(), rows()), "$number|$rows", 'dropped, and rolled back; snowflake dropped and created: the lease goes on');
$node->safe_psql('postgres', 'BEGIN; SAVEPOINT a; DROP EXTENSION snowflake_registry; ROLLBACK TO a; COMMIT');
check_ids_come('dropped in a part that is rolled back');

# A start is counted there, and sees that the system identifier is another one.  A renewal would not be followed by a start, but by a lease.
sub create_anew
{
	$node->safe_psql('postgres', "BEGIN; @_; CREATE EXTENSION snowflake_registry; UPDATE snowflake.registry SET server = '1/00000001'; COMMIT",
		extra_params => [ '-U', 'maker' ]);
	return settle('t|0', sub { $node->safe_psql('postgres', "SELECT counted_at IS NOT NULL AND server NOT LIKE '1/%',
		(SELECT count(*) FROM snowflake.worker_node) FROM snowflake.registry") });
}

isnt(number(), '', 'there is a lease');
is(create_anew('DROP EXTENSION snowflake_registry'), 't|0', 'dropped and created: noticed at once, and no lease is taken before an id is wanted');
is(number(), '', 'dropped and created: the lease has ended');
check_ids_come('dropped and created');
$node->safe_psql('postgres', 'REASSIGN OWNED BY maker TO plain');
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry', extra_params => [ '-U', 'plain' ]);
is(settle('', \&number), '', 'the owner, who is no superuser, drops it: the lease ends');
is(create_anew(''), 't|0', 'created: noticed at once, and no lease is taken before a dump can be restored');
check_ids_come('created');

#
# Without a schema public
#
$rows = rows();
$node->safe_psql('postgres', 'DROP SCHEMA public CASCADE');
is(rows(), $rows, 'no schema public: the leases are there');
check_ids_come('schema public was dropped');
start_over();
check_ids_come('no schema public');
is(registry_version($node), $version, 'no schema public: the server has created the extension');
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry; CREATE ROLE boss; CREATE SCHEMA snowflake AUTHORIZATION boss;
	CREATE TABLE snowflake.worker_node (node_number bigint)');
poll('a schema of somebody else', sub { sql_error($node, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()", 'app') =~
	/^ERROR:  55000: schema "snowflake" is there already in the database "postgres"\nDETAIL:  The extension snowflake_registry makes a schema of this name, and trusts what is in it\.\nHINT:  Rename that schema, or drop it\./ });
is(registry_version($node), 'missing', 'a schema that somebody else made is not taken over');
is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), 0, 'nor written to');
$node->safe_psql('postgres', 'ALTER SCHEMA snowflake RENAME TO former');
poll('the schema is gone', sub { sql_error($node, 'SELECT snowflake_nextval()', 'app') eq '' });
check_ids_come('the schema is renamed');

#
# Defaults know the function by its OID.
#
$node->safe_psql('app', <<'SQL');
CREATE TABLE orders (id bigserial PRIMARY KEY, n int);
CREATE EXTENSION snowflake_tools;
SELECT snowflake_convert_column('orders', 'id', dry_run => false);
ALTER SCHEMA public RENAME TO former;
CREATE SCHEMA public;
CREATE FUNCTION public.snowflake_next_id() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
SQL
push @ids, split /\n/, $node->safe_psql('app', 'SET search_path = public; INSERT INTO former.orders (n) SELECT generate_series(1, 3) RETURNING id');
is(scalar(grep { $_ == 1 } @ids), 0, 'a default finds the function when its schema was renamed');
$node->safe_psql('app', 'DROP SCHEMA public CASCADE; ALTER SCHEMA former RENAME TO public');

#
# Without the database postgres
#
poll('nobody in the database postgres', sub { sql_error($node, 'ALTER DATABASE postgres RENAME TO hidden', 'app') eq '' });
$node->stop;
$offset = log_end($node);
$node->start;
my $missing = qr/ERROR:  55P03: database "postgres" does not exist\nHINT:  Create it: the tables that grant leases are always in the database postgres\./;
foreach my $i (1, 2)
{
	like(sql_error($node, "SET snowflake.max_wait = '3s'; SELECT snowflake_nextval()", 'app'), qr/^$missing/,
		"no database postgres: ids are refused ($i)");
}
is(count_lines($offset, 'WARNING: .* snowflake: database "postgres" does not exist'), 1, 'no database postgres: the log says so once');
is(count_lines($offset, '"snowflake helper"'), 0, 'no database postgres: not each time that it is tried');
$node->safe_psql('app', 'ALTER DATABASE hidden RENAME TO postgres');
check_ids_come('database postgres is back');

is(scalar(keys %{ { map { $_ => 1 } @ids } }), scalar @ids, 'no id came twice');

#
# No background worker is free
#
set_conf($node, max_worker_processes => 1);
$node->restart;
like(sql_error($node, "SET snowflake.max_wait = '2s'; SELECT snowflake_nextval()", 'app'),
	qr/^ERROR:  55P03: no answer yet from the registry postgres\nDETAIL:  No background worker could be started for the call\.\nHINT:  See that max_worker_processes leaves room for two/,
	'no background worker is free: ids are refused');
$node->stop;

#
# An older version that never was
#
append_to_file("$extensions/snowflake_registry--0.9.sql", slurp_file("$extensions/snowflake_registry--$version.sql"));
append_to_file("$extensions/snowflake_registry--0.9--$version.sql", "COMMENT ON SCHEMA snowflake IS 'updated';\n");
my $old = auto_node('old');
$old->safe_psql('postgres', "CREATE EXTENSION snowflake; CREATE EXTENSION snowflake_registry VERSION '0.9'");
$old->restart;
@ids = issue_ids($old, 1);
is(registry_version($old), '0.9', 'an older version: ids come, and the server leaves it as it is');
$rows = $old->safe_psql('postgres', 'SELECT count(*) FROM snowflake.node_number');
$old->safe_psql('postgres', 'ALTER EXTENSION snowflake_registry UPDATE');
is($old->safe_psql('postgres', q(SELECT obj_description('snowflake'::regnamespace))), 'updated', 'an administrator updates it');
push @ids, issue_ids($old, 1);
is($old->safe_psql('postgres', 'SELECT count(*) FROM snowflake.node_number'), $rows, 'the lease goes on');
cmp_ok($ids[1], '>', $ids[0], 'and so do ids');
$old->stop;

done_testing();
