# 034_registry_results.pl
#	  A registry whose calls have odd results: its functions were changed and grant a
#	  number that was not asked for, nothing, or return no row or two; a row that was
#	  not replicated, because somebody cancelled the wait; a connection string without
#	  bounds.  A number that comes that way is not used, the error says what is
#	  wrong, and ids go on when the registry does.  Warnings of others at COMMIT, as of
#	  pgaudit, fail no call.
#
# Needs pgaudit for some of it (Debian's package), which is skipped without it.
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
	my ($name, $returns, $body, $server) = @_;

	($server // $registry)->safe_psql('postgres', <<EOF);
BEGIN;
ALTER FUNCTION snowflake.$name RENAME TO ${name}_itself;
CREATE FUNCTION snowflake.$name(p_call jsonb) RETURNS $returns LANGUAGE plpgsql
AS \$\$ BEGIN $body END \$\$;
COMMIT;
EOF
}

sub restore_function
{
	my ($name, $server) = @_;

	($server // $registry)->safe_psql('postgres', "DROP FUNCTION snowflake.$name;
		ALTER FUNCTION snowflake.${name}_itself RENAME TO $name");
}

check_goes_on('at first');

#
# Grants that are none
#
my $granted = q{jsonb_build_object('protocol', 1, 'answer', 'yes', 'incarnation', (SELECT r.incarnation FROM snowflake.registry AS r),
	'generation', 1, 'clock', p_call -> 'clock', 'token', gen_random_uuid(), 'node_number', p_call -> 'first_number',
	'starts_at', p_call -> 'clock', 'leased_until', (p_call ->> 'clock')::bigint + (p_call ->> 'window')::bigint)};
my $refused = sub { return "RETURN $granted || '{\"answer\": \"refused\"}' || '$_[0]';" };
my $not_valid = 'the answer of the registry is not valid\nDETAIL:  It has ';
my $not_asked_for = 'the registry granted a lease that was not asked for\nDETAIL:  %s\nHINT:  See which server answers there, and whether somebody has changed the functions in its schema snowflake\.\n';
my $wrong_number = sprintf $not_asked_for, 'It granted node number \d+; asked for was one from 0 to \d+\.';
my $wrong_end = sprintf $not_asked_for, 'The lease starts at \S+ \S+ and ends at \S+ \S+\.';
foreach my $case (
	[ 'another number', 'jsonb', "RETURN $granted || jsonb_build_object('node_number', (p_call ->> 'last_number')::bigint + 1);", $wrong_number ],
	[ 'a negative number', 'jsonb', "RETURN $granted || '{\"node_number\": -1}';", "$not_valid\"-1\" for node_number\\." ],
	[ 'a number after a blank', 'jsonb', "RETURN $granted || '{\"node_number\": \" 5\"}';", "$not_valid\" 5\" for node_number\\." ],
	[ 'a number and more', 'jsonb', "RETURN $granted || '{\"node_number\": \"5-3\"}';", "$not_valid\"5-3\" for node_number\\." ],
	[ 'an empty number', 'jsonb', "RETURN $granted || '{\"node_number\": \"\"}';", "$not_valid\"\" for node_number\\." ],
	[ 'a number of 65 bits', 'jsonb', "RETURN $granted || '{\"node_number\": 18446744073709551621}';", "$not_valid\"18446744073709551621\" for node_number\\." ],
	[ 'no number', 'jsonb', "RETURN $granted - 'node_number';", "${not_valid}NULL for node_number\\." ],
	[ 'no end', 'jsonb', "RETURN $granted || '{\"leased_until\": null}';", "${not_valid}NULL for leased_until\\." ],
	[ 'an end before the start', 'jsonb', "RETURN $granted || jsonb_build_object('leased_until', (p_call ->> 'clock')::bigint - 1);", $wrong_end ],
	[ 'no object', 'jsonb', "RETURN '[1]';", "${not_valid}NULL for incarnation\\." ],
	[ 'null', 'jsonb', 'RETURN NULL;', "${not_valid}NULL for incarnation\\." ],
	[ 'no answer', 'jsonb', "RETURN $granted - 'answer';", "${not_valid}NULL for answer\\." ],
	[ 'a no', 'jsonb', "RETURN $granted || '{\"answer\": \"no\", \"reason\": \"closed\"}';", "$not_valid\"no\" for answer\\." ],
	[ 'no answer that is known', 'jsonb', "RETURN $granted || '{\"answer\": \"perhaps\"}';", "$not_valid\"perhaps\" for answer\\." ],
	[ 'refused without a reason', 'jsonb', $refused->('{"sqlstate": "55000", "wait": 0}'), "${not_valid}NULL for message\\." ],
	[ 'refused without an SQLSTATE', 'jsonb', $refused->('{"message": "m", "wait": 0}'), "${not_valid}NULL for sqlstate\\." ],
	[ 'refused with that of success', 'jsonb', $refused->('{"sqlstate": "00000", "message": "m", "wait": 0}'), "$not_valid\"00000\" for sqlstate\\." ],
	[ 'refused for too long', 'jsonb', $refused->('{"sqlstate": "55000", "message": "m", "wait": 10000001}'), "$not_valid\"10000001\" for wait\\." ],
	[ 'no row', 'SETOF jsonb', 'RETURN;', "${not_valid}NULL for incarnation\\." ],
	[ 'two rows', 'SETOF jsonb', "RETURN NEXT $granted; RETURN NEXT $granted;", "${not_valid}NULL for incarnation\\." ])
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

# From then on a deferred trigger warns when a call is committed.
sub add_warning
{
	$registry->safe_psql('postgres', <<'SQL');
CREATE FUNCTION public.warn() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE WARNING 'somebody warns'; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER warn AFTER INSERT OR UPDATE ON snowflake.node_number
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.warn();
SQL
}

# A lease is granted and renewed although the server warns.
sub check_warned
{
	my ($label, $server, $node, $warning) = @_;
	my $offset = log_end($server);
	my $own_offset = log_end($node);

	$node->safe_psql('postgres', 'SELECT snowflake_release()');
	poll("$label: an id", sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
	my $end = stat_of($node, 'leased_until');
	poll("$label: a renewal", sub { issue_ids($node, 1); stat_of($node, "leased_until > '$end'") eq 't' });
	like(log_since($server, $offset), $warning, "$label: the server has warned");
	unlike(log_since($node, $own_offset), qr/was not replicated/, "$label: no call has failed because of that");
}

# In the own tables it is as over libpq.  A trigger that writes an audit warns when the helper's CREATE EXTENSION is
# committed; none can when it commits a call.
my $own = new_node('own');
$own->safe_psql('postgres', <<'SQL');
CREATE FUNCTION public.warn() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE WARNING 'somebody warns'; RETURN NULL; END $$;
CREATE TABLE public.audit (tag text);
CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON public.audit
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.warn();
CREATE FUNCTION public.write_audit() RETURNS event_trigger LANGUAGE plpgsql
AS $$ BEGIN INSERT INTO public.audit VALUES (tg_tag); END $$;
CREATE EVENT TRIGGER audit ON ddl_command_end WHEN TAG IN ('CREATE EXTENSION') EXECUTE FUNCTION public.write_audit();
SQL
issue_ids($own, 1);
like(slurp_file($own->logfile), qr/WARNING:  01000: somebody warns\n.*LOG:  00000: snowflake: created the extension snowflake_registry in /s,
	'own tables, a warning at commit: the call went on');
foreach my $case ([ 'no row', 'RETURN;' ], [ 'two rows', "RETURN NEXT $granted; RETURN NEXT $granted;" ])
{
	my ($label, $body) = @$case;

	replace_function('acquire_own_lease', 'SETOF jsonb', $body, $own);
	$own->safe_psql('postgres', 'SELECT snowflake_release()');
	poll("own tables, $label: the reason", sub {
			sql_error($own, "SET snowflake.max_wait = '100ms'; SELECT snowflake_nextval()") =~ /^ERROR:  55P03: ${not_valid}NULL for incarnation\./ });
	is(stat_of($own, 'node_number'), '', "own tables, $label: no number is used");
	restore_function('acquire_own_lease', $own);
	poll("own tables, $label: ids", sub { sql_error($own, 'SELECT snowflake_nextval()') eq '' });
}

# After a no the number is not used any more; after something that is no answer the lease goes on.
my $number = stat_of($node, 'node_number');
my $switches = stat_of($node, 'worker_switches');
replace_function('renew_lease', 'jsonb', "RETURN $granted || '{\"answer\": \"no\", \"reason\": \"closed\"}';");
poll('another number', sub { stat_of($node, 'worker_switches') > $switches });
restore_function('renew_lease');
check_goes_on('a renewal that is refused');
isnt(stat_of($node, 'node_number'), $number, 'a renewal that is refused: the number is not used any more');
$number = stat_of($node, 'node_number');
foreach my $case ([ 'nothing', 'NULL' ], [ 'no incarnation', "$granted - 'incarnation'" ], [ 'no answer that is known', "$granted || '{\"answer\": \"perhaps\"}'" ],
	[ 'no end', "$granted - 'leased_until'" ], [ 'no time', "$granted || '{\"leased_until\": \"infinity\"}'" ])
{
	my ($label, $answer) = @$case;
	my $failures = stat_of($node, 'lease_failures');

	replace_function('renew_lease', 'jsonb', "RETURN $answer;");
	poll('a failure', sub { stat_of($node, 'lease_failures') > $failures });
	like(stat_of($node, 'detail'), qr/^the answer of the registry is not valid/, "a renewal that returns $label: the view says it");
	restore_function('renew_lease');
	check_goes_on("a renewal that returns $label");
	is(stat_of($node, 'node_number'), $number, "a renewal that returns $label: the lease goes on");
}

#
# A lease that is not replicated is none, although its row is there.
#
$node->safe_psql('postgres', 'SELECT snowflake_release()');
# what others warn of does not hide the warning
add_warning();
set_and_reload($registry, synchronous_standby_names => 'nobody');
my $waiting = "FROM pg_stat_activity WHERE application_name = 'snowflake lease worker' AND wait_event = 'SyncRep'";
foreach my $i (1, 2)
{
	# A number is asked for when one is needed.
	poll("call $i that waits for the standby", sub {
			sql_error($node, "SET snowflake.max_wait = '10ms'; SELECT snowflake_nextval()");
			$registry->safe_psql('postgres', "SELECT count(*) $waiting") });
	# again, since a node gives a call up after 5 s, and its session goes on to wait
	poll("cancelled wait $i: the error says why there is no number", sub {
			$registry->safe_psql('postgres', "SELECT pg_cancel_backend(pid) $waiting");
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
# Warnings of others at COMMIT
#
check_warned('a warning at commit', $registry, $node, qr/WARNING:  01000: somebody warns/);
SKIP:
{
	skip 'pgaudit is not installed', 4 unless $registry->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'pgaudit'") eq '1';

	# so it sends its lines to clients, as warnings
	my $audit = "pgaudit.log = 'all'\npgaudit.log_client = on\npgaudit.log_level = warning\n";
	foreach my $case ([ $registry, 'pgaudit' ], [ $own, 'snowflake, pgaudit' ])
	{
		my ($server, $libraries) = @$case;

		set_conf($server, shared_preload_libraries => $libraries);
		$server->append_conf('postgresql.conf', $audit);
		$server->restart;
	}
	check_warned('pgaudit', $registry, $node, qr/WARNING:  \w{5}: AUDIT: SESSION,\d+,\d+,MISC,COMMIT,/);
	check_warned('own tables, pgaudit', $own, $own, qr/WARNING:  \w{5}: AUDIT: SESSION,.*acquire_own_lease/);
}
$own->stop;

#
# What is too long for shared memory is not cut.
#
like(sql_error($node, "ALTER SYSTEM SET snowflake.registry = 'host=" . 'x' x 2000 . "'"),
	qr/^ERROR:  22023: snowflake\.registry must be shorter than \d+ bytes\nHINT:  Put its options into a service file/m,
	'a registry of 2000 characters is refused');

$node->stop;
$registry->stop;

done_testing();
