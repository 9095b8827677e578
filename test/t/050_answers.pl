# 050_answers.pl
#	  What a registry answers is not trusted: a server that only speaks the protocol sends
#	  rows, columns, errors and settings without end, values that are none, errors without
#	  an SQLSTATE, and texts that would write on a terminal.  No process of ours takes much memory, the error says what was wrong, all
#	  of it is printable, and ids go on when the registry is right again.  A registry that is
#	  down, and in its place another one that grants and renews what no registry would, does
#	  harm for one lease at most.  Also: the address that is
#	  shown is that of the registry which is asked, and a connection string that gives its
#	  password to anybody is warned of.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeRegistry;
use IO::Select;
use IO::Socket::UNIX;
use PostgreSQL::Test::Utils;
use Socket;

use constant PORT => 6543;
use constant MB => 1024 * 1024;
# Of any process that reads answers.
use constant MOST_KB => 110_000;

#
# The server: each connection does what the file "mode" says then
#
my $directory = PostgreSQL::Test::Utils::tempdir_short();
chmod 0755, $directory;
my %peak;

sub message
{
	my ($type, $body) = @_;

	return $type . pack('N', 4 + length $body) . $body;
}

sub columns
{
	return message('T', pack('n', scalar @_) . join '', map { "c\0" . pack('NnNnNn', 0, 0, 25, 65535, 0xffffffff, 0) } @_);
}

sub row
{
	return message('D', pack('n', scalar @_) . join '', map { defined $_ ? pack('N', length) . $_ : pack 'N', 0xffffffff } @_);
}

sub table
{
	return columns(@{ $_[0] }) . join('', map { row(@$_) } @_) . message('C', "SELECT 1\0");
}

sub error_response
{
	my %fields = @_;

	return message('E', join '', (map { "$_$fields{$_}\0" } sort keys %fields), "\0");
}

sub read_bytes
{
	my ($socket, $length) = @_;
	my $bytes = '';

	while (length $bytes < $length)
	{
		sysread $socket, $bytes, $length - length $bytes, length $bytes or return;
	}
	return $bytes;
}

# How much memory the process at the other end has had.
sub note_peak
{
	my ($socket) = @_;
	my ($pid) = unpack 'i', getsockopt($socket, SOL_SOCKET, 17);	# SO_PEERCRED
	my $status = eval { slurp_file("/proc/$pid/status") } // '';

	return unless $status =~ /^VmHWM:\s+(\d+) kB/m && $1 > ($peak{max} // 0);
	$peak{max} = $1;
	append_to_file("$directory/peaks", "$1\n");
}

# Sends it, or as much as the other end reads.
sub put
{
	my ($socket, $bytes) = @_;

	for (my $sent = 0; $sent < length $bytes;)
	{
		my $n = syswrite $socket, $bytes, MB, $sent;

		return 0 unless $n;
		$sent += $n;
		note_peak($socket) if length $bytes > MB / 2;
	}
	return 1;
}

# The same again and again.
sub flood
{
	my ($socket, $times, $bytes) = @_;

	while ($times-- > 0)
	{
		return 0 unless put($socket, $bytes);
	}
	return 1;
}

sub now_us
{
	return time() * 1_000_000;
}

sub answer_begin
{
	my ($socket, $mode) = @_;
	my $fine = message('C', "BEGIN\0") . table(['on']) . table([ 't', '', 'warning', '3500ms', '4s', '2s' ]);

	return flood($socket, 2000, join '', map { message('S', "name$_" . rand() . "\0" . 'x' x 10_000 . "\0") } 1 .. 60) if $mode eq 'settings';
	return put($socket, message('H', "\0" . pack 'n', 0) . message('d', 'x')) if $mode eq 'copy';
	return put($socket, message('C', "BEGIN\0")) if $mode eq 'no row';
	return put($socket, $fine);
}

# The values of an answer, as the statement takes them out: a lease, but for those that are given.
sub answer
{
	my ($query, %values) = @_;

	%values = (answer => 'yes', token => '9b2f9f43-8f4a-4d6e-9a55-0e7bb0d7e1aa', incarnation => '9b2f9f43-8f4a-4d6e-9a55-0e7bb0d7e1ab', generation => 1,
		clock => now_us(), node_number => 7, starts_at => now_us(), leased_until => now_us() + 3_000_000, %values);
	return table([ map { $values{$_} } $query =~ /->>\) '(\w+)'/g ]);
}

sub answer_query
{
	my ($socket, $mode, $query, @parameters) = @_;
	my ($kind, $rest) = $mode =~ /^([^:]*):?(.*)$/s;

	return put($socket, '1' . pack('N', 4) . '2' . pack('N', 4)) && put($socket, columns(1)) &&
	  put($socket, 'D' . pack('Nn', 4 + 2 + 4 + 300 * MB, 1) . pack('N', 300 * MB)) && flood($socket, 300, 'x' x MB) if $kind eq 'column';
	put($socket, message('1', '') . message('2', ''));
	return put($socket, columns(1)) && flood($socket, 720, row('x' x MB)) if $kind eq 'rows';
	return put($socket, columns(1)) && flood($socket, 3000, row('x' x 1000) x 1000) if $kind eq 'short rows';
	return put($socket, 'E' . pack('N', 4 + 300 * MB) . 'SERROR' . "\0C55000\0M") && flood($socket, 300, 'x' x MB) if $kind eq 'long error';
	return put($socket, error_response(eval $rest)) if $kind eq 'error';
	if ($kind eq 'once' || $kind eq 'always')
	{
		my ($function, %values) = eval $rest;

		return put($socket, error_response(S => 'ERROR', C => '55000', M => 'not this one')) unless $query =~ /\.$function\(/;
		set_mode('refuse') if $kind eq 'once';
		return put($socket, answer($query, %values));
	}
	# not a lease: the node would record that it uses this registry
	return put($socket, error_response(S => 'ERROR', C => '55000', M => 'no lease here')) if $kind eq 'version';
	return put($socket, answer($query, $kind eq 'value' ? $rest =~ /^(\w+) (.*)$/s : $kind eq 'answer' ? eval $rest : ()));
}

sub serve
{
	my ($socket) = @_;
	my $mode = slurp_file("$directory/mode");
	my ($query, @parameters) = '';

	for (;;)
	{
		my $length = unpack 'N', read_bytes($socket, 4) // return;
		my $startup = read_bytes($socket, $length - 4) // return;

		last unless unpack('N', $startup) =~ /^8087710[34]$/;
		put($socket, 'N');
	}
	if ($mode eq 'hang')
	{
		read_bytes($socket, 1);
		return;
	}
	if ($mode eq 'refuse')
	{
		put($socket, error_response(S => 'FATAL', C => '28000', M => 'nobody may come in'));
		return;
	}
	if ($mode eq 'long refusal')
	{
		put($socket, error_response(S => 'FATAL', C => '28000', M => "\xc3\xa9" x 10_000 . 'end'));
		return;
	}
	if ($mode eq 'no memory')
	{
		# lc_messages of that server is not English
		put($socket, error_response(S => 'SCHWERWIEGEND', V => 'FATAL', C => '53200',
				M => 'could not fork new process for connection: Cannot allocate memory'));
		return;
	}
	if ($mode eq 'notice')
	{
		put($socket, message('R', pack 'N', 0) . message('N', "SNOTICE\0C00000\0Ma notice\e[31m\0\0")
			. error_response(S => 'FATAL', C => '28000', M => "not\e[31m yet"));
		return;
	}
	if ($mode eq 'password')
	{
		put($socket, message('R', pack 'N', 3));	# a password in clear text
		read_bytes($socket, 1);
		return;
	}
	if ($mode eq 'read-only')
	{
		put($socket, message('R', pack 'N', 0) . message('S', "server_version\00015.0\0") . message('S', "in_hot_standby\0off\0")
			. message('S', "default_transaction_read_only\0on\0") . message('Z', 'I'));
		read_bytes($socket, 1);
		return;
	}
	my $version = $mode =~ /^version:(.*)/ ? $1 : '15.0';
	put($socket, message('R', pack 'N', 0) . message('S', "server_version\0$version\0") . message('Z', 'I'));
	for (;;)
	{
		my $type = read_bytes($socket, 1) // return;
		my $body = read_bytes($socket, unpack('N', read_bytes($socket, 4) // return) - 4) // return;

		if ($type eq 'Q')
		{
			append_to_file("$directory/queries", "$mode $body\n");
			if ($body =~ /^COMMIT/)
			{
				put($socket, message('C', "COMMIT\0")) or return;
			}
			else
			{
				answer_begin($socket, $mode) or return;
			}
		}
		elsif ($type eq 'P')
		{
			($query) = $body =~ /^\0([^\0]*)/;
		}
		elsif ($type eq 'B')
		{
			my ($formats, $rest) = unpack 'x2 n/(n) a*', $body;

			@parameters = ();
			# no formats: all are text
			$body = substr $body, 4;
			my $number = unpack 'n', $body;
			$body = substr $body, 2;
			while ($number-- > 0)
			{
				my $length = unpack 'l>', $body;

				push @parameters, $length < 0 ? undef : substr $body, 4, $length;
				$body = substr $body, 4 + ($length < 0 ? 0 : $length);
			}
		}
		elsif ($type eq 'S')
		{
			answer_query($socket, $mode, $query, @parameters) or return;
			# an error is read to its end, or a true server would log that it could not send the rest
			if ($mode =~ /^error:/ && IO::Select->new($socket)->can_read(0.3))
			{
				append_to_file("$directory/early", "$mode\n") if (read_bytes($socket, 1) // '') eq 'X';
				return;
			}
		}
		put($socket, message('Z', 'T')) or return if $type eq 'Q' || $type eq 'S';
	}
}

my $listener = IO::Socket::UNIX->new(Local => "$directory/.s.PGSQL." . PORT, Listen => 10) or die "listen: $!";
chmod 0777, "$directory/.s.PGSQL." . PORT;
my $server = fork // die "fork: $!";
if ($server == 0)
{
	$SIG{PIPE} = 'IGNORE';
	while (my $socket = $listener->accept)
	{
		eval { serve($socket) };
		append_to_file("$directory/deaths", $@) if $@;
		close $socket;
	}
	POSIX::_exit(0);
}
close $listener;

END
{
	local $?;
	kill 9, $server if $server;
}

sub set_mode
{
	my ($mode) = @_;
	open my $file, '>', "$directory/mode.new" or die "mode: $!";

	print $file $mode;
	close $file;
	rename "$directory/mode.new", "$directory/mode";
}

#
# A node that has used a real registry
#
my $registry = new_registry('registry');
my $conninfo = conninfo_of($registry);
my $false = "host=$directory port=" . PORT;
my $node = new_member('node', $conninfo, conf => "snowflake.max_wait = '2s'\n");
my $greatest = next_id();

# On a machine that is busy the first call may fail.
sub next_id
{
	return poll('an id', sub { my ($status, $id) = $node->psql('postgres', 'SELECT snowflake_nextval()'); $id });
}

sub ask
{
	return sql_error($node, "SET snowflake.max_wait = '100ms'; SELECT snowflake_nextval()");
}

sub check_error
{
	my ($label, $mode, $error) = @_;
	my $text;

	set_mode($mode);
	eval { poll('the error', sub { ($text = ask()) =~ $error }) };
	like($text, $error, $label);
	return $text;
}

sub use_registry
{
	my ($value) = @_;

	set_and_reload($node, 'snowflake.registry' => $value);
	poll('the setting', sub { $node->safe_psql('postgres', 'SHOW snowflake.registry') eq $value =~ s/''/'/gr });
}

sub check_goes_on
{
	my ($label) = @_;

	use_registry($conninfo);
	poll("$label: ids", sub { ask() eq '' });
	my $id = next_id();
	cmp_ok($id, '>', $greatest, "$label: ids go on when the registry is right");
	$greatest = $id;
	use_registry($false);
}

# That others may read.
sub write_open_file
{
	my ($name, $text) = @_;

	append_to_file($name, $text);
	chmod 0644, $name;
}

# In kB
sub peak_of_helper
{
	return slurp_file('/proc/' . helper_pid($node) . '/status') =~ /^VmHWM:\s+(\d+) kB/m ? $1 : 0;
}

#
# The address
#
set_mode('hang');
use_registry($false);
my $false_name = "$directory:" . PORT . '/postgres';
is(settle($false_name, sub { stat_of($node, 'registry') }), $false_name, 'after a reload the view has the address of the new registry');
my @names;
poll('the error', sub { push @names, ask() =~ /^ERROR:  55P03: .* the registry (.*)$/m; @names > 3 });
is(join(',', @names), join(',', ($false_name) x @names), 'and so has the error, before that has answered');
check_error('a server that lets nobody in', 'refuse', qr/^ERROR:  55P03: could not reach the registry \Q$false_name\E\nDETAIL:  .*nobody may come in/);
use_registry("host=/nowhere,/neither port=" . PORT);
check_error('of several hosts all that have failed', 'refuse',
	qr/^ERROR:  55P03: could not reach the registry \/nowhere,\/neither:6543\/postgres\nDETAIL:  .*nowhere.*neither/);
# Of many the last reasons, after a mark; whatever the others are.
my $read_only = qr/connection to server on socket "\Q$directory\E\/\.s\.PGSQL\.6543" failed: session is read-only/;
my $no_host = qr/connection to server on socket "[^"]*" failed: No such file or directory  Is the server running locally and accepting connections on that socket\?/;
foreach my $case ([ 1, qr/(?:$no_host )/ ], [ 9, qr/\.\.\. .*?(?:$no_host )+/ ])
{
	my ($number, $others) = @$case;

	use_registry('host=' . join(',', map { "/nowhere/$_" } 1 .. $number) . ",$directory port=" . PORT . ' target_session_attrs=read-write');
	my $text = check_error("$number hosts that are not there, and a read-only one: its reason is kept", 'read-only',
		qr/^ERROR:  55P03: could not reach the registry \S+\nDETAIL:  $others$read_only\nHINT:  Check snowflake\.registry, /);
	my ($detail) = $text =~ /^DETAIL:  (.*)$/m;
	cmp_ok(length $detail, '<', 512, "$number hosts: of the detail 511 bytes are kept");
}
# One reason that is longer is cut, too.
use_registry($false);
check_error('a long reason', 'long refusal', qr/^DETAIL:  \.\.\. \?{250,253}end\nHINT:  /m);
use_registry("host=/nowhere,$directory port=" . PORT);
check_error('the host that has answered with an error', "error:(S => 'ERROR', C => '55000', M => 'this host')",
	qr/^ERROR:  55000: this host\nDETAIL:  The registry is \Q$false_name\E\.\n/);
# A registry is told apart by what it does: no word of its name, or of what is said of it, matters.
foreach my $host ('/nowhere/memory-db', '/FATAL/out of memory')
{
	use_registry("host=''$host'' port=" . PORT);
	check_error("nothing listens at $host", 'refuse', qr/^ERROR:  55P03: could not reach the registry $host:6543\/postgres\nDETAIL:  .*No such file or directory/);
}
use_registry($false);
check_error('a server that has no memory for us', 'no memory',
	qr/^ERROR:  55P03: could not reach the registry \Q$false_name\E\nDETAIL:  .*SCHWERWIEGEND:  could not fork new process for connection: Cannot allocate memory\nHINT:  Check snowflake\.registry, /);
check_goes_on('addresses');

#
# Without end
#
my $long = qr/^ERROR:  55P03: the answer of the registry is longer than 64 kB\nDETAIL:  The registry is \Q$false_name\E\.\nHINT:  See which server answers there/;
# Of one message that does not fit into its memory, libpq has only told that it gives up.
my $too_much = qr/^ERROR:  55P03: could not reach the registry \Q$false_name\E\nDETAIL:  .*\nHINT:  Check snowflake\.registry, /;
foreach my $case ([ 'a column of 300 MB', 'column', $too_much ], [ '720 MB of rows', 'rows', $long ], [ '3 GB of short rows', 'short rows', $long ],
	[ 'an error of 300 MB', 'long error', $too_much ], [ '1.2 GB of settings', 'settings', $too_much ])
{
	my ($label, $mode, $error) = @$case;

	# it was another error before
	check_error("before $label", "error:(S => 'ERROR', C => '55000', M => 'before $mode')", qr/before $mode/);
	check_error($label, $mode, $error);
}
my $peak = peak_of_helper();
cmp_ok($peak, '>', 1000, 'memory of the helper was seen');
cmp_ok($peak, '<', MOST_KB, 'and is little, in kB');
my @peaks = eval { split /\n/, slurp_file("$directory/peaks") };
cmp_ok($peaks[-1], '>', 1000, 'memory of what it reads with was seen');
cmp_ok($peaks[-1], '<', MOST_KB, 'and is little, in kB');
check_goes_on('without end');

#
# Something else than what was asked for
#
check_error('no row after BEGIN', 'no row', qr/^ERROR:  55P03: schema "snowflake" does not exist\n/);
check_error('COPY', 'copy', qr/^ERROR:  55P03: could not reach the registry .*\nDETAIL:  It sent something else than the result of a statement\./);
my $not_valid = qr/^ERROR:  55P03: the answer of the registry is not valid\nDETAIL:  /;
foreach my $case ([ node_number => '', 'NaN', ' 12', '1e3', '+1', '-1', '9223372036854775808', "1\0" ],
	[ token => '', '{9b2f9f43-8f4a-4d6e-9a55-0e7bb0d7e1aa}', '9b2f9f43-8f4a-4d6e-9a55-0e7bb0d7e1ag' ],
	[ incarnation => "9b2f9f43\t8f4a-4d6e-9a55-0e7bb0d7e1aa" ],
	[ generation => '0', '2147483648', '1.0' ],
	[ clock => 'now', '253402300800000000' ],
	[ starts_at => 'infinity', '-62135596800000001', '1e15' ],
	[ leased_until => '253402300800000000', '-9223372036854775808', '' ],
	[ answer => 'no', 'maybe', '' ])
{
	my ($name, @values) = @$case;

	foreach my $value (@values)
	{
		my $shown = $value =~ s/[^ -~]/?/gr;

		check_error("$name is \"$shown\"", "value:$name $value", qr/${not_valid}It has "\Q$shown\E" for $name\./);
	}
}
isnt(stat_of($node, 'node_number'), 7, 'the number that was sent is not used');
foreach my $case ([ sqlstate => '', '00000', '01000', '02000', 'abc', '550000', 'xx000', "55\t00" ], [ message => undef ], [ wait => '', '-1', '10000001', 'soon', '1e3' ])
{
	my ($name, @values) = @$case;

	foreach my $value (@values)
	{
		my $shown = defined $value ? '"' . $value =~ s/[^ -~]/?/gr . '"' : 'NULL';
		my %refused = (sqlstate => '55000', message => 'not now', wait => 1_000_000, $name => $value);
		my $mode = join ', ', "answer => 'refused'", map { "$_ => " . (defined $refused{$_} ? "\"$refused{$_}\"" : 'undef') } sort keys %refused;

		check_error("refused, and $name is $shown", "answer:($mode)", qr/${not_valid}It has \Q$shown\E for $name\./);
	}
}
foreach my $sqlstate ('00000', '02000', 'abc', '550000', 'xx000')
{
	check_error("SQLSTATE \"$sqlstate\"", "error:(S => 'ERROR', C => '$sqlstate', M => 'no state $sqlstate')",
		qr/^ERROR:  55P03: no state $sqlstate\nDETAIL:  The registry is/);
}
check_error('no SQLSTATE', "error:(S => 'ERROR', M => 'nothing else')", qr/^ERROR:  55P03: nothing else\nDETAIL:  The registry is/);
check_goes_on('something else');

#
# Printable
#
$node->restart;		# which may log again: there were many errors
my $offset = log_end($node);
check_error('an error that writes on a terminal', q{error:(S => 'ERROR', C => '55000', M => "bad\e[31m\nFATAL:  text\x07",
	D => "d\xc3\xa9tail\r\x9b\xff\xfe.", H => "h\x{7f}")}, qr/^ERROR:  55000: bad\?\[31m\?FATAL:  text\?\nDETAIL:  d\?tail\?{4}\.\nHINT:  h\?\n/);
poll('the line', sub { log_since($node, $offset) =~ /WARNING:  55000: snowflake: bad\?\[31m\?FATAL:  text\?\n.*DETAIL:  d\?tail\?{4}\. The registry is \Q$directory\E:@{[ PORT ]}\/postgres\.\n/ });
check_error('a refusal that does', q{answer:(answer => 'refused', wait => 0, sqlstate => '55000', message => "worse\e[31m\nFATAL:  text\x07",
	detail => "d\xc3\xa9tail\r\x9b\xff\xfe.", hint => "h\x{7f}")}, qr/^ERROR:  55000: worse\?\[31m\?FATAL:  text\?\nDETAIL:  d\?tail\?{4}\.\nHINT:  h\?\n/);
check_error('a refusal for longer than a call may wait', q{answer:(answer => 'refused', wait => 9_900_000, sqlstate => '55000', message => 'not now')},
	qr/^ERROR:  55000: not now\n/);
poll('a call that fails without a wait', sub {
		my $waited = stat_of($node, 'wait_time');
		sql_error($node, "SET snowflake.max_wait = '1s'; SELECT snowflake_nextval()") =~ /not now/ && stat_of($node, 'wait_time') eq $waited });
check_error('one that lets nobody in, after a notice', 'notice', qr/^ERROR:  55P03: could not reach the registry .*\nDETAIL:  connection to .* failed: FATAL:  not\?\[31m yet$/m);
unlike(log_since($node, $offset), qr/a notice/, 'which does not come into the log');
write_open_file("$directory/passwords", "*:*:*:*:secret\n");
use_registry("$false passfile=$directory/passwords");
check_error('a password file that others may read', 'password',
	qr/^ERROR:  55P03: could not reach the registry .*\nDETAIL:  WARNING: password file "\S+" has group or world access.*no password supplied$/m);
use_registry("host=''/tmp/\e[2J'' port=1");
check_error('a host that does', 'hang', qr{^ERROR:  55P03: could not reach the registry /tmp/\?\[2J:1/postgres\nDETAIL:  .*\?\[2J});
is(stat_of($node, 'registry'), '/tmp/?[2J:1/postgres', 'in the view, too');
my $log = join "\n", grep { !/parameter "snowflake\.registry" changed/ } split /\n/, log_since($node, $offset);
unlike($log, qr/[^ -~\n\t]/, 'nothing else is in the log');
use_registry($false);
foreach my $case ([ 'an error', q{error:(S => 'ERROR', C => '55000', M => "long " . "\xc3\xa9" x 400, D => 'd' x 5000, H => 'h' x 5000)}, qr/long \?{250}\n/ ],
	[ 'a refusal', q{answer:(answer => 'refused', sqlstate => '55000', wait => 0, message => "also " . "\xc3\xa9" x 400, detail => 'd' x 5000, hint => 'h' x 5000)},
		qr/also \?{250}\n/ ])
{
	my ($label, $mode, $pattern) = @$case;
	my $text = check_error("$label that is long", $mode, $pattern);
	my $kept = join '', $text =~ /^ERROR:  55000: (.*)\nDETAIL:  (.*)\nHINT:  (.*)\n/;

	cmp_ok(length $kept, '<=', 1536, "of $label 1.5 kB are kept");
	cmp_ok(length $kept, '>', 900, 'and not much less');
}
check_goes_on('printable');

#
# In place of a registry that is down, a false one
#
my $uuid = '9b2f9f43-8f4a-4d6e-9a55-0e7bb0d7e1aa';
my $late = 253402300799999999;		# the last microsecond of the year 9999
my $incarnation = incarnation_of($registry);
my @true = (incarnation => $incarnation, generation => 1);

sub number
{
	return stat_of($node, 'node_number');
}

# Microseconds since 1970
sub end_of_lease
{
	return stat_of($node, '(extract(epoch FROM leased_until) * 1000000)::bigint');
}

sub end_of_row
{
	return registry_row($registry, $node, '(extract(epoch FROM leased_until) * 1000000)::bigint');
}

# The clock goes on meanwhile.
sub check_end
{
	my ($label) = @_;

	is(stat_of($node, "leased_until <= clock_timestamp() + interval '3 s'"), 't', "$label: the node takes no later end than it asked for");
}

# The false registry answers a call of this function with these values, once or always; the true one is down.
sub answer_falsely
{
	my ($times, @answer) = @_;

	set_mode("$times:(" . join(', ', map { "'$_'" } @answer) . ')');
}

# The registry is there again: what the node may issue is on record, so nobody else gets the number.
sub check_true_registry
{
	my ($label) = @_;

	$registry->start;
	poll("$label: a lease on record", sub {
			my $end = (ask() eq '' && end_of_lease()) || 0;

			$end > 0 && number() eq registry_row($registry, $node, 'node_number') && end_of_row() >= $end });
	my ($row, $seen) = (end_of_row(), end_of_lease());
	poll("$label: renewals", sub { end_of_lease() > $seen && end_of_row() > $row });
	my $id = next_id();
	cmp_ok($id, '>', $greatest, "$label: the node renews by itself, and ids go on");
	my $end = end_of_lease();
	cmp_ok(end_of_row(), '>=', $end, "$label: the registry knows of all that the node may issue");
	$greatest = $id;
}

use_registry('host=' . $registry->host . ",$directory port=" . $registry->port . ',' . PORT);
set_mode('refuse');
poll('ids', sub { ask() eq '' });
poll('the host', sub { stat_of($node, 'registry') eq name_of($registry) });

my $number = number();
$registry->stop;
my $renewals = stat_of($node, 'lease_renewals');
answer_falsely('once', 'renew_lease', @true, leased_until => $late);
poll('a renewal', sub { stat_of($node, 'lease_renewals') > $renewals });
check_end('a renewal until 9999');
is(number(), $number, 'a renewal until 9999: the number is the same');
check_true_registry('a renewal until 9999');

# In an odd generation no registry grants number 7.
$registry->stop;
$node->safe_psql('postgres', 'SELECT snowflake_release()');
answer_falsely('once', 'acquire_lease', @true, starts_at => now_us() - 1_000_000, leased_until => $late);
poll('the number', sub { ask(); number() eq '7' });
check_end('a grant until 9999');
check_true_registry('a grant until 9999');
isnt(number(), 7, 'a grant until 9999: another number follows');
# by then both leases were later than the registry knew
is(guards($registry), 'rolled back 2', 'the true registry has noticed each');

# What no registry grants: a number again, before its ids end; by another incarnation, or a later generation, before
# any ids end; a start in a year to come.
my $text_of_time = qr/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d(?::\d\d)?/;
my $day = 86_400_000_000;
$registry->stop;
$node->safe_psql('postgres', 'SELECT snowflake_release()');
foreach my $case ([ 'the number again', $incarnation, 1, id_node($greatest), -$day, qr/ids of this server end at $text_of_time/ ],
	[ 'another incarnation', $uuid, 1, 9, -$day, qr/ids of this server end at $text_of_time/ ],
	[ 'another generation', $incarnation, 2, 9, -$day, qr/ids of this server end at $text_of_time/ ],
	[ 'a start to come', $incarnation, 1, 9, $day, qr/asked for was one that starts at or before $text_of_time/ ])
{
	my ($label, $incarnation, $generation, $number, $start, $detail) = @$case;
	my $error;

	answer_falsely('always', 'acquire_lease', incarnation => $incarnation, generation => $generation, node_number => $number,
		starts_at => now_us() + $start, leased_until => now_us() + 2 * $day);
	# the last one may be shown once more
	poll("$label: the error", sub { ($error = ask()) =~ /not asked for.*$detail/s });
	like($error, qr/^ERROR:  55000: the registry granted a lease that was not asked for\nDETAIL:  The lease starts at $text_of_time; $detail\.\nHINT:  See which server answers there, and whether somebody has changed the functions in its schema snowflake\.\n/,
		"$label: the error");
	is(number(), '', "$label: it is not taken");
}
check_true_registry('not asked for');
use_registry($false);

#
# Limits of the role
#
foreach my $case ([ '15.9', 0 ], [ '17.0', 1 ])
{
	my ($version, $expected) = @$case;

	set_mode("version:$version");
	poll('a call', sub { ask(); slurp_file("$directory/queries") =~ /^version:\Q$version\E BEGIN/m });
	my ($begin) = slurp_file("$directory/queries") =~ /^version:\Q$version\E (BEGIN.*)/m;
	is($begin =~ /SET LOCAL transaction_timeout = 0;/ ? 1 : 0, $expected, "PostgreSQL $version: transaction_timeout");
}
check_goes_on('limits');
is(eval { slurp_file("$directory/deaths") } // '', '', 'the false server has done what it should');
is(eval { slurp_file("$directory/early") } // '', '', 'errors are read to their end');

# The error says that it was a lock, not how long a statement took.
my $locked = qr/a table of the schema snowflake is locked\n(?:DETAIL:  .*\n)?HINT:  See what holds a lock/;
{
	use_registry($conninfo);
	my $lock = $registry->background_psql('postgres');
	$lock->query_safe('BEGIN; LOCK TABLE snowflake.node_number');
	check_error('a locked table of the registry', 'hang', $locked);
	$lock->query_safe('ROLLBACK');
	$lock->quit;
}

SKIP:
{
	skip 'no transaction_timeout before PostgreSQL 17', 2 unless $node->safe_psql('postgres', "SELECT current_setting('transaction_timeout', true)") ne '';

	use_registry($conninfo);
	$registry->safe_psql('postgres', "ALTER DATABASE postgres SET transaction_timeout = '1s'");
	my $lock = $registry->background_psql('postgres');
	$lock->query_safe('SET transaction_timeout = 0; BEGIN; LOCK TABLE snowflake.node_number');
	check_error("a role's transaction_timeout", 'hang', $locked);
	$lock->query_safe('ROLLBACK');
	$lock->quit;

	my $own = new_node('own', tables => 1, conf => "transaction_timeout = '1s'\nsnowflake.max_wait = '100ms'\n");
	$lock = $own->background_psql('postgres');
	$lock->query_safe('SET transaction_timeout = 0; BEGIN; LOCK TABLE snowflake.node_number');
	my $error;
	eval { poll('the error', sub { ($error = sql_error($own, 'SELECT snowflake_nextval()')) =~ $locked }) };
	like($error, $locked, 'the transaction_timeout of the server');
	$lock->query_safe('ROLLBACK');
	$lock->quit;
	$own->stop;
}

#
# Passwords
#
my $waits = 100;

# The next reload must not read a file that is being written.
sub warnings_of
{
	my ($value) = @_;
	my $from = log_end($node);

	use_registry($value) if defined $value;
	$waits++;
	set_and_reload($node, 'snowflake.max_wait' => "${waits}ms");
	poll('the reload', sub { $node->safe_psql('postgres', 'SHOW snowflake.max_wait') eq "${waits}ms" });
	return scalar(() = log_since($node, $from) =~ /WARNING:  01000: snowflake\.registry has a passfile, and nothing that checks the server\n/g);
}

my $file = 'passfile=/nowhere';
foreach my $trusting ("host=192.0.2.1 $file", "host=192.0.2.1 $file sslmode=prefer", "host=192.0.2.1 $file sslmode=require",
	"host=192.0.2.1 $file sslmode=require sslrootcert=/nowhere", "host=192.0.2.1 $file channel_binding=prefer",
	"host=/tmp,192.0.2.1 $file", "hostaddr=192.0.2.1 host=localhost $file", "host=127.example $file", "postgresql://192.0.2.1/?$file")
{
	is(warnings_of($trusting), 1, "a warning: $trusting");
	is(warnings_of(), 0, "once: $trusting");
}
foreach my $fine ("host=192.0.2.1 $file sslmode=verify-full", "host=192.0.2.1 $file sslmode=verify-ca",
	"host=192.0.2.1 $file channel_binding=require", "host=192.0.2.1", "host=/tmp $file", "host=localhost $file", "host=127.1.2.3,::1 $file",
	"hostaddr=127.0.0.1 host=192.0.2.1 $file", $file, "service=nowhere $file")
{
	is(warnings_of($fine), 0, "no warning: $fine");
}
set_conf($node, 'snowflake.registry' => "host=192.0.2.1 $file");
$offset = log_end($node);
$node->restart;
is(scalar(() = log_since($node, $offset) =~ /snowflake\.registry has a passfile/g), 1, 'a warning at the start');
$node->stop;
$registry->stop;

done_testing();
