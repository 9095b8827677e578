# 063_large_schema.pl
#	  A dry run of a schema's conversion takes time as its tables, not as their pairs: processor time of
#	  200 tables against that of 50 (test/fixtures/many_tables.sql).  Each thing is told once.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeStatement;

my $node = new_node('main');
my $fixtures = "$FindBin::RealBin/../fixtures";
my @sizes = (50, 200);
my %ticks;

foreach my $size (@sizes)
{
	$node->safe_psql('postgres', "CREATE DATABASE tables$size");
	run_command([ $node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr("tables$size"),
			'-v', "tables=$size", '-f', "$fixtures/many_tables.sql" ]);
	$node->safe_psql("tables$size", 'CREATE EXTENSION snowflake_tools CASCADE');
	my $session = $node->background_psql("tables$size");
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	my $before = cpu_ticks($pid);

	is($session->query_safe("SELECT content FROM snowflake_convert_schema('music') WHERE kind = 'summary'"),
		sprintf('keys to convert: %d, refused: 0; findings: %d', $size * 3 / 5, $size * 2 / 5 + 8), "$size tables");
	$ticks{$size} = cpu_ticks($pid) - $before;
	$session->quit;
	is($node->safe_psql("tables$size", "SELECT count(*) - count(DISTINCT object) FROM snowflake_convert_schema('music') WHERE kind = 'finding'"),
		'0', '... each thing is found once');
}
cmp_ok($ticks{50}, '>', 2, 'processor time, in hundredths of a second');
cmp_ok($ticks{200}, '<', 7 * $ticks{50}, 'of four times as many tables: by pairs it would be sixteen times that');

$node->stop;
done_testing();
