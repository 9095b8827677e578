# Bench.pm
#	  What the benchmarks bench/*.pl share: rounds in which all candidates are measured
#	  one after the other, and servers to measure on.
#
# A benchmark declares figures, measures, and ends with finish():
#
#	  figure(id => 'call', title => 'Cost of one id', unit => 'ns', references => ['nextval']);
#	  goal(figure => 'call', subject => 'ours', reference => 'nextval', at_most => 0.45);
#	  rounds('call', undef, 'ours' => sub { ... }, 'nextval' => sub { ... });
#	  finish();
#
# Each sub returns one measured number.  See bench/run for the environment.
package Bench;

use strict;
use warnings;

use Exporter qw(import);
use List::Util qw(shuffle);

use BenchReport;
use BenchServer;

our @EXPORT = qw(figure goal note rounds each_round sample finish new_server quick progress wait_until);

our $runs = $ENV{BENCH_RUNS} // 7;
my ($name) = $0 =~ m{([^/]+)\.pl$};
my $report = BenchReport->new($name);

# quick(FULL, SMALL): FULL, but SMALL if this run only shows that it works.
sub quick
{
	my ($full, $small) = @_;

	return $ENV{BENCH_QUICK} ? $small : $full;
}

sub progress
{
	print STDERR "   @_\n";
}

# Declares a figure: a table and a picture.
#	  id			short name: letters and digits
#	  title			above the table
#	  unit			of the samples: 'ns', 'rows/s', 'bytes', ... (not shown unless absolute)
#	  references	subjects whose sample of the same round each sample is divided by; a
#					column each.  'clients = 1', if x is 'clients': the same subject there
#	  x				name of what varies along the rows ('clients'), if something does
#	  absolute		true: samples are counts that repeat (bytes, instructions); their
#					median is a column, too
#	  logarithmic	true: scale of y
#	  from			where the scale of y begins, if not at 0
#	  picture		false: none; 'samples': of the samples, not the ratios
sub figure
{
	return $report->figure(@_);
}

# A goal: figure, subject, reference, and at_most or at_least for the median of the
# ratios; x chooses the row.  With reference => undef the samples themselves are meant.
sub goal
{
	return $report->goal(@_);
}

# A sentence below the table of a figure: what was measured and how.
sub note
{
	return $report->note(@_);
}

# One number, of round $run (from 1).
sub sample
{
	my ($figure, $subject, $x, $run, $value) = @_;

	return $report->sample($figure, $subject, $x, $run, $value);
}

# Measures each candidate once a round, in an order of its own each time.  What comes
# first in a round that does not count (caches, connections) is up to the caller.
sub rounds
{
	my ($figure, $x, %candidates) = @_;

	foreach my $run (1 .. $runs)
	{
		progress("$figure" . (defined $x ? " $x" : '') . ": round $run of $runs");
		foreach my $subject (shuffle sort keys %candidates)
		{
			sample($figure, $subject, $x, $run, $candidates{$subject}->());
		}
	}
}

# The same where a measurement gives several samples, or needs something set up before: each
# part is called once a round, with the number of the round, and calls sample() itself.
sub each_round
{
	my ($what, @parts) = @_;

	foreach my $run (1 .. $runs)
	{
		progress("$what: round $run of $runs");
		$_->($run) foreach shuffle @parts;
	}
}

# Writes raw samples, table and pictures.  A figure without samples is an error.
sub finish
{
	return $report->write($ENV{BENCH_RESULTS}, $ENV{BENCH_MACHINE}, $runs);
}

# wait_until(WHAT, SECONDS, sub { ... }): until the sub returns true.
sub wait_until
{
	return BenchServer::wait_until(@_);
}

# A running server; see BenchServer.pm.
sub new_server
{
	return BenchServer->new(@_);
}

1;
