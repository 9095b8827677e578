# 020_model.pl
#	  The lease protocol as models, test/model/lease.pml and, with a registry,
#	  test/model/registry.pml: checked over all interleavings for small bounds, no
#	  two draws get the same id; with any one protective step taken out, two do.
#
# Needs spin (in Debian), and is skipped without it.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'spin is not installed'
  if system('command -v spin >/dev/null 2>&1') != 0;

my $models = "$FindBin::RealBin/../model";
my $cc = $ENV{CC} // 'gcc';

# Builds and runs the verifier with these definitions; returns what it says.
sub check
{
	my ($model, @definitions) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();

	my $built = qx(cd "$dir" && spin -a @definitions "$models/$model" 2>&1 && $cc -w -O1 -DSAFETY -o pan pan.c 2>&1);
	return "not built: $built" if !-x "$dir/pan";
	my $verdict = qx(cd "$dir" && ./pan -m2000000 -E 2>&1);
	note $verdict;
	return $verdict;
}

# The claim holds within these bounds.
sub holds
{
	my $verdict = check(@_);

	like($verdict, qr/errors: 0/, "no id is issued twice: @_");
	unlike($verdict, qr/not completed|max search depth too small|out of memory/, 'all states were searched');
}

# Within these bounds it does not: what protects it is taken out.
sub fails
{
	like(check(@_), qr/assertion violated/, "an id is issued twice: @_");
}

# Two bounds that are each exhausted in seconds: three leases, and two with crashes.
holds('lease.pml', qw(-DNUMBERS=1 -DLEASES=3 -DCRASHES=0));
holds('lease.pml', qw(-DNUMBERS=1 -DLEASES=2 -DCRASHES=1));

for my $removed (qw(PUBLISH_FIRST NO_SEAL FORGET_HISTORY NO_TOKEN REUSE_WORD LIMIT_FIRST))
{
	fails('lease.pml', "-D$removed", qw(-DNUMBERS=1 -DLEASES=3 -DCRASHES=0));
}

# All together are too many states, so each run has more of one thing.  With
# PG_TEST_EXTRA=model there is one that takes half a minute.
holds('registry.pml', qw(-DLEASES=3 -DCRASHES=1)) if ($ENV{PG_TEST_EXTRA} // '') =~ /\bmodel\b/;
holds('registry.pml', qw(-DLEASES=3 -DCRASHES=0));
holds('registry.pml', qw(-DLEASES=2 -DCRASHES=0 -DTICKS=3));
holds('registry.pml', qw(-DLEASES=2 -DCRASHES=0 -DENDS=1));
holds('registry.pml', qw(-DLEASES=2 -DCRASHES=1 -DLATES=2));
holds('registry.pml', qw(-DLEASES=2 -DCRASHES=0 -DNUMBERS=2));
holds('registry.pml', qw(-DLEASES=2 -DCRASHES=0 -DNODES=3));
holds('registry.pml', qw(-DLEASES=2 -DCRASHES=1 -DCLONE));
holds('registry.pml', qw(-DLEASES=3 -DCRASHES=1 -DTICKS=3 -DNODES=1 -DFORGETFUL));

for my $removed (qw(PUBLISH_FIRST NO_SEAL FORGET_HISTORY NO_TOKEN NO_OPEN LEFT_OPEN REOPEN))
{
	fails('registry.pml', "-D$removed", qw(-DLEASES=2 -DCRASHES=0));
}
fails('registry.pml', qw(-DREUSE_WORD -DLEASES=3 -DCRASHES=0));
fails('registry.pml', qw(-DLATE_ANSWER -DLEASES=3 -DCRASHES=0));
fails('registry.pml', qw(-DLIMIT_BEFORE_FILE -DLEASES=2 -DCRASHES=1));
fails('registry.pml', qw(-DTRUST_COPY -DLEASES=2 -DCRASHES=0 -DCLONE));
for my $removed (qw(FORGET_FILE LOWER_FILE))
{
	fails('registry.pml', "-D$removed", qw(-DLEASES=3 -DCRASHES=1 -DTICKS=3 -DNODES=1 -DFORGETFUL));
}

# What is not protected, as the model's head says.
fails('registry.pml', qw(-DLEASES=2 -DCRASHES=1 -DNODES=1 -DOLD_FILE));
fails('registry.pml', qw(-DLEASES=2 -DCRASHES=0 -DFORGETFUL));

done_testing();
