# 020_model.pl
#	  The lease protocol as a model, test/model/lease.pml: checked over all
#	  interleavings for small bounds, no two draws get the same id; with any one
#	  protective step taken out, two do.
#
# Needs spin (in Debian), and is skipped without it.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'spin is not installed'
  if system('command -v spin >/dev/null 2>&1') != 0;

my $model = "$FindBin::RealBin/../model/lease.pml";
my $cc = $ENV{CC} // 'gcc';

# Builds and runs the verifier with these definitions; returns what it says.
sub check
{
	my @definitions = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();

	my $built = qx(cd "$dir" && spin -a @definitions "$model" 2>&1 && $cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c 2>&1);
	return "not built: $built" if !-x "$dir/pan";
	my $verdict = qx(cd "$dir" && ./pan -m2000000 -E 2>&1);
	note $verdict;
	return $verdict;
}

# Two bounds that are each exhausted in seconds: three leases, and two with crashes.
for my $bounds (
	[ '-DNUMBERS=1', '-DLEASES=3', '-DCRASHES=0' ],
	[ '-DNUMBERS=1', '-DLEASES=2', '-DCRASHES=1' ])
{
	my $verdict = check(@$bounds);

	like($verdict, qr/errors: 0/, "no id is issued twice: @$bounds");
	unlike($verdict, qr/not completed|max search depth too small|out of memory/, 'all states were searched');
}

for my $removed (qw(PUBLISH_FIRST NO_SEAL FORGET_HISTORY NO_TOKEN REUSE_WORD LIMIT_FIRST))
{
	like(check("-D$removed", '-DNUMBERS=1', '-DLEASES=3', '-DCRASHES=0'),
		qr/assertion violated/, "an id is issued twice with $removed");
}

done_testing();
