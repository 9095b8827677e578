# registry.pl
#	  What a call costs a registry: the processor time of all processes of its server, beside an
#	  UPDATE of one row, over a new connection for each (cold) and in one session (warm); and what
#	  100,000 leases of history add to a grant.
#
# pgbench speaks the public protocol in the place of nodes, in two ways: the one statement of
# doc/protocol.md, and all that a server sends.  All takes turns in one run, on one processor at
# a time.  The last line has, of the two ways, the worse:
#
#	  registry: renewal 1.6 cold 4.1 warm, grant 2.1 cold 9.0 warm, history 1.05
use strict;
use warnings;

use List::Util qw(max shuffle);
use Time::HiRes qw(time);

use Bench;
use BenchReport;
use BenchServer;

my $bits = 12;		# half of the numbers, 2,047, can be leased at a time
my $numbers = 2**$bits - 1;
my $layout = "timestamp 41, worker $bits, sequence 10, tick 1ms, epoch 2024-01-01T00:00:00Z";
my $leases = quick(100_000, 5000);
my %calls = (cold => quick(300, 20), warm => quick(1500, 50));
my $updates = quick(20, 2);		# so many times as many: an UPDATE is soon done
my %ways = (' of a server' => 1, '' => 0);
my %keys = (renew => ['leased_until'], acquire => [qw(token incarnation generation clock node_number starts_at leased_until)]);

my %servers = map { $_ => new_registry($_) } 'empty', 'history';
add_history($servers{history});

figure(id => 'cpu', title => 'Processor time of a call', unit => 'us', absolute => 1, x => 'connection', references => ['UPDATE'],
	subjects => [ 'UPDATE', map { my $way = $_; map { "$_$way" } 'renewal', 'grant', 'grant with history' } sort keys %ways ]);
note('cpu', 'Of all processes of the registry\'s server.  cold: a new connection for each call, included; warm: one session.  '
	  . "`of a server`: its connection and the settings of its transaction included.  With history: $leases leases that are over, of all numbers there are.");
figure(id => 'history', title => 'A grant with history beside one without', unit => 'ratio', absolute => 1, x => 'connection', picture => 0,
	subjects => [ map { "grant$_" } sort keys %ways ]);
foreach my $way (sort keys %ways)
{
	goal(figure => 'cpu', subject => "renewal$way", reference => 'UPDATE', x => 'cold', at_most => 1.7);
	goal(figure => 'cpu', subject => "renewal$way", reference => 'UPDATE', x => 'warm', at_most => 6);
	goal(figure => 'cpu', subject => "grant$way", reference => 'UPDATE', x => 'cold', at_most => 2.5);
	goal(figure => 'cpu', subject => "grant$way", reference => 'UPDATE', x => 'warm', at_most => 15);
	goal(figure => 'history', subject => "grant$way", reference => undef, x => $_, at_most => 1.15, label => "grant$way, with history")
	  foreach 'cold', 'warm';
}

my %ratios;
foreach my $run (1 .. $Bench::runs)
{
	my %cpu;

	progress("registry: round $run of $Bench::runs");
	foreach my $turn (shuffle map { my $x = $_; map { [ $x, @$_ ] } turns() } sort keys %calls)
	{
		my ($x, $subject, $measure, @what) = @$turn;

		$cpu{$x}{$subject} = $measure->($x, @what);
		sample('cpu', $subject, $x, $run, $cpu{$x}{$subject} * 1e6);
	}
	foreach my $x (sort keys %cpu)
	{
		foreach my $way (sort keys %ways)
		{
			my $ratio = $cpu{$x}{"grant with history$way"} / $cpu{$x}{"grant$way"};

			sample('history', "grant$way", $x, $run, $ratio);
			push @{ $ratios{history}{"$x$way"} }, $ratio;
			push @{ $ratios{"$_ $x"}{$way} }, $cpu{$x}{"$_$way"} / $cpu{$x}{UPDATE} foreach 'renewal', 'grant';
		}
	}
}
finish();
my $line = sprintf("registry: renewal %.2f cold %.2f warm, grant %.2f cold %.2f warm, history %.2f\n",
	map { my $what = $_; max(map { BenchReport::median(@$_) } values %{ $ratios{$what} }) }
	  'renewal cold', 'renewal warm', 'grant cold', 'grant warm', 'history');
open my $results, '>>', "$ENV{BENCH_RESULTS}/registry.md" or die "$ENV{BENCH_RESULTS}/registry.md: $!";
print $results "\n$line";
close $results or die $!;

sub turns
{
	return ([ 'UPDATE', \&update ], map {
		[ "renewal$_", \&renew, $ways{$_} ],
		[ "grant$_", \&grant, $ways{$_}, 'empty' ],
		[ "grant with history$_", \&grant, $ways{$_}, 'history' ] } sort keys %ways);
}

sub new_registry
{
	my ($name) = @_;
	my $server = new_server("registry_$name", 'shared_preload_libraries' => "''", 'shared_buffers' => "'256MB'");

	$server->sql('CREATE EXTENSION snowflake_registry');
	$server->sql('CREATE TABLE one (id int PRIMARY KEY, value bigint) WITH (fillfactor = 50); INSERT INTO one VALUES (1, 0)');
	return $server;
}

# Leases that are over, of numbers that come again and again; each is in the log, and each number has its end.
sub add_history
{
	my ($server) = @_;

	$server->sql(<<END);
INSERT INTO snowflake.node_number (node_number, ended_until)
SELECT n % $numbers, '2024-01-01Z'::timestamptz + n * interval '3 min' FROM generate_series(1, $leases) AS n;
INSERT INTO snowflake.worker_node (token, start, granted_by, kind, name, host_name, role, incarnation, generation, fixed, node_number,
	layout, launched_at, starts_at, leased_until, closed_at)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 'program', 'before', 'node.example', 'postgres', r.incarnation, r.generation, false, n % $numbers,
	'$layout', began, began, began + '2 min', began + '2 min'
FROM snowflake.registry AS r, generate_series(1, $leases) AS n, LATERAL (SELECT '2024-01-01Z'::timestamptz + n * interval '3 min') AS l (began);
END
	$server->sql('VACUUM ANALYZE');
}

# As remote.c has it, all statements of a macro.
sub text_of
{
	my ($macro) = @_;
	my ($text) = BenchServer::slurp('src/registry/remote.c') =~ /^#define $macro \\\n((?:\t".*"[ \\]*\n)+)/m or die "no $macro in remote.c";

	return join '', $text =~ /"(.*)"/g;
}

# The script of a call: what doc/protocol.md has, or what a server sends in its three messages.
sub script
{
	my ($server, $settings, $function, $call, $way) = @_;
	my $text = "SELECT snowflake.${function}_lease('$call');\n";

	if ($way)
	{
		my $begin = join '', map { text_of($_) } qw(BEGIN_TEXT SETTINGS_TEXT);
		my @values = map { "r OPERATOR(pg_catalog.->>) '$_'" } qw(answer sqlstate message detail hint wait), @{ $keys{$function} };

		$text = join("\\;\n", split /;/, $begin) . ";\n"
		  . 'SELECT ' . join(', ', @values) . " FROM snowflake.${function}_lease('$call'::pg_catalog.jsonb) AS r;\nCOMMIT;\n";
	}
	return $server->script("$function.sql", "$settings$text");
}

# One client makes so many calls; the processor time of one.
sub run_turn
{
	my ($server, $x, $calls, $way, $script) = @_;
	my $before = $server->processor_time;

	local $ENV{PGAPPNAME} = $way ? 'snowflake lease worker' : 'node';
	$server->pgbench($x eq 'cold' ? '-C' : (), '-c', 1, '-t', $calls, '-D', 'call=1', '-f', $script);
	return ($server->processor_time - $before) / $calls;
}

sub update
{
	my ($x) = @_;
	my $calls = $calls{$x} * ($x eq 'cold' ? 1 : $updates);

	return run_turn($servers{empty}, $x, $calls, 0, $servers{empty}->script('update.sql', "UPDATE one SET value = value + 1 WHERE id = 1;\n"));
}

# What each call has, and what a grant has besides.
sub node
{
	my ($start) = @_;

	return sprintf '"protocol": 1, "start": "00000000-0000-4000-8000-%s", "layout": "%s", "clock": %.0f, "max_ahead": 1000000, "window": 120000000',
	  $start, $layout, time * 1e6;
}

sub request
{
	return '"kind": "program", "name": "bench", "host_name": "bench", "launched_at": 0, "lease": null, "fixed": false, '
	  . '"first_number": 0, "last_number": ' . ($numbers - 1);
}

# As if there had been no node.
sub forget
{
	my ($name) = @_;

	$servers{$name}->sql($name eq 'empty' ? 'DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry' :
		  "SELECT snowflake.ids_end_before('2024-01-01', 'postgres'); DELETE FROM snowflake.worker_node WHERE host_name = 'bench'");
	$servers{$name}->sql('VACUUM ANALYZE snowflake.node_number, snowflake.worker_node');
	$servers{$name}->sql('CHECKPOINT');
	return $servers{$name};
}

sub renew
{
	my ($x, $way) = @_;
	my $server = forget('empty');
	my $node = node('100000000000');
	my $lease = $server->sql(<<END);
SELECT jsonb_build_object('token', a -> 'token', 'node_number', a -> 'node_number', 'granted_by', 1, 'incarnation', a -> 'incarnation',
	'generation', a -> 'generation', 'leased_until', a -> 'leased_until')
FROM snowflake.acquire_lease('{$node, ${\ request()}, "call": 1}') AS a
END
	my $cpu = run_turn($server, $x, $calls{$x}, $way,
		script($server, "\\set call :call + 1\n", 'renew', qq({$node, "call": :call, "lease": $lease}), $way));

	my $seen = $server->sql('SELECT last_call FROM snowflake.node_number WHERE token IS NOT NULL');
	die "the last renewal was call $seen" if $seen != $calls{$x} + 1;
	return $cpu;
}

# Each time as by another node.
sub grant
{
	my ($x, $way, $name) = @_;
	my $server = forget($name);
	my $cpu = run_turn($server, $x, $calls{$x}, $way,
		script($server, "\\set call :call + 1\n\\set node 100000000000 + :call\n", 'acquire', "{${\ node(':node')}, ${\ request()}, \"call\": 1}", $way));

	my $seen = $server->sql('SELECT count(*) FROM snowflake.node_number WHERE token IS NOT NULL');
	die "there are $seen leases" if $seen != $calls{$x};
	return $cpu;
}
