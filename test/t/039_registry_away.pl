# 039_registry_away.pl
#	  The registry does not answer, while a session asks for ids all the time: at most
#	  one call a second, one line in the log when it begins and one when it is over, and its
#	  address is not for everybody.  A host name whose look-up takes for ever holds up
#	  neither DROP DATABASE nor a stop of the server, nor a start after a crash, and leaves no
#	  process behind.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;
use SnowflakeStatement;
use File::Spec;
use IO::Select;
use IO::Socket::UNIX;
use Time::HiRes qw(time);

# Looks up one name for a long time; before that it notes the process.
my $library = build_library('slow_resolver', <<'EOS');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
	if (node != NULL && strcmp(node, "slow.invalid") == 0)
	{
		FILE	   *file = fopen(getenv("SLOW_RESOLVER"), "a");

		fprintf(file, "%d\n", (int) getpid());
		fclose(file);
		sleep(600);
		return EAI_AGAIN;
	}
	return ((__typeof__(&getaddrinfo)) dlsym(RTLD_NEXT, "getaddrinfo"))(node, service, hints, result);
}
EOS
my $resolving = File::Spec->rel2abs(write_ids());

my $registry = new_registry('registry');
my $name = name_of($registry);
my $node = new_member('node', conninfo_of($registry), start => 0, conf => <<'EOS');
log_line_prefix = '%n [%p] %b '
max_worker_processes = 10
EOS
start_with($node, $library, SLOW_RESOLVER => $resolving);
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION snowflake;
CREATE ROLE plain LOGIN;
CREATE ROLE reader LOGIN IN ROLE pg_read_all_stats;
CREATE ROLE releaser LOGIN;
GRANT EXECUTE ON FUNCTION snowflake_release() TO releaser;
SQL
issue_ids($node, 1);

#
# Nobody answers at its address
#
my $offset = log_end($node);
my $clients = start_clients($node, count => 1, sql => GENTLE . "\nSET snowflake.max_wait = '50ms';");
$clients->wait_for(200);
$registry->stop('fast');
my $path = $registry->host . '/.s.PGSQL.' . $registry->port;
my $listener = IO::Socket::UNIX->new(Local => $path, Listen => 10) or die "$path: $!";
my $select = IO::Select->new($listener);
my @calls;
my $start = time;

while (time - $start < 7 || @calls < 4 && time - $start < 180)
{
	next unless $select->can_read(0.1);
	$listener->accept->close;
	push @calls, time;
}
my $seconds = time - $start;
cmp_ok(scalar(@calls), '<=', $seconds + 2, 'a session asks all the time: at most one call a second');
cmp_ok(scalar(@calls), '>=', 4, 'and calls are made');
close $listener;
unlink $path;

# What an error shows, and the view, to whom.
my $address = join '|', map { quotemeta } $registry->host, ':' . $registry->port;
wait_for_state($node, 'expired');
like(settle_error('plain'), qr/^ERROR:  55P03: could not get a node number from the registry\nDETAIL:  Members of pg_read_all_stats can see the reason\.\nHINT:  See pg_stat_snowflake and the server's log\. Ids go on by themselves when the cause is gone\.$/m,
	'ordinary role: error');
like(settle_error('reader'), qr/^ERROR:  55P03: could not reach the registry \Q$name\E\nDETAIL:  /m, 'member of pg_read_all_stats: error');
my %seen;
foreach my $user (qw(plain reader releaser))
{
	foreach my $sql ('SELECT * FROM pg_stat_snowflake', 'SHOW snowflake.registry', "SELECT * FROM pg_settings WHERE name ~ 'snowflake'",
		'SELECT snowflake_nextval()', 'SELECT snowflake_release()')
	{
		my $session = run_sql($node, "SET snowflake.max_wait = '10ms'; $sql", 'postgres', $user);

		$seen{$user} .= $session->{out} . $session->{error};
	}
}
like($seen{reader}, qr/\Q$name\E/, 'member of pg_read_all_stats: the view has the address');
unlike($seen{plain}, qr/$address/, 'ordinary role: nothing has the address');
like($seen{releaser}, qr/WARNING:  (?:\w+: )?the registry was not told that the lease has ended/, 'a role that may release the number: a warning');
unlike($seen{releaser}, qr/$address/, 'which does not tell the address');

sub settle_error
{
	my ($user) = @_;
	my $error;

	poll('the reason', sub {
			$error = run_sql($node, "SET snowflake.max_wait = '10ms'; SELECT snowflake_nextval()", 'postgres', $user)->{error};
			return $error !~ /no answer yet|gave up/ });
	return $error;
}

$registry->start;
$clients->wait_for(200);
$clients->stop;
my $log = log_since($node, $offset);
# a busy machine is late besides, and has a call under way when the registry stops
my @away = grep { !/no answer yet|terminating connection/ } $log =~ /^\S+ \[\d+\] snowflake lease worker WARNING:  \w{5}: (.*)/mg;
is($away[0], "snowflake: could not reach the registry $name", 'a line says that the registry is away');
cmp_ok(scalar(@away), '<=', 1 + (time - $start) / 60, 'once, or once a minute');
poll('the end', sub { log_since($node, $offset) =~ /ready again/ });
# a busy machine is late besides
$log = log_since($node, $offset) =~ s/^.* WARNING:  \w{5}: snowflake: no answer yet(?:(?! WARNING: ).*\n)*?.*: ready again\n//mgr;
is(scalar(() = $log =~ / LOG:  00000: snowflake: ready again$/mg), 1, 'and a line that it is over');

#
# A release that the registry is not told
#
issue_ids($node, 1);
$registry->stop('fast');
like(run_sql($node, 'SELECT snowflake_release()', 'postgres')->{error}, qr/^WARNING:  (?:\w+: )?the registry was not told that the lease has ended\nDETAIL:  .*\nHINT:  /,
	'a release while the registry is away: a warning');
$registry->start;
issue_ids($node, 1);
is(run_sql($node, 'SELECT snowflake_release()', 'postgres')->{error}, '', 'a release while the registry is there: no warning');
issue_ids($node, 1);

#
# The first of two hosts does not answer, though something listens there
#
my ($host, $port) = ($registry->host, $registry->port);
my $dead = IO::Socket::UNIX->new(Local => "$host/.s.PGSQL.1", Listen => 100) or die $!;
set_and_reload($node, 'snowflake.registry' => conninfo_of($registry, host => "$host,$host", port => "1,$port"));
$node->safe_psql('postgres', 'SELECT snowflake_release()');
ok(poll('ids', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' }), 'the second of two hosts is reached');
set_and_reload($node, 'snowflake.registry' => conninfo_of($registry));
close $dead;

#
# A host name whose look-up hangs
#
sub is_alive
{
	return SnowflakeTest::is_alive($_[0]);
}

sub resolving
{
	return poll('a process that looks up the name', sub { (grep { is_alive($_) } read_ids($resolving))[-1] });
}

$node->safe_psql('postgres', 'CREATE DATABASE other');
set_and_reload($node, 'snowflake.registry' => 'host=slow.invalid');
my $waiting = start_clients($node, count => 1, sql => "SET snowflake.max_wait = '60s'; SELECT snowflake_nextval();");
resolving();
$node->safe_psql('postgres', 'CHECKPOINT');
$start = time;
$node->safe_psql('postgres', 'DROP DATABASE other');
cmp_ok(time - $start, '<', 120, sprintf 'DROP DATABASE while a look-up hangs: %.1f s', time - $start);
my @children = (resolving(), SnowflakeTest::children($node->{_pid}));
$start = time;
$node->stop('fast');
cmp_ok(time - $start, '<', 120, sprintf 'stop while a look-up hangs: %.1f s', time - $start);
is(join(',', grep { is_alive($_) } @children, read_ids($resolving)), '', 'no process is left behind');
start_with($node, $library, SLOW_RESOLVER => $resolving);
my $hanging = resolving();
$node->stop('immediate');
ok(poll('its end', sub { !is_alive($hanging) }), 'nor by an immediate stop');

# If the helper is killed, nobody kills its child.
start_with($node, $library, SLOW_RESOLVER => $resolving);
poll('a helper', sub {
		$hanging = resolving();
		my ($parent) = (eval { slurp_file("/proc/$hanging/stat") } // '') =~ /^\d+ \(.*\) \S (\d+) /s;
		return $parent && $parent != 1 && kill 9, $parent });
SnowflakeTest::wait_for_end($node);
start_with($node, $library, SLOW_RESOLVER => $resolving);
is($node->safe_psql('postgres', 'SELECT 1'), 1, 'a server starts while a look-up of its last start hangs');
ok(poll('its end', sub { !is_alive($hanging) }), 'which ends by itself');
$node->stop('fast');
$waiting->stop;
$registry->stop;

#
# The log
#
my @lines = slurp_file($node->logfile) =~ /^(\S+ \[\d+\] snowflake (?:helper|lease worker) (?!DETAIL|HINT|QUERY|CONTEXT|LOCATION|STATEMENT)[A-Z]+:  .*)/mg;
cmp_ok(scalar(@lines), '>', 5, 'lines of our processes in the log');
is(join("\n", grep { !/^[^:]+:  \w{5}: snowflake: / } @lines), '', 'all begin with "snowflake: "');

done_testing();
