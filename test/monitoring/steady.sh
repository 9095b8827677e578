# shellcheck shell=sh disable=SC2154
#
# test/monitoring/steady.sh
#	  What test/monitoring/run checks while all is well: metrics, rules and dashboard.  It
#	  sources this; nobody runs it.

# What the exporter of a server says now, in $work/SERVER.metrics.
scrape()
{
	eval "port=\$port_$1"
	parse get "http://127.0.0.1:$port/metrics" >"$work/$1.metrics"
}

check_sql_exporter()
{
	is "sql_exporter.yml is made from queries.yaml, with inspect.pl sql_exporter" "$(cat "$top/monitoring/sql_exporter.yml")" \
		"$(parse sql_exporter "$top/monitoring/queries.yaml" 2>&1)"
	poll 60 is_same || :
	is "sql_exporter has the same metrics, labels and values" "$(diff "$work/values.postgres" "$work/values.snowflake")" ""
	is "and how many" "$(cut -d ' ' -f 1 "$work/values.snowflake" | sort -u | wc -l)" "$(wc -l <"$work/types")"
}

# Soon, if they were not asked at the same moment.
is_same()
{
	parse values "$url" postgres >"$work/values.postgres"
	parse values "$url" snowflake >"$work/values.snowflake"
	cmp -s "$work/values.postgres" "$work/values.snowflake"
}

no_errors()
{
	! grep -hiE 'error|warn' "$work"/sql_exporter.*.log || return 1
	# but for the tables that were locked
	! grep -hE 'level=error|err=' "$work"/exporter.*.log |
		grep -vE 'snowflake_registry pq: .* lock timeout|queryNamespaceMappings returned 1 errors' || return 1
	! grep -hE 'ERROR|FATAL' "$work/tmp/registry.log" "$work/tmp/node.log" "$work/tmp/idle.log" |
		grep -v 'due to lock timeout' || return 1
	for server in registry node idle stranger; do
		[ "$(parse sample "$work/$server.metrics" pg_exporter_last_scrape_error)" = 0 ] || return 1
	done
}

# A line each: server, database, the sample, and what SQL says.
samples()
{
	view='"Odd schema".pg_stat_snowflake'
	cat <<END
registry|postgres|snowflake_server_preloaded|SELECT 0
registry|postgres|snowflake_registry_numbers datname=postgres|SELECT 8
registry|postgres|snowflake_registry_numbers_used datname=postgres|SELECT count(DISTINCT node_number) FROM snowflake.leases
registry|postgres|snowflake_registry_numbers_live datname=postgres|SELECT count(*) FROM snowflake.leases WHERE closed_at IS NULL AND leased_until > clock_timestamp()
node|postgres|snowflake_server_preloaded|SELECT 1
node|postgres|snowflake_setting_shared_registry|SELECT 1
node|postgres|snowflake_setting_max_ahead_seconds|SELECT 2
node|postgres|snowflake_layout_state state=ready|SELECT 1
node|postgres|snowflake_layout_state state=expired|SELECT 0
node|postgres|snowflake_lease_node_number worker_id_from=auto|SELECT node_number FROM pg_stat_snowflake
node|postgres|snowflake_lease_window_seconds worker_id_from=auto|SELECT 4
node|postgres|snowflake_node_lease_failures_total|SELECT lease_failures FROM pg_stat_snowflake
idle|postgres|snowflake_setting_shared_registry|SELECT 0
idle|postgres|snowflake_registry_numbers datname=postgres|SELECT 512
idle|postgres|snowflake_registry_numbers_live datname=postgres|SELECT 1
idle|postgres|snowflake_registry_numbers_used datname=postgres|SELECT count(DISTINCT node_number) FROM snowflake.leases
idle|postgres|snowflake_guard_times datname=postgres guard=wait|SELECT 2
idle|postgres|snowflake_guard_last_timestamp_seconds datname=postgres guard=wait|SELECT extract(epoch FROM last_at)::float8 FROM snowflake.guard
idle|postgres|snowflake_layout_state layout=js53 state=ready|SELECT (state = 'ready')::int FROM $view WHERE layout = 'js53'
idle|postgres|snowflake_layout_state layout=js53 state=refused|SELECT (state = 'refused')::int FROM $view WHERE layout = 'js53'
idle|postgres|snowflake_layout_ids_issued_total layout=twitter|SELECT 1000007
idle|postgres|snowflake_layout_ids_issued_total layout=js53|SELECT 5
idle|postgres|snowflake_layout_sequence_overflows_total layout=twitter|SELECT sequence_overflows FROM $view WHERE layout = 'twitter' AND sequence_overflows > 0
idle|postgres|snowflake_layout_waits_total layout=twitter|SELECT waits FROM $view WHERE layout = 'twitter' AND waits > 0
idle|postgres|snowflake_layout_wait_seconds_total layout=twitter|SELECT extract(epoch FROM wait_time)::float8 FROM $view WHERE layout = 'twitter' AND wait_time > '0'
idle|postgres|snowflake_layout_max_ahead_seen_seconds layout=twitter|SELECT extract(epoch FROM max_ahead_seen)::float8 FROM $view WHERE layout = 'twitter' AND max_ahead_seen > '0'
idle|postgres|snowflake_layout_ahead_seconds layout=twitter|SELECT 0
idle|postgres|snowflake_layout_lease_failing layout=twitter|SELECT 0
idle|postgres|snowflake_layout_end_timestamp_seconds layout=twitter|SELECT extract(epoch FROM ends_at)::float8 FROM $view WHERE layout = 'twitter'
idle|postgres|snowflake_lease_node_number worker_id_from=auto|SELECT DISTINCT node_number FROM $view
idle|postgres|snowflake_lease_window_seconds worker_id_from=auto|SELECT 2.01
idle|postgres|snowflake_node_clock_rollbacks_total|SELECT DISTINCT clock_rollbacks FROM $view WHERE clock_rollbacks > 0
idle|postgres|snowflake_node_worker_switches_total|SELECT DISTINCT worker_switches FROM $view WHERE worker_switches > 0
idle|postgres|snowflake_node_lease_failures_total|SELECT DISTINCT lease_failures FROM $view
END
}

check_samples()
{
	samples >"$work/samples"
	while IFS='|' read -r server database sample statement; do
		# shellcheck disable=SC2086
		is "$server: $sample" "$(parse sample "$work/$server.metrics" $sample 2>&1)" \
			"$(sql "$server" "$database" -c "$statement" 2>&1)"
	done <"$work/samples"
}

is_between()
{
	echo "$1 $2 $3" | awk '{ exit !(NF == 3 && $1 <= $2 && $2 <= $3) }'
}

# between NAME LEAST VALUE GREATEST
between()
{
	if is_between "$2" "$3" "$4"; then
		ok "$1"
	else
		not_ok "$1" "$3 is not between $2 and $4"
	fi
}

# Soon, if it was not on a machine that stalled.
is_renewed()
{
	scrape node
	left=$(parse sample "$work/node.metrics" snowflake_lease_remaining_seconds worker_id_from=auto)
	is_between 2 "$left" 4
}

check_moving_samples()
{
	renewals='SELECT DISTINCT lease_renewals FROM "Odd schema".pg_stat_snowflake'
	before=$(sql idle postgres -c "$renewals")
	scrape idle
	after=$(sql idle postgres -c "$renewals")
	between "idle: snowflake_node_lease_renewals_total" "$before" \
		"$(parse sample "$work/idle.metrics" snowflake_node_lease_renewals_total)" "$after"
	poll 60 is_renewed || :
	between "node: snowflake_lease_remaining_seconds" 2 "$left" 4
}

check_names()
{
	parse types "$work/registry.metrics" "$work/node.metrics" "$work/idle.metrics" >"$work/types"
	is "doc/monitoring.md has the metrics that there are, with their types" \
		"$(parse table "$top/doc/monitoring.md" Metrics)" "$(cat "$work/types")"
	is "each of them is compared with SQL" \
		"$({ cut -d '|' -f 3 "$work/samples"; echo snowflake_node_lease_renewals_total; echo snowflake_lease_remaining_seconds; } |
			cut -d ' ' -f 1 | sort -u)" "$(cut -d ' ' -f 1 "$work/types")"
	check "their names are as Prometheus wants them" lint
	is "no id is exported" "$(cat "$work"/*.metrics | grep -c '^snowflake.*last_id')" 0
}

lint()
{
	for server in registry node idle; do
		grep -E '^(# (HELP|TYPE) )?snowflake_' "$work/$server.metrics" | "$promtool" check metrics || return 1
	done
}

check_rules()
{
	parse rules "$url" >"$work/rules"
	is "doc/monitoring.md has the alerts that there are, with their severity" \
		"$(parse table "$top/doc/monitoring.md" Alerts)" "$(cut -d ' ' -f 1,2 "$work/rules")"
	while read -r alert _ runbook; do
		check "$alert: $runbook is there" parse anchor "$top/${runbook%#*}" "${runbook#*#}"
		check "$alert is in alerts_test.yml" grep -q "alertname=\"$alert\"" "$top/monitoring/alerts_test.yml"
	done <"$work/rules"
	# those of alerts.yml that are not ours would find nothing
	is "the rules only use metrics that there are" "$(unknown_names <"$top/monitoring/alerts.yml")" ""
}

# The names in the input that look like metrics of ours, and are none.
unknown_names()
{
	cut -d ' ' -f 1 "$work/types" >"$work/names"
	# comments and texts speak of functions, too
	grep -vE '^ *(#|description:|summary:|[A-Z])' | grep -oE '\bsnowflake_[a-z_]+' | sort -u |
		grep -vxE 'snowflake_layouts' | grep -vxFf "$work/names" || :
}

check_dashboard()
{
	if ! parse dashboard "$top/monitoring/grafana.json" >"$work/dashboard" 2>"$work/dashboard.error"; then
		not_ok "the dashboard can be imported" "$(cat "$work/dashboard.error")"
		return
	fi
	ok "the dashboard can be imported"
	is "it only uses metrics that there are" "$(cut -f 2 "$work/dashboard" | unknown_names)" ""
	is "it shows all metrics" "$(cut -d ' ' -f 1 "$work/types" | while read -r name; do
		grep -qE "\b$name\b" "$work/dashboard" || echo "$name"
	done)" ""
	tab=$(printf '\t')
	while IFS=$tab read -r title expression; do
		result=$(parse series "$url" "$expression" 2>&1) || :
		case $result in
			[1-9]*) ok "dashboard, $title: data" ;;
			*) not_ok "dashboard, $title: data" "$expression" "$result" ;;
		esac
	done <"$work/dashboard"
}
