# 012_dump.pl
#	  A database with ids survives pg_dump and pg_restore: a column's default, an
#	  expression index, a generated column and partition bounds that are made of the
#	  forms with a layout.  Afterwards the copy goes on, with ids greater than all in it.
#
#	  So does a whole server: one that is restored from pg_dumpall of a server in use
#	  issues ids at once, with a number that no restored row says is leased for later.  The
#	  tables of the extension keep each row that a restore brings, but for a second record
#	  of what the cluster uses; rows that logical replication brings are left out.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;

# Two automatic numbers, 0 and 2: one layout has only two bits for them.
my $conf = "snowflake.extra_layouts = 'timestamp 41, worker 2, sequence 12, epoch 2024-01-01T00:00:00Z'\n";
my $node = auto_node('main', conf => $conf);
my $other = auto_node('other', conf => $conf);

$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE DATABASE shop');
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

CREATE SEQUENCE number;
CREATE TABLE bill (id bigint DEFAULT nextval('number'));
CREATE TABLE receipt (id bigint DEFAULT nextval('number'));
INSERT INTO bill SELECT FROM generate_series(1, 3);
INSERT INTO receipt SELECT FROM generate_series(1, 4);
CREATE EXTENSION snowflake_tools;
SELECT snowflake_convert_column('bill', 'id', dry_run => false), snowflake_convert_column('receipt', 'id', dry_run => false);
DROP EXTENSION snowflake_tools;

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

# What a copy has, and that it goes on; the time zone must not matter.
sub check_copy
{
	my ($label, $copy, $database) = @_;
	my ($greatest) = $node->safe_psql('shop', 'SELECT greatest((SELECT max(id) FROM orders), (SELECT max(id) FROM events))');

	is($copy->safe_psql($database, $contents), $before, "$label: the contents are the same");
	like($copy->safe_psql($database, "CREATE EXTENSION snowflake_tools; SELECT snowflake_revert_column('bill', 'id')"),
		qr/^ALTER SEQUENCE public\.number RESTART WITH 8;\nALTER TABLE public\.bill .*\nALTER TABLE public\.receipt .*\Z/,
		"$label: converted columns go back to the sequence that they shared, with the tools that the dump has not");
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
		"$label: new ids are greater than all in it");
}

# What a statement says while it succeeds.
sub sql_notice
{
	my ($copy, $database, $sql) = @_;
	my ($status, $out, $error) = $copy->psql($database, $sql);

	is($status, 0, "$sql: succeeds");
	return $error =~ s/^psql:<stdin>:\d+: //mgr;
}

my $directory = PostgreSQL::Test::Utils::tempdir('dump');
$ENV{PGTZ} = 'America/New_York';

$node->command_ok([ 'pg_dump', '-Fc', '-f', "$directory/shop.dump", '-d', $node->connstr('shop') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy1');
$node->command_ok([ 'pg_restore', '-e', '-j', 2, '-d', $node->connstr('copy1'), "$directory/shop.dump" ],
	'pg_restore into another database');
check_copy('same server', $node, 'copy1');

# The server's clock goes an hour ahead: ids in use there end long after ours could.
set_clock($node, 3_600_000);
my $number = id_node((issue_ids($node, 1))[0]);
is(join(',', lease_rows($node, "node_number, leased_until > now() + '50 min', closed_at IS NULL")), "$number|t|t",
	'the lease of a server in use ends in the future');
$node->command_ok([ 'pg_dumpall', '-f', "$directory/all.sql", '-d', $node->connstr('postgres') ], 'pg_dumpall of it');
my ($out, $error) = run_command([ $other->installed_command('psql'), '-XAtq', '-d', $other->connstr('postgres'), '-f', "$directory/all.sql" ]);
is($error =~ s/^.*role "\w+" already exists\n?//mr, '', 'psql into another server');
check_copy('other server', $other, 'shop');

# A lease that is open when it is dumped is closed, at its end, where it is restored.
my $rows = <<SQL;
SELECT string_agg(concat_ws(',', node_number, greatest(ended_until, leased_until)), ';' ORDER BY node_number) FROM snowflake.node_number;
SELECT count(*), md5(string_agg(concat_ws(',', token, start, granted_by, kind, host_name, port, role, system_identifier, timeline, incarnation,
	generation, fixed, node_number, layout, launched_at, starts_at, leased_until), ';' ORDER BY token)) FROM ${\ LEASES} AS w
SQL
is(newest_row($other, "count(*) OVER (), node_number = $number"), '2|f', 'other server: a number of its own, at once');
is($other->safe_psql('postgres', "SELECT node_number = $number, ended_until > now() + '50 min' FROM snowflake.node_number WHERE token IS NULL"), 't|t',
	'other server: the restored number is nobody\'s until its end');
foreach my $i (1 .. 3)
{
	$other->safe_psql('postgres', 'SELECT snowflake_release()');
	isnt(id_node((issue_ids($other, 1))[0]), $number, "other server: so is number $i after it");
}

#
# The tables themselves
#
my $kept;
poll('pg_dump of the tables, without a renewal meanwhile', sub {
		$kept = $node->safe_psql('postgres', $rows);
		$node->run_log([ 'pg_dump', '-f', "$directory/postgres.sql", '-d', $node->connstr('postgres') ]) or die 'pg_dump failed';
		$node->safe_psql('postgres', $rows) eq $kept });
my %restored;
foreach my $role ('origin', 'replica')
{
	my $server = $restored{$role} = new_node($role, preload => 0);
	local $ENV{PGOPTIONS} = "-c session_replication_role=$role";

	$server->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $server->connstr('postgres'), '-f', "$directory/postgres.sql" ],
		"session_replication_role $role: restored");
	is($server->safe_psql('postgres', $rows), $kept, "session_replication_role $role: all leases are there");
	is($server->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster'), 'own', "session_replication_role $role: and what the cluster uses");
	isnt($server->safe_psql('postgres', 'SELECT incarnation FROM snowflake.registry'),
		$node->safe_psql('postgres', 'SELECT incarnation FROM snowflake.registry'),
		"session_replication_role $role: it is a registry of its own");

	# what is recorded is kept
	like(sql_notice($server, 'postgres', "INSERT INTO snowflake.cluster VALUES (true, 'another', gen_random_uuid())"),
		qr/^NOTICE:  .*table snowflake\.cluster keeps its row\nDETAIL:  It says "own", the row that is left out "another"\./,
		"session_replication_role $role: a second record is left out with a notice");
	is($server->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster'), 'own', "session_replication_role $role: the first one stays");

	foreach my $table (qw(node_number worker_node registry cluster))
	{
		foreach my $statement ($table eq 'worker_node' ? () : "DELETE FROM snowflake.$table", "TRUNCATE snowflake.$table")
		{
			my ($what) = $statement =~ /^(\w+)/;

			like(sql_error($server, $statement), qr/^ERROR:  55000: $what on table "$table" is not possible\nDETAIL:  .*\nHINT:  /,
				"session_replication_role $role: $what of $table is refused");
		}
	}
	is($server->safe_psql('postgres', 'SELECT count(*) FROM snowflake.node_number WHERE token IS NOT NULL'), 0,
		"session_replication_role $role: no lease is open");
	like(sql_error($server, "DELETE FROM snowflake.worker_node"), qr/^ERROR:  55000: the lease [-0-9a-f]+ is not over\nDETAIL:  .*\nHINT:  Delete those WHERE leased_until < now\(\)\./,
		"session_replication_role $role: a lease in the log that may still allow ids stays");
}

# An apply process sets a replication origin.
sub contents
{
	return $restored{origin}->safe_psql('postgres', 'SELECT n FROM snowflake.node_number AS n ORDER BY 1; SELECT w FROM snowflake.worker_node AS w ORDER BY 1;
		SELECT r FROM snowflake.registry AS r; SELECT c FROM snowflake.cluster AS c');
}
my $contents_before = contents();
my $apply = q{
	SET session_replication_role = replica;
	SELECT pg_replication_origin_create('apply');
	SELECT pg_replication_origin_session_setup('apply');
};
# (it has no statements, whose triggers would refuse to delete)
$restored{origin}->safe_psql('postgres', $apply . q{
	INSERT INTO snowflake.node_number (node_number, ended_until) VALUES (1000, now());
	INSERT INTO snowflake.node_number (node_number, ended_until) SELECT node_number, 'infinity' FROM snowflake.node_number;
	UPDATE snowflake.node_number SET ended_until = ended_until - interval '1 day';
	INSERT INTO snowflake.worker_node SELECT (jsonb_populate_record(w, '{"token": "00000000-0000-0000-0000-000000000001"}')).*
	FROM snowflake.worker_node AS w;
	UPDATE snowflake.worker_node SET leased_until = leased_until + '1 day';
	DELETE FROM snowflake.worker_node;
	UPDATE snowflake.registry SET generation = 7;
	UPDATE snowflake.cluster SET uses = 'another', incarnation = gen_random_uuid();
	SELECT pg_replication_origin_session_reset();
	SELECT pg_replication_origin_drop('apply')});
is(contents(), $contents_before, 'rows that an apply process inserts, updates and deletes are left out');
$restored{origin}->safe_psql('postgres', 'UPDATE snowflake.worker_node SET leased_until = leased_until + \'1 day\'');
isnt(contents(), $contents_before, 'another session can change them');
$restored{origin}->safe_psql('postgres', "DROP EXTENSION snowflake_registry; $apply CREATE EXTENSION snowflake_registry");
is($restored{origin}->safe_psql('postgres', 'SELECT server = snowflake.this_server(), counted_at IS NULL FROM snowflake.registry'), 't|t',
	'an apply process creates the extension');
$_->stop foreach values %restored;

#
# What is restored says that another registry is used: it counts, also where the tables
# were there for a while before their rows came.
#
$other->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
$other->restart;
# A restore brings the record of what the cluster uses before the rows of leases.
foreach my $sql ("INSERT INTO snowflake.cluster VALUES (true, 'own')", '')
{
	$other->safe_psql('postgres', 'DROP EXTENSION IF EXISTS snowflake_registry');
	$other->safe_psql('postgres', "BEGIN; CREATE EXTENSION snowflake_registry; $sql; COMMIT");
	$other->safe_psql('postgres', 'SELECT pg_sleep(0.5)');
	is($other->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), 0,
		'no lease is taken before ids are wanted' . ($sql && ', although the record was restored'));
}
$other->safe_psql('postgres', "INSERT INTO snowflake.cluster VALUES (true, 'another', gen_random_uuid())");
like(sql_error($other, 'SELECT snowflake_nextval()'),
	qr/^ERROR:  55000: the registry's own cluster uses another registry\nDETAIL:  .*\nHINT:  .*see "Another registry" in doc\/operations\.md/,
	'a restored cluster that used a registry issues no ids');
# its leases are over after the longest window, which is 25 s here
limit_leases($other, '15 s');
like(sql_notice($other, 'postgres', 'SELECT snowflake.take_over_lost(incarnation) FROM snowflake.cluster'), qr/^WARNING: .*must never run again/m,
	'until its own tables have taken that one over');
my $floor = $other->safe_psql('postgres', 'SELECT starts_at FROM snowflake.registry');
is($other->safe_psql('postgres', "SELECT '$floor' BETWEEN now() AND now() + interval '25 s'"), 't', 'as one that is lost');
poll('ids', sub { sql_error($other, 'SELECT snowflake_nextval()') eq '' });
is($other->safe_psql('postgres', "SELECT snowflake_timestamp(snowflake_nextval()) >= '$floor'"), 't', 'then it does, when the leases of that one are over');
$_->stop foreach $node, $other;

done_testing();
