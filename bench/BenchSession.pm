# BenchSession.pm
#	  A session that stays, for bench/*.pl that measure the cost of single calls.
#
#	  my $session = BenchSession->new($server, 'SET ...');
#	  $session->value('SELECT 1');				the one line that a statement returns
#	  $session->send('...'); $session->receive;	the same in two steps
#	  $session->nanoseconds('SELECT ...');		the processor time that a statement takes
#	  BenchSession::build('empty.so');			makes what bench/Makefile has
#
# The processor's time, as that of the clock counts whatever else the machine does; it
# is taken by bench_time() of bench/empty.c, which is added to the server with its others.
package BenchSession;

use strict;
use warnings;

use Cwd;
use IO::Handle;
use IPC::Open2;

sub build
{
	my ($target) = @_;

	system('make', '-s', '-C', 'bench', 'with_llvm=no', $target) == 0 or die "bench/$target cannot be made";
}

sub new
{
	my ($class, $server, @statements) = @_;
	my $self = bless {}, $class;

	add_functions($server);
	$self->{pid} = open2($self->{output}, $self->{input},
		"$ENV{BENCH_BINDIR}/psql", '-XAtq', '-v', 'ON_ERROR_STOP=1', $server->_where, '-d', 'postgres');
	$self->value("$_;\nSELECT 1") foreach @statements;
	return $self;
}

sub add_functions
{
	my ($server, @options) = @_;
	my $library = getcwd() . '/bench/empty';

	build('empty.so');
	$server->sql("CREATE OR REPLACE FUNCTION bench_$_ LANGUAGE c AS '$library'", @options)
	  foreach ('empty() RETURNS bigint', 'time() RETURNS bigint', 'run(query text) RETURNS void');
}

sub value
{
	my ($self, $statement) = @_;

	$self->send($statement);
	return $self->receive;
}

sub send
{
	my ($self, $statement) = @_;

	$self->{sent} = $statement;
	print { $self->{input} } "$statement;\n";
	$self->{input}->flush;
}

sub receive
{
	my ($self) = @_;
	my $line = readline $self->{output};

	die "failed: $self->{sent}" unless defined $line;
	chomp $line;
	return $line;
}

sub nanoseconds
{
	my ($self, $statement) = @_;
	my $time = $self->value("SELECT bench_time() AS begin \\gset\n$statement \\g /dev/null\nSELECT bench_time() - :begin");

	$time =~ /^\d+$/ or die "no time, but \"$time\": $statement";
	return $time;
}

1;
