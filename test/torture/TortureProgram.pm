# TortureProgram.pm
#	  One program of the torture that is a node itself: Program.java, with the library of
#	  client/java.  It can be ended, frozen, started and have its clock set like a server
#	  (TortureServer), of which it is a kind.
#
#	  new(name => NAME, deployment => NAME, url => JDBC URL of the registry, arguments => [...],
#	      forward => BOOL)
#						ARGUMENTS: for Program.java, as KEY=VALUE
#	  end_by(HOW)		fast: it closes its Snowflake; any other: SIGKILL
#	  issues(SECONDS)	waits until it gets an id; true if it did
#
#	  program_faults(PROGRAM)	what can happen to any program, as a list of [WEIGHT, SUB]
package TortureProgram;

use strict;
use warnings;

use Exporter 'import';
use POSIX qw(ceil floor);
use Time::HiRes qw(clock_gettime sleep time CLOCK_MONOTONIC CLOCK_REALTIME);
use TortureDirectory qw(%place as_user run run_as_user);
use TortureFaults;
use TortureLog;
use TortureServer qw(launch);

our @ISA = 'TortureServer';
our @EXPORT = qw(program_faults);

# Of its logs, one for each thread; in bytes (log.h).
use constant KINDS => qw(single other batch);
use constant {
	RECORD_SIZE => 56,
	RUN_SIZE => 16 };

# What its ids go to; the rest is added by kind of client.
sub log_prefix
{
	my ($self) = @_;

	return "$place{out}/ids/$self->{name}";
}

# Before the first start.
sub create
{
	my ($self) = @_;

	$self->make_base;
	mkdir $self->{dir} or die "$self->{dir}: $!\n";
	chown @{ $place{user} }, $self->{dir} if $place{user};
	log_world("log @{[ $self->log_prefix ]}.$_ $self->{name} program") foreach KINDS;
	$self->set_clock(0);
}

# Where the next record begins, and how many ids this one has; nothing if there is no whole head.
sub read_record
{
	my ($file, $at) = @_;

	return if !seek($file, $at, 0) || read($file, my $record, RECORD_SIZE) != RECORD_SIZE;
	my ($runs, $ids) = (unpack 'L L q4 Q', $record)[ 1, 6 ];
	return ($at + RECORD_SIZE + RUN_SIZE * $runs, $ids);
}

# SIGKILL can end a write at the end of a page.  What the next program appends is not to be read
# as the rest of that record.
sub cut_torn_records
{
	my ($self) = @_;

	foreach my $kind (KINDS)
	{
		my $name = $self->log_prefix . ".$kind";
		open my $file, '+<:raw', $name or next;
		my $size = -s $file;
		my $end = 0;
		while (my ($next) = read_record($file, $end))
		{
			last if $next > $size;
			$end = $next;
		}
		truncate $file, $end or die "$name: $!\n";
	}
}

# Bounds for it, in microseconds, from the readings that were closest together.  It is the same for
# all processes while nobody sets the machine's clock.
sub real_minus_monotonic
{
	my ($least, $most);

	for (1 .. 1000)
	{
		my ($before, $real, $after) = map { clock_gettime($_) } CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_MONOTONIC;

		($least, $most) = ($real - $after, $real - $before)
		  if !defined $least || $after - $before < $most - $least;
	}
	return (sprintf('real_least=%d', floor($least * 1e6)), sprintf('real_most=%d', ceil($most * 1e6)));
}

# Little memory, and no time for optimizing compilers: there are several, and they are
# killed all the time.
sub start
{
	my ($self) = @_;

	$self->gone(10) or kill KILL => $self->processes;
	$self->gone(10);
	$self->cut_torn_records;
	launch("$place{out}/programs.log",
		as_user('env', '-C', $self->{dir}, "LD_PRELOAD=$place{torture}/shift.so", "SHIFT_FILE=$self->{base}/shift",
			'java', qw(-Xmx64m -Xss512k -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData), '-cp', $place{classes}, 'Program',
			"url=$self->{url}", "name=$self->{name}", "log=@{[ $self->log_prefix ]}", @{ $self->{arguments} },
			'seed=' . int(rand 2**31), real_minus_monotonic()));
	for (1 .. 200)
	{
		return 1 if $self->processes;
		sleep 0.05;
	}
	die "program $self->{name} does not start\n";
}

sub postmaster
{
	my ($self) = @_;
	my ($pid) = $self->processes;

	return $pid;
}

sub ready
{
	my ($self) = @_;

	return defined $self->postmaster;
}

sub end_kind
{
	my ($self, $how) = @_;

	return $how eq 'fast' ? 'program closed' : 'program killed';
}

sub end_by
{
	my ($self, $how) = @_;

	kill(($how eq 'fast' ? 'TERM' : 'KILL') => $self->processes);
	# it waits for a call that is out, and for the release
	$self->gone(20) if $how eq 'fast';
}

# Whether one of the records that were appended to its log since has ids.
sub issues
{
	my ($self, $seconds) = @_;
	my $name = $self->log_prefix . '.single';
	my $until = time + $seconds;
	my $at = -s $name // 0;

	while (time < $until)
	{
		sleep 0.1;
		open my $file, '<:raw', $name or next;
		my $next = $at;
		while (($next, my $ids) = read_record($file, $next))
		{
			return 1 if $ids > 0;
		}
	}
	return;
}

sub program_faults
{
	my ($program) = @_;

	return (
		[ 8, sub { restart($program, how => pick([ 3, 'kill' ], [ 1, 'fast' ])->[1]) } ],
		[ 4, sub { step_clock($program) } ],
		[ 3, sub { freeze_for($program, 'program frozen', between(0.3, 2.5) * $program->{lease}) } ]);
}

1;
