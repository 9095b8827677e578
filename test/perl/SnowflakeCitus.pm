# SnowflakeCitus.pm
#	  Catalogs with the names and columns of those of Citus, for tests of what
#	  snowflake makes of them where Citus is not installed.
#
#	  CITUS				SQL that creates the catalogs and the extension "citus" (which has no
#						functions) in a database; the server is alone, in group 0
#	  NODES				SQL that makes them those of a coordinator with two workers
package SnowflakeCitus;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(CITUS NODES);

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
GRANT SELECT ON pg_catalog.pg_dist_node, pg_catalog.pg_dist_local_group, pg_catalog.pg_dist_partition TO PUBLIC;
INSERT INTO pg_dist_local_group VALUES (0);
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
VALUES (1, 'citus', 10, 'pg_catalog'::regnamespace, false, '13.0-1');
RESET allow_system_table_mods;
SQL

use constant NODES => <<'SQL';
INSERT INTO pg_dist_node (nodeid, groupid, nodename, shouldhaveshards)
VALUES (1, 0, 'coordinator', false), (2, 1, 'first', true), (3, 2, 'second', true);
SQL

1;
