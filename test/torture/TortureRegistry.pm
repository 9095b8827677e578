# TortureRegistry.pm
#	  The registry R of the deployment "mesh", the ways to it, and what happens to both.
#	  Each node has a network of its own to R, where networks can be made; all go through
#	  one proxy, which lets calls arrive late or once more.
#
#	  can_make_networks()	whether networks can be made here, and cut
#	  make_registry(%options)	options as of TortureWorld; returns R
#	  make_role(SERVER)	the role of nodes, in a registry
#	  GRANT_FUNCTIONS	the statements that give this role its rights
#	  registry_for(I), url_of_registry(I), address_of_registry(I)
#						for the node with the I-th network, from 1 on: settings; for a program the
#						JDBC URL; host and port
#	  set_links(PREFIX, STATE, I...)
#						cuts networks (down) or mends them (up)
#	  take_all(SECONDS)	all numbers that are free, for some seconds
#	  registry_fault(NODES)	lets one thing happen; NODES: servers that may be asked to release
#						their numbers
package TortureRegistry;

use strict;
use warnings;

use Exporter 'import';
use POSIX ();
use Time::HiRes qw(sleep time);
use TortureDeployment;
use TortureDirectory qw(as_user run);
use TortureFaults;
use TortureLog;
use TortureServer qw(launch);

our @EXPORT = qw(GRANT_FUNCTIONS address_of_registry can_make_networks make_registry make_role registry_fault registry_for set_links take_all
  url_of_registry);

use constant {
	PORT => 6100,
	PROXY_PORT => 6200 };
use constant GRANT_FUNCTIONS => <<'END';
GRANT USAGE ON SCHEMA snowflake TO node;
GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease TO node
END

my (%option, $registry);

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
	foreach my $i (1 .. $option{networks})
	{
		system("ip link add t$i type veth peer name r$i netns $child && "
			  . "ip addr add 10.77.$i.1/24 dev t$i && ip link set t$i up && "
			  . "nsenter -t $child -n sh -c 'ip addr add 10.77.$i.2/24 dev r$i && ip link set r$i up'") == 0
		  or die "cannot make a network\n";
	}
}

sub start_proxy
{
	my $listen = $option{net} ? PROXY_PORT : "$option{sockets}/.s.PGSQL." . PROXY_PORT;

	# Only root enters a network, before it becomes the user.
	launch("$option{out}/proxy.log", $option{net} ? ('nsenter', '-t', $option{net}, '-n') : (),
		as_user('perl', "$option{torture}/proxy", $listen, "$option{sockets}/.s.PGSQL." . PORT, "$option{out}/proxy"));
}

# Words for the proxy; none: all passes.
sub set_proxy
{
	my @words = @_;

	open my $file, '>', "$option{out}/proxy.new" or die "proxy: $!\n";
	print $file "@words\n";
	close $file;
	rename "$option{out}/proxy.new", "$option{out}/proxy" or die "proxy: $!\n";
}

sub registry_for
{
	my ($i) = @_;
	my $host = $option{net} ? "10.77.$i.2" : $option{sockets};

	return "snowflake.registry = 'host=$host port=@{[ PROXY_PORT ]} user=node dbname=postgres'\n";
}

# The proxy knows no encryption.
sub address_of_registry
{
	my ($i) = @_;

	return ("10.77.$i.2", PROXY_PORT);
}

sub url_of_registry
{
	return "jdbc:postgresql://@{[ join ':', address_of_registry(@_) ]}/postgres?user=node&sslmode=disable&gssEncMode=disable";
}

sub make_registry
{
	%option = @_;
	make_networks() if $option{networks};
	$registry =
	  TortureServer->new(name => 'R', port => PORT, deployment => 'mesh', mount => $option{mounts} ? 400 : 0);
	# a program of a fleet has a connection while it calls
	$registry->create($option{count} ? "max_connections = 200\n" : '');
	announce('R', 'mesh', 'R');
	$registry->set_clock(0);
	$registry->start;
	make_leases($registry);
	make_role($registry);
	start_proxy();
	return $registry;
}

# What a node needs, and nothing else.
sub make_role
{
	my ($server) = @_;

	$server->sql('CREATE ROLE node LOGIN; ' . GRANT_FUNCTIONS, seconds => 60) // die "cannot create the role\n";
}

#
# What happens
#

sub set_links
{
	my ($prefix, $state, @numbers) = @_;

	return if !$option{net};
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

# Each by another start.
sub take_all
{
	my ($seconds) = @_;
	my $last = (1 << worker_bits('mesh')) - 2;
	my $layout = layout_text('mesh');
	my $clock = now() + $registry->base;

	for (0 .. $last)
	{
		my $answer = $registry->sql(<<"END") // last;
SELECT snowflake.acquire_lease(jsonb_build_object('protocol', 1, 'start', gen_random_uuid(), 'call', 1, 'layout', '$layout',
	'kind', 'server', 'host_name', 'nobody', 'port', 1, 'system_identifier', 1, 'launched_at', $clock,
	'timeline', 1, 'clock', $clock, 'max_ahead', 1000000, 'window', $seconds * 1000000,
	'first_number', 0, 'last_number', $last, 'fixed', false)) ->> 'answer'
END
		last if $answer ne 'yes';
	}
}

sub use_up
{
	my $event = begin_event('R', 'numbers used up');

	take_all($option{lease});
	sleep $option{lease};
	end_event($event);
}

# All release their numbers and take others, at the same moment.
sub release_all
{
	my (@nodes) = @_;
	my $event = begin_event('R', 'all numbers released');

	for (1 .. 8)
	{
		my @pids = map { $_->fork_sql('SELECT snowflake_release()', seconds => 2) } @nodes;
		waitpid $_, 0 foreach @pids;
		sleep between(0.05, 0.3);
	}
	end_event($event);
}

# While nodes have much to ask for, and some of them restart.
sub disturb_calls
{
	my ($kind, $word, @nodes) = @_;
	my $event = begin_event('R', $kind);
	my $until = time + between(1, 2) * $option{lease};
	my @pids;

	set_proxy($word);
	while (time < $until)
	{
		my $node = $nodes[ rand @nodes ];

		push @pids, $node->fork_sql('SELECT snowflake_release()', seconds => 3);
		sleep between(0.1, 0.6);
		# the postmaster restarts both, the first with all other processes
		kill KILL => $node->pids_like(pick([ 1, LEASE_WORKER ], [ 1, HELPER ])->[1]) if chance(0.15);
	}
	set_proxy();
	waitpid $_, 0 foreach @pids;
	end_event($event);
}

sub registry_fault
{
	my (@nodes) = @_;

	pick(
		[ 4, sub { restart($registry) } ],
		[ 2, sub { freeze_for($registry, 'registry frozen', between(0.3, 2) * $option{lease}) } ],
		[ 2, sub {
			my $event = begin_event('R', 'registry down');
			restart($registry, before_start => sub { sleep between(0.5, 2) * $option{lease} });
			end_event($event);
		} ],
		[ $option{net} ? 2 : 0, sub { cut([ 1 .. $option{networks} ], between(0.3, 2) * $option{lease}) } ],
		[ $option{net} ? 3 : 0, sub { cut([ 1 + int rand $option{networks} ], between(0.3, 2) * $option{lease}) } ],
		[ 2, sub { step_clock($registry) } ],
		[ 3, sub { release_all(@nodes) } ],
		[ 3, sub { disturb_calls('calls late', 'late', @nodes) } ],
		[ 3, sub { disturb_calls('calls repeated', 'twice', @nodes) } ],
		[ 1, \&use_up ])->[1]->();
	sync_clock($registry) if chance(0.6);
}

1;
