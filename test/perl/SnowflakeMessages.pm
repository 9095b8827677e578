# SnowflakeMessages.pm
#	  The messages in the source, as they are written there: those of ereport(), elog(ERROR),
#	  of check hooks, of problems (error.h), of results of registry calls, of RAISE, of refusals and warnings of the registry,
#	  and of lists of refusals.
#
#	  source_messages(DIRECTORY)	in the order of the files, each with file, text,
#						pattern, a regular expression for what is printed, and, of ereport()
#						and RAISE, level and condition: the name of the SQLSTATE, of a
#						registry's refusal the SQLSTATE
package SnowflakeMessages;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(source_messages);

# Which argument has the message.
my %argument_of = (
	errmsg => 0, errmsg_internal => 0, GUC_check_errmsg => 0, elog => 1, snowflake_problem_set => 2, refuse => 1,
	snowflake_result_error => 2, tell_error => 1, snprintf => 2);
my $calls = join '|', sort keys %argument_of;
my $literal = qr/"(?:[^"\\]|\\.)*"/;

sub read_file
{
	my ($file) = @_;

	open my $in, '<', $file or die "$file: $!";
	local $/;
	return scalar <$in>;
}

# The arguments of the call whose parenthesis is at the position of the text.
sub arguments_at
{
	my ($text, $from) = @_;
	my ($depth, $current, @arguments) = (0, '');

	pos($$text) = $from;
	while ($$text =~ /\G($literal|'(?:[^'\\]|\\.)'|[^"']|')/gcs)
	{
		my $token = $1;

		$depth-- if $token eq ')';
		return (@arguments, $current) if $token eq ')' && $depth == 0;
		if ($depth == 1 && $token eq ',')
		{
			push @arguments, $current;
			$current = '';
		}
		elsif ($depth > 0)
		{
			$current .= $token;
		}
		$depth++ if $token eq '(';
	}
	die 'a call has no end';
}

# The texts of an argument; "condition ? one : another" has two, a variable has no text.
sub texts
{
	my ($argument) = @_;
	my @literals;

	$argument =~ s/\b[A-Z]+INT64_FORMAT\b|\bINT64_FORMAT\b/"%d"/g;
	# what is joined to one text first
	1 while $argument =~ s/($literal)\s+($literal)/substr($1, 0, -1) . substr($2, 1)/e;
	push @literals, substr $1, 1, -1 while $argument =~ /($literal)/g;
	@literals = $literals[0] if @literals && $argument !~ /\?/;		# those of psprintf() are its format's
	return map { s/\\(.)/$1/gr } @literals;
}

sub c_messages
{
	my ($file) = @_;
	my $text = read_file($file) =~ s{/\*.*?\*/}{ }gsr =~ s/^#define.*?(?<!\\)$//gmsr;
	my @messages;

	while ($text =~ /\b($calls)\s*(?=\()/g)
	{
		my ($call, $next) = ($1, pos $text);
		my @arguments = arguments_at(\$text, $next);

		pos($text) = $next;
		next if $call eq 'elog' && $arguments[0] !~ /\b(ERROR|WARNING|LOG)\b/;
		next if $call eq 'snprintf' && $arguments[0] !~ /^\s*message\b/;
		my $begin = rindex $text, 'ereport(', $next;
		my ($condition) = $call eq 'errmsg' ? substr($text, $begin, $next - $begin) =~ /errcode\((ERRCODE_\w+)\)/ : ();
		my ($level) = $call eq 'elog' ? $arguments[0] =~ /(\w+)/ : $call =~ /^errmsg/ ? substr($text, $begin) =~ /^ereport\(\s*(\w+)/ : ();
		push @messages, map { [ $_, $condition, $level ] } texts($arguments[ $argument_of{$call} ] // '');
	}
	push @messages, map { [$_] } texts($1) while $text =~ /\bmessage\s*=\s*($literal)/g;
	return @messages;
}

sub sql_messages
{
	my ($file) = @_;
	# a string can go on in the next line
	my $text = read_file($file) =~ s/(?<!')'\n\s*'(?!')//gr;
	my @messages;

	while ($text =~ /\bRAISE\s+(EXCEPTION|WARNING|NOTICE|INFO|LOG)\s+('(?:[^']|'')*'(?:\s*,\s*(\w+))?)/g)
	{
		my ($level, $raised, $variable) = ($1 eq 'EXCEPTION' ? 'ERROR' : $1, $2, $3);
		my ($message) = $raised =~ /^'((?:[^']|'')*)'/;

		# the text is in a variable of its own, or comes from elsewhere
		($message) = $text =~ /\b$variable\b[^;]*?:=\s*format\(\s*'((?:[^']|'')*)'/ if $message eq '%' && defined $variable;
		next unless defined $message;
		my ($condition) = substr($text, pos $text) =~ /\A[^;]*?\bERRCODE = '(\w+)'/;
		push @messages, [ $message =~ s/''/'/gr =~ s/%[sIL]/%/gr =~ s/%/%s/gr, $condition, $level ];
	}
	# refusals: condition, message; in a list of them key, stage and column come first
	while ($text =~ /\b(?:SELECT (?:(?:\w+\.\w+, )?\d[^']*?)?|ROW\()'([a-z]+_[a-z_]+)',\s*(?:(?:pg_catalog\.)?format\(\s*)?('(?:[^']|'')*')/g)
	{
		my ($condition, $message) = ($1, substr $2, 1, -1);

		push @messages, [ $message =~ s/''/'/gr =~ s/%[sIL]/%s/gr, $condition ];
	}
	# that of several refusals
	push @messages, [ substr($1, 1, -1) =~ s/%[sIL]/%s/gr ] while $text =~ /\bformat\(('(?:[^']|'')*')[^']*?\) AS message\b/g;
	# of the registry: SQLSTATE, message; a guard's name, time, message
	while ($text =~ /\bsnowflake\.(?:refusal\('(\w{5})'|warn\('[a-z ]+',\s*\w+),\s*(?:format\(\s*)?('(?:[^']|'')*')/g)
	{
		my ($condition, $message) = ($1, substr $2, 1, -1);

		push @messages, [ $message =~ s/''/'/gr, $condition, defined $condition ? () : 'WARNING' ];
	}
	return @messages;
}

sub source_messages
{
	my ($directory) = @_;
	my @messages;

	foreach my $file (glob "$directory/*.[ch] $directory/*/*.[ch] $directory/sql/*/*.sql")
	{
		foreach my $message ($file =~ /sql$/ ? sql_messages($file) : c_messages($file))
		{
			my ($text, $condition, $level) = @$message;
			my @parts = split /%(?:%|[-+ #0-9.*]*(?:ll|l|z)?[a-z])/, $text, -1;

			# such as "snowflake: %s", which are other messages
			next unless join('', @parts) =~ s/^snowflake: //r =~ /\w/;
			push @messages, { file => $file, text => $text, pattern => join('.+', map { quotemeta } @parts),
				condition => $condition, level => $level };
		}
	}
	return @messages;
}

1;
