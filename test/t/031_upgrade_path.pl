# 031_upgrade_path.pl
#	  ALTER EXTENSION snowflake UPDATE: from every version that was released, the extension
#	  becomes what CREATE EXTENSION makes of the current version, object by object, and what
#	  was in its tables stays.  (013_upgrade.pl is about pg_upgrade: another major of the
#	  server, the same extension.)
#
#	  Install scripts of released versions are in sql/released, where a release puts them
#	  (doc/releasing.md; test/package/versions sees to it that no script is missing or changed).  They are
#	  not installed: this test makes a copy of the installation that has them.
#
#	  That the comparison finds something is shown with versions that never were.  0.8 and
#	  0.9 are the first parts of today's install script, and their update scripts are the other
#	  parts.  Each of the versions 0.8-NAME is updated by a script that leaves out or does
#	  one thing too much, and that thing must be found, and nothing else.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeMembers;
use File::Basename qw(basename);
use File::Copy qw(copy);

my $top = "$FindBin::RealBin/../..";
my $tempdir = PostgreSQL::Test::Utils::tempdir('upgrade');
my $sharedir = `pg_config --sharedir` =~ s/\n//r;
my ($current) = slurp_file("$sharedir/extension/snowflake.control") =~ /^default_version = '(.*)'/m;
my $built = slurp_file("$sharedir/extension/snowflake--$current.sql");

my $extensions = use_copied_installation();

sub write_script
{
	my ($name, @texts) = @_;
	my $file = "$extensions/snowflake--$name.sql";

	die "$file is there" if -e $file;
	open my $out, '>', $file or die "$name: $!";
	print $out @texts;
	close $out or die "$name: $!";
}

# The parts of the install script: which files, and in which order, is as it was built.
sub parts
{
	my %at;

	foreach my $file (glob "$top/src/sql/*.sql")
	{
		my $text = slurp_file($file) =~ s/\@EXTVERSION\@/$current/gr;
		my $position = index $built, $text;
		die "$file is not in the install script" if $position < 0;
		$at{ basename($file, '.sql') } = [ $position, $text ];
	}
	my @names = sort { $at{$a}[0] <=> $at{$b}[0] } keys %at;
	die 'the install script is not made of src/sql' if join('', map { $at{$_}[1] } @names) ne $built;
	return map { { name => $_, text => $at{$_}[1] } } @names;
}

# (all before a part, it and all after it)
sub split_parts
{
	my ($name, @parts) = @_;
	my ($n) = grep { $parts[$_]{name} eq $name } 0 .. $#parts;

	return map { join '', map { $_->{text} } @$_ } [ @parts[ 0 .. $n - 1 ] ], [ @parts[ $n .. $#parts ] ];
}

my $quit = qq{\\echo Use "ALTER EXTENSION snowflake UPDATE" to load this file. \\quit\n};
my ($first, $rest) = split_parts('worker_node', parts());
my ($second, $last) = split_parts('convert_checks', parts());
my $middle = substr $second, length $first;

write_script('0.8', $first);
write_script('0.9', $first, $middle);
write_script('0.8--0.9', $quit, $middle);
write_script("0.9--$current", $quit, $last);
foreach my $script (grep { basename($_) ne "snowflake--$current.sql" } glob "$top/sql/released/snowflake--*.sql")
{
	copy($script, $extensions) or die "$script: $!";
}

#
# From every version to the current one
#

my $node = new_node('main');
my $number = 0;
my $fresh;

# All versions that can be created, and how each gets to the current one
sub paths
{
	return map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', <<EOF);
SELECT v.version, p.path FROM pg_available_extension_versions AS v
JOIN pg_extension_update_paths('snowflake') AS p ON p.source = v.version AND p.target = '$current'
WHERE v.name = 'snowflake' AND v.version <> '$current' ORDER BY v.version
EOF
}

sub create_version
{
	my ($database, $version) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION snowflake VERSION '$version'");
}

# What is different after the update, or what the update says.
sub update_differences
{
	my ($version) = @_;
	my $database = 'update_' . $number++;

	create_version($database, $version);
	my $error = sql_error($node, 'ALTER EXTENSION snowflake UPDATE', $database);
	my @lines = $error =~ /ERROR/ ? $error : differences($fresh, members($node, $database));
	$node->safe_psql('postgres', "DROP DATABASE $database");
	return @lines;
}

# Not in the database postgres, where the lease worker writes.
create_version('fresh', $current);
$fresh = members($node, 'fresh');
cmp_ok(scalar(grep { /^function / } keys %$fresh), '>', 50, 'the extension has functions');
cmp_ok(scalar(grep { /^column / } keys %$fresh), '>', 30, 'and columns');
is(scalar(grep { /^dumped / } keys %$fresh), 2, 'and tables that are dumped');

create_version('other', $current);
is_deeply([ differences($fresh, members($node, 'other')) ], [], 'created twice it is the same');
$node->safe_psql('postgres', 'DROP DATABASE other');

my @paths = paths();
is_deeply([ map { $_->[0] } grep { $_->[0] !~ /^0\.[89]$/ } @paths ],
	[ grep { $_ ne $current } map { /snowflake--(.*)\.sql$/ } sort glob "$top/sql/released/*.sql" ],
	'all released versions can be created');
foreach (@paths)
{
	my ($version, $path) = @$_;

	isnt($path, '', "there is a path from $version") or next;
	is_deeply([ update_differences($version) ], [], "by $path the extension becomes what is created");
}
is_deeply([ grep { $_->[0] eq '0.8' } @paths ], [ [ '0.8', "0.8--0.9--$current" ] ], 'one of them has two steps');

# A release is what it is: the current version's script does not change once it is out.
sub changed_since_release
{
	my ($released) = @_;

	return -e "$released/snowflake--$current.sql" && slurp_file("$released/snowflake--$current.sql") ne $built;
}
ok(!changed_since_release("$top/sql/released"), "the install script of $current is not out, or as it was released");
open my $out, '>', "$tempdir/snowflake--$current.sql" or die $!;
print $out "$built\n-- and one line more\n";
close $out;
ok(changed_since_release($tempdir), 'a change would be found');

#
# Updates that are wrong
#

my %wrong = (
	# what an update script forgets
	'function' => [ sub { s/^CREATE FUNCTION snowflake_release\(\).*?^REVOKE EXECUTE ON FUNCTION snowflake_release\(\) FROM PUBLIC;$//ms },
		qr/^missing: \w+(?: as created| )*.*snowflake_release/ ],
	'comment' => [ sub { s/^COMMENT ON FUNCTION snowflake_release\(.*?;$//ms },
		qr/^missing: comment .*snowflake_release/ ],
	'column-comment' => [ sub { s/^COMMENT ON COLUMN snowflake\.worker_node\.token IS.*?;$//ms },
		qr/^missing: comment table column snowflake\.worker_node\.token/ ],
	'grant' => [ sub { s/^GRANT EXECUTE ON FUNCTION snowflake_backfill_id.*?;$//ms },
		qr/^(?:differs: function|missing: rights as created function) .*snowflake_backfill_id/ ],
	'revoke' => [ sub { s/^REVOKE EXECUTE ON FUNCTION snowflake_release.*?;$//ms },
		qr/^(?:differs: function|missing: rights as created function) .*snowflake_release/ ],
	'table-grant' => [ sub { s/^(GRANT SELECT ON .*), snowflake\.cluster TO pg_database_owner;$/$1 TO pg_database_owner;/m },
		qr/^(?:differs: relation|missing: rights as created table) snowflake\.cluster/ ],
	'config' => [ sub { s/^SELECT pg_catalog\.pg_extension_config_dump\('snowflake\.cluster', ''\);$//m },
		qr/^missing: dumped snowflake\.cluster$/ ],
	'setting' => [ sub { s/(FUNCTION snowflake\.release_lease\(.*?) SET timezone = 'UTC'/$1/s },
		qr/^differs: function snowflake\.release_lease/ ],
	'definer' => [ sub { s/(FUNCTION snowflake\.release_lease\(.*?) SECURITY DEFINER/$1/s },
		qr/^differs: function snowflake\.release_lease/ ],
	'volatility' => [ sub { s/(FUNCTION snowflake\.field_bits\(.*?) IMMUTABLE/$1/s },
		qr/^differs: function snowflake\.field_bits/ ],
	'parallel' => [ sub { s/(FUNCTION snowflake_release\(.*?) PARALLEL RESTRICTED/$1/s },
		qr/^differs: function public\.snowflake_release/ ],
	'strict' => [ sub { s/(FUNCTION snowflake_nextval\(\).*?) STRICT/$1/s },
		qr/^differs: function public\.snowflake_nextval\(\)/ ],
	'body' => [ sub { s/the table snowflake\.registry has no row/the table has no row/ }, qr/^differs: function snowflake\.lock_registry/ ],
	'not-null' => [ sub { s/^(\tstart uuid) NOT NULL/$1/m },
		# a constraint, too, since PostgreSQL 18
		qr/^differs: column snowflake\.worker_node\.start|^missing: constraint snowflake\.worker_node\.worker_node_start_not_null/ ],
	'constraint' => [ sub { s/ CHECK \(uses IN \('own', 'another'\)\)// },
		qr/^missing: constraint snowflake\.cluster\.cluster_uses_check/ ],
	'trigger' => [ sub { s/,\n\tENABLE ALWAYS TRIGGER only_one;/;/ },
		qr/^differs: trigger snowflake\.cluster\.only_one/ ],
	# what it does besides; also to what the old version had
	'condition' => [ "SELECT pg_catalog.pg_extension_config_dump('snowflake.cluster', 'WHERE false')",
		qr/^differs: dumped snowflake\.cluster/ ],
	'argument-name' => [ q{DROP FUNCTION snowflake_timestamp(bigint, text);
		CREATE FUNCTION snowflake_timestamp(one bigint, layout text) RETURNS timestamptz
		AS 'MODULE_PATHNAME', 'snowflake_timestamp_layout' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE},
		qr/^(?:differs: function|missing: (?:comment|rights as created) function) public\.snowflake_timestamp\(/ ],
	'cost' => [ "ALTER FUNCTION snowflake_nextval() COST 7", qr/^differs: function public\.snowflake_nextval\(\)/ ],
	'rows' => [ "ALTER FUNCTION snowflake_nextval_batch(integer) ROWS 7",
		qr/^differs: function public\.snowflake_nextval_batch\(integer\)/ ],
	'dependency' => [ "ALTER FUNCTION snowflake_nextval() DEPENDS ON EXTENSION plpgsql",
		qr/^additional: dependency function public\.snowflake_nextval\(\) on extension plpgsql/ ],
	'schema' => [ 'REVOKE USAGE ON SCHEMA snowflake FROM PUBLIC',
		qr/^differs: (?:schema snowflake|rights as created schema snowflake)/ ],
	'view' => [ 'CREATE OR REPLACE VIEW pg_stat_snowflake AS SELECT * FROM pg_stat_snowflake() WHERE true',
		qr/^differs: rule public\.pg_stat_snowflake/ ],
	'index' => [ 'DROP INDEX snowflake.worker_node_end', qr/^missing: index snowflake\.worker_node_end/ ],
	'default' => [ "ALTER TABLE snowflake.registry ALTER starts_at SET DEFAULT 'infinity'",
		qr/^differs: column snowflake\.registry\.starts_at/ ],
	'column' => [ 'ALTER TABLE snowflake.registry ADD more text', qr/^additional: column snowflake\.registry\.more/ ],
	'rights-as-created' => [ "UPDATE pg_catalog.pg_init_privs SET initprivs = initprivs[1:1]
		WHERE objoid = 'snowflake.registry'::regclass",
		qr/^differs: rights as created table snowflake\.registry/ ],
	'policy' => [ 'CREATE POLICY one_more ON snowflake.registry USING (true)',
		qr/^additional: policy snowflake\.registry\.one_more/ ],
	'row-security' => [ 'ALTER TABLE snowflake.registry ENABLE ROW LEVEL SECURITY',
		qr/^differs: relation snowflake\.registry/ ],
	'row' => [ 'DELETE FROM snowflake.registry', qr/^differs: rows snowflake\.registry/ ],
	'addition' => [ "CREATE FUNCTION snowflake.one_more() RETURNS integer LANGUAGE sql RETURN 1",
		qr/^additional: .*one_more/ ],
	'type' => [ "CREATE TYPE snowflake.one_more AS ENUM ('a')", qr/^additional: .*one_more/ ],
	'unknown-kind' => [ "CREATE OPERATOR snowflake.<<<< (FUNCTION = int4eq, LEFTARG = integer, RIGHTARG = integer)", undef ],
	'failing' => [ 'SELECT 1/0', qr/^ERROR:  22012: / ]);

foreach my $name (sort keys %wrong)
{
	my ($break, $expected) = @{ $wrong{$name} };
	my $script = $rest;

	if (ref $break)
	{
		$break->() || die "$name: nothing to change" for $script;
	}
	else
	{
		$script .= "$break;\n";
	}
	write_script("0.8-$name", $first);
	write_script("0.8-$name--$current", $quit, $script);
	my @lines = eval { update_differences("0.8-$name") };
	if (!defined $expected)
	{
		like($@, qr/does not know these kinds of objects: operator/, "wrong update: $name");
		next;
	}
	die $@ if $@;
	my @others = grep { $_ !~ $expected } @lines;
	ok(@lines > 0 && @others == 0, "wrong update: $name") or diag(join "\n", "found:", @lines);
}

write_script('0.7', $first);
is_deeply([ grep { $_->[1] eq '' } paths() ], [ [ '0.7', '' ] ], 'a version without an update script is found');

#
# What was there stays, and ids go on in sessions during the update
#

my $data = new_node('data', start => 0, conf => "snowflake.extra_layouts = 'js53'\n");
$data->start;
$data->safe_psql('postgres', <<'EOF');
CREATE EXTENSION snowflake VERSION '0.9';
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), note text);
CREATE TABLE page (id bigint PRIMARY KEY DEFAULT snowflake_nextval('js53'), note text);
CREATE TABLE old_order (id bigint PRIMARY KEY, note text);
INSERT INTO orders (note) SELECT 'before' FROM generate_series(1, 1000);
INSERT INTO page (note) SELECT 'before' FROM generate_series(1, 1000);
EOF

# Old rows get ids of one part of three
sub backfill
{
	my ($part) = @_;

	return join "\n", map { "INSERT INTO old_order SELECT snowflake_backfill_id('$_->[0]', '$_->[1]', $part, 3) OVER (), 'part $part'
		FROM generate_series(1, 20);" } [ '2020-07-02 17:00:17Z', 'twitter' ], [ '2024-07-02 17:00:17Z', 'twitter, epoch 2024-01-01T00:00:00Z' ];
}
$data->safe_psql('postgres', backfill(0));

# All rows of all tables of the extension, but what renewals write
sub contents
{
	my $rows = "SELECT to_jsonb(t) - '{renewed_at,leased_until,last_call}'::text[] FROM %s AS t ORDER BY 1";
	my @tables = split /\n/, $data->safe_psql('postgres', <<'EOF');
SELECT c.oid::regclass FROM pg_class AS c JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE d.deptype = 'e' AND c.relkind = 'r' AND e.extname = 'snowflake' ORDER BY 1
EOF
	return { map { $_ => $data->safe_psql('postgres', sprintf($rows, $_)) } @tables };
}

my @phases = ([ write_ids(issue_ids($data, 1000)) ]);
my $before = contents();
is(scalar(grep { $_ ne '' } values %$before), 3, 'tables of the extension have rows');
my $clients = start_clients($data);
$clients->wait_for(1000);
$data->safe_psql('postgres', 'ALTER EXTENSION snowflake UPDATE');
$clients->wait_for(1000);
is($clients->errors, '', 'sessions get ids during the update');
push @phases, [ $clients->stop ];
push @phases, [ write_ids(issue_ids($data, 1000, 1)) ];

is($data->safe_psql('postgres', "SELECT extversion FROM pg_extension WHERE extname = 'snowflake'"), $current, 'the extension is updated');
my $after = contents();
is($after->{$_}, $before->{$_}, "rows of $_ are as before") foreach sort keys %$before;

my $insert = <<'EOF';
INSERT INTO orders (note) SELECT 'after' FROM generate_series(1, 1000);
INSERT INTO page (note) SELECT 'after' FROM generate_series(1, 1000);
EOF
# A primary key would refuse an id that is there
is(sql_error($data, $insert . backfill(1)), '', 'old rows get ids that no row has');
is($data->safe_psql('postgres', "SELECT min(id) FILTER (WHERE note = 'after') > max(id) FILTER (WHERE note = 'before') FROM $_"), 't',
	"$_: new ids are greater") foreach qw(orders page);
$data->restart;
push @phases, [ write_ids(issue_ids($data, 1000)) ];
is(sql_error($data, $insert . backfill(2)), '', 'and after a restart');
check_phases('before, during, after the update, after a restart', @phases);
$_->stop foreach $node, $data;

done_testing();
