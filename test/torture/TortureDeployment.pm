# TortureDeployment.pm
#	  What the deployments have in common: layouts, settings, the extension, clients, and
#	  the history of leases.
#
#	  describe_deployments(%options)
#						to be called first: chooses what is random about them; options as of
#						TortureWorld
#						Each has a second layout, in snowflake.extra_layouts; to the checker
#						its ids are those of a deployment, servers and a history of leases of
#						their own, whose names end in +
#	  layout_text(NAME), worker_bits(NAME), max_ahead(NAME)
#	  settings(NAME, TEXT)
#						for a server of a deployment; TEXT is its own
#	  program_arguments(NAME)
#						for Program.java
#	  announce(NAME, DEPLOYMENT, TABLE...)
#						to the checker: a server that ids come from, and the names of the
#						histories of its leases.  TABLE:DEPLOYMENT: ids of these leases are of
#						that deployment, too
#	  make_leases(SERVER, LIMIT)
#						the extension snowflake_registry, with a table that notes every change of
#						a lease, and this limit for ends (by default 48 h: clocks differ by hours).
#						The statement SELECT torture.make_registry() makes the extension again
#						after it was dropped; the table has stayed
#	  create_extension(SERVER, LIMIT)
#						that and the extension snowflake, and the clients' table
#	  start_writers(SERVER, KIND...)
#						its clients, of these kinds or of all
#	  stop_writers(NAME)	those of a server
#	  dump_leases(SERVER, TABLE, NAME, FOR_GOOD)
#						writes the history that a server has to a file; NAME is SQL for the
#						name of a lease's server; FOR_GOOD: it is complete for ever.  False if
#						the server does not answer
package TortureDeployment;

use strict;
use warnings;

use Exporter 'import';
use Time::HiRes qw(sleep);
use TortureDirectory qw(as_user);
use TortureLog;
use TortureServer qw(launch title_of);

our @EXPORT = qw(announce create_extension describe_deployments dump_leases layout_text make_leases
  max_ahead program_arguments settings start_writers stop_writers worker_bits);

use constant EPOCH => '2024-01-01T00:00:00Z';
use constant EPOCH_US => 1_704_067_200_000_000;
use constant TICK_US => 1000;
# of the second layouts
use constant EXTRA_TICK_MS => 10;
use constant EXTRA_SEQUENCE => 6;

my (%option, %deployment);

sub layout_text
{
	my $d = $deployment{ $_[0] };

	my $clock = $d->{clock} ? ", clock $d->{clock}" : '';

	return $d->{sequence_first}
	  ? "timestamp 41, sequence $d->{sequence}, worker $d->{worker}$clock, tick 1ms, epoch " . EPOCH
	  : "timestamp 41, worker $d->{worker}, sequence $d->{sequence}, tick 1ms, epoch " . EPOCH;
}

# The second one: as many numbers, other ids.
sub extra_layout
{
	my ($deployment) = @_;

	return "timestamp 40, sequence @{[ EXTRA_SEQUENCE ]}, worker @{[ node_bits($deployment) ]}, tick @{[ EXTRA_TICK_MS ]}ms, epoch " . EPOCH;
}

sub node_bits
{
	my $d = $deployment{ $_[0] };

	return $d->{worker} + ($d->{clock} // 0);
}

sub worker_bits
{
	return $deployment{ $_[0] }{worker};
}

# In seconds.
sub max_ahead
{
	return $deployment{ $_[0] }{max_ahead} / 1000;
}

sub choose
{
	my ($sequence, $worker, $sequence_first, $lease) = @_;

	return {
		sequence => $sequence,
		worker => $worker,
		sequence_first => $sequence_first,
		lease => $lease,
		max_ahead => 100 * (1 + int rand 10),
		start => (qw(carried zero random))[ rand 3 ] };
}

sub mesh_bits
{
	my $programs = $option{count} * keys %{ $option{drivers} };
	my $bits = $option{programs} ? 5 : 4;

	# a killed one leaves its number behind for a while
	$bits++ while $option{programs} && 2**($bits - 1) < 1.2 * $programs + 14;
	return $bits;
}

# Everything that is random here depends on nothing but the seed.
sub describe_deployments
{
	%option = @_;
	%deployment = (
		# half of the numbers are automatic: not many more than there are servers and programs
		mesh => choose(6 + 2 * int(rand 4), mesh_bits(), 0, $option{lease}),
		mover => choose(8, 4, 0, $option{lease}),
		failover => choose(8, 4, 0, $option{lease}),
		pair => choose(8, 3, 0, $option{lease}),
		single => choose(10, 5, 1, $option{lease}));
	# its number moves on among several when the clock is set back
	$deployment{single}{clock} = 2 * int rand 2;
	foreach my $name (sort keys %deployment)
	{
		my $d = $deployment{$name};
		my $node_bits = node_bits($name);
		my ($node_shift, $sequence_shift) = $d->{sequence_first} ? (0, $node_bits) : ($d->{sequence}, 0);

		$d->{step} = 1 << $sequence_shift;
		log_world(join ' ', 'deployment', $name, $node_bits + $d->{sequence}, TICK_US, EPOCH_US,
			$node_shift, $node_bits, $sequence_shift, $d->{sequence});
		log_world(join ' ', 'deployment', "$name+", $node_bits + EXTRA_SEQUENCE, EXTRA_TICK_MS * 1000, EPOCH_US,
			0, $node_bits, $node_bits, EXTRA_SEQUENCE);
	}
}

# A server that ids come from, under its name in the checker's configuration.
sub announce
{
	my ($name, $deployment, @tables) = @_;

	foreach my $plus ('', '+')
	{
		my $tables = join ',', map { join ':', map { "$_$plus" } split /:/ } @tables;
		log_world("server $name$plus $deployment$plus $tables " . $deployment{$deployment}{max_ahead} * 1000);
	}
}

sub settings
{
	my ($deployment, $text) = @_;
	my $d = $deployment{$deployment};

	return <<"END" . $text;
shared_preload_libraries = 'snowflake'
snowflake.layout = '@{[ layout_text($deployment) ]}'
snowflake.extra_layouts = '@{[ extra_layout($deployment) ]}'
snowflake.lease_duration = '$d->{lease}s'
snowflake.max_ahead = '$d->{max_ahead}ms'
snowflake.sequence_start = '$d->{start}'
END
}

# As many ids as the writers of a server have: two threads get one at a time, one up to MOST.
sub program_arguments
{
	my ($deployment) = @_;
	my $d = $deployment{$deployment};

	return ('layout=' . layout_text($deployment), "lease=" . $d->{lease} * 1000, "max_ahead=$d->{max_ahead}", "start=$d->{start}",
		"step=$d->{step}", "rate=$option{rate}", 'most=100000');
}

# The log has a row for each lease that is granted here; its end, while it is open, is its number's.  A number whose
# ids end later without a lease was taken over, or restored, and that is an end for later leases.
sub make_leases
{
	my ($server, $limit) = @_;

	$server->sql(<<'END' =~ s/LIMIT_FOR_ENDS/$limit \/\/ '48 h'/er, seconds => 60) // die "cannot create the extension snowflake_registry\n";
SET client_min_messages = error;
-- the last one creates the type
SET check_function_bodies = off;
BEGIN;
CREATE SCHEMA torture;
CREATE TABLE torture.lease (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz, token uuid, name text, system_identifier bigint, timeline integer, port integer,
	node bigint, granted boolean, starts timestamptz, until timestamptz, state text);
CREATE FUNCTION torture.shift() RETURNS bigint LANGUAGE sql VOLATILE AS $$
	SELECT ('x' || string_agg(lpad(to_hex(get_byte(pg_read_binary_file('../shift'), i)), 2, '0'), '' ORDER BY i DESC))::bit(64)::bigint
	FROM generate_series(0, 7) AS i
$$;
-- the real time, not the server's
CREATE FUNCTION torture.now() RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
	shift bigint;
	at timestamptz;
BEGIN
	LOOP
		shift := torture.shift();
		at := clock_timestamp() - shift / 1000 * interval '1 microsecond';
		EXIT WHEN shift = torture.shift();
	END LOOP;
	RETURN at;
END $$;
-- of a row of the log; its type comes and goes with the extension
CREATE FUNCTION torture.record_lease(w jsonb, until timestamptz, state text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO torture.lease (at, token, name, system_identifier, timeline, port, node, granted, starts, until, state)
	VALUES (torture.now(), (w ->> 'token')::uuid, w ->> 'name', (w ->> 'system_identifier')::bigint, (w ->> 'timeline')::bigint,
		(w ->> 'port')::integer, (w ->> 'node_number')::bigint, true, (w ->> 'starts_at')::timestamptz, until, state)
$$;
CREATE FUNCTION torture.record() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	IF TG_OP = 'DELETE' THEN
		PERFORM torture.record_lease(to_jsonb(OLD), OLD.leased_until, 'deleted');
	ELSIF NEW.closed_at IS NOT NULL THEN
		PERFORM torture.record_lease(to_jsonb(NEW), NEW.leased_until, 'closed');
	ELSE
		PERFORM torture.record_lease(to_jsonb(NEW), n.leased_until, 'open') FROM snowflake.node_number AS n WHERE n.token = NEW.token;
	END IF;
	RETURN NULL;
END $$;
CREATE FUNCTION torture.record_number() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	IF NEW.token = OLD.token AND NEW.leased_until <> OLD.leased_until THEN
		PERFORM torture.record_lease(to_jsonb(w), NEW.leased_until, 'open') FROM snowflake.worker_node AS w WHERE w.token = NEW.token;
	END IF;
	IF NEW.token IS NOT DISTINCT FROM OLD.token AND NEW.ended_until > coalesce(OLD.ended_until, '-infinity') THEN
		INSERT INTO torture.lease (at, token, node, granted, until, state)
		VALUES (torture.now(), md5('taken over ' || NEW.node_number)::uuid, NEW.node_number, false, NEW.ended_until, 'closed');
	END IF;
	RETURN NULL;
END $$;
CREATE FUNCTION torture.make_registry() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	-- leases of one that was dropped are over
	INSERT INTO torture.lease (at, token, name, system_identifier, timeline, port, node, granted, starts, until, state)
	SELECT at, token, name, system_identifier, timeline, port, node, granted, starts, until, 'closed'
	FROM (SELECT DISTINCT ON (token) * FROM torture.lease ORDER BY token, n DESC) AS l WHERE state = 'open';
	CREATE EXTENSION snowflake_registry;
	UPDATE snowflake.registry SET end_limit = 'LIMIT_FOR_ENDS';
	CREATE TRIGGER record AFTER INSERT OR UPDATE OR DELETE ON snowflake.worker_node
		FOR EACH ROW EXECUTE FUNCTION torture.record();
	CREATE TRIGGER record AFTER INSERT OR UPDATE ON snowflake.node_number
		FOR EACH ROW EXECUTE FUNCTION torture.record_number();
END $$;
SELECT torture.make_registry();
COMMIT;
END
}

# The writers use two databases; the table is there for one of the kinds.  Their own commits
# neither wait for a standby nor write WAL to disk: what is durable of a lease is what its
# own transaction has made so.
sub create_extension
{
	my ($server, $limit) = @_;

	make_leases($server, $limit);
	$server->sql('SET client_min_messages = error; CREATE EXTENSION snowflake', seconds => 60)
	  // die "cannot create the extension snowflake\n";
	$server->sql('CREATE DATABASE app', seconds => 60) // die "cannot create a database\n";
	$server->sql(<<'END', database => 'app', seconds => 60) // die "cannot create the table\n";
SET client_min_messages = error;
CREATE EXTENSION snowflake;
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n integer);
ALTER DATABASE app SET synchronous_commit = off;
END
}

sub start_writers
{
	my ($server, @kinds) = @_;
	my $name = $server->{name};
	my $deployment = $server->{deployment};
	my $connection =
	  "host=$option{sockets} port=$server->{port} user=postgres connect_timeout=30 dbname=";

	# kind, database, ids a second, most ids a statement
	foreach my $writer (
		[ 'single', 'postgres', 400, 1 ],
		[ 'single', 'app', 200, 1 ],
		[ 'insert', 'app', 500, 30 ],
		[ 'batch', 'postgres', $option{rate}, 100_000 ],
		[ 'extra', 'app', 400, 50 ])
	{
		my ($kind, $database, $rate, $most) = @$writer;
		next if @kinds && !grep { $_ eq $kind } @kinds;
		my $log = "$option{out}/ids/$name.$kind.$database";
		my $extra = $kind eq 'extra';
		my $step = $extra ? 1 << node_bits($deployment) : $deployment{$deployment}{step};

		log_world("log $log $name" . ($extra ? '+' : '') . " $kind") if !-e $log;
		launch("$option{out}/writers.log",
			as_user("$option{torture}/writer", $connection . $database, $kind, $log, $step, $rate, $most,
				1 + int rand 2**31, $extra ? extra_layout($deployment) : ()));
	}
}

sub stop_writers
{
	my ($name) = @_;
	my $logs = "$option{out}/ids/$name.";

	foreach my $signal (qw(TERM KILL))
	{
		# a client needs up to ten seconds for the statement at hand
		for (1 .. 120)
		{
			my @pids = grep { index(title_of($_), $logs) >= 0 }
			  map { m{(\d+)} } glob '/proc/[0-9]*';
			return if !@pids;
			kill $signal => @pids;
			sleep 0.1;
		}
	}
}

# A row's number is that of its first version.
sub dump_leases
{
	my ($server, $table, $name, $for_good) = @_;
	my $as_of = $for_good ? '-' : now();
	my $lines = $server->sql(<<"END", seconds => 20) // return 0;
SELECT concat_ws(' ', 'lease', '$table', $name, node, min(n) OVER (PARTITION BY token),
	(extract(epoch FROM at) * 1000000)::bigint,
	CASE WHEN first_value(granted) OVER (PARTITION BY token ORDER BY n)
		THEN (extract(epoch FROM starts) * 1000000)::bigint::text ELSE '-' END,
	(extract(epoch FROM until) * 1000000)::bigint, state)
FROM torture.lease ORDER BY n
END
	my $file_name = "$option{out}/leases.$table";

	open my $file, '>', "$file_name.$$" or die "$file_name: $!\n";
	print $file "leases $table $as_of\n$lines\n";
	# the same for the ids of the second layout
	$lines =~ s/^lease (\S+) (\S+)/lease $1+ $2+/mg;
	print $file "leases $table+ $as_of\n$lines\n";
	close $file;
	rename "$file_name.$$", $file_name or die "$file_name: $!\n";
	return 1;
}

1;
