# hotpath.pl
#	  Issuing ids, outside SQL and in it: how many ids a second the machine makes, and
#	  whether a layout with fewer gives all that it has.
#
# Outside SQL it is bench/hotpath.c that issues the ids, and checks each.
use strict;
use warnings;

use Bench;
use BenchSession;

BenchSession::build('hotpath');

# A line that the harness prints.
sub hotpath
{
	my (@arguments) = @_;

	open my $output, '-|', 'bench/hotpath', @arguments or die "hotpath: $!";
	my $line = readline $output;
	close $output or die "hotpath @arguments failed";
	chomp $line;
	return $line;
}

# How fast: all ids are at the clock with the wide layout, and ahead of it with the
# other, which has 65,536 ids a second and may run an hour ahead.
my $wide = "timestamp 41, worker 5, sequence 17, tick 1ms, epoch 2024-01-01T00:00:00Z";
my $narrow = 'liaoxuefeng';
my $ids = quick(4_000_000, 200_000);
my %speeds = (
	'fetch-add' => [ 'add', $wide, 1000 ],
	'reading of the clock' => [ 'clock', $wide, 1000 ],
	'one by one, in a burst' => [ 'one', $narrow, 3_600_000 ],
	'one by one, at the clock' => [ 'one', $wide, 1000 ],
	'batches of 1,000' => [ 'batch', $narrow, 3_600_000 ]);

figure(id => 'speed', title => 'Ids a second, outside SQL', unit => 'per second', absolute => 1, x => 'processes',
	references => ['fetch-add'], logarithmic => 1,
	subjects => [ 'fetch-add', 'reading of the clock', 'one by one, in a burst', 'one by one, at the clock', 'batches of 1,000' ]);
note('speed', 'All processes together, each as fast as it can. Fetch-add is one atomic addition to one word that all share: ' .
	'the least that a counter without gaps can do. A reading of the clock shares nothing. In a burst: ids are ahead of the clock. ' .
	"Each sample is $ids ids, all of which increase in their process and are distinct.");

foreach my $processes (1, 2, 4, 8)
{
	rounds('speed', $processes,
		map { my ($kind, $layout, $ahead) = @{ $speeds{$_} }; ($_ => sub { hotpath($kind, $processes, $layout, $ahead, $ids) }) } keys %speeds);
}

# What layouts have: sequences a tick times ticks a second.
my %limits = (twitter => 4096 * 1000, js53 => 256 * 100);
my %issuing = (
	'one by one' => 'count(snowflake_nextval()) FROM generate_series(1, %d)',
	'batches' => 'count(*) FROM snowflake_nextval_batch(%d)');
# Seconds.  Of js53 longer, as its ids come 256 at a time.  Outside SQL, as many as may be ahead
# are issued in the first of them.
my %measured = (twitter => quick(1, 0.2), js53 => quick(2, 0.2));
my $warm_outside = quick(1, 0.5);
my $warm = quick(0.3, 0.1);
my (%servers, %sessions);

foreach my $layout (sort keys %limits)
{
	$servers{$layout} = new_server("hotpath-$layout", 'snowflake.layout' => $layout, 'shared_buffers' => "'32MB'");
	$sessions{$layout} = [ map { BenchSession->new($servers{$layout}) } 0 .. 4 ];
}

# Ids a second outside SQL.
sub limit_outside
{
	my ($layout, $processes) = @_;

	# room for all, and for what may be ahead, in each process
	my $room = int(($warm_outside + $measured{$layout} + 3) * $limits{$layout} * $processes);

	return hotpath('one', $processes, $layout, 1000, $room, $warm_outside * 1000, $measured{$layout} * 1000);
}

# The same of so many sessions, by the extension's counters.
sub limit_in_sql
{
	my ($layout, $count, $how) = @_;
	my ($observer, @others) = @{ $sessions{$layout} };
	my @clients = @others[ 0 .. $count - 1 ];
	my $part = sprintf($issuing{$how}, $limits{$layout} > 1e6 ? 10_000 : 1000);
	my $time = $warm + $measured{$layout} + 0.1;
	my $see = "SELECT pg_sleep(%s) \\g /dev/null\n" .
	  'SELECT extract(epoch FROM clock_timestamp()), sum(ids_issued) FROM pg_stat_snowflake';

	# nearly as far ahead as it goes, 1,000,000 ids at a time
	$observer->value("SELECT count(*) FROM pg_stat_snowflake, LATERAL snowflake_nextval_batch(" .
		"least(greatest($limits{$layout} * (0.95 - extract(epoch FROM ahead)), 1), 1000000)::integer)") foreach 1 .. 4;
	$_->send("DO \$\$ DECLARE until timestamptz := clock_timestamp() + interval '$time s'; " .
		"BEGIN WHILE clock_timestamp() < until LOOP PERFORM $part; END LOOP; END \$\$; SELECT 1") foreach @clients;
	my ($begin, $before) = split /\|/, $observer->value(sprintf($see, $warm));
	my ($end, $after) = split /\|/, $observer->value(sprintf($see, $measured{$layout}));
	$_->receive foreach @clients;
	return ($after - $before) / ($end - $begin);
}

my %ways = map { my $n = $_; my $s = $n > 1 ? 's' : '';
	(	$n > 1 ? "outside SQL, $n processes" : 'outside SQL, 1 process' => sub { limit_outside($_[0], $n) },
		"one by one, $n session$s" => sub { limit_in_sql($_[0], $n, 'one by one') },
		"batches, $n session$s" => sub { limit_in_sql($_[0], $n, 'batches') }) } quick(1, 0) || (), 4;

figure(id => 'limit', title => 'Ids a second of layouts with few', unit => 'per second', absolute => 1, x => 'layout',
	references => ["the layout's limit"], subjects => [ sort keys %ways ]);
note('limit', 'After as many have been issued as may be ahead of the clock (snowflake.max_ahead is 1 s). Each process and ' .
	'session issues ids as fast as it can. The limit is ' .
	join(', ', map { "$limits{$_} of $_" } sort keys %limits) . '. Where the ratio is greater than 1, ids were not yet as far ' .
	'ahead as they may be when the sample began.');
foreach my $layout (sort keys %limits)
{
	goal(figure => 'limit', subject => $_, x => $layout, reference => "the layout's limit", at_least => 0.99) foreach sort keys %ways;
	rounds('limit', $layout, "the layout's limit" => sub { $limits{$layout} },
		map { my $way = $ways{$_}; ($_ => sub { $way->($layout) }) } keys %ways);
	$servers{$layout}->sql("SELECT 1 FROM pg_stat_snowflake WHERE max_ahead_seen > '1 s'") eq ''
	  or die "ids of $layout were too far ahead of the clock";
}
finish();
