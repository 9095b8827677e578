# 015_ends_of_time.pl
#	  Before a layout's epoch and after its last tick there are no ids, and no others
#	  instead: before, a draw waits or fails with 55P03; in the last tick ids go on
#	  until the clock passes it or its sequence is used up, then a draw fails with
#	  2200H, also after a restart and with the clock set back.  A year before the end
#	  the log warns at start.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeStatement;

use POSIX 'strftime';
use Time::HiRes ();

my $now = time;

# Whole seconds since 1970 as an epoch, and as timestamptz prints it in UTC.
sub epoch_at { return strftime('%Y-%m-%dT%H:%M:%SZ', gmtime $_[0]) }
sub time_at { return strftime('%Y-%m-%d %H:%M:%S+00', gmtime $_[0]) }

sub new_server
{
	my ($name, $layout) = @_;

	my $node = new_node($name, conf => <<EOF);
timezone = 'UTC'
log_timezone = 'UTC'
snowflake.layout = '$layout'
snowflake.max_wait = 0
EOF
	poll('lease', sub { stat_of($node, 'state') ne 'starting' });
	return $node;
}

# Sets the clock to a time (seconds since 1970), and waits until a draw gets an id, or
# the error given.  Returns the clock's offset.
sub set_time
{
	my ($node, $time, $error) = (@_, qr/^$/);

	my $offset = 1000 * $time - int(1000 * Time::HiRes::time());

	set_and_reload($node, 'snowflake.clock_offset' => $offset);
	poll("clock at $time", sub { sql_error($node, 'SELECT snowflake_nextval()') =~ $error });
	return "$offset ms";
}

# How a draw fails when the field is full.
sub is_full
{
	my ($node, $end, $label) = @_;

	foreach my $call ('snowflake_nextval()', 'snowflake_nextval_batch(1)')
	{
		my $ends = time_at($end);
		like(sql_error($node, "SELECT $call"),
			qr/ERROR:  2200H: the timestamp field of layout "timestamp .*" is full\nDETAIL:  Its last tick end(s|ed) at \Q$ends\E\.\nHINT:  Choose/,
			"$label: $call fails with 2200H");
	}
}

#
# Before the epoch
#
my $epoch = $now + 30 * 86400;
my $node = new_server('early', 'twitter, epoch ' . epoch_at($epoch));
my $far = qr/ERROR:  55P03: the next id would be 2[56]\d{5}\.\d+ s ahead of the clock\nDETAIL:  .*\nHINT:  /;

like(sql_error($node, 'SELECT snowflake_nextval()'), $far, 'a month before the epoch a draw fails');
like(sql_error($node, 'SELECT snowflake_nextval_batch(2)'), $far, 'and a batch');
is(stat_of($node, "concat_ws(',', state, last_id, ids_issued)"), 'waiting,0', 'and nothing was issued');
$node->restart;
poll('lease', sub { $node->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node') eq '2' });
is($node->safe_psql('postgres', 'SELECT min(released_at) < max(launched_at) FROM snowflake.worker_node'), 't',
	'a clean stop hands the number back');

set_time($node, $epoch - 60, qr/ERROR:  55P03: the next id would be \d\d?\./);
my $first = start_sql($node, "SET snowflake.max_wait = '2min'; SELECT snowflake_nextval();");
waiting_pid($node);
my $near = 1000 * ($epoch - 5) - int(1000 * Time::HiRes::time());
set_and_reload($node, 'snowflake.clock_offset' => $near);
finish_sql($first);
is($first->{error}, '', 'a draw waits until the epoch has come within max_ahead');
is($node->safe_psql('postgres', "SELECT worker_id, \"timestamp\" BETWEEN '@{[ time_at($epoch) ]}' AND clock_timestamp() + interval '@{[ $near + 1000 ]} ms'
	FROM snowflake_parse($first->{out})"), '1|t', 'and gets an id of that time');
cmp_ok($first->{seconds}, '>', 1, 'not earlier');
unlike(slurp_file($node->logfile), qr/WARNING: .*the timestamp field/, 'no warning of an end that is decades away');
$node->stop;

# A layout that begins later must not take the number until then, for all others and whoever has it
# next: a lease ends with the last tick of its words.
$node = new_server('later', 'twitter');
$node->safe_psql('postgres', "INSERT INTO snowflake.generator VALUES ('later', 'twitter, epoch " . epoch_at($epoch) . "')");
like(sql_error($node, "SELECT snowflake_nextval('later')"), $far, 'a generator of a later epoch: a draw fails');
is($node->safe_psql('postgres', "SELECT state, detail FROM pg_stat_snowflake WHERE 'later' = ANY (generators)"),
	'waiting|the layout begins at ' . strftime('%Y-%m-%d %H:%M:%S', gmtime $epoch) . '.001+00', 'and the view says when it begins');
is(sql_error($node, "SET snowflake.max_wait = '30s'; SELECT snowflake_nextval()"), '', 'draws of the server go on');
# the lease worker looks at all layouts, and opens none of a later epoch
foreach my $ahead ('1.500', '1.600')
{
	set_and_reload($node, 'snowflake.max_ahead' => "${ahead}s");
	poll("$ahead s ahead", sub { sql_error($node, "SELECT snowflake_nextval('later')") =~ /max_ahead allows $ahead s/ });
}
# even if the clock was beyond its epoch for a while, as long as nobody drew from it then
my $state = "SELECT state FROM pg_stat_snowflake WHERE 'later' = ANY (generators)";
foreach my $step ([ 1000 * ($epoch + 60 - time), 'ready' ], [ 0, 'waiting' ])
{
	set_and_reload($node, 'snowflake.clock_offset' => $step->[0]);
	poll("$step->[1] with the clock moved", sub { $node->safe_psql('postgres', $state) eq $step->[1] });
}
$node->restart;
$node->poll_query_until('postgres', 'SELECT snowflake_nextval() IS NOT NULL') or die 'no id after a restart';
is($node->safe_psql('postgres', 'SELECT count(*), bool_and(leased_until < now() + interval \'1 hour\') FROM snowflake.worker_node'), '2|t',
	'and after a clean stop too; no lease goes to that epoch');
like(sql_error($node, "SELECT snowflake_nextval('later')"), $far, 'the generator waits still');
set_time($node, $epoch + 1);
is(sql_error($node, "SET snowflake.max_wait = '30s'; SELECT snowflake_nextval('later')"), '', 'when the epoch is over the generator draws');
$node->stop;

# A start with a clock that is far ahead, beyond the end of the layout, issues nothing, and must
# not take the number either.
$node = new_server('glitch', 'twitter');
my $before = $node->safe_psql('postgres', "SET snowflake.max_wait = '30s'; SELECT snowflake_nextval()");
$node->stop;
set_conf($node, 'snowflake.clock_offset' => 73 * 365 * 86400 * 1000);
$node->start;
poll('refusal', sub { stat_of($node, 'state') eq 'refused' });
$node->stop;
set_conf($node, 'snowflake.clock_offset' => 0);
$node->start;
cmp_ok($node->safe_psql('postgres', "SET snowflake.max_wait = '30s'; SELECT snowflake_nextval()"), '>', $before,
	'when the clock is right again ids go on');
# The view does not say "ready" while there is nobody to open a lease: the postmaster, which
# would start one, is stopped.
set_and_reload($node, 'snowflake.max_wait' => '30s');
my $session = $node->background_psql('postgres');
my $worker = worker_pid($node);
kill 'STOP', $node->{_pid} or die "kill: $!";
kill 'TERM', $worker or die "kill: $!";
my $without = eval { settle('starting', sub { $session->query_safe('SELECT state FROM pg_stat_snowflake') }) };
kill 'CONT', $node->{_pid} or die "kill: $!";
is($without, 'starting', 'without a lease worker the state is starting');
$session->quit;
is(sql_error($node, 'SELECT snowflake_nextval()'), '', 'and a draw waits for the next one');
$node->stop;

#
# The clock goes through the last tick; there are more ids in it than are drawn
#
my $end = time + 3600;
$node = new_server('late', 'timestamp 7, worker 4, sequence 20, tick 1s, epoch ' . epoch_at($end - 128));
$far = qr/ERROR:  55P03: the next id would be 3[34]\d\d\./;
is(stat_of($node, 'ends_at'), time_at($end), 'the view shows the end');
like(sql_error($node, 'SELECT snowflake_nextval()'), $far, 'before the epoch');

set_conf($node, 'snowflake.max_ahead' => 0);
my $offset = set_time($node, $end - 8);
poll('the warning', sub {
		slurp_file($node->logfile) =~ /WARNING: .*the timestamp field of layout "timestamp 7, .*" is full at \Q@{[ time_at($end) ]}\E/ });
pass('the log warns of the end');
$node->safe_psql('postgres', "
	SET snowflake.max_wait = '30s';
	CREATE TABLE drawn (n serial, id bigint, began timestamptz, at timestamptz);
	DO \$\$
		DECLARE
			id bigint;
			began timestamptz;
		BEGIN
			WHILE id IS NOT NULL OR NOT EXISTS (SELECT FROM drawn) LOOP
				began := clock_timestamp() + interval '$offset';
				BEGIN
					id := snowflake_nextval();
				EXCEPTION WHEN sqlstate '2200H' THEN
					id := NULL;
				END;
				INSERT INTO drawn (id, began, at) VALUES (id, began, clock_timestamp() + interval '$offset');
				PERFORM pg_sleep(0.005);
			END LOOP;
		END \$\$");
my $in_last = "snowflake_timestamp(id) = '@{[ time_at($end - 1) ]}'";
# ten, or as many as a machine that stalls got around to try
is($node->safe_psql('postgres', "SELECT count(*) FILTER (WHERE $in_last) >= least(10,
	count(*) FILTER (WHERE began >= '@{[ time_at($end - 1) ]}' AND at < '@{[ time_at($end) ]}')) FROM drawn"), 't',
	'draws go on through the last tick');
is($node->safe_psql('postgres', "SELECT max(at) >= '@{[ time_at($end) ]}' AND max(began) < '@{[ time_at($end + 60) ]}'
	FROM drawn WHERE id IS NULL"), 't', 'until the clock has passed it');
is($node->safe_psql('postgres', "SELECT count(*) FILTER (WHERE snowflake_timestamp(id) > at),
	count(*) FILTER (WHERE id <= before) FROM (SELECT *, lag(id) OVER (ORDER BY n) AS before FROM drawn) s"), '0|0',
	'ids increase and are never past the clock (max_ahead is 0)');
is_full($node, $end, 'after the end');
$node->restart;
poll('refusal', sub { stat_of($node, 'state') eq 'refused' });
is_full($node, $end, 'restarted after the end');
like(stat_of($node, 'detail'), qr/timestamp field .* is full/, 'restarted after the end: detail of the view');
$node->stop;
set_conf($node, 'snowflake.clock_offset' => 0);
$node->start;
poll('refusal', sub { stat_of($node, 'state') eq 'refused' });
is_full($node, $end, 'restarted, the clock back before the epoch');
$node->stop;

#
# The sequence of the last tick is used up before the clock comes there
#
$node = new_server('used_up', 'timestamp 7, worker 4, sequence 4, tick 1s, epoch ' . epoch_at($end - 128));
set_conf($node, 'snowflake.max_ahead' => '1h', 'snowflake.sequence_start' => 'zero');
set_time($node, $end - 60);

my ($ids, $error) = ('', '');
$node->psql('postgres', "SET snowflake.max_wait = '30s';" . 'SELECT snowflake_nextval();' x 2000, stdout => \$ids, stderr => \$error,
	on_error_stop => 1);
my @ids = split /\n/, $ids;
cmp_ok(scalar @ids, '<', 62 * 16, 'the ids before the end are used up');
like($error, qr/ERROR:  the timestamp field of layout/, 'by a session that draws on');
is(join(' ', map { $_ - $ids[-16] } @ids[ -16 .. -1 ]), join(' ', 0 .. 15), 'the last tick gave its 16 ids');
is($node->safe_psql('postgres', "SELECT \"timestamp\", sequence FROM snowflake_parse($ids[-1])"),
	time_at($end - 1) . '|15', 'the last id is the last one of the layout');
check_ids('up to the end', write_ids(@ids));
is_full($node, $end, 'used up');
$node->restart;
poll('refusal', sub { stat_of($node, 'state') eq 'refused' });
is_full($node, $end, 'used up and restarted');
$node->stop;

done_testing();
