# shellcheck shell=sh disable=SC2154
#
# test/patroni/registry.sh
#	  REGISTRY=patroni of make patroni: two servers under Patroni are the registry of other
#	  servers.  test/patroni/run sources it; nobody runs it.
#
# The registry is a and b, over TLS as doc/operations.md has it.  Of its nodes, c and e have the
# host list "registry1,registry2" and d has the other order; a is registry1.  e never
# restarts.  Clients ask the nodes for ids during all this:
#
#	  1. A node takes a lease and another one renews, and the standby does not get that (with
#		 synchronous_mode on, it does).  Then the primary's postmaster is killed by kill -9.
#	  2. Patroni is stopped on the primary until the other server is primary, too: a split brain of the
#		 registry.  c and d crash, and each asks the first server of its list.  With
#		 synchronous_mode on, the old primary cannot grant.
#	  3. Two switchovers, the second as soon as the first is done and a node has crashed and leased
#		 from the new primary.  Leases of two generations before are not over then: the registry waits.
#
# What was lost in steps 1 and 2 ends before the next promotion, as doc/operations.md wants it.
#
# Gives: try_nodes, make_secrets.  Needs: $primary is up, with $standby; it changes these two.

short=10s
long=2min
nodes='c d e'

# One certificate for both names of the registry, and the file with the nodes' password
make_secrets()
{
	as_user openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=registry1 \
		-addext 'subjectAltName=DNS:registry1,DNS:registry2' \
		-keyout "$work/tmp/registry.key" -out "$work/tmp/registry.crt" 2>"$work/openssl.log"
	write_passfile
}

# of_page HOSTS PORTS: snowflake.registry of the page, with our hosts, ports and paths
of_page()
{
	tr '\n' ' ' <"$top/doc/operations.md" |
		sed -n "s/.*snowflake\.registry = '\(host=registry1,[^']*\)'.*/\1/p" | tr -s ' ' |
		sed "s|host=registry1,registry2|host=$1 hostaddr=127.0.0.1,127.0.0.1 port=$2|; s|/etc/postgresql|$work/tmp|g"
}

run_node()
{
	as_user "$bindir/pg_ctl" -s -w -t 180 -D "$work/tmp/$1" -l "$work/tmp/$1.log" start 2>>"$work/nodes.log" ||
		die "$1 does not start"
}

# start_node NODE HOSTS PORTS.  Few numbers and few ids a tick: if two nodes have one number,
# ids repeat at once.
start_node()
{
	init_cluster "$work/tmp/$1"
	as_user tee -a "$work/tmp/$1/postgresql.conf" >/dev/null <<END
listen_addresses = ''
port = $(port "$1")
unix_socket_directories = '$work/tmp'
log_line_prefix = '%m [%p] '
shared_preload_libraries = 'snowflake'
snowflake.layout = 'timestamp 41, worker 6, sequence 3, tick 1ms, epoch 2024-01-01T00:00:00Z'
snowflake.lease_duration = $short
snowflake.registry = '$(of_page "$2" "$3")'
END
	run_node "$1"
	sql "$1" -c 'CREATE EXTENSION snowflake' -c 'CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval())'
}

# As after a power failure: nobody releases the lease.
crash_node()
{
	postmaster=$(head -n 1 "$work/tmp/$1/postmaster.pid")
	kill -9 "$postmaster"
	wait_for "the end of $1" 180 is_gone "$1"
	run_node "$1"
}

# Its backends end by themselves, and hold its shared memory until then; a zombie still has
# its place in postmaster.pid.
is_gone()
{
	[ ! -e "/proc/$postmaster" ] && ! find /proc -maxdepth 2 -name cwd -lname "$work/tmp/$1" 2>/dev/null | grep -q .
}

# A condition that holds for some lease of the node that this server has on record:
# some_lease NODE SERVER CONDITION
some_lease()
{
	ask "$2" "SELECT EXISTS (SELECT FROM (SELECT l.*, n.renewed_at FROM snowflake.leases AS l
			LEFT JOIN snowflake.node_number AS n ON n.node_number = l.node_number AND l.closed_at IS NULL) AS l
		WHERE port = $(port "$1") AND $3)"
}

# renewed NODE SERVER TIME: whether this server granted or renewed a lease of the node later
renewed()
{
	some_lease "$1" "$2" "renewed_at > to_timestamp($3)"
}

# granted NODE SERVER TIME: whether this server leased a number to a later start of the node
granted()
{
	some_lease "$1" "$2" "launched_at > to_timestamp($3)"
}

# has_lease_of NODE SERVER TIME: whether it uses a number that this server granted or renewed later, and
# not one that another branch granted
has_lease_of()
{
	number=$(number "$1" 2>/dev/null) && [ -n "$number" ] &&
		some_lease "$1" "$2" "node_number = $number AND closed_at IS NULL AND renewed_at > to_timestamp($3)
			AND generation = (SELECT generation FROM snowflake.registry)"
}

# are_served TIME: waits until all nodes have leases that the primary granted or renewed later, and have
# issued ids under them
are_served()
{
	for node in $nodes; do
		wait_for "a lease of $node from $primary" 180 has_lease_of "$node" "$primary" "$1"
		from=$(now)
		wait_for "ids of $node" 180 issued "$node" 200 "$from"
	done
	ok "all nodes have leases of $primary and issue ids, after $(since "$1") s; e paused for up to $(pause "$1") s"
}

# The longest time in which clients got no id from e, since then
pause()
{
	cut -d ' ' -f 2 "$work"/ids.e.* | sort -g | awk -v "from=$1" '
		$1 > from { if ($1 - last > most && last) most = $1 - last; last = $1 } END { printf "%.2f", most }'
}

# remember SERVER NAME: the end of each lease that the server has on record, and whether it is closed
remember()
{
	sql "$1" -c 'SELECT token, extract(epoch FROM coalesce(w.leased_until, n.leased_until)), closed_at IS NOT NULL
		FROM snowflake.worker_node AS w LEFT JOIN snowflake.node_number AS n USING (token)' | sort >"$work/leases.$2"
}

# count_lost SERVER: how many leases or renewals, of those remembered, the new primary has not.
# (Closing a lease can lower its end, to the last id.)
count_lost()
{
	remember "$1" after
	join -a 1 -e none -o 1.2,2.2,2.3 "$work/leases.before" "$work/leases.after" |
		awk '$2 == "none" || ($3 == "f" && $2 < $1)' | wc -l
}

# Step 3 of "Failover" on the page: what a promotion lost is over before the next one.
let_lost_leases_end()
{
	end=$(now)
	wait_for "the end of lost leases" 180 ask "$primary" "SELECT clock_timestamp() > to_timestamp($end) + interval '$short'"
}

crash_registry()
{
	echo "  1. kill -9 of the postmaster of $primary, the registry"
	start=$(now)
	crash_node c	# so that it has a short lease to renew
	wait_for "a grant to c" 180 granted c "$primary" "$start"
	sender=$(sql "$primary" -c 'SELECT pid FROM pg_stat_replication')
	[ "$mode" = on ] || kill -STOP "$sender"
	start=$(now)
	crash_node d
	wait_for "a grant to d" 180 granted d "$primary" "$start"
	wait_for "a renewal of c" 180 renewed c "$primary" "$start"
	remember "$primary" before
	promote
	[ "$mode" = on ] || kill -9 "$sender"
	lost=$(count_lost "$standby")
	[ "$mode" = on ] && expected="-eq 0" || expected="-ge 1"
	# shellcheck disable=SC2086
	check "$standby is primary and lacks $lost of $(wc -l <"$work/leases.before") leases or their renewals" [ "$lost" $expected ]
	swap
	are_served "$start"
	wait_for "$standby is a standby" 180 is_standby "$standby" "$primary"
	let_lost_leases_end
}

# The node that asks this server first
node_of()
{
	[ "$1" = a ] && echo c || echo d
}

# grants SERVER TIME: the last bits of the numbers that it leased to later starts, and how many
grants()
{
	sql "$1" -c "SELECT string_agg(DISTINCT (node_number % 2)::text, ' '), count(*) FROM snowflake.worker_node
		WHERE launched_at > to_timestamp($2)" -F :
}

split_registry()
{
	echo "  2. SIGSTOP of Patroni of $primary, the registry"
	patroni=$(cat "$work/tmp/$primary.pid")
	of_old=$(node_of "$primary")
	of_new=$(node_of "$standby")
	kill -STOP "$patroni"
	wait_for "the promotion of $standby" 180 is_primary "$standby"
	both=$(now)
	crash_node "$of_new"
	wait_for "a grant by $standby to $of_new" 180 granted "$of_new" "$standby" "$both"
	crash_node "$of_old"
	if [ "$mode" = on ]; then
		wait_for "$of_old refuses ids" 180 is_refused "$of_old"
		ok "$primary grants nothing without its synchronous standby: $of_old refuses ids"
	else
		both_grant
	fi
	check "$primary is still writable" is_primary "$primary"
	was=$primary
	end=$(now)
	rejoin
	[ "$primary" != "$was" ] || echo "     $was was the leader again, and what $standby granted is lost"
	are_served "$end"
	let_lost_leases_end
}

both_grant()
{
	wait_for "a grant by $primary to $of_old" 180 granted "$of_old" "$primary" "$both"
	apart=$(now)
	wait_for "a renewal by $primary" 180 renewed "$of_old" "$primary" "$apart"
	wait_for "a renewal by $standby" 180 renewed "$of_new" "$standby" "$apart"
	for node in $nodes; do
		wait_for "1000 ids of $node" 180 issued "$node" 1000 "$apart"
	done
	old=$(grants "$primary" "$both")
	new=$(grants "$standby" "$both")
	check "$primary leased $of_old ${old#*:} numbers with the last bit ${old%:*}, and $standby $of_new ${new#*:} with ${new%:*}" \
		are_bits "${old%:*}" "${new%:*}"
	for node in $of_old $of_new; do
		count=$(ids "$node" "$apart")
		ok "$node issued ${count% *} ids meanwhile"
	done
}

are_bits()
{
	[ "$1 $2" = "0 1" ] || [ "$1 $2" = "1 0" ]
}

set_duration()
{
	for node in $nodes; do
		sql "$node" -c "ALTER SYSTEM SET snowflake.lease_duration = '$1'" -c 'SELECT FROM pg_reload_conf()'
	done
}

has_long_lease()
{
	ask "$1" "SELECT leased_until > clock_timestamp() + interval '$long' / 2 FROM pg_stat_snowflake"
}

switch_registry()
{
	echo "  3. two switchovers of the registry; lease_duration is $long"
	set_duration "$long"
	first=$(now)
	times=
	lost=0
	for _ in 1 2; do
		remember "$primary" before
		start=$(now)
		control switchover --master "$primary" --candidate "$standby" --force >>"$work/switchover.log" 2>&1 ||
			{ cat "$work/switchover.log" >&2; die "the switchover failed"; }
		wait_for "the promotion of $standby" 180 is_primary "$standby"
		lost=$((lost + $(count_lost "$standby")))
		wait_for "$primary is a standby" 180 is_standby "$primary" "$standby"
		swap
		node=$(node_of "$primary")
		crash_node "$node"	# its lease goes on to its end
		wait_for "a grant to $node" 180 granted "$node" "$primary" "$start"
		wait_for "a long lease of $node" 180 has_long_lease "$node"
		times="$times $(since "$start")"
	done
	set_duration "$short"
	ok "two switchovers took$times s, each with the time for a long lease; e paused for up to $(pause "$first") s"
	are_served "$start"
	check "they lost $lost leases or renewals" [ "$lost" -eq 0 ]
	# The second one comes within the longest window, and numbers with its bit are in use: the registry waits.
	both=$(sql "$primary" -c "SELECT count(*) FROM snowflake.leases AS new WHERE starts_at > to_timestamp($first)
		AND EXISTS (SELECT FROM snowflake.leases AS old WHERE old.generation = new.generation - 2 AND old.leased_until > new.starts_at)")
	check "$both leases started before those of two generations before were over" [ "$both" -eq 0 ]
}

try_nodes()
{
	page sql 'Several primaries with a registry' >"$work/registry.sql"
	sql a <"$work/registry.sql" 2>"$work/registry-sql.log"
	set_password a
	start_node c registry1,registry2 "$port_a,$port_b"
	start_node d registry2,registry1 "$port_b,$port_a"
	start_node e registry1,registry2 "$port_a,$port_b"
	# shellcheck disable=SC2086
	start_clients $nodes
	are_served "$(now)"
	for mode in $MODES; do
		echo "Registry: under Patroni, synchronous_mode $mode"
		set_mode "$mode"
		[ "$mode" = on ] && check=synchronous || check=replica
		wait_for "replication" 180 is_standby "$standby" "$primary"
		crash_registry
		split_registry
		switch_registry
	done
	echo
	echo "The leases on record (those that a failover lost are gone):"
	sql "$primary" -P format=aligned -P tuples_only=off -P footer=off -c "
		SELECT generation, count(*) AS leases, string_agg(DISTINCT (node_number % 2)::text, ' ') AS last_bit
		FROM snowflake.worker_node GROUP BY generation ORDER BY generation"
	# shellcheck disable=SC2086
	stop_clients $nodes
	compare
}
