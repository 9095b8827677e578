# SnowflakeRegistry.pm
#	  What the tests with a registry share, besides SnowflakeTest.
#
#	  new_registry(NAME, conf => TEXT, init => [...])
#						a server with the extension snowflake_registry, not preloaded; it has
#						snowflake, too, to read ids
#	  conninfo_of(REGISTRY, KEY => VALUE, ...)
#						a value for snowflake.registry
#	  name_of(REGISTRY)	how it is called in the view, in errors and in the log
#	  new_member(NAME, CONNINFO, conf => TEXT, ...)
#						a server that takes its node number there, with leases of 3 s;
#						otherwise as new_node
#	  incarnation_of(REGISTRY)
#	  move_registry(FROM, TO)	closes a registry and has the other one take it over: its nodes
#						can move from then on
#	  registry_row(REGISTRY, NODE, COLUMNS)
#						of LEASES, of the newest one of a server (known by its port), empty if
#						there is none
#	  forget_leases(REGISTRY, DATABASE)
#						as if it had granted nothing, under no layout; not for nodes that run
#	  guards(REGISTRY)	what its guards have found: kinds and how often, 'copy 1, wait 2'
#	  freeze(NODE), thaw(NODE)
#						stops all processes of a server, and lets them go on
#	  wait_for_number(NODE, NUMBER)
#						until the server has a lease of this number, or of any if undef;
#						returns it
#	  wait_for_state(NODE, STATE)
#	  nextval_error(NODE, MAX_WAIT)
#						of snowflake_nextval(), '' if there is none, and how many seconds it
#						took
#	  nextval_error_with_reason(NODE, MAX_WAIT)
#						the same of the first call that does not fail because the lease
#						worker has had no answer yet
#	  GENTLE			sql for start_clients: some thousand ids a second.  It is padded, so
#						that the sessions end soon also when each call waits and fails.
#	  ids_after(FILES, SECONDS)
#						the ids in these whose time is later; twitter layout
package SnowflakeRegistry;

use strict;
use warnings;

use Exporter 'import';
use SnowflakeTest;
use Time::HiRes qw(time);

use constant GENTLE => "SELECT snowflake_nextval() FROM generate_series(1, 20);\n"
  . "SELECT snowflake_nextval_batch(30);\n"
  . "DO \$\$ BEGIN PERFORM pg_sleep(0.004); END \$\$;\n"
  . '--' . '.' x 1500;

our @EXPORT = qw(GENTLE conninfo_of forget_leases freeze guards ids_after incarnation_of move_registry name_of new_member new_registry
  nextval_error nextval_error_with_reason registry_row thaw wait_for_number wait_for_state);

# Those that are frozen: whatever happens, they can be stopped at the end.
my %frozen;

sub new_registry
{
	my ($name, %options) = @_;

	return new_node($name, preload => 0, tables => 1, %options);
}

sub conninfo_of
{
	my ($registry, %options) = @_;

	%options = (host => $registry->host, port => $registry->port, %options);
	return join ' ', map { "$_=$options{$_}" } sort keys %options;
}

sub name_of
{
	my ($registry) = @_;

	return $registry->host . ':' . $registry->port . '/postgres';
}

sub new_member
{
	my ($name, $conninfo, %options) = @_;

	return new_node($name, %options, conf => <<EOS . ($options{conf} // ''));
snowflake.worker_id = 'auto'
snowflake.registry = '$conninfo'
snowflake.lease_duration = '3s'
EOS
}

sub incarnation_of
{
	my ($registry) = @_;

	return $registry->safe_psql('postgres', 'SELECT incarnation FROM snowflake.registry');
}

# "Another registry" in doc/operations.md.
sub move_registry
{
	my ($from, $to) = @_;

	my $successor = $to->safe_psql('postgres', 'SELECT snowflake.successor()');

	$from->safe_psql('postgres', "SELECT snowflake.close_registry('$successor')");
	return $to->safe_psql('postgres', $from->safe_psql('postgres',
			"SELECT format('SELECT snowflake.take_over(%L)', snowflake.closed_registry())"));
}

sub registry_row
{
	my ($registry, $node, $columns) = @_;
	my $port = $node->port;

	return $registry->safe_psql('postgres', "SELECT $columns FROM ${\ LEASES} AS w
		WHERE port = $port ORDER BY launched_at DESC, closed_at DESC, renewed_at DESC LIMIT 1");
}

# Its rows cannot be deleted.
sub forget_leases
{
	my ($registry, $database) = @_;

	$registry->safe_psql($database // 'postgres', <<'SQL');
BEGIN;
UPDATE snowflake.node_number SET ended_until = DEFAULT, recorded_until = DEFAULT, free_since = NULL, token = NULL, start = NULL, granted_by = NULL,
	last_call = NULL, own = NULL, fixed = NULL, system_identifier = NULL, role = NULL, incarnation = NULL, generation = NULL,
	starts_at = NULL, leased_until = NULL, renewed_at = NULL;
UPDATE snowflake.worker_node SET leased_until = '-infinity', closed_at = now();
DELETE FROM snowflake.worker_node;
UPDATE snowflake.cluster SET layout = NULL, greatest_id = DEFAULT;
COMMIT;
SQL
}

sub guards
{
	my ($registry) = @_;

	return $registry->safe_psql('postgres', "SELECT string_agg(guard || ' ' || times, ', ' ORDER BY guard) FROM snowflake.guard");
}

sub process_state
{
	my ($pid) = @_;
	open my $stat, '<', "/proc/$pid/stat" or return '';
	my $line = <$stat> // '';

	return $line =~ /^\d+ \(.*\) (\S) /s ? $1 : '';
}

# The postmaster first, so that it starts no more.
sub freeze
{
	my ($node) = @_;
	my @pids;

	foreach my $step (sub { $node->{_pid} }, sub { SnowflakeTest::children($node->{_pid}) })
	{
		my @more = $step->();

		kill 'STOP', @more;
		push @pids, @more;
		$frozen{ $node->name } = [@pids];
		poll('processes to stop', sub { !grep { process_state($_) !~ /^[TZ]?$/ } @more });
	}
}

sub thaw
{
	my ($node) = @_;

	kill 'CONT', reverse @{ delete $frozen{ $node->name } };
}

sub wait_for_number
{
	my ($node, $number) = @_;

	poll("node number " . ($number // '') . " of " . $node->name, sub {
			my $found = stat_of($node, 'node_number');

			# the first lease of a cluster is taken at its first id
			$node->psql('postgres', 'SET snowflake.max_wait = 0; SELECT snowflake_nextval()')
			  if $found eq '';
			return defined $number ? $found eq $number : $found ne '' });
	return stat_of($node, 'node_number');
}

sub wait_for_state
{
	my ($node, $state) = @_;

	poll("state $state of " . $node->name, sub { stat_of($node, 'state') eq $state });
}

sub nextval_error
{
	my ($node, $max_wait) = @_;
	my $start = time;
	my $error = sql_error($node, "SET snowflake.max_wait = '$max_wait'; SELECT snowflake_nextval()");

	return ($error, time - $start);
}

sub nextval_error_with_reason
{
	my ($node, $max_wait) = @_;
	my @result;

	poll('the reason', sub { @result = nextval_error($node, $max_wait); $result[0] !~ /gave up waiting|no answer yet/ });
	return @result;
}

sub ids_after
{
	my ($files, $seconds) = @_;

	return grep { id_time($_) > $seconds } read_ids(@$files);
}

END
{
	local $?;
	kill 'CONT', map { @$_ } values %frozen;
}

1;
