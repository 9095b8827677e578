# BenchTurns.pm
#	  pgbench processes that take turns: one runs, the others are stopped.
#
#	  my $turns = BenchTurns->new($server, clients => 8, scripts => { 'ours' => FILE, ... });
#	  my ($seconds, $wal) = $turns->turn('ours', 0.2);
#	  $turns->end;
#
# All clients connect and prepare their statements once, so a turn can be short, and
# what the machine does besides falls on all subjects alike.  A turn ends when the
# statements that were under way are done; those are the only work that is not in its
# time, for all subjects the same number of them.
package BenchTurns;

use strict;
use warnings;

use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep time);

use BenchServer;

# Further: options, settings of the sessions as in PGOPTIONS.
sub new
{
	my ($class, $server, %what) = @_;
	my $self = bless { server => $server, clients => $what{clients}, pids => {} }, $class;

	foreach my $subject (sort keys %{ $what{scripts} })
	{
		local $ENV{PGOPTIONS} = $what{options} // '';
		local $ENV{PGAPPNAME} = 'turns';

		$self->{pids}{$subject} = $server->background('pgbench', '-n', '-M', 'prepared', '-c', $what{clients},
			'-j', $what{clients} > 1 ? 2 : 1, '-T', 100_000, '-f', $what{scripts}{$subject});
		$self->_wait_for_clients(scalar(keys %{ $self->{pids} }) * $what{clients});
		$self->_signal($subject, 'STOP');
	}
	$self->_position;
	return $self;
}

# Until all have sent their first statement.
sub _wait_for_clients
{
	my ($self, $wanted) = @_;
	my $deadline = time + 120;

	while ($self->{server}->sql(
		"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'turns' AND query <> ''") < $wanted)
	{
		$self->_check;
		die "the clients of pgbench do not come up\n" if time > $deadline;
		sleep 0.02;
	}
}

# Nothing that pgbench prints is of interest unless it ends too early.
sub _check
{
	my ($self) = @_;

	foreach my $subject (keys %{ $self->{pids} })
	{
		next unless waitpid($self->{pids}{$subject}, WNOHANG);
		delete $self->{pids}{$subject};
		die "pgbench of $subject has ended: " . $self->{server}->background_output . "\n";
	}
}

sub _signal
{
	my ($self, $subject, $signal) = @_;

	kill $signal, $self->{pids}{$subject} or die "pgbench of $subject is gone\n";
}

# The end of the WAL in bytes, once no statement runs any more.
sub _position
{
	my ($self) = @_;
	my $deadline = time + 60;

	while (time < $deadline)
	{
		my ($active, $position) = split /\|/, $self->{server}->sql(
			"SELECT count(*) FILTER (WHERE application_name = 'turns' AND state <> 'idle'),"
			  . " pg_current_wal_insert_lsn() - '0/0' FROM pg_stat_activity");

		return $self->{position} = $position if $active == 0;
	}
	die "statements do not end while their clients are stopped\n";
}

# Lets one run for so many seconds; returns how long it was, and the bytes of WAL that
# were written since the end of the last turn.
sub turn
{
	my ($self, $subject, $length) = @_;
	my $before = $self->{position};
	my $begin = time;

	$self->_signal($subject, 'CONT');
	sleep $length;
	$self->_signal($subject, 'STOP');
	my $seconds = time - $begin;
	$self->_check;
	return ($seconds, $self->_position - $before);
}

sub end
{
	my ($self) = @_;
	my @pids = values %{ delete $self->{pids} };

	$self->{pids} = {};
	BenchServer::end(@pids);
}

1;
