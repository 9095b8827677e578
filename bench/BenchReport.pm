# BenchReport.pm
#	  Samples in, results out: for a benchmark NAME the raw samples (NAME.tsv), tables
#	  with goals (NAME.md), and a picture of each figure (NAME-FIGURE.svg, by gnuplot).
#	  Bench.pm says what a figure and a goal are.
package BenchReport;

use strict;
use warnings;
use utf8;

use List::Util qw(min max uniq);
use POSIX ();

sub new
{
	my ($class, $name) = @_;

	return bless { name => $name, figures => [], goals => [], samples => [] }, $class;
}

sub figure
{
	my ($self, %figure) = @_;

	push @{ $self->{figures} }, { references => [], picture => 1, notes => [], %figure };
}

sub goal
{
	my ($self, %goal) = @_;

	push @{ $self->{goals} }, \%goal;
}

sub note
{
	my ($self, $id, $text) = @_;
	my ($figure) = grep { $_->{id} eq $id } @{ $self->{figures} };

	die "no figure $id" unless $figure;
	push @{ $figure->{notes} }, $text;
}

sub sample
{
	my ($self, $figure, $subject, $x, $run, $value) = @_;

	die "no value for $figure, $subject" unless defined $value;
	push @{ $self->{samples} }, [ $figure, $subject, $x // '', $run, $value ];
	$self->{value}{$figure}{$subject}{ $x // '' }{$run} = $value;
}

sub median
{
	my @sorted = sort { $a <=> $b } @_;

	return @sorted % 2 ? $sorted[$#sorted / 2] : ($sorted[$#sorted / 2] + $sorted[@sorted / 2]) / 2;
}

# Three significant digits.
sub digits
{
	my ($value) = @_;

	return '0' if $value == 0;
	return sprintf('%.0f', $value) if abs($value) >= 100;
	return sprintf('%.*f', abs($value) >= 10 ? 1 : abs($value) >= 0.1 ? 2 : 3, $value);
}

# What subject has for one x: its samples, or their ratios to the reference's of the
# same round.
sub values_of
{
	my ($self, $figure, $subject, $x, $reference) = @_;
	my $own = $self->{value}{$figure}{$subject}{ $x // '' } // {};
	my @runs = sort { $a <=> $b } keys %$own;

	return map { $own->{$_} } @runs unless defined $reference;
	my ($declared) = grep { $_->{id} eq $figure } @{ $self->{figures} };
	my $there = defined $declared->{x} && $reference =~ /^\Q$declared->{x}\E = (.+)$/ ? $1 : undef;
	my $other = defined $there ? $self->{value}{$figure}{$subject}{$there} :
	  $self->{value}{$figure}{$reference}{ $x // '' };
	$other //= {};
	return map { $own->{$_} / $other->{$_} } grep { $other->{$_} } @runs;
}

# In the order of their first samples... which is shuffled, so: declared order, else by
# name.
sub subjects_of
{
	my ($self, $figure) = @_;

	return @{ $figure->{subjects} } if $figure->{subjects};
	return sort keys %{ $self->{value}{ $figure->{id} } };
}

sub xs_of
{
	my ($self, $figure) = @_;
	my @xs = uniq map { $_->[2] } grep { $_->[0] eq $figure->{id} } @{ $self->{samples} };

	return grep { /[^\d.]/ || $_ eq '' } @xs if grep { !/^[\d.]+$/ } @xs;
	return sort { $a <=> $b } @xs;
}

sub cell
{
	my @values = @_;

	return '' unless @values;
	return digits(median(@values)) . ' (' . digits(min(@values)) . '–' . digits(max(@values)) . ')';
}

# The table of a figure: a row for each subject and x, a column for each reference.
sub table
{
	my ($self, $figure) = @_;
	my @references = @{ $figure->{references} };
	my @head = ('', defined $figure->{x} ? $figure->{x} : (),
		$figure->{absolute} || !@references ? $figure->{unit} : (), map { "ratio to $_" } @references);
	my @lines = ('| ' . join(' | ', @head) . ' |', '|' . ' --- |' x @head);

	foreach my $subject ($self->subjects_of($figure))
	{
		foreach my $x ($self->xs_of($figure))
		{
			my @own = $self->values_of($figure->{id}, $subject, $x);

			next unless @own;
			push @lines, '| ' . join(' | ', $subject, defined $figure->{x} ? $x : (),
				$figure->{absolute} || !@references ? cell(@own) : (),
				map { cell($self->values_of($figure->{id}, $subject, $x, $_)) } @references) . ' |';
		}
	}
	return join("\n", @lines) . "\n";
}

sub goal_table
{
	my ($self) = @_;
	my @lines = ('| goal | measured | |', '| --- | --- | --- |');

	return '' unless @{ $self->{goals} };
	foreach my $goal (@{ $self->{goals} })
	{
		my @values = $self->values_of(@$goal{qw(figure subject x reference)});
		my $bound = $goal->{at_most} // $goal->{at_least};

		die "no samples for the goal of $goal->{figure}, $goal->{subject}" unless @values;
		my $value = median(@values);
		my $met = defined $goal->{at_most} ? $value <= $bound : $value >= $bound;
		my ($figure) = grep { $_->{id} eq $goal->{figure} } @{ $self->{figures} };
		my $where = defined $goal->{x} ? ", $figure->{x} $goal->{x}" : '';

		push @lines, sprintf('| %s%s: at %s %s%s | %s | %s |', $goal->{label} // $goal->{subject}, $where,
			defined $goal->{at_most} ? 'most' : 'least', $bound,
			defined $goal->{reference} ? " × $goal->{reference}" : '', cell(@values), $met ? 'met' : 'missed');
	}
	return "### Goals\n\n" . join("\n", @lines) . "\n";
}

sub spill
{
	my ($path, $text) = @_;

	open my $file, '>:utf8', $path or die "$path: $!";
	print $file $text;
	close $file or die "$path: $!";
}

sub escape
{
	my ($text) = @_;

	$text =~ s/(["\\])/\\$1/g;
	$text =~ s/([_{}^@&~])/\\\\$1/g;
	return $text;
}

# Lines over x, or bars: medians with the least and the greatest.  Ratios to the first
# reference, or the samples themselves if there is none.
sub picture
{
	my ($self, $figure, $path) = @_;
	my $reference = $figure->{picture} eq 'samples' ? undef : $figure->{references}[0];
	my @subjects = $self->subjects_of($figure);
	my @xs = $self->xs_of($figure);
	my $lines = defined $figure->{x} && !grep { !/^[\d.]+$/ } @xs;
	my $what = defined $reference ? "ratio to $reference" : $figure->{unit};
	my $rows = 0;
	my ($data, @plots, @least) = ('');

	foreach my $subject (@subjects)
	{
		my @points;

		foreach my $x (@xs)
		{
			my @values = $self->values_of($figure->{id}, $subject, $x, $reference);

			next unless @values;
			my $label = escape($lines || $x eq '' ? $subject : @subjects == 1 ? $x : "$subject ($x)");
			push @least, min(@values);
			push @points, join(' ', $lines ? $x : ++$rows, median(@values), min(@values), max(@values), "\"$label\"");
		}
		next unless @points;
		my $block = '$d' . @plots;
		$data .= "$block << EOD\n" . join("\n", @points) . "\nEOD\n";
		push @plots, $lines
		  ? "$block using 1:2:3:4 with yerrorlines pt 7 ps 0.4 lw 1.5 title \"@{[ escape($subject) ]}\""
		  : "$block using 2:(-\$1):(base):2:(-\$1-0.38):(-\$1+0.38):yticlabels(5) with boxxyerror fs solid 0.6 lt 1 notitle, " .
		  "$block using 2:(-\$1):3:4 with xerrorbars pt 0 lc rgb 'black' notitle";
	}
	# bars begin at 0, or at the power of ten below all
	my $base = $figure->{logarithmic} ? 10**POSIX::floor(log(min(@least)) / log(10)) : $figure->{from} // 0;
	my $axis = $lines ? 'y' : 'x';
	my $height = $lines ? 420 : 90 + 24 * $rows;
	my $script = "set encoding utf8\nset terminal svg size 760,$height font 'sans,12' background rgb 'white'\n" .
	  "set output '$path'\nset title \"@{[ escape($figure->{title}) ]}\"\n" .
	  ($figure->{logarithmic} ? "set logscale $axis\n" : '') . "base = $base\nset ${axis}range [base:*]\n" .
	  ($lines ? "set logscale x @{[ max(@xs) > 4096 ? 10 : 2 ]}\nset xlabel \"@{[ escape($figure->{x}) ]}\"\nset key outside right top\n"
		: "set yrange [@{[ -$rows - 0.7 ]}:-0.3]\nunset key\n") .
	  "set ${axis}label \"@{[ escape($what) ]}\"\nset grid ${axis}\n$data" . 'plot ' . join(', ', @plots) . "\n";

	open my $gnuplot, '|-', 'gnuplot' or die "gnuplot: $!";
	binmode $gnuplot, ':utf8';
	print $gnuplot $script;
	close $gnuplot or die "gnuplot failed on:\n$script";
}

sub write
{
	my ($self, $dir, $machine, $runs) = @_;
	my $name = $self->{name};
	my $text = "## $name\n\n" . ($machine ? "$machine; " : '') . "$runs rounds: median (least–greatest).\n\n" . $self->goal_table;

	foreach my $figure (@{ $self->{figures} })
	{
		die "no samples of $figure->{id}" unless $self->{value}{ $figure->{id} };
		$text .= "\n### $figure->{title}\n\n" . join('', map { "$_\n\n" } @{ $figure->{notes} }) . $self->table($figure);
		$self->picture($figure, "$dir/$name-$figure->{id}.svg") if $figure->{picture};
	}
	spill("$dir/$name.md", $text);
	spill("$dir/$name.tsv", join("\n", "figure\tsubject\tx\tround\tvalue", map { join("\t", @$_) } @{ $self->{samples} }) . "\n");
}

1;
