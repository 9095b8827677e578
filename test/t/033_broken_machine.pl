# 033_broken_machine.pl
#	  What surrounds the server fails: the source of random numbers, OpenSSL's AES, the
#	  list of network interfaces, the host's name.  Each is an error that says so; no id is
#	  guessed; and ids go on by themselves, after all earlier ids, once it is mended.  A
#	  library in front of the calls plays the broken machine.
use FindBin;
use lib "$FindBin::RealBin/../perl";
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

/* Sixteen bytes are a uuid; sessions ask for others. */
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
	if (is_broken("interfaces"))
		return (errno = EMFILE, -1);
	if (is_broken("no interfaces"))
		return (*list = NULL, 0);
	return NEXT(getifaddrs)(list);
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

# The registry makes the tokens of leases.
break_it('nothing');
my $registry = new_registry('registry', start => 0);
start_with($registry, $library, BROKEN_MACHINE => $control);
$registry->safe_psql('postgres', 'CREATE EXTENSION snowflake_registry');
my $node = new_member('main', conninfo_of($registry), start => 0);
my $greatest = 0;

sub check_goes_on
{
	my ($label) = @_;

	poll("$label: ids", sub { sql_error($node, 'SELECT snowflake_nextval()') eq '' });
	my $id = (issue_ids($node, 1))[0];
	cmp_ok($id, '>', $greatest, "$label: ids go on after all earlier ones");
	$greatest = $id;
}

#
# No random numbers: no token, so no lease; at server start, no lease until the next start
#
start_with($node, $library, BROKEN_MACHINE => $control);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$node->safe_psql('postgres', 'SELECT pg_sleep(1)');	# the first ids are later than the clock
check_goes_on('at first');
break_it('random');
$node->safe_psql('postgres', 'SELECT snowflake_release()');
like(sql_error($node, "SET snowflake.max_wait = '2s'; SELECT snowflake_nextval()"),
	qr/^ERROR:  55P03: could not generate random values\n/, 'no random numbers: no ids');
like(log_since($node, 0), qr/WARNING:  XX000: snowflake: could not generate random values/, 'no random numbers: the log says so');
is($registry->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node WHERE closed_at IS NULL'), 0,
	'no random numbers: nothing is leased');
break_it('nothing');
check_goes_on('random numbers again');
$node->stop;
break_it('random');
start_with($node, $library, BROKEN_MACHINE => $control);
like(sql_error($node, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: could not generate random values\nDETAIL:  .*\nHINT:  .*restart/,
	'no random numbers at server start: it starts, and issues no ids');
$node->stop;
break_it('nothing');
start_with($node, $library, BROKEN_MACHINE => $control);
check_goes_on('started with random numbers again');

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
foreach my $case ([ 'odd name', 'caf??' ], [ 'name', 'unknown' ], [ 'nothing', 'host-1' ])
{
	my ($what, $name) = @$case;

	break_it($what);
	$node->safe_psql('postgres', 'SELECT snowflake_release()');
	check_goes_on($what);
	is(registry_row($registry, $node, 'host_name'), $name, "$what: the row of the lease has $name");
}

#
# No list of network interfaces, or an empty one
#
foreach my $what ('interfaces', 'no interfaces')
{
	break_it($what);
	set_and_reload($node, 'snowflake.worker_id' => 'mac');
	wait_for_state($node, 'refused');
	like(sql_error($node, 'SELECT snowflake_nextval()'), qr/^ERROR:  55000: no worker id in a MAC address\n/, "$what: refused");
	break_it('nothing');
	set_and_reload($node, 'snowflake.worker_id' => 'auto');
	check_goes_on("$what: worker id automatic again");
}
$_->stop foreach $node, $registry;

done_testing();
