# 034_registry_results.pl
#	  A registry whose calls have odd results: its functions were changed and grant a
#	  number that was not asked for, nothing, or return no row or two; a row that was
#	  not replicated, because somebody cancelled the wait; a connection string without
#	  bounds.  A number that comes that way is not used, the error says what is
#	  wrong, and ids go on when the registry does.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;

# Without senders nothing waits for a standby.
my $registry = new_registry('registry', init => [ allows_streaming => 1 ]);
my $conninfo = conninfo_of($registry);
my $node = new_member('node', $conninfo);
my $address = qr/\S+:\d+\/postgres/;
my $greatest = 0;

sub check_goes_on
{
	my ($label) = @_;

	poll("$label: ids", sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
	my $id = (issue_ids($node, 1))[0];
	cmp_ok($id, '>', $greatest, "$label: ids go on after all earlier ones");
	is(id_node($id), registry_row($registry, $node, 'node_number'), "$label: with the number of the newest row");
	$greatest = $id;
}

# Puts another function in place of one of the protocol; the body is plpgsql.
sub replace_function
{
	my ($name, $returns, $body) = @_;
	my $arguments = $registry->safe_psql('postgres',
		"SELECT pg_get_function_arguments('snowflake.$name'::regproc)");

	$registry->safe_psql('postgres', <<EOF);
BEGIN;
ALTER FUNCTION snowflake.$name RENAME TO ${name}_itself;
CREATE FUNCTION snowflake.$name($arguments) $returns LANGUAGE plpgsql
AS \$\$ #variable_conflict use_variable
BEGIN $body END \$\$;
COMMIT;
EOF
}

sub restore_function
{
	my ($name) = @_;

	$registry->safe_psql('postgres', "DROP FUNCTION snowflake.$name;
		ALTER FUNCTION snowflake.${name}_itself RENAME TO $name");
}

check_goes_on('at first');

#
# Grants that are none
#
my $granted = 'token := gen_random_uuid(); registry_incarnation := (SELECT r.incarnation FROM snowflake.registry AS r);
	node_number := first_number; starts_at := node_clock; leased_until := node_clock + lease_window; registry_clock := node_clock;';
my $null = qr/snowflake\.acquire_lease\(\) returned NULL/;
foreach my $case (
	[ 'another number', '', "$granted node_number := last_number + 1;",
		qr/the registry granted a lease that was not asked for\nDETAIL:  It granted node number (\d+); asked for was one from 0 to \d+\.\nHINT:  See whether somebody has changed the functions/ ],
	[ 'a negative number', '', "$granted node_number := -1;", qr/the answer of the registry is not valid\nDETAIL:  It has "-1" for node_number\./ ],
	[ 'no number', '', "$granted node_number := NULL;", $null ],
	[ 'no end', '', "$granted leased_until := NULL;", $null ],
	[ 'an end before the start', '', "$granted leased_until := node_clock - '1 s'::interval;", qr/the registry granted a lease that was not asked for/ ],
	[ 'no row', 'RETURNS SETOF record', 'RETURN;', $null ],
	[ 'two rows', 'RETURNS SETOF record', "$granted RETURN NEXT; RETURN NEXT;", $null ])
{
	my ($label, $returns, $body, $error) = @$case;

	replace_function('acquire_lease', $returns, $body);
	$node->safe_psql('postgres', 'SELECT snowflake_release()');
	my $text = poll("$label: the reason", sub {
			my $detail = sql_error($node, "SET snowflake.max_wait = '100ms'; SELECT snowflake_nextval()");
			$detail =~ $error ? $detail : '' });
	like($text, qr/^ERROR:  55(?:000|P03): /, "$label: the error says it");
	is(stat_of($node, 'node_number'), '', "$label: no number is used");
	restore_function('acquire_lease');
	check_goes_on("acquire_lease as before ($label)");
}

# A renewal that returns nothing is one of a lease that is not open any more.
my $number = stat_of($node, 'node_number');
my $switches = stat_of($node, 'worker_switches');
replace_function('renew_lease', 'RETURNS timestamptz', 'RETURN NULL;');
poll('another number', sub { stat_of($node, 'worker_switches') > $switches });
restore_function('renew_lease');
check_goes_on('a renewal without an end');
isnt(stat_of($node, 'node_number'), $number, 'a renewal without an end: the number is not used any more');

#
# A lease that is not replicated is none, although its row is there.
#
$node->safe_psql('postgres', 'SELECT snowflake_release()');
set_and_reload($registry, synchronous_standby_names => 'nobody');
my $waiting = "SELECT pid FROM pg_stat_activity WHERE application_name = 'snowflake lease worker' AND wait_event = 'SyncRep'";
foreach my $i (1, 2)
{
	# A number is asked for when one is needed.
	my $pid = poll("call $i that waits for the standby", sub {
			sql_error($node, "SET snowflake.max_wait = '10ms'; SELECT snowflake_nextval()");
			$registry->safe_psql('postgres', "$waiting LIMIT 1") });

	$registry->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	poll("cancelled wait $i: the error says why there is no number", sub {
			sql_error($node, "SET snowflake.max_wait = '100ms'; SELECT snowflake_nextval()")
			  =~ /^ERROR:  55P03: .*a lease was not replicated to a synchronous standby of the registry/s });
	is(stat_of($node, 'node_number'), '', "cancelled wait $i: there is none");
}
isnt(registry_row($registry, $node, 'closed_at IS NULL'), 'f', 'cancelled wait: its row is there');
set_and_reload($registry, synchronous_standby_names => '');
check_goes_on('no standby needed');
my $port = $node->port;
is($registry->safe_psql('postgres', "SELECT count(*) FROM snowflake.worker_node WHERE port = $port AND closed_at IS NULL"),
	1, 'cancelled wait: what was not used is not left open');

#
# What is too long for shared memory is not cut.
#
like(sql_error($node, "ALTER SYSTEM SET snowflake.registry = 'host=" . 'x' x 2000 . "'"),
	qr/^ERROR:  22023: snowflake\.registry must be shorter than \d+ bytes\nHINT:  Put its options into a service file/m,
	'a registry of 2000 characters is refused');

$node->stop;
$registry->stop;

done_testing();
