# 049_border.pl
#	  The border between a node and its registry, as it was attacked: the owner of the
#	  registry's database renames the schema that the extension stands in, and puts functions
#	  there; the ends of leases go from one server to another with other settings of dates;
#	  a registry takes its own numbers from another one, or from its own node.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;

sub error_of
{
	my ($node, $pattern) = @_;
	my $error;

	poll("$pattern", sub { ($error = sql_error($node, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()")) =~ $pattern });
	return $error;
}

#
# The owner of the database wants to be a superuser.
#
my $registry = new_registry('registry');
my $node = new_member('node', conninfo_of($registry));

issue_ids($node, 10);
$registry->safe_psql('postgres', <<'SQL');
CREATE ROLE boss LOGIN;
ALTER DATABASE postgres OWNER TO boss;
SQL
$registry->safe_psql('postgres', <<'SQL', extra_params => [ '-U', 'boss' ]);
ALTER SCHEMA public RENAME TO former;
CREATE SCHEMA public;
CREATE TABLE public.found (who name);
GRANT ALL ON public.found TO PUBLIC;
GRANT USAGE ON SCHEMA public TO PUBLIC;
CREATE FUNCTION public.snowflake_layout(layout text, OUT name text, OUT definition text, OUT bits integer, OUT tick interval,
	OUT epoch timestamptz, OUT last_id_time timestamptz, OUT max_ids_per_second bigint, OUT js_safe boolean)
LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.found VALUES (current_user);
	SELECT l.* INTO name, definition, bits, tick, epoch, last_id_time, max_ids_per_second, js_safe FROM former.snowflake_layout(layout) AS l;
END
$$;
SQL
my $until = registry_row($registry, $node, 'leased_until');
poll('a renewal', sub { issue_ids($node, 1); registry_row($registry, $node, 'leased_until') ne $until });
pass('schema public was renamed: leases are renewed');
$node->safe_psql('postgres', 'SELECT snowflake_release()');
issue_ids($node, 10);
is(stat_of($node, 'state'), 'ready', 'schema public was renamed: there is a new lease');
is($registry->safe_psql('postgres', 'SELECT count(*) FROM public.found'), 0, 'a function that the owner of the database put there was not called');
$registry->safe_psql('postgres', 'DROP SCHEMA public CASCADE; ALTER SCHEMA former RENAME TO public');

#
# Dates as each server writes them
#
sub check_dates
{
	my ($label, $from_settings, $to_settings) = @_;
	my ($from, $to) = map { new_registry("$_->[0]$label", conf => $_->[1]) } [ from => $from_settings ], [ to => $to_settings ];
	my $mover = new_member("mover$label", conninfo_of($from), conf => $from_settings);

	issue_ids($mover, 10);
	set_and_reload($mover, 'snowflake.registry' => conninfo_of($to));
	error_of($mover, qr/55000/);
	my $said = sql_error($mover, 'SELECT snowflake_change_registry()');
	is($said, '', "$label: the registry is changed") or diag($said);
	my $ends = $from->safe_psql('postgres',
		'SELECT node_number, extract(epoch FROM max(leased_until)) FROM snowflake.worker_node GROUP BY 1 ORDER BY 1');
	is($to->safe_psql('postgres', "SELECT node_number, extract(epoch FROM max(leased_until)) FROM snowflake.worker_node
		WHERE starts_at = '-infinity' GROUP BY 1 ORDER BY 1"), $ends, "$label: the ends are the same times");
	is($to->safe_psql('postgres', 'SELECT starts_at <= clock_timestamp() + interval $$10 s$$ FROM snowflake.registry'), 't',
		"$label: leases start now");
	is(scalar(issue_ids($mover, 10)), 10, "$label: ids go on");
	$_->stop foreach $mover, $from, $to;
}

check_dates('days', "datestyle = 'SQL, DMY'\ntimezone = 'Europe/Berlin'\n", "datestyle = 'SQL, MDY'\ntimezone = 'America/New_York'\n");
check_dates('zones', "datestyle = 'SQL, YMD'\ntimezone = 'Asia/Shanghai'\n", "datestyle = 'Postgres, MDY'\ntimezone = 'America/Chicago'\n");

#
# A registry is a root.
#
my $middle = new_member('middle', conninfo_of($registry));
my $last = new_member('last', conninfo_of($middle));
my $no_root = qr/^ERROR:  55000: the registry's own numbers come from another registry\n/;

issue_ids($middle, 10);
like(error_of($last, $no_root), qr/$no_root(?:DETAIL:  .*The other one has the incarnation [-0-9a-f]{36}\..*\n)HINT:  Set snowflake\.registry to that other registry/,
	'a registry with a registry of its own grants nothing');
is(registry_row($middle, $last, 'node_number'), '', 'nor is there a row');

# The other way round: it has a node already, and would begin to use another one.
my $first = new_member('first', conninfo_of($registry), start => 0, conf => "snowflake.registry = ''\n");
$first->start;
$first->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake');
set_and_reload($last, 'snowflake.registry' => conninfo_of($first));
issue_ids($last, 10);
is($first->safe_psql('postgres', 'SELECT count(*) FROM snowflake.cluster'), 0, 'a registry that has issued no ids');
set_and_reload($first, 'snowflake.registry' => conninfo_of($registry));
like(error_of($first, qr/this cluster is the registry of other servers/),
	qr/^ERROR:  55000: .*\nDETAIL:  .*The server on host "[^"]+", port ${\ $last->port}, has a lease of it until .*\nHINT:  Leave snowflake.registry empty/,
	'a registry that has a node does not begin to use another one');
is($first->safe_psql('postgres', 'SELECT count(*) FROM snowflake.cluster'), 0, 'nor is that recorded');
$last->stop;
poll('ids', sub { sql_error($first, 'SELECT snowflake_nextval()') eq '' });
pass('it does when the lease of the node is over');
$last->start;
error_of($last, $no_root);
pass('and then it grants nothing to that node');
$_->stop foreach $first, $last, $middle;

# A circle: at most one of two gets ids.
my ($one, $other) = map { new_node($_, start => 1, conf => "snowflake.worker_id = 'auto'\nsnowflake.lease_duration = '3s'\n") } 'one', 'other';
set_conf($one, 'snowflake.registry' => conninfo_of($other));
set_conf($other, 'snowflake.registry' => conninfo_of($one));
$_->restart foreach $one, $other;
my @clients = map { start_clients($_, count => 1, sql => "SET snowflake.max_wait = '100ms';\n\\set ON_ERROR_STOP off\n" . GENTLE) } $one, $other;
poll('a circle is refused', sub { grep { stat_of($_, 'detail') =~ /registry of other servers|come from another registry/ } $one, $other });
my @ids = map { read_ids($_->stop) } @clients;
is(scalar(keys %{ { map { $_ => 1 } @ids } }), scalar @ids, 'two servers that are each other\'s registry issue no equal ids');
my @used = map { $_->safe_psql('postgres', 'SELECT count(*) FROM snowflake.cluster') } $one, $other;
isnt("@used", '1 1', 'and not both use each other');
$_->stop foreach $one, $other, $node, $registry;

done_testing();
