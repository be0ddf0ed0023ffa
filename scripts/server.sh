# A server for checks with real clients. Source this file after building lorafuse into
# $dir. The running server stops with the script; $failed is 1 if a server did not shut
# down cleanly.
pid= failed=0
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true' EXIT

# ended stops the server.
ended() {
	[ -n "$pid" ] || return 0
	kill "$pid"
	wait "$pid" || failed=1
	pid=
}

# serve ARGUMENTS…: replaces the running server. When the new one accepts requests, $url is
# its address.
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
