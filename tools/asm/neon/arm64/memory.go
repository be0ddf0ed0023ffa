package arm64

// Loads and stores of one register, at a byte offset from r: a vector, its lower half, or its lowest word with zeros
// above it.
func (f *Func) LoadVec(d V, r R, at int)     { f.Go("FMOVQ %d(%v), F%v", at, r, d) }
func (f *Func) LoadHalf(d V, r R, at int)    { f.Go("FMOVD %d(%v), F%v", at, r, d) }
func (f *Func) LoadWord(d V, r R, at int)    { f.Go("FMOVS %d(%v), F%v", at, r, d) }
func (f *Func) StoreVec(s V, r R, at int)    { f.Go("FMOVQ F%v, %d(%v)", s, at, r) }
func (f *Func) StoreWord(s V, r R, at int)   { f.Go("FMOVS F%v, %d(%v)", s, at, r) }
func (f *Func) LoadPair(d, e V, r R, at int) { f.Go("FLDPQ %d(%v), (F%v, F%v)", at, r, d, e) }
func (f *Func) StorePair(s, t V, r R, at int) {
	f.Go("FSTPQ (F%v, F%v), %d(%v)", s, t, at, r)
}

// LoadHalfword loads 16 bits, with zeroes above them.
func (f *Func) LoadHalfword(d V, r R, at int) {
	f.Word(0x7d400000|uint32(at/2)<<10|uint32(r)<<5, []V{d}, []uint{0}, "ldr h%v, [x%d, #%d]", d, int(r), at)
}

// LoadLane loads a word into lane i and advances r; StoreLane is the inverse. LoadHalfLane loads 16 bits into lane i of
// 8.
func (f *Func) LoadLane(d V, i int, r R) {
	f.Word(0x0ddf8000|uint32(i>>1)<<30|uint32(i&1)<<12|uint32(r)<<5, []V{d}, []uint{0}, "ld1 {v%v.s}[%d], [x%d], #4", d, i, int(r))
}
func (f *Func) StoreLane(s V, i int, r R) {
	f.Word(0x0d9f8000|uint32(i>>1)<<30|uint32(i&1)<<12|uint32(r)<<5, []V{s}, []uint{0}, "st1 {v%v.s}[%d], [x%d], #4", s, i, int(r))
}
func (f *Func) LoadHalfLane(d V, i int, r R) {
	f.Word(0x0ddf4000|uint32(i>>2)<<30|uint32(i>>1&1)<<12|uint32(i&1)<<11|uint32(r)<<5, []V{d}, []uint{0}, "ld1 {v%v.h}[%d], [x%d], #2", d, i, int(r))
}

// Elem is an element type in memory; elements become float32 when loaded.
type Elem struct {
	Name string
	Size int
}

// Element types.
var (
	F32  = Elem{"F32", 4}
	F16  = Elem{"F16", 2}
	BF16 = Elem{"BF16", 2}
)

// Widen converts the lower 4 elements of n to float32.
func (e Elem) Widen(f *Func, d, n V) {
	switch e {
	case F16:
		f.FromHalf(d, n)
	case BF16:
		f.FromBrain(d, n)
	}
}

// Load loads 4 elements.
func (e Elem) Load(f *Func, d V, r R, at int) {
	if e == F32 {
		f.LoadVec(d, r, at)
		return
	}
	f.LoadHalf(d, r, at)
	e.Widen(f, d, d)
}

// Load8 loads 8 elements, the first ones into lo.
func (e Elem) Load8(f *Func, lo, hi V, r R, at int) {
	switch e {
	case F32:
		f.LoadPair(lo, hi, r, at)
	case F16:
		f.LoadVec(lo, r, at)
		f.FromHalf2(hi, lo)
		f.FromHalf(lo, lo)
	case BF16:
		f.LoadVec(lo, r, at)
		f.FromBrain2(hi, lo)
		f.FromBrain(lo, lo)
	}
}

// Load1 loads one element into lane 0, with zeros above it.
func (e Elem) Load1(f *Func, d V, r R, at int) {
	if e == F32 {
		f.LoadWord(d, r, at)
		return
	}
	f.LoadHalfword(d, r, at)
	e.Widen(f, d, d)
}

// LoadLanes loads one element from each of up to 8 addresses, which it advances, into lo and then hi. Lanes without an
// address are zero.
func (e Elem) LoadLanes(f *Func, lo, hi V, from []R) {
	f.Zero(lo)
	if e == F32 {
		if len(from) > 4 {
			f.Zero(hi)
		}
		for i, r := range from {
			f.LoadLane([]V{lo, hi}[i/4], i%4, r)
		}
		return
	}
	for i, r := range from {
		f.LoadHalfLane(lo, i, r)
	}
	if len(from) > 4 {
		switch e {
		case F16:
			f.FromHalf2(hi, lo)
		case BF16:
			f.FromBrain2(hi, lo)
		}
	}
	e.Widen(f, lo, lo)
}
