# 048_creating.pl
#	  The table of leases is in a transaction that has not ended: somebody creates the
#	  extension in snowflake.database, and draws there and elsewhere before he commits.  Ids
#	  come at once, and nobody waits for his locks; what needs the table says that it is being
#	  created.  After the commit the number is leased there.  After a rollback ids go on with
#	  the number that the state file guards, and whoever needs the table next has the lease worker
#	  create the extension itself.  Also: no background worker is free to ask for a share of
#	  backfilled ids.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use Time::HiRes qw(time);

my $ask = "SELECT snowflake.ask_backfill_share('00000000-0000-0000-0000-000000000001')";

sub check_newer
{
	my ($label, $ids, @more) = @_;
	my $disorder = grep { $more[$_] <= ($_ ? $more[ $_ - 1 ] : $ids->[-1] // -1) } 0 .. $#more;

	cmp_ok(scalar @more, '>', 0, "$label: there are ids");
	is($disorder, 0, "$label: ids increase");
	push @$ids, @more;
}

foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $node = new_node(lc $end, start => 0, conf => "snowflake.worker_id = 'auto'\n");
	my @ids;
	my $draw = sub {
		split /\n/, $node->safe_psql('app', "SET snowflake.max_wait = '60s'; SELECT snowflake_nextval_batch(5)") };

	$node->start;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_safe('BEGIN; CREATE EXTENSION snowflake');
	$session->query_safe('CREATE TABLE drawn (id bigint DEFAULT snowflake_nextval())');
	check_newer("$end, in the transaction", \@ids, $session->query_safe('INSERT INTO drawn DEFAULT VALUES RETURNING id') =~ /(\d+)/);

	$node->safe_psql('postgres', 'CREATE DATABASE app');
	$node->safe_psql('app', 'CREATE EXTENSION snowflake');
	check_newer("$end, in another database meanwhile", \@ids, $draw->());
	check_newer("$end, in the transaction again", \@ids, $session->query_safe('INSERT INTO drawn DEFAULT VALUES RETURNING id') =~ /(\d+)/);
	like(sql_error($node, $ask, 'app'),
		qr/^ERROR:  55P03: the extension is being created in database "postgres"\nHINT:  Try again when that is committed/,
		"$end: what needs the table is refused meanwhile");

	$session->query_safe($end);
	$session->quit;
	if ($end eq 'ROLLBACK')
	{
		my $number = id_node($ids[-1]);

		check_newer("$end, after it", \@ids, map { $draw->() } 1 .. 3);
		is(id_node($ids[-1]), $number, "$end: with the same number");
		is($node->safe_psql('app', 'SELECT snowflake_release()'), $number, "$end: which is handed back");
	}
	poll("$end: ids with a leased number", sub {
			push @ids, $draw->();
			my $exists = $node->safe_psql('postgres', "SELECT to_regclass('snowflake.worker_node') IS NOT NULL");
			$exists eq 't' && id_node($ids[-1]) eq $node->safe_psql('postgres',
				'SELECT node_number FROM snowflake.worker_node WHERE released_at IS NULL') });
	is(scalar(keys %{ { map { $_ => 1 } @ids } }), scalar @ids, "$end: no id came twice");
	like($node->safe_psql('app', $ask), qr/^\d+$/, "$end: the share is there then");
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_class WHERE relname = 'drawn'"), $end eq 'COMMIT' ? 1 : 0,
		"$end: what the transaction did is as it says");
	$node->stop;
}

#
# All background workers but ours are taken.
#
my $node = new_node('full', conf => "max_worker_processes = 2\nmax_logical_replication_workers = 0\n");
draw($node, 1);
my $error = qr/^ERROR:  53400: no background worker is free to ask for this database's share of backfilled ids\nDETAIL:  snowflake\.max_wait is 1\.000 s\.\nHINT:  Raise max_worker_processes/;
my $start = time;
like(sql_error($node, "SET snowflake.max_wait = '1s'; $ask"), $error, 'no background worker is free: an error');
cmp_ok(time - $start, '>=', 1, 'no background worker is free: after max_wait');
is(sql_error($node, 'SELECT snowflake_nextval()'), '', 'no background worker is free: draws go on');
set_conf($node, max_worker_processes => 3);
$node->restart;
is(sql_error($node, $ask), '', 'one more is enough');
$node->stop;

done_testing();
