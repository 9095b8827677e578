# TortureTimeline.pm
#	  The picture of a torture: a row for each server, above the faults that happened to
#	  it, below how many ids its clients received.
#
#	  draw_timeline(FILE, EVENTS, RATE...)
#						EVENTS as of read_events; RATEs are [undef, server, begin in
#						microseconds, ids in 250 ms]
package TortureTimeline;

use strict;
use warnings;

use Exporter 'import';
use List::Util qw(max min);

our @EXPORT = qw(draw_timeline);

use constant {
	LEFT => 70,
	TOP => 30,
	ROW => 74,
	FAULTS => 30,		# of a row, for the faults; the rest is for the ids
	IDS => 36,
	BUCKET_US => 250_000,
};

my @colors = map { "#$_" } qw(4e79a7 f28e2b e15759 76b7b2 59a14f edc948 b07aa1 ff9da7 9c755f bab0ac
  1f4e79 b45f06 990000 0b5394 38761d 7f6000 741b47 cc4125 5b3a29 444444);

sub text_at
{
	my ($x, $y, $text, $more) = @_;

	return sprintf "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", $x, $y, $more // '', $text;
}

sub box
{
	my ($x, $y, $width, $height, $color, $title) = @_;

	return sprintf
	  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"><title>%s</title></rect>\n",
	  $x, $y, max($width, 1), $height, $color, $title;
}

# The primaries of the pair follow each other in two rows, an old one beside the new one.
sub row_of
{
	my ($server) = @_;

	return $server =~ /^L-(\d+)/ ? ($1 % 2 ? 'L odd' : 'L even') : $server;
}

# Faults that overlap stand in up to three lanes.
sub faults_of
{
	my ($events, $y, $x_of, $color_of) = @_;
	my @free = (0) x 3;
	my $svg = '';

	foreach my $event (@$events)
	{
		my $end = $event->{end} // $event->{begin};
		my ($lane) = grep { $free[$_] <= $event->{begin} } 0 .. $#free;
		$lane //= $#free;
		$free[$lane] = $end;
		$svg .= box($x_of->($event->{begin}), $y + $lane * FAULTS / 3,
			$x_of->($end) - $x_of->($event->{begin}), FAULTS / 3 - 1, $color_of->{ $event->{kind} },
			sprintf '%s %s (%.2f s)', @$event{qw(kind text)}, ($end - $event->{begin}) / 1e6);
	}
	return $svg;
}

# The height is the logarithm of the number.
sub ids_of
{
	my ($rates, $y, $x_of) = @_;
	my $most = log 1 + max 1, map { $_->[3] } @$rates;
	my $svg = '';

	foreach my $rate (@$rates)
	{
		my $height = IDS * log(1 + $rate->[3]) / $most;
		$svg .= box($x_of->($rate->[2]), $y + IDS - $height,
			$x_of->($rate->[2] + BUCKET_US) - $x_of->($rate->[2]), $height, '#a0cbe8', "$rate->[3] ids");
	}
	return $svg;
}

sub axis
{
	my ($from, $to, $x_of, $height) = @_;
	my $seconds = ($to - $from) / 1e6;
	my $step = $seconds > 300 ? 60 : $seconds > 60 ? 10 : 5;
	my $svg = '';

	for (my $t = 0; $t <= $seconds; $t += $step)
	{
		my $x = $x_of->($from + $t * 1e6);
		$svg .= sprintf "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>\n", $x, TOP - 8,
		  $x, $height;
		$svg .= text_at($x, TOP - 12, "$t s", 'text-anchor="middle"');
	}
	return $svg;
}

sub legend
{
	my ($y, $color_of) = @_;
	my $svg = '';
	my $i = 0;

	foreach my $kind (sort keys %$color_of)
	{
		my ($x, $line) = (LEFT + 220 * ($i % 5), $y + 18 * int($i / 5));
		$svg .= box($x, $line, 12, 12, $color_of->{$kind}, $kind) . text_at($x + 18, $line + 10, $kind);
		$i++;
	}
	return $svg;
}

sub draw_timeline
{
	my ($name, $events, @rates) = @_;
	my @times =
	  ((map { $_->{begin}, $_->{end} // () } @$events), map { $_->[2], $_->[2] + BUCKET_US } @rates);
	return if !@times;
	my ($from, $to) = (min(@times), max(@times));
	my $scale = min(20, max(2, 1600 / (($to - $from) / 1e6)));
	my $x_of = sub { LEFT + ($_[0] - $from) / 1e6 * $scale };
	my %servers = ((map { row_of($_->{target}) => 1 } @$events), map { row_of($_->[1]) => 1 } @rates);
	my %kinds = map { $_->{kind} => 1 } @$events;
	my @kinds = sort keys %kinds;
	my %color_of = map { $kinds[$_] => $colors[ $_ % @colors ] } 0 .. $#kinds;
	my ($y, $rows) = (TOP, '');

	foreach my $server (sort keys %servers)
	{
		$rows .= text_at(8, $y + 24, $server, 'font-weight="bold"');
		$rows .= faults_of([ grep { row_of($_->{target}) eq $server } @$events ], $y, $x_of, \%color_of);
		$rows .= ids_of([ grep { row_of($_->[1]) eq $server } @rates ], $y + FAULTS, $x_of);
		$y += ROW;
	}
	open my $file, '>', $name or die "$name: $!\n";
	printf $file "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
	  . "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
	  max($x_of->($to) + 20, LEFT + 1120), $y + 20 + 18 * (1 + $#kinds / 5);
	print $file axis($from, $to, $x_of, $y), $rows, legend($y + 8, \%color_of), "</svg>\n";
	close $file;
}

1;
