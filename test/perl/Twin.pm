# Twin.pm
#	  What the tests share that compare SQL functions with their twins in C: programs of
#	  test/simulator make random calls on two servers.  Environment:
#
#		TWIN_CALLS=1000000	so many calls, default 5000
#		TWIN_SEED=7			others, default 1; test/run gives that of the commit
#		TWIN_SEQUENCE=12	only this sequence of the seed, with all tables after each call
#		TWIN_PLANTS=all		bugs are planted instead, in the functions and in the twin, each of
#							which has to be found; or a pattern of those: 'sql1.' or 'c.*'
#
#	  new(extension => NAME, program => FILE, sql => FILE, twin => FILE, kinds => {...})
#				files of test/simulator: a program, what both servers need, and the twin.
#				kinds: for each function the kinds of results that have to occur in the calls of
#				8 of 20 seeds: those that are compared can lack a rare kind
#	  ->compare	makes the calls, and checks that all is equal
#	  ->plant(SQL, C)	plants bugs: lists of [ FUNCTION, THIS, THAT ], and of [ THIS, THAT ]
package Twin;

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use SnowflakeTest;
use Test::More;

sub new
{
	my ($class, %options) = @_;
	my $self = bless {%options}, $class;

	$self->{directory} = PostgreSQL::Test::Utils::tempdir('twin');
	$self->{seed} = $ENV{TWIN_SEED} // 1;
	note("TWIN_SEED=$self->{seed}");
	$self->{nodes} = [ map { new_node($_, preload => 0, conf => <<'EOF') } 'a', 'b' ];
fsync = off
client_min_messages = error
log_min_messages = fatal
EOF
	$self->run_sql("CREATE EXTENSION $self->{extension};" . slurp_file("test/simulator/$self->{sql}"));
	return $self;
}

sub run_sql
{
	my ($self, $sql) = @_;

	$_->safe_psql('postgres', $sql) foreach @{ $self->{nodes} };
}

sub pg_config
{
	my $pg_config = $ENV{PG_CONFIG} // 'pg_config';

	chomp(my $value = `$pg_config $_[0]`);
	return $value;
}

sub compile
{
	my ($self, $name, $twin) = @_;

	system_or_bail(
		$ENV{CC} // 'gcc', qw(-std=gnu99 -O1 -g -Wall -Wextra -Werror -Wno-unused-parameter -Wno-unused-function -D_GNU_SOURCE),
		'-isystem', pg_config('--includedir-server'), '-isystem', pg_config('--includedir'), '-Isrc', '-Itest/simulator',
		'-o', "$self->{directory}/$name", "test/simulator/$self->{program}", qw(test/simulator/compare.c test/stubs/dates.c), $twin,
		map({ "src/layout/$_.c" } qw(layout presets epoch)),
		'-L' . pg_config('--pkglibdir'), '-L' . pg_config('--libdir'), qw(-lpq -lpgcommon -lpgport -lm));
	return "$self->{directory}/$name";
}

# Returns the exit status, and what was printed.  A planted bug may divide by zero, or go on for ever:
# a signal or too much time is 1, too.
sub run
{
	my ($self, $program, $num_calls, @sequence) = @_;
	my $output = '';

	eval {
		IPC::Run::run([ $program, map({ $_->connstr('postgres') } @{ $self->{nodes} }), $self->{seed}, $num_calls, @sequence ],
			'>&', \$output, defined $ENV{TWIN_PLANTS} ? IPC::Run::timeout(300) : ());
		1;
	} or return (1, $output . $@);
	return ($? & 127 ? 1 : $? >> 8, $output);
}

sub run_alone
{
	my ($program, $seed, $calls) = @_;
	my $output;

	IPC::Run::run([ $program, '-', '-', $seed, $calls ], '>&', \$output) or die "the twin alone failed:\n$output";
	return $output;
}

sub compare
{
	my ($self) = @_;
	my @sequence = defined $ENV{TWIN_SEQUENCE} ? $ENV{TWIN_SEQUENCE} : ();
	my $calls = $ENV{TWIN_CALLS} // 5000;
	my $program = $self->compile('twin', "test/simulator/$self->{twin}");
	my ($status, $output) = $self->run($program, $calls, @sequence);

	is($status, 0, "the twin is equal, with seed $self->{seed}") or diag($output);
	note($output);
	like($output, qr/^seed $self->{seed}: \d+ calls in .* equal$/m, 'all calls were made');
	return if @sequence || $calls < 5000;
	# the twin alone makes the same calls, in a moment
	$output .= run_alone($program, $self->{seed} + $_, $calls) foreach 1 .. 19;
	foreach my $function (sort keys %{ $self->{kinds} })
	{
		my @missing = grep { 8 > (() = $output =~ /^\Q$function: $_\E: \d/mg) } @{ $self->{kinds}{$function} };

		is("@missing", '', "$function(): every kind of result was there");
	}
}

# So many calls at most; most bugs are found in some hundred.
sub check_found
{
	my ($self, $label, $program) = @_;
	my ($status, $output) = $self->run($program, $ENV{TWIN_CALLS} // 30000);
	my ($call) = $output =~ /call (\d+)/;

	$output =~ s/^.*(?=^SQL:)//ms;
	is($status, 1, $label . (defined $call ? ", found in call $call" : '')) or diag($output);
	note($output);
}

sub is_wanted
{
	return $ENV{TWIN_PLANTS} eq 'all' || $_[0] =~ /^(?:$ENV{TWIN_PLANTS})$/;
}

sub plant
{
	my ($self, $sql, $c) = @_;
	my $good = $self->compile('twin', "test/simulator/$self->{twin}");
	my $text = slurp_file("test/simulator/$self->{twin}");

	foreach my $i (grep { is_wanted("sql$_") } 0 .. $#$sql)
	{
		my ($function, $this, $that) = @{ $sql->[$i] };

		$self->run_sql('DELETE FROM twin.plants; INSERT INTO twin.plants VALUES ($$' . join('$$, $$', $function, $this, $that) . '$$)');
		$self->check_found("sql$i: $function(): \"$this\" is \"$that\"", $good);
	}
	$self->run_sql('DELETE FROM twin.plants');
	foreach my $i (grep { is_wanted("c$_") } 0 .. $#$c)
	{
		my ($this, $that) = @{ $c->[$i] };
		my $place = index($text, $this);
		my $planted = $text;

		die "$self->{twin} does not have: $this" if $place < 0;
		substr($planted, $place, length $this) = $that;
		open my $file, '>', "$self->{directory}/planted.c" or die "$self->{directory}/planted.c: $!";
		print $file $planted;
		close $file or die "$self->{directory}/planted.c: $!";
		$self->check_found("c$i: \"$this\" is \"$that\"", $self->compile("twin$i", "$self->{directory}/planted.c"));
	}
}

1;
