#!/bin/sh
# Checks a server with curl: statuses, headers, streams, and the responses to invalid
# requests.
#
#     scripts/check_curl.sh --url http://127.0.0.1:8000 [--key KEY] [--adapter NAME]
#
# The exit status is 1 if a check fails.
set -u
url= key= adapter=
while [ $# -gt 0 ]; do
	case $1 in
	--url) url=${2%/} ;;
	--key) key=$2 ;;
	--adapter) adapter=$2 ;;
	*) echo "usage: check_curl.sh --url URL [--key KEY] [--adapter NAME]" >&2; exit 2 ;;
	esac
	shift 2
done
[ -n "$url" ] || { echo "check_curl.sh: --url is missing" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# ask ARGUMENTS…: status in $status, headers in $dir/headers, body in $dir/body.
ask() {
	: >"$dir/headers"
	: >"$dir/body"
	status=$(curl -sS --max-time 120 -D "$dir/headers" -o "$dir/body" -w '%{http_code}' ${key:+-H "Authorization: Bearer $key"} "$@" 2>"$dir/err")
}

# post PATH BODY [ARGUMENTS…]
post() {
	path=$1 body=$2
	shift 2
	ask -H 'Content-Type: application/json' --data-binary "$body" "$@" "$url$path"
}

# check NAME STATUS [TEXT…]: the last response has the status, and its body each text.
check() {
	name=$1 want=$2 fault=
	shift 2
	[ "$status" = "$want" ] || fault="status $status, expected $want: $(head -c 300 "$dir/body")$(cat "$dir/err")"
	for text; do
		[ -n "$fault" ] || grep -qF -- "$text" "$dir/body" || fault="no $text in: $(head -c 300 "$dir/body")"
	done
	report "$name" "$fault"
}

# header NAME TEXT: a header of the last response contains the text.
header() {
	fault=
	grep -qi -- "^$1: *$2" "$dir/headers" || fault="no header $1: $2 in: $(tr '\n' ' ' <"$dir/headers")"
	report "header $1 of $path" "$fault"
}

report() {
	if [ -z "$2" ]; then
		passed=$((passed + 1))
		echo "ok     $1"
	else
		failed=$((failed + 1))
		echo "FAULT  $1: $2"
	fi
}

ask "$url/health"; check 'health' 200
ask "$url/v1/models"; check 'models' 200 '"object":"list"' '"id":'
model=$(sed 's/.*"data":\[{"id":"\([^"]*\)".*/\1/' "$dir/body")
ask "$url/v1/models/$model"; check 'one model' 200 "\"id\":\"$model\""
ask "$url/v1/models/no-such"; check 'no such model' 404 '"error":{' '"message":"'
ask "$url/metrics"; check 'metrics' 200 'vllm:num_requests_running' 'vllm:num_requests_waiting' '# TYPE '

hello='"messages":[{"role":"user","content":"Hi"}],"max_tokens":6,"temperature":0'
post /v1/chat/completions "{\"model\":\"$model\",$hello}"
check 'chat' 200 '"object":"chat.completion"' '"role":"assistant"' '"finish_reason":"' '"prompt_tokens":'
header Content-Type application/json
post /v1/chat/completions "{$hello}"; check 'chat without a model' 200 "\"model\":\"$model\""
post /v1/chat/completions "{\"model\":\"$model\",$hello,\"stream\":true,\"stream_options\":{\"include_usage\":true}}" -N
check 'chat, streamed' 200 '"object":"chat.completion.chunk"' '"choices":[]' 'data: [DONE]'
header Content-Type text/event-stream
header X-Accel-Buffering no
post /v1/completions "{\"model\":\"$model\",\"prompt\":\"Hi\",\"max_tokens\":3}"; check 'completion' 200 '"object":"text_completion"'
post /tokenize "{\"model\":\"$model\",\"prompt\":\"Hi\"}"; check 'tokenize' 200 '"tokens":[' '"count":'
post /v1/chat/completions "{\"model\":\"$model\",$hello,\"tool_choice\":\"required\",\"max_tokens\":120,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"stop\",\"parameters\":{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}}}],\"parallel_tool_calls\":false}"
check 'a tool call' 200 '"tool_calls":[{' '"name":"stop"' '"arguments":"{}"' '"finish_reason":"tool_calls"'
post /v1/chat/completions "{\"model\":\"$model\",$hello,\"max_tokens\":60,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"type\":\"object\",\"properties\":{\"ok\":{\"const\":true}},\"required\":[\"ok\"],\"additionalProperties\":false}}}}"
check 'an answer by a schema' 200 '{\"ok\":' '"finish_reason":"stop"'
if [ -n "$adapter" ]; then
	post /v1/chat/completions "{\"model\":\"$adapter\",$hello}"; check 'an adapter' 200 "\"model\":\"$adapter\""
fi

# Invalid requests.
post /v1/chat/completions "{\"model\":\"no-such\",$hello}"; check 'an unknown model' 404 '"error":{' 'no-such'
post /v1/chat/completions '{"model":'; check 'half of a JSON text' 400 '"error":{'
post /v1/chat/completions '[]'; check 'a list' 400 '"error":{'
post /v1/chat/completions ''; check 'nothing' 400 '"error":{'
printf '{"messages":[{"role":"user","content":"\377"}]}' >"$dir/bytes"
post /v1/chat/completions "@$dir/bytes"; check 'no UTF-8' 400 '"error":{'
post /v1/chat/completions "{\"model\":\"$model\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"temperature\":\"hot\"}"; check 'a wrong field' 400 '"param":"temperature"'
ask -H 'Content-Type: text/plain' --data-binary "{\"model\":\"$model\",$hello}" "$url/v1/chat/completions"; check 'another type' 415 '"error":{'
ask "$url/v1/chat/completions"; path=/v1/chat/completions; check 'another method' 405 '"error":{'
header Allow POST
ask "$url/v1/nothing"; check 'no such place' 404 '"error":{'
ask --path-as-is "$url/v1/models/../../../../etc/passwd"
report 'a path that climbs' "$([ "$status" -ge 300 ] && [ "$status" -lt 500 ] && ! grep -q root: "$dir/body" || echo "status $status")"
post /v1/load_lora_adapter '{"lora_name":"evil","lora_path":"../../../../etc"}'
report 'an adapter from elsewhere' "$([ "$status" -ge 400 ] && [ "$status" -lt 500 ] || echo "status $status")"
{ printf '{"messages":[{"role":"user","content":"'; head -c 100000000 /dev/zero | tr '\0' a; printf '"}]}'; } >"$dir/large"
post /v1/chat/completions "@$dir/large"; check '100 MB' 413 '"error":{'
rm "$dir/large"
ask -H 'Content-Type: application/json' -H 'Content-Length: 1000' --max-time 2 --data-binary '{"mod' "$url/v1/chat/completions" # incomplete body
status=$(curl -sS --max-time 1 -N -o /dev/null -w '%{http_code}' ${key:+-H "Authorization: Bearer $key"} -H 'Content-Type: application/json' --data-binary "{\"model\":\"$model\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,\"ignore_eos\":true,\"max_tokens\":60}" "$url/v1/chat/completions" 2>/dev/null)
post /v1/chat/completions "{\"model\":\"$model\",$hello}"; check 'after clients that went' 200 '"finish_reason":"'
if [ -n "$key" ]; then
	status=$(curl -sS -o "$dir/body" -w '%{http_code}' "$url/v1/models" 2>"$dir/err"); check 'without a key' 401 '"error":{'
	status=$(curl -sS -o "$dir/body" -w '%{http_code}' -H 'Authorization: Bearer wrong' "$url/v1/models" 2>"$dir/err"); check 'a wrong key' 401 '"error":{'
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
