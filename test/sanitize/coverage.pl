# coverage.pl GOAL [FILES]
#	  Reads what gcov --json-format --stdout prints for the objects of src/, prints a table of
#	  the lines of each file that ran and where those are that did not, and fails if
#	  less than GOAL percent of all did.  FILES, a regular expression, chooses files, of which
#	  the branches are counted, too (gcov -b).
#
# Run at the top of the tree that was compiled.  A line that is compiled several times (in
# headers) ran if any copy of it did.  Left out are lines with the comment GCOV_EXCL_LINE
# and those from one with GCOV_EXCL_START to one with GCOV_EXCL_STOP; they are counted.
use strict;
use warnings;
use JSON::PP;

my $goal = shift;
my $chosen = shift // '^src/';
my (%runs, %branches, %excluded);
my $json = JSON::PP->new;

# One JSON text for each object, a line each
while (my $text = <STDIN>)
{
	foreach my $file (@{ $json->decode($text)->{files} })
	{
		next unless $file->{file} =~ m{$chosen};
		foreach my $line (@{ $file->{lines} })
		{
			my $counts = $branches{ $file->{file} }{ $line->{line_number} } //= [];

			$runs{ $file->{file} }{ $line->{line_number} } += $line->{count};
			$counts->[$_] += $line->{branches}[$_]{count} foreach 0 .. $#{ $line->{branches} };
		}
	}
}
die "no counts were read\n" unless %runs;

foreach my $file (keys %runs)
{
	my $off = 0;

	open my $source, '<', $file or die "$file: $!\n";
	while (my $line = <$source>)
	{
		$off = 1 if $line =~ /GCOV_EXCL_START/;
		$excluded{$file}++ if ($off || $line =~ /GCOV_EXCL_LINE/) && defined delete $runs{$file}{$.};
		$off = 0 if $line =~ /GCOV_EXCL_STOP/;
	}
	die "$file: GCOV_EXCL_START has no end\n" if $off;
}

# "3, 7-9"
sub ranges
{
	my @ranges;

	foreach my $line (@_)
	{
		if (@ranges && $line == $ranges[-1][1] + 1) { $ranges[-1][1] = $line; }
		else { push @ranges, [ $line, $line ]; }
	}
	return join ', ', map { $_->[0] == $_->[1] ? $_->[0] : "$_->[0]-$_->[1]" } @ranges;
}

sub row
{
	my ($name, $ran, $lines, $rest) = @_;

	printf "%-28s %6d %6d %7.1f %%  %s\n", $name, $ran, $lines, 100 * $ran / ($lines || 1), $rest;
}

# The branches of lines: how many were taken, how many there are, and those that were not, by line
sub branches
{
	my ($file, @lines) = @_;
	my @all = map { @{ $branches{$file}{$_} } } @lines;

	return (scalar(grep { $_ > 0 } @all), scalar @all,
		map { my $line = $_; ($line) x !!grep { $_ == 0 } @{ $branches{$file}{$line} } } @lines);
}

my ($all_ran, $all_lines, $all_excluded) = (0, 0, 0);

printf "%-28s %6s %6s %9s  %s\n", 'file', 'ran', 'of', '', 'lines that did not run';
foreach my $file (sort keys %runs)
{
	my @lines = sort { $a <=> $b } keys %{ $runs{$file} };
	my @missed = grep { $runs{$file}{$_} == 0 } @lines;

	next unless @lines;
	row($file, @lines - @missed, scalar @lines, ranges(@missed));
	$all_ran += @lines - @missed;
	$all_lines += @lines;
	$all_excluded += $excluded{$file} // 0;
}
row('total', $all_ran, $all_lines, "($all_excluded lines left out that cannot run)");
if ($chosen ne '^src/')
{
	my ($all_taken, $all_branches) = (0, 0);

	printf "\n%-28s %6s %6s %9s  %s\n", 'file', 'taken', 'of', '', 'lines with branches that were not taken';
	foreach my $file (sort keys %runs)
	{
		my ($taken, $of, @missed) = branches($file, sort { $a <=> $b } grep { $runs{$file}{$_} > 0 } keys %{ $runs{$file} });

		row($file, $taken, $of, ranges(@missed));
		$all_taken += $taken;
		$all_branches += $of;
	}
	row('total', $all_taken, $all_branches, '(of lines that ran)');
}
exit(100 * $all_ran < $goal * $all_lines);
