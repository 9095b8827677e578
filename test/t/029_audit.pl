# 029_audit.pl
#	  snowflake_audit() where the leases are elsewhere: in another database of the server, with
#	  the statements of the reference; on its hot standby; and in the registry of another
#	  cluster.  They are read with the caller's rights.  What the log has lost is shown as such.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeReadme;
use SnowflakeRegistry;

my %example = map { my $example = $_; map { /^run by \S+029_audit\.pl, (.*)/ ? ($1 => $example->{sql}) : () } @{ $_->{markers} } }
  examples(read_document("$FindBin::RealBin/../../doc/reference.md"));
my $audit = q(FROM snowflake_audit('orders', 'id', 'audit.leases'));
my $findings = "SELECT finding, node_number, count $audit";

# A database with the extension, 1000 issued ids, and two roles.  Returns the node number of the ids.
sub create_shop
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'CREATE DATABASE shop');
	$node->safe_psql('shop', 'CREATE EXTENSION snowflake_tools CASCADE; CREATE ROLE keeper LOGIN; CREATE ROLE clerk LOGIN;
		CREATE TABLE orders AS SELECT id FROM snowflake_nextval_batch(1000) id;
		GRANT SELECT ON orders TO keeper, clerk');
	return id_node($node->safe_psql('shop', 'SELECT min(id) FROM orders'));
}

# In the database shop, of the leases that a server has.
sub create_foreign_table
{
	my ($node, $server) = @_;
	my $sql = $example{'foreign table'};
	my ($host, $port) = ($server->host, $server->port);

	$sql =~ s/host '[^']*'/host '$host', port '$port'/ or die 'no host';
	$node->safe_psql('shop', "$sql; GRANT USAGE ON SCHEMA audit TO keeper, clerk");
}

sub as
{
	my ($node, $user, $sql) = @_;
	my ($status, $out, $error) = $node->psql('shop', $sql, extra_params => [ '-U', $user, '-v', 'VERBOSITY=verbose' ]);

	return $status == 0 ? $out : $error =~ s/^psql:<stdin>:\d+: //mgr;
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

plan(skip_all => 'no postgres_fdw here')
  unless $own->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'");
my $number = create_shop($own);
$own->safe_psql('postgres', "CREATE EXTENSION IF NOT EXISTS snowflake_tools CASCADE; $example{rights}");
create_foreign_table($own, $own);
is($own->safe_psql('shop', "SELECT count(*) > 0 FROM audit.leases; $findings"), 't', 'own tables, another database: all ids are covered by leases');

# with the caller's rights
like(as($own, 'clerk', $findings), qr/^ERROR:  42501: you may not read column "node_number" of table "audit.leases"\n.*\nHINT: .* GRANT SELECT \(node_number, launched_at, starts_at, leased_until\) ON audit.leases TO clerk/,
	'not for a role without SELECT on the leases');
$own->safe_psql('shop', 'GRANT SELECT ON audit.leases TO keeper');
like(as($own, 'keeper', $findings), qr/^ERROR:  42704: user mapping not found for (?:user )?"keeper"/, 'nor for one without a user mapping');
$own->safe_psql('shop', "CREATE USER MAPPING FOR keeper SERVER registry OPTIONS (user 'auditor', password_required 'false')");
is(as($own, 'keeper', $findings), '', 'but for one with both');
$own->safe_psql('postgres', 'REVOKE SELECT ON snowflake.leases FROM auditor');
like(as($own, 'keeper', $findings), qr/^ERROR:  42501: permission denied for view leases\n/, 'as long as the owner of the view grants it');
$own->safe_psql('postgres', 'GRANT SELECT ON snowflake.leases TO auditor');
$own->safe_psql('shop', 'CREATE TABLE secret (id bigint)');
my $refusal = as($own, 'keeper', "SELECT * FROM snowflake_audit('secret', 'id', 'audit.leases')");
like($refusal, qr/^ERROR:  42501: you may not read column "id" of table "public.secret"\n.*\nHINT: .* GRANT SELECT \(id\) ON public.secret TO keeper/, 'a table of others');
cmp_ok(() = $refusal =~ /\n/g, '<', 10, 'in a few lines');

my $forged = "before leases|$number|2\nreserved number|1023|1";
$own->safe_psql('shop', forge($number));
is($own->safe_psql('shop', $findings), $forged, 'ids of other times are found');
is($own->safe_psql('shop', "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; $findings; COMMIT"), $forged,
	'in a transaction of another kind, too');

# A transaction reads a foreign table as it was at first.
my $later = $own->background_psql('shop');
$later->query_safe("BEGIN; SELECT count(*) FROM audit.leases");
$own->safe_psql('shop', 'SELECT snowflake_release()');
my $next = id_node($own->safe_psql('shop', 'INSERT INTO orders SELECT snowflake_nextval() RETURNING id'));
is($later->query_safe($findings), "no lease|$next|1\n$forged", 'in one transaction a new lease is missing');
$later->query_safe('COMMIT');
$later->quit;
is($own->safe_psql('shop', $findings), $forged, 'in the next one it is there');

#
# A hot standby
#
$own->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($own, 'backup', has_streaming => 1);
$standby->start;
$own->safe_psql('shop', 'INSERT INTO orders SELECT snowflake_nextval_batch(10)');
$own->safe_psql('postgres', 'CREATE TABLE orders AS SELECT snowflake_nextval() AS id');
$own->wait_for_catchup($standby);
is($standby->safe_psql('shop', $findings), $forged, 'a hot standby: the same is found');
is($standby->safe_psql('postgres', "SELECT count(*) FROM orders; SELECT * FROM snowflake_audit('orders', 'id', 'snowflake.leases')"), '1',
	'and nothing with its own leases');
$_->stop foreach $standby, $own;

#
# The registry of another cluster
#
my $registry = new_registry('registry');

$registry->safe_psql('postgres', "CREATE EXTENSION IF NOT EXISTS snowflake_tools CASCADE; CREATE TABLE orders (id bigint); $example{rights}");
my @members = map { new_member("member$_", conninfo_of($registry)) } 1, 2;
my @numbers = map { create_shop($_) } @members;
isnt($numbers[0], $numbers[1], 'each member has a number of its own');
create_foreign_table($_, $registry) foreach @members;
is($_->safe_psql('shop', $findings), '', $_->name . ': the leases of the registry cover its ids') foreach @members;

# ids of the other member, and forged ones
$members[0]->safe_psql('shop', 'INSERT INTO orders VALUES (' . join('), (', split /\n/, $members[1]->safe_psql('shop', 'SELECT id FROM orders')) . ')');
is($members[0]->safe_psql('shop', $findings), '', 'and those of another member');
$members[0]->safe_psql('shop', forge($numbers[1]));
is($members[0]->safe_psql('shop', $findings), "before leases|$numbers[1]|2\nreserved number|1023|1", 'forged ones are found');

# a log that is shorter than it was
my $in_registry = $findings =~ s/'audit.leases'/'snowflake.leases'/r;
my $ids = join '), (', split /\n/, $members[0]->safe_psql('shop', 'SELECT id FROM orders WHERE snowflake_timestamp(id) > now() - interval \'1 h\'');
$registry->safe_psql('postgres', "INSERT INTO orders VALUES ($ids)");
is($registry->safe_psql('postgres', $in_registry), 'reserved number|1023|1', 'in the registry, too, all ids are covered');
$_->stop foreach @members;
poll('the end of all leases', sub { $registry->safe_psql('postgres', 'SELECT max(leased_until) < now() FROM snowflake.leases') eq 't' });
is($registry->safe_psql('postgres', $in_registry), 'reserved number|1023|1', 'also when the leases are over');
is($registry->safe_psql('postgres', <<"SQL"), "after leases|$numbers[0]|1\nreserved number|1023|1", 'an id from after the end');
INSERT INTO orders VALUES (snowflake_compose(now(), $numbers[0] & 31, 0, 'twitter', $numbers[0] >> 5));
$in_registry
SQL
is($registry->safe_psql('postgres', <<"SQL"), "no lease|$numbers[0]|1001\nreserved number|1023|1", 'ids of a lease whose row is gone');
CREATE SCHEMA audit;
CREATE TABLE audit.leases AS SELECT * FROM snowflake.leases WHERE node_number <> $numbers[0];
$findings
SQL
$registry->stop;
done_testing();
