package tensor

// isa is an instruction set used for conversions.
type isa uint8

const (
	portable isa = iota
	avx2
	avx512
	neon
)

// String returns the name used in the environment variable LORAFUSE_CPU.
func (s isa) String() string { return [...]string{"portable", "avx2", "avx512", "neon"}[s] }

// active is the best instruction set of the machine, or a lesser one selected
// by the environment variable LORAFUSE_CPU. Only tests change it after
// start-up.
var active = choose()

// streamFrom is the number of bytes above which results bypass the cache: more
// than the share of one CPU in a third-level cache. Bypassing avoids reading
// the old contents first.
var streamFrom = 8 << 20
