# 017_dump.pl
#	  A database with ids survives pg_dump and pg_restore: a column's default, an
#	  expression index, a generated column and partition bounds that are made of the
#	  forms with a layout.  Afterwards the copy goes on drawing, above all ids in it.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;

my $node = new_node('main');
my $other = new_node('other', start => 0);
set_conf($other, 'snowflake.worker_id' => 2);
$other->start;

$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', <<'EOF');
CREATE EXTENSION snowflake;
CREATE TABLE orders (
	id bigint PRIMARY KEY DEFAULT snowflake_nextval(),
	placed timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'twitter')) STORED,
	note text);
CREATE INDEX orders_time ON orders (snowflake_timestamp(id, 'twitter'));
CREATE INDEX orders_worker ON orders (((snowflake_parse(id, 'twitter')).worker_id));

CREATE TABLE events (id bigint DEFAULT snowflake_nextval(), note text) PARTITION BY RANGE (id);
CREATE TABLE events_old PARTITION OF events
	FOR VALUES FROM (snowflake_min_id('-infinity', 'twitter')) TO (snowflake_min_id('2020-01-01 00:00:00+00', 'twitter'));
CREATE TABLE events_new PARTITION OF events
	FOR VALUES FROM (snowflake_min_id('2020-01-01 00:00:00+00', 'twitter')) TO (MAXVALUE);

INSERT INTO orders (note) SELECT 'order ' || i FROM generate_series(1, 2000) i;
INSERT INTO events (note) SELECT 'event ' || i FROM generate_series(1, 1000) i;
INSERT INTO events VALUES (snowflake_compose('2015-03-04 05:06:07.089+00', 3, 7, 'twitter', 1), 'old');
EOF

my $contents = q{
	SELECT count(*), count(DISTINCT id), md5(string_agg(concat_ws(',', id, extract(epoch FROM placed), note), ';' ORDER BY id))
	FROM orders WHERE note LIKE 'order %' AND placed = snowflake_timestamp(id, 'twitter');
	SELECT tableoid::regclass::text, count(*), md5(string_agg(concat_ws(',', id, note), ';' ORDER BY id)) FROM events
	WHERE note <> 'after' GROUP BY 1 ORDER BY 1};
my $before = $node->safe_psql('shop', $contents);
like($before, qr/^2000\|2000\|\w+\nevents_new\|1000\|\w+\nevents_old\|1\|\w+\z/, 'the database before the dump');

# What a copy has, and that it goes on; in which time zone must not matter.
sub check_copy
{
	my ($label, $copy, $database) = @_;
	my ($greatest) = $node->safe_psql('shop', 'SELECT greatest((SELECT max(id) FROM orders), (SELECT max(id) FROM events))');

	is($copy->safe_psql($database, $contents), $before, "$label: the contents are the same");
	like($copy->safe_psql($database, q{
		SET enable_seqscan = off; SET enable_bitmapscan = off;
		EXPLAIN (COSTS off) SELECT * FROM orders WHERE snowflake_timestamp(id, 'twitter') > now() - interval '1 hour'}),
		qr/Index Scan using orders_time/, "$label: the expression index is used");
	is($copy->safe_psql($database, q{SET enable_seqscan = off;
		SELECT count(*) FROM orders WHERE snowflake_timestamp(id, 'twitter') > now() - interval '1 hour'}), '2000',
		"$label: and finds the rows");
	$copy->safe_psql($database, q{
		SET timezone = 'Asia/Tokyo';
		INSERT INTO orders (note) SELECT 'after' FROM generate_series(1, 100);
		INSERT INTO events (note) SELECT 'after' FROM generate_series(1, 100)});
	is($copy->safe_psql($database, qq{
		SELECT count(*) FROM orders WHERE note = 'after' AND id > $greatest AND placed = snowflake_timestamp(id, 'twitter')
			AND placed BETWEEN now() - interval '1 min' AND now() + interval '1 s';
		SELECT count(*) FROM events_new WHERE note = 'after' AND id > $greatest}), "100\n100",
		"$label: draws go on above all ids in it");
}

my $directory = PostgreSQL::Test::Utils::tempdir('dump');
$ENV{PGTZ} = 'America/New_York';

$node->command_ok([ 'pg_dump', '-Fc', '-f', "$directory/shop.dump", '-d', $node->connstr('shop') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy1');
$node->command_ok([ 'pg_restore', '-e', '-j', 2, '-d', $node->connstr('copy1'), "$directory/shop.dump" ],
	'pg_restore into another database');
check_copy('same server', $node, 'copy1');

$other->safe_psql('postgres', 'CREATE DATABASE copy2');
$node->command_ok([ 'pg_dump', '-f', "$directory/shop.sql", '-d', $node->connstr('shop') ], 'pg_dump as text');
$other->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $other->connstr('copy2'), '-f', "$directory/shop.sql" ],
	'psql into another server');
check_copy('other server', $other, 'copy2');
$_->stop foreach $node, $other;

done_testing();
