# TortureServer.pm
#	  One PostgreSQL server of the torture, and what can be done to it.
#
#	  setup(bindir => DIR, work => DIR, out => DIR, torture => DIR, sockets => DIR,
#	        user => [UID, GID] or undef)
#						for all servers; to be called first
#	  new(name => NAME, port => PORT, deployment => NAME, ...)
#						options: mount => MEGABYTES, a file system of its own that can lose
#						its power; shifted => true, its whole clock is stepped (shift.c)
#						instead of snowflake.clock_offset; net => PID, whose network
#						namespace it runs in; fixed => true if its worker id is; forward => true if
#						its clock is never to be set back
#	  create(TEXT)		a new data directory, with these settings
#	  start, end_by(HOW), ready, gone
#						HOW: kill (SIGKILL of the postmaster), power (loss), immediate, fast.
#						start returns when the server answers
#	  sql(STATEMENTS, database => NAME, seconds => 5)
#						what psql -At prints, undef if it failed
#	  processes, postmaster, pids_like(PATTERN)
#	  freeze(PIDS), thaw
#	  set_clock(OFFSET)	in microseconds; at once, or when the server starts
#	  make_base			the directory that the data directory is in
#	  configure(NAME => VALUE, ...)
#						settings in a file of their own, read at the next start or
#						reload
#	  reload
#	  copy_to(DIRECTORY), restore_from(DIRECTORY)
#						of a server that is down
#
#	  base_backup(DIRECTORY)
#						of a running server; true if that worked
#
#	  can_mount()		whether servers can have a file system of their own
#	  run(COMMAND...), run_as_user(COMMAND...), and launch(LOG, COMMAND...) in the background
#
# The object is good in one process at a time: it knows offset and settings.
package TortureServer;

use strict;
use warnings;

use Exporter 'import';
use POSIX ();
use Time::HiRes qw(sleep time);
use TortureLog;

our @EXPORT_OK = qw(can_mount launch run run_as_user setup);

# _IOR('X', 125, unsigned 32): shuts a file system down; the argument 2: without its journal.
use constant {
	SHUTDOWN => 0x8004587d,
	SHUTDOWN_NOLOGFLUSH => 2,
};

# A reload is seen by all processes of the server within this time.
use constant RELOAD_US => 15_000_000;

my %place;

sub setup
{
	%place = @_;
}

sub as_user
{
	my @command = @_;

	return @command if !$place{user};
	return ('setpriv', '--reuid', $place{user}[0], '--regid', $place{user}[1], '--clear-groups',
		@command);
}

# Output goes to nemesis.log.  True if it succeeded.
sub run
{
	my @command = @_;
	my $pid = fork // die "fork: $!\n";

	if ($pid == 0)
	{
		open STDOUT, '>&', \*STDERR;
		exec @command or POSIX::_exit(127);
	}
	1 until waitpid($pid, 0) != -1 || !$!{EINTR};
	return $? == 0;
}

sub run_as_user
{
	return run(as_user(@_));
}

# Not a child of ours, so that somebody else waits for it.
sub launch
{
	my ($log, @command) = @_;
	my $pid = fork // die "fork: $!\n";

	if ($pid == 0)
	{
		POSIX::setsid();
		$SIG{$_} = 'DEFAULT' foreach qw(INT TERM);
		POSIX::_exit(0) if fork;
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', $log;
		open STDERR, '>&', \*STDOUT;
		exec as_user(@command) or POSIX::_exit(127);
	}
	1 until waitpid($pid, 0) != -1 || !$!{EINTR};
}

sub new
{
	my ($class, %self) = @_;
	my $self = bless { offset => 0, settings => {}, %self }, $class;

	$self->{base} //= "$place{work}/$self->{name}";
	$self->{dir} = "$self->{base}/data";
	return $self;
}

#
# Files
#

# Whether file systems can be made here that lose their power.
sub can_mount
{
	my $image = "$place{work}/probe.img";
	my $ok =
		 run('truncate', '-s', '8M', $image)
	  && run('mkfs.ext4', '-q', $image)
	  && run('mount', '-o', 'loop', $image, $place{sockets})
	  && run('umount', $place{sockets});

	unlink $image;
	return $ok;
}

sub mount_it
{
	my ($self) = @_;

	# What nobody asks for is written as late as can be.  (With noauto_da_alloc an unsynced
	# state file would be found empty after a power loss, which nobody could miss; so an older
	# one is found.)
	run('mount', '-o', 'loop,data=writeback,commit=60', "$self->{base}.img",
		$self->{base})
	  or die "cannot mount $self->{base}.img\n";
}

sub make_base
{
	my ($self) = @_;

	mkdir $self->{base};
	chown @{ $place{user} }, $self->{base} if $place{user};
}

sub create
{
	my ($self, $settings) = @_;

	$self->make_base;
	if ($self->{mount})
	{
		run('truncate', '-s', "$self->{mount}M", "$self->{base}.img")
		  && run('mkfs.ext4', '-q', '-m', 0, "$self->{base}.img")
		  or die "cannot make a file system\n";
		$self->mount_it;
		chown @{ $place{user} }, $self->{base} if $place{user};
	}
	run_as_user("$place{bindir}/initdb", '-D', $self->{dir}, '-U', 'postgres', '-A', 'trust', '-E',
		'UTF8', '-N', '--locale=C')
	  or die "initdb failed\n";
	$self->append('postgresql.conf', <<"END" . $settings . "include_if_exists = 'torture.conf'\n");
listen_addresses = ''
unix_socket_directories = '$place{sockets}'
port = $self->{port}
fsync = @{[ $self->{mount} ? 'on' : 'off' ]}
shared_buffers = 16MB
max_connections = 40
min_wal_size = 32MB
max_wal_size = 64MB
wal_retrieve_retry_interval = 200ms
restart_after_crash = on
log_line_prefix = '%m [%p] %b '
END
}

sub append
{
	my ($self, $name, $text) = @_;

	open my $file, '>>', "$self->{dir}/$name" or die "$self->{dir}/$name: $!\n";
	print $file $text;
	close $file;
}

sub configure
{
	my ($self, %settings) = @_;

	$self->{settings} = { %{ $self->{settings} }, %settings };
	my $name = "$self->{dir}/torture.conf";
	open my $file, '>', "$name.new" or die "$name.new: $!\n";
	print $file "$_ = '$self->{settings}{$_}'\n" foreach sort keys %{ $self->{settings} };
	close $file;
	rename "$name.new", $name or die "$name: $!\n";
}

sub copy_to
{
	my ($self, $directory) = @_;

	run('cp', '-a', $self->{dir}, $directory) or die "cannot copy $self->{dir}\n";
}

sub restore_from
{
	my ($self, $directory) = @_;

	run('rm', '-rf', $self->{dir});
	run('cp', '-a', $directory, $self->{dir}) or die "cannot copy $directory\n";
	$self->configure;
	run('sync', '-f', $self->{base});
}

sub base_backup
{
	my ($self, $directory) = @_;

	return run_as_user('timeout', 20, "$place{bindir}/pg_basebackup", '-D', $directory, '-h',
		$place{sockets}, '-p', $self->{port}, '-U', 'postgres', '-c', 'fast', '-N');
}

#
# Processes
#

sub processes
{
	my ($self) = @_;

	opendir my $proc, '/proc' or die "/proc: $!\n";
	return grep { /^\d+$/ && (readlink("/proc/$_/cwd") // '') eq $self->{dir} } readdir $proc;
}

sub title_of
{
	my ($pid) = @_;

	open my $file, '<', "/proc/$pid/cmdline" or return '';
	return <$file> // '';
}

# By what ps shows.
sub pids_like
{
	my ($self, $pattern) = @_;

	return grep { title_of($_) =~ $pattern } $self->processes;
}

sub postmaster
{
	my ($self) = @_;

	open my $file, '<', "$self->{dir}/postmaster.pid" or return;
	my $pid = <$file> // '';
	chomp $pid;
	return $pid =~ /^\d+$/ && (readlink("/proc/$pid/cwd") // '') eq $self->{dir} ? $pid : undef;
}

sub gone
{
	my ($self, $seconds) = @_;
	my $until = time + $seconds;

	while ($self->processes)
	{
		return if time > $until;
		sleep 0.02;
	}
	return 1;
}

sub ready
{
	my ($self) = @_;

	return run("$place{bindir}/pg_isready", '-q', '-h', $place{sockets}, '-p', $self->{port}, '-t', 1);
}

sub launch_postmaster
{
	my ($self) = @_;
	my @command = ("$place{bindir}/postgres", '-D', $self->{dir});

	unshift @command, 'env', "LD_PRELOAD=$place{torture}/shift.so", "SHIFT_FILE=$self->{base}/shift"
	  if $self->{shifted};
	if ($self->{net})
	{
		# Only root enters it, before it becomes the user.
		my $user = $place{user};
		local $place{user} = undef;
		launch("$place{out}/$self->{name}.log", 'nsenter', '-t', $self->{net}, '-n', 'setpriv',
			'--reuid', $user->[0], '--regid', $user->[1], '--clear-groups', @command);
		return;
	}
	launch("$place{out}/$self->{name}.log", @command);
}

# Old processes end by themselves, unless they are busy: the new server waits for them.
sub start
{
	my ($self) = @_;
	my $until = time + 60;

	$self->gone(10) or kill KILL => $self->processes;
	$self->gone(10);
	while (time < $until)
	{
		$self->launch_postmaster if !$self->processes;
		for (1 .. 20)
		{
			return 1 if $self->ready;
			sleep 0.05;
		}
	}
	die "server $self->{name} does not start\n";
}

sub lose_power
{
	my ($self) = @_;

	open my $directory, '<', $self->{base} or die "$self->{base}: $!\n";
	my $argument = pack 'L', SHUTDOWN_NOLOGFLUSH;
	ioctl $directory, SHUTDOWN, $argument or die "cannot shut down: $!\n";
	close $directory;
	kill KILL => $self->processes;
	$self->gone(10);
	for (1 .. 50)
	{
		last if run('umount', $self->{base});
		sleep 0.1;
	}
	$self->mount_it;
	# what we wrote was not synced
	$self->configure;
	$self->write_shift if $self->{shifted};
}

sub end_by
{
	my ($self, $how) = @_;

	return $self->lose_power if $how eq 'power';
	if ($how eq 'kill')
	{
		my $postmaster = $self->postmaster;
		kill KILL => $postmaster if $postmaster;
		return;
	}
	return
	  if run_as_user("$place{bindir}/pg_ctl", '-D', $self->{dir}, '-m', $how, '-t', 20, '-w', '-s',
		'stop');
	kill KILL => $self->processes;
}

# Twice, for those that were started meanwhile.
sub freeze
{
	my ($self, @pids) = @_;

	return kill STOP => @pids if @pids;
	kill STOP => $self->processes for 1 .. 2;
}

sub thaw
{
	my ($self) = @_;

	kill CONT => $self->processes for 1 .. 2;
}

#
# SQL and the clock
#

sub psql
{
	my ($self, %options) = (shift, database => 'postgres', seconds => 5, @_);

	return ('timeout', $options{seconds}, "$place{bindir}/psql", '-XqAt', '-h', $place{sockets}, '-p',
		$self->{port}, '-U', 'postgres', '-d', $options{database}, '-v', 'ON_ERROR_STOP=1');
}

sub sql
{
	my ($self, $statements, %options) = @_;

	open my $psql, '-|', $self->psql(%options), '-c', $statements or die "psql: $!\n";
	my $answer = do { local $/; <$psql> };
	close $psql or return;
	chomp $answer;
	return $answer;
}

sub reload
{
	my ($self) = @_;
	my $postmaster = $self->postmaster;

	kill HUP => $postmaster if $postmaster;
}

sub write_shift
{
	my ($self) = @_;

	# neither empty for a moment nor another file: it is mapped
	open my $file, '+>>', "$self->{base}/shift" or die "shift: $!\n";
	close $file;
	open $file, '+<', "$self->{base}/shift" or die "shift: $!\n";
	syswrite $file, pack 'q', $self->{offset} * 1000;
	close $file;
}

sub set_clock
{
	my ($self, $offset) = @_;
	my $running = defined $self->postmaster;

	log_clock($self->{name}, $offset, $self->{shifted} || !$running ? 1_000_000 : RELOAD_US);
	$self->{offset} = $offset;
	raise_base($self->{deployment}, $offset);
	return $self->write_shift if $self->{shifted};
	$self->configure('snowflake.clock_offset' => sprintf('%.3fms', $offset / 1000));
	$self->reload;
}

1;
