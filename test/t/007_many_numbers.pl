# 007_many_numbers.pl
#	  A server that had more numbers than the state file has entries: the bounds of
#	  those that gave way still hold.  After a stop and after a kill, with the clock
#	  set back, ids of each number go on above all that it ever had.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;

use constant NUM_NUMBERS => 40;		# SNOWFLAKE_STATE_ENTRIES is 32

my $node = new_node('main');
my (%greatest, %seen);
my $num_ids = 0;

# Draws with each of the numbers.
sub draw_with_all
{
	my ($label, @numbers) = @_;
	my $lower = '';

	foreach my $number (@numbers)
	{
		set_and_reload($node, 'snowflake.worker_id' => $number % 32,
			'snowflake.datacenter_id' => int($number / 32));
		poll("node number $number", sub { stat_of($node, 'node_number') eq $number });
		foreach my $id (draw($node, 5), draw($node, 20, 1))
		{
			$lower ||= "$id of $number" if id_node($id) != $number || $id <= ($greatest{$number} // 0);
			$greatest{$number} = $id;
			$seen{$id} = 1;
			$num_ids++;
		}
	}
	is($lower, '', "$label: ids of each number go on above all its earlier ones");
	is(scalar(keys %greatest), NUM_NUMBERS, "$label: all numbers were used");
}

my @numbers = (1 .. NUM_NUMBERS);
draw_with_all('first', @numbers);
is(stat_of($node, 'worker_switches'), NUM_NUMBERS - 1, 'worker_switches counts them');

# So much time that ids of a lost bound would be lower, and room to go on at once.
$node->stop('fast');
set_conf($node, 'snowflake.clock_offset' => '-10s', 'snowflake.max_ahead' => '1min');
$node->start;
draw_with_all('clock back, after a stop', reverse @numbers);

crash($node);
set_conf($node, 'snowflake.clock_offset' => '-20s', 'snowflake.max_ahead' => '2min');
$node->start;
draw_with_all('clock further back, after a kill', map { @numbers[ $_ - 1, $_ ] } grep { $_ % 2 } 1 .. $#numbers);

is(scalar(keys %seen), $num_ids, "$num_ids ids are distinct");
$node->stop;

done_testing();
