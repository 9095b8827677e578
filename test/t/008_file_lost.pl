# 008_file_lost.pl
#	  The state file goes missing, or an older copy of it comes back, while the
#	  server runs and the lease worker starts anew: nothing repeats and nothing is
#	  lower, since what was published is still in shared memory.
#
#	  Ids run minutes ahead of the clock first, so that a floor taken from the clock or
#	  the last checkpoint would lie far below them.
#
#	  And what else must not be taken for a fresh start: a file that is gone when the
#	  server starts, and settings that are not valid then.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;

my $node = new_node('main', conf => <<EOF);
snowflake.layout = 'twitter, sequence 2'
snowflake.max_ahead = '5min'
EOF
my $file = $node->data_dir . '/snowflake.state';

# A directory in the place of the temporary file lets every write of the state fail.
sub fail_writes    { mkdir "$file.tmp" or die "mkdir: $!"; }
sub allow_writes   { rmdir "$file.tmp" or die "rmdir: $!"; }

# Ends the worker while it cannot record the end of its lease, changes the file, and
# lets the next worker open a lease.
sub restart_worker
{
	my ($change) = @_;
	my $pid = worker_pid($node);

	fail_writes();
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	poll('end of the worker', sub { !kill(0, $pid) });
	$change->();
	allow_writes();
	poll('a new worker', sub { stat_of($node, 'state') !~ /^(starting|refused)$/ });
}

sub check_above
{
	my ($label, $greatest) = @_;

	like(sql_error($node, "SET snowflake.max_wait = 0; SELECT snowflake_nextval()"),
		qr/^ERROR:  55P03: the next id would be /, "$label: no id before the clock is near the last one");
	set_and_reload($node, 'snowflake.max_ahead' => '10min');
	poll("$label: draws", sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
	my @ids = draw($node, 1000, 1);
	cmp_ok($ids[0], '>', $greatest, "$label: ids go on above all earlier ones");
	set_and_reload($node, 'snowflake.max_ahead' => '1s');
	return $ids[-1];
}

poll('lease', sub { stat_of($node, 'state') eq 'ready' });
my $old_copy = do { local (@ARGV, $/) = ($file); <> };
my $greatest = (draw($node, 640_000, 1))[-1];
cmp_ok(stat_of($node, 'ahead'), 'gt', '00:01:20', 'ids are far ahead of the clock') or BAIL_OUT('too slow for this test');
set_and_reload($node, 'snowflake.max_ahead' => '1s');

restart_worker(sub { unlink $file or die "unlink: $!" });
$greatest = check_above('file removed', $greatest);
restart_worker(sub { open my $out, '>', $file or die $!; binmode $out; print $out $old_copy; close $out or die $! });
check_above('older copy put back', $greatest);

# The file of before is gone, or both files are, when the server starts: ids begin
# behind the last checkpoint, and the layout is still guarded by the second file.
set_and_reload($node, 'snowflake.max_ahead' => '10min');
poll('ids again', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
$greatest = (draw($node, 1000, 1))[-1];
foreach my $both (0, 1)
{
	$node->stop;
	unlink $file or die "unlink: $!";
	unlink $node->data_dir . '/snowflake.started' or die "unlink: $!" if $both;
	$node->start;
	my $label = $both ? 'both files removed' : 'file removed while stopped';
	my @ids = draw($node, 10);
	cmp_ok($ids[0], '>', $greatest, "$label: ids go on above all earlier ones");
	$greatest = $ids[-1];
}
$node->stop;
unlink $file or die "unlink: $!";
set_conf($node, 'snowflake.layout' => 'twitter, sequence 2, epoch 2020-01-01T00:00:00Z');
$node->start;
poll('refusal', sub { stat_of($node, 'state') ne 'starting' });
like(sql_error($node, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: snowflake.layout is not the one/,
	'file removed and another layout: refused');

# A part of the definition in the second file is another definition.
$node->stop;
my $started = $node->data_dir . '/snowflake.started';
my $whole = slurp_file($started);
foreach my $part ($whole =~ s/, tick.*//sr, $whole =~ s/\n//r)
{
	open my $out, '>', $started or die $!;
	print $out $part;
	close $out or die $!;
	$node->start;
	poll('refusal', sub { stat_of($node, 'state') ne 'starting' });
	like(sql_error($node, 'SELECT snowflake_nextval()'),
		qr/^ERROR:  XX001: file "snowflake.started" cannot be used\nDETAIL:  It does not hold a layout/,
		"the second file cut to '$part': refused");
	$node->stop;
}
open my $out, '>', $started or die $!;
print $out $whole;
close $out or die $!;
$node->start;
set_conf($node, 'snowflake.layout' => 'twitter, sequence 2');

# A value that is not valid when the server starts is not replaced by a default.
foreach my $case (
	[ 'snowflake.registry' => "'host=registry password=opensesame'" ],
	[ 'snowflake.datacenter_id' => "'dc5'" ],
	[ 'snowflake.datacenter_id' => '99999999999' ],
	[ 'snowflake.worker_id' => "'seven'" ])
{
	my ($name, $value) = @$case;
	my $bare = $value =~ s/^'|'$//gr;
	my $shown = $name =~ /registry/ ? '' : $bare;
	my $begin = log_end($node);

	$node->stop;
	$node->append_conf('postgresql.conf', "$name = $value");
	$node->start;
	is($node->safe_psql('postgres', 'SELECT 1'), 1, "$name = $value: the server starts");
	like(sql_error($node, 'SELECT snowflake_nextval()'),
		qr/^ERROR:  55000: the server was started with an invalid \Q$name: "$shown"\E\n.*\nHINT:  Correct the setting and restart/,
		"$name = $value: no ids");
	unlike(log_since($node, $begin), qr/opensesame/, "$name = $value: no password in the log");
	$node->adjust_conf('postgresql.conf', $name, $name =~ /worker_id/ ? '1' : undef);
}
$node->restart;
is(settle(1, sub { stat_of($node, 'worker_id') }), 1, 'after the settings were corrected there is a lease again');

done_testing();
