# calls.pl
#	  What one id costs in SQL, beside what else makes ids; what a batch costs, and the
#	  functions that read ids, beside functions that do next to nothing.
#
# A sample is at least 0.3 s of the processor's time, put together of short statements of
# all candidates in turn, so that what disturbs one disturbs them all.
#
# Two regimes are told apart.  At the clock, an id's time is now, so the
# exact clock is read.  In a burst more ids are issued than the layout has for the time that
# passes, ids are ahead of the clock, and a coarse reading does.  Each is prepared
# before each statement; ids that had to wait are counted.
use strict;
use warnings;

use List::Util qw(shuffle sum);

use Bench;
use BenchSession;

my $calls = 50_000;				# of a statement; more would not fit into work_mem
my $batch = 1_000_000;
my $enough = quick(3e8, 1.5e7);	# nanoseconds of a sample

# Settings of the servers: one for each layout that is the default, and one that is
# ahead of the clock.
my %settings = (
	clock => { 'snowflake.extra_layouts' => 'discord' },
	burst => {},
	'10ms' => { 'snowflake.layout' => 'js53' },
	wide => { 'snowflake.layout' => "'timestamp 32, worker 5, sequence 26, tick 1s, epoch 2024-01-01T00:00:00Z'" });

my %servers = map { $_ => new_server("calls-$_", 'shared_buffers' => "'32MB'", %{ $settings{$_} }) } sort keys %settings;
my %sessions = map { $_ => BenchSession->new($servers{$_}) } sort keys %servers;

# Before a statement: the clock has come to the last id, or that is 0.2 s ahead.
my $ahead = "greatest(extract(epoch FROM ahead), 0)";
my %prepare = (
	clock => "SELECT count(pg_sleep($ahead)) FROM pg_stat_snowflake",
	burst => "SELECT count(*) FROM pg_stat_snowflake, " .
	  "LATERAL snowflake_nextval_batch(greatest(4096000 * (0.2 - $ahead), 1)::integer)");

sub create_rivals
{
	my ($server) = @_;

	$server->sql('CREATE SEQUENCE plain; CREATE SEQUENCE cached32 CACHE 32; CREATE SEQUENCE cached1000 CACHE 1000');
	# RFC 9562, 5.7: milliseconds, version, and what is random in a uuid of version 4
	$server->sql(q{
		CREATE FUNCTION uuid_v7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
			SELECT (lpad(to_hex(floor(1000 * extract(epoch FROM clock_timestamp()))::bigint), 12, '0') ||
				'7' || substr(gen_random_uuid()::text, 16))::uuid
		$$});
	# the scheme that Instagram described in 2012: 41 bits of milliseconds, 13 of the shard, 10 of a sequence
	$server->sql(q{
		CREATE SEQUENCE instagram_sequence;
		CREATE FUNCTION instagram_id() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
		DECLARE
			milliseconds CONSTANT bigint := floor(1000 * extract(epoch FROM clock_timestamp()));
		BEGIN
			RETURN (milliseconds - 1314220021721) << 23 | 1 << 10 | nextval('instagram_sequence') % 1024;
		END
		$$});
	$server->sql('CREATE EXTENSION "uuid-ossp"') if has_uuid_ossp($server);
}

sub has_uuid_ossp
{
	my ($server) = @_;

	return $server->sql(q{SELECT 1 FROM pg_available_extensions WHERE name = 'uuid-ossp'}) ne '';
}

# From PostgreSQL 18 on
sub has_uuidv7
{
	my ($server) = @_;

	return $server->sql(q{SELECT pg_catalog.to_regprocedure('pg_catalog.uuidv7()')}) ne '';
}

# Samples of one round: nanoseconds for each call.  A candidate is [server, statement, calls].
sub measure
{
	my ($figure, $run, $x, %candidates) = @_;
	my %spent = map { $_ => 0 } keys %candidates;
	my %done = %spent;

	while (my @left = grep { $spent{$_} < $enough } sort keys %candidates)
	{
		foreach my $subject (shuffle @left)
		{
			my ($server, $statement, $count) = @{ $candidates{$subject} };
			my $session = $sessions{$server};

			$session->value($prepare{$server}) if $prepare{$server} && $statement =~ /snowflake_nextval\(/;
			$spent{$subject} += $session->nanoseconds($statement);
			$done{$subject} += $count;
		}
	}
	my %costs = map { $_ => $spent{$_} / $done{$_} } keys %spent;
	sample($figure, $_, $x, $run, $costs{$_}) foreach sort keys %costs;
	return %costs;
}

# So many calls of an expression.
sub call
{
	my ($server, $expression) = @_;

	return [ $server, "SELECT count($expression) FROM generate_series(1, $calls)", $calls ];
}

create_rivals($servers{clock});
$servers{'10ms'}->let_run_ahead('1h');

my @issuing = (
	'empty C function' => call('clock', 'bench_empty()'),
	'clock_timestamp()' => call('clock', 'clock_timestamp()'),
	'snowflake_nextval(), in a burst' => call('burst', 'snowflake_nextval()'),
	'the same, layout of 10 ms' => call('10ms', 'snowflake_nextval()'),
	'snowflake_nextval(), at the clock' => call('clock', 'snowflake_nextval()'),
	'the same, layout of 1 s' => call('wide', 'snowflake_nextval()'),
	'the same, layout named' => call('clock', "snowflake_nextval('discord')"),
	'nextval, CACHE 1' => call('clock', "nextval('plain')"),
	'nextval, CACHE 32' => call('clock', "nextval('cached32')"),
	'nextval, CACHE 1000' => call('clock', "nextval('cached1000')"),
	'gen_random_uuid()' => call('clock', 'gen_random_uuid()'),
	has_uuid_ossp($servers{clock}) ? ('uuid_generate_v1()' => call('clock', 'uuid_generate_v1()')) : (),
	'uuid v7 in SQL' => call('clock', 'uuid_v7()'),
	has_uuidv7($servers{clock}) ? ('uuidv7()' => call('clock', 'uuidv7()')) : (),
	'Instagram, in PL/pgSQL' => call('clock', 'instagram_id()'));
my %issuing = @issuing;
my @subjects = @issuing[ grep { $_ % 2 == 0 } 0 .. $#issuing ];
my @others = grep { !/^empty/ } @subjects;

figure(id => 'call', title => 'Cost of a call, with the query around it', unit => 'ns',
	references => [ 'empty C function', 'nextval, CACHE 1' ], subjects => \@subjects, absolute => 1, logarithmic => 1);
goal(figure => 'call', subject => "snowflake_nextval(), $_", reference => 'empty C function', at_most => 1.15)
  foreach ('in a burst', 'at the clock');
goal(figure => 'call', subject => "snowflake_nextval(), $_", reference => 'nextval, CACHE 1', at_most => 0.45)
  foreach ('in a burst', 'at the clock');
note('call', "The session's processor time of `SELECT count(f()) FROM generate_series(1, $calls)`, settings as they " .
	"are by default. In a burst: ids are ahead of the clock, as in a statement that issues a million. At the " .
	'clock: there are ids left for the time that it is.');

figure(id => 'net', title => 'Cost of a call, without the query around it', unit => 'ns',
	references => [ 'nextval, CACHE 1', 'clock_timestamp()' ], subjects => \@others, logarithmic => 1);
note('net', "The same samples, less that of the empty C function of the same round.");

figure(id => 'batch', title => 'A batch of a million', unit => 'ns',
	references => [ 'generate_series' ], subjects => [ 'generate_series', 'snowflake_nextval_batch', 'snowflake_nextval' ]);
goal(figure => 'batch', subject => 'snowflake_nextval_batch', reference => 'generate_series', at_most => 1.3);
note('batch', "`SELECT count(*) FROM f($batch)`, generate_series of bigint, and one by one `SELECT " .
	'count(snowflake_nextval()) FROM generate_series`; in a layout with 67,108,864 ids a second.');

my %batches = (
	'generate_series' => [ 'wide', "SELECT count(*) FROM generate_series(1::bigint, $batch)", $batch ],
	'snowflake_nextval_batch' => [ 'wide', "SELECT count(*) FROM snowflake_nextval_batch($batch)", $batch ],
	'snowflake_nextval' => [ 'wide', "SELECT count(snowflake_nextval()) FROM generate_series(1, $batch)", $batch ]);

# What reads ids, and beside each a function that takes and returns the like.
my @reading = (
	'snowflake_timestamp(id)' => 'abs(id)',
	"snowflake_timestamp(id, 'twitter')" => 'abs(id)',
	'snowflake_parse(id)' => 'ROW(at, one, one, one, one)',
	"snowflake_parse(id, 'twitter')" => 'ROW(at, one, one, one, one)',
	'snowflake_min_id(at)' => 'isfinite(at)',
	'snowflake_compose(at, one, one)' => 'isfinite(at)',
	'snowflake_mask(id, key)' => 'get_byte(key, one)',
	'snowflake_unmask(id, key)' => 'get_byte(key, one)',
	map { ("snowflake_encode(id, '$_')" => 'id::text', "snowflake_decode($_, '$_')" => 'as_decimal::bigint') }
	  qw(base62 crockford32 hex));
my %reading = @reading;
my @readers = @reading[ grep { $_ % 2 == 0 } 0 .. $#reading ];

$servers{clock}->sql(qq{
	CREATE TABLE input AS
		SELECT id, snowflake_timestamp(id) AS at, 1 AS one, '\\x2b7e151628aed2a6abf7158809cf4f3c'::bytea AS key,
			snowflake_encode(id, 'base62') AS base62, snowflake_encode(id, 'crockford32') AS crockford32,
			snowflake_encode(id, 'hex') AS hex, id::text AS as_decimal
		FROM snowflake_nextval_batch($calls) AS id});
$servers{clock}->sql('VACUUM ANALYZE input');

figure(id => 'read', title => 'Cost of reading ids, beside functions that do next to nothing', unit => 'ns',
	references => [ 'next to nothing' ], subjects => [ 'snowflake' ], x => 'function');
note('read', 'The processor time of `SELECT count(f(id)) FROM` a table, beside functions of the server that take and return the ' .
	'like: ' . join('; ', map { "`$reading{$_}` for `$_`" } @readers) . '.');

# What is loaded or cached once does not count, nor the wait for the first lease.
$sessions{ $_->[0] }->value("SELECT 1 FROM ($_->[1]) _") foreach values %issuing, values %batches;
$_->sql('SELECT pg_stat_snowflake_reset()') foreach values %servers;

foreach my $run (1 .. $Bench::runs)
{
	progress("calls: round $run of $Bench::runs");
	my %costs = measure('call', $run, undef, %issuing);
	sample('net', $_, undef, $run, $costs{$_} - $costs{'empty C function'}) foreach @others;
	measure('batch', $run, undef, %batches);
	foreach my $reader (@readers)
	{
		measure('read', $run, $reader, map { $_->[0] => [ 'clock', "SELECT count($_->[1]) FROM input", $calls ] }
			[ 'snowflake', $reader ], [ 'next to nothing', $reading{$reader} ]);
	}
}

foreach my $name (sort keys %servers)
{
	my $waits = $servers{$name}->sql('SELECT sum(waits) FROM pg_stat_snowflake');

	note('call', "$waits of the calls on the server \"$name\" waited.") if $waits > 0;
}
finish();
