# TortureFleet.pm
#	  The fleet of the deployment "mesh": many programs of each language that are nodes by the
#	  registry R, most of them through PgBouncer in transaction mode.  A process for each
#	  language, fleet, runs them and is what happens to them.
#
#	  make_fleet(%options)	options as of TortureWorld; "drivers" has the command of each language
#	  pool_fault(), heal_pool()
#						for the process that things happen in
#	  stop_fleet()		heals and ends it, when R is well; returns the names of programs that gave
#						no id any more
#	  fleet_shortcomings(IDS)
#						what of it did not happen, or was not looked at, as lines; IDS: the number
#						of ids by server, as checked
package TortureFleet;

use strict;
use warnings;

use Exporter 'import';
use List::Util qw(sum0);
use Time::HiRes qw(sleep time);
use TortureDeployment;
use TortureDirectory qw(as_user run);
use TortureFaults;
use TortureLog;
use TortureRegistry;
use TortureServer qw(launch);

our @EXPORT = qw(fleet_shortcomings heal_pool make_fleet pool_fault stop_fleet);

use constant {
	POOLER => '/usr/sbin/pgbouncer',
	POOL_PORT => 6300 };
# Ids of each program, and second: far fewer than are asked for.
use constant LEAST_RATE => 1;

my (%option, $pool);

# As in doc/operations.md, but without TLS and passwords.
sub make_pool
{
	my ($network) = @_;
	my ($host, $port) = address_of_registry($network);

	$pool = "$option{work}/pool";
	mkdir $pool or die "$pool: $!\n";
	open my $users, '>', "$pool/users" or die "$pool: $!\n";
	print $users "\"node\" \"\"\n";
	close $users;
	open my $settings, '>', "$pool/pgbouncer.ini" or die "$pool: $!\n";
	print $settings <<"END";
[databases]
postgres = host=$host port=$port
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = @{[ POOL_PORT ]}
unix_socket_dir =
auth_type = trust
auth_file = $pool/users
pool_mode = transaction
max_db_connections = 4
max_client_conn = 1000
server_login_retry = 1
ignore_startup_parameters = extra_float_digits
log_connections = 0
log_disconnections = 0
END
	close $settings;
}

sub pool_processes
{
	return grep { (readlink("/proc/$_/exe") // '') eq POOLER } map { m{(\d+)} } glob '/proc/[0-9]*';
}

# It comes back, as systemd sees to it: version 1.18 also ends by itself at some cancel requests.
sub start_pool
{
	launch("$option{out}/pgbouncer.log",
		as_user('sh', '-c', 'while "$@" || :; do sleep 0.5; done', 'sh', POOLER, "$pool/pgbouncer.ini"));
}

sub make_fleet
{
	%option = @_;
	make_pool($option{networks} - 1);
	start_pool();
	foreach my $language (sort keys %{ $option{drivers} })
	{
		foreach my $name (map { "$language-$_" } 0 .. $option{count} - 1)
		{
			announce($name, 'mesh', 'R');
			log_world("log $option{out}/ids/$name $name program");
		}
		launch("$option{out}/fleet.log", "$option{torture}/fleet", "language=$language", "count=$option{count}", "out=$option{out}",
			'seed=' . int(rand 2**31), 'pool=127.0.0.1:' . POOL_PORT, 'direct=' . join(':', address_of_registry($option{networks})),
			'layout=' . layout_text('mesh'), "lease=$option{lease}", 'max_ahead=' . max_ahead('mesh'),
			'--', as_user(split ' ', $option{drivers}{$language}));
	}
}

sub pool_fault
{
	my $freeze = chance(0.5);
	my $event = begin_event('pool', $freeze ? 'pool frozen' : 'pool killed');

	kill(($freeze ? 'STOP' : 'KILL') => pool_processes());
	sleep between(0.3, 3);
	heal_pool();
	end_event($event);
}

sub heal_pool
{
	kill CONT => pool_processes();
}

sub stop_fleet
{
	my @files = map { "$option{out}/fleet.$_" } keys %{ $option{drivers} };
	my $until = time + 600;

	open my $stop, '>', "$option{out}/fleet.stop" or die "fleet.stop: $!\n";
	close $stop;
	while (grep { !-e } @files)
	{
		die "the fleet does not end\n" if time > $until;
		die "the fleet failed: see fleet.log\n" if -s "$option{out}/fleet.log";
		sleep 0.2;
	}
	local @ARGV = @files;
	return map { split } <>;
}

sub fleet_shortcomings
{
	my ($ids) = @_;
	my %times;
	my @lines;

	$times{ $_->{kind} }++ foreach read_events();
	foreach my $language (sort keys %{ $option{drivers} })
	{
		my $got = sum0 map { $ids->{"$language-$_"} // 0 } 0 .. $option{count} - 1;
		my $least = LEAST_RATE * $option{count} * $option{duration};

		push @lines, "$got ids of programs in $language, not $least" if $got < $least;
		push @lines, grep { !$times{$_} } map { "$language $_" } 'killed', 'frozen', 'frozen past its lease', 'closed', 'clock stepped';
	}
	return @lines;
}

1;
