# 023_known_ways.pl
#	  Twenty ways in which other generators have issued an id twice, each as a small case
#	  that does not depend on luck.  Here are those that have to do with numbers, fields,
#	  zones and SQL, and were not tested elsewhere; in 024_known_clock_ways.pl those that
#	  have to do with time.
#
#	  The name after a file is that of a section in it, or of a label.
#
#	  way										tested in
#	  ----------------------------------------	-------------------------------------------------
#	   1 sequence reset before the check		024 "1"
#	     for a rollback
#	   2 number wider than its field			004 "Numbers that do not fit", parse_ids.sql "Refused",
#												here "2": every field, and what a registry says
#	   3 shifted by the wrong width				parse_ids.sql "Ids with known parts", "Round trips";
#												here "3, 20": ids that were issued
#	   4 one default number for all				here "4, 10"
#	   5 lease lost while the store was			020 "Goes away while ids are issued", "Frozen,
#	     away									not renewed"; both at once: test/simulator
#	   6 borrowed future and a restart			002; 024 "6": nothing moves between the crash
#												and the start
#	   7 last-seen time saved, not an end		002; 024 "7": with the clock set back
#	   8 a handler turned the check off			020 "Goes away"; 024 "8": handlers in SQL
#	   9 epoch read in a local zone				layouts.sql, parse_ids.sql "nothing depends on the
#												session's zone"; here "9": ids that were issued;
#												024 "9": over the end of summer time
#	  10 two nodes raced on an empty			019 "Fifty at once": sessions; here "4, 10":
#	     registry								servers
#	  11 generated key not read back			here "11"
#	  12 guard passed at the edge of a			010 "used up" (end of the field); 024 "12": of
#	     batch									max_ahead and of a lease
#	  13 several overlapping rollbacks			015 "clock field", automatic numbers; with crashes
#												in between: test/simulator
#	  14 a wait that was not checked again		024 "14"
#	  15 layout changed under existing ids		003, 019 "Another layout"
#	  16 monotonic clock drifting away			024 "16"
#	  17 end of the timestamp field				010; 024 "17": batches that cross it
#	  18 state per backend						001 "Sixteen sessions", "Workers of a parallel
#												query"; order.spec
#	  19 cloned state file						there is none; 018 "A base backup", "replaced by a
#												copy"
#	  20 batch over the border of a tick		001 "Sixteen ids a tick"; here "3, 20": every
#												layout, also where the sequence is not lowest
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeLocal;
use SnowflakeRegistry;
use SnowflakeStatement;

use Time::HiRes qw(time);

my $registry = new_registry('registry');

#
# 4, 10. Others had every server begin with the number 0 unless somebody said otherwise, or
# let two that found the table empty take the same number.
#
# Nothing is set but where the registry is.
my ($one, $two, $three) = map { new_node($_, preload => 0, start => 0, conf => <<EOF) } 'one', 'two', 'three';
shared_preload_libraries = 'snowflake'
snowflake.max_wait = '30s'
snowflake.registry = '${\ conninfo_of($registry)}'
EOF
my @nodes = ($one, $two, $three);
my $gate = $registry->background_psql('postgres');

$gate->query_safe('BEGIN');
$gate->query_safe('SELECT * FROM snowflake.registry FOR UPDATE');
$_->start foreach @nodes;
# the first lease of a cluster is taken at its first id
$_->psql('postgres', 'CREATE EXTENSION snowflake; SET snowflake.max_wait = 0; SELECT snowflake_nextval()') foreach @nodes;
poll('three servers to ask', sub { $registry->safe_psql('postgres', <<'EOF') == 3 });
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'acquire_lease'
EOF
is($registry->safe_psql('postgres', 'SELECT count(*) FROM snowflake.worker_node'), 0,
	'4, 10, three new servers at once: they all find an empty table');
$gate->quit;
my @files = map { write_ids(issue_ids($_, 500), issue_ids($_, 5000, 1)) } @nodes;
is(scalar(keys %{ { map { wait_for_number($_) => 1 } @nodes } }), 3, '4, 10, three new servers at once: three numbers');
is($registry->safe_psql('postgres', 'SELECT count(*), count(DISTINCT node_number), count(DISTINCT port) FROM snowflake.worker_node
	WHERE closed_at IS NULL'), '3|3|3', '4, 10, three new servers at once: three rows');
check_ids('4, 10, three new servers at once', @files);

#
# 2. Others shifted numbers into their places without looking whether they fit.
#
# Each field at its greatest fills its own bits and no others; one more is refused.
my @definitions = split /\n/, $one->safe_psql('postgres', 'SELECT definition FROM snowflake_layouts() ORDER BY name');
push @definitions, 'timestamp 40, clock 3, sequence 10, worker 6, datacenter 4, tick 1ms, epoch 2024-01-01T00:00:00Z',
  'timestamp 36, sequence 11, datacenter 3, clock 2, worker 11, tick 10ms, epoch 2024-01-01T00:00:00Z';

# Names and widths from low to high.
sub fields_of
{
	return reverse map { [ split ] } $_[0] =~ /((?:timestamp|datacenter|worker|clock|sequence) \d+)/g;
}

sub compose
{
	my ($definition, %parts) = @_;

	return 'snowflake_compose(e, ' . join(', ', map { $parts{$_} // 0 } 'worker', 'sequence')
	  . ", '$definition', " . join(', ', map { $parts{$_} // 0 } 'datacenter', 'clock') . ')';
}

my (@fits, @wide);
foreach my $definition (@definitions)
{
	my $shift = 0;

	foreach my $field (fields_of($definition))
	{
		my ($name, $bits) = @$field;
		my $greatest = 2**$bits - 1;

		if ($name ne 'timestamp')
		{
			push @fits, "SELECT '$name of $definition', e FROM (SELECT epoch AS e FROM snowflake_layout('$definition')) l
				WHERE " . compose($definition, $name => $greatest) . ' <> ' . ($greatest << $shift);
			push @wide, "PERFORM " . compose($definition, $name => $greatest + 1) . " FROM (SELECT epoch AS e FROM snowflake_layout('$definition')) l;"
			  if $bits < 31;
		}
		$shift += $bits;
	}
}
is($one->safe_psql('postgres', join ' UNION ALL ', @fits), '', '2, wider than its field: the greatest numbers fill ' . @fits . ' fields');
is(sql_error($one, 'DO $x$ BEGIN ' . join("\n", map {
		"BEGIN $_ RAISE 'accepted: %', \$a\$$_\$a\$; EXCEPTION WHEN invalid_parameter_value THEN END;" } @wide) . ' END $x$'),
	'', '2, wider than its field: one more is refused in ' . @wide);

# A registry that gives more than there is.
my $choose = $registry->safe_psql('postgres', "SELECT pg_get_functiondef('snowflake.choose_number'::regproc)");
foreach my $number (1023, 1024, 4096 + 2)
{
	my ($wide) = $choose =~ /\A(.*AS \$function\$)/s;

	$registry->safe_psql('postgres', "$wide BEGIN number := $number; END \$function\$");
	$two->safe_psql('postgres', 'SELECT snowflake_release()');
	my ($error) = nextval_error_with_reason($two, '300ms');
	like($error, qr/^ERROR:  55000: the registry granted a lease that was not asked for\nDETAIL:  It granted node number $number; asked for was one from 0 to 1022\.\nHINT:  /,
		"2, wider than its field: a registry says $number, no id");
	is(stat_of($two, 'node_number'), '', "2, wider than its field: a registry says $number, it is not taken");
	$registry->safe_psql('postgres', $choose);
	my $id = poll('id', sub { my ($status, $out) = $two->psql('postgres', 'SELECT snowflake_nextval()'); $out });
	cmp_ok(id_node($id), '<', 1023, "2, wider than its field: after $number one that fits");
}

#
# 11. Others made the key beside the row: what the client was told was not what was
# stored, or the key of a statement was that of all its rows.
#
$one->safe_psql('postgres', <<'EOF');
CREATE TABLE item (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n int UNIQUE, note text);
CREATE TABLE child (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item bigint REFERENCES item);
CREATE VIEW open_item AS SELECT id, n, note FROM item;
CREATE TABLE part (id bigint DEFAULT snowflake_nextval(), n int) PARTITION BY HASH (id);
CREATE TABLE part0 PARTITION OF part FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE part1 PARTITION OF part FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE FUNCTION override() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := snowflake_nextval(); RETURN NEW; END $$;
CREATE TRIGGER override BEFORE INSERT ON item FOR EACH ROW WHEN (NEW.note = 'override') EXECUTE FUNCTION override();
CREATE FUNCTION enter(first int, last int) RETURNS TABLE (id bigint, n int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN first .. last LOOP
			INSERT INTO item (n) VALUES (i) RETURNING item.id, item.n INTO id, n;
			RETURN NEXT;
		END LOOP;
	END $$;
EOF
my %told;

sub check_stored
{
	my ($label, $rows, $sql, $table) = (@_, 'item');
	my $result = run_sql($one, "$sql;");
	my %new = map { reverse split /\|/ } grep { /^\d+\|\d+\z/ } split /\n/, $result->{out};
	my $numbers = join ',', 0, sort { $a <=> $b } keys %new;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{error}, '', "11, not read back: $label");
	is(scalar(keys %new), $rows, "11, not read back: $label, $rows rows");
	is($one->safe_psql('postgres', "SELECT n, id FROM $table WHERE n IN ($numbers) ORDER BY n"),
		join("\n", map { "$_|$new{$_}" } sort { $a <=> $b } keys %new), "11, not read back: $label, told what is stored");
	%told = (%told, map { $_ => 1 } values %new);
}

my $back = 'RETURNING id, n';
check_stored('one row', 1, "INSERT INTO item (n) VALUES (1) $back");
check_stored('several rows', 3, "INSERT INTO item (n) VALUES (2), (3), (4) $back");
check_stored('DEFAULT', 2, "INSERT INTO item VALUES (DEFAULT, 5), (DEFAULT, 6) $back");
check_stored('INSERT ... SELECT', 1000, "INSERT INTO item (n) SELECT generate_series(1001, 2000) $back");
check_stored('a batch', 100, "INSERT INTO item (id, n) SELECT id, 2000 + ordinality FROM snowflake_nextval_batch(100) WITH ORDINALITY AS b (id) $back");
check_stored('ON CONFLICT DO NOTHING', 1, "INSERT INTO item (n) VALUES (1), (7) ON CONFLICT DO NOTHING $back");
my $kept = $one->safe_psql('postgres', 'SELECT id FROM item WHERE n = 2');
check_stored('ON CONFLICT DO UPDATE', 2, "INSERT INTO item (n) VALUES (2), (8) ON CONFLICT (n) DO UPDATE SET note = 'met' $back");
is($one->safe_psql('postgres', 'SELECT id, note FROM item WHERE n = 2'), "$kept|met", '11, not read back: ON CONFLICT DO UPDATE, the old row keeps its id');
check_stored('ON CONFLICT, the new id', 2, "INSERT INTO item (n) VALUES (3), (9) ON CONFLICT (n) DO UPDATE SET id = excluded.id $back");
check_stored('UPDATE', 3, "UPDATE item SET id = DEFAULT WHERE n BETWEEN 4 AND 6 $back");
check_stored('a trigger that overrides', 3, "INSERT INTO item (n, note) VALUES (10, 'override'), (11, 'not'), (12, 'override') $back");
check_stored('a view', 2, "INSERT INTO open_item (id, n) VALUES (snowflake_nextval(), 13), (snowflake_nextval(), 14) $back");
check_stored('PL/pgSQL', 20, 'SELECT * FROM enter(3001, 3020)');
check_stored('prepared', 20, "SET plan_cache_mode = force_generic_plan; PREPARE enter (int) AS INSERT INTO item (n) VALUES (\$1), (\$1 + 100) $back;"
	  . join ';', map { "EXECUTE enter($_)" } 4001 .. 4010);
check_stored('partitions', 50, "INSERT INTO part (n) SELECT generate_series(1, 50) $back", 'part');
check_stored('a parent and its children', 30, "WITH i AS (INSERT INTO item (n) SELECT generate_series(5001, 5030) $back),
	c AS (INSERT INTO child (item) SELECT id FROM i) SELECT id, n FROM i");
is($one->safe_psql('postgres', 'SELECT count(*), count(DISTINCT c.id) FROM child c JOIN item i ON i.id = c.item WHERE n > 5000'), '30|30',
	'11, not read back: the children have their parents');
my $copied = run_sql($one, "COPY item (n) FROM STDIN;\n" . join('', map { "$_\n" } 6001 .. 7000) . "\\.\n");
is($copied->{error}, '', '11, not read back: COPY');
my @stored = split /\n/, $one->safe_psql('postgres', 'SELECT id FROM item WHERE n > 6000 ORDER BY n');
is(scalar(grep { $told{$_}++ } @stored), 0, '11, not read back: COPY, ' . @stored . ' new ids');
check_ids('11, COPY', write_ids(@stored));

$_->stop foreach $one, $two;

#
# 3, 20. Others shifted by the widths of another layout, so that fields overlapped, or let a
# batch that was larger than the rest of a tick run over into the field beside the sequence.
#
# The ids of the layout before are forgotten.
sub start_anew
{
	my (%settings) = @_;

	$three->stop('immediate');
	forget_leases($registry);
	set_conf($three, %settings);
	$three->start;
}

# Every other bit is set, so that a field in the wrong place shows.
sub number_for { return int(2**$_[0] * $_[1] / 3) }

foreach my $definition (@definitions)
{
	my @fields = fields_of($definition);
	my %bits = map { @$_ } @fields;
	my %expected = (datacenter => number_for($bits{datacenter} // 0, 1), worker => number_for($bits{worker} // 0, 2));
	my ($name, $epoch, $unit, $open) = split /\|/, $registry->safe_psql('postgres', <<EOF);
SELECT coalesce(name, definition), extract(epoch FROM epoch) * 1000, extract(epoch FROM tick) * 1000, last_id_time > now()
FROM snowflake_layout('$definition')
EOF
	next unless $bits{worker} && $open eq 't';

	my $label = "3, 20, fields overlap, $name";
	start_anew('snowflake.layout' => $definition, 'snowflake.worker_id' => $expected{worker},
		'snowflake.datacenter_id' => $bits{datacenter} ? $expected{datacenter} : undef);
	# which of its clocks it has is random
	issue_ids($three, 1);
	$expected{clock} = stat_of($three, 'node_number') & 2**($bits{clock} // 0) - 1;
	my $begin = time;
	my @rows = split /\n/, $three->safe_psql('postgres', <<EOF);
SELECT id, extract(epoch FROM "timestamp") * 1000, coalesce(datacenter_id, 0), worker_id, coalesce(clock, 0), sequence,
	snowflake_compose("timestamp", worker_id, sequence, coalesce(datacenter_id, 0), coalesce(clock, 0)) = id
FROM (SELECT snowflake_nextval() AS id FROM generate_series(1, 20)
	UNION ALL SELECT snowflake_nextval_batch((1 << $bits{sequence}) + 10)) AS d, snowflake_parse(id) AS p
EOF
	my ($first, $last) = (int(($begin * 1000 - $epoch) / $unit), int((time * 1000 + 1000 - $epoch) / $unit));
	my ($wrong, $order, $count, $borders, $previous) = ('', '', 0, 0);

	foreach my $row (@rows)
	{
		my ($id, $ms, @parsed) = split /\|/, $row;
		my ($rest, %got) = $id;

		foreach my $field (@fields)
		{
			$got{ $field->[0] } = $rest & 2**$field->[1] - 1;
			$rest >>= $field->[1];
		}
		$wrong ||= $row unless $rest == 0 && $got{timestamp} >= $first && $got{timestamp} <= $last
		  && !grep { ($got{$_} // 0) != $expected{$_} } keys %expected;
		$wrong ||= "parsed: $row" unless $ms == $got{timestamp} * $unit + $epoch
		  && "@parsed" eq join(' ', (map { $expected{$_} } 'datacenter', 'worker', 'clock'), $got{sequence}, 't');
		if ($previous)
		{
			my ($tick, $sequence) = @$previous;
			my $same = $got{timestamp} == $tick && $got{sequence} == $sequence + 1;
			my $next = $got{timestamp} > $tick && $got{sequence} < 16;

			# a batch leaves a tick when it is used up; single calls also when the clock does
			$order ||= $row unless $same || $next;
			$borders++ if $next;
		}
		$previous = [ @got{ 'timestamp', 'sequence' } ];
		$count++;
	}
	is($count, 2**$bits{sequence} + 30, "$label: all ids");
	is($wrong, '', "$label: each has the server's number and the time, and parses to them");
	is($order, '', "$label: each is the next one, also over the border of a tick");
	cmp_ok($borders, '>=', 1, "$label: a border was crossed");
}

#
# 9. Others read the epoch in the zone of the session that started the server, or printed it: ids
# moved by hours with it.
#
# The epoch is in an hour that this zone has had twice.
my $zone = 'America/New_York';
{
	local $ENV{TZ} = $zone;
	start_anew('snowflake.layout' => 'twitter, epoch 2015-11-01T01:30:00-05:00', 'snowflake.worker_id' => 3,
		'snowflake.datacenter_id' => undef, TimeZone => $zone, log_timezone => $zone);
}
sub zoned_time { return ($_[0] >> 22) / 1000 + 1446359400 }

my $begin = time;
my @zoned = split /\n/, $three->safe_psql('postgres', join '', map { <<EOF } $zone, 'UTC', 'Asia/Kathmandu', 'Europe/London', 'Pacific/Kiritimati');
SET TimeZone = '$_';
SELECT snowflake_nextval();
SELECT snowflake_nextval_batch(3);
EOF
my $end = time;
check_ids('9, local zone: issued in five zones', write_ids(@zoned));
cmp_ok(zoned_time($zoned[0]), '>', $begin - 0.002, '9, local zone: they have the time of the clock');
cmp_ok(zoned_time($zoned[-1]), '<', $end + 1.002, '9, local zone: all of them');
foreach my $reader ('UTC', $zone)
{
	my $read = $three->safe_psql('postgres', "SET TimeZone = '$reader'; SELECT extract(epoch FROM snowflake_timestamp($zoned[0]))");

	cmp_ok(abs($read - zoned_time($zoned[0])), '<', 0.001, "9, local zone: read in $reader, the same");
}
is($three->safe_psql('postgres', <<'EOF'), 3600, '9, local zone: two epochs of the same time of day are an hour apart');
SELECT extract(epoch FROM a.epoch - b.epoch)::int
FROM snowflake_layout('twitter, epoch 2015-11-01T01:30:00-05:00') AS a, snowflake_layout('twitter, epoch 2015-11-01T01:30:00-04:00') AS b
EOF
like(sql_error($three, "SELECT snowflake_layout('twitter, epoch 2015-11-01T01:30:00')"), qr/^ERROR:  22023: .*\nDETAIL:  .*with a zone/,
	'9, local zone: an epoch without a zone is refused');
$_->stop foreach $three, $registry;

done_testing();
