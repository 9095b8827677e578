# 047_active_active.pl
#	  Primaries that send each other their rows, by the SQL of doc/active-active.md: two of them
#	  insert; one crashes; the registry goes away and comes back; a third one is added by a copy
#	  while clients write, and a fourth one by pg_createsubscriber.  All have the same rows, no
#	  id repeats, and nothing fails where rows arrive.
#
#	  Where all tables are replicated, those of the schema snowflake, too, each server keeps its
#	  own rows there.  pg_createsubscriber on a standby of the registry, and without a registry.
#
# With PostgreSQL's own replication on 16 and newer (pg_createsubscriber: 17), with pglogical
# on 15, and skipped where that is not installed.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeReadme;
use SnowflakeRegistry;

# Functions of pglogical that wait have no timeout of their own.
use constant STATEMENTS_END => "-c statement_timeout=${PostgreSQL::Test::Utils::timeout_default}s";

my $registry = new_registry('registry');
my $major = $registry->safe_psql('postgres', "SELECT current_setting('server_version_num')::integer / 10000");
my $native = $major >= 16;

if (!$native && !$registry->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'pglogical'"))
{
	$registry->stop;
	plan skip_all => 'pglogical is not installed';
}

my %server;
my $conf = "max_connections = 40\nmax_worker_processes = 24\nmax_logical_replication_workers = 16\n"
  . "max_replication_slots = 20\nmax_wal_senders = 20\nwal_retrieve_retry_interval = '100ms'\n"
  . ($native ? '' : "shared_preload_libraries = 'pglogical, snowflake'\n")
  # newer minor releases load only what is named
  . ($registry->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'")
	? "output_plugin_libraries = 'pgoutput, pglogical_output'\n" : '');

sub new_server
{
	my ($name) = @_;

	$server{$name} = new_member($name, conninfo_of($registry), init => [ allows_streaming => 'logical' ], conf => $conf);
	$server{$name}->safe_psql('postgres', 'CREATE DATABASE app');
	# a second table, which the document does not have
	$server{$name}->safe_psql('app', 'CREATE EXTENSION snowflake;
		CREATE TABLE item (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), order_id bigint, amount integer'
		  . ($name eq 'pg3' ? ', public_id bigint DEFAULT snowflake_nextval())' : ')'));
	return $server{$name};
}

#
# The document
#
my $me = 'test/t/047_active_active.pl';
my (%block, %done);

foreach my $example (examples(read_document("$FindBin::RealBin/../../doc/active-active.md")))
{
	my ($name) = map { /^run by \Q$me\E, (.*)/ ? $1 : () } @{ $example->{markers} };

	$block{$name} = $example->{sql} if defined $name;
}

# Runs a block of the document: "-- on pg1 and pg2" says where.  Names of servers can be replaced,
# and the position that the document shows.  Returns what is printed.
sub run_block
{
	my ($name, %options) = @_;
	local $ENV{PGOPTIONS} = STATEMENTS_END;
	my $rename = $options{rename} // {};
	my $label = ($native ? 'native' : 'pglogical') . " $name";
	my (undef, @parts) = split /^-- on (.*)\n/m, $block{$label} // die "the document has no block \"$label\"";
	my $out = '';

	$done{$label} = 1;
	while (my ($where, $sql) = splice @parts, 0, 2)
	{
		s/(pg\d)/$rename->{$1} \/\/ $1/ge foreach $where, $sql;
		$sql =~ s/host=(pg\d)( dbname=app)(?: user=postgres)?/conninfo_of($server{$1}) . $2/ge;
		$sql =~ s/0\/1954E48/$options{position}/ if defined $options{position};
		foreach my $one (grep { !defined $options{only} || $_ eq $options{only} } split / and /, $where)
		{
			$out .= $server{$one}->safe_psql('app', $sql);
		}
	}
	return $out;
}

#
# Clients that insert into both tables, and change rows of their server
#
my %clients;
my @files;

sub start_inserts
{
	foreach my $name (@_)
	{
		$clients{$name} = start_clients($server{$name}, count => 2, database => 'app', sql => <<"EOS" . '--' . '.' x 1200);
INSERT INTO orders (customer) SELECT '$name' FROM generate_series(1, 5) RETURNING id;
INSERT INTO item (order_id, amount) SELECT max(id), 1 FROM orders WHERE customer LIKE '$name%' RETURNING id;
UPDATE orders SET customer = customer || '.' WHERE id = (SELECT max(id) FROM orders WHERE customer LIKE '$name%');
DO \$\$ BEGIN PERFORM pg_sleep(0.03); END \$\$;
EOS
	}
	$clients{$_}->wait_for(100) foreach @_;
}

# Returns the text of their errors.
sub stop_inserts
{
	my $errors = '';

	foreach my $name (@_)
	{
		my $running = delete $clients{$name};
		push @files, $running->stop;
		$errors .= $running->errors;
	}
	return $errors;
}

#
# Checks
#
# After a lost connection it can be three minutes until pglogical tries again.
sub try_again
{
	my ($name, $database) = @_;

	$server{$name}->safe_psql($database, q{SELECT pglogical.alter_subscription_enable(subscription_name, true)
		FROM pglogical.show_subscription_status() WHERE status = 'down'}) unless $native;
}

sub digest
{
	my ($name) = @_;

	try_again($name, 'app');
	return $server{$name}->safe_psql('app', q{
		SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM item) || ' rows ' ||
			(SELECT md5(string_agg(o::text, ',' ORDER BY id)) FROM orders AS o) || (SELECT md5(string_agg(i::text, ',' ORDER BY id)) FROM item AS i)});
}

# While nobody writes: all have the same rows in the end, and all that clients were told of.
sub check_same
{
	my ($label, @names) = @_;
	my $ids = join ',', read_ids(@files);
	my %digest;

	check_ids($label, @files);
	eval { poll('the same rows', sub {
				%digest = map { $_ => digest($_) } @names;
				return keys %{ { reverse %digest } } == 1;
		}) };
	is(join("\n", grep { $digest{$_} ne $digest{ $names[0] } } @names), '', "$label: all servers have the same rows: " . $digest{ $names[0] } =~ s/ rows.*//r)
	  or diag(explain(\%digest));
	is($server{ $names[-1] }->safe_psql('app', "SELECT count(*) FROM unnest('{$ids}'::bigint[]) AS i (id)
			WHERE NOT EXISTS (SELECT FROM orders WHERE id = i.id) AND NOT EXISTS (SELECT FROM item WHERE id = i.id)"), 0, "$label: no row is missing");
}

# What goes wrong where rows arrive is in the log and, where they are counted, among the errors and
# conflicts.  A connection that is lost or cannot be made is no fault of the rows.
my %offset;

sub faults
{
	my ($name, %options) = @_;
	my $node = $server{$name};
	# not those of our own sessions
	my @lines = grep { /(?:ERROR|FATAL|PANIC):  \w{5}: |CONFLICT:|conflict detected/ && !/ 047_active_active\.pl ERROR:/ }
	  split /\n/, log_since($node, $offset{$name} // 0);

	$offset{$name} = log_end($node);
	# lost connections: class 08, a server that starts or stops, also while one logs in, a slot that its last user has not left yet
	@lines = grep { !/(?:ERROR|FATAL):  (?:08\w{3}|57P0[123]|55006|57014: canceling authentication)/ } @lines;
	@lines = grep { !/(?:ERROR|FATAL):  XX000: (?:connection to other side has died|data stream ended|could not connect to the postgresql server)/ } @lines;
	@lines = grep { !/CONFLICT: remote UPDATE on relation snowflake\.(?:worker_node|node_number) .*tuple not found|relation "snowflake\.(?:worker_node|node_number)": conflict=update_missing/ } @lines
	  if $options{leases};
	return @lines unless $native;
	my @counts = grep { !$options{leases} || $_ ne 'confl_update_missing' } split /\n/, $node->safe_psql('postgres', q{
		SELECT attname FROM pg_attribute WHERE attrelid = 'pg_stat_subscription_stats'::regclass AND attname ~ '^confl_|_error_count$'});
	push @lines, split /\n/, $node->safe_psql('postgres', 'SELECT s FROM pg_stat_subscription_stats AS s WHERE 0 < ' . join ' + ', @counts);
	return @lines;
}

# Also lost connections are counted as errors.
sub forget_faults
{
	my ($name) = @_;

	$server{$name}->safe_psql('postgres', 'SELECT pg_stat_reset_subscription_stats(NULL)');
}

# With { leases => 1 }, updates of rows of leases and their numbers that are not there are none.
sub check_quiet
{
	my ($label, @names) = @_;
	my %options = ref $names[-1] ? %{ pop @names } : ();

	is(join("\n", map { my $name = $_; map { "$name: $_" } faults($name, %options) } @names), '', "$label: nothing failed where rows arrive");
}

#
# Two servers
#
# With pglogical the block before has waited.
sub wait_for_copy
{
	my ($name) = @_;

	poll('the copy', sub { run_block('copied', rename => { pg2 => $name }) eq '' }) if $native;
}

new_server($_) foreach qw(pg1 pg2);
run_block('tables');
$server{pg1}->safe_psql('app', "INSERT INTO orders (customer) SELECT 'early' FROM generate_series(1, 1000)");
run_block('two');
wait_for_copy('pg2');
start_inserts('pg1', 'pg2');
is(stop_inserts('pg1', 'pg2'), '', 'two servers: no error of a client');
check_same('two servers', 'pg1', 'pg2');
check_quiet('two servers', 'pg1', 'pg2');

# A column with ids, added to rows that are there, as the document says
$server{$_}->safe_psql('app', 'ALTER TABLE item ADD COLUMN public_id bigint') foreach 'pg1', 'pg2';
$server{$_}->safe_psql('app', 'ALTER TABLE item ALTER COLUMN public_id SET DEFAULT snowflake_nextval()') foreach 'pg1', 'pg2';
$server{pg1}->safe_psql('app', 'UPDATE item SET public_id = DEFAULT WHERE public_id IS NULL');
check_same('a new column', 'pg1', 'pg2');

#
# One crashes
#
start_inserts('pg1', 'pg2');
crash($server{pg2});
stop_inserts('pg2');
my $number = wait_for_number($server{pg1});
$clients{pg1}->wait_for(100);
$server{pg2}->start;
isnt(wait_for_number($server{pg2}), $number, 'a server crashes: it has another number than the other one');
start_inserts('pg2');
is(stop_inserts('pg1', 'pg2'), '', 'a server crashes: no error of the clients of the other one, nor later');
check_same('a server crashes', 'pg1', 'pg2');
forget_faults($_) foreach 'pg1', 'pg2';
check_quiet('a server crashes', 'pg1', 'pg2');

#
# The registry goes away and comes back
#
start_inserts('pg1', 'pg2');
$registry->stop('immediate');
wait_for_state($server{$_}, 'expired') foreach 'pg1', 'pg2';
$registry->start;
$clients{$_}->wait_for(100) foreach 'pg1', 'pg2';
is(stop_inserts('pg1', 'pg2'), '', 'the registry was away: no error of a client');
check_same('the registry was away', 'pg1', 'pg2');
check_quiet('the registry was away', 'pg1', 'pg2');

#
# A third server gets a copy of pg1, while clients write to the others
#
# Stops what pg1 takes from another server, and returns how far it has come.
sub stop_source
{
	my ($source, $new) = @_;
	my $rename = { pg2 => $source, pg3 => $new };

	run_block('stop', rename => $rename);
	return poll('the position', sub { run_block('position', rename => $rename) });
}

start_inserts('pg1', 'pg2');
new_server('pg3');
run_block('tables', rename => { pg1 => 'pg3' }, only => 'pg3');
my $position = stop_source('pg2', 'pg3');
$clients{$_}->wait_for(100) foreach 'pg1', 'pg2';
run_block('from there', position => $position);
$clients{$_}->wait_for(100) foreach 'pg1', 'pg2';
run_block('copy') if $native;
wait_for_copy('pg3');
$clients{$_}->wait_for(100) foreach 'pg1', 'pg2';
run_block('go on');
start_inserts('pg3');
is(stop_inserts('pg1', 'pg2', 'pg3'), '', 'a third server: no error of a client');
check_same('a third server', 'pg1', 'pg2', 'pg3');
check_quiet('a third server', 'pg1', 'pg2', 'pg3');

#
# A standby becomes a fourth one
#
# A running standby that has replayed all there is.
sub new_standby
{
	my ($primary, $name, %settings) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	set_conf($standby, %settings);
	$standby->start;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	return $standby;
}

# As the document says.
sub convert_standby
{
	my ($name, $primary, $database) = @_;
	my $standby = $server{$name};

	$standby->stop;
	$standby->command_ok([ 'pg_createsubscriber', '-D', $standby->data_dir, '-P', $server{$primary}->connstr($database), '-d', $database,
			'--socketdir', $standby->host, '--subscriber-port', $standby->port,
			"--subscription=${name}_from_$primary", "--replication-slot=${name}_from_$primary", "--publication=for_$name" ],
		"$name: pg_createsubscriber");
	$standby->start;
}

SKIP:
{
	skip 'pg_createsubscriber is in PostgreSQL 17 and newer', 9 if $major < 17;
	my @others = qw(pg2 pg3);

	$server{pg4} = new_standby($server{pg1}, 'pg4');
	start_inserts('pg1', @others);
	my %position = map { $_ => stop_source($_, 'pg4') } @others;
	$clients{$_}->wait_for(100) foreach @others;
	convert_standby('pg4', 'pg1', 'app');
	run_block('from there', rename => { pg2 => $_, pg3 => 'pg4' }, position => $position{$_}) foreach @others;
	run_block('convert', rename => { pg3 => 'pg4' });
	# the second of them has the subscription of pg1 already
	run_block('go on', rename => { pg3 => 'pg4' });
	$server{pg1}->safe_psql('app', 'ALTER SUBSCRIPTION pg1_from_pg3 ENABLE');
	$server{pg4}->safe_psql('app', 'ALTER SUBSCRIPTION pg4_from_pg3 ENABLE');
	$server{pg3}->safe_psql('app', "CREATE SUBSCRIPTION pg3_from_pg4 CONNECTION '" . conninfo_of($server{pg4}) . " dbname=app user=replicator'
		PUBLICATION app WITH (origin = none, copy_data = false)");
	start_inserts('pg4');
	is(stop_inserts('pg1', 'pg4', @others), '', 'a fourth server: no error of a client');
	$server{pg1}->safe_psql('app', 'DROP PUBLICATION for_pg4');
	check_same('a fourth server', 'pg1', 'pg4', @others);
	check_quiet('a fourth server', 'pg1', 'pg4', @others);
	is($server{pg4}->safe_psql('app', 'SELECT string_agg(subname, $$ $$ ORDER BY subname) FROM pg_subscription'),
		'pg4_from_pg1 pg4_from_pg2 pg4_from_pg3', 'a fourth server: it has no subscription of pg1');
	is(scalar keys %{ { map { wait_for_number($server{$_}) => 1 } keys %server } }, 4, 'four numbers');
}

is(join(', ', grep { !$done{$_} && !($native ? /^pglogical / : /^native /) && ($_ ne 'native convert' || $major >= 17) } sort keys %block), '',
	'all blocks of the document were run');
$_->stop foreach values %server;
%server = ();

#
# All tables, those of the schema snowflake, too, in the database postgres.  One of the two servers
# is the registry of the other one, which has leases from its own tables, too.
#
use constant ORDERS => 'CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text)';
use constant RECORD => 'SELECT r.incarnation, r.created_at, r.generation, c.uses, c.incarnation FROM snowflake.registry AS r, snowflake.cluster AS c';
use constant TOKENS => 'SELECT token FROM snowflake.worker_node ORDER BY token';
use constant NUMBERS => 'SELECT n FROM snowflake.node_number AS n ORDER BY n.node_number';

sub new_plain
{
	my ($name) = @_;

	$server{$name} = new_node($name, init => [ allows_streaming => 'logical' ],
		conf => "$conf\nsnowflake.worker_id = 'auto'\nsnowflake.lease_duration = '3s'\n");
	$server{$name}->safe_psql('postgres', ORDERS);
	$server{$name}->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES') if $native;
	issue_ids($server{$name}, 10);
	return $server{$name};
}

sub replicate_all
{
	my ($from, $to, $copy) = @_;
	my $conninfo = conninfo_of($server{$from}) . ' dbname=postgres';
	local $ENV{PGOPTIONS} = STATEMENTS_END;

	if ($native)
	{
		$server{$to}->safe_psql('postgres', "CREATE SUBSCRIPTION ${to}_from_$from CONNECTION '$conninfo' PUBLICATION everything
			WITH (origin = none, copy_data = $copy)");
		$server{$to}->wait_for_subscription_sync;
	}
	else
	{
		$server{$to}->safe_psql('postgres', "SELECT pglogical.create_subscription('${to}_from_$from', '$conninfo',
			synchronize_data := $copy, forward_origins := '{}'); SELECT pglogical.wait_for_subscription_sync_complete('${to}_from_$from')");
	}
}

# All rows of the application, that is.
sub check_orders
{
	my ($label, @names) = @_;
	my $digest = sub
	{
		try_again($_[0], 'postgres');
		return $server{ $_[0] }->safe_psql('postgres', 'SELECT count(*) || md5(string_agg(id::text, $$ $$ ORDER BY id)) FROM orders');
	};

	$server{$_}->safe_psql('postgres', "INSERT INTO orders (customer) SELECT '$_' FROM generate_series(1, 100)") foreach @names;
	ok(poll('the same rows', sub { keys %{ { map { $digest->($_) => 1 } @names } } == 1 }),
		"$label: they have the same rows");
}

new_plain($_) foreach qw(both other);
move_registry($server{other}, $server{both});
set_and_reload($server{other}, 'snowflake.registry' => conninfo_of($server{both}));
poll('the registry', sub { $server{other}->safe_psql('postgres', 'SELECT uses FROM snowflake.cluster') eq 'another' });
issue_ids($server{other}, 10);
my %record = map { $_ => $server{$_}->safe_psql('postgres', RECORD) } keys %server;
my $tokens = $server{other}->safe_psql('postgres', TOKENS);
my $numbers = $server{other}->safe_psql('postgres', NUMBERS);

unless ($native)
{
	$server{$_}->safe_psql('postgres', "CREATE EXTENSION pglogical;
		SELECT pglogical.create_node('$_', '" . conninfo_of($server{$_}) . " dbname=postgres');
		SELECT pglogical.replication_set_add_all_tables('default', '{public,snowflake}')") foreach keys %server;
}
replicate_all('other', 'both', 'true');
replicate_all('both', 'other', 'true');
check_orders('all tables', 'both', 'other');
# leases that are renewed, that end, and that begin
foreach my $name (keys %server)
{
	my $renewed = registry_row($server{both}, $server{$name}, 'renewed_at');

	poll('a renewal', sub { issue_ids($server{$name}, 1); registry_row($server{both}, $server{$name}, 'renewed_at') ne $renewed });
	$server{$name}->restart;
	wait_for_number($server{$name});
}
check_orders('all tables, restarted', 'both', 'other');
forget_faults($_) foreach keys %server;
check_orders('all tables, later', 'both', 'other');
is($server{$_}->safe_psql('postgres', RECORD), $record{$_}, "all tables: $_ keeps its record") foreach keys %server;
is($server{other}->safe_psql('postgres', TOKENS), $tokens, 'all tables: leases that the registry granted do not come to the other server');
is($server{other}->safe_psql('postgres', NUMBERS), $numbers, 'all tables: nor do ends of their numbers');
is($server{both}->safe_psql('postgres', "SELECT count(*) FROM snowflake.worker_node WHERE token = ANY ('{" . $tokens =~ s/\n/,/gr . "}')"), 0,
	'all tables: nor do its own leases come to the registry');
check_quiet('all tables', keys %server, { leases => 1 });

SKIP:
{
	skip 'pg_createsubscriber is in PostgreSQL 17 and newer', 9 if $major < 17;

	# A standby of the registry is converted.
	$server{heir} = new_standby($server{both}, 'heir', 'snowflake.registry' => conninfo_of($server{both}));
	convert_standby('heir', 'both', 'postgres');
	is(scalar keys %{ { map { wait_for_number($_) => 1 } values %server } }, 3, 'a standby of the registry: three numbers');
	$_->stop foreach values %server;

	# A server with a standby, and no registry
	%server = ();
	@files = ();
	new_plain('one');
	my @clients = start_clients($server{one}, count => 2, sql => GENTLE);
	$server{two} = new_standby($server{one}, 'two');
	convert_standby('two', 'one', 'postgres');
	$server{two}->safe_psql('postgres', 'ALTER SUBSCRIPTION two_from_one SET (origin = none)');
	replicate_all('two', 'one', 'false');
	push @clients, start_clients($server{two}, count => 2, sql => GENTLE);
	$_->wait_for(2000) foreach @clients;
	crash($server{one});
	$server{one}->start;
	$clients[0]->stop;
	push @clients, start_clients($server{one}, count => 2, sql => GENTLE);
	$server{two}->safe_psql('postgres', 'SELECT snowflake_release()');
	$_->wait_for(2000) foreach @clients[ 1, 2 ];
	my @bits = map { my @ids = read_ids($_->stop); join(',', sort keys %{ { map { id_node($_) % 2 => 1 } @ids } }) } @clients;
	like("@bits", qr/^(?:0 1 0|1 0 1)$/, 'no registry: the numbers of one are even, also after its crash, those of the other odd');
	check_ids('no registry', split_ids(12, 1023, map { $_->stop } @clients));
	check_orders('no registry', 'one', 'two');
	forget_faults($_) foreach keys %server;
	check_orders('no registry, later', 'one', 'two');
	check_quiet('no registry', 'one', 'two', { leases => 1 });
}

$_->stop foreach values %server, $registry;
done_testing();
