# 003_state_file.pl
#	  Damage to snowflake.state, the floor on disk.  Whatever it holds, the server
#	  starts and answers; from a file that is not whole, or is not ours, no id is
#	  guessed: draws fail with XX001 (or the code of the system's error), say why and
#	  what to do, and go on by themselves once the file is back.  If it is gone, ids
#	  go on above all earlier ones, with a WARNING.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;

my $hint = qr/\nHINT:  .*remove the file/;

# Ids that reach a second ahead of the clock are quickly drawn.
my $node = new_node('main', conf => "snowflake.layout = '${\ NARROW}'\n");
my $file = $node->data_dir . '/snowflake.state';

# The server never sees a part of what we write.
sub put_file
{
	my ($contents) = @_;

	open my $out, '>:raw', "$file.new" or die "$file.new: $!";
	print $out $contents;
	close $out or die "$file.new: $!";
	rename "$file.new", $file or die "$file: $!";
}

sub flip_bit
{
	my ($contents, $offset) = @_;

	substr($contents, $offset, 1) ^= "\x10";
	return $contents;
}

# Other bytes at a place, and the checksum (CRC-32C of all behind the head) made right again.
sub forge
{
	my ($contents, $offset, $bytes) = @_;
	my $crc = 0xffffffff;

	substr($contents, $offset, length $bytes) = $bytes;
	foreach my $byte (unpack 'C*', substr $contents, 16)
	{
		$crc ^= $byte;
		$crc = $crc >> 1 ^ ($crc & 1 ? 0x82f63b78 : 0) for 1 .. 8;
	}
	substr($contents, 12, 4) = pack 'L', $crc ^ 0xffffffff;
	return $contents;
}

# Until the worker has looked at the file again, from beginning to end: the first
# failure it counts from here on may be of a look that began before.
sub wait_for_worker
{
	my $failures = stat_of($node, 'lease_failures');

	foreach my $more (1, 2)
	{
		$node->reload;
		poll('the worker to read the file', sub { stat_of($node, 'lease_failures') >= $failures + $more });
	}
}

# The draws that fail now.
sub check_refusal
{
	my ($label, $code, $detail, $hint) = @_;

	like(sql_error($node, 'SELECT snowflake_nextval()'), qr/^ERROR:  $code: $detail.*$hint/s,
		"$label: a draw fails");
	is(stat_of($node, 'state'), 'refused', "$label: so does the view say");
	like(stat_of($node, 'detail'), qr/file "snowflake.state"/, "$label: and names the file");
}

# The greatest id until now; those of a draw must be above it.
my $greatest = 0;
sub check_goes_on
{
	my ($label, $n) = @_;
	my @ids = poll("$label: draws", sub {
			sql_error($node, 'SELECT snowflake_nextval()') eq '' }) && draw($node, $n // 1, 1);

	cmp_ok($ids[0], '>', $greatest, "$label: ids go on above all earlier ones");
	$greatest = $ids[-1];
}

#
# The file is gone
#
check_goes_on('first start', 20000);
foreach my $clock (0, -1000)
{
	my $label = "gone, clock at $clock ms";

	$node->stop;
	unlink $file or die "$file: $!";
	set_conf($node, 'snowflake.clock_offset' => $clock);
	my $offset = log_end($node);
	$node->start;

	# Ahead of the clock by a second, so that the next round has most to get wrong.
	check_goes_on($label, 2000);
	like(log_since($node, $offset), qr/WARNING: .*file "snowflake.state" does not exist; ids begin at/,
		"$label: the log says so");
}
set_conf($node, 'snowflake.clock_offset' => undef);
$node->restart;
check_goes_on('clock right again');

#
# The contents are wrong
#
my $other = new_node('other');
draw($other, 1);
$other->stop;
my $foreign = slurp_file($other->data_dir . '/snowflake.state');

$node->stop;
my $good = slurp_file($file);
my $size = length $good;
my $newer = $good;
substr($newer, 8, 4) = pack 'L', 2;
my $not_ours = qr/It is not a state file of snowflake/;
my $length = qr/It has not the right length of $size bytes/;
my $version = qr/It has version \d+; this library reads version 1/;
my $cluster = qr/It belongs to the cluster with system identifier \d+, this one is \d+/;
my $checksum = qr/Its checksum does not match its contents/;
my @damages = (
	[ 'empty', '', $not_ours ],
	[ 'cut off in the magic', substr($good, 0, 5), $not_ours ],
	[ 'cut off behind the magic', substr($good, 0, 8), $not_ours ],
	[ 'cut off behind the head', substr($good, 0, 16), $length ],
	[ 'cut off in the middle', substr($good, 0, $size / 2), $length ],
	[ 'a byte short', substr($good, 0, $size - 1), $length ],
	[ 'a byte long', "$good\0", $length ],
	[ 'twice as long', "$good$good", $length ],
	[ 'all zero', "\0" x $size, $not_ours ],
	[ 'zero behind the head', substr($good, 0, 16) . "\0" x ($size - 16), $checksum ],
	[ 'another magic', flip_bit($good, 3), $not_ours ],
	[ 'another version', flip_bit($good, 8), $version ],
	[ 'newer version', $newer, $version ],
	[ 'another cluster', $foreign, $cluster ],
	[ 'a bit of the checksum', flip_bit($good, 13), $checksum ],
	[ 'a bit of the system identifier', flip_bit($good, 20), $checksum ],
	[ 'an unknown origin', forge($good, 36, pack 'L', 3), qr/It says that its node number is of the unknown origin 3/ ],
	[ 'a layout without an end', forge($good, 104, 'x' x 192), qr/Its layout has no end/ ],
	[ 'too many entries', forge($good, 304, pack 'L', 33), qr/It claims to have 33 entries; there is room for 32/ ]);
is(forge($good, 0, ''), $good, 'we compute the checksum as the server does');
foreach my $byte (24, 50, map({ int(16 + ($size - 16) * $_ / 5) } 1 .. 4), $size - 1)
{
	push @damages, [ "a bit of byte $byte", flip_bit($good, $byte), $checksum ];
}

put_file('nothing of the kind');
$node->start;
is($node->safe_psql('postgres', 'SELECT 1'), 1, 'the server starts with a damaged file');
foreach my $damage (@damages)
{
	my ($label, $contents, $detail) = @$damage;

	put_file($contents);
	wait_for_worker();
	check_refusal($label, 'XX001', qr/file "snowflake.state" cannot be used\nDETAIL:  $detail/, $hint);
}
put_file($good);
check_goes_on('file restored');

# The other way out.
$node->stop;
put_file(flip_bit($good, 100));
$node->start;
like(sql_error($node, 'SELECT snowflake_nextval()'), qr/^ERROR:  XX001: /, 'damaged again');
ok(slurp_file($file) eq flip_bit($good, 100), 'the damaged file is left alone');
unlink $file or die "$file: $!";
check_goes_on('damaged file removed');

#
# The system refuses to read it
#
$node->stop;
chmod 0, $file or die "$file: $!";
$node->start;
is($node->safe_psql('postgres', 'SELECT 1'), 1, 'the server starts with a file it may not read');
poll('refusal', sub { stat_of($node, 'state') eq 'refused' });
check_refusal('unreadable', '42501', qr/could not open file "snowflake.state": Permission denied\nDETAIL: /,
	qr/HINT:  .*drawing goes on by itself/);
chmod 0600, $file or die "$file: $!";
check_goes_on('readable again');

$node->stop;
rename $file, "$file.saved" or die "$file: $!";
mkdir $file or die "$file: $!";
$node->start;
is($node->safe_psql('postgres', 'SELECT 1'), 1, 'the server starts with a directory in its place');
poll('refusal', sub { stat_of($node, 'state') eq 'refused' });
check_refusal('directory', '58030', qr/could not read file "snowflake.state": Is a directory\nDETAIL: /,
	qr/HINT:  /);
rmdir $file or die "$file: $!";
rename "$file.saved", $file or die "$file: $!";
check_goes_on('directory removed');

#
# It is lost, or an older one put in its place, between two workers of one server
#
# What the first worker promised lasts, although the clock is set back meanwhile, and also
# for a number that is not the last one used.
foreach my $lost ('older', 'gone')
{
	$node->stop;
	my $older = slurp_file($file);
	set_conf($node, 'snowflake.clock_offset' => '10s', 'snowflake.max_ahead' => '1s');
	$node->start;
	check_goes_on('clock 10 s ahead', 100);
	set_and_reload($node, 'snowflake.worker_id' => 2);
	poll('another number', sub { stat_of($node, 'node_number') eq '2' });

	my $pid = worker_pid($node);
	kill_process($pid, 'TERM');
	$lost eq 'gone' ? unlink($file) || die "$file: $!" : put_file($older);
	set_and_reload($node, 'snowflake.worker_id' => 1, 'snowflake.clock_offset' => 0,
		'snowflake.max_ahead' => '1min');
	poll('new worker', sub { worker_pid($node) != $pid });
	poll('the first number', sub { stat_of($node, 'node_number') eq '1' });
	check_goes_on("$lost between two workers");
}
$node->stop;

done_testing();
