# shellcheck shell=sh disable=SC2034,SC2154
#
# test/common.sh
#	  What test/run, test/demo and the like share.  They source it; nobody runs it.
#
# Needs: $top, the checkout.  Gives:
#
#	  $work			a fresh directory, removed at the end; the copy of the checkout in
#					$work/tree, the private installation in $work/inst, sockets
#					and temporary files below $work/tmp
#	  $bindir		the private installation's programs
#	  prepare NAME	makes all that; a function that is named by $before_build may change
#					the copy before it is built
#	  prepare_tree NAME	only the directory and the copy, with nothing built
#	  as_user CMD	runs a command in $work/tree as the unprivileged user
#	  run CMD		the same, but a signal ends us at once, not when it is done
#	  init_cluster DIRECTORY [INITDB-OPTION...]	a new cluster with the superuser postgres, who needs
#					no password at a socket, which is to be in $work/tmp, and $password elsewhere
#	  make_password	sets $password, which nobody else knows, if there is none yet; it is in the
#					files $work/tmp/password and, for libpq and pgjdbc, $work/tmp/pgpass, too
#	  refuses_others [tcp] PORT...	where root can try it: no other user gets into the servers
#	  unpack PACKAGE...	what is in Debian's packages, in $work/unpacked; nothing is
#					installed, no service started, and no root needed
#
# PostgreSQL refuses to run as root, and another user can perhaps neither read nor
# write the checkout.  So everything happens in a copy, which TEST_USER (default: nobody)
# makes for root; that user does the rest.  Others can neither reach the servers, whose sockets
# are in $work/tmp, nor make links there.  Root writes to no directory of the user, who could.

umask 022

TEST_USER=${TEST_USER:-nobody}
PG_MAJOR=${PG_MAJOR:-$(sh "$top/test/major")}

test_output=$top/test-output
work=
bindir=
password=
prepared=
before_build=

die()
{
	echo "$0: $*" >&2
	exit 1
}

# The caller's make, server and locale must not show in what we do.
clean_environment()
{
	unset MAKEFLAGS MFLAGS MAKELEVEL MAKEFILES MAKEOVERRIDES RUNNING CDPATH LANGUAGE
	for name in $(env | sed -n 's/^\(PG[A-Z]*\)=.*/\1/p'); do
		unset "$name"
	done
	# pg_regress removes the one, and has the other choose the encoding
	LC_ALL=C.UTF-8
	LANG=C.UTF-8
	export LC_ALL LANG

	PG_CONFIG=${PG_CONFIG:-/usr/lib/postgresql/$PG_MAJOR/bin/pg_config}
	export PG_CONFIG
}

as_user()
(
	cd "$work/tree" || exit
	user=$(id -un)
	[ "$(id -u)" -ne 0 ] || user=$TEST_USER
	# The shell has jobs in the background ignore these two signals.
	set -- env --default-signal=INT,QUIT HOME="$work/home" TMPDIR="$work/tmp" \
		USER="$user" LOGNAME="$user" "$@"
	[ "$(id -u)" -ne 0 ] ||
		set -- setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups "$@"
	exec "$@"
)

run()
{
	as_user "$@" &
	wait $!
}

download()
{
	apt-get -q -o APT::Sandbox::User="$(id -un)" download "$@"
}

unpack()
(
	mkdir -p "$work/unpacked"
	cd "$work/unpacked"
	# Perhaps there are no lists, or they name files that are gone.
	{ download "$@" || { [ "$(id -u)" -eq 0 ] && apt-get -q update && download "$@"; }; } >"$work/apt.log" 2>&1 ||
		{ tail -n 5 "$work/apt.log" >&2; die "these packages cannot be downloaded: $*"; }
	for package in *.deb; do
		dpkg -x "$package" . || exit
		rm "$package"
	done
)

# A directory where the user may run programs, and whose name leaves room for the
# 107 bytes of a socket's.
make_work()
{
	for base in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
		case $base in
			[!/]* | *[!A-Za-z0-9/._+-]*) continue ;;
		esac
		[ ${#base} -le 40 ] || continue
		work=$(mktemp -d "$base/snowflake-$1.XXXXXX" 2>/dev/null) || continue
		mkdir "$work/tree" "$work/inst"
		mkdir -m 700 "$work/tmp" "$work/home"
		printf '#!/bin/sh\n' >"$work/probe"
		chmod 755 "$work/probe"
		if [ "$(id -u)" -eq 0 ]; then
			chmod 755 "$work"
			chown "$TEST_USER:" "$work/tree" "$work/inst" "$work/tmp" "$work/home"
		fi
		as_user "$work/probe" 2>/dev/null && return
		rm -rf "$work"
	done
	work=
	die "no directory for temporary files in which $TEST_USER may run programs"
}

copy_tree()
{
	# 1: a file changed while it was read, which an editor may do
	tar -C "$top" -cf "$work/tree.tar" --exclude=./.git --exclude=./.deps --exclude=./test-output --exclude=./nightly-output \
		--exclude=./results --exclude=./log --exclude=./output_iso --exclude=./tmp_check \
		--exclude=./tmp_check_iso --exclude='./regression.*' \
		--exclude='*.o' --exclude='*.bc' --exclude='*.so' . || [ $? -eq 1 ]
	as_user tar --no-same-owner -xpf - <"$work/tree.tar"
	rm "$work/tree.tar"
}

make_password()
{
	[ -z "$password" ] || return 0
	password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
	# shellcheck disable=SC2016
	echo "$password" | as_user sh -c 'umask 077; tee "$1" | sed "s/^/*:*:*:*:/" >"$2"' sh "$work/tmp/password" "$work/tmp/pgpass"
}

init_cluster()
{
	make_password
	run "$bindir/initdb" -D "$@" -U postgres -E UTF8 -N --auth-local=trust --auth-host=scram-sha-256 \
		--pwfile="$work/tmp/password" >"$work/initdb.log" 2>&1 || { cat "$work/initdb.log" >&2; die "initdb failed"; }
}

# A user that no account has, by the socket and, where ours listen, by TCP: what listens there else is not ours
refuses_others()
{
	[ "$(id -u)" -eq 0 ] || return 0
	tcp=
	[ "$1" != tcp ] || { tcp=127.0.0.1; shift; }
	for port; do
		for host in "$work/tmp" $tcp; do
			! said=$(LC_ALL=C setpriv --reuid 64999 --regid 64999 --clear-groups "$bindir/psql" -XAtw -h "$host" \
				-p "$port" -U postgres -d postgres -c 'SELECT 1' 2>&1) || die "another user can connect to $host, port $port"
			case $host:$said in
				/*"Permission denied"* | 127.0.0.1:*"no password supplied"* | 127.0.0.1:*"no pg_hba.conf entry"* | 127.0.0.1:*"Connection refused"*) ;;
				*) die "another user is refused by $host for another reason: $said" ;;
			esac
		done
	done
}

# The processes that run a program of ours or run in a directory of ours: all we
# started, whatever became of their parents.  Where /proc is not mounted, the servers.
our_processes()
{
	if [ -e /proc/self ]; then
		find /proc -maxdepth 2 \( -name exe -o -name cwd \) -lname "$work/*" \
			-printf '%h\n' 2>/dev/null | sed 's,^/proc/,,' | sort -u
	else
		find "$work" -name postmaster.pid -exec sed -sn 1p '{}' + 2>/dev/null
	fi
}

# TERM ends all but postmasters with sessions, QUIT ends those.
stop_processes()
{
	round=0
	signal=TERM
	while [ -n "$(our_processes)" ]; do
		case $((round += 1)) in
			2) signal=QUIT ;;
			40) signal=KILL ;;
			80) break ;;
		esac
		for process in $(our_processes); do
			kill -s "$signal" "$process" 2>/dev/null || :
		done
		sleep 0.25
	done
}

# A killed postmaster leaves a piece of System V shared memory, named in line 7 of its pid file.
remove_shared_memory()
{
	find "$work" -name postmaster.pid 2>/dev/null | while read -r file; do
		id=$(sed -n '7s/.* //p' "$file")
		[ -z "$id" ] || as_user ipcrm -m "$id" </dev/null 2>/dev/null || :
	done
}

# What explains a failure goes to the checkout (or, if that is read-only, to a
# directory of its own).
save_logs()
{
	mkdir -p "$test_output" 2>/dev/null && [ -w "$test_output" ] ||
		test_output=$(mktemp -d "${TMPDIR:-/tmp}/snowflake-test-output.XXXXXX")
	cp "$work"/*.log "$test_output" 2>/dev/null || :
	# Read by the user, who owns what is there, and could make it a link: so after what root writes.
	as_user sh -c 'find regression.diffs regression.out results log output_iso \
		tmp_check/log ../tmp/*.log -type f -print0 2>/dev/null |
		tar --null -T - --transform="s,^\.\./tmp/,," -cf - 2>/dev/null' |
		tar -C "$test_output" --no-same-owner -xf - || :
	[ "$(id -u)" -ne 0 ] || chown -R --reference="$top" "$test_output"
	echo "Logs: $test_output" >&2
}

finish()
{
	status=$?
	trap - EXIT
	trap '' HUP INT PIPE TERM
	if [ -n "$work" ]; then
		stop_processes
		[ "$status" -eq 0 ] || [ -z "$prepared" ] || save_logs
		remove_shared_memory
		rm -rf "$work"
	fi
	exit "$status"
}

prepare_tree()
{
	clean_environment
	rm -rf "$test_output" 2>/dev/null || :
	trap finish EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 141' PIPE
	trap 'exit 143' TERM

	make_work "$1"
	as_user "$PG_CONFIG" --version >/dev/null || die "cannot run $PG_CONFIG"
	copy_tree
	prepared=1
	[ -z "$before_build" ] || "$before_build"
}

prepare()
{
	prepare_tree "$1"
	echo "Building with $("$PG_CONFIG" --version) ..."
	run make -s -j "$(getconf _NPROCESSORS_ONLN)" all with_llvm=no COPT="-Werror ${COPT:-}" ||
		die "the build failed"
	run sh test/private-install "$work/inst" >"$work/install.log" 2>&1 ||
		{ cat "$work/install.log" >&2; die "the private installation failed"; }
	bindir=$work/inst$("$PG_CONFIG" --bindir)
}
