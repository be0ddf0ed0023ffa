package tensor

// isa is an instruction set that conversions are made with.
type isa uint8

const (
	portable isa = iota
	avx2
	avx512
	neon
)

// String is the name that the environment variable LORAFUSE_CPU takes.
func (s isa) String() string { return [...]string{"portable", "avx2", "avx512", "neon"}[s] }

// active is the best that the machine runs, or a lesser one that the
// environment variable LORAFUSE_CPU asks for. Nothing changes it after start-up
// but the tests.
var active = choose()

// streamFrom is the number of bytes from which on results are written past the
// cache: more than is left of a third-level cache for one of several
// processors. Writing then need not read the old contents first.
var streamFrom = 8 << 20
