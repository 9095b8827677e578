# 025_generation.pl
#	  What tells the numbers of two primaries apart, without a registry: the generation,
#	  which is counted from the server's timeline history.  Odd ones have even numbers, even
#	  ones odd numbers.  Only one of two primaries has snowflake.datacenter_id set; the
#	  promotion skips a timeline that is in the archive, and leases wait; nobody asks for ids before
#	  another promotion, for whose leases the time since the first one counts; the history file is
#	  missing; the extension is created anew; the system identifier is another one, as
#	  pg_createsubscriber makes it; the clock is set back, and the owner says that no id is that late.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry 'guards';

sub new_standby
{
	my ($primary, $name, $conf) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->append_conf('postgresql.conf', $conf);
	$standby->start;
	return $standby;
}

sub generation
{
	my ($node) = @_;

	return $node->safe_psql('postgres', 'SELECT generation FROM snowflake.registry');
}

# Takes some numbers, one after another.
my %files;
sub some_numbers
{
	my ($node) = @_;
	my @numbers;

	for (1 .. 3)
	{
		my ($id) = issue_ids($node, 1);
		push @numbers, id_node($id);
		push @{ $files{ $node->name } }, write_ids($id);
		$node->safe_psql('postgres', 'SELECT snowflake_release()');
	}
	return @numbers;
}

# Bit 0 tells them apart, in any datacenter.
sub check_numbers
{
	my ($label, $old, $new) = @_;
	my (@old, @new);
	my $elsewhere = 0;

	foreach my $datacenter_id (-1, 20, 3)
	{
		set_and_reload($_, 'snowflake.datacenter_id' => $datacenter_id) foreach $old, $new;
		# by the session, and by the lease worker
		foreach my $node ($old, $new)
		{
			poll('reload', sub { $node->safe_psql('postgres', 'SHOW snowflake.datacenter_id') eq $datacenter_id });
			poll('the datacenter', sub { id_node((issue_ids($node, 1))[0]) >> 5 == $datacenter_id }) if $datacenter_id >= 0;
		}
		push @old, some_numbers($old);
		push @new, some_numbers($new);
		$elsewhere += grep { $datacenter_id >= 0 && $_ >> 5 != $datacenter_id } @old[ -3 .. -1 ], @new[ -3 .. -1 ];
	}
	is(join(' ', grep { $_ % 2 } @old), '', "$label: the numbers of the old primary are even");
	is(join(' ', grep { $_ % 2 == 0 } @new), '', "$label: those of the promoted one are odd");
	is($elsewhere, 0, "$label: both in the datacenter that was set");
	return;
}

my $counts = 'generation, counted, counted_at FROM snowflake.registry';

# The one server has a datacenter, the other has not.
my $primary = auto_node('primary', init => [ allows_streaming => 1 ], conf => "snowflake.datacenter_id = 20\n");
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake');
# the longest window is 25 s
limit_leases($primary, '15 s');
issue_ids($primary, 1);
is($primary->safe_psql('postgres', "SELECT $counts"), '1|{}|', 'a new cluster: the first generation');
my $archive = PostgreSQL::Test::Utils::tempdir('archive');
my $standby = new_standby($primary, 'standby', "snowflake.datacenter_id = -1\n");
my $skipping = new_standby($primary, 'skipping', "restore_command = 'cp $archive/%f %p'\n");
my $uncounted = new_standby($primary, 'uncounted', "shared_preload_libraries = ''\nsnowflake.datacenter_id = -1\n");
$standby->promote;
is(settle(2, sub { generation($standby) }), 2, 'promoted: counted, before there is any id');
like($standby->safe_psql('postgres', 'SELECT counted FROM snowflake.registry'), qr/^\{1\/0\/[0-9A-F]+\}$/, 'promoted: the entry is recorded');
is(settle('t', sub { $standby->safe_psql('postgres', <<'SQL') }), 't', 'promoted: every lease starts at or after that time, max_ahead and a tick');
SELECT r.counted_at > pg_postmaster_start_time() AND bool_and(w.starts_at >= r.counted_at + interval '1.001 s')
FROM snowflake.registry AS r, snowflake.worker_node AS w WHERE w.generation = 2 AND w.timeline = 2 GROUP BY r.counted_at
SQL
is($standby->safe_psql('postgres', 'SELECT starts_at IS NULL FROM snowflake.registry'), 't', 'promoted: nothing else waits');
is(guards($standby), '', 'promoted: no guard has found anything');
check_numbers('a datacenter', $primary, $standby);
my $recorded = $standby->safe_psql('postgres', "SELECT $counts");
$standby->restart;
issue_ids($standby, 1);
is($standby->safe_psql('postgres', "SELECT $counts"), $recorded, 'restarted: nothing is counted again');

# Another server was promoted to timeline 2, archived that, and was thrown away.
append_to_file("$archive/00000002.history", "1\t0/10000\tno recovery target\n");
$skipping->promote;
is($skipping->safe_psql('postgres', 'SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)::int'), 3,
	'a timeline was skipped');
# who had timeline 2 may have granted leases: they are over after the longest window
is(settle('wait 1', sub { guards($skipping) }), 'wait 1', 'a timeline was skipped: a guard has found that it is no plain promotion');
is($skipping->safe_psql('postgres', "SELECT starts_at = counted_at + interval '25 s' FROM snowflake.registry"), 't',
	'a timeline was skipped: leases wait for the longest window');
like(slurp_file($skipping->logfile), qr/WARNING:  \w+: .*leases of this registry start at .*\n.*DETAIL:  New in its timeline history are 1 entries: 1\//,
	'a timeline was skipped: the log says so');
my $waits_until = $skipping->safe_psql('postgres', 'SELECT starts_at FROM snowflake.registry');
poll('ids', sub { sql_error($skipping, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()") eq '' });
is($skipping->safe_psql('postgres', "SELECT min(starts_at) >= '$waits_until' FROM snowflake.worker_node WHERE generation = 2"), 't',
	'a timeline was skipped: so do they');
check_numbers('a timeline was skipped', $primary, $skipping);
is(generation($skipping), 2, 'a timeline was skipped: it counts as one promotion');
$skipping->stop;

#
# The history file is missing: what it does not tell would count as no promotion.
#
# It is there after a promotion; here nobody counts before it is gone.
$uncounted->promote;
my $history = $uncounted->data_dir . '/pg_wal/00000002.history';
poll('the promotion', sub { -e $history && $uncounted->safe_psql('postgres', 'SELECT NOT pg_is_in_recovery()') eq 't' });
$uncounted->stop;
rename $history, "$history.away" or die "rename: $!";
set_conf($uncounted, shared_preload_libraries => 'snowflake');
$uncounted->start;
my $error;
poll('refusal', sub { ($error = sql_error($uncounted, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()")) =~ /55000/ });
my $no_history = qr/^ERROR:  55000: could not find the history of timeline 2\nDETAIL:  The file "pg_wal\/00000002.history" does not exist or does not have it\. .*\nHINT:  Put it back/;
like($error, $no_history, 'no history file: refused');
is(stat_of($uncounted, 'state, detail'), 'refused|could not find the history of timeline 2', 'no history file: view');
rename "$history.away", $history or die "rename: $!";
poll('ids', sub { sql_error($uncounted, 'SELECT snowflake_nextval()') eq '' });
is(join(' ', grep { $_ % 2 == 0 } map { id_node($_) } map { $uncounted->safe_psql('postgres', 'SELECT snowflake_release()'); issue_ids($uncounted, 1) } 1 .. 3), '',
	'it is put back: ids go on, with odd numbers');
# what was counted is not looked for again
$uncounted->stop;
rename $history, "$history.away" or die "rename: $!";
$uncounted->start;
is(sql_error($uncounted, 'SELECT snowflake_nextval()'), '', 'no history file, when it was counted: ids go on');
$uncounted->stop;

#
# The tables are created anew.  Without the history file they are not: the promotion would not be counted in them.
#
$history = $standby->data_dir . '/pg_wal/00000002.history';
rename $history, "$history.away" or die "rename: $!";
my $anew = 'BEGIN; DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry; COMMIT';
like(sql_error($standby, $anew), $no_history, 'a new table, no history file: refused');
is(generation($standby), 2, 'a new table, no history file: the one before is there');
$standby->safe_psql('postgres', 'DROP EXTENSION snowflake_registry');
poll('refusal', sub { ($error = sql_error($standby, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()")) =~ /55000/ });
like($error, $no_history, 'a new table of the lease worker, no history file: refused');
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_extension WHERE extname = 'snowflake_registry'"), 0,
	'a new table of the lease worker, no history file: there is none');
rename "$history.away", $history or die "rename: $!";
poll('ids', sub { sql_error($standby, 'SELECT snowflake_nextval()') eq '' });
is(join(' ', grep { $_ % 2 == 0 } some_numbers($standby)), '', 'a new table of the lease worker: odd numbers');
$standby->safe_psql('postgres', $anew);
is(join(' ', grep { $_ % 2 == 0 } some_numbers($standby)), '', 'a new table: odd numbers');
is($standby->safe_psql('postgres', 'SELECT generation, cardinality(counted) FROM snowflake.registry'), '2|1', 'a new table: counted at once');

#
# A subscriber made of a standby: promoted, and then it gets another system identifier.
#
# The control file ends with a CRC-32C of what is before it; where that is depends on the version.
sub change_system_identifier
{
	my ($node) = @_;
	my $file = $node->data_dir . '/global/pg_control';
	my $control = slurp_file($file);
	my @table = map {
		my $c = $_;
		$c = $c & 1 ? $c >> 1 ^ 0x82F63B78 : $c >> 1 for 1 .. 8;
		$c } 0 .. 255;
	my $crc = sub {
		my $c = 0xFFFFFFFF;
		$c = $table[ ($c ^ $_) & 255 ] ^ $c >> 8 foreach unpack 'C*', $_[0];
		return $c ^ 0xFFFFFFFF };
	my ($end) = grep { $crc->(substr $control, 0, $_) == unpack 'L', substr $control, $_, 4 } map { $_ * 4 } 16 .. 120;

	die 'no CRC in pg_control' unless $end;
	my $id = unpack('Q', $control) + 12345;
	substr $control, 0, 8, pack 'Q', $id;
	substr $control, $end, 4, pack 'L', $crc->(substr $control, 0, $end);
	open my $out, '+<', $file or die "$file: $!";
	binmode $out;
	print $out $control;
	close $out or die "$file: $!";
	return $id;
}

foreach my $ids_before (1, 0)
{
	my $label = $ids_before ? 'another system identifier' : 'another system identifier, no ids before';
	my $subscriber = new_standby($primary, "subscriber$ids_before", "snowflake.datacenter_id = -1\n");

	$subscriber->promote;
	issue_ids($subscriber, 3) if $ids_before;
	# it is stopped as pg_createsubscriber does, perhaps before the lease worker has counted
	$subscriber->stop('fast');
	my $id = change_system_identifier($subscriber);
	$subscriber->command_ok([ 'pg_resetwal', '-D', $subscriber->data_dir ], "$label: pg_resetwal");
	$subscriber->start;
	is($subscriber->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()'), $id, "$label: it has another one");
	check_numbers($label, $primary, $subscriber);
	is(generation($subscriber), 2, "$label: one promotion");
	is($subscriber->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster'), 'own', "$label: it uses its own tables");
	$subscriber->stop;
}
check_ids('two primaries at a time', split_ids(12, 1023, map { @$_ } values %files));

#
# The extension was created, but no call was made: as a standby has it that has replayed no more.
#
my $early = new_node('early', preload => 0);
$early->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry');
$early->stop;
change_system_identifier($early);
$early->command_ok([ 'pg_resetwal', '-D', $early->data_dir ], 'no call yet: pg_resetwal');
set_conf($early, shared_preload_libraries => 'snowflake');
$early->start;
is(settle('t', sub { $early->safe_psql('postgres', 'SELECT counted_at > created_at FROM snowflake.registry') }), 't',
	'no call yet, and another system identifier: leases start after the clock');
$early->stop;

#
# Promoted twice, with no id in between, while the clock is ahead; then it is right.
#
my $heir = new_standby($primary, 'heir', "snowflake.clock_offset = '1h'\n");
my $next = new_standby($heir, 'next', "snowflake.clock_offset = '1h'\n");
$heir->promote;
is(settle(2, sub { generation($heir) }), 2, 'the first promotion');
$heir->wait_for_catchup($next, 'replay', $heir->lsn('insert'));
$heir->stop;
$next->promote;
is(settle(3, sub { generation($next) }), 3, 'the second promotion');
# leases of the first generation, which has the same parity, are over when the longest window has passed since the first promotion
is(guards($next), 'wait 1', 'the second promotion: soon after the first one, a guard says');
is($next->safe_psql('postgres', "SELECT counted_at < starts_at AND starts_at < counted_at + interval '25 s' FROM snowflake.registry"), 't',
	'the second promotion: leases wait for the longest window since the first one');
poll('ids', sub { sql_error($next, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()") eq '' });
is(join(' ', grep { $_ % 2 } some_numbers($next)), '', 'promoted twice: even numbers again');
set_clock($next, 0);
poll('refusal', sub { ($error = sql_error($next, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()")) =~ /55000/ });
like($error, qr/^ERROR:  55000: the node's clock is behind the time that leases start at\nDETAIL:  .*promotion.*\nHINT:  Wait until it shows that time, or correct the clock\./,
	'the clock is set back after a promotion: refused');
$next->safe_psql('postgres', 'SELECT snowflake.ids_end_before(clock_timestamp())');
is(settle('', sub { sql_error($next, "SET snowflake.max_wait = '300ms'; SELECT snowflake_nextval()") }), '',
	'the owner says that no id is that late: ids go on');
is(join(' ', grep { $_ % 2 } some_numbers($next)), '', 'and the numbers are even still');
$_->stop foreach $next, $standby, $primary;

done_testing();
