# 004_worker_id.pl
#	  Where the node number comes from.  snowflake.worker_id and datacenter_id take
#	  effect by a reload, also while ids are issued: no session notices, no id
#	  repeats, and those of each number increase.  At a reload, a value that cannot work
#	  is refused and the old one stays; at server start, and where two settings
#	  together give no number, ids are refused with 55000 and what to do.  The host name
#	  is read again until it gives a number.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;

my $library = build_library('host_name', <<'EOF');
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The host name is in a file, so that it can change. */
int
gethostname(char *name, size_t size)
{
	FILE	   *file = fopen(getenv("HOST_NAME_FILE"), "r");

	if (file == NULL || fgets(name, size, file) == NULL)
		return -1;
	fclose(file);
	name[strcspn(name, "\n")] = '\0';
	return 0;
}
EOF

my $node = new_node('main', start => 0);
my $host_file = $node->basedir . '/host_name';

sub set_host_name
{
	open my $out, '>', "$host_file.new" or die $!;
	print $out "$_[0]\n";
	close $out or die $!;
	rename "$host_file.new", $host_file or die $!;
}

set_host_name('pg-7.example');
start_with($node, $library, HOST_NAME_FILE => $host_file);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');

sub wait_for_number
{
	my ($number) = @_;

	poll("node number $number", sub {
			my $found = stat_of($node, 'node_number');

			# the first lease of a cluster is taken at its first id
			$node->psql('postgres', 'SET snowflake.max_wait = 0; SELECT snowflake_nextval()')
			  if $found eq '';
			return $found eq $number });
}

# The view and the ids agree.
sub check_number
{
	my ($label, $from, $datacenter, $worker) = @_;
	my $number = $datacenter * 32 + $worker;

	wait_for_number($number);
	my $expected = "ready|$from|$number|$datacenter|$worker";
	is(settle($expected, sub { stat_of($node, 'state, worker_id_from, node_number, datacenter_id, worker_id') }), $expected,
		"$label: view");
	is($node->safe_psql('postgres', <<EOF), "$datacenter|$worker", "$label: ids");
SELECT datacenter_id, worker_id FROM snowflake_parse(snowflake_nextval())
EOF
}

sub check_refused
{
	my ($label, $from, $message, $detail, $hint) = @_;
	my $error;

	poll("$label: refusal", sub {
			($error = sql_error($node, 'SELECT snowflake_nextval()')) =~ /$message/ });
	like($error, qr/^ERROR:  55000: $message\nDETAIL:  $detail\nHINT:  $hint/, "$label: a call fails");
	is(stat_of($node, "state, worker_id_from, node_number IS NULL, leased_until IS NULL"), "refused|$from|t|t",
		"$label: the view says so");
	like(stat_of($node, 'detail'), qr/^$message$/, "$label: and why");
}

#
# 1 -> 2 -> 1, and another datacenter, while four sessions issue ids
#
wait_for_number(1);
my $clients = start_clients($node);
foreach my $id (2, 1, 31, 0, 1)
{
	$clients->wait_for(500);
	set_and_reload($node, 'snowflake.worker_id' => $id);
	wait_for_number($id);
}
$clients->wait_for(500);
set_and_reload($node, 'snowflake.datacenter_id' => 3);
wait_for_number(3 * 32 + 1);
$clients->wait_for(500);
my @files = $clients->stop;

is($clients->errors, '', 'no session notices a switch');
is(stat_of($node, 'worker_switches'), 6, 'worker_switches counts them');
$node->safe_psql('postgres', 'SELECT pg_stat_snowflake_reset()');
is(stat_of($node, 'worker_switches'), 0, 'until the reset');
is($node->safe_psql('postgres', 'SELECT count(*), count(closed_at) FROM snowflake.worker_node'), '7|6',
	'each has a lease of its own, and the others are closed');

# The ids of each session by number; returns the files of each number.
sub split_by_number
{
	my ($number_of, @files) = @_;
	my %of_number;

	foreach my $file (@files)
	{
		my %own;

		push @{ $own{ $number_of->($_) } }, $_ foreach read_ids($file);
		push @{ $of_number{$_} }, write_ids(@{ $own{$_} }) foreach keys %own;
	}
	return \%of_number;
}

my $files = split_by_number(\&id_node, @files);
is_deeply([ map { "$_: " . @{ $files->{$_} } } sort { $a <=> $b } keys %$files ],
	[ map { "$_: 4" } 0, 1, 2, 31, 97 ], 'each session got ids of each number, and of no other');
check_ids("number $_", @{ $files->{$_} }) foreach sort { $a <=> $b } keys %$files;

# The same while ids are ahead of the clock: what is issued between the end of a number's
# lease and its record would be issued again at its next turn.
my $narrow = new_node('narrow', conf => "snowflake.layout = '${\ NARROW}'\n");
$clients = start_clients($narrow);
$clients->wait_for(500);
foreach my $id (map { (2, 1) } 1 .. 5)
{
	set_and_reload($narrow, 'snowflake.worker_id' => $id);
	poll("node number $id", sub { stat_of($narrow, 'node_number') eq $id });
}
$clients->wait_for(500);
@files = $clients->stop;
is($clients->errors, '', 'ahead of the clock, no session notices a switch');
is(stat_of($narrow, 'worker_switches'), 10, 'all switches were made');
$files = split_by_number(sub { ($_[0] >> 4) & 1023 }, @files);
is_deeply([ sort keys %$files ], [ 1, 2 ], 'both numbers were used');
check_ids("number $_ ahead of the clock", @{ $files->{$_} }) foreach sort keys %$files;
$narrow->stop;

check_number('datacenter 3', 'setting', 3, 1);
set_and_reload($node, 'snowflake.datacenter_id' => undef, 'snowflake.worker_id' => 31);
check_number('no datacenter', 'setting', 0, 31);

#
# Values that cannot work: refused at reload, and the one before stays
#
sub check_stays
{
	my ($setting, $value, $detail) = @_;
	my $log = log_end($node);

	set_and_reload($node, $setting => $value);
	my $error = qr/LOG:  22023: invalid value for parameter "$setting": "?\Q$value\E"?\n.*DETAIL:  $detail/s;
	poll("$setting = $value", sub { log_since($node, $log) =~ /contains errors; unaffected changes were applied/ });
	like(log_since($node, $log), $error, "$setting = $value: refused, the log says why");
	check_number("$setting = $value", 'setting', 0, 4);
	set_conf($node, 'snowflake.worker_id' => 4, 'snowflake.datacenter_id' => undef);
}

set_and_reload($node, 'snowflake.worker_id' => 4);
check_number('number 4', 'setting', 0, 4);
my $room = 'The layout "twitter" has room for numbers from 0 to 31 in the';
check_stays('snowflake.worker_id', 'four', 'snowflake.worker_id must be auto, hostname, mac, or a number');
check_stays('snowflake.worker_id', 32, "$room worker field");
check_stays('snowflake.datacenter_id', 32, "$room datacenter field");
like(sql_error($node, 'ALTER SYSTEM SET snowflake.worker_id = 32'),
	qr/^ERROR:  22023: .*\nDETAIL:  $room worker field\.\nHINT:  .*another snowflake.layout needs a restart/, 'ALTER SYSTEM says it at once');

# What only two settings together make wrong
set_and_reload($node, 'snowflake.worker_id' => 31, 'snowflake.datacenter_id' => 31);
check_refused('the greatest number', 'setting', 'node number 1023 is reserved',
	'It is the greatest of the layout "twitter"\.',
	'Choose another snowflake.worker_id or snowflake.datacenter_id, or layouts with more bits for them\.');
set_and_reload($node, 'snowflake.worker_id' => 30);
check_number('the greatest but one', 'setting', 31, 30);

set_and_reload($node, 'snowflake.worker_id' => 'mac', 'snowflake.datacenter_id' => undef);
check_refused('mac', 'mac', 'snowflake.worker_id "mac" needs a registry', '.* which only a registry notices\.',
	'Set snowflake.registry to a connection string, or set snowflake.worker_id to auto or a number\.');

# At server start the value stands, in parallel workers as well.
my $choose = 'Choose a number within the field, or a layout with a wider one\.';
set_conf($node, 'snowflake.worker_id' => 32);
$node->stop;
start_with($node, $library, HOST_NAME_FILE => $host_file);
check_refused('started with a worker id too large', 'setting', 'worker id 32 does not fit the layout',
	'The worker field has 5 bits, for numbers from 0 to 31\.', $choose);
my $forced = $node->safe_psql('postgres', "SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')");
is($node->safe_psql('postgres', "SET $forced = on; SELECT current_setting('snowflake.worker_id')"), '32',
	'a parallel worker takes over what the server was started with');
set_and_reload($node, 'snowflake.worker_id' => 4, 'snowflake.datacenter_id' => 0);
check_number('a number again', 'setting', 0, 4);

# As many numbers as one likes, with the clock set back and forth between their turns.
set_and_reload($node, 'snowflake.clock_offset' => '20s', 'snowflake.max_ahead' => '1min');
my (%greatest, $lower);
foreach my $id (10 .. 20)
{
	set_and_reload($node, 'snowflake.worker_id' => $id);
	wait_for_number($id);
	$greatest{$id} = (issue_ids($node, 20, 1))[-1];
}
foreach my $restart (0, 1)
{
	if ($restart)
	{
		crash($node);
		set_conf($node, 'snowflake.max_ahead' => '2min');	# more than is left of the last lease
		start_with($node, $library, HOST_NAME_FILE => $host_file);
		# a lease that is granted to a call that was given up on ends where it says
		wait_for_number(15);
	}
	foreach my $id (map { (31 - $_, $_) } 11 .. 15)
	{
		set_and_reload($node, 'snowflake.worker_id' => $id, 'snowflake.clock_offset' => $restart ? 0 : "${id}s");
		wait_for_number($id);
		my @new = issue_ids($node, 20, 1);
		$lower ||= "$new[0] of $id" if $new[0] <= $greatest{$id};
		$greatest{$id} = $new[-1];
	}
	is($lower, undef, ($restart ? 'after a crash' : 'clock back') . ': ids of each number go on, greater than all its earlier ones');
}
set_and_reload($node, 'snowflake.max_ahead' => '1s', 'snowflake.datacenter_id' => undef);

#
# The host name
#
set_and_reload($node, 'snowflake.worker_id' => 'hostname');
check_number('pg-7.example', 'hostname', 0, 7);
my $no_digits = sub { "The host name \"\Q$_[0]\E\" does not end in a hyphen and one to nine digits\\." };
my $name_it = 'Name the host as in "pg-7", or set snowflake.worker_id to a number\. The name is read again every second\.';
foreach my $host ('db3', 'pg-', 'pg-7x', 'pg-x7', 'pg.example-7', 'pg-0000000007')
{
	set_host_name($host);
	$node->reload;
	my $label = $host =~ s/\..*//r;
	poll("host $host", sub { sql_error($node, 'SELECT snowflake_nextval()') =~ /"\Q$label\E"/ });
	check_refused("host $host", 'hostname', 'no worker id in the host name', $no_digits->($label), $name_it);
}

# Until it gives a number it is read again, without a reload.
set_host_name('pg-32');
check_refused('host pg-32', 'hostname', 'worker id 32 does not fit the layout',
	'The worker field has 5 bits, for numbers from 0 to 31\.', $choose);
set_host_name('pg-7.example');
check_number('host pg-7.example, without a reload', 'hostname', 0, 7);
set_host_name('db3');
$node->stop;
start_with($node, $library, HOST_NAME_FILE => $host_file);
check_refused('started with host db3', 'hostname', 'no worker id in the host name', $no_digits->('db3'), $name_it);
set_host_name('pg-8');
check_number('started with host db3, which becomes pg-8', 'hostname', 0, 8);
foreach my $host ('pg-0', 'my-pg-12.ns-3.svc', 'pg-0031')
{
	set_host_name($host);
	$node->reload;
	check_number("host $host", 'hostname', 0, $host =~ /^[^.]*-(\d+)/ ? $1 + 0 : -1);
}
$node->stop;

# What a registry would refuse for ever is made printable: a control character in one byte, U+009B, U+202E.
set_host_name("pg\x9b[2J\xc2\x9b\xe2\x80\xae-9");
start_with($node, $library, HOST_NAME_FILE => $host_file);
check_number('a host name that is not printable', 'hostname', 0, 9);
is(newest_row($node, 'host_name'), 'pg?[2J??-9', 'it is stored as what is');
$node->stop;

#
# A layout with more numbers than a registry chooses from: the first 2^32 are asked for
#
my @epoch = gmtime(time - 1000);
my $epoch = sprintf '%04d-%02d-%02dT%02d:%02d:%02dZ', $epoch[5] + 1900, $epoch[4] + 1, @epoch[ 3, 2, 1, 0 ];
my $wide = new_node('wide', conf => "snowflake.worker_id = 'auto'\nsnowflake.layout = 'timestamp 15, datacenter 16, worker 31, sequence 1, tick 1s, epoch $epoch'\n");

is(sql_error($wide, 'SELECT snowflake_nextval()'), '', 'more than 2^32 numbers: an id');
cmp_ok(stat_of($wide, 'node_number'), '<', 2**32, 'with a number that all registries grant');
$wide->stop;

done_testing();
