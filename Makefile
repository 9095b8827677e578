# snowflake: 64-bit time-ordered unique ids for PostgreSQL
#
#   make demo            builds, starts a throwaway server and shows ids being made;
#                        KEEP=1 leaves the server up
#   make demo-cluster    the same with three servers that share a registry, one of which
#                        is killed and one frozen while ids are made
#   make patroni         failover, split brain and switchover under Patroni while ids are
#                        issued; needs root or the packages that it names
#   make torture         servers, clients and every fault that can be made, for DURATION=60
#                        seconds; then all ids are compared
#   make torture-selftest  the same with bugs planted, each of which must be found
#   make fuzz            libFuzzer on the readers of layouts and encoded ids, for FUZZ_SECONDS=60 seconds; needs clang
#   make fuzz-selftest   the same with bugs planted, each of which must be found
#   make test-clients    runs the programs of doc/clients.md: real client libraries of
#                        JavaScript, Python and Java, whose ids must be those of the server
#   make test-monitoring  monitoring/ with real servers, postgres_exporter and Prometheus:
#                        each metric is compared with SQL, each alert is provoked
#   make test-package    builds the Debian package, installs and tests it in a throwaway
#                        Debian; needs root
#   make test-majors     make test on PostgreSQL 15, 17, 18 and 19, in a throwaway Debian for each,
#                        and pg_upgrade from 15; needs root
#   make bench           measures ids per call, inserts, indexes, latency and growth beside
#                        sequences and uuids: tables and pictures in bench/results
#   make dist            packs what is committed into snowflake-VERSION.zip, for PGXN
#   make test-ubsan      the SQL tests and those of sessions with gcc's sanitizer for
#                        undefined behaviour
#   make test-asan       the tests on a server built from source, with assertions and
#                        AddressSanitizer; ASAN_SERVER=DIRECTORY keeps that server
#   make test-valgrind   SQL tests on a server under valgrind
#   make analyze         gcc -fanalyzer, clang's scan-build and cppcheck
#   make coverage        which lines of src/ the tests run; fails below 95 %
#   make test            builds with warnings as errors and runs every test (test/run
#                        says how to choose some); make check is the same
#
# All need only a shell, make and apt, install nothing but packages, and touch no
# running server.  With PostgreSQL's server headers in place the usual targets work
# too, for the server whose pg_config comes first in PATH, or for PG_MAJOR=15, or for
# PG_CONFIG=/path/to/pg_config:
#
#   make, make install, make installcheck, make uninstall, make clean

EXTENSION = snowflake
EXTENSION_VERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" snowflake.control)
MODULE_big = snowflake
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))

# The install script is made of these, in this order.
INSTALL_SQL = $(patsubst %,sql/install/%.sql,begin worker_node nextval parse layout stats lease orders \
	text mask ranges guess audit backfill convert_checks convert grants)
# With the update scripts; install scripts of older versions are in sql/released, for the tests.
DATA = $(sort $(wildcard sql/snowflake--*--*.sql))
DATA_built = sql/snowflake--$(EXTENSION_VERSION).sql

# The server's headers are system headers here, so that our warnings are about our code.
PG_CPPFLAGS = -isystem $(includedir_server) -I$(srcdir)/src -I$(libpq_srcdir) -DSNOWFLAKE_VERSION='"$(EXTENSION_VERSION)"' \
	-include $(includedir_server)/pg_config.h -include $(srcdir)/src/oldest.h
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter
SHLIB_LINK_INTERNAL = $(libpq)
SHLIB_LINK = -lcrypto

# The tests in sql/ in the order they run.  A new file there belongs in this list
# (test/run complains when it is not); specs and TAP tests are found by their place.
REGRESS = layouts parse_ids encode masked_ids generate settings_and_view registry_functions history \
	id_ranges range_plans guess_and_audit old_rows convert_column convert_refused convert_not_null \
	hostile default_privileges
REGRESS_OPTS = $(call temp_instance,tmp_check)

ISOLATION = $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test --outputdir=output_iso $(call temp_instance,tmp_check_iso)

# They run on a new server made of the installed files; with RUNNING=1 on the one that
# PGHOST and PGPORT name, which has to have the settings of test/snowflake.conf.
ifndef RUNNING
temp_instance = --temp-instance=$(1) --temp-config=test/snowflake.conf
endif

PROVE_TESTS = $(sort $(wildcard test/t/*.pl)) test/torture/checker.t
ifneq ($(strip $(PROVE_TESTS)),)
TAP_TESTS = 1
endif

EXTRA_CLEAN = test-output snowflake-*.zip

ifdef PG_MAJOR
PG_CONFIG ?= /usr/lib/postgresql/$(PG_MAJOR)/bin/pg_config
endif
PG_CONFIG ?= pg_config

# pg_config may be missing, or be that of libpq-dev, which names a file that is not there.
PGXS := $(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null))
ifneq ($(PGXS),)

include $(PGXS)

# PGXS wants it under its own name.
sql/snowflake--$(EXTENSION_VERSION).sql: $(INSTALL_SQL) snowflake.control Makefile
	sed 's/@EXTVERSION@/$(EXTENSION_VERSION)/g' $(filter %.sql,$^) >$@

# PGXS tracks no headers.
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.h src/*/*.h)

# PGXS's own recipe says "not supported" and succeeds: it runs by "true" instead of
# a shell, after the tests.
check: private SHELL = true

else

all install installdirs uninstall installcheck clean distclean:
	@echo "PostgreSQL's extension build files are not here: install postgresql-server-dev-NN," >&2
	@echo "libpq-dev and libssl-dev, or set PG_CONFIG.  (make test, demo and demo-cluster install what they need.)" >&2
	@exit 1

.PHONY: all install installdirs uninstall installcheck clean distclean

endif

check: test

test:
	@sh test/run

demo:
	@sh test/demo

demo-cluster:
	@sh test/demo-cluster

patroni:
	@sh test/patroni

test-clients:
	@sh test/clients/run

test-monitoring:
	@sh test/monitoring/run

test-package:
	@sh test/package/run

test-ubsan:
	@sh test/sanitize/ubsan

test-asan:
	@sh test/sanitize/asan

test-valgrind:
	@sh test/sanitize/valgrind

analyze:
	@sh test/sanitize/analyze

coverage:
	@sh test/sanitize/coverage

test-majors:
	@sh test/majors/run

dist:
	@sh test/package/dist

torture:
	@sh test/torture/run

bench:
	@sh bench/run

torture-selftest:
	@sh test/torture/selftest

fuzz:
	@sh test/fuzz/run

fuzz-selftest:
	@sh test/fuzz/selftest

.PHONY: check test test-clients test-monitoring test-package dist \
	bench test-majors test-ubsan test-asan test-valgrind analyze coverage \
	demo demo-cluster patroni torture torture-selftest fuzz fuzz-selftest
