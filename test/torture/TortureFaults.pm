# TortureFaults.pm
#	  What can happen to a server.  Each fault is logged as an event from its begin until
#	  the server answers again (or its cause is over); what happens while another
#	  fault lasts is an event in it.
#
#	  use_setup(out => DIR, lease => SECONDS)
#	  pick(LIST)		one of [WEIGHT, ...]
#	  between(A, B)		a number of seconds, random
#	  chance(P)
#	  server_faults(SERVER)
#						what can happen to any server, as a list of [WEIGHT, SUB]
#	  restart(SERVER, how => HOW, before_start => SUB, back => BOOL, restore => BOOL, same_clock => BOOL)
#						ends it in one of the ways of TortureServer (by default any) and starts
#						it; back: with the clock set back meanwhile, for sure; restore: from
#						its backup, for sure; same_clock: the clock is left alone
#	  during(SERVER, KIND, TEXT, SECONDS, BEGIN, END, CRASH, HOW)
#						a fault that lasts; CRASH is the probability that the server is killed
#						(or HOW) while it does, and comes back with the clock set back
#	  freeze_for(SERVER, KIND, SECONDS)
#						all of its processes
#	  signal_one(SERVER, KIND, SIGNAL, PATTERN)
#						a process whose title is like that, if there is one
#	  LEASE_WORKER, HELPER	patterns: the lease worker; the process that carries out its calls
#	  step_clock(SERVER), sync_clock(SERVER)
#						by any step; sets a clock that is behind those of the deployment
#
# Clocks.  A node number that was leased with a clock ahead is of no use to other servers
# before that time.  So that the few numbers here are not used up for hours, clocks that
# have fallen behind the greatest one of the deployment are set to that soon.
package TortureFaults;

use strict;
use warnings;

use Exporter 'import';
use POSIX ();
use Time::HiRes qw(sleep time);
use TortureLog;
use TortureServer;

our @EXPORT = qw(HELPER LEASE_WORKER between chance during freeze_for pick restart server_faults signal_one
  step_clock sync_clock use_setup);

use constant {
	LEASE_WORKER => qr/snowflake lease worker/,
	HELPER => qr/snowflake (?!lease worker)/ };

my %setup;

sub use_setup
{
	%setup = @_;
}

sub chance
{
	return rand() < $_[0];
}

sub between
{
	my ($least, $most) = @_;

	return $least + rand($most - $least);
}

sub pick
{
	my @list = @_;
	my $sum = 0;

	$sum += $_->[0] foreach @list;
	my $at = rand $sum;
	foreach my $item (@list)
	{
		$at -= $item->[0];
		return $item if $at < 0;
	}
	return $list[-1];
}

#
# The clock
#

# From 1 ms to 2 h, each order of magnitude as often as the others.
sub any_step
{
	return int(1000 * exp rand log 7.2e6);
}

sub text_of
{
	my ($offset) = @_;

	return sprintf '%+.3f s', $offset / 1e6;
}

sub sync_clock
{
	my ($server) = @_;
	my $base = $server->base;

	return if $server->{offset} >= $base;
	my $event =
	  begin_event($server->{name}, 'clock caught up', text_of($base - $server->{offset}));
	$server->set_clock($base);
	end_event($event);
}

sub step_clock
{
	my ($server) = @_;
	my $step = chance(0.4) ? int between(0.2e6, 4e6) : any_step();

	$step = -$step if chance(0.65) && !$server->{forward};
	my $event = begin_event($server->{name}, 'clock stepped', text_of($step));

	$server->set_clock($server->{offset} + $step);
	sleep between(0.3, 3);
	end_event($event);
}

# Mostly back, by little or by a lot.
sub step_while_down
{
	my ($server, $back) = @_;
	my $step = chance($back ? 0.85 : 0.6) ? int between(0.2e6, 4e6) : any_step();

	$step = -$step if ($back || chance(0.8)) && !$server->{forward};
	my $event = begin_event($server->{name}, 'clock stepped while down', text_of($step));
	$server->set_clock($server->{offset} + $step);
	end_event($event);
	return $step;
}

#
# Ends
#

sub restart
{
	my ($server, %option) = @_;
	my $step = 0;

	$option{how} //= pick([ 3, 'kill' ], [ 1, 'immediate' ], [ 2, 'fast' ],
		[ $server->{mount} ? 5 : 0, 'power' ])->[1];
	if ($option{how} eq 'power' && chance(0.6))
	{
		# All that was ever written is on disk, and nothing of what comes now that is not synced.
		$server->sql('CHECKPOINT');
		sleep between(0.5, 3);
	}
	my $event = begin_event($server->{name}, $server->end_kind($option{how}));
	$server->end_by($option{how});
	$option{before_start}->() if $option{before_start};
	$server->gone(10) or kill KILL => $server->processes;
	$step = step_while_down($server, $option{back})
	  if $server->{deployment} && !$option{same_clock} && ($option{back} || chance(0.6));
	restore($server) if $server->{backup} && ($option{restore} || chance(0.4));
	$server->start;
	# It is to issue ids with that clock.
	sleep between(1, 2) if $step < 0;
	end_event($event);
}

# A base backup takes the place of the data directory.
sub restore
{
	my ($server) = @_;
	my $event = begin_event($server->{name}, 'backup restored');

	$server->restore_from($server->{backup});
	end_event($event);
}

#
# Faults that last
#

sub during
{
	my ($server, $kind, $text, $seconds, $begin, $end, $crash, $how) = @_;
	my $event = begin_event($server->{name}, $kind, $text);

	$how //= 'kill';
	$begin->();
	sleep $seconds;
	if (chance($crash))
	{
		restart($server, how => $how, before_start => $end, back => 1);
	}
	else
	{
		$end->();
	}
	$server->start if !$server->postmaster;
	end_event($event);
}

sub freeze_for
{
	my ($server, $kind, $seconds) = @_;

	during($server, $kind, '', $seconds, sub { $server->freeze }, sub { $server->thaw }, 0.3);
}

sub freeze_one
{
	my ($server, $kind, $pattern) = @_;
	my @pids = $server->pids_like($pattern);

	return if !@pids;
	during($server, $kind, '', between(0.3, 2) * $setup{lease},
		sub { $server->freeze($pids[ rand @pids ]) },
		sub { $server->thaw }, 0.4);
}

# The server restarts its processes by itself, or only this one.
sub signal_one
{
	my ($server, $kind, $signal, $pattern) = @_;
	my @pids = $server->pids_like($pattern);

	return if !@pids;
	my $event = begin_event($server->{name}, $kind);
	kill $signal => $pids[ rand @pids ];
	sleep 0.2;
	for (1 .. 100)
	{
		last if $server->ready;
		sleep 0.1;
	}
	$server->start if !$server->postmaster;
	end_event($event);
}

# A process of ours cannot write WAL or make it durable: strace lets the calls fail.
sub break_calls
{
	my ($server) = @_;
	my ($process) = map { $server->pids_like($_) } HELPER, LEASE_WORKER;
	my $trace = "$setup{out}/strace.$server->{name}";
	my $calls = $server->{mount} && chance(0.5) ? 'fsync,fdatasync' : 'pwrite64';

	return if !$process;
	my $pid = fork // die "fork: $!\n";
	if ($pid == 0)
	{
		exec 'strace', '-qq', '-o', $trace, '-p', $process, '-e', "trace=$calls", '-e',
		  "inject=$calls:error=EIO"
		  or POSIX::_exit(127);
	}
	during(
		$server,
		'EIO in a lease',
		$calls,
		between(0.5, 4),
		sub { },
		sub {
			# It ends with the process, and before only if it could not attach.
			die "strace does not work\n" if waitpid($pid, POSIX::WNOHANG()) != 0 && $? != 0 && -d "/proc/$process";
			kill TERM => $pid;
			waitpid $pid, 0;
			unlink $trace;
		},
		0.3,
		# only then it matters whether they were synced
		$calls =~ /sync/ ? 'power' : 'kill');
}

sub fill_disk
{
	my ($server) = @_;

	during(
		$server,
		'disk full',
		'',
		between(0.5, 4),
		sub { $server->fill_disk },
		sub { $server->empty_disk },
		0.7);
}

sub release
{
	my ($server) = @_;
	my $event = begin_event($server->{name}, 'number released');

	for (1 .. 1 + int rand 3)
	{
		$server->sql('SELECT snowflake_release()');
		sleep between(0, 0.3);
	}
	end_event($event);
}

sub server_faults
{
	my ($server) = @_;
	my $user_backend = qr/^postgres: postgres /;

	return (
		[ 8, sub { restart($server) } ],
		[ 4, sub { step_clock($server) } ],
		[ 2, sub { freeze_for($server, 'server frozen', between(0.3, 2.5) * $setup{lease}) } ],
		[ 2, sub { freeze_one($server, 'lease worker frozen', LEASE_WORKER) } ],
		[ 2, sub { freeze_one($server, 'helper frozen', HELPER) } ],
		[ 1, sub { freeze_one($server, 'backend frozen', $user_backend) } ],
		[ 1, sub { signal_one($server, 'backend killed', 'KILL', $user_backend) } ],
		[ 1, sub { signal_one($server, 'lease worker killed', 'KILL', LEASE_WORKER) } ],
		[ 1, sub { signal_one($server, 'lease worker terminated', 'TERM', LEASE_WORKER) } ],
		[ 1, sub { signal_one($server, 'helper killed', 'KILL', HELPER) } ],
		[ 1, sub { signal_one($server, 'helper terminated', 'TERM', HELPER) } ],
		[ $setup{strace} ? 1 : 0, sub { break_calls($server) } ],
		[ $server->{mount} ? 1 : 0, sub { fill_disk($server) } ],
		[ 2, sub { release($server) } ],);
}

1;
