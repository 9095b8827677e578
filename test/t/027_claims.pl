# 027_claims.pl
#	  Who may have a node number of a registry: fixed ones, from the host name or from
#	  the MAC address are claimed like automatic ones, and refused, naming the holder,
#	  while another server's lease lasts.  The same server goes on at once after a crash;
#	  a copy of it, or the same one with an older copy of its files, does not.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeRegistry;

my $library = build_library('host_name', <<'EOC');
#include <stdlib.h>
#include <string.h>

int
gethostname(char *name, size_t size)
{
	strncpy(name, getenv("TEST_HOST_NAME"), size);
	return 0;
}
EOC

my $registry = new_registry('registry');
my $place = place($registry);
my $second = qr/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*\+\d\d/;

# The lease must outlive the starts and stops of a busy machine, where one is waited out.
sub fixed_member
{
	my ($name, $id, %options) = @_;

	return new_member($name, $place, %options, conf => "snowflake.worker_id = '$id'\nsnowflake.lease_duration = '15s'\n");
}

# The second of two servers that claim one number: refused, and told who has it.
sub check_refused
{
	my ($label, $node, $number, $holder, $host) = @_;
	my $port = $holder->port;
	my $held = "node number $number is held by the server on host";

	poll("$label: refusal", sub { stat_of($node, 'state') eq 'refused' });
	like(sql_error($node, 'SELECT snowflake_nextval()'),
		qr/^ERROR:  55000: $held "$host", port $port, started at $second\nDETAIL:  Its lease lasts until $second\.\nHINT:  /,
		"$label: refused, naming the holder");
	is(stat_of($node, 'node_number IS NULL, ids_issued'), 't|0', "$label: it has no number");
	is(stat_of($holder, 'state'), 'ready', "$label: the holder notices nothing") if $holder->{_pid};
}

sub copy_file
{
	my ($from, $to) = @_;
	open my $out, '>:raw', $to or die "$to: $!";
	print $out slurp_file($from);
	close $out or die "$to: $!";
}

chomp(my $host = `hostname`);
my @files;

#
# A fixed number
#
my $one = fixed_member('one', 7);
push @files, write_ids(draw($one, 100));
my $two = fixed_member('two', 7);
check_refused('fixed', $two, 7, $one, quotemeta $host);
my ($started) = sql_error($two, 'SELECT snowflake_nextval()') =~ /started at ($second)/;
is($one->safe_psql('postgres', "SELECT abs(extract(epoch FROM pg_postmaster_start_time() - '$started')) < 1"), 't',
	'fixed: the start time is that of the holder');

# Killed and started again, the holder goes on; the other one does not get in between.
my $drawers = start_drawers($one, count => 2, sql => GENTLE);
$drawers->wait_for(300);
crash($one);
push @files, $drawers->stop;
$one->start;
my ($error, $seconds) = draw_error($one, '5s');
is($error, '', 'crashed and restarted: draws');
cmp_ok($seconds, '<', 5, "crashed and restarted: without waiting for the lease ($seconds s)");
push @files, write_ids(draw($one, 100));
is(registry_row($registry, $one, 'node_number, released_at IS NULL'), '7|t', 'crashed and restarted: a row of its own');
check_refused('after the crash', $two, 7, $one, quotemeta $host);

# After a clean stop the number is free; after a crash, when the bound is past.
$one->stop;
push @files, write_ids(poll('the number of the one that stopped', sub { sql_error($two, 'SELECT snowflake_nextval()') eq '' }) && draw($two, 100));
crash($two);
$one->start;
check_refused('the holder is dead', $one, 7, $two, quotemeta $host);
my $until = $registry->safe_psql('postgres', 'SELECT max(leased_until) FROM snowflake.worker_node WHERE node_number = 7');
push @files, write_ids(poll('the bound to pass', sub { sql_error($one, 'SELECT snowflake_nextval()') eq '' }) && draw($one, 100));
is($registry->safe_psql('postgres', "SELECT clock_timestamp() >= '$until'"), 't', 'the holder is dead: not before its bound');
check_ids('fixed number', @files);
$one->stop;

#
# A number from the host name, and one from the MAC address
#
@files = ();
my @hosts = map { fixed_member($_, 'hostname', start => 0) } 'three', 'four';
start_with($_, $library, TEST_HOST_NAME => 'pg-12.example') foreach @hosts;
$hosts[0]->safe_psql('postgres', 'CREATE EXTENSION snowflake');
poll('a holder', sub { $registry->safe_psql('postgres',
		"SELECT count(*) FROM snowflake.worker_node WHERE node_number = 12 AND released_at IS NULL") eq '1' });
$hosts[1]->safe_psql('postgres', 'CREATE EXTENSION snowflake');
poll('one to hold, one to be refused', sub { join(',', sort map { stat_of($_, 'state') } @hosts) eq 'ready,refused' });
my ($holder) = grep { stat_of($_, 'state') eq 'ready' } @hosts;
my ($other) = grep { $_ != $holder } @hosts;
check_refused('hostname', $other, 12, $holder, 'pg-12\.example');
is(stat_of($holder, 'source, worker_id'), 'hostname|12', 'hostname: view');
$_->stop foreach @hosts;

SKIP:
{
	my ($mac) = grep { !/^00:00:00:00:00:00$/ } map { chomp(my $m = slurp_file($_)); $m } glob '/sys/class/net/*/address';
	skip 'no MAC address', 3 unless $mac;
	my @macs = map { chomp(my $m = slurp_file($_)); hex(substr($m =~ s/://gr, -6)) & 1023 } glob '/sys/class/net/*/address';
	set_conf($_, 'snowflake.worker_id' => 'mac') foreach @hosts;
	$hosts[0]->start;
	poll('number', sub { stat_of($hosts[0], 'state') eq 'ready' });
	my $number = stat_of($hosts[0], 'node_number');
	ok((grep { $_ == $number } @macs), "mac: $number is the low bits of an address");
	is(stat_of($hosts[0], 'source'), 'mac', 'mac: view');
	$hosts[1]->start;
	check_refused('mac', $hosts[1], $number, $hosts[0], quotemeta $host);
	$_->stop foreach @hosts;
}

#
# A copy of a server beside its original
#
foreach my $id ('auto', 20)
{
	my $original = fixed_member("original_$id", $id, init => [ allows_streaming => 1 ]);
	@files = write_ids(draw($original, 100));
	$original->backup("b_$id");
	my $drawing = start_drawers($original, count => 2, sql => GENTLE);
	$drawing->wait_for(200);

	my $copy = PostgreSQL::Test::Cluster->new("copy_$id");
	$copy->init_from_backup($original, "b_$id");
	$copy->start;
	my $number = wait_for_number($original);
	if ($id eq 'auto')
	{
		push @files, write_ids(poll('an id of the copy', sub { sql_error($copy, 'SELECT snowflake_nextval()') eq '' }) && draw($copy, 100));
		isnt(stat_of($copy, 'node_number'), $number, 'copy, auto: another number');
	}
	else
	{
		check_refused("copy, fixed", $copy, $id, $original, quotemeta $host);
	}
	$drawing->wait_for(200);
	is($registry->safe_psql('postgres', "SELECT released_at IS NULL FROM snowflake.worker_node
		WHERE port = @{[ $original->port ]} ORDER BY id DESC LIMIT 1"), 't', "copy, $id: the lease of the original is open");
	push @files, $drawing->stop;
	is($drawing->errors, '', "copy, $id: the original notices nothing");
	check_ids("copy beside its original, $id", @files);
	$copy->stop;
	$original->stop;
}

#
# The state file of a crashed server is replaced by an older one of the same lease, and
# its clock is behind: the lease is not ended at the bound that the old file has.
#
my $restored = fixed_member('restored', 30);
my $state = $restored->data_dir . '/snowflake.state';
set_and_reload($restored, 'snowflake.lease_duration' => '3s');
draw($restored, 10);
foreach my $case ('since renewed', 'of a restored copy')
{
	my $again = $case eq 'since renewed';
	my $renewed = registry_row($registry, $restored, 'renewed_at');

	copy_file($state, "$state.copy");
	poll('renewal', sub { registry_row($registry, $restored, 'renewed_at') ne $renewed }) if $again;
	poll('the bound of the copy to pass', sub { draw($restored, 100);
		$restored->safe_psql('postgres', "SELECT clock_timestamp() > '$renewed'::timestamptz + '2.2 s'::interval") eq 't' });
	@files = write_ids(my @last = draw($restored, 1000, 1));
	crash($restored);
	copy_file("$state.copy", $state);

	# as cp -a does, where there is no other sign of it
	if (!$again)
	{
		copy_file($restored->data_dir . '/PG_VERSION', "$state.version");
		copy_file("$state.version", $restored->data_dir . '/PG_VERSION');
	}
	set_conf($restored, 'snowflake.clock_offset' => -20_000);
	$restored->start;
	poll('the lease worker to try', sub { sql_error($restored, 'SET snowflake.max_wait = 0; SELECT snowflake_nextval()')
		  =~ /ahead of the clock|is held by/ });
	set_and_reload($restored, 'snowflake.clock_offset' => 0);
	poll('draws', sub { sql_error($restored, 'SELECT snowflake_nextval()') eq '' });
	my @ids = draw($restored, 1000, 1);
	cmp_ok($ids[0], '>', $last[-1], "an older state file, the lease $case: ids go on above all earlier ones");
	check_ids("an older state file, the lease $case", @files, write_ids(@ids));
}
$restored->stop;

done_testing();
