# 033_timelines.pl
#	  What tells the numbers of two primaries apart, without a registry, in uncommon
#	  settings: only one of them has snowflake.datacenter_id set; the promotion skips a
#	  timeline that is in the archive; the only lease of a fixed number does not reach to the
#	  ids that the state file knows of.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeLocal;

use List::Util qw(max);

sub new_standby
{
	my ($primary, $name, $conf) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->append_conf('postgresql.conf', $conf);
	$standby->start;
	return $standby;
}

# Takes some numbers, one after another.
sub some_numbers
{
	my ($node) = @_;
	my @numbers;

	for (1 .. 3)
	{
		push @numbers, id_node((draw($node, 1))[0]);
		$node->safe_psql('postgres', 'SELECT snowflake_release()');
	}
	return @numbers;
}

# Neither the lower half of a datacenter nor that of all has a number of an upper one.
sub check_halves
{
	my ($label, $old, $new) = @_;
	my (@old, @new);
	my $elsewhere = 0;

	foreach my $datacenter_id (-1, 20, 3)
	{
		set_and_reload($_, 'snowflake.datacenter_id' => $datacenter_id) foreach $old, $new;
		# by the session, and by the lease worker
		foreach my $node ($old, $new)
		{
			poll('reload', sub { $node->safe_psql('postgres', 'SHOW snowflake.datacenter_id') eq $datacenter_id });
			poll('the datacenter', sub { id_node((draw($node, 1))[0]) >> 5 == $datacenter_id }) if $datacenter_id >= 0;
		}
		push @old, some_numbers($old);
		push @new, some_numbers($new);
		$elsewhere += grep { $datacenter_id >= 0 && $_ >> 5 != $datacenter_id } @old[ -3 .. -1 ], @new[ -3 .. -1 ];
	}
	is(join(' ', grep { $_ >> 3 & 1 } @old), '', "$label: a bit is 0 in all numbers of the old primary");
	is(join(' ', grep { !($_ >> 3 & 1) } @new), '', "$label: and 1 in all of the promoted one");
	is($elsewhere, 0, "$label: both in the datacenter that was set");
	return;
}

# The one server has a datacenter, the other has not.
my $primary = auto_node('primary', init => [ allows_streaming => 1 ], conf => "snowflake.datacenter_id = 20\n");
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake');
draw($primary, 1);
my $standby = new_standby($primary, 'standby', "snowflake.datacenter_id = -1\n");
my $archive = PostgreSQL::Test::Utils::tempdir('archive');
my $skipping = new_standby($primary, 'skipping', "restore_command = 'cp $archive/%f %p'\n");
$standby->promote;
check_halves('a datacenter', $primary, $standby);

# Another server was promoted to timeline 2, archived that, and was thrown away.
append_to_file("$archive/00000002.history", "1\t0/10000\tno recovery target\n");
$skipping->promote;
is($skipping->safe_psql('postgres', 'SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)::int'), 3,
	'a timeline was skipped');
check_halves('a timeline was skipped', $primary, $skipping);
$_->stop foreach $primary, $standby, $skipping;

# Ids that are drawn while nobody can write their row.
my $fixed = new_node('fixed', init => [ allows_streaming => 1 ], conf => "snowflake.worker_id = 5\n");
draw($fixed, 1);
my $follower = new_standby($fixed, 'follower', '');
$fixed->stop;
my ($in, $out, $err) = ("SELECT snowflake_nextval() AS id\n");
IPC::Run::run([ $fixed->installed_command('postgres'), '--single', '-D', $fixed->data_dir,
		'-c', 'snowflake.clock_offset=3600s', 'postgres' ], '<', \$in, '>', \$out, '2>', \$err)
  or die "single-user mode: $err";
my ($id) = $out =~ /id = "(\d+)"/;
cmp_ok(id_time($id) - time, '>', 3400, 'an id of single-user mode, an hour ahead');
$fixed->start;
poll('row', sub { newest_row($fixed, "leased_until > to_timestamp(${\ id_time($id)})") eq 't' });
pass('its time is below the bound of the row that is opened next');
$fixed->wait_for_catchup($follower);
$fixed->stop;
$follower->promote;
poll('lease', sub { stat_of($follower, 'leased_until IS NOT NULL') eq 't' });
is($follower->safe_psql('postgres', "SELECT bool_and(leased_until > to_timestamp(${\ id_time($id)})) FROM snowflake.worker_node
		WHERE id > 1"), 't', 'a standby that is promoted then knows it');
like(sql_error($follower, 'SELECT snowflake_nextval()'), qr/^.*ERROR:  55P03: the next id would be 3[2-6]\d\d\.\d+ s ahead/,
	'and does not begin before it');
$follower->stop;

done_testing();
