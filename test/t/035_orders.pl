# 035_orders.pl
#	  What an administrator orders: snowflake_release(), and moves to another registry, which are
#	  close_registry() in the old one, take_over() in the new one, and the setting.  In every state,
#	  from any database, also where there are no tables yet; to a registry, back to the own
#	  tables and from one registry to another; the steps in each order, and repeated; cut off in the middle by the
#	  end of the helper, the lease worker or the server; with the new registry away or
#	  the old one lost; while sessions issue ids; and releases with the lease worker frozen.  No id
#	  repeats.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;
use IPC::Run ();
use Time::HiRes qw(time);

use constant RELEASE => 'SELECT snowflake_release()';

my ($left, $right, $lost) = map { new_registry($_) } 'left', 'right', 'lost';
my $node = auto_node('main', conf => "snowflake.lease_duration = '3s'\n");
$node->safe_psql('postgres', 'CREATE DATABASE app');
$node->safe_psql('app', 'CREATE EXTENSION snowflake');

my @files;

# Where ids come from, undef: the own tables; the view, the record and the newest lease say so.
sub issue
{
	my ($label, $registry) = @_;
	my $from = $registry ? name_of($registry) : 'postgres';
	my $record = $registry ? 'another|' . incarnation_of($registry) : 'own|';

	# perhaps under the former registry's lease, which may end before the new registry is asked again
	is(settle('', sub { sql_error($node, 'SELECT snowflake_nextval()', 'app') }), '', "$label: ids come");
	is(settle($record, sub { $node->safe_psql('postgres', 'SELECT uses, incarnation FROM snowflake.cluster') }), $record,
		"$label: it is recorded that ids come from $from");
	my $number = settle_number($registry);
	push @files, write_ids(issue_in($node, 'app', 40));
	is($node->safe_psql('app', 'SELECT state, registry, node_number FROM pg_stat_snowflake'), "ready|$from|$number", "$label: and they do");
	is(id_node((read_ids($files[-1]))[-1]), $number, "$label: with the number that is leased there");
}

# That of the newest lease there, when the view has it.
sub settle_number
{
	my ($registry) = @_;
	my $number;

	poll('the number', sub {
			$number = registry_row($registry // $node, $node, 'node_number');
			$number ne '' && $node->safe_psql('app', 'SELECT node_number FROM pg_stat_snowflake') eq $number });
	return $number;
}

sub close_registry
{
	my ($from, $to) = @_;

	$from->safe_psql('postgres', sprintf "SELECT snowflake.close_registry('%s')", $to->safe_psql('postgres', 'SELECT snowflake.successor()'));
}

sub set_registry
{
	my ($registry) = @_;
	my $value = $registry ? conninfo_of($registry) : '';

	set_and_reload($node, 'snowflake.registry' => $value);
	poll('reload', sub { $node->safe_psql('app', 'SHOW snowflake.registry') eq $value });
}

# When the lease is over, until the new registry accepts this server.  A session that has waited for
# max_wait just before the end is told the same with 55P03.
sub check_refused
{
	my ($label) = @_;
	my $error;

	poll("$label: refusal", sub {
			($error = sql_error($node, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()", 'app')) =~ /^ERROR:  55000: .*"Another registry"/s });
	like($error, qr/^ERROR:  55000: .*\nDETAIL:  .*\nHINT:  .*see "Another registry" in doc\/operations\.md/, "$label: refused");
}

# Its error or warning.
sub give
{
	my ($sql, $database) = @_;
	my ($status, $out, $error) = $node->psql($database // 'app', $sql, extra_params => [ '-v', 'VERBOSITY=verbose' ]);

	return $error =~ s/^psql:<stdin>:\d+: //mgr;
}

# For all numbers in some tables: those in others have ended as late.
sub check_taken_over
{
	my ($label, $from, $to) = @_;
	my $values = $from->safe_psql('postgres', <<SQL);
SELECT string_agg(format('(%s, %L::timestamptz)', node_number, greatest(ended_until, leased_until)), ', ') FROM snowflake.node_number
SQL
	die "$label: nothing to take over" unless $values;
	is($to->safe_psql('postgres', <<SQL), '', "$label: all ends are taken over");
SELECT v.node_number, v.ends FROM (VALUES $values) AS v (node_number, ends)
WHERE NOT EXISTS (SELECT FROM snowflake.node_number AS n WHERE n.node_number = v.node_number
	AND n.ended_until >= v.ends)
SQL
}

# What taking over changes.
sub taken_over
{
	my ($registry) = @_;

	return $registry->safe_psql('postgres', 'SELECT incarnation, generation, taken_over, told, created_at, counted_at, starts_at, end_limit,
		(SELECT count(*) FROM snowflake.node_number) FROM snowflake.registry');
}

#
# No tables yet
#
is(give(RELEASE), '', 'no tables yet: release has nothing to do');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_extension WHERE extname = 'snowflake_registry'"), 0, 'no tables yet: nor are they created');
set_registry($left);
issue('no tables yet', $left);

#
# Back to the own tables, to another registry, and to the first again
#
set_registry(undef);
check_refused('to the own tables');
is(give(RELEASE), '', 'refused: release has nothing to do');
move_registry($left, $node);
check_taken_over('to the own tables', $left, $node);
is($node->safe_psql('postgres', <<'SQL'), 0, 'to the own tables: no lease of another registry is open there');
SELECT count(*) FROM snowflake.node_number AS n, snowflake.registry AS r WHERE n.incarnation <> r.incarnation
SQL
issue('to the own tables', undef);
my $taken_over = taken_over($node);
move_registry($left, $node);
is(taken_over($node), $taken_over, 'to the own tables, repeated: twice is as once');
issue('to the own tables, repeated', undef);

set_registry($right);
check_refused('to a registry');
move_registry($node, $right);
check_taken_over('to a registry', $node, $right);
issue('to a registry', $right);
set_registry($left);
check_refused('from one registry to another');
my $incarnation = incarnation_of($left);
move_registry($right, $left);
isnt(incarnation_of($left), $incarnation, 'a registry that was closed is opened again, as another one');
check_taken_over('from one registry to another', $right, $left);
issue('from one registry to another', $left);

# After a restart, as before it
set_registry(undef);
$node->restart;
check_refused('restarted');
move_registry($left, $node);
issue('restarted', undef);

#
# The steps in another order
#
# Ids go on until the lease is over; the registry that is closed says so.
close_registry($node, $right);
push @files, write_ids(issue_in($node, 'app', 5));
check_refused('closed first');
set_registry($right);
check_refused('closed, and set');
move_registry($node, $right);
issue('closed, set, taken over', $right);
move_registry($right, $left);
check_refused('closed and taken over');
set_registry($left);
issue('closed, taken over, set', $left);

# What is closed by mistake
close_registry($left, $node);
check_refused('closed by mistake');
like(sql_error($right, sprintf(q{SELECT snowflake.take_over(%s)}, $left->safe_psql('postgres', 'SELECT quote_literal(snowflake.closed_registry()::text)'))),
	qr/^ERROR:  55000: the (?:registry is closed|closed registry names another successor)\n/, 'it is taken over by the successor only');
move_registry($left, $node);
set_registry(undef);
issue('the successor has taken it over', undef);

#
# The new registry is away
#
$right->stop;
set_registry($right);
like(nextval_error_with_reason_in_app(), qr/^ERROR:  55P03: could not reach the registry/, 'the new registry is away: an error when the lease is over');
set_registry(undef);
issue('the new registry is away, and the setting is as before', undef);
$right->start;

# Why there are no ids, when the lease is over.
sub nextval_error_with_reason_in_app
{
	my $error;

	poll('an error', sub { ($error = sql_error($node, "SET snowflake.max_wait = '100ms'; SELECT snowflake_nextval()", 'app')) ne ''
			&& $error !~ /gave up waiting|no answer yet/ });
	return $error;
}

#
# The old registry is lost: leases from the own tables start when those of it are over.
#
limit_leases($_, '10 s') foreach $node, $lost;
set_registry($lost);
move_registry($node, $lost);
issue('to a registry that will be lost', $lost);
$incarnation = incarnation_of($lost);
$lost->stop;
set_registry(undef);
check_refused('the old registry is lost');
my $before = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
like(give("SELECT snowflake.take_over_lost('$incarnation')", 'postgres'),
	qr/^WARNING:  01000: the registry with the incarnation $incarnation must never run again for the nodes that come here\nDETAIL:  .* by then they are over only if its limit for ends was at most 00:00:10\.\nHINT:  /,
	'the old registry is lost: a warning');
issue('the old registry is lost', undef);
is(newest_row($node, "starts_at >= '$before'::timestamptz + '20 s'"), 't', 'the old registry is lost: the lease starts when its leases are over');

#
# A record that a restore brings while the first lease is asked for is not overwritten.
#
my $other = new_registry('other');
$other->stop;
set_registry($other);
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry');
like(nextval_error_with_reason_in_app(), qr/^ERROR:  55P03: could not reach the registry/, 'no record yet: the registry is asked');
$node->safe_psql('postgres', "INSERT INTO snowflake.cluster (uses) VALUES ('own')");
$other->start;
check_refused('a record is restored');
is(registry_row($other, $node, 'leased_until = starts_at AND closed_at IS NOT NULL'), 't', 'a record is restored: the lease that was granted is given back');
is($node->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster'), 'own', 'a record is restored: it is kept');
move_registry($node, $other);
issue('a record is restored, and moved', $other);
set_registry(undef);
move_registry($other, $node);
issue('back to the own tables', undef);

#
# Ids that are in no row: the time that leases start at or after goes along with a move, and with
# a server that joins a registry after its own tables were made anew.
#
my $later = $node->safe_psql('postgres', "UPDATE snowflake.registry SET starts_at = clock_timestamp() + '3 s' RETURNING starts_at");
$later =~ s/\n.*//s;
set_registry($other);
move_registry($node, $other);
is($other->safe_psql('postgres', "SELECT starts_at >= '$later' FROM snowflake.registry"), 't', 'floor: it is taken over');
issue('floor', $other);
is(registry_row($other, $node, "starts_at >= '$later'"), 't', 'floor: the lease starts after it');
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry');
$node->restart;
$later = $node->safe_psql('postgres', "UPDATE snowflake.registry SET created_at = clock_timestamp() + '4 s' RETURNING created_at");
$later =~ s/\n.*//s;
issue('joined', $other);
is(registry_row($other, $node, "starts_at >= '$later'::timestamptz + '1.001 s'"), 't', 'joined: its first lease starts after its tables were made');
set_registry(undef);
move_registry($other, $node);
issue('joined, and back', undef);

#
# Cut off in the middle
#
# A helper that has called no own tables is not in pg_stat_activity.
sub pid_of
{
	my ($what) = @_;

	return poll($what, sub {
			(grep { (eval { slurp_file("/proc/$_/cmdline") } // '') =~ /snowflake \Q$what\E/ } SnowflakeTest::children($node->{_pid}))[0] });
}

my @fresh = map { new_registry("fresh$_") } 0 .. 2;
my $current = $node;

# While a call waits for a lock, at the registry that is asked or for the record.
foreach my $case ([ 'helper', $fresh[0], 'registry' ], [ 'lease worker', undef, 'registry' ], [ 'lease worker', $fresh[1], 'registry' ],
	[ 'lease worker', $fresh[2], 'cluster' ], [ 'server', undef, 'registry' ], [ 'server', $fresh[0], 'registry' ], [ 'helper', undef, 'registry' ],
	[ 'server', $fresh[1], 'cluster' ], [ 'helper', $fresh[2], 'cluster' ])
{
	my ($victim, $registry, $table) = @$case;
	my $tables = $table eq 'cluster' ? $node : $registry // $node;
	my $label = "$victim ends in a move to " . ($registry ? $registry->name : 'the own tables') . ", at the table $table";

	move_registry($current, $registry // $node);
	my $gate = $tables->background_psql('postgres');
	$gate->query_safe($table eq 'registry' ? 'BEGIN; SELECT FROM snowflake.registry FOR UPDATE' : 'BEGIN; LOCK snowflake.cluster IN SHARE MODE');
	set_registry($registry);
	poll("$label: the call", sub { $tables->safe_psql('postgres', <<'SQL') });
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
	AND (backend_type = 'snowflake helper' OR application_name = 'snowflake lease worker')
SQL
	if ($victim eq 'server')
	{
		crash($node);
		eval { $gate->quit } if $tables == $node;
	}
	else
	{
		kill 'TERM', pid_of($victim);
	}
	if ($tables != $node || $victim ne 'server')
	{
		$gate->query_safe('COMMIT');
		$gate->quit;
	}
	$node->start if $victim eq 'server';
	issue($label, $registry);
	$current = $registry // $node;
}
set_registry(undef);
move_registry($current, $node);
issue('after all cuts', undef);

#
# While sessions issue ids, under leases that last longer than a move takes on a busy machine
#
limit_leases($node, '1 min');
set_and_reload($node, 'snowflake.lease_duration' => '1min');
my $clients = start_clients($node, count => 2, database => 'app', sql => "SET snowflake.max_wait = '10s';\n" . GENTLE);
$current = $node;
foreach my $registry ($fresh[0], undef, $fresh[1], undef)
{
	$clients->wait_for(200);
	poll('a lease that lasts', sub { $node->safe_psql('app', "SELECT leased_until > now() + interval '30 s' FROM pg_stat_snowflake LIMIT 1") eq 't' });
	move_registry($current, $registry // $node);
	set_registry($registry);
	$current = $registry // $node;
	settle_number($registry);
}
$clients->wait_for(200);
push @files, $clients->stop;
is($clients->errors, '', 'moved while ids are issued: nobody waits for long');
set_and_reload($node, 'snowflake.lease_duration' => '3s');

#
# Releases
#
# In the background; its output is in {err} when it is done.
sub start_order
{
	my ($sql) = @_;
	my $order = { err => '' };

	$order->{run} = IPC::Run::start([ $node->installed_command('psql'), '-XAt', '-v', 'VERBOSITY=verbose',
			'-d', $node->connstr('app') . ' application_name=order', '-c', $sql ],
		'<', '/dev/null', '>', '/dev/null', '2>', \$order->{err});
	$order->{pid} = poll('order that waits', sub { $node->safe_psql('postgres',
				"SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'order' AND wait_event_type = 'Extension'") });
	return $order;
}

sub finish_order
{
	my ($order) = @_;

	$order->{run}->finish;
	return $order->{err};
}

my $number = $node->safe_psql('app', 'SELECT node_number FROM pg_stat_snowflake');
is(give('SELECT snowflake_release(), snowflake_release()'), '', 'released twice');
is($node->safe_psql('app', 'SELECT state, node_number FROM pg_stat_snowflake'), 'starting|', 'there is no lease');
issue('released', undef);
isnt($node->safe_psql('app', 'SELECT node_number FROM pg_stat_snowflake'), $number, 'released: the next id has another number');

# Two at the same time, and what is not done in time or cancelled is done later.
my $worker = worker_pid($node);
kill 'STOP', $worker or die "cannot stop $worker: $!";
my $start = time;
my @orders = map { start_order(RELEASE) } 1, 2;
$orders[0]{pid} = 0;
like(finish_order($_), qr/^ERROR:  55P03: the node number was not released in time\n(?:.*\n)*HINT:  See pg_stat_snowflake/, 'frozen: an error')
  foreach @orders;
cmp_ok(time - $start, '>=', 4.5, 'frozen: after some seconds');
my $order = start_order(RELEASE);
is($node->safe_psql('app', "SELECT pg_cancel_backend($order->{pid})"), 't', 'frozen: cancelled');
like(finish_order($order), qr/ERROR:  57014: /, 'frozen: it can be cancelled');
kill 'CONT', $worker or die "cannot continue $worker: $!";
poll('the release', sub { $node->safe_psql('app', 'SELECT node_number FROM pg_stat_snowflake') eq '' });
pass('it goes on: the number is released');
issue('after all', undef);

check_ids('all', split_ids(12, 1023, @files));
$_->stop foreach $node, $left, $right, $other, @fresh;

# Where the library is not preloaded, there is no worker to tell.
$left->start;
like(sql_error($left, RELEASE), qr/^ERROR:  55000: /, 'not preloaded: no release');
$left->stop;

done_testing();
