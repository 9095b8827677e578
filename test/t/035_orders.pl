# 035_orders.pl
#	  Orders to the lease worker, snowflake_release() and snowflake_change_registry(): in
#	  every state, from any database, also where the extension is not in postgres yet, both
#	  ways and from one registry to another; repeated, at the same time, cut off in the
#	  middle by the end of the helper, the lease worker or the server; with the new or the
#	  old registry away; cancelled, and with the lease worker frozen.  No id repeats.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;
use IPC::Run ();
use Time::HiRes qw(time);

use constant CHANGE => 'SELECT snowflake_change_registry()';
use constant RELEASE => 'SELECT snowflake_release()';

my ($left, $right) = map { new_registry($_) } 'left', 'right';
my $node = auto_node('main');
$node->safe_psql('postgres', 'CREATE DATABASE app');
$node->safe_psql('app', 'CREATE EXTENSION snowflake');

my @files;

sub issue
{
	my ($label, $registry) = @_;
	my $from = $registry ? name_of($registry) : 'postgres';

	push @files, write_ids(issue_in($node, 'app', 20));
	is($node->safe_psql('app', 'SELECT state, registry FROM pg_stat_snowflake'), "ready|$from", "$label: ids come from $from");
	is($node->safe_psql('postgres', 'SELECT uses, incarnation FROM snowflake.cluster'),
		$registry ? 'another|' . $registry->safe_psql('postgres', 'SELECT incarnation FROM snowflake.registry') : 'own|',
		"$label: and that is recorded");
}

sub set_registry
{
	my ($registry) = @_;
	my $value = $registry ? conninfo_of($registry) : '';

	set_and_reload($node, 'snowflake.registry' => $value);
	poll('reload', sub { $node->safe_psql('app', 'SHOW snowflake.registry') eq $value });
}

# Until the order is given there are no ids.
sub check_refused
{
	my ($label) = @_;
	my $error;

	poll("$label: refusal", sub { ($error = sql_error($node, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()", 'app')) =~ /55000/ });
	like($error, qr/^ERROR:  55000: .*\nDETAIL:  .*\nHINT:  .*see "Another registry" in doc\/operations\.md/, "$label: refused");
}

# Gives the order; returns what was said to the session.
sub give
{
	my ($sql, $database) = @_;

	return sql_error_or_notice($node, $sql, $database // 'app');
}

sub sql_error_or_notice
{
	my ($node, $sql, $database) = @_;
	my ($status, $out, $error) = $node->psql($database, $sql, extra_params => [ '-v', 'VERBOSITY=verbose' ]);

	return $error =~ s/^psql:<stdin>:\d+: //mgr;
}

# For all numbers in some tables: those in others have a row that ends as late.
sub check_handed_over
{
	my ($label, $from, $to) = @_;
	my $values = $from->safe_psql('postgres', <<SQL);
SELECT string_agg(format('(%s, %L::timestamptz)', node_number, leased_until), ', ')
FROM (SELECT node_number, max(leased_until) AS leased_until FROM snowflake.worker_node GROUP BY 1) AS e
SQL
	die "$label: nothing to hand over" unless $values;
	is($to->safe_psql('postgres', <<SQL), '', "$label: all ends are handed over");
SELECT v.node_number, v.ends FROM (VALUES $values) AS v (node_number, ends)
WHERE NOT EXISTS (SELECT FROM snowflake.worker_node AS w WHERE w.node_number = v.node_number AND w.leased_until >= v.ends)
SQL
}

sub rows_handed_over
{
	my ($registry) = @_;

	return $registry->safe_psql('postgres', "SELECT count(*) FROM snowflake.worker_node WHERE starts_at = '-infinity'");
}

my $done = qr/^NOTICE:  00000: node numbers come from \S+ .*from now on\nDETAIL:  .*\n/;

#
# The extension is not in postgres yet.
#
is(give(RELEASE), '', 'no tables yet: release has nothing to do');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_extension WHERE extname = 'snowflake'"), 0, 'no tables yet: nor are they created');
set_registry($left);
like(give(CHANGE), $done, 'no tables yet: a change of registry creates them');
issue('no tables yet', $left);

#
# Back to the own tables, to another registry, and to the first again.
#
set_registry(undef);
check_refused('to the own tables');
is(give(RELEASE), '', 'refused: release has nothing to do');
my $numbers = $left->safe_psql('postgres', 'SELECT count(DISTINCT node_number) FROM snowflake.worker_node');
like(give(CHANGE, 'postgres'), $done, 'to the own tables: done');
issue('to the own tables', undef);
check_handed_over('to the own tables', $left, $node);
is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node AS w, snowflake.registry AS r
	WHERE w.incarnation <> r.incarnation AND closed_at IS NOT NULL AND w.starts_at = $$-infinity$$'), $numbers, 'to the own tables: as closed rows');
my $rows = rows_handed_over($node);
like(give(CHANGE), $done, 'to the own tables, repeated: done');
is(rows_handed_over($node), $rows, 'to the own tables, repeated: nothing new');
issue('to the own tables, repeated', undef);

set_registry($right);
check_refused('to a registry');
like(give(CHANGE), $done, 'to a registry: done');
check_handed_over('to a registry', $node, $right);
issue('to a registry', $right);
set_registry($left);
check_refused('from one registry to another');
like(give(CHANGE), $done, 'from one registry to another: done');
issue('from one registry to another', $left);
check_handed_over('from one registry to another', $right, $left);

# As after a restart: where the numbers came from is not known.
set_registry(undef);
$node->restart;
check_refused('restarted');
like(give(CHANGE), qr/^WARNING:  .*: not all ids .* could be handed over\nDETAIL:  The former registry is not known.*: all ids of its numbers must be past\./,
	'restarted: a warning');
issue('restarted', undef);

# It is not needed where the numbers come from the same registry.
is(give(CHANGE) =~ $done ? 'done' : '', 'done', 'no change at all: done');
issue('no change at all', undef);

#
# The new registry does not answer; the old one neither.
#
$right->stop;
set_registry($right);
like(give(CHANGE), qr/^ERROR:  55P03: the change of registry has failed: could not reach the registry \S+\nDETAIL:  .*\nHINT:  .* Try again/,
	'the new registry is away: failed');
check_refused('the new registry is away');
set_registry(undef);
issue('the new registry is away, and the setting is as before', undef);
$right->start;
set_registry($right);
like(give(CHANGE), $done, 'the new registry is there: done');
issue('the new registry is there', $right);
$right->stop;
set_registry(undef);
check_refused('the old registry is away');
like(give(CHANGE), qr/^WARNING:  .*: not all ids .* could be handed over\nDETAIL:  The former registry \S+ did not answer: all ids of its numbers must be past\./,
	'the old registry is away: a warning');
issue('the old registry is away', undef);
$right->start;

# Nobody was told, since the session did not wait: whoever repeats it is.
set_registry($right);
like(give(CHANGE), $done, 'nobody was told: a registry again');
issue('nobody was told, before', $right);
$right->stop;
set_registry(undef);
check_refused('nobody was told');
my $stopped = worker_pid($node);
kill 'STOP', $stopped or die "cannot stop $stopped: $!";
my $cancelled = start_order(CHANGE);
$node->safe_psql('postgres', "SELECT pg_cancel_backend($cancelled->{pid})");
like(finish_order($cancelled), qr/ERROR:  57014: /, 'nobody was told: the session is cancelled');
kill 'CONT', $stopped or die "cannot continue $stopped: $!";
poll('the record', sub { $node->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster') eq 'own' });
like(give(CHANGE), qr/^WARNING:  .*: not all ids .* could be handed over\nDETAIL:  The former registry \S+ did not answer/,
	'nobody was told: a warning when it is repeated');
like(give(CHANGE), $done, 'nobody was told: but once only');
issue('nobody was told', undef);
$right->start;

# An attempt that failed leaves no warning for one that has nothing to warn of.
set_registry($right);
like(give(CHANGE), $done, 'failed before: a registry again');
issue('failed before, before', $right);
$_->stop foreach $left, $right;
set_registry($left);
like(give(CHANGE), qr/^ERROR:  55P03: the change of registry has failed/, 'failed before: neither answers');
$right->start;
set_registry($right);
issue('failed before, and back', $right);
$left->start;
set_registry($left);
check_refused('failed before, again');
like(give(CHANGE), $done, 'failed before: no warning');
issue('failed before', $left);

# The registry's extension was created again: it does not know what was issued.
$left->safe_psql('postgres', 'DROP EXTENSION snowflake; CREATE EXTENSION snowflake');
$node->safe_psql('app', RELEASE);
check_refused('created again');
like(give(CHANGE), qr/^WARNING:  .*: not all ids .* could be handed over\nDETAIL:  The extension was created again in the registry: all ids/,
	'created again: a warning');
issue('created again', $left);
set_registry(undef);
like(give(CHANGE), $done, 'created again: back to the own tables');
issue('created again, and back', undef);

#
# A record that a restore brings while the first lease is asked for is not overwritten.
#
$right->stop;
set_registry($right);
$node->safe_psql('postgres', 'DROP EXTENSION snowflake; CREATE EXTENSION snowflake');
$node->restart;
like((nextval_error_with_reason($node, '300ms'))[0], qr/^ERROR:  55P03: could not reach the registry/, 'no record yet: the registry is asked');
$node->safe_psql('postgres', "INSERT INTO snowflake.cluster (uses) VALUES ('own')");
$right->start;
check_refused('a record is restored');
is($node->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster'), 'own', 'a record is restored: it is kept');
like(give(CHANGE), qr/node numbers come from/, 'a record is restored: it is changed by order');
issue('a record is restored', $right);
set_registry(undef);
like(give(CHANGE), $done, 'back to the own tables');
issue('back to the own tables', undef);

#
# Ids that are in no row: the time that leases start at or after goes along with a change, and with
# a server that joins a registry after its own tables were made anew.
#
my $later = $node->safe_psql('postgres', "UPDATE snowflake.registry SET starts_at = clock_timestamp() + '3 s' RETURNING starts_at");
$later =~ s/\n.*//s;
set_registry($left);
like(give(CHANGE), $done, 'floor: changed');
is($left->safe_psql('postgres', "SELECT starts_at >= '$later' FROM snowflake.registry"), 't', 'floor: it is handed over');
issue('floor', $left);
$node->safe_psql('postgres', 'DROP EXTENSION snowflake; CREATE EXTENSION snowflake');
$node->restart;
$later = $node->safe_psql('postgres', "UPDATE snowflake.registry SET created_at = clock_timestamp() + '4 s' RETURNING created_at");
$later =~ s/\n.*//s;
issue('joined', $left);
is($left->safe_psql('postgres', <<SQL), 't', 'joined: its first lease starts after its tables were made');
SELECT starts_at >= '$later'::timestamptz + '1.001 s' FROM snowflake.worker_node ORDER BY renewed_at DESC LIMIT 1
SQL
set_registry(undef);
like(give(CHANGE), $done, 'joined: back to the own tables');
issue('joined, and back', undef);

#
# Cut off in the middle
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

sub pid_of
{
	my ($what) = @_;

	return poll($what, sub { $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake $what'") });
}

# Once for each registry that is the next.
foreach my $case ([ 'helper', $left ], [ 'lease worker', undef ], [ 'lease worker', $right ], [ 'server', undef ], [ 'server', $left ])
{
	my ($victim, $registry) = @$case;
	my $tables = $registry // $node;
	my $label = "$victim ends in a change to " . ($registry ? $registry->name : 'the own tables');

	set_registry($registry);
	check_refused($label);
	my $gate = $tables->background_psql('postgres');
	$gate->query_safe('BEGIN; SELECT FROM snowflake.registry FOR UPDATE');
	my $order = start_order(CHANGE);
	poll('the call', sub { $tables->safe_psql('postgres', <<'SQL') });
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
	AND (backend_type = 'snowflake helper' OR application_name = 'snowflake lease worker')
SQL
	if ($victim eq 'server')
	{
		crash($node);
		like(finish_order($order), qr/server closed the connection|terminating connection/, "$label: the session is gone");
		eval { $gate->quit } if $tables == $node;
	}
	else
	{
		$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . pid_of($victim) . ')');
	}
	if ($tables != $node || $victim ne 'server')
	{
		poll('the end of the helper', sub { $node->safe_psql('postgres',
			"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowflake helper' AND wait_event_type = 'Lock'") eq '0' })
		  if $victim eq 'helper';
		$gate->query_safe('COMMIT');
		$gate->quit;
	}
	$node->start if $victim eq 'server';
	my $said = $victim eq 'server' ? '' : finish_order($order);
	like($said, qr/$done|^ERROR:  \w+: the change of registry has failed: .*\nHINT:  .*Try again/m, "$label: the session is told how it ended")
	  if $victim ne 'server';
	like(give(CHANGE), qr/node numbers come from/, "$label: repeated, done");
	issue($label, $registry);
}

# After the record was changed: what is done again finds no other registry to ask, and still warns.
set_registry(undef);
$node->restart;
check_refused('the lease worker ends after the record');
my $gate = $node->background_psql('postgres');
$gate->query_safe('BEGIN; LOCK snowflake.cluster IN SHARE MODE');
my $recorded = start_order(CHANGE);
poll('the lock', sub { $node->safe_psql('postgres',
	"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'snowflake helper'") });
my $frozen = worker_pid($node);
kill 'STOP', $frozen or die "cannot stop $frozen: $!";
$gate->query_safe('COMMIT');
$gate->quit;
poll('the record', sub { $node->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster') eq 'own' });
$node->safe_psql('postgres', "SELECT pg_terminate_backend($frozen)");
kill 'CONT', $frozen or die "cannot continue $frozen: $!";
like(finish_order($recorded), qr/^WARNING:  .*: not all ids .* could be handed over\nDETAIL:  The former registry is not known/,
	'the lease worker ends after the record: a warning');
issue('the lease worker ends after the record', undef);

# While clients issue ids: they are told what is wrong, and go on.
my $clients = start_clients($node, count => 2, database => 'app', sql => "SET snowflake.max_wait = '10s';\n" . GENTLE);
foreach my $registry ($right, undef, $left, undef)
{
	$clients->wait_for(200);
	set_registry($registry);
	like(give(CHANGE), qr/node numbers come from/, 'while ids are issued: done');
}
$clients->wait_for(200);
push @files, $clients->stop;
unlike($clients->errors, qr/ERROR:  (?!55000: the node numbers of this cluster come from|55000: the registry is not the one|55P03)/,
	'while ids are issued: no other errors');

#
# Releases
#
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
$_->stop foreach $node, $left, $right;

# Where the library is not preloaded, there is no worker to tell.
$left->start;
foreach my $sql (RELEASE, CHANGE)
{
	like(sql_error($left, $sql), qr/^ERROR:  55000: /, "not preloaded: no $sql");
}
$left->stop;

done_testing();
