# 037_generators.pl
#	  Generators with layouts of their own on one server: its node number moves to one that
#	  fits all, or stays if there is none; restarts and crashes; all words taken; numbers
#	  that do not fit; other databases, dumps; sessions that drew before a change.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeLocal;

use constant TINY => 'timestamp 41, worker 3, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z';

sub drawers_of
{
	my ($node, $generator, $count) = @_;

	return start_drawers($node, count => $count // 2, sql => "SELECT snowflake_nextval('$generator') FROM generate_series(1, 20);\n"
		  . "SELECT snowflake_nextval_batch(30, '$generator');");
}

sub create
{
	my ($node, $name, $layout, $database) = @_;

	$node->safe_psql($database // 'postgres', "SELECT snowflake_create_generator('$name', '$layout')");
}

# A column of the row of one layout, told by the name of a generator.
sub stat_of_generator
{
	my ($node, $name, $columns) = @_;

	return $node->safe_psql('postgres', "SELECT $columns FROM pg_stat_snowflake WHERE '$name' = ANY (generators)");
}

#
# A number that is too great for a new layout is exchanged for one that fits, while others
# go on drawing.
#
my $node = auto_node('main', conf => "snowflake.max_layouts = 4\n");
$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake');
foreach (0 .. 7)
{
	draw($node, 1);
	$node->safe_psql('postgres', 'SELECT snowflake_release()');
}
draw($node, 1);
is(stat_of($node, 'node_number'), 16, 'the number is none of the first ones');
my $twitter = start_drawers($node, count => 2);
$twitter->wait_for(500);
create($node, 'tiny', TINY);
is(stat_of($node, 'node_number'), 16, 'created: nothing moves before somebody draws');
my $tiny = drawers_of($node, 'tiny');
$tiny->wait_for(500);
$twitter->wait_for(500);
like(stat_of_generator($node, 'tiny', 'state, node_number'), qr/^ready\|[0-3]$/, 'a draw moves the server to a number that fits');
is(stat_of($node, 'count(DISTINCT node_number)'), 1, 'the same for both layouts');
is($node->safe_psql('postgres', <<'SQL'), 't', 'the old number was given back with the end of its ids');
SELECT released_at IS NOT NULL AND leased_until < released_at + '2 s' FROM snowflake.worker_node WHERE node_number = 16
SQL
my @twitter = $twitter->stop;
my @tiny = $tiny->stop;
is($twitter->errors . $tiny->errors, '', 'nobody has noticed');
check_ids('moved, twitter', split_ids(12, 1023, @twitter));
check_ids('moved, tiny', @tiny);
check_covered('moved', $node, 'postgres', 12, 1023, @twitter);

#
# If there is none that fits and is free, the others go on with the number they have.
#
$node->safe_psql('postgres', 'SELECT snowflake_drop_generator($$tiny$$)');
$node->restart;
$node->safe_psql('postgres', <<'SQL');
INSERT INTO snowflake.worker_node (token, incarnation, node_number, worker_id, host_name, port, system_identifier, timeline,
	layout, launched_at, renewed_at, leased_until)
SELECT gen_random_uuid(), incarnation, n, n, 'other', 1, 1, 1, layout, now(), now(), now() + '1 h'
FROM snowflake.registry, generate_series(0, 6) AS n
SQL
draw($node, 1);
my $number = stat_of($node, 'node_number');
cmp_ok($number, '>', 6, 'no number of the first ones is free');
create($node, 'tiny', TINY);
$twitter = start_drawers($node, count => 2);
$twitter->wait_for(200);
my $error;
poll('the reason', sub {
		($error = sql_error($node, q{SET snowflake.max_wait = '1500 ms'; SELECT snowflake_nextval('tiny')})) !~ /gave up waiting/ });
like($error, qr/^ERROR:  53400: no node number is free\nDETAIL:  All numbers from 0 to 3 \(4\) are leased; /, 'none that fits is free: error');
my $expected = 'starting|no node number is free|t';
is(settle($expected, sub { stat_of_generator($node, 'tiny', q{state, detail, node_number IS NULL}) }), $expected, 'none is free: view');
is($node->safe_psql('postgres', q{SELECT state, node_number FROM pg_stat_snowflake WHERE layout = 'twitter'}), "ready|$number",
	'none is free: the other layout keeps the number');
$twitter->wait_for(200);
is($node->safe_psql('postgres', 'SELECT snowflake_release()'), $number, 'none is free: the number is handed back');
$twitter->wait_for(200);
isnt(stat_of($node, q{max(node_number)}), $number, 'none is free: another one is taken all the same');
foreach my $hours (1, 2)
{
	$number = stat_of($node, q{max(node_number)});
	set_clock($node, -3_600_000 * $hours);
	$twitter->wait_for(200);
	isnt(stat_of($node, q{max(node_number)}), $number, "none is free: the clock $hours h back, another number");
}
@twitter = $twitter->stop;
set_clock($node, 0);
# a call that failed is made again after four seconds at most
poll('ten seconds without a failure', sub {
		my $failures = stat_of($node, q{max(lease_failures)});
		sleep 10;
		stat_of($node, q{max(lease_failures)}) == $failures });
pass('nothing is tried while nobody waits');
$twitter = start_drawers($node, count => 2);
$twitter->wait_for(200);
$node->safe_psql('postgres', q{DELETE FROM snowflake.worker_node WHERE host_name = 'other' AND node_number = 2});
is($node->safe_psql('postgres', q{SELECT snowflake_nextval('tiny') > 0}), 't', 'one is free: draws go on by themselves');
is(stat_of_generator($node, 'tiny', 'node_number'), 2, 'with that number');
$twitter->wait_for(200);
push @twitter, $twitter->stop;
is($twitter->errors, '', 'the other layout has noticed nothing');
check_ids('none free', split_ids(12, 1023, @twitter));

#
# A number that is given up while another one is being asked for in exchange: the registry
# gets to know.
#
$node->safe_psql('postgres', 'SELECT snowflake_drop_generator($$tiny$$)');
$node->restart;
foreach (1 .. 20)
{
	draw($node, 1);
	last if stat_of($node, 'node_number') > 6;
	$node->safe_psql('postgres', 'SELECT snowflake_release()');
}
cmp_ok(stat_of($node, 'node_number'), '>', 6, 'a number that will not fit');
create($node, 'tiny', TINY);
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE snowflake.registry');
my @waiting = map { $node->background_psql('postgres', on_error_stop => 0) } 1, 2;
$waiting[0]->query_until(qr/asked/, "\\echo asked\nSELECT snowflake_nextval('tiny') > 0 AS tiny;\n");
poll('the call', sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity
	WHERE backend_type = 'snowflake helper' AND wait_event_type = 'Lock'}) });
my $log = log_end($node);
set_clock($node, -90_000);
$waiting[1]->query_until(qr/asked/, "\\echo asked\nSELECT snowflake_nextval() > 0 AS twitter;\n");
poll('the move', sub { log_since($node, $log) =~ /taking another one/ });
$locker->query_safe('COMMIT');
$_->quit foreach $locker, @waiting;
poll('draws', sub { sql_error($node, q{SELECT snowflake_nextval(), snowflake_nextval('tiny')}) eq '' });
poll('one open row', sub { $node->safe_psql('postgres', q{SELECT count(*) FROM snowflake.worker_node WHERE released_at IS NULL AND host_name <> 'other'}) eq '1' });
pass('given up during an exchange: the row of the old number is closed');
set_clock($node, 0);

#
# Words.  Each layout has one until the server stops.
#
create($node, 'web', 'js53');
create($node, 'slow', 'uidgenerator');
draw($node, 1);
$node->safe_psql('postgres', "SELECT snowflake_nextval('$_')") foreach 'web', 'slow';
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_snowflake'), 4, 'four layouts are in use');
like(sql_error($node, q{SELECT snowflake_create_generator('fifth', 'cosid')}),
	qr/^ERROR:  53400: too many layouts are in use\nDETAIL:  .* is 4, .*\nHINT:  Raise snowflake.max_layouts/, 'a fifth is refused');
is($node->safe_psql('postgres', q{SELECT snowflake_create_generator('more', 'twitter'), snowflake_nextval('more') > 0}), '|t',
	'another name for one in use is not');
is($node->safe_psql('postgres', q{SELECT snowflake_create_generator('leaf', 'leaf'), snowflake_nextval() < snowflake_nextval('leaf')}), '|t',
	'nor is a layout with the same ids, split otherwise: it shares the word');
$node->safe_psql('postgres', q{INSERT INTO snowflake.generator VALUES ('fifth', 'cosid')});
like(sql_error($node, q{SELECT snowflake_nextval('fifth')}), qr/^ERROR:  53400: too many layouts are in use/, 'nor can it be drawn from');
$node->safe_psql('postgres', q{SELECT snowflake_drop_generator('slow')});
like(sql_error($node, q{SELECT snowflake_nextval('fifth')}), qr/^ERROR:  53400: /, 'a drop does not free the word');
$node->restart;
is($node->safe_psql('postgres', q{SELECT snowflake_nextval('fifth') > 0}), 't', 'a restart does');

#
# Other databases have generators of their own; templates and dumps take them along.
#
$node->safe_psql('postgres', $_) foreach 'CREATE DATABASE shop', 'CREATE DATABASE empty';
$node->safe_psql($_, 'CREATE EXTENSION snowflake') foreach 'shop', 'empty';
like(sql_error($node, q{SELECT snowflake_nextval('web')}, 'shop'), qr/^ERROR:  42704: generator "web" does not exist/, 'names are of one database');
create($node, 'web', 'twitter', 'shop');
is($node->safe_psql('shop', q{SELECT snowflake_nextval('web') > 1::bigint << 53}), 't', 'the same name, another layout');
is($node->safe_psql('postgres', q{SELECT snowflake_nextval('web') < 1::bigint << 53}), 't', 'in each database its own');
$node->safe_psql('shop', q{SELECT snowflake_create_generator('small', 'js53');
	CREATE TABLE visits (id bigint PRIMARY KEY DEFAULT snowflake_nextval('small')); INSERT INTO visits DEFAULT VALUES});
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE shop');
my $dump = PostgreSQL::Test::Utils::tempdir('dump') . '/shop.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('shop') ], 'dumped');
$node->safe_psql('postgres', 'DROP DATABASE empty; ');
$node->safe_psql('postgres', 'CREATE DATABASE empty');
$node->command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('empty') ], 'restored');
foreach my $database ('copy', 'empty')
{
	is($node->safe_psql($database, q{SELECT name, layout FROM snowflake.generator ORDER BY name}), "small|js53\nweb|twitter",
		"$database: the generators came along");
	is($node->safe_psql($database, q{INSERT INTO visits DEFAULT VALUES RETURNING id > (SELECT max(id) FROM visits) AND id < 1::bigint << 53},
			extra_params => ['-q']), 't', "$database: and are drawn from");
}

#
# Sessions that drew before.
#
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe(q{PREPARE draw AS SELECT snowflake_nextval('web') < 1::bigint << 53; CREATE TEMP TABLE log (small bool)});
is($session->query('EXECUTE draw'), 't', 'a session draws');
$node->safe_psql('postgres', q{SELECT snowflake_drop_generator('web')});
$session->query('EXECUTE draw');
like($session->{stderr}, qr/generator "web" does not exist/, 'dropped by another one, it is gone in this one, too');
$session->{stderr} = '';
create($node, 'web', 'twitter');
is($session->query('EXECUTE draw'), 'f', 'created with another layout, it has that');
$node->safe_psql('postgres', q{UPDATE snowflake.generator SET layout = 'js53' WHERE name = 'web'});
is($session->query('EXECUTE draw'), 't', 'changed in the table: the same');
$node->safe_psql('postgres', 'DROP EXTENSION snowflake CASCADE');
$session->query('EXECUTE draw');
like($session->{stderr}, qr/function .*does not exist|could not|cache lookup|does not exist/, 'the extension dropped: an error');
$session->{stderr} = '';
$node->safe_psql('postgres', q{CREATE EXTENSION snowflake; SELECT snowflake_create_generator('web', 'js53')});
is($session->query(q{SELECT snowflake_nextval('web') < 1::bigint << 53}), 't', 'and created anew: draws');
$session->quit;
$node->stop;

#
# A fixed number stays; its layouts go on behind their last ids after whatever end, and
# those that it does not fit are refused.
#
my $fixed = new_node('fixed', conf => "snowflake.worker_id = 5\nsnowflake.max_ahead = '500ms'\n");
create($fixed, @$_) foreach [ 'tiny', TINY ], [ 'web', 'js53' ], [ 'slow', 'uidgenerator' ];
my %phases;
foreach my $end ('immediate', 'fast', 'kill', 'worker')
{
	my %drawers = map { $_ => drawers_of($fixed, $_) } 'tiny', 'web', 'slow';

	$_->wait_for(300) foreach values %drawers;
	if ($end eq 'kill') { crash($fixed) }
	elsif ($end eq 'worker') { kill_process(worker_pid($fixed), 'TERM'); $_->wait_for(300) foreach values %drawers }
	else { $fixed->stop($end) }
	push @{ $phases{$_} }, [ $drawers{$_}->stop ] foreach sort keys %drawers;
	next if $end eq 'worker';
	# a little behind: what was issued must not come again
	set_conf($fixed, 'snowflake.clock_offset' => $end eq 'fast' ? 0 : -400);
	$fixed->start;
}
check_phases("fixed number, $_", @{ $phases{$_} }) foreach sort keys %phases;
set_and_reload($fixed, 'snowflake.clock_offset' => 0, 'snowflake.worker_id' => 12, 'snowflake.datacenter_id' => 9);
poll('number 300', sub { $fixed->safe_psql('postgres', q{SELECT node_number FROM pg_stat_snowflake WHERE layout = 'twitter'}) eq '300' });
like(sql_error($fixed, q{SELECT snowflake_nextval('tiny')}),
	qr/^ERROR:  55000: node number 300 does not fit layout ".*"\nDETAIL:  .* from 0 to 6; .* 300\.\nHINT:  /, 'a number that does not fit: error');
is(stat_of_generator($fixed, 'tiny', q{state, detail LIKE 'node number 300 does not fit%', node_number IS NULL}), 'refused|t|t', 'does not fit: view');
is($fixed->safe_psql('postgres', q{SELECT snowflake_nextval() > 0 AND snowflake_nextval('slow') > 0}), 't', 'does not fit: other layouts go on');
like(sql_error($fixed, q{SELECT snowflake_create_generator('tinier', 'timestamp 41, worker 2, sequence 9')}),
	qr/^ERROR:  55000: node number 300 does not fit layout/, 'nor can such a generator be created');
set_and_reload($fixed, 'snowflake.worker_id' => 5, 'snowflake.datacenter_id' => -1);
poll('tiny', sub { sql_error($fixed, q{SELECT snowflake_nextval('tiny')}) eq '' });
push @tiny, write_ids(split /\n/, $fixed->safe_psql('postgres', q{SELECT snowflake_nextval_batch(10, 'tiny')}));
check_phases('back to a number that fits', @{ $phases{tiny} }, [ $tiny[-1] ]);
$fixed->stop;

done_testing();
