# 029_audit.pl
#	  snowflake_audit() where the leases are elsewhere: from any database of the server, on
#	  its hot standby, and against the registry of another cluster.  When they cannot be
#	  read, it says why, and tells where the registry is only those who may know.  A session
#	  that gives up leaves no process, and no more than one such process runs at a time.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;
use SnowflakeStatement;
use Time::HiRes qw(time);

my $audit = 'FROM snowflake_audit(\'orders\', \'id\')';
my $findings = "SELECT finding, node_number, count $audit";

# A database with the extension, 1000 issued ids, and an owner who is no superuser.  Returns
# the node number of the ids.
sub create_shop
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'CREATE DATABASE shop');
	$node->safe_psql('shop', 'CREATE EXTENSION snowflake_tools CASCADE; CREATE ROLE keeper LOGIN; CREATE ROLE clerk LOGIN;
		CREATE TABLE orders AS SELECT id FROM snowflake_nextval_batch(1000) id;
		GRANT SELECT ON orders TO keeper, clerk; ALTER DATABASE shop OWNER TO keeper');
	return id_node($node->safe_psql('shop', 'SELECT min(id) FROM orders'));
}

sub as
{
	my ($node, $user, $sql) = @_;

	return $node->safe_psql('shop', $sql, extra_params => [ '-U', $user ]);
}

# Why leases are not checked.
sub reason
{
	my ($node, $user) = @_;
	my $sql = "SELECT DISTINCT substring(detail, ' to \\S+ \\S+: (.*)') $audit WHERE finding = 'leases not checked'";

	return $user ? as($node, $user, $sql) : $node->safe_psql('shop', $sql);
}

sub readers
{
	my ($node) = @_;

	return $node->safe_psql('template1', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowflake reader'");
}

# Again where a busy machine takes longer.
sub is_cancelled
{
	my ($node, $label) = @_;
	my ($error, $seconds);

	poll("$label: a quick cancel", sub {
			my $start = time;

			$error = sql_error($node, "SET statement_timeout = '500ms'; $findings", 'shop');
			poll('the end of the reader', sub { readers($node) == 0 });
			($seconds = time - $start) < 4.5 });
	like($error, qr/^ERROR:  57014: /, "$label: the wait can be cancelled");
	cmp_ok($seconds, '<', 4.5, "$label: at once, and the reader ends before it would give up");
}

# Ids from before the leases of a number, and one of the reserved number.
sub forge
{
	my ($number) = @_;

	return "INSERT INTO orders SELECT snowflake_compose(now() + i, $number & 31, 0, 'twitter', $number >> 5)
		FROM unnest('{-1 day, -2 days}'::interval[]) i;
		INSERT INTO orders SELECT snowflake_compose(now(), 31, 0, 'twitter', 31)";
}

#
# The own tables, from another database
#
my $own = auto_node('own', init => [ allows_streaming => 1 ]);
my $number = create_shop($own);

is($own->safe_psql('shop', $findings), '', 'own tables, another database: all ids are covered by leases');
is(as($own, 'keeper', $findings), '', 'also for the owner of that database');
is(reason($own, 'clerk'), 'you may not read the leases on record, as members of pg_database_owner may', 'not for another role');
like(sql_error($own, 'SET ROLE clerk; SELECT * FROM snowflake_tools.read_leases(false)', 'shop'),
	qr/^ERROR:  42501: permission denied for function read_leases/, 'nor in another way');
$own->safe_psql('shop', 'CREATE TABLE secret (id bigint)');
my $refusal = sql_error($own, "SET ROLE clerk; SELECT * FROM snowflake_audit('secret', 'id')", 'shop');
like($refusal, qr/^ERROR:  42501: you may not read column "id" of table "public.secret"\n.*\nHINT: .* GRANT SELECT \(id\) ON public.secret TO clerk/, 'a table of others');
cmp_ok(() = $refusal =~ /\n/g, '<', 10, 'in a few lines');
$own->safe_psql('shop', 'GRANT EXECUTE ON FUNCTION snowflake_tools.read_leases TO clerk');
is(as($own, 'clerk', $findings), '', 'which can be granted');
my $forged = "before leases|$number|2\nreserved number|1023|1";
$own->safe_psql('shop', forge($number));
is($own->safe_psql('shop', $findings), $forged, 'ids of other times are found');
is($own->safe_psql('shop', "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; $findings; COMMIT"), $forged,
	'in a transaction of another kind, too');
is($own->safe_psql('shop', "SELECT to_regnamespace('snowflake')"), '', 'no lease is on record in that database');

# A long history: more numbers than a page has, and one number that has more leases.
$own->safe_psql('postgres', <<'SQL');
INSERT INTO snowflake.worker_node (token, start, granted_by, kind, system_identifier, host_name, port, role, timeline, incarnation,
	generation, fixed, node_number, layout, launched_at, starts_at, leased_until, closed_at)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 'server', 1, 'forged', 1, 'any', 1, gen_random_uuid(),
	1, false, n, 'any', t, t, t + interval '1 s', now()
FROM (SELECT n, '2020-01-01'::timestamptz + i * interval '1 min' AS t FROM generate_series(0, 1000) n, generate_series(1, 25) i
	UNION ALL SELECT 1001, '2020-01-01'::timestamptz + i * interval '1 min' FROM generate_series(1, 12000) i
	UNION ALL SELECT 1002, '2020-01-01') AS l
SQL
is($own->safe_psql('shop', 'SELECT count(*), sum(cardinality(node_numbers)) >= 37026, max(cardinality(node_numbers))
	FROM snowflake_tools.read_leases(false)'), '4|t|10000', 'a long history comes in pages');
$own->safe_psql('shop', <<'SQL');
CREATE TABLE old (id bigint);
INSERT INTO old SELECT snowflake_compose('2020-01-01'::timestamptz + i * interval '1 min' + j * interval '1 s', n & 31, 0, 'twitter', n >> 5)
FROM unnest('{0,500,1000,1001}'::int[]) n, generate_series(1, 25) i, generate_series(0, 1) j;
INSERT INTO old SELECT snowflake_compose('2020-01-01', 1002 & 31, 0, 'twitter', 1002 >> 5);
INSERT INTO old SELECT snowflake_compose('2020-01-01'::timestamptz + 12000 * interval '1 min', 1001 & 31, 0, 'twitter', 1001 >> 5);
SQL
is($own->safe_psql('shop', "SELECT node_number, sum(count) FROM snowflake_audit('old', 'id') GROUP BY 1 ORDER BY 1"),
	"0|25\n500|25\n1000|25\n1001|25", 'and all of it counts');
$own->safe_psql('postgres', "DELETE FROM snowflake.worker_node WHERE host_name = 'forged'");

#
# A hot standby
#
$own->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($own, 'backup', has_streaming => 1);
$standby->start;
$own->safe_psql('shop', 'INSERT INTO orders SELECT snowflake_nextval_batch(10)');
$own->wait_for_catchup($standby);
is($standby->safe_psql('shop', $findings), $forged, 'a hot standby: the same is found');
is(as($standby, 'keeper', $findings), $forged, 'also by the owner');
$standby->stop;

#
# Why they cannot be read
#
my $locker = $own->background_psql('postgres');

$locker->query_safe('BEGIN; LOCK TABLE snowflake.worker_node IN ACCESS EXCLUSIVE MODE');
is_cancelled($own, 'a locked table');
my @waiting = map { start_sql($own, "$findings;", 'shop') } 1 .. 3;
is(settle('1|2', sub {
			$own->safe_psql('template1', "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowflake reader'),
				(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = 0 AND NOT granted)") }), '1|2',
	'there is one reader at a time');
$locker->query_safe('ROLLBACK');
$locker->quit;
finish_sql($_) foreach @waiting;
is(join('', map { $_->{error} } @waiting), '', 'the others wait for it');
is($waiting[2]{out}, $forged, 'and find the same');

my $offset = log_end($own);
poll('nobody in the database postgres', sub { sql_error($own, 'ALTER DATABASE postgres RENAME TO hidden', 'shop') eq '' });
is(reason($own), 'database "postgres" does not exist.', 'no database postgres');
$own->safe_psql('shop', 'ALTER DATABASE hidden RENAME TO postgres');
is(settle($forged, sub { $own->safe_psql('shop', $findings) }), $forged, 'it is back');
is(join("\n", grep { /FATAL|snowflake reader/ } split /\n/, log_since($own, $offset)), '', 'the log has nothing of it');
set_conf($own, max_worker_processes => 1);
$own->restart;
is(reason($own), 'no background worker could be started to read the leases. All 1 of max_worker_processes are in use.'
	  . ' Try again, or raise max_worker_processes.', 'no background worker');
$own->stop;

#
# The registry of another cluster
#
my $registry = new_registry('registry');
my $address = name_of($registry);
my $not_loaded = 'snowflake is not loaded via shared_preload_libraries. This server issues no ids, and does not know where the leases of others are.';

$registry->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake; DROP EXTENSION IF EXISTS snowflake_registry; CREATE DATABASE shop');
$registry->safe_psql('shop', 'CREATE EXTENSION snowflake_tools CASCADE; CREATE TABLE orders AS SELECT snowflake_compose(now(), 5, 1, \'twitter\') AS id');
is(reason($registry), $not_loaded, 'a server that is not preloaded, and no registry, says so');
$registry->safe_psql('postgres', "CREATE EXTENSION snowflake_registry; INSERT INTO snowflake.cluster VALUES (true, 'another', gen_random_uuid())");
is(reason($registry), $not_loaded, 'or if it used another registry before');
$registry->safe_psql('postgres', 'UPDATE snowflake.cluster SET uses = NULL, incarnation = NULL');

$registry->safe_psql('postgres', 'CREATE TABLE orders (id bigint PRIMARY KEY);
	INSERT INTO orders VALUES (snowflake_compose(now(), 5, 1, \'twitter\'))');
like($registry->safe_psql('postgres', "SELECT finding, detail $audit"),
	qr/^leases not checked\|.*: worker_node of database "postgres" has no rows$/, 'no leases at all');
$registry->safe_psql('postgres', 'TRUNCATE orders; CREATE ROLE node LOGIN; GRANT USAGE ON SCHEMA snowflake TO node;
	GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease TO node');

my @members = map { new_member("member$_", conninfo_of($registry, user => 'node')) } 1, 2;
my @numbers = map { create_shop($_) } @members;
isnt($numbers[0], $numbers[1], 'each member has a number of its own');
foreach my $member (@members)
{
	$registry->safe_psql('postgres', 'INSERT INTO orders VALUES (' . join('), (',
		split /\n/, $member->safe_psql('shop', 'SELECT id FROM orders')) . ')');
}
like(reason($members[0]), qr/^permission denied for function list_leases\. .*\Q$address\E\. .* list_leases\.$/, 'a role that may not list leases');
my $hidden = 'the registry could not be asked; members of pg_read_all_stats can see why';
is(reason($members[0], 'keeper'), $hidden, 'where the registry is remains hidden');
$registry->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION snowflake.list_leases TO node');
is($members[0]->safe_psql('shop', $findings), '', 'a member checks the leases of the registry');
is(as($members[1], 'keeper', $findings), '', 'also for the owner of the database');
$members[0]->safe_psql('postgres', 'CREATE TABLE orders AS SELECT snowflake_nextval() AS id');
is($members[0]->safe_psql('postgres', $findings), '', 'in the database postgres, too');
is($registry->safe_psql('postgres', $findings), '', 'in the registry all ids are covered by leases');
is($registry->safe_psql('shop', $findings), 'no lease|5|1', 'in another database of it, too');

# ids of the other member, and forged ones
$members[0]->safe_psql('shop', 'INSERT INTO orders VALUES (' . join('), (', split /\n/, $members[1]->safe_psql('shop', 'SELECT id FROM orders')) . ')');
is($members[0]->safe_psql('shop', $findings), '', 'the ids of another member are covered');
$members[0]->safe_psql('shop', forge($numbers[1]));
is($members[0]->safe_psql('shop', $findings), "before leases|$numbers[1]|2\nreserved number|1023|1", 'and forged ones are found');

# a registry that does not answer
freeze($registry);
is_cancelled($members[0], 'a frozen registry');
like(reason($members[0]), qr/^could not reach the registry \Q$address\E\. It did not answer in time\./, 'else it says so');
thaw($registry);
$registry->stop;
like(reason($members[0]), qr/^could not reach the registry \Q$address\E\./, 'without a registry it says so, too');
is(reason($members[0], 'keeper'), $hidden, 'where it is remains hidden');

# another registry than before
my $other = new_registry('other');
$other->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake_registry; CREATE ROLE node LOGIN; GRANT USAGE ON SCHEMA snowflake TO node;
	GRANT EXECUTE ON FUNCTION snowflake.list_leases TO node');
my $not_used = 'the registry that snowflake.registry names is not the one that this cluster uses';

set_and_reload($members[0], 'snowflake.registry' => conninfo_of($other));
is(settle($not_used, sub { reason($members[0]) }), $not_used, 'another registry than that of the leases');
my $empty = 'this cluster uses another registry, and snowflake.registry is empty. Set it. To use another one, see "Another registry" in doc/operations.md.';
set_and_reload($members[0], 'snowflake.registry' => '');
is(settle($empty, sub { reason($members[0]) }), $empty, 'no registry is set');
$_->stop foreach @members, $other;

# the leases are over
$registry->start;
is($registry->safe_psql('postgres', $findings), '', 'in the registry, all ids are covered also when the leases are over');
# ids may be ahead of the clock by max_ahead
poll('the end of all ids', sub { $registry->safe_psql('postgres', 'SELECT max(leased_until) < now() FROM snowflake.leases') eq 't' });
my ($unused) = grep { my $n = $_; !grep { $_ == $n } @numbers } 700 .. 702;
$registry->safe_psql('postgres', <<"SQL");
INSERT INTO orders SELECT snowflake_compose(now() + i, $numbers[0] & 31, 0, 'twitter', $numbers[0] >> 5)
FROM unnest('{0, -1 day}'::interval[]) i;
INSERT INTO orders SELECT snowflake_compose(now(), n & 31, 0, 'twitter', n >> 5) FROM (VALUES ($unused), (1023)) v (n);
SQL
is($registry->safe_psql('postgres', $findings),
	"no lease|$unused|1\nbefore leases|$numbers[0]|1\nafter leases|$numbers[0]|1\nreserved number|1023|1",
	'ids after the recorded end, from before the first lease and of other numbers are found');

$registry->stop;
done_testing();
