# shellcheck shell=sh disable=SC2154
#
# test/kinds.sh
#	  The three kinds of tests, for test/run and those that run them in some other way
#	  (test/sanitize).  They source it after test/common.sh; nobody runs it.
#
# Needs: prepare was called.  Gives:
#
#	  run_kinds		runs the tests that REGRESS, ISOLATION and PROVE_TESTS choose, with
#					PROVE_FLAGS
#	  show_kinds	prints differences, and a line with the numbers for each kind
#	  $total_passed, $total_failed

total_passed=0
total_failed=0
summary=

# What a person wants to see while the tests run; the rest is in the logs.
interesting()
{
	grep --line-buffered -v -e '^+++' -e '^=====' -e '^make: ' -e '^running on port' \
		-e '^CREATE DATABASE' -e '^ALTER DATABASE' -e '^The differences' -e '^file "' \
		-e '^above is saved' -e '^$' || :
}

# "passed failed" of the output of pg_regress: "test x ... ok", "x ... FAILED" before
# PostgreSQL 16, TAP since.
count_regress()
{
	awk '/^(test)? +.* \.\.\. ok/ || /^ok / { passed++ }
		/^(test)? +.* \.\.\. FAILED/ || /^not ok / { failed++ }
		/ \.\.\. failed \(ignored\)/ { failed++ }
		END { print passed + 0, failed + 0 }' "$1"
}

# The same of the TAP tests' own logs, where a time precedes each line of the test;
# prove shows no single assertions.  Those of subtests are indented, and a skipped one
# did not run.
count_tap()
{
	find "$work/tree/tmp_check/log" -name 'regress_log_*' -exec cat '{}' + 2>/dev/null |
		sed -E 's/^.*\[[0-9:.]+\]\([0-9.]+s\) ((not )?ok )/\1/' |
		awk '/^(not )?ok [0-9]/ && /# skip/ { next }
			/^not ok / && /# TODO/ { next }
			/^ok [0-9]/ { passed++ }
			/^not ok [0-9]/ { failed++ }
			END { print passed + 0, failed + 0 }'
}

# run_kind LABEL COUNTER MAKE-ARGUMENT...
run_kind()
{
	label=$1
	counter=$2
	log=$work/make-$1.log
	shift 2

	echo
	echo "== $label"
	rm -f "$work/failed"
	{
		# What a TAP test waits for comes late where others use the machine.
		as_user env PG_TEST_TIMEOUT_DEFAULT="${PG_TEST_TIMEOUT_DEFAULT:-360}" make -s installcheck bindir="$bindir" with_llvm=no "$@" 2>&1 ||
			touch "$work/failed"
	} | tee "$log" | interesting &
	wait $!

	# shellcheck disable=SC2046
	set -- $("$counter" "$log")
	if [ "$1" -eq 0 ] && [ "$2" -eq 0 ]; then
		echo "$label: no test ran"
		tail -n 20 "$log"
		set -- 0 1
	elif [ -e "$work/failed" ] && [ "$2" -eq 0 ]; then
		echo "$label: the run failed outside of the tests' own checks"
		set -- "$1" 1
	fi
	total_passed=$((total_passed + $1))
	total_failed=$((total_failed + $2))
	summary="$summary$(printf '%-10s %s passed, %s failed' "$label:" "$1" "$2")
"
}

show_diffs()
{
	for diffs in "$work/tree/regression.diffs" "$work/tree/output_iso/regression.diffs"; do
		if [ -s "$diffs" ]; then
			echo
			head -n 200 "$diffs"
		fi
	done
}

# pg_regress gives up altogether where there is no expected output yet.
expect_something()
{
	# shellcheck disable=SC2016
	as_user sh -c 'for file in sql/*.sql test/specs/*.spec; do
		name=$(basename "${file%.*}")
		expected=$(dirname "$(dirname "$file")")/expected
		case $name in
			*--* | \*) continue ;;
		esac
		set -- "$expected/$name"*.out
		[ -e "$1" ] || { mkdir -p "$expected"; touch "$expected/$name.out"; }
	done'
}

# Why TAP tests failed: each check that did, with what it says; and the last lines of a test that did not
# come to its end.
show_tap()
{
	find "$work/tree/tmp_check/log" -name 'regress_log_*' 2>/dev/null | sort | while read -r log; do
		sed -E 's/^\[[0-9:.]+\]\([0-9.]+s\) //' "$log" | awk -v name="${log##*/regress_log_}" '
			/^not ok / && !/# TODO/ { more = 15 }
			more > 0 { said = said "  " $0 "\n"; more-- }
			{ last[NR] = $0; delete last[NR - 30] }
			/^1\.\.[0-9]/ { ended = 1 }
			END {
				if (said != "" || !ended)
					printf "\n%s:\n%s", name, said
				if (!ended) {
					print "  did not end; last:"
					for (n = NR - 29; n <= NR; n++)
						if (n in last)
							print "  " last[n]
				}
			}'
	done
}

# A test that is not in the Makefile's list would pass for ever.
check_list()
{
	list=$(as_user make -n installcheck bindir="$bindir" with_llvm=no ISOLATION= PROVE_TESTS= |
		tr '\n' ' ')
	for file in "$top"/sql/*.sql; do
		name=$(basename "$file" .sql)
		case $name in
			*--* | \*) continue ;;
		esac
		case "$list " in
			*" $name "*) continue ;;
		esac
		echo "sql/$name.sql is not in the Makefile's list REGRESS"
		total_failed=$((total_failed + 1))
	done
}

skip_kind()
{
	summary="$summary$1
"
}

run_kinds()
{
	expect_something

	if [ -z "${REGRESS-all}" ]; then
		skip_kind "regress:   skipped"
	else
		run_kind regress count_regress ISOLATION= PROVE_TESTS= ${REGRESS+"REGRESS=$REGRESS"}
		[ -n "${REGRESS+chosen}" ] || check_list
	fi

	if [ -z "${ISOLATION-all}" ]; then
		skip_kind "isolation: skipped"
	else
		run_kind isolation count_regress REGRESS= PROVE_TESTS= ${ISOLATION+"ISOLATION=$ISOLATION"}
	fi

	if [ -z "${PROVE_TESTS-all}" ]; then
		skip_kind "TAP:       skipped"
	else
		run_kind TAP count_tap REGRESS= ISOLATION= PROVE_FLAGS="${PROVE_FLAGS:--j4 --timer}" \
			${PROVE_TESTS+"PROVE_TESTS=$PROVE_TESTS"}
	fi
}

show_kinds()
{
	[ "$total_failed" -eq 0 ] || { show_diffs; show_tap; }
	echo
	printf '%s' "$summary"
	printf '%-10s %s passed, %s failed\n' "total:" "$total_passed" "$total_failed"
}
