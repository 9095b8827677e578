# calls.pl
#	  What one id costs in SQL, beside what else makes ids.
use strict;
use warnings;

use Bench;

my $server = new_server('calls');
my $calls = quick(1_000_000, 50_000);

$server->sql('CREATE SEQUENCE plain');
figure(id => 'call', title => 'Cost of one id', unit => 's', references => ['abs(1)', 'nextval()'],
	subjects => [ 'abs(1)', 'snowflake_nextval()', 'nextval()' ]);
goal(figure => 'call', subject => 'snowflake_nextval()', reference => 'nextval()', at_most => 0.45);
sub cost
{
	my ($call) = @_;
	return sub { $server->seconds("SELECT count($call) FROM generate_series(1, $calls)") };
}
rounds('call', undef, 'abs(1)' => cost('clock_timestamp()'), 'snowflake_nextval()' => cost('snowflake_nextval()'),
	'nextval()' => cost("nextval('plain')"));
figure(id => 'scale', title => 'try lines', unit => 's', references => ['a'], x => 'clients');
rounds('scale', $_, 'a' => sub { 1 + rand }, b => sub { 2 + rand }) foreach (1, 2, 4, 64);
finish();
