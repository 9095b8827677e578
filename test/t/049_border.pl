# 049_border.pl
#	  The border between a node and its registry, as it was attacked: the owner of a
#	  database renames schema public, plants functions and operators, and drops the schema; a role with the lease
#	  functions only says that it is the registry's own server, sends times far off, changes the layout, renews
#	  what is another's, and takes all numbers, until the owner ends that; servers have other settings of dates when nodes move; a registry has 30,000 numbers when it
#	  is closed; nodes move at different times; a registry takes its own numbers from another one, or from its own
#	  node; the clock of a registry was ahead when it was promoted.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;
use JSON::PP ();
use Time::HiRes qw(time);

sub error_of
{
	my ($node, $pattern) = @_;
	my $error;

	poll("$pattern", sub { ($error = sql_error($node, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()")) =~ $pattern });
	return $error;
}

sub settle_ids
{
	my ($node, $label) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(settle('', sub { sql_error($node, 'SELECT snowflake_nextval()') }), '', "$label: ids are issued");
}

# Until there is a renewal, also of a lease that is renewed while ids are issued only.
sub wait_for_renewal
{
	my ($node, $registry) = @_;
	my $until = registry_row($registry, $node, 'leased_until');

	poll('a renewal', sub { issue_ids($node, 1); registry_row($registry, $node, 'leased_until') ne $until });
}

#
# The owner of the database wants to be a superuser: in the registry, and in a server with own tables.
#
my $registry = new_registry('registry');
my $node = new_member('node', conninfo_of($registry));
my $own = auto_node('own');

$own->safe_psql('postgres', 'CREATE EXTENSION snowflake');
issue_ids($_, 10) foreach $node, $own;
# Functions and operators of pg_catalog that those of the registry use, with the same or better fitting arguments
my $plants = <<'SQL';
CREATE TABLE public.found (who name, what text);
GRANT ALL ON public.found TO PUBLIC;
GRANT USAGE ON SCHEMA public TO PUBLIC;
CREATE FUNCTION public.snowflake_layout(layout text, OUT name text, OUT definition text, OUT bits integer, OUT tick interval,
	OUT epoch timestamptz, OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.found VALUES (current_user, 'snowflake_layout'); END $$;
CREATE FUNCTION public.jsonb_typeof(jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.found VALUES (current_user, 'jsonb_typeof'); RETURN pg_catalog.jsonb_typeof($1); END $$;
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.found VALUES (current_user, 'clock_timestamp'); RETURN pg_catalog.clock_timestamp(); END $$;
CREATE FUNCTION public.pg_walfile_name(pg_lsn) RETURNS text LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.found VALUES (current_user, 'pg_walfile_name'); RETURN pg_catalog.pg_walfile_name($1); END $$;
CREATE FUNCTION public.get_text(jsonb, text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.found VALUES (current_user, '->>'); RETURN $1 OPERATOR(pg_catalog.->>) $2; END $$;
CREATE OPERATOR public.->> (FUNCTION = public.get_text, LEFTARG = jsonb, RIGHTARG = text);
CREATE FUNCTION public.same_uuid(uuid, uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.found VALUES (current_user, '='); RETURN $1 OPERATOR(pg_catalog.=) $2; END $$;
CREATE OPERATOR public.= (FUNCTION = public.same_uuid, LEFTARG = uuid, RIGHTARG = uuid);
CREATE SCHEMA snowflake_functions;
CREATE FUNCTION snowflake_functions.acquire_lease(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.found VALUES (current_user, 'acquire_lease'); RETURN NULL; END $$;
ALTER DATABASE postgres SET search_path = public, snowflake_functions, pg_catalog;
SQL
foreach my $case ([ $registry, $node, 'a registry' ], [ $own, $own, 'own tables' ])
{
	my ($tables, $issuer, $label) = @$case;
	my $as_boss = sub { $tables->safe_psql('postgres', $_[0], extra_params => [ '-U', 'boss' ]) };

	$tables->safe_psql('postgres', 'CREATE ROLE boss LOGIN; ALTER DATABASE postgres OWNER TO boss');
	$as_boss->("ALTER SCHEMA public RENAME TO former; CREATE SCHEMA public; $plants");
	if ($tables == $own)
	{
		# the schema of its functions is another one now
		$own->safe_psql('postgres', 'SELECT former.snowflake_release(); SELECT former.snowflake_nextval()');
		my $end = $own->safe_psql('postgres', 'SELECT max(leased_until) FROM snowflake.node_number');
		poll('a renewal', sub { $own->safe_psql('postgres', 'SELECT former.snowflake_nextval()');
				$own->safe_psql('postgres', 'SELECT max(leased_until) FROM snowflake.node_number') ne $end });
	}
	else
	{
		wait_for_renewal($node, $registry);
		$node->safe_psql('postgres', 'SELECT snowflake_release()');
		issue_ids($node, 10);
		is(stat_of($node, 'state'), 'ready', "$label, schema public was renamed: leases are renewed, and granted");
	}
	# a session of his, whose search path the functions do not follow
	$tables->safe_psql('postgres', 'GRANT USAGE ON SCHEMA snowflake TO boss; GRANT EXECUTE ON FUNCTION snowflake.release_lease TO boss');
	$as_boss->(q(SET search_path = public, pg_catalog; SELECT snowflake.release_lease('{"protocol": 1, "start": "00000000-0000-4000-8000-000000000009",
		"call": 2, "layout": "any", "lease": {"token": "00000000-0000-4000-8000-000000000009", "node_number": 8, "granted_by": 1,
		"incarnation": "00000000-0000-4000-8000-000000000009", "generation": 1, "leased_until": 1700000000000000, "ids_end_at": 1700000000000000}}')));
	# that they would be called
	$tables->safe_psql('postgres', q(SELECT '{"a": "b"}'::jsonb ->> 'a'));
	is($tables->safe_psql('postgres', 'SELECT DISTINCT what FROM found'), '->>', "$label: no plant was called but by a session");
	foreach my $sql ('ALTER SCHEMA snowflake RENAME TO elsewhere', 'CREATE FUNCTION snowflake.microseconds(timestamptz, integer) RETURNS bigint LANGUAGE sql RETURN 1',
		'DROP SCHEMA snowflake CASCADE', 'DROP EXTENSION snowflake_registry', 'DELETE FROM snowflake.registry', 'UPDATE snowflake.node_number SET ended_until = now()',
		'CREATE TRIGGER t AFTER INSERT ON snowflake.node_number EXECUTE FUNCTION public.f()')
	{
		my ($status, $out, $error) = $tables->psql('postgres', $sql, extra_params => [ '-U', 'boss', '-v', 'VERBOSITY=verbose' ]);

		like($error, qr/ERROR:  (?:42501|2BP01): /, "$label: the database's owner may not $sql");
	}
	is($tables->safe_psql('postgres', "SELECT rolsuper FROM pg_roles WHERE rolname = 'boss'"), 'f', "$label: he is no superuser");
	$as_boss->('DROP SCHEMA public, snowflake_functions CASCADE; ALTER SCHEMA former RENAME TO public; ALTER DATABASE postgres RESET search_path');

	# a usual script to start over
	my $rows = $tables->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node');
	$tables->safe_psql('postgres', 'DROP SCHEMA public CASCADE; CREATE SCHEMA public');
	is($tables->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), $rows, "$label, schema public was dropped: the leases are on record");
	$tables->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	wait_for_renewal($issuer, $tables);
	pass("$label, schema public was dropped: leases are renewed");
}
$own->stop;

#
# A role with the lease functions only
#
$registry->safe_psql('postgres', 'CREATE ROLE liar LOGIN; GRANT USAGE ON SCHEMA snowflake TO liar;
	GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease TO liar');
my $json = JSON::PP->new->canonical;
my $calls = 0;

sub year
{
	my ($year) = @_;

	return 0 + $registry->safe_psql('postgres', "SELECT extract(epoch FROM '$year-01-01'::timestamptz)::bigint * 1000000");
}

sub us_from_now
{
	return int((time + $_[0]) * 1_000_000);
}

# The call of a start, with these keys.
sub lying_call
{
	my (%keys) = @_;

	return $json->encode({ protocol => 1, kind => 'server', system_identifier => 1, host_name => 'liar', port => 1, timeline => 1,
			start => '00000000-0000-4000-8000-000000000001', call => ++$calls, layout => registry_row($registry, $node, 'layout'),
			clock => us_from_now(0), launched_at => 0, max_ahead => 1_000_000, window => 3_000_000,
			first_number => 0, last_number => 1022, fixed => JSON::PP::false, lease => undef, %keys });
}

# The answer, "SQLSTATE: message" if it is refused, or the error.
sub lie
{
	my ($function, %keys) = @_;
	my $call = lying_call(%keys) =~ s/'/''/gr;
	my ($status, $out, $error) = $registry->psql('postgres', "SELECT concat_ws(': ', coalesce(a ->> 'sqlstate', a ->> 'answer'), coalesce(a ->> 'message', a ->> 'reason'))
		FROM snowflake.$function('$call') AS a", extra_params => [ '-U', 'liar', '-v', 'VERBOSITY=verbose' ]);

	return $status == 0 ? $out : $error =~ s/^psql:<stdin>:\d+: //mgr;
}

my $victim = $json->decode(registry_row($registry, $node,
		q(jsonb_build_object('node_number', node_number, 'system_identifier', system_identifier, 'host_name', host_name, 'port', port, 'token', token))));
my @as_victim = map { ($_ => $victim->{$_}) } qw(system_identifier host_name port);
my $state = 'SELECT generation, counted, counted_at, starts_at, end_limit, incarnation FROM snowflake.registry; SELECT * FROM snowflake.cluster; SELECT guard FROM snowflake.guard';
my $before = $registry->safe_psql('postgres', $state);
my $incarnation = incarnation_of($registry);
my @own_server = (own => JSON::PP::true, uses => undef, timelines => ['9/9/9'], generation => 9, counted => ['9/9/9']);
# a lease that there never was, or the node's without its token
my %lease = (token => '00000000-0000-4000-8000-000000000003', node_number => 8, granted_by => 1, incarnation => '00000000-0000-4000-8000-000000000002',
	generation => 9, leased_until => year(2079));
my %of_victim = (%lease, node_number => $victim->{node_number}, incarnation => $incarnation, generation => 1);
my $far = qr/^55000: the node's clock is behind ids that the registry does not know of$/;

is(lie('acquire_lease', @own_server, @as_victim), 'yes', 'it may ask for a number');
is(registry_row($registry, $node, 'token'), $victim->{token}, 'it is another server, whatever it says');
like(lie('acquire_lease', clock => year(2070)), qr/^55000: the lease would end before it could be used$/, 'a call from 2070 is refused');
like(lie('acquire_lease', @own_server, starts_at => year(2079)), $far, 'one that wants to start in 2079 is refused');
like(lie('acquire_lease', @own_server, ids_end_at => year(2079)), $far, 'so is one whose ids have ended in 2079');
like(lie('acquire_lease', lease => { %lease, ids_end_at => year(2079) }), $far, 'and one that names such a lease');
is(lie('acquire_lease', @own_server, starts_at => us_from_now(9)), 'yes', 'one that wants to start in 9 s gets a number');
like(lie('acquire_lease', clock => 9_223_371_331_200_000_000), qr/^ERROR:  22023: value of "clock" in a registry call is out of range: 9223371331200000000\n/,
	'the year 294276 is refused');
is(lie('acquire_lease', window => 172_800_000_000), 'yes', 'one for two days gets a number');
is($registry->safe_psql('postgres', "SELECT bool_and(leased_until <= clock_timestamp() + '3 min') FROM snowflake.leases WHERE role = 'liar'"), 't',
	'for three minutes at most');
like(lie('acquire_lease', @as_victim, first_number => $victim->{node_number}, last_number => $victim->{node_number}, fixed => JSON::PP::true),
	qr/^55000: node number $victim->{node_number} is leased to another server/, "the node's number is refused, also to one with its system identifier");
like(lie('acquire_lease', fixed => JSON::PP::true), qr/^55000: node number \d+ is leased to another server/, 'so are all numbers together');
is(lie('renew_lease', lease => \%lease), 'no: incarnation', 'a lease of another registry is not renewed');
is(lie('renew_lease', lease => { %of_victim, leased_until => us_from_now(-1) }), 'no: closed', "nor the node's, without its token");
is(lie('release_lease', lease => { %of_victim, ids_end_at => us_from_now(-1) }), 'no: unknown', 'nor is it released');
my $other_layout = registry_row($registry, $node, 'layout') =~ s/datacenter 5, worker 5/worker 10/r;
like(lie('acquire_lease', layout => $other_layout), qr/^55000: the layout is not the one that ids are issued under$/, 'another layout is refused');
like(lie('acquire_lease', @as_victim, launched_at => 0 + registry_row($registry, $node, '(extract(epoch FROM launched_at) * 1000000)::bigint'), layout => $other_layout),
	qr/^55000: the layout is not the one that ids are issued under$/, 'also to one that says that it is the node');
my ($own_identifier, $own_start) = split /\|/, $registry->safe_psql('postgres',
	'SELECT system_identifier, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint FROM pg_control_system()');
like(lie('acquire_lease', system_identifier => 0 + $own_identifier, port => $registry->port, launched_at => 0 + $own_start), qr/^55000: the registry is the server itself$/,
	"nor does it help to say that it is the registry's own server");
is($registry->safe_psql('postgres', $state), $before, 'nothing of it is said for the registry');

# That its end is later than the registry knows: a guard finds that.  The node is not held up.
is(lie('renew_lease', lease => { %of_victim, leased_until => us_from_now(60) }), 'no: rolled back', "a later end of the node's lease");
like($registry->safe_psql('postgres', 'SELECT detail FROM snowflake.guard'), qr/^node number $victim->{node_number} is leased until .* The role "liar" says so\.$/,
	"a later end of the node's lease: the role is on record");
wait_for_renewal($node, $registry);
is(registry_row($registry, $node, 'token'), $victim->{token}, "a later end of the node's lease: it goes on");
my $free = 0 + $registry->safe_psql('postgres', 'SELECT min(n) FROM generate_series(0, 1022, 2) AS n WHERE n NOT IN (SELECT node_number FROM snowflake.node_number)');
is(lie('renew_lease', lease => { %of_victim, node_number => $free, leased_until => year(2079) }), 'no: rolled back', 'an end in 2079, of a free number');
is($registry->safe_psql('postgres', "SELECT ended_until <= clock_timestamp() + '3 min' FROM snowflake.node_number WHERE node_number = $free"), 't',
	'an end in 2079, of a free number: three minutes at most');
$registry->safe_psql('postgres', 'DELETE FROM snowflake.guard');

foreach my $sql ("snowflake.start_server('{}')", "snowflake.acquire_own_lease('{}')", "snowflake.record_uses('{}')", "snowflake.grant_lease('{}', true)",
	'snowflake.successor()', "snowflake.close_registry('{}')", 'snowflake.closed_registry()', "snowflake.take_over('{}')", 'snowflake.take_over_lost(gen_random_uuid())',
	"snowflake.change_layout('x')", "snowflake.limit_leases('1 h')", 'snowflake.ids_end_before(now())', "snowflake.ids_end_before(now(), 'liar')")
{
	my ($status, $out, $error) = $registry->psql('postgres', "SELECT $sql", extra_params => [ '-U', 'liar', '-v', 'VERBOSITY=verbose' ]);

	like($error, qr/ERROR:  42501: permission denied for function/, "the role may not call $sql");
}
is($registry->safe_psql('postgres', <<'SQL'), "acquire_lease\nrelease_lease\nrenew_lease", 'nor any other function, nor a table');
SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'snowflake'::regnamespace AND has_function_privilege('liar', p.oid, 'EXECUTE')
UNION ALL SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'snowflake'::regnamespace AND c.relkind IN ('r', 'v')
	AND has_table_privilege('liar', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER') ORDER BY 1
SQL
settle_ids($node, 'after that');
my $third = new_member('third', conninfo_of($registry));
issue_ids($third, 10);
is(registry_row($registry, $third, "starts_at < clock_timestamp() + interval '12 s'"), 't', 'after that, a new node: its lease starts now');

# All numbers, one after the other: each start gets one.  Nodes that have one go on; the owner ends the role's leases.
$third->stop;
# what ends soon, such as its ids, the role would not get, but the next node
poll('ends of ids', sub { $registry->safe_psql('postgres', <<SQL) eq '0' });
SELECT count(*) FROM snowflake.node_number WHERE token IS DISTINCT FROM '$victim->{token}'
	AND greatest(ended_until, leased_until) BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 min'
SQL
# it holds up the others while it runs
set_and_reload($node, 'snowflake.lease_duration' => '1min');
poll('a lease that outlives the statement', sub { stat_of($node, "leased_until > now() + interval '40 s'") eq 't' });
my $all = $registry->safe_psql('postgres', sprintf(<<'SQL', lying_call(window => 172_800_000_000)), extra_params => [ '-U', 'liar' ]);
SELECT count(*) FILTER (WHERE a ->> 'answer' = 'yes'), max(a ->> 'message')
FROM generate_series(1, 520) AS n, LATERAL snowflake.acquire_lease('%s'::jsonb || jsonb_build_object('port', n, 'start', gen_random_uuid(), 'clock', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)) AS a
SQL
like($all, qr/^5\d\d\|no node number is free$/, "a role takes all numbers: $all");
$third->start;
my $none = qr/^ERROR:  53400: no node number is free\n/;
like(error_of($third, $none), $none, 'a role takes all numbers: a new node gets no number');
wait_for_renewal($node, $registry);
is($registry->safe_psql('postgres', "SELECT count(*) > 500, max(leased_until) <= clock_timestamp() + '3 min' FROM snowflake.leases WHERE role = 'liar' AND closed_at IS NULL"), 't|t',
	'a role takes all numbers: it is on record, and has them for three minutes at most');
$registry->safe_psql('postgres', 'REVOKE USAGE ON SCHEMA snowflake FROM liar');
cmp_ok($registry->safe_psql('postgres', "SELECT snowflake.ids_end_before(clock_timestamp(), 'liar')"), '>', 500, 'the owner ends what the role has taken');
is($registry->safe_psql('postgres', "SELECT count(*) FROM snowflake.node_number WHERE role = 'liar'"), 0,
	'the owner ends what the role has taken: all leases that are open');
settle_ids($third, 'the owner ends what the role has taken');
is(registry_row($registry, $third, "starts_at < clock_timestamp() + interval '12 s'"), 't', 'the owner ends what the role has taken: a new lease starts now');
is(registry_row($registry, $node, 'token'), $victim->{token}, 'the owner ends what the role has taken: leases of others go on');
set_and_reload($node, 'snowflake.lease_duration' => '3s');
$third->stop;

# One start closes each of its leases with the next call that names none.
$registry->safe_psql('postgres', 'GRANT USAGE ON SCHEMA snowflake TO liar');
my $taker = '00000000-0000-4000-8000-000000000005';
is(join(',', map { lie('acquire_lease', start => $taker, window => 172_800_000_000) } 1 .. 5), join(',', ('yes') x 5), 'one start takes numbers');
my $numbers = $registry->safe_psql('postgres', "SELECT string_agg(node_number::text, ',') FROM snowflake.worker_node WHERE start = '$taker'");
is($registry->safe_psql('postgres', "SELECT count(*), count(token) FROM snowflake.node_number
	WHERE node_number IN ($numbers) AND greatest(ended_until, leased_until) > clock_timestamp() + '1 min'"), '5|1', 'one start takes numbers: most of its leases are closed');
$registry->safe_psql('postgres', "SELECT snowflake.ids_end_before(clock_timestamp(), 'liar')");
is($registry->safe_psql('postgres', "SELECT count(*), max(ended_until) < clock_timestamp() + '3 min' FROM snowflake.node_number
	WHERE node_number IN ($numbers) AND token IS NULL AND ended_until > clock_timestamp() + '12 s'"), '4|t',
	'the owner ends the open one; of the others the numbers are free when the limit for ends is over');

#
# Dates as each server writes them
#
sub check_dates
{
	my ($label, $from_settings, $to_settings) = @_;
	my ($from, $to) = map { new_registry("$_->[0]$label", conf => $_->[1]) } [ from => $from_settings ], [ to => $to_settings ];
	my $mover = new_member("mover$label", conninfo_of($from), conf => $from_settings);
	my @files = write_ids(issue_ids($mover, 100));
	my $ends = 'SELECT node_number, extract(epoch FROM greatest(ended_until, leased_until)) FROM snowflake.node_number ORDER BY 1';

	move_registry($from, $to);
	is($to->safe_psql('postgres', $ends), $from->safe_psql('postgres', $ends), "$label: the times are the same");
	set_and_reload($mover, 'snowflake.registry' => conninfo_of($to));
	poll('a number of the new one', sub { issue_ids($mover, 1); registry_row($to, $mover, 'incarnation') eq incarnation_of($to) });
	is(registry_row($to, $mover, "starts_at <= clock_timestamp() + interval '10 s'"), 't', "$label: leases start now");
	push @files, write_ids(issue_ids($mover, 100));
	check_ids($label, split_ids(12, 1023, @files));
	$_->stop foreach $mover, $from, $to;
}

check_dates('days', "datestyle = 'SQL, DMY'\ntimezone = 'Europe/Berlin'\n", "datestyle = 'SQL, MDY'\ntimezone = 'America/New_York'\n");
check_dates('zones', "datestyle = 'SQL, YMD'\ntimezone = 'Asia/Shanghai'\n", "datestyle = 'Postgres, MDY'\ntimezone = 'America/Chicago'\n");

#
# 30,000 numbers, and nodes that move at different times, while they issue ids
#
my ($old, $new) = map { new_registry($_) } 'old', 'new';
my @movers = map { new_member("mover$_", conninfo_of($old)) } 1, 2;
issue_ids($_, 1) foreach @movers;
$old->safe_psql('postgres', "INSERT INTO snowflake.node_number (node_number, ended_until) SELECT n, '2024-01-01' FROM generate_series(2000, 31999) AS n");
my $clients = [ map { start_clients($_, count => 1, sql => GENTLE) } @movers ];
$_->wait_for(200) foreach @$clients;
set_and_reload($movers[0], 'snowflake.registry' => conninfo_of($new));	# too early
my $start = time;
move_registry($old, $new);
# a machine may be busy; a step for each pair of numbers would take longer than any load makes it
cmp_ok(time - $start, '<', 120, sprintf('30,000 numbers are closed and taken over in seconds: %.1f', time - $start));
is($new->safe_psql('postgres', 'SELECT count(*) FROM snowflake.node_number WHERE node_number >= 2000'), 30000, 'all of them');
my $digest = q{SELECT (SELECT md5(string_agg(n::text, E'\n' ORDER BY node_number)) FROM snowflake.node_number AS n),
	(SELECT md5(string_agg(w::text, E'\n' ORDER BY token)) FROM snowflake.worker_node AS w), r, c FROM snowflake.registry AS r, snowflake.cluster AS c};
my $final = $old->safe_psql('postgres', $digest);
# the second one goes on to the end of its lease
poll('the first one', sub { registry_row($new, $movers[0], 'incarnation') eq incarnation_of($new) });
$clients->[0]->wait_for(200);
set_and_reload($movers[1], 'snowflake.registry' => conninfo_of($new));
poll('the second one', sub { registry_row($new, $movers[1], 'incarnation') eq incarnation_of($new) });
$_->wait_for(200) foreach @$clients;
check_ids('moved at different times', split_ids(12, 1023, map { $_->stop } @$clients));
is($old->safe_psql('postgres', $digest), $final,
	'from its closing on, nothing changes in the old registry');
$_->stop foreach @movers, $old, $new;

#
# A registry is a root.
#
my $middle = new_member('middle', conninfo_of($registry));
my $last = new_member('last', conninfo_of($middle));
my $no_root = qr/^ERROR:  55000: the registry's own cluster uses another registry\n/;

issue_ids($middle, 10);
like(error_of($last, $no_root), qr/$no_root(?:DETAIL:  The registry to use has the incarnation ${\ incarnation_of($registry)}; .*\n)HINT:  Set snowflake\.registry \(in a program: its data source\) to that registry/,
	'a registry with a registry of its own grants nothing');
is(registry_row($middle, $last, 'node_number'), '', 'nor is there a row');

# The other way round: it has a node already, and would begin to use another one.
my $first = new_member('first', conninfo_of($registry), tables => 1, start => 0, conf => "snowflake.registry = ''\n");
$first->start;
$first->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake');
set_and_reload($last, 'snowflake.registry' => conninfo_of($first));
settle_ids($last, 'a registry that has issued no ids');
is($first->safe_psql('postgres', 'SELECT uses, incarnation FROM snowflake.cluster'), '|', 'a registry that has issued no ids: it uses nothing yet');
set_and_reload($first, 'snowflake.registry' => conninfo_of($registry));
like(error_of($first, qr/own tables are one/),
	qr/^ERROR:  55000: cannot use another registry while this server's own tables are one\nDETAIL:  Node number \d+ is leased until .*\. The view snowflake\.leases here shows to whom\.\nHINT:  Set snowflake.registry to "own"/,
	'a registry that has a node does not begin to use another one');
is($first->safe_psql('postgres', 'SELECT uses, incarnation FROM snowflake.cluster'), '|', 'nor is that recorded');
$last->stop;
settle_ids($first, 'the lease of the node is over');
$last->start;
error_of($last, $no_root);
pass('and then it grants nothing to that node');
$_->stop foreach $first, $last, $middle;

# A circle: at most one of two gets ids at a time, or none.
my ($one, $other) = map { new_node($_, tables => 1, conf => "snowflake.worker_id = 'auto'\nsnowflake.lease_duration = '3s'\n") } 'one', 'other';
set_conf($one, 'snowflake.registry' => conninfo_of($other));
set_conf($other, 'snowflake.registry' => conninfo_of($one));
$_->restart foreach $one, $other;
my @clients = map { start_clients($_, count => 1, sql => "SET snowflake.max_wait = '100ms';\n\\set ON_ERROR_STOP off\n" . GENTLE) } $one, $other;
poll('a circle is refused', sub { grep { stat_of($_, 'detail') =~ /own tables are one|own cluster uses another registry/ } $one, $other });
my @ids = map { read_ids($_->stop) } @clients;
is(scalar(keys %{ { map { $_ => 1 } @ids } }), scalar @ids, 'two servers that are each other\'s registry issue no equal ids');
$_->stop foreach $one, $other, $node, $registry;

#
# The clock of a registry was an hour ahead when it was promoted.
#
my $library = build_library('shift', slurp_file("$FindBin::RealBin/../torture/shift.c"));
my $shift_file = write_ids();
append_to_file($shift_file, pack 'q', 3600 * 1_000_000_000);
$registry = new_registry('primary', init => [ allows_streaming => 1 ]);
$registry->backup('backup');
my $promoted = PostgreSQL::Test::Cluster->new('promoted');
$promoted->init_from_backup($registry, 'backup', has_streaming => 1);
start_with($promoted, $library, SHIFT_FILE => $shift_file);
$node = new_member('late', join(' ', 'host=' . join(',', map { $_->host } $registry, $promoted), 'port=' . join(',', map { $_->port } $registry, $promoted),
	'target_session_attrs=read-write'));
my @files = write_ids(issue_ids($node, 10));
$registry->wait_for_catchup($promoted, 'replay', $registry->lsn('insert'));
$registry->stop('immediate');
$promoted->promote;
like(error_of($node, qr/^ERROR:  55000: the node's clock/), qr/^ERROR:  55000: the node's clock is behind the time that leases start at\nDETAIL:  .*since the last promotion.*\nHINT:  .*If no id is that late, see "A clock that was ahead" in doc\/operations\.md\./,
	'the clock of the promoted registry was ahead: the owner is told what to do');
$promoted->safe_psql('postgres', "SELECT snowflake.ids_end_before(clock_timestamp() - interval '1 h')");
settle_ids($node, 'the owner has done it');
push @files, write_ids(issue_ids($node, 10));
check_ids('the clock of the promoted registry was ahead', split_ids(12, 1023, @files));
$_->stop foreach $node, $promoted;

done_testing();
