#!/usr/bin/perl
#
# test/clients/blocks.pl DIRECTORY DOCUMENT...
#	  Takes the programs out of Markdown documents: each block of code below a comment
#	  "test: run NAME ..." or "test: file NAME" is written to DIRECTORY/NAME.  A block
#	  without a language that follows a program at once is what it prints, and goes to
#	  NAME.shown.  Prints "NAME WORDS" for each run of a program, in the order of the
#	  documents; a program that also runs through pgbouncer has two lines.  What is no trap
#	  runs "with snowflake_id", too, unless its words end with "not with snowflake_id".  For a
#	  file "checked by PROGRAM" it prints "PROGRAM check", and copies this from test/clients.
#
# A document that has code that nobody would run is refused: all blocks need a comment
# but those without a language and those of commands (sh).
use strict;
use warnings;

use File::Copy qw(copy);
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeReadme;

die "usage: $0 DIRECTORY DOCUMENT...\n" if @ARGV < 2;
my ($directory, @documents) = @ARGV;

my %extension = (js => 'mjs', python => 'py', java => 'java', sql => 'sql', go => 'go',
	php => 'php', ruby => 'rb', perl => 'pl', lua => 'lua');
my %allowed = map { $_ => 1 } 'setup', 'setup as admin', 'trap', 'trap rounds', 'via pgbouncer', 'trap via pgbouncer',
  'with snowflake_id';
my (%written, @problems);

sub problem
{
	my ($element, $text) = @_;

	push @problems, "$element->{file}:$element->{line}: $text\n";
}

sub write_block
{
	my ($name, $code) = @_;

	problem($code, "there is a $name already") if $written{$name}++;
	open my $out, '>', "$directory/$name" or die "$directory/$name: $!\n";
	print $out $code->{text};
	close $out or die "$directory/$name: $!\n";
}

# Returns the name of the program, if it is one.
sub take
{
	my ($marker, $code) = @_;

	my ($kind, $name, $words) = $marker->{text} =~ /^(run|file) ([A-Za-z0-9_][\w.-]*)((?: [\w=.-]+)*)$/
	  or return problem($marker, "cannot understand \"$marker->{text}\"");
	$words =~ s/^ //;
	write_block($name, $code);
	return if $kind eq 'file' && $words eq '';
	if ($kind eq 'file' && $words =~ /^checked by (\S+)$/)
	{
		copy("$FindBin::RealBin/$1", "$directory/$1") or return problem($marker, "test/clients/$1: $!");
		print "$1 check\n";
		return;
	}

	my $typed = $words =~ s/ ?not with snowflake_id$// ? undef
	  : $words =~ s/^trap rounds\K (exact with snowflake_id)$// ? $1
	  : $words eq '' || $words =~ /^also/ ? 'with snowflake_id'
	  : undef;
	my $also = $words =~ s/^also (via pgbouncer(?: with \w+=\w+)?)$// ? $1 : undef;
	my $plain = $words =~ s/ with \w+=\w+$//r;
	my $wanted = $extension{ $code->{language} } // '';
	problem($marker, "the words \"$words\" mean nothing") unless $kind eq 'run' && ($words eq '' || $allowed{$plain});
	problem($marker, "$name is not the name of a program in \"$code->{language}\"")
	  if $wanted eq '' || $name !~ /\.$wanted$/;
	print "$name $words\n";
	print "$name $also\n" if defined $also;
	print "$name $typed\n" if defined $typed;
	return $name;
}

sub take_all
{
	my ($document) = @_;
	my @elements = read_document($document);
	my ($marker, $program);

	foreach my $element (@elements)
	{
		if ($element->{kind} ne 'code')
		{
			problem($marker, 'no block follows') if $marker;
			$marker = $element->{kind} eq 'marker' ? $element : undef;
			$program = undef;
			next;
		}
		if ($marker)
		{
			$program = take($marker, $element);
		}
		elsif ($element->{language} eq '')
		{
			write_block("$program.shown", $element) if $program;
			$program = undef;
		}
		else
		{
			problem($element, "a block of $element->{language} that nobody runs") if $element->{language} ne 'sh';
			$program = undef;
		}
		$marker = undef;
	}
	problem($marker, 'no block follows') if $marker;

	# What read_document() does not take for the fence of a block would be overlooked.
	open my $in, '<', $document or die "$document: $!\n";
	my $fences = grep { /^[\s>]*(?:`{3}|~{3})/ } <$in>;
	push @problems, "$document: $fences fences, not two for each block\n"
	  if $fences != 2 * grep { $_->{kind} eq 'code' } @elements;
}

take_all($_) foreach @documents;
die @problems if @problems;
