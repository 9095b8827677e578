# TortureMesh.pm
#	  The deployment "mesh": nodes A and B with automatic numbers, C with a fixed one, and the
#	  programs U, V and W, all by the registry R; A2 and C2, clones that run beside A and C at
#	  times; D, a new server that at times is made from a dump.  There are so few numbers that
#	  they are used again all the time.
#
#	  make_mesh(%options)	options as of TortureWorld; returns the servers and programs by name
#	  mesh_programs()	the names of those that there are
#	  node_fault(SERVER), copied_node_fault(SERVER), program_fault(PROGRAM)
#						let one thing happen to a node, to one that has a clone, to a program
#	  restored_fault(SERVERS)
#						a dump of one of these is restored in D, which joins
#	  end_restored()	stops D
#	  free_fixed_number()	lets C have its number again, if another node has it
#	  mesh_name(SERVERS)	SQL for the name of a lease's server, one of these
package TortureMesh;

use strict;
use warnings;

use Exporter 'import';
use List::Util 'max';
use Time::HiRes qw(sleep);
use TortureDeployment;
use TortureDirectory qw(run run_as_user);
use TortureFaults;
use TortureLog;
use TortureProgram;
use TortureRegistry;
use TortureServer;

our @EXPORT = qw(copied_node_fault end_restored free_fixed_number make_mesh mesh_name mesh_programs node_fault
  program_fault restored_fault);

# Of C; the automatic ones may take it, too.
use constant FIXED_NUMBER => 2;

my (%option, %world);

#
# Setting up
#

sub make_node
{
	my ($name, %more) = @_;

	$world{$name} = TortureServer->new(name => $name, deployment => 'mesh', %more);
	announce($name, 'mesh', 'R');
}

sub start_node
{
	my ($server) = @_;

	$server->create(settings('mesh', registry_for($server->{net_to_registry})
			  . ($server->{fixed} ? 'snowflake.worker_id = ' . FIXED_NUMBER . "\n" : '')));
	$server->set_clock(0);
	$server->start;
	create_extension($server);
	$server->sql('SELECT snowflake_nextval()', seconds => 20);
}

sub make_mesh
{
	%option = @_;
	$world{R} = make_registry(%option);
	make_node('A', port => 6101, net_to_registry => 1);
	make_node('B', port => 6102, net_to_registry => 2);
	make_node('C', port => 6103, net_to_registry => 3, fixed => 1, mount => $option{mounts} ? 400 : 0);
	make_node('A2', port => 6104, net_to_registry => 4);
	make_node('C2', port => 6108, net_to_registry => 5, fixed => 1);
	make_node('D', port => 6109, net_to_registry => 6);
	start_node($_) foreach @world{qw(A B C)};
	back_up($_) foreach @world{qw(A C)};
	start_writers($world{$_}) foreach qw(A A2 B C C2 D);
	my $network = 7;
	make_program($_, $network++) foreach mesh_programs();
	return %world;
}

sub mesh_programs
{
	return $option{programs} ? qw(U V W) : ();
}

sub make_program
{
	my ($name, $network) = @_;

	$world{$name} = TortureProgram->new(
		name => $name, deployment => 'mesh', net_to_registry => $network,
		url => url_of_registry($network), lease => $option{lease},
		arguments => [ program_arguments('mesh') ]);
	announce($name, 'mesh', 'R');
	$world{$name}->create;
	$world{$name}->start;
}

# A program says its name.
sub mesh_name
{
	return join ' ', 'coalesce(name, CASE port', (map { "WHEN $_->{port} THEN '$_->{name}'" } @_), "ELSE 'nobody' END)";
}

#
# What happens
#

sub node_fault
{
	my ($server, @more) = @_;

	pick(server_faults($server), @more,
		[ 3, sub { take_over($server) } ],
		[ 1, sub { change_number($server) } ],
		[ 2, sub { answer_late($server) } ])->[1]->();
	sync_clock($server) if $server->{fixed} || chance(0.6);
	free_fixed_number() if $server->{name} eq 'C';
}

sub program_fault
{
	my ($program) = @_;

	pick(program_faults($program),
		[ 3, sub { take_over($program) } ],
		[ 2, sub { answer_late($program) } ])->[1]->();
	sync_clock($program) if chance(0.6);
}

# If another server has the number of the fixed one, which was away, it gives it back.  Programs
# take another number every few seconds.
sub free_fixed_number
{
	my $ports = $world{R}->sql(<<"END") // return;
SELECT port FROM snowflake.worker_node
WHERE node_number = @{[ FIXED_NUMBER ]} AND closed_at IS NULL AND port <> $world{C}{port}
END
	foreach my $port (split /\n/, $ports)
	{
		my ($other) = grep { ($_->{port} // '') eq $port && $_->{name} ne 'R' } values %world;
		$other->sql('SELECT snowflake_release()', seconds => 2) if $other;
	}
}

# A and C
sub copied_node_fault
{
	my ($server) = @_;

	node_fault($server,
		[ 4, sub { go_back($server) } ],
		[ 3, sub { clone($server, $world{"$server->{name}2"}) } ],
		[ 2, sub { back_up($server) } ]);
}

# The backup of a server that has issued ids since takes its place, with the clock set back.
sub go_back
{
	my ($server) = @_;

	$server->sql('SELECT snowflake_nextval()') // return;
	restart($server, how => pick([ 4, 'fast' ], [ 1, 'kill' ])->[1], back => 1, restore => 1);
}

# A base backup, to be put in the place of the server's directory some time.
sub back_up
{
	my ($server) = @_;
	my $directory = "$option{work}/$server->{name}.backup";

	run('rm', '-rf', "$directory.new");
	return if !$server->base_backup("$directory.new");
	run('rm', '-rf', $directory);
	rename "$directory.new", $directory or die "$directory: $!\n";
	$server->{backup} = $directory;
}

# Another way to a number, and back.
sub change_number
{
	my ($server) = @_;
	my $usual = $server->{fixed} ? FIXED_NUMBER : 'auto';
	my $other = $server->{fixed} ? 'auto' : int rand((1 << worker_bits('mesh')) - 1);
	my $event = begin_event($server->{name}, 'worker id changed', $other);

	$server->configure('snowflake.worker_id' => $other);
	$server->reload;
	sleep between(0.2, 2);
	restart($server) if chance(0.2);
	$server->configure('snowflake.worker_id' => $usual);
	$server->reload;
	end_event($event);
}

sub stop_for_good
{
	my ($server) = @_;

	$server->end_by('kill');
	$server->gone(10) or kill KILL => $server->processes;
	$server->gone(10);
}

# A base backup is started while the server goes on.
sub clone
{
	my ($server, $clone) = @_;

	stop_for_good($clone);
	$clone->forget;
	return if !$server->base_backup($clone->{dir});
	my $event = begin_event($server->{name}, 'clone');
	$clone->append('postgresql.conf', "port = $clone->{port}\n" . registry_for($clone->{net_to_registry}));
	$clone->set_clock($server->{offset});
	$clone->start;
	restart($server) if chance(0.3);
	freeze_for($server, 'server frozen', between(1, 2) * $option{lease}) if chance(0.5);
	sleep between(1, 4);
	stop_for_good($clone);
	end_event($event);
}

# R takes over the registry that the record of a restored server names, if that is its own tables, which are closed.
# (Another one goes on, and R does not take it over as a lost one: D gets no ids then.)
sub join_mesh
{
	my ($d) = @_;

	return if ($d->sql('SELECT uses FROM snowflake.cluster') // '') ne 'own';
	my $successor = $world{R}->sql('SELECT snowflake.successor()') // return;
	$d->sql("SELECT snowflake.close_registry('$successor')", seconds => 20) // return;
	my $closed = $d->sql('SELECT snowflake.closed_registry()', seconds => 20) // return;
	$world{R}->sql("SELECT snowflake.take_over('$closed')", seconds => 20);
}

# The dump has the history of its server, which may be the registry, and where that server's
# numbers came from, which may be a registry of its own.  It is restored before clients know
# the new server, with our library or without it.
sub restored_fault
{
	my @sources = @_;
	my $d = $world{D};
	my $source = $sources[ rand @sources ];
	my $dump = "$option{work}/dump";
	my $port = $d->{port};

	stop_for_good($d);
	$d->forget;
	return if !run_as_user('timeout', 30, "$option{bindir}/pg_dumpall", '-h', $option{sockets}, '-p',
		$source->{port}, '-U', 'postgres', '-f', $dump);
	my $event = begin_event('D', 'dump restored', "of $source->{name}");
	$d->{settings} = {};
	# R may take over its ends, so no clock here may be behind those: a fixed number waits for them.
	$d->set_clock(max($world{B}->base, $source->base));
	$d->create(settings('mesh', registry_for($d->{net_to_registry})));
	$d->{port} += 20;
	$d->configure(port => $d->{port}, shared_preload_libraries => chance(0.5) ? 'snowflake' : '');
	$d->start;
	run_as_user("$option{bindir}/psql", '-X', '-q', '-h', $option{sockets}, '-p', $d->{port}, '-U', 'postgres',
		'-f', $dump, 'postgres');
	# a registry need not have it
	$d->sql('SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS snowflake', seconds => 10);
	$d->end_by('fast');
	$d->{port} = $port;
	$d->configure(port => $port, shared_preload_libraries => 'snowflake');
	$d->start;
	for (1 .. 3)
	{
		last if defined $d->sql('SELECT snowflake_nextval()', seconds => 10);
		join_mesh($d);
	}
	for (1 .. 1 + int rand 3)
	{
		sleep between(1, 2);
		pick(server_faults($d))->[1]->();
	}
	stop_for_good($d);
	end_event($event);
}

sub end_restored
{
	stop_for_good($world{D});
}

# Another node, whose clients go on, gets a number: the one that is longest unused.
sub take_number
{
	my ($number, @others) = @_;

	for (1 .. 8)
	{
		foreach my $other (@others)
		{
			$other->sql('SELECT snowflake_release()', seconds => 1);
			sleep 0.1;
			return if ($other->sql('SELECT node_number FROM pg_stat_snowflake LIMIT 1', seconds => 1) // '') eq $number;
		}
	}
}

# A number is granted by a clock that is set back before the answer is there.
sub answer_late
{
	my ($server) = @_;
	my $event = begin_event($server->{name}, 'registry answers late');

	restart($server, how => 'kill', before_start => sub { $world{R}->freeze });
	sleep 0.7;
	$server->set_clock($server->{offset} - int between(0.5e6, 5e6));
	$world{R}->thaw;
	sleep between(0.5, 1);
	end_event($event);
}

# A node is frozen or cut off until its lease is over and another one has its number.
sub take_over
{
	my ($server) = @_;
	my $cut = $option{networks} && chance(0.5);
	my $event = begin_event($server->{name}, 'taken over', $cut ? 'cut off' : 'frozen');

	my $number = $server->isa('TortureProgram')
	  ? $world{R}->sql("SELECT node_number FROM snowflake.leases WHERE name = '$server->{name}' ORDER BY leased_until DESC LIMIT 1")
	  : $server->sql('SELECT node_number FROM pg_stat_snowflake LIMIT 1');
	$cut ? set_links('ip link set t', 'down', $server->{net_to_registry}) : $server->freeze;
	sleep $option{lease} + between(0.2, 1.5);
	chance(0.3) ? take_all(1) : take_number($number // '', grep { $_ != $server } @world{qw(A B)});
	$cut ? set_links('ip link set t', 'up', $server->{net_to_registry}) : $server->thaw;
	sleep between(0.5, 1.5);
	end_event($event);
}

1;
