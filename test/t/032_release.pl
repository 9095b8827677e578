# 032_release.pl
#	  What a release is made of: META.json is what PGXN's specification 1.0.0 asks for, and
#	  test/package/versions finds files that disagree about the version.  Each check is shown to
#	  find something, on copies.
#
#	  Needs no server.  That make dist packs something that can be built is tested by
#	  make test-package.
use strict;
use warnings;

use File::Basename qw(dirname);
use File::Path qw(make_path remove_tree);
use FindBin;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Storable qw(dclone);
use Test::More;

my $top = "$FindBin::RealBin/../..";

sub write_file
{
	my ($file, $text) = @_;

	make_path(dirname($file));
	open my $out, '>', $file or die "$file: $!";
	print $out $text;
	close $out or die "$file: $!";
}

#
# META.json
#

my $semver = qr/(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-?[A-Za-z][0-9A-Za-z-]*)?/;
my $range = qr/(?:(?:==|!=|<=|>=|<|>)\s*)?(?:$semver|0)/;
my @licences = qw(agpl_3 apache_1_1 apache_2_0 artistic_1 artistic_2 bsd freebsd gfdl_1_2 gfdl_1_3 gpl_1 gpl_2 gpl_3
  lgpl_2_1 lgpl_3_0 mit mozilla_1_0 mozilla_1_1 openssl perl_5 postgresql qpl_1_0 ssleay sun zlib open_source
  restricted unrestricted unknown);

sub is_text { return defined $_[0] && !ref $_[0] && $_[0] =~ /\S/ }
sub is_term { return is_text($_[0]) && $_[0] =~ m{^[^\s[:cntrl:]/\\]{2,}\z} }
sub is_list_of { my ($check, $value) = @_; return ref $value eq 'ARRAY' && @$value && !grep { !$check->($_) } @$value }
sub is_one_or_list_of { my ($check, $value) = @_; return ref $value ? is_list_of($check, $value) : $check->($value) }
sub is_file { return is_text($_[0]) && $_[0] !~ m{^/|\.\.} && -f "$top/$_[0]" }
sub is_directory { return is_text($_[0]) && $_[0] !~ m{^/|\.\.} && -d "$top/$_[0]" }
sub is_url { return is_text($_[0]) && $_[0] =~ m{^[a-z][a-z0-9+.-]*://[^/\s]+}i }
sub is_map_of { my ($check, $value) = @_; return ref $value eq 'HASH' && %$value && !grep { !$check->($_, $value->{$_}) } keys %$value }

sub is_provided
{
	my ($name, $value) = @_;
	my %known = map { $_ => 1 } qw(file version abstract docfile);

	return is_term($name) && ref $value eq 'HASH' && !grep({ !$known{$_} && !/^x_/i } keys %$value)
	  && is_file($value->{file}) && ($value->{version} // '') =~ /^$semver\z/
	  && (!exists $value->{abstract} || is_text($value->{abstract}))
	  && (!exists $value->{docfile} || is_file($value->{docfile}));
}

sub is_required
{
	my ($name, $value) = @_;

	return is_term($name) && defined $value && !ref $value && $value =~ /^$range(?:\s*,\s*$range)*\z/;
}

sub is_phase
{
	my ($name, $value) = @_;

	return $name =~ /^(?:configure|build|runtime|test|develop)\z/
	  && is_map_of(sub { $_[0] =~ /^(?:requires|recommends|suggests|conflicts)\z/ && is_map_of(\&is_required, $_[1]) }, $value);
}

sub is_resource
{
	my ($name, $value) = @_;

	return is_url($value) if $name eq 'homepage';
	return is_list_of(\&is_url, $value) if $name eq 'license';
	return is_map_of(sub { $_[0] eq 'mailto' ? $_[1] =~ /@/ : $_[0] eq 'type' ? $_[1] =~ /^[a-z]+\z/ : is_url($_[1]) }, $value)
	  if $name =~ /^(?:bugtracker|repository)\z/;
	return $name =~ /^x_/i;
}

my %required = (
	'name' => \&is_term,
	'version' => sub { is_text($_[0]) && $_[0] =~ /^$semver\z/ },
	'abstract' => \&is_text,
	'maintainer' => sub { is_one_or_list_of(\&is_text, $_[0]) },
	'license' => sub {
		my ($value) = @_;
		my $known = sub { my ($licence) = @_; grep { $_ eq $licence } @licences };
		return ref $value eq 'HASH' ? is_map_of(sub { is_url($_[1]) }, $value) : is_one_or_list_of($known, $value);
	},
	'provides' => sub { is_map_of(\&is_provided, $_[0]) },
	'meta-spec' => sub {
		my ($value) = @_;
		return ref $value eq 'HASH' && ($value->{version} // '') eq '1.0.0'
		  && (!exists $value->{url} || $value->{url} =~ m{^https?://pgxn\.org/meta/spec\.txt\z});
	});
my %optional = (
	'description' => \&is_text,
	'generated_by' => \&is_text,
	'release_status' => sub { is_text($_[0]) && $_[0] =~ /^(?:stable|testing|unstable)\z/ },
	'tags' => sub { is_list_of(sub { is_text($_[0]) && length $_[0] < 256 && $_[0] !~ m{[[:cntrl:]/\\]} }, $_[0]) },
	'no_index' => sub { is_map_of(sub {
			my ($kind, $value) = @_;
			return $kind =~ /^(?:file|directory)\z/ && is_one_or_list_of($kind eq 'file' ? \&is_file : \&is_directory, $value);
		}, $_[0]) },
	'prereqs' => sub { is_map_of(\&is_phase, $_[0]) },
	'resources' => sub { is_map_of(\&is_resource, $_[0]) });

# The fields that are missing, wrong or unknown
sub meta_problems
{
	my ($meta) = @_;
	my @problems;

	foreach my $field (sort keys %{ { %$meta, %required } })
	{
		my $check = $required{$field} // $optional{$field};
		push @problems, "$field is missing" if !exists $meta->{$field};
		push @problems, "$field is unknown" if !$check && $field !~ /^x_/i;
		push @problems, "$field is wrong" if exists $meta->{$field} && $check && !$check->($meta->{$field});
	}
	return @problems;
}

my $meta = JSON::PP->new->utf8->decode(slurp_file("$top/META.json"));
is_deeply([ meta_problems($meta) ], [], 'META.json is valid');
is(join(' ', sort keys %{ $meta->{provides} }), 'snowflake snowflake_registry snowflake_tools', 'it provides the extensions');
is($meta->{provides}{$_}{file}, "$_.control", "$_: in its control file") foreach qw(snowflake snowflake_registry snowflake_tools);

foreach my $field (sort keys %required)
{
	my $copy = dclone($meta);
	delete $copy->{$field};
	is_deeply([ meta_problems($copy) ], ["$field is missing"], "$field is required");
}
my @wrong = (
	[ name => sub { $_->{name} = 'snow flake' } ],
	[ name => sub { $_->{name} = 's' } ],
	[ version => sub { $_->{version} = '1.0' } ],
	[ version => sub { $_->{version} = '01.0.0' } ],
	[ abstract => sub { $_->{abstract} = '' } ],
	[ maintainer => sub { $_->{maintainer} = [] } ],
	[ license => sub { $_->{license} = 'PostgreSQL' } ],
	[ 'meta-spec' => sub { $_->{'meta-spec'}{version} = '2.0.0' } ],
	[ 'meta-spec' => sub { $_->{'meta-spec'}{url} = 'https://pgxn.org/' } ],
	[ provides => sub { $_->{provides} = {} } ],
	[ provides => sub { delete $_->{provides}{snowflake}{version} } ],
	[ provides => sub { $_->{provides}{snowflake}{version} = '1' } ],
	[ provides => sub { delete $_->{provides}{snowflake}{file} } ],
	[ provides => sub { $_->{provides}{snowflake}{file} = 'sql/snowflake.sql' } ],
	[ provides => sub { $_->{provides}{snowflake}{docfile} = 'doc/README.md' } ],
	[ provides => sub { $_->{provides}{snowflake}{doc} = 'README.md' } ],
	[ prereqs => sub { $_->{prereqs}{run} = { requires => { PostgreSQL => '15.0.0' } } } ],
	[ prereqs => sub { $_->{prereqs}{runtime}{needs} = { PostgreSQL => '15.0.0' } } ],
	[ prereqs => sub { $_->{prereqs}{runtime}{requires}{PostgreSQL} = '15' } ],
	[ no_index => sub { $_->{no_index}{file} = ['doc/none.md'] } ],
	[ tags => sub { $_->{tags} = ['a/b'] } ],
	[ resources => sub { $_->{resources} = { homepage => 'snowflake' } } ],
	[ release_status => sub { $_->{release_status} = 'alpha' } ]);
foreach (@wrong)
{
	my ($field, $break) = @$_;
	my $copy = dclone($meta);
	$break->() for $copy;
	is_deeply([ meta_problems($copy) ], ["$field is wrong"], "a wrong $field is found");
}
is_deeply([ meta_problems({ %$meta, licence => 'postgresql' }) ], ['licence is unknown'], 'an unknown field is found');

#
# test/package/versions
#

my $copy = PostgreSQL::Test::Utils::tempdir();
my $version = $meta->{version};
my ($sql_version) = $version =~ /^(\d+\.\d+)/;
my %original = map { $_ => slurp_file("$top/$_") } map { s{^\Q$top\E/}{}r }
  map { glob "$top/$_" } qw(snowflake.control snowflake_registry.control snowflake_tools.control META.json CHANGELOG.md debian/changelog
  test/package/versions);

# (exit status, what it printed) of test/package/versions, with these files instead of ours
sub versions
{
	my %files = @_;

	remove_tree($copy, { keep_root => 1 });
	write_file("$copy/$_", $files{$_}) foreach keys %files;
	my $output = `sh $copy/test/package/versions 2>&1`;
	return ($?, $output);
}

sub edit
{
	my ($files, $file, $edit) = @_;
	my %copy = %$files;

	die "$file is not there" unless defined $copy{$file};
	$edit->() || die "$file: nothing to change" for $copy{$file};
	return \%copy;
}

is_deeply([ versions(%original) ], [ 0, "$version\n" ], "all files say $version");

# The same, before and after its release
my $before = edit(\%original, 'CHANGELOG.md', sub { s/^(## \S+) \(.*\)$/$1 (unreleased)/m });
$before = edit($before, 'debian/changelog', sub { s/\) \S+;/) UNRELEASED;/ });
is_deeply([ versions(%$before) ], [ 0, "$version\n" ], 'before a release');

my $after = edit($before, 'CHANGELOG.md', sub { s/\(unreleased\)/(2026-01-02)/ });
$after = edit($after, 'debian/changelog', sub { s/UNRELEASED/unstable/ });
is_deeply([ versions(%$after) ], [ 0, "$version\n" ], 'after it');

my @disagree = (
	[ 'META.json has version .*, not 99', edit($before, 'snowflake.control', sub { s/^default_version = .*/default_version = '99.0'/m }) ],
	[ 'snowflake.control: .*not two numbers', edit($before, 'snowflake.control', sub { s/^default_version = '(.*)'/default_version = '$1.0'/m }) ],
	(map { my $file = $_; [ "$file has version 99", edit($before, $file, sub { s/^default_version = .*/default_version = '99.0'/m }) ] }
		'snowflake_registry.control', 'snowflake_tools.control'),
	[ 'META.json has version 99\.0', edit($before, 'META.json', sub { s/^  "version": ".*"/  "version": "99.0.0"/m }) ],
	[ 'META.json: .*not three numbers', edit($before, 'META.json', sub { s/^  "version": ".*"/  "version": "$sql_version"/m }) ],
	[ 'META.json, in provides,', edit($before, 'META.json', sub { s/^      "version": ".*"/      "version": "$sql_version.99"/m }) ],
	[ 'CHANGELOG.md has version', edit($before, 'CHANGELOG.md', sub { s/^## \S+/## $sql_version.99/m }) ],
	[ 'debian/changelog has version', edit($before, 'debian/changelog', sub { s/\(.*?-/($sql_version.99-/ }) ],
	[ 'debian/changelog releases', edit($before, 'debian/changelog', sub { s/UNRELEASED/unstable/ }) ],
	[ 'UNRELEASED, but', edit($after, 'debian/changelog', sub { s/unstable/UNRELEASED/ }) ],
	[ 'neither a date nor', edit($before, 'CHANGELOG.md', sub { s/unreleased/soon/ }) ]);
foreach (@disagree)
{
	my ($expected, $files) = @$_;
	my ($status, $output) = versions(%$files);
	ok($status != 0 && $output =~ /$expected/ && $output !~ /^\d+\.\d+\.\d+$/m, "found: $expected") or diag($status, $output);
}

done_testing();
