# shellcheck shell=sh disable=SC2154
#
# test/drivers.sh
#	  What the drivers of client/kit need before they can run.  test/programs/run and test/torture/run
#	  source it, after test/common.sh; nobody runs it.
#
# Needs: the copy of the checkout that prepare or prepare_tree makes.  Gives:
#
#	  install_node_modules	the packages of client/node, in the copy
#	  build_go		$work/tmp/kitdriver

# In the copy, as the caller, whose settings say where packages come from
install_node_modules()
{
	mkdir "$work/node"
	cp "$top/client/node/package.json" "$top/client/node/package-lock.json" "$work/node"
	set -- ci --ignore-scripts --no-audit --no-fund --no-update-notifier --cache "${npm_config_cache:-$work/npm}"
	# once more, as with apt: a registry may be away for a moment
	(cd "$work/node" && { npm "$@" || npm "$@"; }) >"$work/npm.log" 2>&1 || { cat "$work/npm.log" >&2; die "npm ci failed"; }
	as_user rm -rf client/node/node_modules
	as_user cp -R "$work/node/node_modules" client/node
}

# Without a network, and so without modules
build_go()
{
	as_user mkdir -p "$work/tmp/gopath/src/example"
	as_user ln -s "$work/tree/client/go" "$work/tmp/gopath/src/example/snowflake"
	run env -C "$work/tmp/gopath/src/example/snowflake" GO111MODULE=off GOFLAGS= GOPATH="$work/tmp/gopath:/usr/share/gocode" \
		GOCACHE="$work/tmp/gocache" sh -c 'test -z "$(gofmt -l .)" && go vet ./... && go build -o "$1" ./kitdriver' sh \
		"$work/tmp/kitdriver" >"$work/go.log" 2>&1 || { cat "$work/go.log" >&2; die "the library for Go cannot be built"; }
}
