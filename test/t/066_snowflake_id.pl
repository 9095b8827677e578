# 066_snowflake_id.pl
#	  Columns of the type snowflake_id leave a server and come back: pg_dump and pg_restore, COPY
#	  in the binary format, logical replication to a bigint column and from there to a snowflake_id
#	  one, with both formats, and postgres_fdw.  (test/t/013_upgrade.pl has pg_upgrade.)
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;

my $node = new_node('main', init => [ allows_streaming => 'logical' ], conf => "max_replication_slots = 20\nmax_wal_senders = 20\n");
my $directory = PostgreSQL::Test::Utils::tempdir();
# greater than 2^53
my ($first, $second) = ('2124094861762502657', '2124094861762502658');
my $as_json = "SELECT json_agg(p ORDER BY id) FROM parcel AS p";

$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(restored bigints ids remote);

#
# pg_dump: the type, its casts where a view needs them, and what depends on it
#
$node->safe_psql('postgres', <<SQL);
CREATE DOMAIN parcel_id AS snowflake_id CHECK (value > 0);
CREATE TABLE parcel (id parcel_id PRIMARY KEY DEFAULT snowflake_nextval(), parent snowflake_id REFERENCES parcel, old bigint, others snowflake_id[]);
CREATE INDEX ON parcel USING hash (parent);
CREATE INDEX ON parcel (snowflake_timestamp(parent, 'twitter'));
CREATE VIEW found AS SELECT coalesce(parent, 0) AS parent, old::snowflake_id AS old FROM parcel WHERE id = ANY ('{$first,7}'::bigint[]) OR id IN (8, 9);
CREATE TABLE event (id snowflake_id DEFAULT snowflake_next_id()) PARTITION BY RANGE (id);
SELECT snowflake_create_partitions('event', '2026-01-01Z', '2026-03-01Z', '1 month', dry_run => false);
INSERT INTO parcel VALUES ($first, NULL, $second, '{$first,7}'), ($second, $first, NULL, '{}');
INSERT INTO event VALUES (snowflake_min_id('2026-02-03Z'));
SQL
my $contents = "$as_json; TABLE found; SELECT tableoid::regclass, id FROM event;
	SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid IN ('parcel'::regclass, 'found'::regclass) AND attnum > 0 ORDER BY attrelid::regclass::text, attnum";
my $before = $node->safe_psql('postgres', $contents);
like($before, qr/^\[\{"id":"$first","parent":null,"old":$second,"others":\["$first","7"\]\}/, 'strings in JSON');
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$directory/dump", '-d', $node->connstr('postgres') ], 'pg_dump');
$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr('restored'), "$directory/dump" ], 'pg_restore');
is($node->safe_psql('restored', $contents), $before, 'the same is restored');
isnt($node->safe_psql('restored', "SET client_min_messages = error; INSERT INTO parcel DEFAULT VALUES RETURNING id"), '', 'with its default');

#
# COPY in the binary format: that of a bigint
#
foreach my $type (qw(bigint snowflake_id))
{
	$node->safe_psql('postgres', "CREATE TABLE copied_$type (id $type)");
}
$node->safe_psql('postgres', <<SQL);
COPY parcel (id) TO '$directory/ids' (FORMAT binary);
COPY copied_bigint FROM '$directory/ids' (FORMAT binary);
COPY copied_bigint TO '$directory/bigints' (FORMAT binary);
COPY copied_snowflake_id FROM '$directory/bigints' (FORMAT binary);
SQL
is(slurp_file("$directory/ids"), slurp_file("$directory/bigints"), 'COPY: the bytes are the same');
is($node->safe_psql('postgres', 'SELECT count(*), min(i.id), max(b.id) FROM copied_snowflake_id AS i JOIN copied_bigint AS b USING (id)'), "2|$first|$second",
	'COPY: to a bigint column and back');

#
# Logical replication, from database to database of one server; bigints needs no extension
#
my $port = $node->port;
my $host = $node->host;
my $tables = {
	postgres => 'CREATE TABLE sent (id snowflake_id PRIMARY KEY, parent snowflake_id, note text)',
	bigints => 'CREATE TABLE sent (id bigint PRIMARY KEY, parent bigint, note text)',
	ids => 'CREATE EXTENSION snowflake; CREATE TABLE sent (id snowflake_id PRIMARY KEY, parent snowflake_id, note text)' };

foreach my $binary (qw(false true))
{
	my $label = "logical replication, binary = $binary";

	$node->safe_psql($_, $tables->{$_} =~ s/^CREATE EXTENSION snowflake; /$binary eq 'true' ? '' : $&/er) foreach sort keys %$tables;
	$node->safe_psql('postgres', "INSERT INTO sent VALUES ($first, 7, 'copied')");
	foreach my $way ([ postgres => 'bigints' ], [ bigints => 'ids' ])
	{
		my ($from, $to) = @$way;

		$node->safe_psql($from, "CREATE PUBLICATION changes FOR TABLE sent");
		# a slot of one's own server cannot be made by CREATE SUBSCRIPTION
		$node->safe_psql($from, "SELECT pg_create_logical_replication_slot('to_$to', 'pgoutput')");
		$node->safe_psql($to, "CREATE SUBSCRIPTION from_$from CONNECTION 'host=$host port=$port dbname=$from' PUBLICATION changes
			WITH (create_slot = false, slot_name = 'to_$to', binary = $binary)");
		is(settle($first, sub { $node->safe_psql($to, 'SELECT max(id) FROM sent') }), $first, "$label: copied to $to");
	}
	$node->safe_psql('postgres', "INSERT INTO sent VALUES ($second, $first, 'b'), (5, NULL, 'c'); UPDATE sent SET parent = $second WHERE id = $first;
		DELETE FROM sent WHERE id = 5; UPDATE sent SET id = 6 WHERE id = $second");
	my $rows = "SELECT string_agg(concat_ws(' ', id, parent, note), ', ' ORDER BY id) FROM sent";
	my $expected = "6 $first b, $first $second copied";
	is(settle($expected, sub { $node->safe_psql('ids', $rows) }), $expected, "$label: changes, by a bigint column to another snowflake_id");
	is($node->safe_psql('bigints', $rows), $expected, "$label: in the bigint column, too");
	is($node->safe_psql('ids', "SELECT to_json(parent) FROM sent WHERE id = $first"), qq("$second"), "$label: and as a string in JSON at the end");
	foreach my $way ([ bigints => 'ids' ], [ postgres => 'bigints' ])
	{
		$node->safe_psql($way->[1], "DROP SUBSCRIPTION from_$way->[0]");
		$node->safe_psql($way->[0], 'DROP PUBLICATION changes');
	}
	$node->safe_psql($_, 'DROP TABLE sent') foreach sort keys %$tables;
}

#
# postgres_fdw
#
SKIP:
{
	skip 'no postgres_fdw here', 1
	  unless $node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'");

	$node->safe_psql('remote', "CREATE EXTENSION snowflake; CREATE TABLE far (id snowflake_id PRIMARY KEY, note text);
		INSERT INTO far VALUES ($first, 'far'); CREATE TABLE far_bigint (id bigint PRIMARY KEY); INSERT INTO far_bigint VALUES ($first)");
	$node->safe_psql('postgres', <<SQL);
CREATE EXTENSION postgres_fdw;
CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'remote', extensions 'snowflake');
CREATE USER MAPPING FOR CURRENT_USER SERVER remote;
IMPORT FOREIGN SCHEMA public LIMIT TO (far) FROM SERVER remote INTO public;
CREATE FOREIGN TABLE far_bigint (id snowflake_id) SERVER remote;
INSERT INTO far VALUES ($second, 'here');
SQL
	is($node->safe_psql('postgres', "SELECT json_agg(f ORDER BY id) FROM far AS f"), qq([{"id":"$first","note":"far"}, \n {"id":"$second","note":"here"}]),
		'postgres_fdw: rows are read and written');
	my $query = "FROM far WHERE id = CAST($first AS bigint) AND id > 5 AND id = ANY ('{$first}'::bigint[])";
	is($node->safe_psql('postgres', "SELECT note $query"), 'far', 'postgres_fdw: conditions');
	like($node->safe_psql('postgres', "EXPLAIN (VERBOSE, COSTS OFF) SELECT note $query"), qr/Remote SQL: SELECT note FROM public\.far WHERE (?=.*id = $first)(?=.*id > 5).*id = ANY/,
		'postgres_fdw: conditions are sent to the other server, if its options name the extension');
	is($node->safe_psql('postgres', "SELECT to_json(id) FROM far_bigint WHERE id = $first"), qq("$first"), 'postgres_fdw: a bigint column there is a string in JSON here');
}

$node->stop;
done_testing();
