# 040_source_map.pl
#	  src/README, the map of the source, names what is there: each C file stands in it,
#	  each file and each function that it names exists, and the folders include each other
#	  one way only.  Also, test/belongs has a test for each file, and the bugs that other tests
#	  plant fit the source.  Needs no server.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use FindBin;
use Test::More;

my $src = "$FindBin::RealBin/../../src";

sub read_file
{
	my ($file) = @_;

	open my $fh, '<', $file or die "$file: $!";
	local $/;
	return scalar <$fh>;
}

my $map = read_file("$src/README");
my @files = map { s{^\Q$src\E/}{}r } glob("$src/*.[ch] $src/*/*.[ch] $src/sql/*/*.sql");
my %text = map { $_ => read_file("$src/$_") } @files;
my %exists = map { $_ => 1 } @files;

cmp_ok(scalar @files, '>', 40, 'there are files');
is(join(' ', grep { /[.]c$/ && $map !~ m{^\Q$_\E\s}m } @files), '', 'each C file is in the map');
my %base = map { s{.*/}{}r => 1 } @files;
is(join(' ', grep { !$exists{$_} && !$base{$_} && !-e "$src/../$_" && !-e "$src/$_" } $map =~ m{([a-z_/]+[.](?:c|h|sql))\b}g), '',
	'each file that is named exists');

my $all = join "\n", values %text;
my %named = map { $_ => 1 } $map =~ /\b([a-z_]+)\(\)/g;

cmp_ok(scalar keys %named, '>', 30, 'functions are named');
is(join(' ', grep { $all !~ /^(?:CREATE FUNCTION (?:snowflake[.])?)?\Q$_\E\(/m && $all !~ /^#define \Q$_\E\(/m } grep { $_ ne 'ereport' } sort keys %named),
	'', 'each function that is named is defined');

# What a folder may include besides itself and the files beside it.
my %may = (
	'' => ['layout'],
	layout => [],
	ids => ['layout'],
	registry => ['layout'],
	lease => [ 'ids', 'registry' ],
	functions => [ 'ids', 'layout' ]);
my @wrong;

foreach my $file (grep { /[.][ch]$/ && $_ ne 'snowflake.c' } @files)
{
	my ($folder) = $file =~ m{^(?:([a-z]+)/)?};

	foreach my $other ($text{$file} =~ m{^#include "([a-z]+)/}mg)
	{
		push @wrong, "$file: $other"
		  unless !exists $may{$other} || $other eq ($folder // '') || grep { $_ eq $other } @{ $may{ $folder // '' } };
	}
}
is(join("\n", @wrong), '', 'folders include each other one way only');

# Of layout/, only error.h is used beside itself.
is(join(' ', grep { m{^layout/} && $text{$_} =~ /^#include "(?:shmem|guc|clock|compat)[.]h"/m } @files), '',
	'layouts know no shared memory and no settings');

# test/run --changed knows what belongs to each file, and nothing that is not there.
my $belongs = read_file("$src/../test/belongs") =~ s/^#.*\n//mgr;
my @patterns = $belongs =~ /^(\S+)/mg;
my $any = join '|', map { join '', map { $_ eq '*' ? '.*' : quotemeta } split /([*])/ } @patterns;

is(join(' ', grep { "src/$_" !~ /^(?:$any)$/ } @files), '', 'test/belongs has tests for each file');
is(join(' ', grep { !(() = grep { -e } glob("$src/../$_")) } @patterns), '', 'each of its patterns fits a file');
is(join(' ', grep { !-e "$src/../sql/$_.sql" && !-e "$src/../test/specs/$_.spec" && !-e "$src/../test/torture/$_.t" && !(() = glob("$FindBin::RealBin/${_}_*.pl")) }
	grep { !/^make:/ } $belongs =~ /[ \t](\S+)/g), '', 'each test that it names exists');

# Bugs that other tests plant still fit.
my @plants = glob "$src/../test/*/plants/*.patch";

cmp_ok(scalar @plants, '>', 30, 'there are bugs to plant');
SKIP: {
	skip 'patch is not installed', 1 if system('command -v patch >/dev/null 2>&1') != 0;
	is(join(' ', map { s{.*/test/}{}r } grep { system("cd '$src/..' && patch --dry-run -s -f -F0 -p1 -i '$_' >/dev/null 2>&1") != 0 } @plants),
		'', 'each of them can be planted as it was written');
}

# What make says to a server that is too old, before it compiles anything.
my $pg_config = PostgreSQL::Test::Utils::tempdir() . "/pg_config";

open my $script, '>', $pg_config or die "$pg_config: $!";
print $script "#!/bin/sh\n[ \"\$1\" = --version ] && echo 'PostgreSQL 14.20' || exec pg_config \"\$@\"\n";
close $script or die "$pg_config: $!";
chmod 0755, $pg_config;
delete @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL PG_CONFIG)};
command_fails_like([ 'make', '-C', "$src/..", 'all', "PG_CONFIG=$pg_config" ],
	qr/^snowflake needs PostgreSQL 15 or newer, and \Q$pg_config\E is of PostgreSQL 14\.20\.$/m, 'an older major is refused');

done_testing();
