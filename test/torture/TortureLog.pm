# TortureLog.pm
#	  What happened when: the files from which the checker and the report work.  All
#	  processes of the torture append to them, a line at a time.  Times are microseconds
#	  of real time since 1970.
#
#	  log_to(DIRECTORY)	where the files are; to be called first
#	  now()
#	  begin_event(TARGET, KIND, TEXT), end_event(EVENT)
#						a fault at a server, in file "events"
#	  log_clock(SERVER, OFFSET)
#						before a server's clock is set to real time + OFFSET.  In file "clocks"
#	  log_clock_set(SERVER, SETTLE)
#						after that; it may be as before for another SETTLE microseconds
#	  log_world(LINE)	a line for the checker, in file "world"
#	  read_events(), clock_lines()
#						the events as hashes; the checker's lines about clocks
#	  raise_offset(NAME, OFFSET), greatest_offset(NAME)
#						the greatest offset that any clock of a deployment has had
package TortureLog;

use strict;
use warnings;

use Exporter 'import';
use Fcntl qw(:flock SEEK_SET);
use Time::HiRes ();

our @EXPORT = qw(begin_event clock_lines end_event greatest_offset log_clock log_clock_set log_to log_world now
  raise_offset read_events);

my $directory;
my $num_events = 0;

sub log_to
{
	($directory) = @_;
}

sub now
{
	return int(Time::HiRes::time() * 1e6);
}

# One write of a line is whole, whatever other processes append.
sub append
{
	my ($name, $line) = @_;

	open my $file, '>>', "$directory/$name" or die "$directory/$name: $!\n";
	syswrite $file, "$line\n";
	close $file;
}

sub lines
{
	my ($name) = @_;

	open my $file, '<', "$directory/$name" or return ();
	chomp(my @lines = <$file>);
	return @lines;
}

sub begin_event
{
	my ($target, $kind, $text) = @_;
	my $event = "$$." . ++$num_events;

	append('events', join "\t", 'begin', $event, now(), $target, $kind, $text // '');
	return $event;
}

sub end_event
{
	my ($event) = @_;

	append('events', join "\t", 'end', $event, now());
}

# In the order in which they began; "end" is missing while one goes on.
sub read_events
{
	my %events;

	foreach my $line (lines('events'))
	{
		my ($what, $id, $time, $target, $kind, $text) = split /\t/, $line;
		if ($what eq 'end')
		{
			$events{$id}{end} = $time;
			next;
		}
		$events{$id} = { begin => $time, target => $target, kind => $kind, text => $text // '' };
	}
	return sort { $a->{begin} <=> $b->{begin} } values %events;
}

sub log_clock
{
	my ($server, $offset) = @_;

	append('clocks', join ' ', $server, now(), $offset);
}

sub log_clock_set
{
	my ($server, $settle) = @_;

	append('clocks', join ' ', $server, now() + $settle);
}

sub clock_lines
{
	my (%steps, @lines);

	foreach my $line (lines('clocks'))
	{
		my ($server, $time, $offset) = split / /, $line;
		if (defined $offset)
		{
			push @{ $steps{$server} }, { from => $time, offset => $offset };
			next;
		}
		$steps{$server}[-1]{done} = $time;
	}
	foreach my $server (sort keys %steps)
	{
		my @steps = @{ $steps{$server} };
		for my $i (0 .. $#steps)
		{
			my $to = $i < $#steps ? $steps[ $i + 1 ]{done} : undef;
			push @lines, join ' ', 'clock', "$server$_", $steps[$i]{from}, $to // '-', $steps[$i]{offset} foreach '', '+';
		}
	}
	return @lines;
}

sub log_world
{
	append('world', @_);
}

sub raise_offset
{
	my ($name, $offset) = @_;

	open my $file, '+>>', "$directory/offset.$name" or die "offset.$name: $!\n";
	flock $file, LOCK_EX;
	seek $file, 0, SEEK_SET;
	my $greatest = <$file> // 0;
	if ($offset > $greatest)
	{
		truncate $file, 0;
		syswrite $file, $offset;
	}
	close $file;
}

sub greatest_offset
{
	my ($greatest) = lines("offset.$_[0]");

	return $greatest // 0;
}

1;
