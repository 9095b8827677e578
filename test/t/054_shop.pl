# 054_shop.pl
#	  A schema as applications have them (test/fixtures/shop.sql) is converted and reverted as a whole.
#	  The application's statements do the same in between, and pg_dump writes the same schema before and
#	  after, byte for byte, but for what "Back to a sequence" in doc/adopting.md names.  Its keys get new
#	  ids in order of age, by an ordinary role, and all foreign keys are what they were.  A dry run says what
#	  ids break later (test/fixtures/shop_breaks.sql).
#
#	  SHOP_SCALE=10000 makes 235,000 rows for that; it prints how long each key took.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeStatement;

my $node = new_node('main');
my $fixtures = "$FindBin::RealBin/../fixtures";

sub run_psql
{
	my ($database, @arguments) = @_;
	my ($out, $error) = run_command([ $node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1',
			'-d', $node->connstr($database), @arguments ]);

	die $error if $error =~ /ERROR|FATAL/;
	return $out;
}

sub create_shop
{
	my ($database, $scale, $role) = @_;

	$role //= 'NONE';
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION snowflake_tools CASCADE; GRANT CREATE ON DATABASE $database TO PUBLIC");
	run_psql($database, '-v', "scale=$scale", '-c', "SET ROLE $role", '-f', "$fixtures/shop.sql");
}

# As pg_dump writes it, without the key that differs between two dumps.
sub schema
{
	my ($database) = @_;
	my ($out) = run_command([ $node->installed_command('pg_dump'), '-s', '-d', $node->connstr($database) ]);

	return $out =~ s/^\\(?:un)?restrict .*\n//gmr;
}

# Without views, which are made again after the statements.
sub without_views
{
	my ($database, $sql) = @_;

	return run_psql($database, '-1', '-c', 'DROP VIEW shop.open_orders, shop.customer_orders', '-c',
		'DROP MATERIALIZED VIEW shop.turnover', '-c', $sql, '-f', "$fixtures/shop_views.sql");
}

sub contents
{
	my ($database) = @_;

	return $node->safe_psql($database, <<'EOS');
SELECT t.name, (xpath('/row/all/text()', query_to_xml(format(
	'SELECT count(*) || '' '' || md5(string_agg(r::text, '';'' ORDER BY r::text)) AS all FROM ONLY %s AS r', t.name), false, true, '')))[1]
FROM (SELECT oid::regclass AS name FROM pg_class WHERE relnamespace = 'shop'::regnamespace AND relkind IN ('r', 'm')) AS t
ORDER BY 1
EOS
}

#
# There and back
#
$node->safe_psql('postgres', 'CREATE ROLE shop_owner');
create_shop('plain', 20);
create_shop('trip', 20);
my $before = contents('trip');

cmp_ok(() = $before =~ /\n/g, '>', 14, 'tables with rows');
is($node->safe_psql('trip', <<'EOS'), <<'EOS' =~ s/\n\z//r, 'a dry run has every key, converted or refused');
SELECT object, kind = 'refusal' FROM snowflake_convert_schema('shop') WHERE kind IN ('statement', 'refusal') GROUP BY 1, 2 ORDER BY 1, 2;
SELECT content FROM snowflake_convert_schema('shop') WHERE kind = 'refusal' AND object = 'shop.category'
EOS
shop.address|f
shop.audit_log|f
shop.category|t
shop.credit_note|f
shop.customer|f
shop.customer_orders|f
shop.invoice|f
shop.open_orders|f
shop.order_line|f
shop.orders|f
shop.product|f
shop.region|f
shop.stock|f
shop.turnover|f
shop.visit|f
column "nr" of table shop.category is of type shop.category_nr.
Columns of type smallint, integer and bigint can be converted.
Change the type first, a domain to the type below it.
column "category_nr" of table shop.product is of type shop.category_nr.
Columns of type smallint, integer and bigint can be converted. Its column "category_nr" references the one to be converted and must follow it.
Change the type first, a domain to the type below it.
EOS
$node->safe_psql('trip', q{SELECT snowflake_convert_schema('shop', leave_out => '{shop.category}', dry_run => false)});
is(contents('trip'), $before, 'all rows are as they were');
isnt(schema('trip'), schema('plain'), 'the schema is not');

# What the application does.
my $application = <<'EOS';
BEGIN;
INSERT INTO shop.customer (tenant, email) VALUES (1, 'new@example.com');
INSERT INTO shop.vip_customer (tenant, email, recommended_by) SELECT 1, 'vip@example.com', min(id) FROM shop.customer;
INSERT INTO shop.orders (tenant, customer_id, region_id, previous_id)
SELECT tenant, id, 2, NULL FROM shop.customer WHERE email = 'new@example.com';
INSERT INTO shop.order_line SELECT max(id), 1, (SELECT min(id) FROM shop.product), 7, 1.5 FROM shop.orders;
INSERT INTO shop.invoice (order_id) SELECT max(id) FROM shop.orders;
INSERT INTO shop.credit_note (invoice_id) SELECT max(id) FROM shop.invoice;
INSERT INTO shop.visit (day, customer_id) SELECT '2025-02-03', customer_id FROM shop.orders ORDER BY id DESC LIMIT 1;
INSERT INTO shop.visit_note SELECT max(id), '2025-02-03', 'came' FROM shop.visit;
INSERT INTO shop.region (name) SELECT 'new';
INSERT INTO shop.category (name) SELECT 'new';
INSERT INTO shop.product (category_nr, name, price, created_at) SELECT max(nr), 'new', 1, '2024-05-05' FROM shop.category;
INSERT INTO shop.stock (product_id, pieces) SELECT max(id), 1 FROM shop.product;
INSERT INTO shop.address (customer_id, town) SELECT min(id), 'new town' FROM shop.customer;
UPDATE shop.orders SET state = 'paid', previous_id = (SELECT min(o.id) FROM shop.orders AS o WHERE o.tenant = 1) WHERE tenant = 1 AND id = (SELECT max(id) FROM shop.orders);
COMMIT;
REFRESH MATERIALIZED VIEW shop.turnover;
SELECT count(*) FROM shop.audit_log;
SELECT orders, total FROM shop.turnover ORDER BY 1, 2;
SELECT state, count(*) FROM shop.customer_orders GROUP BY 1 ORDER BY 1;
SELECT c.email, shop.orders_of(c.id), a.town, a.label FROM shop.customer AS c JOIN shop.address AS a ON a.customer_id = c.id ORDER BY 1, 3;
SELECT tableoid::regclass, count(*) FROM shop.visit GROUP BY 1 ORDER BY 1;
DELETE FROM shop.customer WHERE email = 'c18@example.com' AND id NOT IN (SELECT customer_id FROM shop.orders);
EOS
my $answers = run_psql('plain', '-c', $application);

like($answers, qr/^22\n.*\npaid\|\d+\n.*\nshop\.visit_2025\|\d+\n?\z/s, 'what the application prints');
is(run_psql('trip', '-c', $application), $answers, 'it prints the same with ids');
is($node->safe_psql('trip', <<'EOS'), 't', 'which all its new rows have');
SELECT bool_and(id > 1000000) FROM (SELECT max(id) AS id FROM shop.customer UNION ALL SELECT max(id) FROM shop.vip_customer
	UNION ALL SELECT max(id) FROM shop.orders UNION ALL SELECT max(id) FROM shop.invoice UNION ALL SELECT max(id) FROM shop.credit_note
	UNION ALL SELECT max(id) FROM shop.visit UNION ALL SELECT max(visit_id) FROM shop.visit_note UNION ALL SELECT max(id) FROM shop.address
	UNION ALL SELECT max(id) FROM shop.region UNION ALL SELECT max(id) FROM shop.audit_log) AS i
EOS

#
# What breaks later, one of each kind, and it breaks
#
create_shop('breaks', 20, 'shop_owner');
run_psql('breaks', '-c', 'SET ROLE shop_owner', '-f', "$fixtures/shop_breaks.sql");
is($node->safe_psql('breaks', q{SELECT object || ': ' || content FROM snowflake_convert_schema('shop') WHERE kind = 'finding'}),
	<<'EOS' =~ s/\n\z//r, 'what breaks later');
table shop.event: new ids of id go to its default partition shop.event_rest: create partitions first,
PostgreSQL refuses them once it has such rows
constraint few of table shop.address: its text limits customer_id: CHECK ((customer_id < 1000000))
index shop.product_number: its text casts id of shop.product to integer
view shop.visit_number: its text casts id of shop.visit to integer
function shop.greet(integer): its text names customer;
takes or returns integer
function shop.last_document(): its text names document_number;
uses a sequence, and ids come from none
function shop.register(text): its text names vip_customer;
has RETURNING, and names the integer shop.letter.nr
function shop.write_letter(): its text reads id of a row, and names the integer shop.letter.nr
function shop.youngest(): its text names vip_customer;
has integer variables or casts
column shop.letter.customer_id: integer with a name of columns that reference a key, without a foreign key
EOS
my ($out, $notices) = run_command([ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('breaks'), '-c', q{SELECT snowflake_convert_column('shop.product', 'id')} ]);
is($notices, "NOTICE:  index shop.product_number: its text casts id of shop.product to integer", 'of one column: a NOTICE');
$node->safe_psql('breaks', q{SELECT snowflake_convert_schema('shop', leave_out => '{shop.category}', dry_run => false)});
my %broken = (
	'a constraint' => [ '23514', q{INSERT INTO shop.customer (tenant, email) VALUES (1, 'a@b'); INSERT INTO shop.address (customer_id, town) SELECT max(id), 'x' FROM shop.customer} ],
	'a parameter' => [ '42883', q{INSERT INTO shop.customer (tenant, email) VALUES (1, 'a@b'); SELECT shop.greet(max(id)) FROM shop.customer} ],
	'a variable' => [ '22003', q{INSERT INTO shop.vip_customer (tenant, email) VALUES (1, 'a@b'); SELECT shop.youngest()} ],
	'RETURNING' => [ '22003', q{SELECT shop.register('a@b')} ],
	'an index' => [ '22003', q{INSERT INTO shop.product (name, price, created_at) VALUES ('x', 1, now())} ],
	'a trigger' => [ '22003', q{INSERT INTO shop.visit (day) VALUES ('2025-01-01')} ],
	'a sequence' => [ '55000', q{INSERT INTO shop.invoice (order_id) SELECT max(id) FROM shop.orders; SELECT shop.last_document()} ]);
like(sql_error($node, "BEGIN; $broken{$_}[1]", 'breaks'), qr/ERROR:  $broken{$_}[0]: /, "it breaks: $_") foreach sort keys %broken;

#
# What the documents name, by hand: keys and what references them stay bigint, and so do their sequences
#
is($node->safe_psql('trip', q{SELECT count(*), count(DISTINCT object), min(content) FILTER (WHERE kind = 'summary') FROM snowflake_revert_schema('shop')}), '30|10|keys to revert: 9, refused: 0',
	'a dry run of the way back');
is($node->safe_psql('trip', q{SELECT count(*) FROM snowflake_revert_schema('shop', false)}), '29', 'all back in one call');
is($node->safe_psql('trip', q{SELECT count(*) FROM snowflake_revert_schema('shop', false)}), '0', 'once is enough');
without_views('plain', <<'EOS');
ALTER TABLE shop.customer ALTER id TYPE bigint, ALTER recommended_by TYPE bigint;
ALTER TABLE shop.address ALTER id TYPE bigint, ALTER customer_id TYPE bigint;
ALTER TABLE shop.orders ALTER id TYPE bigint, ALTER customer_id TYPE bigint, ALTER previous_id TYPE bigint, ALTER region_id TYPE bigint;
ALTER TABLE shop.order_line ALTER order_id TYPE bigint;
ALTER TABLE shop.invoice ALTER order_id TYPE bigint;
ALTER TABLE shop.visit ALTER customer_id TYPE bigint;
ALTER TABLE shop.region ALTER id TYPE bigint;
ALTER SEQUENCE shop.customer_id_seq AS bigint;
ALTER SEQUENCE shop.address_id_seq AS bigint;
EOS
is(schema('trip'), schema('plain'), 'the schema is what it was, but for what the documents name');
is($node->safe_psql('trip', <<'EOS'), 't', 'the columns that shared a sequence do so again');
INSERT INTO shop.invoice (order_id) SELECT max(id) FROM shop.orders AS o WHERE NOT EXISTS (SELECT FROM shop.invoice WHERE order_id = o.id);
INSERT INTO shop.credit_note (invoice_id) SELECT max(id) FROM shop.invoice;
SELECT (SELECT max(id) FROM shop.credit_note) = (SELECT max(id) FROM shop.invoice) + 1
EOS

# tables are locked before anything is looked up
$node->safe_psql('trip', q{SELECT snowflake_convert_column('shop.stock', 'id', dry_run => false)});
my $other = $node->background_psql('trip');
$other->query_safe('BEGIN; INSERT INTO shop.stock (id, product_id, pieces) SELECT 8000000000000000000, min(id), 5 FROM shop.product');
my $waits = start_sql($node, q{SELECT snowflake_revert_schema('shop', false);}, 'trip');
poll('wait for the lock', sub {
		$node->safe_psql('trip', "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'") });
$other->query_safe('COMMIT');
$other->quit;
finish_sql($waits);
is($node->safe_psql('trip', 'INSERT INTO shop.stock (product_id, pieces) SELECT min(id), 5 FROM shop.product RETURNING id'), '8000000000000000001',
	'a value that was committed while it waited counts');

#
# New ids for existing keys
#
my $scale = $ENV{SHOP_SCALE} // 20;
my %age = (customer => 'created_at', orders => 'placed_at', product => 'created_at', visit => 'day', invoice => 'created_at',
	credit_note => 'created_at');

# All rows, with the ids that they had: {customer:COLUMN} is that of a customer.  $moved has the tables whose
# old and new ids are in a table.
sub rows_of
{
	my ($database, @moved) = @_;
	my %moved = map { $_ => 1 } @moved;
	my %columns = (
		customer => '{customer:id} tenant email {customer:recommended_by} created_at tableoid::regclass',
		address => 'id {customer:customer_id} town label', product => '{product:id} category_nr name price',
		orders => '{orders:id} tenant {customer:customer_id} region_id {orders:previous_id} state placed_at updated_at',
		order_line => '{orders:order_id} line_no {product:product_id} quantity price',
		invoice => '{invoice:id} {orders:order_id}', credit_note => '{credit_note:id} {invoice:invoice_id}',
		visit => '{visit:id} day {customer:customer_id} tableoid::regclass', visit_note => '{visit:visit_id} day note',
		stock => 'id {product:product_id} warehouse pieces', audit_log => 'id changed customer_id payload');

	return join "\n", map { my $table = $_;
		my $list = join(', ', split / /, $columns{$table}) =~ s[\{(\w+):(\w+)\}][
			$moved{$1} ? "coalesce((SELECT old_id FROM shop.${1}_id_rekeyed WHERE new_id = t.$2), t.$2)" : "t.$2"]ger;
		"$table " . $node->safe_psql($database,
			"SELECT count(*), md5(string_agg(r::text, ';' ORDER BY r::text COLLATE \"C\")) FROM (SELECT $list FROM shop.$table AS t) AS r");
	} sort keys %columns;
}

sub rekey
{
	my ($database, $table, $more) = @_;

	return $node->safe_psql($database, "SET ROLE shop_owner; SET client_min_messages = warning;
		SELECT count(statement) FROM snowflake_rekey_column('shop.$table', 'id', '$age{$table}', dry_run => false$more)");
}

create_shop('keys', $scale, 'shop_owner');
$node->safe_psql('keys', q{SET ROLE shop_owner; SELECT snowflake_convert_schema('shop', leave_out => '{shop.category}', dry_run => false)});
$node->safe_psql('keys', "INSERT INTO shop.customer (tenant, email) VALUES (1, 'issued\@example.com')");

my $keyed = schema('keys');
my $rows = rows_of('keys');

is($node->safe_psql('keys', q{SET ROLE shop_owner; SELECT count(statement) > 15 FROM snowflake_rekey_column('shop.customer', 'id', 'created_at')}), 't',
	'a dry run');
is(schema('keys') . rows_of('keys'), $keyed . $rows, 'changes nothing');
is($node->safe_psql('keys', <<'EOS'), <<'EOS' =~ s/\n\z//r, 'and says what is not carried along');
SELECT finding FROM snowflake_rekey_column('shop.customer', 'id', 'created_at') WHERE finding IS NOT NULL
EOS
trigger log_order of table shop.orders does not fire
trigger touch of table shop.orders does not fire
materialized view shop.turnover has the old ids: REFRESH MATERIALIZED VIEW shop.turnover;
column customer_id of table shop.audit_log has a name of columns that reference the key, and no foreign key
column payload of table shop.audit_log is jsonb, in which there can be ids
function shop.log_order() names customer_id: look for ids in its text
function shop.orders_of(bigint) names customer, customer_id, orders: look for ids in its text
other databases, programs, files and links are not looked at: table shop.customer_id_rekeyed has the old and the new id of each row
EOS

# one that fails at the last table
$node->safe_psql('keys', 'ALTER TABLE shop.visit_2025 ADD CONSTRAINT small CHECK (customer_id < 1000000) NOT VALID');
like(sql_error($node, q{SET ROLE shop_owner; SELECT snowflake_rekey_column('shop.customer', 'id', 'created_at', dry_run => false)}, 'keys'),
	qr/ERROR:  23514: new row for relation "visit_2025" violates check constraint "small"/, 'a check that limits the ids');
$node->safe_psql('keys', 'ALTER TABLE shop.visit_2025 DROP CONSTRAINT small');
is(schema('keys') . rows_of('keys'), $keyed . $rows, 'nothing is half done');

my @moved;
foreach my $table (qw(customer orders visit product invoice credit_note))
{
	my $started = Time::HiRes::time();

	# credit notes and invoices have one sequence, so no two of their ids are equal
	like(rekey('keys', $table, $table eq 'credit_note' ? ', part => 1, parts => 2' : $table eq 'invoice' ? ', parts => 2' : ''), qr/^\d+$/, "new ids: $table");
	diag(sprintf "%s: %.1f s", $table, Time::HiRes::time() - $started) if $ENV{SHOP_SCALE};
	push @moved, $table;
	is(rekey('keys', $table, ''), '0', '... once') if $table ne 'credit_note' && $table ne 'invoice';
}
is(rows_of('keys', @moved), $rows, 'all rows are there, and reference what they referenced');
is($node->safe_psql('keys', join ' UNION ALL ', map { my $table = $_;
	"SELECT count(*) FROM shop.$table WHERE id < 1000000" } @moved), join("\n", (0) x @moved), 'no old id is left');
foreach my $table (@moved)
{
	is($node->safe_psql('keys', "SET timezone = 'UTC'; SELECT count(*) FROM (SELECT snowflake_timestamp(id) AS at, $age{$table}::timestamptz AS age,
		lag(id) OVER (ORDER BY $age{$table}, id) AS before, id FROM shop.$table WHERE id < snowflake_min_id('2026-01-01')) AS t
		WHERE id <= before OR at <> date_trunc('milliseconds', age)" .
		($table eq 'visit' ? " AND at - age > interval '1 s'" : '')), '0', "$table: in order of age, with its time");
}
is($node->safe_psql('keys', 'SELECT count(*) FROM shop.invoice JOIN shop.credit_note USING (id)'), '0', 'parts have no id in common');
is($node->safe_psql('keys', "SELECT string_agg(DISTINCT finding, ',') FROM snowflake_audit('shop.customer', 'id', NULL)"), 'leases not checked,reserved number', 'audit finds no other');
$node->safe_psql('keys', 'DROP TABLE ' . join ', ', map { "shop.${_}_id_rekeyed" } @moved);
is(schema('keys'), $keyed, 'the schema is what it was: foreign keys, comments, triggers');

# the application goes on
like(sql_error($node, 'INSERT INTO shop.address (customer_id, town) VALUES (5, NULL)', 'keys'), qr/23502/, 'a check of the application');
like(sql_error($node, "INSERT INTO shop.address (customer_id, town) VALUES (5, 'lost')", 'keys'), qr/23503/, 'an old id has no row');
like(sql_error($node, "INSERT INTO shop.orders (tenant, customer_id) SELECT tenant + 1, id FROM shop.customer LIMIT 1", 'keys'), qr/23503/, 'nor has half a key');
is($node->safe_psql('keys', <<'EOS'), '1', 'a deferred key still waits for the commit');
BEGIN;
INSERT INTO shop.invoice (order_id) VALUES (5);
DELETE FROM shop.invoice WHERE order_id = 5;
UPDATE shop.orders SET state = 'sent' WHERE id = (SELECT min(id) FROM shop.orders);
SELECT count(*) FROM shop.orders WHERE updated_at = now();
COMMIT;
EOS
run_psql('keys', '-c', $application);
is($node->safe_psql('keys', q{SET ROLE shop_owner; SELECT count(*) FROM snowflake_revert_schema('shop', false)}), '29', 'and back to sequences');

done_testing();
