# A server for checks by real clients: to be sourced by a script that has built lorafuse
# into $dir. The server that is under way ends with the script, and $failed is 1 where one
# has not ended as it should.
pid= failed=0
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true' EXIT

# ended has the server end.
ended() {
	[ -n "$pid" ] || return 0
	kill "$pid"
	wait "$pid" || failed=1
	pid=
}

# serve ARGUMENTS…: a new server in place of the last; the address is in $url when it takes
# requests.
serve() {
	ended
	: >"$dir/log"
	"$dir/lorafuse" serve --listen 127.0.0.1:0 "$@" 2>"$dir/log" &
	pid=$!
	url=
	for _ in $(seq 300); do
		url=$(sed -n 's/.*msg=serving url=\([^ ]*\).*/\1/p' "$dir/log")
		[ -z "$url" ] || return 0
		sleep 0.1
	done
	cat "$dir/log"
	exit 1
}
