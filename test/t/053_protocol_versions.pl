# 053_protocol_versions.pl
#	  Registries and nodes of two versions: snowflake_registry 1.0, and a 1.1 that never was.  It has
#	  one key more in a call and one more in the answers, and knows a second version of the
#	  protocol.  The update keeps leases and privileges.  An old node uses the new registry, a new
#	  node the old one; a version of the protocol that a registry does not know is refused.
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use SnowflakeNode;

my $extensions = use_copied_installation();

sub new_registry
{
	my ($name) = @_;
	my $registry = new_node($name, preload => 0, start => 0);

	$registry->start;
	$registry->safe_psql('postgres', q{CREATE EXTENSION snowflake_registry VERSION '1.0'; CREATE ROLE node LOGIN});
	add_caller($registry);
	$registry->safe_psql('postgres', 'GRANT USAGE ON SCHEMA snowflake TO node;
		GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease TO node');
	return $registry;
}

# The text of a function, with other words in it.
sub other_function
{
	my ($registry, $function, %instead) = @_;
	my $text = $registry->safe_psql('postgres', "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace AND proname = '$function'");

	foreach my $words (keys %instead)
	{
		$text =~ s/\Q$words\E/$instead{$words}/ or die "$function has no \"$words\"";
	}
	return "$text;\n";
}

my ($old, $new) = map { new_registry($_) } 'old', 'new';

append_to_file("$extensions/snowflake_registry--1.0--1.1.sql", join '',
	other_function($new, 'answer', '|| p_more' => q{|| p_more || '{"greeting": "hello"}'}),
	other_function($new, 'grant_lease', "\nBEGIN\n" => <<'EOS'),

BEGIN
	IF NOT (p_call -> 'colour')::integer BETWEEN 1 AND 7 THEN
		PERFORM snowflake.refuse_value('colour', p_call -> 'colour', 'an integer from 1 to 7');
	END IF;
EOS
	other_function($new, 'begin_call', "(p_call -> 'protocol')::integer > 1" => "(p_call -> 'protocol')::integer > 2",
		'knows version 1.' => 'knows versions 1 and 2.'));

my ($first, $second) = map { SnowflakeNode->new($_) } 1, 2;
is($first->acquire($new)->{answer}, 'yes', 'a lease of version 1.0');
$new->safe_psql('postgres', q{ALTER EXTENSION snowflake_registry UPDATE TO '1.1'});

my $answer = $first->renew($new);
is($answer->{answer}, 'yes', 'updated: the lease is renewed');
is($answer->{greeting}, 'hello', 'the answer has a key that the node does not know');
is($new->safe_psql('postgres', q{SELECT has_function_privilege('node', 'snowflake.acquire_lease(jsonb)', 'EXECUTE')}), 't',
	'updated: no privilege is lost');
is($first->acquire($new)->{answer}, 'yes', 'an old node gets a lease of the new registry');

is($second->acquire($new, protocol => 2, colour => 7)->{answer}, 'yes', 'a new node, too');
like($second->acquire($new, protocol => 2, colour => 8)->{error},
	qr/^ERROR:  22023: value of "colour" in a registry call is out of range: 8\nDETAIL:  It must be an integer from 1 to 7\./,
	'its new key is read');
$answer = $second->acquire($old, colour => 8);
is($answer->{answer}, 'yes', 'a new node gets a lease of the old registry, which leaves the key unread');
is($answer->{greeting}, undef, 'the answer lacks a key that the node knows');
like(refusal($second->acquire($old, protocol => 2)),
	qr/^55000: version 2 of the registry's protocol is not known here\nDETAIL:  The registry knows version 1\.\nHINT:  .*snowflake_registry/,
	'a version of the protocol that the old registry does not know is refused');
like(refusal($second->acquire($new, protocol => 3)), qr/^55000: version 3 .*\nDETAIL:  The registry knows versions 1 and 2\./,
	'and one that the new one does not know');
$_->stop foreach $old, $new;

done_testing();
