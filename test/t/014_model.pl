# 014_model.pl
#	  The word and the limit on a processor that reorders loads and stores, as a model:
#	  test/model/order.pml.  Checked over all interleavings for small limits, no id is
#	  issued twice; with any one rule removed, one is.  The lease protocol is proved
#	  (test/proof).
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
my @checks;

# Within these limits the properties hold.
sub holds
{
	my ($model, $definitions, $long) = @_;
	push @checks, { model => $model, definitions => $definitions, holds => 1, long => $long };
}

# Within these limits they do not, with each of the rules removed, one at a time.
sub fails
{
	my ($model, $definitions, @removed) = @_;
	push @checks, map { { model => $model, definitions => "-D$_ $definitions", holds => 0 } } @removed;
}

# Builds and runs the verifier of a check; what it says goes to a file.
sub start
{
	my ($check) = @_;
	my $dir = $check->{dir} = PostgreSQL::Test::Utils::tempdir();
	# most runs take less time than the compiler would for more
	my ($optimize, $table) = $check->{long} ? ('-O1', 22) : ('-O0', 20);
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		exec('/bin/sh', '-c',
			qq(cd "$dir" && exec >verdict 2>&1 && spin -a $check->{definitions} "$models/$check->{model}" && )
			  . qq($cc -w $optimize -DSAFETY -o pan pan.c && ./pan -m500000 -w$table -E))
		  or die "exec: $!";
	}
	return $pid;
}

sub report
{
	my ($check) = @_;
	my $name = "$check->{model} $check->{definitions}";
	my $verdict = slurp_file("$check->{dir}/verdict");

	unlink(glob("$check->{dir}/*"));
	if ($check->{holds})
	{
		like($verdict, qr/errors: 0/, "no id is issued twice: $name");
		unlike($verdict, qr/not completed|max search depth too small|out of memory/,
			"all states were searched: $name");
	}
	else
	{
		like($verdict, qr/assertion violated(?! - invalid)/, "an id is issued twice: $name");
	}
}

holds('order.pml', '-DLEASES=4', 'long');
holds('order.pml', '-DBACKENDS=2 -DLEASES=1');
fails('order.pml', '', qw(NO_WRITE_BARRIER NO_READ_BARRIER NO_ATOMIC_SEAL NO_ATOMIC_SWAP));

# Two at a time.
my %running;
for my $check (@checks, undef)
{
	while (%running && (!defined $check || %running >= 2))
	{
		report(delete $running{ wait() });
	}
	$running{ start($check) } = $check if defined $check;
}

done_testing();
