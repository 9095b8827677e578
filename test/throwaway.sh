# shellcheck shell=sh disable=SC2034,SC2154
#
# test/throwaway.sh
#	  What makes a throwaway Debian, for test/package/run and test/majors/run, which source it
#	  after test/common.sh.
#
# Gives:
#
#	  install_mmdebstrap
#	  write_sources RELEASE		the entries of this machine's apt sources for a release of
#								Debian, its updates and its security updates, in $work/apt.list
#								and $work/apt.sources; $sources names those of the two that
#								have any.  In $work/apt.conf, proxies and the like
#	  write_sources_of RELEASE	the same entries for another release, in $work/sources-RELEASE.list and
#								$work/sources-RELEASE.sources, of which one may be missing
#	  release_of_machine		prints the name of the release that this machine has

install_mmdebstrap()
{
	! command -v mmdebstrap >/dev/null || return 0
	echo "Installing mmdebstrap ..."
	set -- -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends --no-upgrade mmdebstrap
	DEBIAN_FRONTEND=noninteractive
	NEEDRESTART_SUSPEND=1
	export DEBIAN_FRONTEND NEEDRESTART_SUSPEND
	apt-get "$@" >"$work/apt.log" 2>&1 || { apt-get -q update && apt-get "$@"; } >"$work/apt.log" 2>&1 ||
		{ cat "$work/apt.log" >&2; die "apt could not install mmdebstrap"; }
}

release_of_machine()
{
	# shellcheck disable=SC1091
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	[ -n "$codename" ] || die "/etc/os-release does not say which release this is"
	echo "$codename"
}

write_sources()
{
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[ ! -e "$file" ] || grep -E "^deb .*[[:space:]]$1(-updates|-security)?[[:space:]].*main" "$file" || :
	done >"$work/apt.list"
	for file in /etc/apt/sources.list.d/*.sources; do
		[ ! -e "$file" ] || grep -v '^#' "$file" | awk -v suite="$1" '
			BEGIN { RS = ""; ORS = "\n\n" }
			$0 ~ "(^|\n)Types:[^\n]*deb( |\n)" && $0 !~ "(^|\n)Enabled: *no" &&
			$0 ~ "(^|\n)Suites:[^\n]* " suite "(-updates|-security)?( |\n)"'
	done >"$work/apt.sources"
	set --
	[ ! -s "$work/apt.list" ] || set -- "$work/apt.list"
	[ ! -s "$work/apt.sources" ] || set -- "$@" "$work/apt.sources"
	[ $# -gt 0 ] || die "apt's sources name no archive of Debian's release"
	sources=$*
	apt-config dump --format '%F "%v";%n' Acquire 2>/dev/null |
		grep -E '^Acquire::(https?|Retries|Check-Valid-Until|Check-Date|ForceIPv)' >"$work/apt.conf" || :
}

write_sources_of()
{
	codename=$(release_of_machine)
	write_sources "$codename"
	for file in $sources; do
		sed "s/\([[:space:]]\)$codename\>/\1$1/g" "$file" >"$work/sources-$1.${file##*.}"
	done
}
