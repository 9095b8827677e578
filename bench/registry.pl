# registry.pl
#	  What a registry costs with 64, 500 and 1,000 nodes: the processor time of a grant and of a
#	  renewal, by all processes of its server, and how many there are in a second.  Without
#	  history, and with 100,000 leases that are over, of all numbers there are.
#
# pgbench speaks the public protocol in the place of nodes: for each call a connection of its
# own, as a node makes it.  Each node has its own start and token, and numbers its calls.
# What it cannot do is remember the token of a grant: so the rows get known ones afterwards.
use strict;
use warnings;

use Time::HiRes qw(time);

use Bench;

my $bits = 12;		# half of the numbers, 2,047, can be leased at a time
my $layout = "timestamp 41, worker $bits, sequence 10, tick 1ms, epoch 2024-01-01T00:00:00Z";
my $history = quick(100_000, 20_000);
my @sizes = quick(1, 0) ? (64, 500, 1000) : (64);
my %clients = (64 => 32, 500 => 50, 1000 => 50);
my @kinds = ('grant', 'renewal');
my @servers = map { new_registry(@$_) } [ 'empty', '', 0 ], [ 'history', ", $history rows of history", $history ];
my @subjects = map { my $server = $_; map { "$_$server->{what}" } @kinds } @servers;

figure(id => 'cpu', title => 'Processor time of a call', unit => 'us', absolute => 1, x => 'nodes', subjects => \@subjects,
	references => ['nodes = 64']);
note('cpu', 'Of all processes of the registry\'s server, a new connection for each call included.  '
	  . "Layout with $bits node bits; with history, each number was leased before.");
figure(id => 'rate', title => 'Calls in a second', unit => 'calls', absolute => 1, x => 'nodes', subjects => \@subjects);
note('rate', '32 or 50 calls at a time; pgbench runs on the same processors.  All grants together are a start of all nodes at once.');
figure(id => 'size', title => 'Size of a row of worker_node, with its indexes', unit => 'bytes', absolute => 1,
	subjects => ['row']);

# Few rounds do: most of what a call costs is processor time.
each_round('registry', map { my $size = $_; map { my $server = $_; sub { measure($server, $size, $_[0]) } } @servers } @sizes);
finish();

sub new_registry
{
	my ($name, $what, $rows) = @_;
	my $server = new_server("registry_$name", 'shared_preload_libraries' => "''", 'shared_buffers' => "'256MB'");

	$server->sql('CREATE EXTENSION snowflake_registry');
	my $numbers = 2**$bits - 1;
	my $definition = $server->sql("SELECT definition FROM snowflake_layout('$layout')");
	$server->sql(<<END);
INSERT INTO snowflake.worker_node (token, start, granted_by, last_call, kind, system_identifier, host_name, port, timeline,
	incarnation, generation, fixed, node_number, worker_id, layout, greatest_id, launched_at, starts_at, leased_until, renewed_at, closed_at)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 2, 'server', n, 'db.example', 5432, 1, r.incarnation, r.generation, false,
	n % $numbers, n % $numbers, '$definition', n, began, began, began + '2 min', began, began + '2 min'
FROM snowflake.registry AS r, generate_series(1, $rows) AS n, LATERAL (SELECT '2024-01-01Z'::timestamptz + n * interval '3 min') AS l (began)
END
	$server->sql('VACUUM ANALYZE snowflake.worker_node');
	my $object = qq({"definition": "$definition", "epoch": 1704067200000000, "tick": 1000, )
	  . qq("fields": [["timestamp", 41], ["worker", $bits], ["sequence", 10]]});
	my $node = qq("protocol": 1, "start": "00000000-0000-4000-8000-:node", "layout": $object, "clock": :clock, "window": 120000000);
	my $settings = <<'END';
\set k :k + 1
\set node 100000000000 + :k % :each * :clients + :client_id
\set clock :base + :k * 100000
END
	$server->{grant} = $server->script('grant.sql', $settings . <<END);
SELECT 1 / (snowflake.acquire_lease(jsonb '{$node, "call": 1, "layout_set": true, "kind": "server", "host_name": "node", "port": 5432, "system_identifier": :node, "timeline": 1, "launched_at": :base, "max_ahead": 1000000, "tick": 1000, "first_number": 0, "last_number": ${\ ($numbers - 1)}, "fixed": false}') ->> 'answer' = 'yes')::int;
END
	$server->{renewal} = $server->script('renewal.sql', $settings . <<END);
\\set call 2 + :k / :each
SELECT 1 / (snowflake.renew_lease(jsonb '{$node, "call": :call, "lease": {"token": "00000000-0000-4000-9000-:node", "granted_by": 1}}') ->> 'answer' = 'yes')::int;
END
	$server->{what} = $what;
	$server->{rows} = $rows;
	return $server;
}

# Each of $size nodes makes $each_calls calls, one after another; all nodes at the same time.
sub calls
{
	my ($server, $kind, $size, $run, $each_calls) = @_;
	my $clients = $clients{$size};
	my $each = $size / $clients;
	my $before = $server->processor_time;
	my $began = time;

	$server->pgbench('-C', '-c', $clients, '-j', 2, '-t', $each * $each_calls, '-D', 'k=-1', '-D', "each=$each", '-D', "clients=$clients",
		'-D', sprintf('base=%.0f', ($began + 1) * 1e6), '-f', $server->{$kind});
	my $calls = $size * $each_calls;
	progress("$size nodes, $kind$server->{what}: round $run of $Bench::runs");
	sample('rate', "$kind$server->{what}", $size, $run, $calls / (time - $began));
	sample('cpu', "$kind$server->{what}", $size, $run, ($server->processor_time - $before) / $calls * 1e6);
}

sub measure
{
	my ($server, $size, $run) = @_;
	my $open = "FROM snowflake.worker_node WHERE host_name = 'node' AND closed_at IS NULL";

	$server->sql('CHECKPOINT');
	calls($server, 'grant', $size, $run, 1);
	my $seen = $server->sql("SELECT count(DISTINCT node_number), count(DISTINCT start) $open");
	die "leases and starts: $seen" if $seen ne "$size|$size";
	$server->sql("UPDATE snowflake.worker_node SET token = overlay(start::text PLACING '9' FROM 20)::uuid WHERE host_name = 'node'");
	my $rounds = $size < 500 ? 8 : 1;
	calls($server, 'renewal', $size, $run, $rounds);
	$seen = $server->sql("SELECT count(*) $open AND last_call = $rounds + 1");
	die "$seen leases are renewed" if $seen != $size;
	sample('size', 'row', undef, $run, $server->sql("SELECT pg_total_relation_size('snowflake.worker_node')") / $server->{rows})
	  if $server->{rows} && $size == $sizes[-1];
	$server->sql("DELETE FROM snowflake.worker_node WHERE host_name = 'node'");
	$server->sql('VACUUM snowflake.worker_node');
}
