# fleet.pl
#	  300 and 1,000 programs that come to a registry when it starts, all when they like: seconds
#	  until the last one has a lease, beside the same number of grants made one after another;
#	  what that costs the registry; and what they notice when it is away for half a lease.
#
# The programs are in one Java process, Fleet.java, with the library of client/java.  The
# registry's max_connections is above and below their number, and they come through PgBouncer,
# if it is there.  One round takes half an hour.
use strict;
use warnings;

use IPC::Open2;
use Time::HiRes qw(sleep time);

use Bench;

my @sizes = split ' ', $ENV{SIZES} // quick('300 1000', '30');
my %above = (30 => 60, 300 => 400, 1000 => 1100);
my $below = quick(100, 10);
my $bits = 12;		# half of the numbers, 2,047, can be leased at a time
my $layout = "timestamp 41, worker $bits, sequence 10, tick 1ms, epoch 2024-01-01T00:00:00Z";
my $lease = quick(120, 40);
my $settled = 0.7;	# so much of it is left to each client that is not just about to renew it
my $patience = quick(300, 120);
my ($bouncer) = grep { -x } '/usr/sbin/pgbouncer', '/usr/bin/pgbouncer';
my $bouncer_port = 6432;
my $driver = '/usr/share/java/postgresql.jar';
my $one = 'one after another';
my $limit = 'twice that and 15 s';

my $server = new_server('fleet', 'listen_addresses' => "'127.0.0.1'", 'shared_preload_libraries' => "''",
	'max_connections' => 400, 'log_connections' => 'on');
$server->sql('CREATE EXTENSION snowflake_registry');
# As doc/operations.md has it for nodes
$server->sql("ALTER ROLE postgres SET $_") foreach "statement_timeout = '1min'", "deadlock_timeout = '1min'", "idle_in_transaction_session_timeout = '2s'";
# From the password itself PgBouncer would compute this at each login, for some ms.
my $secret = $server->sql("SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'");
my $definition = $server->sql("SELECT definition FROM snowflake_layout('$layout')");
my $request = qq({"protocol": 1, "start": "00000000-0000-4000-8000-NODE", "call": 1, "layout": "$definition", "clock": CLOCK, )
  . qq("max_ahead": 1001000, "window": 10000000, "lease": null, "first_number": 0, "last_number": ${\ (2**$bits - 2)}, "fixed": false, )
  . qq("uses": null, "starts_at": null, "ids_end_at": null, "launched_at": CLOCK, "kind": "program", "name": "bench", "host_name": "bench"});
my $classes = "$server->{dir}/classes";
system('javac', '--release', '11', '-d', $classes, glob('client/java/src/main/java/example/snowflake/*.java'), 'bench/Fleet.java') == 0
  or die 'bench/Fleet.java was not compiled';
my $pid = open2(my $answers, my $commands, 'java', '-Xss256k', '-Djava.util.logging.config.file=/dev/null', '-cp', "$classes:$driver",
	'Fleet', $layout);

# What the process answers.
sub ask
{
	my (@words) = @_;

	print $commands join("\t", @words) . "\n";
	$commands->flush;
	my $answer = readline($answers) // die "the Java process has ended\n";
	chomp $answer;
	return $answer;
}

sub url
{
	return "jdbc:postgresql://127.0.0.1:$_[0]/postgres?user=postgres";
}

my %through = ('max_connections above' => sub { $above{ $_[0] } // $_[0] + 100 }, 'max_connections below' => sub { $below },
	'PgBouncer, 4 connections' => undef);
my @subjects = sort keys %through;

figure(id => 'last', title => 'Until the last client has its lease', unit => 's', absolute => 1, x => 'clients', picture => 0,
	subjects => [ $one, $limit, @subjects ], references => [ $one, $limit ]);
foreach my $size (@sizes)
{
	goal(figure => 'last', subject => $_, x => $size, reference => $limit, at_most => 1) foreach grep { !/^PgB/ } @subjects;
	goal(figure => 'last', subject => $_, x => $size, reference => undef, at_most => 5, label => "$_, in s")
	  foreach grep { $bouncer && /^PgB/ } @subjects;
}
note('last', 'All clients are there before the registry, or PgBouncer, starts, and its start is when the time begins; they are in one '
	  . "process, on the same processors. `$one`: grants over a new connection each, by one thread of that process. "
	  . "max_connections is $below below, and " . join(', ', map { $through{'max_connections above'}->($_) } @sizes) . ' above. '
	  . ($bouncer ? 'PgBouncer pools transactions.' : 'PgBouncer is not installed: not measured.'));
figure(id => 'cpu', title => "Processor time of the registry's server until then", unit => 's', absolute => 1, x => 'clients', picture => 0,
	subjects => [ $one, @subjects ], references => [$one]);
figure(id => 'connections', title => 'Connections made to it until then', unit => 'connections', absolute => 1, x => 'clients', picture => 0,
	subjects => [ $one, @subjects ], references => [$one]);
note('connections', 'Those that it refused, and those that only cancel a call, are counted, too.');
figure(id => 'start', title => 'Longest time without ids of a client that had a lease, until then', unit => 's', absolute => 1,
	x => 'clients', picture => 0, subjects => \@subjects);
note('start', 'A first lease lasts 10 s, and its renewal comes when others still wait for their first lease.');
figure(id => 'away', title => 'Longest time without ids while the registry is away', unit => 's', absolute => 1, x => 'clients',
	picture => 0, subjects => ['max_connections above']);
note('away', "Leases of $lease s, of which " . $settled * $lease . " s or more were left; the registry is stopped for half of $lease s, "
	  . 'and the time until each client has renewed its lease counts, too.');
goal(figure => 'away', subject => 'max_connections above', x => $_, reference => undef, at_most => 0, label => 'no id refused, in s') foreach @sizes;

# The first ones are slow: they do not count.
ask('grants', url($server->{port}), 20, $request);
each_round('fleet', map { my $size = $_; sub { measure($size, $_[0]) } } @sizes);
ask('stop');
close $commands;
waitpid $pid, 0;
die "the Java process failed\n" if $? != 0;
finish();

sub measure
{
	my ($size, $run) = @_;

	forget();
	my $before = $server->processor_time;
	my $from = connections();
	my $seconds = ask('grants', url($server->{port}), $size, $request);

	sample('last', $one, $size, $run, $seconds);
	sample('last', $limit, $size, $run, 2 * $seconds + 15);
	sample('cpu', $one, $size, $run, $server->processor_time - $before);
	sample('connections', $one, $size, $run, connections() - $from);
	arrive($_, $size, $run) foreach grep { $bouncer || !/^PgB/ } @subjects;
}

# All clients come at once, and go.
sub arrive
{
	my ($subject, $size, $run) = @_;
	my $directly = $through{$subject};

	progress("$size clients, $subject");
	forget();
	$server->stop;
	$server->configure('max_connections' => $directly ? $directly->($size) : 100);
	$server->start unless $directly;
	my $from = connections();
	my $before = $directly ? 0 : $server->processor_time;
	ask('start', url($directly ? $server->{port} : $bouncer_port), $size, $lease);
	# each has found out that nobody is there
	sleep 3;
	my $began = time;
	my $pooler = $directly ? $server->start : start_bouncer();
	my ($leased, $last) = split ' ', ask('leased', $size, $patience);
	my $cpu = $server->processor_time - $before;
	my $made = connections() - $from;
	my ($refused, $longest) = split ' ', ask('refused');

	progress(sprintf('%d of %d have a lease after %.1f s; %d connections; %d ids refused', $leased, $size, $last - $began, $made, $refused));
	sample('last', $subject, $size, $run, $leased == $size ? $last - $began : $patience);
	sample('cpu', $subject, $size, $run, $cpu);
	sample('connections', $subject, $size, $run, $made);
	sample('start', $subject, $size, $run, $longest);
	be_away($subject, $size, $run) if $subject eq 'max_connections above';
	# else a thousand releases would wait for it
	$server->stop;
	end_bouncer($pooler) unless $directly;
	ask('stop');
	$server->start;
}

sub be_away
{
	my ($subject, $size, $run) = @_;
	my $long = ask('settled', $settled, $patience);

	progress("$long of $size leases are long enough");
	ask('refused');
	$server->stop;
	sleep $lease / 2;
	$server->start;
	$long = ask('settled', $settled, $patience);
	my ($refused, $longest) = split ' ', ask('refused');
	progress("$long of $size are renewed; $refused ids refused");
	sample('away', $subject, $size, $run, $longest);
}

# As if there had been no node.
sub forget
{
	$server->sql('DROP EXTENSION snowflake_registry');
	$server->sql('CREATE EXTENSION snowflake_registry');
}

# How many the server has seen.
sub connections
{
	my $seen = 0;

	open my $log, '<', "$server->{dir}/log" or die "$server->{dir}/log: $!";
	while (my $line = <$log>)
	{
		$seen++ if $line =~ /connection received/;
	}
	return $seen;
}

# Its clients give the password; it needs none at the socket.
sub start_bouncer
{
	my $users = $server->script('users.txt', qq("postgres" "$secret"\n));
	my $ini = $server->script('pgbouncer.ini', <<END);
[databases]
postgres = host=$server->{dir} port=$server->{port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $bouncer_port
unix_socket_dir =
auth_type = scram-sha-256
auth_file = $users
pool_mode = transaction
default_pool_size = 4
max_client_conn = 2000
ignore_startup_parameters = extra_float_digits
END
	return BenchServer::begin("$server->{dir}/pgbouncer.log", $bouncer, '-q', $ini);
}

sub end_bouncer
{
	my ($bouncer) = @_;

	kill 'TERM', $bouncer;
	BenchServer::end($bouncer);
}
