# 027_claims.pl
#	  Numbers that are not chosen by the registry are guarded by it all the same: of two
#	  servers with the same fixed number, host name or MAC address the second is refused
#	  and told who holds it, until that one stops, or is killed and its bound past.  The
#	  same server goes on at once after a kill.  Copies of a server: a clone started
#	  beside its original, and a data directory replaced by an older copy of it, also in
#	  place and with the clock set back.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeRegistry;
use Time::HiRes qw(time);

my $library = build_library('host', <<'EOS');
#define _GNU_SOURCE
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Host name and MAC address are in files, so that they can change. */
static int
read_line(const char *variable, char *line, size_t size)
{
	FILE	   *file = fopen(getenv(variable), "r");

	if (file == NULL || fgets(line, size, file) == NULL)
		return -1;
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return 0;
}

int
gethostname(char *name, size_t size)
{
	return read_line("HOST_NAME_FILE", name, size);
}

int
getifaddrs(struct ifaddrs **list)
{
	struct ifaddrs *one = calloc(1, sizeof(*one));
	struct sockaddr_ll *link = calloc(1, sizeof(*link));
	char		line[64];

	if (read_line("MAC_FILE", line, sizeof(line)) != 0)
		return -1;
	link->sll_family = AF_PACKET;
	link->sll_ifindex = 2;
	link->sll_halen = 6;
	for (int i = 0; i < 6; i++)
		link->sll_addr[i] = strtoul(line + 3 * i, NULL, 16);
	one->ifa_name = "eth0";
	one->ifa_addr = (struct sockaddr *) link;
	*list = one;
	return 0;
}

void
freeifaddrs(struct ifaddrs *list)
{
	free(list->ifa_addr);
	free(list);
}
EOS

sub set_line
{
	my ($node, $name, $line) = @_;
	my $file = $node->basedir . "/$name";

	open my $out, '>', "$file.new" or die $!;
	print $out "$line\n";
	close $out or die $!;
	rename "$file.new", $file or die $!;
}

sub start_named
{
	my ($node) = @_;

	start_with($node, $library, HOST_NAME_FILE => $node->basedir . '/host_name', MAC_FILE => $node->basedir . '/mac');
}

my $registry = new_registry('registry');
# The first one's leases are so long that they outlast its restart.
my $first = new_member('first', place($registry), start => 0,
	conf => "snowflake.worker_id = '7'\nsnowflake.lease_duration = '1min'\n");
my $second = new_member('second', place($registry), start => 0,
	conf => "snowflake.worker_id = '7'\nsnowflake.lease_duration = '8s'\n");
set_line($first, host_name => 'pg-5.a');
set_line($second, host_name => 'pg-5.b');
set_line($_, mac => '02:00:00:00:0a:2a') foreach $first, $second;
foreach my $node ($first, $second)
{
	start_named($node);
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	wait_for_number($node) if $node == $first;
}
my %host = (first => 'pg-5.a', second => 'pg-5.b');

# SQL has equal times in any zone.
sub same_time
{
	my ($a, $b) = @_;

	return $registry->safe_psql('postgres', "SELECT '$a'::timestamptz = '$b'") eq 't';
}

# A draw of the one is refused because the other holds the number.
sub check_held
{
	my ($label, $node, $holder, $number) = @_;
	my $port = $holder->port;
	my $host = $host{ $holder->name } // '[^"]+';
	my $began = $holder->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
	my $error;

	# it may know the holder's last start only until it asks again
	poll("$label: refusal", sub { ($error = sql_error($node, 'SELECT snowflake_nextval()')) =~ /node number $number is held .* started at (.+)\n/
			&& same_time($1, $began) });
	like($error, qr/^ERROR:  55000: node number $number is held by the server on host "$host", port $port, started at .+\nDETAIL:  Its lease lasts until .+\.\nHINT:  .*snowflake\.worker_id/,
		"$label: refused");
	my ($until) = $error =~ /DETAIL:  Its lease lasts until (.+)\.\n/;
	is($registry->safe_psql('postgres', "SELECT '$until'::timestamptz - clock_timestamp() BETWEEN '-10 s' AND '1 min'"), 't',
		"$label: the bound is one to come");
	is(stat_of($node, 'state, node_number IS NULL'), 'refused|t', "$label: view");
}

#
# A clash; a clean stop
#
my $drawers = start_drawers($first, count => 2, sql => GENTLE);
$drawers->wait_for(500);
is(stat_of($first, 'state, source, node_number'), 'ready|fixed|7', 'fixed: view');
check_held('fixed', $second, $first, 7);

# Killed and started again, it need not wait for the bound of its row, and nobody else gets the number.
my $bound = registry_row($registry, $first, 'extract(epoch FROM leased_until)');
crash($first);
my @before = $drawers->stop;
start_named($first);
my ($error, $seconds) = draw_error($first, '30s');
is($error, '', "killed and started again: it draws ($seconds s)");
my @after = draw($first, 1000);
cmp_ok(id_time($after[-1]), '<', $bound, 'killed and started again: before its own bound');
check_held('killed and started again', $second, $first, 7);
is($registry->safe_psql('postgres', 'SELECT count(*), count(*) FILTER (WHERE released_at IS NULL) FROM snowflake.worker_node'), '2|1',
	'killed and started again: another row');

# The ids of its last seconds are ahead of the clock of the other one.
set_clock($first, 4000);
push @after, draw($first, 1000);
$first->stop('fast');
set_conf($first, 'snowflake.clock_offset' => undef);
poll('draw', sub { sql_error($second, 'SELECT snowflake_nextval()') eq '' });
cmp_ok(time, '<', $bound, 'the holder stops: the other gets the number before its bound');
$drawers = start_drawers($second, count => 2, sql => GENTLE);
$drawers->wait_for(500);
start_named($first);
check_held('the other way round', $first, $second, 7);
crash($second);
my @second = $drawers->stop;
$bound = registry_row($registry, $second, 'extract(epoch FROM leased_until)');
poll('draw', sub { sql_error($first, 'SELECT snowflake_nextval()') eq '' });
cmp_ok(time, '>', $bound, 'the holder is killed: the other gets the number when its bound is past');
my @last = draw($first, 1000);
cmp_ok(id_time($last[0]), '>=', $bound, 'and its ids are behind the bound');
check_phases('one number, two servers', \@before, [ write_ids(@after) ], \@second, [ write_ids(@last) ]);

#
# All ones; host name; MAC address
#
start_named($second);
set_and_reload($first, 'snowflake.worker_id' => 31, 'snowflake.datacenter_id' => 31);
poll('refusal', sub { stat_of($first, 'state') eq 'refused' });
like(sql_error($first, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: node number 1023 is reserved\nDETAIL:  .*\nHINT:  /,
	'the highest number is refused');

set_and_reload($first, 'snowflake.worker_id' => 'hostname', 'snowflake.datacenter_id' => undef);
wait_for_number($first, 5);
set_and_reload($second, 'snowflake.worker_id' => 'hostname');
is(stat_of($first, 'state, source'), 'ready|hostname', 'hostname: view');
check_held('hostname', $second, $first, 5);
set_line($second, host_name => 'pg-6.b');
wait_for_number($second, 6);
is(stat_of($second, 'state, source'), 'ready|hostname', 'hostname: another name, another number');

# 0x22a: datacenter 17, worker 10
set_and_reload($first, 'snowflake.worker_id' => 'mac');
wait_for_number($first, 0x22a);
set_and_reload($second, 'snowflake.worker_id' => 'mac');
is(stat_of($first, 'state, source, datacenter_id, worker_id'), 'ready|mac|17|10', 'mac: view');
check_held('mac', $second, $first, 0x22a);
set_line($second, mac => '02:00:00:00:0a:2b');
wait_for_number($second, 0x22b);
is(stat_of($second, 'state, source'), 'ready|mac', 'mac: another address, another number');
$_->stop foreach $first, $second;

#
# A base backup started beside its original, while both draw
#
my $original = new_member('original', place($registry), init => [ allows_streaming => 1 ]);

sub clone
{
	my ($name) = @_;
	my $clone = PostgreSQL::Test::Cluster->new($name);

	$original->backup($name);
	$clone->init_from_backup($original, $name);
	$clone->start;
	return $clone;
}

sub open_row
{
	my ($node) = @_;

	return registry_row($registry, $node, 'node_number, released_at IS NULL, leased_until > clock_timestamp()');
}

my @drawers = (start_drawers($original, count => 2, sql => GENTLE));
$drawers[0]->wait_for(500);
my $number = wait_for_number($original);
my $clone = clone('clone');
push @drawers, start_drawers($clone, count => 2, sql => GENTLE);
$_->wait_for(500) foreach @drawers;
isnt(wait_for_number($clone), $number, 'clone: another number than its original');
$bound = registry_row($registry, $original, "extract(epoch FROM leased_until + interval '1 s')");
poll('time for a lease', sub { time > $bound });
$_->wait_for(500) foreach @drawers;
is(open_row($original), "$number|t|t", 'clone: the lease of the original goes on');
my @files = map { $_->stop } @drawers;
is($_->errors, '', 'clone: no errors') foreach @drawers;
check_ids('clone', @files);
$clone->stop;

# so long that the clone does not get it while the machine stalls
set_and_reload($original, 'snowflake.worker_id' => 9, 'snowflake.lease_duration' => '8s');
wait_for_number($original, 9);
$drawers = start_drawers($original, count => 2, sql => GENTLE);
$drawers->wait_for(500);
$clone = clone('fixed_clone');
check_held('clone with a fixed number', $clone, $original, 9);
$bound = registry_row($registry, $original, "extract(epoch FROM leased_until + interval '1 s')");
poll('time for a lease', sub { time > $bound });
like(sql_error($clone, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: node number 9 is held/, 'clone with a fixed number: as long as the original lives');
is(open_row($original), '9|t|t', 'clone with a fixed number: the lease of the original goes on');
$drawers->wait_for(500);
$original->stop('fast');
my @own = $drawers->stop;
unlike($drawers->errors, qr/ERROR/, 'clone with a fixed number: no errors of the original');
poll('draw', sub { sql_error($clone, 'SELECT snowflake_nextval()') eq '' });
my @cloned = write_ids(draw($clone, 1000));
check_phases('clone with a fixed number', \@own, \@cloned);
check_ids('clones', @files, @own, @cloned);
$clone->stop;

#
# The data directory replaced by a copy that is older
#
my $data = $original->data_dir;

sub copy_files
{
	my ($from, $to) = @_;

	system_or_bail('cp', '-a', '--', $from, $to);
}

foreach my $worker_id ('auto', 30)
{
	my $label = "cold copy put back, worker id $worker_id";

	set_conf($original, 'snowflake.worker_id' => $worker_id);
	$original->start;
	my @ids = write_ids(draw($original, 1000));
	$original->stop;
	copy_files($data, "$data.copy");
	$original->start;
	$drawers = start_drawers($original, count => 2);
	$drawers->wait_for(500);
	my ($used) = wait_for_number($original);
	$original->stop('immediate');
	push @ids, $drawers->stop;
	system_or_bail('rm', '-rf', '--', $data);
	rename "$data.copy", $data or die "rename: $!";
	$original->start;
	poll('draw', sub { sql_error($original, 'SELECT snowflake_nextval()') eq '' });
	push @ids, write_ids(draw($original, 1000));
	is(wait_for_number($original) eq $used, $worker_id ne 'auto', "$label: the number");
	check_ids($label, @ids);
	$original->stop;
	push @files, @ids;
}

# A snapshot of the running server, written over its files, with the clock set back: file,
# token and row are of the same lease, which was not renewed meanwhile.  The copy knows
# nothing of the ids that were drawn after it, and its row does.
set_conf($original, 'snowflake.worker_id' => 29, 'snowflake.lease_duration' => '4min');
$original->start;
$drawers = start_drawers($original, count => 2);
$drawers->wait_for(500);
freeze($original);
$bound = registry_row($registry, $original, 'leased_until');
copy_files($data, "$data.copy");
my $copied = time;
thaw($original);
$drawers->wait_for(500);
poll('ids behind the bound in the copied file', sub { time > $copied + 3.5 });
$drawers->wait_for(500);
ok(same_time(registry_row($registry, $original, 'leased_until'), $bound), 'snapshot: the row was not renewed since');
crash($original);
my @drawn = $drawers->stop;
isnt(scalar(ids_after(\@drawn, $copied + 2.5)), 0, 'snapshot: there are ids that it does not cover');
copy_files("$data.copy/.", $data);
unlink "$data/postmaster.pid";
my $back = -int(1000 * (time - $copied) + 1000);
set_conf($original, 'snowflake.clock_offset' => $back);
$original->start;
$drawers = start_drawers($original, count => 2, sql => "SET snowflake.max_wait = '200ms';\n" . GENTLE);
my $end = time + 5;
poll('five seconds', sub { time > $end });
is(stat_of($original, 'node_number'), '', 'snapshot put back: no number yet');
push @drawn, $drawers->stop;
like($drawers->errors, qr/ERROR:  55000: node number 29 is held by the server on host "[^"]+", port ${\ $original->port}, /,
	'snapshot put back: refused until the bound of the row is past');
my %drawn;
is(scalar(grep { $drawn{$_}++ } read_ids(@drawn)), 0, 'snapshot put back: no id twice');
$original->stop;
$registry->stop;

done_testing();
