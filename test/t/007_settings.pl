# 007_settings.pl
#	  The settings have the contexts, units and defaults that are documented; a bad
#	  value is refused with the limit in the message, and a password in the registry
#	  is not repeated; at server start the server runs and issues no ids; a reload
#	  reaches all sessions at once, also in the middle of a statement; the policies of a
#	  tick's first sequence do what they say.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeStatement;

my $node = new_node('main');

is($node->safe_psql('postgres', "SELECT name, boot_val, unit, context, min_val, max_val FROM pg_settings
	WHERE name LIKE 'snowflake.%' ORDER BY name"), <<EOF =~ s/\n\z//r, 'names, defaults, units, contexts and bounds');
snowflake.clock_offset|0|ms|sighup|-3.15576e+12|3.15576e+12
snowflake.datacenter_id|-1||sighup|-1|2147483647
snowflake.extra_layouts|||postmaster||
snowflake.layout|twitter||postmaster||
snowflake.lease_duration|120000|ms|sighup|1000|86400000
snowflake.max_ahead|1000|ms|sighup|0|3600000
snowflake.max_wait|5000|ms|user|0|86400000
snowflake.registry|||sighup||
snowflake.sequence_start|carried||sighup||
snowflake.worker_id|auto||sighup||
EOF

SKIP: {
	skip 'a library says its version since 18', 1 if $node->safe_psql('postgres', 'SHOW server_version_num') < 180000;
	is($node->safe_psql('postgres', "SELECT module_name, version FROM pg_get_loaded_modules() WHERE file_name LIKE 'snowflake.%'"),
		$node->safe_psql('postgres', "SELECT name, default_version FROM pg_available_extensions WHERE name = 'snowflake'"),
		'the library has the name and the version of the extension');
}

#
# Bad values
#
my $range = sub { qr/ERROR:  22023: $_[0] is outside the valid range for parameter "snowflake\.\w+" \($_[1](?: ms)? \.\. $_[2](?: ms)?\)/ };
my $worker = qr/ERROR:  22023: .*\nDETAIL:  snowflake.worker_id must be auto, hostname, mac, or a number from 0 to 2147483647\.\nHINT/;
my $password = qr/ERROR:  22023: .*password.*\nDETAIL:  .*\nHINT:  .*passfile/;
my $database = qr/ERROR:  22023: .*other than postgres\nDETAIL:  .*always in the database postgres\.\nHINT:  Leave out dbname\./;
foreach my $bad (
	[ q(clock_offset = '1e15'), $range->('1e\+15 ms', '-3\.15576e\+12', '3\.15576e\+12') ],
	[ q(datacenter_id = -2), $range->(-2, -1, 2147483647) ],
	[ q(extra_layouts = 'js53; nonsense'), qr/ERROR:  22023: .*\nDETAIL:  Layout "nonsense": "nonsense" is neither a preset nor .*\nHINT/ ],
	[ q(extra_layouts = 'mastodon'), qr/ERROR:  22023: .*\nDETAIL:  Layout "mastodon": It is for parsing only: .*\nHINT/ ],
	[ q(extra_layouts = ') . join(';', map { "twitter, epoch 2020-01-01T00:$_:00Z;twitter, epoch 2020-01-01T01:$_:00Z" } 10 .. 42) . q('), qr/ERROR:  22023: .*\nDETAIL:  .*At most \d+ layouts can be in use\.\nHINT/ ],
	[ q(layout = 'nonsense'), qr/ERROR:  22023: .*\nDETAIL:  "nonsense" is neither a preset nor one of timestamp,.*\nHINT/ ],
	[ q(layout = 'twitter, sequence 25'), qr/ERROR:  22023: .*\nDETAIL:  The widths add up to 76 bits, more than 63 .*\nHINT/ ],
	[ q(layout = 'twitter, sequence 32'), qr/ERROR:  22023: .*\nDETAIL:  "sequence 32" must give the sequence field 1 to 31 bits\.\nHINT/ ],
	[ q(lease_duration = '10ms'), $range->('10 ms', 1000, 86400000) ],
	[ q(max_ahead = '2h'), $range->('7200000 ms', 0, 3600000) ],
	[ q(max_ahead = '-1ms'), $range->('-1 ms', 0, 3600000) ],
	[ q(max_ahead = '5 lines'), qr/ERROR:  22023: .*\nHINT:  Valid units for this parameter are "us", "ms", "s", "min", "h", and "d"\./ ],
	[ q(max_wait = '2d'), $range->('172800000 ms', 0, 86400000) ],
	[ q(registry = 'host=h password=geheim'), $password ],
	[ q(registry = 'postgresql://user:geheim@h/postgres'), $password ],
	[ q(registry = 'host=h dbname=other'), $database ],
	[ q(registry = 'postgresql://user@h/db'), $database ],
	[ q(registry = 'h/geheim'), qr/ERROR:  22023: snowflake.registry must be "own", or a libpq connection string or URI/ ],
	[ q(registry = 'Own'), qr/ERROR:  22023: snowflake.registry must be "own", or/ ],
	[ q(sequence_start = 'one'), qr/ERROR:  22023: .*\nHINT:  Available values: carried, random, zero\./ ],
	[ q(worker_id = 'seven'), $worker ],
	[ q(worker_id = '-1'), $worker ],
	[ q(worker_id = '2147483648'), $worker ],
	[ q(worker_id = ''), $worker ],
	[ q(nonsense = 1), qr/ERROR:  (?:42704: unrecognized|42602: invalid) configuration parameter (?:name )?"snowflake\.nonsense"/ ])
{
	my ($setting, $pattern) = @$bad;
	my $error = sql_error($node, "ALTER SYSTEM SET snowflake.$setting");

	like($error, $pattern, "refused: " . substr($setting, 0, 60));
	unlike($error, qr/geheim/, "the password is not shown: $setting") if $setting =~ /geheim/;
}
like(sql_error($node, 'SET snowflake.nonsense = 1'),
	qr/ERROR:  42602: .*"snowflake.nonsense"\nDETAIL:  "snowflake" is a reserved prefix/, 'no other settings of this prefix');

# In the file, a bad value leaves the old one.
foreach my $registry ('host=h password=geheim', 'host=h dbname=other')
{
	my $log = log_end($node);

	set_and_reload($node, 'snowflake.max_ahead' => '2h', 'snowflake.registry' => $registry);
	poll('reload', sub { log_since($node, $log) =~ /contains errors; unaffected changes were applied/ });
	like(log_since($node, $log), qr/7200000 ms is outside the valid range for parameter "snowflake.max_ahead"/,
		'a bad value in the file is in the log');
	like(log_since($node, $log), qr/LOG: .*snowflake.registry must not (?:contain a password|name a database other than postgres)/,
		"and the registry $registry");
	unlike(log_since($node, $log), qr/geheim/, 'but no password');
	is($node->safe_psql('postgres', 'SHOW snowflake.max_ahead; SHOW snowflake.registry'), "1s\n", 'the old values stay');
	is(scalar issue_ids($node, 1), 1, 'and ids are issued');
}
set_and_reload($node, 'snowflake.max_ahead' => undef, 'snowflake.registry' => undef);

# The own tables, by name: the lease goes on.
my $lease = stat_of($node, 'node_number, registry, worker_switches');
my $before = log_end($node);

set_and_reload($node, 'snowflake.registry' => 'own');
poll('reload', sub { $node->safe_psql('postgres', 'SHOW snowflake.registry') eq 'own' });
is(scalar issue_ids($node, 1), 1, 'own: ids are issued');
is(stat_of($node, 'node_number, registry, worker_switches'), $lease, 'own: under the same lease');
unlike(log_since($node, $before), qr/snowflake: /, 'own: nothing has happened');
$node->restart;
is(scalar issue_ids($node, 1), 1, 'own: also after a restart');
is(stat_of($node, 'node_number, registry'), $lease =~ s/\|\d+$//r, 'own: its own tables');
set_and_reload($node, 'snowflake.registry' => undef);

#
# Who may see and set what
#
$node->safe_psql('postgres', 'CREATE ROLE user1 LOGIN');
like(run_sql($node, 'SHOW snowflake.registry', 'postgres', 'user1')->{error}, qr/ERROR:  42501: (?:must be superuser|permission denied to examine)/,
	'the registry is hidden from ordinary users');
is(run_sql($node, "SELECT count(*) FROM pg_settings WHERE name = 'snowflake.registry'", 'postgres', 'user1')->{out}, '0',
	'also in pg_settings');
is(run_sql($node, "SET snowflake.max_wait = '1s'; SHOW snowflake.max_wait;", 'postgres', 'user1')->{out}, '1s',
	'everybody may set max_wait');
like(sql_error($node, "SET snowflake.max_ahead = '2s'"), qr/ERROR:  55P02: .*cannot be changed now/,
	'nobody max_ahead for a session alone');
like(sql_error($node, "SET snowflake.layout = 'js53'"), qr/ERROR:  55P02: .*cannot be changed without restarting the server/,
	'or the layout without a restart');

#
# A reload reaches all sessions at once: an idle one, one in a transaction, and one in
# the middle of a statement, whose own copies of the settings are still the old ones.
# Without waiting a batch may be as large as max_ahead allows.
#
my $idle = $node->background_psql('postgres', on_error_stop => 0);
my $busy = $node->background_psql('postgres', on_error_stop => 0);
my $fits = 'SELECT count(*) FROM snowflake_nextval_batch(10000)';

$idle->query_safe('SET snowflake.max_wait = 0');
$busy->query_safe('BEGIN; SET LOCAL snowflake.max_wait = 0; SAVEPOINT s');
poll('ids close to the clock', sub { stat_of($node, 'ahead < interval \'0.5 s\'') eq 't' });
# a session that may not wait fails where the lease was not extended in time: again
sub get_batch
{
	my ($session, $end) = @_;

	return settle(10000, sub {
			my $count = $session->query($fits) // '';

			die $session->{stderr} if $session->{stderr} =~ /ERROR:  (?!gave up waiting)/;
			$session->query($end) if $session->{stderr} ne '' && $end;
			$session->{stderr} = '';
			$count });
}
is(get_batch($idle), 10000, 'an idle session gets a batch');
is(get_batch($busy, 'ROLLBACK TO s'), 10000, 'and one in a transaction');

my $statement = start_sql($node, <<'EOF');
SET snowflake.max_wait = 0;
DO $$
	BEGIN
		LOOP
			BEGIN
				PERFORM count(*) FROM snowflake_nextval_batch(10000);
			EXCEPTION WHEN lock_not_available THEN
			END;
			PERFORM pg_sleep(0.02);
		END LOOP;
	EXCEPTION WHEN invalid_parameter_value THEN
		RAISE NOTICE '% while max_ahead is %', SQLERRM, current_setting('snowflake.max_ahead');
	END $$;
EOF
poll('statement', sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") });
set_and_reload($node, 'snowflake.max_ahead' => '2ms', 'snowflake.sequence_start' => 'zero');
like(finish_sql($statement)->{error}, qr/batch of 10000 ids is too large for layout "twitter" while max_ahead is 1s/,
	'a new max_ahead reaches a session in the middle of a statement');
$idle->query($fits);
like($idle->{stderr}, qr/batch of 10000 ids is too large.*holds at most 8192 ids/s, 'at the same time an idle one');
$busy->query($fits);
like($busy->{stderr}, qr/batch of 10000 ids is too large.*holds at most 8192 ids/s, 'and one in a transaction');
$busy->query("ROLLBACK TO s; SET LOCAL snowflake.max_wait = '1min'");
$idle->query("SET snowflake.max_wait = '1min'");
$idle->{stderr} = $busy->{stderr} = '';

# Both were told of the policy with it.  Each id is in a tick of its own.
my $sequences = "SELECT string_agg(sequence::text, ' ') FROM (SELECT (snowflake_parse(snowflake_nextval())).sequence, pg_sleep(0.0015)
	FROM generate_series(1, %d)) s";
my $few = sprintf($sequences, 20);
poll('the clock to reach the ids', sub { stat_of($node, 'ahead') eq '00:00:00' });
is($idle->query_safe($few), join(' ', (0) x 20), 'zero: a new policy reaches an idle session');
is($busy->query_safe($few), join(' ', (0) x 20), 'zero: and one in a transaction');

#
# Policies, over many ticks
#
sub observe
{
	my ($policy, $works) = @_;

	set_and_reload($node, 'snowflake.sequence_start' => $policy);
	poll($policy, sub { $works->(split / /, $idle->query_safe($few)) });
	return split / /, $idle->query_safe(sprintf($sequences, 300));
}

my @sequences = observe('carried', sub { grep { $_ == 15 } @_ });
is(join(' ', map { ($sequences[$_] - $sequences[ $_ - 1 ]) % 16 } 1 .. $#sequences), join(' ', (1) x $#sequences),
	'carried: each tick goes on where the last one ended');
is(scalar(grep { $_ > 15 } @sequences), 0, 'carried: below 16');

@sequences = observe('random', sub { "@_" ne join(' ', map { ($_[0] + $_) % 16 } 0 .. $#_) });
my %seen = map { $_ => 1 } @sequences;
cmp_ok(scalar keys %seen, '>', 8, 'random: many values');
is(scalar(grep { $_ > 15 } @sequences), 0, 'random: below 16');
isnt(join(' ', map { ($sequences[$_] - $sequences[ $_ - 1 ]) % 16 } 1 .. $#sequences), join(' ', (1) x $#sequences),
	'random: not one after the other');

@sequences = observe('zero', sub { "@_" eq join(' ', (0) x 20) });
is("@sequences", join(' ', (0) x 300), 'zero: always 0');
$_->quit foreach $idle, $busy;

#
# The developer option
#
unlike(slurp_file($node->logfile), qr/snowflake.clock_offset is/, 'no warning of a clock offset of 0');
my $log = log_end($node);
set_and_reload($node, 'snowflake.clock_offset' => '1500ms');
poll('warning', sub { log_since($node, $log) =~ /WARNING: .*snowflake.clock_offset is 1500 ms/ });
pass('a reload with a clock offset is in the log');
$log = log_end($node);
$node->restart;
poll('warning', sub { log_since($node, $log) =~ /WARNING: .*snowflake.clock_offset is 1500 ms/ });
pass('and a start with one');
set_conf($node, 'snowflake.clock_offset' => undef);

#
# At server start a bad value is not replaced by a default: the server runs, and issues no ids
#
foreach my $case (
	[ 'snowflake.registry' => "'host=registry password=geheim'" ],
	[ 'snowflake.registry' => "'host=registry dbname=other'" ],
	[ 'snowflake.datacenter_id' => "'dc5'" ],
	[ 'snowflake.datacenter_id' => '99999999999' ],
	[ 'snowflake.worker_id' => "'seven'" ])
{
	my ($name, $value) = @$case;
	my $shown = $name =~ /registry/ ? '' : $value =~ s/^'|'$//gr;
	my $begin = log_end($node);

	$node->stop;
	$node->append_conf('postgresql.conf', "$name = $value");
	$node->start;
	is($node->safe_psql('postgres', 'SELECT 1'), 1, "$name = $value: the server starts");
	like(sql_error($node, 'SELECT snowflake_nextval()'),
		qr/^ERROR:  55000: the server was started with an invalid \Q$name: "$shown"\E\n.*\nHINT:  Correct the setting and restart/,
		"$name = $value: no ids");
	unlike(log_since($node, $begin), qr/geheim/, "$name = $value: no password in the log");
	$node->adjust_conf('postgresql.conf', $name, $name =~ /worker_id/ ? '1' : undef);
}
$node->restart;
is(settle(1, sub { stat_of($node, 'worker_id') }), 1, 'after the settings were corrected there is a lease again');
$node->stop;

done_testing();
