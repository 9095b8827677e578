# TortureReport.pm
#	  What a torture found, as text and as a picture.
#
#	  report(out => DIR, seed => N, since => TIME, found => 0 or 1, silent => [NAMES])
#						prints it, and writes torture.txt and torture.svg; returns how much
#						there is, besides, that should not be
#	  answer_lines(FILE, WORD)
#						the lines of the checker's answer that begin with a word, as lists
#	  with_commas(N)
package TortureReport;

use strict;
use warnings;

use Exporter 'import';
use List::Util qw(max min sum0);
use TortureLog;
use TortureTimeline;

# A client's last ids before a fault may be as old as this.
use constant CLIENT_US => 100_000;

our @EXPORT = qw(answer_lines report with_commas);

# What a statement may fail with: the server or its disk is away, there is no number, or it was
# ended.  Anything else is a finding.
use constant EXPECTED_ERROR => qr/^(08|25006|53[134]00|55000|55P03|57P0|58)/;

sub answer_lines
{
	my ($name, $word) = @_;

	open my $file, '<', $name or return ();
	return map { [split] } grep { /^$word / } <$file>;
}

sub with_commas
{
	my ($number) = @_;

	1 while $number =~ s/^(\d+)(\d{3})/$1,$2/;
	return $number;
}

# UTC, as the checker prints it and as servers log it.
sub time_text
{
	my ($time) = @_;
	my ($seconds, $minutes, $hours) = gmtime $time / 1e6;

	return sprintf '%02d:%02d:%02d.%03d', $hours, $minutes, $seconds, $time % 1_000_000 / 1000;
}

# The servers that a fault of this target is a fault for.
sub is_concerned
{
	my ($target, $server) = @_;

	return $target eq $server || ($target eq 'R' && $server =~ /^[ABCMUVW]$/);
}

# How long, in seconds, no client of a server got an id from some time in an event on.  After
# a promotion or pg_upgrade, no client of the new primary; the old one has gone then, which is
# no gap.
sub silence
{
	my ($event, $first_ids, @gaps) = @_;
	my ($number) = $event->{target} =~ /^L-(\d+)/;
	my $next = $number ? $first_ids->{ 'L-' . ($number + 1) } : undef;
	return $next ? max 0, ($next - $event->{begin}) / 1e6 : 0 if $event->{kind} =~ /^(promotion|pg_upgrade)$/;

	my $end = $event->{end} // $event->{begin};

	return max 0, map { (min($_->[3], $next // $_->[3]) - $_->[2]) / 1e6 }
	  grep { is_concerned($event->{target}, $_->[1]) && $_->[2] <= $end && $_->[2] >= $event->{begin} - CLIENT_US }
	  @gaps;
}

# java-12 is one of many, and asks only now and then.
sub is_of_fleet
{
	return $_[0] =~ /^[a-z]+-\d+$/;
}

sub shown_name
{
	my ($server) = @_;

	return is_of_fleet($server) ? $server =~ s/-.*//r : $server;
}

sub fault_table
{
	my ($answer) = @_;
	my @gaps = grep { !is_of_fleet($_->[1]) } answer_lines($answer, 'gap');
	my (%kinds, %first_ids);

	foreach my $rate (answer_lines($answer, 'rate'))
	{
		my (undef, $server, $time) = @$rate;
		$first_ids{$server} = min $time, $first_ids{$server} // $time;
	}
	foreach my $event (read_events())
	{
		my $kind = $kinds{ $event->{kind} } //= { times => 0, longest => 0, silence => 0 };
		$kind->{times}++;
		$kind->{longest} =
		  max $kind->{longest}, (($event->{end} // $event->{begin}) - $event->{begin}) / 1e6;
		$kind->{silence} = max $kind->{silence}, silence($event, \%first_ids, @gaps);
	}
	return join '',
	  sprintf("%-28s %6s %16s %16s\n", 'fault', 'times', 'longest, s', 'without ids, s'),
	  map { sprintf "%-28s %6d %16.1f %16.1f\n", $_, @{ $kinds{$_} }{qw(times longest silence)} } sort keys %kinds;
}

# L-2 before L-10
sub natural
{
	return $_[0] =~ s/(\d+)/sprintf '%09d', $1/er;
}

sub numbers_text
{
	return @_ > 20 ? @_ . ' different' : "@_";
}

# The rates of a fleet's programs, by language.
sub shown_rates
{
	my (@rates) = @_;
	my %sums;

	$sums{ shown_name($_->[1]) }{ $_->[2] } += $_->[3] foreach @rates;
	return map { my $name = $_; map { [ undef, $name, $_, $sums{$name}{$_} ] } sort { $a <=> $b } keys %{ $sums{$name} } } sort keys %sums;
}

sub server_table
{
	my ($answer) = @_;
	my (%ids, %numbers, %errors);

	foreach my $line (answer_lines($answer, 'ids'))
	{
		my (undef, $server, $number, $count) = @$line;
		$server = shown_name($server);
		$ids{$server} += $count;
		$numbers{$server}{$number} = 1;
	}
	$errors{ shown_name($_->[1]) }{ $_->[2] } += $_->[3] foreach answer_lines($answer, 'error');
	return join '', sprintf("%-8s %14s  %-16s %s\n", 'server', 'ids', 'node numbers', 'failed statements'), map {
		my $server = $_;
		sprintf "%-8s %14s  %-16s %s\n", $server, with_commas($ids{$server} // 0),
		  numbers_text(sort { $a <=> $b } keys %{ $numbers{$server} }),
		  join(' ', map { "$_ x $errors{$server}{$_}" } sort keys %{ $errors{$server} })
	} sort { natural($a) cmp natural($b) } keys %{ { %ids, %errors } };
}

# The first thing that was found, with the events and leases of its number around it.
sub history
{
	my ($out) = @_;
	my ($text, $from, $to, $node, $server) = ('');

	open my $file, '<', "$out/answer" or return '';
	while (<$file>)
	{
		if (/^violation/)
		{
			last if defined $node;
			($node) = /node=(\d+)/;
			($server) = /server=(\S+)/;
			$node //= 'unknown';
		}
		next if !defined $node || !/^violation|^  /;
		$text .= $_;
		foreach (/(?:sent|received)=(\d{15,})/g)
		{
			$from = min grep { defined } $from, $_;
			$to = max grep { defined } $to, $_;
		}
	}
	return $text if !$from;
	($from, $to) = ($from - 10e6, $to + 3e6);
	$text .= "events from 10 s before to 3 s after:\n";
	foreach my $event (read_events())
	{
		my $end = $event->{end} // $event->{begin};
		$text .= sprintf "  %s to %s  %s: %s %s\n", time_text($event->{begin}), time_text($end),
		  @$event{qw(target kind text)}
		  if $event->{begin} <= $to && $end >= $from;
	}
	$text .= "leases of number $node (history, server, row, recorded at, from and until by the node's clock, state):\n";
	foreach my $name (glob "$out/leases.*")
	{
		$text .= join '', map { join(' ', ' ', @$_[ 1, 2, 4 ], map({ /\d/ ? time_text($_) : $_ } @$_[ 5 .. 7 ]), $_->[8]) . "\n" }
		  grep { $_->[3] eq $node && $_->[5] >= $from && $_->[5] <= $to } answer_lines($name, 'lease');
	}
	return $text;
}

# Of servers that ended by themselves.
sub crashes
{
	my ($out) = @_;
	my @lines;

	foreach my $name (glob "$out/*.log")
	{
		open my $file, '<', $name or next;
		push @lines, grep { /TRAP:|terminated by signal (4|7|8|11)\b/ } <$file>;
	}
	chomp @lines;
	return @lines;
}

# What a server's log has of the last statement that failed, with its detail and hint.
sub last_error
{
	my ($out, $name) = @_;

	open my $file, '<', "$out/$name.log" or return '';
	my @lines = <$file>;
	my ($last) = grep { $lines[$_] =~ /ERROR:/ } reverse 0 .. $#lines;
	return '' if !defined $last;
	return join '', map { "  $_" } grep { defined && /ERROR:|DETAIL:|HINT:/ } @lines[ $last .. $last + 2 ];
}

sub report
{
	my %arg = @_;
	my $answer = "$arg{out}/answer";
	my ($total) = answer_lines($answer, 'total');
	my @events = read_events();
	my $unexpected = 0;
	my $text = "\n" . server_table($answer) . "\n" . fault_table($answer) . "\n";

	foreach my $line (grep { $_->[2] !~ EXPECTED_ERROR } answer_lines($answer, 'error'))
	{
		$text .= "unexpected: $line->[3] statements of $line->[1] failed with $line->[2]\n";
		$unexpected++;
	}
	foreach my $line (crashes($arg{out}))
	{
		$text .= "unexpected: $line\n";
		$unexpected++;
	}
	$text .= "These issue no ids, though all is well again: @{ $arg{silent} }\n" if @{ $arg{silent} };
	$text .= "$_:\n" . last_error($arg{out}, $_) foreach @{ $arg{silent} };
	if ($arg{found})
	{
		$text .= join '', map { "found: $_->[1] x $_->[2]\n" } answer_lines($answer, 'violations');
		$text .= "The shortest history that shows the first:\n" . history($arg{out});
	}
	$text .= sprintf "%s: seed %s, %d faults, %s ids checked, the leases of %s\n",
	  $arg{found} ? 'THE PROMISE IS BROKEN' : 'nothing found', $arg{seed}, scalar @events,
	  with_commas($total ? $total->[2] : 0),
	  with_commas(sum0 map { $_->[2] } answer_lines($answer, 'leased'));
	print $text;
	open my $file, '>', "$arg{out}/torture.txt" or die "torture.txt: $!\n";
	print $file $text;
	close $file;
	$_->{target} = shown_name($_->{target}) foreach @events;
	draw_timeline("$arg{out}/torture.svg", \@events, shown_rates(answer_lines($answer, 'rate')));
	return $unexpected;
}

1;
