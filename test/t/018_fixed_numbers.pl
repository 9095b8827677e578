# 018_fixed_numbers.pl
#	  Numbers that are not chosen by the registry are guarded by it all the same: of two
#	  servers with the same fixed number, host name or MAC address the second is refused
#	  and told which server has it, until that one stops, or is killed and its lease over.
#	  The same holds for the server itself after it was killed.  Copies of a server: a clone
#	  started beside its original, and a data directory replaced by an older copy of it.  A
#	  number that moves to another registry, which asks for it when the old lease is about to end.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
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
my ($first, $second) = map { new_member($_, conninfo_of($registry), start => 0,
		conf => "snowflake.worker_id = '7'\nsnowflake.lease_duration = '8s'\n") } 'first', 'second';
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

# The one gets no ids because the other has the number.
sub check_held
{
	my ($label, $node, $other, $number) = @_;
	my $error;

	# it may know the last start but one of the other until it asks again
	poll("$label: refusal", sub { ($error = sql_error($node, 'SELECT snowflake_nextval()')) =~ /node number $number is leased .*\nDETAIL:  Its lease ends at (.+?)\. /
			&& $registry->safe_psql('postgres', "SELECT count(*) FROM snowflake.leases WHERE node_number = $number AND closed_at IS NULL
				AND '$1' BETWEEN starts_at AND leased_until AND port = ${\ $other->port}
				AND host_name ~ '^${\ ($host{ $other->name } // '.+')}\$'") == 1 });
	like($error, qr/^ERROR:  55000: node number $number is leased to another server\nDETAIL:  Its lease ends at .+\. The view snowflake\.leases of the registry shows where it is\.\nHINT:  .*snowflake\.worker_id/,
		"$label: refused");
	unlike($error, qr/host "/, "$label: it does not say where the other one is");
	my ($until) = $error =~ /DETAIL:  Its lease ends at (.+?)\. /;
	is($registry->safe_psql('postgres', "SELECT '$until'::timestamptz - clock_timestamp() BETWEEN '-10 s' AND '1 min'"), 't',
		"$label: the end is to come");
	# it is starting while the registry, on a busy machine, does not answer in time, and does not ask
	# again by itself
	poll("$label: view", sub { sql_error($node, 'SELECT snowflake_nextval()'); stat_of($node, 'state, node_number IS NULL') eq 'refused|t' });
}

sub end_of
{
	my ($node) = @_;

	return registry_row($registry, $node, 'extract(epoch FROM leased_until)');
}

#
# A clash; a clean stop
#
my $clients = start_clients($first, count => 2, sql => GENTLE);
$clients->wait_for(500);
is(stat_of($first, 'state, worker_id_from, node_number'), 'ready|setting|7', 'fixed: view');
check_held('fixed', $second, $first, 7);
$second->stop;

# Killed and started again, it waits for its own lease to end: the registry cannot know that it is dead.
crash($first);
my @before = $clients->stop;
my $end = end_of($first);
start_named($first);
my ($error) = nextval_error_with_reason($first, '100ms');
like($error, qr/^ERROR:  55000: node number 7 is leased to another server\nDETAIL:  /,
	'killed and started again: refused')
  if time < $end - 1;
poll('ids', sub { sql_error($first, 'SELECT snowflake_nextval()') eq '' });
cmp_ok(time, '>', $end, 'killed and started again: ids when the lease is over');
my @after = issue_ids($first, 1000);
cmp_ok(id_time($after[0]), '>=', $end - 0.00001, 'killed and started again: they start after it');
is($registry->safe_psql('postgres', 'SELECT count(*), count(*) FILTER (WHERE closed_at IS NULL) FROM snowflake.worker_node'), '2|1',
	'killed and started again: another row');
start_named($second);
check_held('killed and started again', $second, $first, 7);

# The ids of its last seconds are ahead of the clock of the other one.
$end = end_of($first);
set_clock($first, 4000);
push @after, issue_ids($first, 1000);
# A renewal that is cut off by the stop would leave the row as it is; so would a registry that, on a
# busy machine, is told too late.
poll('a stop that the registry is told of', sub {
		poll('renewal', sub { end_of($first) > $end });
		$end = end_of($first);
		$first->stop('fast');
		return 1 if end_of($first) < $end;
		start_named($first);
		push @after, issue_ids($first, 1000);
		$end = end_of($first);
		return 0 });
set_conf($first, 'snowflake.clock_offset' => undef);
cmp_ok(end_of($first), '<', $end, 'the one stops: its row ends with its ids');
poll('ids', sub { sql_error($second, 'SELECT snowflake_nextval()') eq '' });
$clients = start_clients($second, count => 2, sql => GENTLE);
$clients->wait_for(500);
start_named($first);
check_held('the other way round', $first, $second, 7);
crash($second);
my @second = $clients->stop;
$end = end_of($second);
poll('ids', sub { sql_error($first, 'SELECT snowflake_nextval()') eq '' });
cmp_ok(time, '>', $end, 'the one is killed: the other gets the number when its lease is over');
my @last = issue_ids($first, 1000);
cmp_ok(id_time($last[0]), '>=', $end - 0.00001, 'and its ids start after the end');
check_phases('one number, two servers', \@before, [ write_ids(@after) ], \@second, [ write_ids(@last) ]);

#
# All ones; host name; MAC address
#
set_line($second, host_name => 'pg.b');
start_named($second);
set_and_reload($first, 'snowflake.worker_id' => 31, 'snowflake.datacenter_id' => 31);
poll('refusal', sub { stat_of($first, 'state') eq 'refused' });
like(sql_error($first, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: node number 1023 is reserved\nDETAIL:  .*\nHINT:  /,
	'the greatest number is refused');

set_and_reload($first, 'snowflake.worker_id' => 'hostname', 'snowflake.datacenter_id' => undef);
wait_for_number($first, 5);
is(stat_of($first, 'state, worker_id_from'), 'ready|hostname', 'hostname: view');
set_and_reload($second, 'snowflake.worker_id' => 'hostname');
poll('refusal', sub { ($error = sql_error($second, 'SELECT snowflake_nextval()')) =~ /host name/ });
like($error, qr/^ERROR:  55000: no worker id in the host name\nDETAIL:  The host name "pg" .*\nHINT:  /, 'hostname: without a number');
set_line($second, host_name => 'pg-5.b');
check_held('hostname, read again', $second, $first, 5);
set_line($second, host_name => 'pg-6.b');
$second->reload;
wait_for_number($second, 6);
is(stat_of($second, 'state, worker_id_from'), 'ready|hostname', 'hostname: another name, another number');

# 0x22a: datacenter 17, worker 10
set_and_reload($first, 'snowflake.worker_id' => 'mac');
wait_for_number($first, 0x22a);
set_and_reload($second, 'snowflake.worker_id' => 'mac');
is(stat_of($first, 'state, worker_id_from, datacenter_id, worker_id'), 'ready|mac|17|10', 'mac: view');
check_held('mac', $second, $first, 0x22a);
set_line($second, mac => '02:00:00:00:0a:2b');
$second->reload;
wait_for_number($second, 0x22b);
is(stat_of($second, 'state, worker_id_from'), 'ready|mac', 'mac: another address, another number');
$_->stop foreach $first, $second;

#
# A base backup started beside its original, while both issue ids
#
my $original = new_member('original', conninfo_of($registry), init => [ allows_streaming => 1 ]);

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

	return registry_row($registry, $node, 'node_number, closed_at IS NULL, leased_until > clock_timestamp()');
}

my @clients = (start_clients($original, count => 2, sql => GENTLE));
$clients[0]->wait_for(500);
my $number = wait_for_number($original);
my $clone = clone('clone');
push @clients, start_clients($clone, count => 2, sql => GENTLE);
$_->wait_for(500) foreach @clients;
isnt(wait_for_number($clone), $number, 'clone: another number than its original');
my $later = end_of($original) + 1;
poll('time for a lease', sub { time > $later });
$_->wait_for(500) foreach @clients;
is(settle("$number|t|t", sub { open_row($original) }), "$number|t|t", 'clone: the lease of the original goes on');
my @files = map { $_->stop } @clients;
is($_->errors, '', 'clone: no errors') foreach @clients;
check_ids('clone', split_ids(12, 1023, @files));
$clone->stop;

# so long that the clone does not get it while the machine stalls
set_and_reload($original, 'snowflake.worker_id' => 9, 'snowflake.lease_duration' => '8s');
wait_for_number($original, 9);
$clients = start_clients($original, count => 2, sql => GENTLE);
$clients->wait_for(500);
$clone = clone('fixed_clone');
check_held('clone with a fixed number', $clone, $original, 9);
$later = end_of($original) + 1;
poll('time for a lease', sub { time > $later });
like(sql_error($clone, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: node number 9 is leased/, 'clone with a fixed number: as long as the original lives');
is(open_row($original), '9|t|t', 'clone with a fixed number: the lease of the original goes on');
$clients->wait_for(500);
$original->stop('fast');
my @own = $clients->stop;
unlike($clients->errors, qr/ERROR/, 'clone with a fixed number: no errors of the original');
poll('ids', sub { sql_error($clone, 'SELECT snowflake_nextval()') eq '' });
my @cloned = write_ids(issue_ids($clone, 1000));
check_phases('clone with a fixed number', \@own, \@cloned);
check_ids('clones', split_ids(12, 1023, @files, @own, @cloned));
$clone->stop;

#
# The data directory replaced by a copy that is older: all that counts is in the registry.
#
my $data = $original->data_dir;

set_conf($original, 'snowflake.lease_duration' => '3s');

foreach my $worker_id ('auto', 30)
{
	my $label = "cold copy put back, worker id $worker_id";

	set_conf($original, 'snowflake.worker_id' => $worker_id);
	$original->start;
	# the round before may have left the lease of this number
	poll('ids', sub { sql_error($original, 'SELECT snowflake_nextval()') eq '' });
	my @ids = write_ids(issue_ids($original, 1000));
	$original->stop;
	system_or_bail('cp', '-a', '--', $data, "$data.copy");
	$original->start;
	$clients = start_clients($original, count => 2);
	$clients->wait_for(500);
	my ($used) = wait_for_number($original);
	$original->stop('immediate');
	push @ids, $clients->stop;
	system_or_bail('rm', '-rf', '--', $data);
	rename "$data.copy", $data or die "rename: $!";
	$original->start;
	poll('ids', sub { sql_error($original, 'SELECT snowflake_nextval()') eq '' });
	push @ids, write_ids(issue_ids($original, 1000));
	is(wait_for_number($original) eq $used, $worker_id ne 'auto', "$label: the number");
	check_ids($label, split_ids(12, 1023, @ids));
	$original->stop;
}

#
# Another registry, which has taken over the first one: the lease goes on until it is about to end, and the
# next one begins where it ends.  If that were granted earlier, sessions would wait too long for its start.
#
my $successor = new_registry('successor');
my $mover = new_member('mover', conninfo_of($registry),
	conf => "snowflake.worker_id = '11'\nsnowflake.lease_duration = '20s'\nsnowflake.max_wait = '8s'\n");
$clients = start_clients($mover, count => 2, sql => GENTLE);
$clients->wait_for(500);
move_registry($registry, $successor);
my $old_end = registry_row($registry, $mover, 'extract(epoch FROM leased_until)');
set_and_reload($mover, 'snowflake.registry' => conninfo_of($successor));
$clients->wait_for(500);
is(registry_row($successor, $mover, 'token'), '', 'moving: while the lease lasts, no other is asked for');
is(stat_of($mover, 'state, detail, node_number'), 'ready||11', 'moving: view');
poll('the next lease', sub { registry_row($successor, $mover, 'token') ne '' });
$clients->wait_for(500);
@files = $clients->stop;
is($clients->errors, '', 'moving: sessions notice nothing');
is(registry_row($successor, $mover, "node_number, fixed, starts_at >= to_timestamp($old_end), starts_at < to_timestamp($old_end) + '8 s'::interval"),
	'11|t|t|t', 'moving: the next lease begins where the old one ends');
is($mover->safe_psql('postgres', 'SELECT uses, incarnation FROM snowflake.cluster'), 'another|' . incarnation_of($successor), 'moving: it is recorded');
isnt(scalar(ids_after(\@files, $old_end)), 0, 'moving: ids of the next lease');
check_ids('moving', @files);
is(join(',', sort keys %{ { map { id_node($_) => 1 } read_ids(@files) } }), '11', 'moving: all have the number');
$_->stop foreach $mover, $successor, $registry;

done_testing();
