# Reference.pm
#	  A second implementation of what the functions for ids do, in Perl, written from
#	  doc/layouts.md and doc/reference.md: an id is a string of bits, its fields one after
#	  the other.  Times are microseconds since 2000-01-01 00:00 UTC, also MINUS_INFINITY and
#	  INFINITY.
#
#	  An answer is what SQL shows, or "error CODE".
#
#	  layout(FIELDS, TICK, EPOCH)	of [ NAME, BITS ], from high to low, and microseconds
#	  least(NUMBER, ...), greatest(NUMBER, NUMBER), quotient(NUMBER, NUMBER)
#	  tick_begin(LAYOUT, TICK), last_tick(LAYOUT), last_id(LAYOUT), ends(LAYOUT)
#	  pack_id(LAYOUT, TICK, NAME => VALUE, ...)
#	  parse, timestamp, min_id, max_id, compose, range, within, backfill, partitions
#	  encode(ID, FORMAT), decode(TEXT, FORMAT), mask(ID, KEY)
package Reference;

use strict;
use warnings;
no warnings 'portable';

use Exporter ();
use List::Util qw(sum);

our @ISA = 'Exporter';
our @EXPORT = qw(MINUS_INFINITY INFINITY LAST_TIME MAX_ID backfill compose decode encode ends greatest last_id last_tick layout least mask max_id min_id pack_id
  parse partitions quotient range tick_begin timestamp unpack_id within);

use constant MINUS_INFINITY => -9223372036854775807 - 1;
use constant INFINITY => 9223372036854775807;
use constant MAX_ID => 9223372036854775807;
# of timestamptz, in the year 294276
use constant LAST_TIME => 9223371331199999999;
use constant DAY => 86_400_000_000;

# Exact up to 2^64, unlike "/" and those of List::Util.
sub quotient
{
	return ($_[0] - $_[0] % $_[1]) / $_[1];
}

sub least
{
	my ($least, @others) = @_;

	$least = $_ < $least ? $_ : $least foreach @others;
	return $least;
}

sub greatest { return $_[0] > $_[1] ? $_[0] : $_[1] }

sub layout
{
	my ($fields, $tick, $epoch) = @_;
	my $self = { fields => $fields, tick => $tick, epoch => $epoch };

	$self->{bits} = { datacenter => 0, worker => 0, clock => 0, map { @$_ } @$fields };
	$self->{all_bits} = sum(values %{ $self->{bits} });
	$self->{last_tick} = least(quotient(LAST_TIME - $epoch, $tick) - 1, (1 << $self->{bits}{timestamp}) - 1);
	return $self;
}

sub last_tick { return $_[0]{last_tick} }

sub tick_begin
{
	my ($layout, $tick) = @_;

	return $tick * $layout->{tick} + $layout->{epoch};
}

sub ends { return tick_begin($_[0], $_[0]{last_tick} + 1) }

sub pack_id
{
	my ($layout, $tick, %parts) = @_;

	$parts{timestamp} = $tick;
	return oct('0b' . join '', map { sprintf '%0*b', $_->[1], $parts{ $_->[0] } // 0 } @{ $layout->{fields} });
}

sub all_ones
{
	return map { $_->[0] => (1 << $_->[1]) - 1 } @{ $_[0]{fields} };
}

sub last_id { return pack_id($_[0], $_[0]{last_tick}, all_ones($_[0])) }

sub unpack_id
{
	my ($layout, $id) = @_;
	my $bits = sprintf '%0*b', $layout->{all_bits}, $id;

	return map { $_->[0] => oct '0b' . substr $bits, 0, $_->[1], '' } @{ $layout->{fields} };
}

sub is_id { return $_[1] >= 0 && $_[1] <= last_id($_[0]) }

sub timestamp
{
	my ($layout, $id) = @_;
	my %parts;

	return 'error 22003' if !is_id($layout, $id);
	%parts = unpack_id($layout, $id);
	return tick_begin($layout, $parts{timestamp});
}

sub parse
{
	my ($layout, $id) = @_;
	my %parts;

	return 'error 22003' if !is_id($layout, $id);
	%parts = unpack_id($layout, $id);
	return join ' ', timestamp($layout, $id), map { $parts{$_} // '' } qw(datacenter worker clock sequence);
}

sub tick_of
{
	my ($layout, $time) = @_;

	return undef if $time < $layout->{epoch} || $time >= ends($layout);
	return quotient($time - $layout->{epoch}, $layout->{tick});
}

sub min_id
{
	my ($layout, $time) = @_;
	my $tick = tick_of($layout, $time);

	return $time == MINUS_INFINITY ? 0 : $time == INFINITY ? last_id($layout) : defined $tick ? pack_id($layout, $tick) : 'error 22008';
}

sub max_id
{
	my ($layout, $time) = @_;
	my $tick = tick_of($layout, $time);

	return defined $tick ? pack_id($layout, $tick, all_ones($layout)) : min_id($layout, $time);
}

sub compose
{
	my ($layout, $time, %parts) = @_;
	my $tick = tick_of($layout, $time);

	return 'error 22008' if !defined $tick;
	return 'error 22023' if grep { $parts{$_} < 0 || $parts{$_} >= 1 << $layout->{bits}{$_} } keys %parts;
	return pack_id($layout, $tick, %parts);
}

# The first id of the ticks from a time on, or the one after all ids.
sub first_from
{
	my ($layout, $time) = @_;

	return 0 if $time == MINUS_INFINITY;
	return last_id($layout) + 1 if $time == INFINITY || $time == ends($layout);
	return undef if !defined tick_of($layout, $time);
	foreach my $tick (tick_of($layout, $time) .. tick_of($layout, $time) + 1)
	{
		return $tick > $layout->{last_tick} ? last_id($layout) + 1 : pack_id($layout, $tick) if tick_begin($layout, $tick) >= $time;
	}
}

sub range
{
	my ($layout, $since, $until) = @_;
	my ($first, $end) = map { first_from($layout, $_) } $since, $until;

	return 'error 22008' if !defined $first || !defined $end;
	return 'error 22023' if $since > $until;
	return $first == $end ? 'empty' : "[$first," . ($end > MAX_ID ? '' : $end) . ')';
}

sub within
{
	my ($layout, $id, $since, $until) = @_;
	my $time;

	return 'false' if !is_id($layout, $id);
	$time = timestamp($layout, $id);
	return $since <= $time && $time < $until ? 'true' : 'false';
}

# In order of age; a row takes the first free place of its part.
sub backfill
{
	my ($layout, $times, $part, $parts) = (@_[0, 1], $_[2] // 0, $_[3] // 1);
	my $per_tick = 1 << $layout->{bits}{sequence};
	my $next = 0;
	my @ids;

	return 'error 22023' if $layout->{bits}{worker} == 0 || $layout->{tick} > 1_000_000;
	return 'error 22023' if $parts < 1 || $parts > $per_tick || $part < 0 || $part >= $parts;
	foreach my $time (sort { $a <=> $b } @$times)
	{
		my $tick = tick_of($layout, $time);

		return 'error 22008' if !defined $tick;
		$next = greatest($next, $tick * $per_tick);
		$next++ while $next % $parts != $part;
		return 'error 2200H' if quotient($next, $per_tick) > $layout->{last_tick};
		push @ids, pack_id($layout, quotient($next, $per_tick), all_ones($layout), sequence => $next % $per_tick);
		$next++;
	}
	return join ' ', @ids;
}

# Steps that begin at Monday, 1 January 2001, of fixed length.
sub partitions
{
	my ($layout, $since, $until, $step) = @_;
	my $start = $since - ($since - 366 * DAY) % $step;
	my $from = greatest($start, $layout->{epoch});
	my @found;

	while ($from < $until)
	{
		my $to = least($start += $step, ends($layout));
		my ($first, $end) = map { first_from($layout, $_) } $from, $to;

		return 'error 22023' if $first == $end;
		push @found, join ' ', $from, $to, $first, $end > MAX_ID ? () : $end;
		$from = $to;
	}
	return join ', ', @found;
}

my %formats = (
	base62 => [ 11, 0 .. 9, 'A' .. 'Z', 'a' .. 'z' ],
	crockford32 => [ 13, 0 .. 9, grep { !/[ILOU]/ } 'A' .. 'Z' ],
	hex => [ 16, 0 .. 9, 'a' .. 'f' ],
	decimal => [ 19, 0 .. 9 ]);

sub encode
{
	my ($id, $format) = @_;
	my ($width, @digits) = @{ $formats{$format} };
	my $text = '';

	return 'error 22003' if $id < 0;
	foreach (1 .. $width)
	{
		$text = $digits[ $id % @digits ] . $text;
		$id = quotient($id, scalar @digits);
	}
	return $text;
}

# Texts of one width sort like their ids.
sub decode
{
	my ($text, $format) = @_;
	my ($width, @digits) = @{ $formats{$format} };
	my %value = map { $digits[$_] => $_ } 0 .. $#digits;
	my $id = 0;

	return 'error 22P02' if length $text != $width || grep({ !exists $value{$_} } split //, $text) || $text gt encode(MAX_ID, $format);
	$id = $id * @digits + $value{$_} foreach split //, $text;
	return $id;
}

#
# AES (FIPS 197), and FF1 (NIST SP 800-38G) of radix 2 with 63 digits and no tweak
#

sub doubled { return ($_[0] << 1 ^ ($_[0] & 0x80 ? 0x11b : 0)) }

my @sbox = (0x63);
my ($p, $q) = (1, 1);

do
{
	$p ^= doubled($p);
	$q ^= $q << $_ & 0xff foreach 1, 2, 4;
	$q ^= 0x09 if $q & 0x80;
	$sbox[$p] = 0x63;
	$sbox[$p] ^= ($q << $_ | $q >> 8 - $_) & 0xff foreach 0 .. 4;
} while ($p != 1);

# The words of all round keys.
sub expand_key
{
	my @words = map { [ unpack 'C4', $_ ] } unpack '(a4)*', $_[0];
	my $size = @words;
	my $constant = 1;

	foreach my $i ($size .. 4 * ($size + 7) - 1)
	{
		my @word = @{ $words[-1] };

		@word = map { $sbox[$_] } @word[ 1, 2, 3, 0 ] if $i % $size == 0;
		if ($i % $size == 0)
		{
			$word[0] ^= $constant;
			$constant = doubled($constant);
		}
		@word = map { $sbox[$_] } @word if $size == 8 && $i % 8 == 4;
		push @words, [ map { $word[$_] ^ $words[ -$size ][$_] } 0 .. 3 ];
	}
	return map { pack '(C4)4', map { @$_ } @words[ 4 * $_ .. 4 * $_ + 3 ] } 0 .. $size + 6;
}

sub aes
{
	my ($block, $first, @keys) = @_;

	$block ^= $first;
	foreach my $round (1 .. @keys)
	{
		my @bytes = map { $sbox[$_] } unpack 'C16', $block;

		# rows are shifted, then columns mixed
		@bytes = @bytes[ map { ($_ * 5) % 16 } 0 .. 15 ];
		@bytes = map {
			my $column = $_;
			map { doubled($bytes[ $column + $_ ]) ^ doubled($bytes[ $column + ($_ + 1) % 4 ]) ^ $bytes[ $column + ($_ + 1) % 4 ]
				  ^ $bytes[ $column + ($_ + 2) % 4 ] ^ $bytes[ $column + ($_ + 3) % 4 ] } 0 .. 3
		} 0, 4, 8, 12 if $round < @keys;
		$block = pack('C16', @bytes) ^ $keys[ $round - 1 ];
	}
	return $block;
}

sub mask
{
	my ($id, $key) = @_;
	my @keys = expand_key($key);
	my ($left, $right) = ($id >> 32, $id & 0xffffffff);
	my $parameters = aes(pack('C3 x2 C C C N N', 1, 2, 1, 2, 10, 31, 63, 0), @keys);

	return 'error 22003' if $id < 0;
	foreach my $round (0 .. 9)
	{
		my $size = $round % 2 == 0 ? 1 << 31 : 1 << 32;
		my ($added) = unpack 'Q>', aes($parameters ^ pack('x11 C N', $round, $right), @keys);

		($left, $right) = ($right, ($left + $added % $size) % $size);
	}
	return $left << 32 | $right;
}

1;
