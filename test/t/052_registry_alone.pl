# 052_registry_alone.pl
#	  The extension snowflake_registry on servers that have nothing else of ours: an asynchronous
#	  standby that lacks grants and renewals is promoted while the primary lives, and nodes ask
#	  either; a third generation has the first one's numbers; a backup is restored; a dump is; pg_upgrade; a
#	  move to another registry, by the blocks of doc/operations.md.  No two nodes ever have one number
#	  for the same time.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeNode;
use SnowflakeReadme;
use SnowflakeRegistry qw(guards);
use Cwd qw(getcwd);
use Time::HiRes qw(time usleep);

srand(my $seed = $ENV{SEED} // time);
note "SEED=$seed";

sub new_server
{
	my ($name, %options) = @_;
	my $server = new_node($name, preload => 0, start => 0, %options);

	$server->start;
	return $server;
}

sub new_registry
{
	my ($name, %options) = @_;
	my $server = new_server($name, %options);

	$server->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry');
	# leases are of 3 s
	limit_leases($server, '10 s');
	add_caller($server);
	return $server;
}

sub new_standby
{
	my ($primary, $name) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->safe_psql('postgres', 'ALTER SYSTEM RESET primary_conninfo');	# see cut()
	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->start;
	return $standby;
}

# What the standby gets no more is lost when it is promoted.
sub cut
{
	my ($standby) = @_;

	$standby->safe_psql('postgres', "ALTER SYSTEM SET primary_conninfo = ''");
	$standby->reload;
	poll('the end of the stream', sub { $standby->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_wal_receiver') eq '0' });
}

sub of_registry
{
	my ($server, $columns) = @_;

	return $server->safe_psql('postgres', "SELECT $columns FROM snowflake.registry");
}

my %answers;

# Nodes ask the servers at random for some seconds, and until enough has been answered.  Each goes on with its
# lease after a refusal, to its end.
sub play
{
	my ($seconds, $nodes, $enough, @servers) = @_;
	my $end = time + $seconds;
	my $last = $end + $PostgreSQL::Test::Utils::timeout_default;

	while (time < $end || !$enough->() && time < $last)
	{
		my $node = $nodes->[ rand @$nodes ];
		my $server = $servers[ rand @servers ];
		my $chance = rand;
		my $answer;

		$node->crash if $chance < 0.05;
		$node->seal if $chance > 0.9;
		$answer = $node->{lease} ? $node->renew($server) : $node->acquire($server);
		$answer = $node->acquire($server) if ($answer->{answer} // '') eq 'no' && $answers{ join ' ', $server->name, $answer->{reason} }++ > -1;
		my $what = refusal($answer);
		# for a moment after a promotion a renewal is refused: there would be no other lease yet
		die $what if $what !~ /^(?:yes|no)$|^53400: no node number is free|^55000: the lease is of an earlier generation of the registry/;
		$answers{ $server->name . ' ' . ($what =~ s/:.*//sr) }++;
	}
}

#
# A failover that loses grants and renewals; the primary lives
#
my $primary = new_registry('primary', init => [ allows_streaming => 1 ]);
$primary->safe_psql('postgres', "UPDATE snowflake.registry SET created_at = created_at - interval '1 min'");
$primary->backup('early');
my @nodes = map { SnowflakeNode->new($_) } 1 .. 5;
$_->acquire($primary) foreach @nodes[ 0 .. 1 ];
my $standby = new_standby($primary, 'standby');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
like($nodes[2]->acquire($standby)->{error}, qr/^ERROR:  25006: the registry is a hot standby\n/, 'a standby grants nothing');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM snowflake.leases'), 2, 'it shows leases');
cut($standby);
# at least this one
$nodes[2]->acquire($primary);
play(1, \@nodes, sub { 1 }, $primary);
$standby->promote;
my ($before, $rows) = map { $_->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node') } $standby, $primary;
cmp_ok($before, '<', $rows, 'the standby is some leases behind');
play(8, \@nodes, sub { ($answers{'standby generation'} // 0) > 0 && !grep { ($answers{"$_ yes"} // 0) <= 5 } 'primary', 'standby' },
	$primary, $standby);
is(join("\n", overlaps(@nodes)), '', 'two writable registries: no number twice at a time');
# 19 has no other strings any more
my $set = $standby->safe_psql('postgres', 'SHOW server_version_num') < 190000 ? 'SET standard_conforming_strings = off;' : '';
is($standby->safe_psql('postgres', "$set SELECT cardinality(snowflake.timeline_history(split_part(snowflake.this_server(), '/', 2)))"), 1,
	'the history is read, whatever a session has set');
is(of_registry($primary, 'generation, counted'), '1|{}', 'the old one: first generation');
like(of_registry($standby, 'generation, counted, counted_at > created_at'), qr/^2\|\{1\/0\/[0-9A-F]+\}\|t$/, 'the new one: second generation');
is(guards($standby), '', 'it is a plain promotion');
is($primary->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE node_number % 2 = 1'), 0, 'the old one grants even numbers');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE node_number % 2 = 0 AND generation = 2'), 0, 'the new one odd ones');
is($standby->safe_psql('postgres', "SELECT bool_and(w.starts_at >= r.counted_at + interval '1 s') FROM snowflake.worker_node AS w, snowflake.registry AS r WHERE w.generation = 2"),
	't', 'and they start after the count');
cmp_ok($answers{'standby generation'} // 0, '>', 0, 'leases of the generation before, whether it has them or not: no');
cmp_ok($answers{"$_ yes"}, '>', 5, "$_: grants and renews") foreach 'primary', 'standby';
note join ', ', map { "$_: $answers{$_}" } sort keys %answers;
# a lease that both have, of the first generation: the new one does not renew it
my $node = SnowflakeNode->new(6);
my $other = new_standby($primary, 'other');
# it lasts until the other one is promoted
limit_leases($primary, '1 min');
$node->acquire($primary, window => 60_000_000);
$primary->wait_for_catchup($other, 'replay', $primary->lsn('insert'));
cut($other);
$other->promote;
my $until = $node->{lease}{until};
like(refusal($node->renew($other)), qr/^55000: the lease is of an earlier generation of the registry\nDETAIL:  New ones start at \S+ \S+; .*\nHINT:  No action is needed/,
	'a lease of the generation before, and new ones start later: refused');
poll('a no', sub { $node->renew($other)->{answer} eq 'no' });
pass('then no');
is($other->safe_psql('postgres', "SELECT snowflake.microseconds(leased_until) FROM snowflake.node_number WHERE start = '$node->{start}'"), $until, 'its end stays');
my $answer = $node->acquire($other);
cmp_ok($answer->{starts_at}, '>=', $node->{ids_end_at}, 'the next lease starts after its ids');
is($answer->{node_number} % 2, 1, 'with an odd number');
$other->stop('immediate');

#
# A third generation has the first one's numbers: the old primary is stopped, its leases are over (A3).
#
my $third = new_standby($standby, 'third');
$primary->stop('immediate');
$standby->wait_for_catchup($third, 'replay', $standby->lsn('insert'));
cut($third);
play(1, \@nodes, sub { 1 }, $standby);
# the longest window
poll('all leases of the first generation to be over', sub { of_registry($standby, "counted_at + interval '20 s' < clock_timestamp()") eq 't' });
$third->promote;
$nodes[0]->crash;

# The history file tells of the promotion.
my $history = $third->data_dir . '/pg_wal/00000003.history';
rename $history, "$history.away" or die "rename: $!";
like(refusal($nodes[0]->acquire($third)), qr/^55000: could not find the history of timeline 3\nDETAIL:  The file "pg_wal\/00000003.history" .*\nHINT:  Put it back/,
	'no history file: refused');
append_to_file($history, "1\tnonsense\n");
like(refusal($nodes[0]->acquire($third)), qr/^55000: could not find the history/, 'a broken one: refused');
is(of_registry($third, 'generation, cardinality(counted)'), '2|1', 'nothing is counted meanwhile');
unlink $history;
# A restore point's name may be in any encoding.
append_to_file($history, slurp_file("$history.away") =~ s/\n$/ \xe9\xff\n/r);
is(refusal($nodes[0]->acquire($third)), 'yes', 'a history with other letters');
play(4, \@nodes, sub { 1 }, $standby, $third);
is(join("\n", overlaps(@nodes)), '', 'the third generation: no number twice at a time');
is(of_registry($third, 'generation, cardinality(counted)'), '3|2', 'it is the third');
is(guards($third), '', 'after the longest window leases wait for nothing');
cmp_ok($third->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE node_number % 2 = 0 AND generation = 3'), '>', 0,
	'it grants even numbers again');
$standby->stop('immediate');

#
# A backup is restored: recovery ends with a new timeline.
#
my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'early');
$restored->append_conf('postgresql.conf', "restore_command = 'false'\nrecovery_target_action = 'promote'");
$restored->set_recovery_mode;
$restored->start;
poll('the end of recovery', sub { $restored->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 'f' });
my $returning = SnowflakeNode->new(7);
$answer = $returning->acquire($restored);
is(join('|', $answer->{generation}, $answer->{node_number} % 2), '2|1', 'restored: another generation, odd numbers');
is(of_registry($restored, q{counted_at + interval '1 s' = } . "snowflake.time_of($answer->{starts_at})"), 't', 'it starts after the count');
$restored->stop('immediate');

#
# A dump is restored, into a server without the extension and into one with a record of its own.
#
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$third->safe_psql('postgres', "UPDATE snowflake.cluster SET uses = 'own'");
$third->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'pg_dump');
my $ends = 'SELECT node_number, greatest(ended_until, leased_until) FROM snowflake.node_number ORDER BY 1';
my $log = 'SELECT count(*), md5(string_agg(token::text, chr(10) ORDER BY token)) FROM snowflake.worker_node';
my ($all_ends, $all) = map { $third->safe_psql('postgres', $_) } $ends, $log;
my $copy = new_server('copy', init => [ allows_streaming => 1 ]);
$copy->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-f', $dump, 'postgres' ], 'it is restored');
is($copy->safe_psql('postgres', $ends), $all_ends, 'the ends of all numbers are there');
is($copy->safe_psql('postgres', $log), $all, 'and all leases');
is($copy->safe_psql('postgres', 'SELECT count(*) FROM snowflake.node_number WHERE token IS NOT NULL'), 0, 'which are over there');
is($copy->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster'), 'own', 'and the record');
isnt(of_registry($copy, 'incarnation'), of_registry($third, 'incarnation'), 'it is another registry');
my $late = SnowflakeNode->new(8);
my ($greatest, $end) = split /\|/, $copy->safe_psql('postgres',
	'SELECT node_number, snowflake.microseconds(ended_until) FROM snowflake.node_number WHERE node_number < 15 ORDER BY ended_until DESC LIMIT 1');
$answer = $late->acquire($copy, first_number => $greatest + 0, last_number => $greatest + 0, fixed => JSON::PP::true);
cmp_ok($answer->{starts_at} // 0, '>=', $end, 'a lease starts after the ends of the dump');
my ($out, $error) = ('', '');
my $recorded = new_server('recorded');
$recorded->safe_psql('postgres', "CREATE EXTENSION snowflake_registry; INSERT INTO snowflake.cluster VALUES (true, 'another', gen_random_uuid())");
$recorded->command_ok([ 'psql', '-XqAt', '-f', $dump, 'postgres' ], 'restored where there is a record');
is($recorded->safe_psql('postgres', 'SELECT uses, layout FROM snowflake.cluster'), 'another|' . $third->safe_psql('postgres', 'SELECT layout FROM snowflake.cluster'),
	'a record of its own is kept, and gets the layout');
$recorded->stop;

#
# pg_upgrade: generation and leases stay; no timeline history comes along, but the system identifier is another one.
#
my $upgraded = new_node('upgraded', preload => 0, start => 0);
my $bin = $third->config_data('--bindir');
$node = SnowflakeNode->new(9);
$node->acquire($third);
$third->stop;
my $here = getcwd();
chdir PostgreSQL::Test::Utils::tempdir() or die "chdir: $!";
command_ok([ 'pg_upgrade', '--no-sync', '-d', $third->data_dir, '-D', $upgraded->data_dir, '-b', $bin, '-B', $bin,
	'-s', $upgraded->host, '-p', $third->port, '-P', $upgraded->port ], 'pg_upgrade');
chdir $here or die "chdir: $!";
$upgraded->start;
is($node->renew($upgraded)->{reason}, 'closed', 'upgraded: no lease goes on, as the server may be a promoted one');
is($node->acquire($upgraded)->{answer}, 'yes', 'and the node gets another one');
is(of_registry($upgraded, "generation, cardinality(counted), counted_at > now() - interval '1 min', split_part(server, '/', 1) = (SELECT system_identifier::text FROM pg_control_system())"),
	'3|2|t|t', 'the generation stays, the time is stored');

#
# A move, by "Another registry" in doc/operations.md.  A standby that lags makes a warning.
#
my @steps = grep { $_->{section} eq 'Another registry' } read_document("$FindBin::RealBin/../../doc/operations.md");
my ($close, $take_over, @more) = map { $_->{text} } grep { $_->{kind} eq 'code' && $_->{language} eq 'sh' } @steps;

is("@more", '', 'the document has two commands');
my $lagging = new_standby($copy, 'lagging');
my ($new, $old) = map { of_registry($_, 'incarnation') } $copy, $upgraded;
my %server = (OLD => $upgraded, NEW => $copy);
s/\bpsql (-\S+) (OLD|NEW)\b/$server{$2}->installed_command('psql') . " $1 '" . $server{$2}->connstr('postgres') . "'"/ge foreach $close, $take_over;
is(`$close`, "\n", 'closed');
like(refusal($node->renew($upgraded)), qr/^55000: the registry is closed\n/, 'closed: refused');
ok($node->{lease}, 'with which a node goes on');
like(refusal($node->acquire($copy, uses => $old)), qr/^55000: the registry is not the one that the node's ids were issued with\n/, 'not taken over yet: refused');
is(`$take_over`, "$new\n", 'taken over');
is(`$take_over`, "$new\n", 'again');
like(of_registry($copy, 'taken_over'), qr/\Q$old\E/, 'it is recorded');
$answer = $node->acquire($copy, uses => $old);
is($answer->{incarnation}, $new, 'the node has its next lease from there');
is(join("\n", overlaps(@nodes, $node)), '', 'no number twice at a time');
# by signal: the walreceiver is frozen, so that it flushes nothing
my $receiver = $lagging->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver');
kill 'STOP', $receiver;
$copy->safe_psql('postgres', sprintf "SELECT snowflake.close_registry('%s')", $upgraded->safe_psql('postgres', 'SELECT snowflake.successor()'));
(undef, $out, $error) = $copy->psql('postgres', 'SELECT snowflake.closed_registry()');
like($error, qr/WARNING:  not all standbys have what was done here\nDETAIL:  Standbys that have not flushed it: "lagging"\./, 'a standby lags: warned');
kill 'CONT', $receiver;
my $again;
is(settle('', sub { (undef, $again, $error) = $copy->psql('postgres', 'SELECT snowflake.closed_registry()'); $error }), '', 'it has caught up: not warned');
is($again, $out, 'the same each time');

done_testing();
