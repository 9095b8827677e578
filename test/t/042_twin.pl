# 042_twin.pl
#	  The simulator's registry is a twin in C of the functions of lease.sql
#	  (test/simulator/tables.c).  Random calls go to two databases and to the twin: results,
#	  errors and tables are equal.  test/simulator/twin.c says how, and what they are;
#	  test/perl/Twin.pm has the environment: TWIN_CALLS, TWIN_SEED, TWIN_SEQUENCE, TWIN_PLANTS.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Twin;

# Of the results what has to have happened: most errors of most functions.
my $twin = Twin->new(
	extension => 'snowflake',
	program => 'twin.c',
	sql => 'twin.sql',
	twin => 'tables.c',
	kinds => {
		start_server => [ 'ok', 'parameter' ],
		acquire_lease => [ 'ok', 'no table', 'no registry row', 'parameter', 'call late', 'layout not set', 'layout in use',
			'layout not greater', 'no number free', 'number held', 'too few numbers', 'behind creation', 'behind start', 'behind ids',
			'uses another', 'registry is self', 'no root', 'other incarnation' ],
		renew_lease => [ 'ok', 'parameter', 'no root', 'call late', 'renewal layout' ],
		release_lease => [ 'ok', 'parameter', 'call late' ],
		record_uses => [ 'ok', 'has nodes', 'recorded other' ],
		list_ends => ['ok'],
		hand_over => [ 'ok', 'parameter', 'call late', 'registry is self', 'registry behind' ] });

if (!defined $ENV{TWIN_PLANTS})
{
	$twin->compare;
	done_testing();
	exit;
}

#
# Bugs: what stands in a function, and what stands there instead
#
my @sql = (
	[ 'begin_call', 'call <= last_call', 'call < last_call' ],
	[ 'begin_call', 'call <= last_call', 'call = last_call' ],
	[ 'begin_call', 'greatest(w.starts_at, named_end)', 'least(w.leased_until, greatest(w.starts_at, named_end))' ],
	[ 'begin_call', 'WHEN w.granted_by > lease.granted_by THEN w.starts_at', '' ],
	[ 'begin_call', 'WHEN w.incarnation <> registry.incarnation THEN w.leased_until', '' ],
	[ 'begin_call', 'w.token = named AND w.start = start', 'w.token = named' ],
	[ 'begin_call', 'last_call = call' . "\n", 'last_call = w.last_call' . "\n" ],
	[ 'newest_lease', 'w.incarnation = incarnation AND (w.closed_at IS NULL OR w.leased_until > w.starts_at)', 'w.incarnation = incarnation' ],
	[ 'newest_lease', 'ORDER BY n.renewed_at DESC', 'ORDER BY n.incarnation DESC' ],
	[ 'renewal_time', "newest.renewed_at + interval '1 microsecond'", 'newest.renewed_at' ],
	[ 'greatest_id', 'least(leased_until - l.tick, l.last_id_time)', 'least(leased_until, l.last_id_time)' ],
	[ 'first_time_above', '+ l.tick END', 'END' ],
	[ 'greatest_id_of_others', 'u.layout <> $1', 'true' ],
	[ 'greatest_id_of_others', 'WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at', '' ],
	[ 'check_layout', 'w.leased_until > least(node_clock, twin.clock())', 'w.leased_until > node_clock' ],
	[ 'check_layout', 'AND (w.host_name, w.port, w.system_identifier)', 'AND (w.host_name, port, w.system_identifier)' ],
	[ 'check_layout', 'first_time > node_clock + ahead', 'first_time >= node_clock + ahead' ],
	[ 'check_layout', "least(max_ahead, interval '10 s')", 'max_ahead' ],
	[ 'unused_number', 'candidate := first + step * least(', 'candidate := first + least(' ],
	[ 'unused_number', 'candidate + count(*)', 'candidate + count(*) + 1' ],
	[ 'used_numbers', 'w.node_number > used.node_number AND w.node_number <= $2', 'w.node_number > used.node_number AND w.node_number < $2' ],
	[ 'choose_automatic', 'u.leased_until <= node_clock', 'u.leased_until < node_clock' ],
	[ 'choose_automatic', 'w.leased_until > earlier_clock', 'w.leased_until >= earlier_clock' ],
	[ 'choose_automatic', 'least(node_clock, twin.clock())', 'node_clock' ],
	[ 'choose_automatic', 'ORDER BY u.leased_until, u.node_number', 'ORDER BY u.leased_until, u.node_number DESC' ],
	[ 'choose_fixed', 'u.leased_until <= node_clock + max_ahead', 'u.leased_until < node_clock + max_ahead' ],
	[ 'choose_fixed', 'ORDER BY u.leased_until DESC, u.node_number', 'ORDER BY u.leased_until, u.node_number' ],
	[ 'check_other_server', 'w.system_identifier IS DISTINCT FROM own_cluster', 'true' ],
	[ 'check_other_server', 'w.leased_until > least(', 'w.leased_until >= least(' ],
	[ 'check_other_server', 'w.start <> start', 'true' ],
	[ 'choose_number', '1 - registry.generation % 2', 'registry.generation % 2' ],
	[ 'creation_floor', 'max_ahead + tick', 'max_ahead' ],
	[ 'registry_floor', 'greatest(', 'least(' ],
	[ 'lease_floor', 'registry.created_at > latest', 'registry.created_at >= latest' ],
	[ 'lease_floor', 'registry.starts_at > latest + max_ahead', 'registry.starts_at > latest' ],
	[ 'lease_floor', 'node_floor > latest + max_ahead', 'node_floor >= latest + max_ahead' ],
	[ 'count_generation', 'SELECT DISTINCT', 'SELECT' ],
	[ 'count_generation', 'greatest(r.starts_at, starts_at)', 'starts_at' ],
	[ 'count_generation', "OR r.system_identifier <> system_identifier\n", "\n" ],
	[ 'write_uses', 'c.one AND c.incarnation IS DISTINCT FROM incarnation', 'c.one AND c.incarnation <> incarnation' ],
	[ 'check_registry', 'incarnation <> registry.incarnation', 'false' ],
	[ 'check_registry', "c.uses = 'another'", 'false' ],
	[ 'check_root', "c.uses = 'another'", 'false' ],
	[ 'check_other_cluster', 'pg_postmaster_start_time() = launched_at', 'true' ],
	[ 'check_other_cluster', '= system_identifier', 'IS NOT NULL' ],
	[ 'lock_registry', 'result.database <> here', 'false' ],
	[ 'keep_cluster', 'IF NOT FOUND THEN', 'IF true THEN' ],
	[ 'start_server', 'node_clock + max_ahead + tick', 'node_clock + max_ahead' ],
	[ 'start_server', 'creation_floor', 'registry_floor' ],
	[ 'grant_lease', 'known_incarnation IS DISTINCT FROM registry.incarnation', 'known_incarnation <> registry.incarnation' ],
	[ 'grant_lease', 'known_incarnation IS DISTINCT FROM registry.incarnation', 'known_incarnation IS NULL' ],
	[ 'grant_lease', 'CASE WHEN own THEN node_floor END', 'node_floor' ],
	[ 'grant_lease', 'WHERE w.node_number = node_number AND w.closed_at IS NULL', 'WHERE w.node_number = node_number AND w.closed_at IS NULL AND w.incarnation = registry.incarnation' ],
	[ 'grant_lease', 'WHERE w.node_number = node_number ORDER BY', 'WHERE w.node_number = node_number AND w.incarnation = registry.incarnation ORDER BY' ],
	[ 'grant_lease', 'greatest(node_clock, starts_at) + lease_window', 'starts_at + lease_window' ],
	[ 'renew_lease', 'greatest(w.leased_until, lease_until)', 'greatest(w.starts_at, lease_until)' ],
	[ 'renew_lease', 'w.incarnation = registry.incarnation', 'true' ],
	[ 'renew_lease', 'lease_until <= greatest', 'lease_until < greatest' ],
	[ 'renew_lease', 'greatest(node_clock, lease.starts_at)', 'node_clock' ],
	[ 'release_lease', 'lease.closed_at IS NULL', 'true' ],
	[ 'record_uses', 'NOT change AND EXISTS', 'EXISTS' ],
	[ 'record_uses', 'NOT change AND incarnation IS NOT NULL', 'incarnation IS NOT NULL' ],
	[ 'record_uses', 'w.leased_until > twin.clock()', 'true' ],
	[ 'record_uses', 'w.closed_at IS NULL', 'true' ],
	[ 'list_ends', 'ORDER BY e.renewed_at, e.node_number', 'ORDER BY e.node_number, e.renewed_at' ],
	[ 'list_ends', 'max(w.renewed_at)', 'min(w.renewed_at)' ],
	[ 'list_ends', 'WHERE w.closed_at IS NULL OR w.leased_until > w.starts_at', '' ],
	[ 'hand_over', 'w.leased_until >= n.leased_until', 'w.leased_until > n.leased_until' ],
	[ 'hand_over', ' AND w.layout = l.definition', '' ],
	[ 'hand_over', 'r.starts_at < starts_at', 'true' ],
	[ 'hand_over', 'AND w.closed_at IS NOT NULL', '' ],
	[ 'hand_over', 'IF NOT own THEN', 'IF true THEN' ],
	[ 'hand_over', "starts_at > twin.clock() + interval '10 s'", "starts_at >= twin.clock() + interval '10 s'" ],
	[ 'hand_over', "c.now + n.nr * interval '1 microsecond'", 'c.now' ],
	[ 'hand_over', 'IF incarnation = registry.incarnation', 'IF false' ]);

my @c = (
	[ 'row->leased_until > row->starts_at', 'row->leased_until >= row->starts_at' ],
	[ "tables->rows[earlier].leased_until >\n", "tables->rows[earlier].leased_until <\n" ],
	[ "tables->rows[older].renewed_at >=\n", "tables->rows[older].renewed_at <=\n" ],
	[ 'layout->known = false;', '(void) layout;' ],
	[ 'layout->latest = Max(layout->latest, r->leased_until);', '(void) layout;' ],
	[ 'start->last_call = Max(start->last_call, to->last_call);', '(void) start;' ],
	[ 'index->numbers[links->number].num_open++;', '' ],
	[ 'tables->incarnation = transaction->incarnation;', '' ],
	[ 'tables->created_at = transaction->created_at;', '' ],
	[ 'choice.first += (choice.first & 1) != odd_bit;', '' ],
	[ 'overwrite_row(tables, index->former[i].row,
						  &index->former[i].was);', ';' ],
	[ 'count_calls(tables, &index->starts[start]);', '(void) start;' ],
	[ 'tables->uses = transaction->uses;', ';' ],
	[ 'tables->counted.num_entries = transaction->num_counted;', ';' ],
	[ 'tables->starts_at = transaction->starts_at;', ';' ],
	[ 'else if (lease != NULL && to.granted_by > lease->granted_by)', 'else if (lease != NULL && to.granted_by >= lease->granted_by)' ],
	[ 'call <= known->last_call', 'call < known->last_call' ],
	[ 'Max(here->clock, newest->renewed_at + 1)', 'here->clock' ],
	[ 'Min(tick, layout->max_tick)', 'tick' ],
	[ 'id >= snowflake_tick_first_id(layout, layout->max_tick)', 'id > snowflake_tick_last_id(layout, layout->max_tick)' ],
	[ 'tables->rows[i].leased_until > after', 'tables->rows[i].leased_until >= after' ],
	[ 'row->host != in->host || ', '' ],
	[ '(!in->own || row->system_identifier != in->system_identifier)', 'row->system_identifier != in->system_identifier' ],
	[ 'here->random(here->random_state) % (count - num_used)', '0' ],
	[ "(here->random(here->random_state) % count);", "(here->random(here->random_state) % (count / 2 + 1));" ],
	[ 'in->own ? node_floor : DT_NOBEGIN', 'node_floor' ],
	[ 'node_floor = Max(node_floor, in->known_until);', '' ],
	[ 'in->first_number <= in->last_number &&', '' ],
	[ 'in->lease_window <= 2 * USECS_PER_DAY', 'in->lease_window < 2 * USECS_PER_DAY' ],
	[ 'i < num_rows && tables->rows[i].closed', 'tables->rows[i].closed' ],
	[ "tables->rows[i].closed &&\n\t\t\t\ttables->rows[i].layout == end->layout", 'tables->rows[i].layout == end->layout' ],
	[ 'here->clock + i + 1', 'here->clock + 1' ],
	[ 'in->known_incarnation != tables->incarnation', 'in->known_incarnation == 0' ],
	[ 'Min(in->max_ahead, SECONDS(10))', 'in->max_ahead' ],
	[ 'if (!in->own && here->launched_at == in->launched_at', 'if (here->launched_at == in->launched_at' ],
	[ '		if (!may_have_issued(row))
			continue;
', '' ],
	[ 'to->num_numbers = from->num_numbers;', '' ],
	[ 'qsort(listed, out->num_ends, sizeof(ListedEnd), compare_listed_ends);', '' ],
	[ 'ends[place].renewed_at = Max(ends[place].renewed_at,
										 row->renewed_at);', ';' ]);

$twin->plant(\@sql, \@c);
done_testing();
