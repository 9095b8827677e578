# BenchServer.pm
#	  A throwaway PostgreSQL server with the extension, for bench/*.pl.
#
#	  my $server = BenchServer->new('calls', 'shared_buffers' => '256MB');
#	  $server->sql('CREATE TABLE t ...');		all output, tuples only
#	  $server->seconds('SELECT ...');			how long one statement took
#	  $server->pgbench('-c', 8, '-T', 5, '-f', $file);	its output
#	  $server->processor_time;					of all its processes, in seconds
#	  my $pid = $server->background('pgbench', ...);	a client that goes on meanwhile
#	  BenchServer::end($pid);
#	  $server->stop;
#	  $server->start_under('valgrind', ...);	the next start, slowly
#
# Each stops at the end of the program.  A failing command dies with its output.
package BenchServer;

use strict;
use warnings;

use POSIX qw(WNOHANG sysconf _SC_CLK_TCK);
use Time::HiRes qw(sleep time);

my $next_port = 5433;
my @servers;
my %background;

# Settings beyond these are those of PostgreSQL.
my %defaults = (
	'listen_addresses' => "''",
	'shared_preload_libraries' => "'snowflake'",
	'snowflake.worker_id' => 1,
	'jit' => 'off',
	'max_connections' => 200,
	'max_wal_size' => "'16GB'",
	'checkpoint_timeout' => "'1h'",
	'autovacuum' => 'off');

sub new
{
	my ($class, $name, %settings) = @_;
	my $dir = "$ENV{BENCH_WORK}/$name";
	my $self = bless { name => $name, dir => $dir, port => $next_port++ }, $class;

	mkdir $dir or die "$dir: $!";
	$self->_run('initdb', '-D', "$dir/data", '-U', 'postgres', '--auth-local=trust', '--auth-host=scram-sha-256',
		"--pwfile=$ENV{BENCH_PASSWORD_FILE}", '-E', 'UTF8', '--locale=C', '-N');
	$self->configure(%defaults, unix_socket_directories => "'$dir'", port => $self->{port}, %settings);
	push @servers, $self;
	$self->start;
	$self->sql('CREATE EXTENSION snowflake');
	return $self;
}

# Appends settings, as they stand in postgresql.conf; they hold from the next start or
# reload on.
sub configure
{
	my ($self, %settings) = @_;

	open my $conf, '>>', "$self->{dir}/data/postgresql.conf" or die $!;
	print $conf "$_ = $settings{$_}\n" foreach sort keys %settings;
	close $conf or die $!;
}

sub start
{
	my ($self) = @_;

	$self->_run('pg_ctl', '-D', "$self->{dir}/data", '-l', "$self->{dir}/log", '-w', '-s', 'start');
	$self->{running} = 1;
}

# Starts it as the argument of another program, which ends with it.
sub start_under
{
	my ($self, @command) = @_;

	$self->{pid} = begin("$self->{dir}/log", '/usr/bin/env', @command, "$ENV{BENCH_BINDIR}/postgres", '-D', "$self->{dir}/data");
	$self->{running} = 1;
	wait_until("the server under $command[0]", 300, sub {
		die "there is no server under $command[0]" if waitpid $self->{pid}, WNOHANG;
		return eval { $self->sql('SELECT 1') } });
}

# From now on ids may be so far ahead of the clock, and leases as long.  Before the first lease of a
# start that would have the lease start that long after the extension was created.
sub let_run_ahead
{
	my ($self, $max_ahead) = @_;

	$self->sql("SET snowflake.max_wait = '60s'; SELECT snowflake_nextval()");
	$self->sql("SELECT snowflake.limit_leases('2 days')");
	$self->configure('snowflake.max_ahead' => "'$max_ahead'");
	$self->reload;
	wait_until('a longer lease', 60, sub { $self->sql(
		"SELECT snowflake_nextval() > 0 AND bool_and(leased_until > now() + interval '$max_ahead') FROM pg_stat_snowflake") eq 't' });
}

# Until the sub returns true; dies after so many seconds.
sub wait_until
{
	my ($what, $seconds, $done) = @_;
	my $end = time() + $seconds;

	until ($done->())
	{
		die "waited $seconds s for $what" if time() > $end;
		sleep 0.02;
	}
}

sub stop
{
	my ($self) = @_;

	return unless $self->{running};
	$self->{running} = 0;
	return end(delete $self->{pid}) if $self->{pid};
	$self->_run('pg_ctl', '-D', "$self->{dir}/data", '-w', '-s', '-m', 'fast', 'stop');
}

sub reload
{
	my ($self) = @_;

	$self->_run('pg_ctl', '-D', "$self->{dir}/data", '-s', 'reload');
}

# Runs statements in one session; what they return, tuples only, fields apart by "|".
sub sql
{
	my ($self, $statements, @options) = @_;

	return $self->_run('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', $self->_where, '-d', 'postgres', @options, '-c', $statements);
}

# How long the last of the statements took in the server and on the way to us, in
# seconds.  What comes before it (SET) is a statement of its own.
sub seconds
{
	my ($self, @statements) = @_;
	my $last = pop @statements;
	my $output = $self->_run('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', $self->_where, '-d', 'postgres', '-o', '/dev/null',
		(map { ('-c', $_) } @statements), '-c', '\timing on', '-c', $last);

	$output =~ /Time: ([\d.]+) ms/ or die "no time in: $output";
	return $1 / 1000;
}

# How many bytes of WAL there have been, those included that are still in memory.
sub wal_position
{
	my ($self) = @_;

	return $self->sql("SELECT pg_current_wal_insert_lsn() - '0/0'");
}

# Seconds that all processes of the server have used since it was started, those that have ended included.
sub processor_time
{
	my ($self) = @_;
	my $postmaster = (split /\n/, slurp("$self->{dir}/data/postmaster.pid"))[0];
	my $ticks = 0;

	foreach my $path (glob '/proc/[0-9]*/stat')
	{
		my $stat = eval { slurp($path) } // next;
		# after the command: state, parent, ...; utime, stime, cutime and cstime are 14 to 17
		my ($pid, $rest) = $stat =~ /^(\d+) \(.*\) (.*)/s or next;
		my @fields = split / /, $rest;
		$ticks += $fields[11] + $fields[12] if $pid == $postmaster || $fields[1] == $postmaster;
		$ticks += $fields[13] + $fields[14] if $pid == $postmaster;
	}
	return $ticks / sysconf(_SC_CLK_TCK);
}

sub slurp
{
	my ($path) = @_;

	open my $file, '<', $path or die "$path: $!";
	local $/;
	return scalar readline $file;
}

# pgbench, quietly; returns what it prints.  Its script is a file.
sub pgbench
{
	my ($self, @options) = @_;

	return $self->_run('pgbench', '-n', $self->_where, @options, 'postgres');
}

# Starts psql or pgbench in this server's place; returns its pid.  background_output()
# has what all of them have printed.
sub background
{
	my ($self, $program, @arguments) = @_;

	return begin("$self->{dir}/background.log", $program, $self->_where, @arguments, 'postgres');
}

sub background_output
{
	my ($self) = @_;

	open my $file, '<', "$self->{dir}/background.log" or return '';
	return join '', <$file>;
}

# Starts a program of the server, or one given by its path; its output goes to the end of a file.
sub begin
{
	my ($log, $program, @arguments) = @_;
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		open STDIN, '<', '/dev/null' or POSIX::_exit(1);
		open STDOUT, '>>', $log or POSIX::_exit(1);
		open STDERR, '>&', \*STDOUT or POSIX::_exit(1);
		exec $program =~ m{/} ? $program : "$ENV{BENCH_BINDIR}/$program", @arguments or POSIX::_exit(1);
	}
	$background{$pid} = 1;
	return $pid;
}

# Ends programs that begin or background started, also stopped ones, and waits for them.
sub end
{
	my (@pids) = @_;

	kill 'INT', @pids;
	kill 'CONT', @pids;
	foreach my $pid (@pids)
	{
		waitpid $pid, 0;
		delete $background{$pid};
	}
}

# A file with this text, for pgbench or psql.
sub script
{
	my ($self, $name, $text) = @_;
	my $path = "$self->{dir}/$name";

	open my $file, '>', $path or die "$path: $!";
	print $file $text;
	close $file or die $!;
	return $path;
}

sub _where
{
	my ($self) = @_;

	return ('-h', $self->{dir}, '-p', $self->{port}, '-U', 'postgres');
}

sub _run
{
	my ($self, @command) = @_;

	return run_in($self->{dir}, @command);
}

# Runs a program of the server; returns its output, dies if it fails.
sub run_in
{
	my ($dir, $program, @arguments) = @_;
	my $output = "$dir/$program.$$.out";
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		open STDOUT, '>', $output or die "$output: $!";
		open STDERR, '>&', \*STDOUT or die $!;
		exec "$ENV{BENCH_BINDIR}/$program", @arguments or die "$program: $!";
	}
	waitpid $pid, 0;
	my $status = $?;
	open my $file, '<', $output or die "$output: $!";
	my $text = join '', <$file>;
	close $file;
	unlink $output;
	die "$program @arguments failed:\n$text" if $status != 0;
	$text =~ s/\n\z//;
	return $text;
}

END
{
	local $?;
	end(keys %background);
	$_->stop foreach @servers;
}

1;
