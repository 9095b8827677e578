# growth.pl
#	  What grows with what: the cost of the next id with sessions and with layouts in use; of
#	  the calls to the registry with numbers in use and with history; and the time that 64
#	  servers need which are started together, until each has a node number.
#
# In each round every size is measured once, in a new order, and compared with the least
# size of the same round.
use strict;
use warnings;

use Time::HiRes qw(sleep time);

use Bench;
use BenchSession;

# 2^20 ids a millisecond: no sample comes near the limit.
my $wide = 'timestamp 39, worker 4, sequence 20, tick 1ms';
my $ids = quick(500_000, 50_000);

sub per_id
{
	my ($server, $call) = @_;

	return $server->seconds("SELECT count($call) FROM generate_series(1, $ids) AS n") / $ids * 1e9;
}

sub per_look
{
	my ($server) = @_;
	my $looks = quick(100, 5);

	return $server->seconds("DO 'BEGIN FOR n IN 1..$looks LOOP PERFORM count(last_id) FROM pg_stat_snowflake; END LOOP; END'")
	  / $looks * 1e6;
}

#
# Sessions
#
sub measure_sessions
{
	my @sizes = (1, 8, 64, 200);
	my $server = new_server('sessions', 'snowflake.layout' => "'$wide, epoch 2024-01-01T00:00:00Z'",
		'max_connections' => 250, 'shared_buffers' => "'64MB'");
	my $idle = $server->script('idle.sql', "SELECT snowflake_nextval();\n\\sleep 3600 s\n");
	my $n = quick(1000, 100);
	my $statements = quick(4000, 400);
	my %busy = map { $_->[0] => $server->script("$_->[0].sql", "SELECT count($_->[1]) FROM generate_series(1, $n) AS n;\n") }
	  [ 'snowflake_nextval()' => 'snowflake_nextval()' ], [ 'abs(n)' => 'abs(n)' ];

	figure(id => 'idle', title => 'Cost of the next id with more sessions connected, each of which has issued one', unit => 'ns',
		subjects => [ 'snowflake_nextval()', 'abs(n)', 'view pg_stat_snowflake (us)' ], x => 'sessions',
		references => ['sessions = 1'], absolute => 1);
	note('idle', "One session issues ids ($ids a sample), the others are idle; `max_connections` is 250 throughout.");
	goal(figure => 'idle', subject => 'snowflake_nextval()', reference => 'sessions = 1', x => 200, at_most => 1.15);
	figure(id => 'issuing', title => 'Cost of the next id with more sessions that issue ids', unit => 'ns',
		subjects => [ 'snowflake_nextval()', 'abs(n)' ], x => 'clients',
		references => [ 'clients = 1', 'abs(n)' ], absolute => 1, logarithmic => 1);
	note('issuing', "All sessions issue ids without end, $n ids a statement: time for each id that any of them got. " .
		'abs(n) in its place shows what the scheduler and the executor do.');

	my $connected = sub {
		my ($size) = @_;
		my $pid = $size > 1 ? $server->background('pgbench', '-n', '-c', $size - 1, '-T', 3600, '-f', $idle) : undef;

		wait_until("$size sessions", 120, sub { $server->sql(
			"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND (state = 'idle' OR pid = pg_backend_pid())")
			== $size });
		return $pid;
	};
	my $idle_part = sub {
		my ($run, $size) = @_;
		my $pid = $connected->($size);

		sample('idle', 'snowflake_nextval()', $size, $run, per_id($server, 'snowflake_nextval()'));
		sample('idle', 'abs(n)', $size, $run, per_id($server, 'abs(n)'));
		sample('idle', 'view pg_stat_snowflake (us)', $size, $run, per_look($server));
		BenchServer::end($pid) if $pid;
		wait_until('sessions to end', 120, sub {
			$server->sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") == 1 });
	};
	my $issuing_part = sub {
		my ($run, $size) = @_;

		foreach my $call (sort keys %busy)
		{
			my $output = $server->pgbench('-c', $size, '-j', 2, '-t', int($statements / $size) || 1, '-M', 'prepared', '-f', $busy{$call});

			$output =~ /^tps = ([\d.]+)/m or die "no rate in: $output";
			sample('issuing', $call, $size, $run, 1e9 / ($1 * $n));
		}
	};
	per_id($server, 'snowflake_nextval()');
	each_round('sessions', map { my $size = $_; (sub { $idle_part->($_[0], $size) }, sub { $issuing_part->($_[0], $size) }) } @sizes);
	$server->stop;
}

#
# Layouts.  They are fixed when a server starts, so each size has a server.
#
sub measure_layouts
{
	my @sizes = (1, 2, 8, 16, 64);
	my $last = 'snowflake_nextval(layout)';
	my (%server, %call);

	figure(id => 'layouts', title => 'Cost of the next id with more layouts in use', unit => 'ns',
		subjects => [ 'snowflake_nextval()', $last ], x => 'layouts', references => ['layouts = 1'], absolute => 1);
	note('layouts', 'The first line is of `snowflake.layout`, the second of the last one in `snowflake.extra_layouts` ' .
		'(of 1, the same). 64 is the most there can be.');
	goal(figure => 'layouts', subject => $_, reference => 'layouts = 1', x => 64, at_most => 1.15)
	  foreach 'snowflake_nextval()', $last;
	figure(id => 'view', title => 'Cost of a look at the view pg_stat_snowflake', unit => 'us', subjects => [ 'all rows', 'for each row' ],
		x => 'layouts', references => ['layouts = 1'], absolute => 1, logarithmic => 1);
	note('view', 'The view has a row for each layout in use, and sums the counts of all processes that there can be (`max_connections` is 200 here).');

	foreach my $size (@sizes)
	{
		my @layouts = map { sprintf('%s, epoch 2024-01-01T00:%02d:%02dZ', $wide, $_ / 60, $_ % 60) } 0 .. $size - 1;
		my $server = $server{$size} = new_server("layouts$size", 'snowflake.layout' => "'$layouts[0]'",
			'snowflake.extra_layouts' => "'" . join('; ', @layouts[ 1 .. $#layouts ]) . "'", 'shared_buffers' => "'16MB'");

		$call{$size} = "snowflake_nextval('$layouts[-1]')";
		$server->sql("SET snowflake.max_wait = '60s'; SELECT snowflake_nextval(layout) FROM pg_stat_snowflake");
		my $used = $server->sql('SELECT count(*) FROM pg_stat_snowflake WHERE ids_issued > 0');
		die "$used layouts are in use, not $size" unless $used == $size;
	}
	each_round('layouts', map { my $size = $_; sub {
		my ($run) = @_;
		my $look = per_look($server{$size});

		sample('layouts', 'snowflake_nextval()', $size, $run, per_id($server{$size}, 'snowflake_nextval()'));
		sample('layouts', $last, $size, $run, per_id($server{$size}, $call{$size}));
		sample('view', 'all rows', $size, $run, $look);
		sample('view', 'for each row', $size, $run, $look / $size);
	} } @sizes);
	$_->stop foreach values %server;
}

#
# The registry's functions, called as the lease worker does.  Each size is a database.
#
my $elsewhere = do { local (@ARGV, $/) = 'test/elsewhere.sql'; <> };
my $functions = <<'SQL';
CREATE EXTENSION snowflake;
CREATE EXTENSION snowflake_registry;

-- The canonical form of a layout that has so many node numbers.
CREATE FUNCTION layout_of(bits int) RETURNS text LANGUAGE sql AS $$
	SELECT definition FROM snowflake_layout(format('timestamp 32, worker %s, sequence 9, tick 1s, epoch 2024-01-01T00:00:00Z', bits))
$$;

CREATE FUNCTION microseconds(at timestamptz) RETURNS bigint LANGUAGE sql AS $$
	SELECT (extract(epoch FROM at) * 1000000)::bigint
$$;

-- Leases that are over: of the numbers first, first + 1, ..., which come again and again; each is in the log, and
-- each number has its end.  The registry has counted, and has recorded the layout, before its next call.
CREATE FUNCTION add_leases(num_rows bigint, bits int, first bigint, numbers bigint) RETURNS void LANGUAGE sql AS $$
	SELECT snowflake.change_layout(layout_of(bits));
	INSERT INTO snowflake.worker_node (token, start, granted_by, kind, host_name, port, role, system_identifier, timeline,
		incarnation, generation, fixed, node_number, layout, launched_at, starts_at, leased_until, closed_at)
	SELECT gen_random_uuid(), gen_random_uuid(), 1, 'server', 'db.example', 5432, 'postgres', n % numbers, 1,
		r.incarnation, r.generation, false, first + n % numbers, l.layout, began, began, began + '2 min', began + '2 min'
	FROM snowflake.registry AS r, layout_of(bits) AS l (layout), generate_series(0, num_rows - 1) AS n,
		LATERAL (SELECT '2024-01-01Z'::timestamptz + n * interval '3 min') AS lease (began);
	INSERT INTO snowflake.node_number (node_number, ended_until)
	SELECT w.node_number, max(w.leased_until) FROM snowflake.worker_node AS w GROUP BY w.node_number
$$;

-- A number is leased, the lease is renewed and released, n times, each time as by a start of another
-- server; the median of each, in microseconds of processor time.  Each time is rolled back, so that the next
-- one finds the same numbers: rows of numbers cannot be deleted.
CREATE FUNCTION lease(n int, bits int, first bigint, last bigint, fixed boolean,
	OUT acquire float8, OUT renew float8, OUT release float8) LANGUAGE plpgsql AS $$
DECLARE
	node jsonb;
	answer jsonb;
	lease jsonb;
	calls jsonb[];
	t bigint[] := '{}';
	taken float8[][] := '{}';
BEGIN
	FOR i IN 1..n LOOP
		BEGIN
			node := jsonb_build_object('protocol', 1, 'start', gen_random_uuid(), 'layout', layout_of(bits),
				'clock', microseconds(clock_timestamp()), 'max_ahead', 1000000, 'window', 120000000);
			calls[1] := node || jsonb_build_object('call', 1, 'lease', NULL, 'uses', NULL, 'ids_end_at', NULL, 'starts_at', NULL,
				'kind', 'server', 'host_name', 'new', 'port', 5432, 'system_identifier', 0, 'timeline', 1,
				'launched_at', node -> 'clock', 'first_number', first, 'last_number', last, 'fixed', fixed);
			t[1] := bench_time();
			answer := snowflake.acquire_lease(calls[1]);
			t[2] := bench_time();
			ASSERT answer ->> 'answer' = 'yes', answer;
			lease := jsonb_build_object('token', answer -> 'token', 'node_number', answer -> 'node_number', 'granted_by', 1,
				'incarnation', answer -> 'incarnation', 'generation', answer -> 'generation', 'leased_until', answer -> 'leased_until');
			calls[2] := node || jsonb_build_object('call', 2, 'lease', lease, 'clock', microseconds(clock_timestamp()));
			t[3] := bench_time();
			answer := snowflake.renew_lease(calls[2]);
			t[4] := bench_time();
			ASSERT answer ->> 'answer' = 'yes', answer;
			calls[3] := node || jsonb_build_object('call', 3, 'lease', lease || jsonb_build_object('leased_until', answer -> 'leased_until',
				'ids_end_at', microseconds(clock_timestamp())));
			t[5] := bench_time();
			answer := snowflake.release_lease(calls[3]);
			t[6] := bench_time();
			ASSERT answer ->> 'answer' = 'yes', answer;
			RAISE EXCEPTION USING ERRCODE = 'DONE1';
		EXCEPTION WHEN SQLSTATE 'DONE1' THEN
			taken := taken || ARRAY[ARRAY[(t[2] - t[1]) / 1e3, (t[4] - t[3]) / 1e3, (t[6] - t[5]) / 1e3]];
		END;
	END LOOP;
	SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY taken[i][1]), percentile_cont(0.5) WITHIN GROUP (ORDER BY taken[i][2]),
		percentile_cont(0.5) WITHIN GROUP (ORDER BY taken[i][3])
	INTO acquire, renew, release FROM generate_series(1, n) AS i;
END
$$;
SQL

sub new_registry
{
	my ($server, $name, @leases) = @_;

	$server->sql("CREATE DATABASE $name");
	BenchSession::add_functions($server, '-d', $name);
	$server->sql($elsewhere . $functions, '-d', $name);
	$server->sql('SELECT add_leases(' . join(', ', @$_) . ')', '-d', $name) foreach @leases;
	$server->sql('VACUUM ANALYZE', '-d', $name);
}

# As the first calls of a session, a node's, are planned: with the values given.
sub lease
{
	my ($server, $name, $calls, @options) = @_;
	my @settings = ('SET plan_cache_mode = force_custom_plan', 'SET synchronous_commit = off');
	my $call = 'SELECT * FROM lease(%s, ' . join(', ', @options) . ')';

	my $output = $server->sql(join('; ', @settings, sprintf($call, 1), sprintf($call, $calls)), '-d', $name);
	# not of what is rolled back
	$server->sql('VACUUM snowflake.node_number, snowflake.worker_node', '-d', $name);
	return split /\|/, (split /\n/, $output)[-1];
}

sub measure_registry
{
	my $server = new_server('registry', 'shared_buffers' => "'256MB'");
	my $calls = quick(31, 5);
	my @kinds = ('acquire', 'acquire, fixed number', 'renew', 'release');
	my @history = (1, 1000, 10_000, quick(100_000, 20_000));
	my @parts;

	figure(id => 'history', title => 'Cost of a lease with history', unit => 'us', subjects => \@kinds, x => 'rows',
		references => ['rows = 1'], absolute => 1);
	note('history', 'Rows of leases that are over, of 100 numbers that come again and again; for a fixed number all are of it. ' .
		"Processor time of a warm session of the registry; the median of $calls calls a sample.  Linear growth would be at least tenfold.");
	goal(figure => 'history', subject => $_, reference => 'rows = 1', x => $history[-1], at_most => 1.3) foreach @kinds;
	figure(id => 'numbers', title => 'Cost of a lease with numbers in use', unit => 'us',
		subjects => [ 'acquire, 10 node bits', 'acquire, 22 node bits', 'renew, 22 node bits', 'release, 22 node bits',
			'acquire, all numbers were used' ],
		x => 'numbers', references => ['numbers = 1'], absolute => 1, logarithmic => 1, picture => 'samples');
	note('numbers', 'A row for each number. If one of 16 numbers at random was never leased, it is taken; else the one that is longest unused, ' .
		'for which up to 4,096 numbers are all looked at, and more by an index (layouts of 2, 5, 10 and 16 node bits).');

	foreach my $rows (@history)
	{
		my ($auto, $fixed) = ("history$rows", "fixed$rows");

		new_registry($server, $auto, [ $rows, 10, 0, 100 ]);
		new_registry($server, $fixed, [ $rows, 10, 7, 1 ]);
		push @parts, sub {
			my ($run) = @_;
			my @times = lease($server, $auto, $calls, 10, 0, 1022, 'false');

			sample('history', $_->[0], $rows, $run, $times[ $_->[1] ]) foreach [ 'acquire', 0 ], [ 'renew', 1 ], [ 'release', 2 ];
		}, sub {
			my ($run) = @_;
			my @times = lease($server, $fixed, $calls, 10, 7, 7, 'true');

			sample('history', 'acquire, fixed number', $rows, $run, $times[0]);
		};
	}
	foreach my $use ([ 10, 1, 128, 512, 990 ], [ 22, 1, 1000, 10_000, quick(100_000, 20_000) ])
	{
		my ($bits, @sizes) = @$use;

		foreach my $numbers (@sizes)
		{
			my $name = "used${bits}_$numbers";

			new_registry($server, $name, [ $numbers, $bits, 0, $numbers ]);
			push @parts, sub {
				my ($run) = @_;
				my @times = lease($server, $name, $calls, $bits, 0, 2**$bits - 2, 'false');

				sample('numbers', "acquire, $bits node bits", $numbers, $run, $times[0]);
				return unless $bits == 22;
				sample('numbers', "renew, $bits node bits", $numbers, $run, $times[1]);
				sample('numbers', "release, $bits node bits", $numbers, $run, $times[2]);
			};
		}
	}
	# with two bits, of the numbers 0 and 1 the even one
	foreach my $bits (2, 5, 10, quick(16, 12))
	{
		my $numbers = $bits == 2 ? 1 : 2**$bits - 1;
		my $last = $bits == 2 ? 1 : $numbers - 1;
		my $name = "full$bits";

		new_registry($server, $name, [ $numbers, $bits, 0, $numbers ]);
		push @parts, sub {
			my ($run) = @_;
			my @times = lease($server, $name, $numbers > 10_000 ? 1 : quick(7, 3), $bits, 0, $last, 'false');

			sample('numbers', 'acquire, all numbers were used', $numbers, $run, $times[0]);
		};
	}
	each_round('registry', @parts);
	$server->stop;
}

#
# 64 servers
#
sub spill
{
	my ($mode, $path, $text) = @_;

	open my $file, $mode, $path or die "$path: $!";
	print $file $text;
	close $file or die "$path: $!";
}

sub new_nodes
{
	my ($registry, $number) = @_;
	my $dir = "$ENV{BENCH_WORK}/nodes";
	my @nodes = map { { dir => "$dir/$_", port => 6000 + $_ } } 1 .. $number;

	mkdir $dir or die "$dir: $!";
	BenchServer::run_in($dir, 'initdb', '-D', "$dir/1", '-U', 'postgres', '--auth-local=trust', '--auth-host=reject', '--locale=C', '-N', '--wal-segsize=1');
	spill('>>', "$dir/1/postgresql.conf", <<END);
listen_addresses = ''
unix_socket_directories = '$dir'
shared_preload_libraries = 'snowflake'
snowflake.registry = 'host=$registry->{dir} port=$registry->{port} dbname=postgres user=postgres'
shared_buffers = '1MB'
max_connections = 10
max_wal_senders = 0
min_wal_size = '2MB'
dynamic_shared_memory_type = mmap
autovacuum = off
END
	# A server leases when it starts if it ever had a lease.  The others are copies of this one.
	my @server = ('-D', "$dir/1", '-w', '-s');
	BenchServer::run_in($dir, 'pg_ctl', @server, '-l', "$dir/1/log", '-o', '-p 6000', 'start');
	BenchServer::run_in($dir, 'psql', '-XAtq', '-h', $dir, '-p', 6000, '-U', 'postgres', '-d', 'postgres', '-v', 'ON_ERROR_STOP=1',
		'-c', 'SET client_min_messages = error', '-c', 'CREATE EXTENSION snowflake',
		'-c', "SET snowflake.max_wait = '60s'", '-c', 'SELECT snowflake_nextval()');
	BenchServer::run_in($dir, 'pg_ctl', @server, 'stop');
	system('cp', '-R', "$dir/1", $_->{dir}) == 0 or die "cp: $?" foreach @nodes[ 1 .. $#nodes ];
	chmod 0700, $_->{dir} foreach @nodes;
	spill('>>', "$_->{dir}/postgresql.conf", "port = $_->{port}\n") foreach @nodes;
	return ($dir, @nodes);
}

# Starts them together; how long until the registry has an open lease for each.
sub start_nodes
{
	my ($registry, @nodes) = @_;
	my $open = 'SELECT count(*) FROM snowflake.node_number WHERE token IS NOT NULL';
	my $began = time();

	die 'there are leases' unless $registry->sql($open) == 0;
	$_->{pid} = BenchServer::begin("$_->{dir}/log", 'postgres', '-D', $_->{dir}) foreach @nodes;
	wait_until(@nodes . ' leases', 300, sub { $registry->sql($open) == @nodes });
	return time() - $began;
}

# The next id of each: the node numbers are those of the leases, and no two are the same.
sub check_nodes
{
	my ($registry, $dir, @nodes) = @_;
	my @numbers = map { BenchServer::run_in($dir, 'psql', '-XAtq', '-h', $dir, '-p', $_->{port}, '-U', 'postgres', '-d', 'postgres',
		'-v', 'ON_ERROR_STOP=1', '-c', "SET snowflake.max_wait = '60s'", '-c', 'SELECT snowflake_nextval() >> 12 & 1023') } @nodes;
	my $leased = $registry->sql('SELECT node_number FROM snowflake.node_number WHERE token IS NOT NULL ORDER BY 1');
	my %seen;

	$seen{$_}++ foreach @numbers;
	die "node numbers are not distinct: @numbers" if keys %seen != @nodes;
	die "numbers @numbers are not those leased: $leased" if $leased ne join "\n", sort { $a <=> $b } @numbers;
}

sub stop_nodes
{
	my ($registry, @nodes) = @_;

	BenchServer::end(map { $_->{pid} } @nodes);
	# what a node could not tell in time: its lease would be over in two minutes
	$registry->sql("SELECT snowflake.ids_end_before(now(), 'postgres')");
}

sub measure_nodes
{
	my $number = quick(64, 16);
	my $registry = new_server('nodes_registry', 'shared_buffers' => "'64MB'", 'max_connections' => 200);
	my ($one, $all) = ('one server, ' . "$number times", "$number servers at once");

	figure(id => 'nodes', title => "$number servers take a node number from one registry", unit => 's',
		subjects => [ $one, $all ], references => [$one], absolute => 1);
	note('nodes', "Real servers on this machine, started together, with one registry: time from the first start until each has a node number, " .
		"against that of one server, times $number. Each then issues an id, and the $number node numbers in them are compared: they are distinct.");
	goal(figure => 'nodes', subject => $all, reference => $one, at_most => 1);

	# the registry issues no ids, and has no lease of its own
	$registry->stop;
	$registry->configure('shared_preload_libraries' => "''");
	$registry->start;
	$registry->sql('CREATE EXTENSION snowflake_registry');
	my ($dir, @nodes) = new_nodes($registry, $number);
	stop_nodes($registry);
	start_nodes($registry, @nodes);
	check_nodes($registry, $dir, @nodes);
	stop_nodes($registry, @nodes);

	each_round('nodes', sub {
		my ($run) = @_;

		sample('nodes', $one, undef, $run, $number * start_nodes($registry, $nodes[0]));
		check_nodes($registry, $dir, $nodes[0]);
		stop_nodes($registry, $nodes[0]);
	}, sub {
		my ($run) = @_;

		sample('nodes', $all, undef, $run, start_nodes($registry, @nodes));
		check_nodes($registry, $dir, @nodes);
		stop_nodes($registry, @nodes);
	});
	$registry->stop;
}

measure_sessions();
measure_layouts();
measure_registry();
measure_nodes();
finish();
