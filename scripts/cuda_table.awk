# Turns PTX and then the report of ptxas -v into a row for each kernel: name, target,
# registers, stack, spilled and static shared bytes, threads and occupancy, the share of
# a multiprocessor's warps that registers, static shared memory and threads allow.
# Fails on spills, and on stack frames but of the kernels that framed names.
#   awk -v framed="NAME…" -f scripts/cuda_table.awk FILE.ptx… FILE.log
BEGIN {
	split(framed, names, " ")
	for (i in names) may[names[i]] = 1
	# warps, blocks and shared memory of a multiprocessor; a block takes 1 KB besides its own
	limit["sm_80"] = "64 32 164"; limit["sm_89"] = "48 24 100"; limit["sm_90a"] = limit["sm_100"] = "64 32 228"
}
function fit(room, need) { return need ? int(room / need) : 1024 }
function least(a, b) { return a < b ? a : b }

/\.entry/ { name = $3; sub(/\(.*/, "", name) }
/^\.maxntid/ { gsub(/,/, " "); threads[name] = $2 * $3 * $4 }

/Compiling entry function/ { gsub(/\047/, ""); name = $7; target = $9; stack = spills = 0 }
/bytes stack frame/ { stack += $1; spills += $5 + $9 }
/Used [0-9]+ registers/ {
	registers = $5; shared = 0
	for (i = 6; i < NF; i++) if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i
	split(limit[target], most, " ")
	warps = int((threads[name] + 31) / 32)
	blocks = least(least(fit(65536, int((registers + 7) / 8) * 8 * 32 * warps), fit(most[3] * 1024, shared + 1024)), least(fit(most[1], warps), most[2]))
	occupancy = warps && most[1] ? int(100 * blocks * warps / most[1]) "%" : "?"
	printf "%-40s %-8s %4d registers %4d stack %5d spilled %6d shared %5d threads %4s\n", name, target, registers, stack, spills, shared, threads[name], occupancy
	if (spills) bad = 1
	if (stack && !(name in may)) bad = 1
}
END { exit bad }
