# 062_what_promotion_refuses.pl
#	  A standby says in its log, when it starts and again when that has changed, what its tables would refuse after
#	  a promotion: another default layout, another registry.  It is quiet where a promotion issues ids.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;

my $layout = 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2020-01-01T00:00:00Z';
my $primary = new_node('primary', init => [ allows_streaming => 1 ]);
issue_ids($primary, 10);
$primary->backup('backup');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
set_conf($standby, 'snowflake.layout' => $layout);
my $end = log_end($standby);
$standby->start;
poll('a standby with another layout says so', sub { log_since($standby, $end) =~ /snowflake: if this standby is promoted/ });
my $log = log_since($standby, $end);
like($log, qr/if this standby is promoted, it issues no ids: the layout is not the one that ids are issued under\n.*\bDETAIL:  Ids are issued under "timestamp 41, datacenter 5, worker 5, .*\n.*HINT:  .*snowflake\.layout/,
	'what, why, and the line to set');
is(stat_of($standby, 'state'), 'standby', 'its state is that of a standby');

# what it said comes true
$standby->promote;
poll('a lease, or none', sub { stat_of($standby, 'state') eq 'refused' });
like((nextval_error_with_reason($standby, '5s'))[0], qr/^ERROR:  55000: the layout is not the one that ids are issued under\n/, 'promoted: refused with the same message');
$standby->stop;

# with the right layout it is quiet
my $right = PostgreSQL::Test::Cluster->new('right');
$right->init_from_backup($primary, 'backup', has_streaming => 1);
set_conf($right, track_functions => 'all');
$right->start;
poll('it has looked', sub { $right->safe_psql('postgres', "SELECT calls > 0 FROM pg_stat_user_functions WHERE funcname = 'check_promotion'") eq 't' });
unlike(log_since($right, 0), qr/if this standby is promoted/, 'the right layout: nothing is said');
$right->promote;
is(scalar issue_ids($right, 10), 10, 'promoted: ids');

done_testing();
