# TortureMover.pm
#	  The deployment "mover": a server M with automatic numbers, by its own table or by the
#	  registry R of the mesh, from one to the other by snowflake_change_registry() again and
#	  again.  Its ids are unique among themselves; those by R among all of the mesh as well.
#
#	  make_mover(%options)	options as of TortureWorld; returns M
#	  mover_fault(), heal_mover()
#						for the process that things happen in
#
# What the promise assumes is kept: if the old registry did not say which ids it has granted to
# this cluster, they are past, and the clock is never set back to before that.
package TortureMover;

use strict;
use warnings;

use Exporter 'import';
use List::Util qw(max);
use POSIX ();
use Time::HiRes qw(sleep);
use TortureDeployment;
use TortureFaults;
use TortureLog;
use TortureRegistry;
use TortureServer;

our @EXPORT = qw(heal_mover make_mover mover_fault);

# Of the networks to the registry.
use constant NETWORK => 7;

my (%option, $server);
my $uses = 'own';		# what its settings say: own or R
my $pending = 0;		# what its settings say has not been ordered yet

# In a file of its own: other processes, too, write the server's other settings.
sub write_registry
{
	my $name = "$server->{dir}/registry.conf";

	open my $file, '>', "$name.new" or die "$name.new: $!\n";
	print $file registry_for(NETWORK) if $uses eq 'R';
	close $file;
	rename "$name.new", $name or die "$name: $!\n";
	$server->reload;
}

sub make_mover
{
	%option = @_;
	$server = TortureServer->new(name => 'M', port => 6110, deployment => 'mover', clocks => 'mesh');
	$server->create(settings('mover', "include_if_exists = 'registry.conf'\n"));
	announce('M', 'mover', 'M', 'R:mesh');
	$server->set_clock(0);
	$server->start;
	create_extension($server);
	start_writers($server);
	return $server;
}

# "done", "done with a warning" or "failed"
sub order
{
	my $answer = $server->sql('SELECT snowflake_change_registry()', seconds => 15, messages => 1) // return 'failed';

	return $answer =~ /WARNING/ ? 'done with a warning' : 'done';
}

# The same, with something that happens meanwhile.
sub order_disturbed
{
	my $name = "$option{out}/order";
	my $pid = fork // die "fork: $!\n";

	unlink $name;
	if ($pid == 0)
	{
		my $result = order();
		open my $file, '>', $name or POSIX::_exit(1);
		print $file $result;
		close $file;
		POSIX::_exit(0);
	}
	# from 1 ms to 1 s
	sleep 0.001 * exp rand log 1000;
	pick(
		[ 2, sub { signal_one($server, 'helper killed', 'KILL', HELPER) } ],
		[ 1, sub { signal_one($server, 'helper terminated', 'TERM', HELPER) } ],
		[ 2, sub { signal_one($server, 'lease worker killed', 'KILL', LEASE_WORKER) } ],
		[ 1, sub { signal_one($server, 'lease worker terminated', 'TERM', LEASE_WORKER) } ],
		[ 2, sub { restart($server, how => 'kill', same_clock => 1) } ],
		[ 1, sub { restart($server, how => 'fast', same_clock => 1) } ])->[1]->();
	waitpid $pid, 0;
	open my $file, '<', $name or return 'failed';
	return <$file> // 'failed';
}

sub finish_change
{
	my ($times) = @_;

	for (1 .. $times)
	{
		last if !$pending;
		# after a crash the ids of the last lease are past
		sleep max 0.5, max_ahead('mover');
		$pending = 0 if order() ne 'failed';
	}
}

# Several numbers one after another, with a clock that is where ids of the other registry were
# issued.
sub take_numbers_back
{
	$server->set_clock($server->{offset} - int between(2e6, 8e6));
	# a start keeps away from its own earlier ids by itself
	restart($server, how => pick([ 1, 'kill' ], [ 1, 'immediate' ])->[1], same_clock => 1) if chance(0.7);
	for (1 .. 5)
	{
		sleep between(0.1, 0.4);
		$server->sql('SELECT snowflake_release()', seconds => 1);
	}
}

sub other
{
	return $uses eq 'own' ? 'R' : 'own';
}

# For some time the settings say something that was not ordered: no ids are issued then.
sub set_only
{
	my $event = begin_event('M', 'registry set, not changed', 'to ' . other());

	$uses = other();
	write_registry();
	take_numbers_back();
	sync_clock($server);
	$uses = other();
	write_registry();
	end_event($event);
}

# If the other one is a registry that does not answer, there is no way to it, and the next
# change leads back.
sub change
{
	my $disturbed = chance(0.5);
	my $event = begin_event('M', 'registry changed', 'to ' . other());

	$uses = other();
	$pending = 1;
	write_registry();
	sleep between(0, 0.5) if chance(0.5);
	sync_clock($server);
	sleep max_ahead('mover') + 0.1 if $uses eq 'own';
	my $result = $disturbed ? order_disturbed() : order();
	$pending = 0 if $result ne 'failed';
	my $all_known = $uses eq 'R' || $result eq 'done';
	$server->keep_clock_after(max_ahead('mover')) if !$all_known;
	finish_change(4);
	$server->keep_clock_after(max_ahead('mover')) if !$all_known;
	sleep between(0.1, 0.5);
	take_numbers_back() if $all_known && chance(0.7);
	end_event($event);
	# with ids before the next one
	sleep between(0.5, 1.5);
}

sub mover_fault
{
	pick(server_faults($server), [ 30, \&change ], [ 15, \&set_only ])->[1]->();
	sync_clock($server) if chance(0.6);
}

sub heal_mover
{
	$server->thaw;
	$server->start if !$server->postmaster || !$server->ready;
	write_registry();
	finish_change(60);
}

1;
