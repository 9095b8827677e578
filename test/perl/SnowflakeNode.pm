# SnowflakeNode.pm
#	  A node in Perl, that calls the protocol of snowflake_registry (doc/protocol.md).
#
#	  add_caller(SERVER, DATABASE)
#						what the calls need in the database, postgres if none is given: function
#						ask(), which adds the server's clock to a call
#	  SnowflakeNode->new(N)	a node, of a layout with 4 worker bits
#	  ->acquire(SERVER, KEY => VALUE, ...)
#						asks for a lease, with these keys besides; returns the answer, or
#						{ error => TEXT }
#	  refusal(ANSWER)	"SQLSTATE: message\nDETAIL:  detail\nHINT:  hint" if the answer is refused, else
#						"ERROR:  ..." or the answer
#	  ->renew(SERVER)	renews the lease; after a no it seals, and has none
#	  ->seal			no more ids of the lease
#	  ->crash			a new start
#	  ->spans			the leases that it had: [number, start, end, label]: all the ids that it may
#						have issued, as far as it goes by the protocol
#	  overlaps(NODES)	texts, of spans of one number that overlap
package SnowflakeNode;

use strict;
use warnings;

use Exporter 'import';
use SnowflakeTest ();
use JSON::PP ();
use Time::HiRes qw(time);

our @EXPORT = qw(add_caller overlaps refusal);

use constant {
	MAX_AHEAD => 1_000_000,
	WINDOW => 3_000_000,
	LAYOUT => 'timestamp 41, worker 4, sequence 4, tick 1ms, epoch 2024-01-01T00:00:00Z',
};

my $json = JSON::PP->new->canonical;

sub add_caller
{
	my ($server, $database) = @_;

	$server->safe_psql($database // 'postgres', <<'SQL');
CREATE FUNCTION ask(function text, call jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	answer jsonb;
BEGIN
	EXECUTE format('SELECT snowflake.%I($1)', function) INTO answer
		USING call || jsonb_build_object('clock', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
	RETURN answer;
END
$$;
SQL
}

sub new
{
	my ($class, $n) = @_;
	my $self = bless { n => $n, starts => 0, done => [], last_number => 14 }, $class;

	$self->crash;
	return $self;
}

sub crash
{
	my ($self) = @_;

	$self->close_span($self->{lease}{until}) if $self->{lease};
	$self->{start} = sprintf '%08d-0000-4000-8000-%012d', $self->{n}, ++$self->{starts};
	$self->{calls} = 0;
	delete @$self{qw(lease opened ids_end_at)};
}

sub now
{
	return int(time * 1_000_000);
}

# One call; its result counts.
sub ask
{
	my ($self, $server, $function, %keys) = @_;
	my $call = $json->encode({
		protocol => 1, start => $self->{start}, call => ++$self->{calls}, layout => LAYOUT, max_ahead => MAX_AHEAD, window => WINDOW, %keys });
	my ($status, $out, $error) = $server->psql('postgres', "SELECT ask('$function', '$call')", extra_params => [ '-v', 'VERBOSITY=verbose' ]);

	$error =~ s/^psql:<stdin>:\d+: //mg;
	return $status == 0 ? $json->decode($out) : { error => $error };
}

sub acquire
{
	my ($self, $server, %keys) = @_;

	$self->seal;
	my $answer = $self->ask($server, 'acquire_lease',
		kind => 'server', system_identifier => $self->{n}, host_name => "host$self->{n}", port => 5432, timeline => 1, launched_at => 0,
		first_number => 0, last_number => $self->{last_number}, fixed => JSON::PP::false,
		lease => $self->{opened}, ids_end_at => $self->{ids_end_at}, uses => undef, starts_at => undef, %keys);
	return $answer unless ($answer->{answer} // '') eq 'yes';
	$self->{opened} = { granted_by => $self->{calls}, map { $_ => $answer->{$_} } qw(token node_number incarnation generation leased_until) };
	$self->{lease} = { number => $answer->{node_number}, from => $answer->{starts_at}, until => $answer->{leased_until},
		label => $server->name . " generation $answer->{generation}" };
	return $answer;
}

sub renew
{
	my ($self, $server) = @_;
	my $answer = $self->ask($server, 'renew_lease', lease => $self->{opened});

	$self->{lease}{until} = $self->{opened}{leased_until} = $answer->{leased_until} if ($answer->{answer} // '') eq 'yes';
	$self->seal if ($answer->{answer} // '') eq 'no';
	return $answer;
}

# It has issued ids as far ahead as it may.
sub seal
{
	my ($self) = @_;
	my $lease = $self->{lease} or return;
	my $end = now() + MAX_AHEAD;

	$end = $lease->{until} if $end > $lease->{until};
	$end = $lease->{from} if $end < $lease->{from};
	$self->close_span($end);
	$self->{opened}{ids_end_at} = $end;
	$self->{ids_end_at} = $end if $end > ($self->{ids_end_at} // 0);
}

sub close_span
{
	my ($self, $end) = @_;
	my $lease = delete $self->{lease};

	push @{ $self->{done} }, [ $lease->{number}, $lease->{from}, $end, "node $self->{n}, $lease->{label}" ];
}

sub spans
{
	my ($self) = @_;
	my $lease = $self->{lease};

	return (@{ $self->{done} }, $lease ? [ $lease->{number}, $lease->{from}, $lease->{until}, "node $self->{n}, $lease->{label}" ] : ());
}

sub refusal
{
	my ($answer) = @_;

	return $answer->{error} // $answer->{answer} unless ($answer->{answer} // '') eq 'refused';
	return "$answer->{sqlstate}: $answer->{message}\nDETAIL:  $answer->{detail}\nHINT:  $answer->{hint}";
}

sub overlaps
{
	my @spans = sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] } map { $_->spans } @_;
	my @found;
	my $last;

	foreach my $span (grep { $_->[1] < $_->[2] } @spans)
	{
		push @found, "number $span->[0]: from $span->[1] ($span->[3]), until $last->[2] ($last->[3])"
		  if $last && $last->[0] == $span->[0] && $span->[1] < $last->[2];
		$last = $span if !$last || $last->[0] != $span->[0] || $span->[2] > $last->[2];
	}
	return @found;
}

1;
