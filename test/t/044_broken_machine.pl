# 044_broken_machine.pl
#	  What surrounds the server fails: the source of random numbers, OpenSSL's AES, the
#	  list of network interfaces, the host's name; the files that a safe start is reckoned
#	  from, snowflake.started, pg_control and a state file with a right checksum, hold
#	  nonsense.  Each is an error that says so; no id is guessed; and draws go on by
#	  themselves, above all earlier ids, once it is mended.  A library in front of the
#	  calls plays the broken machine.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeRegistry;

my $library = build_library('broken_machine', <<'EOF');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

/* Those of ifaddrs.h and openssl/rand.h and evp.h */
struct ifaddrs;
int			getifaddrs(struct ifaddrs **list);
int			RAND_bytes(unsigned char *bytes, int n);
int			EVP_EncryptUpdate(void *context, unsigned char *out, int *out_length,
							  const unsigned char *in, int in_length);

/* The control file names what is broken. */
static int
is_broken(const char *what)
{
	char		line[64] = "";
	FILE	   *control = fopen(getenv("BROKEN_MACHINE"), "r");

	if (control == NULL)
		return 0;
	if (fgets(line, sizeof(line), control) == NULL)
		line[0] = '\0';
	fclose(control);
	line[strcspn(line, "\n")] = '\0';
	return strcmp(line, what) == 0;
}

/* Sixteen bytes are a token; sessions ask for others. */
int
RAND_bytes(unsigned char *bytes, int n)
{
	return n == 16 && is_broken("random") ? 0 : NEXT(RAND_bytes)(bytes, n);
}

int
EVP_EncryptUpdate(void *context, unsigned char *out, int *out_length,
				  const unsigned char *in, int in_length)
{
	return is_broken("aes") ? 0 : NEXT(EVP_EncryptUpdate)(context, out, out_length, in, in_length);
}

int
getifaddrs(struct ifaddrs **list)
{
	return is_broken("interfaces") ? (errno = EMFILE, -1) : NEXT(getifaddrs)(list);
}

int
gethostname(char *name, size_t size)
{
	if (is_broken("name"))
		return (errno = EPERM, -1);
	strncpy(name, is_broken("odd name") ? "caf\xc3\xa9\n" : "host-1", size);
	return 0;
}
EOF

my $control = PostgreSQL::Test::Utils::tempdir('control') . '/broken';

sub break_it
{
	my ($what) = @_;

	open my $out, '>', "$control.new" or die "$control.new: $!";
	print $out "$what\n";
	close $out or die "$control.new: $!";
	rename "$control.new", $control or die "$control: $!";
}

sub put_file
{
	my ($file, $contents) = @_;

	open my $out, '>:raw', "$file.new" or die "$file.new: $!";
	print $out $contents;
	close $out or die "$file.new: $!";
	rename "$file.new", $file or die "$file: $!";
}

my $registry = new_registry('registry');
my $node = new_member('main', place($registry), start => 0);
my $greatest = 0;

sub check_goes_on
{
	my ($label) = @_;

	poll("$label: draws", sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
	my $id = (draw($node, 1))[0];
	cmp_ok($id, '>', $greatest, "$label: ids go on above all earlier ones");
	$greatest = $id;
}

#
# No random numbers: no token, so no lease
#
break_it('nothing');
start_with($node, $library, BROKEN_MACHINE => $control);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
check_goes_on('at first');
break_it('random');
$node->safe_psql('postgres', 'SELECT snowflake_release()');
like(sql_error($node, "SET snowflake.max_wait = '2s'; SELECT snowflake_nextval()"), qr/^ERROR:  55P03: /,
	'no random numbers: a draw fails');
poll('its reason in the log', sub { log_since($node, 0) =~ /ERROR:  XX000: could not generate random values/ });
is($registry->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE released_at IS NULL'), 0,
	'no random numbers: nothing is leased');
break_it('nothing');
check_goes_on('random numbers again');

#
# No AES: nothing is masked with less.  The sessions are there before, since OpenSSL makes
# random numbers with AES.
#
my $key = q(decode('000102030405060708090a0b0c0d0e0f', 'hex'));
my @sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 3;
my $masked = $sessions[0]->query_safe("SELECT snowflake_mask(4711, $key)");
break_it('aes');
foreach my $case ([ 0, "snowflake_mask(4711, $key)" ], [ 1, "snowflake_mask(4711, $key)" ], [ 2, "snowflake_unmask($masked, $key)" ])
{
	my ($i, $call) = @$case;

	$sessions[$i]->query("SELECT $call");
	like($sessions[$i]->{stderr}, qr/ERROR:  could not encrypt with AES\nHINT:  See the configuration of OpenSSL/,
		"no AES: $call fails in session $i");
	$sessions[$i]->{stderr} = '';
}
break_it('nothing');
is($sessions[0]->query_safe("SELECT snowflake_mask(4711, $key)"), $masked, 'AES again: the same session masks as before');
is($sessions[0]->query_safe("SELECT snowflake_unmask($masked, $key)"), 4711, 'AES again: and unmasks');
$_->quit foreach @sessions;

# A key that was set up by the first row of a statement; the second row breaks AES.
my $word = $node->safe_psql('postgres', "SELECT lo_from_bytea(0, 'aes')");
foreach my $function ('snowflake_mask', 'snowflake_unmask')
{
	break_it('nothing');
	like(sql_error($node, "SELECT $function(i, $key) FROM generate_series(1, 2) AS i,
			LATERAL (SELECT CASE i WHEN 2 THEN lo_export($word, '$control') END OFFSET 0) AS broken"),
		qr/^ERROR:  XX000: could not encrypt with AES/, "no AES from the second row on: $function fails");
}
break_it('nothing');

#
# Names of the host
#
foreach my $case ([ 'odd name', 'caf???' ], [ 'name', 'unknown' ], [ 'nothing', 'host-1' ])
{
	my ($what, $name) = @$case;

	break_it($what);
	$node->safe_psql('postgres', 'SELECT snowflake_release()');
	check_goes_on($what);
	is(registry_row($registry, $node, 'host_name'), $name, "$what: the row of the lease has $name");
}

#
# No list of network interfaces
#
break_it('interfaces');
set_and_reload($node, 'snowflake.worker_id' => 'mac');
wait_for_state($node, 'refused');
like(sql_error($node, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: no worker id in a MAC address\n/,
	'no interfaces: a draw is refused');
break_it('nothing');
set_and_reload($node, 'snowflake.worker_id' => 'auto');
check_goes_on('worker id automatic again');
$node->stop;

#
# Files that a safe start is reckoned from
#
$node = new_node('local');
check_goes_on('local');
my $data = $node->data_dir;
my $state = slurp_file("$data/snowflake.state");
my $started = slurp_file("$data/snowflake.started");

# The checksum of the image of src/state_file.c, CRC-32C as PostgreSQL computes it
sub crc32c
{
	my $crc = 0xffffffff;

	foreach my $byte (unpack 'C*', $_[0])
	{
		$crc ^= $byte;
		$crc = $crc & 1 ? $crc >> 1 ^ 0x82f63b78 : $crc >> 1 foreach 1 .. 8;
	}
	return $crc ^ 0xffffffff;
}

sub check_refusal
{
	my ($label, $error) = @_;

	like(poll("$label: refusal", sub {
				$node->reload;
				my $text = sql_error($node, "SET snowflake.max_wait = '100ms'; SELECT snowflake_nextval()");
				$text =~ /$error/ ? $text : '' }),
		qr/^ERROR:  XX001: $error/, "$label: a draw fails");
	is(stat_of($node, 'state'), 'refused', "$label: so does the view say");
}

$node->stop;
$state = slurp_file("$data/snowflake.state");
is(unpack('L', substr($state, 12, 4)), crc32c(substr($state, 16)), 'the checksum is as we compute it');
my $crowded = $state;
substr($crowded, -32 * 16 - 8, 4) = pack 'L', 33;
substr($crowded, 12, 4) = pack 'L', crc32c(substr($crowded, 16));
put_file("$data/snowflake.state", $crowded);
$node->start;
check_refusal('33 entries',
	qr/file "snowflake\.state" cannot be used\nDETAIL:  It claims to have 33 entries; there is room for 32\./);
put_file("$data/snowflake.state", $state);
check_goes_on('32 entries at most');

$node->stop;
unlink "$data/snowflake.state" or die $!;
put_file("$data/snowflake.started", "timestamp 41, no idea\n");
$node->start;
check_refusal('no layout', qr/file "snowflake\.started" cannot be used\nDETAIL:  It does not hold a layout\./);

# The server reads its control file when it starts, and we each time.
my $file = "$data/global/pg_control";
my $right = slurp_file($file);
my $wrong = $right;
substr($wrong, 40, 1) ^= "\x01";
put_file($file, $wrong);
put_file("$data/snowflake.started", $started);
check_refusal('control file', qr/could not read the control file to find a safe time to start at\nDETAIL:  Its checksum does not match/);
put_file($file, $right);
check_goes_on('control file right again');
like(log_since($node, 0), qr/WARNING: .*file "snowflake.state" does not exist; ids begin at/, 'the log says how');
$node->stop;

done_testing();
