# programs.pl
#	  A program that makes ids itself, with the library of client/java: how many a second, what
#	  an id costs beside an AtomicLong, whether a layout with fewer ids gives all that it has, and
#	  how long the next one takes at worst.
#
# All calls are made by one Java process, Programs.java, whose leases are of registries on the
# same machine.
use strict;
use warnings;

use IPC::Open2;

use Bench;

# 131,072 ids a millisecond are more than the machine makes; twitter has 4,096.
my @layouts = ('timestamp 41, worker 5, sequence 17, tick 1ms, epoch 2024-01-01T00:00:00Z', 'twitter');
my $limit = 4096 * 1000;
my $time = quick(1000, 200);
my $driver = '/usr/share/java/postgresql.jar';
my (@arguments, @servers);

foreach my $layout (@layouts)
{
	my $server = new_server('programs' . @servers, 'listen_addresses' => "'127.0.0.1'", 'snowflake.layout' => "'$layout'");

	$server->sql('CREATE EXTENSION IF NOT EXISTS snowflake_registry');
	push @servers, $server;
	push @arguments, $layout, "jdbc:postgresql://127.0.0.1:$server->{port}/postgres?user=postgres";
}
my $classes = "$servers[0]{dir}/classes";
system('javac', '--release', '11', '-d', $classes, glob('client/java/src/main/java/example/snowflake/*.java'), 'bench/Programs.java') == 0
  or die 'bench/Programs.java was not compiled';
my $pid = open2(my $answers, my $commands, 'java', '-cp', "$classes:$driver", 'Programs', @arguments);

# What the process answers.
sub ask
{
	my (@words) = @_;

	print $commands join("\t", @words) . "\n";
	$commands->flush;
	my $answer = readline($answers) // die "the Java process has ended\n";
	chomp $answer;
	return $answer;
}

my %calls = ('incrementAndGet()' => 'increment', 'currentTimeMillis()' => 'clock', 'next()' => 'ids 0');

# All that is measured is compiled by now, for one thread and for two.
ask('speed', $_, 2, quick(3000, 300)) foreach values %calls;
ask('latency', $_, quick(1000, 100)) foreach 'nothing', 'ids 0', 'renewed 0';

figure(id => 'cost', title => 'Time of a call, in a Java program with one thread', unit => 'ns', absolute => 1,
	references => [ 'incrementAndGet()', 'currentTimeMillis()' ], subjects => [ sort keys %calls ]);
goal(figure => 'cost', subject => 'next()', reference => undef, at_most => 60, label => 'an id, in ns');
rounds('cost', undef, map { my $call = $calls{$_}; ($_ => sub { 1e9 / ask('speed', $call, 1, $time) }) } keys %calls);
note('cost', 'A layout with more ids than can be made. `next()` is that of `Snowflake`, `incrementAndGet()` that of an AtomicLong, ' .
	'`currentTimeMillis()` a reading of the clock, which each id needs. Each result is compared with the one before.');

figure(id => 'speed', title => 'Ids a second, in a Java program', unit => 'per second', absolute => 1, x => 'threads',
	references => ['incrementAndGet()'], subjects => [ 'incrementAndGet()', 'next()' ]);
foreach my $threads (1, 2)
{
	rounds('speed', $threads, map { my $call = $calls{$_}; ($_ => sub { ask('speed', $call, $threads, $time) }) } 'incrementAndGet()', 'next()');
}
note('speed', 'All threads together, which share one `Snowflake` or one AtomicLong.');

figure(id => 'limit', title => 'Ids a second of twitter, in a Java program', unit => 'per second', absolute => 1, x => 'threads',
	references => ["the layout's limit"], subjects => ['next()']);
foreach my $threads (1, 2)
{
	goal(figure => 'limit', subject => 'next()', x => $threads, reference => "the layout's limit", at_least => 0.99);
	rounds('limit', $threads, "the layout's limit" => sub { $limit },
		# as many as may be ahead of the clock come first, and do not count
		'next()' => sub { ask('speed', 'ids 1', $threads, 1500); ask('speed', 'ids 1', $threads, 2 * $time) });
}
note('limit', "After as many have been issued as may be ahead of the clock (1 s). The limit is $limit a second.");

figure(id => 'latency', title => 'Latency of next(), in a Java program', unit => 'ns', absolute => 1, logarithmic => 1,
	x => 'quantile', references => ['without renewals'], subjects => [ 'no call', 'without renewals', 'with renewals' ]);
my %kinds = ('no call' => 'nothing', 'without renewals' => 'ids 0', 'with renewals' => 'renewed 0');
my @quantiles = ('p50', 'p99', 'p99.9', 'max');
my $renewals = 'SELECT sum(extract(epoch FROM leased_until)) FROM snowflake.node_number';
my $least;
each_round('latency', map { my $kind = $_; sub {
	my ($run) = @_;
	my $before = $servers[0]->sql($renewals);
	my (@times) = split ' ', ask('latency', $kinds{$kind}, 2 * $time);
	my $calls = pop @times;

	sample('latency', $kind, $quantiles[$_], $run, $times[$_]) foreach 0 .. $#quantiles;
	return if $kind eq 'no call';
	$least = $calls if $calls < ($least // $calls + 1);
	if ($kind eq 'with renewals')
	{
		my $ends = $servers[0]->sql($renewals) - $before;
		die "no lease was renewed\n" if $ends <= 0;
	}
} } keys %kinds);
note('latency', "Calls of one thread, each between two readings of System.nanoTime(), at least $least of them a sample; `no call` is the two readings. " .
	'Renewals: the lease is 1 s, and is renewed whenever a quarter of it is used (the default is one renewal in half a minute).');

close $commands;
waitpid $pid, 0;
die "the Java process failed\n" if $? != 0;
finish();
