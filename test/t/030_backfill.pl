# 030_backfill.pl
#	  Ids for old rows follow from the rows and the arguments alone: a primary, its standby
#	  and a server that has not preloaded the extension make the same ones; two clusters that
#	  have different parts make none that is equal.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;

my $rows = q{(SELECT nr, '2026-05-05 12:00Z'::timestamptz + nr % 50 * interval '1 ms' AS created_at FROM generate_series(1, 10000) AS nr) AS old};

# arguments: those after created_at
sub made
{
	my ($node, $arguments) = @_;

	return $node->safe_psql('postgres', "SELECT snowflake_backfill_id(created_at$arguments) OVER (ORDER BY created_at, nr) FROM $rows");
}

my $primary = new_node('primary', init => [ allows_streaming => 1 ], conf => "snowflake.layout = 'discord'\n");
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
my $ids = made($primary, '');
is(scalar(split /\n/, $ids), 10000, 'ids of the primary');
is(made($primary, q{, 'discord'}), $ids, 'they are of the layout of the server');
is(made($standby, ''), $ids, 'the standby makes the same ids');

my $other = new_node('other', preload => 0, start => 0);
$other->start;
$other->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake');
is(made($other, q{, 'discord'}), $ids, 'a server that has not preloaded the extension makes the same ids');
is(made($other, ''), made($primary, q{, 'twitter'}), 'and has a default layout');
is($other->safe_psql('postgres', "SET snowflake.layout = 'discord'; SELECT min(id) FROM (SELECT snowflake_backfill_id(created_at) OVER (ORDER BY created_at) AS id FROM $rows) AS made"),
	(split /\n/, $ids)[0], 'or the one that is set');

my @merged = map { split /\n/, $_ } made($primary, q{, 'discord', 0, 2}), made($other, q{, 'discord', 1, 2});
my %distinct = map { $_ => 1 } @merged;
is(scalar(keys %distinct), 20000, 'two clusters with different parts make different ids');
$_->stop foreach $standby, $primary, $other;

done_testing();
