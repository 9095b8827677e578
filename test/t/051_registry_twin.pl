# 051_registry_twin.pl
#	  The simulator's registry is a twin in C of the functions of snowflake_registry
#	  (test/simulator/registry.c).  Random calls go to two servers and to the twin: results,
#	  errors and tables are equal.  test/simulator/registry_twin.c says how, and what they are;
#	  test/perl/Twin.pm has the environment: TWIN_CALLS, TWIN_SEED, TWIN_SEQUENCE, TWIN_PLANTS.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Twin;

# Of the answers what has to have happened: each reason of each function, but for some of the rare errors of
# lock_registry().
my @start = ('registry closed', 'no history');
my $twin = Twin->new(
	extension => 'snowflake_registry',
	program => 'registry_twin.c',
	sql => 'registry_twin.sql',
	twin => 'registry.c',
	kinds => {
		start_server => [ 'ok', 'no history' ],
		check_promotion => [ 'ok', 'registry closed', 'uses another', 'other layout' ],
		acquire_lease => [ 'ok', 'value', 'protocol unknown', @start, 'uses another', 'other layout', 'registry is self', 'other source',
			'call late', 'no number free', 'number held', 'too few numbers', 'behind creation', 'behind start', 'behind ids', 'end is past',
			'layout full', 'no such number' ],
		acquire_own_lease => [ 'ok', 'value', 'protocol unknown', @start, 'uses another', 'other layout', 'call late', 'no number free',
			'number held', 'too few numbers', 'behind creation', 'behind start', 'behind ids', 'layout full' ],
		renew_lease => [ 'ok', 'value', @start, 'uses another', 'other layout', 'call late', 'rolled back', 'incarnation', 'generation',
			'closed', 'earlier generation' ],
		release_lease => [ 'ok', 'value', 'registry closed', 'call late', 'unknown' ],
		record_uses => [ 'ok', 'uses', 'has nodes' ],
		change_layout => [ 'ok', 'registry closed', 'layout full', 'layout not greater' ],
		limit_leases => [ 'ok', 'registry closed', 'limit' ],
		ids_end_before => [ 'ok', 'time out of range' ],
		'ids_end_before of a role' => ['ok'],
		close_registry => [ 'ok', 'registry closed', 'successor is self', 'different layouts' ],
		closed_registry => [ 'ok', 'not closed' ],
		take_over => [ 'ok', 'registry closed', 'other successor', 'different layouts', 'floor ahead' ],
		take_over_lost => [ 'ok', 'registry closed', 'takes self' ] });

#
# Bugs: what stands in a function, and what stands there instead
#
my @sql = (
	[ 'check_call', q{'@ == false'}, q{'@.type() == "boolean"'} ],
	[ 'lock_registry', 'v_registry.database <> v_found.database AND', 'false AND' ],
	[ 'lock_registry', 'AND v_registry.closed_at IS NULL', '' ],
	[ 'longest_window', "CASE WHEN p_registry.old_limit_until > p_now THEN p_registry.old_limit END", 'NULL' ],
	[ 'is_plain', 'cardinality(p_new) = 1 AND', '' ],
	[ 'is_plain', '= p_timeline - 1', '< p_timeline' ],
	[ 'count_generation', 'r.generation + cardinality(v_new)', 'r.generation + 1' ],
	[ 'count_generation', "v_floor := p_now + snowflake.longest_window(p_registry, p_now);", '' ],
	[ 'count_generation', 'greatest(r.counted_at, p_now)', 'p_now' ],
	[ 'count_generation', ', mark = NULL', '' ],
	[ 'generation_starts_at', 'p_registry.counted_at + least', 'p_registry.counted_at + greatest' ],
	[ 'check_cluster', 'AND v_cluster.incarnation <> ALL (p_registry.taken_over)', '' ],
	[ 'check_cluster', 'CASE WHEN v_cluster.layout IS NULL THEN snowflake.refuse_full(p_layout, twin.clock()) END', 'NULL' ],
	[ 'check_source', 'AND p_uses <> ALL (p_registry.taken_over)', '' ],
	[ 'close_leases_of_start', 'p_call <= v_lease.last_call', 'p_call < v_lease.last_call' ],
	[ 'close_leases_of_start', 'WHEN v_lease.granted_by > p_named.granted_by THEN v_lease.starts_at', '' ],
	[ 'close_leases_of_start', 'greatest(v_lease.starts_at, p_named.ids_end_at)', 'p_named.ids_end_at' ],
	[ 'is_rolled_back', 'least(p_named.leased_until, p_now + p_registry.end_limit)', 'p_named.leased_until' ],
	[ 'is_rolled_back', 'v_row.token IS NULL OR', '' ],
	[ 'is_rolled_back', 'p_named.node_number > snowflake.greatest_number(c.layout)', 'false' ],
	[ 'choose_fixed', 'AND NOT (p_own AND n.own)', '' ],
	[ 'longest_unused', 'n.ended_until <= p_node_clock', 'true' ],
	[ 'choose_number', '1 - p_registry.generation % 2', '0' ],
	[ 'lease_starts_at', "interval '10 s' + p_max_ahead", "interval '10 s'" ],
	[ 'open_lease', "(p_call -> 'last_number')::bigint > snowflake.greatest_number", "p_number > snowflake.greatest_number" ],
	[ 'open_lease', 'v_row.ended_until, v_row.leased_until', 'v_row.leased_until' ],
	[ 'lease_end', 'p_now + p_registry.end_limit', "'infinity'" ],
	[ 'grant_lease', 'snowflake.is_rolled_back(v_registry, v_now, v_named)', 'false' ],
	[ 'cluster_ids_end_at', 'AND w.start <> v_start THEN true', 'THEN true' ],
	[ 'cluster_ids_end_at', "least(snowflake.span_of((p_call -> 'max_ahead')::bigint), interval '10 s')", "interval '10 s'" ],
	[ 'cluster_ids_end_at', 'v_end > p_clock', 'true' ],
	[ 'renew_lease', 'AND v_lease.starts_at >= v_lease.ended_until', '' ],
	[ 'renew_lease', 'v_starts_at > v_node_clock + v_max_ahead', 'true' ],
	[ 'renew_lease', 'recorded_until = greatest(n.recorded_until, v_end.leased_until),', '' ],
	[ 'merge_node_number', 'v_row.recorded_until := NEW.recorded_until', 'v_row.recorded_until := greatest(NEW.recorded_until, v_row.ended_until)' ],
	[ 'keep_cluster', 'n.free_since IS NOT NULL', 'false' ],
	[ 'keep_cluster', 'n.token IS NOT NULL OR', '' ],
	[ 'change_layout', 'refuse_full(definition, v_now + v_window)', 'refuse_full(definition, v_now)' ],
	[ 'change_layout', 'PERFORM snowflake.close_lease(n, n.leased_until)', 'PERFORM' ],
	[ 'check_end_of_ids', "p_time >= '0001-01-01 00:00:00+00' AND", '' ],
	[ 'ids_end_before', 'least(r.created_at, v_time)', 'v_time' ],
	[ 'take_over', 'created_at = greatest(r.created_at, v_created_at),', '' ],
	[ 'take_over', 'greatest(r.end_limit, v_limit)', 'r.end_limit' ],
	[ 'refuse_to_move', 'p_floor > p_latest', 'false' ],
	[ 'add_taken_over', 'CASE WHEN v_opened IS NULL THEN r.incarnation ELSE twin.new_uuid() END', 'r.incarnation' ]);
if (defined $ENV{TWIN_PLANTS})
{
	$twin->plant(\@sql, []);
}
else
{
	my $code = join('', map { slurp_file($_) } glob 'src/sql/registry/*.sql') =~ s/gen_random_uuid/twin.new_uuid/gr =~ s/clock_timestamp/twin.clock/gr;
	my %code;

	$code{$1} .= $2 while $code =~ /^CREATE FUNCTION snowflake\.(\w+)(.*?)^\$\$;$/msg;
	is(join("\n", map { "$_->[0]: $_->[1]" } grep { index($code{ $_->[0] } // '', $_->[1]) < 0 } @sql), '', 'what the bugs replace stands there');
	$twin->compare;
}
done_testing();
