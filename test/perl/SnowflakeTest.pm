# SnowflakeTest.pm
#	  What the TAP tests share.  Each of them begins with
#
#		use FindBin;
#		use lib "$FindBin::RealBin/../perl";
#		use SnowflakeTest;
#
# which also gives it strict, warnings, PostgreSQL::Test::Cluster, ::Utils and
# Test::More.
#
# Servers
#	  new_node(NAME, conf => TEXT, preload => 1, start => 1, tables => 0, limit => INTERVAL, init => [...])
#						a server with the extension preloaded, worker id 1, fsync on,
#						started and with the extension created in postgres; snowflake.max_wait
#						is longer than usual, since a busy machine may stall for seconds.  The
#						server makes its tables when the first id is wanted, or they are made
#						before with tables => 1, or with a limit for ends.  The first ids start
#						max_ahead after that
#	  limit_leases(NODE, INTERVAL)
#						sets the limit for ends of tables without leases: longer ones, clocks that
#						differ by more, or a shorter wait after promotions
#	  set_conf(NODE, NAME => VALUE, ...)
#						writes settings (undef: removes); no reload
#	  set_and_reload(NODE, NAME => VALUE, ...)
#	  set_clock(NODE, MS)	sets snowflake.clock_offset, reloads, and waits until the
#						worker has passed it on
#	  NARROW			a layout with so few ids per tick that sessions run ahead of the
#						clock, as far as snowflake.max_ahead lets them
#	  start_with(NODE, LIBRARY, VARIABLE => VALUE, ...)
#						starts the server with a library preloaded (LD_PRELOAD)
#	  crash(NODE)		kill -9 of the postmaster; returns when all its children
#						are gone too
#	  wait_for_end(NODE)	after it ends by itself
#	  kill_process(PID, SIGNAL) and wait until it is gone
#	  accepts_connections(NODE)
#	  worker_pid(NODE)	of the lease worker, which it waits for
#	  log_since(NODE, OFFSET), log_end(NODE)
#
# Queries
#	  issue_ids(NODE, N, BATCH)	issues N ids in one session, in a batch if BATCH is true;
#						returns them
#	  sql_error(NODE, SQL, DATABASE)
#						"" or "ERROR:  SQLSTATE: message ... DETAIL: ... HINT: ..."
#	  stat_of(NODE, COLUMN)	of pg_stat_snowflake, for the server's default layout
#	  LEASES			a subquery: the columns of snowflake.worker_node, but leased_until as the
#						view snowflake.leases has it; the parts of the number; and, while a lease is
#						open, its renewed_at and last_call
#	  poll(WHAT, SUB)	calls SUB until it returns something true and returns that; dies
#						after PG_TEST_TIMEOUT_DEFAULT seconds
#	  settle(EXPECTED, SUB)	calls SUB until it returns this, or as long as poll; returns the
#						last answer, to be compared
#
# Sessions in the background that issue ids without end
#	  start_clients(NODE, count => 4, sql => TEXT, database => NAME)
#						returns an object; sql is repeated, default: some single
#						calls and a batch
#	  ->wait_for(N)		until each of them has got N ids more
#	  ->errors			text of all errors so far, each with its SQLSTATE
#	  ->stop			ends the sessions and returns the files of the ids they got; also
#						to be called when the server has gone meanwhile
#
# Checks.  A file has the ids of one session, one a line, in the order it got them.
#	  write_ids(IDS)	a new file for these; returns its name
#	  read_ids(FILES)
#	  check_ids(LABEL, FILES)
#						two tests: the ids increase in each file, and no id is in the
#						files twice.  Returns (least id, greatest id, number of ids)
#	  check_phases(LABEL, PHASES)
#						for a list of lists of files, the same, and that all ids of a phase
#						are greater than all of the one before
#	  id_time(ID)		seconds since 1970 of an id of the layout twitter
#	  id_node(ID)		its node number
#
# Libraries and installations
#	  build_library(NAME, C_TEXT)	for start_with; returns the file
#	  use_copied_installation()	servers run from now on in a copy of the installation; returns
#						its directory for extensions' files, where more versions can be put
package SnowflakeTest;

use strict;
use warnings;

use Exporter ();
use File::Copy qw(copy);
use File::Path qw(make_path);
use IPC::Run ();
use List::Util qw(min);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

# Sixteen ids a tick: sessions that ask for all they can run ahead of the clock by max_ahead.
use constant NARROW =>
  'timestamp 41, worker 10, sequence 4, tick 1ms, epoch 2024-01-01T00:00:00Z';

use constant LEASES => <<'EOS';
(SELECT w.token, w.start, w.granted_by, w.kind, w.name, w.host_name, w.port, w.role, w.system_identifier, w.timeline, w.incarnation,
	w.generation, w.fixed, w.node_number, (w.node_number >> b.worker + coalesce(b.clock, 0) & (1::bigint << b.datacenter) - 1)::integer AS datacenter_id,
	(w.node_number >> coalesce(b.clock, 0) & (1::bigint << b.worker) - 1)::integer AS worker_id,
	(w.node_number & (1::bigint << b.clock) - 1)::integer AS clock, w.layout, w.launched_at, w.starts_at,
	coalesce(w.leased_until, CASE WHEN n.token OPERATOR(pg_catalog.=) w.token THEN n.leased_until ELSE n.ended_until END) AS leased_until, w.closed_at,
	CASE WHEN n.token OPERATOR(pg_catalog.=) w.token THEN n.renewed_at END AS renewed_at,
	CASE WHEN n.token OPERATOR(pg_catalog.=) w.token THEN n.last_call END AS last_call
FROM snowflake.worker_node AS w LEFT JOIN snowflake.node_number AS n USING (node_number),
	LATERAL (SELECT substring(w.layout, 'datacenter ([0-9]+)')::integer AS datacenter, substring(w.layout, 'worker ([0-9]+)')::integer AS worker,
		substring(w.layout, 'clock ([0-9]+)')::integer AS clock) AS b)
EOS

our @ISA = 'Exporter';
our @EXPORT = qw(LEASES NARROW accepts_connections build_library check_ids check_phases crash use_copied_installation
  helper_pid id_node id_time issue_ids kill_process limit_leases log_end log_since new_node poll read_ids set_and_reload set_clock
  set_conf settle sql_error start_clients start_with stat_of wait_for_end wait_for_new_helper worker_pid write_ids);

# A test gets these along with us.
sub import
{
	strict->import;
	warnings->import;
	my $test = caller;
	eval "package $test; use PostgreSQL::Test::Cluster; use PostgreSQL::Test::Utils; use Test::More; 1"
	  or die $@;
	__PACKAGE__->export_to_level(1, @_);
}

my $directory = PostgreSQL::Test::Utils::tempdir('ids');
my $num_files = 0;
my $timeout = $PostgreSQL::Test::Utils::timeout_default;

#
# Servers
#

sub new_node
{
	my ($name, %options) = (shift, preload => 1, start => 1, tables => 0, init => [], conf => '', @_);
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(@{ $options{init} });
	$node->append_conf('postgresql.conf', <<EOF);
fsync = on
jit = off
log_statement = none
log_error_verbosity = verbose
autovacuum = off
EOF
	$node->append_conf('postgresql.conf', <<EOF) if $options{preload};
shared_preload_libraries = 'snowflake'
snowflake.worker_id = '1'
snowflake.max_wait = '30s'
EOF
	$node->append_conf('postgresql.conf', $options{conf});
	if ($options{start})
	{
		$node->start;
		$node->safe_psql('postgres', "CREATE EXTENSION $_")
		  foreach $options{tables} || $options{limit} ? 'snowflake_registry' : (), 'snowflake';
		limit_leases($node, $options{limit}) if $options{limit};
	}
	return $node;
}

sub limit_leases
{
	my ($node, $limit) = @_;

	$node->safe_psql('postgres', "SELECT snowflake.limit_leases('$limit');
		UPDATE snowflake.registry SET old_limit = NULL, old_limit_until = NULL");
}

sub set_conf
{
	my ($node, %settings) = @_;

	foreach my $name (sort keys %settings)
	{
		$node->adjust_conf('postgresql.conf', $name, undef);
		$node->append_conf('postgresql.conf', "$name = '$settings{$name}'")
		  if defined $settings{$name};
	}
}

sub set_and_reload
{
	my ($node, %settings) = @_;

	set_conf($node, %settings);
	$node->reload;
}

# The worker counts steps back, and warns of one forward by more than a lease; a shorter
# one shows in the ids.
sub set_clock
{
	my ($node, $ms) = @_;
	my $step = $ms - $node->safe_psql('postgres',
		"SELECT setting::float8 FROM pg_settings WHERE name = 'snowflake.clock_offset'");
	my $offset = log_end($node);
	my $rollbacks = stat_of($node, 'clock_rollbacks');

	set_and_reload($node, 'snowflake.clock_offset' => $ms);
	poll("clock offset $ms", sub {
			return 1 if $step == 0;
			return stat_of($node, 'clock_rollbacks') > $rollbacks if $step < 0;
			return log_since($node, $offset) =~ /the clock was set forward/ if $step > 121_000;
			return $node->safe_psql('postgres', "SELECT snowflake_timestamp(snowflake_nextval())
				>= clock_timestamp() + '$ms ms'::interval - '10 ms'::interval") eq 't';
	});
}

sub start_with
{
	my ($node, $library, %variables) = @_;
	local %ENV = (%ENV, %variables, LD_PRELOAD => $library);

	$node->start;
}

# Killed children of a killed postmaster may linger as zombies; they do no harm.
sub is_alive
{
	my ($pid) = @_;
	open my $stat, '<', "/proc/$pid/stat" or return 0;
	my $line = <$stat> // '';

	return $line =~ /^\d+ \(.*\) [^ZX] /s;
}

sub children
{
	my ($parent) = @_;
	my @pids;

	foreach my $file (glob '/proc/[0-9]*/stat')
	{
		open my $stat, '<', $file or next;
		my $line = <$stat> // '';
		push @pids, $1 if $line =~ /^(\d+) \(.*\) \S (\d+) /s && $2 == $parent;
	}
	return @pids;
}

sub crash
{
	my ($node) = @_;
	my @children = children($node->{_pid});

	kill 9, $node->{_pid};
	poll('children of the postmaster to end', sub { !grep { is_alive($_) } @children });
	wait_for_end($node);
}

# pg_ctl takes a zombie for a server, so wait until it has been reaped.
sub wait_for_end
{
	my ($node) = @_;

	poll('postmaster to be gone', sub { !kill(0, $node->{_pid}) });
	$node->{_pid} = undef;
}

sub kill_process
{
	my ($pid, $signal) = @_;

	kill $signal, $pid or die "cannot kill $pid: $!";
	poll("process $pid to end", sub { !is_alive($pid) });
}

# psql would not do: one that cannot connect leaves us with a broken pipe.
sub accepts_connections
{
	my ($node) = @_;

	return system($node->installed_command('pg_isready'), '-q', '-d', $node->connstr('postgres')) == 0;
}

sub worker_pid
{
	my ($node) = @_;

	return poll('lease worker', sub {
			$node->safe_psql('postgres',
				"SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake lease worker'") });
}

sub log_end
{
	return -s $_[0]->logfile;
}

sub log_since
{
	my ($node, $offset) = @_;

	return slurp_file($node->logfile, $offset);
}

#
# Queries
#

sub issue_ids
{
	my ($node, $n, $batch) = @_;

	return split /\n/, $node->safe_psql('postgres', $batch ? "SELECT snowflake_nextval_batch($n)"
		: "SELECT snowflake_nextval() FROM generate_series(1, $n)");
}

sub sql_error
{
	my ($node, $sql, $database) = @_;
	my ($status, $out, $error) = $node->psql($database // 'postgres', $sql,
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);

	$error =~ s/^psql:<stdin>:\d+: //mg;
	return $status == 0 ? '' : $error;
}

sub stat_of
{
	my ($node, $column) = @_;

	return $node->safe_psql('postgres', "SELECT $column FROM pg_stat_snowflake LIMIT 1");
}

# The helper's process; pg_stat_activity shows only one that is connected to a database.
sub helper_pid
{
	my ($node) = @_;

	foreach my $pid (map { m{^/proc/(\d+)$} } glob('/proc/[0-9]*'))
	{
		my ($title, $status) = map { my $text = ''; if (open my $in, '<', "/proc/$pid/$_") { local $/; $text = <$in> // ''; } $text } 'cmdline', 'status';
		return $pid if $title =~ /snowflake helper/ && $status =~ /^PPid:\s*$node->{_pid}$/m;
	}
	die 'there is no helper';
}

# Waits for a helper that has made no call, of a server with its own tables: it is there when the server
# stops.  One that was connected ends some seconds after its last call, and a stop just then leaves the
# lease open.
sub wait_for_new_helper
{
	my ($node) = @_;
	my $connected = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowflake helper'";

	# one that ends leaves pg_stat_activity before its process is gone, but does not sleep there
	return poll('a helper that has made no call', sub {
			my $pid = eval { helper_pid($node) };
			my $stat = $pid && $node->safe_psql('postgres', $connected) eq '0' && eval { slurp_file("/proc/$pid/stat") };
			return $stat && $stat =~ /\) S / && $pid });
}

sub poll
{
	my ($what, $sub) = @_;
	my $end = time() + $timeout;
	# each look is most often a process and a connection: others want the processors, too
	my $pause = 20_000;

	while (time() < $end)
	{
		my $result = $sub->();
		return $result if $result;
		usleep($pause);
		$pause = min($pause * 1.4, 300_000);
	}
	die "timed out waiting for: $what";
}

sub settle
{
	my ($expected, $sub) = @_;
	my $result;

	eval { poll('an answer', sub { ($result = $sub->()) eq $expected }) };
	die $@ if $@ && $@ !~ /^timed out/;
	return $result;
}

#
# Sessions that issue ids
#

sub new_file
{
	return "$directory/ids_" . $num_files++;
}

sub start_clients
{
	my ($node, %options) = (shift, count => 4, database => 'postgres', @_);
	my $sql = $options{sql} // "SELECT snowflake_nextval() FROM generate_series(1, 20);\n"
	  . 'SELECT snowflake_nextval_batch(30);';
	my $self = bless { files => [], errors => [], feeds => [], runs => [] };

	foreach my $i (1 .. $options{count})
	{
		my $file = new_file();

		pipe(my $read, my $write) or die "pipe: $!";
		fcntl($write, 1031, 4096);	# F_SETPIPE_SZ: so that little is left to do at the end
		push @{ $self->{feeds} }, start_feed($read, $write, $sql);
		push @{ $self->{runs} }, start_program($read, $file, "$file.err",
			$node->installed_command('psql'), '-XAtq', '-v', 'VERBOSITY=verbose',
			'-d', $node->connstr($options{database}));
		push @{ $self->{files} }, $file;
		push @{ $self->{errors} }, "$file.err";
	}
	return $self;
}

# Repeats the statements until it is ended or their reader is.  Each write of less than
# PIPE_BUF bytes is done as a whole or not at all.
sub start_feed
{
	my ($read, $write, $sql) = @_;
	my $pid = fork // die "fork: $!";

	return $pid if $pid;
	$SIG{TERM} = $SIG{PIPE} = sub { POSIX::_exit(0) };
	close $read;
	while (1)
	{
		syswrite $write, "$sql\n";
	}
}

sub start_program
{
	my ($in, $out, $error, @command) = @_;
	my $pid = fork // die "fork: $!";

	return $pid if $pid;
	open STDIN, '<&', $in or POSIX::_exit(1);
	open STDOUT, '>', $out or POSIX::_exit(1);
	open STDERR, '>', $error or POSIX::_exit(1);
	exec @command or POSIX::_exit(1);
}

# Twenty bytes an id; psql writes when its buffer is full.
sub wait_for
{
	my ($self, $ids) = @_;
	my %goal = map { $_ => (-s $_ // 0) + 20 * $ids } @{ $self->{files} };

	poll("$ids ids for each session", sub { !grep { (-s $_ // 0) < $goal{$_} } keys %goal });
}

sub errors
{
	my ($self) = @_;

	return join '', map { slurp_file($_) } @{ $self->{errors} };
}

sub stop
{
	my ($self) = @_;

	kill 'TERM', @{ $self->{feeds} } if @{ $self->{feeds} };
	waitpid $_, 0 foreach @{ $self->{feeds} }, @{ $self->{runs} };
	$self->{feeds} = $self->{runs} = [];
	return @{ $self->{files} };
}

# A test that dies leaves nothing behind.
sub DESTROY
{
	my ($self) = @_;
	local $?;

	return unless @{ $self->{feeds} };
	kill 'TERM', @{ $self->{feeds} }, @{ $self->{runs} };
	waitpid $_, 0 foreach @{ $self->{feeds} }, @{ $self->{runs} };
}

#
# Checks
#

sub write_ids
{
	my $file = new_file();

	open my $out, '>', $file or die "$file: $!";
	print $out map { "$_\n" } @_;
	close $out or die "$file: $!";
	return $file;
}

sub read_ids
{
	return map { split /\n/, slurp_file($_) } @_;
}

# The least and greatest id and the number of ids, and whether they increase.
sub scan_file
{
	my ($file) = @_;
	my ($least, $last, $count, $disorder) = (undef, -1, 0, '');

	open my $in, '<', $file or die "$file: $!";
	while (my $id = <$in>)
	{
		chomp $id;
		$disorder ||= "$file, line $.: \"$id\" after $last" if $id !~ /^\d+\z/ || $id <= $last;
		$least //= $id;
		$last = $id;
		$count++;
	}
	return ($least, $last, $count, $disorder);
}

# Looks at each file once; the rest is for check_ids and check_phases to tell.
sub scan_files
{
	my ($least, $greatest, $count, $disorder) = (undef, -1, 0, '');

	foreach my $file (@_)
	{
		my ($first, $last, $n, $bad) = scan_file($file);

		next unless $n;
		$least = $first if !defined $least || $first < $least;
		$greatest = $last if $last > $greatest;
		$count += $n;
		$disorder ||= $bad;
	}
	return ($least, $greatest, $count, $disorder);
}

# How often an id is there that another one equals.
sub count_repeats
{
	my ($count, @files) = @_;

	local $ENV{LC_ALL} = 'C';
	open my $sort, '-|', 'sort', '-n', '-u', '--', @files or die "sort: $!";
	my $distinct = 0;
	$distinct++ while <$sort>;
	close $sort or die "sort failed";
	return $count - $distinct;
}

sub check_ids
{
	my ($label, @files) = @_;
	my ($least, $greatest, $count, $disorder) = scan_files(@files);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	die "$label: no ids" unless $count;
	is($disorder, '', "$label: ids of each session increase");
	is(count_repeats($count, @files), 0, "$label: $count ids are distinct");
	return ($least, $greatest, $count);
}

sub check_phases
{
	my ($label, @phases) = @_;
	my ($before, $overlap) = (-1, '');

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $i (0 .. $#phases)
	{
		my ($least, $greatest, $count) = scan_files(@{ $phases[$i] });

		die "$label: no ids in phase $i" unless $count;
		$overlap ||= "phase $i begins with $least after $before" if $least <= $before;
		$before = $greatest;
	}
	is($overlap, '', "$label: ids of " . @phases . " phases follow each other");
	return check_ids($label, map { @$_ } @phases);
}

sub id_time
{
	return (($_[0] >> 22) + 1288834974657) / 1000;
}

sub id_node
{
	return ($_[0] >> 12) & 1023;
}

#
# Libraries
#

sub build_library
{
	my ($name, $text) = @_;
	my $base = $directory . "/$name";

	open my $source, '>', "$base.c" or die "$base.c: $!";
	print $source $text;
	close $source or die "$base.c: $!";
	system_or_bail($ENV{CC} // 'cc', '-shared', '-fPIC', '-O1', '-Wall', '-o', "$base.so", "$base.c", '-ldl');
	return "$base.so";
}

# A server finds its files relative to its own program, so that is copied; the others are links.
sub use_copied_installation
{
	my $copy = PostgreSQL::Test::Utils::tempdir('installation');
	my %config = map { $_ => `pg_config --$_` =~ s/\n//r } qw(bindir pkglibdir sharedir);

	make_path($copy . $config{bindir});
	foreach my $program (glob "$config{bindir}/*")
	{
		copy($program, $copy . $program) && chmod 0755, $copy . $program or die "$program: $!";
	}
	foreach my $directory ("$config{sharedir}/extension", @config{qw(sharedir pkglibdir)})
	{
		make_path($copy . $directory);
		foreach my $file (glob "$directory/*")
		{
			-e $copy . $file or symlink $file, $copy . $file or die "$file: $!";
		}
	}
	$ENV{PATH} = "$copy$config{bindir}:$ENV{PATH}";
	return "$copy$config{sharedir}/extension";
}

1;
