# shellcheck shell=sh disable=SC2034,SC2154
#
# test/throwaway.sh
#	  What makes a throwaway Debian, for test/package/run, test/majors/run and test/arch/run,
#	  which source it after test/common.sh.
#
# Gives:
#
#	  install_programs PACKAGE=PROGRAM...	installs the packages whose programs are missing
#	  killable COMMAND...		runs a command that end_killable ends, with all that it has started
#	  end_killable				ends these commands
#	  in_debian ROOT [NAME=VALUE...] COMMAND...	runs a command, which is killable, in a throwaway
#								Debian with nothing else in its environment, in namespaces that
#								end with it, without a network
#	  write_sources RELEASE		the entries of this machine's apt sources for a release of
#								Debian, its updates and its security updates, in $work/apt.list
#								and $work/apt.sources; $sources names those of the two that
#								have any.  In $work/apt.conf, proxies and the like
#	  write_sources_of RELEASE	the same entries for another release, in $work/sources-RELEASE.list and
#								$work/sources-RELEASE.sources, of which one may be missing
#	  release_of_machine		prints the name of the release that this machine has
#	  find_mirror				sets $mirror to the address of the archive that has this machine's
#								own release, with its options; and $work/apt.conf

install_programs()
{
	missing=
	for pair; do
		command -v "${pair#*=}" >/dev/null || missing="$missing ${pair%%=*}"
	done
	[ -n "$missing" ] || return 0
	echo "Installing$missing ..."
	# shellcheck disable=SC2086
	set -- -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends --no-upgrade $missing
	DEBIAN_FRONTEND=noninteractive
	NEEDRESTART_SUSPEND=1
	export DEBIAN_FRONTEND NEEDRESTART_SUSPEND
	apt-get "$@" >"$work/apt.log" 2>&1 || { apt-get -q update && apt-get "$@"; } >"$work/apt.log" 2>&1 ||
		{ cat "$work/apt.log" >&2; die "apt could not install$missing"; }
}

killable()
{
	"$@" &
	mkdir -p "$work/pids"
	touch "$work/pids/$!"
	wait $! && ended=0 || ended=$?
	rm "$work/pids/$!"
	return "$ended"
}

# unshare has no ear for TERM while what it has started runs; mmdebstrap has, and cleans up.
end_killable()
{
	for signal in TERM KILL; do
		for file in "$work"/pids/*; do
			[ ! -e "$file" ] || kill -s "$signal" "${file##*/}" 2>/dev/null || :
		done
		[ ! -e "$file" ] || sleep 1
	done
}

in_debian()
{
	# shellcheck disable=SC2016
	killable unshare -m -p -i -n -f --kill-child sh -c '
		root=$1
		shift
		mount -t proc proc "$root/proc" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
		ip link set lo up 2>/dev/null
		exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' sh "$@"
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
			$0 ~ "(^|\n)Types:[^\n]*deb( |\n|$)" && $0 !~ "(^|\n)Enabled: *no" &&
			$0 ~ "(^|\n)Suites:[^\n]* " suite "(-updates|-security)?( |\n|$)"'
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

find_mirror()
{
	codename=$(release_of_machine)
	write_sources "$codename"
	mirror=$(sed -nE "s/^deb +(\[[^]]*\] +)?([^ ]+) +$codename .*/\1\2/p" "$work/apt.list" 2>/dev/null | head -n 1)
	[ -n "$mirror" ] || mirror=$(awk -v suite="$codename" '
		BEGIN { RS = "" }
		$0 ~ "(^|\n)Suites:[^\n]* " suite "( |\n|$)" {
			n = split($0, lines, "\n")
			for (i = 1; i <= n; i++)
				if (lines[i] ~ /^URIs:/) { split(lines[i], words, " "); print words[2]; exit }
		}' "$work/apt.sources")
	[ -n "$mirror" ] || die "apt's sources name no archive with the release $codename"
	# old snapshots and rolling releases
	echo 'Acquire::Check-Valid-Until "false";' >>"$work/apt.conf"
}
