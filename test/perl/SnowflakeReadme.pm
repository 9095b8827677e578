# SnowflakeReadme.pm
#	  Reads a Markdown document, and compares what psql prints with what it shows.
#
#	  read_document(FILE)	returns its elements in order, each with file, line, section
#						("Reference/Parsing"), text and kind: heading, paragraph (a
#						list or table, too), code (with language and indent), marker
#	  examples(ELEMENTS)	returns the SQL blocks in order: sql, line and markers; expected, the
#						element of the code block that follows at once, if there is one
#	  table_rows(ELEMENTS)	the rows of all tables below their heads, each a list of cells
#	  anchors(ELEMENTS)		what a link can name after "#"
#	  comparable(OUTPUT, NAMES)
#						psql's output so that it can be compared as text: without the blanks
#						and lines that only align it; values of the columns of these names,
#						and those in lines that begin with such a word ("DETAIL:"), are
#						replaced by what they are, ID or TIME.  Returns the text, and the
#						names that were not there
package SnowflakeReadme;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(anchors comparable examples read_document table_rows);

my $TIME = qr/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\+\d\d/;
my $UUID = qr/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/;
my $ID = qr/\b\d{15,19}\b/;

sub read_document
{
	my ($file) = @_;
	my (@elements, @section, $code);
	my $paragraph;

	open my $in, '<', $file or die "$file: $!";
	while (my $line = <$in>)
	{
		my @place = (file => $file, line => $., section => join('/', @section));

		if ($code)
		{
			$line =~ s/^ {0,$code->{indent}}//;
			$code = undef, next if $line =~ /^```\s*$/;
			$code->{text} .= $line;
		}
		elsif ($line =~ /^( *)```(\w*)\s*$/)
		{
			$code = { kind => 'code', text => '', indent => length $1, language => lc $2, @place };
			push @elements, $code;
			$paragraph = undef;
		}
		elsif ($line =~ /^(#+) (.*?)\s*$/)
		{
			@section = (@section[ 0 .. length($1) - 3 ], $2) if length $1 > 1;
			push @elements, { kind => 'heading', text => $2, @place };
			$paragraph = undef;
		}
		elsif ($line =~ /^\s*<!-- test: (.*) -->\s*$/)
		{
			push @elements, { kind => 'marker', text => $1, @place };
			$paragraph = undef;
		}
		elsif ($line =~ /^\s*$/)
		{
			$paragraph = undef;
		}
		else
		{
			push @elements, $paragraph = { kind => 'paragraph', text => '', @place } unless $paragraph;
			$paragraph->{text} .= $line;
		}
	}
	die "$file: the code block of line $code->{line} has no end" if $code;
	return @elements;
}

sub examples
{
	my (@examples, @markers, $open);

	# The last one has the markers that nothing follows.
	foreach my $element (@_, { kind => 'end' })
	{
		if ($element->{kind} eq 'marker')
		{
			push @markers, $element;
			next;
		}
		if ($element->{kind} eq 'code' && $element->{language} eq 'sql')
		{
			$open = { sql => $element->{text}, line => $element->{line}, markers => [ map { $_->{text} } @markers ] };
			push @examples, $open;
			@markers = ();
			next;
		}
		if ($open && $element->{kind} eq 'code')
		{
			$open->{expected} = $element;
			push @{ $open->{markers} }, map { $_->{text} } @markers;
			@markers = ();
		}
		$open = undef;
		die "$markers[0]{file}:$markers[0]{line}: no SQL block follows this marker" if @markers;
	}
	return @examples;
}

sub table_rows
{
	my @rows;

	foreach my $element (@_)
	{
		next unless $element->{kind} eq 'paragraph' && $element->{text} =~ /^\|/;
		my (undef, undef, @lines) = split /\n/, $element->{text};
		push @rows, map { [ /\| *(.*?) *(?=\|)/g ] } @lines;
	}
	return @rows;
}

sub anchors
{
	return map { lc(s/[^\w -]//gr) =~ tr/ /-/r } map { $_->{text} } grep { $_->{kind} eq 'heading' } @_;
}

# What kind of value this is; words (the name of a host) are all alike.
sub kind_of
{
	my ($value) = @_;

	return $value eq '' ? ''
	  : $value =~ /^$TIME$/ ? 'TIME'
	  : $value =~ /^-?\d\d:\d\d:\d\d(\.\d+)?$/ ? 'SPAN'
	  : $value =~ /^$UUID$/ ? 'UUID'
	  : $value =~ /^$ID$/ ? 'ID'
	  : $value =~ /^-?\d+(\.\d+)?$/ ? 'NUMBER' : 'WORD';
}

sub comparable
{
	my ($output, @names) = @_;
	my @lines = grep { /\S/ } split /\n/, $output;
	my %differs = map { $_ => 0 } @names;
	my (@result, @columns, $expanded);

	while (defined(my $line = shift @lines))
	{
		my @cells = map { s/^\s+|\s+$//gr } split /\|/, $line, -1;

		if (@lines && $lines[0] =~ /^-+(\+-+)*$/)
		{
			shift @lines;
			@columns = @cells;
		}
		elsif ($line =~ /^(-\[ RECORD \d+ \])/)
		{
			$expanded = 1;
			@cells = $1;
		}
		elsif ($line =~ /^\(\d+ rows?\)$/)
		{
			@columns = ();
		}
		elsif (@columns || ($expanded && @cells > 1))
		{
			foreach my $i ($expanded ? 1 : 0 .. $#cells)
			{
				my $name = $expanded ? $cells[0] : $columns[$i];
				next unless defined $name && defined $differs{$name};
				$differs{$name} = 1;
				$cells[$i] = kind_of($cells[$i]);
			}
		}
		else
		{
			$expanded = 0;
			@cells = $line =~ s/\s+$//r;
			if ($line =~ /^(\w+): / && defined $differs{$1})
			{
				$differs{$1} = 1;
				$cells[0] =~ s/$TIME/TIME/g;
				$cells[0] =~ s/$UUID/UUID/g;
				$cells[0] =~ s/$ID/ID/g;
			}
		}
		push @result, join(' | ', @cells);
	}
	return (join('', map { "$_\n" } @result), grep { !$differs{$_} } @names);
}

1;
