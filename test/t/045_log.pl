# 045_log.pl
#	  The log has a line when a trouble begins and one when it is over: a full disk, a clock
#	  that is behind and no other number, a setting that cannot work, clocks that differ, leases that a
#	  registry cuts, a standby that would issue no ids after a promotion.  What
#	  happens again and again is logged twenty times within a minute: leases that are taken and
#	  given back, steps of the clock, trouble that comes and goes.  The end of a layout
#	  is announced once a day.  (039 has a registry that is away.)
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;
use File::Spec;

# There is no room for another page of a table or an index while the file is there.
my $library = build_library('full_disk', <<'EOS');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int
is_full(int fd, off_t end)
{
	char		name[64],
				path[4096];
	struct stat file;
	ssize_t		length;

	if (access(getenv("FULL_DISK"), F_OK) != 0)
		return 0;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	length = readlink(name, path, sizeof(path) - 1);
	path[length < 0 ? 0 : length] = '\0';
	return strstr(path, "/base/") != NULL && fstat(fd, &file) == 0 && end > file.st_size;
}

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))
#define NO_ROOM (errno = ENOSPC, -1)

#define WRITE(name) \
ssize_t name(int fd, const void *data, size_t size, off_t offset) \
{ return is_full(fd, offset + (off_t) size) ? NO_ROOM : REAL(name)(fd, data, size, offset); }
#define WRITE_VECTOR(name) \
ssize_t name(int fd, const struct iovec *data, int count, off_t offset) \
{ return is_full(fd, offset + 1) ? NO_ROOM : REAL(name)(fd, data, count, offset); }
#define ALLOCATE(name) \
int name(int fd, off_t offset, off_t size) \
{ return is_full(fd, offset + size) ? ENOSPC : REAL(name)(fd, offset, size); }

WRITE(pwrite)
WRITE(pwrite64)
WRITE_VECTOR(pwritev)
WRITE_VECTOR(pwritev64)
ALLOCATE(posix_fallocate)
ALLOCATE(posix_fallocate64)
EOS
my $full = File::Spec->rel2abs(write_ids());

unlink $full or die "$full: $!";

# The messages of our processes since then that match.
sub messages
{
	my ($node, $offset, $pattern) = @_;

	return grep { /$pattern/ } log_since($node, $offset) =~ /^.*? [A-Z]+:  \w{5}: snowflake: (.*)/mg;
}

sub number_of
{
	return scalar(() = messages(@_));
}

# Calls of a busy machine can be late, which is a trouble of its own.
sub troubles
{
	my ($node, $offset) = @_;
	my $lines = join '', map { "$_\n" } messages($node, $offset, qr/^(?:could not extend file|no answer yet|ready again)/);

	return $lines =~ s/^no answer yet.*\n(?:ready again.*\n)?//mgr;
}

# The worker counts lines from the first one on, for a minute.  Starts a worker, and has a sub do
# its work until that was done in so short a time; returns where the log was then.
sub within_a_minute
{
	my ($start, $sub) = @_;

	return poll('a minute in which all happens', sub {
			my $offset = $start->();
			my $begin = time;

			$sub->();
			time - $begin < 55 && $offset + 1 }) - 1;
}

#
# Leases that are taken and given back; a full disk
#
my $epoch = $^T - (2**41 / 1000) + 100 * 86400;
my @epoch = gmtime $epoch;
my $node = auto_node('own', start => 0, conf => sprintf(<<'EOS', $epoch[5] + 1900, $epoch[4] + 1, $epoch[3]));
snowflake.layout = 'twitter, epoch %d-%02d-%02dT00:00:00Z'
snowflake.max_wait = '5s'
EOS
start_with($node, $library, FULL_DISK => $full);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my $offset = within_a_minute(sub {
		$node->stop;
		start_with($node, $library, FULL_DISK => $full);
		log_end($node) },
	sub {
		$node->safe_psql('postgres', 'DO $$ BEGIN FOR i IN 1 .. 23 LOOP PERFORM snowflake_nextval(); PERFORM snowflake_release(); END LOOP; END $$') });
is(number_of($node, $offset, qr/^leased node number/), 20, 'twenty-three leases: twenty lines say that one was taken');
is(number_of($node, $offset, qr/^released node number/), 20, 'and twenty that it was released');
is(number_of($node, $offset, qr/^further lines like the one before are left out/), 2, 'and two that more are left out');
is(number_of($node, $offset, qr/^the timestamp field of layout .* is full at/), 1, 'the end of the layout is announced once');
# from 19 on a SELECT extends the visibility map, if there is none yet
$node->safe_psql('postgres', 'VACUUM snowflake.worker_node, snowflake.node_number');
open my $file, '>', $full or die "$full: $!";
close $file;
# a session that gave up too early is followed by a release, which ends the trouble
my $begin;
my $error = poll('a full page', sub {
		$node->safe_psql('postgres', 'SELECT snowflake_release()');
		$begin = time;
		$offset = log_end($node);
		my $error = sql_error($node, "SET snowflake.max_wait = '2s'; SELECT snowflake_nextval()");

		$error =~ /No space/ && $error });
like($error, qr/ERROR:  \w+: could not extend file .*: No space left on device/, 'full disk: a call fails');
my $failures = stat_of($node, 'lease_failures');
poll('more failures', sub { sql_error($node, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()"); stat_of($node, 'lease_failures') > $failures + 2 });
my @lines = split /\n/, troubles($node, $offset);
like($lines[0], qr/^could not extend file/, 'full disk: a line says so');
cmp_ok(scalar(@lines), '<=', 1 + (time - $begin) / 60, 'at most once a minute');
is(scalar(grep { !/^could not extend file/ } @lines), 0, 'full disk: it is not over');
$offset = log_end($node);
unlink $full or die "$full: $!";
issue_ids($node, 1);
poll('the end', sub { number_of($node, $offset, qr/^ready again$/) });
is(troubles($node, $offset), "ready again\n", 'room again: one line says that it is over');
# a call would take another number
$offset = log_end($node);
set_clock($node, -40_000);
set_and_reload($node, 'snowflake.clock_offset' => 0);
# the lease worker looks each second
sleep 2;
is(join("\n", messages($node, $offset, qr/too far behind|ready again/)), '', 'the clock is behind, other numbers are there, nobody asks for ids: no trouble');
# the registry may be late, and lines are left out
poll('a stop that says that the number was released', sub {
		my $offset = log_end($node);

		$node->stop;
		return 1 if number_of($node, $offset, qr/^released node number \d+$/) == 1;
		$node->start;
		issue_ids($node, 1);
		return 0 });

#
# A clock that is behind, and a fixed number; nobody asks for ids
#
$node = new_node('fixed', conf => "snowflake.clock_offset = '60s'\n");
issue_ids($node, 1);
$offset = log_end($node);
set_clock($node, -40_000);
poll('the beginning', sub { number_of($node, $offset, qr/^the clock is too far behind for the next id$/) });
set_and_reload($node, 'snowflake.clock_offset' => 60_000);
poll('the end', sub { number_of($node, $offset, qr/^ready again$/) });
is(join('', map { s/(?:99|100)\.\d+ s/100 s/r . "\n" } messages($node, $offset, qr/./)), <<'EOS', 'clock behind: the log has a line when it begins and one when it is over');
the clock was set back by 100 s
the clock is too far behind for the next id
ready again
EOS
like(log_since($node, $offset), qr/DETAIL:  Ids go on when it has reached \d/, 'and until when');
issue_ids($node, 1);
$offset = log_end($node);
$node->stop;
set_conf($node, 'snowflake.clock_offset' => -40_000);
$node->start;
poll('the beginning', sub { number_of($node, $offset, qr/^the clock is too far behind for the next id$/) });
set_and_reload($node, 'snowflake.clock_offset' => 60_000);
poll('the end', sub { number_of($node, $offset, qr/^ready again$/) });
is(number_of($node, $offset, qr/^the clock is too far behind for the next id$/), 1, 'the same when it was set back while the server was stopped');

# The number is changed
$offset = log_end($node);
set_and_reload($node, 'snowflake.worker_id' => 5);
poll('number 5', sub { number_of($node, $offset, qr/^leased node number 5 /) });
is(number_of($node, $offset, qr/behind the last id/), 0, 'another worker id: nothing is said of the clock');
set_and_reload($node, 'snowflake.worker_id' => undef);
issue_ids($node, 1);

# A new worker, which has looked at the clock once it has refused a number.
my @bad_number = ("ALTER SYSTEM SET snowflake.worker_id = '31'", 'ALTER SYSTEM SET snowflake.datacenter_id = 31');
my @good_number = ('ALTER SYSTEM RESET snowflake.worker_id', 'ALTER SYSTEM RESET snowflake.datacenter_id');
sub until_it_is
{
	return "DO \$\$ BEGIN WHILE NOT (SELECT $_[0] FROM pg_stat_snowflake LIMIT 1) LOOP PERFORM pg_sleep(0.01); END LOOP; END \$\$";
}
sub reloaded
{
	return map { "$_;\n" } @_, 'SELECT FROM pg_reload_conf()';
}
sub refused_once
{
	return join '', reloaded(@bad_number), until_it_is("state = 'refused'"), ";\n", reloaded(@good_number), until_it_is("state = 'ready'"), ";\n";
}
sub start_worker
{
	my $offset = log_end($node);

	kill_process(worker_pid($node), 'TERM');
	$node->safe_psql('postgres', refused_once());
	return $offset;
}

# Steps of the clock
my $clock = 60_000;
$offset = within_a_minute(\&start_worker, sub {
		my $steps = stat_of($node, 'clock_rollbacks');

		$node->safe_psql('postgres', join '', map { reloaded('ALTER SYSTEM SET snowflake.clock_offset = ' . ($clock -= 110)),
				until_it_is('clock_rollbacks > ' . $steps++) . ";\n" } 1 .. 23) });
is(number_of($node, $offset, qr/^the clock was set back by/), 20, 'twenty-three steps of the clock: twenty lines');
is(number_of($node, $offset, qr/^further lines/), 1, 'and one that more are left out');

# Trouble that comes and goes
$offset = within_a_minute(\&start_worker, sub { $node->safe_psql('postgres', join '', map { refused_once() } 1 .. 22) });
is(number_of($node, $offset, qr/^node number 1023 is reserved$/), 20, 'trouble that comes and goes twenty-three times: twenty lines');
is(number_of($node, $offset, qr/^further lines/), 3, 'and three that more are left out, of these and of the leases taken and released');
is(number_of($node, $offset, qr/^ready again/), 20, 'and as many that it is over');
$node->stop;

#
# Clocks that differ
#
my $registry = new_registry('registry', limit => '2 h');
$node = new_member('node', conninfo_of($registry), conf => "snowflake.clock_offset = '1h'\n");
issue_ids($node, 1);
$offset = 0;
$node->safe_psql('postgres', 'SELECT snowflake_release()');
issue_ids($node, 1);
is(number_of($node, $offset, qr/^the clocks of this server and of the registry \Q@{[ name_of($registry) ]}\E differ by 3[56]\d\d/), 1,
	'clocks that differ: one line for two leases');
set_clock($node, 0);
for (1 .. 2)
{
	$node->safe_psql('postgres', 'SELECT snowflake_release()');
	issue_ids($node, 1);
}
is(number_of($node, $offset, qr/^the clocks of this server and of the registry \Q@{[ name_of($registry) ]}\E agree again$/), 1,
	'and one when they agree again, for two leases');
$node->stop;

#
# Leases that the registry cuts at its limit for ends
#
limit_leases($registry, '10 s');
$node = new_member('cut', conninfo_of($registry), conf => "snowflake.lease_duration = '1min'\n");
issue_ids($node, 1);
my $name = name_of($registry);
poll('a lease that is cut', sub { number_of($node, 0, qr/^the registry \Q$name\E has cut a lease: it ends at \S+ \S+, not at \S+ \S+$/) });
my $renewals = stat_of($node, 'lease_renewals');
poll('more renewals', sub { stat_of($node, 'lease_renewals') > $renewals + 2 });
is(number_of($node, 0, qr/has cut a lease/), 1, 'leases that are cut: one line');
like(log_since($node, 0), qr/LOG:  00000: snowflake: .* has cut a lease.*\n.*DETAIL:  .*\n.*HINT:  .*snowflake\.lease_duration/, 'with what to do');
is(stat_of($node, 'detail'), '', 'it is no trouble');
issue_ids($node, 1);
$node->stop;
$registry->stop;

#
# A standby with another default layout: what a promotion would refuse
#
my $primary = auto_node('primary', init => [ allows_streaming => 1 ], conf => "snowflake.layout = 'js53'\n");
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my $last = (issue_ids($primary, 1))[0];
my $standby = PostgreSQL::Test::Cluster->new('standby');
my $refused = 'if this standby is promoted, it issues no ids: the layout is not the one that ids are issued under';
$primary->backup('standby');
$standby->init_from_backup($primary, 'standby', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
set_conf($standby, 'snowflake.layout' => undef);
$standby->restart;
poll('the line', sub { number_of($standby, 0, qr/^\Q$refused\E$/) });
is(number_of($standby, 0, qr/^\Q$refused\E$/), 1, 'a standby with another layout: one line, and with the same one there was none');
like(log_since($standby, 0), qr/WARNING:  55000: snowflake: \Q$refused\E\n.*DETAIL:  .*\n.*HINT:  Set the layout of the node to '/, 'with what to do');
$primary->stop;
$standby->promote;
like(sql_error($standby, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: the layout is not the one that ids are issued under\nDETAIL:  .*\nHINT:  .*SELECT snowflake\.change_layout\('timestamp /,
	'promoted: it issues no ids');
set_conf($standby, 'snowflake.layout' => 'js53');
$standby->restart;
my $next = (issue_ids($standby, 1))[0];
ok($next > $last && $next < 2**53, 'with the right layout ids go on');
$standby->stop;

done_testing();
