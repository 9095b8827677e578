# TortureWorld.pm
#	  All there is in the torture: five deployments, and what happens to them.
#
#	  "mesh"	nodes, clones, programs and a restored dump that share a registry: TortureMesh
#	  "mover"	a server that moves between its own tables and another registry: TortureMover
#	  "failover"	nodes and programs whose registry has an asynchronous standby that is promoted
#				beside it: TortureFailover
#	  "pair"	a primary and its standby without a registry: TorturePair
#	  "single"	F, a fixed number without a registry, where only what is durable in its own
#				table stands between a crash and the old ids
#
#	  With a fleet (TortureFleet), which has the machine's time, there is only "mesh".
#
#	  setup_world(%options)	makes all servers, starts them and their clients, and returns
#						the actors: names of those that something happens to, as a hash of
#						SUBs, each of which lets one fault happen
#	  heal(ACTOR)		in the process in which that actor's faults happened: makes them
#						undone
#	  dump_histories()	writes the histories of the leases to files, of those servers
#						that answer; true if all did
#	  all_issue()		when all is healed: ends the fleet, sets the clocks right and waits until
#						every server and program issues ids; returns the names of those that do not
#	  stop_programs()	after that
#
# Options: out, work, sockets, torture, bindir (directories: logs, data, sockets, our
# programs, PostgreSQL's), user ([UID, GID] or undef), networks (how many, or 0), mounts, strace,
# programs (whether they can be had), lease (seconds), rate, duration; of the fleet, count (of each
# language, or 0) and drivers (the command of each language)
package TortureWorld;

use strict;
use warnings;

use Exporter 'import';
use Time::HiRes qw(sleep time);
use TortureDeployment;
use TortureFailover;
use TortureFaults;
use TortureFleet;
use TortureLog;
use TortureMesh;
use TortureMover;
use TorturePair;
use TortureRegistry;
use TortureServer;

our @EXPORT = qw(all_issue dump_histories heal setup_world stop_programs);

use constant SINGLE_NUMBER => 5;

# The servers that last, by name; the pair's come and go.
my (%world, $fleet);

sub make_single
{
	my %option = @_;
	my $f = TortureServer->new(
		name => 'F', port => 6105, deployment => 'single', fixed => 1,
		mount => $option{mounts} ? 400 : 0);

	$f->create(settings('single', 'snowflake.worker_id = ' . SINGLE_NUMBER . "\n"));
	announce('F', 'single', 'F');
	$f->set_clock(0);
	$f->start;
	create_extension($f);
	start_writers($f);
	return $f;
}

sub mesh_actors
{
	return (
		(map { my $program = $world{$_}; ($_ => sub { program_fault($program) }) } mesh_programs()),
		R => sub { registry_fault(@world{qw(A A2 B)}) },
		A => sub { copied_node_fault($world{A}) },
		B => sub { node_fault($world{B}) },
		C => sub { copied_node_fault($world{C}) });
}

sub setup_fleet
{
	make_fleet(@_);
	$_->sync foreach values %world;
	return (
		mesh_actors(),
		D => sub { restored_fault(@world{qw(A R)}) },
		pool => \&pool_fault);
}

sub setup_world
{
	my %option = @_;

	mkdir "$option{out}/ids";
	chown @{ $option{user} }, "$option{out}/ids" if $option{user};
	use_setup(%option);
	describe_deployments(%option);
	%world = make_mesh(%option);
	$fleet = $option{count};
	return setup_fleet(%option) if $fleet;
	@world{qw(M S)} = make_mover(%option);
	$world{F} = make_single(%option);
	%world = (%world, make_failover(%option));
	make_pair(%option);
	$_->sync foreach values %world;

	return (
		mesh_actors(),
		D => sub { restored_fault(@world{qw(A M R)}) },
		F => \&single_fault,
		G => \&failover_fault,
		L => \&pair_fault,
		M => \&mover_fault);
}

# Another fixed number, and back.
sub change_number
{
	my ($server) = @_;
	my $other = int rand((1 << worker_bits('single')) - 1);
	my $event = begin_event($server->{name}, 'worker id changed', $other);

	foreach my $number ($other, SINGLE_NUMBER)
	{
		$server->configure('snowflake.worker_id' => $number);
		$server->reload;
		sleep between(0.2, 2);
		restart($server) if chance(0.2);
	}
	end_event($event);
}

sub single_fault
{
	my $f = $world{F};

	pick(server_faults($f),
		[ 1, sub { change_number($f) } ],
		[ 8, sub { restart($f, how => 'kill', back => chance(0.7)) } ],
		[ $f->{mount} ? 8 : 0, sub { restart($f, how => 'power', back => chance(0.7)) } ])->[1]->();
	sync_clock($f);
}

sub heal
{
	my ($actor) = @_;
	my $server = $world{$actor};

	return heal_pair() if $actor eq 'L';
	return heal_mover() if $actor eq 'M';
	return heal_failover() if $actor eq 'G';
	return end_restored() if $actor eq 'D';
	return heal_pool() if $actor eq 'pool';
	$server->thaw;
	$server->start if !$server->postmaster || !$server->ready;
}

sub dump_histories
{
	return dump_leases($world{R}, 'R', mesh_name(@world{qw(A A2 B C C2 D)})) if $fleet;
	my $pair = pair_now();
	my $registry = registry_now();

	return 6 == grep { $_ } dump_leases($world{R}, 'R', mesh_name(@world{qw(A A2 B C C2 D M)})),
	  dump_leases($world{M}, 'M', "'M'"), dump_leases($world{S}, 'S', "'M'"), dump_leases($world{F}, 'F', "'F'"),
	  dump_leases($pair, $pair->{name}, pair_name()), dump_leases($registry, $registry->{name}, failover_name());
}

sub programs
{
	return grep { $world{$_}->isa('TortureProgram') } sort keys %world;
}

sub stop_programs
{
	$world{$_}->end_by('fast') foreach programs();
}

sub all_issue
{
	my @silent = $fleet ? stop_fleet() : ();
	my %silent = map { $_ => $world{$_} } grep { $world{$_} } qw(A B C F M P Q), programs();
	my $until = time + 180;

	$silent{L} = pair_now() if !$fleet;
	$_->set_clock($_->base) foreach map({ $world{$_} // () } qw(R S)), values %silent;
	while (%silent && time < $until)
	{
		foreach my $name (sort keys %silent)
		{
			delete $silent{$name} if $silent{$name}->issues(10);
		}
		free_fixed_number() if $silent{C};
	}
	return @silent, sort keys %silent;
}

1;
