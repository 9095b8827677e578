# snowflake: 64-bit time-ordered unique ids for PostgreSQL
#
# make help says what most need to make, and make help-all the rest.

EXTENSION = snowflake snowflake_registry snowflake_tools
EXTENSION_VERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" snowflake.control)
MODULE_big = snowflake
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))

# The install scripts are made of these, in this order.
INSTALL_SQL = $(patsubst %,src/sql/snowflake/%.sql,begin inner type nextval parse layout stats orders \
	text mask ranges time_expression guess backfill converted grants)
TOOLS_SQL = $(patsubst %,src/sql/tools/%.sql,begin inner columns views convert_checks convert_findings convert rekey audit grants)
REGISTRY_SQL = $(patsubst %,src/sql/registry/%.sql,begin schema tables calls layouts rules protocol server orders extension nodes)
# The same for psql, where no extension files can be installed.
MANAGED_SQL = $(patsubst %,src/sql/registry/%.sql,managed_begin schema tables calls layouts rules protocol orders managed nodes)
# The update scripts
DATA = $(sort $(wildcard sql/snowflake*--*--*.sql))
DATA_built = $(EXTENSION:%=sql/%--$(EXTENSION_VERSION).sql) sql/managed_registry--$(EXTENSION_VERSION).sql

# The server's headers are system headers here, so that our warnings are about our code.
PG_CPPFLAGS = -isystem $(includedir_server) -I$(srcdir)/src -I$(libpq_srcdir) \
	-DSNOWFLAKE_VERSION='"$(EXTENSION_VERSION)"'
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter
SHLIB_LINK_INTERNAL = $(libpq)
SHLIB_LINK = -lcrypto

# The tests in sql/ in the order they run.  A new file there belongs in this list
# (test/run complains when it is not); specs and TAP tests are found by their place.
REGRESS = layouts parse_ids encode masked_ids generate settings_and_view \
	id_ranges range_plans time_expression guess_and_audit old_rows convert_column convert_findings convert_refused convert_not_null convert_schema \
	convert_shared convert_back convert_views convert_id_type rekey snowflake_id tools hostile_owner session_settings \
	hostile trusted default_privileges registry registry_moving registry_hostile \
	registry_history
REGRESS_OPTS = $(call temp_instance,tmp_check)

ISOLATION = $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test --outputdir=output_iso $(call temp_instance,tmp_check_iso)

# They run on a new server made of the installed files; with RUNNING=1 on the one that
# PGHOST and PGPORT name, which has to have the settings of test/snowflake.conf.
ifndef RUNNING
temp_instance = --temp-instance=$(1) --temp-config=test/snowflake.conf
endif

# Some run at a time: the longest begin first, so that none is left alone at the end.
LONG_TESTS = $(foreach n,055 018 058 019 035 049,$(wildcard test/t/$(n)_*.pl))
PROVE_TESTS = $(LONG_TESTS) $(filter-out $(LONG_TESTS),$(sort $(wildcard test/t/*.pl))) test/torture/checker.t
ifneq ($(strip $(PROVE_TESTS)),)
TAP_TESTS = 1
endif

EXTRA_CLEAN = test-output nightly-output snowflake-*.zip

ifdef PG_MAJOR
PG_CONFIG ?= /usr/lib/postgresql/$(PG_MAJOR)/bin/pg_config
endif
PG_CONFIG ?= pg_config

# pg_config may be missing, or be that of libpq-dev, which names a file that is not there.
PGXS := $(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null))
PG_RELEASE := $(shell $(PG_CONFIG) --version 2>/dev/null)
ifneq ($(filter 8 9 10 11 12 13 14,$(firstword $(subst ., ,$(word 2,$(PG_RELEASE))))),)
REFUSAL = "snowflake needs PostgreSQL 15 or newer, and $(PG_CONFIG) is of $(PG_RELEASE)."
else ifeq ($(PGXS),)
REFUSAL = "PostgreSQL's extension build files are not here: install postgresql-server-dev-NN," \
	"libpq-dev and libssl-dev, or set PG_CONFIG.  (make test, demo and demo-cluster install what they need.)"
endif

ifndef REFUSAL

# Header dependencies, in .deps: PGXS's own rules, which are there also where the server was built
# without --enable-depend.
override autodepend = yes
include $(PGXS)

# PGXS wants it under its own name.
sql/snowflake--$(EXTENSION_VERSION).sql: $(INSTALL_SQL) snowflake.control Makefile
	sed 's/@EXTVERSION@/$(EXTENSION_VERSION)/g' $(filter %.sql,$^) >$@

sql/snowflake_registry--$(EXTENSION_VERSION).sql: $(REGISTRY_SQL) snowflake_registry.control Makefile
	sed 's/@EXTVERSION@/$(EXTENSION_VERSION)/g' $(filter %.sql,$^) >$@

src/snowflake.o: snowflake.control

sql/snowflake_tools--$(EXTENSION_VERSION).sql: $(TOOLS_SQL) snowflake_tools.control Makefile
	sed 's/@EXTVERSION@/$(EXTENSION_VERSION)/g' $(filter %.sql,$^) >$@

# PGXS tracks no headers for bitcode.
$(OBJS:.o=.bc): %.bc: %.o

# Outputs have letters beyond ASCII, and initdb takes the encoding from the environment; containers
# and cron have none.  (pg_regress itself removes LC_ALL.)
installcheck: export LANG = C.UTF-8
installcheck: export LC_ALL = C.UTF-8
installcheck: export LC_COLLATE = C.UTF-8
installcheck: export LC_CTYPE = C.UTF-8

# PGXS's own recipe says "not supported" and succeeds: it runs by "true" instead of
# a shell, after the tests.
check: private SHELL = true

else

all install installdirs uninstall installcheck clean distclean:
	@printf '%s\n' $(REFUSAL) >&2
	@exit 1

.PHONY: all install installdirs uninstall installcheck clean distclean

endif

sql/managed_registry--$(EXTENSION_VERSION).sql: $(MANAGED_SQL) snowflake_registry.control Makefile
	sed 's/@EXTVERSION@/$(EXTENSION_VERSION)/g' $(filter %.sql,$^) >$@

# make help prints the lines below that have "#::", make help-all also those that have "#:".

#: build: for the pg_config that comes first in PATH, PG_MAJOR=15, or PG_CONFIG=/path/to/pg_config
all:			#:: compiles the extension and puts its install script together; so does make alone
install:		#:: copies them to where the server looks for them
installcheck:	#:: tests what is installed; RUNNING=1: on the server that PGHOST and PGPORT name
uninstall:		#:: removes what make install has copied
clean:			#: removes what the build made
help:			#: shows what most need
	@awk -F '[ \t]*#:: *' '/^[a-z-]+:.*[ \t]#:: / { sub(/:.*/, "", $$1); printf "%-14s%s\n", $$1, $$2 }' Makefile
	@echo
	@echo "make help-all shows the rest.  demo and test need only a shell, make and apt; they install nothing"
	@echo "but packages and touch no running server."
help-all:		#: shows these lines
	@awk -F '[ \t]*#::? *' '/^#: / { print "\n" $$2 } /^[a-z-]+:.*[ \t]#::? / { sub(/:.*/, "", $$1); printf "  %-23s%s\n", $$1, $$2 }' Makefile
	@echo
	@echo "All but the first five need only a shell, make and apt; they install nothing but packages and"
	@echo "touch no running server."
indent:			#: lays out the C files as pgindent does; CHECK=1 only shows what would change
	@sh test/indent
demo:			#:: starts a throwaway server and shows ids; KEEP=1 leaves it up
	@sh test/demo
demo-cluster:	#: the same with three servers that share a registry; one is killed, one frozen
	@sh test/demo-cluster
managed: sql/managed_registry--$(EXTENSION_VERSION).sql	#: writes that file: a registry for databases where no extension files can be installed

#: test (what every change must pass: .ci/run)
test:			#:: builds with warnings as errors; SQL, isolation and TAP tests; test/run FILE... runs some
	@sh test/run
check: test		#: the same
test-unit:		#: the lease machine without a server: each event in each state, and a million random ones
	@sh test/unit/run
model:			#: the hot path on a memory that reorders loads and stores, over all schedules
	@sh test/model/run
prove:			#: proves the lease protocol, and takes each rule out; WITHOUT=rule tells what happens then
	@sh test/proof/run
simulate:		#: deployments in one process with every fault, from a seed, for DURATION=60 seconds
	@sh test/simulator/run
test-programs:	#: the libraries in client/: programs that make ids, on a scripted and a throwaway registry
	@sh test/programs/run
test-clients:	#: the programs of doc/clients.md and doc/clients/ with the libraries of eight languages
	@sh test/clients/run
test-monitoring:	#: monitoring/ with real servers: each metric and each alert
	@sh test/monitoring/run

#: deep: slower checks
test-majors:	#: make test on PostgreSQL 15, 17, 18 and 19, and pg_upgrade; needs root
	@sh test/majors/run
test-arch:		#: 32 bits and big-endian: tests on i386, arm64 and s390x (ARCHS chooses), emulated; needs root
	@sh test/arch/run
test-ubsan:		#: SQL tests and those of sessions with gcc's sanitizer for undefined behaviour
	@sh test/sanitize/ubsan
test-asan:		#: tests on a server with assertions and AddressSanitizer; ASAN_SERVER=DIRECTORY keeps it
	@sh test/sanitize/asan
test-valgrind:	#: SQL tests on a server under valgrind
	@sh test/sanitize/valgrind
analyze:		#: gcc -fanalyzer, clang's scan-build and cppcheck
	@sh test/sanitize/analyze
coverage:		#: which lines of src/ the tests run; fails below 95 %
	@sh test/sanitize/coverage
fuzz:			#: libFuzzer on the readers of layouts, encoded ids and a registry's answers, for FUZZ_SECONDS=60
	@sh test/fuzz/run
fuzz-selftest:	#: the same with bugs planted, each of which must be found
	@sh test/fuzz/selftest
test-programs-selftest:	#: make test-programs with bugs planted in client/, each of which must be found
	@sh test/programs/selftest
simulate-selftest:	#: the simulator with bugs planted, each of which must be found
	@sh test/simulator/selftest
mutants:		#: small mistakes in src and client that the tests do not find; SAMPLE=100 of them
	@sh test/mutants/run
torture:		#: servers, clients and every fault for DURATION=60 seconds; all ids are compared; PROGRAMS=60: a fleet
	@sh test/torture/run
torture-selftest:	#: the same with bugs planted, each of which must be found
	@sh test/torture/selftest
test-citus:		#: a Citus cluster of four servers, where Citus is installed for PG_CONFIG's server
	@sh test/citus/run
patroni:		#: failover, split brain and switchover, of a registry too; needs root, or Patroni
	@sh test/patroni/run

nightly:		#: most of these and the rest, one after the other, with a line for each; NIGHTLY='...' chooses
	@sh test/nightly

#: measure
bench:			#: measures ids, inserts, indexes, latency beside sequences and uuids; writes test-output/bench
	@sh bench/run
counts:			#: how large the source is: lines, functions, words; REF=COMMIT: that commit's
	@sh test/counts

#: release: doc/releasing.md has the steps
test-package:	#: builds the packages for Debian 12 and 13, and tests them in throwaway Debians; needs root
	@sh test/package/run
dist:			#: packs what is committed into snowflake-VERSION.zip, for PGXN
	@sh test/package/dist

.PHONY: all install installcheck uninstall clean help help-all indent demo demo-cluster managed test check test-unit model prove \
	simulate simulate-selftest mutants test-programs test-programs-selftest test-clients test-monitoring test-majors test-arch test-ubsan test-asan \
	test-valgrind analyze coverage fuzz fuzz-selftest torture torture-selftest test-citus patroni nightly \
	bench counts test-package dist
