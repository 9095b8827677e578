# 005_worker_id.pl
#	  Where the node number comes from.  snowflake.worker_id and datacenter_id take
#	  effect by a reload, also in the middle of drawing: no session notices, no id
#	  repeats, and those of each number increase.  What gives no number, or one that
#	  does not fit, refuses draws with 55000 and says what to do, until it is changed.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;

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

	poll("node number $number", sub { stat_of($node, 'node_number') eq $number });
}

# The view and the ids agree.
sub check_number
{
	my ($label, $source, $datacenter, $worker) = @_;
	my $number = $datacenter * 32 + $worker;

	wait_for_number($number);
	my $expected = "ready|$source|$number|$datacenter|$worker";
	is(settle($expected, sub { stat_of($node, 'state, source, node_number, datacenter_id, worker_id') }), $expected,
		"$label: view");
	is($node->safe_psql('postgres', <<EOF), "$datacenter|$worker", "$label: ids");
SELECT datacenter_id, worker_id FROM snowflake_parse(snowflake_nextval())
EOF
}

sub check_refused
{
	my ($label, $source, $message, $detail, $hint) = @_;
	my $error;

	poll("$label: refusal", sub {
			($error = sql_error($node, 'SELECT snowflake_nextval()')) =~ /$message/ });
	like($error, qr/^ERROR:  55000: $message\nDETAIL:  $detail\nHINT:  $hint/, "$label: a draw fails");
	is(stat_of($node, "state, source, node_number IS NULL, leased_until IS NULL"), "refused|$source|t|t",
		"$label: the view says so");
	like(stat_of($node, 'detail'), qr/^$message$/, "$label: and why");
}

#
# 1 -> 2 -> 1, and another datacenter, while four sessions draw
#
wait_for_number(1);
my $drawers = start_drawers($node);
my $renewals = stat_of($node, 'lease_renewals');
foreach my $id (2, 1, 31, 0, 1)
{
	$drawers->wait_for(500);
	set_and_reload($node, 'snowflake.worker_id' => $id);
	wait_for_number($id);
}
$drawers->wait_for(500);
set_and_reload($node, 'snowflake.datacenter_id' => 3);
wait_for_number(3 * 32 + 1);
$drawers->wait_for(500);
my @files = $drawers->stop;

is($drawers->errors, '', 'no session notices a switch');
is(stat_of($node, 'worker_switches'), 6, 'worker_switches counts them');
cmp_ok(stat_of($node, 'lease_renewals'), '>=', $renewals + 6, 'each was recorded');

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
	[ map { "$_: 4" } 0, 1, 2, 31, 97 ], 'each session drew with each number, and no other');
check_ids("number $_", @{ $files->{$_} }) foreach sort { $a <=> $b } keys %$files;

# The same while ids are ahead of the clock: what is drawn between the end of a number's
# lease and its record would be drawn again at its next turn.
my $narrow = new_node('narrow', conf => "snowflake.layout = '${\ NARROW}'\n");
$drawers = start_drawers($narrow);
$drawers->wait_for(500);
foreach my $id (map { (2, 1) } 1 .. 10)
{
	set_and_reload($narrow, 'snowflake.worker_id' => $id);
	poll("node number $id", sub { stat_of($narrow, 'node_number') eq $id });
}
$drawers->wait_for(500);
@files = $drawers->stop;
is($drawers->errors, '', 'ahead of the clock, no session notices a switch');
is(stat_of($narrow, 'worker_switches'), 20, 'all switches were made');
$files = split_by_number(sub { ($_[0] >> 4) & 1023 }, @files);
is_deeply([ sort keys %$files ], [ 1, 2 ], 'both numbers were drawn with');
check_ids("number $_ ahead of the clock", @{ $files->{$_} }) foreach sort keys %$files;
$narrow->stop;

check_number('datacenter 3', 'fixed', 3, 1);
set_and_reload($node, 'snowflake.datacenter_id' => undef, 'snowflake.worker_id' => 31);
check_number('no datacenter', 'fixed', 0, 31);

#
# Numbers that do not fit, and those that nobody assigns
#
my $choose = 'Choose a number within the field, or a layout with a wider one\.';
set_and_reload($node, 'snowflake.worker_id' => 32);
check_refused('worker id too large', 'fixed', 'worker id 32 does not fit the layout',
	'The worker field has 5 bits, for numbers from 0 to 31\.', $choose);
set_and_reload($node, 'snowflake.worker_id' => 31, 'snowflake.datacenter_id' => 32);
check_refused('datacenter id too large', 'fixed', 'snowflake.datacenter_id 32 does not fit the layout',
	'The datacenter field has 5 bits, for numbers from 0 to 31\.', $choose);
set_and_reload($node, 'snowflake.datacenter_id' => 31);
check_refused('the greatest number', 'fixed', 'node number 1023 is reserved',
	'It is the greatest of the layout, and never issued from\.',
	'Choose another snowflake.worker_id or snowflake.datacenter_id\.');
set_and_reload($node, 'snowflake.worker_id' => 30);
check_number('the greatest but one', 'fixed', 31, 30);

set_and_reload($node, 'snowflake.worker_id' => 'mac', 'snowflake.datacenter_id' => undef);
check_refused('mac', 'mac', 'this server has no worker id', '.*"mac".*only a registry notices\.',
	'Set snowflake.registry, or set snowflake.worker_id to auto or a number\.');

# Not a value at all: the one before stays.
set_and_reload($node, 'snowflake.worker_id' => 4);
check_number('a number again', 'fixed', 0, 4);
my $log = log_end($node);
set_and_reload($node, 'snowflake.worker_id' => 'four');
$node->wait_for_log(qr/invalid value for parameter "snowflake.worker_id": "four"/, $log);
check_number('an invalid value', 'fixed', 0, 4);

#
# The host name
#
set_and_reload($node, 'snowflake.worker_id' => 'hostname');
check_number('pg-7.example', 'hostname', 0, 7);
foreach my $host ('db3', 'pg-', 'pg-7x', 'pg.example-7', 'pg-12345678901')
{
	set_host_name($host);
	$node->reload;
	my $label = $host =~ s/\..*//r;
	poll("host $host", sub { sql_error($node, 'SELECT snowflake_nextval()') =~ /"\Q$label\E"/ });
	check_refused("host $host", 'hostname', 'no worker id in the host name',
		"The host name \"\Q$label\E\" does not end in a hyphen and one to nine digits\\.",
		'Name the host as in "pg-7", or set snowflake.worker_id to a number\.');
}
set_host_name('pg-32');
$node->reload;
check_refused('host pg-32', 'hostname', 'worker id 32 does not fit the layout',
	'The worker field has 5 bits, for numbers from 0 to 31\.', $choose);
foreach my $host ('pg-0', 'my-pg-12.ns-3.svc', 'pg-0031')
{
	set_host_name($host);
	$node->reload;
	check_number("host $host", 'hostname', 0, $host =~ /^[^.]*-(\d+)/ ? $1 + 0 : -1);
}
$node->stop;

done_testing();
