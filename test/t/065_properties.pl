# 065_properties.pl
#	  The functions for ids agree with each other and with a second implementation of them,
#	  test/perl/Reference.pm: random layouts with all orders and widths of fields, ids and
#	  times.  Half of these are edges: the first and last tick and sequence, ids and times
#	  next to bounds, times between ticks, and what is outside the layout.  Functions that
#	  can do without a layout are called without it, too.  Environment:
#
#		PROPERTIES_SEED=7	these cases; test/run gives a seed of the commit, else 1
#		PROPERTIES_RUNS=200	so many seeds from that on, default 1
use FindBin;
use lib "$FindBin::RealBin/../perl";
use List::Util qw(shuffle);
use Reference;
use SnowflakeTest;
use Time::Local;

use constant LAYOUTS => 50;
use constant DAY => 86_400_000_000;
use constant EPOCH_1970 => -946_684_800_000_000;

#
# Random layouts, times and ids
#

sub one_of { return $_[ rand @_ ] }

sub chance { return rand() < $_[0] }

# From 0 to a number of up to 63 bits, both included.
sub up_to
{
	return ((int rand 2**31) << 32 | int rand 2**32) % ($_[0] + 1);
}

# The same, but often one of the two or next to it.
sub edge_up_to
{
	return chance(0.5) ? up_to($_[0]) : one_of(0, $_[0], least(1, $_[0]), greatest(0, $_[0] - 1));
}

# "0001-01-01T00:00:00Z", in some zone
sub write_epoch
{
	my ($epoch) = @_;
	# in which the year has four digits, too
	my $zone = $epoch > -63_082_000_000_000_000 && $epoch < 252_455_000_000_000_000 ? one_of(0, 0, 330, -345, 840) : 0;
	my $local = $epoch + $zone * 60_000_000;
	my $fraction = $local % 1_000_000;
	my @time = gmtime(($local - $fraction - EPOCH_1970) / 1_000_000);
	my $text = sprintf '%04d-%02d-%02d%s%02d:%02d:%02d', $time[5] + 1900, $time[4] + 1, $time[3], one_of('T', 't', ' '), @time[ 2, 1, 0 ];

	$text .= sprintf '.%06d', $fraction if $fraction > 0;
	return $text . 'Z' if $zone == 0;
	return $text . sprintf '%s%02d%s%02d', $zone < 0 ? '-' : '+', abs($zone) / 60, one_of('', ':'), abs($zone) % 60;
}

sub random_epoch
{
	return one_of(EPOCH_1970, EPOCH_1970 + up_to(60 * 365 * DAY),
		# from the year 1 to the end of 9999
		one_of(-63_082_281_600_000_000, 252_455_615_999_999_999), up_to(252_455_615_999_999_999), -up_to(63_082_281_600_000_000));
}

# (microseconds, text)
sub random_tick
{
	my ($unit, $number) = @{ one_of([ us => 999_999_999 ], [ us => 2000 ], [ us => 2000 ], [ ms => 86_400_000 ], [ ms => 1000 ], [ ms => 10 ], [ s => 86_400 ], [ s => 1 ]) };

	$number = edge_up_to($number - 1) + 1;
	return ($number * { us => 1, ms => 1000, s => 1_000_000 }->{$unit}, "tick $number" . one_of('', ' ') . $unit);
}

# Widths of all fields that sum up to 63 bits or less: often to 63.
sub random_fields
{
	while (1)
	{
		my @fields = shuffle([ sequence => one_of(1, 12, 31, 1 + int rand 31) ],
			map { [ $_ => one_of(1, 5, 31, 1 + int rand 31) ] } grep { chance($_ eq 'worker' ? 0.8 : 0.5) } qw(datacenter worker clock));
		my $rest = 63;

		$rest -= $_->[1] foreach @fields;
		next if $rest < 1;
		return [ timestamp => least(62, chance(0.5) ? $rest : 1 + int rand $rest) ], @fields;
	}
}

# The table of doc/layouts.md: name => [ fields, tick, epoch ]
sub read_presets
{
	my %presets;

	foreach my $row (grep { /^\| `/ } split /\n/, slurp_file('doc/layouts.md'))
	{
		my ($name, $fields, $tick, $unit, $year, $month, $day, $time) =
		  $row =~ /^\| `(\w+)` \| (timestamp [^|]+) \| (\d+)(ms|s) \| (\d+)-(\d+)-(\d+) ([\d:.]+) \|/ or next;
		my ($hour, $minute, $second) = (split(/:/, $time), 0);
		my $days = timegm(0, 0, 0, $day, $month - 1, $year) / 86_400;

		$presets{$name} = [ [ map { [ split / / ] } split /, /, $fields ], $tick * ($unit eq 's' ? 1_000_000 : 1000),
			EPOCH_1970 + $days * DAY + ($hour * 3600 + $minute * 60) * 1_000_000 + sprintf('%.0f', $second * 1_000_000) ];
	}
	return %presets;
}

# A layout and how it is written: a preset, perhaps with other parts, or all of it.
sub random_layout
{
	my ($presets) = @_;
	my ($fields, $tick, $epoch) = ([random_fields()], 1000, EPOCH_1970);
	my @parts = map { "$_->[0] $_->[1]" } @$fields;
	my @changes;

	if (chance(0.2))
	{
		@parts = one_of(sort keys %$presets);
		($fields, $tick, $epoch) = @{ $presets->{ $parts[0] } };
		if (chance(0.5))
		{
			# never wider: the sum stays
			my $changed = int rand @$fields;

			$fields = [ map { [@$_] } @$fields ];
			$fields->[$changed][1] = 1 + int rand $fields->[$changed][1];
			push @changes, join ' ', @{ $fields->[$changed] };
		}
	}
	if (chance(0.7))
	{
		($tick, my $text) = random_tick();
		push @changes, $text;
	}
	if (chance(0.7))
	{
		$epoch = random_epoch();
		push @changes, 'epoch ' . write_epoch($epoch);
	}
	my $text = join one_of(',', ', ', ' , '), @parts, shuffle(@changes);

	return (layout($fields, $tick, $epoch), one_of($text, $text, uc $text, " $text "));
}

# A time that timestamptz has
sub shown { return least(LAST_TIME, greatest(-211_813_488_000_000_000, $_[0])) }

sub random_time
{
	my ($layout) = @_;
	my $tick = edge_up_to(last_tick($layout));
	my $begin = tick_begin($layout, $tick);

	return one_of(MINUS_INFINITY, INFINITY) if chance(0.08);
	return shown(one_of($layout->{epoch}, ends($layout)) + one_of(-DAY, -1, -1, 0, 1, DAY)) if chance(0.15);
	return shown($begin + one_of(-1, 0, 0, 1, $layout->{tick} - 1, up_to($layout->{tick} - 1)));
}

sub parts_of
{
	my ($layout) = @_;

	return map { $_ => edge_up_to((1 << $layout->{bits}{$_}) - 1) } qw(datacenter worker clock sequence);
}

sub random_id
{
	my ($layout) = @_;
	my $id = pack_id($layout, edge_up_to(last_tick($layout)), parts_of($layout));

	return one_of(-1, -1 - MAX_ID, MAX_ID, least(MAX_ID, last_id($layout) + 1)) if chance(0.08);
	return one_of($id, up_to(last_id($layout)), least(MAX_ID, $id + 1), $id - 1);
}

#
# Cases: what is called, and the answer of the second implementation
#

my @cases;

sub add
{
	my ($kind, $text, $answer, %arguments) = @_;

	push @cases, join "\t", scalar @cases, $kind, $text, map { ref $_ ? '{' . join(',', @$_) . '}' : $_ // '\N' } @arguments{qw(id since until numbers times)}, $answer;
}

sub add_layout
{
	my ($layout, $text) = @_;
	my @ids = map { random_id($layout) } 1 .. 20;
	my @times = map { random_time($layout) } 1 .. 10;

	add('layout', $text, join(' ', $layout->{all_bits}, $layout->{tick}, $layout->{epoch}, tick_begin($layout, last_tick($layout)),
			$layout->{all_bits} <= 53 ? 't' : 'f'));
	foreach my $id (@ids)
	{
		add('parse', $text, parse($layout, $id), id => $id);
		add('timestamp', $text, timestamp($layout, $id), id => $id);
	}
	foreach my $id (grep { timestamp($layout, $_) !~ /error/ } @ids)
	{
		# the tick's begin, its end, or some time
		my @near = map { shown(timestamp($layout, $id) + $_) } -1, 0, 1, $layout->{tick};
		my ($since, $until) = map { chance(0.5) ? one_of(@near) : random_time($layout) } 1, 2;

		# an interval has no more than 292277 years
		add('expression', $text, timestamp($layout, $id), id => $id) if timestamp($layout, $id) - $layout->{epoch} < INFINITY;
		add('within', $text, within($layout, $id, $since, $until), id => $id, since => $since, until => $until);
	}
	foreach my $time (@times)
	{
		my %parts = parts_of($layout);

		add('min', $text, min_id($layout, $time), since => $time);
		add('max', $text, max_id($layout, $time), since => $time);
		# one part does not fit
		$parts{ one_of(sort keys %parts) } = one_of(-1, 2147483647) if chance(0.1);
		add('compose', $text, compose($layout, $time, %parts), since => $time, numbers => [ @parts{qw(worker sequence datacenter clock)} ]);
	}
	foreach (1 .. 10)
	{
		my ($since, $until) = (random_time($layout), random_time($layout));

		($since, $until) = ($until, $since) if $since > $until && chance(0.9);
		add('range', $text, range($layout, $since, $until), since => $since, until => $until);
		add('ids within', $text, join(' ', sort { $a <=> $b } grep { within($layout, $_, $since, $until) eq 'true' } @ids),
			since => $since, until => $until, times => \@ids);
		add_partitions($layout, $text, $since, $until);
	}
	# most layouts are for parsing only
	add_backfill($layout, $text) foreach 1 .. (backfill($layout, []) =~ /error/ ? 1 : 5);
}

sub add_partitions
{
	my ($layout, $text, $since, $until) = @_;
	my $step = greatest($layout->{tick}, quotient(abs($until - $since), one_of(1, 2, 7))) + up_to($layout->{tick});

	# at the end of timestamptz, the end of a step cannot be computed
	return if $since < $layout->{epoch} || $since >= $until || $until > ends($layout) || $until > LAST_TIME - 2 * $step
	  || $since < -63_000_000_000_000_000 + $step || $step > 2**60;
	add('partitions', $text, partitions($layout, $since, $until, $step), since => $since, until => $until, times => [$step]);
}

# Rows of a few ticks, so that these have too few ids
sub add_backfill
{
	my ($layout, $text) = @_;
	my $first = edge_up_to(last_tick($layout));
	my @times = map { tick_begin($layout, least($first + up_to(3), last_tick($layout))) + up_to($layout->{tick} - 1) } 1 .. one_of(1, 5, 30);
	my $per_tick = 1 << $layout->{bits}{sequence};
	my $parts = 1 + edge_up_to(least(40, $per_tick) - 1);

	push @times, $layout->{epoch} - 1 if chance(0.05);
	add('backfill', $text, backfill($layout, \@times), times => \@times);
	add('backfill', $text, backfill($layout, \@times, @$_), times => \@times, numbers => $_)
	  foreach map { [ $_, $parts ] } chance(0.1) ? (-1, $parts) : (0, $parts - 1);
}

sub add_text
{
	my ($format) = @_;
	my $id = chance(0.05) ? -1 - up_to(MAX_ID) : edge_up_to(MAX_ID);
	my $text = encode($id, $format);

	add('encode', $format, $text, id => $id);
	return if $id < 0;
	substr($text, rand length $text, 1) = one_of(0 .. 9, 'a' .. 'z', 'A' .. 'Z', '-', ' ') if chance(0.3);
	$text = one_of("0$text", substr($text, 1), $text . 'z') if chance(0.1);
	add('decode', $format, decode($text, $format), times => [ '"' . $text . '"' ]);
}

sub add_mask
{
	my $key = pack 'C*', map { int rand 256 } 1 .. one_of(16, 24, 32);
	my $id = chance(0.05) ? -1 - up_to(MAX_ID) : chance(0.2) ? 1 << int rand 63 : edge_up_to(MAX_ID);
	my $masked = mask($id, $key);

	add('mask', unpack('H*', $key), $masked, id => $id);
	add('unmask', unpack('H*', $key), $id, id => $masked) if $id >= 0;
}

#
# The same of the server, which shows each answer as the second implementation does
#

my $node = new_node('main', preload => 0, conf => "timezone = UTC\n");

$node->safe_psql('postgres', <<'EOS');
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE TABLE cases (nr int, kind text, layout text, id bigint, since bigint, until bigint, numbers int[], times text[], expected text);
CREATE TABLE ids (nr int, id bigint);
CREATE INDEX ON ids (nr, id);

CREATE FUNCTION at(us bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE us WHEN 9223372036854775807 THEN 'infinity' WHEN -9223372036854775808 THEN '-infinity'
		ELSE timestamptz '2000-01-01Z' + make_interval(days => (us / 86400000000)::int) + us % 86400000000 * interval '1 us' END
$$;
CREATE FUNCTION us(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
	SELECT ('x' || encode(timestamptz_send(at), 'hex'))::bit(64)::bigint
$$;

-- own: the layout is not given, but set
CREATE FUNCTION answer(c cases, own boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	since CONSTANT timestamptz := at(c.since);
	until CONSTANT timestamptz := at(c.until);
	given CONSTANT text := CASE WHEN NOT own THEN format(', %L', c.layout) END;
	p record;
	result text;
BEGIN
	PERFORM set_config('snowflake.layout', CASE WHEN own THEN c.layout ELSE 'twitter' END, false);
	CASE c.kind
	WHEN 'layout' THEN
		SELECT concat_ws(' ', d.bits, us(at(0) + d.tick), us(d.epoch), us(d.last_id_time), d.js_safe) INTO STRICT result
		FROM snowflake_layout(c.layout) AS l, snowflake_layout(l.definition) AS d WHERE d = l;
	WHEN 'parse' THEN
		p := CASE WHEN own THEN snowflake_parse(c.id) ELSE snowflake_parse(c.id, c.layout) END;
		result := format('%s %s %s %s %s', us(p.timestamp), p.datacenter_id, p.worker_id, p.clock, p.sequence);
	WHEN 'timestamp' THEN
		result := us(CASE WHEN own THEN snowflake_timestamp(c.id) ELSE snowflake_timestamp(c.id, c.layout) END);
	WHEN 'expression' THEN
		EXECUTE format('SELECT us(%s) FROM (VALUES ($1)) AS v (id)', snowflake_time_expression('id', c.layout)) INTO result USING c.id;
	WHEN 'within' THEN
		result := CASE WHEN own THEN snowflake_within(c.id, since, until) ELSE snowflake_within(c.id, since, until, c.layout) END;
	WHEN 'ids within' THEN
		EXECUTE format('SELECT string_agg(id::text, '' '' ORDER BY id) FROM ids WHERE nr = $1 AND snowflake_within(id, $2, $3 %s)', given)
		INTO result USING c.nr, since, until;
	WHEN 'min' THEN
		result := CASE WHEN own THEN snowflake_min_id(since) ELSE snowflake_min_id(since, c.layout) END;
	WHEN 'max' THEN
		result := CASE WHEN own THEN snowflake_max_id(since) ELSE snowflake_max_id(since, c.layout) END;
	WHEN 'compose' THEN
		result := CASE WHEN own THEN snowflake_compose(since, c.numbers[1], c.numbers[2], c.numbers[3], c.numbers[4])
			ELSE snowflake_compose(since, c.numbers[1], c.numbers[2], c.layout, c.numbers[3], c.numbers[4]) END;
	WHEN 'range' THEN
		result := CASE WHEN own THEN snowflake_range(since, until) ELSE snowflake_range(since, until, c.layout) END;
	WHEN 'partitions' THEN
		EXECUTE format('SELECT string_agg(concat_ws('' '', us(from_time), us(to_time), from_id, to_id), '', '' ORDER BY from_id)
			FROM snowflake_partition_bounds($1, $2, $3 %s)', given)
		INTO result USING since, until, at(c.times[1]::bigint) - at(0);
	WHEN 'backfill' THEN
		EXECUTE format('SELECT string_agg(id::text, '' '' ORDER BY at, nr) FROM (SELECT *, snowflake_backfill_id(at %s) OVER (ORDER BY at, nr) AS id
			FROM (SELECT at(t::bigint), nr FROM unnest($1) WITH ORDINALITY AS u (t, nr)) AS t) AS made',
			CASE WHEN c.numbers IS NULL THEN given ELSE format(', %L, %s, %s', c.layout, c.numbers[1], c.numbers[2]) END)
		INTO result USING c.times;
	WHEN 'encode' THEN
		result := snowflake_encode(c.id, c.layout);
	WHEN 'decode' THEN
		result := snowflake_decode(c.times[1], c.layout);
	WHEN 'mask' THEN
		result := snowflake_mask(c.id, decode(c.layout, 'hex'));
	WHEN 'unmask' THEN
		result := snowflake_unmask(c.id, decode(c.layout, 'hex'));
	END CASE;
	RETURN coalesce(result, '');
EXCEPTION WHEN OTHERS THEN
	RETURN 'error ' || SQLSTATE;
END
$$;
EOS

my $seed = $ENV{PROPERTIES_SEED} // 1;
my $directory = PostgreSQL::Test::Utils::tempdir('cases');
my %presets = read_presets();

is(scalar keys %presets, $node->safe_psql('postgres', 'SELECT count(*) FROM snowflake_layouts()'), 'the document has all presets');
foreach my $run (1 .. $ENV{PROPERTIES_RUNS} // 1)
{
	note("PROPERTIES_SEED=$seed");
	@cases = ();
	srand($seed);
	add_layout(random_layout(\%presets)) foreach 1 .. LAYOUTS;
	add_text($_) foreach (qw(base62 crockford32 hex decimal)) x 100;
	add_mask() foreach 1 .. 200;
	append_to_file("$directory/$seed", join "\n", @cases, '');

	my $wrong = $node->safe_psql('postgres', <<"EOS");
TRUNCATE cases, ids;
COPY cases FROM '$directory/$seed';
ANALYZE cases;
INSERT INTO ids SELECT nr, v.id::bigint FROM cases, unnest(times) AS v (id) WHERE kind = 'ids within';
ANALYZE ids;
SELECT format('%s (%s), "%s"%s: SQL %s, reference %s', kind, left(concat_ws(', ', id, since, until, numbers, times), 200), layout,
	CASE WHEN own THEN ', which is set' END, answer, expected)
FROM (SELECT *, row_number() OVER (PARTITION BY kind ORDER BY nr, own) AS place
	FROM (SELECT *, answer(c, own) FROM cases AS c, unnest('{f,t}'::boolean[]) AS own) AS a
	WHERE answer IS DISTINCT FROM expected) AS wrong
WHERE place <= 3 ORDER BY nr, own;
EOS
	is($wrong, '', scalar(@cases) . " cases agree with the second implementation; to repeat: PROPERTIES_SEED=$seed");
	unlink "$directory/$seed";
	$seed++;
}
note($node->safe_psql('postgres', q{SELECT kind || ': ' || count(*) || ', ' || count(*) FILTER (WHERE expected ~ 'error') || ' of them errors'
	FROM cases GROUP BY kind ORDER BY kind}));

# What is encoded sorts as ids do.
is($node->safe_psql('postgres', <<'EOS'), '0', 'texts of ids sort as the ids do');
SELECT count(*) FROM (SELECT id, lag(id) OVER (PARTITION BY layout ORDER BY expected COLLATE "C") AS before FROM cases
	WHERE kind = 'encode' AND id >= 0) AS s WHERE before > id
EOS

done_testing();
