# 029_older_state.pl
#	  The state file of a crashed server with a fixed number is replaced by an older one
#	  of the same lease, and its clock is behind.  The lease is not ended at the bound
#	  that the old file has: neither if it was renewed since, nor if the file is part of
#	  a copy that was put back in place.
use FindBin;
use lib $FindBin::RealBin;
use SnowflakeTest;
use SnowflakeRegistry;

sub copy_file
{
	my ($from, $to) = @_;
	open my $out, '>:raw', $to or die "$to: $!";
	print $out slurp_file($from);
	close $out or die "$to: $!";
}

my $registry = new_registry('registry');
my $restored = new_member('restored', place($registry), conf => "snowflake.worker_id = '30'\n");
my $state = $restored->data_dir . '/snowflake.state';
draw($restored, 10);
foreach my $case ('since renewed', 'of a restored copy', 'of a file put back later')
{
	my $again = $case eq 'since renewed';

	# the quarter of a window within which it is not renewed
	set_and_reload($restored, 'snowflake.lease_duration' => '16s') if !$again;
	poll('a lease of that length', sub { draw($restored, 1); registry_row($registry, $restored,
		"leased_until - renewed_at > '@{[ $again ? 2 : 15 ]} s'::interval") eq 't' });
	my $renewed = registry_row($registry, $restored, 'renewed_at');
	copy_file($state, "$state.copy");
	poll('renewal', sub { registry_row($registry, $restored, 'renewed_at') ne $renewed }) if $again;
	poll('the bound of the copy to pass', sub { draw($restored, 100);
		$restored->safe_psql('postgres', "SELECT clock_timestamp() > '$renewed'::timestamptz + '2.5 s'::interval") eq 't' });
	my @files = write_ids(my @last = draw($restored, 1000, 1));
	crash($restored);
	my $written = (stat "$state.copy")[10];
	poll('ten seconds', sub { time > $written + 12 }) if $case eq 'of a file put back later';
	copy_file("$state.copy", $state);
	my ($id, $bound) = split /\|/, registry_row($registry, $restored, 'id, leased_until');

	# as cp -a does, where there is no other sign of it
	if ($case eq 'of a restored copy')
	{
		copy_file($restored->data_dir . '/PG_VERSION', "$state.version");
		copy_file("$state.version", $restored->data_dir . '/PG_VERSION');
	}
	set_conf($restored, 'snowflake.clock_offset' => -20_000);
	$restored->start;
	poll('the lease worker to try', sub { sql_error($restored, 'SET snowflake.max_wait = 0; SELECT snowflake_nextval()')
		  =~ /ahead of the clock|is held by/ });
	set_and_reload($restored, 'snowflake.clock_offset' => 0);
	poll('draws', sub { sql_error($restored, 'SELECT snowflake_nextval()') eq '' });
	my @ids = draw($restored, 1000, 1);
	is($registry->safe_psql('postgres', "SELECT leased_until FROM snowflake.worker_node WHERE id = $id"), $bound,
		"an older state file, the lease $case: its bound stands");
	cmp_ok($ids[0], '>', $last[-1], "an older state file, the lease $case: ids go on above all earlier ones");
	check_ids("an older state file, the lease $case", @files, write_ids(@ids));
}
$restored->stop;

done_testing();
