# 038_shown.pl
#	  Without a registry: crashes of a backend use few numbers; an extension that was created
#	  while the clock was ahead, and one that was created again after the clock was ahead, say
#	  what to do; an owner of the extension that is no superuser gains nothing by other lease
#	  functions; a fixed number goes on soon after a crash; two standbys that are promoted
#	  choose at random.
#	  All lines that our processes log begin with "snowflake: ", but for those of the server
#	  itself, which have the process's name from %b of log_line_prefix.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeStatement;
use File::Spec;
use Time::HiRes qw(time usleep);

use constant HOUR => 3600;
use constant TEN_YEARS => 10 * 365 * 86400;

# The wall clock of all processes is that of the machine and some seconds.
my $library = build_library('shift', slurp_file("$FindBin::RealBin/../torture/shift.c"));
my $shift_file = write_ids();

sub shift_clock
{
	my ($seconds) = @_;

	open my $file, '+<', $shift_file or die "$shift_file: $!";
	syswrite $file, pack('q', $seconds * 1_000_000_000);
	close $file or die "$shift_file: $!";
}

my $node = auto_node('own', start => 0, init => [ allows_streaming => 1 ], conf => <<'EOS');
log_line_prefix = '%n [%p] %b '
restart_after_crash = on
log_lock_waits = on
deadlock_timeout = '200ms'
snowflake.max_wait = '10s'
snowflake.lease_duration = '1h'
EOS
shift_clock(0);
start_with($node, $library, SHIFT_FILE => $shift_file);

# The code of the error, its message and its hint.
sub error_of_nextval
{
	my ($code, $message, $hint) = sql_error($node, 'SELECT snowflake_nextval()') =~ /ERROR:  (\w+): (.*)\n(?s:.*)HINT:  (.*)/;

	return defined $code ? "$code|$message|$hint" : '';
}

#
# Created while the clock was an hour ahead
#
my $created_ahead = '55000|the node\'s clock is behind the creation of the extension|Correct the clock. If that of the registry was ahead when the extension '
  . 'was created, see "A clock that was ahead" in doc/operations.md.';

shift_clock(HOUR);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE EXTENSION snowflake_registry');
# it asks for a lease, and does not wait for it
like(sql_error($node, "SET snowflake.max_wait = 0; SELECT snowflake_nextval()"), qr/55P03/, 'created while the clock was ahead: no id yet');
poll('a lease', sub { stat_of($node, 'leased_until IS NOT NULL') eq 't' });
shift_clock(0);
is(settle($created_ahead, \&error_of_nextval), $created_ahead, 'created while the clock was ahead: error');
$node->safe_psql('postgres', 'SELECT snowflake.ids_end_before(clock_timestamp())');
is(settle('', \&error_of_nextval), '', 'the owner says that no id is that late: ids are issued');
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry');
is(error_of_nextval(), '', 'created again: ids are issued');

#
# Ids of ten years ahead, and the extension created again
#
my $known_ids = '55000|the node\'s clock is behind ids that the registry does not know of|'
  . 'Correct the clock, or wait until it shows that time. If these ids are gone, restart the node. If they are from '
  . 'before its move to this registry, see "Another registry" in doc/operations.md.';
my @files = write_ids(issue_ids($node, 100));

shift_clock(TEN_YEARS);
push @files, write_ids(issue_ids($node, 100));
cmp_ok(id_time((read_ids($files[-1]))[-1]) - time, '>', TEN_YEARS - 60, 'ids of ten years ahead');
shift_clock(0);
push @files, write_ids(my @ids = issue_ids($node, 100));
cmp_ok(abs(id_time($ids[-1]) - time), '<', 30, 'the clock is right again: auto goes on');
check_ids('ten years ahead and back', split_ids(12, 1023, @files));
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry; CREATE EXTENSION snowflake_registry');
is(settle($known_ids, \&error_of_nextval), $known_ids, 'created again: the server knows of ids that are later');
$node->restart;
is(error_of_nextval(), '', 'restarted: ids are issued');

#
# Crashes
#
# Kills its backend by itself.  Returns the id that it got first, or the error.
sub crash_backend
{
	my ($out, $error) = ('', '');

	IPC::Run::run([ $node->installed_command('psql'), '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $node->connstr('postgres'),
			'-c', 'SELECT snowflake_nextval()', '-c', q{COPY (SELECT) TO PROGRAM 'kill -9 $PPID'} ],
		'<', \undef, '>', \$out, '2>', \$error);
	return $out =~ /^(\d+)$/m ? $1 : $error =~ /ERROR:  (.*)/ ? $1 : '';
}

my $before = $node->safe_psql('postgres', 'SELECT array_agg(token) FROM snowflake.worker_node');
@ids = ();
while (@ids < 34)
{
	push @ids, poll('an answer', \&crash_backend);
	last if $ids[-1] !~ /^\d+$/;
}
is(join(',', grep { !/^\d+$/ } @ids), '', '34 crashes: ids go on at once');
poll('the server', sub { accepts_connections($node) });
issue_ids($node, 1);
# A server that took longer to crash has renewed its lease, once a quarter was used, for twice as long.  Of leases that
# are closed by now it is not known.
is($node->safe_psql('postgres', "SELECT count(DISTINCT node_number) >= 34,
		bool_and(leased_until - greatest(renewed_at, starts_at) <= '11 s' + more) FILTER (WHERE closed_at IS NULL),
		count(*) FILTER (WHERE leased_until > clock_timestamp()) <= 1 + count(*) FILTER (WHERE renewed_at > clock_timestamp() - '12 s'::interval - more)
		FROM ${\ LEASES} AS w, LATERAL (SELECT CASE WHEN last_call > granted_by THEN 4 * (renewed_at - launched_at) ELSE '0' END) AS renewed (more)
		WHERE token <> ALL ('$before')"), 't|t|t', '34 crashes: each number is in use for ten seconds');
check_ids('34 crashes', split_ids(12, 1023, write_ids(@ids), $files[0], $files[2]));

#
# An owner that is no superuser
#
$node->safe_psql('postgres', <<'SQL');
DROP EXTENSION snowflake_registry;
CREATE ROLE creator SUPERUSER;
CREATE ROLE plain LOGIN;
SET ROLE creator;
CREATE EXTENSION snowflake_registry;
RESET ROLE;
REASSIGN OWNED BY creator TO plain;
GRANT CREATE ON SCHEMA public TO plain;
SQL
is($node->safe_psql('postgres', "SELECT extowner::regrole FROM pg_extension WHERE extname = 'snowflake_registry'"), 'plain', 'the extension is given away');
like(sql_error($node, "SET snowflake.max_wait = '2s'; SELECT snowflake_nextval()"), qr/permission denied for function pg_replication_origin_session_is_setup/,
	'an owner needs rights that superusers have');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION pg_replication_origin_session_is_setup() TO plain');
issue_ids($node, 1);
poll('renewal', sub { issue_ids($node, 1); stat_of($node, 'lease_renewals') > 0 });
$node->safe_psql('postgres', 'SELECT snowflake_release()');
is(newest_row($node, "closed_at IS NOT NULL AND leased_until < clock_timestamp() + '2 s'"), 't',
	'an honest owner: leases are granted, renewed and released');
is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.cluster'), 1, 'and the use of the own tables is recorded');

# As plain; what a call finds when it begins, and what comes of each attempt.
my $touched = File::Spec->rel2abs(write_ids() . '.touched');
sub as_owner
{
	my ($sql) = @_;
	my $session = run_sql($node, $sql, 'postgres', 'plain');

	die $session->{error} if $session->{error} =~ /ERROR/;
	return $session->{out};
}
my @statements = (
	'ALTER ROLE plain SUPERUSER',
	'CREATE ROLE more SUPERUSER',
	'GRANT pg_execute_server_program TO plain',
	"COPY (SELECT) TO PROGRAM 'touch $touched'",
	"COPY (SELECT) TO '$touched'",
	'SET ROLE creator',
	'SET LOCAL ROLE creator',
	'RESET ROLE',
	'SET SESSION AUTHORIZATION creator',
	'RESET SESSION AUTHORIZATION',
	"SELECT set_config('role', 'none', false)",
	"SELECT set_config('session_authorization', 'creator', false)",
	'CREATE TEMP TABLE t (i int)',
	'CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION public.attempt_later()',
	"CREATE FUNCTION public.c() RETURNS void LANGUAGE c AS '\$libdir/snowflake'",
	'DECLARE c CURSOR WITH HOLD FOR SELECT public.attempt_all()',
	'PREPARE p AS SELECT 1',
	'INSERT INTO public.later VALUES (1)',		# its trigger is deferred
	"SET session_replication_role = 'replica'",
	"SET log_min_messages = 'panic'");
my %settings = (synchronous_commit => 'off', lock_timeout => '1ms', statement_timeout => '1ms', default_transaction_read_only => 'on',
	default_transaction_isolation => 'serializable', search_path => 'public', idle_in_transaction_session_timeout => '1ms',
	'snowflake.max_wait' => '0', row_security => 'off', transform_null_equals => 'on');

as_owner(<<'SQL' . join '', map { "INSERT INTO attempts (statement) VALUES (\$x\$$_\$x\$);\n" } @statements);
CREATE TABLE attempts (statement text PRIMARY KEY, result text);
CREATE TABLE found (pid int, function text, settings text);
CREATE TABLE later (i int);
CREATE FUNCTION attempt_later() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN EXECUTE ''ALTER ROLE plain SUPERUSER''; RETURN NULL; END';
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION attempt_later();
SQL
as_owner(<<SQL);
CREATE FUNCTION attempt_all() RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE
	this text;
BEGIN
	FOR this IN SELECT a.statement FROM public.attempts AS a WHERE a.result IS NULL LOOP
		BEGIN
			EXECUTE this;
			UPDATE public.attempts SET result = 'done, as ' || current_user WHERE statement = this;
		EXCEPTION WHEN OTHERS THEN
			UPDATE public.attempts SET result = SQLSTATE || ' ' || SQLERRM WHERE statement = this;
		END;
	END LOOP;
	@{[ join '', map { "PERFORM set_config('$_', '$settings{$_}', false);\n" } sort keys %settings ]}
END \$\$;
SQL
# In place of the lease functions: what the owner likes, then what they do.
as_owner(<<'SQL' =~ s/SETTINGS/join q(, ), map { "'$_'" } sort keys %settings/er);
DO $$
DECLARE
	f record;
BEGIN
	FOR f IN SELECT p.oid::regprocedure AS signature, p.proname, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
			(SELECT string_agg(format('%1$I => %2$I.%1$I', a.name, p.proname), ', ' ORDER BY nr) FROM unnest(p.proargnames) WITH ORDINALITY AS a (name, nr) WHERE nr <= p.pronargs) AS call
		FROM pg_proc AS p WHERE p.pronamespace = 'snowflake'::regnamespace AND p.proname IN ('grant_lease', 'renew_lease', 'release_lease')
	LOOP
		EXECUTE format('ALTER FUNCTION %s RENAME TO %I', f.signature, 'honest_' || f.proname);
		EXECUTE format($x$CREATE FUNCTION snowflake.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$
			BEGIN
				INSERT INTO public.found SELECT pg_backend_pid(), %L, string_agg(n || '=' || current_setting(n), ' ') FROM unnest(ARRAY[SETTINGS]) AS n;
				PERFORM public.attempt_all();
				%s;
			END $f$ $x$, f.proname, f.arguments, f.result, f.proname,
			'RETURN snowflake.honest_' || f.proname || '(' || f.call || ')');
	END LOOP;
END $$;
SQL
# The second call of a helper, at the latest the third, is made by one that had another.
for (1 .. 2)
{
	issue_ids($node, 1);
	$node->safe_psql('postgres', 'SELECT snowflake_release()');
}
issue_ids($node, 1);
poll('renewal', sub { issue_ids($node, 1); $node->safe_psql('postgres', "SELECT count(*) FROM found WHERE function = 'renew_lease'") > 0 });
my %results = map { split /\|/, $_, 2 } split /\n/, $node->safe_psql('postgres', 'SELECT statement, result FROM attempts ORDER BY 1');
foreach my $statement (sort keys %results)
{
	like($results{$statement}, qr/^(?:42501|0A000|55P02|57P0.|2BP01) /, "owner: $statement");
}
is(join(',', map { $_ // '' } (-e $touched ? 'touched' : ''),
		$node->safe_psql('postgres', "SELECT rolname FROM pg_roles WHERE rolsuper AND rolname NOT IN ('creator', current_user)")), ',', 'owner: nothing gained');
is($node->safe_psql('postgres', 'SELECT count(DISTINCT (function, settings)) - count(DISTINCT function), count(DISTINCT pid) < count(*) FROM found'),
	'0|t', 'owner: settings do not outlive a call');
is($node->safe_psql('postgres', "SELECT bool_and(settings ~ 'synchronous_commit=on' OR function = 'release_lease') FROM found"), 't',
	'owner: leases are committed durably');
# A deferred trigger on the table of leases itself.
as_owner('CREATE CONSTRAINT TRIGGER later AFTER UPDATE ON snowflake.node_number DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION attempt_later()');
$node->safe_psql('postgres', 'SELECT snowflake_release()');
like(sql_error($node, "SET snowflake.max_wait = '2s'; SELECT snowflake_nextval()"), qr/ERROR:  \w+: cannot fire deferred trigger within security-restricted operation/,
	'owner: a deferred trigger fails');
as_owner('DROP TRIGGER later ON snowflake.node_number');
is(settle('', \&error_of_nextval), '', 'owner: without it ids are issued');
is($node->safe_psql('postgres', "SELECT rolsuper FROM pg_roles WHERE rolname = 'plain'"), 'f', 'owner: no superuser');
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_registry CASCADE; CREATE EXTENSION snowflake_registry');
@files = write_ids(issue_ids($node, 1));

# The log of a call that waits for a lock, too.
my $locker = start_sql($node, "BEGIN; SELECT FROM snowflake.registry FOR UPDATE; SELECT pg_sleep(1);");
poll('lock', sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") });
$node->psql('postgres', 'SELECT snowflake_release()');
finish_sql($locker);

#
# Two standbys are promoted
#
$node->backup('standby');
my @standbys = map {
	my $standby = PostgreSQL::Test::Cluster->new("standby$_");
	$standby->init_from_backup($node, 'standby', has_streaming => 1);
	$standby->start;
	$standby } 1, 2;

#
# A fixed number after kill -9
#
set_and_reload($node, 'snowflake.worker_id' => 1);
poll('number 1', sub { id_node((issue_ids($node, 1))[0]) == 1 });
my $waited;
# again where a busy machine takes longer
poll('a first id within 8 s', sub {
		my $clients = start_clients($node, count => 2);
		$clients->wait_for(1000);
		crash($node);
		push @files, $clients->stop;
		my $offset = log_end($node);
		$node->start;
		push @files, write_ids(issue_ids($node, 1));
		my $done = time;
		my ($ready) = log_since($node, $offset) =~ /^(\S+) .*database system is ready to accept connections/m;
		($waited = $done - $ready) < 8 });
cmp_ok($waited, '<', 8, "a fixed number after kill -9: the first id after @{[ sprintf '%.1f', $waited ]} s");
check_ids('a fixed number after kill -9', split_ids(12, 1023, @files));
$node->stop;

my @numbers = map { $_->promote; id_node((issue_ids($_, 1))[0]) } @standbys;
is(join(',', map { $_ & 1 } @numbers), '1,1', "two standbys promoted: both have odd numbers, here @numbers");
my @trials = map { [ split /\n/, $_->safe_psql('postgres', <<'SQL') ] } @standbys;
SELECT snowflake.acquire_lease(jsonb_build_object('protocol', 1, 'start', gen_random_uuid(), 'call', 1, 'kind', 'program', 'name', 'p', 'host_name', 'h',
	'launched_at', us, 'clock', us, 'max_ahead', 1001000, 'window', 1000000, 'first_number', 0, 'last_number', 1022, 'fixed', false,
	'layout', (SELECT layout FROM snowflake.cluster))) -> 'node_number'
FROM generate_series(1, 30), LATERAL (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS t (us)
SQL
cmp_ok(scalar(grep { $trials[0][$_] != $trials[1][$_] } 0 .. 29), '>', 20, 'two standbys promoted: they choose at random');
$_->stop foreach @standbys;

#
# The log
#
my @lines = map { slurp_file($_->logfile) =~ /^(\S+ \[\d+\] snowflake (?:helper|lease worker) (?!DETAIL|HINT|QUERY|CONTEXT|LOCATION|STATEMENT)[A-Z]+:  .*)/mg } $node, @standbys;
cmp_ok(scalar(@lines), '>', 40, 'lines of our processes in the log');
like(join("\n", @lines), qr/ snowflake helper LOG:  00000: process \d+ still waiting for /, 'also those of the server');
is(join("\n", grep { !/^[^:]+:  \w{5}: (?:snowflake: |process \d+ (?:still waiting for|acquired) )/ } @lines), '', 'the others begin with "snowflake: "');

done_testing();
