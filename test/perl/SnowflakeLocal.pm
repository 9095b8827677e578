# SnowflakeLocal.pm
#	  For tests of servers that take their node numbers from their own tables, which are in
#	  database postgres.
#
#	  auto_node(NAME, OPTIONS)	as new_node, with snowflake.worker_id = auto and started
#						without the extension; options as there, conf wins
#	  lease_rows(NODE, COLUMNS)
#						of LEASES, in the order they were granted: of one start, a lease is closed
#						before the next one is
#	  newest_row(NODE, COLUMNS)
#	  issue_in(NODE, DATABASE, N)	ids, each by a statement of its own
#	  split_ids(SHIFT, MASK, FILES)
#						a file for the ids of each node number in each file: two numbers
#						need not be in order; a number is id >> SHIFT & MASK
#	  check_covered(LABEL, NODE, DATABASE, SHIFT, MASK, FILES)
#						one test: the row of each number, and the log, reach to the end of its ids;
#						DATABASE has the extension snowflake
package SnowflakeLocal;

use strict;
use warnings;

use Exporter 'import';
use SnowflakeTest;

our @EXPORT = qw(auto_node check_covered issue_in lease_rows newest_row split_ids);

sub auto_node
{
	my ($name, %options) = @_;
	my $start = delete $options{start} // 1;
	my $node = new_node($name, %options, start => 0,
		conf => "snowflake.worker_id = 'auto'\n" . ($options{conf} // ''));

	$node->start if $start;
	return $node;
}

sub lease_rows
{
	my ($node, $columns) = @_;

	return split /\n/, $node->safe_psql('postgres',
		"SELECT $columns FROM ${\ LEASES} AS w ORDER BY launched_at, closed_at, renewed_at");
}

sub newest_row
{
	my ($node, $columns) = @_;

	return $node->safe_psql('postgres',
		"SELECT $columns FROM ${\ LEASES} AS w ORDER BY launched_at DESC, closed_at DESC, renewed_at DESC LIMIT 1");
}

sub issue_in
{
	my ($node, $database, $n) = @_;

	return split /\n/, $node->safe_psql($database, "SELECT snowflake_nextval();\n" x $n);
}

sub split_ids
{
	my ($shift, $mask, @files) = @_;
	my @split;

	foreach my $file (@files)
	{
		my %ids;

		push @{ $ids{ $_ >> $shift & $mask } }, $_ foreach read_ids($file);
		push @split, map { write_ids(@{ $ids{$_} }) } sort { $a <=> $b } keys %ids;
	}
	return @split;
}

sub check_covered
{
	my ($label, $node, $database, $shift, $mask, @files) = @_;
	my %greatest;

	foreach my $id (read_ids(@files))
	{
		my $number = $id >> $shift & $mask;
		$greatest{$number} = $id if $id > ($greatest{$number} // -1);
	}
	die "$label: no ids" unless %greatest;
	my $values = join ', ', map { "($_, $greatest{$_})" } sort { $a <=> $b } keys %greatest;

	# the tables may be in another database than the extension that knows the time of an id
	$values = $node->safe_psql($database, <<EOS);
SET search_path = public;
SET DateStyle = ISO;
SELECT string_agg(format('(%s, %s, %L::timestamptz)', v.number, v.id, snowflake_timestamp(v.id)), ', ')
FROM (VALUES $values) AS v (number, id)
EOS

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($node->safe_psql('postgres', <<EOS), '', "$label: the rows of " . keys(%greatest) . ' numbers cover their ids');
SELECT v.number, v.id, v.time, greatest(n.ended_until, n.leased_until), max(w.leased_until)
FROM (VALUES $values) AS v (number, id, time) LEFT JOIN snowflake.node_number AS n ON n.node_number = v.number
	LEFT JOIN snowflake.leases AS w ON w.node_number = v.number
GROUP BY 1, 2, 3, 4
HAVING (greatest(n.ended_until, n.leased_until) >= v.time + '1 ms'::interval AND max(w.leased_until) >= v.time + '1 ms'::interval) IS NOT TRUE
EOS
}

1;
