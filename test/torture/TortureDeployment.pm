# TortureDeployment.pm
#	  What the deployments have in common: layouts, settings, the extension, clients, and
#	  the history of leases.
#
#	  describe_deployments(%options)
#						to be called first: chooses what is random about them; options as of
#						TortureWorld
#						Each has a second layout, of a named generator; to the checker its
#						ids are those of a deployment, servers and a history of leases of
#						their own, whose names end in +
#	  layout_text(NAME), worker_bits(NAME)
#	  settings(NAME, TEXT)
#						for a server of a deployment; TEXT is its own
#	  announce(NAME, DEPLOYMENT, TABLE)
#						to the checker: a server that ids come from, and the name of the
#						history of its leases
#	  create_extension(SERVER)
#						with a table that notes every change of a lease, and the clients' table
#	  start_writers(SERVER)
#						its clients
#	  stop_writers(NAME)	those of a server
#	  dump_leases(SERVER, TABLE, HOLDER)
#						writes the history that a server has to a file; HOLDER is SQL for the
#						name of a lease's server.  False if the server does not answer
package TortureDeployment;

use strict;
use warnings;

use Exporter 'import';
use Time::HiRes qw(sleep);
use TortureDirectory qw(as_user);
use TortureLog;
use TortureServer qw(launch title_of);

our @EXPORT = qw(announce create_extension describe_deployments dump_leases layout_text settings
  start_writers stop_writers worker_bits);

use constant EPOCH => '2024-01-01T00:00:00Z';
use constant EPOCH_US => 1_704_067_200_000_000;
use constant TICK_US => 1000;
# of generators
use constant GENERATOR_TICK_MS => 10;
use constant GENERATOR_SEQUENCE => 6;

my (%option, %deployment);

sub layout_text
{
	my $d = $deployment{ $_[0] };

	my $clock = $d->{clock} ? ", clock $d->{clock}" : '';

	return $d->{sequence_first}
	  ? "timestamp 41, sequence $d->{sequence}, worker $d->{worker}$clock, tick 1ms, epoch " . EPOCH
	  : "timestamp 41, worker $d->{worker}, sequence $d->{sequence}, tick 1ms, epoch " . EPOCH;
}

# The generator's: as many numbers, other ids.
sub generator_layout
{
	my ($deployment) = @_;

	return "timestamp 40, sequence @{[ GENERATOR_SEQUENCE ]}, worker @{[ node_bits($deployment) ]}, tick @{[ GENERATOR_TICK_MS ]}ms, epoch " . EPOCH;
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

# Everything that is random here depends on nothing but the seed.
sub describe_deployments
{
	%option = @_;
	%deployment = (
		mesh => choose(6 + 2 * int(rand 4), (2, 3, 3)[ rand 3 ], 0, $option{lease}),
		pair => choose(8, 4, 0, $option{lease}),
		# a long one, so that only the state file can tell where its ids ended
		single => choose(10, 5, 1, 20));
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
		log_world(join ' ', 'deployment', "$name+", $node_bits + GENERATOR_SEQUENCE, GENERATOR_TICK_MS * 1000, EPOCH_US,
			0, $node_bits, $node_bits, GENERATOR_SEQUENCE);
	}
}

# A server that ids come from, under its name in the checker's configuration.
sub announce
{
	my ($name, $deployment, $table) = @_;

	log_world("server $name$_ $deployment$_ $table$_ " . $deployment{$deployment}{max_ahead} * 1000) foreach '', '+';
}

sub settings
{
	my ($deployment, $text) = @_;
	my $d = $deployment{$deployment};

	return <<"END" . $text;
shared_preload_libraries = 'snowflake'
snowflake.layout = '@{[ layout_text($deployment) ]}'
snowflake.lease_duration = '$d->{lease}s'
snowflake.max_ahead = '$d->{max_ahead}ms'
snowflake.sequence_start = '$d->{start}'
END
}

# The writers draw in two databases; the table is there for one of the kinds.
sub create_extension
{
	my ($server) = @_;

	$server->sql(<<'END', seconds => 60) // die "cannot create the extension\n";
SET client_min_messages = error;
BEGIN;
CREATE EXTENSION snowflake;
CREATE SCHEMA torture;
CREATE TABLE torture.lease (n bigint GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT clock_timestamp(),
	id bigint, port integer, timeline integer, node bigint, until timestamptz, state text);
CREATE FUNCTION torture.record() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	r snowflake.worker_node;
BEGIN
	IF TG_OP = 'DELETE' THEN r := OLD; ELSE r := NEW; END IF;
	INSERT INTO torture.lease (id, port, timeline, node, until, state)
	VALUES (r.id, r.port, r.timeline, r.node_number, r.leased_until,
		CASE WHEN TG_OP = 'DELETE' THEN 'deleted' WHEN r.released_at IS NULL THEN 'open' ELSE 'released' END);
	RETURN NULL;
END $$;
CREATE TRIGGER record AFTER INSERT OR UPDATE OR DELETE ON snowflake.worker_node
FOR EACH ROW EXECUTE FUNCTION torture.record();
COMMIT;
END
	$server->sql('CREATE DATABASE app', seconds => 60) // die "cannot create a database\n";
	# the registry's own server is of no deployment: nobody draws there
	my $generator = $server->{deployment}
	  ? "SELECT snowflake_create_generator('web', '" . generator_layout($server->{deployment}) . "');" : '';

	$server->sql(<<"END", database => 'app', seconds => 60) // die "cannot create the table\n";
SET client_min_messages = error;
CREATE EXTENSION snowflake;
$generator
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n integer);
ALTER DATABASE app SET synchronous_commit = local;
END
}

sub start_writers
{
	my ($server) = @_;
	my $name = $server->{name};
	my $connection =
	  "host=$option{sockets} port=$server->{port} user=postgres connect_timeout=30 dbname=";

	# kind, database, ids a second, most ids a statement; a generator's are of another layout
	foreach my $writer (
		[ 'single', 'postgres', 400, 1 ],
		[ 'single', 'app', 200, 1 ],
		[ 'insert', 'app', 500, 30 ],
		[ 'batch', 'postgres', $option{rate}, 100_000 ],
		[ 'generator', 'app', 400, 50 ])
	{
		my ($kind, $database, $rate, $most) = @$writer;
		my $log = "$option{out}/ids/$name.$kind.$database";
		my $server_of_ids = $kind eq 'generator' ? "$name+" : $name;
		my $step = $kind eq 'generator' ? 1 << node_bits($server->{deployment}) : $deployment{ $server->{deployment} }{step};

		log_world("log $log $server_of_ids $kind") if !-e $log;
		launch("$option{out}/writers.log",
			as_user("$option{torture}/writer", $connection . $database, $kind, $log, $step, $rate, $most,
				1 + int rand 2**31));
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

sub dump_leases
{
	my ($server, $table, $holder) = @_;
	my $as_of = now();
	my $lines = $server->sql("SELECT concat_ws(' ', 'lease', '$table', $holder, node, id,
			(extract(epoch FROM at) * 1000000)::bigint, (extract(epoch FROM until) * 1000000)::bigint, state)
		FROM torture.lease ORDER BY n", seconds => 2) // return 0;
	my $name = "$option{out}/leases.$table";

	open my $file, '>', "$name.$$" or die "$name: $!\n";
	print $file "leases $table $as_of\n$lines\n";
	# the same for the ids of generators
	$lines =~ s/^lease (\S+) (\S+)/lease $1+ $2+/mg;
	print $file "leases $table+ $as_of\n$lines\n";
	close $file;
	rename "$name.$$", $name or die "$name: $!\n";
	return 1;
}

1;
