# TortureMover.pm
#	  The deployment "mover": a server M with automatic numbers that moves from its own tables to
#	  the registry S, and back, again and again, by the steps of doc/operations.md: close_registry(),
#	  closed_registry(), take_over(), and snowflake.registry at any time.  Its ids are unique.
#
#	  make_mover(%options)	options as of TortureWorld; returns M and S
#	  mover_fault(), heal_mover()
#						for the process that things happen in
package TortureMover;

use strict;
use warnings;

use Exporter 'import';
use POSIX ();
use Time::HiRes qw(sleep);
use TortureDeployment;
use TortureFaults;
use TortureLog;
use TortureRegistry;
use TortureServer;

our @EXPORT = qw(heal_mover make_mover mover_fault);

use constant REGISTRY_PORT => 6111;

my (%option, $server, $registry);
my $set = 'own';		# what its settings say: own or S
my $open = 'own';		# which of the two is open

# In a file of its own: other processes, too, write the server's other settings.
sub set_registry
{
	my ($wanted) = @_;
	my $name = "$server->{dir}/registry.conf";

	$set = $wanted;
	open my $file, '>', "$name.new" or die "$name.new: $!\n";
	print $file "snowflake.registry = 'host=$option{sockets} port=@{[ REGISTRY_PORT ]} user=node dbname=postgres'\n"
	  if $set eq 'S';
	close $file;
	rename "$name.new", $name or die "$name: $!\n";
	$server->reload;
}

sub make_mover
{
	%option = @_;
	$registry = TortureServer->new(name => 'S', port => REGISTRY_PORT, deployment => 'mover');
	$registry->create('');
	announce('S', 'mover', 'S');
	$registry->set_clock(0);
	$registry->start;
	make_leases($registry);
	make_role($registry);
	$server = TortureServer->new(name => 'M', port => 6110, deployment => 'mover');
	$server->create(settings('mover', "include_if_exists = 'registry.conf'\n"));
	announce('M', 'mover', 'M', 'S');
	$server->set_clock(0);
	$server->start;
	create_extension($server);
	start_writers($server);
	return ($server, $registry);
}

sub other
{
	return $_[0] eq 'own' ? 'S' : 'own';
}

# Something that happens to one of the two meanwhile.
sub disturb
{
	# from 1 ms to 1 s
	sleep 0.001 * exp rand log 1000;
	pick(
		[ 2, sub { signal_one($server, 'helper killed', 'KILL', HELPER) } ],
		[ 1, sub { signal_one($server, 'helper terminated', 'TERM', HELPER) } ],
		[ 2, sub { signal_one($server, 'lease worker killed', 'KILL', LEASE_WORKER) } ],
		[ 1, sub { signal_one($server, 'lease worker terminated', 'TERM', LEASE_WORKER) } ],
		[ 2, sub { restart($server, how => 'kill', same_clock => 1) } ],
		[ 1, sub { restart($server, how => 'fast', same_clock => 1) } ],
		[ 2, sub { restart($registry, how => 'kill', same_clock => 1) } ],
		[ 2, sub { $server->sql('SELECT snowflake_release()', seconds => 1) } ])->[1]->();
}

# The statement, until it is carried out: what fails is run again, as an administrator would.
sub insist
{
	my ($on, $statement) = @_;

	for (1 .. 60)
	{
		my $answer = $on->sql($statement, seconds => 15);
		return $answer if defined $answer;
		$on->start if !$on->postmaster;
		sleep 0.5;
	}
	die "$on->{name} does not carry out: $statement\n";
}

# Has the one that is not open take over the other.
sub take_over_registry
{
	my ($old, $new) = $open eq 'own' ? ($server, $registry) : ($registry, $server);
	my $successor = insist($new, 'SELECT snowflake.successor()');

	insist($old, "SELECT snowflake.close_registry('$successor')");
	disturb() if chance(0.3);
	my $closed = insist($old, 'SELECT snowflake.closed_registry()');
	insist($new, "SELECT snowflake.take_over('$closed')");
	# a repetition changes nothing
	insist($new, "SELECT snowflake.take_over('$closed')") if chance(0.3);
	$open = other($open);
}

# Several numbers one after another, with a clock that is where ids of the other registry were
# issued.
sub take_numbers_back
{
	my $clock = now() + $server->{offset} - int between(2e6, 8e6);
	my $set_clock = sub { $server->set_clock($clock - now()) };

	# a start keeps away from its own earlier ids by itself; a restart may take seconds
	if (chance(0.8))
	{
		restart($server, how => pick([ 1, 'kill' ], [ 1, 'immediate' ])->[1], same_clock => 1, before_start => $set_clock);
	}
	else
	{
		$set_clock->();
	}
	for (1 .. 5)
	{
		sleep between(0.1, 0.4);
		$server->sql('SELECT snowflake_release()', seconds => 1);
	}
}

# For some time the settings name a registry that has not taken over the one that is used: no
# lease comes from there.
sub set_only
{
	my $event = begin_event('M', 'registry set, not moved', 'to ' . other($open));

	set_registry(other($open));
	take_numbers_back();
	sync_clock($server);
	set_registry($open);
	end_event($event);
}

# S is closed, and would refuse by itself.  One that was dropped and created again knows of nothing; ids of what
# comes now are later than its creation.
sub make_anew
{
	insist($registry, 'BEGIN; DROP EXTENSION snowflake_registry; SELECT torture.make_registry(); ' . GRANT_FUNCTIONS . '; COMMIT');
}

# The setting comes before the closing, between, or later.
sub move
{
	my $new = other($open);
	my $event = begin_event('M', 'registry moved', "to $new");

	# leases start at or after what the other clock says
	sync_clock($_) foreach $server, $registry;
	my $first = chance(0.5);
	if ($first)
	{
		set_registry($new);
		sleep between(0, 0.5) if chance(0.5);
		disturb() if chance(0.3);
		sync_clock($server);
	}
	take_over_registry();
	disturb() if chance(0.3);
	sleep between(0, 1.5 * $option{lease}) if !$first && chance(0.5);
	set_registry($new);
	disturb() if chance(0.3);
	sleep between(0.1, 1);
	take_numbers_back() if chance(0.7);
	make_anew() if $open eq 'own';
	end_event($event);
	# with ids before the next one
	sleep between(0.5, 1.5);
}

sub mover_fault
{
	pick(server_faults($server), [ 20, \&move ], [ 20, \&set_only ])->[1]->();
	sync_clock($server) if chance(0.6);
}

sub heal_mover
{
	$server->thaw;
	foreach my $one ($server, $registry)
	{
		$one->start if !$one->postmaster || !$one->ready;
	}
	set_registry($open);
}

1;
