# 031_upgrade_path.pl
#	  ALTER EXTENSION UPDATE of snowflake and snowflake_registry: from every version that was
#	  released, an extension becomes what CREATE EXTENSION makes of the current version, object
#	  by object, and what was in its tables stays.  (013_upgrade.pl is about pg_upgrade: another
#	  major of the server, the same extension.)
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
use SnowflakeRegistry;
use File::Basename qw(basename);
use File::Copy qw(copy);

my $top = "$FindBin::RealBin/../..";
my $tempdir = PostgreSQL::Test::Utils::tempdir('upgrade');
my $sharedir = `pg_config --sharedir` =~ s/\n//r;
my ($current) = slurp_file("$sharedir/extension/snowflake.control") =~ /^default_version = '(.*)'/m;
my %folder = (snowflake => 'src/sql/{snowflake,tools}', snowflake_registry => 'src/sql/registry');
my %built = map { $_ => slurp_file("$sharedir/extension/$_--$current.sql") } keys %folder;

my $extensions = use_copied_installation();

sub write_script
{
	my ($extension, $name, @texts) = @_;
	my $file = "$extensions/$extension--$name.sql";

	die "$file is there" if -e $file;
	open my $out, '>', $file or die "$name: $!";
	print $out @texts;
	close $out or die "$name: $!";
}

# The parts of the install script: which files, and in which order, is as it was built.
sub parts
{
	my ($extension) = @_;
	my $built = $built{$extension};
	my %at;

	foreach my $file (grep { !m{/managed(?:_begin)?\.sql$} } glob "$top/$folder{$extension}/*.sql")
	{
		my $text = slurp_file($file) =~ s/\@EXTVERSION\@/$current/gr;
		my $position = index $built, $text;
		die "$file is not in the install script" if $position < 0;
		$at{ basename($file, '.sql') } = [ $position, $text ];
	}
	my @names = sort { $at{$a}[0] <=> $at{$b}[0] } keys %at;
	die "the install script is not made of $folder{$extension}" if join('', map { $at{$_}[1] } @names) ne $built;
	return map { { name => $_, text => $at{$_}[1] } } @names;
}

# (all before a part, it and all after it)
sub split_parts
{
	my ($name, @parts) = @_;
	my ($n) = grep { $parts[$_]{name} eq $name } 0 .. $#parts;

	return map { join '', map { $_->{text} } @$_ } [ @parts[ 0 .. $n - 1 ] ], [ @parts[ $n .. $#parts ] ];
}

my %quit = map { $_ => qq{\\echo Use "ALTER EXTENSION $_ UPDATE" to load this file. \\quit\n} } keys %folder;
my (%first, %rest);

# 0.8 ends before the one part, 0.9 before the other.
sub write_versions
{
	my ($extension, $second_part, $third_part) = @_;
	my ($first, $rest) = split_parts($second_part, parts($extension));
	my ($second, $last) = split_parts($third_part, parts($extension));
	my $middle = substr $second, length $first;

	write_script($extension, '0.8', $first);
	write_script($extension, '0.9', $first, $middle);
	write_script($extension, '0.8--0.9', $quit{$extension}, $middle);
	write_script($extension, "0.9--$current", $quit{$extension}, $last);
	foreach my $script (grep { basename($_) ne "$extension--$current.sql" } glob "$top/sql/released/$extension--*.sql")
	{
		copy($script, $extensions) or die "$script: $!";
	}
	($first{$extension}, $rest{$extension}) = ($first, $rest);
}

write_versions('snowflake', 'stats', 'convert_checks');
write_versions('snowflake_registry', 'tables', 'orders');

#
# From every version to the current one
#

# Not in the database postgres, where the lease worker writes.
my $node = new_node('main');
my $number = 0;
my %fresh;

$node->safe_psql('template1', slurp_file("$top/test/elsewhere.sql"));

# All versions that can be created, and how each gets to the current one
sub paths
{
	my ($extension) = @_;

	return map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', <<EOF);
SELECT v.version, p.path FROM pg_available_extension_versions AS v
JOIN pg_extension_update_paths('$extension') AS p ON p.source = v.version AND p.target = '$current'
WHERE v.name = '$extension' AND v.version <> '$current' ORDER BY v.version
EOF
}

sub create_version
{
	my ($extension, $database, $version) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION $extension VERSION '$version'");
}

# What is different after the update, or what the update says.
sub update_differences
{
	my ($extension, $version) = @_;
	my $database = 'update_' . $number++;

	create_version($extension, $database, $version);
	my $error = sql_error($node, "ALTER EXTENSION $extension UPDATE", $database);
	my @lines = $error =~ /ERROR/ ? $error : differences($fresh{$extension}, members($node, $database, $extension));
	$node->safe_psql('postgres', "DROP DATABASE $database");
	return @lines;
}

sub check_paths
{
	my ($extension, %least) = @_;

	create_version($extension, "fresh_$extension", $current);
	my $fresh = $fresh{$extension} = members($node, "fresh_$extension", $extension);
	foreach my $kind (sort keys %least)
	{
		cmp_ok(scalar(grep { /^$kind / } keys %$fresh), '>=', $least{$kind}, "$extension: members of kind $kind");
	}

	create_version($extension, "other_$extension", $current);
	is_deeply([ differences($fresh, members($node, "other_$extension", $extension)) ], [], "$extension: created twice it is the same");
	$node->safe_psql('postgres', "DROP DATABASE other_$extension");

	my @paths = paths($extension);
	is_deeply([ map { $_->[0] } grep { $_->[0] !~ /^0\.[89]$/ } @paths ],
		[ grep { $_ ne $current } map { /\Q$extension\E--(.*)\.sql$/ } sort glob "$top/sql/released/$extension--*.sql" ],
		"$extension: all released versions can be created");
	foreach (@paths)
	{
		my ($version, $path) = @$_;

		isnt($path, '', "$extension: there is a path from $version") or next;
		is_deeply([ update_differences($extension, $version) ], [], "$extension: by $path it becomes what is created");
	}
	is_deeply([ grep { $_->[0] eq '0.8' } @paths ], [ [ '0.8', "0.8--0.9--$current" ] ], "$extension: one of them has two steps");
}

check_paths('snowflake', function => 50, column => 20, schema => 1);
is(scalar(grep { /^(?:dumped|rows) / } keys %{ $fresh{snowflake} }), 0, 'snowflake: no tables');
check_paths('snowflake_registry', function => 40, column => 40, dumped => 3, rows => 5, trigger => 12);

# A release is what it is: the current version's script does not change once it is out.
sub changed_since_release
{
	my ($released, $extension) = @_;
	my $file = "$released/$extension--$current.sql";

	return -e $file && slurp_file($file) ne $built{$extension};
}
foreach my $extension (sort keys %folder)
{
	ok(!changed_since_release("$top/sql/released", $extension), "$extension: the install script of $current is not out, or as it was released");
	append_to_file("$tempdir/$extension--$current.sql", "$built{$extension}\n-- and one line more\n");
	ok(changed_since_release($tempdir, $extension), "$extension: a change would be found");
}

#
# Updates that are wrong
#

my %wrong_snowflake = (
	# what an update script forgets
	'function' => [ sub { s/^CREATE FUNCTION snowflake_release\(\).*?^REVOKE EXECUTE ON FUNCTION snowflake_release\(\) FROM PUBLIC;$//ms },
		qr/^missing: \w+(?: as created| )*.*snowflake_release/ ],
	'comment' => [ sub { s/^COMMENT ON FUNCTION snowflake_release\(.*?;$//ms },
		qr/^missing: comment .*snowflake_release/ ],
	'grant' => [ sub { s/^\tsnowflake_backfill_id.*?\),\n//m },
		qr/^(?:differs: function|missing: rights as created function) .*snowflake_backfill_id/ ],
	'revoke' => [ sub { s/^REVOKE EXECUTE ON FUNCTION snowflake_release.*?;$//ms },
		qr/^(?:differs: function|missing: rights as created function) .*snowflake_release/ ],
	'parallel' => [ sub { s/(FUNCTION snowflake_release\(.*?) PARALLEL RESTRICTED/$1/s },
		qr/^differs: function public\.snowflake_release/ ],
	'strict' => [ sub { s/(FUNCTION pg_stat_snowflake_reset\(\).*?) STRICT/$1/s },
		qr/^differs: function public\.pg_stat_snowflake_reset\(\)/ ],
	# what it does besides; also to what the old version had
	'argument-name' => [ q{DROP FUNCTION snowflake_timestamp(bigint, text);
		CREATE FUNCTION snowflake_timestamp(one bigint, layout text) RETURNS timestamptz
		AS 'MODULE_PATHNAME', 'snowflake_timestamp' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE},
		qr/^(?:differs: function|missing: (?:comment|rights as created) function) public\.snowflake_timestamp\(/ ],
	'cost' => [ "ALTER FUNCTION snowflake_nextval() COST 7", qr/^differs: function public\.snowflake_nextval\(\)/ ],
	'rows' => [ "ALTER FUNCTION snowflake_nextval_batch(integer) ROWS 7",
		qr/^differs: function public\.snowflake_nextval_batch\(integer\)/ ],
	'dependency' => [ "ALTER FUNCTION snowflake_nextval() DEPENDS ON EXTENSION plpgsql",
		qr/^additional: dependency function public\.snowflake_nextval\(\) on extension plpgsql/ ],
	'schema' => [ 'REVOKE USAGE ON SCHEMA snowflake_internal FROM PUBLIC',
		qr/^differs: (?:schema snowflake_internal|rights as created schema snowflake_internal)/ ],
	'view' => [ 'CREATE OR REPLACE VIEW pg_stat_snowflake AS SELECT * FROM pg_stat_snowflake() WHERE true',
		qr/^differs: rule public\.pg_stat_snowflake/ ],
	'unknown-kind' => [ "CREATE OPERATOR snowflake_internal.<<<< (FUNCTION = int4eq, LEFTARG = integer, RIGHTARG = integer)", undef ],
	'failing' => [ 'SELECT 1/0', qr/^ERROR:  22012: / ]);

my %wrong_registry = (
	'column-comment' => [ sub { s/^COMMENT ON COLUMN snowflake\.worker_node\.token IS.*?;$//ms },
		qr/^missing: comment table column snowflake\.worker_node\.token/ ],
	'config' => [ sub { s/^SELECT pg_catalog\.pg_extension_config_dump\('snowflake\.cluster', ''\);$//m },
		qr/^missing: dumped snowflake\.cluster$/ ],
	'setting' => [ sub { s/(FUNCTION snowflake\.release_lease\(.*?) SET search_path = pg_catalog, pg_temp/$1/s },
		qr/^differs: function snowflake\.release_lease/ ],
	'definer' => [ sub { s/(FUNCTION snowflake\.release_lease\(.*?) SECURITY DEFINER/$1/s },
		qr/^differs: function snowflake\.release_lease/ ],
	'volatility' => [ sub { s/(FUNCTION snowflake\.printable\(.*?) IMMUTABLE/$1/s },
		qr/^differs: function snowflake\.printable/ ],
	'body' => [ sub { s/the table snowflake\.registry has no row/the table has no row/ }, qr/^differs: function snowflake\.lock_registry/ ],
	'not-null' => [ sub { s/^(\tstart uuid) NOT NULL/$1/m },
		# a constraint, too, since PostgreSQL 18
		qr/^differs: column snowflake\.worker_node\.start|^missing: constraint snowflake\.worker_node\.worker_node_start_not_null/ ],
	'constraint' => [ sub { s/ CHECK \(uses IN \('own', 'another'\)\)// },
		qr/^missing: constraint snowflake\.cluster\.cluster_uses_check/ ],
	'trigger' => [ sub { s/, ENABLE ALWAYS TRIGGER only_one,/,/ },
		qr/^differs: trigger snowflake\.cluster\.only_one/ ],
	'revoke-public' => [ sub { s/^\t\tEXECUTE format\('REVOKE ALL.*?;$/\t\tNULL;/ms },
		qr/^differs: function snowflake\.|(?:missing|differs): rights as created (?:function|type) snowflake\.|differs: type snowflake\.|differs: relation snowflake\./ ],
	'view-grant' => [ sub { s/^(GRANT SELECT ON )snowflake\.nodes, (snowflake\.guard TO pg_read_all_stats;)$/$1$2/m },
		qr/^(?:differs: relation|missing: rights as created view) snowflake\.nodes/ ],
	'condition' => [ "SELECT pg_catalog.pg_extension_config_dump('snowflake.cluster', 'WHERE false')",
		qr/^differs: dumped snowflake\.cluster/ ],
	'index' => [ 'DROP INDEX snowflake.node_number_free', qr/^missing: index snowflake\.node_number_free/ ],
	'default' => [ "ALTER TABLE snowflake.registry ALTER starts_at SET DEFAULT 'infinity'",
		qr/^differs: column snowflake\.registry\.starts_at/ ],
	'column' => [ 'ALTER TABLE snowflake.registry ADD more text', qr/^additional: column snowflake\.registry\.more/ ],
	'rights-as-created' => [ "UPDATE pg_catalog.pg_init_privs SET initprivs = initprivs[1:1]
		WHERE objoid = 'snowflake.nodes'::regclass",
		qr/^differs: rights as created view snowflake\.nodes/ ],
	'policy' => [ 'CREATE POLICY one_more ON snowflake.registry USING (true)',
		qr/^additional: policy snowflake\.registry\.one_more/ ],
	'row-security' => [ 'ALTER TABLE snowflake.registry ENABLE ROW LEVEL SECURITY',
		qr/^differs: relation snowflake\.registry/ ],
	'row' => [ "INSERT INTO snowflake.guard (guard, first_at, last_at, detail) VALUES ('copy', now(), now(), '')",
		qr/^differs: rows snowflake\.guard/ ],
	'addition' => [ "CREATE FUNCTION snowflake.one_more() RETURNS integer LANGUAGE sql RETURN 1",
		qr/^additional: .*one_more/ ],
	'type' => [ "CREATE TYPE snowflake.one_more AS ENUM ('a')", qr/^additional: .*one_more/ ]);

sub check_wrong
{
	my ($extension, %wrong) = @_;

	foreach my $name (sort keys %wrong)
	{
		my ($break, $expected) = @{ $wrong{$name} };
		my $script = $rest{$extension};

		if (ref $break)
		{
			$break->() || die "$name: nothing to change" for $script;
		}
		else
		{
			$script .= "$break;\n";
		}
		write_script($extension, "0.8-$name", $first{$extension});
		write_script($extension, "0.8-$name--$current", $quit{$extension}, $script);
		my @lines = eval { update_differences($extension, "0.8-$name") };
		if (!defined $expected)
		{
			like($@, qr/does not know these kinds of objects: operator/, "$extension: wrong update: $name");
			next;
		}
		die $@ if $@;
		my @others = grep { $_ !~ $expected } @lines;
		ok(@lines > 0 && @others == 0, "$extension: wrong update: $name") or diag(join "\n", "found:", @lines);
	}
	write_script($extension, '0.7', $first{$extension});
	is_deeply([ grep { $_->[1] eq '' } paths($extension) ], [ [ '0.7', '' ] ], "$extension: a version without an update script is found");
}

check_wrong('snowflake', %wrong_snowflake);
check_wrong('snowflake_registry', %wrong_registry);
$node->stop;

#
# What was there stays, and ids go on in sessions during the update
#

my $registry = new_node('registry', preload => 0, start => 0);
$registry->start;
$registry->safe_psql('postgres', "CREATE EXTENSION snowflake_registry VERSION '0.9'");
my $data = new_member('data', conninfo_of($registry), start => 0, conf => "snowflake.extra_layouts = 'js53'\n");
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

# All rows of all tables of the registry, but what renewals write
sub contents
{
	my $rows = "SELECT to_jsonb(t) - '{renewed_at,leased_until,recorded_until,last_call}'::text[] FROM %s AS t ORDER BY 1";
	my @tables = split /\n/, $registry->safe_psql('postgres', <<'EOF');
SELECT c.oid::regclass FROM pg_class AS c JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE d.deptype = 'e' AND c.relkind = 'r' AND e.extname = 'snowflake_registry' ORDER BY 1
EOF
	return { map { $_ => $registry->safe_psql('postgres', sprintf($rows, $_)) } @tables };
}

my @phases = ([ write_ids(issue_ids($data, 1000)) ]);
my $before = contents();
is(join(' ', grep { $before->{$_} ne '' } sort keys %$before), 'snowflake.cluster snowflake.node_number snowflake.registry snowflake.worker_node', 'tables of the registry have rows');
my $clients = start_clients($data);
$clients->wait_for(1000);
$data->safe_psql('postgres', 'ALTER EXTENSION snowflake UPDATE');
$registry->safe_psql('postgres', 'ALTER EXTENSION snowflake_registry UPDATE');
$clients->wait_for(1000);
is($clients->errors, '', 'sessions get ids during the update');
push @phases, [ $clients->stop ];
push @phases, [ write_ids(issue_ids($data, 1000, 1)) ];

is($data->safe_psql('postgres', "SELECT extversion FROM pg_extension WHERE extname = 'snowflake'"), $current, 'the extension is updated');
is($registry->safe_psql('postgres', "SELECT extversion FROM pg_extension WHERE extname = 'snowflake_registry'"), $current, 'so is that of the registry');
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
check_phases('before, during, after the update', @phases);
# A start has a number of its own, and its first ids are near the clock: they are others, but they need not be greater.
$data->restart;
push @phases, [ write_ids(issue_ids($data, 1000)) ];
is(sql_error($data, $insert . backfill(2)), '', 'and after a restart');
check_ids('before, during, after the update, after a restart', map { @$_ } @phases);
$_->stop foreach $data, $registry;

done_testing();
