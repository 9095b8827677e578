# TorturePair.pm
#	  The deployment "pair": a primary with automatic numbers and its synchronous standby,
#	  without a registry.  The standby is promoted again and again while the primary lives;
#	  then that is made a standby of the new one.  Sometimes the new primary goes through
#	  pg_upgrade first, beside the old one that lives.  Each of these primaries is a server
#	  "L-N" to the checker.
#
#	  make_pair(%options)	options as of TortureWorld
#	  pair_fault(), heal_pair()
#						for the process that things happen in
#	  pair_now()		the primary, as any process sees it: good for sql and set_clock
#	  pair_name()		SQL for the name of a lease's server
#
# What the promise assumes is kept: the standby is synchronous until it is promoted, so that no
# lease that was acknowledged is lost; no more than two primaries are writable, one
# promotion apart, and the leases of the one before are over at the next one; the clock of a new primary
# is not behind that of any earlier one; it has issued ids before it goes through pg_upgrade.  After
# promotions that follow each other soon leases wait by themselves.  After a promotion either (by the seed, or as
# option synchronous says) the old primary goes on waiting for a standby, and cannot extend
# its lease; or it goes on alone, and what it leases is lost when it is made a standby.  The
# README says what holds then: the ids do not come again while the clock is right.  So clocks
# are not set back in that case.
package TorturePair;

use strict;
use warnings;

use Exporter 'import';
use Time::HiRes qw(sleep time);
use TortureDeployment;
use TortureDirectory qw(run);
use TortureFaults;
use TortureLog;
use TortureServer;

our @EXPORT = qw(heal_pair make_pair pair_fault pair_name pair_now);

my (%option, $primary, $standby);
my $num_primaries = 1;
my $ended = 0;				# when the last old primary was

# For other processes: which one is the primary.
sub tell_primary
{
	open my $file, '>', "$option{out}/pair.new" or die "pair: $!\n";
	print $file "$primary->{name} $primary->{port} $primary->{base}";
	close $file;
	rename "$option{out}/pair.new", "$option{out}/pair" or die "pair: $!\n";
}

sub pair_now
{
	open my $file, '<', "$option{out}/pair" or die "pair: $!\n";
	my ($name, $port, $base) = split / /, <$file>;
	return TortureServer->new(
		name => $name, port => $port, base => $base, deployment => 'pair', offset => greatest_offset('pair'));
}

# A primary is known by its system identifier and timeline.
sub tell_name
{
	my $until = time + 60;
	my $identity;

	until ($identity = $primary->sql(<<'END'))
SELECT system_identifier || '/' || ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer
FROM pg_control_system()
END
	{
		die "$primary->{name} does not answer\n" if time > $until;
		sleep 0.1;
	}
	open my $file, '>>', "$option{out}/pair.names" or die "pair.names: $!\n";
	syswrite $file, "$identity $primary->{name}\n";
	close $file;
}

sub pair_name
{
	open my $file, '<', "$option{out}/pair.names" or die "pair.names: $!\n";
	return join ' ', "CASE system_identifier || '/' || timeline", map({ /(\S+) (\S+)/; "WHEN '$1' THEN '$2'" } <$file>),
	  "ELSE 'nobody' END";
}

# A synchronous one, from when on all that is acknowledged is on both.
sub make_standby
{
	my $until = time + 180;

	$standby->{name} = 'L-standby';
	$standby->forget;
	until ($primary->base_backup($standby->{dir}))
	{
		die "no base backup of $primary->{name}\n" if time > $until;
		run('rm', '-rf', $standby->{dir});
		sleep 0.3;
	}
	$standby->append('postgresql.conf',
		"port = $standby->{port}\nprimary_conninfo = 'host=$option{sockets} port=$primary->{port} user=postgres'\n");
	$standby->append('standby.signal', '');
	$standby->{settings} = {};
	$standby->configure;
	$standby->{offset} = $primary->{offset};
	$standby->write_shift;
	$standby->start;
	$primary->configure(synchronous_standby_names => '*');
	$primary->reload;
	# all that is written after this place waits for the standby
	my $sync = "FROM pg_stat_replication WHERE sync_state = 'sync'";
	my $place;
	until ($place && ($primary->sql("SELECT flush_lsn >= '$place' $sync") // '') eq 't')
	{
		die "the standby of $primary->{name} does not follow to ", $place || 'any place', "\n" if time > $until;
		$place ||= $primary->sql("SELECT pg_current_wal_lsn() $sync");
		$primary->start if !$primary->postmaster;
		sleep 0.1;
	}
}

sub make_pair
{
	%option = @_;
	$option{synchronous} //= int rand 2;
	$primary = TortureServer->new(
		name => 'L-1', port => 6106, base => "$option{work}/pair1", deployment => 'pair',
		forward => !$option{synchronous});
	$standby = TortureServer->new(
		name => 'L-standby', port => 6107, base => "$option{work}/pair2", deployment => 'pair',
		forward => !$option{synchronous});
	$primary->create(settings('pair', ''));
	announce('L-1', 'pair', 'L-1');
	$primary->set_clock(0);
	$primary->start;
	create_extension($primary, '10 s');
	tell_name();
	make_standby();
	start_writers($primary);
	tell_primary();
}

# For the last time.  What the standby did not hear of is none of the old primary's leases.
sub dump_for_good
{
	my ($server, $name) = @_;
	my $until = time + 120;

	until (dump_leases($server, $name, pair_name()))
	{
		die "no history of $name\n" if time > $until;
		$server->start if !$server->postmaster;
		sleep 0.2;
	}
}

# Both have to take others.
sub take_numbers
{
	my ($old, @new) = @_;

	$_->sql('SELECT snowflake_release()', seconds => 1) foreach $old, @new;
	# The old primary waits for a standby; to give up waiting must not count as having been heard.
	kill chance(0.5) ? 'INT' : 'TERM', $old->pids_like(HELPER) if $option{synchronous};
	sleep between(0.1, 0.5);
}

sub next_name
{
	my ($server) = @_;

	$server->{name} = 'L-' . ++$num_primaries;
	announce($server->{name}, 'pair', $server->{name});
}

# What issues ids from now on.
sub begin_primary
{
	tell_name();
	start_writers($primary);
	tell_primary();
}

# The new primary is another cluster on timeline 1 then, and the old one goes on.
sub upgrade
{
	my $name = $primary->{name};
	my $until = time + 60;

	until (defined $primary->sql('SELECT snowflake_nextval()'))
	{
		die "$name issues no ids\n" if time > $until;
		sleep 0.1;
	}
	my $event = begin_event($name, 'pg_upgrade');
	stop_writers($name);
	$primary->end_by('fast');
	$primary->gone(10);
	$primary->upgrade;
	next_name($primary);
	$primary->set_clock($primary->{offset});
	$primary->start;
	begin_primary();
	dump_for_good($primary, $name);
	end_event($event);
}

# The old primary goes on, or is frozen meanwhile and goes on then.
sub promote
{
	my ($upgrade) = @_;
	my $old = $primary;
	my $freeze = chance(0.4);

	sleep 0.1 while time < $ended + $option{lease} + 1.5;
	my $event = begin_event($old->{name}, 'promotion', $freeze ? 'the old primary is frozen' : '');

	$old->freeze if $freeze;
	next_name($standby);
	$standby->set_clock($old->base);
	($standby->sql('SELECT pg_promote()', seconds => 60) // '') eq 't'
	  or die "$standby->{name} is not promoted\n";
	($primary, $standby) = ($standby, $old);
	begin_primary();
	if (!$option{synchronous})
	{
		$old->configure(synchronous_standby_names => '');
		$old->reload;
	}
	upgrade() if $upgrade;
	sleep between(0.5, 1.2) * $option{lease};
	$old->thaw;
	restart(pick([ 1, $primary ], [ 1, $old ])->[1]) if chance(0.4);
	take_numbers($old, $primary) for 1 .. 4;
	sleep between(0.5, 1);
	stop_writers($old->{name});
	dump_for_good($option{synchronous} ? $primary : $old, $old->{name});
	# What the old one has leased since is lost: no clock may be behind that.
	sync_clock($primary) if !$option{synchronous};
	kill KILL => $old->processes;
	$old->gone(10);
	$ended = time;
	make_standby();
	end_event($event);
}

sub pair_fault
{
	pick(server_faults($primary), [ 8, sub { promote(0) } ], [ 4, sub { promote(1) } ])->[1]->();
	sync_clock($primary) if chance(0.6);
}

sub heal_pair
{
	$primary->thaw;
	$primary->start if !$primary->postmaster || !$primary->ready;
}

1;
