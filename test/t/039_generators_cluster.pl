# 039_generators_cluster.pl
#	  Generators on several servers.  With a registry: nodes move to numbers that fit, each
#	  to another one, and a standby learns of the primary's generators.  Without one: a
#	  promoted standby and the old primary beside it, both with a narrow layout in use, never
#	  have the same number, whichever of them came to it first.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;

use constant TINY => 'timestamp 41, worker 3, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z';
use constant SMALL => 'timestamp 41, worker 4, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z';

sub drawers_of
{
	my ($node, $generator) = @_;

	return start_drawers($node, count => 2, sql => "SELECT snowflake_nextval('$generator') FROM generate_series(1, 20);\n"
		  . "SELECT snowflake_nextval_batch(30, '$generator');");
}

# Numbers of 3 bits at bit 12 of the ids.
sub numbers_in
{
	my ($mask, @files) = @_;
	my %numbers = map { ($_ >> 12 & $mask) => 1 } read_ids(@files);

	return sort { $a <=> $b } keys %numbers;
}

#
# Three nodes share a registry whose first numbers were used by others.
#
my $registry = new_registry('registry');
my @nodes;
$registry->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake');
foreach my $i (1 .. 3)
{
	push @nodes, new_member("node$i", place($registry), $i == 1 ? (init => [ allows_streaming => 1 ]) : ());
}
foreach my $try (1 .. 9)
{
	foreach my $node (@nodes)
	{
		draw($node, 1);
		$node->safe_psql('postgres', 'SELECT snowflake_release()') if $try < 9;
	}
}
my @before = map { stat_of($_, 'node_number') } @nodes;
is(scalar(grep { $_ > 6 } @before), 3, 'the nodes have numbers that do not fit');
my @twitter = map { start_drawers($_, count => 2) } @nodes;
$_->wait_for(200) foreach @twitter;
$_->safe_psql('postgres', "SELECT snowflake_create_generator('tiny', '${\ TINY}')") foreach @nodes;
my @tiny = map { drawers_of($_, 'tiny') } @nodes;
$_->wait_for(500) foreach @tiny, @twitter;
my @numbers = map { (split /\n/, stat_of($_, 'DISTINCT node_number'))[0] } @nodes;
is(scalar(grep { $_ <= 6 } @numbers), 3, "numbers @before were exchanged for @numbers, which fit");
is($registry->safe_psql('postgres', "SELECT count(*) FROM snowflake.worker_node WHERE released_at IS NULL"), 3,
	'the registry was told of the old ones');

# A standby of the first one, with a number of its own.
$nodes[0]->backup('standby');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($nodes[0], 'standby', has_streaming => 1);
$standby->start;
my $session = $standby->background_psql('postgres', on_error_stop => 0);
is($session->query(q{SELECT snowflake_nextval('tiny') > 0}), 't', 'a standby draws from the generator of its primary');
push @tiny, drawers_of($standby, 'tiny');
$tiny[-1]->wait_for(300);
$nodes[0]->safe_psql('postgres', q{SELECT snowflake_create_generator('web', 'js53')});
$nodes[0]->wait_for_catchup($standby);
is($session->query(q{SELECT snowflake_nextval('web') < 1::bigint << 53}), 't', 'a new generator reaches the standby');
$nodes[0]->safe_psql('postgres', q{UPDATE snowflake.generator SET layout = 'twitter' WHERE name = 'web'});
$nodes[0]->wait_for_catchup($standby);
is($session->query(q{SELECT snowflake_nextval('web') < 1::bigint << 53}), 'f', 'its change reaches sessions that drew from it');
$nodes[0]->safe_psql('postgres', q{SELECT snowflake_drop_generator('web')});
$nodes[0]->wait_for_catchup($standby);
$session->query(q{SELECT snowflake_nextval('web')});
like($session->{stderr}, qr/generator "web" does not exist/, 'and its end, too');
$session->quit;

my @twitter_files = map { $_->stop } @twitter;
my @tiny_files = map { $_->stop } @tiny;
is(join('', map { $_->errors } @twitter, @tiny), '', 'sessions have noticed nothing');
check_ids('registry, twitter', split_ids(12, 1023, @twitter_files));
check_ids('registry, tiny', split_ids(12, 7, @tiny_files));
is(scalar(grep { $_ == 7 } numbers_in(7, @tiny_files)), 0, 'nobody had the reserved number');
$_->stop foreach $standby, @nodes, $registry;

#
# No registry.  The layouts come into use before or after the promotion, on both sides.
#
foreach my $layout ('twitter', 'leaf', 'liaoxuefeng')
{
	my $narrow = $layout eq 'liaoxuefeng' ? SMALL : TINY =~ s/worker 3/worker 6/r;
	my $mask = $layout eq 'liaoxuefeng' ? 15 : 63;
	my $primary = auto_node("primary-$layout", init => [ allows_streaming => 1 ], conf => "snowflake.layout = '$layout'\n");

	$primary->safe_psql('postgres', "CREATE EXTENSION IF NOT EXISTS snowflake; SELECT snowflake_create_generator('early', '$narrow'),
		snowflake_create_generator('late', '$narrow')");
	draw($primary, 1);
	$primary->backup('promoted');
	my $promoted = PostgreSQL::Test::Cluster->new("promoted-$layout");
	$promoted->init_from_backup($primary, 'promoted', has_streaming => 1);
	$promoted->start;
	my @drawers = (start_drawers($primary, count => 1));
	$drawers[0]->wait_for(50);
	$promoted->promote;
	push @drawers, start_drawers($promoted, count => 1);
	my (@old, @new);
	foreach my $round (1 .. 4)
	{
		# the old one goes through numbers before the new one comes to the narrow layout
		$primary->safe_psql('postgres', q{SELECT snowflake_release()}) if $round < 3;
		$drawers[0]->wait_for(50);
		foreach my $pair ([ $primary, \@old ], [ $promoted, \@new ])
		{
			my ($node, $files) = @$pair;

			next if $node == $primary && $round == 1;
			push @$files, write_ids(split /\n/, $node->safe_psql('postgres', q{SELECT snowflake_nextval_batch(2000, 'early')}));
			$node->safe_psql('postgres', q{SELECT snowflake_release()});
		}
		$_->wait_for(50) foreach @drawers;
	}
	my @old_default = $drawers[0]->stop;
	my @new_default = $drawers[1]->stop;
	check_ids("$layout: narrow layout, old and new primary", split_ids(12, $mask, @old, @new));
	my %new = map { $_ => 1 } numbers_in($mask, @new);
	is(join(' ', grep { $new{$_} } numbers_in($mask, @old)), '', "$layout: numbers of the two differ: " . join(' ', numbers_in($mask, @old))
		  . ' and ' . join(' ', sort { $a <=> $b } keys %new));
	my ($shift, $bits) = $layout eq 'liaoxuefeng' ? (0, 31) : (12, 1023);
	check_ids("$layout: its own ids, old and new primary", split_ids($shift, $bits, @old_default, @new_default));
	$_->stop foreach $primary, $promoted;
}

# Too narrow to be divided among timelines: refused after a promotion, and only that.
my $primary = auto_node('primary', init => [ allows_streaming => 1 ], conf => "snowflake.lease_duration = '2s'\n");
$primary->safe_psql('postgres', "CREATE EXTENSION IF NOT EXISTS snowflake; SELECT snowflake_create_generator('tiny', '${\ TINY}')");
draw($primary, 1);
$primary->backup('promoted');
my $promoted = PostgreSQL::Test::Cluster->new('promoted');
$promoted->init_from_backup($primary, 'promoted', has_streaming => 1);
$promoted->start;
$promoted->promote;
like(sql_error($promoted, q{SELECT snowflake_nextval('tiny')}), qr/^ERROR:  55000: node number \d+ does not fit layout ".*"\nDETAIL:  .* from 0 to 6; the least .*\nHINT:  /,
	'a layout of 3 bits has no numbers for a second timeline without a registry');
is($promoted->safe_psql('postgres', 'SELECT snowflake_nextval() > 0'), 't', 'the server draws with its own');

# A server whose own layout became so narrow has numbers of it, but for no other layout:
# there the old primary may have the same.
$promoted->safe_psql('postgres', q{SELECT snowflake_create_generator('wide', 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z')});
set_conf($promoted, 'snowflake.layout' => 'timestamp 41, worker 3, sequence 19, tick 1ms, epoch 2010-11-04T01:42:54.657Z');
$promoted->stop;
$promoted->start;
poll('a change of the layout', sub { sql_error($promoted,
	q{SELECT snowflake_change_layout('timestamp 41, worker 3, sequence 19, tick 1ms, epoch 2010-11-04T01:42:54.657Z')}) eq '' });
poll('the new layout', sub { sql_error($promoted, 'SELECT snowflake_nextval()') eq '' });
is(stat_of($promoted, 'node_number > 3'), 't', 'a layout of 3 bits of its own: numbers of the upper half');
like(sql_error($promoted, q{SELECT snowflake_nextval('wide')}), qr/^ERROR:  55000: node number [4-6] does not fit layout ".*"\nDETAIL:  Without a registry .*\nHINT:  /,
	'a wider layout beside it is refused');
$_->stop foreach $primary, $promoted;

done_testing();
