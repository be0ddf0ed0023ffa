package main

import (
	"math"

	"github.com/lorafuse/lorafuse/tools/asm/neon/arm64"
)

// lanes is the number of floats in a register.
const lanes = 4

// op is an operand: a register, or one lane of it that is used for all.
type op struct {
	reg  V
	lane int // −1: the register itself
}

// val holds one operand for each of several registers, or one operand for all of them. Registers are processed side by
// side, so that the processor has independent work.
type val []op

func (x val) at(i int) op {
	if len(x) == 1 {
		return x[0]
	}
	return x[i]
}

// width returns the number of registers side by side.
func width(xs ...val) int {
	n := 1
	for _, x := range xs {
		n = max(n, len(x))
	}
	return n
}

// kernel is a function under construction.
type kernel struct {
	*arm64.Func
	pool  V // register to which constants are added
	fills int
	known map[uint32]op
	temp  R
}

// suffix is the suffix of function names.
const suffix = "NEON"

func text(name, signature, doc string) *kernel {
	k := &kernel{Func: file.Func(name+suffix, signature, name+suffix+" "+doc), known: map[uint32]op{}}
	k.temp = k.Reg()
	return k
}

// param loads an integer or a pointer.
func (k *kernel) param(name string) R {
	r := k.Reg()
	k.Load(name, r)
	return r
}

// scalar loads a float parameter.
func (k *kernel) scalar(name string) val {
	r := k.Vec()
	k.LoadFloat(name, r)
	return val{{r, 0}}
}

// word returns a 32-bit constant for all lanes. Four constants share a register, which is live until the last use of
// any of them; call it before the loop.
func (k *kernel) word(bits uint32) val {
	o, ok := k.known[bits]
	if !ok {
		if k.fills%lanes == 0 {
			k.pool = k.Vec()
		}
		o = op{k.pool, k.fills % lanes}
		k.fills++
		k.Go("MOVW $%#x, %v", bits, k.temp)
		k.PutWord(o.reg, o.lane, k.temp)
		k.known[bits] = o
	}
	return val{o}
}

// constant returns a float constant; see word.
func (k *kernel) constant(f float64) val { return k.word(math.Float32bits(float32(f))) }

// near returns a constant in its own register, for operations other than multiplications by a lane.
func (k *kernel) near(bits uint32) val {
	r := k.Vec()
	k.Go("MOVW $%#x, %v", bits, k.temp)
	k.SpreadWord(r, k.temp)
	return val{{r, -1}}
}

func bits(f float64) uint32 { return math.Float32bits(float32(f)) }

// fresh returns n new registers.
func (k *kernel) fresh(n int) val {
	x := make(val, n)
	for i := range x {
		x[i] = op{k.Vec(), -1}
	}
	return x
}

// full returns o in a register of its own.
func (k *kernel) full(o op) V {
	if o.lane < 0 {
		return o.reg
	}
	r := k.Vec()
	k.Spread(r, o.reg, o.lane)
	return r
}

// copy copies x to n new registers.
func (k *kernel) copy(x val, n int) val {
	dst := k.fresh(n)
	for i := range dst {
		if o := x.at(i); o.lane < 0 {
			k.Move(dst[i].reg, o.reg)
		} else {
			k.Spread(dst[i].reg, o.reg, o.lane)
		}
	}
	return dst
}

// three emits dst = f(a, b) for a new dst.
func (k *kernel) three(f func(d, n, m V), a, b val) val {
	dst := k.fresh(width(a, b))
	for i := range dst {
		f(dst[i].reg, k.full(a.at(i)), k.full(b.at(i)))
	}
	return dst
}

// one emits dst = f(x) for a new dst.
func (k *kernel) one(f func(d, n V), x val) val {
	dst := k.fresh(len(x))
	for i := range dst {
		f(dst[i].reg, k.full(x[i]))
	}
	return dst
}

func (k *kernel) add(a, b val) val { return k.three(k.FAdd, a, b) }
func (k *kernel) sub(a, b val) val { return k.three(k.FSub, a, b) }
func (k *kernel) div(a, b val) val { return k.three(k.FDiv, a, b) }
func (k *kernel) max(a, b val) val { return k.three(k.FMax, a, b) }
func (k *kernel) min(a, b val) val { return k.three(k.FMin, a, b) }
func (k *kernel) and(a, b val) val { return k.three(k.And, a, b) }
func (k *kernel) xor(a, b val) val { return k.three(k.Xor, a, b) }
func (k *kernel) sqrt(x val) val   { return k.one(k.FSqrt, x) }

// product emits d = whole(d, a, b), or lane if one of the two is a lane.
func (k *kernel) product(d V, a, b op, whole func(d, n, m V), lane func(d, n, m V, i int)) {
	if a.lane >= 0 {
		a, b = b, a
	}
	if b.lane < 0 {
		whole(d, a.reg, b.reg)
		return
	}
	lane(d, k.full(a), b.reg, b.lane)
}

func (k *kernel) mul(a, b val) val {
	dst := k.fresh(width(a, b))
	for i := range dst {
		k.product(dst[i].reg, a.at(i), b.at(i), k.FMul, k.FMulLane)
	}
	return dst
}

// addMul emits acc += a·b.
func (k *kernel) addMul(acc, a, b val) {
	for i := range acc {
		k.product(acc[i].reg, a.at(i), b.at(i), k.FMulAdd, k.FMulAddLane)
	}
}

// subMul emits acc −= a·b.
func (k *kernel) subMul(acc, a, b val) {
	for i := range acc {
		k.product(acc[i].reg, a.at(i), b.at(i), k.FMulSub, k.FMulSubLane)
	}
}

// mulAdd computes x·m + c.
func (k *kernel) mulAdd(x, m, c val) val {
	dst := k.copy(c, width(x, m))
	k.addMul(dst, x, m)
	return dst
}

// bySign selects neg where the sign bit of x is set and pos elsewhere.
func (k *kernel) bySign(x, neg, pos val) val {
	dst := k.fresh(len(x))
	for i := range dst {
		k.SignRight(dst[i].reg, x[i].reg, 31)
		k.Select(dst[i].reg, neg.at(i).reg, pos.at(i).reg)
	}
	return dst
}
