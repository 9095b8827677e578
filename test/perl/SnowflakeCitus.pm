# SnowflakeCitus.pm
#	  Catalogs with the names and columns of those of Citus, for tests of what
#	  snowflake makes of them where Citus is not installed.
#
#	  fake_citus(NAME, ...)	a new directory with libraries that do nothing, of these names
#	  CITUS				SQL that creates the catalogs in a database
#	  distribute(TABLE, COLUMN)
#						SQL that says that a table is distributed by this column, undef: a reference
#						table; and that its sequences are on all servers
package SnowflakeCitus;

use strict;
use warnings;

use Exporter 'import';
use File::Copy qw(copy);
use PostgreSQL::Test::Utils;

our @EXPORT = qw(CITUS distribute fake_citus);

# pg_catalog, as Citus has it.
use constant CITUS => <<'SQL';
SET allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_partition (
	logicalrelid regclass NOT NULL UNIQUE, partmethod "char" NOT NULL, partkey text, colocationid integer NOT NULL DEFAULT 0,
	repmodel "char" NOT NULL DEFAULT 's', autoconverted boolean NOT NULL DEFAULT false);
CREATE TABLE pg_catalog.pg_dist_object (
	classid oid NOT NULL, objid oid NOT NULL, objsubid integer NOT NULL, type text, object_names text[], object_args text[],
	distribution_argument_index integer, colocationid integer, force_delegation boolean, PRIMARY KEY (classid, objid, objsubid));
GRANT SELECT ON pg_catalog.pg_dist_partition, pg_catalog.pg_dist_object TO PUBLIC;
RESET allow_system_table_mods;
SQL

# Copies of one of PostgreSQL's.
sub fake_citus
{
	my $directory = PostgreSQL::Test::Utils::tempdir('citus');
	my $library = `pg_config --pkglibdir` =~ s/\n//r . '/utf8_and_win.so';

	copy($library, "$directory/$_.so") or die "$library: $!" foreach @_;
	return $directory;
}

sub distribute
{
	my ($table, $column) = @_;
	my ($method, $model, $key) = defined $column ? ('h', 's',
		"(SELECT format('{VAR :varno 1 :varattno %s :vartype %s}', attnum, atttypid) FROM pg_attribute
			WHERE attrelid = '$table'::regclass AND attname = '$column')") : ('n', 't', 'NULL');

	return <<SQL;
INSERT INTO pg_dist_partition (logicalrelid, partmethod, repmodel, partkey) VALUES ('$table', '$method', '$model', $key);
INSERT INTO pg_dist_object (classid, objid, objsubid)
SELECT classid, objid, objsubid FROM pg_depend
WHERE classid = 'pg_class'::regclass AND deptype IN ('a', 'i') AND refobjid = '$table'::regclass
	AND objid IN (SELECT seqrelid FROM pg_sequence);
SQL
}

1;
