# shellcheck shell=sh disable=SC2034,SC2154
#
# test/sanitize/sanitize.sh
#	  What the runs of this directory share.  They source it after test/common.sh and
#	  test/kinds.sh; nobody runs it.
#
# Needs: $target, that of the make target.  Gives:
#
#	  prepare_sanitized	prepare, with the bug of test/sanitize/plants that PLANT names, and an
#						end whose last line is "$target: N passed, M failed"
#	  $passed, $failed	what that line says
#	  $reports			a directory to which every process of ours may write
#	  count_reports BEGINS OURS
#						a report in the files there, and of undefined behaviour in the
#						servers' logs, begins with a line that the pattern BEGINS
#						matches; those in which OURS matches a line are printed, and failures
#	  $at_end			a function that is called then
#	  count_kinds		prints and adds the numbers of run_kinds

PLANT=${PLANT:-}

passed=0
failed=0
done=
reports=
at_end=:

# Whatever went wrong, nobody shall read "0 failed".
leave()
{
	status=$?
	set +e
	trap - EXIT
	trap '' HUP INT PIPE TERM
	[ -n "$done" ] || [ "$failed" -ne 0 ] || failed=1
	[ "$failed" -eq 0 ] || [ "$status" -ne 0 ] || status=1
	(exit "$status")
	(finish)
	"$at_end"
	echo "$target: $passed passed, $failed failed"
	exit "$status"
}

begin_sanitized()
{
	trap leave EXIT
	reports=$work/tmp/reports
	as_user mkdir "$reports"
	[ -z "$PLANT" ] || run patch -s -p1 -i "test/sanitize/plants/$PLANT.patch" ||
		die "the bug $PLANT cannot be planted"
}

prepare_sanitized()
{
	before_build=begin_sanitized
	prepare "${target#test-}"
}

# The sanitizer of a library that a server loads does not see where its reports are to go:
# they are in the server's log, with the stack below.
server_reports()
{
	as_user find log output_iso/log tmp_check/log -name '*.log' -exec awk '
		/runtime error:/ { inside = 1; print; next }
		inside && /^    #/ { print; next }
		{ inside = 0 }' '{}' + 2>/dev/null || :
}

# The patterns come by the environment, as awk -v would take backslashes out.
count_reports()
{
	find "$reports" -type f -size +0 -exec cat '{}' + >"$work/reports.log"
	server_reports >>"$work/reports.log"
	BEGINS=$1 OURS=$2 awk '
		$0 ~ ENVIRON["BEGINS"] { end() }
		{ text = text $0 "\n" }
		$0 ~ ENVIRON["OURS"] { ours = 1 }
		END { end(); print "reports:   " found + 0 }
		function end()
		{
			if (ours && ++found <= 10)
				printf "\n%s", text
			text = ""
			ours = 0
		}' "$work/reports.log" >"$work/found.log"
	cat "$work/found.log"
	failed=$((failed + $(sed -n '$s/[^0-9]*//p' "$work/found.log")))
}

count_kinds()
{
	show_kinds
	passed=$((passed + total_passed))
	failed=$((failed + total_failed))
}
