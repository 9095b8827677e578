# 006_state_file_io.pl
#	  The bound is on disk before an id above the one before it comes out.  While
#	  snowflake.state cannot be written, synced or renamed, ids go on up to the bound
#	  and not beyond; draws then fail with the error's own SQLSTATE, and go on by
#	  themselves when the disk does.  A library in front of the C library's calls
#	  plays the broken disk and notes in which order the file is written.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use Errno qw(EIO ENOSPC);

my $library = build_library('broken_disk', <<'EOF');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

static int
ends_with(const char *text, const char *end)
{
	size_t		length = strlen(text);

	return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

/* "new" for the temporary file, "old" for the file itself, NULL for others. */
static const char *
which(int fd)
{
	char		link[32];
	char		path[4096];
	ssize_t		length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	path[length < 0 ? 0 : length] = '\0';
	return ends_with(path, "/snowflake.state.tmp") ? "new" :
		ends_with(path, "/snowflake.state") ? "old" : NULL;
}

/* The control file holds "call errno" for calls that are to fail; the others are noted. */
static int
fails(const char *call, const char *file)
{
	char		name[16] = "";
	char		line[64];
	int			code = 0;
	int			fd;
	FILE	   *control = fopen(getenv("BROKEN_DISK_CONTROL"), "r");

	if (control != NULL)
	{
		if (fscanf(control, "%15s %d", name, &code) == 2 && strcmp(name, call) == 0)
		{
			fclose(control);
			errno = code;
			return 1;
		}
		fclose(control);
	}
	fd = open(getenv("BROKEN_DISK_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
	snprintf(line, sizeof(line), "%s-%s ", call, file);
	if (NEXT(write)(fd, line, strlen(line)) < 0)
		abort();
	close(fd);
	return 0;
}

ssize_t
write(int fd, const void *data, size_t size)
{
	const char *file = which(fd);

	if (file != NULL && fails("short", file))
	{
		errno = 0;
		return NEXT(write)(fd, data, size / 2);
	}
	if (file != NULL && fails("write", file))
		return -1;
	return NEXT(write)(fd, data, size);
}

int
fsync(int fd)
{
	const char *file = which(fd);

	return file != NULL && fails("fsync", file) ? -1 : NEXT(fsync)(fd);
}

int
rename(const char *from, const char *to)
{
	return ends_with(to, "snowflake.state") && fails("rename", "new") ? -1 : NEXT(rename)(from, to);
}
EOF

my $node = new_node('main', start => 0);
my $data = $node->data_dir;
my $control = $node->basedir . '/control';
my $calls = $node->basedir . '/calls';
my @disk = ($library, BROKEN_DISK_CONTROL => $control, BROKEN_DISK_LOG => $calls);

my @write = (sub { my ($what) = @_; append_to_file("$control.new", $what);
		rename "$control.new", $control or die $! }, sub { unlink $control or die $! });
my @mode = (sub { chmod 0500, $data or die $! }, sub { chmod 0700, $data or die $! });
my @faults = (
	[ 'disk full in write', '53100', qr/could not write file/, 'write ' . ENOSPC, @write ],
	[ 'half a write', '53100', qr/could not write file/, 'short 0', @write ],
	[ 'input/output error in write', '58030', qr/could not write file/, 'write ' . EIO, @write ],
	[ 'input/output error in fsync', '58030', qr/could not fsync file/, 'fsync ' . EIO, @write ],
	[ 'disk full in rename', '53100', qr/could not rename file/, 'rename ' . ENOSPC, @write ],
	[ 'directory not writable', '42501', qr/could not create file/, '', @mode ]);

#
# The server starts on a broken disk
#
$write[0]('write ' . ENOSPC);
start_with($node, @disk);
is($node->safe_psql('postgres', 'SELECT 1'), 1, 'the server starts when the disk is full');
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
poll('refusal', sub { stat_of($node, 'state') eq 'refused' });
like(sql_error($node, 'SELECT snowflake_nextval()'), qr/^ERROR:  53100: could not write file "snowflake.state"/,
	'a draw fails when the disk is full at start');
ok(!-e "$data/snowflake.state", 'no file is left');
$write[1]();
my ($first) = draw($node, 1) if poll('draws', sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
ok($first, 'a draw works when there is room again');

#
# The disk breaks while ids are drawn
#
my @phases = ([ write_ids($first) ]);

# With pauses, since one error follows another for a while.
my $calm = "SELECT snowflake_nextval();\nSELECT snowflake_nextval_batch(30);\n"
  . 'SELECT pg_sleep(0.005) \g /dev/null';
foreach my $fault (@faults)
{
	my ($label, $code, $message, $what, $break, $mend) = @$fault;
	my $drawers = start_drawers($node, count => 2, sql => $calm);
	my $failures = stat_of($node, 'lease_failures');

	$drawers->wait_for(500);
	$break->($what);
	poll("$label: an error", sub { $drawers->errors ne '' });
	poll("$label: state", sub { stat_of($node, 'state') eq 'expired' });
	my $error = sql_error($node, 'SELECT snowflake_nextval()');

	# Nothing came out beyond the bound, neither to the sessions nor to anybody.
	my ($last_end, $leased_until) = split /\|/, $node->safe_psql('postgres', <<EOF);
SELECT extract(epoch FROM snowflake_timestamp(last_id)) + 0.001, extract(epoch FROM leased_until)
FROM pg_stat_snowflake
EOF
	cmp_ok($last_end, '<=', $leased_until, "$label: no id beyond the bound");
	like($error, qr/^ERROR:  $code: $message "snowflake.state": .+\nDETAIL:  .+\nHINT:  .*drawing goes on by itself/,
		"$label: a draw fails");
	like(stat_of($node, 'detail'), $message, "$label: the view says why");
	cmp_ok(stat_of($node, 'lease_failures'), '>', $failures, "$label: it is counted");
	is($node->safe_psql('postgres', 'SELECT 1'), 1, "$label: the server answers");

	$mend->();
	$drawers->wait_for(500);
	push @phases, [ $drawers->stop ];
	unlike($drawers->errors, qr/ERROR:  (?!$code)/, "$label: all sessions get this error only");
	is(stat_of($node, 'state'), 'ready', "$label: all is well again");
}

#
# Killed on a broken disk: what is on disk covers all that came out
#
my $drawers = start_drawers($node);
$drawers->wait_for(500);
$write[0]('fsync ' . EIO);
poll('an error', sub { $drawers->errors ne '' });
crash($node);
push @phases, [ $drawers->stop ];
$write[1]();
start_with($node, @disk);
push @phases, [ write_ids(draw($node, 100)) ];

# Stopped on a broken disk: the exact end cannot be recorded, the bound stands.
$write[0]('rename ' . EIO);
my $log = log_end($node);
$node->stop('fast');
like(log_since($node, $log), qr/WARNING: .*could not rename file "snowflake.state"/, 'the log tells of the stop');
$write[1]();
start_with($node, @disk);
push @phases, [ write_ids(draw($node, 100)) ];
check_phases('all faults', @phases);
$node->stop;

# Each time that a call did not fail: written and synced, then renamed, then synced.  fsync was broken
# twice; where that happened right behind a rename, the last one failed.
my @steps = split / /, slurp_file($calls);
my $order = join ' ', grep { !/^short/ } @steps;
my $full = qr/write-new (?:fsync-new )+(?:fsync-old )?rename-new (?:fsync-old )?/;
my $part = qr/write-new (?:fsync-new )*(?:fsync-old )?/;
cmp_ok(scalar(() = "$order " =~ /$full/g), '>', 10, 'the file was written often enough to judge');
like("$order ", qr/^(?:$full|$part)+\z/, 'each state is synced before it is renamed');
cmp_ok(scalar(() = "$order " =~ /rename-new (?!fsync-old )/g), '<=', 2, 'and afterwards');

done_testing();
