# 028_standby_registry.pl
#	  With a registry a hot standby draws ids, under a lease of its own that it takes at
#	  its first draw.  Promoted in the middle of drawing it goes on without a restart,
#	  beside the old primary, which lives and draws, too; no id repeats.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeRegistry;
use Time::HiRes qw(time);

my $registry = new_registry('registry');
my $place = $registry->host . ':' . $registry->port . '/postgres';
my $primary = new_member('primary', place($registry), init => [ allows_streaming => 1 ]);
my @files = write_ids(draw($primary, 100));

# Its state file and its timeline are those of the primary.
$primary->backup('drawn');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'drawn', has_streaming => 1);
$standby->start;
my $primary_number = wait_for_number($primary);

sub rows
{
	my ($node) = @_;

	return $registry->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE port = ' . $node->port);
}

ok(-e $standby->data_dir . '/snowflake.state', 'the standby has the state file of the primary');
my @drawers = (start_drawers($primary, count => 2, sql => GENTLE));
$drawers[0]->wait_for(500);
is($standby->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 't', 'it is a standby');
is(stat_of($standby, 'state, detail, node_number IS NULL'), 'starting|until the first draw|t', 'before its first draw: view');
is(rows($standby), 0, 'before its first draw: no row');
$standby->restart;
my $bound = registry_row($registry, $primary, 'leased_until');
poll('time for a lease', sub { $registry->safe_psql('postgres', "SELECT clock_timestamp() > '$bound'") eq 't' });
is(rows($standby), 0, 'before its first draw, for longer than a lease: no row');

push @drawers, start_drawers($standby, count => 2, sql => GENTLE);
$_->wait_for(500) foreach @drawers;
my $number = wait_for_number($standby);
isnt($number, $primary_number, 'the standby has a number of its own');
is(stat_of($standby, 'state, source, registry'), "ready|worker_node|$place", 'the standby: view');
is(rows($standby), 1, 'the standby: one row');
is(registry_row($registry, $standby, 'node_number, released_at IS NULL'), "$number|t", 'the standby: its row');
is(registry_row($registry, $primary, 'node_number, released_at IS NULL'), "$primary_number|t", 'the row of the primary is open still');
is($standby->safe_psql('postgres', 'BEGIN READ ONLY; SELECT snowflake_nextval() > 0'), 't', 'in a read-only transaction');

# Restarted, it takes a lease again when it is asked for an id.
my $begin = time;
$standby->stop;
my $seconds = time - $begin;
push @files, (pop @drawers)->stop;
$standby->start;
SKIP:
{
	my $released = registry_row($registry, $standby, 'released_at IS NOT NULL');

	# it does not wait longer for the answer
	skip 'the registry took too long', 1 if $seconds > 1.5 && $released ne 't';
	is($released, 't', 'a standby that stops gives its number back');
}
is(stat_of($standby, 'state, node_number IS NULL'), 'starting|t', 'restarted: no lease before the first draw');
push @drawers, start_drawers($standby, count => 2, sql => GENTLE);
$drawers[1]->wait_for(500);
$number = wait_for_number($standby);
isnt($number, $primary_number, 'restarted: a number of its own');

# Promotion beside the primary, which goes on: both are writable now.
my $started = $standby->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
$standby->promote;
is($standby->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 'f', 'promoted');
my $now = $standby->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp() + interval \'3.5 s\')');
$_->wait_for(500) foreach @drawers;
poll('time for a lease', sub { $registry->safe_psql('postgres', "SELECT extract(epoch FROM clock_timestamp()) > $now") eq 't' });
$_->wait_for(500) foreach @drawers;
is($standby->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'promoted: no restart');
is(settle("$number|t|t", sub { registry_row($registry, $standby, 'node_number, released_at IS NULL, leased_until > clock_timestamp()') }), "$number|t|t",
	'promoted: its lease goes on');
push @files, map { $_->stop } @drawers;
is($_->errors, '', 'no session noticed anything') foreach @drawers;
check_ids('standby promoted beside the primary', @files);

# Restarted on its own timeline; and the first draw of another standby after its promotion.
$standby->restart;
push @files, write_ids(draw($standby, 100));
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($primary, 'drawn', has_streaming => 1);
$second->start;
$second->promote;
push @files, write_ids(draw($second, 100)), write_ids(draw($primary, 100));
is(settle(3, sub { $registry->safe_psql('postgres', 'SELECT count(DISTINCT node_number) FROM snowflake.worker_node
		WHERE released_at IS NULL AND leased_until > clock_timestamp()') }), 3, 'three servers, three numbers');
isnt(wait_for_number($second), $_, 'promoted before its first draw: a number of its own')
  foreach wait_for_number($primary), wait_for_number($standby);
check_ids('all', @files);

# The registry is gone when a standby is promoted, and comes back.
$second->stop;
my $third = PostgreSQL::Test::Cluster->new('third');
$third->init_from_backup($primary, 'drawn', has_streaming => 1);
$third->start;
$registry->stop;
like((draw_error_with_reason($third, '300ms'))[0], qr/^ERROR:  55P03: could not reach the registry \Q$place\E\nDETAIL:  .*\nHINT:  /,
	'registry down: the draw of a standby says why');
$third->promote;
$registry->start;
poll('draw', sub { sql_error($third, 'SELECT snowflake_nextval()') eq '' });
check_ids('a standby promoted without a registry', @files, map { write_ids(draw($_, 100)) } $third, $standby, $primary);
$_->stop foreach $third, $standby, $primary, $registry;

done_testing();
