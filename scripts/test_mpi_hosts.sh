#!/bin/sh
# Trains on two hosts, which are network namespaces joined by a virtual cable: at full speed, at
# 100 Mbit/s, and while the cable is cut.
#
#     scripts/test_mpi_hosts.sh FOLDER    of the programs lorafuse and lorafuse-mpi
#
# It needs root, ip, tc and mpirun of Open MPI 4. Without them it ends with status 77.
set -eu
cd "$(dirname "$0")/.."
dir=$1
a=lorafuse-a-$$ b=lorafuse-b-$$
out=$(mktemp -d)
mpirun=$(command -v mpirun.openmpi || command -v mpirun || true)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

end() {
	for n in "$a" "$b"; do
		pids=$(ip netns pids "$n" 2>/dev/null) && [ -z "$pids" ] || kill -9 $pids 2>/dev/null || true
		ip netns del "$n" 2>/dev/null || true
	done
	rm -r "$out"
}
trap end EXIT
fail() {
	echo "two hosts: $1" >&2
	[ ! -e "$out/log" ] || cat "$out/log" >&2
	exit 1
}

if [ -z "$mpirun" ] || ! command -v tc >/dev/null || ! ip netns add "$a" 2>/dev/null; then
	echo 'left out: two hosts, which need root, ip, tc and mpirun of Open MPI 4'
	exit 77
fi
ip netns add "$b"
ip link add va netns "$a" type veth peer name vb netns "$b"
ip -n "$a" addr add 192.0.2.1/24 dev va
ip -n "$b" addr add 192.0.2.2/24 dev vb
for link in "$a lo" "$a va" "$b lo" "$b vb"; do
	ip -n ${link% *} link set ${link#* } up
done
# mpirun starts its daemon on the other host with this program instead of ssh.
printf '#!/bin/sh\nshift\nexec ip netns exec %s unshare --uts sh -c "hostname host-b; $*"\n' "$b" >"$out/agent"
chmod +x "$out/agent"

# settings OUTPUT: a run whose steps have one exchange without a micro-batch to overlap.
settings() {
	echo examples/godoc/train.yaml --set output_dir="$out/$1" --set distributed_timeout=3s --set threads=1 --set adapter.r=64 \
		--set batch_size=1 --set gradient_accumulation_steps=2 --set steps=12 --set warmup_steps=1 --set save_steps=0 \
		--set data.eval= --set eval_steps=0 --set eval_at_start=false --set log.plot=false --set log.tensorboard=false
}
# hosts OUTPUT [FLAG…]: trains on both hosts.
hosts() {
	run=$1
	shift
	ip netns exec "$a" timeout -k 1 60 "$mpirun" --mca plm_rsh_agent "$out/agent" --mca btl self,tcp --mca btl_tcp_links 2 --mca btl_tcp_if_include 192.0.2.0/24 \
		--mca oob_tcp_if_include 192.0.2.0/24 -H 192.0.2.1:1,192.0.2.2:1 -np 2 "$dir/lorafuse-mpi" train $(settings "$run") "$@" >"$out/log" 2>&1
}
hash() { sha256sum <"$out/$1/adapter/adapter_model.safetensors"; }
seconds() { sed -n 's/^done .* steps in \([0-9.]*\) s.*/\1/p' "$out/log"; }
# ranks: the number of processes of the run on both hosts.
ranks() {
	for pid in $(ip netns pids "$a") $(ip netns pids "$b"); do
		readlink "/proc/$pid/exe" || true
	done | grep -c "^$dir/lorafuse-mpi$" || true
}

"$dir/lorafuse" train $(settings alone) >"$out/log" 2>&1 || fail 'the run alone fails'
hosts fast || fail 'the run on two hosts fails'
grep -q 'ranks    2, on 2 hosts' "$out/log" || fail 'the run is not on two hosts'
[ "$(hash fast)" = "$(hash alone)" ] || fail 'the adapter differs from that of a run alone'
fast=$(seconds)

rate=100
for link in "$a va" "$b vb"; do
	ip netns exec ${link% *} tc qdisc add dev ${link#* } root tbf rate ${rate}mbit burst 64kb latency 100ms
done
sent() { ip netns exec "$a" cat /sys/class/net/va/statistics/tx_bytes; }
before=$(sent)
hosts slow || fail "the run at $rate Mbit/s fails"
[ "$(hash slow)" = "$(hash alone)" ] || fail "the adapter at $rate Mbit/s differs from that of a run alone"
echo "$(seconds) $fast $(($(sent) - before)) $rate" |
	awk '{ printf "two hosts: %.1f s at %d Mbit/s, %.1f s without a limit; %.1f MB sent, %.1f s at this rate: the difference is %.2f of that\n", $1, $4, $2, $3 / 1e6, $3 * 8e-6 / $4, ($1 - $2) / ($3 * 8e-6 / $4) }'

hosts cut &
job=$!
until [ "$(grep -c . "$out/cut/metrics.jsonl" 2>/dev/null)" -ge 3 ] 2>/dev/null; do
	kill -0 $job 2>/dev/null || fail 'the run ends before the cable is cut'
	sleep 0.02
done
ip -n "$b" link set vb down
began=$(date +%s%N)
until [ "$(ranks)" = 0 ]; do
	ended=$((($(date +%s%N) - began) / 1000000))
	[ $ended -lt 15000 ] || fail 'ranks are left 15 s after the cable was cut'
	sleep 0.05
done
grep -q 'lorafuse: train: step [0-9]*: lost rank: rank 1 on host-b in all-' "$out/log" || fail 'rank 0 does not report the lost rank'
echo "two hosts: all ranks ended $ended ms after the cable was cut, with a timeout of 3 s"
"$dir/lorafuse" train $(settings cut) --resume >"$out/log" 2>&1 || fail 'the run that lost a host is not resumed'
[ "$(hash cut)" = "$(hash alone)" ] || fail 'the resumed adapter differs from that of a run alone'
