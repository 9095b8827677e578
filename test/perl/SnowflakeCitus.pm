# SnowflakeCitus.pm
#	  Catalogs with the names and columns of those of Citus, for tests of what
#	  snowflake makes of them where Citus is not installed.
#
#	  CITUS				SQL that creates the catalogs and the extension "citus" (which has no
#						functions) in a database; the server is alone, in group 0
#	  NODES				SQL that makes them those of a coordinator with two workers
#	  distribute(TABLE, COLUMN)
#						SQL that says that a table is distributed by this column, undef: a reference
#						table; and that its sequences are on all servers
package SnowflakeCitus;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(CITUS NODES distribute);

# pg_catalog, as Citus has it.
use constant CITUS => <<'SQL';
SET allow_system_table_mods = on;
CREATE TYPE pg_catalog.noderole AS ENUM ('primary', 'secondary', 'unavailable');
CREATE TABLE pg_catalog.pg_dist_node (
	nodeid integer PRIMARY KEY, groupid integer NOT NULL, nodename text NOT NULL, nodeport integer NOT NULL DEFAULT 5432,
	noderack text NOT NULL DEFAULT 'default', hasmetadata boolean NOT NULL DEFAULT true, isactive boolean NOT NULL DEFAULT true,
	noderole pg_catalog.noderole NOT NULL DEFAULT 'primary', nodecluster name NOT NULL DEFAULT 'default',
	metadatasynced boolean NOT NULL DEFAULT true, shouldhaveshards boolean NOT NULL DEFAULT true,
	UNIQUE (nodename, nodeport));
CREATE TABLE pg_catalog.pg_dist_local_group (groupid integer PRIMARY KEY);
CREATE TABLE pg_catalog.pg_dist_partition (
	logicalrelid regclass NOT NULL UNIQUE, partmethod "char" NOT NULL, partkey text, colocationid integer NOT NULL DEFAULT 0,
	repmodel "char" NOT NULL DEFAULT 's', autoconverted boolean NOT NULL DEFAULT false);
CREATE TABLE pg_catalog.pg_dist_object (
	classid oid NOT NULL, objid oid NOT NULL, objsubid integer NOT NULL, type text, object_names text[], object_args text[],
	distribution_argument_index integer, colocationid integer, force_delegation boolean, PRIMARY KEY (classid, objid, objsubid));
GRANT SELECT ON pg_catalog.pg_dist_node, pg_catalog.pg_dist_local_group, pg_catalog.pg_dist_partition,
	pg_catalog.pg_dist_object TO PUBLIC;
INSERT INTO pg_dist_local_group VALUES (0);
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
VALUES (1, 'citus', 10, 'pg_catalog'::regnamespace, false, '13.0-1');
RESET allow_system_table_mods;
SQL

use constant NODES => <<'SQL';
INSERT INTO pg_dist_node (nodeid, groupid, nodename, shouldhaveshards)
VALUES (1, 0, 'coordinator', false), (2, 1, 'first', true), (3, 2, 'second', true);
SQL

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
