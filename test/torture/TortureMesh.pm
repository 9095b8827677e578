# TortureMesh.pm
#	  The deployment "mesh": registry R; nodes A and B with automatic numbers, C
#	  with a fixed one; A2 and C2, clones that run beside A
#	  and C at times.  Their
#	  whole clocks are stepped.  There are so few numbers that they are used again all the time.
#
#	  make_mesh(%options)	options as of TortureWorld; returns the servers by name
#	  registry_fault(), node_fault(SERVER), copied_node_fault(SERVER)
#						let one thing happen to R, to a node, to one that has a clone
#	  free_fixed_number()	lets C have its number again, if another node has it
#	  can_make_networks()	whether networks can be made here, and cut
#	  mesh_holder()		SQL for the name of a lease's server
package TortureMesh;

use strict;
use warnings;

use Exporter 'import';
use Time::HiRes qw(sleep);
use TortureDeployment;
use TortureDirectory qw(run run_as_user);
use TortureFaults;
use TortureLog;
use TortureServer;

our @EXPORT_OK = 'can_make_networks';
our @EXPORT = qw(copied_node_fault free_fixed_number make_mesh mesh_holder node_fault registry_fault);

# Of C; the automatic ones may take it, too.
use constant FIXED_NUMBER => 1;

my (%option, %world);

#
# Setting up
#

sub can_make_networks
{
	return run(qw(ip link add probe0 type veth peer name probe1)) && run(qw(ip link del probe0));
}

# A pair of network interfaces between us and the registry for each node.
sub make_networks
{
	my $child = fork // die "fork: $!\n";

	if ($child == 0)
	{
		$SIG{TERM} = 'DEFAULT';
		exec 'unshare', '--net', 'sleep', 'infinity' or POSIX::_exit(127);
	}
	$option{net} = $child;
	# until it has its own
	sleep 0.02 until readlink("/proc/$child/ns/net") ne readlink('/proc/self/ns/net');
	system("nsenter -t $child -n ip link set lo up") == 0 or die "no network namespace\n";
	foreach my $i (1 .. 5)
	{
		system("ip link add t$i type veth peer name r$i netns $child && "
			  . "ip addr add 10.77.$i.1/24 dev t$i && ip link set t$i up && "
			  . "nsenter -t $child -n sh -c 'ip addr add 10.77.$i.2/24 dev r$i && ip link set r$i up'") == 0
		  or die "cannot make a network\n";
	}
}

sub registry_for
{
	my ($i) = @_;
	my $host = $option{net} ? "10.77.$i.2" : $option{sockets};

	return "snowflake.registry = 'host=$host port=$world{R}{port} user=node dbname=postgres'\n";
}

sub make_registry
{
	my $r = $world{R} = TortureServer->new(
		name => 'R', port => 6100,
		net => $option{net},
		mount => $option{mounts} ? 400 : 0);

	$r->create($option{net} ? "listen_addresses = '*'\n" : '');
	$r->append('pg_hba.conf', "host all all 10.77.0.0/16 trust\n");
	$r->start;
	create_extension($r);
	$r->sql('CREATE ROLE node LOGIN; GRANT USAGE ON SCHEMA snowflake TO node;
		GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease,
			snowflake.release_lease TO node', seconds => 60) // die "cannot create the role\n";
}

sub make_nodes
{
	my %nodes = (
		A => { port => 6101, net_to_registry => 1 },
		B => { port => 6102, net_to_registry => 2 },
		C => { port => 6103, net_to_registry => 3, fixed => 1, mount => $option{mounts} ? 400 : 0 });

	foreach my $name (sort keys %nodes)
	{
		my $server = $world{$name} =
		  TortureServer->new(name => $name, deployment => 'mesh', shifted => 1, %{ $nodes{$name} });

		$server->create(settings('mesh', registry_for($nodes{$name}{net_to_registry})
				  . ($server->{fixed} ? 'snowflake.worker_id = ' . FIXED_NUMBER . "\n" : '')));
		announce($name, 'mesh', 'R');
		$server->set_clock(0);
		$server->start;
		create_extension($server);
		$server->sql('SELECT snowflake_nextval()', seconds => 20);
	}
	my %clones = (A2 => { port => 6104, net_to_registry => 4 }, C2 => { port => 6108, net_to_registry => 5 });
	foreach my $name (sort keys %clones)
	{
		$world{$name} =
		  TortureServer->new(name => $name, deployment => 'mesh', shifted => 1, %{ $clones{$name} });
		announce($name, 'mesh', 'R');
	}
	back_up($_) foreach @world{qw(A C)};
	start_writers($world{$_}) foreach qw(A A2 B C C2);
}

sub make_mesh
{
	%option = @_;
	make_networks() if $option{networks};
	make_registry();
	make_nodes();
	return %world;
}

sub mesh_holder
{
	return join ' ', 'CASE port', (map { "WHEN $world{$_}{port} THEN '$_'" } qw(A A2 B C C2)),
	  "ELSE 'nobody' END";
}

#
# What happens
#

sub node_fault
{
	my ($server, @more) = @_;

	push @more, [ 3, sub { take_over($server) } ] if $server->{net_to_registry};
	push @more, [ 1, sub { change_number($server) } ], [ 2, sub { answer_late($server) } ];
	pick(server_faults($server), @more)->[1]->();
	sync_clock($server) if $server->{fixed} || chance(0.6);
	free_fixed_number() if $server->{name} eq 'C';
}

# If an automatic node has taken the number of the fixed one, which was away, it gives it back.
sub free_fixed_number
{
	return if ($world{C}->sql('SELECT state FROM pg_stat_snowflake LIMIT 1') // '') ne 'refused';
	$world{$_}->sql('SELECT snowflake_release() FROM pg_stat_snowflake WHERE node_number = ' . FIXED_NUMBER . ' LIMIT 1',
		seconds => 2)
	  foreach qw(A A2 B C2);
}

# A and C
sub copied_node_fault
{
	my ($server) = @_;

	# That of a fixed number goes on with it: only its row tells where.
	node_fault($server,
		[ $server->{fixed} ? 14 : 4,
			sub { go_back($server) } ],
		[ 3, sub { clone($server, $world{"$server->{name}2"}) } ], [ 2, sub { back_up($server) } ]);
}

# The backup of a server that has drawn since takes its place, with the clock set back.
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

# A base backup is started while the server goes on.
sub clone
{
	my ($server, $clone) = @_;

	$clone->end_by('kill');
	$clone->gone(10);
	$clone->forget;
	# Then the bound in the row is still that of the copied state file when the clone begins.
	my @worker = $server->pids_like(qr/snowflake lease worker/);
	my $hold = @worker && chance(0.5);
	$server->freeze(@worker) if $hold;
	my $copied = $server->base_backup($clone->{dir});
	$server->thaw if $hold && !$copied;
	if ($copied)
	{
		my $event = begin_event($server->{name}, 'clone');
		$clone->append('postgresql.conf',
			"port = $clone->{port}\n" . registry_for($clone->{net_to_registry}));
		$clone->set_clock($server->{offset});
		$clone->start;
		sleep 0.5 if $hold;
		$server->thaw if $hold;
		restart($server) if chance(0.3);
		freeze_for($server, 'server frozen', between(1, 2) * $option{lease}) if chance(0.5);
		sleep between(1, 4);
		$clone->end_by('kill');
		end_event($event);
	}
}

sub set_links
{
	my ($prefix, $state, @numbers) = @_;

	system("$prefix$_ $state") == 0 or die "cannot set the link $_ $state\n" foreach @numbers;
}

sub cut
{
	my ($numbers, $seconds) = @_;
	my $event = begin_event('R', 'registry cut off', @$numbers > 1 ? 'from all' : 'from one');
	my $prefix = chance(0.5) ? "nsenter -t $option{net} -n ip link set r" : 'ip link set t';

	set_links($prefix, 'down', @$numbers);
	sleep $seconds;
	set_links($prefix, 'up', @$numbers);
	end_event($event);
}

# Somebody takes all numbers that are free, for some seconds.
sub take_all
{
	my ($seconds) = @_;
	my $bits = worker_bits('mesh');
	my $last = (1 << $bits) - 2;
	my $layout = layout_text('mesh');
	my $clock = base('mesh') / 1e6;

	for (0 .. $last)
	{
		$world{R}->sql("SELECT snowflake.acquire_lease((SELECT extversion FROM pg_extension WHERE extname = 'snowflake'), gen_random_uuid(), NULL, '$layout', 0, $bits, 0,
			0, $last, false, true, clock_timestamp() + interval '1 s' * $clock, '1 s', '$seconds s',
			'nobody', 1, 1, 1, now())") // last;
	}
}

sub use_up
{
	my $event = begin_event('R', 'numbers used up');

	take_all($option{lease});
	sleep $option{lease};
	end_event($event);
}

# Another node, whose clients draw on, gets a number: the one that is longest unused.
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

# All let go of their numbers and take others, at the same moment.
sub release_all
{
	my $event = begin_event('R', 'all numbers released');

	for (1 .. 8)
	{
		my @pids = map { $_->fork_sql('SELECT snowflake_release()', seconds => 2) } @world{qw(A A2 B)};
		waitpid $_, 0 foreach @pids;
		sleep between(0.05, 0.3);
	}
	end_event($event);
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

# A node is frozen or cut off until its lease is over and somebody else has its number.
sub take_over
{
	my ($server) = @_;
	my $cut = $option{net} && chance(0.5);
	my $event = begin_event($server->{name}, 'taken over', $cut ? 'cut off' : 'frozen');

	my $number = $server->sql('SELECT node_number FROM pg_stat_snowflake LIMIT 1') // '';
	$cut ? set_links('ip link set t', 'down', $server->{net_to_registry}) : $server->freeze;
	sleep $option{lease} + between(0.2, 1.5);
	chance(0.3) ? take_all(1) : take_number($number, grep { $_ != $server } @world{qw(A B)});
	$cut ? set_links('ip link set t', 'up', $server->{net_to_registry}) : $server->thaw;
	sleep between(0.5, 1.5);
	end_event($event);
}

sub registry_fault
{
	my $r = $world{R};

	pick(
		[ 4, sub { restart($r) } ],
		[ 2, sub { freeze_for($r, 'registry frozen', between(0.3, 2) * $option{lease}) } ],
		[ 2, sub {
			my $event = begin_event('R', 'registry down');
			restart($r, before_start => sub { sleep between(0.5, 2) * $option{lease} });
			end_event($event);
		} ],
		[ $option{net} ? 2 : 0, sub { cut([ 1 .. 5 ], between(0.3, 2) * $option{lease}) } ],
		[ $option{net} ? 3 : 0, sub { cut([ 1 + int rand 5 ], between(0.3, 2) * $option{lease}) } ],
		[ 3, \&release_all ],
		[ 1, \&use_up ])->[1]->();
}

1;
