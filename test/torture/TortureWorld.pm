# TortureWorld.pm
#	  All there is in the torture: three deployments, and what happens to them.
#
#	  "mesh"	three nodes and two clones that share a registry: TortureMesh
#	  "pair"	a primary and its standby without a registry: TorturePair
#	  "single"	F, a fixed number without a registry, where only the state file stands
#				between a crash and the old ids
#
#	  setup_world(%options)	makes all servers, starts them and their clients, and returns
#						the actors: names of those that something happens to, as a hash of
#						SUBs, each of which lets one fault happen
#	  heal(ACTOR)		in the process in which that actor's faults happened: makes them
#						undone
#	  dump_histories()	writes the histories of the leases to files, of those servers
#						that answer; true if all did
#	  all_draw()		when all is healed: sets the clocks right and waits until every
#						server draws; returns the names of those that do not
#
# Options: out, work, sockets, torture (directories: logs, data, sockets, programs), user
# ([UID, GID] or undef), networks, mounts,
# strace (whether they can be had), lease (seconds), rate
package TortureWorld;

use strict;
use warnings;

use Exporter 'import';
use Time::HiRes qw(sleep time);
use TortureDeployment;
use TortureDirectory qw(run);
use TortureFaults;
use TortureLog;
use TortureMesh;
use TorturePair;
use TortureServer;

our @EXPORT = qw(all_draw dump_histories heal setup_world);

use constant SINGLE_NUMBER => 5;

# The servers that last, by name; the pair's come and go.
my %world;

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

sub setup_world
{
	my %option = @_;

	mkdir "$option{out}/ids";
	chown @{ $option{user} }, "$option{out}/ids" if $option{user};
	use_setup(%option);
	describe_deployments(%option);
	%world = make_mesh(%option);
	$world{F} = make_single(%option);
	make_pair(%option);
	run('sync');

	return (
		R => \&registry_fault,
		A => sub { copied_node_fault($world{A}) },
		B => sub { node_fault($world{B}) },
		C => sub { copied_node_fault($world{C}) },
		F => \&single_fault,
		L => \&pair_fault);
}

# What only the state file can stand.
sub single_fault
{
	my $f = $world{F};

	node_fault($f, [ 16, sub { break_state_file($f) } ], [ 2, sub { replace_state_file($f) } ],
		[ $f->{mount} ? 8 : 0, sub { restart($f, how => 'power', back => chance(0.7)) } ]);
}

sub heal
{
	my ($actor) = @_;
	my $server = $world{$actor};

	return heal_pair() if $actor eq 'L';
	$server->thaw;
	$server->start if !$server->postmaster || !$server->ready;
}

sub dump_histories
{
	my $pair = pair_now();

	return 3 == grep { $_ } dump_leases($world{R}, 'R', mesh_holder()), dump_leases($world{F}, 'F', "'F'"),
	  dump_leases($pair, $pair->{name}, PAIR_HOLDER);
}

sub all_draw
{
	my %silent = (L => pair_now(), map { $_ => $world{$_} } qw(A B C F));
	my $until = time + 180;

	$_->set_clock(base($_->{deployment})) foreach values %silent;
	while (%silent && time < $until)
	{
		foreach my $name (sort keys %silent)
		{
			delete $silent{$name}
			  if defined $silent{$name}->sql('SELECT snowflake_nextval()', seconds => 10);
		}
		free_fixed_number() if $silent{C};
	}
	return sort keys %silent;
}

1;
