# 051_shop.pl
#	  A schema as applications have them (test/fixtures/shop.sql) is converted and reverted as a whole.
#	  The application's statements do the same in between, and pg_dump writes the same schema before and
#	  after, byte for byte, but for what "Back to a sequence" in doc/adopting.md names.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;

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
	my ($database, $scale) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	run_psql($database, '-v', "scale=$scale", '-f', "$fixtures/shop.sql");
	$node->safe_psql($database, 'CREATE EXTENSION snowflake');
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
create_shop('plain', 20);
create_shop('trip', 20);
my $before = contents('trip');

cmp_ok(() = $before =~ /\n/g, '>', 14, 'tables with rows');
is($node->safe_psql('trip', <<'EOS'), <<'EOS' =~ s/\n\z//r, 'a dry run has every key, converted or refused');
SELECT "table", refusal IS NOT NULL FROM snowflake_convert_schema('shop') GROUP BY 1, 2 ORDER BY 1, 2;
SELECT refusal FROM snowflake_convert_schema('shop') WHERE "table" = 'shop.category'
EOS
shop.address|f
shop.audit_log|f
shop.category|t
shop.credit_note|f
shop.customer|t
shop.invoice|f
shop.orders|f
shop.orders|t
shop.product|f
shop.region|f
shop.stock|f
shop.visit|f
column "nr" of table shop.category is of type shop.category_nr. Columns of type smallint, integer and bigint can be converted. Change the type first, a domain to the type below it.
EOS
without_views('trip', q{SELECT snowflake_convert_schema('shop', leave_out => '{shop.category}', dry_run => false)});
is(contents('trip'), $before, 'all rows are as they were');
isnt(schema('trip'), schema('plain'), 'the schema is not');

# What the application does.
my $application = <<'EOS';
BEGIN;
INSERT INTO shop.customer (tenant, email) VALUES (1, 'new@example.com');
INSERT INTO shop.vip_customer (tenant, email, recommended_by) SELECT 1, 'vip@example.com', 4;
INSERT INTO shop.orders (tenant, customer_id, region_id, previous_id)
SELECT tenant, id, 2, NULL FROM shop.customer WHERE email = 'new@example.com';
INSERT INTO shop.order_line SELECT max(id), 1, 3, 7, 1.5 FROM shop.orders;
INSERT INTO shop.invoice (order_id) SELECT max(id) FROM shop.orders;
INSERT INTO shop.credit_note (invoice_id) SELECT max(id) FROM shop.invoice;
INSERT INTO shop.visit (day, customer_id) SELECT '2025-02-03', customer_id FROM shop.orders ORDER BY id DESC LIMIT 1;
INSERT INTO shop.visit_note SELECT max(id), '2025-02-03', 'came' FROM shop.visit;
INSERT INTO shop.region (name) SELECT 'new';
INSERT INTO shop.category (name) SELECT 'new';
INSERT INTO shop.product (category_nr, name, price, created_at) SELECT max(nr), 'new', 1, '2024-05-05' FROM shop.category;
INSERT INTO shop.stock (product_id, pieces) SELECT max(id), 1 FROM shop.product;
INSERT INTO shop.address (customer_id, town) SELECT 2, 'new town';
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
# What the documents name, by hand: keys and what references them stay bigint, and so do their sequences;
# an identity becomes a sequence
#
my %start = map { $_ => $node->safe_psql('trip', "SELECT max(id) + 1 FROM shop.$_") } qw(region orders visit);
is($node->safe_psql('trip', q{SELECT count(*), count(DISTINCT "table"), count(refusal) FROM snowflake_revert_schema('shop')}), '22|9|0',
	'a dry run of the way back');
is($node->safe_psql('trip', q{SELECT count(*) FROM snowflake_revert_schema('shop', false)}), '22', 'all back in one call');
is($node->safe_psql('trip', q{SELECT count(*) FROM snowflake_revert_schema('shop', false)}), '0', 'once is enough');
without_views('plain', <<'EOS' . join('', map { <<"EOF" } sort keys %start));
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
ALTER TABLE shop.$_ ALTER id DROP IDENTITY;
CREATE SEQUENCE shop.${_}_id_seq START WITH $start{$_} OWNED BY shop.$_.id;
ALTER TABLE shop.$_ ALTER id SET DEFAULT nextval('shop.${_}_id_seq');
EOF
is(schema('trip'), schema('plain'), 'the schema is what it was, but for what the documents name');
is($node->safe_psql('trip', <<'EOS'), 't', 'the columns that shared a sequence do so again');
INSERT INTO shop.invoice (order_id) SELECT max(id) FROM shop.orders AS o WHERE NOT EXISTS (SELECT FROM shop.invoice WHERE order_id = o.id);
INSERT INTO shop.credit_note (invoice_id) SELECT max(id) FROM shop.invoice;
SELECT (SELECT max(id) FROM shop.credit_note) = (SELECT max(id) FROM shop.invoice) + 1
EOS

done_testing();
