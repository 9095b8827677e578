# copy.pl
#	  COPY of 1,000, 100,000 and 1,000,000 rows by one session into an empty table with a
#	  primary key: a bigserial, an id of ours, and a uuid, each by the column's default; and
#	  the way for large loads, ids that snowflake_nextval_batch() has issued before and
#	  that are in the data.  Rows per second, and bytes of WAL per row.
#
# One server with its own table and an automatic number, as it is by default.  A turn of a
# subject is as many COPYs as make 200,000 to 1,000,000 rows, each a transaction, and the
# time is the sum of what each took; the subjects take turns in a new order.  Takes about
# three minutes with 7 rounds on two cores, and 2 GB below TMPDIR.
use strict;
use warnings;
use utf8;

use List::Util qw(shuffle);

use Bench;

my $server = new_server('copy', 'snowflake.worker_id' => 'auto', 'synchronous_commit' => 'off',
	'shared_buffers' => "'512MB'", 'checkpoint_timeout' => "'1d'", 'bgwriter_lru_maxpages' => 0);

my ($data, $issued) = ('snowflake, ids in the data', 'the same, with the time to issue them');
my %tables = (
	'bigserial' => [ 'serial', 'bigserial' ],
	'snowflake' => [ 'ours', 'bigint DEFAULT snowflake_nextval()' ],
	'uuid v4' => [ 'random', 'uuid DEFAULT gen_random_uuid()' ],
	$data => [ 'ready', 'bigint DEFAULT snowflake_nextval()' ]);
my @subjects = ('bigserial', 'snowflake', $data, $issued, 'uuid v4');
my %copies = map { $_->[0] => $_->[1] } @{ quick([ [ 1000, 200 ], [ 100_000, 5 ], [ 1_000_000, 1 ] ], [ [ 1000, 10 ], [ 10_000, 1 ] ]) };
my @sizes = sort { $a <=> $b } keys %copies;

my @common = (references => ['bigserial'], x => 'rows in a COPY', subjects => \@subjects);
figure(id => 'speed', title => 'COPY', unit => 'rows/s', absolute => 1, picture => 0, @common);
note('speed', 'One session, synchronous_commit = off; an empty table with a primary key and an integer, from a file of the server.');
figure(id => 'wal', title => 'WAL per row of COPY', unit => 'bytes', absolute => 1, picture => 0, @common,
	subjects => [ grep { $_ ne $issued } @subjects ]);
note('wal', 'COPY writes many rows in one record unless a default is volatile; PostgreSQL excepts nextval() from that, and'
	  . ' nothing else.');

my %levels;

# How long the statements took together, in seconds, each a transaction.
sub seconds
{
	my @statements = @_;
	my $script = $server->script('turn.sql', join('', "\\timing on\n", (map { "$_;\n" } @statements), "\\timing off\n"));
	my @times = $server->sql('SELECT 1', '-o', '/dev/null', '-f', $script) =~ /^Time: ([\d.]+) ms/mg;
	my $sum = 0;

	die 'no times' if @times != @statements;
	$sum += $_ / 1000 foreach @times;
	return $sum;
}

# The data of a size: a file of numbers; and as many files as there are COPYs of ids and numbers.
sub make_data
{
	my ($size) = @_;

	$server->sql("COPY (SELECT generate_series(1, $size)) TO '$server->{dir}/rows-$size'");
	$server->sql("COPY (SELECT id, row_number() OVER () FROM snowflake_nextval_batch($size) AS id)"
		  . " TO '$server->{dir}/ready-$size-$_'") foreach 1 .. $copies{$size};
}

sub measure
{
	my ($subject, $size, $run) = @_;
	my ($table) = @{ $tables{$subject} };
	my $rows = $size * $copies{$size};

	$server->sql("TRUNCATE $table");
	$server->sql('CHECKPOINT');
	my $before = $server->wal_position;
	my $time = seconds(map { $subject eq $data ? "COPY $table FROM '$server->{dir}/ready-$size-$_'" :
		  "COPY $table (payload) FROM '$server->{dir}/rows-$size'" } 1 .. $copies{$size});

	sample('speed', $subject, $size, $run, $rows / $time);
	push @{ $levels{$size} }, $rows / $time if $subject eq 'bigserial';
	sample('wal', $subject, $size, $run, ($server->wal_position - $before) / $rows);
	return unless $subject eq $data;
	my $more = seconds(("COPY (SELECT snowflake_nextval_batch($size)) TO STDOUT") x $copies{$size});
	sample('speed', $issued, $size, $run, $rows / ($time + $more));
}

$server->sql("CREATE TABLE $_->[0] (id $_->[1] PRIMARY KEY, payload integer NOT NULL)") foreach values %tables;
make_data($_) foreach @sizes;
each_round('COPY', map { my $size = $_; sub { measure($_, $size, $_[0]) foreach shuffle sort keys %tables } } @sizes);
note('speed', 'bigserial, rows per second (rows in a COPY): '
	  . join(', ', map { sprintf '%d (%d)', (sort { $a <=> $b } @{ $levels{$_} })[ @{ $levels{$_} } / 2 ], $_ } @sizes) . '.');
finish();
