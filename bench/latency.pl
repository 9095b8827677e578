# latency.pl
#	  How long the next id takes at worst: p50, p99, p99.9 and the longest, while nothing else
#	  happens, while leases are renewed, while the checkpointer runs, and while the clock
#	  is set to and fro.
#
# In the server: latency.c calls the function itself.  Round trip: what pgbench sees of
# SELECT, one statement at a time.  Beside it nextval(), and in the server a loop that
# calls nothing.  The disturbances are counted: a sample without any is an error.
use strict;
use warnings;

use List::Util qw(shuffle sum);
use POSIX ();
use Time::HiRes qw(sleep);

use Bench;

# Longer than the quarter of a second after which the shortest lease is renewed.
my $milliseconds = quick(1000, 400);
my %trips = ('snowflake_nextval()' => quick(100_000, 3_000), 'nextval()' => quick(30_000, 3_000));
my @quantiles = ('p50', 'p99', 'p99.9', 'max');

# 2^20 ids a millisecond: no sample comes near the limit.
my $layout = "'timestamp 39, worker 4, sequence 20, tick 1ms, epoch 2024-01-01T00:00:00Z'";
my %common = ('snowflake.layout' => $layout, 'snowflake.worker_id' => "'auto'", 'shared_buffers' => "'64MB'");
# The least there is: a lease is renewed when a quarter of its window is used.
my %short = ('snowflake.lease_duration' => "'1s'", 'snowflake.max_ahead' => "'0'");

my $steady = new_server('steady', %common, 'snowflake.lease_duration' => "'1h'");
my $local = new_server('local', %common, %short);
my $remote = new_server('remote', %common, %short,
	'snowflake.registry' => "'host=$steady->{dir} port=$steady->{port} dbname=postgres user=postgres'");

sub build_library
{
	my $source = $0 =~ s/pl$/c/r;
	my $library = "$steady->{dir}/bench_latency.so";
	chomp(my $include = `"$ENV{PG_CONFIG}" --includedir-server`);

	system($ENV{CC} // 'cc', '-O2', '-fPIC', '-shared', '-Wall', '-Werror', '-isystem', $include, '-o', $library, $source) == 0
	  or die "$source was not built";
	return $library;
}

my $library = build_library();
my %calls = (
	'snowflake_nextval()' => [ "'snowflake_nextval()'::regprocedure", 0 ],
	'nextval()' => [ "'nextval(regclass)'::regprocedure", "'plain'::regclass" ],
	'nothing' => [ 0, 0 ]);
my %script;

foreach my $server ($steady, $local, $remote)
{
	$server->sql("CREATE FUNCTION bench_latency(function oid, argument oid, milliseconds integer, OUT calls bigint,
		OUT p50 float8, OUT p99 float8, OUT p999 float8, OUT max float8)
		AS '$library' LANGUAGE C; CREATE SEQUENCE plain;
		CREATE TABLE filler AS SELECT n, repeat('x', 100) AS text FROM generate_series(1, 100000) AS n");
	# Before the first id, since one of them is the registry of another one.
	$server->sql('CREATE EXTENSION IF NOT EXISTS snowflake_registry') if $server == $steady;
	$server->sql('CHECKPOINT');
	$server->stop;
}
$script{'snowflake_nextval()'} = $steady->script('nextval-ours.sql', "SELECT snowflake_nextval();\n");
$script{'nextval()'} = $steady->script('nextval.sql', "SELECT nextval('plain');\n");
# a tenth of the pages each time
my $dirty = $steady->script('dirty.sql', "\\set part random(0, 9)\n" .
	"UPDATE filler SET text = text WHERE n > :part * 10000 AND n <= (:part + 1) * 10000;\nCHECKPOINT;\n");

#
# What goes on meanwhile: the server, what begins and ends it, and what counts it
#

# Sets the clock forward by 0.8 s and back again (max_ahead is 1 s), every 50 ms.
sub step_clock
{
	my ($server) = @_;
	my $pid = fork // die "fork: $!";

	return $pid if $pid;
	local $SIG{INT} = sub { POSIX::_exit(0) };
	my $file = "$server->{dir}/data/clock.conf";

	open my $postmaster, '<', "$server->{dir}/data/postmaster.pid" or POSIX::_exit(1);
	chomp(my $server_pid = <$postmaster>);
	for (my $offset = 800; ; $offset = 800 - $offset)
	{
		open my $conf, '>', "$file.new" or POSIX::_exit(1);
		print $conf "snowflake.clock_offset = $offset\n";
		close $conf;
		rename "$file.new", $file or POSIX::_exit(1);
		kill 'HUP', $server_pid or POSIX::_exit(0);
		sleep 0.05;
	}
}

my %situations = (
	'quiet' => { server => $steady, count => '0' },
	'leases renewed' => { server => $local, count => 'lease_renewals FROM pg_stat_snowflake' },
	'leases renewed at a registry' => { server => $remote, registry => $steady, count => 'lease_renewals FROM pg_stat_snowflake' },
	'checkpoints' => {
		server => $steady,
		begin => sub { $steady->background('pgbench', '-n', '-T', 3600, '-f', $dirty) },
		# the view has another name from PostgreSQL 17 on
		count => `"$ENV{PG_CONFIG}" --version` =~ / (\d+)/ && $1 >= 17 ?
		  'num_requested FROM pg_stat_checkpointer' : 'checkpoints_req FROM pg_stat_bgwriter' },
	'clock steps' => {
		server => $steady,
		begin => sub { step_clock($steady) },
		count => 'clock_rollbacks FROM pg_stat_snowflake' });
my @situations = ('quiet', 'leases renewed', 'leases renewed at a registry', 'checkpoints', 'clock steps');
$steady->configure('include_if_exists' => "'clock.conf'");

#
# Figures
#
my %titles = (
	issue => 'snowflake_nextval() in the server',
	sequence => 'nextval() in the server',
	nothing => 'nothing, in the server',
	trip => 'round trip of SELECT snowflake_nextval()',
	triplain => 'round trip of SELECT nextval()');

foreach my $id (qw(issue trip sequence triplain nothing))
{
	figure(id => $id, title => "Latency: $titles{$id}", unit => $id =~ /^trip/ ? 'us' : 'ns', references => ['quiet'],
		subjects => \@situations, x => 'quantile', absolute => 1, logarithmic => 1, picture => 'samples');
}
foreach my $id (qw(issue trip))
{
	foreach my $situation (@situations[ 1, 2 ])
	{
		goal(figure => $id, subject => $situation, reference => 'quiet', x => 'p99.9', at_most => 1.5,
			label => "$titles{$id}, $situation");
	}
}

#
# Measuring
#
my (%events, %least_calls);

sub in_server
{
	my ($server, $call) = @_;
	my ($function, $argument) = @{ $calls{$call} };
	my ($n, @times) = split /\|/, $server->sql("SELECT * FROM bench_latency($function, $argument, $milliseconds)");

	$least_calls{$call} = $n if $n < ($least_calls{$call} // $n + 1);
	return @times;
}

sub round_trips
{
	my ($server, $call) = @_;
	my $trips = $trips{$call};
	my $prefix = "$server->{dir}/trips";

	$server->pgbench('-M', 'prepared', '-c', 1, '-t', $trips, '-f', $script{$call}, '-l', "--log-prefix=$prefix");
	my @times;
	foreach my $file (glob "$prefix.*")
	{
		open my $log, '<', $file or die "$file: $!";
		while (my $line = <$log>)
		{
			push @times, (split ' ', $line)[2];
		}
		close $log;
		unlink $file;
	}
	die "pgbench logged " . @times . " of $trips transactions" unless @times == $trips;
	@times = sort { $a <=> $b } @times;
	return (map { $times[ int($_ * $#times) ] } 0.5, 0.99, 0.999), $times[-1];
}

sub keep
{
	my ($id, $situation, $run, @times) = @_;

	sample($id, $situation, $quantiles[$_], $run, $times[$_]) foreach 0 .. $#quantiles;
}

sub measure
{
	my ($situation, $run) = @_;
	my ($server, $begin, $count, $registry) = @{ $situations{$situation} }{qw(server begin count registry)};

	# one that is stopped renews nothing
	unlink "$steady->{dir}/data/clock.conf";
	$registry->start if $registry;
	$server->start;
	# once: from here on the number is there, and the function is in the cache
	$server->sql("SET snowflake.max_wait = '60s'; SELECT snowflake_nextval(), nextval('plain')");
	my $pid = $begin ? $begin->() : undef;
	sleep 0.3;
	my $before = $server->sql("SELECT $count");
	my $began = Time::HiRes::time();

	my %of = (
		issue => sub { in_server($server, 'snowflake_nextval()') },
		sequence => sub { in_server($server, 'nextval()') },
		nothing => sub { in_server($server, 'nothing') },
		trip => sub { round_trips($server, 'snowflake_nextval()') },
		triplain => sub { round_trips($server, 'nextval()') });
	foreach my $id (shuffle sort keys %of)
	{
		keep($id, $situation, $run, $of{$id}->());
	}

	my $took = Time::HiRes::time() - $began;
	push @{ $events{$situation} }, ($server->sql("SELECT $count") - $before) / $took;
	die "$situation: none in $took s" if $count ne '0' && $events{$situation}[-1] == 0;
	BenchServer::end($pid) if $pid;
	$server->stop;
	$registry->stop if $registry;
}

each_round('latency', map { my $situation = $_; sub { measure($situation, $_[0]) } } @situations);

sub each_second
{
	my ($situation) = @_;

	return sprintf('%.1f', sum(@{ $events{$situation} }) / @{ $events{$situation} });
}

my $what = sprintf('Renewals: %s a second in the server\'s own table and %s at a registry on the same machine ' .
	'(`lease_duration = 1s`, `max_ahead = 0`, the least there is; the default is one in half a minute). ' .
	'Checkpoints: %s a second, each after an UPDATE of 10,000 rows. ' .
	'Clock steps: %s a second back by 0.8 s, and as many forward.',
	map { each_second($_) } @situations[ 1 .. 4 ]);

note('issue', "Each call between two readings of the clock, at least $least_calls{'snowflake_nextval()'} of them a sample. $what");
note('nothing', 'The same loop without a call: what the clock, the scheduler and the other processes add to all figures. ' .
	'The longest times of any loop on a busy machine are the scheduler\'s.');
note('sequence', 'For comparison.');
note('trip', "What one client sees, over a Unix socket with a prepared statement; $trips{'snowflake_nextval()'} round trips a sample. $what");
note('triplain', "For comparison; $trips{'nextval()'} round trips a sample.");
finish();
