# convert.pl
#	  How long a dry run of snowflake_convert_schema() takes, on schemas of up to 500 tables with 300 keys, 50 views,
#	  2,000 triggers and 200 functions (test/fixtures/many_tables.sql).
use strict;
use warnings;

use Bench;

my @sizes = (50, 200, quick(500, 300));
my $server = new_server('convert', 'shared_buffers' => "'128MB'", 'fsync' => 'off');
my $subject = 'dry run';

figure(id => 'convert', title => 'A dry run of snowflake_convert_schema() with more tables', unit => 's', subjects => [$subject],
	x => 'tables', references => ["tables = $sizes[0]"], absolute => 1);
note('convert', 'Three in five tables have a key with a sequence; each has 15 integer columns, four triggers, ' .
	'and two in five have a function that names them. Each dry run is the first statement of a session.');
goal(figure => 'convert', subject => $subject, reference => undef, x => $sizes[-1], at_most => 15);
foreach my $size (@sizes)
{
	$server->sql("CREATE DATABASE tables$size");
	$server->sql('CREATE EXTENSION snowflake_tools CASCADE', '-d', "tables$size", '-v', "tables=$size", '-o', '/dev/null',
		'-f', 'test/fixtures/many_tables.sql');
}
each_round('tables', map { my $size = $_; sub {
	my ($run) = @_;

	sample('convert', $subject, $size, $run,
		$server->seconds("\\c tables$size", "SELECT count(*) FROM snowflake_convert_schema('music')"));
} } @sizes);
$server->stop;
finish();
