# TortureDirectory.pm
#	  The data directory of a server of the torture, and the file system that it may have of
#	  its own.  TortureServer is one of these.
#
#	  place_all(bindir => DIR, work => DIR, out => DIR, torture => DIR, sockets => DIR,
#	            user => [UID, GID] or undef)
#						for all servers; to be called first; these are in %place then
#	  can_mount()		whether servers can have a file system of their own
#	  can_trace()		whether strace can be used on servers
#	  run(COMMAND...), run_as_user(COMMAND...)
#						output goes to nemesis.log; true if it succeeded
#	  as_user(COMMAND...)	the command with which root runs it as the user
#
#	  Methods
#	  create(TEXT)		a new data directory, with these settings
#	  make_base			the directory that the data directory is in
#	  forget			of a server that is down: empties that directory
#	  configure(NAME => VALUE, ...)
#						settings in a file of their own, read at the next start or reload
#	  append(FILE, TEXT)
#	  write_shift		the file that shift.c maps
#	  restore_from(DIRECTORY)	a base backup takes its place; of a server that is down
#	  upgrade			pg_upgrade --link to a new data directory of the same version: another
#						system identifier, timeline 1 without a history; of a server that was
#						stopped
#	  base_backup(DIRECTORY)
#						of a running server; true if that worked
#	  sync				what is there so far outlasts a loss of power
#	  cut_power			ends the file system: what was not synced is lost
#	  mount_again		after that, when no process is left
#	  fill_disk, empty_disk
package TortureDirectory;

use strict;
use warnings;

use Exporter 'import';
use POSIX ();
use Time::HiRes qw(sleep);

our @EXPORT_OK = qw(%place as_user can_mount can_trace place_all run run_as_user);

# _IOR('X', 125, unsigned 32): shuts a file system down; the argument 2: without its journal.
use constant {
	SHUTDOWN => 0x8004587d,
	SHUTDOWN_NOLOGFLUSH => 2,
};

our %place;

sub place_all
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

# Whether strace can attach to a process of a server.
sub can_trace
{
	my $pid = fork // die "fork: $!\n";

	if ($pid == 0)
	{
		exec as_user('sleep', 10) or POSIX::_exit(127);
	}
	# 124: it went on until its time was over
	my $ok = !run(qw(timeout 0.5 strace -qq -o /dev/null -p), $pid) && $? >> 8 == 124;
	kill KILL => $pid;
	waitpid $pid, 0;
	return $ok;
}

sub mount_it
{
	my ($self) = @_;

	# What is not synced is written as late as can be.
	run('mount', '-o', 'loop,data=writeback,commit=60', "$self->{base}.img",
		$self->{base})
	  or die "cannot mount $self->{base}.img\n";
}

# Takes all there is, first at once and then what was left.
sub fill_disk
{
	my ($self) = @_;
	my $name = "$self->{base}/fill";
	my $block = "\0" x 4096;

	run('sh', '-c', "fallocate -l \$(df --output=avail -B1 '$self->{base}' | tail -n 1) '$name'");
	open my $file, '>>', $name or return;
	1 while syswrite $file, $block;
	close $file;
}

sub empty_disk
{
	my ($self) = @_;

	unlink "$self->{base}/fill";
}

sub make_base
{
	my ($self) = @_;

	mkdir $self->{base};
	chown @{ $place{user} }, $self->{base} if $place{user};
}

sub initdb
{
	my ($self) = @_;

	run_as_user("$place{bindir}/initdb", '-D', $self->{dir}, '-U', 'postgres', '-A', 'trust', '-E',
		'UTF8', '-N', '--locale=C')
	  or die "initdb failed\n";
}

# An asynchronous commit is to be lost in a crash: the WAL writer does not write it at once.
sub create
{
	my ($self, $settings) = @_;

	$self->make_base;
	if ($self->{mount})
	{
		run('truncate', '-s', "$self->{mount}M", "$self->{base}.img")
		  && run('mkfs.ext4', '-q', '-m', 0, '-b', 4096, "$self->{base}.img")
		  or die "cannot make a file system\n";
		$self->mount_it;
		chown @{ $place{user} }, $self->{base} if $place{user};
	}
	$self->initdb;
	$self->append('postgresql.conf', <<"END" . $settings . "include_if_exists = 'torture.conf'\n");
listen_addresses = ''
unix_socket_directories = '$place{sockets}'
port = $self->{port}
fsync = @{[ $self->{mount} ? 'on' : 'off' ]}
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
max_connections = 40
min_wal_size = 32MB
max_wal_size = 64MB
wal_writer_delay = 10s
wal_writer_flush_after = 64MB
wal_retrieve_retry_interval = 200ms
restart_after_crash = on
wal_sender_timeout = 0
wal_receiver_timeout = 0
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

# A killed server leaves a piece of shared memory, which the next one in this directory would
# remove: line 7 of its file has the number.
sub free_memory
{
	my ($self) = @_;

	open my $file, '<', "$self->{dir}/postmaster.pid" or return;
	my @lines = <$file>;
	run_as_user('ipcrm', '-m', $1) if ($lines[6] // '') =~ /(\d+)$/;
}

# Of a server that is down: the directory above is as make_base makes it.
sub forget
{
	my ($self) = @_;

	$self->free_memory;
	run('rm', '-rf', $self->{base});
	$self->make_base;
}

sub restore_from
{
	my ($self, $directory) = @_;

	$self->free_memory;
	run('rm', '-rf', $self->{dir});
	run('cp', '-a', $directory, $self->{dir}) or die "cannot copy $directory\n";
	$self->configure;
	$self->sync;
}

# So that a loss of power finds all of this.
sub sync
{
	my ($self) = @_;

	run('sync', '-f', $self->{base}) if $self->{mount};
}

# The directory it runs in is that of its scripts.
sub upgrade
{
	my ($self) = @_;
	my $old = "$self->{base}/old";

	rename $self->{dir}, $old or die "$old: $!\n";
	$self->initdb;
	run('cp', '-a', (map { "$old/$_" } qw(postgresql.conf pg_hba.conf torture.conf)), $self->{dir})
	  or die "cannot copy the settings of $old\n";
	run_as_user('sh', '-c', 'cd "$1" && shift && exec "$@"', 'sh', $self->{base}, "$place{bindir}/pg_upgrade",
		'-b', $place{bindir}, '-B', $place{bindir}, '-d', $old, '-D', $self->{dir},
		'-U', 'postgres', '-s', $place{sockets}, '-p', 6130, '-P', 6131, '--link', '--no-sync')
	  or die "pg_upgrade failed: see nemesis.log\n";
	run('rm', '-rf', $old);
}

sub base_backup
{
	my ($self, $directory) = @_;

	return run_as_user('timeout', 60, "$place{bindir}/pg_basebackup", '-D', $directory, '-h',
		$place{sockets}, '-p', $self->{port}, '-U', 'postgres', '-c', 'fast', '-N');
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

sub cut_power
{
	my ($self) = @_;

	open my $directory, '<', $self->{base} or die "$self->{base}: $!\n";
	my $argument = pack 'L', SHUTDOWN_NOLOGFLUSH;
	ioctl $directory, SHUTDOWN, $argument or die "cannot shut down: $!\n";
	close $directory;
}

sub mount_again
{
	my ($self) = @_;

	for (1 .. 50)
	{
		last if run('umount', $self->{base});
		sleep 0.1;
	}
	$self->mount_it;
	# what we wrote was not synced
	$self->configure;
	$self->write_shift;
}

1;
