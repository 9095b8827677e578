# programs.pl
#	  Programs that make ids themselves, with the libraries of client: what an id costs in each language
#	  beside a reading of the clock and what else its programs take.  Further with client/java: how many a
#	  second, what an id costs beside an AtomicLong, whether a layout with fewer ids gives all that it has,
#	  and how long the next one takes at worst.
#
# There is one process for each language, programs.* (and Programs.java), whose leases are of registries on the
# same machine.  A language that is not there is left out; bench/run makes them ready.
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
my (%answers, %commands, %pids);

# start(LANGUAGE, COMMAND...): its process
sub start
{
	my ($language, @command) = @_;

	$pids{$language} = open2($answers{$language}, $commands{$language}, @command);
}

# What a process answers.
sub ask_in
{
	my ($language, @words) = @_;

	print { $commands{$language} } join("\t", @words) . "\n";
	$commands{$language}->flush;
	my $answer = readline($answers{$language}) // die "the process of $language has ended\n";
	chomp $answer;
	return $answer;
}

sub ask
{
	return ask_in('Java', @_);
}

my $registry = "host=127.0.0.1 port=$servers[0]{port} dbname=postgres user=postgres";
my $layout = $layouts[0];

start('Java', 'java', '-cp', "$classes:$driver", 'Programs', @arguments);
start('Node.js', 'node', '--no-deprecation', 'bench/programs.mjs', $layout, "postgresql://postgres\@127.0.0.1:$servers[0]{port}/postgres")
  if -e 'client/node/node_modules/pg';
{
	local $ENV{PYTHONPATH} = 'client/python';
	start('Python', '/usr/bin/python3', '-B', 'bench/programs.py', $layout, $registry)
	  if system("/usr/bin/python3 -c 'import psycopg' 2>/dev/null") == 0;
}
start('Go', "$ENV{BENCH_WORK}/programs", $layout, "$registry sslmode=disable") if -x "$ENV{BENCH_WORK}/programs";

my %calls = ('incrementAndGet()' => 'increment', 'currentTimeMillis()' => 'clock', 'next()' => 'ids 0');

# All that is measured is compiled by now, for one thread and for two.
ask('speed', $_, 2, quick(3000, 300)) foreach values %calls;
ask('latency', $_, quick(1000, 100)) foreach 'nothing', 'ids 0', 'renewed 0';

# What is measured in each language, and the names in the table of what is in each.
my %names = ('ids' => 'next()', 'batch' => 'next(1000), for each id', 'clock' => 'the clock', 'uuid' => 'a random UUID');

figure(id => 'languages', title => 'Time of an id, by language, in a program with one thread', unit => 'ns', absolute => 1, x => 'language',
	logarithmic => 1, references => [ 'the clock', 'a random UUID' ]);
foreach my $language (sort keys %pids)
{
	my @all = $language eq 'Java' ? ('ids 0', 'batch 0', 'clock', 'uuid') : split ' ', ask_in($language, 'what');

	ask_in($language, 'speed', $_, 1, quick(1000, 100)) foreach @all;
	rounds('languages', $language,
		map { my $what = $_; ($names{ $what =~ s/ 0$//r } // $what => sub { 1e9 / ask_in($language, 'speed', $what, 1, $time) }) } @all);
}
note('languages', 'A layout with more ids than can be made. `the clock` is a reading of it, which each id needs: `Date.now()` in Node.js, ' .
	'whose `next()` is waited for; `a random UUID` is what comes with the language, in Go github.com/google/uuid. xid is github.com/rs/xid; ' .
	'ulid and @sapphire/snowflake are npm\'s. Each result but these is compared with the one before.');

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
my $least;
each_round('latency', map { my $kind = $_; sub {
	my ($run) = @_;
	my (@times) = split ' ', ask('latency', $kinds{$kind}, quick(2000, 1000));
	my $renewed = pop @times;
	my $calls = pop @times;

	sample('latency', $kind, $quantiles[$_], $run, $times[$_]) foreach 0 .. $#quantiles;
	return if $kind eq 'no call';
	$least = $calls if $calls < ($least // $calls + 1);
	die "no lease was renewed\n" if $kind eq 'with renewals' && !$renewed;
} } keys %kinds);
note('latency', "Calls of one thread, each between two readings of System.nanoTime(), at least $least of them a sample; `no call` is the two readings. " .
	'Renewals: the lease is 1 s, and is renewed whenever a quarter of it is used (the default is one renewal in half a minute).');

foreach my $language (sort keys %pids)
{
	close $commands{$language};
	waitpid $pids{$language}, 0;
	die "the process of $language failed\n" if $? != 0;
}
finish();
