# 058_starting_over.pl
#	  What an administrator does with a registry that is broken, lost, or left by one of its nodes, by
#	  the statements of doc/operations.md as they stand there: "Starting over", "A lost registry" and
#	  "Leaving".  The registry's row is lost, so its extension is created again, while it issues ids
#	  itself; it is dropped by mistake; then it is lost, and another one takes over; then a node goes on
#	  with its own tables.
#	  Each time leases start when the longest window is over.  The nodes use the role of the page.  A
#	  standby that became a node of its former primary leaves it.  No id repeats.
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
is($take_over, "SELECT snowflake.take_over_lost('...')", 'the page has four statements to start over');
is(join(';', statements('A lost registry')), "$note_at_node;SELECT detail FROM pg_stat_snowflake", 'and two for a lost registry');
my %leaving = map { $_ => 1 } statements('Leaving');
is(join(';', grep { !$leaving{$_} } $note_at_node, $take_over), '', 'and two to leave');
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

# Until a lease that it has from elsewhere is over.
sub wait_for_use
{
	my ($server, $sql, $value) = @_;

	poll($server->name . ': the registry to be used', sub { sql_error($server, 'SELECT snowflake_nextval()');
			$server->safe_psql('postgres', $sql) eq $value });
}

# Leases are of 3 s; so the longest window is of 20 s.
sub check_window
{
	my ($label, $server) = @_;

	is($server->safe_psql('postgres', 'SELECT count(*) > 0, bool_and(w.starts_at >= r.starts_at) FROM snowflake.worker_node AS w, snowflake.registry AS r'),
		't|t', "$label: leases start when the longest window is over");
}

$registry->safe_psql('postgres', $prepare);
limit_leases($registry, '10 s');
my @nodes = map { new_member($_, conninfo_of($registry, user => 'snowflake_node')) } 'one', 'two';
issue('at first', $registry, @nodes);

#
# Starting over
#
my $incarnation = $registry->safe_psql('postgres', $note);
like(sql_error($registry, 'DELETE FROM snowflake.registry'), qr/^ERROR:  55000: DELETE on table "registry" is not possible\nDETAIL:  .*\nHINT:  See "Starting over" in doc\/operations\.md\./,
	'the row cannot be deleted by mistake');
$registry->safe_psql('postgres', 'ALTER TABLE snowflake.registry DISABLE TRIGGER refuse_to_delete; DELETE FROM snowflake.registry;
	ALTER TABLE snowflake.registry ENABLE ALWAYS TRIGGER refuse_to_delete');
is($registry->safe_psql('postgres', $note), '', 'the row is lost');
is($nodes[0]->safe_psql('postgres', $note_at_node), $incarnation, 'a node has the incarnation');
poll('the error', sub { sql_error($nodes[0], 'SET snowflake.max_wait = 0; SELECT snowflake_nextval()') =~ /the table snowflake\.registry has no row/ });
$_->stop foreach @nodes;
$registry->safe_psql('postgres', $release);
$registry->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
$registry->safe_psql('postgres', "CREATE EXTENSION snowflake_registry; $grants");
limit_leases($registry, '10 s');
my (undef, undef, $warning) = $registry->psql('postgres', $take_over =~ s/\.\.\./$incarnation/r);
like($warning, qr/^(?:psql:<stdin>:\d+: )?WARNING:  the registry with the incarnation $incarnation must never run again/, 'taken over, with a warning');
isnt(incarnation_of($registry), $incarnation, 'it is another registry');
$_->start foreach @nodes;
issue('started over', $registry, @nodes);
check_window('started over', $registry);
is($nodes[0]->safe_psql('postgres', $note_at_node), incarnation_of($registry), 'the nodes use it');

#
# Dropped by mistake: its own server, which issues ids itself, is the other one
#
$incarnation = incarnation_of($registry);
$registry->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
poll("dropped: the error", sub { sql_error($nodes[0], "SET snowflake.max_wait = 0; SELECT snowflake_nextval()") =~ /schema "snowflake" does not exist/ });
$_->stop foreach @nodes;
$registry->safe_psql('postgres', $release);
$registry->safe_psql('postgres', "CREATE EXTENSION IF NOT EXISTS snowflake_registry; $grants");
limit_leases($registry, '10 s');
$_->start foreach @nodes;
is($nodes[0]->safe_psql('postgres', $note_at_node), $incarnation, 'dropped: a node has the incarnation');
(undef, undef, $warning) = $registry->psql('postgres', block('A lost registry') =~ s/'[-0-9a-f]{36}'/'$incarnation'/r);
like($warning, qr/WARNING:  the registry with the incarnation $incarnation must never run again/, 'dropped: taken over, with a warning');
issue('dropped', $registry, @nodes);
check_window('dropped', $registry);
poll('dropped: no detail is left', sub { join(',', map { $_->safe_psql('postgres', 'SELECT detail FROM pg_stat_snowflake') } @nodes) eq ',' });

#
# A lost registry
#
my $lost = $registry;
$lost->stop('immediate');
$registry = new_registry('another', limit => '10 s');
$registry->safe_psql('postgres', $prepare);
$incarnation = $nodes[0]->safe_psql('postgres', $note_at_node);
(undef, undef, $warning) = $registry->psql('postgres', block('A lost registry') =~ s/'[-0-9a-f]{36}'/'$incarnation'/r);
like($warning, qr/WARNING:  the registry with the incarnation $incarnation must never run again/, 'lost: taken over, with a warning');
set_and_reload($_, 'snowflake.registry' => conninfo_of($registry, user => 'snowflake_node')) foreach @nodes;
wait_for_use($_, $note_at_node, incarnation_of($registry)) foreach @nodes;
issue('lost', @nodes);
check_window('lost', $registry);
is(join(',', map { $_->safe_psql('postgres', 'SELECT detail FROM pg_stat_snowflake') } @nodes), ',', 'lost: no detail is left');
is($registry->safe_psql('postgres', 'SELECT count(*) FROM snowflake.nodes'), '2', 'lost: the nodes are in the view of the new one');

#
# One node leaves the others for good
#
limit_leases($nodes[0], '10 s');
set_and_reload($nodes[0], 'snowflake.registry' => undef);
$incarnation = $nodes[0]->safe_psql('postgres', $note_at_node);
is($incarnation, incarnation_of($registry), 'leaving: what it shows');
(undef, undef, $warning) = $nodes[0]->psql('postgres', $take_over =~ s/\.\.\./$incarnation/r);
like($warning, qr/WARNING:  the registry with the incarnation $incarnation must never run again for the nodes that come here/, 'leaving: a warning');
wait_for_use($nodes[0], 'SELECT uses FROM snowflake.cluster', 'own');
issue('left', @nodes);
check_window('left', $nodes[0]);

check_phases('all', @phases);
$_->stop foreach $registry, @nodes;

#
# A standby becomes a node of its former primary: both have one incarnation.  It leaves, and is the primary's
# successor.
#
@phases = ();
my $former = new_node('former', init => [ allows_streaming => 1 ], limit => '10 s', conf => "snowflake.worker_id = 'auto'\nsnowflake.lease_duration = '3s'\n");
issue('a primary', $former);
my $heir = PostgreSQL::Test::Cluster->new('heir');
$former->backup('heir');
$heir->init_from_backup($former, 'heir', has_streaming => 1);
set_conf($heir, 'snowflake.registry' => conninfo_of($former));
$heir->start;
$former->wait_for_catchup($heir, 'replay', $former->lsn('insert'));
$heir->promote;
issue('a standby that is promoted beside it', $former, $heir);
$incarnation = incarnation_of($former);
is($heir->safe_psql('postgres', 'SELECT uses, incarnation FROM snowflake.cluster'), "another|$incarnation", 'it is a node of its former primary');
is(registry_row($former, $heir, 'closed_at IS NULL'), 't', 'with a lease from there');
is(incarnation_of($heir), $incarnation, 'both have one incarnation');
my $close = 'SELECT snowflake.close_registry($$' . $heir->safe_psql('postgres', 'SELECT snowflake.successor()') . '$$)';
like(sql_error($former, $close), qr/^ERROR:  22023: a registry's successor is another registry\n/, 'so it cannot be the successor');
set_and_reload($heir, 'snowflake.registry' => undef);
(undef, undef, $warning) = $heir->psql('postgres', $take_over =~ s/\.\.\./$incarnation/r);
like($warning, qr/WARNING:  the registry with the incarnation $incarnation must never run again for the nodes that come here/, 'it leaves');
isnt(incarnation_of($heir), $incarnation, 'it leaves: its tables have another incarnation');
wait_for_use($heir, 'SELECT uses FROM snowflake.cluster', 'own');
issue('it has left', $former, $heir);
move_registry($former, $heir);
set_and_reload($former, 'snowflake.registry' => conninfo_of($heir));
wait_for_use($former, $note_at_node, incarnation_of($heir));
pass('it is the successor: the former primary is its node');
issue('it is the successor', $former, $heir);
check_phases('a former primary', @phases);
$_->stop foreach $former, $heir;

done_testing();
