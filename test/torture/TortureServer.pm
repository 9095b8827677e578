# TortureServer.pm
#	  One PostgreSQL server of the torture, and what can be done to it.
#
#	  new(name => NAME, port => PORT, deployment => NAME, ...)
#						options: mount => MEGABYTES, a file system of its own that can lose
#						its power; fixed => true if its worker id is; forward => true if
#						its clock is never to be set back
#	  start, end_by(HOW), ready, gone
#						HOW: kill (SIGKILL of the postmaster), power (loss), immediate, fast.
#						start returns when the server answers
#	  sql(STATEMENTS, database => NAME, seconds => 5, messages => BOOL)
#						what psql -At prints, with its messages if they are wanted; undef if it
#						failed
#	  fork_sql(...)		the same in a process of its own, which it returns
#	  processes, postmaster, pids_like(PATTERN), title_of(PID)
#	  freeze(PIDS), thaw
#	  set_clock(OFFSET)	in microseconds, of the whole server (shift.c); at once, also while it is
#						down
#	  base				the greatest offset that any clock of its deployment has had
#	  reload
#	  issues(SECONDS)	whether it issues an id within that time
#
#	  launch(LOG, COMMAND...)	in the background, not as a child of ours
#
# The object is good in one process at a time: it knows offset and settings.
package TortureServer;

use strict;
use warnings;

use Exporter 'import';
use POSIX ();
use Time::HiRes qw(sleep time);
use TortureDirectory qw(%place as_user run run_as_user);
use TortureLog;

our @ISA = 'TortureDirectory';
our @EXPORT_OK = qw(launch title_of);

# Until all statements that read the clock before have ended, mostly.
use constant SETTLE_US => 1_000_000;

# Not a child of ours, so that another process waits for it.
sub launch
{
	my ($log, @command) = @_;
	my $pid = fork // die "fork: $!\n";

	if ($pid == 0)
	{
		POSIX::setsid();
		$SIG{$_} = 'DEFAULT' foreach qw(INT TERM);
		POSIX::_exit(0) if fork;
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', $log;
		open STDERR, '>&', \*STDOUT;
		exec @command or POSIX::_exit(127);
	}
	1 until waitpid($pid, 0) != -1 || !$!{EINTR};
}

sub new
{
	my ($class, %self) = @_;
	my $self = bless { offset => 0, settings => {}, %self }, $class;

	$self->{base} //= "$place{work}/$self->{name}";
	$self->{dir} = "$self->{base}/data";
	return $self;
}

#
# Processes
#

sub processes
{
	my ($self) = @_;

	opendir my $proc, '/proc' or die "/proc: $!\n";
	return grep { /^\d+$/ && (readlink("/proc/$_/cwd") // '') eq $self->{dir} } readdir $proc;
}

sub title_of
{
	my ($pid) = @_;

	open my $file, '<', "/proc/$pid/cmdline" or return '';
	return <$file> // '';
}

# By what ps shows.
sub pids_like
{
	my ($self, $pattern) = @_;

	return grep { title_of($_) =~ $pattern } $self->processes;
}

sub postmaster
{
	my ($self) = @_;

	open my $file, '<', "$self->{dir}/postmaster.pid" or return;
	my $pid = <$file> // '';
	chomp $pid;
	return $pid =~ /^\d+$/ && (readlink("/proc/$pid/cwd") // '') eq $self->{dir} ? $pid : undef;
}

sub gone
{
	my ($self, $seconds) = @_;
	my $until = time + $seconds;

	while ($self->processes)
	{
		return if time > $until;
		sleep 0.02;
	}
	return 1;
}

sub ready
{
	my ($self) = @_;

	return run("$place{bindir}/pg_isready", '-q', '-h', $place{sockets}, '-p', $self->{port}, '-t', 1);
}

sub launch_postmaster
{
	my ($self) = @_;

	launch("$place{out}/$self->{name}.log", as_user('env', "LD_PRELOAD=$place{torture}/shift.so",
			"SHIFT_FILE=$self->{base}/shift", "$place{bindir}/postgres", '-D', $self->{dir}));
}

# Old processes end by themselves, unless they are busy: the new server waits for them.
sub start
{
	my ($self) = @_;
	my $until = time + 180;

	$self->gone(10) or kill KILL => $self->processes;
	$self->gone(10);
	while (time < $until)
	{
		$self->launch_postmaster if !$self->processes;
		for (1 .. 20)
		{
			return 1 if $self->ready;
			sleep 0.05;
		}
	}
	die "server $self->{name} does not start\n";
}

my %end_kind = (
	kill => 'postmaster killed',
	power => 'power loss',
	immediate => 'immediate stop',
	fast => 'fast stop',);

# What an end is called in reports.
sub end_kind
{
	my ($self, $how) = @_;

	return $end_kind{$how};
}

sub end_by
{
	my ($self, $how) = @_;

	if ($how eq 'power')
	{
		$self->cut_power;
		kill KILL => $self->processes;
		$self->gone(10);
		$self->mount_again;
		return;
	}
	if ($how eq 'kill')
	{
		my $postmaster = $self->postmaster;
		kill KILL => $postmaster if $postmaster;
		return;
	}
	return
	  if run_as_user("$place{bindir}/pg_ctl", '-D', $self->{dir}, '-m', $how, '-t', 20, '-w', '-s',
		'stop');
	kill KILL => $self->processes;
}

# Twice, for those that were started meanwhile.
sub freeze
{
	my ($self, @pids) = @_;

	return kill STOP => @pids if @pids;
	kill STOP => $self->processes for 1 .. 2;
}

sub thaw
{
	my ($self) = @_;

	kill CONT => $self->processes for 1 .. 2;
}

#
# SQL and the clock
#

sub psql
{
	my ($self, %options) = (shift, database => 'postgres', seconds => 5, @_);

	return ('timeout', $options{seconds}, "$place{bindir}/psql", '-XqAt', '-h', $place{sockets}, '-p',
		$self->{port}, '-U', 'postgres', '-d', $options{database}, '-v', 'ON_ERROR_STOP=1');
}

sub sql
{
	my ($self, $statements, %options) = @_;
	my $pid = open(my $psql, '-|') // die "psql: $!\n";

	if ($pid == 0)
	{
		open STDERR, '>&', \*STDOUT if $options{messages};
		exec $self->psql(%options), '-c', $statements or POSIX::_exit(127);
	}
	my $answer = do { local $/; <$psql> } // '';
	close $psql or return;
	chomp $answer;
	return $answer;
}

sub reload
{
	my ($self) = @_;
	my $postmaster = $self->postmaster;

	kill HUP => $postmaster if $postmaster;
}

sub issues
{
	my ($self, $seconds) = @_;

	return defined $self->sql('SELECT snowflake_nextval()', seconds => $seconds);
}

# The same in the background; the process that waits for it.
sub fork_sql
{
	my ($self, @statement) = @_;
	my $pid = fork // die "fork: $!\n";

	return $pid if $pid;
	$self->sql(@statement);
	POSIX::_exit(0);
}

sub base
{
	my ($self) = @_;

	return greatest_offset($self->{deployment});
}

sub set_clock
{
	my ($self, $offset) = @_;

	log_clock($self->{name}, $offset);
	$self->{offset} = $offset;
	raise_offset($self->{deployment}, $offset);
	$self->write_shift;
	log_clock_set($self->{name}, SETTLE_US);
}

1;
