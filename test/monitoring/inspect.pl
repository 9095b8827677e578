# test/monitoring/inspect.pl COMMAND [ARGUMENT...]
#	  What test/monitoring/run needs a parser for.  Each command prints lines.
#
#	  ports N				N free ports of 127.0.0.1
#	  get URL				what is there
#	  sample FILE NAME [LABEL=VALUE...]
#							the value of the one sample in the exporter's output that has
#							this name and these labels
#	  types FILE...			name and type of each metric of ours in the exporter's output
#	  table FILE HEADING	the first two cells of each row of the tables below a heading
#	  sql FILE TEXT			the SQL blocks of a document that have this text
#	  yaml FILE TEXT		the same of YAML
#	  anchor FILE ANCHOR	whether the document has a heading that a link can name so
#	  alerts URL			name, instance and state of each alert that Prometheus has
#	  rules URL				name, severity and runbook of each rule that Prometheus has
#	  badtext URL			annotations of alerts that were not made as they should be
#	  values URL JOB		our metrics of a job, each with its labels; with its value unless that
#							moves by itself
#	  series URL EXPRESSION	how many series the expression gives
#	  sql_exporter FILE		monitoring/sql_exporter.yml, made from the exporter's queries.yaml
#	  dashboard FILE		title and expression of each query of a dashboard, by a tab, with
#							Grafana's variables replaced
#
# Needs only Perl's core modules.
use strict;
use warnings;

use HTTP::Tiny;
use IO::Socket::INET;
use JSON::PP;

sub slurp
{
	my ($file) = @_;

	open my $in, '<', $file or die "$file: $!\n";
	local $/;
	return <$in>;
}

sub get
{
	my ($url) = @_;
	# no proxy, whatever the environment says
	my $response = HTTP::Tiny->new(timeout => 10, proxy => undef, http_proxy => undef)->get($url);

	die "$url: $response->{status} $response->{content}\n" unless $response->{success};
	return $response->{content};
}

sub api
{
	my ($url) = @_;

	return decode_json(get($url))->{data};
}

sub ports
{
	my ($n) = @_;
	my @sockets = map { IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "no port: $!\n" } 1 .. $n;

	return map { $_->sockport } @sockets;
}

sub sample
{
	my ($file, $name, @labels) = @_;
	my @values;

	foreach (split /\n/, slurp($file))
	{
		my ($labels, $value) = /^\Q$name\E(?:\{(.*)\})? (\S+)$/ or next;
		my %has = ($labels // '') =~ /(\w+)="((?:[^"\\]|\\.)*)"/g;
		push @values, $value unless grep { my ($l, $v) = split /=/, $_, 2; ($has{$l} // '') ne $v } @labels;
	}
	die "$name @labels: " . @values . " samples\n" unless @values == 1;
	# as SQL prints it
	return $values[0] =~ /e/ ? sprintf('%.6f', $values[0]) =~ s/\.?0+$//r : $values[0];
}

sub types
{
	my %types = map { slurp($_) =~ /^# TYPE (snowflake_\w+) (\w+)$/mg } @_;

	return map { "$_ $types{$_}" } sort keys %types;
}

# The lines below a heading, up to the next of its level or above.
sub section
{
	my ($file, $heading) = @_;
	my ($level, @lines);

	foreach (split /\n/, slurp($file))
	{
		$level = undef if defined $level && /^(#+) / && length $1 <= $level;
		push @lines, $_ if defined $level;
		$level = length $1 if /^(#+) \Q$heading\E$/;
	}
	die "$file: nothing below \"$heading\"\n" unless @lines;
	return @lines;
}

sub table
{
	my @rows = map { [ map { s/^\s*`?|`?\s*$//gr } (split /\|/)[ 1, 2 ] ] } grep { /^\| `/ } section(@_);

	return sort map { "@$_" } @rows;
}

sub blocks
{
	my ($language, $file, $text) = @_;
	my $document = slurp($file);
	my @blocks;

	while ($document =~ /^( *)```\Q$language\E\n(.*?)^ *```$/msg)
	{
		my ($indent, $block) = ($1, $2);

		push @blocks, $block =~ s/^$indent//gmr if $block =~ /\Q$text\E/;
	}
	die "$file: no $language block with \"$text\"\n" unless @blocks;
	return map { split /\n/ } @blocks;
}

sub anchor
{
	my ($file, $anchor) = @_;

	die "$file has no heading \"$anchor\"\n"
	  unless grep { lc(s/[^\w -]//gr) =~ tr/ /-/r eq $anchor } slurp($file) =~ /^#+ (.*?)\s*$/mg;
	return ();
}

sub alerts
{
	return sort map { join ' ', $_->{labels}{alertname}, $_->{labels}{instance} // '-', $_->{state} }
	  @{ api("$_[0]/api/v1/alerts")->{alerts} };
}

sub rules
{
	return sort map { join ' ', $_->{name}, $_->{labels}{severity}, $_->{annotations}{runbook_url} }
	  map { @{ $_->{rules} } } @{ api("$_[0]/api/v1/rules")->{groups} };
}

sub badtext
{
	return grep { /<error|no value|%!|\{\{/ || !/\S/ }
	  map { my $a = $_->{annotations}; map { $a->{$_} // '' } qw(summary description runbook_url) }
	  @{ api("$_[0]/api/v1/alerts")->{alerts} };
}

sub values_of
{
	my ($url, $job) = @_;
	my $query = HTTP::Tiny->new->www_form_urlencode({ query => "{__name__=~\"snowflake_.+\", job=\"$job\"}" });

	return sort map {
		my ($metric, $value) = ($_->{metric}, $_->{value}[1]);
		delete @$metric{qw(job server)};
		join ' ', map({ "$_=$metric->{$_}" } sort keys %$metric),
		  $metric->{__name__} =~ /remaining_seconds|ahead_seconds|numbers_live|renewals_total/ ? () : $value
	} @{ api("$url/api/v1/query?$query")->{result} };
}

sub series
{
	my ($url, $expression) = @_;

	return scalar @{ api("$url/api/v1/query?" . HTTP::Tiny->new->www_form_urlencode({ query => $expression }))->{result} };
}

# The queries of the one exporter for the other, which has no types, one help for all metrics of a
# query, and its own times; and which keeps what a query said last when it fails.
sub sql_exporter
{
	my ($file) = @_;
	my (@queries, %jobs);

	foreach my $text (split /^(?=(?:#.*\n)*[a-z])/m, slurp($file) =~ s/\A(?:#.*\n)+//r)
	{
		my ($name, $rest) = $text =~ /^([a-z_]+):\n(.*)/ms or next;
		my ($sql) = $rest =~ /^  query: \|\n((?:    .*\n)+)/m or die "$name: no query\n";
		my (@labels, @values);

		push @{ $2 eq 'LABEL' ? \@labels : \@values }, $1 while $rest =~ /^    - (\w+):\n        usage: (\w+)$/mg;
		my ($cache) = $rest =~ /^  cache_seconds: (\d+)$/m;
		push @{ $jobs{ $cache // 10 } }, join '', map { "      $_\n" } "- name: $name", "  help: see doc/monitoring.md",
		  '  allow_zero_rows: true', (@labels ? '  labels: [' . join(', ', @labels) . ']' : ()),
		  '  values: [' . join(', ', @values) . ']', '  query: |', map { "    $_" } map { s/^    //r } split /\n/, $sql;
	}
	my $text = <<'END';
# sql_exporter.yml
#   Metrics of the extension snowflake for sql_exporter (prometheus-sql-exporter in Debian).  Made
#   from queries.yaml; change that, and then:
#       perl test/monitoring/inspect.pl sql_exporter monitoring/queries.yaml >monitoring/sql_exporter.yml
#   doc/monitoring.md has the installation, and what each metric means.

jobs:
END
	my $connections = "&connections\n      - 'postgres://prometheus\@/postgres?host=/run/postgresql'";

	foreach my $seconds (sort { $a <=> $b } keys %jobs)
	{
		$text .= "  - name: snowflake_${seconds}s\n    interval: ${seconds}s\n    connections: $connections\n    queries:\n"
		  . join '', @{ $jobs{$seconds} };
		$connections = '*connections';
	}
	return split /\n/, $text;
}

# What Grafana needs to import it, and what it asks Prometheus for.
sub dashboard
{
	my ($file) = @_;
	my $dashboard = decode_json(slurp($file));
	my @panels = @{ $dashboard->{panels} };
	my %variables = map { $_->{name} => $_ } @{ $dashboard->{templating}{list} };
	my @queries;
	my %ids;

	die "no schemaVersion, title or panel\n"
	  unless $dashboard->{schemaVersion} >= 30 && length $dashboard->{title} && @panels;
	die "an id of another Grafana\n" if defined $dashboard->{id};
	die "no variable for the data source or the instance\n"
	  unless $variables{datasource}{type} eq 'datasource' && $variables{instance}{type} eq 'query';
	foreach my $panel (@panels)
	{
		die "panel \"$panel->{title}\": no id of its own\n" if $ids{ $panel->{id} }++;
		die "panel \"$panel->{title}\": no place\n" if grep { !defined $panel->{gridPos}{$_} } qw(x y w h);
		foreach my $target (@{ $panel->{targets} })
		{
			die "panel \"$panel->{title}\": another data source\n"
			  if grep { $_->{datasource}{uid} ne '${datasource}' } $panel, $target;
			push @queries, [ $panel->{title}, $target->{expr} ];
		}
	}
	push @queries, map { [ "variable $_->{name}", $_->{query}{query} =~ s/^label_values\((.*), (\w+)\)$/count by ($2) ($1)/r ] }
	  grep { $_->{type} eq 'query' } values %variables;
	foreach my $query (@queries)
	{
		$query->[1] =~ s/\$__rate_interval\b/10s/g;
		$query->[1] =~ s/"\$(\w+)"/exists $variables{$1} ? '".*"' : die "unknown variable $1\n"/ge;
		die "$query->[0]: a variable is left in $query->[1]\n" if $query->[1] =~ /\$/;
	}
	return map { "$_->[0]\t$_->[1]" } @queries;
}

my %commands = (
	ports => \&ports, get => \&get, sample => \&sample, types => \&types, table => \&table, sql => sub { blocks('sql', @_) }, yaml => sub { blocks('yaml', @_) },
	anchor => \&anchor,
	sql_exporter => \&sql_exporter, alerts => \&alerts, rules => \&rules, badtext => \&badtext, values => \&values_of, series => \&series, dashboard => \&dashboard);
my $command = $commands{ shift @ARGV // '' } or die "usage: see the head of $0\n";
print map { "$_\n" } $command->(@ARGV);
