# 011_failover.pl
#	  A standby issues no ids (25006) and parses; promoted, it issues ids without a
#	  restart, and all are greater than those of the old primary, also where that ran
#	  ahead of the clock.  Each promotion is counted, once; its leases start max_ahead
#	  after it.  A fixed number is refused while the clock is behind the old primary's
#	  ids: on a promoted standby, and where a backup becomes a new primary.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeStatement;

# The clock is an hour ahead, so that others can be behind it, but not behind the creation of
# the extension; leases may end that much later than theirs.  16,000 ids a second: soon as far ahead of the clock as max_ahead allows, much farther
# than a promotion takes.
my $primary = new_node('primary', limit => '2 h', init => [ allows_streaming => 1, has_archiving => 1 ], conf => <<EOF);
snowflake.layout = 'twitter, sequence 4'
snowflake.max_ahead = '4s'
snowflake.clock_offset = '1h'
EOF
$primary->safe_psql('postgres', 'CREATE TABLE t (id bigint DEFAULT snowflake_nextval(), n int)');
my @before = issue_ids($primary, 10);
$primary->backup('early');

sub new_standby
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($primary, 'early', has_streaming => 1);
	# the archive has nothing of their timelines: none is missing in the history of the backup
	set_conf($node, archive_mode => 'off');
	return $node;
}

# And one whose clock is half an hour behind.
my $standby = new_standby('standby');
my $slow = new_standby('slow');
set_conf($slow, 'snowflake.clock_offset' => '30min');
my @standbys = ($standby, $slow);
$_->start foreach @standbys;

foreach my $call ('snowflake_nextval()', 'snowflake_nextval_batch(2)')
{
	like(sql_error($standby, "SELECT $call"),
		qr/ERROR:  25006: cannot issue ids during recovery\nHINT:  /, "standby: $call is refused");
}
is($standby->safe_psql('postgres', "SELECT worker_id, sequence, snowflake_timestamp($before[-1])
		= snowflake_timestamp($before[-1], 'twitter, sequence 4') FROM snowflake_parse($before[-1])"),
	$primary->safe_psql('postgres', "SELECT 1, sequence, true FROM snowflake_parse($before[-1])"),
	'standby: the parse side works');
is(stat_of($standby, "concat_ws(',', state, detail)"), 'standby,until this standby is promoted', 'standby: state');

# The primary runs ahead and is lost.
$primary->safe_psql('postgres', "INSERT INTO t (id, n) SELECT id, 0 FROM snowflake_nextval_batch(80000) AS id");
is($primary->safe_psql('postgres', "SELECT max_ahead_seen > '2.5 s' FROM pg_stat_snowflake"), 't', 'the primary runs ahead of its clock');
my $last = (issue_ids($primary, 1))[0];
$primary->safe_psql('postgres', 'INSERT INTO t VALUES (0, 0); SELECT pg_switch_wal()');
$primary->wait_for_catchup($_) foreach @standbys;
$primary->stop('immediate');

sub promoted_goes_on
{
	my ($node, $label, $started) = @_;
	my $first = run_sql($node, "SET snowflake.max_wait = '60s'; SELECT snowflake_nextval();");

	is($first->{error}, '', "$label: ids");
	cmp_ok($first->{out}, '>', $last, "$label: greater than the ids of the old primary");
	is($node->safe_psql('postgres', "SELECT count(*) FROM t WHERE id >= $first->{out}"), '0', "$label: also those in the table");
	is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, "$label: without a restart") if $started;
	return $first->{out};
}

sub check_generation
{
	my ($node, $label) = @_;

	is($node->safe_psql('postgres', 'SELECT generation, cardinality(counted) FROM snowflake.registry'), '2|1', "$label: it is counted, once");
}

my $started = $standby->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my $before = $standby->safe_psql('postgres', "SELECT clock_timestamp() + '1 h'");
$standby->promote;
my $first = promoted_goes_on($standby, 'promoted', $started);
is($standby->safe_psql('postgres', "SELECT snowflake_timestamp($first) >= '$before'::timestamptz + '4 s'"), 't',
	'promoted: ids start max_ahead after that');
check_generation($standby, 'promoted');
is($standby->safe_psql('postgres', 'SELECT string_agg(timeline::text, \',\' ORDER BY closed_at) FROM snowflake.worker_node'), '1,2',
	'promoted: the lease of the old primary is followed by another one');
$standby->restart;
cmp_ok((issue_ids($standby, 1))[0], '>', $last, 'restarted after the promotion');
check_generation($standby, 'restarted after the promotion');

$slow->promote;
poll('lease', sub { stat_of($slow, 'state') ne 'starting' });
like(sql_error($slow, 'SELECT snowflake_nextval()'), qr/ERROR:  55P03: the next id would be 1[5-8]\d\d\.\d+ s ahead/,
	'promoted with its clock behind: refused');
set_and_reload($slow, 'snowflake.clock_offset' => '1h');
promoted_goes_on($slow, 'promoted with its clock behind, which is right now');
$_->stop foreach @standbys;

#
# A backup with the archived WAL becomes a new primary.  Its clock is an hour back: its ids
# must not start there, nor where the backup was.
#
my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'early', has_restoring => 1, standby => 0);
set_conf($restored, 'snowflake.clock_offset' => 0, archive_mode => 'off', recovery_target_timeline => 'current');
$restored->start;
$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'no promotion';
poll('lease', sub { stat_of($restored, 'state') ne 'starting' });
is($restored->safe_psql('postgres', 'SELECT count(*) FROM t'), 80_001, 'restored backup: it has the rows of the old primary');
like(sql_error($restored, "SELECT snowflake_nextval()"), qr/ERROR:  55P03: the next id would be 3[2-6]\d\d\.\d+ s ahead/,
	'restored backup, an hour back: refused');
set_and_reload($restored, 'snowflake.clock_offset' => '1h');
promoted_goes_on($restored, 'restored backup');
check_generation($restored, 'restored backup');
$restored->stop;

done_testing();
