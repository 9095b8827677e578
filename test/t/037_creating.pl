# 037_creating.pl
#	  The tables of leases are not there yet.  Where ids are wanted, and the extension is missing in
#	  the database postgres, the server creates it there, also without a schema public.  A
#	  transaction that is creating it and already wants an id is told to commit first, at no
#	  cost for others but the wait.  Where the database postgres is missing, or no background worker is free,
#	  ids are refused with what to do; the log says it once, and ids go on when it is mended.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;

my $node = auto_node('main', conf => "max_worker_processes = 2\nmax_logical_replication_workers = 0\nmax_parallel_workers = 0\n");
my $being_created = qr/ERROR:  (?:55P03: )?the extension snowflake is being created in the database "postgres"\nDETAIL:  .*\nHINT:  Commit the transaction that creates it, and ask for ids then\./;
my @ids;

$node->safe_psql('postgres', 'CREATE DATABASE app');
$node->safe_psql('app', 'CREATE EXTENSION snowflake');

sub check_ids_come
{
	my ($label) = @_;
	my @more = issue_in($node, 'app', 5);

	push @ids, @more;
	is(scalar @more, 5, "$label: ids come");
}

sub extension_schema
{
	return $node->safe_psql('postgres', "SELECT coalesce((SELECT extnamespace::regnamespace::text FROM pg_extension
		WHERE extname = 'snowflake'), 'missing')");
}

# As on a server that has issued no ids yet.
sub start_over
{
	$node->safe_psql('postgres', 'DROP EXTENSION snowflake');
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

	$session->query_safe(q{SET snowflake.max_wait = '2s'; BEGIN; CREATE EXTENSION snowflake; SAVEPOINT created});
	return $session;
}

#
# Being created, and rolled back
#
is(extension_schema(), 'missing', 'nothing is created where no id is wanted');
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
is(extension_schema(), 'public', 'rolled back: the server has created the extension');
is(count_lines($offset, 'snowflake: created the extension in database "postgres"'), 1, 'rolled back: the log says so');

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
# Without a schema public
#
start_over();
$node->safe_psql('postgres', 'DROP SCHEMA public; CREATE ROLE boss; CREATE SCHEMA snowflake_functions AUTHORIZATION boss');
poll('a schema of somebody else', sub { sql_error($node, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()", 'app') =~
	/^ERROR:  \w+: schema "snowflake_functions" of the database "postgres" belongs to the role "boss"\nDETAIL:  .*\nHINT:  Drop that schema/ });
is(extension_schema(), 'missing', 'no schema public: a schema that somebody else made is not taken over');
$node->safe_psql('postgres', 'DROP SCHEMA snowflake_functions');
poll('the schema is gone', sub { sql_error($node, 'SELECT snowflake_nextval()', 'app') eq '' });
check_ids_come('no schema public');
is(extension_schema(), 'snowflake_functions', 'no schema public: the extension is in a schema of its own');
start_over();
check_ids_come('no schema public, again');
is(extension_schema(), 'snowflake_functions', 'no schema public, again: in the schema that is there');

#
# Without the database postgres
#
poll('nobody in the database postgres', sub { sql_error($node, 'ALTER DATABASE postgres RENAME TO hidden', 'app') eq '' });
$offset = log_end($node);
$node->restart;
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

done_testing();
