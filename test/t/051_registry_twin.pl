# 051_registry_twin.pl
#	  The simulator's registry is a twin in C of the functions of snowflake_registry
#	  (test/simulator/registry.c).  Random calls go to two databases and to the twin: results,
#	  errors and tables are equal.  test/simulator/registry_twin.c says how, and what they are;
#	  test/perl/Twin.pm has the environment: TWIN_CALLS, TWIN_SEED, TWIN_SEQUENCE, TWIN_PLANTS.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Twin;

# Of the results what has to have happened: each error of each function, but for some of
# the rare ones of lock_registry(), which all have.
my @lock = ('closed', 'no history', 'hot standby', 'isolation level', 'replication origin');
my $twin = Twin->new(
	extension => 'snowflake_registry',
	program => 'registry_twin.c',
	sql => 'registry_twin.sql',
	twin => 'registry.c',
	kinds => {
		start_server => [ 'ok', 'value', 'no history' ],
		acquire_lease => [ 'ok', 'no table', 'no registry row', 'value', 'protocol unknown', @lock, 'uses another',
			'registry is self', 'other source', 'call late', 'layout not set', 'layout in use', 'layout not greater',
			'no number free', 'number held', 'too few numbers', 'behind creation', 'behind start', 'behind ids', 'layout ended' ],
		acquire_own_lease => [ 'ok', 'value', 'protocol unknown', 'closed', 'no history', 'uses another', 'call late', 'layout not set',
			'layout in use', 'layout not greater', 'no number free', 'number held', 'too few numbers', 'behind creation',
			'behind start', 'behind ids', 'layout ended' ],
		renew_lease => [ 'ok', 'value', 'closed', 'uses another', 'call late', 'renewal layout',
			map({ "no, $_" } qw(unknown incarnation generation closed)) ],
		release_lease => [ 'ok', 'value', 'closed', 'call late', 'no, unknown', 'no, closed' ],
		list_leases => ['ok'],
		record_uses => [ 'ok', 'recorded other', 'has nodes' ],
		close_registry => [ 'ok', 'closed', 'successor is self' ],
		closed_registry => [ 'ok', 'not closed', 'not committed' ],
		take_over => [ 'ok', 'value', 'closed', 'other successor', 'floor ahead', 'row refused' ],
		take_over_lost => [ 'ok', 'closed', 'takes self' ],
		ids_end_before => [ 'ok', 'closed', 'time not finite' ] });

if (!defined $ENV{TWIN_PLANTS})
{
	$twin->compare;
	done_testing();
	exit;
}

#
# Bugs: what stands in a function, and what stands there instead
#
my @sql = ();
my @c = ();
$twin->plant(\@sql, \@c);
done_testing();
