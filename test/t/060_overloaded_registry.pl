# 060_overloaded_registry.pl
#	  A registry that has no time for its nodes: one that lets nobody in, by SQLSTATE and whatever
#	  its words are, is asked less and less often; one where nobody answers is asked after about a
#	  second.  A call that is given up is cancelled there.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;
use IO::Select;
use IO::Socket::UNIX;
use Time::HiRes qw(time);

my $directory = PostgreSQL::Test::Utils::tempdir_short();
my $listener = IO::Socket::UNIX->new(Local => "$directory/.s.PGSQL.5432", Listen => 10) or die "$directory: $!";
my $away = "host=$directory port=5432";
my $node = new_member('node', $away);

# What a client sends first; empty if it has gone.
sub read_startup
{
	my ($socket) = @_;
	my $packet = '';

	while (length $packet < 4 || length $packet < unpack 'N', $packet)
	{
		IO::Select->new($socket)->can_read(10) && sysread($socket, $packet, 1000, length $packet) or return '';
	}
	return $packet;
}

# When the next client asks, which gets this error; with undef nobody answers.
sub next_call
{
	my ($sqlstate) = @_;

	return poll('a call', sub {
			IO::Select->new($listener)->can_read(1) or return;
			my $socket = $listener->accept;
			my $came = time;

			return if read_startup($socket) eq '';
			if (defined $sqlstate)
			{
				my $fields = join '', map { "$_\0" } 'SFATALE', 'VFATAL', "C$sqlstate", 'Mnon ora', 'Fa.c', 'L1', 'Rnone', '';

				syswrite $socket, 'E' . pack('N', 4 + length $fields) . $fields;
			}
			return $came });
}

# How long the node waits after each of some calls: at least so long.
sub waits
{
	my ($sqlstate, $calls) = @_;
	my @times = map { next_call($sqlstate) } 0 .. $calls;

	return map { $times[$_] - $times[ $_ - 1 ] } 1 .. $calls;
}

sub seconds { return join ' ', map { sprintf '%.1f', $_ } @_; }

# Whatever was told before, nobody answers the first of these calls.
sub check_grows
{
	my ($label, $sqlstate) = @_;

	next_call(undef);
	my @waits = waits($sqlstate, 3);
	ok($waits[1] >= 2.9 && $waits[2] >= 5.9, "$label: the node waits longer each time: " . seconds(@waits));
	my ($error) = nextval_error_with_reason($node, '100ms');
	like($error, qr/^ERROR:  55P03: could not reach the registry \Q$directory\E:5432\/postgres\nDETAIL:  .*FATALE:  non ora\nHINT:  /,
		"$label: the reason, in the words of the server");
}

$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake');
my $clients = start_clients($node, count => 1, sql => GENTLE . "\nSET snowflake.max_wait = '50ms';");
check_grows('no connection is free', '53300');

# One that is busy for a moment only is soon asked again: on a slow machine, too, one wait is short.
next_call('53300') foreach 1 .. 2;
next_call('28P01');
my $wait = 0;
poll('a short wait', sub { ($wait) = waits('28P01', 1); return $wait < 2 });
cmp_ok($wait, '>=', 0.7, 'a wrong password: about a second');

# Where libpq goes from host to host by itself.
set_and_reload($node, 'snowflake.registry' => "$away connect_timeout=20");
check_grows('the registry is starting, with connect_timeout', '57P03');
close $listener;
$clients->stop;
$node->stop;

#
# A call that hangs: it waits for a standby that is not there
#
my $registry = new_registry('registry', conf => "wal_level = replica\nmax_wal_senders = 2\n");
set_and_reload($registry, synchronous_standby_names => 'nobody');
my $offset = log_end($registry);
my $member = new_member('member', conninfo_of($registry));
my $waiting = start_clients($member, count => 1, sql => GENTLE . "\nSET snowflake.max_wait = '50ms';");
my ($error) = nextval_error_with_reason($member, '100ms');
like($error, qr/^ERROR:  55P03: could not reach the registry .*\nDETAIL:  It did not answer in time\./, 'a call that hangs is given up');
poll('the cancel', sub { log_since($registry, $offset) =~ /canceling wait for synchronous replication due to user request/ });
pass('and cancelled at the registry');
set_and_reload($registry, synchronous_standby_names => '');
$waiting->wait_for(20);
pass('ids go on by themselves');
$waiting->stop;
$_->stop foreach $member, $registry;

done_testing();
