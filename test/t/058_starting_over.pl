# 058_starting_over.pl
#	  What an administrator does with a registry that is broken, lost, or left by one of its nodes, by
#	  the statements of doc/operations.md as they stand there: "Starting over", "A lost registry" and
#	  "Leaving".  The registry's row is deleted, so its extension is created again, while it issues ids
#	  itself; then it is lost, and another one takes over; then a node goes on with its own tables.
#	  The nodes use the role of the page.  No id repeats.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeReadme;
use SnowflakeRegistry;

my @document = read_document("$FindBin::RealBin/../../doc/operations.md");

# The statements in the text of a section, each once
sub statements
{
	my ($section) = @_;
	my %seen;

	return grep { !$seen{$_}++ } map { s/\s+/ /gr } map { $_->{text} =~ /`(SELECT\s[^`]+)`/g }
	  grep { $_->{kind} eq 'paragraph' && $_->{section} eq $section } @document;
}

# The first block of SQL in a section
sub block
{
	my ($section) = @_;

	return (examples(grep { $_->{section} eq $section } @document))[0]{sql};
}

my ($note, $note_at_node, $release, $take_over) = statements('Starting over');
is($take_over, "SELECT snowflake.take_over('...'::uuid)", 'the page has four statements to start over');
is(join(';', statements('A lost registry')), "$note_at_node;SELECT detail FROM pg_stat_snowflake", 'and two for a lost registry');
my %leaving = map { $_ => 1 } statements('Leaving');
is(join(';', grep { !$leaving{$_} } $note_at_node, $take_over, 'SELECT leased_until FROM pg_stat_snowflake'), '', 'and three to leave');
my $prepare = block('Several primaries with a registry');
my ($grants) = $prepare =~ /^(GRANT .*)/ms;

my $registry = new_node('registry', conf => "snowflake.worker_id = 'auto'\n");

# Phases of files: all ids of a phase are greater than those of the one before.
my @phases;

sub issue
{
	my ($label, @servers) = @_;

	foreach my $server (@servers)
	{
		poll("$label: ids of " . $server->name, sub { sql_error($server, 'SELECT snowflake_nextval()') eq '' });
	}
	push @phases, [ map { write_ids(issue_ids($_, 200), issue_ids($_, 2000, 1)) } @servers ];
	return;
}

$registry->safe_psql('postgres', $prepare);
my @nodes = map { new_member($_, conninfo_of($registry, user => 'snowflake_node')) } 'one', 'two';
issue('at first', $registry, @nodes);

#
# Starting over
#
my $incarnation = $registry->safe_psql('postgres', $note);
$registry->safe_psql('postgres', 'DELETE FROM snowflake.registry');
is($registry->safe_psql('postgres', $note), '', 'the row is lost');
is($nodes[0]->safe_psql('postgres', $note_at_node), $incarnation, 'a node has the incarnation');
poll('the error', sub { sql_error($nodes[0], 'SET snowflake.max_wait = 0; SELECT snowflake_nextval()') =~ /the table snowflake\.registry has no row/ });
$_->stop foreach @nodes;
$registry->safe_psql('postgres', $release);
$registry->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
$registry->safe_psql('postgres', "CREATE EXTENSION snowflake_registry; $grants");
my (undef, undef, $warning) = $registry->psql('postgres', $take_over =~ s/\.\.\./$incarnation/r);
like($warning, qr/^(?:psql:<stdin>:\d+: )?WARNING:  the registry with the incarnation $incarnation must never run again/, 'taken over, with a warning');
isnt(incarnation_of($registry), $incarnation, 'it is another registry');
$_->start foreach @nodes;
issue('started over', $registry, @nodes);
is($nodes[0]->safe_psql('postgres', $note_at_node), incarnation_of($registry), 'the nodes use it');

#
# A lost registry
#
my $lost = $registry;
my $end = $lost->safe_psql('postgres', 'SELECT max(leased_until) FROM snowflake.worker_node');
$lost->stop('immediate');
$registry = new_registry('another');
$registry->safe_psql('postgres', $prepare);
$incarnation = $nodes[0]->safe_psql('postgres', $note_at_node);
foreach my $node (@nodes)
{
	poll('the end of the lease of ' . $node->name, sub { $node->safe_psql('postgres', "SELECT clock_timestamp() > greatest(leased_until, '$end') FROM pg_stat_snowflake") eq 't' });
}
(undef, undef, $warning) = $registry->psql('postgres', block('A lost registry') =~ s/'[-0-9a-f]{36}'/'$incarnation'/r);
like($warning, qr/WARNING:  the registry with the incarnation $incarnation must never run again/, 'lost: taken over, with a warning');
set_and_reload($_, 'snowflake.registry' => conninfo_of($registry, user => 'snowflake_node')) foreach @nodes;
issue('lost', @nodes);
is(join(',', map { $_->safe_psql('postgres', 'SELECT detail FROM pg_stat_snowflake') } @nodes), ',', 'lost: no detail is left');
is($registry->safe_psql('postgres', 'SELECT count(*) FROM snowflake.nodes'), '2', 'lost: the nodes are in the view of the new one');

#
# One node leaves the others for good
#
set_and_reload($nodes[0], 'snowflake.registry' => undef);
poll('the refusal', sub { sql_error($nodes[0], 'SELECT snowflake_nextval()') =~ /^ERROR:  55000: / });
poll('the end of the lease', sub { $nodes[0]->safe_psql('postgres', 'SELECT (SELECT leased_until FROM pg_stat_snowflake) < clock_timestamp()') eq 't' });
$incarnation = $nodes[0]->safe_psql('postgres', $note_at_node);
is($incarnation, incarnation_of($registry), 'leaving: what it shows');
$nodes[0]->safe_psql('postgres', $take_over =~ s/\.\.\./$incarnation/r);
issue('left', @nodes);
is($nodes[0]->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster'), 'own', 'leaving: it has its own tables');

check_phases('all', @phases);
$_->stop foreach $registry, @nodes;

done_testing();
