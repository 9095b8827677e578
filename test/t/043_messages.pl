# 043_messages.pl
#	  doc/troubleshooting.md has every message of the source, and no other: each message of
#	  ereport(), of a problem, a check hook or RAISE is in code at the start of an item of a list,
#	  with the SQLSTATE that it has in the source, or its level; "..." is what differs.  The section "Messages of
#	  PostgreSQL" has those that are not ours.  The errors in the README are among them.
#	  src/README has each file that raises an error that a call for an id can meet under what ends it,
#	  and the tests that are named there exist.  Needs no server.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeMessages;
use SnowflakeReadme;
use Test::More;

my $top = "$FindBin::RealBin/../..";

# The messages at the start of the items of these elements, with what follows in parentheses.
sub entries
{
	my @entries;

	foreach my $item (map { split /^(?=\* )/m, $_->{text} } grep { $_->{kind} eq 'paragraph' } @_)
	{
		my $text = $item =~ s/\s+/ /gr;
		$text =~ s/^\* // or next;
		push @entries, { text => $1, code => $2 } while $text =~ s/^`([^`]+)`(?: \(([^)]*)\))?,? ?//;
	}
	return @entries;
}

my @document = read_document("$top/doc/troubleshooting.md");
my @ours = entries(grep { $_->{section} !~ /^(Where to look|Messages of PostgreSQL)/ } @document);
my @messages = source_messages("$top/src");

# PostgreSQL's list of SQLSTATEs, by the names that C and PL/pgSQL have for them; two have one name.
chomp(my $share = `@{[ $ENV{PG_CONFIG} // 'pg_config' ]} --sharedir 2>/dev/null` // '');
my %sqlstate;
foreach my $line (-e "$share/errcodes.txt" ? split /\n/, slurp_file("$share/errcodes.txt") : ())
{
	my ($code, @names) = $line =~ /^(\w{5})\s+\w\s+(ERRCODE_\w+)\s*(\w*)/ or next;
	$sqlstate{$_} //= $code foreach @names;
}

cmp_ok(scalar @messages, '>', 120, 'messages in the source');
cmp_ok(scalar(grep { defined $_->{condition} } @messages), '>', 100, 'messages that have their SQLSTATE beside them');
foreach my $message (@messages)
{
	my @there = grep { $_->{text} =~ /^$message->{pattern}$/ } @ours;

	ok(scalar @there, "troubleshooting.md has \"$message->{text}\"") or diag($message->{file});
	next unless @there && %sqlstate && defined $message->{condition};
	my $code = $sqlstate{ $message->{condition} } // $message->{condition};
	like(join(' ', map { $_->{code} // '' } @there), qr/\b$code\b|of the reason/, "... with its SQLSTATE");
}
foreach my $entry (@ours)
{
	ok((grep { $entry->{text} =~ /^$_->{pattern}$/ } @messages), "the source has \"$entry->{text}\"");
	like($entry->{code} // '', qr/^(?:(?:[0-9A-Z]{5}, )*[0-9A-Z]{5}(?:; .*)?|LOG|NOTICE|WARNING|SQLSTATE of the reason)$/,
		"its SQLSTATE or level: $entry->{text}");
}

my %known = map { $_->{text} => $_->{code} } @ours;
my @frequent = entries(grep { $_->{section} eq 'Errors' } read_document("$top/README.md"));
is(scalar @frequent, 5, 'the README has five errors');
is($known{ $_->{text} }, $_->{code}, "troubleshooting.md has that of the README: $_->{text}") foreach @frequent;

# A hint never asks for what a guide allows only with precautions: it names the section that has them.
my @sources = map { { file => $_, text => slurp_file($_) } } glob "$top/src/*.c $top/src/*/*.c $top/src/sql/*/*.sql";
# a string of SQL can go on in the next line
$_->{text} =~ s/(?<!')'\n\s*'(?!')//g foreach grep { $_->{file} =~ /sql$/ } @sources;
# of refusals and warnings of the registry all texts
my $text = qr/'(?:[^']|'')*'/;
my @hints = map { my $source = $_; map { { file => $source->{file}, text => $_ =~ s/\\"/"/gr =~ s/''/'/gr } }
	$source->{text} =~ /"((?:[^"\\\n]|\\.)*)"/g, $source->{text} =~ /(?:HINT = (?:format\()?|CONSTANT text := )'((?:[^']|'')*)'/g,
	map { /($text)/g } $source->{text} =~ /\bsnowflake\.(?:refusal|warn)\(((?:[^;']|$text)*)/g } @sources;
my @careless = grep { !/\b[Ss]ee "[^"]+" in doc\// }
  grep { /DROP EXTENSION|[Dd]rop the extension|CREATE EXTENSION again|create it again|close_registry|take_over|ids_end_before|change_layout|leases_are_over/ }
  map { "$_->{file}: $_->{text}" } grep { $_->{text} =~ / / } @hints;
my @sections = map { $_->{text} =~ m{[Ss]ee "([^"]+)" in doc/(\w+\.md)} ? [ $1, $2 ] : () } @hints;

is(join("\n", @careless), '', 'no hint leaves out the precautions');
cmp_ok(scalar @sections, '>', 8, 'hints name sections');
foreach my $section (@sections)
{
	my ($title, $file) = @$section;

	ok((grep { $_->{kind} eq 'heading' && $_->{text} =~ /^#*\s*\Q$title\E$/ } read_document("$top/doc/$file")), "$file has the section \"$title\"");
}

# Messages that are a problem of ours begin the same way in the log.
is(join("\n", grep { !/^snowflake: / } map { $_->{text} } entries(grep { $_->{section} eq 'Messages in the log' } @document)),
	'', 'messages in the log begin with "snowflake: "');

#
# "Why there is no id" in src/README
#
my ($list) = slurp_file("$top/src/README") =~ /^Why there is no id\n-+\n(.*?)\n\n\n/ms;
my @rows;
foreach my $row (split /\n\n/, $list // '')
{
	my ($end, $tests, $places) = $row =~ /^(\S.*?)\n {4}\[(.*?)\]\n(.+)/s or next;

	push @rows, { end => $end =~ s/\s+/ /gr, tests => $tests =~ s/\s+/ /gr, files => [ $places =~ m{(\w+\.(?:c|sql))\b(?!/)}g ] };
}
my @met = grep { ($_->{level} // 'ERROR') eq 'ERROR' && (
		$_->{file} =~ m{/src/(?:snowflake|shmem|ids/\w+|lease/\w+|functions/nextval|registry/\w+)\.c$} ||
		$_->{file} =~ m{/sql/registry/(?:calls|rules|protocol|server)\.sql$} ||
		$_->{text} =~ /^the server was started/) } @messages;
sub raised_in
{
	my %file = map { $_ => 1 } @_;

	return grep { $file{ $_->{file} =~ s{.*/}{}r } } @met;
}

cmp_ok(scalar @rows, '>', 10, 'src/README has what ends a reason');
my %listed = map { $_->{text} => 1 } raised_in(map { @{ $_->{files} } } @rows);
is(join("\n", map { "$_->{file}: $_->{text}" } grep { !$listed{ $_->{text} } } @met), '', 'src/README has each file that raises one');
ok(raised_in(@{ $_->{files} }), "some are raised there: $_->{end}") foreach @rows;

# The tests of a row: one of test/t has an error of the row.
my ($walks) = slurp_file("$top/test/unit/reasons.c") =~ /^static const Reason reasons\[\] = \{(.*?)^\};/ms;
my @walks = ($walks // '') =~ /^\t\{"([^"]+)"/mg;
my %walked;

cmp_ok(scalar @walks, '>', 15, 'the unit test has reasons');
foreach my $row (@rows)
{
	my ($files, $names) = $row->{tests} =~ /^((?:t\/\d{3} ?)*)(?:, )?(?:unit: (.*))?$/;
	my @numbers = ($files // '') =~ /(\d+)/g;
	my @texts = map { slurp_file($_) =~ s/\\//gr } map { glob "$top/test/t/${_}_*.pl" } @numbers;
	# the longest part of each error that does not differ
	my @parts = map { (sort { length $b <=> length $a } split /%[-.\d]*[a-z]|[()"]/)[0] =~ s/^\s+|\s+$//gr }
	  map { $_->{text} } raised_in(@{ $row->{files} });

	ok(@numbers + length($names // ''), "it has tests: $row->{end}");
	is(scalar @texts, scalar @numbers, "which exist: $row->{tests}");
	foreach my $i (0 .. $#texts)
	{
		ok((grep { index($texts[$i], $_) >= 0 } @parts), "t/$numbers[$i] has one of the errors: $row->{end}");
	}
	$walked{$_} = 1 foreach split /, /, $names // '';
}
is(join(', ', sort keys %walked), join(', ', sort @walks), 'the reasons of the unit test are named');

done_testing();
