# TortureFailover.pm
#	  The deployment "failover": nodes P and Q with automatic numbers, programs X and Y, and a
#	  registry with an asynchronous standby.  That is promoted, a few calls behind, while the old
#	  primary lives; all nodes know both hosts, two of them each in another order, so that both
#	  primaries grant and renew.  Each of these primaries is a history "G-N" to the checker.
#
#	  make_failover(%options)	options as of TortureWorld; returns all nodes by name
#	  failover_fault(), heal_failover()
#						for the process that things happen in
#	  registry_now()	the primary, as any process sees it: good for sql
#	  failover_name()	SQL for the name of a lease's server
#
# What the promise assumes is kept: the old primary is stopped before the next promotion, and all of its
# leases end; numbers are automatic; no clock is behind another one.  Sometimes the longest window has not
# passed: then the registry waits by itself.
package TortureFailover;

use strict;
use warnings;

use Exporter 'import';
use Time::HiRes qw(sleep time);
use TortureDeployment;
use TortureDirectory qw(run);
use TortureFaults;
use TortureLog;
use TortureProgram;
use TortureRegistry;
use TortureServer;

our @EXPORT = qw(failover_fault failover_name heal_failover make_failover registry_now);

use constant {
	MOST_PRIMARIES => 20,
	PORTS => [ 6120, 6121 ],
	# of a primary that no node is to reach any more
	AWAY => 20,
	# the least limit for ends, and the longest window
	LIMIT => '10 s',
	WINDOW => 20 };

my (%option, $primary, $standby, @nodes, @programs);
my $num_primaries = 1;

# For other processes: which one is the primary.
sub tell_primary
{
	open my $file, '>', "$option{out}/failover.new" or die "failover: $!\n";
	print $file "$primary->{name} $primary->{port} $primary->{base}";
	close $file;
	rename "$option{out}/failover.new", "$option{out}/failover" or die "failover: $!\n";
}

sub registry_now
{
	open my $file, '<', "$option{out}/failover" or die "failover: $!\n";
	my ($name, $port, $base) = split / /, <$file>;
	return TortureServer->new(name => $name, port => $port, base => $base, deployment => 'failover');
}

sub failover_name
{
	return join ' ', 'coalesce(name, CASE port', map({ "WHEN $_->{port} THEN '$_->{name}'" } @nodes), "ELSE 'nobody' END)";
}

# The history of a primary: empty, and complete for what was received before AS_OF.
sub begin_history
{
	my ($number, $as_of) = @_;
	my $name = "$option{out}/leases.G-$number";

	open my $file, '>', "$name.$$" or die "$name: $!\n";
	print $file "leases G-$number$_ $as_of\n" foreach '', '+';
	close $file;
	rename "$name.$$", $name or die "$name: $!\n";
}

sub make_standby
{
	my $until = time + 180;

	$standby->{name} = 'G-standby';
	$standby->forget;
	until ($primary->base_backup($standby->{dir}))
	{
		die "no base backup of $primary->{name}\n" if time > $until;
		run('rm', '-rf', $standby->{dir});
		sleep 0.3;
	}
	$standby->append('standby.signal', '');
	$standby->{settings} = {};
	$standby->configure(port => $standby->{port}, primary_conninfo => "host=$option{sockets} port=$primary->{port} user=postgres");
	$standby->write_shift;
	$standby->start;
}

sub make_node
{
	my ($name, $port, @ports) = @_;
	my $node = TortureServer->new(name => $name, port => $port, deployment => 'failover', forward => 1);

	push @nodes, $node;
	$node->create(settings('failover', "snowflake.registry = 'host=$option{sockets},$option{sockets} port=@{[ join ',', @ports ]} "
			  . "user=node target_session_attrs=read-write dbname=postgres'\n"));
	announce($name, 'failover', map { "G-$_" } 1 .. MOST_PRIMARIES);
	$node->set_clock(0);
	$node->start;
	create_extension($node);
	start_writers($node, qw(single extra));
}

# Java has no Unix sockets.  It looks again at a primary that it knows after a second.
sub make_program
{
	my ($name, @ports) = @_;
	my $program = TortureProgram->new(
		name => $name, deployment => 'failover', forward => 1, lease => $option{lease},
		url => 'jdbc:postgresql://' . join(',', map { "127.0.0.1:$_" } @ports)
		  . '/postgres?user=node&sslmode=disable&gssEncMode=disable&targetServerType=primary&hostRecheckSeconds=1',
		arguments => [ program_arguments('failover') ]);

	push @programs, $program;
	announce($name, 'failover', map { "G-$_" } 1 .. MOST_PRIMARIES);
	$program->create;
	$program->start;
}

sub make_failover
{
	%option = @_;
	($primary, $standby) = map {
		TortureServer->new(name => "G-$_", port => PORTS->[ $_ - 1 ], base => "$option{work}/failover$_", deployment => 'failover', forward => 1)
	} 1, 2;
	$primary->create($option{programs} ? "listen_addresses = '127.0.0.1'\n" : '');
	$primary->write_shift;
	$primary->start;
	make_leases($primary, LIMIT);
	make_role($primary);
	begin_history($_, '-') foreach 2 .. MOST_PRIMARIES;
	make_standby();
	make_node('P', 6122, @{ +PORTS });
	make_node('Q', 6123, reverse @{ +PORTS });
	if ($option{programs})
	{
		make_program('X', @{ +PORTS });
		make_program('Y', reverse @{ +PORTS });
	}
	tell_primary();
	return map { $_->{name} => $_ } @nodes, @programs;
}

# Both nodes take other numbers, at the same time.  (Programs do so by themselves, again and again.)
sub take_numbers
{
	my @pids = map { $_->fork_sql('SELECT snowflake_release()', seconds => 2) } @nodes;

	waitpid $_, 0 foreach @pids;
	sleep between(0.1, 0.5);
}

sub restart_node
{
	restart($nodes[ rand @nodes ], how => pick([ 3, 'kill' ], [ 1, 'immediate' ], [ 1, 'fast' ])->[1], same_clock => 1);
}

# With its clock left alone, like all here.
sub freeze_node
{
	my ($node, $kind) = @_;
	my $event = begin_event($node == $primary ? 'G' : $node->{name}, $kind);

	$node->freeze;
	sleep between(0.3, 2) * $option{lease};
	$node->thaw;
	end_event($event);
}

sub disturb_program
{
	return if !@programs;
	my $program = $programs[ rand @programs ];

	pick([ 2, sub { restart($program, how => 'kill', same_clock => 1) } ],
		[ 1, sub { restart($program, how => 'fast', same_clock => 1) } ],
		[ 1, sub { freeze_node($program, 'program frozen') } ])->[1]->();
}

# Where no node reaches it, for its last history.
sub end_old_primary
{
	my ($old) = @_;
	my $name = $old->{name};
	my $until = time + 120;

	$old->thaw;
	$old->end_by(pick([ 1, 'fast' ], [ 1, 'kill' ])->[1]);
	$old->gone(10) or kill KILL => $old->processes;
	$old->gone(10);
	my $ended = time;
	$old->{port} += AWAY;
	$old->configure(port => $old->{port});
	$old->start;
	until (dump_leases($old, $name, failover_name(), 1))
	{
		die "no history of $name\n" if time > $until;
		sleep 0.2;
	}
	kill KILL => $old->processes;
	$old->gone(10);
	$old->{port} -= AWAY;
	return $ended;
}

sub promote
{
	my $old = $primary;
	my $freeze = chance(0.3);

	return if $num_primaries == MOST_PRIMARIES;
	my $event = begin_event('G', 'registry promoted', $freeze ? 'the old one is frozen' : 'both live');

	# what nodes lease and renew from now on is lost
	$standby->configure(primary_conninfo => '');
	$standby->reload;
	sleep between(0.1, 1);
	take_numbers() for 1 .. 1 + int rand 3;
	$old->freeze if $freeze;
	begin_history(++$num_primaries, now());
	($standby->sql('SELECT pg_promote()', seconds => 60) // '') eq 't' or die "the standby of $old->{name} is not promoted\n";
	($primary, $standby) = ($standby, $old);
	$primary->{name} = "G-$num_primaries";
	tell_primary();
	for (1 .. 4)
	{
		take_numbers();
		restart_node() if chance(0.3);
		disturb_program() if chance(0.3);
		$old->thaw if $freeze && chance(0.5);
		sleep between(0.1, 0.4) * $option{lease};
	}
	my $ended = end_old_primary($old);
	take_numbers() if chance(0.5);
	my $wait = chance(0.5) ? WINDOW : $option{lease} + 0.5;
	sleep 0.1 while time < $ended + $wait;
	make_standby();
	end_event($event);
}


sub failover_fault
{
	pick([ 4, \&promote ], [ 2, \&restart_node ], [ 2, sub { restart($primary, same_clock => 1) } ],
		[ 1, sub { freeze_node($primary, 'registry frozen') } ],
		[ 2, \&take_numbers ], [ 3, \&disturb_program ])->[1]->();
}

sub heal_failover
{
	foreach my $server ($primary, @nodes, @programs)
	{
		$server->thaw;
		$server->start if !$server->postmaster || !$server->ready;
	}
}

1;
