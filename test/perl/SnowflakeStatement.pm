# SnowflakeStatement.pm
#	  SQL that runs while the test goes on, for tests of calls that wait for an id.
#
#	  start_sql(NODE, SQL, DATABASE, USER)
#						begins SQL in a session of its own, and returns it
#	  finish_sql(SESSION)	waits for its end; then it has
#						{out}, {error} (as from sql_error), {code} (of the first ERROR or
#						FATAL, else ""), {seconds} since it was started
#	  run_sql(NODE, SQL, DATABASE, USER)	both
#	  waiting_pid(NODE)	the process that sleeps in snowflake_nextval(), which it waits for
#	  cpu_ticks(PID)	processor time used so far, in hundredths of a second
package SnowflakeStatement;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Time::HiRes 'time';

use SnowflakeTest;

our @EXPORT = qw(start_sql finish_sql run_sql waiting_pid cpu_ticks);

sub start_sql
{
	my ($node, $sql, $database, $user) = @_;
	my $self = { out => '', error => '', begin => time() };
	my @command = ($node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1',
		'-v', 'VERBOSITY=verbose', '-d', $node->connstr($database // 'postgres'));

	push @command, '-U', $user if defined $user;
	$sql .= "\n";				# psql waits for the end of the line
	$self->{run} = IPC::Run::start(\@command, '<', \$sql, '>', \$self->{out}, '2>', \$self->{error},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	$self->{run}->pump while length $sql;
	return $self;
}

sub finish_sql
{
	my ($self) = @_;

	$self->{run}->finish;
	$self->{seconds} = time() - $self->{begin};
	chomp $self->{out};
	$self->{code} = $self->{error} =~ /(?:ERROR|FATAL):  (\w{5}):/ ? $1 : '';
	return $self;
}

sub run_sql
{
	return finish_sql(start_sql(@_));
}

sub waiting_pid
{
	my ($node) = @_;

	return poll('a session that waits for an id', sub {
			$node->safe_psql('postgres', "SELECT min(pid) FROM pg_stat_activity
				WHERE backend_type = 'client backend' AND wait_event_type = 'Extension'") });
}

sub cpu_ticks
{
	my ($pid) = @_;
	my @fields = split / /, slurp_file("/proc/$pid/stat") =~ s/.*\) //sr;

	return $fields[11] + $fields[12];
}

1;
