# 061_guards.pl
#	  The guards of a registry where operators slip, and what they cost those who did nothing wrong.
#	  A restart, a move of the data directory, a plain promotion, a switchover and pg_upgrade wait for nothing,
#	  and no guard says anything.  A copy of a data directory that is started as it is, and a standby
#	  whose standby.signal was removed, are told, once.  A second promotion within the longest window makes
#	  leases wait: nodes use up what they have.  The old primary of a registry, started again and first in
#	  the list of hosts, is told by the node that it answers.  No id repeats where the promise holds.
#
# (042 has the histories of siblings.)
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;
use Cwd qw(getcwd);

my @streaming = (init => [ allows_streaming => 1 ]);

# What is recorded of waits, and not how long a slow machine takes.
sub check_no_wait
{
	my ($label, $server, $generation) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(settle('', sub { sql_error($server, 'SELECT snowflake_nextval()') }), '', "$label: ids come");
	is(guards($server), '', "$label: no guard says anything");
	is($server->safe_psql('postgres', 'SELECT starts_at, generation FROM snowflake.registry'), "|$generation", "$label: leases wait for nothing");
	return issue_ids($server, 20);
}

sub new_standby
{
	my ($name, $primary) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->start;
	return $standby;
}

sub warns
{
	my ($server, $message) = @_;

	return scalar(() = slurp_file($server->logfile) =~ /WARNING:  \w{5}: (?:snowflake: )?$message/g);
}

#
# Nothing wrong
#
my $own = auto_node('own', @streaming);
$own->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my @ids = check_no_wait('at first', $own, 1);
$own->restart;
push @ids, check_no_wait('a restart', $own, 1);
crash($own);
$own->start;
push @ids, check_no_wait('a crash', $own, 1);

# Within a file system the same files have another name; a link is where PostgreSQL::Test::Cluster looks.
$own->stop;
my $directory = $own->data_dir;
rename $directory, "$directory.moved" or die "rename: $!";
symlink "$directory.moved", $directory or die "symlink: $!";
$own->start;
push @ids, check_no_wait('the data directory is moved', $own, 1);

# A switchover: the standby has all there is.
my $heir = new_standby('heir', $own);
$own->wait_for_catchup($heir, 'replay', $own->lsn('insert'));
$own->stop('fast');
$heir->promote;
push @ids, check_no_wait('a switchover', $heir, 2);
$own->append_conf('postgresql.conf', "primary_conninfo = '@{[ $heir->connstr ]}'\n");
$own->append_conf('standby.signal', '');
$own->start;
poll('the old primary follows', sub { $heir->safe_psql('postgres', "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") });
push @ids, check_no_wait('the old primary is a standby', $heir, 2);
$own->stop;

# The new cluster has another system identifier and no history.
my $upgraded = auto_node('upgraded', start => 0);
my $bin = $heir->config_data('--bindir');
my $here = getcwd();
$heir->stop('fast');
chdir PostgreSQL::Test::Utils::tempdir() or die "chdir: $!";
command_ok([ 'pg_upgrade', '--no-sync', '-d', $heir->data_dir, '-D', $upgraded->data_dir, '-b', $bin, '-B', $bin,
	'-s', $upgraded->host, '-p', $heir->port, '-P', $upgraded->port ], 'pg_upgrade');
chdir $here or die "chdir: $!";
$upgraded->start;
push @ids, check_no_wait('pg_upgrade', $upgraded, 2);
check_ids('nothing wrong', split_ids(12, 1023, write_ids(@ids)));
$upgraded->stop;

#
# Copies that are started as they are
#
my $is_copy = qr/this data directory is a copy of another one\n/;
my $original = auto_node('original', @streaming);
$original->safe_psql('postgres', 'CREATE EXTENSION snowflake');
issue_ids($original, 1);
$original->backup('base');
my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($original, 'base');
my $unsignalled = new_standby('unsignalled', $original);
$unsignalled->stop;
unlink $unsignalled->data_dir . '/standby.signal' or die "unlink: $!";
foreach my $case ([ $copy, 'a base backup that is started as it is' ], [ $unsignalled, 'a standby without standby.signal' ])
{
	my ($server, $label) = @$case;

	$server->start;
	is(settle('copy 1', sub { guards($server) }), 'copy 1', "$label: a guard has found it, before any id is wanted");
	like(slurp_file($server->logfile), qr/WARNING:  \w{5}: (?:snowflake: )?$is_copy.* DETAIL:  It has the mark .*, recorded is .*\n.* HINT:  .*see "Backups, restores and copies" in doc\/operations\.md/,
		"$label: the log says it");
	is($server->safe_psql('postgres', 'SELECT generation, counted_at, starts_at FROM snowflake.registry'), '1||', "$label: nothing else follows");
	issue_ids($server, 1);
	$server->restart;
	issue_ids($server, 1);
	is(guards($server) . ' ' . warns($server, $is_copy), 'copy 1 1', "$label: it is said once");
	$server->stop;
}
is(guards($original), '', 'the original: no guard has found anything');
# A copy of all files is what is left when the original is gone.
$original->stop;
$directory = $original->data_dir;
system_or_bail('cp', '-a', $directory, "$directory.copied");
rename $directory, "$directory.away" or die "rename: $!";
rename "$directory.copied", $directory or die "rename: $!";
$original->start;
is(settle('copy 1', sub { guards($original) }), 'copy 1', 'the data directory is moved by copying: told');
is(sql_error($original, 'SELECT snowflake_nextval()'), '', 'the data directory is moved by copying: ids come');
is($original->safe_psql('postgres', 'SELECT starts_at FROM snowflake.registry'), '', 'the data directory is moved by copying: leases wait for nothing');
# A copy that is promoted is none: its mark is not compared.
my $promoted = new_standby('promoted', $original);
$promoted->promote;
issue_ids($promoted, 1);
is(guards($promoted), 'copy 1', 'a promoted standby has what its primary had, and no more');
$_->stop foreach $promoted, $original;

#
# A second promotion within the longest window
#
sub conninfo_of_all
{
	return join ' ', 'host=' . join(',', map { $_->host } @_), 'port=' . join(',', map { $_->port } @_), 'target_session_attrs=read-write';
}

my $first = new_registry('first', @streaming, limit => '5 min');
my ($second, $third) = map { PostgreSQL::Test::Cluster->new($_) } 'second', 'third';
my $node = new_member('node', conninfo_of_all($first, $second, $third), conf => "snowflake.lease_duration = '4min'\n");
my @files = write_ids(issue_ids($node, 20));

sub become_standby
{
	my ($standby, $primary) = @_;

	$primary->backup($standby->name);
	$standby->init_from_backup($primary, $standby->name, has_streaming => 1);
	$standby->start;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
}

become_standby($second, $first);
$first->stop('fast');
$second->promote;
# it has a lease that the standby knows of: no, and another one
poll('a number of the second', sub { my $number = stat_of($node, 'node_number'); $number ne '' && $number % 2 == 1 });
push @files, write_ids(issue_ids($node, 20));
is(guards($second), '', 'one promotion: leases wait for nothing');
# it grows with each renewal, and one of an hour would not be over soon
poll('a long lease', sub { stat_of($node, "leased_until > clock_timestamp() + interval '1 min'") eq 't' });
become_standby($third, $second);
my $number = stat_of($node, 'node_number');
my $counted_at = $second->safe_psql('postgres', 'SELECT counted_at FROM snowflake.registry');
$second->stop('fast');
$third->promote;
poll('a call', sub { guards($third) eq 'wait 1' });
is($third->safe_psql('postgres', "SELECT generation, starts_at = '$counted_at'::timestamptz + '5 min 10 s' FROM snowflake.registry"), '3|t',
	'a second promotion: leases wait for the longest window after the first one');
is(warns($third, 'leases of this registry start at \S+ \S+\n'), 1, 'a second promotion: the log says it');
push @files, write_ids(issue_ids($node, 20));
is(id_node((read_ids($files[-1]))[-1]), $number, 'a second promotion: the node goes on with the lease that it has');
my $refused = 'the lease is of an earlier generation of the registry';
is(settle($refused, sub { my $detail = stat_of($node, 'detail'); $detail =~ /^(\Q$refused\E)/ ? $1 : $detail }), $refused, 'a second promotion: and says why it is not renewed');
push @files, write_ids(issue_ids($node, 20));
is(stat_of($node, 'state'), 'ready', 'a second promotion: no call fails');

# Without a lease it has to wait, until the owner says that no id is that late, or the window is over.
$node->safe_psql('postgres', 'SELECT snowflake_release()');
my ($error) = nextval_error_with_reason($node, '100ms');
like($error, qr/^ERROR:  55000: the node's clock is behind the time that leases start at\nDETAIL:  .*\nHINT:  Wait until it shows that time/,
	'a second promotion: a node without a lease waits');
is(warns($third, 'leases of this registry start at'), 1, 'a second promotion: the log says it once');
$third->safe_psql('postgres', 'SELECT snowflake.ids_end_before(clock_timestamp())');
is(settle('', sub { sql_error($node, 'SELECT snowflake_nextval()') }), '', 'the owner says that all ids have ended: ids come');
push @files, write_ids(issue_ids($node, 20));

#
# The old primary is started again
#
# The second one is writable, and before the third in the list.
my $failures = stat_of($node, 'lease_failures');
my $before = log_end($node);
$second->start;
$node->safe_psql('postgres', 'SELECT snowflake_release()');
push @files, write_ids(issue_ids($node, 20));
my $name = name_of($second);
poll('a warning', sub { log_since($node, $before) =~ /WARNING:  \w{5}: snowflake: the registry \Q$name\E is of generation 2, and one of generation 3 has answered before\n.*HINT:  .*stop it, and let it come back only as a standby/s });
pass('an old primary that answers is told, with its name');
cmp_ok(stat_of($node, 'lease_failures'), '>', $failures, 'an old primary that answers is counted for monitoring');
is(settle("ready|the registry $name is of generation 2, and one of generation 3 has answered before", sub { $node->safe_psql('postgres', 'SELECT state, detail FROM pg_stat_snowflake') }),
	"ready|the registry $name is of generation 2, and one of generation 3 has answered before", 'and shown, though ids are issued');
$second->stop('immediate');
is(settle('', sub { sql_error($node, 'SELECT snowflake_nextval()') }), '', 'it is stopped: ids go on');
poll('a number of the third', sub { issue_ids($node, 1); my $number = stat_of($node, 'node_number'); $number ne '' && $number % 2 == 0 });
is(settle('', sub { stat_of($node, 'detail') }), '', 'and nothing is shown any more');
push @files, write_ids(issue_ids($node, 20));
check_ids('promotions', split_ids(12, 1023, @files));
$_->stop foreach $node, $third;

done_testing();
