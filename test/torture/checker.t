# test/torture/checker.t
#	  The programs of the torture test.  The checker passes logs in which all is well,
#	  finds each kind of violation and no other in logs made up for it, on both sides of
#	  each border, and refuses what it cannot read.  Then writers of each kind ask a real
#	  server for ids, which is killed meanwhile: their logs are right.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Time::HiRes qw(time usleep);

use constant {
	MAGIC => 0x676f4c53,
	EPOCH => 1288834974657000,		# of layout twitter, in microseconds
	TICK => 476_000_000_000,		# the tick that begins at START
	START => 1764834974657000,		# microseconds since 1970
};

my $directory = PostgreSQL::Test::Utils::tempdir('checker');
my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
my $num_configs = 0;

sub pg_config
{
	chomp(my $value = `$pg_config $_[0]`);
	return $value;
}

sub compile
{
	my ($name, @rest) = @_;

	system_or_bail('gcc', qw(-std=gnu11 -O2 -Wall -Wextra -Werror -o), "$directory/$name", @rest);
	return "$directory/$name";
}

my $checker = compile('checker', glob 'test/torture/checker*.c');
my $writer = compile('writer', 'test/torture/writer.c', '-I' . pg_config('--includedir'),
	'-L' . pg_config('--libdir'), '-lpq');

#
# Logs.  All times are microseconds after START.
#

# Ticks are counted from the one that begins at START.
sub id
{
	my ($tick, $node, $sequence) = @_;

	return TICK + $tick << 22 | $node << 12 | $sequence;
}

# The runs are [first id, count].
sub statement
{
	my ($sent, $received, $runs, %options) = @_;
	my ($ids, $packed) = (0, '');

	foreach my $run (@$runs)
	{
		$packed .= pack 'q L L', @$run, 0;
		$ids += $run->[1];
	}
	return pack('L L q4 Q a8', $options{magic} // MAGIC, scalar @$runs, START + $sent, START + $received,
		7_000_000 + $sent, 7_000_000 + $received, $options{ids} // $ids, $options{sqlstate} // '') . $packed;
}

# A statement that takes 100 us at the beginning of a tick and receives ids of it.
sub issued
{
	my ($tick, $node, $sequence, $count) = @_;

	return statement($tick * 1000, $tick * 1000 + 100, [ [ id($tick, $node, $sequence), $count // 1 ] ]);
}

# Rows are "TABLE SERVER NODE ROW RECORDED STARTS UNTIL STATE".
sub lease
{
	my ($table, $server, $node, $row, $recorded, $starts, $until, $state) = split / /, $_[0];

	return sprintf "lease $table $server $node $row %d %s %d $state", START + $recorded,
	  $starts eq '-' ? '-' : START + $starts, START + $until;
}

sub clock
{
	my ($server, $from, $to, $offset) = @_;

	return sprintf 'clock %s %s %s %d', $server, START + $from, $to eq '-' ? '-' : START + $to, $offset;
}

# Two servers that share a table; two alone, c with the node number below the sequence; and
# m, whose leases are in a table of its own or in that of a and b.
my $servers = <<EOC;
deployment d 22 1000 ${\EPOCH} 12 10 0 12
deployment e 22 1000 ${\EPOCH} 0 10 10 12
deployment f 22 1000 ${\EPOCH} 12 10 0 12
server a d t 10000
server b d t 10000
server c e u 10000
server z f v 10000
server m f w,t:d 10000
EOC

sub write_file
{
	my ($file, $text) = @_;

	open my $out, '>:raw', $file or die "$file: $!";
	print $out $text;
	close $out or die "$file: $!";
	return $file;
}

# Runs the checker with these lines and a log for each [server, statements].
sub check
{
	my ($lines, @logs) = @_;
	my $config = "$directory/config_" . $num_configs++;
	my $text = $servers . join('', map { "$_\n" } @$lines);

	foreach my $i (0 .. $#logs)
	{
		my ($server, @statements) = @{ $logs[$i] };

		$text .= 'log ' . write_file("$config.log$i", join '', @statements) . " $server batch\n";
	}
	write_file($config, $text);
	return run_checker($config);
}

sub run_checker
{
	my ($config) = @_;
	my ($out, $error);

	IPC::Run::run([ $checker, $config ], '>', \$out, '2>', \$error);
	return ($? >> 8, $out, $error);
}

# Of its output, "KIND ID NODE SERVER" of each violation and "KIND: TOTAL".
sub violations
{
	my ($out) = @_;

	return map {
		/^violation (\S+) id=(\S+) node=(\S+) server=(\S+) : / ? "$1 $2 $3 $4"
		  : /^violations (\S+) (\d+)$/ ? "$1: $2" : ()
	} split /\n/, $out;
}

# The expected violations are as violations() has them.  Returns what was printed.
sub finds
{
	my ($label, $expected, @world) = @_;
	my ($status, $out, $error) = check(@world);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_deeply([ $status, $error, violations($out) ], [ @$expected ? 1 : 0, '', @$expected ], $label);
	return $out;
}

sub passes
{
	my ($label, @world) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return finds($label, [], @world);
}

sub refuses
{
	my ($label, $pattern, @world) = @_;
	my ($status, undef, $error) = check(@world);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($status, 2, "$label: it cannot check");
	like($error, $pattern, "$label: it says why");
}

#
# A history in which all is well
#

my @history = (lease('t a 1 1 -1000 -1000 60000000 open'), lease('t a 1 1 1 -1000 90000000 open'),
	lease('t b 2 2 -1000 -1000 500000 open'), lease('t b 2 2 3000 -1000 500000 closed'),
	lease('t b 1023 3 2000 2000 60000000 open'), 'leases t -');
my @logs = (
	[ a => issued(0, 1, 0, 4000), issued(1, 1, 5), (statement(150_000, 150_100, [], sqlstate => '55P03')) x 2,
		statement(300_000, 301_000, [ [ id(300, 1, 0), 10 ], [ id(301, 1, 4090), 6 ] ]) ],
	[ a => issued(2, 1, 0, 16), statement(3000, 3100, [ [ id(3, 1, 0), 7 ] ], sqlstate => '08006') ],
	[ b => issued(0, 2, 0, 100), statement(499_000, 499_900, [ [ id(499, 2, 0), 1 ] ]),
		statement(500_000, 500_100, [], sqlstate => '08001'), statement(500_200, 500_300, [], sqlstate => '55P03') ],
	[ b => statement(501_000, 501_100, [ [ id(502, 1023, 0), 4096 ] ]) ]);
my $out = passes('a history in which all is well', \@history, @logs);

sub lines_of
{
	my ($kind) = @_;

	return join ' | ', grep { /^$kind / } split /\n/, $out;
}

is(lines_of('ids'), 'ids a 1 4040 | ids b 2 101 | ids b 1023 4096', 'ids per node number');
is(lines_of('leased'), 'leased a 4040 | leased b 4197 | leased c 0 | leased z 0 | leased m 0', 'ids whose lease was checked');
is(lines_of('total'), 'total ids 8237 statements 12 failed 5 runs 9', 'totals');
is(join(' | ', sort split / \| /, lines_of('error')),
	'error a 08006 1 | error a 55P03 2 | error b 08001 1 | error b 55P03 1', 'errors');
is(lines_of('gap'), join(' | ', map { sprintf 'gap %s %d %d', $_->[0], START + $_->[1], START + $_->[2] }
		[ a => 3100, 301_000 ], [ a => 301_000, 501_100 ], [ b => 100, 499_900 ]), 'gaps');
is(lines_of('rate'), join(' | ', map { sprintf 'rate %s %d %d', $_->[0], START - 157_000 + $_->[1], $_->[2] }
		[ a => 0, 4024 ], [ a => 250_000, 16 ], [ b => 0, 100 ], [ b => 500_000, 4097 ]), 'rates');
$out = passes('a gap of less than 200 ms', [], [ a => issued(0, 1, 0), issued(199, 1, 1), issued(399, 1, 1) ]);
is(lines_of('gap'), sprintf('gap a %d %d', START + 199_100, START + 399_100), 'is none');
passes('no log', []);
passes('an empty log', [], ['a']);

#
# Each check
#

finds('negative ids', [ 'negative -5 1023 a', 'negative: 5' ], [], [ a => statement(0, 100, [ [ -5, 5 ] ]), issued(0, 1, 0) ]);

my $shared = id(0, 1, 9);
$out = finds('two servers received an id', [ "duplicate $shared 1 b", 'duplicate: 1' ], [],
	[ b => issued(3, 3, 0), statement(200, 300, [ [ $shared, 1 ] ]) ], [ a => issued(0, 1, 9) ]);
like($out, qr{^violation\ duplicate\ .*\ server=a\n
	\ \ first:\ log=\S+\.log1\ kind=batch\ server=a\ ids=1\ .*\ received=${\(START + 100)}\ .*\n
	\ \ second:\ log=\S+\.log0\ kind=batch\ server=b\ .*\ sent=${\(START + 200)}\ \(2025-12-04T07:56:14\.657200Z\)}mx,
	'and it shows both statements, the earlier one first');
finds('runs that share one id', [ "duplicate $shared 1 b", 'duplicate: 1' ], [],
	[ a => issued(0, 1, 0, 10) ], [ b => statement(0, 300, [ [ $shared, 4 ] ]) ]);
passes('runs that touch', [], [ a => issued(0, 1, 0, 10) ], [ b => issued(0, 1, 10, 4) ]);
finds('runs within a run', [ map({ 'duplicate ' . id(0, 1, $_) . ' 1 b' } 10, 20, 98), 'duplicate: 6' ], [],
	[ a => issued(0, 1, 0, 100) ], [ b => issued(0, 1, 10, 2), issued(0, 1, 20, 2), issued(0, 1, 98, 4) ]);
finds('an id thrice', [ ("duplicate $shared 1 b") x 2, 'duplicate: 2' ], [],
	[ a => issued(0, 1, 9) ], ([ b => statement(0, 300, [ [ $shared, 1 ] ]) ]) x 2);
passes('ids of two deployments', [], [ a => issued(0, 1, 9) ], [ z => issued(0, 1, 9) ]);

# Its ids are 6 of the first tick and 6 of the next one.
my $node_below = [ TICK << 22 | 4090 << 10 | 7, 12 ];
my $next = TICK + 1 << 22 | 7;
finds('a run over the end of a tick', [ 'duplicate ' . ($next + 3 * 1024) . ' 7 c', 'duplicate: 1' ], [],
	[ c => statement(900, 1100, [$node_below]) ], [ c => statement(1000, 1200, [ [ $next + 3 * 1024, 1 ] ]) ]);
finds('a run whose second tick is too far ahead', [ "ahead $next 7 c", 'ahead: 6' ], [],
	[ c => statement(-11_000, -10_000, [$node_below]) ]);

# Within a statement, and between statements.
my ($low, $high) = (id(0, 1, 1), id(0, 1, 8));
finds('ids that decrease in a statement', [ "order $low 1 a", 'order: 1' ], [],
	[ a => statement(0, 100, [ [ $high, 1 ], [ $low, 1 ] ]) ]);
finds('ids that decrease after some that increase', [ 'order ' . id(0, 1, 5) . ' 1 a', 'order: 1' ], [],
	[ a => statement(0, 100, [ [ $low, 1 ], [ $high, 1 ], [ id(0, 1, 5), 1 ] ]) ]);
finds('a run that begins before the end of the one before',
	[ 'duplicate ' . id(0, 1, 5) . ' 1 a', 'duplicate: 2', 'order ' . id(0, 1, 5) . ' 1 a', 'order: 1' ], [],
	[ a => statement(0, 100, [ [ $low, 6 ], [ id(0, 1, 5), 2 ] ]) ]);
finds('an id twice in a statement', [ "duplicate $low 1 a", 'duplicate: 1', "order $low 1 a", 'order: 1' ], [],
	[ a => statement(0, 100, [ [ $low, 1 ], [ $low, 1 ] ]) ]);
passes('a statement with two node numbers', [],
	[ a => statement(0, 100, [ [ id(0, 2, 0), 1 ], [ $low, 1 ], [ id(0, 2, 1), 1 ], [ $high, 1 ] ]) ]);
my $first = statement(0, 100, [ [ $high, 1 ] ]);
finds('a lower id in a later statement', [ "order $low 1 a", 'order: 1' ], [],
	[ a => $first ], [ a => statement(101, 200, [ [ $low, 1 ] ]) ]);
passes('a lower id in a statement sent when the first was received', [],
	[ a => $first ], [ a => statement(100, 200, [ [ $low, 1 ] ]) ]);
passes('a lower id of another number', [], [ a => $first, statement(101, 200, [ [ id(0, 0, 0), 1 ] ]) ]);
finds('a lower id after one of another number', [ "order $low 1 a", 'order: 1' ], [],
	[ a => $first, statement(110, 150, [ [ id(0, 0, 0), 1 ] ]), statement(160, 200, [ [ $low, 1 ] ]) ]);
passes('a lower id of another server', [], [ a => $first ], [ b => statement(101, 200, [ [ $low, 1 ] ]) ]);
$out = finds('the greatest id counts, not the last one', [ 'order ' . id(0, 1, 5) . ' 1 a', 'order: 1' ], [],
	[ a => $first ], [ a => statement(50, 150, [ [ $low, 1 ] ]) ], [ a => statement(160, 200, [ [ id(0, 1, 5), 1 ] ]) ]);
like($out, qr/ $high had been received .*\n  first: log=\S+\.log0 .*\n  second: log=\S+\.log2 /, 'and it shows the statements');
finds('all ids of both statements count',
	[ 'order ' . id(0, 1, 10) . ' 1 a', 'order ' . id(0, 1, 10) . ' 1 a', 'order ' . id(0, 1, 30) . ' 1 a', 'order: 3' ], [],
	[ a => statement(0, 100, [ [ id(0, 1, 20), 1 ] ]), statement(200, 300, [ [ id(0, 1, 50), 1 ], [ id(0, 1, 10), 1 ] ]),
		statement(400, 500, [ [ id(0, 1, 30), 1 ] ]) ]);
finds('the last run of a statement counts', [ 'order ' . id(0, 1, 5) . ' 1 a', 'order: 1' ], [],
	[ a => statement(0, 100, [ [ $low, 1 ], [ $high, 1 ] ]), statement(200, 300, [ [ id(0, 1, 5), 1 ] ]) ]);
finds('a statement that was sent before is still under way', [ "order $low 1 a", 'order: 1' ], [],
	[ a => statement(0, 900, [ [ id(0, 1, 0), 1 ] ]) ], [ a => statement(10, 20, [ [ $high, 1 ] ]) ],
	[ a => statement(30, 40, [ [ $low, 1 ] ]) ]);
my $last = TICK << 22 | 4 << 10 | 7;
finds('the last id of a run counts', [ "duplicate $last 7 c", 'duplicate: 1', "order $last 7 c", 'order: 1' ], [],
	[ c => statement(0, 100, [ [ $last - 2 * 1024, 3 ] ]), statement(200, 300, [ [ $last, 1 ] ]) ]);

#
# Clocks
#

# The tick of the id begins so many microseconds after the statement is received.
sub before
{
	my ($begin) = @_;

	return [ a => statement(100_000 - $begin - 2000, 100_000 - $begin, [ [ id(100, 1, 3), 4 ] ]) ];
}

# The tick ends so many microseconds after the statement is sent, but for the 100 ms that the
# coarse clock may lag.
sub after
{
	my ($end) = @_;

	return [ a => statement(201_000 - $end, 201_000 - $end + 2000, [ [ id(100, 1, 3), 4 ] ]) ];
}

my @ahead = ('ahead ' . id(100, 1, 3) . ' 1 a', 'ahead: 4');
my @behind = ('behind ' . id(100, 1, 3) . ' 1 a', 'behind: 4');

passes('as far ahead as allowed', [], before(10_000));
finds('further ahead', \@ahead, [], before(10_001));
passes('as old as allowed', [], after(1));
finds('older', \@behind, [], after(0));

my @slow = (clock('a', 0, 89_000, -3000), clock('a', 0, '-', -1000), clock('a', 92_000, '-', 0));
passes('ahead of a slow clock, at its greatest offset', \@slow, before(9000));
finds('further ahead of a slow clock', \@ahead, \@slow, before(9001));
passes('the clock of another server', [ clock('b', 0, '-', -1000) ], before(10_000));
passes('as old as a slow clock allows', [ clock('a', 0, '-', -2000) ], after(-1999));
finds('older than a slow clock allows', \@behind, [ clock('a', 0, '-', -2000) ], after(-2000));
my @fast = map { clock('a', 0, '-', $_) } 4500, 5000, 4000;
passes('ahead of a fast clock', \@fast, before(15_000));
finds('further ahead of a fast clock', \@ahead, \@fast, before(15_001));
passes('as old as a fast clock allows, at its least offset', \@fast, after(4001));
finds('older than a fast clock allows', \@behind, \@fast, after(4000));

# The statement lasts from 83 ms to 85 ms.
passes('a clock set when the statement ended', [ clock('a', 85_000, 99_000, 5000) ], before(15_000));
finds('a clock set after the statement', \@ahead, [ clock('a', 85_001, 99_000, 5000) ], before(15_000));
passes('a clock set back when the statement began', [ clock('a', 0, 83_000, 5000) ], before(15_000));
finds('a clock set back before the statement', \@ahead, [ clock('a', 0, 82_999, 5000) ], before(15_000));
passes('a clock that was set within the statement', [ clock('a', 84_000, 84_000, 5000) ], before(15_000));
passes('a clock that was slow within the statement', [ clock('a', 202_000, 202_000, -1) ], after(0));
passes('clocks in any order', [ clock('a', 80_000, '-', 5000), clock('a', 40_000, 79_999, -5000),
		clock('a', 0, 39_999, -5000) ], before(15_000));

# The next one from 88 ms to 90 ms.
passes('a clock that was right in between', [ clock('a', 0, 88_999, -5000), clock('a', 89_001, '-', -5000) ],
	before(10_000));
finds('a clock that never was', \@ahead, [ clock('a', 0, 88_999, -5000), clock('a', 89_000, '-', -5000) ],
	before(10_000));

#
# Leases
#

sub lease_case
{
	my ($rows, @logs) = @_;

	return ([ map({ lease($_) } @$rows), 'leases t -' ], @logs);
}

my @in_tick_20 = ([ a => issued(20, 1, 3, 4) ]);
my @unleased = ('lease ' . id(20, 1, 3) . ' 1 a', 'lease: 4');
my $unleased = qr/: no lease of the server covers it \(4 ids/;

passes('a tick up to the end', lease_case([ 't a 1 1 0 0 21000 open' ], @in_tick_20));
like(finds('a tick beyond the end', \@unleased, lease_case([ 't a 1 1 0 0 20999 open' ], @in_tick_20)), $unleased, 'says so');
passes('a tick from the start', lease_case([ 't a 1 1 0 20000 30000 open' ], @in_tick_20));
like(finds('a tick that begins before it', \@unleased, lease_case([ 't a 1 1 0 20001 30000 open' ], @in_tick_20)), $unleased, 'says so');
like(finds('a number without a lease', \@unleased, lease_case([ 't a 2 1 0 0 21000 open' ], @in_tick_20)), $unleased, 'says so');
like(finds('the number of another server', \@unleased,
		lease_case([ 't a 1 1 0 0 20000 closed', 't b 1 2 0 20000 30000 open' ], @in_tick_20)),
	qr/: the lease that covers it belongs to b \(row 2\)/, 'says whose');
passes('a number that goes from server to server', lease_case(
		[ 't a 1 1 0 0 21000 closed', 't b 1 2 0 21000 22000 closed', 't a 1 3 0 22000 23000 open' ],
		[ a => issued(20, 1, 0), issued(22, 1, 0) ], [ b => issued(21, 1, 0) ]));
finds('a lease that was closed where it started', \@unleased,
	lease_case([ 't a 1 1 0 20000 30000 open', 't a 1 1 1 20000 20000 closed' ], @in_tick_20));
passes('it takes no time from the next one', lease_case([ 't a 1 1 0 20000 30000 open', 't a 1 1 1 20000 20000 closed',
			't a 1 2 2 20000 30000 open' ], @in_tick_20));
passes('a lease of another number', lease_case([ 't b 1025 1 0 0 30000 open', 't a 1 2 0 0 30000 open' ], @in_tick_20));
passes('the end of a closed lease', lease_case(
		[ 't a 1 1 0 0 90000 open', 't a 1 1 30000 0 21000 closed', 't b 1 2 30000 21000 50000 open' ], @in_tick_20));
like(finds('an id beyond the end of a closed lease', \@unleased,
		lease_case([ 't a 1 1 0 0 90000 open', 't a 1 1 30000 0 20000 closed' ], @in_tick_20)), $unleased, 'says so');
passes('an end that was recorded when the id was received',
	lease_case([ 't a 1 1 20100 0 21000 open', 't a 1 1 30000 0 90000 open' ], @in_tick_20));
like(finds('an end that was recorded after it', \@unleased,
		lease_case([ 't a 1 1 0 0 20999 open', 't a 1 1 20101 0 21000 open', 't a 1 1 20102 0 90000 open' ], @in_tick_20)),
	qr/: its lease was recorded only after it was received \(row 1\)/, 'says so');
passes('a later version was recorded first',
	lease_case([ 't a 1 1 50000 0 21000 open', 't a 1 1 20100 0 22000 open' ], @in_tick_20));
finds('an end that was lowered and raised again holds', [ 'lowered - 1 a', 'lowered: 1' ],
	lease_case([ 't a 1 1 0 0 22000 open', 't a 1 1 1 0 20000 open', 't a 1 1 20200 0 23000 open' ], @in_tick_20));
passes('no history', [ lease('t a 1 1 0 0 1 open') ], @in_tick_20);
passes('the history of another table', [ 'leases u -', 'leases v -' ], @in_tick_20);
passes('a history up to when the ids were received', [ sprintf 'leases t %d', START + 20_100 ], @in_tick_20);
finds('a longer history', \@unleased, [ sprintf 'leases t %d', START + 20_101 ], @in_tick_20);

# Each lease starts at or after the ends of all earlier ones.
passes('a lease that starts at the end of the one before',
	lease_case([ 't b 1 1 0 0 20000 closed', 't a 1 2 0 20000 30000 open' ], @in_tick_20));
like(finds('a lease that starts before it', [ 'overlap - 1 a', 'overlap: 1' ],
		lease_case([ 't b 1 1 0 0 20001 closed', 't a 1 2 0 20000 30000 open' ], @in_tick_20)),
	qr/row 2 of table t starts at ${\(START + 20_000)}, before ${\(START + 20_001)}, /, 'says so');
finds('a lease that starts before the end of an earlier one', [ 'overlap - 1 b', 'overlap: 1' ],
	lease_case([ 't a 1 1 0 0 30000 closed', 't b 1 2 0 30000 31000 closed', 't b 1 3 0 30500 40000 open' ]));
finds('the order of the rows counts, not that of the lines', [ 'overlap - 1 a', 'overlap: 1' ],
	lease_case([ 't a 1 2 0 20000 30000 open', 't b 1 1 0 0 21000 closed' ]));
passes('the end with which it was closed counts',
	lease_case([ 't b 1 1 0 0 90000 open', 't b 1 1 5 0 20000 closed', 't a 1 2 5 20000 30000 open' ], @in_tick_20));
finds('ids of two leases that overlap, each of which covers them',
	[ 'duplicate ' . id(20, 1, 3) . ' 1 b', 'duplicate: 4', 'overlap - 1 b', 'overlap: 1' ],
	lease_case([ 't a 1 1 0 0 30000 closed', 't b 1 2 0 10000 30000 open' ], @in_tick_20,
		[ b => statement(20_000, 20_200, [ [ id(20, 1, 3), 4 ] ]) ]));

# Rows that were taken over are ends of leases that are somewhere else.
finds('a row that was taken over is no lease', \@unleased, lease_case([ 't a 1 1 0 - 30000 closed' ], @in_tick_20));
passes('it may end within a lease', lease_case([ 't a 1 1 0 0 30000 open', 't b 1 2 0 - 20500 closed' ], @in_tick_20));
passes('and that is extended', lease_case(
		[ 't a 1 1 0 0 20500 open', 't b 1 2 10 - 20500 closed', 't a 1 1 20 0 30000 open' ], @in_tick_20));
passes('what is taken over again may end later', lease_case(
		[ 't b 1 1 0 - 15000 closed', 't a 1 2 10 20000 30000 open', 't b 1 1 20 - 25000 closed' ], @in_tick_20));
finds('but not earlier', [ 'changed - 1 b', 'changed: 1' ], lease_case([ 't b 1 1 0 - 15000 closed', 't b 1 1 20 - 14000 closed' ]));
finds('the next lease starts after it', [ 'overlap - 1 a', 'overlap: 1' ],
	lease_case([ 't b 1 1 0 - 20001 closed', 't a 1 2 0 20000 30000 open' ]));

sub versions
{
	return ([ map { lease("t a 1 7 $_") } @_ ]);
}

like(finds('a lowered end', [ 'lowered - 1 a', 'lowered: 1' ], versions('1 0 500 open', '2 0 499 open')),
	qr/row 7 of table t went from ${\(START + 500)}, .* down to ${\(START + 499)}/, 'says from where to where');
passes('an unchanged one, and another row', [ @{ versions('1 0 500 open', '2 0 500 open', '3 0 500 closed') }, lease('t a 1 8 3 500 600 open') ]);
passes('a lease that is closed, and no longer changed', versions('1 0 500 open', '2 0 400 closed', '3 0 400 closed'));

my @changed = ('changed - 1 a', 'changed: 1');

like(finds('an end lowered after that', \@changed, versions('1 0 500 open', '2 0 400 closed', '3 0 399 closed')),
	qr/row 7 of table t was closed at ${\(START + 400)}, and is closed until ${\(START + 399)}/, 'says to when');
finds('an end raised after that', \@changed, versions('1 0 500 open', '2 0 400 closed', '3 0 401 closed'));
finds('a lease that is opened again', \@changed, versions('1 0 500 open', '2 0 400 closed', '3 0 400 open'));
like(finds('a deleted row', \@changed, versions('1 0 500 open', '2 0 500 deleted')), qr/row 7 of table t was deleted/, 'says so');
finds('a start that moves', \@changed, versions('1 0 500 open', '2 1 500 open'));

# Row 7 until the moment 10, when row 8 is granted.
sub taken
{
	return ([ (map { lease("t a 1 7 $_") } @_), lease('t b 1 8 10 600 900 open') ]);
}

like(finds('a lease that is extended after the next was granted', [ ('taken - 1 a') x 2, 'taken: 2' ],
		taken('1 0 500 open', '11 0 501 open')),
	qr/row 7 of table t was extended to ${\(START + 501)} after the next one was granted at ${\(START + 10)}/, 'says to when');
passes('one that was extended before', taken('1 0 500 open', '10 0 501 closed'));
like(finds('one that was open', [ 'taken - 1 a', 'taken: 1' ], taken('1 0 400 open', '2 0 500 open', '11 0 500 closed')),
	qr/row 7 of table t was open when the next one was granted at ${\(START + 10)}/, 'says so');
passes('the last one', [ @{ taken('1 0 500 closed') }, lease('t b 1 8 20 600 950 open') ]);

# m, with leases in two tables: what is covered in that of a and b is of their deployment, too.
my @of_m = ([ m => issued(20, 1, 3, 4) ]);
my @both = ('leases t -', 'leases w -');
passes('a lease in the first table', [ lease('w m 1 1 0 0 30000 open'), @both ], @of_m);
passes('a lease in the second one', [ lease('t m 1 1 0 0 30000 open'), @both ], @of_m);
finds('in neither', [ 'lease ' . id(20, 1, 3) . ' 1 m', 'lease: 4' ], \@both, @of_m);
finds('the wrong one in both', [ 'lease ' . id(20, 1, 3) . ' 1 m', 'lease: 4' ],
	[ lease('t a 1 1 0 0 30000 open'), lease('w m 2 1 0 0 30000 open'), @both ], @of_m);
passes('when one is not complete', [ 'leases t -' ], @of_m);
passes('an id of another server, while it has a table of its own', [ lease('w m 1 1 0 0 30000 open'), @both,
		lease('t a 1 1 0 0 30000 open') ], @of_m, @in_tick_20);
finds('an id of another server, by the same table',
	[ 'duplicate ' . id(20, 1, 3) . ' 1 a', 'duplicate: 4', 'overlap - 1 a', 'overlap: 1' ],
	[ lease('t m 1 1 0 0 30000 closed'), lease('t a 1 2 0 0 30000 open'), @both ], @of_m,
	[ a => statement(20_000, 20_200, [ [ id(20, 1, 3), 4 ] ]) ]);

finds('a row whose id is there already', [ 'duplicate -1 -1 a', 'duplicate: 1' ], [],
	[ a => statement(1, 2, [], sqlstate => '23505') ]);
passes('another error', [], [ a => statement(1, 2, [], sqlstate => '23514') ]);

# Of two statements, which repeat an id.
my @twice = (statement(1, 2, [ [ id(0, 1, 0), 1 ] ]), statement(3, 5, [ [ id(0, 1, 0), 1 ] ]));
passes('what was received later than asked for', [ 'until ' . (START + 4) ], [ a => @twice ]);
finds('what was received just then', [ 'duplicate ' . id(0, 1, 0) . ' 1 a', 'duplicate: 1', 'order ' . id(0, 1, 0) . ' 1 a', 'order: 1' ],
	[ 'until ' . (START + 5) ], [ a => @twice ]);

#
# What it shows, and what it cannot read
#

my @late = map { issued($_, 1, 0) } reverse 1 .. 12;
finds('the ten violations that were received first',
	[ map({ 'lease ' . id($_, 1, 0) . ' 1 a' } 1 .. 10), 'lease: 12' ], [ 'leases t -' ], [ a => @late ]);

my @two = (issued(0, 1, 0), issued(1, 1, 0, 3));
foreach my $missing (1, 15, 16, 17, 71)
{
	$out = passes("a log whose last $missing bytes are missing", [], [ a => substr join('', @two), 0, -$missing ]);
	like($out, qr/^total ids 1 statements 1 failed 0 runs 1$/m, 'the records before are counted');
}
refuses('bad magic', qr/\.log0: no record begins at byte 72$/m, [], [ a => $two[0], statement(1, 2, [], magic => MAGIC + 1) ]);
refuses('a number of ids that is not that of the runs', qr/\.log0: the record at byte 0 has 1 ids in its runs, not 2$/m,
	[], [ a => statement(1, 2, [ [ $low, 1 ] ], ids => 2) ]);
refuses('a statement received before it was sent', qr/\.log0: the record at byte 72 was received before it was sent$/m,
	[], [ a => statement(1, 1, [ [ $low, 1 ] ]), statement(3, 2, []) ]);
refuses('a log that is not there', qr{/none: No such file}, ["log /none a batch"]);

# The lines of a configuration that are wrong, and in what.
my %wrong = (
	'unknown item' => [ 'nothing', '1 2 3 4 5 6 7 8 9' ],
	'too many words' => ['1 2 3 4 5 6 7 8 9 10'],
	'too many tables' => ['server g d ' . join(',', 'a' .. 'u') . ' 1'],
	'another layout' => ['server g d t:d,u:e 1'],
	'wrong number of fields' => [ 'leases t', 'leases t - -', 'lease t a 1 1 1 1 1', 'include' ],
	'not a number' => [ 'leases t x', 'leases t 1x', 'clock a - 1 3' ],
	'number out of range' => [ 'leases t 9999999999999999999', 'deployment g 22 0 0 12 10 0 12',
		'deployment g 22 1 0 12 11 0 12', 'deployment g 63 1 0 12 10 0 12' ],
	'sequence reaches into the timestamp' => ['deployment g 22 1 0 12 10 11 12'],
	'server is there twice' => ['server a d t 1'],
	'deployment is there twice' => ['deployment d 22 1 0 12 10 0 12'],
	'unknown deployment' => [ 'server g g t 1', 'server g d t:g 1' ],
	'unknown server' => [ 'log x g batch', 'clock g 1 2 3' ],
	'it ends before it begins' => ['clock a 2 1 3'],
	'unknown state' => ['lease t a 1 1 1 1 1 released'],
	'No such file or directory' => ['include /none']);
foreach my $what (sort keys %wrong)
{
	foreach my $line (@{ $wrong{$what} })
	{
		my ($status, undef, $error) = check([ '# a comment', $line ]);

		ok($status == 2 && $error =~ /^checker: \S+config_\d+:10: $what: "/, "$what: $line") or diag $error;
	}
}
refuses('a row of two servers', qr/row 7 of node number 1 in table t belongs to a and b/,
	[ lease('t a 1 7 1 0 2 open'), lease('t b 1 7 1 0 2 open') ]);

my $included = write_file("$directory/included", "# lines\n\n \tleases t -   # comment\n");
finds('an included file', \@unleased, [ "include $included" ], @in_tick_20);
refuses('an error after it', qr/config_\d+:10: unknown item: "wrong"/, [ "include $included", 'wrong' ]);
write_file($included, "leases t -\nwrong\n");
refuses('an error in it', qr/included:2: unknown item: "wrong"/, [ "include $included" ]);
refuses('a file that includes itself', qr/included:1: includes itself/,
	[ 'include ' . write_file($included, "include $included\n") ]);

#
# Writers and a real server
#

my %rates = (single => 300, batch => 20_000, insert => 10_000);
my %logs = map { $_ => "$directory/log_$_" } keys %rates;
my $server = new_node('main');

sub start_writer
{
	my ($conninfo, $kind, $log) = @_;
	my $pid = fork // die "fork: $!";

	return $pid if $pid;
	exec $writer, $conninfo, $kind, $log, 1, $rates{$kind}, 500, 7 or POSIX::_exit(1);
}

# They end with status 0, and soon.
sub stop_writers
{
	my ($label, @pids) = @_;
	my $begin = time;

	kill 'TERM', @pids;
	my @status = map { waitpid $_, 0; $? } @pids;
	is("@status", join(' ', map { 0 } @pids), "$label: the writers end when they are told to");
	cmp_ok(time - $begin, '<', 30, 'and soon');
}

sub wait_for_logs
{
	my %goal = map { $_ => (-s $logs{$_} // 0) + 20 * 72 } keys %logs;

	poll('statements of each writer', sub { !grep { (-s $logs{$_} // 0) < $goal{$_} } keys %goal });
	usleep(300_000);
}

# What is recorded now about leases.  A start has one row here; when it was recorded is not known
# any more if it was renewed, but it was after the start.
sub lease_lines
{
	return split /\n/, $server->safe_psql('postgres', <<'SQL');
SELECT concat_ws(' ', 'lease t main', node_number, row_number() OVER (ORDER BY launched_at),
	us(launched_at), us(starts_at), us(leased_until), CASE WHEN closed_at IS NULL THEN 'open' ELSE 'closed' END)
FROM snowflake.leases
SQL
}

$server->safe_psql('postgres', <<'SQL');
CREATE TABLE orders (id bigint DEFAULT snowflake_nextval(), n int);
CREATE FUNCTION us(timestamptz) RETURNS bigint LANGUAGE sql AS 'SELECT (extract(epoch FROM $1) * 1000000)::bigint';
SQL
my @pids = map { start_writer($server->connstr('postgres'), $_, $logs{$_}) } sort keys %logs;
wait_for_logs();
my @leases = lease_lines();
crash($server);
poll('attempts to connect that fail', sub { !grep { slurp_file($_) !~ /08001/ } values %logs });
$server->start;
wait_for_logs();
push @leases, lease_lines();
stop_writers('a server that was killed', @pids);

my @world = ('deployment d 22 1000 ' . EPOCH . ' 12 10 0 12', 'server main d t 1000000', @leases, 'leases t -');
my ($status, $error);
foreach my $kind (sort keys %logs)
{
	($status, $out, $error) = run_checker(write_file("$directory/world",
			join '', map { "$_\n" } @world, "log $logs{$kind} main $kind"));
	like($out, qr/^total ids [1-9]/m, "ids of kind $kind are there");
	like($out, qr/^error main 08001 /m, 'and failed attempts to connect');
}
($status, $out, $error) = run_checker(write_file("$directory/world",
		join '', map { "$_\n" } @world, map { "log $logs{$_} main $_" } sort keys %logs));
is($status, 0, 'all of it is right') or diag $out, $error;
like($out, qr/^gap main \d+ \d+$/m, 'and shows the outage');

# Statements that do not get to their end: with an error after 49 ids, or with a server
# that is killed before it has sent all.
foreach my $schema (qw(failing hanging))
{
	my $id = $schema eq 'failing' ? '1000 + i + 0 / (50 - i)'
	  : '1000 + i + CASE WHEN i = 2000 THEN length(pg_sleep(100)::text) ELSE 0 END';

	$server->safe_psql('postgres', "CREATE SCHEMA $schema; " . join '; ', map {
		"CREATE FUNCTION $schema.$_ RETURNS SETOF bigint LANGUAGE sql AS 'SELECT $id FROM generate_series(1, 3000) i'"
	} 'snowflake_nextval()', 'snowflake_nextval_batch(int)');
}

# The number of ids, number of runs, SQLSTATE and first run of the first record.
sub first_record
{
	my ($nruns, $ids, $sqlstate, @run) = (unpack 'L L q4 Q Z8 q L', slurp_file($_[0]))[ 1, 6 .. 9 ];

	return ($ids, $nruns, $sqlstate, @run);
}

@pids = ();
%logs = ();
foreach my $schema (qw(failing hanging))
{
	foreach my $kind (qw(batch single))
	{
		$logs{"$schema $kind"} = "$directory/log_${schema}_$kind";
		push @pids, start_writer($server->connstr('postgres') . " options='-c search_path=$schema,public'",
			$kind, $logs{"$schema $kind"});
	}
}
poll('statements that hang', sub {
		$server->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 2 });
crash($server);
poll('a record of each writer', sub { !grep { !-s } values %logs });
stop_writers('a server that is gone', @pids);
foreach my $kind (qw(batch single))
{
	is_deeply([ first_record($logs{"failing $kind"}) ], [ 49, 1, '22012', 1001, 49 ],
		"$kind: the ids before an error are logged");
	my ($ids, @rest) = first_record($logs{"hanging $kind"});
	ok($ids > 0 && $ids < 2000, "$kind: the ids that came before the end of the connection are logged") or diag $ids;
	is_deeply(\@rest, [ 1, '08006', 1001, $ids ], 'in one run, with that error');
}

done_testing();
