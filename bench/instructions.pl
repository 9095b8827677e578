# instructions.pl
#	  How many instructions the processor executes for an id, by callgrind: a count that
#	  repeats, whatever else the machine does.
#
# A whole server runs under callgrind, and a session runs each query twice, the first time to
# load what is loaded once.  Counted is what bench_run() of bench/empty.c spends on the second,
# all of PostgreSQL included; reading a clock is a call of the kernel here, which is
# not counted.
#
# Counts do not need as many rounds as times do: there are two, to show that they repeat.
use strict;
use warnings;

use Bench;
use BenchSession;

my $calls = quick(20_000, 5_000);
my $rounds = $Bench::runs = 2;
my $loop = "FROM generate_series(1, $calls)";

sub call
{
	my ($server, $expression) = @_;

	return [ $server, "SELECT count($expression) $loop" ];
}

my %calls = (
	'the query around it' => [ 'clock', "SELECT count(*) $loop" ],
	'empty C function' => call('clock', 'bench_empty()'),
	'clock_timestamp()' => call('clock', 'clock_timestamp()'),
	'snowflake_nextval(), in a burst' => call('burst', 'snowflake_nextval()'),
	'snowflake_nextval(), at the clock' => call('clock', 'snowflake_nextval()'),
	'the same, layout named' => call('clock', "snowflake_nextval('discord')"),
	'nextval, CACHE 1' => call('clock', "nextval('plain')"),
	'nextval, CACHE 32' => call('clock', "nextval('cached32')"),
	'nextval, CACHE 1000' => call('clock', "nextval('cached1000')"),
	'gen_random_uuid()' => call('clock', 'gen_random_uuid()'));
my %batches = (
	'generate_series' => [ 'clock', "SELECT count(*) FROM generate_series(1::bigint, $calls)" ],
	'snowflake_nextval_batch' => [ 'clock', "SELECT count(*) FROM snowflake_nextval_batch($calls)" ]);
my %queries = (%calls, %batches);

# One whose layout has more ids a second than are issued under callgrind, so that they are at
# the clock; and one whose layout has 128 a second, with a start of 390 s.
my %servers = (
	clock => new_server('instructions-clock', 'snowflake.extra_layouts' => 'discord'),
	burst => new_server('instructions-burst', 'snowflake.layout' => 'uidstarter'));
my %before = (
	clock => "SELECT snowflake_nextval(), snowflake_nextval('discord')",
	burst => 'SELECT count(*) FROM snowflake_nextval_batch(50000)');

foreach my $server (values %servers)
{
	BenchSession::add_functions($server);
	$server->sql('CREATE SEQUENCE plain; CREATE SEQUENCE cached32 CACHE 32; CREATE SEQUENCE cached1000 CACHE 1000');
	$server->stop;
}

# Instructions of each query, by name, in a session of its own.
sub count_instructions
{
	my ($name, $output) = @_;
	my $server = $servers{$name};
	my @subjects = grep { $queries{$_}[0] eq $name } sort keys %queries;

	my @printed = split /\n/, $server->sql(join(";\n", "SET snowflake.max_wait = '60s'", $before{$name},
		'SELECT pg_stat_snowflake_reset()', (map { ("SELECT bench_run(\$\$$queries{$_}[1]\$\$)") x 2 } @subjects),
		'SELECT pg_backend_pid(), sum(waits) FROM pg_stat_snowflake'));
	my ($pid, $waits) = $printed[-1] =~ /^(\d+)\|(\d+)$/ or die "no process in: @printed";
	die "$waits ids had to wait" if $waits > 0;

	# part 1, 2, ...: one for each call of bench_run
	my %count;
	foreach my $i (0 .. $#subjects)
	{
		slurp("$output.$pid." . (2 * $i + 2)) =~ /^(?:totals|summary): (\d+)/m or die "no count of $subjects[$i]";
		$count{ $subjects[$i] } = $1;
	}
	return %count;
}

sub slurp
{
	my ($path) = @_;

	open my $file, '<', $path or die "$path: $!";
	local $/;
	return scalar readline $file;
}

my @subjects = ('empty C function', 'clock_timestamp()', 'snowflake_nextval(), in a burst', 'snowflake_nextval(), at the clock',
	'the same, layout named', 'nextval, CACHE 1', 'nextval, CACHE 32', 'nextval, CACHE 1000', 'gen_random_uuid()');

figure(id => 'call', title => 'Instructions of a call', unit => 'instructions', absolute => 1, subjects => \@subjects,
	references => ['nextval, CACHE 1']);
note('call', "By callgrind, without those of the query around it. Readings of the clock are not " .
	'counted. Two rounds.');
figure(id => 'batch', title => 'Instructions of an id in a batch', unit => 'instructions', absolute => 1,
	subjects => [ 'generate_series', 'snowflake_nextval_batch' ], references => ['generate_series']);
note('batch', "Of `SELECT count(*) FROM f($calls)`. Two rounds.");

my %count;
foreach my $name (sort keys %servers)
{
	my $server = $servers{$name};
	my $output = "$server->{dir}/callgrind";

	$server->start_under('valgrind', '-q', '--tool=callgrind', '--trace-children=yes', "--callgrind-out-file=$output.%p",
		'--toggle-collect=bench_run', '--dump-after=bench_run');
	$server->let_run_ahead('1h');
	foreach my $run (1 .. $rounds)
	{
		progress("instructions, $name: round $run of $rounds");
		$count{$run} = { %{ $count{$run} // {} }, count_instructions($name, $output) };
	}
	$server->stop;
}
foreach my $run (1 .. $rounds)
{
	my %of = %{ $count{$run} };

	sample('call', $_, undef, $run, ($of{$_} - $of{'the query around it'}) / $calls) foreach @subjects;
	sample('batch', $_, undef, $run, $of{$_} / $calls) foreach sort keys %batches;
}
finish();
