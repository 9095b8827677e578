# 057_extension_control_path.pl
#	  PostgreSQL 18 and newer: the files of both extensions are in directories that only
#	  settings name, as in the image of the extension in doc/kubernetes.md; the server has none of
#	  them in its own directories.  Directories and settings are those of the document.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeReadme;
use File::Copy qw(copy);
use File::Path qw(make_path);

plan skip_all => 'needs PostgreSQL 18' if `pg_config --version` =~ /^PostgreSQL (\d+)/ && $1 < 18;

my $section = 'An image of the extension';
my %code = map { $_->{language} => $_->{text} }
  grep { $_->{kind} eq 'code' && $_->{section} eq $section } read_document("$FindBin::RealBin/../../doc/kubernetes.md");
my $volume = PostgreSQL::Test::Utils::tempdir_short;

# What "make install" left, by the last part of the directory's name
my $pkglibdir = `pg_config --pkglibdir` =~ s/\n//r;
my $sharedir = `pg_config --sharedir` =~ s/\n//r;
my $extension = use_copied_installation();
my %installed = (extension => $extension, lib => substr($extension, 0, -length("$sharedir/extension")) . $pkglibdir);

while ($code{dockerfile} =~ m{^COPY --from=build /files/\S+/(\w+) (/\S+)$}mg)
{
	my ($from, $to) = ($1, "$volume$2");
	my @files = glob "$installed{$from}/snowflake*";

	ok(@files > 0, "files of $from");
	make_path($to);
	foreach my $file (@files)
	{
		copy($file, $to) && unlink $file or die "$file: $!";
	}
}

my $node = new_node('node', start => 0, conf => $code{''} =~ s{/extensions/snowflake/}{$volume/}gr);
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', 'CREATE EXTENSION snowflake_tools CASCADE');
$node->safe_psql('shop', 'CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval())');
is($node->safe_psql('shop', 'SELECT count(DISTINCT id) FROM snowflake_nextval_batch(1000) AS id'),
	1000, 'the server issues ids');
is($node->safe_psql('postgres', "SELECT extname FROM pg_extension WHERE extname LIKE 'snowflake%'"),
	'snowflake_registry', 'the server has created snowflake_registry itself');
is($node->safe_psql('shop', "SELECT (snowflake_parse(snowflake_nextval(), 'twitter')).worker_id"), 1, 'ids are read');

# What is preloaded and what the functions of the extension name must be one library, not two.
my $session = $node->background_psql('shop');
my $backend = $session->query_safe("SELECT pg_backend_pid() FROM snowflake_nextval(), snowflake_tools.min_id(now(), 'twitter')");
foreach my $pid (worker_pid($node), $backend)
{
	my %loaded = map { $_ => 1 }
	  slurp_file("/proc/$pid/maps") =~ m{(\S*/snowflake[^/\s]*\.so)}g;
	is(join(' ', keys %loaded), "$volume/lib/snowflake.so", 'one library is loaded');
}
$session->quit;

# The places of files are in no table.
$node->safe_psql('postgres', 'CREATE DATABASE again');
$node->command_ok([ 'sh', '-c', 'pg_dump "$1" | psql -X -v ON_ERROR_STOP=1 "$2"', 'sh',
		$node->connstr('shop'), $node->connstr('again') ], 'a dump is restored');
$node->restart;
foreach my $database ('shop', 'again')
{
	is($node->safe_psql($database, 'INSERT INTO orders DEFAULT VALUES RETURNING 1'), 1,
		"ids in database $database after a restart");
}
$node->stop;

# Without the settings the server does not start: none of this came from elsewhere.
set_conf($node, extension_control_path => undef, dynamic_library_path => undef);
ok(!$node->start(fail_ok => 1), 'the server does not start without the settings');
like(slurp_file($node->logfile), qr/could not access file "snowflake"/, 'since the library is elsewhere');

done_testing();
