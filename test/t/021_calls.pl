# 021_calls.pl
#	  Calls of the registry, own or another, that come late, are lost or are cut off: the
#	  helper or the lease worker is ended in the middle of each kind of call, the result of
#	  a call never arrives although it was carried out, calls come in the wrong order; settings
#	  are reloaded while the helper waits.  Ids go on, none repeats, and of each start at most one
#	  row is open and live.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;
use SnowflakeStatement;
use JSON::PP ();
use Time::HiRes qw(time);

# so that commits can wait for a standby
my $synchronous = "wal_level = replica\nmax_wal_senders = 2\n";
my $registry = new_registry('registry', conf => $synchronous);
my $own = auto_node('own', conf => "snowflake.lease_duration = '3s'\n$synchronous");
$own->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake');
my $member = new_member('member', conninfo_of($registry), conf => $synchronous);
my $definition = $own->safe_psql('postgres', 'SELECT definition FROM snowflake_layout()');
my %files = map { $_->name => [ write_ids(issue_ids($_, 100)) ] } $own, $member;

sub tables_of { return $_[0] == $own ? $own : $registry; }

sub check_rows
{
	my ($label, $node) = @_;
	my $port = $node->port;

	is(tables_of($node)->safe_psql('postgres', "SELECT count(*) FROM snowflake.worker_node WHERE port = $port AND closed_at IS NULL"),
		1, "$label: one row is open");
	is(registry_row(tables_of($node), $node, 'node_number'), stat_of($node, 'node_number'), "$label: that of its number");
}

# Calls wait for the registry's row while this holds it.
sub lock_registry
{
	my ($node) = @_;
	my $gate = tables_of($node)->background_psql('postgres');

	$gate->query_safe('BEGIN; SELECT FROM snowflake.registry FOR UPDATE');
	return $gate;
}

sub wait_for_call
{
	my ($node) = @_;

	# a helper, or the session that it has at the registry
	poll('a call that waits', sub { tables_of($node)->safe_psql('postgres', <<'SQL') });
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
	AND (backend_type = 'snowflake helper' OR application_name = 'snowflake lease worker')
SQL
}

#
# A helper that waits, perhaps for hours, reads the settings that are reloaded: a lease is committed with fsync
# as it is now.  What shows here is log_lock_waits.
#
{
	my $patient = auto_node('patient', conf => "log_lock_waits = off\n");
	$patient->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake');
	limit_leases($patient, '2 h');
	my ($line, $caller);

	# when it is raised, the next window is as long: then no call is due
	issue_ids($patient, 1);
	set_and_reload($patient, 'snowflake.lease_duration' => '1h');
	poll('a long lease', sub { issue_ids($patient, 1); stat_of($patient, "leased_until > now() + '30 min'::interval") eq 't' });
	# if another one, which started after the reload, makes the call: once more
	poll('the call of a helper that was there before the reload', sub {
		set_and_reload($patient, log_lock_waits => 'off');
		issue_ids($patient, 1);
		my $pid = wait_for_new_helper($patient);
		my $offset = log_end($patient);
		set_and_reload($patient, log_lock_waits => 'on');
		# the postmaster passes a reload on before it starts the next session
		poll('the setting', sub { $patient->safe_psql('postgres', 'SHOW log_lock_waits') eq 'on' });
		my $gate = $patient->background_psql('postgres');
		$gate->query_safe('BEGIN; LOCK TABLE snowflake.worker_node');
		my $release = start_sql($patient, 'SELECT snowflake_release();');
		poll('the line, or the end of the call', sub { ($line) = log_since($patient, $offset) =~ /LOG:  \w+: process (\d+) still waiting for / or
			log_since($patient, $offset) =~ /could not close the lease/ });
		$caller = $line // helper_pid($patient);
		$gate->query_safe('ROLLBACK');
		$gate->quit;
		finish_sql($release);
		return $caller == $pid;
	});
	is($line, $caller, 'a helper that waited through a reload has the new settings');
	$patient->stop;
}

#
# A helper that cannot connect to the database, since somebody has taken all locks, ends at once: initialized
# again for the next call, it would take the whole server with it when it ends, three seconds later.
#
{
	my $full = auto_node('full', conf => "max_connections = 10\nmax_locks_per_transaction = 10\nautovacuum = off\n");
	$full->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry; CREATE EXTENSION snowflake; CREATE ROLE mallory LOGIN');
	issue_ids($full, 1);
	# later: a new session needs a lock, too
	my $session = $full->background_psql('postgres', on_error_stop => 0);
	my $mallory = $full->background_psql('postgres', on_error_stop => 0, extra_params => [ '-U', 'mallory' ]);
	$session->query_safe("SET snowflake.max_wait = '1min'");
	wait_for_new_helper($full);
	my $offset = log_end($full);

	# the first time the error gives some locks back
	$mallory->query("SELECT count(pg_advisory_lock($_, g)) FROM generate_series(1, 100000) AS g") foreach 1 .. 5;
	$session->query('SELECT snowflake_release()');
	like(log_since($full, $offset), qr/could not close the lease of node number \d+: out of shared memory/, 'all locks are taken: the call fails');
	$mallory->query('SELECT pg_advisory_unlock_all()');
	like(scalar($session->query('SELECT snowflake_nextval()')), qr/^\d+$/, 'all locks were taken: ids go on when they are free');
	wait_for_new_helper($full);
	unlike(log_since($full, $offset), qr/PANIC|terminated by signal|server process|exited with exit code/, 'all locks were taken: no process is lost');
	$_->quit foreach $session, $mallory;
	$full->stop;
}

#
# A fixed number is renewed so often that its helper does not end.  Autovacuum sees what it writes all the same.
#
{
	my $fixed = new_node('fixed');
	issue_ids($fixed, 1);
	my ($pid, $before) = (0);
	my $clients = start_clients($fixed, count => 1, sql => GENTLE);
	poll('the updates of a helper that goes on to be counted', sub {
		my $updates = $fixed->safe_psql('postgres', "SELECT n_tup_upd FROM pg_stat_all_tables WHERE relid = 'snowflake.node_number'::regclass");
		my $now = eval { helper_pid($fixed) } // 0;
		# those of one that has ended are always counted: a look after that is the first
		($pid, $before) = $now == $pid ? ($pid, $before // $updates) : ($now);
		return defined $before && $updates > $before });
	pass('a helper that goes on has its updates counted');
	$clients->stop;
	$fixed->stop;
}

#
# The helper or the lease worker ends while the call is carried out.
#
my $waits = "SET snowflake.max_wait = '1min';\n" . GENTLE;
foreach my $case (map { my $node = $_; map { [ $node, @$_ ] }
	[ 'acquire', 'helper' ], [ 'acquire', 'worker' ], [ 'renew', 'helper' ], [ 'renew', 'worker' ], [ 'release', 'helper' ] } $own, $member)
{
	my ($node, $call, $victim) = @$case;
	my $label = $node->name . ", $call, $victim ends";
	my $offset = log_end($node);

	$node->safe_psql('postgres', 'SELECT snowflake_release()') if $call eq 'acquire';
	my $gate = $call eq 'acquire' ? lock_registry($node) : undef;
	my $clients = start_clients($node, count => 2, sql => $waits);
	$clients->wait_for(300) unless $gate;
	$gate //= lock_registry($node);
	my $release = $call eq 'release' ? $node->background_psql('postgres', on_error_stop => 0) : undef;
	$release->query_until(qr/asked/, "\\echo asked\nSELECT snowflake_release();\n") if $release;
	wait_for_call($node);
	my $cancels = $node == $member && $victim eq 'helper';
	# one that does not end by itself meanwhile, after 3.5 s
	poll('a call that has just begun', sub { $registry->safe_psql('postgres', <<'SQL') }) if $cancels;
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'snowflake lease worker'
	AND clock_timestamp() - query_start < '1 s'
SQL
	my $before = log_end($registry);
	my $pid = $victim eq 'helper' ? helper_pid($node) : worker_pid($node);
	kill 'TERM', $pid or die "kill: $!";
	poll("end of $victim $pid", sub { !kill 0, $pid });
	is(poll('the call to end at the registry', sub { log_since($registry, $before) =~ /canceling statement due to (.*)/ && $1 }),
		'user request', "$label: the call is cancelled") if $cancels;
	$gate->query_safe('COMMIT');
	$gate->quit;
	$release->quit if $release;
	$clients->wait_for(300);
	push @{ $files{ $node->name } }, $clients->stop;
	is($clients->errors, '', "$label: sessions notice nothing");
	check_rows($label, $node);
	unlike(log_since($node, $offset), qr/PANIC|terminated by signal|server process/, "$label: nothing else has ended");
}
check_covered('cut off', $own, 'postgres', 12, 1023, @{ $files{own} });
check_covered('cut off', $registry, 'postgres', 12, 1023, @{ $files{member} });

#
# The result never arrives, and the call is carried out later: the commit waits for a
# standby until its call is given up.
#
foreach my $node ($own, $member)
{
	my $tables = tables_of($node);
	my $name = $node->name;

	# a renewal: the ids end with the lease
	my $clients = start_clients($node, count => 2, sql => GENTLE);
	$clients->wait_for(300);
	my $number = stat_of($node, 'node_number');
	set_and_reload($tables, synchronous_standby_names => 'nobody');
	poll('the lease to end', sub { stat_of($node, 'leased_until < clock_timestamp()') eq 't' });
	poll('the call to be given up', sub { stat_of($node, 'lease_failures > 0') eq 't' }) if $node == $member;
	set_and_reload($tables, synchronous_standby_names => '');
	$clients->wait_for(300);
	push @{ $files{$name} }, $clients->stop;
	is(stat_of($node, 'node_number'), $number, "$name, a renewal is lost: the lease goes on");
	check_rows("$name, a renewal is lost", $node);

	# a lease that the server never had
	$node->safe_psql('postgres', 'SELECT snowflake_release(), pg_stat_snowflake_reset()');
	my $rows = $tables->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE port = ' . $node->port);
	set_and_reload($tables, synchronous_standby_names => 'nobody');
	like((nextval_error($node, '2500ms'))[0], qr/^ERROR:  55P03: no answer yet/, "$name, a lease is lost: no id meanwhile");
	if ($node == $member)
	{
		poll('the call to be given up', sub { stat_of($node, 'lease_failures > 0') eq 't' });
	}
	else
	{
		my $pid = poll('the helper', sub { $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'") });
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
		poll('its end', sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' });
	}
	set_and_reload($tables, synchronous_standby_names => '');
	push @{ $files{$name} }, write_ids(issue_ids($node, 100));
	cmp_ok($tables->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE port = ' . $node->port), '>=', $rows + 2,
		"$name, a lease is lost: it was granted all the same, and then another one");
	check_rows("$name, a lease is lost", $node);
}

#
# Calls with the number of one that was carried out, as if they came late.
#
my %acquire = (
	kind => 'server', host_name => 'fake', system_identifier => 1, timeline => 1, launched_at => 0,
	window => 3_000_000, first_number => 0, last_number => 1022, fixed => JSON::PP::false);

sub call_sql
{
	my ($function, $start, $call, %keys) = @_;

	return "SELECT snowflake.$function('" . JSON::PP->new->canonical->encode({
		protocol => 1, start => $start, call => $call + 0, clock => int(time * 1e6), max_ahead => 1_000_000, layout => $definition, %keys }) . "')";
}

foreach my $node ($own, $member)
{
	my $name = $node->name;
	my $tables = tables_of($node);
	$node->safe_psql('postgres', 'SELECT snowflake_release()');
	push @{ $files{$name} }, write_ids(issue_ids($node, 10));
	my $number = stat_of($node, 'node_number');

	# a lease is renewed by a later call than the one that was granted it
	poll('renewal', sub { issue_ids($node, 1); registry_row($tables, $node, 'last_call > granted_by') eq 't' });

	# it makes no call meanwhile, once the helper has finished
	my $worker = worker_pid($node);
	kill 'STOP', $worker or die "kill: $!";
	sleep 1;
	my ($start, $call, $token, $granted_by, $until, $incarnation, $generation, $microseconds) = split /\|/,
	  registry_row($tables, $node, 'start, last_call, token, granted_by, leased_until, incarnation, generation, snowflake.microseconds(leased_until)');
	my $function = $node == $own ? 'acquire_own_lease' : 'acquire_lease';
	my %lease = (token => $token, granted_by => $granted_by + 0, node_number => $number + 0, incarnation => $incarnation,
		generation => $generation + 0, leased_until => $microseconds + 0);
	my %late = (
		acquire => call_sql($function, $start, $call, %acquire, port => $node->port + 0),
		renew => call_sql('renew_lease', $start, $call, lease => \%lease, window => 3_600_000_000),
		release => call_sql('release_lease', $start, $call, lease => { %lease, ids_end_at => int(time * 1e6) }));

	my $offset = log_end($tables);
	foreach my $kind (sort keys %late)
	{
		my $answer = JSON::PP::decode_json($tables->safe_psql('postgres', $late{$kind}));

		is(join(' ', @$answer{ 'answer', 'sqlstate', 'message', 'wait' }), "refused 55000 call $call of this start arrived too late 0", "$name, late $kind: refused");
		like($answer->{detail}, qr/ call $call /, "$name, late $kind: the detail has the last call");
	}
	unlike(log_since($tables, $offset), qr/too late/, "$name, late calls: nothing for the log");
	is(registry_row($tables, $node, 'token, leased_until, closed_at IS NULL'), "$token|$until|t", "$name, late calls: the row is as it was");

	# a lease that was granted to this start, of which it knows nothing, with the number that its next call has
	$call++;
	my $stray = $tables->safe_psql('postgres', call_sql($function, $start, $call, %acquire, port => $node->port + 0) . " -> 'node_number'");
	is($tables->safe_psql('postgres', "SELECT closed_at IS NOT NULL, leased_until = '$until' FROM snowflake.worker_node WHERE token = '$token'"),
		't|t', "$name, a call out of nowhere: the lease is closed where it ends");
	kill 'CONT', $worker or die "kill: $!";
	set_and_reload($node, 'snowflake.lease_duration' => '3s');
	# its next call is refused, as one that came late; the one after it is not
	poll('the next number', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' && stat_of($node, 'node_number') !~ /^($number)?$/ });
	push @{ $files{$name} }, write_ids(issue_ids($node, 10));
	isnt(stat_of($node, 'node_number'), $stray, "$name, a call out of nowhere: the server does not use what it got");
	check_rows("$name, a call out of nowhere", $node);
}

#
# The server is killed while it asks.
#
my $gate = lock_registry($member);
$member->safe_psql('postgres', 'SELECT 1');
$member->stop('immediate');
$member->start;
my ($error) = nextval_error($member, '300ms');
like($error, qr/^ERROR:  55P03: /, 'killed: no id without the registry');
wait_for_call($member);
crash($member);
$gate->query_safe('COMMIT');
$gate->quit;
$member->start;
push @{ $files{member} }, write_ids(issue_ids($member, 100));
is(registry_row($registry, $member, 'launched_at = ' . "'" . $member->safe_psql('postgres', 'SELECT pg_postmaster_start_time()') . "'"), 't',
	'killed: the newest row is of the last start');

#
# A call of the own tables does not answer: not the registry is named.
#
$member->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'");
$member->restart;
poll('an error', sub { ($error) = nextval_error($member, '2500ms'); $error !~ /gave up waiting/ });
like($error, qr/^ERROR:  55P03: no answer yet from the registry postgres$/m, 'a start waits for a standby of the own tables: they are named');
$member->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$member->reload;

#
# The server is stopped during a renewal: that is broken off, and the lease is ended.  On a busy machine the stop may
# not have the time: once more.
#
my $closed = poll('a release during the stop', sub {
	push @{ $files{member} }, write_ids(issue_ids($member, 100));
	my $row = registry_row($registry, $member, 'token');
	my $gate = lock_registry($member);
	wait_for_call($member);
	my $stop = IPC::Run::start([ 'pg_ctl', '-D', $member->data_dir, '-m', 'fast', '-w', 'stop' ], '>', \my $out, '2>', \my $err);
	my $released = poll('the release, or the end', sub {
		$registry->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%release_lease%'")
			|| !-e $member->data_dir . '/postmaster.pid' && 'end' });
	$gate->query_safe('COMMIT');
	$gate->quit;
	$stop->finish;
	$member->_update_pid(0);
	my $is_closed = $registry->safe_psql('postgres', "SELECT closed_at IS NOT NULL FROM snowflake.worker_node WHERE token = '$row'");
	$member->start;
	return $released ne 'end' && $is_closed eq 't' });
ok($closed, 'stopped during a renewal: the lease is ended');

check_covered('all', $own, 'postgres', 12, 1023, @{ $files{own} });
check_covered('all', $registry, 'postgres', 12, 1023, @{ $files{member} });
check_ids("all of $_", split_ids(12, 1023, @{ $files{$_} })) foreach sort keys %files;
$_->stop foreach $own, $member, $registry;

done_testing();
