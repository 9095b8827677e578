# 029_audit.pl
#	  snowflake_audit() where leases are recorded elsewhere.  A server with a registry
#	  says that it does not check them, and tells nobody where the registry is; in the
#	  registry's database the same ids are checked, while its leases are live and when
#	  they are over.  A server that is not preloaded and has no leases says so.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;

my $registry = new_registry('registry');
my $findings = 'SELECT finding, node_number, count FROM snowflake_audit(\'orders\', \'id\')';

$registry->safe_psql('postgres', 'CREATE TABLE orders (id bigint PRIMARY KEY);
	INSERT INTO orders VALUES (snowflake_compose(now(), 5, 1, \'twitter\'))');
like($registry->safe_psql('postgres', q{SELECT count, detail FROM snowflake_audit('orders', 'id')}),
	qr/^1\|.*: worker_node of this database has no rows$/, 'no leases at all');
$registry->safe_psql('postgres', 'TRUNCATE orders');

my @members = map { new_member("member$_", conninfo_of($registry)) } 1, 2;
my @numbers = map { id_node((issue_ids($_, 1))[0]) } @members;
isnt($numbers[0], $numbers[1], 'each member has a number of its own');
foreach my $member (@members)
{
	$member->safe_psql('postgres', 'CREATE TABLE orders AS SELECT id FROM snowflake_nextval_batch(1000) id;
		CREATE ROLE owner LOGIN; GRANT SELECT ON orders TO owner; ALTER DATABASE postgres OWNER TO owner');
	$registry->safe_psql('postgres', 'INSERT INTO orders VALUES (' . join('), (',
		split /\n/, $member->safe_psql('postgres', 'SELECT id FROM orders')) . ')');
}

foreach my $user (scalar getpwuid($<), 'owner')
{
	my $found = $members[0]->safe_psql('postgres',
		q{SELECT finding, node_number, count, detail FROM snowflake_audit('orders', 'id')},
		extra_params => [ '-U', $user ]);

	like($found, qr/^leases not checked\|$numbers[0]\|1000\|.* that snowflake\.registry names$/,
		"$user: a server with a registry does not check leases");
	unlike($found, qr/host=|dbname/, "$user: where the registry is remains hidden");
}

is($registry->safe_psql('postgres', $findings), '', 'in the registry all ids are covered by leases');
$_->stop foreach @members;
is($registry->safe_psql('postgres', $findings), '', 'also when the leases are over');
# ids may be ahead of the clock by max_ahead
poll('the end of all ids', sub { $registry->safe_psql('postgres', 'SELECT max(leased_until) < now() FROM snowflake.worker_node') eq 't' });
$registry->safe_psql('postgres', <<"EOF");
INSERT INTO orders SELECT snowflake_compose(now() + i, $numbers[0] & 31, 0, 'twitter', $numbers[0] >> 5)
FROM unnest('{0, -1 day}'::interval[]) i;
INSERT INTO orders SELECT snowflake_compose(now(), n & 31, 0, 'twitter', n >> 5) FROM (VALUES (700), (1023)) v (n);
EOF
is($registry->safe_psql('postgres', $findings),
	"no lease|700|1\nbefore leases|$numbers[0]|1\nafter leases|$numbers[0]|1\nreserved number|1023|1",
	'ids after the recorded end, from before the first lease and of other numbers are found');

$registry->stop;
done_testing();
