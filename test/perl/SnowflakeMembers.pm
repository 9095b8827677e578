# SnowflakeMembers.pm
#	  What an extension consists of, as text that can be compared between databases.
#
#	  members(NODE, DATABASE, EXTENSION)
#						returns a hash: "kind identity" => definition.  It has all objects that
#						belong to the extension (default: snowflake) and what hangs on them:
#						functions with all their properties, columns, constraints, indexes,
#						triggers, view definitions, sequences, rights (also as the extension
#						gave them, which pg_dump leaves out), owners, comments, what objects
#						depend on, which tables pg_dump dumps, and how many rows tables have
#	  differences(ONE, OTHER)	of two such hashes: a list of lines, "missing: ...",
#						"additional: ..." or "differs: ...", sorted
#
# An object of a kind that is not known here is an error: it would not be compared.
package SnowflakeMembers;

use strict;
use warnings;

use Exporter 'import';
use JSON::PP ();

our @EXPORT = qw(differences members);

my $helpers = <<'EOF';
CREATE FUNCTION pg_temp.identity(class oid, object oid, sub integer) RETURNS text LANGUAGE sql AS $$
	SELECT type || ' ' || identity FROM pg_identify_object(class, object, sub)
$$;
-- As the server understands them: their order means nothing.
CREATE FUNCTION pg_temp.rights(acl aclitem[]) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(format('%s to %s by %s%s', privilege_type,
		CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END, grantor::regrole,
		CASE WHEN is_grantable THEN ' with grant option' END), ', ' ORDER BY grantee, privilege_type, grantor), 'none')
	FROM aclexplode(acl)
$$;
CREATE FUNCTION pg_temp.count_rows(relation regclass, OUT rows text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT count(*) FROM ' || relation INTO rows;
END
$$;
CREATE TEMPORARY VIEW member AS
	SELECT d.classid, d.objid FROM pg_depend AS d JOIN pg_extension AS e ON d.refobjid = e.oid
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = current_setting('test.extension');
CREATE TEMPORARY VIEW relation AS
	SELECT c.* FROM pg_class AS c JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid;
EOF

my $unknown = <<'EOF';
SELECT string_agg(pg_temp.identity(classid, objid, 0), ', ') FROM member
WHERE classid::regclass::text NOT IN ('pg_class', 'pg_namespace', 'pg_proc', 'pg_type')
	OR (classid = 'pg_proc'::regclass AND EXISTS (SELECT FROM pg_proc WHERE oid = objid AND prokind NOT IN ('f', 'p', 'w')))
EOF

# Each gives rows of kind, identity and definition.
my @queries = (
	# the extension itself
	q{SELECT 'extension', extname, format('version %s, schema %s, relocatable %s, comment %s',
			extversion, extnamespace::regnamespace, extrelocatable, obj_description(oid, 'pg_extension'))
		FROM pg_extension WHERE extname = current_setting('test.extension')},
	q{SELECT 'dumped', c.relation::regclass::text, coalesce(nullif(c.condition, ''), 'all rows')
		FROM pg_extension, unnest(extconfig, extcondition) AS c (relation, condition)
		WHERE extname = current_setting('test.extension')},

	# all members, and what is known of all kinds
	q{SELECT 'member', pg_temp.identity(classid, objid, 0), ''
		FROM member},
	q{SELECT 'comment', pg_temp.identity(m.classid, m.objid, d.objsubid), d.description
		FROM member AS m JOIN pg_description AS d ON (d.classoid, d.objoid) = (m.classid, m.objid)},
	q{SELECT 'dependency', pg_temp.identity(m.classid, m.objid, d.objsubid) || ' on ' ||
			pg_temp.identity(d.refclassid, d.refobjid, d.refobjsubid), string_agg(d.deptype::text, ', ' ORDER BY d.deptype)
		FROM member AS m JOIN pg_depend AS d USING (classid, objid) GROUP BY 1, 2},
	q{SELECT 'rights as created', pg_temp.identity(m.classid, m.objid, p.objsubid), pg_temp.rights(p.initprivs)
		FROM member AS m JOIN pg_init_privs AS p ON (p.classoid, p.objoid) = (m.classid, m.objid)},

	q{SELECT 'schema', nspname, format('owner %s, rights %s', nspowner::regrole,
			pg_temp.rights(coalesce(nspacl, acldefault('n', nspowner))))
		FROM pg_namespace JOIN member ON classid = 'pg_namespace'::regclass AND objid = oid},

	# arguments, result, volatility, cost, settings and body are in functiondef
	q{SELECT 'function', oid::regprocedure::text, format(E'%s\nowner %s, rights %s, support %s', pg_get_functiondef(oid),
			proowner::regrole, pg_temp.rights(coalesce(proacl, acldefault('f', proowner))), prosupport)
		FROM pg_proc JOIN member ON classid = 'pg_proc'::regclass AND objid = oid},

	# tables, views, sequences and composite types
	q{SELECT 'relation', oid::regclass::text, format(
			'kind %s, persistence %s, owner %s, rights %s, options %s, replica identity %s, row security %s %s, access method %s',
			relkind, relpersistence, relowner::regrole,
			pg_temp.rights(coalesce(relacl, acldefault((CASE relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char", relowner))),
			reloptions, relreplident, relrowsecurity, relforcerowsecurity, (SELECT amname FROM pg_am AS a WHERE a.oid = relam))
		FROM relation},
	q{SELECT 'column', attrelid::regclass || '.' || attname, format(
			'%s. %s%s, identity "%s", generated "%s", default %s, collation %s, storage %s, compression "%s", statistics %s, rights %s',
			row_number() OVER (PARTITION BY attrelid ORDER BY attnum), format_type(atttypid, atttypmod),
			CASE WHEN attnotnull THEN ' not null' END, attidentity, attgenerated, pg_get_expr(adbin, adrelid),
			attcollation::regcollation, attstorage, attcompression, attstattarget, pg_temp.rights(attacl))
		FROM relation AS r JOIN pg_attribute ON attrelid = r.oid LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
		WHERE attnum > 0 AND NOT attisdropped},
	q{SELECT 'constraint', conrelid::regclass || '.' || conname, format('%s, validated %s, comment %s',
			pg_get_constraintdef(c.oid), convalidated, obj_description(c.oid, 'pg_constraint'))
		FROM relation AS r JOIN pg_constraint AS c ON conrelid = r.oid},
	q{SELECT 'index', indexrelid::regclass::text, format('%s, replica identity %s, valid %s, comment %s',
			pg_get_indexdef(indexrelid), indisreplident, indisvalid, obj_description(indexrelid, 'pg_class'))
		FROM relation AS r JOIN pg_index ON indrelid = r.oid},
	q{SELECT 'trigger', tgrelid::regclass || '.' || tgname, format('%s, enabled %s, comment %s',
			pg_get_triggerdef(t.oid), tgenabled, obj_description(t.oid, 'pg_trigger'))
		FROM relation AS r JOIN pg_trigger AS t ON tgrelid = r.oid WHERE NOT tgisinternal},
	q{SELECT 'rule', ev_class::regclass || '.' || rulename, format('%s, enabled %s', pg_get_ruledef(u.oid), ev_enabled)
		FROM relation AS r JOIN pg_rewrite AS u ON ev_class = r.oid},
	q{SELECT 'policy', polrelid::regclass || '.' || polname, format('%s %s for %s, using %s, check %s',
			polcmd, polpermissive, polroles::regrole[], pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
		FROM relation AS r JOIN pg_policy AS p ON polrelid = r.oid},
	q{SELECT 'sequence', seqrelid::regclass::text, format('%s from %s by %s, %s to %s, cache %s, cycle %s',
			format_type(seqtypid, NULL), seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle)
		FROM pg_sequence JOIN relation ON oid = seqrelid},
	q{SELECT 'rows', oid::regclass::text, pg_temp.count_rows(oid)
		FROM relation WHERE relkind = 'r'},

	# enums and domains; base and range types have functions, which are members
	q{SELECT 'type', oid::regtype::text, format('%s %s, owner %s, rights %s, base %s, not null %s, default %s, values %s',
			typtype, typcategory, typowner::regrole, pg_temp.rights(coalesce(typacl, acldefault('T', typowner))),
			format_type(typbasetype, typtypmod), typnotnull, typdefault,
			(SELECT string_agg(enumlabel, ', ' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid))
		FROM pg_type AS t JOIN member ON classid = 'pg_type'::regclass AND objid = oid});

# With a search path that makes the server qualify all names; what is made here is rolled back.
sub members
{
	my ($node, $database, $extension) = (@_, 'snowflake');
	my $rows = join "\nUNION ALL ", map { "SELECT kind, identity::text, definition FROM ($_) AS q (kind, identity, definition)" } @queries;
	my ($first, @lines) = split /\n/, $node->safe_psql($database, <<EOF);
SET search_path = pg_catalog, pg_temp;
SET test.extension = '$extension';
BEGIN;
$helpers
SELECT json_build_object('unknown', ($unknown));
SELECT to_json(r) FROM ($rows) AS r;
ROLLBACK;
EOF
	my $other = JSON::PP::decode_json($first)->{unknown};
	my %members;

	die "$database: SnowflakeMembers.pm does not know these kinds of objects: $other" if defined $other;
	foreach my $row (map { JSON::PP::decode_json($_) } @lines)
	{
		my $key = "$row->{kind} $row->{identity}";
		die "$database: \"$key\" is there twice" if exists $members{$key};
		$members{$key} = $row->{definition};
	}
	die "$database has no extension $extension" unless $members{"extension $extension"};
	return \%members;
}

sub first_difference
{
	my @one = split /\n/, $_[0], -1;
	my @other = split /\n/, $_[1], -1;

	shift @one, shift @other while @one && @other && $one[0] eq $other[0];
	return sprintf '"%s", not "%s"', $one[0] // '', $other[0] // '';
}

sub differences
{
	my ($one, $other) = @_;
	my @lines;

	foreach my $key (keys %{ { %$one, %$other } })
	{
		push @lines, "missing: $key" if !exists $other->{$key};
		push @lines, "additional: $key" if !exists $one->{$key};
		push @lines, "differs: $key: " . first_difference($one->{$key}, $other->{$key})
		  if exists $one->{$key} && exists $other->{$key} && $one->{$key} ne $other->{$key};
	}
	return sort @lines;
}

1;
