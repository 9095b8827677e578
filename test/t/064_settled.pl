# 064_settled.pl
#	  The settled id.  Eight writers, who take ids, wait and roll back, and a reader that asks for
#	  what is settled: it gets each row once, none is left out, and it is never told less than
#	  before.  The same over changes of the node number, a prepared transaction, crashes with ids
#	  that are ahead of the clock, a clock that is set back, and a promotion: where it cannot be
#	  known it is refused, and says until when.
#
# ROWS (default 40000) is how many rows the writers insert.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeStatement;

my $rows = $ENV{ROWS} // 40_000;
my $node = new_node('settled', init => [ allows_streaming => 1 ], conf => <<EOF);
snowflake.worker_id = 'auto'
snowflake.extra_layouts = 'js53'
max_prepared_transactions = 4
EOF

$node->safe_psql('postgres', <<EOF);
CREATE TABLE event (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n int);
CREATE TABLE seen (id bigint PRIMARY KEY);
CREATE TABLE reader (last bigint, looks bigint);
INSERT INTO reader VALUES (0, 0);
CREATE TABLE done (at timestamptz);
-- One look, as doc/reading.md has it: two statements.
CREATE PROCEDURE look() LANGUAGE plpgsql AS \$\$
DECLARE
	settled bigint := snowflake_settled_id();
BEGIN
	ASSERT settled >= (SELECT last FROM reader), 'less than before';
	INSERT INTO seen SELECT e.id FROM event AS e, reader AS r WHERE e.id > r.last AND e.id <= settled;
	UPDATE reader SET last = settled, looks = looks + 1;
	COMMIT;
END
\$\$;
-- Until all is done and read.
CREATE PROCEDURE look_on() LANGUAGE plpgsql AS \$\$
DECLARE
	is_done boolean;
BEGIN
	LOOP
		is_done := EXISTS (SELECT FROM done);
		CALL look();
		EXIT WHEN is_done AND (SELECT last FROM reader) >= (SELECT max(id) FROM event);
	END LOOP;
END
\$\$;
EOF

# Compares what was read with what is there.
sub check_read
{
	my ($label) = @_;

	is($node->safe_psql('postgres', 'SELECT count(*) FROM event AS e WHERE NOT EXISTS (SELECT FROM seen AS s WHERE s.id = e.id)'),
		'0', "$label: no row is lost");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM seen AS s WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.id = s.id)'),
		'0', "$label: nothing else was read");
}

# Looks until it has read the last row.  What is refused meanwhile is returned, in order.
sub look_all
{
	my %refused;
	my @refusals;

	poll('the last row to be read', sub {
		my $error = sql_error($node, 'CALL look()');

		push @refusals, $error if $error =~ /ERROR:  (\w+): (.*)/ && !$refused{"$1 $2"}++;
		return $error eq '' && $node->safe_psql('postgres', 'SELECT last >= (SELECT max(id) FROM event) FROM reader') eq 't';
	});
	return @refusals;
}

my $not_loaded = sql_error($node, "SELECT snowflake_settled_id('sonyflake')");
like($not_loaded, qr/ERROR:  55000: layout "sonyflake" is not in use/, 'a layout that is not in use');

# Writers
poll('a lease', sub { sql_error($node, 'SELECT snowflake_settled_id()') eq '' });
my $script = $node->basedir . '/writer.sql';
append_to_file($script, <<'EOF');
\set rows random(1, 20)
\set end random(1, 10)
\set wait random(0, 3000)
BEGIN;
INSERT INTO event (n) SELECT n FROM generate_series(1, :rows) AS n;
\if :end > 7
\sleep :wait us
INSERT INTO event (n) VALUES (0);
\endif
\if :end = 1
ROLLBACK;
\else
COMMIT;
\endif
EOF
my $reader = start_sql($node, 'CALL look_on();');
my $each = int($rows / 8 / 9.5);
my ($out, $err);
IPC::Run::run([ $node->installed_command('pgbench'), '-n', '-c', 8, '-j', 2, '-t', $each, '-f', $script, $node->connstr('postgres') ],
	'>', \$out, '2>', \$err) or die "pgbench: $err";
$node->safe_psql('postgres', 'INSERT INTO done VALUES (now())');
is(finish_sql($reader)->{error}, '', 'the reader goes on to the end');
check_read('eight writers');
my $looks = $node->safe_psql('postgres', 'SELECT looks FROM reader');
cmp_ok($looks, '>', 5, "it has looked often ($looks times)");

# Other numbers
my $switches = stat_of($node, 'worker_switches');
foreach my $i (1 .. 5)
{
	$node->safe_psql('postgres', 'INSERT INTO event (n) VALUES (-1); CALL look(); SELECT snowflake_release(); INSERT INTO event (n) VALUES (-2)');
	is(join('', look_all()), '', "number $i: known all the time");
}
cmp_ok(stat_of($node, 'worker_switches'), '>', $switches, 'the number has changed');
check_read('other numbers');

# A prepared transaction, over a restart
$node->safe_psql('postgres', "BEGIN; INSERT INTO event (n) VALUES (-3); PREPARE TRANSACTION 'older'");
$node->safe_psql('postgres', 'INSERT INTO event (n) VALUES (-4); CALL look(); CALL look()');
is($node->safe_psql('postgres', 'SELECT count(*) FROM seen AS s, event AS e WHERE e.id = s.id AND e.n = -4'), '0', 'prepared: it holds up what follows');
$node->restart;
my $error;
poll('its refusal', sub { ($error = sql_error($node, 'SELECT snowflake_settled_id()')) =~ /prepared/ });
like($error, qr/ERROR:  55000: the settled id is not known while a prepared transaction is older than this start of the server\nDETAIL:  The transaction "older" was prepared before the server was started or promoted.\nHINT:  End it with COMMIT PREPARED or ROLLBACK PREPARED./,
	'prepared before a restart: refused');
$node->safe_psql('postgres', "COMMIT PREPARED 'older'");
look_all();
check_read('prepared');
# more than there is room for at a time; one that waited for room would not end
is($node->psql('postgres', "BEGIN; SELECT snowflake_nextval(); PREPARE TRANSACTION 'one'; COMMIT PREPARED 'one';" x 500,
		on_error_stop => 1, timeout => $PostgreSQL::Test::Utils::timeout_default), 0, '500 prepared transactions, one after the other');

like(sql_error($node, "BEGIN; DROP EXTENSION snowflake_registry; PREPARE TRANSACTION 'dropped'"),
	qr/ERROR:  0A000: cannot PREPARE a transaction that has created or dropped the extension snowflake_registry\nDETAIL:  .*\nHINT:  Commit it without PREPARE/,
	'the registry is not dropped by a prepared transaction');

# A crash.  The end of the lease is minutes later; what is refused says when it ends.
look_all();
$node->stop('immediate');
$node->start;
poll('an id', sub { sql_error($node, 'INSERT INTO event (n) VALUES (-6)') eq '' });
my @refusals = look_all();
like($_, qr/ERROR:  55000: the settled id is not known before /, 'crash: refused for a time') foreach @refusals;
check_read('crash');

# A clock that is set back: another number, and earlier ids.
set_clock($node, 600_000);
$node->safe_psql('postgres', 'INSERT INTO event (n) VALUES (-7)');
look_all();
check_read('the clock is ahead');
set_clock($node, 0);
my ($first) = issue_ids($node, 1);
my $last = $node->safe_psql('postgres', 'SELECT last FROM reader');
cmp_ok($first, '<', $last, 'the clock was set back: ids are earlier');
like(sql_error($node, 'CALL look()'), qr/ERROR:  55000: the settled id is not known since ids have gone back\nDETAIL:  The clock was set back, or snowflake\.max_ahead was lowered\. New ids are greater than all earlier ones from \d{4}-.* on\.\nHINT:  Try again then, and read again/,
	'the clock was set back: refused');
# a transaction that has an early id still holds up what follows when the clock is right again
my $open = $node->background_psql('postgres');
$open->query_safe('BEGIN');
$open->query_safe('INSERT INTO event (n) VALUES (-8)');
set_clock($node, 601_000);
$node->safe_psql('postgres', 'INSERT INTO event (n) VALUES (-9)');
like(sql_error($node, 'CALL look()'), qr/since ids have gone back/, 'still refused: an early id is of an open transaction');
$open->query_safe('ROLLBACK');
$open->quit;
look_all();
check_read('the clock is there again');
set_clock($node, 700_000);

# A standby, and its promotion
$node->backup('standby');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'standby', has_streaming => 1);
$standby->start;
like(sql_error($standby, 'SELECT snowflake_settled_id()'), qr/ERROR:  25006: the settled id is not known during recovery\nHINT:  Ask the primary, and read there\./,
	'standby: refused');
$node->safe_psql('postgres', "INSERT INTO event (n) VALUES (-10); BEGIN; INSERT INTO event (n) VALUES (-11); PREPARE TRANSACTION 'replicated'");
$node->wait_for_catchup($standby);
$node->stop('immediate');
$standby->promote;
$node = $standby;
poll('an id', sub { sql_error($node, 'INSERT INTO event (n) VALUES (-12)') eq '' });
poll('its refusal', sub { ($error = sql_error($node, 'SELECT snowflake_settled_id()')) =~ /prepared/ });
like($error, qr/The transaction "replicated" was prepared before the server was started or promoted/, 'promotion: a prepared transaction');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'replicated'");
like(sql_error($node, 'SELECT snowflake_settled_id()'), qr/ERROR:  55000: the settled id is not known before /, 'promotion: not known at once');
look_all();
check_read('promotion');

# A restart while ids are ahead of the clock: those after it are later all the same, if they may be so far ahead.
my $ahead = new_node('ahead', conf => <<EOF);
snowflake.worker_id = 'auto'
snowflake.layout = 'sonyflake'
snowflake.extra_layouts = 'js53'
EOF
# the first lease of a number starts max_ahead after the creation of the table
set_clock($ahead, 120_000);
poll('a settled id', sub { sql_error($ahead, 'SELECT snowflake_nextval(), snowflake_settled_id()') eq '' });
set_and_reload($ahead, 'snowflake.max_ahead' => '9s');
my $settled = $ahead->safe_psql('postgres', 'SELECT max(id) FROM snowflake_nextval_batch(200000) AS id; SELECT snowflake_settled_id()') =~ s/.*\n//r;
is($ahead->safe_psql('postgres', "SELECT snowflake_timestamp($settled) > clock_timestamp() + interval '125 s'"), 't', 'settled ids are ahead of the clock');
$ahead->restart;
is($ahead->safe_psql('postgres', "SELECT snowflake_nextval() > $settled"), 't', 'restart while ids are ahead: the next ones are later');
is($ahead->safe_psql('postgres', "SELECT snowflake_settled_id() >= $settled"), 't', 'and those before it stay settled');
# the last lease has issued no id of the layout: the next start may go on where it began
$ahead->safe_psql('postgres', "SELECT max(id) FROM snowflake_nextval_batch(10000) AS id; SELECT snowflake_release(); SELECT snowflake_nextval('js53')");
$settled = $ahead->safe_psql('postgres', 'SELECT snowflake_release(); SELECT snowflake_settled_id()') =~ s/.*\n//r;
$ahead->restart;
is($ahead->safe_psql('postgres', "SELECT snowflake_nextval() > $settled"), 't', 'restart after a lease without ids: the next ones are later');
$ahead->stop;

$node->stop;
# a lease that starts later, and nobody wants an id
my $plain = new_node('plain', limit => '2 h', conf => "snowflake.max_ahead = '1h'\n");
poll('a lease', sub { ($error = sql_error($plain, 'SELECT snowflake_settled_id()')) !~ /before the server has a node number/ });
like($error, qr/ERROR:  55000: the settled id is not known before \d{4}-.*\nDETAIL:  Ids from before the server was started or promoted can be as late as that\./,
	'a lease that starts later: refused until then');

# The default: nothing can be prepared.
like(sql_error($plain, "BEGIN; SELECT snowflake_nextval(); PREPARE TRANSACTION 'x'"), qr/ERROR:  55000: prepared transactions are disabled/,
	'PREPARE TRANSACTION fails where it is not enabled');

done_testing();
