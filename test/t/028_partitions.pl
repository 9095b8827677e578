# 028_partitions.pl
#	  pg_partman keeps the partitions of a table by id, one for each day: it makes those
#	  ahead while days go by, finds the rows of each day in theirs, and drops old ones.
#
# Needs pg_partman 4 (in Debian 12) or 5 (in Debian 13), and is skipped without it.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;

my $node = new_node('main');

my $version = $node->safe_psql('postgres', q{SELECT split_part(default_version, '.', 1) FROM pg_available_extensions WHERE name = 'pg_partman'});

if ($version !~ /^[45]$/)
{
	$node->stop;
	plan skip_all => 'pg_partman 4 or 5 is not installed';
}

# The argument that version 4 wants in addition, as the document says.
my $native = $version == 4 ? ", p_type => 'native'" : '';

note("pg_partman $version");

# Not while a day ends, which here is at the time of day of the layout's epoch.
poll('the next day', sub {
		$node->safe_psql('postgres', q{
			SELECT mod(extract(epoch FROM now() - epoch), 86400) < 86400 - 150 FROM snowflake_layout('twitter')}) eq 't' });

# How many ids a day has: the first id of the second day of the layout.
use constant DAY => '(86400000::bigint << 22)';
is($node->safe_psql('postgres', q{SELECT snowflake_min_id(epoch + interval '1 day', name) = } . DAY .
	q{ FROM snowflake_layout('twitter')}), 't', 'the ids of a day of the layout twitter');

$node->safe_psql('postgres', 'CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman');

# A table with the first partition for now and three more.
sub create_table
{
	my ($name, $start) = @_;

	$node->safe_psql('postgres', "
		CREATE TABLE $name (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), note text) PARTITION BY RANGE (id);
		SELECT partman.create_parent('public.$name', 'id', p_interval => " . DAY . "::text,
			p_premake => 3, p_start_partition => $start$native)");
}

# The partitions but for the default one: begin and end in time, and rows.
$node->safe_psql('postgres', q{
	CREATE VIEW partitions AS
	SELECT c.relname, snowflake_timestamp(bound[1]::bigint) AS begins, snowflake_timestamp(bound[2]::bigint) AS ends,
		inhparent::regclass::text AS parent
	FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid,
		regexp_match(pg_get_expr(relpartbound, c.oid), $$FROM \('(\d+)'\) TO \('(\d+)'\)$$) AS bound
	WHERE bound IS NOT NULL});

# A string such as "4 partitions, 3 days ahead, no gap", of the table's newest id.
sub describe
{
	my ($name) = @_;

	return $node->safe_psql('postgres', "
		SELECT format('%s partitions, %s ahead, %s', count(*), count(*) FILTER (WHERE begins > newest),
			CASE WHEN bool_and(ends - begins = '24 hours') AND max(ends) - min(begins) = count(*) * interval '24 hours'
				THEN 'no gap' ELSE 'gaps' END)
		FROM partitions, (SELECT snowflake_timestamp(max(id)) AS newest FROM $name) AS m WHERE parent = '$name'");
}

# Rows of the table that are elsewhere than in the partition of their time.
sub misplaced
{
	my ($name) = @_;

	return $node->safe_psql('postgres', "
		SELECT count(*) FROM $name AS o LEFT JOIN partitions AS p ON p.relname = o.tableoid::regclass::text
		WHERE (snowflake_timestamp(o.id) >= p.begins AND snowflake_timestamp(o.id) < p.ends) IS NOT TRUE");
}

sub insert_rows
{
	my ($name, $note) = @_;

	$node->safe_psql('postgres', "INSERT INTO $name (note) SELECT '$note' FROM generate_series(1, 1000)");
}

#
# The recipe
#
create_table('orders', 'snowflake_min_id(now())::text');
insert_rows('orders', 'today');
is(describe('orders'), '4 partitions, 3 ahead, no gap', 'partitions for now and three days more');
is(misplaced('orders'), '0', 'the rows of now are in the first one');
is($node->safe_psql('postgres', q{SELECT DISTINCT to_char(begins AT TIME ZONE 'UTC', 'HH24:MI:SS.MS') FROM partitions}),
	'01:42:54.657', 'a day begins at the time of day of the epoch');

# Two days go by; rows come before the maintenance does.
set_clock($node, 2 * 86_400_000);
insert_rows('orders', 'after two days');
is(misplaced('orders'), '0', 'the rows of two days later are in a partition made before');
is(describe('orders'), '4 partitions, 1 ahead, no gap', 'of which one is left');
$node->safe_psql('postgres', q{SELECT partman.run_maintenance('public.orders')});
is(describe('orders'), '6 partitions, 3 ahead, no gap', 'maintenance makes the next two');

# Pruning: a time range of a day has at most two partitions, each of which knows its ids.
my $plan = $node->safe_psql('postgres', q{
	EXPLAIN (COSTS OFF) SELECT count(*) FROM orders
	WHERE id >= snowflake_min_id(now() + interval '2 days' - interval '1 min') AND id < snowflake_min_id(now() + interval '2 days 1 min')});
like($plan, qr/Subplans Removed: [56]\b/, 'a query for two minutes leaves the other days out');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM orders
	WHERE id >= snowflake_min_id(now() + interval '2 days' - interval '1 hour') AND id < snowflake_min_id(now() + interval '2 days 1 hour')}),
	'1000', 'and finds the rows');

# Days that are older than a day before the newest row go.
$node->safe_psql('postgres', "UPDATE partman.part_config
	SET retention = " . DAY . "::text, retention_keep_table = false WHERE parent_table = 'public.orders'");
$node->safe_psql('postgres', q{SELECT partman.run_maintenance('public.orders')});
is(describe('orders') . $node->safe_psql('postgres', q{SELECT ', ' || string_agg(DISTINCT note, ',') FROM orders}),
	'5 partitions, 3 ahead, no gap, after two days', 'retention, in ids, drops the day before yesterday');

#
# What goes wrong without p_start_partition: pg_partman begins at id 0
#
create_table('careless', 'NULL');
insert_rows('careless', 'today');
is($node->safe_psql('postgres', q{SELECT DISTINCT tableoid::regclass FROM careless}), 'careless_default',
	'without a start all rows go to the default partition');

#
# A layout whose epoch is a midnight has days that begin at midnight
#
$node->safe_psql('postgres', "
	CREATE TABLE discord (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
	SELECT partman.create_parent('public.discord', 'id', p_interval => " . DAY . "::text,
		p_premake => 3, p_start_partition => snowflake_min_id('2026-11-21 12:34:56Z', 'discord')::text$native)");
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM snowflake_partition_bounds('2026-11-21 00:00Z', '2026-11-25 00:00Z', '1 day', 'discord'),
		to_regclass('discord_p' || from_id) AS partition JOIN pg_class ON pg_class.oid = partition
	WHERE pg_get_expr(relpartbound, partition) = format('FOR VALUES FROM (%L) TO (%L)', from_id, to_id)}), '4',
	'the partitions of the layout discord are the days of UTC');

$node->stop;
done_testing();
