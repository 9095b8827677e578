# 063_large_schema.pl
#	  A dry run of a schema's conversion takes time as its tables, not as their pairs: processor time of
#	  200 tables against that of 50 (test/fixtures/many_tables.sql).  Each thing is told once.  A film rental,
#	  with views on most of its keys (test/fixtures/film.sql), is converted whole, and back.
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

#
# There and back; integer columns and their sequences stay bigint
#
sub schema
{
	my ($out) = run_command([ $node->installed_command('pg_dump'), '-s', '-d', $node->connstr($_[0]) ]);

	return $out =~ s/^\\(?:un)?restrict .*\n//gmr =~ s/^    AS integer\n//gmr =~ s/\binteger\b/bigint/gr;
}

my $contents = q{SELECT t.name, (xpath('/row/all/text()', query_to_xml(format(
	'SELECT count(*) || '' '' || md5(string_agg(r::text, '';'' ORDER BY r::text)) AS all FROM %s AS r', t.name), false, true, '')))[1]
FROM (SELECT oid::regclass AS name FROM pg_class WHERE relnamespace = 'film'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')) AS t ORDER BY t.name::text COLLATE "C"};

$node->safe_psql('postgres', 'CREATE DATABASE film; CREATE ROLE film_owner');
$node->safe_psql('film', 'CREATE EXTENSION snowflake_tools CASCADE; GRANT CREATE ON DATABASE film TO film_owner');
my (undef, $error) = run_command([ $node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('film'),
		'-c', 'SET ROLE film_owner', '-f', "$fixtures/film.sql" ]);
is($error, '', 'a film rental');
my $before = schema('film');
my $rows = $node->safe_psql('film', $contents);

is($node->safe_psql('film', "SELECT content FROM snowflake_convert_schema('film') WHERE kind = 'summary'"),
	'keys to convert: 13, refused: 0; findings: 1', 'all keys can be converted');
is($node->safe_psql('film', "SELECT object FROM snowflake_convert_schema('film') WHERE kind = 'finding'"),
	'function film.inventory_held_by(integer)', '... and what breaks');
$node->safe_psql('film', q{SELECT snowflake_convert_schema('film', dry_run => false)});
isnt(schema('film'), $before, 'converted');
is($node->safe_psql('film', $contents), $rows, 'rows are as they were');
$node->safe_psql('film', q{SET ROLE film_owner; INSERT INTO film.film (title, language_id) VALUES ('new', 1);
	INSERT INTO film.inventory (film_id, store_id) SELECT max(film_id), 1 FROM film.film});
is($node->safe_psql('film', 'SELECT count(*), max(fid) > 1000000 FROM film.film_list'), '21|t', 'a new row is in the views');
$node->safe_psql('film', 'DELETE FROM film.inventory WHERE inventory_id > 1000000; DELETE FROM film.film WHERE film_id > 1000000');
$node->safe_psql('film', q{SELECT snowflake_revert_schema('film', false)});
is(schema('film'), $before, 'reverted: the schema is what it was');
is($node->safe_psql('film', $contents), $rows, '... and its rows');

$node->stop;
done_testing();
