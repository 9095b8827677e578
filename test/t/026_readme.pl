# 026_readme.pl
#	  README.md and the documents in doc/, doc/clients/ and client/ say what is so.
#
#	  Examples: each ```sql block is run by psql, in the order of the document, as a
#	  superuser in a database of a new server with TimeZone UTC.  doc/reference.md goes on
#	  where the README ends, and doc/operations.md has a database of that server, with both extensions; guides but
#	  doc/adopting.md have a database of that one's server, with the extension;
#	  doc/clients.md, doc/clients/ and doc/programs.md are run by make test-clients, doc/citus.md by make test-citus.  If a ``` block follows at once, it must be what psql printed, errors too (but their CONTEXT); the width of
#	  columns does not matter.  If none follows, there must be no error.  A comment
#	  before the block, or before its output, says what is different:
#
#		<!-- test: differ COLUMN, ... -->	values of these columns differ from run to run;
#			they must be of the same kind: an id, number, time, interval, UUID or word.
#			DETAIL (or another word a line begins with): times and ids in that line differ
#		<!-- test: restart -->	restarts the server before the block; its lease is closed then
#		<!-- test: restart with NAME = 'VALUE' -->	the same with another setting
#		<!-- test: crash -->	kills the server, and starts it again
#		<!-- test: skip, REASON -->	the block is not run
#		<!-- test: run by TEST, NAME -->	another test runs it, which finds it by the name
#
#	  When something differs, a copy of the document with what was printed is left beside
#	  the log of this test.
#
#	  Other blocks: settings are accepted by a server, and make knows the targets.  A table in
#	  doc/testing.md says for each document what its blocks are, and which test runs them.
#
#	  Reference: it has exactly the functions, arguments, settings, defaults and columns
#	  that the server has, and doc/layouts.md the presets, with all that is said of them;
#	  functions have an example.  The pictures are those that test/pictures draws.  Links lead
#	  somewhere, also where the Debian package installs the documents.  Lines have at most 100
#	  columns.  No connection string shows the password to a false server.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeReadme;
use File::Basename qw(basename dirname);
use IPC::Run ();

my $top = "$FindBin::RealBin/../..";
my @files = ("$top/README.md", glob "$top/doc/*.md $top/doc/clients/*.md $top/client/*/README.md");
my %document = map { $_ => [ read_document($_) ] } @files;
my @readme = @{ $document{"$top/README.md"} };
my @reference = @{ $document{"$top/doc/reference.md"} };
my %count = (run => 0, compared => 0, skipped => 0, elsewhere => 0);

$ENV{PGTZ} = 'UTC';

# After a crash, another layout starts when the earlier lease is over.  What examples print
# depends on the default of max_wait.
my $node = auto_node('readme', conf => "snowflake.lease_duration = '3s'\nsnowflake.max_wait = '5s'\n");

#
# Examples
#

# On a busy machine, the second that a server takes to close its lease when it stops can be too short.
sub restart_with_closed_lease
{
	my ($node) = @_;

	foreach (1 .. 20)
	{
		my $token = $node->safe_psql('postgres', 'SELECT token FROM snowflake.node_number WHERE token IS NOT NULL ORDER BY renewed_at DESC LIMIT 1');

		$node->restart;
		return if $node->safe_psql('postgres', "SELECT closed_at IS NOT NULL FROM snowflake.worker_node WHERE token = '$token'") eq 't';
		$node->psql('postgres', "SET snowflake.max_wait = '30s'; SELECT snowflake_nextval()");
	}
	die 'no restart closed the lease';
}

sub run_marker
{
	my ($label, $marker, $node) = @_;

	if ($marker =~ /^restart(?: with (\S+) = '(.*)')?$/)
	{
		set_conf($node, $1 => $2) if defined $1;
		restart_with_closed_lease($node);
	}
	elsif ($marker eq 'crash')
	{
		crash($node);
		$node->start;
	}
	else
	{
		die "$label: unknown marker \"$marker\"";
	}
	$node->psql('postgres', "SET snowflake.max_wait = '30s'; SELECT snowflake_nextval()");	# so that it has a lease, if it can have one
}

# Files that examples write go here.
my $directory = PostgreSQL::Test::Utils::tempdir;

sub run_sql
{
	my ($sql, $node, $database) = @_;
	my $output = '';

	IPC::Run::run([ $node->installed_command('psql'), '-X', '-v', 'SHOW_CONTEXT=never', '-d', $node->connstr($database) ],
		'<', \$sql, '>&', \$output, init => sub { chdir $directory or die "$directory: $!" })
	  or $output .= "FATAL:  psql failed\n";
	return $output =~ s/^psql:<stdin>:\d+: //mgr;
}

# Returns psql's output if the document shows another one.
sub check_example
{
	my ($label, $example, $node, $database) = @_;
	my @differ = map { /^differ (.*)/ ? split(/, */, $1) : () } @{ $example->{markers} };

	if (my ($reason) = map { /^skip, (.+)/ ? $1 : () } @{ $example->{markers} })
	{
		note("$label is not run: $reason");
		$count{skipped}++;
		return undef;
	}
	if (my ($test, $name) = map { /^run by (\S+), (.+)/ ? ($1, $2) : () } @{ $example->{markers} })
	{
		ok(-e "$top/$test" && slurp_file("$top/$test") =~ /run by /, "$label is run by another test: $test, $name");
		$count{elsewhere}++;
		return undef;
	}
	run_marker($label, $_, $node) foreach grep { !/^differ / } @{ $example->{markers} };
	# A server does not know it for some seconds after its start.
	poll('the settled id is known', sub { sql_error($node, 'SELECT snowflake_settled_id()', $database) !~ /is not known/ })
	  if $example->{sql} =~ /snowflake_settled_id/;

	my $output = run_sql($example->{sql}, $node, $database);
	$count{run}++;
	if (!$example->{expected})
	{
		ok(!@differ && $output !~ /^(ERROR|FATAL|PANIC|invalid command|unterminated|\\\w+:)/m, "$label runs") or diag($output);
		return undef;
	}
	$count{compared}++;
	my ($got, @stale) = comparable($output, @differ);
	my ($expected) = comparable($example->{expected}{text}, @differ);
	$got .= "differ, but not printed: @stale\n" if @stale;
	return is($got, $expected, "$label prints what the document shows") ? undef : $output;
}

# The document with these outputs, for those who want to see or take them.
sub write_copy
{
	my ($file, @changes) = @_;
	my @lines = split /^/, slurp_file($file);

	foreach my $change (reverse @changes)
	{
		my ($code, $output) = @$change;
		my $indent = ' ' x $code->{indent};
		my @new = map { $indent . s/\s+$//r . "\n" } split /\n/, $output =~ s/\n+\z//r;
		splice @lines, $code->{line}, scalar(my @old = split /\n/, $code->{text}), map { s/^\s+$/\n/r } @new;
	}
	my $copy = "$PostgreSQL::Test::Utils::log_path/" . basename($file);
	open my $out, '>', $copy or die "$copy: $!";
	print $out @lines;
	close $out or die "$copy: $!";
	diag("a copy with what was printed: $copy");
}

sub check_examples
{
	my ($file, $node, $database) = @_;
	my @examples = examples(@{ $document{$file} });
	my @changes;

	foreach my $example (@examples)
	{
		my $output = check_example(basename($file) . ":$example->{line}", $example, $node, $database);
		push @changes, [ $example->{expected}, $output ] if defined $output;
	}
	write_copy($file, @changes) if @changes;
	my @fences = slurp_file($file) =~ /^ *```sql/mgi;
	is(scalar @examples, scalar @fences, basename($file) . ': no block is overlooked');
	return @examples;
}

my @shown = check_examples("$top/README.md", $node, 'postgres');
is(scalar(my @statements = $shown[0]{sql} =~ /;$/mg), 4, 'the quick start has four statements');
check_examples("$top/doc/reference.md", $node, 'postgres');
poll('ids go on after the examples', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
$node->safe_psql('postgres', 'CREATE DATABASE registry');
$node->safe_psql('registry', slurp_file("$top/test/elsewhere.sql"));
$node->safe_psql('registry', 'CREATE EXTENSION snowflake');
check_examples("$top/doc/operations.md", $node, 'registry');
my $guide = auto_node('adopting', conf => "snowflake.max_wait = '5s'\n");
check_examples("$top/doc/adopting.md", $guide, 'postgres');
foreach my $file (grep { !m{/(README|reference|operations|adopting|clients|programs|citus)\.md$|/clients/} } @files)
{
	my $name = basename($file, '.md');

	$guide->safe_psql('postgres', qq{CREATE DATABASE "$name"});
	$guide->safe_psql($name, slurp_file("$top/test/elsewhere.sql"));
	$guide->safe_psql($name, 'CREATE EXTENSION snowflake');
	check_examples($file, $guide, $name);
}
$guide->stop;
note("blocks: $count{run} run, $count{compared} of them compared, $count{skipped} skipped, $count{elsewhere} run by other tests");
cmp_ok($count{run}, '>=', 50, 'blocks that are run');
cmp_ok($count{compared}, '>=', 25, 'blocks that are compared');
cmp_ok($count{skipped}, '<=', $count{run} / 10, 'blocks that are skipped');

#
# Other blocks
#

# Lines "snowflake.NAME = VALUE", as postgresql.conf has them.  A value that goes on in the next
# line is to be written in one.
foreach my $file (@files)
{
	my @codes = grep { $_->{kind} eq 'code' && $_->{language} =~ /^(|ini)$/ } @{ $document{$file} };

	foreach my $line (map { my $code = $_; $code->{text} =~ s/\n +/ /gr =~ /^snowflake\.\w+ = .*/mg } @codes)
	{
		my ($name, $value) = $line =~ /^(\S+) = '?(.*?)'?$/;

		# this calls the checks of the setting, as a start does
		is(sql_error($node, "ALTER SYSTEM SET $name = '$value'"), '', basename($file) . ": $line");
		$node->safe_psql('postgres', "ALTER SYSTEM RESET $name");
	}
	my %targets = map { $_ => 1 } slurp_file("$top/Makefile") =~ /^([a-z-]+):/mg, slurp_file("$top/Makefile") =~ /^all install .*$/mg;
	my @makes = map { $_->{kind} eq 'code' ? $_->{text} =~ /^make +([a-z-]+)/mg : $_->{text} =~ /`make\s+([a-z-]+)/g } @{ $document{$file} };
	is(join(' ', grep { !$targets{$_} } @makes), '', basename($file) . ': make knows these targets');
}

# The table says of each document which languages its blocks have ("any": its own test sees to
# that), and what runs them.
my %said = map { $_->[0] =~ m{^[\[`](\S+)[\]`]} ? ($1 => $_->[1]) : () }
  table_rows(grep { $_->{section} eq 'Examples in the documents' } @{ $document{"$top/doc/testing.md"} });

# The pages of clients have one row, and so have those of the libraries for programs.
sub row_of
{
	my ($file) = @_;

	return $file =~ s{^\Q$top\E/}{}r =~ s{^doc/clients/.*}{doc/clients/*.md}r =~ s{^client/.*}{client/*/README.md}r;
}

foreach my $file (@files)
{
	my %languages = map { $_->{language} => 1 } grep { $_->{kind} eq 'code' && $_->{language} ne '' } @{ $document{$file} };

	my $there = $said{ row_of($file) } // '';
	is($there, $there eq 'any' ? $there : join(', ', sort keys %languages) || 'none', basename($file) . ': doc/testing.md knows its examples');
}
my %rows = map { row_of($_) => 1 } @files;
is_deeply([ sort keys %said ], [ sort keys %rows ], 'it has no other document');

#
# Figures
#

# "1.52 x (1.34–1.67)" is a median in bench/results, and the range, if it is there, goes with it.
my $results = join '', map { slurp_file($_) } glob "$top/bench/results/*.md";
foreach my $file ("$top/README.md", "$top/doc/evidence.md")
{
	my @figures = map { s/ x// ? $_ : () } slurp_file($file) =~ /\b(\d+\.\d+ x(?: \([\d.]+–[\d.]+\))?)/g;

	is(join(', ', grep { $results !~ /\| \Q$_\E(?= \(| \|)/ } @figures), '',
		basename($file) . ': its figures were measured');
}
cmp_ok(scalar(my @figures = slurp_file("$top/doc/evidence.md") =~ /\d x\b/g), '>', 20, 'there are figures');

#
# Reference
#

# The defaults in the README are those of a server without settings.
set_conf($node, map { $_ => undef } qw(snowflake.extra_layouts snowflake.lease_duration snowflake.max_wait));
$node->restart;

sub rows
{
	my ($sql) = @_;

	return split /\n/, $node->safe_psql('postgres', $sql);
}

# "a [, b [, c]]" are three lists of arguments.
sub variants
{
	my ($arguments) = @_;

	return $arguments =~ s/\s+/ /gr unless $arguments =~ /^(.*)\[((?:[^\[\]]|\[\])+)\](.*)$/s;
	my ($before, $optional, $after) = ($1, $2, $3);
	return (variants($before =~ s/\s+$//r . $after), variants($before =~ s/\s+$//r . $optional . $after));
}

# The elements of a section of a document.
sub in_section
{
	my ($section, @elements) = @_;

	return grep { $_->{section} =~ m{^\Q$section\E(/|$)} } @elements;
}

sub names
{
	return sort map { /`([^`]+)`/g } @_;
}

my $reference_sql = join '', map { $_->{text} } grep { $_->{kind} eq 'code' && $_->{language} eq 'sql' } @reference;

# A signature is code at the begin of a paragraph; "and" or a comma may join several.
my @signatures = map { my $name = $_->[0]; map { "$name($_)" } variants($_->[1]) }
  map { [ /^(\w+)\((.*)\)$/s ] }
  map { $_->{text} =~ /\A((?:`\w+\([^`]*\)`(?:,|\s+and)?\s*)+)/ ? $1 =~ /`([^`]*)`/g : () }
  grep { $_->{kind} eq 'paragraph' } @reference;

# The function below a view of its own name belongs to the view.
my $members = <<'SQL';
SELECT p.proname, p.proname || '(' || pg_get_function_arguments(p.oid) || ')'
FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
WHERE e.extname IN ('snowflake', 'snowflake_tools') AND p.pronamespace = e.extnamespace
	AND NOT EXISTS (SELECT FROM pg_class c WHERE c.relname = p.proname AND c.relnamespace = p.pronamespace)
SQL
my @functions = map { my (undef, $f) = split /\|/, $_, 2;
	$f =~ s/timestamp with time zone/timestamptz/g; $f =~ s/::[a-z_ ]+(\[\])?//g; $f =~ s/\bIN //g;
	$f =~ s/(, )?\bOUT .*(?=\))//r } rows($members);
cmp_ok(scalar @functions, '>=', 36, 'functions of the extension');
is_deeply([ sort @signatures ], [ sort @functions ], 'the Reference has the signatures of all functions, and no other');
my @function_names = sort keys %{ { map { /^(\w+)/ => 1 } @functions } };
is_deeply([ names(map { $_->[0] } table_rows(in_section('Functions', @readme))) ],
	\@function_names, "the README's table has the functions");
foreach my $name (@function_names)
{
	like($reference_sql, qr/\b$name\(/, "the Reference has an example of $name");
}

my @settings = map { join ' ', $_->[0] =~ /`(.*)`/, $_->[1] =~ s/^empty$/``/r =~ /`(.*)`/, $_->[2] }
  table_rows(in_section('Settings', @readme));
is_deeply([ sort @settings ], [ sort(rows(<<'SQL')) ], 'the table of settings has their names, defaults and contexts');
SELECT concat_ws(' ', name, current_setting(name),
	CASE context WHEN 'sighup' THEN 'reload' WHEN 'postmaster' THEN 'restart' WHEN 'user' THEN 'session' ELSE context END)
FROM pg_settings WHERE name LIKE 'snowflake.%'
SQL
is_deeply([ sort map { map { /^\*\*`(.*)`\*\*/ ? $1 : () } $_->{text} } in_section('Settings', @reference) ],
	[ sort map { /^(\S+)/ } @settings ], 'the Reference explains each setting');
is($node->safe_psql('postgres', <<'SQL'), '', 'these settings are the defaults');
SELECT name FROM pg_settings WHERE name LIKE 'snowflake.%' AND setting <> boot_val
SQL

my $columns = 'SELECT attname FROM pg_attribute WHERE attrelid = \'%s\'::regclass AND attnum > 0';
is_deeply([ names(map { $_->[0] } table_rows(grep { $_->{text} =~ /^\| column/ } in_section('The view pg_stat_snowflake', @reference))) ],
	[ sort(rows(sprintf $columns, 'pg_stat_snowflake')) ],
	'the Reference has the columns of pg_stat_snowflake');
is_deeply([ names(map { $_->[0] } table_rows(in_section('The tables', @reference))) ],
	[ sort(rows(sprintf $columns, 'snowflake.worker_node')) ], 'the Reference has the columns of worker_node');
is_deeply([ names(map { $_->[0] } table_rows(in_section('The nodes of a registry', @reference))) ],
	[ sort(rows(sprintf $columns, 'snowflake.nodes')) ], 'the Reference has the columns of the view nodes');
foreach my $function (qw(snowflake_layout snowflake_guess snowflake_audit))
{
	my ($section) = map { $_->{section} } grep { $_->{kind} eq 'paragraph' && $_->{text} =~ /^`$function\(/ } @reference;

	is_deeply([ names(map { $_->[0] =~ s/"//gr } table_rows(in_section($section, @reference))) ],
		[ sort(rows("SELECT DISTINCT n FROM pg_proc, unnest(proargnames, proargmodes) AS a (n, mode)"
			. " WHERE proname = '$function' AND mode IN ('o', 't')")) ], "the Reference has the columns of $function");
}

# The rows of the presets' table, as the catalog has them: node numbers are those that the
# fields have room for, the reserved one included.
my @layouts = @{ $document{"$top/doc/layouts.md"} };
my $fields = q{SELECT sum(b[1]::integer) FROM regexp_matches(definition, '(?:datacenter|worker|clock) (\d+)', 'g') AS b};
is_deeply([ map { join ' | ', @$_ } table_rows(grep { $_->{section} eq 'Presets' && $_->{text} =~ /node numbers/ } @layouts) ],
	[ rows(<<"SQL") ], 'the table of presets in layouts.md is that of snowflake_layouts()');
SELECT concat_ws(' | ', format('`%s`', name), regexp_replace(definition, ', tick .*', ''), substring(definition FROM 'tick ([^,]*)'),
	regexp_replace(to_char(epoch, 'YYYY-MM-DD HH24:MI:SS.MS'), '(:00)?\\.000\$', ''), to_char(last_id_time, 'YYYY-MM-DD'),
	to_char(max_ids_per_second, 'FM999,999,999'), coalesce(to_char(2 ^ ($fields), 'FM999,999,999'), 'none'),
	CASE WHEN js_safe THEN 'yes' ELSE 'no' END)
FROM snowflake_layouts() WITH ORDINALITY ORDER BY ordinality
SQL
my @presets = sort(rows('SELECT name FROM snowflake_layouts()'));
is_deeply([ names(map { $_->[0] } table_rows(grep { $_->{section} eq 'Presets' && $_->{text} =~ /whose/ } @layouts)) ],
	\@presets, 'layouts.md says of each preset whose it is');
is_deeply([ names(map { $_->{text} } grep { $_->{text} =~ /^Presets: / } in_section('Layouts', @reference)) ],
	\@presets, 'Layouts has the names of the presets');

my @waits = names(map { $_->[0] } table_rows(grep { $_->{section} eq 'Wait events' } @{ $document{"$top/doc/monitoring.md"} }));
my %events = map { $_ => 1 } map { slurp_file($_) =~ /snowflake_wait_event\("(\w+)"\)/g } glob "$top/src/*.c $top/src/*/*.c";
is_deeply(\@waits, [ sort keys %events ],
	'monitoring.md has the wait events');

#
# Pictures
#
my $drawn = PostgreSQL::Test::Utils::tempdir;
is(system($^X, "$top/test/pictures", $drawn), 0, 'test/pictures draws');
is(join(' ', map { basename($_) } glob "$drawn/*.svg"), join(' ', map { basename($_) } glob "$top/doc/*.svg"),
	'the pictures in doc/ are those that it draws');
foreach my $file (glob "$top/doc/*.svg")
{
	my $name = basename($file);

	ok(-e "$drawn/$name" && slurp_file("$drawn/$name") eq slurp_file($file), "$name is as it draws it");
}

#
# Names and links
#
my %known = map { $_ => 1 } rows(<<'SQL');
SELECT name FROM pg_settings WHERE name LIKE 'snowflake.%' UNION
SELECT 'snowflake.' || relname FROM pg_class WHERE relnamespace = 'snowflake'::regnamespace UNION
SELECT 'snowflake.' || proname FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace UNION
SELECT proname || '(' FROM pg_proc
SQL
$known{$_} = 1 foreach slurp_file("$top/src/sql/registry/managed.sql") =~ /^CREATE FUNCTION (snowflake\.\w+)\(/mg;

foreach my $file (@files, "$top/CONTRIBUTING.md")
{
	my $text = slurp_file($file);
	my $label = basename($file);
	my @unknown = grep { !$known{$_} } $text =~ s{https?://[^\s)]+}{}gr =~ /\b(\w*snowflake_\w+\(|snowflake\.[a-z_]+)/g;
	my @dead = grep {
		my ($target, $anchor) = /^([^#]*)(?:#(.*))?$/;
		my $path = $target eq '' ? $file : dirname($file) . "/$target";
		!-e $path || (defined $anchor && !grep { $_ eq $anchor } anchors(read_document($path)));
	} grep { !/^https?:/ } $text =~ /\]\(([^)\s]+)\)/g;
	# other documents have wide tables and outputs of psql; a character has one byte that is no continuation
	my $narrow = $file eq "$top/README.md" || $label =~ /^(reference|troubleshooting|evidence)\.md$/;
	my @wide = grep { length(s/[\x80-\xBF]//gr) > 100 && ($narrow || (!/^ *\|/ && !/\]\(http/)) } map { split /\n/, $_->{text} }
	  grep { $narrow || $_->{kind} ne 'code' } read_document($file);
	my @missing = grep { !-e "$top/$_" } $text =~ m{`((?:doc|sql|src|test)/[\w./-]*)`}g,
	  grep { !/^--/ } map { split } $text =~ m{^(?:sh )?test/run +([^#\n]*)}mg;

	# a passfile never goes to a server that only says who it is; the whole connection string is in one block
	my @trusting = grep { /\bpassfile=/ && !/\b(?:sslmode=verify-full|channel_binding=require)\b/ }
	  map { $_->{text} } grep { $_->{kind} eq 'code' } read_document($file);

	is("@unknown", '', "$label: functions, settings and tables that it names exist");
	is("@dead", '', "$label: links lead somewhere");
	is(join("\n", @wide), '', "$label: lines have at most 100 columns");
	is("@missing", '', "$label: files that it names exist");
	is("@trusting", '', "$label: a passfile goes with sslmode or channel_binding");
}
$node->stop;

done_testing();
